/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of a BEAM as heapline's own structures; see connection.h. */
#include "guests/beam/connection.h"

#include "base/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int hl_decode_reply(struct hl_term *term, enum hl_beam_answer *ret_answer)
{
	struct hl_term at = *term;

	if (hl_term_tuple_of(&at, 2) < 0 || hl_term_this_atom(&at, "rex") < 0)
		return -EBADMSG;
	*term = at;
	*ret_answer = HL_BEAM_VALUE;
	if (hl_term_tuple_of(&at, 2) < 0 || hl_term_this_atom(&at, "badrpc") < 0)
		return 0;
	/* {badrpc, {'EXIT', {Reason, Stack}}}, or another reason instead of the inner tuple. */
	*ret_answer = HL_BEAM_FAILED;
	if (hl_term_tuple_of(&at, 2) < 0 || hl_term_this_atom(&at, "EXIT") < 0 ||
	    hl_term_tuple_of(&at, 2) < 0)
		return 0;
	if (hl_term_this_atom(&at, "undef") == 0)
		*ret_answer = HL_BEAM_UNDEFINED;
	else if (hl_term_this_atom(&at, "badarg") == 0 ||
		 hl_term_this_atom(&at, "function_clause") == 0)
		*ret_answer = HL_BEAM_BAD_ARGUMENT;
	return 0;
}

/* Takes `{ok,` of an answer of `instrument`. 0, -ENODATA, -EBADMSG. */
static int decode_ok(struct hl_term *term)
{
	if (hl_term_tuple_of(term, 2) < 0)
		return -EBADMSG;
	if (hl_term_this_atom(term, "ok") == 0)
		return 0;
	if (hl_term_this_atom(term, "error") == 0 && hl_term_this_atom(term, "not_enabled") == 0)
		return -ENODATA;
	return -EBADMSG;
}

/* Takes a histogram: a tuple of counts. The first one sets the width of ${shape}, all others must
 * have it. 0 or -EBADMSG. */
static int decode_histogram(struct hl_term *term, struct hl_log2_shape *shape,
			    struct hl_log2_histogram *ret_histogram)
{
	struct hl_log2_histogram histogram = {0};
	uint32_t width;

	if (hl_term_tuple(term, &width) < 0 || width == 0 || width > HL_LOG2_WIDTH_MAX ||
	    (shape->width && width != shape->width))
		return -EBADMSG;
	for (uint32_t slot = 0; slot < width; slot++)
		if (hl_term_unsigned(term, &histogram.counts[slot]) < 0)
			return -EBADMSG;
	shape->width = width;
	*ret_histogram = histogram;
	return 0;
}

/* ---- instrument:allocations() ---- */

#define ORIGIN_MAX (2 * HL_TERM_ATOM_MAX + 32) /* a function: two atoms and a number */

/* #{Type => Histogram} of one origin. */
static int decode_types(struct hl_term *term, const char *origin,
			struct hl_allocations *allocations)
{
	struct hl_log2_shape *shape = &allocations->shape;
	char type[HL_TERM_ATOM_MAX];
	uint32_t pairs;

	if (hl_term_map(term, &pairs) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < pairs; i++) {
		struct hl_log2_histogram histogram;
		struct hl_allocation *row;
		if (hl_term_atom(term, type, sizeof(type)) < 0 ||
		    decode_histogram(term, shape, &histogram) < 0)
			return -EBADMSG;
		int r = hl_allocations_add(allocations, origin, type, &row);
		if (r < 0)
			return r;
		row->histogram = histogram;
		for (uint32_t slot = 0; slot < shape->width; slot++)
			row->blocks += histogram.counts[slot];
	}
	return 0;
}

