/* SPDX-License-Identifier: BSD-2-Clause */
/* Carriers as a term of Erlang; see carriers.h. */
#include "view/carriers.h"
#include "view/erlang_term.h"

#include <inttypes.h>

/* As the option that makes such a histogram has it. */
static uint64_t start_of(const struct hl_log2_shape *shape)
{
	return shape->is_erts ? shape->start / 2 : shape->start;
}

static void put_blocks(FILE *out, const struct hl_carrier *carrier)
{
	putc('[', out);
	for (uint32_t i = 0; i < carrier->block_kinds; i++) {
		const struct hl_carrier_blocks *blocks = &carrier->blocks[i];
		fputs(i ? ",{" : "{", out);
		hl_erlang_put_atom(out, blocks->type);
		fprintf(out, ",%" PRIu64 ",%" PRIu64 "}", blocks->count, blocks->bytes);
	}
	putc(']', out);
}

/* {Allocator, InPool, Total, Unscanned, [{Type, Count, Bytes}], FreeBlocks} */
static void put_carrier(FILE *out, const struct hl_carrier *carrier,
			const struct hl_log2_shape *shape)
{
	putc('{', out);
	hl_erlang_put_atom(out, carrier->allocator);
	fprintf(out, ",%s,%" PRIu64 ",%" PRIu64 ",", carrier->in_pool ? "true" : "false",
		carrier->total_bytes, carrier->unscanned_bytes);
	put_blocks(out, carrier);
	putc(',', out);
	hl_erlang_put_histogram(out, shape, &carrier->free_histogram);
	putc('}', out);
}

void hl_carriers_write_term(FILE *out, const struct hl_carriers *carriers)
{
	fputs("%% coding: utf-8\n"
	      "%% {ok,{HistogramStart,[{Allocator,InPool,Total,Unscanned,[{Type,Count,Bytes}],"
	      "FreeBlocks}]}}\n",
	      out);
	hl_erlang_put_slots(out, "free blocks", &carriers->shape);
	fprintf(out, "{ok,{%" PRIu64 ",\n  [", start_of(&carriers->shape));
	for (size_t i = 0; i < carriers->count; i++) {
		fputs(i ? ",\n   " : "", out);
		put_carrier(out, &carriers->carriers[i], &carriers->shape);
	}
	fputs("]}}.\n", out);
}
