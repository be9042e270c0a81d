/* SPDX-License-Identifier: BSD-2-Clause */
/* Begins files and deletes the oldest ones; see log_files.h. */
#include "log/log_files.h"

#include "base/array.h"
#include "log/piece_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hl_log_rotation_begin(struct hl_log_rotation *rotation, uint64_t first_interval,
			  struct hl_piece_writer *pieces)
{
	struct hl_segment_header header = {
		.process = rotation->process,
		.number = rotation->number + 1,
		.first_interval = first_interval,
		.start_realtime_ns = rotation->start_realtime_ns,
	};

	if (HL_ARRAY_RESERVE(rotation->kept, rotation->kept_capacity, rotation->kept_count + 1) < 0)
		return -ENOMEM;
	char *name = rotation->kept[rotation->kept_count].name;
	hl_log_files_seal_header(rotation->kind, &header);
	hl_log_files_name(rotation->kind, &header, name);
	int fd = openat(rotation->directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			0666);
	if (fd < 0)
		return -errno;
	int fd_before = pieces->fd;
	uint64_t position_before = pieces->position;
	pieces->fd = fd;
	pieces->position = 0;
	int r = hl_piece_writer_write_bytes(pieces, &header, sizeof(header));
	if (r < 0) {
		unlinkat(rotation->directory_fd, name, 0);
		close(fd);
		pieces->fd = fd_before;
		pieces->position = position_before;
		return r;
	}
	rotation->number++;
	rotation->kept_count++;
	return 0;
}

void hl_log_rotation_abandon(struct hl_log_rotation *rotation)
{
	unlinkat(rotation->directory_fd, rotation->kept[--rotation->kept_count].name, 0);
	rotation->number--;
}

void hl_log_rotation_delete_oldest(struct hl_log_rotation *rotation)
{
	if (rotation->kept_count <= rotation->most)
		return;
	size_t surplus = rotation->kept_count - rotation->most;
	for (size_t i = 0; i < surplus; i++)
		unlinkat(rotation->directory_fd, rotation->kept[i].name, 0);
	rotation->kept_count = rotation->most;
	memmove(rotation->kept, rotation->kept + surplus,
		rotation->kept_count * sizeof(*rotation->kept));
}

void hl_log_rotation_release(struct hl_log_rotation *rotation)
{
	free(rotation->kept);
	rotation->kept = NULL;
	rotation->kept_count = rotation->kept_capacity = 0;
}
