/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Builds a profile: loaders of recordings and of other files add modules, places and tree nodes in
 * any order, and equal ones become one. Values are added when the tree is finished, because only
 * then do nodes have their final ids.
 */
#pragma once

#include "profile/known_names.h"
#include "profile/profile.h"

/*
 * Gives every function of ${profile} its label: what it is called where nothing stands beside the name. Names that a
 * runtime of scripts makes are the same in every file, as that of a file's own code: where several sources share
 * one, each function's label has as much of its source as tells it from the others:
 * "main (shop.rb)", "new (cart/init.rb)". 0 or -ENOMEM.
 */
int hl_function_labels_set(struct hl_profile *profile);

/* What one address stands for: frames first .. first + count - 1, outermost first. */
struct hl_builder_place {
	uint64_t address;
	uint32_t module;
	uint32_t first_frame, frame_count;
};

struct hl_builder_node {
	uint32_t parent, frame;
};

struct hl_builder {
	struct hl_profile *profile;
	struct hl_file_finder *files;	    /* NULL, unless set after _init() */
	const struct hl_known_names *names; /* as above; looked at before files */
	const char *directory;		    /* as above: the recording's, with copies of modules */
	struct hl_symbols **symbols;	    /* of each module; NULL until needed */
	struct hl_builder_place *places;
	struct hl_builder_node *nodes; /* [0] is the root */
	size_t place_count, node_count;
	size_t symbols_capacity, place_capacity, node_capacity;
	size_t module_capacity, function_capacity, frame_capacity;
	struct hl_index module_index, function_index, frame_index, place_index, node_index;
};

/* Starts an empty profile. 0 or -ENOMEM. Release in any case. */
int hl_builder_init(struct hl_builder *builder);

/* Frees what is left, the profile too unless it was finished. */
void hl_builder_release(struct hl_builder *builder);

/* The module of ${path}, ${build_id} and ${print}, which may be NULL. 0 or -ENOMEM. */
int hl_builder_module(struct hl_builder *builder, const char *path, const uint8_t *build_id,
		      uint32_t build_id_bytes, const struct hl_file_print *print,
		      uint32_t *ret_module);

/* Instead of a module: the address is an enum hl_pseudo_frame. */
#define HL_BUILDER_PSEUDO UINT32_MAX

/*
 * The node below ${parent} for ${address} in ${module} (0: none); if functions are inlined there,
 * the innermost of several nodes. 0 or -ENOMEM.
 */
int hl_builder_node(struct hl_builder *builder, uint32_t parent, uint32_t module, uint64_t address,
		    uint32_t *ret_node);

/* Names ${address} in ${module}, not 0, without a node that needs it. 0 or -ENOMEM. */
int hl_builder_name(struct hl_builder *builder, uint32_t module, uint64_t address);

/*
 * For files that bring their names along: the frame of ${symbol} at ${address} of ${module} (0:
 * none); texts are copied. Equal ones become one. 0 or -ENOMEM.
 */
int hl_builder_frame(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		     uint32_t module, uint64_t address, uint32_t *ret_frame);

/* The module that stands for the runtime ${name} of scripts. 0 or -ENOMEM. */
int hl_builder_runtime(struct hl_builder *builder, const char *name, uint32_t *ret_module);

/*
 * The frame of a place in a script of ${runtime}, a module of hl_builder_runtime(); and
 * in ${ret_entry} that of the same place where native code calls it. 0 or -ENOMEM.
 */
int hl_builder_site(struct hl_builder *builder, const struct hl_symbols_frame *symbol,
		    uint32_t runtime, uint32_t *ret_frame, uint32_t *ret_entry);

/* The frame of the label ${name}, a type or a service, of which ${runtime} is a module as above. 0 or
 * -ENOMEM. */
int hl_builder_label(struct hl_builder *builder, const char *name, uint32_t runtime,
		     enum hl_frame_part part, uint32_t *ret_frame);

/* Says that the frames of ${address} in ${module}, which has a node, are ${part} of ${runtime}. */
void hl_builder_mark(struct hl_builder *builder, uint32_t module, uint64_t address,
		     enum hl_frame_part part, uint32_t runtime);

/* The node below ${parent} for ${frame}. 0 or -ENOMEM. */
int hl_builder_child(struct hl_builder *builder, uint32_t parent, uint32_t frame,
		     uint32_t *ret_node);

/* Makes room for ${count} more nodes, so that adding them is fast. 0 or -ENOMEM. */
int hl_builder_reserve(struct hl_builder *builder, size_t count);

/*
 * Brings the tree into preorder and gives every node its (zero) counters. ${ret_final_ids}, to be
 * freed by the caller, has the final id of each node that hl_builder_node() returned; the profile
 * passes to the caller. 0 or -ENOMEM.
 */
int hl_builder_finish(struct hl_builder *builder, uint32_t **ret_final_ids,
		      struct hl_profile **ret_profile);
