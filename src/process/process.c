/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts of processes, from their files in /proc; see process.h. */
#include "process/process.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "process/audit.h"
#include "process/service.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- frozen cgroups ---- */

/* Whether ${file} of the cgroup at ${path}, below the usual place of ${hierarchy}, has ${word}. */
static bool says(const char *hierarchy, const char *path, const char *file, const char *word)
{
	char name[PATH_MAX], text[256] = "";

	snprintf(name, sizeof(name), "/sys/fs/cgroup%s%s/%s", hierarchy, path, file);
	FILE *in = fopen(name, "re");
	if (!in)
		return false;
	size_t length = fread(text, 1, sizeof(text) - 1, in);
	text[length] = '\0';
	fclose(in);
	return strstr(text, word);
}

bool hl_process_is_frozen(pid_t pid)
{
	char text[4096], *rest = text;

	if (hl_proc_read(pid, "cgroup", text, sizeof(text)) < 0)
		return false;
	/* "NUMBER:CONTROLLERS:PATH", of version 2 without controllers. */
	for (char *line; (line = strsep(&rest, "\n"));) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (!controllers[1] && (says("", path, "cgroup.events", "frozen 1") ||
					says("/unified", path, "cgroup.events", "frozen 1")))
			return true;
		if (strstr(controllers, "freezer") &&
		    (says("/freezer", path, "freezer.state", "FROZEN") ||
		     says("/freezer", path, "freezer.state", "FREEZING")))
			return true;
	}
	return false;
}

/* ---- facts ---- */

/* Longer command lines are cut; nobody reads megabytes of arguments. */
#define COMMAND_BYTES_MAX 65536

/* At a process whose first thread has ended. */
#define LOOKS_MAX     50
#define LOOK_AGAIN_NS 2000000

/* The number after "\n${key}:" in a file like /proc/PID/status; 0 when there is none. */
static uint64_t value_of(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (const char *at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, key, length) && at[length] == ':')
			return strtoull(at + length + 1, NULL, 10);
	}
	return 0;
}

static bool says_ended(const char *status)
{
	const char *state = strstr(status, "\nState:\t");

	return state && strchr("ZX", state[strlen("\nState:\t")]);
}

/*
 * The first thread of a process that is being killed may end before the others, and that of one whose other
 * thread executes a program does: a moment later there is no such process, or one like any other.
 */
static ssize_t read_settled_status(pid_t pid, char *status, size_t capacity)
{
	for (int looks = 1;; looks++) {
		ssize_t length = hl_proc_read_status(pid, status, capacity);
		if (length < 0 || looks == LOOKS_MAX || !hl_process_has_ended(pid) ||
		    value_of(status, "Threads") <= 1)
			return length;
		nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
	}
}

/* Refuses what is not a living process of its own. */
static int read_status(pid_t pid, struct hl_process_facts *facts, struct hl_error *err)
{
	char status[8192];

	ssize_t length = read_settled_status(pid, status, sizeof(status));
	if (length < 0)
		return hl_proc_error(pid, (int)length, "the status", err);
	pid_t process = (pid_t)value_of(status, "Tgid");
	if (process != pid)
		return hl_error_set(err, -ESRCH, "'%d' is a thread of process '%d'; name that", pid,
				    process);
	if (says_ended(status))
		return hl_error_set(err, -ESRCH, "process '%d' has ended", pid);
	facts->parent_pid = (pid_t)value_of(status, "PPid");
	facts->uid = (uint32_t)value_of(status, "Uid");
	facts->threads = (uint32_t)value_of(status, "Threads");
	return 0;
}

/* ---- stat and auxv ---- */

#define STAT_BYTES 1024

/* What follows the name, the second field, which may itself contain anything. ${file}: "stat". */
static int read_stat(pid_t pid, const char *file, char text[STAT_BYTES],
		     const char **ret_after_name)
{
	ssize_t length = hl_proc_read(pid, file, text, STAT_BYTES);

	if (length < 0)
		return (int)length;
	const char *end = strrchr(text, ')');
	if (!end || end[1] != ' ')
		return -EBADMSG;
	*ret_after_name = end + 1;
	return 0;
}

char hl_process_state(pid_t tid)
{
	char text[STAT_BYTES], file[32];
	const char *at = NULL;

	/* The one of the process adds the times of all its threads up. */
	snprintf(file, sizeof(file), "task/%d/stat", tid);
	return read_stat(tid, file, text, &at) < 0 ? 'X' : at[1];
}

