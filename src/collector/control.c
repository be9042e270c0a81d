/* SPDX-License-Identifier: BSD-2-Clause */
/* Serves those who ask; see control.h. */
#include "collector/control.h"

#include "base/clock.h"
#include "base/names.h"
#include "collector/control_ask.h"
#include "collector/drain.h"
#include "region/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define CLIENTS_MAX 16

/* So that a flood of clients does not keep the collector from its recorders. */
#define EVENTS_PER_DISPATCH 32

/* After which time the bell listens to a new process. */
#define LISTEN_MS 10u

/* epoll's cookie: one of these, plus the index of a client; and after all of these its report. */
enum event {
	EVENT_SOCKET,
	EVENT_TIMER,
	EVENT_BELL,
	EVENT_SNAPSHOT,
	EVENT_CLIENT,
	EVENT_REPORT = EVENT_CLIENT + CLIENTS_MAX,
};

/* A sequence number that no process has: there are never that many. */
#define NOBODY UINT32_MAX

struct hl_control {
	struct hl_control_subject subject;
	int epoll_fd, timer_fd;
	unsigned timer_ms;	     /* its interval; 0: it is not set */
	struct hl_bell *bell;	     /* NULL: the kernel has none, or no means */
	bool hears_all;		     /* bell listens to all processes, but for new ones */
	bool has_new;		     /* to which it is to listen, too */
	int directory_fd, socket_fd; /* -1: nobody is listened to */
	bool deaf;		     /* for want of descriptors; until the next poll */
	struct hl_control_client clients[CLIENTS_MAX];
	struct hl_report_child *reports[CLIENTS_MAX]; /* by client; NULL: it waits for none */
	struct hl_snapshot *snapshot;		      /* NULL: none is being made */
	struct hl_control_client *snapshot_client;    /* who waits for it; NULL: a program */
	uint32_t snapshot_sequence;		      /* of that program */
};

/* ---- making ---- */

