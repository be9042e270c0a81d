/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owners by the block table of a recorder in the process. The region, which both the process and
 * its collector have mapped, says what stack nodes stand for and where the table is; the table is
 * read as any memory of the process, while it goes on.
 */
#include "heap/owners/owner_table.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "heap/extents.h"
#include "heap/heap.h"
#include "heap/other_allocators.h"
#include "recording/recording.h"
#include "region/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a copy of the region ---- */

#define REGION_FILE "memfd:heapline"
#define PIECE_BYTES (UINT64_C(64) << 20) /* copied at once */

static bool layout_is_sane(const struct hl_region_header *layout)
{
	uint64_t bytes = layout->region_bytes;
	bool sane = memcmp(layout->magic, HL_REGION_MAGIC, sizeof(layout->magic)) == 0 &&
		    layout->version == HL_REGION_VERSION && bytes >= sizeof(*layout);

	for (size_t i = 0; sane && i < HL_AREA_COUNT; i++)
		sane = layout->areas[i].offset % 8 == 0 && layout->areas[i].offset <= bytes &&
		       layout->areas[i].capacity <= bytes - layout->areas[i].offset;
	return sane;
}

int hl_open_region_refresh(struct hl_open_region *region)
{
	return hl_owners_read_memory(region->pid, region->address, region->base,
				     sizeof(struct hl_region_header));
}

bool hl_block_owners_would_have_pieces(pid_t pid, const struct hl_maps *maps)
{
	const struct hl_map *map = hl_owners_find_file(maps, REGION_FILE, HL_MAP_WRITE);
	struct hl_region_header header;

	return map && hl_owners_read_memory(pid, map->start, &header, sizeof(header)) == 0 &&
	       layout_is_sane(&header) && atomic_load(&header.mode) & HL_MODE_PIECES;
}

/* Makes the pages of a part of the copy writable. */
static int permit(const struct hl_open_region *region, uint64_t at, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = at / page * page;

	return mprotect((char *)region->base + start, at + bytes - start, PROT_READ | PROT_WRITE) <
			       0
		       ? -errno
		       : 0;
}

int hl_open_region(pid_t pid, const struct hl_owner_names *names, struct hl_open_region *ret_region)
{
	static const enum hl_area_id wanted[] = {HL_AREA_MODULES, HL_AREA_STRINGS, HL_AREA_SITES,
						 HL_AREA_NAMES,	  HL_AREA_THREADS, HL_AREA_NODES,
						 HL_AREA_CELLS};
	/* What attach brings has a page of it mapped once more, read-only. */
	const struct hl_map *map =
		hl_owners_find_file(hl_owner_names_maps(names), REGION_FILE, HL_MAP_WRITE);
	struct hl_open_region region = {.pid = pid, .base = MAP_FAILED};

	if (!map)
		return -ENODATA;
	region.address = map->start;
	int r = hl_owners_read_memory(pid, map->start, &region.layout, sizeof(region.layout));
	if (r < 0)
		return r;
	/* A collector maps the regions of others. */
	if (!layout_is_sane(&region.layout) ||
	    (region.layout.pid && region.layout.pid != hl_process_inner_pid(pid)))
		return -ENODATA;
	region.bytes = region.layout.region_bytes;
	/* Most of a region is never used: what is not written here does not count for RLIMIT_DATA. */
	region.base = mmap(NULL, region.bytes, PROT_READ,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region.base == MAP_FAILED)
		return -errno;
	r = permit(&region, 0, sizeof(region.layout));
	if (r == 0)
		r = hl_open_region_refresh(&region);
	/* Of an area, the part that is backed by memory. */
	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(wanted); i++) {
		const struct hl_area *area = &region.layout.areas[wanted[i]];
		uint64_t at = area->offset;
		uint64_t left = area->committed < area->capacity ? area->committed : area->capacity;
		if (r == 0 && left)
			r = permit(&region, at, left);
		for (uint64_t bytes; r == 0 && left; at += bytes, left -= bytes) {
			bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
			r = hl_owners_read_memory(pid, region.address + at,
						  (char *)region.base + at, bytes);
		}
	}
	*ret_region = region;
	ret_region->view = (struct hl_region_view){
		.base = region.base, .bytes = region.bytes, .layout = &ret_region->layout};
	if (r == 0)
		r = hl_region_sites_read(&ret_region->view, &ret_region->scripts);
	if (r < 0)
		hl_open_region_release(ret_region);
	return r;
}

