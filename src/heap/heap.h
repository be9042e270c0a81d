/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of a process' heap, read from outside: what every view of it knows.
 *
 * Words: live blocks are those that the program has; cached ones were freed and lie in a thread's
 * cache (tcache) or a fastbin, in use for the allocator's arithmetic; free ones are in bins or in
 * an arena's top. Resident is what is in RAM. Unscanned is what could not be read consistently.
 *
 *	RSS = live + cached + free resident + allocator's own + not heap + unscanned
 *
 * of which only resident parts count.
 */
#pragma once

#include "base/error.h"
#include "guests/outside.h"
#include "heap/carriers.h"
#include "heap/extents.h"
#include "heap/memory.h"
#include "heap/pod_files.h"
#include "process/maps.h"
#include "process/process.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hl_allocator_traits;

/* ---- rss.c: where resident memory lies, by part, as the allocator, threads, files and runtimes tell ---- */

/* Whose private memory is that is neither glibc's nor a stack; `other` where no fact says it. */
enum hl_anonymous_kind {
	HL_ANONYMOUS_VARIABLES, /* .data and .bss, and other pages of ELF files that were written to */
	HL_ANONYMOUS_FILE,	/* written pages of other files that are mapped privately */
	HL_ANONYMOUS_CODE,
	HL_ANONYMOUS_GUESTS, /* and following: pools of hl_guests_outside[0] and following, then their other pools */
	HL_ANONYMOUS_V8 = HL_ANONYMOUS_GUESTS + 2 * HL_GUESTS_OUTSIDE_MAX,
	HL_ANONYMOUS_JAVA,
	HL_ANONYMOUS_JVM,
	HL_ANONYMOUS_GO,
	HL_ANONYMOUS_BREAK,
	HL_ANONYMOUS_OTHER,
	HL_ANONYMOUS_COUNT,
};

/* As reports show it: "Go's heap". NULL: no guest has such memory. Equal names are equal pointers. */
const char *hl_rss_anonymous_name(size_t kind);

/* The pools of a guest that memory of this kind is; NULL: of none. */
const struct hl_guest_pools *hl_rss_pools(size_t kind);

/* Of parts whose mappings have names. */
extern const char hl_rss_files_name[], hl_rss_shared_name[];

#define HL_RSS_MAPPING_NAME_MAX 96

/* What a large mapping, or all of one file, has in RAM. */
struct hl_rss_mapping {
	const char *part; /* one of the names above */
	char name
		[HL_RSS_MAPPING_NAME_MAX]; /* "memfd:frames", "cache.bin (tmpfs)"; "": it has none */
	uint64_t start;			   /* of the first one */
	uint64_t mapped_bytes;		   /* in RAM or not */
	uint64_t bytes;			   /* in RAM */
	uint64_t huge_bytes;		   /* of these, in transparent huge pages */
};

/* What the kernel counts beside the parts of RSS, or across them; zero: nothing, or it does not say. */
struct hl_rss_beside {
	uint64_t huge_page_bytes;    /* of hugetlbfs, not in RSS */
	uint64_t swap_bytes;	     /* private and shared memory, not in RSS */
	uint64_t swap_pss_bytes;     /* the same, divided among those that share it */
	uint64_t page_table_bytes;   /* not in RSS */
	uint64_t kernel_stack_bytes; /* not in RSS */
	uint64_t open_file_bytes;    /* files in memory that are open and not mapped, not in RSS */
	uint64_t pipe_bytes,
		pipe_capacity_bytes;  /* what nobody has read yet, not in RSS; what they may hold */
	uint64_t pipes, unread_pipes; /* how many there are; of these the bytes are not known of */
	uint64_t lazy_free_bytes;     /* in RSS until the kernel takes them back (MADV_FREE) */
	uint64_t transparent_bytes;   /* in RSS, in transparent huge pages */
	uint64_t shared_bytes,
		pss_bytes; /* in RSS: pages that others map, too; RSS divided among those */
};

