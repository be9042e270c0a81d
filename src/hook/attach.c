/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Brings the recorder in, patches entries, and takes both back; see attach.h.
 *
 * In the target lies a block of memory near its malloc: the record page, the image, trampolines.
 * Where a function is too far from it for a jump, an island lies near that function, with the
 * function's trampoline and a longer jump to the hook.
 */
#include "hook/attach.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "hook/entries.h"
#include "hook/image.h"
#include "hook/record_page.h"
#include "hook/relocate.h"
#include "hook/remote.h"
#include "hook/room.h"
#include "hook/whereabouts.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

#define PAGE_BYTES	 UINT64_C(4096)
#define TRAMPOLINE_BYTES (2 * PAGE_BYTES)  /* of the block near malloc */
#define CODE_READ_MAX	 (64 * PAGE_BYTES) /* of a function, to look for jumps into its entry */

/* In the record page, behind what record_page.h says. */
#define NAME_OFFSET (HL_RECORD_PAGE_BYTES - 64)

/* Other threads map memory, too: the room that was free may be taken. */
#define ROOM_TRIES 8

/*
 * A thread may stand where it cannot be moved from; it has moved on soon. One that does not stop may
 * take that for long, and each try waits for it: then a few will do.
 */
#define PATCH_TRIES	     200
#define PATCH_TRIES_MIN	     4
#define PATCH_WAIT_NS	     (3 * HL_NS_PER_SECOND)
#define PATCH_PAUSE_NS	     500000
#define OUTSIDE_PAUSE_NS     1000000
#define OUTSIDE_PAUSE_MAX_NS 500000000

/* A block that is being prepared. */
struct block {
	uint64_t address, size;
	uint8_t *bytes;
	uint64_t used; /* up to the next free place for a trampoline */
};

struct patch {
	struct hl_record_patch in_record;
	uint64_t trampoline;
	uint8_t twin[HL_ENTRY_MAX];
	const struct hl_entry *entry;
	int rule; /* its number in the image; NO_RULE: it has a hook */
};

/* Slots for threads in an image that makes sense. */
#define SLOTS_MAX 65536u

#define NO_RULE	   (-1)
#define BREAKPOINT 0xcc

static_assert(HL_HOOK_COUNT + HL_ATTACHED_RULES_MAX <= HL_ENTRIES_MAX, "all can be patched");

struct hl_attach {
	pid_t pid;
	struct hl_remote *remote;
	struct hl_maps maps;
	struct hl_hook_rules rules;
	bool counts_layers;
	struct hl_entries found;
	uint64_t left_out; /* bits of extras that cannot be patched */
	struct hl_image image;
	struct block blocks[HL_RECORD_BLOCKS_MAX];
	struct patch patches[HL_ENTRIES_MAX];
	struct hl_record_page record; /* as in the target */
	bool has_record;	      /* it is there */
	bool is_patched;
	bool may_be_inside; /* some thread */
	int region_fd;	    /* its number in the target */
	struct hl_attach_times times;
};

static int ended(const struct hl_attach *attach, struct hl_error *err)
{
	return hl_error_set(err, -ESRCH, "process %d has ended", attach->pid);
}

static void pause_ns(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- looking ---- */

static int read_maps(struct hl_attach *attach, struct hl_error *err)
{
	hl_maps_release(&attach->maps);
	attach->maps = (struct hl_maps){0};
	return hl_maps_read(attach->pid, &attach->maps, err);
}

/* Where the main thread's stack begins, which is another place in each program. */
static uint64_t stack_of(const struct hl_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->maps[i].path, "[stack]"))
			return maps->maps[i].end;
	return 0;
}

static int became_another(const struct hl_attach *attach, struct hl_error *err)
{
	*err = (struct hl_error){0};
	return hl_error_set(err, -EAGAIN, "process %d has just become another program; try again",
			    attach->pid);
}

/* What has failed may have so since the process has executed a program meanwhile: then says that. */
static int or_changed(const struct hl_attach *attach, int r, struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};

	if (r == -ESRCH || !attach->maps.count || hl_maps_read(attach->pid, &maps, NULL) < 0 ||
	    stack_of(&maps) == stack_of(&attach->maps))
		return r;
	return became_another(attach, err);
}

static int look_for_recorder(struct hl_attach *attach, struct hl_error *err)
{
	if (hl_maps_have_file(&attach->maps, "libheapline.so"))
		return hl_error_set(err, -EBUSY,
				    "process %d has the recorder already, since its start; ask it "
				    "by 'heapline ctl -p %d status'",
				    attach->pid, attach->pid);
	attach->has_record = hl_record_page_find(attach->remote, &attach->maps, &attach->record);
	if (!attach->has_record)
		return 0;
	if (attach->record.version != HL_RECORD_PAGE_VERSION)
		return hl_error_set(err, -EBUSY,
				    "process %d has the recorder of another version of heapline; "
				    "detach that by the same version",
				    attach->pid);
	/* What a forked child has of its parent's recorder counts nothing. */
	if (attach->record.target_pid != hl_record_page_inner_pid(attach->pid))
		return 0;
	if (!hl_record_page_is_from_here(&attach->record))
		return hl_error_set(err, -EBUSY,
				    "process %d is attached to from another PID namespace; end "
				    "the 'heapline attach' there",
				    attach->pid);
	if (hl_record_page_is_owned(&attach->record))
		return hl_error_set(err, -EBUSY,
				    "process %d is attached to already, by pid %" PRIu32
				    "; 'heapline ctl -p %d detach' ends that",
				    attach->pid, attach->record.tool_pid, attach->pid);
	return 0;
}

