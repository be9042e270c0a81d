/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Patches functions of libraries that are loaded after the recorder has come; see attach_parts.h.
 *
 * The recorder hooks _dl_debug_state(). A thread that has changed what is loaded waits there, with the
 * loader's lock, before anything in a new library is called: so patches are written without stopping
 * anybody. When a library goes, what was patched in it is forgotten, while the same thread waits.
 */
#include "hook/attach_parts.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/worker.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The recorder takes its question back before, unless it was told a wrong time. */
#define ANSWERING_NS (5 * HL_NS_PER_SECOND)

#define LOOK_NS (HL_NS_PER_SECOND / 5) /* whether the watch is over */

struct hl_attach_watch {
	struct hl_attach *attach;
	struct hl_region_header *header;
	pthread_t thread;
	_Atomic bool is_over;
	struct hl_maps known;				/* when the last answer was given */
	uint64_t fixed[HL_RECORD_BLOCKS_MAX];		/* of each block, what was used before */
	uint64_t begin_ns;				/* of the answer in progress */
	struct hl_entry entries[HL_ATTACHED_RULES_MAX]; /* by rule */
};

/* ---- the recorder ---- */

static void wake(const struct hl_attach_watch *watch)
{
	syscall(SYS_futex, &watch->header->libraries, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool change(const struct hl_attach_watch *watch, uint32_t word, uint32_t answers,
		   enum hl_libraries_state state)
{
	return atomic_compare_exchange_strong(
		&watch->header->libraries, &word,
		hl_libraries_word(hl_libraries_answers(word) + answers, state));
}

static void sleep_until_changed(const struct hl_attach_watch *watch, uint32_t word)
{
	const struct timespec look = {.tv_nsec = LOOK_NS};

	syscall(SYS_futex, &watch->header->libraries, FUTEX_WAIT, word, &look, NULL, 0);
}

/* ---- what is loaded ---- */

static bool is_code(const struct hl_map *map)
{
	return map->flags & HL_MAP_EXEC && map->inode;
}

static bool has_map(const struct hl_maps *maps, const struct hl_map *wanted)
{
	const struct hl_map *map = hl_maps_find(maps, wanted->start);

	return map && map->start == wanted->start && map->offset == wanted->offset &&
	       hl_maps_same_file(map, wanted);
}

/* Whether the linker is in the middle of a change; of another namespace's it does not say. */
static bool is_loading(const struct hl_attach *attach)
{
	uint64_t place = attach->found.debug_place, list;
	struct r_debug debug;

	return place && hl_remote_read(attach->remote, place, &list, sizeof(list)) && list &&
	       hl_remote_read(attach->remote, list, &debug, sizeof(debug)) &&
	       debug.r_state != RT_CONSISTENT;
}

/* ---- patches ---- */

static uint64_t place_in_page(const struct hl_attach *attach, size_t offset)
{
	return attach->record.blocks[0].address + offset;
}

static bool tell_patch(struct hl_attach *attach, uint32_t index)
{
	return hl_remote_write(
		attach->remote,
		place_in_page(attach, offsetof(struct hl_record_page, patches[index])),
		&attach->record.patches[index], sizeof(attach->record.patches[index]));
}

static bool tell_patch_count(struct hl_attach *attach)
{
	return hl_remote_write(attach->remote,
			       place_in_page(attach, offsetof(struct hl_record_page, patch_count)),
			       &attach->record.patch_count, sizeof(attach->record.patch_count));
}

/* The block first, then that there is one more. */
static bool tell_block(struct hl_attach *attach, uint32_t index)
{
	uint32_t count = index + 1;

	return hl_remote_write(
		       attach->remote,
		       place_in_page(attach, offsetof(struct hl_record_page, blocks[index])),
		       &attach->record.blocks[index], sizeof(attach->record.blocks[index])) &&
	       hl_remote_write(attach->remote,
			       place_in_page(attach, offsetof(struct hl_record_page, block_count)),
			       &count, sizeof(count));
}

static void forget(struct hl_attach *attach, uint32_t index)
{
	uint32_t last = --attach->record.patch_count;

	attach->rules_used[attach->patches[index].rule] = false;
	attach->patches[index] = attach->patches[last];
	attach->record.patches[index] = attach->record.patches[last];
	tell_patch(attach, index);
	tell_patch_count(attach);
}

/* What is patched in libraries that are gone, as nobody stands there, nor will come. */
static void forget_gone(struct hl_attach_watch *watch, const struct hl_maps *maps)
{
	struct hl_attach *attach = watch->attach;

	for (uint32_t i = attach->record.patch_count; i-- > 0;) {
		const struct hl_record_patch *patch = &attach->record.patches[i];
		const struct hl_map *map = hl_maps_find(&watch->known, patch->address);
		uint8_t code[HL_PATCH_BYTES];
		if (!patch->is_late)
			continue;
		if (!map || !has_map(maps, map) ||
		    !hl_remote_read(attach->remote, patch->address, code, sizeof(code)) ||
		    !memcmp(code, patch->original, sizeof(code)))
			forget(attach, i);
	}
}

static bool overlaps(const struct hl_attach_patch *patch, uint64_t at)
{
	return patch->room < at + HL_ATTACH_ROOM_MAX && at < patch->room_end;
}

/* Where block ${index} has room again, behind what was there before. */
static uint64_t find_gap(const struct hl_attach_watch *watch, uint32_t index)
{
	const struct hl_attach *attach = watch->attach;
	const struct hl_attach_block *block = &attach->blocks[index];
	uint64_t at = block->address + watch->fixed[index];

	for (uint32_t i = 0; i < attach->record.patch_count; i++)
		if (attach->record.patches[i].is_late && overlaps(&attach->patches[i], at)) {
			at = attach->patches[i].room_end;
			i = UINT32_MAX; /* those before it once more */
		}
	return at - block->address;
}

/* Has the thread that waits map block ${index}, a new one. 0 or a negative errno. */
static int place_block(struct hl_attach_watch *watch, uint32_t index)
{
	struct hl_attach *attach = watch->attach;
	const struct hl_attach_block *block = &attach->blocks[index];
	struct hl_attached attached = hl_image_attached(&attach->image);
	uint64_t at = attach->record.attached;
	uint32_t word = atomic_load(&watch->header->libraries);
	uint32_t asked = hl_libraries_word(hl_libraries_answers(word), HL_LIBRARIES_ROOM);

	attached.room_result = -EIO;
	if (!attach->may_map_code)
		return -EPERM;
	if (hl_libraries_state_of(word) != HL_LIBRARIES_ANSWERING ||
	    !hl_remote_write(attach->remote, at + offsetof(struct hl_attached, room),
			     &block->address, sizeof(block->address)) ||
	    !hl_remote_write(attach->remote, at + offsetof(struct hl_attached, room_bytes),
			     &block->size, sizeof(block->size)) ||
	    !change(watch, word, 0, HL_LIBRARIES_ROOM))
		return -EIO;
	wake(watch);
	while (atomic_load(&watch->header->libraries) == asked &&
	       hl_clock_ns(CLOCK_MONOTONIC) - watch->begin_ns < ANSWERING_NS)
		sleep_until_changed(watch, asked);
	if (change(watch, asked, 0, HL_LIBRARIES_ANSWERING) ||
	    !hl_remote_read(attach->remote, at + offsetof(struct hl_attached, room_result),
			    &attached.room_result, sizeof(attached.room_result)) ||
	    attached.room_result < 0)
		return -ENOMEM;
	return tell_block(attach, index) ? 0 : -EIO;
}

/* What the last patch needs in the target. */
static int place(struct hl_attach_watch *watch, uint32_t block_count)
{
	struct hl_attach *attach = watch->attach;
	const struct hl_attach_patch *patch = &attach->patches[attach->record.patch_count - 1];
	int r = attach->record.block_count > block_count ? place_block(watch, block_count) : 0;

	for (uint32_t i = 0; r == 0 && i < attach->record.block_count; i++) {
		const struct hl_attach_block *block = &attach->blocks[i];
		uint64_t offset = patch->room - block->address;
		if (offset < block->size &&
		    !hl_remote_write(attach->remote, patch->room, block->bytes + offset,
				     patch->room_end - patch->room))
			r = -EIO;
	}
	return r;
}

static void drop_blocks(struct hl_attach *attach, uint32_t first)
{
	while (attach->record.block_count > first) {
		uint32_t last = --attach->record.block_count;
		free(attach->blocks[last].bytes);
		attach->blocks[last] = (struct hl_attach_block){0};
	}
}

/* The image's rule first, then the record, later the jump: each is right without the next. */
static bool announce(struct hl_attach_watch *watch, const struct hl_entry *entry,
		     const struct hl_map *map)
{
	struct hl_attach *attach = watch->attach;
	uint32_t index = attach->record.patch_count - 1;
	struct hl_attach_patch *patch = &attach->patches[index];
	struct hl_record_patch *in_record = &attach->record.patches[index];
	const struct hl_attached_rule rule = hl_entry_rule(entry, patch->real);
	uint64_t rules = hl_image_attached(&attach->image).rules;

	patch->in_record.is_late = in_record->is_late = 1;
	patch->in_record.file = in_record->file = (uint32_t)map->inode;
	return hl_remote_write(attach->remote, rules + (uint64_t)patch->rule * sizeof(rule), &rule,
			       sizeof(rule)) &&
	       tell_patch(attach, index) && tell_patch_count(attach);
}

static int find_rule(const struct hl_attach *attach)
{
	for (int rule = 0; rule < (int)HL_ATTACHED_RULES_MAX; rule++)
		if (!attach->rules_used[rule])
			return rule;
	return -ENOSPC;
}

/* Whether the function's patch is ready but for the jump. */
static bool make_ready(struct hl_attach_watch *watch, const struct hl_entry *candidate,
		       const struct hl_map *map)
{
	struct hl_attach *attach = watch->attach;
	uint32_t block_count = attach->record.block_count;
	struct hl_error ignored = {0};

	int rule = find_rule(attach);
	if (rule < 0 || attach->record.patch_count == HL_ENTRIES_MAX)
		return false;
	struct hl_entry *entry = &watch->entries[rule];
	*entry = *candidate;
	for (uint32_t i = 0; i < block_count; i++)
		attach->blocks[i].used = find_gap(watch, i);
	int r = hl_attach_prepare_patch(attach, entry, rule, &ignored);
	if (r == 0) {
		attach->rules_used[rule] = true;
		r = place(watch, block_count);
		if (r == 0 && announce(watch, entry, map))
			return true;
		forget(attach, attach->record.patch_count - 1);
	}
	if (r < 0)
		drop_blocks(attach, block_count);
	return false;
}

/* ---- answers ---- */

/* The mappings of code in ${maps} that were not there before. They share the paths. */
static int find_new(const struct hl_attach_watch *watch, const struct hl_maps *maps,
		    struct hl_maps *ret_new)
{
	for (size_t i = 0; i < maps->count; i++)
		if (is_code(&maps->maps[i]) && !has_map(&watch->known, &maps->maps[i]) &&
		    HL_ARRAY_APPEND(ret_new->maps, ret_new->count, ret_new->capacity,
				    maps->maps[i]) < 0)
			return -ENOMEM;
	return 0;
}

static void say_no_room(struct hl_attach *attach, const struct hl_entry *entry)
{
	snprintf(attach->late_problem, sizeof(attach->late_problem),
		 "calls to '%s' in '%s', which was loaded later, are not recorded: there is no "
		 "room for the jump",
		 entry->name, entry->module);
}

static void say_missed(struct hl_attach *attach, const struct hl_map *map)
{
	snprintf(attach->late_problem, sizeof(attach->late_problem),
		 "functions that rules name in '%s' are not recorded: it was loaded while heapline "
		 "did not answer",
		 hl_path_basename(map->path));
}

/* Writes the jumps of all that was made ready since there were ${first}: at once, so that whoever waits
 * may go at any time before. False when nobody waits any more. */
static bool write_jumps(struct hl_attach_watch *watch, uint32_t first)
{
	struct hl_attach *attach = watch->attach;
	uint32_t word = atomic_load(&watch->header->libraries);
	bool may_write = hl_libraries_state_of(word) == HL_LIBRARIES_ANSWERING &&
			 change(watch, word, 0, HL_LIBRARIES_WRITING);

	for (uint32_t i = attach->record.patch_count; i-- > first;) {
		const struct hl_entry *entry = attach->patches[i].entry;
		if (may_write && hl_attach_write_patch(attach, i))
			continue;
		say_no_room(attach, entry);
		forget(attach, i);
	}
	return may_write;
}

static void patch_new(struct hl_attach_watch *watch, const struct hl_maps *new)
{
	struct hl_attach *attach = watch->attach;
	uint32_t first = attach->record.patch_count;
	struct hl_entries found;
	struct hl_error ignored;

	if (!new->count ||
	    hl_entries_find_more(attach->pid, new, &attach->rules, &found, &ignored) < 0)
		return;
	for (uint32_t i = 0; i < found.extra_count; i++) {
		const struct hl_entry *entry = &found.extras[i];
		const struct hl_map *map = hl_maps_find(new, entry->address);
		if (map && !make_ready(watch, entry, map))
			say_no_room(attach, entry);
	}
	if (attach->record.patch_count > first && !write_jumps(watch, first))
		say_missed(attach, &new->maps[0]);
}

/* ${may_patch}: whoever has loaded a library waits. Otherwise all that is there is left as it is,
 * also what is just being loaded. */
static void look(struct hl_attach_watch *watch, bool may_patch)
{
	struct hl_attach *attach = watch->attach;
	struct hl_maps maps = {0}, new = {0};

	watch->begin_ns = hl_clock_ns(CLOCK_MONOTONIC);
	if ((may_patch && is_loading(attach)) || hl_maps_read(attach->pid, &maps, NULL) < 0)
		return;
	forget_gone(watch, &maps);
	int r = find_new(watch, &maps, &new);
	hl_maps_release(&attach->maps);
	attach->maps = maps; /* for room */
	if (may_patch && r == 0)
		patch_new(watch, &new);
	else if (new.count)
		say_missed(attach, &new.maps[0]);
	free(new.maps);
	struct hl_maps known = {0};
	if (hl_maps_read(attach->pid, &known, NULL) == 0) {
		hl_maps_release(&watch->known);
		watch->known = known;
	}
}

/* Unless whoever asked has gone on. */
static void answer(const struct hl_attach_watch *watch, uint32_t answers)
{
	if (!change(watch, hl_libraries_word(answers, HL_LIBRARIES_ANSWERING), 1,
		    HL_LIBRARIES_WATCHED))
		change(watch, hl_libraries_word(answers, HL_LIBRARIES_WRITING), 1,
		       HL_LIBRARIES_WATCHED);
	wake(watch);
}

static void *run(void *context)
{
	struct hl_attach_watch *watch = context;

	while (!watch->is_over) {
		uint32_t word = atomic_load(&watch->header->libraries);
		switch (hl_libraries_state_of(word)) {
		case HL_LIBRARIES_ASKED:
			if (!change(watch, word, 0, HL_LIBRARIES_ANSWERING))
				break;
			look(watch, true);
			answer(watch, hl_libraries_answers(word));
			break;
		case HL_LIBRARIES_MISSED:
			/* First, as in hl_attach_watch_begin(). */
			if (change(watch, word, 0, HL_LIBRARIES_WATCHED))
				look(watch, false);
			break;
		default:
			sleep_until_changed(watch, word);
		}
	}
	return NULL;
}

/* ---- its life ---- */

static bool is_hooked(const struct hl_attach *attach)
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++)
		if (attach->patches[i].rule == HL_ATTACH_NO_RULE &&
		    attach->patches[i].entry->hook == HL_HOOK_LIBRARIES)
			return true;
	return false;
}

