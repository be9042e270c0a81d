/* SPDX-License-Identifier: BSD-2-Clause */
/* Fills the walker's maps, takes in its records, and keeps stacks as a tree; see walker.h. */
#include "bpf/walker.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the tree of stacks ---- */

static uint32_t hash_of(uint64_t stack)
{
	return hl_hash_pair(stack, 0);
}

/* The node of ${frame} below ${parent} (0: none); made if need be. 0, or -ENOMEM. */
static int stack_tree_node(struct hl_stack_tree *tree, uint32_t parent, uint64_t frame,
			   uint32_t *ret_node)
{
	uint32_t hash = hl_hash_pair(frame, parent), at = hash, id;

	while ((id = hl_index_next(&tree->node_index, hash, &at))) {
		const struct hl_recording_node *node = &tree->nodes[id - 1];
		if (node->frame == frame && node->parent == parent) {
			*ret_node = id;
			return 0;
		}
	}
	id = (uint32_t)tree->count + 1;
	int r = HL_ARRAY_RESERVE(tree->nodes, tree->capacity, id);
	if (r == 0)
		r = hl_index_add(&tree->node_index, hash, id);
	if (r < 0)
		return r;
	tree->nodes[tree->count++] = (struct hl_recording_node){.frame = frame, .parent = parent};
	*ret_node = id;
	return 0;
}

int hl_stack_tree_add(struct hl_stack_tree *tree, uint64_t stack, const uint64_t *keys,
		      size_t count)
{
	size_t id = tree->leaf_count + 1;
	uint32_t node = 0;
	int r = 0;

	if (hl_stack_tree_find(tree, stack))
		return 0;
	for (size_t i = count; i-- > 0 && r == 0;)
		r = stack_tree_node(tree, node, keys[i], &node);
	if (r == 0)
		r = HL_ARRAY_RESERVE(tree->leaves, tree->leaf_capacity, id);
	if (r == 0)
		r = hl_index_add(&tree->leaf_index, hash_of(stack), (uint32_t)id);
	if (r == 0)
		tree->leaves[tree->leaf_count++] = (struct hl_stack_leaf){stack, node};
	return r;
}

uint32_t hl_stack_tree_find(const struct hl_stack_tree *tree, uint64_t stack)
{
	uint32_t hash = hash_of(stack), at = hash, id;

	while ((id = hl_index_next(&tree->leaf_index, hash, &at)))
		if (tree->leaves[id - 1].stack == stack)
			return tree->leaves[id - 1].node;
	return 0;
}

void hl_stack_tree_release(struct hl_stack_tree *tree)
{
	free(tree->nodes);
	free(tree->leaves);
	hl_index_release(&tree->node_index);
	hl_index_release(&tree->leaf_index);
	*tree = (struct hl_stack_tree){0};
}

/* ---- the walker ---- */

/* Room for code that the target maps later: a library of the size of LLVM's, 16 MiB of tables. */
#define SPARE_PAGES	    (UINT32_C(1) << 19)
#define SPARE_ROWS	    (UINT32_C(3) << 19)
#define ROWS_MAX	    (UINT32_C(1) << 28)
#define REFRESH_INTERVAL_NS HL_NS_PER_SECOND
/* Where code runs that stays unknown, reading the mappings again and again takes a tenth of a
 * processor at most. */
#define REFRESH_PAUSES 10u
/* How often one refresh reads the mappings of a target that keeps on changing them. */
#define REFRESH_ROUNDS 3

/* PROC_PID_INIT_INO of the kernel. */
#define FIRST_PID_NAMESPACE UINT32_C(0xeffffffc)

/* A map's values, mapped into this process. */
struct values {
	void *start;
	size_t bytes;
	uint32_t capacity;
};

enum file_state { FILE_NEW, FILE_UPLOADED, FILE_NO_ROOM };

/* Where the kernel has a file of the target; by the file's index. */
struct upload {
	enum file_state state;
	uint32_t first_page;
};

struct hl_walker {
	struct hl_target *target;
	struct bpf_object *object;
	hl_record_fn *on_record;
	void *context;
	struct ring_buffer *ring;
	struct bpf_link *reloads_link; /* NULL: this kernel does not report them */
	uint32_t heard;		       /* reloads that the target's mappings have */
	struct values rows, pages, mappings, view, rule_slots;
	uint32_t rows_used, pages_used;
	struct upload *uploads;
	size_t upload_count, upload_capacity;
	struct hl_stack_tree tree;
	uint64_t stacks_unnamed, mappings_full;
	uint64_t refreshed_ns, refresh_took_ns;
	bool refresh_wanted;
};

static struct bpf_map *map_of(const struct hl_walker *walker, const char *name)
{
	return bpf_object__find_map_by_name(walker->object, name);
}

