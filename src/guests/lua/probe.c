/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proves the layout of an interpreter, and finds its eval frames, by a script in a private state.
 *
 * The state has an allocator of its own, so the target's is not called. The script runs four times:
 *
 *	find	luaV_execute() is the function between lua_pcall() and a C function that is there when a
 *		script calls it and not when lua_pcall() does
 *	learn	at each allocation, with a hook that makes the interpreter save its program counter,
 *		the places of an eval frame are counted that have the state, or the pc, and the line
 *		is noted that lua_getinfo() says
 *	sites	without the hook, the calls are found before which the program counter is not saved
 *	prove	without the hook, each captured frame must have the source and line that were noted
 */
#include "guests/lua/lua.h"

#include "unwind/saved.h"

#include <assert.h>
#include <string.h>

#define MEMORY_BYTES	 (1u << 20)
#define WORDS_MAX	 64u /* of an eval frame */
#define FUNCTIONS_MAX	 64u
#define LINES_MAX	 1024u
#define DEBUG_BYTES	 512u /* more than any lua_Debug */
#define FRAMES_MAX	 16u
#define MULTIPLE_RETURNS (-1)
#define MASK_LINE	 4
#define MASK_COUNT	 8
#define HUGE_COUNT	 1000000000
#define STACK_SLOTS	 200 /* so that hooks, which need some, do not move the stack */
#define VALUE_BYTES	 16u
#define OBJECT_BYTES	 128u  /* at least as far as a Proto is read, and half of it a CallInfo */
#define ALLOC_BYTES_MAX	 2048u /* from the first to the last function that calls the allocator */
#define CALLS_MAX	 64u
#define STRING_ADDED_MAX 16u /* bytes of fields that a host has added */

typedef void lua_state;

static const char chunk_name[] = "=heapline"; /* a short string, which has its bytes in itself */

static const char script[] =
	"local probe, x = ...\n"
	"local function inner(a)\n"
	"  local t = {a, a, a}\n"
	"  t.k = {x = a, y = {a}}\n"
	"  probe()\n"
	"  t[5] = function() return t end\n"
	"  local s = a .. 'suffix' .. a\n"
	"  return s\n"
	"end\n"
	"local function outer(a)\n"
	"  local r = inner(a)\n"
	"  local t = {}\n"
	"  for i = 1, 40 do\n"
	"    t[i] = {i}\n"
	"  end\n"
	"  t.a = 1 t.b = {2,\n"
	"    {3}}\n"
	"  t.c = r .. 'c'\n"
	"  t = {\n"
	"    name = r .. 'd',\n"
	"    {\n"
	"      r .. 'e'},\n"
	"    tags = {r},\n"
	"    f = function() return r end}\n"
	"  local function g(...) return ... end\n"
	"  return g(r, {r})\n"
	"end\n"
	"local a = outer('abcdefgh')\n"
	"local b = {outer('a longer text that is not kept as a short string')}\n"
	"x = b\n";

enum pass { PASS_FIND, PASS_LEARN, PASS_SITES, PASS_PROVE, PASS_COUNT };

/* Of an eval frame: registers, then words from number 1 on. */
#define PLACES (HL_SAVED_COUNT + 1 + WORDS_MAX)

struct line {
	uint32_t line, first_line;
	uint64_t pc; /* the saved one, from the start of the code; 0: of a C function */
};

struct probe {
	struct hl_lua *lua;
	const struct hl_lua_api *api;
	const struct hl_lua_reader *reader;
	uint8_t *memory;
	size_t used;
	lua_state *state;
	enum pass pass;
	bool is_watching;
	bool by_script; /* of the calls of ${note_functions} */
	struct hl_cfi_range {
		uint64_t start, end;
	} functions[2][FUNCTIONS_MAX];
	uint32_t function_counts[2];
	uint32_t state_counts[PLACES], pc_counts[PLACES], frame_count;
	struct line lines[LINES_MAX];
	uint32_t line_count, proved, compared;
	uint32_t differences;
	uint32_t levels; /* that ${compare_levels} has found right */
};

/* ---- functions of the interpreter ---- */

