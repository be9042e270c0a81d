/* SPDX-License-Identifier: BSD-2-Clause */
/* A streaming JSON writer (RFC 8259); see json.h. */
#include "view/json.h"

#include <inttypes.h>

#define LINES_DEPTH 2 /* members of the report and of its lists get a line each */

/* Length of the UTF-8 sequence that ${first} announces, or 0 when none begins so. */
static int announced_length(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first >= 0xf5)
		return 0;
	return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Length of the UTF-8 sequence at ${text} (RFC 3629), or 0 when it is none. */
static int utf8_length(const unsigned char *text)
{
	int length = announced_length(text[0]);

	for (int i = 1; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	bool overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
	bool surrogate = text[0] == 0xed && text[1] >= 0xa0;
	bool beyond = text[0] == 0xf4 && text[1] >= 0x90;
	return overlong || surrogate || beyond ? 0 : length;
}

static void put_string(FILE *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	putc('"', out);
	while (*at) {
		int length = utf8_length(at);
		if (length == 0)
			fputs("\\ufffd", out);
		else if (*at == '"' || *at == '\\')
			fprintf(out, "\\%c", *at);
		else if (*at < 0x20 || *at == 0x7f)
			fprintf(out, "\\u%04x", *at);
		else
			fwrite(at, 1, (size_t)length, out);
		at += length ? length : 1;
	}
	putc('"', out);
}

static void begin_member(struct hl_json *json, const char *key)
{
	if (json->has_members)
		putc(',', json->out);
	if (json->depth && json->depth <= LINES_DEPTH)
		fprintf(json->out, "\n%*s", 2 * (int)json->depth, "");
	else if (json->has_members)
		putc(' ', json->out);
	json->has_members = true;
	if (key) {
		put_string(json->out, key);
		fputs(": ", json->out);
	}
}

void hl_json_open(struct hl_json *json, const char *key, char bracket)
{
	begin_member(json, key);
	putc(bracket, json->out);
	json->depth++;
	json->has_members = false;
}

void hl_json_close(struct hl_json *json, char bracket)
{
	json->depth--;
	if (json->has_members && json->depth < LINES_DEPTH)
		fprintf(json->out, "\n%*s", 2 * (int)json->depth, "");
	putc(bracket, json->out);
	json->has_members = true;
	if (json->depth == 0)
		putc('\n', json->out);
}

void hl_json_integer(struct hl_json *json, const char *key, int64_t number)
{
	begin_member(json, key);
	fprintf(json->out, "%" PRId64, number);
}

void hl_json_boolean(struct hl_json *json, const char *key, bool truth)
{
	begin_member(json, key);
	fputs(truth ? "true" : "false", json->out);
}

void hl_json_text(struct hl_json *json, const char *key, const char *text)
{
	begin_member(json, key);
	put_string(json->out, text);
}
