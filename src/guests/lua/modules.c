/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interpreters of Lua in this process, as a guest of the recorder: finds them among its modules, and makes them providers of
 * script frames. A module is looked at when it is entered, and probed at the next allocation, outside of all locks.
 */
#include "guests/guest.h"

#include "base/frame_key.h"
#include "guests/lua/lua.h"
#include "guests/lua/luajit.h"
#include "recorder/libc.h"
#include "recorder/modules.h"
#include "recorder/node.h"
#include "recorder/recorder.h"
#include "recorder/sys.h"
#include "unwind/here.h"
#include "unwind/rule_cache.h"
#include "unwind/saved.h"

#include <assert.h>
#include <dlfcn.h>
#include <string.h>

enum phase {
	PHASE_NONE,
	PHASE_FOUND,
	PHASE_PROBING,
	PHASE_PROVED,
	PHASE_REFUSED, /* its frames cannot be read, or it is gone */
};

/* What the interpreter says by third arguments; see told_type(). */
enum tags {
	TAGS_UNSEEN, /* nothing but 0 so far */
	TAGS_SEEN,
	TAGS_REFUSED, /* they are something else */
};

#define HL_LUA_MODULES_MAX 2u /* of one process; further ones have no frames */

#define ALLOCATOR_SHIFT	    16
#define ALLOCATOR_BYTES_MAX ((UINT64_C(1) << ALLOCATOR_SHIFT) - 1)

/* All outlive the recorder: a forked child starts another one. */
static struct interpreter {
	_Atomic uint32_t phase;
	uint64_t start, end;
	uint64_t text_start, text_end; /* code that is the interpreter's own */
	struct hl_lua_api api;
	struct hl_lua lua;
	/* The allocator of a state that has been seen: its address << ALLOCATOR_SHIFT | bytes of its code, 0 where
	 * its end is not known. 0: none has been. */
	_Atomic uint64_t allocator;
	_Atomic uint32_t tags; /* enum tags */
	bool is_jit;	       /* it is LuaJIT: what is known of it is in the next one */
	struct hl_luajit jit;
} interpreters[HL_LUA_MODULES_MAX];

static_assert(HL_LUA_MODULES_MAX <= HL_LUA_PLACE_OF_STATES, "each has a place for its cache");

/* ---- found ---- */

/* By functions that came with a version. */
static enum hl_lua_version version_of(const struct hl_exports *exports)
{
	if (hl_exports_find(exports, "lua_numbertocstring"))
		return HL_LUA_55;
	if (hl_exports_find(exports, "lua_setwarnf"))
		return HL_LUA_54;
	if (hl_exports_find(exports, "lua_rotate"))
		return HL_LUA_53;
	return hl_exports_find(exports, "lua_pcallk") ? HL_LUA_52 : HL_LUA_51;
}

static bool find_api(const struct hl_exports *exports, struct hl_lua_api *ret_api)
{
	struct hl_lua_api api = {
		.newstate = hl_exports_find(exports, "lua_newstate"),
		.close = hl_exports_find(exports, "lua_close"),
		.load = hl_exports_find(exports, "lua_load"),
		.pcall = hl_exports_find(exports, "lua_pcallk"),
		.pushcclosure = hl_exports_find(exports, "lua_pushcclosure"),
		.checkstack = hl_exports_find(exports, "lua_checkstack"),
		.getstack = hl_exports_find(exports, "lua_getstack"),
		.getinfo = hl_exports_find(exports, "lua_getinfo"),
		.sethook = hl_exports_find(exports, "lua_sethook"),
		.newthread = hl_exports_find(exports, "lua_newthread"),
		.resume = hl_exports_find(exports, "lua_resume"),
		.gc = hl_exports_find(exports, "lua_gc"),
	};

	if (!api.pcall)
		api.pcall = hl_exports_find(exports, "lua_pcall");
	if (!api.newstate || !api.close || !api.load || !api.pcall || !api.pushcclosure ||
	    !api.checkstack || !api.getstack || !api.getinfo || !api.sethook)
		return false;
	api.version = version_of(exports);
	*ret_api = api;
	return true;
}

/* LuaJIT has what Lua 5.1 exports. Without GC64 its lua_newstate() only prints an error. */
#define NEWSTATE_BYTES_MIN 128u

static bool is_known_jit(const struct hl_exports *exports, const struct hl_lua_api *api)
{
	const Elf64_Sym *newstate = hl_exports_symbol(exports, "lua_newstate");

	return newstate && newstate->st_size >= NEWSTATE_BYTES_MIN && api->newthread && api->resume;
}

