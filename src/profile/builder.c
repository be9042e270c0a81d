/* SPDX-License-Identifier: BSD-2-Clause */
/* Interns modules, functions, places, frames of scripts and nodes, and brings the tree into its final order; see builder.h. */
#include "profile/builder.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/frame_key.h"
#include "recording/recording_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- functions of scripts with one name, told apart by their sources ---- */

struct named {
	uint32_t name, function;
	const char *source;
	size_t length;
};

/* How many bytes the ends of both sources have in common. */
static size_t shared_end(const struct named *a, const struct named *b)
{
	size_t least = a->length < b->length ? a->length : b->length, shared = 0;

	while (shared < least &&
	       a->source[a->length - 1 - shared] == b->source[b->length - 1 - shared])
		shared++;
	return shared;
}

static bool is_same_source(const struct named *a, const struct named *b)
{
	return a->length == b->length && shared_end(a, b) == a->length;
}

/* By name, then by source read from its end: those that are most alike lie side by side. */
static int by_name_and_source_end(const void *left, const void *right)
{
	const struct named *a = left, *b = right;

	if (a->name != b->name)
		return a->name < b->name ? -1 : 1;
	size_t shared = shared_end(a, b);
	if (shared == a->length || shared == b->length)
		return (a->length > b->length) - (a->length < b->length);
	unsigned char in_a = (unsigned char)a->source[a->length - 1 - shared];
	unsigned char in_b = (unsigned char)b->source[b->length - 1 - shared];
	return in_a < in_b ? -1 : 1;
}

/* Where the whole names of folders and files begin that say more than the last ${shared} bytes. A chunk that is
 * no file, "[string ...]", is told whole. */
static const char *telling_part(const struct named *of, size_t shared)
{
	size_t at = of->length - (shared < of->length ? shared + 1 : shared);

	if (of->source[0] == '[')
		return of->source;
	if (at && of->source[at] == '/')
		at--;
	while (at && of->source[at - 1] != '/')
		at--;
	return of->source + at;
}

/* The label of all functions first .. end - 1, which have one source; ${shared} is with the most similar other. */
static int set_label(struct hl_profile *profile, const struct named *first, const struct named *end,
		     size_t shared)
{
	uint32_t label;
	char *text;

	if (asprintf(&text, "%s (%s)", hl_profile_text(profile, first->name),
		     telling_part(first, shared)) < 0)
		return -ENOMEM;
	int r = hl_strings_intern(&profile->strings, text, &label);
	free(text);
	for (const struct named *at = first; r == 0 && at < end; at++)
		profile->functions[at->function].label = label;
	return r;
}

static int set_labels(struct hl_profile *profile, const struct named *all, size_t count)
{
	const struct named *before = NULL; /* of the source before, if it shares the name */
	int r = 0;

	for (size_t i = 0, end; r == 0 && i < count; i = end) {
		for (end = i + 1; end < count && all[end].name == all[i].name &&
				  is_same_source(&all[end], &all[i]);)
			end++;
		bool has_next = end < count && all[end].name == all[i].name;
		size_t shared = before ? shared_end(before, &all[i]) : 0;
		if (has_next && shared_end(&all[i], &all[end]) > shared)
			shared = shared_end(&all[i], &all[end]);
		if (before || has_next)
			r = set_label(profile, &all[i], &all[end], shared);
		before = has_next ? &all[i] : NULL;
	}
	return r;
}

int hl_function_labels_set(struct hl_profile *profile)
{
	HL_FREED struct named *all = calloc(profile->function_count + 1, sizeof(*all));
	size_t count = 0;

	if (!all)
		return -ENOMEM;
	for (uint32_t i = 1; i < profile->function_count; i++) {
		struct hl_profile_function *function = &profile->functions[i];
		const char *source = hl_profile_text(profile, function->file);
		function->label = function->name;
		if (profile->modules[function->module].script && *source)
			all[count++] = (struct named){function->name, i, source, strlen(source)};
	}
	qsort(all, count, sizeof(*all), by_name_and_source_end);
	return set_labels(profile, all, count);
}

