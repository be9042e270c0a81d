/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON sections: tables of fields drive both reading and writing, so that the two cannot drift. */
#include "recording/recording_json.h"

#include "base/hex.h"
#include "recording/figure_name.h"
#include "recording/recording_text.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum field_type {
	FIELD_U32,
	FIELD_U64,
	FIELD_I32,
	FIELD_I64,
	FIELD_BOOL,
	FIELD_END,	/* enum hl_process_end */
	FIELD_TEXT,	/* char * */
	FIELD_TEXTS,	/* char **, NULL-terminated */
	FIELD_NAME,	/* char[16], a thread's name */
	FIELD_BUILD_ID, /* a module's build_id and build_id_bytes */
	FIELD_FIGURE,	/* char *, a figure's name */
};

struct field {
	const char *key;
	enum field_type type;
	size_t offset;
	uint64_t max;  /* of a FIELD_U32; 0 = UINT32_MAX */
	bool optional; /* older recordings have it not; it is then 0 */
};

#define F(owner, type, member)                                          \
	{                                                               \
#member, type, offsetof(struct owner, member), 0, false \
	}
#define OPTIONAL(owner, type, member)                                  \
	{                                                              \
#member, type, offsetof(struct owner, member), 0, true \
	}

static const struct field recording_fields[] = {
	F(hl_recording, FIELD_TEXT, tool_version),
	F(hl_recording, FIELD_TEXTS, command),
	F(hl_recording, FIELD_TEXT, host),
	F(hl_recording, FIELD_TEXT, kernel),
	F(hl_recording, FIELD_TEXT, mode),
	F(hl_recording, FIELD_U64, sample_bytes),
	F(hl_recording, FIELD_U64, start_realtime_ns),
	F(hl_recording, FIELD_U64, duration_ns),
	F(hl_recording, FIELD_BOOL, complete),
	F(hl_recording, FIELD_TEXTS, warnings),
	OPTIONAL(hl_recording, FIELD_U32, ended_processes),
	OPTIONAL(hl_recording, FIELD_BOOL, snapshot),
	OPTIONAL(hl_recording, FIELD_U32, unrecorded_children),
	{0},
};

static const struct field mark_fields[] = {
	F(hl_recording_mark, FIELD_U32, pid),
	F(hl_recording_mark, FIELD_U64, ms),
	F(hl_recording_mark, FIELD_TEXT, name),
	{0},
};

static const struct field figure_fields[] = {
	F(hl_recording_figure, FIELD_FIGURE, name),
	F(hl_recording_figure, FIELD_I64, value),
	{0},
};

static const struct field process_fields[] = {
	F(hl_recording_process, FIELD_U32, pid),
	F(hl_recording_process, FIELD_U32, parent_pid),
	F(hl_recording_process, FIELD_U32, sequence),
	F(hl_recording_process, FIELD_TEXT, executable),
	F(hl_recording_process, FIELD_TEXTS, command),
	F(hl_recording_process, FIELD_U64, start_realtime_ns),
	F(hl_recording_process, FIELD_U64, duration_ns),
	F(hl_recording_process, FIELD_BOOL, complete),
	F(hl_recording_process, FIELD_BOOL, own_malloc),
	F(hl_recording_process, FIELD_END, end),
	F(hl_recording_process, FIELD_I32, end_status),
	OPTIONAL(hl_recording_process, FIELD_TEXT, successor),
	OPTIONAL(hl_recording_process, FIELD_TEXT, name),
	F(hl_recording_process, FIELD_U64, peak_mark_ns),
	{"node_count", FIELD_U32, offsetof(struct hl_recording_process, node_count),
	 HL_RECORDING_NODES_MAX, false},
	{"value_count", FIELD_U32, offsetof(struct hl_recording_process, value_count),
	 HL_RECORDING_VALUES_MAX, false},
	{0},
};

static const struct field lost_fields[] = {
	F(hl_recording_lost, FIELD_U64, events),
	F(hl_recording_lost, FIELD_U64, bytes),
	F(hl_recording_lost, FIELD_U64, truncated_stacks),
	F(hl_recording_lost, FIELD_U64, incomplete_stacks),
	F(hl_recording_lost, FIELD_U64, unmatched_frees),
	F(hl_recording_lost, FIELD_U64, modules),
	F(hl_recording_lost, FIELD_U64, unscanned_bytes),
	OPTIONAL(hl_recording_lost, FIELD_U64, inherited_frees),
	OPTIONAL(hl_recording_lost, FIELD_U64, damaged),
	{0},
};