/* Another module has taken its place. */
static void retire_overlapping(uint64_t start, uint64_t end, uint64_t newstate)
{
	for (uint32_t i = 0; i < HL_LUA_MODULES_MAX; i++) {
		struct interpreter *it = &interpreters[i];
		if (it->phase != PHASE_NONE && it->start < end && start < it->end &&
		    it->api.newstate != newstate)
			it->phase = PHASE_REFUSED;
	}
}

static bool note(struct hl_region_header *header, const struct hl_guest_module *module)
{
	const struct hl_exports *exports = module->exports;
	struct hl_lua_api api = {0};

	if (module->no_scripts)
		return false;
	bool is_lua = find_api(exports, &api);
	bool is_jit = is_lua && hl_exports_find(exports, "luaJIT_setmode");
	retire_overlapping(module->start, module->end, api.newstate);
	if (is_jit && HL_ELF_MACHINE != EM_X86_64) {
		hl_script_refuse(header, "LuaJIT", "its frames are known on x86-64 alone");
		return false;
	}
	if (is_jit && !is_known_jit(exports, &api)) {
		hl_script_refuse(header, "LuaJIT", hl_luajit_problem_text(HL_LUAJIT_OTHER_BUILD));
		return false;
	}
	for (uint32_t i = 0; is_lua && i < HL_LUA_MODULES_MAX; i++) {
		struct interpreter *it = &interpreters[i];
		if (it->phase != PHASE_NONE && it->api.newstate != api.newstate)
			continue;
		if (it->phase == PHASE_PROVED || it->phase == PHASE_REFUSED)
			return false; /* known from before a fork */
		it->start = it->text_start = module->start;
		it->end = it->text_end = module->end;
		it->api = api;
		it->is_jit = is_jit;
		/* A linker puts the files of an archive one after the other, but not with LTO. */
		if (module->is_program)
			hl_exports_range(exports, "lua", api.newstate, &it->text_start,
					 &it->text_end);
		it->phase = PHASE_FOUND;
		return true;
	}
	return false;
}

/* ---- types ---- */

#define TAG_FIRST   4u
#define TAG_UPVALUE 9u /* or, before 5.4, of prototypes; the other is next */
#define TAG_LAST    10u

static bool has_new_order(void)
{
	for (uint32_t i = 0; i < HL_LUA_MODULES_MAX; i++)
		if (interpreters[i].phase != PHASE_NONE && interpreters[i].api.version < HL_LUA_54)
			return false;
	return true;
}

/* LuaJIT says nothing of any block. */
static bool means_something(void)
{
	bool is_known = false;

	for (uint32_t i = 0; i < HL_LUA_MODULES_MAX; i++) {
		if (interpreters[i].phase == PHASE_NONE)
			continue;
		if (interpreters[i].is_jit)
			return false;
		is_known = true;
	}
	return is_known;
}

/* What ${tag}, which an interpreter of 5.2 or later gives its allocator as the old size of a new block, says that it is. The versions of
 * all interpreters of a process are taken to count alike. */
static const char *type_of_tag(uint64_t tag)
{
	static const char *const names[] = {"string", "table",	 "function", "userdata",
					    "thread", "upvalue", "proto"};
	static const char *const older[] = {"proto", "upvalue"};

	if (tag < TAG_FIRST || tag > TAG_LAST)
		return means_something() ? "part of an object" : NULL;
	return tag >= TAG_UPVALUE && !has_new_order() ? older[tag - TAG_UPVALUE]
						      : names[tag - TAG_FIRST];
}

/* Whether a function that is called from ${pc} is called by the interpreter's allocator: an allocator that jumps to it has the
 * interpreter's own function as its caller. */
static bool is_allocator(const struct interpreter *it, uint64_t pc)
{
	uint64_t known = atomic_load_explicit(&it->allocator, memory_order_relaxed);

	/* A return address behind a function's last call is its end. */
	return pc - 1 - it->lua.alloc_start < it->lua.alloc_end - it->lua.alloc_start ||
	       pc - 1 - (known >> ALLOCATOR_SHIFT) < (known & ALLOCATOR_BYTES_MAX);
}

/*
 * Most allocators of interpreters, luaL_newstate()'s among them, call realloc() with that old size still in the register of a third
 * argument. Believed until an interpreter has ${third} where none can have it.
 */
