/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline doctor: which of heapline's ways work for a process or a command, and what helps. */
#include "cli/cli.h"

#include "cli/doctor.h"
#include "cli/output.h"
#include "view/format.h"
#include "view/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_COLUMNS 60 /* of the table */
#define NAME_COLUMNS	24 /* what its other columns take at most */

struct request {
	struct hl_view_output output;
	uint64_t pid;
};

static const struct request defaults;

static const struct hl_option options[] = {
	{"pid", 'p', "PID", "the process", HL_OPTION_PID, HL_AT(pid), NULL},
	HL_OPTION_COMM_OF(HL_AT(pid)),
	{0},
};

/* ---- what is found ---- */

struct hl_doctor_way *hl_doctor_add(struct hl_doctor *doctor, const char *name,
				    enum hl_doctor_verdict verdict, const char *format, ...)
{
	struct hl_doctor_way *way = &doctor->ways[doctor->way_count++];
	va_list arguments;

	*way = (struct hl_doctor_way){.name = name, .verdict = verdict};
	va_start(arguments, format);
	vsnprintf(way->command, sizeof(way->command), format, arguments);
	va_end(arguments);
	return way;
}

void hl_doctor_add_closed(struct hl_doctor *doctor, const char *name,
			  enum hl_doctor_verdict verdict, int process)
{
	struct hl_doctor_way *way =
		hl_doctor_add(doctor, name, verdict, "heapline ctl -p %d mode mem-fast", process);

	snprintf(way->reason, sizeof(way->reason),
		 "it is being recorded in mode 'closed', which counts nothing");
}

void hl_doctor_say(struct hl_doctor *doctor, const char *about, const char *subject,
		   const char *format, ...)
{
	struct hl_doctor_fact *fact = &doctor->facts[doctor->fact_count];
	va_list arguments;

	if (doctor->fact_count == HL_DOCTOR_FACTS_MAX)
		return;
	doctor->fact_count++;
	fact->about = about;
	fact->subject = subject;
	va_start(arguments, format);
	vsnprintf(fact->text, sizeof(fact->text), format, arguments);
	va_end(arguments);
}

/* Copies the first command in quotes that is complete: for a process, or for root. */
static void take_command(const char *text, char *command, size_t size)
{
	for (const char *at = strchr(text, '\''), *end; at && (end = strchr(at + 1, '\''));
	     at = strchr(end + 1, '\'')) {
		int length = (int)(end - at - 1);
		bool is_ours =
			!strncmp(at + 1, "heapline ", 9) && memmem(at, (size_t)length, " -p ", 4);
		if (is_ours || !strncmp(at + 1, "sudo ", 5)) {
			snprintf(command, size, "%.*s", length, at + 1);
			return;
		}
	}
}

void hl_doctor_refuse(struct hl_doctor *doctor, const char *name, int code,
		      const struct hl_error *err, const char *command)
{
	struct hl_doctor_way *way = hl_doctor_add(doctor, name, HL_DOCTOR_NO, "%s", "");
	const char *text = err->text, *colon = strstr(text, ": ");

	/* Which process it is, is known. */
	if (colon && (!strncmp(text, "cannot trace process", 20) ||
		      !strncmp(text, "cannot enter process", 20) ||
		      !strncmp(text, "cannot control process", 22)))
		text = colon + 2;
	const char *remedy = strstr(text, "; ");
	int length = remedy ? (int)(remedy - text) : (int)strlen(text);

	snprintf(way->reason, sizeof(way->reason), "%.*s", length, text);
	if (remedy)
		snprintf(way->remedy, sizeof(way->remedy), "%.511s", remedy + 2);
	take_command(way->remedy, way->command, sizeof(way->command));
	if (!way->command[0] && command[0] && geteuid() != 0 && (code == -EACCES || code == -EPERM))
		snprintf(way->command, sizeof(way->command), "sudo %s", command);
}

static const struct hl_doctor_way *find_way(const struct hl_doctor *doctor, const char *name,
					    size_t length)
{
	for (size_t i = 0; i < doctor->way_count; i++)
		if (strlen(doctor->ways[i].name) == length &&
		    !strncmp(doctor->ways[i].name, name, length))
			return &doctor->ways[i];
	return NULL;
}

/* Whether each command of heapline's that ${text} names works for this target: the way of that name
 * does, or, of 'record', can be taken at the next start. */
static bool holds(const struct hl_doctor *doctor, const char *text)
{
	for (const char *at = text; (at = strstr(at, "heapline "));) {
		at += strlen("heapline ");
		size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz-");
		const struct hl_doctor_way *way = find_way(doctor, at, length);
		if (way && !way->verdict && !(way == &doctor->ways[0] && way->remedy[0]))
			return false;
	}
	return true;
}

