/* SPDX-License-Identifier: BSD-2-Clause */
/* Owners of single blocks, and labels of these; see owners.h. */
#include "heap/owners/owners.h"

#include "base/frame_key.h"
#include "heap/owners/owner_table.h"
#include "recording/recording.h"
#include "tags/tag_word.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_DEPTH_MAX \
	1024u /* more frames than scripts have: nodes of a damaged region may form a ring */

struct hl_block_owners {
	pid_t pid;
	enum hl_owners_source source;
	struct hl_owner_names *names;
	struct hl_open_region region; /* HL_OWNERS_RECORDER */
	struct hl_block_reader *blocks;
	struct hl_owner_tag_names *tags; /* HL_OWNERS_TAGS */
};

static int open_recorder(struct hl_block_owners *owners, struct hl_error *err)
{
	int r = hl_open_region(owners->pid, owners->names, &owners->region);

	if (r < 0)
		return r;
	owners->source = HL_OWNERS_RECORDER;
	const struct hl_region_header *header = hl_open_region_header(&owners->region);
	if (hl_region_is_sampled(header))
		return hl_error_set(err, -ENOTSUP,
				    "process %d is recorded by samples, which do not show who owns "
				    "each block",
				    (int)owners->pid);
	return hl_block_reader_open(owners->pid, hl_owner_names_maps(owners->names), header,
				    &owners->blocks);
}

int hl_block_owners_new(pid_t pid, struct hl_block_owners **ret_owners, struct hl_error *err)
{
	struct hl_block_owners *owners = calloc(1, sizeof(*owners));

	if (!owners)
		return hl_error_set(err, -ENOMEM, "out of memory");
	owners->pid = pid;
	owners->source = HL_OWNERS_NONE;
	int r = hl_owner_names_new(pid, false, &owners->names, err);
	if (r == 0)
		r = open_recorder(owners, err);
	if (r == -ENODATA) {
		r = hl_owner_tag_names_new(pid, owners->names, &owners->tags);
		owners->source = HL_OWNERS_TAGS;
	}
	if (r < 0) {
		hl_block_owners_free(owners);
		return r == -ENODATA ? r
				     : hl_error_set(err, r, "cannot tell who allocated: %s",
						    strerror(-r));
	}
	*ret_owners = owners;
	return 0;
}

enum hl_owners_source hl_block_owners_source(const struct hl_block_owners *owners)
{
	return owners->source;
}

const struct hl_open_region *hl_block_owners_region(const struct hl_block_owners *owners)
{
	return owners->source == HL_OWNERS_RECORDER ? &owners->region : NULL;
}

bool hl_block_owners_know_all(const struct hl_block_owners *owners)
{
	return owners->source == HL_OWNERS_RECORDER &&
	       atomic_load(&hl_open_region_header(&owners->region)->flags) & HL_REGION_FROM_START;
}

uint64_t hl_block_owners_find(struct hl_block_owners *owners, uint64_t address,
			      uint64_t usable_bytes)
{
	uint64_t end = address + usable_bytes, word;
	struct hl_block block;

	if (owners->source == HL_OWNERS_RECORDER)
		return hl_block_reader_find(owners->blocks, address, usable_bytes, &block)
			       ? block.node
			       : 0;
	if (usable_bytes < HL_TAG_WORD_BYTES ||
	    hl_owners_read_memory(owners->pid, end - HL_TAG_WORD_BYTES, &word, sizeof(word)) < 0 ||
	    !hl_tag_word_is_valid(word, end))
		return 0;
	return word >> 16;
}

bool hl_block_owners_have_pieces(const struct hl_block_owners *owners)
{
	return owners->source == HL_OWNERS_RECORDER && hl_open_region_has_pieces(&owners->region);
}

bool hl_block_owners_have_piece(const struct hl_block_owners *owners, uint64_t address)
{
	return hl_block_owners_have_pieces(owners) &&
	       hl_block_reader_has_ruled(owners->blocks, address);
}