static int find_entries(struct hl_attach *attach, struct hl_error *err)
{
	return hl_entries_find(attach->pid, &attach->maps, &attach->rules, &attach->found, err);
}

typedef int open_fn(pid_t pid, struct hl_remote **ret_remote, struct hl_error *err);

static int open_target(pid_t pid, open_fn *open_remote, const struct hl_attach_settings *settings,
		       struct hl_attach **ret_attach, struct hl_error *err)
{
	struct hl_attach *attach = calloc(1, sizeof(*attach));

	if (!attach)
		return hl_error_set(err, -ENOMEM, "out of memory");
	attach->pid = pid;
	attach->region_fd = -1;
	attach->counts_layers = settings->counts_layers;
	int r = hl_hook_rules_make(settings->hooks, settings->presets, &attach->rules, err);
	if (r == 0)
		r = open_remote(pid, &attach->remote, err);
	if (r == 0)
		r = read_maps(attach, err);
	if (r == 0)
		r = look_for_recorder(attach, err);
	if (r == 0 && !attach->has_record)
		r = find_entries(attach, err);
	if (r < 0) {
		r = or_changed(attach, r, err);
		hl_attach_free(attach);
		return r;
	}
	*ret_attach = attach;
	return 0;
}

int hl_attach_open(pid_t pid, const struct hl_attach_settings *settings,
		   struct hl_attach **ret_attach, struct hl_error *err)
{
	return open_target(pid, hl_remote_open, settings, ret_attach, err);
}

int hl_attach_catch(pid_t child, struct hl_error *err)
{
	return hl_remote_catch(child, err);
}

int hl_attach_open_caught(pid_t child, const struct hl_attach_settings *settings,
			  struct hl_attach **ret_attach, struct hl_error *err)
{
	return open_target(child, hl_remote_open_caught, settings, ret_attach, err);
}

static void forget_blocks(struct hl_attach *attach)
{
	for (size_t i = 0; i < HL_RECORD_BLOCKS_MAX; i++)
		free(attach->blocks[i].bytes);
	memset(attach->blocks, 0, sizeof(attach->blocks));
	hl_image_release(&attach->image);
}

void hl_attach_free(struct hl_attach *attach)
{
	if (!attach)
		return;
	forget_blocks(attach);
	hl_remote_free(attach->remote);
	hl_maps_release(&attach->maps);
	hl_hook_rules_release(&attach->rules);
	free(attach);
}

void hl_attach_unseen(const struct hl_attach *attach, char *ret_text, size_t capacity)
{
	int count = __builtin_popcountll(attach->left_out);
	char others[64] = "";

	ret_text[0] = '\0';
	if (!count)
		return;
	const struct hl_entry *first = &attach->found.extras[__builtin_ctzll(attach->left_out)];
	bool is_operator = strncmp(first->name, "_Z", 2) == 0;
	if (count > 1)
		snprintf(others, sizeof(others), " and %d more function%s", count - 1,
			 count > 2 ? "s" : "");
	snprintf(ret_text, capacity,
		 "not recorded are calls of '%s'%s of '%s', whose code leaves no room for a jump",
		 is_operator ? (first->name[2] == 'n' ? "operator new" : "operator delete")
			     : first->name,
		 others, first->module);
}

struct hl_attach_times hl_attach_times(const struct hl_attach *attach)
{
	return attach->times;
}

/* ---- the record page in the target ---- */

static bool write_record(struct hl_attach *attach)
{
	return hl_remote_write(attach->remote, attach->record.blocks[0].address, &attach->record,
			       sizeof(attach->record));
}

static bool set_state(struct hl_attach *attach, enum hl_record_state state)
{
	attach->record.state = state;
	return write_record(attach);
}

/* Whether the page is still there: another program may have taken the process' place. */
static bool is_record_there(const struct hl_attach *attach)
{
	struct hl_record_page page;

	return hl_remote_read(attach->remote, attach->record.blocks[0].address, &page,
			      sizeof(page)) &&
	       !memcmp(page.magic, attach->record.magic, sizeof(page.magic)) &&
	       page.tool_start_ticks == attach->record.tool_start_ticks &&
	       page.attached == attach->record.attached;
}

/* ---- whether a sandbox permits it ---- */

/*
 * What the recorder calls now and then on the target's threads, in any mode; all else is done while
 * filters are suspended. man/heapline-record.1.scd lists them.
 */