/* Where resident memory is. The sum of all is rss_bytes. */
struct hl_heap_rss {
	uint64_t rss_bytes;
	uint64_t live_bytes, cached_bytes, free_bytes;
	uint64_t overhead_bytes; /* headers, arenas' own */
	uint64_t unscanned_bytes;
	uint64_t other_allocator_bytes; /* of src/allocators, where one is there */
	uint64_t recorder_bytes;	/* heapline's own, in a program under `record` */
	uint64_t stack_bytes, file_bytes, shared_bytes, anonymous_bytes; /* not heap */
	uint64_t code_bytes;			/* of file_bytes, what can be executed */
	uint64_t anonymous[HL_ANONYMOUS_COUNT]; /* whose the last are: their sum */
	uint64_t largest_start, largest_bytes;	/* of those without an owner */
	uint64_t piece_bytes; /* of pools, outside of malloc's heap: a part of other parts */
	struct hl_rss_beside beside;
	struct hl_pod_files open;	 /* those of beside.open_file_bytes, by bytes, falling */
	struct hl_rss_mapping *mappings; /* the largest of each part, by part and bytes, falling */
	size_t mapping_count, mapping_capacity;
};

/* Parts of RSS, in the order of reports, but for ${rss}->anonymous, which follows. */
enum hl_rss_part_number {
	HL_RSS_LIVE,
	HL_RSS_CACHED,
	HL_RSS_FREE,
	HL_RSS_OVERHEAD,
	HL_RSS_UNSCANNED,
	HL_RSS_OTHER_ALLOCATORS,
	HL_RSS_RECORDER,
	HL_RSS_STACKS,
	HL_RSS_FILES,
	HL_RSS_SHARED,
	HL_RSS_PARTS,
};

struct hl_rss_part {
	const char *name;
	uint64_t bytes;
};

void hl_rss_parts(const struct hl_heap_rss *rss, struct hl_rss_part ret_parts[HL_RSS_PARTS]);

/* Runtimes that are loaded. */
struct hl_runtimes {
	bool has_v8, has_jvm;
	struct hl_jvm jvm;
};

struct hl_runtimes hl_rss_find_runtimes(struct hl_memory *memory);

/* Who has mapped [${start}, ${end}), a part of ${map} that is neither glibc's nor in a place, of which ${pages} are in
 * memory; ${map} is one of the maps of ${memory}. */
enum hl_anonymous_kind hl_rss_kind(struct hl_memory *memory, const struct hl_runtimes *runtimes,
				   const struct hl_map *map, uint64_t start, uint64_t end,
				   const struct hl_pages *pages);

/* Reads what the kernel counts of process ${pid} beside the parts; what cannot be read stays 0. */
void hl_rss_read_beside(pid_t pid, struct hl_rss_beside *ret_beside);

/* The same from the texts of /proc/PID/smaps_rollup and status; either may be empty. */
void hl_rss_parse_beside(const char *rollup, const char *status, struct hl_rss_beside *ret_beside);

struct hl_heap;

/* Adds all present pages of ${memory} in which no carrier of ${heap} lies, then sets the sum. 0 or a
 * negative errno. */
int hl_rss_add_others(struct hl_memory *memory, struct hl_heap *heap);

/* ---- heap.c ---- */

/* One arena of glibc. */
struct hl_heap_arena {
	uint64_t address; /* of its malloc_state */
	uint32_t threads; /* attached */
	uint32_t carriers;
	/* Bytes from the system, by the arena's own count: live, tcache, fastbins, free, unscanned
	 * and overhead together. */
	uint64_t system_bytes;
	uint64_t max_system_bytes;
	/* Live blocks count the bytes that the program may use (malloc_usable_size). Cached and
	 * free ones count their chunks, which are 8 bytes larger, as in mallinfo2. Free is what
	 * lies in bins, and the top; the largest free block may be the top. */
	uint64_t inuse_bytes, inuse_blocks;
	uint64_t tcache_bytes, tcache_blocks;
	uint64_t fastbin_bytes, fastbin_blocks;
	uint64_t free_bytes, free_blocks;
	uint64_t free_resident_bytes;
	uint64_t largest_free_bytes;
	uint64_t top_bytes;	  /* of the free ones */
	uint64_t trimmable_bytes; /* what malloc_trim would return to the system now, in RAM */
	uint64_t unscanned_bytes;
	uint64_t overhead_bytes; /* headers, the arena's structs, memory that others took from it */
};