static int set_capacity(const struct hl_walker *walker, const char *name, uint64_t needed,
			uint32_t spare)
{
	uint64_t capacity = needed + needed / 4 + spare;

	return bpf_map__set_max_entries(map_of(walker, name),
					capacity < ROWS_MAX ? (uint32_t)capacity : ROWS_MAX);
}

static int prepare_maps(const struct hl_walker *walker)
{
	struct hl_walk_settings settings = {.pid = (uint32_t)walker->target->pid};
	uint64_t rows = 0, pages = 0;
	struct stat status;

	/* It stays 0 for the first namespace, in which pids are the kernel's. */
	if (stat("/proc/self/ns/pid", &status) == 0 && status.st_ino != FIRST_PID_NAMESPACE)
		settings.pid_namespace = (uint32_t)status.st_ino;
	for (size_t i = 0; i < walker->target->file_count; i++) {
		rows += walker->target->files[i].table.row_count;
		pages += walker->target->files[i].table.page_count;
	}
	int r = set_capacity(walker, "hl_rows", rows, SPARE_ROWS);
	if (r == 0)
		r = set_capacity(walker, "hl_pages", pages, SPARE_PAGES);
	if (r == 0)
		r = bpf_map__set_initial_value(map_of(walker, ".rodata.walk"), &settings,
					       sizeof(settings));
	return r;
}

int hl_walker_new(struct hl_target *target, struct bpf_object *object, hl_record_fn *on_record,
		  void *context, struct hl_walker **ret_walker, struct hl_error *err)
{
	struct hl_walker *walker = calloc(1, sizeof(*walker));

	if (!walker)
		return hl_error_set(err, -ENOMEM, "cannot walk stacks: out of memory");
	walker->target = target;
	walker->object = object;
	walker->on_record = on_record;
	walker->context = context;
	int r = prepare_maps(walker);
	if (r < 0) {
		free(walker);
		return hl_error_set(err, r, "cannot prepare the BPF program's maps: %s",
				    strerror(-r));
	}
	*ret_walker = walker;
	return 0;
}

/* ---- filling the maps ---- */

static int map_values(const struct hl_walker *walker, const char *name, struct values *ret_values)
{
	const struct bpf_map *map = map_of(walker, name);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (size_t)bpf_map__max_entries(map) * bpf_map__value_size(map);

	bytes = (bytes + page - 1) & ~(page - 1);
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
	if (start == MAP_FAILED)
		return -errno;
	*ret_values = (struct values){start, bytes, bpf_map__max_entries(map)};
	return 0;
}

static void unmap_values(struct values *values)
{
	if (values->start)
		munmap(values->start, values->bytes);
	*values = (struct values){0};
}

/* Rows first: no mapping leads to them yet. */
static void upload_file(struct hl_walker *walker, const struct hl_code_table *table,
			struct upload *upload)
{
	struct hl_code_page *pages = (struct hl_code_page *)walker->pages.start;
	uint64_t *rows = walker->rows.start;

	upload->state = FILE_NO_ROOM;
	if (table->row_count > walker->rows.capacity - walker->rows_used ||
	    table->page_count > walker->pages.capacity - walker->pages_used)
		return;
	if (table->row_count)
		memcpy(&rows[walker->rows_used], table->rows, table->row_count * sizeof(*rows));
	for (uint32_t i = 0; i < table->page_count; i++)
		pages[walker->pages_used + i] = (struct hl_code_page){
			.first_row = table->pages[i].first_row + walker->rows_used,
			.row_count = table->pages[i].row_count,
		};
	upload->state = FILE_UPLOADED;
	upload->first_page = walker->pages_used;
	walker->rows_used += table->row_count;
	walker->pages_used += table->page_count;
}

static struct hl_code_mapping mapping_for_kernel(const struct hl_walker *walker, size_t index)
{
	const struct hl_target_mapping *mapping = &walker->target->mappings[index];
	struct hl_code_mapping kernels = {
		.start = mapping->start,
		.end = mapping->end,
		.module = (uint64_t)mapping->module << HL_MODULE_SHIFT,
	};

	const struct hl_target_file *file = hl_target_mapping_file(walker->target, index);
	if (!file)
		return kernels;
	const struct upload *upload = &walker->uploads[file - walker->target->files];
	if (upload->state == FILE_UPLOADED) {
		kernels.first_page = upload->first_page + mapping->first_page;
		kernels.page_count = mapping->page_count;
	}
	return kernels;
}

