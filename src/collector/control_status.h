/* SPDX-License-Identifier: BSD-2-Clause */
/* How a recording stands, as the JSON that `heapline ctl` is answered with. */
#pragma once

#include "collector/control_actions.h"

#include <jansson.h>

/* An answer's line, which the caller frees. Takes ${object} over; NULL for want of memory, as is
 * the result then. */
char *hl_control_write(json_t *object);

/* Members `collector`, `recording`, `command`, `recorded`: whether process ${pid} is. */
char *hl_control_whose(const struct hl_control_subject *subject, pid_t pid);

/* The same without `recorded`, then `mode`, `ended`, `log_segments_kept`, and `processes`: those
 * that run. */
char *hl_control_status(const struct hl_control_subject *subject);
