/* SPDX-License-Identifier: BSD-2-Clause */
/* The steps, in the order in which an expert takes them; see why.h. */
#include "why/facts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/names.h"
#include "base/text.h"
#include "process/ask.h"
#include "process/maps.h"
#include "process/process.h"
#include "view/format.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#define STEP_SECONDS	30u /* of a verb that only reads */
#define STEP_CPU	20u
#define ATTACH_BACKSTOP 90 /* seconds after which attach ends by itself, whatever becomes of us */
#define ATTACH_MEMORY	"64M" /* of the recorder; then it goes on by samples */
#define FAULT_SECONDS	5.0   /* of pgfault, at most */
#define IDLE_SECONDS	2.0
#define IDLE_CPU_NS	1000000 /* a second */
#define TRACE_GRACE	30u
#define COLD_SECONDS	5.0 /* at most */
#define GROWN_ROWS	"50"

struct run {
	struct hl_why *why;
	json_t *heap, *pod; /* before */
	uint64_t heap_ns;   /* when the heap was read first */
	uint64_t
		look_ns; /* since when it is not known whether the process runs, and what it had used then */
	int64_t cpu_ns, rss_bytes;
	bool was_read_again;
};

/* ---- running verbs ---- */

HL_PRINTF(2, 3) static void add_unseen(struct hl_why *why, const char *format, ...)
{
	va_list arguments;

	if (why->unseen_count == HL_WHY_LIST_MAX)
		return;
	va_start(arguments, format);
	vsnprintf(why->unseen[why->unseen_count++], HL_WHY_TEXT_MAX, format, arguments);
	va_end(arguments);
}

/* The command as a person types it: the recording by its name. */
static struct hl_why_done *add_done(struct hl_why *why, const char *const *arguments)
{
	bool is_full = why->done_count == HL_WHY_LIST_MAX;
	struct hl_why_done *done = &why->done[is_full ? HL_WHY_LIST_MAX - 1 : why->done_count++];
	FILE *out = fmemopen(done->command, sizeof(done->command) - 1, "w");

	if (!out)
		return done;
	fputs("heapline", out);
	for (size_t i = 0; arguments[i]; i++) {
		bool is_ours = !why->request.keep && !strcmp(arguments[i], why->recording);
		fputc(' ', out);
		hl_words_put(out, is_ours ? hl_path_basename(arguments[i]) : arguments[i]);
	}
	fclose(out);
	return done;
}

static bool is_over(const struct hl_why *why)
{
	struct pollfd stop = {.fd = why->request.stop_fd, .events = POLLIN};

	return poll(&stop, 1, 0) > 0;
}

/* The verb's document; NULL: it failed, and the page says so. */
static json_t *ask(struct hl_why *why, unsigned seconds, const char *const *arguments)
{
	const struct hl_ask asked = {.arguments = arguments,
				     .seconds = seconds,
				     .bounds.cpu_seconds = STEP_CPU,
				     .stop_fd = why->request.stop_fd};
	HL_CLEANUP(hl_answer_release) struct hl_answer answer = {0};
	struct hl_error err = {0};

	if (is_over(why))
		return NULL;
	struct hl_why_done *done = add_done(why, arguments);
	int r = hl_ask_verb(&asked, &answer, &err);
	done->wall_ns = answer.wall_ns;
	done->cpu_ns = answer.cpu_ns;
	if (r < 0) {
		HL_WHY_KEEP(done->said, err.text);
		add_unseen(why, "'heapline %s': %s", arguments[0], err.text);
		return NULL;
	}
	return json_incref(answer.document);
}

#define ASK(why, seconds, ...) ask(why, seconds, (const char *const[]){__VA_ARGS__, NULL})

/* Until ${fd} (-1: none) can be read, the time is over, or all is. */
static void wait_for(const struct hl_why *why, int fd, double seconds)
{
	struct pollfd watched[] = {{.fd = fd, .events = POLLIN},
				   {.fd = why->request.stop_fd, .events = POLLIN}};

	hl_self_wait(watched, HL_COUNT_OF(watched),
		     hl_clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9));
}

