/* SPDX-License-Identifier: BSD-2-Clause */
/* A profile: what it knows and warns of, its texts about the recording and its processes, and the kinds of traces; see profile.h. */
#include "profile/profile.h"

#include "base/compiler.h"
#include "base/names.h"
#include "base/text.h"
#include "recording/recording.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const hl_value_names[] = {"inuse", "alloc",	   "peak",    "temporary",
				      "slack", "resident", "swapped", NULL};
const char *const hl_value_words[] = {"in use,", "allocated", "peak",	"temporary",
				      "slack",	 "resident",  "swapped"};
const char *const hl_unit_names[] = {"bytes", "objects", NULL};

void hl_profile_free(struct hl_profile *profile)
{
	if (!profile)
		return;
	hl_strings_release(&profile->strings);
	free(profile->warnings);
	free(profile->marks);
	free(profile->figures);
	free(profile->processes);
	free(profile->modules);
	free(profile->functions);
	free(profile->frames);
	free(profile->nodes);
	free(profile->counters);
	free(profile->threads);
	free(profile->rows);
	free(profile->sizes);
	free(profile->base);
	free(profile->is_plumbing);
	free(profile);
}

bool hl_profile_has_runtime(const struct hl_profile *profile, const char *name)
{
	for (size_t i = 1; i < profile->module_count; i++)
		if (profile->modules[i].script &&
		    !strcmp(hl_profile_text(profile, profile->modules[i].path), name))
			return true;
	return false;
}

bool hl_profile_is_script(const struct hl_profile *profile, const struct hl_profile_frame *frame)
{
	const struct hl_profile_function *function = &profile->functions[frame->function];

	if (function->module || frame->part != HL_PART_NATIVE)
		return profile->modules[function->module].script;
	return !profile->imported &&
	       hl_code_runtime_is_script(hl_profile_text(profile, function->name),
					 hl_profile_text(profile, frame->file));
}

bool hl_profile_has_scripts(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->frame_count; i++)
		if (hl_profile_is_script(profile, &profile->frames[i]))
			return true;
	return false;
}

const struct hl_code_runtime *hl_profile_code_runtime(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->module_count; i++) {
		const struct hl_code_runtime *runtime =
			hl_code_runtime_of(hl_profile_text(profile, profile->modules[i].path));
		if (runtime && runtime->start && profile->modules[i].used)
			return runtime;
	}
	return NULL;
}

int hl_profile_warn(struct hl_profile *profile, const char *format, ...)
{
	HL_FREED char *sentence = NULL;
	uint32_t *warnings =
		reallocarray(profile->warnings, profile->warning_count + 1, sizeof(*warnings));
	va_list args;

	if (!warnings)
		return -ENOMEM;
	profile->warnings = warnings;
	va_start(args, format);
	int length = vasprintf(&sentence, format, args);
	va_end(args);
	if (length < 0) {
		sentence = NULL;
		return -ENOMEM;
	}
	int r = hl_strings_intern(&profile->strings, sentence, &warnings[profile->warning_count]);
	if (r == 0)
		profile->warning_count++;
	return r;
}

int hl_profile_warn_of_earlier_threads(struct hl_profile *profile)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < profile->thread_count; i++) {
		const struct hl_profile_thread *thread = &profile->threads[i];
		if (thread->earlier_threads)
			r = hl_profile_warn(profile,
					    "the figures of thread %u include those of %u that "
					    "ended before it began",
					    thread->tid, thread->earlier_threads);
	}
	return r;
}

