/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages refer to each other by ids: those that are referred to are read first. */
#include "import/pprof.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/index.h"
#include "profile/filter.h"

#include "pprof.pb-c.h"

#include <ctype.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

/* Ten times what the largest programs give, and few enough for any machine. */
#define NODES_MAX (UINT32_C(1) << 23)

/* Elements are structs that begin with a uint64_t id. */
struct table {
	size_t element_bytes;
	void *elements;
	size_t count, capacity;
	struct hl_index index;
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
	bool is_dropped; /* and what it calls */
};

/* What the file leaves out, as it says by expressions. */
struct pruning {
	regex_t drop, keep;
	bool has_drop, has_keep;
};

struct location {
	uint64_t id;
	uint64_t address;     /* offset in the module's file, or in the process */
	uint32_t module;      /* 0: none */
	uint32_t first_frame; /* in stacks->frames, outermost first */
	uint32_t frame_count; /* 0: has no names */
	uint32_t shown_count; /* of them, before one that is dropped */
};

struct stacks {
	struct hl_pprof_reader *reader;
	struct hl_builder *builder;
	struct hl_pprof_values *values;
	struct pruning pruning;
	struct table mappings, functions, locations;
	uint32_t *frames; /* of the builder */
	size_t frame_count, frame_capacity;
};

static int intern_text(struct stacks *stacks, int64_t index, uint32_t *ret_id)
{
	char *text;

	int r = hl_pprof_reader_text(stacks->reader, index, &text);
	if (r < 0)
		return r;
	r = hl_strings_intern(&stacks->builder->profile->strings, text, ret_id);
	free(text);
	return r;
}

/* ---- what is left out ---- */

#define SHOWN_LETTERS 100 /* of an expression that is not understood */

/* Back references take exponential time; hl_expression_compile() bounds all else. */
static bool has_back_reference(const char *text)
{
	for (; *text; text++) {
		if (text[0] == '\\' && isdigit((unsigned char)text[1]))
			return true;
		text += text[0] == '\\' && text[1];
	}
	return false;
}

/* Compiles ${text} for whole names. 0, with whether there is any in ${ret_has}, or -ENOMEM. */
static int compile(struct stacks *stacks, const char *text, regex_t *expression, bool *ret_has)
{
	HL_FREED char *whole = NULL;
	int r = -EINVAL;

	if (!text[0])
		return 0;
	if (asprintf(&whole, "^(%s)$", text) < 0)
		return -ENOMEM;
	if (!has_back_reference(text))
		r = hl_expression_compile(whole, "", expression, NULL);
	*ret_has = r == 0;
	return r != -EINVAL ? r
			    : hl_profile_warn(
				      stacks->builder->profile,
				      "frames that the file leaves out are shown: its expression "
				      "'%.*s' is not understood",
				      SHOWN_LETTERS, text);
}

static void release_pruning(struct pruning *pruning)
{
	if (pruning->has_drop)
		regfree(&pruning->drop);
	if (pruning->has_keep)
		regfree(&pruning->keep);
}

/* ${name} without parameters, to be freed; as pprof compares it. */
static char *plain_name(const char *name)
{
	static const char anonymous[] = "(anonymous namespace)", call[] = "operator";
	const char *end = name;

	for (; *end; end++) {
		size_t before = (size_t)(end - name);
		bool is_call =
			before >= strlen(call) && !memcmp(end - strlen(call), call, strlen(call));
		if (*end == '(' && before && !is_call &&
		    strncmp(end, anonymous, strlen(anonymous)) != 0)
			break;
	}
	return strndup(name, (size_t)(end - name));
}

static int judge(const struct pruning *pruning, const char *name, bool *ret_dropped)
{
	HL_FREED char *plain = pruning->has_drop ? plain_name(name) : NULL;

	if (pruning->has_drop && !plain)
		return -ENOMEM;
	*ret_dropped = plain && regexec(&pruning->drop, plain, 0, NULL, 0) == 0 &&
		       !(pruning->has_keep && regexec(&pruning->keep, plain, 0, NULL, 0) == 0);
	return 0;
}

