/* SPDX-License-Identifier: BSD-2-Clause */
/* Brings the recorder in, patches entries, and takes both back; see attach.h. */
#include "hook/attach.h"

#include <errno.h>
#include <stddef.h>

int hl_attach_open(pid_t pid, const struct hl_attach_settings *settings,
		   struct hl_attach **ret_attach, struct hl_error *err)
{
	(void)settings;
	*ret_attach = NULL;
	return hl_error_set(err, -ENOTSUP, "process %d cannot be entered", pid);
}

int hl_attach_bring(struct hl_attach *attach, int *ret_region_fd, struct hl_error *err)
{
	(void)attach;
	*ret_region_fd = -1;
	return hl_error_set(err, -ENOTSUP, "the process cannot be entered");
}

int hl_attach_patch(struct hl_attach *attach, uint64_t region_bytes, struct hl_error *err)
{
	(void)attach;
	(void)region_bytes;
	return hl_error_set(err, -ENOTSUP, "the process cannot be entered");
}

int hl_attach_detach(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err)
{
	(void)attach;
	(void)wait_ms;
	return hl_error_set(err, -ENOTSUP, "the process cannot be entered");
}

struct hl_attach_times hl_attach_times(const struct hl_attach *attach)
{
	(void)attach;
	return (struct hl_attach_times){0};
}

void hl_attach_free(struct hl_attach *attach)
{
	(void)attach;
}
