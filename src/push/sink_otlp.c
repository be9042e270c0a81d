/* SPDX-License-Identifier: BSD-2-Clause */
/* Pushes profiles by OTLP over HTTP; see otlp.proto. */
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/text.h"
#include "fleet/web.h"
#include "import/gzip.h"
#include "otlp.pb-c.h"
#include "push/session.h"
#include "push/sink.h"

#define XXH_INLINE_ALL
#include <protobuf-c/protobuf-c.h>
#include <xxhash.h>

/*
 * ---- the message, ExportProfilesServiceRequest: tables of a dictionary, and profiles that refer to them ----
 *
 * How many entries a table can have follows from the profile's modules, frames and stacks, so that each is allocated once.
 */

#define PROFILES 4 /* inuse_space, inuse_objects, alloc_space, alloc_objects */
#define BYTES_MAX \
	(64 << 20) /* of a request, before it is deflated: what the specification recommends */
#define NS_PER_MS      1000000
#define BUILD_ID       "process.executable.build_id.gnu"
#define TRACE_ID_BYTES 16
#define SPAN_ID_BYTES  8

static const struct {
	const char *name;
	enum hl_value value;
	enum hl_unit unit;
} types[PROFILES] = {
	{"inuse_space", HL_VALUE_INUSE, HL_UNIT_BYTES},
	{"inuse_objects", HL_VALUE_INUSE, HL_UNIT_OBJECTS},
	{"alloc_space", HL_VALUE_ALLOC, HL_UNIT_BYTES},
	{"alloc_objects", HL_VALUE_ALLOC, HL_UNIT_OBJECTS},
};

/* Labels as the semantic conventions name them. What cgroups say of a pod is its number. */
static const char *const attribute_names[HL_FLEET_LABEL_COUNT] = {
	[HL_FLEET_SERVICE] = "service.name",   [HL_FLEET_VERSION] = "service.version",
	[HL_FLEET_HOST] = "host.name",	       [HL_FLEET_COMMAND] = "process.command_line",
	[HL_FLEET_PID] = "process.pid",	       [HL_FLEET_BUILD_ID] = BUILD_ID,
	[HL_FLEET_CONTAINER] = "container.id", [HL_FLEET_POD] = "k8s.pod.uid",
};

struct block {
	struct block *next;
	max_align_t bytes[];
};

struct otlp {
	const struct hl_push_look *look;
	const struct hl_profile *profile;
	Otlp__Export export;
	Otlp__Dictionary tables;
	Otlp__ResourceProfiles resource_profiles;
	Otlp__Resource resource;
	Otlp__ScopeProfiles scope_profiles;
	Otlp__InstrumentationScope scope;
	struct hl_strings texts;	   /* ids are indices of the table */
	int32_t *mapping_of, *location_of; /* by module and frame; 0: not in the table yet */
	uint32_t *depth_of;		   /* by node */
	struct hl_index functions;	   /* by function and file */
	uint32_t (*function_keys)[2];	   /* the same, by index of the table */
	struct block *blocks;
	bool out_of_memory;
};

/* ---- memory, which goes with the message ---- */

/* ${count} elements, zeroed, and one more, so that none is NULL too; NULL for want of memory, which is noted. */
static void *take(struct otlp *otlp, size_t count, size_t size)
{
	struct block *block = calloc(1, sizeof(*block) + (count + 1) * size);

	if (!block) {
		otlp->out_of_memory = true;
		return NULL;
	}
	block->next = otlp->blocks;
	otlp->blocks = block;
	return block->bytes;
}

/* The same, each as ${empty}, and pointers to them in *${ret_pointers}, which protobuf-c wants. */
static void *take_messages(struct otlp *otlp, size_t count, size_t size, const void *empty,
			   void *ret_pointers)
{
	char *all = take(otlp, count, size), **pointers = take(otlp, count, sizeof(*pointers));

	for (size_t i = 0; all && pointers && i < count; i++) {
		memcpy(all + i * size, empty, size);
		pointers[i] = all + i * size;
	}
	memcpy(ret_pointers, &pointers, sizeof(pointers));
	return all;
}