static int watch(struct hl_control *control, int fd, uint32_t events, uint64_t cookie)
{
	struct epoll_event event = {.events = events, .data.u64 = cookie};

	return epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void unwatch(struct hl_control *control, int fd)
{
	epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void drop_bell(struct hl_control *control)
{
	unwatch(control, hl_bell_fd(control->bell));
	hl_bell_free(control->bell);
	control->bell = NULL;
	control->hears_all = false;
}

/* Without a bell, which not every kernel has, mailboxes are looked at by the timer. */
static int make_bell(struct hl_control *control)
{
	int r = hl_bell_new(&control->bell);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	r = watch(control, hl_bell_fd(control->bell), EPOLLIN, EVENT_BELL);
	if (r < 0) {
		hl_bell_free(control->bell);
		control->bell = NULL;
	}
	return 0;
}

int hl_control_new(const struct hl_control_subject *subject, struct hl_control **ret_control)
{
	struct hl_control *control = calloc(1, sizeof(*control));

	if (!control)
		return -ENOMEM;
	control->subject = *subject;
	control->directory_fd = control->socket_fd = -1;
	control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	control->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int r = control->epoll_fd < 0 || control->timer_fd < 0
			? -errno
			: watch(control, control->timer_fd, EPOLLIN, EVENT_TIMER);
	if (r == 0)
		r = make_bell(control);
	if (r < 0) {
		hl_control_free(control);
		return r;
	}
	control->hears_all = control->bell;
	*ret_control = control;
	return 0;
}

int hl_control_open(struct hl_control *control)
{
	int directory_fd = hl_control_directory_make();

	if (directory_fd < 0)
		return directory_fd;
	hl_control_directory_clean(directory_fd);
	int fd = hl_control_directory_listen(directory_fd);
	if (fd < 0) {
		close(directory_fd);
		return fd;
	}
	control->directory_fd = directory_fd;
	control->socket_fd = fd;
	return watch(control, fd, EPOLLIN, EVENT_SOCKET);
}

int hl_control_fd(const struct hl_control *control)
{
	return control->epoll_fd;
}

/* ---- answers ---- */

/* Sends an answer; what its reader does not take at once is sent when it is ready for more. */
static void answer(struct hl_control *control, struct hl_control_client *client, char *text)
{
	uint64_t index = (uint64_t)(client - control->clients);

	unwatch(control, client->fd);
	hl_control_client_answer(client, text);
	if (hl_control_client_send(client) ||
	    watch(control, client->fd, EPOLLOUT, EVENT_CLIENT + index) < 0)
		hl_control_client_end(client);
}

/* ---- snapshots ---- */

static int begin_snapshot(struct hl_control *control, const char *path, bool replace,
			  struct hl_error *err)
{
	const struct hl_control_subject *subject = &control->subject;

	if (control->snapshot)
		return hl_error_set(err, -EBUSY,
				    "another snapshot is being made; try again when it is done");
	int r = hl_snapshot_begin(subject->archive, *subject->tracked, path, replace,
				  &control->snapshot, err);
	if (r < 0)
		return r;
	control->snapshot_client = NULL;
	control->snapshot_sequence = NOBODY;
	/* Where this fails, on_timer() finds its end. */
	watch(control, hl_snapshot_fd(control->snapshot), EPOLLIN, EVENT_SNAPSHOT);
	return 0;
}

/* Tells the program that asked for a report how it went, if it is still there. */
static void end_report(struct hl_control *control, struct hl_tracked *tracked, int result,
		       const struct hl_error *err)
{
	hl_mailbox_reader_end_report(&tracked->mailbox, result);
	if (result < 0)
		hl_archive_warn(control->subject.archive, "%s", err->text);
}

static void end_snapshot(struct hl_control *control)
{
	struct hl_error err = {0};
	struct hl_control_client *client = control->snapshot_client;
	struct hl_tracked *asker = *control->subject.tracked;

	while (asker && asker->sequence != control->snapshot_sequence)
		asker = asker->next;
	int r = hl_snapshot_end(control->snapshot, &err);
	control->snapshot = NULL;
	control->snapshot_client = NULL;
	if (asker)
		end_report(control, asker, r, &err);
	if (client)
		answer(control, client,
		       r < 0 ? hl_control_answer_error(err.text) : hl_control_answer_done());
}

/* ---- the end ---- */

bool hl_control_is_to_detach(const struct hl_control *control)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (control->clients[i].state == HL_CLIENT_LEAVING)
			return true;
	return false;
}

void hl_control_tell_detached(struct hl_control *control, const char *problem)
{
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (control->clients[i].state == HL_CLIENT_LEAVING)
			answer(control, &control->clients[i],
			       problem ? hl_control_answer_error(problem)
				       : hl_control_answer_done());
}

/* ---- programs ---- */

static void take_marks(struct hl_control *control, struct hl_tracked *tracked, bool last)
{
	char name[HL_MARK_MAX + 1];
	uint64_t time_ns;

	/* As many as there can be at once: what a program posts beyond waits for the next poll. */
	for (unsigned i = 0; i < HL_MAILBOX_MARKS; i++) {
		if (!hl_mailbox_reader_take_mark(&tracked->mailbox, last, &time_ns, name))
			return;
		uint64_t now = hl_control_actions_tick(tracked), tick = 0;
		if (time_ns > tracked->start_ns)
			tick = (time_ns - tracked->start_ns) / HL_RING_TICK_NS;
		if (hl_control_actions_mark(&control->subject, tracked, tick < now ? tick : now,
					    name) < 0)
			hl_archive_warn(control->subject.archive,
					"process %d set more marks than there is room for",
					tracked->pid);
	}
}

static void take_report(struct hl_control *control, struct hl_tracked *tracked)
{
	char wanted[HL_REPORT_PATH_BYTES], path[PATH_MAX];
	struct hl_error err = {0};

	if (control->snapshot || !hl_mailbox_reader_take_report(&tracked->mailbox, wanted))
		return;
	int r = hl_program_report_path(tracked->pid, wanted, path, &err);
	if (r == 0)
		r = begin_snapshot(control, path, false, &err);
	if (r < 0)
		end_report(control, tracked, r, &err);
	else
		control->snapshot_sequence = tracked->sequence;
}

/* A program that has switched itself to a mode with a log. */
static void begin_log(struct hl_control *control, struct hl_tracked *tracked)
{
	struct hl_region_header *header = tracked->region.header;
	struct hl_error err = {0};

	if (tracked->log || tracked->log_is_over ||
	    !(atomic_load(&header->mode) & HL_MODE_LOGGING) ||
	    hl_control_actions_begin_log(&control->subject, tracked, &err) == 0)
		return;
	tracked->log_is_over = true;
	/* Nobody reads its rings: they must not be waited for. */
	atomic_fetch_or(&header->flags, HL_REGION_LOSSY);
	hl_archive_warn(control->subject.archive, "%s", err.text);
}

void hl_control_read_mailbox(struct hl_control *control, struct hl_tracked *tracked, bool last)
{
	uint32_t segments;

	if (!hl_tracked_has_begun(tracked))
		return;
	begin_log(control, tracked);
	hl_archive_note_mode(control->subject.archive,
			     hl_mode_of(atomic_load(&tracked->region.header->mode)), false);
	take_marks(control, tracked, last);
	if (hl_mailbox_reader_take_segments(&tracked->mailbox, &segments))
		hl_control_actions_keep(tracked, segments);
	uint32_t refused = last ? atomic_load(&tracked->mailbox.mailbox->refused_marks) : 0;
	/* The program was told, but whoever reads the recording was not. */
	if (refused)
		hl_archive_warn(control->subject.archive,
				"process %d set %u mark%s faster than they were fetched; they are "
				"lost",
				tracked->pid, refused, refused == 1 ? "" : "s");
	if (!last)
		take_report(control, tracked);
}

/* ---- reports of lines and times ---- */

static void drop_report(struct hl_control *control, size_t client)
{
	if (!control->reports[client])
		return;
	unwatch(control, hl_report_child_fd(control->reports[client]));
	hl_report_child_free(control->reports[client]);
	control->reports[client] = NULL;
}

static int begin_report(struct hl_control *control, struct hl_control_client *client,
			const struct hl_control_request *request, struct hl_error *err)
{
	size_t index = (size_t)(client - control->clients);

	int r = hl_report_child_begin(&control->subject, request, &control->reports[index], err);
	if (r < 0)
		return r;
	r = watch(control, hl_report_child_fd(control->reports[index]), EPOLLIN,
		  EVENT_REPORT + index);
	if (r == 0)
		return 0;
	drop_report(control, index);
	return hl_error_set(err, r, "cannot wait for the report: %s", strerror(-r));
}

static void end_report_of(struct hl_control *control, size_t client)
{
	struct hl_error err = {0};
	char *text = NULL;

	if (!control->reports[client])
		return;
	int r = hl_report_child_end(control->reports[client], &text, &err);
	if (r < 0 && hl_report_child_is_of_leaks(control->reports[client]))
		hl_archive_warn(control->subject.archive, "what is lost could not be found: %s",
				err.text);
	drop_report(control, client);
	answer(control, &control->clients[client],
	       r < 0 ? hl_control_answer_error(err.text) : text);
}

/* ---- clients ---- */

static void on_client(struct hl_control *control, struct hl_control_client *client)
{
	struct hl_control_request request = {0};
	struct hl_error err = {0};

	if (client->state == HL_CLIENT_ANSWERED) {
		if (hl_control_client_send(client))
			hl_control_client_end(client);
		return;
	}
	int r = hl_control_client_read(client, &request, &err);
	if (r == -EPIPE)
		hl_control_client_end(client);
	if (r == -EPIPE || r == -EAGAIN)
		return;
	bool is_copy = request.verb == HL_CONTROL_SNAPSHOT || request.verb == HL_CONTROL_REPLACE;
	bool is_end = request.verb == HL_CONTROL_DETACH;
	bool is_report = request.verb == HL_CONTROL_LINES || request.verb == HL_CONTROL_TIMES ||
			 request.verb == HL_CONTROL_LEAKS;
	if (request.pid == 0 && (is_report || request.verb == HL_CONTROL_FIND))
		request.pid = client->pid;
	if (r == 0 && !is_copy && !is_end && !is_report) {
		answer(control, client, hl_control_actions_act(&control->subject, &request));
		return;
	}
	if (r == 0)
		r = is_end ? hl_control_actions_check_detach(&control->subject, request.pid, &err)
		    : is_report ? begin_report(control, client, &request, &err)
				: begin_snapshot(control, request.argument,
						 request.verb == HL_CONTROL_REPLACE, &err);
	if (r < 0) {
		answer(control, client, hl_control_answer_error(err.text));
		return;
	}
	if (is_copy)
		control->snapshot_client = client;
	client->state = is_end ? HL_CLIENT_LEAVING : HL_CLIENT_WAITING;
	unwatch(control, client->fd); /* or its going away would wake us over and over */
}

static void refuse(int fd, const char *text)
{
	ssize_t taken = send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)taken; /* what is not taken at once is not worth waiting for */
	close(fd);
}

