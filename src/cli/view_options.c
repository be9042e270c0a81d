/* SPDX-License-Identifier: BSD-2-Clause */
/* The options that all views share, and what they mean; see view_options.h. */
#include "cli/view_options.h"

#include "base/frame_key.h"
#include "profile/profile.h"

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

static const char *const root_words[] = {"function", "type", "service", NULL};
static const char *const color_words[] = {"auto", "always", "never", NULL};

const struct hl_option hl_view_value_options[] = {
	{"value", 'v', "VALUE",
	 "what to show: inuse, alloc, peak, temporary, slack, resident or swapped (default: peak; "
	 "of an unfinished recording: inuse)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(value), hl_value_names},
	{"unit", 'u', "UNIT", "bytes or objects (default: bytes)", HL_OPTION_CHOICE,
	 HL_VIEW_AT(unit), hl_unit_names},
	{0},
};

const struct hl_option hl_view_unit_options[] = {
	{"unit", 'u', "UNIT", "bytes or objects (default: bytes)", HL_OPTION_CHOICE,
	 HL_VIEW_AT(unit), hl_unit_names},
	{0},
};

const struct hl_option hl_view_selection_options[] = {
	{"process", 'p', "PID[/SEQ]", "one process (default: the sum of all)", HL_OPTION_TEXT,
	 HL_VIEW_AT(process), NULL},
	{"thread", 't', "TID", "what one thread allocated", HL_OPTION_TEXT, HL_VIEW_AT(thread),
	 NULL},
	{"at", 0, "MS|peak", "show what was in use at that moment (needs a log)", HL_OPTION_TEXTS,
	 HL_VIEW_AT(at), NULL},
	{"jobs", 'j', "N", "read the log with N threads (default: as many as there are cores)",
	 HL_OPTION_COUNT, HL_VIEW_AT(jobs), NULL},
	{0},
};

const struct hl_option hl_view_history_options[] = {
	{"process", 'p', "PID[/SEQ]", "which process (default: the one with the highest peak)",
	 HL_OPTION_TEXT, HL_VIEW_AT(process), NULL},
	{"between", 0, "MS MS", "from one moment to the other, in ms (default: all)",
	 HL_OPTION_RANGE, HL_VIEW_AT(between), NULL},
	{"jobs", 'j', "N", "read the log with N threads (default: as many as there are cores)",
	 HL_OPTION_COUNT, HL_VIEW_AT(jobs), NULL},
	{0},
};

const struct hl_option hl_view_filter_options[] = {
	{"focus", 0, "RE", "show only stacks with a frame that matches", HL_OPTION_TEXTS,
	 HL_VIEW_AT(focus), NULL},
	{"ignore", 0, "RE", "leave out stacks with a frame that matches", HL_OPTION_TEXTS,
	 HL_VIEW_AT(ignore), NULL},
	{"hide", 0, "RE", "leave matching frames out of stacks", HL_OPTION_TEXTS, HL_VIEW_AT(hide),
	 NULL},
	{0},
};

const struct hl_option hl_view_stack_options[] = {
	{"stack", 0, "KIND",
	 "of programs that run scripts: native, script or mixed frames (default: mixed)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(stack), hl_stack_kind_names},
	{"root", 0, "KIND", "what stacks begin with: function, type or service (default: function)",
	 HL_OPTION_CHOICE, HL_VIEW_AT(root), root_words},
	{"type", 0, "RE", "show only blocks whose type matches", HL_OPTION_TEXTS, HL_VIEW_AT(type),
	 NULL},
	{"service", 0, "RE", "show only blocks of services that match", HL_OPTION_TEXTS,
	 HL_VIEW_AT(service), NULL},
	{"survived", 0, "N",
	 "show only blocks in use that have outlived N full collections of Lua, or N requests of "
	 "PHP",
	 HL_OPTION_COUNT, HL_VIEW_AT(survived), HL_BOUNDS(1, HL_AGE_MAX)},
	{0},
};

const struct hl_option hl_view_plumbing_options[] = {
	{"plumbing", 0, NULL, "show frames of allocation plumbing: operator new, xmalloc, ...",
	 HL_OPTION_FLAG, HL_VIEW_AT(plumbing), NULL},
	{"plumbing-also", 0, "RE", "fold functions whose names match as allocation plumbing, too",
	 HL_OPTION_TEXTS, HL_VIEW_AT(plumbing_also), NULL},
	{0},
};

const struct hl_option hl_view_json_options[] = {
	{"json", 0, NULL, "write JSON", HL_OPTION_FLAG, HL_VIEW_AT(output.json), NULL},
	{0},
};

const struct hl_option hl_view_color_options[] = {
	{"color", 0, "WHEN", "auto, always or never (default: auto)", HL_OPTION_CHOICE,
	 HL_VIEW_AT(output.color), color_words},
	{"no-pager", 0, NULL, "do not use a pager on a terminal", HL_OPTION_FLAG,
	 HL_VIEW_AT(output.no_pager), NULL},
	{0},
};

const struct hl_option hl_view_output_options[] = {
	{"output", 'o', "FILE", "write to FILE (default: standard output)", HL_OPTION_OUTPUT,
	 HL_VIEW_AT(output.path), NULL},
	{"force", 'f', NULL, "overwrite FILE", HL_OPTION_FLAG, HL_VIEW_AT(output.force), NULL},
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

int hl_view_options_parse_selection(const struct hl_verb *verb,
				    const struct hl_view_request *request,
				    struct hl_profile_selection *selection)
{
	const char *end;

	/* More threads than any machine has are as good as all that it has. */
	selection->jobs = request->jobs > UINT16_MAX ? UINT16_MAX : (unsigned)request->jobs;
	if (request->process && parse_process(request->process, selection) < 0)
		return hl_cli_usage_error(verb,
					  "bad value '%s' of option '--process': not a PID "
					  "or PID/SEQUENCE",
					  request->process);
	if (request->thread &&
	    (parse_id(request->thread, '\0', &selection->tid, &end) < 0 || !selection->tid))
		return hl_cli_usage_error(verb, "bad value '%s' of option '--thread': not a TID",
					  request->thread);
	if (request->value >= 0 && request->unit >= 0 &&
	    !hl_profile_has_unit((enum hl_value)request->value, (enum hl_unit)request->unit))
		return hl_cli_usage_error(verb, "'%s' is not counted in %s",
					  hl_value_names[request->value],
					  hl_unit_names[request->unit]);
	return HL_EXIT_DONE;
}

int hl_view_options_parse_moments(const struct hl_verb *verb, const struct hl_view_request *request,
				  size_t most, struct hl_moment *moments, size_t *ret_count)
{
	if (request->at.count > most)
		return hl_cli_usage_error(
			verb, most > 1 ? "'%s' takes --at twice at most" : "'%s' takes --at once",
			verb->name);
	for (size_t i = 0; i < request->at.count; i++) {
		moments[i] = (struct hl_moment){.kind = HL_MOMENT_PEAK};
		if (!strcmp(request->at.texts[i], "peak"))
			continue;
		moments[i].kind = HL_MOMENT_MS;
		if (hl_option_parse_number(request->at.texts[i], false, &moments[i].ms) < 0)
			return hl_cli_usage_error(verb,
						  "bad value '%s' of option '--at': not a "
						  "number of milliseconds, "
						  "nor 'peak'",
						  request->at.texts[i]);
	}
	*ret_count = request->at.count;
	return HL_EXIT_DONE;
}

int hl_view_options_parse_between(const struct hl_verb *verb, const struct hl_view_request *request,
				  struct hl_history_range *range)
{
	if (request->between.given && request->between.first > request->between.last)
		return hl_cli_usage_error(verb,
					  "bad value '%llu' of option '--between': the "
					  "range ends earlier, at %llu",
					  (unsigned long long)request->between.first,
					  (unsigned long long)request->between.last);
	if (request->between.given)
		*range = (struct hl_history_range){request->between.first, request->between.last};
	return HL_EXIT_DONE;
}

static bool take_expressions(const struct hl_option_texts *texts,
			     const char *expressions[HL_FILTER_EXPRESSIONS_MAX])
{
	if (texts->count > HL_FILTER_EXPRESSIONS_MAX)
		return false;
	memcpy(expressions, texts->texts, texts->count * sizeof(*texts->texts));
	return true;
}

int hl_view_options_parse_filter(const struct hl_verb *verb, const struct hl_view_request *request,
				 struct hl_filter *filter)
{
	struct hl_error err = {0};

	if (!take_expressions(&request->focus, filter->focus) ||
	    !take_expressions(&request->ignore, filter->ignore) ||
	    !take_expressions(&request->hide, filter->hide) ||
	    !take_expressions(&request->type, filter->type) ||
	    !take_expressions(&request->service, filter->service) ||
	    !take_expressions(&request->plumbing_also, filter->plumbing_also))
		return hl_cli_usage_error(verb,
					  "--focus, --ignore, --hide, --type, --service and "
					  "--plumbing-also can be given %d times each at most",
					  HL_FILTER_EXPRESSIONS_MAX);
	if (request->plumbing && request->plumbing_also.count)
		return hl_cli_usage_error(verb, "--plumbing shows what --plumbing-also folds; "
						"leave one of them out");
	if (request->survived && request->value >= 0 && request->value != HL_VALUE_INUSE)
		return hl_cli_usage_error(verb,
					  "--survived is about what is in use; leave --value out");
	filter->survived = request->survived;
	filter->stack = (enum hl_stack_kind)request->stack;
	filter->root = request->root == 1   ? HL_PART_TYPE
		       : request->root == 2 ? HL_PART_SERVICE
					    : HL_PART_NATIVE;
	filter->fold_plumbing =
		!request->plumbing && hl_verb_shares(verb, hl_view_plumbing_options);
	int r = hl_filter_check(filter, &err);
	if (r == -ENOMEM)
		return hl_cli_error("out of memory");
	return r < 0 ? hl_cli_usage_error(verb, "%s", err.text) : HL_EXIT_DONE;
}

bool hl_view_options_ask_pages(const struct hl_view_request *request)
{
	return request->value >= 0 && hl_value_is_of_pages((enum hl_value)request->value);
}

/* ---- value and unit, which depend on what the profile knows ---- */

static const enum hl_value default_values[] = {HL_VALUE_PEAK, HL_VALUE_INUSE, HL_VALUE_ALLOC,
					       HL_VALUE_TEMPORARY, HL_VALUE_SLACK};

static bool knows_some(const struct hl_view_request *request, const struct hl_profile *profile,
		       enum hl_value candidate)
{
	if (request->unit >= 0)
		return hl_profile_knows(profile, candidate, (enum hl_unit)request->unit);
	return hl_profile_knows(profile, candidate, HL_UNIT_BYTES) ||
	       hl_profile_knows(profile, candidate, HL_UNIT_OBJECTS);
}

/* Whether ${profile} and what it is compared with differ in ${candidate}. */
static bool differs_in(const struct hl_profile *profile, enum hl_value candidate)
{
	for (size_t i = 0; i < profile->node_count; i++)
		for (int in = 0; in < HL_UNIT_COUNT; in++)
			if (hl_profile_figure(&profile->counters[i], candidate, (enum hl_unit)in) !=
			    hl_profile_figure(&profile->base[i], candidate, (enum hl_unit)in))
				return true;
	return false;
}

/*
 * Why the peak is not what one wants to see: a program that goes on may have had it long ago, and
 * what it has leaked since is not part of it. NULL: it is.
 */
static const char *reason_for_inuse(const struct hl_view_request *request,
				    const struct hl_profile *profile)
{
	static const char types_of_inuse[] = "because types are known of what is in use alone";

	if (request->survived)
		return "because --survived is about that";
	if (profile->imported || !knows_some(request, profile, HL_VALUE_INUSE))
		return NULL;
	if (!knows_some(request, profile, HL_VALUE_PEAK))
		return profile->has_types_of_inuse ? types_of_inuse : NULL;
	if (profile->snapshot)
		return "because this is a snapshot";
	if (profile->base_snapshot)
		return "because the earlier recording is a snapshot";
	if (!profile->complete)
		return "because the recording is not finished";
	if (profile->has_types_of_inuse)
		return types_of_inuse;
	if (profile->attached && profile->left_running)
		return "because the process ran on afterwards";
	if (profile->base && !differs_in(profile, HL_VALUE_PEAK) &&
	    differs_in(profile, HL_VALUE_INUSE))
		return "because the peaks are equal";
	return NULL;
}

static int value_not_known(const struct hl_view_request *request, const struct hl_profile *profile,
			   const struct hl_view_options *options, struct hl_error *err)
{
	const char *name = hl_profile_text(profile, profile->name);
	char missing[64], known[160] = "";
	size_t used = 0;

	/* "no peak in objects", as far as it was asked for. */
	snprintf(missing, sizeof(missing), "%s%s%s%s", request->value >= 0 ? "no " : "nothing",
		 request->value >= 0 ? hl_value_names[options->value] : "",
		 request->unit >= 0 ? " in " : "",
		 request->unit >= 0 ? hl_unit_names[options->unit] : "");
	/* "inuse (bytes, objects), alloc (bytes)" */
	for (int candidate = 0; candidate < HL_VALUE_COUNT; candidate++) {
		bool bytes = hl_profile_knows(profile, (enum hl_value)candidate, HL_UNIT_BYTES);
		bool objects = hl_profile_knows(profile, (enum hl_value)candidate, HL_UNIT_OBJECTS);
		if ((bytes || objects) && used < sizeof(known))
			used += (size_t)snprintf(
				known + used, sizeof(known) - used, "%s%s (%s%s%s)",
				used ? ", " : "", hl_value_names[candidate], bytes ? "bytes" : "",
				bytes && objects ? ", " : "", objects ? "objects" : "");
	}
	if (profile->base)
		return hl_error_set(err, -ENODATA, "'%s' and '%s' hold %s in common; both hold %s",
				    hl_profile_text(profile, profile->base_name), name, missing,
				    known);
	return hl_error_set(err, -ENODATA, "'%s' holds %s; it holds %s%s", name, missing, known,
			    hl_view_options_ask_pages(request)
				    ? ". What is in RAM is known while the program runs: name its "
				      "recording then, or a snapshot of 'heapline ctl -p PID "
				      "snapshot OUT.hl'"
				    : "");
}

int hl_view_options_choose_value(const struct hl_view_request *request,
				 const struct hl_profile *profile, bool flame,
				 struct hl_view_options *options, struct hl_error *err)
{
	const struct hl_trace_kind *kind = hl_trace_kind_of_profile(profile);
	bool counts_pages = flame && kind && hl_trace_kind_counts_pages(kind);

	options->value_reason = request->value < 0 ? reason_for_inuse(request, profile) : NULL;
	options->value = options->value_reason ? HL_VALUE_INUSE : HL_VALUE_PEAK;
	for (size_t i = HL_COUNT_OF(default_values); !options->value_reason && i-- > 0;)
		if (knows_some(request, profile, default_values[i]))
			options->value = default_values[i]; /* the first that is known stays */
	bool is_preferred = profile->has_preferred && request->value < 0 &&
			    !options->value_reason &&
			    knows_some(request, profile, profile->preferred_value);
	if (is_preferred)
		options->value = profile->preferred_value;
	if (request->value >= 0)
		options->value = (enum hl_value)request->value;
	if (request->unit >= 0)
		options->unit = (enum hl_unit)request->unit;
	else if (is_preferred)
		options->unit = profile->preferred_unit;
	else
		options->unit =
			!counts_pages && hl_profile_knows(profile, options->value, HL_UNIT_BYTES)
				? HL_UNIT_BYTES
				: HL_UNIT_OBJECTS;
	if (hl_profile_knows(profile, options->value, options->unit))
		return 0;
	return value_not_known(request, profile, options, err);
}

/* ---- output ---- */

bool hl_view_output_has_color(const struct hl_view_output *output)
{
	const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */
	const char *terminal = getenv("TERM");

	if (output->color != COLOR_AUTO)
		return output->color == COLOR_ALWAYS;
	return !output->path && isatty(STDOUT_FILENO) && !(no_color && no_color[0]) && terminal &&
	       strcmp(terminal, "dumb") != 0;
}

/* ---- formats by the name of the output ---- */

/* Formats that one expects after a name, and who writes them. Any other name means nothing. */
static const struct {
	const char *extension, *name;
	const char *writers;
} promises[] = {
	{"json", "JSON", "'heapline export --format json' does"},
	{"csv", "CSV", "'heapline export' and 'heapline timeline' do"},
	{"svg", "SVG", "'heapline flame', 'heapline graph' and 'heapline timeline' do"},
};

static const char *extension_of(const char *path)
{
	const char *dot = path ? strrchr(path, '.') : NULL;

	return dot && !strchr(dot, '/') ? dot + 1 : "";
}

int hl_view_output_format_of(const char *path, const char *const *words)
{
	const char *extension = extension_of(path);

	for (int i = 0; words[i]; i++)
		if (!strcmp(extension, words[i]))
			return i;
	return -1;
}

int hl_view_options_choose_format(const struct hl_view_request *request, int otherwise)
{
	int named = hl_view_output_format_of(request->output.path, request->formats);

	return request->format >= 0 ? request->format : named >= 0 ? named : otherwise;
}

int hl_view_output_obey_name(const struct hl_verb *verb, struct hl_view_output *output,
			     const char *const *formats, bool is_given)
{
	const char *path = output->path, *extension = extension_of(path);

	if (is_given || output->json || (formats && hl_view_output_format_of(path, formats) >= 0))
		return HL_EXIT_DONE;
	if (!strcmp(extension, "json") && hl_verb_shares(verb, hl_view_json_options)) {
		output->json = true;
		return HL_EXIT_DONE;
	}
	for (size_t i = 0; i < HL_COUNT_OF(promises); i++)
		if (!strcmp(extension, promises[i].extension))
			return hl_cli_usage_error(
				verb, "cannot write '%s': '%s' writes no %s; %s; name it otherwise",
				path, verb->name, promises[i].name, promises[i].writers);
	return HL_EXIT_DONE;
}