#define TAKE_MESSAGES(otlp, count, empty, ret_pointers) \
	take_messages(otlp, count, sizeof(empty), &(empty), ret_pointers)

static char *keep(struct otlp *otlp, const char *text)
{
	char *copy = take(otlp, strlen(text), 1);

	return copy ? strcpy(copy, text) : NULL;
}

/* ---- tables ---- */

static int32_t text_index(struct otlp *otlp, const char *text)
{
	HL_FREED char *clean = hl_utf8_clean(text);
	uint32_t id = 0;

	if (!clean || hl_strings_intern(&otlp->texts, clean, &id) < 0)
		otlp->out_of_memory = true;
	return (int32_t)id;
}

static int32_t profile_text_index(struct otlp *otlp, uint32_t id)
{
	return text_index(otlp, hl_profile_text(otlp->profile, id));
}

static void put_build_id(struct otlp *otlp, const struct hl_profile_module *module,
			 Otlp__Mapping *mapping)
{
	Otlp__Dictionary *tables = &otlp->tables;
	Otlp__KeyValueAndUnit *attribute = tables->attribute_table[tables->n_attribute_table];
	char digits[2 * HL_BUILD_ID_MAX + 1];
	int32_t *index = take(otlp, 1, sizeof(*index));
	Otlp__AnyValue *value = take(otlp, 1, sizeof(*value));

	hl_hex_format(digits, module->build_id, module->build_id_bytes);
	char *text = keep(otlp, digits);
	if (!index || !value || !text)
		return;
	*value = (Otlp__AnyValue)OTLP__ANY_VALUE__INIT;
	value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	value->string_value = text;
	attribute->key_strindex = text_index(otlp, BUILD_ID);
	attribute->value = value;
	*index = (int32_t)tables->n_attribute_table++;
	mapping->n_attribute_indices = 1;
	mapping->attribute_indices = index;
}

/* The mapping of a module is its file from 0 on: addresses of frames are those in the file. */
static int32_t mapping_index(struct otlp *otlp, uint32_t module, uint64_t address)
{
	const struct hl_profile_module *from = &otlp->profile->modules[module];
	Otlp__Dictionary *tables = &otlp->tables;

	if (!module)
		return 0;
	if (!otlp->mapping_of[module]) {
		Otlp__Mapping *mapping = tables->mapping_table[tables->n_mapping_table];
		otlp->mapping_of[module] = (int32_t)tables->n_mapping_table++;
		mapping->filename_strindex = profile_text_index(otlp, from->path);
		if (from->build_id_bytes)
			put_build_id(otlp, from, mapping);
	}
	Otlp__Mapping *mapping = tables->mapping_table[otlp->mapping_of[module]];
	if (mapping->memory_limit <= address)
		mapping->memory_limit = address + 1;
	return otlp->mapping_of[module];
}

/* A function has one file, frames may lie in others: each pair is a function of its own. */
static int32_t function_index(struct otlp *otlp, const struct hl_profile_frame *frame)
{
	const struct hl_profile_function *from = &otlp->profile->functions[frame->function];
	uint32_t file = frame->file ? frame->file : from->file;
	uint32_t hash = hl_hash_pair(frame->function, file), at = hash, id;
	Otlp__Dictionary *tables = &otlp->tables;

	while ((id = hl_index_next(&otlp->functions, hash, &at)))
		if (otlp->function_keys[id][0] == frame->function &&
		    otlp->function_keys[id][1] == file)
			return (int32_t)id;
	id = (uint32_t)tables->n_function_table++;
	if (hl_index_add(&otlp->functions, hash, id) < 0)
		otlp->out_of_memory = true;
	otlp->function_keys[id][0] = frame->function;
	otlp->function_keys[id][1] = file;
	Otlp__Function *function = tables->function_table[id];
	function->name_strindex = profile_text_index(otlp, from->name);
	function->filename_strindex = profile_text_index(otlp, file);
	function->start_line = file == from->file ? from->line : 0;
	return (int32_t)id;
}

