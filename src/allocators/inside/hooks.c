/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocators that programs call by names of their own: mimalloc, jemalloc, tcmalloc as shared
 * libraries. Calls that such an allocator passes on to malloc are left to malloc's hook, and not
 * recorded twice.
 *
 * Blocks of such an allocator may be others than the real malloc's, so that their usable size is
 * asked of the allocator itself. Compiled with -fno-omit-frame-pointer, see HL_CALLER. A function
 * may throw, so no activity is set around allocations.
 */
#include "recorder/hooks.h"

#include "base/compiler.h"
#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/sample.h"
#include "recorder/thread.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t word; /* an integer or a pointer, as registers hold it */
typedef word function(word, word, word, word, word, word);

/* The arguments of a call. */
struct words {
	word a, b, c, d, e, f;
};

static inline word call(function *real, const struct words *words)
{
	return real(words->a, words->b, words->c, words->d, words->e, words->f);
}

struct family {
	const char *usable_name;
	_Atomic uintptr_t usable;     /* a function; 0: it is not known */
	_Atomic uintptr_t start, end; /* of its library; 0: not known */
	/* Has given out a block that malloc's hook did not see, or takes blocks that this did see: malloc is its library's. */
	_Atomic bool own;
	_Atomic bool absent; /* was looked for and is not there */
};

static struct family mimalloc = {.usable_name = "mi_usable_size"};
/* That strdup() finds none at first says nothing of a library that comes later. */
static struct family mimalloc_text = {.usable_name = "mi_usable_size"};
static struct family jemalloc = {.usable_name = "je_malloc_usable_size"};
static struct family jemalloc_x = {.usable_name = "sallocx"}; /* without a prefix */
static struct family tcmalloc = {.usable_name = "tc_malloc_size"};

struct entry {
	const char *name;
	struct family *family;
	_Atomic uintptr_t real; /* a function; 0: not looked up */
};

/* NULL: nobody has it. */
static function *resolve(struct entry *it, void *caller)
{
	uintptr_t real = atomic_load_explicit(&it->real, memory_order_acquire);

	if (HL_LIKELY(real))
		return (function *)real;
	if (atomic_load(&it->family->absent))
		return NULL;
	hl_libc_resolve();
	real = (uintptr_t)hl_libc_look_up(it->name, caller);
	if (!atomic_load(&it->family->usable))
		atomic_store(&it->family->usable,
			     (uintptr_t)hl_libc_look_up(it->family->usable_name, caller));
	/* Who looks for strdup() finds that of whoever has it. */
	if (real && it->family != &mimalloc_text && atomic_load(&it->family->usable) &&
	    hl_libc_same_module((void *)real, (void *)hl_libc.malloc))
		atomic_store(&it->family->own, true);
	uintptr_t start, end;
	if (real && hl_libc_module_range((void *)real, &start, &end)) {
		atomic_store_explicit(&it->family->start, start, memory_order_relaxed);
		atomic_store_explicit(&it->family->end, end, memory_order_relaxed);
	}
	if (!real && !atomic_load(&it->family->usable))
		atomic_store(&it->family->absent, true);
	atomic_store_explicit(&it->real, real, memory_order_release);
	return (function *)real;
}

/* ---- without such an allocator ----
 *
 * By a weak reference a program asks whether there is one, and finds our hook. Then malloc and free
 * take its place. */

static word stand_in(word size, word alignment)
{
	void *block = memalign(alignment, size);

	return (word)(block ? memset(block, 0, size) : NULL);
}

static word stand_in_free(word block)
{
	free((void *)block);
	return 0;
}

static word no_memory(void)
{
	errno = ENOMEM;
	return 0;
}

/* ---- with one ---- */

static uint64_t usable_size(const struct family *family, word block)
{
	uintptr_t usable = atomic_load_explicit(&family->usable, memory_order_relaxed);

	return ((function *)usable)(block, 0, 0, 0, 0, 0);
}

/*
 * A function of a family may ask another one for more, and hand out a part of it: only what the
 * program called counts. Not set in what may throw. In a thread's own memory, so signal handlers
 * and other threads are not concerned.
 */
static __thread bool in_family;

static inline word call_alone(function *real, const struct words *words)
{
	in_family = true;
	word result = call(real, words);
	in_family = false;
	return result;
}

