/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads test cases and judges them; see check_cases.h. */
#include "view/check_cases.h"

#include "base/array.h"
#include "base/case_file.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "open/open.h"
#include "profile/filter.h"
#include "recording/recording.h"
#include "view/rows.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

HL_DEFINE_FREE_AT(struct hl_check_cases, hl_check_cases_free)

/* Stacks of one process that a case has figures of. */
struct part {
	size_t next; /* the case's next part, + 1; 0: none */
	uint64_t start_ns;
	uint32_t pid;
	const struct hl_recording_process *process; /* NULL: not looked for yet */
	struct hl_case_stack *stacks;		    /* NULL: of a case that is a process */
	size_t stack_count;
};

/* A process whose stacks have names. */
struct named {
	const struct hl_recording_process *process;
	struct hl_profile *profile;
	uint32_t *nodes; /* of the profile, by id */
	size_t node_count;
	struct hl_keys keys;
	uint64_t left_out_bytes;
};

struct checking {
	const struct hl_check_cases_settings *settings;
	struct hl_check_cases *cases;
	struct hl_recording *recording; /* NULL: not opened yet */
	struct part *parts;
	size_t part_count, part_capacity;
	struct named *named;
	size_t named_count, named_capacity;
	json_t *baseline;
	struct hl_error *err;
};

static int out_of_memory(const struct checking *checking)
{
	return hl_error_set(checking->err, -ENOMEM, "out of memory");
}

static struct hl_check_case *add_case(struct checking *checking, const char *name, size_t length)
{
	struct hl_check_cases *cases = checking->cases;
	char *copy = strndup(name, length);

	if (!copy || HL_ARRAY_APPEND(cases->cases, cases->count, cases->capacity,
				     (struct hl_check_case){.name = copy}) < 0) {
		free(copy);
		return NULL;
	}
	return &cases->cases[cases->count - 1];
}

static struct part *add_part(struct checking *checking, struct hl_check_case *to)
{
	if (HL_ARRAY_APPEND(checking->parts, checking->part_count, checking->part_capacity,
			    (struct part){.next = to->part}) < 0)
		return NULL;
	to->part = checking->part_count;
	return &checking->parts[checking->part_count - 1];
}

/* ---- files of cases ---- */

static bool is_record(const struct hl_case_record *record, size_t rest)
{
	return record->magic == HL_CASE_MAGIC && record->bytes <= rest &&
	       record->stack_count <= HL_CASE_STACKS_MAX && record->bytes % 8 == 0 &&
	       record->name_bytes <= 4096 &&
	       record->bytes >= sizeof(*record) +
					record->stack_count * sizeof(struct hl_case_stack) +
					record->name_bytes;
}

/* The case of the same process that has begun last and is open. */
static struct hl_check_case *open_case(const struct checking *checking,
				       const struct hl_case_record *record)
{
	for (size_t i = checking->cases->count; i-- > 0;) {
		struct hl_check_case *one = &checking->cases->cases[i];
		const struct part *part = &checking->parts[one->part - 1];
		if (part->pid == record->pid && part->start_ns == record->process_start_ns)
			return one->is_open ? one : NULL;
	}
	return NULL;
}

static int add_record(struct checking *checking, const struct hl_case_record *record)
{
	const char *after = (const char *)(record + 1);
	size_t bytes = record->stack_count * sizeof(struct hl_case_stack);
	struct hl_check_case *one;

	if (record->kind == HL_CASE_BEGINS) {
		one = add_case(checking, after + bytes, record->name_bytes);
		struct part *part = one ? add_part(checking, one) : NULL;
		if (!part)
			return out_of_memory(checking);
		part->start_ns = record->process_start_ns;
		part->pid = one->pid = record->pid;
		one->is_open = true;
		one->time_ns = record->time_ns;
		return 0;
	}
	one = open_case(checking, record);
	if (!one)
		return 0;
	if (record->kind == HL_CASE_DROPPED) {
		one->is_open = false;
		one->is_dropped = true;
		return 0;
	}
	struct part *part = &checking->parts[one->part - 1];
	part->stacks = malloc(bytes + 1);
	if (!part->stacks)
		return out_of_memory(checking);
	memcpy(part->stacks, after, bytes);
	part->stack_count = record->stack_count;
	one->is_open = false;
	one->peak_bytes = record->peak_bytes;
	one->allocations = record->allocations;
	one->allocated_bytes = record->allocated_bytes;
	one->kept_blocks = record->kept_blocks;
	one->kept_bytes = record->kept_bytes;
	one->lost = record->lost;
	return 0;
}