static const char *told_type(uint64_t pc, bool is_new, uint64_t third)
{
	if (hl_recorder->has_type_rules)
		return NULL; /* of a host that tells what is Lua's from what is C's */
	for (uint32_t i = 0; i < HL_LUA_MODULES_MAX; i++) {
		struct interpreter *it = &interpreters[i];
		if (atomic_load_explicit(&it->phase, memory_order_acquire) != PHASE_PROVED ||
		    !it->lua.tells_types || !is_allocator(it, pc))
			continue;
		uint32_t tags = atomic_load_explicit(&it->tags, memory_order_relaxed);
		uint64_t tag = is_new ? third : 0;
		if (tag > TAG_LAST || (tag && tag < TAG_FIRST))
			atomic_store_explicit(&it->tags, tags = TAGS_REFUSED, memory_order_relaxed);
		else if (tag && tags == TAGS_UNSEEN &&
			 atomic_compare_exchange_strong(&it->tags, &tags, TAGS_SEEN))
			tags = TAGS_SEEN;
		return tags == TAGS_SEEN ? type_of_tag(tag) : NULL;
	}
	return NULL;
}

/* ---- a provider ---- */

/* Of ${bytes}. */
static void *cache_of(struct hl_recorder *recorder, const struct interpreter *it, size_t bytes)
{
	_Atomic(void *) *place = &recorder->guest_places[HL_GUEST_LUA][it - interpreters];
	void *cache = atomic_load_explicit(place, memory_order_acquire);

	if (HL_LIKELY(cache))
		return cache;
	void *made = hl_private_map_new(bytes);
	if (made && !atomic_compare_exchange_strong(place, &cache, made))
		hl_private_map_free(made, bytes);
	else
		cache = made;
	return cache;
}

/* ---- who has made a coroutine ----
 *
 * One that runs a C function has no frame in Lua. It is a block as others, so the stack is known that has
 * allocated it: the innermost frame of a script there stands for the coroutine. */

#define MADE_AT 1u /* a function that none is: the frame is site number "at" */

static bool find_maker(uint64_t block, struct hl_script_frame *ret_frame)
{
	const struct hl_region_map *region = &hl_recorder->region;
	struct hl_frames_outward at = {
		.node = hl_block_node(&hl_recorder->blocks, (const void *)block)};
	uint32_t site;

	while (at.node) {
		const struct hl_region_node *node = &region->nodes[at.node];
		uint64_t key = atomic_load_explicit(&node->frame, memory_order_relaxed);
		if (!hl_frames_step(&at, key, node->parent) || !hl_frame_key_is_site(key, &site) ||
		    !site ||
		    memcmp(region->header->providers[region->sites[site - 1].provider].name, "lua",
			   sizeof("lua") - 1) != 0)
			continue; /* of neither "lua" nor "luajit" */
		*ret_frame = (struct hl_script_frame){.function = MADE_AT, .at = site};
		return true;
	}
	return false;
}

static void describe_site(uint32_t number, struct hl_script_place *ret_place)
{
	const struct hl_region_map *region = &hl_recorder->region;
	const struct hl_region_site *site = &region->sites[number - 1];
	const struct hl_region_name *function = (void *)(region->names + site->function);
	const struct hl_region_name *source = (void *)(region->names + site->source);

	*ret_place = (struct hl_script_place){
		.function = function->text,
		.function_bytes = function->bytes,
		.source = source->text,
		.source_bytes = source->bytes,
		.line = site->line,
		.first_line = site->first_line,
	};
}

static __attribute__((noinline)) void learn_allocator(struct interpreter *it,
						      struct hl_unwind *unwind, uint64_t state)
{
	uint64_t allocator = hl_lua_word(hl_lua_word(state, it->lua.layout.state_global), 0);
	uint64_t start, end;

	if (!hl_saved_find_function(unwind, allocator, &start, &end) ||
	    end - allocator > ALLOCATOR_BYTES_MAX)
		end = allocator;
	atomic_store_explicit(&it->allocator, allocator << ALLOCATOR_SHIFT | (end - allocator),
			      memory_order_relaxed);
}

struct found_caller {
	struct hl_script_caller caller;
	uint64_t saved[HL_SAVED_COUNT];
};

/* ${caller}, or, where hooks do not hand its registers on, one in ${room} that has them if they can be found. */
static inline const struct hl_script_caller *with_registers(const struct hl_script_caller *caller,
							    struct found_caller *room)
{
	if (HL_SAVED_HANDED_ON)
		return caller;
	room->caller = *caller;
	room->caller.saved =
		hl_saved_find(caller->unwind, caller->walk, caller->registers, room->saved);
	return &room->caller;
}

