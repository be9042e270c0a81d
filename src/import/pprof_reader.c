/* SPDX-License-Identifier: BSD-2-Clause */
/* Goes through a pprof file message by message: its fields, texts, types and values; see pprof.h. */
#include "base/array.h"
#include "base/encode.h"
#include "import/pprof.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

/* ---- fields, as the encoding specification of protobuf has them ---- */

#define WIRE_BITS 3

int hl_pprof_reader_field(const uint8_t *bytes, size_t size, size_t *at,
			  struct hl_pprof_field *ret_field, const char **ret_problem)
{
	const uint8_t *next = bytes + *at, *end = bytes + size;
	struct hl_pprof_field field = {.offset = *at};
	uint64_t tag, length = 0;

	if (next == end)
		return 0;
	*ret_problem = "there is no field";
	if (!hl_varint_get(&next, end, &tag) || tag >> WIRE_BITS == 0 || tag > UINT32_MAX)
		return -EBADMSG;
	field.number = (uint32_t)(tag >> WIRE_BITS);
	field.wire = (enum hl_pprof_wire)(tag & 7);
	bool is_whole = true;
	switch (field.wire) {
	case HL_PPROF_VARINT:
		is_whole = hl_varint_get(&next, end, &field.value);
		break;
	case HL_PPROF_FIXED64:
		length = 8;
		break;
	case HL_PPROF_BYTES:
		is_whole = hl_varint_get(&next, end, &length);
		break;
	case HL_PPROF_FIXED32:
		length = 4;
		break;
	default:
		return -EBADMSG;
	}
	*ret_problem = "a field ends beyond the end of the file";
	if (!is_whole || length > (size_t)(end - next))
		return -EBADMSG;
	field.bytes = next;
	field.size = (size_t)length;
	*at = (size_t)(next - bytes) + field.size;
	*ret_field = field;
	return 1;
}

/* ---- messages ---- */

int hl_pprof_reader_bad(struct hl_pprof_reader *reader, const char *reason, ...)
{
	char text[256];
	va_list args;

	va_start(args, reason);
	vsnprintf(text, sizeof(text), reason, args);
	va_end(args);
	return hl_error_set(reader->err, -EBADMSG, "cannot read '%s': at offset %zu, %s",
			    reader->input->name, reader->offset, text);
}

int hl_pprof_reader_unpack_failed(struct hl_pprof_reader *reader, const char *what)
{
	return reader->out_of_memory ? -ENOMEM
				     : hl_pprof_reader_bad(reader, "a %s is damaged", what);
}

int hl_pprof_reader_each(struct hl_pprof_reader *reader, enum hl_pprof_number number,
			 enum hl_pprof_wire wire, hl_pprof_read *read, void *context)
{
	const struct hl_import_input *input = reader->input;
	struct hl_pprof_field field;
	const char *problem;
	size_t at = 0;
	int r;

	while ((r = hl_pprof_reader_field(input->bytes, input->size, &at, &field, &problem)) > 0) {
		reader->offset = field.offset;
		if (field.number != number || field.wire != wire)
			continue;
		r = read(context, &field);
		if (r < 0)
			return r;
	}
	reader->offset = at;
	return r < 0 ? hl_pprof_reader_bad(reader, "%s", problem) : 0;
}

/* ---- texts ---- */

static int add_text(void *context, const struct hl_pprof_field *field)
{
	struct hl_pprof_reader *reader = context;

	return HL_ARRAY_APPEND(reader->texts, reader->text_count, reader->text_capacity,
			       (uint32_t)field->offset);
}

int hl_pprof_reader_text(struct hl_pprof_reader *reader, int64_t index, char **ret_text)
{
	const struct hl_import_input *input = reader->input;
	struct hl_pprof_field field = {.bytes = (const uint8_t *)""};
	const char *problem;

	if (index < 0 || (index > 0 && (uint64_t)index >= reader->text_count))
		return hl_pprof_reader_bad(reader, "text %" PRId64 " is named, but there are %zu",
					   index, reader->text_count);
	if (index > 0) { /* 0 is "", even where it is not there */
		size_t at = reader->texts[index];
		hl_pprof_reader_field(input->bytes, input->size, &at, &field, &problem);
	}
	char *text = malloc(field.size + 1);
	if (!text)
		return -ENOMEM;
	memcpy(text, field.bytes, field.size);
	text[field.size] = '\0';
	*ret_text = text;
	return 0;
}

/* ---- life ---- */

