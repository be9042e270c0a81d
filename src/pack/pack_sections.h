/* SPDX-License-Identifier: BSD-2-Clause */
/* Sections of a packed recording, and how the profile's arrays lie in them; see docs/format.md. */
#pragma once

#include "pack/pack.h"
#include "recording/recording_files.h"

#define HL_KIND_PACK HL_FOURCC('P', 'A', 'C', 'K')

#define HL_PACK_META	  HL_FOURCC('M', 'E', 'T', 'A')
#define HL_PACK_TEXTS	  HL_FOURCC('T', 'E', 'X', 'T')
#define HL_PACK_PROCESSES HL_FOURCC('P', 'R', 'O', 'C')
#define HL_PACK_THREADS	  HL_FOURCC('T', 'H', 'R', 'E')
#define HL_PACK_MODULES	  HL_FOURCC('M', 'O', 'D', 'U')
#define HL_PACK_FUNCTIONS HL_FOURCC('F', 'U', 'N', 'C')
#define HL_PACK_FRAMES	  HL_FOURCC('F', 'R', 'A', 'M')
#define HL_PACK_NODES	  HL_FOURCC('N', 'O', 'D', 'E')
#define HL_PACK_ROWS	  HL_FOURCC('R', 'O', 'W', 'S')
#define HL_PACK_SIZES	  HL_FOURCC('S', 'I', 'Z', 'E')
#define HL_PACK_BASE	  HL_FOURCC('B', 'A', 'S', 'E')

#define HL_PACK_INHERITED HL_FOURCC('I', 'N', 'H', 'E') /* optional */
#define HL_PACK_PRINTS	  HL_FOURCC('P', 'R', 'N', 'T') /* optional */
#define HL_PACK_RESIDENT  HL_FOURCC('R', 'E', 'S', 'I') /* of snapshots: more of each of ROWS */

#define HL_PACK_SCRIPTS HL_FOURCC('S', 'C', 'R', 'I') /* where there are frames of scripts */

#define HL_PACK_SECTION_COUNT 13 /* without RESIDENT, SCRIPTS and rare counters */

/* Where there is a log, in any order: */
#define HL_PACK_RECORDING HL_FOURCC('R', 'E', 'C', 'M') /* JSON, as in recording.hlm */
#define HL_PACK_RECORDED  HL_FOURCC('R', 'E', 'C', 'P') /* JSON of each process, NUL-terminated */
#define HL_PACK_LOG_NAMES HL_FOURCC('L', 'O', 'G', 'N') /* of files, NUL-terminated */
#define HL_PACK_LOG_BYTES HL_FOURCC('L', 'O', 'G', 'B') /* of each of them: u64 */
#define HL_PACK_LOG_FILES HL_FOURCC('L', 'O', 'G', 'S') /* the files, one after another */

#define HL_PACK_LOG_SECTION_COUNT 5

/* More of anything is not read. */
#define HL_PACK_ROWS_MAX ((size_t)1 << 28)
#define HL_PACK_TEXT_MAX ((size_t)1 << 30)

/* Instead of the thread of a row: the file that was imported knows no threads. */
#define HL_PACK_NO_THREAD UINT32_MAX

/* A node of the tree in preorder: its parent is the last one before it that is one less deep. */
struct hl_pack_node {
	uint32_t depth; /* of the root's children: 1 */
	uint32_t frame;
};

/* Structs that an array of the profile has from index 1 on; 0 stands for "none". */
extern const struct hl_columns hl_pack_module_columns, hl_pack_function_columns,
	hl_pack_frame_columns, hl_pack_script_columns, hl_pack_node_columns;

extern const struct hl_columns hl_pack_process_columns, hl_pack_inherited_columns,
	hl_pack_print_columns, hl_pack_resident_columns, hl_pack_thread_columns,
	hl_pack_row_columns, hl_pack_size_columns;

/* Of processes, each of hl_lost_counters: it lies alone in its pack_section, if it has one. */
extern const struct hl_columns hl_pack_lost_columns[HL_LOST_COUNT];

/* Text of the META section, to be freed; NULL for want of memory. */
char *hl_pack_meta_write(const struct hl_profile *profile);

/*
 * Fills the head of ${profile} from it: texts, known figures, warnings. ${ret_compared}: whether
 * there is an earlier profile in it. 0 or a negative errno with a sentence; ${name} is the file's.
 */
int hl_pack_meta_read(const char *text, size_t size, const char *name, struct hl_profile *profile,
		      bool *ret_compared, struct hl_error *err);

/* Adds the HL_PACK_LOG_SECTION_COUNT sections of ${log}. 0 or a negative errno with a sentence. */
int hl_pack_log_write(const struct hl_pack_log *log, struct hl_container_writer *writer,
		      struct hl_error *err);
