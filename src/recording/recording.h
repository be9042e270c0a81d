/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recording, NAME.hl/: what the collector keeps and every view reads. docs/format.md describes
 * the files.
 *
 * Writing is per file, into a temporary name that replaces the old file at once, so that a
 * recording can be read at any time. Reading trusts nothing: every length, index and checksum is
 * checked before use, and damage is an error sentence.
 */
#pragma once

#include "base/compiler.h"
#include "base/error.h"
#include "base/file_print.h"
#include "base/lost.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

struct hl_recording_module {
	char *path; /* as the target saw it; "" when unknown */
	uint64_t start, end;
	uint64_t load_bias;
	uint8_t build_id[HL_BUILD_ID_MAX]; /* see base/file_print.h */
	uint32_t build_id_bytes;
	struct hl_file_print print; /* of a file without a build id that tells it from others */
};

/* A runtime of scripts in the process, whose frames are among the nodes; see base/frame_key.h.
 * Addresses are those of the process. */
struct hl_recording_provider {
	char *name;
	uint64_t eval_start, eval_end;	 /* the interpreter's main function; 0: unknown */
	uint64_t cold_start, cold_end;	 /* a part of it that lies elsewhere; 0: none */
	uint64_t text_start, text_end;	 /* all of its own code; 0: unknown */
	uint64_t alloc_start, alloc_end; /* code that calls the host's allocator; 0: unknown */
};

/* A place in a script. Site number n is sites[n - 1]. */
struct hl_recording_site {
	uint32_t provider;	   /* index of providers */
	uint32_t function, source; /* indexes of site_names */
	uint32_t line, first_line; /* first_line: of the function; 0: unknown */
};

/* Code that lies in no module, by a name as its runtime wrote it for perf. */
struct hl_recording_code {
	uint64_t address; /* as in frame keys */
	char *name;
};

/* Node ids are 1 .. node_count; nodes[id - 1] describes id. A parent is 0 (root) or any smaller or
 * larger valid id, without cycles. */
struct hl_recording_node {
	uint64_t frame; /* frame key, see base/frame_key.h; module id m is modules[m - 1] */
	uint32_t parent;
};

/* The counters of one (node, thread slot). */
struct hl_recording_value {
	uint32_t node;	 /* 1 .. node_count */
	uint32_t thread; /* index into threads */
	uint64_t alloc_bytes, alloc_objects;
	uint64_t free_bytes, free_objects;
	uint64_t temporary_objects;
	int64_t slack_bytes;
	int64_t peak_bytes, peak_objects; /* in use when the process' total in use was highest */
};

/* What of a node's blocks was in RAM, and swapped out, when a snapshot was taken. */
struct hl_recording_resident {
	uint32_t node; /* 1 .. node_count */
	uint64_t resident_bytes, swapped_bytes;
};

struct hl_recording_thread {
	uint32_t tid; /* of the last owner of the slot */
	char name[16];
	uint32_t earlier_threads; /* that owned the slot, and whose figures are among these */
};

enum hl_process_end {
	HL_END_RUNNING,	 /* the recording ended, or was interrupted, before the process */
	HL_END_EXITED,	 /* end_status: exit status */
	HL_END_SIGNALED, /* end_status: signal number */
	HL_END_EXEC,	/* replaced by another program; its recorder, if it has one, has an entry of
			   its own */
	HL_END_UNKNOWN, /* ended; how is not known, because it is not heapline's own child */
};

