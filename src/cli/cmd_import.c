/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline import: another tool's file as a packed recording. */
#include "cli/cli.h"

#include "cli/output.h"
#include "guests/traits.h"
#include "import/importer.h"
#include "open/open.h"
#include "pack/pack.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define STDIN_NAME "standard input"

/* "legacy" is what gperftools was called up to 0.1. */
static const char *const format_words[] = {"auto",  "folded", "gperftools", "mprof",
					   "pprof", "v8",     "legacy",	    NULL};

#define FORMAT_AUTO 0 /* of the kind that the file looks like */

/* In the order of format_words; NULL: a guest's, which has that name. */
static const struct hl_importer *const importers[] = {
	[FORMAT_AUTO] = NULL, &hl_importer_folded, &hl_importer_legacy, NULL,
	&hl_importer_pprof,   &hl_importer_v8,	   &hl_importer_legacy,
};

/* The first three of hl_value_names; the others are never in folded text. */
static const char *const value_words[] = {"inuse", "alloc", "peak", NULL};

struct request {
	const char *output;
	bool force;
	int format;
	int value, unit; /* -1: not said */
};

static const struct request defaults = {.value = -1, .unit = -1};

static const struct hl_option options[] = {
	{"output", 'o', "FILE", "where the packed recording goes", HL_OPTION_TEXT, HL_AT(output),
	 NULL},
	{"force", 'f', NULL, "replace an existing file", HL_OPTION_FLAG, HL_AT(force), NULL},
	{"format", 0, "FORMAT",
	 "auto, folded, gperftools (jemalloc's too), mprof, pprof or v8 (default: auto)",
	 HL_OPTION_CHOICE, HL_AT(format), format_words},
	{"value", 'v', "VALUE",
	 "what the numbers of folded text are: inuse, alloc or peak (default: inuse)",
	 HL_OPTION_CHOICE, HL_AT(value), value_words},
	{"unit", 'u', "UNIT", "their unit: bytes or objects (default: bytes)", HL_OPTION_CHOICE,
	 HL_AT(unit), hl_unit_names},
	{0},
};

/* The importer of --format; NULL: whichever fits. -ENOTSUP with a sentence when it is not built in. */
static int choose_importer(int format, const char *path, const struct hl_importer **ret_importer,
			   struct hl_error *err)
{
	*ret_importer = importers[format];
	for (size_t i = 0; format != FORMAT_AUTO && !*ret_importer && hl_guest_importers[i]; i++)
		if (!strcmp(hl_guest_importers[i]->name, format_words[format]))
			*ret_importer = hl_guest_importers[i];
	if (format == FORMAT_AUTO || *ret_importer)
		return 0;
	return hl_error_set(err, -ENOTSUP,
			    "cannot read '%s': this heapline was built without the reader of '%s'",
			    path, format_words[format]);
}

static int load(int format, const char *path, struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_input input = HL_INPUT_NONE;
	const struct hl_importer *importer;
	int r = choose_importer(format, path, &importer, err);

	if (r < 0)
		return r;
	r = hl_input_is_directory(path) && access(path, F_OK) == 0
		    ? -EISDIR
		    : hl_input_open(&input, path, err);
	/* Recordings are opened as they are, packed or not. */
	if (r == -EISDIR || (r == 0 && (hl_pack_detect(input.head, input.head_size) ||
					hl_log_source_is_segment(&input))))
		r = hl_error_set(err, -EINVAL,
				 "cannot import '%s': it is a recording, or a part of one, which "
				 "every view opens as it is",
				 path);
	if (r == 0)
		r = hl_open_import(&input, importer, ret_profile, err);
	hl_input_close(&input);
	return r;
}

static int run_import(void *parsed, int argc, char **argv)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	const struct request *request = parsed;
	const char *output = request->output;
	int value = request->value, unit = request->unit;
	struct hl_terminal_progress progress;
	struct hl_error err = {0};

	if (argc == 0)
		return hl_cli_usage_error(&hl_verb_import, "'import' needs a file");
	if (argc > 1)
		return hl_cli_usage_error(&hl_verb_import, "unexpected argument '%s'", argv[1]);
	if (!output || !strcmp(output, "-"))
		return hl_cli_usage_error(&hl_verb_import,
					  "'import' writes a file; name it with -o");
	hl_terminal_progress_init(&progress, "reading");
	int r = hl_output_file_check_regular(output, request->force, argv, 1, &err);
	if (r == 0)
		r = load(request->format, argv[0], &profile, &err);
	if (r == 0 && (value >= 0 || unit >= 0)) {
		const char *kind = hl_profile_text(profile, profile->source);
		if (!strcmp(kind, hl_importer_folded.name))
			hl_import_folded_as(profile,
					    value < 0 ? HL_VALUE_INUSE : (enum hl_value)value,
					    unit < 0 ? HL_UNIT_BYTES : (enum hl_unit)unit);
		else
			r = hl_error_set(&err, -EINVAL,
					 "cannot use --value and --unit for '%s': it is a file of "
					 "the kind '%s', which states them itself",
					 hl_profile_text(profile, profile->name), kind);
	}
	hl_terminal_progress_phase(&progress, "writing");
	if (r == 0)
		r = hl_output_file_write_packed(profile, NULL, output, &err);
	hl_terminal_progress_clear(&progress);
	if (r < 0)
		return hl_cli_error("%s", err.text);
	hl_cli_note("imported '%s' into '%s'", strcmp(argv[0], "-") ? argv[0] : STDIN_NAME, output);
	return HL_EXIT_DONE;
}

const struct hl_verb hl_verb_import = {
	.name = "import",
	.group = HL_GROUP_FILES,
	.arguments = "FILE",
	.summary = "turn another tool's file into a packed recording",
	.options = options,
	HL_REQUEST(defaults),
	.run = run_import,
};
