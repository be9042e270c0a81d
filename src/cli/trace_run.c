/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs traces of processes, and writes their results; see trace_run.h. */
#include "cli/trace_run.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "bpf/privilege.h"
#include "cli/output.h"
#include "collector/collector.h"
#include "collector/directory.h"
#include "process/maps.h"
#include "process/process.h"
#include "profile/profile.h"
#include "view/format.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

/* ---- the recording that is kept ---- */

int hl_trace_output_open(const char *path, bool force, struct hl_directory *ret_directory,
			 struct hl_error *err)
{
	struct hl_directory directory = {.fd = -1};

	int r = path ? hl_directory_init(&directory, path, force, err) : 0;
	if (r == 0)
		*ret_directory = directory;
	return r;
}

void hl_trace_output_close(struct hl_directory *directory, bool keep)
{
	if (!keep)
		hl_directory_remove(directory);
	hl_directory_release(directory);
}

/* ---- a view ---- */

/* The targets' own files, while they live: they may see others under their paths than we do, or go on
 * with some that were replaced. */
struct target_files {
	struct hl_file_finder finder;
	const struct hl_recording *recording;
	pid_t pid;	     /* whose these are; 0: nobody's yet */
	struct hl_maps maps; /* that have code */
	char path[PATH_MAX];
};

static const char *find_file_of(struct target_files *files, pid_t pid, const char *path)
{
	if (files->pid != pid) {
		hl_maps_release(&files->maps);
		files->pid = pid;
		hl_maps_read(pid, &files->maps, NULL);
	}
	for (size_t i = 0; i < files->maps.count; i++) {
		const struct hl_map *map = &files->maps.maps[i];
		if (map->flags & HL_MAP_EXEC && !strcmp(map->path, path) &&
		    hl_maps_file_path(pid, map, files->path, sizeof(files->path)) == 0)
			return files->path;
	}
	return NULL;
}

static const char *find_file(struct hl_file_finder *finder, const char *path)
{
	struct target_files *files = (struct target_files *)finder;
	const char *found = NULL;

	for (uint32_t i = 0; !found && i < files->recording->process_count; i++) {
		const struct hl_recording_process *process = &files->recording->processes[i];
		for (uint32_t k = 0; !found && k < process->module_count; k++)
			if (!strcmp(process->modules[k].path, path))
				found = find_file_of(files, (pid_t)process->pid, path);
	}
	return found;
}

static int load(const struct hl_trace_target *target, const struct hl_recording *recording,
		struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_terminal_progress progress;
	struct target_files files = {.finder = {find_file}, .recording = recording};
	struct hl_profile_selection selection = {.files = &files.finder,
						 .progress = &progress.progress};
	struct hl_profile *profile = NULL;

	hl_terminal_progress_init(&progress, "naming functions");
	int r = hl_profile_load(recording, &selection, &profile, err);
	if (r == 0)
		r = hl_filter_apply(&target->filter, profile, NULL, err);
	hl_terminal_progress_clear(&progress);
	hl_maps_release(&files.maps);
	if (r < 0)
		hl_profile_free(profile);
	else
		*ret_profile = profile;
	return r;
}

/* JSON in one line: line feeds stand between its words alone. */
static int show_in_one_line(const struct hl_profile *profile, struct hl_view_options *options,
			    struct hl_error *err)
{
	FILE *out = options->out;
	char *json = NULL;
	size_t size;

	options->out = open_memstream(&json, &size);
	if (!options->out)
		return hl_error_set(err, -ENOMEM, "out of memory");
	int r = hl_stacks_view(profile, options, err);
	if (fclose(options->out) == 0 && r == 0) {
		for (const char *at = json; *at; at += strspn(at, "\n ")) {
			size_t length = strcspn(at, "\n");
			fwrite(at, 1, length, out);
			at += length;
		}
		putc('\n', out);
	}
	free(json);
	return r;
}

static int show(const struct hl_trace_target *target, const struct hl_recording *recording,
		struct hl_error *err)
{
	struct hl_view_options options = target->view.options;
	bool json = target->view.output.json, has_head = target->repeated && !json;
	struct hl_profile *profile = NULL;
	struct hl_report_output report;

