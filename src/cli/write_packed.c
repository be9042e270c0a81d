/* SPDX-License-Identifier: BSD-2-Clause */
/* From a profile to a file in its place; see write_packed.h. */
#include "cli/write_packed.h"

#include "cli/output_file.h"

int hl_write_packed(const struct hl_profile *profile, const struct hl_pack_log *log,
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
