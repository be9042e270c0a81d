/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files behind attach.h share.
 *
 * In the target lies a block of memory near its malloc: the record page, the image, trampolines.
 * Where a function is too far from it for a jump, an island lies near that function, with the
 * function's trampoline and a longer jump to the hook.
 */
#pragma once

#include "hook/attach.h"
#include "hook/entries.h"
#include "hook/relocate.h"
#include "hook/remote.h"
#include "process/maps.h"
#include "region/attached.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* ---- record page ---- */

/*
 * What heapline leaves in a process that it has entered: enough to take the recorder out again, also
 * for another heapline when the first one was killed. A page of its own, before the image.
 */

#define HL_RECORD_PAGE_MAGIC   "HLRECORD"
#define HL_RECORD_PAGE_VERSION 4u
#define HL_RECORD_PAGE_BYTES   UINT64_C(4096)
#define HL_RECORD_BLOCKS_MAX   16u

enum hl_record_state {
	HL_RECORD_MADE,	   /* nothing points to the image yet */
	HL_RECORD_STARTED, /* it has memory of its own; entries may be patched */
	HL_RECORD_STOPPED, /* that memory is given back */
};

struct hl_record_patch {
	uint64_t address;
	uint8_t original[HL_PATCH_BYTES], jump[HL_PATCH_BYTES];
	uint8_t is_late; /* of a library that came later, and may have gone */
	uint8_t unused;
	uint32_t file; /* of that: the lower half of its inode's number */
};

struct hl_record_block {
	uint64_t address, bytes;
};

struct hl_record_page {
	char magic[8];
	uint32_t version;
	uint32_t state; /* enum hl_record_state */
	/* Who made it, as seen in PID namespace ${tool_namespace}. */
	uint32_t tool_pid;
	uint32_t
		target_pid; /* as the target sees itself: in its forked children this is another's */
	uint64_t tool_start_ticks, tool_namespace;
	uint64_t attached; /* struct hl_attached */
	uint32_t block_count, patch_count;
	struct hl_record_block
		blocks[HL_RECORD_BLOCKS_MAX]; /* memory that is mapped; this page first */
	struct hl_record_patch patches[HL_ENTRIES_MAX];
};

/* Finds the page that some heapline has left, of any version. False when there is none. */
bool hl_record_page_find(const struct hl_remote *remote, const struct hl_maps *maps,
			 struct hl_record_page *ret_page);

/* Whether the one who made it is in our PID namespace; then, whether it still runs. */
bool hl_record_page_is_from_here(const struct hl_record_page *page);
bool hl_record_page_is_owned(const struct hl_record_page *page);

/* Fills in who makes it: this process, for ${target}. */
void hl_record_page_sign(struct hl_record_page *page, pid_t target);

/* ---- attach parts ---- */

#define HL_ATTACH_PAGE_BYTES	   ((uint64_t)HL_PAGE_BYTES_MAX)
#define HL_ATTACH_TRAMPOLINE_BYTES (2 * HL_ATTACH_PAGE_BYTES) /* of the block near malloc */

/* The recorder's image, laid out for an address of the target; see region/attached.h. */
#define HL_IMAGE_PARTS_MAX 8

struct hl_image {
	uint8_t *bytes; /* as they are to lie at the base */
	size_t size;	/* whole pages */
	struct {
		uint64_t offset, size; /* whole pages */
		int protection;	       /* PROT_READ ... */
	} parts[HL_IMAGE_PARTS_MAX];   /* in rising order, without overlaps */
	uint32_t part_count;
	uint64_t attached; /* offset of its struct hl_attached */
};

/* A block that is being prepared. */
struct hl_attach_block {
	uint64_t address, size;
	uint8_t *bytes;
	uint64_t used; /* up to the next free place for a trampoline */
};

/* For one patch: the way to the hook, and the trampoline, with the first instruction before it. */
#define HL_ATTACH_ROOM_MAX (HL_WAY_MAX + 16 + HL_TRAMPOLINE_MAX)

#define HL_ATTACH_NO_RULE (-1)

struct hl_attach_patch {
	struct hl_record_patch in_record;
	uint64_t trampoline; /* of what stands where the jump is */
	uint64_t real;	     /* of the whole function: begins before that with what is not moved */
	uint64_t room, room_end; /* of the block: the trampoline, and the jump before it */
	uint8_t entry_bytes;	 /* of the instructions that were moved */
	uint8_t twin[HL_ENTRY_MAX];
	const struct hl_entry *entry;
	uint64_t word, word_addend; /* of struct hl_entry */
	int rule;		    /* its number in the image; HL_ATTACH_NO_RULE: it has a hook */
};

static_assert(HL_HOOK_COUNT + HL_ATTACHED_RULES_MAX <= HL_ENTRIES_MAX, "all can be patched");

