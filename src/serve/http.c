/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads libmicrohttpd; see http.h. */
#include "serve/http.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

int hl_http_load(struct hl_http *ret_http, struct hl_error *err)
{
	void *library = dlopen(HL_HTTP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	bool has_all = library != NULL;
	void *function;

#define HL_HTTP_LOAD(name)                                        \
	function = has_all ? dlsym(library, "MHD_" #name) : NULL; \
	has_all = function != NULL;                               \
	memcpy(&ret_http->name, &function, sizeof(function));
	HL_HTTP_FUNCTIONS(HL_HTTP_LOAD)
#undef HL_HTTP_LOAD
	return has_all ? 0
		       : hl_error_set(err, -ENOENT,
				      "cannot serve: '" HL_HTTP_LIBRARY
				      "' cannot be loaded; 'apt-get install libmicrohttpd12' "
				      "brings it");
}
