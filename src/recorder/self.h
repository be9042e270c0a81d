/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the recorder knows of the calling thread without looking anything up: in thread-local
 * storage, or, in the image that is brought into a running process (-DHL_ATTACHED), in a slot that
 * the thread pointer leads to.
 */
#pragma once

#include "base/compiler.h"
#include "base/machine.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_thread;

#ifdef HL_ATTACHED

#include "recorder/stub_numbers.h"
#include "region/attached.h"

extern HL_HIDDEN struct hl_attached_slot hl_self_slots[1u << HL_SELF_BITS];

/* Wiped in forked children: no hook has anything to do there, and no other thread is there. */
extern HL_HIDDEN union hl_self_gate {
	struct {
		_Atomic uint32_t open;
		_Atomic uint32_t started; /* the first thread that has a thread pointer opens it */
	};
	char page[HL_PAGE_BYTES_MAX];
} hl_self_gate;

/* The thread pointer, once the gate has been open. */
static inline uint64_t hl_self_key(void)
{
	return hl_machine_thread_pointer();
}

static inline uint32_t hl_self_place(uint64_t key)
{
	return (uint32_t)(key * HL_SELF_MIX >> (64 - HL_SELF_BITS));
}

/* How far below its frame pointer a stub has the slot of the thread. */
#define HL_IMAGE_STUB_SLOT 80

/* The slot of the calling thread, which is in a hook: the way there has found its slot. */
static inline struct hl_attached_slot *hl_self_slot(void)
{
	uint64_t key = hl_self_key();
	uint32_t at = hl_self_place(key);

	while (HL_UNLIKELY(atomic_load_explicit(&hl_self_slots[at].key, memory_order_relaxed) !=
			   key))
		at = (at + 1) & ((1u << HL_SELF_BITS) - 1);
	return &hl_self_slots[at];
}

static inline struct hl_thread *hl_thread_self(void)
{
	return (struct hl_thread *)hl_self_slot()->thread;
}

static inline void hl_thread_become(struct hl_thread *thread)
{
	hl_self_slot()->thread = (uint64_t)thread;
}

static inline bool *hl_self_changing_slot(void)
{
	return &hl_self_slot()->changing;
}

extern const char hl_image_start[] __asm__("__ehdr_start") HL_HIDDEN;
extern const char hl_image_end[] __asm__("_end") HL_HIDDEN;

/* Whether ${address} is in the image, whose functions are not part of the program's stacks. */
static inline bool hl_self_is_own_code(uint64_t address)
{
	return address - (uint64_t)hl_image_start < (uint64_t)(hl_image_end - hl_image_start);
}

/* Whether the hook was called in the middle of another one of this thread; but what dlclose() runs
 * is the program's. */
static inline bool hl_self_is_nested(void)
{
	const struct hl_attached_slot *slot = hl_self_slot();

	return atomic_load_explicit(&slot->inside, memory_order_relaxed) - slot->closing > 1;
}

/* Around what a hook calls of the program that counts as if there were no hook. */
static inline void hl_self_begin_call(void)
{
	hl_self_slot()->closing++;
}

static inline void hl_self_end_call(void)
{
	hl_self_slot()->closing--;
}

/* Whether this is a forked child, in the middle of an event of its parent. */
static inline bool hl_self_is_forked(void)
{
	return !atomic_load_explicit(&hl_self_gate.open, memory_order_relaxed);
}

#else

struct hl_self {
	struct hl_thread *thread;
	bool changing_slot;
	bool waited_for_others; /* see on_thread_end() in self.c */
};

extern __thread struct hl_self hl_self __attribute__((tls_model("initial-exec")));

/* The calling thread; NULL: it has no slot in the region. */
static inline struct hl_thread *hl_thread_self(void)
{
	return hl_self.thread;
}

static inline void hl_thread_become(struct hl_thread *thread)
{
	hl_self.thread = thread;
}

/* Set while the thread gets its slot or gives it back: allocations of signal handlers and of libc
 * pass through meanwhile. Above all, it must not wait for the lock that its own thread holds. */
static inline bool *hl_self_changing_slot(void)
{
	return &hl_self.changing_slot;
}

static inline bool hl_self_is_nested(void)
{
	return false; /* calls of the allocator's own functions do not come by the hooks */
}

static inline void hl_self_begin_call(void)
{
}

static inline void hl_self_end_call(void)
{
}

static inline bool hl_self_is_own_code(uint64_t address)
{
	(void)address;
	return false; /* hooks call nothing that is recorded */
}

static inline bool hl_self_is_forked(void)
{
	return false; /* see start.c */
}

#endif

/* Once, by the main thread, before anything else. False when the system has no key left. */
bool hl_self_init(void);

/* Whether the calling thread is the process' first. */
bool hl_self_is_main(void);

/* The calling thread is ${thread} from now on, until its end, which is noticed where it can be. */
void hl_self_begin(struct hl_thread *thread);
