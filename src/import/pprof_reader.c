/* SPDX-License-Identifier: BSD-2-Clause */
/* Goes through a pprof file; see pprof.h. */
#include "import/pprof.h"

#include "base/array.h"
#include "base/encode.h"

#include <inttypes.h>
#include <stdio.h>

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