void hl_open_region_release(struct hl_open_region *region)
{
	hl_recording_process_release(&region->scripts);
	munmap(region->base, region->bytes);
}

/* ---- names of nodes ---- */

/* Names ${frame} of ${module}; NULL: it lies in none. The program itself has no path in the region.
 */
static int name_in(struct hl_owner_names *names, const struct hl_recording_module *module,
		   uint64_t frame, uint32_t outward, struct hl_owner_name *ret_name)
{
	uint64_t pc = frame & HL_FRAME_PC_MASK;
	bool is_pseudo = frame >> HL_MODULE_SHIFT == HL_MODULE_SCRIPT;

	if (!module) {
		*ret_name = (struct hl_owner_name){
			.file = "[no file]",
			.function = is_pseudo && pc == HL_PSEUDO_MMAP  ? "[mmap]"
				    : is_pseudo && pc == HL_PSEUDO_BRK ? "[brk]"
								       : "[unknown]",
		};
		return 0;
	}
	const struct hl_map *map = hl_maps_find(hl_owner_names_maps(names), module->start);
	const char *path = module->path[0] ? module->path : map ? map->path : "";
	return hl_owner_names_find_in_file(names, path, module, pc - module->load_bias, outward,
					   ret_name);
}

/* ---- stacks ---- */

/* Where stack nodes and modules are. */
struct node_source {
	const struct hl_region_view *view;
	const struct hl_recording_process *scripts; /* whose sites the frames name */
	/* The frames of one stack, outermost first, and the numbers of those that views show. */
	uint64_t *keys;
	struct hl_stack_frame *frames;
	uint32_t *shown;
	size_t key_capacity, frame_capacity, shown_capacity;
};

static void release_source(struct node_source *source)
{
	free(source->keys);
	free(source->frames);
	free(source->shown);
}

static const struct hl_recording_site *find_site(const struct node_source *source, uint64_t frame)
{
	const struct hl_recording_process *scripts = source->scripts;
	uint32_t site;

	return hl_frame_key_is_site(frame, &site) && site && site <= scripts->site_count
		       ? &scripts->sites[site - 1]
		       : NULL;
}

/* What the frame is to scripts, as profile_load.c has it. */
static struct hl_stack_frame classify(const struct node_source *source, uint64_t frame)
{
	const struct hl_recording_process *scripts = source->scripts;
	const struct hl_recording_site *site = find_site(source, frame);
	struct hl_stack_frame classified = {.part = HL_PART_NATIVE};

	if (site) {
		classified.runtime = site->provider;
		classified.part = hl_frame_part_of_site(scripts, site, frame & HL_SITE_ENTRY);
		return classified;
	}
	uint64_t module = frame >> HL_MODULE_SHIFT;
	for (uint32_t i = 0; module != HL_MODULE_SCRIPT && i < scripts->provider_count; i++) {
		enum hl_frame_part part =
			hl_frame_part_of_code(&scripts->providers[i], frame & HL_FRAME_PC_MASK);
		if (part != HL_PART_NATIVE)
			classified = (struct hl_stack_frame){.runtime = i, .part = part};
	}
	return classified;
}

