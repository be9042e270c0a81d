/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pprof's files, inflated: the names of their values, which heapline writes and reads; their
 * messages, which protobuf-c unpacks one by one; and the call tree that is made of them. Unpacked at
 * once, a file of empty samples would take 60 times its size, and no message would know its offset.
 */
#pragma once

#include "base/error.h"
#include "import/importer.h"

#include <protobuf-c/protobuf-c.h>

/* ---- values: which of them count memory, and what they say of each stack ---- */

struct hl_pprof_type {
	const char *name;
	enum hl_value value;
	enum hl_unit unit;
};

/*
 * The first HL_PPROF_TYPE_COUNT are those that we write, in the order of Go's own heap profiles,
 * which all know; ours come after. The last of them is what readers show that know nothing of a
 * default. The others are only read.
 */
#define HL_PPROF_TYPE_COUNT 10
extern const struct hl_pprof_type hl_pprof_types[];

/* "bytes" and "count"; by enum hl_unit. */
extern const char *const hl_pprof_unit_names[];

/* Prefixes of comments that hold what pprof has no field for. */
#define HL_PPROF_COMMAND "command: "
#define HL_PPROF_MODE	 "mode: "
#define HL_PPROF_RUNTIME "script runtime: " /* which is the file of a mapping */

struct hl_pprof_column {
	char *name, *unit;		  /* as the file has them */
	const struct hl_pprof_type *type; /* NULL: not shown */
	int64_t scale;			  /* bytes, or blocks, in one of its units */
};

/* Zero-initialize for an empty one. */
struct hl_pprof_values {
	struct hl_pprof_column *columns;
	size_t column_count, column_capacity;
	struct hl_import_values figures; /* of the samples */
	bool known[HL_VALUE_COUNT][HL_UNIT_COUNT];
};

/* Adds a sample's ${numbers}, one for each type, to ${node}. 0 or -ENOMEM. */
int hl_pprof_values_add(struct hl_pprof_values *values, uint32_t node, const int64_t *numbers);

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

/* Whether ${input} begins as a trace of Perfetto does: packets, where a profile has the types of its values. */
bool hl_pprof_is_perfetto(const struct hl_import_input *input);

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
	HL_PPROF_KEEP_FRAMES = 8,
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

/* ---- stacks, from samples by way of locations, functions and mappings ---- */

/*
 * Adds the stacks of ${reader} to ${builder}, and what the file says of them to ${values}. Places
 * without names get them from the files they lie in, if these are there. A stack ends, once it has
 * begun, before a function whose whole name matches ${drop}, unless it matches ${keep}; "" matches
 * nothing. An expression that is not understood is a warning. 0 or a negative errno.
 */
int hl_pprof_stacks_read(struct hl_pprof_reader *reader, struct hl_builder *builder,
			 struct hl_pprof_values *values, const char *drop, const char *keep);
