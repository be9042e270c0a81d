/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes and reads JSON objects by tables of fields; see fields.h. */
#include "recording/fields.h"

#include "base/cleanup.h"
#include "base/encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static json_t *write_texts(char *const *texts)
{
	json_auto_t *array = json_array();

	for (; array && texts && *texts; texts++)
		if (json_array_append_new(array, hl_text_to_json(*texts)) < 0)
			return NULL;
	return json_incref(array);
}

static size_t count_items(const struct hl_field *field, const void *owner)
{
	const char *count = (const char *)owner + field->count_offset;

	return field->count_bytes == sizeof(uint32_t) ? *(const uint32_t *)(const void *)count
						      : *(const size_t *)(const void *)count;
}

static json_t *write_items(const struct hl_field *field, const void *owner,
			   const struct hl_strings *strings);

static json_t *write_value(const struct hl_field *field, const void *owner,
			   const struct hl_strings *strings)
{
	const void *value = (const char *)owner + field->offset;

	switch (field->type) {
	case HL_FIELD_U32:
		return json_integer(*(const uint32_t *)value);
	case HL_FIELD_U64:
		return json_integer((json_int_t) * (const uint64_t *)value);
	case HL_FIELD_I32:
		return json_integer(*(const int32_t *)value);
	case HL_FIELD_I64:
		return json_integer(*(const int64_t *)value);
	case HL_FIELD_BOOL:
		return json_boolean(*(const bool *)value);
	case HL_FIELD_TEXT:
		return hl_text_to_json(*(char *const *)value);
	case HL_FIELD_TEXTS:
		return write_texts(*(char *const *const *)value);
	case HL_FIELD_INTERNED:
		return hl_text_to_json(hl_strings_text(strings, *(const uint32_t *)value));
	case HL_FIELD_CODED:
		return field->codec->write(value);
	case HL_FIELD_OBJECT:
		return hl_fields_write(field->fields, value, strings);
	case HL_FIELD_ARRAY:
		return write_items(field, owner, strings);
	}
	return NULL;
}

static json_t *write_item(const struct hl_field *field, const void *item,
			  const struct hl_strings *strings)
{
	if (field->items == HL_ITEMS_OBJECTS)
		return hl_fields_write(field->fields, item, strings);
	if (field->items == HL_ITEMS_VALUES)
		return write_value(field->fields, item, strings);
	json_auto_t *tuple = json_array();
	for (const struct hl_field *part = field->fields; tuple && part->key; part++)
		if (json_array_append_new(tuple, write_value(part, item, strings)) < 0)
			return NULL;
	return json_incref(tuple);
}

static json_t *write_items(const struct hl_field *field, const void *owner,
			   const struct hl_strings *strings)
{
	const char *items;
	json_auto_t *array = json_array();

	memcpy(&items, (const char *)owner + field->offset, sizeof(items));
	for (size_t i = 0; array && i < count_items(field, owner); i++)
		if (json_array_append_new(
			    array, write_item(field, items + i * field->item_bytes, strings)) < 0)
			return NULL;
	return json_incref(array);
}

json_t *hl_fields_write(const struct hl_field *fields, const void *owner,
			const struct hl_strings *strings)
{
	json_auto_t *object = json_object();

	for (const struct hl_field *field = fields; object && field->key; field++) {
		if (field->unless_empty && !count_items(field, owner))
			continue;
		if (json_object_set_new(object, field->key, write_value(field, owner, strings)) < 0)
			return NULL;
	}
	return json_incref(object);
}

char *hl_fields_print(json_t *object)
{
	char *text = json_dumps(object, JSON_INDENT(1) | JSON_PRESERVE_ORDER);

	json_decref(object);
	return text;
}

/* ---- reading ---- */

int hl_fields_blame(const struct hl_field_source *source, const char *key)
{
	return hl_error_set(source->err, -EBADMSG,
			    "cannot read '%s': its key '%s' is missing or malformed", source->path,
			    key);
}

static int out_of_memory(const struct hl_field_source *source)
{
	return hl_error_set(source->err, -ENOMEM, "cannot read '%s': out of memory", source->path);
}