/* Reads the frames of ${node} that views show. A node for a size class is not a frame, nor is a label. */
static int read_stack(struct node_source *source, uint32_t node, size_t *ret_shown)
{
	uint32_t node_count = hl_region_read_node_count(source->view);
	uint32_t size_class;
	struct hl_frames_outward at = {.node = node};
	size_t count = 0;
	bool unmatched;

	/* What is read while it is written may contradict itself: no stack has more frames than
	 * there are nodes. */
	for (uint32_t left = node_count; at.node && at.node <= node_count && left; left--) {
		struct hl_recording_node found = hl_region_read_node(source->view, at.node);
		if (hl_frames_step(&at, found.frame, found.parent) &&
		    !hl_frame_key_is_size(found.frame, &size_class) &&
		    !hl_frame_part_is_label((uint8_t)classify(source, found.frame).part) &&
		    HL_ARRAY_APPEND(source->keys, count, source->key_capacity, found.frame) < 0)
			return -ENOMEM;
	}
	if (HL_ARRAY_RESERVE(source->frames, source->frame_capacity, count + 1) < 0 ||
	    HL_ARRAY_RESERVE(source->shown, source->shown_capacity, count + 1) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		size_t key = count - 1 - i;
		source->frames[i] = classify(source, source->keys[key]);
		source->frames[i].id = (uint32_t)key;
	}
	const struct hl_script_stack stack = hl_script_stack(source->frames, count);
	*ret_shown = hl_script_stack_mix(&stack, source->shown, &unmatched);
	return 0;
}

static int name_frame(const struct node_source *source, struct hl_owner_names *names,
		      uint64_t frame, uint32_t outward, struct hl_owner_name *ret_name)
{
	const struct hl_recording_process *scripts = source->scripts;
	const struct hl_recording_site *site = find_site(source, frame);
	struct hl_recording_module module;
	uint64_t id = frame >> HL_MODULE_SHIFT;
	uint32_t count = hl_region_read_module_count(source->view);

	if (site) {
		*ret_name = (struct hl_owner_name){
			.file = scripts->providers[site->provider].name,
			.function = scripts->site_names[site->function],
			.source = scripts->site_names[site->source],
		};
		return 0;
	}
	if (id == HL_MODULE_NONE || id > count)
		return name_in(names, NULL, frame, 0, ret_name);
	int r = hl_region_read_module(source->view, (uint32_t)id - 1, &module);
	if (r < 0)
		return r;
	r = name_in(names, &module, frame, outward, ret_name);
	free(module.path);
	return r;
}

/* Who called the allocator, or the plumbing that did. */
static int name_node(struct node_source *source, struct hl_owner_names *names, uint32_t node,
		     struct hl_owner_name *ret_name)
{
	size_t left;
	int r = read_stack(source, node, &left);

	if (r == 0)
		r = name_in(names, NULL, 0, 0, ret_name);
	for (bool goes_on = true; r == 0 && goes_on && left-- > 0;) {
		r = name_frame(source, names, source->keys[source->shown[left]], 0, ret_name);
		goes_on = ret_name->is_plumbing;
	}
	return r;
}

int hl_owner_recorder_each_frame(const struct hl_open_region *region, struct hl_owner_names *names,
				 uint32_t node,
				 int (*visit)(void *context, const struct hl_owner_name *name),
				 void *context)
{
	HL_CLEANUP(release_source)
	struct node_source source = {.view = &region->view, .scripts = &region->scripts};
	size_t left;
	int r = read_stack(&source, node, &left);

	while (r == 0 && left-- > 0) {
		struct hl_owner_name name = {.outer = 1};
		for (uint32_t outward = 0; r == 0 && name.outer; outward++) {
			r = name_frame(&source, names, source.keys[source.shown[left]], outward,
				       &name);
			if (r == 0)
				r = visit(context, &name);
		}
	}
	return r;
}

static int name_all(const struct hl_open_region *region, struct hl_owner_names *names,
		    const struct hl_owner_counts *counts, struct hl_owners *owners)
{
	HL_CLEANUP(release_source)
	struct node_source source = {.view = &region->view, .scripts = &region->scripts};
	struct hl_owner_rows rows = {.allocations = &owners->allocations};
	int r = 0;

	for (size_t i = 0; r == 0 && i < counts->count; i++) {
		struct hl_owner_name name;
		r = name_node(&source, names, (uint32_t)counts->counts[i].key, &name);
		if (r == 0)
			r = hl_owner_rows_add(&rows, name.file, name.function, &counts->counts[i]);
	}
	hl_owner_rows_release(&rows);
	return r;
}

/* ---- blocks ---- */

/* A block of the heap that the recorder does not know. */
struct unknown_block {
	uint64_t address, bytes;
	bool is_cut; /* pieces of a pool lie in it */
};

