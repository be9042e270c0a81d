/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes definitions before they are used, and checkpoints; see piece_writer.h. */
#include "log/piece_writer.h"

#include "base/array.h"
#include "base/compiler.h"
#include "base/frame_key.h"
#include "log/log_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- modules ---- */

/* The modules that are new since the last piece. A module that cannot be read has no name. */
static void put_modules(struct hl_state_writer *writer, struct hl_byte_buffer *buffer)
{
	const struct hl_log_names *names = writer->names;
	uint32_t count = names->module_count(names);

	if (count < writer->module_count)
		count = writer->module_count;
	hl_byte_buffer_number(buffer, writer->module_count);
	hl_byte_buffer_number(buffer, count - writer->module_count);
	while (writer->module_count < count) {
		struct hl_log_module module;
		writer->module_count++;
		if (!names->module(names, writer->module_count, &module))
			module = (struct hl_log_module){.path = ""};
		size_t length = strlen(module.path);
		hl_byte_buffer_number(buffer, length);
		hl_byte_buffer_put(buffer, module.path, length);
		hl_byte_buffer_number(buffer, module.start);
		hl_byte_buffer_number(buffer, module.end);
		hl_byte_buffer_number(buffer, module.load_bias);
		hl_byte_buffer_number(buffer, module.build_id_bytes);
		hl_byte_buffer_put(buffer, module.build_id, module.build_id_bytes);
	}
}

/* ---- nodes ---- */

int hl_state_writer_reserve(struct hl_state_writer *writer, uint32_t node)
{
	if (HL_ARRAY_RESERVE_ZEROED(writer->nodes, writer->node_capacity, (size_t)node + 1) < 0)
		return -ENOMEM;
	if (node >= writer->node_count)
		writer->node_count = node + 1;
	return 0;
}

/* Has the place in a script that ${frame} stands for written, unless it was since the last checkpoint. 0 or -ENOMEM. */
static int define_site(struct hl_state_writer *writer, uint64_t frame)
{
	uint32_t site;

	if (!writer->names->site || !hl_frame_key_is_site(frame, &site) || site > HL_SITES_MAX)
		return 0;
	if (HL_ARRAY_RESERVE_ZEROED(writer->site_rounds, writer->site_round_capacity,
				    (size_t)site + 1) < 0)
		return -ENOMEM;
	if (writer->site_rounds[site] == writer->round)
		return 0;
	writer->site_rounds[site] = writer->round;
	return HL_ARRAY_APPEND(writer->sites, writer->site_count, writer->site_capacity, site);
}

