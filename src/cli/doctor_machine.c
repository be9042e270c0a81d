/* SPDX-License-Identifier: BSD-2-Clause */
/* What this machine and this user's rights allow; see doctor.h. */
#include "cli/doctor.h"

#include "base/cleanup.h"
#include "bpf/heap_trace.h"
#include "bpf/page_trace.h"
#include "bpf/privilege.h"
#include "collector/examine.h"
#include "collector/launch.h"
#include "process/pagemap.h"
#include "view/format.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>

/* A number in a file of /proc; -1 when there is none. */
static int read_setting(const char *path)
{
	int number;
	FILE *file = fopen(path, "re");

	if (!file || fscanf(file, "%d", &number) != 1)
		number = -1;
	if (file)
		fclose(file);
	return number;
}

static int try_stacks(const struct hl_process_facts *facts, struct hl_error *err)
{
	int r = hl_privilege_check(facts, HL_NEED_BPF | HL_NEED_TARGET, err);

	if (r < 0)
		return r;
	hl_privilege_log_start(NULL);
	r = hl_heap_program_try(err);
	return r == HL_PROBE_PERF ? hl_privilege_check(facts, HL_NEED_PERF_UPROBES, err) : r;
}

static int try_pgfault(const struct hl_process_facts *facts, struct hl_error *err)
{
	const struct hl_page_watch_settings settings = {.pid = getpid(), .without_calls = true};
	struct hl_page_watch *watch = NULL;
	int r = hl_privilege_check(facts, HL_NEED_BPF | HL_NEED_TARGET | HL_NEED_PAGEMAP, err);

	if (r < 0)
		return r;
	hl_privilege_log_start(NULL);
	r = hl_page_watch_start(&settings, NULL, NULL, &watch, err);
	hl_page_watch_free(watch);
	return r;
}

const struct hl_doctor_trace hl_doctor_traces[HL_DOCTOR_TRACES] = {
	{"stacks", try_stacks},
	{"pgfault", try_pgfault},
};

/* ---- facts ---- */

static void say_rights(struct hl_doctor *doctor, const struct hl_privileges *rights)
{
	static const struct {
		unsigned number;
		const char *name;
	} names[] = {{CAP_BPF, "CAP_BPF"},
		     {CAP_PERFMON, "CAP_PERFMON"},
		     {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
		     {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}};
	char list[128] = "";
	size_t length = 0;

	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		if (rights->capabilities & UINT64_C(1) << names[i].number)
			length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
						   length ? ", " : "", names[i].name);
	hl_doctor_say(doctor, "machine", "rights", "user %u with %s%s", rights->uid,
		      list[0] ? list : "none of the capabilities that traces need",
		      rights->in_user_namespace ? "; in a user namespace, outside of which they do "
						  "not count"
						: "");
}

static void say_kernel(struct hl_doctor *doctor, const struct hl_privileges *rights)
{
	struct hl_process_condition self;
	struct hl_pagemap *pagemap;
	struct utsname system;
	struct hl_error err = {0};

	uname(&system);
	hl_doctor_say(doctor, "machine", "kernel", "Linux %s%s%s", system.release,
		      rights->has_btf ? "" : "; it does not describe its types (BTF)",
		      rights->lockdown == HL_LOCKDOWN_CONFIDENTIALITY
			      ? "; it is locked down (confidentiality)"
			      : "");
	int r = hl_probe_link_check();
	if (r == 0)
		hl_doctor_say(doctor, "machine", "BPF", "programs load; %s probes",
			      hl_probe_link_way_name(hl_probe_link_best_way()));
	else
		hl_doctor_say(doctor, "machine", "BPF",
			      "programs do not load: %s; kernel.unprivileged_bpf_disabled is %d, "
			      "kernel.perf_event_paranoid %d",
			      strerror(-r),
			      read_setting("/proc/sys/kernel/unprivileged_bpf_disabled"),
			      read_setting("/proc/sys/kernel/perf_event_paranoid"));
	if (hl_pagemap_open(getpid(), &pagemap, &err) == 0) {
		hl_doctor_say(doctor, "machine", "pages in memory", "told by %s",
			      hl_pagemap_method(pagemap));
		hl_pagemap_free(pagemap);
	}
	if (hl_process_condition_read(getpid(), &self, &err) == 0 && self.seccomp_mode)
		hl_doctor_say(doctor, "machine", "seccomp",
			      "a filter restricts heapline's own system calls");
	int scope = read_setting("/proc/sys/kernel/yama/ptrace_scope");
	if (scope > 0)
		hl_doctor_say(doctor, "machine", "kernel.yama.ptrace_scope",
			      "%d: the memory of processes that heapline did not start can be read "
			      "%s",
			      scope, scope < 3 ? "by root alone" : "by nobody");
}

