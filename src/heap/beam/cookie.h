/* SPDX-License-Identifier: BSD-2-Clause */
/* The secret that nodes of a cluster share, in a file. */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>

#define HL_COOKIE_MAX 513 /* libei has room for 512 letters */

struct hl_cookie {
	char path[PATH_MAX]; /* where it was found */
	char text[HL_COOKIE_MAX];
	bool is_exposed; /* others than the file's owner may read it; Erlang would refuse it */
};

/*
 * Reads the cookie in ${path}, or, when that is NULL, in the first file there is of those that
 * Erlang reads: ~/.erlang.cookie and erlang/.erlang.cookie in the user's configuration. 0 or a
 * negative errno with a sentence, which never tells the cookie.
 */
int hl_cookie_read(const char *path, struct hl_cookie *ret_cookie, struct hl_error *err);