/* ---- mappings and functions ---- */

static uint64_t id_of(const void *element)
{
	uint64_t id;

	memcpy(&id, element, sizeof(id));
	return id;
}

static void *find_element(const struct table *table, uint64_t id)
{
	uint32_t hash = hl_hash_pair(id, 0), at = hash, number;

	while ((number = hl_index_next(&table->index, hash, &at))) {
		void *element = (char *)table->elements + (number - 1) * table->element_bytes;
		if (id_of(element) == id)
			return element;
	}
	return NULL;
}

static void release_table(struct table *table)
{
	free(table->elements);
	hl_index_release(&table->index);
}

/* Adds ${element}. */
static int add_element(struct stacks *stacks, struct table *table, const char *what,
		       const void *element)
{
	uint64_t id = id_of(element);

	if (!id)
		return hl_pprof_reader_bad(stacks->reader, "a %s has id 0, which means none", what);
	if (find_element(table, id))
		return hl_pprof_reader_bad(stacks->reader, "there is a second %s %" PRIu64, what,
					   id);
	int r = hl_array_reserve(&table->elements, &table->capacity, table->count + 1,
				 table->element_bytes);
	if (r == 0)
		r = hl_index_add(&table->index, hl_hash_pair(id, 0), (uint32_t)table->count + 1);
	if (r < 0)
		return r;
	memcpy((char *)table->elements + table->count++ * table->element_bytes, element,
	       table->element_bytes);
	return 0;
}

/* The module of ${message}; 0 when its file has no name. */
static int add_module(struct stacks *stacks, const Pprof__Mapping *message, struct mapping *mapping)
{
	HL_FREED char *path = NULL, *build_id = NULL;
	uint8_t bytes[512], kept[HL_BUILD_ID_MAX] = {0}; /* no linker writes longer ones than 512 */

	int r = hl_pprof_reader_text(stacks->reader, message->filename, &path);
	if (r == 0)
		r = hl_pprof_reader_text(stacks->reader, message->build_id, &build_id);
	if (r < 0 || !path[0])
		return r;
	mapping->may_hold_code = hl_import_maps_may_hold_code(path);
	int size = hl_hex_parse(build_id, strlen(build_id), bytes, sizeof(bytes));
	/* size < 0: some other mark than the GNU linker gives */
	uint32_t kept_size = size < 0 ? 0 : hl_build_id_keep(kept, bytes, (uint64_t)size);
	r = hl_builder_module(stacks->builder, path, kept, kept_size, NULL, &mapping->module);
	if (r == 0 && mapping->module && message->has_functions) { /* names need no file */
		struct hl_profile_module *module =
			&stacks->builder->profile->modules[mapping->module];
		module->used = true;
		module->symbols = message->has_line_numbers ? HL_SYMBOLS_DWARF : HL_SYMBOLS_SYMTAB;
	}
	return r;
}

static int read_mapping(void *context, const struct hl_pprof_field *field)
{
	struct stacks *stacks = context;
	ProtobufCAllocator *allocator = &stacks->reader->allocator;

	Pprof__Mapping *message = pprof__mapping__unpack(allocator, field->size, field->bytes);
	if (!message)
		return hl_pprof_reader_unpack_failed(stacks->reader, "mapping");
	struct mapping mapping = {
		.id = message->id, .start = message->memory_start, .offset = message->file_offset};
	int r = add_module(stacks, message, &mapping);
	if (r == 0)
		r = add_element(stacks, &stacks->mappings, "mapping", &mapping);
	pprof__mapping__free_unpacked(message, allocator);
	return r;
}

/* Source line; 0 when unknown. */
static uint32_t line_of(int64_t line)
{
	return line < 0 || line > UINT32_MAX ? 0 : (uint32_t)line;
}

