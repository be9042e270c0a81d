/* SPDX-License-Identifier: BSD-2-Clause */
/* Fills the walker's maps, takes in its records, and keeps stacks as trees; see walker.h. */
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

/* Room for code that targets map later: a library of the size of LLVM's, 16 MiB of tables. */
#define SPARE_PAGES	    (UINT32_C(1) << 19)
#define SPARE_ROWS	    (UINT32_C(3) << 19)
#define ROWS_MAX	    (UINT32_C(1) << 28)
#define REFRESH_INTERVAL_NS HL_NS_PER_SECOND
/* Where code runs that stays unknown, reading the mappings again and again takes a tenth of a
 * processor at most. */
#define REFRESH_PAUSES 10u
/* Slots of rules: 2^14 for one target, of which a walk needs some hundred, twice as many for twice
 * the targets, and 4 MiB of them at most. */
#define RULE_SLOT_BITS	   14u
#define RULE_SLOT_BITS_MAX 18u
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

/* Where the kernel has a file; by the file's index. */
struct upload {
	enum file_state state;
	uint32_t first_page;
};

struct walked {
	struct hl_target *target;
	uint32_t place; /* in the maps; another's or nobody's once it is walked no more */
	uint32_t heard; /* reloads that the target's mappings have */
	uint64_t mappings_full;
	uint64_t refreshed_ns, refresh_took_ns;
	bool refresh_wanted;
	struct hl_stack_tree tree;
};