static int call_function(const struct probe *probe, int arguments)
{
	int (*pcall)(lua_state *, int, int, int, intptr_t, void *) =
		(int (*)(lua_state *, int, int, int, intptr_t, void *))probe->api->pcall;

	return pcall(probe->state, arguments, 0, 0, 0, NULL);
}

static void push_function(const struct probe *probe, int (*function)(lua_state *))
{
	void (*push)(lua_state *, int (*)(lua_state *), int) =
		(void (*)(lua_state *, int (*)(lua_state *), int))probe->api->pushcclosure;

	push(probe->state, function, 0);
}

static const char *read_script(lua_state *state, void *context, size_t *ret_bytes)
{
	bool *is_read = context;

	(void)state;
	*ret_bytes = *is_read ? 0 : sizeof(script) - 1;
	*is_read = true;
	return *ret_bytes ? script : NULL;
}

static int load_script(const struct probe *probe)
{
	typedef const char *reader_fn(lua_state *, void *, size_t *);
	int (*load)(lua_state *, reader_fn *, void *, const char *, const char *) = (int (*)(
		lua_state *, reader_fn *, void *, const char *, const char *))probe->api->load;
	bool is_read = false;

	return load(probe->state, read_script, &is_read, chunk_name, NULL);
}

static void no_hook(lua_state *state, void *debug)
{
	(void)state, (void)debug;
}

/* 5.1 saves its pc for hooks that are called only. */
static void set_hook(const struct probe *probe)
{
	int (*sethook)(lua_state *, void (*)(lua_state *, void *), int, int) =
		(int (*)(lua_state *, void (*)(lua_state *, void *), int, int))probe->api->sethook;

	sethook(probe->state, no_hook, probe->api->version == HL_LUA_51 ? MASK_LINE : MASK_COUNT,
		HUGE_COUNT);
}

static bool get_info(const struct probe *probe, int level, uint8_t debug[DEBUG_BYTES])
{
	int (*getstack)(lua_state *, int, void *) =
		(int (*)(lua_state *, int, void *))probe->api->getstack;
	int (*getinfo)(lua_state *, const char *, void *) =
		(int (*)(lua_state *, const char *, void *))probe->api->getinfo;

	return getstack(probe->state, level, debug) == 1 && getinfo(probe->state, "Sl", debug) == 1;
}

/* ---- find ---- */

static bool note_function(void *context, const struct hl_saved_frame *frame)
{
	struct probe *probe = context;
	uint32_t *count = &probe->function_counts[probe->by_script];
	uint64_t pcall = probe->api->pcall;

	if (*count == FUNCTIONS_MAX || !frame->function_start ||
	    pcall - frame->function_start < frame->function_end - frame->function_start)
		return false;
	probe->functions[probe->by_script][(*count)++] =
		(struct hl_cfi_range){frame->function_start, frame->function_end};
	return true;
}

static bool is_without_script(const struct probe *probe, uint64_t start)
{
	for (uint32_t i = 0; i < probe->function_counts[0]; i++)
		if (probe->functions[0][i].start == start)
			return true;
	return false;
}

/* The largest one, should there be several. */
static void find_eval(struct probe *probe)
{
	struct hl_lua *lua = probe->lua;

	for (uint32_t i = 0; i < probe->function_counts[1]; i++) {
		const struct hl_cfi_range *it = &probe->functions[1][i];
		if (it->end - it->start <= lua->eval_end - lua->eval_start ||
		    is_without_script(probe, it->start))
			continue;
		lua->eval_start = it->start;
		lua->eval_end = it->end;
	}
}

/* ---- learn ---- */

/* What an eval frame has in its registers and words. */
struct contents {
	const struct hl_lua *lua;
	bool found, has_caller;
	uint64_t alloc_start, alloc_end; /* the function that has called the allocator */
	uint64_t return_address;	 /* into the eval frame's function */
	uint64_t registers[HL_SAVED_COUNT];
	uint64_t words[1 + WORDS_MAX]; /* by number, from 1 on */
	uint32_t word_count;
};

