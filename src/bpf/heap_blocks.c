/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads live blocks and totals out of the kernel; see heap_blocks.h. */
#include "bpf/heap_blocks.h"

#include "base/array.h"
#include "bpf/heap_shared.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <math.h>

/* Elements in one call; a bucket of the kernel's table may have more, then it asks for room. */
#define BATCH_ELEMENTS 16384u

static int add_to_stack(struct hl_heap_sums *sums, uint64_t stack, double bytes, double objects)
{
	uint32_t hash = hl_hash_pair(stack, 0), at = hash, id;

	while ((id = hl_index_next(&sums->index, hash, &at)))
		if (sums->sums[id - 1].stack == stack)
			break;
	if (!id) {
		int r = HL_ARRAY_RESERVE(sums->sums, sums->capacity, sums->count + 1);
		if (r == 0)
			r = hl_index_add(&sums->index, hash, (uint32_t)sums->count + 1);
		if (r < 0)
			return r;
		sums->sums[sums->count] = (struct hl_heap_sum){.stack = stack};
		id = (uint32_t)++sums->count;
	}
	sums->sums[id - 1].bytes += bytes;
	sums->sums[id - 1].objects += objects;
	return 0;
}

/*
 * How many blocks of ${size} bytes one sampled one stands for. Of samples that come as a Poisson
 * process, one per R bytes on average, a block of S bytes has at least one with probability
 * 1 - exp(-S / R).
 */
static double weight_of(uint64_t size, uint64_t sample_bytes)
{
	return sample_bytes ? -1.0 / expm1(-(double)size / (double)sample_bytes) : 1.0;
}

static int add_block(struct hl_heap_sums *sums, const struct hl_live_block *block,
		     const struct hl_heap_selection *selection)
{
	if (block->time > selection->before_ns)
		return 0;
	double weight = weight_of(block->size, selection->sample_bytes);
	return add_to_stack(sums, block->stack, weight * (double)block->size, weight);
}

/* Calls ${add} with each value of a hash map. */
static int read_map(int fd, size_t value_bytes,
		    int (*add)(struct hl_heap_sums *sums, uint64_t key, const void *value,
			       const void *context),
		    struct hl_heap_sums *sums, const void *context)
{
	uint32_t capacity = BATCH_ELEMENTS, at = 0;
	uint64_t *keys = calloc(capacity, sizeof(*keys));
	char *values = calloc(capacity, value_bytes);
	int r = keys && values ? 0 : -ENOMEM;
	bool is_first = true, is_last = false;

	while (r == 0 && !is_last) {
		uint32_t count = capacity;
		int got = bpf_map_lookup_batch(fd, is_first ? NULL : &at, &at, keys, values, &count,
					       NULL);
		is_last = got == -ENOENT; /* ${count} elements came all the same */
		if (got < 0 && !is_last)
			r = got;
		for (uint32_t i = 0; r == 0 && i < count; i++)
			r = add(sums, keys[i], values + i * value_bytes, context);
		is_first = false;
	}
	free(keys);
	free(values);
	return r;
}

static int add_live(struct hl_heap_sums *sums, uint64_t key, const void *value, const void *context)
{
	(void)key;
	return add_block(sums, value, context);
}

int hl_heap_sums_add_live(struct hl_heap_sums *sums, int live_fd,
			  const struct hl_heap_selection *selection)
{
	return read_map(live_fd, sizeof(struct hl_live_block), add_live, sums, selection);
}

struct totals_reading {
	int processors;
	uint64_t sample_bytes;
};

static int add_totals(struct hl_heap_sums *sums, uint64_t key, const void *value,
		      const void *context)
{
	const struct totals_reading *reading = context;
	const struct hl_stack_total *totals = value;
	double unit = reading->sample_bytes ? ldexp(1.0, -(int)HL_TOTAL_SHIFT) : 1.0;
	double bytes = 0, objects = 0;

	for (int i = 0; i < reading->processors; i++) {
		bytes += (double)totals[i].bytes;
		objects += (double)totals[i].objects * unit;
	}
	return add_to_stack(sums, key, bytes, objects);
}

int hl_heap_sums_add_totals(struct hl_heap_sums *sums, int totals_fd, uint64_t sample_bytes)
{
	struct totals_reading reading = {libbpf_num_possible_cpus(), sample_bytes};

	if (reading.processors < 0)
		return reading.processors;
	return read_map(totals_fd, sizeof(struct hl_stack_total) * (size_t)reading.processors,
			add_totals, sums, &reading);
}

int hl_heap_sums_add(struct hl_heap_sums *sums, const struct hl_heap_sums *more, double times)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < more->count; i++)
		r = add_to_stack(sums, more->sums[i].stack, times * more->sums[i].bytes,
				 times * more->sums[i].objects);
	return r;
}

void hl_heap_sums_release(struct hl_heap_sums *sums)
{
	free(sums->sums);
	hl_index_release(&sums->index);
	*sums = (struct hl_heap_sums){0};
}