/* What a process wrote, one window after another. */
static int read_file(struct checking *checking, int directory, const char *name)
{
	HL_CLOSED int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	HL_FREED char *window = malloc(HL_CASE_WINDOW);
	ssize_t size = 0;
	int r = 0;

	if (!window)
		return out_of_memory(checking);
	while (r == 0 && fd >= 0 && (size = read(fd, window, HL_CASE_WINDOW)) > 0) {
		for (size_t at = 0; r == 0 && at + sizeof(struct hl_case_record) <= (size_t)size;) {
			const struct hl_case_record *record = (const void *)(window + at);
			if (!is_record(record, (size_t)size - at))
				break;
			r = add_record(checking, record);
			at += record->bytes;
		}
	}
	return r < 0 ? r
	       : fd < 0 || size < 0
		       ? hl_error_set(checking->err, -errno, "cannot read test cases from '%s': %s",
				      name, strerror(errno))
		       : 0;
}

static int compare_times(const void *left, const void *right)
{
	const struct hl_check_case *a = left, *b = right;

	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static int read_files(struct checking *checking)
{
	const char *path = checking->settings->directory;
	DIR *directory = opendir(path);
	const struct dirent *entry;
	int r = 0;

	if (!directory)
		return hl_error_set(checking->err, -errno, "cannot read '%s': %s", path,
				    strerror(errno));
	while (r == 0 && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			r = read_file(checking, dirfd(directory), entry->d_name);
	closedir(directory);
	if (r == 0 && checking->cases->count)
		qsort(checking->cases->cases, checking->cases->count,
		      sizeof(*checking->cases->cases), compare_times);
	return r;
}

/* Forgets those that were dropped. */
static void leave_dropped(struct hl_check_cases *cases)
{
	size_t left = 0;

	for (size_t i = 0; i < cases->count; i++)
		if (cases->cases[i].is_dropped)
			free(cases->cases[i].name);
		else
			cases->cases[left++] = cases->cases[i];
	cases->count = left;
}

/* ---- the recording's processes ---- */

static int open_recording(struct checking *checking)
{
	return checking->recording ? 0
				   : hl_recording_open(checking->settings->path,
						       &checking->recording, checking->err);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* The process that noted the case of ${part}: of those with its number the one that began when it did. */
static const struct hl_recording_process *process_of(const struct checking *checking,
						     const struct part *part)
{
	const struct hl_recording_process *found = part->process;

	for (uint32_t i = 0; !part->process && i < checking->recording->process_count; i++) {
		const struct hl_recording_process *other = &checking->recording->processes[i];
		if (other->pid == part->pid &&
		    (!found || distance(other->start_realtime_ns, part->start_ns) <
				       distance(found->start_realtime_ns, part->start_ns)))
			found = other;
	}
	return found;
}

/* Whether a process ran ${command}, itself or by an interpreter. */
static bool runs(char *const *words, char *const *command)
{
	for (size_t skipped = 0; skipped < 3 && words && words[0]; skipped++, words++) {
		size_t at = 0;
		while (words[at] && command[at] && !strcmp(words[at], command[at]))
			at++;
		if (!words[at] && !command[at])
			return true;
	}
	return false;
}

/* What the runner calls it; all names, where several tests have the command; else the command. To be freed. */
static char *name_of(const struct checking *checking, const struct hl_recording_process *process,
		     bool *ret_is_test)
{
	const struct hl_check_cases_settings *settings = checking->settings;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; i < settings->test_count; i++)
		if (runs(process->command, settings->tests[i].command))
			fprintf(out, "%s%s", ftell(out) ? " | " : "", settings->tests[i].name);
	*ret_is_test = ftell(out) > 0;
	if (!ftell(out))
		for (char **word = process->command; word && *word; word++)
			fprintf(out, "%s%s", word == process->command ? "" : " ", *word);
	if (!ftell(out))
		fprintf(out, "process %u", process->pid);
	fclose(out);
	return text;
}

/* The case of ${process}: of its own number, where that went on as another program, else its parent's. */
static size_t case_of(const struct checking *checking, const size_t *case_of_process,
		      uint32_t index)
{
	const struct hl_recording *recording = checking->recording;
	const struct hl_recording_process *process = &recording->processes[index];

	for (uint32_t i = index; i-- > 0;) {
		const struct hl_recording_process *other = &recording->processes[i];
		if (other->pid != process->pid)
			continue;
		if (other->end == HL_END_EXEC)
			return case_of_process[i];
		break; /* the number is used again */
	}
	for (uint32_t i = index; i-- > 0;)
		if (recording->processes[i].pid == process->parent_pid)
			return case_of_process[i];
	return 0;
}

static void add_process(struct hl_check_case *one, const struct hl_recording_process *process)
{
	int64_t blocks = 0, bytes = 0, peak = 0;

	for (uint32_t i = 0; i < process->value_count; i++) {
		const struct hl_recording_value *value = &process->values[i];
		one->allocations += value->alloc_objects;
		one->allocated_bytes += value->alloc_bytes;
		blocks += (int64_t)(value->alloc_objects - value->free_objects);
		bytes += (int64_t)(value->alloc_bytes - value->free_bytes);
		peak += value->peak_bytes;
	}
	one->kept_blocks += blocks > 0 ? (uint64_t)blocks : 0;
	one->kept_bytes += bytes > 0 ? (uint64_t)bytes : 0;
	one->peak_bytes += peak > 0 ? (uint64_t)peak : 0;
	one->lost += process->lost.events;
}

/* Each process that the command itself started is a case; where the program noted cases, those that are tests by name and noted none. */
static int add_processes(struct checking *checking)
{
	size_t noted = checking->part_count;
	bool found = noted > 0;
	int r = open_recording(checking);

	if (r < 0)
		return r;
	const struct hl_recording *recording = checking->recording;
	HL_FREED size_t *of = calloc(recording->process_count + (size_t)1, sizeof(*of));

	if (!of)
		return out_of_memory(checking);
	for (uint32_t i = 1; i < recording->process_count; i++) {
		const struct hl_recording_process *process = &recording->processes[i];
		/* What goes on in the command's own process is the command. */
		if (process->pid == recording->processes[0].pid)
			continue;
		of[i] = case_of(checking, of, i);
		if (!of[i] && process->parent_pid == recording->processes[0].pid) {
			struct hl_check_case *one = add_case(checking, "", 0);
			if (!one)
				return out_of_memory(checking);
			one->is_process = one->is_dropped = true;
			one->pid = process->pid;
			of[i] = checking->cases->count;
		}
		if (!of[i])
			continue;
		struct hl_check_case *one = &checking->cases->cases[of[i] - 1];
		struct part *part = add_part(checking, one);
		bool is_test = false;
		HL_FREED char *name = part ? name_of(checking, process, &is_test) : NULL;
		if (!name)
			return out_of_memory(checking);
		part->process = process;
		/* A forked child of the runner has its command until it runs the test. */
		if (process->pid == one->pid) {
			free(one->name);
			one->name = HL_TAKE(name);
			one->is_dropped = !is_test;
			found |= is_test;
		}
		add_process(one, process);
	}
	for (size_t i = 0; i < noted; i++) {
		const struct hl_recording_process *process =
			process_of(checking, &checking->parts[i]);
		size_t its_case = process ? of[process - recording->processes] : 0;
		if (its_case)
			checking->cases->cases[its_case - 1].is_dropped = true;
	}
	/* Runners start other programs, too, such as ninja. */
	if (found)
		leave_dropped(checking->cases);
	return 0;
}

/* ---- names of stacks ---- */

static void named_release(struct named *named)
{
	hl_keys_release(&named->keys);
	hl_profile_free(named->profile);
	free(named->nodes);
}

static int name_process(struct checking *checking, const struct hl_recording_process *process,
			struct named **ret_named)
{
	struct named named = {.process = process};
	const struct hl_profile_selection selection = {.pid = process->pid,
						       .by_sequence = true,
						       .sequence = process->sequence,
						       .ret_nodes = &named.nodes,
						       .ret_node_count = &named.node_count};
	const struct hl_filter filter = {.fold_plumbing = true};
	struct hl_check_left_out left_out[HL_CHECK_LEFT_OUT_MAX] = {0};

	for (size_t i = 0; i < checking->named_count; i++)
		if (checking->named[i].process == process) {
			*ret_named = &checking->named[i];
			return 0;
		}
	int r = hl_open_profile(checking->settings->path, &selection, &named.profile,
				checking->err);
	if (r < 0)
		return r;
	hl_check_leave_out(named.profile, left_out);
	for (const struct hl_check_left_out *part = left_out; part->what; part++)
		named.left_out_bytes += part->bytes;
	const struct hl_node_ids follow = {named.nodes, named.node_count};
	r = hl_filter_apply(&filter, named.profile, &follow, checking->err);
	if (r == 0 && (hl_keys_init(&named.keys, named.profile, HL_VIEW_BY_STACK, HL_VALUE_ALLOC,
				    HL_UNIT_OBJECTS, true) < 0 ||
		       HL_ARRAY_APPEND(checking->named, checking->named_count,
				       checking->named_capacity, named) < 0))
		r = out_of_memory(checking);
	if (r < 0) {
		named_release(&named);
		return r;
	}
	*ret_named = &checking->named[checking->named_count - 1];
	return 0;
}

static int64_t figure_of_stack(enum hl_check_kind kind, const struct hl_case_stack *stack)
{
	return (int64_t)(kind == HL_CHECK_PEAK	   ? stack->peak_bytes
			 : kind == HL_CHECK_ALLOCS ? stack->allocations
						   : stack->kept_bytes);
}

static int64_t figure_of_node(enum hl_check_kind kind, const struct hl_profile_counters *counters)
{
	return kind == HL_CHECK_PEAK	 ? counters->peak_bytes
	       : kind == HL_CHECK_ALLOCS ? counters->alloc_objects
					 : counters->alloc_bytes - counters->free_bytes;
}

/* Adds the stacks of ${part} up in ${sums}, by key. */
static void sum_stacks(const struct part *part, const struct named *named, enum hl_check_kind kind,
		       int64_t *sums)
{
	const struct hl_profile *profile = named->profile;

	for (size_t i = 0; part->stacks && i < part->stack_count; i++) {
		uint32_t id = part->stacks[i].node;
		if (id < named->node_count && named->nodes[id] < profile->node_count)
			sums[hl_keys_of_node(&named->keys, profile, named->nodes[id])] +=
				figure_of_stack(kind, &part->stacks[i]);
	}
	for (uint32_t i = 0; !part->stacks && i < profile->node_count; i++)
		sums[hl_keys_of_node(&named->keys, profile, i)] +=
			figure_of_node(kind, &profile->counters[i]);
}

/* The heaviest node of ${part} among those of ${key}; 0: none. */
static uint32_t heaviest_node(const struct named *named, const struct part *part,
			      enum hl_check_kind kind, uint32_t key)
{
	const struct hl_profile *profile = named->profile;
	size_t count = part->stacks ? part->stack_count : profile->node_count;
	int64_t most = 0;
	uint32_t found = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t id = part->stacks ? part->stacks[i].node : 0;
		if (part->stacks && id >= named->node_count)
			continue;
		uint32_t node = part->stacks ? named->nodes[id] : (uint32_t)i;
		if (node >= profile->node_count ||
		    hl_keys_of_node(&named->keys, profile, node) != key)
			continue;
		int64_t figure = part->stacks ? figure_of_stack(kind, &part->stacks[i])
					      : figure_of_node(kind, &profile->counters[node]);
		if (figure > most) {
			most = figure;
			found = node;
		}
	}
	return found;
}

/* "parse (json.c:7) < main": ${stack} with the line of its leaf, where that is known. To be freed. */
static char *put_place(const char *stack, const struct named *named, const struct part *part,
		       enum hl_check_kind kind, uint32_t key)
{
	const struct hl_profile *profile = named->profile;
	uint32_t node = heaviest_node(named, part, kind, key);
	const struct hl_profile_frame *frame =
		node ? &profile->frames[profile->nodes[node].frame] : NULL;
	const char *rest = strstr(stack, " < ");
	char *line = NULL;

	if (!frame || !frame->line)
		return strdup(stack);
	rest = rest ? rest : stack + strlen(stack);
	return asprintf(&line, "%.*s (%s:%u)%s", (int)(rest - stack), stack,
			hl_path_basename(hl_profile_text(profile, frame->file)), frame->line,
			rest) < 0
		       ? NULL
		       : line;
}

/* Blames the stack of ${part} that has most of the figure, if it has more than ${verdict} blames. */
static int blame_part(struct checking *checking, struct part *part,
		      struct hl_check_verdict *verdict, uint64_t *left_out_bytes)
{
	HL_CLEANUP(hl_stack_path_release) struct hl_stack_path path = {0};
	struct named *named;
	uint32_t heaviest = 0;

	part->process = process_of(checking, part);
	if (!part->process) { /* as in a namespace of processes: its stacks have no names */
		for (size_t i = 0; i < part->stack_count; i++) {
			int64_t figure = figure_of_stack(verdict->limit.kind, &part->stacks[i]);
			if (figure > verdict->blame_figure)
				verdict->blame_figure = figure;
		}
		return 0;
	}
	int r = name_process(checking, part->process, &named);
	if (r < 0)
		return r;
	HL_FREED int64_t *sums = calloc(named->keys.count + 1, sizeof(*sums));
	if (!sums)
		return out_of_memory(checking);
	sum_stacks(part, named, verdict->limit.kind, sums);
	if (!part->stacks)
		*left_out_bytes += named->left_out_bytes;
	for (uint32_t key = 1; key < named->keys.count; key++)
		if (sums[key] > sums[heaviest])
			heaviest = key;
	if (sums[heaviest] <= verdict->blame_figure)
		return 0;
	r = hl_stack_path_init(&path, named->profile, &named->keys.tree);
	HL_FREED char *stack = r == 0 ? hl_stack_path_line(&path, heaviest) : NULL;
	char *line = stack ? put_place(stack, named, part, verdict->limit.kind, heaviest) : NULL;
	if (!line)
		return out_of_memory(checking);
	free(verdict->blame);
	verdict->blame = line;
	verdict->blame_figure = sums[heaviest];
	return 0;
}

/* ---- judging ---- */

static uint64_t figure_of(const struct hl_check_case *one, enum hl_check_kind kind)
{
	return kind == HL_CHECK_PEAK	 ? one->peak_bytes
	       : kind == HL_CHECK_ALLOCS ? one->allocations
					 : one->kept_bytes;
}

static const char *const members[HL_CHECK_COUNT] = {
	[HL_CHECK_PEAK] = "peak_bytes",
	[HL_CHECK_INUSE] = "kept_bytes",
	[HL_CHECK_ALLOCS] = "allocations",
};

/* What the baseline has of the case; -1: nothing. */
static int64_t before(const struct checking *checking, const struct hl_check_case *one,
		      enum hl_check_kind kind)
{
	const json_t *row = json_object_get(checking->baseline, one->name);

	return row ? json_integer_value(json_object_get(row, members[kind])) : -1;
}

static int judge_limit(struct checking *checking, struct hl_check_case *one,
		       const struct hl_check_limit *limit)
{
	struct hl_check_verdict verdict = {.limit = *limit, .figure = figure_of(one, limit->kind)};
	uint64_t left_out_bytes = 0;
	int64_t was = limit->is_of_baseline ? before(checking, one, limit->kind) : 0;
	int r = 0;

	if (was < 0)
		return 0;
	if (limit->is_of_baseline)
		verdict.limit.most = (uint64_t)llround(
			(double)was * (1 + checking->settings->allow_percent / 100));
	if (verdict.figure <= verdict.limit.most)
		return 0;
	r = open_recording(checking);
	for (size_t at = one->part; r == 0 && at; at = checking->parts[at - 1].next)
		r = blame_part(checking, &checking->parts[at - 1], &verdict, &left_out_bytes);
	bool is_kept = limit->kind == HL_CHECK_INUSE || limit->kind == HL_CHECK_PER_STACK;
	if (limit->kind == HL_CHECK_PER_STACK)
		verdict.figure = (uint64_t)verdict.blame_figure;
	else if (is_kept && !limit->is_of_baseline)
		verdict.figure -= left_out_bytes < verdict.figure ? left_out_bytes : verdict.figure;
	verdict.is_crossed = verdict.figure > verdict.limit.most;
	if (r < 0 || !verdict.is_crossed) {
		free(verdict.blame);
		return r;
	}
	one->verdicts[one->verdict_count++] = verdict;
	return 0;
}

static int count_refused(struct checking *checking)
{
	int r = open_recording(checking);

	for (char *const *warning = r == 0 ? checking->recording->warnings : NULL;
	     r == 0 && warning && *warning; warning++) {
		if (!strstr(*warning, HL_CASES_REFUSED))
			continue;
		free(checking->cases->refused);
		checking->cases->refused = strdup(*warning);
		checking->cases->refused_count++;
	}
	return r;
}

/* What the baseline has besides the cases that ran. */
static int keep_not_run(struct checking *checking)
{
	struct hl_check_cases *cases = checking->cases;
	const char *name;
	json_t *row;

	for (size_t i = 0; i < cases->count; i++)
		json_object_del(checking->baseline, cases->cases[i].name);
	cases->not_run = calloc(json_object_size(checking->baseline) + 1, sizeof(*cases->not_run));
	if (!cases->not_run)
		return out_of_memory(checking);
	json_object_foreach(checking->baseline, name, row) {
		char *copy = strdup(name);
		if (!copy)
			return out_of_memory(checking);
		cases->not_run[cases->not_run_count++] = copy;
	}
	return 0;
}

static int judge_all(struct checking *checking)
{
	const struct hl_check_cases_settings *settings = checking->settings;
	struct hl_check_cases *cases = checking->cases;
	int r = 0;

	for (size_t i = 0; r == 0 && i < cases->count; i++) {
		struct hl_check_case *one = &cases->cases[i];
		cases->open += one->is_open;
		cases->inexact += !one->is_process && one->lost > 0;
		if (one->is_open)
			continue;
		cases->unknown +=
			checking->baseline && !json_object_get(checking->baseline, one->name);
		one->verdicts = calloc(settings->limit_count + 1, sizeof(*one->verdicts));
		if (!one->verdicts)
			return out_of_memory(checking);
		for (size_t limit = 0; r == 0 && limit < settings->limit_count; limit++)
			r = judge_limit(checking, one, &settings->limits[limit]);
		cases->crossed += one->verdict_count > 0;
	}
	return r;
}

static int load_baseline(const char *path, json_t **ret_report, struct hl_error *err)
{
	json_error_t error = {0};
	json_t *report = json_load_file(path, 0, &error);
	const char *schema = json_string_value(json_object_get(report, "schema"));

	if (!schema || strcmp(schema, "heapline/check-cases/1") != 0) {
		int r = hl_error_set(err, -EBADMSG,
				     "cannot read the baseline '%s': %s; write it with "
				     "'--save-baseline'",
				     path, report ? "it is not one of test cases" : error.text);
		json_decref(report);
		return r;
	}
	*ret_report = report;
	return 0;
}

int hl_check_cases_try_baseline(const char *path, struct hl_error *err)
{
	json_t *report = NULL;
	int r = load_baseline(path, &report, err);

	json_decref(report);
	return r;
}

/* Its rows, by name. */
static int read_baseline(struct checking *checking)
{
	const char *path = checking->settings->baseline_path, *key;
	json_t *report, *row;
	size_t index;

	if (!path)
		return 0;
	int r = load_baseline(path, &report, checking->err);
	if (r < 0)
		return r;
	checking->baseline = json_object();
	json_array_foreach(json_object_get(report, "rows"), index, row) {
		key = json_string_value(json_object_get(row, "name"));
		if (key && !json_is_true(json_object_get(row, "unfinished")) &&
		    !json_object_get(checking->baseline, key))
			json_object_set(checking->baseline, key, row);
	}
	json_decref(report);
	checking->cases->has_baseline = true;
	return 0;
}

static void release(struct checking *checking)
{
	for (size_t i = 0; i < checking->part_count; i++)
		free(checking->parts[i].stacks);
	free(checking->parts);
	for (size_t i = 0; i < checking->named_count; i++)
		named_release(&checking->named[i]);
	free(checking->named);
	json_decref(checking->baseline);
	hl_recording_free(checking->recording);
}

int hl_check_cases_run(const struct hl_check_cases_settings *settings,
		       struct hl_check_cases **ret_cases, struct hl_error *err)
{
	HL_CLEANUP(hl_check_cases_free_at) struct hl_check_cases *cases = calloc(1, sizeof(*cases));
	struct checking checking = {.settings = settings, .cases = cases, .err = err};

	if (!cases)
		return out_of_memory(&checking);
	int r = read_baseline(&checking);
	if (r == 0)
		r = read_files(&checking);
	cases->was_named = cases->count > 0;
	leave_dropped(cases);
	if (r == 0 && settings->has_processes && (!cases->was_named || settings->test_count))
		r = add_processes(&checking);
	if (r == 0)
		r = count_refused(&checking);
	if (r == 0 && !cases->count && !cases->was_named && !cases->refused_count)
		r = hl_error_set(
			err, -ENODATA,
			"no test case was seen: %s; use the plugin for pytest, the header for "
			"GoogleTest and Catch2, or %s a runner that starts a process for each "
			"test; see 'man heapline-check'",
			settings->has_processes ? "the program started no process"
						: "the program noted none",
			settings->has_processes ? "run" : "'--per-process' with");
	if (r == 0)
		r = judge_all(&checking);
	if (r == 0)
		r = keep_not_run(&checking);
	release(&checking);
	if (r == 0)
		*ret_cases = HL_TAKE(cases);
	return r;
}

void hl_check_cases_free(struct hl_check_cases *cases)
{
	if (!cases)
		return;
	for (size_t i = 0; i < cases->count; i++) {
		struct hl_check_case *one = &cases->cases[i];
		for (size_t at = 0; at < one->verdict_count; at++)
			free(one->verdicts[at].blame);
		free(one->verdicts);
		free(one->name);
	}
	for (size_t i = 0; i < cases->not_run_count; i++)
		free(cases->not_run[i]);
	free(cases->not_run);
	free(cases->refused);
	free(cases->cases);
	free(cases);
}
