/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program can do to gain and lose pages, and what must be said of it. */
#pragma once

#include "program.h"

#define PAGE 4096L
#define MIB  (1L << 20)

/* What one scenario handles: 16 MiB. */
#define AREA_BYTES (16 * MIB)
#define AREA_PAGES (AREA_BYTES / PAGE)

#define SITES_MAX 3

/* Exit status when this kernel cannot do it. */
#define CANNOT 77

struct site {
	const char *function; /* stands on the stacks of the pages */
	long pages;	      /* that it must have at least; all sites together leave no more than
				 some hundred others */
};

struct scenario {
	const char *name;
	void (*prepare)(void); /* before the trace; may be NULL */
	void (*go)(void);
	struct site sites[SITES_MAX];
	long released;	   /* pages from before the trace, gone: at least */
	long unattributed; /* pages whose coming nobody can see: at most, besides a few */
};

extern const struct scenario scenarios[];
extern const size_t scenario_count;
extern const struct scenario other_scenarios[]; /* not listed; the last has no name */
