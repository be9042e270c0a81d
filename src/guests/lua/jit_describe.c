/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what a frame of LuaJIT is called: its source and line. */
#include "guests/lua/jit_layout.h"
#include "guests/lua/luajit.h"
#include "guests/lua/names.h"

static struct hl_lua_text source_of(const struct hl_luajit *lj, uint64_t proto)
{
	uint64_t string = lj_word(proto, LJ_PROTO_SOURCE);

	return hl_lua_source_name((struct hl_lua_text){(const char *)string + LJ_STRING_BYTES,
						       lj_number(string, lj->string_length_at)});
}

/* A table of lines from the function's first on, of all instructions but the first, in as few bytes as its length needs. */
static uint32_t line_of(uint64_t proto, uint32_t at)
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
		name = number ? hl_lua_numbered_name("trace ", number)
			      : (struct hl_lua_text){"trace", 5};
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
		source = source_of(lj, proto);
		first_line = lj_number(proto, LJ_PROTO_FIRST_LINE);
		if (first_line == LJ_IS_BUILTIN)
			first_line = 0, at = HL_LUAJIT_NOWHERE;
		if (!is_trace)
			name = hl_lua_function_name(source, first_line);
	}
	*ret_place = (struct hl_script_place){
		.function = name.bytes,
		.function_bytes = name.count,
		.source = source.bytes,
		.source_bytes = source.count,
		.line = proto ? line_of(proto, at) : 0,
		.first_line = first_line,
	};
	return true;
}
