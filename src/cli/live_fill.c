/* SPDX-License-Identifier: BSD-2-Clause */
/* Resident bytes and types of running processes as parts of their recordings; see families.h.
 *
 * Labels are types, or ages. A label is a node below that of the stack, as if the recorder had known it at the allocation.
 * What has been freed stays at the stack. */
#include "cli/families.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "guests/outside.h"
#include "heap/owners/owners.h"
#include "recording/recording.h"
#include "recording/recording_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct labelling {
	struct hl_recording_process *process;
	const struct hl_inuse_labels *labels;
	size_t node_capacity, value_capacity, site_capacity, name_capacity;
	uint32_t provider; /* of the labels */
	uint32_t no_name;  /* the index of "" in site_names */
	uint32_t *sites;   /* by name of a label, its site; 0: none yet */
	uint32_t *first;   /* by node: a value of it is values[first - 1], */
	uint32_t *next;	   /* by value: and another one values[next - 1]; 0: there is none */
	struct hl_block_sum *rows; /* by node: of the labels that are not moved yet */
};

/* ---- labels ---- */

static int add_name(struct labelling *labelling, const char *text, uint32_t *ret_index)
{
	struct hl_recording_process *process = labelling->process;
	char *name = strdup(text);

	if (!name || HL_ARRAY_APPEND(process->site_names, process->site_name_count,
				     labelling->name_capacity, name) < 0) {
		free(name);
		return -ENOMEM;
	}
	*ret_index = process->site_name_count - 1;
	return 0;
}

static int find_provider(struct labelling *labelling)
{
	struct hl_recording_process *process = labelling->process;
	size_t capacity = process->provider_count;

	for (uint32_t i = 0; i < process->provider_count; i++)
		if (!strcmp(process->providers[i].name, labelling->labels->provider)) {
			labelling->provider = i;
			return 0;
		}
	if (process->provider_count == HL_RECORDING_PROVIDERS_MAX)
		return -E2BIG;
	char *name = strdup(labelling->labels->provider);
	if (!name || HL_ARRAY_RESERVE(process->providers, capacity, capacity + 1) < 0) {
		free(name);
		return -ENOMEM;
	}
	labelling->provider = process->provider_count++;
	process->providers[labelling->provider] = (struct hl_recording_provider){.name = name};
	return 0;
}

static int find_site(struct labelling *labelling, uint32_t label, uint32_t *ret_site)
{
	struct hl_recording_process *process = labelling->process;
	uint32_t *site = &labelling->sites[label], name;

	if (*site) {
		*ret_site = *site;
		return 0;
	}
	if (process->site_count == HL_RECORDING_SITES_MAX)
		return -E2BIG;
	int r = add_name(labelling, hl_strings_text(labelling->labels->names, label), &name);
	if (r == 0)
		r = HL_ARRAY_APPEND(process->sites, process->site_count, labelling->site_capacity,
				    (struct hl_recording_site){.provider = labelling->provider,
							       .function = name,
							       .source = labelling->no_name});
	*ret_site = *site = process->site_count;
	return r;
}

/* ---- nodes ---- */

static int add_node(struct labelling *labelling, uint32_t parent, uint64_t frame, uint32_t *ret_id)
{
	struct hl_recording_process *process = labelling->process;

	if (process->node_count == HL_RECORDING_NODES_MAX)
		return -E2BIG;
	int r = HL_ARRAY_APPEND(process->nodes, process->node_count, labelling->node_capacity,
				(struct hl_recording_node){.frame = frame, .parent = parent});
	*ret_id = process->node_count;
	return r;
}

/* The node of blocks of ${label} of the stack ${id}. Size classes stay innermost. */
static int make_node(struct labelling *labelling, uint32_t id, uint32_t label, uint32_t *ret_id)
{
	const struct hl_recording_node stack = labelling->process->nodes[id - 1];
	uint32_t site, size_class;
	bool has_size = hl_frame_key_is_size(stack.frame, &size_class);

	int r = find_site(labelling, label, &site);
	if (r == 0)
		r = add_node(labelling, has_size ? stack.parent : id,
			     hl_site_frame_key(site, false), ret_id);
	return r == 0 && has_size ? add_node(labelling, *ret_id, stack.frame, ret_id) : r;
}