/* Leaves out advice that does not hold. As root is another matter. */
static void check_advice(struct hl_doctor *doctor)
{
	for (size_t i = 0; i < doctor->way_count; i++) {
		struct hl_doctor_way *way = &doctor->ways[i];
		if (!holds(doctor, way->remedy))
			way->remedy[0] = '\0';
		if (!way->verdict && strcmp(way->name, "record") &&
		    strncmp(way->command, "sudo ", 5) && !holds(doctor, way->command))
			way->command[0] = '\0';
	}
}

/* ---- the report ---- */

static const char *const verdicts[] = {
	[HL_DOCTOR_NO] = "no",
	[HL_DOCTOR_PARTLY] = "partly",
	[HL_DOCTOR_YES] = "yes",
};

static void verdict_cell(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_text(emit, verdicts[((const struct hl_doctor_way *)row)->verdict]);
}

/* A long one stands below the table, whole, to be copied. */
static void command_cell(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_doctor_way *way = row;
	char shortened[COMMAND_COLUMNS + 8];

	(void)context;
	hl_cell_text(emit, hl_emit_is_json(emit)
				   ? way->command
				   : hl_format_shortened(way->command, COMMAND_COLUMNS, shortened,
							 sizeof(shortened)));
}

#define WAY(name)  HL_MEMBER_ARRAY(struct hl_doctor_way, name)
#define FACT(name) HL_MEMBER(struct hl_doctor_fact, name)

static const struct hl_column way_columns[] = {
	{"way", "way", HL_COLUMN_TEXT, HL_MEMBER(struct hl_doctor_way, name), HL_COLUMN_KEY},
	{"works", "works", HL_COLUMN_TEXT, .cell = verdict_cell},
	{"reason", NULL, HL_COLUMN_TEXT, WAY(reason)},
	{"remedy", NULL, HL_COLUMN_TEXT, WAY(remedy)},
	{"command", "command", HL_COLUMN_TEXT, .cell = command_cell, .flags = HL_COLUMN_SHORTENED},
};

static const struct hl_column fact_columns[] = {
	{"about", NULL, HL_COLUMN_TEXT, FACT(about)},
	{"subject", NULL, HL_COLUMN_TEXT, FACT(subject)},
	{"text", NULL, HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct hl_doctor_fact, text)},
};

/* The reason of a way, under the names of all that have the same one. */
static void emit_reason(struct hl_emit *emit, const struct hl_doctor *doctor, size_t index)
{
	const struct hl_doctor_way *way = &doctor->ways[index];
	char names[256] = "";
	size_t length = 0;

	for (size_t i = 0; i < doctor->way_count; i++) {
		if (strcmp(doctor->ways[i].reason, way->reason) != 0)
			continue;
		if (i < index)
			return;
		length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s",
					   length ? ", " : "", doctor->ways[i].name);
	}
	hl_emit_line(emit, "%s: %s%s%s", names, way->reason, way->remedy[0] ? "; " : "",
		     way->remedy);
}

/* Below the table, as sentences: what it has no room for. */
static void emit_sentences(struct hl_emit *emit, const struct hl_doctor *doctor)
{
	size_t width = hl_emit_width(emit);
	size_t room = width && width < COMMAND_COLUMNS + NAME_COLUMNS
			      ? (width > NAME_COLUMNS ? width - NAME_COLUMNS : 0)
			      : COMMAND_COLUMNS;

	bool parted = false;
	for (size_t i = 0; i < doctor->way_count; i++) {
		const struct hl_doctor_way *way = &doctor->ways[i];
		bool is_long = strlen(way->command) > room && !strstr(way->remedy, way->command);
		if (!parted && (way->reason[0] || is_long)) {
			hl_emit_blank(emit);
			parted = true;
		}
		if (way->reason[0])
			emit_reason(emit, doctor, i);
		if (is_long)
			hl_emit_line(emit, "%s: %s", way->name, way->command);
	}
	const char *about = "";
	for (size_t i = 0; i < doctor->fact_count; i++) {
		const struct hl_doctor_fact *fact = &doctor->facts[i];
		if (strcmp(about, fact->about) != 0) {
			hl_emit_blank(emit);
			hl_emit_line(emit, "the %s", fact->about);
			about = fact->about;
		}
		hl_emit_line(emit, "  %s: %s", fact->subject, fact->text);
	}
}

