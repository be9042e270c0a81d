/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads heap files of gperftools, jemalloc and Go, the formats of pprof before profile.proto.
 * gperftools writes, with objects before bytes and what was ever allocated in brackets,
 *
 *	heap profile:   12:   3456 [   78:   9012] @ heapprofile
 *	     1:     1024 [     2:     2048] @ 0xLEAF 0xCALLER ...
 *
 * jemalloc, with a line for all threads, t*, and one for each thread below every stack,
 *
 *	heap_v2/524288
 *	  t*: 12: 3456 [78: 9012]
 *	@ 0xLEAF 0xCALLER ...
 *	  t*: 1: 1024 [2: 2048]
 *	  t0: 1: 1024 [2: 2048]
 *
 * and both, after MAPPED_LIBRARIES:, what /proc/self/maps held. Addresses are return addresses.
 *
 * Go (/debug/pprof/heap?debug=1) writes what gperftools does, and in comments what the calls are
 * named, several times the same one where functions are inlined, the innermost first:
 *
 *	#	0xCALL	FUNCTION+0xOFFSET	FILE:LINE
 *
 * A symbolized file, of heapline's export, of 'jeprof --raw' and of programs that name their own
 * stacks, begins with names, and one of the others follows:
 *
 *	--- symbol
 *	binary=PROGRAM
 *	0xADDRESS FUNCTION--INLINED FUNCTION
 *	---
 *	--- heap
 */
#include "import/importer.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GPERFTOOLS_MARK "heap profile:"
#define JEMALLOC_MARK	"heap_v2/"
#define JEMALLOC_SUM	"t*:"
#define SYMBOLS_MARK	"--- symbol"
#define SECTION_MARK	"---" /* ends the symbols; also "--- heap" */

/* What gperftools samples by where the file does not say. */
#define GPERFTOOLS_MEAN_BYTES (128 * 1024.0)

/* Lines before the copy of /proc/self/maps; the second one is of old gperftools. */
static const char *const maps_marks[] = {"MAPPED_LIBRARIES:", "--- Memory map:"};

/* Both of what a line has: in use and, in brackets, ever allocated. */
struct amounts {
	struct hl_import_amount in_use, allocated;
};

struct legacy;

/* Reads a line below the header, as one of the two tools writes them. */
typedef int read_line(struct legacy *legacy, const struct hl_import_line *line,
		      struct hl_error *err);

struct legacy {
	const struct hl_import_input *input;
	read_line *read_line;
	struct hl_import_sampling sampling;
	struct hl_import_maps maps;
	struct hl_import_calls calls;
	struct hl_builder builder;
	struct hl_import_values values;
	uint64_t *stack; /* the line's addresses, the leaf first */
	size_t depth, stack_capacity;
	bool has_stack;	    /* jemalloc: read, and the sum that belongs to it not yet */
	bool *is_allocator; /* by function of the profile */
	size_t judged_count, judged_capacity;
	struct amounts announced, found; /* gperftools: by the header; in the stacks, unscaled */
	bool keeps_alloc;   /* this kind of file is said to hold what was ever allocated, */
	bool knows_alloc;   /* and does */
	bool counts_growth; /* address space that the heap got, and not blocks */
	bool is_exact;	    /* gperftools' "heapprofile": */
	size_t *own_values; /* the allocator's own memory; indices of values */
	size_t own_count, own_capacity;
	int64_t own_bytes; /* in those that are left out */
};

static int bad_line(const struct legacy *legacy, const struct hl_import_line *line,
		    const char *reason, struct hl_error *err)
{
	return hl_error_set(err, -EBADMSG, "cannot read '%s': line %" PRIu64 " %s",
			    legacy->input->name, line->number, reason);
}

/* ---- names and the list of mapped files, which come later and are needed first ---- */

static bool begins_maps(const struct hl_import_line *line)
{
	for (size_t i = 0; i < HL_COUNT_OF(maps_marks); i++)
		if (hl_import_text_begins(line, maps_marks[i]))
			return true;
	return false;
}

