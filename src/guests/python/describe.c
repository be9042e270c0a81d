/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what a frame of Python is called: its function, file and line. */
#include "guests/python/python.h"

/* Of a string: how many characters, how wide they are, and whether they follow the object. */
#define STRING_COUNT   16u
#define STRING_STATE   32u
#define STATE_KIND(s)  ((s) >> 2 & 7u) /* bytes of a character */
#define STATE_COMPACT  (1u << 5)
#define STATE_IS_ASCII (1u << 6)
#define BYTES_START    32u /* of a bytes object: what it has */

/* Texts that are encoded, one after the other: the next ones of the same thread and those of others do
 * not see them before they have been copied. */
#define TEXTS	   32u
#define TEXT_BYTES 512u

static char texts[TEXTS][TEXT_BYTES];
static _Atomic uint32_t next_text;

struct text {
	const char *bytes;
	uint32_t count;
};

/* ---- strings ---- */

static uint32_t character(uint64_t characters, uint32_t kind, uint64_t at)
{
	uint64_t place = characters + at * kind;

	return kind == 1   ? *(const uint8_t *)place
	       : kind == 2 ? *(const uint16_t *)place
			   : *(const uint32_t *)place;
}

/* In UTF-8; returns the end. */
static char *put_character(char *at, uint32_t c)
{
	if (c < 0x80) {
		*at++ = (char)c;
		return at;
	}
	unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	*at++ = (char)((0xf0u << (3 - more)) | c >> 6 * more);
	while (more--)
		*at++ = (char)(0x80 | (c >> 6 * more & 0x3f));
	return at;
}

static struct text encode(uint64_t characters, uint32_t kind, uint64_t count)
{
	char *text = texts[atomic_fetch_add(&next_text, 1) % TEXTS], *at = text;

	for (uint64_t i = 0; i < count && at < text + TEXT_BYTES - 4; i++)
		at = put_character(at, character(characters, kind, i));
	return (struct text){text, (uint32_t)(at - text)};
}

static struct text text_of(const struct hl_python_layout *layout, uint64_t string)
{
	if (!string)
		return (struct text){"?", 1};
	uint64_t count = hl_python_word(string, STRING_COUNT);
	uint32_t state = hl_python_number(string, STRING_STATE);
	uint32_t kind = STATE_KIND(state);
	if (!(state & STATE_COMPACT) || (kind != 1 && kind != 2 && kind != 4))
		return (struct text){"?", 1};
	if (!(state & STATE_IS_ASCII))
		return encode(string + layout->text_bytes, kind, count);
	return (struct text){(const char *)string + layout->ascii_bytes,
			     count < UINT32_MAX ? (uint32_t)count : UINT32_MAX};
}

/* ---- lines ---- */

/* Of 3.8 and 3.9: a step of bytes and one of lines; Objects/lnotab_notes.txt of CPython. */
static uint32_t line_by_steps(const uint8_t *at, const uint8_t *end, uint32_t line, int64_t wanted)
{
	int64_t address = 0;

	for (; end - at >= 2; at += 2) {
		address += at[0];
		if (address > wanted)
			break;
		line += (uint32_t)(int8_t)at[1];
	}
	return line;
}

/* Of 3.10 (PEP 626): the length of a range and its step of lines; -128: it has no line. */
static uint32_t line_by_ranges(const uint8_t *at, const uint8_t *end, uint32_t line, int64_t wanted)
{
	int64_t after = 0;

	for (; end - at >= 2; at += 2) {
		bool has_line = (int8_t)at[1] != -128;
		if (has_line)
			line += (uint32_t)(int8_t)at[1];
		after += at[0];
		if (wanted < after)
			return has_line ? line : 0;
	}
	return 0;
}

/* Six bits in each byte, the lowest first; the lowest of all is the sign. */
static int32_t signed_number(const uint8_t *at, const uint8_t *end)
{
	uint32_t value = 0;

	for (unsigned shift = 0; at < end && shift < 32; shift += 6) {
		value |= (*at & 0x3fu) << shift;
		if (!(*at++ & 0x40))
			break;
	}
	return value & 1 ? -(int32_t)(value >> 1) : (int32_t)(value >> 1);
}

/*
 * From 3.11 on (Objects/locations.md of CPython): entries, whose first byte alone has its highest bit
 * set, then four bits of kind and three of length.
 */
static uint32_t line_by_locations(const uint8_t *at, const uint8_t *end, uint32_t line,
				  int64_t wanted)
{
	enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG = 14, NOWHERE = 15 };
	int64_t after = 0;

	while (at < end) {
		unsigned kind = *at >> 3 & 15;
		after += 2 * ((*at & 7) + 1);
		at++;
		if (kind == NO_COLUMNS || kind == LONG)
			line += (uint32_t)signed_number(at, end);
		else if (kind >= ONE_LINE && kind < NO_COLUMNS)
			line += kind - ONE_LINE;
		if (wanted < after)
			return kind == NOWHERE ? 0 : line;
		while (at < end && !(*at & 0x80))
			at++;
	}
	return 0;
}

static uint32_t line_of(const struct hl_python_layout *layout, uint64_t code, uint32_t at)
{
	uint32_t first = hl_python_number(code, layout->code_first_line);
	uint64_t table = hl_python_word(code, layout->code_lines);
	int64_t wanted = ((int64_t)at - 1) * layout->instruction_bytes;

	if (!table || wanted < 0)
		return first;
	const uint8_t *start = (const uint8_t *)table + BYTES_START;
	const uint8_t *end = start + hl_python_word(table, HL_PYTHON_SIZE);
	switch (layout->lines_kind) {
	case HL_PYTHON_LNOTAB:
		return line_by_steps(start, end, first, wanted);
	case HL_PYTHON_RANGES:
		return line_by_ranges(start, end, first, wanted);
	default:
		return line_by_locations(start, end, first, wanted);
	}
}

bool hl_python_describe(const struct hl_python *python, const struct hl_script_frame *frame,
			struct hl_script_place *ret_place)
{
	const struct hl_python_layout *layout = python->layout;
	uint64_t code = frame->function & HL_PYTHON_CODE_MASK;

	if (code == python->api.eval_start) {
		*ret_place = (struct hl_script_place){.function = "", .source = ""};
		return true;
	}
	uint32_t name_at = layout->code_full_name ? layout->code_full_name : layout->code_name;
	struct text name = text_of(layout, hl_python_word(code, name_at));
	struct text file = text_of(layout, hl_python_word(code, layout->code_file));
	*ret_place = (struct hl_script_place){
		.function = name.bytes,
		.function_bytes = name.count,
		.source = file.bytes,
		.source_bytes = file.count,
		.line = line_of(layout, code, frame->at),
		.first_line = hl_python_number(code, layout->code_first_line),
	};
	return true;
}
