/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads and reads the programs; see oom.h. */
#include "bpf/oom.h"

#include "bpf/privilege.h"

#include "oom.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_PID_NAMESPACE UINT64_C(0xeffffffc) /* linux/proc_ns.h: PROC_PID_INIT_INO */

struct hl_oom {
	struct oom *programs;
	struct ring_buffer *ring;
	hl_oom_record_fn *on_record;
	void *context;
};

static int on_sample(void *context, void *sample, size_t bytes)
{
	const struct hl_oom *oom = context;

	if (bytes >= sizeof(struct hl_oom_record))
		oom->on_record(oom->context, sample);
	return 0;
}

static int load(struct hl_oom *oom, struct hl_error *err)
{
	oom->programs = oom__open_and_load();
	int r = oom->programs ? oom__attach(oom->programs) : -errno;
	if (r == 0)
		oom->ring = ring_buffer__new(bpf_map__fd(oom->programs->maps.records), on_sample,
					     oom, NULL);
	if (r == 0 && !oom->ring)
		r = -errno;
	return r < 0 ? hl_privilege_explain("load the programs that see kills", r, err) : 0;
}

int hl_oom_new(hl_oom_record_fn *on_record, void *context, struct hl_oom **ret_oom,
	       struct hl_error *err)
{
	const struct hl_process_facts self = {.pid = getpid(), .uid = geteuid()};
	struct stat status;

	int r = hl_privilege_check(&self, HL_NEED_BPF, err);
	if (r < 0)
		return r;
	if (stat("/proc/self/ns/pid", &status) < 0 || status.st_ino != FIRST_PID_NAMESPACE)
		return hl_error_set(err, -ENOTSUP,
				    "heapline is in a PID namespace, where processes have other "
				    "numbers; run it on the host, or with the host's ('hostPID')");
	struct hl_oom *oom = calloc(1, sizeof(*oom));
	if (!oom)
		return hl_error_set(err, -ENOMEM, "out of memory");
	oom->on_record = on_record;
	oom->context = context;
	hl_privilege_log_start(NULL);
	r = load(oom, err);
	if (r < 0) {
		hl_oom_free(oom);
		return r;
	}
	*ret_oom = oom;
	return 0;
}

int hl_oom_fd(const struct hl_oom *oom)
{
	return ring_buffer__epoll_fd(oom->ring);
}

void hl_oom_take(struct hl_oom *oom)
{
	ring_buffer__consume(oom->ring);
}

uint64_t hl_oom_lost(const struct hl_oom *oom)
{
	return oom->programs->bss->lost;
}

void hl_oom_free(struct hl_oom *oom)
{
	if (!oom)
		return;
	ring_buffer__free(oom->ring);
	oom__destroy(oom->programs);
	free(oom);
}
