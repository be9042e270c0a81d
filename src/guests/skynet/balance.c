/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds up stacks by the labels of their blocks; see balance.h. */
#include "guests/skynet/balance.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/index.h"
#include "elf/elf.h"
#include "guests/lua/live_states.h"
#include "guests/traits.h"
#include "heap/owners/owner_table.h"
#include "heap/owners/owners.h"
#include "process/maps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct summing {
	struct hl_services *services;
	struct hl_index index; /* of services, + 1 */
};

/* ---- rows ---- */

/* The one with the longest name stays: a service is first known by its handle alone. */
static int rename_to(struct hl_service *service, const char *name)
{
	if (!name || (service->name && strlen(service->name) >= strlen(name)))
		return 0;
	char *copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	free(service->name);
	service->name = copy;
	return 0;
}

static bool is_same(const struct hl_service *service, uint32_t handle, const char *name)
{
	if (handle || service->handle || !name || !service->name)
		return service->handle == handle && !service->name == !name;
	return strcmp(service->name, name) == 0;
}

/* The row of ${handle}, or, where that is 0, of ${name}. */
static int find(struct summing *summing, uint32_t handle, const char *name,
		struct hl_service **ret_service)
{
	struct hl_services *services = summing->services;
	uint32_t hash = handle ? hl_hash_pair(handle, 0)
			       : hl_hash_bytes(name ? name : "", name ? strlen(name) : 0);
	uint32_t id, at = hash;

	while ((id = hl_index_next(&summing->index, hash, &at)))
		if (is_same(&services->services[id - 1], handle, name))
			break;
	if (!id) {
		int r = HL_ARRAY_APPEND(services->services, services->count, services->capacity,
					(struct hl_service){.handle = handle});
		if (r == 0)
			r = hl_index_add(&summing->index, hash, (uint32_t)services->count);
		if (r < 0)
			return r;
		id = (uint32_t)services->count;
	}
	*ret_service = &services->services[id - 1];
	return rename_to(*ret_service, name);
}

static void add(struct hl_service *service, bool is_lua, const struct hl_block_sum *sum,
		uint64_t resident_bytes)
{
	*(is_lua ? &service->lua_bytes : &service->c_bytes) += sum->bytes;
	*(is_lua ? &service->lua_blocks : &service->c_blocks) += sum->blocks;
	service->resident_bytes += resident_bytes;
}

static bool has_any(const struct hl_block_sum *sum, const struct hl_resident_bytes *bytes)
{
	return sum->bytes || sum->blocks || bytes->resident;
}

/* Whether blocks have services, or types. */
static void look_at_labels(const struct hl_resident *resident, const struct hl_block_sum *sums,
			   bool *ret_has_services, bool *ret_has_types)
{
	*ret_has_services = *ret_has_types = false;
	for (size_t number = 1; number < resident->stack_count; number++) {
		struct hl_block_labels labels;
		if (!has_any(&sums[number], &resident->stacks[number]))
			continue;
		hl_block_owners_labels(resident->owners, number, &labels);
		*ret_has_services |= labels.service != NULL;
		*ret_has_types |= labels.type != NULL;
	}
}

static int add_stacks(const struct hl_resident *resident, const struct hl_block_sum *sums,
		      struct summing *summing)
{
	struct hl_services *services = summing->services;

	for (size_t number = 1; number < resident->stack_count; number++) {
		const struct hl_resident_bytes *bytes = &resident->stacks[number];
		struct hl_block_labels labels;
		struct hl_service *service;
		if (!has_any(&sums[number], bytes))
			continue;
		hl_block_owners_labels(resident->owners, number, &labels);
		int r = services->by == HL_BY_TYPE
				? find(summing, 0, labels.type, &service)
				: find(summing, labels.handle, labels.service, &service);
		if (r < 0)
			return r;
		add(service, labels.type != NULL, &sums[number], bytes->resident);
		add(&services->total, labels.type != NULL, &sums[number], bytes->resident);
		service->hides_resident |= bytes->has_inner;
		services->total.hides_resident |= bytes->has_inner;
	}
	return 0;
}

/* ---- messages ---- */

