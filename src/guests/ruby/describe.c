/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what a frame of Ruby is called: its method or block, file and line. */
#include "guests/ruby/ruby.h"

/* ---- objects ---- */

/* Of a string, and of an array: whether it is short, its length, and where its text or elements are. */
#define LONG_STRING   UINT64_C(0x2000)
#define SHORT_ARRAY   UINT64_C(0x2000)
#define LENGTH	      16u
#define STRING_TEXT   24u /* or its address */
#define ARRAY_FIRST   16u
#define ARRAY_ADDRESS 32u

/* A short string of releases whose objects have 40 bytes. */
#define SHORT_TEXT	   16u
#define SHORT_LENGTH_SHIFT 14u
#define SHORT_LENGTH_MASK  UINT64_C(31)

static uint8_t type_of(uint64_t place)
{
	return (uint8_t)(hl_ruby_word(place, 0) & HL_RUBY_TYPE_MASK);
}

struct hl_ruby_text hl_ruby_text(const struct hl_ruby_layout *layout, uint64_t value)
{
	uint64_t place = hl_ruby_is_object(value) ? hl_ruby_place(value) : 0;

	if (!place || type_of(place) != HL_RUBY_TYPE_STRING)
		return (struct hl_ruby_text){"?", 1};
	uint64_t flags = hl_ruby_word(place, 0);
	if (flags & LONG_STRING)
		return (struct hl_ruby_text){(const char *)hl_ruby_word(place, STRING_TEXT),
					     hl_ruby_word(place, LENGTH)};
	if (layout->short_length_in_flags)
		return (struct hl_ruby_text){(const char *)place + SHORT_TEXT,
					     flags >> SHORT_LENGTH_SHIFT & SHORT_LENGTH_MASK};
	return (struct hl_ruby_text){(const char *)place + STRING_TEXT,
				     hl_ruby_word(place, LENGTH)};
}

uint64_t hl_ruby_path(uint64_t body)
{
	uint64_t value = hl_ruby_word(body, HL_RUBY_BODY_PATH);
	uint64_t place = hl_ruby_is_object(value) ? hl_ruby_place(value) : 0;

	if (!place || type_of(place) != HL_RUBY_TYPE_ARRAY)
		return value;
	bool is_short = hl_ruby_word(place, 0) & SHORT_ARRAY;
	return hl_ruby_word(is_short ? place + ARRAY_FIRST : hl_ruby_word(place, ARRAY_ADDRESS), 0);
}

/* ---- lines ---- */

/*
 * How many entries of the table of lines begin at or before word ${at} of the code (succ_index_lookup() in iseq.c). Of the
 * first 54 words, nine in each of six numbers of the index, seven bits each; of those after them, in blocks of 512, a bit for each word
 * at which an entry begins, with how many there are before each block, and before each of the 64-bit parts of it but the first.
 */
#define DIRECT	     54u
#define DIRECT_IN_1  9u
#define DIRECT_BITS  7u
#define BLOCK	     512u
#define BLOCK_BYTES  80u /* a count, the counts of parts in nine bits each, and the parts */
#define BLOCK_PARTS  8u
#define BLOCK_BITMAP 16u

static uint32_t count_entries(uint64_t index, uint32_t at)
{
	if (at < DIRECT)
		return (uint32_t)(hl_ruby_word(index, at / DIRECT_IN_1 * 8) >>
				  DIRECT_BITS * (at % DIRECT_IN_1)) &
		       0x7f;
	uint64_t block = index + DIRECT / DIRECT_IN_1 * 8 + (at - DIRECT) / BLOCK * BLOCK_BYTES;
	uint32_t bit = (at - DIRECT) % BLOCK, part = bit / 64;
	uint64_t parts = hl_ruby_word(block, BLOCK_PARTS);
	uint32_t before = part ? (uint32_t)(parts >> 9 * (part - 1)) & 0x1ff : 0;
	uint64_t bits = hl_ruby_word(block, BLOCK_BITMAP + 8 * part);
	uint32_t count = hl_ruby_number(block, 0) + before;
	for (uint32_t i = 0; i <= bit % 64; i++)
		count += bits >> i & 1;
	return count;
}

#define LINE_BYTES 12u /* line, number of the node, events */

/* Of a frame whose next instruction is at word ${at}: that before it runs. 0: unknown. */
static uint32_t line_of(const struct hl_ruby_layout *layout, uint64_t body, uint32_t at)
{
	uint64_t lines = hl_ruby_word(body, layout->body_lines);
	uint32_t count = hl_ruby_number(body, layout->body_line_count), entry = 1;
	uint64_t index = hl_ruby_word(body, layout->body_index);

	if (!lines || !count || at > hl_ruby_number(body, HL_RUBY_BODY_WORDS))
		return 0;
	if (count > 1)
		entry = index ? count_entries(index, at ? at - 1 : 0) : 0;
	return entry && entry <= count ? hl_ruby_number(lines, (entry - 1) * LINE_BYTES) : 0;
}

uint32_t hl_ruby_first_line(const struct hl_ruby_layout *layout, uint64_t body)
{
	uint32_t line = hl_ruby_number(body, HL_RUBY_BODY_LINE);

	return layout->line_is_object ? line >> 1 : line;
}

bool hl_ruby_describe(const struct hl_ruby *ruby, const struct hl_script_frame *frame,
		      struct hl_script_place *ret_place)
{
	const struct hl_ruby_layout *layout = ruby->layout;
	uint64_t body = frame->function & HL_RUBY_BODY_MASK;
	struct hl_ruby_text name = hl_ruby_text(layout, hl_ruby_word(body, HL_RUBY_BODY_NAME));
	struct hl_ruby_text path = hl_ruby_text(layout, hl_ruby_path(body));

	*ret_place = (struct hl_script_place){
		.function = name.bytes,
		.function_bytes = (uint32_t)name.count,
		.source = path.bytes,
		.source_bytes = (uint32_t)path.count,
		.line = line_of(layout, body, frame->at),
		.first_line = hl_ruby_first_line(layout, body),
	};
	return true;
}
