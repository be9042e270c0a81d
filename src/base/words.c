/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes words of command lines; see text.h. */
#include "base/text.h"

#include <string.h>

static bool is_control(char byte)
{
	return (unsigned char)byte < ' ' || byte == 0x7f;
}

bool hl_words_has_control(const char *word)
{
	while (*word && !is_control(*word))
		word++;
	return *word;
}

void hl_words_put(FILE *out, const char *word)
{
	/* As bash and ksh read it: nothing that a terminal would obey. */
	if (hl_words_has_control(word)) {
		fputs("$'", out);
		for (; *word; word++)
			if (*word == '\n')
				fputs("\\n", out);
			else if (is_control(*word))
				fprintf(out, "\\%03o", (unsigned char)*word);
			else
				fprintf(out, strchr("'\\", *word) ? "\\%c" : "%c", *word);
		fputc('\'', out);
		return;
	}
	if (word[0] && !word[strcspn(word, " '\"\\$`*?[]{}()<>|&;#~!")]) {
		fputs(word, out);
		return;
	}
	fputc('\'', out);
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", out);
		else
			fputc(*word, out);
	fputc('\'', out);
}