	options.stacks.brief = target->repeated;
	int r = load(target, recording, &profile, err);
	if (r < 0)
		return r;
	hl_symbols_advice_add(profile, HL_DPKG_DIRECTORY); /* or goes without advice */
	r = hl_view_options_choose_value(&target->view, profile, target->folded, &options, err);
	if (r == 0 && has_head) {
		time_t end = (time_t)((recording->start_realtime_ns + recording->duration_ns) /
				      HL_NS_PER_SECOND);
		char clock[16], duration[HL_FORMAT_MAX];
		struct tm parts;
		strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&end, &parts));
		printf("%s, growth of the last %s\n", clock,
		       hl_format_duration(recording->duration_ns, duration));
	}
	if (r == 0)
		r = hl_report_output_open(&report, &target->view.output,
					  !target->folded && !json && !target->repeated, err);
	if (r == 0) {
		options.json = json;
		options.color = hl_view_output_has_color(report.options);
		options.notes = stderr;
		options.out = report.out;
		r = target->folded	       ? hl_folded_view(profile, &options, err)
		    : target->repeated && json ? show_in_one_line(profile, &options, err)
					       : hl_stacks_view(profile, &options, err);
		r = hl_report_output_close(&report, r, err);
	}
	if (has_head)
		putchar('\n');
	if (target->repeated)
		fflush(stdout);
	hl_profile_free(profile);
	return r;
}

/* Names are known later, too, when the target and its own files are gone. */
static void keep_files(struct hl_recording_process *process, int directory_fd)
{
	struct hl_held_files held = {0};
	struct hl_module_files *files = hl_module_files_new(&held);

	if (!files)
		return;
	hl_module_files_look(files, (pid_t)process->pid, process->module_count);
	hl_module_files_keep(files, process, 0, directory_fd);
	hl_module_files_free(files);
}

/*
 * Keeps ${recording} in ${directory} if that is open; writes text, folded lines or JSON to standard
 * output if they were asked for, or no recording is kept. 0 or a negative errno with a sentence.
 */
static int trace_output_write(const struct hl_trace_target *target,
			      const struct hl_directory *directory, struct hl_recording *recording,
			      struct hl_error *err)
{
	bool keeps = directory->fd >= 0;
	bool shows = !keeps || target->folded || target->view.output.json;

	if (keeps) {
		int r = 0;
		for (uint32_t i = 0; r == 0 && i < recording->process_count; i++) {
			keep_files(&recording->processes[i], directory->fd);
			r = hl_recording_write_process(directory->fd, &recording->processes[i],
						       err);
		}
		if (r == 0)
			r = hl_recording_write_meta(directory->fd, recording, err);
		if (r < 0)
			return r;
		hl_directory_sync(directory);
		char duration[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX];
		const struct hl_trace_kind *kind = hl_trace_kind_of(recording->mode);
		uint64_t sum = 0, stacks = 0;
		for (uint32_t i = 0; i < recording->process_count; i++) {
			const struct hl_recording_process *process = &recording->processes[i];
			stacks += process->value_count;
			for (uint32_t k = 0; k < process->value_count; k++)
				sum += process->values[k].alloc_bytes -
				       process->values[k].free_bytes;
		}
		hl_cli_note("traced %s for %s, %s %s by %" PRIu64
			    " stack%s in '%s'; see 'heapline top %s'",
			    recording->name, hl_format_duration(recording->duration_ns, duration),
			    kind && strcmp(kind->word, "not freed") != 0 ? kind->word : "kept",
			    hl_format_bytes((int64_t)sum, bytes), stacks, hl_format_plural(stacks),
			    target->path, target->path);
	}
	return shows ? show(target, recording, err) : 0;
}

#define POLL_MS	      100 /* how late Ctrl-C may be noticed */
#define INTERVAL_ROWS 5	  /* of each report of several, by default */

/* ---- options ---- */

static const char *const by_words[] = {"line", "function", NULL};
static const enum hl_view_key by_keys[] = {HL_VIEW_BY_LINE, HL_VIEW_BY_FUNCTION};

#define AT(member) offsetof(struct hl_trace_target, member)

