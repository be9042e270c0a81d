/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads /proc/PID/{exe,cmdline,stat,auxv}; see tracked.h. */
#include "collector/tracked.h"

#include "process/process.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer command lines are cut; a recording need not hold megabytes of arguments. */
#define COMMAND_BYTES_MAX 65536

/* Like hl_proc_read(); 0 bytes when it cannot be read. */
static size_t read_file(pid_t pid, const char *file, char *text, size_t capacity)
{
	ssize_t size = hl_proc_read(pid, file, text, capacity);

	return size > 0 ? (size_t)size : 0;
}

/* The fourth field, after the name in parentheses, which may itself contain anything. */
uint32_t hl_identity_parent(pid_t pid)
{
	char text[512];
	const char *name_end =
		read_file(pid, "stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
	unsigned parent;

	return name_end && sscanf(name_end, ") %*c %u", &parent) == 1 ? parent : 0;
}

static void free_command(char **command)
{
	for (char **argument = command; argument && *argument; argument++)
		free(*argument);
	free(command);
}

void hl_identity_set_command(struct hl_identity *identity, const char *bytes, size_t size)
{
	size_t used = size;

	while (used > 0 && !bytes[used - 1])
		used--;
	/* A program that writes a title over its arguments fills the rest with NULs. That many in a
	 * row are not empty arguments. */
	if (size - used > 2)
		size = used + 1;
	size_t most = 1;
	for (size_t i = 0; i < size; i++)
		most += bytes[i] == '\0' || i + 1 == size;
	char **command = calloc(most, sizeof(*command));
	if (!command)
		return;
	for (size_t i = 0, count = 0; i < size; count++) {
		size_t length = strnlen(bytes + i, size - i);
		command[count] = strndup(bytes + i, length);
		if (!command[count])
			break;
		i += length + 1;
	}
	free_command(identity->command);
	identity->command = command;
}

bool hl_identity_read_name(pid_t pid, char ret_name[HL_IDENTITY_NAME_MAX])
{
	size_t size = read_file(pid, "comm", ret_name, HL_IDENTITY_NAME_MAX);

	ret_name[size] = '\0';
	ret_name[strcspn(ret_name, "\n")] = '\0';
	return size != 0;
}

void hl_identity_refresh(struct hl_identity *identity, pid_t pid)
{
	char name[HL_IDENTITY_NAME_MAX];
	char *bytes = malloc(COMMAND_BYTES_MAX);

	size_t size = bytes ? read_file(pid, "cmdline", bytes, COMMAND_BYTES_MAX) : 0;
	if (size)
		hl_identity_set_command(identity, bytes, size);
	free(bytes);
	if (hl_identity_read_name(pid, name))
		strcpy(identity->name, name);
}

/* By the link, so that a file that was deleted or replaced meanwhile is still the same. */
static bool find_executable(pid_t pid, struct stat *ret_status)
{
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/exe", hl_proc_thread(pid));
	return stat(name, ret_status) == 0;
}

int hl_identity_read(pid_t pid, struct hl_identity *ret_identity)
{
	struct hl_identity identity = {
		.parent_pid = hl_identity_parent(pid),
		.executable = hl_process_run_path(pid),
		.command = calloc(1, sizeof(*identity.command)),
		.random_bytes = hl_process_auxv(pid, AT_RANDOM),
	};

	hl_identity_refresh(&identity, pid);
	if (!identity.executable || !identity.command) {
		hl_identity_release(&identity);
		return -ENOMEM;
	}
	struct stat status;
	if (find_executable(pid, &status)) {
		identity.device = status.st_dev;
		identity.inode = status.st_ino;
	}
	*ret_identity = identity;
	return 0;
}

bool hl_identity_has_changed(const struct hl_identity *identity, pid_t pid,
			     char ret_name[HL_IDENTITY_NAME_MAX])
{
	struct stat status;

	if (!identity->inode || !find_executable(pid, &status) ||
	    (status.st_dev == identity->device && status.st_ino == identity->inode))
		return false;
	hl_identity_read_name(pid, ret_name);
	return true;
}

bool hl_identity_has_called_exec(const struct hl_identity *identity, pid_t pid)
{
	uint64_t random_bytes = identity->random_bytes ? hl_process_auxv(pid, AT_RANDOM) : 0;

	return random_bytes && random_bytes != identity->random_bytes;
}

void hl_identity_release(struct hl_identity *identity)
{
	free_command(identity->command);
	free(identity->executable);
	*identity = (struct hl_identity){0};
}
