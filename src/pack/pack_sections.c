/* SPDX-License-Identifier: BSD-2-Clause */
/* The columns of a packed recording; see pack_sections.h. */
#include "pack/pack_sections.h"

#define COUNTER_COLUMNS(owner)                                                                  \
	HL_COLUMN(owner, counters.alloc_bytes), HL_COLUMN(owner, counters.alloc_objects),       \
		HL_COLUMN(owner, counters.free_bytes), HL_COLUMN(owner, counters.free_objects), \
		HL_COLUMN(owner, counters.temporary_objects),                                   \
		HL_COLUMN(owner, counters.slack_bytes), HL_COLUMN(owner, counters.peak_bytes),  \
		HL_COLUMN(owner, counters.peak_objects)

#define COUNTER_BYTES (8 * 8)

static const struct hl_column process_columns[] = {
	HL_COLUMN(hl_profile_process, pid),	    HL_COLUMN(hl_profile_process, parent_pid),
	HL_COLUMN(hl_profile_process, sequence),    HL_COLUMN(hl_profile_process, command),
	HL_COLUMN(hl_profile_process, executable),  HL_COLUMN(hl_profile_process, end),
	HL_COLUMN(hl_profile_process, duration_ns), HL_COLUMN(hl_profile_process, complete),
	HL_COLUMN(hl_profile_process, own_malloc),
#define LOST_COLUMN(member, ...) HL_COLUMN(hl_profile_process, lost.member),
	HL_LOST_COUNTERS(LOST_COLUMN, HL_LOST_SKIP)};

/* Of modules and processes, too: packed recordings of heapline 0.1 do not have these. */
static const struct hl_column print_columns[] = {
	HL_COLUMN(hl_profile_module, print.bytes),
	HL_COLUMN(hl_profile_module, print.mtime_ns),
	HL_COLUMN(hl_profile_module, print.hash),
};
static const struct hl_column inherited_columns[] = {
	HL_COLUMN(hl_profile_process, lost.inherited_frees),
	HL_COLUMN(hl_profile_process, lost.damaged),
};

static const struct hl_column thread_columns[] = {
	HL_COLUMN(hl_profile_thread, process),
	HL_COLUMN(hl_profile_thread, tid),
	HL_COLUMN(hl_profile_thread, name),
	HL_COLUMN(hl_profile_thread, earlier_threads),
};

static const struct hl_column module_columns[] = {
	HL_COLUMN(hl_profile_module, path),	      HL_COLUMN(hl_profile_module, build_id),
	HL_COLUMN(hl_profile_module, build_id_bytes), HL_COLUMN(hl_profile_module, used),
	HL_COLUMN(hl_profile_module, symbols),	      HL_COLUMN(hl_profile_module, symbols_reason),
};

static const struct hl_column function_columns[] = {
	HL_COLUMN(hl_profile_function, name),
	HL_COLUMN(hl_profile_function, file),
	HL_COLUMN(hl_profile_function, line),
	HL_COLUMN(hl_profile_function, module),
};

static const struct hl_column frame_columns[] = {
	HL_COLUMN(hl_profile_frame, address), HL_COLUMN(hl_profile_frame, function),
	HL_COLUMN(hl_profile_frame, file),    HL_COLUMN(hl_profile_frame, line),
	HL_COLUMN(hl_profile_frame, inlined),
};

static const struct hl_column script_columns[] = {
	HL_COLUMN(hl_profile_frame, part),
	HL_COLUMN(hl_profile_frame, provider),
};

static const struct hl_column node_columns[] = {
	HL_COLUMN(hl_pack_node, depth),
	HL_COLUMN(hl_pack_node, frame),
};

static const struct hl_column row_columns[] = {
	HL_COLUMN(hl_profile_row, node),
	HL_COLUMN(hl_profile_row, thread),
	COUNTER_COLUMNS(hl_profile_row),
};

static const struct hl_column resident_columns[] = {
	HL_COLUMN(hl_profile_row, counters.resident_bytes),
	HL_COLUMN(hl_profile_row, counters.swapped_bytes),
};

static const struct hl_column size_columns[] = {
	HL_COLUMN(hl_profile_size, node),
	HL_COLUMN(hl_profile_size, thread),
	HL_COLUMN(hl_profile_size, size_class),
	COUNTER_COLUMNS(hl_profile_size),
};

const struct hl_columns hl_pack_process_columns = {process_columns, HL_COUNT_OF(process_columns),
						   sizeof(struct hl_profile_process),
						   6 * 4 + 8 + 2 + 7 * 8};
const struct hl_columns hl_pack_print_columns = {print_columns, HL_COUNT_OF(print_columns),
						 sizeof(struct hl_profile_module), 24};
const struct hl_columns hl_pack_lost_columns[] = {
#define LOST_COLUMNS(member, ...)                                                   \
	{(const struct hl_column[]){HL_COLUMN(hl_profile_process, lost.member)}, 1, \
	 sizeof(struct hl_profile_process), 8},
	HL_LOST_COUNTERS(LOST_COLUMNS, LOST_COLUMNS)};
const struct hl_columns hl_pack_inherited_columns = {inherited_columns,
						     HL_COUNT_OF(inherited_columns),
						     sizeof(struct hl_profile_process), 2 * 8};
const struct hl_columns hl_pack_thread_columns = {thread_columns, HL_COUNT_OF(thread_columns),
						  sizeof(struct hl_profile_thread), 4 * 4};
const struct hl_columns hl_pack_module_columns = {module_columns, HL_COUNT_OF(module_columns),
						  sizeof(struct hl_profile_module),
						  4 + 32 + 4 + 1 + 4 + 4};
const struct hl_columns hl_pack_function_columns = {function_columns, HL_COUNT_OF(function_columns),
						    sizeof(struct hl_profile_function), 4 * 4};
const struct hl_columns hl_pack_frame_columns = {frame_columns, HL_COUNT_OF(frame_columns),
						 sizeof(struct hl_profile_frame), 8 + 3 * 4 + 1};
const struct hl_columns hl_pack_script_columns = {script_columns, HL_COUNT_OF(script_columns),
						  sizeof(struct hl_profile_frame), 1 + 4};
const struct hl_columns hl_pack_node_columns = {node_columns, HL_COUNT_OF(node_columns),
						sizeof(struct hl_pack_node), 2 * 4};
const struct hl_columns hl_pack_row_columns = {row_columns, HL_COUNT_OF(row_columns),
					       sizeof(struct hl_profile_row),
					       2 * 4 + COUNTER_BYTES};
const struct hl_columns hl_pack_resident_columns = {resident_columns, HL_COUNT_OF(resident_columns),
						    sizeof(struct hl_profile_row), 2 * 8};
const struct hl_columns hl_pack_size_columns = {size_columns, HL_COUNT_OF(size_columns),
						sizeof(struct hl_profile_size),
						3 * 4 + COUNTER_BYTES};
