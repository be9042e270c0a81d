/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libmicrohttpd, loaded when it is needed (base/library.h): GnuTLS, which it brings along, takes a millisecond.
 */
#pragma once

#include "base/error.h"

#include <microhttpd.h>

#define HL_HTTP_LIBRARY "libmicrohttpd.so.12"

#define HL_HTTP_FUNCTIONS(FUNCTION)                \
	FUNCTION(start_daemon)                     \
	FUNCTION(stop_daemon)                      \
	FUNCTION(get_daemon_info)                  \
	FUNCTION(get_connection_info)              \
	FUNCTION(create_response_from_fd64)        \
	FUNCTION(create_response_from_buffer)      \
	FUNCTION(add_response_header)              \
	FUNCTION(queue_response)                   \
	FUNCTION(destroy_response)                 \
	FUNCTION(lookup_connection_value)          \
	FUNCTION(get_connection_values)            \
	FUNCTION(basic_auth_get_username_password) \
	FUNCTION(free)

/* MHD_start_daemon() and so on. */
struct hl_http {
#define HL_HTTP_MEMBER(name) __typeof__(&MHD_##name) name;
	HL_HTTP_FUNCTIONS(HL_HTTP_MEMBER)
#undef HL_HTTP_MEMBER
};

/* Fills ${ret_http} for the rest of the process. 0, or -ENOENT with a sentence when the library is not there. */
int hl_http_load(struct hl_http *ret_http, struct hl_error *err);