static const struct field module_fields[] = {
	F(hl_recording_module, FIELD_TEXT, path),
	F(hl_recording_module, FIELD_U64, start),
	F(hl_recording_module, FIELD_U64, end),
	F(hl_recording_module, FIELD_U64, load_bias),
	{"build_id", FIELD_BUILD_ID, 0, 0, false},
	{"file_bytes", FIELD_U64, offsetof(struct hl_recording_module, print.bytes), 0, true},
	{"file_mtime_ns", FIELD_U64, offsetof(struct hl_recording_module, print.mtime_ns), 0, true},
	{"file_hash", FIELD_U64, offsetof(struct hl_recording_module, print.hash), 0, true},
	{0},
};

static const struct field thread_fields[] = {
	F(hl_recording_thread, FIELD_U32, tid),
	F(hl_recording_thread, FIELD_NAME, name),
	OPTIONAL(hl_recording_thread, FIELD_U32, earlier_threads),
	{0},
};

static const char *const end_names[] = {
	[HL_END_RUNNING] = "running", [HL_END_EXITED] = "exited",   [HL_END_SIGNALED] = "signaled",
	[HL_END_EXEC] = "exec",	      [HL_END_UNKNOWN] = "unknown",
};

/* ---- writing ---- */

static json_t *text_to_json(const char *bytes, size_t size)
{
	char *text = hl_text_escape(bytes, size);
	json_t *json = text ? json_string(text) : NULL;
	free(text);
	return json;
}

/* Appends ${item}, which it takes over and which may be NULL for want of memory. */
static bool append(json_t *array, json_t *item)
{
	return json_array_append_new(array, item) == 0;
}

static json_t *texts_to_json(char **texts)
{
	json_t *array = json_array();
	bool good = array != NULL;
	for (; good && texts && *texts; texts++)
		good = append(array, text_to_json(*texts, strlen(*texts)));
	if (good)
		return array;
	json_decref(array);
	return NULL;
}

static json_t *build_id_to_json(const struct hl_recording_module *module)
{
	char text[2 * sizeof(module->build_id) + 1];
	return json_string(hl_hex_format(text, module->build_id, module->build_id_bytes));
}

static json_t *field_to_json(const struct field *field, const void *owner)
{
	const void *value = (const char *)owner + field->offset;
	switch (field->type) {
	case FIELD_U32:
		return json_integer(*(const uint32_t *)value);
	case FIELD_U64:
		return json_integer((json_int_t) * (const uint64_t *)value);
	case FIELD_I64:
		return json_integer(*(const int64_t *)value);
	case FIELD_I32:
		return json_integer(*(const int32_t *)value);
	case FIELD_BOOL:
		return json_boolean(*(const bool *)value);
	case FIELD_END:
		return json_string(end_names[*(const enum hl_process_end *)value]);
	case FIELD_FIGURE:
	case FIELD_TEXT: {
		const char *text = *(char *const *)value;
		return text_to_json(text ? text : "", text ? strlen(text) : 0);
	}
	case FIELD_TEXTS:
		return texts_to_json(*(char **const *)value);
	case FIELD_NAME:
		return text_to_json(
			value, strnlen(value, sizeof(((struct hl_recording_thread *)0)->name)));
	case FIELD_BUILD_ID:
		return build_id_to_json(owner);
	}
	return NULL;
}

