/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes entries of kills; see kill.h. */
#include "watch/kill.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "process/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILLS_MAX    32u /* that are waited for; of more, the figures alone are kept */
#define CHILDREN_MAX 2u
#define DEATH_NS \
	(10 * HL_NS_PER_SECOND) /* until the victim runs, and its command line can be read */
/* Of processor time, and in all: on a busy machine a niced child spends most of its life waiting. */
#define CHILD_CPU_SECONDS 60
#define CHILD_NS	  (300 * HL_NS_PER_SECOND)
/* With two programs of snapshots and the service below MemoryMax of its unit, 2 GiB. */
#define CHILD_BYTES (UINT64_C(384) << 20)
#define TOO_MANY    "the stacks have no names: there were too many kills at once"
#define UNNAMED	    "the stacks have no names: naming them took more time or memory than it may"
#define ENDED	    "the stacks have no names: the service ended meanwhile"
#define PAGE_BYTES  ((int64_t)sysconf(_SC_PAGESIZE))
#define MS_PER_NS   1000000
#define ROOTS_MAX   8u
/* A level whose limit is this near is the one that was reached: what was asked for did not fit. */
#define NEAR_PAGES 640

struct kill_entry {
	struct hl_oom_record *record, *death; /* of the victim's last moment; NULL: not yet */
	char *maps; /* of the victim, read when the kill was heard of; NULL: it had gone */
	json_t *document;
	char name[HL_WATCH_NAME_MAX];
	int fd;	   /* of the entry; -1: not begun */
	int error; /* why not */
	pid_t child;
	uint64_t begun_ns;
};

struct hl_watch_kills {
	struct hl_watch_store *store;
	struct hl_watch_groups *groups;
	void (*say)(const char *sentence);
	struct kill_entry *kills[KILLS_MAX];
};

struct hl_watch_kills *hl_watch_kills_new(struct hl_watch_store *store,
					  struct hl_watch_groups *groups,
					  void (*say)(const char *sentence))
{
	struct hl_watch_kills *kills = calloc(1, sizeof(*kills));

	if (kills)
		*kills = (struct hl_watch_kills){.store = store, .groups = groups, .say = say};
	return kills;
}

static void free_kill(struct kill_entry *entry)
{
	free(entry->record);
	free(entry->death);
	free(entry->maps);
	json_decref(entry->document);
	if (entry->fd >= 0)
		close(entry->fd);
	free(entry);
}

/* ---- figures ---- */

/* The path of the level ${first} of the groups of the victim (0) or of the process that asked (1). */
static json_t *group_name(const struct hl_watch_kills *kills, const struct hl_oom_record *record,
			  unsigned which, uint32_t first)
{
	char path[HL_OOM_LEVELS * (HL_OOM_NAME + 1) + 8] = "";
	size_t length = 0;

	if (first >= record->level_counts[which])
		return json_string("");
	const struct hl_watch_group *group =
		hl_watch_groups_find(kills->groups, record->levels[which][first].inode);
	if (group)
		return hl_watch_text(hl_watch_group_name(group));
	/* The topmost one has no name, unless there are more levels than the record has. */
	for (uint32_t i = record->level_counts[which]; i-- > first;)
		if (record->levels[which][i].name[0] && record->levels[which][i].name[0] != '/')
			length += (size_t)snprintf(path + length, sizeof(path) - length, "/%.127s",
						   record->levels[which][i].name);
	return hl_watch_text(length ? path : "/");
}

static bool is_of_asker(const struct hl_oom_record *record, uint64_t inode)
{
	for (uint32_t i = 0; i < record->level_counts[1]; i++)
		if (record->levels[1][i].inode == inode)
			return true;
	return false;
}

/* Whose limit was reached, a level above both processes; level_counts[0] where it was the machine's. */
static uint32_t level_at_limit(const struct hl_oom_record *record)
{
	for (uint32_t i = 0; i < record->level_counts[0]; i++)
		if (record->levels[0][i].usage_pages + NEAR_PAGES >=
			    record->levels[0][i].max_pages &&
		    is_of_asker(record, record->levels[0][i].inode))
			return i;
	return record->level_counts[0];
}

