/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Enters a process that allocates in many threads, and leaves it, again and again:
 *
 *	attach_cycles CYCLES MILLISECONDS THREADS [seconds:SECONDS]
 *		      [threads|forks|signals|libraries|joined|killed[:STEP]]...
 *	attach_cycles CYCLES MILLISECONDS pid:PID [seconds:SECONDS]
 *
 * Each time the recorder's count is compared with the program's own, and what is left behind is
 * looked for. `joined`: children that it forks are entered as well; then steps count from there on. `killed`: before each cycle another process does the same and is killed, each time at
 * another of its steps: at equal distances from a random one on, or, with `killed:STEP`, at one after
 * the other from that on; CYCLES 0: at each step. `seconds`: no cycle begins after that time. One line of JSON tells how long all threads stood
 * still; status 1: something was wrong.
 */
#include "attach_storm.h"
#include "base/clock.h"
#include "collector/region_read.h"
#include "hook/attach.h"
#include "kill_steps.h"
#include "process/maps.h"
#include "process/process.h"
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUSY_TRIES     8 /* where the machine has no time for a thread to stop */
#define DETACH_WAIT_MS 5000
#define FAILURES_TOLD  10
#define JOINED	       (1u << 4) /* beside enum storm_kind */
#define KILLED	       (1u << 5)
#define CHILDREN_MAX   256   /* of a cycle */
#define PATIENCE_MS    60000 /* for what happens by itself */

static struct storm_ledger *ledger;
static pid_t target;
static unsigned kinds; /* of what the target does */
static unsigned failures;
static unsigned long whole_children; /* each of whose allocations was recorded */
static long kill_step = -1; /* of this tool, once children ask it; -1: it is not to be killed */

static void tell(const char *what, unsigned cycle, uint64_t a, uint64_t b)
{
	if (failures++ < FAILURES_TOLD)
		fprintf(stderr, "cycle %u: %s: %" PRIu64 ", %" PRIu64 "\n", cycle, what, a, b);
}

