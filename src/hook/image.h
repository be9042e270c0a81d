/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder's image, laid out for an address of the target; see region/attached.h. */
#pragma once

#include "base/error.h"
#include "region/attached.h"

#include <stddef.h>
#include <stdint.h>

#define HL_IMAGE_PARTS_MAX 8

struct hl_image {
	uint8_t *bytes; /* as they are to lie at the base */
	size_t size;	/* whole pages */
	struct {
		uint64_t offset, size; /* whole pages */
		int protection;	       /* PROT_READ ... */
	} parts[HL_IMAGE_PARTS_MAX];   /* in rising order, without overlaps */
	uint32_t part_count;
	uint64_t attached; /* offset of its struct hl_attached */
};

/* Lays the image out as if linked at 0. 0, -ENOMEM, or -EBADMSG: it was built wrongly. */
int hl_image_load(struct hl_image *ret_image, struct hl_error *err);

/* Applies the relocations for ${base}; once. */
void hl_image_relocate(struct hl_image *image, uint64_t base);

/* Its own account of itself; the addresses in it are valid once it is relocated. */
struct hl_attached hl_image_attached(const struct hl_image *image);

void hl_image_release(struct hl_image *image);
