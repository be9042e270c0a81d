/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline.h: how a program queries and controls the recorder inside it.
 *
 * Link with -lheapline, or leave the symbols weak and check them: they are there only when the
 * recorder is preloaded or linked. Without a collector (heapline record) the recorder passes every
 * call through, and these functions say so. All functions are thread-safe and, but for
 * hl_frame_provider_register(), hl_report_lines() and hl_report_times(), async-signal-safe, allocate nothing and keep
 * errno.
 */
#ifndef HEAPLINE_H
#define HEAPLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a program is recorded. The modes with a log keep the maximum of each 100 ms. */
enum hl_recording_mode {
	HL_CLOSED =
		0, /* allocations pass through unrecorded; frees of recorded blocks still count */
	HL_MEM_RECORD = 1, /* counters by stack; block table: hash */
	HL_MEM_FAST = 2,   /* counters by stack; block table: array */
	HL_LOG_RECORD = 3, /* as HL_MEM_RECORD, and a log of what was in use when */
	HL_LOG_FAST = 4,   /* as HL_MEM_FAST, and a log */
};

#define HL_MARK_NAME_MAX 239 /* bytes of a mark's name, without the NUL */

/* The recorder's state. Set size to sizeof(struct hl_status) before the call: it says which fields
 * the caller knows. */
struct hl_status {
	size_t size;
	int32_t recording;     /* 1 while there is a collector or a region left by one, else 0 */
	int32_t mode;	       /* enum hl_recording_mode */
	uint64_t sample_bytes; /* mean distance of samples; 0 = every allocation is recorded */
	int64_t inuse_bytes;   /* within 1 % of the peak */
	uint64_t peak_bytes;   /* within 1 %; since the last reset */
	uint64_t stack_nodes;
	/* Fields from here on came later: a smaller size, up to here, is known, too. */
	uint64_t reports_asked; /* hl_report() calls that returned 0 */
	uint64_t reports_done;	/* of these, written or given up: equal when none is due */
	int32_t report_result;	/* of the last one done: 0 or a negative errno */
	int32_t reserved;
};

/* The version of the library, "MAJOR.MINOR.PATCH". */
const char *hl_version(void);

/* Fills ${status}. 0, or -EINVAL when status->size is not one that this library knows. */
int hl_status_get(struct hl_status *status);

/*
 * Switches to any mode, as often as wanted. Blocks that were allocated while the mode was HL_CLOSED
 * are unknown: their frees count as unmatched. A log begins, or goes on, with what is in use then.
 * 0, -ENOTCONN when nothing is being recorded, -EINVAL when there is no such mode, -EOPNOTSUPP for
 * a mode with a log in a process whose limit of address space left no room for one. A switch leaves
 * a mark, "mode closed" or the like.
 */
int hl_mode_set(enum hl_recording_mode mode);

/*
 * Notes the moment under ${name}: in the log where there is one, else in the recording. A name is
 * one line of 1 to HL_MARK_NAME_MAX bytes without control characters. 0, -ENOTCONN when nothing is
 * being recorded, -EINVAL or -ENAMETOOLONG for the name, -EAGAIN when the collector, which fetches
 * them ten times a second at most, has 64 marks of this process to fetch.
 */
int hl_mark(const char *name);

/*
 * Asks the collector for a copy of the recording as it stands, a new directory at ${path}, which is
 * absolute or relative to the working directory of this process. 0 when asked, -ENOTCONN when
 * nothing is being recorded, -EBUSY while another report is due, -EINVAL for an empty path,
 * -ENAMETOOLONG. hl_status_get() shows whether and how it was done. A collector that was killed
 * never answers; one whose user is not that of the process refuses (-EPERM).
 */
int hl_report(const char *path);

/*
 * How many segments of this process' log are kept: a positive number, -ENOTCONN when nothing is
 * being recorded, or -EOPNOTSUPP in modes without a log.
 */
int hl_log_segments_get(void);

/* Keeps the newest ${count} segments, 1 to 1,000,000, and deletes older ones. 0, -EINVAL, or as
 * above. */
int hl_log_segments_set(unsigned count);

/* ---- figures of lines, for programs that show their own ---- */

#define HL_REASON_BYTES 256

/* Bytes in use that were allocated at one place. */
struct hl_line {
	const char *
		place; /* path of a source, of C or of a script; MODULE(FUNCTION) where no line is known */
	uint32_t line; /* from 1; 0: unknown */
	uint32_t reserved;
	int64_t bytes; /* 0: all that was allocated there has been freed */
};

