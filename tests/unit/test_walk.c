/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks of stacks of every kind, interrupted by nothing. */
#include "unwind/saved.h"
#include "walk_capture.h"

#include <alloca.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static void recursion_is_walked(void **state)
{
	(void)state;
	for (unsigned depth = 0; depth < 60; depth++)
		recurse(depth, capture);
	for (unsigned depth = 60; depth-- > 0;)
		recurse(depth, capture);
	assert_all_equal(120);
}

static void an_unchanged_stack_is_kept_whole(void **state)
{
	(void)state;
	for (volatile unsigned i = 0; i < 3; i++) { /* volatile: one call, not three */
		capture();
		assert_int_equal(kept == walk.depth, i > 0);
	}
	assert_all_equal(3);
}

static void only_changed_frames_are_new(void **state)
{
	(void)state;
	uint32_t depth = 0;
	for (unsigned i = 0; i < 3; i++) {
		recurse(20, capture);
		depth = walk.depth;
		recurse(24, capture);
		/* The innermost frame of the 20 returns to the same place, but to another caller.
		 */
		assert_true(kept >= depth - 22 && kept < depth);
	}
	assert_all_equal(6);
}

static void a_new_generation_keeps_nothing(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		hl_rule_cache_invalidate(&unwinder);
		capture();
		assert_int_equal(kept, 0);
	}
	assert_all_equal(3);
}

static void rules_do_not_outlive_65536_generations(void **state)
{
	(void)state;
	capture();
	module_id = 2;
	for (unsigned i = 0; i < 1u << 16; i++)
		hl_rule_cache_invalidate(&unwinder);
	capture();
	for (uint32_t i = 0; i < walk.depth; i++)
		assert_int_equal(walk.frames[i].key >> HL_MODULE_SHIFT, 2);
	module_id = 1;
}

/* The prologue realigns the stack: the CFA is found by a saved pointer. */
static NOINLINE unsigned realigned(unsigned depth)
{
	_Alignas(64) volatile char buffer[192];
	volatile char *extra = alloca(16 + depth * 24);

	extra[0] = (char)depth;
	buffer[depth] = extra[0];
	capture();
	if (depth)
		sink = sink + realigned(depth - 1);
	return (unsigned)buffer[depth];
}

static NOINLINE FORCE_ALIGNED unsigned forced(unsigned depth)
{
	capture();
	return depth ? forced(depth - 1) + realigned(2) : realigned(5);
}

static void realigned_stacks_are_walked(void **state)
{
	(void)state;
	realigned(20);
	forced(10);
	assert_all_equal(21 + 11 + 30 + 6);
}

static NOINLINE unsigned with_alloca(unsigned depth)
{
	volatile char *extra = alloca(depth * 40 % 333 + 1);

	extra[0] = (char)depth;
	capture();
	if (depth)
		sink = sink + with_alloca(depth - 1);
	return (unsigned)extra[0];
}

static void frames_of_variable_size_are_walked(void **state)
{
	(void)state;
	with_alloca(50);
	assert_all_equal(51);
}

static int compare_capturing(const void *a, const void *b)
{
	capture();
	return *(const int *)a - *(const int *)b;
}

static void frames_of_libc_are_walked(void **state)
{
	(void)state;
	int numbers[] = {5, 3, 9, 1, 7, 2, 8};
	qsort(numbers, HL_COUNT_OF(numbers), sizeof(numbers[0]), compare_capturing);
	assert_all_equal(8);
}

static ucontext_t main_context, coroutine_contexts[2];
static uint64_t context_start; /* what makecontext(3) has the coroutine return to */
static unsigned wrong_starts;

static NOINLINE void yield_at(unsigned self, unsigned depth)
{
	capture();
	wrong_starts += (walk.frames[0].key & HL_FRAME_PC_MASK) != context_start;
	if (depth)
		yield_at(self, depth - 1);
	else
		swapcontext(&coroutine_contexts[self], &main_context);
	capture();
}

static void run_coroutine(unsigned self)
{
	for (unsigned i = 0; i < 20; i++)
		yield_at(self, i % 7);
}

#define COROUTINE_STACK_BYTES (64u << 10)

static void *prepare_coroutine(unsigned self)
{
	ucontext_t *context = &coroutine_contexts[self];
	void *stack = malloc(COROUTINE_STACK_BYTES);

	getcontext(context);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = COROUTINE_STACK_BYTES;
	context->uc_link = &main_context;
	makecontext(context, (void (*)(void))run_coroutine, 1, self);
	context_start = CONTEXT_RETURN(context);
	return stack;
}