HL_READS_STACK static bool read_eval(void *context, const struct hl_saved_frame *frame)
{
	struct contents *contents = context;
	const struct hl_lua *lua = contents->lua;

	if (!contents->has_caller) {
		contents->has_caller = true;
		contents->alloc_start = frame->function_start;
		contents->alloc_end = frame->function_end;
	}
	if (frame->pc - lua->eval_start >= lua->eval_end - lua->eval_start)
		return true;
	contents->found = frame->cfa != 0;
	contents->return_address = frame->pc + 1;
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++)
		contents->registers[k] = frame->at[k] ? *frame->at[k] : 0;
	if (!frame->cfa)
		return false;
	const uint64_t *cfa = (const uint64_t *)frame->cfa;
	while (contents->word_count < WORDS_MAX &&
	       (uint64_t)(cfa - contents->word_count - 1) >= frame->sp) {
		contents->word_count++;
		contents->words[contents->word_count] = cfa[-(int)contents->word_count];
	}
	/* What it keeps for its caller is not its own. */
	for (unsigned k = 0; frame->kept && k < HL_SAVED_COUNT; k++)
		if (frame->kept[k] < 0 && -frame->kept[k] <= (int)WORDS_MAX)
			contents->words[-frame->kept[k]] = 0;
	return false;
}

/* Counts the places that have a value from ${first} to ${last}. */
static void count_places(uint32_t counts[PLACES], const struct contents *contents, uint64_t first,
			 uint64_t last)
{
	for (unsigned k = 0; k < HL_SAVED_COUNT; k++)
		counts[k] += contents->registers[k] - first <= last - first;
	for (unsigned w = 1; w <= contents->word_count; w++)
		counts[HL_SAVED_COUNT + w] += contents->words[w] - first <= last - first;
}

/* What the running function was compiled to; 0 when it is of C. */
static uint64_t running_proto(const struct probe *probe)
{
	const struct hl_lua_layout *layout = &probe->lua->layout;
	uint64_t call = hl_lua_word((uint64_t)probe->state, layout->state_call);
	uint64_t function = hl_lua_word(call, layout->call_function);
	uint64_t closure = hl_lua_word(function, 0);

	if ((hl_lua_byte(function, 8) & 0x7f) != layout->closure_tag ||
	    (layout->closure_is_c && hl_lua_byte(closure, layout->closure_is_c)))
		return 0;
	return hl_lua_word(closure, layout->closure_proto);
}

/* The pc that the running call has saved; 0 when it is of a C function. */
static uint64_t saved_pc(const struct probe *probe)
{
	const struct hl_lua_layout *layout = &probe->lua->layout;
	uint64_t state = (uint64_t)probe->state, call = hl_lua_word(state, layout->state_call);

	if (!running_proto(probe))
		return 0;
	return layout->state_pc ? hl_lua_word(state, layout->state_pc)
				: hl_lua_word(call, layout->call_pc);
}

static bool is_moving_stack(const struct probe *probe)
{
	uint64_t state = (uint64_t)probe->state;

	return hl_lua_word(state, probe->lua->layout.state_top) <
	       hl_lua_word(state, probe->lua->layout.state_stack);
}

/* ---- whether what will be read is there ---- */

/* All that belongs to the private state lies in its memory. */
static bool is_own(const struct probe *probe, uint64_t address, uint64_t bytes)
{
	uint64_t offset = address - (uint64_t)probe->memory;

	return offset < MEMORY_BYTES && bytes <= MEMORY_BYTES - offset;
}

static bool is_sound_proto(const struct probe *probe, uint64_t proto)
{
	const struct hl_lua_layout *layout = &probe->lua->layout;

	if (!is_own(probe, proto, OBJECT_BYTES))
		return false;
	uint64_t source = hl_lua_word(proto, layout->proto_source);
	uint64_t steps = layout->proto_absolute_lines ? 1 : 4;
	return is_own(probe, hl_lua_word(proto, layout->proto_code),
		      hl_lua_number(proto, layout->proto_code_count) * UINT64_C(4)) &&
	       is_own(probe, hl_lua_word(proto, layout->proto_lines),
		      hl_lua_number(proto, layout->proto_line_count) * steps) &&
	       hl_lua_number(proto, layout->proto_code_count) ==
		       hl_lua_number(proto, layout->proto_line_count) &&
	       (!layout->proto_absolute_lines ||
		!hl_lua_number(proto, layout->proto_absolute_count) ||
		is_own(probe, hl_lua_word(proto, layout->proto_absolute_lines),
		       hl_lua_number(proto, layout->proto_absolute_count) * UINT64_C(8))) &&
	       is_own(probe, source, layout->string_bytes + sizeof(chunk_name));
}