static void start_target(unsigned threads)
{
	target = fork();
	REQUIRE(target >= 0);
	if (target == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* As a service: the kernel shares the processors out by session first, and its threads
		 * would else all take turns before we get one, at each of our steps. */
		setsid();
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
	struct hl_region_view view = {
		.base = base, .bytes = layout->region_bytes, .layout = layout, .fd = &fd};
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

/* How many mappings are heapline's, descriptors there are, threads of another policy, and mappings
 * of code that are not as in this process. */
struct residue {
	unsigned maps, descriptors, lifted, changed;
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

/* This process has not been entered, and the target was forked off it. */
static bool is_changed(int memory, const struct hl_map *map)
{
	char there[4096];

	for (uint64_t at = map->start; at < map->end; at += sizeof(there)) {
		REQUIRE(pread(memory, there, sizeof(there), (off_t)at) == sizeof(there));
		if (memcmp(there, (const void *)(uintptr_t)at, sizeof(there)) != 0)
			return true;
	}
	return false;
}

static void look_at_maps(struct residue *residue, bool is_ours)
{
	struct hl_maps maps = {0}, own = {0};
	struct hl_error err;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/mem", target);
	int memory = open(path, O_RDONLY | O_CLOEXEC);
	REQUIRE(memory >= 0 && hl_maps_read(target, &maps, &err) == 0 &&
		hl_maps_read(getpid(), &own, &err) == 0);
	for (size_t i = 0; i < maps.count; i++) {
		const struct hl_map *map = &maps.maps[i];
		const struct hl_map *here = hl_maps_find(&own, map->start);
		bool is_code = map->flags & HL_MAP_EXEC && map->path[0] != '[';
		residue->maps +=
			strstr(map->path, "memfd:heapline") || (is_ours && is_code && !map->inode);
		if (is_ours && is_code && here && here->inode == map->inode &&
		    here->start == map->start)
			residue->changed += is_changed(memory, map);
	}
	close(memory);
	hl_maps_release(&maps);
	hl_maps_release(&own);
}

static struct residue look_for_residue(bool is_ours)
{
	struct residue residue = {0};

	look_at_maps(&residue, is_ours);
	residue.descriptors = count_entries("fd", any);
	residue.lifted = count_entries("task", is_lifted);
	return residue;
}

/* Says how, too. */
static bool has_ended(void)
{
	siginfo_t info = {0};

	if (waitid(P_PID, (id_t)target, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
		return false;
	fprintf(stderr, "the target has ended by %s %d\n",
		info.si_code == CLD_EXITED ? "itself, with status" : "signal", info.si_status);
	return true;
}

/* An allocation that began in one cycle must not end in the next. */
static void let_all_go_on(unsigned threads, unsigned cycle)
{
	uint64_t before[STORM_THREADS_MAX], forks = ledger->forks;
	unsigned gone_on = 0;

	for (unsigned i = 0; i < threads; i++)
		before[i] = ledger->counts[i].all;
	for (unsigned waited_ms = 0;
	     gone_on < threads || (kinds & STORM_FORKS && ledger->forks < forks + 2); waited_ms++) {
		if (waited_ms == PATIENCE_MS || has_ended()) {
			tell(waited_ms == PATIENCE_MS ? "threads that go on, out of"
						      : "the target has ended; went on, out of",
			     cycle, gone_on, threads);
			exit(1);
		}
		usleep(1000);
		while (gone_on < threads && ledger->counts[gone_on].all >= before[gone_on] + 2)
			gone_on++;
	}
}

static void end_test(unsigned cycle, const struct hl_error *err)
{
	fprintf(stderr, "cycle %u: %s\n", cycle, err->text);
	has_ended();
	exit(1);
}

/* A thread that gets no processor stays in the recorder for longer than one call waits. */
static void detach(struct hl_attach *attach, unsigned cycle)
{
	struct hl_error err = {0};
	int r = -EAGAIN;

	for (unsigned i = 0; r == -EAGAIN && i < BUSY_TRIES; i++)
		r = hl_attach_detach(attach, DETACH_WAIT_MS, &err);
	if (r < 0)
		end_test(cycle, &err);
}

/* ---- children ---- */

struct child {
	int fd;
	struct hl_region_header layout, *base;
};

static struct hl_region_header *make_region(int fd, struct hl_region_header *layout)
{
	hl_region_layout(layout, 0, HL_MODE_MEM_FAST);
	REQUIRE(ftruncate(fd, (off_t)layout->region_bytes) == 0);
	struct hl_region_header *base = mmap(NULL, layout->region_bytes, PROT_READ | PROT_WRITE,
					     MAP_SHARED | MAP_NORESERVE, fd, 0);
	REQUIRE(base != MAP_FAILED);
	atomic_init(&layout->mode, hl_mode_first(HL_MODE_MEM_FAST));
	*base = *layout;
	return base;
}

/* Enters children that the target forks, for so long. Their number. */
static unsigned attend(struct hl_attach *attach, int asked_fd, unsigned milliseconds,
		       struct child children[CHILDREN_MAX])
{
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC) + milliseconds * UINT64_C(1000000);
	struct pollfd poller = {.fd = asked_fd, .events = POLLIN};
	struct hl_attach_child asked;
	unsigned count = 0;

	while (hl_clock_ns(CLOCK_MONOTONIC) < end_ns) {
		poll(&poller, 1, 1);
		while (count < CHILDREN_MAX && hl_attach_next_child(attach, &asked)) {
			struct child *child = &children[count++];
			child->fd = asked.region_fd;
			child->base = make_region(child->fd, &child->layout);
			hl_attach_answer_child(attach, &asked, true);
		}
	}
	return count;
}

/* One at a time lives: the last may have been left amid its work. Others have done that, or not waited. */
static void check_children(struct child *children, unsigned count, unsigned cycle)
{
	for (unsigned i = 0; i < count; i++) {
		struct child *child = &children[i];
		struct recorded recorded = read_region(child->fd, &child->layout, child->base);
		bool is_whole = recorded.allocated == STORM_CHILD_BLOCKS && !recorded.in_use;
		bool is_last = i + 1 == count && recorded.allocated <= STORM_CHILD_BLOCKS;
		whole_children += is_whole;
		if ((!is_whole && recorded.allocated && !is_last) || recorded.lost)
			tell("allocations of a child, and events lost", cycle, recorded.allocated,
			     recorded.lost);
		munmap(child->base, child->layout.region_bytes);
		close(child->fd);
	}
}

/* ${was_hooked}: somebody may have entered since all threads went on last. ${ret_before}: what the
 * program had counted before; nothing is hooked then. -EAGAIN when a thread did not stop in time,
 * which leaves nothing behind; other errors end the test. */
static int try_once(unsigned milliseconds, unsigned threads, unsigned cycle, bool was_hooked,
		    struct sums *ret_before, struct hl_attach_times *ret_times,
		    struct recorded *ret_recorded, struct hl_error *err)
{
	struct hl_attach_settings settings = {0};
	struct hl_region_header layout;
	struct hl_attach *attach;
	static struct child children[CHILDREN_MAX];
	int fd, asked_fd = -1;
	unsigned count = 0;

	int r = hl_attach_open(target, &settings, &attach, err);
	if (r < 0)
		return r;
	r = hl_attach_bring(attach, &fd, err);
	if (r < 0) {
		hl_attach_free(attach);
		return r;
	}
	if (was_hooked)
		let_all_go_on(threads, cycle);
	*ret_before = add_up(threads);
	struct hl_region_header *base = make_region(fd, &layout);
	if (kinds & JOINED)
		asked_fd = hl_attach_follow(attach);
	r = hl_attach_patch(attach, layout.region_bytes, err);
	if (kill_step >= 0)
		kill_at_step(kill_step);
	if (r == 0 && kinds & JOINED)
		count = attend(attach, asked_fd, milliseconds, children);
	else if (r == 0)
		usleep(milliseconds * 1000);
	detach(attach, cycle);
	check_children(children, count, cycle);
	*ret_times = hl_attach_times(attach);
	hl_attach_free(attach);
	if (r == 0)
		*ret_recorded = read_region(fd, &layout, base);
	munmap(base, layout.region_bytes);
	close(fd);
	return r;
}

/* The same, again while the answer is to try again. */
static struct recorded record_once(unsigned milliseconds, unsigned threads, unsigned cycle,
				   bool was_hooked, struct sums *ret_before,
				   struct hl_attach_times *ret_times)
{
	struct hl_error err = {0};
	struct recorded recorded;
	int r = -EAGAIN;

	for (unsigned i = 0; r == -EAGAIN && i < BUSY_TRIES; i++)
		r = try_once(milliseconds, threads, cycle, was_hooked || i > 0, ret_before,
			     ret_times, &recorded, &err);
	if (r < 0)
		end_test(cycle, &err);
	return recorded;
}

/* ---- being killed ---- */

/* Does a cycle in another process, which is killed at its ${step}th step; 0: at none. False when it
 * came to its end, in *${ret_steps}. */
static bool is_killed(long step, unsigned milliseconds, unsigned cycle, _Atomic long *ret_steps)
{
	int status = 0;
	pid_t tool = fork();

	REQUIRE(tool >= 0);
	if (tool == 0) {
		struct sums before;
		struct hl_attach_times times;
		if (kinds & JOINED)
			kill_step = step;
		else
			kill_at_step(step);
		record_once(milliseconds, 0, cycle, true, &before, &times);
		*ret_steps = steps_gone();
		_exit(0);
	}
	REQUIRE(waitpid(tool, &status, 0) == tool);
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		tell("the end of a tool that was to be killed at step", cycle,
		     (uint64_t)WEXITSTATUS(status), (uint64_t)step);
	return WIFSIGNALED(status);
}

/* What has happened to the target must go away by itself. */
static void check_after_kill(unsigned threads, unsigned cycle, long step)
{
	struct residue left = look_for_residue(true);

	/* The tool's guardian comes a moment later. */
	for (int ms = 0; left.lifted && ms < PATIENCE_MS; ms++) {
		usleep(1000);
		left = look_for_residue(true);
	}
	if (left.lifted)
		tell("lifted threads after a kill at step", cycle, left.lifted, (uint64_t)step);
	let_all_go_on(threads, cycle);
}

/* ---- all cycles ---- */

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
	static const char *const names[] = {"threads",	 "forks",  "signals",
					    "libraries", "joined", "killed"};
	unsigned found = 0;

	for (; *words; words++)
		for (unsigned i = 0; i < HL_COUNT_OF(names); i++)
			found |= strncmp(*words, names[i], strlen(names[i])) ? 0 : 1u << i;
	return found;
}

/* When the last cycle may begin. */
static uint64_t deadline_of(char **words)
{
	unsigned seconds = 0;

	for (; *words; words++)
		sscanf(*words, "seconds:%u", &seconds);
	return seconds ? hl_clock_ns(CLOCK_MONOTONIC) + seconds * HL_NS_PER_SECOND : UINT64_MAX;
}

/* The steps at which others are killed. */
struct kills {
	unsigned count;
	long first, stride;
};

static struct kills plan_kills(char **words, unsigned cycles, unsigned milliseconds)
{
	long first = 0;

	for (; *words; words++)
		sscanf(*words, "killed:%ld", &first);
	REQUIRE(!is_killed(0, milliseconds, 0, &ledger->steps) && ledger->steps > 0);
	struct kills kills = {cycles ? cycles : (unsigned)ledger->steps, first, 1};
	if (!first) {
		kills.stride = (ledger->steps + kills.count - 1) / kills.count;
		kills.first = 1 + getpid() % kills.stride;
	}
	return kills;
}

/* Enters and leaves the target, and looks whether all of it is as it should be. */
static uint64_t check_cycle(unsigned cycle, unsigned milliseconds, unsigned threads,
			    const struct residue *at_first, struct hl_attach_times *ret_times)
{
	struct sums before;
	struct recorded recorded =
		record_once(milliseconds, threads, cycle, kinds & KILLED, &before, ret_times);

	let_all_go_on(threads, cycle);
	struct sums after = add_up(threads);
	uint64_t sure = after.sure - before.sure, maybe = after.maybe - before.maybe;
	bool is_known = threads && !(kinds & ~KILLED);
	if (recorded.allocated < sure || (is_known && recorded.allocated > sure + maybe + threads))
		tell("allocations recorded, and those that the program knows of", cycle,
		     recorded.allocated, sure);
	if (is_known && recorded.in_use > threads * UINT64_C(STORM_KEPT + 2))
		tell("blocks in use, and as many as there can be", cycle, recorded.in_use,
		     threads * UINT64_C(STORM_KEPT + 2));
	if (recorded.lost)
		tell("events lost", cycle, recorded.lost, 0);
	struct residue left = look_for_residue(threads);
	if (left.maps || left.lifted)
		tell("mappings and threads that are not as before", cycle, left.maps, left.lifted);
	if (left.changed)
		tell("mappings of code that is not as before", cycle, left.changed, 0);
	if (threads && !(kinds & STORM_LIBRARIES) && left.descriptors != at_first->descriptors)
		tell("descriptors, and those at first", cycle, left.descriptors,
		     at_first->descriptors);
	return recorded.allocated;
}

int main(int argc, char **argv)
{
	REQUIRE(argc >= 4);
	unsigned cycles = (unsigned)atoi(argv[1]), milliseconds = (unsigned)atoi(argv[2]);
	bool is_others = !strncmp(argv[3], "pid:", 4); /* of which nothing is known */
	unsigned threads = is_others ? 0 : (unsigned)atoi(argv[3]);
	uint64_t total = 0;
	struct kills kills = {0};

	ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	REQUIRE(ledger != MAP_FAILED && threads <= STORM_THREADS_MAX);
	kinds = kinds_of(argv + 4);
	if (is_others)
		target = atoi(argv[3] + 4);
	else
		start_target(threads);
	struct residue at_first = look_for_residue(threads);
	if (kinds & KILLED) {
		kills = plan_kills(argv + 4, cycles, milliseconds);
		cycles = kills.count;
	}
	uint32_t *bring = calloc(cycles, sizeof(*bring)), *patch = calloc(cycles, sizeof(*patch));
	uint32_t *detach = calloc(cycles, sizeof(*detach));
	REQUIRE(cycles && bring && patch && detach);
	unsigned killed = 0, done = 0;
	uint64_t deadline_ns = deadline_of(argv + 4);
	for (; done < cycles && hl_clock_ns(CLOCK_MONOTONIC) < deadline_ns; done++) {
		unsigned i = done;
		struct hl_attach_times times;
		long step = kills.first + i * kills.stride;
		if (kinds & KILLED) {
			killed += is_killed(step, milliseconds, i, &ledger->steps);
			check_after_kill(threads, i, step);
		}
		total += check_cycle(i, milliseconds, threads, &at_first, &times);
		bring[i] = times.bring_us;
		patch[i] = times.patch_us;
		detach[i] = times.detach_us;
	}
	ledger->stop = 1;
	int status = 0;
	REQUIRE(is_others || waitpid(target, &status, 0) == target);
	printf("{");
	print_times("bring", bring, done);
	print_times("patch", patch, done);
	print_times("detach", detach, done);
	printf("\"cycles\": %u, \"killed\": %u, \"steps\": %ld, \"allocations\": %" PRIu64
	       ", \"children\": %lu, \"status\": %d, \"failures\": %u}\n",
	       done, killed, ledger->steps, total, whole_children, status, failures);
	return failures || status;
}
