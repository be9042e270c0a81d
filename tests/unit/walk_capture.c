/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures stacks and compares them with libgcc's; see walk_capture.h. */
#include "walk_capture.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unwind.h>

struct hl_unwind unwinder;
struct hl_walk walk;
static struct hl_recall recall;
unsigned recalls;
bool has_room;
struct reference reference;
uint32_t module_id = 1;
struct hl_cfi_section debug_frame;
volatile unsigned sink;
uint32_t kept;
unsigned captures, differences;
bool may_stop_in_loader;
unsigned stops_in_loader;

static bool find_module(struct hl_unwind *unwind, uint64_t pc, struct hl_unwind_module *ret_module)
{
	struct dl_find_object found;

	(void)unwind;
	if (_dl_find_object((void *)pc, &found))
		return false;
	*ret_module = (struct hl_unwind_module){
		.id = module_id,
		.start = (uint64_t)found.dlfo_map_start,
		.end = (uint64_t)found.dlfo_map_end,
		.eh_frame_hdr = found.dlfo_eh_frame,
		.load_bias = found.dlfo_link_map->l_addr,
	};
	return true;
}

static struct hl_unwind_file find_file(struct hl_unwind *unwind,
				       const struct hl_unwind_module *module)
{
	(void)unwind;
	(void)module;
	return (struct hl_unwind_file){.debug_frame = debug_frame.bytes,
				       .debug_frame_bytes = debug_frame.size};
}

static _Unwind_Reason_Code add_reference(struct _Unwind_Context *context, void *argument)
{
	struct reference *into = argument;
	int is_before = 0;
	uint64_t ip = _Unwind_GetIPInfo(context, &is_before);
	bool is_inward = !into->count && ip != into->start_pc;

	if (is_inward || !ip) /* 0: what the outermost frame is said to return to */
		return _URC_NO_REASON;
	/* What a signal's handler returns to was called by nobody. */
	if (is_before && into->count)
		into->frames[into->count - 1].lookup_pc++;
	if (into->count < HL_COUNT_OF(into->frames))
		into->frames[into->count++] = (struct reference_frame){
			ip - (is_before ? 0 : 1),
			is_before ? INTERRUPTED_SP(context) : _Unwind_GetCFA(context)};
	return _URC_NO_REASON;
}

/* The leaf sides; ${count} frames of both. */
static bool leaf_sides_are_equal(const struct hl_walk *of, const struct reference *with,
				 unsigned count)
{
	if (of->depth < count || with->count < count)
		return false;
	for (unsigned i = 0; i < count; i++) {
		const struct hl_walk_frame *frame = &of->frames[of->depth - 1 - i];
		/* Nor what makecontext(3) starts a stack with. */
		uint64_t at_start = i + 1 == with->count ? with->frames[i].lookup_pc + 1 : 0;
		bool same_pc =
			frame_pc(frame) == with->frames[i].lookup_pc || frame_pc(frame) == at_start;
		if (!same_pc || frame->sp != with->frames[i].sp)
			return false;
	}
	return true;
}

bool is_in_loader(uint64_t pc)
{
	struct dl_find_object found;

	return !_dl_find_object((void *)pc, &found) &&
	       found.dlfo_link_map->l_addr == getauxval(AT_BASE);
}

/* The walk is all of the reference, or its first 1024 frames, or what was said to be enough. */
static bool is_right(void)
{
	uint32_t count = reference.count;

	if (walk.truncated && count > HL_MAX_FRAMES)
		count = HL_MAX_FRAMES;
	if (may_stop_in_loader && walk.incomplete && is_in_loader(frame_pc(&walk.frames[0]))) {
		stops_in_loader++;
		count = walk.depth;
	} else if (walk.incomplete) {
		return false;
	}
	return walk.depth == count && leaf_sides_are_equal(&walk, &reference, count);
}

/* A node id that tells (parent, key) apart, as a tree of stacks would. */
static uint32_t node_of(uint32_t parent, uint64_t key)
{
	uint64_t mixed = (parent * UINT64_C(0x9e3779b97f4a7c15)) ^ key;

	mixed ^= mixed >> 29;
	mixed *= UINT64_C(0xbf58476d1ce4e5b9);
	return (uint32_t)(mixed >> 32);
}