/* Whether the family's blocks are to be recorded here. */
static bool is_own(const struct family *family)
{
	return atomic_load_explicit(&family->own, memory_order_relaxed);
}

static void record_new(struct family *family, word block, word size, uint64_t seen_before,
		       const struct hl_registers *caller)
{
	if (!block || hl_event_seen() != seen_before || !atomic_load(&family->usable))
		return;
	if (hl_sample_passes(size))
		return;
	struct hl_thread *thread = hl_thread_enter();
	if (!thread)
		return;
	hl_event_alloc_sized(thread, (const void *)block, size, usable_size(family, block), caller);
	/* In mode closed malloc's hook sees nothing either. */
	if (thread->last_block == (const void *)block && !is_own(family))
		atomic_store(&family->own, true);
	hl_thread_leave(thread);
}

static word wide_text_bytes(const uint16_t *text)
{
	size_t count = 0;

	while (text[count])
		count++;
	return (count + 1) * sizeof(*text);
}

static word text_bytes(word text)
{
	return text ? strlen((const char *)text) + 1 : 0;
}

/* Too large for any block, if it overflows. */
static word product(word count, word size)
{
	word bytes;

	return __builtin_mul_overflow(count, size, &bytes) ? UINT64_MAX : bytes;
}

/* Whether the program, not the allocator itself, frees ${block}. What is recorded ends here, whoever frees it. */
static bool is_of_program(const struct family *family, word block, void *caller)
{
	uintptr_t start = atomic_load_explicit(&family->start, memory_order_relaxed);
	uintptr_t end = atomic_load_explicit(&family->end, memory_order_relaxed);

	return hl_block_may_hold(&hl_recorder->blocks, (const void *)block) ||
	       (!in_family && ((uintptr_t)caller < start || (uintptr_t)caller >= end));
}

static word release(const struct family *family, function *real, const struct words *words,
		    void *caller)
{
	struct hl_thread *thread = words->a && is_own(family) ? hl_thread_enter() : NULL;

	if (!thread)
		return call(real, words);
	if (is_of_program(family, words->a, caller))
		hl_event_free_sized(thread, (const void *)words->a, usable_size(family, words->a));
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	word result = call(real, words);
	hl_thread_leave(thread);
	return result;
}

enum resize_way {
	MOVES,		/* or stays; the block is as it was where there is no memory */
	MOVES_OR_FREES, /* where there is no memory, it is freed */
	IN_PLACE,	/* the result is the new size, at most the wanted one, and not an address */
};

struct resizing {
	word block; /* 0 if there is none yet */
	word size;  /* wanted */
	enum resize_way way;
};

static word resize(struct family *family, function *real, const struct words *words,
		   struct resizing it, const struct hl_registers *caller)
{
	if (in_family)
		return call(real, words);
	struct hl_thread *thread = it.block && is_own(family) ? hl_thread_enter() : NULL;
	if (!thread) {
		uint64_t seen = hl_event_seen();
		word block = call_alone(real, words);
		if (it.way != IN_PLACE && !it.block)
			record_new(family, block, it.size, seen, caller);
		return block;
	}
	struct hl_block old;
	bool sampled = !hl_sample_passes(it.size);
	uint64_t usable = usable_size(family, it.block);
	bool known = hl_event_take_sized(thread, (const void *)it.block, usable, &old);
	if (sampled)
		hl_event_look_ahead(thread, caller, hl_event_locate(thread, caller));
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	word result = call(real, words);
	hl_thread_set(thread, HL_RECORDING);
	/* Of no bytes: a block that is freed, if the result is NULL. */
	bool done = it.way == IN_PLACE ? result >= it.size : result || !it.size;
	word block = it.way == IN_PLACE ? it.block : result;
	if (known && !done && it.way != MOVES_OR_FREES)
		hl_event_put_back(thread, (const void *)it.block, old, usable);
	else if (known)
		hl_event_count_free(thread, (const void *)it.block, old, usable);
	if (done && block && sampled)
		hl_event_alloc_sized(thread, (const void *)block, it.size,
				     usable_size(family, block), caller);
	hl_event_look_back(thread);
	hl_thread_leave(thread);
	return result;
}

HL_EXPORT function mi_new, mi_free;

/*
 * mi_new_realloc() may throw, and its thread must not be in the allocator then. So mi_realloc()
 * resizes; where there is no memory, mi_new() throws, or has the new handler make room.
 */
