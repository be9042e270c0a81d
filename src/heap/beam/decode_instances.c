/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The answer of erlang:system_info({allocator, A}); see decode.h. It is a list of instances, each
 * with lists of what it has in carriers of each type; these hold tuples of a name and numbers, of
 * which the first is the present one. Up to OTP 22 blocks are counted in `blocks` and
 * `blocks_size`, since then by the type of block within `blocks`.
 */
#include "base/array.h"
#include "heap/beam/decode.h"

#include <errno.h>
#include <stdio.h>

#define NAME_MAX_BYTES 64 /* no name known here is longer */

static const struct {
	const char *name, *type;
	bool in_pool;
} sections[] = {
	{"mbcs", "mbc", false},
	{"sbcs", "sbc", false},
	{"mbcs_pool", "mbc", true},
};

void hl_beam_instances_release(struct hl_beam_instances *instances)
{
	free(instances->instances);
	*instances = (struct hl_beam_instances){0};
}

/* The head and the name of a tuple {Name, ...}, and how many elements are left of it. */
static int take_named(struct hl_term *term, char name[NAME_MAX_BYTES], uint32_t *ret_left)
{
	uint32_t arity;

	if (hl_term_tuple(term, &arity) < 0 || arity < 2 ||
	    hl_term_atom(term, name, NAME_MAX_BYTES) < 0)
		return -EBADMSG;
	*ret_left = arity - 1;
	return 0;
}

static int skip_terms(struct hl_term *term, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (hl_term_skip(term) < 0)
			return -EBADMSG;
	return 0;
}

/* What a figure of this name is kept in; NULL: nowhere. */
static uint64_t *figure_of(struct hl_beam_instance *instance, const char *name)
{
	if (!strcmp(name, "carriers"))
		return &instance->carriers;
	if (!strcmp(name, "carriers_size"))
		return &instance->total_bytes;
	if (!strcmp(name, "blocks") || !strcmp(name, "count"))
		return &instance->allocated_blocks;
	if (!strcmp(name, "blocks_size") || !strcmp(name, "size"))
		return &instance->allocated_bytes;
	return NULL;
}

/* The first number after ${name} is added where it belongs, whatever else stands there left. */
static int add_figure(struct hl_term *term, const char *name, uint32_t left,
		      struct hl_beam_instance *instance)
{
	uint64_t *figure = figure_of(instance, name);
	struct hl_term at = *term;
	uint64_t number;

	if (skip_terms(term, left) < 0)
		return -EBADMSG;
	if (figure && hl_term_unsigned(&at, &number) == 0)
		*figure += number;
	return 0;
}

/* [{count, N, ...}, {size, N, ...}] */
static int decode_figures(struct hl_term *term, struct hl_beam_instance *instance)
{
	char name[NAME_MAX_BYTES];
	uint32_t count, left;

	if (hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++)
		if (take_named(term, name, &left) < 0 || add_figure(term, name, left, instance) < 0)
			return -EBADMSG;
	return hl_term_list_end(term, count);
}

/* [{Type, [{count, ...}, {size, ...}]}] */
static int decode_block_types(struct hl_term *term, struct hl_beam_instance *instance)
{
	char type[NAME_MAX_BYTES];
	uint32_t count, left;

	if (hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++)
		if (take_named(term, type, &left) < 0 || left != 1 ||
		    decode_figures(term, instance) < 0)
			return -EBADMSG;
	return hl_term_list_end(term, count);
}

/* [{blocks, ...}, {carriers, ...}, ...] */
static int decode_section(struct hl_term *term, struct hl_beam_instance *instance)
{
	char name[NAME_MAX_BYTES];
	uint32_t count, left;

	if (hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		if (take_named(term, name, &left) < 0)
			return -EBADMSG;
		int r = !strcmp(name, "blocks") && left == 1
				? decode_block_types(term, instance)
				: add_figure(term, name, left, instance);
		if (r < 0)
			return r;
	}
	return hl_term_list_end(term, count);
}

/* Adds a row, unless there are no carriers of it. */
static int add_instance(struct hl_beam_instances *instances,
			const struct hl_beam_instance *instance)
{
	if (!instance->carriers && !instance->total_bytes)
		return 0;
	return HL_ARRAY_APPEND(instances->instances, instances->count, instances->capacity,
			       *instance);
}

/* One of the lists of an instance, if it is one that counts. */
static int decode_named_section(struct hl_term *term, const char *name, uint32_t left,
				const struct hl_beam_instance *blank,
				struct hl_beam_instances *instances)
{
	for (size_t i = 0; left == 1 && i < HL_COUNT_OF(sections); i++) {
		struct hl_beam_instance instance = *blank;
		if (strcmp(name, sections[i].name) != 0)
			continue;
		snprintf(instance.type, sizeof(instance.type), "%s", sections[i].type);
		instance.in_pool = sections[i].in_pool;
		int r = decode_section(term, &instance);
		return r < 0 ? r : add_instance(instances, &instance);
	}
	return skip_terms(term, left);
}

/* {instance, Number, [{versions, ...}, {mbcs, [...]}, ...]} */
static int decode_instance(struct hl_term *term, struct hl_beam_instance blank,
			   struct hl_beam_instances *instances)
{
	char name[NAME_MAX_BYTES];
	uint32_t count, left;

	if (hl_term_tuple_of(term, 3) < 0 || hl_term_this_atom(term, "instance") < 0 ||
	    hl_term_unsigned(term, &blank.number) < 0 || hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		if (take_named(term, name, &left) < 0)
			return -EBADMSG;
		int r = decode_named_section(term, name, left, &blank, instances);
		if (r < 0)
			return r;
	}
	return hl_term_list_end(term, count);
}

int hl_beam_decode_instances(struct hl_term *term, const char *allocator,
			     struct hl_beam_instances *instances)
{
	struct hl_beam_instance blank = {0};
	uint32_t count;

	if (hl_term_this_atom(term, "false") == 0)
		return 0;
	snprintf(blank.allocator, sizeof(blank.allocator), "%s", allocator);
	if (hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		int r = decode_instance(term, blank, instances);
		if (r < 0)
			return r;
	}
	return hl_term_list_end(term, count);
}
