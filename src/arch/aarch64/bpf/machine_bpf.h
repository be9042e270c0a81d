/* SPDX-License-Identifier: BSD-2-Clause */
/* What aarch64 has for the loaders of BPF programs. */
#pragma once

#include "base/error.h"

#include <errno.h>
#include <unistd.h>

/* Tracepoints of page faults; functions whose return is watched return by a system call. */
#define HL_BPF_HAS_FAULT_TRACEPOINTS false
#define HL_BPF_RETURNS_BY_CALL	     false

/* Whether the programs can run here: they know pages of 4 KiB. */
static inline int hl_bpf_check_machine(struct hl_error *err)
{
	long page = sysconf(_SC_PAGESIZE);

	return page == 4096
		       ? 0
		       : hl_error_set(
				 err, -ENOTSUP,
				 "cannot trace on a kernel with pages of %ld KiB: only "
				 "pages of 4 KiB are known; use 'heapline heap' or 'leaks' there",
				 page / 1024);
}