/* Milliseconds for which ${process} was not recorded, by the marks at switches of its mode. */
static uint64_t closed_ms(const struct hl_profile *profile,
			  const struct hl_profile_process *process)
{
	uint64_t closed_at = UINT64_MAX, sum = 0;

	for (size_t i = 0; i < profile->mark_count; i++) {
		const struct hl_profile_mark *mark = &profile->marks[i];
		const char *name = hl_profile_text(profile, mark->name);
		if (mark->pid != process->pid || strncmp(name, HL_MODE_MARK, strlen(HL_MODE_MARK)))
			continue;
		if (!strcmp(name, HL_CLOSED_MARK)) {
			closed_at = closed_at == UINT64_MAX ? mark->ms : closed_at;
		} else if (closed_at != UINT64_MAX) {
			sum += mark->ms > closed_at ? mark->ms - closed_at : 0;
			closed_at = UINT64_MAX;
		}
	}
	uint64_t end = process->duration_ns / 1000000;
	return closed_at < end ? sum + end - closed_at : sum;
}

int hl_profile_warn_of_pauses(struct hl_profile *profile)
{
	const struct hl_profile_process *longest = NULL;
	uint64_t longest_ms = 0;
	size_t count = 0;
	char others[48] = "";

	for (size_t i = 0; profile->mark_count && i < profile->process_count; i++) {
		const struct hl_profile_process *process = &profile->processes[i];
		uint64_t ms = closed_ms(profile, process);
		count += ms > 0;
		if (ms > longest_ms) {
			longest_ms = ms;
			longest = process;
		}
	}
	if (!longest)
		return 0;
	if (count > 1)
		snprintf(others, sizeof(others), ", and for less in %zu other%s", count - 1,
			 count == 2 ? "" : "s");
	return hl_profile_warn(profile,
			       "process %u was in mode 'closed' for %.3f of %.3f s%s: allocations "
			       "made then are in no figure; 'heapline info' lists the switches",
			       longest->pid, (double)longest_ms / 1e3,
			       (double)longest->duration_ns / 1e9, others);
}

/* ---- how a process ended ---- */

#define REPLACED "replaced by exec"

/* What the end says beyond that, where the process' next program was not recorded. */
#define WENT_ON REPLACED ", "

/* How ${process} ended, as a clause: "exited with status 0". 0 or -ENOMEM. */
static int profile_intern_end(struct hl_profile *profile,
			      const struct hl_recording_process *process, uint32_t *ret_id)
{
	bool has_name = process->successor && process->successor[0];
	char sentence[160] = "ended";
	const char *signal_name;

	switch (process->end) {
	case HL_END_RUNNING:
		profile->left_running = true;
		strcpy(sentence, "was still running");
		break;
	case HL_END_EXITED:
		snprintf(sentence, sizeof(sentence), "exited with status %d", process->end_status);
		break;
	case HL_END_SIGNALED:
		signal_name = sigabbrev_np(process->end_status);
		snprintf(sentence, sizeof(sentence), "killed by signal %d (SIG%s)",
			 process->end_status, signal_name ? signal_name : "?");
		break;
	case HL_END_EXEC:
		if (has_name)
			snprintf(sentence, sizeof(sentence),
				 WENT_ON "went on as '%.64s', unrecorded", process->successor);
		else
			strcpy(sentence, REPLACED);
		break;
	case HL_END_UNKNOWN:
		break;
	}
	return hl_strings_intern(&profile->strings, sentence, ret_id);
}

bool hl_profile_was_replaced(const struct hl_profile *profile,
			     const struct hl_profile_process *process)
{
	const char *end = hl_profile_text(profile, process->end);

	/* Packed recordings of heapline 0.1 have the other words. */
	return !strncmp(end, REPLACED, strlen(REPLACED)) ||
	       !strcmp(end, "replaced itself by another program (exec)");
}

const char *hl_profile_went_on(const struct hl_profile *profile,
			       const struct hl_profile_process *process)
{
	const char *end = hl_profile_text(profile, process->end);

	return strncmp(end, WENT_ON, strlen(WENT_ON)) ? NULL : end + strlen(WENT_ON);
}

/* ---- what was asked for and is known ---- */

int hl_profile_selection_fail(const struct hl_profile_selection *selection, const char *name,
			      struct hl_error *err)
{
	char process[64] = "", pid[16] = "", sequence[16] = "";

