/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds groups and reads their figures; see groups.h. */
#include "watch/groups.h"

#include "base/array.h"
#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of reading memory.stat, which costs as much as a hundred looks: longer while the page cache alone is what fills the group. */
#define STAT_WAIT_MIN_NS HL_NS_PER_SECOND
#define STAT_WAIT_MAX_NS (16 * HL_NS_PER_SECOND)
#define CACHE_FALL_PARTS 64 /* of the limit: a lesser fall is noise */

/* Scans until the limits of groups that are known are read again: that is what a scan costs most. */
#define LIMIT_SCANS 4

/* What may have happened between two looks is known by looks that are as close. */
#define CLOSE_LOOKS   3
#define CLOSE_LOOK_NS UINT64_C(20000000)
#define REARM_NS      UINT64_C(250000000) /* as often as groups near their limit are looked at */
#define ALARM_FILES   4			  /* that a group may have, with one level */

const char *hl_watch_group_name(const struct hl_watch_group *group)
{
	const char *name = group->path + group->name_at;

	return *name ? name : "/";
}

static void release_alarms(struct hl_watch_group *group)
{
	for (unsigned i = 0; i < HL_CGROUP_LEVELS_MAX; i++)
		hl_watch_alarm_release(&group->levels[i].alarm);
}