/* Each frame is a location of its own, be it inlined: its address then is that of the frame that it is inlined into. */
static int32_t location_index(struct otlp *otlp, uint32_t frame)
{
	const struct hl_profile_frame *from = &otlp->profile->frames[frame];
	Otlp__Dictionary *tables = &otlp->tables;

	if (otlp->location_of[frame])
		return otlp->location_of[frame];
	Otlp__Location *location = tables->location_table[tables->n_location_table];
	otlp->location_of[frame] = (int32_t)tables->n_location_table++;
	location->mapping_index =
		mapping_index(otlp, otlp->profile->functions[from->function].module, from->address);
	location->address = from->address;
	location->lines[0]->function_index = function_index(otlp, from);
	location->lines[0]->line = from->line;
	return otlp->location_of[frame];
}

/* The stack of ${node}; ${indices} are where its locations go. */
static int32_t put_stack(struct otlp *otlp, uint32_t node, int32_t *indices)
{
	const struct hl_profile_node *nodes = otlp->profile->nodes;
	Otlp__Dictionary *tables = &otlp->tables;
	Otlp__Stack *stack = tables->stack_table[tables->n_stack_table];

	stack->location_indices = indices;
	for (uint32_t at = node; at; at = nodes[at].parent)
		indices[stack->n_location_indices++] = location_index(otlp, nodes[at].frame);
	return (int32_t)tables->n_stack_table++;
}

/* Makes room for all tables: ${stacks} stacks. */
static void take_tables(struct otlp *otlp, size_t stacks)
{
	static const Otlp__Mapping mapping = OTLP__MAPPING__INIT;
	static const Otlp__Location location = OTLP__LOCATION__INIT;
	static const Otlp__Line line = OTLP__LINE__INIT;
	static const Otlp__Function function = OTLP__FUNCTION__INIT;
	static const Otlp__KeyValueAndUnit attribute = OTLP__KEY_VALUE_AND_UNIT__INIT;
	static const Otlp__Stack stack = OTLP__STACK__INIT;
	static const Otlp__Link link = OTLP__LINK__INIT;
	static uint8_t none[TRACE_ID_BYTES];
	const struct hl_profile *profile = otlp->profile;
	size_t modules = profile->module_count + 1, frames = profile->frame_count + 1;
	Otlp__Dictionary *tables = &otlp->tables;
	Otlp__Line **lines;

	*tables = (Otlp__Dictionary)OTLP__DICTIONARY__INIT;
	TAKE_MESSAGES(otlp, modules, mapping, &tables->mapping_table);
	TAKE_MESSAGES(otlp, modules, attribute, &tables->attribute_table);
	TAKE_MESSAGES(otlp, frames, function, &tables->function_table);
	TAKE_MESSAGES(otlp, stacks + 1, stack, &tables->stack_table);
	TAKE_MESSAGES(otlp, frames, line, &lines);
	Otlp__Location *locations = TAKE_MESSAGES(otlp, frames, location, &tables->location_table);
	Otlp__Link *links = TAKE_MESSAGES(otlp, 1, link, &tables->link_table);
	otlp->mapping_of = take(otlp, modules, sizeof(*otlp->mapping_of));
	otlp->location_of = take(otlp, frames, sizeof(*otlp->location_of));
	otlp->function_keys = take(otlp, frames, sizeof(*otlp->function_keys));
	if (otlp->out_of_memory)
		return;
	for (size_t i = 1; i < frames; i++) {
		locations[i].n_lines = 1;
		locations[i].lines = &lines[i];
	}
	links[0].trace_id = (ProtobufCBinaryData){TRACE_ID_BYTES, none};
	links[0].span_id = (ProtobufCBinaryData){SPAN_ID_BYTES, none};
	/* Entry 0 of each is there, and empty. */
	tables->n_mapping_table = tables->n_location_table = tables->n_function_table = 1;
	tables->n_link_table = tables->n_attribute_table = tables->n_stack_table = 1;
}