static void *allocate(void *context, size_t size)
{
	struct hl_pprof_reader *reader = context;
	void *memory = malloc(size);

	if (!memory)
		reader->out_of_memory = true;
	return memory;
}

static void release(void *context, void *memory)
{
	(void)context;
	free(memory);
}

int hl_pprof_reader_init(struct hl_pprof_reader *reader, const struct hl_import_input *input,
			 struct hl_error *err)
{
	*reader = (struct hl_pprof_reader){
		.input = input, .err = err, .allocator = {allocate, release, reader}};
	if (input->size > UINT32_MAX)
		return hl_error_set(err, -EFBIG, "cannot read '%s': it is larger than 4 GiB",
				    input->name);
	return hl_pprof_reader_each(reader, HL_PPROF_STRING_TABLE, HL_PPROF_BYTES, add_text,
				    reader);
}

void hl_pprof_reader_release(struct hl_pprof_reader *reader)
{
	free(reader->texts);
	*reader = (struct hl_pprof_reader){0};
}

/* ---- types ---- */

enum {
	INUSE_OBJECTS = 2,
	INUSE_SPACE,
};

const struct hl_pprof_type hl_pprof_types[] = {
	{"alloc_objects", HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
	{"alloc_space", HL_VALUE_ALLOC, HL_UNIT_BYTES},
	[INUSE_OBJECTS] = {"inuse_objects", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	[INUSE_SPACE] = {"inuse_space", HL_VALUE_INUSE, HL_UNIT_BYTES},
	{"temporary_objects", HL_VALUE_TEMPORARY, HL_UNIT_OBJECTS},
	{"slack_space", HL_VALUE_SLACK, HL_UNIT_BYTES},
	{"resident_space", HL_VALUE_RESIDENT, HL_UNIT_BYTES},
	{"swapped_space", HL_VALUE_SWAPPED, HL_UNIT_BYTES},
	{"peak_objects", HL_VALUE_PEAK, HL_UNIT_OBJECTS},
	{"peak_space", HL_VALUE_PEAK, HL_UNIT_BYTES},
	/* pprof itself, of heap files of gperftools, and crates of Rust: */
	{"objects", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"space", HL_VALUE_INUSE, HL_UNIT_BYTES},
	/* Perfetto's heapprofd */
	{"Unreleased malloc count", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"Unreleased malloc size", HL_VALUE_INUSE, HL_UNIT_BYTES},
	{"Total malloc count", HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
	{"Total malloc size", HL_VALUE_ALLOC, HL_UNIT_BYTES},
};

const char *const hl_pprof_unit_names[] = {"bytes", "count"};

/* The names that pprof's measurement package gives to powers of 1024 bytes, without a plural s. */
static const struct {
	const char *letter, *word, *binary;
} byte_units[] = {
	{"b", "byte", "byte"},	   {"kb", "kilobyte", "kib"}, {"mb", "megabyte", "mib"},
	{"gb", "gigabyte", "gib"}, {"tb", "terabyte", "tib"}, {"pb", "petabyte", "pib"},
};

bool hl_pprof_unit_is_bytes(const char *unit, int64_t *ret_scale)
{
	size_t length = strlen(unit);
	int64_t scale = 1;

	if (length > 2 && unit[length - 1] == 's')
		length--;
	for (size_t i = 0; i < HL_COUNT_OF(byte_units); i++, scale *= 1024) {
		const char *const names[] = {byte_units[i].letter, byte_units[i].word,
					     byte_units[i].binary};
		for (size_t k = 0; k < HL_COUNT_OF(names); k++)
			if (strlen(names[k]) == length && !strncasecmp(unit, names[k], length)) {
				*ret_scale = scale;
				return true;
			}
	}
	return false;
}

int hl_pprof_values_add_type(struct hl_pprof_values *values, const char *name, const char *unit)
{
	struct hl_pprof_column column = {.scale = 1};
	bool is_bytes = hl_pprof_unit_is_bytes(unit, &column.scale);

	/* The type of that name, if it counts in a unit that is ours, and if no column before is it. */
	for (size_t i = 0; !column.type && i < HL_COUNT_OF(hl_pprof_types); i++) {
		const struct hl_pprof_type *type = &hl_pprof_types[i];
		if (!strcmp(type->name, name) && is_bytes == (type->unit == HL_UNIT_BYTES) &&
		    !values->known[type->value][type->unit])
			column.type = type;
	}
	int r = HL_ARRAY_RESERVE(values->columns, values->column_capacity,
				 values->column_count + 1);
	if (r < 0)
		return r;
	column.name = strdup(name);
	column.unit = strdup(unit);
	if (!column.name || !column.unit) {
		free(column.name);
		free(column.unit);
		return -ENOMEM;
	}
	if (column.type)
		values->known[column.type->value][column.type->unit] = true;
	values->columns[values->column_count++] = column;
	return 0;
}

int hl_pprof_values_choose(struct hl_pprof_values *values, const char *preferred,
			   struct hl_profile *profile)
{
	bool counts_memory = false;
	int64_t scale;
	int r = 0;

	for (size_t i = 0; i < values->column_count; i++) {
		const struct hl_pprof_type *type = values->columns[i].type;
		counts_memory |= type != NULL;
		if (!type || strcmp(values->columns[i].name, preferred) != 0)
			continue;
		profile->has_preferred = true;
		profile->preferred_value = type->value;
		profile->preferred_unit = type->unit;
	}
	if (!counts_memory) {
		struct hl_pprof_column *column = &values->columns[values->column_count - 1];
		for (size_t i = values->column_count; i-- > 0;)
			if (!strcmp(values->columns[i].name, preferred))
				column = &values->columns[i];
		bool is_bytes = hl_pprof_unit_is_bytes(column->unit, &scale);
		column->type = &hl_pprof_types[is_bytes ? INUSE_SPACE : INUSE_OBJECTS];
		values->known[column->type->value][column->type->unit] = true;
		r = hl_profile_warn(profile,
				    "the file does not count memory in use, but '%s' in %s, which "
				    "is shown as %s in use",
				    column->name, column->unit[0] ? column->unit : "no unit",
				    hl_unit_names[column->type->unit]);
	}
	memcpy(profile->known, values->known, sizeof(profile->known));
	return r;
}

/* ---- values ---- */

/*
 * A file counts memory in use, a profile freed memory. Where only one of alloc and inuse is known
 * the other is taken to be equal, and not shown.
 */
int hl_pprof_values_add(struct hl_pprof_values *values, uint32_t node, const int64_t *numbers)
{
	int64_t figures[HL_VALUE_COUNT][HL_UNIT_COUNT] = {0};
	struct hl_import_value value = {.node = node};

	for (size_t i = 0; i < values->column_count; i++) {
		const struct hl_pprof_type *type = values->columns[i].type;
		if (type)
			figures[type->value][type->unit] =
				(int64_t)((uint64_t)numbers[i] *
					  (uint64_t)values->columns[i].scale);
	}
	for (int unit = 0; unit < HL_UNIT_COUNT; unit++) {
		if (!values->known[HL_VALUE_ALLOC][unit])
			figures[HL_VALUE_ALLOC][unit] = figures[HL_VALUE_INUSE][unit];
		if (!values->known[HL_VALUE_INUSE][unit])
			figures[HL_VALUE_INUSE][unit] = figures[HL_VALUE_ALLOC][unit];
	}
	const int64_t *inuse = figures[HL_VALUE_INUSE], *alloc = figures[HL_VALUE_ALLOC];
	value.counters = (struct hl_profile_counters){
		.alloc_bytes = alloc[HL_UNIT_BYTES],
		.alloc_objects = alloc[HL_UNIT_OBJECTS],
		.free_bytes = alloc[HL_UNIT_BYTES] - inuse[HL_UNIT_BYTES],
		.free_objects = alloc[HL_UNIT_OBJECTS] - inuse[HL_UNIT_OBJECTS],
		.peak_bytes = figures[HL_VALUE_PEAK][HL_UNIT_BYTES],
		.peak_objects = figures[HL_VALUE_PEAK][HL_UNIT_OBJECTS],
		.temporary_objects = figures[HL_VALUE_TEMPORARY][HL_UNIT_OBJECTS],
		.slack_bytes = figures[HL_VALUE_SLACK][HL_UNIT_BYTES],
		.resident_bytes = figures[HL_VALUE_RESIDENT][HL_UNIT_BYTES],
		.swapped_bytes = figures[HL_VALUE_SWAPPED][HL_UNIT_BYTES],
	};
	return hl_import_values_add(&values->figures, &value);
}

void hl_pprof_values_release(struct hl_pprof_values *values)
{
	for (size_t i = 0; i < values->column_count; i++) {
		free(values->columns[i].name);
		free(values->columns[i].unit);
	}
	free(values->columns);
	hl_import_values_release(&values->figures);
	*values = (struct hl_pprof_values){0};
}
