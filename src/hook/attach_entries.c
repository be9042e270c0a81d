/* SPDX-License-Identifier: BSD-2-Clause */
/* Patches entries and restores them, and takes the recorder out; see attach_parts.h. */
#include "hook/attach_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "process/process.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* ---- whether a stopped thread is in a range of code, or will come back to it ---- */

struct code_range {
	uint64_t start, end;
};

static bool range_holds(const struct code_range *ranges, size_t count, uint64_t address)
{
	for (size_t i = 0; i < count; i++)
		if (address >= ranges[i].start && address < ranges[i].end)
			return true;
	return false;
}

#define STACK_WORDS 2048

/* All by one call, up to the first page that is not there: threads are stopped meanwhile, and there may be
 * hundreds. Negative where that is forbidden. */
static ssize_t read_at_once(pid_t tid, uint64_t start, uint64_t words[STACK_WORDS])
{
	struct iovec own = {words, STACK_WORDS * sizeof(*words)};
	struct iovec theirs = {(void *)(uintptr_t)start, own.iov_len};

	return process_vm_readv(tid, &own, 1, &theirs, 1, 0);
}

/* Words from the stack pointer on; a page at a time, since the stack may end. */
static size_t read_stack(const struct hl_remote *remote, const struct hl_remote_thread *thread,
			 uint64_t words[STACK_WORDS])
{
	uint64_t start = hl_thread_registers_sp(&thread->registers) & ~UINT64_C(7), at = start;
	uint64_t end = start + STACK_WORDS * sizeof(*words);

	ssize_t got = read_at_once(thread->tid, start, words);
	if (got > 0)
		return (size_t)got / sizeof(*words);
	while (at < end) {
		uint64_t next = (at | 4095) + 1;
		next = next < end ? next : end;
		if (!hl_remote_read(remote, at, &words[(at - start) / sizeof(*words)], next - at))
			break;
		at = next;
	}
	return (at - start) / sizeof(*words);
}

/* Whether a signal handler of the thread has interrupted it in one of the ranges, whither it will
 * return. What lies deeper than 16 KiB in the stack is not seen. */
static bool will_return(const struct hl_remote *remote, const struct hl_remote_thread *thread,
			const struct code_range *ranges, size_t count)
{
	uint64_t words[STACK_WORDS];

	size_t read = read_stack(remote, thread, words);
	for (size_t i = 0; i + HL_SIGNAL_FRAME_WORDS <= read; i++)
		if (range_holds(ranges, count, words[i + HL_SIGNAL_FRAME_PC]) &&
		    hl_remote_is_signal_frame(remote, &words[i]))
			return true;
	return false;
}

/* Whether a word of the thread's stack, that far, points into the inside of one of the ranges, behind
 * its first byte: a return address, if it is not an old one. */
static bool may_return(const struct hl_remote *remote, const struct hl_remote_thread *thread,
		       const struct code_range *ranges, size_t count)
{
	uint64_t words[STACK_WORDS], low = UINT64_MAX, high = 0;

	for (size_t i = 0; i < count; i++) {
		low = ranges[i].start < low ? ranges[i].start : low;
		high = ranges[i].end > high ? ranges[i].end : high;
	}
	size_t read = read_stack(remote, thread, words);
	for (size_t i = 0; i < read; i++)
		if (words[i] > low && words[i] < high && range_holds(ranges, count, words[i]) &&
		    range_holds(ranges, count, words[i] - 1))
			return true;
	return false;
}

/* ---- entries ---- */

/* Whether the record page is still there: another program may have taken the process' place. */
static bool is_there(const struct hl_attach *attach)
{
	struct hl_record_page page;

	return hl_remote_read(attach->remote, attach->record.blocks[0].address, &page,
			      sizeof(page)) &&
	       !memcmp(page.magic, attach->record.magic, sizeof(page.magic)) &&
	       page.tool_start_ticks == attach->record.tool_start_ticks &&
	       page.attached == attach->record.attached;
}

