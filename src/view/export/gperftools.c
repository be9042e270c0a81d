/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format gperftools: the text that gperftools' and jemalloc's own pprof read, a symbolized
 * heap profile. Its stacks are of addresses, each of which stands for one function here: a hash of its name and module.
 */
#include "base/names.h"
#include "view/summary.h"

#include <inttypes.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define ADDRESS_BITS 44 /* any number that looks like one of a program */

static uint64_t address_of(const struct hl_profile *profile, uint32_t function)
{
	const struct hl_profile_function *of = &profile->functions[function];
	const char *name = hl_profile_text(profile, of->name);
	const char *module = hl_profile_text(profile, profile->modules[of->module].path);
	uint64_t hash =
		XXH3_64bits_withSeed(name, strlen(name), XXH3_64bits(module, strlen(module)));

	return (hash >> (64 - ADDRESS_BITS)) + 1;
}

/*
 * pprof takes "--" for the end of an inlined function's name, and "<...>" for the arguments of a template, which it cuts
 * off: of a script's "<module>" nothing would be left.
 */
static void put_name(FILE *out, const char *name)
{
	bool is_bracketed = *name == '<';

	for (; *name; name++) {
		bool is_mark = (name[0] == '-' && name[1] == '-') || *name == '\n' || *name == '\r';
		putc(is_mark			    ? '_'
		     : is_bracketed && *name == '<' ? '['
		     : is_bracketed && *name == '>' ? ']'
						    : *name,
		     out);
	}
}

static void put_symbols(FILE *out, const struct hl_profile *profile)
{
	const char *command = hl_profile_text(profile, profile->command);

	fprintf(out, "--- symbol\nbinary=%.*s\n", (int)strcspn(command, " \n"), command);
	for (uint32_t i = 0; i < profile->function_count; i++) {
		const char *name = hl_profile_text(profile, profile->functions[i].name);
		if (!*name)
			continue;
		fprintf(out, "0x%" PRIx64 " ", address_of(profile, i));
		put_name(out, name);
		putc('\n', out);
	}
	fputs("---\n", out);
}

/* "IN USE OBJECTS: BYTES [ALLOCATED OBJECTS: BYTES]" */
static void put_figures(FILE *out, const struct hl_profile_counters *counters)
{
	fprintf(out, "%" PRId64 ": %" PRId64 " [%" PRId64 ": %" PRId64 "] @",
		hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_OBJECTS),
		hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_BYTES), counters->alloc_objects,
		counters->alloc_bytes);
}

int hl_gperftools_view(const struct hl_profile *profile, const struct hl_view_options *options,
		       struct hl_error *err)
{
	FILE *out = options->out;

	if (!hl_profile_knows(profile, HL_VALUE_INUSE, HL_UNIT_BYTES) ||
	    !hl_profile_knows(profile, HL_VALUE_ALLOC, HL_UNIT_OBJECTS))
		return hl_error_set(
			err, -ENODATA,
			"cannot export '%s': this format has what is in use and allocated, in "
			"bytes and objects, and not all of it is known; choose --format pprof",
			hl_profile_text(profile, profile->name));
	put_symbols(out, profile);
	fputs("heap profile: ", out);
	put_figures(out, &profile->total);
	fputs(" heapprofile\n", out);
	for (uint32_t i = 1; i < profile->node_count; i++) {
		if (!hl_profile_counters_any(&profile->counters[i]))
			continue;
		put_figures(out, &profile->counters[i]);
		for (uint32_t node = i; node; node = profile->nodes[node].parent)
			fprintf(out, " 0x%" PRIx64,
				address_of(profile,
					   profile->frames[profile->nodes[node].frame].function));
		putc('\n', out);
	}
	int r = ferror(out) ? -EIO : hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