static int read_function(void *context, const struct hl_pprof_field *field)
{
	struct stacks *stacks = context;
	ProtobufCAllocator *allocator = &stacks->reader->allocator;

	Pprof__Function *message = pprof__function__unpack(allocator, field->size, field->bytes);
	if (!message)
		return hl_pprof_reader_unpack_failed(stacks->reader, "function");
	struct function function = {.id = message->id, .line = line_of(message->start_line)};
	int r = intern_text(stacks, message->name ? message->name : message->system_name,
			    &function.name);
	if (r == 0)
		r = judge(&stacks->pruning,
			  hl_profile_text(stacks->builder->profile, function.name),
			  &function.is_dropped);
	if (r == 0)
		r = intern_text(stacks, message->filename, &function.file);
	if (r == 0)
		r = add_element(stacks, &stacks->functions, "function", &function);
	pprof__function__free_unpacked(message, allocator);
	return r;
}

/* ---- locations ---- */

static int add_frame(struct stacks *stacks, struct location *location, const Pprof__Line *line,
		     bool inlined)
{
	const struct function *function = find_element(&stacks->functions, line->function_id);
	const struct hl_profile *profile = stacks->builder->profile;

	if (!function)
		return hl_pprof_reader_bad(stacks->reader,
					   "function %" PRIu64 " is named, but there is none",
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
	int r = HL_ARRAY_RESERVE(stacks->frames, stacks->frame_capacity, stacks->frame_count + 1);
	if (r == 0)
		r = hl_builder_frame(stacks->builder, &symbol, location->module, location->address,
				     &stacks->frames[stacks->frame_count]);
	if (r < 0)
		return r;
	stacks->frame_count++;
	if (!function->is_dropped &&
	    location->shown_count == stacks->frame_count - location->first_frame - 1)
		location->shown_count++;
	return 0;
}

/*
 * Where the location is in its file. Where a name must be found for it, that has to be an address
 * and not an offset; otherwise it only distinguishes places.
 */
static int place(struct stacks *stacks, const Pprof__Location *message, struct location *location)
{
	struct mapping *mapping = find_element(&stacks->mappings, message->mapping_id);

	location->address = message->address;
	if (!message->mapping_id)
		return 0;
	if (!mapping)
		return hl_pprof_reader_bad(stacks->reader,
					   "mapping %" PRIu64 " is named, but there is none",
					   message->mapping_id);
	if (!mapping->module || (!mapping->may_hold_code && !message->n_line))
		return 0;
	location->module = mapping->module;
	location->address = message->address - mapping->start + mapping->offset;
	if (!message->n_line) {
		const struct hl_profile *profile = stacks->builder->profile;
		const struct hl_import_mapping code = {.offset = mapping->offset,
						       .executable = true};
		const char *path = hl_profile_text(profile, profile->modules[mapping->module].path);
		if (!mapping->is_looked_at)
			mapping->shift = hl_import_maps_shift(path, &code);
		mapping->is_looked_at = true;
		location->address += mapping->shift;
	}
	return 0;
}

static int read_location(void *context, const struct hl_pprof_field *field)
{
	struct stacks *stacks = context;
	ProtobufCAllocator *allocator = &stacks->reader->allocator;

	Pprof__Location *message = pprof__location__unpack(allocator, field->size, field->bytes);
	if (!message)
		return hl_pprof_reader_unpack_failed(stacks->reader, "location");
	struct location location = {
		.id = message->id,
		.first_frame = (uint32_t)stacks->frame_count,
		.frame_count = (uint32_t)message->n_line,
	};
	int r = place(stacks, message, &location);
	/* The last of several lines is the function that has the others inlined. */
	for (size_t i = message->n_line; r == 0 && i-- > 0;)
		r = add_frame(stacks, &location, message->line[i], i + 1 < message->n_line);
	if (r == 0)
		r = add_element(stacks, &stacks->locations, "location", &location);
	pprof__location__free_unpacked(message, allocator);
	return r;
}

/* ---- samples ---- */

/* Adds the ${count} outermost frames of ${location} below *${node}. */
static int add_location(struct stacks *stacks, const struct location *location, uint32_t count,
			uint32_t *node)
{
	struct hl_builder *builder = stacks->builder;
	int r = 0;

	if (!location->frame_count)
		r = hl_builder_node(builder, *node, location->module, location->address, node);
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		r = hl_builder_child(builder, *node, stacks->frames[location->first_frame + i],
				     node);
		if (r == 0 && builder->node_count > NODES_MAX)
			r = -EFBIG;
	}
	return r != -EFBIG ? r
			   : hl_error_set(stacks->reader->err, r,
					  "cannot read '%s': at offset %zu, its call tree has more "
					  "than %u nodes",
					  stacks->reader->input->name, stacks->reader->offset,
					  NODES_MAX);
}