/*
 * A thread may stand where it cannot be moved from; it has moved on soon. One that does not stop may
 * take that for long, and each try waits for it: then a few will do.
 */
#define PATCH_TRIES	200
#define PATCH_TRIES_MIN 4
#define PATCH_WAIT_NS	(3 * HL_NS_PER_SECOND)
#define PATCH_PAUSE_NS	500000

/* Only the bytes of the jump change, but a loop among the moved instructions may lead back to them. */
static size_t ranges_of_entries(const struct hl_attach *attach,
				struct code_range ranges[HL_ENTRIES_MAX])
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		uint64_t address = attach->record.patches[i].address;
		ranges[i] = (struct code_range){address, address + attach->patches[i].entry_bytes};
	}
	return attach->record.patch_count;
}

/* The patch among whose moved instructions the thread stands; at the first it will find the jump. */
static const struct hl_attach_patch *
find_under(const struct hl_attach *attach, struct hl_remote_thread *thread, uint64_t *ret_offset)
{
	uint64_t pc = *hl_thread_registers_pc(&thread->registers);

	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		*ret_offset = pc - attach->record.patches[i].address;
		if (*ret_offset > 0 && *ret_offset < attach->patches[i].entry_bytes)
			return &attach->patches[i];
	}
	return NULL;
}

/* With all threads stopped: whether entries may change now. No thread may stand, or return, where
 * no instruction of its own will begin. */
static bool may_patch(struct hl_attach *attach)
{
	struct code_range ranges[HL_ENTRIES_MAX];
	size_t range_count = ranges_of_entries(attach, ranges), count;
	struct hl_remote_thread *threads = hl_remote_threads(attach->remote, &count);
	uint64_t offset;

	for (size_t i = 0; i < count; i++) {
		const struct hl_attach_patch *patch = find_under(attach, &threads[i], &offset);
		if ((patch && patch->twin[offset] == HL_RELOCATE_NO_TWIN) ||
		    may_return(attach->remote, &threads[i], ranges, range_count))
			return false;
	}
	return true;
}

/* Threads that stand inside of what will be a jump go on in the trampolines, from now on: these serve
 * before entries are patched, too, as they are if heapline ends in between. */
static bool move_out(struct hl_attach *attach)
{
	size_t count;
	struct hl_remote_thread *threads = hl_remote_threads(attach->remote, &count);
	uint64_t offset;

	for (size_t i = 0; i < count; i++) {
		const struct hl_attach_patch *patch = find_under(attach, &threads[i], &offset);
		if (!patch)
			continue;
		*hl_thread_registers_pc(&threads[i].registers) =
			patch->trampoline + patch->twin[offset];
		if (hl_remote_set_registers(&threads[i]) < 0)
			return false;
	}
	return true;
}

/*
 * Writes ${code} over the entry's first bytes, in one aligned word where they lie in one: then no
 * processor ever sees half of it.
 */
static bool write_entry(struct hl_attach *attach, uint64_t address,
			const uint8_t code[HL_PATCH_BYTES])
{
	uint64_t word = address & ~UINT64_C(7);
	uint8_t bytes[8];

	if (address - word + HL_PATCH_BYTES > sizeof(bytes))
		return hl_remote_write(attach->remote, address, code, HL_PATCH_BYTES);
	if (!hl_remote_read(attach->remote, word, bytes, sizeof(bytes)))
		return false;
	memcpy(bytes + (address - word), code, HL_PATCH_BYTES);
	return hl_remote_write(attach->remote, word, bytes, sizeof(bytes));
}

static bool has_code(struct hl_attach *attach, uint64_t address, const uint8_t code[HL_PATCH_BYTES])
{
	uint8_t bytes[HL_PATCH_BYTES];

	return hl_remote_read(attach->remote, address, bytes, sizeof(bytes)) &&
	       !memcmp(bytes, code, sizeof(bytes));
}

/* Whether the library is still there that the patch was made for. */
static bool has_gone(const struct hl_attach *attach, const struct hl_record_patch *patch)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};

	if (!patch->is_late || hl_maps_read(attach->pid, &maps, NULL) < 0)
		return false;
	const struct hl_map *map = hl_maps_find(&maps, patch->address);
	return !map || (uint32_t)map->inode != patch->file;
}

