/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks the kernel to report what happens to groups; see alarm.h. */
#include "watch/alarm.h"

#include "base/cleanup.h"
#include "watch/trigger.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Some task waits for memory for 150 ms of a second; less is usual. */
#define STALLS \
	"some" \
	" 150000 1000000"
/* The kernel is taking back much of what it looks at, in vain; "low" comes with each file that is read. */
#define HARD_TO_GET "medium"

static uint32_t events_of(const struct hl_watch_alarm *alarm)
{
	return (alarm->limit ? EPOLLIN : EPOLLPRI) | EPOLLONESHOT;
}

static int arm(const struct hl_watch_alarm *alarm, int epoll, int operation, int fd, uint64_t tag)
{
	struct epoll_event event = {.events = events_of(alarm), .data.u64 = tag};

	return epoll_ctl(epoll, operation, fd, &event) < 0 ? -errno : 0;
}

static void say_why(int r, const char *name, struct hl_error *why)
{
	hl_error_set(why, r, "%s: %s", name, strerror(-r));
}

/* ---- version 1 ---- */

static int ask(int directory, int fd, const char *name, const char *argument)
{
	HL_CLOSED int file = openat(directory, name, O_RDONLY | O_CLOEXEC);
	HL_CLOSED int control = openat(directory, "cgroup.event_control", O_WRONLY | O_CLOEXEC);
	char text[96];

	if (file < 0 || control < 0)
		return -errno;
	int length = snprintf(text, sizeof(text), "%d %d %s", fd, file, argument);
	return write(control, text, (size_t)length) < 0 ? -errno : 0;
}

static void set_v1(struct hl_watch_alarm *alarm, int epoll, const struct hl_cgroup_level *level,
		   double share, uint64_t tag, struct hl_error *why)
{
	HL_CLOSED int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	char number[32];
	int r = fd < 0 ? -errno : 0;

	for (unsigned cause = HL_WATCH_CAUSE_GROWTH; r == 0 && cause < HL_WATCH_CAUSES; cause++) {
		snprintf(number, sizeof(number), "%" PRIu64,
			 (uint64_t)(hl_watch_trigger_from(cause, share) * (double)level->limit));
		r = ask(level->directory, fd, "memory.usage_in_bytes", number);
	}
	if (r == 0)
		ask(level->directory, fd, "memory.pressure_level", HARD_TO_GET);
	alarm->limit = level->limit;
	if (r == 0)
		r = arm(alarm, epoll, EPOLL_CTL_ADD, fd, tag | HL_WATCH_ALARM_PRESSURE);
	if (r < 0) {
		say_why(r, "cgroup.event_control", why);
		return;
	}
	alarm->pressure = fd;
	fd = -1;
}

/* ---- version 2 ---- */

/* A file reports what has happened since it was read last. */
static void read_file(int fd)
{
	char text[512];

	if (pread(fd, text, sizeof(text), 0) < 0)
		return; /* the group has gone */
}

static void set_file(struct hl_watch_alarm *alarm, int epoll, int directory, const char *name,
		     const char *trigger, uint64_t tag, int *ret_fd, struct hl_error *why)
{
	HL_CLOSED int fd = openat(directory, name, (trigger ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	int r = fd < 0 ? -errno : 0;

	if (r == 0 && trigger && write(fd, trigger, strlen(trigger) + 1) < 0)
		r = -errno;
	if (r == 0 && !trigger)
		read_file(fd);
	if (r == 0)
		r = arm(alarm, epoll, EPOLL_CTL_ADD, fd, tag);
	if (r < 0) {
		say_why(r, name, why);
		return;
	}
	*ret_fd = fd;
	fd = -1;
}

void hl_watch_alarm_set(struct hl_watch_alarm *alarm, int epoll,
			const struct hl_cgroup_level *level, double share, uint64_t tag,
			struct hl_error *why)
{
	if (alarm->was_tried && (level->is_v2 || alarm->limit == level->limit))
		return;
	hl_watch_alarm_release(alarm);
	alarm->was_tried = true;
	if (!level->is_v2) {
		set_v1(alarm, epoll, level, share, tag, why);
		return;
	}
	set_file(alarm, epoll, level->directory, "memory.events", NULL, tag, &alarm->events, why);
	set_file(alarm, epoll, level->directory, "memory.pressure", STALLS,
		 tag | HL_WATCH_ALARM_PRESSURE, &alarm->pressure, why);
}

void hl_watch_alarm_rearm(const struct hl_watch_alarm *alarm, int epoll, uint64_t tag)
{
	uint64_t count;

	if (alarm->events) {
		read_file(alarm->events);
		arm(alarm, epoll, EPOLL_CTL_MOD, alarm->events, tag);
	}
	if (alarm->pressure && alarm->limit && read(alarm->pressure, &count, sizeof(count)) < 0)
		count = 0; /* nothing has happened */
	if (alarm->pressure)
		arm(alarm, epoll, EPOLL_CTL_MOD, alarm->pressure, tag | HL_WATCH_ALARM_PRESSURE);
}

void hl_watch_alarm_release(struct hl_watch_alarm *alarm)
{
	if (alarm->events)
		close(alarm->events);
	if (alarm->pressure)
		close(alarm->pressure);
	*alarm = (struct hl_watch_alarm){0};
}
