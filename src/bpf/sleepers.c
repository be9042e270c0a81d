/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads and reads the iterator; see sleepers.h. */
#include "bpf/sleepers.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "bpf/privilege.h"
#include "bpf/sleepers_shared.h"

#include "sleepers.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_PID_NAMESPACE UINT64_C(0xeffffffc) /* linux/proc_ns.h: PROC_PID_INIT_INO */

/* union bpf_iter_link_info since 6.1, which lists the threads of one process; older kernels list all. */
struct process_filter {
	uint32_t tid, pid, pid_fd;
};

#define READ_RECORDS 64u

struct hl_sleepers {
	struct sleepers *programs;
	struct bpf_link *link;
};

static int link_iterator(struct hl_sleepers *sleepers, pid_t pid)
{
	struct process_filter filter = {.pid = (uint32_t)pid};
	const struct bpf_iter_attach_opts options = {
		.sz = sizeof(options),
		.link_info = (union bpf_iter_link_info *)&filter,
		.link_info_len = sizeof(filter),
	};

	sleepers->link =
		bpf_program__attach_iter(sleepers->programs->progs.list_sleepers, &options);
	if (!sleepers->link)
		sleepers->link =
			bpf_program__attach_iter(sleepers->programs->progs.list_sleepers, NULL);
	return sleepers->link ? 0 : -errno;
}

static int load(struct hl_sleepers *sleepers, pid_t pid)
{
	sleepers->programs = sleepers__open();
	if (!sleepers->programs)
		return -errno;
	sleepers->programs->rodata->process = pid;
	int r = sleepers__load(sleepers->programs);
	return r < 0 ? r : link_iterator(sleepers, pid);
}

/* Whether a BPF program may be tried on ${pid}. */
static int check(pid_t pid)
{
	const struct hl_process_facts facts = {.pid = pid};
	struct hl_error why = {0};
	struct stat status;

	if (stat("/proc/self/ns/pid", &status) < 0)
		return -errno;
	return status.st_ino == FIRST_PID_NAMESPACE ? hl_privilege_check(&facts, HL_NEED_BPF, &why)
						    : -ENOTSUP;
}

int hl_sleepers_new(pid_t pid, struct hl_sleepers **ret_sleepers)
{
	int r = check(pid);

	if (r < 0)
		return r;
	struct hl_sleepers *sleepers = calloc(1, sizeof(*sleepers));
	if (!sleepers)
		return -ENOMEM;
	hl_privilege_log_start(NULL);
	r = load(sleepers, pid);
	if (r < 0) {
		hl_sleepers_free(sleepers);
		return r;
	}
	*ret_sleepers = sleepers;
	return 0;
}

static int compare_tids(const void *left, const void *right)
{
	const struct hl_sleeper *a = left, *b = right;

	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

static int read_all(void *context, struct hl_sleeper **ret_sleepers, size_t *ret_count)
{
	const struct hl_sleepers *sleepers = context;
	HL_FREED struct hl_sleeper *found = NULL;
	size_t count = 0, capacity = 0;
	struct hl_sleeper_record records[READ_RECORDS];
	ssize_t length;

	int fd = bpf_iter_create(bpf_link__fd(sleepers->link)), r = 0;
	if (fd < 0)
		return -errno;
	/* The kernel gives whole records, as many as fit. */
	while (r == 0 && (length = read(fd, records, sizeof(records))) != 0) {
		if (length < 0 && errno == EINTR)
			continue;
		if (length < 0 || (size_t)length % sizeof(*records))
			r = length < 0 ? -errno : -EIO;
		for (size_t i = 0; r == 0 && i < (size_t)length / sizeof(*records); i++) {
			struct hl_sleeper sleeper = {.tid = (pid_t)records[i].tid,
						     .runs = records[i].runs,
						     .switches = records[i].switches};
			memcpy(&sleeper.registers, records[i].registers,
			       sizeof(records[i].registers));
			r = HL_ARRAY_APPEND(found, count, capacity, sleeper);
		}
	}
	close(fd);
	if (r < 0)
		return r;
	if (count)
		qsort(found, count, sizeof(*found), compare_tids);
	*ret_sleepers = HL_TAKE(found);
	*ret_count = count;
	return 0;
}

struct hl_sleeper_source hl_sleepers_source(struct hl_sleepers *sleepers)
{
	return (struct hl_sleeper_source){read_all, sleepers};
}

void hl_sleepers_free(struct hl_sleepers *sleepers)
{
	if (!sleepers)
		return;
	bpf_link__destroy(sleepers->link);
	sleepers__destroy(sleepers->programs);
	free(sleepers);
}
