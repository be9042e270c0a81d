/* SPDX-License-Identifier: BSD-2-Clause */
/* Palettes, made with equal steps in the OKLCH colour space; see flame_color.h. */
#include "view/flame_color.h"

#include "base/index.h"

#include <string.h>

#define DARK_PERCENT   45
#define GROWTH_STEPS   6     /* on each side of "the same" */
#define GROWTH_IGNORED 0.005 /* a smaller share of growth looks like none */

/* module: once around; diff: blue, grey, red, which the colour-blind can tell apart. */
static const struct hl_flame_palette palettes[] = {
	[HL_VIEW_PALETTE_DIFF] = {2 * GROWTH_STEPS + 1,
				  {0x4ea6fb, 0x67b1fa, 0x7ebaf9, 0x93c4f8, 0xa7cef6, 0xbcd7f4,
				   0xe1e1e1, 0xf3c8c2, 0xf4b9b0, 0xf4a99f, 0xf39a8e, 0xf2897d,
				   0xf0796b}},
	[HL_VIEW_PALETTE_MODULE] = {24,
				    {0xfaaab8, 0xffbcb7, 0xfaaf97, 0xffc39a, 0xedb980, 0xf3cf8b,
				     0xd4c57c, 0xd4db92, 0xb2d08d, 0xb0e5ac, 0x8ed7ad, 0x8fe9ce,
				     0x75d8cf, 0x83e7f0, 0x77d3ed, 0x93dfff, 0x92caff, 0xb3d5ff,
				     0xb5bfff, 0xd6c9ff, 0xd5b4f4, 0xf3c0f9, 0xedadda, 0xffbbda}},
};

enum hl_view_palette hl_flame_palette_choice(const struct hl_profile *profile,
					     const struct hl_view_options *options)
{
	if (options->palette != HL_VIEW_PALETTE_AUTO)
		return options->palette;
	return profile->base ? HL_VIEW_PALETTE_DIFF : HL_VIEW_PALETTE_MODULE;
}

const struct hl_flame_palette *hl_flame_palette(enum hl_view_palette choice)
{
	return &palettes[choice];
}

unsigned hl_flame_dark(unsigned rgb)
{
	unsigned dark = 0;

	for (int shift = 0; shift < 24; shift += 8)
		dark |= ((rgb >> shift & 255) * DARK_PERCENT + 50) / 100 << shift;
	return dark;
}

unsigned hl_flame_color_of_name(const char *name)
{
	return hl_hash_bytes(name, strlen(name)) % (unsigned)palettes[HL_VIEW_PALETTE_MODULE].count;
}

unsigned hl_flame_color_of_growth(int64_t before, int64_t after)
{
	double larger = (double)(before > after ? before : after);
	double growth = larger > 0 ? ((double)after - (double)before) / larger : 0;
	double size = growth < 0 ? -growth : growth;

	if (size <= GROWTH_IGNORED)
		return GROWTH_STEPS;
	int step = size < 1 ? 1 + (int)(size * GROWTH_STEPS) : GROWTH_STEPS;
	return (unsigned)(GROWTH_STEPS + (growth < 0 ? -step : step));
}
