/* SPDX-License-Identifier: BSD-2-Clause */
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
#pragma once

#include "base/error.h"
#include "region/attached.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
