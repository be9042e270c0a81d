/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of allocators besides the C library's: how they are recognized, which functions programs call them by, how
 * they report about themselves, and what helps where they cannot be read. Constants, on which every part of the tool may
 * build; what runs inside the target is in allocators/inside.
 *
 * An allocator is one row of the table in traits.c. A member that is NULL or 0 means "has none"; lists of texts end with NULL.
 *
 * Functions with names of their own are lines of NAME_functions.h. Whoever includes such a list defines the macros. SIZE,
 * TEXT, ALIGNMENT and OLD, the block until now, are arguments a, b, c or d; a SIZE may be product(COUNT, SIZE).
 *
 *	ALLOCATE(NAME, SIZE)				-> block
 *	ALLOCATE_ALIGNED(NAME, SIZE, ALIGNMENT)		-> block
 *	ALLOCATE_ONLY(NAME, SIZE)			-> block; where the allocator is absent nothing stands in for it
 *	ALLOCATE_OR_THROW(NAME, SIZE)			-> block, or an exception
 *	ALIGN_OR_THROW(NAME, SIZE, ALIGNMENT)		-> block, or an exception
 *	MEMALIGN_INTO(NAME)				as posix_memalign()
 *	COPY(NAME, TEXT)				-> block, as strdup()
 *	COPY_UP_TO(NAME, TEXT, COUNT)			-> block, as strndup()
 *	COPY_OF_LIBC(NAME, TEXT), COPY_OF_LIBC_UP_TO	a function of the C library that the allocator's file has, too
 *	RESIZE(NAME, SIZE)				-> block; a is the old one
 *	RESIZE_ONLY(NAME, OLD, SIZE)			-> block; nothing stands in for it
 *	RESIZE_OR(NAME, OLD, SIZE, WAY, STAND_IN)	-> block, as the hook in allocators/inside needs it
 *	RELEASE(NAME)					a is the block
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- functions ---- */

/* What a function of an allocator does, by where its arguments are. */
enum hl_heap_call {
	HL_HEAP_FREE,		/* (block, ...) */
	HL_HEAP_MALLOC,		/* (size, ...) -> block */
	HL_HEAP_CALLOC,		/* (count, size) -> block */
	HL_HEAP_MEMALIGN,	/* (anything, size) -> block */
	HL_HEAP_POSIX_MEMALIGN, /* (where to, alignment, size) -> error */
	HL_HEAP_REALLOC,	/* (block, size) -> block */
	HL_HEAP_REALLOCARRAY,	/* (block, count, size) -> block */
	HL_HEAP_CALLS,
	HL_HEAP_CALIBRATION = HL_HEAP_CALLS, /* heapline's own, to see what a probe costs */
};

struct hl_allocator_name {
	enum hl_heap_call call;
	bool throws;	 /* an exception may leave the function */
	bool has_prefix; /* of an allocator; else the name is one of C or C++ */
	uint32_t rank;	 /* the plainer the name, the smaller: show the alias with the smallest */
};

/* Whether the function called ${name} belongs to an allocator and does one of these. */
bool hl_allocator_name_find(const char *name, struct hl_allocator_name *ret_found);

/* ${name} itself, where it is an allocator's malloc() with a prefix: a constant. Else NULL. */
const char *hl_allocator_name_of_malloc(const char *name);

/*
 * Whether ${name} is one by which an allocator with a prefix would call a function that allocates or frees, known or not: a
 * later release has more than those that are known.
 */
bool hl_allocator_name_resembles(const char *name);

/* Arguments are counted from 1; 0: it has no such argument. */
struct hl_allocator_entry {
	const char *name;
	const char *call; /* "malloc", "realloc", "posix_memalign" or "free": what it does */
	uint8_t size_at, text_at, count_at, block_at;
	bool is_of_libc; /* without the prefix, and the allocator's in its own file */
	bool throws;
};

/* The functions under a prefix: one of the presets that `--hook @NAME` names. */
struct hl_allocator_preset {
	const char *name;
	const char *prefix; /* instead of the first preset's, which the list has */
	const char *malloc; /* the preset holds where a process has this one */
};