/* {ok, {Start, Unscanned, #{Origin => #{Type => Histogram}}}} */
int hl_decode_allocations(struct hl_term *term, struct hl_allocations *allocations)
{
	char origin[ORIGIN_MAX];
	uint64_t start;
	uint32_t pairs;

	int r = decode_ok(term);
	if (r < 0)
		return r;
	if (hl_term_tuple_of(term, 3) < 0 || hl_term_unsigned(term, &start) < 0 || start == 0 ||
	    start > HL_LOG2_START_MAX ||
	    hl_term_unsigned(term, &allocations->unscanned_bytes) < 0 ||
	    hl_term_map(term, &pairs) < 0)
		return -EBADMSG;
	allocations->shape = (struct hl_log2_shape){.start = start, .bounds = HL_LOG2_LESS_ONE};
	for (uint32_t i = 0; i < pairs; i++) {
		if (hl_term_origin(term, origin, sizeof(origin)) < 0)
			return -EBADMSG;
		r = decode_types(term, origin, allocations);
		if (r < 0)
			return r;
	}
	hl_allocations_sort(allocations);
	return 0;
}

/* ---- instrument:carriers() ---- */

/* A carrier as a tuple. */
enum shape {
	ELEMENTS_OTP_22 = 6, /* {Allocator, InPool, Total, Unscanned, [{Type, Count, Bytes}],
				Free} */
	ELEMENTS_OTP_21 = 7, /* {Allocator, Total, Unscanned, Bytes, Count, InPool, Free} */
};

/* Adds blocks of one type. Carriers have fewer types than there is room for, as far as is known; in
 * one with more, the last entry holds all others. */
static void add_blocks(struct hl_carrier *carrier, const struct hl_carrier_blocks *blocks)
{
	carrier->allocated_blocks += blocks->count;
	carrier->allocated_bytes += blocks->bytes;
	if (carrier->block_kinds < HL_CARRIER_BLOCKS_MAX) {
		carrier->blocks[carrier->block_kinds++] = *blocks;
		return;
	}
	struct hl_carrier_blocks *others = &carrier->blocks[HL_CARRIER_BLOCKS_MAX - 1];
	snprintf(others->type, sizeof(others->type), "others");
	others->count += blocks->count;
	others->bytes += blocks->bytes;
}

static int decode_blocks(struct hl_term *term, struct hl_carrier *carrier)
{
	uint32_t count;

	if (hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		struct hl_carrier_blocks blocks = {0};
		if (hl_term_tuple_of(term, 3) < 0 ||
		    hl_term_atom(term, blocks.type, sizeof(blocks.type)) < 0 ||
		    hl_term_unsigned(term, &blocks.count) < 0 ||
		    hl_term_unsigned(term, &blocks.bytes) < 0)
			return -EBADMSG;
		add_blocks(carrier, &blocks);
	}
	return hl_term_list_end(term, count);
}

static int decode_carrier(struct hl_term *term, struct hl_log2_shape *shape,
			  struct hl_carrier *carrier)
{
	struct hl_carrier_blocks blocks = {0};
	uint32_t elements;
	int r = 0;

	carrier->arena = UINT32_MAX;
	if (hl_term_tuple(term, &elements) < 0 ||
	    (elements != ELEMENTS_OTP_21 && elements != ELEMENTS_OTP_22) ||
	    hl_term_atom(term, carrier->allocator, sizeof(carrier->allocator)) < 0 ||
	    (elements == ELEMENTS_OTP_22 && hl_term_boolean(term, &carrier->in_pool) < 0) ||
	    hl_term_unsigned(term, &carrier->total_bytes) < 0 ||
	    hl_term_unsigned(term, &carrier->unscanned_bytes) < 0)
		return -EBADMSG;
	if (elements == ELEMENTS_OTP_22) {
		r = decode_blocks(term, carrier);
	} else {
		/* OTP 21 gives no types: all blocks of a carrier have its allocator's. */
		snprintf(blocks.type, sizeof(blocks.type), "%s", carrier->allocator);
		if (hl_term_unsigned(term, &blocks.bytes) < 0 ||
		    hl_term_unsigned(term, &blocks.count) < 0 ||
		    hl_term_boolean(term, &carrier->in_pool) < 0)
			return -EBADMSG;
		if (blocks.count || blocks.bytes)
			add_blocks(carrier, &blocks);
	}
	if (r == 0)
		r = decode_histogram(term, shape, &carrier->free_histogram);
	if (r < 0)
		return r;
	/* A block is as large as its carrier only in a carrier for a single block. */
	bool is_single =
		carrier->allocated_blocks == 1 && carrier->allocated_bytes == carrier->total_bytes;
	snprintf(carrier->type, sizeof(carrier->type), is_single ? "sbc" : "mbc");
	if (carrier->total_bytes > carrier->allocated_bytes)
		carrier->free_bytes = carrier->total_bytes - carrier->allocated_bytes;
	for (uint32_t slot = 0; slot < shape->width; slot++)
		carrier->free_blocks += carrier->free_histogram.counts[slot];
	return 0;
}

