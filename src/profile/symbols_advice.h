/* SPDX-License-Identifier: BSD-2-Clause */
/* Which Debian packages would bring the symbols that are missing. */
#pragma once

#include "profile/profile.h"

#define HL_DPKG_DIRECTORY "/var/lib/dpkg"

/*
 * Names in each module's symbols_reason the package that would help, where dpkg's files in
 * ${directory} know the owner of the module's file; other reasons stay as they are. Reads some
 * megabytes if anything is missing at all, so it is for those who are asked what would help. 0 or
 * -ENOMEM.
 */
int hl_symbols_advice_add(struct hl_profile *profile, const char *directory);