const struct hl_option hl_trace_options[] = {
	{"pid", 'p', "PID", "the process to trace", HL_OPTION_PID, AT(pid), NULL},
	HL_OPTION_COMM_OF(AT(pid)),
	{"rows", 'n', "N", "show N stacks; 0: all (default: 20, with --json all)", HL_OPTION_COUNT,
	 AT(view.options.row_limit), NULL},
	{"by", 'b', "KEY", "line or function: what makes stacks differ (default: line)",
	 HL_OPTION_CHOICE, AT(view.options.by), by_words},
	{"folded", 0, NULL, "write folded lines, for flame graph programs", HL_OPTION_FLAG,
	 AT(folded), NULL},
	{"output", 'o', "NAME.hl", "keep the result as a recording, which every view reads",
	 HL_OPTION_TEXT, AT(path), NULL},
	{"force", 'f', NULL, "with -o: replace an existing recording; without: write folded lines",
	 HL_OPTION_FLAG, AT(force), NULL},
	{"verbose", 0, NULL, "report each step, and the kernel's messages", HL_OPTION_FLAG,
	 AT(verbose), NULL},
	{0},
};

/* Leaves ${seconds} as it is when there is no duration. */
static int check_usage(const struct hl_verb *verb, int argc, char **argv,
		       struct hl_trace_target *target, double *seconds)
{
	if (!target->pid)
		return hl_cli_usage_error(
			verb, "'%s' needs a process; name it with -p PID or --comm NAME",
			verb->name);
	if (target->pid == (uint64_t)getpid())
		return hl_cli_usage_error(verb, "'%s' cannot look at itself", verb->name);
	if (argc > 1)
		return hl_cli_usage_error(verb, "unexpected argument '%s'", argv[1]);
	if (argc == 1 && hl_option_parse_seconds(argv[0], seconds) < 0)
		return hl_cli_usage_error(
			verb, "bad duration '%s': not a possible number of seconds", argv[0]);
	/* As memstacks and others have it. */
	target->folded |= target->force && !target->path;
	if (target->folded && target->view.output.json)
		return hl_cli_usage_error(verb, "--folded and --json exclude each other");
	return HL_EXIT_DONE;
}

/* ---- when it is enough ---- */

static volatile sig_atomic_t interrupted;

static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP};

/* What was ignored before, as SIGHUP is below nohup, stays so. */
static void set_handlers(void (*handler)(int))
{
	for (size_t i = 0; i < HL_COUNT_OF(end_signals); i++) {
		struct sigaction before;
		sigaction(end_signals[i], NULL, &before);
		if (before.sa_handler != SIG_IGN)
			sigaction(end_signals[i], &(struct sigaction){.sa_handler = handler}, NULL);
	}
}

/* A second signal ends the program at once; the kernel then takes all probes away. */
static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
	set_handlers(SIG_DFL);
}

static bool has_ended(const struct hl_trace_request *request)
{
	struct pollfd target = {.fd = request->target_fd, .events = POLLIN};

	return poll(&target, 1, 0) == 1;
}

static bool is_enough(const struct hl_trace_request *request)
{
	return interrupted || has_ended(request);
}

/* ---- the run ---- */

/* What goes on, as far as it is told. */
struct run {
	const struct hl_trace_command *command;
	const struct hl_trace_target *target;
	struct hl_trace_request request;
	struct hl_process_status memory; /* of the process at the last report, or the beginning */
};

static HL_PRINTF(1, 2) void say(const char *format, ...)
{
	va_list arguments;
	char *sentence;

	va_start(arguments, format);
	if (vasprintf(&sentence, format, arguments) >= 0) {
		hl_cli_note("%s", sentence);
		free(sentence);
	}
	va_end(arguments);
}

static HL_PRINTF(1, 2) void say_nothing(const char *format, ...)
{
	(void)format;
}

static void tell_bpf(const char *line)
{
	hl_cli_note("%s", line);
}

static uint64_t later_ns(uint64_t from_ns, double seconds)
{
	return isfinite(seconds) ? from_ns + (uint64_t)(seconds * (double)HL_NS_PER_SECOND)
				 : UINT64_MAX;
}

static int poll_until(const struct run *run, void *trace, double seconds,
		      struct hl_progress *progress, struct hl_error *err)
{
	uint64_t start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	uint64_t now_ns = start_ns, end_ns = later_ns(start_ns, seconds);
	int r = 0;