static word resize_or_throw(word block, word size, const struct hl_registers *caller)
{
	static struct entry it = {"mi_realloc", &mimalloc, 0};

	function *real = resolve(&it, (void *)caller->pc);
	if (HL_UNLIKELY(!real))
		return (word)realloc((void *)block, size);
	for (;;) {
		word moved = resize(&mimalloc, real, &(struct words){.a = block, .b = size},
				    (struct resizing){block, size, MOVES}, caller);
		word spare = moved ? 0 : mi_new(size, 0, 0, 0, 0, 0);
		if (!spare)
			return moved;
		mi_free(spare, 0, 0, 0, 0, 0);
	}
}

/* Like reallocarray(), but the block's address is where a points to, and the result is an error. */
HL_EXPORT function mi_reallocarr;
HL_EXPORT word mi_reallocarr(word a, word b, word c, word d, word e, word f)
{
	static struct entry it = {"mi_reallocarray", &mimalloc, 0};
	function *real = resolve(&it, __builtin_return_address(0));
	const word size = product(b, c);

	(void)d, (void)e, (void)f;
	if (!real || !a)
		return EINVAL;
	word *block = (word *)a;
	word moved = resize(&mimalloc, real, &(struct words){.a = *block, .b = b, .c = c},
			    (struct resizing){*block, size, MOVES}, HL_CALLER);
	if (!moved && size)
		return ENOMEM;
	*block = moved;
	return 0;
}

/* ---- heaps of mimalloc ---- */

/* Whether a block was recorded at ${block}; it counts as freed now. Only then is its size asked:
 * there may be none. */
static bool forget_block(struct hl_thread *thread, word block)
{
	return hl_block_may_hold(&hl_recorder->blocks, (const void *)block) &&
	       hl_event_free_known(thread, (const void *)block, usable_size(&mimalloc, block));
}

/*
 * What mi_heap_visit_blocks() calls for each run of blocks, and for each block. ${start} and
 * ${size} are those of its slot, in which an aligned block begins at the first multiple of its
 * alignment.
 */
static bool forget_slot(const void *heap, const void *area, void *start, size_t size, void *thread)
{
	(void)heap;
	(void)area;
	const word slot = (word)start;
	if (!slot || forget_block(thread, slot))
		return true;
	for (word alignment = 32; alignment; alignment *= 2) {
		word block = (slot + alignment - 1) & -alignment;
		if (block - slot >= size || (block != slot && forget_block(thread, block)))
			break;
	}
	return true;
}

static struct entry visit_blocks = {"mi_heap_visit_blocks", &mimalloc, 0};

/* The heap goes with all of its blocks, and with its own, which mi_heap_new() has allocated. */
static bool forget_heap(word heap, word thread)
{
	function *visit = (function *)atomic_load(&visit_blocks.real);

	visit(heap, true, (word)forget_slot, thread, 0, 0);
	forget_block((struct hl_thread *)thread, heap);
	return true;
}

/* What mi_subproc_destroy() ends is all heaps of a part of the process. */
static word destroy(function *real, const struct words *words, bool is_subprocess, void *caller)
{
	static struct entry visit_heaps = {"mi_subproc_visit_heaps", &mimalloc, 0};
	function *heaps = is_subprocess ? resolve(&visit_heaps, caller) : NULL;

	bool may_visit = resolve(&visit_blocks, caller) && (heaps || !is_subprocess);
	struct hl_thread *thread = may_visit && is_own(&mimalloc) ? hl_thread_enter() : NULL;
	if (!thread)
		return call(real, words);
	if (heaps)
		heaps(words->a, (word)forget_heap, (word)thread, 0, 0, 0);
	else
		forget_heap(words->a, (word)thread);
	hl_thread_set(thread, HL_IN_ALLOCATOR);
	word result = call(real, words);
	hl_thread_leave(thread);
	return result;
}