	/* "process 4711", "process 4711/2", "process /2" */
	if (selection->pid)
		snprintf(pid, sizeof(pid), "%u", selection->pid);
	if (selection->by_sequence)
		snprintf(sequence, sizeof(sequence), "/%u", selection->sequence);
	if (selection->pid || selection->by_sequence)
		snprintf(process, sizeof(process), "process %s%s", pid, sequence);
	if (selection->tid)
		return hl_error_set(err, -ESRCH,
				    "no thread %u%s%s in '%s'; 'heapline top --by thread' lists "
				    "them",
				    selection->tid, process[0] ? " of " : "", process, name);
	if (!process[0])
		return hl_error_set(err, -ESRCH, "no process in '%s'", name);
	return hl_error_set(err, -ESRCH, "no %s in '%s'; 'heapline info' lists them%s", process,
			    name,
			    selection->by_sequence ? "" : ", and '-p /SEQ' picks one by its order");
}

bool hl_profile_has_unit(enum hl_value value, enum hl_unit unit)
{
	if (value == HL_VALUE_TEMPORARY)
		return unit == HL_UNIT_OBJECTS;
	if (value == HL_VALUE_SLACK || hl_value_is_of_pages(value))
		return unit == HL_UNIT_BYTES;
	return true;
}

static void know(struct hl_profile *profile, enum hl_value value)
{
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
		profile->known[value][unit] = hl_profile_has_unit(value, (enum hl_unit)unit);
}

void hl_profile_know_all(struct hl_profile *profile)
{
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		if (!hl_value_is_of_pages((enum hl_value)value))
			know(profile, (enum hl_value)value);
}

void hl_profile_know_pages(struct hl_profile *profile)
{
	know(profile, HL_VALUE_RESIDENT);
	know(profile, HL_VALUE_SWAPPED);
}

void hl_profile_know_recorded(struct hl_profile *profile, const char *mode)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of(mode);

	if (kind) {
		know(profile, kind->value);
		return;
	}
	hl_profile_know_all(profile);
	/* The recorder does not look at what a thread does between two samples. */
	if (profile->sample_bytes)
		profile->known[HL_VALUE_TEMPORARY][HL_UNIT_OBJECTS] = false;
}

void hl_profile_counters_add(struct hl_profile_counters *sum,
			     const struct hl_profile_counters *more)
{
	sum->alloc_bytes += more->alloc_bytes;
	sum->alloc_objects += more->alloc_objects;
	sum->free_bytes += more->free_bytes;
	sum->free_objects += more->free_objects;
	sum->peak_bytes += more->peak_bytes;
	sum->peak_objects += more->peak_objects;
	sum->temporary_objects += more->temporary_objects;
	sum->slack_bytes += more->slack_bytes;
	sum->resident_bytes += more->resident_bytes;
	sum->swapped_bytes += more->swapped_bytes;
}

bool hl_profile_counters_any(const struct hl_profile_counters *counters)
{
	static const struct hl_profile_counters none;

	return memcmp(counters, &none, sizeof(none)) != 0;
}

bool hl_profile_is_valid(const struct hl_profile *profile)
{
	const struct hl_profile_node *nodes = profile->nodes;
	const struct hl_profile_counters *total = &profile->total;
	struct hl_profile_counters sum = {0};

	if (!profile->node_count || nodes[0].end != profile->node_count || nodes[0].frame)
		return false;
	for (uint32_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *parent = &nodes[nodes[i].parent];
		if (nodes[i].parent >= i || nodes[i].end <= i || nodes[i].end > parent->end)
			return false;
		if (!nodes[i].frame || nodes[i].frame >= profile->frame_count)
			return false;
	}
	for (size_t i = 1; i < profile->frame_count; i++)
		if (!profile->frames[i].function ||
		    profile->frames[i].function >= profile->function_count)
			return false;
	for (size_t i = 1; i < profile->function_count; i++)
		if (!profile->functions[i].name ||
		    profile->functions[i].module >= profile->module_count)
			return false;
	for (size_t i = 0; i < profile->node_count; i++)
		hl_profile_counters_add(&sum, &profile->counters[i]);
	return sum.alloc_bytes == total->alloc_bytes && sum.free_objects == total->free_objects &&
	       sum.peak_bytes == total->peak_bytes;
}

