/* SPDX-License-Identifier: BSD-2-Clause */
/* Follows the pages of a control group from one scan to the other; see growth.h. */
#include "bpf/growth.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "bpf/growth_shared.h"
#include "bpf/privilege.h"

#include "growth.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Processes that can be walked at once; each takes 64 KiB of maps. */
#define WALKED_SPARE 64u
#define WALKED_MAX   1024u
#define WALKED_BYTES (UINT64_C(64) << 10)
#define WALKER_BYTES (UINT64_C(32) << 20) /* of tables of code, and records */

/* Programs that are remembered, so that those that begin and end all the time take no more than this. */
#define PROGRAMS_MAX 4096u

#define GIVEN_MIN   4096u
#define GIVEN_MAX   (1u << 20) /* pages, large ones as one */
#define KEYS_MAX    (1u << 18)
#define ENTRY_BYTES 48u

#define LOOK_INTERVAL_NS HL_NS_PER_SECOND /* at the group, whether it is there */

#define LABEL_MAX 4200u /* of a path, and what it is */

/* One program of one process. */
struct program {
	struct hl_process_facts facts;
	struct hl_target *target; /* NULL: it could not be read */
	uint32_t number;	  /* of the target; 0: it was never walked */
	bool has_ended;		  /* and is not walked any more */
	/* Its part of the result: nodes of its stacks, and below them what pages are. */
	struct hl_trace_result *result; /* of the group: the whole, which is not owned */
	struct hl_recording_node *nodes;
	size_t node_count, node_capacity;
	uint32_t lost_nodes
		[2]; /* of pages that nobody was seen to be given, and of stacks that are not known; 0: none yet */
	struct hl_recording_site *sites;
	char **names; /* of sites; the first is "" */
	size_t site_count, site_capacity, name_count, name_capacity;
};

struct group_trace {
	const struct hl_trace_request *request;
	const struct hl_growth_settings *settings;
	struct growth *skeleton;
	struct hl_page_scanner scanner;
	struct hl_walker *walker;
	struct hl_target_files files;
	struct program *programs; /* the first is the group itself */
	size_t program_count, program_capacity;
	uint32_t *new_pids; /* that the kernel has told of */
	size_t new_count, new_capacity;
	uint32_t walked_max;
	size_t unnoted;	  /* new programs, beyond PROGRAMS_MAX */
	size_t strangers; /* processes that have no number here */
	uint64_t looked_ns;
	bool is_removed; /* the group, meanwhile */
	struct hl_group_pages *first, *last;
	uint64_t first_usage, last_usage;
};

static uint64_t page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- processes ---- */

static struct program *find_program(const struct group_trace *trace,
				    const struct hl_process_facts *facts)
{
	for (size_t i = trace->program_count; i-- > 1;)
		if (trace->programs[i].facts.pid == facts->pid &&
		    trace->programs[i].facts.start_ticks == facts->start_ticks &&
		    !strcmp(trace->programs[i].facts.executable, facts->executable))
			return &trace->programs[i];
	return NULL;
}

/* Processes that have ended need no place any more. Whether there is one. */
static bool has_place(struct group_trace *trace)
{
	uint32_t walked = 0;

	for (size_t i = 1; i < trace->program_count; i++) {
		struct program *program = &trace->programs[i];
		if (!program->number || program->has_ended)
			continue;
		program->has_ended = kill(program->facts.pid, 0) < 0 && errno == ESRCH;
		if (program->has_ended)
			hl_walker_remove(trace->walker, program->number);
		else
			walked++;
	}
	return walked < trace->walked_max;
}

static void walk_program(struct group_trace *trace, struct program *program)
{
	if (program->number || !has_place(trace))
		return;
	if (!program->target &&
	    hl_target_new(program->facts.pid, &trace->files, &program->target, NULL) < 0)
		return;
	hl_walker_add(trace->walker, program->target, &program->number, NULL);
}