struct recorder_walk {
	struct hl_block_reader *blocks;
	struct hl_owner_counts counts; /* by node */
	struct unknown_block *unknown;
	size_t unknown_count, unknown_capacity;
	struct hl_extents walked;     /* the heap, where other allocators or pools are beside it */
	struct hl_block_sizes *sizes; /* of their blocks */
	bool has_means;
};

static int take_walked(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word)
{
	struct recorder_walk *walk = context;
	struct hl_block block;

	(void)last_word;
	if (hl_block_reader_find(walk->blocks, address, usable_bytes, &block))
		return hl_owner_counts_add(&walk->counts, block.node, block.requested, 1);
	const struct unknown_block unknown = {.address = address, .bytes = usable_bytes};
	return HL_ARRAY_APPEND(walk->unknown, walk->unknown_count, walk->unknown_capacity, unknown);
}

static int take_hashed(void *context, const struct hl_listed_block *block)
{
	struct recorder_walk *walk = context;

	return hl_owner_counts_add(&walk->counts, block->node, block->requested, 1);
}

/* Whether ${address} lies in a block that is not known, which is cut up then: what pools get from malloc() is not recorded. */
static bool is_in_unknown(struct recorder_walk *walk, uint64_t address)
{
	struct unknown_block *unknown = walk->unknown;
	size_t next = HL_LOWER_BOUND(i, walk->unknown_count, unknown[i].address <= address);

	if (!next || address - unknown[next - 1].address >= unknown[next - 1].bytes)
		return false;
	unknown[next - 1].is_cut = true;
	return true;
}

static int take_unwalked(void *context, const struct hl_listed_block *block)
{
	struct recorder_walk *walk = context;

	if (hl_extents_hold(&walk->walked, block->address) &&
	    !(block->is_ruled && is_in_unknown(walk, block->address)))
		return 0;
	struct hl_block_size size = hl_block_sizes_next(walk->sizes, block);
	walk->has_means |= !size.is_exact;
	return hl_owner_counts_add(&walk->counts, block->node, size.requested, 1);
}

/* Adds the blocks of allocators beside the one that was walked, and pieces of pools. */
static int add_unwalked(const struct hl_open_region *region, const struct hl_heap *heap,
			struct recorder_walk *walk, struct hl_owners *owners)
{
	int r = hl_extents_of_carriers(&heap->carriers, heap->page_bytes, &walk->walked);

	if (walk->unknown_count)
		qsort(walk->unknown, walk->unknown_count, sizeof(*walk->unknown),
		      hl_addresses_compare);
	if (r == 0)
		r = hl_block_sizes_new(region, walk->blocks, &walk->sizes);
	if (r == 0)
		r = hl_block_reader_each(walk->blocks, take_unwalked, walk);
	owners->sizes_are_means = walk->has_means;
	return r;
}

static int add_unknown(const struct recorder_walk *walk, struct hl_owners *owners)
{
	uint64_t cut_blocks = 0, cut_bytes = 0;

	for (size_t i = 0; i < walk->unknown_count; i++) {
		const struct unknown_block *block = &walk->unknown[i];
		cut_blocks += block->is_cut;
		cut_bytes += block->is_cut ? block->bytes : 0;
		owners->unknown_blocks += !block->is_cut;
		owners->unknown_bytes += block->is_cut ? 0 : block->bytes;
	}
	return !cut_blocks ? 0
			   : hl_owners_note(
				     owners,
				     "%llu block%s of malloc, %llu KiB, are cut up by pools: their "
				     "pieces count, and not the blocks",
				     (unsigned long long)cut_blocks, cut_blocks == 1 ? "" : "s",
				     (unsigned long long)(cut_bytes + 1023) / 1024);
}

/* ---- counters, where blocks cannot be walked ---- */

/* Each node's blocks in use and their sum are known; each block counts with their mean size. While
 * the process runs a node can have freed more than it allocated: its cells are not read at one instant. */
static int count_nodes(const struct hl_open_region *region, struct hl_owner_names *names,
		       struct hl_owners *owners)
{
	HL_CLEANUP(release_source)
	struct node_source source = {.view = &region->view, .scripts = &region->scripts};
	struct hl_owner_rows rows = {.allocations = &owners->allocations};
	HL_FREED struct hl_block_sum *sums = NULL;
	uint64_t damaged = 0;

