/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Structs as JSON objects and back: one table of fields drives both directions, so that they cannot
 * drift. Text may be any bytes.
 */
#pragma once

#include "base/error.h"
#include "base/strings.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hl_field_type {
	HL_FIELD_U32,
	HL_FIELD_U64,
	HL_FIELD_I32,
	HL_FIELD_I64,
	HL_FIELD_BOOL,
	HL_FIELD_TEXT,	   /* char *; NULL is written as "" */
	HL_FIELD_TEXTS,	   /* char **, NULL-terminated */
	HL_FIELD_INTERNED, /* uint32_t: a text in the caller's table of strings */
	HL_FIELD_CODED,	   /* by ${codec} */
	HL_FIELD_OBJECT,   /* a struct with ${fields} */
	HL_FIELD_ARRAY,	   /* a pointer to structs with ${fields}, and how many they are */
};

/* What the items of an array are in JSON. */
enum hl_field_items {
	HL_ITEMS_OBJECTS,
	HL_ITEMS_TUPLES, /* arrays of the fields' values, in the order of the table */
	HL_ITEMS_VALUES, /* of the only field */
};

struct hl_field_codec {
	json_t *(*write)(const void *value);		  /* NULL for want of memory */
	int (*read)(const json_t *json, void *ret_value); /* 0, -EINVAL or -ENOMEM */
};

/* Tables of fields end with one without a key. */
struct hl_field {
	const char *key;
	enum hl_field_type type;
	size_t offset;
	uint64_t max;  /* of a U32, a U64, and of an array's items; 0: as many as there can be */
	bool optional; /* where the key is missing, the value stays 0 */
	const struct hl_field_codec *codec;
	const struct hl_field *fields;

	/* Of an array: */
	enum hl_field_items items;
	bool unless_empty; /* an empty one is not written */
	size_t item_bytes, count_offset, count_bytes;
};

#define HL_FIELD_NAMED(name, owner, kind, member, ...)                                            \
	{                                                                                         \
		.key = (name), .type = HL_FIELD_##kind, .offset = offsetof(struct owner, member), \
		##__VA_ARGS__                                                                     \
	}

/* The member of a struct under its own name; more members of struct hl_field may follow. */
#define HL_FIELD(owner, kind, member, ...) \
	HL_FIELD_NAMED(#member, owner, kind, member, ##__VA_ARGS__)

/* An array and the member that counts its items. */
#define HL_FIELD_ITEMS(owner, member, count, item_fields, ...)       \
	HL_FIELD(owner, ARRAY, member, .fields = (item_fields),      \
		 .item_bytes = sizeof(*((struct owner *)0)->member), \
		 .count_offset = offsetof(struct owner, count),      \
		 .count_bytes = sizeof(((struct owner *)0)->count), ##__VA_ARGS__)

/* An object with every field of ${owner}; ${strings} may be NULL unless a text is interned. NULL
 * for want of memory. */
json_t *hl_fields_write(const struct hl_field *fields, const void *owner,
			const struct hl_strings *strings);

/* The text of ${object}, which it takes over and which may be NULL; to be freed. NULL for want of
 * memory. */
char *hl_fields_print(json_t *object);

/* Where JSON comes from. */
struct hl_field_source {
	const char *path;	    /* for messages */
	struct hl_strings *strings; /* for interned texts, else NULL */
	struct hl_error *err;
};

/* 0 with an object, or a negative errno with a sentence. */
int hl_fields_parse(const struct hl_field_source *source, const char *text, size_t size,
		    json_t **ret_object);

/* Fills the zeroed ${owner}. 0 or a negative errno with a sentence: what was read until then is
 * there and is to be released. */
int hl_fields_read(const struct hl_field_source *source, const struct hl_field *fields,
		   const json_t *object, void *owner);

/* -EBADMSG, with the sentence that ${key} is missing or malformed. */
int hl_fields_blame(const struct hl_field_source *source, const char *key);

/* ---- texts: any bytes as valid UTF-8; what is not UTF-8 stands as %XX, and so does '%' ---- */

/* Memory that the caller frees, NUL-terminated; NULL for want of memory. */
char *hl_text_escape(const char *bytes, size_t size);

/* The reverse. 0, -ENOMEM, or -EINVAL for a malformed escape or a NUL. */
int hl_text_unescape(const char *text, size_t size, char **ret_bytes);

/* The same as a JSON string, and NULL as ""; NULL for want of memory. */
json_t *hl_text_to_json(const char *bytes);

/* 0, -ENOMEM, or -EINVAL when ${json}, which may be NULL, is not such a string. */
int hl_text_from_json(const json_t *json, char **ret_bytes);
