/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes each allocation of some work fail in turn. For programs of one source file that are linked
 * with -Wl,--wrap=malloc, --wrap=calloc and --wrap=reallocarray:
 *
 *	FOR_EACH_FAILING_ALLOCATION(r, work())
 *		assert_int_equal(r, -ENOMEM);
 *
 * runs work() with all allocations failing, then all but the first and so on, the statement after
 * each time, and ends when none had to fail. So what says nothing of a failure is found out, too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

static long allocations_left = -1;  /* -1: no limit */
static bool allocation_was_refused; /* since the limit was set */

static bool may_allocate(void)
{
	if (allocations_left == 0) {
		allocation_was_refused = true;
		return false;
	}
	if (allocations_left > 0)
		allocations_left--;
	return true;
}

void *__real_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
	return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__wrap_malloc(size_t size)
{
	return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
	return may_allocate() ? __real_reallocarray(old, count, size) : NULL;
}

/* ${work} as an expression, with all allocations from the ${limit}th on failing. */
#define WITH_ALLOCATIONS(limit, work)                 \
	({                                            \
		allocations_left = (limit);           \
		allocation_was_refused = false;       \
		int result_with_allocations = (work); \
		allocations_left = -1;                \
		result_with_allocations;              \
	})

#define FOR_EACH_FAILING_ALLOCATION(result, work)                               \
	for (long limit_of_allocations = 0, result = WITH_ALLOCATIONS(0, work); \
	     result < 0 || allocation_was_refused;                              \
	     result = WITH_ALLOCATIONS(++limit_of_allocations, work))