/* Writes the list that no walk uses, then lets walks use it; see struct hl_walk_view. */
static void publish_mappings(struct hl_walker *walker)
{
	struct hl_walk_view *view = walker->view.start;
	struct hl_code_mapping *list = walker->mappings.start;
	uint32_t next = view->current + 1;
	size_t count = walker->target->mapping_count;

	walker->mappings_full = count > HL_BPF_MAPPINGS_MAX ? count - HL_BPF_MAPPINGS_MAX : 0;
	count -= walker->mappings_full;
	/* Cached rules have 16 bits of their generation: before those come round, none are left. */
	if (!(uint16_t)next)
		memset(walker->rule_slots.start, 0, walker->rule_slots.bytes);
	view->next = next;
	__sync_synchronize(); /* a fence that the thread sanitizer's builds have, too */
	list += (next & 1) * HL_BPF_MAPPINGS_MAX;
	for (size_t i = 0; i < count; i++)
		list[i] = mapping_for_kernel(walker, i);
	view->count[next & 1] = (uint32_t)count;
	view->heard[next & 1] = walker->heard;
	__atomic_store_n(&view->current, next, __ATOMIC_RELEASE);
}

static uint32_t reloads(const struct hl_walker *walker)
{
	return *(volatile uint32_t *)&((struct hl_walk_view *)walker->view.start)->reloads;
}

static int upload(struct hl_walker *walker, struct hl_error *err)
{
	const struct hl_target *target = walker->target;

	int r = HL_ARRAY_RESERVE(walker->uploads, walker->upload_capacity, target->file_count);
	if (r < 0)
		return hl_error_set(err, r, "cannot fill the BPF program's maps: %s", strerror(-r));
	for (size_t i = walker->upload_count; i < target->file_count; i++)
		upload_file(walker, &target->files[i].table, &walker->uploads[i]);
	walker->upload_count = target->file_count;
	publish_mappings(walker);
	return 0;
}

/* Reads the mappings until they are those of the published list: the kernel does not number a
 * reload of a library that is in no list yet. */
int hl_walker_refresh(struct hl_walker *walker, struct hl_error *err)
{
	struct hl_walk_view *view = walker->view.start;
	uint64_t start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	bool is_changed = true;
	int r = 0;

	for (int round = 0; r == 0 && is_changed && round < REFRESH_ROUNDS; round++) {
		uint64_t before = walker->target->changes;
		uint32_t heard = reloads(walker); /* before the mappings, which may have more */
		r = hl_target_refresh(walker->target, err);
		if (r == 0)
			walker->heard = heard;
		is_changed = walker->target->changes != before;
		if (r == 0 && is_changed)
			r = upload(walker, err);
		else if (r == 0)
			*(volatile uint32_t *)&view->heard[view->current & 1] = walker->heard;
	}
	walker->refresh_wanted = is_changed;
	walker->refreshed_ns = hl_clock_ns(CLOCK_MONOTONIC);
	walker->refresh_took_ns = walker->refreshed_ns - start_ns;
	return r;
}

static bool refresh_is_due(const struct hl_walker *walker)
{
	uint64_t passed_ns = hl_clock_ns(CLOCK_MONOTONIC) - walker->refreshed_ns;

	if (passed_ns >= REFRESH_INTERVAL_NS)
		return true;
	if (reloads(walker) != walker->heard)
		return passed_ns >= walker->refresh_took_ns;
	return walker->refresh_wanted && passed_ns >= REFRESH_PAUSES * walker->refresh_took_ns;
}

/* ---- records ---- */

static void take_stack(struct hl_walker *walker, const struct hl_stack_record *record, size_t bytes)
{
	uint64_t keys[HL_BPF_FRAMES_MAX];

	if (bytes < offsetof(struct hl_stack_record, keys) || record->count > HL_BPF_FRAMES_MAX ||
	    bytes - offsetof(struct hl_stack_record, keys) < record->count * sizeof(keys[0]))
		return;
	/* What lies there now may be other code. */
	bool is_lost = record->flags & HL_STACK_UNKNOWN_CODE && record->reloads != walker->heard;
	for (uint32_t i = 0; i < record->count; i++) {
		uint64_t module = record->keys[i] >> HL_MODULE_SHIFT;
		if (module == HL_MODULE_NONE && !is_lost)
			module = hl_target_module_at(walker->target, record->keys[i]);
		keys[i] = module == HL_MODULE_SCRIPT ? hl_pseudo_frame_key(HL_PSEUDO_RETURN_PROBE)
						     : record->keys[i] | module << HL_MODULE_SHIFT;
	}
	walker->stacks_unnamed += is_lost;
	/* Without memory the stack stays unknown, as a lost one. */
	hl_stack_tree_add(&walker->tree, record->id, keys, record->count);
}

