/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzes the reader of /proc/PID/maps: what it accepts is in order, and everything is found in it.
 */
#include "process/maps.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct hl_map *map = &maps->maps[i];
		require(map->start < map->end);
		require(i == 0 || maps->maps[i - 1].end <= map->start);
		require(hl_maps_find(maps, map->start) == map);
		require(hl_maps_find(maps, map->end - 1) == map);
		require(map->path != NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct hl_maps maps = {0};
	struct hl_error err = {0};
	int r = hl_maps_parse((const char *)bytes, size, &maps, &err);

	require(r == 0 || r == -EBADMSG);
	require((r < 0) == (err.text[0] != '\0'));
	check(&maps);
	hl_maps_release(&maps);
	return 0;
}
