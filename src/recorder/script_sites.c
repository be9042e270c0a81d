/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and places of scripts in the region; see script.h. */
#include "recorder/script.h"

#include "recorder/recorder.h"

#include <string.h>

static uint64_t mix(uint64_t value)
{
	return value * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t hash_text(const char *text, uint32_t bytes)
{
	uint64_t hash = bytes;

	for (uint32_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
	return (uint32_t)(mix(hash) >> 32);
}

bool hl_script_sites_put_name(struct hl_script_sites *sites, struct hl_region_map *region,
			      const char *text, uint32_t bytes, uint32_t *ret_name)
{
	struct hl_region_header *header = region->header;

	if (bytes > HL_SITE_NAME_MAX)
		bytes = HL_SITE_NAME_MAX;
	uint32_t *head = &sites->names[hash_text(text, bytes) >> (32 - HL_SITE_HEADS_BITS)];
	uint32_t used = atomic_load_explicit(&header->name_bytes, memory_order_relaxed);
	for (uint32_t at = *head; at && at <= used;) {
		const struct hl_region_name *name = (void *)(region->names + at - 1);
		if (name->bytes == bytes && memcmp(name->text, text, bytes) == 0) {
			*ret_name = at - 1;
			return true;
		}
		if (name->next >= at)
			break; /* the program has written there: older names lie before newer ones */
		at = name->next;
	}
	uint64_t end = used + hl_region_name_bytes(bytes);
	if (!hl_region_map_commit(region, HL_AREA_NAMES, end))
		return false;
	struct hl_region_name *name = (void *)(region->names + used);
	name->next = *head;
	name->bytes = bytes;
	memcpy(name->text, text, bytes);
	*head = used + 1;
	*ret_name = used;
	atomic_store_explicit(&header->name_bytes, (uint32_t)end, memory_order_release);
	return true;
}

static bool is_site(const struct hl_region_site *a, const struct hl_region_site *b)
{
	return a->provider == b->provider && a->line == b->line && a->first_line == b->first_line &&
	       a->function == b->function && a->source == b->source;
}

uint32_t hl_script_sites_put(struct hl_script_sites *sites, struct hl_region_map *region,
			     struct hl_region_site site)
{
	uint64_t hash = mix(mix((uint64_t)site.function << 32 | site.source) ^
			    ((uint64_t)site.first_line << 32 | site.line) ^ site.provider);
	uint32_t *head = &sites->sites[hash >> (64 - HL_SITE_HEADS_BITS)];
	uint32_t count = atomic_load_explicit(&region->header->site_count, memory_order_relaxed);

	for (uint32_t at = *head; at && at <= count;) {
		const struct hl_region_site *known = &region->sites[at - 1];
		if (is_site(known, &site))
			return at;
		if (known->next >= at)
			break;
		at = known->next;
	}
	if (!hl_region_map_commit(region, HL_AREA_SITES, (count + UINT64_C(1)) * sizeof(site)))
		return 0;
	site.next = *head;
	region->sites[count] = site;
	*head = count + 1;
	atomic_store_explicit(&region->header->site_count, count + 1, memory_order_release);
	return count + 1;
}
