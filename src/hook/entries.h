/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the functions of a process by which it allocates: the objects that it runs, the functions that users
 * name, and those of libc.
 */
#pragma once

#include "base/error.h"
#include "base/index.h"
#include "elf/elf.h"
#include "process/maps.h"
#include "region/attached.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- hook rules ---- */

/*
 * What users say of functions that allocate and have names of their own: `--hook`, and presets.
 *
 *	malloc=my_alloc				as malloc(size)
 *	malloc=pool_alloc(size=2)		the size is its second argument
 *	calloc=my_zalloc(count=2,size=3)	usually count=1,size=2
 *	realloc=my_resize(ptr=2,size=3)		usually ptr=1,size=2
 *	realloc=my_resizen(count=2,size=3)	as reallocarray(block, count, size)
 *	posix_memalign=my_memalign		as posix_memalign(where to, alignment, size)
 *	malloc=alloc_56(bytes=56)		each block has 56 bytes
 *	malloc=my_strdup(text=1)		a copy of the text that is its first argument
 *	malloc=my_strndup(text=1,count=2)	of no more bytes than the second one says, and a zero
 *	realloc=lalloc(ptr=2,type=3,size=4)	an interpreter's allocator, which is told the type of a new block
 *	reset=pool_reset			ends all blocks of the other functions of its preset, or of --hook
 *	free=libpool.so!pool_free(ptr=2)	a function of that file, whatever its version
 *	free=program!0x401a30			an address as the file has it
 *
 * A file of presets has such lines, "preset NAME", which begins a preset, and "when SYMBOL": the
 * preset holds of itself where a process defines that symbol; or "beside SYMBOL", where its functions count even
 * if they are of the object that malloc is of; or "pool SYMBOL", which is as "when SYMBOL" for what cuts up memory of others,
 * and may be left out: '--no-pools'. Others are asked for: `--hook @NAME`.
 * Rules before the first preset always hold. '#' begins a comment.
 */

#define HL_HOOK_NAME_MAX       128
#define HL_HOOK_ANNOTATED_WORD "hl_is_recorded_here"
#define HL_HOOK_ARGUMENTS_MAX  6 /* that are passed in registers */

struct hl_hook_rule {
	enum hl_hook call; /* MALLOC, CALLOC, REALLOC or FREE: what the function does */
	/* Of functions of heapline.h what they tell: each object may have a copy, and ${when} is the
	 * word beside it that is not 0 while somebody records. Else HL_RULE_ALLOCATES. */
	enum hl_rule_does tells;
	uint8_t size_at, count_at, pointer_at; /* its arguments, from 1; 0: as usual */
	uint8_t type_at;		       /* 0: there is no such argument */
	bool has_size;			       /* each block has ${size} bytes */
	uint16_t size;
	bool is_text;	  /* ${size_at} is a text's place, ${count_at} that of its bound, or 0 */
	uint64_t address; /* in the file; 0: it has a symbol */
	char symbol[HL_HOOK_NAME_MAX]; /* or the address' digits */
	char module[HL_HOOK_NAME_MAX]; /* the file's name; "": any */
	char preset[HL_HOOK_NAME_MAX]; /* "": none */
	char when[HL_HOOK_NAME_MAX];   /* the symbol that it depends on; "": none */
	bool is_pool;		       /* of a preset that '--no-pools' leaves out */
	bool is_beside;		       /* reached by others than the malloc of its own object */
	bool resets;		       /* ends all blocks of its pool, and does nothing else */
	uint8_t pool;	 /* from 1, of its preset if one of its rules resets; else 0 */
	bool is_asked;	 /* by --hook; that it does not apply is an error */
	bool holds;	 /* whether or not there is ${when} */
	bool is_awaited; /* asked for, and in no library that is loaded yet */
};

/* Zero-initialize for none. */
struct hl_hook_rules {
	struct hl_hook_rule *rules;
	size_t count, capacity;
};