int hl_fields_parse(const struct hl_field_source *source, const char *text, size_t size,
		    json_t **ret_object)
{
	json_error_t error;
	json_auto_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);

	if (!root && json_error_code(&error) == json_error_out_of_memory)
		return out_of_memory(source);
	if (!json_is_object(root))
		return hl_error_set(source->err, -EBADMSG, "cannot read '%s': malformed JSON: %s",
				    source->path, root ? "not an object" : error.text);
	*ret_object = json_incref(root);
	return 0;
}

static int read_integer(const struct hl_field *field, const json_t *json, void *ret_value)
{
	json_int_t integer = json_integer_value(json);

	if (!json_is_integer(json))
		return -EINVAL;
	if (field->type == HL_FIELD_I32) {
		if (integer < INT32_MIN || integer > INT32_MAX)
			return -EINVAL;
		*(int32_t *)ret_value = (int32_t)integer;
		return 0;
	}
	uint64_t max = field->type != HL_FIELD_U32 || field->max ? field->max : UINT32_MAX;
	if (max && (uint64_t)integer > max)
		return -EINVAL;
	if (field->type == HL_FIELD_U32)
		*(uint32_t *)ret_value = (uint32_t)integer;
	else
		*(uint64_t *)ret_value = (uint64_t)integer;
	return 0;
}

static int read_texts(const json_t *json, char ***ret_texts)
{
	size_t count = json_array_size(json);
	char **texts = json_is_array(json) ? calloc(count + 1, sizeof(*texts)) : NULL;
	int r = 0;

	if (!texts)
		return json_is_array(json) ? -ENOMEM : -EINVAL;
	*ret_texts = texts; /* its owner releases it, also when an item is malformed */
	for (size_t i = 0; r == 0 && i < count; i++)
		r = hl_text_from_json(json_array_get(json, i), &texts[i]);
	return r;
}

static int read_items(const struct hl_field_source *source, const struct hl_field *field,
		      const json_t *json, void *owner);

static int read_value(const struct hl_field_source *source, const struct hl_field *field,
		      const json_t *json, void *owner)
{
	void *value = (char *)owner + field->offset;
	HL_FREED char *text = NULL;
	int r;

	switch (field->type) {
	case HL_FIELD_U32:
	case HL_FIELD_U64:
	case HL_FIELD_I32:
	case HL_FIELD_I64:
		return read_integer(field, json, value);
	case HL_FIELD_BOOL:
		*(bool *)value = json_is_true(json);
		return json_is_boolean(json) ? 0 : -EINVAL;
	case HL_FIELD_TEXT:
		return hl_text_from_json(json, value);
	case HL_FIELD_TEXTS:
		return read_texts(json, value);
	case HL_FIELD_INTERNED:
		r = hl_text_from_json(json, &text);
		return r < 0 ? r : hl_strings_intern(source->strings, text, value);
	case HL_FIELD_CODED:
		return field->codec->read(json, value);
	case HL_FIELD_OBJECT:
		return hl_fields_read(source, field->fields, json, value);
	case HL_FIELD_ARRAY:
		return read_items(source, field, json, owner);
	}
	return -EINVAL;
}

static int read_item(const struct hl_field_source *source, const struct hl_field *field,
		     const json_t *json, void *item)
{
	int r = 0;

	if (field->items == HL_ITEMS_OBJECTS)
		return hl_fields_read(source, field->fields, json, item);
	if (field->items == HL_ITEMS_VALUES)
		return read_value(source, field->fields, json, item);
	for (size_t i = 0; r == 0 && field->fields[i].key; i++)
		r = read_value(source, &field->fields[i], json_array_get(json, i), item);
	return r;
}

static int read_items(const struct hl_field_source *source, const struct hl_field *field,
		      const json_t *json, void *owner)
{
	size_t count = json_array_size(json);
	char *count_place = (char *)owner + field->count_offset;
	int r = 0;

	if (!json_is_array(json) || (field->max && count > field->max))
		return -EINVAL;
	char *items = calloc(count ? count : 1, field->item_bytes);
	if (!items)
		return -ENOMEM;
	memcpy((char *)owner + field->offset, &items, sizeof(items));
	if (field->count_bytes == sizeof(uint32_t))
		*(uint32_t *)(void *)count_place = (uint32_t)count;
	else
		*(size_t *)(void *)count_place = count;
	for (size_t i = 0; r == 0 && i < count; i++)
		r = read_item(source, field, json_array_get(json, i),
			      items + i * field->item_bytes);
	return r;
}

