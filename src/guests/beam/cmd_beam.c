/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline beam: what the allocators of a live BEAM hold; and how 'heapline doctor' says that a node can be asked. */
#include "cli/output.h"

#include "base/text.h"
#include "cli/doctor.h"
#include "guests/beam/beam.h"
#include "guests/outside.h"
#include "guests/traits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const struct hl_verb hl_verb_beam;

#define TIMEOUT_MAX_S 3600

struct request {
	struct hl_view_output output;
	struct hl_guest_request guests[HL_GUESTS_OUTSIDE_MAX];
	struct hl_beam_settings settings; /* zero: the node chooses */
	uint64_t timeout_s;
	const char *rows; /* what row_limit is made of; NULL: it stays */
	struct hl_option_texts allocators, schedulers, per;
};

static const struct request defaults = {.timeout_s = 10, .output.row_limit = HL_EMIT_ROWS_DEFAULT};

static const struct hl_option options[] = {
	{"node", 0, "NAME@HOST", "the node, as its node() says", HL_OPTION_TEXT,
	 HL_AT(settings.node), NULL},
	{"cookie-file", 0, "FILE", "the file with the node's cookie (default: ~/.erlang.cookie)",
	 HL_OPTION_TEXT, HL_AT(settings.cookie_path), NULL},
	{"timeout", 0, "SECONDS", "how long to wait for the node (default: 10)", HL_OPTION_COUNT,
	 HL_AT(timeout_s), HL_BOUNDS(1, TIMEOUT_MAX_S)},
	{"histogram-start", 0, "BYTES",
	 "where histograms begin (default: carriers 512, allocations 128)", HL_OPTION_BYTES,
	 HL_AT(settings.histogram_start), HL_BOUNDS(1, HL_LOG2_START_MAX)},
	{"histogram-width", 0, "N", "slots of histograms (default: carriers 14, allocations 18)",
	 HL_OPTION_COUNT, HL_AT(settings.histogram_width), HL_BOUNDS(1, HL_LOG2_WIDTH_MAX)},
	{"allocator", 0, "NAME,...", "only these allocators, such as eheap_alloc", HL_OPTION_TEXTS,
	 HL_AT(allocators), NULL},
	{"scheduler", 0, "N,...", "only instances of these schedulers; 0: other threads",
	 HL_OPTION_TEXTS, HL_AT(schedulers), NULL},
	{"per", 0, "KIND,...", "allocations: a row for each process, port or mfa (OTP 27)",
	 HL_OPTION_TEXTS, HL_AT(per), NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 40, in JSON all)", HL_OPTION_TEXT,
	 HL_AT(rows), NULL},
	{0},
};

/* ---- what is asked ---- */

/* By number in the table below. */
enum question {
	QUESTION_CARRIERS,
	QUESTION_ALLOCATIONS,
};

static const struct {
	const char *name;
	int (*ask)(const struct hl_beam_settings *settings, struct hl_beam_report *report,
		   struct hl_error *err);
} questions[] = {
	[QUESTION_CARRIERS] = {"carriers", hl_beam_carriers},
	[QUESTION_ALLOCATIONS] = {"allocations", hl_beam_allocations},
};

/* Adds what one word between commas says to the settings. False when it says nothing. */
typedef bool add_word(struct hl_beam_settings *settings, const char *word);

static bool add_allocator(struct hl_beam_settings *settings, const char *word)
{
	if (!word[0] || settings->allocator_count == HL_BEAM_ALLOCATORS_MAX)
		return false;
	settings->allocators[settings->allocator_count++] = word;
	return true;
}

static bool add_scheduler(struct hl_beam_settings *settings, const char *word)
{
	uint64_t number;

	if (hl_option_parse_number(word, false, &number) < 0 || number >= HL_BEAM_SCHEDULERS_MAX ||
	    settings->scheduler_count == HL_BEAM_SCHEDULERS_MAX)
		return false;
	settings->schedulers[settings->scheduler_count++] = number;
	return true;
}

static bool add_per(struct hl_beam_settings *settings, const char *word)
{
	static const struct {
		const char *word;
		enum hl_beam_per per;
	} words[] = {
		{"process", HL_BEAM_PER_PROCESS},
		{"port", HL_BEAM_PER_PORT},
		{"mfa", HL_BEAM_PER_MFA},
	};

	for (size_t i = 0; i < HL_COUNT_OF(words); i++)
		if (!strcmp(word, words[i].word)) {
			settings->per |= words[i].per;
			return true;
		}
	return false;
}

