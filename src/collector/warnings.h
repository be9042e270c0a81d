/* SPDX-License-Identifier: BSD-2-Clause */
/* The sentences of a recording about what went wrong: each once, and not too many. */
#pragma once

#include "base/compiler.h"

#include <stdbool.h>
#include <stdint.h>

#define HL_WARNINGS_MAX 32

struct hl_warnings {
	char *texts[HL_WARNINGS_MAX + 1]; /* NULL-terminated */
	uint32_t count;
};

/* Adds a sentence. False when it was there already, or there is no room. */
bool hl_warnings_add(struct hl_warnings *warnings, const char *format, ...) HL_PRINTF(2, 3);

void hl_warnings_release(struct hl_warnings *warnings);