int hl_block_owners_note_pieces(const struct hl_block_owners *owners, struct hl_heap *heap)
{
	if (!hl_block_owners_have_pieces(owners))
		return 0;
	struct hl_block_sum sum = hl_block_reader_sum_ruled(owners->blocks);
	return !sum.blocks ? 0
			   : hl_heap_note(
				     heap,
				     "these figures are of malloc's blocks: %lld KiB in %lld "
				     "piece%s of "
				     "pools, which lie in them or in other memory, are not told "
				     "apart; 'heapline allocations -p %d' shows who allocated them",
				     (long long)(sum.bytes + 1023) / 1024, (long long)sum.blocks,
				     sum.blocks == 1 ? "" : "s", (int)owners->pid);
}

/* ---- all of them ---- */

struct each {
	struct hl_block_sizes *sizes;
	hl_owned_block_visit *visit;
	void *context;
};

static int give(void *context, const struct hl_listed_block *block)
{
	const struct each *each = context;
	struct hl_block_size size = hl_block_sizes_next(each->sizes, block);
	const struct hl_owned_block owned = {.address = block->address,
					     .bytes = size.bytes,
					     .requested = size.requested,
					     .most_bytes = size.most_bytes,
					     .number = block->node,
					     .is_exact = size.is_exact,
					     .is_ruled = block->is_ruled};

	return each->visit(each->context, &owned);
}

int hl_block_owners_each(struct hl_block_owners *owners, hl_owned_block_visit *visit, void *context)
{
	struct hl_block_sizes *sizes = NULL;
	int r = owners->source == HL_OWNERS_RECORDER
			? hl_block_sizes_new(&owners->region, owners->blocks, &sizes)
			: -ENODATA;

	if (r < 0)
		return r;
	struct each each = {sizes, visit, context};
	r = hl_block_reader_each(owners->blocks, give, &each);
	hl_block_sizes_free(sizes);
	return r;
}

int hl_block_owners_sums(const struct hl_block_owners *owners, struct hl_block_sum **ret_sums)
{
	return owners->source == HL_OWNERS_RECORDER
		       ? hl_block_sums_read(&owners->region.view, ret_sums, NULL)
		       : -ENODATA;
}

uint64_t hl_block_owners_lost_events(const struct hl_block_owners *owners)
{
	struct hl_region_figures figures = {0};

	if (owners->source == HL_OWNERS_RECORDER)
		hl_region_figures_read(&owners->region.view, &figures);
	return figures.lost_events;
}

void hl_block_owners_labels(const struct hl_block_owners *owners, uint64_t number,
			    struct hl_block_labels *ret_labels)
{
	const struct hl_recording_process *scripts = &owners->region.scripts;
	struct hl_frames_outward at = {.node = (uint32_t)number};
	uint32_t size_class, site;

	*ret_labels = (struct hl_block_labels){0};
	if (owners->source != HL_OWNERS_RECORDER)
		return;
	/* Labels are among the frames of scripts, which lie below all native ones. */
	for (unsigned i = 0; i < LABEL_DEPTH_MAX && at.node; i++) {
		struct hl_recording_node node = hl_region_read_node(&owners->region.view, at.node);
		bool is_site = hl_frame_key_is_site(node.frame, &site);
		if (!hl_frames_step(&at, node.frame, node.parent))
			continue;
		if (!is_site && !hl_frame_key_is_size(node.frame, &size_class))
			break;
		if (!is_site || !site || site > scripts->site_count)
			continue;
		const struct hl_recording_site *label = &scripts->sites[site - 1];
		enum hl_frame_part part =
			hl_frame_part_of_provider(&scripts->providers[label->provider]);
		if (part == HL_PART_TYPE)
			ret_labels->type = scripts->site_names[label->function];
		if (part == HL_PART_SERVICE) {
			ret_labels->service = scripts->site_names[label->function];
			ret_labels->handle = label->line;
		}
	}
}

uint64_t hl_block_owners_count(const struct hl_block_owners *owners)
{
	return owners->source == HL_OWNERS_RECORDER
		       ? hl_region_read_node_count(&owners->region.view) + UINT64_C(1)
		       : 0;
}

bool hl_block_owners_have_runtime(const struct hl_block_owners *owners, const char *name)
{
	const struct hl_recording_process *scripts = &owners->region.scripts;

	for (uint32_t i = 0; i < scripts->provider_count; i++)
		if (!strcmp(scripts->providers[i].name, name))
			return true;
	return false;
}