/* ---- allocators ---- */

#define HL_ALLOCATOR_PRESETS_MAX   2
#define HL_ALLOCATOR_SYMBOLS_MAX   3
#define HL_ALLOCATOR_ENDERS_MAX	   2
#define HL_ALLOCATOR_ANSWERS_MAX   2 /* ways to ask one */
#define HL_ALLOCATOR_ANSWERING_MAX 3 /* functions of each */

/* How struct hl_introspection says whose figures it has. Part of the region's format. */
enum hl_introspected {
	HL_INTROSPECTED_JEMALLOC = 1,
	HL_INTROSPECTED_MIMALLOC, /* of the heap of the thread that answered */
	HL_INTROSPECTED_TCMALLOC, /* sums alone */
};

/* How a Go program reports what it allocates: a clause of a sentence. */
#define HL_GO_PROFILES "its own profiles (net/http/pprof, /debug/pprof/heap) open in 'heapline top'"

/* Those that answer, in a sentence; ${AND}: "and" or "or". */
#define HL_ALLOCATORS_THAT_ANSWER(AND) "jemalloc, mimalloc " AND " tcmalloc"

struct hl_allocator_traits {
	const char *name;	/* in sentences */
	const char *short_name; /* where that is another one */

	/* How it is recognized. */
	const char *library; /* how the name of its file begins */
	const char *folder;  /* or what its path contains */
	const char *inside;  /* a text that programs hold which have it built in */
	/* Who has one of these beside malloc is this allocator. */
	const char *symbols[HL_ALLOCATOR_SYMBOLS_MAX];

	const struct hl_allocator_entry *functions; /* a name that is NULL ends them */
	struct hl_allocator_preset presets[HL_ALLOCATOR_PRESETS_MAX];
	/* Functions that free all blocks of a heap without a call for each of them; and those that make such a heap, which
	 * the allocator does not call itself. */
	const char *enders[HL_ALLOCATOR_ENDERS_MAX];
	const char *makers[HL_ALLOCATOR_ENDERS_MAX];
	const char *const *plumbing; /* functions, as patterns of symbols/symbols.h */
	bool has_operators;	     /* new and delete that do not call malloc and free */

	/* What a recorder can ask: by all functions of one row, in the order that allocators/inside/introspect.c knows. */
	enum hl_introspected answers_as;
	const char *answering[HL_ALLOCATOR_ANSWERS_MAX][HL_ALLOCATOR_ANSWERING_MAX];
	bool reports_slabs;	    /* each of them; else classes of them */
	const char *answer_warning; /* what its figures leave out */
	const char *answer_note;    /* what they are */

	/* What else there is to read. */
	const char *profiles; /* helps where it is built in */
	/* For sentences about a heap that was read: a clause that says why memory stays after free, and how the program has
	 * it return what is free in whole pages; NULL: it has no such function. */
	const char *stays, *purge;
	bool has_trailers; /* of a heap that is walked: between blocks there are 4 bytes at least */
	bool hides_calls;  /* it has no functions that can be traced */
	/* Its version for debugging ends a program that frees a block of one function by another one's: a text that it holds. */
	const char *debugging_inside;
};

extern const struct hl_allocator_traits hl_allocator_traits[];
extern const size_t hl_allocator_count;

/* Allocators that interpreters have beside malloc, each a pool of presets.txt. */
struct hl_pool_traits {
	const char *name;      /* whose */
	const char *exported;  /* a function that each file with it has */
	const char *library;   /* the beginning of the name of the library that has it */
	const char *by_malloc; /* a clause: how it allocates by malloc instead */
	const char *entered;   /* a clause: why the recorder must be brought in */
};

extern const struct hl_pool_traits hl_pool_traits[];
extern const size_t hl_pool_count;

/* Presets of pools, as hook/entries.h describes them: presets.txt. */
extern const char hl_presets[];
extern const size_t hl_presets_size;
