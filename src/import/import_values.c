/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of imported stacks; see import_stacks.h. */
#include "import/import_stacks.h"

#include "base/array.h"
#include "base/frame_key.h"
#include "base/names.h"

#include <math.h>
#include <string.h>

int hl_import_values_add(struct hl_import_values *values, const struct hl_import_value *value)
{
	return HL_ARRAY_APPEND(values->items, values->count, values->capacity, *value);
}

static uint32_t size_class_of(const struct hl_profile_counters *counters)
{
	return counters->alloc_objects > 0 && counters->alloc_bytes > 0
		       ? hl_size_class((uint64_t)(counters->alloc_bytes / counters->alloc_objects))
		       : 0;
}

int hl_import_values_finish(const struct hl_import_values *values, bool has_base,
			    struct hl_builder *builder, struct hl_profile **ret_profile)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	HL_FREED uint32_t *final_ids = NULL;

	int r = hl_builder_finish(builder, &final_ids, &profile);
	if (r < 0)
		return r;
	if (has_base) {
		profile->base = calloc(profile->node_count, sizeof(*profile->base));
		if (!profile->base)
			return -ENOMEM;
	}
	if (values->tell_sizes) {
		profile->sizes = calloc(values->count + 1, sizeof(*profile->sizes));
		if (!profile->sizes)
			return -ENOMEM;
	}
	for (size_t i = 0; i < values->count; i++) {
		const struct hl_import_value *value = &values->items[i];
		uint32_t node = final_ids[value->node];
		const struct hl_profile_counters base = {.alloc_bytes = value->base_bytes};
		hl_profile_counters_add(&profile->counters[node], &value->counters);
		hl_profile_counters_add(&profile->total, &value->counters);
		if (values->tell_sizes)
			profile->sizes[profile->size_count++] = (struct hl_profile_size){
				.node = node,
				.size_class = size_class_of(&value->counters),
				.counters = value->counters};
		if (!has_base)
			continue;
		hl_profile_counters_add(&profile->base[node], &base);
		hl_profile_counters_add(&profile->base_total, &base);
	}
	profile->imported = true;
	profile->complete = true;
	profile->unfiltered_total = profile->total;
	*ret_profile = HL_TAKE(profile);
	return 0;
}

void hl_import_values_release(struct hl_import_values *values)
{
	free(values->items);
	*values = (struct hl_import_values){0};
}

/* ---- from samples to estimates ---- */

/*
 * HL_SAMPLING_POISSON. The allocated bytes, one after another, are a line on which sample points
 * lie at random, independently, at a mean distance R. A block is sampled when a point falls on it.
 * One of X bytes stays free of points with probability e^(-X/R), so it is sampled with
 *
 *	p(X) = 1 - e^(-X/R)
 *
 * and if each sampled block is counted 1/p(X) times, a block counts once on average: the estimate
 * has no bias. Blocks far larger than R have p = 1, far smaller ones X/R.
 *
 * A file holds no sizes, only the sums of a stack: n blocks, s bytes. X = s/n stands for them all,
 * which is exact where they are of one size. Where they are not, gperftools' estimate has a small
 * bias; jemalloc from 5.3 on weighs each block by itself and then writes such n and s that this
 * calculation ends at its unbiased result (prof_unbias; its PROFILING_INTERNALS has the proof).
 *
 * Early gperftools drew the distance to the next point evenly from 0 to 2R, and Go writes 2R where
 * gperftools writes R. Both say "heap/2R", and Go's pprof takes all such files for Go's: so
 * does this.
 */

/* Numbers beyond the range of integers become its ends. */
static int64_t to_integer(double number)
{
	if (number >= 0x1p63)
		return INT64_MAX;
	return number > -0x1p63 ? (int64_t)number : INT64_MIN;
}

struct hl_import_amount hl_import_values_unsample(const struct hl_import_sampling *sampling,
						  struct hl_import_amount sampled)
{
	double objects = (double)sampled.objects, bytes = (double)sampled.bytes;

	/* With a mean of 1 every allocation is a sample; differing signs mean nothing. */
	if (sampling->kind == HL_SAMPLING_NONE || sampling->mean_bytes <= 1 ||
	    (objects < 0) != (bytes < 0))
		return sampled;
	if (!sampled.objects || !sampled.bytes)
		return (struct hl_import_amount){0};
	if (sampling->kind == HL_SAMPLING_POISSON) {
		double p = -expm1(-bytes / objects / sampling->mean_bytes);
		return (struct hl_import_amount){to_integer(round(objects / p)),
						 to_integer(round(bytes / p))};
	}
	double scale = 1 / (1 - exp(-(bytes / objects) / sampling->mean_bytes));
	return (struct hl_import_amount){to_integer(objects * scale), to_integer(bytes * scale)};
}

/* ---- allocators ---- */

static bool is_one_of(const char *name, const char *const *names)
{
	size_t length = strcspn(name, "("); /* C++ names come with their parameters */

	for (; *names; names++)
		if (strlen(*names) == length && !strncmp(name, *names, length))
			return true;
	return false;
}

bool hl_import_values_is_allocator(const char *function, const char *module_path)
{
	/* what allocators and glibc put before the names of C functions */
	static const char *const prefixes[] = {"__GI_", "__libc_", "je_", "tc_"};
	static const char *const names[] = {"aligned_alloc", "calloc",	       "malloc",  "mallocx",
					    "memalign",	     "posix_memalign", "pvalloc", "rallocx",
					    "realloc",	     "reallocarray",   "valloc",  NULL};
	static const char *const operators[] = {
		"operator new",	  "operator new[]",	 "tc_new", "tc_newarray",
		"tc_new_nothrow", "tc_newarray_nothrow", NULL};
	const char *library = hl_path_basename(module_path), *plain = function;

	for (size_t i = 0; i < HL_COUNT_OF(prefixes); i++)
		if (!strncmp(plain, prefixes[i], strlen(prefixes[i])))
			plain += strlen(prefixes[i]);
	return is_one_of(function, operators) || is_one_of(plain, names) ||
	       !strncmp(library, "libjemalloc", strlen("libjemalloc")) ||
	       !strncmp(library, "libtcmalloc", strlen("libtcmalloc"));
}
