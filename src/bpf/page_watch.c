/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads and links what watches pages, and finds the calls of the C library for it; see page_trace.h. */
#include "bpf/page_trace.h"

#include "base/cleanup.h"
#include "base/compiler.h"
#include "bpf/machine_bpf.h"
#include "bpf/privilege.h"
#include "bpf/probe.h"
#include "elf/elf.h"
#include "page.skel.h"
#include "process/audit.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- where the C library's calls are ---- */

/* What only a C library defines. */
#define C_LIBRARY_SYMBOL "__libc_start_main"

#define CODE_BYTES 128 /* of a function: enough for the place of a probe */

static const struct {
	const char *name;
	enum hl_page_call call;
	unsigned arguments; /* that are looked at */
} names[] = {
	{"mmap", HL_PAGE_CALL_MMAP, 4},		{"mmap64", HL_PAGE_CALL_MMAP, 4},
	{"mremap", HL_PAGE_CALL_MREMAP, 3},	{"madvise", HL_PAGE_CALL_MADVISE, 3},
	{"mlock", HL_PAGE_CALL_MLOCK, 2},	{"mlock2", HL_PAGE_CALL_MLOCK2, 3},
	{"mlockall", HL_PAGE_CALL_MLOCKALL, 1},
};

/* The cheapest place where all arguments are where the call puts them; else the first byte. */
static uint64_t place_in(int fd, uint64_t offset, unsigned arguments)
{
	uint8_t code[CODE_BYTES] = {0};
	ssize_t bytes = offset > INT64_MAX ? -1 : pread(fd, code, sizeof(code), (off_t)offset);

	if (bytes <= 0)
		return offset;
	struct hl_probe_place best = hl_probe_place(code, (size_t)bytes, arguments);
	struct hl_probe_place first = hl_probe_place(code, 0, arguments);
	if (!memcmp(best.arguments, first.arguments, arguments) && best.emulated)
		return offset + best.offset;
	return offset + hl_probe_place_after_call(code, (size_t)bytes, arguments);
}

/* Aliases are one site. */
static void add_site(struct hl_page_calls *calls, struct hl_page_call_site site)
{
	for (size_t i = 0; i < calls->count; i++)
		if (calls->sites[i].offset == site.offset)
			return;
	if (calls->count < HL_PAGE_CALL_SITES_MAX)
		calls->sites[calls->count++] = site;
}

void hl_page_calls_read(int fd, struct hl_page_calls *ret_calls)
{
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_SYMTAB | HL_ELF_DYNSYM};
	uint64_t offset;

	*ret_calls = (struct hl_page_calls){0};
	if (!hl_elf_is_native(elf) ||
	    !hl_elf_find_symbol(elf, all.tables, C_LIBRARY_SYMBOL, &offset))
		return;
	while (hl_elf_symbols_next(&all)) {
		if (all.symbol.st_shndx == SHN_UNDEF ||
		    GELF_ST_TYPE(all.symbol.st_info) != STT_FUNC)
			continue;
		for (size_t i = 0; i < HL_COUNT_OF(names); i++) {
			if (strcmp(all.name, names[i].name) != 0 ||
			    !hl_elf_code_offset(elf, all.symbol.st_value, &offset))
				continue;
			offset = place_in(fd, offset, names[i].arguments);
			add_site(ret_calls, (struct hl_page_call_site){names[i].call, offset});
		}
	}
}

const struct hl_map *hl_page_calls_find(pid_t pid, const struct hl_maps *maps,
					struct hl_page_calls *ret_calls)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct hl_map *map = &maps->maps[i];
		if (!(map->flags & HL_MAP_EXEC) || !map->inode)
			continue;
		int fd = hl_maps_open_file(pid, map);
		if (fd < 0)
			continue;
		hl_page_calls_read(fd, ret_calls);
		close(fd);
		if (ret_calls->count)
			return map;
	}
	return NULL;
}

#define RING_BYTES_PER_CPU UINT32_C(1 << 20)
#define RING_BYTES_MIN	   UINT32_C(8 << 20)
#define RING_BYTES_MAX	   UINT32_C(256 << 20)

struct hl_page_watch {
	struct hl_page_watch_settings settings;
	enum hl_page_source source;
	struct hl_target *target;
	struct page *programs;
	struct hl_walker *walker;
	struct bpf_link **links;
	size_t link_count;
	enum hl_probe_way call_way;
	struct hl_probe_links call_links;
	struct hl_error calls_error;
};

