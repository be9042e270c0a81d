/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads recordings and trusts nothing in them; see recording.h. */
#include "recording/recording.h"

#include "base/frame_key.h"
#include "recording/recording_columns.h"
#include "recording/recording_files.h"
#include "recording/recording_json.h"
#include "recording/recording_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int out_of_memory(const char *path, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
}

static int damage(const char *path, const char *reason, struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG, "cannot read '%s': %s", path, reason);
}

/* ---- one file ---- */

int hl_recording_read_meta(int fd, const char *path, struct hl_recording *recording,
			   struct hl_error *err)
{
	struct hl_container container;
	int r = hl_container_open(&container, fd, path, HL_KIND_RECORDING, err);
	void *text;
	size_t size;
	if (r == 0)
		r = hl_container_load(&container, HL_SECTION_META, HL_META_BYTES_MAX, &text, &size,
				      err);
	if (r < 0)
		return r;
	r = hl_recording_from_json(text, size, path, recording, err);
	free(text);
	recording->format_version = container.header.version;
	return r;
}

static int load_columns(const struct hl_container *container, uint32_t type,
			const struct hl_columns *columns, uint32_t rows, void **ret_structs,
			struct hl_error *err)
{
	void *bytes;
	size_t size, expected = rows * columns->row_bytes;
	int r = hl_container_load(container, type, expected, &bytes, &size, err);
	if (r < 0)
		return r;
	void *structs = size == expected ? calloc(rows ? rows : 1, columns->struct_bytes) : NULL;
	if (size != expected)
		r = damage(container->path, "a section is shorter than its rows", err);
	else if (!structs)
		r = out_of_memory(container->path, err);
	if (r == 0) {
		hl_columns_join(columns, bytes, rows, structs);
		*ret_structs = structs;
	}
	free(bytes);
	return r;
}

static int check_nodes(struct hl_recording_process *process, const char *path, struct hl_error *err)
{
	uint32_t count = process->node_count;
	uint32_t *marks = malloc((count + 1) * sizeof(*marks));
	if (!marks)
		return out_of_memory(path, err);
	uint32_t changed = hl_tree_repair(process->nodes, count, marks);
	free(marks);
	if (changed)
		return damage(path, "its stack nodes are not a tree", err);
	for (uint32_t i = 0; i < count; i++)
		if (!hl_frame_key_is_valid(process->nodes[i].frame, process->module_count))
			return damage(path, "a stack node names a module that is not there", err);
	return 0;
}

static int check_values(const struct hl_recording_process *process, const char *path,
			struct hl_error *err)
{
	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		if (value->node == 0 || value->node > process->node_count)
			return damage(path, "a value names a stack node that is not there", err);
		if (value->thread >= process->thread_count)
			return damage(path, "a value names a thread that is not there", err);
	}
	return 0;
}

int hl_recording_read_process(int fd, const char *path, struct hl_recording_process *process,
			      struct hl_error *err)
{
	struct hl_container container;
	int r = hl_container_open(&container, fd, path, HL_KIND_PROCESS, err);
	void *text;
	size_t size;
	if (r == 0)
		r = hl_container_load(&container, HL_SECTION_META, HL_META_BYTES_MAX, &text, &size,
				      err);
	if (r < 0)
		return r;
	r = hl_recording_process_from_json(text, size, path, process, err);
	free(text);
	if (r == 0)
		r = load_columns(&container, HL_SECTION_NODES, &hl_node_columns,
				 process->node_count, (void **)&process->nodes, err);
	if (r == 0)
		r = load_columns(&container, HL_SECTION_VALUES, &hl_value_columns,
				 process->value_count, (void **)&process->values, err);
	if (r == 0)
		r = check_nodes(process, path, err);
	if (r == 0)
		r = check_values(process, path, err);
	return r;
}

/* ---- the directory ---- */

struct file_name {
	uint32_t sequence, pid;
};

struct file_list {
	struct file_name *names;
	uint32_t count, capacity;
};

/* The numbers of a process file's name; false for another name. */
static bool parse_name(const char *text, struct file_name *ret_name)
{
	struct file_name name;
	char again[64];
	if (sscanf(text, HL_PROCESS_FILE, &name.sequence, &name.pid) != 2)
		return false;
	snprintf(again, sizeof(again), HL_PROCESS_FILE, name.sequence, name.pid);
	*ret_name = name;
	return strcmp(text, again) == 0;
}

static int list_append(struct file_list *list, struct file_name name)
{
	if (list->count == list->capacity) {
		uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
		struct file_name *names = reallocarray(list->names, capacity, sizeof(*list->names));
		if (!names)
			return -ENOMEM;
		list->names = names;
		list->capacity = capacity;
	}
	list->names[list->count++] = name;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	const struct file_name *left = a, *right = b;
	if (left->sequence != right->sequence)
		return left->sequence < right->sequence ? -1 : 1;
	return left->pid < right->pid ? -1 : left->pid > right->pid;
}

static int list_files(DIR *directory, struct file_list *list)
{
	for (const struct dirent *entry; (entry = readdir(directory));) {
		struct file_name name;
		if (!parse_name(entry->d_name, &name))
			continue;
		int r = list_append(list, name);
		if (r < 0)
			return r;
	}
	if (list->count)
		qsort(list->names, list->count, sizeof(*list->names), compare_names);
	return 0;
}

