/* SPDX-License-Identifier: BSD-2-Clause */
/* The facts of why.h, out of the documents that verbs write (docs/schema). A document may be NULL: then nothing is known. */
#pragma once

#include "why/why.h"

#include <jansson.h>

/* ${path}: keys with '.' between them. NULL: not found. */
json_t *hl_why_member(const json_t *from, const char *path);

/* -1: not known. */
int64_t hl_why_number(const json_t *from, const char *path);

const char *hl_why_text(const json_t *from, const char *path);

void hl_why_keep(char *to, size_t size, const char *from);

#define HL_WHY_KEEP(to, from) hl_why_keep(to, sizeof(to), from)

/* What a process of the group has in anonymous memory; 0: it is not in ${pod}. */
int64_t hl_why_anonymous_of(const json_t *pod, pid_t pid);

void hl_why_keep_pod(struct hl_why_facts *facts, const json_t *pod, bool is_after);

/* The process, but for ${other} and heapline itself, that has gained most since ${before}, which may be NULL; 0: none has. */
pid_t hl_why_largest_gain(const json_t *before, const json_t *after, pid_t other, int64_t *ret_gain,
			  const char **ret_name);

void hl_why_keep_heap(struct hl_why_facts *facts, const json_t *heap, bool is_after);

/* The part that has gained most, but for files and heapline's own. */
void hl_why_find_grown_part(struct hl_why_facts *facts, const json_t *before, const json_t *after);

/* The largest file in memory that it has open, or else mapped. */
void hl_why_find_memory_file(struct hl_why_facts *facts, const json_t *heap);

void hl_why_keep_frame(struct hl_why_frame *to, const json_t *frame);

/* Figures are those of the first time, which leaks and holders are compared with; a later one may have better names. */
void hl_why_keep_growth(struct hl_why *why, const json_t *growth);

/* Where no stack grew steadily: the one that grew most, if by at least ${rate} bytes a second. Whether there is one. */
bool hl_why_keep_unsteady(struct hl_why *why, double rate);

/* Of verbs that trace from outside: their rows are what was gained. */
void hl_why_keep_traced(struct hl_why *why, const json_t *traced, const char *source);

/* The frame of the grower, near its leaf, in ${function}; NULL: it has none. */
const json_t *hl_why_grower_frame(const struct hl_why *why, const char *function);

/*
 * Lost blocks; while the process is recorded, also those that the grower allocated, or that hang on what a function on its stack allocated: then
 * that function's line is the one that loses them.
 */
void hl_why_keep_leaks(struct hl_why *why, const json_t *leaks);

void hl_why_keep_holder(struct hl_why_facts *facts, const json_t *holders);
