/* SPDX-License-Identifier: BSD-2-Clause */
/* Which guests add to the command line; see outside.h. */
#include "guests/outside.h"

#include <stddef.h>

const struct hl_guest_tool *const hl_guest_tools[] = {
#ifdef HL_WITH_SKYNET
	&hl_guest_tool_skynet,
#endif
#ifdef HL_WITH_BEAM
	&hl_guest_tool_beam,
#endif
#ifdef HL_WITH_PYTHON
	&hl_guest_tool_python,
#endif
	NULL,
};