/* The first way that works and shows where memory comes from; without one, what there is. ${outside}: nothing enters the process. */
static void next_way(const struct hl_doctor *doctor, uint64_t pid, bool outside, char *command,
		     size_t size)
{
	static const struct {
		const char *way, *format;
		bool enters;
	} ways[] = {
		{"ctl", "heapline growth -p %d", false},
		{"attach", "heapline growth -p %d 10", true},
		{"stacks", "heapline stacks -p %d 10", false},
		{"pgfault", "heapline pgfault -p %d 10", false},
		{"heap", "heapline heap -p %d", false},
	};

	command[0] = '\0';
	for (size_t i = 0; i < HL_COUNT_OF(ways) && !command[0]; i++) {
		const struct hl_doctor_way *way =
			find_way(doctor, ways[i].way, strlen(ways[i].way));
		if (way && way->verdict && !(outside && ways[i].enters))
			snprintf(command, size, ways[i].format, (int)pid);
	}
}

static void emit_next(struct hl_emit *emit, const struct hl_doctor *doctor, uint64_t pid)
{
	char command[64];

	if (!pid || !hl_emit_is_json(emit))
		return; /* the table has all commands */
	next_way(doctor, pid, true, command, sizeof(command));
	hl_emit_text(emit, "next_outside", command);
	next_way(doctor, pid, false, command, sizeof(command));
	hl_emit_next(emit, command[0] ? command : NULL);
}

static int write_report(const struct hl_doctor *doctor, uint64_t pid, const char *target,
			const struct hl_emit_options *how)
{
	struct hl_emit *emit;
	int r = hl_emit_open(how, "doctor/1", &emit);

	if (r < 0)
		return r;
	hl_emit_text(emit, "target", target);
	if (pid)
		hl_emit_unsigned(emit, "pid", pid);
	hl_emit_line(emit, "which ways work for %s", target);
	hl_emit_blank(emit);
	hl_table_write(emit, &(struct hl_table){HL_TABLE("rows", way_columns)}, doctor->ways,
		       doctor->way_count, sizeof(doctor->ways[0]));
	if (hl_emit_is_json(emit))
		hl_table_write(emit, &(struct hl_table){HL_TABLE("facts", fact_columns)},
			       doctor->facts, doctor->fact_count, sizeof(doctor->facts[0]));
	else
		emit_sentences(emit, doctor);
	emit_next(emit, doctor, pid);
	return hl_emit_finish(emit);
}

/* ---- the run ---- */

/* Fills ${doctor}, and ${target} with what it is about. 0 or a negative errno with a sentence. */
static int look(struct hl_doctor *doctor, pid_t pid, char **argv, char *target, size_t size,
		struct hl_error *err)
{
	int r = 0;

	if (pid) {
		struct hl_process_facts facts;
		r = hl_process_facts_read(pid, &facts, err);
		if (r < 0)
			return r;
		snprintf(target, size, "process %d (%s)", facts.pid, facts.comm);
		r = hl_doctor_judge_process(doctor, &facts, err);
		hl_process_facts_release(&facts);
	} else if (argv[0]) {
		snprintf(target, size, "command '%s'", argv[0]);
		r = hl_doctor_judge_command(doctor, argv, err);
	} else {
		snprintf(target, size, "processes of this user");
		hl_doctor_judge_machine(doctor);
	}
	hl_doctor_look_at_machine(doctor);
	check_advice(doctor);
	return r;
}

static int run_doctor(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	static struct hl_doctor doctor; /* large */
	struct hl_report_output output;
	struct hl_error err = {0};
	char target[512];
	int works = 0;

	if (request->pid && argc > 0)
		return hl_cli_usage_error(&hl_verb_doctor,
					  "a process and a command exclude each other");
	if (request->pid == (uint64_t)getpid())
		return hl_cli_usage_error(&hl_verb_doctor, "'doctor' cannot look at itself");
	int status = hl_view_output_obey_name(&hl_verb_doctor, &request->output, NULL, false);
	if (status != HL_EXIT_DONE)
		return status;
	int r = hl_report_output_check(&request->output, NULL, 0, &err);
	if (r == 0)
		r = look(&doctor, (pid_t)request->pid, argv, target, sizeof(target), &err);
	if (r == 0)
		r = hl_report_output_open(&output, &request->output, true, &err);
	if (r == 0) {
		const struct hl_emit_options how = hl_report_output_emit(&output);
		r = hl_report_output_close(&output,
					   write_report(&doctor, request->pid, target, &how), &err);
	}
	if (r < 0)
		return hl_cli_error("%s", err.text);
	for (size_t i = 0; i < doctor.way_count; i++)
		works += doctor.ways[i].verdict != HL_DOCTOR_NO;
	return works ? HL_EXIT_DONE : HL_EXIT_FAILED;
}

const struct hl_verb hl_verb_doctor = {
	.name = "doctor",
	.group = HL_GROUP_ABOUT,
	.arguments = "[-p PID | -- COMMAND...]",
	.summary = "say what works for a process or command, and what helps",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	.stops_at_operand = true,
	HL_REQUEST(defaults),
	.run = run_doctor,
};
