/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes intervals and checkpoints, and begins and ends segments; see log_writer.h and, for states, log_writer.h. */
#include "log/log_writer.h"

#include "base/array.h"
#include "base/compiler.h"
#include "base/frame_key.h"
#include "log/log.h"
#include "log/segment.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- the state: definitions before they are used, and checkpoints ---- */

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

/* Makes nodes[${node}]. 0 or -ENOMEM. */
static int reserve_node(struct hl_state_writer *writer, uint32_t node)
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

/* Defines ${node} and all outward of it. A cycle, which only damage can make, ends where it closes. *${ret_path}: the
 * innermost node of the path of scripts among them, if there is one. */
static int define_outward(struct hl_state_writer *writer, uint32_t node, uint32_t *ret_path)
{
	const struct hl_log_names *names = writer->names;
	uint64_t frame;
	uint32_t parent;

	for (; node; node = parent) {
		if (reserve_node(writer, node) < 0)
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
		hl_frame_key_is_path(frame, ret_path);
	}
	return 0;
}

int hl_state_writer_define(struct hl_state_writer *writer, uint32_t node)
{
	uint32_t path = 0, none;

	int r = define_outward(writer, node, &path);
	return r < 0 || !path ? r : define_outward(writer, path, &none);
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

/* Writes places in scripts that are new since the last piece, at the end of a piece. Out of memory, the buffer fails. */
static void put_new_sites(struct hl_state_writer *writer, struct hl_byte_buffer *buffer)
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
	put_new_sites(writer, buffer);
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

/* ---- segments ---- */

/* Between checkpoints lie this many bytes of intervals, or this many times the last one's. */
#define CHECKPOINT_BYTES (UINT64_C(1) << 20)
#define CHECKPOINT_RATIO 4

/* After this many idle intervals one is written all the same, to show that time passes. */
#define IDLE_INTERVALS_MAX 100

/* So that the index of a segment stays small, however little happens. */
#define SEGMENT_INTERVALS_MAX 1000000

struct hl_log_writer {
	struct hl_log_settings settings;
	struct hl_log_rotation files;
	struct hl_piece_writer pieces;
	struct hl_segment_index index; /* of the open segment */
	struct hl_byte_buffer raw;
	struct hl_state_writer state; /* at the end of the last interval */
	bool needs_checkpoint;
	uint64_t checkpoint_bytes, bytes_since_checkpoint;
	uint64_t next_interval; /* after the last that was written, or is missing */
	struct hl_log_interval
		idle; /* the last one, if nothing happened in it and it is not written */
	uint64_t idle_rss_bytes, idle_lost_events;
	bool is_idle;
	uint64_t missing;
	uint64_t missing_before; /* the last interval that was written */
};

int hl_log_writer_new(const struct hl_log_settings *settings, struct hl_log_writer **ret_writer)
{
	struct hl_log_writer *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return -ENOMEM;
	writer->settings = *settings;
	writer->files = (struct hl_log_rotation){
		.kind = &hl_log_segments,
		.directory_fd = settings->directory_fd,
		.process = settings->process,
		.start_realtime_ns = settings->start_realtime_ns,
		.most = settings->segments_kept,
	};
	writer->pieces.fd = -1;
	writer->state.names = settings->names;
	*ret_writer = writer;
	return 0;
}

/* Writes the whole state before interval ${next}. */
static int write_checkpoint(struct hl_log_writer *writer, uint64_t next)
{
	uint64_t offset = writer->pieces.position;

	hl_byte_buffer_clear(&writer->raw);
	int r = hl_state_writer_put_checkpoint(&writer->state, &writer->raw, next, writer->missing);
	if (r < 0)
		return r;
	r = hl_piece_writer_write(&writer->pieces, HL_PIECE_CHECKPOINT, HL_PIECE_FRAME,
				  &writer->raw);
	if (r < 0)
		return r;
	writer->checkpoint_bytes = writer->pieces.position - offset;
	writer->bytes_since_checkpoint = 0;
	writer->needs_checkpoint = false;
	return hl_segment_index_add_checkpoint(&writer->index, next, offset);
}

static void close_segment(struct hl_log_writer *writer)
{
	hl_piece_writer_close(&writer->pieces);
	hl_segment_index_clear(&writer->index);
}

/* A segment without its first checkpoint is deleted again. */
static int open_segment(struct hl_log_writer *writer, uint64_t first_interval)
{
	int r = hl_log_rotation_begin(&writer->files, first_interval, &writer->pieces);

	if (r < 0)
		return r;
	r = write_checkpoint(writer, first_interval);
	if (r < 0) {
		hl_log_rotation_abandon(&writer->files);
		close_segment(writer);
	} else {
		hl_log_rotation_delete_oldest(&writer->files);
	}
	return r;
}

/* Ends the open segment, if there is one. Without its index it can still be read, but slower. */
static int finish_segment(struct hl_log_writer *writer)
{
	struct hl_segment_trailer trailer = {.index_offset = writer->pieces.position};

	if (writer->pieces.fd < 0)
		return 0;
	writer->index.missing_count = writer->missing;
	hl_byte_buffer_clear(&writer->raw);
	hl_segment_index_write(&writer->index, &writer->raw);
	int r = hl_piece_writer_write(&writer->pieces, HL_PIECE_INDEX, HL_PIECE_FRAME,
				      &writer->raw);
	memcpy(trailer.magic, HL_SEGMENT_MAGIC, sizeof(trailer.magic));
	trailer.hash = XXH3_64bits(&trailer, offsetof(struct hl_segment_trailer, hash));
	if (r == 0)
		r = hl_piece_writer_write_bytes(&writer->pieces, &trailer, sizeof(trailer));
	close_segment(writer);
	return r;
}

/* ---- intervals ---- */

static int put_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			uint64_t rss_bytes, uint64_t lost_events)
{
	struct hl_byte_buffer *buffer = &writer->raw;
	uint32_t before = 0;

	for (size_t i = 0; i < interval->change_count; i++)
		if (hl_state_writer_define(&writer->state, interval->changes[i].node) < 0)
			return -ENOMEM;
	hl_byte_buffer_clear(buffer);
	hl_byte_buffer_number(buffer, interval->number);
	hl_byte_buffer_number(buffer, interval->max_tick);
	hl_byte_buffer_signed(buffer, interval->max_bytes);
	hl_byte_buffer_signed(buffer, interval->max_objects);
	hl_byte_buffer_signed(buffer, interval->end_bytes);
	hl_byte_buffer_signed(buffer, interval->end_objects);
	hl_byte_buffer_number(buffer, rss_bytes);
	hl_byte_buffer_number(buffer, interval->events);
	hl_byte_buffer_number(buffer, lost_events);
	hl_state_writer_put_names(&writer->state, buffer);
	hl_byte_buffer_number(buffer, interval->change_count);
	for (size_t i = 0; i < interval->change_count; i++) {
		const struct hl_log_change *change = &interval->changes[i];
		hl_byte_buffer_number(buffer, change->node - before);
		hl_byte_buffer_signed(buffer, change->max_bytes);
		hl_byte_buffer_signed(buffer, change->max_objects);
		hl_byte_buffer_signed(buffer, change->rest_bytes);
		hl_byte_buffer_signed(buffer, change->rest_objects);
		before = change->node;
	}
	put_new_sites(&writer->state, buffer);
	return 0;
}

