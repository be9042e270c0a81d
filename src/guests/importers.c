/* SPDX-License-Identifier: BSD-2-Clause */
/* Readers of files that belong to guests; see traits.h. */
#include "guests/traits.h"

#ifdef HL_WITH_SKYNET
extern const struct hl_importer hl_importer_mprof;
#endif

const struct hl_importer *const hl_guest_importers[] = {
#ifdef HL_WITH_SKYNET
	&hl_importer_mprof,
#endif
	NULL,
};
