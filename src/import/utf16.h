/* SPDX-License-Identifier: BSD-2-Clause */
/* Text as other systems' editors and shells write it: UTF-16 with a byte order mark. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether ${bytes} begin with the byte order mark of UTF-16, in either order. */
bool hl_utf16_detect(const uint8_t *bytes, size_t size);

/*
 * The text that follows the mark, as UTF-8 in ${ret_text}, to be freed, with a NUL byte after it.
 * Halves of characters become U+FFFD; an odd last byte is dropped. 0 or -ENOMEM.
 */
int hl_utf16_decode(const uint8_t *bytes, size_t size, uint8_t **ret_text, size_t *ret_size);
