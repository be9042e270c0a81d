/* SPDX-License-Identifier: BSD-2-Clause */
/* The META section of a packed recording: one table of fields for writing and reading. */
#include "pack/pack_sections.h"

#include "recording/figure_name.h"
#include "recording/recording_text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As many as a recording has at most. */
#define FIGURES_MAX 64u

enum field_type {
	FIELD_TEXT,   /* uint32_t, id of a string */
	FIELD_NUMBER, /* uint64_t */
	FIELD_COUNT,  /* size_t */
	FIELD_BOOL,
};

struct field {
	const char *key;
	enum field_type type;
	size_t offset;
	bool optional; /* older files have it not; it is then 0 */
};

#define F(type, member)                                                   \
	{                                                                 \
#member, type, offsetof(struct hl_profile, member), false \
	}

static const struct field fields[] = {
	F(FIELD_TEXT, command),
	F(FIELD_TEXT, host),
	F(FIELD_TEXT, kernel),
	F(FIELD_TEXT, mode),
	F(FIELD_TEXT, tool_version),
	F(FIELD_TEXT, source),
	F(FIELD_BOOL, imported),
	F(FIELD_NUMBER, sample_bytes),
	F(FIELD_NUMBER, start_realtime_ns),
	F(FIELD_NUMBER, duration_ns),
	F(FIELD_BOOL, complete),
	F(FIELD_COUNT, recorded_process_count),
	F(FIELD_TEXT, moment),
	F(FIELD_NUMBER, moment_ms),
	F(FIELD_TEXT, base_name),
	F(FIELD_NUMBER, base_duration_ns),
	F(FIELD_TEXT, base_moment),
	F(FIELD_NUMBER, base_moment_ms),
	{"snapshot", FIELD_BOOL, offsetof(struct hl_profile, snapshot), true},
	{"unrecorded_children", FIELD_NUMBER, offsetof(struct hl_profile, unrecorded_children),
	 true},
};

/* ---- writing ---- */

static json_t *text_to_json(const struct hl_profile *profile, uint32_t id)
{
	const char *text = hl_profile_text(profile, id);
	char *escaped = hl_text_escape(text, strlen(text));
	json_t *json = escaped ? json_string(escaped) : NULL;

	free(escaped);
	return json;
}

static json_t *field_to_json(const struct field *field, const struct hl_profile *profile)
{
	const void *value = (const char *)profile + field->offset;

	switch (field->type) {
	case FIELD_TEXT:
		return text_to_json(profile, *(const uint32_t *)value);
	case FIELD_NUMBER:
		return json_integer((json_int_t) * (const uint64_t *)value);
	case FIELD_COUNT:
		return json_integer((json_int_t) * (const size_t *)value);
	case FIELD_BOOL:
		return json_boolean(*(const bool *)value);
	}
	return NULL;
}

static const char *known_word(int value, int unit, char word[32])
{
	snprintf(word, 32, "%s_%s", hl_value_names[value], hl_unit_names[unit]);
	return word;
}

/* Array of words such as "peak_bytes". */
static json_t *known_to_json(const struct hl_profile *profile)
{
	json_t *array = json_array();
	char word[32];
	int r = array ? 0 : -1;

	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
			if (r == 0 && profile->known[value][unit])
				r = json_array_append_new(
					array, json_string(known_word(value, unit, word)));
	if (r == 0)
		return array;
	json_decref(array);
	return NULL;
}

static json_t *warnings_to_json(const struct hl_profile *profile)
{
	json_t *array = json_array();
	int r = array ? 0 : -1;

	for (size_t i = 0; r == 0 && i < profile->warning_count; i++)
		r = json_array_append_new(array, text_to_json(profile, profile->warnings[i]));
	if (r == 0)
		return array;
	json_decref(array);
	return NULL;
}