/* One program image of one process: exec and fork begin new ones. */
struct hl_recording_process {
	uint32_t pid, parent_pid;
	uint32_t sequence; /* 0, 1, 2 ... in order of appearance; names the file */
	char *executable;  /* path; "" when unknown */
	char **command;	   /* NULL-terminated argv, or the title in its place at the end */
	char *name;	   /* that a forked child gave itself (prctl); "" or NULL: it did not */
	uint64_t recording_start_ns; /* start_realtime_ns of its recording, by which files of others
					are told from its own; 0: not known */
	uint64_t start_realtime_ns;
	uint64_t duration_ns; /* from start to end, or to the last save */
	uint64_t reset_ns;    /* after the start: since when what was allocated, what was temporary
				 and the peak count; 0: from the start */
	bool complete;	 /* saved after the process' last event (else the collector was interrupted:
			    figures of the last save) */
	bool own_malloc; /* the program brings a malloc of its own that was not seen */
	enum hl_process_end end;
	int32_t end_status;
	char *successor; /* with HL_END_EXEC: the program that took its place and was not recorded;
			    "" or NULL if there is none */
	uint64_t peak_mark_ns; /* after start_realtime_ns */
	struct hl_lost lost;

	uint32_t module_count, node_count, value_count, thread_count;
	struct hl_recording_module *modules;
	struct hl_recording_node *nodes;
	struct hl_recording_value *values;
	struct hl_recording_thread *threads;

	uint32_t provider_count, site_count, site_name_count;
	struct hl_recording_provider *providers;
	struct hl_recording_site *sites;
	char **site_names;

	uint32_t code_count;
	struct hl_recording_code *code; /* in rising order of address; none twice */

	bool knows_resident;   /* else the members below are zero */
	bool resident_is_mean; /* blocks that only the recorder knows count with the mean size of
				  their stack's */
	uint64_t resident_unknown_bytes; /* of live blocks whose stack is not known */
	uint32_t resident_count;
	struct hl_recording_resident *resident; /* no node twice */
};

/* A moment of a process that was named while recording; its log, if it has one, has the mark, too.
 */
struct hl_recording_mark {
	uint32_t pid;
	uint64_t ms; /* after the process' start */
	char *name;
};

/* A number that is of the whole recording and of no stack. Its name is lowercase words joined by
 * '_', the last of which is the unit: "rss_growth_pages". */
struct hl_recording_figure {
	char *name;
	int64_t value;
};

#define HL_FIGURE_NAME_MAX 63

/* The unit that ${name} ends with, or is: "pages"; NULL when there is none. */
static inline const char *hl_figure_unit(const char *name)
{
	static const char *const units[] = {"bytes",  "pages",	"objects", "stacks",
					    "faults", "events", "percent", "ms"};
	const char *last = strrchr(name, '_');

	for (size_t i = 0; i < HL_COUNT_OF(units); i++)
		if (!strcmp(last ? last + 1 : name, units[i]))
			return units[i];
	return NULL;
}

/* Lowercase words, and numbers, joined by '_', with a unit at the end. */
static inline bool hl_figure_name_is_valid(const char *name)
{
	return name[0] >= 'a' && name[0] <= 'z' && strlen(name) <= HL_FIGURE_NAME_MAX &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] && hl_figure_unit(name);
}

struct hl_recording {
	char *name;	 /* path as opened */
	char *directory; /* where its files are, copies of modules among them; NULL: nowhere */
	uint32_t format_version;
	char *tool_version;
	char **command;		    /* NULL-terminated: what record was asked to run */
	char *host, *kernel, *mode; /* mode: "closed", "mem-record", "mem-fast" ...; of
					     traces "stacks", "pgfault" ... */
	uint64_t sample_bytes;
	uint64_t start_realtime_ns;
	uint64_t duration_ns;
	bool complete;	 /* the collector finished it */
	bool snapshot;	 /* a copy that was taken while it went on */
	bool attached;	 /* it began in the middle of a running process' life */
	bool no_scripts; /* interpreters were not looked for */
	bool running;	 /* not finished, and a collector was at it when it was opened */
	char **warnings; /* NULL-terminated sentences: what went wrong while recording (full disk,
			    refused child ...) */
	uint32_t mark_count;
	struct hl_recording_mark *marks;
	uint32_t figure_count;
	struct hl_recording_figure *figures; /* no name twice */
	uint32_t ended_processes;	     /* whose files were there when it was finished */
	uint32_t unrecorded_children;	     /* that should have been recorded and were not */
	uint32_t refused_children;	     /* of these, those whose reason a warning gives */
	uint32_t process_count;
	struct hl_recording_process *processes; /* by sequence */
};

