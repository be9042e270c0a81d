/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds out what a file is, and has the right reader read it; see open.h. */
#include "profile/open.h"

#include "base/array.h"
#include "import/gzip.h"
#include "pack/pack.h"
#include "profile/moment.h"
#include "recording/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STDIN_NAME "standard input"
#define HEAD_BYTES 64
#define COPY_BYTES 65536
/* Ten times what the largest programs give, and what any machine has memory for. */
#define INFLATED_MAX (UINT32_C(256) << 20)
#define MAGIC	     "HEAPLINE" /* of every file of heapline's own */

/* In the order of how sure their marks are: folded text has none and comes last. */
static const struct hl_importer *const importers[] = {
	&hl_importer_pprof,
	&hl_importer_mprof,
	&hl_importer_legacy,
	&hl_importer_folded,
};

static int fail(struct hl_error *err, int code, const char *name)
{
	return hl_error_set(err, code, "cannot read '%s': %s", name, strerror(-code));
}

/* ---- recordings ---- */

static int open_recording(const char *path, const struct hl_profile_selection *selection,
			  struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_recording *recording;

	int r = hl_recording_open(path, &recording, err);
	if (r < 0)
		return r;
	r = selection && selection->at.kind != HL_MOMENT_NONE
		    ? hl_moment_load(path, recording, selection, ret_profile, err)
		    : hl_profile_load(recording, selection, ret_profile, err);
	hl_recording_free(recording);
	return r;
}

/* ---- files of other tools ---- */

/* All of ${fd} in memory that the caller frees, a NUL byte behind it. */
static int read_all(int fd, uint8_t **ret_bytes, size_t *ret_size)
{
	uint8_t *bytes = NULL;
	size_t size = 0, capacity = 0;
	ssize_t count;

	do {
		if (hl_array_reserve(&bytes, &capacity, size + COPY_BYTES + 1, 1) < 0) {
			free(bytes);
			return -ENOMEM;
		}
		count = read(fd, bytes + size, capacity - size - 1);
		if (count > 0)
			size += (size_t)count;
	} while (count > 0 || (count < 0 && errno == EINTR));
	if (count < 0) {
		free(bytes);
		return -errno;
	}
	bytes[size] = '\0';
	*ret_bytes = bytes;
	*ret_size = size;
	return 0;
}

static int check_selection(const struct hl_profile_selection *selection, const char *name,
			   struct hl_error *err)
{
	if (!selection || (!selection->pid && !selection->by_sequence && !selection->tid))
		return 0;
	return hl_error_set(err, -EINVAL,
			    "cannot select a process or thread of '%s': it is another tool's file, "
			    "which does not tell them apart",
			    name);
}

static int describe(struct hl_profile *profile, const char *name, const char *source)
{
	profile->imported = true;
	profile->complete = true;
	profile->unfiltered_total = profile->total;
	int r = hl_strings_intern(&profile->strings, name, &profile->name);
	if (r == 0)
		r = hl_strings_intern(&profile->strings, source, &profile->source);
	if (r == 0 && !profile->mode)
		profile->mode = profile->source;
	return r;
}

static const struct hl_importer *find_importer(const struct hl_import_input *input)
{
	for (size_t i = 0; i < HL_COUNT_OF(importers); i++)
		if (importers[i]->detects(input))
			return importers[i];
	return NULL;
}

static int nothing_known(const struct hl_import_input *input, struct hl_error *err)
{
	if (!input->size)
		return hl_error_set(err, -EBADMSG, "cannot read '%s': it is empty", input->name);
	if (input->size >= strlen(MAGIC) && !memcmp(input->bytes, MAGIC, strlen(MAGIC)))
		return hl_error_set(err, -EBADMSG,
				    "cannot read '%s': it is one file of a recording; name the "
				    "directory that it is in",
				    input->name);
	return hl_error_set(err, -EBADMSG,
			    "cannot read '%s': it is no recording, and no file of a kind that "
			    "'heapline help import' lists",
			    input->name);
}

static int import_inflated(const struct hl_importer *importer, const struct hl_import_input *input,
			   struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_profile *profile;

	if (!importer)
		importer = find_importer(input);
	if (!importer)
		return nothing_known(input, err);
	int r = importer->read(input, &profile, err);
	if (r < 0)
		return r;
	r = describe(profile, input->name, importer->name);
	if (r < 0) {
		hl_profile_free(profile);
		return fail(err, r, input->name);
	}
	*ret_profile = profile;
	return 0;
}

