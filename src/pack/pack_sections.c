/* SPDX-License-Identifier: BSD-2-Clause */
/* The columns of a packed recording and its META section; see pack_sections.h. */
#include "pack/pack_sections.h"

#include "recording/fields.h"
#include "recording/recording.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COUNTER_COLUMNS(owner)                                                                  \
	HL_COLUMN(owner, counters.alloc_bytes), HL_COLUMN(owner, counters.alloc_objects),       \
		HL_COLUMN(owner, counters.free_bytes), HL_COLUMN(owner, counters.free_objects), \
		HL_COLUMN(owner, counters.temporary_objects),                                   \
		HL_COLUMN(owner, counters.slack_bytes), HL_COLUMN(owner, counters.peak_bytes),  \
		HL_COLUMN(owner, counters.peak_objects)
#define COUNTER_BYTES (8 * 8)

static const struct hl_section_column process_columns[] = {
	HL_COLUMN(hl_profile_process, pid),	    HL_COLUMN(hl_profile_process, parent_pid),
	HL_COLUMN(hl_profile_process, sequence),    HL_COLUMN(hl_profile_process, command),
	HL_COLUMN(hl_profile_process, executable),  HL_COLUMN(hl_profile_process, end),
	HL_COLUMN(hl_profile_process, duration_ns), HL_COLUMN(hl_profile_process, complete),
	HL_COLUMN(hl_profile_process, own_malloc),
#define LOST_COLUMN(member, ...) HL_COLUMN(hl_profile_process, lost.member),
	HL_LOST_COUNTERS(LOST_COLUMN, HL_LOST_SKIP)};

/* Of modules and processes, too: packed recordings of heapline 0.1 do not have these. */
static const struct hl_section_column print_columns[] = {
	HL_COLUMN(hl_profile_module, print.bytes),
	HL_COLUMN(hl_profile_module, print.mtime_ns),
	HL_COLUMN(hl_profile_module, print.hash),
};
static const struct hl_section_column inherited_columns[] = {
	HL_COLUMN(hl_profile_process, lost.inherited_frees),
	HL_COLUMN(hl_profile_process, lost.damaged),
};

static const struct hl_section_column thread_columns[] = {
	HL_COLUMN(hl_profile_thread, process),
	HL_COLUMN(hl_profile_thread, tid),
	HL_COLUMN(hl_profile_thread, name),
	HL_COLUMN(hl_profile_thread, earlier_threads),
};

static const struct hl_section_column module_columns[] = {
	HL_COLUMN(hl_profile_module, path),	      HL_COLUMN(hl_profile_module, build_id),
	HL_COLUMN(hl_profile_module, build_id_bytes), HL_COLUMN(hl_profile_module, used),
	HL_COLUMN(hl_profile_module, symbols),	      HL_COLUMN(hl_profile_module, symbols_reason),
};

static const struct hl_section_column function_columns[] = {
	HL_COLUMN(hl_profile_function, name),
	HL_COLUMN(hl_profile_function, file),
	HL_COLUMN(hl_profile_function, line),
	HL_COLUMN(hl_profile_function, module),
};

static const struct hl_section_column frame_columns[] = {
	HL_COLUMN(hl_profile_frame, address), HL_COLUMN(hl_profile_frame, function),
	HL_COLUMN(hl_profile_frame, file),    HL_COLUMN(hl_profile_frame, line),
	HL_COLUMN(hl_profile_frame, inlined),
};

static const struct hl_section_column script_columns[] = {
	HL_COLUMN(hl_profile_frame, part),
	HL_COLUMN(hl_profile_frame, provider),
};

static const struct hl_section_column node_columns[] = {
	HL_COLUMN(hl_pack_node, depth),
	HL_COLUMN(hl_pack_node, frame),
};

static const struct hl_section_column row_columns[] = {
	HL_COLUMN(hl_profile_row, node),
	HL_COLUMN(hl_profile_row, thread),
	COUNTER_COLUMNS(hl_profile_row),
};

static const struct hl_section_column resident_columns[] = {
	HL_COLUMN(hl_profile_row, counters.resident_bytes),
	HL_COLUMN(hl_profile_row, counters.swapped_bytes),
};

