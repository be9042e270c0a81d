/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments of logs, and rings. The first byte says what the rest is:
 *
 *	F	a segment file
 *	P	pieces: kind, two bytes of length, content; they are compressed and hashed before
 *		they are read, so that the reader sees through to the content
 *	R	what the target wrote into a ring
 */
#include "../log_directory.h"
#include "log/ring_reader.h"

#include "base/compiler.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "pieces.h"

#define JOBS	  1 /* so that a finding is the same again */
#define STATE_MAX 20

/* ---- reading all there is ---- */

static int begin_part(void *context, size_t part, const struct hl_log_state *state)
{
	(void)context, (void)part;
	require(!state->node_count || (state->bytes && state->nodes));
	return 0;
}

static int visit_interval(void *context, size_t part, const struct hl_log_interval *interval)
{
	uint32_t *visits = context;

	(void)part;
	for (size_t i = 1; i < interval->change_count; i++)
		require(interval->changes[i].node > interval->changes[i - 1].node);
	++*visits;
	return 0;
}

static void check_log(const struct hl_log *log)
{
	struct hl_log_state *state;
	uint32_t visits = 0;
	const struct hl_log_fold fold = {&visits, begin_part, visit_interval, begin_part};

	for (size_t i = 1; i < log->point_count; i++)
		require(log->points[i].number == log->points[i - 1].number + 1);
	size_t step = log->point_count / STATE_MAX + 1;
	for (size_t i = 0; i < log->point_count; i += step)
		for (int moment = 0; moment < 2; moment++)
			if (hl_log_state_at(log, log->points[i].number, (enum hl_log_moment)moment,
					    &state, NULL) == 0)
				hl_log_state_free(state);
	hl_log_read(log, 0, UINT64_MAX, &(struct hl_log_options){.jobs = JOBS}, &fold, NULL);
}

static void read_directory(void)
{
	struct hl_log *log;

	if (open_log_in(scratch_path, 0, &(struct hl_log_options){.jobs = JOBS}, &log, NULL) < 0)
		return;
	check_log(log);
	hl_log_free(log);
}

static const uint32_t piece_kinds[] = {HL_PIECE_CHECKPOINT, HL_PIECE_INTERVAL, HL_PIECE_MARK,
				       HL_PIECE_INDEX, 7};

static const struct piece_file segment = {&hl_log_segments, "memlog-0-20260101T000000-000001.hll",
					  piece_kinds, HL_COUNT_OF(piece_kinds), read_directory};

/* ---- rings ---- */

static int take_event(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	(void)bytes, (void)objects;
	require(sink);
	return node == 0xffffff ? -EINVAL : 0;
}

static void fuzz_ring(const uint8_t *bytes, size_t size)
{
	static _Alignas(4096) uint8_t memory[HL_RING_STRIDE];
	static struct hl_ring_reader reader;
	struct hl_ring *ring = (struct hl_ring *)memory;
	struct hl_ring_sink sink = {.event = take_event};

	size &= ~(sizeof(uint64_t) - 1);
	if (size > HL_RING_BYTES_MIN)
		size = HL_RING_BYTES_MIN;
	memset(ring, 0, sizeof(*ring));
	memcpy(memory + HL_RING_DATA, bytes, size);
	ring->capacity = HL_RING_BYTES_MIN;
	ring->data = HL_RING_DATA;
	ring->head = size;
	hl_ring_reader_init(&reader, ring, sizeof(memory));
	for (uint64_t tick = 0; hl_ring_reader_read(&reader, tick, UINT64_MAX, &sink) > 0;) {
		require(hl_ring_reader_next_tick(&reader) > tick);
		tick = hl_ring_reader_next_tick(&reader);
	}
	require(reader.position <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size == 0)
		return 0;
	if (bytes[0] == 'F')
		fuzz_file(&segment, bytes + 1, size - 1);
	else if (bytes[0] == 'P')
		fuzz_pieces(&segment, bytes + 1, size - 1);
	else if (bytes[0] == 'R')
		fuzz_ring(bytes + 1, size - 1);
	return 0;
}