static int write_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			  uint64_t rss_bytes, uint64_t lost_events)
{
	uint64_t begin = writer->pieces.position;

	int r = put_interval(writer, interval, rss_bytes, lost_events);
	if (r == 0)
		r = hl_piece_writer_write(&writer->pieces, HL_PIECE_INTERVAL, 0, &writer->raw);
	if (r < 0)
		return r;
	writer->bytes_since_checkpoint += writer->pieces.position - begin;
	struct hl_log_point point = {
		.number = interval->number,
		.max_bytes = interval->max_bytes,
		.end_bytes = interval->end_bytes,
		.rss_bytes = rss_bytes,
		.missing = writer->missing != writer->missing_before,
	};
	writer->missing_before = writer->missing;
	writer->index.lost_events = lost_events;
	return hl_segment_index_add_point(&writer->index, &point);
}

static bool is_idle(const struct hl_log_writer *writer, const struct hl_log_interval *interval)
{
	return writer->pieces.fd >= 0 && !writer->needs_checkpoint && !interval->events &&
	       interval->number < writer->next_interval + IDLE_INTERVALS_MAX &&
	       !hl_piece_writer_lost_file(&writer->pieces);
}

/* Writes the interval, before it a checkpoint or the beginning of a segment where it is time. */
static int try_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			uint64_t rss_bytes, uint64_t lost_events)
{
	uint64_t distance = CHECKPOINT_RATIO * writer->checkpoint_bytes;
	int r = 0;

	if (distance < CHECKPOINT_BYTES)
		distance = CHECKPOINT_BYTES;
	if (writer->pieces.position >= writer->settings.segment_bytes ||
	    writer->index.point_count >= SEGMENT_INTERVALS_MAX)
		finish_segment(writer);
	if (hl_piece_writer_lost_file(&writer->pieces))
		close_segment(writer);
	if (writer->pieces.fd < 0)
		r = open_segment(writer, interval->number);
	else if (writer->needs_checkpoint || writer->bytes_since_checkpoint > distance)
		r = write_checkpoint(writer, interval->number);
	return r < 0 ? r : write_interval(writer, interval, rss_bytes, lost_events);
}

