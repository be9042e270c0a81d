/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes and frees labels of live blocks; see inuse_labels.h. */
#include "heap/owners/inuse_labels.h"

#include "heap/owners/block_owners.h"

#include <errno.h>
#include <stdlib.h>

int hl_inuse_labels_open(pid_t pid, struct hl_block_owners **ret_owners, struct hl_error *err)
{
	struct hl_block_owners *owners = NULL;

	int r = hl_block_owners_new(pid, &owners, err);
	if (r == 0 && hl_block_owners_source(owners) == HL_OWNERS_RECORDER) {
		*ret_owners = owners;
		return 0;
	}
	hl_block_owners_free(owners);
	if (r == 0 || r == -ENODATA)
		return hl_error_set(err, -ENODATA, "no recorder in process %d knows its stacks",
				    (int)pid);
	return r;
}

struct hl_inuse_labels *hl_inuse_labels_new(const char *provider, struct hl_block_owners *owners)
{
	struct hl_inuse_labels *labels = calloc(1, sizeof(*labels));

	if (labels) {
		labels->provider = provider;
		labels->owners = owners;
		labels->names = &labels->own_names;
	}
	return labels;
}

void hl_inuse_labels_free(struct hl_inuse_labels *labels)
{
	if (!labels)
		return;
	if (labels->kept)
		labels->free_kept(labels->kept);
	hl_strings_release(&labels->own_names);
	free(labels->rows);
	free(labels);
}