uint32_t hl_process_inner_pid(pid_t pid)
{
	char text[4096];

	if (hl_proc_read_status(pid, text, sizeof(text)) < 0)
		return 0;
	const char *line = strstr(text, "\nNStgid:");
	if (!line)
		return (uint32_t)pid;
	line += strlen("\nNStgid:");
	/* One for each namespace, the innermost last. */
	const char *end = line + strcspn(line, "\n"), *last = line;
	for (const char *at = line; at < end; at++)
		if (*at == '\t')
			last = at + 1;
	return (uint32_t)strtoul(last, NULL, 10);
}

bool hl_process_has_ended(pid_t tid)
{
	char state = hl_process_state(tid);

	return state == 'Z' || state == 'X';
}

int hl_process_stat_field(pid_t pid, int field, uint64_t *ret_number)
{
	char text[STAT_BYTES];
	const char *at = NULL;

	int r = read_stat(pid, "stat", text, &at);
	for (int before = 3; r == 0 && at && before < field; before++)
		at = strchr(at + 1, ' ');
	if (r < 0 || !at)
		return r < 0 ? r : -EBADMSG;
	*ret_number = strtoull(at, NULL, 10);
	return 0;
}

uint64_t hl_process_start_ns(uint64_t start_ticks)
{
	return hl_clock_ns(CLOCK_REALTIME) - hl_clock_ns(CLOCK_BOOTTIME) +
	       start_ticks * (HL_NS_PER_SECOND / (uint64_t)sysconf(_SC_CLK_TCK));
}

static int read_start(pid_t pid, struct hl_process_facts *facts, struct hl_error *err)
{
	int r = hl_process_stat_field(pid, HL_STAT_START_TICKS, &facts->start_ticks);

	if (r < 0)
		return hl_proc_error(pid, r, "the start time", err);
	facts->start_realtime_ns = hl_process_start_ns(facts->start_ticks);
	return 0;
}

/* ${directory} is "" or "task/TID/". */
static void read_comm(pid_t pid, const char *directory, char comm[16])
{
	char file[48], text[64];

	snprintf(file, sizeof(file), "%scomm", directory);
	ssize_t length = hl_proc_read(pid, file, text, sizeof(text));
	text[length > 0 ? length : 0] = '\0';
	char *newline = strrchr(text, '\n');
	if (newline)
		*newline = '\0';
	snprintf(comm, 16, "%.15s", text);
}

static void free_command(char **command)
{
	for (char **argument = command; argument && *argument; argument++)
		free(*argument);
	free(command);
}

/* Splits at NULs; NULL for want of memory. */
static char **split_arguments(const char *bytes, size_t length)
{
	size_t arguments = 0;

	for (size_t i = 0; i < length; i++)
		arguments += !bytes[i] || i + 1 == length;
	char **command = calloc(arguments + 1, sizeof(*command));
	for (size_t i = 0, count = 0; command && i < length; count++) {
		size_t size = strnlen(bytes + i, length - i);
		command[count] = strndup(bytes + i, size);
		if (!command[count]) {
			free_command(command);
			return NULL;
		}
		i += size + 1;
	}
	return command;
}

static char **read_command(pid_t pid, const char *comm)
{
	HL_FREED char *bytes = malloc(COMMAND_BYTES_MAX);

	if (!bytes)
		return NULL;
	ssize_t got = hl_proc_read(pid, "cmdline", bytes, COMMAND_BYTES_MAX);
	if (got <= 0)
		return split_arguments(comm, strlen(comm));
	/* A program that writes a title over its arguments fills the rest with NULs, which are not
	 * empty arguments. */
	size_t length = (size_t)got, used = length;
	while (used > 0 && !bytes[used - 1])
		used--;
	return split_arguments(bytes, length - used > 2 ? used + 1 : length);
}

int hl_process_facts_read(pid_t pid, struct hl_process_facts *ret_facts, struct hl_error *err)
{
	struct hl_process_facts facts = {.pid = pid};

	int r = read_status(pid, &facts, err);
	if (!r)
		r = read_start(pid, &facts, err);
	if (r)
		return r;
	int64_t cpu_ns = hl_process_cpu_ns(pid);
	facts.cpu_ns = cpu_ns > 0 ? (uint64_t)cpu_ns : 0;
	read_comm(pid, "", facts.comm);
	facts.executable = hl_process_executable(pid);
	facts.command = read_command(pid, facts.comm);
	if (!facts.executable || !facts.command) {
		hl_process_facts_release(&facts);
		return hl_proc_error(pid, -ENOMEM, "the command", err);
	}
	*ret_facts = facts;
	return 0;
}

