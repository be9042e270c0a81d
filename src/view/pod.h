/* SPDX-License-Identifier: BSD-2-Clause */
/* The balance of a control group as a report. */
#pragma once

#include "heap/pod.h"
#include "view/emit.h"

/* What the group has, what the kernel can take back, how far the limit is, and the rows. 0, -ENOMEM, or the output's
 * error. */
int hl_pod_view(const struct hl_pod *pod, const struct hl_emit_options *options);
