/* SPDX-License-Identifier: BSD-2-Clause */
/* Formats error sentences; see error.h. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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

int hl_error_append(char ***sentences, const char *format, va_list args)
{
	size_t count = 0;

	while (*sentences && (*sentences)[count])
		count++;
	char **grown = reallocarray(*sentences, count + 2, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	*sentences = grown;
	grown[count + 1] = NULL;
	if (vasprintf(&grown[count], format, args) >= 0)
		return 0;
	grown[count] = NULL;
	return -ENOMEM;
}
