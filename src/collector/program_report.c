/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges what programs ask for; see program_report.h. */
#include "collector/program_report.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The line `Uid:` of proc(5) has the real, effective, saved and file system user; the owner of
 * /proc/PID would not do: it is root once the process has changed its user. */
static bool has_our_rights(pid_t pid)
{
	char path[32], line[128];
	unsigned ids[4];
	bool same = false;
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Uid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
			continue;
		same = ids[0] == geteuid() && ids[1] == ids[0] && ids[2] == ids[0] &&
		       ids[3] == ids[0];
		break;
	}
	fclose(file);
	return same;
}

/* Puts the process' working directory before ${wanted}. False: there is no such path. */
static bool make_absolute(pid_t pid, const char *wanted, char ret_path[PATH_MAX])
{
	char link[32], base[PATH_MAX];
	snprintf(link, sizeof(link), "/proc/%d/cwd", pid);
	ssize_t length = readlink(link, base, sizeof(base) - 1);
	if (length <= 0 || base[0] != '/')
		return false;
	base[length] = '\0';
	return snprintf(ret_path, PATH_MAX, "%s/%s", base, wanted) < PATH_MAX;
}

int hl_program_report_path(pid_t pid, const char *wanted, char ret_path[PATH_MAX],
			   struct hl_error *err)
{
	if (!has_our_rights(pid))
		return hl_error_set(err, -EPERM,
				    "process %d asked for a report '%s': refused, because it runs "
				    "as another user than the collector",
				    pid, wanted);
	if (wanted[0] == '/' && strlen(wanted) < PATH_MAX) {
		strcpy(ret_path, wanted);
		return 0;
	}
	if (make_absolute(pid, wanted, ret_path))
		return 0;
	return hl_error_set(err, -ENOENT,
			    "process %d asked for a report '%s': its path cannot be found", pid,
			    wanted);
}