static json_t *words_of(const struct hl_oom_record *record)
{
	json_t *words = json_array();
	char text[HL_OOM_ARGS_BYTES + 1];

	memcpy(text, record->args, sizeof(record->args));
	text[record->args_bytes] = '\0';
	for (size_t at = 0; at < record->args_bytes; at += strlen(text + at) + 1)
		json_array_append_new(words, hl_watch_text(text + at));
	return words;
}

static json_t *victim_of(const struct kill_entry *entry)
{
	const struct hl_oom_record *record = entry->record;
	const struct hl_oom_memory *memory = &record->memory;

	return json_pack("{s:i, s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:I, s:[]}", "pid",
			 (int)record->victim.pid, "comm", hl_watch_text(record->victim.comm),
			 "command", words_of(entry->death ? entry->death : record), "oom_score_adj",
			 (int)record->oom_score_adj, "anonymous_bytes",
			 (json_int_t)(memory->anonymous * PAGE_BYTES), "file_bytes",
			 (json_int_t)(memory->file * PAGE_BYTES), "shared_bytes",
			 (json_int_t)(memory->shared * PAGE_BYTES), "swap_bytes",
			 (json_int_t)(memory->swap * PAGE_BYTES), "page_table_bytes",
			 (json_int_t)memory->page_table_bytes, "stack");
}

static int64_t realtime_ms(uint64_t clock_ns)
{
	uint64_t ago_ns = hl_clock_ns(CLOCK_MONOTONIC) - clock_ns;

	return (int64_t)((hl_clock_ns(CLOCK_REALTIME) - ago_ns) / MS_PER_NS);
}

static json_t *document_of(const struct hl_watch_kills *kills, const struct kill_entry *entry)
{
	const struct hl_oom_record *record = entry->record;
	uint32_t level = level_at_limit(record);
	bool is_machine = level == record->level_counts[0];

	json_t *document =
		json_pack("{s:I, s:o, s:o, s:o, s:{s:i, s:i, s:o, s:o, s:[]}, s:[]}", "realtime_ms",
			  (json_int_t)realtime_ms(record->clock_ns), "group",
			  is_machine ? json_string("") : group_name(kills, record, 0, level),
			  "victim_group", group_name(kills, record, 0, 0), "victim",
			  victim_of(entry), "asked", "pid", (int)record->asked.pid, "tid",
			  (int)record->asked.tid, "comm", hl_watch_text(record->asked.comm),
			  "group", group_name(kills, record, 1, 0), "stack", "missing");
	if (!is_machine && document) {
		json_object_set_new(
			document, "limit_bytes",
			json_integer((json_int_t)record->levels[0][level].max_pages * PAGE_BYTES));
		json_object_set_new(document, "usage_bytes",
				    json_integer((json_int_t)record->levels[0][level].usage_pages *
						 PAGE_BYTES));
	}
	return document;
}

static void add_missing(json_t *document, const char *sentence)
{
	json_array_append_new(json_object_get(document, "missing"), hl_watch_text(sentence));
}

/* ---- stacks, in a child ---- */

/* The mappings of ${pid} that the newest snapshot has; NULL. */
static char *maps_text(const struct hl_watch_store *store, uint32_t pid)
{
	HL_FREED struct hl_watch_entry *entries = NULL;
	size_t count = 0, length;
	char path[HL_WATCH_NAME_MAX + 32], *text = NULL;

	if (hl_watch_store_list(store, &entries, &count) < 0)
		return NULL;
	for (size_t i = 0; i < count && !text; i++) {
		snprintf(path, sizeof(path), "%s/maps-%u", entries[i].name, pid);
		HL_CLOSED int fd = openat(store->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 || hl_proc_read_open(fd, &text, &length) < 0 || length)
			continue;
		free(text); /* it was ending then */
		text = NULL;
	}
	return text;
}

