/* SPDX-License-Identifier: BSD-2-Clause */
/* Probes a function of this process; see heap_calibration.h. */
#include "bpf/heap_calibration.h"

#include "base/clock.h"
#include "bpf/heap_shared.h"
#include "process/maps.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#define TRAP_NS_DEFAULT 600.0
#define ROUNDS		5 /* the fastest counts: others were interrupted */
#define CALLS		4000

/* Begins with an instruction that the kernel emulates, as good places for probes do. */
__asm__(".pushsection .text\n"
	".type hl_heap_calibration_site, @function\n"
	"hl_heap_calibration_site:\n"
	"	nop\n"
	"	ret\n"
	".size hl_heap_calibration_site, . - hl_heap_calibration_site\n"
	".popsection");

__attribute__((visibility("hidden"))) void hl_heap_calibration_site(void);

static int link_site(struct hl_probe_links *links, enum hl_probe_way way, int program_fd)
{
	uint64_t address = (uint64_t)(uintptr_t)hl_heap_calibration_site;
	struct hl_maps maps;
	char path[PATH_MAX];
	int r = hl_maps_read(getpid(), &maps, NULL);

	if (r < 0)
		return r;
	r = -ENOENT;
	for (size_t i = 0; i < maps.count; i++) {
		const struct hl_map *map = &maps.maps[i];
		if (address < map->start || address >= map->end)
			continue;
		const struct hl_probe_site site = {.offset = address - map->start + map->offset,
						   .cookie = HL_HEAP_CALLS};
		const struct hl_probe_target target = {getpid(), path, &site, 1};
		r = hl_map_file_path(getpid(), map, path, sizeof(path));
		if (r == 0)
			r = hl_probe_links_add(links, way, program_fd, false, &target, NULL);
	}
	hl_maps_release(&maps);
	return r;
}

/* Of one call. */
static double time_calls(void)
{
	double fastest = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start_ns = hl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		for (int i = 0; i < CALLS; i++)
			hl_heap_calibration_site();
		double ns = (double)(hl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / CALLS;
		if (!round || ns < fastest)
			fastest = ns;
	}
	return fastest;
}

double hl_heap_measure_trap(enum hl_probe_way way, int program_fd)
{
	struct hl_probe_links links = {0};
	double ns = TRAP_NS_DEFAULT;

	if (link_site(&links, way, program_fd) == 0)
		ns = time_calls();
	hl_probe_links_release(&links);
	return ns;
}
