/* SPDX-License-Identifier: BSD-2-Clause */
/* Releases recordings; see recording.h. */
#include "recording/recording.h"

#include <stdlib.h>

static void free_texts(char **texts)
{
	for (char **text = texts; text && *text; text++)
		free(*text);
	free(texts);
}

void hl_recording_process_release(struct hl_recording_process *process)
{
	for (uint32_t i = 0; i < process->module_count; i++)
		free(process->modules[i].path);
	free(process->modules);
	free(process->nodes);
	free(process->values);
	free(process->threads);
	free(process->executable);
	free(process->successor);
	free(process->name);
	free_texts(process->command);
	*process = (struct hl_recording_process){0};
}

void hl_recording_free(struct hl_recording *recording)
{
	if (!recording)
		return;
	for (uint32_t i = 0; i < recording->process_count; i++)
		hl_recording_process_release(&recording->processes[i]);
	free(recording->processes);
	free(recording->name);
	free(recording->tool_version);
	free_texts(recording->command);
	free(recording->host);
	free(recording->kernel);
	free(recording->mode);
	free_texts(recording->warnings);
	for (uint32_t i = 0; i < recording->mark_count; i++)
		free(recording->marks[i].name);
	free(recording->marks);
	for (uint32_t i = 0; i < recording->figure_count; i++)
		free(recording->figures[i].name);
	free(recording->figures);
	free(recording);
}
