/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded by test_unwind_compare.py: captures the stack of every allocation as the recorder does,
 * by hl_recall_find and else by hl_walk_capture, and compares a random part of them with
 * libunwind's: frame by frame, or, when it was recalled, by a hash over all frames.
 *
 * Equal means: the same frames, leaf first, each with the same instruction pointer and the same
 * stack pointer, and the same number of them. The outermost frame is the one whose return address
 * the call frame information calls undefined (_start, clone, clone3, __start_context) or is zero;
 * neither unwinder reports anything beyond it. The stack of a makecontext(3) coroutine ends with
 * the return address that glibc puts there by hand, the first byte of __start_context: the byte
 * before has no call frame information, and libunwind goes on by whatever rbp holds, to an address
 * that is not code; on aarch64 it says that frame once more. So libunwind's stack ends at an address of
 * no module, or at the same frame again; none of the programs compared generates code. Of a stack deeper than HL_MAX_FRAMES the leaf side is compared, and of one that
 * was interrupted where no table has a rule, at which libunwind stops: glibc's checked copies run on into the
 * next function past padding.
 *
 * libunwind is opened at run time and locally, because it exports _Unwind_* functions that would
 * take the place of the program's own.
 *
 * HL_COMPARE_OUT    prefix; each process writes PREFIX.PID at exit: counts, then differences
 * HL_COMPARE_EVERY  N: compare one of N captures, on average
 */
#define UNW_LOCAL_ONLY
#include "base/compiler.h"
#include "machine.h"
#include "unwind/cfi.h"
#include "unwind/recall.h"
#include "unwind/rule.h"
#include "unwind/unwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT_(x) #x
#define TEXT(x)	 TEXT_(x)

#define DIFFERENCES_SHOWN 8
#define DEFAULT_EVERY	  64u
/* libunwind may not find its way: a bound on what is taken from it. */
#define REFERENCE_MAX (HL_MAX_FRAMES + 64)

struct reference_frame {
	uint64_t ip, sp;
	bool is_signal_frame;
};

/* libunwind's functions, by the names that its macros give them. */
static struct {
	int (*init_local)(unw_cursor_t *, unw_context_t *);
	int (*step)(unw_cursor_t *);
	int (*get_reg)(unw_cursor_t *, unw_regnum_t, unw_word_t *);
	int (*getcontext)(unw_tdep_context_t *);
} reference;

/* Of aarch64 it is instructions of libunwind's header. */
#ifdef UNW_TARGET_AARCH64
#define GET_CONTEXT(context)   unw_getcontext(context)
#define GETCONTEXT_OF(library) NULL
#else
#define GET_CONTEXT(context) reference.getcontext(context)
#define GETCONTEXT_OF(library) \
	((int (*)(unw_tdep_context_t *))dlsym(library, TEXT(UNW_ARCH_OBJ(getcontext))))
#endif

static struct {
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	int (*dlclose)(void *);
} real;

struct thread {
	struct hl_walk walk;
	struct hl_recall recall;
	struct reference_frame expected[REFERENCE_MAX];
	uint64_t random;
};

static struct {
	_Atomic uint64_t captures, recalled, comparisons, differences, unreached, incomplete,
		truncated, frames;
} counts;

static struct hl_unwind unwinder;
static bool is_ready;
static uint32_t every = DEFAULT_EVERY;
static int out_fd = -1;

/* Set while this library works for the thread: what it allocates is not captured. */
static __thread bool is_busy __attribute__((tls_model("initial-exec")));
static __thread struct thread *this_thread __attribute__((tls_model("initial-exec")));

static bool find_module(struct hl_unwind *unwind, uint64_t pc, struct hl_unwind_module *ret_module)
{
	struct dl_find_object found;

	(void)unwind;
	if (_dl_find_object((void *)pc, &found))
		return false;
	*ret_module = (struct hl_unwind_module){
		.id = 1,
		.start = (uint64_t)found.dlfo_map_start,
		.end = (uint64_t)found.dlfo_map_end,
		.eh_frame_hdr = found.dlfo_eh_frame,
	};
	return true;
}

