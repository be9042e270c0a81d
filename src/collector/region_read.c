/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads regions; see region_read.h.
 *
 * Order: cells, then nodes, then threads, modules and their strings, sites and their names. The
 * recorder publishes a node before it counts at it, and a module before it makes nodes in it, so
 * whatever was read refers only to what can still be read.
 */
#include "collector/region_read.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "base/machine.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* What may be backed by memory but not yet in the file's count of blocks. */
#define BACKED_SLOP (UINT64_C(16) << 20)

/* A peak mark set while the cells are read makes their at-peak values those of two marks; read
 * again, but a busy target must not keep us. */
#define PEAK_ATTEMPTS 3

static const struct hl_region_header *header_of(const struct hl_region_view *view)
{
	return view->base;
}

const void *hl_region_read_area(const struct hl_region_view *view, enum hl_area_id id)
{
	return (const char *)view->base + view->layout->areas[id].offset;
}

/* How many records of ${size} bytes may be read: not more than said, than backed by memory, than
 * there is room for. To read what is not backed would take memory, gigabytes of it: where more is
 * claimed than the whole file has, the first hole is where the area ends. */
uint32_t hl_region_read_bounded(const struct hl_region_view *view, enum hl_area_id id,
				uint64_t claimed, size_t size)
{
	const struct hl_area *area = &view->layout->areas[id];
	struct stat status;

	uint64_t bytes =
		atomic_load_explicit(&header_of(view)->areas[id].committed, memory_order_acquire);
	if (bytes > area->capacity)
		bytes = area->capacity;
	if (bytes > BACKED_SLOP && view->fd && fstat(*view->fd, &status) == 0 &&
	    bytes > (uint64_t)status.st_blocks * 512 + BACKED_SLOP) {
		off_t hole = lseek(*view->fd, (off_t)area->offset, SEEK_HOLE);
		uint64_t end = hole < 0 ? area->offset : (uint64_t)hole;
		if (end - area->offset < bytes)
			bytes = end - area->offset;
	}
	uint64_t count = bytes / size;
	return (uint32_t)(claimed < count ? claimed : count);
}

static bool layout_fits(const struct hl_region_view *view)
{
	if (view->bytes < sizeof(struct hl_region_header))
		return false;
	for (int id = 0; id < HL_AREA_COUNT; id++) {
		const struct hl_area *area = &view->layout->areas[id];
		if (area->offset % 8 || area->offset > view->bytes ||
		    area->capacity > view->bytes - area->offset)
			return false;
	}
	return true;
}

/* Whether nothing more will be counted. */
static bool is_over(const struct hl_recording_process *process)
{
	return process->complete && process->end != HL_END_RUNNING;
}

/* ---- cells ---- */

uint32_t hl_region_read_chunk_count(const struct hl_region_view *view)
{
	uint32_t claimed =
		atomic_load_explicit(&header_of(view)->chunk_count, memory_order_acquire);

	return hl_region_read_bounded(view, HL_AREA_CELLS, claimed, sizeof(struct hl_cell_chunk));
}

uint32_t hl_region_read_thread_count(const struct hl_region_view *view)
{
	uint32_t claimed =
		atomic_load_explicit(&header_of(view)->thread_count, memory_order_acquire);

	return hl_region_read_bounded(view, HL_AREA_THREADS,
				      claimed < HL_THREADS_MAX ? claimed : HL_THREADS_MAX,
				      sizeof(struct hl_region_thread));
}

static uint32_t used_cells(const struct hl_cell_chunk *chunk)
{
	uint32_t used = atomic_load_explicit(&chunk->used, memory_order_acquire);

	return used < HL_CHUNK_CELLS ? used : HL_CHUNK_CELLS;
}

static int64_t difference(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b);
}

/* How often a cell whose thread notes one mark after the other is looked at. */
#define CELL_LOOKS 1000