static int take_record(void *context, void *bytes, size_t size)
{
	struct hl_walker *walker = context;
	const struct hl_record_header *header = bytes;

	if (size < sizeof(*header))
		return 0;
	switch (header->kind) {
	case HL_RECORD_STACK:
		take_stack(walker, bytes, size);
		return 0;
	case HL_RECORD_UNKNOWN_CODE:
		walker->refresh_wanted = true;
		/* At once: stacks with that code follow. That it fails, the next one will say. */
		if (refresh_is_due(walker))
			hl_walker_refresh(walker, NULL);
		return 0;
	default:
		return walker->on_record ? walker->on_record(walker->context, header, size) : 0;
	}
}

int hl_walker_start(struct hl_walker *walker, struct hl_error *err)
{
	int r = map_values(walker, "hl_rows", &walker->rows);

	if (r == 0)
		r = map_values(walker, "hl_pages", &walker->pages);
	if (r == 0)
		r = map_values(walker, "hl_mappings", &walker->mappings);
	if (r == 0)
		r = map_values(walker, "hl_view", &walker->view);
	if (r == 0)
		r = map_values(walker, "hl_rule_slots", &walker->rule_slots);
	if (r < 0)
		return hl_error_set(err, r, "cannot read the BPF program's maps: %s", strerror(-r));
	const struct bpf_program *reloaded =
		bpf_object__find_program_by_name(walker->object, "hl_place_given");
	if (bpf_program__autoload(reloaded))
		walker->reloads_link = bpf_program__attach(reloaded);
	r = upload(walker, err);
	if (r == 0)
		r = hl_walker_refresh(walker, err); /* code may have come meanwhile */
	if (r < 0)
		return r;
	walker->ring = ring_buffer__new(bpf_map__fd(map_of(walker, "hl_records")), take_record,
					walker, NULL);
	if (!walker->ring)
		return hl_error_set(err, -errno, "cannot read the BPF program's records: %s",
				    strerror(errno));
	return 0;
}

int hl_walker_poll(struct hl_walker *walker, int timeout_ms, struct hl_error *err)
{
	int r = ring_buffer__poll(walker->ring, timeout_ms);

	if (r >= 0 || r == -EINTR)
		r = ring_buffer__consume(walker->ring);
	if (r < 0)
		return r;
	return refresh_is_due(walker) ? hl_walker_refresh(walker, err) : 0;
}

/* ---- results ---- */

uint32_t hl_walker_node(const struct hl_walker *walker, uint64_t stack)
{
	return hl_stack_tree_find(&walker->tree, stack);
}

const struct hl_recording_node *hl_walker_nodes(const struct hl_walker *walker, uint32_t *ret_count)
{
	*ret_count = (uint32_t)walker->tree.count;
	return walker->tree.nodes;
}

int hl_walker_sum_counters(const struct bpf_map *map, void *ret_sums)
{
	size_t count = bpf_map__value_size(map) / sizeof(uint64_t);
	int cpus = libbpf_num_possible_cpus();
	const uint32_t zero = 0;

	if (cpus < 0)
		return cpus;
	HL_FREED uint64_t *each = calloc((size_t)cpus * count, sizeof(*each));
	if (!each)
		return -ENOMEM;
	int r = bpf_map_lookup_elem(bpf_map__fd(map), &zero, each);
	if (r < 0)
		return r;
	for (size_t i = count; i < (size_t)cpus * count; i++)
		each[i % count] += each[i];
	memcpy(ret_sums, each, count * sizeof(*each));
	return 0;
}

int hl_walker_losses(const struct hl_walker *walker, struct hl_walker_losses *ret_losses)
{
	struct hl_walker_losses losses = {
		.stacks_unnamed = walker->stacks_unnamed,
		.reloads_unseen = !walker->reloads_link,
		.mappings_full = walker->mappings_full,
		.files_lost = walker->target->lost_files,
		.modules_lost = walker->target->lost_modules,
	};

	int r = hl_walker_sum_counters(map_of(walker, "hl_losses"), &losses.walk);
	if (r < 0)
		return r;
	for (size_t i = 0; i < walker->upload_count; i++)
		losses.rows_full += walker->uploads[i].state == FILE_NO_ROOM;
	*ret_losses = losses;
	return 0;
}

const struct hl_target *hl_walker_target(const struct hl_walker *walker)
{
	return walker->target;
}

void hl_walker_free(struct hl_walker *walker)
{
	if (!walker)
		return;
	ring_buffer__free(walker->ring);
	bpf_link__destroy(walker->reloads_link);
	unmap_values(&walker->rows);
	unmap_values(&walker->pages);
	unmap_values(&walker->mappings);
	unmap_values(&walker->view);
	unmap_values(&walker->rule_slots);
	hl_stack_tree_release(&walker->tree);
	free(walker->uploads);
	free(walker);
}
