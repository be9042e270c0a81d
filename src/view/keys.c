/* SPDX-License-Identifier: BSD-2-Clause */
/* Interns what frames have in common; see keys.h. */
#include "view/keys.h"

#include "base/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Frames with equal identities share a key. */
struct identity {
	uint64_t a, b;
};

#define NO_LINE (UINT64_C(1) << 32) /* beside a function instead of a line's number */

static struct identity line_identity(const struct hl_profile_frame *frame)
{
	if (!frame->file)
		return (struct identity){frame->function, NO_LINE};
	return (struct identity){frame->file, frame->line};
}

/* The functions that are inlined at one address share it; names without an address do not. */
static struct identity address_identity(const struct hl_profile *profile,
					const struct hl_profile_frame *frame)
{
	uint32_t module = profile->functions[frame->function].module;

	if (!frame->address)
		return (struct identity){(uint64_t)frame->function << 32 | frame->line, 0};
	/* Without a module a pseudo frame may have the number of an address. */
	return (struct identity){module ? module : (uint64_t)frame->function << 32, frame->address};
}

static struct identity identity_of(const struct hl_profile *profile, uint32_t id,
				   enum hl_view_key by)
{
	const struct hl_profile_frame *frame = &profile->frames[id];

	switch (by) {
	case HL_VIEW_BY_LINE:
		return line_identity(frame);
	case HL_VIEW_BY_ADDRESS:
		return address_identity(profile, frame);
	case HL_VIEW_BY_MODULE:
		return (struct identity){profile->functions[frame->function].module, 0};
	default:
		return (struct identity){frame->function, 0};
	}
}

/* The key of frame ${id}, a new one if need be. 0 or -ENOMEM. */
static int intern(struct hl_keys *keys, const struct hl_profile *profile, struct hl_index *index,
		  uint32_t id)
{
	struct identity wanted = identity_of(profile, id, keys->by);
	uint32_t hash = hl_hash_pair(wanted.a, wanted.b), at = hash, key;

	while ((key = hl_index_next(index, hash, &at))) {
		struct identity found = identity_of(profile, keys->frames[key], keys->by);
		if (found.a == wanted.a && found.b == wanted.b) {
			keys->of_frame[id] = key;
			/* Inner frames come last: of an address, they say most exactly where. */
			if (keys->by == HL_VIEW_BY_ADDRESS)
				keys->frames[key] = id;
			return 0;
		}
	}
	int r = hl_index_add(index, hash, (uint32_t)keys->count);
	if (r < 0)
		return r;
	keys->of_frame[id] = (uint32_t)keys->count;
	keys->frames[keys->count++] = id;
	return 0;
}

static int intern_all(struct hl_keys *keys, const struct hl_profile *profile)
{
	struct hl_index index = {0};
	int r = 0;

	for (uint32_t i = 1; r == 0 && i < profile->frame_count; i++)
		r = intern(keys, profile, &index, i);
	hl_index_release(&index);
	return r;
}

/* ---- the heaviest line of each function ---- */

/* A line of a function. */
struct line {
	uint32_t frame; /* one of those there */
	int64_t flat, cum;
};

struct lines {
	struct line *lines;
	uint32_t *of_frame; /* + 1; 0: not seen */
	size_t count;
	struct hl_index index;
};

/* The line of frame ${id}; -ENOMEM is negative. */
static int line_of(struct lines *lines, const struct hl_profile *profile, uint32_t id,
		   struct line **ret_line)
{
	const struct hl_profile_frame *frames = profile->frames, *frame = &frames[id];
	uint32_t hash = hl_hash_pair(hl_hash_pair(frame->file, frame->line), frame->function);
	uint32_t at = hash, found = lines->of_frame[id];

	while (!found && (found = hl_index_next(&lines->index, hash, &at))) {
		const struct hl_profile_frame *other = &frames[lines->lines[found - 1].frame];
		if (other->function != frame->function || other->file != frame->file ||
		    other->line != frame->line)
			found = 0;
		else
			break;
	}
	if (!found) {
		found = (uint32_t)++lines->count;
		lines->lines[found - 1].frame = id;
		if (hl_index_add(&lines->index, hash, found) < 0)
			return -ENOMEM;
	}
	lines->of_frame[id] = found;
	*ret_line = &lines->lines[found - 1];
	return 0;
}

static int sum_lines(struct lines *lines, const struct hl_profile *profile, enum hl_value value,
		     enum hl_unit unit, int64_t *sums)
{
	for (size_t i = profile->node_count; i-- > 1;) {
		int64_t own = hl_profile_figure(&profile->counters[i], value, unit);
		struct line *line;
		int r = line_of(lines, profile, profile->nodes[i].frame, &line);
		if (r < 0)
			return r;
		sums[i] += own;
		sums[profile->nodes[i].parent] += sums[i];
		line->flat += own;
		line->cum += sums[i];
	}
	return 0;
}

/* Gives each key the heaviest of its lines: by what they allocated themselves, where ${flat_sums}
 * says that there is any, else with what they call. */
