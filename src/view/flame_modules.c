/* SPDX-License-Identifier: BSD-2-Clause */
/* Sorts modules by area and gives them colours; see flame_modules.h. */
#include "view/flame_modules.h"

#include "base/index.h"
#include "base/path.h"
#include "view/flame_color.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* To a colour that differs well; prime to their number, so that all are reached. */
#define COLOR_STEP 7

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

static void measure_areas(struct module_area *areas, const struct hl_profile *profile,
			  const struct hl_flame_layout *layout)
{
	for (size_t i = 0; i < profile->module_count; i++)
		areas[i].module = (uint32_t)i;
	for (size_t i = 1; i < layout->count; i++) {
		const struct hl_flame_frame *frame = &layout->frames[i];
		areas[profile->functions[frame->function].module].area += (double)frame->value;
	}
	qsort(areas, profile->module_count, sizeof(*areas), larger_first);
}

static unsigned preferred_color(const struct hl_profile *profile, uint32_t module)
{
	const char *name =
		hl_path_basename(hl_profile_text(profile, profile->modules[module].path));

	return hl_hash_bytes(name, strlen(name)) %
	       (unsigned)hl_flame_palette(HL_VIEW_PALETTE_MODULE)->count;
}

/* A colour is taken together with its neighbours, which look much like it. */
static void take(bool *taken, unsigned color, unsigned count)
{
	taken[color] = taken[(color + 1) % count] = taken[(color + count - 1) % count] = true;
}

static void choose_colors(struct hl_flame_modules *modules, const struct hl_profile *profile)
{
	unsigned count = (unsigned)hl_flame_palette(HL_VIEW_PALETTE_MODULE)->count;
	bool taken[HL_FLAME_COLOR_COUNT] = {false};

	for (size_t i = 0; i < modules->count; i++) {
		uint32_t module = modules->by_area[i];
		unsigned color = preferred_color(profile, module), tries = 0;
		while (taken[color] && tries++ < count)
			color = (color + COLOR_STEP) % count;
		if (taken[color]) /* all are: modules have to share colours */
			memset(taken, 0, sizeof(taken));
		take(taken, color, count);
		modules->colors[module] = color;
	}
}

int hl_flame_modules_init(struct hl_flame_modules *modules, const struct hl_profile *profile,
			  const struct hl_flame_layout *layout)
{
	struct module_area *areas = calloc(profile->module_count, sizeof(*areas));

	*modules = (struct hl_flame_modules){
		.by_area = calloc(profile->module_count, sizeof(*modules->by_area)),
		.colors = calloc(profile->module_count, sizeof(*modules->colors)),
	};
	if (!areas || !modules->by_area || !modules->colors) {
		free(areas);
		hl_flame_modules_release(modules);
		return -ENOMEM;
	}
	measure_areas(areas, profile, layout);
	while (modules->count < profile->module_count && areas[modules->count].area > 0) {
		modules->by_area[modules->count] = areas[modules->count].module;
		modules->count++;
	}
	choose_colors(modules, profile);
	free(areas);
	return 0;
}

void hl_flame_modules_release(struct hl_flame_modules *modules)
{
	free(modules->by_area);
	free(modules->colors);
	*modules = (struct hl_flame_modules){0};
}