static int check_sandbox(struct hl_attach *attach, struct hl_error *err)
{
	static const struct hl_seccomp_call calls[] = {
		{"mmap", SYS_mmap, {0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS}},
		{"mmap", SYS_mmap, {0, 4096, PROT_READ, MAP_PRIVATE}},
		{"mprotect", SYS_mprotect, {0, 4096, PROT_READ | PROT_WRITE}},
		{"mremap", SYS_mremap, {0}},
		{"munmap", SYS_munmap, {0}},
		{"madvise", SYS_madvise, {0, 4096, MADV_DONTDUMP}},
		{"rt_sigprocmask", SYS_rt_sigprocmask, {0}},
		{"sched_yield", SYS_sched_yield, {0}},
		{"gettid", SYS_gettid, {0}},
		{"getpid", SYS_getpid, {0}},
		{"tgkill", SYS_tgkill, {1, 1, 0}},
		{"prctl", SYS_prctl, {PR_GET_NAME}},
		{"clock_gettime", SYS_clock_gettime, {CLOCK_MONOTONIC}},
		{"futex", SYS_futex, {0, FUTEX_WAKE}},
		{"futex", SYS_futex, {0, FUTEX_LOCK_PI_PRIVATE}},
		{"nanosleep", SYS_nanosleep, {0}},
		{"kill", SYS_kill, {1}},
		{"openat", SYS_openat, {(uint64_t)AT_FDCWD, 0, O_RDONLY | O_CLOEXEC}},
		{"fstat", SYS_fstat, {0}},
		{"read", SYS_read, {0}},
		{"pread64", SYS_pread64, {0}},
		{"getcwd", SYS_getcwd, {0}},
		{"close", SYS_close, {0}},
	};

	return hl_remote_check_calls(attach->remote, calls, HL_COUNT_OF(calls), err);
}

/* ---- preparing, while the target runs ---- */

static int no_room(const struct hl_attach *attach, const char *module, struct hl_error *err)
{
	return hl_error_set(err, -ENOMEM,
			    "process %d has no free addresses within 2 GiB of the code of '%s'",
			    attach->pid, module);
}

static int make_block(struct hl_attach *attach, const struct hl_entry *near, uint64_t size,
		      struct hl_error *err)
{
	uint32_t index = attach->record.block_count;

	if (index == HL_RECORD_BLOCKS_MAX)
		return no_room(attach, near->module, err);
	struct block *block = &attach->blocks[index];
	*block = (struct block){.size = size, .bytes = calloc(1, size)};
	block->address = hl_room_find(&attach->maps, near->address, size);
	if (!block->bytes)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (!block->address)
		return no_room(attach, near->module, err);
	attach->record.blocks[index] = (struct hl_record_block){block->address, size};
	attach->record.block_count++;
	return 0;
}

/* malloc, or what allocates where there is none. */
static const struct hl_entry *main_entry(const struct hl_attach *attach)
{
	for (uint32_t i = 0; i < attach->found.count; i++)
		if (attach->found.entries[i].hook == HL_HOOK_MALLOC)
			return &attach->found.entries[i];
	return &attach->found.extras[0];
}

/* The block near malloc: record page, image, trampolines. */
static int make_first_block(struct hl_attach *attach, struct hl_error *err)
{
	int r = hl_image_load(&attach->image, err);

	if (r < 0)
		return r;
	uint64_t image_end = PAGE_BYTES + attach->image.size;
	r = make_block(attach, main_entry(attach), image_end + TRAMPOLINE_BYTES, err);
	if (r < 0)
		return r;
	struct block *block = &attach->blocks[0];
	hl_image_relocate(&attach->image, block->address + PAGE_BYTES);
	memcpy(block->bytes + PAGE_BYTES, attach->image.bytes, attach->image.size);
	block->used = image_end;
	attach->record.attached = block->address + PAGE_BYTES + attach->image.attached;
	return 0;
}

/* The block from which ${entry} can be reached, made if need be. */
static int choose_block(struct hl_attach *attach, const struct hl_entry *entry,
			struct block **ret_block, struct hl_error *err)
{
	enum { NEEDED = 16 + HL_TRAMPOLINE_MAX };

	for (uint32_t i = 0; i < attach->record.block_count; i++) {
		struct block *block = &attach->blocks[i];
		if (hl_room_reaches(block->address, block->size, entry->address) &&
		    block->size - block->used >= NEEDED) {
			*ret_block = block;
			return 0;
		}
	}
	*ret_block = &attach->blocks[attach->record.block_count];
	return make_block(attach, entry, PAGE_BYTES, err);
}

/* In an island: a jump to any address. Where it lies. */
static uint64_t put_long_jump(struct block *block, uint64_t target)
{
	static const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *0(%rip) */
	uint64_t at = block->address + block->used;

	memcpy(block->bytes + block->used, jump, sizeof(jump));
	memcpy(block->bytes + block->used + sizeof(jump), &target, sizeof(target));
	block->used += 16;
	return at;
}

static uint64_t hook_of(const struct hl_attach *attach, const struct hl_entry *entry, int rule)
{
	const struct hl_attached attached = hl_image_attached(&attach->image);

	return rule == NO_RULE ? attached.hooks[entry->hook]
			       : attached.rule_stubs + (uint64_t)rule * HL_ATTACHED_RULE_STUB_BYTES;
}

