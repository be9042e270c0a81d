/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges what programs ask for; see mailbox_reader.h. */
#include "collector/mailbox_reader.h"

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
	char link[32], base[PATH_MAX];
	snprintf(link, sizeof(link), "/proc/%d/cwd", pid);
	ssize_t length = readlink(link, base, sizeof(base) - 1);
	if (length > 0 && base[0] == '/') {
		base[length] = '\0';
		if (snprintf(ret_path, PATH_MAX, "%s/%s", base, wanted) < PATH_MAX)
			return 0;
	}
	return hl_error_set(err, -ENOENT,
			    "process %d asked for a report '%s': its path cannot be found", pid,
			    wanted);
}