static bool is_comment(const struct hl_import_line *line)
{
	return line->text < line->end && *line->text == '#';
}

/* Lines of heap files that do not tell of memory. */
static bool is_skipped(const struct hl_import_line *line)
{
	return line->text == line->end || is_comment(line);
}

/* The lines of ${input} from the heap file's header on: after the names of a symbolized file. */
static struct hl_import_lines heap_lines(const struct hl_import_input *input, bool *ret_symbolized)
{
	struct hl_import_lines lines = hl_import_text_lines(input), next = lines;
	struct hl_import_line line;

	*ret_symbolized =
		hl_import_text_next(&next, &line) && hl_import_text_begins(&line, SYMBOLS_MARK);
	if (!*ret_symbolized)
		return lines;
	while (hl_import_text_next(&next, &line) && !hl_import_text_begins(&line, SECTION_MARK))
		;
	lines = next;
	if (hl_import_text_next(&next, &line) && hl_import_text_begins(&line, SECTION_MARK))
		lines = next;
	return lines;
}

static int read_names(struct legacy *legacy)
{
	struct hl_import_lines lines = hl_import_text_lines(legacy->input);
	struct hl_import_lines heap = heap_lines(legacy->input, &legacy->calls.has_symbols);
	struct hl_import_line line;
	bool in_maps = false;
	int r = 0;

	while (r == 0 && lines.next < heap.next && hl_import_text_next(&lines, &line))
		r = hl_import_calls_add_symbol(&legacy->calls, &line);
	while (r == 0 && hl_import_text_next(&heap, &line)) {
		if (in_maps)
			r = hl_import_maps_add(&legacy->maps, &line);
		else if (is_comment(&line))
			r = hl_import_calls_add_comment(&legacy->calls, &line);
		in_maps = in_maps || begins_maps(&line);
	}
	hl_import_maps_finish(&legacy->maps);
	hl_import_calls_finish(&legacy->calls);
	return r;
}

/* ---- pieces of lines ---- */

static bool take_letter(const char **at, const char *end, char letter)
{
	*at = hl_import_text_skip_blanks(*at, end);
	if (*at == end || **at != letter)
		return false;
	++*at;
	return true;
}

/* "OBJECTS: BYTES" */
static bool take_amount(const char **at, const char *end, struct hl_import_amount *ret_amount)
{
	*at = hl_import_text_skip_blanks(*at, end);
	if (hl_import_text_number(*at, end, &ret_amount->objects, at) < 0 ||
	    !take_letter(at, end, ':'))
		return false;
	*at = hl_import_text_skip_blanks(*at, end);
	return hl_import_text_number(*at, end, &ret_amount->bytes, at) == 0;
}

/* "OBJECTS: BYTES [OBJECTS: BYTES]" */
static bool take_amounts(const char **at, const char *end, struct amounts *ret_amounts)
{
	return take_amount(at, end, &ret_amounts->in_use) && take_letter(at, end, '[') &&
	       take_amount(at, end, &ret_amounts->allocated) && take_letter(at, end, ']');
}

/* "@ 0xADDRESS..." to the end of the line, into legacy->stack. 0, -ENOMEM or -EINVAL. */
static int take_stack(struct legacy *legacy, const char *at, const char *end)
{
	legacy->depth = 0;
	if (!take_letter(&at, end, '@'))
		return -EINVAL;
	while ((at = hl_import_text_skip_blanks(at, end)) < end) {
		if (HL_ARRAY_RESERVE(legacy->stack, legacy->stack_capacity, legacy->depth + 1) < 0)
			return -ENOMEM;
		if (hl_import_text_hex(at, end, &legacy->stack[legacy->depth], &at) < 0 ||
		    (at < end && !hl_import_text_is_blank(*at)))
			return -EINVAL;
		legacy->depth++;
	}
	return 0;
}

/* ---- stacks ---- */