/* Reads all of a function and the padding behind it, for jumps back to its beginning. */
static int read_function(struct hl_attach *attach, const struct hl_entry *entry, uint8_t **ret_code,
			 size_t *ret_size, struct hl_error *err)
{
	size_t size = entry->bytes ? (entry->bytes + 15) & ~UINT64_C(15) : HL_ENTRY_MAX;

	if (size < HL_ENTRY_MAX)
		size = HL_ENTRY_MAX;
	if (entry->bytes > CODE_READ_MAX)
		return hl_error_set(err, -ENOTSUP,
				    "'%s' of process %d is longer than any allocator's function",
				    entry->name, attach->pid);
	*ret_code = malloc(size);
	if (!*ret_code)
		return hl_error_set(err, -ENOMEM, "out of memory");
	if (!hl_remote_read(attach->remote, entry->address, *ret_code, size)) {
		free(*ret_code);
		*ret_code = NULL;
		return hl_error_set(err, -ENOTSUP, "the code of '%s' of process %d cannot be read",
				    entry->name, attach->pid);
	}
	*ret_size = size;
	return 0;
}

static int prepare_patch(struct hl_attach *attach, const struct hl_entry *entry, int rule,
			 struct hl_error *err)
{
	HL_FREED uint8_t *code = NULL;
	size_t size = 0;
	struct hl_relocated moved;
	struct block *block;
	struct patch *patch = &attach->patches[attach->record.patch_count];

	int r = choose_block(attach, entry, &block, err);
	if (r < 0)
		return r;
	r = read_function(attach, entry, &code, &size, err);
	if (r < 0)
		return r;
	uint64_t hook = hook_of(attach, entry, rule);
	if (!hl_room_reaches(hook, 1, entry->address))
		hook = put_long_jump(block, hook);
	uint64_t trampoline = block->address + block->used;
	r = hl_relocate(code, size, entry->address, entry->bytes, trampoline, &moved, err);
	if (r == 0)
		r = hl_relocate_jump(entry->address, hook, patch->in_record.jump);
	if (r < 0)
		return r;
	memcpy(block->bytes + block->used, moved.code, moved.code_bytes);
	block->used += (moved.code_bytes + UINT64_C(15)) & ~UINT64_C(15);
	patch->entry = entry;
	patch->rule = rule;
	patch->trampoline = trampoline;
	memcpy(patch->twin, moved.twin, sizeof(patch->twin));
	patch->in_record.address = entry->address;
	memcpy(patch->in_record.original, code, HL_PATCH_BYTES);
	attach->record.patches[attach->record.patch_count++] = patch->in_record;
	return 0;
}

/* What nobody has asked for is left out where it cannot be patched. */
static int prepare_rule(struct hl_attach *attach, uint32_t index, struct hl_error *err)
{
	const struct hl_entry *entry = &attach->found.extras[index];
	int r = prepare_patch(attach, entry, (int)index, err);

	if (r != -ENOTSUP || entry->is_asked)
		return r;
	attach->left_out |= UINT64_C(1) << index;
	*err = (struct hl_error){0};
	return 0;
}

/* All that can be made ready without the target: bytes for addresses that are free now. */
static int prepare(struct hl_attach *attach, struct hl_error *err)
{
	forget_blocks(attach);
	attach->left_out = 0;
	attach->record = (struct hl_record_page){0};
	hl_record_page_sign(&attach->record, attach->pid);
	int r = make_first_block(attach, err);
	for (uint32_t i = 0; r == 0 && i < attach->found.count; i++)
		r = prepare_patch(attach, &attach->found.entries[i], NO_RULE, err);
	for (uint32_t i = 0; r == 0 && i < attach->found.extra_count; i++)
		r = prepare_rule(attach, i, err);
	if (r < 0)
		return r;
	struct hl_record_page page = attach->record;
	page.block_count = 1;
	memcpy(attach->blocks[0].bytes, &page, sizeof(page));
	return 0;
}

/* ---- bringing, by one stopped thread ---- */

static long map_block(struct hl_attach *attach, const struct block *block)
{
	long at = hl_remote_syscall(attach->remote, SYS_mmap, (long)block->address,
				    (long)block->size, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at < 0 || at == (long)block->address)
		return at;
	/* A kernel before 4.17 takes the address for a wish. */
	hl_remote_syscall(attach->remote, SYS_munmap, at, (long)block->size, 0, 0, 0, 0);
	return -EEXIST;
}

/* Before anything is written there: where memory that was writable may not become executable
 * (PR_SET_MDWE of prctl(2)), other memory takes its place. */