/* ---- profiles ---- */

/* The head of profile ${number}, with room for ${stacks} samples. */
static void put_profile(struct otlp *otlp, unsigned number, size_t stacks, int64_t from_ms)
{
	static const Otlp__Sample sample = OTLP__SAMPLE__INIT;
	static const Otlp__ValueType value_type = OTLP__VALUE_TYPE__INIT;
	const struct hl_fleet_window *window = &otlp->look->window;
	const int64_t identity[] = {window->session, window->ms, number};
	Otlp__Profile *profile = otlp->scope_profiles.profiles[number];
	XXH128_canonical_t *id = take(otlp, 1, sizeof(*id));
	Otlp__ValueType **pair;

	TAKE_MESSAGES(otlp, stacks, sample, &profile->samples);
	TAKE_MESSAGES(otlp, 2, value_type, &pair);
	if (otlp->out_of_memory)
		return;
	XXH128_canonicalFromHash(id, XXH3_128bits(identity, sizeof(identity)));
	profile->profile_id = (ProtobufCBinaryData){sizeof(*id), id->digest};
	profile->time_unix_nano = (uint64_t)from_ms * NS_PER_MS;
	profile->duration_nano = (uint64_t)(window->ms - from_ms) * NS_PER_MS;
	profile->sample_type = pair[0];
	pair[0]->type_strindex = text_index(otlp, types[number].name);
	pair[0]->unit_strindex =
		text_index(otlp, types[number].unit == HL_UNIT_BYTES ? "bytes" : "count");
	if (!otlp->profile->sample_bytes)
		return;
	profile->period_type = pair[1];
	pair[1]->type_strindex = text_index(otlp, "space");
	pair[1]->unit_strindex = text_index(otlp, "bytes");
	profile->period = (int64_t)otlp->profile->sample_bytes;
}

/* Adds what ${node} has to each profile; ${values} are where its figures go. */
static void put_samples(struct otlp *otlp, uint32_t node, int32_t stack, int64_t *values)
{
	for (unsigned i = 0; i < PROFILES; i++) {
		Otlp__Profile *profile = otlp->scope_profiles.profiles[i];
		values[i] = hl_profile_figure(&otlp->profile->counters[node], types[i].value,
					      types[i].unit);
		if (!values[i])
			continue;
		Otlp__Sample *sample = profile->samples[profile->n_samples++];
		sample->stack_index = stack;
		sample->n_values = 1;
		sample->values = &values[i];
	}
}

static void put_profiles(struct otlp *otlp, int64_t from_ms)
{
	static const Otlp__Profile empty = OTLP__PROFILE__INIT;
	const struct hl_profile *profile = otlp->profile;
	size_t stacks = 0, locations = 0;

	otlp->depth_of = take(otlp, profile->node_count, sizeof(*otlp->depth_of));
	if (!otlp->depth_of)
		return;
	for (size_t i = 1; i < profile->node_count; i++) {
		otlp->depth_of[i] = otlp->depth_of[profile->nodes[i].parent] + 1;
		if (!hl_profile_counters_any(&profile->counters[i]))
			continue;
		stacks++;
		locations += otlp->depth_of[i];
	}
	take_tables(otlp, stacks);
	TAKE_MESSAGES(otlp, PROFILES, empty, &otlp->scope_profiles.profiles);
	int32_t *indices = take(otlp, locations, sizeof(*indices));
	int64_t *values = take(otlp, stacks * PROFILES, sizeof(*values));
	for (unsigned i = 0; !otlp->out_of_memory && i < PROFILES; i++)
		put_profile(otlp, i, stacks, from_ms);
	for (uint32_t i = 1; !otlp->out_of_memory && i < profile->node_count; i++) {
		if (!hl_profile_counters_any(&profile->counters[i]))
			continue;
		put_samples(otlp, i, put_stack(otlp, i, indices), values);
		indices += otlp->depth_of[i];
		values += PROFILES;
	}
	otlp->scope_profiles.n_profiles = PROFILES;
}

