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
#define HL_EACH_STUB                    \
	stubs 0, malloc, 1;             \
	stubs 1, calloc, 1;             \
	stubs 2, realloc, 1;            \
	stubs 3, reallocarray, 1;       \
	stubs 4, free, 0;               \
	stubs 5, free_sized, 0;         \
	stubs 6, free_aligned_sized, 0; \
	stubs 7, posix_memalign, 1;     \
	stubs 8, aligned_alloc, 1;      \
	stubs 9, memalign, 1;           \
	stubs 10, valloc, 1;            \
	stubs 11, pvalloc, 1;           \
	stubs 12, dlclose, 1;           \
	stubs 13, mlockall, 1
#define HL_EACH_LIGHT_STUB        \
	light 14, prctl;          \
	light 15, syscall;        \
	light 17, object_malloc;  \
	light 18, object_calloc;  \
	light 19, object_realloc; \
	light 20, object_free