static const char *pid_of(const struct hl_why *why)
{
	return why->target + strlen("-p ");
}

/* ---- the control group ---- */

static json_t *ask_pod(struct hl_why *why, bool is_quick)
{
	const struct hl_why_request *request = &why->request;
	const char *by = request->cgroup ? "--cgroup" : "-p";
	const char *who = request->cgroup ? request->cgroup : pid_of(why);

	return is_quick ? ASK(why, STEP_SECONDS, "pod", by, who, "--quick")
			: ASK(why, STEP_SECONDS, "pod", by, who);
}

static void step_group(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;

	run->pod = ask_pod(why, true);
	facts->limit = hl_why_number(run->pod, "limit_bytes");
	facts->asks_group = why->request.cgroup;
	facts->has_group = run->pod && (facts->asks_group || facts->limit > 0);
	if (facts->has_group) {
		HL_WHY_KEEP(facts->group, hl_why_text(run->pod, "group"));
		hl_why_keep_pod(facts, run->pod, false);
	} else if (run->pod) {
		add_unseen(why, "neighbours and page cache: no control group limits the process");
	}
}

/* The largest file of ${kind}. */
static void find_file(struct run *run, const char *kind)
{
	json_t *pod = ask_pod(run->why, false), *row;
	size_t i;

	json_array_foreach(hl_why_member(pod, "rows"), i, row)
		if (!strcmp(hl_why_text(row, "kind"), kind)) {
			HL_WHY_KEEP(run->why->facts.memory_file, hl_why_text(row, "name"));
			break;
		}
	json_decref(pod);
}

static void step_group_again(struct run *run)
{
	struct hl_why_facts *facts = &run->why->facts;
	const char *name = "";

	if (!facts->has_group)
		return;
	json_t *after = ask_pod(run->why, true);
	hl_why_keep_pod(facts, after, true);
	facts->own_gain = hl_why_anonymous_of(after, run->why->pid) -
			  hl_why_anonymous_of(run->pod, run->why->pid);
	facts->neighbour =
		hl_why_largest_gain(run->pod, after, run->why->pid, &facts->neighbour_gain, &name);
	HL_WHY_KEEP(facts->neighbour_name, name);
	json_decref(after);
	if (hl_why_gain(&facts->group_shared) > facts->usage.after / 20)
		find_file(run, "shared");
}

/* The process of a group that gains most within a moment, else the one that has most. */
static int choose_process(struct hl_why *why, struct hl_error *err)
{
	json_t *before = ask_pod(why, true), *after;
	const char *name;
	int64_t gain;

	if (!before)
		return hl_error_set(err, -ESRCH, "%s", why->done[0].said);
	wait_for(why, -1, fmin(IDLE_SECONDS, why->request.seconds / 3));
	after = ask_pod(why, true);
	why->pid = hl_why_largest_gain(before, after, 0, &gain, &name);
	if (!why->pid)
		why->pid = hl_why_largest_gain(NULL, after, 0, &gain, &name);
	json_decref(before);
	json_decref(after);
	return why->pid ? 0
			: hl_error_set(
				  err, -ESRCH,
				  "the control group '%.200s' has no process with memory of its "
				  "own; 'heapline pod --cgroup %.200s' shows what it has",
				  why->request.cgroup, why->request.cgroup);
}

/* ---- the process ---- */

static void step_doctor(struct run *run)
{
	struct hl_why_facts *facts = &run->why->facts;
	json_t *doctor = ASK(run->why, STEP_SECONDS, "doctor", "-p", pid_of(run->why)), *row;
	size_t i;

	json_array_foreach(hl_why_member(doctor, "rows"), i, row) {
		const char *way = hl_why_text(row, "way");
		bool works = !strcmp(hl_why_text(row, "works"), "yes");
		facts->may_attach |= works && !strcmp(way, "attach");
		facts->may_trace |= works && !strcmp(way, "stacks");
		facts->may_fault |= works && !strcmp(way, "pgfault");
		facts->is_recorded |= works && !strcmp(way, "ctl");
		if (!strcmp(way, "attach") && !works)
			add_unseen(run->why, "by 'heapline attach': %s",
				   hl_why_text(row, "reason"));
	}
	json_decref(doctor);
}