/* Reads the recording in directory ${path}. 0 or a negative errno with a sentence in ${err}. */
int hl_recording_open(const char *path, struct hl_recording **ret_recording, struct hl_error *err);

/*
 * The recording of what process ${sequence} of the recording ${path} had lost when it exited: "app.lost-0.hl" beside "app.hl". To be freed;
 * NULL for want of memory.
 */
char *hl_recording_lost_path(const char *path, uint32_t sequence);

/* Whether there is a recording at ${path}. */
bool hl_recording_is_there(const char *path);

void hl_recording_free(struct hl_recording *recording); /* NULL is fine */

/*
 * Writes the recording's own meta data (all fields but processes) to ${directory_fd}; replaces the
 * file at once. -ENOSPC and the like leave the old file as it was.
 */
int hl_recording_write_meta(int directory_fd, const struct hl_recording *recording,
			    struct hl_error *err);

/* Writes one process' file; as above. */
int hl_recording_write_process(int directory_fd, const struct hl_recording_process *process,
			       struct hl_error *err);

struct hl_recording_kept; /* recording_files.h */

/*
 * The same, of which only what has changed since the last time is compressed. nodes[0] of ${process} has the id ${first_node} + 1;
 * the first ${first_node}, a multiple of HL_KEPT_ROWS, are those of the last time. After a failure nothing is kept.
 */
int hl_recording_write_process_again(int directory_fd, const struct hl_recording_process *process,
				     uint32_t first_node, struct hl_recording_kept *kept,
				     struct hl_error *err);

void hl_recording_kept_release(struct hl_recording_kept *kept);

/* A copy of ${words}, as `command` and `warnings` are: NULL-terminated, each text of its own; empty
 * for NULL. NULL when out of memory. */
char **hl_recording_copy_words(char *const *words);

/* Adds a sentence to the warnings of a recording that was read. 0 or -ENOMEM. */
int hl_recording_warn(struct hl_recording *recording, const char *format, ...) HL_PRINTF(2, 3);

/* Frees what a process refers to, not the struct itself. */
void hl_recording_process_release(struct hl_recording_process *process);

/*
 * Hangs nodes whose parent is out of range, and one node of each cycle, on the root. ${marks} is
 * scratch space for ${count} numbers. Returns how many nodes it had to change: 0 for a sound tree.
 */
uint32_t hl_recording_repair_tree(struct hl_recording_node *nodes, uint32_t count, uint32_t *marks);

/* ---- script stack ---- */

/*
 * Puts the frames of scripts where they belong. A recording keeps them below the innermost native
 * frame (recorder/script.h); a reader wants to see them instead of the calls of the interpreter
 * that ran them.
 *
 *	group	frames of scripts from one that native code called up to the next such one: what
 *		one call of the interpreter's main function runs
 *
 * The innermost group belongs to the innermost call of the main function, and so on outward. A call whose
 * function has ended, and which lets go of what that held, has a group without frames.
 */

struct hl_recording_process;
struct hl_recording_provider;
struct hl_recording_site;

enum hl_frame_part {
	HL_PART_NATIVE,
	HL_PART_SCRIPT,	     /* a place in a script */
	HL_PART_ENTRY,	     /* the same, called by native code */
	HL_PART_EVAL,	     /* the interpreter's main function, which runs scripts */
	HL_PART_INTERPRETER, /* other code of the interpreter */
	HL_PART_ALLOCATES,   /* the same, and what it calls is the host's allocator */
	HL_PART_TYPE,	     /* no frame, but the type of the blocks */
	HL_PART_SERVICE,     /* the service that they belong to */
	HL_PART_AGE,	     /* how many collections they have outlived */
	HL_PART_ENDED,	     /* no place: native code called a function, which has just ended */
	HL_PART_LAST = HL_PART_ENDED,
};