/* Adds the rules of a file of presets, which messages call ${source}. 0, or -EINVAL or -ENOMEM with
 * a sentence and nothing added. */
int hl_hook_rules_parse(const char *text, size_t length, const char *source,
			struct hl_hook_rules *rules, struct hl_error *err);

/* Adds what one `--hook` says: a rule, or "@NAME" for a preset that is there already. 0; -EINVAL,
 * -ENOENT or -ENOMEM with a sentence. */
int hl_hook_rules_ask(const char *hook, struct hl_hook_rules *rules, struct hl_error *err);

/*
 * All rules that hold: heapline's own presets, those of the file ${presets} (NULL: of
 * $HEAPLINE_PRESETS, if it is set), and ${hooks}, NULL-terminated (NULL: none). ${ret_rules} is to
 * be released. 0 or a negative errno with a sentence.
 */
int hl_hook_rules_make(const char *const *hooks, const char *presets,
		       struct hl_hook_rules *ret_rules, struct hl_error *err);

/* Those of a preset hold only if ${rules} ask for it. */
void hl_hook_rules_leave_out(struct hl_hook_rules *rules, const char *preset);

/* Those of presets of pools hold only if ${rules} ask for them. */
void hl_hook_rules_leave_out_pools(struct hl_hook_rules *rules);

void hl_hook_rules_release(struct hl_hook_rules *rules);

/* ---- finds the functions of a process by which it allocates ---- */

struct hl_entry {
	enum hl_hook hook;		       /* or, of one that is extra, what it does */
	uint64_t address;		       /* in the process */
	uint64_t bytes;			       /* of the function; 0 when its symbol does not say */
	char name[64];			       /* of the symbol */
	char module[64];		       /* the file's name, for messages */
	uint8_t size_at, count_at, pointer_at; /* arguments, from 1; 0: as those of ${hook} */
	uint8_t type_at;		       /* 0: it has no such argument */
	bool has_size;			       /* of each block: ${size} */
	uint16_t size;
	bool is_text;		 /* see struct hl_hook_rule */
	uint8_t alignment_at;	 /* of one that throws; 0: it has no such argument */
	enum hl_rule_does tells; /* of heapline.h; else HL_RULE_ALLOCATES */
	uint64_t word;		 /* of such one: 1 while it is patched; 0: none */
	uint64_t word_addend;	 /* see struct hl_object */
	bool is_asked;		 /* --hook names it */
	bool throws;		 /* an exception may leave it */
	bool is_of_malloc;	 /* extra, and its blocks are those of malloc() and free() */
	bool is_beside;		 /* extra, and its blocks lie in no block of malloc() */
	uint8_t pool;		 /* see struct hl_attached_rule */
	bool resets;		 /* that pool, and does nothing else */
};

#define HL_ENTRIES_MAX 113

/* What is known of a process' allocator before it is entered. */
struct hl_entries {
	struct hl_entry entries[HL_ENTRIES_MAX]; /* for each hook up to one; each address once */
	uint32_t count;
	/* No hook of enum hl_hook is for them: another function has it, arguments lie elsewhere, or
	 * an exception may leave them. They are rules of the image. */
	struct hl_entry
		extras[HL_ATTACHED_RULES_MAX + 1]; /* the last one to see that there are too many */
	uint32_t extra_count;
	char allocator[64];				/* "glibc", "musl" ..., for messages */
	uint64_t usable_size;				/* or 0 */
	uint64_t find_object;				/* _dl_find_object, or 0 */
	uint64_t clock_gettime;				/* of the vdso, or 0 */
	uint64_t current_service, service_of;		/* of a guest, see guests/guest.h; or 0 */
	struct hl_answering answering;			/* of the allocator */
	uint64_t program_headers, program_header_count; /* AT_PHDR, AT_PHNUM */
	uint64_t program_entry;				/* AT_ENTRY */
	uint64_t eh_frame, eh_frame_bytes;		/* of the program; 0: none */
	uint64_t debug_place;				/* hl_objects_debug_place() */
	uint64_t stack_end; /* of the main thread: __libc_stack_end, or the end of [stack] */
	/* A function that frees many blocks unseen, which the program calls, or may, where it ${ender_is_own}; NULL: none. */
	const char *ender;
	bool ender_is_own;
	const char *debugging; /* the allocator whose version for debugging it is; NULL: none */
	bool has_glibc_chunks;
	bool is_static;
};

