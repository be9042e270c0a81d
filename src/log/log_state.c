/* SPDX-License-Identifier: BSD-2-Clause */
/* What was in use at a moment: read from checkpoints, changed by intervals. */
#include "log/segment.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODE_MAX   ((1u << 24) - 1)
#define MODULE_MAX 65534u

/* A state's arrays have one capacity, a power of two; so its size tells when they are full. */
static size_t capacity_of(size_t count)
{
	size_t capacity = 1024;

	while (capacity < count)
		capacity *= 2;
	return capacity;
}

int hl_log_state_new(struct hl_log_state **ret_state)
{
	struct hl_log_state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	*ret_state = state;
	return 0;
}

static void clear_modules(struct hl_log_state *state)
{
	for (size_t i = 0; i < state->module_count; i++)
		free((char *)state->modules[i].path);
	free(state->modules);
	state->modules = NULL;
	state->module_count = 0;
}

void hl_log_state_free(struct hl_log_state *state)
{
	if (!state)
		return;
	clear_modules(state);
	free(state->nodes);
	free(state->bytes);
	free(state->objects);
	free(state);
}

/* ---- nodes ---- */

static int grow_array(void *array, size_t old_count, size_t capacity, size_t element_bytes)
{
	void *storage;

	memcpy(&storage, array, sizeof(storage)); /* the pointer's own type is not known here */
	storage = reallocarray(storage, capacity, element_bytes);
	if (!storage)
		return -ENOMEM;
	memset((char *)storage + old_count * element_bytes, 0,
	       (capacity - old_count) * element_bytes);
	memcpy(array, &storage, sizeof(storage));
	return 0;
}

static int reserve_node(struct hl_log_state *state, uint64_t id)
{
	if (id < state->node_count)
		return 0;
	if (id > NODE_MAX)
		return -EBADMSG;
	size_t old = state->nodes ? capacity_of(state->node_count) : 0;
	size_t capacity = capacity_of((size_t)id + 1);
	if (capacity > old &&
	    (grow_array(&state->nodes, old, capacity, sizeof(*state->nodes)) < 0 ||
	     grow_array(&state->bytes, old, capacity, sizeof(*state->bytes)) < 0 ||
	     grow_array(&state->objects, old, capacity, sizeof(*state->objects)) < 0))
		return -ENOMEM;
	state->node_count = (size_t)id + 1;
	return 0;
}

/* By id, ascending: the difference to the one before, that to its parent, the frame. */
static int read_definitions(struct hl_byte_reader *content, struct hl_log_state *state)
{
	uint64_t count = hl_byte_reader_number(content), id = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t gap = hl_byte_reader_number(content);
		id += gap;
		uint64_t parent = id - (uint64_t)hl_byte_reader_signed(content);
		uint64_t module = hl_byte_reader_number(content);
		uint64_t low = hl_byte_reader_number(content);
		if (content->failed || !gap || gap > NODE_MAX || parent > NODE_MAX ||
		    module > 0xffff || low >> 48)
			return -EBADMSG;
		int r = reserve_node(state, id > parent ? id : parent);
		if (r < 0)
			return r;
		state->nodes[id] = (struct hl_log_node){module << 48 | low, (uint32_t)parent, true};
	}
	return content->failed ? -EBADMSG : 0;
}

/* ---- modules ---- */

static char *read_text(struct hl_byte_reader *content)
{
	uint64_t length = hl_byte_reader_number(content);
	const uint8_t *bytes = hl_byte_reader_bytes(content, length);

	return bytes ? strndup((const char *)bytes, (size_t)length) : NULL;
}

static int read_module(struct hl_byte_reader *content, struct hl_log_module *module)
{
	char *path = read_text(content);

	if (!path)
		return content->failed ? -EBADMSG : -ENOMEM;
	*module = (struct hl_log_module){
		.path = path,
		.start = hl_byte_reader_number(content),
		.end = hl_byte_reader_number(content),
		.load_bias = hl_byte_reader_number(content),
	};
	uint64_t bytes = hl_byte_reader_number(content);
	const uint8_t *build_id = hl_byte_reader_bytes(content, bytes);
	if (!build_id || bytes > sizeof(module->build_id)) {
		free(path);
		return -EBADMSG;
	}
	memcpy(module->build_id, build_id, bytes);
	module->build_id_bytes = (uint32_t)bytes;
	return 0;
}

