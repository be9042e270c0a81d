/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs that watch pages (page.bpf.c) and their loader (page_trace.c) share. */
#pragma once

#include "bpf/walk_shared.h"

enum hl_page_record_kind {
	HL_RECORD_PAGE_TOUCHED = HL_RECORD_OWN, /* struct hl_page_touch_record */
	/* The others are struct hl_page_range_record. */
	HL_RECORD_PAGES_MAPPED,	   /* whatever was there is gone; with a stack: and populated */
	HL_RECORD_PAGES_POPULATED, /* by the stack, as far as they were not there */
	HL_RECORD_PAGES_GONE,
	HL_RECORD_PAGES_MOVED,	/* to ${to}, where there are ${to_bytes} now */
	HL_RECORD_PAGES_LOCKED, /* all of the process', and so populated by the stack */
};

/* How a page was touched: below its address, in the bits that an address in a page has. */
#define HL_PAGE_RECORD_FLAGS   UINT64_C(0xfff)
#define HL_PAGE_RECORD_WRITE   UINT64_C(1)
#define HL_PAGE_RECORD_PRESENT UINT64_C(2)

/* 24 bytes: one for each fault. */
struct hl_page_touch_record {
	struct hl_record_header header;
	uint64_t page; /* address of the page | flags */
	uint64_t stack;
};

struct hl_page_range_record {
	struct hl_record_header header;
	uint64_t start, bytes;
	uint64_t to, to_bytes;
	uint64_t stack; /* 0: none */
};

/* Calls of the C library that bring pages in, move or discard them: the cookie of a probe. */
enum hl_page_call {
	HL_PAGE_CALL_MMAP = 1,
	HL_PAGE_CALL_MREMAP,
	HL_PAGE_CALL_MADVISE,
	HL_PAGE_CALL_MLOCK,
	HL_PAGE_CALL_MLOCK2,
	HL_PAGE_CALL_MLOCKALL,
	HL_PAGE_CALLS_END,
};

/* What the programs count. */
struct hl_page_counters {
	uint64_t faults;     /* of the target */
	uint64_t lost;	     /* of those, without a record: the ring or the table was full */
	uint64_t lost_calls; /* of hl_page_call, without a record */
	uint64_t forks;	     /* processes that it began */
};
