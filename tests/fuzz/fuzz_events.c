/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of events. The first byte says what the rest is:
 *
 *	F	a file
 *	P	pieces: kind, two bytes of length, content; they are compressed and hashed before
 *		they are read, so that the reader sees through to the content
 *	B	a batch of events, 8 bytes each, which must come back as they are
 */
#include "../log_directory.h"
#include "log/events.h"

#include "region/region.h"

#include <stddef.h>
#include <string.h>

#include "pieces.h"

#define JOBS 1 /* so that a finding is the same again */

/* ---- reading all there is ---- */

static int begin_part(void *context, size_t part, const struct hl_log_state *state)
{
	(void)context, (void)part;
	require(!state->node_count || (state->bytes && state->nodes));
	return 0;
}

static int visit_run(void *context, size_t part, const struct hl_event_run *run)
{
	uint64_t *tick = context;

	require(part == 0 || *tick <= run->tick);
	require(run->count && run->count <= HL_EVENTS_MAX && run->thread < HL_THREADS_MAX);
	for (size_t i = 0; i < run->count; i++) {
		const struct hl_event *event = &run->events[i];
		require(event->node && event->node <= HL_EVENT_NODE_MAX);
		require(event->is_free ? event->bytes <= 0 && event->objects <= 0
				       : event->bytes >= 0 && event->objects >= 0);
	}
	*tick = run->tick;
	return 0;
}

static void read_directory(void)
{
	const struct hl_log_options options = {.jobs = JOBS};
	struct hl_event_log *log;
	uint64_t tick = 0;
	const struct hl_event_fold fold = {&tick, begin_part, visit_run, begin_part};

	if (open_events_in(scratch_path, 0, &options, &log, NULL) < 0)
		return;
	require(log->part_count && log->file_count == 1);
	require(hl_event_log_find(log, UINT64_MAX) == log->part_count - 1);
	hl_event_log_read(log, 0, log->part_count - 1, &options, &fold, NULL);
	hl_event_log_free(log);
}

static const uint32_t piece_kinds[] = {HL_PIECE_CHECKPOINT, HL_PIECE_EVENTS, HL_PIECE_END, 7};

static const struct piece_file file = {&hl_log_event_files, "events-0-20260101T000000-000001.hle",
				       piece_kinds, HL_COUNT_OF(piece_kinds), read_directory};

/* ---- batches ---- */

static bool name_node(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
		      uint32_t *ret_parent)
{
	(void)names, (void)node, (void)ret_frame, (void)ret_parent;
	return false;
}

static uint32_t count_modules(const struct hl_log_names *names)
{
	(void)names;
	return 0;
}

static const struct hl_log_names names = {.node = name_node, .module_count = count_modules};

/* The event that eight bytes stand for: few nodes, and sizes that are often those before. */
static struct hl_event event_of(const uint8_t *bytes)
{
	int64_t size = bytes[2] | (int64_t)bytes[3] << (bytes[4] & 47);
	int64_t objects = bytes[4] & 64 ? bytes[5] : 1;
	bool is_free = bytes[4] >> 7 && (size || objects);

	return (struct hl_event){
		.bytes = is_free ? -size : size,
		.objects = is_free ? -objects : objects,
		.node = 1 + bytes[0] + (bytes[1] & 1 ? 65536u * (bytes[1] & 3) : 0),
		.is_free = is_free,
	};
}

struct expected {
	const uint8_t *bytes;
	size_t count, at;
};

static int compare_run(void *context, const struct hl_event_run *run)
{
	struct expected *expected = context;

	for (size_t i = 0; i < run->count; i++, expected->at++) {
		require(expected->at < expected->count);
		struct hl_event event = event_of(expected->bytes + 8 * expected->at);
		require(run->thread == expected->at / 3 % 5 && run->tick == expected->at / 3);
		require(run->events[i].bytes == event.bytes);
		require(run->events[i].objects == event.objects);
		require(run->events[i].node == event.node);
		require(run->events[i].is_free == event.is_free);
	}
	return 0;
}

static void fill_batch(struct hl_event_batch *batch, struct expected *expected)
{
	batch->count = batch->run_count = batch->extended_count = 0;
	for (size_t i = 0; i < expected->count; i++) {
		struct hl_event event = event_of(expected->bytes + 8 * i);
		if (i % 3 == 0)
			batch->runs[batch->run_count++] = (struct hl_event_batch_run){
				i / 3, batch->count, (uint16_t)(i / 3 % 5), i % 2};
		hl_event_batch_add(batch, event.node, event.bytes, event.objects);
	}
}

static void fuzz_batch(const uint8_t *bytes, size_t size)
{
	static struct hl_event_batch batch;
	static struct hl_event_encoder encoder;
	static struct hl_event_decoder decoder;
	struct expected expected = {bytes, size / 8, 0};
	struct hl_byte_buffer raw = {0};

	if (expected.count > HL_EVENT_EXTENDED_MAX)
		expected.count = HL_EVENT_EXTENDED_MAX;
	fill_batch(&batch, &expected);
	encoder.state.names = &names;
	require(hl_event_encoder_checkpoint(&encoder, &raw, 0, 0) == 0);
	hl_event_decoder_begin(&decoder);
	hl_byte_buffer_clear(&raw);
	require(hl_event_encoder_encode(&encoder, &batch, &raw) == 0 && !raw.failed);
	struct hl_byte_reader content = {.at = raw.bytes, .end = raw.bytes + raw.size};
	for (unsigned i = 0; i < 3; i++) /* modules, and nodes: none */
		hl_byte_reader_number(&content);
	require(hl_event_decoder_read(&decoder, &content, compare_run, &expected) == 0);
	require(expected.at == expected.count && content.at == content.end);
	hl_byte_buffer_release(&raw);
	hl_event_encoder_release(&encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size == 0)
		return 0;
	if (bytes[0] == 'F')
		fuzz_file(&file, bytes + 1, size - 1);
	else if (bytes[0] == 'P')
		fuzz_pieces(&file, bytes + 1, size - 1);
	else if (bytes[0] == 'B')
		fuzz_batch(bytes + 1, size - 1);
	return 0;
}
