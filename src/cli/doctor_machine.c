/* SPDX-License-Identifier: BSD-2-Clause */
/* What this machine and this user's rights allow, and traces by BPF; see doctor.h. */
#include "base/cleanup.h"
#include "base/names.h"
#include "bpf/heap_trace.h"
#include "bpf/page_trace.h"
#include "bpf/privilege.h"
#include "cli/doctor.h"
#include "collector/collector.h"
#include "elf/elf.h"
#include "heap/glibc.h"
#include "process/maps.h"
#include "view/format.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>

/* ---- whether a process can be traced from outside, and what its stacks will show ---- */

#define UNWOUND_PERCENT_MIN 50 /* else stacks are called partial */

struct trace {
	struct hl_doctor *doctor;
	const struct hl_process_facts *facts;
	int pid;
	unsigned unwound_percent; /* of its code */
	int recorded;		  /* 0: it is; -ENODATA: in mode 'closed' */
};

/* ---- code ---- */

/* What stacks can be named and unwound by, of each file with code. */
struct code {
	uint64_t bytes, covered_bytes, anonymous_bytes;
	uint32_t files[HL_ELF_NAMES_LINES + 1]; /* by their best names */
};

static void add_code(const struct hl_maps *maps, const struct hl_target *target, size_t index,
		     bool *seen, struct code *code)
{
	const struct hl_target_mapping *mapping = &target->mappings[index];
	const struct hl_map *map = hl_maps_find(maps, mapping->start);

	if (!map || map->flags & HL_MAP_RECORDER)
		return;
	code->bytes += mapping->end - mapping->start;
	code->covered_bytes += hl_target_covered_bytes(target, index);
	if (!map->inode) {
		code->anonymous_bytes +=
			strcmp(map->path, "[vdso]") ? mapping->end - mapping->start : 0;
		return;
	}
	if (mapping->module == HL_MODULE_NONE || mapping->module > target->module_count ||
	    seen[mapping->module])
		return;
	seen[mapping->module] = true;
	const struct hl_recording_module *module = &target->modules[mapping->module - 1];
	HL_CLOSED int fd = hl_maps_open_file(target->pid, map);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	code->files[hl_elf_names(elf, module->build_id, module->build_id_bytes)]++;
}

HL_DEFINE_FREE_AT(struct hl_target, hl_target_free)

/* ${files}: how many there are, by their best names. */
static void say_names(struct hl_doctor *doctor, const uint32_t files[HL_ELF_NAMES_LINES + 1])
{
	static const char *const kinds[] = {
		[HL_ELF_NAMES_LINES] = "source lines",
		[HL_ELF_NAMES_ALL] = "all functions",
		[HL_ELF_NAMES_EXPORTED] = "exported functions alone",
		[HL_ELF_NAMES_NONE] = "nothing",
	};
	char list[160] = "";
	size_t length = 0;

	for (size_t i = HL_COUNT_OF(kinds); i-- > 0;)
		if (files[i])
			length += (size_t)snprintf(list + length, sizeof(list) - length,
						   "%s%s of %u file%s", length ? ", " : "",
						   kinds[i], files[i], hl_format_plural(files[i]));
	hl_doctor_say(doctor, "target", "names", "%s%s", list,
		      files[HL_ELF_NAMES_EXPORTED] + files[HL_ELF_NAMES_NONE]
			      ? "; debug packages (-dbgsym) or DEBUGINFOD_URLS bring the others"
			      : "");
}

/* Returns the percentage of code that stacks can be unwound through; 100 where it is not known. */
static unsigned say_code(struct hl_doctor *doctor, int pid, const struct hl_maps *maps)
{
	HL_CLEANUP(hl_target_free_at) struct hl_target *target = NULL;
	struct code code = {0};

	if (!maps->count || hl_maps_are_32_bit(maps) || hl_target_new(pid, NULL, &target, NULL) < 0)
		return 100;
	HL_FREED bool *seen = calloc(target->module_count + 1, sizeof(*seen));
	for (size_t i = 0; seen && i < target->mapping_count; i++)
		add_code(maps, target, i, seen, &code);
	if (!code.bytes)
		return 100;
	char size[HL_FORMAT_MAX], share[HL_FORMAT_MAX], anonymous[HL_FORMAT_MAX];
	hl_doctor_say(doctor, "target", "unwinding", "rules for %s of %s of code%s%s%s",
		      hl_format_percent((int64_t)code.covered_bytes, (int64_t)code.bytes, share),
		      hl_format_bytes((int64_t)code.bytes, size), code.anonymous_bytes ? "; " : "",
		      code.anonymous_bytes
			      ? hl_format_bytes((int64_t)code.anonymous_bytes, anonymous)
			      : "",
		      code.anonymous_bytes ? " is of no file (JIT): through it stacks are followed "
					     "by frame pointers"
					   : "");
	say_names(doctor, code.files);
	return (unsigned)(code.covered_bytes * 100 / code.bytes);
}