/* Adds what ${pid} runs now, and walks its stacks unless that is done. One that has ended, or cannot be read, is left out. 0 or -ENOMEM. */
static int add_process(struct group_trace *trace, pid_t pid)
{
	struct program program = {0};

	if (hl_process_facts_read(pid, &program.facts, NULL) < 0)
		return 0;
	struct program *found = find_program(trace, &program.facts);
	bool is_full = trace->program_count >= PROGRAMS_MAX;
	int r = found || is_full ? 0
				 : HL_ARRAY_APPEND(trace->programs, trace->program_count,
						   trace->program_capacity, program);
	trace->unnoted += !found && is_full;
	if (found || is_full || r < 0)
		hl_process_facts_release(&program.facts);
	else
		found = &trace->programs[trace->program_count - 1];
	if (found)
		walk_program(trace, found);
	return r;
}

static int on_record(void *context, const struct hl_record_header *header, size_t bytes)
{
	const struct hl_growth_process_record *record = (const void *)header;
	struct group_trace *trace = context;

	if (header->kind != HL_RECORD_NEW_PROCESS || bytes < sizeof(*record))
		return 0;
	return HL_ARRAY_APPEND(trace->new_pids, trace->new_count, trace->new_capacity, record->pid);
}

/* Not while records are taken in: targets change then. */
static int add_new_processes(struct group_trace *trace)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < trace->new_count; i++)
		r = add_process(trace, (pid_t)trace->new_pids[i]);
	trace->new_count = 0;
	return r;
}

static int poll_records(struct group_trace *trace, int timeout_ms, struct hl_error *err)
{
	int r = hl_walker_poll(trace->walker, timeout_ms, err);

	if (r == 0)
		r = add_new_processes(trace);
	return r;
}

/* ---- start ---- */

static void free_trace(void *context)
{
	struct group_trace *trace = context;

	if (!trace)
		return;
	hl_walker_free(trace->walker);
	growth__destroy(trace->skeleton);
	for (size_t i = 0; i < trace->program_count; i++) {
		struct program *program = &trace->programs[i];
		if (i) {
			hl_process_facts_release(&program->facts);
			hl_trace_result_free(program->result);
		}
		hl_target_free(program->target);
		for (size_t k = 0; k < program->name_count; k++)
			free(program->names[k]);
		free(program->names);
		free(program->sites);
		free(program->nodes);
	}
	hl_target_files_release(&trace->files);
	hl_group_pages_free(trace->first);
	hl_group_pages_free(trace->last);
	free(trace->programs);
	free(trace->new_pids);
	free(trace);
}

/* By what the group may have at most, as the kernel takes room for tables at once. */
static int size_tables(struct group_trace *trace, struct hl_error *err)
{
	struct growth *skeleton = trace->skeleton;
	struct hl_cgroup_figures figures;
	uint64_t frames = hl_page_frames_end();

	int r = frames ? hl_cgroup_read_figures(trace->settings->group, &figures, err) : -ENOTSUP;
	if (r < 0)
		return r;
	uint64_t given =
		figures.limit < frames * page_bytes() ? figures.limit / page_bytes() : frames;
	given = given < GIVEN_MIN ? GIVEN_MIN : given > GIVEN_MAX ? GIVEN_MAX : given;
	uint64_t keys = given < KEYS_MAX ? given : KEYS_MAX, words = frames / 64 + 1;
	const struct {
		struct bpf_map *map;
		uint64_t entries;
	} tables[] = {
		{skeleton->maps.given, given},
		{skeleton->maps.grown, keys},
		{skeleton->maps.charged_before, words},
		{skeleton->maps.noted, words},
	};
	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(tables); i++)
		r = bpf_map__set_max_entries(tables[i].map, (uint32_t)tables[i].entries);
	return r < 0 ? r
		     : hl_page_scanner_size(skeleton->maps.inodes, trace->settings->group,
					    (given + keys) * ENTRY_BYTES + words * 16 +
						    WALKER_BYTES + trace->walked_max * WALKED_BYTES,
					    err);
}

