/* SPDX-License-Identifier: BSD-2-Clause */
/* What the notes of a core file tell of the process: its name, threads and mapped files. */
#pragma once

#include "process/maps.h"
#include "process/process.h"

#include <stddef.h>
#include <stdint.h>

/* Reads the notes in ${length} bytes at ${bytes}: fills ${facts}, and gives mappings of ${maps} the
 * names of their files, and of stacks. What is damaged is left out. 0 or -ENOMEM. */
int hl_core_notes_read(const uint8_t *bytes, size_t length, struct hl_maps *maps,
		       struct hl_process_facts *facts);
