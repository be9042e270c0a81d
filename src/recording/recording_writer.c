/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the files of a recording; see recording.h. */
#include "recording/recording.h"

#include "recording/recording_columns.h"
#include "recording/recording_files.h"
#include "recording/recording_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_json(struct hl_container_writer *writer, char *text, struct hl_error *err)
{
	if (!text)
		return hl_error_set(err, -ENOMEM, "cannot write '%s': out of memory", writer->name);
	int r = hl_container_writer_add(writer, HL_SECTION_META, text, strlen(text), false, err);
	free(text);
	return r;
}

static int add_columns(struct hl_container_writer *writer, uint32_t type,
		       const struct hl_columns *columns, const void *structs, uint32_t rows,
		       struct hl_error *err)
{
	size_t size = rows * columns->row_bytes;
	void *bytes = malloc(size + 1);
	if (!bytes)
		return hl_error_set(err, -ENOMEM, "cannot write '%s': out of memory", writer->name);
	hl_columns_split(columns, structs, rows, bytes);
	int r = hl_container_writer_add(writer, type, bytes, size, true, err);
	free(bytes);
	return r;
}

int hl_recording_write_meta(int directory_fd, const struct hl_recording *recording,
			    struct hl_error *err)
{
	struct hl_container_writer writer;
	int r = hl_container_writer_init(&writer, directory_fd, HL_META_FILE, HL_KIND_RECORDING, 1,
					 err);
	if (r == 0)
		r = add_json(&writer, hl_recording_to_json(recording), err);
	if (r == 0)
		r = hl_container_writer_finish(&writer, recording->complete, err);
	hl_container_writer_release(&writer);
	return r;
}

int hl_recording_write_process(int directory_fd, const struct hl_recording_process *process,
			       struct hl_error *err)
{
	char name[64];
	snprintf(name, sizeof(name), HL_PROCESS_FILE, process->sequence, process->pid);
	struct hl_container_writer writer;
	int r = hl_container_writer_init(&writer, directory_fd, name, HL_KIND_PROCESS, 3, err);
	if (r == 0)
		r = add_json(&writer, hl_recording_process_to_json(process), err);
	if (r == 0)
		r = add_columns(&writer, HL_SECTION_NODES, &hl_node_columns, process->nodes,
				process->node_count, err);
	if (r == 0)
		r = add_columns(&writer, HL_SECTION_VALUES, &hl_value_columns, process->values,
				process->value_count, err);
	if (r == 0)
		r = hl_container_writer_finish(&writer, false, err);
	hl_container_writer_release(&writer);
	return r;
}