static int add_queue(struct summing *summing, const struct hl_guest_service *queue)
{
	struct hl_services *services = summing->services;
	struct hl_service *service = NULL;
	char name[HL_GUEST_SERVICE_NAME_MAX + sizeof(" :00000000")];
	int r = 0;

	for (size_t i = 0; i < services->count && !service; i++)
		if (services->services[i].handle == queue->handle)
			service = &services->services[i];
	if (!service && !queue->messages)
		return 0;
	if (!service)
		r = find(summing, queue->handle, NULL, &service);
	snprintf(name, sizeof(name), "%s :%08x", queue->name, queue->handle);
	if (r == 0 && queue->name[0])
		r = rename_to(service, name);
	if (r < 0)
		return r;

	service->queued_messages = queue->messages;
	service->queued_bytes = queue->bytes;
	services->total.queued_messages += queue->messages;
	services->total.queued_bytes += queue->bytes;
	return 0;
}

static int add_queues(struct summing *summing, pid_t pid)
{
	struct hl_services *services = summing->services;
	HL_FREED struct hl_guest_service *queues = NULL;
	size_t count = 0;

	int r = hl_skynet_services_read(pid, &queues, &count);
	if (r == -ENOMEM)
		return r;
	services->has_queues = r == 0;
	services->no_queues =
		r == -ENOENT
			? "the program's file has no symbols that name skynet's table of services"
			: "skynet's table of services is not where it is known to be";
	for (size_t i = 0; i < count && r == 0; i++)
		r = add_queue(summing, &queues[i]);
	return services->has_queues ? r : 0;
}

/* ---- states of Lua ---- */

struct by_state {
	struct hl_services *services;
	struct hl_lua_states_now *states;
	uint64_t stack_count;
	struct hl_owner_counts
		shares; /* by stack << 32 | number of the state << 1 | whether Lua's own */
};

static int add_block(void *context, const struct hl_owned_block *block)
{
	struct by_state *by = context;
	uint32_t age;
	size_t index;

	if (block->number >= by->stack_count)
		return 0;
	enum hl_lua_owner owner =
		hl_lua_states_find(by->states, block->number, block->address, &index, &age);
	uint64_t number = owner == HL_LUA_NOBODYS ? 0 : index + 1;
	return hl_owner_counts_add(&by->shares,
				   block->number << 32 | number << 1 | (owner == HL_LUA_OWN),
				   block->requested, 1);
}

static int by_stack(const void *left, const void *right)
{
	const struct hl_owner_count *a = left, *b = right;

	return (a->key > b->key) - (a->key < b->key);
}

static int64_t share_of(int64_t all, uint64_t part, uint64_t whole)
{
	return whole ? (int64_t)((double)all * (double)part / (double)whole) : 0;
}

/* Divides what the stack ${number} has by the counters among the states of its blocks, which are ${count} of ${shares}: mostly one. The last
 * one gets what is left. The program goes on: where blocks have been added since the counters were read, these are raised. */
static void divide(const struct by_state *by, const struct hl_resident *resident, uint64_t number,
		   const struct hl_owner_count *shares, size_t count, struct hl_block_sum sum)
{
	uint64_t bytes = 0, blocks = 0, ram = resident->stacks[number].resident;
	uint64_t bytes_so_far = 0, blocks_so_far = 0, given_ram = 0;
	struct hl_block_sum given = {0};
	struct hl_block_labels labels;

	hl_block_owners_labels(resident->owners, number, &labels);
	for (size_t i = 0; i < count; i++) {
		bytes += shares[i].bytes;
		blocks += shares[i].blocks;
	}
	if ((int64_t)blocks > sum.blocks) {
		sum.bytes = sum.blocks > 0 ? share_of(sum.bytes, blocks, (uint64_t)sum.blocks)
					   : (int64_t)bytes;
		sum.blocks = (int64_t)blocks;
	}
	for (size_t i = 0; i < count || i == 0; i++) {
		uint64_t key = count ? shares[i].key : 0;
		bool is_last = i + 1 >= count;
		bool is_lua = labels.type || key & 1;
		struct hl_service *state = &by->services->services[(uint32_t)key >> 1];
		bytes_so_far += count ? shares[i].bytes : 0;
		blocks_so_far += count ? shares[i].blocks : 0;
		/* Differences of sums, so that what is rounded off one part goes to the next. */
		const struct hl_block_sum part = {
			(is_last ? sum.bytes : share_of(sum.bytes, bytes_so_far, bytes)) -
				given.bytes,
			(is_last ? sum.blocks : share_of(sum.blocks, blocks_so_far, blocks)) -
				given.blocks};
		uint64_t part_ram =
			(is_last ? ram : (uint64_t)share_of((int64_t)ram, bytes_so_far, bytes)) -
			given_ram;
		given.bytes += part.bytes;
		given.blocks += part.blocks;
		given_ram += part_ram;
		add(state, is_lua, &part, part_ram);
		add(&by->services->total, is_lua, &part, part_ram);
		state->hides_resident |= resident->stacks[number].has_inner;
		by->services->total.hides_resident |= resident->stacks[number].has_inner;
	}
}

