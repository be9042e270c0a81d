/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads and reads the programs; see oom.h. */
#include "bpf/oom.h"

#include "bpf/privilege.h"

#include "oom.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARE_PARTS	    65536		 /* as in oom.bpf.c */
#define FIRST_PID_NAMESPACE UINT64_C(0xeffffffc) /* linux/proc_ns.h: PROC_PID_INIT_INO */

struct hl_oom {
	struct oom *programs;
	struct ring_buffer *ring;
	struct hl_oom_wishes wishes;
	bool sees_passings;
};

static int on_sample(void *context, void *sample, size_t bytes)
{
	const struct hl_oom *oom = context;

	if (bytes >= sizeof(struct hl_oom_record))
		oom->wishes.on_record(oom->wishes.context, sample);
	else
		oom->wishes.on_passing(oom->wishes.context,
				       ((const struct hl_oom_passing *)sample)->inode);
	return 0;
}

/* Who sees that a group is charged; what a kernel lacks, it refuses to load or to attach. */
enum charge_program { CHARGE_ENTRY, CHARGE_PROBE, CHARGE_UNSEEN };

static int load_programs(struct hl_oom *oom, enum charge_program seen_by)
{
	oom__destroy(oom->programs);
	oom->programs = oom__open();
	if (!oom->programs)
		return -errno;
	for (unsigned i = 0; i < HL_OOM_SHARES; i++)
		oom->programs->rodata->shares[i] = (uint32_t)(oom->wishes.shares[i] * SHARE_PARTS);
	bpf_program__set_autoload(oom->programs->progs.charged, seen_by == CHARGE_ENTRY);
	bpf_program__set_autoload(oom->programs->progs.charged_by_probe, seen_by == CHARGE_PROBE);
	oom->sees_passings = seen_by != CHARGE_UNSEEN;
	int r = oom__load(oom->programs);
	return r < 0 ? r : oom__attach(oom->programs);
}

static int load(struct hl_oom *oom, struct hl_error *err)
{
	int r = load_programs(oom, CHARGE_ENTRY);

	for (enum charge_program by = CHARGE_PROBE; r < 0 && by <= CHARGE_UNSEEN; by++)
		r = load_programs(oom, by);
	malloc_trim(0); /* of the kernel's types, which libbpf has read */
	if (r == 0)
		oom->ring = ring_buffer__new(bpf_map__fd(oom->programs->maps.records), on_sample,
					     oom, NULL);
	if (r == 0 && !oom->ring)
		r = -errno;
	return r < 0 ? hl_privilege_explain("load the programs that see kills", r, err) : 0;
}

int hl_oom_new(const struct hl_oom_wishes *wishes, struct hl_oom **ret_oom, struct hl_error *err)
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
	oom->wishes = *wishes;
	hl_privilege_log_start(NULL);
	r = load(oom, err);
	if (r < 0) {
		hl_oom_free(oom);
		return r;
	}
	*ret_oom = oom;
	return 0;
}

bool hl_oom_sees_passings(const struct hl_oom *oom)
{
	return oom->sees_passings;
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
