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

struct reader {
	struct group *programs;
	struct hl_group_pages *pages;
	uint64_t page_bytes;
};

static int run(const struct bpf_program *program)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);
	int r = bpf_prog_test_run_opts(bpf_program__fd(program), &options);

	return r < 0 ? -errno : 0;
}

/* ---- where struct page begins ---- */

/* The address that page ${index} of ${memory}, which is touched now, gives for the struct page of frame 0; 0: none. */
static uint64_t probe(struct reader *reader, int pagemap, volatile uint8_t *memory)
{
	uint64_t entry = 0;

	reader->programs->bss->given_page = 0;
	*memory = 1;
	uint64_t page = *(volatile uint64_t *)&reader->programs->bss->given_page;
	off_t at = (off_t)((uintptr_t)memory / reader->page_bytes * sizeof(entry));
	if (!page || pread(pagemap, &entry, sizeof(entry), at) != sizeof(entry) ||
	    !(entry & FRAME_MASK))
		return 0;
	return page - (entry & FRAME_MASK) * HL_STRUCT_PAGE_BYTES;
}

static int find_page_structs(struct reader *reader, uint64_t *ret_address)
{
	HL_CLOSED int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t found[PROBES];
	size_t bytes = PROBES * reader->page_bytes;
	unsigned most = 0;

	if (pagemap < 0)
		return -errno;
	uint8_t *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	struct bpf_link *link = bpf_program__attach(reader->programs->progs.page_given);
	int r = link ? 0 : -errno;
	for (size_t i = 0; r == 0 && i < PROBES; i++)
		found[i] = probe(reader, pagemap, memory + i * reader->page_bytes);
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

/* ---- the walk ---- */

static int scan_range(struct reader *reader, uint64_t first, uint64_t end)
{
	struct hl_group_scan *scan = &reader->programs->bss->scan;
	int r = 0;

	for (uint64_t at = first & ~(uint64_t)(HL_FRAMES_READ - 1); r == 0 && at < end;
	     at += HL_FRAMES_PER_CALL) {
		scan->first = at;
		scan->count =
			(uint32_t)(end - at < HL_FRAMES_PER_CALL ? end - at : HL_FRAMES_PER_CALL);
		r = run(reader->programs->progs.scan_frames);
		if (r == 0 && scan->is_strange)
			r = -ENOTSUP;
	}
	return r;
}

/* All frames that zones have. */
static int scan_zones(struct reader *reader)
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
		r = scan_range(reader, first, first + spanned);
		spanned = 0;
	}
	return r;
}

/* ---- files ---- */

static int find_path(struct reader *reader, uint64_t inode, const struct hl_group_inode *found,
		     struct hl_group_file *file)
{
	struct hl_inode_name *name = &reader->programs->bss->name;
	char path[HL_INODE_NAMES * HL_INODE_NAME_SIZE + 8];
	size_t length = 0;

	name->inode = inode;
	name->number = found->number;
	name->device = found->device;
	int r = run(reader->programs->progs.name_inode);
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
	file->path = strdup(path);
	return file->path ? 0 : -ENOMEM;
}

static int add_inode(struct reader *reader, uint64_t inode, const struct hl_group_inode *found)
{
	struct hl_group_pages *pages = reader->pages;
	struct hl_group_file file = {
		.device = makedev((unsigned)(found->device >> 20),
				  (unsigned)(found->device & 0xfffff)),
		.inode = found->number,
		.is_memory = found->is_memory,
		.bytes = found->pages * reader->page_bytes,
		.active_bytes = found->active * reader->page_bytes,
		.dirty_bytes = found->dirty * reader->page_bytes,
		.mapped_bytes = found->mapped * reader->page_bytes,
		.locked_bytes = found->locked * reader->page_bytes,
	};

	int r = find_path(reader, inode, found, &file);
	if (r == 0)
		r = HL_ARRAY_APPEND(pages->files, pages->file_count, pages->file_capacity, file);
	if (r < 0)
		free(file.path);
	return r;
}