static int judge_functions(struct legacy *legacy)
{
	const struct hl_profile *profile = legacy->builder.profile;

	if (HL_ARRAY_RESERVE(legacy->is_allocator, legacy->judged_capacity,
			     profile->function_count) < 0)
		return -ENOMEM;
	for (; legacy->judged_count < profile->function_count; legacy->judged_count++) {
		const struct hl_profile_function *function =
			&profile->functions[legacy->judged_count];
		const struct hl_profile_module *module = &profile->modules[function->module];
		legacy->is_allocator[legacy->judged_count] =
			hl_import_values_is_allocator(hl_profile_text(profile, function->name),
						      hl_profile_text(profile, module->path));
	}
	return 0;
}

/* The node below ${parent} for a return address; the call is what is before it. */
static int add_frame(struct legacy *legacy, uint32_t parent, uint64_t return_address,
		     uint32_t *ret_node)
{
	uint64_t address = return_address ? return_address - 1 : 0;
	uint32_t module;

	int r = hl_import_calls_nodes(&legacy->calls, &legacy->builder, parent, return_address,
				      ret_node);
	if (r != 0)
		return r < 0 ? r : 0;
	r = hl_import_maps_find(&legacy->maps, &legacy->builder, address, &module, &address);
	return r < 0 ? r : hl_builder_node(&legacy->builder, parent, module, address, ret_node);
}

/* Whether ${node} is a place in the allocator, but not one that a program calls. */
static bool is_inside_allocator(const struct legacy *legacy, uint32_t node)
{
	const struct hl_profile *profile = legacy->builder.profile;
	uint32_t function = profile->frames[legacy->builder.nodes[node].frame].function;
	const char *name = hl_profile_text(profile, profile->functions[function].name);

	return (legacy->is_allocator[function] && !hl_import_values_is_allocator(name, "")) ||
	       strstr(name, "SysAllocator::Alloc") || strstr(name, "LowLevelAlloc");
}

/* Both tools' stacks begin inside the allocator, heapline's with its caller: frames from the
 * outermost one of an allocator on are left out, and ${ret_leaf}, where there is a stack, is within them. */
static int add_stack(struct legacy *legacy, uint32_t *ret_node, uint32_t *ret_leaf)
{
	const struct hl_builder *builder = &legacy->builder;
	uint32_t node = 0, caller = 0;

	if (!legacy->depth)
		return hl_builder_node(&legacy->builder, 0, HL_BUILDER_PSEUDO, 0, ret_node);
	for (size_t i = legacy->depth; !caller && i-- > 0;) {
		uint32_t above = node;
		int r = add_frame(legacy, above, legacy->stack[i], &node);
		if (r == 0)
			r = judge_functions(legacy);
		if (r < 0)
			return r;
		/* an address has several nodes where functions are inlined */
		for (uint32_t at = node; at != above; at = builder->nodes[at].parent) {
			uint32_t frame = builder->nodes[at].frame;
			if (legacy->is_allocator[builder->profile->frames[frame].function])
				caller = builder->nodes[at].parent;
		}
	}
	*ret_leaf = node;
	*ret_node = caller ? caller : node;
	return 0;
}