/* A page in RAM that few live bytes keep there, or a run of such pages. */
struct hl_heap_pin {
	uint64_t start, end; /* page-aligned addresses */
	uint64_t live_bytes, live_blocks;
	uint64_t returned_bytes; /* what could be returned if these blocks were freed */
	uint64_t block;		 /* address of its largest live block */
	uint64_t block_bytes;
};

/* A sentence about what did not fit, or could not be seen. */
struct hl_heap_note {
	char text[640];
};

/* An allocator whose heap cannot be read from outside: what else is known of it. */
struct hl_heap_unwalked {
	const char *allocator; /* its name; NULL: the heap was walked */
	bool has_recorder;     /* in the process; what follows is what that has counted */
	bool is_whole;	       /* it was there from the process's start */
	bool can_be_asked;     /* the allocator, by that recorder */
	uint64_t live_blocks, live_bytes; /* requested */
};

/* Slabs whose blocks have one size. */
struct hl_heap_class {
	uint64_t slot_bytes;
	uint64_t slabs, slab_bytes, resident_bytes;
	uint64_t slots, live_slots, cached_slots;
};

#define HL_HEAP_CLASS_TENTHS 10u

struct hl_heap_guest {
	const struct hl_guest_outside *guest;
	void *kept; /* the guest's, see hl_guest_outside.heap */
};

struct hl_heap {
	struct hl_process_facts process; /* of a core: those that it states */
	bool from_core;
	bool was_stopped; /* the process was stopped while it was read */
	/* An allocator besides glibc's that was walked, the first one; NULL: none. */
	const struct hl_allocator_traits *walked;
	/* Whose blocks are reported now; NULL: glibc's. */
	const struct hl_allocator_traits *walking;
	bool has_glibc;	      /* glibc's heap has memory, too */
	bool hides_functions; /* that allocate: they cannot be traced */
	uint64_t taken_realtime_ns, walk_ns;
	uint64_t page_bytes;
	char allocator[96];   /* "glibc 2.36"; others that were seen are in notes */
	char walked_name[48]; /* a reader's own word for what it has read, taken over then */
	uint64_t trim_threshold, mmap_threshold; /* live values, which glibc adapts */
	uint32_t arena_max;			 /* 0: the default */
	struct hl_heap_arena *arenas;		 /* [0] is the main arena */
	size_t arena_count, arena_capacity;
	struct hl_carriers carriers;
	/* Blocks with a mapping of their own, in no arena. First those that were found, whole
	 * mappings, never more than glibc counts; then glibc's count. */
	uint64_t mmapped_bytes, mmapped_blocks;
	uint64_t mp_mmapped_bytes, mp_mmapped_blocks;
	struct hl_heap_rss rss;
	struct hl_heap_guest guests[HL_GUESTS_OUTSIDE_MAX]; /* that have something to show */
	size_t guest_count;
	struct hl_heap_class *classes; /* of allocators with slabs, by slot_bytes */
	size_t class_count, class_capacity;
	/* Bytes in RAM of slabs by the share of their places that is live, in tenths. */
	uint64_t occupancy_bytes[HL_HEAP_CLASS_TENTHS];
	struct hl_heap_pin *pins; /* by returned_bytes, falling */
	size_t pin_count, pin_capacity;
	struct hl_heap_unwalked unwalked;
	struct {
		const char *
			name; /* of pools of a guest that are the largest part outside of the heap; NULL: no guest says how ... */
		struct hl_guest_division division; /* ... they divide */
	} pools;
	char own_memory
		[HL_OWN_MEMORY_MAX]; /* that 'attach' records, in mappings without an owner; "": not known */
	struct hl_guest_advice
		advice;	   /* of a guest, for other anonymous mappings; what is NULL without one */
	bool has_services; /* to which 'attach' says what belongs */
	bool has_scripts;  /* whose functions 'attach' names, and a trace from outside does not */
	uint64_t chunks, rereads, abandoned; /* places read again; given up */
	struct hl_heap_note *notes;
	size_t note_count, note_capacity;
};

