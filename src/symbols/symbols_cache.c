/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of addresses that are kept: those from the file, new ones, and their directory; see symbols_dwarf.h. */
#include "symbols/symbols_dwarf.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/encode.h"
#include "base/file_print.h"
#include "base/strings.h"
#include "elf/elf.h"
#include "recording/fields.h"
#include "recording/recording_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- circumstances of names, as JSON that can be kept and compared ---- */

/* A server may have received the file since, so its answer expires after this time. */
#define SERVER_ANSWER_S (24 * 60 * 60)

/* ---- files that they depend on ---- */

/* Appends ${path} with size and time of the file there. Takes the path, which may be NULL: out of
 * memory. */
static int add_file(json_t *files, char *path)
{
	struct stat status;

	if (!path)
		return -1;
	if (stat(path, &status) < 0)
		status = (struct stat){0};
	json_t *file =
		json_pack("{s:o*, s:I, s:I}", "path", hl_text_to_json(path), "bytes",
			  (json_int_t)status.st_size, "mtime_ns",
			  (json_int_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
	free(path);
	return json_array_append_new(files, file);
}

static char *linked_path(const char *root, const char *path, const char *below, const char *link)
{
	const char *slash = strrchr(path, '/');
	int directory = slash ? (int)(slash - path) : 0;
	char *linked;

	if (asprintf(&linked, "%s%.*s%s/%s", root, directory, path, below, link) < 0)
		return NULL;
	return linked;
}

/* ---- all circumstances ---- */

/* Takes ${files}; ${r} is negative where they are not complete. */
static json_t *describe(json_t *files, int r)
{
	const char *servers = getenv("DEBUGINFOD_URLS");

	if (r < 0) {
		json_decref(files);
		return NULL;
	}
	return json_pack("{s:s, s:o*, s:o}", "heapline", HL_VERSION, "debuginfod_urls",
			 hl_text_to_json(servers ? servers : ""), "files", files);
}

json_t *hl_symbols_circumstances_new(const char *path, const uint8_t *build_id,
				     size_t build_id_bytes, const char *debug_link)
{
	char debug_path[HL_ELF_DEBUG_PATH_MAX], *package;
	json_t *files = json_array();

	/* The file first; then its package, and where libdwfl looks for a separate debug file. */
	int r = add_file(files, strdup(path));
	if (r == 0)
		r = add_file(files, asprintf(&package, "%s.dwp", path) < 0 ? NULL : package);
	if (r == 0 && hl_elf_debug_path(HL_ELF_DEBUG_DIRECTORY, build_id, build_id_bytes,
					debug_path, sizeof(debug_path)))
		r = add_file(files, strdup(debug_path));
	if (r == 0 && debug_link)
		r = add_file(files, linked_path("", path, "", debug_link));
	if (r == 0 && debug_link)
		r = add_file(files, linked_path("", path, "/.debug", debug_link));
	if (r == 0 && debug_link)
		r = add_file(files, linked_path(HL_ELF_DEBUG_DIRECTORY, path, "", debug_link));
	json_t *object = describe(files, r);
	if (object && json_object_set_new(object, "described_s", json_integer(time(NULL))) < 0) {
		json_decref(object);
		return NULL;
	}
	return object;
}

bool hl_symbols_circumstances_hold(const json_t *recorded, const char *path)
{
	const json_t *files = json_object_get(recorded, "files");
	const char *servers = json_string_value(json_object_get(recorded, "debuginfod_urls"));
	json_t *described = json_object_get(recorded, "described_s");
	json_int_t age_s = (json_int_t)time(NULL) - json_integer_value(described);
	bool is_fresh = !servers || !servers[0] || (age_s >= 0 && age_s < SERVER_ANSWER_S);
	json_t *expected = hl_text_to_json(path), *files_now = json_array();
	int r = files_now ? 0 : -1;

	for (size_t i = 0; r == 0 && i < json_array_size(files); i++) {
		const json_t *text = json_object_get(json_array_get(files, i), "path");
		char *file = NULL;
		hl_text_from_json(text, &file);
		r = add_file(files_now, file);
	}
	json_t *now = describe(files_now, r);
	bool equal = now && expected && is_fresh &&
		     json_object_set(now, "described_s", described) == 0 &&
		     json_equal(recorded, now) &&
		     json_equal(json_object_get(json_array_get(files, 0), "path"), expected);
	json_decref(now);
	json_decref(expected);
	return equal;
}

/* ---- files of known names, in which nothing is trusted ---- */

#define KIND_SYMBOLS  HL_FOURCC('S', 'Y', 'M', 'S')
#define SECTION_META  HL_FOURCC('M', 'E', 'T', 'A')
#define SECTION_TEXTS HL_FOURCC('T', 'E', 'X', 'T')
#define SECTION_ADDRS HL_FOURCC('A', 'D', 'D', 'R')
#define SECTION_FRAME HL_FOURCC('F', 'R', 'A', 'M')
#define SECTION_COUNT 4

#define SECTION_BYTES_MAX ((size_t)1 << 28)
#define ROWS_MAX	  ((size_t)1 << 24)

/* Raise this when names of the same debug information change. */
#define NAMING 5

/* A frame as it is stored; texts are numbers, 0 is "". */
struct stored_frame {
	uint32_t function, function_file, function_line;
	uint32_t file, line;
	uint32_t inlined;
};

static const struct hl_section_column address_members[] = {
	HL_COLUMN(hl_cached_address, address),
	HL_COLUMN(hl_cached_address, count),
	HL_COLUMN(hl_cached_address, by_dwarf),
};

static const struct hl_section_column frame_members[] = {
	HL_COLUMN(stored_frame, function),	HL_COLUMN(stored_frame, function_file),
	HL_COLUMN(stored_frame, function_line), HL_COLUMN(stored_frame, file),
	HL_COLUMN(stored_frame, line),		HL_COLUMN(stored_frame, inlined),
};

static const struct hl_columns address_columns = {address_members, HL_COUNT_OF(address_members),
						  sizeof(struct hl_cached_address), 8 + 2 * 4};
static const struct hl_columns frame_columns = {frame_members, HL_COUNT_OF(frame_members),
						sizeof(struct stored_frame), 6 * 4};

void hl_symbols_cache_file_release(struct hl_cached_names *names)
{
	json_decref(names->circumstances);
	free(names->reason);
	free(names->addresses);
	free(names->frames);
	free(names->texts);
	*names = (struct hl_cached_names){0};
}

/* ---- writing ---- */

/* Copies the frames in the order of the addresses, with numbers for their texts. */
static int store_frames(const struct hl_cached_names *names, struct hl_strings *strings,
			struct stored_frame *stored, size_t *ret_count)
{
	size_t count = 0;

	for (size_t i = 0; i < names->count; i++) {
		const struct hl_symbols_frame *frames = names->frames + names->addresses[i].first;
		for (size_t k = 0; k < names->addresses[i].count; k++) {
			struct stored_frame *frame = &stored[count++];
			frame->function_line = frames[k].function_line;
			frame->line = frames[k].line;
			frame->inlined = frames[k].inlined;
			if (hl_strings_intern(strings, frames[k].function, &frame->function) < 0 ||
			    hl_strings_intern(strings, frames[k].function_file,
					      &frame->function_file) < 0 ||
			    hl_strings_intern(strings, frames[k].file, &frame->file) < 0)
				return -ENOMEM;
		}
	}
	*ret_count = count;
	return 0;
}

static int add_sections(struct hl_container_writer *writer, const struct hl_cached_names *names)
{
	HL_FREED struct stored_frame *stored = calloc(names->frame_count + 1, sizeof(*stored));
	HL_CLEANUP(hl_strings_release) struct hl_strings strings = {0};
	json_auto_t *meta =
		json_pack("{s:i, s:i, s:s, s:O}", "naming", NAMING, "source", (int)names->source,
			  "reason", names->reason, "circumstances", names->circumstances);
	HL_FREED char *text = meta ? json_dumps(meta, JSON_INDENT(1)) : NULL;
	size_t count = 0;

	int r = stored && text ? store_frames(names, &strings, stored, &count) : -ENOMEM;
	if (r == 0)
		r = hl_container_writer_add(writer, SECTION_META, text, strlen(text), false, NULL);
	if (r == 0)
		r = hl_container_writer_add_texts(writer, SECTION_TEXTS, &strings, NULL);
	if (r == 0)
		r = hl_columns_write(&address_columns, writer, SECTION_ADDRS, names->addresses,
				     names->count, NULL);
	if (r == 0)
		r = hl_columns_write(&frame_columns, writer, SECTION_FRAME, stored, count, NULL);
	return r;
}

/* Writes them to the file ${name}, unless another writer is at work. 0 or a negative errno. */
static int symbols_cache_file_write(int directory_fd, const char *name,
				    const struct hl_cached_names *names)
{
	struct hl_container_writer writer;

	/* Writers of one file share its temporary name. */
	if (flock(directory_fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	int r = hl_container_writer_init(&writer, directory_fd, name, KIND_SYMBOLS, SECTION_COUNT,
					 NULL);
	if (r == 0)
		r = add_sections(&writer, names);
	if (r == 0)
		r = hl_container_writer_finish(&writer, false, NULL);
	hl_container_writer_release(&writer);
	flock(directory_fd, LOCK_UN);
	return r;
}

/* ---- reading ---- */

static int read_meta(const struct hl_container *container, struct hl_cached_names *names)
{
	const char *reason = NULL;
	int naming = 0, source = 0;
	void *text;
	size_t size;

	int r = hl_container_load(container, SECTION_META, SECTION_BYTES_MAX, &text, &size, NULL);
	if (r < 0)
		return r;
	json_t *object = json_loadb(text, size, 0, NULL);
	free(text);
	if (json_unpack(object, "{s:i, s:i, s:s, s:O}", "naming", &naming, "source", &source,
			"reason", &reason, "circumstances", &names->circumstances) < 0 ||
	    naming != NAMING || source <= HL_SYMBOLS_NONE || source > HL_SYMBOLS_DWARF)
		r = -EBADMSG;
	names->source = (enum hl_symbols_source)source;
	names->reason = r == 0 ? strdup(reason) : NULL;
	json_decref(object);
	return r == 0 && !names->reason ? -ENOMEM : r;
}

/* Fills ${ret_texts}, which the caller frees, with the texts by number; names->texts holds the
 * bytes. */
static int read_texts(const struct hl_container *container, struct hl_cached_names *names,
		      const char ***ret_texts, size_t *ret_count)
{
	size_t size, count = 1;
	void *bytes;

	int r = hl_container_load(container, SECTION_TEXTS, SECTION_BYTES_MAX, &bytes, &size, NULL);
	if (r < 0)
		return r;
	names->texts = bytes;
	if (size && names->texts[size - 1])
		return -EBADMSG;
	for (size_t at = 0; at < size; at += strlen(names->texts + at) + 1, count++)
		if (!names->texts[at])
			return -EBADMSG;
	const char **texts = calloc(count, sizeof(*texts));
	if (!texts)
		return -ENOMEM;
	texts[0] = "";
	count = 1;
	for (size_t at = 0; at < size; at += strlen(names->texts + at) + 1)
		texts[count++] = names->texts + at;
	*ret_texts = texts;
	*ret_count = count;
	return 0;
}

static int read_frames(const struct hl_container *container, struct hl_cached_names *names)
{
	HL_FREED struct stored_frame *stored = NULL;
	HL_FREED const char **texts = NULL;
	size_t count = 0, text_count = 0;

	int r = read_texts(container, names, &texts, &text_count);
	if (r == 0)
		r = hl_columns_read(&frame_columns, container, SECTION_FRAME, ROWS_MAX, 0, &stored,
				    &count, NULL);
	if (r < 0)
		return r;
	names->frames = calloc(count + 1, sizeof(*names->frames));
	if (!names->frames)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct stored_frame *frame = &stored[i];
		if (!frame->function || frame->function >= text_count ||
		    frame->function_file >= text_count || frame->file >= text_count ||
		    frame->inlined > 1)
			return -EBADMSG;
		names->frames[i] = (struct hl_symbols_frame){
			.function = texts[frame->function],
			.function_file = texts[frame->function_file],
			.function_line = frame->function_line,
			.file = texts[frame->file],
			.line = frame->line,
			.inlined = frame->inlined,
		};
	}
	names->frame_count = count;
	return 0;
}

/* Gives each address the next frames: inlined ones, then one that is not. */
static int assign_frames(struct hl_cached_names *names)
{
	size_t used = 0;

	for (size_t i = 0; i < names->count; i++) {
		struct hl_cached_address *address = &names->addresses[i];
		if ((i && address->address <= address[-1].address) || address->by_dwarf > 1 ||
		    !address->count || address->count > names->frame_count - used)
			return -EBADMSG;
		address->first = (uint32_t)used;
		used += address->count;
		for (uint32_t k = 1; k <= address->count; k++)
			if (names->frames[used - k].inlined != (k > 1))
				return -EBADMSG;
	}
	return used == names->frame_count ? 0 : -EBADMSG;
}

int hl_symbols_cache_file_read(int fd, const char *name, struct hl_cached_names *names)
{
	struct hl_container container;

	int r = hl_container_open(&container, fd, name, KIND_SYMBOLS, NULL);
	if (r == 0)
		r = read_meta(&container, names);
	if (r == 0)
		r = read_frames(&container, names);
	if (r == 0)
		r = hl_columns_read(&address_columns, &container, SECTION_ADDRS, ROWS_MAX, 0,
				    &names->addresses, &names->count, NULL);
	if (r == 0)
		r = assign_frames(names);
	if (r < 0)
		hl_symbols_cache_file_release(names);
	return r;
}

#define SUFFIX ".hls"

/* The most that all files may take. */
#define STORE_BYTES ((uint64_t)256 << 20)

/* Room for the file name of any build id. */
#define NAME_MAX_BYTES 72

/* ---- the directory ---- */

static bool is_ours(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_uid == geteuid();
}

/* Opens ${path}, then ${names} below one another, up to NULL. A new directory is made only where the
 * old ones are ours. */
static int open_path(const char *path, const char *const *names, bool create)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = open(path, flags);

	if (fd < 0)
		return -errno;
	for (; *names && fd >= 0; names++) {
		int below = openat(fd, *names, flags);
		if (below < 0 && errno == ENOENT && create && is_ours(fd) &&
		    mkdirat(fd, *names, 0700) == 0)
			below = openat(fd, *names, flags);
		if (below < 0)
			below = -errno;
		close(fd);
		fd = below;
	}
	return fd;
}

/* Opens the directory below ${cache}, which may have to be made, too. */
static int open_in_cache(const char *cache, bool create)
{
	char *parent = strdup(cache);
	size_t length = parent ? strlen(parent) : 0;

	if (!parent)
		return -ENOMEM;
	while (length > 1 && parent[length - 1] == '/')
		parent[--length] = '\0';
	char *name = strrchr(parent, '/') + 1;
	const char *const names[] = {name[0] ? name : ".", "heapline", "symbols", NULL};
	name[-1] = '\0';
	int fd = open_path(parent[0] ? parent : "/", names, create);
	free(parent);
	return fd;
}

/*
 * Opens the directory, which the caller closes; ${create}: makes it if it is missing. A directory
 * of another user is not used: a user could not remove what root keeps in their home, and root
 * should not trust what a user keeps. A negative errno when there is none.
 */
static int symbols_store_open(bool create)
{
	static const char *const in_home[] = {".cache", "heapline", "symbols", NULL};
	const char *word = getenv(HL_SYMBOLS_STORE_SWITCH);
	const char *cache = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	int fd = -ENOENT;

	if (word && !strcmp(word, "off"))
		return -ENOENT;
	/* As the XDG Base Directory Specification has it: a relative path counts for nothing. */
	if (cache && cache[0] == '/')
		fd = open_in_cache(cache, create);
	else if (home && home[0] == '/')
		fd = open_path(home, in_home, create);
	if (fd >= 0 && !is_ours(fd)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* The name of a module's file in the directory; false for a build id of unusual length. */
static bool symbols_store_name(const uint8_t *build_id, size_t build_id_bytes,
			       char ret_name[NAME_MAX_BYTES])
{
	if (build_id_bytes < HL_BUILD_ID_UNIQUE || build_id_bytes > HL_BUILD_ID_MAX)
		return false;
	hl_hex_format(ret_name, build_id, build_id_bytes);
	memcpy(ret_name + 2 * build_id_bytes, SUFFIX, sizeof(SUFFIX));
	return true;
}

/* ---- its bounds ---- */

struct kept_file {
	char name[NAME_MAX_BYTES + sizeof("..tmp")];
	uint64_t bytes;
	struct timespec written;
};

static int oldest_first(const void *left, const void *right)
{
	const struct timespec *a = &((const struct kept_file *)left)->written;
	const struct timespec *b = &((const struct kept_file *)right)->written;

	if (a->tv_sec != b->tv_sec)
		return a->tv_sec < b->tv_sec ? -1 : 1;
	return (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

void hl_symbols_store_trim(int directory_fd, uint64_t bytes_max)
{
	HL_FREED struct kept_file *files = NULL;
	uint64_t bytes = 0;
	size_t count = 0, capacity = 0;
	int r = 0;
	HL_CLOSED int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	if (!directory)
		return;
	hl_cleanup_take_fd(&fd);
	/* All files, leftovers of interrupted writers too. */
	for (const struct dirent *entry; r == 0 && (entry = readdir(directory));) {
		struct kept_file file;
		struct stat status;
		if (strlen(entry->d_name) >= sizeof(file.name) ||
		    fstatat(directory_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(status.st_mode))
			continue;
		strcpy(file.name, entry->d_name);
		file.bytes = (uint64_t)status.st_size;
		file.written = status.st_mtim;
		r = HL_ARRAY_APPEND(files, count, capacity, file);
		bytes += file.bytes;
	}
	closedir(directory);
	if (r < 0 || bytes <= bytes_max)
		return;
	qsort(files, count, sizeof(*files), oldest_first);
	for (size_t i = 0; i < count && bytes > bytes_max; i++) {
		unlinkat(directory_fd, files[i].name, 0);
		bytes -= files[i].bytes;
	}
}

/* ---- the cache ---- */

struct hl_symbols_cache {
	char *path;
	uint8_t *build_id;
	size_t build_id_bytes;
	char name[NAME_MAX_BYTES];
	struct hl_cached_names known;
	bool is_current; /* nothing has changed that could make the known names better */

	json_t *circumstances; /* of the new names; NULL: they would be worse than the known ones */
	enum hl_symbols_source source;
	char *reason;
	struct hl_cached_address *added; /* `first` counts in added_frames */
	struct hl_symbols_frame *added_frames;
	size_t added_count, added_capacity, frame_count, frame_capacity;
};

/* ---- life ---- */

int hl_symbols_cache_open(const char *path, const uint8_t *build_id, size_t build_id_bytes,
			  struct hl_symbols_cache **ret_cache)
{
	char name[NAME_MAX_BYTES];
	int r = 0;

	*ret_cache = NULL;
	if (path[0] != '/' || !symbols_store_name(build_id, build_id_bytes, name))
		return 0;
	HL_CLOSED int directory_fd = symbols_store_open(false);
	if (directory_fd < 0 && directory_fd != -ENOENT)
		return 0;
	struct hl_symbols_cache *cache = calloc(1, sizeof(*cache));
	if (!cache)
		return -ENOMEM;
	memcpy(cache->name, name, sizeof(name));
	cache->path = strdup(path);
	cache->build_id = malloc(build_id_bytes);
	if (cache->build_id)
		memcpy(cache->build_id, build_id, build_id_bytes);
	cache->build_id_bytes = build_id_bytes;
	HL_CLOSED int fd = directory_fd < 0
				   ? -1
				   : openat(directory_fd, name,
					    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (!cache->path || !cache->build_id)
		r = -ENOMEM;
	else if (fd >= 0)
		r = hl_symbols_cache_file_read(fd, name, &cache->known);
	if (r == -ENOMEM) {
		hl_symbols_cache_free(cache);
		return r;
	}
	cache->is_current = cache->known.circumstances &&
			    hl_symbols_circumstances_hold(cache->known.circumstances, path);
	*ret_cache = cache;
	return 0;
}

/* ---- known names ---- */

bool hl_symbols_cache_has_names(const struct hl_symbols_cache *cache)
{
	return cache->known.count > 0;
}

enum hl_symbols_source hl_symbols_cache_source(const struct hl_symbols_cache *cache)
{
	return cache->known.source;
}

const char *hl_symbols_cache_reason(const struct hl_symbols_cache *cache)
{
	return cache->known.reason;
}

static bool is_usable(const struct hl_symbols_cache *cache, const struct hl_cached_address *known)
{
	return cache->is_current || known->by_dwarf;
}

bool hl_symbols_cache_find(const struct hl_symbols_cache *cache, uint64_t address,
			   const struct hl_symbols_frame **ret_frames, size_t *ret_count)
{
	size_t at =
		HL_LOWER_BOUND(i, cache->known.count, cache->known.addresses[i].address < address);

	const struct hl_cached_address *known = &cache->known.addresses[at];
	if (at == cache->known.count || known->address != address || !is_usable(cache, known))
		return false;
	*ret_frames = cache->known.frames + known->first;
	*ret_count = known->count;
	return true;
}

/* ---- new names ---- */

int hl_symbols_cache_meet(struct hl_symbols_cache *cache, const struct hl_symbols_file *file)
{
	enum hl_symbols_source source = hl_symbols_file_source(file);

	/* Circumstances do not name .dwo files, which may be put back at any time. */
	if (!hl_symbols_file_is_there(file) || source == HL_SYMBOLS_NONE ||
	    hl_symbols_file_misses_units(file) ||
	    (hl_symbols_cache_has_names(cache) && source < cache->known.source)) {
		cache->is_current = true;
		return 0;
	}
	if (source > cache->known.source)
		cache->is_current = false;
	cache->source = source;
	cache->reason = strdup(hl_symbols_file_reason(file));
	cache->circumstances =
		hl_symbols_circumstances_new(cache->path, cache->build_id, cache->build_id_bytes,
					     hl_symbols_file_debug_link(file));
	return cache->reason && cache->circumstances ? 0 : -ENOMEM;
}

int hl_symbols_cache_add(struct hl_symbols_cache *cache, uint64_t address,
			 const struct hl_symbols_frame *frames, size_t count, bool by_dwarf)
{
	if (!cache->circumstances)
		return 0;
	if (HL_ARRAY_RESERVE(cache->added, cache->added_capacity, cache->added_count + 1) < 0 ||
	    HL_ARRAY_RESERVE(cache->added_frames, cache->frame_capacity,
			     cache->frame_count + count) < 0)
		return -ENOMEM;
	memcpy(cache->added_frames + cache->frame_count, frames, count * sizeof(*frames));
	cache->added[cache->added_count++] = (struct hl_cached_address){
		address, (uint32_t)cache->frame_count, (uint32_t)count, by_dwarf};
	cache->frame_count += count;
	return 0;
}

/* ---- all of it, kept ---- */

static int by_address(const void *left, const void *right)
{
	const struct hl_cached_address *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

static void append_names(struct hl_cached_names *names, const struct hl_cached_address *from,
			 const struct hl_symbols_frame *frames)
{
	struct hl_cached_address *address = &names->addresses[names->count++];

	*address = *from;
	address->first = (uint32_t)names->frame_count;
	memcpy(names->frames + names->frame_count, frames + from->first,
	       from->count * sizeof(*frames));
	names->frame_count += from->count;
}

/* Writes the known names that may still be used, and the new ones, by address. */
static void save(const struct hl_symbols_cache *cache)
{
	struct hl_cached_names names = {
		.circumstances = cache->circumstances,
		.source = cache->source,
		.reason = cache->reason,
	};
	HL_FREED struct hl_cached_address *addresses =
		calloc(cache->known.count + cache->added_count, sizeof(*addresses));
	HL_FREED struct hl_symbols_frame *frames =
		calloc(cache->known.frame_count + cache->frame_count, sizeof(*frames));
	HL_CLOSED int directory_fd = addresses && frames ? symbols_store_open(true) : -1;
	size_t kept = 0;

	if (directory_fd < 0)
		return;
	names.addresses = addresses;
	names.frames = frames;
	for (size_t i = 0; i < cache->known.count; i++)
		if (is_usable(cache, &cache->known.addresses[i]))
			append_names(&names, &cache->known.addresses[i], cache->known.frames);
	for (size_t i = 0; i < cache->added_count; i++)
		append_names(&names, &cache->added[i], cache->added_frames);
	qsort(addresses, names.count, sizeof(*addresses), by_address);
	/* Drops duplicates: an address may have been asked for twice. */
	for (size_t i = 0; i < names.count; i++)
		if (!kept || addresses[kept - 1].address != addresses[i].address)
			addresses[kept++] = addresses[i];
	names.count = kept;
	if (symbols_cache_file_write(directory_fd, cache->name, &names) == 0)
		hl_symbols_store_trim(directory_fd, STORE_BYTES);
}

void hl_symbols_cache_free(struct hl_symbols_cache *cache)
{
	if (!cache)
		return;
	if (cache->added_count && cache->circumstances)
		save(cache);
	hl_symbols_cache_file_release(&cache->known);
	json_decref(cache->circumstances);
	free(cache->reason);
	free(cache->added);
	free(cache->added_frames);
	free(cache->path);
	free(cache->build_id);
	free(cache);
}
