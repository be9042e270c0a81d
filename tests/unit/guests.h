/* SPDX-License-Identifier: BSD-2-Clause */
/* Skips what a build without a guest cannot do. Include it after cmocka.h. */
#pragma once

#include "guests/traits.h"

#include <string.h>

static inline void needs_guest(const char *language)
{
	for (size_t i = 0; hl_guest_traits[i]; i++)
		if (!strcmp(hl_guest_traits[i]->language, language))
			return;
	print_message("skipped: the guest of %s is not built in\n", language);
	skip();
}
