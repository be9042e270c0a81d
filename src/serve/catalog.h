/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What there is to serve on this host: processes that are being recorded, as their collectors tell,
 * and recordings that lie in directories.
 *
 * A request names an entry of the catalog; no path is ever made of what a request says.
 */
#pragma once

#include "base/user.h"
#include "process/service.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A running process that is recorded. Figures since its recording began; bytes. */
struct hl_catalog_process {
	pid_t pid;
	uint32_t recording; /* index */
	uint32_t sequence;  /* of the process in it */
	int64_t uid;	    /* its user; -1: see struct hl_process_status */
	char *command;	    /* all its words */
	struct hl_service service;
	char container[HL_SERVICE_CONTAINER_MAX]; /* "" when there is none */
	char mode[16];
	int64_t ms; /* of recording */
	int64_t inuse_bytes, inuse_objects, peak_bytes;
	int64_t alloc_bytes, alloc_objects, free_bytes, free_objects;
	int64_t lost_events, lost_log_events;
	int64_t recorder_bytes; /* of rss_bytes, the recorder's; -1: not known, see struct hl_serve_heaps */
	int64_t asked_recorder_bytes; /* the same, as its collector tells; -1: not known */
	int64_t rss_bytes;
	int64_t cached_bytes, retained_bytes,
		heap_age_s;   /* of malloc; -1: not known, see struct hl_serve_heaps */
	int64_t growth_bytes; /* of inuse_bytes, per minute; see struct hl_serve_heaps */
};

struct hl_catalog_recording {
	char *name; /* its file's, followed by ~ and a number of its own where several are called so */
	char *path;
	struct hl_user *owner; /* who names it, as whom it is to be read; NULL: as this process */
	pid_t collector;       /* that writes it; 0: it is complete, or its collector is gone */
	int64_t changed_s;
	dev_t device; /* of its file or directory, which tell it from others */
	ino_t inode;
};

struct hl_catalog {
	struct hl_catalog_process *processes;
	struct hl_catalog_recording *recordings; /* those that go on are first */
	size_t process_count, process_capacity, recording_count, recording_capacity;
	size_t left_out;	/* recordings, the oldest, of which there were too many */
	size_t others_left_out; /* collectors and processes of another user, who has too many */
	size_t foreign;		/* what other users' collectors name and is not their users' */
	size_t denied;		/* collectors that we may not ask */
};

#define HL_CATALOG_OTHERS_MAX 1000 /* processes of one other user that are listed */

/*
 * Reads what collectors of this user tell (for root, those of all users, each about its user's processes and files alone) and lists the ${count}
 * ${directories}, whose recordings are called NAME.hl. A directory that cannot be read is left out, and so is a collector
 * that does not answer within two seconds, for the next thirty. 0 or -ENOMEM; to be released in any case.
 * Thread-safe.
 */
int hl_catalog_read(struct hl_catalog *catalog, const char *const *directories, size_t count);

void hl_catalog_release(struct hl_catalog *catalog);

#define HL_CATALOG_HIDDEN_MAX 600

/* Whether something is left out that is recorded, with a sentence that says what and why. */
bool hl_catalog_hidden(const struct hl_catalog *catalog, char sentence[HL_CATALOG_HIDDEN_MAX]);

/* NULL if there is none. */
const struct hl_catalog_process *hl_catalog_process(const struct hl_catalog *catalog, pid_t pid);
const struct hl_catalog_recording *hl_catalog_recording(const struct hl_catalog *catalog,
							const char *name);

/* ---- heaps of processes ---- */

/*
 * What malloc keeps for itself in the processes that are being recorded, and what the recorder does. That takes a walk over each heap, by
 * `heapline heap`: 0.25 s for a GiB, outside of the process. So a thread does it, and answers have what it found last.
 */

#define HL_SERVE_HEAP_AGE_S 60 /* how old figures may be before their heap is read again */
#define HL_SERVE_GROWTH_MS \
	60000 /* over at least which growth is measured, once there are answers as old */

struct hl_serve_heaps;

/* Begins the thread, which ends when ${stop_fd} can be read. 0 or a negative errno. */
int hl_serve_heaps_new(int stop_fd, struct hl_serve_heaps **ret_heaps);

/* After ${stop_fd} can be read. NULL is fine. */
void hl_serve_heaps_free(struct hl_serve_heaps *heaps);

/*
 * Fills in recorder_bytes, cached_bytes, retained_bytes and heap_age_s of the processes in ${catalog}, without waiting. They stay -1 of one whose heap
 * was not read yet, may not be read, or is not glibc's. ${reads}: those whose figures are old are read again. Also growth_bytes, since
 * an answer one or two minutes ago, or since the recording began. Thread-safe.
 */
void hl_serve_heaps_fill(struct hl_serve_heaps *heaps, struct hl_catalog *catalog, bool reads);