int64_t hl_profile_whole_figure(const struct hl_profile *profile, const char *name)
{
	for (size_t i = 0; i < profile->figure_count; i++)
		if (!strcmp(hl_profile_text(profile, profile->figures[i].name), name))
			return profile->figures[i].value;
	return 0;
}

/* ---- what a profile says of its recording and of its processes, as texts ---- */

/* ${name}: that a process gave itself; NULL or "" for none. */
static int intern_words(struct hl_strings *strings, char *const *words, const char *name,
			uint32_t *ret_id)
{
	HL_FREED char *joined = NULL;
	size_t size;
	FILE *out = open_memstream(&joined, &size);

	if (!out)
		return -ENOMEM;
	if (name && name[0] && !hl_words_has_control(name))
		fprintf(out, "[%s] ", name);
	/* The title that a process wrote over its arguments is one text, with blanks where it was
	 * longer before. */
	if (words && words[0] && !words[1] && strchr(words[0], ' ') &&
	    !hl_words_has_control(words[0])) {
		size_t length = strlen(words[0]);
		while (length > 0 && words[0][length - 1] == ' ')
			length--;
		fwrite(words[0], 1, length, out);
		words++;
	}
	for (char *const *word = words; word && *word; word++) {
		if (word != words)
			fputc(' ', out);
		hl_words_put(out, *word);
	}
	return fclose(out) == 0 ? hl_strings_intern(strings, joined, ret_id) : -ENOMEM;
}

int hl_profile_describe_process(struct hl_profile *profile,
				const struct hl_recording_process *process,
				struct hl_profile_process *ret_described)
{
	struct hl_profile_process described = {
		.pid = process->pid,
		.parent_pid = process->parent_pid,
		.sequence = process->sequence,
		.duration_ns = process->duration_ns,
		.complete = process->complete,
		.own_malloc = process->own_malloc,
		.lost = process->lost,
	};

	if (process->reset_ns) {
		uint64_t start_ns = process->start_realtime_ns - profile->start_realtime_ns;
		if (profile->reset_ns < start_ns + process->reset_ns)
			profile->reset_ns = start_ns + process->reset_ns;
	}
	if (intern_words(&profile->strings, process->command, process->name, &described.command) <
		    0 ||
	    hl_strings_intern(&profile->strings, process->executable, &described.executable) < 0 ||
	    profile_intern_end(profile, process, &described.end) < 0)
		return -ENOMEM;
	*ret_described = described;
	return 0;
}

/* Warnings, marks and figures. */
static int describe_lists(struct hl_profile *profile, const struct hl_recording *recording)
{
	for (size_t i = 0; recording->warnings && recording->warnings[i]; i++)
		if (hl_profile_warn(profile, "%s", recording->warnings[i]) < 0)
			return -ENOMEM;
	profile->marks = calloc(recording->mark_count + (size_t)1, sizeof(*profile->marks));
	profile->figures = calloc(recording->figure_count + (size_t)1, sizeof(*profile->figures));
	if (!profile->marks || !profile->figures)
		return -ENOMEM;
	for (; profile->mark_count < recording->mark_count; profile->mark_count++) {
		const struct hl_recording_mark *mark = &recording->marks[profile->mark_count];
		struct hl_profile_mark *described = &profile->marks[profile->mark_count];
		described->pid = mark->pid;
		described->ms = mark->ms;
		if (hl_strings_intern(&profile->strings, mark->name, &described->name) < 0)
			return -ENOMEM;
	}
	for (; profile->figure_count < recording->figure_count; profile->figure_count++) {
		const struct hl_recording_figure *figure =
			&recording->figures[profile->figure_count];
		struct hl_profile_figure *described = &profile->figures[profile->figure_count];
		described->value = figure->value;
		if (hl_strings_intern(&profile->strings, figure->name, &described->name) < 0)
			return -ENOMEM;
	}
	return 0;
}