/*
 * Of an annotation: whether the program calls it at all. A library that is just being loaded is relocated
 * only after this, by glibc before 2.41, and its word becomes the relocation's addend.
 */
static bool set_word(struct hl_attach *attach, uint32_t index, uint64_t value)
{
	const struct hl_attach_patch *patch = &attach->patches[index];
	uint64_t addend = attach->record.patches[index].is_late ? patch->word_addend : 0;

	return (!addend || hl_remote_write(attach->remote, addend, &value, sizeof(value))) &&
	       (!patch->word ||
		hl_remote_write(attach->remote, patch->word, &value, sizeof(value)));
}

/* The kernel's breakpoint for a uprobe stays where it has been put over a jump. */
static bool restore_entry(struct hl_attach *attach, uint32_t index)
{
	static const uint8_t uprobe[] = {HL_UPROBE_BYTES};
	const struct hl_record_patch *patch = &attach->record.patches[index];
	uint8_t jump[HL_PATCH_BYTES], original[HL_PATCH_BYTES];

	memcpy(jump, patch->jump, sizeof(jump));
	memcpy(original, patch->original, sizeof(original));
	if (has_code(attach, patch->address, original))
		return true;
	if (has_code(attach, patch->address, jump))
		return set_word(attach, index, 0) && write_entry(attach, patch->address, original);
	memcpy(jump, uprobe, sizeof(uprobe));
	memcpy(original, uprobe, sizeof(uprobe));
	if (has_code(attach, patch->address, jump))
		return write_entry(attach, patch->address, original);
	return has_gone(attach, patch);
}

/* With all threads stopped: makes entries what they were. False where somebody else has written over
 * one, who may come back to the image by a copy of the jump. */
static bool restore_entries(struct hl_attach *attach)
{
	bool all = true;

	for (uint32_t i = 0; i < attach->record.patch_count; i++)
		all &= restore_entry(attach, i);
	return all;
}

bool hl_attach_write_patch(struct hl_attach *attach, uint32_t index)
{
	const struct hl_record_patch *patch = &attach->record.patches[index];

	/* The jump last: it is not to stay where false is returned. */
	return has_code(attach, patch->address, patch->original) && set_word(attach, index, 1) &&
	       write_entry(attach, patch->address, patch->jump);
}

static bool write_patches(struct hl_attach *attach)
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		if (hl_attach_write_patch(attach, i))
			continue;
		attach->is_patched = !restore_entries(attach);
		return false;
	}
	return true;
}

int hl_attach_patch_entries(struct hl_attach *attach, struct hl_error *err)
{
	uint64_t deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + PATCH_WAIT_NS;

	for (int tries = 0; tries < PATCH_TRIES; tries++) {
		if (tries >= PATCH_TRIES_MIN && hl_clock_ns(CLOCK_MONOTONIC) >= deadline_ns)
			break;
		int r = hl_remote_stop_all(attach->remote, err);
		if (r < 0 && r != -EAGAIN)
			return r;
		if (r == 0 && !is_there(attach)) {
			hl_remote_continue(attach->remote);
			return hl_attach_became_another(attach, err);
		}
		bool may = r == 0 && may_patch(attach);
		attach->may_be_inside |= may;
		may = may && move_out(attach);
		bool done = may && write_patches(attach);
		if (r == 0)
			hl_remote_continue(attach->remote);
		attach->times.patch_us += hl_remote_stopped_us(attach->remote);
		if (done)
			return 0;
		if (may)
			return hl_error_set(err, -EIO,
					    "the code of process %d cannot be written to",
					    attach->pid);
		hl_attach_pause(PATCH_PAUSE_NS);
	}
	return hl_error_set(err, -EAGAIN,
			    "process %d was never in a state to be entered: some thread did not "
			    "stop, or was inside malloc for long",
			    attach->pid);
}

/* ---- leaving ---- */