static int load(struct group_trace *trace, struct hl_error *err)
{
	const struct program group = {.facts = *trace->request->facts};
	HL_FREED pid_t *pids = NULL;
	size_t count;

	trace->skeleton = growth__open();
	if (!trace->skeleton)
		return hl_error_set(err, -errno, "cannot prepare BPF programs: %s",
				    strerror(errno));
	int r = hl_cgroup_processes(trace->settings->group, &pids, &count, &trace->strangers);
	trace->walked_max =
		count < WALKED_MAX - WALKED_SPARE ? (uint32_t)count + WALKED_SPARE : WALKED_MAX;
	if (r == 0)
		r = size_tables(trace, err);
	if (r < 0)
		return r;
	r = hl_walker_new(trace->skeleton->obj, trace->walked_max, on_record, trace, &trace->walker,
			  err);
	if (r == 0)
		r = HL_ARRAY_APPEND(trace->programs, trace->program_count, trace->program_capacity,
				    group);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = add_process(trace, pids[i]);
	if (r < 0)
		return r;
	r = growth__load(trace->skeleton);
	if (r < 0)
		return hl_privilege_explain("load the programs that follow pages", r, err);
	trace->scanner = (struct hl_page_scanner)HL_PAGE_SCANNER(trace->skeleton);
	return hl_walker_start(trace->walker, err);
}

/* Attaches all but the program that finds the kernel's pages. */
static int attach(struct growth *skeleton)
{
	skeleton->links.page_allocated = bpf_program__attach(skeleton->progs.page_allocated);
	if (!skeleton->links.page_allocated)
		return -errno;
	skeleton->links.page_freed = bpf_program__attach(skeleton->progs.page_freed);
	if (!skeleton->links.page_freed)
		return -errno;
	skeleton->links.program_changed = bpf_program__attach(skeleton->progs.program_changed);
	return skeleton->links.program_changed ? 0 : -errno;
}

static int read_usage(struct group_trace *trace, uint64_t *ret_usage, struct hl_error *err)
{
	struct hl_cgroup_figures figures;
	int r = hl_cgroup_read_figures(trace->settings->group, &figures, err);

	if (r == 0)
		*ret_usage = figures.usage;
	return r;
}

static int begin(struct group_trace *trace, struct hl_error *err)
{
	volatile uint32_t *phase = &trace->skeleton->bss->growth.phase;
	int r = hl_page_scanner_start(&trace->scanner, trace->settings->group);

	*phase = HL_GROWTH_FIRST_SCAN;
	if (r == 0)
		r = attach(trace->skeleton);
	if (r == 0)
		r = hl_page_scanner_read(&trace->scanner, &trace->first);
	*phase = HL_GROWTH_WATCHES;
	if (r < 0)
		return r == -ENOTSUP
			       ? hl_error_set(err, r,
					      "this kernel's pages are not those that "
					      "heapline knows; 'heapline pod' shows what can "
					      "be had without them")
			       : hl_privilege_explain("follow the pages of the group", r, err);
	return read_usage(trace, &trace->first_usage, err);
}

static int start(const struct hl_trace_request *request, void **ret_trace, struct hl_error *err)
{
	const struct hl_process_facts self = {.pid = getpid()};
	struct group_trace *trace;

	if (hl_privilege_check(&self, HL_NEED_BPF | HL_NEED_PAGEMAP, NULL) < 0)
		return hl_error_set(err, -EPERM,
				    "cannot follow the pages of '%s': this needs root, and Linux "
				    "5.17 or newer with BTF",
				    request->facts->executable);
	trace = calloc(1, sizeof(*trace));
	if (!trace)
		return hl_error_set(err, -ENOMEM, "out of memory");
	trace->request = request;
	trace->settings = request->settings;
	int r = load(trace, err);
	if (r == 0)
		r = begin(trace, err);
	if (r < 0) {
		free_trace(trace);
		return hl_error_set(err, r, "cannot follow the pages of the group: %s",
				    strerror(-r));
	}
	request->detail("following %zu processes", trace->program_count - 1);
	*ret_trace = trace;
	return 0;
}

static int poll_trace(void *context, int timeout_ms, struct hl_error *err)
{
	struct group_trace *trace = context;
	struct hl_cgroup_figures figures;
	int r = poll_records(trace, timeout_ms, err);
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);

	if (r < 0 || now_ns - trace->looked_ns < LOOK_INTERVAL_NS)
		return r;
	trace->looked_ns = now_ns;
	trace->is_removed = hl_cgroup_read_figures(trace->settings->group, &figures, NULL) < 0;
	return trace->is_removed ? -ESRCH : 0;
}

/* ---- what pages are ---- */

static int add_name(struct program *program, const char *text, uint32_t *ret_name)
{
	char *name = strdup(text);

	if (!name ||
	    HL_ARRAY_RESERVE(program->names, program->name_capacity, program->name_count + 1)) {
		free(name);
		return -ENOMEM;
	}
	*ret_name = (uint32_t)program->name_count;
	program->names[program->name_count++] = name;
	return 0;
}