/* Processes in whose roots the files lie: those of the kill, as long as they live, and others of the groups. */
static size_t find_roots(const struct hl_watch_kills *kills, const struct hl_oom_record *record,
			 pid_t pids[ROOTS_MAX])
{
	size_t count = 0, found = 0, strangers;

	pids[count++] = (pid_t)record->asked.pid;
	pids[count++] = (pid_t)record->victim.pid;
	for (uint32_t i = 0; i < record->level_counts[0] && count < ROOTS_MAX; i++) {
		HL_FREED pid_t *others = NULL;
		struct hl_cgroup at;
		const struct hl_watch_group *group =
			hl_watch_groups_find(kills->groups, record->levels[0][i].inode);
		if (!group || hl_cgroup_open(group->path, &at, NULL) < 0)
			continue;
		if (hl_cgroup_processes(&at, &others, &found, &strangers) < 0)
			found = 0;
		hl_cgroup_release(&at);
		for (size_t k = 0; k < found && count < ROOTS_MAX; k++)
			pids[count++] = others[k];
	}
	return count;
}

static void set_stack(const struct hl_watch_kills *kills, const struct kill_entry *entry,
		      const struct hl_oom_record *record, const struct hl_oom_process *process,
		      const char *key)
{
	HL_FREED char *text = maps_text(kills->store, process->pid);
	bool is_victim = process->pid == entry->record->victim.pid;
	pid_t pids[ROOTS_MAX];
	size_t count = find_roots(kills, entry->record, pids);

	/* What was read of a process that was ending may be a part. */
	const char *const texts[] = {is_victim ? entry->maps : NULL, text};
	json_t *stack = hl_watch_stack_name(record, texts, pids, count);
	json_object_set_new(json_object_get(entry->document, key), "stack", stack);
}

static _Noreturn void run_child(struct hl_watch_kills *kills, const struct kill_entry *entry,
				pid_t service)
{
	const struct rlimit memory = {CHILD_BYTES, CHILD_BYTES};
	const struct rlimit processor = {CHILD_CPU_SECONDS, CHILD_CPU_SECONDS};
	HL_CLOSED int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != service)
		_exit(1);	   /* it ended before that */
	close(kills->store->lock); /* which another service may want when this one has gone */
	if (score >= 0 && write(score, "1000", 4) < 0)
		_exit(1);
	setrlimit(RLIMIT_DATA, &memory);
	setrlimit(RLIMIT_CPU, &processor);
	setpriority(PRIO_PROCESS, 0, 10);
	unsetenv("DEBUGINFOD_URLS"); /* nobody waits for a network here */
	set_stack(kills, entry, entry->record, &entry->record->asked, "asked");
	if (entry->death)
		set_stack(kills, entry, entry->death, &entry->record->victim, "victim");
	_exit(hl_watch_store_write(kills->store, entry->fd, "kill.json", entry->document) < 0);
}

/* ---- entries ---- */

static size_t child_count(const struct hl_watch_kills *kills)
{
	size_t count = 0;

	for (size_t i = 0; i < KILLS_MAX; i++)
		count += kills->kills[i] && kills->kills[i]->child > 0;
	return count;
}

static int begin_entry(struct hl_watch_kills *kills, struct kill_entry *entry)
{
	uint64_t ns =
		(uint64_t)json_integer_value(json_object_get(entry->document, "realtime_ms")) *
		MS_PER_NS;
	const char *group = json_string_value(json_object_get(entry->document, "victim_group"));

	int r = hl_watch_store_begin(kills->store, ns, HL_WATCH_KILL, group ? group : "",
				     entry->name, &entry->fd);
	if (r == 0)
		r = hl_watch_store_write(kills->store, entry->fd, "kill.json", entry->document);
	if (r < 0 && entry->fd >= 0) {
		close(entry->fd);
		entry->fd = -1;
		hl_watch_store_abandon(kills->store, entry->name);
	}
	entry->error = r;
	return r;
}

