/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pack: one file that opens where none of the programs are. */
#include "cli/cli.h"

#include "cli/output_file.h"
#include "cli/terminal_progress.h"
#include "log/log_files.h"
#include "open/log_source.h"
#include "open/open.h"
#include "profile/history_names.h"
#include "profile/symbols_advice.h"
#include "view/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a smaller log nobody asks how large it is. */
#define WORTH_A_WORD_BYTES (UINT64_C(1) << 20)

static const char *output;
static bool force, no_log;

static const struct hl_option options[] = {
	{"output", 'o', "FILE", "packed recording (default: NAME.hlpack beside NAME.hl)",
	 HL_OPTION_TEXT, &output, NULL},
	{"force", 'f', NULL, "replace an existing file", HL_OPTION_FLAG, &force, NULL},
	{"no-log", 0, NULL, "leave out the log and the events", HL_OPTION_FLAG, &no_log, NULL},
	{0},
};

/* ${path} without the suffix of a recording, with that of a packed one; to be freed, or NULL. */
static char *default_output(const char *path)
{
	static const char *const suffixes[] = {".hl", ".hlpack"};
	size_t length = strlen(path);
	char *name;

	while (length > 1 && path[length - 1] == '/')
		length--;
	for (size_t i = 0; i < HL_COUNT_OF(suffixes); i++) {
		size_t suffix = strlen(suffixes[i]);
		if (length > suffix && !strncmp(path + length - suffix, suffixes[i], suffix)) {
			length -= suffix;
			break;
		}
	}
	if (asprintf(&name, "%.*s.hlpack", (int)length, path) < 0)
		return NULL;
	return name;
}

/* What is packed. Zero-initialize but for the source; release in any case. */
struct packing {
	char *path;
	const char *output;
	struct hl_terminal_progress progress;
	struct hl_input input; /* of a directory: none */
	struct hl_log_source source;
	bool has_log;
	uint64_t log_bytes;
	struct hl_log_state **names; /* in the log of each of the recording's processes, or NULL */
	struct hl_profile *profile;
};

static void add_log_files(struct packing *packing)
{
	const struct hl_log_place *place = &packing->source.log.place;
	struct hl_log_extent extent;

	for (size_t i = 0; i < place->file_count; i++) {
		if (hl_log_place_open(place, &place->files[i], &extent) < 0)
			continue;
		close(extent.fd);
		packing->has_log = true;
		packing->log_bytes += extent.bytes;
	}
}

/* A log can name what its process was killed before saving. What cannot be read has no names. */
static void read_names(struct packing *packing, const struct hl_recording_process *process,
		       struct hl_log_state **ret_names)
{
	const struct hl_log_options reading = {.progress = &packing->progress.progress,
					       .start_realtime_ns = process->start_realtime_ns};
	struct hl_log *log;

	if (hl_log_open(&packing->source.log.place, process->sequence, &reading, &log, NULL) < 0)
		return;
	hl_history_names_read(log, &reading, ret_names, NULL);
	hl_log_free(log);
}

/* Finds the log, if there is one. What is packed already has all names. */
static int open_log(struct packing *packing, struct hl_error *err)
{
	struct hl_log_source *source = &packing->source;

	int r = packing->input.name ? hl_log_source_open_input(source, &packing->input, err)
				    : hl_log_source_open(source, packing->path, err);
	if (r == -ENOENT || r == -EINVAL) {
		/* It has none, or opening the profile says what is wrong with it. */
		*err = (struct hl_error){0};
		return 0;
	}
	if (r < 0)
		return r;
	add_log_files(packing);
	if (!packing->has_log || source->packed)
		return 0;
	const struct hl_recording *recording = source->log.recording;
	packing->names = calloc(recording->process_count + (size_t)1, sizeof(*packing->names));
	if (!packing->names)
		return hl_error_set(err, -ENOMEM, "cannot pack '%s': out of memory", packing->path);
	for (uint32_t i = 0; i < recording->process_count; i++)
		read_names(packing, &recording->processes[i], &packing->names[i]);
	return 0;
}

static int pack(struct packing *packing, struct hl_error *err)
{
	struct hl_profile_selection selection = {.keep_rows = true,
						 .progress = &packing->progress.progress};
	const char *path = packing->path;

	int r = hl_output_file_check_regular(packing->output, force, &packing->path, 1, err);
	if (r == 0 && !hl_input_is_directory(path))
		r = hl_input_open(&packing->input, path, err);
	if (r == 0 && !no_log)
		r = open_log(packing, err);
	selection.logs = packing->names;
	if (r == 0)
		r = packing->input.name ? hl_profile_open_input(&packing->input, &selection,
								&packing->profile, err)
					: hl_profile_open(path, &selection, &packing->profile, err);
	if (r == 0 && packing->profile->moment && !packing->source.packed)
		r = hl_error_set(err, -EINVAL,
				 "cannot pack '%s': it is a log without its recording; pack the "
				 "recording that it was copied from",
				 path);
	if (r < 0)
		return r;
	hl_symbols_advice_add(packing->profile, HL_DPKG_DIRECTORY); /* or goes without advice */
	hl_terminal_progress_phase(&packing->progress, "writing");
	return hl_output_file_write_packed(packing->profile,
					   packing->has_log ? &packing->source.log : NULL,
					   packing->output, err);
}

static void note_result(const struct packing *packing)
{
	char size[HL_FORMAT_MAX];

	if (!packing->has_log)
		hl_cli_note("packed '%s' into '%s'", packing->path, packing->output);
	else if (packing->log_bytes < WORTH_A_WORD_BYTES)
		hl_cli_note("packed '%s' and its log into '%s'", packing->path, packing->output);
	else
		hl_cli_note("packed '%s' and its log, %s, into '%s'; --no-log leaves the log out",
			    packing->path, hl_format_bytes((int64_t)packing->log_bytes, size),
			    packing->output);
}

static void release(struct packing *packing)
{
	const struct hl_recording *recording = packing->source.log.recording;

	for (uint32_t i = 0; packing->names && i < recording->process_count; i++)
		hl_log_state_free(packing->names[i]);
	free(packing->names);
	hl_profile_free(packing->profile);
	hl_log_source_release(&packing->source);
	hl_input_close(&packing->input);
}

static int run_pack(int argc, char **argv)
{
	struct hl_error err = {0};

	if (argc == 0)
		return hl_cli_usage_error(&hl_verb_pack, "'pack' needs a recording");
	if (argc > 1)
		return hl_cli_usage_error(&hl_verb_pack, "unexpected argument '%s'", argv[1]);
	if ((!output && !strcmp(argv[0], "-")) || (output && !strcmp(output, "-")))
		return hl_cli_usage_error(&hl_verb_pack, "'pack' writes a file; name it with -o");
	char *name = output ? strdup(output) : default_output(argv[0]);
	if (!name)
		return hl_cli_error("cannot pack '%s': out of memory", argv[0]);
	struct packing packing = {.path = argv[0],
				  .output = name,
				  .input = HL_INPUT_NONE,
				  .source = HL_LOG_SOURCE_NONE};
	hl_terminal_progress_init(&packing.progress, "reading");
	int r = pack(&packing, &err);
	hl_terminal_progress_clear(&packing.progress);
	if (r == 0)
		note_result(&packing);
	release(&packing);
	free(name);
	return r == 0 ? HL_EXIT_DONE : hl_cli_error("%s", err.text);
}

const struct hl_verb hl_verb_pack = {
	.name = "pack",
	.group = HL_GROUP_FILES,
	.arguments = "NAME.hl",
	.summary = "put a recording and its symbols into one file",
	.options = options,
	.run = run_pack,
};
