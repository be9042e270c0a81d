/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What guests do outside of their process: what they know of it, and what they add to the command line. A member
 * that is NULL means "does not do that". See guest.h for the inside.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* ---- outside ---- */

/*
 * What guests know of a process from outside, beside guest.h, which is for the inside. A member that is NULL means
 * "does not do that".
 */

struct hl_allocations;
struct hl_block_owners;
struct hl_carriers;
struct hl_emit;
struct hl_heap;
struct hl_heap_settings;
struct hl_inuse_labels;
struct hl_memory;
struct hl_option;
struct hl_pages;
struct hl_process_facts;
struct hl_strings;

/* What labels of live blocks say. */
enum hl_guest_label {
	HL_GUEST_TYPES,
	HL_GUEST_AGES, /* how many collections blocks have outlived */
	HL_GUEST_LABELS,
};

/* Of which verbs. */
enum hl_guest_options {
	HL_GUEST_OPTIONS_NONE, /* always NULL */
	HL_GUEST_OPTIONS_HEAP, /* 'heapline heap' */
	HL_GUEST_OPTIONS_FORM, /* that write carriers or allocations */
	HL_GUEST_OPTIONS,
};

/* What the options of a guest ask for. */
struct hl_guest_request {
	bool form;  /* carriers and allocations in the guest's */
	bool pools; /* what it cuts into blocks of its own */
	bool types; /* and its objects by type */
};

#define HL_GUEST_TYPE_WORDS 6u /* of a block, that tell its type */

#define HL_GUEST_SERVICE_NAME_MAX 48

/* A part of a program, which runs scripts of its own. */
struct hl_guest_service {
	uint32_t handle;
	uint64_t messages, bytes;	      /* that wait for it, and of their contents */
	char name[HL_GUEST_SERVICE_NAME_MAX]; /* "": not known */
};

/* Reads labels, or what they are completed from, of the blocks that process ${pid} has in use, while it goes on, from pages that are in memory. ${owners}: as
 * hl_inuse_labels_open() gives them. 0; or a negative errno with a sentence, -ENOENT when the process has no such runtime. */
typedef int hl_guest_read_labels_fn(pid_t pid, struct hl_block_owners *owners,
				    struct hl_inuse_labels **ret_labels, struct hl_error *err);

/* An answer to "leak, retention or fragmentation?" of pools. */
struct hl_guest_division {
	const char *waste; /* "retention", where most of them is free; NULL: most of them is used */
	char parts[256];   /* "... uses ... of ..., ... are free in ..." */
	const char *remedy; /* what gives the free part back */
};

#define HL_GUEST_ADVICE_MAX 512

/* How a runtime itself reports the memory that it maps. */
struct hl_guest_advice {
	char command[HL_GUEST_ADVICE_MAX]; /* of heapline; "": no command reads this process */
	const char *
		what; /* a clause that follows the command: what it shows; without one: why, and what helps */
};

/* Memory that a guest maps, and cuts into blocks of its own. */
struct hl_guest_pools {
	const char *name;      /* in the balance of RSS: "... objects"; NULL: it has none */
	const char *listed_by; /* the end of a sentence: "--OPTION' lists ..." of heapline heap */
	/* Of how many bytes the pools are that most of what is in memory of [${start}, ${end}) is, of which ${pages} are; 0: it
	 * is not. */
	uint64_t (*pool_bytes)(struct hl_memory *memory, uint64_t start, uint64_t end,
			       const struct hl_pages *pages);
	bool recorded; /* 'attach' records what is cut from them */
	/* Says in ${ret_text} what the mapping [${start}, ${end}) has; NULL: a mapping has no row of its own. */
	void (*describe)(struct hl_memory *memory, uint64_t start, uint64_t end, char *ret_text,
			 size_t capacity);
	/* How the pools of the process divide, which are the largest part of its memory; NULL: it is not told. 0 or a negative
	 * errno. */
	int (*divide)(struct hl_memory *memory, struct hl_guest_division *ret_division);
};