/* Opens DIRECTORY/NAME; O_NONBLOCK so that a FIFO of that name does not stop us. */
static int open_file(int directory_fd, const char *name, const char *path, struct hl_error *err)
{
	int fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return hl_error_set(err, -errno, "cannot read '%s': %s", path, strerror(errno));
	return fd;
}

static int read_process_file(const struct hl_recording *recording, int directory_fd,
			     struct file_name name, struct hl_recording_process *process,
			     struct hl_error *err)
{
	char file[64], path[PATH_MAX];
	snprintf(file, sizeof(file), HL_PROCESS_FILE, name.sequence, name.pid);
	snprintf(path, sizeof(path), "%s/%s", recording->name, file);
	int fd = open_file(directory_fd, file, path, err);
	if (fd < 0)
		return fd;
	int r = hl_recording_read_process(fd, path, process, err);
	close(fd);
	if (r == 0 && (process->sequence != name.sequence || process->pid != name.pid))
		return damage(path, "it is the file of another process", err);
	return r;
}

/* Adds a sentence to those of the recording. */
static int add_warning(struct hl_recording *recording, const char *format, ...)
{
	size_t count = 0;
	char *sentence;
	va_list args;

	while (recording->warnings && recording->warnings[count])
		count++;
	char **warnings = reallocarray(recording->warnings, count + 2, sizeof(*warnings));
	if (!warnings)
		return -ENOMEM;
	recording->warnings = warnings;
	warnings[count] = warnings[count + 1] = NULL;
	va_start(args, format);
	int length = vasprintf(&sentence, format, args);
	va_end(args);
	if (length < 0)
		return -ENOMEM;
	warnings[count] = sentence;
	return 0;
}

/* Leaves out the process that was read last. 0 or -ENOMEM. */
static int leave_out(struct hl_recording *recording, const struct hl_error *why)
{
	struct hl_recording_process *process = &recording->processes[--recording->process_count];

	hl_recording_process_release(process);
	*process = (struct hl_recording_process){0};
	return add_warning(recording, "a process is left out: %s", why->text);
}

static int warn_of_missing(struct hl_recording *recording, uint32_t file_count)
{
	if (!recording->complete || file_count >= recording->ended_processes)
		return 0;
	return add_warning(recording, "the files of %u of %u processes are missing",
			   recording->ended_processes - file_count, recording->ended_processes);
}

/* What is damaged is left out, and said so, unless it is all there is. */
static int read_processes(struct hl_recording *recording, int directory_fd,
			  const struct file_list *list, struct hl_error *err)
{
	recording->processes = calloc(list->count + 1, sizeof(*recording->processes));
	if (!recording->processes)
		return out_of_memory(recording->name, err);
	if (warn_of_missing(recording, list->count) < 0)
		return out_of_memory(recording->name, err);
	for (uint32_t i = 0; i < list->count; i++) {
		struct hl_error why = {0};
		int r = read_process_file(recording, directory_fd, list->names[i],
					  &recording->processes[recording->process_count++], &why);
		if (r == -ENOMEM ||
		    (r < 0 && i + 1 == list->count && recording->process_count == 1))
			return hl_error_set(err, r, "%s", why.text);
		if (r < 0 && leave_out(recording, &why) < 0)
			return out_of_memory(recording->name, err);
	}
	return 0;
}

static int read_meta_file(struct hl_recording *recording, int directory_fd, struct hl_error *err)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/" HL_META_FILE, recording->name);
	if (faccessat(directory_fd, HL_META_FILE, F_OK, 0) < 0 && errno == ENOENT)
		return hl_error_set(err, -ENOENT,
				    "cannot open '%s': it is not a recording (no " HL_META_FILE
				    " in it)",
				    recording->name);
	int fd = open_file(directory_fd, HL_META_FILE, path, err);
	if (fd < 0)
		return fd;
	int r = hl_recording_read_meta(fd, path, recording, err);
	close(fd);
	return r;
}

static int read_directory(struct hl_recording *recording, DIR *directory, struct hl_error *err)
{
	int r = read_meta_file(recording, dirfd(directory), err);
	if (r < 0)
		return r;
	struct file_list list = {0};
	r = list_files(directory, &list);
	if (r < 0)
		r = out_of_memory(recording->name, err);
	else
		r = read_processes(recording, dirfd(directory), &list, err);
	free(list.names);
	return r;
}

static int directory_error(const char *path, int error, struct hl_error *err)
{
	if (error == ENOTDIR)
		return hl_error_set(err, -ENOTDIR,
				    "cannot open '%s': a recording is a directory, this is not",
				    path);
	return hl_error_set(err, -error, "cannot open '%s': %s", path, strerror(error));
}

/* A collector keeps the directory locked until it has finished the recording, or has died. */
static bool has_collector(DIR *directory)
{
	int fd = dirfd(directory);
	bool has = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	if (!has)
		flock(fd, LOCK_UN);
	return has;
}

int hl_recording_open(const char *path, struct hl_recording **ret_recording, struct hl_error *err)
{
	DIR *directory = opendir(path);
	if (!directory)
		return directory_error(path, errno, err);
	int r;
	bool running = has_collector(directory); /* asked before it can have finished */
	struct hl_recording *recording = calloc(1, sizeof(*recording));
	if (recording)
		recording->name = strdup(path);
	if (!recording || !recording->name)
		r = out_of_memory(path, err);
	else
		r = read_directory(recording, directory, err);
	closedir(directory);
	if (r < 0) {
		hl_recording_free(recording);
		return r;
	}
	recording->running = running && !recording->complete;
	*ret_recording = recording;
	return 0;
}
