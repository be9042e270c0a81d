/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From addresses in a process that is gone to places in files, by the copy of /proc/PID/maps that
 * some heap profiles end with.
 */
#pragma once

#include "import/import_text.h"
#include "profile/builder.h"

struct hl_import_mapping {
	uint64_t start, end; /* end: one past */
	uint64_t offset;     /* of start in the file */
	const char *path, *path_end;
	bool executable;
	bool resolved;	 /* the members below are set */
	uint32_t module; /* 0: not a file that code can come from */
	uint64_t shift;	 /* address in the module's file = offset + shift */
};

/* Zero-initialize for an empty list. */
struct hl_import_maps {
	struct hl_import_mapping *mappings; /* in order, once finished */
	size_t count, capacity;
};

/* Adds the mapping that ${line} describes, which must stay; other lines are ignored. 0 or -ENOMEM.
 */
int hl_import_maps_add(struct hl_import_maps *maps, const struct hl_import_line *line);

/* To be called when all are added. */
void hl_import_maps_finish(struct hl_import_maps *maps);

/*
 * Finds ${address}: its module (0: none) and its address in the module's file, which is looked at
 * if it is there, to learn where its segments go. 0 or -ENOMEM.
 */
int hl_import_maps_find(struct hl_import_maps *maps, struct hl_builder *builder, uint64_t address,
			uint32_t *ret_module, uint64_t *ret_address);

/* Whether ${path} is a regular file or missing: pipes and devices must not be opened. */
bool hl_import_maps_may_hold_code(const char *path);

/*
 * What to add to an offset within ${mapping}, of which offset and executable are needed, to have
 * the address in the file ${path}. 0 when the file is not there: that is right for most libraries.
 */
uint64_t hl_import_maps_shift(const char *path, const struct hl_import_mapping *mapping);

void hl_import_maps_release(struct hl_import_maps *maps);
