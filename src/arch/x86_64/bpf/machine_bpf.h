/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the BPF programs know this machine's registers. */
#pragma once

#include "base/error.h"

static inline int hl_bpf_check_machine(struct hl_error *err)
{
	(void)err;
	return 0;
}
