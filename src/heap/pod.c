/* SPDX-License-Identifier: BSD-2-Clause */
/* The balance of a memory control group; see pod.h. */
#include "heap/pod.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "heap/pod_files.h"
#include "heap/pod_pages.h"
#include "process/process.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUMS_READ_MAX	5   /* times, while the usage changes */
#define PAGES_PER_BATCH 64u /* that the kernel keeps back for a processor before it counts */
#define STAT_BYTES	(32u << 10) /* of memory.stat, which has 3 KiB today */

struct reader {
	const struct hl_cgroup *group;
	struct hl_pod *pod;
	char stat[STAT_BYTES];
	struct hl_pod_files files;
	struct hl_group_pages *pages; /* NULL: they are not known */
	struct hl_pod_mounts mounts;
	size_t shared_out_unknown; /* processes whose anonymous memory is as status has it */
	bool counts_huge_pages;	   /* the hierarchy is mounted so */
	uint64_t huge_page_bytes;  /* of its processes, where that is so */
	size_t strangers;	   /* entries without a number here */
	size_t uncounted_files;	   /* whose part in the page cache is not known */
};

static int note(struct hl_pod *pod, const char *format, ...) HL_PRINTF(2, 3);

static int note(struct hl_pod *pod, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int r = hl_error_append(&pod->notes, format, args);
	va_end(args);
	return r;
}

/* A number of memory.stat, of version 1 the one that includes subgroups; 0: it has none. */
static uint64_t stat_of(const struct reader *reader, const char *v2_key, const char *v1_key)
{
	const char *key = reader->group->is_v2 ? v2_key : v1_key;
	uint64_t number = 0;

	if (key)
		hl_cgroup_find(reader->stat, key, &number);
	return number;
}

int hl_pod_add_row(struct hl_pod *pod, const struct hl_pod_row *row)
{
	struct hl_pod_row copy = *row;

	if (!row->bytes)
		return 0;
	if (row->name && !(copy.name = strdup(row->name)))
		return -ENOMEM;
	int r = HL_ARRAY_APPEND(pod->rows, pod->row_count, pod->row_capacity, copy);
	if (r < 0)
		free(copy.name);
	return r;
}

static int add_part(struct hl_pod *pod, enum hl_pod_kind kind, const char *name, int64_t bytes)
{
	const struct hl_pod_row row = {.kind = kind, .bytes = bytes, .name = (char *)name};

	return hl_pod_add_row(pod, &row);
}

/* What rows of a kind lack to the kernel's own sum, or have above it. */
static int add_difference(struct hl_pod *pod, enum hl_pod_kind kind, const char *lacking,
			  const char *elsewhere)
{
	int64_t sum = (int64_t)pod->sums[kind];

	for (size_t i = 0; i < pod->row_count; i++)
		if (pod->rows[i].kind == kind)
			sum -= pod->rows[i].bytes;
	return add_part(pod, kind, sum > 0 ? lacking : elsewhere, sum);
}

/* ---- processes ---- */

/* Adds what one process has. One that ends meanwhile, or whose number is another's then, is left out. */
static int add_process(struct reader *reader, pid_t pid)
{
	struct hl_pod_row row = {.kind = HL_POD_ANONYMOUS, .pid = pid};
	uint64_t start = 0, start_after = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
	size_t files_before = reader->files.count;
	struct hl_process_rss rss;

	if (hl_process_stat_field(pid, 22, &start) < 0 ||
	    hl_proc_read(pid, "comm", row.comm, sizeof(row.comm)) < 0)
		return 0;
	row.comm[strcspn(row.comm, "\n")] = '\0';
	bool is_shared_out = hl_process_rss_read(pid, &rss, NULL) == 0 &&
			     (rss.pss_anon_pages || !rss.anon_pages);
	if (!is_shared_out) {
		struct hl_process_status status = hl_process_status_read(pid);
		rss.pss_anon_pages = (uint64_t)status.anonymous_bytes / page;
		rss.rss_pages = (uint64_t)status.rss_bytes / page;
		reader->shared_out_unknown += rss.pss_anon_pages != 0;
	}
	int r = hl_pod_files_add(&reader->files, pid, row.comm);
	if (r < 0)
		return r;
	if (hl_process_stat_field(pid, 22, &start_after) < 0 || start_after != start) {
		hl_pod_files_truncate(&reader->files, files_before);
		return 0;
	}
	if (reader->counts_huge_pages)
		reader->huge_page_bytes += (uint64_t)hl_process_status_read(pid).huge_page_bytes;
	row.bytes = (int64_t)(rss.pss_anon_pages * page);
	snprintf(row.detail, sizeof(row.detail), "%s",
		 is_shared_out ? "" : "shared pages count whole");
	reader->pod->process_count++;
	reader->pod->rss_bytes += rss.rss_pages * page;
	return hl_pod_add_row(reader->pod, &row);
}

