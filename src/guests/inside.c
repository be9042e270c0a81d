/* SPDX-License-Identifier: BSD-2-Clause */
/* The guests that are built into the recorder; see guest.h. */
#include "guests/guest.h"

const struct hl_guest *const hl_guests[HL_GUESTS] = {
#ifdef HL_WITH_JAVA
	[HL_GUEST_JAVA] = &hl_guest_java,
#endif
#ifdef HL_WITH_LUA
	[HL_GUEST_LUA] = &hl_guest_lua,
#endif
#ifdef HL_WITH_PHP
	[HL_GUEST_PHP] = &hl_guest_php,
#endif
#ifdef HL_WITH_PYTHON
	[HL_GUEST_PYTHON] = &hl_guest_python,
#endif
#ifdef HL_WITH_RUBY
	[HL_GUEST_RUBY] = &hl_guest_ruby,
#endif
#if defined(HL_WITH_SKYNET) && defined(HL_ATTACHED)
	[HL_GUEST_SKYNET] = &hl_guest_skynet,
#endif
};