static void choose_heaviest(struct hl_keys *keys, const struct lines *lines,
			    const int64_t *flat_sums, int64_t *heaviest)
{
	for (size_t i = 0; i < lines->count; i++) {
		const struct line *line = &lines->lines[i];
		uint32_t key = keys->of_frame[line->frame];
		int64_t figure = flat_sums[key] > 0 ? line->flat : line->cum;
		if (figure && heaviest[key])
			keys->several[key] = true;
		if (figure <= heaviest[key])
			continue;
		heaviest[key] = figure;
		keys->frames[key] = line->frame;
	}
}

static int choose_lines(struct hl_keys *keys, const struct hl_profile *profile, enum hl_value value,
			enum hl_unit unit, bool flat)
{
	struct lines lines = {
		.lines = calloc(profile->frame_count + 1, sizeof(*lines.lines)),
		.of_frame = calloc(profile->frame_count + 1, sizeof(*lines.of_frame)),
	};
	int64_t *sums = calloc(profile->node_count, sizeof(*sums));
	int64_t *flat_sums = calloc(keys->count, sizeof(*flat_sums));
	int64_t *heaviest = calloc(keys->count, sizeof(*heaviest));
	keys->several = calloc(keys->count, sizeof(*keys->several));
	int r = -ENOMEM;
	if (lines.lines && lines.of_frame && sums && flat_sums && heaviest && keys->several)
		r = sum_lines(&lines, profile, value, unit, sums);
	for (size_t i = 0; r == 0 && flat && i < lines.count; i++)
		flat_sums[keys->of_frame[lines.lines[i].frame]] += lines.lines[i].flat;
	if (r == 0)
		choose_heaviest(keys, &lines, flat_sums, heaviest);
	free(lines.lines);
	free(lines.of_frame);
	hl_index_release(&lines.index);
	free(sums);
	free(flat_sums);
	free(heaviest);
	return r;
}

int hl_keys_init(struct hl_keys *keys, const struct hl_profile *profile, enum hl_view_key by,
		 enum hl_value value, enum hl_unit unit, bool flat)
{
	*keys = (struct hl_keys){.count = 1, .by = by};
	if (by == HL_VIEW_BY_THREAD)
		return -EINVAL;
	if (by == HL_VIEW_BY_STACK) {
		int r = hl_calltree_init(&keys->tree, profile, value, unit);
		keys->count = keys->tree.count;
		return r;
	}
	keys->of_frame = calloc(profile->frame_count + 1, sizeof(*keys->of_frame));
	keys->frames = calloc(profile->frame_count + 1, sizeof(*keys->frames));
	int r = keys->of_frame && keys->frames ? intern_all(keys, profile) : -ENOMEM;
	if (r == 0 && by == HL_VIEW_BY_FUNCTION)
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

struct hl_keys_label hl_keys_label(const struct hl_keys *keys, const struct hl_profile *profile,
				   uint32_t key)
{
	if (keys->by == HL_VIEW_BY_STACK)
		return hl_keys_node_label(profile, &keys->tree.nodes[key]);
	struct hl_keys_label label = hl_keys_frame_label(profile, keys->frames[key]);
	if (!key)
		return (struct hl_keys_label){.name = HL_KEYS_NO_STACK, .file = "", .module = ""};
	if (keys->by == HL_VIEW_BY_MODULE)
		return (struct hl_keys_label){
			.name = label.module[0] ? label.module : "[no module]",
			.file = "",
			.module = label.module,
		};
	label.several_lines = keys->several && keys->several[key];
	label.address =
		keys->by == HL_VIEW_BY_ADDRESS ? profile->frames[keys->frames[key]].address : 0;
	return label;
}

struct hl_keys_label hl_keys_frame_label(const struct hl_profile *profile, uint32_t id)
{
	const struct hl_profile_frame *frame = &profile->frames[id];
	const struct hl_profile_function *function = &profile->functions[frame->function];

	return (struct hl_keys_label){
		.name = hl_profile_text(profile, function->name),
		.file = hl_profile_text(profile, frame->file),
		.line = frame->line,
		.module = hl_profile_text(profile, profile->modules[function->module].path),
	};
}

struct hl_keys_label hl_keys_node_label(const struct hl_profile *profile,
					const struct hl_calltree_node *node)
{
	if (!node->depth)
		return (struct hl_keys_label){.name = HL_KEYS_NO_STACK, .file = "", .module = ""};
	struct hl_keys_label label = hl_keys_frame_label(profile, node->frame);
	label.several_lines = node->several_lines;
	return label;
}

const char *hl_keys_place(const struct hl_keys_label *label, char *buffer, size_t size)
{
	if (!label->file[0])
		return hl_path_basename(label->module);
	if (!label->line) /* which some files of other tools do not say */
		return hl_path_basename(label->file);
	snprintf(buffer, size, "%s:%u%s", hl_path_basename(label->file), label->line,
		 label->several_lines ? ",..." : "");
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
