/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads libmicrohttpd; see http.h. */
#include "serve/http.h"

#include "base/compiler.h"
#include "base/library.h"

int hl_http_load(struct hl_http *ret_http, struct hl_error *err)
{
	static const char *const names[] = {HL_HTTP_FUNCTIONS(HL_LIBRARY_NAME)};

	return hl_library_load(HL_HTTP_LIBRARY, "MHD_", names, HL_COUNT_OF(names), ret_http,
			       "serve", "libmicrohttpd12", err);
}