void hl_process_facts_release(struct hl_process_facts *facts)
{
	free_command(facts->command);
	free(facts->executable);
	*facts = (struct hl_process_facts){0};
}

int hl_process_condition_read(pid_t pid, struct hl_process_condition *ret_condition,
			      struct hl_error *err)
{
	char status[8192], path[32];
	struct stat file;

	ssize_t length = hl_proc_read_status(pid, status, sizeof(status));
	if (length < 0)
		return hl_proc_error(pid, (int)length, "the status", err);
	const char *state = strstr(status, "\nState:\t");
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	*ret_condition = (struct hl_process_condition){
		.state = state ? state[strlen("\nState:\t")] : '?',
		.tracer_pid = (pid_t)value_of(status, "TracerPid"),
		.seccomp_mode = (int)value_of(status, "Seccomp"),
		.is_protected = stat(path, &file) == 0 && file.st_uid != value_of(status, "Uid"),
	};
	return 0;
}

int hl_process_is_elsewhere(pid_t pid, const char *kind)
{
	char path[48];
	struct stat here, there;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	if (stat(path, &here) < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kind);
	if (stat(path, &there) < 0)
		return -errno;
	return here.st_ino != there.st_ino || here.st_dev != there.st_dev;
}

int64_t hl_process_cpu_ns(pid_t pid)
{
	clockid_t clock;
	struct timespec used;

	int code = clock_getcpuclockid(pid, &clock);
	if (code)
		return -code;
	if (clock_gettime(clock, &used))
		return -ESRCH;
	return (int64_t)used.tv_sec * (int64_t)HL_NS_PER_SECOND + used.tv_nsec;
}

/* The user that all three of ${status} are: else it has rights of two. */
static int64_t only_uid(const char *status)
{
	unsigned real, effective, saved;
	const char *line = strstr(status, "\nUid:");

	if (!line || sscanf(line, "\nUid: %u %u %u", &real, &effective, &saved) != 3)
		return -1;
	return real == effective && real == saved ? (int64_t)real : -1;
}

struct hl_process_status hl_process_status_read(pid_t pid)
{
	char status[8192];

	if (hl_proc_read_status(pid, status, sizeof(status)) <= 0)
		return (struct hl_process_status){.uid = -1};
	return (struct hl_process_status){
		.rss_bytes = 1024 * (int64_t)value_of(status, "VmRSS"),
		.anonymous_bytes = 1024 * (int64_t)value_of(status, "RssAnon"),
		.threads = (int64_t)value_of(status, "Threads"),
		.swap_bytes = 1024 * (int64_t)value_of(status, "VmSwap"),
		.huge_page_bytes = 1024 * (int64_t)value_of(status, "HugetlbPages"),
		.uid = only_uid(status),
	};
}

int hl_process_rss_read(pid_t pid, struct hl_process_rss *ret_rss, struct hl_error *err)
{
	char rollup[4096], status[8192];

	ssize_t length = hl_proc_read(pid, "smaps_rollup", rollup, sizeof(rollup));
	if (length == 0) /* of a zombie */
		length = -ESRCH;
	if (length > 0)
		length = hl_proc_read_status(pid, status, sizeof(status));
	if (length < 0)
		return hl_proc_error(pid, (int)length, "the memory in use", err);
	uint64_t page_kib = (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
	*ret_rss = (struct hl_process_rss){
		.rss_pages = value_of(rollup, "Rss") / page_kib,
		.anon_pages = value_of(rollup, "Anonymous") / page_kib,
		.pss_anon_pages = value_of(rollup, "Pss_Anon") / page_kib,
		.shmem_pages = value_of(status, "RssShmem") / page_kib,
		.swap_pages = value_of(rollup, "Swap") / page_kib,
		.touched_pages = value_of(rollup, "Referenced") / page_kib,
	};
	return 0;
}

int hl_process_touched_clear(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", pid);
	HL_CLOSED int fd = open(path, O_WRONLY | O_CLOEXEC);
	int r = fd < 0 || write(fd, "1", 1) != 1 ? -errno : 0;
	hl_audit("clear", pid, r);
	return r;
}

static void close_directory(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}

int hl_process_threads(pid_t pid, pid_t **ret_tids, size_t *ret_count)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0, capacity = 0;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	HL_CLEANUP(close_directory) DIR *directory = opendir(path);
	if (!directory)
		return errno == ENOENT ? -ESRCH : -errno;
	for (struct dirent *entry; (entry = readdir(directory));) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
		if (tid > 0 && HL_ARRAY_APPEND(tids, count, capacity, tid) < 0)
			return -ENOMEM;
	}
	*ret_count = count;
	*ret_tids = HL_TAKE(tids);
	return 0;
}

