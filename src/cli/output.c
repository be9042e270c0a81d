/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and closes what verbs write to: the files of -o, the pager, reports; see output.h. */
#include "cli/output.h"

#include "base/compiler.h"
#include "pack/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- files ---- */

#define MODE_BITS 07777

static int fail(const char *path, int error, struct hl_error *err)
{
	return hl_error_set(err, -error, "cannot write '%s': %s", path, strerror(error));
}

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

/* ---- signals while a file is unfinished ---- */

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

/* ---- the pager ---- */

extern char **environ;

/* Without the shell's complaint where there is no less. */
#define DEFAULT_PAGER  "command -v less >/dev/null || exit 127; less"
#define COPY_BYTES     65536
#define SHELL_SIGNALED 128 /* above it is the number of the signal that ended the command */

/* The user's choice; NULL: none is wanted, or the terminal is too simple for any. */
static const char *chosen_pager(void)
{
	const char *terminal = getenv("TERM");
	const char *pager = getenv("HEAPLINE_PAGER");

	if (!terminal || !strcmp(terminal, "dumb"))
		return NULL;
	if (!pager)
		pager = getenv("PAGER");
	if (!pager)
		pager = DEFAULT_PAGER;
	return pager[strspn(pager, " \t")] && strcmp(pager, "cat") != 0 ? pager : NULL;
}

static void copy_rest(int from)
{
	char bytes[COPY_BYTES];
	ssize_t size;

	while ((size = read(from, bytes, sizeof(bytes))) > 0 || (size < 0 && errno == EINTR)) {
		ssize_t written;
		for (char *at = bytes; size > 0; at += written, size -= written) {
			written = write(STDOUT_FILENO, at, (size_t)size);
			if (written < 0 && errno != EINTR)
				return;
			if (written < 0)
				written = 0;
		}
	}
}

/* Waits for the pager to end. What one that failed did not read is written to the terminal. */
static void *mind(void *argument)
{
	struct hl_pager *pager = argument;
	int status = 0;

	while (waitpid(pager->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (WIFEXITED(status) && WEXITSTATUS(status) && WEXITSTATUS(status) < SHELL_SIGNALED)
		copy_rest(pager->input);
	close(pager->input); /* now whoever writes to it gets EPIPE */
	return NULL;
}

/* Starts sh -c ${command}, which reads from the pager's input. 0 or an errno. */
static int start(struct hl_pager *pager, const char *command)
{
	char *words[] = {"sh", "-c", (char *)command, NULL};
	posix_spawn_file_actions_t actions;

	int r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return r;
	r = posix_spawn_file_actions_adddup2(&actions, pager->input, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn(&pager->pid, "/bin/sh", &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/*
 * Starts $HEAPLINE_PAGER, else $PAGER, else less, if standard output is a terminal that can do more
 * than a "dumb" one. A blank variable or "cat" is not a pager. What a pager that fails leaves unread
 * is written to standard output. Cannot fail: out is always good. ${pager} must not move until its
 * release.
 */
static void pager_init(struct hl_pager *pager)
{
	const char *command = chosen_pager();
	int ends[2];

	*pager = (struct hl_pager){.out = stdout};
	if (!command || !isatty(STDOUT_FILENO) || pipe2(ends, O_CLOEXEC) < 0)
		return;
	/* Quits when all fits on the screen, keeps colours, scrolls sideways, leaves the text there. */
	setenv("LESS", "FRSX", 0);
	setenv("LV", "-c", 0);
	pager->input = ends[0];
	FILE *out = fdopen(ends[1], "w");
	if (out && start(pager, command) == 0) {
		pager->out = out;
		signal(SIGPIPE, SIG_IGN); /* who leaves the pager early has seen enough */
		signal(SIGINT, SIG_IGN);  /* is the pager's, which shares the terminal */
		pager->minded = pthread_create(&pager->minder, NULL, mind, pager) == 0;
		if (!pager->minded)
			close(pager->input);
		return;
	}
	pager->pid = 0;
	close(ends[0]);
	if (out)
		fclose(out);
	else
		close(ends[1]);
}

/* Waits until the reader has seen enough. The output is closed. */
static void pager_release(struct hl_pager *pager)
{
	int status;

	if (!pager->pid)
		return;
	fclose(pager->out);
	if (pager->minded)
		pthread_join(pager->minder, NULL);
	else
		while (waitpid(pager->pid, &status, 0) < 0 && errno == EINTR)
			continue;
	pager->pid = 0;
}

/* ---- reports ---- */

int hl_report_output_choose_form(const struct hl_verb *verb, struct hl_view_output *output,
				 bool guest, bool draws, enum hl_report_form *ret_form)
{
	static const char *const pictures[] = {"svg", NULL};
	bool is_picture = draws && hl_view_output_format_of(output->path, pictures) >= 0;

	if (guest && output->json)
		return hl_cli_usage_error(verb, "--term and --json exclude each other");
	if (is_picture && (guest || output->json))
		return hl_cli_usage_error(
			verb, "'%s' is named as a picture, but --term and --json write text",
			output->path);
	*ret_form = is_picture ? HL_REPORT_SVG : guest ? HL_REPORT_GUEST : HL_REPORT_TABLE;
	return hl_view_output_obey_name(verb, output, draws ? pictures : NULL, guest);
}

int hl_report_output_check(const struct hl_view_output *options, char *const *inputs,
			   size_t input_count, struct hl_error *err)
{
	return options->path ? hl_output_file_check(options->path, options->force, inputs,
						    input_count, err)
			     : 0;
}

int hl_report_output_open(struct hl_report_output *output, const struct hl_view_output *options,
			  bool pages, struct hl_error *err)
{
	*output = (struct hl_report_output){.options = options, .out = stdout};
	if (options->path) {
		int r = hl_output_file_open(&output->file, options->path, err);
		output->out = output->file.out;
		return r;
	}
	if (pages && !options->no_pager) {
		pager_init(&output->pager);
		output->out = output->pager.out;
	}
	return 0;
}

int hl_report_output_close(struct hl_report_output *output, int r, struct hl_error *err)
{
	if (output->options->path) {
		int closed = hl_output_file_close(&output->file, r >= 0, err);
		if (closed < 0)
			return closed;
	} else {
		if (r < 0 && ferror(output->out))
			r = 0;
		pager_release(&output->pager);
	}
	return r < 0 ? hl_error_set(err, r, "cannot write the report: %s", strerror(-r)) : r;
}

int hl_report_output_screen(const struct hl_view_output *output,
			    int (*write)(const void *subject, const struct hl_emit_options *how),
			    const void *subject)
{
	char *text = NULL;
	size_t size;

	FILE *buffer = open_memstream(&text, &size);
	if (!buffer)
		return -ENOMEM;
	const struct hl_emit_options how = {.out = buffer,
					    .json = output->json,
					    .color = hl_view_output_has_color(output),
					    .row_limit = output->row_limit};
	int r = write(subject, &how);
	if (fclose(buffer) != 0 && r == 0)
		r = -ENOMEM;
	if (r == 0 && isatty(STDOUT_FILENO) && !output->json)
		fputs("\033[H\033[2J", stdout);
	if (r == 0)
		fwrite(text, 1, size, stdout);
	free(text);
	if (r == 0 && fflush(stdout) != 0)
		r = -errno;
	return r;
}
