/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads out of a process which requests of PHP have allocated its blocks; see requests.h. */
#include "guests/php/requests.h"

#include "base/frame_key.h"
#include "guests/guest.h"
#include "guests/php/zend_mm.h"
#include "heap/owners/owner_table.h"
#include "recording/recording.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROVIDER  "php"
#define DEPTH_MAX 4096u /* nodes of a damaged region may form a ring */

enum kind {
	UNSEEN,
	STAMPED, /* the recorder stamps the blocks of the stack */
	OTHER,
};

struct reading {
	const struct hl_open_region *region;
	struct hl_php_requests head; /* without its stamps */
	struct hl_stamp_reader stamps;
	uint8_t *kinds; /* by stack, enum kind */
	uint64_t count; /* of stacks */
	struct hl_owner_counts sums;
};

static bool is_stamped(const struct reading *reading, const struct hl_recording_node *node)
{
	const struct hl_recording_process *scripts = &reading->region->scripts;
	uint64_t pc = node->frame & HL_FRAME_PC_MASK;
	uint32_t site;

	if (hl_frame_key_is_site(node->frame, &site))
		return site && site <= scripts->site_count &&
		       !strcmp(scripts->providers[scripts->sites[site - 1].provider].name,
			       PROVIDER);
	if (pc - reading->head.around_start < reading->head.around_end - reading->head.around_start)
		return true;
	for (uint32_t i = 0; i < scripts->provider_count; i++)
		if (!strcmp(scripts->providers[i].name, PROVIDER) &&
		    hl_frame_part_of_code(&scripts->providers[i], pc) == HL_PART_EVAL)
			return true;
	return false;
}

static enum kind kind_of(const struct reading *reading, uint64_t number)
{
	struct hl_frames_outward at = {.node = (uint32_t)number};

	for (unsigned i = 0; i < DEPTH_MAX && at.node; i++) {
		struct hl_recording_node node =
			hl_region_read_node(&reading->region->view, at.node);
		if (hl_frames_step(&at, node.frame, node.parent) && is_stamped(reading, &node))
			return STAMPED;
	}
	return OTHER;
}

/* Blocks of malloc() alone: what rules name is the memory manager's, or nobody stamps it. */
static int add(void *context, const struct hl_owned_block *block)
{
	struct reading *reading = context;

	if (block->is_ruled || block->number >= reading->count)
		return 0;
	uint8_t *kind = &reading->kinds[block->number];
	if (*kind == UNSEEN)
		*kind = (uint8_t)kind_of(reading, block->number);
	uint32_t stamp = *kind == STAMPED ? hl_stamp_read(&reading->stamps, block->address) : 0;
	if (!stamp)
		return 0;
	/* Requests go on while blocks are read. */
	uint32_t number = reading->head.number, age = number > stamp ? number - stamp : 0;
	return hl_owner_counts_add(&reading->sums, block->number << 32 | age, block->requested, 1);
}

static void name_age(char *text, size_t size, uint32_t age, const void *context)
{
	const struct reading *reading = context;

	snprintf(text, size, "%u" HL_AGE_REQUEST "%u of process %d", age,
		 reading->head.number - age, (int)reading->region->pid);
}

static int read_all(struct reading *reading, struct hl_inuse_labels *ages)
{
	uint64_t address = hl_guest_table_address(reading->region, HL_GUEST_PHP);

	if (!address)
		return -ENOENT;
	int r = hl_owners_read_memory(reading->region->pid, address, &reading->head,
				      offsetof(struct hl_php_requests, stamps));
	if (r < 0)
		return r;
	reading->stamps = (struct hl_stamp_reader){
		.pid = reading->region->pid,
		.array = address + offsetof(struct hl_php_requests, stamps),
	};
	reading->count = hl_block_owners_count(ages->owners);
	reading->kinds = calloc(reading->count + 1, sizeof(*reading->kinds));
	if (!reading->kinds)
		return -ENOMEM;
	r = hl_block_owners_each(ages->owners, add, reading);
	return r == 0 ? hl_inuse_labels_add_sums(ages, &reading->sums, name_age, reading) : r;
}

int hl_php_ages_read(pid_t pid, struct hl_block_owners *owners, struct hl_inuse_labels **ret_ages,
		     struct hl_error *err)
{
	struct hl_inuse_labels *ages = hl_inuse_labels_new(HL_AGE_PROVIDER, owners);
	struct reading *reading = calloc(1, sizeof(*reading));
	int r = -ENOMEM;

	if (ages && reading) {
		reading->region = hl_block_owners_region(owners);
		reading->sums.shape = (struct hl_log2_shape){.start = 1, .width = 1};
		r = read_all(reading, ages);
		hl_owner_counts_release(&reading->sums);
		free(reading->kinds);
	}
	free(reading);
	if (r < 0) {
		hl_inuse_labels_free(ages);
		return r == -ENOENT
			       ? hl_error_set(err, r, "no request of PHP was seen in process %d",
					      (int)pid)
			       : hl_error_set(err, r, "%s", strerror(-r));
	}
	*ret_ages = ages;
	return 0;
}