/* ---- a builder ---- */

int hl_builder_init(struct hl_builder *builder)
{
	struct hl_profile *profile = calloc(1, sizeof(*profile));

	*builder = (struct hl_builder){.profile = profile};
	/* Id 0 of modules, functions and frames stands for "none"; node 0 is the root. */
	if (!profile ||
	    HL_ARRAY_RESERVE_ZEROED(builder->symbols, builder->symbols_capacity, 1) < 0 ||
	    HL_ARRAY_APPEND(profile->modules, profile->module_count, builder->module_capacity,
			    (struct hl_profile_module){0}) < 0 ||
	    HL_ARRAY_APPEND(profile->functions, profile->function_count, builder->function_capacity,
			    (struct hl_profile_function){0}) < 0 ||
	    HL_ARRAY_APPEND(profile->frames, profile->frame_count, builder->frame_capacity,
			    (struct hl_profile_frame){0}) < 0 ||
	    HL_ARRAY_APPEND(builder->nodes, builder->node_count, builder->node_capacity,
			    (struct hl_builder_node){0}) < 0)
		return -ENOMEM;
	return 0;
}

void hl_builder_release(struct hl_builder *builder)
{
	for (size_t i = 0; builder->profile && i < builder->profile->module_count; i++)
		hl_symbols_free(builder->symbols[i]);
	free(builder->symbols);
	free(builder->places);
	free(builder->nodes);
	hl_index_release(&builder->module_index);
	hl_index_release(&builder->function_index);
	hl_index_release(&builder->frame_index);
	hl_index_release(&builder->place_index);
	hl_index_release(&builder->node_index);
	hl_profile_free(builder->profile);
	*builder = (struct hl_builder){0};
}

/* ---- modules ---- */

int hl_builder_module(struct hl_builder *builder, const char *path, const uint8_t *build_id,
		      uint32_t build_id_bytes, const struct hl_file_print *print,
		      uint32_t *ret_module)
{
	struct hl_profile *profile = builder->profile;
	struct hl_profile_module module = {.build_id_bytes = build_id_bytes};
	uint32_t id;

	if (build_id_bytes > sizeof(module.build_id))
		module.build_id_bytes = build_id_bytes = sizeof(module.build_id);
	if (build_id_bytes)
		memcpy(module.build_id, build_id, build_id_bytes);
	if (print)
		module.print = *print;
	int r = hl_strings_intern(&profile->strings, path, &module.path);
	if (r < 0)
		return r;
	uint32_t hash = hl_hash_pair(module.path, hl_hash_bytes(build_id, build_id_bytes));
	uint32_t at = hash;
	while ((id = hl_index_next(&builder->module_index, hash, &at))) {
		const struct hl_profile_module *known = &profile->modules[id];
		if (known->path == module.path && known->build_id_bytes == build_id_bytes &&
		    !memcmp(known->build_id, module.build_id, build_id_bytes) &&
		    hl_file_print_is_same(&known->print, &module.print)) {
			*ret_module = id;
			return 0;
		}
	}
	id = (uint32_t)profile->module_count;
	if (HL_ARRAY_RESERVE(profile->modules, builder->module_capacity, (size_t)id + 1) < 0 ||
	    HL_ARRAY_RESERVE(builder->symbols, builder->symbols_capacity, (size_t)id + 1) < 0 ||
	    hl_index_add(&builder->module_index, hash, id) < 0)
		return -ENOMEM;
	builder->symbols[id] = NULL;
	profile->modules[profile->module_count++] = module;
	*ret_module = id;
	return 0;
}

/* ---- functions and frames ---- */

/* Functions are told apart by name and module, and those of scripts or of no module by where they
 * begin; of others that is as the first one says. */
