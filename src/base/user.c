/* SPDX-License-Identifier: BSD-2-Clause */
/* Credentials of others; see user.h. */
#include "base/user.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* ---- who ---- */

int hl_user_of_peer(int fd, struct hl_user **ret_user)
{
	HL_FREED struct hl_user *user = NULL;
	struct ucred peer;
	socklen_t size = sizeof(peer), bytes = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	/* The first call says how large they are. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) < 0 && errno != ERANGE)
		bytes = 0; /* Linux before 4.13 does not tell */
	user = malloc(sizeof(*user) + bytes);
	if (!user)
		return -ENOMEM;
	if (bytes && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, user->groups, &bytes) < 0)
		return -errno;
	user->uid = peer.uid;
	user->gid = peer.gid;
	user->group_count = bytes / sizeof(gid_t);
	*ret_user = HL_TAKE(user);
	return 0;
}

struct hl_user *hl_user_copy(const struct hl_user *user)
{
	size_t bytes = sizeof(*user) + user->group_count * sizeof(gid_t);
	struct hl_user *copy = malloc(bytes);

	if (copy)
		memcpy(copy, user, bytes);
	return copy;
}

const char *hl_user_name(int64_t uid, char name[HL_USER_NAME_MAX])
{
	struct passwd entry, *found = NULL;
	char strings[4096];

	name[0] = '\0';
	if (uid >= 0 && getpwuid_r((uid_t)uid, &entry, strings, sizeof(strings), &found) == 0 &&
	    found)
		snprintf(name, HL_USER_NAME_MAX, "%s", entry.pw_name);
	else if (uid >= 0)
		snprintf(name, HL_USER_NAME_MAX, "%" PRId64, uid);
	return name;
}

/* ---- one thread, for a while ---- */

/* Those of this thread alone, where setgroups() of libc sets those of all. */
static int set_groups(const gid_t *groups, size_t count)
{
	return syscall(SYS_setgroups, count, groups) < 0 ? -errno : 0;
}

/* The calls return what was before, whether or not they could set it. */
static int set_ids(uid_t uid, gid_t gid)
{
	setfsgid(gid);
	if ((gid_t)setfsgid((gid_t)-1) != gid)
		return -EPERM;
	setfsuid(uid);
	return (uid_t)setfsuid((uid_t)-1) == uid ? 0 : -EPERM;
}

int hl_user_enter(const struct hl_user *user, struct hl_user_scope *scope)
{
	*scope = (struct hl_user_scope){0};
	if (!user)
		return 0;
	int count = getgroups(0, NULL);
	scope->groups = count < 0 ? NULL : calloc((size_t)count + 1, sizeof(gid_t));
	if (!scope->groups)
		return -ENOMEM;
	count = getgroups(count, scope->groups);
	scope->group_count = count < 0 ? 0 : (size_t)count;
	scope->gid = getegid();
	int r = set_groups(user->groups, user->group_count);
	if (r < 0)
		return r;
	scope->is_entered = true;
	r = set_ids(user->uid, user->gid);
	if (r < 0)
		hl_user_leave(scope);
	return r;
}

int hl_user_enter_uid(uid_t uid, struct hl_user_scope *scope)
{
	const struct hl_user user = {.uid = uid, .gid = getegid()};

	return hl_user_enter(&user, scope);
}

void hl_user_leave(struct hl_user_scope *scope)
{
	/* What a thread was before it may always be again; to go on as somebody else would be worse than to end. */
	if (scope->is_entered && (set_ids(geteuid(), scope->gid) < 0 ||
				  set_groups(scope->groups, scope->group_count) < 0))
		abort();
	free(scope->groups);
	*scope = (struct hl_user_scope){0};
}

/* ---- a process, for good ---- */

char *hl_user_format(const struct hl_user *user)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fprintf(out, "%u:%u", user->uid, user->gid);
	for (size_t i = 0; i < user->group_count; i++)
		fprintf(out, ",%u", user->groups[i]);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* Reads a number, and ${after} behind it, or the end where that is NUL. */
static int parse_id(const char **text, char after, uint32_t *ret_id)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	unsigned long id = strtoul(*text, &end, 10);
	if (id >= UINT32_MAX || (*end && *end != after))
		return -EINVAL;
	*text = *end ? end + 1 : end;
	*ret_id = (uint32_t)id;
	return 0;
}

int hl_user_become(const char *text)
{
	HL_FREED gid_t *groups = calloc(strlen(text) + 1, sizeof(*groups));
	size_t count = 0;
	uint32_t uid, gid;

	if (!groups)
		return -ENOMEM;
	int r = parse_id(&text, ':', &uid);
	if (r == 0)
		r = parse_id(&text, ',', &gid);
	while (r == 0 && *text)
		r = parse_id(&text, ',', &groups[count++]);
	if (r < 0)
		return r;
	if (setgroups(count, groups) < 0 || setresgid(gid, gid, gid) < 0 ||
	    setresuid(uid, uid, uid) < 0)
		return -errno;
	/* The kernel does so itself, unless the host keeps core files of programs that changed their user. */
	return prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;
}
