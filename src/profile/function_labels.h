/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What functions are called where nothing stands beside the name. Names that a runtime of scripts
 * makes are the same in every file, as that of a file's own code: where several sources share
 * one, each function's label has as much of its source as tells it from the others:
 * "main (shop.rb)", "new (cart/init.rb)".
 */
#pragma once

#include "profile/profile.h"

/* Gives every function of ${profile} its label. 0 or -ENOMEM. */
int hl_function_labels_set(struct hl_profile *profile);
