/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of the image for the assembler, which slots.c compares with what they are; and the list of stubs. */
#pragma once

#define HL_SELF_BITS 12
#define HL_SELF_MIX  0x9e3779b97f4a7c15

#define HL_BUSY		  0x88000007
#define HL_MODE_OFFSET	  24
#define HL_WITHOUT_OFFSET 192
#define HL_STARTED_OFFSET 4

#define HL_RULES       96
#define HL_RULE_BYTES  64
#define HL_DOES_OFFSET 13
#define HL_FREES       1

#define HL_SET_SECCOMP 22
#define HL_SET_TSC     26

/* Hooks; these, from dlclose() on, have something to do in any mode. */
#define HL_FIRST_HEARD	    12
#define HL_LAST_HEARD	    15
#define HL_NUMBER_PRCTL	    14
#define HL_NUMBER_SYSCALL   15
#define HL_NUMBER_LIBRARIES 16

/* The number of the hook, its name, and whether it has a result; those of the second list have light stubs alone. */
#define HL_STUBS(STUBS)                 \
	STUBS(0, malloc, 1)             \
	STUBS(1, calloc, 1)             \
	STUBS(2, realloc, 1)            \
	STUBS(3, reallocarray, 1)       \
	STUBS(4, free, 0)               \
	STUBS(5, free_sized, 0)         \
	STUBS(6, free_aligned_sized, 0) \
	STUBS(7, posix_memalign, 1)     \
	STUBS(8, aligned_alloc, 1)      \
	STUBS(9, memalign, 1)           \
	STUBS(10, valloc, 1)            \
	STUBS(11, pvalloc, 1)           \
	STUBS(12, dlclose, 1)           \
	STUBS(13, mlockall, 1)
#define HL_LIGHT_STUBS(LIGHT)     \
	LIGHT(14, prctl)          \
	LIGHT(15, syscall)        \
	LIGHT(17, object_malloc)  \
	LIGHT(18, object_calloc)  \
	LIGHT(19, object_realloc) \
	LIGHT(20, object_free)

/* By the macros of the assembler. */
#define HL_STUBS_LINE(NUMBER, NAME, HAS_RESULT) stubs NUMBER, NAME, HAS_RESULT;
#define HL_LIGHT_LINE(NUMBER, NAME)		light NUMBER, NAME;
#define HL_EACH_STUB				HL_STUBS(HL_STUBS_LINE)
#define HL_EACH_LIGHT_STUB			HL_LIGHT_STUBS(HL_LIGHT_LINE)