static int add_node(struct program *program, uint32_t parent, uint64_t frame, uint32_t *ret_node)
{
	const struct hl_recording_node node = {.frame = frame, .parent = parent};

	int r = HL_ARRAY_APPEND(program->nodes, program->node_count, program->node_capacity, node);
	if (r == 0)
		*ret_node = (uint32_t)program->node_count;
	return r;
}

/* Adds a frame that is called ${label} below ${parent} (0: outermost). */
static int add_label(struct program *program, uint32_t parent, const char *label,
		     uint32_t *ret_node)
{
	struct hl_recording_site site = {0};
	int r = program->name_count ? 0 : add_name(program, "", &site.source);

	if (r == 0)
		r = add_name(program, label, &site.function);
	if (r == 0)
		r = HL_ARRAY_APPEND(program->sites, program->site_count, program->site_capacity,
				    site);
	if (r == 0)
		r = add_node(program, parent,
			     hl_site_frame_key((uint32_t)program->site_count, false), ret_node);
	return r;
}

/* What a page is: "page cache of /var/log/a", "/dev/shm/b", "kernel memory"; "" for anonymous memory. */
static int label_of(struct group_trace *trace, const struct hl_growth_key *key,
		    char label[LABEL_MAX])
{
	static const char *const words[HL_GROUP_KINDS] = {
		"", "page cache", "file in memory", "kernel memory", "on its way to swap or back"};
	char name[LABEL_MAX - 32];

	snprintf(label, LABEL_MAX, "%s", words[key->kind]);
	struct hl_group_file *file = hl_group_pages_at(trace->last, key->inode);
	if (!file)
		return 0;
	int r = file->path ? 0 : hl_page_scanner_name(&trace->scanner, file);
	trace->settings->name_file(trace->settings->context, file, name, sizeof(name));
	snprintf(label, LABEL_MAX, "%s %s", words[key->kind], name);
	return r;
}

/* ---- the result ---- */

static int begin_program(struct group_trace *trace, struct program *program)
{
	const struct hl_recording_node *nodes;
	uint32_t count = 0;

	if (program->result)
		return 0;
	int r = hl_trace_result_new(&program->facts, hl_growth_trace.mode, &program->result);
	if (r < 0 || !program->number)
		return r;
	nodes = hl_walker_nodes(trace->walker, program->number, &count);
	r = HL_ARRAY_RESERVE(program->nodes, program->node_capacity, (size_t)count + 1);
	if (r == 0 && count)
		memcpy(program->nodes, nodes, count * sizeof(*nodes));
	program->node_count = r == 0 ? count : 0;
	return r;
}

/* The program whose stack it is, or that the process of ${pid} ran last; the group where that is not known. */
static struct program *program_of(struct group_trace *trace, uint32_t number, uint32_t pid)
{
	for (size_t i = trace->program_count; i-- > 1;)
		if (number ? trace->programs[i].number == number
			   : (uint32_t)trace->programs[i].facts.pid == pid)
			return &trace->programs[i];
	return &trace->programs[0];
}

static int add_pages(struct group_trace *trace, const struct hl_growth_key *key, uint64_t pages)
{
	struct program *group = &trace->programs[0];
	struct hl_trace_value value = {.alloc_objects = pages, .alloc_bytes = pages * page_bytes()};
	char label[LABEL_MAX];
	uint32_t number = 0, node = hl_walker_node(trace->walker, key->stack, &number);
	bool is_seen = key->is_given;

	struct program *program = is_seen ? program_of(trace, node ? number : 0, key->pid) : group;
	int r = begin_program(trace, program);
	if (r == 0)
		r = label_of(trace, key, label);
	if (r == 0 && !node) {
		if (!program->lost_nodes[is_seen])
			r = add_node(program, 0,
				     hl_pseudo_frame_key(is_seen ? HL_PSEUDO_STACK_LOST
								 : HL_PSEUDO_NO_FAULT),
				     &program->lost_nodes[is_seen]);
		node = program->lost_nodes[is_seen];
	}
	if (r == 0 && label[0])
		r = add_label(program, node, label, &node);
	return r < 0 ? r : hl_trace_result_add(program->result, node, &value);
}