/* Words of all that was given, which are cut apart in place: argv may be written to. */
static int parse_words(struct hl_beam_settings *settings, const char *option,
		       const struct hl_option_texts *texts, add_word *add, const char *what)
{
	if (texts->count > HL_OPTION_TEXTS_MAX)
		return hl_cli_usage_error(
			&hl_verb_beam,
			"'%s' is given more than %d times; separate its values by commas", option,
			HL_OPTION_TEXTS_MAX);
	for (size_t i = 0; i < texts->count; i++) {
		char *rest = (char *)texts->texts[i], *word;
		while ((word = strsep(&rest, ",")))
			if (!add(settings, word))
				return hl_cli_usage_error(&hl_verb_beam,
							  "bad value '%s' of option '%s': not %s",
							  word, option, what);
	}
	return HL_EXIT_DONE;
}

static int parse_settings(struct request *request)
{
	struct hl_beam_settings *settings = &request->settings;

	if (request->rows &&
	    hl_option_parse_number(request->rows, false, &request->output.row_limit) < 0)
		return hl_cli_usage_error(&hl_verb_beam,
					  "bad value '%s' of option '--rows': not a number; use "
					  "--node to name a node",
					  request->rows);
	if (!settings->node)
		return hl_cli_usage_error(&hl_verb_beam,
					  "'beam' needs a node; name it with --node");
	settings->timeout_ms = (unsigned)request->timeout_s * 1000;
	int status = parse_words(settings, "--allocator", &request->allocators, add_allocator,
				 "the name of an allocator");
	if (status == HL_EXIT_DONE)
		status = parse_words(settings, "--scheduler", &request->schedulers, add_scheduler,
				     "a scheduler's number");
	if (status == HL_EXIT_DONE)
		status = parse_words(settings, "--per", &request->per, add_per,
				     "process, port or mfa");
	if (status == HL_EXIT_DONE && settings->per & HL_BEAM_PER_MFA &&
	    settings->per != HL_BEAM_PER_MFA)
		return hl_cli_usage_error(&hl_verb_beam,
					  "'--per mfa' cannot be combined with another --per");
	return status;
}

/* ---- what is written ---- */

static int write_report(const struct request *request, const struct hl_report_output *output,
			enum question question, const struct hl_beam_report *report)
{
	const struct hl_emit_options how = hl_report_output_emit(output);
	const char *schema =
		question == QUESTION_CARRIERS ? "beam-carriers/1" : "beam-allocations/1";
	struct hl_emit *emit;

	int r = hl_emit_open(&how, schema, &emit);
	if (r < 0)
		return r;
	hl_emit_object(emit, "node");
	hl_emit_text(emit, "name", request->settings.node);
	hl_emit_text(emit, "otp_release", report->otp_release);
	hl_emit_boolean(emit, "instrument", !report->lacks_instrument);
	hl_emit_object_end(emit);
	hl_emit_object(emit, "asked");
	hl_emit_integer(emit, "connect_ns", (int64_t)report->connect_ns);
	hl_emit_integer(emit, "answer_ns", (int64_t)report->answer_ns);
	hl_emit_integer(emit, "decode_ns", (int64_t)report->decode_ns);
	hl_emit_integer(emit, "answer_bytes", (int64_t)report->answer_bytes);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "node '%s', OTP %s", request->settings.node, report->otp_release);
	if (report->lacks_instrument)
		hl_emit_warning(emit,
				"the node lacks the module 'instrument', so only sums are known; "
				"for each carrier install it there (Debian: erlang-tools up to "
				"OTP 25, erlang-runtime-tools from 26 on)");
	if (report->unproven_bounds)
		hl_emit_warning(emit,
				"OTP %s is not known, and what it says of its carriers does not "
				"prove which sizes its slots hold; the sizes below are those of "
				"OTP 27 to 29",
				report->otp_release);
	if (question == QUESTION_ALLOCATIONS && !report->allocations.count)
		hl_emit_line(emit, "no block carries a tag; start the node with '+Muatags true' to "
				   "have all tagged");
	if (report->lacks_instrument)
		hl_beam_instances_emit(emit, &report->instances);
	else if (question == QUESTION_CARRIERS)
		r = hl_carriers_emit(emit, &report->carriers, request->output.row_limit);
	else if (report->allocations.count || hl_emit_is_json(emit))
		hl_allocations_emit(emit, &report->allocations, request->output.row_limit);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

