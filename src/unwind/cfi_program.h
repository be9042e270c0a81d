/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call frame machine: reads the program of one FDE and runs it.
 *
 *	reader	numbers of DWARF encodings, out of bytes that are not trusted
 *	state	the rules of the machine at one program counter, as far as a walk needs them
 */
#pragma once

#include "unwind/cfi.h"

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

/* ULEB128; bits beyond 64 are dropped. */
static inline uint64_t hl_cfi_read_uleb(struct hl_cfi_reader *reader)
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
	return value;
}

/* SLEB128; bits beyond 64 are dropped. */
static inline int64_t hl_cfi_read_sleb(struct hl_cfi_reader *reader)
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
	if (shift < 64 && (byte & 0x40))
		value |= ~UINT64_C(0) << shift;
	return (int64_t)value;
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

/* Registers whose saved places the machine tracks; the others are skipped over. */
enum hl_cfi_tracked {
	HL_CFI_BP,
	HL_CFI_SP,
	HL_CFI_RA,
	HL_CFI_RBX,
	HL_CFI_R12,
	HL_CFI_R13,
	HL_CFI_R14,
	HL_CFI_R15,
	HL_CFI_TRACKED,
};

struct hl_cfi_state {
	struct hl_cfi_value cfa;
	struct hl_cfi_value saved[HL_CFI_TRACKED];
};

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
