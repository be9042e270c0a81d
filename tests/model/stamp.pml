/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The order of events of two threads (region/ring.h). One becomes alone: it puts its name there and reads the clock once, for all
 * of its events. The other one reads the clock for its event, sees that nobody is alone, or ends that and begins again. One event
 * is because of the other, by a word of the program.
 *
 * Claim: the stamp of the event that is the consequence is the larger one.
 * Bound: one event of each, either one first.
 */
#include "order.inc"

#define AFTER_EXCHANGE 1 /* hl_machine_clock_after_exchange(): the name is seen by all before the clock is read */
#define CAUSE_FIRST    2 /* hl_machine_order_stamp(): what led to the event was loaded before the name is */
#define CLOCK_AFTER    3 /* hl_machine_clock(): likewise before the clock is */
#define NAME_AFTER     4 /* hl_ring_order_stamp(): the name is loaded after the clock, as its address depends on it */

byte name = 0;	/* 1: the first thread is alone */
byte clock = 1; /* each reading has one of its own */
byte word = 0;	/* of the program: whose event has been */
byte lone_first; /* whether the event of the thread that is alone is the cause */
byte lone_stamp = 0, other_stamp = 0;

#define NAMED  0 /* others see its name; it does itself from the beginning */
#define CLOCK  1
#define CAUSE  2
#define LOOKED 3
#define SAID   4 /* tells the program; a release, which comes after the event's words */

proctype lone()
{
	int done = 0;
	byte is_alone, stamp;

	do
	ACCESS(NAMED, 0, true, name = 1)
	ACCESS(CLOCK, BY(AFTER_EXCHANGE, BIT(NAMED)), true, stamp = clock; clock++)
	ACCESS(CAUSE, 0, lone_first || word == 2, skip)
	ACCESS(LOOKED, BY(CAUSE_FIRST, BIT(CAUSE)), true, is_alone = ((done & BIT(NAMED)) -> name : 1))
	ACCESS(SAID, BIT(NAMED) | BIT(CLOCK) | BIT(CAUSE) | BIT(LOOKED), true, if :: lone_first -> word = 1 :: else fi)
	:: done == (BIT(5) - 1) -> break
	od;
	/* Alone no more: then as the other one does, with a clock that was read after the cause. */
	lone_stamp = (is_alone -> stamp : 99)
}

#define FIRST_CLOCK  0
#define FIRST_LOOK   1
#define END	     2 /* ends that the other is alone, if it is */
#define SECOND_CLOCK 3
#define ITS_CAUSE    4
#define ITS_WORD     5

proctype other()
{
	int done = 0;
	byte seen, stamp, again;

	do
	ACCESS(ITS_CAUSE, 0, !lone_first || word == 1, skip)
	ACCESS(FIRST_CLOCK, BY(CLOCK_AFTER, BIT(ITS_CAUSE)), true, stamp = clock; clock++)
	ACCESS(FIRST_LOOK, BY(NAME_AFTER, BIT(FIRST_CLOCK)), true, seen = name)
	ACCESS(END, BIT(FIRST_LOOK), true, if :: seen == 1 -> name = 0 :: else fi)
	ACCESS(SECOND_CLOCK, BIT(FIRST_LOOK), true, if :: seen == 1 -> stamp = clock; clock++ :: else fi)
	ACCESS(ITS_WORD, BIT(FIRST_CLOCK) | BIT(END) | BIT(SECOND_CLOCK) | BIT(ITS_CAUSE), true,
	       if :: !lone_first -> word = 2 :: else fi)
	:: done == (BIT(6) - 1) -> break
	od;
	other_stamp = stamp
}

init {
	if
	:: lone_first = 1
	:: lone_first = 0
	fi;
	atomic { run lone(); run other() };
	_nr_pr == 1;
	if
	:: lone_first && lone_stamp != 99 -> assert(lone_stamp < other_stamp)
	:: !lone_first -> assert(other_stamp < lone_stamp)
	:: else
	fi
}