static int add_value(struct legacy *legacy, const struct amounts *amounts)
{
	struct hl_import_amount in_use =
		hl_import_values_unsample(&legacy->sampling, amounts->in_use);
	struct hl_import_amount allocated =
		hl_import_values_unsample(&legacy->sampling, amounts->allocated);
	struct hl_import_value value = {
		.counters.alloc_bytes = allocated.bytes,
		.counters.alloc_objects = allocated.objects,
		.counters.free_bytes = allocated.bytes - in_use.bytes,
		.counters.free_objects = allocated.objects - in_use.objects,
	};

	uint32_t leaf = 0;
	int r = add_stack(legacy, &value.node, &leaf);
	/* Stacks of blocks begin with malloc's caller. With HEAP_PROFILE_MMAP there are also stacks
	 * of what the allocator got from the system, the blocks lie in it, and lines without any. */
	if (r == 0 && legacy->is_exact && (!legacy->depth || is_inside_allocator(legacy, leaf)))
		r = HL_ARRAY_APPEND(legacy->own_values, legacy->own_count, legacy->own_capacity,
				    legacy->values.count);
	if (r < 0)
		return r;
	legacy->found.in_use.bytes += amounts->in_use.bytes;
	legacy->found.allocated.bytes += amounts->allocated.bytes;
	/* Where nothing else is known, the brackets are empty or repeat what is in use. */
	legacy->knows_alloc =
		legacy->knows_alloc ||
		(amounts->allocated.objects &&
		 (legacy->keeps_alloc || amounts->allocated.objects != amounts->in_use.objects ||
		  amounts->allocated.bytes != amounts->in_use.bytes));
	return hl_import_values_add(&legacy->values, &value);
}

/* ---- gperftools ---- */

static bool is_word(const char *at, size_t length, const char *word)
{
	return length == strlen(word) && !memcmp(at, word, length);
}

/* How the allocations were chosen: the word after the header's '@', "heap_v2/524288". What Go's
 * own pprof reads of it is read: a mean of half the number where the word is "heap" alone, and
 * every allocation where the number is 0. */
static void read_kind(struct legacy *legacy, const char *at, const char *end)
{
	const char *slash = memchr(at, '/', (size_t)(end - at)), *rest;
	size_t length = (size_t)((slash ? slash : end) - at);
	int64_t interval;

	legacy->is_exact = legacy->keeps_alloc = is_word(at, length, "heapprofile");
	legacy->counts_growth = is_word(at, length, "growth") || is_word(at, length, "growthz");
	if (legacy->keeps_alloc || !memmem(at, length, "heap", strlen("heap")))
		return;
	legacy->sampling.kind = HL_SAMPLING_TRUNCATED;
	legacy->sampling.mean_bytes = GPERFTOOLS_MEAN_BYTES;
	if (slash && hl_import_text_number(slash + 1, end, &interval, &rest) == 0 && interval >= 0)
		legacy->sampling.mean_bytes =
			(double)(memmem(at, length, "_v2", strlen("_v2")) ? interval
									  : interval / 2);
}

/* "OBJECTS: BYTES [OBJECTS: BYTES] @ 0xLEAF..." */
static int read_gperftools_line(struct legacy *legacy, const struct hl_import_line *line,
				struct hl_error *err)
{
	const char *at = line->text;
	struct amounts amounts;

	int r = take_amounts(&at, line->end, &amounts) ? take_stack(legacy, at, line->end)
						       : -EINVAL;
	if (r == -EINVAL)
		return bad_line(legacy, line, "is not 'N: BYTES [N: BYTES] @ ADDRESSES'", err);
	return r < 0 ? r : add_value(legacy, &amounts);
}

/* ---- jemalloc ---- */

/* "@ 0xADDRESS...", and then "t*: OBJECTS: BYTES [OBJECTS: BYTES]": of all threads, at that stack.
 */
static int read_jemalloc_line(struct legacy *legacy, const struct hl_import_line *line,
			      struct hl_error *err)
{
	const char *at = hl_import_text_skip_blanks(line->text, line->end);
	size_t length = (size_t)(line->end - at), sum = strlen(JEMALLOC_SUM);
	struct amounts amounts;

	if (length >= sum && !memcmp(at, JEMALLOC_SUM, sum)) {
		at += sum;
		if (!take_amounts(&at, line->end, &amounts))
			return bad_line(legacy, line, "is not 't*: N: BYTES [N: BYTES]'", err);
		if (!legacy->has_stack) /* the sum of the whole file */
			return 0;
		legacy->has_stack = false;
		return add_value(legacy, &amounts);
	}
	if (length && *at == 't') /* one thread's part of the sum */
		return 0;
	int r = take_stack(legacy, at, line->end);
	if (r == -EINVAL)
		return bad_line(legacy, line, "is not '@ ADDRESSES'", err);
	legacy->has_stack = r == 0;
	return r;
}

