/* SPDX-License-Identifier: BSD-2-Clause */
/* What was in use at a moment: read from checkpoints, changed by intervals. */
#include "log/segment.h"

#include "base/array.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODE_MAX   ((1u << 24) - 1)
#define MODULE_MAX 65534u

int hl_log_state_new(struct hl_log_state **ret_state)
{
	struct hl_log_state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	*ret_state = state;
	return 0;
}

void hl_log_state_free(struct hl_log_state *state)
{
	if (!state)
		return;
	for (size_t i = 0; i < state->module_count; i++)
		free((char *)state->modules[i].path);
	for (size_t i = 0; i < state->site_count; i++) {
		free((char *)state->sites[i].function);
		free((char *)state->sites[i].source);
	}
	free(state->sites);
	free(state->modules);
	free(state->nodes);
	free(state->bytes);
	free(state->objects);
	free(state);
}

/* ---- nodes ---- */

static int reserve_node(struct hl_log_state *state, uint64_t id)
{
	if (id < state->node_count)
		return 0;
	if (id > NODE_MAX)
		return -EBADMSG;
	size_t count = (size_t)id + 1;
	/* The arrays have one capacity, which counts once all three have it. */
	size_t bytes = state->node_capacity, objects = bytes, nodes = bytes;
	if (HL_ARRAY_RESERVE_ZEROED(state->bytes, bytes, count) < 0 ||
	    HL_ARRAY_RESERVE_ZEROED(state->objects, objects, count) < 0 ||
	    HL_ARRAY_RESERVE_ZEROED(state->nodes, nodes, count) < 0)
		return -ENOMEM;
	state->node_capacity = nodes;
	state->node_count = count;
	return 0;
}

/* By id, ascending: the difference from the one before, that from its parent, the frame. */
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

/* A text of its own, to be freed. 0, -ENOMEM or -EBADMSG. */
static int read_text(struct hl_byte_reader *content, char **ret_text)
{
	uint64_t length = hl_byte_reader_number(content);
	const uint8_t *bytes = hl_byte_reader_bytes(content, length);
	char *text = bytes ? strndup((const char *)bytes, (size_t)length) : NULL;

	if (!text)
		return bytes ? -ENOMEM : -EBADMSG;
	*ret_text = text;
	return 0;
}

static int read_module(struct hl_byte_reader *content, struct hl_log_module *module)
{
	HL_FREED char *path = NULL;
	int r = read_text(content, &path);

	if (r < 0)
		return r;
	*module = (struct hl_log_module){
		.start = hl_byte_reader_number(content),
		.end = hl_byte_reader_number(content),
		.load_bias = hl_byte_reader_number(content),
	};
	uint64_t bytes = hl_byte_reader_number(content);
	const uint8_t *build_id = hl_byte_reader_bytes(content, bytes);
	if (!build_id || bytes > sizeof(module->build_id))
		return -EBADMSG;
	memcpy(module->build_id, build_id, bytes);
	module->build_id_bytes = (uint32_t)bytes;
	module->path = HL_TAKE(path);
	return 0;
}

/* Modules that are known already are skipped. */
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
		if (i >= state->module_count)
			r = HL_ARRAY_APPEND(state->modules, state->module_count,
					    state->module_capacity, module);
		else
			free((char *)module.path);
		if (r < 0) {
			free((char *)module.path);
			return r;
		}
	}
	return 0;
}

int hl_log_state_read_names(struct hl_byte_reader *content, struct hl_log_state *state)
{
	int r = read_modules(content, state);

	return r < 0 ? r : read_definitions(content, state);
}

/* ---- places in scripts ---- */

