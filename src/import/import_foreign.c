/* SPDX-License-Identifier: BSD-2-Clause */
/* Recognizes files by how they begin; see importer.h. */
#include "import/importer.h"

#include "base/compiler.h"
#include "guests/traits.h"
#include "import/import_text.h"

#include <string.h>
#include <zstd.h>

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

/* ---- all of them ---- */

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
	{"{\"dhatFileVersion\":", "DHAT's, which heapline does not read; open it in dh_view.html "
				  "of valgrind"},
	{"JAVA PROFILE 1.0", "a dump of Java's objects, which heapline does not read; a heap "
			     "analyzer for Java (Eclipse MAT, VisualVM) shows it"},
	{"{\"snapshot\":{\"meta\":", "a snapshot of V8's objects, which heapline does not read; "
				     "Chrome's developer tools load it under Memory"},
	{"memray", "memray's, which heapline does not read; 'memray tree FILE' shows it"},
};

const char *hl_import_foreign(const struct hl_import_input *input)
{
	if (begins_with(input, "\x28\xb5\x2f\xfd"))
		return name_compressed(input);
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
	if (is_json_with(input, "speedscope.app/file-format-schema.json"))
		return "speedscope's, which heapline writes and does not read; open it at "
		       "speedscope.app";
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