static void coroutines_are_walked_to_their_start(void **state)
{
	(void)state;
	void *stacks[] = {prepare_coroutine(0), prepare_coroutine(1)};
	for (unsigned i = 0; i < 42; i++) {
		swapcontext(&main_context, &coroutine_contexts[i % 2]);
		capture();
	}
	free(stacks[0]);
	free(stacks[1]);
	assert_all_equal(2 * 40);
	assert_int_equal(wrong_starts, 0);
}

/* ---- recall ---- */

static NOINLINE void go_left(unsigned depth);

static NOINLINE void go_right(unsigned depth)
{
	if (depth)
		go_left(depth / 2);
	else
		capture();
	sink = sink + depth;
}

static NOINLINE void go_left(unsigned depth)
{
	if (depth & 1)
		go_left(depth / 2);
	else if (depth)
		go_right(depth / 2);
	else
		capture();
	sink = sink + depth;
}

static void stacks_that_come_again_are_recalled(void **state)
{
	(void)state;
	for (volatile unsigned i = 0; i < 2000; i++)
		go_left(i * 7 % 16); /* few enough frames, frame pointers and all, to be kept */
	assert_all_equal(2000);
	assert_in_range(recalls, 500, 2000);
	assert_true(hl_walk_is_own(&walk, (uint64_t)__builtin_frame_address(0)));
}

/* Has the stack begin elsewhere, so that it shares no part with one of other ${bytes}. */
static NOINLINE void go_from(unsigned bytes, unsigned depth)
{
	volatile char *room = __builtin_alloca(bytes);

	room[0] = 1;
	go_left(depth);
	sink = sink + (unsigned)room[0];
}

/* Each of these stacks takes four slots: together more than there are without a room. */
static void many_stacks_are_recalled_with_a_room_for_their_parts(void **state)
{
	enum { STACKS = 300, TWENTY_FRAMES = 1 << 18 };

	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		recalls = 0;
		for (volatile unsigned i = 0; i < STACKS; i++)
			go_from(16 * (i + 1), TWENTY_FRAMES + i * 181);
	}
	assert_all_equal(20 * STACKS);
	assert_true(has_room);
	assert_in_range(recalls, STACKS / 3,
			STACKS); /* where frames lie decides which share a set */
}

/* Calls ${function} with a number in the frame pointer's register, as code without frame pointers may. */
void call_with_number(void (*function)(unsigned), unsigned levels);
__asm__(".text\n.type call_with_number, "
	"%function\ncall_with_number:\n\t.cfi_startproc\n\t" CALL_WITH_NUMBER
	"\n\tret\n\t.cfi_endproc\n.size call_with_number, . - call_with_number\n");

static NOINLINE void chain_right(unsigned levels);

static NOINLINE void chain_left(unsigned levels)
{
	if (levels % 3 == 1)
		call_with_number(chain_right, levels - 1);
	else if (levels)
		chain_right(levels - 1);
	else
		capture();
	sink = sink + levels;
}

static NOINLINE void chain_right(unsigned levels)
{
	if (levels)
		chain_left(levels - 1);
	else
		capture();
	sink = sink + levels;
}

static NOINLINE void chain_other(unsigned levels)
{
	chain_left(levels - 1);
	sink = sink + levels;
}

/* Of the stack before only the frames outward of the chain are the same: more than a slot of
 * hl_recall reaches. */
static void long_chains_that_come_in_turn_are_recalled_part_by_part(void **state)
{
	(void)state;
	void (*volatile outermost[])(unsigned) = {chain_right, chain_other};
	for (volatile unsigned i = 0; i < 200; i++)
		outermost[i % 2](21);
	assert_all_equal(200);
	assert_in_range(recalls, 150, 200);
}

static jmp_buf way_out;

static NOINLINE void jump_out(volatile unsigned depth)
{
	capture();
	if (depth)
		go_left(depth);
	longjmp(way_out, 1);
}

static void stacks_left_by_longjmp_are_not_recalled_wrongly(void **state)
{
	(void)state;
	for (volatile unsigned i = 0; i < 200; i++) {
		if (!setjmp(way_out))
			jump_out(i % 5);
		go_left(i % 16);
	}
	assert_all_equal(500);
	assert_in_range(recalls, 100, 1000);
}

/* Where its return address lies is one thing in one call and another in the next. */
static NOINLINE void with_room_of(volatile unsigned bytes)
{
	volatile char *room = alloca(bytes);

	room[0] = 1;
	capture();
}

static void capture_in_coroutine(unsigned turns, unsigned depth)
{
	with_room_of(COROUTINE_STACK_BYTES / 2);
	with_room_of(16);
	for (volatile unsigned i = 0; i < turns; i++) {
		go_left(i % 2 ? depth : i);
		assert_false(hl_walk_is_own(&walk, (uint64_t)__builtin_frame_address(0)));
	}
}