static const char *const source_names[HL_PAGE_SOURCES_END] = {
	[HL_PAGE_SOURCE_TYPED_TRACEPOINT] = "typed tracepoints",
	[HL_PAGE_SOURCE_TRACEPOINT] = "tracepoints",
	[HL_PAGE_SOURCE_PERF_EVENT] = "a perf event",
};

/* ---- loading ---- */

static uint32_t ring_bytes(const struct hl_page_watch_settings *settings)
{
	uint32_t wanted = RING_BYTES_MIN;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (settings->ring_bytes)
		return settings->ring_bytes;
	while (wanted < RING_BYTES_MAX && wanted / RING_BYTES_PER_CPU < (uint64_t)cpus)
		wanted *= 2;
	return wanted;
}

/* Only what the source needs is loaded: the rest may be what the kernel refuses. */
static void choose_programs(struct hl_page_watch *watch)
{
	struct page *programs = watch->programs;
	bool typed = watch->source == HL_PAGE_SOURCE_TYPED_TRACEPOINT;
	bool follows = typed || !HL_BPF_HAS_FAULT_TRACEPOINTS;
	bool classic = watch->source == HL_PAGE_SOURCE_TRACEPOINT;
	bool calls = !watch->settings.count_only && !watch->settings.without_calls;

	bpf_program__set_autoload(programs->progs.user_fault, typed);
	bpf_program__set_autoload(programs->progs.kernel_fault, typed);
	bpf_program__set_autoload(programs->progs.program_replaced, follows);
	bpf_program__set_autoload(programs->progs.child_born, follows);
	bpf_program__set_autoload(programs->progs.hl_place_given, follows);
	bpf_program__set_autoload(programs->progs.user_fault_event, classic);
	bpf_program__set_autoload(programs->progs.kernel_fault_event, classic);
	bpf_program__set_autoload(programs->progs.fault_sample, !typed && !classic);
	bpf_program__set_autoload(programs->progs.call_entered, calls);
	bpf_program__set_autoload(programs->progs.call_returned, calls);
	if (watch->call_way != HL_PROBE_MULTI)
		return;
	/* libbpf 1.1 does not know the type, and passes it on. */
	bpf_program__set_expected_attach_type(programs->progs.call_entered,
					      (enum bpf_attach_type)HL_ATTACH_MULTI);
	bpf_program__set_expected_attach_type(programs->progs.call_returned,
					      (enum bpf_attach_type)HL_ATTACH_MULTI);
}

static void unload(struct hl_page_watch *watch)
{
	hl_walker_free(watch->walker);
	watch->walker = NULL;
	page__destroy(watch->programs);
	watch->programs = NULL;
}

static int load(struct hl_page_watch *watch, hl_record_fn *on_record, void *context,
		struct hl_error *err)
{
	uint32_t number;
	int r;

	watch->programs = page__open();
	if (!watch->programs)
		return hl_error_set(err, -errno, "cannot prepare BPF programs: %s",
				    strerror(errno));
	choose_programs(watch);
	watch->programs->rodata->count_only = watch->settings.count_only;
	watch->programs->rodata->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	bpf_map__set_max_entries(watch->programs->maps.hl_records, ring_bytes(&watch->settings));
	r = hl_walker_new(watch->programs->obj, 1, on_record, context, &watch->walker, err);
	if (r == 0)
		r = hl_walker_add(watch->walker, watch->target, &number, err);
	if (r < 0)
		return r;
	r = page__load(watch->programs);
	if (r < 0)
		return hl_privilege_explain("load the programs that watch page faults", r, err);
	return hl_walker_start(watch->walker, err);
}

/* ---- faults ---- */

static int add_link(struct hl_page_watch *watch, struct bpf_link *link)
{
	struct bpf_link **links;

	if (!link)
		return -errno;
	links = reallocarray(watch->links, watch->link_count + 1, sizeof(struct bpf_link *));
	if (!links) {
		bpf_link__destroy(link);
		return -ENOMEM;
	}
	watch->links = links;
	watch->links[watch->link_count++] = link;
	return 0;
}

/* On one processor, for all processes: a process' own event would miss the threads that it has
 * already. The program picks the target's faults. */