static int compare_files(const void *left, const void *right)
{
	const struct hl_group_file *a = left, *b = right;

	if (a->device != b->device)
		return a->device > b->device ? 1 : -1;
	return (a->inode > b->inode) - (a->inode < b->inode);
}

static int take_inodes(struct reader *reader)
{
	int map = bpf_map__fd(reader->programs->maps.inodes), r = 0;
	uint64_t key, *last = NULL;

	for (; r == 0 && bpf_map_get_next_key(map, last, &key) == 0; last = &key) {
		struct hl_group_inode found;
		if (bpf_map_lookup_elem(map, &key, &found) == 0 && found.pages)
			r = add_inode(reader, key, &found);
	}
	if (reader->pages->file_count)
		qsort(reader->pages->files, reader->pages->file_count, sizeof(struct hl_group_file),
		      compare_files);
	return r;
}

static int take_caches(struct reader *reader)
{
	int map = bpf_map__fd(reader->programs->maps.caches), r = 0;
	struct hl_group_pages *pages = reader->pages;
	uint64_t key, *last = NULL;

	for (; r == 0 && bpf_map_get_next_key(map, last, &key) == 0; last = &key) {
		struct hl_group_cache found;
		if (bpf_map_lookup_elem(map, &key, &found) == 0 && found.objects)
			r = HL_ARRAY_APPEND(pages->caches, pages->cache_count,
					    pages->cache_capacity, found);
	}
	return r;
}

/* ---- all of it ---- */

static int read_pages(struct reader *reader, const struct hl_cgroup *group)
{
	struct hl_group_scan *scan;
	struct stat seen;

	if (fstat(group->fd, &seen) < 0)
		return -errno;
	reader->programs = group__open_and_load();
	if (!reader->programs)
		return -errno;
	scan = &reader->programs->bss->scan;
	scan->group = seen.st_ino;
	int r = run(reader->programs->progs.note_process);
	if (r == 0)
		r = find_page_structs(reader, &scan->page_structs);
	if (r == 0)
		r = scan_zones(reader);
	if (r == 0)
		r = take_inodes(reader);
	if (r == 0)
		r = take_caches(reader);
	for (size_t i = 0; i < HL_GROUP_KINDS; i++)
		reader->pages->bytes[i] = scan->pages[i] * reader->page_bytes;
	reader->pages->removed_bytes = scan->removed * reader->page_bytes;
	reader->pages->lost_bytes = scan->lost * reader->page_bytes;
	return r;
}

int hl_group_pages_read(const struct hl_cgroup *group, struct hl_group_pages **ret_pages,
			struct hl_error *err)
{
	struct reader reader = {.page_bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
	const struct hl_process_facts self = {.pid = getpid()};

	int r = hl_privilege_check(&self, HL_NEED_BPF | HL_NEED_PAGEMAP, err);
	if (r < 0)
		return hl_error_set(err, r, "it needs root, and Linux 5.17 or newer with BTF");
	reader.pages = calloc(1, sizeof(*reader.pages));
	if (!reader.pages)
		return hl_error_set(err, -ENOMEM, "out of memory");
	hl_privilege_log_start(NULL);
	r = read_pages(&reader, group);
	group__destroy(reader.programs);
	if (r < 0) {
		hl_group_pages_free(reader.pages);
		return r == -ENOTSUP ? hl_error_set(err, r,
						    "this kernel's pages are not those that "
						    "heapline knows")
				     : hl_privilege_explain("read the pages of the group", r, err);
	}
	*ret_pages = reader.pages;
	return 0;
}

const struct hl_group_file *hl_group_pages_find(const struct hl_group_pages *pages, uint64_t device,
						uint64_t inode)
{
	const struct hl_group_file wanted = {.device = device, .inode = inode};

	return pages->file_count ? bsearch(&wanted, pages->files, pages->file_count,
					   sizeof(*pages->files), compare_files)
				 : NULL;
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