/* Of one report. Set size to sizeof(struct hl_line_report) before the call. */
struct hl_line_report {
	size_t size;
	int64_t total_bytes;
	size_t count;
	const struct hl_line *lines;  /* largest first */
	char reason[HL_REASON_BYTES]; /* why there is none: a sentence; "" when all is well */
	void *memory[2];	      /* the library's */
	size_t memory_bytes[2];
};

#define HL_REPORT_NOW INT64_C(-1)

/*
 * Fills ${report} with what this process has in use by line: now, or where there is a log at the highest point of the
 * 100 ms interval that holds ${ms}, counted from when the recording of the process began. The collector finds the names,
 * so that this takes as long as `heapline lines` does, but nothing of the process: no memory of its
 * allocator, no other thread's time. Not for signal handlers. Works without a recorder's library, too, in a process
 * that was joined. 0; -EINVAL for a size that is not known; or with the reason -ENOTCONN when nothing is being
 * recorded, -EREMOTEIO when the collector refuses, as for a moment that the log does not hold, -ETIMEDOUT, or another
 * negative errno. hl_report_lines_free() frees a report that was given, once.
 */
int hl_report_lines(int64_t ms, struct hl_line_report *report);
void hl_report_lines_free(struct hl_line_report *report);

/* The highest point of an interval of 100 ms. */
struct hl_time {
	int64_t ms; /* when the interval began, since the recording of the process did */
	int64_t bytes;
};

/* Set size to sizeof(struct hl_time_report) before the call. */
struct hl_time_report {
	size_t size;
	size_t count;
	const struct hl_time *times;
	char reason[HL_REASON_BYTES];
	void *memory;
	size_t memory_bytes;
};

/* The same over time, from the log, which is read with ${jobs} threads of heapline (0: one for each core). Intervals in
 * which nothing happened have none. As hl_report_lines(); a process without a log is refused. */
int hl_report_times(unsigned jobs, struct hl_time_report *report);
void hl_report_times_free(struct hl_time_report *report);

/* ---- frames of scripts, for programs that run an interpreter ---- */

/* A place where an interpreter is. */
struct hl_frame {
	uint64_t function; /* address of what describes the function in the interpreter; not 0 */
	uint32_t at;	   /* where in it, as the interpreter counts: of an instruction its index */
	uint16_t print;	   /* of the function: another one at this address mostly differs; or 0 */
	uint8_t is_entry;  /* 1: called by native code, else 0 */
	uint8_t reserved;  /* 0 */
};

/* What a place is called. Texts need no NUL, and to stay only until the next call of the provider. */
struct hl_frame_place {
	const char *function, *source; /* source: the path of a file, if it is one */
	uint32_t function_bytes, source_bytes;
	uint32_t line;	     /* from 1; 0: unknown */
	uint32_t first_line; /* of the function; 0: unknown */
};

/* Registers of the function that called the allocator, once that has returned. */
struct hl_frame_caller {
	uint64_t pc, sp, bp;
};

/*
 * How the recorder learns what an interpreter runs. Set size to sizeof(struct hl_frame_provider). Both functions run
 * inside malloc(), on the thread that allocates: they must not allocate, lock, wait, print, change
 * errno or fault, and need little stack. They may run in any number of threads at once.
 */
struct hl_frame_provider {
	size_t size;
	const char *name; /* shown as the module of the frames; up to 23 bytes */
	/*
	 * Fills ${frames} with what the calling thread's interpreters run now, innermost first.
	 * Returns how many, at most ${max}, and sets *${ret_truncated} to 1 when there are more.
	 * Sets is_entry in each frame that native code called: what is inward of it, up to the
	 * next entry, is run by one call of the interpreter's main function.
	 */
	uint32_t (*capture)(void *state, const struct hl_frame_caller *caller,
			    struct hl_frame *frames, uint32_t max, int *ret_truncated);
	/*
	 * Says what a frame that capture() has just given is called: 1, or 0 when it is not known.
	 * Asked when the place is new to the thread, so while the function lives.
	 */
	int (*describe)(void *state, const struct hl_frame *frame,
			struct hl_frame_place *ret_place);
	void *state; /* is given to both */
	const void *eval_start,
		*eval_end; /* code of the main function: only for stacks with a frame
					      of it is capture() asked; NULL: for all stacks, and
					      frames of scripts stand below all native ones */
	const void *text_start,
		*text_end; /* code that is left out of stacks with frames of scripts; NULL: none */
};

