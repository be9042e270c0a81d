/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the sites of script frames and their names from a region; see region_read.h. */
#include "collector/region_read.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_providers(const struct hl_region_view *view, uint32_t count,
			  struct hl_recording_process *process)
{
	const struct hl_region_header *header = view->base;

	process->providers = calloc(count, sizeof(*process->providers));
	if (!process->providers)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_region_provider *from = &header->providers[i];
		struct hl_recording_provider *to = &process->providers[i];
		*to = (struct hl_recording_provider){
			.name = strndup(from->name, sizeof(from->name)),
			.eval_start = from->eval_start,
			.eval_end = from->eval_end,
			.cold_start = from->cold_start,
			.cold_end = from->cold_end,
			.text_start = from->text_start,
			.text_end = from->text_end,
			.alloc_start = from->alloc_start,
			.alloc_end = from->alloc_end,
		};
		if (!to->name)
			return -ENOMEM;
		process->provider_count++;
	}
	return 0;
}

/* Where the names begin; name 0 is the empty one, for sites whose own is damaged. */
struct places {
	uint32_t *starts;
	size_t count, capacity;
};

static void release_places(struct places *places)
{
	free(places->starts);
}

static int add_name(struct hl_recording_process *process, struct places *places, size_t *capacity,
		    uint32_t start, const char *text, uint32_t bytes)
{
	char *copy = strndup(text, bytes);

	if (!copy || HL_ARRAY_RESERVE(process->site_names, *capacity, places->count + 1) < 0 ||
	    HL_ARRAY_APPEND(places->starts, places->count, places->capacity, start) < 0) {
		free(copy);
		return -ENOMEM;
	}
	process->site_names[process->site_name_count++] = copy;
	return 0;
}

/* Names lie one after the other. */
static int read_names(const struct hl_region_view *view, struct hl_recording_process *process,
		      struct places *places)
{
	const struct hl_region_header *header = view->base;
	const char *area = hl_region_read_area(view, HL_AREA_NAMES);
	uint32_t end = hl_region_read_bounded(
		view, HL_AREA_NAMES,
		atomic_load_explicit(&header->name_bytes, memory_order_acquire), 1);
	size_t capacity = 0;
	int r = add_name(process, places, &capacity, UINT32_MAX, "", 0);

	for (uint32_t at = 0; r == 0 && at < end && process->site_name_count < HL_SITES_MAX;) {
		struct hl_region_name name;
		uint32_t left = end - at;
		if (left < sizeof(name))
			break;
		memcpy(&name, area + at, sizeof(name));
		if (name.bytes > HL_SITE_NAME_MAX || hl_region_name_bytes(name.bytes) > left) {
			process->lost.damaged++;
			break;
		}
		r = add_name(process, places, &capacity, at, area + at + sizeof(name), name.bytes);
		at += hl_region_name_bytes(name.bytes);
	}
	return r;
}

/* The index of the name that begins at ${start}; 0 where none does. */
static uint32_t find_name(const struct places *places, uint32_t start)
{
	size_t low = 1, high = places->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (places->starts[middle] < start)
			low = middle + 1;
		else
			high = middle;
	}
	return low < places->count && places->starts[low] == start ? (uint32_t)low : 0;
}

int hl_region_sites_read(const struct hl_region_view *view, struct hl_recording_process *process)
{
	const struct hl_region_header *header = view->base;
	const struct hl_region_site *shared = hl_region_read_area(view, HL_AREA_SITES);
	HL_CLEANUP(release_places) struct places places = {0};

	uint32_t providers = atomic_load_explicit(&header->provider_count, memory_order_acquire);
	if (providers > HL_SCRIPT_PROVIDERS_MAX) {
		process->lost.damaged++;
		providers = HL_SCRIPT_PROVIDERS_MAX;
	}
	if (!providers)
		return 0;
	/* Asked before the names are read: those of a site are there before it is. */
	uint32_t count = hl_region_read_bounded(
		view, HL_AREA_SITES,
		atomic_load_explicit(&header->site_count, memory_order_acquire), sizeof(*shared));
	int r = read_providers(view, providers, process);
	if (r == 0)
		r = read_names(view, process, &places);
	process->sites = calloc(count + (size_t)1, sizeof(*process->sites));
	if (r < 0 || !process->sites)
		return -ENOMEM;
	for (; process->site_count < count; process->site_count++) {
		struct hl_region_site site = shared[process->site_count];
		bool known = site.provider < providers;
		process->lost.damaged += !known;
		process->sites[process->site_count] = (struct hl_recording_site){
			.provider = known ? site.provider : 0,
			.function = find_name(&places, site.function),
			.source = find_name(&places, site.source),
			.line = site.line,
			.first_line = site.first_line,
		};
	}
	return 0;
}
