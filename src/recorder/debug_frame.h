/* SPDX-License-Identifier: BSD-2-Clause */
/* Call frame information of modules that carry none in memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Maps the uncompressed .debug_frame section of the ELF file ${path} ("" = the running program).
 * NULL when it has none or cannot be read. The mapping stays for the life of the process. By raw
 * system calls: errno is kept, nothing is allocated.
 */
const uint8_t *hl_debug_frame_map(const char *path, size_t *ret_bytes);