/* ---- values ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What ${value} has in use, as far as it was allocated there. */
static uint64_t in_use(uint64_t allocated, uint64_t freed)
{
	return allocated > freed ? allocated - freed : 0;
}

/* Where not each size is known, bytes of rows are estimates. If the rows of a stack have all of its blocks, theirs add up to
 * the sum of the stack, which is known. */
static uint64_t bytes_of(struct labelling *labelling, const struct hl_inuse_label *row, uint32_t id)
{
	const struct hl_block_sum rows = labelling->rows[id];
	struct hl_block_sum left = {0};

	for (uint32_t i = labelling->first[id]; i; i = labelling->next[i - 1]) {
		const struct hl_recording_value *value = &labelling->process->values[i - 1];
		left.blocks += (int64_t)(value->alloc_objects - value->free_objects);
		left.bytes += (int64_t)(value->alloc_bytes - value->free_bytes);
	}
	labelling->rows[id].blocks -= (int64_t)row->blocks;
	labelling->rows[id].bytes -= (int64_t)row->bytes;
	if (left.blocks <= 0 || left.bytes <= 0)
		return row->bytes;
	if (row->blocks >= (uint64_t)left.blocks)
		return (uint64_t)left.bytes;
	return rows.blocks == left.blocks && rows.bytes > 0
		       ? (uint64_t)((__uint128_t)row->bytes * (uint64_t)left.bytes /
				    (uint64_t)rows.bytes)
		       : row->bytes;
}

/* Moves what is in use of the stack of ${row} to its label, from one thread after the other: who allocated which
 * block is not known. The process went on between the counters and the blocks, so there may be less. */
static int move(struct labelling *labelling, const struct hl_inuse_label *row, uint32_t id)
{
	struct hl_recording_process *process = labelling->process;
	uint64_t blocks = row->blocks, bytes = bytes_of(labelling, row, id);
	uint32_t node;

	int r = make_node(labelling, id, row->name, &node);
	for (uint32_t i = labelling->first[id]; i && r == 0 && (blocks || bytes);
	     i = labelling->next[i - 1]) {
		struct hl_recording_value *value = &process->values[i - 1];
		struct hl_recording_value moved = {
			.node = node,
			.thread = value->thread,
			.alloc_objects =
				least(blocks, in_use(value->alloc_objects, value->free_objects)),
			.alloc_bytes = least(bytes, in_use(value->alloc_bytes, value->free_bytes)),
		};
		if (!moved.alloc_objects && !moved.alloc_bytes)
			continue;
		blocks -= moved.alloc_objects;
		bytes -= moved.alloc_bytes;
		value->alloc_objects -= moved.alloc_objects;
		value->alloc_bytes -= moved.alloc_bytes;
		r = HL_ARRAY_APPEND(process->values, process->value_count,
				    labelling->value_capacity, moved);
	}
	return r;
}

/* ---- labels of a process ---- */

static int find_values(struct labelling *labelling)
{
	const struct hl_recording_process *process = labelling->process;

	labelling->first = calloc(process->node_count + (size_t)1, sizeof(*labelling->first));
	labelling->next = calloc(process->value_count + (size_t)1, sizeof(*labelling->next));
	labelling->rows = calloc(process->node_count + (size_t)1, sizeof(*labelling->rows));
	labelling->sites = calloc(labelling->labels->names->count + 1, sizeof(*labelling->sites));
	if (!labelling->first || !labelling->next || !labelling->rows || !labelling->sites)
		return -ENOMEM;
	for (uint32_t i = 0; i < process->value_count; i++) {
		uint32_t *first = &labelling->first[process->values[i].node];
		labelling->next[i] = *first;
		*first = i + 1;
	}
	return 0;
}

