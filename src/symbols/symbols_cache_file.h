/* SPDX-License-Identifier: BSD-2-Clause */
/* The file of known names of one module; see symbols_cache.h and docs/format.md. */
#pragma once

#include "symbols/symbols.h"

#include <jansson.h>

struct hl_cached_address {
	uint64_t address;
	uint32_t first, count; /* its frames, innermost first */
	uint32_t by_dwarf;     /* 0 or 1; see hl_symbols_file_find() */
};

struct hl_cached_names {
	json_t *circumstances; /* see symbols_circumstances.h */
	enum hl_symbols_source source;
	char *reason;
	struct hl_cached_address *addresses; /* ascending */
	struct hl_symbols_frame *frames;
	size_t count, frame_count;
	char *texts; /* of frames that were read */
};

/* Fills zeroed ${names}, to be released; after a failure they are as they were. 0 or a negative
 * errno. ${name} is for messages that nobody sees. */
int hl_cached_names_read(int fd, const char *name, struct hl_cached_names *names);

/* Writes them to the file ${name}, unless another writer is at work. 0 or a negative errno. */
int hl_cached_names_write(int directory_fd, const char *name, const struct hl_cached_names *names);

void hl_cached_names_release(struct hl_cached_names *names);
