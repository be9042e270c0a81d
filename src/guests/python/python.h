/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads what CPython runs, out of its own structures: versions 3.8 to 3.14, as a program or as a
 * library, stripped or not.
 *
 *	state	a thread's state (PyThreadState), one for each interpreter that it has been in
 *	frame	a running function: PyFrameObject until 3.10, _PyInterpreterFrame since
 *	code	what a function was compiled to (PyCodeObject): names, and the lines of instructions
 *	mark	what says that native code entered a frame: a bit of it, or, since 3.12, a frame
 *		without code outward of it; until 3.10 native code enters every frame
 *
 * Where a version has its fields is known from its headers (hl_python_layouts) and compared with what the
 * interpreter says of itself. Nothing is believed before the first frames have been found in order
 * by a reader that cannot fault.
 *
 * In-process code: allocates nothing, takes no lock, and calls two functions of the interpreter, which
 * only load the calling thread's state.
 */
#pragma once

#include "guests/provider.h"
#include "unwind/unwind.h"

#include <stdatomic.h>

/* By what its functions count instructions, and its tables give lines. */
enum hl_python_lines {
	HL_PYTHON_LNOTAB,    /* 3.8, 3.9: steps of bytes and lines */
	HL_PYTHON_RANGES,    /* 3.10: ranges of bytes, each with a step of lines */
	HL_PYTHON_LOCATIONS, /* from 3.11 on: ranges of instructions with lines and columns */
};

/* Offsets in bytes, of 64-bit builds with a global interpreter lock. */
struct hl_python_layout {
	uint8_t minor; /* of version 3 */
	uint8_t state_frame;
	bool has_cframe; /* state_frame leads to what has the frame at ${cframe_frame} */
	uint8_t cframe_frame;
	uint8_t frame_code, frame_previous, frame_at;
	bool at_is_index;   /* a number, not an address in the code object */
	uint8_t frame_mark; /* a byte; 0: native code enters every frame */
	/* From this value on the frame itself is a mark; 0: the byte is a bool, of the frame that is
	 * entered. */
	uint8_t mark_owner;
	uint8_t instruction_bytes; /* what one step of the number is */
	enum hl_python_lines lines_kind;
	uint8_t code_first_line, code_file, code_name;
	uint8_t code_full_name;		/* 0 if it has none */
	uint8_t code_lines, code_bytes; /* table; instructions, in the object itself */
	uint8_t ascii_bytes,
		text_bytes; /* where the characters of a string are, of others than ASCII */
};

/* hl_python_layouts[minor - 8] is the layout of version 3.minor. */
#define HL_PYTHON_MINOR_MIN 8u
#define HL_PYTHON_MINOR_MAX 14u

/* What the interpreter exports, by addresses. */
struct hl_python_api {
	uint32_t version; /* Py_Version; 0: before 3.11 */
	uint64_t runtime; /* _PyRuntime */
	uint64_t code_type, frame_type;
	uint64_t current_state; /* _PyThreadState_UncheckedGet() or PyThreadState_GetUnchecked() */
	uint64_t own_state;	/* PyGILState_GetThisThreadState() */
	uint64_t eval_start, eval_end; /* _PyEval_EvalFrameDefault() */
	uint64_t start, end;	       /* of its module */
	const uint8_t *eh_frame_hdr;   /* NULL: the module has none */
};

enum hl_python_problem {
	HL_PYTHON_FITS,
	HL_PYTHON_UNKNOWN_VERSION,
	HL_PYTHON_FREE_THREADED,
	HL_PYTHON_OTHER_LAYOUT, /* its own tables of offsets differ from those that are known */
	HL_PYTHON_NOT_PROVED,	/* frames were not in order */
};

const char *hl_python_problem_text(enum hl_python_problem problem);

struct hl_python {
	const struct hl_python_layout *layout;
	struct hl_python_api api;
	/* Of _PyEval_EvalFrameDefault(), what the compiler put elsewhere; 0: nothing. */
	uint64_t cold_start, cold_end;
	_Atomic uint64_t code_type; /* of code objects; 0: none has been seen */
	_Atomic uint32_t proofs, failures;
	/* Whether hl_script_forget() is called for code objects that end: otherwise what lies at an
	 * address is looked at again each time. */
	bool ends_are_told;
};

/* Chooses the layout. ${python} is zero, and usable if HL_PYTHON_FITS is returned. */
enum hl_python_problem hl_python_open(struct hl_python *python, const struct hl_python_api *api);

/* What hl_python_open() does for the main function, out of its code and the call frame information alone: finds the part
 * of ${python}->api's that has no name. The module's file, laid out in memory, does as well. */
void hl_python_find_cold(struct hl_python *python);

/* Whether captures have failed where they were to prove the layout; they yield nothing any more. */
bool hl_python_is_refused(const struct hl_python *python);

/* As capture of hl_script_provider. A call whose function has ended is a frame of api.eval_start, which has no place. */
uint32_t hl_python_capture(struct hl_python *python, const struct hl_script_caller *caller,
			   struct hl_script_frame *frames, uint32_t max, bool *ret_truncated);

/* As recapture of hl_script_provider, for the interpreter's version. */
typedef uint32_t hl_python_recapture_fn(const struct hl_python *python,
					struct hl_script_memory *memory,
					struct hl_script_frame *frames, uint32_t max);
hl_python_recapture_fn *hl_python_recapture(const struct hl_python *python);

/* As describe of hl_script_provider. */
bool hl_python_describe(const struct hl_python *python, const struct hl_script_frame *frame,
			struct hl_script_place *ret_place);

/* ---- for the sources of this directory and their tests ---- */

HL_READS_STACK static inline uint64_t hl_python_word(uint64_t object, uint32_t offset)
{
	return *(const uint64_t *)(object + offset);
}

HL_READS_STACK static inline uint32_t hl_python_number(uint64_t object, uint32_t offset)
{
	return *(const uint32_t *)(object + offset);
}

HL_READS_STACK static inline uint8_t hl_python_byte(uint64_t object, uint32_t offset)
{
	return *(const uint8_t *)(object + offset);
}

/* Of a frame's function: the code object. Above it, where ends are not told, is the upper half of its print. */
#define HL_PYTHON_CODE_BITS 48u
#define HL_PYTHON_CODE_MASK ((UINT64_C(1) << HL_PYTHON_CODE_BITS) - 1)

/* Objects begin with a count and their type; those of variable size have that at 16. */
#define HL_PYTHON_TYPE	    8u
#define HL_PYTHON_SIZE	    16u
#define HL_PYTHON_TYPE_NAME 24u /* of a type, as the next ones */
#define HL_PYTHON_TYPE_END  48u /* tp_dealloc */

/* ---- layouts ---- */

/*
 * Where each version of CPython has what is read, as the C compiler lays out frameobject.h, code.h,
 * pystate.h and, of the later ones, internal/pycore_frame.h.
 *
 * The table stands in a header so that the walk of frames is compiled with the offsets as constants.
 */

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