static int intern_function(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
			   uint32_t module, uint32_t *ret_function)
{
	struct hl_profile *profile = builder->profile;
	struct hl_profile_function function = {.line = symbol->function_line, .module = module};
	uint32_t id;

	if (hl_strings_intern(&profile->strings, symbol->function, &function.name) < 0 ||
	    hl_strings_intern(&profile->strings, symbol->function_file, &function.file) < 0)
		return -ENOMEM;
	bool by_place = !module || profile->modules[module].script;
	uint32_t hash = hl_hash_pair(function.name, module);
	if (by_place) /* every chunk of a script has one name, and there may be many chunks */
		hash = hl_hash_pair(hash, hl_hash_pair(function.file, function.line));
	uint32_t at = hash;
	while ((id = hl_index_next(&builder->function_index, hash, &at)))
		if (profile->functions[id].name == function.name &&
		    profile->functions[id].module == module &&
		    (!by_place || (profile->functions[id].file == function.file &&
				   profile->functions[id].line == function.line))) {
			*ret_function = id;
			return 0;
		}
	id = (uint32_t)profile->function_count;
	if (HL_ARRAY_RESERVE(profile->functions, builder->function_capacity, (size_t)id + 1) < 0 ||
	    hl_index_add(&builder->function_index, hash, id) < 0)
		return -ENOMEM;
	profile->functions[profile->function_count++] = function;
	*ret_function = id;
	return 0;
}

static int make_frame(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		      uint32_t module, uint64_t address, struct hl_profile_frame *ret_frame)
{
	*ret_frame = (struct hl_profile_frame){
		.address = address, .line = symbol->line, .inlined = symbol->inlined};
	int r = intern_function(builder, symbol, module, &ret_frame->function);
	return r < 0 ? r
		     : hl_strings_intern(&builder->profile->strings, symbol->file,
					 &ret_frame->file);
}

static int append_frame(struct hl_builder *builder, const struct hl_profile_frame *frame)
{
	struct hl_profile *profile = builder->profile;

	return HL_ARRAY_APPEND(profile->frames, profile->frame_count, builder->frame_capacity,
			       *frame);
}

static int add_frame(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		     uint32_t module, uint64_t address)
{
	struct hl_profile_frame frame;

	int r = make_frame(builder, symbol, module, address, &frame);
	return r < 0 ? r : append_frame(builder, &frame);
}

static int intern_frame(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
			uint32_t module, uint64_t address, enum hl_frame_part part,
			uint32_t *ret_frame)
{
	struct hl_profile *profile = builder->profile;
	struct hl_profile_frame frame;
	uint32_t id;

	if (make_frame(builder, symbol, module, address, &frame) < 0)
		return -ENOMEM;
	frame.part = (uint8_t)part;
	frame.provider = part == HL_PART_NATIVE ? 0 : module;
	uint32_t hash = hl_hash_pair(hl_hash_pair(frame.function, frame.line),
				     hl_hash_pair(frame.address + frame.part, frame.file)),
		 at = hash;
	while ((id = hl_index_next(&builder->frame_index, hash, &at))) {
		const struct hl_profile_frame *known = &profile->frames[id];
		if (known->address == frame.address && known->function == frame.function &&
		    known->file == frame.file && known->line == frame.line &&
		    known->inlined == frame.inlined && known->part == frame.part) {
			*ret_frame = id;
			return 0;
		}
	}
	id = (uint32_t)profile->frame_count;
	if (append_frame(builder, &frame) < 0 || hl_index_add(&builder->frame_index, hash, id) < 0)
		return -ENOMEM;
	*ret_frame = id;
	return 0;
}

int hl_builder_frame(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		     uint32_t module, uint64_t address, uint32_t *ret_frame)
{
	return intern_frame(builder, symbol, module, address, HL_PART_NATIVE, ret_frame);
}

/* ---- scripts ---- */

int hl_builder_runtime(struct hl_builder *builder, const char *name, uint32_t *ret_module)
{
	int r = hl_builder_module(builder, name, NULL, 0, NULL, ret_module);

	if (r == 0)
		builder->profile->modules[*ret_module].script = true;
	return r;
}

