/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cell that the collector copies while its thread counts (hl_drain_rebase()): a copy is believed where the ring's head and the
 * count of lost events were the same before and after, and no event was going on.
 *
 * Claim: a copy that is believed has exactly the events that are in the ring up to the head, and those that were lost.
 * Bound: two events, each written into the ring or lost; one look.
 */
#include "order.inc"

#define BEGIN	     1 /* hl_ring_writer_begin(): stores after it come after that of the head */
#define HEAD_RELEASE 2 /* hl_ring_writer_put(), hl_ring_writer_end() */
#define LOSS	     3 /* hl_event_write(): an event is counted before it is lost */
#define HEAD_ACQUIRE 4 /* progress_of() */
#define LOST_ACQUIRE 5 /* the same */
#define LOADS	     6 /* copy_cell(): loads after it come after those of the cell */

byte head = 0; /* events << 1 | whether one goes on */
byte lost = 0;
byte bytes = 0, objects = 0; /* of the cell */

#define B(i) (5 * (i))	   /* the head says that an event goes on */
#define C(i) (5 * (i) + 1) /* counts bytes */
#define O(i) (5 * (i) + 2) /* counts objects */
#define M(i) (5 * (i) + 3) /* counts the loss, if it is one */
#define E(i) (5 * (i) + 4) /* the head says that it has ended */
#define COUNTED(i) (BIT(C(i)) | BIT(O(i)))

active proctype writer()
{
	int done = 0;
	byte is_lost[2];

	if
	:: is_lost[0] = 0
	:: is_lost[0] = 1
	fi;
	if
	:: is_lost[1] = 0
	:: is_lost[1] = 1
	fi;
	do
	ACCESS(B(0), 0, true, head = 1)
	ACCESS(C(0), BY(BEGIN, BIT(B(0))), true, bytes = 1)
	ACCESS(O(0), BY(BEGIN, BIT(B(0))), true, objects = 1)
	ACCESS(M(0), BY(BEGIN, BIT(B(0))) | BY(LOSS, COUNTED(0)), true, lost = lost + is_lost[0])
	ACCESS(E(0), BIT(B(0)) | BY(HEAD_RELEASE, COUNTED(0) | BIT(M(0))), true, head = 2 * (1 - is_lost[0]))
	ACCESS(B(1), BIT(E(0)), true, head = 2 * (1 - is_lost[0]) + 1)
	ACCESS(C(1), BIT(C(0)) | BY(BEGIN, BIT(B(1))), true, bytes = 2)
	ACCESS(O(1), BIT(O(0)) | BY(BEGIN, BIT(B(1))), true, objects = 2)
	ACCESS(M(1), BIT(M(0)) | BY(BEGIN, BIT(B(1))) | BY(LOSS, COUNTED(1)), true, lost = lost + is_lost[1])
	ACCESS(E(1), BIT(B(1)) | BY(HEAD_RELEASE, COUNTED(1) | BIT(M(1))), true, head = 2 * (2 - is_lost[0] - is_lost[1]))
	:: done == (BIT(10) - 1) -> break
	od
}

#define HEAD_BEFORE 0
#define LOST_BEFORE 1
#define BYTES	    2
#define OBJECTS	    3
#define HEAD_AFTER  4
#define LOST_AFTER  5
#define BEFORE (BY(HEAD_ACQUIRE, BIT(HEAD_BEFORE)) | BY(LOST_ACQUIRE, BIT(LOST_BEFORE)))
#define COPIED (BIT(BYTES) | BIT(OBJECTS))

active proctype reader()
{
	int done = 0;
	byte head_before, lost_before, copied_bytes, copied_objects, head_after, lost_after;

	do
	ACCESS(HEAD_BEFORE, 0, true, head_before = head)
	ACCESS(LOST_BEFORE, BY(HEAD_ACQUIRE, BIT(HEAD_BEFORE)), true, lost_before = lost)
	ACCESS(BYTES, BEFORE, true, copied_bytes = bytes)
	ACCESS(OBJECTS, BEFORE, true, copied_objects = objects)
	ACCESS(HEAD_AFTER, BIT(HEAD_BEFORE) | BEFORE | BY(LOADS, COPIED), true, head_after = head)
	ACCESS(LOST_AFTER, BIT(LOST_BEFORE) | BEFORE | BIT(HEAD_AFTER) | BY(LOADS, COPIED), true, lost_after = lost)
	:: done == (BIT(6) - 1) -> break
	od;
	if
	:: head_before == head_after && lost_before == lost_after && !(head_before & 1) ->
		assert(copied_bytes == copied_objects && copied_bytes == head_before / 2 + lost_before)
	:: else
	fi
}
