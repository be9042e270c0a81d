/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of addresses while they are used: those from the file, and new ones; see symbols_cache.h.
 */
#include "symbols/symbols_cache.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct hl_symbols_cache {
	char *path;
	uint8_t *build_id;
	size_t build_id_bytes;
	char name[HL_SYMBOLS_STORE_NAME_MAX];
	struct hl_cached_names known;
	bool is_current; /* nothing has changed that could make the known names better */

	json_t *circumstances; /* of the new names; NULL: they would be worse than the known ones */
	enum hl_symbols_source source;
	char *reason;
	struct hl_cached_address *added; /* `first` counts in added_frames */
	struct hl_symbols_frame *added_frames;
	size_t added_count, added_capacity, frame_count, frame_capacity;
};

/* ---- life ---- */

int hl_symbols_cache_open(const char *path, const uint8_t *build_id, size_t build_id_bytes,
			  struct hl_symbols_cache **ret_cache)
{
	char name[HL_SYMBOLS_STORE_NAME_MAX];
	int r = 0;

	*ret_cache = NULL;
	if (path[0] != '/' || !hl_symbols_store_name(build_id, build_id_bytes, name))
		return 0;
	HL_CLOSED int directory_fd = hl_symbols_store_open(false);
	if (directory_fd < 0 && directory_fd != -ENOENT)
		return 0;
	struct hl_symbols_cache *cache = calloc(1, sizeof(*cache));
	if (!cache)
		return -ENOMEM;
	memcpy(cache->name, name, sizeof(name));
	cache->path = strdup(path);
	cache->build_id = malloc(build_id_bytes);
	if (cache->build_id)
		memcpy(cache->build_id, build_id, build_id_bytes);
	cache->build_id_bytes = build_id_bytes;
	HL_CLOSED int fd = directory_fd < 0
				   ? -1
				   : openat(directory_fd, name,
					    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (!cache->path || !cache->build_id)
		r = -ENOMEM;
	else if (fd >= 0)
		r = hl_symbols_cache_file_read(fd, name, &cache->known);
	if (r == -ENOMEM) {
		hl_symbols_cache_free(cache);
		return r;
	}
	cache->is_current = cache->known.circumstances &&
			    hl_symbols_circumstances_hold(cache->known.circumstances, path);
	*ret_cache = cache;
	return 0;
}

/* ---- known names ---- */

bool hl_symbols_cache_has_names(const struct hl_symbols_cache *cache)
{
	return cache->known.count > 0;
}

enum hl_symbols_source hl_symbols_cache_source(const struct hl_symbols_cache *cache)
{
	return cache->known.source;
}

const char *hl_symbols_cache_reason(const struct hl_symbols_cache *cache)
{
	return cache->known.reason;
}

static bool is_usable(const struct hl_symbols_cache *cache, const struct hl_cached_address *known)
{
	return cache->is_current || known->by_dwarf;
}

bool hl_symbols_cache_find(const struct hl_symbols_cache *cache, uint64_t address,
			   const struct hl_symbols_frame **ret_frames, size_t *ret_count)
{
	size_t at =
		HL_LOWER_BOUND(i, cache->known.count, cache->known.addresses[i].address < address);

	const struct hl_cached_address *known = &cache->known.addresses[at];
	if (at == cache->known.count || known->address != address || !is_usable(cache, known))
		return false;
	*ret_frames = cache->known.frames + known->first;
	*ret_count = known->count;
	return true;
}

/* ---- new names ---- */

int hl_symbols_cache_meet(struct hl_symbols_cache *cache, const struct hl_symbols_file *file)
{
	enum hl_symbols_source source = hl_symbols_file_source(file);

	/* Circumstances do not name .dwo files, which may be put back at any time. */
	if (!hl_symbols_file_is_there(file) || source == HL_SYMBOLS_NONE ||
	    hl_symbols_file_misses_units(file) ||
	    (hl_symbols_cache_has_names(cache) && source < cache->known.source)) {
		cache->is_current = true;
		return 0;
	}
	if (source > cache->known.source)
		cache->is_current = false;
	cache->source = source;
	cache->reason = strdup(hl_symbols_file_reason(file));
	cache->circumstances =
		hl_symbols_circumstances_new(cache->path, cache->build_id, cache->build_id_bytes,
					     hl_symbols_file_debug_link(file));
	return cache->reason && cache->circumstances ? 0 : -ENOMEM;
}

int hl_symbols_cache_add(struct hl_symbols_cache *cache, uint64_t address,
			 const struct hl_symbols_frame *frames, size_t count, bool by_dwarf)
{
	if (!cache->circumstances)
		return 0;
	if (HL_ARRAY_RESERVE(cache->added, cache->added_capacity, cache->added_count + 1) < 0 ||
	    HL_ARRAY_RESERVE(cache->added_frames, cache->frame_capacity,
			     cache->frame_count + count) < 0)
		return -ENOMEM;
	memcpy(cache->added_frames + cache->frame_count, frames, count * sizeof(*frames));
	cache->added[cache->added_count++] = (struct hl_cached_address){
		address, (uint32_t)cache->frame_count, (uint32_t)count, by_dwarf};
	cache->frame_count += count;
	return 0;
}

/* ---- all of it, kept ---- */

static int by_address(const void *left, const void *right)
{
	const struct hl_cached_address *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

static void append_names(struct hl_cached_names *names, const struct hl_cached_address *from,
			 const struct hl_symbols_frame *frames)
{
	struct hl_cached_address *address = &names->addresses[names->count++];

	*address = *from;
	address->first = (uint32_t)names->frame_count;
	memcpy(names->frames + names->frame_count, frames + from->first,
	       from->count * sizeof(*frames));
	names->frame_count += from->count;
}

/* Writes the known names that may still be used, and the new ones, by address. */
static void save(const struct hl_symbols_cache *cache)
{
	struct hl_cached_names names = {
		.circumstances = cache->circumstances,
		.source = cache->source,
		.reason = cache->reason,
	};
	HL_FREED struct hl_cached_address *addresses =
		calloc(cache->known.count + cache->added_count, sizeof(*addresses));
	HL_FREED struct hl_symbols_frame *frames =
		calloc(cache->known.frame_count + cache->frame_count, sizeof(*frames));
	HL_CLOSED int directory_fd = addresses && frames ? hl_symbols_store_open(true) : -1;
	size_t kept = 0;

	if (directory_fd < 0)
		return;
	names.addresses = addresses;
	names.frames = frames;
	for (size_t i = 0; i < cache->known.count; i++)
		if (is_usable(cache, &cache->known.addresses[i]))
			append_names(&names, &cache->known.addresses[i], cache->known.frames);
	for (size_t i = 0; i < cache->added_count; i++)
		append_names(&names, &cache->added[i], cache->added_frames);
	qsort(addresses, names.count, sizeof(*addresses), by_address);
	/* Drops duplicates: an address may have been asked for twice. */
	for (size_t i = 0; i < names.count; i++)
		if (!kept || addresses[kept - 1].address != addresses[i].address)
			addresses[kept++] = addresses[i];
	names.count = kept;
	if (hl_symbols_cache_file_write(directory_fd, cache->name, &names) == 0)
		hl_symbols_store_trim(directory_fd, HL_SYMBOLS_STORE_BYTES);
}

void hl_symbols_cache_free(struct hl_symbols_cache *cache)
{
	if (!cache)
		return;
	if (cache->added_count && cache->circumstances)
		save(cache);
	hl_symbols_cache_file_release(&cache->known);
	json_decref(cache->circumstances);
	free(cache->reason);
	free(cache->added);
	free(cache->added_frames);
	free(cache->path);
	free(cache->build_id);
	free(cache);
}