int hl_process_stack_pointers(pid_t pid, uint64_t **ret_pointers, size_t *ret_count)
{
	HL_FREED pid_t *threads = NULL;
	size_t count = 0, found = 0;

	int r = hl_process_threads(pid, &threads, &count);
	if (r < 0)
		return r;
	uint64_t *pointers = calloc(count + 1, sizeof(*pointers));
	if (!pointers)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		char name[32], text[256];
		snprintf(name, sizeof(name), "task/%d/syscall", threads[i]);
		/* "running", or the call, its six arguments, the stack pointer and the program counter */
		if (hl_proc_read(pid, name, text, sizeof(text)) <= 0)
			continue;
		const char *counter = strrchr(text, ' ');
		const char *pointer = counter ? memrchr(text, ' ', (size_t)(counter - text)) : NULL;
		if (pointer && (pointers[found] = strtoull(pointer + 1, NULL, 16)) != 0)
			found++;
	}
	*ret_pointers = pointers;
	*ret_count = found;
	return 0;
}

uint64_t hl_process_wait_ns(pid_t pid)
{
	HL_FREED pid_t *tids = NULL;
	size_t count = 0;
	uint64_t sum_ns = 0;

	hl_process_threads(pid, &tids, &count);
	for (size_t i = 0; i < count; i++) {
		char name[32], text[128];
		unsigned long long waited_ns;
		snprintf(name, sizeof(name), "task/%d/schedstat", tids[i]);
		if (hl_proc_read(pid, name, text, sizeof(text)) > 0 &&
		    sscanf(text, "%*u %llu", &waited_ns) == 1)
			sum_ns += waited_ns;
	}
	return sum_ns;
}

/* ---- by name ---- */

/* False where it has ended meanwhile, or is a thread of the kernel, which has no command. */
static bool read_names(pid_t pid, struct hl_named_process *process)
{
	char command[4096], link[32], executable[PATH_MAX] = "", name[HL_SERVICE_NAME_MAX];

	if (hl_proc_read(pid, "cmdline", command, sizeof(command)) <= 0)
		return false;
	process->pid = pid;
	read_comm(pid, "", process->comm);
	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	(void)!readlink(link, executable, sizeof(executable) - 1); /* of others not, perhaps */
	hl_service_program(command, executable, name);
	snprintf(process->name, sizeof(process->name), "%.63s", name[0] ? name : process->comm);
	return true;
}

static int is_number(const struct dirent *entry)
{
	return isdigit((unsigned char)entry->d_name[0]);
}

int hl_process_each(bool (*visit)(const struct hl_named_process *process, void *context),
		    void *context)
{
	struct dirent **entries;
	int count = scandir("/proc", &entries, is_number, versionsort);
	bool goes_on = true;

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		struct hl_named_process process;
		pid_t pid = (pid_t)strtol(entries[i]->d_name, NULL, 10);
		free(entries[i]);
		if (goes_on && pid != getpid() && read_names(pid, &process))
			goes_on = visit(&process, context);
	}
	free(entries);
	return 0;
}

struct search {
	const char *name;
	struct hl_named_process first;
	size_t count;
	char list[200]; /* "4711 (redis-server), 4712 (redis-server)" */
	size_t list_length;
};

static bool note_match(const struct hl_named_process *process, void *context)
{
	struct search *search = context;
	size_t room = sizeof(search->list) - search->list_length;

	if (strcmp(process->name, search->name) != 0 && strcmp(process->comm, search->name) != 0)
		return true;
	if (!search->count++)
		search->first = *process;
	int length = snprintf(search->list + search->list_length, room, "%s%d (%s)",
			      search->list_length ? ", " : "", process->pid, process->name);
	if ((size_t)length < room)
		search->list_length += (size_t)length;
	else
		search->list[search->list_length] = '\0';
	return true;
}

int hl_process_by_name(const char *name, pid_t *ret_pid, struct hl_error *err)
{
	struct search search = {.name = name};

	int r = hl_process_each(note_match, &search);
	if (r < 0)
		return hl_error_set(err, r, "cannot read /proc: %s", strerror(-r));
	if (!search.count)
		return hl_error_set(err, -ESRCH, "no process is called '%s'", name);
	if (search.count > 1)
		return hl_error_set(err, -EEXIST,
				    "%zu processes are called '%s': %s; name one of them with -p",
				    search.count, name, search.list);
	*ret_pid = search.first.pid;
	return 0;
}
