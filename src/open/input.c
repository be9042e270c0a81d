/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens files, pipes and devices; see open.h. */
#include "open/open.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STDIN_NAME "standard input"

/* A shell opens the two ends of a FIFO in any order. */
#define WRITER_WAITS   100
#define WRITER_WAIT_NS 10000000

static int fail(const struct hl_input *input, int code, struct hl_error *err)
{
	return hl_error_set(err, code, "cannot read '%s': %s", input->name, strerror(-code));
}

static int too_large(const struct hl_input *input, struct hl_error *err)
{
	return hl_error_set(err, -EFBIG, "cannot read '%s': it has more than 1 GiB%s", input->name,
			    input->is_stream ? "; write it to a file first if it is a recording"
					     : "");
}

bool hl_input_is_directory(const char *path)
{
	struct stat status;

	return strcmp(path, "-") != 0 && (stat(path, &status) < 0 || S_ISDIR(status.st_mode));
}

/* ---- opening ---- */

/* Up to ${size} bytes, fewer only at the end. Returns how many, or a negative errno. */
static ssize_t read_fully(int fd, uint8_t *bytes, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t count = read(fd, bytes + done, size - done);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -errno;
		if (count == 0)
			break;
		done += (size_t)count;
	}
	return (ssize_t)done;
}

/* Reading a FIFO that is open for nobody to write is at its end at once; with a writer that has
 * written nothing yet it fails. Leaves what it read in the head. */
static int wait_for_writer(struct hl_input *input, struct hl_error *err)
{
	const struct timespec pause = {.tv_nsec = WRITER_WAIT_NS};
	ssize_t count = 0;

	for (int i = 0; i < WRITER_WAITS && count == 0; i++) {
		count = read(input->fd, input->head, HL_INPUT_HEAD_BYTES);
		if (count == 0)
			nanosleep(&pause, NULL);
	}
	if (count == 0)
		return hl_error_set(err, -ENODATA,
				    "cannot read '%s': nobody writes to this FIFO; start the "
				    "program that does",
				    input->name);
	if (count < 0 && errno != EAGAIN)
		return fail(input, -errno, err);
	input->head_size = count > 0 ? (size_t)count : 0;
	return 0;
}

int hl_input_open(struct hl_input *input, const char *path, struct hl_error *err)
{
	struct stat status;

	*input = (struct hl_input){.name = path, .fd = -1, .is_stdin = !strcmp(path, "-")};
	if (input->is_stdin)
		input->name = STDIN_NAME;
	/* Not waiting for a FIFO's writer here; nor does a terminal become the controlling one. */
	input->fd = input->is_stdin ? STDIN_FILENO
				    : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (input->fd < 0 || fstat(input->fd, &status) < 0)
		return fail(input, -errno, err);
	if (S_ISDIR(status.st_mode))
		return fail(input, -EISDIR, err);
	input->is_stream = !S_ISREG(status.st_mode);
	input->size = input->is_stream ? 0 : (uint64_t)status.st_size;
	input->head = malloc(HL_INPUT_HEAD_BYTES + 1);
	if (!input->head)
		return fail(input, -ENOMEM, err);
	if (S_ISFIFO(status.st_mode) && !input->is_stdin) {
		int r = wait_for_writer(input, err);
		if (r < 0)
			return r;
		fcntl(input->fd, F_SETFL, 0); /* from here on it waits for the writer */
	}
	ssize_t count = input->is_stream ? read_fully(input->fd, input->head + input->head_size,
						      HL_INPUT_HEAD_BYTES - input->head_size)
					 : pread(input->fd, input->head, HL_INPUT_HEAD_BYTES, 0);
	if (count < 0)
		return fail(input, input->is_stream ? (int)count : -errno, err);
	input->head_size += (size_t)count;
	input->head[input->head_size] = '\0';
	return 0;
}

void hl_input_close(struct hl_input *input)
{
	if (input->fd >= 0 && !input->is_stdin)
		close(input->fd);
	free(input->head);
	*input = HL_INPUT_NONE;
}

bool hl_input_begins_with(const struct hl_input *input, const void *mark, size_t size)
{
	return input->head_size >= size && !memcmp(input->head, mark, size);
}

/* ---- all of it ---- */

int hl_input_read(struct hl_input *input, uint8_t **ret_bytes, size_t *ret_size,
		  struct hl_error *err)
{
	size_t size = input->is_stream ? input->head_size : 0, capacity = 0;
	uint8_t *bytes = NULL;
	ssize_t count = 0;

	if (input->size > HL_INPUT_BYTES_MAX)
		return too_large(input, err);
	int r = hl_array_reserve(&bytes, &capacity, size + input->size + HL_INPUT_HEAD_BYTES + 1,
				 1);
	if (r == 0 && size)
		memcpy(bytes, input->head, size);
	while (r == 0) {
		r = hl_array_reserve(&bytes, &capacity, size + HL_INPUT_HEAD_BYTES + 1, 1);
		if (r < 0)
			break;
		count = input->is_stream
				? read(input->fd, bytes + size, HL_INPUT_HEAD_BYTES)
				: pread(input->fd, bytes + size, HL_INPUT_HEAD_BYTES, (off_t)size);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			break;
		size += (size_t)count;
		if (size > HL_INPUT_BYTES_MAX)
			r = -EFBIG;
	}
	if (r == 0 && count < 0)
		r = -errno;
	if (r < 0) {
		free(bytes);
		return r == -EFBIG ? too_large(input, err) : fail(input, r, err);
	}
	bytes[size] = '\0';
	*ret_bytes = bytes;
	*ret_size = size;
	return 0;
}

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
	while (size > 0) {
		ssize_t written = write(fd, bytes, size);
		if (written < 0 && errno != EINTR)
			return -errno;
		if (written > 0) {
			bytes += written;
			size -= (size_t)written;
		}
	}
	return 0;
}

int hl_input_make_file(struct hl_input *input, struct hl_error *err)
{
	uint8_t buffer[HL_INPUT_HEAD_BYTES];
	uint64_t size = input->head_size;
	ssize_t count = 1;

	if (!input->is_stream)
		return 0;
	HL_CLOSED int copy = memfd_create("heapline-input", MFD_CLOEXEC);
	int r = copy < 0 ? -errno : write_all(copy, input->head, input->head_size);
	while (r == 0 && count > 0) {
		count = read_fully(input->fd, buffer, sizeof(buffer));
		if (count > 0)
			size += (uint64_t)count;
		if (size > HL_INPUT_BYTES_MAX)
			return too_large(input, err);
		r = count < 0 ? (int)count : write_all(copy, buffer, (size_t)count);
	}
	if (r == 0 && dup3(copy, input->fd, input->is_stdin ? 0 : O_CLOEXEC) < 0)
		r = -errno;
	if (r < 0)
		return fail(input, r, err);
	input->size = size;
	input->is_stream = false;
	return 0;
}
