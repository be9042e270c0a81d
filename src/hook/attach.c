/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks at a process, brings the recorder in, starts it and patches the entries, and takes it out again; see attach.h. */
#include "hook/attach.h"

#include "base/cleanup.h"
#include "guests/traits.h"
#include "hook/attach_parts.h"
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * ---- the owner ----
 *
 * Says in the region that its heapline lives, so that everybody can see when it does not: the kernel
 * marks a robust futex whatever ends its owner, in any namespace; see set_robust_list(2).
 *
 * The C library's robust mutexes keep their links in the shared memory, which the target can write.
 * So the list is of our own and here, and leads to a word alone.
 */

/* Of the thread that has brought a recorder in. It takes the place of the C library's, which nobody
 * uses here. */
static struct {
	const struct hl_attach *attach; /* NULL: of nobody */
	struct hl_region_header *header;
	struct robust_list entry;
	struct robust_list_head head, *before;
	size_t before_bytes;
} owned;

/* From here on whoever looks sees whether this thread lives; and no more. One recorder at a time. */
static void own(const struct hl_attach *attach)
{
	if (owned.attach || attach->region_copy < 0)
		return;
	void *header = mmap(NULL, sizeof(*owned.header), PROT_READ | PROT_WRITE, MAP_SHARED,
			    attach->region_copy, 0);
	if (header == MAP_FAILED)
		return;
	owned.attach = attach;
	owned.header = header;
	owned.entry.next = &owned.head.list;
	owned.head.list.next = &owned.entry;
	owned.head.futex_offset = (char *)&owned.header->children.owner - (char *)&owned.entry;
	/* Where it fails, as in a sandbox, nobody will see our end, and none is seen too early. */
	syscall(SYS_get_robust_list, 0, &owned.before, &owned.before_bytes);
	syscall(SYS_set_robust_list, &owned.head, sizeof(owned.head));
	atomic_store(&owned.header->children.owner, (uint32_t)gettid());
}

static void disown(const struct hl_attach *attach)
{
	if (owned.attach != attach)
		return;
	atomic_store(&owned.header->children.owner, FUTEX_OWNER_DIED);
	syscall(SYS_set_robust_list, owned.before, sizeof(*owned.before));
	munmap(owned.header, sizeof(*owned.header));
	owned.attach = NULL;
}

