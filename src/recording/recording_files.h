/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and sections of a recording's files; see docs/format.md. */
#pragma once

#include "recording/recording.h"
#include "recording/recording_container.h"

#define HL_META_FILE	"recording.hlm"
#define HL_PROCESS_FILE "process-%u-%u.hlp" /* sequence, pid */

#define HL_KIND_RECORDING HL_FOURCC('R', 'E', 'C', 'M')
#define HL_KIND_PROCESS	  HL_FOURCC('P', 'R', 'O', 'C')

#define HL_SECTION_META	  HL_FOURCC('M', 'E', 'T', 'A')
#define HL_SECTION_NODES  HL_FOURCC('N', 'O', 'D', 'E')
#define HL_SECTION_VALUES HL_FOURCC('V', 'A', 'L', 'U')

/* More JSON than 16,384 modules with the longest paths can be is not read. */
#define HL_META_BYTES_MAX ((size_t)256 << 20)

/* Reads one file that is open at ${fd} into a zeroed struct, which is to be released in any case;
 * ${path} is for messages. */
int hl_recording_read_meta(int fd, const char *path, struct hl_recording *recording,
			   struct hl_error *err);
int hl_recording_read_process(int fd, const char *path, struct hl_recording_process *process,
			      struct hl_error *err);
