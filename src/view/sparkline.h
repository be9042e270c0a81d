/* SPDX-License-Identifier: BSD-2-Clause */
/* A timeline in one line of text. */
#pragma once

#include "open/history.h"

#define HL_SPARKLINE_COLUMNS 72
#define HL_SPARKLINE_MAX     (3 * HL_SPARKLINE_COLUMNS + 1) /* bytes for the text below */

/*
 * The maxima of the range in at most ${width} columns (0: as many as there may be): block elements
 * where the locale's letters are UTF-8, else ASCII. Each column is the highest of its share of the
 * range. Returns ${buffer}.
 */
const char *hl_sparkline(const struct hl_history *history, size_t width,
			 char buffer[HL_SPARKLINE_MAX]);
