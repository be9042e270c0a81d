/* SPDX-License-Identifier: BSD-2-Clause */
/* Words what a recording lacks of a program, and why; see collector.h. */
#include "collector/collector.h"

#include "base/case_file.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/names.h"
#include "collector/tracked.h"
#include "guests/traits.h"
#include "process/cgroup.h"
#include "process/maps.h"
#include "process/process.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory control groups ---- */

#define MIB (1024.0 * 1024)

/* What the recorder needs at most: rings and stacks, and of the heap a quarter, where blocks are as small as they can be. */
#define BASE_BYTES (INT64_C(32) << 20)
#define HEAP_PARTS 4

struct hl_memory_group {
	struct hl_cgroup at;
	uint64_t oom_kills; /* when it was opened */
};

struct hl_memory_group *hl_memory_group_open(pid_t pid)
{
	struct hl_memory_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	if (hl_cgroup_open_of(pid, &group->at, NULL) < 0) {
		free(group);
		return NULL;
	}
	group->oom_kills = hl_cgroup_oom_kills(&group->at);
	return group;
}

const struct hl_cgroup *hl_memory_group_at(const struct hl_memory_group *group)
{
	return group ? &group->at : NULL;
}

/*
 * Whether the kernel has killed processes of the group for want of memory since, which is what may have ended ${pid};
 * ${sentence} says so, with the limit. False where the group has been removed.
 */
static bool memory_group_describe_kill(const struct hl_memory_group *group, pid_t pid,
				       char sentence[HL_WARNING_BYTES])
{
	struct hl_cgroup_figures now;

	if (!group || group->oom_kills == HL_CGROUP_UNKNOWN)
		return false;
	uint64_t oom_kills = hl_cgroup_oom_kills(&group->at);
	if (oom_kills == HL_CGROUP_UNKNOWN || oom_kills <= group->oom_kills ||
	    hl_cgroup_read_figures(&group->at, &now, NULL) < 0 ||
	    now.oom_kills == HL_CGROUP_UNKNOWN)
		return false;
	uint64_t kills = now.oom_kills - group->oom_kills;
	char limit[64] = "";
	if (now.limit != HL_CGROUP_UNKNOWN)
		snprintf(limit, sizeof(limit), ", whose limit is %.1f MiB",
			 (double)now.limit / MIB);
	snprintf(sentence, HL_WARNING_BYTES,
		 "process %d ended while the kernel killed %" PRIu64
		 " process%s of its control group for want of memory: '%.200s'%s",
		 pid, kills, kills == 1 ? "" : "es", hl_cgroup_name(&group->at), limit);
	return true;
}

bool hl_memory_group_describe_room(const struct hl_memory_group *group, pid_t pid,
				   char sentence[HL_WARNING_BYTES])
{
	struct hl_cgroup_figures figures;

	if (!group || hl_cgroup_read_figures(&group->at, &figures, NULL) < 0 ||
	    figures.limit == HL_CGROUP_UNKNOWN)
		return false;
	int64_t left = (int64_t)figures.limit - (int64_t)figures.usage;
	int64_t need = BASE_BYTES + hl_process_status_read(pid).anonymous_bytes / HEAP_PARTS;
	if (left >= need)
		return false;
	snprintf(sentence, HL_WARNING_BYTES,
		 "the control group '%.200s' has %.1f MiB left of its limit of %.1f MiB, to which "
		 "the recorder's memory counts, about 13 bytes for each live block; before it is "
		 "full, the recording goes on by samples",
		 hl_cgroup_name(&group->at), (double)(left > 0 ? left : 0) / MIB,
		 (double)figures.limit / MIB);
	return true;
}

void hl_memory_group_free(struct hl_memory_group *group)
{
	if (!group)
		return;
	hl_cgroup_release(&group->at);
	free(group);
}

/* ---- growth outside malloc ---- */

#define GROWTH_MIN	  (INT64_C(4) << 20)
#define GROWTH_MIN_TRACED (INT64_C(1) << 20) /* in the seconds of a trace */
#define SHARE_OF_GROWTH	  4		     /* what malloc gave is less than one part of these */