static void on_socket(struct hl_control *control)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	unsigned i = 0;

	int fd = accept4(control->socket_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			/* The socket stays readable; it is looked at again when there may be
			 * means. */
			unwatch(control, control->socket_fd);
			control->deaf = true;
		}
		return;
	}
	while (i < CLIENTS_MAX && control->clients[i].state != HL_CLIENT_NONE)
		i++;
	/* Others should not have got as far as here. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
	    (peer.uid != geteuid() && peer.uid != 0)) {
		refuse(fd, "{\"error\":\"only the user who records and root may ask\"}\n");
	} else if (i == CLIENTS_MAX) {
		refuse(fd, "{\"error\":\"too many ask at once; try again\"}\n");
	} else if (watch(control, fd, EPOLLIN, EVENT_CLIENT + i) < 0) {
		close(fd);
	} else {
		hl_control_client_begin(&control->clients[i], fd, peer.pid);
		on_client(control, &control->clients[i]);
	}
}

/* ---- events ---- */

/* Whether somebody must be looked at again and again. */
static bool has_to_look(const struct hl_control *control)
{
	if (!control->hears_all || control->snapshot || control->deaf)
		return true;
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (control->clients[i].state != HL_CLIENT_NONE)
			return true;
	return false;
}

static void set_timer(struct hl_control *control)
{
	unsigned ms = has_to_look(control) ? HL_MAILBOX_POLL_MS : control->has_new ? LISTEN_MS : 0;

	if (ms == control->timer_ms)
		return;
	const struct timespec interval = {.tv_nsec = ms * 1000000L};
	const struct itimerspec timer = {.it_interval = interval, .it_value = interval};
	timerfd_settime(control->timer_fd, 0, &timer, NULL);
	control->timer_ms = ms;
}

