/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads libraries; see library.h. */
#include "base/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int hl_library_load(const char *library, const char *prefix, const char *const *names, size_t count,
		    void *ret_functions, const char *purpose, const char *package,
		    struct hl_error *err)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	char name[64], *to = ret_functions;

	for (size_t i = 0; i < count; i++, to += sizeof(void *)) {
		snprintf(name, sizeof(name), "%s%s", prefix, names[i]);
		void *function = handle ? dlsym(handle, name) : NULL;
		if (!function)
			return hl_error_set(
				err, -ENOENT,
				"cannot %s: '%s' cannot be loaded; 'apt-get install %s' "
				"brings it",
				purpose, library, package);
		memcpy(to, &function, sizeof(function));
	}
	return 0;
}