static int add_grown(struct group_trace *trace)
{
	int map = bpf_map__fd(trace->skeleton->maps.grown), r = 0;
	struct hl_growth_key key, *last = NULL;
	uint64_t pages;

	for (; r == 0 && bpf_map_get_next_key(map, last, &key) == 0; last = &key)
		if (key.kind < HL_GROUP_KINDS && bpf_map_lookup_elem(map, &key, &pages) == 0)
			r = add_pages(trace, &key, pages);
	return r;
}

/* Adds ${bytes}, which may be negative, that are of the group and of no stack. */
static int add_rest(struct group_trace *trace, const char *label, int64_t bytes)
{
	struct program *group = &trace->programs[0];
	uint64_t size = (uint64_t)(bytes < 0 ? -bytes : bytes), pages = size / page_bytes();
	const struct hl_trace_value value = {
		.alloc_bytes = bytes > 0 ? size : 0,
		.alloc_objects = bytes > 0 ? pages : 0,
		.free_bytes = bytes < 0 ? size : 0,
		.free_objects = bytes < 0 ? pages : 0,
	};
	uint32_t node;

	if (!bytes)
		return 0;
	int r = add_label(group, 0, label, &node);
	return r < 0 ? r : hl_trace_result_add(group->result, node, &value);
}

static int64_t cache_bytes(const struct hl_group_pages *pages, const char *name)
{
	for (size_t i = 0; i < pages->cache_count; i++)
		if (!strncmp(pages->caches[i].name, name, sizeof(pages->caches[i].name)))
			return (int64_t)(pages->caches[i].objects * pages->caches[i].object_bytes);
	return 0;
}

/* How slab has grown, by kind of object; the sum into ${ret_bytes}. */
static int add_caches(struct group_trace *trace, int64_t *ret_bytes)
{
	char label[64];
	int r = 0;

	for (size_t i = 0; r == 0 && i < trace->last->cache_count; i++) {
		const struct hl_group_cache *cache = &trace->last->caches[i];
		int64_t bytes = cache_bytes(trace->last, cache->name) -
				cache_bytes(trace->first, cache->name);
		snprintf(label, sizeof(label), "kernel memory slab %.32s", cache->name);
		*ret_bytes += bytes;
		r = add_rest(trace, label, bytes);
	}
	for (size_t i = 0; r == 0 && i < trace->first->cache_count; i++) {
		const struct hl_group_cache *cache = &trace->first->caches[i];
		if (cache_bytes(trace->last, cache->name))
			continue;
		snprintf(label, sizeof(label), "kernel memory slab %.32s", cache->name);
		*ret_bytes -= cache_bytes(trace->first, cache->name);
		r = add_rest(trace, label, -cache_bytes(trace->first, cache->name));
	}
	return r;
}

static int64_t sum_of(const struct hl_group_pages *pages)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < HL_GROUP_KINDS; i++)
		sum += pages->bytes[i];
	return (int64_t)sum;
}

/* What has no stack, so that all of it is the growth of the group's usage. */
static int add_others(struct group_trace *trace)
{
	const struct hl_growth_state *state = &trace->skeleton->bss->growth;
	int64_t released = sum_of(trace->first) - (int64_t)(state->kept_pages * page_bytes());
	int64_t pages = sum_of(trace->last) - sum_of(trace->first), slab = 0;
	uint64_t gone_bytes = released > 0 ? (uint64_t)released : 0;
	const struct hl_trace_value gone = {.free_bytes = gone_bytes,
					    .free_objects = gone_bytes / page_bytes()};
	struct hl_trace_result *result = trace->programs[0].result;

	int r = hl_trace_result_add_pseudo(result, HL_PSEUDO_RELEASED, &gone);
	if (r == 0)
		r = add_caches(trace, &slab);
	if (r == 0)
		r = add_rest(trace, "pages of too many files and stacks to tell them apart",
			     (int64_t)(state->lost_keys * page_bytes()));
	if (trace->is_removed)
		trace->last_usage = trace->first_usage + (uint64_t)(pages + slab);
	int64_t growth = (int64_t)(trace->last_usage - trace->first_usage);
	if (r == 0)
		r = add_rest(trace, "other memory of the kernel, or changed during a scan",
			     growth - pages - slab);
	if (r == 0)
		r = hl_trace_result_figure(result, "usage_growth_bytes", growth);
	if (r == 0)
		r = hl_trace_result_figure(result, "released_pages", (int64_t)gone.free_objects);
	return r;
}