/* Gives the entry its name, and says so. */
static void finish(struct hl_watch_kills *kills, const struct kill_entry *entry, const char *who)
{
	int r = entry->fd >= 0 ? hl_watch_store_commit(kills->store, entry->name) : entry->error;
	char sentence[1024];

	snprintf(sentence, sizeof(sentence),
		 "the kernel has killed %.512s for want of memory%s%s%s", who,
		 r < 0 ? ", which cannot be kept: " : ": '", r < 0 ? strerror(-r) : entry->name,
		 r < 0 ? "" : "'");
	kills->say(sentence);
}

/* ${unnamed}: why its stacks get no names; NULL: a child names them. */
static void begin(struct hl_watch_kills *kills, struct kill_entry *entry, uint64_t now_ns,
		  const char *unnamed)
{
	pid_t service = getpid();

	entry->document = document_of(kills, entry);
	entry->begun_ns = now_ns;
	if (!entry->document)
		return;
	if (unnamed)
		add_missing(entry->document, unnamed);
	/* It may run late, when the kernel has taken its pages already (the OOM reaper), the stack among them. */
	if (!(entry->death ? entry->death : entry->record)->args_bytes)
		add_missing(entry->document, "the command line could not be read any more");
	if (begin_entry(kills, entry) < 0 || unnamed)
		return;
	entry->child = fork();
	if (entry->child == 0)
		run_child(kills, entry, service);
}

static void rewrite(struct hl_watch_kills *kills, struct kill_entry *entry, const char *missing)
{
	add_missing(entry->document, missing);
	hl_watch_store_write(kills->store, entry->fd, "kill.json", entry->document);
}

