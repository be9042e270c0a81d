/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline attach: records a process that runs already, and leaves it as it was. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/families.h"
#include "collector/collector.h"
#include "hook/attach.h"
#include "hook/entries.h"
#include "process/audit.h"
#include "process/process.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct request {
	struct hl_record_request record;
	uint64_t pid;
	double duration_seconds;
	struct hl_option_texts hooks;
	const char *presets;
	bool counts_layers, no_pools;
};

static const struct request defaults = {.record = {HL_RECORD_DEFAULTS}};

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "the process to record", HL_OPTION_PID, HL_AT(pid), NULL},
	HL_OPTION_COMM_OF(HL_AT(pid)),
	{"duration", 'd', "SECONDS", "end after SECONDS (default: when Ctrl-C does)",
	 HL_OPTION_SECONDS, HL_AT(duration_seconds), NULL},
	{"hook", 0, "RULE",
	 "also record a function of the program: 'malloc=NAME', 'free=NAME' ..., or those of "
	 "@PRESET (may be given more than once)",
	 HL_OPTION_TEXTS, HL_AT(hooks), NULL},
	{"presets", 0, "FILE", "read more presets for '--hook' from FILE", HL_OPTION_TEXT,
	 HL_AT(presets), NULL},
	HL_OPTION_NO_POOLS(HL_AT(no_pools)),
	{"layers", 0, NULL, "also count what functions named by rules get from malloc",
	 HL_OPTION_FLAG, HL_AT(counts_layers), NULL},
	{0},
};

HL_DEFINE_FREE_AT(struct hl_collector, hl_collector_free)
HL_DEFINE_FREE_AT(struct hl_attach, hl_attach_free)

int hl_attach_check(pid_t process, char *ret_pools, size_t capacity, struct hl_error *err)
{
	const struct hl_attach_settings settings = {0};
	HL_CLEANUP(hl_attach_free_at) struct hl_attach *attach = NULL;

	if (hl_process_is_frozen(process))
		return hl_error_set(err, -EAGAIN, "cannot enter process '%d': " HL_PROCESS_FROZEN,
				    process);
	int r = hl_attach_open(process, &settings, &attach, err);
	if (r == 0 && ret_pools)
		hl_attach_pools(attach, ret_pools, capacity);
	return r;
}

/* ---- what is said ---- */

static void say_beginning(bool is_quiet, const struct hl_process_facts *facts, const char *name)
{
	if (!is_quiet && isatty(STDERR_FILENO))
		hl_cli_note("joined '%s' (pid %d), recording to '%s'; Ctrl-C leaves it as it was, "
			    "'heapline live -p %d' watches",
			    facts->comm, facts->pid, name, facts->pid);
}

/* At once, for a recording without what was looked for may take hours; and in the recording. */
static void say_unseen(bool is_quiet, const struct hl_attach *attach,
		       struct hl_collector *collector)
{
	char unseen[512];

	hl_attach_awaited(attach, unseen, sizeof(unseen));
	if (unseen[0])
		hl_cli_note("%s", unseen);
	hl_attach_pools(attach, unseen, sizeof(unseen));
	if (unseen[0] && !is_quiet)
		hl_cli_note("pools held: %s; their pieces count, and not the blocks that they are "
			    "cut from "
			    "(--no-pools)",
			    unseen);
	hl_attach_unseen(attach, false, unseen, sizeof(unseen));
	if (!unseen[0])
		return;
	hl_cli_note("%s", unseen);
	hl_collector_warn(collector, unseen);
}

/* At once, so that whoever waits for the recording can make room. */
static void say_failure(const void *context, const char *sentence)
{
	const struct request *request = context;

	hl_cli_note("%s; process %" PRIu64
		    " runs on and is counted, and the recording is written when that is possible "
		    "again; make room, or end heapline and attach with '-o' elsewhere",
		    sentence, request->pid);
}

/* What libraries have brought since, and was not patched. */
static void warn_late(const struct hl_attach *attach, struct hl_collector *collector)
{
	char problem[512];

	hl_attach_late_problem(attach, problem, sizeof(problem));
	if (problem[0])
		hl_collector_warn(collector, problem);
}

