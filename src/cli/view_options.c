/* SPDX-License-Identifier: BSD-2-Clause */
/* From words on the command line to a loaded profile and a view of it; see view_options.h. */
#include "cli/view_options.h"

#include "profile/recording.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum color {
	COLOR_AUTO,
	COLOR_ALWAYS,
	COLOR_NEVER,
};

static int value = HL_VALUE_PEAK;
static int unit = -1; /* -1: bytes, or objects where the value has no bytes */
static int color = COLOR_AUTO;
static const char *process, *thread;
static bool json;

static const char *const color_words[] = {"auto", "always", "never", NULL};

const struct hl_option hl_view_value_options[] = {
	{"value", 'v', "VALUE",
	 "what to show: inuse, alloc, peak, temporary or slack (default: peak)", HL_OPTION_CHOICE,
	 &value, hl_value_names},
	{"unit", 'u', "UNIT", "bytes or objects (default: bytes)", HL_OPTION_CHOICE, &unit,
	 hl_unit_names},
	{0},
};

const struct hl_option hl_view_selection_options[] = {
	{"process", 'p', "PID[/SEQ]", "one process (default: the sum of all)", HL_OPTION_TEXT,
	 &process, NULL},
	{"thread", 't', "TID", "what one thread allocated", HL_OPTION_TEXT, &thread, NULL},
	{"json", 0, NULL, "write JSON", HL_OPTION_FLAG, &json, NULL},
	{0},
};

const struct hl_option hl_view_color_options[] = {
	{"color", 0, "WHEN", "auto, always or never (default: auto)", HL_OPTION_CHOICE, &color,
	 color_words},
	{0},
};

/* Reads a number up to ${stop}; 0 or -EINVAL. */
static int parse_id(const char *text, char stop, uint32_t *ret_id, const char **ret_end)
{
	char *end;

	errno = 0;
	unsigned long number = strtoul(text, &end, 10);
	if (errno || end == text || !isdigit((unsigned char)text[0]) || number > UINT32_MAX ||
	    (*end && *end != stop))
		return -EINVAL;
	*ret_id = (uint32_t)number;
	*ret_end = end;
	return 0;
}

/* "PID", "PID/SEQ" and "/SEQ". */
static int parse_process(const char *text, struct hl_profile_selection *selection)
{
	const char *end = text;

	if (*text != '/' && parse_id(text, '/', &selection->pid, &end) < 0)
		return -EINVAL;
	if (!*end)
		return selection->pid ? 0 : -EINVAL;
	selection->by_sequence = true;
	return parse_id(end + 1, '\0', &selection->sequence, &end);
}

static int parse_selection(const struct hl_verb *verb, struct hl_profile_selection *selection)
{
	const char *end;

	if (process && parse_process(process, selection) < 0)
		return hl_cli_usage_error(verb,
					  "bad value '%s' of option '--process': not a PID "
					  "or PID/SEQUENCE",
					  process);
	if (thread && (parse_id(thread, '\0', &selection->tid, &end) < 0 || !selection->tid))
		return hl_cli_usage_error(verb, "bad value '%s' of option '--thread': not a TID",
					  thread);
	return HL_EXIT_DONE;
}

static int choose_unit(const struct hl_verb *verb, struct hl_view_options *options)
{
	options->value = (enum hl_value)value;
	if (unit < 0) {
		options->unit = value == HL_VALUE_TEMPORARY ? HL_UNIT_OBJECTS : HL_UNIT_BYTES;
		return HL_EXIT_DONE;
	}
	options->unit = (enum hl_unit)unit;
	if (hl_profile_has_unit(options->value, options->unit))
		return HL_EXIT_DONE;
	return hl_cli_usage_error(verb, "'%s' is not counted in %s", hl_value_names[value],
				  hl_unit_names[unit]);
}

static bool use_color(void)
{
	const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */
	const char *terminal = getenv("TERM");

	if (color != COLOR_AUTO)
		return color == COLOR_ALWAYS;
	return isatty(STDOUT_FILENO) && !(no_color && no_color[0]) && terminal &&
	       strcmp(terminal, "dumb") != 0;
}

static int load(const char *path, const struct hl_profile_selection *selection,
		struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_recording *recording;

	int r = hl_recording_open(path, &recording, err);
	if (r < 0)
		return r;
	r = hl_profile_load(recording, selection, ret_profile, err);
	hl_recording_free(recording);
	return r;
}

int hl_view_run(const struct hl_verb *verb, int argc, char **argv, hl_view *view,
		struct hl_view_options options)
{
	struct hl_profile_selection selection = {0};
	struct hl_profile *profile = NULL;
	struct hl_error err = {0};

	if (argc == 0)
		return hl_cli_usage_error(verb, "'%s' needs a recording", verb->name);
	if (argc > 1)
		return hl_cli_usage_error(verb, "unexpected argument '%s'", argv[1]);
	int status = parse_selection(verb, &selection);
	if (status == HL_EXIT_DONE)
		status = choose_unit(verb, &options);
	if (status != HL_EXIT_DONE)
		return status;
	options.out = stdout;
	options.notes = stderr;
	options.json = json;
	options.color = use_color();
	int r = load(argv[0], &selection, &profile, &err);
	if (r == 0)
		r = view(profile, &options, &err);
	hl_profile_free(profile);
	/* Standard output is checked, and its error reported, when the program ends. */
	return r == 0 || ferror(stdout) ? HL_EXIT_DONE : hl_cli_error("%s", err.text);
}
