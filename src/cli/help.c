/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes help from the table of verbs; see help.h. */
#include "cli/help.h"

#include "cli/options.h"

void hl_help_program(FILE *out)
{
	fputs("usage: heapline VERB [OPTIONS] [ARGUMENTS]\n\n"
	      "Shows where the memory of a program went: every allocation, by call stack.\n\n"
	      "verbs:\n",
	      out);
	for (const struct hl_verb *const *verb = hl_verbs; *verb; verb++)
		if (!(*verb)->hidden)
			fprintf(out, "  %-12s %s\n", (*verb)->name, (*verb)->summary);
	fputs("\n'heapline help VERB' shows the options of a verb.\n"
	      "Begin with: heapline record -o app.hl -- COMMAND, then heapline top app.hl\n",
	      out);
}

void hl_help_verb(const struct hl_verb *verb, FILE *out)
{
	fprintf(out, "usage: heapline %s [OPTIONS]%s%s\n\n%s\n\noptions:\n", verb->name,
		verb->arguments[0] ? " " : "", verb->arguments, verb->summary);
	hl_options_help(verb, out);
}
