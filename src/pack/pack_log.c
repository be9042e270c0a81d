/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs in packed recordings: the files as they are, and what names their processes; see pack.h. */
#include "pack/pack_sections.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "log/log.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)

/* ---- writing ---- */

static int out_of_memory(const struct hl_container_writer *writer, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM, "cannot write '%s': out of memory", writer->name);
}

/* Everything about the processes but their stacks, which the profile and the logs have. */
static int add_processes(struct hl_container_writer *writer, const struct hl_recording *recording,
			 struct hl_error *err)
{
	HL_FREED char *texts = NULL;
	size_t size = 0, capacity = 0;

	for (uint32_t i = 0; i < recording->process_count; i++) {
		struct hl_recording_process head = recording->processes[i];
		head.node_count = head.value_count = head.thread_count = 0;
		HL_FREED char *text = hl_recording_json_write_process(&head);
		size_t bytes = text ? strlen(text) + 1 : 0;
		if (!text || HL_ARRAY_RESERVE(texts, capacity, size + bytes) < 0)
			return out_of_memory(writer, err);
		memcpy(texts + size, text, bytes);
		size += bytes;
	}
	return hl_container_writer_add(writer, HL_PACK_RECORDED, texts ? texts : "", size, true,
				       err);
}

/* Copies as much of a growing file as there was when it was opened. */
static int copy(struct hl_container_writer *writer, const char *name,
		const struct hl_log_extent *extent, uint8_t *buffer, struct hl_error *err)
{
	for (uint64_t done = 0; done < extent->bytes;) {
		uint64_t left = extent->bytes - done;
		ssize_t count = pread(extent->fd, buffer, left < COPY_BYTES ? left : COPY_BYTES,
				      (off_t)(extent->offset + done));
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return hl_error_set(err, count < 0 ? -errno : -EBADMSG,
					    "cannot read '%s': %s", name,
					    count < 0 ? strerror(errno) : "it was cut off");
		int r = hl_container_writer_append(writer, buffer, (size_t)count, err);
		if (r < 0)
			return r;
		done += (uint64_t)count;
	}
	return 0;
}

/* A running recording deletes its oldest files. One that is gone is left out: it has no bytes. */
static int add_files(struct hl_container_writer *writer, const struct hl_log_place *place,
		     struct hl_error *err)
{
	HL_FREED uint64_t *bytes = calloc(place->file_count + 1, sizeof(*bytes));
	HL_FREED uint8_t *buffer = malloc(COPY_BYTES);
	HL_FREED char *names = malloc(place->file_count * HL_SEGMENT_NAME_MAX + 1);
	char *end = names;

	if (!bytes || !buffer || !names)
		return out_of_memory(writer, err);
	for (size_t i = 0; i < place->file_count; i++)
		end = stpcpy(end, place->files[i].name) + 1;
	int r = hl_container_writer_add(writer, HL_PACK_LOG_NAMES, names, (size_t)(end - names),
					true, err);
	if (r == 0)
		r = hl_container_writer_begin(writer, HL_PACK_LOG_FILES, HL_SECTION_HASHED_WITHIN,
					      0, err);
	for (size_t i = 0; r == 0 && i < place->file_count; i++) {
		const struct hl_log_file *file = &place->files[i];
		struct hl_log_extent extent;
		int opened = hl_log_place_open(place, file, &extent);
		if (opened == -ENOENT || opened == -EBADMSG)
			continue;
		if (opened < 0)
			return hl_error_set(err, opened, "cannot open '%s': %s", file->name,
					    strerror(-opened));
		bytes[i] = extent.bytes;
		r = copy(writer, file->name, &extent, buffer, err);
		close(extent.fd);
	}
	if (r == 0)
		r = hl_container_writer_end(writer, err);
	if (r < 0)
		return r;
	return hl_container_writer_add(writer, HL_PACK_LOG_BYTES, bytes,
				       place->file_count * sizeof(*bytes), true, err);
}

int hl_pack_log_write(const struct hl_pack_log *log, struct hl_container_writer *writer,
		      struct hl_error *err)
{
	HL_FREED char *text = hl_recording_json_write(log->recording);

	int r = text ? hl_container_writer_add(writer, HL_PACK_RECORDING, text, strlen(text), true,
					       err)
		     : out_of_memory(writer, err);
	if (r == 0)
		r = add_processes(writer, log->recording, err);
	return r < 0 ? r : add_files(writer, &log->place, err);
}

/* ---- reading ---- */

struct reading {
	struct hl_container container;
	const struct hl_profile *profile;
	struct hl_pack_log *log;
	struct hl_error *err;
};

static int damage(const struct reading *reading, const char *reason)
{
	return hl_error_set(reading->err, -EBADMSG, "cannot read '%s': %s", reading->container.path,
			    reason);
}

static int memory_failed(const struct reading *reading)
{
	return hl_error_set(reading->err, -ENOMEM, "cannot read '%s': out of memory",
			    reading->container.path);
}