/* A row for each state, and before them one for blocks that have none. */
static int make_states(struct by_state *by)
{
	struct hl_services *services = by->services;
	size_t count = hl_lua_states_count(by->states);

	if (HL_ARRAY_RESERVE(services->services, services->capacity, count + 1) < 0)
		return -ENOMEM;
	memset(services->services, 0, (count + 1) * sizeof(*services->services));
	for (services->count = 1; services->count <= count; services->count++) {
		struct hl_service *row = &services->services[services->count];
		const struct hl_lua_state *state =
			hl_lua_states_get(by->states, services->count - 1);
		if (asprintf(&row->name, "%s%s", *state->name ? state->name : "state",
			     state->is_open ? "" : " (closed)") < 0) {
			row->name = NULL;
			return -ENOMEM;
		}
		row->handle = services->count;
		row->counted_bytes = state->counted_bytes;
		services->total.counted_bytes += state->counted_bytes;
	}
	return 0;
}

static void drop_empty(struct hl_services *services)
{
	size_t kept = 0;

	for (size_t i = 0; i < services->count; i++) {
		struct hl_service *row = &services->services[i];
		if (row->counted_bytes || row->lua_blocks || row->c_blocks || row->resident_bytes)
			services->services[kept++] = *row;
		else
			free(row->name);
	}
	services->count = kept;
}

static int add_states(const struct hl_resident *resident, const struct hl_block_sum *sums,
		      struct by_state *by)
{
	struct hl_owner_counts *shares = &by->shares;
	size_t at = 0;
	int r = make_states(by);

	by->stack_count = resident->stack_count;
	if (r == 0)
		r = hl_block_owners_each(resident->owners, add_block, by);
	if (r < 0)
		return r;
	if (shares->count)
		qsort(shares->counts, shares->count, sizeof(*shares->counts), by_stack);
	for (uint64_t number = 1; number < resident->stack_count; number++) {
		while (at < shares->count && shares->counts[at].key >> 32 < number)
			at++;
		size_t first = at;
		while (at < shares->count && shares->counts[at].key >> 32 == number)
			at++;
		if (at > first || has_any(&sums[number], &resident->stacks[number]))
			divide(by, resident, number, shares->counts + first, at - first,
			       sums[number]);
	}
	drop_empty(by->services);
	return 0;
}

/* ---- the order of rows ---- */

static int heavier(const void *left, const void *right)
{
	const struct hl_service *a = left, *b = right;
	int64_t x = a->lua_bytes + a->c_bytes, y = b->lua_bytes + b->c_bytes;

	if (x != y)
		return x < y ? 1 : -1;
	return (a->handle > b->handle) - (a->handle < b->handle);
}

static int waits_more(const void *left, const void *right)
{
	const struct hl_service *a = left, *b = right;

	if (a->queued_messages != b->queued_messages)
		return a->queued_messages < b->queued_messages ? 1 : -1;
	return heavier(left, right);
}

void hl_services_sort_by_waiting(struct hl_services *services)
{
	if (services->count)
		qsort(services->services, services->count, sizeof(*services->services), waits_more);
}

