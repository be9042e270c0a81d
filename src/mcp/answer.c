/* SPDX-License-Identifier: BSD-2-Clause */
/* Quotes, cuts and pages answers; see mcp.h. */
#include "mcp/mcp.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- quoting ---- */

/* Letters without a picture, in which text for a model can hide: soft hyphens, joiners, variation selectors, tags. */
static bool is_unseen(uint32_t code_point)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {{0xad, 0xad},	{0x61c, 0x61c},	   {0x180e, 0x180e}, {0x200b, 0x200f},
		      {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},
		      {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};

	for (size_t i = 0; i < HL_COUNT_OF(ranges); i++)
		if (code_point >= ranges[i].first && code_point <= ranges[i].last)
			return true;
	return hl_utf8_is_control(code_point);
}

json_t *hl_mcp_quote_text(const char *text)
{
	HL_FREED char *quoted = NULL;
	size_t size = 0;

	FILE *out = open_memstream(&quoted, &size);
	if (!out)
		return NULL;
	while (*text) {
		uint32_t code_point = 0xfffd;
		int length = hl_utf8_decode(text, &code_point);
		if (!length)
			fputs("\ufffd", out);
		else if (is_unseen(code_point))
			fprintf(out, "\\u{%x}", (unsigned)code_point);
		else
			fwrite(text, 1, (size_t)length, out);
		text += length ? length : 1;
	}
	return fclose(out) == 0 ? json_stringn(quoted, size) : NULL;
}

static json_t *quote_object(const json_t *object)
{
	json_t *copy = json_object(), *member;
	const char *key;

	json_object_foreach((json_t *)object, key, member)
		if (json_object_set_new(copy, key, hl_mcp_quote(member)) < 0) {
			json_decref(copy);
			return NULL;
		}
	return copy;
}

json_t *hl_mcp_quote(const json_t *value)
{
	if (json_is_string(value))
		return hl_mcp_quote_text(json_string_value(value));
	if (json_is_object(value))
		return quote_object(value);
	if (!json_is_array(value))
		return json_copy((json_t *)value);
	json_t *copy = json_array();
	for (size_t i = 0; i < json_array_size(value); i++)
		if (json_array_append_new(copy, hl_mcp_quote(json_array_get(value, i))) < 0) {
			json_decref(copy);
			return NULL;
		}
	return copy;
}

char *hl_mcp_format(const json_t *value)
{
	HL_FREED char *plain = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	char *line = NULL;
	size_t size = 0;

	FILE *out = plain ? open_memstream(&line, &size) : NULL;
	if (!out)
		return NULL;
	/* Outside strings JSON has none of them. */
	for (const char *at = plain; *at; at++)
		if (*at == '<' || *at == '>' || *at == '&')
			fprintf(out, "\\u%04x", (unsigned)*at);
		else
			putc(*at, out);
	if (fclose(out) == 0)
		return line;
	free(line);
	return NULL;
}

/* ---- cutting ---- */

static size_t size_of(const json_t *value)
{
	return json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
}

static int cut_array(json_t *array, size_t bytes, const char *pointer, json_t *cuts)
{
	size_t count = json_array_size(array), kept = 0, used = 2;
	HL_FREED char *inner = NULL;
	int r = 0;

	for (; kept < count; kept++) {
		size_t size = size_of(json_array_get(array, kept)) + 1;
		if (used + size > bytes)
			break;
		used += size;
	}
	if (kept == count)
		return 0;
	if (kept == 0) { /* one element alone is too large */
		if (asprintf(&inner, "%s/0", pointer) < 0)
			return -ENOMEM;
		r = hl_mcp_cut(json_array_get(array, 0), bytes, inner, cuts);
		kept = 1;
	}
	if (kept < count &&
	    json_array_append_new(cuts, json_pack("{sssIsI}", "pointer", pointer, "from",
						  (json_int_t)kept, "of", (json_int_t)count)) < 0)
		return -ENOMEM;
	while (json_array_size(array) > kept)
		json_array_remove(array, json_array_size(array) - 1);
	return r;
}

struct member {
	const char *key;
	json_t *value;
	size_t size;
};

static int by_size(const void *one, const void *other)
{
	const struct member *a = one, *b = other;

	return (a->size > b->size) - (a->size < b->size);
}

/* Small members first: what they leave is for the large ones. */
static int cut_object(json_t *object, size_t bytes, const char *pointer, json_t *cuts)
{
	size_t count = json_object_size(object), i = 0;
	HL_FREED struct member *members = calloc(count + 1, sizeof(*members));
	const char *key;
	json_t *value;
	int r = members ? 0 : -ENOMEM;

	if (r == 0)
		json_object_foreach(object, key, value)
			members[i++] =
				(struct member){key, value, size_of(value) + strlen(key) + 4};
	if (r == 0)
		qsort(members, count, sizeof(*members), by_size);
	for (i = 0; r == 0 && i < count; i++) {
		size_t share = bytes / (count - i);
		if (members[i].size > share) {
			HL_FREED char *inner = NULL;
			if (asprintf(&inner, "%s/%s", pointer, members[i].key) < 0)
				return -ENOMEM;
			r = hl_mcp_cut(members[i].value, share, inner, cuts);
			members[i].size = size_of(members[i].value);
		}
		bytes -= members[i].size < bytes ? members[i].size : bytes;
	}
	return r;
}

int hl_mcp_cut(json_t *value, size_t bytes, const char *pointer, json_t *cuts)
{
	if (size_of(value) <= bytes)
		return 0;
	if (json_is_array(value))
		return cut_array(value, bytes, pointer, cuts);
	return json_is_object(value) ? cut_object(value, bytes, pointer, cuts) : 0;
}

