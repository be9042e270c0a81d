/* SPDX-License-Identifier: BSD-2-Clause */
/* A timeline as a picture. */
#pragma once

#include "view/timeline_rows.h"

#define HL_TIMELINE_SVG_COLUMNS 880u /* a row for each column of the plot */

/* Writes ${timeline} to options->out, and what is missing to options->notes too. 0 or -ENOMEM. */
int hl_timeline_svg(const struct hl_timeline *timeline, const struct hl_view_options *options);