static bool counts_huge_pages(const struct hl_cgroup *group)
{
	HL_FREED char *mounts = NULL;
	size_t length;

	return group->is_v2 && hl_proc_read_all(getpid(), "mountinfo", &mounts, &length) == 0 &&
	       strstr(mounts, "memory_hugetlb_accounting");
}

/* Linux 6.12 counts them, and has no sum in memory.stat yet. */
static int add_huge_pages(struct reader *reader)
{
	uint64_t bytes = stat_of(reader, "hugetlb", NULL);

	bytes = bytes ? bytes : reader->huge_page_bytes;
	reader->pod->sums[HL_POD_SHARED] += bytes;
	return add_part(reader->pod, HL_POD_SHARED, "huge pages (hugetlbfs)", (int64_t)bytes);
}

static int add_processes(struct reader *reader)
{
	HL_FREED pid_t *pids = NULL;
	size_t count;

	reader->counts_huge_pages = counts_huge_pages(reader->group);
	int r = hl_cgroup_processes(reader->group, &pids, &count, &reader->strangers);
	if (r == 0 && reader->pages) {
		size_t length;
		hl_proc_read_all(getpid(), "mountinfo", &reader->mounts.own, &length);
		if (count)
			hl_proc_read_all(pids[0], "mountinfo", &reader->mounts.process, &length);
	}
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add_process(reader, pids[i]);
	if (r == 0)
		r = add_difference(reader->pod, HL_POD_ANONYMOUS,
				   "anonymous memory of no process here",
				   "less what several have, or other groups are charged with");
	return r;
}

/* ---- files ---- */

static int add_memory_file(struct hl_pod *pod, const struct hl_pod_open_file *file)
{
	struct hl_pod_row row = {
		.kind = HL_POD_SHARED, .bytes = (int64_t)file->bytes, .pid = file->pid};
	char name[HL_POD_NAME_MAX];

	snprintf(row.comm, sizeof(row.comm), "%s", file->comm);
	snprintf(row.detail, sizeof(row.detail), "%s",
		 file->is_mapped ? "mapped" : "open, not mapped");
	hl_pod_files_name(file, name);
	row.name = name;
	return hl_pod_add_row(pod, &row);
}

/* What no process here has open of a mounted tmpfs is the rest of it, as far as the group can be charged with it. */
static int add_tmpfs_rest(struct reader *reader, const struct hl_pod_tmpfs *tmpfs)
{
	struct hl_pod_row row = {
		.kind = HL_POD_SHARED, .bytes = (int64_t)tmpfs->used_bytes, .name = tmpfs->mount};
	int64_t left = (int64_t)reader->pod->sums[HL_POD_SHARED];

	for (size_t i = 0; i < reader->files.count; i++)
		if (reader->files.files[i].device == tmpfs->device)
			row.bytes -= (int64_t)reader->files.files[i].bytes;
	for (size_t i = 0; i < reader->pod->row_count; i++)
		if (reader->pod->rows[i].kind == HL_POD_SHARED)
			left -= reader->pod->rows[i].bytes;
	snprintf(row.detail, sizeof(row.detail),
		 "files of this tmpfs that no process here has open%s",
		 row.bytes > left ? ", at most" : "");
	if (row.bytes > left)
		row.bytes = left;
	return row.bytes > 0 ? hl_pod_add_row(reader->pod, &row) : 0;
}

static int add_cached_file(struct reader *reader, const struct hl_pod_open_file *file)
{
	struct hl_pod *pod = reader->pod;
	struct hl_pod_file found = {.pid = file->pid};

	if (!hl_pod_files_cached(&reader->files, file, &found.cached_bytes, &found.dirty_bytes)) {
		reader->uncounted_files++;
		return 0;
	}
	if (!found.cached_bytes)
		return 0;
	snprintf(found.comm, sizeof(found.comm), "%s", file->comm);
	found.path = strdup(file->name);
	if (!found.path)
		return -ENOMEM;
	int r = HL_ARRAY_APPEND(pod->files, pod->file_count, pod->file_capacity, found);
	if (r < 0)
		free((char *)found.path);
	return r;
}