/*
 * A copy of a cell, and the objects that it had at its mark: without a look at both sides of it
 * counters might be of after the next mark, and what was kept at a mark of before the last. What is
 * kept just now is seen before its epoch: read_values() begins again then. The thread sanitizer does
 * not know of looking twice.
 */
__attribute__((no_sanitize("thread"))) static struct hl_cell
copy_cell(const struct hl_cell_chunk *chunk, uint32_t place, int64_t *ret_at_peak_objects)
{
	const struct hl_cell *shared = &chunk->cells[place];
	struct hl_cell cell;
	uint32_t epoch;
	unsigned looks = CELL_LOOKS;

	do {
		epoch = __atomic_load_n(&shared->epoch, __ATOMIC_ACQUIRE);
		cell = *(const volatile struct hl_cell *)shared;
		*ret_at_peak_objects = *(const volatile int64_t *)&chunk->at_peak_objects[place];
		atomic_thread_fence(memory_order_acquire);
	} while (__atomic_load_n(&shared->epoch, __ATOMIC_RELAXED) != epoch && --looks);
	cell.epoch = epoch;
	return cell;
}

/* Fills ${value} from ${cell} of the chunk, with the values at the last mark as its peak. What was counted before the reset goes off both sides, so that what is in use stays: the frees may then
 * be below zero. */
static void read_cell(const struct hl_cell_chunk *chunk, struct hl_cell cell,
		      int64_t at_peak_objects, struct hl_cell_base base, uint32_t epoch,
		      struct hl_recording_value *value)
{
	*value = (struct hl_recording_value){
		.node = cell.node,
		.thread = chunk->thread,
		.alloc_bytes = cell.alloc_bytes - base.alloc_bytes,
		.alloc_objects = cell.alloc_objects - base.alloc_objects,
		.free_bytes = cell.free_bytes - base.alloc_bytes,
		.free_objects = cell.free_objects - base.alloc_objects,
		.temporary_objects = cell.temporary_objects - base.temporary_objects,
		.slack_bytes = cell.slack_bytes,
	};
	bool marked = cell.epoch == epoch;
	value->peak_bytes =
		marked ? cell.at_peak_bytes : difference(cell.alloc_bytes, cell.free_bytes);
	value->peak_objects =
		marked ? at_peak_objects : difference(cell.alloc_objects, cell.free_objects);
}

/* Counters only grow. */
static bool is_since(const struct hl_cell *cell, struct hl_cell_base base)
{
	return cell->alloc_bytes >= base.alloc_bytes && cell->alloc_objects >= base.alloc_objects &&
	       cell->temporary_objects >= base.temporary_objects;
}

/* Returns the number of values; ${ret_damaged} is that of cells and chunks that cannot be. */
static uint32_t read_chunks(const struct hl_region_view *view, uint32_t chunks, uint32_t epoch,
			    uint64_t most, struct hl_recording_value *values, uint64_t *ret_damaged)
{
	const struct hl_cell_chunk *chunk = hl_region_read_area(view, HL_AREA_CELLS);
	uint32_t count = 0;

	*ret_damaged = 0;
	for (size_t first = 0; first < (size_t)chunks * HL_CHUNK_CELLS;
	     first += HL_CHUNK_CELLS, chunk++) {
		uint32_t used = used_cells(chunk);
		*ret_damaged += atomic_load(&chunk->used) > HL_CHUNK_CELLS;
		for (uint32_t i = 0; i < used; i++) {
			int64_t at_peak_objects;
			struct hl_cell cell = copy_cell(chunk, i, &at_peak_objects);
			struct hl_cell_base base = hl_region_base_of(view, first + i);
			if (hl_region_check_cell(&cell, most) && cell.node && is_since(&cell, base))
				read_cell(chunk, cell, at_peak_objects, base, epoch,
					  &values[count++]);
			else
				++*ret_damaged;
		}
	}
	return count;
}