struct hl_walker {
	struct bpf_object *object;
	hl_record_fn *on_record;
	void *context;
	struct ring_buffer *ring;
	struct bpf_link *reloads_link; /* NULL: this kernel does not report them */
	struct values rows, pages, mappings, view, rule_slots;
	uint32_t rows_used, pages_used;
	struct upload *uploads;
	size_t upload_count, upload_capacity;
	struct walked *walked; /* by number - 1 */
	size_t walked_count, walked_capacity;
	uint32_t *numbers; /* by place; 0: it is free */
	uint32_t places;
	uint32_t mappings_max; /* of a list */
	uint32_t refreshed;    /* the number of the last one */
	uint64_t paused_ns;    /* until then only reloads are a reason to read mappings */
	struct hl_stack_leaves leaves;
	uint64_t stacks_unnamed;
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

static int set_places(const struct hl_walker *walker, const char *name, uint32_t each)
{
	return bpf_map__set_max_entries(map_of(walker, name), walker->places * each);
}

static int prepare_maps(const struct hl_walker *walker, struct hl_error *err)
{
	struct hl_walk_settings settings = {.places = walker->places,
					    .mappings_max = walker->mappings_max};
	uint32_t slot_bits = RULE_SLOT_BITS;
	uint64_t rows = 0, pages = 0;
	struct stat status;

	while (slot_bits < RULE_SLOT_BITS_MAX && walker->places >> (slot_bits - RULE_SLOT_BITS) > 1)
		slot_bits++;
	settings.rule_shift = 64 - slot_bits;
	/* It stays 0 for the first namespace, in which pids are the kernel's. */
	if (stat("/proc/self/ns/pid", &status) == 0 && status.st_ino != FIRST_PID_NAMESPACE)
		settings.pid_namespace = (uint32_t)status.st_ino;
	if (walker->walked_count) {
		const struct hl_target *target = walker->walked[0].target;
		settings.pid = (uint32_t)target->pid;
		for (size_t i = 0; i < target->files->count; i++) {
			rows += target->files->list[i].table.row_count;
			pages += target->files->list[i].table.page_count;
		}
	}
	int r = set_capacity(walker, "hl_rows", rows, SPARE_ROWS);
	if (r == 0)
		r = set_capacity(walker, "hl_pages", pages, SPARE_PAGES);
	if (r == 0)
		r = set_places(walker, "hl_view", 1);
	if (r == 0)
		r = set_places(walker, "hl_mappings", 2 * walker->mappings_max);
	if (r == 0)
		r = set_places(walker, "hl_target_numbers", 1);
	if (r == 0)
		r = bpf_map__set_max_entries(map_of(walker, "hl_rule_slots"), 1u << slot_bits);
	if (r == 0)
		r = bpf_map__set_initial_value(map_of(walker, ".rodata.walk"), &settings,
					       sizeof(settings));
	if (r < 0)
		return hl_error_set(err, r, "cannot prepare the BPF program's maps: %s",
				    strerror(-r));
	return 0;
}

int hl_walker_new(struct bpf_object *object, uint32_t capacity, hl_record_fn *on_record,
		  void *context, struct hl_walker **ret_walker, struct hl_error *err)
{
	struct hl_walker *walker = calloc(1, sizeof(*walker));

	if (!walker || !(walker->numbers = calloc(capacity, sizeof(*walker->numbers)))) {
		free(walker);
		return hl_error_set(err, -ENOMEM, "cannot walk stacks: out of memory");
	}
	walker->object = object;
	walker->on_record = on_record;
	walker->context = context;
	walker->places = capacity;
	walker->mappings_max = capacity > 1 ? HL_BPF_MAPPINGS_EACH : HL_BPF_MAPPINGS_MAX;
	int r = prepare_maps(walker, err);
	if (r < 0) {
		hl_walker_free(walker);
		return r;
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

static struct hl_code_mapping mapping_for_kernel(const struct hl_walker *walker,
						 const struct hl_target *target, size_t index)
{
	const struct hl_target_mapping *mapping = &target->mappings[index];
	struct hl_code_mapping kernels = {
		.start = mapping->start,
		.end = mapping->end,
		.module = (uint64_t)mapping->module << HL_MODULE_SHIFT,
	};

	const struct hl_target_file *file = hl_target_mapping_file(target, index);
	if (!file)
		return kernels;
	const struct upload *upload = &walker->uploads[file - target->files->list];
	if (upload->state == FILE_UPLOADED) {
		kernels.first_page = upload->first_page + mapping->first_page;
		kernels.page_count = mapping->page_count;
	}
	return kernels;
}

static struct hl_walk_view *view_of(const struct hl_walker *walker, const struct walked *walked)
{
	return (struct hl_walk_view *)walker->view.start + walked->place;
}

/* Writes the list that no walk uses, then lets walks use it; see struct hl_walk_view. */
static void publish_mappings(struct hl_walker *walker, struct walked *walked)
{
	struct hl_walk_view *view = view_of(walker, walked);
	struct hl_code_mapping *list = walker->mappings.start;
	uint32_t next = view->current + 1;
	size_t count = walked->target->mapping_count;

	walked->mappings_full = count > walker->mappings_max ? count - walker->mappings_max : 0;
	count -= walked->mappings_full;
	/* Cached rules have 16 bits of their generation: before those come round, none are left. */
	if (!(uint16_t)next)
		memset(walker->rule_slots.start, 0, walker->rule_slots.bytes);
	view->next = next;
	__sync_synchronize(); /* a fence that the thread sanitizer's builds have, too */
	list += ((size_t)walked->place * 2 + (next & 1)) * walker->mappings_max;
	for (size_t i = 0; i < count; i++)
		list[i] = mapping_for_kernel(walker, walked->target, i);
	view->count[next & 1] = (uint32_t)count;
	view->heard[next & 1] = walked->heard;
	__atomic_store_n(&view->current, next, __ATOMIC_RELEASE);
}

static uint32_t reloads(const struct hl_walker *walker, const struct walked *walked)
{
	return *(volatile uint32_t *)&view_of(walker, walked)->reloads;
}

static int upload(struct hl_walker *walker, struct walked *walked, struct hl_error *err)
{
	const struct hl_target_files *files = walked->target->files;

	int r = HL_ARRAY_RESERVE(walker->uploads, walker->upload_capacity, files->count);
	if (r < 0)
		return hl_error_set(err, r, "cannot fill the BPF program's maps: %s", strerror(-r));
	for (size_t i = walker->upload_count; i < files->count; i++)
		upload_file(walker, &files->list[i].table, &walker->uploads[i]);
	walker->upload_count = files->count;
	publish_mappings(walker, walked);
	return 0;
}

static bool is_walked(const struct hl_walker *walker, uint32_t number)
{
	return number && number <= walker->walked_count &&
	       walker->numbers[walker->walked[number - 1].place] == number;
}

/* The time of all targets: what was not used for a second may be spent at once, and what was spent on
 * reloads is not owed. */
static void pause_after(struct hl_walker *walker, const struct walked *walked, uint64_t start_ns)
{
	uint64_t least = start_ns - REFRESH_INTERVAL_NS, most = walked->refreshed_ns;

	walker->paused_ns = walker->paused_ns < least  ? least
			    : walker->paused_ns > most ? most
						       : walker->paused_ns;
	walker->paused_ns += REFRESH_PAUSES * walked->refresh_took_ns;
}

/* Reads the mappings until they are those of the published list: the kernel does not number a
 * reload of a library that is in no list yet. */
static int refresh(struct hl_walker *walker, uint32_t number, struct hl_error *err)
{
	struct walked *walked = &walker->walked[number - 1];
	struct hl_walk_view *view = view_of(walker, walked);
	uint64_t start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	bool is_changed = true;
	int r = 0;

	for (int round = 0; r == 0 && is_changed && round < REFRESH_ROUNDS; round++) {
		uint64_t before = walked->target->changes;
		/* before the mappings, which may have more */
		uint32_t heard = reloads(walker, walked);
		r = hl_target_refresh(walked->target, err);
		if (r == 0)
			walked->heard = heard;
		is_changed = walked->target->changes != before;
		if (r == 0 && is_changed)
			r = upload(walker, walked, err);
		else if (r == 0)
			*(volatile uint32_t *)&view->heard[view->current & 1] = walked->heard;
	}
	walked->refresh_wanted = is_changed;
	walked->refreshed_ns = hl_clock_ns(CLOCK_MONOTONIC);
	walked->refresh_took_ns = walked->refreshed_ns - start_ns;
	walker->refreshed = number;
	pause_after(walker, walked, start_ns);
	if (r != -ESRCH || walker->places == 1)
		return r;
	hl_walker_remove(walker, number);
	return 0;
}

static bool refresh_is_due(const struct hl_walker *walker, uint32_t number)
{
	const struct walked *walked = &walker->walked[number - 1];
	const struct walked *last = &walker->walked[walker->refreshed - 1];
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	uint64_t passed_ns = now_ns - walked->refreshed_ns;

	if (reloads(walker, walked) != walked->heard)
		return now_ns - last->refreshed_ns >= last->refresh_took_ns;
	if (now_ns < walker->paused_ns)
		return false;
	return passed_ns >= REFRESH_INTERVAL_NS ||
	       (walked->refresh_wanted && passed_ns >= REFRESH_PAUSES * walked->refresh_took_ns);
}

/* Of all targets, or of those for which it is due; the place after the last one's comes first. */
static int refresh_all(struct hl_walker *walker, bool only_due, struct hl_error *err)
{
	uint32_t first = walker->refreshed ? walker->walked[walker->refreshed - 1].place + 1 : 0;
	int r = 0;

	for (uint32_t i = 0; i < walker->places && r == 0; i++) {
		uint32_t number = walker->numbers[(first + i) % walker->places];
		if (number && (!only_due || refresh_is_due(walker, number)))
			r = refresh(walker, number, err);
	}
	return r;
}

int hl_walker_refresh(struct hl_walker *walker, struct hl_error *err)
{
	return refresh_all(walker, false, err);
}

/* ---- targets come and go ---- */

/* Stacks of the target are walked from here on. The caller is to refresh it: code may have come
 * meanwhile. */
static int begin(struct hl_walker *walker, uint32_t number, struct hl_error *err)
{
	struct walked *walked = &walker->walked[number - 1];
	struct hl_target_number target = {number, walked->place};

	walked->heard = reloads(walker, walked); /* by who had the place before */
	int r = upload(walker, walked, err);
	if (r < 0)
		return r;
	if (walker->places > 1)
		r = bpf_map_update_elem(bpf_map__fd(map_of(walker, "hl_target_numbers")),
					&walked->target->pid, &target, BPF_ANY);
	return r < 0 ? hl_error_set(err, r, "cannot fill the BPF program's maps: %s", strerror(-r))
		     : 0;
}

int hl_walker_add(struct hl_walker *walker, struct hl_target *target, uint32_t *ret_number,
		  struct hl_error *err)
{
	uint32_t number = (uint32_t)walker->walked_count + 1, place = 0;

	for (uint32_t i = 1; i < number; i++) /* whose pid is another's now has ended */
		if (walker->walked[i - 1].target->pid == target->pid)
			hl_walker_remove(walker, i);
	while (place < walker->places && walker->numbers[place])
		place++;
	if (walker->walked_count && target->files != walker->walked[0].target->files)
		return hl_error_set(err, -EINVAL, "cannot walk stacks: targets do not share files");
	if (place == walker->places)
		return hl_error_set(err, -ENOSPC,
				    "cannot walk stacks of process '%d': %u others are walked",
				    (int)target->pid, walker->places);
	int r = HL_ARRAY_RESERVE(walker->walked, walker->walked_capacity, number);
	if (r < 0)
		return hl_error_set(err, r, "cannot walk stacks: out of memory");
	walker->walked[number - 1] = (struct walked){.target = target, .place = place};
	walker->walked_count = number;
	walker->numbers[place] = number;
	r = walker->ring ? begin(walker, number, err) : prepare_maps(walker, err);
	if (r < 0) {
		walker->numbers[place] = 0;
		walker->walked_count--;
		return r;
	}
	if (walker->ring)
		refresh(walker, number, NULL); /* That it fails, the next one will say. */
	*ret_number = number;
	return 0;
}

void hl_walker_remove(struct hl_walker *walker, uint32_t number)
{
	if (!is_walked(walker, number))
		return;
	const struct walked *walked = &walker->walked[number - 1];
	walker->numbers[walked->place] = 0;
	if (walker->ring && walker->places > 1)
		bpf_map_delete_elem(bpf_map__fd(map_of(walker, "hl_target_numbers")),
				    &walked->target->pid);
}

/* ---- records ---- */

static void take_stack(struct hl_walker *walker, const struct hl_stack_record *record, size_t bytes)
{
	uint64_t keys[HL_BPF_FRAMES_MAX];
	struct hl_stack_leaf leaf = {.stack = record->id, .target = record->target};

	if (bytes < offsetof(struct hl_stack_record, keys) || record->count > HL_BPF_FRAMES_MAX ||
	    bytes - offsetof(struct hl_stack_record, keys) < record->count * sizeof(keys[0]) ||
	    !record->target || record->target > walker->walked_count)
		return;
	struct walked *walked = &walker->walked[record->target - 1];
	/* What lies there now may be other code. */
	bool is_lost = record->flags & HL_STACK_UNKNOWN_CODE && record->reloads != walked->heard;
	for (uint32_t i = 0; i < record->count; i++) {
		uint64_t module = record->keys[i] >> HL_MODULE_SHIFT;
		if (module == HL_MODULE_NONE && !is_lost)
			module = hl_target_module_at(walked->target, record->keys[i]);
		keys[i] = module == HL_MODULE_SCRIPT ? hl_pseudo_frame_key(HL_PSEUDO_RETURN_PROBE)
						     : record->keys[i] | module << HL_MODULE_SHIFT;
	}
	walker->stacks_unnamed += is_lost;
	/* Without memory the stack stays unknown, as a lost one. */
	hl_stack_leaves_add(&walker->leaves, &walked->tree, leaf, keys, record->count);
}

static void take_unknown_code(struct hl_walker *walker, const struct hl_unknown_code_record *record,
			      size_t bytes)
{
	if (bytes < sizeof(*record) || !is_walked(walker, record->target))
		return;
	walker->walked[record->target - 1].refresh_wanted = true;
	/* At once: stacks with that code follow. That it fails, the next one will say. */
	if (refresh_is_due(walker, record->target))
		refresh(walker, record->target, NULL);
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
		take_unknown_code(walker, bytes, size);
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
	walker->ring = ring_buffer__new(bpf_map__fd(map_of(walker, "hl_records")), take_record,
					walker, NULL);
	if (!walker->ring)
		return hl_error_set(err, -errno, "cannot read the BPF program's records: %s",
				    strerror(errno));
	for (uint32_t number = 1; number <= walker->walked_count && r == 0; number++)
		if (is_walked(walker, number))
			r = begin(walker, number, err);
	return r == 0 ? hl_walker_refresh(walker, err) : r;
}

int hl_walker_poll(struct hl_walker *walker, int timeout_ms, struct hl_error *err)
{
	int r = ring_buffer__poll(walker->ring, timeout_ms);

	if (r >= 0 || r == -EINTR)
		r = ring_buffer__consume(walker->ring);
	if (r < 0)
		return r;
	return refresh_all(walker, true, err);
}

/* ---- results ---- */

uint32_t hl_walker_node(const struct hl_walker *walker, uint64_t stack, uint32_t *ret_number)
{
	struct hl_stack_leaf leaf = hl_stack_leaves_find(&walker->leaves, stack);

	if (ret_number)
		*ret_number = leaf.target;
	return leaf.node;
}

const struct hl_recording_node *hl_walker_nodes(const struct hl_walker *walker, uint32_t number,
						uint32_t *ret_count)
{
	const struct hl_stack_tree *tree = &walker->walked[number - 1].tree;

	*ret_count = (uint32_t)tree->count;
	return tree->nodes;
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
	};

	int r = hl_walker_sum_counters(map_of(walker, "hl_losses"), &losses.walk);
	if (r < 0)
		return r;
	for (size_t i = 0; i < walker->walked_count; i++) {
		const struct walked *walked = &walker->walked[i];
		losses.mappings_full += walked->mappings_full;
		losses.files_lost += walked->target->lost_files;
		losses.modules_lost += walked->target->lost_modules;
	}
	for (size_t i = 0; i < walker->upload_count; i++)
		losses.rows_full += walker->uploads[i].state == FILE_NO_ROOM;
	*ret_losses = losses;
	return 0;
}

const struct hl_target *hl_walker_target(const struct hl_walker *walker, uint32_t number)
{
	return number && number <= walker->walked_count ? walker->walked[number - 1].target : NULL;
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
	hl_stack_leaves_release(&walker->leaves);
	for (size_t i = 0; i < walker->walked_count; i++)
		hl_stack_tree_release(&walker->walked[i].tree);
	free(walker->walked);
	free(walker->numbers);
	free(walker->uploads);
	free(walker);
}