static bool is_sound_call(const struct probe *probe, uint64_t call)
{
	const struct hl_lua_layout *layout = &probe->lua->layout;

	if (!is_own(probe, call, OBJECT_BYTES / 2))
		return false;
	uint64_t function = hl_lua_word(call, layout->call_function);
	if (!is_own(probe, function, VALUE_BYTES))
		return false;
	uint64_t closure = hl_lua_word(function, 0);
	if ((hl_lua_byte(function, 8) & 0x7f) != layout->closure_tag)
		return true;
	return is_own(probe, closure, layout->closure_proto + UINT64_C(8)) &&
	       ((layout->closure_is_c && hl_lua_byte(closure, layout->closure_is_c)) ||
		is_sound_proto(probe, hl_lua_word(closure, layout->closure_proto)));
}

/* Whether all that a walk of the state reads is its own: with the layout of another version it would
 * read anything. */
static bool is_sound(const struct probe *probe)
{
	const struct hl_lua_layout *layout = &probe->lua->layout;
	uint64_t state = (uint64_t)probe->state, call = hl_lua_word(state, layout->state_call);
	uint64_t base = layout->state_base_call ? hl_lua_word(state, layout->state_base_call) : 0;

	for (uint32_t depth = 0; depth < CALLS_MAX; depth++) {
		if (!is_own(probe, call, OBJECT_BYTES / 2))
			return false;
		uint64_t outer = layout->state_base_call ? call - layout->call_bytes
							 : hl_lua_word(call, layout->call_previous);
		if (layout->state_base_call ? call == base : !outer)
			return true;
		if (!is_sound_call(probe, call))
			return false;
		call = outer;
	}
	return false;
}

/* Hosts add fields to strings, as skynet's interpreter has an identifier before the length: the bytes
 * begin where the script's name is. False: it is nowhere. */
static bool find_string_bytes(struct probe *probe, uint64_t source)
{
	struct hl_lua_layout *layout = &probe->lua->layout;

	for (uint8_t added = 0; added <= STRING_ADDED_MAX; added = (uint8_t)(added + 8)) {
		uint8_t at = (uint8_t)(layout->string_bytes + added);
		uint8_t length_at = (uint8_t)(layout->string_long_length + added);
		uint32_t length = layout->string_short_length
					  ? hl_lua_byte(source, layout->string_short_length)
					  : hl_lua_number(source, length_at);
		if (length != sizeof(chunk_name) - 1 ||
		    !is_own(probe, source + at, sizeof(chunk_name)) ||
		    memcmp((const void *)(source + at), chunk_name, sizeof(chunk_name)) != 0)
			continue;
		layout->string_bytes = at;
		layout->string_long_length = length_at;
		return true;
	}
	return false;
}

/* They lie side by side, in lmem.c; where they were inlined into others nothing is said. */
static void note_alloc(struct hl_lua *lua, const struct contents *contents)
{
	bool is_first = !lua->alloc_end;

	if (is_first || contents->alloc_start < lua->alloc_start)
		lua->alloc_start = contents->alloc_start;
	if (is_first || contents->alloc_end > lua->alloc_end)
		lua->alloc_end = contents->alloc_end;
}