/* Maps a stack at ${at}, anywhere for NULL, and has a coroutine capture stacks on it. */
static void *run_on_new_stack(void *at, unsigned turns, unsigned depth)
{
	ucontext_t *context = &coroutine_contexts[0];
	char *stack = mmap(at, COROUTINE_STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	assert_ptr_not_equal(stack, MAP_FAILED);
	getcontext(context);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = COROUTINE_STACK_BYTES;
	context->uc_link = &main_context;
	makecontext(context, (void (*)(void))capture_in_coroutine, 2, turns, depth);
	swapcontext(&main_context, context);
	return stack;
}

/* Each stack lies where the last one did, deeper or not; above it there was another, which is gone.
 * A word that is read beyond the stack ends the program. */
static void stacks_that_are_unmapped_and_mapped_again_are_never_read(void **state)
{
	(void)state;
	char *place = mmap(NULL, 2 * COROUTINE_STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	assert_ptr_not_equal(place, MAP_FAILED);
	for (volatile unsigned i = 0; i < 40; i++) {
		char *upper = run_on_new_stack(place + COROUTINE_STACK_BYTES, 4 + i % 3, i);
		run_on_new_stack(place, 4 + i % 5, 3 * i);
		assert_int_equal(munmap(upper, COROUTINE_STACK_BYTES), 0);
		run_on_new_stack(place, 3 + i % 4, 5 * i);
		assert_int_equal(munmap(place, COROUTINE_STACK_BYTES), 0);
		go_left(i);
	}
	assert_all_equal(40);
	assert_true(recalls > 40);
}

static const char code_with_odd_rbp[] = CODE_WITH_ODD_FRAME_POINTER;

static void code_without_cfi_is_walked_by_its_frame_pointer(void **state)
{
	(void)state;
	generated_fn *generated =
		generate(code_with_frame_pointer, sizeof(code_with_frame_pointer));
	capture_only();
	uint32_t outside = walk.depth;
	generated(capture_only, 0);
	assert_false(walk.incomplete);
	assert_int_equal(walk.depth, outside + 1);
	uint64_t key = walk.frames[walk.depth - 1].key;
	assert_int_equal(key >> HL_MODULE_SHIFT, HL_MODULE_NONE);
	assert_int_equal(key, (uint64_t)(uintptr_t)generated + CODE_CALL_END - 1); /* in the call */
	munmap((void *)(uintptr_t)generated, 4096);
	assert_int_equal(differences, 0);
}

void call_above_array(generated_fn *function, void (*callback)(void));
__asm__(".text\n.type call_above_array, "
	"%function\ncall_above_array:\n\t.cfi_startproc\n\t" CALL_ABOVE_ARRAY
	"\n\tret\n\t.cfi_endproc\n.size call_above_array, . - call_above_array\n");

static struct hl_saved_range counted;
static uint32_t counted_calls;

static NOINLINE void count_calls(void)
{
	struct hl_registers caller = REGISTERS_OF_CALLER();

	counted_calls = hl_saved_count_calls(&unwinder, &walk, &caller, NULL, &counted, 1);
}

static void callers_of_code_without_cfi_may_have_arrays_below_their_record(void **state)
{
	(void)state;
	generated_fn *generated =
		generate(code_with_frame_pointer, sizeof(code_with_frame_pointer));
	for (volatile unsigned i = 0; i < 3; i++) {
		capture_only();
		uint32_t outside = walk.depth;
		uint64_t sp = walk.frames[outside - 1].sp;
		call_above_array(generated, capture_only);
		assert_false(walk.incomplete);
		assert_int_equal(walk.depth, outside + 2);
		assert_int_equal(walk.frames[outside - 1].sp, sp);
		assert_in_range(sp - walk.frames[outside].sp, 256, 280);
		call_above_array(generated, capture_only);
		assert_false(walk.incomplete);
		assert_int_equal(walk.depth, outside + 2);
		assert_int_equal(kept, outside - 1); /* all but the caller, which is elsewhere */
	}
	/* The walk with all kept registers */
	assert_true(hl_saved_find_function(&unwinder, frame_pc(&walk.frames[walk.depth - 3]),
					   &counted.start, &counted.end));
	call_above_array(generated, count_calls);
	assert_int_equal(counted_calls, 1);
	munmap((void *)(uintptr_t)generated, 4096);
	assert_int_equal(differences, 0);
}

static void a_frame_pointer_put_to_other_use_ends_the_stack(void **state)
{
	(void)state;
	generated_fn *generated = generate(code_with_odd_rbp, sizeof(code_with_odd_rbp));
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	const uint64_t odd[] = {0, /* a thread's start, by the ABI, but here callers follow */
				8,
				here + 1,
				here - 65536,
				UINT64_C(1) << 47,
				~UINT64_C(0),
				(uint64_t)&unwinder,
				here + (UINT64_C(1) << 30)};
	for (size_t i = 0; i < HL_COUNT_OF(odd); i++) {
		generated(capture_only, odd[i]);
		assert_true(walk.incomplete);
		assert_int_equal(walk.depth, 1);
	}
	munmap((void *)(uintptr_t)generated, 4096);
	assert_int_equal(differences, 0);
}

static void read_debug_frame(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	elf_version(EV_CURRENT);
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	size_t names;
	assert_int_equal(elf_getshdrstrndx(elf, &names), 0);
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(elf, scn));) {
		GElf_Shdr header;
		assert_non_null(gelf_getshdr(scn, &header));
		if (strcmp(elf_strptr(elf, names, header.sh_name), ".debug_frame") != 0)
			continue;
		Elf_Data *contents = elf_rawdata(scn, NULL);
		void *copy = malloc(contents->d_size);
		memcpy(copy, contents->d_buf, contents->d_size);
		debug_frame.bytes = copy;
		debug_frame.size = contents->d_size;
	}
	elf_end(elf);
	close(fd);
	assert_non_null(debug_frame.bytes);
}

