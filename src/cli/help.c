/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes help from the table of verbs; see cli.h. */
#include "cli/cli.h"
#include "view/format.h"

#define SUMMARY_COLUMN 15

/* By enum hl_verb_group. */
static const char *const headings[HL_GROUP_COUNT] = {
	[HL_GROUP_RECORD] = "record the allocations of a program",
	[HL_GROUP_LOOK] = "look at a recording (without a name: the newest one here)",
	[HL_GROUP_LIVE] = "watch a running process; nothing is put into it",
	[HL_GROUP_ALLOCATORS] = "see what the allocator of a running process holds",
	[HL_GROUP_FILES] = "exchange files with other tools and machines",
	[HL_GROUP_ABOUT] = "about heapline",
};

void hl_help_program(FILE *out)
{
	size_t width = hl_format_terminal_width(fileno(out));

	hl_format_put_wrapped(out, "usage: heapline VERB [OPTIONS] [ARGUMENTS]", 0, 7, width);
	fputs("\n\n", out);
	hl_format_put_wrapped(
		out, "Shows where the memory of a program went: every allocation, by call stack.",
		0, 0, width);
	fputc('\n', out);
	for (int group = 0; group < HL_GROUP_COUNT; group++) {
		fputc('\n', out);
		hl_format_put_wrapped(out, headings[group], 0, 2, width);
		fputc('\n', out);
		const struct hl_verb *verb;
		for (size_t i = 0; (verb = hl_verb_at(i)); i++) {
			if ((int)verb->group != group)
				continue;
			fprintf(out, "  %-*s", SUMMARY_COLUMN - 2, verb->name);
			hl_format_put_wrapped(out, verb->summary, SUMMARY_COLUMN, SUMMARY_COLUMN,
					      width);
			fputc('\n', out);
		}
	}
	fputc('\n', out);
	hl_format_put_wrapped(
		out, "'heapline help VERB' shows the options of a verb. Begin with:", 0, 0, width);
	fputs("\n"
	      "  heapline record -o app.hl -- COMMAND\n"
	      "  heapline top app.hl\n"
	      "or, for a running process:\n"
	      "  heapline attach -p PID -o app.hl\n"
	      "  heapline heap -p PID\n",
	      out);
}

void hl_help_verb(const struct hl_verb *verb, FILE *out)
{
	static const char usage[] = "usage: ";
	size_t width = hl_format_terminal_width(fileno(out));
	char line[512];

	snprintf(line, sizeof(line), "%sheapline %s [OPTIONS]%s%s", usage, verb->name,
		 verb->arguments[0] ? " " : "", verb->arguments);
	hl_format_put_wrapped(out, line, 0, sizeof(usage) - 1, width);
	fputs("\n\n", out);
	hl_format_put_wrapped(out, verb->summary, 0, 0, width);
	fputs("\n\noptions:\n", out);
	hl_options_help(verb, out, width);
}
