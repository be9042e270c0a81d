/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds out what traces may do here; see privilege.h. */
#include "bpf/privilege.h"

#include "base/compiler.h"
#include "base/self.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* bpf_loop, on which the stack walker is built. */
#define KERNEL_MAJOR_MIN 5u
#define KERNEL_MINOR_MIN 17u

#define CAPABILITY(number) (UINT64_C(1) << (number))
#define LIST_MAX	   160
#define LIBBPF_PREFIX	   "libbpf: "

static const struct {
	unsigned number;
	const char *name;  /* as setcap knows it */
	const char *title; /* as manuals do */
} capabilities[] = {
	{CAP_BPF, "cap_bpf", "CAP_BPF"},
	{CAP_PERFMON, "cap_perfmon", "CAP_PERFMON"},
	{CAP_SYS_PTRACE, "cap_sys_ptrace", "CAP_SYS_PTRACE"},
	{CAP_DAC_READ_SEARCH, "cap_dac_read_search", "CAP_DAC_READ_SEARCH"},
	{CAP_SYS_ADMIN, "cap_sys_admin", "CAP_SYS_ADMIN"},
};

/* ---- what we have ---- */

/* The first line of a file, or ""; whether there is the file. */
static bool read_line(const char *path, char *line, size_t capacity)
{
	line[0] = '\0';
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(line, (int)capacity, file))
		line[0] = '\0';
	fclose(file);
	return true;
}

void hl_privilege_read(struct hl_privileges *ret_privileges)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {0};
	struct utsname system;
	struct hl_privileges privileges = {
		.uid = geteuid(),
		.has_btf = access("/sys/kernel/btf/vmlinux", R_OK) == 0,
		.program = "heapline",
	};
	unsigned inside, outside, count;
	char line[128];

	if (syscall(SYS_capget, &header, sets) == 0)
		privileges.capabilities = sets[0].effective | (uint64_t)sets[1].effective << 32;
	/* The first namespace maps every id to itself. */
	privileges.in_user_namespace = read_line("/proc/self/uid_map", line, sizeof(line)) &&
				       (sscanf(line, "%u %u %u", &inside, &outside, &count) != 3 ||
					inside || outside || count != UINT32_MAX);
	read_line("/sys/kernel/security/lockdown", line, sizeof(line));
	if (strstr(line, "[confidentiality]"))
		privileges.lockdown = HL_LOCKDOWN_CONFIDENTIALITY;
	else if (strstr(line, "[integrity]"))
		privileges.lockdown = HL_LOCKDOWN_INTEGRITY;
	uname(&system);
	sscanf(system.release, "%u.%u", &privileges.kernel_major, &privileges.kernel_minor);
	if (!hl_self_path(privileges.program))
		strcpy(privileges.program, "heapline");
	*ret_privileges = privileges;
}

/* ---- whether it is enough ---- */

static uint64_t missing_capabilities(const struct hl_privileges *privileges,
				     const struct hl_process_facts *target, unsigned needs)
{
	bool is_own = target->uid == privileges->uid;
	uint64_t wanted = 0, held = privileges->capabilities;

	if (needs & HL_NEED_BPF)
		wanted |= CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON);
	if (needs & (HL_NEED_TARGET | HL_NEED_PAGEMAP) && !is_own)
		wanted |= CAPABILITY(CAP_SYS_PTRACE);
	if (needs & HL_NEED_PAGEMAP && !is_own)
		wanted |= CAPABILITY(CAP_DAC_READ_SEARCH);
	if (needs & HL_NEED_PERF_UPROBES)
		wanted |= CAPABILITY(CAP_SYS_ADMIN);
	/* It stands for the two that were once part of it. */
	if (held & CAPABILITY(CAP_SYS_ADMIN))
		held |= CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON);
	return wanted & ~held;
}

static int refuse(const struct hl_privileges *privileges, const struct hl_process_facts *target,
		  uint64_t missing, struct hl_error *err)
{
	char titles[LIST_MAX] = "", names[LIST_MAX] = "";
	const char *verb = missing & (missing - 1) ? "are" : "is";
	/* setcap replaces them all: those that are there already must be in its list. */
	uint64_t set = missing | privileges->capabilities, left = missing;
	size_t named = 0, titled = 0; /* letters */

	for (size_t i = 0; i < HL_COUNT_OF(capabilities); i++) {
		uint64_t capability = CAPABILITY(capabilities[i].number);
		if (set & capability)
			named += (size_t)snprintf(names + named, LIST_MAX - named, "%s%s",
						  named ? "," : "", capabilities[i].name);
		left &= ~capability;
		if (missing & capability)
			titled += (size_t)snprintf(titles + titled, LIST_MAX - titled, "%s%s",
						   !titled ? ""
						   : left  ? ", "
							   : " and ",
						   capabilities[i].title);
	}
	if (privileges->uid == 0)
		return hl_error_set(err, -EPERM,
				    "cannot trace process '%d': %s %s missing, although heapline "
				    "runs as root; give its container these capabilities, or run "
				    "heapline outside it",
				    target->pid, titles, verb);
	return hl_error_set(err, -EPERM,
			    "cannot trace process '%d': %s %s missing; run heapline as root, or "
			    "once 'sudo setcap %s+ep %s'",
			    target->pid, titles, verb, names, privileges->program);
}