/* Each as an array of PID, milliseconds and name. */
static json_t *marks_to_json(const struct hl_profile *profile)
{
	json_t *array = json_array();
	int r = array ? 0 : -1;

	for (size_t i = 0; r == 0 && i < profile->mark_count; i++) {
		const struct hl_profile_mark *mark = &profile->marks[i];
		json_t *fields_of_mark =
			json_pack("[I, I, o]", (json_int_t)mark->pid, (json_int_t)mark->ms,
				  text_to_json(profile, mark->name));
		r = json_array_append_new(array, fields_of_mark);
	}
	if (r == 0)
		return array;
	json_decref(array);
	return NULL;
}

/* Each as an array of name and number. */
static json_t *figures_to_json(const struct hl_profile *profile)
{
	json_t *array = json_array();
	int r = array ? 0 : -1;

	for (size_t i = 0; r == 0 && i < profile->figure_count; i++)
		r = json_array_append_new(
			array,
			json_pack("[s, I]", hl_profile_text(profile, profile->figures[i].name),
				  (json_int_t)profile->figures[i].value));
	if (r == 0)
		return array;
	json_decref(array);
	return NULL;
}

char *hl_pack_meta_write(const struct hl_profile *profile)
{
	json_t *object = json_object();
	char *text = NULL;
	int r = object ? 0 : -1;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(fields); i++)
		r = json_object_set_new(object, fields[i].key, field_to_json(&fields[i], profile));
	if (r == 0)
		r = json_object_set_new(object, "compared", json_boolean(profile->base != NULL));
	if (r == 0)
		r = json_object_set_new(object, "known", known_to_json(profile));
	if (r == 0)
		r = json_object_set_new(object, "warnings", warnings_to_json(profile));
	if (r == 0)
		r = json_object_set_new(object, "marks", marks_to_json(profile));
	if (r == 0)
		r = json_object_set_new(object, "figures", figures_to_json(profile));
	if (r == 0)
		text = json_dumps(object, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(object);
	return text;
}

/* ---- reading ---- */

/* 0, -EINVAL or -ENOMEM, as do the others. */
static int text_from_json(struct hl_profile *profile, const json_t *json, uint32_t *ret_id)
{
	char *text;

	if (!json_is_string(json))
		return -EINVAL;
	int r = hl_text_unescape(json_string_value(json), json_string_length(json), &text);
	if (r < 0)
		return r;
	r = hl_strings_intern(&profile->strings, text, ret_id);
	free(text);
	return r;
}

static int field_from_json(const struct field *field, const json_t *json,
			   struct hl_profile *profile)
{
	void *value = (char *)profile + field->offset;

	switch (field->type) {
	case FIELD_TEXT:
		return text_from_json(profile, json, value);
	case FIELD_NUMBER:
		*(uint64_t *)value = (uint64_t)json_integer_value(json);
		return json_is_integer(json) ? 0 : -EINVAL;
	case FIELD_COUNT:
		*(size_t *)value = (size_t)json_integer_value(json);
		return json_is_integer(json) && json_integer_value(json) >= 0 ? 0 : -EINVAL;
	case FIELD_BOOL:
		*(bool *)value = json_is_true(json);
		return json_is_boolean(json) ? 0 : -EINVAL;
	}
	return -EINVAL;
}

static int known_from_json(struct hl_profile *profile, const json_t *array)
{
	if (!json_is_array(array))
		return -EINVAL;
	for (size_t i = 0; i < json_array_size(array); i++) {
		const char *found = json_string_value(json_array_get(array, i));
		char word[32];
		for (int value = 0; value < HL_VALUE_COUNT; value++)
			for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
				if (found && !strcmp(found, known_word(value, unit, word)))
					profile->known[value][unit] = true;
	}
	return 0;
}

static int warnings_from_json(struct hl_profile *profile, const json_t *array)
{
	size_t count = json_array_size(array);
	int r = json_is_array(array) ? 0 : -EINVAL;

	profile->warnings = calloc(count + 1, sizeof(*profile->warnings));
	if (!profile->warnings)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < count; i++, profile->warning_count++)
		r = text_from_json(profile, json_array_get(array, i), &profile->warnings[i]);
	return r;
}

static int mark_from_json(struct hl_profile *profile, const json_t *json,
			  struct hl_profile_mark *mark)
{
	json_int_t pid = json_integer_value(json_array_get(json, 0));
	json_int_t ms = json_integer_value(json_array_get(json, 1));

