/* SPDX-License-Identifier: BSD-2-Clause */
/* State, checkpoints, and segments that come and go; see segment_writer.h. */
#include "log/segment_writer.h"

#include "log/piece_writer.h"
#include "log/segment_index.h"
#include "profile/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Between checkpoints lie this many bytes of intervals, or this many times the last one's. */
#define CHECKPOINT_BYTES (UINT64_C(1) << 20)
#define CHECKPOINT_RATIO 4

/* One in which nothing happens is written all the same after so many, to show that time passes. */
#define IDLE_INTERVALS_MAX 100

/* So that the index of a segment stays small, however little happens. */
#define SEGMENT_INTERVALS_MAX 1000000

#define NS_PER_SECOND UINT64_C(1000000000)

/* What a node holds at the end of the last interval. */
struct node_state {
	int64_t bytes, objects;
	uint32_t defined_in; /* round of definitions */
};

struct kept_segment {
	uint32_t number;
	char name[HL_SEGMENT_NAME_MAX];
};

struct hl_log_writer {
	struct hl_log_settings settings;
	struct hl_piece_writer pieces;
	struct hl_segment_index index; /* of the open segment */
	struct hl_byte_buffer raw, definitions;
	struct node_state *nodes;
	size_t node_capacity;
	uint32_t node_count;   /* largest id + 1 */
	uint32_t segment;      /* number of the newest */
	uint32_t module_count; /* that were named since the last checkpoint */
	uint32_t round;	       /* of definitions: each checkpoint begins a new one */
	bool needs_checkpoint;
	uint64_t checkpoint_bytes, bytes_since_checkpoint;
	uint64_t next_interval; /* after the last that was written, or is missing */
	struct hl_log_interval
		idle; /* the last one, if nothing happened in it and it is not written */
	uint64_t idle_rss_bytes, idle_lost_events;
	bool is_idle;
	uint64_t missing;
	uint64_t missing_before;   /* the last interval that was written */
	struct kept_segment *kept; /* oldest first */
	size_t kept_count, kept_capacity;
};

int hl_log_writer_new(const struct hl_log_settings *settings, struct hl_log_writer **ret_writer)
{
	struct hl_log_writer *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return -ENOMEM;
	writer->settings = *settings;
	writer->pieces.fd = -1;
	*ret_writer = writer;
	return 0;
}

/* ---- names: modules and nodes, defined after each checkpoint before they are used ---- */

static void put_module(struct hl_byte_buffer *buffer, const struct hl_log_module *module)
{
	size_t length = strlen(module->path);

	hl_byte_buffer_number(buffer, length);
	hl_byte_buffer_put(buffer, module->path, length);
	hl_byte_buffer_number(buffer, module->start);
	hl_byte_buffer_number(buffer, module->end);
	hl_byte_buffer_number(buffer, module->load_bias);
	hl_byte_buffer_number(buffer, module->build_id_bytes);
	hl_byte_buffer_put(buffer, module->build_id, module->build_id_bytes);
}

/* The modules that are new since the last piece. Those that cannot be read are nameless. */
static void put_modules(struct hl_log_writer *writer)
{
	const struct hl_log_names *names = writer->settings.names;
	uint32_t count = names->module_count(names);

	if (count < writer->module_count)
		count = writer->module_count;
	hl_byte_buffer_number(&writer->raw, writer->module_count);
	hl_byte_buffer_number(&writer->raw, count - writer->module_count);
	while (writer->module_count < count) {
		struct hl_log_module module;
		writer->module_count++;
		if (!names->module(names, writer->module_count, &module))
			module = (struct hl_log_module){.path = ""};
		put_module(&writer->raw, &module);
	}
}

static int reserve_node(struct hl_log_writer *writer, uint32_t node)
{
	size_t before = writer->node_capacity;

	if (hl_array_reserve(&writer->nodes, &writer->node_capacity, (size_t)node + 1,
			     sizeof(*writer->nodes)) < 0)
		return -ENOMEM;
	memset(writer->nodes + before, 0,
	       (writer->node_capacity - before) * sizeof(*writer->nodes));
	if (node >= writer->node_count)
		writer->node_count = node + 1;
	return 0;
}

