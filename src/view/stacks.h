/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of a trace: whole stacks, heaviest first, with what is of the whole trace above. */
#pragma once

#include "view/view.h"

/* As the other views of view.h; options->row_limit stacks. By line, calls from different lines of a
 * function are different stacks. The schema is that of the trace's kind. */
hl_view hl_view_stacks;