/* ---- resource ---- */

static void put_attributes(struct otlp *otlp)
{
	static const Otlp__KeyValue attribute = OTLP__KEY_VALUE__INIT;
	static const Otlp__AnyValue any = OTLP__ANY_VALUE__INIT;
	Otlp__Resource *resource = &otlp->resource;
	Otlp__AnyValue *values =
		TAKE_MESSAGES(otlp, HL_FLEET_LABEL_COUNT, any, &(Otlp__AnyValue **){NULL});

	TAKE_MESSAGES(otlp, HL_FLEET_LABEL_COUNT, attribute, &resource->attributes);
	for (size_t i = 0; !otlp->out_of_memory && i < HL_FLEET_LABEL_COUNT; i++) {
		const char *label = otlp->look->window.labels[i];
		HL_FREED char *clean = hl_utf8_clean(label);
		if (!*label)
			continue;
		Otlp__KeyValue *pair = resource->attributes[resource->n_attributes++];
		pair->key = (char *)attribute_names[i];
		pair->value = &values[i];
		values[i].value_case = i == HL_FLEET_PID ? OTLP__ANY_VALUE__VALUE_INT_VALUE
							 : OTLP__ANY_VALUE__VALUE_STRING_VALUE;
		if (i == HL_FLEET_PID)
			values[i].int_value = strtoll(label, NULL, 10);
		else if (!clean || !(values[i].string_value = keep(otlp, clean)))
			otlp->out_of_memory = true;
	}
}

static void put_texts(struct otlp *otlp)
{
	Otlp__Dictionary *tables = &otlp->tables;
	size_t count = otlp->texts.count ? otlp->texts.count : 1;

	tables->string_table = take(otlp, count, sizeof(*tables->string_table));
	for (uint32_t i = 0; tables->string_table && i < count; i++)
		tables->string_table[i] = (char *)hl_strings_text(&otlp->texts, i);
	tables->n_string_table = count;
}

/* Puts the parts together. One element each needs no array: a pointer to the pointer is one. */
static int join(struct otlp *otlp)
{
	void **parts = take(otlp, 2, sizeof(*parts));

	if (otlp->out_of_memory)
		return -ENOMEM;
	otlp->scope.name = (char *)"heapline";
	otlp->scope.version = (char *)HL_VERSION;
	otlp->scope_profiles.scope = &otlp->scope;
	parts[0] = &otlp->scope_profiles;
	otlp->resource_profiles.resource = &otlp->resource;
	otlp->resource_profiles.n_scope_profiles = 1;
	otlp->resource_profiles.scope_profiles = (Otlp__ScopeProfiles **)&parts[0];
	parts[1] = &otlp->resource_profiles;
	otlp->export.n_resource_profiles = 1;
	otlp->export.resource_profiles = (Otlp__ResourceProfiles **)&parts[1];
	otlp->export.dictionary = &otlp->tables;
	return 0;
}

static void message_free(struct otlp *otlp)
{
	if (!otlp)
		return;
	for (struct block *block = otlp->blocks, *next; block; block = next) {
		next = block->next;
		free(block);
	}
	hl_strings_release(&otlp->texts);
	hl_index_release(&otlp->functions);
	free(otlp);
}

/*
 * The message of ${look}, of a window that began at ${from_ms}; its profile must stay. In use is what there is, allocated what was since the
 * look before. 0 or -ENOMEM.
 */