/*
 * Defines the node and its ancestors, as far as this segment has not. A cycle, which only damage
 * can make, ends where it comes back.
 */
static int define_node(struct hl_log_writer *writer, uint32_t node, uint64_t *count)
{
	const struct hl_log_names *names = writer->settings.names;
	uint64_t frame;
	uint32_t parent;

	for (; node; node = parent) {
		if (reserve_node(writer, node) < 0)
			return -ENOMEM;
		if (writer->nodes[node].defined_in == writer->round)
			break;
		writer->nodes[node].defined_in = writer->round;
		if (!names->node(names, node, &frame, &parent))
			break;
		hl_byte_buffer_number(&writer->definitions, node);
		hl_byte_buffer_number(&writer->definitions, frame >> 48);
		hl_byte_buffer_number(&writer->definitions, frame & ((UINT64_C(1) << 48) - 1));
		hl_byte_buffer_number(&writer->definitions, parent);
		++*count;
	}
	return 0;
}

static void put_definitions(struct hl_log_writer *writer, uint64_t count)
{
	hl_byte_buffer_number(&writer->raw, count);
	hl_byte_buffer_put(&writer->raw, writer->definitions.bytes, writer->definitions.size);
	writer->raw.failed |= writer->definitions.failed;
	hl_byte_buffer_clear(&writer->definitions);
}

/* ---- checkpoints ---- */

static bool holds_something(const struct node_state *node)
{
	return node->bytes || node->objects;
}

static int define_held_nodes(struct hl_log_writer *writer)
{
	uint64_t count = 0;
	int r = 0;

	hl_byte_buffer_clear(&writer->definitions);
	for (uint32_t i = 1; r == 0 && i < writer->node_count; i++)
		if (holds_something(&writer->nodes[i]))
			r = define_node(writer, i, &count);
	if (r == 0)
		put_definitions(writer, count);
	return r;
}

static void put_state(struct hl_log_writer *writer)
{
	uint32_t before = 0;
	uint64_t count = 0;

	for (uint32_t i = 1; i < writer->node_count; i++)
		count += holds_something(&writer->nodes[i]);
	hl_byte_buffer_number(&writer->raw, count);
	for (uint32_t i = 1; i < writer->node_count; i++) {
		if (!holds_something(&writer->nodes[i]))
			continue;
		hl_byte_buffer_number(&writer->raw, i - before);
		hl_byte_buffer_signed(&writer->raw, writer->nodes[i].bytes);
		hl_byte_buffer_signed(&writer->raw, writer->nodes[i].objects);
		before = i;
	}
}

/* The whole state before the interval ${next}. */
static int write_checkpoint(struct hl_log_writer *writer, uint64_t next)
{
	uint64_t offset = writer->pieces.position;

	writer->round++;
	writer->module_count = 0;
	hl_byte_buffer_clear(&writer->raw);
	hl_byte_buffer_number(&writer->raw, next);
	hl_byte_buffer_number(&writer->raw, writer->missing);
	put_modules(writer);
	int r = define_held_nodes(writer);
	if (r < 0)
		return r;
	put_state(writer);
	r = hl_piece_write(&writer->pieces, HL_PIECE_CHECKPOINT, HL_PIECE_FRAME, &writer->raw);
	if (r < 0)
		return r;
	writer->checkpoint_bytes = writer->pieces.position - offset;
	writer->bytes_since_checkpoint = 0;
	writer->needs_checkpoint = false;
	return hl_segment_index_add_checkpoint(&writer->index, next, offset);
}

static bool wants_checkpoint(const struct hl_log_writer *writer)
{
	uint64_t distance = CHECKPOINT_RATIO * writer->checkpoint_bytes;

	if (distance < CHECKPOINT_BYTES)
		distance = CHECKPOINT_BYTES;
	return writer->needs_checkpoint || writer->bytes_since_checkpoint > distance;
}

/* ---- segments ---- */

