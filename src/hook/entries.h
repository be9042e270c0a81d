/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the functions of a process by which it allocates. */
#pragma once

#include "base/error.h"
#include "hook/hook_rules.h"
#include "process/maps.h"
#include "region/attached.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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

#define HL_ENTRIES_MAX 112

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
	uint64_t program_headers, program_header_count; /* AT_PHDR, AT_PHNUM */
	uint64_t program_entry;				/* AT_ENTRY */
	uint64_t eh_frame, eh_frame_bytes;		/* of the program; 0: none */
	uint64_t debug_place;				/* hl_objects_debug_place() */
	uint64_t stack_end; /* of the main thread: __libc_stack_end, or the end of [stack] */
	/* A function that frees many blocks unseen, which the program calls, or may, where it ${ender_is_own}; NULL: none. */
	const char *ender;
	bool ender_is_own;
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
 * names; -E2BIG when rules name too many; -EACCES, -ESRCH, -ENOMEM.
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
