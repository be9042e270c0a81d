/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what a frame of Lua is called: its source and line. */
#include "guests/lua/names.h"

#include "guests/lua/evals.h"

#include <string.h>

#define STRING_NAME_MAX 40u

/* Texts that are put together, one after the other: the next ones of the same thread and those of
 * others do not see them before they have been copied. */
#define TEXTS	   64u
#define TEXT_BYTES 96u

static char texts[TEXTS][TEXT_BYTES];
static _Atomic uint32_t next_text;

struct hl_lua_text hl_lua_string(const struct hl_lua_layout *layout, uint64_t string)
{
	bool is_long = !layout->string_short_length || (hl_lua_byte(string, 8) & HL_LUA_TAG_LONG);
	uint64_t bytes = string + layout->string_bytes;

	if (is_long && layout->string_is_pointer)
		bytes = *(const uint64_t *)bytes;
	return (struct hl_lua_text){
		(const char *)bytes,
		is_long ? hl_lua_number(string, layout->string_long_length)
			: hl_lua_byte(string, layout->string_short_length),
	};
}

/*
 * A program that loads each message as a chunk has chunks without end, and each name stays in the recording: only the first 4,096 have
 * one of their own. By their hashes, which are not 0.
 */
#define STRINGS_MAX  4096u
#define STRINGS_BITS 13

static _Atomic uint32_t known_strings[1u << STRINGS_BITS];
static _Atomic uint32_t string_count;

static bool has_name(struct hl_lua_text name)
{
	uint64_t hash = name.count;

	for (uint32_t i = 0; i < name.count; i++)
		hash = (hash ^ (uint8_t)name.bytes[i]) * UINT64_C(0x100000001b3);
	uint32_t mixed = (uint32_t)(hash * UINT64_C(0x9e3779b97f4a7c15) >> 32) | 1;
	for (uint32_t at = mixed >> (32 - STRINGS_BITS);; at++) {
		_Atomic uint32_t *place = &known_strings[at % HL_COUNT_OF(known_strings)];
		uint32_t known = atomic_load_explicit(place, memory_order_relaxed);
		if (!known && atomic_load(&string_count) >= STRINGS_MAX)
			return false;
		if (!known && atomic_compare_exchange_strong(place, &known, mixed)) {
			atomic_fetch_add(&string_count, 1);
			return true;
		}
		if (known == mixed)
			return true;
	}
}

/* [string "the first line"]: a chunk that was not a file is its own source. */
static struct hl_lua_text name_of_string(struct hl_lua_text chunk)
{
	static const char head[] = "[string \"", tail[] = "\"]", cut[] = "...\"]";
	static const char others[] = "[string \"...\"]";
	char *name = texts[atomic_fetch_add(&next_text, 1) % TEXTS];
	uint32_t count = 0, bytes = sizeof(head) - 1;

	while (count < chunk.count && count < STRING_NAME_MAX && chunk.bytes[count] != '\n')
		count++;
	bool is_cut = count < chunk.count;
	uint32_t tail_bytes = is_cut ? sizeof(cut) - 1 : sizeof(tail) - 1;
	memcpy(name, head, bytes);
	memcpy(name + bytes, chunk.bytes, count);
	memcpy(name + bytes + count, is_cut ? cut : tail, tail_bytes);
	struct hl_lua_text whole = {name, bytes + count + tail_bytes};
	return has_name(whole) ? whole : (struct hl_lua_text){others, sizeof(others) - 1};
}

struct hl_lua_text hl_lua_source_name(struct hl_lua_text source)
{
	if (source.count && (*source.bytes == '@' || *source.bytes == '='))
		return (struct hl_lua_text){source.bytes + 1, source.count - 1};
	/* No script begins with a slash: a host has forgotten the '@' before a path. */
	if (source.count && *source.bytes == '/')
		return source;
	return name_of_string(source);
}

