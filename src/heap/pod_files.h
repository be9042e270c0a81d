/* SPDX-License-Identifier: BSD-2-Clause */
/* Files in memory that processes have open or mapped; see pod.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_pod_open_file {
	uint64_t device, inode;
	char *name;	/* as the process sees it */
	uint64_t bytes; /* of a file in memory alone: what it has, in RAM or on swap */
	char place[64]; /* by which the kernel leads to it, below /proc */
	pid_t pid;	/* who has it; of several, the one that maps it, or the first */
	char comm[16];
	bool is_memory; /* of tmpfs, or without a file system that is mounted: memfd, System V, MAP_SHARED */
	bool is_mapped;
	bool has_cache; /* its file system caches pages, and opening a file of it asks nobody */
};

/* A tmpfs that is mounted where processes of the group see it. */
struct hl_pod_tmpfs {
	uint64_t device;
	char *mount; /* as the process sees it */
	uint64_t used_bytes;
	pid_t pid;
};

/* Zero-initialize for an empty one. */
struct hl_pod_files {
	struct hl_pod_open_file
		*files; /* after hl_pod_files_settle() each once, by device and inode */
	size_t count, capacity;
	struct hl_pod_tmpfs *tmpfs; /* each once */
	size_t tmpfs_count, tmpfs_capacity;
	uint64_t
		memory_device; /* of files in memory that lie in no mounted file system; 0: not known yet */
	size_t unread_count; /* processes whose files may not be seen */
};

/* Adds what process ${pid}, ${comm}, has open and mapped. One that ends meanwhile is left out. 0 or -ENOMEM. */
int hl_pod_files_add(struct hl_pod_files *files, pid_t pid, const char *comm);

/* Joins entries of one file. */
void hl_pod_files_settle(struct hl_pod_files *files);

/* What of ${file} is in the page cache, without bringing anything there. False where the kernel does not tell: before
 * 6.5, or without the right to read the file. */
bool hl_pod_files_cached(const struct hl_pod_open_file *file, uint64_t *ret_cached_bytes,
			 uint64_t *ret_dirty_bytes);

void hl_pod_files_release(struct hl_pod_files *files);
