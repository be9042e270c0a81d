/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What allocators hold, as reports, parts of reports, and a picture: heaps that were read from outside,
 * carriers, allocations.
 */
#pragma once

#include "base/error.h"
#include "heap/carriers.h"
#include "heap/heap.h"
#include "view/emit.h"
#include "view/format.h"
#include "view/table.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct hl_heap_figures;
struct hl_holders;
struct hl_leaks;
struct hl_owners;
struct hl_pod;
struct hl_resident;
struct hl_services;
struct hl_slabs;

/* ---- reports; each returns 0, -ENOMEM, or the output's error ---- */

/* One screen: whether it is a leak, where resident memory is, what malloc_trim would return, and other
 * questions that people ask, answered; ${with_arenas}: also each arena. ${resident}, of the same walk, says whose the live blocks in
 * RAM are; NULL: it is unknown. */
int hl_heap_view(const struct hl_heap *heap, const struct hl_resident *resident, bool with_arenas,
		 const struct hl_emit_options *options);

/* Resident pages that few live bytes keep. */
int hl_pins_view(const struct hl_heap *heap, const struct hl_emit_options *options);

/* Lost and possibly lost blocks, by type and size. */
int hl_leaks_view(const struct hl_leaks *leaks, const struct hl_emit_options *options);

/* How holders are shown. */
struct hl_holders_report {
	struct hl_emit_options emit;
	bool tree;
	uint64_t depth_limit;	 /* of the tree; 0: none */
	bool chain, chain_alone; /* to the block at the address that was asked for */
};

/* A control group: what it has, what the kernel can take back, how far the limit is, and the rows. */
int hl_pod_view(const struct hl_pod *pod, const struct hl_emit_options *options);

/* Who keeps blocks. */
int hl_holders_view(const struct hl_holders *holders, const struct hl_holders_report *report);

/* The same as folded lines of bytes, from the holder to the blocks. */
void hl_holders_fold(FILE *out, const struct hl_holders *holders);

/* What has changed from one snapshot to a later one. */
int hl_heap_diff_view(const struct hl_heap_figures *before, const struct hl_heap_figures *after,
		      const struct hl_emit_options *options);

/* Live blocks of process ${pid} by owner. */
int hl_owners_view(const struct hl_owners *owners, pid_t pid,
		   const struct hl_emit_options *options);

/* Slabs that the allocator of process ${pid} reports. */
int hl_slabs_view(const struct hl_slabs *slabs, pid_t pid, const struct hl_emit_options *options);

/* What services have, and all else that is in RAM. */
int hl_services_view(const struct hl_services *services, const struct hl_emit_options *options);

/* ---- parts of a report that was begun ---- */

/* Which process it is, and its ${allocator}; "": that does not matter. */
void hl_heap_emit_process(struct hl_emit *emit, const struct hl_process_facts *process,
			  const char *allocator);

/* Which process it was and how it was read: members, and the lines on top of tables. */
void hl_heap_emit_head(struct hl_emit *emit, const struct hl_heap *heap);

/* What could not be read or seen, at the end. */
void hl_heap_emit_notes(struct hl_emit *emit, const struct hl_heap *heap);

/* Whether ${part}, as the report names it, are objects that a runtime's collector moves, and no recorder sees. */
bool hl_heap_is_collected(const char *part);

/* How the program itself reports who allocates ${part}, as the report names it: a clause; or NULL. */
const char *hl_heap_profiles(const char *part);

/* The first of the questions, see heap_answers.c: whether it is a leak. In tables alone. */
void hl_heap_verdict_emit(struct hl_emit *emit, const struct hl_heap *heap);

/* The member `answers` with all questions; in tables the others, those of ${has_arenas} with details. */
void hl_heap_answers_emit(struct hl_emit *emit, const struct hl_heap *heap, bool has_arenas);

/*
 * The members `total`, `lost`, `allocators`, `rows` and `free_histogram`; in tables the sums of
 * each allocator, its ${row_limit} largest carriers (0: all; or HL_EMIT_ROWS_DEFAULT) and a
 * histogram of free blocks. What is known of carriers decides what is shown: addresses, residency,
 * caches, the type of blocks. 0 or -ENOMEM.
 */
int hl_carriers_emit(struct hl_emit *emit, const struct hl_carriers *carriers, uint64_t row_limit);

/* The members `occupancy` and `classes`: how full slabs are, of each size of block. In tables nothing where there are none. */
void hl_heap_classes_emit(struct hl_emit *emit, const struct hl_heap *heap);

/* The members `total`, `lost`, `rows` and `histogram`; in tables, the first ${row_limit} rows (0:
 * all; or HL_EMIT_ROWS_DEFAULT) and a histogram of all. */
void hl_allocations_emit(struct hl_emit *emit, const struct hl_allocations *allocations,
			 uint64_t row_limit);

/* ---- a picture ---- */

/*
 * Writes a picture under ${title}: a strip for each of the largest carriers. Carriers that have
 * hl_carrier.strip a strip is the carrier from its beginning to its end, of others it shows shares.
 * 0 or -ENOMEM.
 */
int hl_carriers_svg_write(FILE *out, const struct hl_carriers *carriers, const char *title);

/*
 * The carriers by size, the largest first, those of one size in their own order; to be freed. NULL
 * for want of memory.
 */
const struct hl_carrier **hl_carriers_by_size(const struct hl_carriers *carriers);

/* ---- figures ---- */

/* JSON's integers, and those of tables, are signed; what is beyond them is a lie anyway. */
static inline int64_t hl_heap_number(uint64_t number)
{
	return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

/* "1.5 MiB", "1,234" and "12.3%" of a uint64_t, which live until the end of the caller's block. */
#define HL_HEAP_BYTES(number) hl_format_bytes(hl_heap_number(number), (char[HL_FORMAT_MAX]){""})
#define HL_HEAP_COUNT(number) hl_format_count(hl_heap_number(number), (char[HL_FORMAT_MAX]){""})
#define HL_HEAP_PERCENT(part, whole) \
	hl_format_percent(hl_heap_number(part), hl_heap_number(whole), (char[HL_FORMAT_MAX]){""})

/* ---- histograms ---- */

#define HL_HEAP_SPARK_MAX (3 * HL_LOG2_WIDTH_MAX + 1) /* bytes: letters of UTF-8 */
#define HL_HEAP_LABEL_MAX 80

/*
 * A sign for each slot of ${histogram}, taller for more blocks, on a logarithmic scale, for some
 * sizes are a million times as frequent as others; a dot where there is none. Returns ${buffer}.
 */
const char *hl_heap_histogram_spark(const struct hl_log2_shape *shape,
				    const struct hl_log2_histogram *histogram,
				    char buffer[HL_HEAP_SPARK_MAX]);

/* "3 KiB .. <7 KiB": the bounds of a slot, exact. Returns ${buffer}. */
const char *hl_heap_histogram_label(const struct hl_log2_shape *shape, uint32_t slot,
				    char buffer[HL_HEAP_LABEL_MAX]);

/*
 * A histogram in full: in tables a row for each slot up to the last that has ${what}; in JSON the
 * object ${key} with `start_bytes`, `first_bytes` of each slot, and `counts`.
 */
void hl_heap_histogram_emit(struct hl_emit *emit, const char *key, const char *what,
			    const struct hl_log2_shape *shape,
			    const struct hl_log2_histogram *histogram);

/* A member ${key}: the counts of ${histogram}, slot by slot; nothing in tables. */
void hl_heap_histogram_emit_counts(struct hl_emit *emit, const char *key,
				   const struct hl_log2_shape *shape,
				   const struct hl_log2_histogram *histogram);
