/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command line: verbs and their options as constant tables, from which parsing, help, usage
 * errors and completion come.
 *
 * To add a verb: define `const struct hl_verb hl_verb_NAME` in cmd_NAME.c, declare it below, list
 * it in verbs.c and the file in meson.build. What its options were set to is a struct, the verb's
 * request: each option names a member of it, HL_REQUEST() its defaults, and run() gets it filled in.
 */
#pragma once

#include "base/error.h"
#include "guests/outside.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum hl_exit {
	HL_EXIT_DONE = 0,
	HL_EXIT_FAILED = 1,
	HL_EXIT_USAGE = 2,
	HL_EXIT_LIMIT = 3, /* a limit that the user set was crossed */
};

enum hl_option_kind {
	HL_OPTION_FLAG,	   /* no argument; member: bool, set to true */
	HL_OPTION_TEXT,	   /* member: const char * */
	HL_OPTION_OUTPUT,  /* member: const char *; "-", which is standard output, makes it NULL */
	HL_OPTION_COUNT,   /* member: uint64_t, a decimal number within accepts */
	HL_OPTION_BYTES,   /* member: uint64_t, a number with an optional suffix K, M, G, T (powers
			      of 1024), within accepts */
	HL_OPTION_SECONDS, /* member: double, see hl_option_parse_seconds() */
	HL_OPTION_PERCENT, /* member: double, 0 to 100, with or without a percent sign */
	HL_OPTION_CHOICE,  /* member: int, index into accepts */
	HL_OPTION_TEXTS,   /* may be given more than once; member: struct hl_option_texts */
	HL_OPTION_RANGE,   /* two numbers after it, FROM and TO; member: struct hl_option_range */
	HL_OPTION_PID,	   /* member: uint64_t, the number of a process */
	HL_OPTION_COMM,	   /* the name of one running process; member: uint64_t, its number */
	HL_OPTION_RENAMED, /* not there any more; help is the name that it has now */
};

#define HL_OPTION_TEXTS_MAX 8

struct hl_option_texts {
	const char *texts[HL_OPTION_TEXTS_MAX];
	size_t count; /* how often it was given: more than there is room for, perhaps */
};

struct hl_option_range {
	bool given;
	uint64_t first, last; /* not in order, perhaps */
};

/* Numbers that an option takes. */
struct hl_option_bounds {
	uint64_t least, most;
};

#define HL_BOUNDS(least, most) (&(const struct hl_option_bounds){(least), (most)})

struct hl_option {
	const char *name;     /* without dashes; NULL ends a table */
	char short_name;      /* 0: none */
	const char *argument; /* name of the argument in help; NULL: a flag */
	const char *help;     /* lowercase phrase, no full stop */
	enum hl_option_kind kind;
	size_t offset; /* of the member in the verb's request; of a guest's option in its struct hl_guest_request */
	/* HL_OPTION_CHOICE: NULL-terminated words; HL_OPTION_COUNT and _BYTES: HL_BOUNDS(), or NULL
	 * for any number. */
	const void *accepts;
};

/* For an option that sets ${member} of the verb's own struct request. */
#define HL_AT(member) offsetof(struct request, member)

/* The option beside --pid, for the same member. */
#define HL_OPTION_COMM_OF(offset)                                                              \
	{                                                                                      \
		"comm", 0, "NAME", "the process whose program is called NAME", HL_OPTION_COMM, \
			offset, NULL                                                           \
	}

/* The option that leaves out what presets name. */
#define HL_OPTION_NO_POOLS(offset)                                                       \
	{                                                                                \
		"no-pools", 0, NULL, "leave out the pools of PHP, PostgreSQL and nginx", \
			HL_OPTION_FLAG, offset, NULL                                     \
	}

#define HL_SHARED_TABLES 8

/* What a verb is for; help lists verbs under a heading for each group. */
enum hl_verb_group {
	HL_GROUP_ASK,
	HL_GROUP_RECORD,
	HL_GROUP_LOOK,
	HL_GROUP_LIVE,
	HL_GROUP_ALLOCATORS,
	HL_GROUP_FILES,
	HL_GROUP_ABOUT,
	HL_GROUP_COUNT,
};

/* An option that other tools have, and the sentence that says what this verb has in its place. */
struct hl_hint {
	const char *option, *sentence;
};

/* What programs must know of a verb that call it for somebody: see mcp_tools.h. */
enum hl_verb_effect {
	HL_VERB_READS,	/* it looks, and writes nothing but what its options name */
	HL_VERB_ENTERS, /* it starts a program, or enters or changes a process */
	HL_VERB_STAYS,	/* for people at a terminal, or a service: it has no answer */
};

/* For a verb whose request is set to the constant ${defaults} before its options are parsed. */
#define HL_REQUEST(defaults) .request = &(defaults), .request_bytes = sizeof(defaults)

