/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the programs of a snapshot one after the other; see snapshot.h. */
#include "watch/snapshot.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/self.h"
#include "process/ask.h"
#include "process/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MS_PER_NS	    1000000
#define STEP_CPU_SECONDS    30
#define STEP_NS		    (180 * HL_NS_PER_SECOND) /* on a busy machine it mostly waits */
#define RETRY_NS	    (20 * HL_NS_PER_SECOND)  /* after one that has failed */
#define HELPER_MEMORY_BYTES (UINT64_C(512) << 20)
#define HELPER_OUTPUT_BYTES (UINT64_C(32) << 20)

#define ARGUMENTS_MAX 16
#define TRIES_MAX     4 /* of a step on a disk that is full */

/* After the group's own, pod. */
static const char *const process_verbs[] = {"heap", "ctl", "allocations", "holders"};
#define CTL_VERB 1

struct process {
	pid_t pid;
	struct hl_process_status status;
};

struct hl_watch_snapshot {
	struct hl_watch_store *store;
	struct hl_watch_group *group;
	struct hl_watch_level *level; /* of the group: which one fires */
	enum hl_watch_cause cause;
	char name[HL_WATCH_NAME_MAX];
	int fd;
	bool may_stop, is_kept;
	bool is_quick; /* the group rushes: programs are not niced, and pages are not read */
	json_t *document, *steps; /* the second is in the first */
	struct process processes[HL_WATCH_PROCESSES_MAX];
	unsigned process_count;
	unsigned step, tries; /* step 0 is pod */
	pid_t helper;	      /* 0: none runs */
	int complaints;
	uint64_t begun_ns;
};

/* ---- programs ---- */

int hl_watch_helper_start(char *const *arguments, int out, int complaints, bool is_bounded,
			  bool is_quick, pid_t *ret_pid)
{
	const struct hl_ask_bounds bounds = {
		.cpu_seconds = is_bounded ? STEP_CPU_SECONDS : 0,
		.memory_bytes = is_bounded ? HELPER_MEMORY_BYTES : 0,
		.output_bytes = is_bounded ? HELPER_OUTPUT_BYTES : 0,
		.is_idle = !is_quick,
	};

	/* SIGTERM, so that a recording is whole. */
	return hl_ask_start(arguments, out, complaints, is_bounded ? SIGKILL : SIGTERM, &bounds,
			    ret_pid);
}

static void put_file(const struct hl_watch_snapshot *snapshot, char file[64])
{
	unsigned step = snapshot->step - 1;

	if (snapshot->step == 0)
		snprintf(file, 64, "pod.json");
	else
		snprintf(file, 64, "%s-%d.json", process_verbs[step % HL_COUNT_OF(process_verbs)],
			 snapshot->processes[step / HL_COUNT_OF(process_verbs)].pid);
}

static void put_arguments(struct hl_watch_snapshot *snapshot, char pid[16],
			  char *arguments[ARGUMENTS_MAX])
{
	unsigned step = snapshot->step - 1, count = 0;

	arguments[count++] = "heapline";
	if (snapshot->step == 0) {
		arguments[count++] = "pod";
		arguments[count++] = "--cgroup";
		arguments[count++] = snapshot->group->path;
		if (snapshot->is_quick)
			arguments[count++] = "--quick";
	} else {
		snprintf(pid, 16, "%d", snapshot->processes[step / HL_COUNT_OF(process_verbs)].pid);
		arguments[count++] = (char *)process_verbs[step % HL_COUNT_OF(process_verbs)];
		arguments[count++] = "-p";
		arguments[count++] = pid;
		if (step % HL_COUNT_OF(process_verbs) == CTL_VERB)
			arguments[count++] = "status"; /* which fails unless it is recorded */
		else if (snapshot->may_stop)
			arguments[count++] = "--stop";
	}
	arguments[count++] = "--json";
	arguments[count] = NULL;
}