/* A cycle, which only damage can make, ends where it closes. */
int hl_state_writer_define(struct hl_state_writer *writer, uint32_t node)
{
	const struct hl_log_names *names = writer->names;
	uint64_t frame;
	uint32_t parent;

	for (; node; node = parent) {
		if (hl_state_writer_reserve(writer, node) < 0)
			return -ENOMEM;
		if (writer->nodes[node].defined_in == writer->round)
			break;
		if (!names->node(names, node, &frame, &parent))
			break;
		if (HL_ARRAY_APPEND(writer->definitions, writer->definition_count,
				    writer->definition_capacity,
				    (struct hl_state_definition){frame, node, parent}) < 0)
			return -ENOMEM;
		writer->nodes[node].defined_in = writer->round;
		if (define_site(writer, frame) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int by_node(const void *left, const void *right)
{
	const struct hl_state_definition *a = left, *b = right;

	return (a->node > b->node) - (a->node < b->node);
}

/*
 * By id, as differences: ids are given out along stacks, so most of them are one more than the one
 * before and than their parent, and stacks of the same functions look alike to the compressor.
 * That makes them a fifth of what they are in the order in which they were needed.
 */
static void put_definitions(struct hl_state_writer *writer, struct hl_byte_buffer *buffer)
{
	uint32_t before = 0;

	if (writer->definition_count > 1)
		qsort(writer->definitions, writer->definition_count, sizeof(*writer->definitions),
		      by_node);
	hl_byte_buffer_number(buffer, writer->definition_count);
	for (size_t i = 0; i < writer->definition_count; i++) {
		const struct hl_state_definition *definition = &writer->definitions[i];
		hl_byte_buffer_number(buffer, definition->node - before);
		hl_byte_buffer_signed(buffer, (int64_t)definition->node - definition->parent);
		hl_byte_buffer_number(buffer, definition->frame >> 48);
		hl_byte_buffer_number(buffer, definition->frame & ((UINT64_C(1) << 48) - 1));
		before = definition->node;
	}
	writer->definition_count = 0;
}

void hl_state_writer_put_names(struct hl_state_writer *writer, struct hl_byte_buffer *buffer)
{
	put_modules(writer, buffer);
	put_definitions(writer, buffer);
}

/* ---- places in scripts ---- */

static void put_text(struct hl_byte_buffer *buffer, const char *text, size_t length)
{
	hl_byte_buffer_number(buffer, length);
	hl_byte_buffer_put(buffer, text, length);
}

static void put_providers(const struct hl_log_names *names, struct hl_byte_buffer *buffer)
{
	struct hl_region_provider providers[HL_SCRIPT_PROVIDERS_MAX];
	uint32_t count = 0;

	while (count < HL_SCRIPT_PROVIDERS_MAX && names->provider(names, count, &providers[count]))
		count++;
	hl_byte_buffer_number(buffer, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_region_provider *source = &providers[i];
		put_text(buffer, source->name, strnlen(source->name, sizeof(source->name)));
		const uint64_t places[] = {source->eval_start,	source->eval_end,
					   source->cold_start,	source->cold_end,
					   source->text_start,	source->text_end,
					   source->alloc_start, source->alloc_end};
		for (size_t place = 0; place < HL_COUNT_OF(places); place++)
			hl_byte_buffer_number(buffer, places[place]);
	}
}

void hl_state_writer_put_sites(struct hl_state_writer *writer, struct hl_byte_buffer *buffer)
{
	const struct hl_log_names *names = writer->names;

	if (!writer->site_count)
		return;
	put_providers(names, buffer);
	hl_byte_buffer_number(buffer, writer->site_count);
	for (size_t i = 0; i < writer->site_count; i++) {
		struct hl_log_site site;
		if (!names->site(names, writer->sites[i], &site))
			site = (struct hl_log_site){.function = "", .source = ""};
		hl_byte_buffer_number(buffer, writer->sites[i]);
		hl_byte_buffer_number(buffer, site.provider);
		hl_byte_buffer_number(buffer, site.line);
		hl_byte_buffer_number(buffer, site.first_line);
		put_text(buffer, site.function, strlen(site.function));
		put_text(buffer, site.source, strlen(site.source));
	}
	writer->site_count = 0;
}

/* ---- checkpoints ---- */

static bool holds_something(const struct hl_state_node *node)
{
	return node->bytes || node->objects;
}

int hl_state_writer_put_checkpoint(struct hl_state_writer *writer, struct hl_byte_buffer *buffer,
				   uint64_t next, uint64_t missing)
{
	uint32_t before = 0;
	uint64_t count = 0;

	writer->round++;
	writer->module_count = 0;
	writer->definition_count = writer->site_count = 0;
	hl_byte_buffer_number(buffer, next);
	hl_byte_buffer_number(buffer, missing);
	/* Nodes may be added by this, at the end: parents that hold nothing. */
	for (uint32_t i = 1; i < writer->node_count; i++) {
		if (!holds_something(&writer->nodes[i]))
			continue;
		count++;
		if (hl_state_writer_define(writer, i) < 0)
			return -ENOMEM;
	}
	hl_state_writer_put_names(writer, buffer);
	hl_byte_buffer_number(buffer, count);
	for (uint32_t i = 1; i < writer->node_count; i++) {
		if (!holds_something(&writer->nodes[i]))
			continue;
		hl_byte_buffer_number(buffer, i - before);
		hl_byte_buffer_signed(buffer, writer->nodes[i].bytes);
		hl_byte_buffer_signed(buffer, writer->nodes[i].objects);
		before = i;
	}
	hl_state_writer_put_sites(writer, buffer);
	return 0;
}

void hl_state_writer_release(struct hl_state_writer *writer)
{
	free(writer->definitions);
	free(writer->site_rounds);
	free(writer->sites);
	free(writer->nodes);
	*writer = (struct hl_state_writer){0};
}
