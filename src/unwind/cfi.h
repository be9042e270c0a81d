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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Low 48 bits; the bits above are zero (the rule cache keeps a module id there). Packed and
 * unpacked in arch.h. */
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
 * Compiles every FDE of a section. A gap after a function is a row with the rule "no information".
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
