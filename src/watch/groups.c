/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds groups and reads their figures; see groups.h. */
#include "watch/groups.h"

#include "base/array.h"
#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of reading memory.stat, which costs as much as a hundred looks: longer while the page cache alone is what fills the group. */
#define STAT_WAIT_MIN_NS HL_NS_PER_SECOND
#define STAT_WAIT_MAX_NS (16 * HL_NS_PER_SECOND)
#define CACHE_FALL_PARTS 64 /* of the limit: a lesser fall is noise */

const char *hl_watch_group_name(const struct hl_watch_group *group)
{
	const char *name = group->path + group->name_at;

	return *name ? name : "/";
}

static void free_group(struct hl_watch_group *group)
{
	hl_cgroup_gauge_release(&group->gauge);
	if (group->kill_file >= 0)
		close(group->kill_file);
	free(group->path);
	free(group);
}

struct hl_watch_group *hl_watch_groups_find(const struct hl_watch_groups *groups, uint64_t inode)
{
	for (size_t i = 0; i < groups->count; i++)
		if (groups->groups[i]->inode == inode)
			return groups->groups[i];
	return NULL;
}

static uint64_t read_kills(const struct hl_watch_group *group)
{
	char text[512];
	uint64_t kills = 0;
	ssize_t length =
		group->kill_file < 0 ? -1 : pread(group->kill_file, text, sizeof(text) - 1, 0);

	text[length > 0 ? length : 0] = '\0';
	hl_cgroup_find(text, "oom_kill", &kills);
	return kills;
}

static int add_group(struct hl_watch_groups *groups, const struct hl_cgroup *at, uint64_t inode,
		     struct hl_watch_group **ret_group)
{
	struct hl_watch_group *group = calloc(1, sizeof(*group));
	int r = group ? 0 : -ENOMEM;

	if (group) {
		group->path = strdup(at->path);
		r = group->path ? HL_ARRAY_APPEND(groups->groups, groups->count, groups->capacity,
						  group)
				: -ENOMEM;
		group->kill_file = -1;
	}
	if (r < 0) {
		if (group)
			free_group(group);
		return r;
	}
	group->name_at = at->mount_length;
	group->inode = inode;
	if (groups->reads_kills)
		group->kill_file =
			openat(at->fd, at->is_v2 ? "memory.events" : "memory.oom_control",
			       O_RDONLY | O_CLOEXEC);
	group->kills = read_kills(group);
	*ret_group = group;
	return 0;
}

/* A group of a scan. Those above have limits of their own and are watched too, unless this one alone was named. */
static int take_group(struct hl_watch_groups *groups, const struct hl_cgroup *at)
{
	struct stat status;
	int r = fstat(at->fd, &status) < 0 ? -errno : 0;
	struct hl_watch_group *group = r == 0 ? hl_watch_groups_find(groups, status.st_ino) : NULL;
	uint64_t limit = hl_cgroup_own_limit(at);

	if (r < 0 || (!groups->named && limit == HL_CGROUP_UNKNOWN))
		return 0;
	if (!group)
		r = add_group(groups, at, status.st_ino, &group);
	if (r < 0)
		return r;
	group->is_found = true;
	if (groups->named || !group->gauge.count || group->gauge.levels[0].limit != limit)
		hl_cgroup_gauge_open(&group->gauge, at);
	while (!groups->named && group->gauge.count > 1) {
		struct hl_cgroup_level *above = &group->gauge.levels[--group->gauge.count];
		close(above->directory);
		close(above->usage);
	}
	return 0;
}

static int visit(const struct hl_cgroup *at, void *context)
{
	return take_group(context, at);
}

int hl_watch_groups_scan(struct hl_watch_groups *groups, bool is_first, struct hl_error *err)
{
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < groups->count; i++)
		groups->groups[i]->is_found = false;
	if (!groups->named)
		r = hl_cgroup_each(visit, groups, err);
	for (const char *const *path = groups->named; r == 0 && path && *path; path++) {
		struct hl_cgroup at;
		int opened = hl_cgroup_open(*path, &at, is_first ? err : NULL);
		if (opened < 0) {
			r = is_first ? opened : 0;
			continue;
		}
		r = take_group(groups, &at);
		hl_cgroup_release(&at);
	}
	for (size_t i = 0; i < groups->count; i++)
		if (groups->groups[i]->is_found || groups->groups[i]->is_busy || r < 0)
			groups->groups[kept++] = groups->groups[i];
		else
			free_group(groups->groups[i]);
	groups->count = kept;
	return r;
}

/* Reads the page cache of the level again where its time has come. */
static void read_cache(struct hl_watch_group *group, const struct hl_cgroup_level *level,
		       uint64_t now_ns)
{
	int64_t before = group->cache;

	if (now_ns < group->stat_ns)
		return;
	group->cache = hl_cgroup_level_cache(level);
	uint64_t wait_ns = before - group->cache > (int64_t)(group->limit / CACHE_FALL_PARTS)
				   ? STAT_WAIT_MIN_NS
				   : group->stat_wait_ns * 2;
	group->stat_wait_ns = wait_ns < STAT_WAIT_MIN_NS   ? STAT_WAIT_MIN_NS
			      : wait_ns > STAT_WAIT_MAX_NS ? STAT_WAIT_MAX_NS
							   : wait_ns;
	group->stat_ns = now_ns + group->stat_wait_ns;
}

static uint64_t used_of(const struct hl_watch_group *group)
{
	return group->usage > (uint64_t)group->cache ? group->usage - (uint64_t)group->cache : 0;
}

struct hl_watch_finding hl_watch_group_look(const struct hl_watch_groups *groups,
					    struct hl_watch_group *group, uint64_t now_ns)
{
	const struct hl_cgroup_level *level = NULL;
	struct hl_watch_finding finding = {0};

	int64_t left = hl_cgroup_gauge_read(&group->gauge, &level);
	if (group->kill_file >= 0) {
		uint64_t kills = read_kills(group);
		finding.new_kills = kills > group->kills ? kills - group->kills : 0;
		group->kills = kills;
	}
	group->next_ns = now_ns + STAT_WAIT_MAX_NS / 8;
	if (!level)
		return finding;
	group->limit = level->limit;
	group->usage = left < (int64_t)level->limit ? (uint64_t)((int64_t)level->limit - left) : 0;
	uint64_t wait_ns = hl_watch_trigger_wait_ns(group->usage, group->limit, groups->share);
	if (wait_ns < 2 * HL_NS_PER_SECOND) { /* else the cache does not matter */
		if (group->cache > (int64_t)group->usage)
			group->stat_ns = 0;
		read_cache(group, level, now_ns);
		wait_ns = hl_watch_trigger_wait_ns(used_of(group), group->limit, groups->share);
	}
	group->next_ns = now_ns + wait_ns;
	finding.cause = hl_watch_trigger_feed(&group->trigger, now_ns, used_of(group), group->limit,
					      groups->share);
	return finding;
}

void hl_watch_groups_release(struct hl_watch_groups *groups)
{
	for (size_t i = 0; i < groups->count; i++)
		free_group(groups->groups[i]);
	free(groups->groups);
	groups->groups = NULL;
	groups->count = groups->capacity = 0;
}
