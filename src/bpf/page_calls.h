/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a program's C library has the calls that bring pages in without a fault, move or discard
 * them: mmap, mremap, madvise, mlock and their like.
 */
#pragma once

#include "base/error.h"
#include "bpf/page_shared.h"
#include "process/maps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_page_call_site {
	enum hl_page_call call;
	/* In the file, of the place for a probe: arguments are where calls put them, and the return
	 * address is on top of the stack. The call itself may be over there. */
	uint64_t offset;
};

#define HL_PAGE_CALL_SITES_MAX 16u

/* In one file. Zero-initialize for an empty set. */
struct hl_page_calls {
	struct hl_page_call_site sites[HL_PAGE_CALL_SITES_MAX];
	size_t count;
};

/* Whether what ${call} did is known only when it returns. */
bool hl_page_call_returns_more(enum hl_page_call call);

/*
 * The calls that the ELF file open as ${fd} defines. None (which is no error) when it is not a C
 * library, nor a program with one linked into it: others that define them pass them on.
 */
void hl_page_calls_read(int fd, struct hl_page_calls *ret_calls);

/* The first code of ${maps} of ${pid} whose file has such calls, or NULL. */
const struct hl_map *hl_page_calls_find(pid_t pid, const struct hl_maps *maps,
					struct hl_page_calls *ret_calls);
