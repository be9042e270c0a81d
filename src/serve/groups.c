/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the balance of control groups; see groups.h. */
#include "serve/groups.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "heap/pod.h"
#include "process/cgroup.h"
#include "process/process.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const struct hl_group_figure_name hl_group_figure_names[HL_GROUP_FIGURES] = {
	[HL_GROUP_USAGE] = {"usage_bytes", "What the group is charged with, subgroups included."},
	[HL_GROUP_LIMIT] = {"limit_bytes", "The lowest limit of the group and of those above it."},
	[HL_GROUP_WORKING_SET] = {"working_set_bytes",
				  "Usage without inactive page cache, as kubelet counts it."},
	[HL_GROUP_RECLAIMABLE] = {"reclaimable_bytes",
				  "What the kernel can take back by itself: page cache, slab."},
	[HL_GROUP_UNRECLAIMABLE] = {"unreclaimable_bytes",
				    "Usage that the kernel cannot take back, but by swapping."},
	[HL_GROUP_ANONYMOUS] = {"anonymous_bytes", "Anonymous memory of processes."},
	[HL_GROUP_SHARED] = {"shared_bytes",
			     "Files in memory: tmpfs, memfd, System V, shared anonymous memory."},
	[HL_GROUP_CACHE] = {"cache_bytes", "Page cache of files on disks."},
	[HL_GROUP_KERNEL] = {"kernel_bytes",
			     "Memory of the kernel: slab, stacks, page tables, sockets, others."},
	[HL_GROUP_UNKNOWN] = {"unknown_bytes", "Usage that no other kind accounts for."},
	[HL_GROUP_SWAP] = {"swap_bytes", "On swap, beside the usage."},
	[HL_GROUP_RECORDER] = {"recorder_bytes",
			       "Memory of heapline in the recorded processes of the group."},
	[HL_GROUP_OOM_KILLS] = {"oom_kills",
				"Processes of the group that were killed for want of memory."},
};

static int64_t known(uint64_t figure)
{
	return figure == HL_CGROUP_UNKNOWN ? -1 : (int64_t)figure;
}

static struct hl_group *find(struct hl_groups *groups, const char *name)
{
	for (size_t i = 0; i < groups->count; i++)
		if (!strcmp(groups->groups[i].name, name))
			return &groups->groups[i];
	return NULL;
}

/* Counts ${at} once, however often it is found. */
static int leave_out(struct hl_groups *groups, const struct hl_cgroup *at)
{
	struct stat status;

	if (fstat(at->fd, &status) < 0)
		return 0;
	for (size_t i = 0; i < groups->left_out; i++)
		if (groups->left[i] == status.st_ino)
			return 0;
	return HL_ARRAY_APPEND(groups->left, groups->left_out, groups->left_capacity,
			       (uint64_t)status.st_ino);
}

static void fill(struct hl_group *group, const struct hl_pod *pod)
{
	const int64_t figures[HL_GROUP_FIGURES] = {
		[HL_GROUP_USAGE] = known(pod->figures.usage),
		[HL_GROUP_LIMIT] = known(pod->figures.limit),
		[HL_GROUP_WORKING_SET] = (int64_t)hl_pod_working_set(pod),
		[HL_GROUP_RECLAIMABLE] = (int64_t)pod->reclaimable_bytes,
		[HL_GROUP_UNRECLAIMABLE] = (int64_t)hl_pod_unreclaimable(pod),
		[HL_GROUP_ANONYMOUS] = (int64_t)pod->sums[HL_POD_ANONYMOUS],
		[HL_GROUP_SHARED] = (int64_t)pod->sums[HL_POD_SHARED],
		[HL_GROUP_CACHE] = (int64_t)pod->sums[HL_POD_CACHE],
		[HL_GROUP_KERNEL] = (int64_t)pod->sums[HL_POD_KERNEL],
		[HL_GROUP_UNKNOWN] = (int64_t)pod->sums[HL_POD_UNKNOWN],
		[HL_GROUP_SWAP] = known(pod->figures.swap),
		[HL_GROUP_RECORDER] = -1,
		[HL_GROUP_OOM_KILLS] = known(pod->figures.oom_kills),
	};

	memcpy(group->figures, figures, sizeof(figures));
}

/*
 * Adds ${at}, unless it is there or cannot be read any more, and for ${with_limit} the group above whose limit counts for it. *${ret_index},
 * which may be NULL, is left as it is where it is not added. 0 or -ENOMEM.
 */
