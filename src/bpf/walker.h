/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tool's half of the stack walker: reads the code of the processes that it looks at, fills the
 * maps of the walker in the kernel with that, and turns the stacks that this one sends into a tree
 * for each process. For any BPF object whose program includes walk.bpf.h. One thread.
 *
 *	hl_target_new(pid, NULL, &target, err);
 *	skeleton = NAME_bpf__open();
 *	hl_walker_new(skeleton->obj, 1, on_record, context, &walker, err);
 *	hl_walker_add(walker, target, &number, err);
 *	NAME_bpf__load(skeleton);
 *	hl_walker_start(walker, err);
 *	... attach ...
 *	while (...)
 *		hl_walker_poll(walker, 100, err);
 */
#pragma once

#include "base/error.h"
#include "base/file_print.h"
#include "base/index.h"
#include "bpf/walk_shared.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- code tables ---- */

/*
 * The call frame information of one file, compiled into code pages and rows for the walker in the
 * kernel (walk_shared.h), and what else its ELF headers say.
 *
 * Reads nothing but what it is told to; any file gives a table or an error, never a crash.
 */

/* A loadable segment. Addresses are those in the file. */
struct hl_code_segment {
	uint64_t offset, bytes; /* in the file */
	uint64_t address;
	bool is_executable;
};

#define HL_CODE_SEGMENTS_MAX 16u

struct hl_code_table {
	struct hl_code_segment segments[HL_CODE_SEGMENTS_MAX];
	uint32_t segment_count;
	uint64_t low, high;	      /* range of all segments in memory, low rounded to pages */
	uint64_t code_low, code_high; /* range of the executable ones; code_low rounded */
	uint8_t build_id[HL_BUILD_ID_MAX]; /* see base/file_print.h */
	uint32_t build_id_bytes;
	bool has_rows; /* else there is no call frame information, or it is damaged from the start
			*/
	struct hl_code_page *pages; /* from code_low on */
	uint32_t page_count;
	uint64_t *rows;
	uint32_t row_count;
};

/*
 * Reads the ELF image that ${fd} has at ${start} (0 for a file; an address for /proc/PID/mem).
 * 0; -ENOEXEC when it is not an ELF file for this machine, or makes no sense; -EIO and the like;
 * -ENOMEM. ${ret_table} is to be released.
 */
int hl_code_table_read(int fd, uint64_t start, struct hl_code_table *ret_table);

/* The address in the file of what is at ${offset} of the file, code if there is a choice. */
bool hl_code_table_address(const struct hl_code_table *table, uint64_t offset,
			   uint64_t *ret_address);

/* The rule for an address in the file, as the walker in the kernel finds it. */
uint64_t hl_code_table_rule(const struct hl_code_table *table, uint64_t address);

void hl_code_table_release(struct hl_code_table *table);

/* ---- targets ---- */

/*
 * The files of a process, and where they are mapped:
 *
 *   file      an executable file (or the vdso); compiled once, however often it is mapped
 *   module    a file at one place in memory; module id m is the m-th module, and keeps its id when
 *             it is unmapped
 *   mapping   an executable mapping: part of a module, or code of no file
 */

struct hl_target_file {
	uint32_t dev_major, dev_minor;
	uint64_t inode;		    /* 0: the vdso */
	uint64_t size, modified_ns; /* numbers of inodes are used again */
	uint64_t hash;		    /* identifies a file without a build id */
	bool is_read;		    /* else nothing is known of its insides */
	struct hl_code_table table;
};

/* One for each struct hl_recording_module. */
struct hl_target_module {
	uint32_t file; /* index */
};

struct hl_target_mapping {
	uint64_t start, end;
	uint32_t module;     /* id; HL_MODULE_NONE for code of no file, HL_MODULE_SCRIPT for the
				trampoline of return probes */
	uint32_t first_page; /* of the file's code pages */
	uint32_t page_count;
};

/* Files, which targets may share. Zero-initialize for none. */
struct hl_target_files {
	struct hl_target_file *list;
	size_t count, capacity;
};

/* After the targets that share them. */
void hl_target_files_release(struct hl_target_files *files);

struct hl_target {
	pid_t pid;
	struct hl_target_files *files, own_files; /* own_files unless they are shared */
	struct hl_recording_module *modules;
	struct hl_target_module *module_files;
	size_t module_count, module_capacity, module_file_capacity;
	struct hl_target_mapping *mappings; /* by address, as of the last refresh */
	size_t mapping_count, mapping_capacity;
	uint64_t changes;    /* of the mappings, so far */
	uint32_t lost_files; /* that it was the first to have, and could not be read: stacks end in
				their code, or are guessed by the frame pointer */
	uint32_t lost_modules; /* for which there was no id left */
};

/*
 * Reads what ${pid} has mapped. ${files} must live as long as the target and are completed; NULL:
 * the target has its own. 0 or a negative errno with a sentence. Files that cannot be read or make
 * no sense are not an error: they are counted.
 */
int hl_target_new(pid_t pid, struct hl_target_files *files, struct hl_target **ret_target,
		  struct hl_error *err);

/*
 * Reads it again. Ids, files and modules stay; new ones come after. ${changes} rises when the
 * mappings have changed. On failure the last state stays. -ESRCH: the process has ended.
 */
int hl_target_refresh(struct hl_target *target, struct hl_error *err);

/* The id of the module whose code is at ${pc} now; HL_MODULE_NONE when there is none, and
 * HL_MODULE_SCRIPT in the trampoline of return probes. */
uint32_t hl_target_module_at(const struct hl_target *target, uint64_t pc);

/* The file of the ${index}-th mapping, or NULL. */
const struct hl_target_file *hl_target_mapping_file(const struct hl_target *target, size_t index);