/* Whether the process runs or grows is looked at from here on. */
static void begin_look(struct run *run)
{
	run->look_ns = hl_clock_ns(CLOCK_MONOTONIC);
	run->cpu_ns = hl_process_cpu_ns(run->why->pid);
	run->rss_bytes = hl_process_status_read(run->why->pid).rss_bytes;
}

static void step_heap(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;

	begin_look(run);
	run->heap_ns = run->look_ns;
	run->heap = ASK(why, STEP_SECONDS, "heap", "-p", pid_of(why));
	facts->has_heap = run->heap != NULL;
	HL_WHY_KEEP(facts->command, hl_why_text(run->heap, "process.command"));
	if (facts->has_heap)
		hl_why_keep_heap(facts, run->heap, false);
	else
		facts->rss.before = hl_process_status_read(why->pid).rss_bytes;
}

static void step_heap_again(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	json_t *after = facts->has_heap ? ASK(why, STEP_SECONDS, "heap", "-p", pid_of(why)) : NULL;

	facts->seconds = (double)(hl_clock_ns(CLOCK_MONOTONIC) - run->heap_ns) / 1e9;
	run->was_read_again = true;
	if (!after) {
		facts->has_heap = false;
		facts->rss.after = hl_process_has_ended(why->pid)
					   ? -1
					   : (int64_t)hl_process_status_read(why->pid).rss_bytes;
		return;
	}
	hl_why_keep_heap(facts, after, true);
	facts->unscanned = hl_why_number(after, "total.unscanned_bytes");
	facts->header_bytes = hl_why_number(after, "total.resident_overhead_bytes");
	facts->heap_bytes = hl_why_number(after, "verdict.heap_bytes");
	facts->returnable_bytes = hl_why_number(after, "verdict.returnable_bytes");
	facts->pinned_bytes = hl_why_number(after, "verdict.pinned_bytes");
	HL_WHY_KEEP(facts->kind, hl_why_text(after, "verdict.kind"));
	HL_WHY_KEEP(facts->part, hl_why_text(after, "verdict.part"));
	HL_WHY_KEEP(facts->purge, hl_why_text(after, "verdict.purge"));
	if (hl_why_number(after, "beside.swap_bytes") > 0)
		add_unseen(why, "%s on swap",
			   hl_format_bytes(hl_why_number(after, "beside.swap_bytes"),
					   (char[HL_FORMAT_MAX]){""}));
	hl_why_find_grown_part(facts, run->heap, after);
	hl_why_find_memory_file(facts, after);
	json_decref(after);
}

/* ---- the grower ---- */

/* What looks lost is looked for once more, also at addresses where packed structs have their pointers. */
static void step_leaks(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;

	if (!facts->has_heap)
		return;
	json_t *leaks = ASK(why, STEP_SECONDS, "leaks", "-p", pid_of(why), "--no-stop");
	if (hl_why_number(leaks, "total.lost_bytes") > facts->live.before / 100) {
		json_decref(leaks);
		leaks = ASK(why, STEP_SECONDS, "leaks", "-p", pid_of(why), "--no-stop",
			    "--unaligned");
	}
	facts->has_leaks = leaks != NULL;
	if (leaks)
		hl_why_keep_leaks(why, leaks);
	json_decref(leaks);
}

/* A regular expression that matches ${name} and nothing else. */
static void quote_name(const char *name, char *to, size_t size)
{
	size_t used = 0;

	for (to[used++] = '^'; *name && used + 4 < size; name++) {
		if (strchr("\\^$.[]|()*+?{}", *name))
			to[used++] = '\\';
		to[used++] = *name;
	}
	to[used++] = '$';
	to[used] = '\0';
}

