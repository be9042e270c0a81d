/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes untrusted text into XML (Extensible Markup Language 1.0, section 2.2); see xml.h. */
#include "view/xml.h"

#include "view/utf8.h"

#include <stdbool.h>

#define REPLACEMENT	0xfffdu
#define CONTROL_PICTURE 0x2400u
#define DELETE_PICTURE	0x2421u
#define ELLIPSIS	"\xe2\x80\xa6"

struct character {
	uint32_t code_point; /* as it is to be shown */
	size_t length;	     /* bytes of the text that it takes, at least 1 */
	bool is_replaced;
};

static uint32_t shown_as(uint32_t code_point)
{
	if (code_point < 0x20)
		return CONTROL_PICTURE + code_point;
	if (code_point == 0x7f)
		return DELETE_PICTURE;
	if (hl_utf8_is_control(code_point) || (code_point & 0xfffe) == 0xfffe)
		return REPLACEMENT;
	return code_point;
}

static struct character next_character(const char *text)
{
	uint32_t code_point;
	int length = hl_utf8_decode(text, &code_point);

	if (length == 0)
		return (struct character){REPLACEMENT, 1, true};
	uint32_t shown = shown_as(code_point);
	return (struct character){shown, (size_t)length, shown != code_point};
}

static size_t cells_of(struct character character)
{
	uint32_t code_point = character.code_point;
	bool is_wide = (code_point >= 0x1100 && code_point < 0x1160) ||
		       (code_point >= 0x2e80 && code_point != REPLACEMENT);

	return is_wide ? 2 : 1;
}

/* Three bytes of UTF-8 hold U+0800 to U+FFFF, where all replacements are. */
static void put_replacement(FILE *out, uint32_t code_point)
{
	putc((int)(0xe0 | code_point >> 12), out);
	putc((int)(0x80 | (code_point >> 6 & 0x3f)), out);
	putc((int)(0x80 | (code_point & 0x3f)), out);
}

static void put_character(FILE *out, const char *text, struct character character)
{
	if (character.is_replaced)
		put_replacement(out, character.code_point);
	else if (character.code_point == '&')
		fputs("&amp;", out);
	else if (character.code_point == '<')
		fputs("&lt;", out);
	else if (character.code_point == '>')
		fputs("&gt;", out);
	else if (character.code_point == '"')
		fputs("&quot;", out);
	else
		fwrite(text, 1, character.length, out);
}

size_t hl_xml_cells(const char *text, size_t cell_max)
{
	size_t cells = 0;

	while (*text && cells <= cell_max) {
		struct character character = next_character(text);
		cells += cells_of(character);
		text += character.length;
	}
	return cells;
}

/* ${json}: quotes and backslashes are escaped for JSON too. */
static void put_cut(FILE *out, const char *text, size_t cell_max, bool json)
{
	bool whole = hl_xml_cells(text, cell_max) <= cell_max;
	size_t cells = whole ? 0 : 1; /* the ellipsis */

	while (*text) {
		struct character character = next_character(text);
		cells += cells_of(character);
		if (cells > cell_max)
			break;
		if (json && (character.code_point == '"' || character.code_point == '\\'))
			putc('\\', out);
		put_character(out, text, character);
		text += character.length;
	}
	if (!whole)
		fputs(ELLIPSIS, out);
}

void hl_xml_text(FILE *out, const char *text)
{
	put_cut(out, text, SIZE_MAX, false);
}

void hl_xml_text_cut(FILE *out, const char *text, size_t cell_max)
{
	put_cut(out, text, cell_max, false);
}

void hl_xml_json_string(FILE *out, const char *text, size_t cell_max)
{
	putc('"', out);
	put_cut(out, text, cell_max, true);
	putc('"', out);
}

void hl_xml_source(FILE *out, const char *text)
{
	for (; *text; text++)
		put_character(out, text, (struct character){(unsigned char)*text, 1, false});
}