/*
 * Adds a stack, its outermost frame last in ${ids}. It ends before what is dropped; frames before the
 * first one that is not are never dropped, else nothing would be left.
 */
static int add_stack(struct stacks *stacks, const uint64_t *ids, size_t count, uint32_t *node)
{
	bool has_begun = false;
	int r = 0;

	for (size_t i = count; r == 0 && i-- > 0;) {
		const struct location *location = find_element(&stacks->locations, ids[i]);
		if (!location)
			return hl_pprof_reader_bad(
				stacks->reader, "location %" PRIu64 " is named, but there is none",
				ids[i]);
		bool is_cut = location->shown_count < location->frame_count &&
			      (has_begun || location->shown_count);
		r = add_location(stacks, location,
				 is_cut ? location->shown_count : location->frame_count, node);
		if (is_cut)
			break;
		has_begun = has_begun || location->shown_count == location->frame_count;
	}
	return r;
}

static int read_sample(void *context, const struct hl_pprof_field *field)
{
	struct stacks *stacks = context;
	ProtobufCAllocator *allocator = &stacks->reader->allocator;

	Pprof__Sample *sample = pprof__sample__unpack(allocator, field->size, field->bytes);
	if (!sample)
		return hl_pprof_reader_unpack_failed(stacks->reader, "sample");
	uint32_t node = 0;
	int r = 0;
	if (sample->n_value != stacks->values->column_count)
		r = hl_pprof_reader_bad(stacks->reader,
					"a sample has %zu values where there should be %zu",
					sample->n_value, stacks->values->column_count);
	if (r == 0)
		r = add_stack(stacks, sample->location_id, sample->n_location_id, &node);
	if (r == 0)
		r = hl_pprof_values_add(stacks->values, node, sample->value);
	pprof__sample__free_unpacked(sample, allocator);
	return r;
}

/* ---- all of it ---- */

static int read_each(struct stacks *stacks, enum hl_pprof_number number, hl_pprof_read *read)
{
	return hl_pprof_reader_each(stacks->reader, number, HL_PPROF_BYTES, read, stacks);
}

int hl_pprof_stacks_read(struct hl_pprof_reader *reader, struct hl_builder *builder,
			 struct hl_pprof_values *values, const char *drop, const char *keep)
{
	struct stacks stacks = {
		.reader = reader,
		.builder = builder,
		.values = values,
		.mappings.element_bytes = sizeof(struct mapping),
		.functions.element_bytes = sizeof(struct function),
		.locations.element_bytes = sizeof(struct location),
	};

	int r = compile(&stacks, drop, &stacks.pruning.drop, &stacks.pruning.has_drop);
	if (r == 0)
		r = compile(&stacks, keep, &stacks.pruning.keep, &stacks.pruning.has_keep);
	if (r == 0)
		r = read_each(&stacks, HL_PPROF_MAPPING, read_mapping);
	if (r == 0)
		r = read_each(&stacks, HL_PPROF_FUNCTION, read_function);
	if (r == 0)
		r = read_each(&stacks, HL_PPROF_LOCATION, read_location);
	if (r == 0)
		r = read_each(&stacks, HL_PPROF_SAMPLE, read_sample);
	release_pruning(&stacks.pruning);
	release_table(&stacks.mappings);
	release_table(&stacks.functions);
	release_table(&stacks.locations);
	free(stacks.frames);
	return r;
}