/* {ok, {Start, [Carrier]}} */
int hl_decode_carriers(struct hl_term *term, struct hl_carriers *carriers)
{
	uint64_t start;
	uint32_t count;

	int r = decode_ok(term);
	if (r < 0)
		return r;
	if (hl_term_tuple_of(term, 2) < 0 || hl_term_unsigned(term, &start) < 0 || start == 0 ||
	    start > HL_LOG2_START_MAX || hl_term_list(term, &count) < 0)
		return -EBADMSG;
	carriers->shape = (struct hl_log2_shape){.start = 2 * start, .bounds = HL_LOG2_LESS_ONE};
	for (uint32_t i = 0; i < count; i++) {
		struct hl_carrier *carrier = hl_carriers_add(carriers);
		if (!carrier)
			return -ENOMEM;
		r = decode_carrier(term, &carriers->shape, carrier);
		if (r < 0)
			return r;
	}
	return hl_term_list_end(term, count);
}

/* ---- bounds of histograms ---- */

/* Of blocks, by OTP release; those of free blocks are quarters where these are halves. */
static const struct {
	long first, last;
	enum hl_log2_bounds bounds;
} releases[] = {
	{21, 25, HL_LOG2_LESS_ONE},
	{27, 29, HL_LOG2_HALVES},
};

bool hl_decode_knows_release(const char *otp_release, enum hl_log2_bounds *ret_bounds)
{
	long release = strtol(otp_release, NULL, 10);

	for (size_t i = 0; i < HL_COUNT_OF(releases); i++)
		if (release >= releases[i].first && release <= releases[i].last) {
			*ret_bounds = releases[i].bounds;
			return true;
		}
	return false;
}

#define HEADER_MAX 4096 /* more than the head of a carrier takes, which is not a free block */

/* Whether the free blocks of each carrier take what it has free, if slots have ${bounds}. Sums of
 * counts that a node made up must not overflow. */
static bool bounds_fit(const struct hl_carriers *carriers, enum hl_log2_bounds bounds)
{
	const struct hl_log2_shape shape = {carriers->shape.start, carriers->shape.width, bounds};

	for (size_t i = 0; i < carriers->count; i++) {
		const struct hl_carrier *carrier = &carriers->carriers[i];
		double least = 0, below = HEADER_MAX;
		if (carrier->unscanned_bytes || !carrier->free_blocks)
			continue;
		for (uint32_t slot = 0; slot < shape.width; slot++) {
			double count = (double)carrier->free_histogram.counts[slot];
			least += count * (double)hl_log2_first(&shape, slot);
			below += count * (double)hl_log2_end(&shape, slot);
		}
		if (least > (double)carrier->free_bytes || below <= (double)carrier->free_bytes ||
		    (shape.width > 1 && carrier->free_histogram.counts[0] &&
		     bounds == HL_LOG2_QUARTERS))
			return false;
	}
	return true;
}

bool hl_decode_bounds(struct hl_carriers *carriers, const char *otp_release,
		      enum hl_log2_bounds *ret_bounds)
{
	bool fit_21 = bounds_fit(carriers, HL_LOG2_LESS_ONE);
	bool fit_27 = bounds_fit(carriers, HL_LOG2_QUARTERS), is_known = true;
	enum hl_log2_bounds bounds = fit_21 ? HL_LOG2_LESS_ONE : HL_LOG2_HALVES;