static void name_segment(const struct hl_log_writer *writer, uint64_t first_interval, char *name)
{
	uint64_t start_ns = writer->settings.start_realtime_ns +
			    first_interval * HL_INTERVAL_TICKS * UINT64_C(1000000);
	time_t seconds = (time_t)(start_ns / NS_PER_SECOND);
	struct tm utc;
	char date[16];

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%S", &utc);
	snprintf(name, HL_SEGMENT_NAME_MAX, "memlog-%u-%s-%06u.hll", writer->settings.process, date,
		 writer->segment);
}

static void delete_oldest(struct hl_log_writer *writer)
{
	size_t surplus = writer->kept_count > writer->settings.segments_kept
				 ? writer->kept_count - writer->settings.segments_kept
				 : 0;

	for (size_t i = 0; i < surplus; i++)
		unlinkat(writer->settings.directory_fd, writer->kept[i].name, 0);
	if (surplus)
		memmove(writer->kept, writer->kept + surplus,
			(writer->kept_count - surplus) * sizeof(*writer->kept));
	writer->kept_count -= surplus;
}

static int write_header(struct hl_log_writer *writer, uint64_t first_interval)
{
	struct hl_segment_header header = {
		.version = HL_SEGMENT_VERSION,
		.header_bytes = sizeof(header),
		.process = writer->settings.process,
		.number = writer->segment,
		.first_interval = first_interval,
		.start_realtime_ns = writer->settings.start_realtime_ns,
		.tick_ns = 1000000,
		.interval_ticks = HL_INTERVAL_TICKS,
	};

	memcpy(header.magic, HL_SEGMENT_MAGIC, sizeof(header.magic));
	header.hash = XXH3_64bits(&header, offsetof(struct hl_segment_header, hash));
	return hl_piece_write_bytes(&writer->pieces, &header, sizeof(header));
}

static void close_segment(struct hl_log_writer *writer)
{
	if (writer->pieces.fd >= 0)
		close(writer->pieces.fd);
	writer->pieces.fd = -1;
	hl_segment_index_clear(&writer->index);
}

/* Takes an unfinished segment away again; its number is used for the next try. */
static void abandon_segment(struct hl_log_writer *writer)
{
	struct kept_segment *newest = &writer->kept[--writer->kept_count];

	unlinkat(writer->settings.directory_fd, newest->name, 0);
	close_segment(writer);
	writer->segment--;
}

static int create_segment(struct hl_log_writer *writer, uint64_t first_interval)
{
	if (hl_array_reserve(&writer->kept, &writer->kept_capacity, writer->kept_count + 1,
			     sizeof(*writer->kept)) < 0)
		return -ENOMEM;
	struct kept_segment *newest = &writer->kept[writer->kept_count];
	writer->segment++;
	newest->number = writer->segment;
	name_segment(writer, first_interval, newest->name);
	writer->pieces.fd = openat(writer->settings.directory_fd, newest->name,
				   O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (writer->pieces.fd < 0) {
		writer->segment--;
		return -errno;
	}
	writer->kept_count++;
	writer->pieces.position = 0;
	return 0;
}

static int open_segment(struct hl_log_writer *writer, uint64_t first_interval)
{
	int r = create_segment(writer, first_interval);
	if (r < 0)
		return r;
	r = write_header(writer, first_interval);
	if (r == 0)
		r = write_checkpoint(writer, first_interval);
	if (r < 0)
		abandon_segment(writer);
	else
		delete_oldest(writer);
	return r;
}

static int write_trailer(struct hl_log_writer *writer, uint64_t index_offset)
{
	struct hl_segment_trailer trailer = {.index_offset = index_offset};

	memcpy(trailer.magic, HL_SEGMENT_MAGIC, sizeof(trailer.magic));
	trailer.hash = XXH3_64bits(&trailer, offsetof(struct hl_segment_trailer, hash));
	return hl_piece_write_bytes(&writer->pieces, &trailer, sizeof(trailer));
}

/* Ends the open segment, if there is one. Without its index it is read all the same, slower. */
static int finish_segment(struct hl_log_writer *writer)
{
	uint64_t offset = writer->pieces.position;

	if (writer->pieces.fd < 0)
		return 0;
	writer->index.missing_count = writer->missing;
	hl_byte_buffer_clear(&writer->raw);
	hl_segment_index_write(&writer->index, &writer->raw);
	int r = hl_piece_write(&writer->pieces, HL_PIECE_INDEX, HL_PIECE_FRAME, &writer->raw);
	if (r == 0)
		r = write_trailer(writer, offset);
	close_segment(writer);
	return r;
}

static bool is_full(const struct hl_log_writer *writer)
{
	return writer->pieces.fd >= 0 &&
	       (writer->pieces.position >= writer->settings.segment_bytes ||
		writer->index.point_count >= SEGMENT_INTERVALS_MAX);
}

/* ---- intervals ---- */

static int define_changed_nodes(struct hl_log_writer *writer,
				const struct hl_log_interval *interval)
{
	uint64_t count = 0;
	int r = 0;

	hl_byte_buffer_clear(&writer->definitions);
	for (size_t i = 0; r == 0 && i < interval->change_count; i++)
		r = define_node(writer, interval->changes[i].node, &count);
	if (r == 0)
		put_definitions(writer, count);
	return r;
}

static void put_changes(struct hl_byte_buffer *buffer, const struct hl_log_interval *interval)
{
	uint32_t before = 0;

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
}

static int put_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			uint64_t rss_bytes, uint64_t lost_events)
{
	struct hl_byte_buffer *buffer = &writer->raw;

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
	put_modules(writer);
	int r = define_changed_nodes(writer, interval);
	if (r == 0)
		put_changes(buffer, interval);
	return r;
}

