/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What other tools' files say of stacks: the values of each, estimates from samples below the callers
 * of the allocator, kept until the tree is finished and can take them; the names that some files bring
 * along; and addresses in a process that is gone, which the copy of /proc/PID/maps at the end of some
 * heap profiles makes places in files.
 */
#pragma once

#include "import/import_text.h"
#include "profile/builder.h"

/* ---- values ---- */

struct hl_import_value {
	uint32_t node; /* of the builder */
	struct hl_profile_counters counters;
	int64_t base_bytes; /* allocated in the earlier of two profiles, if there are two */
};

/* Zero-initialize for an empty list. */
struct hl_import_values {
	struct hl_import_value *items;
	size_t count, capacity;
	bool tell_sizes; /* each value is of blocks of one size: profile->sizes are made of them */
};

/* 0 or -ENOMEM. */
int hl_import_values_add(struct hl_import_values *values, const struct hl_import_value *value);

/*
 * Finishes the tree of ${builder}, adds ${values} up in it and in the totals, and, when
 * ${has_base}, those of the earlier profile in profile->base. 0 or -ENOMEM.
 */
int hl_import_values_finish(const struct hl_import_values *values, bool has_base,
			    struct hl_builder *builder, struct hl_profile **ret_profile);

void hl_import_values_release(struct hl_import_values *values);

enum hl_import_sampling_kind {
	HL_SAMPLING_NONE,      /* every allocation is counted */
	HL_SAMPLING_POISSON,   /* jemalloc */
	HL_SAMPLING_TRUNCATED, /* gperftools and Go: the same, with fractions cut as Go's pprof does
				*/
};

struct hl_import_sampling {
	enum hl_import_sampling_kind kind;
	double mean_bytes; /* between samples */
};

struct hl_import_amount {
	int64_t objects, bytes;
};

/* An estimate, as good as the file allows, of the blocks that ${sampled} are samples of. */
struct hl_import_amount hl_import_values_unsample(const struct hl_import_sampling *sampling,
						  struct hl_import_amount sampled);

/*
 * Whether ${function}, in the file ${module_path} ("": none), allocates for its callers, and so
 * stands at the end of every stack.
 */
bool hl_import_values_is_allocator(const char *function, const char *module_path);

/* ---- names that a file brings along ---- */

/* What a file calls the call at ${address}; texts are in the input. */
struct hl_import_call {
	uint64_t address;
	uint64_t order; /* of functions that are inlined into each other, the innermost first */
	uint64_t line_number; /* in the input */
	const char *function, *function_end, *file, *file_end;
	uint32_t line;
};

/* Zero-initialize for an empty list. */
struct hl_import_calls {
	struct hl_import_call *items; /* by address and order, once finished */
	size_t count, capacity;
	bool has_symbols; /* from the symbols of a symbolized file */
};

/*
 * Adds what a comment of Go names, "#	0xCALL	FUNCTION+0xOFFSET	FILE:LINE", a line for each
 * function, the innermost first; other comments are ignored. ${line} must stay. 0 or -ENOMEM.
 */
int hl_import_calls_add_comment(struct hl_import_calls *calls, const struct hl_import_line *line);

/*
 * Adds what a line of a symbolized file names, "0xADDRESS FUNCTION", or several functions with
 * "--" between them, the outermost first; other lines are ignored. ${line} must stay. 0 or -ENOMEM.
 */
int hl_import_calls_add_symbol(struct hl_import_calls *calls, const struct hl_import_line *line);

/* To be called when all are added. */
void hl_import_calls_finish(struct hl_import_calls *calls);

/* Adds a node to ${builder} for each function at ${return_address}, below ${parent}; ${ret_node} is
 * the innermost. 1; 0 where the file has no name for it; -ENOMEM. */
int hl_import_calls_nodes(const struct hl_import_calls *calls, struct hl_builder *builder,
			  uint32_t parent, uint64_t return_address, uint32_t *ret_node);

void hl_import_calls_release(struct hl_import_calls *calls);

/* ---- places ---- */

struct hl_import_mapping {
	uint64_t start, end; /* end: one past */
	uint64_t offset;     /* of start in the file */
	const char *path, *path_end;
	bool executable;
	bool resolved;	 /* the members below are set */
	uint32_t module; /* 0: not a file that code can come from */
	uint64_t shift;	 /* address in the module's file = offset + shift */
};

/* Zero-initialize for an empty list. */
struct hl_import_maps {
	struct hl_import_mapping *mappings; /* in order, once finished */
	size_t count, capacity;
};

/* Adds the mapping that ${line} describes, which must stay; other lines are ignored. 0 or -ENOMEM.
 */
int hl_import_maps_add(struct hl_import_maps *maps, const struct hl_import_line *line);

/* To be called when all are added. */
void hl_import_maps_finish(struct hl_import_maps *maps);

/*
 * Finds ${address}: its module (0: none) and its address in the module's file, which is looked at
 * if it is there, to learn where its segments go. 0 or -ENOMEM.
 */
int hl_import_maps_find(struct hl_import_maps *maps, struct hl_builder *builder, uint64_t address,
			uint32_t *ret_module, uint64_t *ret_address);

/* Whether ${path} is a regular file or missing: pipes and devices must not be opened. */
bool hl_import_maps_may_hold_code(const char *path);

/*
 * What to add to an offset within ${mapping}, of which offset and executable are needed, to have
 * the address in the file ${path}. 0 when the file is not there: that is right for most libraries.
 */
uint64_t hl_import_maps_shift(const char *path, const struct hl_import_mapping *mapping);

void hl_import_maps_release(struct hl_import_maps *maps);