static int message_new(const struct hl_push_look *look, int64_t from_ms, struct otlp **ret_otlp)
{
	struct otlp *otlp = calloc(1, sizeof(*otlp));

	if (!otlp)
		return -ENOMEM;
	otlp->look = look;
	otlp->profile = look->profile;
	otlp->export = (Otlp__Export)OTLP__EXPORT__INIT;
	otlp->resource_profiles = (Otlp__ResourceProfiles)OTLP__RESOURCE_PROFILES__INIT;
	otlp->resource = (Otlp__Resource)OTLP__RESOURCE__INIT;
	otlp->scope_profiles = (Otlp__ScopeProfiles)OTLP__SCOPE_PROFILES__INIT;
	otlp->scope = (Otlp__InstrumentationScope)OTLP__INSTRUMENTATION_SCOPE__INIT;
	put_profiles(otlp, from_ms);
	put_attributes(otlp);
	put_texts(otlp);
	int r = join(otlp);
	if (r < 0)
		message_free(otlp);
	else
		*ret_otlp = otlp;
	return r;
}

/* ---- the sink ---- */

#define PREFIX	"otlp+" /* of http:// and https:// */
#define PATH	"/v1development/profiles"
#define METRICS "/v1/metrics"
#define MARK	'M' /* before metrics: what is deflated begins otherwise */
#define PORT	"4318"
#define TYPE	"application/x-protobuf"
#define DEFLATE "Content-Encoding: gzip"

struct otlp_sink {
	struct hl_push_sink sink;
	struct hl_web *web;
	struct hl_web_place place, metrics;
};

static void otlp_free(struct hl_push_sink *sink)
{
	struct otlp_sink *otlp = (struct otlp_sink *)sink;

	hl_web_free(otlp->web);
	hl_web_place_release(&otlp->place);
	hl_web_place_release(&otlp->metrics);
	free(otlp);
}

/* A file of gzip that a message is packed into. */
struct deflated {
	ProtobufCBuffer base; /* first, so that append() finds the rest */
	struct hl_gzip_writer gzip;
};

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *bytes)
{
	hl_gzip_writer_append(&((struct deflated *)buffer)->gzip, bytes, size);
}

int hl_push_otlp_put(const ProtobufCMessage *message, FILE *out, struct hl_error *err)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	HL_FREED struct deflated *deflated = malloc(sizeof(*deflated));

	if (size > BYTES_MAX)
		return hl_error_set(
			err, -EFBIG,
			"cannot push a profile of %zu bytes: servers of OTLP take %d MiB", size,
			BYTES_MAX >> 20);
	if (!deflated || hl_gzip_writer_init(&deflated->gzip, out) < 0)
		return -ENOMEM;
	deflated->base = (ProtobufCBuffer){append};
	protobuf_c_message_pack_to_buffer(message, &deflated->base);
	/* Errors of out are its owner's to find. */
	hl_gzip_writer_finish(&deflated->gzip);
	hl_gzip_writer_release(&deflated->gzip);
	return 0;
}

static int otlp_encode(struct hl_push_sink *sink, const struct hl_push_look *look, int64_t from_ms,
		       FILE *out, struct hl_error *err)
{
	struct otlp *message = NULL;

	(void)sink;
	int r = message_new(look, from_ms, &message);
	if (r == 0)
		r = hl_push_otlp_put(&message->export.base, out, err);
	message_free(message);
	return r;
}

static int otlp_encode_groups(struct hl_push_sink *sink, const struct hl_groups *groups,
			      const char *host, int64_t ms, FILE *out)
{
	(void)sink;
	putc(MARK, out);
	return hl_push_otlp_groups(groups, host, ms, out);
}

/* The sentence for what a server refused; ${answer} is its google.rpc.Status. */
static int say_refused(const struct otlp_sink *otlp, const struct hl_web_answer *answer,
		       struct hl_error *err)
{
	Otlp__Status *status =
		otlp__status__unpack(NULL, answer->size, (const uint8_t *)answer->text);

