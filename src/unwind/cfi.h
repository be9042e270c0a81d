/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compiles call frame information (.eh_frame, .debug_frame) into rows: pc offset -> rule.
 *
 * A rule says how to step out of a frame from (pc, sp, bp) and the words that it names. It holds no
 * pointer and no address, and a row's pc is an offset from the module's base, so rows serve readers
 * of other processes as well.
 *
 * Never allocates; reads nothing outside the bytes it was given; any input gives rows or an error,
 * never a crash. Sources: System V ABI x86-64 section 3.7, DWARF 5 section 6.4, LSB 5 core
 * chapter 10.6 (.eh_frame, .eh_frame_hdr).
 */
#pragma once

#include "unwind/registers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Low 48 bits; the bits above are zero (the rule cache keeps a module id there). Packed and
 * unpacked in rule.h. */
typedef uint64_t hl_rule;

/* The bytes of one section, with the address at which its first byte is (or would be) mapped. */
struct hl_cfi_section {
	const uint8_t *bytes;
	size_t size;
	uint64_t address;
	bool is_debug_frame; /* .debug_frame: CIE id ~0, no pointer encoding augmentation */
	uint64_t bias; /* added to addresses that the section holds as absolute (DW_EH_PE_absptr,
			  .debug_frame) */
};

/*
 * Finds the rule for ${pc} by the binary search table of .eh_frame_hdr that lies in this process'
 * memory at ${hdr}.
 * ${start} and ${end} bound the module's mapping: nothing outside is read.
 * Returns 0, -ENOENT when no FDE covers pc, -EINVAL when the information is malformed.
 */
int hl_cfi_find_in_memory(const uint8_t *hdr, uint64_t start, uint64_t end, uint64_t pc,
			  hl_rule *ret_rule);

/* The same by a linear scan of a whole section (used for .debug_frame and for .eh_frame without a
 * table). */
int hl_cfi_find(const struct hl_cfi_section *section, uint64_t pc, hl_rule *ret_rule);

/* One row: from ${offset} (pc minus ${base} given to hl_cfi_compile) up to the next row's offset,
 * step by ${rule}. */
struct hl_cfi_row {
	uint32_t offset;
	uint32_t reserved;
	hl_rule rule;
};

/* Receives rows of one FDE in rising order of offset, then those of the next; FDEs come in the
 * section's order. */
typedef int hl_cfi_sink_fn(void *context, const struct hl_cfi_row *row);

/*
 * Compiles every FDE of a section, but those of functions that return by another register than the machine's others. A gap after a
 * function is a row with the rule "no information".
 * Returns 0, the sink's non-zero value, or -EINVAL for a malformed section (rows before the damage
 * have been given).
 */
int hl_cfi_compile(const struct hl_cfi_section *section, uint64_t base, hl_cfi_sink_fn *sink,
		   void *context);

/*
 * Sorts ${rows} by offset and drops rows that say what the row before them says. Returns the number
 * kept. On equal offsets the row given first that has information wins.
 */
size_t hl_cfi_rows_finish(struct hl_cfi_row *rows, size_t count);

/* Binary search; "no information" when no row covers the offset. */
hl_rule hl_cfi_rows_find(const struct hl_cfi_row *rows, size_t count, uint32_t offset);

/* A function of a module, by addresses. */
struct hl_cfi_code {
	uint64_t function_start, function_end;
	uint64_t start, end;	     /* of the module */
	const uint8_t *eh_frame_hdr; /* NULL: it has none */
};

/*
 * Compilers move what is rarely run out of a function, to a place that has call frame information of its own but no
 * name; or, by a profile, most of it. The two parts jump into each other in many places, and no other function jumps
 * into the middle of the main one: a switch of a thousand cases has such a part, which is found here. The outputs stay
 * as they are where it has none.
 */
void hl_cfi_find_cold(const struct hl_cfi_code *code, uint64_t *ret_start, uint64_t *ret_end);

/* ---- cfi program ---- */

/*
 * The call frame machine: reads the program of one FDE and runs it.
 *
 *	reader	numbers of DWARF encodings, out of bytes that are not trusted
 *	state	the rules of the machine at one program counter, as far as a walk needs them
 */

/* ---- reader ---- */

/* Reading past the end gives zero and sets ${failed}, once and for good, so that a caller may read
 * a whole record and ask afterwards. */
struct hl_cfi_reader {
	const uint8_t *at, *end;
	bool failed;
};

static inline size_t hl_cfi_left(const struct hl_cfi_reader *reader)
{
	return (size_t)(reader->end - reader->at);
}

static inline void hl_cfi_skip(struct hl_cfi_reader *reader, uint64_t bytes)
{
	if (bytes > hl_cfi_left(reader)) {
		reader->failed = true;
		bytes = hl_cfi_left(reader);
	}
	reader->at += bytes;
}

/* Little-endian, ${size} 1 to 8 bytes. */
static inline uint64_t hl_cfi_read_unsigned(struct hl_cfi_reader *reader, unsigned size)
{
	if (hl_cfi_left(reader) < size) {
		reader->failed = true;
		reader->at = reader->end;
		return 0;
	}
	uint64_t value = 0;
	for (unsigned i = 0; i < size; i++)
		value |= (uint64_t)reader->at[i] << (8 * i);
	reader->at += size;
	return value;
}