static void say_limits(struct hl_doctor *doctor)
{
	static const struct {
		enum __rlimit_resource resource;
		const char *name;
		uint64_t enough;
	} limits[] = {{RLIMIT_AS, "address space (ulimit -v)", UINT64_C(512) << 20},
		      {RLIMIT_DATA, "data (ulimit -d)", UINT64_C(512) << 20},
		      {RLIMIT_NOFILE, "open files (ulimit -n)", 64}};
	struct rlimit limit;

	for (size_t i = 0; i < HL_COUNT_OF(limits); i++)
		if (getrlimit(limits[i].resource, &limit) == 0 && limit.rlim_cur < limits[i].enough)
			hl_doctor_say(doctor, "machine", limits[i].name,
				      "limited to %llu, which is little",
				      (unsigned long long)limit.rlim_cur);
}

static void say_tools(struct hl_doctor *doctor)
{
	char path[PATH_MAX];
	struct hl_error err = {0};
	const char *servers = getenv("DEBUGINFOD_URLS");

	if (hl_examine_find("dot", path, sizeof(path), &err) == 0)
		hl_doctor_say(doctor, "machine", "graphs", "drawn by '%s'", path);
	else
		hl_doctor_say(
			doctor, "machine", "graphs",
			"there is no 'dot'; install graphviz, or use 'heapline graph --format "
			"dot'");
	hl_doctor_say(doctor, "machine", "debuginfod", "%s",
		      servers && servers[0] ? servers
					    : "DEBUGINFOD_URLS is not set: names come from files "
					      "on this machine alone");
}

void hl_doctor_look_at_machine(struct hl_doctor *doctor)
{
	struct hl_privileges rights;

	hl_privilege_read(&rights);
	say_kernel(doctor, &rights);
	say_rights(doctor, &rights);
	say_limits(doctor);
	say_tools(doctor);
}

/* ---- ways ---- */

int hl_doctor_try_recording(struct hl_error *err)
{
	char recorder[PATH_MAX];
	int r = hl_preload_find(HL_PRELOAD_RECORDER, recorder, sizeof(recorder), err);

	if (r < 0)
		return r;
	HL_CLOSED int fd = memfd_create("heapline-doctor", MFD_CLOEXEC);
	return fd < 0 ? hl_error_set(err, -errno,
				     "cannot share memory with programs: %s; see "
				     "vm.memfd_noexec and the filters of the "
				     "container",
				     strerror(errno))
		      : 0;
}

void hl_doctor_judge_machine(struct hl_doctor *doctor)
{
	struct hl_process_facts self = {0};
	struct hl_error err = {0};
	struct hl_privileges rights;
	int scope = read_setting("/proc/sys/kernel/yama/ptrace_scope");

	int r = hl_doctor_try_recording(&err);
	if (r < 0)
		hl_doctor_refuse(doctor, "record", r, &err, "");
	else
		hl_doctor_add(doctor, "record", HL_DOCTOR_YES, "heapline record -- COMMAND");
	err = (struct hl_error){0};
	r = hl_process_facts_read(getpid(), &self, &err);
	for (size_t i = 0; i < HL_DOCTOR_TRACES; i++) {
		const char *name = hl_doctor_traces[i].name;
		int possible = r < 0 ? r : hl_doctor_traces[i].try(&self, &err);
		if (possible < 0)
			hl_doctor_refuse(doctor, name, possible, &err, "");
		else
			hl_doctor_add(doctor, name, HL_DOCTOR_YES, "heapline %s -p PID 60", name);
		err = r < 0 ? err : (struct hl_error){0};
	}
	hl_process_facts_release(&self);
	hl_privilege_read(&rights);
	bool is_root = rights.capabilities & UINT64_C(1) << CAP_SYS_PTRACE;
	static const char *const by_memory[] = {"attach", "heap"};
	for (size_t i = 0; i < HL_COUNT_OF(by_memory); i++) {
		struct hl_doctor_way *way = hl_doctor_add(
			doctor, by_memory[i],
			is_root	    ? HL_DOCTOR_YES
			: scope < 1 ? HL_DOCTOR_PARTLY
				    : HL_DOCTOR_NO,
			"%sheapline %s -p PID", is_root || scope < 1 ? "" : "sudo ", by_memory[i]);
		if (!is_root)
			snprintf(way->reason, sizeof(way->reason), "%s",
				 scope < 1 ? "of this user's processes; those of others need root"
					   : "kernel.yama.ptrace_scope keeps the memory of other "
					     "processes from those who are not root");
	}
}