/* Files in memory as far as processes have them open, and file systems know what they have. */
static int add_memory_files(struct reader *reader)
{
	struct hl_pod_files *files = &reader->files;
	int r = 0;

	for (size_t i = 0; r == 0 && i < files->count; i++)
		if (files->files[i].is_memory)
			r = add_memory_file(reader->pod, &files->files[i]);
	for (size_t i = 0; r == 0 && i < files->tmpfs_count; i++)
		r = add_tmpfs_rest(reader, &files->tmpfs[i]);
	return r;
}

static int add_files(struct reader *reader)
{
	struct hl_pod_files *files = &reader->files;

	hl_pod_files_merge(files);
	int r = reader->pages
			? hl_pod_add_page_files(reader->pod, reader->pages, files, &reader->mounts)
			: add_memory_files(reader);
	for (size_t i = 0; r == 0 && i < files->count; i++)
		if (!files->files[i].is_memory)
			r = add_cached_file(reader, &files->files[i]);
	if (r == 0)
		r = add_difference(reader->pod, HL_POD_SHARED,
				   reader->pages ? "other files in memory"
						 : "files in memory that no process here has open",
				   "less what is on swap, or other groups are charged with");
	return r;
}

/* ---- the kernel's ---- */

static int add_cache(struct reader *reader)
{
	struct hl_pod *pod = reader->pod;
	const uint64_t mib = UINT64_C(1) << 20;
	struct hl_pod_row row = {.kind = HL_POD_CACHE,
				 .bytes = (int64_t)pod->sums[HL_POD_CACHE],
				 .name = (char *)"page cache"};

	if (reader->pages)
		return add_difference(pod, HL_POD_CACHE, "page cache of other files",
				      "less what changed while it was read");
	snprintf(row.detail, sizeof(row.detail),
		 "MiB: %" PRIu64 " inactive, %" PRIu64 " active, %" PRIu64 " dirty, %" PRIu64
		 " mapped",
		 pod->inactive_file_bytes / mib,
		 stat_of(reader, "active_file", "total_active_file") / mib,
		 stat_of(reader, "file_dirty", "total_dirty") / mib,
		 stat_of(reader, "file_mapped", "total_mapped_file") / mib);
	return hl_pod_add_row(pod, &row);
}

/* Of version 1, which has one sum. */
static int add_kernel_sum(struct reader *reader)
{
	struct hl_pod *pod = reader->pod;
	char text[32];

	ssize_t length =
		hl_cgroup_read(reader->group, "memory.kmem.usage_in_bytes", text, sizeof(text));
	pod->sums[HL_POD_KERNEL] = length > 0 ? strtoull(text, NULL, 10) : 0;
	return reader->pages
		       ? add_part(pod, HL_POD_KERNEL, "page tables, kernel stacks, pipes, sockets",
				  (int64_t)reader->pages->bytes[HL_GROUP_KERNEL])
		       : add_part(pod, HL_POD_KERNEL,
				  "slab, kernel stacks, page tables (version 1 has one sum)",
				  (int64_t)pod->sums[HL_POD_KERNEL]);
}

static int add_kernel_parts(struct reader *reader)
{
	enum place {
		PAGES,
		SLAB,
		INSIDE,
		APART
	}; /* in `kernel` of memory.stat, or not; charged as whole pages */
	static const struct {
		const char *key, *name;
		enum place place;
	} parts[] = {
		{"slab_reclaimable", "slab, reclaimable (dentries, inodes)", SLAB},
		{"slab_unreclaimable", "slab, not reclaimable", SLAB},
		{"kernel_stack", "kernel stacks", PAGES},
		{"pagetables", "page tables", PAGES},
		{"sec_pagetables", "page tables of devices and virtual machines", PAGES},
		{"percpu", "per-processor memory", INSIDE},
		{"vmalloc", "vmalloc", PAGES},
		{"zswap", "zswap, compressed pages", INSIDE},
		{"sock", "buffers of sockets", APART},
	};
	struct hl_pod *pod = reader->pod;
	int r = 0;

	uint64_t whole = stat_of(reader, "kernel", NULL), inside = 0, apart = 0, pages = 0;
	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(parts); i++) {
		uint64_t bytes = stat_of(reader, parts[i].key, NULL);
		*(parts[i].place == APART ? &apart : &inside) += bytes;
		pages += parts[i].place == PAGES ? bytes : 0;
		if (parts[i].place != SLAB || !reader->pages) /* else by kind */
			r = add_part(pod, HL_POD_KERNEL, parts[i].name, (int64_t)bytes);
	}
	if (r == 0 && reader->pages && reader->pages->bytes[HL_GROUP_KERNEL] > pages)
		r = add_part(pod, HL_POD_KERNEL,
			     "buffers of pipes, unix sockets and others, whole pages",
			     (int64_t)(reader->pages->bytes[HL_GROUP_KERNEL] - pages));
	pod->sums[HL_POD_KERNEL] = (whole > inside ? whole : inside) + apart;
	return r;
}

