/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes uprobe links by bpf(2) and perf_event_open(2); see probe.h. */
#include "bpf/probe.h"

#include "base/array.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MULTI_RETURN 1u /* BPF_F_UPROBE_MULTI_RETURN */

/*
 * BPF_LINK_CREATE's part of union bpf_attr as kernels from 6.6 have it (include/uapi/linux/bpf.h):
 * longer than in the headers of the distribution.
 */
struct multi_link_attributes {
	uint32_t program_fd;
	uint32_t target_fd;
	uint32_t attach_type;
	uint32_t link_flags;
	uint64_t path;
	uint64_t offsets;
	uint64_t reference_counters;
	uint64_t cookies;
	uint32_t count;
	uint32_t flags;
	uint32_t pid;
	uint32_t reserved;
};

/* A descriptor, or a negative errno. */
static int bpf_call(enum bpf_cmd command, const void *attributes, size_t bytes)
{
	long fd = syscall(SYS_bpf, command, attributes, bytes);

	return fd < 0 ? -errno : (int)fd;
}

const char *hl_probe_link_way_name(enum hl_probe_way way)
{
	static const char *const names[] = {"perf", "multi", "session"};

	return names[way];
}

enum hl_probe_attach_type hl_probe_link_attach_type(enum hl_probe_way way)
{
	static const enum hl_probe_attach_type types[] = {HL_ATTACH_PERF, HL_ATTACH_MULTI,
							  HL_ATTACH_SESSION};

	return types[way];
}

/* What the kernel says to a probe in a file that has no code: -EBADF when all else is right. */
static int answer_to_link(enum hl_probe_way way, int program_fd, pid_t pid)
{
	const uint64_t offset = 0;
	struct multi_link_attributes attributes = {
		.program_fd = (uint32_t)program_fd,
		.attach_type = hl_probe_link_attach_type(way),
		.path = (uint64_t)(uintptr_t) "/",
		.offsets = (uint64_t)(uintptr_t)&offset,
		.count = 1,
		.pid = (uint32_t)pid,
	};

	return bpf_call(BPF_LINK_CREATE, &attributes, sizeof(attributes));
}

