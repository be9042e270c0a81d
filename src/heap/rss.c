/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory in RAM outside of the heap: stacks, files, other mappings, who has mapped them, and their names; see heap.h. */
#include "heap/heap.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/names.h"
#include "heap/extents.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names of the largest mappings ---- */

#define KEPT_MAX 10u /* mappings of one part */

/* Whether ${map} is of a file system of the type tmpfs, as a text of mountinfo says. */
static bool is_of_tmpfs(const struct hl_map *map, const char *mounts)
{
	struct hl_mount mount;

	while (hl_mount_next(&mounts, &mount))
		if (mount.dev_major == map->dev_major && mount.dev_minor == map->dev_minor)
			return !strcmp(mount.type, "tmpfs");
	return false;
}

/* What is shared and has no file to which the kernel can write it back. */
static bool is_shared_memory(const struct hl_map *map, const char *mounts)
{
	return map->flags & HL_MAP_SHARED &&
	       (!map->inode || map->path[0] != '/' || hl_memory_is_plain(map) ||
		strncmp(map->path, "/dev/", 5) == 0 || is_of_tmpfs(map, mounts));
}

static void name_mapping(const struct hl_map *map, const char *mounts,
			 struct hl_rss_mapping *mapping)
{
	const char *base = hl_path_basename(map->path);
	bool is_tmpfs = is_of_tmpfs(map, mounts);

	if (strncmp(map->path, "/dev/shm/", 9) == 0)
		snprintf(mapping->name, sizeof(mapping->name), "shm %.80s", map->path + 9);
	else if (strcmp(map->path, "/dev/zero") == 0 && map->flags & HL_MAP_SHARED)
		snprintf(mapping->name, sizeof(mapping->name), "without a file");
	else if (map->inode && map->path[0])
		snprintf(mapping->name, sizeof(mapping->name), "%.64s%s%s%s", base,
			 is_tmpfs ? " (tmpfs" : "", is_tmpfs && map->deleted ? ", deleted" : "",
			 is_tmpfs ? ")" : "");
	else
		snprintf(mapping->name, sizeof(mapping->name), "%.80s", map->path);
}

/* By part and name, nameless mappings by their own address. */
static int compare_names(const void *left, const void *right)
{
	const struct hl_rss_mapping *a = left, *b = right;
	int order = strcmp(a->part, b->part);

	if (order == 0)
		order = strcmp(a->name, b->name);
	return order ? order : (a->start > b->start) - (a->start < b->start);
}

static int compare_bytes(const void *left, const void *right)
{
	const struct hl_rss_mapping *a = left, *b = right;
	int order = strcmp(a->part, b->part);

	if (order == 0 && a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return order ? order : (a->start > b->start) - (a->start < b->start);
}

/* Joins mappings of one name, and keeps the largest of each part. ${mounts} tells file systems. */
static void rss_name_mappings(struct hl_memory *memory, const char *mounts, struct hl_heap_rss *rss)
{
	struct hl_rss_mapping *mappings = rss->mappings;
	size_t kept = 0, of_part = 0;

	for (size_t i = 0; i < rss->mapping_count; i++)
		if (!mappings[i].name[0])
			name_mapping(hl_maps_find(&memory->maps, mappings[i].start), mounts,
				     &mappings[i]);
	if (rss->mapping_count)
		qsort(mappings, rss->mapping_count, sizeof(*mappings), compare_names);
	for (size_t i = 0; i < rss->mapping_count; i++) {
		struct hl_rss_mapping *last = kept ? &mappings[kept - 1] : NULL;
		if (!last || !mappings[i].name[0] || last->part != mappings[i].part ||
		    strcmp(last->name, mappings[i].name) != 0) {
			mappings[kept++] = mappings[i];
			continue;
		}
		last->bytes += mappings[i].bytes;
		last->huge_bytes += mappings[i].huge_bytes;
		last->mapped_bytes += mappings[i].mapped_bytes;
	}
	if (kept)
		qsort(mappings, kept, sizeof(*mappings), compare_bytes);
	rss->mapping_count = 0;
	for (size_t i = 0; i < kept; i++) {
		of_part = i && mappings[i].part == mappings[i - 1].part ? of_part + 1 : 0;
		if (of_part < KEPT_MAX)
			mappings[rss->mapping_count++] = mappings[i];
	}
}

/* ---- what the kernel counts beside the parts ---- */

/* The kernel's THREAD_SIZE, for each thread: 16 KiB, on aarch64 at least a page. */
static uint64_t kernel_stack_bytes(void)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), usual = UINT64_C(16) << 10;

	return page > usual ? page : usual;
}