struct hl_guest_outside {
	struct {
		const char *what; /* for a sentence: "the types of ..." */
		hl_guest_read_labels_fn *read;
	} labels[HL_GUEST_LABELS];
	struct hl_guest_pools pools;
	struct hl_guest_pools other_pools; /* for other blocks; NULL as the name: there are none */
	/* Of memory that no pools name. False: the process of ${facts} has no such runtime, and ${ret_advice} is unchanged. */
	bool (*advise)(const struct hl_process_facts *facts, struct hl_guest_advice *ret_advice);
	/* Types of objects, by the words that their blocks begin with. */
	struct {
		/* *${ret_name}: of the type of the block that begins with ${count} ${words}, in ${names}; unchanged: it is not
		 * known. *${kept} is the guest's, NULL at first; give it the same ${memory} and ${names}, which must outlive it.
		 * 0 or -ENOMEM. */
		int (*find)(void **kept, struct hl_memory *memory, struct hl_strings *names,
			    const uint64_t *words, size_t count, uint32_t *ret_name);
		void (*free)(void *kept); /* NULL is fine */
	} types;
	/* What reports of a heap show of it, if its options for 'heapline heap' ask for something. */
	struct {
		/* *${ret_kept} is NULL if ${request} asks for nothing. 0 or -ENOMEM. */
		int (*open)(struct hl_memory *memory, const struct hl_guest_request *request,
			    void **ret_kept);
		/* A live block of malloc(). 0 or -ENOMEM. */
		int (*add_block)(void *kept, uint64_t address, uint64_t usable_bytes);
		/* Reads all else in ${memory}, which is stopped if ${settings} say so. May add notes to ${heap}, which has been
		 * read. 0 or a negative errno with a sentence. */
		int (*read)(void *kept, struct hl_memory *memory,
			    const struct hl_heap_settings *settings, struct hl_heap *heap,
			    struct hl_error *err);
		void (*emit)(struct hl_emit *emit, const void *kept, uint64_t row_limit);
		void (*free)(void *kept);
	} heap;
	/* Carriers and allocations as tools of the runtime write them; NULL: none. */
	struct {
		void (*put_carriers)(FILE *out, const struct hl_carriers *carriers);
		/* 0 or -ENOMEM */
		int (*put_allocations)(FILE *out, const struct hl_allocations *allocations);
	} form;
	/* Options that it adds to verbs, which are members of struct hl_guest_request; NULL: none. */
	const struct hl_option *options[HL_GUEST_OPTIONS];
	/* ${ret_services}, one for each service, to be freed. 0; -ENOENT and -EPROTO when it has none; -ENOMEM; or what
	 * reading failed with. */
	int (*read_services)(pid_t pid, struct hl_guest_service **ret_services, size_t *ret_count);
};

/* All of them; NULL ends the table. */
#define HL_GUESTS_OUTSIDE_MAX 6u
extern const struct hl_guest_outside *const hl_guests_outside[HL_GUESTS_OUTSIDE_MAX + 1];

/* The one in whose form carriers or allocations are to be written, as one of ${requests}, in the order of the table, asks;
 * NULL: in no guest's. */
const struct hl_guest_outside *hl_guests_form(const struct hl_guest_request *requests);

/* ---- tool ---- */

/*
 * What guests add to the command line: verbs, and what 'heapline doctor' says. A member that is NULL means "has none". See
 * outside.h for what they know of a process.
 */

struct hl_doctor;
struct hl_guest_traits;
struct hl_verb;

struct hl_guest_tool {
	const struct hl_guest_traits *traits;
	const struct hl_verb *verb;
	/* Adds its ways to look at the process of ${facts}, if that is of the runtime. */
	void (*judge)(struct hl_doctor *doctor, const struct hl_process_facts *facts);
	/* Whether the file ${path} is of the interpreter, and the loop that runs scripts cannot be found in it, so that stacks
	 * of theirs would be native. */
	bool (*hides_loop)(const char *path);
};

/* Those that are built in, in the order of their verbs; NULL ends them. */
extern const struct hl_guest_tool *const hl_guest_tools[];

/* Each is in the folder of its guest. */
extern const struct hl_guest_tool hl_guest_tool_beam, hl_guest_tool_python, hl_guest_tool_skynet;
