/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks of stacks of every kind. Where libgcc's unwinder can walk too, each captured stack must be
 * what _Unwind_Backtrace says: the same frames with the same program counters and stack pointers.
 */
#include "unwind/arch_x86_64.h"
#include "unwind/unwind.h"
#include "walk_parts.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <cmocka.h>

/* Bytes of a captured frame that libgcc knows as well. */
struct reference_frame {
	uint64_t lookup_pc, sp;
};

struct reference {
	struct reference_frame frames[4096];
	unsigned count;
	uint64_t start_pc; /* frames inward of this return address are left out */
};

static struct hl_unwind unwinder;
static struct hl_walk walk;
static struct hl_walk fresh_walk;
static struct reference reference;
static uint32_t module_id = 1;
static struct hl_cfi_section debug_frame; /* of this program; empty when not wanted */
static volatile unsigned sink;

/* What the last capture returned, and how often captures differed from libgcc's stack. */
static uint32_t kept;
static unsigned captures, differences;

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
		.debug_frame = debug_frame.bytes,
		.debug_frame_bytes = debug_frame.size,
		.load_bias = found.dlfo_link_map->l_addr,
	};
	return true;
}

static _Unwind_Reason_Code add_reference(struct _Unwind_Context *context, void *argument)
{
	struct reference *into = argument;
	int is_before = 0;
	uint64_t ip = _Unwind_GetIPInfo(context, &is_before);
	bool is_inward = !into->count && ip != into->start_pc;
	if (is_inward || !ip) /* 0: what the outermost frame is said to return to */
		return _URC_NO_REASON;
	if (into->count < HL_COUNT_OF(into->frames))
		into->frames[into->count++] =
			(struct reference_frame){ip - (is_before ? 0 : 1), _Unwind_GetCFA(context)};
	return _URC_NO_REASON;
}

static uint64_t frame_pc(const struct hl_walk_frame *frame)
{
	return frame->key & HL_FRAME_PC_MASK;
}

/* The leaf sides; ${count} frames of both. */
static bool leaf_sides_are_equal(const struct hl_walk *of, const struct reference *with,
				 unsigned count)
{
	if (of->depth < count || with->count < count)
		return false;
	for (unsigned i = 0; i < count; i++) {
		const struct hl_walk_frame *frame = &of->frames[of->depth - 1 - i];
		if (frame_pc(frame) != with->frames[i].lookup_pc || frame->sp != with->frames[i].sp)
			return false;
	}
	return true;
}

/* Whether the dynamic loader may be where a walk ends, and how often it was. */
static bool may_stop_in_loader;
static unsigned stops_in_loader;

static bool is_in_loader(uint64_t pc)
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
static bool intern_nodes(struct hl_walk *of, uint32_t unchanged)
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

#define REGISTERS_OF_CALLER()                                                        \
	({                                                                           \
		const uint64_t *frame_ = __builtin_frame_address(0);                 \
		(struct hl_registers){frame_[1], (uint64_t)(frame_ + 2), frame_[0]}; \
	})

/* Captures the caller's stack, no more. */
static NOINLINE void capture_only(void)
{
	struct hl_registers at = REGISTERS_OF_CALLER();
	kept = hl_walk_capture(&unwinder, &walk, &at);
	captures++;
	if (!intern_nodes(&walk, kept))
		report_difference();
}

/* Captures the caller's stack and compares it with libgcc's. */
static NOINLINE void capture(void)
{
	struct hl_registers at = REGISTERS_OF_CALLER();
	kept = hl_walk_capture(&unwinder, &walk, &at);
	captures++;
	reference.count = 0;
	reference.start_pc = at.pc;
	_Unwind_Backtrace(add_reference, &reference);
	if (!is_right() || !intern_nodes(&walk, kept))
		report_difference();
}

static int begin(void **state)
{
	(void)state;
	hl_unwind_invalidate(&unwinder);
	captures = differences = stops_in_loader = 0;
	may_stop_in_loader = false;
	debug_frame = (struct hl_cfi_section){0};
	unwinder.find_module = find_module;
	return 0;
}

