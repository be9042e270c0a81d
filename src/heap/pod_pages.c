/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of a control group from the pages that it is charged with; see pod_pages.h. */
#include "heap/pod_pages.h"

#include "base/cleanup.h"
#include "process/process.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define MIB (UINT64_C(1) << 20)

/* ---- names ---- */

/* Whether ${path} lies in the part ${root} of its file system; ${ret_rest} is what follows. */
static bool is_below(const char *path, const char *root, const char **ret_rest)
{
	size_t length = strcmp(root, "/") ? strlen(root) : 0;

	*ret_rest = path + length;
	return !strncmp(path, root, length) && (!path[length] || path[length] == '/');
}

/* Finds where the file is mounted in ${mounts}, a text of mountinfo; false: it is not. */
static bool find_mounted(const char *mounts, const struct hl_group_file *file,
			 char path[HL_POD_NAME_MAX])
{
	struct hl_mount mount;
	const char *rest;

	while (hl_mount_next(&mounts, &mount)) {
		if (makedev(mount.dev_major, mount.dev_minor) != file->device ||
		    !is_below(file->path, mount.root, &rest))
			continue;
		snprintf(path, HL_POD_NAME_MAX, "%s%s", strcmp(mount.point, "/") ? mount.point : "",
			 rest);
		return true;
	}
	return false;
}

/* Whether a file is of the kernel's own tmpfs, which is mounted nowhere. */
static bool is_unmounted(const char *path)
{
	return !strncmp(path, "/memfd:", 7) || !strncmp(path, "/SYSV", 5) ||
	       !strncmp(path, "/dev/zero", 9);
}

/* Pages of a disk that are of no file belong to "bdev", where an inode's number is that of the disk. */
static void name_by_place(const struct hl_pod_mounts *mounts, const struct hl_group_file *file,
			  char name[HL_POD_NAME_MAX])
{
	char where[64];

	snprintf(where, sizeof(where), "%s%sdevice %u:%u", file->system, *file->system ? ", " : "",
		 major(file->device), minor(file->device));
	if (!strcmp(file->system, "bdev"))
		snprintf(name, HL_POD_NAME_MAX,
			 "disk %" PRIu64 ":%" PRIu64 ", what its file system has beside files",
			 file->inode >> 20, file->inode & 0xfffff);
	else if (!file->path)
		snprintf(name, HL_POD_NAME_MAX, "inode %" PRIu64 " (%s)", file->inode, where);
	else if (!find_mounted(mounts->own, file, name) &&
		 !find_mounted(mounts->process, file, name))
		snprintf(name, HL_POD_NAME_MAX, "%s%s", file->path,
			 is_unmounted(file->path) ? "" : " (not mounted here)");
}

void hl_pod_name_file(const struct hl_pod_mounts *mounts, const struct hl_group_file *file,
		      char name[HL_POD_NAME_MAX])
{
	char path[HL_POD_NAME_MAX];

	name_by_place(mounts, file, path);
	hl_pod_files_name(&(struct hl_pod_open_file){.name = path}, name);
}

/* ---- rows ---- */

static int compare_with_file(const void *key, const void *element)
{
	const struct hl_group_file *wanted = key;
	const struct hl_pod_open_file *file = element;

	if (wanted->device != file->device)
		return wanted->device > file->device ? 1 : -1;
	return (wanted->inode > file->inode) - (wanted->inode < file->inode);
}

/* "3 MiB active, 1 MiB dirty" without what is less than 1 MiB; of files in memory who has them. */
static void describe(const struct hl_group_file *file, const struct hl_pod_open_file *holder,
		     char detail[HL_POD_DETAIL_MAX])
{
	const struct {
		const char *what;
		uint64_t bytes;
	} parts[] = {
		{"active", file->is_memory ? 0 : file->active_bytes},
		{"dirty", file->is_memory ? 0 : file->dirty_bytes},
		{"mapped", file->is_memory ? 0 : file->mapped_bytes},
		{"locked", file->locked_bytes},
	};
	size_t length = 0;

	if (file->is_memory)
		length = (size_t)snprintf(detail, HL_POD_DETAIL_MAX, "%s",
					  !holder	      ? "no process here has it open"
					  : holder->is_mapped ? "mapped"
							      : "open, not mapped");
	else if (file->is_deleted && !holder && strcmp(file->system, "bdev"))
		length = (size_t)snprintf(detail, HL_POD_DETAIL_MAX, "deleted");
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++)
		if (parts[i].bytes >= MIB)
			length += (size_t)snprintf(detail + length, HL_POD_DETAIL_MAX - length,
						   "%s%" PRIu64 " MiB %s", length ? ", " : "",
						   parts[i].bytes / MIB, parts[i].what);
}

int hl_pod_add_page_files(struct hl_pod *pod, const struct hl_group_pages *pages,
			  const struct hl_pod_files *files, const struct hl_pod_mounts *mounts)
{
	char name[HL_POD_NAME_MAX];
	int r = 0;

	for (size_t i = 0; r == 0 && i < pages->file_count; i++) {
		const struct hl_group_file *file = &pages->files[i];
		const struct hl_pod_open_file *holder =
			files->count ? bsearch(file, files->files, files->count,
					       sizeof(*files->files), compare_with_file)
				     : NULL;
		struct hl_pod_row row = {
			.kind = file->is_memory ? HL_POD_SHARED : HL_POD_CACHE,
			.bytes = (int64_t)file->bytes,
			.name = name,
			.has_pages = true,
			.active_bytes = file->active_bytes,
			.dirty_bytes = file->dirty_bytes,
			.mapped_bytes = file->mapped_bytes,
			.locked_bytes = file->locked_bytes,
		};
		if (holder)
			hl_pod_files_name(holder, name);
		else
			hl_pod_name_file(mounts, file, name);
		describe(file, holder, row.detail);
		if (holder) {
			row.pid = holder->pid;
			memcpy(row.comm, holder->comm, sizeof(row.comm));
		}
		r = hl_pod_add_row(pod, &row);
	}
	return r;
}

/* ---- the kernel's objects ---- */

int hl_pod_add_caches(struct hl_pod *pod, const struct hl_group_pages *pages)
{
	char name[64];
	int r = 0;

	for (size_t i = 0; r == 0 && i < pages->cache_count; i++) {
		const struct hl_group_cache *cache = &pages->caches[i];
		struct hl_pod_row row = {
			.kind = HL_POD_KERNEL,
			.bytes = (int64_t)(cache->objects * cache->object_bytes),
			.name = name,
		};
		snprintf(name, sizeof(name), "slab %.*s", (int)sizeof(cache->name), cache->name);
		snprintf(row.detail, sizeof(row.detail), "%" PRIu64 " objects%s", cache->objects,
			 cache->is_reclaimable ? ", reclaimable" : "");
		r = hl_pod_add_row(pod, &row);
	}
	return r;
}
