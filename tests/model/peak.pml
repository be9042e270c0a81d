/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a cell held at the last mark of the peak (struct hl_cell in region/region.h), read while its thread counts
 * (hl_region_read()): before the first change under a newer epoch its thread keeps the value in use and then says so by the
 * cell's epoch. The reader looks at the cell's epoch before and after the copy, and at the region's before and after all.
 *
 * Claim: what the reader takes for the value at the mark is not less than what the cell had when the mark was set, nor more
 * than what its thread had counted when it noted the mark.
 * Bound: two marks, three events, one cell, one look.
 */
#include "order.inc"

#define KEPT_FIRST  1 /* hl_event_keep_peak(): what is kept is stored before the epoch that says so */
#define COUNT_LAST  2 /* the same: counters change after it */
#define LOOK_FIRST  3 /* copy_cell(): the epoch is loaded before the cell */
#define LOOK_LAST   4 /* the same: and after it */
#define REGION_LAST 5 /* read_values(): the region's epoch is loaded after all cells */

byte region_epoch = 0, cell_epoch = 0, at_peak = 0, value = 0;
byte at_mark[3];		/* the value when it was set */
byte noted[3] = { 9, 9, 9 };	/* what the thread had counted when it noted the mark; 9: it did not */
byte ended = 0;

active proctype marks()
{
	atomic { region_epoch = 1; at_mark[1] = value };
	atomic { region_epoch = 2; at_mark[2] = value };
	ended++
}

#define G(i) (4 * (i))	   /* loads the region's epoch */
#define P(i) (4 * (i) + 1) /* keeps the value, if the epoch is another */
#define Q(i) (4 * (i) + 2) /* stores the epoch, if it is another */
#define V(i) (4 * (i) + 3) /* counts */
#define NOTE(i) \
	seen[i] = region_epoch; \
	if \
	:: seen[i] != mine -> is_new[i] = 1; mine = seen[i]; noted[mine] = i \
	:: else \
	fi

active proctype owner()
{
	int done = 0;
	byte mine = 0, seen[3], is_new[3];

	do
	ACCESS(G(0), 0, true, NOTE(0))
	ACCESS(P(0), BIT(G(0)), true, at_peak = (is_new[0] -> 0 : at_peak))
	ACCESS(Q(0), BIT(G(0)) | BY(KEPT_FIRST, BIT(P(0))), true, cell_epoch = (is_new[0] -> seen[0] : cell_epoch))
	ACCESS(V(0), BIT(G(0)) | BY(COUNT_LAST, BIT(Q(0))), true, value = 1)
	ACCESS(G(1), BIT(G(0)), true, NOTE(1))
	ACCESS(P(1), BIT(G(1)) | BIT(P(0)) | BY(COUNT_LAST, BIT(Q(0))), true, at_peak = (is_new[1] -> 1 : at_peak))
	ACCESS(Q(1), BIT(G(1)) | BIT(Q(0)) | BY(KEPT_FIRST, BIT(P(1))), true, cell_epoch = (is_new[1] -> seen[1] : cell_epoch))
	ACCESS(V(1), BIT(G(1)) | BIT(V(0)) | BY(COUNT_LAST, BIT(Q(1))), true, value = 2)
	ACCESS(G(2), BIT(G(1)), true, NOTE(2))
	ACCESS(P(2), BIT(G(2)) | BIT(P(1)) | BY(COUNT_LAST, BIT(Q(1))), true, at_peak = (is_new[2] -> 2 : at_peak))
	ACCESS(Q(2), BIT(G(2)) | BIT(Q(1)) | BY(KEPT_FIRST, BIT(P(2))), true, cell_epoch = (is_new[2] -> seen[2] : cell_epoch))
	ACCESS(V(2), BIT(G(2)) | BIT(V(1)) | BY(COUNT_LAST, BIT(Q(2))), true, value = 3)
	:: done == (BIT(12) - 1) -> break
	od;
	ended++
}

#define REGION_BEFORE 0
#define CELL_BEFORE   1
#define VALUE	      2
#define PEAK	      3
#define CELL_AFTER    4
#define REGION_AFTER  5
#define COPIED (BIT(VALUE) | BIT(PEAK))

active proctype reader()
{
	int done = 0;
	byte region_before, cell_before, copied, copied_peak, cell_after, region_after, result;

	do
	ACCESS(REGION_BEFORE, 0, true, region_before = region_epoch)
	ACCESS(CELL_BEFORE, BIT(REGION_BEFORE), true, cell_before = cell_epoch)
	ACCESS(VALUE, BIT(REGION_BEFORE) | BY(LOOK_FIRST, BIT(CELL_BEFORE)), true, copied = value)
	ACCESS(PEAK, BIT(REGION_BEFORE) | BY(LOOK_FIRST, BIT(CELL_BEFORE)), true, copied_peak = at_peak)
	ACCESS(CELL_AFTER, BIT(CELL_BEFORE) | BY(LOOK_LAST, COPIED), true, cell_after = cell_epoch)
	ACCESS(REGION_AFTER, BIT(REGION_BEFORE) | BY(REGION_LAST, BIT(CELL_AFTER) | COPIED), true, region_after = region_epoch)
	:: done == (BIT(6) - 1) -> break
	od;
	ended == 2;
	if
	:: region_before == region_after && cell_before == cell_after && region_before != 0 ->
		result = (cell_before == region_before -> copied_peak : copied);
		assert(result >= at_mark[region_before] && result <= noted[region_before])
	:: else
	fi
}