/*
 * Has ${provider}, which is copied, asked at each recorded allocation from now on, for good; what
 * it points to must stay. Not for signal handlers. 0, -EINVAL, or -ENOSPC after four of them, one of
 * which may be heapline's own. Where nothing is recorded it costs nothing.
 */
int hl_frame_provider_register(const struct hl_frame_provider *provider);

/* The function at this address is about to be freed: another one may come to lie there. */
void hl_frame_function_freed(uint64_t function);

/* ---- figures of test cases, for test frameworks ---- */

#define HL_CASE_NAME_MAX    1023 /* bytes of a case's name, without the NUL */
#define HL_CASE_PLACE_BYTES 512

/* What a test case used: blocks that this process, on any thread, allocated between its begin and its end. Set size to
 * sizeof(struct hl_case) before the call. */
struct hl_case {
	size_t size;
	uint64_t allocations, allocated_bytes;
	uint64_t peak_bytes;		  /* most of them in use at once */
	uint64_t kept_blocks, kept_bytes; /* of them, still in use at the end */
	uint64_t lost; /* events that could not be counted: figures may be too small */
	/* Where most of that comes from in scripts, "parse (json.py:7) < load (main.py:3)"; "" where no script runs. */
	char peak_by[HL_CASE_PLACE_BYTES];
	char kept_by[HL_CASE_PLACE_BYTES];
	char allocated_by[HL_CASE_PLACE_BYTES];
};

/*
 * Begins a test case. ${name}: one line of 1 to HL_CASE_NAME_MAX bytes without control characters. A process has one case at a
 * time; forked children begin their own. `heapline check --per-test` lists cases and their limits. 0; -EBUSY while another case
 * is open, -ENOTCONN when nothing is being recorded, -EOPNOTSUPP when nothing is counted now or blocks are sampled, -EINVAL or
 * -ENAMETOOLONG for the name, -ENOMEM, or the error of the file that `heapline check` reads. Not for signal handlers.
 */
int hl_case_begin(const char *name);

/* Ends it. ${ret_case} may be NULL; else it is filled when there was a case. 0, -EINVAL without one or for a size that is not
 * known, or as above. */
int hl_case_end(struct hl_case *ret_case);

/* Ends a test that was skipped: reports leave it out. Returns what hl_case_end() does. */
int hl_case_drop(void);

#define HL_TAG_NAME_MAX 63 /* bytes of a tag's name, without the NUL */

/*
 * Tags what this thread allocates from here on with ${name}, until the matching hl_tag_pop():
 * `heapline allocations` lists blocks by tag. Works only with libheapline-tags.so (heapline record
 * --tags), which copies the name and keeps up to 1024 different ones. 0; -EOPNOTSUPP without that
 * library; -EINVAL or -ENAMETOOLONG for the name, which is one line without control characters;
 * -ENOSPC when there are too many. Pushed in any case, so that every push has its pop.
 */
int hl_tag_push(const char *name);

/* Back to the tag before. 0, -EINVAL without a push before, -EOPNOTSUPP as above. */
int hl_tag_pop(void);

/*
 * ---- annotations: header-only, for programs that link nothing of heapline ----
 *
 * What a program tells of its pools, and marks and modes that it sets, where it may be recorded or not:
 * by `heapline record`, which preloads the recorder, or by `heapline attach`, while it runs. Without
 * a recorder each costs the test of one word, and does nothing. Needs gcc or clang for x86-64 or aarch64; elsewhere, and
 * with HL_WITHOUT_ANNOTATIONS defined before this header, they are empty. In what a compiler makes
 * of several files of one object there is one copy of the word, and a note that says where it is.
 */

#define HL_POOL_NAME_BYTES 63 /* of a pool's name; the rest is cut off */

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__ELF__) && \
	!defined(HL_WITHOUT_ANNOTATIONS)

#ifdef __x86_64__
#define HL_HERE_CODE_(name)                                \
	"endbr64\n"                                        \
	"movq hl_recorded_" name "@GOTPCREL(%rip), %rax\n" \
	"testq %rax, %rax\n"                               \
	"je 1f\n"                                          \
	"jmp *%rax\n"                                      \
	"1: ret\n"
#else
#define HL_HERE_CODE_(name)                                \
	"hint 34\n" /* bti c */                            \
	"adrp x16, :got:hl_recorded_" name "\n"            \
	"ldr x16, [x16, :got_lo12:hl_recorded_" name "]\n" \
	"cbz x16, 1f\n"                                    \
	"br x16\n"                                         \
	"1: mov w0, wzr\n"                                 \
	"ret\n"
