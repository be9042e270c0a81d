/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format pprof: profile.proto, deflated. Fields of a message may come in any
 * order and a repeated one element by element, so the file is written as many messages of one
 * element each, and never lies in memory as a whole.
 */
#include "import/pprof.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/text.h"
#include "import/gzip.h"
#include "view/summary.h"

#include "pprof.pb-c.h"

#define PAGE_MASK UINT64_C(0xfff)

struct location {
	uint32_t frame;
	uint32_t
		outer; /* location that this one is inlined into, the same without ${frame}; or 0 */
	bool used;     /* part of some stack */
};

struct locations {
	struct location *all; /* [0] is unused */
	uint32_t *of_node;    /* the location that ends with the node's frame */
	size_t count, capacity;
	struct hl_index index;
};

/* Where a module's addresses are said to lie: modules must not overlap, their files' addresses do.
 */
struct span {
	uint64_t low, last; /* in the module's file */
	uint64_t start;	    /* of low, in the exported file */
	bool used;
};

/* A function in one of the files of its lines: pprof has a file for each function, not for a line.
 */
struct exported {
	uint32_t function, file;
};

struct exporter {
	ProtobufCBuffer base; /* first, so that append() finds the rest */
	struct hl_gzip_writer *gzip;
	const struct hl_profile *profile;
	const struct hl_pprof_type *types[HL_PPROF_TYPE_COUNT];
	size_t type_count;
	struct hl_strings texts; /* ids are indices of the string table */
	struct locations locations;
	struct span *spans;	    /* by module */
	struct exported *functions; /* by id - 1 */
	size_t function_count, function_capacity;
	struct hl_index function_index;
	uint64_t *stack; /* room for the deepest */
	int error;	 /* the first one */
};

/* ---- locations: an address with all functions that were inlined there ---- */

/* Whether ${node} is inlined where its parent is; a filter may have taken that frame away. */
static bool is_inlined(const struct hl_profile *profile, uint32_t node)
{
	uint32_t parent = profile->nodes[node].parent;
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
	const struct hl_profile_frame *outer = &profile->frames[profile->nodes[parent].frame];

	return frame->inlined && parent && frame->address == outer->address &&
	       profile->functions[frame->function].module ==
		       profile->functions[outer->function].module;
}

/* The node that called the location of ${node}; 0 for the outermost one. */
static uint32_t caller_of(const struct locations *locations, const struct hl_profile *profile,
			  uint32_t node)
{
	for (uint32_t at = locations->of_node[node]; at; at = locations->all[at].outer)
		node = profile->nodes[node].parent;
	return node;
}

/* Finds the locations of ${profile}, used being those of stacks with figures. 0 or -ENOMEM. */
static int find_locations(struct locations *locations, const struct hl_profile *profile)
{
	HL_FREED bool *is_called_from = calloc(profile->node_count, sizeof(*is_called_from));

	locations->count = 1;
	locations->of_node = calloc(profile->node_count, sizeof(*locations->of_node));
	if (!is_called_from || !locations->of_node ||
	    HL_ARRAY_RESERVE(locations->all, locations->capacity, 1) < 0)
		return -ENOMEM;
	locations->all[0] = (struct location){0};
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t frame = profile->nodes[i].frame;
		uint32_t outer =
			is_inlined(profile, i) ? locations->of_node[profile->nodes[i].parent] : 0;
		uint32_t hash = hl_hash_pair(frame, outer), at = hash, id;
		while ((id = hl_index_next(&locations->index, hash, &at)))
			if (locations->all[id].frame == frame && locations->all[id].outer == outer)
				break;
		if (!id) {
			id = (uint32_t)locations->count;
			if (HL_ARRAY_RESERVE(locations->all, locations->capacity, id + 1) < 0 ||
			    hl_index_add(&locations->index, hash, id) < 0)
				return -ENOMEM;
			locations->all[id] = (struct location){.frame = frame, .outer = outer};
			locations->count++;
		}
		locations->of_node[i] = id;
	}
	/* Backwards, so that it is known of every node whether figures lie below it. */
	for (uint32_t i = (uint32_t)profile->node_count; i-- > 1;) {
		if (!is_called_from[i] && !hl_profile_counters_any(&profile->counters[i]) &&
		    !(profile->base && hl_profile_counters_any(&profile->base[i])))
			continue;
		locations->all[locations->of_node[i]].used = true;
		is_called_from[caller_of(locations, profile, i)] = true;
	}
	return 0;
}

