/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what a frame of Lua or LuaJIT is called: its source and line. */
#include "guests/lua/lua.h"

#include "guests/lua/luajit.h"

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

/* Of a chunk that was loaded as ${source}: a path, what its host calls it, or its first line. First lines beyond the first 4,096
 * different ones are all [string "..."]. */
static struct hl_lua_text source_name(struct hl_lua_text source)
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

	return string ? source_name(hl_lua_string(layout, string)) : (struct hl_lua_text){"?", 1};
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

/* A function has no name of its own; it is known by where it begins. 0: it is not a function, but a chunk. */
static struct hl_lua_text function_name(struct hl_lua_text source, uint32_t first_line)
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

/* "trace 7": ${what}, a constant of a few letters, and ${number}. */
static struct hl_lua_text numbered_name(const char *what, uint32_t number)
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
	struct hl_lua_text name = function_name(source, first_line);
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

/* ---- LuaJIT ---- */

static struct hl_lua_text jit_source_of(const struct hl_luajit *lj, uint64_t proto)
{
	uint64_t string = lj_word(proto, LJ_PROTO_SOURCE);

	return source_name((struct hl_lua_text){(const char *)string + LJ_STRING_BYTES,
						lj_number(string, lj->string_length_at)});
}

/* A table of lines from the function's first on, of all instructions but the first, in as few bytes as its length needs. */
static uint32_t jit_line_of(uint64_t proto, uint32_t at)
{
	uint64_t table = lj_word(proto, LJ_PROTO_LINE_TABLE);
	uint32_t first = lj_number(proto, LJ_PROTO_FIRST_LINE);
	uint32_t lines = lj_number(proto, LJ_PROTO_LINES), index = at - 1;

	if (!table || at >= lj_number(proto, LJ_PROTO_COUNT))
		return 0; /* stripped, or not known where */
	if (!at)
		return first;
	if (lines <= UINT8_MAX)
		return first + lj_byte(table, index);
	return first + (lines <= UINT16_MAX ? lj_short(table, index * UINT64_C(2))
					    : lj_number(table, index * UINT64_C(4)));
}

bool hl_luajit_describe(const struct hl_luajit *lj, const struct hl_script_frame *frame,
			struct hl_script_place *ret_place)
{
	static const char compiler[] = "[trace compiler]";
	bool is_trace = frame->at & HL_LUAJIT_IS_TRACE;
	uint64_t proto = frame->function;
	uint32_t at = frame->at, first_line = 0;
	struct hl_lua_text name = {"[C]", 3}, source = {"[C]", 3};

	if (is_trace) {
		uint32_t number = at & ~HL_LUAJIT_IS_TRACE;
		name = number ? numbered_name("trace ", number) : (struct hl_lua_text){"trace", 5};
		bool is_known = proto != (uint64_t)&hl_luajit_trace;
		at = is_known ? (uint32_t)((lj_word(frame->function, LJ_TRACE_PC) -
					    lj_word(frame->function, LJ_TRACE_PROTO) -
					    LJ_PROTO_BYTES) /
					   LJ_INSTRUCTION)
			      : HL_LUAJIT_NOWHERE;
		proto = is_known ? lj_word(frame->function, LJ_TRACE_PROTO) : 0;
	} else if (proto == (uint64_t)&hl_luajit_compiler) {
		name = (struct hl_lua_text){compiler, sizeof(compiler) - 1};
		proto = 0;
	} else if (proto == (uint64_t)&hl_luajit_c) {
		proto = 0;
	}
	if (proto) {
		source = jit_source_of(lj, proto);
		first_line = lj_number(proto, LJ_PROTO_FIRST_LINE);
		if (first_line == LJ_IS_BUILTIN)
			first_line = 0, at = HL_LUAJIT_NOWHERE;
		if (!is_trace)
			name = function_name(source, first_line);
	}
	*ret_place = (struct hl_script_place){
		.function = name.bytes,
		.function_bytes = name.count,
		.source = source.bytes,
		.source_bytes = source.count,
		.line = proto ? jit_line_of(proto, at) : 0,
		.first_line = first_line,
	};
	return true;
}
