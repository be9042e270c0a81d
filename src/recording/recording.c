/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes recordings, reads them and trusts nothing in them; see recording.h. */
#include "recording/recording.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/frame_key.h"
#include "recording/recording_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void free_texts(char **texts)
{
	for (char **text = texts; text && *text; text++)
		free(*text);
	free(texts);
}

char **hl_recording_copy_words(char *const *words)
{
	size_t count = 0;

	while (words && words[count])
		count++;
	char **copy = calloc(count + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < count; i++) {
		copy[i] = strdup(words[i]);
		if (!copy[i]) {
			free_texts(copy);
			return NULL;
		}
	}
	return copy;
}

void hl_recording_process_release(struct hl_recording_process *process)
{
	for (uint32_t i = 0; i < process->module_count; i++)
		free(process->modules[i].path);
	free(process->modules);
	free(process->nodes);
	free(process->values);
	free(process->threads);
	for (uint32_t i = 0; i < process->provider_count; i++)
		free(process->providers[i].name);
	for (uint32_t i = 0; i < process->site_name_count; i++)
		free(process->site_names[i]);
	for (uint32_t i = 0; i < process->code_count; i++)
		free(process->code[i].name);
	free(process->code);
	free(process->providers);
	free(process->sites);
	free(process->site_names);
	free(process->resident);
	free(process->executable);
	free(process->successor);
	free(process->name);
	free_texts(process->command);
	*process = (struct hl_recording_process){0};
}

void hl_recording_free(struct hl_recording *recording)
{
	if (!recording)
		return;
	for (uint32_t i = 0; i < recording->process_count; i++)
		hl_recording_process_release(&recording->processes[i]);
	free(recording->processes);
	free(recording->name);
	free(recording->directory);
	free(recording->tool_version);
	free_texts(recording->command);
	free(recording->host);
	free(recording->kernel);
	free(recording->mode);
	free_texts(recording->warnings);
	for (uint32_t i = 0; i < recording->mark_count; i++)
		free(recording->marks[i].name);
	free(recording->marks);
	for (uint32_t i = 0; i < recording->figure_count; i++)
		free(recording->figures[i].name);
	free(recording->figures);
	free(recording);
}

/* ---- writing ---- */

static int add_json(struct hl_container_writer *writer, char *text, struct hl_error *err)
{
	if (!text)
		return hl_error_set(err, -ENOMEM, "cannot write '%s': out of memory", writer->name);
	int r = hl_container_writer_add(writer, HL_SECTION_META, text, strlen(text), false, err);
	free(text);
	return r;
}

int hl_recording_write_meta(int directory_fd, const struct hl_recording *recording,
			    struct hl_error *err)
{
	struct hl_container_writer writer;

	int r = hl_container_writer_init(&writer, directory_fd, HL_META_FILE, HL_KIND_RECORDING, 1,
					 err);
	if (r == 0)
		r = add_json(&writer, hl_recording_json_write(recording), err);
	if (r == 0)
		r = hl_container_writer_finish(&writer, recording->complete, err);
	hl_container_writer_release(&writer);
	return r;
}

/* ${kept}: NULL, or what is kept of the last time. */
static int write_tables(struct hl_container_writer *writer,
			const struct hl_recording_process *process, uint32_t first_node,
			struct hl_recording_kept *kept, struct hl_error *err)
{
	if (!kept) {
		int r = hl_columns_write(&hl_node_columns, writer, HL_SECTION_NODES, process->nodes,
					 process->node_count, err);
		return r < 0 ? r
			     : hl_columns_write(&hl_value_columns, writer, HL_SECTION_VALUES,
						process->values, process->value_count, err);
	}
	int r = hl_kept_columns_write(&kept->nodes, &hl_node_columns, writer, HL_SECTION_NODES,
				      process->nodes, first_node, process->node_count, err);
	return r < 0 ? r
		     : hl_kept_columns_write(&kept->values, &hl_value_columns, writer,
					     HL_SECTION_VALUES, process->values, 0,
					     process->value_count, err);
}