int hl_builder_site(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		    uint32_t runtime, uint32_t *ret_frame, uint32_t *ret_entry)
{
	int r = intern_frame(builder, symbol, runtime, 0, HL_PART_SCRIPT, ret_frame);

	return r < 0 ? r : intern_frame(builder, symbol, runtime, 0, HL_PART_ENTRY, ret_entry);
}

int hl_builder_label(struct hl_builder *builder, const char *name, uint32_t runtime,
		     enum hl_frame_part part, uint32_t *ret_frame)
{
	const struct hl_symbols_frame symbol = {.function = name, .function_file = "", .file = ""};

	return intern_frame(builder, &symbol, runtime, 0, part, ret_frame);
}

/* The frame of an address outside every module, or of an enum hl_pseudo_frame. */
static int add_bare_frame(struct hl_builder *builder, uint32_t module, uint64_t address)
{
	static const char *const pseudo_names[] = {
		[HL_PSEUDO_MMAP] = "[mmap]",
		[HL_PSEUDO_BRK] = "[brk]",
		[HL_PSEUDO_RELEASED] = "[released before the trace]",
		[HL_PSEUDO_NO_FAULT] = "[no fault seen]",
		[HL_PSEUDO_STACK_LOST] = "[stack lost]",
		[HL_PSEUDO_RETURN_PROBE] = HL_PROFILE_RETURN_PROBE,
	};
	char hexadecimal[32];
	struct hl_symbols_frame symbol = {.function = hexadecimal, .function_file = "", .file = ""};

	snprintf(hexadecimal, sizeof(hexadecimal), "0x%llx", (unsigned long long)address);
	if (module == HL_BUILDER_PSEUDO)
		symbol.function = address < HL_COUNT_OF(pseudo_names) && pseudo_names[address]
					  ? pseudo_names[address]
					  : "[unknown]";
	return add_frame(builder, &symbol, 0, address);
}

/* 1; 0 where the names do not know the address; or -ENOMEM. */
static int add_known_frames(struct hl_builder *builder, uint32_t module_id, uint64_t address)
{
	struct hl_profile_module *module = &builder->profile->modules[module_id];
	const struct hl_profile *known = builder->names->profile;
	uint32_t first;

	uint32_t count = hl_known_names_find(builder->names, module,
					     hl_profile_text(builder->profile, module->path),
					     address, &first);
	if (!count)
		return 0;
	if (!module->used) {
		const struct hl_profile_module *from =
			&known->modules[known->functions[known->frames[first].function].module];
		module->used = true;
		module->symbols = from->symbols;
		if (hl_strings_intern(&builder->profile->strings,
				      hl_profile_text(known, from->symbols_reason),
				      &module->symbols_reason) < 0)
			return -ENOMEM;
	}
	for (uint32_t i = first; i < first + count; i++) {
		const struct hl_profile_frame *frame = &known->frames[i];
		const struct hl_profile_function *function = &known->functions[frame->function];
		const struct hl_symbols_frame symbol = {
			.function = hl_profile_text(known, function->name),
			.function_file = hl_profile_text(known, function->file),
			.function_line = function->line,
			.file = hl_profile_text(known, frame->file),
			.line = frame->line,
			.inlined = frame->inlined,
		};
		if (add_frame(builder, &symbol, module_id, address) < 0)
			return -ENOMEM;
	}
	return 1;
}

/*
 * The file of ${module} where its path leads to none, or to another one: the process' own, or the copy in the recording. ${copy}
 * has room for its path. NULL: there is none.
 */
static const char *find_elsewhere(const struct hl_builder *builder,
				  const struct hl_profile_module *module, char copy[PATH_MAX])
{
	char name[HL_MODULE_FILE_MAX];

	if (builder->files)
		return builder->files->find(builder->files,
					    hl_profile_text(builder->profile, module->path));
	if (!builder->directory ||
	    !hl_recording_module_file(module->build_id, module->build_id_bytes, &module->print,
				      name) ||
	    snprintf(copy, PATH_MAX, "%s/%s", builder->directory, name) >= PATH_MAX)
		return NULL;
	return access(copy, R_OK) == 0 ? copy : NULL;
}

