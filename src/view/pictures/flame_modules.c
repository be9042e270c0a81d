/* SPDX-License-Identifier: BSD-2-Clause */
/* Sorts the modules of a flame graph by area and gives them colours; see flame.h. */
#include "base/cleanup.h"
#include "base/path.h"
#include "view/pictures/flame.h"

#include <errno.h>
#include <stdlib.h>

struct module_area {
	uint32_t module;
	double area; /* a sum over all rows, which may be beyond any integer */
};

static int larger_first(const void *left, const void *right)
{
	const struct module_area *a = left, *b = right;

	if (a->area < b->area || a->area > b->area)
		return a->area < b->area ? 1 : -1;
	return (a->module > b->module) - (a->module < b->module);
}

int hl_flame_modules_init(struct hl_flame_modules *modules, const struct hl_profile *profile,
			  const struct hl_flame_layout *layout)
{
	const size_t count = profile->module_count;
	HL_FREED struct module_area *areas = calloc(count, sizeof(*areas));
	HL_FREED const char **names = calloc(count, sizeof(*names));
	HL_FREED unsigned *colors = calloc(count, sizeof(*colors));

	*modules = (struct hl_flame_modules){
		.by_area = calloc(count, sizeof(*modules->by_area)),
		.colors = calloc(count, sizeof(*modules->colors)),
	};
	if (!areas || !names || !colors || !modules->by_area || !modules->colors)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		areas[i].module = (uint32_t)i;
	for (size_t i = 1; i < layout->count; i++) {
		const struct hl_flame_frame *frame = &layout->frames[i];
		areas[profile->functions[frame->function].module].area += (double)frame->value;
	}
	qsort(areas, count, sizeof(*areas), larger_first);
	for (size_t i = 0; i < count && areas[i].area > 0; i++) {
		uint32_t module = areas[i].module;
		modules->by_area[modules->count++] = module;
		names[i] =
			hl_path_basename(hl_profile_text(profile, profile->modules[module].path));
	}
	hl_palette_assign(names, modules->count, colors);
	for (size_t i = 0; i < modules->count; i++)
		modules->colors[modules->by_area[i]] = colors[i];
	return 0;
}

void hl_flame_modules_release(struct hl_flame_modules *modules)
{
	free(modules->by_area);
	free(modules->colors);
	*modules = (struct hl_flame_modules){0};
}
