/* SPDX-License-Identifier: BSD-2-Clause */
/* Identifies recorded processes and saves them; see tracked.h. */
#include "collector/tracked.h"

#include "base/clock.h"
#include "collector/collector.h"
#include "process/process.h"
#include "recording/recording.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- identity: /proc/PID/{exe,cmdline,stat,auxv} ---- */

/* Longer command lines are cut; a recording need not hold megabytes of arguments. */
#define COMMAND_BYTES_MAX 65536

/* Like hl_proc_read(); 0 bytes when it cannot be read. */
static size_t read_file(pid_t pid, const char *file, char *text, size_t capacity)
{
	ssize_t size = hl_proc_read(pid, file, text, capacity);

	return size > 0 ? (size_t)size : 0;
}

/* The fourth field, after the name in parentheses, which may itself contain anything. */
uint32_t hl_identity_parent(pid_t pid)
{
	char text[512];
	const char *name_end =
		read_file(pid, "stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;
	unsigned parent;

	return name_end && sscanf(name_end, ") %*c %u", &parent) == 1 ? parent : 0;
}

static void free_command(char **command)
{
	for (char **argument = command; argument && *argument; argument++)
		free(*argument);
	free(command);
}

/* Takes the ${size} bytes of a command line, as in /proc/PID/cmdline, for the process'. */
static void identity_set_command(struct hl_identity *identity, const char *bytes, size_t size)
{
	size_t used = size;

	while (used > 0 && !bytes[used - 1])
		used--;
	/* A program that writes a title over its arguments fills the rest with NULs. That many in a
	 * row are not empty arguments. */
	if (size - used > 2)
		size = used + 1;
	size_t most = 1;
	for (size_t i = 0; i < size; i++)
		most += bytes[i] == '\0' || i + 1 == size;
	char **command = calloc(most, sizeof(*command));
	if (!command)
		return;
	for (size_t i = 0, count = 0; i < size; count++) {
		size_t length = strnlen(bytes + i, size - i);
		command[count] = strndup(bytes + i, length);
		if (!command[count])
			break;
		i += length + 1;
	}
	free_command(identity->command);
	identity->command = command;
}

/* Reads the name alone, into ${ret_name}; of one that has ended, too, as long as nobody has waited
 * for it. False when it cannot be read. */
static bool identity_read_name(pid_t pid, char ret_name[HL_IDENTITY_NAME_MAX])
{
	size_t size = read_file(pid, "comm", ret_name, HL_IDENTITY_NAME_MAX);

	ret_name[size] = '\0';
	ret_name[strcspn(ret_name, "\n")] = '\0';
	return size != 0;
}

/* Reads the command line and the name again, which a process may change to say what it does. What
 * cannot be read, as of one that has ended, stays as it is. */
static void identity_refresh(struct hl_identity *identity, pid_t pid)
{
	char name[HL_IDENTITY_NAME_MAX];
	char *bytes = malloc(COMMAND_BYTES_MAX);

	size_t size = bytes ? read_file(pid, "cmdline", bytes, COMMAND_BYTES_MAX) : 0;
	if (size)
		identity_set_command(identity, bytes, size);
	free(bytes);
	if (identity_read_name(pid, name))
		strcpy(identity->name, name);
}

/* By the link, so that a file that was deleted or replaced meanwhile is still the same. */
static bool find_executable(pid_t pid, struct stat *ret_status)
{
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/exe", hl_proc_thread(pid));
	return stat(name, ret_status) == 0;
}

static void identity_release(struct hl_identity *identity)
{
	free_command(identity->command);
	free(identity->executable);
	*identity = (struct hl_identity){0};
}

/* What cannot be read is left empty. 0 or -ENOMEM. */
static int identity_read(pid_t pid, bool attached, struct hl_identity *ret_identity)
{
	struct hl_identity identity = {
		.parent_pid = hl_identity_parent(pid),
		.executable = hl_process_run_path(pid),
		.command = calloc(1, sizeof(*identity.command)),
		.random_bytes = attached ? hl_process_auxv(pid, AT_RANDOM) : 0,
	};

	identity_refresh(&identity, pid);
	if (!identity.executable || !identity.command) {
		identity_release(&identity);
		return -ENOMEM;
	}
	struct stat status;
	if (find_executable(pid, &status)) {
		identity.device = status.st_dev;
		identity.inode = status.st_ino;
	}
	*ret_identity = identity;
	return 0;
}

/* Whether the process runs another program than then. ${ret_name} is what the kernel calls it now.
 */
static bool identity_has_changed(const struct hl_identity *identity, pid_t pid,
				 char ret_name[HL_IDENTITY_NAME_MAX])
{
	struct stat status;

	if (!identity->inode || !find_executable(pid, &status) ||
	    (status.st_dev == identity->device && status.st_ino == identity->inode))
		return false;
	identity_read_name(pid, ret_name);
	return true;
}

/* Whether it has called exec since then, be it of the same program. False where addresses are not
 * randomized. */
static bool identity_has_called_exec(const struct hl_identity *identity, pid_t pid)
{
	uint64_t random_bytes = identity->random_bytes ? hl_process_auxv(pid, AT_RANDOM) : 0;

	return random_bytes && random_bytes != identity->random_bytes;
}

/* ---- tracked processes ---- */

int hl_tracked_new(pid_t pid, int pidfd, const struct hl_region_settings *settings,
		   struct hl_budget *budget, uint64_t address_space_limit, int memfd,
		   struct hl_tracked **ret_tracked)
{
	struct hl_tracked *tracked = calloc(1, sizeof(*tracked));
	struct hl_region_settings own = *settings;

	if (!tracked) {
		close(pidfd);
		if (memfd >= 0)
			close(memfd);
		return -ENOMEM;
	}
	hl_drain_orders_init(&tracked->orders);
	tracked->code_files = HL_CODE_FILES_NONE;
	tracked->code_files.asked_pid = settings->no_scripts ? 0 : pid;
	tracked->pid = pid;
	tracked->pidfd = pidfd;
	tracked->attached = memfd >= 0;
	tracked->start_realtime_ns = hl_clock_ns(CLOCK_REALTIME);
	tracked->start_ns = hl_clock_ns(CLOCK_MONOTONIC);
	tracked->memory_group = hl_memory_group_open(pid);
	tracked->budget = settings->sample_bytes
				  ? NULL
				  : hl_budget_watch_new(budget, pid,
							hl_memory_group_at(tracked->memory_group));
	own.spare_sample_bytes = hl_budget_sample_bytes(tracked->budget);
	int r = hl_region_make(&own, address_space_limit, memfd, &tracked->region);
	if (r == 0)
		hl_budget_begin(tracked->budget, tracked->region.header);
	if (r == 0)
		r = identity_read(pid, tracked->attached, &tracked->identity);
	if (r < 0) {
		hl_tracked_free(tracked);
		return r;
	}
	if (tracked->attached)
		tracked->first_anonymous_bytes = hl_process_status_read(pid).anonymous_bytes;
	hl_code_files_refresh(&tracked->code_files, pid);
	hl_mailbox_reader_init(&tracked->mailbox, &tracked->region.header->mailbox, 0);
	*ret_tracked = tracked;
	return 0;
}

static void forget_saves(struct hl_tracked *tracked)
{
	hl_region_known_release(&tracked->known);
	hl_recording_kept_release(&tracked->kept);
}

void hl_tracked_free(struct hl_tracked *tracked)
{
	struct hl_log_losses untold;

	if (!tracked)
		return;
	hl_tracked_end_log(tracked, &untold);
	hl_drain_orders_release(&tracked->orders);
	close(tracked->pidfd);
	forget_saves(tracked);
	hl_region_base_release(&tracked->base);
	hl_budget_watch_free(tracked->budget);
	hl_region_release(&tracked->region);
	identity_release(&tracked->identity);
	hl_code_files_release(&tracked->code_files);
	hl_module_files_free(tracked->module_files);
	hl_memory_group_free(tracked->memory_group);
	free(tracked);
}

static void look_for_files(struct hl_tracked *tracked)
{
	struct hl_region_view view = hl_tracked_view(tracked);

	if (tracked->module_files)
		hl_module_files_look(tracked->module_files, tracked->pid,
				     hl_region_read_module_count(&view));
}

int hl_tracked_hold_files(struct hl_tracked *tracked, struct hl_held_files *held)
{
	tracked->module_files = hl_module_files_new(held);
	if (!tracked->module_files)
		return -ENOMEM;
	look_for_files(tracked);
	return 0;
}

static void note_child_status(struct hl_tracked *tracked)
{
	siginfo_t info = {0};

	tracked->end = HL_END_UNKNOWN;
	/* WNOWAIT: whoever started the program reaps it. Fails when it is not our child. */
	if (waitid(P_PIDFD, (id_t)tracked->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	    info.si_pid == 0)
		return;
	tracked->end = info.si_code == CLD_EXITED ? HL_END_EXITED : HL_END_SIGNALED;
	tracked->end_status = info.si_status;
}

/* Whether the program said that it was about to be replaced, and it was not by one that is
 * recorded. */
static bool note_replacement(struct hl_tracked *tracked)
{
	const struct hl_region_kin *kin = &tracked->region.header->kin;

	if (!tracked->is_another && atomic_load(&kin->replacing) && hl_region_check_kin(kin)) {
		memcpy(tracked->successor, kin->program, sizeof(kin->program));
		tracked->successor[sizeof(kin->program) - 1] = '\0';
		tracked->is_another = true;
	}
	if (tracked->is_another)
		tracked->end = HL_END_EXEC;
	return tracked->is_another;
}

void hl_tracked_set_forked(struct hl_tracked *tracked)
{
	if (!identity_read_name((pid_t)tracked->identity.parent_pid, tracked->first_name))
		strcpy(tracked->first_name, tracked->identity.name);
	tracked->first_anonymous_bytes = hl_process_status_read(tracked->pid).anonymous_bytes;
}

void hl_tracked_set_from_start(struct hl_tracked *tracked)
{
	atomic_fetch_or(&tracked->region.header->flags, HL_REGION_FROM_START);
}

void hl_tracked_look(struct hl_tracked *tracked)
{
	const struct hl_process_status status = hl_process_status_read(tracked->pid);

	if (!tracked->is_another)
		tracked->is_another =
			identity_has_changed(&tracked->identity, tracked->pid, tracked->successor);
	/* No hello says that the same program began again: the recorder is gone with the memory. */
	if (!tracked->is_another && tracked->attached &&
	    identity_has_called_exec(&tracked->identity, tracked->pid)) {
		identity_read_name(tracked->pid, tracked->successor);
		tracked->is_another = true;
	}
	/* A program that is about to be replaced has said its last. */
	if (!tracked->is_another && !atomic_load(&tracked->region.header->kin.replacing)) {
		identity_refresh(&tracked->identity, tracked->pid);
		hl_code_files_refresh(&tracked->code_files, tracked->pid);
		hl_recorder_memory_look(&tracked->recorder_memory, tracked->pid,
					HL_RECORDER_MEMORY_UNASKED);
		if (status.anonymous_bytes) /* it has not ended meanwhile */
			tracked->anonymous_bytes = status.anonymous_bytes;
		look_for_files(tracked);
	}
}

/* What it called itself when it ended. */
static void note_title(struct hl_tracked *tracked)
{
	char title[HL_KIN_TITLE_MAX], name[HL_IDENTITY_NAME_MAX];
	const struct hl_region_kin *kin = &tracked->region.header->kin;

	uint32_t bytes = atomic_load(&kin->title_bytes);
	if (bytes && bytes <= sizeof(title)) {
		memcpy(title, kin->title, bytes);
		identity_set_command(&tracked->identity, title, bytes);
	}
	/* Once somebody has waited for it, its number may be another's. */
	if (identity_read_name(tracked->pid, name) &&
	    syscall(SYS_pidfd_send_signal, tracked->pidfd, 0, NULL, 0) == 0)
		strcpy(tracked->identity.name, name);
}

const char *hl_tracked_successor(const struct hl_tracked *tracked)
{
	return tracked->end == HL_END_EXEC ? tracked->successor : "";
}

bool hl_tracked_check_end(struct hl_tracked *tracked)
{
	struct pollfd poller = {.fd = tracked->pidfd, .events = POLLIN};

	if (tracked->end_ns)
		return true;
	if (poll(&poller, 1, 0) != 1 || !(poller.revents & (POLLIN | POLLHUP)))
		return false;
	tracked->end_ns = hl_clock_ns(CLOCK_MONOTONIC);
	/* Its status would be the other program's. */
	if (note_replacement(tracked))
		return true;
	note_child_status(tracked);
	note_title(tracked);
	return true;
}

void hl_tracked_set_end(struct hl_tracked *tracked, enum hl_process_end end)
{
	tracked->end_ns = hl_clock_ns(CLOCK_MONOTONIC);
	tracked->end = end;
	if (end == HL_END_EXEC)
		tracked->successor[0] = '\0';
	else
		note_replacement(tracked);
}

struct hl_region_view hl_tracked_view(const struct hl_tracked *tracked)
{
	return (struct hl_region_view){
		.base = tracked->region.header,
		.bytes = tracked->region.bytes,
		.layout = &tracked->region.layout,
		.fd = &tracked->region.fd,
		.reset = &tracked->base,
	};
}

int hl_tracked_begin_log(struct hl_tracked *tracked, int directory_fd,
			 const struct hl_log_limits *limits, uint64_t first_tick)
{
	struct hl_drain_settings settings = {
		.view = hl_tracked_view(tracked),
		.executable = tracked->identity.executable,
		.pid = tracked->pid,
		.sequence = tracked->sequence,
		.start_realtime_ns = tracked->start_realtime_ns,
		.directory_fd = directory_fd,
		.segment_bytes = limits->segment_bytes,
		.segments_kept = limits->segments_kept,
		.events = limits->events,
		.orders = &tracked->orders,
		.first_tick = first_tick,
	};

	hl_mailbox_reader_tell_segments(&tracked->mailbox, limits->segments_kept);
	return hl_drain_thread_start(&settings, tracked->start_ns, &tracked->log);
}

void hl_tracked_end_log(struct hl_tracked *tracked, struct hl_log_losses *ret_losses)
{
	*ret_losses = (struct hl_log_losses){0};
	if (tracked->log)
		hl_drain_thread_stop(tracked->log, ret_losses);
	ret_losses->lost_marks = tracked->orders.lost_marks;
	tracked->log = NULL;
	tracked->log_is_over = true;
}

bool hl_tracked_has_begun(const struct hl_tracked *tracked)
{
	const struct hl_region_header *header = tracked->region.header;

	/* A program that has written over the header has a recorder. */
	return atomic_load(&header->state) != HL_REGION_EMPTY ||
	       memcmp(header->magic, HL_REGION_MAGIC, sizeof(header->magic)) != 0;
}

bool hl_tracked_is_running(const struct hl_tracked *tracked)
{
	return !tracked->end_ns && hl_tracked_has_begun(tracked);
}

bool hl_tracked_has_changed(struct hl_tracked *tracked)
{
	struct hl_region_view view = hl_tracked_view(tracked);

	tracked->activity = hl_region_read_activity(&view);
	return !tracked->saved || tracked->was_reset ||
	       tracked->activity != tracked->saved_activity;
}

int hl_tracked_reset(struct hl_tracked *tracked)
{
	struct hl_region_view view = hl_tracked_view(tracked);

	int r = hl_region_base_take(&view, &tracked->base);
	if (r == 0) {
		tracked->was_reset = true;
		tracked->reset_ns = hl_clock_ns(CLOCK_MONOTONIC) - tracked->start_ns;
	}
	return r;
}

static struct hl_tracked_totals add_up(const struct hl_recording_process *process)
{
	struct hl_tracked_totals totals = {
		.lost_events = process->lost.events,
		.own_malloc = process->own_malloc,
		.damaged = process->lost.damaged,
	};

	for (uint32_t i = 0; i < process->value_count; i++) {
		totals.allocations += process->values[i].alloc_objects;
		totals.alloc_bytes =
			(int64_t)((uint64_t)totals.alloc_bytes + process->values[i].alloc_bytes);
		totals.peak_bytes = (int64_t)((uint64_t)totals.peak_bytes +
					      (uint64_t)process->values[i].peak_bytes);
	}
	return totals;
}

static void name_main_module(struct hl_recording_process *process)
{
	for (uint32_t i = 0; i < process->module_count; i++) {
		struct hl_recording_module *module = &process->modules[i];
		char *path = hl_region_module_is_main(module) ? strdup(process->executable) : NULL;
		if (!path)
			continue;
		free(module->path);
		module->path = path;
	}
}

/* Names code that lies in no file, and notes whose it is where most has no name. */
static int name_code(const struct hl_tracked *tracked, uint64_t now_ns,
		     struct hl_recording_process *process, struct hl_tracked_totals *totals)
{
	size_t nameless;

	int r = hl_code_files_name(&tracked->code_files, now_ns, process, totals->refused_names,
				   &nameless);
	for (uint32_t i = 0; r == 0 && i < process->module_count && nameless > process->code_count;

	     i++) {
		const struct hl_code_runtime *runtime =
			hl_code_runtime_of(process->modules[i].path);
		if (runtime && runtime->start)
			totals->nameless = runtime;
	}
	return r;
}

/*
 * Writes the process' file as it stands. The totals are known before it is written. ${known} and ${kept}: of the last
 * time, so that only what has changed since costs time; NULL: no other file of this directory will replace it, so
 * that it has all names.
 */
static int write_file(const struct hl_tracked *tracked, int directory_fd, bool complete,
		      struct hl_region_known *known, struct hl_recording_kept *kept,
		      struct hl_tracked_totals *ret_totals, struct hl_error *err)
{
	struct hl_region_view view = hl_tracked_view(tracked);
	bool is_last = !known;
	uint64_t now_ns = tracked->end_ns ? tracked->end_ns : hl_clock_ns(CLOCK_MONOTONIC);
	struct hl_region_times times = {tracked->start_ns, now_ns};
	/* A forked child has its parent's name, which it did not give itself. */
	bool is_named =
		tracked->first_name[0] && strcmp(tracked->first_name, tracked->identity.name);
	struct hl_recording_process process = {
		.pid = (uint32_t)tracked->pid,
		.parent_pid = tracked->identity.parent_pid,
		.sequence = tracked->sequence,
		.executable = tracked->identity.executable,
		.command = tracked->identity.command,
		.name = (char *)(is_named ? tracked->identity.name : ""),
		.recording_start_ns = tracked->recording_start_ns,
		.start_realtime_ns = tracked->start_realtime_ns,
		.duration_ns = now_ns - tracked->start_ns,
		.reset_ns = tracked->reset_ns,
		.complete = complete,
		.end = tracked->end,
		.end_status = tracked->end_status,
		.successor = (char *)hl_tracked_successor(tracked),
	};

	view.known = known;
	int r = hl_region_read(&view, &times, &process, err);
	if (r == 0) {
		*ret_totals = add_up(&process);
		name_main_module(&process);
		if (tracked->module_files)
			hl_module_files_keep(tracked->module_files, &process,
					     known ? known->first_node : 0, directory_fd);
		if (is_last && name_code(tracked, now_ns, &process, ret_totals) < 0)
			r = hl_error_set(err, -ENOMEM, "cannot name code: out of memory");
	}
	if (r == 0)
		r = is_last ? hl_recording_write_process(directory_fd, &process, err)
			    : hl_recording_write_process_again(directory_fd, &process,
							       known->first_node, kept, err);
	/* These stay the tracked process' own. */
	process.executable = process.successor = process.name = NULL;
	process.command = NULL;
	hl_recording_process_release(&process);
	return r;
}

int hl_tracked_save(struct hl_tracked *tracked, int directory_fd, bool complete,
		    struct hl_error *err)
{
	int r = write_file(tracked, directory_fd, complete, complete ? NULL : &tracked->known,
			   &tracked->kept, &tracked->totals, err);

	if (r < 0) {
		forget_saves(tracked);
		return r;
	}
	tracked->saved = true;
	tracked->was_reset = false;
	tracked->saved_activity = tracked->activity;
	return 0;
}

int hl_tracked_copy(const struct hl_tracked *tracked, int directory_fd, struct hl_error *err)
{
	struct hl_tracked_totals totals;

	return write_file(tracked, directory_fd, tracked->end_ns != 0, NULL, NULL, &totals, err);
}
