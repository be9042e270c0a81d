/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that a language's runtime allocates as it starts and never frees; see check.h. */
#include "view/check.h"

#include <string.h>

/*
 * libstdc++ keeps one block for exceptions that are thrown when memory has run out (eh_alloc.cc);
 * its constructor allocates it before main() begins. Sizes of 64-bit machines.
 */
static const int64_t pool_sizes[] = {
	72704, /* GCC 5 to 12 */
	73728, /* GCC 13 and later */
};

static bool begins_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The function of a C library that calls the constructors of programs and libraries. */
static bool calls_constructors(const char *function)
{
	static const char *const names[] = {"call_init",	 "_dl_init",	 "__libc_csu_init",
					    "__libc_start_main", "do_init_fini", "libc_start_init"};

	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		if (begins_with(function, names[i]))
			return true;
	return false;
}

static bool is_of_libstdcxx(const struct hl_profile *profile,
			    const struct hl_profile_function *function)
{
	const char *path = hl_profile_text(profile, profile->modules[function->module].path);
	const char *slash = strrchr(path, '/'), *name = hl_profile_text(profile, function->name);

	return begins_with(slash ? slash + 1 : path, "libstdc++.so") ||
	       begins_with(name, "_GLOBAL__sub_I_eh_alloc") ||
	       begins_with(name, "__static_initialization_and_destruction");
}

/* Whether the stack of ${node} is a constructor that allocates by itself. Where libstdc++ is linked
 * statically into a stripped program, that constructor has no name. */
static bool is_constructor(const struct hl_profile *profile, uint32_t node)
{
	bool is_innermost = true;

	for (; node; node = profile->nodes[node].parent) {
		const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		if (calls_constructors(hl_profile_text(profile, function->name)))
			return true;
		if (!frame->inlined && !is_innermost && !is_of_libstdcxx(profile, function))
			return false;
		is_innermost &= frame->inlined;
	}
	return false;
}

static bool is_pool(const struct hl_profile *profile, uint32_t node)
{
	const struct hl_profile_counters *counters = &profile->counters[node];
	int64_t bytes = hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_BYTES);
	int64_t blocks = hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_OBJECTS);

	for (size_t i = 0; i < HL_COUNT_OF(pool_sizes); i++) /* a block for each process */
		if (blocks > 0 && bytes == blocks * pool_sizes[i])
			return is_constructor(profile, node);
	return false;
}

uint64_t hl_check_leave_out_pool(struct hl_profile *profile)
{
	uint64_t left_out = 0;

	for (uint32_t i = 1; i < profile->node_count; i++) {
		if (!is_pool(profile, i))
			continue;
		struct hl_profile_counters *counters = &profile->counters[i];
		int64_t bytes = counters->alloc_bytes - counters->free_bytes;
		int64_t blocks = counters->alloc_objects - counters->free_objects;
		counters->free_bytes += bytes;
		counters->free_objects += blocks;
		profile->total.free_bytes += bytes;
		profile->total.free_objects += blocks;
		left_out += (uint64_t)bytes;
	}
	return left_out;
}
