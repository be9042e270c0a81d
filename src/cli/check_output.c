/* SPDX-License-Identifier: BSD-2-Clause */
/* Refuses to overwrite by mistake; see check_output.h. */
#include "cli/check_output.h"

#include <errno.h>
#include <sys/stat.h>

int hl_check_output(const char *path, bool force, struct hl_error *err)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return 0;
	if (!S_ISREG(status.st_mode))
		return hl_error_set(err, -EEXIST,
				    "cannot write '%s': it is not a regular file; name another one "
				    "with -o",
				    path);
	if (force)
		return 0;
	return hl_error_set(err, -EEXIST, "cannot write '%s': it exists; -f overwrites it", path);
}
