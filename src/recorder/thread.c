/* SPDX-License-Identifier: BSD-2-Clause */
/* Gives threads their slots and takes them back; see thread.h. */
#include "recorder/thread.h"

#include "recorder/event.h"
#include "recorder/libc.h"
#include "recorder/private_map.h"
#include "recorder/recall_check.h"
#include "recorder/sample.h"
#include "recorder/sys.h"

#include <string.h>
#include <sys/prctl.h>

static hl_thread_start_fn *start_child;

bool hl_thread_init(hl_thread_start_fn *start)
{
	start_child = start;
	return hl_self_init();
}

static void read_name(struct hl_region_thread *in_region)
{
	hl_sys6(SYS_prctl, PR_GET_NAME, (long)in_region->name, 0, 0, 0, 0);
}

/* A new slot in the region. False when all are in use or there is no memory. */
static bool take_slot(struct hl_recorder *recorder, struct hl_thread *thread)
{
	_Atomic uint32_t *count = &recorder->region.header->thread_count;
	uint32_t slot = atomic_load(count);

	do {
		uint64_t end = (slot + UINT64_C(1)) * sizeof(struct hl_region_thread);
		if (slot >= HL_THREADS_MAX ||
		    !hl_region_map_commit(&recorder->region, HL_AREA_THREADS, end))
			return false;
	} while (!atomic_compare_exchange_weak(count, &slot, slot + 1));
	thread->slot = slot;
	thread->cells.thread = slot;
	thread->in_region = &recorder->region.threads[slot];
	return true;
}

static struct hl_thread *make_thread(struct hl_recorder *recorder)
{
	/* Its head stays mapped in forked children, wiped: the forking thread's pointer to it must
	 * stay readable there. */
	struct hl_thread *thread = hl_private_map_new_head();

	if (!thread)
		return NULL;
	thread->tables = hl_private_map_new(sizeof(*thread->tables));
	if (thread->tables && take_slot(recorder, thread))
		return thread;
	if (thread->tables)
		hl_private_map_free(thread->tables, sizeof(*thread->tables));
	hl_private_map_free_head(thread);
	return NULL;
}

static struct hl_thread *reuse_thread(struct hl_recorder *recorder)
{
	hl_spin_lock(&recorder->threads_lock);
	struct hl_thread *thread = recorder->free_threads;
	if (thread)
		recorder->free_threads = thread->next_free;
	hl_spin_unlock(&recorder->threads_lock);
	if (thread)
		thread->in_region->earlier_owners++;
	return thread;
}

static struct hl_thread *begin_thread(struct hl_recorder *recorder)
{
	struct hl_thread *thread = reuse_thread(recorder);

	if (!thread)
		thread = make_thread(recorder);
	if (!thread)
		return NULL;
	thread->in_region->tid = hl_sys_gettid();
	read_name(thread->in_region);
	hl_walk_begin(&thread->tables->walk, hl_self_is_main());
	thread->last_block = NULL;
	if (atomic_load(&recorder->region.header->mode) & HL_MODE_LOGGING)
		hl_ring_writer_init(&thread->ring, &recorder->region, thread->slot);
	hl_sample_start(thread, recorder->sample_mean);
	thread->sampling = recorder->sampling || atomic_load(&recorder->has_dropped);
	thread->plain = !thread->sampling && !recorder->sizes && !recorder->counts_layers;
	thread->plain_chunks = thread->plain && hl_libc_has_glibc_chunks;
	atomic_fetch_add(&recorder->live_threads, 1);
	atomic_store(&thread->in_region->live, 1);
	hl_thread_set(thread, HL_RECORDING);
	hl_self_begin(thread);
	return thread;
}

/* Without signals: a child that a handler forked before hl_thread_self() is set would go on with
 * memory that it does not have. Until they are blocked the phase may change that way. */
static struct hl_thread *start_thread(struct hl_recorder *recorder)
{
	uint64_t before;