static const struct hl_section_column size_columns[] = {
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
#define LOST_COLUMNS(member, ...)                                                           \
	{(const struct hl_section_column[]){HL_COLUMN(hl_profile_process, lost.member)}, 1, \
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

/* ---- the META section, as a table of fields; known figures are an array of words such as "peak_bytes" ---- */

typedef bool known_figures[HL_VALUE_COUNT][HL_UNIT_COUNT];

static const char *known_word(int value, int unit, char word[32])
{
	snprintf(word, 32, "%s_%s", hl_value_names[value], hl_unit_names[unit]);
	return word;
}

static json_t *write_known(const void *figures)
{
	const known_figures *known = figures;
	json_auto_t *array = json_array();
	char word[32];

	for (int value = 0; array && value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
			if ((*known)[value][unit] &&
			    json_array_append_new(array,
						  json_string(known_word(value, unit, word))) < 0)
				return NULL;
	return json_incref(array);
}

static int read_known(const json_t *array, void *ret_figures)
{
	known_figures *known = ret_figures;

	if (!json_is_array(array))
		return -EINVAL;
	for (size_t i = 0; i < json_array_size(array); i++) {
		const char *found = json_string_value(json_array_get(array, i));
		char word[32];
		for (int value = 0; value < HL_VALUE_COUNT; value++)
			for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
				if (found && !strcmp(found, known_word(value, unit, word)))
					(*known)[value][unit] = true;
	}
	return 0;
}

static const struct hl_field_codec known_codec = {write_known, read_known};

static const struct hl_field warning_field = {.key = "warning", .type = HL_FIELD_INTERNED};

static const struct hl_field mark_fields[] = {
	HL_FIELD(hl_profile_mark, U32, pid),
	HL_FIELD(hl_profile_mark, U64, ms, .max = INT64_MAX),
	HL_FIELD(hl_profile_mark, INTERNED, name),
	{0},
};

static const struct hl_field figure_fields[] = {
	HL_FIELD(hl_profile_figure, INTERNED, name),
	HL_FIELD(hl_profile_figure, I64, value),
	{0},
};

/* Older files lack optional ones. */
static const struct hl_field fields[] = {
	HL_FIELD(hl_profile, INTERNED, command),
	HL_FIELD(hl_profile, INTERNED, host),
	HL_FIELD(hl_profile, INTERNED, kernel),
	HL_FIELD(hl_profile, INTERNED, mode),
	HL_FIELD(hl_profile, INTERNED, tool_version),
	HL_FIELD(hl_profile, INTERNED, source),
	HL_FIELD(hl_profile, BOOL, imported),
	HL_FIELD(hl_profile, U64, sample_bytes),
	HL_FIELD(hl_profile, U64, start_realtime_ns),
	HL_FIELD(hl_profile, U64, duration_ns),
	HL_FIELD(hl_profile, BOOL, complete),
	HL_FIELD(hl_profile, U64, recorded_process_count, .max = INT64_MAX),
	HL_FIELD(hl_profile, INTERNED, moment),
	HL_FIELD(hl_profile, U64, moment_ms),
	HL_FIELD(hl_profile, INTERNED, base_name),
	HL_FIELD(hl_profile, U64, base_duration_ns),
	HL_FIELD(hl_profile, INTERNED, base_moment),
	HL_FIELD(hl_profile, U64, base_moment_ms),
	HL_FIELD(hl_profile, INTERNED, base_source, .optional = true),
	HL_FIELD(hl_profile, BOOL, snapshot, .optional = true),
	HL_FIELD(hl_profile, BOOL, attached, .optional = true),
	HL_FIELD(hl_profile, BOOL, no_scripts, .optional = true),
	HL_FIELD(hl_profile, U64, reset_ns, .optional = true),
	HL_FIELD(hl_profile, U64, unrecorded_children, .optional = true),
	HL_FIELD(hl_profile, U64, refused_children, .optional = true),
	HL_FIELD(hl_profile, BOOL, resident_is_mean, .optional = true),
	HL_FIELD(hl_profile, U64, resident_unknown_bytes, .max = INT64_MAX, .optional = true),
	HL_FIELD(hl_profile, CODED, known, .codec = &known_codec),
	HL_FIELD_ITEMS(hl_profile, warnings, warning_count, &warning_field,
		       .items = HL_ITEMS_VALUES),
	HL_FIELD_ITEMS(hl_profile, marks, mark_count, mark_fields, .items = HL_ITEMS_TUPLES,
		       .optional = true),
	HL_FIELD_ITEMS(hl_profile, figures, figure_count, figure_fields, .items = HL_ITEMS_TUPLES,
		       .max = HL_RECORDING_FIGURES_MAX, .optional = true),
	{0},
};

char *hl_pack_meta_write(const struct hl_profile *profile)
{
	json_t *object = hl_fields_write(fields, profile, &profile->strings);

	if (object &&
	    json_object_set_new(object, "compared", json_boolean(profile->base != NULL)) < 0) {
		json_decref(object);
		return NULL;
	}
	return hl_fields_print(object);
}

/* Names that are valid, and none twice. */
static bool has_valid_figures(const struct hl_profile *profile)
{
	for (size_t i = 0; i < profile->figure_count; i++) {
		uint32_t name = profile->figures[i].name;
		if (!hl_figure_name_is_valid(hl_profile_text(profile, name)))
			return false;
		for (size_t earlier = 0; earlier < i; earlier++)
			if (profile->figures[earlier].name == name)
				return false;
	}
	return true;
}

int hl_pack_meta_read(const char *text, size_t size, const char *name, struct hl_profile *profile,
		      bool *ret_compared, struct hl_error *err)
{
	const struct hl_field_source source = {name, &profile->strings, err};
	json_auto_t *root = NULL;

	int r = hl_fields_parse(&source, text, size, &root);
	if (r == 0)
		r = hl_fields_read(&source, fields, root, profile);
	if (r < 0)
		return r;
	if (!has_valid_figures(profile))
		return hl_fields_blame(&source, "figures");
	const json_t *compared = json_object_get(root, "compared");
	if (!json_is_boolean(compared))
		return hl_fields_blame(&source, "compared");
	*ret_compared = json_is_true(compared);
	return 0;
}