#define WAY_MAX 256

static bool find_own(const struct hl_outside_malloc *found, struct hl_own_memory *ret_own)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	bool has_maps = found->runs && hl_maps_read(found->pid, &maps, NULL) == 0;

	return hl_own_memory_find(found->executable, found->pid, has_maps ? &maps : NULL, ret_own);
}

/* A clause that names a command for this very process, or for its program. ${own}: NULL where nothing is known. */
static void format_way(const struct hl_outside_malloc *found, const struct hl_own_memory *own,
		       char way[WAY_MAX])
{
	int pid = (int)found->pid;

	if (own && found->runs && (found->is_traced || own->by_malloc))
		snprintf(way, WAY_MAX, "'heapline attach -p %d' records %s", pid, own->what);
	else if (own && own->by_malloc)
		snprintf(way, WAY_MAX, "%s", own->by_malloc);
	else if (own && own->is_objects && found->ran_before && !found->allocations)
		snprintf(way, WAY_MAX, "%s are recorded from its next call of malloc on",
			 own->what);
	else if (found->runs)
		snprintf(way, WAY_MAX,
			 "'heapline pgfault -p %d 60' shows the code that touches new memory", pid);
	else
		snprintf(way, WAY_MAX,
			 "while it runs, 'heapline pgfault --comm %s 60' shows the code that "
			 "touches new memory",
			 hl_path_basename(found->executable));
}

bool hl_outside_malloc_describe(const struct hl_outside_malloc *found,
				char ret_sentence[HL_WARNING_BYTES])
{
	const char *name = hl_path_basename(found->executable);
	struct hl_own_memory found_own;
	const struct hl_own_memory *own = NULL;
	bool is_empty = !found->allocations;
	bool grew =
		found->rss_growth_bytes >= (found->is_traced ? GROWTH_MIN_TRACED : GROWTH_MIN) &&
		found->malloc_bytes < found->rss_growth_bytes / SHARE_OF_GROWTH &&
		found->alloc_bytes < found->rss_growth_bytes;

	if ((grew || (found->ran_before && is_empty)) && find_own(found, &found_own))
		own = &found_own;
	/* Such a guest frees and allocates objects without a call of malloc, too. */
	bool is_unseen = own && own->is_objects && found->ran_before && is_empty;
	char way[WAY_MAX], had[64] = "", growth[64] = "";

	if (!grew && !is_unseen)
		return false;
	format_way(found, own, way);
	if (is_unseen && found->runs && own->listed_by)
		snprintf(way + strlen(way), WAY_MAX - strlen(way),
			 ", so record longer; 'heapline heap -p %d %s' lists those that it has "
			 "now, by "
			 "type",
			 (int)found->pid, own->listed_by);
	if (!is_empty)
		snprintf(had, sizeof(had), "at most %.1f MiB from malloc",
			 (double)found->malloc_bytes / MIB);
	if (grew)
		snprintf(growth, sizeof(growth), ", while RSS rose by %.1f MiB",
			 (double)found->rss_growth_bytes / MIB);
	snprintf(ret_sentence, HL_WARNING_BYTES, "%s in process %d (%s)%s: %s",
		 is_empty ? "not one call of malloc" : had, (int)found->pid, name, growth, way);
	return true;
}

void hl_program_warnings_growth(struct hl_program_warnings *warnings, struct hl_archive *archive,
				const struct hl_region_settings *settings,
				const struct hl_tracked *tracked)
{
	const struct hl_tracked_totals *totals = &tracked->totals;
	bool runs = tracked->end == HL_END_RUNNING;
	char sentence[HL_WARNING_BYTES];
	int64_t now = runs ? hl_process_status_read(tracked->pid).anonymous_bytes
			   : tracked->anonymous_bytes;
	const struct hl_outside_malloc found = {
		.pid = tracked->pid,
		.executable = tracked->identity.executable,
		.runs = runs,
		.ran_before = tracked->ran_before,
		.allocations = totals->allocations,
		.malloc_bytes = totals->peak_bytes,
		.alloc_bytes = totals->alloc_bytes,
		.rss_growth_bytes = now - tracked->first_anonymous_bytes,
	};

	/* Otherwise not all of its calls were counted. */
	if (settings->mode != HL_MODE_CLOSED && !settings->sample_bytes && !totals->own_malloc &&
	    !tracked->is_sampled && !tracked->reset_ns && !tracked->is_another &&
	    !warnings->has_warned_of_growth && hl_outside_malloc_describe(&found, sentence)) {
		hl_archive_warn(archive, "%s", sentence);
		warnings->has_warned_of_growth = true;
	}
}

