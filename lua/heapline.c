/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * require "heapline": what a script in Lua says to, and asks of, the recorder of its process; see docs/lua.md. One source for
 * Lua 5.1 to 5.5 and LuaJIT. Where the recorder is preloaded its functions are called; where it joined the process
 * (heapline attach) or there is none, the collector is asked. A function that cannot do what it is for returns nil and the
 * reason; only wrong arguments raise errors.
 */
#include "heapline/heapline.h"

#include "recorder/start.h"

#include <errno.h>
#include <inttypes.h>
#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma weak hl_mode_set
#pragma weak hl_mark
#pragma weak hl_log_segments_get
#pragma weak hl_log_segments_set
#pragma weak hl_tag_push
#pragma weak hl_tag_pop

__attribute__((visibility("default"))) int luaopen_heapline(lua_State *L);

/* By enum hl_recording_mode; the names of the game driver's MemRecordType, and heapline's words. */
static const char *const mode_names[] = {"CLOSED", "MEM_RECORD", "MEM_FAST", "LOG_RECORD",
					 "LOG_FAST"};
static const char *const mode_words[] = {"closed",     "mem-record", "mem-fast",
					 "log-record", "log-fast",   NULL};

/* ---- answers ---- */

static int refuse(lua_State *L, const char *reason)
{
	lua_pushnil(L);
	lua_pushstring(L, reason);
	return 2;
}

static int succeed(lua_State *L)
{
	lua_pushboolean(L, 1);
	return 1;
}

/* What the library's functions return, for ${subject}. */
static const char *sentence_of(int error, const char *subject, char text[HL_REASON_BYTES])
{
	const char *reason = strerror(-error);

	if (error == -ENOTCONN)
		reason = "nothing is being recorded; start the program with 'heapline record'";
	else if (error == -EOPNOTSUPP)
		reason = "the mode has no log; choose LOG_RECORD or LOG_FAST";
	else if (error == -EINVAL)
		reason = "it is out of range";
	else if (error == -ENAMETOOLONG)
		reason = "it is too long";
	else if (error == -EAGAIN)
		reason = "there are too many at once; try again later";
	snprintf(text, HL_REASON_BYTES, "cannot set %s: %s", subject, reason);
	return text;
}

/* "VERB PID ARGUMENT" of a collector, for what the library is not there for. */
static int ask(lua_State *L, const char *verb, const char *argument)
{
	const char *question = lua_pushfstring(L, "%s %d %s", verb, (int)getpid(), argument);
	char reason[HL_ASK_REASON_BYTES];
	struct hl_answer answer = {0};

	if (hl_ask_collector(question, &answer, reason) < 0)
		return refuse(L, reason);
	hl_answer_release(&answer);
	return succeed(L);
}

/* ---- what is recorded ---- */

static int check_mode(lua_State *L, int argument)
{
	if (lua_isnoneornil(L, argument))
		return HL_MEM_RECORD;
	if (lua_type(L, argument) ==
	    LUA_TNUMBER) /* the driver's, perhaps, by which 4 is another mode */
		return luaL_argerror(
			L, argument,
			"modes are words, not numbers; use MemRecordType.MEM_RECORD, "
			"MemRecordType.LOG_FAST, ... or 'mem-record', 'log-fast', ...");
	return luaL_checkoption(L, argument, NULL, mode_words);
}

static int set_enable_mem_profiler(lua_State *L)
{
	int mode = check_mode(L, 1), r = -ENOSYS;
	char text[HL_REASON_BYTES];

	if (hl_mode_set)
		r = hl_mode_set((enum hl_recording_mode)mode);
	if (r == 0)
		return succeed(L);
	if (r == -EOPNOTSUPP)
		return refuse(L,
			      "cannot set the mode: the limit of address space left no room for a "
			      "log; raise 'ulimit -v'");
	if (r != -ENOSYS && r != -ENOTCONN)
		return refuse(L, sentence_of(r, "the mode", text));
	return ask(L, "mode", mode_words[mode]);
}