/* Whether the heapline that has brought in the recorder that was found has ended for certain. */
static bool has_lost_owner(const struct hl_attach *attach)
{
	static const char region[] = "/memfd:heapline";
	struct hl_region_header header;
	struct hl_region_children children;

	for (size_t i = 0; i < attach->maps.count; i++) {
		const struct hl_map *map = &attach->maps.maps[i];
		if (strncmp(map->path, region, strlen(region)) != 0)
			continue;
		/* In a forked child there is this page of its parent's region, and its own region. */
		if (map->offset == HL_REGION_CHILDREN_START &&
		    hl_remote_read(attach->remote,
				   map->start + offsetof(struct hl_region_header, children) -
					   HL_REGION_CHILDREN_START,
				   &children, sizeof(children)))
			return children.owner & FUTEX_OWNER_DIED;
		if (!map->offset && map->flags & HL_MAP_WRITE &&
		    hl_remote_read(attach->remote, map->start, &header, sizeof(header)) &&
		    !memcmp(header.magic, HL_REGION_MAGIC, sizeof(header.magic)) &&
		    header.version == HL_REGION_VERSION &&
		    header.pid == attach->record.target_pid && header.children.owner)
			return header.children.owner &
			       FUTEX_OWNER_DIED; /* 0: it may just be coming */
	}
	return false;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Other threads map memory, too: the room that was free may be taken. */
#define ROOM_TRIES 8

/* ---- looking ---- */

static int read_maps(struct hl_attach *attach, struct hl_error *err)
{
	hl_maps_release(&attach->maps);
	attach->maps = (struct hl_maps){0};
	return hl_maps_read(attach->pid, &attach->maps, err);
}

/* A process that ends gives its memory up first, and is over a moment later; one that executes a program
 * has none for a moment. */
#define ENDING_WAIT_MS 500
#define ENDING_LOOK_MS 5

static void remember_program(struct hl_attach *attach)
{
	attach->program = hl_proc_open_memory(attach->pid, O_RDONLY);
	attach->pidfd = (int)syscall(SYS_pidfd_open, attach->pid, 0);
}

static void forget_program(struct hl_attach *attach)
{
	if (attach->program >= 0)
		close(attach->program);
	if (attach->pidfd >= 0)
		close(attach->pidfd);
	attach->program = attach->pidfd = -1;
}

/* ${r}, unless the process has ended meanwhile or has executed another program: then that is the error, not
 * where it was noticed. */
static int error_or_ended(const struct hl_attach *attach, int r, struct hl_error *err)
{
	struct pollfd end = {.fd = attach->pidfd, .events = POLLIN};
	char byte;

	if (r >= 0 || r == -ENOMEM || attach->pidfd < 0)
		return r;
	/* Reading a dead process returns 0 bytes, not an error. */
	bool has_left = attach->program >= 0 && pread(attach->program, &byte, 1, 0) == 0;
	if (!has_left && !hl_process_has_ended(hl_proc_thread(attach->pid)))
		return r;
	for (int ms = 0; ms < ENDING_WAIT_MS; ms += ENDING_LOOK_MS) {
		HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
		if (has_left && hl_maps_read(attach->pid, &maps, NULL) == 0)
			return hl_attach_became_another(attach, err);
		if (poll(&end, 1, ENDING_LOOK_MS) != 1)
			continue;
		*err = (struct hl_error){0};
		return hl_attach_ended(attach, err);
	}
	return r;
}

static int look_for_recorder(struct hl_attach *attach, struct hl_error *err)
{
	/* One that is only linked, and has nowhere to record to, passes all calls on. */
	if (hl_maps_have_file(&attach->maps, "libheapline.so") &&
	    hl_maps_have_file(&attach->maps, "memfd:heapline"))
		return hl_error_set(err, -EBUSY,
				    "process %d has the recorder already: 'heapline ctl -p %d "
				    "status' asks it if it is recorded, and 'heapline stacks -p %d "
				    "60' looks from outside",
				    attach->pid, attach->pid, attach->pid);
	attach->has_record = hl_record_page_find(attach->remote, &attach->maps, &attach->record);
	if (!attach->has_record)
		return 0;
	if (attach->record.version != HL_RECORD_PAGE_VERSION)
		return hl_error_set(err, -EBUSY,
				    "process %d has the recorder of another version of heapline; "
				    "detach that by the same version",
				    attach->pid);
	/* What a forked child has of its parent's recorder counts nothing. */
	if (attach->record.target_pid != hl_process_inner_pid(attach->pid))
		return 0;
	if (has_lost_owner(attach))
		return 0;
	if (!hl_record_page_is_from_here(&attach->record))
		return hl_error_set(err, -EBUSY,
				    "process %d is attached to from another PID namespace; end "
				    "the 'heapline attach' there",
				    attach->pid);
	if (hl_record_page_is_owned(&attach->record) &&
	    hl_process_state((pid_t)attach->record.tool_pid) == 'T')
		return hl_error_set(err, -EBUSY,
				    "process %d is attached to already, by pid %" PRIu32
				    ", which is stopped: 'kill -CONT %" PRIu32 "' lets it go on",
				    attach->pid, attach->record.tool_pid, attach->record.tool_pid);
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
	attach->region_fd = attach->region_copy = attach->program = attach->pidfd = -1;
	attach->counts_layers = settings->counts_layers;
	int r = hl_hook_rules_make(settings->hooks, settings->presets, &attach->rules, err);
	for (size_t i = 0; r == 0 && settings->no_objects && hl_guest_traits[i]; i++)
		if (hl_guest_traits[i]->allocator)
			hl_hook_rules_leave_out(&attach->rules,
						hl_guest_traits[i]->allocator->preset);
	if (r == 0 && settings->no_pools)
		hl_hook_rules_leave_out_pools(&attach->rules);
	/* A child that is caught has yet to execute the program. */
	if (open_remote != hl_remote_open_caught)
		remember_program(attach);
	if (r == 0)
		r = open_remote(pid, &attach->remote, err);
	if (open_remote == hl_remote_open_caught)
		remember_program(attach);
	if (r == 0)
		r = read_maps(attach, err);
	if (r == 0)
		r = look_for_recorder(attach, err);
	if (r == 0 && !attach->has_record)
		r = find_entries(attach, err);
	if (r < 0) {
		r = error_or_ended(attach, r, err);
		hl_attach_free(attach);
		return r;
	}
	*ret_attach = attach;
	return 0;
}

int hl_attach_open(pid_t pid, const struct hl_attach_settings *settings,
		   struct hl_attach **ret_attach, struct hl_error *err)
{
	return open_target(pid, settings->waits ? hl_remote_open_waiting : hl_remote_open, settings,
			   ret_attach, err);
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

void hl_attach_free(struct hl_attach *attach)
{
	if (!attach)
		return;
	hl_attach_watch_end(attach);
	hl_attach_children_free(attach);
	disown(attach);
	if (attach->region_copy >= 0)
		close(attach->region_copy);
	hl_attach_forget_blocks(attach);
	hl_remote_free(attach->remote);
	forget_program(attach);
	hl_maps_release(&attach->maps);
	hl_hook_rules_release(&attach->rules);
	free(attach);
}

void hl_attach_unseen(const struct hl_attach *attach, bool is_recorded, char *ret_text,
		      size_t capacity)
{
	const struct hl_entry *first = NULL;
	char others[64] = "";
	int count = 0;

	for (size_t i = attach->found.extra_count; i-- > 0;)
		if (attach->left_out[i])
			first = &attach->found.extras[i], count++;

	ret_text[0] = '\0';
	if (attach->found.ender) {
		const char *library =
			attach->found.ender_is_own ? "linked as a shared library, " : "";
		snprintf(ret_text, capacity,
			 "blocks that '%s' frees count as in use to the end%s%s%s",
			 attach->found.ender, is_recorded ? "" : "; ", is_recorded ? "" : library,
			 is_recorded ? "" : "'heapline record' sees them freed");
	}
	if (!count)
		return;
	size_t used = strlen(ret_text);
	used += (size_t)snprintf(ret_text + used, capacity - used, "%s", used ? "; " : "");
	bool is_operator = strncmp(first->name, "_Z", 2) == 0;
	if (count > 1)
		snprintf(others, sizeof(others), " and %d more function%s", count - 1,
			 count > 2 ? "s" : "");
	snprintf(ret_text + used, capacity - used,
		 "calls to '%s'%s in '%s' are not recorded: its code leaves no room for a jump",
		 is_operator ? (first->name[2] == 'n' ? "operator new" : "operator delete")
			     : first->name,
		 others, first->module);
}

void hl_attach_late_problem(const struct hl_attach *attach, char *ret_text, size_t capacity)
{
	snprintf(ret_text, capacity, "%s", attach->watch ? "" : attach->late_problem);
}

void hl_attach_awaited(const struct hl_attach *attach, char *ret_text, size_t capacity)
{
	ret_text[0] = '\0';
	for (size_t i = attach->rules.count; i-- > 0;) {
		const struct hl_hook_rule *rule = &attach->rules.rules[i];
		if (rule->is_awaited)
			snprintf(ret_text, capacity, "'%s' of '%s' is recorded when that is loaded",
				 rule->symbol, rule->module);
	}
}

void hl_attach_pools(const struct hl_attach *attach, char *ret_text, size_t capacity)
{
	const char *before = "";
	size_t used = 0;

	ret_text[0] = '\0';
	for (size_t i = 0; i < attach->rules.count && used < capacity; i++) {
		const struct hl_hook_rule *rule = &attach->rules.rules[i];
		if (!rule->is_pool || !rule->holds || strcmp(rule->preset, before) == 0)
			continue;
		used += (size_t)snprintf(ret_text + used, capacity - used, "%s%s", used ? ", " : "",
					 rule->preset);
		before = rule->preset;
	}
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

bool hl_attach_set_state(struct hl_attach *attach, enum hl_record_state state)
{
	attach->record.state = state;
	return write_record(attach);
}

/* ---- whether a sandbox permits it ---- */

/*
 * What the recorder calls at its start, at its end, and now and then on the target's threads, in any
 * mode; the other system calls are ours. man/heapline-record.1.scd and man/heapline-attach.1.scd list
 * them.
 */
static int check_sandbox(struct hl_attach *attach, struct hl_error *err)
{
	enum { RW = PROT_READ | PROT_WRITE };
	static const struct hl_seccomp_call calls[] = {
		{"mmap", SYS_mmap, {0, 4096, PROT_NONE, MAP_SHARED}},
		{"mmap", SYS_mmap, {0, 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE}},
		{"mmap", SYS_mmap, {0, 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED}},
		{"mmap", SYS_mmap, {0, 4096, PROT_READ, MAP_PRIVATE}},
		{"mprotect", SYS_mprotect, {0, 4096, RW}},
		{"mremap", SYS_mremap, {0}},
		{"munmap", SYS_munmap, {0}},
		{"munlock", SYS_munlock, {0, 4096}},
		{"madvise", SYS_madvise, {0, 4096, MADV_DONTDUMP}},
		{"madvise", SYS_madvise, {0, 4096, MADV_DONTNEED}},
		{"madvise", SYS_madvise, {0, 4096, MADV_NOHUGEPAGE}},
		{"madvise", SYS_madvise, {0, 4096, MADV_RANDOM}},
		{"madvise", SYS_madvise, {0, 4096, MADV_WIPEONFORK}},
		{"madvise", SYS_madvise, {0, 4096, MADV_POPULATE_WRITE}},
		{"prlimit64", SYS_prlimit64, {0, RLIMIT_AS}},
		{"rt_sigprocmask", SYS_rt_sigprocmask, {0}},
		{"sched_yield", SYS_sched_yield, {0}},
		{"gettid", SYS_gettid, {0}},
		{"getpid", SYS_getpid, {0}},
		{"tgkill", SYS_tgkill, {1, 1, 0}},
		{"prctl", SYS_prctl, {PR_GET_NAME}},
		{"clock_gettime", SYS_clock_gettime, {CLOCK_MONOTONIC}},
		{"futex", SYS_futex, {0, FUTEX_WAKE}},
		{"futex", SYS_futex, {0, FUTEX_WAIT}},
		{"futex", SYS_futex, {0, FUTEX_LOCK_PI_PRIVATE}},
		{"nanosleep", SYS_nanosleep, {0}},
		{"kill", SYS_kill, {1}},
		{"openat", SYS_openat, {(uint64_t)AT_FDCWD, 0, O_RDONLY | O_CLOEXEC}},
		{"fstat", SYS_fstat, {0}},
		{"read", SYS_read, {0}},
		{"pread64", SYS_pread64, {0}},
		{"getcwd", SYS_getcwd, {0}},
		{"close", SYS_close, {0}},
		{HL_THREAD_POINTER_NAME, HL_THREAD_POINTER_CALL, {HL_THREAD_POINTER_ARGUMENT}},
	};

	return hl_remote_check_calls(attach->remote, calls,
				     HL_COUNT_OF(calls) - hl_reads_thread_pointer(), err);
}

/* Room for trampolines near libraries that come later is mapped by the target itself. */
static bool may_map_code(struct hl_attach *attach)
{
	static const struct hl_seccomp_call calls[] = {
		{"mmap",
		 SYS_mmap,
		 {0, 4096, PROT_READ | PROT_EXEC,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE}},
	};
	struct hl_error ignored;

	return hl_remote_check_calls(attach->remote, calls, HL_COUNT_OF(calls), &ignored) == 0;
}

/* Whether a forked child may do what it takes to be recorded. */
static bool may_follow(struct hl_attach *attach)
{
	static const struct hl_seccomp_call calls[] = {
		{"memfd_create", SYS_memfd_create, {0, MFD_CLOEXEC | MFD_ALLOW_SEALING}},
		{"prctl", SYS_prctl, {PR_GET_SECCOMP}},
		{"fstat", SYS_fstat, {0}},
	};
	struct hl_error ignored;

	return hl_remote_check_calls(attach->remote, calls, HL_COUNT_OF(calls), &ignored) == 0;
}

static bool has_filter(const struct hl_attach *attach)
{
	struct hl_process_condition condition;
	struct hl_error ignored;

	return hl_process_condition_read(attach->pid, &condition, &ignored) == 0 &&
	       condition.seccomp_mode != 0;
}

/* ---- bringing, by one stopped thread ---- */

/* Without CAP_IPC_LOCK all that a process maps counts against the limit, once it has called mlockall(MCL_FUTURE). */
static bool has_lock_limit(pid_t pid)
{
	HL_FREED char *limits = NULL;
	char soft[24];
	size_t length;

	if (hl_proc_read_all(pid, "limits", &limits, &length) < 0)
		return false;
	const char *row = strstr(limits, "Max locked memory");
	return row && sscanf(row, "Max locked memory %23s", soft) == 1 &&
	       strcmp(soft, "unlimited") != 0;
}

static int say_refusal(const struct hl_attach *attach, long r, struct hl_error *err)
{
	if (r == -ESRCH)
		return hl_attach_ended(attach, err);
	if ((r == -ENOMEM || r == -EAGAIN) && has_lock_limit(attach->pid))
		return hl_error_set(
			err, (int)r,
			"process %d cannot take the recorder in: %s; if it locks all that it maps "
			"(mlockall(2), MCL_FUTURE), raise its limit: 'prlimit -p %d "
			"--memlock=unlimited'",
			attach->pid, strerror((int)-r), attach->pid);
	const char *remedy =
		r == -EMFILE ? "; it has used up its file descriptors"
		/* Docker's profile allows pidfd_getfd(2) with that alone. */
		: r == -EPERM ? "; in a container, give heapline the capability CAP_SYS_PTRACE"
			      : "";
	return hl_error_set(err, (int)r, "process %d cannot take the recorder in: %s%s",
			    attach->pid, strerror((int)-r), remedy);
}

/* Takes out what a heapline that was killed has left. */
static int take_over(struct hl_attach *attach, struct hl_error *err)
{
	attach->is_patched = attach->may_be_inside = attach->record.state == HL_RECORD_STARTED;
	int r = hl_attach_give_back(attach, 2000, err);
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
		return error_or_ended(attach, (int)r, err);
	hl_attach_find_leftovers(attach);
	for (int tries = 0; tries < ROOM_TRIES; tries++) {
		if (tries > 0)
			r = read_maps(attach, err);
		if (tries == 0 || r == 0)
			r = hl_attach_prepare(attach, err);
		if (r == 0)
			r = hl_remote_stop_one(attach->remote, err);
		if (r < 0)
			return error_or_ended(attach, (int)r, err);
		r = hl_attach_place(attach, ret_region_fd);
		hl_remote_continue(attach->remote);
		attach->times.bring_us += hl_remote_stopped_us(attach->remote);
		if (r != -EEXIST)
			break;
	}
	if (r == 0) {
		attach->may_map_code = may_map_code(attach);
		attach->may_follow = may_follow(attach);
		attach->region_copy = fcntl(*ret_region_fd, F_DUPFD_CLOEXEC, 0);
	}
	return r < 0 ? error_or_ended(attach, say_refusal(attach, r, err), err) : 0;
}

/* ---- starting and patching ---- */

/* Programs can be forbidden to read the time stamp counter: to do so all the same kills them. The
 * answer lands on the image's stack, where nobody is. */
static bool may_read_clock(struct hl_attach *attach, uint64_t stack_top)
{
	uint64_t at = stack_top - sizeof(uint64_t);
	int32_t state = 0;

	long r = hl_remote_syscall(attach->remote, SYS_prctl, PR_GET_TSC, (long)at, 0, 0, 0, 0);
	if (r < 0)
		return r == -EINVAL && HL_CLOCK_IS_FREE;
	return hl_remote_read(attach->remote, at, &state, sizeof(state)) && state == PR_TSC_ENABLE;
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
		.current_service = found->current_service,
		.service_of = found->service_of,
		.answering = found->answering,
		.clock_gettime = may_read_tsc ? found->clock_gettime : 0, /* reads it, too */
		.program_headers = found->program_headers,
		.program_header_count = found->program_header_count,
		.page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
		.eh_frame = found->eh_frame,
		.eh_frame_bytes = found->eh_frame_bytes,
		.stack_end = found->stack_end,
		.has_glibc_chunks = found->has_glibc_chunks,
		.may_read_tsc = may_read_tsc,
		.may_read_fs_base = hl_reads_thread_pointer(),
		/* In another namespace of processes it has another number, or none. */
		.collector_pid = (pid_t)attach->record.target_pid == attach->pid ? getpid() : 0,
		.counts_layers = attach->counts_layers,
		.has_filter = has_filter(attach),
	};

	for (uint32_t i = 0; i < attach->record.patch_count; i++) {
		const struct hl_attach_patch *patch = &attach->patches[i];
		if (patch->rule == HL_ATTACH_NO_RULE)
			start.real[patch->entry->hook] = patch->real;
		else
			start.rules[patch->rule] = hl_entry_rule(patch->entry, patch->real);
	}
	if (!hl_remote_write(attach->remote, attached.start_room, &start, sizeof(start)) ||
	    !hl_attach_set_state(attach, HL_RECORD_STARTED))
		return -EIO;
	int r = hl_remote_call(attach->remote, attached.start, attached.start_room,
			       attached.stack_top, &result);
	if (r == 0)
		attach->region_fd = -1; /* closed by it */
	return r < 0 ? r : result;
}

int hl_attach_patch(struct hl_attach *attach, uint64_t region_bytes, struct hl_error *err)
{
	struct hl_error ignored;

	int r = hl_remote_stop_one(attach->remote, err);
	if (r < 0)
		return error_or_ended(attach, r, err);
	own(attach);
	int result = start_by_thread(attach, region_bytes);
	hl_remote_continue(attach->remote);
	if (result < 0) {
		r = say_refusal(attach, result, err);
	} else {
		r = hl_attach_patch_entries(attach, err);
		attach->is_patched |= r == 0;
	}
	if (r == 0) {
		hl_attach_watch_begin(attach);
		hl_remote_release(attach->remote);
	} else {
		r = error_or_ended(attach, r, err);
		hl_attach_give_back(attach, 1000, &ignored);
	}
	return r;
}

int hl_attach_detach(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err)
{
	struct hl_error problem = {0};

	hl_attach_watch_end(attach);
	hl_attach_children_end(attach);
	int r = hl_attach_give_back(attach, wait_ms, err);
	int left = hl_attach_leave_children(attach, wait_ms, &problem);
	if ((r == 0 || r == -ESRCH) && left < 0) {
		*err = problem;
		return left;
	}
	return r == -ESRCH ? 0 : r;
}