static void free_group(struct hl_watch_group *group)
{
	release_alarms(group);
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
	group->worst = group->levels;
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

static void set_alarms(struct hl_watch_groups *groups, struct hl_watch_group *group)
{
	for (unsigned i = 0; i < group->gauge.count; i++) {
		const struct hl_cgroup_level *level = &group->gauge.levels[i];
		if (level->is_v2 && !groups->sees_passings)
			hl_error_set(&groups->no_alarm, -ENOTSUP,
				     "no program can be called where it charges memory");
		if (!groups->descriptor_max || level->usage + ALARM_FILES < groups->descriptor_max)
			hl_watch_alarm_set(&group->levels[i].alarm, groups->epoll, level,
					   groups->share, group->inode, &groups->no_alarm);
	}
}

/* A group of a scan. Those above have limits of their own and are watched too, unless this one alone was named. */
static int take_group(struct hl_watch_groups *groups, const struct hl_cgroup *at)
{
	struct stat status;
	int r = fstat(at->fd, &status) < 0 ? -errno : 0;
	struct hl_watch_group *group = r == 0 ? hl_watch_groups_find(groups, status.st_ino) : NULL;
	unsigned count;

	if (group && !groups->named && groups->scans % LIMIT_SCANS) {
		group->is_found = true;
		return 0;
	}
	uint64_t limit = hl_cgroup_own_limit(at);
	if (r < 0 || (!groups->named && limit == HL_CGROUP_UNKNOWN))
		return 0;
	bool is_new = !group;
	if (is_new)
		r = add_group(groups, at, status.st_ino, &group);
	if (r < 0)
		return r;
	group->is_found = true;
	count = group->gauge.count;
	if (groups->named || !group->gauge.count || group->gauge.levels[0].limit != limit)
		hl_cgroup_gauge_open(&group->gauge, at);
	while (!groups->named && group->gauge.count > 1) {
		struct hl_cgroup_level *above = &group->gauge.levels[--group->gauge.count];
		close(above->directory);
		close(above->usage);
	}
	if (is_new && groups->descriptor_max && group->gauge.count &&
	    group->gauge.levels[0].usage > groups->descriptor_max) {
		group->is_found = false; /* which the end of the scan forgets */
		hl_cgroup_gauge_release(&group->gauge);
		groups->left_out++;
	}
	if (group->gauge.count != count) { /* other levels have a limit now */
		release_alarms(group);
		memset(group->levels, 0, sizeof(group->levels));
		group->worst = group->levels;
	}
	set_alarms(groups, group);
	return 0;
}

static int visit(const struct hl_cgroup *at, void *context)
{
	return take_group(context, at);
}

static int find_named(struct hl_watch_groups *groups, bool is_first, struct hl_error *err)
{
	int r = 0;

	for (const char *const *path = groups->named; r == 0 && *path; path++) {
		struct hl_cgroup at;
		int opened = hl_cgroup_open(*path, &at, is_first ? err : NULL);
		if (opened < 0) {
			r = is_first ? opened : 0;
			continue;
		}
		r = take_group(groups, &at);
		hl_cgroup_release(&at);
	}
	return r;
}

void hl_watch_groups_find_new(struct hl_watch_groups *groups)
{
	find_named(groups, false, NULL);
}

int hl_watch_groups_scan(struct hl_watch_groups *groups, bool is_first, struct hl_error *err)
{
	size_t kept = 0;

	for (size_t i = 0; i < groups->count; i++)
		groups->groups[i]->is_found = false;
	groups->left_out = 0;
	groups->scans++;
	int r = groups->named ? find_named(groups, is_first, err)
			      : hl_cgroup_each(visit, groups, err);
	for (size_t i = 0; i < groups->count; i++)
		if (groups->groups[i]->is_found || groups->groups[i]->is_busy || r < 0)
			groups->groups[kept++] = groups->groups[i];
		else
			free_group(groups->groups[i]);
	groups->count = kept;
	return r;
}

/* Reads the page cache of the level again where its time has come. */
static void read_cache(struct hl_watch_level *level, const struct hl_cgroup_level *gauge,
		       uint64_t now_ns)
{
	int64_t before = level->cache;

	if (now_ns < level->stat_ns)
		return;
	level->cache = hl_cgroup_level_cache(gauge);
	uint64_t wait_ns = before - level->cache > (int64_t)(level->limit / CACHE_FALL_PARTS)
				   ? STAT_WAIT_MIN_NS
				   : level->stat_wait_ns * 2;
	level->stat_wait_ns = wait_ns < STAT_WAIT_MIN_NS   ? STAT_WAIT_MIN_NS
			      : wait_ns > STAT_WAIT_MAX_NS ? STAT_WAIT_MAX_NS
							   : wait_ns;
	level->stat_ns = now_ns + level->stat_wait_ns;
}

static uint64_t used_of(const struct hl_watch_level *level)
{
	return level->usage > (uint64_t)level->cache ? level->usage - (uint64_t)level->cache : 0;
}

static bool is_worse(const struct hl_watch_level *left, const struct hl_watch_level *right)
{
	return (double)used_of(left) * (double)right->limit >
	       (double)used_of(right) * (double)left->limit;
}

/* The wait until the next look at the level. */
static uint64_t read_level(struct hl_watch_level *level, const struct hl_cgroup_level *gauge,
			   int64_t left, double share, uint64_t now_ns)
{
	level->limit = gauge->limit;
	level->usage = left < (int64_t)gauge->limit ? (uint64_t)((int64_t)gauge->limit - left) : 0;
	uint64_t wait_ns = hl_watch_trigger_wait_ns(level->usage, level->limit, share);
	if (wait_ns >= 2 * HL_NS_PER_SECOND)
		return wait_ns; /* the cache does not matter */
	if (level->cache > (int64_t)level->usage)
		level->stat_ns = 0;
	read_cache(level, gauge, now_ns);
	return hl_watch_trigger_wait_ns(used_of(level), level->limit, share);
}

/* No cause comes of page cache that has grown since it was read. */
static enum hl_watch_cause find_cause(struct hl_watch_level *level,
				      const struct hl_cgroup_level *gauge, double share,
				      uint64_t now_ns)
{
	enum hl_watch_cause cause =
		hl_watch_trigger_feed(&level->trigger, now_ns, used_of(level), level->limit, share);

	if (!cause || level->stat_ns == now_ns + level->stat_wait_ns)
		return cause;
	level->stat_ns = 0;
	read_cache(level, gauge, now_ns);
	return hl_watch_trigger_feed(&level->trigger, now_ns, used_of(level), level->limit, share);
}

static uint64_t look_at_levels(const struct hl_watch_groups *groups, struct hl_watch_group *group,
			       uint64_t now_ns, enum hl_watch_cause *ret_cause)
{
	uint64_t least_ns = STAT_WAIT_MAX_NS / 8;
	bool is_first = true;

	for (unsigned i = 0; i < group->gauge.count; i++) {
		struct hl_watch_level *level = &group->levels[i];
		const struct hl_cgroup_level *gauge = &group->gauge.levels[i];
		int64_t left = hl_cgroup_level_left(gauge);
		if (left == INT64_MAX)
			continue; /* it has gone */
		if (group->is_pressed)
			level->stat_ns = 0;
		uint64_t wait_ns = read_level(level, gauge, left, groups->share, now_ns);
		enum hl_watch_cause cause = find_cause(level, gauge, groups->share, now_ns);
		if (level->trigger.rushes)
			wait_ns = CLOSE_LOOK_NS;
		least_ns = wait_ns < least_ns ? wait_ns : least_ns;
		if (is_first || (cause && !*ret_cause) ||
		    (!cause == !*ret_cause && is_worse(level, group->worst))) {
			group->worst = level;
			*ret_cause = cause;
		}
		is_first = false;
	}
	return least_ns;
}

struct hl_watch_finding hl_watch_group_look(const struct hl_watch_groups *groups,
					    struct hl_watch_group *group, uint64_t now_ns)
{
	struct hl_watch_finding finding = {0};

	if (group->kill_file >= 0) {
		uint64_t kills = read_kills(group);
		finding.new_kills = kills > group->kills ? kills - group->kills : 0;
		group->kills = kills;
	}
	uint64_t least_ns = look_at_levels(groups, group, now_ns, &finding.cause);
	if (group->close_looks && --group->close_looks)
		least_ns = CLOSE_LOOK_NS;
	group->is_close = least_ns <= CLOSE_LOOK_NS;
	group->is_pressed = group->is_pressed && group->close_looks;
	if (group->rearm_ns && now_ns >= group->rearm_ns) {
		for (unsigned i = 0; i < group->gauge.count; i++)
			hl_watch_alarm_rearm(&group->levels[i].alarm, groups->epoll, group->inode);
		group->rearm_ns = 0;
	}
	if (group->rearm_ns && least_ns > REARM_NS)
		least_ns = REARM_NS;
	group->next_ns = now_ns + least_ns;
	return finding;
}

/* ---- between the looks ---- */

void hl_watch_groups_wake(struct hl_watch_groups *groups, uint64_t tag)
{
	struct hl_watch_group *group = hl_watch_groups_find(groups, tag & ~HL_WATCH_ALARM_PRESSURE);

	if (!group)
		return;
	group->next_ns = 0;
	group->is_close = true;
	group->close_looks = CLOSE_LOOKS;
	group->is_pressed |= tag & HL_WATCH_ALARM_PRESSURE;
	if (!group->rearm_ns)
		group->rearm_ns = hl_clock_ns(CLOCK_MONOTONIC) + REARM_NS;
}

void hl_watch_groups_release(struct hl_watch_groups *groups)
{
	for (size_t i = 0; i < groups->count; i++)
		free_group(groups->groups[i]);
	free(groups->groups);
	groups->groups = NULL;
	groups->count = groups->capacity = 0;
}