static void free_watch(struct hl_attach_watch *watch)
{
	if (watch->header)
		munmap(watch->header, sizeof(*watch->header));
	hl_maps_release(&watch->known);
	free(watch);
}

/* Whoever waits goes on, and nobody asks any more. */
static void say_unwatched(const struct hl_attach_watch *watch)
{
	uint32_t word = atomic_load(&watch->header->libraries);

	atomic_store(&watch->header->libraries,
		     hl_libraries_word(hl_libraries_answers(word) + 1, HL_LIBRARIES_UNWATCHED));
	wake(watch);
}

void hl_attach_watch_begin(struct hl_attach *attach)
{
	struct hl_attach_watch *watch = calloc(1, sizeof(*watch));
	void *header = MAP_FAILED;

	if (watch && is_hooked(attach) && attach->rules.count && attach->region_copy >= 0)
		header = mmap(NULL, sizeof(*watch->header), PROT_READ | PROT_WRITE, MAP_SHARED,
			      attach->region_copy, 0);
	if (header == MAP_FAILED) {
		free(watch);
		return;
	}
	watch->attach = attach;
	watch->header = header;
	for (uint32_t i = 0; i < attach->record.block_count; i++)
		watch->fixed[i] = attach->blocks[i].used;
	/* Before the maps are read: a library that came unasked after that would be found, and
	 * patched, with the next one, when it runs already. */
	atomic_store(&watch->header->libraries, HL_LIBRARIES_WATCHED);
	if (hl_maps_read(attach->pid, &watch->known, NULL) < 0 ||
	    hl_worker_start(&watch->thread, 0, run, watch) < 0) {
		say_unwatched(watch);
		free_watch(watch);
		return;
	}
	attach->watch = watch;
}

void hl_attach_watch_end(struct hl_attach *attach)
{
	struct hl_attach_watch *watch = attach->watch;

	if (!watch)
		return;
	watch->is_over = true;
	wake(watch);
	pthread_join(watch->thread, NULL);
	say_unwatched(watch);
	/* Entries of patches are of the watch. */
	for (uint32_t i = 0; i < attach->record.patch_count; i++)
		if (attach->record.patches[i].is_late)
			attach->patches[i].entry = NULL;
	attach->watch = NULL;
	free_watch(watch);
}
