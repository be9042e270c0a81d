/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of a guest without a process at hand: names of its files and functions, and words for sentences about
 * it. Constants, on which every part of the tool may build; see guest.h and outside.h for what guests do.
 *
 * A member that is NULL or false means "has none". Lists of texts end with NULL, lists of structs with one whose first
 * member is NULL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct Elf; /* of libelf */
struct hl_code_runtime;
struct hl_importer;

/* How a command line says what an interpreter runs. */
struct hl_guest_command {
	const char *name;    /* of the program; digits of a version may follow */
	const char *values;  /* options that take the next word: "-r -C" */
	const char *program; /* the option whose next word is what it runs */
	const char *text;    /* the option that brings the program itself, which has no name */
};

/* A text in the constants of a program that the interpreter is linked into, which stripping leaves. */
struct hl_guest_mark {
	const char *text; /* a version follows */
	const char *name; /* what to call it before that version */
};

/* A function that starts the interpreter. */
struct hl_guest_start {
	const char *function; /* the beginning of its name */
	const char *file;     /* a part of the names of all files of the interpreter */
	const char *what;     /* what blocks of this function are called */
};

/* Reads ${size} bytes at ${address} of a process. False: that memory cannot be read. */
typedef bool hl_guest_peek_fn(const void *process, uint64_t address, void *bytes, size_t size);

/* What the runtime keeps for itself. */
struct hl_guest_kept {
	const char *language; /* of the files that it is in, see recording/recording.h */
	const char *
		runs; /* the beginning of the name of the function that runs code of a program; NULL: it lies elsewhere */
	const char *loads; /* of a function that loads code, which the runtime keeps */
	const char *what;
};

/* An allocator of the runtime that maps its memory, and that only a recorder which enters the process can see. */
struct hl_guest_allocator {
	const char *name;     /* of what has it */
	const char *provider; /* of frames in programs that have it */
	const char *preset;   /* whose rules are of it */
	const char *symbol;   /* what those rules call it; most files have no such symbol */
	const char *exported; /* a function that each file with it has */
	const char *library;  /* the beginning of the name of the library that has it */
	const char *entered;  /* a clause: why the recorder must enter */
	/* The address of the allocator in ${process}, by the file ${elf}, which is mapped with ${bias}; 0: not found. */
	uint64_t (*find)(struct Elf *elf, uint64_t bias, hl_guest_peek_fn *peek,
			 const void *process);
};

/* A program that runs services, each a part that has scripts of its own. */
struct hl_guest_host {
	/* What runs each of them, and so says nothing in their stacks: functions; functions of the file ${library}; and ends
	 * of the paths of scripts. */
	const char *const *functions, *library, *const *callbacks, *const *scripts;
	/* Functions of the program: the number of the calling thread's service; that of a context, which is an argument;
	 * and what begins a service, see struct hl_guest.service_begins. */
	const char *current_service, *service_of, *service_begins;
	const char *collect; /* how somebody has all services collect: "by typing ..." */
};

struct hl_guest_traits {
	const char *language;		   /* what to call it in a sentence */
	const char *const *providers;	   /* of its frames in recordings */
	const char *const *plumbing;	   /* functions, as patterns of symbols/symbols.h */
	const char *const *plumbing_files; /* beginnings of the names of files that are plumbing */
	const struct hl_code_runtime *code_runtimes; /* one without a file ends them */
	const struct hl_guest_kept *kept;
	/* Whether code in no file that has this name is a function of a program. */
	bool (*names_code)(const char *name);
	const char *trace; /* the beginning of the names of its traces, before "::FILE:LINE" */
	const struct hl_guest_command *commands;
	const struct hl_guest_start *starts;
	const char *main_function; /* the beginning of its name: calls of it run scripts */
	const char *prelude;	   /* the function of its own script that it runs as it starts */
	const struct hl_guest_host *host;

	/* An interpreter that a program is linked with, and that cannot be found in it: it has a mark, and does not export
	 * the function. */
	const struct hl_guest_mark *marks;
	const char *exported;

	/* Objects that it cuts from memory of its own. */
	const char *program, *library; /* beginnings of the names of files that do so */
	const char *objects;	       /* "small objects of ..." */
	const char *lists_objects;     /* the option of 'heapline heap' that lists them by type */
	const struct hl_guest_allocator *allocator;
	const char *beside_malloc; /* an allocator that programs export beside malloc */
	const char *presets;	   /* as src/allocators/presets.txt */

	/* Why stacks of scripts are not whole, and what helps. */
	const char *hidden_memory_remedy; /* its own memory is not seen */
	const char *hidden_loop_remedy;	  /* its main function is not found */
	const char *generated_remedy;	  /* it made code */
	/* Why no block has a type: a sentence. The second one is of recordings without scripts. */
	const char *no_types_reason, *no_scripts_reason;
	const char *unmatched_reason; /* ", as ...": frames of scripts and native code do not fit */

	const char *
		ages; /* what its blocks are known to have outlived: "collections of ..."; NULL: nothing is */
	const char *
		wrapped; /* the beginning of the name of a program that needs what its wrapper sets */
	struct {
		const char *mark, *what; /* how it begins; what it is, as of hl_import_foreign() */
	} foreign;			 /* a file of the runtime that is not read */
};

/* Those that are built in; NULL ends them. */
extern const struct hl_guest_traits *const hl_guest_traits[];

/* Each is in the folder of its guest. */
extern const struct hl_guest_traits hl_guest_traits_beam, hl_guest_traits_java, hl_guest_traits_lua,
	hl_guest_traits_php, hl_guest_traits_python, hl_guest_traits_ruby, hl_guest_traits_skynet;

/* Their readers of files, see import/importer.h; NULL ends them. In the library of src/profile. */
extern const struct hl_importer *const hl_guest_importers[];

/* The one with frames of ${provider}, or NULL. */
const struct hl_guest_traits *hl_guest_of_provider(const char *provider);

#define HL_GUEST_AGES_MAX 64

/* What blocks may be known to have outlived: "collections of ..., or requests of ...". */
const char *hl_guest_ages(char text[HL_GUEST_AGES_MAX]);

/* The one that hosts services, or NULL. */
const struct hl_guest_traits *hl_guest_host(void);