static int link_perf_event(struct hl_page_watch *watch, int cpu)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attributes),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_ADDR,
	};
	long fd = syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return errno == ENODEV ? 0 : -errno; /* a processor that is off */
	struct bpf_link *link =
		bpf_program__attach_perf_event(watch->programs->progs.fault_sample, (int)fd);
	if (!link) {
		close((int)fd);
		return -errno;
	}
	return add_link(watch, link);
}

static int link_programs(struct hl_page_watch *watch, struct bpf_program *user,
			 struct bpf_program *kernel)
{
	int r = add_link(watch, bpf_program__attach(user));

	return r < 0 ? r : add_link(watch, bpf_program__attach(kernel));
}

static int link_source(struct hl_page_watch *watch, struct hl_error *err)
{
	struct page *programs = watch->programs;
	int r;

	switch (watch->source) {
	case HL_PAGE_SOURCE_TYPED_TRACEPOINT:
		r = link_programs(watch, programs->progs.user_fault, programs->progs.kernel_fault);
		break;
	case HL_PAGE_SOURCE_TRACEPOINT:
		r = link_programs(watch, programs->progs.user_fault_event,
				  programs->progs.kernel_fault_event);
		break;
	default:
		r = libbpf_num_possible_cpus();
		for (int cpu = 0, cpus = r; r >= 0 && cpu < cpus; cpu++)
			r = link_perf_event(watch, cpu);
	}
	/* forks and exec are worth a sentence, not a failure */
	if (r >= 0 && bpf_program__autoload(programs->progs.child_born)) {
		add_link(watch, bpf_program__attach(programs->progs.program_replaced));
		add_link(watch, bpf_program__attach(programs->progs.child_born));
	}
	if (r < 0)
		return hl_error_set(err, r, "cannot watch page faults by %s: %s",
				    source_names[watch->source], strerror(-r));
	return 0;
}

static void unlink_source(struct hl_page_watch *watch)
{
	for (size_t i = 0; i < watch->link_count; i++)
		bpf_link__destroy(watch->links[i]);
	free(watch->links);
	watch->links = NULL;
	watch->link_count = 0;
}

/* ---- calls ---- */

/* Those of ${calls} that are to be probed at their entry, or those whose return says what they did.
 */
static size_t sites_of(const struct hl_page_calls *calls, bool at_return,
		       struct hl_probe_site sites[HL_PAGE_CALL_SITES_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < calls->count; i++) {
		enum hl_page_call call = calls->sites[i].call;
		if (!at_return || call == HL_PAGE_CALL_MMAP || call == HL_PAGE_CALL_MREMAP)
			sites[count++] = (struct hl_probe_site){
				.offset = calls->sites[i].offset,
				.cookie = call,
			};
	}
	return count;
}

static int link_calls(struct hl_page_watch *watch, struct hl_error *err)
{
	struct hl_page_calls calls = {0};
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	char path[4096];
	struct hl_probe_site sites[HL_PAGE_CALL_SITES_MAX];
	struct hl_probe_target target = {watch->settings.pid, path, sites, 0};
	int entered = bpf_program__fd(watch->programs->progs.call_entered);
	int returned = bpf_program__fd(watch->programs->progs.call_returned);
	int r = hl_maps_read(watch->settings.pid, &maps, err);

	if (r < 0)
		return r;
	const struct hl_map *map = hl_page_calls_find(watch->settings.pid, &maps, &calls);
	r = map ? hl_maps_file_path(watch->settings.pid, map, path, sizeof(path)) : -ENOENT;
	if (r < 0)
		return hl_error_set(err, r, "%s",
				    map				? "its file cannot be reached"
				    : hl_maps_are_32_bit(&maps) ? "it is a 32-bit program"
								: "no C library is mapped");
	/* Returns first: a call that was entered is then seen to return. */
	target.site_count = sites_of(&calls, true, sites);
	r = hl_probe_links_add(&watch->call_links, watch->call_way, returned, true, &target, err);
	if (r < 0)
		return r;
	target.site_count = sites_of(&calls, false, sites);
	return hl_probe_links_add(&watch->call_links, watch->call_way, entered, false, &target,
				  err);
}

/* ---- all of it ---- */

