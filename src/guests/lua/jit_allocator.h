/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the function by which LuaJIT allocates: it is not exported, and has no symbol in stripped files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * By lua_newstate(), of which ${code} is at ${address}: it compares its argument with the number that stands for the
 * interpreter's own allocator, and later with that allocator's address. 0: it does not, as in builds that use malloc().
 */
uint64_t hl_luajit_allocator_find(const uint8_t *code, size_t bytes, uint64_t address);

/* Whether ${code} begins by asking whether its fourth argument is 0, as that function does. */
bool hl_luajit_allocator_is(const uint8_t *code, size_t bytes);

/* Of ${code} for hl_luajit_allocator_is(). */
#define HL_LUAJIT_ALLOCATOR_BYTES 16u