/* ${SIZE}, ${ALIGNMENT} and ${OLD}, the block until now, in the words a, b, ... of the call; FAMILY is that of the function. */
#define BEGIN(NAME)                                                         \
	HL_EXPORT function NAME;                                            \
	HL_EXPORT word NAME(word a, word b, word c, word d, word e, word f) \
	{                                                                   \
		static struct entry it = {#NAME, &FAMILY, 0};               \
		function *real = resolve(&it, __builtin_return_address(0)); \
		const struct words words = {a, b, c, d, e, f};

#define ALLOCATE_BY(CALL, NAME, SIZE, STAND_IN)            \
	BEGIN(NAME)                                        \
	if (HL_UNLIKELY(!real))                            \
		return STAND_IN;                           \
	if (in_family)                                     \
		return call(real, &words);                 \
	uint64_t seen = hl_event_seen();                   \
	word block = CALL(real, &words);                   \
	record_new(&FAMILY, block, SIZE, seen, HL_CALLER); \
	return block;                                      \
	}
#define ALLOCATE_OR(NAME, SIZE, STAND_IN) ALLOCATE_BY(call_alone, NAME, SIZE, STAND_IN)
#define ALLOCATE_OR_THROW(NAME, SIZE)	  ALLOCATE_BY(call, NAME, SIZE, stand_in(SIZE, 1))
#define ALIGN_OR_THROW(NAME, SIZE, ALIGNMENT) \
	ALLOCATE_BY(call, NAME, SIZE, stand_in(SIZE, ALIGNMENT))

#define ALLOCATE_ALIGNED(NAME, SIZE, ALIGNMENT) ALLOCATE_OR(NAME, SIZE, stand_in(SIZE, ALIGNMENT))
#define ALLOCATE(NAME, SIZE)			ALLOCATE_ALIGNED(NAME, SIZE, 1)
#define ALLOCATE_ONLY(NAME, SIZE)		ALLOCATE_OR(NAME, SIZE, no_memory())
#define COPY(NAME, TEXT)			ALLOCATE_OR(NAME, text_bytes(block), (word)strdup((const char *)TEXT))
#define COPY_UP_TO(NAME, TEXT, COUNT) \
	ALLOCATE_OR(NAME, text_bytes(block), (word)strndup((const char *)TEXT, COUNT))

/* The block goes where a points to. */
#define ALLOCATE_INTO(NAME, SIZE, STAND_IN)                                   \
	BEGIN(NAME)                                                           \
	if (HL_UNLIKELY(!real))                                               \
		return STAND_IN;                                              \
	if (in_family)                                                        \
		return call(real, &words);                                    \
	uint64_t seen = hl_event_seen();                                      \
	word error = call_alone(real, &words);                                \
	if (!(int)error)                                                      \
		record_new(&FAMILY, *(const word *)a, SIZE, seen, HL_CALLER); \
	return error;                                                         \
	}
#define MEMALIGN_INTO(NAME) ALLOCATE_INTO(NAME, c, (word)posix_memalign((void **)a, b, c))

/* A text, unless the caller gives ${BUFFER} for it. */
#define ALLOCATE_PATH(NAME, PATH, BUFFER)                                     \
	BEGIN(NAME)                                                           \
	if (HL_UNLIKELY(!real))                                               \
		return (word)realpath((const char *)PATH, (char *)BUFFER);    \
	uint64_t seen = hl_event_seen();                                      \
	word text = call_alone(real, &words);                                 \
	if (!BUFFER)                                                          \
		record_new(&FAMILY, text, text_bytes(text), seen, HL_CALLER); \
	return text;                                                          \
	}

/* Keeps the answer for one function, as most programs call strdup() alone. */
static bool is_of_libc(function *real)
{
	static _Atomic uintptr_t known;

	if (HL_LIKELY(real &&
		      (uintptr_t)real == atomic_load_explicit(&known, memory_order_relaxed)))
		return true;
	if (!real || (hl_libc_is_known() &&
		      !hl_libc_same_module((void *)real, (void *)gnu_get_libc_version)))
		return false;
	atomic_store_explicit(&known, (uintptr_t)real, memory_order_relaxed);
	return true;
}

/*
 * The C library's asks malloc for its block, and no frame of ours may stand between. From 3.6 on
 * mimalloc has it too, and asks nobody whom we see.
 */
