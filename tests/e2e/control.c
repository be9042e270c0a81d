/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does what its standard input says, a line each, and answers each line with one of its own, the
 * number that the called function of heapline.h returned:
 *
 *	alloc N		allocates N times 127 bytes in `alloc_site`
 *	release N	frees the N oldest of these that are left
 *	mark NAME	hl_mark()
 *	flood N		hl_mark() N times; answers how many were taken
 *	report PATH	hl_report(), and waits until it is done: report_result
 *	ask PATH	hl_report() alone
 *	keep N, kept	hl_log_segments_set(), hl_log_segments_get()
 *	mode N		hl_mode_set()
 *	status		hl_status.mode
 *	small		hl_status_get() with the size that hl_status had at first
 *	everywhere	hl_mark() in a signal handler, and in four threads at once
 *	lines MS	hl_report_lines(), MS or -1: the bytes in use of line alloc_site, or its error
 *	times		hl_report_times(): the bytes of the last interval, or its error
 *	become UID	setresuid()
 *	fork		a child that waits for a minute; its PID
 *
 * Ends at the end of the input.
 */
#include "program.h"

#include <heapline/heapline.h>

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS		 4
#define ALLOC_LINE	 46 /* of alloc_site, for lines() */
#define MARKS_OF_THREADS 100

/* Blocks in the order of their allocation; in static memory, so that no other allocation counts. */
static void *blocks[1 << 16];
static unsigned first, end;

static SITE void alloc_site(void)
{
	void *block = malloc(127); /* ALLOC_LINE */

	KEEP(block);
	if (end < sizeof(blocks) / sizeof(*blocks))
		blocks[end++] = block;
}

static int release(int count)
{
	for (int i = 0; i < count; i++) {
		REQUIRE(first < end);
		free(blocks[first++]);
	}
	return count;
}

static int allocate(int count)
{
	for (int i = 0; i < count; i++)
		alloc_site();
	return count;
}

static void wait_a_little(void)
{
	const struct timespec time = {.tv_nsec = 2000000};

	nanosleep(&time, NULL);
}

static int report(const char *path)
{
	struct hl_status status = {.size = sizeof(status)};

	int r = hl_report(path);
	if (r < 0)
		return r;
	do {
		wait_a_little();
		REQUIRE(hl_status_get(&status) == 0);
	} while (status.reports_done != status.reports_asked);
	return status.report_result;
}

static int flood(int count)
{
	int taken = 0;

	for (int i = 0; i < count; i++)
		taken += hl_mark("flood") == 0;
	return taken;
}

static void mark_in_handler(int number)
{
	(void)number;
	int error = errno = 4711;
	hl_mark("in a handler");
	REQUIRE(errno == error);
}

/* Tries again when the mailbox is full, as a program would that must not lose a mark. */
static void *mark_in_thread(void *name)
{
	int r;

	for (int i = 0; i < MARKS_OF_THREADS; i++)
		while ((r = hl_mark(name)) != 0) {
			REQUIRE(r == -EAGAIN);
			wait_a_little();
		}
	return NULL;
}

static int mark_everywhere(void)
{
	static const char *names[THREADS] = {"one", "two", "three", "four"};
	pthread_t threads[THREADS];

	signal(SIGUSR1, mark_in_handler);
	raise(SIGUSR1);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_create(&threads[i], NULL, mark_in_thread, (void *)names[i]));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static int mode(void)
{
	struct hl_status status = {.size = sizeof(status)};

	REQUIRE(hl_status_get(&status) == 0);
	return status.recording ? status.mode : -ENOTCONN;
}

/* What is after the size that is told must stay as it is. */
static int small_status(void)
{
	struct hl_status status;

	memset(&status, 0x5a, sizeof(status));
	status.size = offsetof(struct hl_status, reports_asked);
	int r = hl_status_get(&status);
	REQUIRE(status.reports_asked == UINT64_C(0x5a5a5a5a5a5a5a5a));
	status.size = 8;
	REQUIRE(hl_status_get(&status) == -EINVAL);
	return r;
}

