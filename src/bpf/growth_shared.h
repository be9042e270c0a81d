/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs that see which pages a control group is given (growth.bpf.c) and their loader (growth.c) share. */
#pragma once

#include "bpf/group_shared.h"
#include "bpf/walk_shared.h"

#include <stdint.h>

/* A process of the group that is not walked, or runs another program now. */
#define HL_RECORD_NEW_PROCESS HL_RECORD_OWN

struct hl_growth_process_record {
	struct hl_record_header header;
	uint32_t pid; /* as the tool knows it */
	uint32_t reserved;
};

/* A page that a process of the group was given since the programs are attached, by its first frame. */
struct hl_growth_given {
	uint64_t stack;	   /* 0: none */
	uint32_t pid;	   /* 0: unknown to the tool */
	uint16_t order;	   /* 2 ^ order frames */
	uint16_t is_early; /* before the first scan had ended */
};

/* What the pages of the last scan that the first did not have came by, and what they are. */
struct hl_growth_key {
	uint64_t stack, inode;
	uint32_t pid;
	uint16_t kind;	   /* enum hl_group_page_kind */
	uint16_t is_given; /* somebody was seen to be given them; else no stack and no pid */
};

struct hl_growth_state {
	uint32_t phase; /* enum hl_growth_phase */
	uint32_t reserved;
	uint64_t kept_pages; /* of the last scan, that the first one had, too */
	uint64_t lost_pages; /* given, and without room for their entry */
	uint64_t lost_keys;  /* pages of the last scan without room for their key */
};

enum hl_growth_phase { HL_GROWTH_FIRST_SCAN, HL_GROWTH_WATCHES, HL_GROWTH_LAST_SCAN };