static void assert_all_equal(unsigned captures_min)
{
	assert_true(captures >= captures_min);
	assert_int_equal(differences, 0);
}

static NOINLINE unsigned recurse(unsigned depth, void (*at_leaf)(void))
{
	volatile unsigned buffer[4];
	buffer[depth % 4] = depth;
	if (depth)
		sink = sink + recurse(depth - 1, at_leaf);
	else
		at_leaf();
	return buffer[depth % 4];
}

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
		hl_unwind_invalidate(&unwinder);
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
		hl_unwind_invalidate(&unwinder);
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

static NOINLINE __attribute__((force_align_arg_pointer)) unsigned forced(unsigned depth)
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

static void handle_by_capture(int signal)
{
	(void)signal;
	capture();
}

static void install(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	assert_int_equal(sigaction(signal, &action, NULL), 0);
}

static void raise_in_leaf(void)
{
	raise(SIGUSR1);
}

static void signal_handlers_are_walked_through(void **state)
{
	(void)state;
	install(SIGUSR1, handle_by_capture, 0);
	for (unsigned depth = 0; depth < 20; depth++)
		recurse(depth, raise_in_leaf);
	assert_all_equal(20);
}

static void handlers_on_another_stack_are_walked_through(void **state)
{
	(void)state;
	size_t size = 64 << 10;
	stack_t alternate = {.ss_sp = malloc(size), .ss_size = size};
	stack_t none = {.ss_flags = SS_DISABLE};
	assert_int_equal(sigaltstack(&alternate, NULL), 0);
	install(SIGUSR1, handle_by_capture, SA_ONSTACK);
	for (unsigned depth = 0; depth < 20; depth++) {
		recurse(depth, raise_in_leaf);
		recurse(depth, capture); /* and back on the thread's own */
	}
	assert_int_equal(sigaltstack(&none, NULL), 0);
	free(alternate.ss_sp);
	assert_all_equal(40);
}

static sigjmp_buf fault_exit;

static void handle_fault(int signal)
{
	(void)signal;
	capture();
	siglongjmp(fault_exit, 1);
}

static NOINLINE unsigned leaf_without_frame(const volatile unsigned *address)
{
	return *address;
}

static const unsigned *volatile nowhere = (const unsigned *)8;

static void read_nowhere(void)
{
	sink = sink + leaf_without_frame(nowhere);
}

static void faults_in_leaves_are_walked(void **state)
{
	(void)state;
	install(SIGSEGV, handle_fault, 0);
	for (volatile unsigned depth = 0; depth < 10; depth++)
		if (!sigsetjmp(fault_exit, 1))
			recurse(depth, read_nowhere);
	signal(SIGSEGV, SIG_DFL);
	assert_all_equal(10);
}

/*
 * Steps through code instruction by instruction, capturing at each: prologues, epilogues, PLT
 * entries, the resolver of lazy binding, the vdso. int3 begins and ends it.
 */
static unsigned steps_in_vdso, steps_in_loader;

static void handle_step(int signal, siginfo_t *info, void *argument)
{
	ucontext_t *context = argument;
	greg_t *flags = &context->uc_mcontext.gregs[REG_EFL];
	uint64_t pc = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
	struct dl_find_object found;
	(void)signal;
	if (info->si_code != TRAP_TRACE)
		*flags ^= 0x100;
	if (_dl_find_object((void *)pc, &found))
		return;
	steps_in_vdso += (uint64_t)found.dlfo_map_start == getauxval(AT_SYSINFO_EHDR);
	steps_in_loader += (uint64_t)found.dlfo_link_map->l_addr == getauxval(AT_BASE);
	capture();
}

#define BREAKPOINT() __asm__ volatile("int3" ::: "memory")

static void begin_steps(void)
{
	struct sigaction action = {.sa_sigaction = handle_step, .sa_flags = SA_SIGINFO};
	assert_int_equal(sigaction(SIGTRAP, &action, NULL), 0);
	steps_in_vdso = steps_in_loader = 0;
}

