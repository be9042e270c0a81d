/* SPDX-License-Identifier: BSD-2-Clause */
/* Splits the anonymous memory of a group's processes as `heap` does; see pod.h. */
#include "base/array.h"
#include "heap/heap.h"
#include "heap/pod.h"

#include <stdio.h>
#include <stdlib.h>

#define PROCESSES_MAX 16u /* that are read, the largest */
#define BYTES_MIN     ((int64_t)1 << 20)
#define PARTS_SHOWN   4u

static int compare_parts(const void *left, const void *right)
{
	const struct hl_pod_part *a = left, *b = right;

	return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

static int add_parts(const struct hl_heap_rss *rss, struct hl_pod_row *row)
{
	struct hl_rss_part fixed[HL_RSS_PARTS];
	size_t capacity = 0;
	int r = 0;

	hl_rss_parts(rss, fixed);
	for (size_t i = 0; r == 0 && i < HL_RSS_PARTS + HL_ANONYMOUS_COUNT; i++) {
		size_t kind = i - HL_RSS_PARTS;
		const struct hl_pod_part part =
			i < HL_RSS_PARTS ? (struct hl_pod_part){fixed[i].name, fixed[i].bytes}
					 : (struct hl_pod_part){hl_rss_anonymous_name(kind),
								rss->anonymous[kind]};
		bool is_shared = i == HL_RSS_FILES || i == HL_RSS_SHARED || i == HL_RSS_RECORDER;
		if (part.name && part.bytes && !is_shared)
			r = HL_ARRAY_APPEND(row->parts, row->part_count, capacity, part);
	}
	if (row->part_count)
		qsort(row->parts, row->part_count, sizeof(*row->parts), compare_parts);
	return r;
}

/* "20.1 MiB live blocks, 3.0 MiB stacks" */
static void describe(struct hl_pod_row *row)
{
	size_t length = 0;

	for (size_t i = 0; i < row->part_count && i < PARTS_SHOWN; i++) {
		const struct hl_pod_part *part = &row->parts[i];
		if (part->bytes * 100 < (uint64_t)row->bytes)
			break;
		int added = snprintf(row->detail + length, sizeof(row->detail) - length,
				     "%s%.1f MiB %s", length ? ", " : "",
				     (double)part->bytes / (1 << 20), part->name);
		if (added < 0 || (size_t)added >= sizeof(row->detail) - length) {
			row->detail[length] = '\0';
			break;
		}
		length += (size_t)added;
	}
}

int hl_pod_read_parts(struct hl_pod *pod)
{
	size_t count = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < pod->row_count && count < PROCESSES_MAX; i++) {
		struct hl_pod_row *row = &pod->rows[i];
		struct hl_heap *heap = NULL;
		if (row->kind != HL_POD_ANONYMOUS || !row->pid || row->bytes < BYTES_MIN)
			continue;
		count++;
		if (hl_heap_read(row->pid, &(struct hl_heap_settings){0}, &heap, NULL) < 0 &&
		    hl_heap_read_pages(row->pid, &heap, NULL) < 0)
			continue; /* it has ended, or may not be read */
		r = add_parts(&heap->rss, row);
		if (r == 0)
			describe(row);
		hl_heap_free(heap);
	}
	return r;
}
