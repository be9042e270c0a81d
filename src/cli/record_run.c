/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of recordings, their names, what is said at the end, and recorded programs of other verbs; see families.h. */
#include "cli/families.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/self.h"
#include "collector/collector.h"
#include "recording/recording.h"
#include "view/format.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a program under 'heapline record', for a verb that looks at its recording ---- */

#define FOLDER_FORM "heapline-%d-"
#define FOLDER_MORE "XXXXXX"
#define FOLDER_MARK "temporary" /* a link in each folder: nothing else is ever removed */
#define YOUNG_S	    60		/* in this time a recorder has begun to record */

static const char *temporary(void)
{
	const char *parent = getenv("TMPDIR");

	return parent && *parent ? parent : "/tmp";
}

/* Whether a recorder outlives the verb that began ${folder}, or may still begin: it locks its recording. */
static bool is_recording(int folder, const struct stat *status)
{
	bool is_locked = false, has_any = false;
	int fd = dup(folder);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);

	for (const struct dirent *entry; stream && !is_locked && (entry = readdir(stream));) {
		HL_CLOSED int recording =
			strstr(entry->d_name, ".hl")
				? openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
				: -1;
		has_any |= recording >= 0;
		is_locked = recording >= 0 && flock(recording, LOCK_SH | LOCK_NB) < 0;
	}
	if (stream)
		closedir(stream);
	return is_locked || (!has_any && time(NULL) - status->st_mtim.tv_sec <= YOUNG_S);
}

void hl_record_child_each_left(hl_record_left_visit *visit, void *context)
{
	DIR *stream = opendir(temporary());
	char path[PATH_MAX];
	struct stat status;

	for (const struct dirent *entry; stream && (entry = readdir(stream));) {
		int pid, end = 0;
		if (sscanf(entry->d_name, FOLDER_FORM "%n", &pid, &end) != 1 || !end ||
		    strlen(entry->d_name + end) != strlen(FOLDER_MORE) ||
		    snprintf(path, sizeof(path), "%s/%s", temporary(), entry->d_name) >=
			    (int)sizeof(path))
			continue;
		HL_CLOSED int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
		    flock(fd, LOCK_EX | LOCK_NB) == 0 && !is_recording(fd, &status) &&
		    visit(context, path, fd))
			hl_record_child_remove(path);
	}
	if (stream)
		closedir(stream);
}

/* One that names a place is for the next push to it. */
static bool is_for_nobody(void *context, const char *path, int fd)
{
	char text[2];

	(void)context;
	(void)path;
	return readlinkat(fd, FOLDER_MARK, text, sizeof(text)) > 0 &&
	       readlinkat(fd, HL_RECORD_LEFT_FOR, text, sizeof(text)) < 0 && errno == ENOENT;
}

