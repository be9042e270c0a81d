/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads what runtimes write of the code that they make; see code_names.h. */
#include "process/code_names.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/frame_key.h"
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)128 << 20)
#define NAME_BYTES_MAX 1023u /* longer names are cut */

/* Code is read newest first, so that an address that has a name keeps it. */
struct naming {
	struct hl_recording_code *places;
	size_t count;
	uint32_t
		*next; /* by place: itself if it has no name, else one nearer to the next without */
};

static void release_naming(struct naming *naming)
{
	free(naming->next);
}

static int init_naming(struct naming *naming, struct hl_recording_code *places, size_t count)
{
	uint32_t *next = calloc(count + 1, sizeof(*next));

	if (!next)
		return -ENOMEM;
	for (size_t i = 0; i <= count; i++)
		next[i] = (uint32_t)(i < count && places[i].name ? i + 1 : i);
	*naming = (struct naming){places, count, next};
	return 0;
}

static size_t next_unnamed(uint32_t *next, size_t at)
{
	while (next[at] != at) {
		next[at] = next[next[at]];
		at = next[at];
	}
	return at;
}

static int name_code(struct naming *naming, uint64_t start, uint64_t bytes, const char *name,
		     size_t name_bytes)
{
	struct hl_recording_code *places = naming->places;
	size_t low = 0, high = naming->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (places[middle].address < start)
			low = middle + 1;
		else
			high = middle;
	}
	for (size_t i; (i = next_unnamed(naming->next, low)) < naming->count &&
		       places[i].address - start < bytes;) {
		places[i].name =
			strndup(name, name_bytes < NAME_BYTES_MAX ? name_bytes : NAME_BYTES_MAX);
		if (!places[i].name)
			return -ENOMEM;
		naming->next[i] = (uint32_t)i + 1;
	}
	return 0;
}

/* ---- perf-PID.map ---- */

/* A number before a space, which it passes over. */
static bool parse_number(const char **at, const char *end, uint64_t *ret_number)
{
	const char *text = *at;
	uint64_t number = 0;

	if (end - text > 2 && text[0] == '0' && text[1] == 'x')
		text += 2;
	const char *first = text;
	for (; text < end && *text != ' '; text++) {
		unsigned char c = (unsigned char)*text;
		unsigned digit = c >= '0' && c <= '9'	? c - '0'
				 : c >= 'a' && c <= 'f' ? c - 'a' + 10
				 : c >= 'A' && c <= 'F' ? c - 'A' + 10
							: 16;
		if (digit == 16 || number >> 60)
			return false;
		number = number << 4 | digit;
	}
	if (text == first || text == end)
		return false;
	*at = text + 1;
	*ret_number = number;
	return true;
}

int hl_code_names_map(const char *text, size_t length, struct hl_recording_code *places,
		      size_t count)
{
	HL_CLEANUP(release_naming) struct naming naming = {0};
	int r = init_naming(&naming, places, count);

	for (const char *end = text + length; r == 0 && end > text;) {
		const char *before = memrchr(text, '\n', (size_t)(end - text));
		const char *at = before ? before + 1 : text;
		uint64_t start, bytes;
		if (parse_number(&at, end, &start) && parse_number(&at, end, &bytes) && at < end)
			r = name_code(&naming, start, bytes, at, (size_t)(end - at));
		end = before ? before : text;
	}
	return r;
}

/* ---- jit-PID.dump: tools/perf/Documentation/jitdump-specification.txt of Linux ---- */

#define DUMP_MAGIC		0x4a695444u
#define DUMP_ARCHITECTURES_TIME 1u /* flag: timestamps are not CLOCK_MONOTONIC */

struct dump_header {
	uint32_t magic, version, header_bytes, machine, reserved, pid;
	uint64_t timestamp, flags;
};

enum { CODE_LOAD, CODE_MOVE, CODE_DEBUG, CODE_CLOSE };

struct dump_record {
	uint32_t kind, bytes; /* with this header */
	uint64_t timestamp;
};

struct dump_load {
	struct dump_record record;
	uint32_t pid, tid;
	uint64_t vma, address, code_bytes, index; /* then the name, and the code */
};

struct dump_move {
	struct dump_record record;
	uint32_t pid, tid;
	uint64_t vma, old_address, address, code_bytes, index;
};

/* A piece of code, and from when on it lay there. */
struct code {
	uint64_t timestamp, start, bytes, index;
	uint32_t order; /* in the file */
	uint32_t name_bytes;
	const char *name; /* in the dump; NULL: of the same index and before this */
};

struct dump {
	struct code *codes;
	size_t count, capacity;
};

static void release_dump(struct dump *dump)
{
	free(dump->codes);
}

