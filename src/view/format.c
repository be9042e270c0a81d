/* SPDX-License-Identifier: BSD-2-Clause */
/* Formats numbers and texts for people; see format.h. */
#include "view/format.h"

#include "base/encode.h"
#include "base/text.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <wchar.h>

#define NS_PER_MS     1000000u
#define NS_PER_S      1000000000u
#define BAR_COLUMNS   16
#define WIDTH_DEFAULT 80 /* of a terminal that does not say */

static uint64_t magnitude(int64_t number)
{
	return number < 0 ? -(uint64_t)number : (uint64_t)number;
}

const char *hl_format_bytes(int64_t bytes, char buffer[HL_FORMAT_MAX])
{
	static const char units[] = "KMGTPE";
	uint64_t whole = magnitude(bytes);
	const char *sign = bytes < 0 ? "-" : "";
	double scaled = (double)whole;
	int unit = -1;

	/* What would round to 1024.0 is shown in the next unit. */
	while (scaled >= (unit < 0 ? 1024.0 : 1023.95) && units[unit + 1]) {
		scaled /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(buffer, HL_FORMAT_MAX, "%s%llu B", sign, (unsigned long long)whole);
	else
		snprintf(buffer, HL_FORMAT_MAX, "%s%.1f %ciB", sign, scaled, units[unit]);
	return buffer;
}

const char *hl_format_count(int64_t count, char buffer[HL_FORMAT_MAX])
{
	buffer[0] = '-';
	hl_grouped(buffer + (count < 0), magnitude(count));
	return buffer;
}

const char *hl_format_exact_bytes(uint64_t bytes, char buffer[HL_FORMAT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	char number[HL_GROUPED_MAX];
	size_t unit = 0;

	for (; bytes >= 1024 && bytes % 1024 == 0; bytes /= 1024)
		unit++;
	snprintf(buffer, HL_FORMAT_MAX, "%s %s", hl_grouped(number, bytes), units[unit]);
	return buffer;
}

const char *hl_format_figure(int64_t figure, bool is_bytes, char buffer[HL_FORMAT_MAX])
{
	return is_bytes ? hl_format_bytes(figure, buffer) : hl_format_count(figure, buffer);
}

const char *hl_format_percent(int64_t part, int64_t whole, char buffer[HL_FORMAT_MAX])
{
	if (whole <= 0) /* of less than nothing, there are no shares */
		return strcpy(buffer, "-");
	double percent = 100.0 * (double)part / (double)whole;
	if (percent > -0.05 && percent <= 0) /* would be "-0.0%" */
		percent = 0;
	snprintf(buffer, HL_FORMAT_MAX, "%.1f%%", percent);
	return buffer;
}

const char *hl_format_bar(uint64_t part, uint64_t whole, char buffer[HL_FORMAT_MAX])
{
	double share = whole ? (double)part / (double)whole : 0;
	size_t length = share < 1 ? (size_t)(share * BAR_COLUMNS + 0.5) : BAR_COLUMNS;

	if (part && !length)
		length = 1;
	memset(buffer, '#', length);
	memset(buffer + length, '.', BAR_COLUMNS - length);
	buffer[BAR_COLUMNS] = '\0';
	return buffer;
}

const char *hl_format_duration(uint64_t ns, char buffer[HL_FORMAT_MAX])
{
	unsigned long long seconds = ns / NS_PER_S;

	if (seconds < 1)
		snprintf(buffer, HL_FORMAT_MAX, "%llu ms", (unsigned long long)ns / NS_PER_MS);
	else if (seconds < 60)
		snprintf(buffer, HL_FORMAT_MAX, "%.2f s", (double)(ns / NS_PER_MS) / 1000);
	else if (seconds < 3600)
		snprintf(buffer, HL_FORMAT_MAX, "%llu min %llu s", seconds / 60, seconds % 60);
	else
		snprintf(buffer, HL_FORMAT_MAX, "%llu h %llu min", seconds / 3600,
			 seconds / 60 % 60);
	return buffer;
}

const char *hl_format_time(uint64_t realtime_ns, char buffer[HL_FORMAT_MAX])
{
	time_t seconds = (time_t)(realtime_ns / NS_PER_S);
	struct tm parts;

	buffer[0] = '\0';
	if (gmtime_r(&seconds, &parts))
		strftime(buffer, HL_FORMAT_MAX, "%Y-%m-%dT%H:%M:%SZ", &parts);
	return buffer;
}

size_t hl_format_control(const char *text)
{
	uint32_t code_point;

	if (!*text || (*text >= ' ' && *text <= '~')) /* most are plain ASCII */
		return 0;
	int length = hl_utf8_decode(text, &code_point);
	return length && hl_utf8_is_control(code_point) ? (size_t)length : 0;
}

size_t hl_format_put_letter(FILE *out, const char *text)
{
	size_t control = hl_format_control(text);

	for (size_t i = 0; i < control; i++)
		fprintf(out, "\\x%02x", (unsigned char)text[i]);
	if (control)
		return control;
	putc(*text, out);
	return 1;
}

static void put_until(FILE *out, const char *text, const char *end)
{
	while (text < end) {
		const char *next = text + hl_utf8_length(text);
		if (next == text)
			fprintf(out, "\\x%02x", (unsigned char)*text++);
		while (text < next)
			text += hl_format_put_letter(out, text);
	}
}

void hl_format_put(FILE *out, const char *text)
{
	put_until(out, text, text + strlen(text));
}

size_t hl_format_terminal_width(int fd)
{
	struct winsize size;

	return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : WIDTH_DEFAULT;
}

/* The letter at ${text}: its bytes, and in ${ret_columns} its width. An invalid byte counts as one
 * column. */
static size_t measure(const char *text, size_t *ret_columns)
{
	mbstate_t shift = {0};
	wchar_t letter;
	size_t bytes = strnlen(text, MB_LEN_MAX); /* more would make long texts cost their square */
	size_t length = mbrtowc(&letter, text, bytes, &shift);

	*ret_columns = 1;
	if (length == 0 || length > bytes) /* the end, or not a letter of this locale */
		return *text != '\0';
	int width = wcwidth(letter);
	if (width >= 0)
		*ret_columns = (size_t)width;
	return length;
}

/* How many bytes of ${text} fit into ${columns} and ${size} bytes. */
static size_t fitting(const char *text, size_t columns, size_t size)
{
	size_t used = 0, width = 0, columns_used = 0, length;

	while ((length = measure(text + used, &width)) && used + length <= size &&
	       columns_used + width <= columns) {
		used += length;
		columns_used += width;
	}
	return used;
}

const char *hl_format_shortened(const char *text, size_t columns, char *buffer, size_t size)
{
	static const char dots[] = "...";
	size_t limit = columns ? columns : SIZE_MAX;
	size_t length = fitting(text, limit, size - 1);

	if (!text[length] || limit < sizeof(dots)) {
		memcpy(buffer, text, length);
		buffer[length] = '\0';
		return buffer;
	}
	length = fitting(text, limit - strlen(dots), size - sizeof(dots));
	memcpy(buffer, text, length);
	memcpy(buffer + length, dots, sizeof(dots));
	return buffer;
}

void hl_format_put_wrapped(FILE *out, const char *text, size_t column, size_t indent, size_t width)
{
	while (width > column) {
		size_t length = fitting(text, width - column, SIZE_MAX);
		const char *space = text[length] ? memrchr(text, ' ', length + 1) : NULL;
		if (!space || space == text)
			break;
		put_until(out, text, space);
		fprintf(out, "\n%*s", (int)indent, "");
		text = space + 1;
		column = indent;
	}
	hl_format_put(out, text);
}

size_t hl_format_width(const char *text)
{
	size_t sum = 0, width, length;

	for (; (length = measure(text, &width)); text += length)
		sum += width;
	return sum;
}

const char *hl_format_tail(const char *text, size_t columns, char *buffer, size_t size)
{
	static const char dots[] = "...";
	size_t width = hl_format_width(text), dropped = 0, letter;

	if (width <= columns || columns < sizeof(dots)) {
		snprintf(buffer, size, "%s", text);
		return buffer;
	}
	while (width - dropped + strlen(dots) > columns) {
		text += measure(text, &letter);
		dropped += letter;
	}
	snprintf(buffer, size, "%s%s", dots, text);
	return buffer;
}

/* Whether a '<' after the ${length} bytes of ${text} begins arguments of the name before it. */
static bool begins_arguments(const char *text, size_t length)
{
	static const char operator_word[] = "operator";
	size_t word = strlen(operator_word);

	if (!length ||
	    !(isalnum((unsigned char)text[length - 1]) || strchr("_:", text[length - 1])))
		return false;
	return length < word || strncmp(text + length - word, operator_word, word) != 0;
}

/* The '>' that ends what the '<' at ${at} begins; NULL if there is none. */
static const char *end_of_arguments(const char *at)
{
	size_t depth = 0;

	for (; *at; at++) {
		if (*at == '<' || *at == '(')
			depth++;
		else if ((*at == '>' && at[-1] != '-') || *at == ')')
			depth--;
		if (!depth)
			return at;
	}
	return NULL;
}

void hl_format_templates(char *text)
{
	static const char dots[] = "...";
	char *to = text;

	for (const char *at = text; *at; at++) {
		bool begins = *at == '<' && begins_arguments(text, (size_t)(to - text));
		const char *end = begins ? end_of_arguments(at) : NULL;
		if (begins && !end) { /* cut off: looking on from each '<' would take for ever */
			to = memmove(to, at, strlen(at)) + strlen(at);
			break;
		}
		*to++ = *at;
		if (!end || (size_t)(end - at - 1) <= strlen(dots))
			continue;
		memcpy(to, dots, strlen(dots));
		to += strlen(dots);
		at = end - 1;
	}
	*to = '\0';
}
