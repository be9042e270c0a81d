/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Enters a process that allocates in many threads, and leaves it, again and again:
 *
 *	attach_cycles CYCLES MILLISECONDS THREADS [threads|forks|signals|libraries]...
 *	attach_cycles CYCLES MILLISECONDS pid:PID
 *
 * Each time the recorder's count is compared with the program's own, and what is left behind is
 * looked for. One line of JSON tells how long all threads stood still; status 1: something was wrong.
 */
#include "attach_storm.h"
#include "collector/region_read.h"
#include "hook/attach.h"
#include "program.h"

#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DETACH_WAIT_MS 5000
#define FAILURES_TOLD  10

static struct storm_ledger *ledger;
static pid_t target;
static unsigned failures;

static void tell(const char *what, unsigned cycle, uint64_t a, uint64_t b)
{
	if (failures++ < FAILURES_TOLD)
		fprintf(stderr, "cycle %u: %s: %" PRIu64 ", %" PRIu64 "\n", cycle, what, a, b);
}

static void start_target(unsigned threads, unsigned kinds)
{
	target = fork();
	REQUIRE(target >= 0);
	if (target == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		storm(ledger, threads, kinds);
		_exit(0);
	}
	while (ledger->ready < threads)
		usleep(1000);
}

struct sums {
	uint64_t sure, maybe;
};

static struct sums add_up(unsigned threads)
{
	struct sums sums = {0, 0};

	for (unsigned i = 0; i < threads; i++) {
		sums.sure += ledger->counts[i].sure;
		sums.maybe += ledger->counts[i].maybe;
	}
	return sums;
}

struct recorded {
	uint64_t allocated, in_use, lost;
};

static struct recorded read_region(int fd, const struct hl_region_header *layout, const void *base)
{
	struct hl_region_view view = {base, layout->region_bytes, layout, &fd};
	struct hl_region_times times = {0, UINT64_MAX / 2};
	struct hl_recording_process process = {.complete = true};
	struct hl_error err;
	struct recorded sums = {0, 0, 0};

	REQUIRE(hl_region_read(&view, &times, &process, &err) == 0);
	for (uint32_t i = 0; i < process.value_count; i++) {
		sums.allocated += process.values[i].alloc_objects;
		sums.in_use += process.values[i].alloc_objects - process.values[i].free_objects;
	}
	sums.lost = process.lost.events + process.lost.damaged;
	process.executable = process.name = process.successor = NULL;
	process.command = NULL;
	hl_recording_process_release(&process);
	return sums;
}

/* How many lines of maps are heapline's, descriptors there are, and threads of another policy. */
struct residue {
	unsigned maps, descriptors, lifted;
};

static unsigned count_entries(const char *folder, bool (*counts)(const char *name))
{
	char path[64];
	unsigned count = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", target, folder);
	DIR *directory = opendir(path);
	REQUIRE(directory);
	for (struct dirent *entry; (entry = readdir(directory));)
		count += entry->d_name[0] != '.' && counts(entry->d_name);
	closedir(directory);
	return count;
}

static bool any(const char *name)
{
	(void)name;
	return true;
}

static bool is_lifted(const char *name)
{
	return sched_getscheduler(atoi(name)) > SCHED_OTHER;
}

static struct residue look_for_residue(void)
{
	char path[64], line[4096];
	struct residue residue = {0, 0, 0};

	snprintf(path, sizeof(path), "/proc/%d/maps", target);
	FILE *maps = fopen(path, "r");
	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps))
		residue.maps += strstr(line, "heapline") != NULL;
	fclose(maps);
	residue.descriptors = count_entries("fd", any);
	residue.lifted = count_entries("task", is_lifted);
	return residue;
}

/* An allocation that began in one cycle must not end in the next. */
static void let_all_go_on(unsigned threads)
{
	for (unsigned i = 0; i < threads; i++) {
		uint64_t before = ledger->counts[i].all;
		while (ledger->counts[i].all < before + 2)
			usleep(100);
	}
}

static struct recorded record_once(unsigned milliseconds, struct hl_attach_times *ret_times)
{
	struct hl_attach_settings settings = {NULL};
	struct hl_attach *attach;
	struct hl_region_header layout;
	struct hl_error err = {0};
	int fd;

