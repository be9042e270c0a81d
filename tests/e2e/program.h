/* SPDX-License-Identifier: BSD-2-Clause */
/* What the recorded test programs share: functions that stay functions, and values that stay used.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* A function that keeps its name, its frame and its calls at every optimization level. */
#if defined(__clang__)
#define SITE __attribute__((noinline))
#else
#define SITE __attribute__((noipa))
#endif

/* The compiler must assume that ${value} is read and memory is changed here: no call of the
 * allocator before it can be left out, and the function that it stands in cannot end in a tail
 * call. */
#define KEEP(value) __asm__ volatile("" : : "g"(value) : "memory")

/* The same without a value. */
#define BARRIER() __asm__ volatile("" : : : "memory")

/* Ends the program with a sentence: the test then fails by its exit status. */
#define REQUIRE(condition)                                                                      \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                \
		}                                                                               \
	} while (0)