/* An object with every field of the table; NULL for want of memory. */
static json_t *object_to_json(const struct field *fields, const void *owner)
{
	json_t *object = json_object();
	if (!object)
		return NULL;
	for (const struct field *field = fields; field->key; field++) {
		if (json_object_set_new(object, field->key, field_to_json(field, owner)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *objects_to_json(const struct field *fields, const void *owners, uint32_t count,
			       size_t stride)
{
	json_t *array = json_array();
	bool good = array != NULL;
	for (uint32_t i = 0; good && i < count; i++)
		good = append(array, object_to_json(fields, (const char *)owners + i * stride));
	if (good)
		return array;
	json_decref(array);
	return NULL;
}

static char *dump(json_t *object)
{
	char *text = json_dumps(object, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(object);
	return text;
}

char *hl_recording_to_json(const struct hl_recording *recording)
{
	json_t *object = object_to_json(recording_fields, recording);
	if (!object)
		return NULL;
	int r = json_object_set_new(object, "marks",
				    objects_to_json(mark_fields, recording->marks,
						    recording->mark_count,
						    sizeof(*recording->marks)));
	if (r == 0 && recording->figure_count)
		r = json_object_set_new(object, "figures",
					objects_to_json(figure_fields, recording->figures,
							recording->figure_count,
							sizeof(*recording->figures)));
	if (r == 0)
		return dump(object);
	json_decref(object);
	return NULL;
}

char *hl_recording_process_to_json(const struct hl_recording_process *process)
{
	json_t *object = object_to_json(process_fields, process);
	if (!object)
		return NULL;
	int r = json_object_set_new(object, "lost", object_to_json(lost_fields, &process->lost));
	if (r == 0)
		r = json_object_set_new(object, "modules",
					objects_to_json(module_fields, process->modules,
							process->module_count,
							sizeof(*process->modules)));
	if (r == 0)
		r = json_object_set_new(object, "threads",
					objects_to_json(thread_fields, process->threads,
							process->thread_count,
							sizeof(*process->threads)));
	if (r == 0)
		return dump(object);
	json_decref(object);
	return NULL;
}

/* ---- reading ---- */

struct source {
	const char *path;
	struct hl_error *err;
};

static int bad_key(const struct source *source, const char *key)
{
	return hl_error_set(source->err, -EBADMSG,
			    "cannot read '%s': its key '%s' is missing or malformed", source->path,
			    key);
}

static int out_of_memory(const struct source *source)
{
	return hl_error_set(source->err, -ENOMEM, "cannot read '%s': out of memory", source->path);
}

/* 0, -EINVAL or -ENOMEM, without a sentence. */
static int text_from_json(const json_t *json, char **ret_text)
{
	if (!json_is_string(json))
		return -EINVAL;
	return hl_text_unescape(json_string_value(json), json_string_length(json), ret_text);
}

static int texts_from_json(const json_t *json, char ***ret_texts)
{
	if (!json_is_array(json))
		return -EINVAL;
	size_t count = json_array_size(json);
	char **texts = calloc(count + 1, sizeof(*texts));
	if (!texts)
		return -ENOMEM;
	*ret_texts = texts; /* released with its owner, also when an item is malformed */
	for (size_t i = 0; i < count; i++) {
		int r = text_from_json(json_array_get(json, i), &texts[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int name_from_json(const json_t *json, char name[16])
{
	char *text;
	int r = text_from_json(json, &text);
	if (r < 0)
		return r;
	size_t size = strlen(text);
	if (size <= 16)
		memcpy(name, text, size);
	free(text);
	return size <= 16 ? 0 : -EINVAL;
}

static int build_id_from_json(const json_t *json, struct hl_recording_module *module)
{
	if (!json_is_string(json))
		return -EINVAL;
	int bytes = hl_hex_parse(json_string_value(json), json_string_length(json),
				 module->build_id, sizeof(module->build_id));
	if (bytes < 0)
		return bytes;
	module->build_id_bytes = (uint32_t)bytes;
	return 0;
}

static int end_from_json(const json_t *json, enum hl_process_end *ret_end)
{
	const char *name = json_string_value(json);
	for (size_t i = 0; name && i < HL_COUNT_OF(end_names); i++) {
		if (strcmp(name, end_names[i]) == 0) {
			*ret_end = (enum hl_process_end)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int integer_from_json(const struct field *field, const json_t *json, void *value)
{
	if (!json_is_integer(json))
		return -EINVAL;
	json_int_t integer = json_integer_value(json);
	switch (field->type) {
	case FIELD_U32:
		if (integer < 0 || integer > (json_int_t)(field->max ? field->max : UINT32_MAX))
			return -EINVAL;
		*(uint32_t *)value = (uint32_t)integer;
		return 0;
	case FIELD_I32:
		if (integer < INT32_MIN || integer > INT32_MAX)
			return -EINVAL;
		*(int32_t *)value = (int32_t)integer;
		return 0;
	default:
		*(uint64_t *)value = (uint64_t)integer;
		return 0;
	}
}

static int figure_name_from_json(const json_t *json, char **ret_name)
{
	int r = text_from_json(json, ret_name);
	return r == 0 && !hl_figure_name_is_valid(*ret_name) ? -EINVAL : r;
}

static int field_from_json(const struct field *field, const json_t *json, void *owner)
{
	void *value = (char *)owner + field->offset;
	switch (field->type) {
	case FIELD_U32:
	case FIELD_U64:
	case FIELD_I32:
	case FIELD_I64:
		return integer_from_json(field, json, value);
	case FIELD_BOOL:
		*(bool *)value = json_is_true(json);
		return json_is_boolean(json) ? 0 : -EINVAL;
	case FIELD_END:
		return end_from_json(json, value);
	case FIELD_TEXT:
		return text_from_json(json, value);
	case FIELD_FIGURE:
		return figure_name_from_json(json, value);
	case FIELD_TEXTS:
		return texts_from_json(json, value);
	case FIELD_NAME:
		return name_from_json(json, value);
	case FIELD_BUILD_ID:
		return build_id_from_json(json, owner);
	}
	return -EINVAL;
}

static int object_from_json(const struct source *source, const struct field *fields,
			    const json_t *object, void *owner)
{
	for (const struct field *field = fields; field->key; field++) {
		const json_t *value = json_object_get(object, field->key);
		if (!value && field->optional)
			continue;
		int r = field_from_json(field, value, owner);
		if (r == -ENOMEM)
			return out_of_memory(source);
		if (r < 0)
			return bad_key(source, field->key);
	}
	return 0;
}

/* An array of at most ${max} objects; ${ret_owners} is set as soon as it is allocated. */
static int objects_from_json(const struct source *source, const char *key,
			     const struct field *fields, const json_t *array, size_t max,
			     size_t stride, void **ret_owners, uint32_t *ret_count)
{
	size_t count = json_array_size(array);
	if (!json_is_array(array) || count > max)
		return bad_key(source, key);
	char *owners = calloc(count ? count : 1, stride);
	if (!owners)
		return out_of_memory(source);
	*ret_owners = owners;
	*ret_count = (uint32_t)count;
	for (size_t i = 0; i < count; i++) {
		int r = object_from_json(source, fields, json_array_get(array, i),
					 owners + i * stride);
		if (r < 0)
			return r;
	}
	return 0;
}

static int parse(const struct source *source, const char *text, size_t size, json_t **ret_root)
{
	json_error_t error;
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
	if (root && json_is_object(root)) {
		*ret_root = root;
		return 0;
	}
	json_decref(root);
	if (!root && json_error_code(&error) == json_error_out_of_memory)
		return out_of_memory(source);
	return hl_error_set(source->err, -EBADMSG, "cannot read '%s': malformed JSON: %s",
			    source->path, root ? "not an object" : error.text);
}

static bool has_name_twice(const struct hl_recording_figure *figures, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		for (uint32_t earlier = 0; earlier < i; earlier++)
			if (!strcmp(figures[i].name, figures[earlier].name))
				return true;
	return false;
}

static int figures_from_json(const struct source *source, const json_t *figures,
			     struct hl_recording *recording)
{
	int r = objects_from_json(source, "figures", figure_fields, figures,
				  HL_RECORDING_FIGURES_MAX, sizeof(*recording->figures),
				  (void **)&recording->figures, &recording->figure_count);
	if (r == 0 && has_name_twice(recording->figures, recording->figure_count))
		return bad_key(source, "figures");
	return r;
}

static int recording_from_json(const struct source *source, const json_t *root,
			       struct hl_recording *recording)
{
	const json_t *marks = json_object_get(root, "marks");
	const json_t *figures = json_object_get(root, "figures");
	int r = object_from_json(source, recording_fields, root, recording);
	/* Recordings from before there were marks have no such key. */
	if (r == 0 && marks)
		r = objects_from_json(source, "marks", mark_fields, marks, HL_RECORDING_MARKS_MAX,
				      sizeof(*recording->marks), (void **)&recording->marks,
				      &recording->mark_count);
	if (r == 0 && figures)
		r = figures_from_json(source, figures, recording);
	return r;
}

int hl_recording_from_json(const char *text, size_t size, const char *path,
			   struct hl_recording *recording, struct hl_error *err)
{
	struct source source = {path, err};
	json_t *root;
	int r = parse(&source, text, size, &root);
	if (r < 0)
		return r;
	r = recording_from_json(&source, root, recording);
	json_decref(root);
	return r;
}

static int process_from_json(const struct source *source, const json_t *root,
			     struct hl_recording_process *process)
{
	int r = object_from_json(source, process_fields, root, process);
	if (r == 0)
		r = object_from_json(source, lost_fields, json_object_get(root, "lost"),
				     &process->lost);
	if (r == 0)
		r = objects_from_json(source, "modules", module_fields,
				      json_object_get(root, "modules"), HL_RECORDING_MODULES_MAX,
				      sizeof(*process->modules), (void **)&process->modules,
				      &process->module_count);
	if (r == 0)
		r = objects_from_json(source, "threads", thread_fields,
				      json_object_get(root, "threads"), HL_RECORDING_THREADS_MAX,
				      sizeof(*process->threads), (void **)&process->threads,
				      &process->thread_count);
	return r;
}

int hl_recording_process_from_json(const char *text, size_t size, const char *path,
				   struct hl_recording_process *process, struct hl_error *err)
{
	struct source source = {path, err};
	json_t *root;
	int r = parse(&source, text, size, &root);
	if (r < 0)
		return r;
	r = process_from_json(&source, root, process);
	json_decref(root);
	return r;
}
