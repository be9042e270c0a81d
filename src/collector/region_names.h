/* SPDX-License-Identifier: BSD-2-Clause */
/* Tells the writer of a log what the nodes and modules of a region are, while the target goes on.
 * Node ids are the region's own. */
#pragma once

#include "collector/region_read.h"
#include "log/log_writer.h"

struct hl_region_names {
	struct hl_log_names names; /* what the writer is given */
	struct hl_region_view view;
	const char *executable;		   /* the main module's path */
	struct hl_recording_module module; /* the last that was asked for */
	char function[HL_SITE_NAME_MAX + 1], source[HL_SITE_NAME_MAX + 1]; /* of the last site */
};

/* ${view} and ${executable} must stay. ${names} must not move. */
void hl_region_names_init(struct hl_region_names *names, const struct hl_region_view *view,
			  const char *executable);
void hl_region_names_release(struct hl_region_names *names);