/* ---- all that is in RAM ---- */

/* Takes off ${sum} what it has of ${bytes}; returns the rest. */
static uint64_t take_off(uint64_t *sum, uint64_t bytes)
{
	uint64_t taken = bytes < *sum ? bytes : *sum;

	*sum -= taken;
	return bytes - taken;
}

static void add_parts(const struct hl_heap *heap, const struct hl_resident *resident,
		      struct hl_services *services)
{
	const struct hl_heap_rss *rss = &heap->rss;
	uint64_t *parts = services->parts, walked = 0, sum = 0;
	uint64_t of_allocator = rss->other_allocator_bytes;
	uint64_t other = rss->anonymous_bytes - rss->anonymous[HL_ANONYMOUS_VARIABLES];

	for (size_t number = 1; number < resident->stack_count; number++)
		walked += resident->stacks[number].walked;
	uint64_t listed = services->total.resident_bytes - walked;
	services->is_walked = resident->heap && walked >= listed;
	if (!services->is_walked) {
		of_allocator +=
			rss->anonymous[HL_ANONYMOUS_OTHER] + rss->anonymous[HL_ANONYMOUS_BREAK];
		other -= rss->anonymous[HL_ANONYMOUS_OTHER] + rss->anonymous[HL_ANONYMOUS_BREAK];
	}
	parts[HL_SERVICES_VARIABLES] = rss->anonymous[HL_ANONYMOUS_VARIABLES];
	/* Blocks that no walk visited lie in mappings of an allocator, of others, or in variables. */
	listed = take_off(&of_allocator, listed);
	listed = take_off(&other, listed);
	take_off(&parts[HL_SERVICES_VARIABLES], listed);
	parts[HL_SERVICES_BLOCKS] = services->total.resident_bytes;
	parts[HL_SERVICES_OLDER] = rss->live_bytes > walked ? rss->live_bytes - walked : 0;
	parts[HL_SERVICES_ALLOCATOR] = of_allocator + rss->cached_bytes + rss->free_bytes +
				       rss->overhead_bytes + rss->unscanned_bytes;
	parts[HL_SERVICES_RECORDER] = rss->recorder_bytes;
	parts[HL_SERVICES_STACKS] = rss->stack_bytes;
	parts[HL_SERVICES_CODE] = rss->code_bytes;
	parts[HL_SERVICES_FILES] = rss->file_bytes - rss->code_bytes;
	parts[HL_SERVICES_SHARED] = rss->shared_bytes;
	parts[HL_SERVICES_OTHER] = other;
	for (unsigned part = 0; part < HL_SERVICES_PARTS; part++)
		sum += parts[part];
	services->remainder_bytes = (int64_t)(services->rss_bytes - sum);
	services->unscanned_bytes = rss->unscanned_bytes;
}

/* ---- the whole ---- */

static int refuse(pid_t pid, struct hl_error *err)
{
	return hl_error_set(
		err, -ENODATA,
		"the recorder in process %d has seen neither services nor states of Lua "
		"nor types; 'heapline heap -p %d' shows where its memory is, "
		"'heapline lines -p %d' which lines have it, and "
		"heapline-services(1) what hosts are known",
		(int)pid, (int)pid, (int)pid);
}

static int sum_rows(const struct hl_resident *resident, const struct hl_block_sum *sums,
		    struct hl_services *services, pid_t pid)
{
	struct summing summing = {.services = services};

	int r = add_stacks(resident, sums, &summing);
	if (r == 0 && services->by == HL_BY_SERVICE)
		r = add_queues(&summing, pid);

	hl_index_release(&summing.index);
	return r;
}

static int sum_states(const struct hl_resident *resident, const struct hl_block_sum *sums,
		      struct by_state *by)
{
	by->services->by = HL_BY_STATE;
	by->services->state_max = hl_lua_states_max(by->states);
	int r = add_states(resident, sums, by);
	hl_owner_counts_release(&by->shares);
	hl_lua_states_free(by->states);
	return r;
}

