/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps the program's mappings in a sorted array; see mappings.h. */
#include "recorder/mappings.h"

#include "base/compiler.h"
#include "recorder/private_map.h"

#include <string.h>

#define FIRST_CAPACITY 128u /* 4 KiB */

struct hl_mapping_range {
	uint64_t start, end;
	uint64_t number;
	uint32_t node;
	bool divided; /* there may be other ranges of the same mapping */
};

static bool make_room(struct hl_mappings *mappings, uint32_t more)
{
	if (mappings->count + more <= mappings->capacity)
		return true;
	uint32_t capacity = mappings->capacity ? mappings->capacity * 2 : FIRST_CAPACITY;
	struct hl_mapping_range *ranges = hl_private_map_new(capacity * sizeof(*ranges));
	if (!ranges)
		return false;
	if (mappings->ranges) {
		memcpy(ranges, mappings->ranges, mappings->count * sizeof(*ranges));
		hl_private_map_free(mappings->ranges, mappings->capacity * sizeof(*ranges));
	}
	mappings->ranges = ranges;
	mappings->capacity = capacity;
	return true;
}

/* The first range that ends after ${address}. */
static uint32_t first_after(const struct hl_mappings *mappings, uint64_t address)
{
	return (uint32_t)HL_LOWER_BOUND(i, mappings->count, mappings->ranges[i].end <= address);
}

static void insert(struct hl_mappings *mappings, uint32_t at, struct hl_mapping_range range)
{
	struct hl_mapping_range *place = &mappings->ranges[at];

	memmove(place + 1, place, (mappings->count - at) * sizeof(*place));
	*place = range;
	mappings->count++;
}

bool hl_mappings_add(struct hl_mappings *mappings, uint64_t start, uint64_t end, uint32_t node)
{
	hl_spin_lock(&mappings->lock);
	bool ok = make_room(mappings, 1);
	if (ok) {
		uint64_t number = atomic_fetch_add(&mappings->next_number, 1);
		insert(mappings, first_after(mappings, start),
		       (struct hl_mapping_range){start, end, number, node, false});
	}
	hl_spin_unlock(&mappings->lock);
	return ok;
}

/* Makes ${address} a border between ranges if it lies inside one that is numbered below ${bound}.
 */
static bool divide(struct hl_mappings *mappings, uint64_t address, uint64_t bound)
{
	uint32_t at = first_after(mappings, address);

	if (at == mappings->count || mappings->ranges[at].start >= address ||
	    mappings->ranges[at].number >= bound)
		return true;
	if (!make_room(mappings, 1))
		return false;
	struct hl_mapping_range *range = &mappings->ranges[at];
	range->divided = true;
	struct hl_mapping_range upper = *range;
	upper.start = range->end = address;
	insert(mappings, at + 1, upper);
	return true;
}

/* Whether any range in [from, to) is of the mapping ${number}. */
static bool has_number(const struct hl_mappings *mappings, uint32_t from, uint32_t to,
		       uint64_t number)
{
	for (uint32_t i = from; i < to; i++)
		if (mappings->ranges[i].number == number)
			return true;
	return false;
}

/* Takes ranges out from index ${first} on, while they begin below ${end}; none reaches beyond. */
static void take_out(struct hl_mappings *mappings, uint32_t first, uint64_t end, uint64_t bound,
		     hl_mapping_gone_fn *gone, void *context)
{
	struct hl_mapping_range *ranges = mappings->ranges;
	uint32_t from = first, kept = first;

	for (; from < mappings->count && ranges[from].start < end; from++) {
		struct hl_mapping_range range = ranges[from];
		if (range.number >= bound) {
			ranges[kept++] = range;
			continue;
		}
		/* Other parts are mostly next to this one, so the first search ends soon. */
		bool last = !range.divided ||
			    (!has_number(mappings, from + 1, mappings->count, range.number) &&
			     !has_number(mappings, 0, kept, range.number));
		gone(context, range.node, range.end - range.start, last);
	}
	memmove(&ranges[kept], &ranges[from], (mappings->count - from) * sizeof(*ranges));
	mappings->count -= from - kept;
}

bool hl_mappings_remove(struct hl_mappings *mappings, uint64_t start, uint64_t end, uint64_t bound,
			hl_mapping_gone_fn *gone, void *context)
{
	hl_spin_lock(&mappings->lock);
	bool ok = divide(mappings, start, bound) && divide(mappings, end, bound);
	if (ok && mappings->count)
		take_out(mappings, first_after(mappings, start), end, bound, gone, context);
	hl_spin_unlock(&mappings->lock);
	return ok;
}