static int read_values(const struct hl_region_view *view, uint64_t most,
		       struct hl_recording_process *process)
{
	const struct hl_region_header *header = header_of(view);
	uint32_t claimed = atomic_load_explicit(&header->chunk_count, memory_order_acquire);
	uint32_t chunks =
		hl_region_read_bounded(view, HL_AREA_CELLS, claimed, sizeof(struct hl_cell_chunk));
	uint64_t damaged = claimed > chunks, bad = 0;

	process->values = malloc(((size_t)chunks * HL_CHUNK_CELLS + 1) * sizeof(*process->values));
	if (!process->values)
		return -ENOMEM;
	for (int attempt = 0; attempt < PEAK_ATTEMPTS; attempt++) {
		uint32_t epoch = atomic_load(&header->peak_epoch);
		process->value_count =
			read_chunks(view, chunks, epoch, most, process->values, &bad);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load(&header->peak_epoch) == epoch)
			break;
	}
	process->lost.damaged += damaged + bad;
	return 0;
}

/*
 * Marks are set at steps of up to 1 %. When more is in use now than at the last mark, now is the
 * peak. Returns whether it is.
 */
static bool settle_peak(struct hl_recording_process *process)
{
	uint64_t now = 0, mark = 0;

	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		now += value->alloc_bytes - value->free_bytes;
		mark += (uint64_t)value->peak_bytes;
	}
	if ((int64_t)now <= (int64_t)mark)
		return false;
	for (uint32_t i = 0; i < process->value_count; i++) {
		struct hl_recording_value *value = &process->values[i];
		value->peak_bytes = difference(value->alloc_bytes, value->free_bytes);
		value->peak_objects = difference(value->alloc_objects, value->free_objects);
	}
	return true;
}

/* In use at one node, of all threads; below zero it wraps. */
struct node_sum {
	uint64_t bytes, objects;
};

/* Drops the values of nodes at which more was freed than allocated. While the process runs that can
 * be: its cells are not read at one instant. And where it has gone on by samples: what was counted exactly is then
 * freed by estimates. */
static int drop_negative(struct hl_recording_process *process)
{
	struct node_sum *sums = calloc(process->node_count + (size_t)1, sizeof(*sums));
	uint32_t kept = 0;

	if (!sums)
		return -ENOMEM;
	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		struct node_sum *sum = &sums[value->node];
		sum->bytes += value->alloc_bytes - value->free_bytes;
		sum->objects += value->alloc_objects - value->free_objects;
	}
	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct node_sum *sum = &sums[process->values[i].node];
		if ((int64_t)sum->objects >= 0 && (int64_t)sum->bytes >= 0)
			process->values[kept++] = process->values[i];
	}
	process->lost.damaged += process->value_count - kept;
	process->value_count = kept;
	free(sums);
	return 0;
}

/* What is left may be plausible one by one, and not together: then nothing of it is known. */
static void check_total(const struct hl_region_view *view, uint64_t most,
			struct hl_recording_process *process)
{
	uint64_t objects = 0, bytes = 0;

	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		objects += value->alloc_objects;
		bytes += value->alloc_bytes - value->free_bytes;
	}
	if (objects > most) {
		process->lost.damaged += process->value_count;
		process->value_count = 0;
	} else if (is_over(process)) {
		process->lost.damaged += !hl_region_check_total(view, (int64_t)bytes);
	}
}

/* New ids of the nodes of a region. */
struct node_map {
	uint32_t first,
		count; /* up to the first they are the old ones; there are none after the count */
	uint32_t *ids; /* of the others; 0: that node is not there */
};

static uint32_t new_id(const struct node_map *map, uint32_t id)
{
	if (id > map->count)
		return 0;
	return id <= map->first ? id : map->ids[id - map->first - 1];
}