static void learn(struct probe *probe, const struct hl_script_caller *caller)
{
	struct contents contents = {.lua = probe->lua};
	uint8_t debug[DEBUG_BYTES];
	uint64_t saved[HL_SAVED_COUNT];

	if (is_moving_stack(probe) || !get_info(probe, 0, debug))
		return;
	if (!is_sound(probe)) {
		probe->differences++;
		return;
	}
	uint64_t proto = running_proto(probe);
	if (proto &&
	    !find_string_bytes(probe, hl_lua_word(proto, probe->lua->layout.proto_source))) {
		probe->differences++;
		return;
	}
	if (probe->line_count < LINES_MAX)
		probe->lines[probe->line_count++] = (struct line){
			hl_lua_number((uint64_t)debug, probe->lua->layout.debug_line),
			hl_lua_number((uint64_t)debug, probe->lua->layout.debug_first_line),
			proto ? saved_pc(probe) - hl_lua_word(proto, probe->lua->layout.proto_code)
			      : 0};
	memcpy(saved, caller->saved, sizeof(saved) - sizeof(saved[0]));
	saved[HL_SAVED_FRAME] = caller->registers->bp;
	hl_saved_walk(probe->reader->unwind, probe->reader->walk, caller->registers, saved,
		      read_eval, &contents);
	if (!contents.found)
		return;
	note_alloc(probe->lua, &contents);
	probe->frame_count++;
	uint64_t state = (uint64_t)probe->state, pc = saved_pc(probe);
	count_places(probe->state_counts, &contents, state, state);
	/* Some instructions have passed over the next one, an operand of theirs. */
	if (pc)
		count_places(probe->pc_counts, &contents, pc, pc + 4);
}

/* Puts the places that had the value most often into those that are free. ${first_word}: words before it are not
 * considered. */
static void choose_places(uint32_t counts[PLACES], uint32_t first_word,
			  struct hl_lua_place ret_places[HL_LUA_PLACES])
{
	for (uint32_t i = 0; i < HL_LUA_PLACES; i++) {
		uint32_t best = 0;
		if (ret_places[i].kind != HL_LUA_NOWHERE)
			continue;
		for (uint32_t k = 1; k < PLACES; k++)
			if (counts[k] > counts[best] &&
			    (k < HL_SAVED_COUNT || k >= HL_SAVED_COUNT + first_word))
				best = k;
		if (!counts[best])
			return;
		ret_places[i] = (struct hl_lua_place){
			.kind = best < HL_SAVED_COUNT ? HL_LUA_IN_REGISTER : HL_LUA_IN_WORD,
			.index = best < HL_SAVED_COUNT ? best : best - HL_SAVED_COUNT,
		};
		counts[best] = 0;
	}
}

/*
 * Registers first. gcc 16 keeps the state in words and almost never in a register; it does not change
 * while the probe runs, so a word may have it from an earlier call: only one that always had it counts. A capture
 * compares it with what the caller keeps.
 */
static void choose_state(struct probe *probe)
{
	uint32_t *counts = probe->state_counts;

	choose_places(counts, WORDS_MAX + 1, probe->lua->state);
	for (uint32_t k = HL_SAVED_COUNT; k < PLACES; k++)
		counts[k] = counts[k] == probe->frame_count ? counts[k] : 0;
	choose_places(counts, 2, probe->lua->state);
}

/* ---- sites ---- */

/* Allocations come in the order of the pass before. Where the saved pc is not what it was, the eval frame's return address is kept. */
static void find_site(struct probe *probe, const struct hl_script_caller *caller)
{
	struct hl_lua *lua = probe->lua;
	struct contents contents = {.lua = lua};
	uint8_t debug[DEBUG_BYTES];
	uint64_t saved[HL_SAVED_COUNT];

	if (lua->layout.version < HL_LUA_54 || is_moving_stack(probe) ||
	    !get_info(probe, 0, debug) || !is_sound(probe) || probe->compared == probe->line_count)
		return;
	struct line line = probe->lines[probe->compared++];
	uint64_t proto = running_proto(probe);
	if (!proto || saved_pc(probe) - hl_lua_word(proto, lua->layout.proto_code) == line.pc)
		return;
	memcpy(saved, caller->saved, sizeof(saved) - sizeof(saved[0]));
	saved[HL_SAVED_FRAME] = caller->registers->bp;
	hl_saved_walk(probe->reader->unwind, probe->reader->walk, caller->registers, saved,
		      read_eval, &contents);
	for (uint32_t i = 0; i < lua->site_count; i++)
		if (lua->sites[i] == contents.return_address)
			return;
	if (!contents.found || lua->site_count == HL_LUA_SITES_MAX)
		probe->differences++;
	else
		lua->sites[lua->site_count++] = contents.return_address;
}

