/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads what PHP runs, out of its own structures: 8.2 and 8.4 without thread safety, as a program or as a library,
 * stripped or not.
 *
 *	frame	   a running function (zend_execute_data), which leads to the one that called it
 *	function   zend_function: of a script (zend_op_array), or of an extension, which has no lines
 *	op	   an instruction (zend_op), which has its line
 *	entry	   the frame that a call of execute_ex() began with; calls between scripts need no other one
 *	delegation a generator that runs for others, which wait in 'yield from': a frame without a function leads to these
 *
 * Where a release has its fields is known from its headers (hl_php_layouts). The interpreter says which release it is, and its
 * globals are as large as that release's. Nothing is believed before the first frames have been found in order by a
 * reader that cannot fault.
 *
 * In-process code: allocates nothing, takes no lock, and calls one function of the interpreter, which returns a text.
 */
#pragma once

#include "base/compiler.h"
#include "guests/provider.h"
#include "unwind/unwind.h"

#include <stdatomic.h>

/* What differs between releases: offsets in bytes, of 64-bit builds. */
struct hl_php_layout {
	uint8_t minor;		  /* of PHP 8, and of version 4 of its engine */
	uint16_t globals_bytes;	  /* of executor_globals */
	uint16_t thrown_at;	  /* of these: the op that threw what is being handled */
	uint8_t op_count, ops;	  /* of a function of a script */
	uint8_t file, first_line; /* likewise; the last line follows the first */
};

/* What the interpreter exports, by addresses. */
struct hl_php_api {
	uint64_t globals, globals_bytes; /* executor_globals */
	uint64_t version;		 /* get_zend_version() */
	uint64_t generator;		 /* zend_ce_generator; 0: not exported */
	uint64_t eval_start, eval_end;	 /* execute_ex() */
	uint64_t around_start,
		around_end;  /* php_request_startup() and php_request_shutdown(); 0: unknown */
	uint64_t start, end; /* of its module */
	const uint8_t *eh_frame_hdr; /* NULL: the module has none */
};

enum hl_php_problem {
	HL_PHP_FITS,
	HL_PHP_NOT_STARTED,
	HL_PHP_UNKNOWN_VERSION,
	HL_PHP_OTHER_LAYOUT, /* its globals are of another size */
	HL_PHP_NOT_PROVED,   /* frames were not in order */
	HL_PHP_THREAD_SAFE,
	HL_PHP_TOO_OFTEN, /* it has been loaded at too many addresses */
};

const char *hl_php_problem_text(enum hl_php_problem problem);

struct hl_php {
	const struct hl_php_layout *_Atomic layout; /* NULL: it has not started */
	struct hl_php_api api;
	uint64_t cold_start,
		cold_end; /* of execute_ex(), what the compiler put elsewhere; 0: nothing */
	_Atomic uint32_t proofs, failures;
};

/* ${php} is zero. */
void hl_php_open(struct hl_php *php, const struct hl_php_api *api);

/* Chooses the layout, once the interpreter has started. */
enum hl_php_problem hl_php_choose(struct hl_php *php);

/* Whether captures have failed where they were to prove the layout; they yield nothing any more. */
bool hl_php_is_refused(const struct hl_php *php);

/* As capture and recapture of hl_script_provider, once the layout has been chosen. A call whose function has ended is a frame
 * of api.eval_start, which has no place. */
uint32_t hl_php_capture(struct hl_php *php, const struct hl_script_caller *caller,
			struct hl_script_frame *frames, uint32_t max, bool *ret_truncated);
uint32_t hl_php_recapture(const struct hl_php *php, const struct hl_script_caller *caller,
			  struct hl_script_frame *frames, uint32_t max);

/* As describe of hl_script_provider. */
bool hl_php_describe(const struct hl_php *php, const struct hl_script_frame *frame,
		     struct hl_script_place *ret_place);

/* ---- requests.c ---- */

struct hl_recorder;
struct hl_thread;

/* The number that blocks are stamped with now; 0: they are not. */
uint32_t hl_php_request(struct hl_recorder *recorder, const struct hl_php_api *api);

/* See hl_guest.stamp. */
void hl_php_requests_stamp(struct hl_thread *thread, const void *block);

/* All memory of the memory manager is free. */
void hl_php_requests_end(struct hl_recorder *recorder);

/* ---- for the sources of this directory and their tests ---- */

HL_READS_STACK static inline uint64_t hl_php_word(uint64_t object, uint32_t offset)
{
	return *(const uint64_t *)(object + offset);
}

HL_READS_STACK static inline uint32_t hl_php_number(uint64_t object, uint32_t offset)
{
	return *(const uint32_t *)(object + offset);
}

HL_READS_STACK static inline uint8_t hl_php_byte(uint64_t object, uint32_t offset)
{
	return *(const uint8_t *)(object + offset);
}

/* Of a frame's function: its address. Above it is the upper half of its print. */
#define HL_PHP_FUNCTION_BITS 48u
#define HL_PHP_FUNCTION_MASK ((UINT64_C(1) << HL_PHP_FUNCTION_BITS) - 1)

/* The same in all releases. */
enum {
	HL_PHP_CURRENT = 488, /* of executor_globals: the innermost frame */

	HL_PHP_FRAME_OP = 0,
	HL_PHP_FRAME_FUNCTION = 24,
	HL_PHP_FRAME_OBJECT = 32, /* $this */
	HL_PHP_FRAME_FLAGS = 40,  /* with the type of $this in the lowest byte */
	HL_PHP_FRAME_OUTER = 48,
	HL_PHP_FRAME_BYTES = 80,
	HL_PHP_FLAG_ENTRY = 1 << 17,
	HL_PHP_TYPE_OBJECT = 8,

	HL_PHP_FUNCTION_TYPE = 0, /* a byte */
	HL_PHP_FUNCTION_NAME = 8,
	HL_PHP_FUNCTION_CLASS = 16,
	HL_PHP_FUNCTION_BYTES = 248,
	HL_PHP_NATIVE = 1, /* types of functions */
	HL_PHP_SCRIPT = 2,
	HL_PHP_EVALUATED = 4,
	HL_PHP_CLASS_NAME = 8,

	HL_PHP_OP_LINE = 24,
	HL_PHP_OP_BYTES = 32,

	HL_PHP_TEXT_HASH = 8, /* 0: not needed yet */
	HL_PHP_TEXT_COUNT = 16,
	HL_PHP_TEXT_BYTES = 24, /* where they begin */

	HL_PHP_OBJECT_CLASS = 16,
	HL_PHP_GENERATOR_FRAME = 56,
	HL_PHP_GENERATOR_PARENT = 152, /* the generator that runs for it; NULL: itself */
};

/* A function of a script, or of a file that is evaluated; the others have neither ops nor files. */
static inline bool hl_php_is_script(uint64_t function)
{
	return !(hl_php_byte(function, HL_PHP_FUNCTION_TYPE) & 1);
}