/* The texts of a section, each with its NUL; the caller frees them. */
static int load_texts(struct reading *reading, uint32_t type, char **ret_texts, size_t *ret_count)
{
	size_t size, count = 0;
	void *bytes;

	int r = hl_container_load(&reading->container, type, HL_PACK_TEXT_MAX, &bytes, &size,
				  reading->err);
	if (r < 0)
		return r;
	char *texts = bytes;
	if (size && texts[size - 1]) {
		free(texts);
		return damage(reading, "its last text has no end");
	}
	for (size_t i = 0; i < size; i++)
		count += !texts[i];
	*ret_texts = texts;
	*ret_count = count;
	return 0;
}

static int load_processes(struct reading *reading)
{
	struct hl_recording *recording = reading->log->recording;
	const struct hl_profile *profile = reading->profile;
	HL_FREED char *texts = NULL;
	size_t count = 0;

	int r = load_texts(reading, HL_PACK_RECORDED, &texts, &count);
	if (r < 0)
		return r;
	const char *text = texts;
	recording->processes = calloc(count + 1, sizeof(*recording->processes));
	if (!recording->processes)
		return memory_failed(reading);
	for (size_t i = 0; i < count; i++, text += strlen(text) + 1) {
		struct hl_recording_process *process =
			&recording->processes[recording->process_count++];
		r = hl_recording_json_read_process(text, strlen(text), reading->container.path,
						   process, reading->err);
		process->node_count = process->value_count = 0; /* which no section holds */
		if (r < 0)
			return r;
		/* The peak chooses among the logs of several processes. */
		process->values = calloc(1, sizeof(*process->values));
		if (!process->values)
			return memory_failed(reading);
		process->value_count = 1;
		for (size_t at = 0; at < profile->process_count; at++)
			if (profile->processes[at].sequence == process->sequence)
				process->values[0].peak_bytes =
					profile->processes[at].total.peak_bytes;
	}
	return 0;
}

static int load_files(struct reading *reading)
{
	HL_FREED char *names = NULL;
	HL_FREED void *section = NULL;
	uint64_t offset, left;
	size_t count = 0, size;

	int r = load_texts(reading, HL_PACK_LOG_NAMES, &names, &count);
	if (r == 0)
		r = hl_container_load(&reading->container, HL_PACK_LOG_BYTES,
				      count * sizeof(uint64_t), &section, &size, reading->err);
	if (r < 0)
		return r;
	if (size != count * sizeof(uint64_t))
		return damage(reading, "a section is shorter than its rows");
	if (!hl_container_locate(&reading->container, HL_PACK_LOG_FILES, &offset, &left))
		return damage(reading, "a section is missing");
	const uint64_t *bytes = section;
	const char *name = names;
	for (size_t i = 0; i < count; i++, name += strlen(name) + 1) {
		if (bytes[i] > left)
			return damage(reading, "the files of its log are longer than it");
		if (bytes[i] && hl_log_place_add(&reading->log->place, name, offset, bytes[i]) < 0)
			return memory_failed(reading);
		offset += bytes[i];
		left -= bytes[i];
	}
	hl_log_place_sort(&reading->log->place);
	return 0;
}

int hl_pack_log_read(int fd, const char *name, const struct hl_profile *profile,
		     struct hl_pack_log *ret_log, struct hl_error *err)
{
	struct reading reading = {.profile = profile, .log = ret_log, .err = err};
	HL_FREED void *text = NULL;
	uint64_t offset, bytes;
	size_t size;

	*ret_log = (struct hl_pack_log){.place = HL_LOG_PLACE_NONE};
	int r = hl_container_open(&reading.container, fd, name, HL_KIND_PACK, err);
	if (r < 0)
		return r;
	if (!hl_container_locate(&reading.container, HL_PACK_LOG_FILES, &offset, &bytes))
		return hl_error_set(err, -ENOENT,
				    "'%s' holds no log: the recording had none, or it was packed "
				    "without it",
				    name);
	r = hl_log_place_open_file(&ret_log->place, fd, name);
	if (r < 0)
		return hl_error_set(err, r, "cannot read '%s': %s", name, strerror(-r));
	struct hl_recording *recording = ret_log->recording = calloc(1, sizeof(*recording));
	if (!recording || !(recording->name = strdup(name)))
		return memory_failed(&reading);
	r = hl_container_load(&reading.container, HL_PACK_RECORDING, HL_PACK_TEXT_MAX, &text, &size,
			      err);
	if (r == 0)
		r = hl_recording_json_read(text, size, name, recording, err);
	if (r == 0)
		r = load_processes(&reading);
	return r < 0 ? r : load_files(&reading);
}

void hl_pack_log_release(struct hl_pack_log *log)
{
	hl_recording_free(log->recording);
	hl_log_place_release(&log->place);
	*log = (struct hl_pack_log){.place = HL_LOG_PLACE_NONE};
}