/* How many bytes of the ${index}-th mapping the walker has rules for; without pages of gaps, where it tries frame pointers. */
uint64_t hl_target_covered_bytes(const struct hl_target *target, size_t index);

void hl_target_free(struct hl_target *target); /* NULL is fine */

/* ---- the walker ---- */

struct bpf_map;
struct bpf_object;
struct hl_walker;

/* Receives a record of the including program: its kind is HL_RECORD_OWN or above. ${bytes} may be
 * more than was sent, up to the next multiple of 8. Negative ends the poll and is its result. */
typedef int hl_record_fn(void *context, const struct hl_record_header *record, size_t bytes);

/*
 * Before the object is loaded: sets sizes of maps and constants. ${object} must live as long as the
 * walker, which has room for ${capacity} targets at once. 0 or a negative errno with a sentence.
 */
int hl_walker_new(struct bpf_object *object, uint32_t capacity, hl_record_fn *on_record,
		  void *context, struct hl_walker **ret_walker, struct hl_error *err);

/*
 * Adds a target, which must live as long as the walker: before the object is loaded, which makes
 * room for its files, or after _start(), where its stacks are walked from now on. The only target
 * of a walker with room for one must be there before the object is loaded. All targets of a walker
 * share their files. Numbers begin at 1 and are never used again. A target with the same pid is
 * removed; one that has called execve() is to be added again, or its stacks are wrong until the next
 * refresh.
 * 0; -ENOSPC: as many targets as there is room for are there; or another negative errno, with a
 * sentence.
 */
int hl_walker_add(struct hl_walker *walker, struct hl_target *target, uint32_t *ret_number,
		  struct hl_error *err);

/* Walks no stacks of a target any more; what it has sent stays. Makes room for another one. A
 * walker with room for several does that by itself when it finds that a target has ended. A target
 * that is no longer walked is left alone. */
void hl_walker_remove(struct hl_walker *walker, uint32_t number);

/* After the object is loaded, before a program is attached: fills the maps and opens the ring. */
int hl_walker_start(struct hl_walker *walker, struct hl_error *err);

/*
 * Takes in all records that are there, after waiting up to ${timeout_ms} for some; a signal ends
 * the wait. Reads a target's mappings again when code ran that is in none, after a reload
 * (walk_shared.h), and once a second, or more rarely where that would take over a tenth of a
 * processor for all targets together.
 * 0, -ESRCH when the only target has ended (the records are taken in all the same), what on_record
 * returned, or another negative errno with a sentence.
 */
int hl_walker_poll(struct hl_walker *walker, int timeout_ms, struct hl_error *err);

/* Reads the mappings of all targets now. 0, -ESRCH when the only target has ended, or another
 * negative errno with a sentence. */
int hl_walker_refresh(struct hl_walker *walker, struct hl_error *err);

/* The node of the innermost frame of a stack id, among those of target ${ret_number} (NULL is
 * fine); 0 when that stack was never received. */
uint32_t hl_walker_node(const struct hl_walker *walker, uint64_t stack, uint32_t *ret_number);

/* All nodes of a target so far: node id is nodes[id - 1], parents come before children. */
const struct hl_recording_node *hl_walker_nodes(const struct hl_walker *walker, uint32_t number,
						uint32_t *ret_count);

/* Of all targets together. */
struct hl_walker_losses {
	struct hl_walk_losses walk; /* by enum hl_walk_loss, summed over processors */
	uint64_t stacks_unnamed;    /* ended in code that was gone before it could be read */
	bool reloads_unseen;	    /* noticed within a second, not at once */
	uint64_t rows_full;	    /* files whose rows found no room */
	uint64_t mappings_full;	    /* mappings that found no room, of the last refreshes */
	uint64_t files_lost;	    /* see struct hl_target */
	uint64_t modules_lost;
};

/* What was lost so far. 0 or a negative errno. */
int hl_walker_losses(const struct hl_walker *walker, struct hl_walker_losses *ret_losses);

/* NULL: there has been none with that number. */
const struct hl_target *hl_walker_target(const struct hl_walker *walker, uint32_t number);

/* Sums over all processors what a map of one element counts, a struct of uint64_t alone, into
 * ${ret_sums}. For any such map of the object. 0 or a negative errno. */
int hl_walker_sum_counters(const struct bpf_map *map, void *ret_sums);

void hl_walker_free(struct hl_walker *walker); /* NULL is fine */

/* ---- stacks by their ids, and trees of nodes with common outer frames ---- */

/* Zero-initialize for an empty one. */
struct hl_stack_tree {
	struct hl_recording_node *nodes; /* ids 1 .. count; parents before children */
	size_t count, capacity;
	struct hl_index index;
};

/* Stacks whose nodes are in trees, each in one. Zero-initialize for none. */
struct hl_stack_leaves {
	struct hl_stack_leaf {
		uint64_t stack;
		uint32_t node, target;
	} * leaves;
	size_t count, capacity;
	struct hl_index index;
};

/* Says that ${leaf}'s stack (not 0) is the one of the ${count} frames ${keys}, innermost first, in
 * ${tree}, and finds its node. 0, or -ENOMEM and the stack stays unknown. */
int hl_stack_leaves_add(struct hl_stack_leaves *leaves, struct hl_stack_tree *tree,
			struct hl_stack_leaf leaf, const uint64_t *keys, size_t count);

/* All zero when the stack is unknown. */
struct hl_stack_leaf hl_stack_leaves_find(const struct hl_stack_leaves *leaves, uint64_t stack);

void hl_stack_leaves_release(struct hl_stack_leaves *leaves);
void hl_stack_tree_release(struct hl_stack_tree *tree);