#define OUTSIDE_PAUSE_NS     1000000
#define OUTSIDE_PAUSE_MAX_NS 500000000

/* Slots for threads in an image that makes sense. */
#define SLOTS_MAX 65536u

static int stays(const struct hl_attach *attach, const char *reason, struct hl_error *err)
{
	return hl_error_set(err, -EIO, "the recorder stays in process %d: %s", attach->pid, reason);
}

static int stop_all(struct hl_attach *attach, uint64_t deadline_ns, struct hl_error *err)
{
	int r;

	while ((r = hl_remote_stop_all(attach->remote, err)) == -EAGAIN &&
	       hl_clock_ns(CLOCK_MONOTONIC) < deadline_ns && !hl_process_is_frozen(attach->pid))
		hl_attach_pause(OUTSIDE_PAUSE_NS);
	return r;
}

static int unpatch(struct hl_attach *attach, uint64_t deadline_ns, struct hl_error *err)
{
	int r = stop_all(attach, deadline_ns, err);

	if (r < 0)
		return r;
	attach->is_patched = !restore_entries(attach);
	hl_remote_continue(attach->remote);
	attach->times.detach_us = hl_remote_stopped_us(attach->remote);
	return attach->is_patched ? stays(attach, "another tool has changed its code since", err)
				  : 0;
}

/* False where something else lies there by now. */
static bool read_attached(const struct hl_attach *attach, struct hl_attached *ret_attached)
{
	return hl_remote_read(attach->remote, attach->record.attached, ret_attached,
			      sizeof(*ret_attached)) &&
	       ret_attached->magic == HL_ATTACHED_MAGIC &&
	       ret_attached->version == HL_ATTACHED_VERSION &&
	       ret_attached->slot_count <= SLOTS_MAX;
}

/* The interpreter keeps the addresses in its data, once for each domain, and once for each layer above. */
#define PLACES_MAX 64u
#define SCAN_WORDS 8192u
#define ROW_BYTES  (HL_OBJECT_HOOK_COUNT * sizeof(uint64_t))

/* Data of a file, or what follows it (.bss). */
static bool is_data(const struct hl_maps *maps, size_t at)
{
	const struct hl_map *map = &maps->maps[at];

	return map->flags & HL_MAP_WRITE && !(map->flags & HL_MAP_SHARED) &&
	       (map->inode || (at > 0 && map[-1].inode && map[-1].end == map->start));
}

/* Finds rows of our hooks' addresses in [${at}, ${end}). */
static uint32_t find_rows(const struct hl_attach *attach, const struct hl_attached *attached,
			  uint64_t at, uint64_t end, uint64_t places[PLACES_MAX], uint32_t count)
{
	uint64_t words[SCAN_WORDS];

	while (at + ROW_BYTES <= end) {
		uint64_t bytes = end - at < sizeof(words) ? end - at : sizeof(words);
		if (!hl_remote_read(attach->remote, at, words, bytes))
			return count;
		for (size_t i = 0; i + HL_OBJECT_HOOK_COUNT <= bytes / 8; i++)
			if (words[i] == attached->object_hooks[0] && count < PLACES_MAX &&
			    !memcmp(words + i, attached->object_hooks, ROW_BYTES))
				places[count++] = at + i * 8;
		/* A row may lie across the end of what was read. */
		at += bytes - (bytes < sizeof(words) ? 0 : ROW_BYTES);
	}
	return count;
}

/* How many places have the addresses of our hooks; or a negative errno. */
static int find_objects(const struct hl_attach *attach, const struct hl_attached *attached,
			uint64_t places[PLACES_MAX], struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	uint32_t count = 0;
	int r = hl_maps_read(attach->pid, &maps, err);

	for (size_t i = 0; i < maps.count && r == 0; i++)
		if (is_data(&maps, i))
			count = find_rows(attach, attached, maps.maps[i].start, maps.maps[i].end,
					  places, count);
	return r < 0 ? r : (int)count;
}

/*
 * Gives the interpreter the functions of its own allocator again, while nobody runs. The context is the same
 * for both. *${ret_restored} is whether there was anything to do: then somebody may be on the way to a hook.
 */