/* Drops values of unknown nodes and those that say nothing, and renumbers the rest. */
static void adopt_values(struct hl_recording_process *process, const struct node_map *map)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < process->value_count; i++) {
		struct hl_recording_value value = process->values[i];
		if (!value.alloc_objects && !value.free_objects && !value.alloc_bytes &&
		    !value.free_bytes && !value.peak_bytes && !value.peak_objects)
			continue;
		value.node = new_id(map, value.node);
		if (!value.node) {
			process->lost.damaged++;
			continue;
		}
		if (value.thread >= process->thread_count) {
			process->lost.damaged++;
			value.thread = 0;
		}
		process->values[kept++] = value;
	}
	process->value_count = kept;
	struct hl_recording_value *fitted =
		realloc(process->values, (kept + (size_t)1) * sizeof(*fitted));
	if (fitted)
		process->values = fitted;
}

/* ---- threads and what was lost ---- */

static void add_lost(struct hl_lost *sum, struct hl_lost more, uint64_t most)
{
	for (size_t i = 0; i < HL_LOST_COUNT; i++)
		if (!hl_lost_counters[i].is_bytes && hl_lost_value(&more, i) > most) {
			sum->damaged++;
			return;
		}
	hl_lost_add(sum, &more);
}

/* There is always a thread 0, for cells that name none. */
static int read_threads(const struct hl_region_view *view, uint64_t most,
			struct hl_recording_process *process)
{
	const struct hl_region_thread *shared = hl_region_read_area(view, HL_AREA_THREADS);
	/* First: it grows. */
	uint32_t claimed = atomic_load(&header_of(view)->thread_count);
	uint32_t count = hl_region_read_thread_count(view);

	process->lost.damaged += claimed > count;
	process->threads = calloc(count ? count : 1, sizeof(*process->threads));
	if (!process->threads)
		return -ENOMEM;
	process->thread_count = count ? count : 1;
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_region_thread *thread = &shared[i];
		process->threads[i].tid = thread->tid;
		process->threads[i].earlier_threads = thread->earlier_owners;
		memcpy(process->threads[i].name, thread->name, sizeof(thread->name));
		add_lost(&process->lost, thread->lost, most);
	}
	return 0;
}

static void read_lost(const struct hl_region_view *view, uint64_t most, struct hl_lost *lost)
{
	const struct hl_region_header *header = header_of(view);
#define READ(member, ...) .member = atomic_load(&header->lost.member),
	const struct hl_lost shared = {HL_LOST_COUNTERS(READ, READ)};
#undef READ

	lost->damaged += hl_region_check_header(view);
	add_lost(lost, shared, most);
}

/* ---- modules ---- */

uint32_t hl_region_read_module_count(const struct hl_region_view *view)
{
	uint32_t claimed =
		atomic_load_explicit(&header_of(view)->module_count, memory_order_acquire);

	if (claimed > HL_MODULES_MAX)
		claimed = HL_MODULES_MAX;
	return hl_region_read_bounded(view, HL_AREA_MODULES, claimed,
				      sizeof(struct hl_region_module));
}

int hl_region_read_module(const struct hl_region_view *view, uint32_t index,
			  struct hl_recording_module *ret_module)
{
	const struct hl_region_module *shared = hl_region_read_area(view, HL_AREA_MODULES);
	struct hl_region_module copy = shared[index];
	const char *strings = hl_region_read_area(view, HL_AREA_STRINGS);
	uint32_t size = hl_region_read_bounded(view, HL_AREA_STRINGS, UINT32_MAX, 1);
	bool good = copy.path_offset <= size && copy.path_bytes <= size - copy.path_offset;

	char *path = good ? strndup(strings + copy.path_offset, copy.path_bytes) : strdup("");
	if (!path)
		return -ENOMEM;
	*ret_module = (struct hl_recording_module){
		.path = path,
		.start = copy.start,
		.end = copy.end,
		.load_bias = copy.load_bias,
		.print = copy.print,
	};
	if (copy.build_id_bytes <= sizeof(ret_module->build_id)) {
		ret_module->build_id_bytes = copy.build_id_bytes;
		memcpy(ret_module->build_id, copy.build_id, copy.build_id_bytes);
	}
	return 0;
}

