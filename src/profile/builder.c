/* SPDX-License-Identifier: BSD-2-Clause */
/* Interns modules, functions, places and nodes; see builder.h. */
#include "profile/builder.h"

#include "base/array.h"
#include "base/frame_key.h"

#include <stdio.h>
#include <string.h>

/* Id 0 of modules, functions and frames stands for "none". */
static int reserve_zeros(struct hl_builder *builder)
{
	struct hl_profile *profile = builder->profile;

	if (HL_ARRAY_RESERVE(profile->modules, builder->module_capacity, 1) < 0 ||
	    HL_ARRAY_RESERVE(profile->functions, builder->function_capacity, 1) < 0 ||
	    HL_ARRAY_RESERVE(profile->frames, builder->frame_capacity, 1) < 0 ||
	    HL_ARRAY_RESERVE(builder->nodes, builder->node_capacity, 1) < 0 ||
	    HL_ARRAY_RESERVE(builder->symbols, builder->symbols_capacity, 1) < 0)
		return -ENOMEM;
	profile->modules[0] = (struct hl_profile_module){0};
	profile->functions[0] = (struct hl_profile_function){0};
	profile->frames[0] = (struct hl_profile_frame){0};
	builder->nodes[0] = (struct hl_builder_node){0};
	builder->symbols[0] = NULL;
	profile->module_count = profile->function_count = profile->frame_count = 1;
	builder->node_count = 1;
	return 0;
}

int hl_builder_init(struct hl_builder *builder)
{
	*builder = (struct hl_builder){.profile = calloc(1, sizeof(struct hl_profile))};
	return builder->profile ? reserve_zeros(builder) : -ENOMEM;
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

static bool is_same_module(const struct hl_profile_module *a, const struct hl_profile_module *b)
{
	return a->path == b->path && a->build_id_bytes == b->build_id_bytes &&
	       !memcmp(a->build_id, b->build_id, a->build_id_bytes) &&
	       hl_file_print_is_same(&a->print, &b->print);
}

static int add_module(struct hl_builder *builder, const struct hl_profile_module *module,
		      uint32_t hash)
{
	struct hl_profile *profile = builder->profile;
	size_t id = profile->module_count;

	if (HL_ARRAY_RESERVE(profile->modules, builder->module_capacity, id + 1) < 0 ||
	    HL_ARRAY_RESERVE(builder->symbols, builder->symbols_capacity, id + 1) < 0)
		return -ENOMEM;
	int r = hl_index_add(&builder->module_index, hash, (uint32_t)id);
	if (r < 0)
		return r;
	profile->modules[id] = *module;
	builder->symbols[id] = NULL;
	profile->module_count = id + 1;
	return 0;
}

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
	while ((id = hl_index_next(&builder->module_index, hash, &at)))
		if (is_same_module(&profile->modules[id], &module)) {
			*ret_module = id;
			return 0;
		}
	r = add_module(builder, &module, hash);
	if (r == 0)
		*ret_module = (uint32_t)profile->module_count - 1;
	return r;
}

/* Opens the module's symbols when its first address is met. */
static int module_symbols(struct hl_builder *builder, uint32_t id, struct hl_symbols **ret_symbols)
{
	struct hl_profile *profile = builder->profile;
	struct hl_profile_module *module = &profile->modules[id];

	if (!builder->symbols[id]) {
		struct hl_file_finder *files = builder->files;
		const char *path = hl_profile_text(profile, module->path);
		int r = hl_symbols_open_elsewhere(path, files ? files->find(files, path) : NULL,
						  module->build_id, module->build_id_bytes,
						  &module->print, &builder->symbols[id]);
		if (r < 0)
			return r;
		module->used = true;
	}
	*ret_symbols = builder->symbols[id];
	return 0;
}

/* ---- functions and frames ---- */

static int add_function(struct hl_builder *builder, const struct hl_profile_function *function,
			uint32_t hash)
{
	struct hl_profile *profile = builder->profile;
	size_t id = profile->function_count;

	if (HL_ARRAY_RESERVE(profile->functions, builder->function_capacity, id + 1) < 0)
		return -ENOMEM;
	int r = hl_index_add(&builder->function_index, hash, (uint32_t)id);
	if (r < 0)
		return r;
	profile->functions[id] = *function;
	profile->function_count = id + 1;
	return 0;
}

