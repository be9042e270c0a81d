/* SPDX-License-Identifier: BSD-2-Clause */
/* Instances of allocators of a BEAM as a report; carriers and allocations as terms of Erlang; see beam.h. */
#include "guests/beam/beam.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- instances of allocators ---- */

static void pool(struct hl_emit *emit, const void *in_pool, const void *context)
{
	(void)context;
	hl_cell_text(emit, *(const bool *)in_pool ? "pool" : "");
}

static void pool_member(struct hl_emit *emit, const void *in_pool, const void *context)
{
	(void)context;
	hl_emit_boolean(emit, "in_pool", *(const bool *)in_pool);
}

#define MEMBER(name) HL_MEMBER(struct hl_beam_instance, name)
#define TEXT(name)   HL_MEMBER_ARRAY(struct hl_beam_instance, name)
#define USE	     HL_MEMBER_SHARE(struct hl_beam_instance, allocated_bytes, total_bytes)
#define POOL(cell)   HL_MEMBER_CELL(struct hl_beam_instance, in_pool, cell)

static const struct hl_column columns[] = {
	{"allocator", "allocator", HL_COLUMN_TEXT, TEXT(allocator), HL_COLUMN_SHORTENED},
	{"instance", "instance", HL_COLUMN_NUMBER, MEMBER(number)},
	{"type", "type", HL_COLUMN_TEXT, TEXT(type)},
	{"carriers", "carriers", HL_COLUMN_COUNT, MEMBER(carriers)},
	{"total_bytes", "total", HL_COLUMN_BYTES, MEMBER(total_bytes)},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, MEMBER(allocated_bytes)},
	{"inuse_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(allocated_blocks)},
	{NULL, "use%", HL_COLUMN_SHARE, USE},
	{NULL, "", HL_COLUMN_BAR, USE, HL_COLUMN_OMITTED},
	{NULL, "", HL_COLUMN_TEXT, POOL(pool)},
	{"in_pool", NULL, HL_COLUMN_MEMBERS, POOL(pool_member)},
};

void hl_beam_instances_emit(struct hl_emit *emit, const struct hl_beam_instances *instances)
{
	struct hl_beam_instance sum = {0};

	for (size_t i = 0; i < instances->count; i++) {
		sum.carriers += instances->instances[i].carriers;
		sum.total_bytes += instances->instances[i].total_bytes;
		sum.allocated_bytes += instances->instances[i].allocated_bytes;
		sum.allocated_blocks += instances->instances[i].allocated_blocks;
	}
	hl_emit_object(emit, "total");
	hl_emit_unsigned(emit, "carriers", sum.carriers);
	hl_emit_unsigned(emit, "total_bytes", sum.total_bytes);
	hl_emit_unsigned(emit, "inuse_bytes", sum.allocated_bytes);
	hl_emit_unsigned(emit, "inuse_blocks", sum.allocated_blocks);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "%s in %s carrier%s; %s (%s) in use, in %s block%s",
		     HL_HEAP_BYTES(sum.total_bytes), HL_HEAP_COUNT(sum.carriers),
		     hl_format_plural(sum.carriers), HL_HEAP_BYTES(sum.allocated_bytes),
		     HL_HEAP_PERCENT(sum.allocated_bytes, sum.total_bytes),
		     HL_HEAP_COUNT(sum.allocated_blocks), hl_format_plural(sum.allocated_blocks));
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns)});
	for (size_t i = 0; i < instances->count; i++)
		hl_table_row(emit, &instances->instances[i], 0);
	hl_table_end(emit);
	hl_emit_line(emit, "instance 0 belongs to all threads that are not schedulers, N to "
			   "scheduler N");
}

/* ---- terms, in the syntax of the Erlang Reference Manual, "Data Types" ---- */

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
