/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds and examines programs; see examine.h. */
#include "collector/examine.h"

#include "collector/elf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The kernel follows as many interpreters of interpreters. */
#define INTERPRETERS_MAX 5

/* Of a #! line; the kernel reads no more. */
#define SCRIPT_LINE_BYTES 256

/* ---- finding ---- */

static bool is_runnable(const char *path)
{
	struct stat status;
	if (stat(path, &status) < 0)
		return false;
	if (!S_ISREG(status.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0) {
		errno = EACCES;
		return false;
	}
	return true;
}

/* Tries every directory of ${directories}; as execvp, goes on after a file that may not be run. */
static int find_along(const char *directories, const char *command, char *path, size_t capacity)
{
	int r = -ENOENT;
	for (const char *start = directories, *end; start; start = *end ? end + 1 : NULL) {
		end = strchrnul(start, ':');
		int length = (int)(end - start);
		int size = snprintf(path, capacity, "%.*s%s%s", length, start, length ? "/" : "",
				    command);
		if (size < 0 || (size_t)size >= capacity)
			continue;
		if (is_runnable(path))
			return 0;
		if (errno == EACCES)
			r = -EACCES;
	}
	return r;
}

int hl_examine_find(const char *command, char *ret_path, size_t capacity, struct hl_error *err)
{
	const char *directories = getenv("PATH");
	if (command[0] == '\0')
		return hl_error_set(err, -ENOENT, "cannot run '': the name is empty");
	int r;
	if (strchr(command, '/'))
		r = snprintf(ret_path, capacity, "%s", command) >= (int)capacity ? -ENAMETOOLONG
		    : is_runnable(command)					 ? 0
										 : -errno;
	else
		r = find_along(directories ? directories : "/bin:/usr/bin", command, ret_path,
			       capacity);
	if (r == 0)
		return 0;
	return hl_error_set(err, r == -ENOTDIR ? -ENOENT : r, "cannot run '%s': %s", command,
			    r == -ENOENT && !strchr(command, '/') ? "not found in PATH"
								  : strerror(-r));
}

/* ---- privileges ---- */

/* Whether starting the program changes what it may do: the loader then ignores LD_PRELOAD. */
static bool gains_privileges(const char *path)
{
	struct stat status;
	struct statvfs mount;
	if (stat(path, &status) < 0 || (statvfs(path, &mount) == 0 && (mount.f_flag & ST_NOSUID)))
		return false;
	if ((status.st_mode & S_ISUID) && status.st_uid != geteuid())
		return true;
	bool set_group = (status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP);
	if (set_group && status.st_gid != getegid())
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

/* ---- the verdict ---- */

static int refuse(const char *path, const char *reason, const char *remedy, struct hl_error *err)
{
	return hl_error_set(err, -ENOTSUP, "cannot record '%s': %s; %s", path, reason, remedy);
}

static bool is_glibc_loader(const char *interpreter)
{
	const char *slash = strrchr(interpreter, '/');
	const char *name = slash ? slash + 1 : interpreter;
	return strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld-2.", 5) == 0;
}

static int judge_loader(const char *path, const char *interpreter, struct hl_error *err)
{
	if (interpreter[0] == '\0')
		return refuse(path, "it is statically linked, so no library can be put into it",
			      "link it dynamically, or trace it while it runs: 'heapline stacks -p "
			      "PID' (needs its symbols)",
			      err);
	if (strstr(interpreter, "ld-musl"))
		return refuse(
			path, "it is linked with musl, and the recorder needs glibc",
			"build it for glibc, or trace it while it runs: 'heapline stacks -p PID'",
			err);
	if (!is_glibc_loader(interpreter))
		return refuse(path, "its dynamic loader is not that of glibc", "build it for glibc",
			      err);
	return 0;
}

static int judge_elf(const char *path, const struct hl_elf_file *elf, struct hl_error *err)
{
	if (!elf->is_64_bit)
		return refuse(
			path, "it is a 32-bit program, and the recorder is a 64-bit library",
			"build it for 64 bits; while it runs 'heapline pgfault -p PID' counts "
			"its pages",
			err);
	if (!elf->is_native)
		return refuse(path, "it is a program for another kind of machine",
			      "record it on such a machine", err);
	int r = judge_loader(path, elf->interpreter, err);
	if (r < 0)
		return r;
	if (gains_privileges(path))
		return refuse(path,
			      "it is set-user-id, set-group-id or has file capabilities, so the "
			      "loader lets no library into it",
			      "record a copy of it without these, or as the user that it runs as, "
			      "or trace it while it runs: 'heapline stacks -p PID'",
			      err);
	if (elf->defines_malloc)
		return refuse(path,
			      "it brings a malloc of its own, which the recorder cannot see into",
			      "build it with the malloc of libc, or with a shared one, or trace it "
			      "while it runs: 'heapline stacks -p PID'",
			      err);
	if (elf->needs_asan)
		return refuse(path,
			      "it is built with AddressSanitizer, which lets no library come "
			      "before its own",
			      "build it without -fsanitize=address", err);
	return 0;
}

/* The interpreter of a script; false when ${path} is not a script. */
static bool read_interpreter(const char *path, char interpreter[SCRIPT_LINE_BYTES])
{
	char line[SCRIPT_LINE_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t size = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	if (fd >= 0)
		close(fd);
	if (size < 2 || memcmp(line, "#!", 2) != 0)
		return false;
	line[size] = '\0';
	size_t blanks = strspn(line + 2, " \t");
	size_t length = strcspn(line + 2 + blanks, " \t\r\n");
	memcpy(interpreter, line + 2 + blanks, length);
	interpreter[length] = '\0';
	return length > 0;
}

int hl_examine_program(const char *path, struct hl_error *err)
{
	char program[PATH_MAX], interpreter[SCRIPT_LINE_BYTES];
	snprintf(program, sizeof(program), "%s", path);
	for (int i = 0; i < INTERPRETERS_MAX && read_interpreter(program, interpreter); i++)
		snprintf(program, sizeof(program), "%s", interpreter);
	struct hl_elf_file elf;
	int r = hl_elf_file_read(program, &elf);
	if (r == -ENOEXEC && access(program, R_OK) == 0) /* a script without #!: sh runs it */
		r = hl_elf_file_read("/bin/sh", &elf);
	return r < 0 ? 0 : judge_elf(program, &elf, err);
}