struct hl_verb {
	const char *name;
	enum hl_verb_group group;
	const char *arguments; /* operands as help shows them: "NAME.hl", "[--] COMMAND..." */
	const char *summary;   /* one line, lowercase, no full stop */
	const struct hl_option *options;			  /* NULL: none */
	const struct hl_option *shared_options[HL_SHARED_TABLES]; /* used by several verbs */
	enum hl_guest_options guest_options; /* which of guests' options are its, too */
	size_t guests_at; /* of such options: offset of the struct hl_guest_request of all guests in the request */
	bool stops_at_operand; /* what follows the first operand is not parsed (COMMAND...) */

	/* HL_REQUEST(): the request as it is without options. NULL: it has no options. */
	const void *request;
	size_t request_bytes;

	/*
	 * Runs the verb; NULL: hl_view_run() does, and ${request} is a struct hl_view_request. ${request}: filled in, and
	 * the verb's to change. ${argc}, ${argv}: the operands that are left after the options; argv[argc] is NULL. Returns
	 * the exit status.
	 */
	int (*run)(void *request, int argc, char **argv);

	const char *const *words; /* NULL-terminated: what the first operand can be, where that is
				     one of a few words; NULL: anything */
	const struct hl_hint *hints; /* the last one is zero; NULL: none */
	enum hl_verb_effect effect;
	/* Names of options, NULL-terminated; NULL: none. With the first ones it enters a process; the second ones, beside 'output', name files
	 * that it writes. */
	const char *const *entering, *const *written;
};

/* Whether ${table} is one of the shared options of ${verb}. */
bool hl_verb_shares(const struct hl_verb *verb, const struct hl_option *table);

#define HL_VERBS_MAX 64 /* more than there are */

/*
 * heapline is a program that has the verbs 'record' and 'version' and what they need alone, as one is started for each program that is recorded, and a
 * library with all verbs, which it loads for the others: loading what they are linked with takes longer than most recorded programs of a shell
 * script run. main.c and verbs.c are the tables of the two.
 */

/* The verb of that number, from 0, those of guests last; NULL: there are no more. Help shows the verbs of a group in this order. */
const struct hl_verb *hl_verb_at(size_t number);

/* Runs ${verb}, with ${request} filled in and the operands that are left. Returns the exit status. */
int hl_verb_run(const struct hl_verb *verb, void *request, int argc, char **argv);

/* What heapline does with the words of its command line. Returns the exit status. */
int hl_cli_run(int argc, char **argv);

/* The same in the library, where HL_VERBS_MAIN names it; and which heapline that is. */
#define HL_VERBS_MAIN	 "hl_verbs_main"
#define HL_VERBS_VERSION "hl_verbs_version"
typedef int hl_verbs_main_fn(int argc, char **argv);
__attribute__((visibility("default"))) hl_verbs_main_fn hl_verbs_main;
extern __attribute__((visibility("default"))) const char hl_verbs_version[];

extern const struct hl_verb hl_verb_why;
extern const struct hl_verb hl_verb_record;
extern const struct hl_verb hl_verb_attach;
extern const struct hl_verb hl_verb_ctl;
extern const struct hl_verb hl_verb_stacks;
extern const struct hl_verb hl_verb_pgfault;
extern const struct hl_verb hl_verb_page_events;
extern const struct hl_verb hl_verb_top;
extern const struct hl_verb hl_verb_lines;
extern const struct hl_verb hl_verb_tree;
extern const struct hl_verb hl_verb_flame;
extern const struct hl_verb hl_verb_graph;
extern const struct hl_verb hl_verb_diff;
extern const struct hl_verb hl_verb_annotate;
extern const struct hl_verb hl_verb_check;
extern const struct hl_verb hl_verb_sizes;
extern const struct hl_verb hl_verb_timeline;
extern const struct hl_verb hl_verb_peaks;
extern const struct hl_verb hl_verb_growth;
extern const struct hl_verb hl_verb_events;
extern const struct hl_verb hl_verb_report;
extern const struct hl_verb hl_verb_folded;
extern const struct hl_verb hl_verb_export;
extern const struct hl_verb hl_verb_import;
extern const struct hl_verb hl_verb_pack;
extern const struct hl_verb hl_verb_info;
extern const struct hl_verb hl_verb_live;
extern const struct hl_verb hl_verb_serve;
extern const struct hl_verb hl_verb_push;
extern const struct hl_verb hl_verb_fleet;
extern const struct hl_verb hl_verb_watch;
extern const struct hl_verb hl_verb_mcp;
extern const struct hl_verb hl_verb_heap;
extern const struct hl_verb hl_verb_carriers;
extern const struct hl_verb hl_verb_allocations;
extern const struct hl_verb hl_verb_pins;
extern const struct hl_verb hl_verb_pod;
extern const struct hl_verb hl_verb_leaks;
extern const struct hl_verb hl_verb_holders;
extern const struct hl_verb hl_verb_doctor;
extern const struct hl_verb hl_verb_version;
extern const struct hl_verb hl_verb_help;