static int add_load(struct dump *dump, const uint8_t *bytes, size_t size)
{
	struct dump_load load;

	if (size < sizeof(load))
		return 0;
	memcpy(&load, bytes, sizeof(load));
	const char *name = (const char *)bytes + sizeof(load);
	return HL_ARRAY_APPEND(dump->codes, dump->count, dump->capacity,
			       (struct code){
				       .timestamp = load.record.timestamp,
				       .start = load.address,
				       .bytes = load.code_bytes,
				       .index = load.index,
				       .order = (uint32_t)dump->count,
				       .name = name,
				       .name_bytes = (uint32_t)strnlen(name, size - sizeof(load)),
			       });
}

static int add_move(struct dump *dump, const uint8_t *bytes, size_t size)
{
	struct dump_move move;

	if (size < sizeof(move))
		return 0;
	memcpy(&move, bytes, sizeof(move));
	return HL_ARRAY_APPEND(dump->codes, dump->count, dump->capacity,
			       (struct code){
				       .timestamp = move.record.timestamp,
				       .start = move.address,
				       .bytes = move.code_bytes,
				       .index = move.index,
				       .order = (uint32_t)dump->count,
			       });
}

static int read_records(struct dump *dump, const uint8_t *bytes, size_t size)
{
	struct dump_record record;
	int r = 0;

	while (r == 0 && size >= sizeof(record)) {
		memcpy(&record, bytes, sizeof(record));
		if (record.bytes < sizeof(record) || record.bytes > size ||
		    record.kind == CODE_CLOSE)
			break;
		if (record.kind == CODE_LOAD)
			r = add_load(dump, bytes, record.bytes);
		else if (record.kind == CODE_MOVE)
			r = add_move(dump, bytes, record.bytes);
		bytes += record.bytes;
		size -= record.bytes;
	}
	return r;
}

/* Threads write in turns, but take the time before. */
static int newest_first(const void *left, const void *right)
{
	const struct code *a = left, *b = right;

	if (a->timestamp != b->timestamp)
		return a->timestamp < b->timestamp ? 1 : -1;
	return (a->order < b->order) - (a->order > b->order);
}

static int by_index(const void *left, const void *right)
{
	const struct code *a = left, *b = right;

	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	return newest_first(b, a);
}

static void name_moved(struct dump *dump)
{
	qsort(dump->codes, dump->count, sizeof(*dump->codes), by_index);
	for (size_t i = 1; i < dump->count; i++) {
		struct code *code = &dump->codes[i];
		if (code->name || code->index != code[-1].index)
			continue;
		code->name = code[-1].name;
		code->name_bytes = code[-1].name_bytes;
	}
}

int hl_code_names_dump(const uint8_t *bytes, size_t size, uint64_t before_ns,
		       struct hl_recording_code *places, size_t count)
{
	HL_CLEANUP(release_naming) struct naming naming = {0};
	HL_CLEANUP(release_dump) struct dump dump = {0};
	struct dump_header header;

	if (size < sizeof(header))
		return 0;
	memcpy(&header, bytes, sizeof(header));
	if (header.magic != DUMP_MAGIC || header.header_bytes < sizeof(header) ||
	    header.header_bytes > size)
		return 0;
	if (header.flags & DUMP_ARCHITECTURES_TIME)
		before_ns = UINT64_MAX;
	int r = read_records(&dump, bytes + header.header_bytes, size - header.header_bytes);
	if (r == 0)
		r = init_naming(&naming, places, count);
	if (r < 0 || !dump.count)
		return r;
	name_moved(&dump);
	qsort(dump.codes, dump.count, sizeof(*dump.codes), newest_first);
	for (size_t i = 0; r == 0 && i < dump.count; i++) {
		const struct code *code = &dump.codes[i];
		if (code->name && code->timestamp <= before_ns)
			r = name_code(&naming, code->start, code->bytes, code->name,
				      code->name_bytes);
	}
	return r;
}

/* ---- files ---- */

static bool is_trusted(const struct hl_code_files *files, const struct stat *status)
{
	return S_ISREG(status->st_mode) && (!status->st_uid || status->st_uid == files->uid);
}

static bool is_old(const struct hl_code_files *files, const struct stat *status)
{
	/* The clock of files is some ms behind. */
	return status->st_mtim.tv_sec + 1 < (int64_t)(files->start_realtime_ns / 1000000000);
}

/* The end of the file where it is too long and ${last}, else its beginning. Nothing, which is no
 * error, where it is not there or too old; nor where it cannot be opened, is not a file or somebody else's, which ${ret_refused} says. */
