/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes what a BEAM answers. The first byte chooses the question, the others are the answer. What
 * is read must hold together: sums are those of parts, widths and bounds those of an option.
 */
#include "guests/beam/connection.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_result(int r)
{
	require(r == 0 || r == -EBADMSG || r == -ENODATA || r == -ENOMEM);
}

static void check_shape(const struct hl_log2_shape *shape, uint64_t start_max)
{
	require(shape->bounds != HL_LOG2_POWERS && shape->start && shape->start <= start_max);
	require(shape->width <= HL_LOG2_WIDTH_MAX);
}

static void check_carrier(const struct hl_carrier *carrier, uint32_t width)
{
	uint64_t bytes = 0, blocks = 0, free_blocks = 0;

	require(carrier->block_kinds <= HL_CARRIER_BLOCKS_MAX);
	for (uint32_t i = 0; i < carrier->block_kinds; i++) {
		bytes += carrier->blocks[i].bytes;
		blocks += carrier->blocks[i].count;
		require(memchr(carrier->blocks[i].type, 0, sizeof(carrier->blocks[i].type)));
	}
	for (uint32_t slot = 0; slot < width; slot++)
		free_blocks += carrier->free_histogram.counts[slot];
	require(bytes == carrier->allocated_bytes && blocks == carrier->allocated_blocks);
	require(free_blocks == carrier->free_blocks);
	require(memchr(carrier->allocator, 0, sizeof(carrier->allocator)));
	require(carrier->free_bytes <= carrier->total_bytes);
}

static void read_carriers(struct hl_term term, size_t size)
{
	struct hl_carriers carriers = {0};

	enum hl_log2_bounds bounds;

	int r = hl_decode_carriers(&term, &carriers);
	check_result(r);
	require(carriers.count <= size);
	if (r == 0)
		hl_decode_bounds(&carriers, "99", &bounds);
	if (r == 0)
		check_shape(&carriers.shape, 2 * HL_LOG2_START_MAX);
	for (size_t i = 0; r == 0 && i < carriers.count; i++)
		check_carrier(&carriers.carriers[i], carriers.shape.width);
	hl_carriers_release(&carriers);
}

static void read_allocations(struct hl_term term, size_t size)
{
	struct hl_allocations allocations = {0};
	struct hl_allocation total;

	int r = hl_decode_allocations(&term, &allocations);
	check_result(r);
	require(allocations.count <= size);
	if (r == 0) {
		check_shape(&allocations.shape, HL_LOG2_START_MAX);
		hl_allocations_total(&allocations, &total);
		for (uint32_t slot = 0; slot < allocations.shape.width; slot++)
			total.blocks -= total.histogram.counts[slot];
		require(total.blocks == 0);
	}
	hl_allocations_release(&allocations);
}

static void read_instances(struct hl_term term, size_t size)
{
	struct hl_beam_instances instances = {0};

	check_result(hl_decode_instances(&term, "ets_alloc", &instances));
	require(instances.count <= size);
	free(instances.instances);
}

/* Each way of reading a term either goes on to within it, or leaves it as it was. */
static void read_text(struct hl_term term)
{
	char text[17];
	struct hl_term after = term;

	if (hl_term_string(&after, text, sizeof(text)) == 0)
		require(strlen(text) < sizeof(text) && after.at <= term.end && after.at > term.at);
	else
		require(after.at == term.at);
	after = term;
	if (hl_term_origin(&after, text, sizeof(text)) == 0)
		require(strlen(text) < sizeof(text) && after.at <= term.end && after.at > term.at);
	else
		require(after.at == term.at);
	if (hl_term_skip(&term) == 0)
		require(after.at == term.at); /* an origin is one term, whatever it is */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	enum hl_beam_answer answer;
	struct hl_term term;

	if (size == 0 || hl_term_begin(&term, bytes + 1, size - 1) < 0)
		return 0;
	read_text(term);
	if (hl_decode_reply(&term, &answer) < 0 || answer != HL_BEAM_VALUE)
		return 0;
	if (bytes[0] % 3 == 0)
		read_carriers(term, size);
	else if (bytes[0] % 3 == 1)
		read_allocations(term, size);
	else
		read_instances(term, size);
	return 0;
}