	while (r == 0 && now_ns < end_ns && !is_enough(&run->request)) {
		uint64_t left_ms = (end_ns - now_ns) / 1000000 + 1;
		r = run->command->backend->poll(trace, left_ms < POLL_MS ? (int)left_ms : POLL_MS,
						err);
		now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		if (isfinite(seconds))
			hl_progress_report(progress, "tracing", now_ns - start_ns,
					   end_ns - start_ns);
	}
	return r == -ESRCH || r == -EINTR ? 0 : r; /* what there is, is there all the same */
}

/* How RSS grew since the last report, and what shows it where malloc does not explain it. Of a process that has ended
 * nothing is known. */
static int add_rss(struct run *run, struct hl_trace_result *result)
{
	const struct hl_process_facts *facts = run->request.facts;
	const struct hl_process_status before = run->memory;
	const struct hl_trace_value sum = hl_trace_result_sum(result);
	const struct hl_trace_value called = hl_trace_result_called(result);
	char sentence[HL_WARNING_BYTES];

	run->memory = hl_process_status_read(facts->pid);
	if (!run->memory.rss_bytes || !before.rss_bytes)
		return 0;
	const struct hl_outside_malloc found = {
		.pid = facts->pid,
		.executable = facts->executable,
		.runs = true,
		.ran_before = true,
		.is_traced = run->command->backend != &hl_recorded_trace,
		.allocations = called.alloc_objects + called.free_objects,
		.malloc_bytes = (int64_t)(sum.alloc_bytes - sum.free_bytes),
		.alloc_bytes = (int64_t)called.alloc_bytes,
		.rss_growth_bytes = run->memory.anonymous_bytes - before.anonymous_bytes,
	};
	int r = hl_trace_result_figure(result, "rss_growth_bytes",
				       run->memory.rss_bytes - before.rss_bytes);
	if (r == 0 && hl_outside_malloc_describe(&found, sentence))
		r = hl_trace_result_warn(result, "%s", sentence);
	return r;
}

static int make_recording(struct run *run, struct hl_trace_result *result,
			  struct hl_recording **ret_recording, struct hl_error *err)
{
	int r = run->command->measures_rss ? add_rss(run, result) : 0;

	if (r == 0)
		r = hl_trace_result_recording(
			result, has_ended(&run->request) ? HL_END_UNKNOWN : HL_END_RUNNING,
			ret_recording);
	return r < 0 ? hl_error_set(err, r, "out of memory") : 0;
}

/* What has changed since the last report. */
static int write_interval(struct run *run, void *trace, struct hl_trace_result **result,
			  struct hl_error *err)
{
	const struct hl_directory nowhere = {.fd = -1};
	struct hl_recording *recording = NULL;
	int r = run->command->backend->report(trace, *result, err);

	if (r == 0)
		r = make_recording(run, *result, &recording, err);
	if (r == 0)
		r = trace_output_write(run->target, &nowhere, recording, err);
	hl_recording_free(recording);
	hl_trace_result_free(*result);
	*result = NULL;
	if (r == 0 && hl_trace_result_new(run->request.facts, run->command->mode, result) < 0)
		r = hl_error_set(err, -ENOMEM, "out of memory");
	return r;
}

/* Reports every interval but the last, which may be a short one: ${result} is for that. */
static int poll_intervals(struct run *run, void *trace, double seconds,
			  struct hl_trace_result **result, struct hl_error *err)
{
	double interval_seconds = run->command->interval_seconds;
	uint64_t start_ns = hl_clock_ns(CLOCK_MONOTONIC), now_ns = start_ns;
	uint64_t end_ns = later_ns(start_ns, seconds), next_ns = start_ns;

	while (!ferror(stdout)) {
		next_ns = later_ns(next_ns, interval_seconds);
		if (next_ns < now_ns) /* writing took longer */
			next_ns = later_ns(now_ns, interval_seconds);
		bool is_last = next_ns >= end_ns;
		double left =
			(double)((is_last ? end_ns : next_ns) - now_ns) / (double)HL_NS_PER_SECOND;
		int r = poll_until(run, trace, left, NULL, err);
		now_ns = hl_clock_ns(CLOCK_MONOTONIC);
		/* Before its time, the target is gone, or is another program. */
		if (r || is_last || is_enough(&run->request) || now_ns < next_ns)
			return r;
		r = write_interval(run, trace, result, err);
		if (r)
			return r;
		now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	}
	return 0;
}

