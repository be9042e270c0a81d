/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges what reports programs ask for, and runs heapline's views for them; see control.h. */
#include "collector/control.h"

#include "base/clock.h"
#include "base/self.h"
#include "recording/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- whether a program may ask ---- */

/* The line `Uid:` of proc(5) has the real, effective, saved and file system user; the owner of
 * /proc/PID would not do: it is root once the process has changed its user. */
static bool has_our_rights(pid_t pid)
{
	char path[32], line[128];
	unsigned ids[4];
	bool same = false;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Uid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
			continue;
		same = ids[0] == geteuid() && ids[1] == ids[0] && ids[2] == ids[0] &&
		       ids[3] == ids[0];
		break;
	}
	fclose(file);
	return same;
}

int hl_program_report_path(pid_t pid, const char *wanted, char ret_path[PATH_MAX],
			   struct hl_error *err)
{
	if (!has_our_rights(pid))
		return hl_error_set(err, -EPERM,
				    "process %d asked for a report '%s': refused, because it runs "
				    "as another user than the collector",
				    pid, wanted);
	if (wanted[0] == '/' && strlen(wanted) < PATH_MAX) {
		strcpy(ret_path, wanted);
		return 0;
	}
	char link[32], base[PATH_MAX];
	snprintf(link, sizeof(link), "/proc/%d/cwd", pid);
	ssize_t length = readlink(link, base, sizeof(base) - 1);
	if (length > 0 && base[0] == '/') {
		base[length] = '\0';
		if (snprintf(ret_path, PATH_MAX, "%s/%s", base, wanted) < PATH_MAX)
			return 0;
	}
	return hl_error_set(err, -ENOENT,
			    "process %d asked for a report '%s': its path cannot be found", pid,
			    wanted);
}

/* ---- the report ---- */

#define ARGUMENTS_MAX	 20
#define REPORT_BYTES_MAX ((off_t)64 << 20)
#define CPU_SECONDS_MAX	 60
#define SECONDS_MAX	 120 /* also of waiting, as for files on a network */

struct hl_report_child {
	pid_t pid;
	int pidfd, text_fd, sentence_fd;
	uint64_t deadline_ns;
	bool is_late;	 /* and was ended */
	char *recording; /* that it writes instead of a text; NULL: none */
};

/* The recording's directory, whatever it was called when it began. */
static int path_of(const struct hl_archive *archive, char ret_path[PATH_MAX])
{
	char link[64];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", archive->directory.fd);
	ssize_t length = readlink(link, ret_path, PATH_MAX - 1);
	if (length < 0)
		return -errno;
	ret_path[length] = '\0';
	return 0;
}

static int spawn(struct hl_report_child *child, char *const *arguments)
{
	int r = hl_self_spawn(arguments, child->text_fd, child->sentence_fd, &child->pid);

	if (r < 0)
		return r;
	prlimit(child->pid, RLIMIT_CPU, &(struct rlimit){CPU_SECONDS_MAX, CPU_SECONDS_MAX}, NULL);
	prlimit(child->pid, RLIMIT_FSIZE, &(struct rlimit){REPORT_BYTES_MAX, REPORT_BYTES_MAX},
		NULL);
	child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	r = child->pidfd < 0 ? -errno : 0;
	if (r < 0)
		kill(child->pid, SIGKILL); /* nobody would see that it ends */
	return r;
}

static int begin(struct hl_report_child *child, const struct hl_control_subject *subject,
		 const struct hl_tracked *tracked, const struct hl_control_request *request)
{
	char process[32], path[PATH_MAX], *arguments[ARGUMENTS_MAX] = {"heapline"};
	size_t count = 1;

	int r = path_of(subject->archive, path);
	if (r < 0)
		return r;
	child->text_fd = memfd_create("heapline-report", MFD_CLOEXEC);
	child->sentence_fd = memfd_create("heapline-report", MFD_CLOEXEC);
	if (child->text_fd < 0 || child->sentence_fd < 0)
		return -errno;
	snprintf(process, sizeof(process), "%d/%" PRIu32, tracked->pid, tracked->sequence);
	if (request->verb == HL_CONTROL_LEAKS) {
		if (!(child->recording = hl_recording_lost_path(path, tracked->sequence)))
			return -ENOMEM;
		snprintf(process, sizeof(process), "%d", tracked->pid);
		char *const leaks[] = {"leaks", "--stop", "--at-exit", "--force",
				       "-p",	process,  "-o",	       child->recording};
		memcpy(arguments + count, leaks, sizeof(leaks));
		return spawn(child, arguments);
	}
	if (request->verb == HL_CONTROL_TIMES) {
		arguments[count++] = "timeline";
		arguments[count++] = "--format=csv";
		if (request->argument[0])
			arguments[count++] = "--jobs";
	} else {
		arguments[count++] = "lines";
		arguments[count++] = "--value=inuse";
		arguments[count++] = "--plain";
		arguments[count++] = "--freed";
		arguments[count++] = "--rows=0";
		if (request->argument[0])
			arguments[count++] = "--at";
	}
	if (request->argument[0])
		arguments[count++] = (char *)request->argument;
	arguments[count++] = "--color=never";
	arguments[count++] = "--no-pager";
	arguments[count++] = "--process";
	arguments[count++] = process;
	arguments[count++] = "--";
	arguments[count++] = path;
	return spawn(child, arguments);
}