	hl_sys_block_signals(&before);
	uint32_t phase = atomic_load_explicit(&recorder->phase, memory_order_acquire);
	bool running =
		phase == HL_PHASE_RUNNING || (phase == HL_PHASE_FORKED && start_child(recorder));
	struct hl_thread *thread = running ? begin_thread(recorder) : NULL;
	hl_sys_restore_signals(&before);
	return thread;
}

/* The first HL_THREADS_OWNED threads keep their slots for good; later ones share slots in turn. */
static void give_back(struct hl_recorder *recorder, struct hl_thread *thread)
{
	if (thread->slot < HL_THREADS_OWNED) {
		hl_cells_release(&thread->cells);
		hl_recall_check_release(thread);
		hl_script_release(thread);
		if (thread->tables->recall.room)
			hl_private_map_free(thread->tables->recall.room, HL_RECALL_ROOM_BYTES);
		hl_private_map_free(thread->tables, sizeof(*thread->tables));
		hl_private_map_free_head(thread);
		return;
	}
	hl_spin_lock(&recorder->threads_lock);
	thread->next_free = recorder->free_threads;
	recorder->free_threads = thread;
	hl_spin_unlock(&recorder->threads_lock);
}

/* Completes the counts of a thread that records no more, and gives it back. */
static void retire(struct hl_recorder *recorder, struct hl_thread *thread)
{
	/* No handler reaches it any more; some may have left frees. */
	hl_thread_drain(thread);
	hl_event_flush(recorder, thread);
	atomic_store(&thread->in_region->live, 0);
	atomic_fetch_sub(&recorder->live_threads, 1);
	give_back(recorder, thread);
}

/* Without signals: a child that a handler forked here would go on with half a thread. */
void hl_thread_end(struct hl_thread *thread)
{
	uint64_t before;

	hl_sys_block_signals(&before);
	hl_thread_set(thread, HL_RECORDING);
	read_name(thread->in_region);
	*hl_self_changing_slot() = true;
	atomic_signal_fence(memory_order_seq_cst);
	hl_thread_become(NULL);
	atomic_signal_fence(memory_order_seq_cst);
	retire(hl_recorder, thread);
	atomic_signal_fence(memory_order_seq_cst);
	*hl_self_changing_slot() = false;
	hl_sys_restore_signals(&before);
}

#ifdef HL_ATTACHED
void hl_thread_retire(struct hl_thread *thread)
{
	uint64_t before;

	/* A handler must not wait for the lock that its own thread holds. */
	hl_sys_block_signals(&before);
	retire(hl_recorder, thread);
	hl_sys_restore_signals(&before);
}
#endif

struct hl_thread *hl_thread_enter_slow(void)
{
	struct hl_recorder *recorder = hl_recorder;

	if (!recorder || atomic_load(&recorder->phase) == HL_PHASE_OFF)
		return NULL;
	struct hl_thread *thread = hl_thread_self();
	if (thread &&
	    atomic_load_explicit(&thread->activity, memory_order_relaxed) != HL_NOT_A_THREAD)
		return NULL; /* in the recorder or the allocator already */
	if (*hl_self_changing_slot())
		return NULL;
	*hl_self_changing_slot() = true;
	atomic_signal_fence(memory_order_seq_cst);
	thread = start_thread(recorder);
	atomic_signal_fence(memory_order_seq_cst);
	*hl_self_changing_slot() = false;
	return thread;
}

void hl_thread_drain(struct hl_thread *thread)
{
	hl_thread_set(thread, HL_RECORDING);
	uint32_t count;
	/* Newest first; a handler that adds meanwhile is seen by the next round. */
	while ((count = atomic_load_explicit(&thread->pending_count, memory_order_relaxed))) {
		struct hl_pending_free pending = thread->pending[count - 1];
		uint32_t expected = count;
		if (atomic_compare_exchange_strong(&thread->pending_count, &expected, count - 1))
			hl_event_count_free(thread, pending.address, pending.block, pending.usable);
	}
	hl_thread_set(thread, HL_IDLE);
}
