/* SPDX-License-Identifier: BSD-2-Clause */
/* What a profile named addresses, for profiles of the same modules where their files are not. */
#pragma once

#include "profile/profile.h"

/* Zero-initialize; release in any case. */
struct hl_known_names {
	const struct hl_profile *profile; /* the caller's, which must stay */
	struct hl_index places;		  /* the first frame of each address, the outermost */
};

/* ${profile} is a recording's, or was packed from one. 0 or -ENOMEM. */
int hl_known_names_init(struct hl_known_names *names, const struct hl_profile *profile);
void hl_known_names_release(struct hl_known_names *names);

/*
 * The frames at ${address} of ${module}, whose path is ${path}: how many, and in ${ret_first} the
 * first, the outermost; 0: they are not known.
 */
uint32_t hl_known_names_find(const struct hl_known_names *names,
			     const struct hl_profile_module *module, const char *path,
			     uint64_t address, uint32_t *ret_first);