static inline int64_t hl_cfi_read_signed(struct hl_cfi_reader *reader, unsigned size)
{
	unsigned unused = 64 - 8 * size;

	return (int64_t)(hl_cfi_read_unsigned(reader, size) << unused) >> unused;
}

static inline uint8_t hl_cfi_read_byte(struct hl_cfi_reader *reader)
{
	return (uint8_t)hl_cfi_read_unsigned(reader, 1);
}

/* LEB128; bits beyond 64 are dropped. */
static inline uint64_t hl_cfi_read_leb(struct hl_cfi_reader *reader, bool is_signed)
{
	uint64_t value = 0;
	uint8_t byte;
	unsigned shift = 0;

	do {
		byte = hl_cfi_read_byte(reader);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	if (is_signed && shift < 64 && (byte & 0x40))
		value |= ~UINT64_C(0) << shift;
	return value;
}

static inline uint64_t hl_cfi_read_uleb(struct hl_cfi_reader *reader)
{
	return hl_cfi_read_leb(reader, false);
}

static inline int64_t hl_cfi_read_sleb(struct hl_cfi_reader *reader)
{
	return (int64_t)hl_cfi_read_leb(reader, true);
}

/* ---- state ---- */

enum hl_cfi_kind {
	HL_CFI_UNSPECIFIED,
	HL_CFI_UNDEFINED,  /* not recoverable; for the return address: outermost frame */
	HL_CFI_SAME,	   /* not changed by this frame */
	HL_CFI_OFFSET,	   /* saved at CFA + offset; for the CFA itself: reg + offset */
	HL_CFI_REGISTER,   /* kept in another register */
	HL_CFI_EXPRESSION, /* saved at the address that the expression computes; for the CFA: its
			      value */
	HL_CFI_VALUE,	   /* val_offset, val_expression: computed, not saved */
};

struct hl_cfi_value {
	uint8_t kind; /* enum hl_cfi_kind */
	uint8_t reg;  /* DWARF number; 255 stands for all that are greater */
	uint32_t expression_bytes;
	union {
		int64_t offset;
		const uint8_t *expression; /* inside the section */
	};
};

/* Registers whose saved places the call frame machine tracks; the others are skipped over. First those of enum hl_saved_register. */
enum hl_cfi_tracked {
	HL_CFI_BP = HL_SAVED_FRAME,
	HL_CFI_SP = HL_SAVED_COUNT,
	HL_CFI_RA,
	HL_CFI_TRACKED,
};

struct hl_cfi_state {
	struct hl_cfi_value cfa;
	struct hl_cfi_value saved[HL_CFI_TRACKED];
};

/* Index into hl_cfi_state.saved of a DWARF register number; -1 when it is not tracked. */
int hl_cfi_tracked(uint64_t dwarf_register);

/* ---- program ---- */

struct hl_cie {
	const uint8_t *start; /* NULL: none parsed */
	uint64_t code_align;
	int64_t data_align;
	uint64_t return_register;
	uint8_t pointer_encoding;
	bool has_augmentation_bytes; /* FDEs carry a length of augmentation data too */
	bool is_signal_frame;
	struct hl_cfi_reader program;
};

struct hl_fde {
	const struct hl_cie *cie;
	uint64_t begin, end;
	struct hl_cfi_reader program;
};

/* Receives each range [${from}, ${to}) of one state, in rising order; not empty. Non-zero stops. */
typedef int hl_cfi_range_fn(void *context, uint64_t from, uint64_t to,
			    const struct hl_cfi_state *state);

/* Where the function that holds ${pc} begins and ends, and the state there. Same bounds and errors as
 * hl_cfi_find_in_memory(). */
struct hl_cfi_function {
	uint64_t begin, end;
	bool is_signal_frame;
	struct hl_cfi_state state;
};

int hl_cfi_find_function(const uint8_t *hdr, uint64_t start, uint64_t end, uint64_t pc,
			 struct hl_cfi_function *ret_function);

/* The code without rules around ${pc}: from the end of the function before to the next one. -ENOENT where ${pc} has a rule, or is before the
 * first or behind the last function, or there is no table to search. */
int hl_cfi_find_gap(const uint8_t *hdr, uint64_t start, uint64_t end, uint64_t pc,
		    uint64_t *ret_begin, uint64_t *ret_end);

/* No compiler or linker leaves as much between functions: V8's builtins, in a library without symbols. All of them keep a frame pointer. */
#define HL_CFI_GENERATED_BYTES_MIN (UINT64_C(64) << 10)
/* Functions written in assembly language are short. As much of a smaller gap is searched for them. */
#define HL_CFI_GAP_BYTES_MAX 4096u

/* Returns 0, what ${visit} stopped with, or -EINVAL. */
int hl_cfi_program_run(const struct hl_cfi_section *section, const struct hl_fde *fde,
		       hl_cfi_range_fn *visit, void *context);

/* A code address in the encoding that ${cie} names (cfi.c). */
uint64_t hl_cfi_read_location(const struct hl_cfi_section *section, struct hl_cfi_reader *reader,
			      const struct hl_cie *cie);