/* Opens the module's file at its first address. */
static int add_symbol_frames(struct hl_builder *builder, uint32_t module_id, uint64_t address)
{
	struct hl_profile *profile = builder->profile;
	struct hl_profile_module *module = &profile->modules[module_id];
	const struct hl_symbols_frame *found;
	size_t count;
	int r = builder->names ? add_known_frames(builder, module_id, address) : 0;

	if (r)
		return r < 0 ? r : 0;
	if (!builder->symbols[module_id]) {
		char copy[PATH_MAX];
		r = hl_symbols_open_elsewhere(hl_profile_text(profile, module->path),
					      find_elsewhere(builder, module, copy),
					      module->build_id, module->build_id_bytes,
					      &module->print, &builder->symbols[module_id]);
		if (r < 0)
			return r;
		module->used = true;
	}
	r = hl_symbols_find(builder->symbols[module_id], address, &found, &count);
	if (r < 0)
		return r;
	for (size_t i = count; r == 0 && i-- > 0;)
		r = add_frame(builder, &found[i], module_id, address);
	return r;
}

static int intern_place(struct hl_builder *builder, uint32_t module, uint64_t address,
			const struct hl_builder_place **ret_place)
{
	struct hl_profile *profile = builder->profile;
	uint32_t hash = hl_hash_pair(address, module), at = hash, id;

	while ((id = hl_index_next(&builder->place_index, hash, &at))) {
		const struct hl_builder_place *place = &builder->places[id - 1];
		if (place->address == address && place->module == module) {
			*ret_place = place;
			return 0;
		}
	}
	uint32_t first = (uint32_t)profile->frame_count;
	int r = module && module != HL_BUILDER_PSEUDO ? add_symbol_frames(builder, module, address)
						      : add_bare_frame(builder, module, address);
	if (r < 0)
		return r;
	if (HL_ARRAY_APPEND(builder->places, builder->place_count, builder->place_capacity,
			    (struct hl_builder_place){
				    .address = address,
				    .module = module,
				    .first_frame = first,
				    .frame_count = (uint32_t)profile->frame_count - first,
			    }) < 0 ||
	    hl_index_add(&builder->place_index, hash, (uint32_t)builder->place_count) < 0)
		return -ENOMEM;
	*ret_place = &builder->places[builder->place_count - 1];
	return 0;
}

int hl_builder_name(struct hl_builder *builder, uint32_t module, uint64_t address)
{
	const struct hl_builder_place *place;

	return intern_place(builder, module, address, &place);
}

/* A function that was inlined into the main one is never a call of it. */
void hl_builder_mark(struct hl_builder *builder, uint32_t module, uint64_t address,
		     enum hl_frame_part part, uint32_t runtime)
{
	const struct hl_builder_place *place;

	if (intern_place(builder, module, address, &place) < 0)
		return;
	for (uint32_t i = 0; i < place->frame_count; i++) {
		struct hl_profile_frame *frame = &builder->profile->frames[place->first_frame + i];
		frame->part = (uint8_t)(i ? HL_PART_INTERPRETER : part);
		frame->provider = runtime;
	}
}

/* ---- nodes ---- */

int hl_builder_child(struct hl_builder *builder, uint32_t parent, uint32_t frame,
		     uint32_t *ret_node)
{
	uint32_t hash = hl_hash_pair(frame, parent), at = hash, id;

	while ((id = hl_index_next(&builder->node_index, hash, &at)))
		if (builder->nodes[id].parent == parent && builder->nodes[id].frame == frame) {
			*ret_node = id;
			return 0;
		}
	id = (uint32_t)builder->node_count;
	if (HL_ARRAY_RESERVE(builder->nodes, builder->node_capacity, (size_t)id + 1) < 0 ||
	    hl_index_add(&builder->node_index, hash, id) < 0)
		return -ENOMEM;
	builder->nodes[builder->node_count++] = (struct hl_builder_node){parent, frame};
	*ret_node = id;
	return 0;
}

