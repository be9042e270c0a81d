/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what grew outside malloc; see outside_malloc.h. */
#include "collector/outside_malloc.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "process/own_memory.h"

#include <stdio.h>

#define GROWTH_MIN	  (INT64_C(4) << 20)
#define GROWTH_MIN_TRACED (INT64_C(1) << 20) /* in the seconds of a trace */
#define SHARE_OF_GROWTH	  4		     /* what malloc gave is less than one part of these */
#define BYTES_PER_MIB	  (double)(1 << 20)

#define WAY_MAX 256

static bool find_own(const struct hl_outside_malloc *found, struct hl_own_memory *ret_own)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	bool has_maps = found->runs && hl_maps_read(found->pid, &maps, NULL) == 0;

	return hl_own_memory_find(found->executable, found->pid, has_maps ? &maps : NULL, ret_own);
}

/* A clause that names a command for this very process, or for its program. ${own}: NULL where nothing is known. */
static void format_way(const struct hl_outside_malloc *found, const struct hl_own_memory *own,
		       char way[WAY_MAX])
{
	int pid = (int)found->pid;

	if (own && found->runs && (found->is_traced || own->by_malloc))
		snprintf(way, WAY_MAX, "'heapline attach -p %d' records %s", pid, own->what);
	else if (own && own->by_malloc)
		snprintf(way, WAY_MAX, "%s", own->by_malloc);
	else if (own && own->is_objects && found->ran_before && !found->allocations)
		snprintf(way, WAY_MAX, "%s are recorded from its next call of malloc on",
			 own->what);
	else if (found->runs)
		snprintf(way, WAY_MAX,
			 "'heapline pgfault -p %d 60' shows the code that touches new memory", pid);
	else
		snprintf(way, WAY_MAX,
			 "while it runs, 'heapline pgfault --comm %s 60' shows the code that "
			 "touches new memory",
			 hl_path_basename(found->executable));
}

bool hl_outside_malloc_describe(const struct hl_outside_malloc *found,
				char ret_sentence[HL_WARNING_BYTES])
{
	const char *name = hl_path_basename(found->executable);
	struct hl_own_memory found_own;
	const struct hl_own_memory *own = find_own(found, &found_own) ? &found_own : NULL;
	bool is_empty = !found->allocations;
	bool grew =
		found->rss_growth_bytes >= (found->is_traced ? GROWTH_MIN_TRACED : GROWTH_MIN) &&
		found->malloc_bytes < found->rss_growth_bytes / SHARE_OF_GROWTH &&
		found->alloc_bytes < found->rss_growth_bytes;
	/* Such a guest frees and allocates objects without a call of malloc, too. */
	bool is_unseen = own && own->is_objects && found->ran_before && is_empty;
	char way[WAY_MAX], had[64] = "", growth[64] = "";

	if (!grew && !is_unseen)
		return false;
	format_way(found, own, way);
	if (!is_empty)
		snprintf(had, sizeof(had), "at most %.1f MiB from malloc",
			 (double)found->malloc_bytes / BYTES_PER_MIB);
	if (grew)
		snprintf(growth, sizeof(growth), ", while RSS rose by %.1f MiB",
			 (double)found->rss_growth_bytes / BYTES_PER_MIB);
	snprintf(ret_sentence, HL_WARNING_BYTES, "%s in process %d (%s)%s: %s",
		 is_empty ? "not one call of malloc" : had, (int)found->pid, name, growth, way);
	return true;
}