static inline bool hl_frame_part_is_label(uint8_t part)
{
	return part >= HL_PART_TYPE && part <= HL_PART_AGE;
}

/* What the sites of ${provider} mostly are. Pools are native: their frames say by which way memory came. */
enum hl_frame_part hl_frame_part_of_provider(const struct hl_recording_provider *provider);

/* What ${site} is, which native code has called or not. A site without function, source and line is HL_PART_ENDED. */
enum hl_frame_part hl_frame_part_of_site(const struct hl_recording_process *process,
					 const struct hl_recording_site *site, bool is_entry);

/* What the code at ${pc}, an address of the process, is to ${provider}; HL_PART_NATIVE: not its own. */
enum hl_frame_part hl_frame_part_of_code(const struct hl_recording_provider *provider, uint64_t pc);

struct hl_stack_frame {
	uint32_t id;	  /* whatever the caller calls it by */
	uint32_t runtime; /* of parts that are not native: the same number for the same runtime */
	enum hl_frame_part part;
};

/* Frames, outermost first and without labels: native ones up to ${scripts}, those of scripts up to
 * ${rest}, then what says by which way memory came. */
struct hl_script_stack {
	const struct hl_stack_frame *frames;
	size_t count, scripts, rest;
};

struct hl_script_stack hl_script_stack(const struct hl_stack_frame *frames, size_t count);

/*
 * The ids of the mixed stack: groups instead of calls of the main function, the interpreter's other frames
 * left out. ${ret_ids} has room for stack->count. Where calls and groups of a runtime are not as many,
 * what is left over stays as it is, outermost; then ${ret_unmatched}. Returns how many ids there are.
 */
size_t hl_script_stack_mix(const struct hl_script_stack *stack, uint32_t *ret_ids,
			   bool *ret_unmatched);

/* ---- code runtime ---- */

/*
 * Runtimes of languages, by the file that they are in: those that make machine code while they run, which lies in no
 * file and has the names alone that the runtime writes for perf (process/code_names.h); and interpreters whose scripts
 * heapline does not read.
 */

/* A running process whose runtime is asked to write names. */
struct hl_code_writer {
	pid_t pid;
	int pidfd, directory_fd;  /* directory_fd: its /tmp */
	uint32_t pid_inside, uid; /* as it knows itself; of its files */
};

struct hl_code_runtime {
	const char *file;     /* the beginning of the file's name, before its version */
	const char *language; /* "Java" */
	const char
		*start; /* NULL: it makes no code; else what has it write names from its start on */
	const char *tool, *task; /* `TOOL PID TASK` has it write them while it runs; or NULL */
	const char *version;	 /* the first that does, in parentheses; or "" */
	const char *whole;	 /* what keeps stacks whole that its code is part of; or NULL */
	/* Has it write them into /tmp/perf-PID.map now. 0, -ENOTSUP: nothing is written, or another negative errno, with a sentence; NULL: it cannot be asked. */
	int (*write_names)(const struct hl_code_writer *writer, struct hl_error *err);
};

/* The runtime in the file ${path}; NULL: unknown. */
const struct hl_code_runtime *hl_code_runtime_of(const char *path);

#define HL_CODE_RUNTIME_REMEDY_MAX 256

/* The clause that says what writes names of the code that ${runtime} makes. ${pid}: 0, or its process, if
 * that still runs. Returns ${text}. */
const char *hl_code_runtime_remedy(const struct hl_code_runtime *runtime, uint32_t pid,
				   char text[HL_CODE_RUNTIME_REMEDY_MAX]);

/* Whether code in no file, by its name and source file ("": unknown), is a function of a program: runtimes name
 * their own stubs as well. */
bool hl_code_runtime_is_script(const char *name, const char *source);
