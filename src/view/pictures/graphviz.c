/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs graphviz' program `dot`: the source into it, picture and complaints out of it, at once. */
#include "view/pictures/graph.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM		"dot"
#define COMPLAINT_BYTES 400 /* of its standard error are kept; the rest is read and forgotten */

/* Our ends, -1 when closed. */
struct drawing {
	pid_t pid;
	int input; /* a socket: a program that ends early gives EPIPE and no signal */
	int picture, complaints;
	const char *source;
	size_t left; /* of the source */
	FILE *buffer;
	char complaint[COMPLAINT_BYTES];
	size_t complaint_size;
};

static void close_end(int *end)
{
	if (*end >= 0)
		close(*end);
	*end = -1;
}

/* Closes our ends, and ends a program that is still at it. Returns how it ended, as waitpid(). */
static int release(struct drawing *drawing, bool failed)
{
	int status = 0;

	close_end(&drawing->input);
	close_end(&drawing->picture);
	close_end(&drawing->complaints);
	if (drawing->pid <= 0)
		return 0;
	if (failed)
		kill(drawing->pid, SIGKILL);
	while (waitpid(drawing->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* ---- start ---- */

/* The program's ends of the three connections, in the order of its descriptors. */
#define END_COUNT 3

static int start(struct drawing *drawing, const char *format)
{
	int *ours[END_COUNT] = {&drawing->input, &drawing->picture, &drawing->complaints};
	int theirs[END_COUNT] = {-1, -1, -1}, pair[2], r = 0;
	char option[16];
	char *argv[] = {(char *)PROGRAM, option, NULL};
	posix_spawn_file_actions_t actions;

	for (int i = 0; r == 0 && i < END_COUNT; i++) {
		if (i == 0 ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0
			   : pipe2(pair, O_CLOEXEC) < 0) {
			r = -errno;
		} else {
			*ours[i] = pair[0];
			theirs[i] = pair[1];
		}
	}
	snprintf(option, sizeof(option), "-T%s", format);
	if (r == 0)
		r = -posix_spawn_file_actions_init(&actions);
	if (r == 0) {
		for (int i = 0; r == 0 && i < END_COUNT; i++)
			r = -posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
		if (r == 0)
			r = -posix_spawnp(&drawing->pid, PROGRAM, &actions, NULL, argv, environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	for (int i = 0; i < END_COUNT; i++)
		close_end(&theirs[i]);
	return r;
}

/* ---- exchange ---- */

static int feed(struct drawing *drawing)
{
	ssize_t sent =
		send(drawing->input, drawing->source, drawing->left, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (sent < 0 && errno != EPIPE) /* how it ended says more than that it ended */
		return -errno;
	if (sent >= 0) {
		drawing->source += sent;
		drawing->left -= (size_t)sent;
	}
	if (sent < 0 || !drawing->left)
		close_end(&drawing->input);
	return 0;
}

/* Reads what has come from ${end}, and closes it at the end. */
static int drain(struct drawing *drawing, int *end)
{
	char bytes[16384];
	ssize_t size = read(*end, bytes, sizeof(bytes));
	size_t room = COMPLAINT_BYTES - 1 - drawing->complaint_size;

	if (size < 0)
		return errno == EINTR ? 0 : -errno;
	if (size == 0) {
		close_end(end);
	} else if (end == &drawing->complaints) {
		room = (size_t)size < room ? (size_t)size : room;
		memcpy(drawing->complaint + drawing->complaint_size, bytes, room);
		drawing->complaint_size += room;
	} else if (fwrite(bytes, 1, (size_t)size, drawing->buffer) != (size_t)size) {
		return -ENOMEM;
	}
	return 0;
}

/* Until both outputs have ended; poll() passes over ends that are closed. */
static int exchange(struct drawing *drawing)
{
	int r = 0;

	while (r == 0 && (drawing->picture >= 0 || drawing->complaints >= 0)) {
		struct pollfd ends[] = {
			{.fd = drawing->input, .events = POLLOUT},
			{.fd = drawing->picture, .events = POLLIN},
			{.fd = drawing->complaints, .events = POLLIN},
		};
		if (poll(ends, HL_COUNT_OF(ends), -1) < 0) {
			r = errno == EINTR ? 0 : -errno;
			continue;
		}
		if (ends[0].revents)
			r = feed(drawing);
		if (r == 0 && ends[1].revents)
			r = drain(drawing, &drawing->picture);
		if (r == 0 && ends[2].revents)
			r = drain(drawing, &drawing->complaints);
	}
	return r;
}

/* ---- errors ---- */

/* Its first complaint, as a clause: names of functions may be in it. */
static const char *first_complaint(struct drawing *drawing)
{
	size_t size = 0;

	while (size < drawing->complaint_size && drawing->complaint[size] != '\n')
		size++;
	drawing->complaint[size] = '\0';
	for (size_t i = 0; i < size; i++)
		if (iscntrl((unsigned char)drawing->complaint[i]))
			drawing->complaint[i] = ' ';
	return size ? drawing->complaint : "no reason given";
}

int hl_graphviz_draw(const char *source, size_t size, const char *format, FILE *out,
		     struct hl_error *err)
{
	struct drawing drawing = {
		.input = -1, .picture = -1, .complaints = -1, .source = source, .left = size};
	char *picture = NULL;
	size_t picture_size = 0;

	drawing.buffer = open_memstream(&picture, &picture_size);
	int r = drawing.buffer ? start(&drawing, format) : -ENOMEM;
	if (r == 0)
		r = exchange(&drawing);
	int status = release(&drawing, r < 0);
	if (drawing.buffer && fclose(drawing.buffer) != 0 && r == 0)
		r = -ENOMEM;
	if (r == -ENOENT)
		hl_error_set(err, r,
			     "cannot draw: there is no program '" PROGRAM
			     "'; install graphviz, or use --format dot");
	else if (r < 0)
		hl_error_set(err, r,
			     "cannot draw with '" PROGRAM
			     "': %s; --format dot needs no other program",
			     strerror(-r));
	else if (WIFSIGNALED(status))
		r = hl_error_set(err, -EIO,
				 "cannot draw: '" PROGRAM
				 "' was killed by signal %d; try fewer --nodes",
				 WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0 || !picture_size)
		r = hl_error_set(err, -EIO,
				 "cannot draw: '" PROGRAM
				 "' failed: %s; --format dot writes what it was given",
				 first_complaint(&drawing));
	if (r == 0)
		fwrite(picture, 1, picture_size, out);
	free(picture);
	return r;
}