static uint32_t capture(void *state, const struct hl_script_caller *of_hook,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct interpreter *it = state;
	struct found_caller found;
	const struct hl_script_caller *caller = with_registers(of_hook, &found);
	uint64_t running = 0;

	if (HL_UNLIKELY(atomic_load_explicit(&it->phase, memory_order_acquire) != PHASE_PROVED))
		return 0;
	struct hl_lua_reader reader = {
		.unwind = caller->unwind,
		.walk = caller->walk,
		.cache = cache_of(hl_recorder, it, sizeof(struct hl_lua_cache)),
		.find_maker = find_maker,
		.ret_state = &running,
	};
	uint32_t count = hl_lua_capture(&it->lua, &reader, caller, frames, max, ret_truncated);
	if (!count && !caller->memory->kept)
		return 0; /* another interpreter's may be there */
	if (HL_UNLIKELY(!atomic_load_explicit(&it->allocator, memory_order_relaxed)) &&
	    it->lua.tells_types && running)
		learn_allocator(it, caller->unwind, running);
	uint32_t stamp = hl_lua_same_stamp(&it->lua, running, caller->stamp);
	if (HL_UNLIKELY(!stamp)) {
		if (caller->memory->kept && hl_lua_states_is_new(hl_recorder, &it->lua, running)) {
			/* Its calls lie where those of a closed one lay. It is named by the outermost frame. */
			caller->memory->known = caller->memory->kept = 0;
			count = hl_lua_capture(&it->lua, &reader, caller, frames, max,
					       ret_truncated);
		}
		const struct hl_script_frame *outermost = count ? &frames[count - 1] : NULL;
		if (outermost && outermost->function == MADE_AT)
			outermost = NULL;
		stamp = hl_lua_states_look(hl_recorder, &it->lua, running, outermost,
					   caller->stamp);
	}
	caller->stamp->value = stamp;
	return count;
}

static uint32_t recapture(void *state, const struct hl_script_caller *caller,
			  struct hl_script_frame *frames, uint32_t max)
{
	struct interpreter *it = state;
	struct found_caller found;
	const struct hl_lua_cache *cache = atomic_load_explicit(
		&hl_recorder->guest_places[HL_GUEST_LUA][it - interpreters], memory_order_acquire);

	(void)max; /* one frame at most */
	return HL_LIKELY(cache &&
			 atomic_load_explicit(&it->phase, memory_order_acquire) == PHASE_PROVED)
		       ? hl_lua_recapture(&it->lua, cache, with_registers(caller, &found), frames)
		       : HL_SCRIPT_GAVE_UP;
}

static bool describe(void *state, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place)
{
	const struct interpreter *it = state;

	if (frame->function == MADE_AT) {
		describe_site(frame->at, ret_place);
		return true;
	}
	return it->is_jit ? hl_luajit_describe(&it->jit, frame, ret_place)
			  : hl_lua_describe(&it->lua, frame, ret_place);
}

static uint32_t capture_jit(void *state, const struct hl_script_caller *caller,
			    struct hl_script_frame *frames, uint32_t max, bool *ret_truncated)
{
	struct interpreter *it = state;

	if (HL_UNLIKELY(atomic_load_explicit(&it->phase, memory_order_acquire) != PHASE_PROVED))
		return 0;
	return hl_luajit_capture(&it->jit,
				 cache_of(hl_recorder, it, sizeof(struct hl_luajit_cache)), caller,
				 frames, max, ret_truncated);
}

static uint64_t find_trace(struct hl_unwind *unwind, struct hl_walk *walk, uint64_t sp)
{
	for (uint32_t i = 0; i < HL_LUA_MODULES_MAX; i++) {
		struct interpreter *it = &interpreters[i];
		uint32_t phase = atomic_load_explicit(&it->phase, memory_order_acquire);
		uint64_t bytes = phase == PHASE_PROVED && it->is_jit
					 ? hl_luajit_trace_frame(&it->jit, walk, sp)
					 : 0;
		if (!bytes)
			continue;
		uint64_t rule = hl_rule_cache_find(
			unwind, atomic_load_explicit(&unwind->generation, memory_order_relaxed),
			it->jit.vm_start);
		atomic_store_explicit(&hl_node_generated_key,
				      (rule & ~HL_RULE_MASK) | it->jit.vm_start,
				      memory_order_relaxed);
		return hl_arch_rule_of_frame(bytes);
	}
	return 0;
}

/* ---- the probe ---- */

static_assert(HL_LUAJIT_PROBE_BYTES <= HL_LUA_PROBE_BYTES, "one room is for both");

#define FFI_CALL_BYTES 192u
#define STACK_BYTES    ((size_t)512 << 10)

