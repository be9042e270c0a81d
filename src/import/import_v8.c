/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the sampled heap profiles of V8 (node --heap-prof, Chrome's DevTools), files *.heapprofile: a tree
 * of JSON objects. A node's selfSize is an estimate of the bytes in use that it allocated itself.
 *
 *	{"head":{"callFrame":{"functionName":"f","scriptId":"80","url":"file:///x.js","lineNumber":6,
 *	 "columnNumber":9},"selfSize":4312,"id":3,"children":[...]},"samples":[...]}
 */
#include "import/importer.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define HEAD_MARK   "{\"head\":{\"callFrame\":{"
#define ANONYMOUS   "(anonymous)"
#define FILE_SCHEME "file://"

struct v8 {
	const struct hl_import_input *input;
	struct hl_builder builder;
	struct hl_import_values values;
};

static const char *text_member(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* The function of ${frame}: name, file, and the line that it begins at; V8 counts lines from 0. */
static int add_function(struct v8 *v8, const json_t *frame, uint32_t parent, uint32_t *ret_node)
{
	const char *name = text_member(frame, "functionName"), *url = text_member(frame, "url");
	json_int_t line = json_integer_value(json_object_get(frame, "lineNumber")) + 1;
	uint32_t id;

	if (!strncmp(url, FILE_SCHEME, strlen(FILE_SCHEME)))
		url += strlen(FILE_SCHEME);
	const struct hl_symbols_frame symbol = {
		.function = name[0] ? name : ANONYMOUS,
		.function_file = url,
		.file = url,
		.function_line = line > 0 && line <= UINT32_MAX ? (uint32_t)line : 0,
		.line = line > 0 && line <= UINT32_MAX ? (uint32_t)line : 0,
	};
	int r = hl_builder_frame(&v8->builder, &symbol, 0, 0, &id);
	return r < 0 ? r : hl_builder_child(&v8->builder, parent, id, ret_node);
}

static int bad_node(const struct v8 *v8, const char *reason, struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG, "cannot read '%s': a node of the tree %s",
			    v8->input->name, reason);
}

/* Adds ${tree} and all below it; jansson has refused what is nested too deeply. */
static int add_tree(struct v8 *v8, const json_t *tree, uint32_t parent, bool is_root,
		    struct hl_error *err)
{
	const json_t *frame = json_object_get(tree, "callFrame");
	const json_t *size = json_object_get(tree, "selfSize");
	const json_t *children = json_object_get(tree, "children");
	struct hl_import_value value = {.node = parent,
					.counters.alloc_bytes = json_integer_value(size)};
	int r = 0;

	if (!json_is_object(frame) || !json_is_integer(size) || json_integer_value(size) < 0)
		return bad_node(v8, "has no 'callFrame' or no 'selfSize'", err);
	if (!is_root)
		r = add_function(v8, frame, parent, &value.node);
	if (r == 0 && value.counters.alloc_bytes && is_root)
		r = hl_builder_node(&v8->builder, 0, HL_BUILDER_PSEUDO, 0, &value.node);
	if (r == 0 && value.counters.alloc_bytes)
		r = hl_import_values_add(&v8->values, &value);
	for (size_t i = 0; r == 0 && i < json_array_size(children); i++)
		r = add_tree(v8, json_array_get(children, i), is_root ? 0 : value.node, false, err);
	return r;
}

static bool detects(const struct hl_import_input *input)
{
	return input->size >= strlen(HEAD_MARK) &&
	       !memcmp(input->bytes, HEAD_MARK, strlen(HEAD_MARK));
}

static int read_v8(const struct hl_import_input *input, struct hl_profile **ret_profile,
		   struct hl_error *err)
{
	struct v8 v8 = {.input = input};
	json_error_t problem;

	json_t *file = json_loadb((const char *)input->bytes, input->size, JSON_DISABLE_EOF_CHECK,
				  &problem);
	if (!file && json_error_code(&problem) == json_error_out_of_memory)
		return hl_importer_fail(input, -ENOMEM, err);
	if (!file)
		return hl_error_set(err, -EBADMSG, "cannot read '%s': line %d, column %d: %s",
				    input->name, problem.line, problem.column, problem.text);
	int r = hl_builder_init(&v8.builder);
	if (r == 0)
		r = add_tree(&v8, json_object_get(file, "head"), 0, true, err);
	if (r == 0)
		r = hl_import_values_finish(&v8.values, false, &v8.builder, ret_profile);
	if (r == 0)
		(*ret_profile)->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	hl_builder_release(&v8.builder);
	hl_import_values_release(&v8.values);
	json_decref(file);
	return hl_importer_fail(input, r, err);
}

const struct hl_importer hl_importer_v8 = {
	.name = "v8",
	.detects = detects,
	.read = read_v8,
};
