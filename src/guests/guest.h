/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The door between the recorder and its guests: the runtimes whose frames, types and objects it knows. Whatever is
 * known of one lies in its folder below src/guests, and the recorder names none.
 *
 * A guest fills the members that it needs; one that is NULL means "does not do that". A guest that needs to see each
 * event sets a member of struct hl_guest_wants once there is an interpreter: without one, an event costs a program no
 * more than to see that it is NULL.
 */
#pragma once

#include "base/compiler.h"
#include "guests/provider.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dl_find_object;
struct hl_attached_start;
struct hl_exports;
struct hl_recorder;
struct hl_region_header;
struct hl_thread;

/* Each has a place of its own in the recorder. */
enum hl_guest_id {
	HL_GUEST_JAVA,
	HL_GUEST_LUA,
	HL_GUEST_PHP,
	HL_GUEST_PYTHON,
	HL_GUEST_RUBY,
	HL_GUEST_SKYNET,
	HL_GUESTS,
};

/* Pointers that a guest keeps in hl_recorder.guest_places[ID] for the life of one recorder; NULL at its start. */
#define HL_GUEST_PLACES 4u

struct hl_guest_module {
	const struct hl_exports *exports;
	const struct dl_find_object *object;
	uint64_t start, end;
	bool is_program;
	bool no_scripts; /* frames of scripts are not wanted */
};

struct hl_guest {
	/* The program is linked with a module that exports ${exports}, and has not run yet. */
	void (*linked)(struct hl_region_header *header, const struct hl_exports *exports);
	/* A module has been entered. True: open() is called at the next event. Notes in ${header} why an interpreter cannot
	 * be read. Under a lock. */
	bool (*note)(struct hl_region_header *header, const struct hl_guest_module *module);
	/* Opens what has been noted. On a thread that is recording, without locks, one thread at a time. */
	void (*open)(struct hl_recorder *recorder);
	/* A library has been unloaded. */
	void (*unloaded)(void);
	/* Before the recorder runs, in a process that it is brought into: ${start} has what heapline found in the program. */
	void (*start)(const struct hl_attached_start *start);
	/* In a forked child: what lay in its parent's private memory is gone. */
	void (*enter_child)(void);
	/* The service of ${context} begins: ${module}, whose first word is its name, and its arguments, or NULL. */
	void (*service_begins)(const void *module, const void *context, const char *arguments);
	/* The type of a new block, by the number that a rule's function is given for it; NULL: none. */
	const char *(*type)(uint64_t number);
	/* Stamps ${block}, which the thread has just allocated, with hl_thread.stamp, whose value is not 0, and makes that 0. Only
	 * after hl_guests_stamp_by(). */
	void (*stamp)(struct hl_thread *thread, const void *block);
	/* A function of the program, called from ${pc}, empties a pool (reset=NAME of rules). */
	void (*pool_resets)(uint64_t pc);
	/* As hl_find_generated_fn of unwind/rule_cache.h: frames of code that the runtime makes while it runs. */
	uint64_t (*find_generated)(struct hl_unwind *unwind, struct hl_walk *walk, uint64_t sp);
};

/* By enum hl_guest_id; NULL: it is not built in. */
extern HL_HIDDEN const struct hl_guest *const hl_guests[HL_GUESTS];

/* Each is in the file modules.c, or services.c, of its folder. */
extern HL_HIDDEN const struct hl_guest hl_guest_java, hl_guest_lua, hl_guest_php, hl_guest_python,
	hl_guest_ruby, hl_guest_skynet;

/* Each is NULL as long as no guest wants it. */
struct hl_guest_wants {
	/* Looks whether what has been noted can be wrapped by now, until it sets this to NULL. */
	void (*_Atomic look)(void);
	/*
	 * The type of what realloc() allocates, called from ${pc} with ${third} in the register of a third argument;
	 * NULL: no interpreter says it. ${is_new}: a new block, not one that grows, which is part of an object.
	 */
	const char *(*_Atomic told_type)(uint64_t pc, bool is_new, uint64_t third);
	/* The members of struct hl_guest: of the guest that was the first to call hl_guests_stamp_by(); of the one guest that has it, set before the
	 * recorder runs. */
	void (*_Atomic stamp)(struct hl_thread *thread, const void *block);
	const char *(*type)(uint64_t number);
};

extern HL_HIDDEN struct hl_guest_wants hl_guest_wants;

/* Before ${recorder} runs. */
void hl_guests_set_up(struct hl_recorder *recorder);

/* What ${guest} stamps blocks by, of which tools are told: ${made}, on a page of its own, or what it gave here before. NULL: another
 * guest does in this process, and no stamp may have a value of this one's. */
void *hl_guests_stamp_by(struct hl_recorder *recorder, enum hl_guest_id guest, void *made);

/* Has all guests look at a module. Under a lock. True: hl_guests_open() is to be called at the next event. */
bool hl_guests_note(struct hl_region_header *header, const struct hl_guest_module *module);

/* Has them open what they have noted, and takes HL_MODE_PROBE off. On a thread that is recording, without locks. */
void hl_guests_open(struct hl_recorder *recorder);

/* Calls the member of all guests that have it. */
#define HL_GUESTS_CALL(MEMBER, ...)                                       \
	do {                                                              \
		for (uint32_t guest = 0; guest < HL_GUESTS; guest++)      \
			if (hl_guests[guest] && hl_guests[guest]->MEMBER) \
				hl_guests[guest]->MEMBER(__VA_ARGS__);    \
	} while (0)