/* The bytes that "${key}: N kB" of ${text} says; 0: it does not. */
static uint64_t kilobytes(const char *text, const char *key)
{
	char line[40];

	snprintf(line, sizeof(line), "\n%s:", key);
	const char *found = strstr(text, line);
	return found ? strtoull(found + strlen(line), NULL, 10) << 10 : 0;
}

void hl_rss_parse_beside(const char *rollup, const char *status, struct hl_rss_beside *ret_beside)
{
	const char *threads = strstr(status, "\nThreads:");

	*ret_beside = (struct hl_rss_beside){
		.huge_page_bytes = kilobytes(status, "HugetlbPages"),
		.swap_bytes = kilobytes(rollup, "Swap"),
		.swap_pss_bytes = kilobytes(rollup, "SwapPss"),
		.page_table_bytes = kilobytes(status, "VmPTE"),
		.kernel_stack_bytes = threads ? strtoull(threads + strlen("\nThreads:"), NULL, 10) *
							kernel_stack_bytes()
					      : 0,
		.lazy_free_bytes = kilobytes(rollup, "LazyFree"),
		.transparent_bytes = kilobytes(rollup, "AnonHugePages") +
				     kilobytes(rollup, "ShmemPmdMapped") +
				     kilobytes(rollup, "FilePmdMapped"),
		.shared_bytes =
			kilobytes(rollup, "Shared_Clean") + kilobytes(rollup, "Shared_Dirty"),
		.pss_bytes = kilobytes(rollup, "Pss"),
	};
	if (!ret_beside->swap_bytes)
		ret_beside->swap_bytes = kilobytes(status, "VmSwap");
}

void hl_rss_read_beside(pid_t pid, struct hl_rss_beside *ret_beside)
{
	char rollup[4096] = "", status[4096] = "";

	if (hl_proc_read(pid, "smaps_rollup", rollup, sizeof(rollup)) <= 0)
		rollup[0] = '\0';
	if (hl_proc_read_status(pid, status, sizeof(status)) <= 0)
		status[0] = '\0';
	hl_rss_parse_beside(rollup, status, ret_beside);
}

