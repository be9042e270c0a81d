/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads profile.proto, the format of pprof, gzipped or not. Messages may come in any order and
 * refer to each other by ids, so the file is gone through several times: for texts, then for
 * mappings and functions, then for locations, and then for samples, of which only one is unpacked
 * at a time.
 */
#include "profile/array.h"
#include "profile/gzip.h"
#include "profile/import_maps.h"
#include "profile/import_values.h"
#include "profile/pprof_fields.h"
#include "profile/pprof_table.h"
#include "profile/pprof_values.h"

#include "pprof.pb-c.h"

#include <inttypes.h>
#include <stdio.h>

/* Ten times what the largest programs give, and few enough for any machine. */
#define INFLATED_MAX (UINT32_C(256) << 20)
#define NODES_MAX    (UINT32_C(1) << 24)

#define WARNING "WARNING: " /* as hl_summary_warnings() begins them */

/* Numbers of the fields of Profile, see pprof.proto. */
enum field {
	FIELD_SAMPLE_TYPE = 1,
	FIELD_SAMPLE = 2,
	FIELD_MAPPING = 3,
	FIELD_LOCATION = 4,
	FIELD_FUNCTION = 5,
	FIELD_STRING_TABLE = 6,
	FIELD_DROP_FRAMES = 7,
	FIELD_TIME_NANOS = 9,
	FIELD_DURATION_NANOS = 10,
	FIELD_PERIOD_TYPE = 11,
	FIELD_PERIOD = 12,
	FIELD_COMMENT = 13,
	FIELD_DEFAULT_SAMPLE_TYPE = 14,
	FIELD_DOC_URL = 15,
};

/* Texts are ids of the profile's strings. */
struct mapping {
	uint64_t id;
	uint64_t start, offset;
	uint64_t shift; /* from offsets to the file's addresses; only where names must be found */
	uint32_t module;
	bool may_hold_code, is_looked_at;
};

struct function {
	uint64_t id;
	uint32_t name, file, line;
};

struct location {
	uint64_t id;
	uint64_t address;     /* offset in the module's file, or in the process */
	uint32_t module;      /* 0: none */
	uint32_t first_frame; /* in importer->frames, outermost first */
	uint32_t frame_count; /* 0: has no names */
};

struct importer {
	const struct hl_import_input *input; /* inflated */
	struct hl_error *err;
	struct hl_builder builder;
	struct hl_pprof_values values;
	uint32_t *texts; /* where they are: offsets of their fields */
	size_t text_count, text_capacity;
	struct hl_pprof_table mappings, functions, locations;
	uint32_t *frames; /* of the builder */
	size_t frame_count, frame_capacity;
	int64_t default_type; /* text */
	size_t offset;	      /* of the field that is being read, for messages */
	bool out_of_memory;   /* while unpacking */
};

static int bad(struct importer *importer, const char *format, ...) HL_PRINTF(2, 3);

static int bad(struct importer *importer, const char *format, ...)
{
	char reason[256];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return hl_error_set(importer->err, -EBADMSG, "cannot read '%s': at offset %zu, %s",
			    importer->input->name, importer->offset, reason);
}

/* ---- messages ---- */

static void *allocate(void *context, size_t size)
{
	struct importer *importer = context;
	void *memory = malloc(size);

	if (!memory)
		importer->out_of_memory = true;
	return memory;
}

static void release(void *context, void *memory)
{
	(void)context;
	free(memory);
}

static ProtobufCAllocator allocator_of(struct importer *importer)
{
	return (ProtobufCAllocator){allocate, release, importer};
}

/* What to say when a message could not be unpacked. */
static int unpack_failed(struct importer *importer, const char *what)
{
	return importer->out_of_memory ? -ENOMEM : bad(importer, "a %s is damaged", what);
}

typedef int field_reader(struct importer *importer, const struct hl_pprof_field *field);

