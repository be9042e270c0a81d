/* SPDX-License-Identifier: BSD-2-Clause */
/* Interns what frames have in common; see keys.h. */
#include "view/keys.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "guests/traits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const hl_keys_by_names[] = {
	[HL_VIEW_BY_FUNCTION] = "function", [HL_VIEW_BY_LINE] = "line",
	[HL_VIEW_BY_ADDRESS] = "address",   [HL_VIEW_BY_MODULE] = "module",
	[HL_VIEW_BY_THREAD] = "thread",	    [HL_VIEW_BY_TYPE] = "type",
	[HL_VIEW_BY_SERVICE] = "service",   [HL_VIEW_BY_STACK] = "stack",
	[HL_VIEW_BY_TOTAL] = "total",
};

/* Frames with equal identities share a key. */
struct identity {
	uint64_t a, b;
};

#define NO_LINE (UINT64_C(1) << 32) /* beside a function instead of a line's number */

#define BY_LINE_OF_FUNCTION HL_VIEW_BY_TOTAL /* instead of what no frame has */

static struct identity identity_of(const struct hl_profile *profile,
				   const struct hl_profile_frame *frame, enum hl_view_key by)
{
	uint64_t function = frame->function;
	uint32_t module = profile->functions[frame->function].module;

	switch (by) {
	case HL_VIEW_BY_LINE:
		return frame->file ? (struct identity){frame->file, frame->line}
				   : (struct identity){function, NO_LINE};
	case HL_VIEW_BY_ADDRESS:
		/* The functions that are inlined at one address share it; names without an address
		 * do not, and without a module a pseudo frame may have the number of one. */
		return frame->address
			       ? (struct identity){module ? module : function << 32, frame->address}
			       : (struct identity){function << 32 | frame->line, 0};
	case HL_VIEW_BY_MODULE:
		return (struct identity){module, 0};
	case BY_LINE_OF_FUNCTION:
		return (struct identity){function, (uint64_t)frame->file << 32 | frame->line};
	default:
		return (struct identity){function, 0};
	}
}

/* Gives each frame the key of its identity. 0 or -ENOMEM. */
static int intern(struct hl_keys *keys, const struct hl_profile *profile, enum hl_view_key by)
{
	const struct hl_profile_frame *frames = profile->frames;
	HL_CLEANUP(hl_index_release) struct hl_index index = {0};

	keys->count = 1;
	keys->of_frame = calloc(profile->frame_count + 1, sizeof(*keys->of_frame));
	keys->frames = calloc(profile->frame_count + 1, sizeof(*keys->frames));
	if (!keys->of_frame || !keys->frames)
		return -ENOMEM;
	for (uint32_t id = 1; id < profile->frame_count; id++) {
		struct identity wanted = identity_of(profile, &frames[id], by), found;
		uint32_t hash = hl_hash_pair(wanted.a, wanted.b), at = hash, key;
		while ((key = hl_index_next(&index, hash, &at))) {
			found = identity_of(profile, &frames[keys->frames[key]], by);
			if (found.a == wanted.a && found.b == wanted.b)
				break;
		}
		if (!key) {
			key = (uint32_t)keys->count++;
			keys->frames[key] = id;
			if (hl_index_add(&index, hash, key) < 0)
				return -ENOMEM;
		} else if (by == HL_VIEW_BY_ADDRESS) {
			/* Inner frames come last: of an address, they say most exactly where. */
			keys->frames[key] = id;
		}
		keys->of_frame[id] = key;
	}
	return 0;
}

/* Gives each function that is not ${decided} the heaviest of its lines by ${counters}, each line the heaviest of the
 * functions on it: by what they allocated themselves, where ${flat} and there is any, else with what they call. */