int hl_record_child_folder(char *folder, size_t size, int *ret_fd, struct hl_error *err)
{
	hl_record_child_each_left(is_for_nobody, NULL);
	snprintf(folder, size, "%s/" FOLDER_FORM FOLDER_MORE, temporary(), getpid());
	HL_CLOSED int fd = mkdtemp(folder) ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	/* Another verb, which looks for what was left, may have it locked for a moment. */
	if (fd >= 0 && flock(fd, LOCK_EX) == 0 && symlinkat("heapline", fd, FOLDER_MARK) == 0) {
		*ret_fd = fd;
		fd = -1;
		return 0;
	}
	int r = -errno;
	rmdir(folder); /* if it was made */
	return hl_error_set(err, r, "cannot make a folder '%s' for the recording: %s", folder,
			    strerror(-r));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

void hl_record_child_remove(const char *folder)
{
	if (nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0)
		hl_cli_note("cannot remove '%s': %s", folder, strerror(errno));
}

int hl_record_child_start(char *const *command, int count, const char *path,
			  const char *const *options, pid_t *ret_pid)
{
	const char *const words[] = {"heapline", "record", "--quiet", "--output", path};
	size_t used = HL_COUNT_OF(words), more = 0;

	while (options[more])
		more++;
	HL_FREED const char **line = calloc(used + more + (size_t)count + 2, sizeof(*line));
	if (!line)
		return -ENOMEM;
	memcpy(line, words, sizeof(words));
	memcpy(line + used, options, more * sizeof(*line));
	line[used + more] = "--";
	memcpy(line + used + more + 1, command, (size_t)count * sizeof(*line));
	return hl_self_spawn((char **)line, -1, -1, ret_pid);
}

int hl_record_child_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Larger tables of a save, and of a log, are mapped: they go back to the kernel when they are freed, and leave
 * no holes when they grow. What is smaller stays for the next save. */
#define MAPPED_BYTES (1 << 20)
#define KEPT_BYTES   (8 << 20)

/* ---- options ---- */

#define AT(member) offsetof(struct hl_record_request, member)

const struct hl_option hl_record_options[] = {
	{"output", 'o', "NAME.hl",
	 "name of the recording; %p stands for the program's pid, %h for the host", HL_OPTION_TEXT,
	 AT(output), NULL},
	{"force", 'f', NULL, "replace an existing recording", HL_OPTION_FLAG, AT(force), NULL},
	{"mode", 0, "MODE",
	 "how blocks are tracked, and whether a log is kept (default: mem-fast; off: closed)",
	 HL_OPTION_CHOICE, AT(mode), hl_mode_names},
	{"sample", 0, "BYTES", "sample on average one allocation every BYTES", HL_OPTION_BYTES,
	 AT(sample_bytes), NULL},
	{"max-memory", 0, "BYTES",
	 "go on by samples once the recorder uses BYTES, or N% of the memory limit; near the limit "
	 "it always does",
	 HL_OPTION_TEXT, AT(max_memory), NULL},
	{"sizes", 0, NULL, "count the blocks of each stack by size, for 'heapline sizes'",
	 HL_OPTION_FLAG, AT(sizes), NULL},
	{"no-scripts", 0, NULL, "leave frames of scripts native: less to do for each block",
	 HL_OPTION_FLAG, AT(no_scripts), NULL},
	{"no-objects", 0, NULL,
	 "leave out what interpreters allocate from memory of their own: small objects of Python, "
	 "all of LuaJIT",
	 HL_OPTION_FLAG, AT(no_objects), NULL},
	{"log-segment-size", 0, "BYTES",
	 "with a log: start a new file of the log after BYTES (default: 100M)", HL_OPTION_BYTES,
	 AT(log_segment_bytes), HL_BOUNDS(1, UINT64_MAX)},
	{"log-segments", 0, "N",
	 "with a log: keep the newest N files of each process (default: 10)", HL_OPTION_COUNT,
	 AT(log_segments), HL_BOUNDS(1, HL_LOG_SEGMENTS_MAX)},
	{"events", 0, NULL,
	 "with a log: also keep every event, for 'heapline events', in files of the same size and "
	 "number",
	 HL_OPTION_FLAG, AT(events), NULL},
	{"lossy", 0, NULL,
	 "with a log: drop events instead of blocking a thread whose buffer is full",
	 HL_OPTION_FLAG, AT(lossy), NULL},
	{"save-every", 0, "SECONDS",
	 "save the recording every SECONDS while the program runs (default: 1)", HL_OPTION_SECONDS,
	 AT(save_every_s), NULL},
	{"quiet", 'q', NULL, "print nothing at the end unless something went wrong", HL_OPTION_FLAG,
	 AT(quiet), NULL},
	{0},
};

static bool is_about_log(const struct hl_record_request *request)
{
	return request->events || request->lossy ||
	       request->log_segment_bytes != HL_RECORD_LOG_SEGMENT_BYTES ||
	       request->log_segments != HL_RECORD_LOG_SEGMENTS;
}

bool hl_record_has_options(const struct hl_record_request *request)
{
	return request->output || is_about_log(request) || request->sample_bytes ||
	       request->max_memory || request->sizes || request->no_scripts ||
	       request->no_objects || request->save_every_s > 1;
}

static int parse_max_memory(const struct hl_verb *verb, struct hl_record_request *request)
{
	const char *text = request->max_memory;
	size_t length = strlen(text);
	bool is_percent = length && text[length - 1] == '%';
	char number[32];

	snprintf(number, sizeof(number), "%.*s", (int)(length - is_percent), text);
	uint64_t *figure = is_percent ? &request->budget.most_percent : &request->budget.most_bytes;
	if (length < sizeof(number) && hl_option_parse_number(number, !is_percent, figure) == 0 &&
	    *figure && (!is_percent || *figure <= 100))
		return HL_EXIT_DONE;
	return hl_cli_usage_error(
		verb,
		"--max-memory takes a number of bytes such as 64M, or a percentage from 1%% to "
		"100%%, not '%s'",
		text);
}

int hl_record_check_options(const struct hl_verb *verb, struct hl_record_request *request)
{
	if (request->max_memory && parse_max_memory(verb, request) != HL_EXIT_DONE)
		return HL_EXIT_USAGE;
	if (request->max_memory && request->sample_bytes)
		return hl_cli_usage_error(verb, "--max-memory and --sample exclude each other: "
						"samples need next to no memory");
	if (request->save_every_s < 1)
		return hl_cli_usage_error(verb, "--save-every takes 1 or more");
	request->mode = (int)hl_mode_of_word(request->mode);
	/* What begins closed can be switched to a mode with a log. */
	if (is_about_log(request) && request->mode != HL_MODE_CLOSED &&
	    !hl_mode_logs((enum hl_mode)request->mode))
		return hl_cli_usage_error(verb,
					  "mode '%s' keeps no log; options about logs need "
					  "'--mode log-fast' or '--mode log-record'",
					  hl_mode_names[request->mode]);
	return HL_EXIT_DONE;
}

struct hl_collector_settings hl_record_settings(const struct hl_record_request *request,
						char **command)
{
	return (struct hl_collector_settings){
		.region = {.mode = (enum hl_mode)request->mode,
			   .follow = true,
			   .sizes = request->sizes,
			   .no_scripts = request->no_scripts,
			   .no_objects = request->no_objects,
			   .lossy = request->lossy,
			   .sample_bytes = request->sample_bytes},
		.log = {.segment_bytes = request->log_segment_bytes,
			.segments_kept = (uint32_t)request->log_segments,
			.events = request->events},
		.budget = request->budget,
		.save_every_ns = (uint64_t)(request->save_every_s * (double)HL_NS_PER_SECOND),
		.command = command,
	};
}

/* ---- the recording's name ---- */

char *hl_record_name(const struct hl_record_request *request, const char *command, pid_t pid)
{
	char host[HOST_NAME_MAX + 1] = "", *name = NULL;
	size_t size;

	FILE *out = open_memstream(&name, &size);
	if (!out)
		return NULL;
	gethostname(host, sizeof(host) - 1);
	if (!request->output)
		fprintf(out, "heapline.%s.%d.hl", hl_path_basename(command), pid);
	for (const char *at = request->output; at && *at; at++) {
		char letter = *at == '%' ? at[1] : '\0';
		if (letter == 'p')
			fprintf(out, "%d", pid);
		else if (letter == 'h')
			fputs(host, out);
		else
			fputc(*at, out); /* of an unknown letter, the percent sign */
		at += letter == 'p' || letter == 'h' || letter == '%';
	}
	if (fclose(out) != 0) {
		free(name);
		return NULL;
	}
	while (size > 1 && name[size - 1] == '/')
		name[--size] = '\0';
	return name;
}

/* Each process that is recorded takes four. The program has been forked by now, and has its own limit. */
static void allow_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* An exact recording needs memory of the group that the program may be short of. */
static void say_room(const struct hl_record_request *request, const struct hl_collector *collector,
		     pid_t pid)
{
	char sentence[HL_WARNING_BYTES];

	if (!request->sample_bytes && hl_collector_describe_room(collector, pid, sentence))
		hl_cli_note("%s", sentence);
}

int hl_record_begin(const struct hl_record_request *request, struct hl_collector *collector,
		    const char *name, pid_t pid, struct hl_error *err)
{
	allow_descriptors();
	mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
	mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
	say_room(request, collector, pid);
	return hl_collector_begin(collector, name, request->force, pid, err);
}

/* ---- what is said at the end ---- */

/* "3 children ran unrecorded"; "" where warnings tell of all of them. */
static const char *format_unseen(const struct hl_collector_summary *summary, char text[64])
{
	char count[HL_FORMAT_MAX];

	text[0] = '\0';
	if (summary->unrecorded_children <= summary->refused_children)
		return text;
	uint32_t others = summary->unrecorded_children - summary->refused_children;
	snprintf(text, 64, "%s %schild%s ran unrecorded", hl_format_count(others, count),
		 summary->refused_children ? "more " : "", others == 1 ? "" : "ren");
	return text;
}

/* One at a time: a program that forks without end must not keep the collector from all else. */
void hl_record_join_child(struct hl_record_following *to)
{
	struct hl_attach_child child;

	if (!hl_attach_next_child(to->attach, &child))
		return;
	int r = hl_collector_adopt_child(to->collector, child.pid, child.region_fd);
	to->has_children |= r == 0;
	hl_attach_answer_child(to->attach, &child, r == 0);
}

static void join_child(void *context)
{
	hl_record_join_child(context);
}

static void follow(struct hl_record_following *following)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = following};
	int fd = hl_attach_follow(following->attach);

	if (fd >= 0 && following->group_fd)
		epoll_ctl(following->group_fd, EPOLL_CTL_ADD, fd, &event);
	else if (fd >= 0)
		hl_collector_heed(following->collector, fd, join_child, following);
}