static int write_process(int directory_fd, const struct hl_recording_process *process,
			 uint32_t first_node, struct hl_recording_kept *kept, struct hl_error *err)
{
	char name[64];

	snprintf(name, sizeof(name), HL_PROCESS_FILE, process->sequence, process->pid);
	struct hl_container_writer writer;
	int r = hl_container_writer_init(&writer, directory_fd, name, HL_KIND_PROCESS,
					 process->knows_resident ? 4 : 3, err);
	if (!process->complete)
		writer.compression_level = HL_COMPRESSION_BRIEF;
	if (r == 0)
		r = add_json(&writer, hl_recording_json_write_process(process), err);
	if (r == 0)
		r = write_tables(&writer, process, first_node, kept, err);
	if (r == 0 && process->knows_resident)
		r = hl_columns_write(&hl_resident_columns, &writer, HL_SECTION_RESIDENT,
				     process->resident, process->resident_count, err);
	if (r == 0)
		r = hl_container_writer_finish(&writer, false, err);
	hl_container_writer_release(&writer);
	return r;
}

int hl_recording_write_process(int directory_fd, const struct hl_recording_process *process,
			       struct hl_error *err)
{
	return write_process(directory_fd, process, 0, NULL, err);
}

int hl_recording_write_process_again(int directory_fd, const struct hl_recording_process *process,
				     uint32_t first_node, struct hl_recording_kept *kept,
				     struct hl_error *err)
{
	int r = write_process(directory_fd, process, first_node, kept, err);

	if (r < 0)
		hl_recording_kept_release(kept);
	return r;
}

void hl_recording_kept_release(struct hl_recording_kept *kept)
{
	hl_kept_columns_release(&kept->nodes);
	hl_kept_columns_release(&kept->values);
}

/* ---- the tree of stack nodes ---- */

/* Walks rootward from ${id} until a node that some walk has seen. When it was this walk, the last
 * step closed a cycle and is cut. */
static uint32_t cut_cycle_above(struct hl_recording_node *nodes, uint32_t *marks, uint32_t id)
{
	uint32_t walk = id;

	while (marks[id - 1] == 0) {
		marks[id - 1] = walk;
		uint32_t parent = nodes[id - 1].parent;
		if (parent == 0)
			return 0;
		if (marks[parent - 1] == walk) {
			nodes[id - 1].parent = 0;
			return 1;
		}
		id = parent;
	}
	return 0;
}

uint32_t hl_recording_repair_tree(struct hl_recording_node *nodes, uint32_t count, uint32_t *marks)
{
	uint32_t changed = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (nodes[i].parent > count) {
			nodes[i].parent = 0;
			changed++;
		}
	}
	memset(marks, 0, count * sizeof(*marks));
	for (uint32_t id = 1; id <= count; id++)
		changed += cut_cycle_above(nodes, marks, id);
	return changed;
}

/* ---- reading one file ---- */

static int out_of_memory(const char *path, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
}

static int damage(const char *path, const char *reason, struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG, "cannot read '%s': %s", path, reason);
}

int hl_recording_read_meta(int fd, const char *path, struct hl_recording *recording,
			   struct hl_error *err)
{
	struct hl_container container;
	HL_FREED void *text = NULL;
	size_t size;

	int r = hl_container_open(&container, fd, path, HL_KIND_RECORDING, err);
	if (r == 0)
		r = hl_container_load(&container, HL_SECTION_META, HL_META_BYTES_MAX, &text, &size,
				      err);
	if (r < 0)
		return r;
	recording->format_version = container.header.version;
	return hl_recording_json_read(text, size, path, recording, err);
}