static bool is_in_function(uint64_t pc, const void *function)
{
	return pc - (uint64_t)function < 256;
}

static void debug_frame_serves_where_there_is_no_eh_frame(void **state)
{
	(void)state;
	capture_only();
	uint32_t outside = walk.depth;
	read_debug_frame();
	hl_rule_cache_invalidate(&unwinder);
	debug_frame_outer(capture_only);
	assert_false(walk.incomplete);
	assert_int_equal(walk.depth, outside + DEBUG_FRAME_DEPTH + 2);
	for (uint32_t i = 0; i <= DEBUG_FRAME_DEPTH; i++)
		assert_true(is_in_function(frame_pc(&walk.frames[walk.depth - 1 - i]),
					   (const void *)(uintptr_t)debug_frame_inner));
	assert_true(is_in_function(frame_pc(&walk.frames[outside]),
				   (const void *)(uintptr_t)debug_frame_outer));
	free((void *)debug_frame.bytes);
	debug_frame = (struct hl_cfi_section){0};
	assert_int_equal(differences, 0);
}

static void deep_stacks_keep_the_leaf_side(void **state)
{
	(void)state;
	recurse(HL_MAX_FRAMES - 100, capture);
	assert_false(walk.truncated);
	for (unsigned depth = HL_MAX_FRAMES - 30; depth < 3 * HL_MAX_FRAMES; depth += 37) {
		recurse(depth, capture);
		assert_int_equal(walk.truncated, reference.count > HL_MAX_FRAMES);
		assert_int_equal(walk.depth, walk.truncated ? HL_MAX_FRAMES : reference.count);
	}
	recurse(10, capture);
	assert_false(walk.truncated);
	assert_int_equal(kept, 0); /* a truncated walk is not remembered */
	assert_all_equal(50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WALK_TEST(recursion_is_walked),
		WALK_TEST(an_unchanged_stack_is_kept_whole),
		WALK_TEST(only_changed_frames_are_new),
		WALK_TEST(a_new_generation_keeps_nothing),
		WALK_TEST(rules_do_not_outlive_65536_generations),
		WALK_TEST(realigned_stacks_are_walked),
		WALK_TEST(frames_of_variable_size_are_walked),
		WALK_TEST(frames_of_libc_are_walked),
		WALK_TEST(coroutines_are_walked_to_their_start),
		WALK_TEST(stacks_that_come_again_are_recalled),
		WALK_TEST(many_stacks_are_recalled_with_a_room_for_their_parts),
		WALK_TEST(long_chains_that_come_in_turn_are_recalled_part_by_part),
		WALK_TEST(stacks_left_by_longjmp_are_not_recalled_wrongly),
		WALK_TEST(stacks_that_are_unmapped_and_mapped_again_are_never_read),
		WALK_TEST(code_without_cfi_is_walked_by_its_frame_pointer),
		WALK_TEST(callers_of_code_without_cfi_may_have_arrays_below_their_record),
		WALK_TEST(a_frame_pointer_put_to_other_use_ends_the_stack),
		WALK_TEST(debug_frame_serves_where_there_is_no_eh_frame),
		WALK_TEST(deep_stacks_keep_the_leaf_side),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
