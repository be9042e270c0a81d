/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The format of files of events, as docs/format.md tells it: the header and the pieces of
 * segment.h. A file begins with a checkpoint (as a segment's, with missing events in place of
 * missing intervals); others follow, each before the first event of an interval. What lies from
 * one checkpoint to the next is a part, and read alone. Events follow in pieces of up to
 * HL_EVENTS_MAX, by kind and by thread, so that like stands beside like:
 *
 *	names	      new modules and nodes, as in an interval of the log
 *	runs	      their number; then of each its thread slot, twice, plus 1 where its order
 *		      among other threads' is not known; of each the ticks since the run before
 *		      (the first: since tick 0); of each its number of events
 *
 * and then of all events, first those of the lowest thread slot in their order, and so on:
 *
 *	is free	      one bit for each event, from the lowest of each byte on
 *	has size      one bit for each: its size stands among the sizes, else it is the one before
 *		      at its node, in this part
 *	nodes	      of allocations, then of frees: the lower 16 bits of each, then bits 16 to 23
 *	sizes	      of allocations, then of frees, each after its length in bytes: size + 1; or
 *0, bytes and objects, where that is no single block, nor the node's next size
 */
#pragma once

#include "log/segment.h"

enum hl_event_piece_kind {
	HL_PIECE_EVENTS = HL_SEGMENT_FOURCC('E', 'V', 'N', 'T'),
	HL_PIECE_END =
		HL_SEGMENT_FOURCC('E', 'N', 'D', 'E'), /* missing events so far, as a number */
};

#define HL_EVENTS_MAX	  65536u /* in a piece */
#define HL_EVENT_NODE_MAX ((UINT32_C(1) << 24) - 1)