static int mark(lua_State *L)
{
	const char *name = luaL_checkstring(L, 1);
	char text[HL_REASON_BYTES];
	int r = hl_mark ? hl_mark(name) : -ENOSYS;

	if (r == 0)
		return succeed(L);
	if (strlen(name) > HL_MARK_NAME_MAX)
		r = -ENAMETOOLONG;
	if (r == -EINVAL) /* as the collector says */
		return refuse(L, "the name of the mark is empty or has control characters; use one "
				 "line of plain text");
	if (r != -ENOSYS && r != -ENOTCONN)
		return refuse(L, sentence_of(r, "the mark", text));
	return ask(L, "mark", name);
}

/* ---- the log's files ---- */

static int set_mem_profiler_log_number(lua_State *L)
{
	char text[HL_REASON_BYTES];
	lua_Integer count = luaL_checkinteger(L, 1);

	luaL_argcheck(L, count >= 1 && count <= 1000000, 1, "a number from 1 to 1000000");
	int r = hl_log_segments_set ? hl_log_segments_set((unsigned)count) : -ENOSYS;
	if (r == 0)
		return succeed(L);
	if (r != -ENOSYS && r != -ENOTCONN)
		return refuse(L, sentence_of(r, "the number of log files", text));
	snprintf(text, sizeof(text), "%u", (unsigned)count);
	return ask(L, "log-segments", text);
}

/* From the state of all processes of the recording. */
static int ask_log_number(lua_State *L)
{
	static const char member[] = "\"log_segments_kept\":";
	char own[32], reason[HL_ASK_REASON_BYTES];
	struct hl_answer answer = {0};

	if (hl_ask_collector("status 0", &answer, reason) < 0)
		return refuse(L, reason);
	snprintf(own, sizeof(own), "{\"pid\":%d,", getpid());
	const char *process = strstr(answer.text, own);
	const char *next = process ? strstr(process + 1, "{\"pid\":") : NULL;
	const char *kept = process ? strstr(process, member) : NULL;
	lua_Integer count = 0;
	if (kept && (!next || kept < next))
		count = strtol(kept + sizeof(member) - 1, NULL, 10);
	hl_answer_release(&answer);
	if (count == 0)
		return refuse(L, "this process has no log; choose LOG_RECORD or LOG_FAST");
	lua_pushinteger(L, count);
	return 1;
}

static int get_mem_profiler_log_number(lua_State *L)
{
	int count = hl_log_segments_get ? hl_log_segments_get() : -ENOTCONN;

	if (count == -EOPNOTSUPP)
		return refuse(L, "this process has no log; choose LOG_RECORD or LOG_FAST");
	if (count < 0)
		return ask_log_number(L);
	lua_pushinteger(L, count);
	return 1;
}

/* ---- reports ---- */

/* Calls ${fill} with ${report}, protected, so that a failing allocation cannot keep the report's memory. Leaves its one
 * result; the message is left where that fails. */
static int fill_protected(lua_State *L, lua_CFunction fill, void *report)
{
	lua_pushcfunction(L, fill);
	lua_pushlightuserdata(L, report);
	return lua_pcall(L, 1, 1, 0);
}

static int fill_lines(lua_State *L)
{
	const struct hl_line_report *report = lua_touserdata(L, 1);

	lua_createtable(L, 0, 2);
	lua_pushinteger(L, (lua_Integer)report->total_bytes);
	lua_setfield(L, -2, "total_size");
	lua_createtable(L, (int)report->count, 0);
	for (size_t i = 0; i < report->count; i++) {
		const struct hl_line *line = &report->lines[i];
		char numbers[64];
		snprintf(numbers, sizeof(numbers), " line:%" PRIu32 " size:%" PRId64, line->line,
			 line->bytes);
		lua_pushstring(L, line->place);
		lua_pushstring(L, numbers);
		lua_concat(L, 2);
		lua_rawseti(L, -2, (int)(i + 1));
	}
	lua_setfield(L, -2, "mem_report");
	return 1;
}