static int check_nodes(struct hl_recording_process *process, const char *path, struct hl_error *err)
{
	uint32_t count = process->node_count;

	HL_FREED uint32_t *marks = malloc((count + 1) * sizeof(*marks));
	if (!marks)
		return out_of_memory(path, err);
	if (hl_recording_repair_tree(process->nodes, count, marks))
		return damage(path, "its stack nodes are not a tree", err);
	for (uint32_t i = 0; i < count; i++)
		if (!hl_frame_key_is_valid(process->nodes[i].frame, process->module_count))
			return damage(path, "a stack node names a module that is not there", err);
	for (uint32_t i = 0; i < process->resident_count; i++)
		if (process->resident[i].node == 0 || process->resident[i].node > count)
			return damage(path, "a value names a stack node that is not there", err);
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

static int too_short(const char *path, struct hl_error *err)
{
	return damage(path, "a section is shorter than its rows", err);
}

/* What both ways of reading begin with: the description and the values of ${container}. */
static int read_values(const struct hl_container *container, const char *path,
		       struct hl_recording_process *process, struct hl_error *err)
{
	HL_FREED void *text = NULL;
	size_t size, values = 0;

	int r = hl_container_load(container, HL_SECTION_META, HL_META_BYTES_MAX, &text, &size, err);
	if (r == 0)
		r = hl_recording_json_read_process(text, size, path, process, err);
	if (r == 0)
		r = hl_columns_read(&hl_value_columns, container, HL_SECTION_VALUES,
				    process->value_count, 0, &process->values, &values, err);
	if (r == 0 && values != process->value_count)
		r = too_short(path, err);
	return r;
}

int hl_recording_read_values(int fd, const char *path, struct hl_recording_process *process,
			     struct hl_error *err)
{
	struct hl_container container;

	int r = hl_container_open_some(&container, fd, path, HL_KIND_PROCESS, err);
	if (r == 0)
		r = read_values(&container, path, process, err);
	return r < 0 ? r : check_values(process, path, err);
}

int hl_recording_read_process(int fd, const char *path, struct hl_recording_process *process,
			      struct hl_error *err)
{
	struct hl_container container;
	size_t nodes = 0, resident = 0;

	int r = hl_container_open(&container, fd, path, HL_KIND_PROCESS, err);
	if (r == 0)
		r = read_values(&container, path, process, err);
	if (r == 0)
		r = hl_columns_read(&hl_node_columns, &container, HL_SECTION_NODES,
				    process->node_count, 0, &process->nodes, &nodes, err);
	if (r == 0 && process->knows_resident)
		r = hl_columns_read(&hl_resident_columns, &container, HL_SECTION_RESIDENT,
				    process->resident_count, 0, &process->resident, &resident, err);
	if (r == 0 && (nodes != process->node_count || resident != process->resident_count))
		r = too_short(path, err);
	if (r == 0)
		r = check_nodes(process, path, err);
	return r < 0 ? r : check_values(process, path, err);
}

/* ---- reading the directory ---- */

struct file_name {
	uint32_t sequence, pid;
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

static int compare_names(const void *a, const void *b)
{
	const struct file_name *left = a, *right = b;

	if (left->sequence != right->sequence)
		return left->sequence < right->sequence ? -1 : 1;
	return left->pid < right->pid ? -1 : left->pid > right->pid;
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
	HL_CLOSED int fd = open_file(directory_fd, file, path, err);
	if (fd < 0)
		return fd;
	int r = hl_recording_read_process(fd, path, process, err);
	if (r == 0 && (process->sequence != name.sequence || process->pid != name.pid))
		return damage(path, "it is the file of another process", err);
	if (r == 0 && process->recording_start_ns &&
	    process->recording_start_ns != recording->start_realtime_ns)
		return hl_error_set(err, -EXDEV, "'%s' is of another recording", path);
	return r;
}

int hl_recording_warn(struct hl_recording *recording, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int r = hl_error_append(&recording->warnings, format, args);
	va_end(args);
	return r;
}

/* What is damaged is left out with a warning, unless it is all there is. */
static int read_processes(struct hl_recording *recording, DIR *directory, struct hl_error *err)
{
	HL_FREED struct file_name *names = NULL;
	size_t count = 0, own_count, capacity = 0;

	for (const struct dirent *entry; (entry = readdir(directory));) {
		struct file_name name;
		if (parse_name(entry->d_name, &name) &&
		    HL_ARRAY_APPEND(names, count, capacity, name) < 0)
			return out_of_memory(recording->name, err);
	}
	if (count)
		qsort(names, count, sizeof(*names), compare_names);
	own_count = count;
	recording->processes = calloc(count + 1, sizeof(*recording->processes));
	if (!recording->processes)
		return out_of_memory(recording->name, err);
	for (size_t i = 0; i < count; i++) {
		struct hl_error why = {0};
		struct hl_recording_process *process =
			&recording->processes[recording->process_count++];
		int r = read_process_file(recording, dirfd(directory), names[i], process, &why);
		bool is_all = i + 1 == count && recording->process_count == 1;
		if (r == -ENOMEM || (r < 0 && is_all))
			return hl_error_set(err, r, "%s%s", why.text,
					    r == -EXDEV ? ", and no process of this one is here"
							: "");
		if (r == 0)
			continue;
		hl_recording_process_release(process);
		recording->process_count--;
		own_count -= r == -EXDEV;
		if (hl_recording_warn(recording, "a process is left out: %s", why.text) < 0)
			return out_of_memory(recording->name, err);
	}
	if (recording->complete && own_count < recording->ended_processes &&
	    hl_recording_warn(recording, "the files of %zu of %u processes are missing",
			      recording->ended_processes - own_count,
			      recording->ended_processes) < 0)
		return out_of_memory(recording->name, err);
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
	HL_CLOSED int fd = open_file(directory_fd, HL_META_FILE, path, err);
	return fd < 0 ? fd : hl_recording_read_meta(fd, path, recording, err);
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

char *hl_recording_lost_path(const char *path, uint32_t sequence)
{
	size_t length = strlen(path), suffix = strlen(HL_SUFFIX);
	char *lost;

	while (length > 1 && path[length - 1] == '/')
		length--;
	if (length > suffix && !strncmp(path + length - suffix, HL_SUFFIX, suffix))
		length -= suffix;
	return asprintf(&lost, "%.*s.lost-%" PRIu32 HL_SUFFIX, (int)length, path, sequence) < 0
		       ? NULL
		       : lost;
}

bool hl_recording_is_there(const char *path)
{
	HL_FREED char *meta = NULL;

	return asprintf(&meta, "%s/" HL_META_FILE, path) >= 0 && access(meta, F_OK) == 0;
}

bool hl_recording_module_file(const uint8_t *build_id, uint32_t build_id_bytes,
			      const struct hl_file_print *print, char ret_name[HL_MODULE_FILE_MAX])
{
	char id[2 * HL_BUILD_ID_MAX + 1];

	if (build_id_bytes >= HL_BUILD_ID_UNIQUE && build_id_bytes <= HL_BUILD_ID_MAX)
		hl_hex_format(id, build_id, build_id_bytes);
	else if (hl_file_print_is_known(print))
		snprintf(id, sizeof(id), "%016" PRIx64 "-%" PRIx64, print->hash, print->bytes);
	else
		return false;
	snprintf(ret_name, HL_MODULE_FILE_MAX, HL_MODULE_FILE_START "%s" HL_MODULE_FILE_END, id);
	return true;
}

/* While it goes on, the meta data are not written at each save: it lasted until the last save of a process. */
static void lengthen(struct hl_recording *recording)
{
	for (uint32_t i = 0; i < recording->process_count; i++) {
		const struct hl_recording_process *process = &recording->processes[i];
		uint64_t after_ns = process->start_realtime_ns - recording->start_realtime_ns;
		if (process->start_realtime_ns >= recording->start_realtime_ns &&
		    after_ns + process->duration_ns > recording->duration_ns)
			recording->duration_ns = after_ns + process->duration_ns;
	}
}

int hl_recording_open(const char *path, struct hl_recording **ret_recording, struct hl_error *err)
{
	DIR *directory = opendir(path);

	if (!directory)
		return hl_error_set(err, -errno, "cannot open '%s': %s", path,
				    errno == ENOTDIR ? "a recording is a directory, this is not"
						     : strerror(errno));
	bool running = has_collector(directory); /* asked before it can have finished */
	struct hl_recording *recording = calloc(1, sizeof(*recording));
	if (recording) {
		recording->name = strdup(path);
		recording->directory = strdup(path);
	}
	int r = recording && recording->name && recording->directory
			? read_meta_file(recording, dirfd(directory), err)
			: out_of_memory(path, err);
	if (r == 0)
		r = read_processes(recording, directory, err);
	closedir(directory);
	if (r < 0) {
		hl_recording_free(recording);
		return r;
	}
	recording->running = running && !recording->complete;
	if (!recording->complete && !recording->snapshot)
		lengthen(recording);
	*ret_recording = recording;
	return 0;
}
