/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes and frees labels of live blocks; see inuse_labels.h. */
#include "heap/owners/inuse_labels.h"

#include "heap/owners/block_owners.h"
#include "heap/python_usage.h"

#include <stdlib.h>

struct hl_inuse_labels *hl_inuse_labels_new(const char *provider)
{
	struct hl_inuse_labels *labels = calloc(1, sizeof(*labels));

	if (labels) {
		labels->provider = provider;
		labels->names = &labels->own_names;
	}
	return labels;
}

void hl_inuse_labels_free(struct hl_inuse_labels *labels)
{
	if (!labels)
		return;
	hl_block_owners_free(labels->owners);
	hl_python_usage_free(labels->usage);
	hl_strings_release(&labels->own_names);
	free(labels->rows);
	free(labels);
}
