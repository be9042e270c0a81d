/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where each version of CPython has what is read, as the C compiler lays out frameobject.h, code.h,
 * pystate.h and, of the later ones, internal/pycore_frame.h.
 *
 * The table stands in a header so that the walk of frames is compiled with the offsets as constants.
 */
#pragma once

#include "guests/python/python.h"

#define OBJECTS_8_TO_10                                                                 \
	.state_frame = 24, .frame_code = 32, .frame_previous = 24, .at_is_index = true, \
	.code_first_line = 40, .code_file = 104, .code_name = 112, .code_lines = 120,   \
	.ascii_bytes = 48, .text_bytes = 72
#define FRAMES_FROM_12                                                                    \
	.frame_code = 0, .frame_previous = 8, .frame_at = 56, .mark_owner = 3,            \
	.instruction_bytes = 2, .lines_kind = HL_PYTHON_LOCATIONS, .code_first_line = 68, \
	.code_file = 112, .code_name = 120, .code_full_name = 128, .code_lines = 136,     \
	.ascii_bytes = 40, .text_bytes = 56

static const struct hl_python_layout hl_python_layouts[HL_PYTHON_MINOR_MAX - HL_PYTHON_MINOR_MIN +
						       1] = {
	{.minor = 8,
	 OBJECTS_8_TO_10,
	 .frame_at = 104,
	 .instruction_bytes = 1,
	 .lines_kind = HL_PYTHON_LNOTAB},
	{.minor = 9,
	 OBJECTS_8_TO_10,
	 .frame_at = 104,
	 .instruction_bytes = 1,
	 .lines_kind = HL_PYTHON_LNOTAB},
	{.minor = 10,
	 OBJECTS_8_TO_10,
	 .frame_at = 96,
	 .instruction_bytes = 2,
	 .lines_kind = HL_PYTHON_RANGES},
	{.minor = 11,
	 .state_frame = 56,
	 .has_cframe = true,
	 .cframe_frame = 8,
	 .frame_code = 32,
	 .frame_previous = 48,
	 .frame_at = 56,
	 .frame_mark = 68,
	 .instruction_bytes = 2,
	 .lines_kind = HL_PYTHON_LOCATIONS,
	 .code_first_line = 72,
	 .code_file = 112,
	 .code_name = 120,
	 .code_full_name = 128,
	 .code_lines = 136,
	 .code_bytes = 184,
	 .ascii_bytes = 48,
	 .text_bytes = 72},
	{.minor = 12,
	 FRAMES_FROM_12,
	 .state_frame = 56,
	 .has_cframe = true,
	 .frame_mark = 70,
	 .code_bytes = 192},
	{.minor = 13, FRAMES_FROM_12, .state_frame = 72, .frame_mark = 70, .code_bytes = 200},
	{.minor = 14, FRAMES_FROM_12, .state_frame = 72, .frame_mark = 74, .code_bytes = 208},
};