/* Who holds what the grower allocated, which is known while the process is recorded; without one, who holds most. */
static void step_holders(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	char expression[2 * HL_WHY_TEXT_MAX];

	if (!facts->has_heap || why->request.outside ||
	    facts->grower_lost_bytes > facts->grown_bytes / 2)
		return;
	quote_name(facts->leaf, expression, sizeof(expression));
	json_t *holders = facts->source
				  ? ASK(why, STEP_SECONDS, "holders", "-p", pid_of(why), "--stack",
					expression, "-n", "3")
				  : ASK(why, STEP_SECONDS, "holders", "-p", pid_of(why), "-n", "3");
	hl_why_keep_holder(facts, holders);
	json_decref(holders);
}

/* ---- watching ---- */

/* Waits until the process runs, which it may have done while its heap was read; for ${seconds} at most. Returns those that are left, at least a part
 * of them to record what it does. */
static double wait_while_idle(struct run *run, double seconds)
{
	struct hl_why *why = run->why;
	double part = fmin(IDLE_SECONDS, seconds / 4);

	why->facts.is_idle = true;
	for (; why->facts.is_idle && seconds > part / 2 && !is_over(why); seconds -= part) {
		int64_t cpu_ns = run->cpu_ns, rss_bytes = run->rss_bytes;
		uint64_t since_ns = run->look_ns;
		wait_for(why, -1, part);
		begin_look(run);
		why->facts.is_idle = cpu_ns >= 0 && rss_bytes == run->rss_bytes &&
				     (double)(run->cpu_ns - cpu_ns) <
					     IDLE_CPU_NS * (double)(run->look_ns - since_ns) / 1e9;
	}
	return fmax(seconds, part);
}

#define LEFT_MARK  "counted; " /* in what attach says last of a process that it has entered */
#define STAYS_MARK "its recorder stays in process"

