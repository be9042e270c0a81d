/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of the call frame machine at one program counter, as far as a walk needs it. */
#pragma once

#include "unwind/cfi.h"

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
	HL_CFI_TRACKED,
};

struct hl_cfi_state {
	struct hl_cfi_value cfa;
	struct hl_cfi_value saved[HL_CFI_TRACKED];
};