/* Loads a program that does nothing: a descriptor or a negative errno. */
static int load_nothing(enum hl_probe_way way)
{
	static const struct bpf_insn code[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attributes = {
		.prog_type = BPF_PROG_TYPE_KPROBE,
		.insns = (uint64_t)(uintptr_t)code,
		.insn_cnt = HL_COUNT_OF(code),
		.license = (uint64_t)(uintptr_t) "Dual BSD/GPL",
		.expected_attach_type = hl_probe_link_attach_type(way),
	};

	return bpf_call(BPF_PROG_LOAD, &attributes, sizeof(attributes));
}

/* Asks the kernel what it would do with such a program. */
static bool way_works(enum hl_probe_way way)
{
	int program_fd = load_nothing(way);

	if (program_fd < 0)
		return false;
	/* Kernels that match only the main thread do not look at the process id before the
	 * path. */
	bool works = answer_to_link(way, program_fd, 0) == -EBADF &&
		     answer_to_link(way, program_fd, -1) == -EINVAL;
	close(program_fd);
	return works;
}

int hl_probe_link_check(void)
{
	int program_fd = load_nothing(HL_PROBE_PERF);

	if (program_fd < 0)
		return program_fd;
	close(program_fd);
	return 0;
}

enum hl_probe_way hl_probe_link_best_way(void)
{
	if (way_works(HL_PROBE_SESSION))
		return HL_PROBE_SESSION;
	return way_works(HL_PROBE_MULTI) ? HL_PROBE_MULTI : HL_PROBE_PERF;
}

/* One link for all sites. */
static int link_multi(enum hl_probe_way way, int program_fd, bool at_return,
		      const struct hl_probe_target *target)
{
	uint64_t *numbers = calloc(2 * target->site_count, sizeof(*numbers));
	uint64_t *cookies = numbers + target->site_count;

	if (!numbers)
		return -ENOMEM;
	for (size_t i = 0; i < target->site_count; i++) {
		numbers[i] = target->sites[i].offset;
		cookies[i] = target->sites[i].cookie;
	}
	struct multi_link_attributes attributes = {
		.program_fd = (uint32_t)program_fd,
		.attach_type = hl_probe_link_attach_type(way),
		.path = (uint64_t)(uintptr_t)target->path,
		.offsets = (uint64_t)(uintptr_t)numbers,
		.cookies = (uint64_t)(uintptr_t)cookies,
		.count = (uint32_t)target->site_count,
		.flags = at_return ? MULTI_RETURN : 0,
		.pid = (uint32_t)target->pid,
	};
	int fd = bpf_call(BPF_LINK_CREATE, &attributes, sizeof(attributes));
	free(numbers);
	return fd;
}

/* A number at the end of one of perf's files about uprobes: "8", "config:0". */
static int read_perf_number(const char *path, const char *format)
{
	int number = -1;
	FILE *file = fopen(path, "re");

	if (!file)
		return -errno;
	if (fscanf(file, format, &number) != 1)
		number = -EINVAL;
	fclose(file);
	return number;
}

/* The link holds on to the event. */
static int link_perf(int program_fd, bool at_return, const struct hl_probe_target *target,
		     const struct hl_probe_site *site)
{
	int type = read_perf_number("/sys/bus/event_source/devices/uprobe/type", "%d");
	int return_bit = read_perf_number("/sys/bus/event_source/devices/uprobe/format/retprobe",
					  "config:%d");

	if (type < 0 || return_bit < 0 || return_bit > 63)
		return type < 0 ? type : -EINVAL;
	struct perf_event_attr event = {
		.size = sizeof(event),
		.type = (uint32_t)type,
		.config = at_return ? UINT64_C(1) << return_bit : 0,
		.uprobe_path = (uint64_t)(uintptr_t)target->path,
		.probe_offset = site->offset,
	};
	int event_fd = (int)syscall(SYS_perf_event_open, &event, target->pid, -1, -1,
				    PERF_FLAG_FD_CLOEXEC);
	if (event_fd < 0)
		return -errno;
	union bpf_attr attributes = {
		.link_create =
			{
				.prog_fd = (uint32_t)program_fd,
				.target_fd = (uint32_t)event_fd,
				.attach_type = BPF_PERF_EVENT,
				.perf_event = {.bpf_cookie = site->cookie},
			},
	};
	int link_fd = bpf_call(BPF_LINK_CREATE, &attributes, sizeof(attributes));
	if (link_fd >= 0 && ioctl(event_fd, PERF_EVENT_IOC_ENABLE, 0) < 0) {
		int error = errno;
		close(link_fd);
		link_fd = -error;
	}
	close(event_fd);
	return link_fd;
}

int hl_probe_links_add(struct hl_probe_links *links, enum hl_probe_way way, int program_fd,
		       bool at_return, const struct hl_probe_target *target, struct hl_error *err)
{
	size_t wanted = way == HL_PROBE_PERF ? target->site_count : target->site_count > 0;
	int r = HL_ARRAY_RESERVE(links->fds, links->capacity, links->count + wanted);

	for (size_t i = 0; r == 0 && i < wanted; i++) {
		int fd = way == HL_PROBE_PERF
				 ? link_perf(program_fd, at_return, target, &target->sites[i])
				 : link_multi(way, program_fd, at_return, target);
		if (fd < 0)
			r = fd;
		else
			links->fds[links->count++] = fd;
	}
	if (r == -EPERM || r == -EACCES)
		return hl_error_set(err, r,
				    "cannot set probes in '%s' of process '%d': not permitted; "
				    "become root%s",
				    target->path, (int)target->pid,
				    way == HL_PROBE_PERF
					    ? ", which this kernel asks for"
					    : " or grant CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE");
	if (r == -ESRCH)
		return hl_error_set(err, r, "cannot set probes in process '%d': it has ended",
				    (int)target->pid);
	if (r < 0)
		return hl_error_set(err, r, "cannot set probes in '%s' of process '%d': %s",
				    target->path, (int)target->pid, strerror(-r));
	return 0;
}

static void *close_link(void *fd)
{
	close((int)(intptr_t)fd);
	return NULL;
}

void hl_probe_links_release(struct hl_probe_links *links)
{
	pthread_t *threads = calloc(links->count + 1, sizeof(*threads));
	size_t started = 0;

	for (size_t i = 0; i < links->count; i++) {
		void *fd = (void *)(intptr_t)links->fds[i];
		if (threads && pthread_create(&threads[started], NULL, close_link, fd) == 0)
			started++;
		else
			close_link(fd);
	}
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	free(links->fds);
	*links = (struct hl_probe_links){0};
}
