/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of lines for the program itself, as the collector gives them; see heapline.h. */
#define HL_WITHOUT_ANNOTATIONS /* those are for programs */
#include "heapline/heapline.h"

#include "base/compiler.h"
#include "recorder/start.h"
#include "recorder/sys.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

static_assert(HL_REASON_BYTES == HL_ASK_REASON_BYTES, "one size of sentences");

#define QUESTION_BYTES 64

/* "VERB 0[ NUMBER]" */
static void put_question(char *question, const char *verb, int64_t number)
{
	strcpy(question, verb);
	strcat(question, number < 0 ? " 0" : " 0 ");
	if (number >= 0)
		hl_sys_put_decimal(question + strlen(question), (uint64_t)number);
}

/* The number from ${at} to ${end}, which has nothing else. */
static bool read_number(const char *at, const char *end, int64_t *ret_number)
{
	bool negative = at < end && *at == '-';
	uint64_t number = 0;

	at += negative;
	if (at == end || end - at > 18)
		return false;
	for (; at < end; at++) {
		if (*at < '0' || *at > '9')
			return false;
		number = number * 10 + (uint64_t)(*at - '0');
	}
	*ret_number = negative ? -(int64_t)number : (int64_t)number;
	return true;
}

/* Where the last ${text} from ${begin} to ${end} stands; NULL: nowhere. */
static char *find_last(char *begin, const char *end, const char *text)
{
	size_t bytes = strlen(text);

	for (char *at = begin + (end - begin); at >= begin + bytes; at--)
		if (memcmp(at - bytes, text, bytes) == 0)
			return at - bytes;
	return NULL;
}

static size_t count_lines(const struct hl_answer *answer)
{
	size_t count = 0;

	for (size_t i = 0; i < answer->bytes; i++)
		count += answer->text[i] == '\n';
	return count;
}

/* Memory for ${count} entries of ${entry_bytes}; the kernel's, so that it is not in the figures. */
static void *map_entries(size_t count, size_t entry_bytes, size_t *ret_bytes)
{
	*ret_bytes = (count + 1) * entry_bytes;
	return hl_sys_mmap(*ret_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* Reads "PLACE line:N size:BYTES", whose place ends with a NUL then. */
static bool read_line(char *begin, char *end, struct hl_line *ret_line)
{
	static const char size_word[] = " size:", line_word[] = " line:";
	int64_t line;

	char *size = find_last(begin, end, size_word);
	char *place_end = size ? find_last(begin, size, line_word) : NULL;
	if (!place_end || !read_number(size + sizeof(size_word) - 1, end, &ret_line->bytes) ||
	    !read_number(place_end + sizeof(line_word) - 1, size, &line))
		return false;
	*place_end = '\0';
	ret_line->place = begin;
	ret_line->line = (uint32_t)line;
	return true;
}

/* Reads all lines of ${answer} but the last, which is the sum. False: there is no sum. */
static bool read_lines(struct hl_answer *answer, struct hl_line *lines,
		       struct hl_line_report *report)
{
	static const char total[] = "total size:";
	bool has_total = false;
	char *end;

	for (char *at = answer->text; (end = strchr(at, '\n')); at = end + 1) {
		has_total = strncmp(at, total, sizeof(total) - 1) == 0 &&
			    read_number(at + sizeof(total) - 1, end, &report->total_bytes);
		if (!has_total && read_line(at, end, &lines[report->count]))
			report->count++;
	}
	return has_total;
}

HL_EXPORT int hl_report_lines(int64_t ms, struct hl_line_report *report)
{
	char question[QUESTION_BYTES];
	struct hl_answer answer = {0};
	size_t bytes;

	if (!report || report->size != sizeof(*report))
		return -EINVAL;
	*report = (struct hl_line_report){.size = sizeof(*report)};
	put_question(question, "lines", ms);
	int r = hl_ask_collector(question, &answer, report->reason);
	if (r < 0)
		return r;
	struct hl_line *lines = map_entries(count_lines(&answer), sizeof(*lines), &bytes);
	report->memory[0] = answer.text;
	report->memory_bytes[0] = answer.mapped_bytes;
	report->memory[1] = lines;
	report->memory_bytes[1] = bytes;
	report->lines = lines;
	if (lines && read_lines(&answer, lines, report))
		return 0;
	hl_report_lines_free(report);
	strcpy(report->reason,
	       lines ? "the collector's report was cut off; ask again" : "out of memory");
	return lines ? -EBADMSG : -ENOMEM;
}

HL_EXPORT void hl_report_lines_free(struct hl_line_report *report)
{
	for (size_t i = 0; i < HL_COUNT_OF(report->memory); i++)
		if (report->memory[i])
			hl_sys_munmap(report->memory[i], report->memory_bytes[i]);
	*report = (struct hl_line_report){.size = sizeof(*report)};
}

/* Reads "MS,BYTES,...". The heads of columns are not numbers. */
static bool read_time(const char *at, const char *end, struct hl_time *ret_time)
{
	const char *comma = memchr(at, ',', (size_t)(end - at));

	if (!comma || !read_number(at, comma, &ret_time->ms))
		return false;
	const char *next = memchr(comma + 1, ',', (size_t)(end - comma - 1));
	return read_number(comma + 1, next ? next : end, &ret_time->bytes);
}

HL_EXPORT int hl_report_times(unsigned jobs, struct hl_time_report *report)
{
	char question[QUESTION_BYTES];
	struct hl_answer answer = {0};
	char *end;

	if (!report || report->size != sizeof(*report))
		return -EINVAL;
	*report = (struct hl_time_report){.size = sizeof(*report)};
	put_question(question, "times", jobs ? (int64_t)jobs : -1);
	int r = hl_ask_collector(question, &answer, report->reason);
	if (r < 0)
		return r;
	struct hl_time *times =
		map_entries(count_lines(&answer), sizeof(*times), &report->memory_bytes);
	for (char *at = answer.text; times && (end = strchr(at, '\n')); at = end + 1)
		if (read_time(at, end, &times[report->count]))
			report->count++;
	hl_answer_release(&answer);
	report->times = report->memory = times;
	if (times)
		return 0;
	strcpy(report->reason, "out of memory");
	return -ENOMEM;
}

HL_EXPORT void hl_report_times_free(struct hl_time_report *report)
{
	if (report->memory)
		hl_sys_munmap(report->memory, report->memory_bytes);
	*report = (struct hl_time_report){.size = sizeof(*report)};
}
