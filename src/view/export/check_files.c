/* SPDX-License-Identifier: BSD-2-Clause */
/* Verdicts on limits for servers that show tests, and for pull requests; see check.h. */
#include "base/cleanup.h"
#include "view/check.h"
#include "view/check_cases.h"
#include "view/pictures/svg.h"

#include <stdlib.h>

/* "3.0 MiB, at most 1.0 MiB", and where most of it comes from. */
static void put_verdict(FILE *out, const struct hl_check_verdict *verdict)
{
	enum hl_check_kind kind = verdict->limit.kind;
	char number[HL_CHECK_FORMAT_MAX], most[HL_CHECK_FORMAT_MAX];

	hl_check_format_both(verdict, number, most);
	fprintf(out, "%s, at most %s", number, most);
	if (verdict->is_crossed && verdict->blame)
		fprintf(out, "; %s%s by %s",
			hl_check_format(kind, (uint64_t)verdict->blame_figure, number),
			verdict->limit.is_of_baseline ? " more" : "", verdict->blame);
}

/* ---- JUnit ---- */

static void put_xml(FILE *out, const char *text)
{
	hl_svg_put(out, text, SIZE_MAX);
}

/* As XML, what ${put} writes of ${of}. */
#define PUT_AS_XML(out, put, of)                                \
	do {                                                    \
		char *text_ = NULL;                             \
		size_t size_;                                   \
		FILE *memory_ = open_memstream(&text_, &size_); \
		if (memory_) {                                  \
			put(memory_, (of));                     \
			fclose(memory_);                        \
			put_xml((out), text_);                  \
		}                                               \
		free(text_);                                    \
	} while (0)

void hl_check_write_junit(const struct hl_check *check, FILE *out)
{
	const struct hl_profile *profile = check->profile;
	bool is_flawed = check->flawed != NULL;

	fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
		     "  <testsuite name=\"");
	put_xml(out, hl_profile_text(profile, profile->command));
	fprintf(out, "\" tests=\"%zu\" failures=\"%zu\" errors=\"%d\" time=\"%.3f\">\n",
		check->count + is_flawed, check->crossed, is_flawed,
		(double)profile->duration_ns / 1e9);
	if (is_flawed)
		fprintf(out,
			"    <testcase classname=\"heapline.check\" name=\"recording\">\n"
			"      <error message=\"the recording %s: figures may be too small\"/>\n"
			"    </testcase>\n",
			check->flaw);
	for (size_t i = 0; i < check->count; i++) {
		const struct hl_check_verdict *verdict = &check->verdicts[i];
		fputs("    <testcase classname=\"heapline.check\" name=\"", out);
		PUT_AS_XML(out, hl_check_put_name, &verdict->limit);
		if (!verdict->is_crossed) {
			fputs("\"/>\n", out);
			continue;
		}
		fputs("\">\n      <failure message=\"", out);
		PUT_AS_XML(out, put_verdict, verdict);
		fputs("\"/>\n    </testcase>\n", out);
	}
	fputs("  </testsuite>\n</testsuites>\n", out);
}

/* ---- Markdown ---- */

/* In a cell of a table, within a pair of backticks. */
static void put_code(FILE *out, const char *text)
{
	putc('`', out);
	for (; *text; text++)
		putc(*text == '`' || *text == '\n' ? ' ' : *text == '|' ? '/' : *text, out);
	putc('`', out);
}

void hl_check_write_markdown(const struct hl_check *check, FILE *out)
{
	const struct hl_profile *profile = check->profile;
	char number[HL_CHECK_FORMAT_MAX], most[HL_CHECK_FORMAT_MAX];

	fputs("### Memory of ", out);
	put_code(out, hl_profile_text(profile, profile->command));
	fprintf(out, ": %zu of %zu limits crossed\n\n", check->crossed, check->count);
	if (check->flawed)
		fprintf(out, "**The recording %s: figures may be too small.**\n\n", check->flaw);
	fputs("| | limit | figure | at most | most of it by |\n|---|---|---:|---:|---|\n", out);
	for (size_t i = 0; i < check->count; i++) {
		const struct hl_check_verdict *verdict = &check->verdicts[i];
		fprintf(out, "| %s | ", verdict->is_crossed ? "**crossed**" : "ok");
		hl_check_put_name(out, &verdict->limit);
		hl_check_format_both(verdict, number, most);
		fprintf(out, " | %s | %s | ", number, most);
		if (verdict->is_crossed && verdict->blame)
			put_code(out, verdict->blame);
		fputs(" |\n", out);
	}
}

