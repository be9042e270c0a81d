/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The balance sheet of a process with services: what each has in use, as Lua's memory and as C's, by the
 * counters of its recorder; the part of that in RAM; and all other memory in RAM, up to Rss.
 */
#pragma once

#include "base/error.h"
#include "guests/outside.h"
#include "heap/heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A service; or, where the program has none, a state of Lua; or, where none was seen, a type of blocks. */
struct hl_service {
	char *name;	 /* NULL: blocks that have none */
	uint64_t handle; /* 0: it has none; of a state its number, from 1 on */
	int64_t lua_bytes,
		lua_blocks; /* of Lua: of blocks with a type, which it alone gives; or its own by their stacks */
	int64_t c_bytes, c_blocks; /* of all others */
	uint64_t resident_bytes;   /* of both: usable bytes in RAM */
	bool hides_resident;	   /* it has more in RAM: see hl_resident_bytes.has_inner */
	uint64_t queued_messages,
		queued_bytes; /* that wait for it: blocks of C of whoever sent them */
	uint64_t
		counted_bytes; /* of a state: in use, as it counts itself, older blocks among them */
};

/* Where resident memory is. Their sum and the remainder are Rss. */
enum hl_services_part {
	HL_SERVICES_BLOCKS, /* resident_bytes of all services */
	HL_SERVICES_OLDER,  /* live blocks that the recorder does not know */
	HL_SERVICES_ALLOCATOR, /* what else the allocator has, such as slack and free blocks; of one that cannot be
				  walked, older blocks as well */
	HL_SERVICES_RECORDER,
	HL_SERVICES_STACKS,
	HL_SERVICES_CODE,
	HL_SERVICES_FILES,
	HL_SERVICES_SHARED,
	HL_SERVICES_VARIABLES,
	HL_SERVICES_OTHER,
	HL_SERVICES_PARTS,
};

enum hl_services_by {
	HL_BY_SERVICE,
	HL_BY_STATE,
	HL_BY_TYPE,
};

struct hl_services {
	struct hl_process_facts process;
	enum hl_services_by by;
	bool has_queues;       /* messages that wait are known */
	const char *no_queues; /* why not, where there are services; a constant */
	uint32_t state_max;    /* that the recorder keeps, where it has seen more states; else 0 */
	bool is_walked;	       /* most blocks are in glibc's heap, so that older ones are known */
	struct hl_service *services; /* the heaviest first */
	size_t count, capacity;
	struct hl_service total;
	uint64_t parts[HL_SERVICES_PARTS];
	uint64_t rss_bytes; /* as the kernel says */
	int64_t remainder_bytes; /* of Rss, that is in no part: what changed while it was read, and pages of devices */
	uint64_t lost_events, unscanned_bytes;
};

/*
 * Reads process ${pid} while it goes on. 0; or a negative errno with a sentence: -ENODATA when no
 * recorder is in it, or one that has seen no service, no state of Lua and no type.
 */
int hl_services_read(pid_t pid, struct hl_services **ret_services, struct hl_error *err);

/* Reorders the rows: most messages that wait first, then the heaviest. */
void hl_services_sort_by_waiting(struct hl_services *services);

void hl_services_free(struct hl_services *services); /* NULL is fine */

/* ---- live_services.c ---- */

/*
 * Services of skynet: their names, and messages that wait in their queues, read out of a process while it goes on. skynet keeps its services in a table
 * behind a static variable, H. Its structures are those of 1.8.0 and of mid-2026, with either kind of locks; nothing is believed before the
 * services agree with it: each stands in the table where its handle says, and has a queue with the same handle.
 */

/* ${ret_services}, one for each service, to be freed. 0; -ENOENT when the program's file has no such variable in its symbols;
 * -EPROTO when what is there is not skynet's; -ENOMEM; or what reading failed with. */
int hl_skynet_services_read(pid_t pid, struct hl_guest_service **ret_services, size_t *ret_count);