/* What to read and how. Zero is the default. */
struct hl_heap_settings {
	bool stop; /* exact: the threads are stopped while an arena is walked */
	bool want_pins;
	const struct hl_guest_request
		*guests;  /* of each: what its options ask for; NULL: nothing */
	bool only_arenas; /* whether it can be read, and by which allocator it is: no block is */
	bool no_mapped_blocks; /* those of glibc that have a mapping each, for which all pages are searched, are left out */
	uint32_t strip_count;		 /* parts of each carrier's picture; 0: none */
	struct hl_log2_shape free_shape; /* width 0: 512, 14 */
	/* Called once for each live block, by carrier and mostly in rising order; may be NULL.
	 * ${last_word} is the word at the end of its usable bytes, where tags lie. Non-zero ends
	 * the walk. */
	int (*block)(void *context, uint64_t address, uint64_t usable_bytes, uint64_t last_word);
	/* Called in the same way, with how many of the usable bytes are in RAM, as hl_heap_rss
	 * counts them; may be NULL. */
	int (*resident)(void *context, uint64_t address, uint64_t usable_bytes,
			uint64_t resident_bytes);
	/* Called for memory within the pages of the main heap that is the program's own: before
	 * malloc's first chunk, and where it moved the break itself; in rising order; may be NULL.
	 * Non-zero ends the walk. */
	int (*foreign)(void *context, uint64_t start, uint64_t end);
	void *context;
};

/*
 * Reads the heap of ${pid}. 0; -ESRCH; -EACCES; -ENOTSUP when the allocator cannot be walked, with
 * a sentence that names it and a remedy. Takes about 250 ms for a GiB of small blocks. The target is
 * not changed, and not stopped unless ${settings} say so; pages that are not in memory are not
 * touched. ${settings} NULL: the same as hl_heap_read_pages().
 */
int hl_heap_read(pid_t pid, const struct hl_heap_settings *settings, struct hl_heap **ret_heap,
		 struct hl_error *err);

/*
 * Where the resident memory of ${pid} is, by part, whatever allocates in it: a heap without arenas,
 * blocks, whose `rss`, `process`, `allocator` and `unwalked` are filled, but for what a recorder knows. hl_heap_view() shows it.
 * Same errors as hl_heap_read(), but for -ENOTSUP.
 */
int hl_heap_read_pages(pid_t pid, struct hl_heap **ret_heap, struct hl_error *err);

/* Reads the heap from a core file, by the kernel or by gcore. -EBADMSG when it is not a core file. */
int hl_heap_read_core(const char *path, const struct hl_heap_settings *settings,
		      struct hl_heap **ret_heap, struct hl_error *err);

/* An empty one, taken now; NULL for want of memory. */
struct hl_heap *hl_heap_new(void);

/* Reads the heap in ${memory}, which may be stopped already, into ${heap}, which is new but for the
 * facts of the process. As hl_heap_read(). */
int hl_heap_walk(struct hl_memory *memory, const struct hl_heap_settings *settings,
		 struct hl_heap *heap, struct hl_error *err);

/* Sorts the pins: those that would return most bytes first. */
void hl_pins_sort(struct hl_heap *heap);

/* Sums over all arenas. */
void hl_heap_total(const struct hl_heap *heap, struct hl_heap_arena *ret_total);

/* Appends a sentence. 0 or -ENOMEM. */
int hl_heap_note(struct hl_heap *heap, const char *format, ...) HL_PRINTF(2, 3);

void hl_heap_free(struct hl_heap *heap); /* NULL is fine */
