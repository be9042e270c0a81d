/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's image, an ELF file; what is in it: region/attached.h. Made by the build. */
#pragma once

#include <stddef.h>

extern const char hl_image[];
extern const size_t hl_image_size;
