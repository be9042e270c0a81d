/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the BPF programs know this machine's registers. */
#pragma once

#include "base/error.h"

#include <errno.h>

static inline int hl_bpf_check_machine(struct hl_error *err)
{
	return hl_error_set(err, -ENOTSUP, "tracing by BPF is not available on aarch64 yet");
}