/* Ends 'heapline attach', as Ctrl-C does; it leaves the process as it was, and says how long that was stopped. */
static void leave(struct hl_why *why, pid_t child, int complaints, struct hl_why_done *done)
{
	char said[HL_SELF_SENTENCE_MAX];
	int status = hl_ask_end(child, SIGTERM, &done->cpu_ns);

	ssize_t size = pread(complaints, said, sizeof(said) - 1, 0);
	said[size > 0 ? size : 0] = '\0';
	bool has_left = strstr(said, LEFT_MARK); /* also where the recording is not whole */
	char *sentence = strstr(said, status ? "heapline: " : LEFT_MARK);
	if (sentence) {
		sentence += strcspn(sentence, " ") + 1;
		sentence[strcspn(sentence, "\n")] = '\0';
		HL_WHY_KEEP(done->said, sentence);
	}
	done->has_failed = status != 0;
	done->has_entered = has_left;
	done->stays = strstr(said, STAYS_MARK) ||
		      (status > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	if (status)
		add_unseen(why, "'heapline attach': %s", sentence ? sentence : "it failed");
}

/* Of 3,000 that rest; of 500 that all run, twice as many as that. */
#define THREADS_IN_A_MS 50

static void say_cost(const struct hl_why *why, double seconds)
{
	char line[2 * HL_WHY_TEXT_MAX], stops[32] = "a millisecond";
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;

	(void)hl_process_threads(why->pid, &tids, &count);
	if (count >= 2 * THREADS_IN_A_MS)
		snprintf(stops, sizeof(stops), "%zu ms", count / THREADS_IN_A_MS);
	snprintf(line, sizeof(line),
		 "attaching to process %d for about %.0f s: it stops twice for about %s, each "
		 "allocation takes about 0.1 us longer, the recorder takes " ATTACH_MEMORY
		 " at most; it is left as it was (--outside does without)",
		 why->pid, seconds, stops);
	if (why->request.say)
		why->request.say(line);
}

static void step_growth(struct run *run)
{
	struct hl_why *why = run->why;
	json_t *growth = ASK(why, STEP_SECONDS, "growth", why->recording, "-n", GROWN_ROWS);

	if (growth)
		hl_why_keep_growth(why, growth);
	json_decref(growth);
}

static void watch_inside(struct run *run, double seconds)
{
	struct hl_why *why = run->why;
	char number_text[16];
	const char *const arguments[] = {
		"attach", "-p",		  pid_of(why), "-d",	       number_text,
		"--mode", "log-fast",	  "--lossy",   "--max-memory", ATTACH_MEMORY,
		"-o",	  why->recording, NULL};
	char *line[HL_COUNT_OF(arguments) + 1] = {"heapline"};
	HL_CLOSED int complaints = memfd_create("complaints", MFD_CLOEXEC);
	uint64_t begun_ns = hl_clock_ns(CLOCK_MONOTONIC);
	const struct hl_ask_bounds bounds = {.cpu_seconds = 60 + (unsigned)seconds};
	pid_t child;

	memcpy(line + 1, arguments, sizeof(arguments));
	snprintf(number_text, sizeof(number_text), "%.0f", ceil(seconds));
	struct hl_why_done *done = add_done(why, arguments);
	snprintf(number_text, sizeof(number_text), "%.0f", seconds + ATTACH_BACKSTOP);
	int r = complaints < 0
			? -errno
			: hl_ask_start(line, complaints, complaints, SIGTERM, &bounds, &child);
	if (r < 0) {
		add_unseen(why, "by 'heapline attach': %s", strerror(-r));
		wait_for(why, -1, seconds);
		return;
	}
	HL_CLOSED int pidfd = pidfd_open(child, 0);
	wait_for(why, pidfd, seconds);
	step_growth(run);
	step_leaks(run);
	if (why->facts.source)
		step_holders(run);
	leave(why, child, complaints, done);
	why->facts.was_recorded = !done->has_failed;
	step_growth(run); /* now that scripts and code made at run time have their names */
	const json_t *losing = hl_why_grower_frame(why, why->facts.losing_function);
	if (losing && !why->facts.is_script &&
	    why->facts.grower_lost_bytes >= why->facts.grown_bytes / 2)
		hl_why_keep_frame(&why->facts.line, losing);
	done->wall_ns = hl_clock_ns(CLOCK_MONOTONIC) - begun_ns;
}

static void watch_from_outside(struct run *run, double seconds)
{
	struct hl_why *why = run->why;
	char duration[16];

	snprintf(duration, sizeof(duration), "%.0f", ceil(seconds));
	json_t *traced = ASK(why, (unsigned)seconds + TRACE_GRACE, "stacks", "-p", pid_of(why),
			     "-n", GROWN_ROWS, duration);
	hl_why_keep_traced(why, traced, "stacks");
	if (!traced)
		wait_for(why, -1, seconds / 2);
	json_decref(traced);
}

/* What the process allocates and keeps; lost blocks; who holds the rest. */
static void step_watch(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	bool may_enter = facts->may_attach && !facts->is_recorded && !why->request.outside;
	double seconds = wait_while_idle(run, why->request.seconds);

	if (is_over(why))
		return;
	if (facts->is_idle) {
		facts->is_stopped = strchr("Tt", hl_process_state(why->pid)) != NULL;
		add_unseen(why, "who allocates: the process %s, so it was not entered",
			   facts->is_stopped ? "is stopped" : "did not run");
	} else if (may_enter) {
		say_cost(why, seconds);
		watch_inside(run, seconds);
	} else if (facts->may_trace) {
		watch_from_outside(run, seconds);
	} else {
		add_unseen(why, "who allocates: %s",
			   why->request.outside ? "--outside forbids to enter the process, and "
						  "'heapline stacks' does not work here"
						: "neither attach nor stacks works here");
		wait_for(why, -1, seconds);
	}
	if (!facts->has_leaks)
		step_leaks(run);
}

static double a_second(int64_t bytes, double seconds)
{
	return seconds > 0 ? (double)bytes / seconds : 0;
}

/* What grew without an allocation, or outside of the allocator's heap, is found by its page faults. The times differ, so rates are compared. */
static void step_faults(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	int64_t gain = hl_why_gain(&facts->rss) - hl_why_gain(&facts->files);
	double grown = a_second(facts->grown_bytes, facts->grown_seconds);
	char duration[16];

	if (facts->is_idle || gain < (256 << 10))
		return;
	if (!facts->source && hl_why_keep_unsteady(why, a_second(gain, facts->seconds) / 2))
		return;
	if (!facts->may_fault || (facts->source && (hl_why_gain(&facts->live) > gain / 2 ||
						    grown > a_second(gain, facts->seconds) / 2)))
		return;
	snprintf(duration, sizeof(duration), "%.0f",
		 ceil(fmin(FAULT_SECONDS, why->request.seconds)));
	json_t *faults = ASK(why, (unsigned)FAULT_SECONDS + TRACE_GRACE, "pgfault", "-p",
			     pid_of(why), "-n", GROWN_ROWS, duration);
	if (a_second(hl_why_number(faults, "total.inuse_bytes"),
		     (double)hl_why_number(faults, "recording.duration_ms") / 1000) > 2 * grown) {
		const struct hl_why_facts before = *facts;
		hl_why_keep_traced(why, faults, "pgfault");
		if (facts->is_collected && !facts->is_script)
			*facts = before; /* a collector touched the pages */
	}
	json_decref(faults);
}

static void step_owners(struct run *run)
{
	struct hl_why_facts *facts = &run->why->facts;

	if (!facts->source && !facts->holder[0] && facts->live.after > facts->rss.after / 2)
		step_holders(run);
}

/* What is not used, where nothing explains the size: pages that nobody touches, and what the allocator takes beyond what it is asked for. */
static void step_unused(struct run *run)
{
	struct hl_why *why = run->why;
	struct hl_why_facts *facts = &why->facts;
	double seconds = fmin(COLD_SECONDS, why->request.seconds / 2);
	struct hl_process_rss rss;

	if (!hl_why_is_usual(facts))
		return;
	if (facts->was_recorded) {
		json_t *sizes = ASK(why, STEP_SECONDS, "sizes", why->recording, "--value", "inuse",
				    "-n", "1");
		facts->kept_bytes = hl_why_number(sizes, "total.inuse_bytes");
		facts->slack_bytes = hl_why_number(sizes, "total.slack_bytes");
		json_decref(sizes);
	}
	int r = hl_process_touched_clear(why->pid);
	if (r == 0) {
		uint64_t since_ns = hl_clock_ns(CLOCK_MONOTONIC);
		wait_for(why, -1, seconds);
		r = hl_process_rss_read(why->pid, &rss, NULL);
		facts->cold_seconds = (double)(hl_clock_ns(CLOCK_MONOTONIC) - since_ns) / 1e9;
	}
	if (r < 0) {
		add_unseen(why, "memory that is not used: %s", strerror(-r));
		return;
	}
	if (!is_over(why)) /* in no time nothing is touched */
		facts->cold_bytes =
			(int64_t)(rss.rss_pages - rss.touched_pages) * sysconf(_SC_PAGESIZE);
}

/* ---- all of them ---- */

static const struct step {
	void (*take)(struct run *run);
	const char *command; /* with a %s for "-p PID"; of the group "%g", of seconds "%d" */
	const char *when, *cost;
} steps[] = {
	{step_doctor, "heapline doctor %s", "", "reads /proc; tries what does no harm"},
	{step_group, "heapline pod %g --quick", "", "reads /proc and the group's files"},
	{step_heap, "heapline heap %s", "", "reads the heap; stops nothing"},
	{step_watch,
	 "heapline attach %s -d %d --mode log-fast --lossy --max-memory " ATTACH_MEMORY
	 " -o why.hl",
	 "if doctor says yes, the process runs, and not with --outside; else 'heapline stacks %s "
	 "%d' if that works",
	 "stops the process twice for about a millisecond, and 20 ms for each 1,000 threads; about "
	 "0.1 us for each allocation"},
	{NULL, "heapline growth why.hl", "while it is attached", ""},
	{NULL, "heapline leaks %s --no-stop", "if much looks lost, again with --unaligned",
	 "reads the heap; stops nothing"},
	{NULL, "heapline holders %s --stack FUNCTION", "if something grew that is not lost",
	 "reads the heap; reads registers, which stops each thread for well below a millisecond"},
	{step_heap_again, "heapline heap %s", "", "as before"},
	{step_group_again, "heapline pod %g --quick", "if the group has a limit", "as before"},
	{step_faults, "heapline pgfault %s 5", "if what grew is not the allocator's",
	 "a BPF program for each page fault"},
	{step_owners, "heapline holders %s", "if nothing grew and most of it is live", "as before"},
	{step_unused, "heapline sizes why.hl --value inuse -n 1",
	 "if nothing grew; and the pages are counted that the process touches in 5 s at most",
	 "clears the kernel's mark of each page that it was touched, some ms for a GiB"},
};

static void put_step(FILE *out, const char *format, const char *target, const char *group,
		     double seconds)
{
	for (; *format; format++)
		if (*format != '%')
			fputc(*format, out);
		else if (*++format == 's')
			fputs(target, out);
		else if (*format == 'g')
			fputs(group, out);
		else
			fprintf(out, "%.0f", ceil(seconds));
}

void hl_why_plan(const struct hl_why_request *request, FILE *out)
{
	char target[32] = "-p PID", group[PATH_MAX];

	if (request->pid)
		snprintf(target, sizeof(target), "-p %d", request->pid);
	snprintf(group, sizeof(group), "%s%s", request->cgroup ? "--cgroup " : target,
		 request->cgroup ? request->cgroup : "");
	for (size_t i = 0; i < HL_COUNT_OF(steps); i++) {
		const struct step *step = &steps[i];
		if (request->outside && step->take == step_watch) {
			put_step(out, "heapline stacks %s %d\n  if doctor says yes\n", target,
				 group, request->seconds);
			continue;
		}
		if (request->outside && (!strncmp(step->command, "heapline growth", 15) ||
					 !strncmp(step->command, "heapline holders", 16)))
			continue;
		put_step(out, step->command, target, group, request->seconds);
		fputc('\n', out);
		if (step->when[0]) {
			fputs("  ", out);
			put_step(out, step->when, target, group, request->seconds);
			fputc('\n', out);
		}
		if (step->cost[0])
			fprintf(out, "  cost: %s\n", step->cost);
	}
}

int hl_why_run(const struct hl_why_request *request, struct hl_why *ret_why, struct hl_error *err)
{
	struct hl_why *why = ret_why;
	struct run run = {.why = why};
	struct hl_process_facts process = {0};
	int r = 0;

	*why = (struct hl_why){
		.request = *request, .pid = request->pid, .begun_ns = hl_clock_ns(CLOCK_REALTIME)};
	why->facts.limit = -1;
	if (!why->pid)
		r = choose_process(why, err);
	if (r == 0)
		r = hl_process_facts_read(why->pid, &process, err);
	if (r == 0) {
		struct hl_maps maps = {0};
		int read = hl_maps_read(why->pid, &maps, err);
		if (read == -ESRCH)
			r = -ESRCH; /* a thread of the kernel */
		why->facts.is_forbidden = read == -EACCES || read == -EPERM;
		hl_maps_release(&maps);
		if (r < 0)
			hl_process_facts_release(&process);
	}
	if (r < 0)
		return r;
	HL_WHY_KEEP(why->facts.program, process.comm);
	hl_process_facts_release(&process);
	snprintf(why->target, sizeof(why->target), "-p %d", why->pid);
	if (request->keep)
		snprintf(why->recording, sizeof(why->recording), "%s", request->keep);
	else
		snprintf(why->recording, sizeof(why->recording), "%s/why.hl", request->folder);
	for (size_t i = 0; i < HL_COUNT_OF(steps) && !is_over(why); i++)
		if (steps[i].take)
			steps[i].take(&run);
	json_decref(run.heap);
	json_decref(run.pod);
	json_decref(why->frames);
	json_decref(why->unsteady);
	why->frames = why->unsteady = NULL;
	if (is_over(why)) {
		add_unseen(why, "what follows: a signal ended it");
		if (!run.heap_ns)
			why->facts.rss.after = -1;
		else if (!run.was_read_again) /* else it looks as if nothing were left */
			step_heap_again(&run);
	}
	why->facts.has_ended = hl_process_has_ended(why->pid);
	if (why->facts.has_ended)
		add_unseen(why, "the process has ended meanwhile");
	hl_why_judge(why);
	return 0;
}
