/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers in the columns of a page: unsigned LEB128 (DWARF 5, section 7.6). */
#pragma once

#include <stdint.h>
#include <stdio.h>

static inline void hl_report_put_unsigned(FILE *out, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		putc_unlocked((int)(number & 0x7f) | 0x80, out);
	putc_unlocked((int)number, out);
}

/* n >= 0 ? 2n : -2n - 1. */
static inline void hl_report_put_signed(FILE *out, int64_t number)
{
	hl_report_put_unsigned(out, (uint64_t)number << 1 ^ (uint64_t)(number >> 63));
}