int hl_builder_node(struct hl_builder *builder, uint32_t parent, uint32_t module, uint64_t address,
		    uint32_t *ret_node)
{
	const struct hl_builder_place *place;

	int r = intern_place(builder, module, address, &place);
	if (r < 0)
		return r;
	for (uint32_t i = 0; r == 0 && i < place->frame_count; i++)
		r = hl_builder_child(builder, parent, place->first_frame + i, &parent);
	if (r == 0)
		*ret_node = parent;
	return r;
}

int hl_builder_reserve(struct hl_builder *builder, size_t count)
{
	int r = HL_ARRAY_RESERVE(builder->nodes, builder->node_capacity,
				 builder->node_count + count);

	return r < 0 ? r : hl_index_reserve(&builder->node_index, builder->node_count + count);
}

/* ---- preorder ---- */

/*
 * Gives each node its id in preorder. A node's subtree takes as many ids as it is large, the first
 * for itself, the rest for its children in turn; next_free[i] is where the next child of node i
 * goes. All three arrays have room for every node; sizes are of subtrees.
 */
static void place_nodes(const struct hl_builder *builder, uint32_t *sizes, uint32_t *next_free,
			uint32_t *final_ids, struct hl_profile_node *nodes)
{
	for (size_t i = 0; i < builder->node_count; i++)
		sizes[i] = 1;
	for (size_t i = builder->node_count; i-- > 1;) /* children have larger ids */
		sizes[builder->nodes[i].parent] += sizes[i];
	final_ids[0] = 0;
	next_free[0] = 1;
	nodes[0] = (struct hl_profile_node){.end = sizes[0]};
	for (size_t i = 1; i < builder->node_count; i++) {
		uint32_t parent = builder->nodes[i].parent;
		uint32_t id = next_free[parent];
		next_free[parent] += sizes[i];
		next_free[i] = id + 1;
		final_ids[i] = id;
		nodes[id] = (struct hl_profile_node){
			.parent = final_ids[parent],
			.end = id + sizes[i],
			.frame = builder->nodes[i].frame,
		};
	}
}

int hl_builder_finish(struct hl_builder *builder, uint32_t **ret_final_ids,
		      struct hl_profile **ret_profile)
{
	struct hl_profile *profile = builder->profile;
	size_t count = builder->node_count;
	HL_FREED uint32_t *sizes = calloc(count, sizeof(*sizes));
	HL_FREED uint32_t *next_free = calloc(count, sizeof(*next_free));
	HL_FREED uint32_t *final_ids = calloc(count, sizeof(*final_ids));

	profile->nodes = calloc(count, sizeof(*profile->nodes));
	profile->counters = calloc(count, sizeof(*profile->counters));
	if (!sizes || !next_free || !final_ids || !profile->nodes || !profile->counters)
		return -ENOMEM;
	/* Only after the last address is it known where names came from. */
	for (size_t i = 0; i < profile->module_count; i++) {
		const struct hl_symbols *symbols = builder->symbols[i];
		if (!symbols)
			continue;
		profile->modules[i].symbols = hl_symbols_source(symbols);
		if (hl_strings_intern(&profile->strings, hl_symbols_reason(symbols),
				      &profile->modules[i].symbols_reason) < 0)
			return -ENOMEM;
	}
	if (hl_function_labels_set(profile) < 0)
		return -ENOMEM;
	place_nodes(builder, sizes, next_free, final_ids, profile->nodes);
	profile->node_count = count;
	for (size_t i = 0; i < profile->module_count; i++)
		hl_symbols_free(builder->symbols[i]);
	builder->profile = NULL;
	*ret_final_ids = HL_TAKE(final_ids);
	*ret_profile = profile;
	return 0;
}
