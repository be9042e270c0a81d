/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that processes have open or mapped, and their pipes; see pod.h and heap.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hl_pod_open_file {
	uint64_t device, inode;
	char *name;	/* as the process sees it */
	uint64_t bytes; /* of a file in memory alone: what it has, in RAM or on swap */
	char place[64]; /* by which the kernel leads to it, below /proc; "" where there is none */
	pid_t pid;	/* who has it; of several, the one that maps it, or the first */
	pid_t fd_pid;	/* who has it open; 0: nobody */
	int fd;		/* and its descriptor there */
	char comm[16];
	bool is_memory; /* of tmpfs, or without a file system that is mounted: memfd, System V, MAP_SHARED */
	bool is_mapped;
	bool is_pipe;
	bool has_cache; /* its file system caches pages, and opening a file of it asks nobody */
	bool is_overlay;
};

/* A tmpfs that is mounted where processes of the group see it. */
struct hl_pod_tmpfs {
	uint64_t device;
	char *mount; /* as the process sees it */
	uint64_t used_bytes;
};

/* Zero-initialize for an empty one. */
struct hl_pod_files {
	/* After hl_pod_files_merge() each once, by device and inode. */
	struct hl_pod_open_file *files;
	size_t count, capacity;
	struct hl_pod_tmpfs *tmpfs; /* each once */
	size_t tmpfs_count, tmpfs_capacity;
	/* Of files in memory that lie in no mounted file system; 0: not known yet. */
	uint64_t memory_device;
	size_t unread_count;  /* processes whose files may not be seen */
	size_t by_path_count; /* whose mapped files are known by their paths alone */
	char *locks;	      /* the text of /proc/locks, once it has been read */
	bool with_pipes;      /* they are wanted, too: to be set before the first call */
};

/* Adds what process ${pid}, ${comm}, has open and mapped. 0 or -ENOMEM. */
int hl_pod_files_add(struct hl_pod_files *files, pid_t pid, const char *comm);

/* Takes away all files but the first ${count}: those of a process that has ended since. */
void hl_pod_files_truncate(struct hl_pod_files *files, size_t count);

/* Merges entries of one file. */
void hl_pod_files_merge(struct hl_pod_files *files);

/*
 * How much of ${file} is in the page cache, without bringing anything there. False where that is not known: before Linux
 * 6.5, without rights to the file, and of one that is only mapped while somebody holds a lease of it, which opening would break.
 */
bool hl_pod_files_cached(struct hl_pod_files *files, const struct hl_pod_open_file *file,
			 uint64_t *ret_cached_bytes, uint64_t *ret_dirty_bytes);

/* What nobody has read yet of ${pipe}, and what it may hold at most. False where its descriptor may not be copied. */
bool hl_pod_files_pipe(const struct hl_pod_open_file *pipe, uint64_t *ret_bytes,
		       uint64_t *ret_capacity_bytes);

/* As people call ${file}, which is in memory: "memfd:queue", a path, "shared anonymous memory". */
#define HL_POD_NAME_MAX 4096
void hl_pod_files_name(const struct hl_pod_open_file *file, char name[HL_POD_NAME_MAX]);

void hl_pod_files_release(struct hl_pod_files *files);