static int choose_lines_by(struct hl_keys *keys, const struct hl_keys *lines,
			   const struct hl_profile *profile,
			   const struct hl_profile_counters *counters, enum hl_value value,
			   enum hl_unit unit, bool flat, bool *decided)
{
	struct line {
		int64_t flat, cum;
	};
	HL_FREED int64_t *sums = calloc(profile->node_count, sizeof(*sums));
	HL_FREED int64_t *flat_sums = calloc(keys->count, sizeof(*flat_sums));
	HL_FREED int64_t *heaviest = calloc(keys->count, sizeof(*heaviest));
	HL_FREED struct line *of_line = calloc(lines->count, sizeof(*of_line));

	if (!sums || !flat_sums || !heaviest || !of_line)
		return -ENOMEM;
	for (size_t i = profile->node_count; i-- > 1;) {
		uint32_t frame = profile->nodes[i].frame;
		struct line *line = &of_line[lines->of_frame[frame]];
		int64_t own = hl_profile_figure(&counters[i], value, unit);
		sums[i] += own;
		sums[profile->nodes[i].parent] += sums[i];
		line->flat += own;
		line->cum += sums[i];
		flat_sums[keys->of_frame[frame]] += flat ? own : 0;
	}
	/* Of equal ones the last in the profile wins. */
	for (size_t i = profile->node_count; i-- > 1;) {
		uint32_t frame = profile->nodes[i].frame, key = keys->of_frame[frame];
		uint32_t line = lines->of_frame[frame];
		int64_t figure = flat_sums[key] > 0 ? of_line[line].flat : of_line[line].cum;
		if (decided[key] || !figure ||
		    (heaviest[key] && line == lines->of_frame[keys->frames[key]]))
			continue;
		keys->several[key] |= heaviest[key] != 0;
		if (figure > heaviest[key]) {
			heaviest[key] = figure;
			keys->frames[key] = frame;
		}
	}
	for (size_t key = 0; key < keys->count; key++)
		decided[key] |= heaviest[key] != 0;
	return 0;
}

/* When two profiles are compared, the later one decides, except for functions that only the earlier one has. */
static int choose_lines(struct hl_keys *keys, const struct hl_profile *profile, enum hl_value value,
			enum hl_unit unit, bool flat)
{
	HL_CLEANUP(hl_keys_release) struct hl_keys lines = {0};
	HL_FREED bool *decided = calloc(keys->count, sizeof(*decided));

	keys->several = calloc(keys->count, sizeof(*keys->several));
	if (!decided || !keys->several || intern(&lines, profile, BY_LINE_OF_FUNCTION) < 0)
		return -ENOMEM;
	int r = choose_lines_by(keys, &lines, profile, profile->counters, value, unit, flat,
				decided);
	if (r == 0 && profile->base)
		r = choose_lines_by(keys, &lines, profile, profile->base, value, unit, flat,
				    decided);
	return r;
}

int hl_keys_init(struct hl_keys *keys, const struct hl_profile *profile, enum hl_view_key by,
		 enum hl_value value, enum hl_unit unit, bool flat)
{
	*keys = (struct hl_keys){.count = 1, .by = by};
	if (by == HL_VIEW_BY_STACK) {
		int r = hl_calltree_init(&keys->tree, profile, value, unit);
		keys->count = keys->tree.count;
		return r;
	}
	if (by == HL_VIEW_BY_THREAD || by == HL_VIEW_BY_TOTAL)
		return -EINVAL;
	int r = intern(keys, profile, by);
	if (r == 0 && (by == HL_VIEW_BY_FUNCTION || by == HL_VIEW_BY_LINE))
		r = choose_lines(keys, profile, value, unit, flat);
	if (r < 0)
		hl_keys_release(keys);
	return r;
}

void hl_keys_release(struct hl_keys *keys)
{
	free(keys->of_frame);
	free(keys->frames);
	free(keys->several);
	hl_calltree_release(&keys->tree);
	*keys = (struct hl_keys){0};
}

/* ---- words ---- */