static long protect(struct hl_attach *attach, uint64_t address, uint64_t size, int protection)
{
	long r = hl_remote_syscall(attach->remote, SYS_mprotect, (long)address, (long)size,
				   protection, 0, 0, 0);

	if (r != -EACCES || !(protection & PROT_EXEC))
		return r;
	r = hl_remote_syscall(attach->remote, SYS_mmap, (long)address, (long)size, protection,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return r < 0 ? r : 0;
}

static long protect_first_block(struct hl_attach *attach)
{
	const struct hl_image *image = &attach->image;
	uint64_t base = attach->blocks[0].address + PAGE_BYTES;

	long r = protect(attach, attach->blocks[0].address, PAGE_BYTES, PROT_READ);
	for (uint32_t i = 0; r == 0 && i < image->part_count; i++)
		r = protect(attach, base + image->parts[i].offset, image->parts[i].size,
			    image->parts[i].protection);
	if (r == 0)
		r = protect(attach, base + image->size, TRAMPOLINE_BYTES, PROT_READ | PROT_EXEC);
	return r;
}

/* Another heapline must not unmap what is not there: it may be the target's own by then. */
static void tell_blocks(struct hl_attach *attach, uint32_t count)
{
	hl_remote_write(attach->remote,
			attach->record.blocks[0].address +
				offsetof(struct hl_record_page, block_count),
			&count, sizeof(count));
}

/* Maps and fills the blocks. -EEXIST: room has been taken meanwhile. What has been mapped stays. */
static long place_blocks(struct hl_attach *attach, uint32_t *ret_mapped)
{
	long r = 0;

	*ret_mapped = 0;
	for (uint32_t i = 0; r >= 0 && i < attach->record.block_count; i++) {
		const struct block *block = &attach->blocks[i];
		r = map_block(attach, block);
		if (r < 0)
			break;
		*ret_mapped = i + 1;
		if (i > 0)
			tell_blocks(attach, i + 1);
		r = i ? protect(attach, block->address, block->size, PROT_READ | PROT_EXEC)
		      : protect_first_block(attach);
		if (r == 0 &&
		    !hl_remote_write(attach->remote, block->address, block->bytes, block->size))
			r = -EIO;
	}
	return r;
}

static void unmap_blocks(struct hl_attach *attach, uint32_t count)
{
	/* The record last: as long as anything is there, it says so. */
	while (count-- > 0) {
		if (count > 0)
			tell_blocks(attach, count);
		hl_remote_syscall(attach->remote, SYS_munmap,
				  (long)attach->record.blocks[count].address,
				  (long)attach->record.blocks[count].bytes, 0, 0, 0, 0);
	}
}

/* A memfd of the target; its number there. */
static long make_memfd(struct hl_attach *attach)
{
	static const char name[] = "heapline";
	uint64_t at = attach->blocks[0].address + NAME_OFFSET;

	if (!hl_remote_write(attach->remote, at, name, sizeof(name)))
		return -EIO;
	long fd = hl_remote_syscall(attach->remote, SYS_memfd_create, (long)at,
				    MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL, 0, 0, 0, 0);
	/* Older systems lack a flag. */
	if (fd == -EINVAL)
		fd = hl_remote_syscall(attach->remote, SYS_memfd_create, (long)at,
				       MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0);
	return fd;
}

/* The target's descriptor ${fd}, as ours. */
static int fetch_descriptor(pid_t pid, long fd)
{
	HL_CLOSED int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	int ours = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	return ours < 0 ? -errno : ours;
}

static void close_memfd(struct hl_attach *attach)
{
	if (attach->region_fd >= 0)
		hl_remote_syscall(attach->remote, SYS_close, attach->region_fd, 0, 0, 0, 0, 0);
	attach->region_fd = -1;
}

/* With one thread stopped. */
static long bring_by_thread(struct hl_attach *attach, int *ret_region_fd)
{
	uint32_t mapped;

	long r = place_blocks(attach, &mapped);
	if (r >= 0)
		r = make_memfd(attach);
	if (r >= 0) {
		attach->region_fd = (int)r;
		r = fetch_descriptor(attach->pid, r);
	}
	if (r >= 0) {
		*ret_region_fd = (int)r;
		attach->has_record = true;
		return 0;
	}
	close_memfd(attach);
	unmap_blocks(attach, mapped);
	return r;
}

static int say_refusal(const struct hl_attach *attach, long r, struct hl_error *err)
{
	if (r == -ESRCH)
		return ended(attach, err);
	return hl_error_set(err, (int)r, "process %d cannot take the recorder in: %s%s",
			    attach->pid, strerror((int)-r),
			    r == -EMFILE ? "; it has used up its file descriptors" : "");
}

static int give_back(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err);

/* Takes out what a heapline that was killed has left. */
static int take_over(struct hl_attach *attach, struct hl_error *err)
{
	attach->is_patched = attach->may_be_inside = true;
	int r = give_back(attach, 2000, err);
	if (r == 0)
		r = read_maps(attach, err);
	if (r == 0)
		r = find_entries(attach, err);
	return r;
}

int hl_attach_bring(struct hl_attach *attach, int *ret_region_fd, struct hl_error *err)
{
	long r = attach->has_record ? take_over(attach, err) : 0;

	if (r == 0)
		r = check_sandbox(attach, err);
	if (r < 0)
		return (int)r;
	for (int tries = 0; tries < ROOM_TRIES; tries++) {
		if (tries > 0 && (r = read_maps(attach, err)) < 0)
			return (int)r;
		r = prepare(attach, err);
		if (r == 0)
			r = hl_remote_stop_one(attach->remote, err);
		if (r < 0)
			return or_changed(attach, (int)r, err);
		r = bring_by_thread(attach, ret_region_fd);
		hl_remote_continue(attach->remote);
		attach->times.bring_us += hl_remote_stopped_us(attach->remote);
		if (r != -EEXIST)
			break;
	}
	return r < 0 ? or_changed(attach, say_refusal(attach, r, err), err) : 0;
}

/* ---- starting and patching ---- */

/* Programs can be forbidden to read the time stamp counter: to do so all the same kills them. The
 * answer lands on the image's stack, where nobody is. */
static bool may_read_clock(struct hl_attach *attach, uint64_t stack_top)
{
	uint64_t at = stack_top - sizeof(uint64_t);
	int32_t state = 0;

	return hl_remote_syscall(attach->remote, SYS_prctl, PR_GET_TSC, (long)at, 0, 0, 0, 0) ==
		       0 &&
	       hl_remote_read(attach->remote, at, &state, sizeof(state)) && state == PR_TSC_ENABLE;
}

/* With one thread stopped. */
static int start_by_thread(struct hl_attach *attach, uint64_t region_bytes)
{
	const struct hl_entries *found = &attach->found;
	const struct hl_attached attached = hl_image_attached(&attach->image);
	int32_t result = -EIO;
	bool may_read_tsc = may_read_clock(attach, attached.stack_top);
	struct hl_attached_start start = {
		.region_fd = attach->region_fd,
		.main_tid = (int32_t)attach->record.target_pid,
		.region_bytes = region_bytes,
		.usable_size = found->usable_size,
		/* A static program's knows no frames, and is not ready before main(). */
		.find_object = found->is_static ? 0 : found->find_object,
		.clock_gettime = may_read_tsc ? found->clock_gettime : 0, /* reads it, too */
		.program_headers = found->program_headers,
		.program_header_count = found->program_header_count,
		.eh_frame = found->eh_frame,
		.eh_frame_bytes = found->eh_frame_bytes,
		.stack_end = found->stack_end,
		.has_glibc_chunks = found->has_glibc_chunks,
		.may_read_tsc = may_read_tsc,
		/* In another namespace of processes it has another number, or none. */
		.collector_pid = (pid_t)attach->record.target_pid == attach->pid ? getpid() : 0,
		.counts_layers = attach->counts_layers,
	};

	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		const struct patch *patch = &attach->patches[i];
		if (patch->rule == NO_RULE)
			start.real[patch->entry->hook] = patch->trampoline;
		else
			start.rules[patch->rule] = hl_entry_rule(patch->entry, patch->trampoline);
	}
	if (!hl_remote_write(attach->remote, attached.start_room, &start, sizeof(start)) ||
	    !set_state(attach, HL_RECORD_STARTED))
		return -EIO;
	int r = hl_remote_call(attach->remote, attached.start, attached.start_room,
			       attached.stack_top, &result);
	if (r == 0 || r == -EFAULT)
		attach->region_fd = -1; /* closed by it */
	return r < 0 ? r : result;
}