/* Labels what ${process} has in use. 0; -ESRCH if ${labels} are of another program, -ENOMEM, or -E2BIG. */
static int label_fill(struct hl_recording_process *process, const struct hl_inuse_labels *labels)
{
	struct labelling labelling = {.process = process,
				      .labels = labels,
				      .node_capacity = process->node_count,
				      .value_capacity = process->value_count,
				      .site_capacity = process->site_count,
				      .name_capacity = process->site_name_count};
	uint64_t count = hl_block_owners_count(labels->owners);
	HL_FREED uint32_t *ids = calloc(count, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	if (!hl_block_owners_match(labels->owners, process->nodes, process->node_count, ids))
		return -ESRCH;
	int r = find_values(&labelling);
	if (r == 0 && labels->count && (r = find_provider(&labelling)) == 0)
		r = add_name(&labelling, "", &labelling.no_name);
	for (size_t i = 0; i < labels->count && r == 0; i++) {
		const struct hl_inuse_label *row = &labels->rows[i];
		struct hl_block_sum *sum =
			&labelling.rows[row->number < count ? ids[row->number] : 0];
		sum->blocks += (int64_t)row->blocks;
		sum->bytes += (int64_t)row->bytes;
	}
	for (size_t i = 0; i < labels->count && r == 0; i++) {
		const struct hl_inuse_label *row = &labels->rows[i];
		if (row->number < count && ids[row->number])
			r = move(&labelling, row, ids[row->number]);
	}
	free(labelling.first);
	free(labelling.next);
	free(labelling.rows);
	free(labelling.sites);
	return r;
}

/* ---- what running processes say ---- */

static_assert(HL_GUESTS_OUTSIDE_MAX * HL_GUEST_LABELS <= HL_LIVE_LABELS_MAX,
	      "all labels have room");

struct wishes {
	bool pages, types, ages;
};

/* ${ids}: the node of each stack. */
static int copy(const struct hl_resident *resident, const uint32_t *ids,
		struct hl_recording_process *process)
{
	process->resident = calloc(process->node_count + (size_t)1, sizeof(*process->resident));
	if (!process->resident)
		return -ENOMEM;
	for (size_t number = 0; number < resident->stack_count; number++) {
		const struct hl_resident_bytes *bytes = &resident->stacks[number];
		if (!ids[number])
			process->resident_unknown_bytes += bytes->resident;
		else if (bytes->resident || bytes->swapped)
			process->resident[process->resident_count++] =
				(struct hl_recording_resident){ids[number], bytes->resident,
							       bytes->swapped};
	}
	process->resident_is_mean = resident->sizes_are_means;
	process->knows_resident = true;
	return 0;
}

/* -ESRCH, too, when another program has the number, or the place, of ${process} by now. */
static int fill_pages(struct hl_recording_process *process, struct hl_error *err)
{
	const struct hl_heap_settings settings = {0};
	struct hl_resident *resident = NULL;
	int r = hl_resident_read((pid_t)process->pid, &settings, &resident, err);

	if (r < 0)
		return r;
	HL_FREED uint32_t *ids = calloc(resident->stack_count, sizeof(*ids));
	if (!ids)
		r = -ENOMEM;
	else if (!hl_block_owners_match(resident->owners, process->nodes, process->node_count, ids))
		r = -ESRCH;
	if (r == 0)
		r = copy(resident, ids, process);
	hl_resident_free(resident);
	return r == -ENOMEM ? hl_error_set(err, r, "out of memory") : r;
}

/* A process without the runtime has no such labels: that is not a failure. */
static int fill_kind(struct hl_recording_process *process, struct hl_block_owners *owners,
		     hl_guest_read_labels_fn *read, struct hl_error *err)
{
	struct hl_inuse_labels *labels = NULL;
	int r = read((pid_t)process->pid, owners, &labels, err);

	if (r == -ENOENT)
		return 0;
	if (r == 0 &&
	    ((r = hl_inuse_labels_complete(labels)) < 0 || (r = label_fill(process, labels)) < 0))
		hl_error_set(err, r, "%s", strerror(-r));
	hl_inuse_labels_free(labels);
	return r;
}

static int fill_labels(struct hl_recording_process *process, struct wishes wishes,
		       struct hl_error *err)
{
	const bool wanted[] = {[HL_GUEST_TYPES] = wishes.types, [HL_GUEST_AGES] = wishes.ages};
	const char *what = "what blocks are";
	struct hl_block_owners *owners = NULL;
	struct hl_error why = {0};
	int r = 0;

	if (wishes.types || wishes.ages)
		r = hl_inuse_labels_open((pid_t)process->pid, &owners, &why);
	for (size_t i = 0; r == 0 && hl_guests_outside[i]; i++)
		for (size_t kind = 0; r == 0 && kind < HL_GUEST_LABELS; kind++) {
			if (!wanted[kind] || !hl_guests_outside[i]->labels[kind].read)
				continue;
			what = hl_guests_outside[i]->labels[kind].what;
			r = fill_kind(process, owners, hl_guests_outside[i]->labels[kind].read,
				      &why);
		}
	hl_block_owners_free(owners);
	return r < 0 && r != -ESRCH ? hl_error_set(err, r, "cannot tell %s: %s", what, why.text)
				    : r;
}

/* ---- services ---- */

static bool is_handle_of(const char *name, const struct hl_guest_service *service)
{
	char handle[sizeof(":00000000")];

	snprintf(handle, sizeof(handle), ":%08x", service->handle);
	return strcmp(name, handle) == 0;
}

/* Of the first guest that has some; as hl_guest_outside.read_services. */
static int read_services(pid_t pid, struct hl_guest_service **ret_services, size_t *ret_count)
{
	int r = -ENOENT;

	for (size_t i = 0; r < 0 && r != -ENOMEM && hl_guests_outside[i]; i++)
		if (hl_guests_outside[i]->read_services)
			r = hl_guests_outside[i]->read_services(pid, ret_services, ret_count);
	return r;
}

/* Gives services that are known by their handles the names that they have now. Returns whether there was one, or a
 * negative errno. */
static int name_services(struct hl_recording_process *process)
{
	HL_FREED struct hl_guest_service *services = NULL;
	size_t count = 0;
	int named = 0;

	for (uint32_t i = 0; i < process->site_count; i++) {
		const struct hl_recording_site *site = &process->sites[i];
		char **name = &process->site_names[site->function], *longer;
		if (strcmp(process->providers[site->provider].name, HL_SERVICE_PROVIDER) != 0 ||
		    (*name)[0] != ':')
			continue;
		int r = services ? 0 : read_services((pid_t)process->pid, &services, &count);
		if (r < 0)
			return r == -ENOMEM ? r : 0;
		for (size_t s = 0; s < count; s++) {
			if (!services[s].name[0] || !is_handle_of(*name, &services[s]))
				continue;
			if (asprintf(&longer, "%s %s", services[s].name, *name) < 0)
				return -ENOMEM;
			free(*name);
			*name = longer;
			named = 1;
			break;
		}
	}
	return named;
}

/* Fills the processes that have not ended. One that has ended meanwhile is left out. Labels come last: they
 * are nodes that the process does not have. */
static int fill(struct hl_recording *recording, struct wishes wishes, struct hl_error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < recording->process_count && r == 0; i++) {
		struct hl_recording_process *process = &recording->processes[i];
		struct hl_error why = {0};
		if (process->complete)
			continue;
		if (name_services(process) < 0)
			return hl_error_set(err, -ENOMEM, "out of memory");
		if (wishes.pages && !process->knows_resident)
			r = fill_pages(process, &why);
		if (r < 0 && r != -ESRCH)
			return hl_error_set(err, r, "cannot tell what is in RAM: %s", why.text);
		if (r == 0)
			r = fill_labels(process, wishes, err);
		if (r < 0 && r != -ESRCH)
			return r;
		r = 0;
	}
	return r;
}