static void say_end(const struct request *request, struct hl_collector_summary summary,
		    const char *name, const struct hl_attach *attach)
{
	const struct hl_attach_times times = hl_attach_times(attach);
	char unseen[512];

	hl_attach_unseen(attach, false, unseen, sizeof(unseen));
	if (summary.warnings[0] && !strcmp(summary.warnings[0], unseen))
		summary.warnings++; /* said at the beginning */
	hl_record_say_problems(&request->record, &summary, name);
	hl_record_say_result(&request->record, &summary, name);
	if (request->record.quiet)
		return;
	if (summary.unrecorded_children)
		hl_cli_note("some children that process %" PRIu64
			    " forked could not be recorded; 'heapline attach -p CHILD' joins one "
			    "of them",
			    request->pid);
	if (times.detach_us)
		hl_cli_note("blocks allocated before are not counted; process %" PRIu64
			    " was stopped for %.1f ms to attach and %.1f ms to detach, one thread "
			    "of it for %.1f ms",
			    request->pid, times.patch_us / 1e3, times.detach_us / 1e3,
			    times.bring_us / 1e3);
	else
		hl_cli_note("blocks allocated before are not counted; process %" PRIu64
			    " was stopped for %.1f ms to attach, one thread of it for %.1f ms",
			    request->pid, times.patch_us / 1e3, times.bring_us / 1e3);
}

/* ---- the whole ---- */

/* While the process is entered and left its threads may be hundreds that want the processor. Without the right to it this changes
 * nothing. */
static void hurry(bool hurries)
{
	static int niceness;
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;

	if (hurries)
		niceness = getpriority(PRIO_PROCESS, 0);
	else /* threads that were created meanwhile have inherited it */
		(void)hl_process_threads(getpid(), &tids, &count);
	setpriority(PRIO_PROCESS, 0, hurries ? PRIO_MIN : niceness); /* of this thread alone */
	for (size_t i = 0; i < count; i++) /* but for those that have chosen another since */
		if (getpriority(PRIO_PROCESS, (id_t)tids[i]) == PRIO_MIN)
			setpriority(PRIO_PROCESS, (id_t)tids[i], niceness);
}

/* ${ret_incomplete}: not all could be written, which has been said. */
static int record(const struct request *request, struct hl_attach *attach,
		  const struct hl_process_facts *facts, bool *ret_incomplete, struct hl_error *err)
{
	struct hl_collector_settings settings =
		hl_record_settings(&request->record, facts->command);
	HL_CLEANUP(hl_collector_free_at) struct hl_collector *collector = NULL;
	HL_CLEANUP(hl_live_labels_release) struct hl_live_labels labels = {0};
	HL_FREED char *name = hl_record_name(&request->record, facts->comm, facts->pid);
	struct hl_record_following following = {0};
	struct hl_collector_summary summary;
	struct hl_error why = {0};
	uint64_t end_ns = UINT64_MAX;
	int left = 0;

	if (!name)
		return hl_error_set(err, -ENOMEM, "out of memory");
	settings.on_failure = say_failure;
	settings.on_failure_context = request;
	int r = hl_collector_new(&settings, &collector, err);
	if (r == 0)
		r = hl_record_begin(&request->record, collector, name, facts->pid, err);
	if (r < 0)
		return r;
	hl_audit_begin("attach", facts->pid);
	r = hl_record_join(collector, facts->pid, attach, true, &following, err);
	hl_audit("attach", facts->pid, r);
	if (r < 0) {
		hl_collector_abandon(collector);
		return r;
	}
	hurry(false);
	hl_collector_keep(collector);
	say_beginning(request->record.quiet, facts, name);
	say_unseen(request->record.quiet, attach, collector);
	if (request->duration_seconds > 0)
		end_ns = hl_clock_ns(CLOCK_MONOTONIC) +
			 (uint64_t)(request->duration_seconds * (double)HL_NS_PER_SECOND);
	if (hl_launch_attend(collector, end_ns) < 0)
		hl_cli_note("out of file descriptors; the recording '%s' ends here", name);
	/* Its table of blocks leaves with the recorder. Without labels the recording is whole as well. */
	hl_live_labels_read((pid_t)request->pid, &labels);
	hurry(true);
	left = hl_attach_detach(attach, HL_RECORD_LEAVE_WAIT_MS, err);
	hurry(false); /* what follows may take seconds, in which the process needs the processor, too */
	hl_audit("detach", facts->pid, left);
	warn_late(attach, collector);
	hl_collector_finish(collector, &summary);
	for (size_t i = 0; i < labels.count && !summary.is_empty; i++)
		if (hl_live_fill_labels(name, (pid_t)request->pid, labels.of[i].labels, &why) < 0)
			hl_cli_note("'%s' does not say %s: %s", name, labels.of[i].what, why.text);
	if (!summary.is_empty && hl_live_fill_services(name, (pid_t)request->pid, &why) < 0)
		hl_cli_note("'%s' has handles instead of names of services: %s", name, why.text);
	hl_collector_tell_detached(collector, left < 0 ? err->text : NULL);
	say_end(request, summary, name, attach);
	if (left < 0 && !hl_process_has_ended(hl_proc_thread((pid_t)request->pid)))
		hl_cli_note(
			"its recorder stays in process %" PRIu64
			", of which nothing is kept any more; once that can be stopped, 'heapline "
			"attach -p %" PRIu64 " -d 1' takes it out",
			request->pid, request->pid);
	*ret_incomplete = summary.incomplete;
	return left;
}

