/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as valid UTF-8 and back: what is not UTF-8 stands as %XX, and so does '%'. */
#pragma once

#include <stddef.h>

/* Memory that the caller frees, NUL-terminated; NULL for want of memory. */
char *hl_text_escape(const char *bytes, size_t size);

/* The reverse. 0, -ENOMEM, or -EINVAL for a malformed escape or a NUL. */
int hl_text_unescape(const char *text, size_t size, char **ret_bytes);
