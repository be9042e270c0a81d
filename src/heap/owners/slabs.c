/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks for slabs by way of the collector, and reads the answer in the region; see owners.h. */
#include "heap/owners/owners.h"

#include "base/clock.h"
#include "collector/control_ask.h"
#include "heap/other_allocators.h"
#include "heap/owners/owner_table.h"

#include <errno.h>
#include <string.h>

#define WAIT_NS	 (2 * HL_NS_PER_SECOND)
#define PAUSE_NS 2000000

const struct hl_allocator_traits *hl_slabs_allocator(const struct hl_slabs *slabs)
{
	for (size_t i = 0; slabs->said.kind && i < hl_allocator_count; i++)
		if (hl_allocator_traits[i].answers_as == slabs->said.kind)
			return &hl_allocator_traits[i];
	return NULL;
}

/* ---- occupancy ---- */

static void add_slabs(uint64_t bytes[HL_OCCUPANCY_SLOTS], const struct hl_slab_class *class,
		      uint64_t slabs, uint64_t used, uint64_t blocks)
{
	if (!slabs || !blocks)
		return;
	__uint128_t slot = (__uint128_t)used * HL_OCCUPANCY_SLOTS / blocks;
	bytes[slot < HL_OCCUPANCY_SLOTS ? (size_t)slot : HL_OCCUPANCY_SLOTS - 1] +=
		slabs * class->slab_bytes;
}

void hl_slabs_occupancy(const struct hl_introspection *said, uint64_t ret_bytes[HL_OCCUPANCY_SLOTS])
{
	memset(ret_bytes, 0, HL_OCCUPANCY_SLOTS * sizeof(*ret_bytes));
	for (uint32_t i = 0; i < said->class_count && i < HL_SLAB_CLASSES_MAX; i++) {
		const struct hl_slab_class *class = &said->classes[i];
		uint64_t full = class->full_slabs < class->slabs ? class->full_slabs : class->slabs;
		uint64_t in_full = class->slabs ? class->blocks / class->slabs * full : 0;
		uint64_t rest_used =
			class->used_blocks > in_full ? class->used_blocks - in_full : 0;
		uint64_t rest = class->blocks > in_full ? class->blocks - in_full : 0;
		add_slabs(ret_bytes, class, full, 1, 1);
		add_slabs(ret_bytes, class, class->slabs - full, rest_used, rest);
	}
}

/* ---- asking ---- */

static int send_request(pid_t pid, struct hl_error *err)
{
	struct hl_control_peers peers;
	struct hl_control_request request = {.verb = HL_CONTROL_ALLOCATOR, .pid = pid};
	json_t *answer = NULL;

	int r = hl_control_ask_search(pid, &peers);
	if (r == 0 && !peers.count)
		r = hl_error_set(
			err, -ENOTCONN,
			"cannot ask process %d: its collector is not reached from here; see "
			"'heapline ctl -p %d status'",
			pid, pid);
	if (r == 0)
		r = hl_control_ask(&peers.peers[0], &request, &answer, err);
	if (r == 0)
		json_decref(answer);
	hl_control_ask_release(&peers);
	return r;
}

static int wait_for_answer(struct hl_open_region *region, struct hl_error *err)
{
	uint64_t end_ns = hl_clock_ns(CLOCK_MONOTONIC) + WAIT_NS;

	do {
		struct timespec pause = {.tv_nsec = PAUSE_NS};
		int r = hl_open_region_refresh(region);
		if (r < 0)
			return r;
		const struct hl_introspection_box *box =
			&hl_open_region_header(region)->introspection;
		if (atomic_load(&box->asked) == atomic_load(&box->answered))
			return 0;
		nanosleep(&pause, NULL);
	} while (hl_clock_ns(CLOCK_MONOTONIC) < end_ns);
	return hl_error_set(
		err, -ETIMEDOUT,
		"process %d has not answered: it answers when it allocates, which it has "
		"not done for two seconds; try again, or see 'heapline heap -p %d'",
		region->pid, region->pid);
}

/* Lengths in the answer are not trusted. */
static int take_answer(const struct hl_open_region *region, struct hl_slabs *ret_slabs,
		       struct hl_error *err)
{
	ret_slabs->said = hl_open_region_header(region)->introspection.answer;
	if (ret_slabs->said.class_count > HL_SLAB_CLASSES_MAX)
		ret_slabs->said.class_count = HL_SLAB_CLASSES_MAX;
	const struct hl_allocator_traits *allocator = hl_slabs_allocator(ret_slabs);
	if (!allocator)
		return hl_error_set(
			err, -ENOTSUP,
			"the allocator of process %d has no functions to ask it: those "
			"of " HL_ALLOCATORS_THAT_ANSWER("and") " are known; glibc's heap is "
							       "read without asking",
			region->pid);
	if (allocator->reports_slabs)
		memcpy(ret_slabs->occupancy_bytes, ret_slabs->said.occupancy_bytes,
		       sizeof(ret_slabs->occupancy_bytes));
	else
		hl_slabs_occupancy(&ret_slabs->said, ret_slabs->occupancy_bytes);
	return 0;
}

int hl_slabs_ask(pid_t pid, struct hl_slabs *ret_slabs, struct hl_error *err)
{
	struct hl_owner_names *names;
	struct hl_open_region region;

	int r = hl_owner_names_new(pid, true, &names, err);
	if (r < 0)
		return r;
	bool is_library = hl_other_allocator_library(hl_owner_names_maps(names)).allocator;
	r = hl_open_region(pid, names, &region);
	hl_owner_names_free(names);
	if (r == -ENODATA && is_library)
		return hl_error_set(err, r,
				    "cannot ask the allocator of process %d: there is no recorder "
				    "in it; 'heapline attach -p %d' brings one in",
				    pid, pid);
	if (r == -ENODATA)
		return hl_error_set(
			err, r,
			"cannot ask the allocator of process %d: there is no recorder in it; "
			"only " HL_ALLOCATORS_THAT_ANSWER("and") " can be asked, and 'heapline "
								 "pgfault "
								 "-p %d 60' shows what makes the "
								 "process grow",
			pid, pid);
	if (r == 0) {
		r = send_request(pid, err);
		if (r == 0)
			r = wait_for_answer(&region, err);
		if (r == 0)
			r = take_answer(&region, ret_slabs, err);
		hl_open_region_release(&region);
	}
	return r < 0 ? hl_error_set(err, r, "cannot ask the allocator of process %d: %s", pid,
				    strerror(-r))
		     : 0;
}
