/* SPDX-License-Identifier: BSD-2-Clause */
/* The slots of threads in the image, and what becomes of forked children; see self.h. */
#include "recorder/image/image.h"
#include "recorder/image/machine.h"
#include "recorder/recorder.h"
#include "recorder/self.h"
#include "recorder/sys.h"
#include "recorder/thread.h"
#include "unwind/saved.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>

#define SLOTS (1u << HL_SELF_BITS)

/* The stubs go by these, and by the numbers of HL_STUBS. */
static_assert(offsetof(struct hl_attached_slot, key) == 0 &&
		      offsetof(struct hl_attached_slot, inside) == 8 &&
		      offsetof(struct hl_attached_slot, tid) == 12 &&
		      offsetof(struct hl_attached_slot, tid_offset) == 16 &&
		      HL_IMAGE_STUB_SLOT == 80 && HL_ATTACHED_RULE_FRAME_BELOW == 104,
	      "slots and frames");
static_assert(offsetof(struct hl_region_header, mode) == HL_MODE_OFFSET &&
		      offsetof(struct hl_attached, inside_without_slot) == HL_WITHOUT_OFFSET &&
		      offsetof(union hl_self_gate, started) == HL_STARTED_OFFSET &&
		      (uint32_t)HL_IMAGE_BUSY == HL_BUSY,
	      "the image");
static_assert(offsetof(struct hl_attached_rule, does) == HL_DOES_OFFSET &&
		      HL_RULE_FREES == HL_FREES && HL_ATTACHED_RULES_MAX == HL_RULES &&
		      HL_ATTACHED_RULE_STUB_BYTES == HL_RULE_BYTES,
	      "rules");
static_assert(PR_SET_SECCOMP == HL_SET_SECCOMP && PR_SET_TSC == HL_SET_TSC &&
		      HL_HOOK_DLCLOSE == HL_FIRST_HEARD && HL_HOOK_SYSCALL == HL_LAST_HEARD &&
		      HL_HOOK_PRCTL == HL_NUMBER_PRCTL && HL_HOOK_SYSCALL == HL_NUMBER_SYSCALL &&
		      HL_HOOK_LIBRARIES == HL_NUMBER_LIBRARIES && HL_HOOK_COUNT == 17,
	      "hooks");