/* That a rule cannot be read is a usage error; whether it fits the process, hl_attach_open() says. */
static int check_hooks(const struct request *request)
{
	HL_CLEANUP(hl_hook_rules_release) struct hl_hook_rules rules = {0};
	struct hl_error err = {0};

	if (hl_hook_rules_make(NULL, request->presets, &rules, &err) < 0)
		return hl_cli_error("%s", err.text);
	for (size_t i = 0; i < request->hooks.count; i++) {
		int r = hl_hook_rules_ask(request->hooks.texts[i], &rules, &err);
		if (r == -EINVAL || r == -ENOENT)
			return hl_cli_usage_error(&hl_verb_attach, "%s", err.text);
		if (r < 0)
			return hl_cli_error("%s", err.text);
	}
	return HL_EXIT_DONE;
}

static int run_attach(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	HL_CLEANUP(hl_process_facts_release) struct hl_process_facts facts = {0};
	HL_CLEANUP(hl_attach_free_at) struct hl_attach *attach = NULL;
	const char *rules[HL_OPTION_TEXTS_MAX + 1] = {NULL};
	const struct hl_attach_settings settings = {.hooks = rules,
						    .presets = request->presets,
						    .counts_layers = request->counts_layers,
						    .no_pools = request->no_pools,
						    .no_objects = request->record.no_objects};
	struct hl_error err = {0};
	bool is_incomplete = false;

	if (argc > 0)
		return request->pid ? hl_cli_usage_error(&hl_verb_attach,
							 "unexpected argument '%s'", argv[0])
				    : hl_cli_unexpected_process(argv[0]);
	if (!request->pid)
		return hl_cli_usage_error(
			&hl_verb_attach,
			"'attach' needs a process; name it with -p PID or --comm NAME");
	if (request->pid == (uint64_t)getpid())
		return hl_cli_usage_error(&hl_verb_attach, "'attach' cannot record itself");
	if (request->hooks.count > HL_OPTION_TEXTS_MAX)
		return hl_cli_usage_error(&hl_verb_attach, "more than %d rules of '--hook'",
					  HL_OPTION_TEXTS_MAX);
	int status = hl_record_check_options(&hl_verb_attach, &request->record);
	if (status == HL_EXIT_DONE)
		status = check_hooks(request);
	if (status != HL_EXIT_DONE)
		return status;
	for (size_t i = 0; i < request->hooks.count; i++)
		rules[i] = request->hooks.texts[i];
	hl_launch_guard_standard_streams();
	hurry(true);
	int r = hl_process_facts_read((pid_t)request->pid, &facts, &err);
	if (r == 0)
		r = hl_attach_open((pid_t)request->pid, &settings, &attach, &err);
	if (r < 0)
		hl_audit("attach", (pid_t)request->pid, r);
	/* From here on Ctrl-C must not leave the process half joined. */
	hl_launch_defer_signals();
	if (r == 0)
		r = record(request, attach, &facts, &is_incomplete, &err);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	return is_incomplete ? HL_EXIT_FAILED : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_attach = {
	.name = "attach",
	.group = HL_GROUP_RECORD,
	.arguments = "-p PID",
	.summary = "record a running process, and leave it as it was",
	.options = options,
	.shared_options = {hl_record_options},
	HL_REQUEST(defaults),
	.run = run_attach,
	.effect = HL_VERB_ENTERS,
};