int hl_privilege_suffices(const struct hl_privileges *privileges,
			  const struct hl_process_facts *target, unsigned needs,
			  struct hl_error *err)
{
	uint64_t missing = missing_capabilities(privileges, target, needs);

	/* What no capability helps against comes first. */
	if (privileges->kernel_major < KERNEL_MAJOR_MIN ||
	    (privileges->kernel_major == KERNEL_MAJOR_MIN &&
	     privileges->kernel_minor < KERNEL_MINOR_MIN))
		return hl_error_set(err, -ENOTSUP,
				    "cannot trace on kernel %u.%u: %u.%u or newer is needed; use "
				    "'heapline record' there",
				    privileges->kernel_major, privileges->kernel_minor,
				    KERNEL_MAJOR_MIN, KERNEL_MINOR_MIN);
	if (!privileges->has_btf)
		return hl_error_set(err, -ENOTSUP,
				    "cannot trace here: the kernel does not describe its types in "
				    "'/sys/kernel/btf/vmlinux'; boot one that was built with "
				    "CONFIG_DEBUG_INFO_BTF, or mount /sys");
	if (privileges->lockdown == HL_LOCKDOWN_CONFIDENTIALITY)
		return hl_error_set(err, -EPERM,
				    "cannot trace here: the kernel is locked down "
				    "(confidentiality), so that programs may not read memory; boot "
				    "with 'lockdown=integrity' or without Secure Boot");
	if (privileges->in_user_namespace)
		return hl_error_set(err, -EPERM,
				    "cannot trace process '%d': heapline runs in a user namespace, "
				    "where capabilities do not count; run it on the host",
				    target->pid);
	return missing ? refuse(privileges, target, missing, err) : 0;
}

int hl_privilege_check(const struct hl_process_facts *target, unsigned needs, struct hl_error *err)
{
	struct hl_privileges privileges;

	hl_privilege_read(&privileges);
	return hl_privilege_suffices(&privileges, target, needs, err);
}

/* ---- what went wrong all the same ---- */

static void (*listener)(const char *line);
static char complaint[256];
/* The last sentence of the verifier's log, after which come its statistics; "": it said nothing. */
static char verdict[256];

/* Lines that libbpf puts around the verifier's log, and statistics at its end. */
static bool is_beside_verdict(const char *line)
{
	static const char *const starts[] = {"libbpf: ",     "-- ",
					     "processed ",   "verification time ",
					     "stack depth ", "max_states_per_insn "};

	for (size_t i = 0; i < HL_COUNT_OF(starts); i++)
		if (!strncmp(line, starts[i], strlen(starts[i])))
			return true;
	return false;
}

static int on_message(enum libbpf_print_level level, const char *format, va_list arguments)
{
	char *message, *rest;

	int length = vasprintf(&message, format, arguments);
	if (length < 0)
		return 0;
	if (level == LIBBPF_WARN && !complaint[0]) {
		const char *text = message;
		if (!strncmp(text, LIBBPF_PREFIX, strlen(LIBBPF_PREFIX)))
			text += strlen(LIBBPF_PREFIX);
		snprintf(complaint, sizeof(complaint), "%.*s", (int)strcspn(text, "\n"), text);
	}
	/* A message may hold many lines: the verifier's log is one. */
	bool is_log = strstr(message, "-- BEGIN PROG LOAD LOG --") != NULL;
	for (char *line = strtok_r(message, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (listener)
			listener(line);
		if (is_log && !is_beside_verdict(line))
			snprintf(verdict, sizeof(verdict), "%s", line);
	}
	free(message);
	return length;
}

void hl_privilege_log_start(void (*say)(const char *line))
{
	listener = say;
	hl_privilege_log_forget();
	libbpf_set_print(on_message);
}

void hl_privilege_log_forget(void)
{
	complaint[0] = '\0';
	verdict[0] = '\0';
}

static const char *remedy_of(int code)
{
	switch (code) {
	case -EPERM:
	case -EACCES:
		return "a container or a security module may forbid it: try on the host, as root";
	case -ENOMEM:
	case -E2BIG:
		return "there is not enough memory: make the tables smaller";
	case -ENOSYS:
	case -ENOTSUP:
	case -EINVAL:
		return "the kernel may lack what it takes: --verbose shows what it says";
	case -ESRCH:
	case -ENOENT:
		return "the process may have ended";
	default:
		return "--verbose shows more";
	}
}

int hl_privilege_explain(const char *what, int code, struct hl_error *err)
{
	if (*verdict)
		return hl_error_set(err, code,
				    "cannot %s: the kernel's verifier refuses them (%s); "
				    "'heapline attach' does not need them",
				    what, verdict);
	return hl_error_set(err, code, "cannot %s: %s%s%s%s; %s", what, strerror(-code),
			    *complaint ? " (" : "", complaint, *complaint ? ")" : "",
			    remedy_of(code));
}