/* ---- prove ---- */

static void prove(struct probe *probe, const struct hl_script_caller *caller)
{
	struct hl_script_frame frame = {0};
	struct hl_script_place place = {0};
	uint8_t debug[DEBUG_BYTES];
	bool truncated = false;

	if (is_moving_stack(probe) || !get_info(probe, 0, debug))
		return;
	if (!is_sound(probe)) {
		probe->differences++;
		return;
	}
	if (probe->proved == probe->line_count) {
		probe->differences += probe->line_count < LINES_MAX;
		return;
	}
	struct line line = probe->lines[probe->proved++];
	uint32_t count = hl_lua_capture(probe->lua, probe->reader, caller, &frame, 1, &truncated);
	if (line.line == UINT32_MAX)
		return; /* a C function runs */
	if (!count || !hl_lua_describe(probe->lua, &frame, &place) || place.line != line.line ||
	    place.first_line != (line.first_line == UINT32_MAX ? 0 : line.first_line))
		probe->differences++;
}

/* From a C function that a script called: all frames outward must be what lua_getinfo() says. */
static void compare_levels(struct probe *probe, const struct hl_script_caller *caller)
{
	const struct hl_lua_layout *layout = &probe->lua->layout;
	struct hl_script_frame frames[FRAMES_MAX];
	struct hl_script_place place;
	uint8_t debug[DEBUG_BYTES];
	bool truncated = false;
	uint32_t level = 0, count = 0;

	if (is_sound(probe))
		count = hl_lua_capture(probe->lua, probe->reader, caller, frames, FRAMES_MAX,
				       &truncated);

	while (get_info(probe, (int)level + 1, debug)) {
		if (level == count || !hl_lua_describe(probe->lua, &frames[level], &place) ||
		    place.line != hl_lua_number((uint64_t)debug, layout->debug_line) ||
		    place.source_bytes != sizeof(chunk_name) - 2 ||
		    memcmp(place.source, chunk_name + 1, place.source_bytes) != 0 ||
		    frames[level].is_entry != (level + 1 == count))
			probe->differences++;

		if (level == count)
			break;
		level++;
	}
	probe->differences += level != count;
	probe->levels += level;
}

/* ---- what the private state calls ---- */

/* C functions of Lua have no context: one probe runs at a time. */
static struct probe *running;

static int in_script(lua_state *state)
{
	HL_LUA_CALLER_HERE(running->reader, registers, saved);
	struct hl_script_caller caller = {
		.registers = &registers, .saved = saved, .native_node = UINT32_MAX};
	uint64_t all[HL_SAVED_COUNT];

	(void)state;
	if (!saved)
		return 0; /* nothing will be proved */
	if (running->pass == PASS_FIND) {
		memcpy(all, saved, HL_SAVED_FRAME * sizeof(*saved));
		all[HL_SAVED_FRAME] = registers.bp;
		hl_saved_walk(running->reader->unwind, running->reader->walk, &registers, all,
			      note_function, running);
	}
	if (running->pass == PASS_PROVE)
		compare_levels(running, &caller);
	return 0;
}

static void *allocate(void *context, void *block, size_t old_bytes, size_t bytes)
{
	struct probe *probe = context;

	HL_LUA_CALLER_HERE(probe->reader, registers, saved);
	struct hl_script_caller caller = {
		.registers = &registers, .saved = saved, .native_node = UINT32_MAX};
	if (!bytes || !saved)
		return NULL;
	if (probe->is_watching && probe->pass == PASS_LEARN)
		learn(probe, &caller);
	if (probe->is_watching && probe->pass == PASS_SITES)
		find_site(probe, &caller);
	if (probe->is_watching && probe->pass == PASS_PROVE)
		prove(probe, &caller);
	size_t rounded = (bytes + 15) & ~(size_t)15;
	if (rounded > MEMORY_BYTES - probe->used)
		return NULL;
	void *moved = probe->memory + probe->used;
	probe->used += rounded;
	if (block)
		memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
	return moved;
}

