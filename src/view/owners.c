/* SPDX-License-Identifier: BSD-2-Clause */
/* Live blocks by owner: the rows of view/allocations.h, and how far one may believe them. */
#include "view/owners.h"

#include "view/allocations.h"
#include "view/format.h"
#include "view/heap_words.h"

static const struct {
	const char *name, *says;
} sources[] = {
	[HL_OWNERS_RECORDER] = {"recorder", "by the recorder in it; requested sizes"},
	[HL_OWNERS_TAGS] = {"tags", "by the tags in its blocks; usable sizes"},
	[HL_OWNERS_NONE] = {"none", "sizes alone"},
};

static void emit_head(struct hl_emit *emit, const struct hl_owners *owners, pid_t pid)
{
	hl_emit_object(emit, "process");
	hl_emit_integer(emit, "pid", pid);
	hl_emit_object_end(emit);
	hl_emit_text(emit, "source", sources[owners->source].name);
	hl_emit_text(emit, "allocator", owners->allocator);
	hl_emit_boolean(emit, "sizes_are_means", owners->sizes_are_means);
	hl_emit_line(emit, "live blocks of process %d%s%s, %s", pid,
		     owners->allocator[0] ? ", " : "", owners->allocator,
		     sources[owners->source].says);
	if (owners->sizes_are_means)
		hl_emit_warning(emit, "%s",
				"each block counts with the mean size of its call site: with this "
				"allocator only '--mode mem-record' knows the size of each");
}

static void emit_unknown(struct hl_emit *emit, const struct hl_owners *owners)
{
	char blocks[HL_FORMAT_MAX], bytes[HL_FORMAT_MAX];
	hl_emit_object(emit, "unknown");
	hl_emit_unsigned(emit, "inuse_blocks", owners->unknown_blocks);
	hl_emit_unsigned(emit, "inuse_bytes", owners->unknown_bytes);
	hl_emit_object_end(emit);
	if (owners->unknown_blocks)
		hl_emit_line(emit, "%s more, in %s block%s, have no known owner",
			     hl_format_bytes(hl_heap_number(owners->unknown_bytes), bytes),
			     hl_format_count(hl_heap_number(owners->unknown_blocks), blocks),
			     hl_format_plural(owners->unknown_blocks));
}

static void emit_notes(struct hl_emit *emit, const struct hl_owners *owners)
{
	hl_emit_array(emit, "notes");
	for (size_t i = 0; i < owners->note_count; i++) {
		hl_emit_text(emit, NULL, owners->notes[i]);
		hl_emit_line(emit, "%s", owners->notes[i]);
	}
	hl_emit_array_end(emit);
}

int hl_view_owners(const struct hl_owners *owners, pid_t pid, const struct hl_emit_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_open(options, "allocations/1", &emit);
	if (r < 0)
		return r;
	emit_head(emit, owners, pid);
	hl_allocations_emit(emit, &owners->allocations, options->row_limit);
	emit_unknown(emit, owners);
	emit_notes(emit, owners);
	return hl_emit_finish(emit);
}