/* Only the bytes of the jump change; code behind them may be run and returned to as before. */
static struct hl_code_range range_of(const struct hl_record_patch *patch)
{
	return (struct hl_code_range){patch->address, patch->address + HL_PATCH_BYTES};
}

static size_t ranges_of_entries(const struct hl_attach *attach,
				struct hl_code_range ranges[HL_ENTRIES_MAX])
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++)
		ranges[i] = range_of(&attach->record.patches[i]);
	return attach->record.patch_count;
}

/* The patch inside of whose bytes the thread stands; at the first it will find the jump. */
static const struct patch *find_under(const struct hl_attach *attach,
				      const struct hl_remote_thread *thread, uint64_t *ret_offset)
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		*ret_offset = thread->registers.rip - attach->record.patches[i].address;
		if (*ret_offset > 0 && *ret_offset < HL_PATCH_BYTES)
			return &attach->patches[i];
	}
	return NULL;
}

/* With all threads stopped: whether entries may change now. No thread may stand, or return, where
 * no instruction of its own will begin. */
static bool may_patch(struct hl_attach *attach)
{
	struct hl_code_range ranges[HL_ENTRIES_MAX];
	size_t range_count = ranges_of_entries(attach, ranges), count;
	struct hl_remote_thread *threads = hl_remote_threads(attach->remote, &count);
	uint64_t offset;

	for (size_t i = 0; i < count; i++) {
		const struct patch *patch = find_under(attach, &threads[i], &offset);
		if ((patch && patch->twin[offset] == HL_RELOCATE_NO_TWIN) ||
		    hl_whereabouts_may_return(attach->remote, &threads[i], ranges, range_count))
			return false;
	}
	return true;
}

/* Threads that stand inside of what will be a jump go on in the trampolines. */
static void move_out(struct hl_attach *attach)
{
	size_t count;
	struct hl_remote_thread *threads = hl_remote_threads(attach->remote, &count);
	uint64_t offset;

	for (size_t i = 0; i < count; i++) {
		const struct patch *patch = find_under(attach, &threads[i], &offset);
		if (!patch)
			continue;
		threads[i].registers.rip = patch->trampoline + patch->twin[offset];
		threads[i].changed = true;
	}
}

/*
 * Writes ${code} over the entry's first bytes, in one aligned word where they lie in one: then no
 * processor ever sees half of it.
 */