/* ---- paging ---- */

size_t hl_mcp_keep(struct hl_mcp_kept *kept, json_t *answer)
{
	size_t number = kept->count++, slot = number % HL_MCP_KEPT_MAX;

	json_decref(kept->answers[slot]);
	kept->answers[slot] = json_incref(answer);
	return number;
}

void hl_mcp_kept_release(struct hl_mcp_kept *kept)
{
	for (size_t i = 0; i < HL_MCP_KEPT_MAX; i++)
		json_decref(kept->answers[i]);
}

static const char more_tool[] =
	"{\"name\": \"more\", \"title\": \"heapline more\","
	" \"description\": \"show what was left out of a long answer, which says 'more'\","
	" \"inputSchema\": {\"type\": \"object\", \"properties\": {"
	"  \"handle\": {\"type\": \"string\", \"description\": \"of the answer\"},"
	"  \"pointer\": {\"type\": \"string\", \"description\": \"one of its arrays, as 'cut' "
	"names it\"},"
	"  \"from\": {\"type\": \"integer\", \"minimum\": 0, \"description\": \"index of the first "
	"element to show\"}},"
	"  \"required\": [\"handle\", \"pointer\"], \"additionalProperties\": false},"
	" \"annotations\": {\"readOnlyHint\": true, \"idempotentHint\": true, \"openWorldHint\": "
	"false}}";

json_t *hl_mcp_more_tool(void)
{
	return json_loads(more_tool, 0, NULL);
}

static const json_t *follow(const json_t *value, const char *pointer)
{
	while (value && *pointer == '/') {
		size_t length = strcspn(++pointer, "/");
		HL_FREED char *token = strndup(pointer, length);
		if (!token)
			return NULL;
		value = json_is_array(value) ? json_array_get(value, strtoul(token, NULL, 10))
					     : json_object_get(value, token);
		pointer += length;
	}
	return *pointer ? NULL : value;
}

/* A page of ${array} from ${from} on. */
static json_t *page_of(const json_t *array, const char *handle, const char *pointer, size_t from,
		       size_t bytes)
{
	json_t *items = json_array(), *cuts = json_array(), *answer = NULL;
	size_t count = json_array_size(array), used = 0, at = from;
	HL_FREED char *inner = NULL;

	for (; at < count; at++) {
		size_t size = size_of(json_array_get(array, at)) + 1;
		if (at > from && used + size > bytes)
			break;
		used += size;
		json_array_append_new(items, json_deep_copy(json_array_get(array, at)));
	}
	if (at < count)
		json_array_append_new(cuts, json_pack("{sssIsI}", "pointer", pointer, "from",
						      (json_int_t)at, "of", (json_int_t)count));
	if (used > bytes && asprintf(&inner, "%s/%zu", pointer, from) >= 0)
		hl_mcp_cut(json_array_get(items, 0), bytes, inner, cuts);
	answer = json_pack("{sssssIsIsO}", "handle", handle, "pointer", pointer, "from",
			   (json_int_t)from, "of", (json_int_t)count, "items", items);
	if (answer && json_array_size(cuts))
		json_object_set(answer, "cut", cuts);
	json_decref(items);
	json_decref(cuts);
	return answer;
}

json_t *hl_mcp_more(const struct hl_mcp_kept *kept, const json_t *arguments, size_t bytes,
		    struct hl_error *err)
{
	const char *handle = "", *pointer = "";
	json_int_t from = 0;
	size_t number;

	if (json_unpack((json_t *)arguments, "{ssss}", "handle", &handle, "pointer", &pointer) <
		    0 ||
	    json_unpack((json_t *)arguments, "{s?I}", "from", &from) < 0 || from < 0) {
		hl_error_set(err, -EINVAL,
			     "'more' needs 'handle' and 'pointer', and 'from', a whole number; the "
			     "answer that it goes on with has them in 'more'");
		return NULL;
	}
	if (sscanf(handle, "answer-%zu", &number) != 1 || number >= kept->count ||
	    number + HL_MCP_KEPT_MAX < kept->count) {
		hl_error_set(err, -ENOENT,
			     "there is no answer '%.100s' any more: the newest %d long ones stay; "
			     "call the tool again",
			     handle, HL_MCP_KEPT_MAX);
		return NULL;
	}
	const json_t *array = follow(kept->answers[number % HL_MCP_KEPT_MAX], pointer);
	if (!json_is_array(array)) {
		hl_error_set(err, -ENOENT,
			     "'%.200s' is not an array of '%s'; take 'pointer' from its 'more'",
			     pointer, handle);
		return NULL;
	}
	json_t *page = page_of(array, handle, pointer, (size_t)from, bytes);
	if (!page)
		hl_error_set(err, -ENOMEM, "out of memory");
	return page;
}

json_t *hl_mcp_shorten(struct hl_mcp_kept *kept, json_t *answer, size_t bytes)
{
	char handle[32];

	if (size_of(answer) <= bytes)
		return answer;
	json_t *whole = json_deep_copy(answer), *cuts = json_array();
	if (!whole || hl_mcp_cut(answer, bytes, "", cuts) < 0) {
		json_decref(whole);
		json_decref(cuts);
		json_decref(answer);
		return NULL;
	}
	if (json_array_size(cuts)) {
		snprintf(handle, sizeof(handle), "answer-%zu", hl_mcp_keep(kept, whole));
		json_object_set_new(
			answer, "more",
			json_pack("{sssOss}", "handle", handle, "cut", cuts, "tool", "more"));
	}
	json_decref(whole);
	json_decref(cuts);
	return answer;
}
