/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that is not a directory, opened so that nothing can make the reader wait for ever or take
 * all memory. Its first block tells its kind before more of it is read.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HL_INPUT_HEAD_BYTES 65536

/* More of a stream, or of another tool's file, is not read into memory. */
#define HL_INPUT_BYTES_MAX (UINT64_C(1) << 30)

/* Close in any case, after HL_INPUT_NONE at least. */
struct hl_input {
	const char *name; /* the path, the caller's, or "standard input" */
	int fd;
	bool is_stdin;
	bool is_stream; /* a pipe or device, which has been read as far as the head */
	uint64_t size;	/* of a file that is not a stream */
	uint8_t *head;
	size_t head_size; /* less than HL_INPUT_HEAD_BYTES: the head is the whole input */
};

#define HL_INPUT_NONE ((struct hl_input){.fd = -1})

/* Whether ${path} is a directory, or does not exist, as a missing recording; "-" never is. */
bool hl_input_is_directory(const char *path);

/*
 * Opens ${path} ("-": standard input) and reads its head. A FIFO that nobody opens for writing
 * within a second is refused. 0 or a negative errno with a sentence; -EISDIR for a directory.
 */
int hl_input_open(struct hl_input *input, const char *path, struct hl_error *err);
void hl_input_close(struct hl_input *input);

/* Whether it begins with the ${size} bytes of ${mark}. */
bool hl_input_begins_with(const struct hl_input *input, const void *mark, size_t size);

/* All of it in memory that the caller frees, a NUL byte after it. 0 or a negative errno with a
 * sentence: -EFBIG for more than HL_INPUT_BYTES_MAX. */
int hl_input_read(struct hl_input *input, uint8_t **ret_bytes, size_t *ret_size,
		  struct hl_error *err);

/*
 * Makes a stream a file that can be read at any offset, and again: the bytes of a pipe are copied
 * to memory, which takes the place of standard input. As hl_input_read().
 */
int hl_input_make_file(struct hl_input *input, struct hl_error *err);