/* Frames of modules that were not known keep the lower bits alone. */
static bool is_same_frame(uint64_t one, uint64_t other)
{
	return !((one ^ other) & HL_FRAME_PC_MASK);
}

/* The same, where ids[n] is the number of node n < ${count} among the copied ones. */
static bool is_copied_frame(uint64_t copied, uint64_t now, const uint32_t *ids, uint64_t count)
{
	uint32_t path, copied_path;

	if (hl_frame_key_is_path(now, &path) && hl_frame_key_is_path(copied, &copied_path))
		return path >= count || ids[path] == copied_path;
	return is_same_frame(copied, now);
}

/* Whether ${nodes} has all stacks, by their numbers. One that is being made has no frame yet. */
static bool has_all(const struct hl_block_owners *owners, const struct hl_recording_node *nodes,
		    uint32_t count, uint32_t *ret_ids)
{
	uint64_t numbers = hl_block_owners_count(owners);
	bool is_same = numbers > 1 && numbers - 1 <= count;

	for (uint64_t number = 0; number < numbers && is_same; number++) {
		struct hl_recording_node node =
			hl_region_read_node(&owners->region.view, (uint32_t)number);
		is_same = !number || !node.frame ||
			  is_same_frame(nodes[number - 1].frame, node.frame);
		ret_ids[number] = (uint32_t)number;
	}
	return is_same;
}

bool hl_block_owners_match(const struct hl_block_owners *owners,
			   const struct hl_recording_node *nodes, uint32_t count, uint32_t *ret_ids)
{
	uint64_t numbers = hl_block_owners_count(owners);
	uint32_t at = 0;

	if (has_all(owners, nodes, count, ret_ids))
		return true;
	for (uint64_t number = 0; number < numbers; number++) {
		struct hl_recording_node node =
			hl_region_read_node(&owners->region.view, (uint32_t)number);
		bool is_same = number && at < count &&
			       is_copied_frame(nodes[at].frame, node.frame, ret_ids, number) &&
			       (node.parent >= number || nodes[at].parent == ret_ids[node.parent]);
		ret_ids[number] = is_same ? ++at : 0;
	}
	return at == count;
}

/* ---- stacks ---- */

struct frames {
	int (*visit)(void *context, const struct hl_block_frame *frame);
	void *context;
	bool has_begun; /* what allocated was seen, and not only plumbing */
};

static int put_frame(void *context, const struct hl_owner_name *name)
{
	struct frames *frames = context;

	if (!frames->has_begun && name->is_plumbing)
		return 0;
	frames->has_begun = true;
	const struct hl_block_frame frame = {name->function ? name->function : "", name->file,
					     name->source ? name->source : ""};
	return frames->visit(frames->context, &frame);
}

int hl_block_owners_each_frame(struct hl_block_owners *owners, uint64_t number,
			       int (*visit)(void *context, const struct hl_block_frame *frame),
			       void *context)
{
	struct frames frames = {.visit = visit, .context = context};
	struct hl_owner_name name = {.file = "[unknown]"};
	int r;

	if (owners->source == HL_OWNERS_RECORDER)
		return hl_owner_recorder_each_frame(&owners->region, owners->names,
						    (uint32_t)number, put_frame, &frames);
	r = hl_owner_tag_names_find(owners->tags, owners->names, number << 16, &name);
	frames.has_begun = true;
	return r < 0 ? r : put_frame(&frames, &name);
}

static int copy_module(const struct hl_block_owners *owners, uint32_t index,
		       struct hl_recording_module *ret_module)
{
	struct hl_recording_module module;

	int r = hl_region_read_module(&owners->region.view, index, &module);
	if (r < 0)
		return r;
	/* The program itself has no path in the region. */
	const struct hl_map *map = hl_maps_find(hl_owner_names_maps(owners->names), module.start);
	if (!module.path[0] && map) {
		free(module.path);
		module.path = strdup(map->path);
		if (!module.path)
			return -ENOMEM;
	}
	*ret_module = module;
	return 0;
}

int hl_block_owners_copy_stacks(const struct hl_block_owners *owners,
				struct hl_recording_process *process)
{
	const struct hl_region_view *view = &owners->region.view;
	int r = 0;

