/* SPDX-License-Identifier: BSD-2-Clause */
/* Names that a heap file gives to its calls; see import_stacks.h. */
#include "import/import_stacks.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#include <stdlib.h>
#include <string.h>

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
