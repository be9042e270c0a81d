/* SPDX-License-Identifier: BSD-2-Clause */
/* A streaming JSON writer (RFC 8259); see json.h. */
#include "view/json.h"

#include "base/utf8.h"

#include <inttypes.h>

#define LINES_DEPTH 2 /* members of the report and of its lists get a line each */

/* Controls are, because JSON may go to a terminal, too; and what XML cannot hold. */
static bool is_escaped(const struct hl_json *json, uint32_t code_point)
{
	if (code_point == '<' || code_point == '>' || code_point == '&')
		return json->is_in_markup;
	return code_point == '"' || code_point == '\\' || code_point == 0xfffe ||
	       code_point == 0xffff || hl_utf8_is_control(code_point);
}

static void put_string(const struct hl_json *json, const char *text)
{
	const char *plain = text, *at = text;

	putc('"', json->out);
	while (*at) {
		uint32_t code_point = 0xfffd;
		int length = hl_utf8_decode(at, &code_point);
		if (length && !is_escaped(json, code_point)) {
			at += length;
			continue;
		}
		fwrite(plain, 1, (size_t)(at - plain), json->out);
		if (code_point == '"' || code_point == '\\')
			fprintf(json->out, "\\%c", *at);
		else
			fprintf(json->out, "\\u%04x", code_point);
		at += length ? length : 1;
		plain = at;
	}
	fwrite(plain, 1, (size_t)(at - plain), json->out);
	putc('"', json->out);
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
		put_string(json, key);
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
	put_string(json, text);
}