	int r = hl_block_sums_read(&region->view, &sums, &damaged);
	uint32_t node_count = hl_region_read_node_count(&region->view);
	for (uint32_t node = 1; r == 0 && node <= node_count; node++) {
		struct hl_owner_count count = {.blocks = (uint64_t)sums[node].blocks,
					       .bytes = (uint64_t)sums[node].bytes};
		struct hl_owner_name name;
		if (sums[node].blocks <= 0 || sums[node].bytes < 0)
			continue;
		uint32_t slot = hl_log2_slot(&rows.allocations->shape, count.bytes / count.blocks);
		count.histogram.counts[slot] = count.blocks;
		r = name_node(&source, names, node, &name);
		if (r == 0)
			r = hl_owner_rows_add(&rows, name.file, name.function, &count);
	}
	owners->sizes_are_means = true;
	hl_owner_rows_release(&rows);
	if (r == 0 && damaged)
		r = hl_owners_note(owners,
				   "%llu of the recorder's counters are damaged and left out",
				   (unsigned long long)damaged);
	return r;
}

/* ---- the whole ---- */

static void free_heap(struct hl_heap **heap)
{
	hl_heap_free(*heap);
}

static int read_blocks(pid_t pid, const struct hl_owners_settings *settings,
		       const struct hl_open_region *region, struct recorder_walk *walk,
		       struct hl_owner_names *names, struct hl_owners *owners, struct hl_error *err)
{
	const struct hl_allocator_traits *other =
		hl_other_allocator_library(hl_owner_names_maps(names)).allocator;
	HL_CLEANUP(free_heap) struct hl_heap *heap = NULL;
	struct hl_error why = {0};
	int r;

	if (!hl_block_reader_has_array(walk->blocks)) {
		r = hl_block_reader_each(walk->blocks, take_hashed, walk);
		return r < 0 ? r : name_all(region, names, &walk->counts, owners);
	}
	/* The array knows slack, not sizes: the allocator's own blocks are walked. */
	r = hl_owners_walk(pid, settings, take_walked, walk, owners, &heap, &why);
	if (r == -ENOTSUP)
		return count_nodes(region, names, owners);
	if (r < 0)
		return hl_error_set(err, r, "%s", why.text);
	if (((other && other != heap->walked) || hl_open_region_has_pieces(region)) &&
	    (r = add_unwalked(region, heap, walk, owners)) < 0)
		return r;
	r = add_unknown(walk, owners);
	return r < 0 ? r : name_all(region, names, &walk->counts, owners);
}

static int read_region(pid_t pid, const struct hl_owners_settings *settings,
		       const struct hl_open_region *region, struct hl_owner_names *names,
		       struct hl_owners *owners, struct hl_error *err)
{
	struct recorder_walk walk = {.counts.shape = owners->allocations.shape};

	const struct hl_region_header *header = hl_open_region_header(region);
	if (hl_region_is_sampled(header))
		return hl_error_set(err, -ENOTSUP,
				    "process %d is recorded by samples, which do not show who owns "
				    "each block; see 'heapline top' of the recording",
				    pid);
	int r = hl_block_reader_open(pid, hl_owner_names_maps(names), header, &walk.blocks);
	if (r == 0)
		r = read_blocks(pid, settings, region, &walk, names, owners, err);
	hl_block_reader_free(walk.blocks);
	hl_block_sizes_free(walk.sizes);
	free(walk.unknown);
	hl_extents_release(&walk.walked);
	hl_owner_counts_release(&walk.counts);
	return r;
}

int hl_owner_recorder_read(pid_t pid, const struct hl_owners_settings *settings,
			   struct hl_owner_names *names, struct hl_owners *owners,
			   struct hl_error *err)
{
	struct hl_open_region region;

	int r = hl_open_region(pid, names, &region);
	if (r < 0)
		return r;
	r = read_region(pid, settings, &region, names, owners, err);
	hl_open_region_release(&region);
	return r;
}