static struct hl_lua_text source_of(const struct hl_lua_layout *layout, uint64_t proto)
{
	uint64_t string = hl_lua_word(proto, layout->proto_source);

	return string ? hl_lua_source_name(hl_lua_string(layout, string))
		      : (struct hl_lua_text){"?", 1};
}

/* A byte for each instruction: what its line has more than the one before; from time to time the line
 * stands in a second table, (instruction, line). */
static uint32_t line_by_steps(const struct hl_lua_layout *layout, uint64_t proto, uint32_t at)
{
	const int8_t *steps = (const int8_t *)hl_lua_word(proto, layout->proto_lines);
	const uint32_t *absolute =
		(const uint32_t *)hl_lua_word(proto, layout->proto_absolute_lines);
	uint32_t count = hl_lua_number(proto, layout->proto_absolute_count);
	uint32_t line = hl_lua_number(proto, layout->proto_first_line), first = 0;

	size_t after = HL_LOWER_BOUND(i, count, absolute[2 * i] <= at);
	if (after) {
		first = absolute[2 * (after - 1)] + 1;
		line = absolute[2 * (after - 1) + 1];
	}
	for (; first <= at; first++)
		line += (uint32_t)steps[first];
	return line;
}

static uint32_t line_of(const struct hl_lua_layout *layout, uint64_t proto, uint32_t at)
{
	const uint32_t *lines = (const uint32_t *)hl_lua_word(proto, layout->proto_lines);

	if (!lines || at >= hl_lua_number(proto, layout->proto_line_count))
		return 0; /* stripped */
	return layout->proto_absolute_lines ? line_by_steps(layout, proto, at) : lines[at];
}

/* In decimal; returns the end. */
static char *put_number(char *at, uint32_t number)
{
	char digits[10];
	unsigned count = 0;

	do
		digits[count++] = (char)('0' + number % 10);
	while (number /= 10);
	while (count)
		*at++ = digits[--count];
	return at;
}

struct hl_lua_text hl_lua_function_name(struct hl_lua_text source, uint32_t first_line)
{
	static const char head[] = "function <";
	char *name = texts[atomic_fetch_add(&next_text, 1) % TEXTS], *at = name;
	uint32_t skipped = 0, room = TEXT_BYTES - sizeof(head) - 16;

	if (!first_line)
		return (struct hl_lua_text){"main chunk", 10};
	for (uint32_t i = 0; i < source.count; i++)
		if (source.bytes[i] == '/')
			skipped = i + 1;
	uint32_t count = source.count - skipped < room ? source.count - skipped : room;
	memcpy(at, head, sizeof(head) - 1);
	at += sizeof(head) - 1;
	memcpy(at, source.bytes + skipped, count);
	at += count;
	*at++ = ':';
	at = put_number(at, first_line);
	*at++ = '>';
	return (struct hl_lua_text){name, (uint32_t)(at - name)};
}

struct hl_lua_text hl_lua_numbered_name(const char *what, uint32_t number)
{
	char *name = texts[atomic_fetch_add(&next_text, 1) % TEXTS], *at = name;

	while (*what)
		*at++ = *what++;
	at = put_number(at, number);
	return (struct hl_lua_text){name, (uint32_t)(at - name)};
}

bool hl_lua_describe(const struct hl_lua *lua, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	const struct hl_lua_layout *layout = &lua->layout;
	uint64_t proto = frame->function & ((UINT64_C(1) << HL_LUA_PRINT_SHIFT) - 1);

	struct hl_lua_text source = source_of(layout, proto);
	uint32_t first_line = hl_lua_number(proto, layout->proto_first_line);
	struct hl_lua_text name = hl_lua_function_name(source, first_line);
	*ret_place = (struct hl_script_place){
		.function = name.bytes,
		.function_bytes = name.count,
		.source = source.bytes,
		.source_bytes = source.count,
		.line = line_of(layout, proto, frame->at),
		.first_line = first_line,
	};
	return true;
}