#define COPY_OF_LIBC(NAME, TEXT)                                                     \
	HL_EXPORT function hl_##NAME __asm__(#NAME);                                 \
	HL_EXPORT word hl_##NAME(word a, word b, word c, word d, word e, word f)     \
	{                                                                            \
		static struct entry it = {"mi_" #NAME, &mimalloc_text, 0};           \
		hl_libc_resolve();                                                   \
		function *real = (function *)(uintptr_t)hl_libc.NAME;                \
		if (HL_LIKELY(is_of_libc(real)))                                     \
			return real(a, b, c, d, e, f);                               \
		if (!real)                                                           \
			return no_memory();                                          \
		resolve(&it, __builtin_return_address(0));                           \
		uint64_t seen = hl_event_seen();                                     \
		word text = call_alone(real, &(struct words){a, b, c, d, e, f});     \
		record_new(&mimalloc_text, text, text_bytes(text), seen, HL_CALLER); \
		if (is_own(&mimalloc_text) && !is_own(&mimalloc))                    \
			atomic_store(&mimalloc.own, true);                           \
		return text;                                                         \
	}

#define COPY_OF_LIBC_UP_TO(NAME, TEXT, COUNT) COPY_OF_LIBC(NAME, TEXT)

#define RESIZE_OR(NAME, OLD, SIZE, WAY, STAND_IN)                                                 \
	BEGIN(NAME)                                                                               \
	return real ? resize(&FAMILY, real, &words, (struct resizing){OLD, SIZE, WAY}, HL_CALLER) \
		    : STAND_IN;                                                                   \
	}
#define RESIZE(NAME, SIZE)	     RESIZE_OR(NAME, a, SIZE, MOVES, (word)realloc((void *)a, SIZE))
#define RESIZE_ONLY(NAME, OLD, SIZE) RESIZE_OR(NAME, OLD, SIZE, MOVES, no_memory())
#define RESIZE_IN_PLACE(NAME)	     RESIZE_OR(NAME, a, b, IN_PLACE, malloc_usable_size((void *)a))

#define RESIZE_OR_THROW(NAME, SIZE)                                         \
	HL_EXPORT function NAME;                                            \
	HL_EXPORT word NAME(word a, word b, word c, word d, word e, word f) \
	{                                                                   \
		(void)c, (void)d, (void)e, (void)f;                         \
		return resize_or_throw(a, SIZE, HL_CALLER);                 \
	}

#define RELEASE(NAME)                                                             \
	BEGIN(NAME)                                                               \
	return real ? release(&FAMILY, real, &words, __builtin_return_address(0)) \
		    : stand_in_free(a);                                           \
	}

#define DESTROY(NAME, IS_SUBPROCESS)                                                         \
	BEGIN(NAME)                                                                          \
	return real ? destroy(real, &words, IS_SUBPROCESS, __builtin_return_address(0)) : 0; \
	}

/* clang-format off */
#define FAMILY mimalloc
#include "allocators/mimalloc_functions.h"
/* No rule says where these have their sizes, or nobody else may pass them. */
ALLOCATE_INTO(mi_dupenv_s, text_bytes(*(const word *)a), ENOMEM)
ALLOCATE_OR(mi_wcsdup, block ? wide_text_bytes((const uint16_t *)block) : 0, no_memory())
ALLOCATE_PATH(mi_realpath, a, b)
ALLOCATE_PATH(mi_heap_realpath, b, c)
ALLOCATE_OR_THROW(mi_heap_alloc_new, b)
ALLOCATE_OR_THROW(mi_heap_alloc_new_n, product(b, c))
ALLOCATE_OR_THROW(mi_theap_alloc_new, b)
ALLOCATE_OR_THROW(mi_theap_alloc_new_n, product(b, c))
RESIZE_OR_THROW(mi_new_realloc, b)
RESIZE_OR_THROW(mi_new_reallocn, product(b, c))
DESTROY(mi_heap_destroy, false)
DESTROY(mi_subproc_destroy, true)
#undef FAMILY

/* jemalloc without a prefix has these beside malloc, where the tool finds them by that. */
#define FAMILY jemalloc_x
ALLOCATE_ALIGNED(mallocx, a, UINT64_C(1) << (b & 63))
RESIZE(rallocx, b)
RESIZE_IN_PLACE(xallocx)
RELEASE(dallocx)
RELEASE(sdallocx)
#undef FAMILY

#define FAMILY jemalloc
#include "allocators/jemalloc_functions.h"
RESIZE_IN_PLACE(je_xallocx)
#undef FAMILY

#define FAMILY tcmalloc
#include "allocators/tcmalloc_functions.h"
#undef FAMILY
/* clang-format on */