static bool has_ended(struct hl_watch_kills *kills, struct kill_entry *entry, uint64_t now_ns)
{
	int status = 0;

	if (entry->child > 0 && waitpid(entry->child, &status, WNOHANG) == 0) {
		if (now_ns - entry->begun_ns > CHILD_NS)
			kill(entry->child, SIGKILL);
		return false;
	}
	if (entry->child < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
		rewrite(kills, entry, UNNAMED);
	return true;
}

bool hl_watch_kills_continue(struct hl_watch_kills *kills, uint64_t now_ns)
{
	bool goes_on = false;
	char who[64];

	for (size_t i = 0; i < KILLS_MAX; i++) {
		struct kill_entry *entry = kills->kills[i];
		if (!entry)
			continue;
		if (!entry->document && (entry->death || entry->record->args_bytes ||
					 now_ns > entry->begun_ns + DEATH_NS))
			begin(kills, entry, now_ns,
			      child_count(kills) < CHILDREN_MAX ? NULL : TOO_MANY);
		if (!entry->document || !has_ended(kills, entry, now_ns)) {
			goes_on = true;
			continue;
		}
		snprintf(who, sizeof(who), "process %u", entry->record->victim.pid);
		finish(kills, entry, who);
		free_kill(entry);
		kills->kills[i] = NULL;
	}
	return goes_on;
}

/* ---- what happens ---- */

static struct hl_oom_record *copy(const struct hl_oom_record *record)
{
	struct hl_oom_record *own = malloc(sizeof(*own));

	return own ? memcpy(own, record, sizeof(*own)) : NULL;
}

static bool is_watched(const struct hl_watch_kills *kills, const struct hl_oom_record *record)
{
	for (uint32_t i = 0; i < record->level_counts[0]; i++)
		if (hl_watch_groups_find(kills->groups, record->levels[0][i].inode))
			return true;
	return false;
}

static struct kill_entry **find_place(struct hl_watch_kills *kills)
{
	for (size_t i = 0; i < KILLS_MAX; i++)
		if (!kills->kills[i])
			return &kills->kills[i];
	return NULL;
}

/* Without names. ${document} is released. */
static void write_at_once(struct hl_watch_kills *kills, json_t *document, const char *who)
{
	struct kill_entry entry = {.document = document, .fd = -1, .error = -ENOMEM};

	if (document)
		begin_entry(kills, &entry);
	finish(kills, &entry, who);
	json_decref(document);
	if (entry.fd >= 0)
		close(entry.fd);
}

static void take_kill(struct hl_watch_kills *kills, const struct hl_oom_record *record)
{
	struct kill_entry **place = find_place(kills), *entry;
	size_t length;
	char who[64];

	if (kills->groups->named && !is_watched(kills, record)) {
		hl_watch_groups_find_new(kills->groups);
		if (!is_watched(kills, record))
			return;
	}
	if (!place) {
		const struct kill_entry figures = {.record = copy(record)};
		json_t *document = figures.record ? document_of(kills, &figures) : NULL;
		free(figures.record);
		add_missing(document, TOO_MANY);
		snprintf(who, sizeof(who), "process %u", record->victim.pid);
		write_at_once(kills, document, who);
		return;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return;
	entry->fd = -1;
	entry->begun_ns = hl_clock_ns(CLOCK_MONOTONIC);
	entry->record = copy(record);
	if (!entry->record) {
		free_kill(entry);
		return;
	}
	/* Where it asked itself, the record has its mappings. */
	if (record->victim.pid != record->asked.pid &&
	    hl_proc_read_all((pid_t)record->victim.pid, "maps", &entry->maps, &length) == 0 &&
	    !length) {
		free(entry->maps);
		entry->maps = NULL;
	}
	*place = entry;
}

void hl_watch_kills_take(struct hl_watch_kills *kills, const struct hl_oom_record *record)
{
	if (record->kind == HL_OOM_KILL)
		take_kill(kills, record);
	for (size_t i = 0; record->kind == HL_OOM_DEATH && i < KILLS_MAX; i++) {
		struct kill_entry *entry = kills->kills[i];
		if (entry && !entry->document && !entry->death &&
		    entry->record->victim.pid == record->victim.pid)
			entry->death = copy(record);
	}
}

void hl_watch_kills_take_unseen(struct hl_watch_kills *kills, const struct hl_watch_group *group,
				uint64_t count, const char *why)
{
	const char *name = hl_watch_group_name(group);
	char who[512];

	snprintf(who, sizeof(who), "%llu process%s of '%.400s'", (unsigned long long)count,
		 count == 1 ? "" : "es", name);
	json_t *document = json_pack(
		"{s:I, s:o, s:o, s:I, s:I, s:n, s:n, s:[o]}", "realtime_ms",
		(json_int_t)(hl_clock_ns(CLOCK_REALTIME) / MS_PER_NS), "group", hl_watch_text(name),
		"victim_group", hl_watch_text(name), "limit_bytes", (json_int_t)group->worst->limit,
		"kills", (json_int_t)count, "victim", "asked", "missing", hl_watch_text(why));
	if (count > 1 && document) {
		char sentence[128];
		snprintf(sentence, sizeof(sentence),
			 "%llu processes were killed between two looks at the group",
			 (unsigned long long)count);
		add_missing(document, sentence);
	}
	write_at_once(kills, document, who);
}

void hl_watch_kills_free(struct hl_watch_kills *kills)
{
	if (!kills)
		return;
	for (size_t i = 0; i < KILLS_MAX; i++) {
		struct kill_entry *entry = kills->kills[i];
		if (!entry)
			continue;
		if (!entry->document) { /* the victim has not run yet */
			begin(kills, entry, 0, ENDED);
		} else if (entry->child > 0) {
			kill(entry->child, SIGKILL);
			waitpid(entry->child, NULL, 0);
			rewrite(kills, entry, ENDED);
		}
		if (entry->fd >= 0)
			hl_watch_store_commit(kills->store, entry->name);
		free_kill(entry);
	}
	free(kills);
}
