/* SPDX-License-Identifier: BSD-2-Clause */
/* What importers of stacks share: calls, mappings and values; see importer.h. */
#include "import/importer.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/frame_key.h"
#include "base/names.h"
#include "elf/elf.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- calls that a file names ---- */

/* Between the names of functions that are inlined into each other; the outermost is first. */
#define INLINE_MARK "--"

/* Cuts ${text} .. *${end} before its last ${mark}; what follows the mark is in ${ret_rest}. */
static bool cut_at_last(const char *text, const char **end, char mark, const char **ret_rest)
{
	const char *at = memrchr(text, mark, (size_t)(*end - text));

	if (!at || at == text)
		return false;
	*ret_rest = at + 1;
	*end = at;
	return true;
}

static int add_call(struct hl_import_calls *calls, const struct hl_import_call *call)
{
	return HL_ARRAY_APPEND(calls->items, calls->count, calls->capacity, *call);
}

int hl_import_calls_add_comment(struct hl_import_calls *calls, const struct hl_import_line *line)
{
	struct hl_import_call call = {.order = calls->count, .line_number = line->number};
	const char *at = hl_import_text_skip_blanks(line->text + 1, line->end), *end = line->end,
		   *rest;
	int64_t number;

	if (hl_import_text_hex(at, end, &call.address, &at) < 0 || at == end || *at != '\t')
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
	return add_call(calls, &call);
}

int hl_import_calls_add_symbol(struct hl_import_calls *calls, const struct hl_import_line *line)
{
	struct hl_import_call call = {.line_number = line->number, .file = "", .file_end = NULL};
	const char *at = line->text, *end = line->end, *rest;
	size_t first = calls->count;
	int r = 0;

	if (hl_import_text_hex(at, end, &call.address, &at) < 0)
		return 0;
	call.file_end = call.file;
	/* jeprof appends the start address of the function: "main<00000000000011d8>" */
	const char *start = memrchr(at, '<', (size_t)(end - at));
	uint64_t begins_at;
	if (start && end[-1] == '>' && end - start > 16 &&
	    hl_import_text_hex(start + 1, end - 1, &begins_at, &rest) == 0 && rest == end - 1)
		end = start;
	for (at = hl_import_text_skip_blanks(at, end); r == 0 && at < end;) {
		const char *mark = memmem(at, (size_t)(end - at), INLINE_MARK, strlen(INLINE_MARK));
		call.function = at;
		call.function_end = mark ? mark : end;
		at = mark ? mark + strlen(INLINE_MARK) : end;
		if (call.function < call.function_end && *call.function)
			r = add_call(calls, &call);
	}
	/* the innermost comes first in a comment of Go, and so in the order of all */
	for (size_t i = first; i < calls->count; i++)
		calls->items[i].order = first + calls->count - 1 - i;
	return r;
}

static int by_address(const void *left, const void *right)
{
	const struct hl_import_call *a = left, *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return (a->order > b->order) - (a->order < b->order);
}

void hl_import_calls_finish(struct hl_import_calls *calls)
{
	if (calls->count)
		qsort(calls->items, calls->count, sizeof(*calls->items), by_address);
}

/* The calls at ${address}: those of one place follow each other in the file, in lines of their own
 * or in one. */
static size_t find_calls(const struct hl_import_calls *calls, uint64_t address, size_t *ret_first)
{
	size_t first = HL_LOWER_BOUND(i, calls->count, calls->items[i].address < address);
	size_t end = first;

	while (end < calls->count && calls->items[end].address == address &&
	       calls->items[end].order == calls->items[first].order + end - first &&
	       (end == first ||
		calls->items[end].line_number <= calls->items[end - 1].line_number + 1))
		end++;
	*ret_first = first;
	return end - first;
}

static int add_named_frame(struct hl_builder *builder, uint32_t parent,
			   const struct hl_import_call *call, bool inlined, uint32_t *ret_node)
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
	int r = hl_builder_frame(builder, &symbol, 0, call->address, &frame);
	return r < 0 ? r : hl_builder_child(builder, parent, frame, ret_node);
}

int hl_import_calls_nodes(const struct hl_import_calls *calls, struct hl_builder *builder,
			  uint32_t parent, uint64_t return_address, uint32_t *ret_node)
{
	size_t first = 0, count = 0;

	/* Go's comments have calls, and symbolized files either what the stacks have or calls. */
	if (calls->has_symbols)
		count = find_calls(calls, return_address, &first);
	if (!count && return_address)
		count = find_calls(calls, return_address - 1, &first);
	for (size_t i = count; i-- > 0; parent = *ret_node) {
		int r = add_named_frame(builder, parent, &calls->items[first + i], i + 1 < count,
					ret_node);
		if (r < 0)
			return r;
	}
	return count > 0;
}