static int restore_objects(struct hl_attach *attach, uint64_t deadline_ns, bool *ret_restored,
			   struct hl_error *err)
{
	uint64_t places[PLACES_MAX], row[HL_OBJECT_HOOK_COUNT];
	struct hl_attached attached;

	*ret_restored = false;
	if (attach->record.state != HL_RECORD_STARTED || !read_attached(attach, &attached) ||
	    !attached.object_real[0])
		return 0;
	int count = find_objects(attach, &attached, places, err);
	if (count <= 0)
		return count;
	if (hl_clock_ns(CLOCK_MONOTONIC) >= deadline_ns)
		return stays(attach, "its interpreter keeps on setting the recorder's allocator",
			     err);
	int r = stop_all(attach, deadline_ns, err);
	if (r < 0)
		return r;
	for (int i = 0; i < count; i++)
		if (hl_remote_read(attach->remote, places[i], row, ROW_BYTES) &&
		    !memcmp(row, attached.object_hooks, ROW_BYTES))
			hl_remote_write(attach->remote, places[i], attached.object_real, ROW_BYTES);
	hl_remote_continue(attach->remote);
	*ret_restored = true;
	return 0;
}

/* Whether the thread has loaded the address of a hook of objects, and is about to call it. In a system call, of which the kernel says so, nobody is. */
static bool will_call_hook(const struct hl_attached *attached,
			   const struct hl_remote_thread *thread)
{
	uint64_t registers[sizeof(thread->registers) / 8];

	if (!attached->object_real[0] || (hl_thread_registers_in_call(&thread->registers) &&
					  hl_thread_registers_call(&thread->registers) >= 0))
		return false;
	memcpy(registers, &thread->registers, sizeof(registers));
	for (size_t i = 0; i < HL_COUNT_OF(registers); i++)
		for (size_t k = 0; k < HL_OBJECT_HOOK_COUNT; k++)
			if (registers[i] == attached->object_hooks[k])
				return true;
	return false;
}

/* A function of a rule that was left by longjmp() is counted no more. */
static int32_t frames_of(struct hl_attach *attach, const struct hl_attached_slot *slot)
{
	uint64_t words[HL_ATTACHED_RULE_FRAME_WORDS];

	if (slot->rule_frame &&
	    (!hl_remote_read(attach->remote, slot->rule_frame - HL_ATTACHED_RULE_FRAME_BELOW, words,
			     sizeof(words)) ||
	     hl_attached_rule_frame_sum(words) != slot->rule_sum))
		return slot->rule_inside - 1;
	return slot->inside;
}

/* How many frames of hooks the thread with this thread pointer has on its stack. */
static int32_t frames_inside(struct hl_attach *attach, const struct hl_attached *attached,
			     uint64_t thread_pointer)
{
	struct hl_attached_slot slots[256];

	for (uint32_t i = 0; i < attached->slot_count; i += HL_COUNT_OF(slots)) {
		if (!hl_remote_read(attach->remote, attached->slots + i * sizeof(*slots), slots,
				    sizeof(slots)))
			return 1;
		for (size_t k = 0; k < HL_COUNT_OF(slots); k++)
			if (slots[k].key == thread_pointer)
				return frames_of(attach, &slots[k]) + attached->inside_without_slot;
	}
	return attached->inside_without_slot;
}

/* Whether the stopped thread has left the recorder, into which no way leads any more. */
static bool is_outside(struct hl_attach *attach, struct hl_remote_thread *thread)
{
	struct code_range ranges[HL_RECORD_BLOCKS_MAX];
	struct hl_attached attached;

	for (uint32_t i = 0; i < attach->record.block_count; i++)
		ranges[i] = (struct code_range){attach->record.blocks[i].address,
						attach->record.blocks[i].address +
							attach->record.blocks[i].bytes};
	if (range_holds(ranges, attach->record.block_count,
			*hl_thread_registers_pc(&thread->registers)) ||
	    !read_attached(attach, &attached) || will_call_hook(&attached, thread) ||
	    frames_inside(attach, &attached, hl_thread_registers_thread(&thread->registers)))
		return false;
	return !will_return(attach->remote, thread, ranges, attach->record.block_count);
}

