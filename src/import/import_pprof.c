/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads profile.proto, the format of pprof. */
#include "base/cleanup.h"
#include "base/encode.h"
#include "import/importer.h"
#include "import/pprof.h"

#include "pprof.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
		r = hl_pprof_values_add_type(&importer->values, name, unit);
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
	if (r == 0 && importer->period > 1 && hl_pprof_unit_is_bytes(unit, &scale))
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
	return hl_pprof_values_choose(&importer->values, default_type, importer->builder.profile);
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

	int r = hl_pprof_reader_init(&importer.reader, input, err);
	if (r == 0)
		r = hl_builder_init(&importer.builder);
	if (r == 0)
		r = read_head(&importer);
	if (r == 0)
		r = read_stacks(&importer);
	if (r == 0)
		r = hl_import_values_finish(&importer.values.figures, false, &importer.builder,
					    ret_profile);
	hl_pprof_reader_release(&importer.reader);
	hl_builder_release(&importer.builder);
	hl_pprof_values_release(&importer.values);
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

#define FIELDS_LOOKED_AT 16

/* The format has no magic number, but no text and no other format begins with that many of its
 * fields. */
static bool detects(const struct hl_import_input *input)
{
	struct hl_pprof_field field;
	const char *problem;
	bool has_messages = false;
	size_t at = 0;

	for (int i = 0; i < FIELDS_LOOKED_AT && at < input->size; i++) {
		int r = hl_pprof_reader_field(input->bytes, input->size, &at, &field, &problem);
		if (r < 0 && input->partial && i > 0) /* the field goes on after the head */
			break;
		if (r < 0 || !is_field_of_profile(&field))
			return false;
		has_messages |= field.number < HL_PPROF_DROP_FRAMES;
	}
	return has_messages;
}

const struct hl_importer hl_importer_pprof = {"pprof", detects, read_pprof};