	if (hl_attach_open(target, &settings, &attach, &err) < 0 ||
	    hl_attach_bring(attach, &fd, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	hl_region_layout(&layout, 0, HL_MODE_MEM_FAST);
	REQUIRE(ftruncate(fd, (off_t)layout.region_bytes) == 0);
	struct hl_region_header *base = mmap(NULL, layout.region_bytes, PROT_READ | PROT_WRITE,
					     MAP_SHARED | MAP_NORESERVE, fd, 0);
	REQUIRE(base != MAP_FAILED);
	atomic_init(&layout.mode, hl_mode_first(HL_MODE_MEM_FAST));
	*base = layout;
	int r = hl_attach_patch(attach, layout.region_bytes, &err);
	if (r == 0) {
		usleep(milliseconds * 1000);
		r = hl_attach_detach(attach, DETACH_WAIT_MS, &err);
	}
	if (r < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	*ret_times = hl_attach_times(attach);
	hl_attach_free(attach);
	struct recorded recorded = read_region(fd, &layout, base);
	munmap(base, layout.region_bytes);
	close(fd);
	return recorded;
}

static int by_value(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

static void print_times(const char *name, uint32_t *us, unsigned count)
{
	qsort(us, count, sizeof(*us), by_value);
	printf("\"%s_p50_us\": %u, \"%s_p99_us\": %u, \"%s_max_us\": %u, ", name, us[count / 2],
	       name, us[count * 99 / 100], name, us[count - 1]);
}

static unsigned kinds_of(char **words)
{
	static const char *const names[] = {"threads", "forks", "signals", "libraries"};
	unsigned kinds = 0;

	for (; *words; words++)
		for (unsigned i = 0; i < 4; i++)
			kinds |= strcmp(*words, names[i]) ? 0 : 1u << i;
	return kinds;
}

int main(int argc, char **argv)
{
	REQUIRE(argc >= 4);
	unsigned cycles = (unsigned)atoi(argv[1]), milliseconds = (unsigned)atoi(argv[2]);
	bool is_others = !strncmp(argv[3], "pid:", 4); /* of which nothing is known */
	unsigned threads = is_others ? 0 : (unsigned)atoi(argv[3]), kinds = kinds_of(argv + 4);
	uint32_t *bring = calloc(cycles, sizeof(*bring)), *patch = calloc(cycles, sizeof(*patch));
	uint32_t *detach = calloc(cycles, sizeof(*detach));
	uint64_t total = 0;

	REQUIRE(cycles && bring && patch && detach && threads <= STORM_THREADS_MAX);
	ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	REQUIRE(ledger != MAP_FAILED);
	if (is_others)
		target = atoi(argv[3] + 4);
	else
		start_target(threads, kinds);
	struct residue at_first = look_for_residue();
	for (unsigned i = 0; i < cycles; i++) {
		struct sums before = add_up(threads);
		struct hl_attach_times times;
		struct recorded recorded = record_once(milliseconds, &times);
		let_all_go_on(threads);
		struct sums after = add_up(threads);
		uint64_t sure = after.sure - before.sure, maybe = after.maybe - before.maybe;
		if (recorded.allocated < sure ||
		    (threads && !kinds && recorded.allocated > sure + maybe + threads))
			tell("allocations recorded, and those that the program knows of", i,
			     recorded.allocated, sure);
		if (threads && !kinds && recorded.in_use > threads * UINT64_C(STORM_KEPT + 2))
			tell("blocks in use, and as many as there can be", i, recorded.in_use,
			     threads * UINT64_C(STORM_KEPT + 2));
		if (recorded.lost)
			tell("events lost", i, recorded.lost, 0);
		struct residue left = look_for_residue();
		if (left.maps || left.lifted ||
		    (threads && !(kinds & STORM_LIBRARIES) &&
		     left.descriptors != at_first.descriptors))
			tell("mappings and threads that are not as before", i, left.maps,
			     left.lifted);
		bring[i] = times.bring_us;
		patch[i] = times.patch_us;
		detach[i] = times.detach_us;
		total += recorded.allocated;
	}
	ledger->stop = 1;
	int status = 0;
	REQUIRE(is_others || waitpid(target, &status, 0) == target);
	printf("{");
	print_times("bring", bring, cycles);
	print_times("patch", patch, cycles);
	print_times("detach", detach, cycles);
	printf("\"cycles\": %u, \"allocations\": %" PRIu64 ", \"status\": %d, \"failures\": %u}\n",
	       cycles, total, status, failures);
	return failures || status;
}
