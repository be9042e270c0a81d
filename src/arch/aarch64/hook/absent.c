/* SPDX-License-Identifier: BSD-2-Clause */
/* What enters running processes is not there for this machine yet: see hook/attach.h. */
#include "hook/attach.h"

#include <errno.h>
#include <stddef.h>

static int refuse(struct hl_error *err)
{
	return hl_error_set(
		err, -ENOTSUP,
		"attach is not available on aarch64 yet; start the program by 'heapline record'");
}

int hl_attach_open(pid_t pid, const struct hl_attach_settings *settings,
		   struct hl_attach **ret_attach, struct hl_error *err)
{
	(void)pid, (void)settings, (void)ret_attach;
	return refuse(err);
}

int hl_attach_catch(pid_t child, struct hl_error *err)
{
	(void)child;
	return refuse(err);
}

int hl_attach_open_caught(pid_t child, const struct hl_attach_settings *settings,
			  struct hl_attach **ret_attach, struct hl_error *err)
{
	(void)child, (void)settings, (void)ret_attach;
	return refuse(err);
}

/* Nobody has what the others are called with. */

int hl_attach_bring(struct hl_attach *attach, int *ret_region_fd, struct hl_error *err)
{
	(void)attach, (void)ret_region_fd;
	return refuse(err);
}

int hl_attach_patch(struct hl_attach *attach, uint64_t region_bytes, struct hl_error *err)
{
	(void)attach, (void)region_bytes;
	return refuse(err);
}

int hl_attach_detach(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err)
{
	(void)attach, (void)wait_ms;
	return refuse(err);
}

int hl_attach_follow(struct hl_attach *attach)
{
	(void)attach;
	return -ENOTSUP;
}

bool hl_attach_next_child(struct hl_attach *attach, struct hl_attach_child *ret_child)
{
	(void)attach, (void)ret_child;
	return false;
}

void hl_attach_answer_child(struct hl_attach *attach, const struct hl_attach_child *child,
			    bool has_region)
{
	(void)attach, (void)child, (void)has_region;
}

static void say_nothing(char *ret_text, size_t capacity)
{
	if (capacity)
		ret_text[0] = '\0';
}

void hl_attach_unseen(const struct hl_attach *attach, bool is_recorded, char *ret_text,
		      size_t capacity)
{
	(void)attach, (void)is_recorded;
	say_nothing(ret_text, capacity);
}

void hl_attach_late_problem(const struct hl_attach *attach, char *ret_text, size_t capacity)
{
	(void)attach;
	say_nothing(ret_text, capacity);
}

void hl_attach_awaited(const struct hl_attach *attach, char *ret_text, size_t capacity)
{
	(void)attach;
	say_nothing(ret_text, capacity);
}

void hl_attach_pools(const struct hl_attach *attach, char *ret_text, size_t capacity)
{
	(void)attach;
	say_nothing(ret_text, capacity);
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