/*
 * Looks into the files that are mapped, whatever their names and namespaces are, and at what the
 * dynamic linker has made of calls, in the process' memory: nothing is stopped or changed. The
 * functions are those that the program's calls lead to: its own, a library's or libc's. Symbols
 * come from .dynsym and .symtab, and for the program from its separate debug file as well.
 *
 * A program may bring its own malloc() and free() and have others call libc's for aligned blocks.
 * Those are found if anything in the process calls them; then ${usable_size} is 0, since neither
 * allocator's function may see the blocks of the other one.
 *
 * ${rules} may name more, which are extra. Where there is no other malloc and free, those of rules
 * with the usual arguments have the hooks. Extra are, too, operators new and delete that the program
 * calls and that do not call malloc() and free().
 *
 * 0; -ENOENT with a sentence when nothing is found that allocates, or no function that `--hook`
 * names; -ENOTSUP when the allocator would end the program; -E2BIG when rules name too many; -EACCES, -ESRCH, -ENOMEM.
 */
int hl_entries_find(pid_t pid, const struct hl_maps *maps, struct hl_hook_rules *rules,
		    struct hl_entries *ret_entries, struct hl_error *err);

/*
 * What ${rules} name in the libraries that ${maps} has, and which have just been loaded: extras
 * alone, of which the last one may have no room. Symbols are those of their files, since no call
 * has been bound. 0, or -ENOMEM, -EACCES, -ESRCH.
 */
int hl_entries_find_more(pid_t pid, const struct hl_maps *maps, const struct hl_hook_rules *rules,
			 struct hl_entries *ret_entries, struct hl_error *err);

/* What the image is told of ${entry}, an extra one, whose trampoline is at ${real}. */
struct hl_attached_rule hl_entry_rule(const struct hl_entry *entry, uint64_t real);

/* ---- objects ---- */

/*
 * The ELF objects that a process runs: its program and its libraries, in the order in which the
 * dynamic linker searches them, and where they have functions of given names.
 */

/* What an object knows of a name. */
struct hl_object_symbol {
	uint64_t address; /* in the process; 0: it does not define the name */
	uint64_t bytes;	  /* 0: unknown */
	uint64_t reached; /* where its own calls of the name lead; 0: unknown */
	bool is_exported; /* others may call it by this name */
	bool is_local;	  /* of one source file, or hidden */
	bool is_indirect; /* ${address} is that of its resolver: STT_GNU_IFUNC */
	bool is_data;
	bool is_requested; /* it calls the name by way of the dynamic linker */
};

static inline bool hl_object_symbol_is_function(const struct hl_object_symbol *symbol)
{
	return symbol->address && !symbol->is_data;
}

struct hl_object {
	const struct hl_map
		*map;	  /* of its code, or of its header where that was moved to huge pages */
	uint64_t bias;	  /* what its addresses in the process have more than in the file */
	uint64_t dynamic; /* its dynamic section; 0: it has none */
	uint64_t headers, header_count; /* program headers; 0: not in memory */
	uint64_t entry;
	uint64_t code_start, code_end;	  /* where its code was mapped */
	bool has_loader;		  /* it asks for a dynamic loader */
	bool is_alone;			  /* hl_elf_is_alone() */
	bool has_symbols;		  /* any that are not exported */
	uint64_t annotated_word;	  /* of heapline.h, in the process; 0: it has none */
	uint64_t word_addend;		  /* of the relocation of that; 0: it has none */
	struct hl_object_symbol *symbols; /* by name */
};