/* Does what a caller must: gives the new frames nodes. The kept ones must have theirs. */
bool intern_nodes(struct hl_walk *of, uint32_t unchanged)
{
	uint32_t parent = 0;
	bool is_right = unchanged <= of->depth;

	for (uint32_t i = 0; i < of->depth; i++) {
		uint32_t node = node_of(parent, of->frames[i].key);
		if (i >= unchanged)
			of->frames[i].node = node;
		is_right = is_right && of->frames[i].node == node;
		parent = node;
	}
	return is_right;
}

static void report_difference(void)
{
	if (differences++ > 2)
		return;
	printf("ours: %u frames, kept %u%s\n", walk.depth, kept,
	       walk.incomplete ? ", incomplete" : "");
	for (uint32_t i = 0; i < walk.depth || i < reference.count; i++) {
		const struct hl_walk_frame *frame = &walk.frames[walk.depth - 1 - i];
		if (i < walk.depth)
			printf("  %#lx %#lx", frame_pc(frame), frame->sp);
		if (i < reference.count)
			printf("  libgcc %#lx %#lx", reference.frames[i].lookup_pc,
			       reference.frames[i].sp);
		printf("\n");
	}
}

NOINLINE void capture_only(void)
{
	struct hl_registers at = REGISTERS_OF_CALLER();

	kept = hl_walk_capture(&unwinder, &walk, &at);
	captures++;
	if (!intern_nodes(&walk, kept))
		report_difference();
}

/* Its innermost node and whether the walk was incomplete. Not 0. */
static uint64_t tag_of(const struct hl_walk *of)
{
	return (uint64_t)of->frames[of->depth - 1].node << 1 | of->incomplete | UINT64_C(1) << 63;
}

/* What is recalled must be what is walked; all is kept for later. */
static bool is_recalled_right(uint64_t recalled, const struct hl_registers *at)
{
	recalls += recalled != 0;
	if (recalled)
		return recalled == tag_of(&walk);
	struct hl_recall_slot *place = hl_recall_keep(&recall, &walk, kept, at);
	if (place)
		place->tag = tag_of(&walk);
	if (hl_recall_wants_room(&recall)) {
		static _Alignas(128) char room[HL_RECALL_ROOM_BYTES];
		hl_recall_give_room(&recall, room);
		has_room = true;
	}
	return true;
}

NOINLINE void capture(void)
{
	struct hl_registers at = REGISTERS_OF_CALLER();
	uint64_t recalled = hl_recall_find(&recall, &unwinder, &walk, &at,
					   hl_recall_locate(&recall, &walk, &at));

	kept = hl_walk_capture(&unwinder, &walk, &at);
	captures++;
	reference.count = 0;
	reference.start_pc = at.pc;
	_Unwind_Backtrace(add_reference, &reference);
	if (!is_right() || !intern_nodes(&walk, kept) || !is_recalled_right(recalled, &at))
		report_difference();
}

int begin(void **state)
{
	(void)state;
	hl_rule_cache_invalidate(&unwinder);
	if (!walk.own_top)
		hl_walk_begin(&walk, true);
	captures = differences = recalls = stops_in_loader = 0;
	may_stop_in_loader = false;
	debug_frame = (struct hl_cfi_section){0};
	unwinder.find_module = find_module;
	unwinder.find_file = find_file;
	return 0;
}

void assert_all_equal(unsigned captures_min)
{
	assert_true(captures >= captures_min);
	assert_int_equal(differences, 0);
}

NOINLINE unsigned recurse(unsigned depth, void (*at_leaf)(void))
{
	volatile unsigned buffer[4];

	buffer[depth % 4] = depth;
	if (depth)
		sink = sink + recurse(depth - 1, at_leaf);
	else
		at_leaf();
	return buffer[depth % 4];
}

void install(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	assert_int_equal(sigaction(signal, &action, NULL), 0);
}

const char code_with_frame_pointer[] = CODE_WITH_FRAME_POINTER;

generated_fn *generate(const char *code, size_t size)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(page, MAP_FAILED);
	memcpy(page, code, size);
	__builtin___clear_cache(page, (char *)page + size);
	return (generated_fn *)(uintptr_t)page;
}
