/* SPDX-License-Identifier: BSD-2-Clause */
/* What a profile says of its recording and of its processes, as texts; see profile_describe.h. */
#include "profile/profile_describe.h"

#include "base/compiler.h"
#include "profile/trace_kind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_control(char byte)
{
	return (unsigned char)byte < ' ' || byte == 0x7f;
}

static bool has_control(const char *word)
{
	while (*word && !is_control(*word))
		word++;
	return *word;
}

/* As bash and ksh read it: on one line, and nothing in it that a terminal would obey. */
static void put_escaped(FILE *out, const char *word)
{
	fputs("$'", out);
	for (; *word; word++)
		if (*word == '\n')
			fputs("\\n", out);
		else if (is_control(*word))
			fprintf(out, "\\%03o", (unsigned char)*word);
		else
			fprintf(out, strchr("'\\", *word) ? "\\%c" : "%c", *word);
	fputc('\'', out);
}

/* A word as a shell would need it. */
static void put_word(FILE *out, const char *word)
{
	if (has_control(word)) {
		put_escaped(out, word);
		return;
	}
	if (word[0] && !word[strcspn(word, " '\"\\$`*?[]{}()<>|&;#~!")]) {
		fputs(word, out);
		return;
	}
	fputc('\'', out);
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", out);
		else
			fputc(*word, out);
	fputc('\'', out);
}

/* The title that a process wrote over its arguments is one text, with blanks where it was longer
 * before. */
static void put_title(FILE *out, const char *title)
{
	size_t length = strlen(title);

	while (length > 0 && title[length - 1] == ' ')
		length--;
	fwrite(title, 1, length, out);
}

/* ${name}: that a process gave itself; NULL or "" for none. */
static int intern_words(struct hl_strings *strings, char *const *words, const char *name,
			uint32_t *ret_id)
{
	char *joined = NULL;
	size_t size;
	FILE *out = open_memstream(&joined, &size);

	if (!out)
		return -ENOMEM;
	if (name && name[0] && !has_control(name))
		fprintf(out, "[%s] ", name);
	if (words && words[0] && !words[1] && strchr(words[0], ' ') && !has_control(words[0])) {
		put_title(out, words[0]);
		words++;
	}
	for (char *const *word = words; word && *word; word++) {
		if (word != words)
			fputc(' ', out);
		put_word(out, *word);
	}
	int r = fclose(out) == 0 ? hl_strings_intern(strings, joined, ret_id) : -ENOMEM;
	free(joined);
	return r;
}

#define REPLACED "replaced by exec"

/* What a process' end says beyond that, where its next program was not recorded. */
#define WENT_ON REPLACED ", "

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

static int intern_end(struct hl_strings *strings, const struct hl_recording_process *process,
		      uint32_t *ret_id)
{
	char sentence[160];
	const char *signal_name;

	switch (process->end) {
	case HL_END_RUNNING:
		return hl_strings_intern(strings, "was still running", ret_id);
	case HL_END_EXITED:
		snprintf(sentence, sizeof(sentence), "exited with status %d", process->end_status);
		return hl_strings_intern(strings, sentence, ret_id);
	case HL_END_SIGNALED:
		signal_name = sigabbrev_np(process->end_status);
		snprintf(sentence, sizeof(sentence), "killed by signal %d (SIG%s)",
			 process->end_status, signal_name ? signal_name : "?");
		return hl_strings_intern(strings, sentence, ret_id);
	case HL_END_EXEC:
		if (!process->successor || !process->successor[0])
			return hl_strings_intern(strings, REPLACED, ret_id);
		snprintf(sentence, sizeof(sentence), WENT_ON "went on as '%.64s', unrecorded",
			 process->successor);
		return hl_strings_intern(strings, sentence, ret_id);
	case HL_END_UNKNOWN:
		break;
	}
	return hl_strings_intern(strings, "ended", ret_id);
}