int hl_profile_import_bytes(const struct hl_importer *importer, const struct hl_import_input *input,
			    struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_import_input inflated = {.name = input->name};
	uint8_t *bytes;

	if (!hl_gzip_detect(input->bytes, input->size))
		return import_inflated(importer, input, ret_profile, err);
	int r = hl_gzip_inflate(input->bytes, input->size, input->name, INFLATED_MAX, &bytes,
				&inflated.size, err);
	if (r < 0)
		return hl_error_set(err, r, "cannot read '%s': %s", input->name, strerror(-r));
	inflated.bytes = bytes;
	r = import_inflated(importer, &inflated, ret_profile, err);
	free(bytes);
	return r;
}

int hl_profile_import(int fd, const char *name, const struct hl_importer *importer,
		      struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_import_input input = {.name = name};
	uint8_t *bytes;

	int r = read_all(fd, &bytes, &input.size);
	if (r < 0)
		return fail(err, r, name);
	input.bytes = bytes;
	r = hl_profile_import_bytes(importer, &input, ret_profile, err);
	free(bytes);
	return r;
}

/* ---- any file ---- */

/* Packed recordings are told by their first bytes, and read where they lie. */
static int open_file(int fd, const char *name, const struct hl_profile_selection *selection,
		     struct hl_profile **ret_profile, struct hl_error *err)
{
	uint8_t head[HEAD_BYTES];

	ssize_t size = pread(fd, head, sizeof(head), 0);
	if (size < 0)
		return fail(err, -errno, name);
	if (hl_pack_detect(head, (size_t)size))
		return hl_pack_read(fd, name, selection, ret_profile, err);
	int r = check_selection(selection, name, err);
	return r < 0 ? r : hl_profile_import(fd, name, NULL, ret_profile, err);
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

/* A pipe cannot be read twice; a copy of what comes out of it can. */
static int copy_pipe(int fd, const char *name, int *ret_copy, struct hl_error *err)
{
	uint8_t *bytes;
	size_t size;

	int r = read_all(fd, &bytes, &size);
	if (r < 0)
		return fail(err, r, name);
	int copy = memfd_create("heapline-input", MFD_CLOEXEC);
	r = copy < 0 ? -errno : write_all(copy, bytes, size);
	free(bytes);
	if (r == 0 && lseek(copy, 0, SEEK_SET) < 0)
		r = -errno;
	if (r < 0) {
		if (copy >= 0)
			close(copy);
		return fail(err, r, name);
	}
	*ret_copy = copy;
	return 0;
}

static int open_stream(int fd, const char *name, const struct hl_profile_selection *selection,
		       struct hl_profile **ret_profile, struct hl_error *err)
{
	int copy = -1;

	if (lseek(fd, 0, SEEK_CUR) >= 0)
		return open_file(fd, name, selection, ret_profile, err);
	int r = copy_pipe(fd, name, &copy, err);
	if (r < 0)
		return r;
	r = open_file(copy, name, selection, ret_profile, err);
	close(copy);
	return r;
}

static bool is_directory(const char *path)
{
	struct stat status;
	return stat(path, &status) < 0 || S_ISDIR(status.st_mode);
}

static int open_path(const char *path, const struct hl_profile_selection *selection,
		     struct hl_profile **ret_profile, struct hl_error *err)
{
	bool is_stdin = !strcmp(path, "-");

	if (selection && selection->at.kind != HL_MOMENT_NONE && (is_stdin || !is_directory(path)))
		return hl_error_set(err, -EINVAL,
				    "cannot look at a moment of '%s': only a recording, NAME.hl, "
				    "has a log",
				    is_stdin ? STDIN_NAME : path);
	if (is_stdin)
		return open_stream(STDIN_FILENO, STDIN_NAME, selection, ret_profile, err);
	if (is_directory(path)) /* or nothing, which is a missing recording */
		return open_recording(path, selection, ret_profile, err);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail(err, -errno, path);
	int r = open_stream(fd, path, selection, ret_profile, err);
	close(fd);
	return r;
}

int hl_profile_open(const char *path, const struct hl_profile_selection *selection,
		    struct hl_profile **ret_profile, struct hl_error *err)
{
	struct hl_profile *profile;

	int r = open_path(path, selection, &profile, err);
	if (r < 0)
		return r;
	/* Recording takes a moment longer than what it records; views show one duration. */
	if (profile->process_count == 1)
		profile->duration_ns = profile->processes[0].duration_ns;
	*ret_profile = profile;
	return 0;
}
