/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes of stacks (recorder/node.c): two threads make the node of one key at once, enter it into a table, and count at it in a
 * cell, which the collector reads.
 *
 * Claims: both threads get one node; whoever finds a node in the table finds its frame and its parent; and so does the collector
 * for each cell that it sees.
 * Bound: one key, two threads, two places in the table, one cell each.
 */
#include "order.inc"

#define ENTER_RELEASE 1 /* enter(): a node is written before it is entered */
#define USED_RELEASE  2 /* hl_cells_add(): a cell is written before it is counted */
#define USED_ACQUIRE  3 /* used_cells() */

byte table[2];	       /* ids; 0: empty */
byte frame[3], parent[3]; /* by id; 1: written */
byte used[2], cell_node[2];
byte result[2];

#define PARENT 0
#define FRAME  1
#define ENTER  2 /* compare and swap; on failure the id that is there: whose node is read after it, by its address */
#define LOOK   3 /* the other's frame and parent */
#define NEXT   4 /* compare and swap of the next place, where that is another key's node */
#define CELL   5
#define USED   6
#define MADE (BIT(PARENT) | BIT(FRAME))

proctype thread(byte id)
{
	int done = 0;
	byte other = 0, found = 0;

	do
	ACCESS(PARENT, 0, true, parent[id] = 1)
	ACCESS(FRAME, BIT(PARENT), true, frame[id] = 1)
	ACCESS(ENTER, BY(ENTER_RELEASE, MADE), true,
	       if :: table[0] == 0 -> table[0] = id; found = id :: else -> other = table[0] fi)
	ACCESS(LOOK, BIT(ENTER), true, if :: !found && frame[other] && parent[other] -> found = other :: else fi)
	ACCESS(NEXT, BIT(LOOK) | BY(ENTER_RELEASE, MADE), true, if :: !found -> table[1] = id; found = id :: else fi)
	ACCESS(CELL, BIT(NEXT), true, cell_node[id - 1] = found)
	ACCESS(USED, BIT(NEXT) | BY(USED_RELEASE, BIT(CELL) | MADE), true, used[id - 1] = 1)
	:: done == (BIT(7) - 1) -> break
	od;
	result[id - 1] = found
}

#define COUNT	   0
#define NODE	   1
#define ITS_FRAME  2
#define ITS_PARENT 3

proctype reader(byte cell)
{
	int done = 0;
	byte count = 0, node = 0, its_frame, its_parent;

	do
	ACCESS(COUNT, 0, true, count = used[cell])
	ACCESS(NODE, BY(USED_ACQUIRE, BIT(COUNT)), true, node = cell_node[cell])
	ACCESS(ITS_FRAME, BIT(NODE), true, its_frame = frame[node])
	ACCESS(ITS_PARENT, BIT(NODE) | BIT(ITS_FRAME), true, its_parent = parent[node])
	:: done == (BIT(4) - 1) -> break
	od;
	assert(!count || (node && its_frame && its_parent))
}

init {
	atomic { run thread(1); run thread(2); run reader(0); run reader(1) };
	_nr_pr == 1;
	assert(result[0] == result[1])
}