/* The verb of that name, or NULL. */
const struct hl_verb *hl_verb_find(const char *name);

/* ---- options ---- */

/*
 * Parses the options in ${argv} (argv[0] is the verb's name) into ${request}, a copy of
 * verb->request. -1 and the index of the first operand in ${ret_first_operand}; or the exit status
 * to leave with: after -h, which writes the help, or after a usage error, which was reported.
 */
int hl_options_parse(const struct hl_verb *verb, int argc, char **argv, void *request,
		     int *ret_first_operand);

#define HL_OPTIONS_MAX 64 /* more than any verb has; hl_options_of() asserts it */

/* All options of ${verb}, help last; returns how many. */
size_t hl_options_of(const struct hl_verb *verb,
		     const struct hl_option *ret_options[HL_OPTIONS_MAX]);

/* Reads a decimal number, with a suffix K, M, G or T (powers of 1024) if ${suffix_allowed}. 0 or
 * -EINVAL. */
int hl_option_parse_number(const char *text, bool suffix_allowed, uint64_t *ret_number);

/* Reads a number of seconds, fractions allowed, more than 0 and at most thirty years. 0 or
 * -EINVAL. */
int hl_option_parse_seconds(const char *text, double *ret_seconds);

/* ---- sentences ---- */

/* Writes one sentence `heapline: ...` to stderr. Returns HL_EXIT_FAILED. */
int hl_cli_error(const char *format, ...) HL_PRINTF(1, 2);

/*
 * Says that ${thing} ("no verb 'tpo'") is a usage error; and which of ${words} may be meant, or
 * else points at the help of ${verb}. Returns HL_EXIT_USAGE.
 */
int hl_cli_unknown_word(const struct hl_verb *verb, const char *thing, const char *word,
			const char *const *words, size_t count);

/* Says that heapline has no verb ${name}. Returns HL_EXIT_USAGE. */
int hl_cli_unknown_verb(const char *name);

/* Like hl_cli_error(), and points at the help of ${verb} (NULL: of heapline). Returns
 * HL_EXIT_USAGE. */
int hl_cli_usage_error(const struct hl_verb *verb, const char *format, ...) HL_PRINTF(2, 3);

/* An argument ${word} that a verb has no use for which looks at a process: it may be meant as one. Returns HL_EXIT_USAGE. */
int hl_cli_unexpected_process(const char *word);

/* Writes one sentence `heapline: ...` to stderr that is not a failure. */
void hl_cli_note(const char *format, ...) HL_PRINTF(1, 2);

/*
 * The one of ${words} that ${word} is most likely a misspelling or the beginning of; NULL when none
 * is near, or several are equally near. Letters swapped, missing, added and changed count one each.
 */
const char *hl_cli_nearest_word(const char *word, const char *const *words, size_t count);

/*
 * Sets the sentence that says why no collector of ${process} is found, and what to do; ${silent}:
 * those that do not answer (struct hl_control_peers); ${wanted}: what cannot be done with the
 * process, a verb. Returns a negative errno.
 */
int hl_ctl_explain(pid_t process, const char *silent, const char *wanted, struct hl_error *err);

/* Whether 'heapline attach' can join ${process}, as far as can be seen without touching it. 0, or a
 * negative errno with a sentence. ${ret_pools}: NULL, or hl_attach_pools(). */
int hl_attach_check(pid_t process, char *ret_pools, size_t capacity, struct hl_error *err);

/* ---- passwords of stores, which must not stand in a command line that 'ps' shows to every user; cmd_fleet.c ---- */

#define HL_STORE_PASSWORD_OPTION(offset)                                                      \
	{                                                                                     \
		"password-file", 0, "FILE",                                                   \
			"the password of the URL's user is the first line of FILE (default: " \
			"$HEAPLINE_STORE_PASSWORD)",                                          \
			HL_OPTION_TEXT, offset, NULL                                          \
	}

/*
 * Reads the password from the first line of ${file} (NULL: none is) into the environment, where URLs that name a user alone find it (fleet/web.h).
 * Overwrites one in ${url}, a word of the command line, which is to be copied before. 0 or a negative errno with a sentence.
 */
int hl_store_password_read(const char *file, char *url, struct hl_error *err);

/* ---- help and completion ---- */

/* Help: what heapline is and its verbs; one verb with its usage, summary and options. */
void hl_help_program(FILE *out);
void hl_help_verb(const struct hl_verb *verb, FILE *out);

/*
 * `heapline --complete WORD...`: writes what the last of ${words}, which follow the program's name
 * and are ${count}, can be: a line for each, then a tab and what it means where that is known. The
 * shell adds what it knows better: ":recordings" stands for recordings, ":files" for any file,
 * ":commands" for programs. Returns the exit status.
 */
int hl_complete(int count, char **words);