/* ---- test cases ---- */

/* Each limit that was crossed, one a line. */
static void put_verdicts(FILE *out, const struct hl_check_case *one)
{
	for (size_t i = 0; i < one->verdict_count; i++) {
		fputs(i ? "; " : "", out);
		hl_check_put_name(out, &one->verdicts[i].limit);
		putc(' ', out);
		put_verdict(out, &one->verdicts[i]);
	}
}

void hl_check_cases_write_junit(const struct hl_check_cases *cases, FILE *out)
{
	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
		"  <testsuite name=\"heapline check\" tests=\"%zu\" failures=\"%zu\" "
		"errors=\"%zu\">\n",
		cases->count, cases->crossed, cases->open);
	for (size_t i = 0; i < cases->count; i++) {
		const struct hl_check_case *one = &cases->cases[i];
		fputs("    <testcase classname=\"heapline.check\" name=\"", out);
		put_xml(out, one->name);
		if (one->is_open) {
			fputs("\">\n      <error message=\"the test case did not end: its process "
			      "ended in it\"/>\n    </testcase>\n",
			      out);
		} else if (one->verdict_count) {
			fputs("\">\n      <failure message=\"", out);
			PUT_AS_XML(out, put_verdicts, one);
			fputs("\"/>\n    </testcase>\n", out);
		} else {
			fputs("\"/>\n", out);
		}
	}
	fputs("  </testsuite>\n</testsuites>\n", out);
}

#define MARKDOWN_ROWS 20u

void hl_check_cases_write_markdown(const struct hl_check_cases *cases, FILE *out)
{
	HL_FREED size_t *order = hl_check_cases_order(cases);
	char text[HL_CHECK_CASES_VERDICT_MAX], not_run[HL_CHECK_CASES_NOT_RUN_MAX],
		peak[HL_FORMAT_MAX], count[HL_FORMAT_MAX], kept[HL_FORMAT_MAX];

	fprintf(out,
		"### Memory: %s\n\n| | test case | peak | allocations | kept | limits crossed "
		"|\n|---|---|---:|---:|---:|---|\n",
		hl_check_cases_verdict(cases, text));
	/* Those that crossed a limit come first. */
	size_t left = cases->count > MARKDOWN_ROWS ? cases->count - MARKDOWN_ROWS : 0;
	size_t crossed = cases->crossed > MARKDOWN_ROWS ? cases->crossed - MARKDOWN_ROWS : 0;
	for (size_t i = 0; order && i < cases->count && i < MARKDOWN_ROWS; i++) {
		const struct hl_check_case *one = &cases->cases[order[i]];
		char *verdicts = NULL;
		size_t size;
		FILE *memory = open_memstream(&verdicts, &size);
		if (memory) {
			put_verdicts(memory, one);
			fclose(memory);
		}
		fprintf(out, "| %s | ",
			one->is_open	     ? "**did not end**"
			: one->verdict_count ? "**crossed**"
					     : "ok");
		put_code(out, one->name);
		fprintf(out, " | %s | %s | %s | ", hl_format_bytes((int64_t)one->peak_bytes, peak),
			hl_format_count((int64_t)one->allocations, count),
			hl_format_bytes((int64_t)one->kept_bytes, kept));
		if (verdicts && *verdicts)
			put_code(out, verdicts);
		fputs(" |\n", out);
		free(verdicts);
	}
	if (crossed)
		fprintf(out, "\nand %zu more, %zu of which crossed a limit\n", left, crossed);
	else if (left)
		fprintf(out, "\nand %zu more\n", left);
	if (cases->not_run_count) {
		fputs("\n", out);
		put_code(out, hl_check_cases_not_run(cases, not_run));
		fputs("\n", out);
	}
}