/* The sum is right, the order too, and what is asked of the kernel alone is not in the figures. */
static int lines(int ms)
{
	struct hl_line_report report_of_lines = {.size = sizeof(report_of_lines)};
	int64_t sum = 0, last = INT64_MAX;
	int found = 0;

	struct mallinfo2 before = mallinfo2();
	int r = hl_report_lines(ms, &report_of_lines);
	struct mallinfo2 after = mallinfo2();
	REQUIRE(before.uordblks == after.uordblks && before.hblks == after.hblks);
	REQUIRE((r == 0) == !report_of_lines.reason[0]);
	if (r < 0)
		return r;
	for (size_t i = 0; i < report_of_lines.count; i++) {
		const struct hl_line *line = &report_of_lines.lines[i];
		const char *name = strrchr(line->place, '/');
		REQUIRE(line->bytes <= last);
		last = line->bytes;
		sum += line->bytes;
		if (name && !strcmp(name, "/control.c") && line->line == ALLOC_LINE)
			found = (int)line->bytes;
	}
	REQUIRE(sum == report_of_lines.total_bytes);
	hl_report_lines_free(&report_of_lines);
	report_of_lines.size--;
	REQUIRE(hl_report_lines(ms, &report_of_lines) == -EINVAL);
	return found;
}

static int times(void)
{
	struct hl_time_report report_of_times = {.size = sizeof(report_of_times)};

	int r = hl_report_times(1, &report_of_times);
	REQUIRE((r == 0) == !report_of_times.reason[0]);
	if (r < 0)
		return r;
	REQUIRE(report_of_times.count > 0);
	for (size_t i = 1; i < report_of_times.count; i++)
		REQUIRE(report_of_times.times[i - 1].ms < report_of_times.times[i].ms);
	int bytes = (int)report_of_times.times[report_of_times.count - 1].bytes;
	hl_report_times_free(&report_of_times);
	return bytes;
}

static int become(uid_t user)
{
	return setresuid(user, user, user);
}

static int fork_child(void)
{
	pid_t child = fork();

	REQUIRE(child >= 0);
	if (child == 0) {
		allocate(1);
		close(STDIN_FILENO);
		sleep(60);
		_exit(0);
	}
	return child;
}

static int obey(const char *verb, const char *argument)
{
	if (!strcmp(verb, "alloc"))
		return allocate(atoi(argument));
	if (!strcmp(verb, "release"))
		return release(atoi(argument));
	if (!strcmp(verb, "mark"))
		return hl_mark(argument);
	if (!strcmp(verb, "flood"))
		return flood(atoi(argument));
	if (!strcmp(verb, "everywhere"))
		return mark_everywhere();
	if (!strcmp(verb, "report"))
		return report(argument);
	if (!strcmp(verb, "ask"))
		return hl_report(argument);
	if (!strcmp(verb, "keep"))
		return hl_log_segments_set((unsigned)atoi(argument));
	if (!strcmp(verb, "kept"))
		return hl_log_segments_get();
	if (!strcmp(verb, "mode"))
		return hl_mode_set((enum hl_recording_mode)atoi(argument));
	if (!strcmp(verb, "status"))
		return mode();
	if (!strcmp(verb, "small"))
		return small_status();
	if (!strcmp(verb, "lines"))
		return lines(atoi(argument));
	if (!strcmp(verb, "times"))
		return times();
	if (!strcmp(verb, "become"))
		return become((uid_t)atoi(argument));
	REQUIRE(!strcmp(verb, "fork"));
	return fork_child();
}

int main(void)
{
	static char line[8192];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		char *argument = strchr(line, ' ');
		if (argument)
			*argument++ = '\0';
		printf("%d\n", obey(line, argument ? argument : ""));
	}
	return 0;
}
