/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses and links the probes of `stacks`; see heap_trace.h. */
#include "bpf/heap_trace.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "bpf/machine_bpf.h"
#include "bpf/privilege.h"
#include "process/audit.h"
#include "process/process.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

/* ---- which functions ---- */

int hl_heap_probes_find(struct hl_heap_probes *probes, struct hl_error *err)
{
	struct hl_maps maps;
	int r = hl_maps_read(probes->pid, &maps, err);

	if (r < 0)
		return r;
	r = hl_allocators_find(probes->pid, &maps, probes->object, &probes->allocators, err);
	hl_maps_release(&maps);
	return r;
}

static bool is_spared(const struct hl_heap_probes *probes,
		      const struct hl_allocator_function *function)
{
	return probes->spares_throwing && function->throws;
}

static bool is_probed(const struct hl_heap_probes *probes,
		      const struct hl_allocator_function *function)
{
	return !(probes->entry_alone && function->call == HL_HEAP_FREE) &&
	       !is_spared(probes, function);
}

/* Functions of different files may call each other by ways that are not to be seen in the code. */
bool hl_heap_probes_may_nest(const struct hl_heap_probes *probes)
{
	size_t files = 0;

	for (size_t i = 0; i < probes->allocators.count; i++) {
		const struct hl_allocator_functions *found =
			&probes->allocators.allocators[i].found;
		bool has_any = false;
		for (size_t k = 0; k < found->count; k++) {
			if (found->functions[k].call == HL_HEAP_FREE)
				continue;
			has_any = true;
			if (found->functions[k].calls_others)
				return true;
		}
		files += has_any;
	}
	return files > 1;
}

/* ---- links ---- */

/* Sites of ${allocator}, into an array with room for all; how many. Only allocations are watched
 * ${at_return}. */
static size_t choose_sites(const struct hl_heap_probes *probes,
			   const struct hl_allocator *allocator, bool at_return,
			   struct hl_probe_site *sites)
{
	const struct hl_probe_place entry = hl_probe_place(NULL, 0, HL_PROBE_ARGUMENTS_MAX);
	size_t first = (size_t)(allocator - probes->allocators.allocators) << 16, count = 0;

	for (size_t i = 0; i < allocator->found.count; i++) {
		const struct hl_allocator_function *function = &allocator->found.functions[i];
		if (!is_probed(probes, function) || (at_return && function->call == HL_HEAP_FREE))
			continue;
		const uint8_t *arguments = function->place.arguments;
		uint64_t cookie = function->call | (uint64_t)(first + i) << HL_SITE_FUNCTION;
		for (unsigned k = 0; k < HL_PROBE_ARGUMENTS_MAX; k++)
			cookie |= (uint64_t)arguments[k] << (HL_SITE_ARGUMENTS + 4 * k);
		if (memcmp(arguments, entry.arguments,
			   hl_allocators_call_arguments(function->call)) != 0)
			cookie |= HL_SITE_MOVED;
		if (function->throws)
			cookie |= HL_SITE_THROWS;
		if (probes->calibrates)
			cookie |= HL_SITE_CALIBRATION;
		sites[count++] = (struct hl_probe_site){
			.offset = function->offset + function->place.offset,
			.cookie = cookie,
		};
	}
	return count;
}

static int link_allocator(struct hl_heap_probes *probes, const struct hl_allocator *allocator,
			  int program_fd, bool at_return, struct hl_error *err)
{
	char path[PATH_MAX];
	int r = hl_maps_file_path(probes->pid, &allocator->map, path, sizeof(path));

	if (r < 0)
		return hl_error_set(err, r, "cannot open '%s' as process '%d' has it mapped: %s",
				    allocator->map.path, (int)probes->pid, strerror(-r));
	struct hl_probe_site *sites = calloc(allocator->found.count, sizeof(*sites));
	if (!sites)
		return hl_error_set(err, -ENOMEM, "cannot set probes: out of memory");
	struct hl_probe_target target = {
		.pid = probes->pid,
		.path = path,
		.sites = sites,
		.site_count = choose_sites(probes, allocator, at_return, sites),
	};
	r = hl_probe_links_add(&probes->links, probes->way, program_fd, at_return, &target, err);
	free(sites);
	return r;
}

/* Allocators from ${first} to before ${end}. Returns first: a call that was entered must be seen to
 * return. */
static int link_allocators(struct hl_heap_probes *probes, size_t first, size_t end, int entry_fd,
			   int return_fd, struct hl_error *err)
{
	int r = 0;

	for (size_t i = first; r == 0 && return_fd >= 0 && i < end; i++)
		r = link_allocator(probes, &probes->allocators.allocators[i], return_fd, true, err);
	for (size_t i = first; r == 0 && i < end; i++)
		r = link_allocator(probes, &probes->allocators.allocators[i], entry_fd, false, err);
	return r;
}

int hl_heap_probes_link(struct hl_heap_probes *probes, int entry_fd, int return_fd,
			struct hl_error *err)
{
	int r = link_allocators(probes, 0, probes->allocators.count, entry_fd, return_fd, err);

	hl_audit("probe", probes->pid, r);
	if (r < 0)
		hl_heap_probes_unlink(probes);
	return r;
}

int hl_heap_probes_extend(struct hl_heap_probes *probes, int entry_fd, int return_fd,
			  struct hl_error *err)
{
	size_t known = probes->allocators.count;
	struct hl_maps maps;
	int r = hl_maps_read(probes->pid, &maps, err);

