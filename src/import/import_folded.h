/* SPDX-License-Identifier: BSD-2-Clause */
/* What the numbers of folded text mean, which the text does not say. */
#pragma once

#include "import/importer.h"

/*
 * Makes the numbers of ${profile}, just read by hl_importer_folded as bytes in use, ${value} in
 * ${unit}. ${value} is in use, allocated or peak.
 */
void hl_import_folded_as(struct hl_profile *profile, enum hl_value value, enum hl_unit unit);
