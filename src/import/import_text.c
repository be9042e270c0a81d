/* SPDX-License-Identifier: BSD-2-Clause */
/* Text files: lines, numbers, UTF-16; and other tools' files that are refused, by how they begin; see importer.h. */
#include "import/importer.h"

#include "base/compiler.h"
#include "base/encode.h"
#include "guests/traits.h"
#include "import/pprof.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* UTF-8's, which editors of other systems write */

struct hl_import_lines hl_import_text_lines(const struct hl_import_input *input)
{
	const char *text = (const char *)input->bytes;
	size_t mark = strlen(BYTE_ORDER_MARK);

	if (input->size < mark || memcmp(text, BYTE_ORDER_MARK, mark) != 0)
		mark = 0;
	return (struct hl_import_lines){.next = text + mark, .end = text + input->size};
}

bool hl_import_text_next(struct hl_import_lines *lines, struct hl_import_line *ret_line)
{
	if (lines->next == lines->end)
		return false;
	const char *text = lines->next;
	const char *newline = memchr(text, '\n', (size_t)(lines->end - text));
	const char *end = newline ? newline : lines->end;
	lines->next = newline ? newline + 1 : end;
	if (end > text && end[-1] == '\r')
		end--;
	*ret_line = (struct hl_import_line){text, hl_import_text_trim(text, end), ++lines->number};
	return true;
}

bool hl_import_text_begins(const struct hl_import_line *line, const char *mark)
{
	size_t length = strlen(mark);

	return (size_t)(line->end - line->text) >= length && !memcmp(line->text, mark, length);
}

bool hl_import_text_is_blank(char letter)
{
	return letter == ' ' || letter == '\t';
}

const char *hl_import_text_skip_blanks(const char *text, const char *end)
{
	while (text < end && hl_import_text_is_blank(*text))
		text++;
	return text;
}

const char *hl_import_text_trim(const char *text, const char *end)
{
	while (end > text && hl_import_text_is_blank(end[-1]))
		end--;
	return end;
}

int hl_import_text_number(const char *text, const char *end, int64_t *ret_number,
			  const char **ret_end)
{
	bool negative = text < end && *text == '-';
	const char *digits = text + negative, *at = digits;
	int64_t number = 0;

	for (; at < end && *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, *at - '0', &number))
			return -ERANGE;
	if (at == digits)
		return -EINVAL;
	*ret_number = negative ? -number : number;
	*ret_end = at;
	return 0;
}

int hl_import_text_hex(const char *text, const char *end, uint64_t *ret_number,
		       const char **ret_end)
{
	bool prefixed = end - text > 2 && text[0] == '0' && (text[1] | 0x20) == 'x';
	const char *digits = prefixed ? text + 2 : text, *at = digits;
	uint64_t number = 0;

	for (; at < end && hl_hex_digit(*at) >= 0; at++) {
		if (number >> 60)
			return -ERANGE;
		number = number << 4 | (uint64_t)hl_hex_digit(*at);
	}
	if (at == digits)
		return -EINVAL;
	*ret_number = number;
	*ret_end = at;
	return 0;
}

/* ---- from UTF-16 to UTF-8 (RFC 2781, RFC 3629) ---- */

#define MARK_BYTES  2
#define REPLACEMENT 0xfffdu

bool hl_import_text_is_utf16(const uint8_t *bytes, size_t size)
{
	return size >= MARK_BYTES &&
	       ((bytes[0] == 0xff && bytes[1] == 0xfe) || (bytes[0] == 0xfe && bytes[1] == 0xff));
}

static uint32_t unit_at(const uint8_t *bytes, size_t at)
{
	bool is_little = bytes[0] == 0xff;

	return (uint32_t)bytes[at + is_little] << 8 | bytes[at + !is_little];
}

