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

int hl_keys_init(struct hl_keys *keys, const struct hl_profile *profile, enum hl_view_key by)
{
	*keys = (struct hl_keys){0};
	if (by == HL_VIEW_BY_THREAD || by == HL_VIEW_BY_STACK)
		return -EINVAL;
	*keys = (struct hl_keys){
		.of_frame = calloc(profile->frame_count + 1, sizeof(*keys->of_frame)),
		.frames = calloc(profile->frame_count + 1, sizeof(*keys->frames)),
		.count = 1,
		.by = by,
	};
	int r = keys->of_frame && keys->frames ? intern_all(keys, profile) : -ENOMEM;
	if (r < 0)
		hl_keys_release(keys);
	return r;
}

void hl_keys_release(struct hl_keys *keys)
{
	free(keys->of_frame);
	free(keys->frames);
	*keys = (struct hl_keys){0};
}

/* ---- words ---- */

struct hl_keys_label hl_keys_label(const struct hl_keys *keys, const struct hl_profile *profile,
				   uint32_t key)
{
	const struct hl_profile_frame *frame = &profile->frames[keys->frames[key]];
	const struct hl_profile_function *function = &profile->functions[frame->function];
	struct hl_keys_label label = {
		.name = hl_profile_text(profile, function->name),
		.file = "",
		.module = hl_profile_text(profile, profile->modules[function->module].path),
	};

	if (!key) {
		label.name = HL_KEYS_NO_STACK;
		return label;
	}
	if (keys->by == HL_VIEW_BY_MODULE) {
		label.name = function->module ? label.module : "[no module]";
		return label;
	}
	bool whole = keys->by == HL_VIEW_BY_FUNCTION;
	label.file = hl_profile_text(profile, whole ? function->file : frame->file);
	label.line = whole ? function->line : frame->line;
	label.address = keys->by == HL_VIEW_BY_ADDRESS ? frame->address : 0;
	return label;
}

const char *hl_keys_place(const struct hl_keys_label *label, char *buffer, size_t size)
{
	if (!label->file[0])
		return hl_path_basename(label->module);
	snprintf(buffer, size, "%s:%u", hl_path_basename(label->file), label->line);
	return buffer;
}

bool hl_keys_names_module(const struct hl_keys_label *label)
{
	const char *module = hl_path_basename(label->module);
	size_t length = strlen(module);

	return !strncmp(label->name, module, length) && label->name[length] == '+';
}