/* Calls ${read} for each field ${number} of the file that holds bytes. */
static int read_each(struct importer *importer, enum field number, field_reader *read)
{
	const struct hl_import_input *input = importer->input;
	struct hl_pprof_field field;
	const char *problem;
	size_t at = 0;
	int r;

	while ((r = hl_pprof_field_next(input->bytes, input->size, &at, &field, &problem)) > 0) {
		importer->offset = field.offset;
		if (field.number != number || field.wire != HL_PPROF_BYTES)
			continue;
		r = read(importer, &field);
		if (r < 0)
			return r;
	}
	importer->offset = at;
	return r < 0 ? bad(importer, "%s", problem) : 0;
}

/* ---- texts ---- */

static int read_text(struct importer *importer, const struct hl_pprof_field *field)
{
	int r = hl_array_reserve(&importer->texts, &importer->text_capacity,
				 importer->text_count + 1, sizeof(*importer->texts));
	if (r == 0)
		importer->texts[importer->text_count++] = (uint32_t)field->offset;
	return r;
}

/* A copy of text ${index}, to be freed; up to its first NUL byte, if it has any. */
static int copy_text(struct importer *importer, int64_t index, char **ret_text)
{
	struct hl_pprof_field field;
	const char *problem;

	if (index == 0 && !importer->text_count)
		*ret_text = strdup("");
	else if (index < 0 || (uint64_t)index >= importer->text_count)
		return bad(importer, "text %" PRId64 " is named, but there are %zu", index,
			   importer->text_count);
	else {
		size_t at = importer->texts[index];
		hl_pprof_field_next(importer->input->bytes, importer->input->size, &at, &field,
				    &problem);
		*ret_text = strndup((const char *)field.bytes, field.size);
	}
	return *ret_text ? 0 : -ENOMEM;
}

static int intern_text(struct importer *importer, int64_t index, uint32_t *ret_id)
{
	char *text;

	int r = copy_text(importer, index, &text);
	if (r < 0)
		return r;
	r = hl_strings_intern(&importer->builder.profile->strings, text, ret_id);
	free(text);
	return r;
}

/* ---- head ---- */

static int read_type(struct importer *importer, const struct hl_pprof_field *field)
{
	ProtobufCAllocator allocator = allocator_of(importer);
	char *name = NULL, *unit = NULL;

	Pprof__ValueType *type = pprof__value_type__unpack(&allocator, field->size, field->bytes);
	if (!type)
		return unpack_failed(importer, "sample type");
	int r = copy_text(importer, type->type, &name);
	if (r == 0)
		r = copy_text(importer, type->unit, &unit);
	if (r == 0)
		r = hl_pprof_values_add_type(&importer->values, name, unit);
	pprof__value_type__free_unpacked(type, &allocator);
	free(name);
	free(unit);
	return r;
}

/* One sample in so many bytes: then the figures are estimates. */
static int read_period_type(struct importer *importer, const struct hl_pprof_field *field)
{
	ProtobufCAllocator allocator = allocator_of(importer);
	struct hl_profile *profile = importer->builder.profile;
	char *unit;

	Pprof__ValueType *type = pprof__value_type__unpack(&allocator, field->size, field->bytes);
	if (!type)
		return unpack_failed(importer, "period type");
	int r = copy_text(importer, type->unit, &unit);
	if (r == 0) {
		if (strcmp(unit, "bytes") != 0 || profile->sample_bytes == 1)
			profile->sample_bytes = 0;
		free(unit);
	}
	pprof__value_type__free_unpacked(type, &allocator);
	return r;
}

/*
 * Ours tell what the format has no field for; others are for people, who shall see them. A warning
 * that was exported is a warning again.
 */
static int take_comment(struct hl_profile *profile, const char *text)
{
	if (!strncmp(text, HL_PPROF_COMMAND, strlen(HL_PPROF_COMMAND)))
		return hl_strings_intern(&profile->strings, text + strlen(HL_PPROF_COMMAND),
					 &profile->command);
	if (!strncmp(text, HL_PPROF_MODE, strlen(HL_PPROF_MODE)))
		return hl_strings_intern(&profile->strings, text + strlen(HL_PPROF_MODE),
					 &profile->mode);
	if (!strncmp(text, WARNING, strlen(WARNING)))
		text += strlen(WARNING);
	return hl_import_warn(profile, text);
}

