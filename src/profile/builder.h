/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds a profile, with names from files of symbols and from elsewhere. */
#pragma once

#include "log/log.h"
#include "profile/profile.h"
#include "recording/recording.h"

/* ---- known names ---- */

/* Names that are known from elsewhere than files of symbols: from a profile, or from a log. */

/* ---- what a profile named addresses, for profiles of the same modules without files ---- */

/* Zero-initialize; release in any case. */
struct hl_known_names {
	const struct hl_profile *profile; /* the caller's, which must stay */
	struct hl_index places;		  /* the first frame of each address, the outermost */
};

/* ${profile} is a recording's, or was packed from one. 0 or -ENOMEM. */
int hl_known_names_init(struct hl_known_names *names, const struct hl_profile *profile);
void hl_known_names_release(struct hl_known_names *names);

/*
 * The frames at ${address} of ${module}, whose path is ${path}: how many, and in ${ret_first} the
 * first, the outermost; 0: they are not known.
 */
uint32_t hl_known_names_find(const struct hl_known_names *names,
			     const struct hl_profile_module *module, const char *path,
			     uint64_t address, uint32_t *ret_first);

struct hl_event_log;
struct hl_event_range;

/* ---- names from several states of a log, put together ---- */

/*
 * Adds the nodes and modules that ${state} defines to ${names}, which was allocated all zero and
 * goes to hl_log_state_free(). All states of a log agree about what they define. Figures of new
 * nodes are 0. 0 or -ENOMEM.
 */
int hl_history_names_add(struct hl_log_state *names, const struct hl_log_state *state);

/* All that ${log} names, in a state that the caller frees. As hl_log_read(). */
int hl_history_names_read(const struct hl_log *log, const struct hl_log_options *options,
			  struct hl_log_state **ret_names, struct hl_error *err);

/* The same of the events in ${range}. As hl_event_log_read(). */
int hl_history_names_read_events(const struct hl_event_log *log, const struct hl_event_range *range,
				 const struct hl_log_options *options,
				 struct hl_log_state **ret_names, struct hl_error *err);

/*
 * The fingerprint of module ${index} of a log, from 0, of ${recorded}: logs do not keep them, the
 * recording, which has the same modules, does. All zero where it does not know the module.
 */
struct hl_file_print hl_history_names_print(const struct hl_recording_process *recorded,
					    size_t index, const struct hl_log_module *module);

/* ---- builder ---- */

/*
 * Builds a profile: loaders of recordings and of other files add modules, places and tree nodes in
 * any order, and equal ones become one. Values are added when the tree is finished, because only
 * then do nodes have their final ids.
 */

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
