/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The readers of other tools' files, and what they are made of: texts and their lines, stacks with values,
 * addresses of programs that are gone.
 */
#pragma once

#include "profile/builder.h"
#include "profile/profile.h"

#include <errno.h>

/* ---- the readers of other tools' files, and what they read ---- */

/* Bytes of a file in memory. The reader may assume a NUL byte after them. */
struct hl_import_input {
	const char *name; /* for messages */
	const uint8_t *bytes;
	size_t size;
	bool partial;	     /* to detects() alone: more follows them, */
	uint64_t whole_size; /* and this is the whole file's size; 0: not known */
};

/*
 * One kind of foreign file. A new one also goes into the tables of open/open.c, which finds out the
 * kind of a file, and of cli/cmd_import.c, whose --format names it. Readers trust nothing; what is wrong is a sentence that names the
 * offset (binary) or the line (text). They fill values and `known`, and may fill the source; the
 * rest of the head is filled by hl_open_profile().
 */
struct hl_importer {
	const char *name; /* "pprof", as people call the format */
	/* Whether the bytes look so, or may with what follows them; called in the order of
	 * open/open.c; the first that does reads. */
	bool (*detects)(const struct hl_import_input *input);
	int (*read)(const struct hl_import_input *input, struct hl_profile **ret_profile,
		    struct hl_error *err);
};

extern const struct hl_importer hl_importer_pprof;  /* profile.proto */
extern const struct hl_importer hl_importer_legacy; /* heap files of gperftools and jemalloc */
extern const struct hl_importer hl_importer_v8;	    /* sampled heap profiles of V8 */
extern const struct hl_importer hl_importer_folded; /* folded text, one value or two */

/* Says that ${input} cannot be read for want of memory when ${code} is -ENOMEM. Returns it. */
static inline int hl_importer_fail(const struct hl_import_input *input, int code,
				   struct hl_error *err)
{
	return code == -ENOMEM
		       ? hl_error_set(err, code, "cannot read '%s': out of memory", input->name)
		       : code;
}

/*
 * What ${input} is and what to do with it, to follow "cannot read 'X': it is "; NULL: nothing that
 * is known here. Some of them would pass for folded text, so ask before its reader.
 */
const char *hl_import_foreign(const struct hl_import_input *input);

/*
 * Makes the numbers of ${profile}, just read by hl_importer_folded as bytes in use, ${value} in
 * ${unit}. ${value} is in use, allocated or peak.
 */
void hl_import_folded_as(struct hl_profile *profile, enum hl_value value, enum hl_unit unit);

/* ---- import text ---- */

/* Other tools' text files: their encoding, and lines and numbers, which are read where they lie in
 * memory. */

/* A line without what ends it: newline, carriage return, blanks. */
struct hl_import_line {
	const char *text, *end;
	uint64_t number; /* from 1 */
};

/* The lines that are still to be read. */
struct hl_import_lines {
	const char *next, *end;
	uint64_t number; /* of the line that was read last */
};

/* Begins at the first line of ${input}, after a byte order mark. */
struct hl_import_lines hl_import_text_lines(const struct hl_import_input *input);

/* The next line in ${ret_line}; false when there is none. */
bool hl_import_text_next(struct hl_import_lines *lines, struct hl_import_line *ret_line);

bool hl_import_text_begins(const struct hl_import_line *line, const char *mark);

bool hl_import_text_is_blank(char letter); /* space or tab */

/* The first letter in ${text} .. ${end} that is not a blank. */
const char *hl_import_text_skip_blanks(const char *text, const char *end);

/* The end of ${text} .. ${end} without trailing blanks. */
const char *hl_import_text_trim(const char *text, const char *end);

/*
 * Reads the decimal number, which may be negative, that ${text} .. ${end} begins with. 0, with what
 * follows it in ${ret_end}; -EINVAL when there is none; -ERANGE when it does not fit into 64 bits.
 */
int hl_import_text_number(const char *text, const char *end, int64_t *ret_number,
			  const char **ret_end);

/* The same for a hexadecimal one without sign, with or without "0x". */
int hl_import_text_hex(const char *text, const char *end, uint64_t *ret_number,
		       const char **ret_end);

/* Whether ${bytes} begin with the byte order mark of UTF-16, in either order: editors and shells of
 * other systems write such text. */
bool hl_import_text_is_utf16(const uint8_t *bytes, size_t size);

/*
 * The text that follows the mark, as UTF-8 in ${ret_text}, to be freed, with a NUL byte after it.
 * Halves of characters become U+FFFD; an odd last byte is dropped. 0 or -ENOMEM.
 */
int hl_import_text_from_utf16(const uint8_t *bytes, size_t size, uint8_t **ret_text,
			      size_t *ret_size);

/* ---- import stacks ---- */

/*
 * What other tools' files say of stacks: the values of each, estimates from samples below the callers
 * of the allocator, kept until the tree is finished and can take them; the names that some files bring
 * along; and addresses in a process that is gone, which the copy of /proc/PID/maps at the end of some
 * heap profiles makes places in files.
 */

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
