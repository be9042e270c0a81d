/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks through /proc for names; see by_name.h. */
#include "process/by_name.h"

#include "base/path.h"
#include "process/proc_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* False where it has ended meanwhile, or is a thread of the kernel, which has no command. */
static bool read_names(pid_t pid, struct hl_named_process *process)
{
	char command[4096], comm[32];
	ssize_t length = hl_proc_read(pid, "cmdline", command, sizeof(command));

	if (length <= 0 || hl_proc_read(pid, "comm", comm, sizeof(comm)) <= 0)
		return false;
	comm[strcspn(comm, "\n")] = '\0';
	process->pid = pid;
	snprintf(process->comm, sizeof(process->comm), "%.15s", comm);
	snprintf(process->name, sizeof(process->name), "%.63s",
		 command[0] ? hl_path_basename(command) : comm);
	return true;
}

static int is_number(const struct dirent *entry)
{
	return isdigit((unsigned char)entry->d_name[0]);
}

int hl_process_each(bool (*visit)(const struct hl_named_process *process, void *context),
		    void *context)
{
	struct dirent **entries;
	int count = scandir("/proc", &entries, is_number, versionsort);
	bool goes_on = true;

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		struct hl_named_process process;
		pid_t pid = (pid_t)strtol(entries[i]->d_name, NULL, 10);
		free(entries[i]);
		if (goes_on && pid != getpid() && read_names(pid, &process))
			goes_on = visit(&process, context);
	}
	free(entries);
	return 0;
}

struct search {
	const char *name;
	struct hl_named_process first;
	size_t count;
	char list[200]; /* "4711 (redis-server), 4712 (redis-server)" */
	size_t list_length;
};

static bool note_match(const struct hl_named_process *process, void *context)
{
	struct search *search = context;
	size_t room = sizeof(search->list) - search->list_length;

	if (strcmp(process->name, search->name) != 0 && strcmp(process->comm, search->name) != 0)
		return true;
	if (!search->count++)
		search->first = *process;
	int length = snprintf(search->list + search->list_length, room, "%s%d (%s)",
			      search->list_length ? ", " : "", process->pid, process->name);
	if ((size_t)length < room)
		search->list_length += (size_t)length;
	else
		search->list[search->list_length] = '\0';
	return true;
}

int hl_process_by_name(const char *name, pid_t *ret_pid, struct hl_error *err)
{
	struct search search = {.name = name};

	int r = hl_process_each(note_match, &search);
	if (r < 0)
		return hl_error_set(err, r, "cannot read /proc: %s", strerror(-r));
	if (!search.count)
		return hl_error_set(err, -ESRCH, "no process is called '%s'", name);
	if (search.count > 1)
		return hl_error_set(err, -EEXIST,
				    "%zu processes are called '%s': %s; name one of them with -p",
				    search.count, name, search.list);
	*ret_pid = search.first.pid;
	return 0;
}