	if (pid < 0 || pid > UINT32_MAX || ms < 0)
		return -EINVAL;
	mark->pid = (uint32_t)pid;
	mark->ms = (uint64_t)ms;
	return text_from_json(profile, json_array_get(json, 2), &mark->name);
}

/* Files from before there were marks have none. */
static int marks_from_json(struct hl_profile *profile, const json_t *array)
{
	size_t count = json_array_size(array);
	int r = !array || json_is_array(array) ? 0 : -EINVAL;

	profile->marks = calloc(count + 1, sizeof(*profile->marks));
	if (!profile->marks)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < count; i++, profile->mark_count++)
		r = mark_from_json(profile, json_array_get(array, i), &profile->marks[i]);
	return r;
}

static int figure_from_json(struct hl_profile *profile, const json_t *json,
			    struct hl_profile_figure *figure)
{
	const char *name = json_string_value(json_array_get(json, 0));
	const json_t *value = json_array_get(json, 1);

	if (!name || !json_is_integer(value) || !hl_figure_name_is_valid(name))
		return -EINVAL;
	figure->value = json_integer_value(value);
	int r = hl_strings_intern(&profile->strings, name, &figure->name);
	for (size_t i = 0; r == 0 && i < profile->figure_count; i++)
		if (profile->figures[i].name == figure->name)
			r = -EINVAL;
	return r;
}

/* Files from before there were figures have none. */
static int figures_from_json(struct hl_profile *profile, const json_t *array)
{
	size_t count = json_array_size(array);
	int r = (!array || json_is_array(array)) && count <= FIGURES_MAX ? 0 : -EINVAL;

	profile->figures = r == 0 ? calloc(count + 1, sizeof(*profile->figures)) : NULL;
	if (r == 0 && !profile->figures)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < count; i++) {
		r = figure_from_json(profile, json_array_get(array, i), &profile->figures[i]);
		profile->figure_count += r == 0;
	}
	return r;
}

/* On failure ${ret_key} is the key that is to blame. */
static int read_object(const json_t *object, struct hl_profile *profile, bool *ret_compared,
		       const char **ret_key)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(fields); i++) {
		*ret_key = fields[i].key;
		const json_t *value = json_object_get(object, *ret_key);
		if (value || !fields[i].optional)
			r = field_from_json(&fields[i], value, profile);
	}
	if (r < 0)
		return r;
	*ret_key = "known";
	r = known_from_json(profile, json_object_get(object, *ret_key));
	if (r < 0)
		return r;
	*ret_key = "warnings";
	r = warnings_from_json(profile, json_object_get(object, *ret_key));
	if (r < 0)
		return r;
	*ret_key = "marks";
	r = marks_from_json(profile, json_object_get(object, *ret_key));
	if (r < 0)
		return r;
	*ret_key = "figures";
	r = figures_from_json(profile, json_object_get(object, *ret_key));
	if (r < 0)
		return r;
	*ret_key = "compared";
	const json_t *compared = json_object_get(object, *ret_key);
	*ret_compared = json_is_true(compared);
	return json_is_boolean(compared) ? 0 : -EINVAL;
}

int hl_pack_meta_read(const char *text, size_t size, const char *name, struct hl_profile *profile,
		      bool *ret_compared, struct hl_error *err)
{
	const char *key = "";
	json_error_t error;
	int r = -EINVAL;

	json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
	if (json_is_object(object))
		r = read_object(object, profile, ret_compared, &key);
	else if (!object && json_error_code(&error) == json_error_out_of_memory)
		r = -ENOMEM;
	json_decref(object);
	if (r == -EINVAL && !key[0])
		return hl_error_set(err, -EBADMSG, "cannot read '%s': malformed JSON", name);
	if (r == -EINVAL)
		return hl_error_set(err, -EBADMSG,
				    "cannot read '%s': its key '%s' is missing or malformed", name,
				    key);
	if (r < 0)
		hl_error_set(err, r, "cannot read '%s': out of memory", name);
	return r;
}