/* Threads that have not been seen outside are left in ${tids}. */
static size_t look_at_threads(struct hl_attach *attach, pid_t *tids, size_t count)
{
	struct hl_remote_thread *thread;
	size_t left = 0;

	for (size_t i = 0; i < count; i++) {
		int r = hl_remote_stop_thread(attach->remote, tids[i], &thread);
		bool outside = r == -ESRCH || (r == 0 && is_outside(attach, thread));
		if (r == 0)
			hl_remote_continue(attach->remote);
		if (!outside)
			tids[left++] = tids[i];
	}
	return left;
}

static int wait_for_threads(struct hl_attach *attach, uint64_t deadline_ns, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	long wait_ns = OUTSIDE_PAUSE_NS;
	size_t count;

	int r = hl_remote_list(attach->remote, &tids, &count);
	if (r < 0)
		return r == -ESRCH ? hl_attach_ended(attach, err)
				   : hl_error_set(err, r, "out of memory");
	while ((count = look_at_threads(attach, tids, count))) {
		if (hl_clock_ns(CLOCK_MONOTONIC) >= deadline_ns)
			return hl_error_set(
				err, -EAGAIN,
				"thread %d of process %d is still in the recorder, which lets it "
				"pass and stays there; a later 'heapline attach' takes it out",
				tids[0], attach->pid);
		/* A thread that gets the processor seldom stops before it has gone a step, if it
		 * is looked at more often than that. */
		hl_attach_pause(wait_ns);
		wait_ns *= wait_ns < OUTSIDE_PAUSE_MAX_NS ? 2 : 1;
	}
	return 0;
}

/* The end of the recorder runs under the filters of the process, which may be newer than it. */
static int check_sandbox(struct hl_attach *attach, struct hl_error *err)
{
	static const struct hl_seccomp_call munmap_call = {"munmap", SYS_munmap, {0, 4096}};

	return attach->record.state == HL_RECORD_STARTED
		       ? hl_remote_check_calls(attach->remote, &munmap_call, 1, err)
		       : 0;
}

/* With one thread stopped, nobody inside. */
static int remove_by_thread(struct hl_attach *attach, struct hl_error *err)
{
	struct hl_attached attached;
	int32_t result = 0;

	/* A forked child has copies of its parent's memory until its first hook. */
	if (attach->record.state == HL_RECORD_STARTED && read_attached(attach, &attached)) {
		int r = hl_remote_call(attach->remote, attached.stop, 0, attached.stack_top,
				       &result);
		if (r == -ESRCH)
			return hl_attach_ended(attach, err);
		if (r < 0 || result < 0)
			return stays(attach, "it did not give its memory back", err);
		hl_attach_set_state(attach, HL_RECORD_STOPPED);
	}
	hl_attach_close_memfd(attach);
	hl_attach_unmap_blocks(attach, attach->record.block_count);
	attach->has_record = false;
	return 0;
}

int hl_attach_give_back(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err)
{
	uint64_t deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + wait_ms * UINT64_C(1000000);
	bool had_objects = false;

	if (!attach->has_record)
		return 0;
	if (!is_there(attach))
		return 0;
	int r = attach->is_patched ? unpatch(attach, deadline_ns, err) : 0;
	/* As long as a thread is inside it may set the hooks of objects. */
	do {
		if (r == 0)
			r = restore_objects(attach, deadline_ns, &had_objects, err);
		if (r == 0 && attach->may_be_inside)
			r = wait_for_threads(attach, deadline_ns, err);
	} while (r == 0 && had_objects);
	if (r == 0)
		r = check_sandbox(attach, err);
	if (r == 0)
		r = hl_remote_stop_one(attach->remote, err);
	if (r < 0)
		return r;
	r = remove_by_thread(attach, err);
	hl_remote_continue(attach->remote);
	return r;
}