/* From the start of the backend to a full result; *${ret_is_full} is whether it came so far. */
static int trace(struct run *run, double seconds, struct hl_trace_result **result,
		 bool *ret_is_full, struct hl_error *err)
{
	const struct hl_trace_backend *backend = run->command->backend;
	struct hl_terminal_progress progress;
	struct hl_error last = {0};
	void *trace = NULL;

	int r = backend->start(&run->request, &trace, err);
	if (r)
		return r;
	hl_trace_result_begin(*result);
	run->memory = hl_process_status_read(run->request.facts->pid);
	hl_terminal_progress_init(&progress, "tracing; Ctrl-C ends");
	int polled = run->command->interval_seconds > 0
			     ? poll_intervals(run, trace, seconds, result, err)
			     : poll_until(run, trace, seconds, &progress.progress, err);
	hl_terminal_progress_phase(&progress, "detaching");
	r = polled < 0 ? polled : backend->finish(trace, has_ended(&run->request), *result, &last);
	hl_terminal_progress_clear(&progress);
	backend->free(trace);
	if (r < 0 && polled >= 0)
		*err = last;
	*ret_is_full = r >= 0;
	return r < 0 ? r : polled;
}

/* Signals end the trace from here on; later ones what comes after it. */
static int run_trace(struct run *run, double seconds, struct hl_recording **ret_recording,
		     struct hl_error *err)
{
	struct hl_trace_result *result;
	bool is_full = false;

	int r = hl_trace_result_new(run->request.facts, run->command->mode, &result);
	if (r < 0)
		return hl_error_set(err, r, "out of memory");
	set_handlers(on_signal);
	int traced = trace(run, seconds, &result, &is_full, err);
	set_handlers(SIG_DFL);
	if (traced < 0 && !is_full && has_ended(&run->request)) { /* which is why all else failed */
		*err = (struct hl_error){0};
		traced = hl_error_set(err, -ESRCH,
				      "process '%d' ended before it could be traced; trace it "
				      "while it runs",
				      run->request.facts->pid);
	}
	if (is_full)
		r = make_recording(run, result, ret_recording, err);
	hl_trace_result_free(result);
	return r < 0 ? r : traced;
}

/* ---- all of it ---- */

static int status_of(int r, const struct hl_error *err)
{
	if (r == 0)
		return HL_EXIT_DONE;
	int status = hl_cli_error("%s", err->text);
	return r == HL_TRACE_TOO_COSTLY ? HL_EXIT_LIMIT : status;
}

static int trace_and_report(struct run *run, double seconds, struct hl_error *err)
{
	const struct hl_process_facts *facts = run->request.facts;
	const struct hl_trace_target *target = run->target;
	struct hl_recording *recording = NULL;
	struct hl_directory directory;

	int r = hl_trace_output_open(target->path, target->force, &directory, err);
	if (r < 0)
		return r;
	hl_privilege_log_start(target->verbose ? tell_bpf : NULL);
	if (facts->pid)
		run->request.note("tracing process %d (%s)", facts->pid, facts->comm);
	else
		run->request.note("tracing group %s", facts->executable);
	int traced = run_trace(run, seconds, &recording, err);
	if (recording && has_ended(&run->request))
		hl_cli_note("process %d ended before the trace did", facts->pid);
	if (recording)
		r = trace_output_write(target, &directory, recording, err);
	hl_trace_output_close(&directory, recording && r >= 0);
	hl_recording_free(recording);
	return r < 0 ? r : traced;
}

/* A collector has regions as well, but no such code. */
static bool has_nameless_code(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (maps->maps[i].flags & HL_MAP_EXEC && !maps->maps[i].path[0])
			return true;
	return false;
}