/* ---- all of it ---- */

static bool detects(const struct hl_import_input *input)
{
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;

	return hl_import_text_next(&lines, &line) &&
	       (hl_import_text_begins(&line, GPERFTOOLS_MARK) ||
		hl_import_text_begins(&line, SYMBOLS_MARK) ||
		hl_import_text_begins(&line, JEMALLOC_MARK));
}

static int read_header(struct legacy *legacy, struct hl_import_lines *lines, struct hl_error *err)
{
	struct hl_import_line line = {.number = 1};
	int64_t interval;

	hl_import_text_next(lines, &line);
	const char *at = line.text;
	if (hl_import_text_begins(&line, JEMALLOC_MARK)) {
		at += strlen(JEMALLOC_MARK);
		if (hl_import_text_number(at, line.end, &interval, &at) < 0 || at < line.end ||
		    interval <= 0)
			return bad_line(legacy, &line, "has no sampling interval", err);
		legacy->sampling =
			(struct hl_import_sampling){HL_SAMPLING_POISSON, (double)interval};
		legacy->keeps_alloc = true;
		legacy->read_line = read_jemalloc_line;
		return 0;
	}
	if (hl_import_text_begins(&line, GPERFTOOLS_MARK))
		at += strlen(GPERFTOOLS_MARK);
	if (at == line.text || !take_amounts(&at, line.end, &legacy->announced))
		return bad_line(
			legacy, &line,
			legacy->calls.has_symbols
				? "follows the names and does not begin a heap file's text; "
				  "'google-pprof --raw' writes a binary form for local "
				  "files, which heapline does not read: open the heap file"
				: "is not the header of a heap file",
			err);
	if (take_letter(&at, line.end, '@'))
		read_kind(legacy, hl_import_text_skip_blanks(at, line.end), line.end);
	legacy->read_line = read_gperftools_line;
	return 0;
}

/* Percent of what was ${announced} that was ${found}. */
static int share(struct hl_import_amount found, struct hl_import_amount announced)
{
	if (announced.bytes <= 0 || found.bytes >= announced.bytes)
		return 100;
	if (found.bytes <= 0)
		return 0;
	return (int)(100.0 * (double)found.bytes / (double)announced.bytes);
}

static int warn_of_names(const struct legacy *legacy, struct hl_profile *profile)
{
	if (legacy->maps.count || legacy->calls.count)
		return 0;
	return hl_profile_warn(profile, "%s",
			       "there is no list of mapped files at the end, so nothing has a "
			       "name; the file may be cut off");
}

/* gperftools has a buffer of 1 MiB for the text, and leaves out the stacks that do not fit. */
static int warn_of_sums(const struct legacy *legacy, struct hl_profile *profile)
{
	int in_use = share(legacy->found.in_use, legacy->announced.in_use);
	int allocated = share(legacy->found.allocated, legacy->announced.allocated);
	int r = 0;

	if (legacy->counts_growth)
		r = hl_profile_warn(profile, "%s",
				    "the file counts the address space that the heap ever grew by, "
				    "not memory in use");
	if (r == 0 && legacy->own_bytes)
		r = hl_profile_warn(profile,
				    "%" PRId64
				    " bytes that tcmalloc got from the system for itself "
				    "(HEAP_PROFILE_MMAP) are left out: the blocks lie in them",
				    legacy->own_bytes);
	if (r == 0 && legacy->is_exact && legacy->announced.in_use.bytes > 0 &&
	    legacy->found.in_use.bytes > legacy->announced.in_use.bytes)
		r = hl_profile_warn(profile,
				    "the stacks have %" PRId64
				    " bytes in use, the first line has %" PRId64
				    ": the others are mappings of the program",
				    legacy->found.in_use.bytes, legacy->announced.in_use.bytes);
	if (r < 0 || (in_use == 100 && allocated == 100))
		return r;
	return hl_profile_warn(
		profile,
		"stacks are missing: the file has %d %% of what was in use and %d %% of what was "
		"allocated (%s)",
		in_use, allocated,
		legacy->calls.count ? "it was cut off" : "gperftools writes no more than 1 MiB");
}