/* ---- parts of the file ---- */

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *bytes)
{
	struct exporter *exporter = (struct exporter *)buffer;

	hl_gzip_writer_append(exporter->gzip, bytes, size);
}

static void put(struct exporter *exporter, const Pprof__Profile *part)
{
	pprof__profile__pack_to_buffer(part, &exporter->base);
}

static void fail(struct exporter *exporter, int error)
{
	if (!exporter->error)
		exporter->error = error;
}

/* ---- texts ---- */

/* U+FFFD stands for bytes that are not UTF-8. */
static void put_text(struct exporter *exporter, const char *text)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	HL_FREED char *clean = hl_utf8_clean(text);

	if (!clean) {
		fail(exporter, -ENOMEM);
		return;
	}
	part.n_string_table = 1;
	part.string_table = &clean;
	put(exporter, &part);
}

/* The index of ${text} in the string table, where it is put when it is new. */
static int64_t text_index(struct exporter *exporter, const char *text)
{
	size_t count = exporter->texts.count;
	uint32_t id = 0;

	int r = hl_strings_intern(&exporter->texts, text, &id);
	if (r < 0)
		fail(exporter, r);
	else if (exporter->texts.count > count)
		put_text(exporter, text);
	return id;
}

static int64_t profile_text_index(struct exporter *exporter, uint32_t id)
{
	return text_index(exporter, hl_profile_text(exporter->profile, id));
}

/* ---- head ---- */

static void put_comment(struct exporter *exporter, const char *text)
{
	Pprof__Profile part = PPROF__PROFILE__INIT;
	int64_t index = text_index(exporter, text);

	part.n_comment = 1;
	part.comment = &index;
	put(exporter, &part);
}

static void put_described(struct exporter *exporter, const char *what, uint32_t text)
{
	char *comment;

	if (!text)
		return;
	if (asprintf(&comment, "%s%s", what, hl_profile_text(exporter->profile, text)) < 0) {
		fail(exporter, -ENOMEM);
		return;
	}
	put_comment(exporter, comment);
	free(comment);
}

static void put_head(struct exporter *exporter, const struct hl_view_options *options)
{
	const struct hl_profile *profile = exporter->profile;
	Pprof__Profile whole = PPROF__PROFILE__INIT;
	Pprof__ValueType period_type = PPROF__VALUE_TYPE__INIT;
	struct hl_notices notices = {0};

	put_text(exporter, "");
	for (size_t i = 0; i < HL_PPROF_TYPE_COUNT; i++) {
		const struct hl_pprof_type *type = &hl_pprof_types[i];
		Pprof__Profile part = PPROF__PROFILE__INIT;
		Pprof__ValueType value_type = PPROF__VALUE_TYPE__INIT;
		if (!hl_profile_knows(profile, type->value, type->unit))
			continue;
		exporter->types[exporter->type_count++] = type;
		value_type.type = text_index(exporter, type->name);
		value_type.unit = text_index(exporter, hl_pprof_unit_names[type->unit]);
		part.n_sample_type = 1;
		part.sample_type = (Pprof__ValueType *[]){&value_type};
		put(exporter, &part);
		if (type->value == options->value && type->unit == options->unit)
			whole.default_sample_type = value_type.type;
	}
	period_type.type = text_index(exporter, "space");
	period_type.unit = text_index(exporter, hl_pprof_unit_names[HL_UNIT_BYTES]);
	whole.period_type = &period_type;
	whole.period = profile->sample_bytes ? (int64_t)profile->sample_bytes : 1;
	whole.time_nanos = (int64_t)profile->start_realtime_ns;
	/* Of two moments of one recording: what lies between them. */
	whole.duration_nanos = (int64_t)profile->duration_ns;
	if (profile->base_duration_ns < profile->duration_ns)
		whole.duration_nanos -= (int64_t)profile->base_duration_ns;
	put(exporter, &whole);
	put_described(exporter, HL_PPROF_COMMAND, profile->command);
	put_described(exporter, HL_PPROF_MODE, profile->mode);
	/* Notices go with the figures, wherever these go. */
	hl_notices_of_profile(&notices, profile);
	if (notices.error)
		fail(exporter, notices.error);
	for (size_t i = 0; i < notices.count; i++)
		put_comment(exporter, notices.notices[i].text);
	hl_notices_release(&notices);
}

