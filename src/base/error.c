/* SPDX-License-Identifier: BSD-2-Clause */
/* Formats error sentences; see error.h. */
#include "base/error.h"

#include <stdio.h>

int hl_error_set(struct hl_error *err, int code, const char *format, ...)
{
	if (!err || err->text[0])
		return code;
	va_list args;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return code;
}
