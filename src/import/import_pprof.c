/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads profile.proto, the format of pprof. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "import/importer.h"
#include "import/pprof.h"
#include "pprof.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Goes through a pprof file message by message: its fields, texts, types and values; see pprof.h. */

/* ---- fields, as the encoding specification of protobuf has them ---- */

#define WIRE_BITS 3

/*
 * Reads the field at *${at} of the ${size} ${bytes} and goes on after it. 1; 0 at the end;
 * -EBADMSG when there is none, or not all of it: its offset is still *${at}, and why in
 * ${ret_problem}.
 */
static int pprof_reader_field(const uint8_t *bytes, size_t size, size_t *at,
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

	while ((r = pprof_reader_field(input->bytes, input->size, &at, &field, &problem)) > 0) {
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
		pprof_reader_field(input->bytes, input->size, &at, &field, &problem);
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

/* Finds the texts of ${input}, which must stay. 0 or a negative errno with a sentence in ${err},
 * except for -ENOMEM, which has none here and below. Release in any case; do not move. */
static int pprof_reader_init(struct hl_pprof_reader *reader, const struct hl_import_input *input,
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

static void pprof_reader_release(struct hl_pprof_reader *reader)
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

/* Whether ${unit} counts bytes, by any name that pprof knows; ${ret_scale}: how many. */
static bool pprof_unit_is_bytes(const char *unit, int64_t *ret_scale)
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

/* The next of a sample's values is called ${name}, in ${unit}; both are copied. 0 or -ENOMEM. */
static int pprof_values_add_type(struct hl_pprof_values *values, const char *name, const char *unit)
{
	struct hl_pprof_column column = {.scale = 1};
	bool is_bytes = pprof_unit_is_bytes(unit, &column.scale);

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

/*
 * Decides which values are shown, once there is a type: those that count memory; views begin with
 * the one called ${preferred}. If none counts memory, that one or else the last is shown as memory in
 * use, and a warning in ${profile} says so. 0 or -ENOMEM.
 */
static int pprof_values_choose(struct hl_pprof_values *values, const char *preferred,
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
		bool is_bytes = pprof_unit_is_bytes(column->unit, &scale);
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

static void pprof_values_release(struct hl_pprof_values *values)
{
	for (size_t i = 0; i < values->column_count; i++) {
		free(values->columns[i].name);
		free(values->columns[i].unit);
	}
	free(values->columns);
	hl_import_values_release(&values->figures);
	*values = (struct hl_pprof_values){0};
}

/* ---- the importer ---- */

#define WARNING "WARNING: " /* like hl_notices_of_profile() begins them */

struct importer {
	struct hl_pprof_reader reader;
	struct hl_builder builder;
	struct hl_pprof_values values;
	int64_t default_type, drop, keep; /* texts */
	int64_t period;
};

/* ---- what stands beside the stacks ---- */

static int read_type(void *context, const struct hl_pprof_field *field)
{
	struct importer *importer = context;
	ProtobufCAllocator *allocator = &importer->reader.allocator;
	HL_FREED char *name = NULL, *unit = NULL;

	Pprof__ValueType *type = pprof__value_type__unpack(allocator, field->size, field->bytes);
	if (!type)
		return hl_pprof_reader_unpack_failed(&importer->reader, "sample type");
	int r = hl_pprof_reader_text(&importer->reader, type->type, &name);
	if (r == 0)
		r = hl_pprof_reader_text(&importer->reader, type->unit, &unit);
	if (r == 0)
		r = pprof_values_add_type(&importer->values, name, unit);
	pprof__value_type__free_unpacked(type, allocator);
	return r;
}

/* A period in bytes means sampling: then the figures are estimates. */
static int read_period_type(void *context, const struct hl_pprof_field *field)
{
	struct importer *importer = context;
	ProtobufCAllocator *allocator = &importer->reader.allocator;
	HL_FREED char *unit = NULL;
	int64_t scale;

	Pprof__ValueType *type = pprof__value_type__unpack(allocator, field->size, field->bytes);
	if (!type)
		return hl_pprof_reader_unpack_failed(&importer->reader, "period type");
	int r = hl_pprof_reader_text(&importer->reader, type->unit, &unit);
	if (r == 0 && importer->period > 1 && pprof_unit_is_bytes(unit, &scale))
		importer->builder.profile->sample_bytes =
			(uint64_t)importer->period * (uint64_t)scale;
	pprof__value_type__free_unpacked(type, allocator);
	return r;
}

/*
 * Ours hold what the format has no field for; others are for people and become warnings. A warning
 * that was exported is a warning again.
 */
static int read_comment_text(struct importer *importer, uint64_t index)
{
	struct hl_profile *profile = importer->builder.profile;
	HL_FREED char *text = NULL;

	int r = hl_pprof_reader_text(&importer->reader, (int64_t)index, &text);
	if (r < 0)
		return r;
	if (!strncmp(text, HL_PPROF_COMMAND, strlen(HL_PPROF_COMMAND)))
		return hl_strings_intern(&profile->strings, text + strlen(HL_PPROF_COMMAND),
					 &profile->command);
	if (!strncmp(text, HL_PPROF_MODE, strlen(HL_PPROF_MODE)))
		return hl_strings_intern(&profile->strings, text + strlen(HL_PPROF_MODE),
					 &profile->mode);
	if (!strncmp(text, HL_PPROF_RUNTIME, strlen(HL_PPROF_RUNTIME)))
		return hl_builder_runtime(&importer->builder, text + strlen(HL_PPROF_RUNTIME),
					  &(uint32_t){0});
	bool is_warning = !strncmp(text, WARNING, strlen(WARNING));
	return hl_profile_warn(profile, "%s", text + (is_warning ? strlen(WARNING) : 0));
}

/* Several comments in one field. */
static int read_comments(void *context, const struct hl_pprof_field *field)
{
	struct importer *importer = context;
	const uint8_t *at = field->bytes, *end = at + field->size;
	uint64_t index;
	int r = 0;

	while (r == 0 && at < end) {
		if (!hl_varint_get(&at, end, &index))
			return hl_pprof_reader_bad(&importer->reader, "a comment is damaged");
		r = read_comment_text(importer, index);
	}
	return r;
}

/* One comment in a field. */
static int read_comment(void *context, const struct hl_pprof_field *field)
{
	return read_comment_text(context, field->value);
}

static int read_number(void *context, const struct hl_pprof_field *field)
{
	struct importer *importer = context;
	struct hl_profile *profile = importer->builder.profile;

	if (field->number == HL_PPROF_TIME_NANOS)
		profile->start_realtime_ns = field->value;
	else if (field->number == HL_PPROF_DURATION_NANOS)
		profile->duration_ns = field->value;
	else if (field->number == HL_PPROF_PERIOD)
		importer->period = (int64_t)field->value;
	else if (field->number == HL_PPROF_DROP_FRAMES)
		importer->drop = (int64_t)field->value;
	else if (field->number == HL_PPROF_KEEP_FRAMES)
		importer->keep = (int64_t)field->value;
	else
		importer->default_type = (int64_t)field->value;
	return 0;
}

static int read_head(struct importer *importer)
{
	static const struct {
		enum hl_pprof_number number;
		enum hl_pprof_wire wire;
		hl_pprof_read *read;
	} steps[] = {
		{HL_PPROF_SAMPLE_TYPE, HL_PPROF_BYTES, read_type},
		{HL_PPROF_DEFAULT_SAMPLE_TYPE, HL_PPROF_VARINT, read_number},
		{HL_PPROF_DROP_FRAMES, HL_PPROF_VARINT, read_number},
		{HL_PPROF_KEEP_FRAMES, HL_PPROF_VARINT, read_number},
		{HL_PPROF_TIME_NANOS, HL_PPROF_VARINT, read_number},
		{HL_PPROF_DURATION_NANOS, HL_PPROF_VARINT, read_number},
		{HL_PPROF_PERIOD, HL_PPROF_VARINT, read_number},
		{HL_PPROF_PERIOD_TYPE, HL_PPROF_BYTES, read_period_type},
		{HL_PPROF_COMMENT, HL_PPROF_VARINT, read_comment},
		{HL_PPROF_COMMENT, HL_PPROF_BYTES, read_comments},
	};
	HL_FREED char *default_type = NULL;
	int r = 0;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(steps); i++)
		r = hl_pprof_reader_each(&importer->reader, steps[i].number, steps[i].wire,
					 steps[i].read, importer);
	if (r == 0)
		r = hl_pprof_reader_text(&importer->reader, importer->default_type, &default_type);
	if (r < 0)
		return r;
	if (!importer->values.column_count)
		return hl_pprof_reader_bad(&importer->reader,
					   "the file ends, and has said of no value what it "
					   "counts");
	return pprof_values_choose(&importer->values, default_type, importer->builder.profile);
}

/* ---- all of it ---- */

static int read_stacks(struct importer *importer)
{
	HL_FREED char *drop = NULL, *keep = NULL;

	int r = hl_pprof_reader_text(&importer->reader, importer->drop, &drop);
	if (r == 0)
		r = hl_pprof_reader_text(&importer->reader, importer->keep, &keep);
	return r < 0 ? r
		     : hl_pprof_stacks_read(&importer->reader, &importer->builder,
					    &importer->values, drop, keep);
}

static int read_pprof(const struct hl_import_input *input, struct hl_profile **ret_profile,
		      struct hl_error *err)
{
	struct importer importer = {0};

	int r = pprof_reader_init(&importer.reader, input, err);
	if (r == 0)
		r = hl_builder_init(&importer.builder);
	if (r == 0)
		r = read_head(&importer);
	if (r == 0)
		r = read_stacks(&importer);
	if (r == 0)
		r = hl_import_values_finish(&importer.values.figures, false, &importer.builder,
					    ret_profile);
	pprof_reader_release(&importer.reader);
	hl_builder_release(&importer.builder);
	pprof_values_release(&importer.values);
	return hl_importer_fail(input, r, err);
}

/* ---- detection ---- */

static bool is_field_of_profile(const struct hl_pprof_field *field)
{
	bool is_number =
		field->number >= HL_PPROF_DROP_FRAMES && field->number != HL_PPROF_PERIOD_TYPE;

	if (field->number > HL_PPROF_DOC_URL || field->number < HL_PPROF_SAMPLE_TYPE)
		return false;
	return field->wire == (is_number ? HL_PPROF_VARINT : HL_PPROF_BYTES) ||
	       (field->number == HL_PPROF_COMMENT && field->wire == HL_PPROF_BYTES);
}

/* Of a message, the number of its first field; 0: it has none. */
static uint32_t first_number(const struct hl_pprof_field *message)
{
	struct hl_pprof_field field;
	const char *problem;
	size_t at = 0;

	return pprof_reader_field(message->bytes, message->size, &at, &field, &problem) > 0
		       ? field.number
		       : 0;
}

#define VALUE_TYPE_FIELDS 2 /* a type and its unit */
#define FIELDS_LOOKED_AT  16

/*
 * The format has no magic number, but no text and no other format begins with that many of its
 * fields, but for traces of packets, which are its first field to both.
 */
static bool detects(const struct hl_import_input *input)
{
	struct hl_pprof_field field;
	const char *problem;
	bool has_messages = false;
	size_t at = 0;

	for (int i = 0; i < FIELDS_LOOKED_AT && at < input->size; i++) {
		int r = pprof_reader_field(input->bytes, input->size, &at, &field, &problem);
		if (r < 0 && input->partial && i > 0) /* the field goes on after the head */
			break;
		if (r < 0 || !is_field_of_profile(&field) ||
		    (field.number == HL_PPROF_SAMPLE_TYPE &&
		     first_number(&field) > VALUE_TYPE_FIELDS))
			return false;
		has_messages |= field.number < HL_PPROF_DROP_FRAMES;
	}
	return has_messages;
}

#define PACKET_TAG (HL_PPROF_SAMPLE_TYPE << WIRE_BITS | HL_PPROF_BYTES)

bool hl_pprof_is_perfetto(const struct hl_import_input *input)
{
	struct hl_pprof_field field;
	const char *problem;
	size_t at = 0;

	for (int i = 0; i < FIELDS_LOOKED_AT && at < input->size; i++) {
		int r = pprof_reader_field(input->bytes, input->size, &at, &field, &problem);
		if (r < 0) /* a packet that goes on after the head; in text, anything */
			return input->partial && i > 0 && input->bytes[at] == PACKET_TAG;
		if (field.number != HL_PPROF_SAMPLE_TYPE || field.wire != HL_PPROF_BYTES ||
		    first_number(&field) <= VALUE_TYPE_FIELDS)
			return false;
	}
	return at > 0;
}

const struct hl_importer hl_importer_pprof = {"pprof", detects, read_pprof};
