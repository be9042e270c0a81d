/* SPDX-License-Identifier: BSD-2-Clause */
/* What a library that is loaded late has allocated by its own functions. */
#pragma once

#include <stddef.h>

struct late_figures {
	size_t blocks, bytes, kept_blocks, kept_bytes;
};
