/* SPDX-License-Identifier: BSD-2-Clause */
/* Patches entries and restores them; see attach_parts.h. */
#include "hook/attach_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "hook/whereabouts.h"

#include <errno.h>
#include <string.h>

/*
 * A thread may stand where it cannot be moved from; it has moved on soon. One that does not stop may
 * take that for long, and each try waits for it: then a few will do.
 */
#define PATCH_TRIES	200
#define PATCH_TRIES_MIN 4
#define PATCH_WAIT_NS	(3 * HL_NS_PER_SECOND)
#define PATCH_PAUSE_NS	500000

#define BREAKPOINT 0xcc

/* Only the bytes of the jump change, but a loop among the moved instructions may lead back to them. */
static size_t ranges_of_entries(const struct hl_attach *attach,
				struct hl_code_range ranges[HL_ENTRIES_MAX])
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		uint64_t address = attach->record.patches[i].address;
		ranges[i] =
			(struct hl_code_range){address, address + attach->patches[i].entry_bytes};
	}
	return attach->record.patch_count;
}

/* The patch among whose moved instructions the thread stands; at the first it will find the jump. */
static const struct hl_attach_patch *find_under(const struct hl_attach *attach,
						const struct hl_remote_thread *thread,
						uint64_t *ret_offset)
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		*ret_offset = thread->registers.rip - attach->record.patches[i].address;
		if (*ret_offset > 0 && *ret_offset < attach->patches[i].entry_bytes)
			return &attach->patches[i];
	}
	return NULL;
}

/* With all threads stopped: whether entries may change now. No thread may stand, or return, where
 * no instruction of its own will begin. */
static bool may_patch(struct hl_attach *attach)
{
	struct hl_code_range ranges[HL_ENTRIES_MAX];
	size_t range_count = ranges_of_entries(attach, ranges), count;
	struct hl_remote_thread *threads = hl_remote_threads(attach->remote, &count);
	uint64_t offset;

	for (size_t i = 0; i < count; i++) {
		const struct hl_attach_patch *patch = find_under(attach, &threads[i], &offset);
		if ((patch && patch->twin[offset] == HL_RELOCATE_NO_TWIN) ||
		    hl_whereabouts_may_return(attach->remote, &threads[i], ranges, range_count))
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
		threads[i].registers.rip = patch->trampoline + patch->twin[offset];
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

/* The kernel's breakpoint for a uprobe, one byte, stays where it has been put over a jump. */
static bool restore_entry(struct hl_attach *attach, uint32_t index)
{
	const struct hl_record_patch *patch = &attach->record.patches[index];
	uint8_t jump[HL_PATCH_BYTES], original[HL_PATCH_BYTES];

	memcpy(jump, patch->jump, sizeof(jump));
	memcpy(original, patch->original, sizeof(original));
	if (has_code(attach, patch->address, original))
		return true;
	if (has_code(attach, patch->address, jump))
		return set_word(attach, index, 0) && write_entry(attach, patch->address, original);
	jump[0] = original[0] = BREAKPOINT;
	if (has_code(attach, patch->address, jump))
		return write_entry(attach, patch->address, original);
	return has_gone(attach, patch);
}

bool hl_attach_restore_entries(struct hl_attach *attach)
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
		attach->is_patched = !hl_attach_restore_entries(attach);
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
		if (r == 0 && !hl_attach_is_there(attach)) {
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