/* ---- recordings in directories ---- */

int hl_live_fill_snapshot(const char *path, struct hl_error *err)
{
	struct hl_recording *recording = NULL;
	int r = hl_recording_open(path, &recording, err);

	if (r == 0)
		r = fill(recording, (struct wishes){true, true, true}, err);
	HL_CLOSED int directory = r < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && directory < 0)
		r = hl_error_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	for (uint32_t i = 0; r == 0 && i < recording->process_count; i++)
		if (recording->processes[i].knows_resident)
			r = hl_recording_write_process(directory, &recording->processes[i], err);
	hl_recording_free(recording);
	return r;
}

/* Has ${change} change process ${pid} of the recording in directory ${path}: by ${how}, to a negative errno, 0 where nothing has
 * changed, or another number. */
static int rewrite(const char *path, pid_t pid,
		   int (*change)(struct hl_recording_process *process, const void *how),
		   const void *how, struct hl_error *err)
{
	struct hl_recording *recording = NULL;
	int r = hl_recording_open(path, &recording, err);

	HL_CLOSED int directory = r < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && directory < 0)
		r = hl_error_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	for (uint32_t i = 0; r == 0 && i < recording->process_count; i++) {
		struct hl_recording_process *process = &recording->processes[i];
		if (process->pid != (uint32_t)pid)
			continue;
		r = change(process, how);
		if (r < 0)
			hl_error_set(err, r, "%s", strerror(-r));
		else if (r > 0)
			r = hl_recording_write_process(directory, process, err);
		break;
	}
	hl_recording_free(recording);
	return r;
}