static int push_lines(lua_State *L, int64_t ms)
{
	struct hl_line_report report = {.size = sizeof(report)};

	if (hl_report_lines(ms, &report) < 0)
		return refuse(L, report.reason);
	int status = fill_protected(L, fill_lines, &report);
	hl_report_lines_free(&report);
	return status ? lua_error(L) : 1;
}

static int get_mem_report(lua_State *L)
{
	return push_lines(L, HL_REPORT_NOW);
}

static int fill_times(lua_State *L)
{
	const struct hl_time_report *report = lua_touserdata(L, 1);

	lua_createtable(L, (int)report->count, 0);
	for (size_t i = 0; i < report->count; i++) {
		lua_createtable(L, 2, 0);
		lua_pushinteger(L, (lua_Integer)report->times[i].ms);
		lua_rawseti(L, -2, 1);
		lua_pushinteger(L, (lua_Integer)report->times[i].bytes);
		lua_rawseti(L, -2, 2);
		lua_rawseti(L, -2, (int)(i + 1));
	}
	return 1;
}

/* What was read of the log is kept under this address in the registry. */
static const char times_key;

/* Reads the log. 0 with a table, also kept; or 2 results of a refusal. */
static int read_times(lua_State *L, unsigned jobs)
{
	struct hl_time_report report = {.size = sizeof(report)};

	if (hl_report_times(jobs, &report) < 0)
		return refuse(L, report.reason);
	int status = fill_protected(L, fill_times, &report);
	hl_report_times_free(&report);
	if (status)
		return lua_error(L);
	lua_pushlightuserdata(L, (void *)&times_key);
	lua_pushvalue(L, -2);
	lua_rawset(L, LUA_REGISTRYINDEX);
	return 0;
}

/* The same, unless that was done. */
static int kept_times(lua_State *L)
{
	lua_pushlightuserdata(L, (void *)&times_key);
	lua_rawget(L, LUA_REGISTRYINDEX);
	if (lua_istable(L, -1))
		return 0;
	lua_pop(L, 1);
	return read_times(L, 0);
}

/* Pushes when the last interval of the table on the top began; 0 where there is none. */
static void push_last_ms(lua_State *L)
{
#if LUA_VERSION_NUM > 501
	int count = (int)lua_rawlen(L, -1);
#else
	int count = (int)lua_objlen(L, -1);
#endif
	if (count == 0) {
		lua_pushinteger(L, 0);
		return;
	}
	lua_rawgeti(L, -1, count);
	lua_rawgeti(L, -1, 1);
	lua_remove(L, -2);
}

static int start_mem_log_profiler(lua_State *L)
{
	lua_Integer jobs = luaL_optinteger(L, 1, 0);

	luaL_argcheck(L, jobs >= 0 && jobs <= 1024, 1, "a number of threads");
	int refused = read_times(L, (unsigned)jobs);
	if (refused)
		return refused;
	push_last_ms(L);
	return 1;
}

static int get_all_time_size(lua_State *L)
{
	int refused = kept_times(L);

	return refused ? refused : 1;
}

static int get_mem_report_with_time(lua_State *L)
{
	lua_Number ms = luaL_checknumber(L, 1);

	luaL_argcheck(L, ms >= 0 && ms < 1e15, 1, "milliseconds since the recording began");
	int refused = kept_times(L);
	if (refused)
		return refused;
	/* Since then nothing has changed, as far as has been read. */
	push_last_ms(L);
	lua_Number last = lua_tonumber(L, -1);
	return push_lines(L, (int64_t)(ms > last ? last : ms));
}

/* ---- tags and pools ---- */

/* tag(name, function, ...): what the function allocates is tagged. */
static int tag(lua_State *L)
{
	const char *name = luaL_checkstring(L, 1);

	luaL_checktype(L, 2, LUA_TFUNCTION);
	/* Without the library for tags there is no use for one; the function is called all the same. */
	bool is_pushed = hl_tag_push && hl_tag_push(name) != -EOPNOTSUPP;
	int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
	if (is_pushed)
		hl_tag_pop();
	return status ? lua_error(L) : lua_gettop(L) - 1;
}