	if (status && *status->message) {
		*err = (struct hl_error){0};
		hl_error_set(err, -EREMOTEIO, "'%s' answered with status %ld: %.200s",
			     otlp->place.name, answer->status, status->message);
	}
	if (status)
		otlp__status__free_unpacked(status, NULL);
	return -EREMOTEIO;
}

/* What was taken may have been taken in part. */
static int judge_success(const struct otlp_sink *otlp, const struct hl_web_answer *answer,
			 struct hl_error *err)
{
	Otlp__ExportAnswer *said =
		otlp__export_answer__unpack(NULL, answer->size, (const uint8_t *)answer->text);
	const Otlp__PartialSuccess *part = said ? said->partial_success : NULL;
	int r = 0;

	if (part && part->rejected_profiles > 0)
		r = hl_error_set(err, -EREMOTEIO, "'%s' rejected %lld of %d profiles: %.200s",
				 otlp->place.name, (long long)part->rejected_profiles, PROFILES,
				 part->error_message);
	if (said)
		otlp__export_answer__free_unpacked(said, NULL);
	return r;
}

/* The specification of OTLP has these tried again, and no others. */
static bool may_pass(long status)
{
	return status == 0 || status == 429 || (status >= 502 && status <= 504);
}

static int otlp_send(struct hl_push_sink *sink, char *bytes, size_t size, bool repeated,
		     struct hl_error *err)
{
	const struct otlp_sink *otlp = (const struct otlp_sink *)sink;
	struct hl_web_answer answer = {0};
	bool is_metrics = size && bytes[0] == MARK;
	const struct hl_web_request request = {
		.url = is_metrics ? otlp->metrics.url : otlp->place.url,
		.name = otlp->place.name,
		.user = otlp->place.user,
		.content_type = TYPE,
		.header = DEFLATE,
		.body = bytes + is_metrics,
		.size = size - is_metrics,
		.is_sent_once = true,
	};

	(void)repeated; /* profiles have numbers of their own, which not every server looks at */
	int r = hl_web_post(otlp->web, &request, &answer, err);
	if (r == 0 && !is_metrics)
		r = judge_success(otlp, &answer, err);
	else if (r != -ENOMEM && !may_pass(answer.status))
		r = say_refused(otlp, &answer, err);
	free(answer.text);
	/* Servers of profiles need not take metrics. */
	return is_metrics && r != -EAGAIN && r != -ENOMEM ? 1 : r;
}

static const struct hl_push_sink_kind kind = {
	.free = otlp_free,
	.encode = otlp_encode,
	.send = otlp_send,
	.encode_groups = otlp_encode_groups,
};

bool hl_push_otlp_is_url(const char *url)
{
	return !strncmp(url, PREFIX, strlen(PREFIX)) && hl_web_is_url(url + strlen(PREFIX));
}

int hl_push_otlp_open(const char *url, struct hl_push_sink **ret_sink, struct hl_error *err)
{
	struct otlp_sink *otlp = calloc(1, sizeof(*otlp));

	if (!otlp)
		return hl_error_set(err, -ENOMEM, "out of memory");
	otlp->sink.kind = &kind;
	size_t length = strlen(url), tail = strlen(PATH);
	bool has_path = length > tail && !strcmp(url + length - tail, PATH);
	HL_FREED char *base =
		strndup(url + strlen(PREFIX), length - strlen(PREFIX) - (has_path ? tail : 0));
	int r = base ? hl_web_place_parse(url + strlen(PREFIX), PORT, PATH, &otlp->place) : -ENOMEM;
	if (r == 0)
		r = hl_web_place_parse(base, PORT, METRICS, &otlp->metrics);
	r = r == 0 ? hl_web_new(&otlp->web, err) : hl_error_set(err, r, "out of memory");
	if (r < 0)
		otlp_free(&otlp->sink);
	else
		*ret_sink = &otlp->sink;
	return r;
}