static int start_step(struct hl_watch_snapshot *snapshot, uint64_t now_ns)
{
	char file[64], pid[16], *arguments[ARGUMENTS_MAX];

	put_file(snapshot, file);
	put_arguments(snapshot, pid, arguments);
	HL_CLOSED int out =
		openat(snapshot->fd, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	if (ftruncate(snapshot->complaints, 0) < 0 || lseek(snapshot->complaints, 0, SEEK_SET) < 0)
		return -errno;
	snapshot->begun_ns = now_ns;
	return hl_watch_helper_start(arguments, out, snapshot->complaints, true, snapshot->is_quick,
				     &snapshot->helper);
}

/* Says how the step ended; what failed leaves no file. */
static void end_step(struct hl_watch_snapshot *snapshot, int status, uint64_t now_ns)
{
	char file[64], text[HL_SELF_SENTENCE_MAX];
	bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	const char *sentence = is_done ? NULL : hl_self_sentence(snapshot->complaints, text);

	put_file(snapshot, file);
	if (!is_done)
		unlinkat(snapshot->fd, file, 0);
	if (!is_done && !sentence)
		sentence = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
				   ? "it took more time or memory than a snapshot may"
				   : "it failed";
	json_array_append_new(snapshot->steps,
			      json_pack("{s:s, s:b, s:I, s:o}", "file", file, "done", is_done, "ms",
					(json_int_t)((now_ns - snapshot->begun_ns) / MS_PER_NS),
					"said", hl_watch_text(sentence ? sentence : "")));
	snapshot->helper = 0;
	snapshot->step++;
	snapshot->tries = 0;
}

/* Whether the step is to be run again, with more room. */
static bool makes_room(struct hl_watch_snapshot *snapshot, int status)
{
	if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || snapshot->tries++ == TRIES_MAX ||
	    !hl_watch_store_is_full(snapshot->store))
		return false;
	return hl_watch_store_drop_oldest(snapshot->store);
}

static unsigned step_count(const struct hl_watch_snapshot *snapshot)
{
	return 1 + snapshot->process_count * (unsigned)HL_COUNT_OF(process_verbs);
}

static int fail(const struct hl_watch_snapshot *snapshot, int r, struct hl_error *err)
{
	snapshot->group->retry_ns = hl_clock_ns(CLOCK_MONOTONIC) + RETRY_NS;
	return hl_error_set(err, r, "cannot make a snapshot of '%s' in '%s': %s",
			    hl_watch_group_name(snapshot->group), snapshot->store->path,
			    strerror(-r));
}

int hl_watch_snapshot_continue(struct hl_watch_snapshot *snapshot, uint64_t now_ns,
			       struct hl_error *err)
{
	int status, r = 0;

	if (snapshot->helper) {
		if (waitpid(snapshot->helper, &status, WNOHANG) == 0) {
			if (now_ns - snapshot->begun_ns > STEP_NS)
				kill(snapshot->helper, SIGKILL);
			return 1;
		}
		if (makes_room(snapshot, status))
			snapshot->helper = 0;
		else
			end_step(snapshot, status, now_ns);
	}
	if (snapshot->step < step_count(snapshot))
		r = start_step(snapshot, now_ns);
	if (r == 0 && snapshot->helper)
		return 1;
	if (r == 0)
		r = hl_watch_store_write(snapshot->store, snapshot->fd, "snapshot.json",
					 snapshot->document);
	if (r == 0)
		r = hl_watch_store_commit(snapshot->store, snapshot->name);
	if (r < 0)
		return fail(snapshot, r, err);
	snapshot->is_kept = true;
	hl_watch_trigger_fire(&snapshot->level->trigger, snapshot->cause, now_ns);
	return 0;
}

/* ---- the beginning ---- */

static void keep_largest(struct hl_watch_snapshot *snapshot, const struct process *process)
{
	struct process *largest = snapshot->processes;
	unsigned at = snapshot->process_count;

	while (at > 0 && largest[at - 1].status.anonymous_bytes < process->status.anonymous_bytes)
		at--;
	if (at == HL_WATCH_PROCESSES_MAX)
		return;
	if (snapshot->process_count < HL_WATCH_PROCESSES_MAX)
		snapshot->process_count++;
	memmove(&largest[at + 1], &largest[at],
		(snapshot->process_count - at - 1) * sizeof(*largest));
	largest[at] = *process;
}

static void find_processes(struct hl_watch_snapshot *snapshot)
{
	HL_FREED pid_t *pids = NULL;
	size_t count = 0, strangers;
	struct hl_cgroup group;

	if (hl_cgroup_open(snapshot->group->path, &group, NULL) < 0)
		return;
	if (hl_cgroup_processes(&group, &pids, &count, &strangers) < 0)
		count = 0;
	hl_cgroup_release(&group);
	for (size_t i = 0; i < count; i++)
		if (pids[i] != getpid())
			keep_largest(snapshot,
				     &(struct process){pids[i], hl_process_status_read(pids[i])});
}

/* The mappings name what a kill leaves as addresses. */
static void keep_maps(const struct hl_watch_snapshot *snapshot, pid_t pid)
{
	HL_FREED char *text = NULL;
	size_t length = 0;
	char file[64];

	if (hl_proc_read_all(pid, "maps", &text, &length) < 0)
		return;
	snprintf(file, sizeof(file), "maps-%d", pid);
	HL_CLOSED int fd = openat(snapshot->fd, file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && write(fd, text, length) != (ssize_t)length)
		unlinkat(snapshot->fd, file, 0);
}