static bool write_entry(struct hl_attach *attach, uint64_t address,
			const uint8_t code[HL_PATCH_BYTES])
{
	uint64_t word = address & ~UINT64_C(7);
	uint8_t bytes[8];

	if (address - word + HL_PATCH_BYTES > sizeof(bytes))
		return hl_remote_write(attach->remote, address, code, HL_PATCH_BYTES);
	if (!hl_remote_read(attach->remote, word, bytes, sizeof(bytes)))
		return false;
	memcpy(bytes + (address - word), code, HL_PATCH_BYTES);
	return hl_remote_write(attach->remote, word, bytes, sizeof(bytes));
}

static bool has_code(struct hl_attach *attach, uint64_t address, const uint8_t code[HL_PATCH_BYTES])
{
	uint8_t bytes[HL_PATCH_BYTES];

	return hl_remote_read(attach->remote, address, bytes, sizeof(bytes)) &&
	       !memcmp(bytes, code, sizeof(bytes));
}

/* What somebody else has written over an entry meanwhile stays: the kernel's breakpoint for a uprobe,
 * which is one byte. */
static void restore_entries(struct hl_attach *attach)
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		const struct hl_record_patch *patch = &attach->record.patches[i];
		uint8_t probed[HL_PATCH_BYTES], original[HL_PATCH_BYTES];
		memcpy(probed, patch->jump, sizeof(probed));
		memcpy(original, patch->original, sizeof(original));
		if (!has_code(attach, patch->address, probed)) {
			probed[0] = original[0] = BREAKPOINT;
			if (!has_code(attach, patch->address, probed))
				continue;
		}
		write_entry(attach, patch->address, original);
	}
}

static bool write_patches(struct hl_attach *attach)
{
	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		const struct hl_record_patch *patch = &attach->record.patches[i];
		if (has_code(attach, patch->address, patch->original) &&
		    write_entry(attach, patch->address, patch->jump))
			continue;
		restore_entries(attach);
		return false;
	}
	return true;
}

static int patch_entries(struct hl_attach *attach, struct hl_error *err)
{
	uint64_t deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + PATCH_WAIT_NS;

	for (int tries = 0; tries < PATCH_TRIES; tries++) {
		if (tries >= PATCH_TRIES_MIN && hl_clock_ns(CLOCK_MONOTONIC) >= deadline_ns)
			break;
		int r = hl_remote_stop_all(attach->remote, err);
		if (r < 0 && r != -EAGAIN)
			return r;
		if (r == 0 && !is_record_there(attach)) {
			hl_remote_continue(attach->remote);
			return became_another(attach, err);
		}
		bool may = r == 0 && may_patch(attach);
		attach->may_be_inside |= may;
		bool done = may && write_patches(attach);
		if (done)
			move_out(attach);
		if (r == 0)
			hl_remote_continue(attach->remote);
		attach->times.patch_us += hl_remote_stopped_us(attach->remote);
		if (done)
			return 0;
		if (may)
			return hl_error_set(err, -EIO,
					    "the code of process %d cannot be written to",
					    attach->pid);
		pause_ns(PATCH_PAUSE_NS);
	}
	return hl_error_set(err, -EAGAIN,
			    "process %d was never in a state to be entered: some thread did not "
			    "stop, or was inside malloc for long",
			    attach->pid);
}

int hl_attach_patch(struct hl_attach *attach, uint64_t region_bytes, struct hl_error *err)
{
	struct hl_error ignored;

	int r = hl_remote_stop_one(attach->remote, err);
	if (r < 0)
		return r;
	int result = start_by_thread(attach, region_bytes);
	hl_remote_continue(attach->remote);
	if (result < 0) {
		r = say_refusal(attach, result, err);
	} else {
		r = patch_entries(attach, err);
		attach->is_patched = r == 0;
	}
	if (r == 0)
		hl_remote_release(attach->remote);
	else
		give_back(attach, 1000, &ignored);
	return r;
}

/* ---- taking out ---- */

static int unpatch(struct hl_attach *attach, uint64_t deadline_ns, struct hl_error *err)
{
	int r;

	while ((r = hl_remote_stop_all(attach->remote, err)) == -EAGAIN &&
	       hl_clock_ns(CLOCK_MONOTONIC) < deadline_ns)
		pause_ns(OUTSIDE_PAUSE_NS);
	if (r < 0)
		return r;
	restore_entries(attach);
	hl_remote_continue(attach->remote);
	attach->times.detach_us = hl_remote_stopped_us(attach->remote);
	attach->is_patched = false;
	return 0;
}

/* A function of a rule that was left by longjmp() is counted no more. */
static int32_t frames_of(struct hl_attach *attach, const struct hl_attached_slot *slot)
{
	uint64_t words[HL_ATTACHED_RULE_FRAME_WORDS];

	if (slot->rule_frame &&
	    (!hl_remote_read(attach->remote, slot->rule_frame - HL_ATTACHED_RULE_FRAME_BELOW, words,
			     sizeof(words)) ||
	     hl_attached_rule_frame_sum(words) != slot->rule_sum))
		return slot->rule_inside - 1;
	return slot->inside;
}

