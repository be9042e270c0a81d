/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The format of log segments, as docs/format.md tells it: a header, then pieces. The payloads of
 * successive pieces are one zstd stream, flushed at each; a piece with HL_PIECE_FRAME begins a new
 * one, so that reading can begin there. All numbers are little-endian.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#define HL_SEGMENT_MAGIC    "HEAPLLOG"
#define HL_SEGMENT_VERSION  1u
#define HL_SEGMENT_NAME_MAX 64

/* Files of events have the same header and pieces; see event_codec.h. */
#define HL_EVENTS_MAGIC	  "HEAPLEVT"
#define HL_EVENTS_VERSION 2u

#define HL_SEGMENT_FOURCC(a, b, c, d) \
	((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

enum hl_piece_kind {
	HL_PIECE_CHECKPOINT = HL_SEGMENT_FOURCC('C', 'H', 'K', 'P'),
	HL_PIECE_INTERVAL = HL_SEGMENT_FOURCC('I', 'N', 'T', 'V'),
	HL_PIECE_MARK = HL_SEGMENT_FOURCC('M', 'A', 'R', 'K'),
	HL_PIECE_INDEX = HL_SEGMENT_FOURCC('I', 'N', 'D', 'X'),
};

enum hl_piece_flag {
	HL_PIECE_FRAME = 1, /* a zstd frame begins here */
};

/* What no piece exceeds: more is damage. */
#define HL_PIECE_BYTES_MAX (UINT32_C(1) << 30)

struct hl_segment_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint32_t process; /* sequence */
	uint32_t number;  /* of the segment, from 1 */
	uint64_t first_interval;
	uint64_t start_realtime_ns; /* of tick 0 */
	uint32_t tick_ns;
	uint32_t interval_ticks;
	uint64_t hash; /* of all that is before it */
};

struct hl_piece_header {
	uint32_t kind, flags;
	uint32_t stored_bytes, raw_bytes;
	uint64_t hash; /* of the stored bytes, seeded with the hash of the 16 bytes before it */
};

/* Behind the index, at the file's end. */
struct hl_segment_trailer {
	uint8_t magic[8];
	uint64_t index_offset; /* of its piece header */
	uint64_t hash;	       /* of the 16 bytes before it */
};

static_assert(sizeof(struct hl_segment_header) == 56, "format");
static_assert(sizeof(struct hl_piece_header) == 24, "format");
static_assert(sizeof(struct hl_segment_trailer) == 24, "format");
