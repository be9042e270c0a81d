/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline beam: what the allocators of a live BEAM hold. */
#include "cli/options.h"
#include "cli/report_output.h"
#include "cli/view_options.h"
#include "heap/beam/beam.h"
#include "view/allocations.h"
#include "view/beam_instances.h"
#include "view/carriers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MAX_S 3600
#define NOT_GIVEN     UINT64_MAX /* the node chooses */

static const char *node, *cookie_file;
static uint64_t timeout_s = 10;
static uint64_t histogram_start = NOT_GIVEN, histogram_width = NOT_GIVEN;
static uint64_t row_limit = HL_EMIT_ROWS_DEFAULT;
static const char *rows;
static struct hl_option_texts allocators, schedulers, per;
static bool term;

static const struct hl_option options[] = {
	{"node", 0, "NAME@HOST", "the node, as its node() says", HL_OPTION_TEXT, &node, NULL},
	{"cookie-file", 0, "FILE", "the file with the node's cookie (default: ~/.erlang.cookie)",
	 HL_OPTION_TEXT, &cookie_file, NULL},
	{"timeout", 0, "SECONDS", "how long to wait for the node (default: 10)", HL_OPTION_COUNT,
	 &timeout_s, NULL},
	{"histogram-start", 0, "BYTES",
	 "where histograms begin (default: carriers 512, allocations 128)", HL_OPTION_BYTES,
	 &histogram_start, NULL},
	{"histogram-width", 0, "N", "slots of histograms (default: carriers 14, allocations 18)",
	 HL_OPTION_COUNT, &histogram_width, NULL},
	{"allocator", 0, "NAME,...", "only these allocators, such as eheap_alloc", HL_OPTION_TEXTS,
	 &allocators, NULL},
	{"scheduler", 0, "N,...", "only these schedulers' instances; 0: other threads'",
	 HL_OPTION_TEXTS, &schedulers, NULL},
	{"per", 0, "KIND,...", "allocations: a row for each process, port or mfa (OTP 27)",
	 HL_OPTION_TEXTS, &per, NULL},
	{"rows", 'n', "N", "at most N rows; 0: all (default: 40, in JSON all)", HL_OPTION_TEXT,
	 &rows, NULL},
	{"term", 0, NULL, "write a term of Erlang", HL_OPTION_FLAG, &term, NULL},
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

/* Adds what one word between commas says. False when it says nothing. */
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
	char *end;

	errno = 0;
	unsigned long number = strtoul(word, &end, 10);
	if (errno || end == word || *end || word[0] == '-' || word[0] == '+' ||
	    number >= HL_BEAM_SCHEDULERS_MAX || settings->scheduler_count == HL_BEAM_SCHEDULERS_MAX)
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
static int parse_words(const char *option, const struct hl_option_texts *texts, add_word *add,
		       const char *what, struct hl_beam_settings *settings)
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

static int parse_lists(struct hl_beam_settings *settings)
{
	int status = parse_words("--allocator", &allocators, add_allocator,
				 "the name of an allocator", settings);
	if (status == HL_EXIT_DONE)
		status = parse_words("--scheduler", &schedulers, add_scheduler,
				     "a scheduler's number", settings);
	if (status == HL_EXIT_DONE)
		status = parse_words("--per", &per, add_per, "process, port or mfa", settings);
	if (status == HL_EXIT_DONE && settings->per & HL_BEAM_PER_MFA &&
	    settings->per != HL_BEAM_PER_MFA)
		return hl_cli_usage_error(&hl_verb_beam,
					  "'--per mfa' cannot be combined with another --per");
	return status;
}

/* ${given} into *${setting}, unless it was not given. */
static int parse_number(const char *option, uint64_t given, uint64_t most, uint64_t *setting)
{
	if (given == NOT_GIVEN)
		return HL_EXIT_DONE;
	if (given == 0 || given > most)
		return hl_cli_usage_error(
			&hl_verb_beam, "bad value '%llu' of option '%s': not 1 to %llu",
			(unsigned long long)given, option, (unsigned long long)most);
	*setting = given;
	return HL_EXIT_DONE;
}

static int parse_numbers(struct hl_beam_settings *settings)
{
	uint64_t seconds = 0;

	int status = parse_number("--timeout", timeout_s, TIMEOUT_MAX_S, &seconds);
	if (status == HL_EXIT_DONE)
		status = parse_number("--histogram-start", histogram_start, HL_LOG2_START_MAX,
				      &settings->histogram_start);
	if (status == HL_EXIT_DONE)
		status = parse_number("--histogram-width", histogram_width, HL_LOG2_WIDTH_MAX,
				      &settings->histogram_width);
	if (status == HL_EXIT_DONE)
		settings->timeout_ms = (unsigned)seconds * 1000;
	return status;
}

static int parse_settings(struct hl_beam_settings *settings)
{
	if (rows && hl_option_parse_number(rows, false, &row_limit) < 0)
		return hl_cli_usage_error(&hl_verb_beam,
					  "bad value '%s' of option '--rows': not a number; use "
					  "--node to name a node",
					  rows);
	if (!node)
		return hl_cli_usage_error(&hl_verb_beam,
					  "'beam' needs a node; name it with --node");
	settings->node = node;
	settings->cookie_path = cookie_file;
	int status = parse_numbers(settings);
	return status == HL_EXIT_DONE ? parse_lists(settings) : status;
}

/* The index of the question, or -1 after a report. */
static int parse_question(int argc, char **argv)
{
	if (argc == 0) {
		hl_cli_usage_error(&hl_verb_beam, "'beam' needs to know what to ask for: carriers "
						  "or allocations");
		return -1;
	}
	if (argc > 1) {
		hl_cli_usage_error(&hl_verb_beam, "unexpected argument '%s'", argv[1]);
		return -1;
	}
	for (size_t i = 0; i < HL_COUNT_OF(questions); i++)
		if (!strcmp(argv[0], questions[i].name))
			return (int)i;
	hl_cli_usage_error(&hl_verb_beam,
			   "'beam' cannot ask for '%s', only for carriers or "
			   "allocations",
			   argv[0]);
	return -1;
}

/* ---- what is written ---- */

enum form {
	FORM_REPORT,
	FORM_TERM,
	FORM_SVG,
};

static const char *const pictures[] = {"svg", NULL};

/* HL_EXIT_DONE, or HL_EXIT_USAGE after a report. */
static int check_forms(enum question question, bool is_picture)
{
	const struct hl_view_output output = hl_view_options_parse_output();

	if (term && output.json)
		return hl_cli_usage_error(&hl_verb_beam, "--term and --json exclude each other");
	if (is_picture && (term || output.json))
		return hl_cli_usage_error(
			&hl_verb_beam,
			"'%s' is named as a picture, but --term and --json write text",
			output.path);
	if (is_picture && question != QUESTION_CARRIERS)
		return hl_cli_usage_error(&hl_verb_beam, "only carriers can be drawn as a picture");
	if (per.count && question != QUESTION_ALLOCATIONS)
		return hl_cli_usage_error(&hl_verb_beam, "--per applies to allocations only");
	return HL_EXIT_DONE;
}

/* As check_forms(). */
static int choose_form(enum question question, enum form *ret_form)
{
	const struct hl_view_command command = {.formats = pictures, .format_given = term};
	bool is_picture =
		hl_view_options_format_of(hl_view_options_parse_output().path, pictures) >= 0;

	int status = check_forms(question, is_picture);
	if (status == HL_EXIT_DONE)
		status = hl_view_options_obey_name(&hl_verb_beam, &command);
	if (status == HL_EXIT_DONE)
		*ret_form = is_picture ? FORM_SVG : term ? FORM_TERM : FORM_REPORT;
	return status;
}

static void emit_head(struct hl_emit *emit, const struct hl_beam_report *report)
{
	hl_emit_object(emit, "node");
	hl_emit_text(emit, "name", node);
	hl_emit_text(emit, "otp_release", report->otp_release);
	hl_emit_boolean(emit, "instrument", !report->lacks_instrument);
	hl_emit_object_end(emit);
	hl_emit_object(emit, "asked");
	hl_emit_integer(emit, "connect_ns", (int64_t)report->connect_ns);
	hl_emit_integer(emit, "answer_ns", (int64_t)report->answer_ns);
	hl_emit_integer(emit, "decode_ns", (int64_t)report->decode_ns);
	hl_emit_integer(emit, "answer_bytes", (int64_t)report->answer_bytes);
	hl_emit_object_end(emit);
	hl_emit_line(emit, "node '%s', OTP %s", node, report->otp_release);
}

/* Why a table has fewer figures, or none, than one may expect. */
static void emit_advice(struct hl_emit *emit, enum question question,
			const struct hl_beam_report *report)
{
	if (report->lacks_instrument)
		hl_emit_warning(emit,
				"the node lacks the module 'instrument', so only sums are known; "
				"for each carrier install it there (Debian: erlang-tools up to "
				"OTP 25, erlang-runtime-tools from 26 on)");
	if (question == QUESTION_ALLOCATIONS && !report->allocations.count)
		hl_emit_line(emit, "no block carries a tag; start the node with '+Muatags true' to "
				   "have all tagged");
}

static int emit_body(struct hl_emit *emit, enum question question,
		     const struct hl_beam_report *report)
{
	if (report->lacks_instrument)
		hl_beam_instances_emit(emit, &report->instances);
	else if (question == QUESTION_CARRIERS)
		return hl_carriers_emit(emit, &report->carriers, row_limit);
	else if (report->allocations.count || hl_emit_is_json(emit))
		hl_allocations_emit(emit, &report->allocations, row_limit);
	return 0;
}

static int write_report(const struct hl_report_output *output, enum question question,
			const struct hl_beam_report *report)
{
	const struct hl_emit_options how = hl_report_output_emit(output, row_limit);
	const char *schema =
		question == QUESTION_CARRIERS ? "beam-carriers/1" : "beam-allocations/1";
	struct hl_emit *emit;

	int r = hl_emit_open(&how, schema, &emit);
	if (r < 0)
		return r;
	emit_head(emit, report);
	emit_advice(emit, question, report);
	r = emit_body(emit, question, report);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

static int write_form(const struct hl_report_output *output, enum question question, enum form form,
		      const struct hl_beam_report *report)
{
	if (form == FORM_REPORT)
		return write_report(output, question, report);
	if (form == FORM_SVG)
		return hl_carriers_write_svg(output->out, &report->carriers, node);
	if (question == QUESTION_ALLOCATIONS)
		return hl_allocations_write_term(output->out, &report->allocations);
	hl_carriers_write_term(output->out, &report->carriers);
	return 0;
}

/* Sums are no carriers, of which alone there are terms and pictures. */
static int check_form(enum form form, const struct hl_beam_report *report, struct hl_error *err)
{
	if (form == FORM_REPORT || !report->lacks_instrument)
		return 0;
	return hl_error_set(err, -ENOSYS,
			    "cannot write the carriers of node '%s': it lacks the module "
			    "'instrument' and reports only sums, which the table and --json show",
			    node);
}

static int ask_and_write(const struct hl_beam_settings *settings, enum question question,
			 enum form form, struct hl_beam_report *report, struct hl_error *err)
{
	struct hl_report_output output;

	int r = hl_report_output_check(err);
	if (r == 0)
		r = questions[question].ask(settings, report, err);
	if (report->exposed_cookie_path[0])
		hl_cli_note("others can read the cookie in '%s'; chmod 400 keeps it secret",
			    report->exposed_cookie_path);
	if (r == 0)
		r = check_form(form, report, err);
	if (r == 0)
		r = hl_report_output_open(&output, form == FORM_REPORT, err);
	if (r < 0)
		return r;
	r = write_form(&output, question, form, report);
	return hl_report_output_close(&output, r, err);
}

static int run_beam(int argc, char **argv)
{
	static struct hl_beam_settings settings;
	struct hl_beam_report report = {0};
	struct hl_error err = {0};
	enum form form = FORM_REPORT;

	int question = parse_question(argc, argv);
	int status = question < 0 ? HL_EXIT_USAGE : parse_settings(&settings);
	if (status == HL_EXIT_DONE)
		status = choose_form((enum question)question, &form);
	if (status != HL_EXIT_DONE)
		return status;
	int r = ask_and_write(&settings, (enum question)question, form, &report, &err);
	hl_beam_report_release(&report);
	return r < 0 ? hl_cli_error("%s", err.text) : HL_EXIT_DONE;
}

const struct hl_verb hl_verb_beam = {
	.name = "beam",
	.group = HL_GROUP_ALLOCATORS,
	.arguments = "carriers|allocations",
	.summary = "show what the allocators of a live Erlang or Elixir node hold",
	.options = options,
	.shared_options = {hl_view_json_options, hl_view_color_options, hl_view_output_options},
	.run = run_beam,
};