/* Those that are known already are read past. */
static int read_modules(struct hl_byte_reader *content, struct hl_log_state *state)
{
	uint64_t first = hl_byte_reader_number(content);
	uint64_t count = hl_byte_reader_number(content);

	if (content->failed || first > state->module_count || count > MODULE_MAX ||
	    first + count > MODULE_MAX)
		return -EBADMSG;
	for (uint64_t i = first; i < first + count; i++) {
		struct hl_log_module module;
		int r = read_module(content, &module);
		if (r < 0)
			return r;
		if (i < state->module_count) {
			free((char *)module.path);
			continue;
		}
		if (grow_array(&state->modules, state->module_count, state->module_count + 1,
			       sizeof(module)) < 0) {
			free((char *)module.path);
			return -ENOMEM;
		}
		state->modules[state->module_count++] = module;
	}
	return 0;
}

int hl_segment_read_names(struct hl_byte_reader *content, struct hl_log_state *state)
{
	int r = read_modules(content, state);
	return r < 0 ? r : read_definitions(content, state);
}

/* ---- checkpoints ---- */

static void clear_figures(struct hl_log_state *state)
{
	if (state->node_count) {
		memset(state->bytes, 0, state->node_count * sizeof(*state->bytes));
		memset(state->objects, 0, state->node_count * sizeof(*state->objects));
	}
	state->total_bytes = state->total_objects = 0;
}

static int add(struct hl_log_state *state, uint64_t id, int64_t bytes, int64_t objects)
{
	int r = reserve_node(state, id);
	if (r < 0)
		return r;
	state->bytes[id] += bytes;
	state->objects[id] += objects;
	state->total_bytes += bytes;
	state->total_objects += objects;
	return 0;
}

static int read_figures(struct hl_byte_reader *content, struct hl_log_state *state)
{
	uint64_t count = hl_byte_reader_number(content), id = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t gap = hl_byte_reader_number(content);
		int64_t bytes = hl_byte_reader_signed(content);
		int64_t objects = hl_byte_reader_signed(content);
		id += gap;
		if (content->failed || !gap || gap > NODE_MAX)
			return -EBADMSG;
		int r = add(state, id, bytes, objects);
		if (r < 0)
			return r;
	}
	return content->failed ? -EBADMSG : 0;
}

int hl_segment_read_checkpoint(struct hl_byte_reader *content, struct hl_log_state *state,
			       struct hl_segment_checkpoint_head *ret_head)
{
	struct hl_segment_checkpoint_head head = {hl_byte_reader_number(content),
						  hl_byte_reader_number(content)};

	clear_figures(state);
	int r = hl_segment_read_names(content, state);
	if (r == 0)
		r = read_figures(content, state);
	if (r == 0)
		*ret_head = head;
	return r;
}

/* ---- intervals ---- */

static int read_changes(struct hl_byte_reader *content, struct hl_segment_interval *interval)
{
	uint64_t count = hl_byte_reader_number(content), id = 0;

	/* Each takes five bytes at least, so a count is never believed further than memory goes. */
	if (content->failed || count > (uint64_t)(content->end - content->at))
		return -EBADMSG;
	if (HL_ARRAY_RESERVE(interval->changes, interval->change_capacity, (size_t)count + 1) < 0)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t gap = hl_byte_reader_number(content);
		id += gap;
		interval->changes[i] = (struct hl_log_change){
			.node = (uint32_t)id,
			.max_bytes = hl_byte_reader_signed(content),
			.max_objects = hl_byte_reader_signed(content),
			.rest_bytes = hl_byte_reader_signed(content),
			.rest_objects = hl_byte_reader_signed(content),
		};
		if (content->failed || !gap || gap > NODE_MAX || id > NODE_MAX)
			return -EBADMSG;
	}
	interval->interval.changes = interval->changes;
	interval->interval.change_count = (size_t)count;
	return 0;
}

int hl_segment_read_interval(struct hl_byte_reader *content, struct hl_log_state *state,
			     struct hl_segment_interval *interval)
{
	interval->interval = (struct hl_log_interval){
		.number = hl_byte_reader_number(content),
		.max_tick = hl_byte_reader_number(content),
		.max_bytes = hl_byte_reader_signed(content),
		.max_objects = hl_byte_reader_signed(content),
		.end_bytes = hl_byte_reader_signed(content),
		.end_objects = hl_byte_reader_signed(content),
	};
	interval->rss_bytes = hl_byte_reader_number(content);
	interval->interval.events = hl_byte_reader_number(content);
	interval->lost_events = hl_byte_reader_number(content);
	int r = hl_segment_read_names(content, state);
	return r < 0 ? r : read_changes(content, interval);
}

int hl_segment_apply(struct hl_log_state *state, const struct hl_log_interval *interval,
		     enum hl_log_moment part)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < interval->change_count; i++) {
		const struct hl_log_change *change = &interval->changes[i];
		if (part == HL_LOG_AT_MAX)
			r = add(state, change->node, change->max_bytes, change->max_objects);
		else
			r = add(state, change->node, change->rest_bytes, change->rest_objects);
	}
	return r;
}