/* Has the bell listen to all processes. */
static void listen_to_all(struct hl_control *control)
{
	struct hl_mailbox *mailboxes[HL_BELLS_MAX];
	size_t count = 0;

	control->has_new = false;
	control->hears_all = control->bell;
	for (struct hl_tracked *process = *control->subject.tracked; process && control->bell;
	     process = process->next) {
		if (process->end_ns)
			continue;
		if (count == HL_BELLS_MAX) {
			control->hears_all = false;
			break;
		}
		mailboxes[count++] = process->mailbox.mailbox;
	}
	if (control->bell && hl_bell_listen(control->bell, mailboxes, count) < 0)
		drop_bell(control);
}

void hl_control_enter(struct hl_control *control)
{
	control->has_new = true;
	set_timer(control);
}

void hl_control_forget(struct hl_control *control, const struct hl_tracked *tracked)
{
	if (control->bell)
		hl_bell_forget(control->bell, tracked->mailbox.mailbox);
	if (!control->hears_all)
		hl_control_enter(control); /* there may be room for another one */
}

static void read_mailboxes(struct hl_control *control)
{
	for (struct hl_tracked *process = *control->subject.tracked; process;
	     process = process->next)
		if (!process->end_ns)
			hl_control_read_mailbox(control, process, false);
}

static void on_timer(struct hl_control *control)
{
	uint64_t expirations;

	if (read(control->timer_fd, &expirations, sizeof(expirations)) < 0)
		return;
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct hl_control_client *client = &control->clients[i];
		if (client->state != HL_CLIENT_WAITING && client->state != HL_CLIENT_LEAVING &&
		    client->deadline_ns < now_ns)
			hl_control_client_end(client);
		if (control->reports[i])
			hl_report_child_check(control->reports[i], now_ns);
	}
	if (control->snapshot && hl_snapshot_is_done(control->snapshot))
		end_snapshot(control);
	if (control->deaf)
		control->deaf = watch(control, control->socket_fd, EPOLLIN, EVENT_SOCKET) < 0;
	if (control->has_new)
		listen_to_all(control);
	read_mailboxes(control);
}

static void on_event(struct hl_control *control, uint64_t cookie)
{
	if (cookie >= EVENT_REPORT) {
		end_report_of(control, cookie - EVENT_REPORT);
	} else if (cookie >= EVENT_CLIENT) {
		on_client(control, &control->clients[cookie - EVENT_CLIENT]);
	} else if (cookie == EVENT_SNAPSHOT) {
		end_snapshot(control);
		/* A report that was asked for meanwhile has waited. */
		read_mailboxes(control);
	} else if (cookie == EVENT_TIMER) {
		on_timer(control);
	} else if (cookie == EVENT_BELL) {
		hl_bell_answer(control->bell);
		read_mailboxes(control);
	} else {
		on_socket(control);
	}
}

void hl_control_dispatch(struct hl_control *control)
{
	struct epoll_event event;

	/* One at a time: what one event ends, another of the same batch might name. */
	for (int i = 0; i < EVENTS_PER_DISPATCH; i++) {
		if (epoll_wait(control->epoll_fd, &event, 1, 0) != 1)
			break;
		on_event(control, event.data.u64);
	}
	set_timer(control);
}

void hl_control_close(struct hl_control *control)
{
	if (control->snapshot)
		end_snapshot(control);
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		drop_report(control, i);
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (control->clients[i].state != HL_CLIENT_LEAVING)
			hl_control_client_end(&control->clients[i]);
	if (control->socket_fd >= 0) {
		hl_control_directory_remove(control->directory_fd);
		close(control->socket_fd);
		close(control->directory_fd);
		control->socket_fd = control->directory_fd = -1;
	}
}

void hl_control_free(struct hl_control *control)
{
	if (!control)
		return;
	hl_control_close(control);
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		hl_control_client_end(&control->clients[i]);
	hl_bell_free(control->bell);
	if (control->timer_fd >= 0)
		close(control->timer_fd);
	if (control->epoll_fd >= 0)
		close(control->epoll_fd);
	free(control);
}
