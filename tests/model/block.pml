/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An entry of the block table (recorder/block.h). Two threads have blocks in the two halves of one granule: each sets its word in
 * the first plane's entry or, where the other's is, in the second's, and finds it again to take it. Beside them a thread makes and
 * frees objects in another granule, whose sizes a tool reads from outside (heap/owners/block_reader.c).
 *
 * Claims: each thread finds its own block; a word that was the same before and after its steps were read has these.
 * Bound: two blocks of each thread, two objects, one look.
 */
#include "order.inc"

#define EXCHANGE      1 /* hl_block_array_set(): the first plane's entry by compare and swap */
#define STEPS_RELEASE 2 /* hl_block_object_set(): the last object's word has gone before the next one's steps come */
#define WORD_RELEASE  3 /* the same: steps are there before their word */
#define STEPS_LAST    4 /* read_steps(): the word is read before its steps */
#define WORD_LAST     5 /* the same: and once more after them */

byte first = 0, second = 0; /* whose word is there */

proctype neighbour(byte id)
{
	byte round = 0, seen, found;

	do
	:: round < 2 ->
		/* Both are of one address each, and a thread's own stores of that are seen by its loads. */
		if
		:: HAS(EXCHANGE) -> atomic { if :: first == 0 -> first = id; found = 1 :: else -> found = 2 fi }
		:: else -> seen = first; if :: seen == 0 -> first = id; found = 1 :: else -> found = 2 fi
		fi;
		if :: found == 2 -> second = id :: else fi;
		if
		:: first == id -> first = 0
		:: else -> assert(second == id); second = 0
		fi;
		round++
	:: else -> break
	od
}

byte word = 0, steps = 0; /* the word of object n is n, and so are its steps */

#define STEPS(n) (3 * (n) - 3)
#define WORD(n)	 (3 * (n) - 2)
#define GONE(n)	 (3 * (n) - 1)

proctype objects()
{
	int done = 0;

	do
	ACCESS(STEPS(1), 0, true, steps = 1)
	ACCESS(WORD(1), BY(WORD_RELEASE, BIT(STEPS(1))), true, word = 1)
	ACCESS(GONE(1), BIT(WORD(1)), true, word = 0)
	ACCESS(STEPS(2), BIT(STEPS(1)) | BY(STEPS_RELEASE, BIT(GONE(1))), true, steps = 2)
	ACCESS(WORD(2), BIT(GONE(1)) | BY(WORD_RELEASE, BIT(STEPS(2))), true, word = 2)
	ACCESS(GONE(2), BIT(WORD(2)), true, word = 0)
	:: done == (BIT(6) - 1) -> break
	od
}

proctype tool()
{
	int done = 0;
	byte before, its_steps, after;

	do
	ACCESS(0, 0, true, before = word)
	ACCESS(1, BY(STEPS_LAST, BIT(0)), true, its_steps = steps)
	ACCESS(2, BIT(0) | BY(WORD_LAST, BIT(1)), true, after = word)
	:: done == 7 -> break
	od;
	assert(!before || before != after || its_steps == before)
}

init {
	if
	:: atomic { run neighbour(1); run neighbour(2) }
	:: atomic { run objects(); run tool() }
	fi
}
