/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A slot of the rule cache (unwind/rule_cache.h): two words without an order, which two threads write for two places of code, and a
 * third one reads.
 *
 * Claim: a rule that is believed is that of the place that was asked for.
 * Bound: two writers, of one rule each; one look.
 */
#include "order.inc"

#define BY_BOTH 1 /* put_rule(): the check is of key and rule, not of the key alone */

byte rule = 0, check = 0;

#define KEY(n)	 (4 * (n))
#define CHECK(n) (KEY(n) ^ (HAS(BY_BOTH) -> (n) : 0))

proctype writer(byte n)
{
	int done = 0;

	do
	ACCESS(0, 0, true, rule = n)
	ACCESS(1, 0, true, check = CHECK(n))
	:: done == 3 -> break
	od
}

proctype reader()
{
	int done = 0;
	byte its_rule, its_check;

	do
	ACCESS(0, 0, true, its_rule = rule)
	ACCESS(1, 0, true, its_check = check)
	:: done == 3 -> break
	od;
	assert((its_check ^ (HAS(BY_BOTH) -> its_rule : 0)) != KEY(1) || its_rule == 1)
}

init {
	atomic { run writer(1); run writer(2); run reader() }
}