static int compare_open(const void *left, const void *right)
{
	const struct hl_pod_open_file *a = left, *b = right;

	return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

static void count_pipe(const struct hl_pod_open_file *pipe, struct hl_rss_beside *beside)
{
	uint64_t bytes, capacity;

	beside->pipes++;
	if (!hl_pod_files_pipe(pipe, &bytes, &capacity)) {
		beside->unread_pipes++;
		return;
	}
	beside->pipe_bytes += bytes;
	beside->pipe_capacity_bytes += capacity;
}

/* Notes which open files and pipes could not be read. 0 or -ENOMEM. */
static int note_open(struct hl_heap *heap)
{
	const struct hl_heap_rss *rss = &heap->rss;
	int r = 0;

	if (rss->open.unread_count)
		r = hl_heap_note(heap, "what the process has open may not be seen; %s",
				 hl_proc_access_remedy(false));
	if (r == 0 && rss->beside.unread_pipes)
		r = hl_heap_note(heap,
				 "what lies in %" PRIu64 " of %" PRIu64
				 " pipes is not known: their descriptors may not be copied; %s",
				 rss->beside.unread_pipes, rss->beside.pipes,
				 hl_proc_access_remedy(false));
	return r;
}

/* Keeps the files in memory that process ${pid} has open and not mapped, and counts its pipes. 0 or -ENOMEM. */
static int read_open(pid_t pid, struct hl_heap *heap)
{
	struct hl_pod_files *open = &heap->rss.open;
	struct hl_rss_beside *beside = &heap->rss.beside;
	size_t kept = 0;

	open->with_pipes = true;
	int r = hl_pod_files_add(open, pid, "");
	if (r < 0)
		return r;
	hl_pod_files_merge(open);
	for (size_t i = 0; i < open->count; i++) {
		struct hl_pod_open_file *file = &open->files[i];
		if (file->is_pipe)
			count_pipe(file, beside);
		if (file->is_memory && !file->is_mapped && file->bytes) {
			beside->open_file_bytes += file->bytes;
			open->files[kept++] = *file;
		} else {
			free(file->name);
		}
	}
	open->count = kept;
	if (kept)
		qsort(open->files, kept, sizeof(*open->files), compare_open);
	return note_open(heap);
}

void hl_rss_parts(const struct hl_heap_rss *rss, struct hl_rss_part ret_parts[HL_RSS_PARTS])
{
	const struct hl_rss_part parts[HL_RSS_PARTS] = {
		[HL_RSS_LIVE] = {"live blocks", rss->live_bytes},
		[HL_RSS_CACHED] = {"thread caches and fastbins", rss->cached_bytes},
		[HL_RSS_FREE] = {"free, but in memory", rss->free_bytes},
		[HL_RSS_OVERHEAD] = {"malloc's own (headers, arenas)", rss->overhead_bytes},
		[HL_RSS_UNSCANNED] = {"unscanned", rss->unscanned_bytes},
		[HL_RSS_OTHER_ALLOCATORS] = {"other allocators", rss->other_allocator_bytes},
		[HL_RSS_RECORDER] = {"heapline's recorder", rss->recorder_bytes},
		[HL_RSS_STACKS] = {"stacks", rss->stack_bytes},
		[HL_RSS_FILES] = {hl_rss_files_name, rss->file_bytes},
		[HL_RSS_SHARED] = {hl_rss_shared_name, rss->shared_bytes},
	};

	memcpy(ret_parts, parts, sizeof(parts));
}

/* ---- who has mapped memory without a file ---- */

/* V8 maps memory in pieces of at least this size, at multiples of it. */
#define PIECE_BYTES (UINT64_C(256) << 10)

/* Go's heap begins at GO_START; no heap reaches GO_END. */
#define GO_START UINT64_C(0xc000000000)
#define GO_END	 UINT64_C(0xd000000000)

static const char *const names[HL_ANONYMOUS_COUNT] = {
	[HL_ANONYMOUS_VARIABLES] = "variables of program and libraries",
	[HL_ANONYMOUS_FILE] = "private data of files",
	[HL_ANONYMOUS_CODE] = "code made at run time (JIT)",
	[HL_ANONYMOUS_V8] = "JavaScript objects (V8's heap)",
	[HL_ANONYMOUS_JAVA] = "Java objects (the JVM's heap)",
	[HL_ANONYMOUS_JVM] = "likely the JVM's metaspace and GC",
	[HL_ANONYMOUS_GO] = "Go's heap",
	[HL_ANONYMOUS_BREAK] = "[heap], but not malloc's",
	[HL_ANONYMOUS_OTHER] = "other anonymous mappings",
};

const char hl_rss_files_name[] = "files", hl_rss_shared_name[] = "shared memory";

const struct hl_guest_pools *hl_rss_pools(size_t kind)
{
	size_t i = kind - HL_ANONYMOUS_GUESTS;
	const struct hl_guest_outside *guest =
		i < 2 * HL_GUESTS_OUTSIDE_MAX ? hl_guests_outside[i % HL_GUESTS_OUTSIDE_MAX] : NULL;
	const struct hl_guest_pools *pools = !guest			 ? NULL
					     : i < HL_GUESTS_OUTSIDE_MAX ? &guest->pools
									 : &guest->other_pools;

	return pools && pools->name ? pools : NULL;
}

const char *hl_rss_anonymous_name(size_t kind)
{
	const struct hl_guest_pools *pools = hl_rss_pools(kind);

	return pools ? pools->name : names[kind];
}

struct hl_runtimes hl_rss_find_runtimes(struct hl_memory *memory)
{
	const struct hl_maps *maps = &memory->maps;
	static const char *const v8[] = {"node", "nodejs", "deno", "chrome", "electron"};
	struct hl_runtimes runtimes = {0};

	for (size_t i = 0; i < maps->count; i++) {
		const char *name = hl_path_basename(maps->maps[i].path);
		if (!maps->maps[i].inode)
			continue;
		runtimes.has_jvm = runtimes.has_jvm || strcmp(name, "libjvm.so") == 0;
		runtimes.has_v8 = runtimes.has_v8 || strncmp(name, "libnode.so", 10) == 0 ||
				  strncmp(name, "libv8", 5) == 0;
		for (size_t k = 0; k < HL_COUNT_OF(v8); k++)
			runtimes.has_v8 = runtimes.has_v8 || strcmp(name, v8[k]) == 0;
	}
	if (runtimes.has_jvm)
		runtimes.jvm = hl_jvm_find(memory);
	return runtimes;
}

/* With ZGC Java's objects lie in a memfd of this name, shared since it may map them more than once. */
static bool is_zgc_heap(const struct hl_runtimes *runtimes, const struct hl_map *map)
{
	return runtimes->has_jvm && map->inode && strcmp(map->path, "/memfd:java_heap") == 0;
}

/*
 * Whether V8 has mapped what begins at ${start}: a chunk begins with its length, or, in later versions, with flags and a pointer to
 * what is known of it. Buffers, and memory of WebAssembly, may be aligned like chunks, but begin with what the program puts there.
 */
static bool is_v8_chunk(struct hl_memory *memory, uint64_t start, uint64_t end)
{
	uint64_t words[2];

	if (start % PIECE_BYTES != 0 ||
	    hl_memory_read_present(memory, start, words, sizeof(words)) < 0)
		return false;
	const struct hl_map *metadata = hl_maps_find(&memory->maps, words[1]);
	return (words[0] && words[0] % memory->page_bytes == 0 && words[0] <= end - start) ||
	       (metadata && !metadata->inode && metadata->flags & HL_MAP_WRITE &&
		words[1] % 8 == 0);
}

enum hl_anonymous_kind hl_rss_kind(struct hl_memory *memory, const struct hl_runtimes *runtimes,
				   const struct hl_map *map, uint64_t start, uint64_t end,
				   const struct hl_pages *pages)
{
	if (map->inode)
		return HL_ANONYMOUS_FILE;
	for (size_t kind = HL_ANONYMOUS_GUESTS; kind < HL_ANONYMOUS_V8; kind++) {
		const struct hl_guest_pools *pools = hl_rss_pools(kind);
		if (pools && pools->pool_bytes(memory, start, end, pages))
			return (enum hl_anonymous_kind)kind;
	}
	/* What is writable, too, may hold data alone: SBCL maps its heap so. */
	if ((map->flags & (HL_MAP_EXEC | HL_MAP_WRITE)) == HL_MAP_EXEC)
		return HL_ANONYMOUS_CODE;
	if (strcmp(map->path, "[heap]") == 0)
		return HL_ANONYMOUS_BREAK;
	if (runtimes->has_jvm)
		return start >= runtimes->jvm.heap_start && start < runtimes->jvm.heap_end
			       ? HL_ANONYMOUS_JAVA
			       : HL_ANONYMOUS_JVM;
	if (runtimes->has_v8 && is_v8_chunk(memory, start, end))
		return HL_ANONYMOUS_V8;
	if (start >= GO_START && start < GO_END)
		return HL_ANONYMOUS_GO;
	return HL_ANONYMOUS_OTHER;
}

/* ---- sums ---- */

struct others {
	struct hl_memory *memory;
	struct hl_heap_rss *rss;
	struct hl_runtimes runtimes;
	struct hl_places places;
	char *mounts; /* mountinfo; NULL: not known */
	const struct hl_map *map;
	bool is_memory; /* the mapping is shared, and of no file that has a disk, or a server, behind it */
	struct hl_pages pages;
};

/* Keeps ${bytes} of a mapping that is in RAM under ${part}, to be named. */
static int add_mapping(struct others *others, const char *part, uint64_t bytes, uint64_t huge_bytes)
{
	struct hl_heap_rss *rss = others->rss;
	const struct hl_map *map = others->map;
	struct hl_rss_mapping *last =
		rss->mapping_count ? &rss->mappings[rss->mapping_count - 1] : NULL;

	if (!bytes)
		return 0;
	if (!last || last->start != map->start || last->part != part) {
		if (HL_ARRAY_RESERVE(rss->mappings, rss->mapping_capacity, rss->mapping_count + 1) <
		    0)
			return -ENOMEM;
		last = &rss->mappings[rss->mapping_count++];
		*last = (struct hl_rss_mapping){
			.part = part, .start = map->start, .mapped_bytes = map->end - map->start};
	}
	last->bytes += bytes;
	last->huge_bytes += huge_bytes;
	return 0;
}

/* The sum that pages of ${run} belong to; NULL: a kind of anonymous memory. */
static uint64_t *sum_of(struct others *others, const struct hl_page_run *run,
			const struct hl_place *place)
{
	struct hl_heap_rss *rss = others->rss;

	if (others->map->flags & HL_MAP_RECORDER)
		return &rss->recorder_bytes;
	if (is_zgc_heap(&others->runtimes, others->map))
		return &rss->anonymous[HL_ANONYMOUS_JAVA];
	if (others->is_memory)
		return &rss->shared_bytes;
	if (others->map->flags & HL_MAP_SHARED || run->kind & HL_PAGE_FILE)
		return &rss->file_bytes;
	if (!place)
		return NULL;
	return place->kind == HL_PLACE_STACK  ? &rss->stack_bytes
	       : place->kind == HL_PLACE_JAVA ? &rss->anonymous[HL_ANONYMOUS_JAVA]
	       : place->kind == HL_PLACE_CODE ? &rss->anonymous[HL_ANONYMOUS_CODE]
					      : &rss->anonymous[HL_ANONYMOUS_VARIABLES];
}

/* Adds [${start}, ${end}), which lies in ${place}, or in none. */
static int add_part(struct others *others, uint64_t start, uint64_t end,
		    const struct hl_place *place)
{
	struct hl_heap_rss *rss = others->rss;
	uint64_t bytes = 0, huge = 0, files = 0, shared = 0;

	others->pages.count = 0;
	others->pages.page_count = 0;
	int r = hl_memory_scan(others->memory, start, end, &others->pages);
	for (size_t i = 0; i < others->pages.count && r == 0; i++) {
		const struct hl_page_run *run = &others->pages.runs[i];
		uint64_t length = run->end - run->start;
		uint64_t *sum = sum_of(others, run, place);
		if (run->kind & HL_PAGE_BESIDE_RSS)
			continue;
		*(sum ? sum : &bytes) += length;
		huge += !sum && run->kind & HL_PAGE_HUGE ? length : 0;
		files += sum == &rss->file_bytes ? length : 0;
		shared += sum == &rss->shared_bytes ? length : 0;
	}
	rss->code_bytes += others->map->flags & HL_MAP_EXEC ? files : 0;
	if (r == 0)
		r = add_mapping(others, hl_rss_files_name, files, 0);
	if (r == 0)
		r = add_mapping(others, hl_rss_shared_name, shared, 0);
	if (r < 0 || !bytes)
		return r;
	enum hl_anonymous_kind kind = hl_rss_kind(others->memory, &others->runtimes, others->map,
						  start, end, &others->pages);
	rss->anonymous[kind] += bytes;
	const struct hl_guest_pools *pools = hl_rss_pools(kind);
	if (kind != HL_ANONYMOUS_OTHER && kind != HL_ANONYMOUS_FILE && !(pools && pools->describe))
		return 0;
	if (kind == HL_ANONYMOUS_OTHER && bytes > rss->largest_bytes) {
		rss->largest_start = start;
		rss->largest_bytes = bytes;
	}
	r = add_mapping(others, hl_rss_anonymous_name(kind), bytes, huge);
	if (r == 0 && pools && pools->describe) {
		struct hl_rss_mapping *mapping = &rss->mappings[rss->mapping_count - 1];
		pools->describe(others->memory, start, end, mapping->name, sizeof(mapping->name));
	}
	return r;
}

/* Adds [${start}, ${end}) of a mapping, in which no carrier lies, place by place. */
static int add_gap(void *context, uint64_t start, uint64_t end)
{
	struct others *others = context;
	const struct hl_places *places = &others->places;
	size_t i = HL_LOWER_BOUND(at, places->count, places->places[at].end <= start);
	int r = 0;

	for (uint64_t to; start < end && r == 0; start = to) {
		const struct hl_place *place = i < places->count ? &places->places[i] : NULL;
		bool is_inside = place && place->start <= start;
		to = !place ? end : is_inside ? place->end : place->start;
		i += is_inside;
		to = to < end ? to : end;
		r = add_part(others, start, to, is_inside ? place : NULL);
	}
	return r;
}

int hl_rss_add_others(struct hl_memory *memory, struct hl_heap *heap)
{
	struct hl_heap_rss *rss = &heap->rss;
	struct others others = {
		.memory = memory, .rss = rss, .runtimes = hl_rss_find_runtimes(memory)};
	HL_CLEANUP(hl_extents_release) struct hl_extents extents = {0};
	int r = hl_extents_of_carriers(&heap->carriers, memory->page_bytes, &extents);
	size_t length;

	if (r == 0)
		r = hl_places_read(memory, &others.runtimes.jvm, &others.places);
	if (memory->pid)
		hl_proc_read_all(memory->pid, "mountinfo", &others.mounts, &length);
	for (size_t i = 0; i < memory->maps.count && r == 0; i++) {
		others.map = &memory->maps.maps[i];
		others.is_memory = is_shared_memory(others.map, others.mounts);
		r = hl_extents_gaps(&extents, others.map->start, others.map->end, add_gap, &others);
	}
	rss->anonymous_bytes = 0;
	for (size_t i = 0; i < HL_ANONYMOUS_COUNT; i++)
		rss->anonymous_bytes += rss->anonymous[i];
	rss->rss_bytes = rss->live_bytes + rss->cached_bytes + rss->free_bytes +
			 rss->overhead_bytes + rss->unscanned_bytes + rss->other_allocator_bytes +
			 rss->recorder_bytes + rss->stack_bytes + rss->file_bytes +
			 rss->shared_bytes + rss->anonymous_bytes;
	rss_name_mappings(memory, others.mounts, rss);
	if (r == 0 && memory->pid)
		hl_rss_read_beside(memory->pid, &rss->beside);
	if (r == 0 && memory->pid)
		r = read_open(memory->pid, heap);
	free(others.mounts);
	hl_pages_release(&others.pages);
	hl_places_release(&others.places);
	return r;
}
