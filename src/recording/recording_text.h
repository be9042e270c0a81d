/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as valid UTF-8 and back: what is not UTF-8 stands as %XX, and so does '%'. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* Memory that the caller frees, NUL-terminated; NULL for want of memory. */
char *hl_text_escape(const char *bytes, size_t size);

/* The reverse. 0, -ENOMEM, or -EINVAL for a malformed escape or a NUL. */
int hl_text_unescape(const char *text, size_t size, char **ret_bytes);

/* The same as a JSON string, and NULL as ""; NULL for want of memory. */
json_t *hl_text_to_json(const char *bytes);

/* 0, -ENOMEM, or -EINVAL when ${json}, which may be NULL, is no such string. */
int hl_text_from_json(const json_t *json, char **ret_bytes);