static int write_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			  uint64_t rss_bytes, uint64_t lost_events)
{
	uint64_t begin = writer->pieces.position;
	int r = put_interval(writer, interval, rss_bytes, lost_events);
	if (r == 0)
		r = hl_piece_write(&writer->pieces, HL_PIECE_INTERVAL, 0, &writer->raw);
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
	       interval->number < writer->next_interval + IDLE_INTERVALS_MAX;
}

static int try_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			uint64_t rss_bytes, uint64_t lost_events)
{
	int r = 0;

	if (is_full(writer))
		finish_segment(writer);
	if (writer->pieces.fd < 0)
		r = open_segment(writer, interval->number);
	else if (wants_checkpoint(writer))
		r = write_checkpoint(writer, interval->number);
	return r < 0 ? r : write_interval(writer, interval, rss_bytes, lost_events);
}

/* Follows the changes, written or not. -ENOMEM only when a node is new, whose changes were then
 * refused before as well. */
static int follow(struct hl_log_writer *writer, const struct hl_log_interval *interval)
{
	int r = 0;

	for (size_t i = 0; i < interval->change_count; i++) {
		const struct hl_log_change *change = &interval->changes[i];
		if (reserve_node(writer, change->node) < 0) {
			r = -ENOMEM;
			continue;
		}
		struct node_state *node = &writer->nodes[change->node];
		node->bytes += change->max_bytes + change->rest_bytes;
		node->objects += change->max_objects + change->rest_objects;
	}
	return r;
}

int hl_log_writer_interval(struct hl_log_writer *writer, const struct hl_log_interval *interval,
			   uint64_t rss_bytes, uint64_t lost_events)
{
	writer->is_idle = is_idle(writer, interval);
	if (writer->is_idle) {
		writer->idle = *interval;
		writer->idle.change_count = 0;
		writer->idle_rss_bytes = rss_bytes;
		writer->idle_lost_events = lost_events;
		return 0;
	}
	int r = try_interval(writer, interval, rss_bytes, lost_events);
	int followed = follow(writer, interval);
	if (r < 0) {
		writer->missing++;
		writer->needs_checkpoint = true;
	}
	writer->next_interval = interval->number + 1;
	return r < 0 ? r : followed;
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
	int r = hl_piece_write(&writer->pieces, HL_PIECE_MARK, 0, &writer->raw);
	if (r < 0)
		writer->needs_checkpoint = true;
	return r < 0 ? r : hl_segment_index_add_mark(&writer->index, tick, text, length);
}

void hl_log_writer_keep(struct hl_log_writer *writer, uint32_t kept)
{
	writer->settings.segments_kept = kept;
	delete_oldest(writer);
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
	hl_byte_buffer_release(&writer->definitions);
	free(writer->nodes);
	free(writer->kept);
	free(writer);
	return r;
}