static NOINLINE unsigned realigned_around(void (*callback)(void))
{
	_Alignas(64) volatile char buffer[192];
	volatile char *extra = alloca(sink % 64 + 1);
	extra[0] = 1;
	buffer[0] = extra[0];
	callback();
	return (unsigned)buffer[0];
}

static NOINLINE void break_here(void)
{
	BREAKPOINT();
}

static void nothing(void)
{
}

static void every_instruction_can_be_interrupted(void **state)
{
	(void)state;
	begin_steps();
	sink = sink + (unsigned)strtol("4711", NULL, 10); /* bound now */
	BREAKPOINT();
	recurse(2, nothing);
	sink = sink + (unsigned)strtol("4711", NULL, 10);
	BREAKPOINT();
	assert_all_equal(50);
}

/* Not the epilogue: gcc 12 says there, for one instruction, that rbp is still to be restored. */
static void every_instruction_of_a_realigning_prologue_can_be_interrupted(void **state)
{
	(void)state;
	begin_steps();
	BREAKPOINT();
	realigned_around(break_here);
	assert_all_equal(15);
}

/*
 * _dl_runtime_resolve finds its frame by rbx, which is known only when it is itself what was
 * interrupted: through the functions that it calls a walk is right as far as it comes.
 */
static void the_resolver_of_lazy_binding_can_be_interrupted(void **state)
{
	(void)state;
	begin_steps();
	may_stop_in_loader = true;
	BREAKPOINT();
	sink = sink + (unsigned)getppid(); /* called nowhere else: not bound yet */
	BREAKPOINT();
	if (!steps_in_loader)
		skip(); /* the program was linked to bind at once */
	assert_true(stops_in_loader > 0 && captures > stops_in_loader + 20);
	assert_all_equal(100);
}

static void the_vdso_can_be_interrupted(void **state)
{
	(void)state;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	begin_steps();
	BREAKPOINT();
	clock_gettime(CLOCK_MONOTONIC, &now);
	BREAKPOINT();
	if (!steps_in_vdso)
		skip();
	assert_all_equal(10);
}

static ucontext_t main_context, coroutine_contexts[2];

static NOINLINE void yield_at(unsigned self, unsigned depth)
{
	capture();
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
}

/* push rbp; mov rbp,rsp; call rdi; pop rbp; ret */
static const uint8_t code_with_frame_pointer[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* push rbp; mov rbp,rsi; call rdi; pop rbp; ret */
static const uint8_t code_with_odd_rbp[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd7, 0x5d, 0xc3};

typedef void generated_fn(void (*callback)(void), uint64_t rbp);

static generated_fn *generate(const uint8_t *code, size_t size)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	memcpy(page, code, size);
	return (generated_fn *)(uintptr_t)page;
}

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
	assert_int_equal(key, (uint64_t)(uintptr_t)generated + 5); /* in the call */
	munmap((void *)(uintptr_t)generated, 4096);
	assert_int_equal(differences, 0);
}

static void a_frame_pointer_put_to_other_use_ends_the_stack(void **state)
{
	(void)state;
	generated_fn *generated = generate(code_with_odd_rbp, sizeof(code_with_odd_rbp));
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	const uint64_t odd[] = {8,
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
	generated(capture_only, 0); /* a thread's start, by the ABI */
	assert_false(walk.incomplete);
	assert_int_equal(walk.depth, 1);
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
	hl_unwind_invalidate(&unwinder);
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

/* Of an rbp that no frame outward is found by, a walk may have kept an older value. Whether one is,
 * the walk may take for granted when it cannot easily tell. */
static bool frames_are_equal(const struct hl_walk_frame *a, const struct hl_walk_frame *b)
{
	return a->key == b->key && a->sp == b->sp &&
	       (a->bp == b->bp || !(a->flags & b->flags & HL_FRAME_NEEDS_BP));
}

/* A walk that remembers against one that does not. */
static NOINLINE void capture_twice(void)
{
	struct hl_registers at = REGISTERS_OF_CALLER();
	kept = hl_walk_capture(&unwinder, &walk, &at);
	memset(&fresh_walk, 0, offsetof(struct hl_walk, frames));
	hl_walk_capture(&unwinder, &fresh_walk, &at);
	captures++;
	bool is_equal = walk.depth == fresh_walk.depth && intern_nodes(&walk, kept) &&
			walk.truncated == fresh_walk.truncated &&
			walk.incomplete == fresh_walk.incomplete;
	for (uint32_t i = 0; is_equal && i < walk.depth; i++)
		is_equal = frames_are_equal(&walk.frames[i], &fresh_walk.frames[i]);
	if (!is_equal)
		differences++;
}

static uint64_t random_state = 88172645463325252;

static uint32_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 20);
}