/* pool_alloc(pool, object, bytes): the object stands for what the program has cut from a pool of its own. */
static int pool_alloc(lua_State *L)
{
	const char *pool = luaL_checkstring(L, 1);
	const void *object = lua_topointer(L, 2);
	lua_Number bytes = luaL_checknumber(L, 3);

	luaL_argcheck(L, object, 2, "an object with an identity, as a table or userdata");
	luaL_argcheck(L, bytes >= 0 && bytes < 1e15, 3, "a number of bytes");
	hl_pool_alloc(pool, object, (size_t)bytes);
	return 0;
}

static int pool_free(lua_State *L)
{
	const char *pool = luaL_checkstring(L, 1);
	const void *object = lua_topointer(L, 2);

	luaL_argcheck(L, object, 2, "an object with an identity, as a table or userdata");
	hl_pool_free(pool, object);
	return 0;
}

/* ---- the module ---- */

/* diff(before, after): how much more is in use by line, what grew most first; lines that did not change are left out. */
static const char diff_source[] =
	"local function places(report, number)\n"
	"  local sizes = {}\n"
	"  local function expect(holds)\n"
	"    if not holds then\n"
	"      error('bad argument #' .. number .. \" to 'diff' (what get_mem_report() returns "
	"expected)\", 4)\n"
	"    end\n"
	"  end\n"
	"  expect(type(report) == 'table')\n"
	"  expect(type(report.mem_report) == 'table' and type(report.total_size) == 'number')\n"
	"  for _, line in ipairs(report.mem_report) do\n"
	"    local place, size = tostring(line):match('^(.*) size:(%-?%d+)$')\n"
	"    expect(place)\n"
	"    sizes[place] = (sizes[place] or 0) + tonumber(size)\n"
	"  end\n"
	"  return sizes\n"
	"end\n"
	"return function(before, after)\n"
	"  local old, new, rows, lines = places(before, 1), places(after, 2), {}, {}\n"
	"  for place in pairs(old) do new[place] = new[place] or 0 end\n"
	"  for place, size in pairs(new) do\n"
	"    local grown = size - (old[place] or 0)\n"
	"    if grown ~= 0 then rows[#rows + 1] = {place, grown} end\n"
	"  end\n"
	"  table.sort(rows, function(a, b)\n"
	"    return a[2] > b[2] or a[2] == b[2] and a[1] < b[1]\n"
	"  end)\n"
	"  for i, row in ipairs(rows) do\n"
	"    lines[i] = row[1] .. ' size:' .. string.format('%d', row[2])\n"
	"  end\n"
	"  return {total_size = after.total_size - before.total_size, mem_report = lines}\n"
	"end\n";

static const struct {
	const char *name;
	lua_CFunction function;
} functions[] = {
	{"set_enable_mem_profiler", set_enable_mem_profiler},
	{"get_mem_report", get_mem_report},
	{"start_mem_log_profiler", start_mem_log_profiler},
	{"get_all_time_size", get_all_time_size},
	{"get_mem_report_with_time", get_mem_report_with_time},
	{"get_mem_profiler_log_number", get_mem_profiler_log_number},
	{"set_mem_profiler_log_number", set_mem_profiler_log_number},
	{"mark", mark},
	{"tag", tag},
	{"pool_alloc", pool_alloc},
	{"pool_free", pool_free},
};

int luaopen_heapline(lua_State *L)
{
	lua_newtable(L);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		lua_pushcfunction(L, functions[i].function);
		lua_setfield(L, -2, functions[i].name);
	}
	lua_newtable(L);
	for (int mode = HL_CLOSED; mode <= HL_LOG_FAST; mode++) {
		lua_pushstring(L, mode_words[mode]);
		lua_setfield(L, -2, mode_names[mode]);
		lua_pushstring(L, mode_words[mode]);
		lua_setfield(L, -3, mode_names[mode]);
	}
	lua_setfield(L, -2, "MemRecordType");
	if (luaL_loadbuffer(L, diff_source, sizeof(diff_source) - 1, "=heapline.diff") ||
	    lua_pcall(L, 0, 1, 0))
		return lua_error(L);
	lua_setfield(L, -2, "diff");
	return 1;
}
