/* SPDX-License-Identifier: BSD-2-Clause */
/* The answer of instrument:carriers(); see decode.h. */
#include "heap/beam/decode.h"

#include <errno.h>
#include <stdio.h>

/* A carrier as a tuple. */
enum shape {
	ELEMENTS_OTP_22 = 6, /* {Allocator, InPool, Total, Unscanned, [{Type, Count, Bytes}],
				Free} */
	ELEMENTS_OTP_21 = 7, /* {Allocator, Total, Unscanned, Bytes, Count, InPool, Free} */
};

/* Blocks of one type. A carrier is not known to have as many types as there is room for; if it
 * had, the last would be all the others. */
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

static int decode_otp_22(struct hl_term *term, struct hl_carrier *carrier)
{
	if (hl_term_boolean(term, &carrier->in_pool) < 0 ||
	    hl_term_unsigned(term, &carrier->total_bytes) < 0 ||
	    hl_term_unsigned(term, &carrier->unscanned_bytes) < 0)
		return -EBADMSG;
	return decode_blocks(term, carrier);
}

/* Blocks of a carrier were those of its allocator. */
static int decode_otp_21(struct hl_term *term, struct hl_carrier *carrier)
{
	struct hl_carrier_blocks blocks = {0};

	snprintf(blocks.type, sizeof(blocks.type), "%s", carrier->allocator);
	if (hl_term_unsigned(term, &carrier->total_bytes) < 0 ||
	    hl_term_unsigned(term, &carrier->unscanned_bytes) < 0 ||
	    hl_term_unsigned(term, &blocks.bytes) < 0 ||
	    hl_term_unsigned(term, &blocks.count) < 0 ||
	    hl_term_boolean(term, &carrier->in_pool) < 0)
		return -EBADMSG;
	if (blocks.count || blocks.bytes)
		add_blocks(carrier, &blocks);
	return 0;
}

/* Of a carrier for a single block, and of no other, the block is as large as the carrier. */
static const char *type_of(const struct hl_carrier *carrier)
{
	return carrier->allocated_blocks == 1 && carrier->allocated_bytes == carrier->total_bytes
		       ? "sbc"
		       : "mbc";
}

static void add_free(struct hl_carrier *carrier, uint32_t width)
{
	if (carrier->total_bytes > carrier->allocated_bytes)
		carrier->free_bytes = carrier->total_bytes - carrier->allocated_bytes;
	for (uint32_t slot = 0; slot < width; slot++)
		carrier->free_blocks += carrier->free_histogram.counts[slot];
}

static int decode_carrier(struct hl_term *term, struct hl_log2_shape *shape,
			  struct hl_carrier *carrier)
{
	uint32_t elements;

	carrier->arena = UINT32_MAX;
	if (hl_term_tuple(term, &elements) < 0 ||
	    (elements != ELEMENTS_OTP_21 && elements != ELEMENTS_OTP_22) ||
	    hl_term_atom(term, carrier->allocator, sizeof(carrier->allocator)) < 0)
		return -EBADMSG;
	int r = elements == ELEMENTS_OTP_21 ? decode_otp_21(term, carrier)
					    : decode_otp_22(term, carrier);
	if (r == 0)
		r = hl_beam_decode_histogram(term, shape, &carrier->free_histogram);
	if (r < 0)
		return r;
	snprintf(carrier->type, sizeof(carrier->type), "%s", type_of(carrier));
	add_free(carrier, shape->width);
	return 0;
}

static int decode_list(struct hl_term *term, struct hl_carriers *carriers)
{
	uint32_t count;

	if (hl_term_list(term, &count) < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++) {
		struct hl_carrier *carrier = hl_carriers_add(carriers);
		if (!carrier)
			return -ENOMEM;
		int r = decode_carrier(term, &carriers->shape, carrier);
		if (r < 0)
			return r;
	}
	return hl_term_list_end(term, count);
}

int hl_beam_decode_carriers(struct hl_term *term, struct hl_carriers *carriers)
{
	uint64_t start;

	int r = hl_beam_decode_ok(term);
	if (r < 0)
		return r;
	if (hl_term_tuple_of(term, 2) < 0 || hl_term_unsigned(term, &start) < 0 || start == 0 ||
	    start > HL_LOG2_START_MAX)
		return -EBADMSG;
	carriers->shape = (struct hl_log2_shape){.start = 2 * start, .is_erts = true};
	return decode_list(term, carriers);
}