/* ---- programs ---- */

void hl_program_warnings_address_space(struct hl_archive *archive,
				       const struct hl_region_settings *settings,
				       const struct hl_tracked *tracked, uint64_t limit)
{
	const struct hl_region_header *layout = &tracked->region.layout;

	if (limit == UINT64_MAX)
		return;
	uint64_t taken = hl_mode_logs(settings->mode) ? layout->region_bytes
						      : layout->areas[HL_AREA_RINGS].offset;
	hl_archive_warn(archive,
			"of the %" PRIu64 " MiB of address space that RLIMIT_AS leaves a program, "
			"the recorder takes %" PRIu64 " MiB, and more for each block",
			limit >> 20, taken >> 20);
}

/* Warns once for each program, of the last HL_EXAMINED_MAX programs. */
static void warn_of_program(struct hl_program_warnings *warnings, struct hl_archive *archive,
			    const struct hl_tracked *tracked)
{
	const struct hl_identity *program = &tracked->identity;
	HL_CLEANUP(hl_examinee_close) struct hl_examinee examinee = {.fd = -1};

	for (size_t i = 0; i < HL_COUNT_OF(warnings->examined); i++)
		if (warnings->examined[i].device == program->device &&
		    warnings->examined[i].inode == program->inode)
			return;
	size_t place = warnings->examined_count++ % HL_COUNT_OF(warnings->examined);
	warnings->examined[place].device = program->device;
	warnings->examined[place].inode = program->inode;
	hl_examinee_open(program->executable, &examinee);
	/* In a process that runs, the allocator's functions are found wherever they are. */
	const char *function = tracked->attached ? NULL : hl_examine_allocator(&examinee);
	if (function)
		hl_archive_warn(archive,
				"'%s' has an allocator of its own linked into it ('%s'), whose "
				"allocations are not seen; 'heapline stacks -p PID' traces them "
				"while it runs",
				program->executable, function);
	const char *hidden = hl_examine_hidden_allocator(&examinee);
	if (hidden)
		hl_archive_warn(
			archive,
			"'%s' has %s built in, none of whose functions it names, so that their "
			"allocations are not seen; while it runs 'heapline heap -p PID' reads "
			"its blocks, and 'heapline pgfault -p PID' shows what makes it grow",
			program->executable, hidden);
	char unseen[HL_EXAMINE_UNSEEN_MAX] = "";
	if (!tracked->attached)
		hl_examine_unseen(&examinee, unseen);
	if (unseen[0])
		hl_archive_warn(archive,
				"'%s' calls functions of an allocator that this heapline does not "
				"know (%s); what they allocate and free is not seen",
				program->executable, unseen);
	char version[HL_EXAMINE_VERSION_MAX];
	const char *remedy = hl_examine_hidden_guest(&examinee, version);
	if (remedy)
		hl_archive_warn(
			archive,
			"'%s' has %s linked into it, none of whose functions it exports, so "
			"that lines of scripts are not seen; %s",
			program->executable, version, remedy);
}

/* Whether ${text} ends within ${bytes}, and a terminal shows all of it. */
static bool is_plain_text(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (!text[i])
			return true;
		if (text[i] < ' ' || text[i] > '~')
			return false;
	}
	return false;
}

/* Says once for each program why lines of its scripts are missing. The program may have written anything
 * there. */
