/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocating with a tag, for entry points beside malloc's family. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A block from the real malloc, tagged with ${caller}, a return address. NULL without memory. */
void *hl_tags_allocate(size_t size, uint64_t caller);

/* The same, aligned; ${alignment} is a power of two. */
void *hl_tags_allocate_aligned(size_t alignment, size_t size, uint64_t caller);
