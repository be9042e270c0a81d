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
 */
#include "import/import_stacks.h"
#include "import/import_text.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GPERFTOOLS_MARK "heap profile:"
#define JEMALLOC_MARK	"heap_v2/"
#define JEMALLOC_SUM	"t*:"

/* What gperftools samples by where the file does not say. */
#define GPERFTOOLS_MEAN_BYTES (128 * 1024.0)

/* Lines before the copy of /proc/self/maps; the second one is of old gperftools. */
static const char *const maps_marks[] = {"MAPPED_LIBRARIES:", "--- Memory map:"};

/* Both of what a line has: in use and, in brackets, ever allocated. */
struct amounts {
	struct hl_import_amount in_use, allocated;
};

/* What a comment of Go's names; texts are in the input. */
struct named_call {
	uint64_t call;
	uint64_t line_number; /* in the input */
	const char *function, *function_end, *file, *file_end;
	uint32_t line;
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
	struct named_call *calls; /* by call, those of one call as they stood */
	size_t call_count, call_capacity;
	struct hl_builder builder;
	struct hl_import_values values;
	uint64_t *stack; /* the line's addresses, the leaf first */
	size_t depth, stack_capacity;
	bool has_stack;	    /* jemalloc: read, and the sum that belongs to it not yet */
	bool *is_allocator; /* by function of the profile */
	size_t judged_count, judged_capacity;
	struct amounts announced, found; /* gperftools: by the header; in the stacks, unscaled */
	bool keeps_alloc; /* this kind of file is said to hold what was ever allocated, */
	bool knows_alloc; /* and does */
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

/* A name as it stands in ${text} .. ${end}, up to its last ${mark}, a number after it; or false. */
static bool cut_at_last(const char *text, const char **end, char mark, const char **ret_number)
{
	const char *at = memrchr(text, mark, (size_t)(*end - text));

	if (!at || at == text)
		return false;
	*ret_number = at + 1;
	*end = at;
	return true;
}

/* "#	0xCALL	FUNCTION+0xOFFSET	FILE:LINE"; other comments are ignored. */
static int read_comment(struct legacy *legacy, const struct hl_import_line *line)
{
	struct named_call call = {.line_number = line->number};
	const char *at = hl_import_text_skip_blanks(line->text + 1, line->end), *end = line->end,
		   *rest;
	int64_t number;

	if (hl_import_text_hex(at, end, &call.call, &at) < 0 || at == end || *at != '\t')
		return 0;
	call.function = hl_import_text_skip_blanks(at, end);
	const char *tab = memchr(call.function, '\t', (size_t)(end - call.function));
	call.function_end = tab ? tab : end;
	call.file = hl_import_text_skip_blanks(call.function_end, end);
	call.file_end = end;
	if (!cut_at_last(call.function, &call.function_end, '+', &rest) ||
	    !cut_at_last(call.file, &call.file_end, ':', &rest) ||
	    hl_import_text_number(rest, end, &number, &rest) < 0 || rest < end || number < 0 ||
	    number > UINT32_MAX || call.function == call.function_end || !*call.function)
		return 0;
	call.line = (uint32_t)number;
	return HL_ARRAY_APPEND(legacy->calls, legacy->call_count, legacy->call_capacity, call);
}

static int by_call(const void *left, const void *right)
{
	const struct named_call *a = left, *b = right;

	if (a->call != b->call)
		return a->call < b->call ? -1 : 1;
	return (a->line_number > b->line_number) - (a->line_number < b->line_number);
}

static bool is_comment(const struct hl_import_line *line)
{
	return line->text < line->end && *line->text == '#';
}

static int read_maps(struct legacy *legacy)
{
	struct hl_import_lines lines = hl_import_text_lines(legacy->input);
	struct hl_import_line line;
	bool begun = false;
	int r = 0;

	while (r == 0 && hl_import_text_next(&lines, &line)) {
		if (begun)
			r = hl_import_maps_add(&legacy->maps, &line);
		else if (is_comment(&line))
			r = read_comment(legacy, &line);
		begun = begun || begins_maps(&line);
	}
	hl_import_maps_finish(&legacy->maps);
	if (legacy->call_count)
		qsort(legacy->calls, legacy->call_count, sizeof(*legacy->calls), by_call);
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

static int add_named_frame(struct legacy *legacy, uint32_t parent, const struct named_call *call,
			   bool inlined, uint32_t *ret_node)
{
	HL_FREED char *function =
		strndup(call->function, (size_t)(call->function_end - call->function));
	HL_FREED char *file = strndup(call->file, (size_t)(call->file_end - call->file));
	const struct hl_symbols_frame symbol = {.function = function,
						.function_file = "",
						.file = file,
						.line = call->line,
						.inlined = inlined};
	uint32_t frame;

	if (!function || !file)
		return -ENOMEM;
	int r = hl_builder_frame(&legacy->builder, &symbol, 0, call->call, &frame);
	return r < 0 ? r : hl_builder_child(&legacy->builder, parent, frame, ret_node);
}

/* The node below ${parent} for a return address; the call is what is before it. */
static int add_frame(struct legacy *legacy, uint32_t parent, uint64_t return_address,
		     uint32_t *ret_node)
{
	uint64_t address = return_address ? return_address - 1 : 0;
	uint32_t module;
	int r = 0;

	/* The names of a call follow each other in the file. */
	size_t first = HL_LOWER_BOUND(i, legacy->call_count, legacy->calls[i].call < address);
	size_t end = first;
	while (end < legacy->call_count && legacy->calls[end].call == address &&
	       legacy->calls[end].line_number == legacy->calls[first].line_number + end - first)
		end++;
	for (size_t i = end; r == 0 && i-- > first; parent = *ret_node)
		r = add_named_frame(legacy, parent, &legacy->calls[i], i + 1 < end, ret_node);
	if (end > first)
		return r;
	r = hl_import_maps_find(&legacy->maps, &legacy->builder, address, &module, &address);
	return r < 0 ? r : hl_builder_node(&legacy->builder, parent, module, address, ret_node);
}

/* Both tools' stacks begin inside the allocator, heapline's with its caller: frames from the
 * outermost one of an allocator on are left out. */
static int add_stack(struct legacy *legacy, uint32_t *ret_node)
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

	legacy->found.in_use.bytes += amounts->in_use.bytes;
	legacy->found.allocated.bytes += amounts->allocated.bytes;
	/* Where nothing else is known, the brackets are empty or repeat what is in use. */
	legacy->knows_alloc =
		legacy->knows_alloc ||
		(amounts->allocated.objects &&
		 (legacy->keeps_alloc || amounts->allocated.objects != amounts->in_use.objects ||
		  amounts->allocated.bytes != amounts->in_use.bytes));
	int r = add_stack(legacy, &value.node);
	return r < 0 ? r : hl_import_values_add(&legacy->values, &value);
}

/* ---- gperftools ---- */

/* How the allocations were chosen: the word after the header's '@', "heap_v2/524288". What Go's
 * own pprof reads of it is read: a mean of half the number where the word is "heap" alone. */
static void read_kind(struct legacy *legacy, const char *at, const char *end)
{
	const char *slash = memchr(at, '/', (size_t)(end - at)), *rest;
	size_t length = (size_t)((slash ? slash : end) - at);
	int64_t interval;

	legacy->keeps_alloc = length == strlen("heapprofile") && !memcmp(at, "heapprofile", length);
	if (legacy->keeps_alloc || !memmem(at, length, "heap", strlen("heap")))
		return;
	if (!slash || hl_import_text_number(slash + 1, end, &interval, &rest) < 0 || interval <= 0)
		interval = 0;
	legacy->sampling.kind = HL_SAMPLING_TRUNCATED;
	legacy->sampling.mean_bytes =
		(double)(memmem(at, length, "_v2", strlen("_v2")) ? interval : interval / 2);
	if (!interval)
		legacy->sampling.mean_bytes = GPERFTOOLS_MEAN_BYTES;
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
		return bad_line(legacy, &line, "is no header of a heap file", err);
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

/* gperftools has a buffer of 1 MiB for the text, and leaves out the stacks that do not fit. */
static int warn_of_gaps(const struct legacy *legacy, struct hl_profile *profile)
{
	int in_use = share(legacy->found.in_use, legacy->announced.in_use);
	int allocated = share(legacy->found.allocated, legacy->announced.allocated);
	int r = 0;

	if (!legacy->maps.count && !legacy->call_count)
		r = hl_profile_warn(profile, "%s",
				    "there is no list of mapped files at the end, so "
				    "nothing has a name; the file may be cut off");
	if (r < 0 || (in_use == 100 && allocated == 100))
		return r;
	return hl_profile_warn(
		profile,
		"stacks are missing: the file has %d %% of what was in use and %d %% of what was "
		"allocated (%s)",
		in_use, allocated,
		legacy->call_count ? "it was cut off" : "gperftools writes no more than 1 MiB");
}

static int finish(struct legacy *legacy, struct hl_profile **ret_profile)
{
	HL_CLEANUP(hl_profile_free_at) struct hl_profile *profile = NULL;
	int r;

	/* Where no more is known, what is in use is all that was allocated. */
	for (size_t i = 0; !legacy->knows_alloc && i < legacy->values.count; i++) {
		struct hl_profile_counters *counters = &legacy->values.items[i].counters;
		counters->alloc_bytes -= counters->free_bytes;
		counters->alloc_objects -= counters->free_objects;
		counters->free_bytes = counters->free_objects = 0;
	}
	r = hl_import_values_finish(&legacy->values, false, &legacy->builder, &profile);
	if (r < 0)
		return r;
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		profile->known[HL_VALUE_INUSE][unit] = true;
		profile->known[HL_VALUE_ALLOC][unit] = legacy->knows_alloc;
	}
	if (legacy->sampling.mean_bytes > 1) /* else every allocation is a sample */
		profile->sample_bytes = (uint64_t)legacy->sampling.mean_bytes;
	r = warn_of_gaps(legacy, profile);
	if (r == 0)
		r = hl_strings_intern(&profile->strings,
				      legacy->read_line == read_jemalloc_line ? "jemalloc"
				      : legacy->call_count		      ? "go"
									      : "gperftools",
				      &profile->source);
	if (r == 0)
		*ret_profile = HL_TAKE(profile);
	return r;
}

static int read_legacy(const struct hl_import_input *input, struct hl_profile **ret_profile,
		       struct hl_error *err)
{
	struct legacy legacy = {.input = input};
	struct hl_import_lines lines = hl_import_text_lines(input);
	struct hl_import_line line;

	int r = hl_builder_init(&legacy.builder);
	if (r == 0)
		r = read_maps(&legacy);
	if (r == 0)
		r = read_header(&legacy, &lines, err);
	while (r == 0 && hl_import_text_next(&lines, &line) && !begins_maps(&line))
		if (line.text < line.end && !is_comment(&line))
			r = legacy.read_line(&legacy, &line, err);
	if (r == 0)
		r = finish(&legacy, ret_profile);
	hl_builder_release(&legacy.builder);
	hl_import_maps_release(&legacy.maps);
	hl_import_values_release(&legacy.values);
	free(legacy.calls);
	free(legacy.stack);
	free(legacy.is_allocator);
	return hl_importer_fail(input, r, err);
}

const struct hl_importer hl_importer_legacy = {
	.name = "gperftools",
	.detects = detects,
	.read = read_legacy,
};
