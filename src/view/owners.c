/* SPDX-License-Identifier: BSD-2-Clause */
/* Live blocks by owner: allocations, and how far one may believe them. */
#include "view/heap.h"

#include "heap/owners/owners.h"

static const struct {
	const char *name, *says;
} sources[] = {
	[HL_OWNERS_RECORDER] = {"recorder", "by the recorder in it; requested sizes"},
	[HL_OWNERS_TAGS] = {"tags", "by the tags in its blocks; usable sizes"},
	[HL_OWNERS_NONE] = {"none", "sizes alone"},
};

int hl_owners_view(const struct hl_owners *owners, pid_t pid, const struct hl_emit_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_open(options, "allocations/1", &emit);
	if (r < 0)
		return r;
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
	hl_allocations_emit(emit, &owners->allocations, options->row_limit);
	hl_emit_object(emit, "unknown");
	hl_emit_unsigned(emit, "inuse_blocks", owners->unknown_blocks);
	hl_emit_unsigned(emit, "inuse_bytes", owners->unknown_bytes);
	hl_emit_object_end(emit);
	if (owners->unknown_blocks)
		hl_emit_line(emit, "%s more, in %s block%s, have no known owner",
			     HL_HEAP_BYTES(owners->unknown_bytes),
			     HL_HEAP_COUNT(owners->unknown_blocks),
			     hl_format_plural(owners->unknown_blocks));
	hl_emit_array(emit, "notes");
	for (char **note = owners->notes; note && *note; note++) {
		hl_emit_text(emit, NULL, *note);
		hl_emit_line(emit, "%s", *note);
	}
	hl_emit_array_end(emit);
	return hl_emit_finish(emit);
}