int hl_report_child_begin(const struct hl_control_subject *subject,
			  const struct hl_control_request *request,
			  struct hl_report_child **ret_child, struct hl_error *err)
{
	struct hl_tracked *tracked = *subject->tracked;

	while (tracked && (tracked->pid != request->pid || !hl_tracked_is_running(tracked)))
		tracked = tracked->next;
	if (!tracked)
		return hl_error_set(err, -ESRCH, "process %d is not recorded here, or has ended",
				    request->pid);
	if (request->verb == HL_CONTROL_LEAKS && !(tracked->region.layout.flags & HL_REGION_LEAKS))
		return hl_error_set(
			err, -EINVAL,
			"this recording was not begun with '--leaks'; 'heapline leaks -p %d' "
			"looks for lost blocks at once",
			request->pid);
	struct hl_report_child *child = malloc(sizeof(*child));
	if (!child)
		return hl_error_set(err, -ENOMEM, "out of memory");
	*child = (struct hl_report_child){
		.pidfd = -1,
		.text_fd = -1,
		.sentence_fd = -1,
		.deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + SECONDS_MAX * HL_NS_PER_SECOND,
	};
	int r = hl_archive_save(subject->archive, tracked, false);
	if (r == 0)
		r = hl_archive_save_meta(subject->archive, false);
	if (r < 0) {
		*err = subject->archive->failure;
	} else {
		r = begin(child, subject, tracked, request);
		if (r < 0)
			hl_error_set(err, r, "cannot begin the report: %s", strerror(-r));
	}
	if (r < 0) {
		hl_report_child_free(child);
		return r;
	}
	*ret_child = child;
	return 0;
}

bool hl_report_child_is_of_leaks(const struct hl_report_child *child)
{
	return child->recording != NULL;
}

int hl_report_child_fd(const struct hl_report_child *child)
{
	return child->pidfd;
}

void hl_report_child_check(struct hl_report_child *child, uint64_t now_ns)
{
	if (child->is_late || now_ns < child->deadline_ns)
		return;
	child->is_late = true;
	syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
}

/* All that was written to ${fd}, with a NUL; to be freed. */
static int read_back(int fd, char **ret_text, size_t *ret_size)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (status.st_size > REPORT_BYTES_MAX)
		return -EFBIG;
	char *text = malloc((size_t)status.st_size + 1);
	ssize_t size = text ? pread(fd, text, (size_t)status.st_size, 0) : -1;
	if (size < 0) {
		int r = text ? -errno : -ENOMEM;
		free(text);
		return r;
	}
	text[size] = '\0';
	*ret_text = text;
	*ret_size = (size_t)size;
	return 0;
}

int hl_report_child_end(const struct hl_report_child *child, char **ret_text, struct hl_error *err)
{
	char sentences[HL_SELF_SENTENCE_MAX], *text = NULL;
	size_t size = 0;

	if (child->is_late)
		return hl_error_set(err, -ETIMEDOUT, "the report took longer than %d s",
				    SECONDS_MAX);
	/* Its status may be another's to fetch, who reaps all children: a view that fails writes nothing. */
	int r = read_back(child->text_fd, &text, &size);
	if (r < 0)
		return hl_error_set(err, r, "cannot read the report: %s", strerror(-r));
	if (child->recording && hl_recording_is_there(child->recording)) {
		free(text);
		return (*ret_text = hl_control_answer_done()) ? 0 : -ENOMEM;
	}
	if (size) {
		*ret_text = text;
		return 0;
	}
	free(text);
	const char *sentence = hl_self_sentence(child->sentence_fd, sentences);
	return hl_error_set(err, -EIO, "%s",
			    sentence ? sentence : "heapline ended while it wrote the report");
}

void hl_report_child_free(struct hl_report_child *child)
{
	if (!child)
		return;
	/* By the descriptor: the number may be another's, where somebody else has reaped it. */
	if (child->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
	if (child->pid > 0)
		waitpid(child->pid, NULL, 0);
	if (child->pidfd >= 0)
		close(child->pidfd);
	if (child->text_fd >= 0)
		close(child->text_fd);
	if (child->sentence_fd >= 0)
		close(child->sentence_fd);
	free(child->recording);
	free(child);
}