static int add_labels(struct hl_recording_process *process, const void *labels)
{
	int r = label_fill(process, labels);

	return r < 0 ? r : 1;
}

void hl_live_labels_read(pid_t pid, struct hl_live_labels *labels)
{
	if (hl_inuse_labels_open(pid, &labels->owners, NULL) < 0)
		return;
	for (size_t i = 0; hl_guests_outside[i]; i++)
		for (size_t kind = 0; kind < HL_GUEST_LABELS; kind++) {
			hl_guest_read_labels_fn *read = hl_guests_outside[i]->labels[kind].read;
			if (!read ||
			    read(pid, labels->owners, &labels->of[labels->count].labels, NULL) < 0)
				continue;
			labels->of[labels->count++].what = hl_guests_outside[i]->labels[kind].what;
		}
}

void hl_live_labels_release(struct hl_live_labels *labels)
{
	for (size_t i = 0; i < labels->count; i++)
		hl_inuse_labels_free(labels->of[i].labels);
	hl_block_owners_free(labels->owners);
	*labels = (struct hl_live_labels){0};
}

int hl_live_fill_labels(const char *path, pid_t pid, struct hl_inuse_labels *labels,
			struct hl_error *err)
{
	int r = hl_inuse_labels_complete(labels);

	if (r < 0)
		return hl_error_set(err, r, "%s", strerror(-r));
	return rewrite(path, pid, add_labels, labels, err);
}

static int add_names(struct hl_recording_process *process, const void *nothing)
{
	(void)nothing;
	return name_services(process);
}

int hl_live_fill_services(const char *path, pid_t pid, struct hl_error *err)
{
	return rewrite(path, pid, add_names, NULL, err);
}

/* ---- recordings that go on ---- */

static struct {
	struct hl_recording_filler filler;
	struct wishes wishes;
} live;

static int fill_running(struct hl_recording_filler *filler, struct hl_recording *recording,
			struct hl_error *err)
{
	(void)filler;
	return recording->running ? fill(recording, live.wishes, err) : 0;
}

struct hl_recording_filler *hl_live_filler(bool wants_pages, bool wants_types, bool wants_ages)
{
	live.filler.fill = fill_running;
	live.wishes = (struct wishes){wants_pages, wants_types, wants_ages};
	return &live.filler;
}
