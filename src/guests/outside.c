/* SPDX-License-Identifier: BSD-2-Clause */
/* Which guests know something from outside; see outside.h. */
#include "guests/outside.h"

/* Each is in the folder of its guest. */
extern const struct hl_guest_outside hl_guest_outside_beam, hl_guest_outside_lua,
	hl_guest_outside_php, hl_guest_outside_python, hl_guest_outside_ruby,
	hl_guest_outside_skynet;

const struct hl_guest_outside *const hl_guests_outside[HL_GUESTS_OUTSIDE_MAX + 1] = {
#ifdef HL_WITH_BEAM
	&hl_guest_outside_beam,
#endif
#ifdef HL_WITH_LUA
	&hl_guest_outside_lua,
#endif
#ifdef HL_WITH_PHP
	&hl_guest_outside_php,
#endif
#ifdef HL_WITH_PYTHON
	&hl_guest_outside_python,
#endif
#ifdef HL_WITH_RUBY
	&hl_guest_outside_ruby,
#endif
#ifdef HL_WITH_SKYNET
	&hl_guest_outside_skynet,
#endif
};

const struct hl_guest_outside *hl_guests_form(const struct hl_guest_request *requests)
{
	for (size_t i = 0; hl_guests_outside[i]; i++)
		if (requests[i].form)
			return hl_guests_outside[i];
	return NULL;
}
