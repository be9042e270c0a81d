/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the program that reads the pages of a control group, and collects what it found; see group_pages.h. */
#include "bpf/group_pages.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "bpf/privilege.h"
#include "process/process.h"

#include "group.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PROBES	   8u			     /* pages by which the array of struct page is found */
#define PROBES_MIN 5u			     /* that must agree */
#define FRAME_MASK ((UINT64_C(1) << 55) - 1) /* of an entry of pagemap */

static uint64_t page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static int run(const struct bpf_program *program)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);
	int r = bpf_prog_test_run_opts(bpf_program__fd(program), &options);

	return r < 0 ? -errno : 0;
}

/* ---- where struct page begins ---- */

/* The address that the page of ${memory}, which is touched now, gives for the struct page of frame 0; 0: none. */
static uint64_t probe(const struct hl_page_scanner *scanner, int pagemap, volatile uint8_t *memory)
{
	uint64_t entry = 0;

	*scanner->given_page = 0;
	*memory = 1;
	uint64_t page = *scanner->given_page;
	off_t at = (off_t)((uintptr_t)memory / page_bytes() * sizeof(entry));
	if (!page || pread(pagemap, &entry, sizeof(entry), at) != sizeof(entry) ||
	    !(entry & FRAME_MASK))
		return 0;
	return page - (entry & FRAME_MASK) * HL_STRUCT_PAGE_BYTES;
}

static int find_page_structs(const struct hl_page_scanner *scanner, uint64_t *ret_address)
{
	HL_CLOSED int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	size_t bytes = PROBES * page_bytes();
	uint64_t found[PROBES];
	unsigned most = 0;

	if (pagemap < 0)
		return -errno;
	uint8_t *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	struct bpf_link *link = bpf_program__attach(scanner->page_given);
	int r = link ? 0 : -errno;
	for (size_t i = 0; r == 0 && i < PROBES; i++)
		found[i] = probe(scanner, pagemap, memory + i * page_bytes());
	bpf_link__destroy(link);
	munmap(memory, bytes);
	for (size_t i = 0; r == 0 && i < PROBES; i++) {
		unsigned agree = 0;
		for (size_t k = 0; k < PROBES; k++)
			agree += found[k] == found[i];
		if (!found[i] || agree <= most)
			continue;
		most = agree;
		*ret_address = found[i];
	}
	return r < 0 || most >= PROBES_MIN ? r : -ENOTSUP;
}

int hl_page_scanner_start(const struct hl_page_scanner *scanner, const struct hl_cgroup *group)
{
	struct stat seen;

	if (fstat(group->fd, &seen) < 0)
		return -errno;
	scanner->scan->group = seen.st_ino;
	int r = run(scanner->note_process);
	return r < 0 ? r : find_page_structs(scanner, &scanner->scan->page_structs);
}

/* ---- the walk ---- */

/* Calls ${visit} with the frames of each zone until it returns a negative errno, which is then the result. */
static int each_zone(int (*visit)(void *context, uint64_t first, uint64_t end), void *context)
{
	HL_CLOSED int fd = open("/proc/zoneinfo", O_RDONLY | O_CLOEXEC);
	HL_FREED char *text = NULL;
	uint64_t spanned = 0, first;
	size_t length;

	int r = fd < 0 ? -errno : hl_proc_read_open(fd, &text, &length);
	for (const char *line = text; r == 0 && line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (sscanf(line, " spanned %" SCNu64, &spanned) == 1 ||
		    sscanf(line, " start_pfn: %" SCNu64, &first) != 1)
			continue;
		r = visit(context, first, first + spanned);
		spanned = 0;
	}
	return r;
}

static int scan_range(void *context, uint64_t first, uint64_t end)
{
	const struct hl_page_scanner *scanner = context;
	struct hl_group_scan *scan = scanner->scan;
	int r = 0;

	for (uint64_t at = first & ~(uint64_t)(HL_FRAMES_READ - 1); r == 0 && at < end;
	     at += HL_FRAMES_PER_CALL) {
		scan->first = at;
		scan->count =
			(uint32_t)(end - at < HL_FRAMES_PER_CALL ? end - at : HL_FRAMES_PER_CALL);
		r = run(scanner->scan_frames);
		if (r == 0 && scan->is_strange)
			r = -ENOTSUP;
	}
	return r;
}

static int find_end(void *context, uint64_t first, uint64_t end)
{
	uint64_t *highest = context;

	(void)first;
	*highest = end > *highest ? end : *highest;
	return 0;
}

uint64_t hl_page_frames_end(void)
{
	uint64_t highest = 0;

	return each_zone(find_end, &highest) < 0 ? 0 : highest;
}

