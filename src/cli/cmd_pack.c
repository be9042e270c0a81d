/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline pack: one file that opens where none of the programs are. */
#include "cli/cli.h"

#include "cli/output_file.h"
#include "cli/terminal_progress.h"
#include "cli/write_packed.h"
#include "profile/open.h"
#include "symbols/symbols_advice.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *output;
static bool force;

static const struct hl_option options[] = {
	{"output", 'o', "FILE", "where it goes (default: NAME.hlpack beside NAME.hl)",
	 HL_OPTION_TEXT, &output, NULL},
	{"force", 'f', NULL, "replace an existing file", HL_OPTION_FLAG, &force, NULL},
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

/* Whether ${path} is a recording with files of a log, which have no place in one file. */
static bool has_log(const char *path)
{
	DIR *directory = opendir(path);
	bool found = false;

	if (!directory)
		return false;
	for (const struct dirent *entry; !found && (entry = readdir(directory));)
		found = fnmatch("memlog-*.hll", entry->d_name, 0) == 0 ||
			fnmatch("events-*.hle", entry->d_name, 0) == 0;
	closedir(directory);
	return found;
}

static int pack(char *path, const char *name, struct hl_error *err)
{
	struct hl_terminal_progress progress;
	struct hl_profile_selection selection = {.keep_rows = true, .progress = &progress.progress};
	struct hl_profile *profile = NULL;

	hl_terminal_progress_init(&progress, "reading");
	int r = hl_output_file_check_regular(name, force, &path, 1, err);
	if (r == 0)
		r = hl_profile_open(path, &selection, &profile, err);
	if (r == 0)
		hl_symbols_advise(profile, HL_DPKG_DIRECTORY); /* or goes without advice */
	hl_terminal_progress_phase(&progress, "writing");
	if (r == 0)
		r = hl_write_packed(profile, name, err);
	hl_terminal_progress_clear(&progress);
	hl_profile_free(profile);
	return r;
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
	int r = pack(argv[0], name, &err);
	if (r == 0)
		hl_cli_note("packed '%s' into '%s'%s", argv[0], name,
			    has_log(argv[0]) ? " without its log: keep the recording, which alone "
					       "can be looked at over time"
					     : "");
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
