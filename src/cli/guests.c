/* SPDX-License-Identifier: BSD-2-Clause */
/* Which guests know something from outside; see guests/outside.h. */
#include "guests/outside.h"

const struct hl_guest_outside *const hl_guests_outside[] = {
	&hl_guest_outside_lua,
	&hl_guest_outside_python,
	&hl_guest_outside_skynet,
	NULL,
};