static bool is_high(uint32_t unit)
{
	return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(uint32_t unit)
{
	return unit >= 0xdc00 && unit < 0xe000;
}

static uint8_t *put(uint8_t *text, uint32_t letter)
{
	if (letter < 0x80) {
		*text++ = (uint8_t)letter;
		return text;
	}
	if (letter >= 0x10000) {
		*text++ = (uint8_t)(0xf0 | letter >> 18);
		*text++ = (uint8_t)(0x80 | (letter >> 12 & 0x3f));
	} else if (letter >= 0x800) {
		*text++ = (uint8_t)(0xe0 | letter >> 12);
	} else {
		*text++ = (uint8_t)(0xc0 | letter >> 6);
		*text++ = (uint8_t)(0x80 | (letter & 0x3f));
		return text;
	}
	*text++ = (uint8_t)(0x80 | (letter >> 6 & 0x3f));
	*text++ = (uint8_t)(0x80 | (letter & 0x3f));
	return text;
}

int hl_import_text_from_utf16(const uint8_t *bytes, size_t size, uint8_t **ret_text,
			      size_t *ret_size)
{
	uint8_t *text = malloc(size / 2 * 3 + 1), *end = text; /* a unit takes 3 bytes at most */

	if (!text)
		return -ENOMEM;
	for (size_t at = MARK_BYTES; at + 1 < size; at += 2) {
		uint32_t letter = unit_at(bytes, at);
		uint32_t next = at + 3 < size ? unit_at(bytes, at + 2) : 0;
		if (is_high(letter) && is_low(next)) {
			letter = 0x10000 + ((letter - 0xd800) << 10) + (next - 0xdc00);
			at += 2;
		} else if (is_high(letter) || is_low(letter)) {
			letter = REPLACEMENT;
		}
		end = put(end, letter);
	}
	*end = '\0';
	*ret_text = text;
	*ret_size = (size_t)(end - text);
	return 0;
}

/* ---- other tools' files that are refused, by how they begin ---- */

static bool begins_with(const struct hl_import_input *input, const char *mark)
{
	size_t length = strlen(mark);

	return input->size >= length && !memcmp(input->bytes, mark, length);
}

/* "v VERSION FORMAT" and then "x EXECUTABLE" or "X COMMAND", numbers in hexadecimal. */
static bool is_heaptrack(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;
	uint64_t number;
	const char *at;

	if (!hl_import_text_next(&lines, &line) || !hl_import_text_begins(&line, "v ") ||
	    hl_import_text_hex(line.text + 2, line.end, &number, &at) < 0)
		return false;
	return hl_import_text_next(&lines, &line) &&
	       (hl_import_text_begins(&line, "x ") || hl_import_text_begins(&line, "X "));
}

static bool is_callgrind(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;

	for (int i = 0; i < 5 && hl_import_text_next(&lines, &line); i++)
		if (hl_import_text_begins(&line, "# callgrind format") ||
		    hl_import_text_begins(&line, "creator: callgrind"))
			return true;
	return false;
}

static bool is_massif(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;

	return hl_import_text_next(&lines, &line) && hl_import_text_begins(&line, "desc:") &&
	       hl_import_text_next(&lines, &line) && hl_import_text_begins(&line, "cmd:") &&
	       hl_import_text_next(&lines, &line) && hl_import_text_begins(&line, "time_unit:");
}

/* JSON that has ${word} within its first line or so. */
static bool is_json_with(const struct hl_import_input *input, const char *word)
{
	size_t looked_at = input->size < 4096 ? input->size : 4096;

	return begins_with(input, "{") && memmem(input->bytes, looked_at, word, strlen(word));
}

static bool is_core(const struct hl_import_input *input)
{
	Elf64_Ehdr header;

	if (!begins_with(input, ELFMAG) || input->size < sizeof(header))
		return false;
	memcpy(&header, input->bytes, sizeof(header));
	return header.e_type == ET_CORE;
}

/* "[003]" or "4711", and then a time, "4426.961505:". */
static bool is_processor_or_id(const char *text, const char *end)
{
	size_t digits = 0;

	if (end - text > 2 && *text == '[' && end[-1] == ']') {
		text++;
		end--;
	}
	while (text + digits < end && text[digits] >= '0' && text[digits] <= '9')
		digits++;
	return digits && text + digits == end;
}

static bool is_time(const char *text, const char *end)
{
	const char *at;
	int64_t number;

	return hl_import_text_number(text, end, &number, &at) == 0 && at < end && *at == '.' &&
	       hl_import_text_number(at + 1, end, &number, &at) == 0 && at + 1 == end && *at == ':';
}

/* "comm 4711 [000] 4426.961505: 250000 cpu-clock: ..." */
static bool is_perf_script(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;
	bool after_id = false;

	do {
		if (!hl_import_text_next(&lines, &line))
			return false;
	} while (line.text == line.end || *line.text == '#');
	for (const char *at = line.text; at < line.end;) {
		const char *word = hl_import_text_skip_blanks(at, line.end);
		for (at = word; at < line.end && !hl_import_text_is_blank(*at);)
			at++;
		if (after_id && is_time(word, at))
			return true;
		after_id = is_processor_or_id(word, at);
	}
	return false;
}

/* ---- heaptrack ---- */

#define HEAPTRACK_ADVICE                                                                       \
	"'heaptrack_print -f FILE --flamegraph-cost-type leaked -F OUT.folded' turns it into " \
	"folded "                                                                              \
	"text of what is in use at the end, in bytes, which heapline reads"

/*
 * Whether the first allocation in heaptrack's text is one of 'heaptrack --raw', "+ SIZE TRACE
 * ADDRESS"; interpreted text has "+ ALLOCATION" alone.
 */
static bool is_raw_heaptrack(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;

	while (hl_import_text_next(&lines, &line))
		if (hl_import_text_begins(&line, "+ "))
			return memchr(line.text + 2, ' ', (size_t)(line.end - line.text) - 2);
	return false;
}

/* ${input}, which zstd compressed, as far as it fits into ${head}; false where nothing does. */
static bool inflate_head(const struct hl_import_input *input, char *head, size_t head_bytes,
			 struct hl_import_input *ret_inflated)
{
	ZSTD_DStream *stream = ZSTD_createDStream();
	ZSTD_inBuffer in = {input->bytes, input->size, 0};
	ZSTD_outBuffer out = {head, head_bytes, 0};
	size_t left = 1;

	while (stream && left && !ZSTD_isError(left) && in.pos < in.size && out.pos < out.size)
		left = ZSTD_decompressStream(stream, &out, &in);
	ZSTD_freeDStream(stream);
	*ret_inflated = (struct hl_import_input){
		.name = input->name, .bytes = (const uint8_t *)head, .size = out.pos};
	return out.pos > 0;
}

static const char *name_compressed(const struct hl_import_input *input)
{
	struct hl_import_input inflated;
	char head[65536];

	if (!inflate_head(input, head, sizeof(head), &inflated) || !is_heaptrack(&inflated))
		return "compressed by zstd; inflate it with 'zstd -d'";
	if (is_raw_heaptrack(&inflated))
		return "of 'heaptrack --raw'; 'zstd -dc FILE | "
		       "/usr/lib/heaptrack/libexec/heaptrack_interpret "
		       ">OUT' (its place in Debian) interprets it, then " HEAPTRACK_ADVICE;
	return "heaptrack's own; " HEAPTRACK_ADVICE;
}

/* ---- all of these ---- */

/* Files that are known by how they begin. */
static const struct {
	const char *mark, *what;
} marks[] = {
	{"PERFILE2", "perf's own; 'perf script -i FILE | stackcollapse-perf.pl >OUT.folded' "
		     "turns it into folded text, which heapline reads"},
	{"goroutine profile:", "a list of Go's goroutines, not of memory; /debug/pprof/heap of "
			       "the same program has that"},
	{"threadcreate profile:", "a list of the threads that Go made, not of memory; "
				  "/debug/pprof/heap of the same program has that"},
	{"JAVA PROFILE 1.0", "a dump of Java's objects, which heapline does not read; a heap "
			     "analyzer for Java (Eclipse MAT, VisualVM) shows it"},
	{"{\"snapshot\":{\"meta\":", "a snapshot of V8's objects, which heapline does not read; "
				     "Chrome's developer tools load it under Memory"},
	{"memray", "memray's, which heapline does not read; 'memray tree FILE' shows it"},
	{"inuse_bytes,inuse_objects,", "the CSV of 'heapline export', which heapline writes and "
				       "does not read"},
};

/* What heapline writes for other programs, by a word that it has near its beginning. */
static const struct {
	const char *word, *what;
} written[] = {
	{"speedscope.app/file-format-schema.json",
	 "speedscope's, which heapline writes and does not read; open it at speedscope.app"},
	{"\"preprocessedProfileVersion\":", "Firefox Profiler's, which heapline writes and does "
					    "not read; open it at profiler.firefox.com"},
	{"\"dhatFileVersion\":", "DHAT's, which heapline writes and does not read; open it in "
				 "dh_view.html of valgrind"},
	{"\"schema\": \"heapline/",
	 "a report of 'heapline', as JSON, for other programs; views read "
	 "the recording that it is of"},
};

const char *hl_import_foreign(const struct hl_import_input *input)
{
	if (begins_with(input, "\x28\xb5\x2f\xfd"))
		return name_compressed(input);
	if (is_core(input))
		return "a core file, which has no recording; 'heapline heap --core FILE' reads "
		       "its heap, and so do leaks, holders, pins and carriers";
	for (size_t i = 0; i < HL_COUNT_OF(marks); i++)
		if (begins_with(input, marks[i].mark))
			return marks[i].what;
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const char *mark = hl_guest_traits[i]->foreign.mark;
		if (mark && begins_with(input, mark))
			return hl_guest_traits[i]->foreign.what;
	}
	if (is_heaptrack(input))
		return is_raw_heaptrack(input) ? "of 'heaptrack --raw'; 'heaptrack_interpret <FILE "
						 ">OUT' interprets "
						 "it, then " HEAPTRACK_ADVICE
					       : "heaptrack's own; " HEAPTRACK_ADVICE;
	if (is_perf_script(input))
		return "the text of 'perf script'; 'stackcollapse-perf.pl FILE >OUT.folded' turns "
		       "it into folded text, which heapline reads";
	for (size_t i = 0; i < HL_COUNT_OF(written); i++)
		if (is_json_with(input, written[i].word))
			return written[i].what;
	if (hl_pprof_is_perfetto(input))
		return "Perfetto's, which heapline writes and does not read; open it at "
		       "ui.perfetto.dev";
	if (is_json_with(input, "\"total_num_allocations\":") &&
	    is_json_with(input, "\"allocation_size_histogram\":"))
		return "the sums of 'memray stats --json', which have no stacks; 'memray tree' "
		       "shows those of the file that memray recorded";
	if (is_massif(input))
		return "massif's, which heapline does not read; 'ms_print FILE' shows it";
	if (is_callgrind(input))
		return "callgrind's, which heapline does not read; 'callgrind_annotate FILE' "
		       "shows it";
	return NULL;
}