static int end_program(struct program *program)
{
	static char pool[] = HL_POOL_PROVIDER;
	const struct hl_target *target = program->target;
	struct hl_recording_provider *provider = NULL;
	struct hl_recording_process scripts = {0};

	int r = hl_trace_result_stacks(program->result, program->nodes,
				       (uint32_t)program->node_count,
				       program->number ? target->modules : NULL,
				       program->number ? (uint32_t)target->module_count : 0);
	if (r < 0 || !program->site_count)
		return r;
	provider = calloc(1, sizeof(*provider));
	if (!provider || !(provider->name = strdup(pool))) {
		free(provider);
		return -ENOMEM;
	}
	scripts.providers = provider;
	scripts.provider_count = 1;
	scripts.sites = HL_TAKE(program->sites);
	scripts.site_count = (uint32_t)program->site_count;
	scripts.site_names = HL_TAKE(program->names);
	scripts.site_name_count = (uint32_t)program->name_count;
	program->site_count = program->name_count = 0;
	hl_trace_result_take_scripts(program->result, &scripts);
	return 0;
}

static int join_programs(struct group_trace *trace)
{
	struct hl_trace_result *result = trace->programs[0].result;
	int r = 0;

	for (size_t i = 0; r == 0 && i < trace->program_count; i++) {
		struct program *program = &trace->programs[i];
		if (!program->result)
			continue;
		r = end_program(program);
		if (r == 0 && i)
			r = hl_trace_result_join(result, program->result);
	}
	return r;
}

static int add_losses(struct group_trace *trace)
{
	const struct hl_growth_state *state = &trace->skeleton->bss->growth;
	struct hl_trace_result *result = trace->programs[0].result;
	struct hl_lost *lost = hl_trace_result_lost(result);
	struct hl_walker_losses losses;

	int r = hl_walker_losses(trace->walker, &losses);
	if (r < 0)
		return r;
	lost->truncated_stacks = losses.walk.count[HL_LOSS_TRUNCATED];
	lost->incomplete_stacks = losses.walk.count[HL_LOSS_INCOMPLETE];
	lost->modules =
		losses.modules_lost + losses.files_lost + losses.rows_full + losses.mappings_full;
	lost->events = state->lost_pages;
	size_t unwalked = trace->unnoted;
	for (size_t i = 1; i < trace->program_count; i++)
		unwalked += !trace->programs[i].number;
	if (unwalked)
		r = hl_trace_result_warn(
			result,
			"the stacks of %zu programs could not be walked: they ended "
			"at once, or were too many",
			unwalked);
	if (r == 0 && trace->strangers)
		r = hl_trace_result_warn(
			result,
			"%zu of its processes are in other PID namespaces and cannot "
			"be seen from here; run heapline on the host",
			trace->strangers);
	if (r == 0 && trace->is_removed)
		r = hl_trace_result_warn(
			result, "the group was removed before the trace ended: this is what "
				"of its pages was left");
	return r;
}

static int finish(void *context, bool has_ended, struct hl_trace_result *result,
		  struct hl_error *err)
{
	struct group_trace *trace = context;

	(void)has_ended;
	trace->programs[0].result = result;
	*(volatile uint32_t *)&trace->skeleton->bss->growth.phase = HL_GROWTH_LAST_SCAN;
	int r = hl_page_scanner_read(&trace->scanner, &trace->last);
	if (r == 0 && !trace->is_removed) {
		trace->is_removed = read_usage(trace, &trace->last_usage, NULL) < 0;
	}
	growth__detach(trace->skeleton);
	if (r == 0)
		r = hl_walker_poll(trace->walker, 0, err);
	if (r == 0)
		r = add_grown(trace);
	if (r == 0)
		r = add_others(trace);
	if (r == 0)
		r = add_losses(trace);
	if (r == 0)
		r = join_programs(trace);
	return r < 0 ? hl_error_set(err, r, "cannot sum up pages: %s", strerror(-r)) : 0;
}

const struct hl_trace_backend hl_growth_trace = {
	.mode = "pod-growth",
	.start = start,
	.poll = poll_trace,
	.finish = finish,
	.free = free_trace,
};
