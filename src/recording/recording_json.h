/* SPDX-License-Identifier: BSD-2-Clause */
/* The JSON sections of a recording's files, from and to the structs of recording.h. */
#pragma once

#include "recording/recording.h"

#define HL_RECORDING_NODES_MAX	 ((UINT32_C(1) << 24) - 1)
#define HL_RECORDING_VALUES_MAX	 (UINT32_C(1) << 26)
#define HL_RECORDING_MODULES_MAX 16384u
#define HL_RECORDING_THREADS_MAX 8192u
#define HL_RECORDING_MARKS_MAX	 10000u
#define HL_RECORDING_FIGURES_MAX 64u

/* Text of the META section, to be freed; NULL for want of memory. */
char *hl_recording_to_json(const struct hl_recording *recording);
char *hl_recording_process_to_json(const struct hl_recording_process *process);

/*
 * Fill a zeroed struct; ${path} is for messages. After a failure the struct is to be released all
 * the same. node_count and value_count are set and within bounds, their arrays are not there yet.
 */
int hl_recording_from_json(const char *text, size_t size, const char *path,
			   struct hl_recording *recording, struct hl_error *err);
int hl_recording_process_from_json(const char *text, size_t size, const char *path,
				   struct hl_recording_process *process, struct hl_error *err);