int hl_log_writer_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			   uint64_t rss_bytes, uint64_t lost_events)
{
	int followed = 0;

	writer->is_idle = is_idle(writer, interval);
	if (writer->is_idle) {
		writer->idle = *interval;
		writer->idle.change_count = 0;
		writer->idle_rss_bytes = rss_bytes;
		writer->idle_lost_events = lost_events;
		return 0;
	}
	int r = try_interval(writer, interval, rss_bytes, lost_events);
	/* The state follows the changes, written or not. A node without room for its state is new:
	 * there was none to define it either. */
	for (size_t i = 0; i < interval->change_count; i++) {
		const struct hl_log_change *change = &interval->changes[i];
		if (reserve_node(&writer->state, change->node) < 0) {
			followed = -ENOMEM;
			continue;
		}
		struct hl_state_node *node = &writer->state.nodes[change->node];
		node->bytes += change->max_bytes + change->rest_bytes;
		node->objects += change->max_objects + change->rest_objects;
	}
	if (r < 0) {
		writer->missing++;
		writer->needs_checkpoint = true;
	}
	writer->next_interval = interval->number + 1;
	return r < 0 ? r : followed;
}

void hl_log_writer_in_use(const struct hl_log_writer *writer, uint32_t node, int64_t *ret_bytes,
			  int64_t *ret_objects)
{
	bool known = node < writer->state.node_count;

	*ret_bytes = known ? writer->state.nodes[node].bytes : 0;
	*ret_objects = known ? writer->state.nodes[node].objects : 0;
}

int hl_log_writer_mark(struct hl_log_writer *writer, uint64_t tick, const char *text)
{
	size_t length = strlen(text);

	if (writer->pieces.fd < 0 || writer->needs_checkpoint)
		return -EAGAIN;
	hl_byte_buffer_clear(&writer->raw);
	hl_byte_buffer_number(&writer->raw, tick);
	hl_byte_buffer_number(&writer->raw, length);
	hl_byte_buffer_put(&writer->raw, text, length);
	int r = hl_piece_writer_write(&writer->pieces, HL_PIECE_MARK, 0, &writer->raw);
	if (r < 0)
		writer->needs_checkpoint = true;
	return r < 0 ? r : hl_segment_index_add_mark(&writer->index, tick, text, length);
}

void hl_log_writer_keep(struct hl_log_writer *writer, uint32_t kept)
{
	writer->files.most = kept;
	hl_log_rotation_delete_oldest(&writer->files);
}

uint32_t hl_log_writer_kept(const struct hl_log_writer *writer)
{
	return writer->files.most;
}

uint64_t hl_log_writer_missing(const struct hl_log_writer *writer)
{
	return writer->missing;
}

int hl_log_writer_finish(struct hl_log_writer *writer)
{
	if (!writer)
		return 0;
	/* The log lasts until its last interval, even if nothing happened in it. */
	int r = writer->is_idle ? write_interval(writer, &writer->idle, writer->idle_rss_bytes,
						 writer->idle_lost_events)
				: 0;
	int finished = finish_segment(writer);
	if (r == 0)
		r = finished;
	hl_piece_writer_release(&writer->pieces);
	hl_segment_index_release(&writer->index);
	hl_byte_buffer_release(&writer->raw);
	hl_state_writer_release(&writer->state);
	hl_log_rotation_release(&writer->files);
	free(writer);
	return r;
}