/* Each stub passes on to the hook of its name; one that lacks here or there does not compile, or not link. */
#define WITH_RESULT(NAME, HOOK)	   hook_of_##NAME = (HOOK), has_result_##NAME = 1,
#define WITHOUT_RESULT(NAME, HOOK) hook_of_##NAME = (HOOK), has_result_##NAME = 0,
enum {
	HL_IMAGE_WITH_RESULT(WITH_RESULT) HL_IMAGE_FREERS(WITHOUT_RESULT)
		HL_IMAGE_OBJECT_STUBS(WITH_RESULT) hook_of_prctl = HL_HOOK_PRCTL,
	hook_of_syscall = HL_HOOK_SYSCALL
};
#define CHECK_LIGHT(NUMBER, NAME) static_assert(hook_of_##NAME == NUMBER, #NAME);
#define CHECK(NUMBER, NAME, RESULT) \
	CHECK_LIGHT(NUMBER, NAME)   \
	static_assert(has_result_##NAME == RESULT, #NAME);
HL_STUBS(CHECK)
HL_LIGHT_STUBS(CHECK_LIGHT)

/* Of a slot that was used before, where no search may end; thread pointers are larger. */
#define KEY_REAPED 1u
/* Of slots that nobody gets. */
#define KEY_NOBODY UINT64_MAX
/* Of a slot while it becomes one of those. No thread has it. */
#define TID_REAPED UINT32_MAX

_Alignas(64) struct hl_attached_slot hl_self_slots[SLOTS];
_Alignas(HL_PAGE_BYTES_MAX) union hl_self_gate hl_self_gate;
_Atomic uint32_t hl_image_left;

/* Called by the stubs alone. */
bool hl_image_at_closed_gate(void);

/* ---- thread pointers ---- */

static bool reads_by_instruction;

/* 0: the thread has none, or none of a libc that we know. */
static uint64_t thread_pointer(void)
{
	uint64_t base = hl_image_thread_pointer(reads_by_instruction);
	bool is_readable = hl_memory_object_is_readable(base, sizeof(base));

	return is_readable && hl_image_knows_thread(base) ? base : 0;
}

/* Reading the thread pointer faults where a thread has none, so hooks do it from when one has it. */
static bool try_open(void)
{
	if (!thread_pointer())
		return false;
	atomic_store(&hl_self_gate.open, 1);
	return true;
}

void hl_image_open(bool may_read_fs_base)
{
	reads_by_instruction = may_read_fs_base;
	/* What a thread without a self pointer reads may be the key of free slots; it is not to
	 * take one for its own. */
	atomic_store(&hl_self_slots[hl_self_place(0)].key, KEY_NOBODY);
	atomic_store(&hl_self_slots[hl_self_place(KEY_REAPED)].key, KEY_NOBODY);
	atomic_store(&hl_self_gate.started, 1);
	try_open();
}

void hl_image_close(void)
{
	atomic_store(&hl_self_gate.started, 0);
	atomic_store(&hl_self_gate.open, 0);
}

static void count_lost(void)
{
	atomic_fetch_add_explicit(&hl_recorder->region.header->lost.events, 1,
				  memory_order_relaxed);
}

/* ---- threads ---- */

static int64_t find_tid(const struct hl_attached_slot *slot, uint64_t key, uint32_t tid)
{
	/* 0, where a filter keeps it secret, stands anywhere. */
	uint64_t place = tid ? hl_image_find_tid(key, tid) : 0;

	return place ? (int64_t)(place - (uint64_t)&slot->tid) : 0;
}

/* What the slot knows of a thread that has ended; it is to be used no more. */
static void retire(struct hl_attached_slot *slot)
{
	struct hl_thread *thread = (struct hl_thread *)slot->thread;

	slot->thread = 0;
	slot->closing = 0;
	slot->changing = false;
	slot->rule_frame = 0;
	atomic_store_explicit(&slot->inside, 0, memory_order_relaxed);
	if (thread)
		hl_thread_retire(thread);
}

/* Whether libc says that the slot is of the calling thread, or of the one that its vfork() suspends:
 * what the stubs compare, for slots that are not at their places. */
static bool has_tid_of_libc(const struct hl_attached_slot *slot)
{
	return slot->tid_offset &&
	       *(const uint32_t *)((uint64_t)&slot->tid + (uint64_t)slot->tid_offset) ==
		       atomic_load(&slot->tid);
}

/*
 * Looks again at the slot of the calling thread, which was not found at its place, or with another
 * tid: it has the thread-local storage of one that has ended. False when that one is just being
 * reaped: the slot is gone then.
 */
static bool check(struct hl_attached_slot *slot, uint64_t key)
{
	uint32_t tid = hl_sys_gettid(), seen = atomic_load(&slot->tid);

	while (seen == TID_REAPED || seen != tid) {
		if (seen == TID_REAPED)
			hl_sys_yield();
		else if (atomic_load(&slot->key) != key)
			return false;
		else if (atomic_compare_exchange_strong(&slot->tid, &seen, tid))
			break;
		seen = atomic_load(&slot->tid);
	}
	if (seen != tid) {
		slot->tid_offset = 0;
		retire(slot);
		slot->tid_offset = find_tid(slot, key, tid);
	} else if (*(const uint32_t *)((uint64_t)&slot->tid + (uint64_t)slot->tid_offset) != tid) {
		slot->tid_offset = 0; /* libc does not keep it there */
	}
	return true;
}

/* ---- threads that have ended ---- */

#define LOOKED_AT 64u /* slots, whenever a thread gets one */

/* By the target's own number: a child of vfork() comes here, too. */
static bool has_ended(uint32_t tid)
{
	return HL_SYS(SYS_tgkill, hl_image_main_tid, tid, 0) == -ESRCH;
}

/*
 * Gives back a slot whose thread has ended. Another one with the same thread-local storage comes by
 * check(), since its tid is another one; should it get the same, it is there before we ask for the
 * second time. Where libc keeps no tid nobody could tell.
 */
static void reap(struct hl_attached_slot *slot)
{
	uint32_t tid = atomic_load(&slot->tid);

	if (!slot->tid_offset || !tid || tid == TID_REAPED || !has_ended(tid) ||
	    !atomic_compare_exchange_strong(&slot->tid, &tid, TID_REAPED))
		return;
	if (!has_ended(tid)) {
		atomic_store(&slot->tid, tid);
		return;
	}
	retire(slot);
	atomic_store(&slot->key, KEY_REAPED);
	atomic_store(&slot->tid, 0);
}

static void reap_some(void)
{
	static _Atomic uint32_t next;

	/* A child of vfork() may be in a namespace where the threads have no numbers. */
	if (hl_sys_getpid() != hl_image_main_tid)
		return;
	uint32_t first = atomic_fetch_add(&next, LOOKED_AT);
	for (uint32_t i = 0; i < LOOKED_AT; i++)
		reap(&hl_self_slots[(first + i) & (SLOTS - 1)]);
}

/* ---- finding slots ---- */

static bool claim(struct hl_attached_slot *slot, uint64_t key)
{
	uint64_t seen = atomic_load(&slot->key);

	if (seen > KEY_REAPED || !atomic_compare_exchange_strong(&slot->key, &seen, key))
		return false;
	uint32_t tid = hl_sys_gettid();
	atomic_store(&slot->tid, tid);
	atomic_store_explicit(&slot->inside, 0, memory_order_relaxed);
	slot->tid_offset = find_tid(slot, key, tid);
	reap_some();
	return true;
}

/* The slot with ${key} or, if there is none, one that may be claimed; NULL: all are in use. */
static struct hl_attached_slot *look_up(uint64_t key)
{
	struct hl_attached_slot *unused = NULL;
	uint32_t at = hl_self_place(key);

	for (uint32_t left = SLOTS; left; left--, at = (at + 1) & (SLOTS - 1)) {
		struct hl_attached_slot *slot = &hl_self_slots[at];
		uint64_t seen = atomic_load(&slot->key);
		if (seen == key)
			return slot;
		if (seen <= KEY_REAPED && !unused)
			unused = slot;
		if (!seen)
			break;
	}
	return unused;
}

static struct hl_attached_slot *get(uint64_t key)
{
	struct hl_attached_slot *slot;

	while (key && (slot = look_up(key)))
		if (atomic_load(&slot->key) == key ? check(slot, key) : claim(slot, key))
			return slot;
	count_lost();
	return NULL;
}

/*
 * The slot of the calling thread; NULL: it passes through. Without signals, as soon as the slot may
 * change: it may have what another thread left in it; and the child of a handler that forks gives the
 * recorder's memory back, since no hook is in progress yet.
 */
struct hl_attached_slot *hl_image_find(void)
{
	uint64_t before, key = hl_self_key();
	struct hl_attached_slot *slot = key > KEY_REAPED ? look_up(key) : NULL;

	if (slot && atomic_load(&slot->key) == key && has_tid_of_libc(slot))
		return slot;
	hl_sys_block_signals(&before);
	slot = hl_self_is_forked() ? NULL : get(thread_pointer());
	hl_sys_restore_signals(&before);
	return slot;
}

/* Of the threads that a forked child has not; its own keeps its slot, as it may be on the way to it. */
static void forget_threads(uint64_t key)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct hl_attached_slot *slot = &hl_self_slots[i];
		uint64_t seen = atomic_load_explicit(&slot->key, memory_order_relaxed);
		if (seen <= KEY_REAPED || seen == KEY_NOBODY)
			continue;
		bool is_own = seen == key;
		uint32_t tid = is_own ? hl_sys_gettid() : 0;
		*slot = (struct hl_attached_slot){.key = is_own ? key : KEY_REAPED, .tid = tid};
		if (is_own)
			slot->tid_offset = find_tid(slot, key, tid);
	}
}