static int read_file(int directory_fd, const char *name, const struct hl_code_files *files,
		     bool last, char **ret_bytes, size_t *ret_size, char *ret_refused)
{
	struct stat status;
	HL_CLOSED int fd =
		openat(directory_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	*ret_bytes = NULL;
	*ret_size = 0;
	if (fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || is_old(files, &status))
		return 0;
	if (fd < 0 || fstat(fd, &status) < 0 || !is_trusted(files, &status) ||
	    is_old(files, &status)) {
		snprintf(ret_refused, HL_CODE_FILE_NAME_MAX, "%s", name);
		return 0;
	}
	size_t size = (size_t)status.st_size, got = 0;
	off_t from = 0;
	if (size > FILE_BYTES_MAX) {
		from = last ? (off_t)(size - FILE_BYTES_MAX) : 0;
		size = FILE_BYTES_MAX;
	}
	HL_FREED char *bytes = malloc(size + 1);
	if (!bytes)
		return -ENOMEM;
	for (ssize_t n;
	     got < size && (n = pread(fd, bytes + got, size - got, from + (off_t)got)) > 0;)
		got += (size_t)n;
	*ret_size = got;
	*ret_bytes = HL_TAKE(bytes);
	return 0;
}

static int read_map(int directory_fd, const struct hl_code_files *files,
		    struct hl_recording_code *places, size_t count, char *ret_refused)
{
	HL_FREED char *text = NULL;
	char name[HL_CODE_FILE_NAME_MAX];
	size_t size;

	snprintf(name, sizeof(name), "perf-%u.map", files->pid);
	int r = read_file(directory_fd, name, files, true, &text, &size, ret_refused);
	return text ? hl_code_names_map(text, size, places, count) : r;
}

static int read_dump(int directory_fd, const struct hl_code_files *files, uint64_t before_ns,
		     struct hl_recording_code *places, size_t count, char *ret_refused)
{
	HL_FREED char *bytes = NULL;
	char name[HL_CODE_FILE_NAME_MAX];
	size_t size;

	snprintf(name, sizeof(name), "jit-%u.dump", files->pid);
	int r = read_file(directory_fd, name, files, false, &bytes, &size, ret_refused);
	return bytes ? hl_code_names_dump((const uint8_t *)bytes, size, before_ns, places, count)
		     : r;
}

static int read_files(const struct hl_code_files *files, uint64_t before_ns,
		      struct hl_recording_code *places, size_t count, char *ret_refused)
{
	int r = 0;

	/* Maps lie in /tmp alone. */
	for (size_t i = 0; r == 0 && i < 2; i++)
		if (files->directory_fds[i] >= 0)
			r = read_dump(files->directory_fds[i], files, before_ns, places, count,
				      ret_refused);
	return r == 0 && files->directory_fds[0] >= 0
		       ? read_map(files->directory_fds[0], files, places, count, ret_refused)
		       : r;
}

static int by_address(const void *left, const void *right)
{
	const struct hl_recording_code *a = left, *b = right;

	return (a->address > b->address) - (a->address < b->address);
}

/* The addresses of frames outside every module, each once. */
static int find_code(const struct hl_recording_process *process,
		     struct hl_recording_code **ret_places, size_t *ret_count)
{
	HL_FREED struct hl_recording_code *places = NULL;
	size_t count = 0, capacity = 0, kept = 0;

	for (uint32_t i = 0; i < process->node_count; i++) {
		const struct hl_recording_code place = {.address = process->nodes[i].frame};
		if (place.address && place.address >> HL_MODULE_SHIFT == HL_MODULE_NONE &&
		    HL_ARRAY_APPEND(places, count, capacity, place) < 0)
			return -ENOMEM;
	}
	if (count)
		qsort(places, count, sizeof(*places), by_address);
	for (size_t i = 0; i < count; i++)
		if (!kept || places[kept - 1].address != places[i].address)
			places[kept++] = places[i];
	*ret_places = HL_TAKE(places);
	*ret_count = kept;
	return 0;
}

/* The process of ${files}, if it still runs. A descriptor, or -1. */
static int open_process(const struct hl_code_files *files)
{
	struct hl_process_facts facts;
	struct hl_error err = {0};
	HL_CLOSED int pidfd = (int)syscall(SYS_pidfd_open, files->asked_pid, 0);

	if (pidfd < 0 || hl_process_facts_read(files->asked_pid, &facts, &err) < 0)
		return -1;
	/* Both are told by the clock of the moment, which is set now and then. */
	int64_t apart_ns = (int64_t)(facts.start_realtime_ns - files->start_realtime_ns);
	int found = (uint64_t)llabs(apart_ns) < HL_NS_PER_SECOND ? pidfd : -1;
	hl_process_facts_release(&facts);
	pidfd = found < 0 ? pidfd : -1;
	return found;
}

/* Has a runtime among the modules write the map. 0; -ENOTSUP: nothing is written; another negative errno: in part, maybe. */
static int ask_for_map(const struct hl_code_files *files,
		       const struct hl_recording_process *process)
{
	HL_CLOSED int pidfd = -1;

	for (uint32_t i = 0; i < process->module_count; i++) {
		const struct hl_code_runtime *runtime =
			hl_code_runtime_of(process->modules[i].path);
		struct hl_error err = {0};
		if (!runtime || !runtime->write_names)
			continue;
		pidfd = open_process(files);
		const struct hl_code_writer writer = {.pid = files->asked_pid,
						      .pidfd = pidfd,
						      .directory_fd = files->directory_fds[0],
						      .pid_inside = files->pid,
						      .uid = files->uid};
		return pidfd < 0 ? -ENOTSUP : runtime->write_names(&writer, &err);
	}
	return -ENOTSUP;
}

/* Names what lacks a name by a map that the runtime writes now, through whatever has the map's name. */
static int name_by_asking(const struct hl_code_files *files,
			  const struct hl_recording_process *process,
			  struct hl_recording_code *places, size_t count)
{
	char name[HL_CODE_FILE_NAME_MAX], refused[HL_CODE_FILE_NAME_MAX];
	int directory_fd = files->directory_fds[0];
	struct stat status;

	snprintf(name, sizeof(name), "perf-%u.map", files->pid);
	if (!files->asked_pid || directory_fd < 0)
		return 0;
	bool is_new = fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0;
	if (is_new ? errno != ENOENT : !S_ISREG(status.st_mode) || status.st_uid != files->uid)
		return 0;
	int asked = ask_for_map(files, process);
	int r = asked < 0 ? 0 : read_map(directory_fd, files, places, count, refused);
	if (is_new && asked != -ENOTSUP)
		unlinkat(directory_fd, name, 0);
	return r;
}

static size_t count_nameless(const struct hl_recording_code *places, size_t count)
{
	size_t nameless = 0;

	for (size_t i = 0; i < count; i++)
		nameless += !places[i].name;
	return nameless;
}

int hl_code_files_name(const struct hl_code_files *files, uint64_t before_ns,
		       struct hl_recording_process *process,
		       char ret_refused[HL_CODE_FILE_NAME_MAX], size_t *ret_nameless)
{
	struct hl_recording_code *places = NULL;
	size_t count = 0;

	ret_refused[0] = '\0';
	int r = find_code(process, &places, &count);
	if (r == 0 && count)
		r = read_files(files, before_ns, places, count, ret_refused);
	if (r == 0 && count_nameless(places, count))
		r = name_by_asking(files, process, places, count);
	for (size_t i = 0; i < count; i++)
		if (places[i].name)
			places[process->code_count++] = places[i];
	process->code = places;
	*ret_nameless = count - process->code_count;
	return r;
}

/* The last number of a line of /proc/PID/status: of Uid, the one of files that it makes; of NSpid,
 * that in the innermost namespace. */
static bool last_number(const char *status, const char *key, uint32_t *ret_number)
{
	const char *line = strstr(status, key);

	if (!line)
		return false;
	line += strlen(key);
	const char *end = line + strcspn(line, "\n"), *at = end;
	while (at > line && at[-1] != '\t' && at[-1] != ' ')
		at--;
	*ret_number = (uint32_t)strtoul(at, NULL, 10);
	return at < end;
}

void hl_code_files_refresh(struct hl_code_files *files, pid_t pid)
{
	const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	struct hl_code_files found = HL_CODE_FILES_NONE;
	uint64_t start_ticks;
	char path[32], status[4096];

	snprintf(path, sizeof(path), "/proc/%d/root", hl_proc_thread(pid));
	HL_CLOSED int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || hl_proc_read_status(pid, status, sizeof(status)) < 0 ||
	    !last_number(status, "\nUid:", &found.uid) ||
	    !last_number(status, "\nNStgid:", &found.pid))
		return;
	snprintf(path, sizeof(path), "/proc/%d/cwd", hl_proc_thread(pid));
	found.directory_fds[0] = (int)syscall(SYS_openat2, root, "tmp", &how, sizeof(how));
	found.directory_fds[1] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < 2; i++)
		if (found.directory_fds[i] < 0) { /* it is ending */
			found.directory_fds[i] = files->directory_fds[i];
			files->directory_fds[i] = -1;
		}
	found.start_realtime_ns = files->start_realtime_ns;
	found.asked_pid = files->asked_pid;
	if (!found.start_realtime_ns &&
	    hl_process_stat_field(pid, HL_STAT_START_TICKS, &start_ticks) == 0)
		found.start_realtime_ns = hl_process_start_ns(start_ticks);
	hl_code_files_release(files);
	*files = found;
}

void hl_code_files_release(struct hl_code_files *files)
{
	for (size_t i = 0; i < 2; i++)
		if (files->directory_fds[i] >= 0)
			close(files->directory_fds[i]);
	*files = HL_CODE_FILES_NONE;
}