static int add_kernel(struct reader *reader)
{
	if (reader->group->is_topmost)
		return 0;
	int r = reader->group->is_v2 ? add_kernel_parts(reader) : add_kernel_sum(reader);
	if (r == 0 && reader->pages)
		r = hl_pod_add_caches(reader->pod, reader->pages);
	for (size_t i = 0; !reader->group->is_v2 && reader->pages && i < reader->pages->cache_count;
	     i++) {
		const struct hl_group_cache *cache = &reader->pages->caches[i];
		if (cache->is_reclaimable)
			reader->pod->reclaimable_bytes += cache->objects * cache->object_bytes;
		reader->pod->reclaims_slab = true;
	}
	return r < 0 ? r
		     : add_difference(reader->pod, HL_POD_KERNEL, "other memory of the kernel",
				      "less what the kernel counts twice, or freed meanwhile");
}

/* ---- sums and pages ---- */

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* What the kernel may keep back of all that it counts. */
static uint64_t batches_bytes(void)
{
	return PAGES_PER_BATCH * (uint64_t)sysconf(_SC_PAGESIZE) *
	       (uint64_t)sysconf(_SC_NPROCESSORS_CONF);
}

/* The usage and the sums that it is made of, of about one moment where there is one. */
static int read_sums(struct reader *reader, struct hl_error *err)
{
	struct hl_pod *pod = reader->pod;

	int r = hl_cgroup_read_figures(reader->group, &pod->figures, err);
	for (unsigned i = 0; r == 0 && i < SUMS_READ_MAX; i++) {
		uint64_t before = pod->figures.usage;
		if (hl_cgroup_read(reader->group, "memory.stat", reader->stat, STAT_BYTES) <= 0)
			r = hl_error_set(err, -ENOENT,
					 "the group '%s' has gone, or its memory.stat may "
					 "not be read",
					 pod->name);
		else
			r = hl_cgroup_read_figures(reader->group, &pod->figures, err);
		if (distance(before, pod->figures.usage) <= batches_bytes())
			break;
	}
	if (r < 0)
		return r;
	uint64_t file = stat_of(reader, "file", "total_cache"),
		 shared = stat_of(reader, "shmem", "total_shmem");
	pod->sums[HL_POD_ANONYMOUS] = stat_of(reader, "anon", "total_rss");
	pod->sums[HL_POD_SHARED] = shared;
	pod->sums[HL_POD_CACHE] = file > shared ? file - shared : 0;
	pod->inactive_file_bytes = stat_of(reader, "inactive_file", "total_inactive_file");
	pod->reclaimable_bytes = pod->inactive_file_bytes +
				 stat_of(reader, "active_file", "total_active_file") +
				 stat_of(reader, "slab_reclaimable", NULL);
	pod->reclaims_slab = reader->group->is_v2;
	return 0;
}

/* Whether pages that were found are about those that the kernel counts, which may change meanwhile. */
static bool agree(uint64_t found, uint64_t counted)
{
	return distance(found, counted) <= counted / 8 + batches_bytes();
}

/* Reads whose the group's pages are, where that can be done and the sums agree. 0 or -ENOMEM. */
static int read_pages(struct reader *reader)
{
	struct hl_pod *pod = reader->pod;
	struct hl_error why = {0};

	int r = hl_group_pages_read(reader->group, &reader->pages, &why);
	if (r == 0)
		r = read_sums(reader, &why);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return note(pod, "which files the page cache is of is not known: %s", why.text);
	const uint64_t *found = reader->pages->bytes;
	if (agree(found[HL_GROUP_FILE], pod->sums[HL_POD_CACHE]) &&
	    agree(found[HL_GROUP_SHARED], pod->sums[HL_POD_SHARED]) && !reader->pages->lost_bytes) {
		pod->has_pages = true;
		pod->removed_bytes = reader->pages->removed_bytes;
		return 0;
	}
	r = note(pod,
		 "which files the page cache is of is not known: of %" PRIu64
		 " MiB of it and of shared memory pages of %" PRIu64 " MiB were found",
		 (pod->sums[HL_POD_CACHE] + pod->sums[HL_POD_SHARED]) >> 20,
		 (found[HL_GROUP_FILE] + found[HL_GROUP_SHARED]) >> 20);
	hl_group_pages_free(reader->pages);
	reader->pages = NULL;
	return r;
}

/* ---- all of it ---- */