/* False where something else lies there by now. */
static bool read_attached(const struct hl_attach *attach, struct hl_attached *ret_attached)
{
	return hl_remote_read(attach->remote, attach->record.attached, ret_attached,
			      sizeof(*ret_attached)) &&
	       !memcmp(ret_attached->magic, HL_ATTACHED_MAGIC, sizeof(ret_attached->magic)) &&
	       ret_attached->version == HL_ATTACHED_VERSION &&
	       ret_attached->slot_count <= SLOTS_MAX;
}

/* How many frames of hooks the thread with this thread pointer has on its stack. */
static int32_t frames_inside(struct hl_attach *attach, const struct hl_attached *attached,
			     uint64_t thread_pointer)
{
	struct hl_attached_slot slots[256];

	for (uint32_t i = 0; i < attached->slot_count; i += HL_COUNT_OF(slots)) {
		if (!hl_remote_read(attach->remote, attached->slots + i * sizeof(*slots), slots,
				    sizeof(slots)))
			return 1;
		for (size_t k = 0; k < HL_COUNT_OF(slots); k++)
			if (slots[k].key == thread_pointer)
				return frames_of(attach, &slots[k]) + attached->inside_without_slot;
	}
	return attached->inside_without_slot;
}

/* Whether the stopped thread has left the recorder, into which no way leads any more. */
static bool is_outside(struct hl_attach *attach, const struct hl_remote_thread *thread)
{
	struct hl_code_range ranges[HL_RECORD_BLOCKS_MAX];
	struct hl_attached attached;

	for (uint32_t i = 0; i < attach->record.block_count; i++)
		ranges[i] = (struct hl_code_range){attach->record.blocks[i].address,
						   attach->record.blocks[i].address +
							   attach->record.blocks[i].bytes};
	if (hl_code_range_holds(ranges, attach->record.block_count, thread->registers.rip) ||
	    !read_attached(attach, &attached) ||
	    frames_inside(attach, &attached, thread->registers.fs_base))
		return false;
	return !hl_whereabouts_will_return(attach->remote, thread, ranges,
					   attach->record.block_count);
}

/* Threads that have not been seen outside are left in ${tids}. */
static size_t look_at_threads(struct hl_attach *attach, pid_t *tids, size_t count)
{
	struct hl_remote_thread *thread;
	size_t left = 0;

	for (size_t i = 0; i < count; i++) {
		int r = hl_remote_stop_thread(attach->remote, tids[i], &thread);
		bool outside = r == -ESRCH || (r == 0 && is_outside(attach, thread));
		if (r == 0)
			hl_remote_continue(attach->remote);
		if (!outside)
			tids[left++] = tids[i];
	}
	return left;
}

static int wait_for_threads(struct hl_attach *attach, uint64_t deadline_ns, struct hl_error *err)
{
	HL_FREED pid_t *tids = NULL;
	long wait_ns = OUTSIDE_PAUSE_NS;
	size_t count;

	int r = hl_remote_list(attach->remote, &tids, &count);
	if (r < 0)
		return r == -ESRCH ? ended(attach, err) : hl_error_set(err, r, "out of memory");
	while ((count = look_at_threads(attach, tids, count))) {
		if (hl_clock_ns(CLOCK_MONOTONIC) >= deadline_ns)
			return hl_error_set(
				err, -EAGAIN,
				"thread %d of process %d is still in the recorder, which lets it "
				"pass and stays there; a later 'heapline attach' takes it out",
				tids[0], attach->pid);
		/* A thread that gets the processor seldom stops before it has gone a step, if it
		 * is looked at more often than that. */
		pause_ns(wait_ns);
		wait_ns *= wait_ns < OUTSIDE_PAUSE_MAX_NS ? 2 : 1;
	}
	return 0;
}

/* With one thread stopped, nobody inside. */
static void remove_by_thread(struct hl_attach *attach)
{
	struct hl_attached attached;
	int32_t result;

	/* A forked child has copies of its parent's memory until its first hook. */
	if (attach->record.state == HL_RECORD_STARTED && read_attached(attach, &attached)) {
		hl_remote_call(attach->remote, attached.stop, 0, attached.stack_top, &result);
		set_state(attach, HL_RECORD_STOPPED);
	}
	close_memfd(attach);
	unmap_blocks(attach, attach->record.block_count);
}

static int give_back(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err)
{
	uint64_t deadline_ns = hl_clock_ns(CLOCK_MONOTONIC) + wait_ms * UINT64_C(1000000);

	if (!attach->has_record)
		return 0;
	if (!is_record_there(attach))
		return 0;
	int r = attach->is_patched ? unpatch(attach, deadline_ns, err) : 0;
	if (r == 0 && attach->may_be_inside)
		r = wait_for_threads(attach, deadline_ns, err);
	if (r == 0)
		r = hl_remote_stop_one(attach->remote, err);
	if (r < 0)
		return r;
	remove_by_thread(attach);
	hl_remote_continue(attach->remote);
	attach->has_record = false;
	return 0;
}

int hl_attach_detach(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err)
{
	int r = give_back(attach, wait_ms, err);

	return r == -ESRCH ? 0 : r;
}