static int read_providers(struct hl_byte_reader *content, struct hl_log_state *state)
{
	uint64_t count = hl_byte_reader_number(content);

	if (content->failed || count > HL_SCRIPT_PROVIDERS_MAX)
		return -EBADMSG;
	for (uint64_t i = 0; i < count; i++) {
		HL_FREED char *name = NULL;
		int r = read_text(content, &name);
		if (r < 0)
			return r;
		struct hl_region_provider provider = {
			.eval_start = hl_byte_reader_number(content),
			.eval_end = hl_byte_reader_number(content),
			.cold_start = hl_byte_reader_number(content),
			.cold_end = hl_byte_reader_number(content),
			.text_start = hl_byte_reader_number(content),
			.text_end = hl_byte_reader_number(content),
			.alloc_start = hl_byte_reader_number(content),
			.alloc_end = hl_byte_reader_number(content),
		};
		strncpy(provider.name, name, sizeof(provider.name) - 1);
		state->providers[i] = provider;
	}
	if (count > state->provider_count)
		state->provider_count = (uint32_t)count;
	return content->failed ? -EBADMSG : 0;
}

static int read_site(struct hl_byte_reader *content, struct hl_log_state *state)
{
	HL_FREED char *function = NULL, *source = NULL;
	uint64_t number = hl_byte_reader_number(content);
	struct hl_log_site site = {
		.provider = (uint32_t)hl_byte_reader_number(content),
		.line = (uint32_t)hl_byte_reader_number(content),
		.first_line = (uint32_t)hl_byte_reader_number(content),
	};
	int r = read_text(content, &function);

	if (r == 0)
		r = read_text(content, &source);
	if (r < 0)
		return r;
	if (!number || number > HL_SITES_MAX || site.provider >= HL_SCRIPT_PROVIDERS_MAX ||
	    site.provider >= state->provider_count)
		return -EBADMSG;
	if (HL_ARRAY_RESERVE_ZEROED(state->sites, state->site_capacity, (size_t)number + 1) < 0)
		return -ENOMEM;
	if (number >= state->site_count)
		state->site_count = (size_t)number + 1;
	if (state->sites[number].function) /* it is defined again after each checkpoint */
		return 0;
	site.function = HL_TAKE(function);
	site.source = HL_TAKE(source);
	state->sites[number] = site;
	return 0;
}

/* They end a piece, if new ones are used in it; older versions wrote none. */
static int read_sites(struct hl_byte_reader *content, struct hl_log_state *state)
{
	if (content->failed || content->at == content->end)
		return content->failed ? -EBADMSG : 0;
	int r = read_providers(content, state);
	uint64_t count = r == 0 ? hl_byte_reader_number(content) : 0;
	for (uint64_t i = 0; r == 0 && i < count; i++)
		r = read_site(content, state);
	return r < 0 || !content->failed ? r : -EBADMSG;
}

/* ---- checkpoints ---- */

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

int hl_log_state_read_checkpoint(struct hl_byte_reader *content, struct hl_log_state *state,
				 struct hl_segment_checkpoint_head *ret_head)
{
	struct hl_segment_checkpoint_head head = {hl_byte_reader_number(content),
						  hl_byte_reader_number(content)};

	if (state->node_count) {
		memset(state->bytes, 0, state->node_count * sizeof(*state->bytes));
		memset(state->objects, 0, state->node_count * sizeof(*state->objects));
	}
	state->total_bytes = state->total_objects = 0;
	int r = hl_log_state_read_names(content, state);
	if (r < 0)
		return r;
	uint64_t count = hl_byte_reader_number(content), id = 0;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t gap = hl_byte_reader_number(content);
		int64_t bytes = hl_byte_reader_signed(content);
		int64_t objects = hl_byte_reader_signed(content);
		id += gap;
		if (content->failed || !gap || gap > NODE_MAX)
			return -EBADMSG;
		r = add(state, id, bytes, objects);
		if (r < 0)
			return r;
	}
	r = read_sites(content, state);
	if (r < 0)
		return r;
	*ret_head = head;
	return 0;
}

/* ---- intervals ---- */

int hl_log_state_read_interval(struct hl_byte_reader *content, struct hl_log_state *state,
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
	int r = hl_log_state_read_names(content, state);
	if (r < 0)
		return r;
	uint64_t count = hl_byte_reader_number(content), id = 0;
	/* Each change takes five bytes at least: the content bounds what is allocated. */
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
	return read_sites(content, state);
}

int hl_log_state_apply(struct hl_log_state *state, const struct hl_log_interval *interval,
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