/* The first line counts blocks alone: where the stacks have more, those of the allocator's own
 * memory would count blocks twice. */
static void drop_own_memory(struct legacy *legacy)
{
	if (legacy->found.in_use.bytes <= legacy->announced.in_use.bytes)
		return;
	for (size_t i = 0; i < legacy->own_count; i++) {
		struct hl_profile_counters *counters =
			&legacy->values.items[legacy->own_values[i]].counters;
		int64_t in_use = counters->alloc_bytes - counters->free_bytes;
		legacy->own_bytes += in_use;
		legacy->found.in_use.bytes -= in_use;
		legacy->found.allocated.bytes -= counters->alloc_bytes;
		*counters = (struct hl_profile_counters){0};
	}
}

/* Makes of the values what this kind of file means by them. */
static void interpret(struct legacy *legacy)
{
	drop_own_memory(legacy);
	for (size_t i = 0; i < legacy->values.count; i++) {
		struct hl_profile_counters *counters = &legacy->values.items[i].counters;
		/* Where no more is known, what is in use is all that was allocated. */
		if (!legacy->knows_alloc && !legacy->counts_growth) {
			counters->alloc_bytes -= counters->free_bytes;
			counters->alloc_objects -= counters->free_objects;
		}
		if (!legacy->knows_alloc || legacy->counts_growth)
			counters->free_bytes = counters->free_objects = 0;
	}
}

static const char *name_of_kind(const struct legacy *legacy)
{
	if (legacy->read_line == read_jemalloc_line)
		return "jemalloc";
	return legacy->calls.count && !legacy->calls.has_symbols ? "go" : "gperftools";
}

static int finish(struct legacy *legacy, struct hl_profile **ret_profile)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;

	interpret(legacy);
	int r = hl_import_values_finish(&legacy->values, false, &legacy->builder, &profile);
	if (r < 0)
		return r;
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		profile->known[HL_VALUE_INUSE][unit] = !legacy->counts_growth;
		profile->known[HL_VALUE_ALLOC][unit] = legacy->knows_alloc || legacy->counts_growth;
	}
	if (legacy->sampling.mean_bytes > 1) /* else every allocation is a sample */
		profile->sample_bytes = (uint64_t)legacy->sampling.mean_bytes;
	r = warn_of_names(legacy, profile);
	if (r == 0)
		r = warn_of_sums(legacy, profile);
	if (r == 0)
		r = hl_strings_intern(&profile->strings, name_of_kind(legacy), &profile->source);
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

static int read_legacy(const struct hl_import_input *input, struct hl_profile **ret_profile,
		       struct hl_error *err)
{
	struct legacy legacy = {.input = input};
	struct hl_import_lines lines = heap_lines(input, &legacy.calls.has_symbols);
	struct hl_import_line line;

	int r = hl_builder_init(&legacy.builder);
	if (r == 0)
		r = read_names(&legacy);
	if (r == 0)
		r = read_header(&legacy, &lines, err);
	while (r == 0 && hl_import_text_next(&lines, &line) && !begins_maps(&line))
		if (!is_skipped(&line))
			r = legacy.read_line(&legacy, &line, err);
	if (r == 0)
		r = finish(&legacy, ret_profile);
	hl_builder_release(&legacy.builder);
	hl_import_maps_release(&legacy.maps);
	hl_import_values_release(&legacy.values);
	hl_import_calls_release(&legacy.calls);
	free(legacy.stack);
	free(legacy.is_allocator);
	free(legacy.own_values);
	return hl_importer_fail(input, r, err);
}

const struct hl_importer hl_importer_legacy = {
	.name = "gperftools",
	.detects = detects,
	.read = read_legacy,
};