#endif

/* A function that heapline hooks; it goes on to the preloaded recorder's, or returns 0. */
#define HL_HERE_(name)                                          \
	".weak hl_recorded_" name "\n"                          \
	".weak hl_" name "_here\n"                              \
	".hidden hl_" name "_here\n"                            \
	".type hl_" name "_here, @function\n"                   \
	".balign 16\n"                                          \
	"hl_" name "_here:\n"                                   \
	".cfi_startproc\n" HL_HERE_CODE_(name) ".cfi_endproc\n" \
					       ".size hl_" name "_here, . - hl_" name "_here\n"

/* The word is not 0 while somebody records: it has the address of a function of the preloaded
 * recorder, or what heapline writes. With -flto this stands in one assembly several times, and
 * clang's plugin takes strong symbols for duplicates. */
/* clang-format off */
__asm__(".ifndef hl_is_recorded_here\n"
	".pushsection .text.hl_here,\"axG\",@progbits,hl_here,comdat\n"
	HL_HERE_("pool_alloc")
	HL_HERE_("pool_free")
	HL_HERE_("mark")
	HL_HERE_("mode")
	".popsection\n"
	".pushsection .data.hl_here,\"awG\",@progbits,hl_here,comdat\n"
	".weak hl_is_recorded_here\n"
	".hidden hl_is_recorded_here\n"
	".type hl_is_recorded_here, @object\n"
	".size hl_is_recorded_here, 8\n"
	".balign 8\n"
	"hl_is_recorded_here: .quad hl_recorded_pool_alloc\n"
	".popsection\n"
	".pushsection .note.heapline,\"aG\",@note,hl_here,comdat\n"
	".balign 4\n"
	".long 9, 40, 1\n"
	".asciz \"heapline\"\n"
	".balign 4\n"
	".quad hl_is_recorded_here - .\n"
	".quad hl_pool_alloc_here - .\n"
	".quad hl_pool_free_here - .\n"
	".quad hl_mark_here - .\n"
	".quad hl_mode_here - .\n"
	".popsection\n"
	".endif\n");
/* clang-format on */

#undef HL_HERE_
#undef HL_HERE_CODE_

extern __attribute__((visibility("hidden"))) const void *volatile hl_is_recorded_here;
__attribute__((visibility("hidden"))) void hl_pool_alloc_here(const char *pool, const void *block,
							      size_t size);
__attribute__((visibility("hidden"))) void hl_pool_free_here(const char *pool, const void *block);
__attribute__((visibility("hidden"))) int hl_mark_here(const char *name);
__attribute__((visibility("hidden"))) int hl_mode_here(int mode);

#define HL_IF_RECORDED_(call)                                      \
	do {                                                       \
		if (__builtin_expect(hl_is_recorded_here != 0, 0)) \
			(void)(call);                              \
	} while (0)

#else
#define HL_IF_RECORDED_(call) ((void)0)
#endif

/*
 * ${block}, ${size} bytes, has been cut from a pool. Recorded as a block of its own, with the stack of the
 * caller and below it a frame "[pool NAME]", until hl_pool_free(), or until another block begins there:
 * a pool may be reset without a word. The memory that the pool has from malloc() counts for that as always. ${pool} names it in all of the program, one line. A NULL block is
 * none. Thread-safe, async-signal-safe; keeps errno.
 */
static inline void hl_pool_alloc(const char *pool, const void *block, size_t size)
{
	(void)pool, (void)block, (void)size;
	HL_IF_RECORDED_(hl_pool_alloc_here(pool, block, size));
}

/* The block is free again; NULL is fine. One that was allocated unrecorded counts as an unmatched free. */
static inline void hl_pool_free(const char *pool, const void *block)
{
	(void)pool, (void)block;
	HL_IF_RECORDED_(hl_pool_free_here(pool, block));
}

/* hl_mark() and hl_mode_set() for programs that do not link -lheapline: they do nothing where nobody records, or
 * where the mark or mode cannot be set. */
static inline void hl_note_mark(const char *name)
{
	(void)name;
	HL_IF_RECORDED_(hl_mark_here(name));
}

static inline void hl_note_mode(enum hl_recording_mode mode)
{
	(void)mode;
	HL_IF_RECORDED_(hl_mode_here((int)mode));
}

#undef HL_IF_RECORDED_

#ifdef __cplusplus
}
#endif

#endif
