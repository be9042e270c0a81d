/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks for recordings in the current directory; see newest_recording.h. */
#include "cli/newest_recording.h"

#include "recording/recording_files.h"

#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_later(const struct timespec *time, const struct timespec *than)
{
	return time->tv_sec != than->tv_sec ? time->tv_sec > than->tv_sec
					    : time->tv_nsec > than->tv_nsec;
}

char *hl_newest_recording(void)
{
	char path[NAME_MAX + sizeof("/" HL_META_FILE)];
	struct timespec newest_time = {0};
	char *newest = NULL;
	DIR *here = opendir(".");

	if (!here)
		return NULL;
	for (const struct dirent *entry; (entry = readdir(here));) {
		struct stat status;
		if (fnmatch("*.hl", entry->d_name, FNM_PERIOD) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/" HL_META_FILE, entry->d_name);
		if (stat(path, &status) < 0 || !is_later(&status.st_mtim, &newest_time))
			continue;
		newest_time = status.st_mtim;
		free(newest);
		newest = strdup(entry->d_name);
	}
	closedir(here);
	return newest;
}
