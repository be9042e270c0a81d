/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline.h: what a program can say to, and ask of, the recorder inside it.
 *
 * Link with -lheapline, or leave the symbols weak and check them: they are there only when the
 * recorder is preloaded or linked. Without a collector (heapline record) the recorder passes every
 * call through, and these functions say so. All functions are thread-safe and async-signal-safe,
 * allocate nothing and keep errno.
 */
#ifndef HEAPLINE_H
#define HEAPLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hl_recording_mode {
	HL_CLOSED =
		0, /* allocations pass through unrecorded; frees of recorded blocks still count */
	HL_MEM_RECORD = 1, /* counters by stack; block table: hash */
	HL_MEM_FAST = 2,   /* counters by stack; block table: array */
};

/* The recorder's state. Set size to sizeof(struct hl_status) before the call: it says which fields
 * the caller knows. */
struct hl_status {
	size_t size;
	int32_t recording;     /* 1 while there is a collector or a region left by one, else 0 */
	int32_t mode;	       /* enum hl_recording_mode */
	uint64_t sample_bytes; /* mean distance of samples; 0 = every allocation is recorded */
	int64_t inuse_bytes;   /* within 1 % of the peak */
	uint64_t peak_bytes;   /* within 1 % */
	uint64_t stack_nodes;
};

/* The version of the library, "MAJOR.MINOR.PATCH". */
const char *hl_version(void);

/* Fills ${status}. 0, or -EINVAL when status->size is not one that this library knows. */
int hl_status_get(struct hl_status *status);

/*
 * Switches between HL_CLOSED and the mode that the recording was started with. 0, -ENOTCONN when
 * nothing is being recorded, or -EINVAL for another mode: the form of the block table is fixed when
 * recording starts.
 */
int hl_mode_set(enum hl_recording_mode mode);

#ifdef __cplusplus
}
#endif

#endif