static int add_notes(struct reader *reader)
{
	struct hl_pod *pod = reader->pod;
	int r = 0;

	if (reader->strangers)
		r = note(pod,
			 "%zu of its processes are in other PID namespaces and cannot be seen from "
			 "here; "
			 "run heapline on the host",
			 reader->strangers);
	if (r == 0 && reader->files.unread_count)
		r = note(pod,
			 "the files of %zu of %zu processes may not be seen, nor their names; %s",
			 reader->files.unread_count, pod->process_count,
			 hl_proc_access_remedy(false));
	if (r == 0 && reader->files.by_path_count)
		r = note(pod,
			 "files that %zu of %zu processes have mapped are known by their paths "
			 "alone, and "
			 "memfds that are only mapped not at all; this needs "
			 "CAP_CHECKPOINT_RESTORE or "
			 "CAP_SYS_ADMIN",
			 reader->files.by_path_count, pod->process_count);
	if (r == 0 && reader->shared_out_unknown)
		r = note(pod,
			 "the anonymous memory of %zu of %zu processes is RssAnon, in which pages "
			 "that "
			 "fork() has shared count once for each",
			 reader->shared_out_unknown, pod->process_count);
	if (r == 0 && reader->uncounted_files)
		r = note(pod,
			 "how much of %zu file%s is in the page cache is not known; it needs Linux "
			 "6.5, and "
			 "root or the file's owner",
			 reader->uncounted_files, reader->uncounted_files == 1 ? "" : "s");
	return r;
}

static int compare_rows(const void *left, const void *right)
{
	const struct hl_pod_row *a = left, *b = right;

	return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

static int compare_files(const void *left, const void *right)
{
	const struct hl_pod_file *a = left, *b = right;

	return (a->cached_bytes < b->cached_bytes) - (a->cached_bytes > b->cached_bytes);
}

static int read_all(struct reader *reader, enum hl_pod_extent extent, struct hl_error *err)
{
	struct hl_pod *pod = reader->pod;
	bool only_sums = extent == HL_POD_SUMS;

	int r = extent == HL_POD_PAGES ? read_pages(reader) : 0;
	if (r == 0)
		r = read_sums(reader, err);
	if (r == 0 && !only_sums)
		r = add_processes(reader);
	if (r == 0)
		r = add_huge_pages(reader);
	if (r == 0 && !only_sums)
		r = add_files(reader);
	if (r == 0)
		r = add_cache(reader);
	if (r == 0)
		r = add_kernel(reader);
	if (r < 0)
		return r;
	int64_t unknown = (int64_t)pod->figures.usage;
	for (size_t i = 0; i < HL_POD_KINDS; i++)
		unknown -= (int64_t)pod->sums[i];
	pod->sums[HL_POD_UNKNOWN] = unknown > 0 ? (uint64_t)unknown : 0;
	r = add_part(pod, HL_POD_UNKNOWN,
		     unknown > 0 ? "unknown" : "less what changed while it was read", unknown);
	if (r == 0)
		r = add_notes(reader);
	if (pod->row_count)
		qsort(pod->rows, pod->row_count, sizeof(*pod->rows), compare_rows);
	if (pod->file_count)
		qsort(pod->files, pod->file_count, sizeof(*pod->files), compare_files);
	return r;
}

int hl_pod_read(const struct hl_cgroup *group, enum hl_pod_extent extent, struct hl_pod **ret_pod,
		struct hl_error *err)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	struct hl_pod *pod = calloc(1, sizeof(*pod));
	int r = reader && pod && (pod->name = strdup(hl_cgroup_name(group))) ? 0 : -ENOMEM;

	if (r == 0) {
		pod->is_v2 = group->is_v2;
		reader->group = group;
		reader->pod = pod;
		r = read_all(reader, extent, err);
		hl_pod_files_release(&reader->files);
		hl_group_pages_free(reader->pages);
		free(reader->mounts.own);
		free(reader->mounts.process);
	}
	free(reader);
	if (r < 0) {
		hl_pod_free(pod);
		return hl_error_set(err, r, "cannot read the group '%s': %s", hl_cgroup_name(group),
				    strerror(-r));
	}
	*ret_pod = pod;
	return 0;
}

void hl_pod_free(struct hl_pod *pod)
{
	if (!pod)
		return;
	for (size_t i = 0; i < pod->row_count; i++) {
		free(pod->rows[i].name);
		free(pod->rows[i].parts);
	}
	for (size_t i = 0; i < pod->file_count; i++)
		free((char *)pod->files[i].path);
	for (char **text = pod->notes; text && *text; text++)
		free(*text);
	free(pod->notes);
	free(pod->rows);
	free(pod->files);
	free(pod->name);
	free(pod);
}