static void empty(const struct bpf_map *map)
{
	int fd = bpf_map__fd(map);
	uint64_t key, next;
	bool has_key = bpf_map_get_next_key(fd, NULL, &key) == 0;

	/* From a key that is there the next one is near; the first is searched from the beginning. */
	while (has_key) {
		has_key = bpf_map_get_next_key(fd, &key, &next) == 0;
		bpf_map_delete_elem(fd, &key);
		key = next;
	}
}

/* Forgets what the scan has found. */
static void clear(const struct hl_page_scanner *scanner)
{
	struct hl_group_scan *scan = scanner->scan;

	empty(scanner->inodes);
	empty(scanner->caches);
	empty(scanner->groups);
	memset(scan->pages, 0, sizeof(scan->pages));
	scan->seen = scan->removed = scan->lost = 0;
}

/* ---- room ---- */

#define FILES_MIN   4096u
#define FILES_MAX   (1u << 20)
#define TABLE_BYTES (UINT64_C(2) << 20) /* of programs, and of what does not depend on the group */
#define ENTRY_BYTES 48u			/* of a table, half of it for an entry that is not used */

/* What the control group of this process has left, page cache included. */
static int64_t bytes_left(void)
{
	struct hl_cgroup_gauge gauge = {0};
	struct hl_cgroup own;
	int64_t least = INT64_MAX;

	if (hl_cgroup_open_of(getpid(), &own, NULL) < 0)
		return INT64_MAX;
	hl_cgroup_gauge_open(&gauge, &own);
	for (unsigned i = 0; i < gauge.count; i++) {
		int64_t left = hl_cgroup_level_left(&gauge.levels[i]);
		if (left < INT64_MAX)
			left += hl_cgroup_level_cache(&gauge.levels[i]);
		least = left < least ? left : least;
	}
	hl_cgroup_gauge_release(&gauge);
	hl_cgroup_release(&own);
	return least;
}

int hl_page_scanner_size(struct bpf_map *inodes, const struct hl_cgroup *group,
			 uint64_t other_bytes, struct hl_error *err)
{
	char text[32768];
	uint64_t bytes = 0;

	if (hl_cgroup_read(group, "memory.stat", text, sizeof(text)) > 0)
		hl_cgroup_find(text, group->is_v2 ? "file" : "total_cache", &bytes);
	uint64_t files = bytes / page_bytes() * 5 / 4 + FILES_MIN;
	if (files > FILES_MAX)
		files = FILES_MAX;
	uint64_t needed = TABLE_BYTES + files * ENTRY_BYTES + other_bytes;
	int64_t left = bytes_left();
	if (left < 0 || (uint64_t)left / 2 < needed)
		return hl_error_set(
			err, -ENOSPC,
			"reading its pages takes about %" PRIu64
			" MiB of the kernel in the control group that heapline runs in, which has "
			"%" PRId64 " MiB left; run heapline outside of it",
			(needed >> 20) + 1, (left < 0 ? 0 : left) >> 20);
	return bpf_map__set_max_entries(inodes, (uint32_t)files);
}

/* ---- files and kinds of objects ---- */

int hl_page_scanner_name(const struct hl_page_scanner *scanner, struct hl_group_file *file)
{
	struct hl_inode_name *name = scanner->name;
	char path[HL_INODE_NAMES * HL_INODE_NAME_SIZE + 8];
	size_t length = 0;

	name->inode = file->address;
	name->number = file->inode;
	name->device = (uint64_t)major(file->device) << 20 | minor(file->device);
	int r = run(scanner->name_inode);
	if (r == 0)
		snprintf(file->system, sizeof(file->system), "%.15s", name->system);
	if (r < 0 || !name->count || name->count > HL_INODE_NAMES)
		return r;
	if (name->count == HL_INODE_NAMES)
		length = (size_t)snprintf(path, sizeof(path), "/...");
	for (uint32_t i = name->count; i-- > 0;) {
		name->names[i][HL_INODE_NAME_SIZE - 1] = '\0';
		length += (size_t)snprintf(path + length, sizeof(path) - length, "/%s",
					   name->names[i]);
	}
	file->is_deleted = name->is_deleted;
	free(file->path);
	file->path = strdup(path);
	return file->path ? 0 : -ENOMEM;
}