	if (fit_21 == fit_27) {
		bounds = HL_LOG2_HALVES;
		is_known = hl_decode_knows_release(otp_release, &bounds);
	}
	carriers->shape.bounds = bounds == HL_LOG2_HALVES ? HL_LOG2_QUARTERS : HL_LOG2_LESS_ONE;
	*ret_bounds = bounds;
	return is_known;
}

/*
 * ---- erlang:system_info({allocator, A}) ----
 *
 * A list of instances, each with lists of what it has in carriers of each type; these hold tuples
 * of a name and numbers, of which the first is the present one. Up to OTP 22 blocks are counted in
 * `blocks` and `blocks_size`, since then by the type of block within `blocks`.
 */

#define NAME_MAX_BYTES 64 /* no name known here is longer */

static const struct {
	const char *name, *type;
	bool in_pool;
} sections[] = {
	{"mbcs", "mbc", false},
	{"sbcs", "sbc", false},
	{"mbcs_pool", "mbc", true},
};

/* Takes the head and the name of a tuple {Name, ...}; ${ret_left} is the number of its other
 * elements. */
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

/* Takes ${left} terms after ${name}; if the first is a number, adds it where it belongs. */
static int add_figure(struct hl_term *term, const char *name, uint32_t left,
		      struct hl_beam_instance *instance)
{
	struct hl_term at = *term;
	uint64_t number;

	if (skip_terms(term, left) < 0)
		return -EBADMSG;
	if (hl_term_unsigned(&at, &number) < 0)
		return 0;
	if (!strcmp(name, "carriers"))
		instance->carriers += number;
	else if (!strcmp(name, "carriers_size"))
		instance->total_bytes += number;
	else if (!strcmp(name, "blocks") || !strcmp(name, "count"))
		instance->allocated_blocks += number;
	else if (!strcmp(name, "blocks_size") || !strcmp(name, "size"))
		instance->allocated_bytes += number;
	return 0;
}

/*
 * [{blocks, [{Type, Figures}, ...]}, {carriers, N, ...}, ...], where Figures of a type are
 * [{count, N, ...}, {size, N, ...}]: a list of this form, too, but ${of_type}.
 */
static int decode_section(struct hl_term *term, bool of_type, struct hl_beam_instance *instance)
{
	char name[NAME_MAX_BYTES];
	uint32_t count, types, left;

	if (hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		if (take_named(term, name, &left) < 0)
			return -EBADMSG;
		if (of_type || left != 1 || strcmp(name, "blocks") != 0) {
			if (add_figure(term, name, left, instance) < 0)
				return -EBADMSG;
			continue;
		}
		if (hl_term_list(term, &types) < 0)
			return -EBADMSG;
		for (uint32_t k = 0; k < types; k++)
			if (take_named(term, name, &left) < 0 || left != 1 ||
			    decode_section(term, true, instance) < 0)
				return -EBADMSG;
		if (hl_term_list_end(term, types) < 0)
			return -EBADMSG;
	}
	return hl_term_list_end(term, count);
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
		struct hl_beam_instance instance = blank;
		size_t at = 0;
		if (take_named(term, name, &left) < 0)
			return -EBADMSG;
		while (at < HL_COUNT_OF(sections) && strcmp(name, sections[at].name) != 0)
			at++;
		bool is_section = left == 1 && at < HL_COUNT_OF(sections);
		int r = is_section ? decode_section(term, false, &instance)
				   : skip_terms(term, left);
		if (r == 0 && (instance.carriers || instance.total_bytes)) {
			snprintf(instance.type, sizeof(instance.type), "%s", sections[at].type);
			instance.in_pool = sections[at].in_pool;
			r = HL_ARRAY_APPEND(instances->instances, instances->count,
					    instances->capacity, instance);
		}
		if (r < 0)
			return r;
	}
	return hl_term_list_end(term, count);
}

int hl_decode_instances(struct hl_term *term, const char *allocator,
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
