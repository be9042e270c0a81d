/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The balance of a memory control group, a container or pod: what the kernel charges it with, in rows that add up to
 * memory.current. From the files of /proc and of the group alone: nothing is stopped, faulted in or read into the page cache.
 *
 * These do not tell whose page cache is of which file; as root, the kernel's array of pages does (bpf/group_pages.h).
 */
#pragma once

#include "base/error.h"
#include "process/cgroup.h"

enum hl_pod_kind {
	HL_POD_ANONYMOUS, /* of a process; pages that several have are shared out */
	HL_POD_SHARED,	  /* tmpfs, memfd, System V, shared anonymous memory */
	HL_POD_CACHE,	  /* of files on disks */
	HL_POD_KERNEL,
	HL_POD_UNKNOWN, /* in the sum alone */
	HL_POD_KINDS,
};

#define HL_POD_DETAIL_MAX 160

/* A part of a process' private memory in RAM, as `heap` names it. */
struct hl_pod_part {
	const char *name; /* a constant */
	uint64_t bytes;
};

struct hl_pod_row {
	enum hl_pod_kind kind;
	int64_t bytes; /* negative: charged to another group, though a row above has it */
	char *name;    /* of the file or the part; of anonymous memory NULL */
	char detail[HL_POD_DETAIL_MAX]; /* what more is known; "" */
	pid_t pid;			/* whose it is, or who has the file; 0: nobody */
	char comm[16];
	struct hl_pod_part *parts; /* by bytes, falling; see hl_pod_read_parts() */
	size_t part_count;
	bool has_pages; /* it is a file, of which what follows is known */
	uint64_t active_bytes, dirty_bytes, mapped_bytes, locked_bytes;
};

/* A file on a disk that a process has open or mapped, and its part in the page cache, whoever is charged. */
struct hl_pod_file {
	const char *path; /* to be freed */
	uint64_t cached_bytes, dirty_bytes;
	pid_t pid; /* one of those who have it */
	char comm[16];
};

struct hl_pod {
	char *name; /* of the group */
	bool is_v2;
	struct hl_cgroup_figures figures;
	uint64_t sums[HL_POD_KINDS]; /* as the kernel counts them */
	uint64_t
		inactive_file_bytes; /* what kubelet's working set leaves out of ${figures}.usage */
	uint64_t reclaimable_bytes;  /* without swap: page cache that is not locked, and slab */
	bool reclaims_slab;	     /* what of slab is reclaimable is known, and counts there */
	bool has_pages; /* rows have page cache and shared memory by file, and slab by kind */
	uint64_t removed_bytes;	 /* if so: charged to subgroups that have been removed */
	uint64_t rss_bytes;	 /* of its processes, pages that several have once for each */
	struct hl_pod_row *rows; /* by bytes, falling; their sum is ${figures}.usage */
	size_t row_count, row_capacity;
	struct hl_pod_file *files; /* by cached_bytes, falling */
	size_t file_count, file_capacity;
	size_t process_count;
	char **notes; /* what could not be read; NULL-terminated, or NULL */
};

enum hl_pod_extent {
	HL_POD_SUMS, /* without rows, files and notes: from a few files of the group alone, for whoever asks again and again */
	HL_POD_FILES, /* without the kernel's array of pages: a few milliseconds and those of its processes */
	HL_POD_PAGES,
};

/* Reads the balance of ${group}. 0, or a negative errno with a sentence. To be freed by hl_pod_free(). */
int hl_pod_read(const struct hl_cgroup *group, enum hl_pod_extent extent, struct hl_pod **ret_pod,
		struct hl_error *err);

/* What kubelet takes for the working set, and what the kernel cannot take back by itself but by swapping. */
static inline uint64_t hl_pod_working_set(const struct hl_pod *pod)
{
	uint64_t usage = pod->figures.usage;

	return usage > pod->inactive_file_bytes ? usage - pod->inactive_file_bytes : 0;
}

static inline uint64_t hl_pod_unreclaimable(const struct hl_pod *pod)
{
	uint64_t usage = pod->figures.usage;

	return usage > pod->reclaimable_bytes ? usage - pod->reclaimable_bytes : 0;
}

/*
 * Splits the anonymous memory of its largest processes, as far as their heaps can be read, which takes about 250 ms for a GiB of small
 * blocks. What several processes share counts whole for each, so that parts may be more than their row. 0 or -ENOMEM.
 */
int hl_pod_read_parts(struct hl_pod *pod);

void hl_pod_free(struct hl_pod *pod); /* NULL is fine */
