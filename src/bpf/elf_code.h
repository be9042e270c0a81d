/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in an ELF file its code lies: probes are set by place in the file. */
#pragma once

#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>

/* The place in the file of the code at ${address}; false when it is not in the file. */
bool hl_elf_code_offset(Elf *elf, uint64_t address, uint64_t *ret_offset);