static int compare_addresses(const void *left, const void *right)
{
	const struct hl_group_file *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

static int take_inodes(const struct hl_page_scanner *scanner, struct hl_group_pages *pages)
{
	int map = bpf_map__fd(scanner->inodes), r = 0;
	uint64_t key, *last = NULL;

	for (; r == 0 && bpf_map_get_next_key(map, last, &key) == 0; last = &key) {
		struct hl_group_inode found;
		if (bpf_map_lookup_elem(map, &key, &found) < 0 || !found.pages)
			continue;
		const struct hl_group_file file = {
			.address = key,
			.device = makedev((unsigned)(found.device >> 20),
					  (unsigned)(found.device & 0xfffff)),
			.inode = found.number,
			.is_memory = found.is_memory,
			.bytes = found.pages * page_bytes(),
			.active_bytes = found.active * page_bytes(),
			.dirty_bytes = found.dirty * page_bytes(),
			.mapped_bytes = found.mapped * page_bytes(),
			.locked_bytes = found.locked * page_bytes(),
		};
		r = HL_ARRAY_APPEND(pages->files, pages->file_count, pages->file_capacity, file);
	}
	if (pages->file_count)
		qsort(pages->files, pages->file_count, sizeof(*pages->files), compare_addresses);
	return r;
}

static int take_caches(const struct hl_page_scanner *scanner, struct hl_group_pages *pages)
{
	int map = bpf_map__fd(scanner->caches), r = 0;
	uint64_t key, *last = NULL;

	for (; r == 0 && bpf_map_get_next_key(map, last, &key) == 0; last = &key) {
		struct hl_group_cache found;
		if (bpf_map_lookup_elem(map, &key, &found) == 0 && found.objects)
			r = HL_ARRAY_APPEND(pages->caches, pages->cache_count,
					    pages->cache_capacity, found);
	}
	return r;
}

struct hl_group_file *hl_group_pages_at(const struct hl_group_pages *pages, uint64_t address)
{
	const struct hl_group_file wanted = {.address = address};

	return address && pages->file_count ? bsearch(&wanted, pages->files, pages->file_count,
						      sizeof(wanted), compare_addresses)
					    : NULL;
}

int hl_page_scanner_read(const struct hl_page_scanner *scanner, struct hl_group_pages **ret_pages)
{
	struct hl_group_pages *pages = calloc(1, sizeof(*pages));

	if (!pages)
		return -ENOMEM;
	int r = each_zone(scan_range, (void *)scanner);
	if (r == 0)
		r = take_inodes(scanner, pages);
	if (r == 0)
		r = take_caches(scanner, pages);
	for (size_t i = 0; i < HL_GROUP_KINDS; i++)
		pages->bytes[i] = scanner->scan->pages[i] * page_bytes();
	pages->removed_bytes = scanner->scan->removed * page_bytes();
	pages->lost_bytes = scanner->scan->lost * page_bytes();
	clear(scanner);
	if (r < 0)
		hl_group_pages_free(pages);
	else
		*ret_pages = pages;
	return r;
}

/* ---- all of it ---- */

static int read_pages(const struct hl_page_scanner *scanner, const struct hl_cgroup *group,
		      struct hl_group_pages **ret_pages)
{
	int r = hl_page_scanner_start(scanner, group);

	if (r == 0)
		r = hl_page_scanner_read(scanner, ret_pages);
	for (size_t i = 0; r == 0 && i < (*ret_pages)->file_count; i++)
		r = hl_page_scanner_name(scanner, &(*ret_pages)->files[i]);
	return r;
}

int hl_group_pages_read(const struct hl_cgroup *group, struct hl_group_pages **ret_pages,
			struct hl_error *err)
{
	const struct hl_process_facts self = {.pid = getpid()};
	struct hl_group_pages *pages = NULL;

	int r = hl_privilege_check(&self, HL_NEED_BPF | HL_NEED_PAGEMAP, NULL);
	if (r < 0)
		return hl_error_set(err, r, "it needs root, and Linux 5.17 or newer with BTF");
	hl_privilege_log_start(NULL);
	struct group *programs = group__open();
	r = programs ? hl_page_scanner_size(programs->maps.inodes, group, 0, err) : -errno;
	if (r == 0)
		r = group__load(programs);
	if (r == 0) {
		const struct hl_page_scanner scanner = HL_PAGE_SCANNER(programs);
		r = read_pages(&scanner, group, &pages);
	}
	group__destroy(programs);
	if (r < 0) {
		hl_group_pages_free(pages);
		if (r == -ENOMEM) /* of the kernel, which the caller may go on without */
			r = -ENOSPC;
		return r == -ENOTSUP ? hl_error_set(err, r,
						    "this kernel's pages are not those that "
						    "heapline knows")
				     : hl_privilege_explain("read the pages of the group", r, err);
	}
	*ret_pages = pages;
	return 0;
}

void hl_group_pages_free(struct hl_group_pages *pages)
{
	if (!pages)
		return;
	for (size_t i = 0; i < pages->file_count; i++)
		free(pages->files[i].path);
	free(pages->files);
	free(pages->caches);
	free(pages);
}