int hl_record_join(struct hl_collector *collector, pid_t pid, struct hl_attach *attach,
		   bool ran_before, struct hl_record_following *following, struct hl_error *err)
{
	struct hl_error ignored = {0};
	uint64_t region_bytes;
	int region_fd;

	int r = hl_attach_bring(attach, &region_fd, err);
	if (r < 0)
		return r;
	r = hl_collector_adopt(collector, pid, region_fd, ran_before, &region_bytes, err);
	if (r == 0 && following) {
		following->collector = collector;
		following->attach = attach;
		follow(following);
	}
	if (r == 0)
		r = hl_attach_patch(attach, region_bytes, err);
	if (r < 0)
		hl_attach_detach(attach, HL_RECORD_LEAVE_WAIT_MS, &ignored);
	return r;
}

void hl_record_say_problems(const struct hl_record_request *request,
			    const struct hl_collector_summary *summary, const char *name)
{
	char *const *warnings = summary->warnings;
	char unseen[64], count[HL_FORMAT_MAX], remedy[HL_CODE_RUNTIME_REMEDY_MAX];

	if (summary->is_empty) {
		/* All else refers to what is in it. */
		hl_cli_note("there is no recording: %s; make room, or name a place by '-o'",
			    summary->failure);
		return;
	}
	if (summary->unsaved)
		hl_cli_note(
			"the recording '%s' is incomplete: %s; the figures of %u of %u process%s "
			"are missing, or those of an earlier save",
			name, summary->failure, summary->unsaved, summary->processes,
			summary->processes == 1 ? "" : "es");
	else if (summary->incomplete)
		hl_cli_note("the recording '%s' is incomplete: %s", name, summary->failure);
	else if (warnings[0] && warnings[1])
		hl_cli_note("%s; there is more: see 'heapline info %s'", warnings[0], name);
	else if (warnings[0])
		hl_cli_note("%s", warnings[0]);
	if (summary->nameless)
		hl_cli_note("code made at run time (%s) has no names: %s",
			    summary->nameless->language,
			    hl_code_runtime_remedy(summary->nameless,
						   (uint32_t)summary->nameless_pid, remedy));
	if (summary->own_malloc)
		hl_cli_note("some processes have a malloc of their own, whose calls were not seen; "
			    "see 'heapline info %s'",
			    name);
	if (summary->replaced == 1)
		hl_cli_note("pid %d went on as '%s', unrecorded", summary->replaced_pid,
			    summary->replaced_name);
	else if (summary->replaced)
		hl_cli_note("%u processes went on as other programs, unrecorded, the first as "
			    "'%s' (pid %d); see 'heapline info %s'",
			    summary->replaced, summary->replaced_name, summary->replaced_pid, name);
	format_unseen(summary, unseen);
	/* Otherwise the last line says so. */
	if (unseen[0] && (request->quiet || !summary->processes))
		hl_cli_note("%s", unseen);
	if (summary->lost_events)
		hl_cli_note("%s event%s could not be counted; see 'heapline info %s'",
			    hl_format_count((int64_t)summary->lost_events, count),
			    summary->lost_events == 1 ? "" : "s", name);
}

void hl_record_say_result(const struct hl_record_request *request,
			  const struct hl_collector_summary *summary, const char *name)
{
	char count[HL_FORMAT_MAX], peak[HL_FORMAT_MAX], unseen[64];

	if (!summary->processes || request->quiet)
		return;
	format_unseen(summary, unseen);
	hl_cli_note("recorded %s allocation%s of %u process%s%s%s, %s %s in use, %s%s%s%s%s%s%s",
		    hl_format_count((int64_t)summary->allocations, count),
		    summary->allocations == 1 ? "" : "s", summary->processes,
		    summary->processes == 1 ? "" : "es", unseen[0] ? ", " : "", unseen,
		    summary->processes == 1 ? "at most" : "the largest of which had at most",
		    hl_format_bytes(summary->peak_bytes, peak),
		    summary->is_empty ? "and kept nothing of it" : "to '",
		    summary->is_empty ? "" : name, summary->is_empty ? "" : "'",
		    summary->damaged ? "; damaged: the program overwrote heapline's memory" : "",
		    summary->is_empty	  ? ""
		    : summary->incomplete ? ", which is incomplete"
					  : "; see 'heapline top ",
		    summary->incomplete ? "" : name, summary->incomplete ? "" : "'");
}
