/* SPDX-License-Identifier: BSD-2-Clause */
/* The slots of threads in the image, and what becomes of forked children; see self.h. */
#include "recorder/image/image.h"
#include "recorder/self.h"
#include "recorder/sys.h"
#include "recorder/thread.h"
#include "unwind/memory.h"

#define SLOTS (1u << HL_SELF_BITS)

_Alignas(64) struct hl_attached_slot hl_self_slots[SLOTS];
_Alignas(4096) union hl_self_gate hl_self_gate;
_Atomic uint32_t hl_image_left;

/* Called by the stubs alone. */
struct hl_attached_slot *hl_image_find(void);
void hl_image_leave(void);

/*
 * Where the C library keeps the tid of a thread, from its thread pointer: glibc (struct pthread, the
 * same since 2.4) and musl. Believed where it stands there.
 */
static const uint16_t tid_offsets[] = {0x2d0, 0x30};

static int64_t find_tid(const struct hl_attached_slot *slot, uint64_t key, uint32_t tid)
{
	for (size_t i = 0; i < HL_COUNT_OF(tid_offsets); i++) {
		uint64_t place = key + tid_offsets[i];
		if (hl_memory_page_is_readable(place & ~UINT64_C(4095)) &&
		    *(const uint32_t *)place == tid)
			return (int64_t)(place - (uint64_t)&slot->tid);
	}
	return 0;
}

/* The calling thread has the thread-local storage, and so the slot, of one that has ended. */
static void take_over(struct hl_attached_slot *slot, uint64_t key, uint32_t tid)
{
	struct hl_thread *thread = (struct hl_thread *)slot->thread;

	slot->tid_offset = 0;
	atomic_store_explicit(&slot->tid, tid, memory_order_relaxed);
	atomic_store_explicit(&slot->inside, 0, memory_order_relaxed);
	slot->changing = false;
	if (thread)
		hl_thread_take_over(thread, tid);
	slot->tid_offset = find_tid(slot, key, tid);
}

/* Looks again at the slot of the calling thread, which was not found at its place, or with another
 * tid. */
static void check(struct hl_attached_slot *slot, uint64_t key)
{
	uint32_t seen = *(const uint32_t *)((uint64_t)&slot->tid + (uint64_t)slot->tid_offset);

	if (HL_LIKELY(seen == atomic_load_explicit(&slot->tid, memory_order_relaxed)))
		return;
	uint32_t tid = hl_sys_gettid();
	if (tid == atomic_load_explicit(&slot->tid, memory_order_relaxed))
		slot->tid_offset = 0; /* libc does not keep it there */
	else
		take_over(slot, key, tid);
}

static bool claim(struct hl_attached_slot *slot, uint64_t key)
{
	uint64_t none = 0;

	/* In this order, should a signal handler come by. */
	if (atomic_load_explicit(&slot->key, memory_order_relaxed) ||
	    !atomic_compare_exchange_strong(&slot->key, &none, key))
		return false;
	uint32_t tid = hl_sys_gettid();
	atomic_store_explicit(&slot->tid, tid, memory_order_relaxed);
	slot->tid_offset = find_tid(slot, key, tid);
	return true;
}

/* The slot of the calling thread; NULL: all are in use. */
struct hl_attached_slot *hl_image_find(void)
{
	uint64_t key = hl_self_key();
	uint32_t at = hl_self_place(key);

	for (uint32_t left = SLOTS; left; left--, at = (at + 1) & (SLOTS - 1)) {
		struct hl_attached_slot *slot = &hl_self_slots[at];
		uint64_t seen = atomic_load_explicit(&slot->key, memory_order_relaxed);
		if (!seen && claim(slot, key))
			return slot;
		if (seen != key)
			continue;
		check(slot, key);
		return slot;
	}
	atomic_fetch_add_explicit(&hl_recorder->region.header->lost_events, 1,
				  memory_order_relaxed);
	return NULL;
}

/*
 * The first hooks in a forked child. What the recorder has mapped is there, as it was in the parent,
 * for a child that a signal handler forked out of a hook, and which goes on with that: its count
 * tells. Whoever is in no hook needs none of it.
 */
void hl_image_leave(void)
{
	uint32_t none = 0;

	if (!hl_recorder || hl_sys_gettid() != hl_sys_getpid())
		return;
	uint64_t key = hl_self_key();
	for (uint32_t i = 0; i < SLOTS; i++)
		if (atomic_load_explicit(&hl_self_slots[i].key, memory_order_relaxed) == key &&
		    atomic_load_explicit(&hl_self_slots[i].inside, memory_order_relaxed))
			return;
	if (atomic_compare_exchange_strong(&hl_image_left, &none, 1))
		hl_private_map_release();
}

bool hl_self_is_main(void)
{
	return atomic_load_explicit(&hl_self_slot()->tid, memory_order_relaxed) ==
	       hl_image_main_tid;
}

/* Nobody says when it ends. */
void hl_self_begin(struct hl_thread *thread)
{
	hl_thread_become(thread);
}