static struct hl_profile_lost lost_of(const struct hl_recording_lost *lost)
{
	return (struct hl_profile_lost){
		.events = lost->events,
		.bytes = lost->bytes,
		.truncated_stacks = lost->truncated_stacks,
		.incomplete_stacks = lost->incomplete_stacks,
		.unmatched_frees = lost->unmatched_frees,
		.inherited_frees = lost->inherited_frees,
		.modules = lost->modules,
		.unscanned_bytes = lost->unscanned_bytes,
		.damaged = lost->damaged,
	};
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
		.lost = lost_of(&process->lost),
	};
	int r = intern_words(&profile->strings, process->command, process->name,
			     &described.command);
	if (r == 0)
		r = hl_strings_intern(&profile->strings, process->executable,
				      &described.executable);
	if (r == 0)
		r = intern_end(&profile->strings, process, &described.end);
	if (r == 0)
		*ret_described = described;
	return r;
}

static int describe_warnings(struct hl_profile *profile, const struct hl_recording *recording)
{
	size_t count = 0;
	int r = 0;

	while (recording->warnings && recording->warnings[count])
		count++;
	profile->warnings = calloc(count + 1, sizeof(*profile->warnings));
	if (!profile->warnings)
		return -ENOMEM;
	for (; r == 0 && profile->warning_count < count; profile->warning_count++)
		r = hl_strings_intern(&profile->strings,
				      recording->warnings[profile->warning_count],
				      &profile->warnings[profile->warning_count]);
	return r;
}

static int describe_marks(struct hl_profile *profile, const struct hl_recording *recording)
{
	int r = 0;

	profile->marks = calloc(recording->mark_count + (size_t)1, sizeof(*profile->marks));
	if (!profile->marks)
		return -ENOMEM;
	for (; r == 0 && profile->mark_count < recording->mark_count; profile->mark_count++) {
		const struct hl_recording_mark *mark = &recording->marks[profile->mark_count];
		struct hl_profile_mark *described = &profile->marks[profile->mark_count];
		described->pid = mark->pid;
		described->ms = mark->ms;
		r = hl_strings_intern(&profile->strings, mark->name, &described->name);
	}
	return r;
}

static int describe_figures(struct hl_profile *profile, const struct hl_recording *recording)
{
	int r = 0;

	profile->figures = calloc(recording->figure_count + (size_t)1, sizeof(*profile->figures));
	if (!profile->figures)
		return -ENOMEM;
	for (; r == 0 && profile->figure_count < recording->figure_count; profile->figure_count++) {
		const struct hl_recording_figure *figure =
			&recording->figures[profile->figure_count];
		struct hl_profile_figure *described = &profile->figures[profile->figure_count];
		described->value = figure->value;
		r = hl_strings_intern(&profile->strings, figure->name, &described->name);
	}
	return r;
}

static const char *source_of(const struct hl_recording *recording)
{
	if (hl_trace_kind_of(recording->mode))
		return "trace";
	return recording->snapshot ? "snapshot" : "recording";
}

int hl_profile_describe_recording(struct hl_profile *profile, const struct hl_recording *recording)
{
	const struct {
		const char *text;
		uint32_t *id;
	} texts[] = {
		{recording->name, &profile->name},
		{source_of(recording), &profile->source},
		{recording->host, &profile->host},
		{recording->kernel, &profile->kernel},
		{recording->mode, &profile->mode},
		{recording->tool_version, &profile->tool_version},
	};
	int r = intern_words(&profile->strings, recording->command, NULL, &profile->command);

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(texts); i++)
		r = hl_strings_intern(&profile->strings, texts[i].text, texts[i].id);
	if (r == 0)
		r = describe_warnings(profile, recording);
	if (r == 0)
		r = describe_marks(profile, recording);
	if (r == 0)
		r = describe_figures(profile, recording);
	profile->sample_bytes = recording->sample_bytes;
	profile->start_realtime_ns = recording->start_realtime_ns;
	profile->duration_ns = recording->duration_ns;
	profile->recorded_process_count = recording->process_count;
	profile->unrecorded_children = recording->unrecorded_children;
	profile->complete = recording->complete;
	profile->snapshot = recording->snapshot;
	profile->running = recording->running;
	return r;
}
