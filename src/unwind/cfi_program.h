/* SPDX-License-Identifier: BSD-2-Clause */
/* The call frame machine: runs the program of one FDE. */
#pragma once

#include "unwind/cfi_reader.h"
#include "unwind/cfi_state.h"

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

/* Returns 0, what ${visit} stopped with, or -EINVAL. */
int hl_cfi_run(const struct hl_cfi_section *section, const struct hl_fde *fde,
	       hl_cfi_range_fn *visit, void *context);

/* A code address in the encoding that ${cie} names (cfi.c). */
uint64_t hl_cfi_read_location(const struct hl_cfi_section *section, struct hl_cfi_reader *reader,
			      const struct hl_cie *cie);