/* ---- mappings ---- */

static uint32_t module_of(const struct hl_profile *profile, uint32_t frame)
{
	return profile->functions[profile->frames[frame].function].module;
}

/*
 * Gives each module pages of its own, a page apart; a file can claim any address, so they wrap.
 *
 * The offset holds if segments lie in the file where they lie in memory, as linkers like to have
 * it; readers need it for addresses that have no names, and here all have. For the same reason
 * has_functions is always set; without it pprof looks for other names.
 */
static void put_mappings(struct exporter *exporter)
{
	const struct hl_profile *profile = exporter->profile;
	uint64_t start = PAGE_MASK + 1;

	for (size_t i = 1; i < exporter->locations.count; i++) {
		const struct location *location = &exporter->locations.all[i];
		struct span *span = &exporter->spans[module_of(profile, location->frame)];
		uint64_t address = profile->frames[location->frame].address;
		if (!location->used)
			continue;
		if (!span->used || (address & ~PAGE_MASK) < span->low)
			span->low = address & ~PAGE_MASK;
		if (!span->used || (address | PAGE_MASK) > span->last)
			span->last = address | PAGE_MASK;
		span->used = true;
	}
	for (uint32_t id = 1; id < profile->module_count; id++) {
		const struct hl_profile_module *module = &profile->modules[id];
		struct span *span = &exporter->spans[id];
		Pprof__Profile part = PPROF__PROFILE__INIT;
		Pprof__Mapping mapping = PPROF__MAPPING__INIT;
		char build_id[2 * sizeof(module->build_id) + 1];
		bool has_lines = module->symbols == HL_SYMBOLS_DWARF;
		span->start = start;
		if (!span->used)
			continue;
		start += span->last - span->low + PAGE_MASK + 2;
		mapping.id = id;
		mapping.memory_start = span->start;
		mapping.memory_limit = span->start + (span->last - span->low) + 1;
		mapping.file_offset = span->low;
		mapping.filename = profile_text_index(exporter, module->path);
		mapping.build_id = text_index(exporter, hl_hex_format(build_id, module->build_id,
								      module->build_id_bytes));
		mapping.has_functions = true;
		mapping.has_filenames = mapping.has_line_numbers = mapping.has_inline_frames =
			has_lines;
		part.n_mapping = 1;
		part.mapping = (Pprof__Mapping *[]){&mapping};
		put(exporter, &part);
		if (module->script)
			put_described(exporter, HL_PPROF_RUNTIME, module->path);
	}
}

/* ---- functions and locations ---- */

/* The id of the function of ${frame}, which is put when it is new; 0 for want of memory. */
static uint64_t function_id(struct exporter *exporter, const struct hl_profile_frame *frame)
{
	uint32_t defined_in = exporter->profile->functions[frame->function].file;
	struct exported exported = {frame->function, frame->file ? frame->file : defined_in};
	uint32_t hash = hl_hash_pair(exported.function, exported.file), at = hash, id;

	while ((id = hl_index_next(&exporter->function_index, hash, &at)))
		if (exporter->functions[id - 1].function == exported.function &&
		    exporter->functions[id - 1].file == exported.file)
			return id;
	id = (uint32_t)exporter->function_count + 1;
	if (HL_ARRAY_RESERVE(exporter->functions, exporter->function_capacity, id) < 0 ||
	    hl_index_add(&exporter->function_index, hash, id) < 0) {
		fail(exporter, -ENOMEM);
		return 0;
	}
	exporter->functions[exporter->function_count++] = exported;
	/* No system_name: the linker's is not kept, and one that equals the name would make pprof
	 * take it for mangled, cut the parameters off, and add up functions that differ. */
	const struct hl_profile_function *from = &exporter->profile->functions[exported.function];
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Function function = PPROF__FUNCTION__INIT;
	function.id = id;
	function.name = profile_text_index(exporter, from->name);
	function.filename = profile_text_index(exporter, exported.file);
	function.start_line = exported.file == from->file ? from->line : 0;
	part.n_function = 1;
	part.function = (Pprof__Function *[]){&function};
	put(exporter, &part);
	return id;
}

