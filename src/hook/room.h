/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a process has room for memory that code can reach with a 32-bit displacement. */
#pragma once

#include "process/maps.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether every byte of the ${size} bytes at ${address} can reach ${near}, and be reached from it. */
bool hl_room_reaches(uint64_t address, uint64_t size, uint64_t near);

/*
 * An address at which ${size} bytes, whole pages, are free and can reach ${near}; 0 when there is
 * none. The memory above [heap] and below [stack] is left to them, and a page on each side of the
 * room stays free.
 */
uint64_t hl_room_find(const struct hl_maps *maps, uint64_t near, uint64_t size);