/* ---- a process ---- */

static void refuse_trace(struct trace *trace, const char *name, int r, const struct hl_error *err)
{
	char command[64];

	snprintf(command, sizeof(command), "heapline %s -p %d 60", name, trace->pid);
	hl_doctor_refuse(trace->doctor, name, r, err, command);
}

static void judge_returns(struct trace *trace, struct hl_heap_probes *probes)
{
	struct hl_error err = {0};

	if (hl_heap_probes_check_returns(trace->pid, &err) < 0) {
		struct hl_doctor_way *way =
			hl_doctor_add(trace->doctor, "stacks", HL_DOCTOR_PARTLY,
				      "heapline stacks --all -p %d 60", trace->pid);
		snprintf(way->reason, sizeof(way->reason), "%.511s", err.text);
		return;
	}
	HL_FREED char *spared = hl_heap_probes_spared(probes);
	bool spares = spared && spared[0], is_blind = trace->unwound_percent < UNWOUND_PERCENT_MIN;
	struct hl_doctor_way *way = hl_doctor_add(
		trace->doctor, "stacks", spares || is_blind ? HL_DOCTOR_PARTLY : HL_DOCTOR_YES,
		"heapline stacks -p %d 60", trace->pid);
	if (spares)
		snprintf(way->reason, sizeof(way->reason),
			 "not watched, because an exception would end the program: %.400s", spared);
	else if (is_blind)
		snprintf(way->reason, sizeof(way->reason),
			 "%u %% of its code has rules for unwinding: stacks may end early",
			 trace->unwound_percent);
}

static void judge_stacks(struct trace *trace)
{
	struct hl_error rights = {0}, err = {0};
	struct hl_heap_probes probes = {.pid = trace->pid};

	if (trace->recorded == -ENODATA) {
		hl_doctor_add_closed(trace->doctor, "stacks", HL_DOCTOR_NO, trace->pid);
		return;
	}
	if (trace->recorded == 0) {
		struct hl_doctor_way *way = hl_doctor_add(trace->doctor, "stacks", HL_DOCTOR_YES,
							  "heapline stacks -p %d 60", trace->pid);
		snprintf(way->reason, sizeof(way->reason),
			 "it is read from its recorder, without probes");
		return;
	}
	int may = hl_doctor_traces[HL_DOCTOR_STACKS].try(trace->facts, &rights);
	if (may >= 0)
		probes.way = (enum hl_probe_way)may;
	probes.spares_throwing =
		probes.way != HL_PROBE_SESSION || hl_heap_probes_memory_is_limited(trace->pid);
	int found = hl_heap_probes_find(&probes, &err);
	/* What no rights help against comes first. */
	if (found == -ENOENT || found == -ENOTSUP || (may >= 0 && found < 0))
		refuse_trace(trace, "stacks", found, &err);
	else if (may < 0)
		refuse_trace(trace, "stacks", may, &rights);
	else
		judge_returns(trace, &probes);
	if (found == 0) {
		char files[256] = "";
		size_t length = 0;
		for (size_t i = 0; i < probes.allocators.count && length < sizeof(files); i++)
			length += (size_t)snprintf(
				files + length, sizeof(files) - length, "%s%s", i ? ", " : "",
				hl_path_basename(probes.allocators.allocators[i].map.path));
		hl_doctor_say(trace->doctor, "target", "functions that allocate", "in %s", files);
	}
	hl_heap_probes_release(&probes);
}

static void judge_pgfault(struct trace *trace)
{
	struct hl_pagemap *pagemap = NULL;
	struct hl_error err = {0};
	int r = hl_doctor_traces[HL_DOCTOR_PGFAULT].try(trace->facts, &err);

	if (r == 0)
		r = hl_pagemap_open(trace->pid, &pagemap, &err);
	hl_pagemap_free(pagemap);
	if (r < 0)
		refuse_trace(trace, "pgfault", r, &err);
	else
		hl_doctor_add(trace->doctor, "pgfault", HL_DOCTOR_YES, "heapline pgfault -p %d 60",
			      trace->pid);
}

void hl_doctor_judge_traces(struct hl_doctor *doctor, const struct hl_process_facts *facts,
			    const struct hl_maps *maps, int recorded)
{
	struct trace trace = {doctor, facts, facts->pid, say_code(doctor, facts->pid, maps),
			      recorded};

	judge_stacks(&trace);
	judge_pgfault(&trace);
}