struct hl_attach {
	pid_t pid;
	struct hl_remote *remote;
	struct hl_maps maps;
	struct hl_hook_rules rules;
	bool counts_layers;
	struct hl_entries found;
	bool left_out[HL_ATTACHED_RULES_MAX];	/* of extras: they cannot be patched */
	bool rules_used[HL_ATTACHED_RULES_MAX]; /* of extras: they are patched, or left out */
	struct hl_image image;
	struct hl_attach_block blocks[HL_RECORD_BLOCKS_MAX];
	struct hl_attach_patch patches[HL_ENTRIES_MAX];
	struct hl_record_page record; /* as in the target */
	bool has_record;	      /* it is there */
	bool is_patched;
	bool may_be_inside;		     /* some thread */
	struct hl_attach_watch *watch;	     /* NULL: libraries that come later are not hooked */
	struct hl_attach_children *children; /* NULL: they are not recorded */
	bool may_map_code;		     /* on its own, as far as its seccomp filters say */
	bool may_follow; /* forked children may be recorded, as far as these say */
	int program; /* /proc/PID/mem of it: see error_or_ended() in attach.c; negative: cannot be opened */
	int pidfd;	   /* -1: none */
	int region_copy;   /* a descriptor for that; -1: none */
	int region_fd;	   /* its number in the target */
	int leftovers[16]; /* numbers of such, of a heapline that was killed */
	uint32_t leftover_count;
	char late_problem[256]; /* what was not patched in libraries that came later; the watch's */
	struct hl_attach_times times;
};

/* -ESRCH; -EPERM where the recorder is what it died of. */
static inline int hl_attach_ended(const struct hl_attach *attach, struct hl_error *err)
{
	if (attach->remote && hl_remote_end_signal(attach->remote) == SIGSYS)
		return hl_error_set(err, -EPERM,
				    "process '%d' was killed by its seccomp filter, which does not "
				    "permit what the recorder called at its start or end",
				    attach->pid);
	return hl_error_set(err, -ESRCH, "process '%d' has ended", attach->pid);
}

static inline int hl_attach_became_another(const struct hl_attach *attach, struct hl_error *err)
{
	*err = (struct hl_error){0};
	return hl_error_set(err, -EAGAIN,
			    "process '%d' has executed another program meanwhile; try again",
			    attach->pid);
}

static inline void hl_attach_pause(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Tells the record page in the target. */
bool hl_attach_set_state(struct hl_attach *attach, enum hl_record_state state);

/* ---- attach_prepare.c ---- */

/* Whether every byte of the ${size} bytes at ${address} can reach ${near}, and be reached from it. */
bool hl_room_reaches(uint64_t address, uint64_t size, uint64_t near);

/*
 * An address at which ${size} bytes, whole pages, are free and can reach ${near}; 0 when there is
 * none. The memory above [heap] and below [stack] is left to them, and a page on each side of the
 * room stays free.
 */
uint64_t hl_room_find(const struct hl_maps *maps, uint64_t near, uint64_t size);

/* Its own account of itself; the addresses in it are valid once it is relocated. */
struct hl_attached hl_image_attached(const struct hl_image *image);

/* All that can be made ready without the target: bytes for addresses that are free now. */
int hl_attach_prepare(struct hl_attach *attach, struct hl_error *err);

void hl_attach_forget_blocks(struct hl_attach *attach);

/*
 * Makes the next patch ready, in ${attach}->patches and a block, perhaps a new one; ${rule} as there. The
 * entry must stay. -ENOTSUP: its code leaves no room; -ENOMEM.
 */
int hl_attach_prepare_patch(struct hl_attach *attach, const struct hl_entry *entry, int rule,
			    struct hl_error *err);

/* Finds descriptors of a heapline that was killed before its recorder had started. A heapline that
 * is entered has such of its own. */
void hl_attach_find_leftovers(struct hl_attach *attach);

/* With one thread stopped: */

/* Maps and fills the blocks, and makes the memfd for the region. -EEXIST: room has been taken
 * meanwhile. After an error nothing of it is there. */
long hl_attach_place(struct hl_attach *attach, int *ret_region_fd);

void hl_attach_close_memfd(struct hl_attach *attach);
void hl_attach_unmap_blocks(struct hl_attach *attach, uint32_t count);

/* ---- attach_entries.c ---- */

/* Stops all threads until entries may be patched, and does that. */
int hl_attach_patch_entries(struct hl_attach *attach, struct hl_error *err);

/* Writes one patch where nobody runs. False where the code is not what it was. */
bool hl_attach_write_patch(struct hl_attach *attach, uint32_t index);

/* ---- attach_late.c ---- */

/*
 * From here on libraries that are loaded are patched as they come: a thread of ours answers the recorder. Does
 * nothing where the dynamic linker cannot be hooked. After hl_attach_patch_entries().
 */
void hl_attach_watch_begin(struct hl_attach *attach);

/* No thread of the target waits for us any more, and ${attach} is the caller's alone. */
void hl_attach_watch_end(struct hl_attach *attach);

/* ---- attach_children.c ---- */

/* From here on none waits for us. */
void hl_attach_children_end(struct hl_attach *attach);

/* Takes the recorder out of those that have it. As hl_attach_detach(), for the first that cannot be left. */
int hl_attach_leave_children(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err);

void hl_attach_children_free(struct hl_attach *attach);

/* Like hl_attach_detach(), but for -ESRCH. */
int hl_attach_give_back(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err);