static int read_comment_text(struct importer *importer, uint64_t index)
{
	char *text;

	int r = copy_text(importer, (int64_t)index, &text);
	if (r < 0)
		return r;
	r = take_comment(importer->builder.profile, text);
	free(text);
	return r;
}

/* Several comments in one field. */
static int read_comments(struct importer *importer, const struct hl_pprof_field *field)
{
	uint64_t index;
	int r = 0;

	for (size_t at = 0; r == 0 && at < field->size;) {
		if (!hl_pprof_varint(field->bytes, field->size, &at, &index))
			return bad(importer, "a comment is damaged");
		r = read_comment_text(importer, index);
	}
	return r;
}

static int read_number(struct importer *importer, const struct hl_pprof_field *field)
{
	struct hl_profile *profile = importer->builder.profile;

	switch (field->number) {
	case FIELD_TIME_NANOS:
		profile->start_realtime_ns = field->value;
		break;
	case FIELD_DURATION_NANOS:
		profile->duration_ns = field->value;
		break;
	case FIELD_PERIOD:
		profile->sample_bytes = field->value;
		break;
	case FIELD_DEFAULT_SAMPLE_TYPE:
		importer->default_type = (int64_t)field->value;
		break;
	case FIELD_COMMENT:
		return read_comment_text(importer, field->value);
	default:
		break;
	}
	return 0;
}

static int read_numbers(struct importer *importer)
{
	const struct hl_import_input *input = importer->input;
	struct hl_pprof_field field;
	const char *problem;
	size_t at = 0;
	int r = 0;

	while (r == 0 &&
	       hl_pprof_field_next(input->bytes, input->size, &at, &field, &problem) > 0) {
		importer->offset = field.offset;
		if (field.wire == HL_PPROF_VARINT)
			r = read_number(importer, &field);
	}
	return r;
}

static int choose_types(struct importer *importer)
{
	char *name;

	int r = copy_text(importer, importer->default_type, &name);
	if (r < 0)
		return r;
	if (!importer->values.column_count)
		r = bad(importer, "the file ends, and has said of no value what it counts");
	else
		r = hl_pprof_values_choose(&importer->values, name, importer->builder.profile);
	free(name);
	return r;
}

static int read_head(struct importer *importer)
{
	int r = read_each(importer, FIELD_STRING_TABLE, read_text);
	if (r == 0)
		r = read_each(importer, FIELD_SAMPLE_TYPE, read_type);
	if (r == 0)
		r = read_numbers(importer);
	if (r == 0)
		r = read_each(importer, FIELD_COMMENT, read_comments);
	if (r == 0)
		r = read_each(importer, FIELD_PERIOD_TYPE, read_period_type);
	return r < 0 ? r : choose_types(importer);
}

/* ---- mappings and functions ---- */

/* Adds ${element}, which begins with its id. */
static int add_element(struct importer *importer, struct hl_pprof_table *table, const char *what,
		       uint64_t id, const void *element)
{
	if (!id)
		return bad(importer, "a %s has id 0, which means none", what);
	int r = hl_pprof_table_add(table, element);
	return r == -EEXIST ? bad(importer, "there is a second %s %" PRIu64, what, id) : r;
}

static unsigned hex_digit(char letter)
{
	return letter >= '0' && letter <= '9'	? (unsigned)(letter - '0')
	       : letter >= 'a' && letter <= 'f' ? (unsigned)(letter - 'a') + 10
						: 16;
}