static void warn_of_scripts(struct hl_archive *archive, const struct hl_tracked *tracked)
{
	const struct hl_region_refusal *refusal = &tracked->region.header->refusal;
	uint32_t state = atomic_load_explicit(&refusal->state, memory_order_acquire);

	if (state != HL_REFUSAL_WRITTEN && state != HL_REFUSAL_NOTED)
		return;
	const struct hl_region_refusal said = *refusal;
	if (is_plain_text(said.runtime, sizeof(said.runtime)) &&
	    is_plain_text(said.reason, sizeof(said.reason)))
		hl_archive_warn(archive, "'%s' runs %s, %s: %s", tracked->identity.executable,
				said.runtime,
				state == HL_REFUSAL_NOTED ? "not all of whose memory is recorded"
							  : "but its frames stay native",
				said.reason);
}

/* The allocator of the guest that has frames of ${provider}, a name of up to ${bytes}; or NULL. */
static const struct hl_guest_allocator *allocator_of(const char *provider, size_t bytes)
{
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_guest_allocator *allocator = hl_guest_traits[i]->allocator;
		if (allocator && !strncmp(provider, allocator->provider, bytes))
			return allocator;
	}
	return NULL;
}

/* A preloaded recorder cannot take the place of an allocator that a guest does not export. */
static void warn_of_guest_allocator(struct hl_archive *archive, const struct hl_tracked *tracked)
{
	const struct hl_region_header *header = tracked->region.header;
	uint32_t count = atomic_load_explicit(&header->provider_count, memory_order_acquire);

	if (tracked->attached ||
	    atomic_load(&header->flags) & (HL_REGION_NO_OBJECTS | HL_REGION_MAPPINGS))
		return;
	for (uint32_t i = 0; i < count && i < HL_SCRIPT_PROVIDERS_MAX; i++) {
		const struct hl_guest_allocator *allocator =
			allocator_of(header->providers[i].name, sizeof(header->providers[i].name));
		if (allocator)
			hl_archive_warn(archive,
					"'%s' runs %s, whose objects are not seen, as its "
					"allocator calls mmap() alone; 'heapline attach -p PID' "
					"records them, and --mappings counts what it maps",
					tracked->identity.executable, allocator->name);
	}
}

static void warn_of_namespaces(struct hl_archive *archive, const struct hl_tracked *tracked)
{
	const struct hl_region_kin *kin = &tracked->region.header->kin;
	uint32_t namespaces = hl_region_check_kin(kin) ? atomic_load(&kin->namespaces) : 0;

	if (namespaces)
		hl_archive_warn(archive,
				"process %d asked for %u namespace%s by dlmopen(); what is "
				"allocated in such a namespace is not seen",
				tracked->pid, namespaces, namespaces == 1 ? "" : "s");
}

static void warn_of_refused_cases(struct hl_archive *archive, const struct hl_tracked *tracked)
{
	const struct hl_region_kin *kin = &tracked->region.header->kin;

	if (hl_region_check_kin(kin) && atomic_load(&kin->refused_cases))
		hl_archive_warn(archive,
				"process %d " HL_CASES_REFUSED
				": it has become another user, has another root directory, or "
				"had no room for them; run the tests as the user that heapline "
				"runs as",
				tracked->pid);
}

/* Whether the recorder was told to sample; ${sentence} says when and why. */
static bool describe_sampling(const struct hl_tracked *tracked, char sentence[HL_WARNING_BYTES])
{
	struct hl_budget_verdict verdict;
	char why[128];

	if (!hl_budget_has_told(tracked->budget, &verdict))
		return false;
	if (verdict.limit)
		snprintf(why, sizeof(why),
			 "its control group had %.1f MiB left of its limit of %.1f MiB",
			 (double)verdict.left / MIB, (double)verdict.limit / MIB);
	else
		snprintf(why, sizeof(why), "the recorder used %.1f MiB, and --max-memory says so",
			 (double)verdict.recorder_bytes / MIB);
	double seconds = verdict.clock_ns > tracked->start_ns
				 ? (double)(verdict.clock_ns - tracked->start_ns) / HL_NS_PER_SECOND
				 : 0;
	snprintf(sentence, HL_WARNING_BYTES,
		 "process %d is sampled from %.1f s on, one allocation about every %u KiB: %s; "
		 "allocations until then are exact, what is in use is estimated",
		 tracked->pid, seconds, (unsigned)(hl_budget_sample_bytes(tracked->budget) >> 10),
		 why);
	return true;
}

