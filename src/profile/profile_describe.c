/* SPDX-License-Identifier: BSD-2-Clause */
/* What a profile says of its recording and of its processes, as texts; see profile.h. */
#include "profile/profile.h"

#include "base/cleanup.h"
#include "base/words.h"
#include "profile/trace_kind.h"
#include "recording/recording.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	    hl_profile_intern_end(profile, process, &described.end) < 0)
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