int hl_fields_read(const struct hl_field_source *source, const struct hl_field *fields,
		   const json_t *object, void *owner)
{
	for (const struct hl_field *field = fields; field->key; field++) {
		const json_t *json = json_object_get(object, field->key);
		if (!json && field->optional)
			continue;
		int r = read_value(source, field, json, owner);
		if (r == -ENOMEM)
			return out_of_memory(source);
		if (r < 0) /* keeps the sentence about a field within, if there is one */
			return hl_fields_blame(source, field->key);
	}
	return 0;
}

/* ---- bytes in JSON strings ---- */

/* The second byte decides about overlong forms, surrogates and code points past U+10FFFF
 * (Unicode 15, table 3-7). */
static bool second_byte_fits(uint8_t lead, uint8_t second)
{
	switch (lead) {
	case 0xe0:
		return second >= 0xa0;
	case 0xed:
		return second <= 0x9f;
	case 0xf0:
		return second >= 0x90;
	case 0xf4:
		return second <= 0x8f;
	default:
		return true;
	}
}

/* Length of the valid UTF-8 sequence at ${bytes}, 0 when there is none. */
static size_t utf8_length(const uint8_t *bytes, size_t size)
{
	uint8_t lead = bytes[0];
	size_t length = lead < 0x80		       ? 1
			: lead >= 0xc2 && lead <= 0xdf ? 2
			: lead >= 0xe0 && lead <= 0xef ? 3
			: lead >= 0xf0 && lead <= 0xf4 ? 4
						       : 0;

	if (length == 0 || length > size)
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	return length == 1 || second_byte_fits(lead, bytes[1]) ? length : 0;
}

char *hl_text_escape(const char *bytes, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";

	char *text = malloc(3 * size + 1);
	if (!text)
		return NULL;
	char *out = text;
	const uint8_t *next = (const uint8_t *)bytes;
	for (const uint8_t *end = next + size; next < end;) {
		size_t length = *next == '%' ? 0 : utf8_length(next, (size_t)(end - next));
		if (length == 0) {
			*out++ = '%';
			*out++ = digits[*next >> 4];
			*out++ = digits[*next++ & 15];
			continue;
		}
		memcpy(out, next, length);
		out += length;
		next += length;
	}
	*out = '\0';
	return text;
}

/* The byte that the escape at ${text} stands for; 0 unless it is two upper-case digits. */
static int unescape_one(const char *text, const char *end)
{
	if (end - text < 3 || text[1] >= 'a' || text[2] >= 'a')
		return 0;
	int high = hl_hex_digit(text[1]), low = hl_hex_digit(text[2]);
	return high < 0 || low < 0 ? 0 : high << 4 | low;
}

int hl_text_unescape(const char *text, size_t size, char **ret_bytes)
{
	char *bytes = malloc(size + 1);

	if (!bytes)
		return -ENOMEM;
	char *out = bytes;
	for (const char *end = text + size; text < end;) {
		int byte = *text == '%' ? unescape_one(text, end) : (uint8_t)*text;
		if (byte == 0) {
			free(bytes);
			return -EINVAL;
		}
		text += *text == '%' ? 3 : 1;
		*out++ = (char)byte;
	}
	*out = '\0';
	*ret_bytes = bytes;
	return 0;
}

json_t *hl_text_to_json(const char *bytes)
{
	HL_FREED char *text = hl_text_escape(bytes ? bytes : "", bytes ? strlen(bytes) : 0);

	return text ? json_string(text) : NULL;
}

int hl_text_from_json(const json_t *json, char **ret_bytes)
{
	if (!json_is_string(json))
		return -EINVAL;
	return hl_text_unescape(json_string_value(json), json_string_length(json), ret_bytes);
}
