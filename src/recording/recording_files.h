/* SPDX-License-Identifier: BSD-2-Clause */
/* Names, sections and bounds of a recording's files, and their JSON; see docs/format.md. */
#pragma once

#include "recording/container.h"
#include "recording/recording.h"

#define HL_SUFFIX	".hl" /* that names of recordings have by custom */
#define HL_META_FILE	"recording.hlm"
#define HL_PROCESS_FILE "process-%u-%u.hlp" /* sequence, pid */

/* A copy of a module's file, which could not be found at its path later: its build id, or what else tells it from others. */
#define HL_MODULE_FILE_START "module-"
#define HL_MODULE_FILE_END   ".elf"
#define HL_MODULE_FILE_MAX   96

/* False where the file cannot be told from others. */
bool hl_recording_module_file(const uint8_t *build_id, uint32_t build_id_bytes,
			      const struct hl_file_print *print, char ret_name[HL_MODULE_FILE_MAX]);

#define HL_KIND_RECORDING HL_FOURCC('R', 'E', 'C', 'M')
#define HL_KIND_PROCESS	  HL_FOURCC('P', 'R', 'O', 'C')

#define HL_SECTION_META	    HL_FOURCC('M', 'E', 'T', 'A')
#define HL_SECTION_NODES    HL_FOURCC('N', 'O', 'D', 'E')
#define HL_SECTION_VALUES   HL_FOURCC('V', 'A', 'L', 'U')
#define HL_SECTION_RESIDENT HL_FOURCC('R', 'E', 'S', 'I') /* of snapshots */

/* More JSON than 16,384 modules with the longest paths can be is not read. */
#define HL_META_BYTES_MAX ((size_t)256 << 20)

/* Reads one file that is open at ${fd} into a zeroed struct, which is to be released in any case;
 * ${path} is for messages. */
int hl_recording_read_meta(int fd, const char *path, struct hl_recording *recording,
			   struct hl_error *err);
int hl_recording_read_process(int fd, const char *path, struct hl_recording_process *process,
			      struct hl_error *err);

/* The same without nodes and resident bytes: of a process whose nodes were read before, most of the work. */
int hl_recording_read_values(int fd, const char *path, struct hl_recording_process *process,
			     struct hl_error *err);

#define HL_RECORDING_NODES_MAX	   ((UINT32_C(1) << 24) - 1)
#define HL_RECORDING_VALUES_MAX	   (UINT32_C(1) << 26)
#define HL_RECORDING_MODULES_MAX   16384u
#define HL_RECORDING_THREADS_MAX   8192u
#define HL_RECORDING_PROVIDERS_MAX 8u
#define HL_RECORDING_SITES_MAX	   (UINT32_C(1) << 20)
#define HL_RECORDING_MARKS_MAX	   10000u
#define HL_RECORDING_FIGURES_MAX   64u

/* Text of the META section, to be freed; NULL for want of memory. */
char *hl_recording_json_write(const struct hl_recording *recording);
char *hl_recording_json_write_process(const struct hl_recording_process *process);

/*
 * Fill a zeroed struct; ${path} is for messages. After a failure the struct is to be released all
 * the same. node_count and value_count are set and within bounds, their arrays are not there yet.
 */
int hl_recording_json_read(const char *text, size_t size, const char *path,
			   struct hl_recording *recording, struct hl_error *err);
int hl_recording_json_read_process(const char *text, size_t size, const char *path,
				   struct hl_recording_process *process, struct hl_error *err);