/* A recorder that was brought in, and whose collector is not found, has changed the entries that probes would stand on. */
static int refuse_joined(pid_t pid, struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};

	if (hl_maps_read(pid, &maps, NULL) < 0 || !hl_maps_have_file(&maps, "memfd:heapline") ||
	    hl_maps_have_file(&maps, "libheapline.so") || !has_nameless_code(&maps))
		return 0;
	return hl_error_set(
		err, -EBUSY,
		"cannot trace process '%d': heapline is attached to it, and changed the "
		"functions that probes would be set on; set XDG_RUNTIME_DIR as it was for "
		"'heapline attach', or, if that has ended, take its recorder out: "
		"'heapline attach -p %d -d 1'",
		pid, pid);
}

/* Probes would harm what is recorded, and the recorder knows already. */
static int choose_recorder(struct hl_trace_command *command, pid_t pid, struct hl_error *err)
{
	if (!command->recorded_backend)
		return 0;
	if (!hl_trace_recorded_has(pid))
		return refuse_joined(pid, err);
	if (command->needs_probes)
		return hl_error_set(err, -ENOTSUP,
				    "cannot trace process '%d' with %s: it is being recorded, and "
				    "the probes for that would cut the stacks of its recording; "
				    "without %s it is read from the recorder",
				    pid, command->needs_probes, command->needs_probes);
	command->backend = command->recorded_backend;
	command->mode = command->recorded_mode;
	return 0;
}

static struct run run_of(const struct hl_trace_command *command,
			 const struct hl_trace_target *target, const struct hl_process_facts *facts)
{
	return (struct run){
		.command = command,
		.target = target,
		.request = {.facts = facts,
			    .settings = command->settings,
			    /* What is said while it goes on is for those who watch. */
			    .note = target->verbose || isatty(STDERR_FILENO) ? say : say_nothing,
			    .detail = target->verbose ? say : say_nothing,
			    .is_enough = is_enough,
			    .target_fd = -1},
	};
}

int hl_trace_run_group(const char *name, double seconds, struct hl_trace_target *target,
		       const struct hl_trace_command *command)
{
	struct hl_trace_command chosen = *command;
	char *words[] = {(char *)"all", (char *)"its", (char *)"processes", NULL};
	const struct hl_process_facts facts = {
		.threads = 1, .comm = "group", .executable = (char *)name, .command = words};
	struct run run = run_of(&chosen, target, &facts);
	struct hl_error err = {0};

	chosen.mode = chosen.backend->mode;
	target->view.options.by = by_keys[target->view.options.by];
	return status_of(trace_and_report(&run, seconds, &err), &err);
}

int hl_trace_run(const struct hl_verb *verb, int argc, char **argv, struct hl_trace_target *target,
		 const struct hl_trace_command *command)
{
	const struct hl_view_output *output = &target->view.output;
	struct hl_trace_command chosen = *command;
	struct hl_process_facts facts;
	struct run run = run_of(&chosen, target, &facts);
	struct hl_error err = {0};
	double seconds = INFINITY;
	int status = check_usage(verb, argc, argv, target, &seconds);

	target->view.options.by = by_keys[target->view.options.by];
	if (status == HL_EXIT_DONE)
		status = hl_view_options_parse_filter(verb, &target->view, &target->filter);
	if (status != HL_EXIT_DONE)
		return status;
	target->repeated = command->interval_seconds > 0;
	if (target->repeated && (target->folded || target->path))
		return hl_cli_usage_error(verb,
					  "--interval writes one report after another, as text "
					  "or --json; leave out --folded and --output");
	if (target->repeated && target->view.options.row_limit == HL_EMIT_ROWS_DEFAULT &&
	    !output->json)
		target->view.options.row_limit = INTERVAL_ROWS;
	if (target->folded) /* data for other programs */
		target->filter.fold_plumbing = false;
	if (!chosen.mode)
		chosen.mode = chosen.backend->mode;
	int r = choose_recorder(&chosen, (pid_t)target->pid, &err);
	if (r == 0)
		r = hl_process_facts_read((pid_t)target->pid, &facts, &err);
	if (r < 0)
		return status_of(r, &err);
	run.request.target_fd = pidfd_open((pid_t)target->pid, 0);
	if (run.request.target_fd < 0)
		r = hl_error_set(&err, -errno, "cannot watch process '%d': %s", facts.pid,
				 strerror(errno));
	if (r == 0)
		r = trace_and_report(&run, seconds, &err);
	hl_process_facts_release(&facts);
	return status_of(r, &err);
}
