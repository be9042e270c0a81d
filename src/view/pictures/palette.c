/* SPDX-License-Identifier: BSD-2-Clause */
/* Palettes, made with equal steps in the OKLCH colour space; see palette.h. */
#include "view/pictures/palette.h"

#include "base/index.h"

#include <stdbool.h>
#include <string.h>

#define DARK_PERCENT   45
#define GROWTH_STEPS   6     /* on each side of "the same" */
#define GROWTH_IGNORED 0.005 /* a smaller share counts as the same */
#define COLOR_STEP     7     /* to a colour that differs well; prime to HL_PALETTE_MAX */

const struct hl_palette hl_palette_names = {
	24, {0xfaaab8, 0xffbcb7, 0xfaaf97, 0xffc39a, 0xedb980, 0xf3cf8b, 0xd4c57c, 0xd4db92,
	     0xb2d08d, 0xb0e5ac, 0x8ed7ad, 0x8fe9ce, 0x75d8cf, 0x83e7f0, 0x77d3ed, 0x93dfff,
	     0x92caff, 0xb3d5ff, 0xb5bfff, 0xd6c9ff, 0xd5b4f4, 0xf3c0f9, 0xedadda, 0xffbbda}};

const struct hl_palette hl_palette_growth = {2 * GROWTH_STEPS + 1,
					     {0x4ea6fb, 0x67b1fa, 0x7ebaf9, 0x93c4f8, 0xa7cef6,
					      0xbcd7f4, 0xe1e1e1, 0xf3c8c2, 0xf4b9b0, 0xf4a99f,
					      0xf39a8e, 0xf2897d, 0xf0796b}};

unsigned hl_palette_of_name(const char *name)
{
	return hl_hash_bytes(name, strlen(name)) % (unsigned)hl_palette_names.count;
}

void hl_palette_assign(const char *const *names, size_t count, unsigned *ret_colors)
{
	const unsigned all = (unsigned)hl_palette_names.count;
	bool taken[HL_PALETTE_MAX] = {false};

	for (size_t i = 0; i < count; i++) {
		unsigned color = hl_palette_of_name(names[i]);
		for (unsigned tries = 0; taken[color] && tries < all; tries++)
			color = (color + COLOR_STEP) % all;
		if (taken[color]) /* all are: names have to share colours */
			memset(taken, 0, sizeof(taken));
		/* Together with its neighbours, which look much like it. */
		taken[color] = taken[(color + 1) % all] = taken[(color + all - 1) % all] = true;
		ret_colors[i] = color;
	}
}

unsigned hl_palette_of_growth(int64_t before, int64_t after)
{
	double larger = (double)(before > after ? before : after);
	double growth = larger > 0 ? ((double)after - (double)before) / larger : 0;
	double size = growth < 0 ? -growth : growth;

	if (size <= GROWTH_IGNORED)
		return GROWTH_STEPS;
	int step = size < 1 ? 1 + (int)(size * GROWTH_STEPS) : GROWTH_STEPS;
	return (unsigned)(GROWTH_STEPS + (growth < 0 ? -step : step));
}

unsigned hl_palette_dark(unsigned rgb)
{
	unsigned dark = 0;

	for (int shift = 0; shift < 24; shift += 8)
		dark |= ((rgb >> shift & 255) * DARK_PERCENT + 50) / 100 << shift;
	return dark;
}
