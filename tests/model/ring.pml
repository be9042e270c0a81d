/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring of a thread (region/ring.h): its thread writes words and publishes them by the head, the collector reads them and
 * gives the room back by the tail. After that the ring moves to other room, as it does when it grows.
 *
 * Claim: each word that is read is the one that was written at its position.
 * Bound: three events in room for two, then one more in other room.
 */
#include "order.inc"

#define HEAD_RELEASE	1 /* hl_ring_writer_put() */
#define HEAD_ACQUIRE	2 /* hl_ring_head() */
#define TAIL_RELEASE	3 /* hl_ring_reader_read() */

byte room[4];	/* two places, then those of the larger room */
byte start = 0; /* where the ring's data are */
byte head = 0, tail = 0;

#define W(i) (i)     /* stores the word at position i */
#define H(i) (4 + (i)) /* publishes it */
#define WAIT 8	     /* loads a tail that leaves room for position 2: a store that depends on it comes after it */
#define EMPTY 9	     /* loads a tail that says that all was read */
#define MOVE 10	     /* stores where the data are */

active proctype writer()
{
	int done = 0;

	do
	ACCESS(W(0), 0, true, room[0] = 1)
	ACCESS(W(1), 0, true, room[1] = 2)
	ACCESS(WAIT, 0, tail >= 1, skip)
	ACCESS(W(2), BIT(WAIT) | BIT(W(0)), true, room[0] = 3)
	ACCESS(EMPTY, BIT(WAIT), tail == 3, skip)
	ACCESS(MOVE, BIT(EMPTY), true, start = 2)
	ACCESS(W(3), BIT(EMPTY), true, room[3] = 4)
	ACCESS(H(0), BY(HEAD_RELEASE, BIT(W(0))), true, head = 1)
	ACCESS(H(1), BIT(H(0)) | BY(HEAD_RELEASE, BIT(W(1))), true, head = 2)
	ACCESS(H(2), BIT(H(1)) | BIT(WAIT) | BY(HEAD_RELEASE, BIT(W(2))), true, head = 3)
	ACCESS(H(3), BIT(H(2)) | BIT(EMPTY) | BY(HEAD_RELEASE, BIT(W(3)) | BIT(MOVE)), true, head = 4)
	:: done == (BIT(11) - 1) -> break
	od
}

#define L(i) (i)       /* loads a head behind position i */
#define R(i) (4 + (i)) /* loads the word */
#define T(i) (8 + (i)) /* gives its room back */
#define D 12	       /* loads where the data are, for the last one */

active proctype reader()
{
	int done = 0;
	byte read[4], at = 0;

	do
	ACCESS(L(0), 0, head >= 1, skip)
	ACCESS(L(1), BIT(L(0)), head >= 2, skip)
	ACCESS(L(2), BIT(L(1)), head >= 3, skip)
	ACCESS(L(3), BIT(L(2)), head >= 4, skip)
	ACCESS(R(0), BY(HEAD_ACQUIRE, BIT(L(0))), true, read[0] = room[0])
	ACCESS(R(1), BY(HEAD_ACQUIRE, BIT(L(1))), true, read[1] = room[1])
	ACCESS(R(2), BIT(R(0)) | BY(HEAD_ACQUIRE, BIT(L(2))), true, read[2] = room[0])
	ACCESS(D, BY(HEAD_ACQUIRE, BIT(L(3))), true, at = start)
	ACCESS(R(3), BIT(D) | BY(HEAD_ACQUIRE, BIT(L(3))), true, read[3] = room[at + 1])
	ACCESS(T(0), BIT(L(0)) | BY(TAIL_RELEASE, BIT(R(0))), true, tail = 1)
	ACCESS(T(1), BIT(L(1)) | BIT(T(0)) | BY(TAIL_RELEASE, BIT(R(1))), true, tail = 2)
	ACCESS(T(2), BIT(L(2)) | BIT(T(1)) | BY(TAIL_RELEASE, BIT(R(2))), true, tail = 3)
	ACCESS(T(3), BIT(L(3)) | BIT(T(2)) | BY(TAIL_RELEASE, BIT(R(3))), true, tail = 4)
	:: done == (BIT(13) - 1) -> break
	od
	assert(read[0] == 1 && read[1] == 2 && read[2] == 3 && read[3] == 4)
}
