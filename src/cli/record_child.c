/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs 'heapline record'; see record_child.h. */
#include "cli/record_child.h"

#include "base/cleanup.h"
#include "base/self.h"
#include "cli/cli.h"

#include <ftw.h>
#include <sys/wait.h>

int hl_record_child_folder(char *folder, size_t size, struct hl_error *err)
{
	const char *parent = getenv("TMPDIR");

	snprintf(folder, size, "%s/heapline-%d-XXXXXX", parent && *parent ? parent : "/tmp",
		 getpid());
	if (mkdtemp(folder))
		return 0;
	int r = -errno;
	return hl_error_set(err, r, "cannot make a folder '%s' for the recording: %s", folder,
			    strerror(-r));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

void hl_record_child_remove(const char *folder)
{
	if (nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0)
		hl_cli_note("cannot remove '%s': %s", folder, strerror(errno));
}

int hl_record_child_start(char *const *command, int count, const char *path,
			  const char *const *options, pid_t *ret_pid)
{
	const char *const words[] = {"heapline", "record", "--quiet", "--output", path};
	size_t used = HL_COUNT_OF(words), more = 0;

	while (options[more])
		more++;
	HL_FREED const char **line = calloc(used + more + (size_t)count + 2, sizeof(*line));
	if (!line)
		return -ENOMEM;
	memcpy(line, words, sizeof(words));
	memcpy(line + used, options, more * sizeof(*line));
	line[used + more] = "--";
	memcpy(line + used + more + 1, command, (size_t)count * sizeof(*line));
	return hl_self_spawn((char **)line, -1, -1, ret_pid);
}

int hl_record_child_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
