/* SPDX-License-Identifier: BSD-2-Clause */
/* The traits of the guests that are built in; see traits.h. */
#include "guests/traits.h"

#include <stdio.h>
#include <string.h>

const struct hl_guest_traits *const hl_guest_traits[] = {
#ifdef HL_WITH_BEAM
	&hl_guest_traits_beam,
#endif
#ifdef HL_WITH_JAVA
	&hl_guest_traits_java,
#endif
#ifdef HL_WITH_LUA
	&hl_guest_traits_lua,
#endif
#ifdef HL_WITH_PHP
	&hl_guest_traits_php,
#endif
#ifdef HL_WITH_PYTHON
	&hl_guest_traits_python,
#endif
#ifdef HL_WITH_RUBY
	&hl_guest_traits_ruby,
#endif
#ifdef HL_WITH_SKYNET
	&hl_guest_traits_skynet,
#endif
	NULL,
};

const struct hl_guest_traits *hl_guest_of_provider(const char *provider)
{
	for (size_t i = 0; hl_guest_traits[i]; i++)
		for (const char *const *name = hl_guest_traits[i]->providers; name && *name; name++)
			if (!strcmp(*name, provider))
				return hl_guest_traits[i];
	return NULL;
}

const char *hl_guest_ages(char text[HL_GUEST_AGES_MAX])
{
	size_t length = 0;

	for (size_t i = 0; hl_guest_traits[i]; i++)
		if (hl_guest_traits[i]->ages && length < HL_GUEST_AGES_MAX)
			length +=
				(size_t)snprintf(text + length, HL_GUEST_AGES_MAX - length, "%s%s",
						 length ? ", or " : "", hl_guest_traits[i]->ages);
	return length ? text : "collections";
}

const struct hl_guest_traits *hl_guest_host(void)
{
	for (size_t i = 0; hl_guest_traits[i]; i++)
		if (hl_guest_traits[i]->host)
			return hl_guest_traits[i];
	return NULL;
}
