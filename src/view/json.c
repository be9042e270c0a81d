/* SPDX-License-Identifier: BSD-2-Clause */
/* A streaming JSON writer (RFC 8259); see json.h. */
#include "view/json.h"

#include "view/utf8.h"

#include <inttypes.h>

#define LINES_DEPTH 2 /* members of the report and of its lists get a line each */

static void put_string(FILE *out, const char *text)
{
	putc('"', out);
	for (const char *at = text; *at;) {
		uint32_t code_point;
		int length = hl_utf8_decode(at, &code_point);
		if (length == 0)
			fputs("\\ufffd", out);
		else if (code_point == '"' || code_point == '\\')
			fprintf(out, "\\%c", *at);
		else if (hl_utf8_is_control(code_point)) /* JSON may go to a terminal, too */
			fprintf(out, "\\u%04x", code_point);
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

void hl_json_null(struct hl_json *json, const char *key)
{
	begin_member(json, key);
	fputs("null", json->out);
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