static int sum_up(const struct hl_resident *resident, struct hl_services *services, pid_t pid,
		  struct hl_error *err)
{
	struct by_state by = {.services = services, .shares.shape = {.start = 1, .width = 1}};
	HL_FREED struct hl_block_sum *sums = NULL;
	bool has_services, has_types;
	int r = hl_block_owners_sums(resident->owners, &sums);

	if (r < 0)
		return r;
	look_at_labels(resident, sums, &has_services, &has_types);
	r = has_services ? -ENOENT : hl_lua_states_new(resident->owners, &by.states);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r < 0 && !has_services && !has_types)
		return refuse(pid, err);
	services->by = has_services ? HL_BY_SERVICE : HL_BY_TYPE;
	services->lost_events = hl_block_owners_lost_events(resident->owners);
	r = by.states ? sum_states(resident, sums, &by) : sum_rows(resident, sums, services, pid);
	if (r == 0 && services->count)
		qsort(services->services, services->count, sizeof(*services->services), heavier);
	return r;
}

static int read_all(pid_t pid, const struct hl_resident *resident, struct hl_services *services,
		    struct hl_error *err)
{
	struct hl_heap *pages = NULL;
	struct hl_process_rss rss;

	int r = sum_up(resident, services, pid, err);
	if (r == 0 && !resident->heap)
		r = hl_heap_read_pages(pid, &pages, err);
	if (r == 0)
		r = hl_process_rss_read(pid, &rss, err);
	if (r == 0) {
		services->rss_bytes = rss.rss_pages * (uint64_t)sysconf(_SC_PAGESIZE);
		add_parts(pages ? pages : resident->heap, resident, services);
	}
	hl_heap_free(pages);
	return r;
}

static bool has_lua(Elf *elf)
{
	uint64_t address;

	if (hl_elf_find_symbol(elf, HL_ELF_DYNSYM | HL_ELF_SYMTAB, hl_guest_traits_lua.exported,
			       &address))
		return true;
	for (const struct hl_guest_mark *mark = hl_guest_traits_lua.marks; mark->text; mark++)
		if (hl_elf_has_text(elf, mark->text))
			return true;
	return false;
}

/* Whether a recorder may see services, or states, in process ${pid}: a file of it has Lua, or could not be read. */
static bool may_have_lua(pid_t pid)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};

	if (hl_maps_read(pid, &maps, NULL) < 0)
		return true;
	for (size_t i = 0; i < maps.count; i++) {
		const struct hl_map *map = &maps.maps[i];
		if (!map->inode || !(map->flags & HL_MAP_EXEC))
			continue;
		HL_CLOSED int fd = hl_maps_open_file(pid, map);
		HL_CLEANUP(hl_elf_cleanup) Elf *elf = fd < 0 ? NULL : hl_elf_open(fd);
		if (fd < 0 || (elf && has_lua(elf)))
			return true;
	}
	return false;
}

int hl_services_read(pid_t pid, struct hl_services **ret_services, struct hl_error *err)
{
	const struct hl_heap_settings settings = {0};
	struct hl_services *services = calloc(1, sizeof(*services));
	struct hl_resident *resident = NULL;

	int r = services ? hl_process_facts_read(pid, &services->process, err) : -ENOMEM;
	if (r == 0)
		r = hl_resident_read(pid, &settings, &resident, err);
	if (r == -ENODATA && err && !may_have_lua(pid)) {
		err->text[0] = '\0';
		hl_error_set(err, r,
			     "cannot show services of process %d: none of its files has Lua, and a "
			     "recorder would see neither services nor states; 'heapline heap -p "
			     "%d' shows where its memory is",
			     (int)pid, (int)pid);
	}
	if (r == 0)
		r = read_all(pid, resident, services, err);
	hl_resident_free(resident);
	if (r < 0) {
		hl_services_free(services);
		return err && err->text[0] ? r : hl_error_set(err, r, "%s", strerror(-r));
	}
	*ret_services = services;
	return 0;
}

void hl_services_free(struct hl_services *services)
{
	if (!services)
		return;
	for (size_t i = 0; i < services->count; i++)
		free(services->services[i].name);
	free(services->services);
	hl_process_facts_release(&services->process);
	free(services);
}