/*
 * In a forked child, by its first thread. What the recorder has mapped is there, as it was in the parent,
 * for a child that a signal handler forked out of a hook, and which goes on with that: its count tells.
 * Whoever is in no hook needs none of it. True: it is recorded from here on; else the parent's heapline
 * is told that it is there. Where another thread was on its way to its slot, or this one was when a
 * handler forked, nobody could tell who is still in the image: such a child is not recorded.
 */
static bool begin_child(void)
{
	uint64_t key = thread_pointer();
	uint32_t none = 0;

	if (hl_sys_gettid() != hl_sys_getpid())
		return false;
	for (uint32_t i = 0; i < SLOTS; i++)
		if (atomic_load_explicit(&hl_self_slots[i].key, memory_order_relaxed) == key &&
		    atomic_load_explicit(&hl_self_slots[i].inside, memory_order_relaxed))
			return false;
	if (!atomic_compare_exchange_strong(&hl_image_left, &none, 1))
		return false;
	bool is_followed = atomic_load(&hl_recorder->region.header->flags) & HL_REGION_FOLLOW;
	bool is_alone = key && atomic_load(&hl_attached.inside_without_slot) == 1;
	int region_fd = is_alone ? hl_image_ask() : -1;
	if (region_fd >= 0) {
		forget_threads(key);
		bool is_recorded = hl_image_start_child(region_fd);
		hl_sys_close(region_fd);
		if (is_recorded) {
			atomic_store(&hl_image_left, 0);
			return true;
		}
	}
	if (is_followed)
		atomic_fetch_add(&hl_image_children->unrecorded, 1); /* it is one */
	hl_image_pass_on();
	return false;
}

/* True when it is open now. Without signals: in the child of a handler that forks it is another's. */
bool hl_image_at_closed_gate(void)
{
	uint64_t before;

	if (!hl_recorder)
		return false;
	hl_sys_block_signals(&before);
	bool is_forked = !atomic_load(&hl_self_gate.started);
	bool is_open = !is_forked && try_open();
	if (!is_forked && !is_open)
		count_lost();
	if (is_forked)
		is_open = begin_child();
	hl_sys_restore_signals(&before);
	return is_open;
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
