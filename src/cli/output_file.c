/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks, opens and closes the files of -o; see output.h. */
#include "cli/output.h"

#include "base/compiler.h"
#include "pack/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE_BITS 07777

static int fail(const char *path, int error, struct hl_error *err)
{
	return hl_error_set(err, -error, "cannot write '%s': %s", path, strerror(error));
}

/* ---- checks ---- */

static bool is_same(const struct stat *one, const struct stat *other)
{
	return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* Whether ${path}, which is there, is named as files of recordings are and lies in ${directory}. */
static bool is_in_recording(const char *path, const struct stat *directory)
{
	char target[PATH_MAX];
	struct stat parent;

	if (!S_ISDIR(directory->st_mode) || !realpath(path, target))
		return false;
	char *name = strrchr(target, '/') + 1;
	bool named_so = fnmatch("*.hl[elmp]", name, 0) == 0;
	*name = '\0';
	return named_so && stat(target, &parent) == 0 && is_same(&parent, directory);
}

/* Other names of what is open already; a regular file may be behind them. */
static bool is_descriptor(const char *path)
{
	return !strncmp(path, "/dev/std", strlen("/dev/std")) ||
	       !strncmp(path, "/dev/fd/", strlen("/dev/fd/")) ||
	       !strncmp(path, "/proc/", strlen("/proc/"));
}

int hl_output_file_check(const char *path, bool force, char *const *inputs, size_t input_count,
			 struct hl_error *err)
{
	struct stat status, input;

	if (stat(path, &status) < 0)
		return 0;
	if (S_ISDIR(status.st_mode))
		return hl_error_set(err, -EISDIR,
				    "cannot write '%s': it is a directory; name a file with -o",
				    path);
	if (S_ISREG(status.st_mode) && !is_descriptor(path) && !force)
		return hl_error_set(err, -EEXIST, "cannot write '%s': it exists; -f overwrites it",
				    path);
	for (size_t i = 0; i < input_count; i++) {
		int r = strcmp(inputs[i], "-") != 0 ? stat(inputs[i], &input)
						    : fstat(STDIN_FILENO, &input);
		if (r == 0 && S_ISREG(input.st_mode) && is_same(&status, &input))
			return hl_error_set(err, -EINVAL,
					    "cannot write '%s': '%s', which is being read, is the "
					    "same file; name another one with -o",
					    path, inputs[i]);
		if (r == 0 && is_in_recording(path, &input))
			return hl_error_set(err, -EINVAL,
					    "cannot write '%s': it is a part of '%s', which is "
					    "being read; name another file with -o",
					    path, inputs[i]);
	}
	return 0;
}

int hl_output_file_check_regular(const char *path, bool force, char *const *inputs,
				 size_t input_count, struct hl_error *err)
{
	struct stat status;

	if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
		return hl_error_set(err, -EEXIST,
				    "cannot write '%s': it is not a regular file; name another one "
				    "with -o",
				    path);
	return hl_output_file_check(path, force, inputs, input_count, err);
}

/* ---- signals ---- */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

static char unfinished[PATH_MAX]; /* the temporary; the handler's while the flag is set */
static volatile sig_atomic_t is_unfinished;

static void remove_unfinished(int signal_number)
{
	if (is_unfinished)
		unlink(unfinished);
	raise(signal_number); /* SA_RESETHAND: this time it ends the program */
}

/* Who ignores a signal, as nohup(1) does, goes on ignoring it. */
static void guard(const char *temporary)
{
	const struct sigaction action = {.sa_handler = remove_unfinished, .sa_flags = SA_RESETHAND};
	struct sigaction old;

	if (strlen(temporary) >= sizeof(unfinished))
		return; /* no file system opens such a name */
	strcpy(unfinished, temporary);
	is_unfinished = true;
	for (size_t i = 0; i < HL_COUNT_OF(ending_signals); i++)
		if (sigaction(ending_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(ending_signals[i], &action, NULL);
}

/* ---- opening ---- */

static ssize_t write_all(void *cookie, const char *bytes, size_t size)
{
	struct hl_output_file *file = cookie;

	for (size_t done = 0; done < size;) {
		ssize_t written = write(file->fd, bytes + done, size - done);
		if (written >= 0) {
			done += (size_t)written;
		} else if (errno != EINTR) {
			file->error = file->error ? file->error : errno;
			return 0;
		}
	}
	return (ssize_t)size;
}

static int close_fd(void *cookie)
{
	struct hl_output_file *file = cookie;

	if (close(file->fd) == 0)
		return 0;
	file->error = file->error ? file->error : errno;
	return -1;
}

static const cookie_io_functions_t stream_functions = {.write = write_all, .close = close_fd};

static int open_fd(struct hl_output_file *file)
{
	struct stat status, link;
	bool exists = stat(file->path, &status) == 0;

	/* Written to as it is: what is not a regular file, and a link to what is not there yet. */
	if (exists ? !S_ISREG(status.st_mode) || is_descriptor(file->path)
		   : lstat(file->path, &link) == 0) {
		file->fd =
			open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
		return file->fd < 0 ? -errno : 0;
	}
	file->target = exists ? realpath(file->path, NULL) : strdup(file->path);
	if (!file->target)
		return -errno;
	/* Beside the target, with a short name of its own: the target's may be as long as can be. */
	const char *slash = strrchr(file->target, '/');
	if (asprintf(&file->temporary, "%.*s.heapline-%d.part",
		     slash ? (int)(slash + 1 - file->target) : 0, file->target,
		     (int)getpid()) < 0) {
		file->temporary = NULL;
		return -ENOMEM;
	}
	guard(file->temporary);
	file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (file->fd < 0)
		return -errno;
	/* The owner only root can keep; a mode that cannot be kept is the file system's affair. */
	if (exists && fchown(file->fd, status.st_uid, status.st_gid) == 0)
		fchmod(file->fd, status.st_mode & MODE_BITS);
	else if (exists)
		fchmod(file->fd, status.st_mode & 0777);
	return 0;
}

static void release(struct hl_output_file *file)
{
	is_unfinished = false;
	free(file->target);
	free(file->temporary);
}

int hl_output_file_open(struct hl_output_file *file, const char *path, struct hl_error *err)
{
	*file = (struct hl_output_file){.path = path, .fd = -1};
	int r = open_fd(file);
	if (r == 0) {
		file->out = fopencookie(file, "w", stream_functions);
		if (file->out)
			return 0;
		r = -ENOMEM;
		close(file->fd);
		if (file->temporary)
			unlink(file->temporary);
	}
	release(file);
	return fail(path, -r, err);
}

/* ---- closing ---- */

int hl_output_file_close(struct hl_output_file *file, bool keep, struct hl_error *err)
{
	if (fclose(file->out) != 0 && !file->error)
		file->error = errno;
	if (keep && !file->error && file->temporary && rename(file->temporary, file->target) < 0)
		file->error = errno;
	if (file->temporary && (!keep || file->error))
		unlink(file->temporary);
	int error = file->error;
	release(file);
	if (!error)
		return 0;
	if (err)
		err->text[0] = '\0'; /* what follows from it is not worth saying */
	return fail(file->path, error, err);
}

int hl_output_file_write_packed(const struct hl_profile *profile, const struct hl_pack_log *log,
				const char *path, struct hl_error *err)
{
	struct hl_output_file file;

	int r = hl_output_file_open(&file, path, err);
	if (r < 0)
		return r;
	r = hl_pack_write(profile, log, file.fd, path, err);
	int closed = hl_output_file_close(&file, r == 0, err);
	return r < 0 ? r : closed;
}