/* ---- a command ---- */

/* Who looks at a program with its owner's rights looks at another user's. */
static void read_facts(const char *program, struct hl_process_facts *ret_facts)
{
	struct stat status;

	*ret_facts = (struct hl_process_facts){.uid = geteuid()};
	if (stat(program, &status) == 0 && status.st_mode & S_ISUID)
		ret_facts->uid = status.st_uid;
}

/* Whether its heap may be one that can be read: its loader is glibc's or musl's, or it has one of them
 * inside, or nothing says what it has. */
static bool may_be_readable(Elf *elf)
{
	struct hl_elf_symbols any = {.elf = elf, .tables = HL_ELF_SYMTAB};
	const char *loader = hl_elf_loader(elf);
	uint64_t address;

	if (!hl_elf_is_native(elf))
		return false;
	if (loader)
		return hl_path_is_glibc_loader(loader) || strstr(loader, "ld-musl");
	return hl_glibc_file_mp(elf, hl_glibc_layout_at(0)) != 0 ||
	       hl_elf_find_symbol(elf, HL_ELF_SYMTAB, "__malloc_context", &address) ||
	       !hl_elf_symbols_next(&any);
}

void hl_doctor_judge_later(struct hl_doctor *doctor, const char *program, const char *command)
{
	struct hl_allocator_functions found = {0};
	struct hl_process_facts facts;
	HL_CLOSED int fd = open(program, O_RDONLY | O_CLOEXEC);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);

	read_facts(program, &facts);
	bool has_functions = hl_elf_is_native(elf) &&
			     (hl_elf_loader(elf) ||
			      (hl_allocators_read_functions(fd, &found) == 0 && found.count));
	for (size_t i = 0; i < HL_DOCTOR_TRACES; i++) {
		const char *name = hl_doctor_traces[i].name;
		struct hl_error err = {0};
		int r = hl_doctor_traces[i].try(&facts, &err);
		if (i == 0 && !has_functions)
			snprintf(hl_doctor_add(doctor, "stacks", HL_DOCTOR_NO, "%s", "")->reason,
				 512, "no function that allocates is found in '%.400s'", program);
		else if (r < 0)
			hl_doctor_refuse(doctor, name, r, &err, "");
		else
			hl_doctor_add(doctor, name, HL_DOCTOR_YES,
				      "%s & sleep 1; heapline %s -p $! 60", command, name);
	}
	hl_allocators_release_functions(&found);
	if (elf && !may_be_readable(elf))
		snprintf(hl_doctor_add(doctor, "heap", HL_DOCTOR_NO, "%s", "")->reason, 512,
			 "its heap cannot be read from outside: it has 32 bits, or an allocator "
			 "that is not known");
	else
		snprintf(hl_doctor_add(doctor, "heap", HL_DOCTOR_PARTLY,
				       "%s & sleep 1; heapline doctor -p $!", command)
				 ->reason,
			 512, "whether its allocator can be read shows while it runs");
}

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

/* ---- facts of the machine ---- */

static void say_rights(struct hl_doctor *doctor, const struct hl_privileges *rights)
{
	static const struct {
		unsigned number;
		const char *name;
	} names[] = {{CAP_BPF, "CAP_BPF"},
		     {CAP_PERFMON, "CAP_PERFMON"},
		     {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
		     {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
		     {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
		     {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}};
	char list[160] = "";
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
	static const struct {
		const char *name;
		uint64_t needed;
	} by_memory[] = {
		{"attach", UINT64_C(1) << CAP_SYS_PTRACE | UINT64_C(1) << CAP_DAC_OVERRIDE},
		{"heap", UINT64_C(1) << CAP_SYS_PTRACE | UINT64_C(1) << CAP_DAC_READ_SEARCH},
	};
	for (size_t i = 0; i < HL_COUNT_OF(by_memory); i++) {
		bool may = (rights.capabilities & by_memory[i].needed) == by_memory[i].needed;
		struct hl_doctor_way *way = hl_doctor_add(
			doctor, by_memory[i].name,
			may	    ? HL_DOCTOR_YES
			: scope < 1 ? HL_DOCTOR_PARTLY
				    : HL_DOCTOR_NO,
			"%sheapline %s -p PID", may || scope < 1 ? "" : "sudo ", by_memory[i].name);
		if (!may)
			snprintf(way->reason, sizeof(way->reason), "%s",
				 scope < 1 ? "of this user's processes; those of others need root"
					   : "kernel.yama.ptrace_scope keeps the memory of other "
					     "processes from those who are not root");
	}
}
