/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pack: one file that opens where none of the programs are. */
#include "cli/cli.h"

#include "cli/output.h"
#include "log/log.h"
#include "open/open.h"
#include "pack/pack.h"
#include "profile/builder.h"
#include "profile/profile.h"
#include "view/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Below this, the size of the log is not worth a note. */
#define WORTH_A_WORD_BYTES (UINT64_C(1) << 20)

struct request {
	const char *output;
	bool force, no_log;
};

static const struct request defaults;

static const struct hl_option options[] = {
	{"output", 'o', "FILE",
	 "packed recording; -: standard output (default: NAME.hlpack beside NAME.hl)",
	 HL_OPTION_TEXT, HL_AT(output), NULL},
	{"force", 'f', NULL, "replace an existing file", HL_OPTION_FLAG, HL_AT(force), NULL},
	{"no-log", 0, NULL, "leave out the log and the events", HL_OPTION_FLAG, HL_AT(no_log),
	 NULL},
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

/* What is packed; run_pack() releases it. */
struct packing {
	const struct request *request;
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

/* Called again when all else has been read, as files come while a recording goes on. */
static int find_log_files(struct packing *packing, struct hl_error *err)
{
	struct hl_log_place *place = &packing->source.log.place;
	struct hl_log_extent extent;

	int r = hl_log_place_list(place);
	if (r < 0)
		return hl_error_set(err, r, "cannot pack '%s': %s", packing->path, strerror(-r));
	packing->log_bytes = 0;
	for (size_t i = 0; i < place->file_count; i++) {
		if (hl_log_place_open(place, &place->files[i], &extent) < 0)
			continue;
		close(extent.fd);
		packing->has_log |= place->files[i].kind == &hl_log_segments;
		packing->log_bytes += extent.bytes;
	}
	return 0;
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
	if (r == 0)
		r = find_log_files(packing, err);
	if (r < 0 || !packing->has_log || source->packed)
		return r;
	const struct hl_recording *recording = source->log.recording;
	packing->names = calloc(recording->process_count + (size_t)1, sizeof(*packing->names));
	if (!packing->names)
		return hl_error_set(err, -ENOMEM, "cannot pack '%s': out of memory", packing->path);
	/* A log can name what its process was killed before saving. What cannot be read has no names. */
	for (uint32_t i = 0; i < recording->process_count; i++) {
		const struct hl_recording_process *process = &recording->processes[i];
		const struct hl_log_options reading = {
			.progress = &packing->progress.progress,
			.start_realtime_ns = process->start_realtime_ns,
		};
		struct hl_log *log;
		if (hl_log_open(&source->log.place, process->sequence, &reading, &log, NULL) < 0)
			continue;
		hl_history_names_read(log, &reading, &packing->names[i], NULL);
		hl_log_free(log);
	}
	return 0;
}

/* Packing goes back and forth in its file, so that a pipe gets what is complete. */
static int write_to_stdout(const struct packing *packing, const struct hl_pack_log *log,
			   struct hl_error *err)
{
	FILE *passing = tmpfile();
	char bytes[1 << 14];
	size_t count;

	if (!passing)
		return hl_error_set(err, -errno, "cannot pack '%s': %s", packing->path,
				    strerror(errno));
	int r = hl_pack_write(packing->profile, log, fileno(passing), "-", err);
	rewind(passing);
	while (r == 0 && (count = fread(bytes, 1, sizeof(bytes), passing)) > 0)
		fwrite(bytes, 1, count, stdout); /* what fails is said at the end of the program */
	if (r == 0 && ferror(passing))
		r = hl_error_set(err, -EIO, "cannot pack '%s': %s", packing->path, strerror(EIO));
	fclose(passing);
	return r;
}

static int pack(struct packing *packing, struct hl_error *err)
{
	struct hl_profile_selection selection = {.keep_rows = true,
						 .progress = &packing->progress.progress};
	const char *path = packing->path;

	int r = packing->output
			? hl_output_file_check_regular(packing->output, packing->request->force,
						       &packing->path, 1, err)
			: 0;
	if (r == 0 && !hl_input_is_directory(path))
		r = hl_input_open(&packing->input, path, err);
	if (r == 0 && !packing->request->no_log)
		r = open_log(packing, err);
	selection.logs = packing->names;
	if (r == 0)
		r = packing->input.name ? hl_open_profile_input(&packing->input, &selection,
								&packing->profile, err)
					: hl_open_profile(path, &selection, &packing->profile, err);
	if (r == 0 && packing->profile->moment && !packing->source.packed)
		r = hl_error_set(err, -EINVAL,
				 "cannot pack '%s': it is a log without its recording; pack the "
				 "recording that it was copied from",
				 path);
	if (r == 0 && packing->has_log)
		r = find_log_files(packing, err);
	if (r < 0)
		return r;
	hl_symbols_advice_add(packing->profile, HL_DPKG_DIRECTORY); /* or goes without advice */
	hl_terminal_progress_phase(&packing->progress, "writing");
	const struct hl_pack_log *log = packing->has_log ? &packing->source.log : NULL;
	return packing->output
		       ? hl_output_file_write_packed(packing->profile, log, packing->output, err)
		       : write_to_stdout(packing, log, err);
}

static void say_packed(const struct packing *packing)
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

static int run_pack(void *parsed, int argc, char **argv)
{
	const struct request *request = parsed;
	const char *output = request->output;
	bool is_passed_on = output && !strcmp(output, "-");
	struct hl_error err = {0};

	if (argc == 0)
		return hl_cli_usage_error(&hl_verb_pack, "'pack' needs a recording");
	if (argc > 1)
		return hl_cli_usage_error(&hl_verb_pack, "unexpected argument '%s'", argv[1]);
	if (is_passed_on && isatty(STDOUT_FILENO))
		return hl_cli_usage_error(
			&hl_verb_pack,
			"a packed recording does not go to a terminal; name a file with -o");
	if (!output && !strcmp(argv[0], "-"))
		return hl_cli_usage_error(&hl_verb_pack, "'pack' writes a file; name it with -o");
	char *name = output ? strdup(output) : default_output(argv[0]);
	if (!name)
		return hl_cli_error("cannot pack '%s': out of memory", argv[0]);
	struct packing packing = {.request = request,
				  .path = argv[0],
				  .output = is_passed_on ? NULL : name,
				  .input = HL_INPUT_NONE,
				  .source = HL_LOG_SOURCE_NONE};
	hl_terminal_progress_init(&packing.progress, "reading");
	int r = pack(&packing, &err);
	hl_terminal_progress_clear(&packing.progress);
	if (r < 0)
		hl_cli_error("%s", err.text);
	else if (!is_passed_on)
		say_packed(&packing);
	const struct hl_recording *recording = packing.source.log.recording;
	for (uint32_t i = 0; packing.names && i < recording->process_count; i++)
		hl_log_state_free(packing.names[i]);
	free(packing.names);
	hl_profile_free(packing.profile);
	hl_log_source_release(&packing.source);
	hl_input_close(&packing.input);
	free(name);
	return r < 0 ? HL_EXIT_FAILED : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_pack = {
	.name = "pack",
	.group = HL_GROUP_FILES,
	.arguments = "NAME.hl",
	.summary = "put a recording and its symbols into one file",
	.options = options,
	HL_REQUEST(defaults),
	.run = run_pack,
};