static const struct hl_keys_label no_stack = {.name = HL_KEYS_NO_STACK, .file = "", .module = ""};
static const struct hl_keys_label no_type = {.name = "[no type]", .file = "", .module = ""};
static const struct hl_keys_label no_service = {.name = "[no service]", .file = "", .module = ""};

/* That of a guest with frames in ${profile}, or else of the first that has one. */
const char *hl_keys_types_advice(const struct hl_profile *profile)
{
	const char *advice = NULL;

	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_guest_traits *guest = hl_guest_traits[i];
		const char *reason = profile->no_scripts && guest->no_scripts_reason
					     ? guest->no_scripts_reason
					     : guest->no_types_reason;
		if (reason && (!advice || hl_profile_has_runtime(profile, guest->providers[0])))
			advice = reason;
	}
	return advice ? advice : "heapline was built without the runtimes that have types";
}

struct hl_keys_label hl_keys_label(const struct hl_keys *keys, const struct hl_profile *profile,
				   uint32_t key)
{
	if (keys->by == HL_VIEW_BY_STACK)
		return hl_keys_node_label(profile, &keys->tree.nodes[key]);
	if (!key)
		return keys->by == HL_VIEW_BY_TYPE	? no_type
		       : keys->by == HL_VIEW_BY_SERVICE ? no_service
							: no_stack;
	struct hl_keys_label label = hl_keys_frame_label(profile, keys->frames[key]);
	if (keys->by == HL_VIEW_BY_MODULE)
		return (struct hl_keys_label){
			.name = label.module[0] ? label.module : "[no module]",
			.file = "",
			.module = label.module,
		};
	label.several_lines = keys->by == HL_VIEW_BY_FUNCTION && keys->several[key];
	label.address =
		keys->by == HL_VIEW_BY_ADDRESS ? profile->frames[keys->frames[key]].address : 0;
	return label;
}

struct hl_keys_label hl_keys_frame_label(const struct hl_profile *profile, uint32_t id)
{
	const struct hl_profile_frame *frame = &profile->frames[id];
	const struct hl_profile_function *function = &profile->functions[frame->function];

	struct hl_keys_label label = {
		.name = hl_profile_text(profile, function->name),
		.file = hl_profile_text(profile, frame->file),
		.line = frame->line,
		.module = hl_profile_text(profile, profile->modules[function->module].path),
	};
	if (profile->modules[function->module].script)
		label.source = hl_profile_text(profile, function->file);
	if (function->label != function->name && function->file == frame->file)
		/* The label is "NAME (END OF FILE)". */
		label.telling_file = label.file + strlen(label.file) + strlen(label.name) +
				     strlen(" ()") -
				     strlen(hl_profile_text(profile, function->label));
	return label;
}

struct hl_keys_label hl_keys_node_label(const struct hl_profile *profile,
					const struct hl_calltree_node *node)
{
	if (!node->depth)
		return no_stack;
	struct hl_keys_label label = hl_keys_frame_label(profile, node->frame);
	label.several_lines = node->several_lines;
	return label;
}

const char *hl_keys_place(const struct hl_keys_label *label, char *buffer, size_t size)
{
	const char *file =
		label->telling_file ? label->telling_file : hl_path_basename(label->file);

	if (!label->file[0])
		return hl_path_basename(label->module);
	if (!label->line) /* which some files of other tools do not say */
		return file;
	snprintf(buffer, size, "%s:%u%s", file, label->line, label->several_lines ? ",..." : "");
	return buffer;
}

void hl_keys_cell_place(struct hl_emit *emit, const void *label, const void *context)
{
	char text[256];

	(void)context;
	hl_cell_text(emit, hl_keys_place(label, text, sizeof(text)));
}

bool hl_keys_names_module(const struct hl_keys_label *label)
{
	const char *module = hl_path_basename(label->module);
	size_t length = strlen(module);

	return !strncmp(label->name, module, length) && label->name[length] == '+';
}
