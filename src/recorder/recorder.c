/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the state begins; see recorder.h. */
#include "recorder/recorder.h"

struct hl_recorder *hl_recorder;

__thread struct hl_self hl_self __attribute__((tls_model("initial-exec")));