void hl_program_warnings_sampling(struct hl_archive *archive, struct hl_tracked *tracked)
{
	uint64_t sample_bytes = hl_budget_sample_bytes(tracked->budget);
	char sentence[HL_WARNING_BYTES];

	if (tracked->is_sampled || !describe_sampling(tracked, sentence))
		return;
	tracked->is_sampled = true;
	hl_archive_warn(archive, "%s", sentence);
	if (archive->meta.sample_bytes < sample_bytes)
		archive->meta.sample_bytes = sample_bytes;
	archive->meta_is_stale = true;
}

/* Whether a process that is not under heapline's own filters has one. */
static bool has_filter(const struct hl_tracked *tracked)
{
	struct hl_process_condition own, condition;

	return hl_process_condition_read(getpid(), &own, NULL) == 0 && !own.seccomp_mode &&
	       hl_process_condition_read(tracked->pid, &condition, NULL) == 0 &&
	       condition.seccomp_mode;
}

void hl_program_warnings_filters(struct hl_archive *archive, struct hl_tracked *tracked)
{
	uint32_t flags = atomic_load(&tracked->region.header->flags);
	bool is_unseen =
		!(flags & HL_REGION_FILTER_SEEN) && !tracked->end_ns && has_filter(tracked);

	if (tracked->is_filtered || !(flags & HL_REGION_FILTERED || is_unseen))
		return;
	tracked->is_filtered = true;
	hl_archive_warn(
		archive,
		is_unseen ? "process %d has a seccomp filter that the recorder has not seen come; "
			    "it ends if "
			    "that kills for a system call of the recorder, see heapline-record(1)"
			  : "process %d has forbidden itself system calls that the recorder needs "
			    "(seccomp); "
			    "since then it makes none of those, and what it cannot record is lost",
		tracked->pid);
	archive->meta_is_stale = true;
}

/* Before what is known already: commands say the first warning at their end. */
static void warn_of_kill(struct hl_archive *archive, const struct hl_tracked *tracked)
{
	char sentence[HL_WARNING_BYTES], sampling[HL_WARNING_BYTES];

	if (!memory_group_describe_kill(tracked->memory_group, tracked->pid, sentence))
		return;
	bool is_sampled = describe_sampling(tracked, sampling);
	hl_archive_warn_instead(archive, is_sampled ? sampling : "", sentence);
	if (is_sampled)
		hl_archive_warn(archive, "%s", sampling);
}

static void warn_of_end(struct hl_archive *archive, const struct hl_tracked *tracked)
{
	bool may_be_killed = tracked->end == HL_END_UNKNOWN ||
			     (tracked->end == HL_END_SIGNALED && tracked->end_status == SIGKILL);

	if (may_be_killed)
		warn_of_kill(archive, tracked);
	if (tracked->end == HL_END_SIGNALED && tracked->end_status == SIGSYS)
		hl_archive_warn(
			archive,
			"process %d was killed by SIGSYS: its seccomp filter does not permit "
			"a system call that it made, or that the recorder made in it; "
			"heapline-record(1) lists the recorder's",
			tracked->pid);
}

void hl_program_warnings_end(struct hl_program_warnings *warnings, struct hl_archive *archive,
			     struct hl_tracked *tracked)
{
	warn_of_namespaces(archive, tracked);
	warn_of_refused_cases(archive, tracked);
	hl_program_warnings_filters(archive, tracked);
	hl_program_warnings_sampling(archive, tracked);
	warn_of_end(archive, tracked);
	warn_of_program(warnings, archive, tracked);
	warn_of_scripts(archive, tracked);
	warn_of_guest_allocator(archive, tracked);
}