struct hl_objects {
	pid_t pid;
	int memory; /* /proc/PID/mem */
	const struct hl_maps *maps;
	const char *const *names;
	size_t name_count;
	struct hl_index index;	   /* of names */
	struct hl_object *objects; /* the program is the first */
	size_t count, capacity;
};

/*
 * Reads the objects of which ${maps} has code, and what they know of ${names}; both must outlive
 * ${ret_objects}, which is to be released. Symbols come from .dynsym and .symtab, and for the
 * program from its separate debug file if that has more. 0; -ENOENT when there is no program for
 * this machine; -EACCES, -ESRCH, -ENOMEM.
 */
int hl_objects_read(pid_t pid, const struct hl_maps *maps, const char *const *names,
		    size_t name_count, struct hl_objects *ret_objects, struct hl_error *err);

/* The same of libraries alone, those of ${maps}, in the order of these. No -ENOENT. */
int hl_objects_read_more(pid_t pid, const struct hl_maps *maps, const char *const *names,
			 size_t name_count, struct hl_objects *ret_objects, struct hl_error *err);

/* Where the program's dynamic section has the address of the linker's struct r_debug, or will have
 * it; 0: nowhere. */
uint64_t hl_objects_debug_place(const struct hl_objects *objects);

void hl_objects_release(struct hl_objects *objects);

/* Opens the object's file, both to be closed; NULL when it cannot be read any more. */
Elf *hl_objects_open(const struct hl_objects *objects, const struct hl_map *map, int *ret_fd);

/* Reads the process' memory; false when it is not all there. */
bool hl_objects_peek(const struct hl_objects *objects, uint64_t address, void *bytes, size_t size);

/* A function, and the object that has it; NULL if there is none. */
struct hl_definition {
	const struct hl_object *object;
	uint64_t address, bytes;
};

/* The function called ${name}, a number, that begins at ${address}, or that an indirect function of
 * that name has become. */
struct hl_definition hl_objects_definition(const struct hl_objects *objects, size_t name,
					   uint64_t address);

/* ---- functions that rules name ---- */

/* Names of a rule that objects are to be read for: its symbol, and the one that it depends on. */
#define HL_RULE_LOOKUP_NAMES 2u

void hl_rule_lookup_names(const struct hl_hook_rules *rules, const char **ret_names);

/*
 * The functions of all rules that hold in ${ret_found}, by rule; others stay as they are. The names
 * of the rules begin at ${first_name}. ${allocator} is the object of the process' free(), or NULL:
 * presets leave out its functions that it calls itself alone. 0, or -ENOENT when `--hook` names
 * what is not there; where libraries ${may_come}, what it names in one that is not there is awaited. Rules that hold
 * here hold from then on.
 */
int hl_rule_lookup(const struct hl_objects *objects, struct hl_hook_rules *rules, size_t first_name,
		   const struct hl_object *allocator, bool may_come,
		   struct hl_definition *ret_found, struct hl_error *err);

/* Visits all functions in each of the objects that rules name, as those of libraries that were loaded
 * later, and have not been called yet. Zero-initialize but for what is said. */
struct hl_rule_visit {
	size_t first_name;   /* where the names of the rules begin; given */
	bool tells_alone;    /* functions of heapline.h alone; given */
	size_t object, rule; /* to be looked at next */
};

bool hl_rule_lookup_next(const struct hl_objects *objects, const struct hl_hook_rules *rules,
			 struct hl_rule_visit *visit, size_t *ret_rule,
			 struct hl_definition *ret_found);

/* Whether its arguments are where those of the usual function are. */
bool hl_rule_lookup_is_usual(const struct hl_hook_rule *rule);

/* Whether what was found of the rules that are asked for, or of the others, has a malloc and a free
 * that can stand for the usual ones. */
bool hl_rule_lookup_serves(const struct hl_hook_rules *rules, const struct hl_definition *found,
			   bool is_asked);
