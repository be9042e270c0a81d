/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of a control group from the pages that it is charged with; see pod.h. */
#pragma once

#include "bpf/group_pages.h"
#include "heap/pod.h"
#include "heap/pod_files.h"

/* Texts of mountinfo: by which names of files are found. Either may be NULL. */
struct hl_pod_mounts {
	char *own, *process; /* of this process, of one of the group */
};

/* Writes how people call ${file} into ${name}: its path where its file system is mounted, as this process sees it, or one of the group. */
void hl_pod_name_file(const struct hl_pod_mounts *mounts, const struct hl_group_file *file,
		      char name[HL_POD_NAME_MAX]);

/* Adds a row for each file of ${pages}, with one of those processes that have it according to ${files}, which are merged. 0 or -ENOMEM. */
int hl_pod_add_page_files(struct hl_pod *pod, const struct hl_group_pages *pages,
			  const struct hl_pod_files *files, const struct hl_pod_mounts *mounts);

/* Adds a row for each kind of the kernel's objects. 0 or -ENOMEM. */
int hl_pod_add_caches(struct hl_pod *pod, const struct hl_group_pages *pages);

/* Adds a row unless it has 0 bytes; ${row->name} is copied. 0 or -ENOMEM. (pod.c) */
int hl_pod_add_row(struct hl_pod *pod, const struct hl_pod_row *row);