static struct thread *get_thread(void)
{
	if (!this_thread) {
		void *memory = mmap(NULL, sizeof(struct thread), PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			abort();
		this_thread = memory;
		hl_walk_begin(&this_thread->walk, getpid() == gettid());
		this_thread->random = (uint64_t)memory ^ (uint64_t)getpid() << 32 ^ 1;
	}
	return this_thread;
}

/* xorshift64 */
static uint64_t next_random(struct thread *thread)
{
	uint64_t x = thread->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return thread->random = x;
}

static bool is_in_module(uint64_t ip)
{
	struct dl_find_object found;

	return !_dl_find_object((void *)ip, &found);
}

/* Where a signal handler returns to, by its instructions. (unw_is_signal_frame of libunwind 1.6.2 knows
 * only signal frames that it unwound without call frame information.) */
static bool is_restorer(uint64_t ip)
{
	return !memcmp((void *)ip, SIGNAL_RETURN, sizeof(SIGNAL_RETURN) - 1);
}

/* Whether libunwind stopped at a frame that was interrupted where no table has a rule. */
static bool is_cut_off(const struct thread *thread, size_t count)
{
	struct dl_find_object found;
	hl_rule rule;

	return count > 1 && thread->expected[count - 2].is_signal_frame &&
	       !_dl_find_object((void *)thread->expected[count - 1].ip, &found) &&
	       hl_cfi_find_in_memory(found.dlfo_eh_frame, (uint64_t)found.dlfo_map_start,
				     (uint64_t)found.dlfo_map_end, thread->expected[count - 1].ip,
				     &rule) != 0;
}

/* Fills thread->expected from the frame ${at} outward; false when libunwind never came by it. */
static bool walk_reference(struct thread *thread, unw_context_t *context,
			   const struct hl_registers *at, size_t *ret_count)
{
	unw_cursor_t cursor;
	size_t count = 0;
	bool is_inside = false;

	if (reference.init_local(&cursor, context))
		return false;
	do {
		struct reference_frame *frame = &thread->expected[count];
		reference.get_reg(&cursor, UNW_REG_IP, &frame->ip);
		reference.get_reg(&cursor, UNW_REG_SP, &frame->sp);
		is_inside |= frame->ip == at->pc && frame->sp == at->sp;
		if (!is_in_module(frame->ip) ||
		    (count && frame->ip == frame[-1].ip && frame->sp == frame[-1].sp))
			break;
		frame->is_signal_frame = is_restorer(frame->ip);
		count += is_inside;
	} while (count < REFERENCE_MAX && reference.step(&cursor) > 0);
	*ret_count = count;
	return is_inside;
}

static void describe(const char *label, uint64_t ip, uint64_t sp)
{
	Dl_info info = {0};

	dladdr((void *)(ip - 1), &info);
	dprintf(out_fd, "  %s %#lx sp %#lx %s+%#lx %s\n", label, ip, sp,
		info.dli_fname ? info.dli_fname : "?", ip - (uint64_t)info.dli_fbase,
		info.dli_sname ? info.dli_sname : "?");
}

static void report_difference(const struct thread *thread, size_t expected_count)
{
	const struct hl_walk *walk = &thread->walk;

	if (atomic_fetch_add(&counts.differences, 1) >= DIFFERENCES_SHOWN)
		return;
	dprintf(out_fd, "difference: %u frames%s, libunwind %zu\n", walk->depth,
		walk->incomplete ? " (incomplete)" : "", expected_count);
	for (uint32_t i = walk->depth; i-- > 0;)
		describe("ours     ", (walk->frames[i].key & HL_FRAME_PC_MASK) + 1,
			 walk->frames[i].sp);
	for (size_t i = 0; i < expected_count; i++)
		describe("libunwind", thread->expected[i].ip, thread->expected[i].sp);
}

/* The outermost frame may be code that nobody called, which makecontext(3) started and libunwind
 * looks up by the byte before: both addresses become one. */
static uint64_t compared_pc(uint64_t lookup_pc, bool is_outermost)
{
	return is_outermost ? (lookup_pc + 1) & ~UINT64_C(1) : lookup_pc;
}

/* An interrupted frame, and the one that a signal's handler returns to, are looked up by their ip,
 * a calling one by the byte before. */
static uint64_t expected_pc(const struct thread *thread, size_t i, size_t count)
{
	bool is_interrupted = i > 0 && thread->expected[i - 1].is_signal_frame;
	bool is_called = !is_interrupted && !thread->expected[i].is_signal_frame;

	return compared_pc(thread->expected[i].ip - is_called, i + 1 == count);
}

static bool stacks_are_equal(const struct thread *thread, size_t expected_count)
{
	const struct hl_walk *walk = &thread->walk;

	bool is_cut = is_cut_off(thread, expected_count);
	/* What glibc says of the resolver of lazy binding lacks the two words that its stub stores on aarch64: both go
	 * astray, to an address outside of all code. */
	bool is_astray = walk->incomplete && walk->depth == expected_count + 1 &&
			 !is_in_module(walk->frames[0].key & HL_FRAME_PC_MASK);
	if (walk->truncated && expected_count > walk->depth)
		expected_count = walk->depth;
	if (is_cut ? walk->depth < expected_count : walk->depth - is_astray != expected_count)
		return false;
	for (size_t i = 0; i < expected_count; i++) {
		const struct hl_walk_frame *frame = &walk->frames[walk->depth - 1 - i];
		uint64_t pc = compared_pc(frame->key & HL_FRAME_PC_MASK, i + 1 == walk->depth);
		if (pc != expected_pc(thread, i, walk->depth) ||
		    frame->sp != thread->expected[i].sp)
			return false;
	}
	return true;
}

/* Hash of a stack up to and with a frame, from that of the frames outward of it. */
static uint64_t add_frame(uint64_t outer, uint64_t lookup_pc, uint64_t sp)
{
	uint64_t hash = (outer ^ lookup_pc ^ sp << 17) * UINT64_C(0x9e3779b97f4a7c15);

	return (hash ^ hash >> 29) | 1; /* tags are not 0 */
}

static uint64_t hash_of_expected(const struct thread *thread, size_t count)
{
	uint64_t hash = 0;

	for (size_t i = count; i-- > 0;)
		hash = add_frame(hash, expected_pc(thread, i, count), thread->expected[i].sp);
	return hash;
}

/* Gives the frames their nodes, which here are hashes, and keeps the stack for recall. */
static void keep(struct thread *thread, const struct hl_registers *at, uint32_t kept)
{
	struct hl_walk *walk = &thread->walk;
	uint64_t hash = 0;

	for (uint32_t i = 0; i < walk->depth; i++) {
		struct hl_walk_frame *frame = &walk->frames[i];
		hash = add_frame(hash, compared_pc(frame->key & HL_FRAME_PC_MASK, i == 0),
				 frame->sp);
		if (i >= kept)
			frame->node = (uint32_t)hash;
	}
	struct hl_recall_slot *place =
		walk->depth ? hl_recall_keep(&thread->recall, walk, kept, at) : NULL;
	if (place)
		place->tag = hash;
}

/* The hash of the stack when it was recalled; else 0, and it is in thread->walk. */
static uint64_t capture_stack(struct thread *thread, const struct hl_registers *at)
{
	uint64_t recalled = hl_recall_find(&thread->recall, &unwinder, &thread->walk, at,
					   hl_recall_locate(&thread->recall, &thread->walk, at));

	atomic_fetch_add(&counts.captures, 1);
	atomic_fetch_add(&counts.recalled, recalled != 0);
	if (recalled)
		return recalled;
	keep(thread, at, hl_walk_capture(&unwinder, &thread->walk, at));
	atomic_fetch_add(&counts.incomplete, thread->walk.incomplete);
	atomic_fetch_add(&counts.truncated, thread->walk.truncated);
	return 0;
}

static void capture(const struct hl_registers *at)
{
	struct thread *thread = get_thread();
	uint64_t recalled = capture_stack(thread, at);

	if (next_random(thread) % every)
		return;
	unw_context_t context;
	size_t expected_count;
	GET_CONTEXT(&context);
	if (!walk_reference(thread, &context, at, &expected_count)) {
		atomic_fetch_add(&counts.unreached, 1);
		return;
	}
	if (recalled && is_cut_off(thread, expected_count))
		return;
	atomic_fetch_add(&counts.comparisons, 1);
	atomic_fetch_add(&counts.frames, expected_count);
	bool equal = recalled ? recalled == hash_of_expected(thread, expected_count)
			      : stacks_are_equal(thread, expected_count);
	if (!equal)
		report_difference(thread, expected_count);
}

/* In an entry point, which must have a frame pointer: the state of its caller. */
#define CAPTURE_CALLER()                                                                        \
	do {                                                                                    \
		const uint64_t frame_ = (uint64_t)__builtin_frame_address(0),                   \
			       sp_ = HL_HOOK_SP(frame_), bp_ = HL_HOOK_BP(frame_);              \
		struct hl_registers at_ = {HL_HOOK_PC(sp_, bp_), sp_, HL_HOOK_OUTER(sp_, bp_)}; \
		if (is_ready && !is_busy) {                                                     \
			is_busy = true;                                                         \
			capture(&at_);                                                          \
			is_busy = false;                                                        \
		}                                                                               \
	} while (0)

static void find_real(void)
{
	is_busy = true;
	real.dlclose = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
	real.calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	real.realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	real.malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	is_busy = false;
}

HL_EXPORT void *malloc(size_t size)
{
	if (!real.malloc)
		find_real();
	void *block = real.malloc(size);
	CAPTURE_CALLER();
	return block;
}

HL_EXPORT void *calloc(size_t count, size_t size)
{
	if (!real.malloc)
		find_real();
	void *block = real.calloc(count, size);
	CAPTURE_CALLER();
	return block;
}

HL_EXPORT void *realloc(void *old, size_t size)
{
	if (!real.malloc)
		find_real();
	void *block = real.realloc(old, size);
	CAPTURE_CALLER();
	return block;
}

HL_EXPORT int dlclose(void *handle)
{
	int result = real.dlclose(handle);

	hl_rule_cache_invalidate(&unwinder);
	return result;
}

static bool open_reference(void)
{
	void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
	reference.init_local =
		(int (*)(unw_cursor_t *, unw_context_t *))dlsym(library, TEXT(UNW_OBJ(init_local)));
	reference.step = (int (*)(unw_cursor_t *))dlsym(library, TEXT(UNW_OBJ(step)));
	reference.get_reg = (int (*)(unw_cursor_t *, unw_regnum_t, unw_word_t *))dlsym(
		library, TEXT(UNW_OBJ(get_reg)));
	reference.getcontext = GETCONTEXT_OF(library);
	return reference.init_local && reference.step && reference.get_reg;
}

static __attribute__((constructor)) void begin(void)
{
	const char *prefix = getenv("HL_COMPARE_OUT");
	const char *every_text = getenv("HL_COMPARE_EVERY");
	char path[4096];

	if (!prefix)
		return;
	is_busy = true;
	if (every_text && atoi(every_text) > 0)
		every = (uint32_t)atoi(every_text);
	snprintf(path, sizeof(path), "%s.%d", prefix, getpid());
	out_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	unwinder.find_module = find_module;
	is_ready = out_fd >= 0 && open_reference();
	is_busy = false;
}

static __attribute__((destructor)) void end(void)
{
	if (!is_ready)
		return;
	is_ready = false;
	dprintf(out_fd,
		"summary: captures %lu comparisons %lu differences %lu unreached %lu incomplete "
		"%lu "
		"truncated %lu frames %lu recalled %lu program %s\n",
		counts.captures, counts.comparisons, counts.differences, counts.unreached,
		counts.incomplete, counts.truncated, counts.frames, counts.recalled,
		program_invocation_short_name);
}
