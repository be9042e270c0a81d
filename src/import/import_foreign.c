/* SPDX-License-Identifier: BSD-2-Clause */
/* Recognizes files by how they begin; see importer.h. */
#include "import/importer.h"

#include "import/import_text.h"

#include <string.h>

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

const char *hl_import_foreign(const struct hl_import_input *input)
{
	if (begins_with(input, "\x28\xb5\x2f\xfd"))
		return "compressed by zstd; inflate it with 'zstd -d', or, if heaptrack wrote it, "
		       "turn it into folded text with 'heaptrack_print -f FILE -F OUT.folded'";
	if (is_heaptrack(input))
		return "heaptrack's own; 'heaptrack_print -f FILE -F OUT.folded' turns it into "
		       "folded text, which heapline reads";
	if (begins_with(input, "PERFILE2"))
		return "perf's own; 'perf script -i FILE | stackcollapse-perf.pl >OUT.folded' "
		       "turns it into folded text, which heapline reads";
	if (is_perf_script(input))
		return "the text of 'perf script'; 'stackcollapse-perf.pl FILE >OUT.folded' turns "
		       "it into folded text, which heapline reads";
	if (is_massif(input))
		return "massif's, which heapline does not read; 'ms_print FILE' shows it";
	if (is_callgrind(input))
		return "callgrind's, which heapline does not read; 'callgrind_annotate FILE' "
		       "shows it";
	return NULL;
}