static void wander(unsigned depth);

static NOINLINE void wander_small(unsigned depth)
{
	wander(depth);
	sink = sink + depth;
}

static NOINLINE void wander_large(unsigned depth)
{
	volatile char buffer[200];
	buffer[depth % 200] = 1;
	wander(depth);
	sink = sink + (unsigned)buffer[depth % 200];
}

static NOINLINE void wander_alloca(unsigned depth)
{
	volatile char *buffer = alloca(next_random() % 256 + 1);
	buffer[0] = 1;
	wander(depth);
	sink = sink + (unsigned)buffer[0];
}

static NOINLINE void wander_realigned(unsigned depth)
{
	_Alignas(64) volatile char buffer[64];
	buffer[0] = 1;
	wander(depth);
	sink = sink + (unsigned)buffer[0];
}

static generated_fn *generated_wander;
static unsigned generated_depth;

static NOINLINE void wander_from_generated(void)
{
	wander(generated_depth);
	sink = sink + 1;
}

static NOINLINE void wander_generated(unsigned depth)
{
	generated_depth = depth;
	generated_wander(wander_from_generated, 0);
	sink = sink + depth;
}

static void raise_and_capture(int signal)
{
	(void)signal;
	capture_twice();
}

/* Goes on in a random way: two calls at most, captures before, between and after. */
static NOINLINE void wander(unsigned depth)
{
	static void (*const ways[])(unsigned) = {wander_small,	   wander_large,     wander_alloca,
						 wander_realigned, wander_generated, wander_small};
	if (next_random() % 4 == 0)
		capture_twice();
	if (next_random() % 64 == 0)
		raise(SIGUSR1);
	for (unsigned i = 0; depth && i < 2; i++)
		if (next_random() % 8 < 5)
			ways[next_random() % HL_COUNT_OF(ways)](depth - 1);
	if (next_random() % 3 == 0)
		capture_twice();
}

static void remembering_changes_nothing(void **state)
{
	(void)state;
	install(SIGUSR1, raise_and_capture, 0);
	generated_wander = generate(code_with_frame_pointer, sizeof(code_with_frame_pointer));
	while (captures < 20000)
		wander(30);
	munmap((void *)(uintptr_t)generated_wander, 4096);
	assert_all_equal(20000);
}

/* Loads a library and captures from inside it; returns the function's address. */
static uintptr_t capture_in_plugin(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(library);
	unsigned (*call)(void (*)(void)) =
		(unsigned (*)(void (*)(void)))dlsym(library, "plugin_call");
	assert_non_null(call);
	uintptr_t address = (uintptr_t)call;
	call(capture);
	call(capture);
	assert_int_equal(walk.frames[walk.depth - 1].key >> HL_MODULE_SHIFT, module_id);
	assert_int_equal(dlclose(library), 0);
	hl_unwind_invalidate(&unwinder);
	return address;
}

static void a_library_at_the_address_of_another_is_not_taken_for_it(void **state)
{
	(void)state;
	unsigned same_address = 0;
	uintptr_t last = 0;
	for (module_id = 1; module_id < 20; module_id++) {
		const char *path = getenv(module_id % 2 ? "WALK_PLUGIN_A" : "WALK_PLUGIN_B");
		assert_non_null(path);
		uintptr_t address = capture_in_plugin(path);
		same_address += address == last;
		last = address;
	}
	module_id = 1;
	assert_all_equal(38);
	if (!same_address)
		skip();
}