/* The first that works; the sentence is of the first that did not. */
static int start_best_source(struct hl_page_watch *watch, hl_record_fn *on_record, void *context,
			     struct hl_error *err)
{
	enum hl_page_source wanted = watch->settings.source;
	enum hl_page_source source = wanted			    ? wanted
				     : HL_BPF_HAS_FAULT_TRACEPOINTS ? HL_PAGE_SOURCE_BEST + 1
								    : HL_PAGE_SOURCE_PERF_EVENT;
	struct hl_error first = {0};
	int r = -EINVAL;

	for (; r < 0 && source < HL_PAGE_SOURCES_END; source++) {
		if (wanted != HL_PAGE_SOURCE_BEST && wanted != source)
			continue;
		watch->source = source;
		hl_privilege_log_forget();
		r = load(watch, on_record, context, &first);
		if (r == 0)
			r = link_source(watch, &first);
		if (r < 0) {
			unlink_source(watch);
			unload(watch);
		}
	}
	if (r < 0 && err)
		*err = first;
	return r;
}

int hl_page_watch_start(const struct hl_page_watch_settings *settings, hl_record_fn *on_record,
			void *context, struct hl_page_watch **ret_watch, struct hl_error *err)
{
	struct hl_page_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return hl_error_set(err, -ENOMEM, "cannot watch pages: out of memory");
	watch->settings = *settings;
	watch->call_way =
		hl_probe_link_best_way() == HL_PROBE_PERF ? HL_PROBE_PERF : HL_PROBE_MULTI;
	int r = hl_target_new(settings->pid, NULL, &watch->target, err);
	if (r == 0)
		r = start_best_source(watch, on_record, context, err);
	hl_audit("probe", settings->pid, r);
	if (r < 0) {
		hl_page_watch_free(watch);
		return r;
	}
	if (!settings->count_only && settings->without_calls)
		snprintf(watch->calls_error.text, sizeof(watch->calls_error.text), "not asked for");
	else if (!settings->count_only && link_calls(watch, &watch->calls_error) < 0)
		hl_probe_links_release(&watch->call_links);
	*ret_watch = watch;
	return 0;
}

int hl_page_watch_poll(struct hl_page_watch *watch, int timeout_ms, struct hl_error *err)
{
	return hl_walker_poll(watch->walker, timeout_ms, err);
}

void hl_page_watch_detach(struct hl_page_watch *watch)
{
	hl_probe_links_release(&watch->call_links);
	unlink_source(watch);
}

void hl_page_watch_free(struct hl_page_watch *watch)
{
	if (!watch)
		return;
	hl_page_watch_detach(watch);
	unload(watch);
	hl_target_free(watch->target);
	free(watch);
}

/* ---- answers ---- */

const char *hl_page_watch_source_name(const struct hl_page_watch *watch)
{
	return source_names[watch->source];
}

const char *hl_page_watch_calls_error(const struct hl_page_watch *watch)
{
	return watch->calls_error.text;
}

bool hl_page_watch_target_replaced(const struct hl_page_watch *watch)
{
	return *(volatile bool *)&watch->programs->bss->target_replaced;
}

const struct hl_walker *hl_page_watch_walker(const struct hl_page_watch *watch)
{
	return watch->walker;
}

int hl_page_watch_counters(const struct hl_page_watch *watch, struct hl_page_counters *ret_counters)
{
	return hl_walker_sum_counters(watch->programs->maps.counters, ret_counters);
}

int hl_page_watch_each_stack(const struct hl_page_watch *watch,
			     int (*visit)(void *context, uint64_t stack, uint64_t faults),
			     void *context)
{
	int fd = bpf_map__fd(watch->programs->maps.fault_counts);
	int cpus = libbpf_num_possible_cpus(), r = 0;
	uint64_t stack, *last = NULL;

	if (cpus < 0)
		return cpus;
	uint64_t *counts = calloc((size_t)cpus, sizeof(*counts));
	if (!counts)
		return -ENOMEM;
	while (r == 0 && bpf_map_get_next_key(fd, last, &stack) == 0) {
		uint64_t sum = 0;
		if (bpf_map_lookup_elem(fd, &stack, counts) == 0) {
			for (int cpu = 0; cpu < cpus; cpu++)
				sum += counts[cpu];
			r = visit(context, stack, sum);
		}
		last = &stack;
	}
	free(counts);
	return r;
}
