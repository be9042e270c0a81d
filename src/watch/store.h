/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The directory where 'heapline watch' keeps what it has seen: an entry is a folder, whose name begins with the time,
 * then its kind and the last part of the group's name: "20260131T123456.789Z-kill-shop".
 *
 * An entry is written as NAME.partial and renamed when it is whole: who is killed loses that one alone. The newest of each kind are kept, and
 * the oldest go where the directory is larger than it may be, or its disk is full.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hl_watch_kind {
	HL_WATCH_SNAPSHOT,
	HL_WATCH_KILL,
	HL_WATCH_RECORDING, /* of a process that was joined; is never partial */
	HL_WATCH_KINDS,
};

#define HL_WATCH_NAME_MAX   96
#define HL_WATCH_PARTIAL    ".partial"
#define HL_WATCH_IN_USE_MAX 8

struct hl_watch_store {
	const char *path;
	int fd, lock;	    /* the second has a lock; -1 where nothing is written */
	uint64_t keep;	    /* entries of each kind */
	uint64_t bytes_max; /* of all together */
	char in_use[HL_WATCH_IN_USE_MAX][HL_WATCH_NAME_MAX]; /* entries that stay; "" is free */
};

struct hl_watch_entry {
	char name[HL_WATCH_NAME_MAX];
	enum hl_watch_kind kind;
	bool is_partial;
};

/* "snapshot", "kill", "recording". */
const char *hl_watch_kind_name(enum hl_watch_kind kind);

/* Writes the name of an entry of ${realtime_ns}. What is not a letter, digit, '.', '_' or '-' in the last part of ${group} becomes '_'. */
void hl_watch_name_make(uint64_t realtime_ns, enum hl_watch_kind kind, const char *group,
			char ret_name[HL_WATCH_NAME_MAX]);

/* Whether ${name} is one that hl_watch_name_make() writes, or such a one and HL_WATCH_PARTIAL. */
bool hl_watch_name_parse(const char *name, struct hl_watch_entry *ret_entry);

/*
 * Opens ${path} to write there, making it; removes partial entries, but kills that have figures. ${keep} and ${bytes_max} are those of ${store}. 0, or a negative errno
 * with a sentence: -EBUSY where another process writes there.
 */
int hl_watch_store_open(struct hl_watch_store *store, const char *path, uint64_t keep,
			uint64_t bytes_max, struct hl_error *err);

/* The same to read what is there. */
int hl_watch_store_open_read(struct hl_watch_store *store, const char *path, struct hl_error *err);

void hl_watch_store_close(struct hl_watch_store *store);

/* The entries, which are directories, newest first, to be freed. 0 or a negative errno. */
int hl_watch_store_list(const struct hl_watch_store *store, struct hl_watch_entry **ret_entries,
			size_t *ret_count);

/* Begins an entry: its name, without HL_WATCH_PARTIAL, and its directory. 0 or a negative errno. */
int hl_watch_store_begin(struct hl_watch_store *store, uint64_t realtime_ns,
			 enum hl_watch_kind kind, const char *group,
			 char ret_name[HL_WATCH_NAME_MAX], int *ret_fd);

/* Gives the entry its name, on the disk; then trims the directory. 0 or a negative errno. */
int hl_watch_store_commit(struct hl_watch_store *store, const char *name);

/* Removes an entry that has failed. */
void hl_watch_store_abandon(struct hl_watch_store *store, const char *name);

/* Writes ${document} to the file ${file} of an entry, to the disk, wholly or not at all; drops the oldest entries while the disk is full. 0 or a
 * negative errno. */
int hl_watch_store_write(struct hl_watch_store *store, int entry_fd, const char *file,
			 const json_t *document);

/* A string of JSON, with U+FFFD for what is not UTF-8 in ${text}. NULL for want of memory. */
json_t *hl_watch_text(const char *text);

/* Drops what is too much or too old. */
void hl_watch_store_trim(struct hl_watch_store *store);

/* Drops the oldest entry that is not in use and can be removed; whether one is gone. */
bool hl_watch_store_drop_oldest(struct hl_watch_store *store);

/* Whether less than a few pages are left on the disk, or of the quota there. */
bool hl_watch_store_is_full(const struct hl_watch_store *store);

/* Keeps ${name} until it is called with ${in_use} false. */
void hl_watch_store_use(struct hl_watch_store *store, const char *name, bool in_use);
