/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A profile as rows: functions, lines, addresses, modules, threads or stacks, heaviest first, and stacks as
 * names; or what differs between a profile and its base.
 */
#pragma once

#include "profile/calltree.h"
#include "view/table.h"
#include "view/view.h"

/* ---- rows ---- */

/*
 * A profile as rows: functions, lines, addresses, modules, threads or stacks, heaviest first; or
 * what differs between a profile and its base.
 */

/*
 * ---- keys: what rows stand for ----
 * Every frame of a profile gets the key of its row, and every key the words that describe it. For hl_aggregate_init(), and so
 * for top, lines and diff alike.
 */

extern const char *const hl_keys_by_names[]; /* by enum hl_view_key: "function" */

struct hl_keys {
	uint32_t *of_frame; /* by frame of the profile */
	uint32_t *frames;   /* by key: one of its frames; [0] is not a key */
	bool *several;	    /* by key: has other lines; by line, other functions; else NULL */
	size_t count;	    /* one more than there are keys */
	enum hl_view_key by;
	struct hl_calltree tree; /* by stack: keys are its nodes */
};

/*
 * Keys by one of
 *
 * - function: a function of a module;
 * - line: a line of a source file, whatever was inlined there; where lines are not known, the
 *   function;
 * - address: an instruction; where addresses are not known, a line of a function;
 * - module: a file of machine code;
 * - stack: functions from the root; calls from different lines are one stack.
 *
 * By function, labels name the line by which most of ${value} was allocated in ${unit}: in the
 * function itself where ${flat} and it allocated any, else in what it calls. By line, they name the
 * function on it by which most was. Threads are not a property of frames: -EINVAL. Else 0 or -ENOMEM.
 * ${keys} holds nothing after a failure.
 */
int hl_keys_init(struct hl_keys *keys, const struct hl_profile *profile, enum hl_view_key by,
		 enum hl_value value, enum hl_unit unit, bool flat);

void hl_keys_release(struct hl_keys *keys); /* a zero-initialized one is fine */

/* The key of a node of ${profile}. */
static inline uint32_t hl_keys_of_node(const struct hl_keys *keys, const struct hl_profile *profile,
				       uint32_t node)
{
	if (keys->by == HL_VIEW_BY_STACK)
		return keys->tree.node_of[node];
	return node ? keys->of_frame[profile->nodes[node].frame] : 0;
}

/* How the types of blocks come to be known, of a profile in which none are; a sentence without a dot. */
const char *hl_keys_types_advice(const struct hl_profile *profile);

/* What every view calls the stack of what was allocated with no frame at all. */
#define HL_KEYS_NO_STACK "[no stack]"

/* What there is to say of a key. Texts belong to the profile, are never NULL, "" when unknown. */
struct hl_keys_label {
	const char *name;	  /* the function's; by module, the module's path */
	const char *file;	  /* of the call site: where it calls on, or allocates */
	const char *telling_file; /* the end of ${file} that tells the function from others of its
				     name; NULL: the last name does */
	uint32_t line;		  /* 0 when unknown; by function, that of its heaviest call site */
	bool several_lines;	  /* it has others */
	const char *source;	  /* of a function of a script: where it stands; else NULL */
	const char *module;	  /* path */
	uint64_t address;	  /* by address, in the module's file */
};

/* Of key 0: HL_KEYS_NO_STACK. */
struct hl_keys_label hl_keys_label(const struct hl_keys *keys, const struct hl_profile *profile,
				   uint32_t key);

/* Of frame ${id}. */
struct hl_keys_label hl_keys_frame_label(const struct hl_profile *profile, uint32_t id);

/* Of a node of ${profile}'s call tree; of its root: HL_KEYS_NO_STACK. */
struct hl_keys_label hl_keys_node_label(const struct hl_profile *profile,
					const struct hl_calltree_node *node);

/* "file.c:12" for people, "file.c:12,..." where there are several, or the module's file name, or
 * "". */
const char *hl_keys_place(const struct hl_keys_label *label, char *buffer, size_t size);

/* The cell with the place of the struct hl_keys_label ${label}. */
hl_cell hl_keys_cell_place;

/* Whether the name has the module in it already: "file+0x1234", of a function without a name. */
bool hl_keys_names_module(const struct hl_keys_label *label);

/* ---- rows ---- */

struct hl_row {
	struct hl_keys_label label; /* by stack, of its leaf */
	uint32_t rank;		    /* in a table, from 1; the view's */
	uint32_t id;		    /* the key; by thread, the index of profile->threads */
	struct hl_aggregate_figures flat, cum;
	bool leaf; /* something was allocated right there, freed since or not */
	struct hl_aggregate_figures before, delta; /* compared: of the base, and flat - before */
};

struct hl_rows {
	struct hl_row *rows; /* without those that have nothing of the value, or do not differ */
	size_t count;
	struct hl_aggregate_figures total, before; /* what flat and before add up to */
	size_t shrunk_from;			   /* by growth: from here on rows shrank */
	struct hl_keys keys;			   /* none by thread */
};

/*
 * Rows by options->by, of options->value, in the order of options->sort and options->unit. By flat,
 * what is never a leaf comes after all leaves, by cum. By growth, what grew most comes first and
 * what shrank most last; by size, the largest comes first: these two compare with profile->base and
 * have no cum. 0 or -ENOMEM.
 */
int hl_rows_init(struct hl_rows *rows, const struct hl_profile *profile,
		 const struct hl_view_options *options);

void hl_rows_release(struct hl_rows *rows);

#define HL_ROWS_HEAVIEST 5

/*
 * How the row at ${rank}, of ${figure} out of ${whole}, stands out: for hl_table_row(). The five
 * heaviest do, and whatever makes up a tenth.
 */
unsigned hl_rows_emphasis(size_t rank, int64_t figure, int64_t whole);

/* ---- stacks of a call tree as names ---- */

/* Room for the frames of any one stack. Release in any case. */
struct hl_stack_path {
	const struct hl_profile *profile;
	const struct hl_calltree *tree;
	/* Of the stack that was filled in last, from the root. */
	const char **names;
	struct hl_keys_label *labels;
	struct hl_emit_frame *frames;
	bool full;	 /* lines have all frames */
	uint32_t *table; /* nodes: the stacks that stand in one table */
	size_t table_count, table_capacity;
};

/* 0 or -ENOMEM. */
int hl_stack_path_init(struct hl_stack_path *path, const struct hl_profile *profile,
		       const struct hl_calltree *tree);
void hl_stack_path_release(struct hl_stack_path *path);

/* Fills in the stack of ${node}, which must not be of a reversed tree; returns how many frames it
 * has. Where it stands for several, their lines are those of the heaviest. */
size_t hl_stack_path_fill(const struct hl_stack_path *path, uint32_t node);

/* Begins a table of stacks that shall be told apart; adds the stack of ${node} to it. Of very many
 * the first ones are compared. 0 or -ENOMEM. */
void hl_stack_path_begin_table(struct hl_stack_path *path);
int hl_stack_path_add(struct hl_stack_path *path, uint32_t node);

/*
 * The stack of ${node} in one line, "leaf < caller < ... < caller < ..."; to be freed, or NULL.
 * Unless path->full only the leaf and the next few callers and, where others of the table begin
 * with the same, the first caller that is not theirs.
 */
char *hl_stack_path_line(const struct hl_stack_path *path, uint32_t node);

/* Cells of the stack of ${node}, a uint32_t: its line, its names, its frames. The context of the
 * table is the path. */
hl_cell hl_stack_path_cell_line, hl_stack_path_cell_names, hl_stack_path_cell_frames;