static void put_locations(struct exporter *exporter)
{
	const struct location *all = exporter->locations.all;

	for (uint32_t i = 1; i < exporter->locations.count; i++) {
		const struct location *from = &all[i];
		uint64_t address = exporter->profile->frames[from->frame].address;
		uint32_t module = module_of(exporter->profile, from->frame);
		const struct span *span = &exporter->spans[module];
		Pprof__Location location = PPROF__LOCATION__INIT;
		Pprof__Profile part = PPROF__PROFILE__INIT;
		if (!from->used)
			continue;
		location.id = i;
		location.mapping_id = module;
		location.address = module ? span->start + (address - span->low) : address;
		for (uint32_t at = i; at; at = all[at].outer)
			location.n_line++;
		HL_FREED Pprof__Line *lines = calloc(location.n_line, sizeof(*lines));
		HL_FREED Pprof__Line **pointers = calloc(location.n_line, sizeof(*pointers));
		if (!lines || !pointers) {
			fail(exporter, -ENOMEM);
			return;
		}
		for (uint32_t at = i, line = 0; at; at = all[at].outer, line++) {
			const struct hl_profile_frame *frame =
				&exporter->profile->frames[all[at].frame];
			lines[line] = (Pprof__Line)PPROF__LINE__INIT;
			lines[line].function_id = function_id(exporter, frame);
			lines[line].line = frame->line;
			pointers[line] = &lines[line];
		}
		location.line = pointers;
		part.n_location = 1;
		part.location = (Pprof__Location *[]){&location};
		put(exporter, &part);
	}
}

/* ---- samples ---- */

/* What the node's own figures are, or, where two profiles are compared, have become more by. */
static void put_sample(struct exporter *exporter, uint32_t node)
{
	const struct hl_profile *profile = exporter->profile;
	const struct hl_profile_counters *counters = &profile->counters[node];
	Pprof__Profile part = PPROF__PROFILE__INIT;
	Pprof__Sample sample = PPROF__SAMPLE__INIT;
	int64_t values[HL_PPROF_TYPE_COUNT];
	bool is_any = false;

	for (size_t i = 0; i < exporter->type_count; i++) {
		enum hl_value value = exporter->types[i]->value;
		enum hl_unit unit = exporter->types[i]->unit;
		values[i] = hl_profile_figure(counters, value, unit);
		if (profile->base)
			values[i] -= hl_profile_figure(&profile->base[node], value, unit);
		is_any |= values[i] != 0;
	}
	if (!is_any)
		return;
	for (uint32_t at = node; at; at = caller_of(&exporter->locations, profile, at))
		exporter->stack[sample.n_location_id++] = exporter->locations.of_node[at];
	sample.location_id = exporter->stack;
	sample.n_value = exporter->type_count;
	sample.value = values;
	part.n_sample = 1;
	part.sample = (Pprof__Sample *[]){&sample};
	put(exporter, &part);
}

/* ---- all of it ---- */

static void release(struct exporter *exporter)
{
	if (exporter->gzip)
		hl_gzip_writer_release(exporter->gzip);
	free(exporter->gzip);
	hl_strings_release(&exporter->texts);
	free(exporter->locations.all);
	free(exporter->locations.of_node);
	hl_index_release(&exporter->locations.index);
	free(exporter->spans);
	free(exporter->functions);
	hl_index_release(&exporter->function_index);
	free(exporter->stack);
}

int hl_pprof_view(const struct hl_profile *profile, const struct hl_view_options *options,
		  struct hl_error *err)
{
	HL_CLEANUP(release)
	struct exporter exporter = {
		.base = {append},
		.profile = profile,
		.spans = calloc(profile->module_count, sizeof(*exporter.spans)),
		.stack = calloc(profile->node_count, sizeof(*exporter.stack)),
	};
	HL_FREED struct hl_gzip_writer *gzip = malloc(sizeof(*gzip));

	int r = gzip && exporter.spans && exporter.stack ? hl_gzip_writer_init(gzip, options->out)
							 : -ENOMEM;
	if (r == 0) {
		exporter.gzip = HL_TAKE(gzip);
		r = find_locations(&exporter.locations, profile);
	}
	if (r == 0) {
		put_head(&exporter, options);
		put_mappings(&exporter);
		put_locations(&exporter);
		for (uint32_t i = 0; i < profile->node_count; i++)
			put_sample(&exporter, i);
		r = hl_gzip_writer_finish(exporter.gzip);
		r = exporter.error ? exporter.error : r;
	}
	if (r == 0)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