	if (r < 0)
		return r;
	r = hl_allocators_add(&probes->allocators, probes->pid, &maps, probes->object);
	hl_maps_release(&maps);
	if (r < 0)
		return hl_error_set(err, r, "cannot look for allocators: out of memory");
	for (size_t i = known; i < probes->allocators.count; i++) {
		r = link_allocators(probes, i, i + 1, entry_fd, return_fd, err);
		if (r == -ESRCH)
			return r;
		probes->missed += r < 0;
	}
	return (int)(probes->allocators.count - known);
}

void hl_heap_probes_unlink(struct hl_heap_probes *probes)
{
	hl_probe_links_release(&probes->links);
}

/* ---- for the user ---- */

char *hl_heap_probes_describe(const struct hl_heap_probes *probes)
{
	char *text = NULL;
	size_t length;
	FILE *stream = open_memstream(&text, &length);

	if (!stream)
		return NULL;
	for (size_t i = 0; i < probes->allocators.count; i++) {
		const struct hl_allocator *allocator = &probes->allocators.allocators[i];
		const char *separator = "";
		fputs(i ? "; " : "", stream);
		for (size_t k = 0; k < allocator->found.count; k++) {
			const struct hl_allocator_function *function =
				&allocator->found.functions[k];
			if (!is_probed(probes, function))
				continue;
			fprintf(stream, "%s%s", separator, function->name);
			if (function->place.offset)
				fprintf(stream, "+%u", function->place.offset);
			separator = ", ";
		}
		fprintf(stream, " in %s", hl_path_basename(allocator->map.path));
	}
	return fclose(stream) == 0 ? text : NULL;
}

/* Names of those functions of which ${belongs} is true, with commas. */
static char *list_functions(const struct hl_heap_probes *probes,
			    bool (*belongs)(const struct hl_heap_probes *probes,
					    const struct hl_allocator_function *function))
{
	char *text = NULL;
	size_t length;
	const char *separator = "";
	FILE *stream = open_memstream(&text, &length);

	if (!stream)
		return NULL;
	for (size_t i = 0; i < probes->allocators.count; i++) {
		const struct hl_allocator *allocator = &probes->allocators.allocators[i];
		for (size_t k = 0; k < allocator->found.count; k++) {
			if (!belongs(probes, &allocator->found.functions[k]))
				continue;
			fprintf(stream, "%s%s of %s", separator, allocator->found.functions[k].name,
				hl_path_basename(allocator->map.path));
			separator = ", ";
		}
	}
	return fclose(stream) == 0 ? text : NULL;
}

static bool is_slow(const struct hl_heap_probes *probes,
		    const struct hl_allocator_function *function)
{
	return is_probed(probes, function) && !function->place.emulated;
}

char *hl_heap_probes_slow(const struct hl_heap_probes *probes)
{
	return list_functions(probes, is_slow);
}

char *hl_heap_probes_spared(const struct hl_heap_probes *probes)
{
	return list_functions(probes, is_spared);
}

void hl_heap_probes_release(struct hl_heap_probes *probes)
{
	hl_heap_probes_unlink(probes);
	hl_allocators_release(&probes->allocators);
}

/* ---- what would harm a target ---- */

static bool has_limit(pid_t pid, enum __rlimit_resource resource)
{
	struct rlimit limit;

	return prlimit(pid, resource, NULL, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY;
}

bool hl_heap_probes_memory_is_limited(pid_t pid)
{
	int policy = 0; /* of overcommitment: 2 forbids it */
	FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");

	bool forbidden = file && fscanf(file, "%d", &policy) == 1 && policy == 2;
	if (file)
		fclose(file);
	return forbidden || has_limit(pid, RLIMIT_AS) || has_limit(pid, RLIMIT_DATA);
}

uint64_t hl_heap_probes_request_max(void)
{
	struct sysinfo system;

	if (sysinfo(&system) < 0)
		return 0;
	return ((uint64_t)system.totalram + system.totalswap) * system.mem_unit;
}

static bool thread_has_filter(pid_t pid, pid_t tid)
{
	HL_FREED char *text = NULL;
	char file[48];
	size_t length;
	int mode = 0;

	snprintf(file, sizeof(file), "task/%d/status", (int)tid);
	if (hl_proc_read_all(pid, file, &text, &length) < 0)
		return false;
	const char *line = strstr(text, "\nSeccomp:");
	return line && sscanf(line, "\nSeccomp: %d", &mode) == 1 && mode != 0;
}

int hl_heap_probes_check_returns(pid_t pid, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	struct hl_privileges system;
	size_t count = 0;

	hl_privilege_read(&system);
	if (!HL_BPF_RETURNS_BY_CALL || system.kernel_major != 6 || system.kernel_minor < 11 ||
	    system.kernel_minor > 13)
		return 0;
	bool has_filter = hl_process_threads(pid, &tids, &count) < 0 && thread_has_filter(pid, pid);
	for (size_t i = 0; i < count && !has_filter; i++)
		has_filter = thread_has_filter(pid, tids[i]);
	if (!has_filter)
		return 0;
	return hl_error_set(
		err, -ENOTSUP,
		"cannot watch process '%d': it has a seccomp filter, and Linux 6.%u "
		"would end it for returning from a function that is watched; use --all, "
		"which watches none return, or a kernel from 6.14 on",
		(int)pid, system.kernel_minor);
}