static int read_modules(const struct hl_region_view *view, struct hl_recording_process *process)
{
	uint32_t count = hl_region_read_module_count(view);

	process->lost.damaged += atomic_load(&header_of(view)->module_count) > HL_MODULES_MAX;
	process->modules = calloc(count + (size_t)1, sizeof(*process->modules));
	if (!process->modules)
		return -ENOMEM;
	for (; process->module_count < count; process->module_count++) {
		int r = hl_region_read_module(view, process->module_count,
					      &process->modules[process->module_count]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- nodes ---- */

uint32_t hl_region_read_node_count(const struct hl_region_view *view)
{
	uint64_t claimed = atomic_load_explicit(&header_of(view)->node_count, memory_order_acquire);

	if (claimed > HL_NODE_MAX)
		claimed = HL_NODE_MAX;
	/* The root takes a place in the area, too. */
	uint32_t places = hl_region_read_bounded(view, HL_AREA_NODES, claimed + 1,
						 sizeof(struct hl_region_node));
	return places ? places - 1 : 0;
}

struct hl_recording_node hl_region_read_node(const struct hl_region_view *view, uint32_t id)
{
	const struct hl_region_node *shared = hl_region_read_area(view, HL_AREA_NODES);
	uint64_t frame = atomic_load_explicit(&shared[id].frame, memory_order_acquire);

	return (struct hl_recording_node){.frame = frame, .parent = shared[id].parent};
}

/* Hangs nodes on the root that would close a cycle. The parents of the first ${first} nodes of the tree, which
 * are not among ${nodes}, are all before their children: no cycle goes through them. */
static int cut_cycles(struct hl_recording_node *nodes, uint32_t first, uint32_t count)
{
	HL_FREED uint32_t *parents = malloc(2 * (size_t)count * sizeof(*parents));

	if (!parents)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		parents[i] = nodes[i].parent;
		nodes[i].parent = parents[i] <= first ? 0 : parents[i] - first;
	}
	hl_recording_repair_tree(nodes, count, parents + count);
	for (uint32_t i = 0; i < count; i++) {
		if (nodes[i].parent)
			nodes[i].parent = parents[i];
		else if (parents[i] <= first)
			nodes[i].parent = parents[i];
	}
	return 0;
}

/*
 * Reads the nodes after the first *${map} keeps and numbers those that are there in a row. Returns how many, or -ENOMEM.
 * *${ret_sound}: of how many at the beginning the ids stay and parents come before their children.
 */
static int64_t number_nodes(const struct hl_region_view *view, struct hl_recording_process *process,
			    struct node_map *map, uint32_t *ret_sound)
{
	uint32_t first = map->first, left = map->count - first, kept = 0, sound = 0;
	struct hl_recording_node *nodes = malloc((left + (size_t)1) * sizeof(*nodes));

	process->nodes = nodes;
	map->ids = malloc((left + (size_t)1) * sizeof(*map->ids));
	if (!nodes || !map->ids)
		return -ENOMEM;
	for (uint32_t i = 0; i < left; i++) {
		struct hl_recording_node node = hl_region_read_node(view, first + i + 1);
		map->ids[i] = node.frame ? first + kept + 1 : 0;
		nodes[kept] = node;
		kept += node.frame != 0;
		uint32_t path = 0;
		hl_frame_key_is_path(node.frame, &path);
		sound += sound == i && node.frame && node.parent <= first + i && path <= first + i;
	}
	*ret_sound = sound;
	return kept;
}

static int read_nodes(const struct hl_region_view *view, struct hl_recording_process *process,
		      struct node_map *map, uint32_t *ret_sound)
{
	bool is_ordered = true;
	uint64_t orphans = 0;

	int64_t kept = number_nodes(view, process, map, ret_sound);
	if (kept < 0)
		return (int)kept;
	struct hl_recording_node *nodes = process->nodes;
	process->node_count = map->first + (uint32_t)kept;
	process->lost.damaged += atomic_load(&header_of(view)->node_count) > HL_NODE_MAX;
	for (uint32_t i = 0; i < kept; i++) {
		uint32_t parent = nodes[i].parent, path;
		nodes[i].parent = new_id(map, parent);
		is_ordered &= nodes[i].parent <= map->first + i;
		orphans += parent && !nodes[i].parent;
		if (!hl_frame_key_is_path(nodes[i].frame, &path))
			continue;
		path = new_id(map, path);
		nodes[i].frame = path ? hl_path_frame_key(path) : hl_site_frame_key(0, false);
		orphans += !path;
	}
	/* While the process runs, the parents and the paths of nodes may not be there yet. */
	process->lost.damaged += is_over(process) ? orphans : 0;
	return is_ordered ? 0 : cut_cycles(nodes, map->first, (uint32_t)kept);
}

/* ---- nodes that are known ---- */

static uint64_t hash_piece(const struct hl_region_view *view, size_t piece)
{
	const struct hl_region_node *shared = hl_region_read_area(view, HL_AREA_NODES);

	return XXH3_64bits(shared + 1 + piece * HL_REGION_PIECE_NODES,
			   HL_REGION_PIECE_NODES * sizeof(*shared));
}

/*
 * Finds how many pieces at the beginning are what they were, and hashes the rest before it is read: what
 * changes meanwhile will not be known. An id can change: that of a node which two threads made at once is used again.
 */
static int begin_known(const struct hl_region_view *view, uint32_t node_count)
{
	struct hl_region_known *known = view->known;
	size_t same = 0, pieces = node_count / HL_REGION_PIECE_NODES;

	if (!known)
		return 0;
	if (HL_ARRAY_RESERVE(known->hashes, known->capacity, pieces + 1) < 0)
		return -ENOMEM;
	while (same < known->piece_count && same < pieces &&
	       hash_piece(view, same) == known->hashes[same])
		same++;
	for (size_t piece = same; piece < pieces; piece++)
		known->hashes[piece] = hash_piece(view, piece);
	known->piece_count = same;
	known->first_node = (uint32_t)same * HL_REGION_PIECE_NODES;
	return 0;
}

/* The first ${sound} of the nodes that were read need not be read again. */
static void end_known(struct hl_region_known *known, const struct hl_recording_process *process,
		      uint32_t sound)
{
	known->piece_count = (known->first_node + sound) / HL_REGION_PIECE_NODES;
	known->module_count = process->module_count;
	known->site_count = process->site_count;
}

void hl_region_known_release(struct hl_region_known *known)
{
	free(known->hashes);
	*known = (struct hl_region_known){0};
}

/* ---- the whole ---- */

/* A frame in a module that is not known keeps its address and becomes one of no module. Returns whether it was
 * one, or in a place of a script that is not known. */
static bool mend_frame(struct hl_recording_process *process, uint64_t *frame)
{
	uint32_t site;

	if (!hl_frame_key_is_valid(*frame, process->module_count))
		*frame &= HL_FRAME_PC_MASK;
	else if (hl_frame_key_is_site(*frame, &site) && site > process->site_count)
		*frame = hl_site_frame_key(0, false);
	else
		return false;
	process->lost.damaged++;
	return true;
}

static int read_tables(const struct hl_region_view *view, const struct hl_region_times *times,
		       struct hl_recording_process *process)
{
	struct node_map map = {.count = 0};
	uint32_t sound = 0;
	uint64_t most = hl_region_check_most_events(view, times->now_ns - times->start_ns);

	int r = read_values(view, most, process);
	if (r == 0) {
		map.count = hl_region_read_node_count(view);
		r = begin_known(view, map.count);
	}
	if (r == 0) {
		map.first = view->known ? view->known->first_node : 0;
		r = read_nodes(view, process, &map, &sound);
	}
	if (r == 0)
		r = read_threads(view, most, process);
	if (r == 0)
		r = read_modules(view, process);
	if (r == 0)
		r = hl_region_sites_read(view, process);
	/* A program that has written over these numbers */
	if (r == 0 && map.first &&
	    (process->module_count < view->known->module_count ||
	     process->site_count < view->known->site_count))
		r = -ESTALE;
	if (r == 0)
		adopt_values(process, &map);
	free(map.ids);
	if (r == 0 && is_over(process) && !hl_region_is_sampled(header_of(view)))
		r = drop_negative(process);
	if (r == 0) {
		check_total(view, most, process);
		read_lost(view, most, &process->lost);
		uint64_t peak_ns = settle_peak(process)
					   ? times->now_ns
					   : atomic_load(&header_of(view)->peak_mark_ns);
		if (peak_ns > times->now_ns)
			peak_ns = times->now_ns;
		process->peak_mark_ns = peak_ns < times->start_ns ? 0 : peak_ns - times->start_ns;
	}
	uint32_t read = r == 0 ? process->node_count - map.first : 0;
	for (uint32_t i = 0; i < read; i++)
		if (mend_frame(process, &process->nodes[i].frame) && i < sound)
			sound = i;
	if (r == 0 && view->known)
		end_known(view->known, process, sound);
	return r;
}

/* Gives back what a failed read has made. */
static void drop_tables(struct hl_recording_process *process)
{
	struct hl_recording_process made = {
		.module_count = process->module_count,
		.modules = process->modules,
		.nodes = process->nodes,
		.values = process->values,
		.threads = process->threads,
		.provider_count = process->provider_count,
		.site_name_count = process->site_name_count,
		.providers = process->providers,
		.sites = process->sites,
		.site_names = process->site_names,
	};

	hl_recording_process_release(&made);
	process->modules = NULL;
	process->nodes = NULL;
	process->values = NULL;
	process->threads = NULL;
	process->providers = NULL;
	process->sites = NULL;
	process->site_names = NULL;
	process->provider_count = process->site_count = process->site_name_count = 0;
	process->module_count = process->node_count = 0;
	process->value_count = process->thread_count = 0;
}

int hl_region_read(const struct hl_region_view *view, const struct hl_region_times *times,
		   struct hl_recording_process *process, struct hl_error *err)
{
	if (!layout_fits(view))
		return hl_error_set(err, -EINVAL, "cannot read a region: its areas do not fit it");
	process->lost = (struct hl_lost){0};
	int r = read_tables(view, times, process);
	if (r == -ESTALE) {
		drop_tables(process);
		process->lost = (struct hl_lost){0};
		view->known->piece_count = 0;
		r = read_tables(view, times, process);
	}
	if (r < 0) {
		drop_tables(process);
		return hl_error_set(err, r, "cannot read a region: %s", strerror(-r));
	}
	uint32_t flags = atomic_load(&header_of(view)->flags);
	process->own_malloc = flags & HL_REGION_OWN_MALLOC;
	return 0;
}

uint64_t hl_region_read_activity(const struct hl_region_view *view)
{
	const struct hl_region_header *header = header_of(view);
	const struct hl_cell_chunk *chunk = hl_region_read_area(view, HL_AREA_CELLS);
	uint64_t sum = atomic_load(&header->thread_count) + atomic_load(&header->lost.events);

	for (const struct hl_cell_chunk *end = chunk + hl_region_read_chunk_count(view);
	     chunk < end; chunk++) {
		uint32_t used = used_cells(chunk);
		for (uint32_t i = 0; i < used; i++)
			sum += chunk->cells[i].alloc_objects + chunk->cells[i].free_objects;
	}
	return sum;
}