static void errno_is_left_alone(void **state)
{
	(void)state;
	memset(&walk, 0, offsetof(struct hl_walk, frames)); /* nothing is known to be readable */
	errno = 4711;
	capture_only();
	assert_int_equal(errno, 4711);
}

static void no_registers_make_it_fault(void **state)
{
	(void)state;
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	struct dl_find_object libc;
	assert_int_equal(_dl_find_object((void *)(uintptr_t)printf, &libc), 0);
	uint64_t start = (uint64_t)libc.dlfo_map_start;
	uint64_t size = (uint64_t)libc.dlfo_map_end - start;
	for (unsigned i = 0; i < 20000; i++) {
		struct hl_registers at = {.pc = start + next_random() % size};
		at.sp = here - 4096 + next_random() % 16384 / 8 * 8;
		at.bp = here - 4096 + next_random() % 16384 / 8 * 8;
		if (i % 5 == 0)
			at.sp = (uint64_t)next_random() << (next_random() % 40);
		if (i % 7 == 0)
			at.bp = (uint64_t)next_random() << (next_random() % 40);
		kept = hl_walk_capture(&unwinder, &walk, &at);
		assert_true(walk.depth >= 1 && walk.depth <= HL_MAX_FRAMES);
		intern_nodes(&walk, kept);
	}
}

static _Atomic bool threads_stop;

static NOINLINE unsigned recurse_in_thread(struct hl_walk *own, unsigned depth)
{
	volatile unsigned right = 0;
	if (depth) {
		right = recurse_in_thread(own, depth - 1);
		return right;
	}
	const uint64_t *frame = __builtin_frame_address(0);
	struct hl_registers at = {frame[1], (uint64_t)(frame + 2), frame[0]};
	hl_walk_capture(&unwinder, own, &at);
	right = !own->incomplete && !own->truncated;
	return right;
}

static void *capture_in_thread(void *argument)
{
	struct hl_walk *own = aligned_alloc(64, sizeof(*own));
	memset(own, 0, sizeof(*own));
	uint32_t *failures = argument;
	uint32_t depths[8] = {0};
	for (unsigned i = 0; i < 1000 || !threads_stop; i++) {
		*failures += !recurse_in_thread(own, 5 + i % 8);
		*failures += depths[i % 8] && depths[i % 8] != own->depth;
		depths[i % 8] = own->depth;
	}
	free(own);
	return NULL;
}

static void threads_share_rules_while_modules_change(void **state)
{
	(void)state;
	pthread_t threads[3];
	uint32_t failures[3] = {0};
	threads_stop = false;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, capture_in_thread, &failures[i]),
				 0);
	for (unsigned i = 0; i < 1000; i++) {
		hl_unwind_invalidate(&unwinder);
		sched_yield();
	}
	threads_stop = true;
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(failures[i], 0);
	}
}

#define WALK_TEST(test) cmocka_unit_test_setup(test, begin)

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
		WALK_TEST(signal_handlers_are_walked_through),
		WALK_TEST(handlers_on_another_stack_are_walked_through),
		WALK_TEST(faults_in_leaves_are_walked),
		WALK_TEST(every_instruction_can_be_interrupted),
		WALK_TEST(every_instruction_of_a_realigning_prologue_can_be_interrupted),
		WALK_TEST(the_resolver_of_lazy_binding_can_be_interrupted),
		WALK_TEST(the_vdso_can_be_interrupted),
		WALK_TEST(coroutines_are_walked_to_their_start),
		WALK_TEST(code_without_cfi_is_walked_by_its_frame_pointer),
		WALK_TEST(a_frame_pointer_put_to_other_use_ends_the_stack),
		WALK_TEST(debug_frame_serves_where_there_is_no_eh_frame),
		WALK_TEST(deep_stacks_keep_the_leaf_side),
		WALK_TEST(remembering_changes_nothing),
		WALK_TEST(a_library_at_the_address_of_another_is_not_taken_for_it),
		WALK_TEST(errno_is_left_alone),
		WALK_TEST(no_registers_make_it_fault),
		WALK_TEST(threads_share_rules_while_modules_change),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