static int add(struct hl_groups *groups, const struct hl_cgroup *at, bool with_limit,
	       size_t *ret_index)
{
	const char *name = hl_cgroup_name(at);
	struct hl_group *there = find(groups, name), group = {0};
	struct hl_pod *pod = NULL;

	if (there && ret_index)
		*ret_index = (size_t)(there - groups->groups);
	if (there)
		return 0;
	if (groups->count == HL_GROUPS_MAX)
		return leave_out(groups, at);
	int r = hl_pod_read(at, HL_POD_SUMS, &pod, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0; /* it has gone */
	hl_service_container(name, group.container, group.pod);
	fill(&group, pod);
	group.name = strdup(name);
	r = group.name ? HL_ARRAY_APPEND(groups->groups, groups->count, groups->capacity, group)
		       : -ENOMEM;
	if (r < 0)
		free(group.name);
	else if (ret_index)
		*ret_index = groups->count - 1;
	if (r == 0 && with_limit && pod->figures.limit_path[0] &&
	    !find(groups, pod->figures.limit_path)) {
		HL_CLEANUP(hl_cgroup_release) struct hl_cgroup above = {.fd = -1};
		HL_FREED char *path = NULL;
		if (asprintf(&path, "%.*s%s", (int)at->mount_length, at->path,
			     pod->figures.limit_path) < 0)
			r = -ENOMEM;
		else if (hl_cgroup_open(path, &above, NULL) == 0)
			r = add(groups, &above, false, NULL);
	}
	hl_pod_free(pod);
	return r;
}

/* The bytes of ${name} that name the container that it is or lies in; 0: neither a container nor in one. */
static size_t container_length(const char *name)
{
	char container[HL_SERVICE_CONTAINER_MAX], pod[HL_SERVICE_CONTAINER_MAX];
	const char *last = NULL;

	hl_service_container(name, container, pod);
	for (const char *at = name; container[0] && (at = strstr(at, container)); at++)
		last = at;
	return last ? (size_t)(strchrnul(last, '/') - name) : 0;
}

/* ---- groups of recorded processes ---- */

/* Reads the group of a process, whose cgroups are ${key}, which it takes over. 0 or -ENOMEM. */
static int add_of_process(struct hl_groups *groups, pid_t pid, char *key, size_t *ret_index)
{
	HL_CLEANUP(hl_cgroup_release) struct hl_cgroup at = {.fd = -1}, whole = {.fd = -1};
	HL_FREED char *owned_key = key;
	const struct hl_cgroup *chosen = &at;
	size_t index = SIZE_MAX;

	if (hl_cgroup_open_of(pid, &at, NULL) < 0)
		return 0;
	size_t length = container_length(hl_cgroup_name(&at));
	if (length && hl_cgroup_name(&at)[length]) {
		HL_FREED char *path = strndup(at.path, at.mount_length + length);
		if (!path)
			return -ENOMEM;
		if (hl_cgroup_open(path, &whole, NULL) == 0)
			chosen = &whole;
	}
	int r = add(groups, chosen, true, &index);
	if (r < 0 || index == SIZE_MAX)
		return r;
	if (!groups->groups[index].key)
		groups->groups[index].key = HL_TAKE(owned_key);
	*ret_index = index;
	return 0;
}

int hl_groups_add(struct hl_groups *groups, const struct hl_catalog_process *process)
{
	int64_t own = process->recorder_bytes < 0 ? process->asked_recorder_bytes
						  : process->recorder_bytes;
	char *key = NULL;
	size_t length, index = SIZE_MAX;

	int r = hl_proc_read_all(hl_proc_thread(process->pid), "cgroup", &key, &length);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	for (size_t i = 0; index == SIZE_MAX && i < groups->count; i++)
		if (groups->groups[i].key && !strcmp(groups->groups[i].key, key))
			index = i;
	if (index == SIZE_MAX)
		r = add_of_process(groups, process->pid, key, &index);
	else
		free(key);
	if (r == 0 && index != SIZE_MAX && own >= 0) {
		int64_t *sum = &groups->groups[index].figures[HL_GROUP_RECORDER];
		*sum = (*sum < 0 ? 0 : *sum) + own;
	}
	return r;
}

/* ---- others ---- */

struct walk {
	struct hl_groups *groups;
	const struct hl_group_choice *choice;
};

static int visit(const struct hl_cgroup *at, void *context)
{
	const struct walk *walk = context;
	const struct hl_group_choice *choice = walk->choice;
	const char *name = hl_cgroup_name(at);
	/* Beside a container CRI-O and podman have a group for the program that watches it. */
	bool is_chosen = choice->containers && container_length(name) == strlen(name) &&
			 !strstr(name, "conmon-");

	for (size_t i = 0; !is_chosen && i < choice->count; i++)
		is_chosen = fnmatch(choice->patterns[i], name, 0) == 0 ||
			    fnmatch(choice->patterns[i], at->path, 0) == 0;
	return is_chosen ? add(walk->groups, at, true, NULL) : 0;
}

int hl_groups_read(struct hl_groups *groups, const struct hl_catalog *catalog,
		   const struct hl_group_choice *choice)
{
	struct walk walk = {groups, choice};
	int r = 0;

	*groups = (struct hl_groups){0};
	for (size_t i = 0; r == 0 && i < catalog->process_count; i++)
		r = hl_groups_add(groups, &catalog->processes[i]);
	if (r == 0 && (choice->count || choice->containers))
		r = hl_cgroup_each(visit, &walk, NULL);
	return r == -ENOMEM ? r : 0;
}

void hl_groups_release(struct hl_groups *groups)
{
	for (size_t i = 0; i < groups->count; i++) {
		free(groups->groups[i].name);
		free(groups->groups[i].key);
	}
	free(groups->groups);
	free(groups->left);
	*groups = (struct hl_groups){0};
}
