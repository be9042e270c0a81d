/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pprof file in memory, inflated: goes through its messages, which protobuf-c unpacks one by one,
 * and says where one is wrong. protobuf-c would make 60 times its size of a file of empty samples,
 * and has no offsets for messages.
 */
#pragma once

#include "base/error.h"
#include "import/importer.h"

#include <protobuf-c/protobuf-c.h>

/* ---- fields of a message of protobuf ---- */

enum hl_pprof_wire {
	HL_PPROF_VARINT = 0,
	HL_PPROF_FIXED64 = 1,
	HL_PPROF_BYTES = 2, /* a message, a text, or numbers packed */
	HL_PPROF_FIXED32 = 5,
};

struct hl_pprof_field {
	uint32_t number;
	enum hl_pprof_wire wire;
	size_t offset;	      /* of the field */
	uint64_t value;	      /* HL_PPROF_VARINT */
	const uint8_t *bytes; /* HL_PPROF_BYTES: what it holds, and how much */
	size_t size;
};

/*
 * Reads the field at *${at} of the ${size} ${bytes} and goes on after it. 1; 0 at the end;
 * -EBADMSG when there is none, or not all of it: its offset is still *${at}, and why in
 * ${ret_problem}.
 */
int hl_pprof_reader_field(const uint8_t *bytes, size_t size, size_t *at,
			  struct hl_pprof_field *ret_field, const char **ret_problem);

/* ---- the messages of a file ---- */

/* Numbers of the fields of Profile, see pprof.proto. */
enum hl_pprof_number {
	HL_PPROF_SAMPLE_TYPE = 1,
	HL_PPROF_SAMPLE = 2,
	HL_PPROF_MAPPING = 3,
	HL_PPROF_LOCATION = 4,
	HL_PPROF_FUNCTION = 5,
	HL_PPROF_STRING_TABLE = 6,
	HL_PPROF_DROP_FRAMES = 7,
	HL_PPROF_TIME_NANOS = 9,
	HL_PPROF_DURATION_NANOS = 10,
	HL_PPROF_PERIOD_TYPE = 11,
	HL_PPROF_PERIOD = 12,
	HL_PPROF_COMMENT = 13,
	HL_PPROF_DEFAULT_SAMPLE_TYPE = 14,
	HL_PPROF_DOC_URL = 15,
};

struct hl_pprof_reader {
	const struct hl_import_input *input;
	struct hl_error *err;
	ProtobufCAllocator allocator; /* for unpacking messages; out_of_memory says why it failed */
	bool out_of_memory;
	uint32_t *texts; /* offsets of their fields */
	size_t text_count, text_capacity;
	size_t offset; /* of the field that is being read */
};

/* Finds the texts of ${input}, which must stay. 0 or a negative errno with a sentence in ${err},
 * except for -ENOMEM, which has none here and below. Release in any case; do not move. */
int hl_pprof_reader_init(struct hl_pprof_reader *reader, const struct hl_import_input *input,
			 struct hl_error *err);

void hl_pprof_reader_release(struct hl_pprof_reader *reader);

typedef int hl_pprof_read(void *context, const struct hl_pprof_field *field);

/* Calls ${read} for each field ${number} of Profile of that ${wire} type, until one fails. */
int hl_pprof_reader_each(struct hl_pprof_reader *reader, enum hl_pprof_number number,
			 enum hl_pprof_wire wire, hl_pprof_read *read, void *context);

/* A copy of text ${index}, to be freed; up to its first NUL byte, if it has any. */
int hl_pprof_reader_text(struct hl_pprof_reader *reader, int64_t index, char **ret_text);

/* Reports an error at the offset that is being read. -EBADMSG. */
int hl_pprof_reader_bad(struct hl_pprof_reader *reader, const char *reason, ...) HL_PRINTF(2, 3);

/* Why a message, ${what}, could not be unpacked. */
int hl_pprof_reader_unpack_failed(struct hl_pprof_reader *reader, const char *what);