/* The bytes of ${text}; none when it is not what the GNU linker gives, but some other mark. */
static uint32_t build_id_of(const char *text, uint8_t *bytes, size_t size_max)
{
	size_t size = strlen(text) / 2;

	if (size > size_max || strlen(text) % 2)
		return 0;
	for (size_t i = 0; i < size; i++) {
		unsigned high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
		if (high > 15 || low > 15)
			return 0;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return (uint32_t)size;
}

/* The module of ${message}; 0 when its file has no name. */
static int add_module(struct importer *importer, const Pprof__Mapping *message,
		      struct mapping *mapping)
{
	char *path = NULL, *build_id = NULL;
	uint8_t bytes[32] = {0};

	int r = copy_text(importer, message->filename, &path);
	if (r == 0)
		r = copy_text(importer, message->build_id, &build_id);
	if (r == 0 && path[0]) {
		mapping->may_hold_code = hl_import_maps_may_hold_code(path);
		r = hl_builder_module(&importer->builder, path, bytes,
				      build_id_of(build_id, bytes, sizeof(bytes)),
				      &mapping->module);
	}
	free(path);
	free(build_id);
	return r;
}

/* What the file says of the module's names, unless they must be looked for. */
static void describe_module(struct importer *importer, const Pprof__Mapping *message,
			    uint32_t module)
{
	struct hl_profile_module *described = &importer->builder.profile->modules[module];

	if (!module || !message->has_functions)
		return;
	described->used = true;
	described->symbols = message->has_line_numbers ? HL_SYMBOLS_DWARF : HL_SYMBOLS_SYMTAB;
}

static int read_mapping(struct importer *importer, const struct hl_pprof_field *field)
{
	ProtobufCAllocator allocator = allocator_of(importer);

	Pprof__Mapping *message = pprof__mapping__unpack(&allocator, field->size, field->bytes);
	if (!message)
		return unpack_failed(importer, "mapping");
	struct mapping mapping = {
		.id = message->id, .start = message->memory_start, .offset = message->file_offset};
	int r = add_module(importer, message, &mapping);
	if (r == 0) {
		describe_module(importer, message, mapping.module);
		r = add_element(importer, &importer->mappings, "mapping", mapping.id, &mapping);
	}
	pprof__mapping__free_unpacked(message, &allocator);
	return r;
}

/* Lines of source files; what is none is not known. */
static uint32_t line_of(int64_t line)
{
	return line < 0 || line > UINT32_MAX ? 0 : (uint32_t)line;
}

static int read_function(struct importer *importer, const struct hl_pprof_field *field)
{
	ProtobufCAllocator allocator = allocator_of(importer);

	Pprof__Function *message = pprof__function__unpack(&allocator, field->size, field->bytes);
	if (!message)
		return unpack_failed(importer, "function");
	struct function function = {.id = message->id, .line = line_of(message->start_line)};
	int r = intern_text(importer, message->name ? message->name : message->system_name,
			    &function.name);
	if (r == 0)
		r = intern_text(importer, message->filename, &function.file);
	if (r == 0)
		r = add_element(importer, &importer->functions, "function", function.id, &function);
	pprof__function__free_unpacked(message, &allocator);
	return r;
}

/* ---- locations ---- */

static int add_frame(struct importer *importer, const struct location *location,
		     const Pprof__Line *line, bool inlined)
{
	const struct function *function =
		hl_pprof_table_find(&importer->functions, line->function_id);
	const struct hl_profile *profile = importer->builder.profile;

	if (!function)
		return bad(importer, "function %" PRIu64 " is named, but there is none",
			   line->function_id);
	const char *file = hl_profile_text(profile, function->file);
	struct hl_symbols_frame symbol = {
		.function = function->name ? hl_profile_text(profile, function->name) : "[unknown]",
		.function_file = file,
		.function_line = function->line,
		.file = file,
		.line = line_of(line->line),
		.inlined = inlined,
	};
	int r = hl_array_reserve(&importer->frames, &importer->frame_capacity,
				 importer->frame_count + 1, sizeof(*importer->frames));
	if (r == 0)
		r = hl_builder_frame(&importer->builder, &symbol, location->module,
				     location->address, &importer->frames[importer->frame_count]);
	if (r == 0)
		importer->frame_count++;
	return r;
}

/* The last of several lines is the function that has the others inlined. */
static int add_frames(struct importer *importer, const Pprof__Location *message,
		      struct location *location)
{
	int r = 0;

	location->first_frame = (uint32_t)importer->frame_count;
	location->frame_count = (uint32_t)message->n_line;
	for (size_t i = message->n_line; r == 0 && i-- > 0;)
		r = add_frame(importer, location, message->line[i], i + 1 < message->n_line);
	return r;
}

static void look_at_file(struct importer *importer, struct mapping *mapping)
{
	const struct hl_profile *profile = importer->builder.profile;
	const struct hl_import_mapping executable = {.offset = mapping->offset, .executable = true};
	const char *path = hl_profile_text(profile, profile->modules[mapping->module].path);

	if (!mapping->is_looked_at)
		mapping->shift = hl_import_maps_shift(path, &executable);
	mapping->is_looked_at = true;
}

/*
 * Where the location is in its file. Where a name must be found for it, that has to be an address
 * and not an offset; else it only tells places apart.
 */
static int place(struct importer *importer, const Pprof__Location *message,
		 struct location *location)
{
	struct mapping *mapping = hl_pprof_table_find(&importer->mappings, message->mapping_id);

	location->address = message->address;
	if (!message->mapping_id)
		return 0;
	if (!mapping)
		return bad(importer, "mapping %" PRIu64 " is named, but there is none",
			   message->mapping_id);
	if (!mapping->module || (!mapping->may_hold_code && !message->n_line))
		return 0;
	location->module = mapping->module;
	location->address = message->address - mapping->start + mapping->offset;
	if (!message->n_line) {
		look_at_file(importer, mapping);
		location->address += mapping->shift;
	}
	return 0;
}

static int read_location(struct importer *importer, const struct hl_pprof_field *field)
{
	ProtobufCAllocator allocator = allocator_of(importer);

	Pprof__Location *message = pprof__location__unpack(&allocator, field->size, field->bytes);
	if (!message)
		return unpack_failed(importer, "location");
	struct location location = {.id = message->id};
	int r = place(importer, message, &location);
	if (r == 0)
		r = add_frames(importer, message, &location);
	if (r == 0)
		r = add_element(importer, &importer->locations, "location", location.id, &location);
	pprof__location__free_unpacked(message, &allocator);
	return r;
}

/* ---- samples ---- */

static int add_location(struct importer *importer, uint64_t id, uint32_t *node)
{
	const struct location *location = hl_pprof_table_find(&importer->locations, id);
	struct hl_builder *builder = &importer->builder;
	int r = 0;

	if (!location)
		return bad(importer, "location %" PRIu64 " is named, but there is none", id);
	if (!location->frame_count)
		r = hl_builder_node(builder, *node, location->module, location->address, node);
	for (uint32_t i = 0; r == 0 && i < location->frame_count; i++) {
		r = hl_builder_child(builder, *node, importer->frames[location->first_frame + i],
				     node);
		if (r == 0 && builder->node_count > NODES_MAX)
			r = -EFBIG;
	}
	return r != -EFBIG ? r
			   : hl_error_set(importer->err, r,
					  "cannot read '%s': at offset %zu, its call tree has more "
					  "than %u nodes",
					  importer->input->name, importer->offset, NODES_MAX);
}

static int add_sample(struct importer *importer, const Pprof__Sample *sample)
{
	uint32_t node = 0;
	int r = 0;

	if (sample->n_value != importer->values.column_count)
		return bad(importer, "a sample has %zu values where there should be %zu",
			   sample->n_value, importer->values.column_count);
	for (size_t i = sample->n_location_id; r == 0 && i-- > 0;)
		r = add_location(importer, sample->location_id[i], &node);
	return r < 0 ? r : hl_pprof_values_add(&importer->values, node, sample->value);
}

static int read_sample(struct importer *importer, const struct hl_pprof_field *field)
{
	ProtobufCAllocator allocator = allocator_of(importer);

	Pprof__Sample *sample = pprof__sample__unpack(&allocator, field->size, field->bytes);
	if (!sample)
		return unpack_failed(importer, "sample");
	int r = add_sample(importer, sample);
	pprof__sample__free_unpacked(sample, &allocator);
	return r;
}

/* ---- all of it ---- */

static int read_file(struct importer *importer, struct hl_profile **ret_profile)
{
	int r = read_head(importer);
	if (r == 0)
		r = read_each(importer, FIELD_MAPPING, read_mapping);
	if (r == 0)
		r = read_each(importer, FIELD_FUNCTION, read_function);
	if (r == 0)
		r = read_each(importer, FIELD_LOCATION, read_location);
	if (r == 0)
		r = read_each(importer, FIELD_SAMPLE, read_sample);
	if (r == 0)
		r = hl_pprof_values_finish(&importer->values, &importer->builder, ret_profile);
	return r;
}

static int read_inflated(const struct hl_import_input *input, struct hl_profile **ret_profile,
			 struct hl_error *err)
{
	struct importer importer = {
		.input = input,
		.err = err,
		.mappings.element_bytes = sizeof(struct mapping),
		.functions.element_bytes = sizeof(struct function),
		.locations.element_bytes = sizeof(struct location),
	};

	if (input->size > UINT32_MAX)
		return hl_error_set(err, -EFBIG, "cannot read '%s': it is larger than 4 GiB",
				    input->name);
	int r = hl_builder_init(&importer.builder);
	if (r == 0)
		r = read_file(&importer, ret_profile);
	hl_builder_release(&importer.builder);
	hl_pprof_values_release(&importer.values);
	hl_pprof_table_release(&importer.mappings);
	hl_pprof_table_release(&importer.functions);
	hl_pprof_table_release(&importer.locations);
	free(importer.texts);
	free(importer.frames);
	return hl_import_fail(input, r, err);
}

static int read_pprof(const struct hl_import_input *input, struct hl_profile **ret_profile,
		      struct hl_error *err)
{
	struct hl_import_input inflated = {.name = input->name};
	uint8_t *bytes;

	if (!hl_gzip_detect(input->bytes, input->size))
		return read_inflated(input, ret_profile, err);
	int r = hl_gzip_inflate(input->bytes, input->size, input->name, INFLATED_MAX, &bytes,
				&inflated.size, err);
	if (r < 0)
		return hl_import_fail(input, r, err);
	inflated.bytes = bytes;
	r = read_inflated(&inflated, ret_profile, err);
	free(bytes);
	return r;
}

/* ---- detection ---- */

static bool is_field_of_profile(const struct hl_pprof_field *field)
{
	bool is_number = field->number >= FIELD_DROP_FRAMES && field->number != FIELD_PERIOD_TYPE;

	if (field->number > FIELD_DOC_URL || field->number < FIELD_SAMPLE_TYPE)
		return false;
	return field->wire == (is_number ? HL_PPROF_VARINT : HL_PPROF_BYTES) ||
	       (field->number == FIELD_COMMENT && field->wire == HL_PPROF_BYTES);
}

#define FIELDS_LOOKED_AT 16

/* The format has no mark, but no text and no other format begins with so many of its fields. */
static bool begins_with_fields(const struct hl_import_input *input)
{
	struct hl_pprof_field field;
	const char *problem;
	bool has_messages = false;
	size_t at = 0;

	for (int i = 0; i < FIELDS_LOOKED_AT && at < input->size; i++) {
		if (hl_pprof_field_next(input->bytes, input->size, &at, &field, &problem) < 0 ||
		    !is_field_of_profile(&field))
			return false;
		has_messages |= field.number < FIELD_DROP_FRAMES;
	}
	return has_messages;
}

static bool detects(const struct hl_import_input *input)
{
	return hl_gzip_detect(input->bytes, input->size) || begins_with_fields(input);
}

const struct hl_importer hl_importer_pprof = {"pprof", detects, read_pprof};
