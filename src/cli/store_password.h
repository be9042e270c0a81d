/* SPDX-License-Identifier: BSD-2-Clause */
/* Passwords of stores that do not stand in the command line, which 'ps' shows to every user. */
#pragma once

#include "cli/cli.h"

#define HL_STORE_PASSWORD_OPTION(offset)                                                      \
	{                                                                                     \
		"password-file", 0, "FILE",                                                   \
			"the password of the URL's user is the first line of FILE (default: " \
			"$HEAPLINE_STORE_PASSWORD)",                                          \
			HL_OPTION_TEXT, offset, NULL                                          \
	}

/*
 * Reads the password from the first line of ${file} (NULL: none is) into the environment, where URLs that name a user alone find it (fleet/web.h).
 * Overwrites one in ${url}, a word of the command line, which is to be copied before. 0 or a negative errno with a sentence.
 */
int hl_store_password_read(const char *file, char *url, struct hl_error *err);