static json_t *describe(const struct process *process)
{
	HL_CLEANUP(hl_process_facts_release) struct hl_process_facts facts = {0};
	json_t *words = json_array();

	if (hl_process_facts_read(process->pid, &facts, NULL) < 0)
		facts = (struct hl_process_facts){0};
	for (char **word = facts.command; word && *word; word++)
		json_array_append_new(words, hl_watch_text(*word));
	return json_pack("{s:i, s:o, s:o, s:I, s:I}", "pid", (int)process->pid, "comm",
			 hl_watch_text(facts.comm), "command", words, "anonymous_bytes",
			 (json_int_t)process->status.anonymous_bytes, "rss_bytes",
			 (json_int_t)process->status.rss_bytes);
}

static json_t *document_of(const struct hl_watch_snapshot *snapshot, enum hl_watch_cause cause,
			   uint64_t realtime_ns)
{
	const struct hl_watch_group *group = snapshot->group;
	json_t *processes = json_array();

	for (unsigned i = 0; i < snapshot->process_count; i++)
		json_array_append_new(processes, describe(&snapshot->processes[i]));
	return json_pack("{s:I, s:o, s:s, s:I, s:I, s:I, s:o, s:[]}", "realtime_ms",
			 (json_int_t)(realtime_ns / MS_PER_NS), "group",
			 hl_watch_text(hl_watch_group_name(group)), "cause",
			 hl_watch_cause_name(cause), "usage_bytes", (json_int_t)group->worst->usage,
			 "limit_bytes", (json_int_t)group->worst->limit, "cache_bytes",
			 (json_int_t)group->worst->cache, "processes", processes, "steps");
}

int hl_watch_snapshot_begin(struct hl_watch_store *store, struct hl_watch_group *group,
			    enum hl_watch_cause cause, bool may_stop,
			    struct hl_watch_snapshot **ret_snapshot, struct hl_error *err)
{
	struct hl_watch_snapshot *snapshot = calloc(1, sizeof(*snapshot));
	uint64_t realtime_ns = hl_clock_ns(CLOCK_REALTIME);

	if (!snapshot)
		return hl_error_set(err, -ENOMEM, "out of memory");
	snapshot->store = store;
	snapshot->group = group;
	snapshot->level = group->worst;
	snapshot->cause = cause;
	snapshot->may_stop = may_stop;
	snapshot->is_quick = snapshot->level->trigger.rushes;
	snapshot->fd = -1;
	snapshot->complaints = memfd_create("complaints", MFD_CLOEXEC);
	group->is_busy = true;
	int r = snapshot->complaints < 0 ? -errno : 0;
	if (r == 0)
		r = hl_watch_store_begin(store, realtime_ns, HL_WATCH_SNAPSHOT,
					 hl_watch_group_name(group), snapshot->name, &snapshot->fd);
	if (r == 0) {
		find_processes(snapshot);
		snapshot->document = document_of(snapshot, cause, realtime_ns);
		snapshot->steps = json_object_get(snapshot->document, "steps");
		r = snapshot->steps ? 0 : -ENOMEM;
	}
	if (r < 0)
		fail(snapshot, r, err);
	for (unsigned i = 0; r == 0 && i < snapshot->process_count; i++)
		keep_maps(snapshot, snapshot->processes[i].pid);
	if (r == 0)
		r = hl_watch_snapshot_continue(snapshot, hl_clock_ns(CLOCK_MONOTONIC), err);
	if (r < 0) {
		hl_watch_snapshot_free(snapshot);
		return r;
	}
	*ret_snapshot = snapshot;
	return 0;
}

pid_t hl_watch_snapshot_largest(const struct hl_watch_snapshot *snapshot)
{
	return snapshot->process_count ? snapshot->processes[0].pid : 0;
}

void hl_watch_snapshot_free(struct hl_watch_snapshot *snapshot)
{
	if (!snapshot)
		return;
	if (snapshot->helper) {
		kill(snapshot->helper, SIGKILL);
		waitpid(snapshot->helper, NULL, 0);
	}
	snapshot->group->is_busy = false;
	if (snapshot->fd >= 0) {
		close(snapshot->fd);
		if (!snapshot->is_kept)
			hl_watch_store_abandon(snapshot->store, snapshot->name);
	}
	if (snapshot->complaints >= 0)
		close(snapshot->complaints);
	json_decref(snapshot->document);
	free(snapshot);
}