int hl_profile_describe_recording(struct hl_profile *profile, const struct hl_recording *recording)
{
	const char *source = recording->snapshot ? "snapshot" : "recording";

	const struct {
		const char *text;
		uint32_t *id;
	} texts[] = {
		{recording->name, &profile->name},
		{hl_trace_kind_of(recording->mode) ? "trace" : source, &profile->source},
		{recording->host, &profile->host},
		{recording->kernel, &profile->kernel},
		{recording->mode, &profile->mode},
		{recording->tool_version, &profile->tool_version},
	};

	profile->sample_bytes = recording->sample_bytes;
	profile->start_realtime_ns = recording->start_realtime_ns;
	profile->duration_ns = recording->duration_ns;
	profile->recorded_process_count = recording->process_count;
	profile->unrecorded_children = recording->unrecorded_children;
	profile->refused_children = recording->refused_children;
	profile->complete = recording->complete;
	profile->snapshot = recording->snapshot;
	profile->attached = recording->attached;
	profile->no_scripts = recording->no_scripts;
	profile->running = recording->running;
	for (size_t i = 0; i < HL_COUNT_OF(texts); i++)
		if (hl_strings_intern(&profile->strings, texts[i].text, texts[i].id) < 0)
			return -ENOMEM;
	int r = intern_words(&profile->strings, recording->command, NULL, &profile->command);
	return r < 0 ? r : describe_lists(profile, recording);
}

/* ---- the kinds of traces ---- */

static const struct hl_trace_kind kinds[] = {
	{
		.mode = "stacks",
		.verb = "stacks",
		.value = HL_VALUE_INUSE,
		.noun = "block",
		.nouns = "blocks",
		.word = "not freed",
		.no_object = "everything allocated during the trace was freed",
		.no_stack = "nothing was allocated during the trace",
	},
	{
		.mode = "stacks-all",
		.verb = "stacks",
		.value = HL_VALUE_ALLOC,
		.noun = "block",
		.nouns = "blocks",
		.word = "allocated",
		.no_object = "nothing was allocated during the trace",
	},
	{
		.mode = "stacks-growth",
		.verb = "stacks",
		.value = HL_VALUE_INUSE,
		.noun = "block",
		.nouns = "blocks",
		.word = "gained",
		.no_object = "nothing grew or shrank",
		.negative = "negative: blocks from before were freed",
	},
	{
		.mode = "pgfault",
		.verb = "pgfault",
		.value = HL_VALUE_INUSE,
		.noun = "page",
		.nouns = "pages",
		.word = "gained",
		.no_object = "no page came or went during the trace",
		.negative = "negative: pages that existed before the trace were released",
	},
	{
		.mode = "pod-growth",
		.verb = "pod-growth",
		.value = HL_VALUE_INUSE,
		.noun = "page",
		.nouns = "pages",
		.word = "gained",
		.no_object = "no page came or went during the trace",
		.negative = "negative: memory that existed before the trace was released",
	},
	{
		.mode = "page-events",
		.verb = "page-events",
		.value = HL_VALUE_ALLOC,
		.noun = "fault",
		.nouns = "faults",
		.word = "touched",
		.no_object = "no page fault was seen during the trace",
	},
	{
		.mode = "leaks",
		.verb = "leaks",
		.value = HL_VALUE_INUSE,
		.noun = "block",
		.nouns = "blocks",
		.word = "lost",
		.no_object = "no block was lost",
	},
};

const struct hl_trace_kind *hl_trace_kind_of(const char *mode)
{
	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++)
		if (!strcmp(mode, kinds[i].mode))
			return &kinds[i];
	return NULL;
}

const struct hl_trace_kind *hl_trace_kind_of_profile(const struct hl_profile *profile)
{
	return profile->imported ? NULL : hl_trace_kind_of(hl_profile_text(profile, profile->mode));
}

bool hl_trace_kind_counts_pages(const struct hl_trace_kind *kind)
{
	return !strcmp(kind->noun, "page");
}