/* Functions are told apart by name and module; where they begin is as the first one says. */
static int intern_function(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
			   uint32_t module, uint32_t *ret_function)
{
	struct hl_profile *profile = builder->profile;
	struct hl_profile_function function = {.line = symbol->function_line, .module = module};
	uint32_t id;

	int r = hl_strings_intern(&profile->strings, symbol->function, &function.name);
	if (r == 0)
		r = hl_strings_intern(&profile->strings, symbol->function_file, &function.file);
	if (r < 0)
		return r;
	uint32_t hash = hl_hash_pair(function.name, module), at = hash;
	while ((id = hl_index_next(&builder->function_index, hash, &at)))
		if (profile->functions[id].name == function.name &&
		    profile->functions[id].module == module) {
			*ret_function = id;
			return 0;
		}
	r = add_function(builder, &function, hash);
	if (r == 0)
		*ret_function = (uint32_t)profile->function_count - 1;
	return r;
}

static int make_frame(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		      uint32_t module, uint64_t address, struct hl_profile_frame *ret_frame)
{
	struct hl_profile_frame frame = {
		.address = address, .line = symbol->line, .inlined = symbol->inlined};

	int r = intern_function(builder, symbol, module, &frame.function);
	if (r == 0)
		r = hl_strings_intern(&builder->profile->strings, symbol->file, &frame.file);
	if (r == 0)
		*ret_frame = frame;
	return r;
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

static bool frames_are_equal(const struct hl_profile_frame *a, const struct hl_profile_frame *b)
{
	return a->address == b->address && a->function == b->function && a->file == b->file &&
	       a->line == b->line && a->inlined == b->inlined;
}

int hl_builder_frame(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		     uint32_t module, uint64_t address, uint32_t *ret_frame)
{
	struct hl_profile *profile = builder->profile;
	struct hl_profile_frame frame;
	uint32_t id;

	int r = make_frame(builder, symbol, module, address, &frame);
	if (r < 0)
		return r;
	uint32_t hash = hl_hash_pair(hl_hash_pair(frame.function, frame.line),
				     hl_hash_pair(frame.address, frame.file)),
		 at = hash;
	while ((id = hl_index_next(&builder->frame_index, hash, &at)))
		if (frames_are_equal(&profile->frames[id], &frame)) {
			*ret_frame = id;
			return 0;
		}
	r = append_frame(builder, &frame);
	if (r == 0)
		r = hl_index_add(&builder->frame_index, hash, (uint32_t)profile->frame_count - 1);
	if (r == 0)
		*ret_frame = (uint32_t)profile->frame_count - 1;
	return r;
}

static int add_named_frame(struct hl_builder *builder, const char *name, uint64_t address)
{
	const struct hl_symbols_frame symbol = {.function = name, .function_file = "", .file = ""};
	return add_frame(builder, &symbol, 0, address);
}

static int add_nameless_frame(struct hl_builder *builder, uint64_t address)
{
	char name[32];

	snprintf(name, sizeof(name), "0x%llx", (unsigned long long)address);
	return add_named_frame(builder, name, address);
}

static int add_pseudo_frame(struct hl_builder *builder, uint64_t which)
{
	static const char *const names[] = {
		[HL_PSEUDO_MMAP] = "[mmap]",
		[HL_PSEUDO_BRK] = "[brk]",
		[HL_PSEUDO_RELEASED] = "[released before the trace]",
		[HL_PSEUDO_NO_FAULT] = "[no fault seen]",
		[HL_PSEUDO_STACK_LOST] = "[stack lost]",
		[HL_PSEUDO_RETURN_PROBE] = HL_PROFILE_RETURN_PROBE,
	};
	const char *name = which < HL_COUNT_OF(names) ? names[which] : NULL;

	return add_named_frame(builder, name ? name : "[unknown]", which);
}

/* The first frame that is known of a module says from where its names came. */
static int describe_known(struct hl_builder *builder, struct hl_profile_module *module,
			  const struct hl_profile_module *known)
{
	if (module->used)
		return 0;
	module->used = true;
	module->symbols = known->symbols;
	return hl_strings_intern(&builder->profile->strings,
				 hl_profile_text(builder->names->profile, known->symbols_reason),
				 &module->symbols_reason);
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
	int r = describe_known(
		builder, module,
		&known->modules[known->functions[known->frames[first].function].module]);
	for (uint32_t i = first; r == 0 && i < first + count; i++) {
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
		r = add_frame(builder, &symbol, module_id, address);
	}
	return r < 0 ? r : 1;
}

static int add_symbol_frames(struct hl_builder *builder, uint32_t module, uint64_t address)
{
	const struct hl_symbols_frame *found;
	struct hl_symbols *symbols;
	size_t count = 0;
	int r = builder->names ? add_known_frames(builder, module, address) : 0;

	if (r)
		return r < 0 ? r : 0;
	r = module_symbols(builder, module, &symbols);
	if (r == 0)
		r = hl_symbols_find(symbols, address, &found, &count);
	for (size_t i = count; r == 0 && i-- > 0;)
		r = add_frame(builder, &found[i], module, address);
	return r;
}

static int add_place(struct hl_builder *builder, uint32_t module, uint64_t address, uint32_t hash,
		     const struct hl_builder_place **ret_place)
{
	struct hl_profile *profile = builder->profile;
	struct hl_builder_place place = {.address = address,
					 .module = module,
					 .first_frame = (uint32_t)profile->frame_count};

	int r = module == HL_BUILDER_PSEUDO ? add_pseudo_frame(builder, address)
		: module		    ? add_symbol_frames(builder, module, address)
					    : add_nameless_frame(builder, address);
	if (r == 0)
		r = HL_ARRAY_RESERVE(builder->places, builder->place_capacity,
				     builder->place_count + 1);
	if (r == 0)
		r = hl_index_add(&builder->place_index, hash, (uint32_t)builder->place_count + 1);
	if (r < 0)
		return r;
	place.frame_count = (uint32_t)profile->frame_count - place.first_frame;
	builder->places[builder->place_count] = place;
	*ret_place = &builder->places[builder->place_count++];
	return 0;
}

static int intern_place(struct hl_builder *builder, uint32_t module, uint64_t address,
			const struct hl_builder_place **ret_place)
{
	uint32_t hash = hl_hash_pair(address, module), at = hash, id;

	while ((id = hl_index_next(&builder->place_index, hash, &at))) {
		const struct hl_builder_place *place = &builder->places[id - 1];
		if (place->address == address && place->module == module) {
			*ret_place = place;
			return 0;
		}
	}
	return add_place(builder, module, address, hash, ret_place);
}

int hl_builder_name(struct hl_builder *builder, uint32_t module, uint64_t address)
{
	const struct hl_builder_place *place;

	return intern_place(builder, module, address, &place);
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
	int r = HL_ARRAY_RESERVE(builder->nodes, builder->node_capacity, builder->node_count + 1);
	if (r == 0)
		r = hl_index_add(&builder->node_index, hash, (uint32_t)builder->node_count);
	if (r < 0)
		return r;
	builder->nodes[builder->node_count] = (struct hl_builder_node){parent, frame};
	*ret_node = (uint32_t)builder->node_count++;
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

/* Sizes of subtrees; children have larger ids than their parents. */
static void measure_subtrees(const struct hl_builder *builder, uint32_t *sizes)
{
	for (size_t i = 0; i < builder->node_count; i++)
		sizes[i] = 1;
	for (size_t i = builder->node_count; i-- > 1;)
		sizes[builder->nodes[i].parent] += sizes[i];
}

/*
 * A node's subtree takes as many ids as it is large, the first for itself, the rest for its
 * children in turn; next_free[i] is where the next child of node i goes.
 */
static void place_nodes(const struct hl_builder *builder, const uint32_t *sizes,
			uint32_t *next_free, uint32_t *final_ids, struct hl_profile_node *nodes)
{
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

/* Only after the last address is it known from where names came. */
static int describe_symbols(struct hl_builder *builder)
{
	struct hl_profile *profile = builder->profile;
	int r = 0;

	for (size_t i = 0; r == 0 && i < profile->module_count; i++) {
		const struct hl_symbols *symbols = builder->symbols[i];
		if (!symbols)
			continue;
		profile->modules[i].symbols = hl_symbols_source(symbols);
		r = hl_strings_intern(&profile->strings, hl_symbols_reason(symbols),
				      &profile->modules[i].symbols_reason);
	}
	return r;
}

int hl_builder_finish(struct hl_builder *builder, uint32_t **ret_final_ids,
		      struct hl_profile **ret_profile)
{
	struct hl_profile *profile = builder->profile;
	size_t count = builder->node_count;
	uint32_t *sizes = calloc(count, sizeof(*sizes));
	uint32_t *next_free = calloc(count, sizeof(*next_free));
	uint32_t *final_ids = calloc(count, sizeof(*final_ids));
	int r = -ENOMEM;

	profile->nodes = calloc(count, sizeof(*profile->nodes));
	profile->counters = calloc(count, sizeof(*profile->counters));
	if (sizes && next_free && final_ids && profile->nodes && profile->counters)
		r = describe_symbols(builder);
	if (r == 0) {
		measure_subtrees(builder, sizes);
		place_nodes(builder, sizes, next_free, final_ids, profile->nodes);
		profile->node_count = count;
		for (size_t i = 0; i < profile->module_count; i++)
			hl_symbols_free(builder->symbols[i]);
		builder->profile = NULL;
		*ret_final_ids = final_ids;
		*ret_profile = profile;
	}
	free(sizes);
	free(next_free);
	if (r < 0)
		free(final_ids);
	return r;
}