	if (owners->source != HL_OWNERS_RECORDER)
		return -ENODATA;
	uint32_t node_count = hl_region_read_node_count(view);
	uint32_t module_count = hl_region_read_module_count(view);
	process->nodes = calloc((size_t)node_count + 1, sizeof(*process->nodes));
	process->modules = calloc((size_t)module_count + 1, sizeof(*process->modules));
	uint32_t *marks = calloc((size_t)node_count + 1, sizeof(*marks));
	if (!process->nodes || !process->modules || !marks)
		r = -ENOMEM;
	if (r == 0)
		r = hl_region_sites_read(view, process);
	for (; r == 0 && process->module_count < module_count; process->module_count++)
		if ((r = copy_module(owners, process->module_count,
				     &process->modules[process->module_count])) < 0)
			break;
	for (uint32_t i = 0; r == 0 && i < node_count; i++) {
		process->nodes[i] = hl_region_read_node(view, i + 1);
		if (!hl_frame_key_is_valid(process->nodes[i].frame, module_count))
			process->nodes[i].frame = 0;
	}
	if (r == 0) {
		process->node_count = node_count;
		hl_recording_repair_tree(process->nodes, node_count, marks);
	}
	free(marks);
	return r;
}

void hl_block_owners_free(struct hl_block_owners *owners)
{
	if (!owners)
		return;
	if (owners->source == HL_OWNERS_RECORDER)
		hl_open_region_release(&owners->region);
	hl_block_reader_free(owners->blocks);
	hl_owner_tag_names_free(owners->tags);
	hl_owner_names_free(owners->names);
	free(owners);
}

/* ---- labels ---- */

int hl_inuse_labels_open(pid_t pid, struct hl_block_owners **ret_owners, struct hl_error *err)
{
	struct hl_block_owners *owners = NULL;

	int r = hl_block_owners_new(pid, &owners, err);
	if (r == 0 && hl_block_owners_source(owners) == HL_OWNERS_RECORDER) {
		*ret_owners = owners;
		return 0;
	}
	hl_block_owners_free(owners);
	if (r == 0 || r == -ENODATA)
		return hl_error_set(err, -ENODATA, "no recorder in process %d knows its stacks",
				    (int)pid);
	return r;
}

struct hl_inuse_labels *hl_inuse_labels_new(const char *provider, struct hl_block_owners *owners)
{
	struct hl_inuse_labels *labels = calloc(1, sizeof(*labels));

	if (labels) {
		labels->provider = provider;
		labels->owners = owners;
		labels->names = &labels->own_names;
	}
	return labels;
}

static int largest_label_first(const void *left, const void *right)
{
	const struct hl_owner_count *a = left, *b = right;

	return ((uint32_t)a->key < (uint32_t)b->key) - ((uint32_t)a->key > (uint32_t)b->key);
}

int hl_inuse_labels_add_sums(struct hl_inuse_labels *labels, struct hl_owner_counts *sums,
			     void (*name)(char *text, size_t size, uint32_t label,
					  const void *context),
			     const void *context)
{
	char text[64];
	int r = 0;

	labels->rows = calloc(sums->count + 1, sizeof(*labels->rows));
	if (!labels->rows)
		return -ENOMEM;
	if (sums->count)
		qsort(sums->counts, sums->count, sizeof(*sums->counts), largest_label_first);
	for (size_t i = 0; i < sums->count && r == 0; i++) {
		const struct hl_owner_count *sum = &sums->counts[i];
		struct hl_inuse_label *row = &labels->rows[labels->count++];
		*row = (struct hl_inuse_label){.number = (uint32_t)(sum->key >> 32),
					       .blocks = sum->blocks,
					       .bytes = sum->bytes};
		name(text, sizeof(text), (uint32_t)sum->key, context);
		r = hl_strings_intern(&labels->own_names, text, &row->name);
	}
	return r;
}

void hl_inuse_labels_free(struct hl_inuse_labels *labels)
{
	if (!labels)
		return;
	if (labels->kept)
		labels->free_kept(labels->kept);
	hl_strings_release(&labels->own_names);
	free(labels->rows);
	free(labels);
}
