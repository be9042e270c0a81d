/* SPDX-License-Identifier: BSD-2-Clause */
/* Pieces of Erlang's syntax for terms; see erlang_term.h. Syntax: Erlang Reference Manual, "Data
 * Types". */
#include "view/erlang_term.h"

#include "base/compiler.h"
#include "view/heap_words.h"
#include "view/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define ATOM_LETTERS_MAX 255 /* Erlang refuses longer ones */
#define REPLACEMENT	 "\xef\xbf\xbd"

/* Words that stand for themselves, not for an atom. */
static const char *const reserved[] = {
	"after", "and",	  "andalso", "band",   "begin",	  "bnot", "bor", "bsl",	 "bsr", "bxor",
	"case",	 "catch", "cond",    "div",    "else",	  "end",  "fun", "if",	 "let", "maybe",
	"not",	 "of",	  "or",	     "orelse", "receive", "rem",  "try", "when", "xor",
};

static bool is_plain(const char *text)
{
	if (*text < 'a' || *text > 'z' || strlen(text) > ATOM_LETTERS_MAX)
		return false;
	for (const char *at = text; *at; at++)
		if (!isalnum((unsigned char)*at) && *at != '_' && *at != '@')
			return false;
	for (size_t i = 0; i < HL_COUNT_OF(reserved); i++)
		if (!strcmp(text, reserved[i]))
			return false;
	return true;
}

/* One letter within quotes. Returns how many bytes of ${text} that took. */
static int put_letter(FILE *out, const char *text)
{
	uint32_t code_point;
	int length = hl_utf8_decode(text, &code_point);

	if (!length)
		fputs(REPLACEMENT, out);
	else if (hl_utf8_is_control(code_point))
		fprintf(out, "\\x{%x}", code_point);
	else if (*text == '\'' || *text == '\\')
		fprintf(out, "\\%c", *text);
	else
		fprintf(out, "%.*s", length, text);
	return length ? length : 1;
}

void hl_erlang_put_atom(FILE *out, const char *text)
{
	if (is_plain(text)) {
		fputs(text, out);
		return;
	}
	putc('\'', out);
	for (unsigned letters = 0; *text && letters < ATOM_LETTERS_MAX; letters++)
		text += put_letter(out, text);
	putc('\'', out);
}

void hl_erlang_put_histogram(FILE *out, const struct hl_log2_shape *shape,
			     const struct hl_log2_histogram *histogram)
{
	putc('{', out);
	for (uint32_t slot = 0; slot < shape->width; slot++)
		fprintf(out, "%s%" PRIu64, slot ? "," : "", histogram->counts[slot]);
	putc('}', out);
}

void hl_erlang_put_slots(FILE *out, const char *what, const struct hl_log2_shape *shape)
{
	char label[HL_HEAP_LABEL_MAX];

	fprintf(out, "%%%% sizes of %s:", what);
	for (uint32_t slot = 0; slot < shape->width; slot++)
		fprintf(out, "%s %s", slot ? ";" : "", hl_heap_slot_label(shape, slot, label));
	putc('\n', out);
}