/* In one mapping, with the stack at its end. */
struct room {
	struct interpreter *interpreter;
	struct hl_lua_reader reader;
	const char *problem; /* NULL: it is proved */
	struct hl_walk walk;
	_Alignas(4096) uint8_t memory[HL_LUA_PROBE_BYTES];
	uint8_t stack[STACK_BYTES];
};

static void run_probe(void *context)
{
	struct room *room = context;
	struct interpreter *it = room->interpreter;

	if (it->is_jit) {
		enum hl_luajit_problem jit = hl_luajit_open(&it->jit, &it->api, room->reader.unwind,
							    &room->walk, room->memory);
		room->problem = jit == HL_LUAJIT_PROVED ? NULL : hl_luajit_problem_text(jit);
		return;
	}
	enum hl_lua_problem lua = hl_lua_open(&it->lua, &it->api, &room->reader, room->memory);
	room->problem = lua == HL_LUA_PROVED ? NULL : hl_lua_problem_text(lua);
	if (!room->problem)
		hl_lua_learn_states(&it->lua, &it->api, &room->reader, room->memory);
}

/* The assembly lies beside what exports functions; behind it is the one that calls for the FFI. */
static void add_assembly(struct interpreter *it)
{
	uint64_t end = it->jit.vm_end + FFI_CALL_BYTES;

	if (it->jit.vm_start < it->text_start)
		it->text_start = it->jit.vm_start;
	if (end > it->text_end)
		it->text_end = end;
}

static void offer(struct interpreter *it)
{
	if (it->is_jit) {
		add_assembly(it);
		it->jit.find_maker = find_maker;
	}
	struct hl_script_provider provider = {
		.name = it->is_jit ? "luajit" : "lua",
		.capture = it->is_jit ? capture_jit : capture,
		.recapture = it->api.version > HL_LUA_51 ? recapture : NULL,
		.describe = describe,
		.state = it,
		.remembers = it->api.version > HL_LUA_51,
		.by_stack = true,
		.eval_start = it->is_jit ? it->jit.vm_start : it->lua.eval_start,
		.eval_end = it->is_jit ? it->jit.vm_end : it->lua.eval_end,
		.resume_start = it->lua.resume_start,
		.resume_end = it->lua.resume_end,
		.text_start = it->text_start,
		.text_end = it->text_end,
		.alloc_start = it->lua.alloc_start,
		.alloc_end = it->lua.alloc_end,
	};

	it->phase = PHASE_PROVED;
	if (hl_script_register(&provider) < 0)
		it->phase = PHASE_REFUSED;
	else if (it->lua.tells_types)
		atomic_store(&hl_guest_wants.told_type, told_type);
}

static void probe(struct hl_recorder *recorder, struct interpreter *it)
{
	uint64_t before;
	struct room *room = hl_private_map_new(sizeof(*room));

	it->phase = room ? PHASE_PROBING : PHASE_REFUSED;
	if (!room)
		return;
	room->interpreter = it;
	room->reader = (struct hl_lua_reader){.unwind = &recorder->unwind, .walk = &room->walk};
	/* The thread's own stack may be small. Handlers must not find the thread on that one. */
	hl_sys_block_signals(&before);
	hl_saved_call_on_stack(room->stack + STACK_BYTES, run_probe, room);
	hl_sys_restore_signals(&before);
	if (!room->problem) {
		offer(it);
	} else {
		it->phase = PHASE_REFUSED;
		hl_script_refuse(recorder->region.header, it->is_jit ? "LuaJIT" : "Lua",
				 room->problem);
	}
	hl_private_map_free(room, sizeof(*room));
}

/* It may have been unloaded since it was found: the next sample may come long after. */
static bool is_loaded(const struct interpreter *it)
{
	struct dl_find_object object;

	return _dl_find_object((void *)it->api.newstate, &object) == 0 &&
	       (uint64_t)object.dlfo_map_start == it->start;
}

static void open_noted(struct hl_recorder *recorder)
{
	for (uint32_t i = 0; i < HL_LUA_MODULES_MAX; i++) {
		uint32_t found = PHASE_FOUND;
		if (interpreters[i].phase != PHASE_FOUND)
			continue;
		if (is_loaded(&interpreters[i]))
			probe(recorder, &interpreters[i]);
		else
			atomic_compare_exchange_strong(&interpreters[i].phase, &found, PHASE_NONE);
	}
}

/* ---- the guest ---- */

const struct hl_guest hl_guest_lua = {
	.note = note,
	.open = open_noted,
	.type = type_of_tag,
	.stamp = hl_lua_states_stamp,
	.find_generated = find_trace,
};