static int ask_and_write(const struct request *request, enum question question,
			 enum hl_report_form form, struct hl_beam_report *report,
			 struct hl_error *err)
{
	struct hl_report_output output;

	int r = hl_report_output_check(&request->output, NULL, 0, err);
	if (r == 0)
		r = questions[question].ask(&request->settings, report, err);
	if (report->exposed_cookie_path[0])
		hl_cli_note("others can read the cookie in '%s'; chmod 400 keeps it secret",
			    report->exposed_cookie_path);
	/* Sums are not carriers, of which alone there are terms and pictures. */
	if (r == 0 && form != HL_REPORT_TABLE && report->lacks_instrument)
		r = hl_error_set(err, -ENOSYS,
				 "cannot write the carriers of node '%s': it lacks the module "
				 "'instrument' and reports only sums, which the table and --json "
				 "show",
				 request->settings.node);
	if (r == 0)
		r = hl_report_output_open(&output, &request->output, form == HL_REPORT_TABLE, err);
	if (r < 0)
		return r;
	if (form == HL_REPORT_TABLE)
		r = write_report(request, &output, question, report);
	else if (form == HL_REPORT_SVG)
		r = hl_carriers_svg_write(output.out, &report->carriers, request->settings.node);
	else if (question == QUESTION_ALLOCATIONS)
		r = hl_erlang_term_put_allocations(output.out, &report->allocations);
	else
		hl_erlang_term_put_carriers(output.out, &report->carriers);
	return hl_report_output_close(&output, r, err);
}

static int run_beam(void *parsed, int argc, char **argv)
{
	struct request *request = parsed;
	struct hl_beam_report report = {0};
	struct hl_error err = {0};
	enum hl_report_form form;
	size_t question = 0;

	if (argc == 0)
		return hl_cli_usage_error(
			&hl_verb_beam,
			"'beam' needs to know what to ask for: carriers or allocations");
	if (argc > 1)
		return hl_cli_usage_error(&hl_verb_beam, "unexpected argument '%s'", argv[1]);
	while (question < HL_COUNT_OF(questions) && strcmp(argv[0], questions[question].name) != 0)
		question++;
	if (question == HL_COUNT_OF(questions))
		return hl_cli_usage_error(
			&hl_verb_beam,
			"'beam' cannot ask for '%s', only for carriers or allocations", argv[0]);
	int status = parse_settings(request);
	if (status == HL_EXIT_DONE)
		status = hl_report_output_choose_form(&hl_verb_beam, &request->output,
						      hl_guests_form(request->guests) != NULL, true,
						      &form);
	if (status != HL_EXIT_DONE)
		return status;
	if (form == HL_REPORT_SVG && question != QUESTION_CARRIERS)
		return hl_cli_usage_error(&hl_verb_beam, "only carriers can be drawn as a picture");
	if (request->per.count && question != QUESTION_ALLOCATIONS)
		return hl_cli_usage_error(&hl_verb_beam, "--per applies to allocations only");
	int r = ask_and_write(request, (enum question)question, form, &report, &err);
	hl_beam_report_release(&report);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_beam = {
	.name = "beam",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "carriers|allocations",
	.summary = "show what the allocators of a live Erlang or Elixir node hold",
	.options = options,
	.guest_options = HL_GUEST_OPTIONS_FORM,
	.guests_at = HL_AT(guests),
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	HL_REQUEST(defaults),
	.run = run_beam,
	.effect = HL_VERB_ENTERS,
};

/* ---- how 'heapline doctor' says that a node of Erlang can be asked ---- */

static void judge(struct hl_doctor *doctor, const struct hl_process_facts *facts)
{
	char node[HL_BEAM_NODE_MAX];

	if (!hl_beam_find_node(facts, node))
		return;
	if (!node[0]) {
		struct hl_doctor_way *way = hl_doctor_add(doctor, "beam", HL_DOCTOR_NO, "%s", "");
		snprintf(way->reason, sizeof(way->reason), "the node has no name to reach it by");
		snprintf(way->remedy, sizeof(way->remedy), "start it with -sname NAME");
		return;
	}
	struct hl_doctor_way *way = hl_doctor_add(doctor, "beam", HL_DOCTOR_PARTLY, "%s", "");
	hl_beam_put_command(node, way->command, sizeof(way->command));
	snprintf(way->reason, sizeof(way->reason), "it takes the node's cookie (--cookie-file)");
}

const struct hl_guest_tool hl_guest_tool_beam = {
	.traits = &hl_guest_traits_beam,
	.verb = &hl_verb_beam,
	.judge = judge,
};
