/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes commands of requests; see command.h. */
#include "serve/command.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

static void add(struct hl_command *command, const char *argument)
{
	command->arguments[command->count++] = (char *)argument;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status, (void)kind, (void)place;
	return remove(path);
}

void hl_command_release(struct hl_command *command)
{
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};

	/* As who owns it, who may have put anything there. */
	if (command->directory && hl_user_enter(command->run.user, &scope) == 0)
		nftw(command->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(command->directory);
	free(command->before);
	free(command->after);
}

/* Which process a request without a name means. */
static int choose_process(const struct hl_catalog *catalog, const struct hl_request *request,
			  const struct hl_catalog_process **ret_process, struct hl_error *err)
{
	pid_t pid = request->pid;

	if (!pid && catalog->process_count != 1)
		return hl_error_set(err, -EINVAL,
				    "%zu processes are being recorded; add pid=PID or "
				    "recording=NAME, / lists them",
				    catalog->process_count);
	*ret_process = pid ? hl_catalog_process(catalog, pid) : &catalog->processes[0];
	if (!*ret_process)
		return hl_error_set(err, -ESRCH,
				    "process %d is not being recorded; / lists those that are",
				    pid);
	return 0;
}

static int choose_recording(const struct hl_catalog *catalog, const char *name,
			    const struct hl_catalog_recording **ret_recording, struct hl_error *err)
{
	*ret_recording = hl_catalog_recording(catalog, name);
	if (!*ret_recording)
		return hl_error_set(err, -ENOENT,
				    "there is no recording '%.200s'; / lists those that there are",
				    name);
	return 0;
}

static int take_snapshot(const struct hl_command *command, pid_t pid, const char *name,
			 char **ret_path, struct hl_error *err)
{
	char number[16];
	uint64_t bytes;

	if (asprintf(ret_path, "%s/%s.hl", command->directory, name) < 0) {
		*ret_path = NULL;
		return hl_error_set(err, -ENOMEM, "out of memory");
	}
	snprintf(number, sizeof(number), "%d", pid);
	struct hl_run run = command->run;
	run.verb = "ctl";
	run.arguments = (char *const[]){"-p", number, "snapshot", *ret_path, NULL};
	int fd = hl_run_verb(&run, &bytes, err);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Makes the directory for snapshots, which belongs to whose process it is. */
static int make_directory(struct hl_command *command, struct hl_error *err)
{
	HL_CLEANUP(hl_user_leave) struct hl_user_scope scope = {0};
	const char *base = getenv("TMPDIR");
	HL_FREED char *directory = NULL;

	if (!base || !*base)
		base = "/tmp";
	if (asprintf(&directory, "%s/heapline-serve-XXXXXX", base) < 0) {
		directory = NULL;
		return hl_error_set(err, -ENOMEM, "out of memory");
	}
	int r = hl_user_enter(command->run.user, &scope);
	if (r == 0 && !mkdtemp(directory))
		r = -errno;
	if (r < 0)
		return hl_error_set(err, r,
				    "cannot make a directory for snapshots in '%s': %s; set TMPDIR "
				    "to one that all users may write to",
				    base, strerror(-r));
	command->directory = HL_TAKE(directory);
	return 0;
}

/* Has what comes within the next seconds be shown. */
static int wait_for_growth(struct hl_command *command, pid_t pid, uint32_t seconds,
			   struct hl_error *err)
{
	int r = make_directory(command, err);

	if (r == 0)
		r = take_snapshot(command, pid, "before", &command->before, err);
	if (r < 0)
		return r;
	r = hl_run_wait(&command->run, -1,
			hl_clock_ns(CLOCK_MONOTONIC) + seconds * HL_NS_PER_SECOND);
	if (r != -ETIMEDOUT)
		return hl_error_set(err, r, "nobody waits for the answer any more");
	r = take_snapshot(command, pid, "after", &command->after, err);
	if (r == 0) {
		add(command, command->before);
		add(command, command->after);
	}
	return r;
}

/* As above, for a few at once: each holds a connection for minutes, and has its collector write. */
static int wait_in_turn(struct hl_command *command, pid_t pid, uint32_t seconds,
			struct hl_error *err)
{
	static atomic_uint waits;
	int r = atomic_fetch_add(&waits, 1) < HL_COMMAND_WAITS_MAX
			? wait_for_growth(command, pid, seconds, err)
			: hl_error_set(err, -EBUSY,
				       "%d others wait for 'seconds' already; ask again later",
				       HL_COMMAND_WAITS_MAX);

	atomic_fetch_sub(&waits, 1);
	return r;
}

static bool is_same_user(const struct hl_user *one, const struct hl_user *other)
{
	return one && other ? one->uid == other->uid : one == other;
}

/* The recordings that the request is about. */
static int add_operands(const struct hl_catalog *catalog, const struct hl_request *request,
			struct hl_command *command, struct hl_error *err)
{
	const struct hl_catalog_recording *recording, *before = NULL;
	const struct hl_catalog_process *process = NULL;
	int r;

	if (request->name) {
		r = choose_recording(catalog, request->name, &recording, err);
		if (request->pid)
			snprintf(command->process, sizeof(command->process), "--process=%d",
				 request->pid);
	} else {
		r = choose_process(catalog, request, &process, err);
		if (r < 0)
			return r;
		snprintf(command->process, sizeof(command->process), "--process=%d/%u",
			 process->pid, process->sequence);
		recording = &catalog->recordings[process->recording];
	}
	if (r < 0)
		return r;
	if (command->process[0])
		add(command, command->process);
	command->run.user = recording->owner;
	if (request->seconds && request->name)
		return hl_error_set(err, -EINVAL,
				    "'seconds' waits for what a process does; name it with pid=PID "
				    "instead of recording=NAME");
	if (request->seconds)
		return wait_in_turn(command, process->pid, request->seconds, err);
	r = request->before ? choose_recording(catalog, request->before, &before, err) : 0;
	if (r == 0 && before && !is_same_user(before->owner, recording->owner))
		r = hl_error_set(err, -EINVAL,
				 "cannot compare '%.200s' with '%.200s': they are recordings of "
				 "two users; run 'heapline diff' by hand",
				 before->name, recording->name);
	add(command, "--"); /* paths are what collectors of other users say, where root serves */
	if (r == 0 && before)
		add(command, before->path);
	if (r == 0)
		add(command, recording->path);
	return r;
}

int hl_command_make(const struct hl_catalog *catalog, const struct hl_request *request, int stop_fd,
		    int client_fd, struct hl_command *ret_command, struct hl_error *err)
{
	struct hl_command *command = ret_command;
	const struct hl_catalog_process *process;

	*command = (struct hl_command){0};
	command->run = (struct hl_run){.verb = request->verb,
				       .arguments = command->arguments,
				       .stop_fd = stop_fd,
				       .client_fd = client_fd};
	for (size_t i = 0; i < request->option_count; i++)
		add(command, request->options[i]);
	if (!request->is_text &&
	    (request->kind == HL_REQUEST_VIEW || request->kind == HL_REQUEST_HEAP))
		add(command, "--json");
	if (request->kind != HL_REQUEST_HEAP)
		return add_operands(catalog, request, command, err);
	int r = choose_process(catalog, request, &process, err);
	if (r == 0) {
		snprintf(command->process, sizeof(command->process), "--pid=%d", process->pid);
		add(command, command->process);
		command->run.user = catalog->recordings[process->recording].owner;
	}
	return r;
}
