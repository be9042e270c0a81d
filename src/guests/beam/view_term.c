/* SPDX-License-Identifier: BSD-2-Clause */
/* Carriers and allocations in the syntax of the Erlang Reference Manual, "Data Types"; see views.h.
 */
#include "guests/beam/views.h"

#include "base/cleanup.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ATOM_LETTERS_MAX 255 /* Erlang refuses longer ones */
#define REPLACEMENT	 "\xef\xbf\xbd"

/* Words that stand for themselves, not for an atom. */
static const char *const reserved[] = {
	"after", "and",	  "andalso", "band",   "begin",	  "bnot", "bor", "bsl",	 "bsr", "bxor",
	"case",	 "catch", "cond",    "div",    "else",	  "end",  "fun", "if",	 "let", "maybe",
	"not",	 "of",	  "or",	     "orelse", "receive", "rem",  "try", "when", "xor",
};

static bool is_plain(const char *text)
{
	if (*text < 'a' || *text > 'z' || strlen(text) > ATOM_LETTERS_MAX)
		return false;
	for (const char *at = text; *at; at++)
		if (!isalnum((unsigned char)*at) && *at != '_' && *at != '@')
			return false;
	for (size_t i = 0; i < HL_COUNT_OF(reserved); i++)
		if (!strcmp(text, reserved[i]))
			return false;
	return true;
}

/* Quoted where it must be. What is no UTF-8 in ${text} becomes U+FFFD. */
static void put_atom(FILE *out, const char *text)
{
	if (is_plain(text)) {
		fputs(text, out);
		return;
	}
	putc('\'', out);
	for (unsigned letters = 0; *text && letters < ATOM_LETTERS_MAX; letters++) {
		uint32_t code_point;
		int length = hl_utf8_decode(text, &code_point);
		if (!length)
			fputs(REPLACEMENT, out);
		else if (hl_utf8_is_control(code_point))
			fprintf(out, "\\x{%x}", code_point);
		else if (*text == '\'' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else
			fprintf(out, "%.*s", length, text);
		text += length ? length : 1;
	}
	putc('\'', out);
}

/* A tuple of the counts. */
static void put_histogram(FILE *out, const struct hl_log2_shape *shape,
			  const struct hl_log2_histogram *histogram)
{
	putc('{', out);
	for (uint32_t slot = 0; slot < shape->width; slot++)
		fprintf(out, "%s%" PRIu64, slot ? "," : "", histogram->counts[slot]);
	putc('}', out);
}

/* The sizes that each of the slots of ${what} has. */
static void put_comment(FILE *out, const char *what, const struct hl_log2_shape *shape)
{
	char label[HL_HEAP_LABEL_MAX];

	fprintf(out, "%%%% sizes of %s:", what);
	for (uint32_t slot = 0; slot < shape->width; slot++)
		fprintf(out, "%s %s", slot ? ";" : "", hl_heap_histogram_label(shape, slot, label));
	putc('\n', out);
}

void hl_erlang_term_put_carriers(FILE *out, const struct hl_carriers *carriers)
{
	const struct hl_log2_shape *shape = &carriers->shape;

	fputs("%% coding: utf-8\n"
	      "%% {ok,{HistogramStart,[{Allocator,InPool,Total,Unscanned,[{Type,Count,Bytes}],"
	      "FreeBlocks}]}}\n",
	      out);
	put_comment(out, "free blocks", shape);
	/* The start as the option that makes such a histogram has it. */
	fprintf(out, "{ok,{%" PRIu64 ",\n  [",
		shape->bounds == HL_LOG2_POWERS ? shape->start : shape->start / 2);
	for (size_t i = 0; i < carriers->count; i++) {
		const struct hl_carrier *carrier = &carriers->carriers[i];
		fputs(i ? ",\n   {" : "{", out);
		put_atom(out, carrier->allocator);
		fprintf(out, ",%s,%" PRIu64 ",%" PRIu64 ",[", carrier->in_pool ? "true" : "false",
			carrier->total_bytes, carrier->unscanned_bytes);
		for (uint32_t kind = 0; kind < carrier->block_kinds; kind++) {
			const struct hl_carrier_blocks *blocks = &carrier->blocks[kind];
			fputs(kind ? ",{" : "{", out);
			put_atom(out, blocks->type);
			fprintf(out, ",%" PRIu64 ",%" PRIu64 "}", blocks->count, blocks->bytes);
		}
		fputs("],", out);
		put_histogram(out, shape, &carrier->free_histogram);
		putc('}', out);
	}
	fputs("]}}.\n", out);
}

/* Texts are kept once, so equal origins are equal numbers. */
static int compare_origins(const void *left, const void *right)
{
	const struct hl_allocation *a = *(const struct hl_allocation *const *)left;
	const struct hl_allocation *b = *(const struct hl_allocation *const *)right;

	if (a->origin != b->origin)
		return a->origin < b->origin ? -1 : 1;
	return a < b ? -1 : a > b;
}

int hl_erlang_term_put_allocations(FILE *out, const struct hl_allocations *allocations)
{
	HL_FREED const struct hl_allocation **rows = calloc(allocations->count + 1, sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i < allocations->count; i++)
		rows[i] = &allocations->rows[i];
	qsort(rows, allocations->count, sizeof(*rows), compare_origins);
	fputs("%% coding: utf-8\n"
	      "%% {ok,{HistogramStart,Unscanned,#{Origin => #{Type => Blocks}}}}\n",
	      out);
	put_comment(out, "blocks", &allocations->shape);
	fprintf(out, "{ok,{%" PRIu64 ",%" PRIu64 ",\n   #{", allocations->shape.start,
		allocations->unscanned_bytes);
	for (size_t i = 0; i < allocations->count; i++) {
		bool begins = !i || rows[i]->origin != rows[i - 1]->origin;
		if (begins) {
			fputs(i ? "},\n     " : "", out);
			put_atom(out, hl_strings_text(&allocations->names, rows[i]->origin));
		}
		fputs(begins ? " =>\n      #{" : ",\n        ", out);
		put_atom(out, hl_strings_text(&allocations->names, rows[i]->type));
		fputs(" => ", out);
		put_histogram(out, &allocations->shape, &rows[i]->histogram);
	}
	fputs(allocations->count ? "}}}}.\n" : "}}}.\n", out);
	return 0;
}