void hl_import_calls_release(struct hl_import_calls *calls)
{
	free(calls->items);
	*calls = (struct hl_import_calls){0};
}

/* ---- mappings: the list ---- */

/* The rest of a line of proc(5) maps: "rwxp OFFSET DEVICE INODE    PATH". */
static bool parse_rest(const char *at, const char *end, struct hl_import_mapping *mapping)
{
	if (end - at < 4 || (at[0] != 'r' && at[0] != '-'))
		return false;
	mapping->executable = at[2] == 'x';
	at = hl_import_text_skip_blanks(at + 4, end);
	if (hl_import_text_hex(at, end, &mapping->offset, &at) < 0)
		return false;
	for (int word = 0; word < 2; word++) { /* device and inode */
		at = hl_import_text_skip_blanks(at, end);
		while (at < end && !hl_import_text_is_blank(*at))
			at++;
	}
	mapping->path = hl_import_text_skip_blanks(at, end);
	mapping->path_end = end;
	return true;
}

/* The rest of a line of the short form: ": PATH", or ": PATH @OFFSET"; one for all of a file. */
static bool parse_short_rest(const char *at, const char *end, struct hl_import_mapping *mapping)
{
	const char *rest;

	if (at == end || *at != ':')
		return false;
	mapping->executable = true;
	mapping->path = hl_import_text_skip_blanks(at + 1, end);
	mapping->path_end = end;
	const char *mark = memmem(mapping->path, (size_t)(end - mapping->path), " @", 2);
	if (mark && hl_import_text_hex(mark + 2, end, &mapping->offset, &rest) == 0 && rest == end)
		mapping->path_end = hl_import_text_trim(mapping->path, mark);
	return mapping->path < mapping->path_end;
}

/* "START-END" and blanks, then one of the two. */
int hl_import_maps_add(struct hl_import_maps *maps, const struct hl_import_line *line)
{
	struct hl_import_mapping mapping = {0};
	const char *at = hl_import_text_skip_blanks(line->text, line->end), *end = line->end;

	if (hl_import_text_hex(at, end, &mapping.start, &at) < 0 || at == end || *at++ != '-' ||
	    hl_import_text_hex(at, end, &mapping.end, &at) < 0 || mapping.end <= mapping.start)
		return 0;
	at = hl_import_text_skip_blanks(at, end);
	if (!parse_rest(at, end, &mapping) && !parse_short_rest(at, end, &mapping))
		return 0;
	return HL_ARRAY_APPEND(maps->mappings, maps->count, maps->capacity, mapping);
}

static int by_start(const void *left, const void *right)
{
	const struct hl_import_mapping *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

void hl_import_maps_finish(struct hl_import_maps *maps)
{
	if (maps->count)
		qsort(maps->mappings, maps->count, sizeof(*maps->mappings), by_start);
}

void hl_import_maps_release(struct hl_import_maps *maps)
{
	free(maps->mappings);
	*maps = (struct hl_import_maps){0};
}

/* ---- their files ---- */

bool hl_import_maps_may_hold_code(const char *path)
{
	struct stat status;

	return path[0] && (stat(path, &status) < 0 || S_ISREG(status.st_mode));
}

uint64_t hl_import_maps_shift(const char *path, const struct hl_import_mapping *mapping)
{
	uint64_t address;

	if (path[0] != '/' || !hl_import_maps_may_hold_code(path))
		return 0;
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (!elf || !hl_elf_address(elf, mapping->offset, mapping->executable, &address))
		return 0;
	return address - mapping->offset;
}

/* ---- addresses in them ---- */

int hl_import_maps_find(struct hl_import_maps *maps, struct hl_builder *builder, uint64_t address,
			uint32_t *ret_module, uint64_t *ret_address)
{
	size_t above = HL_LOWER_BOUND(i, maps->count, maps->mappings[i].start <= address);
	struct hl_import_mapping *mapping = above ? &maps->mappings[above - 1] : NULL;

	*ret_module = 0;
	*ret_address = address;
	if (!mapping || mapping->end <= address)
		return 0;
	if (!mapping->resolved) {
		HL_FREED char *path =
			strndup(mapping->path, (size_t)(mapping->path_end - mapping->path));
		if (!path)
			return -ENOMEM;
		if (hl_import_maps_may_hold_code(path)) {
			int r = hl_builder_module(builder, path, (const uint8_t *)"", 0, NULL,
						  &mapping->module);
			if (r < 0)
				return r;
			mapping->shift = hl_import_maps_shift(path, mapping);
		}
		mapping->resolved = true;
	}
	*ret_module = mapping->module;
	if (mapping->module)
		*ret_address = address - mapping->start + mapping->offset + mapping->shift;
	return 0;
}

/* ---- values ---- */

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