static bool run_pass(struct probe *probe)
{
	lua_state *(*newstate)(void *(*)(void *, void *, size_t, size_t), void *, unsigned) =
		(lua_state * (*)(void *(*)(void *, void *, size_t, size_t), void *, unsigned))
			probe->api->newstate;
	void (*close_state)(lua_state *) = (void (*)(lua_state *))probe->api->close;

	probe->used = 0;
	probe->state = newstate(allocate, probe, 0);
	if (!probe->state)
		return false;
	int (*checkstack)(lua_state *, int) = (int (*)(lua_state *, int))probe->api->checkstack;
	int result = !checkstack(probe->state, STACK_SLOTS);
	if (probe->pass == PASS_FIND && !result) {
		probe->by_script = false;
		push_function(probe, in_script);
		result = call_function(probe, 0);
		probe->by_script = true;
		probe->function_counts[1] = 0;
	}
	if (!result)
		result = load_script(probe);
	if (probe->pass == PASS_LEARN)
		set_hook(probe);
	probe->is_watching = true;
	if (!result) {
		push_function(probe, in_script);
		result = call_function(probe, 1);
	}
	probe->is_watching = false;
	close_state(probe->state);
	return !result;
}

static enum hl_lua_problem run_all(struct probe *probe)
{
	struct hl_lua *lua = probe->lua;

	for (probe->pass = PASS_FIND; probe->pass < PASS_COUNT; probe->pass++) {
		if (!run_pass(probe))
			return HL_LUA_NO_STATE;
		if (probe->pass == PASS_FIND)
			find_eval(probe);
		if (!lua->eval_end)
			return HL_LUA_NO_EVAL;
		if (probe->pass != PASS_LEARN)
			continue;
		if (probe->differences)
			return HL_LUA_OTHER_LINES;
		choose_state(probe);
		choose_places(probe->pc_counts, 2, lua->pc);
		if (lua->alloc_end - lua->alloc_start > ALLOC_BYTES_MAX)
			lua->alloc_start = lua->alloc_end = 0;
		if (lua->state[0].kind == HL_LUA_NOWHERE)
			return HL_LUA_NO_PLACE;
	}
	return probe->differences || !probe->levels ? HL_LUA_OTHER_LINES : HL_LUA_PROVED;
}

static_assert(sizeof(struct probe) + MEMORY_BYTES <= HL_LUA_PROBE_BYTES, "there is room");

enum hl_lua_problem hl_lua_open(struct hl_lua *lua, const struct hl_lua_api *api,
				const struct hl_lua_reader *reader, void *memory)
{
	const struct hl_lua_layout *layout = hl_lua_layout(api->version);
	struct hl_lua_reader without_cache = {.unwind = reader->unwind, .walk = reader->walk};
	struct probe *probe = memory;

	if (!layout)
		return HL_LUA_UNKNOWN_VERSION;
	lua->layout = *layout;
	probe->lua = lua;
	probe->api = api;
	probe->reader = &without_cache;
	probe->memory = (uint8_t *)(probe + 1);
	running = probe;
	enum hl_lua_problem problem = run_all(probe);
	running = NULL;
	return problem;
}

/* What to do about all of them. */
#define REMEDY "; heapline.h(3) has the calls by which a program names them itself"

const char *hl_lua_problem_text(enum hl_lua_problem problem)
{
	static const char *const texts[] = {
		[HL_LUA_PROVED] = "its frames are read",
		[HL_LUA_UNKNOWN_VERSION] = "its version is not known" REMEDY,
		[HL_LUA_NO_STATE] = "a private state cannot be made" REMEDY,
		[HL_LUA_NO_EVAL] = "its main function is not found on the stack" REMEDY,
		[HL_LUA_NO_PLACE] = "its main function keeps the state nowhere" REMEDY,
		[HL_LUA_OTHER_LINES] = "what is read differs from what lua_getinfo() says" REMEDY,
	};

	return texts[problem];
}
