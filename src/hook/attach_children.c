/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Takes in children that the target forks, and leaves them; see attach.h and struct hl_region_children.
 *
 * A forked child has copies of all that was brought into its parent: the record page, the image, the
 * patches. Once it has a region, only the record page must say that it is this process'.
 */
#include "hook/attach_parts.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "process/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_NS (HL_NS_PER_SECOND / 5) /* whether this is over */

struct hl_attach_children {
	struct hl_region_header *header;
	pthread_t thread;
	_Atomic bool is_over;
	int event_fd;
	struct joined {
		pid_t pid;
		int pidfd;
		uint32_t place; /* where it asked */
		uint64_t post;	/* and how */
	} * joined;
	size_t count, capacity;
};

/* ---- the bell ---- */

static void ring(const struct hl_attach_children *children)
{
	syscall(SYS_futex, &children->header->children.bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void *listen_for_bell(void *context)
{
	struct hl_attach_children *children = context;
	const struct timespec look = {.tv_nsec = LOOK_NS};
	uint32_t heard = 0;

	while (!children->is_over) {
		uint32_t bell = atomic_load(&children->header->children.bell);
		if (bell != heard)
			eventfd_write(children->event_fd, 1);
		heard = bell;
		syscall(SYS_futex, &children->header->children.bell, FUTEX_WAIT, bell, &look, NULL,
			0);
	}
	return NULL;
}

static void free_children(struct hl_attach_children *children)
{
	for (size_t i = 0; i < children->count; i++)
		close(children->joined[i].pidfd);
	free(children->joined);
	if (children->header)
		munmap(children->header, sizeof(*children->header));
	if (children->event_fd >= 0)
		close(children->event_fd);
	free(children);
}

static bool start(struct hl_attach_children *children)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = pthread_create(&children->thread, NULL, listen_for_bell, children);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r == 0;
}

int hl_attach_follow(struct hl_attach *attach)
{
	struct hl_attach_children *children = calloc(1, sizeof(*children));
	void *header = MAP_FAILED;

	if (!children)
		return -ENOMEM;
	if (!attach->may_follow) {
		free(children);
		return -EPERM;
	}
	children->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (children->event_fd >= 0 && attach->region_copy >= 0)
		header = mmap(NULL, sizeof(*children->header), PROT_READ | PROT_WRITE, MAP_SHARED,
			      attach->region_copy, 0);
	children->header = header == MAP_FAILED ? NULL : header;
	if (!children->header || !start(children)) {
		free_children(children);
		return -EIO;
	}
	attach->children = children;
	atomic_store(&children->header->children.is_heard, 1);
	return children->event_fd;
}

/* ---- who asks ---- */

/* Whether the record page in the memory of ${memory_fd} is a copy of the one that we have made. */
static bool has_our_page(const struct hl_attach *attach, int memory_fd)
{
	const struct hl_record_page *ours = &attach->record;
	struct hl_record_page page;

	return pread(memory_fd, &page, sizeof(page), (off_t)ours->blocks[0].address) ==
		       sizeof(page) &&
	       !memcmp(page.magic, ours->magic, sizeof(page.magic)) &&
	       page.version == ours->version && page.tool_pid == ours->tool_pid &&
	       page.tool_start_ticks == ours->tool_start_ticks &&
	       page.tool_namespace == ours->tool_namespace && page.attached == ours->attached;
}

/* Whether process ${pid} is a child that sees itself as ${inner}. It is believed of nobody that has not
 * our record page. */
static bool is_child(const struct hl_attach *attach, pid_t pid, uint32_t inner)
{
	HL_CLOSED int memory_fd = -1;

	if (pid == attach->pid || hl_process_inner_pid(pid) != inner)
		return false;
	memory_fd = hl_proc_open_memory(pid, O_RDWR);
	return memory_fd >= 0 && has_our_page(attach, memory_fd);
}

/* The process that sees itself as ${inner}, or 0 if it has ended or is not ours. */
static pid_t find_child(const struct hl_attach *attach, uint32_t inner)
{
	pid_t found = 0;

	if (is_child(attach, (pid_t)inner, inner))
		return (pid_t)inner;
	if (attach->record.target_pid == (uint32_t)attach->pid)
		return 0;
	DIR *directory = opendir("/proc");
	for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
		pid_t pid = atoi(entry->d_name);
		if (pid > 0 && is_child(attach, pid, inner))
			found = pid;
	}
	if (directory)
		closedir(directory);
	return found;
}

static void wake_child(_Atomic uint64_t *place)
{
	syscall(SYS_futex, hl_child_post_futex(place), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static uint64_t with_state(uint64_t post, enum hl_child_state state)
{
	return hl_child_post(hl_child_post_pid(post), hl_child_post_fd(post), state);
}

/* Unless the child has gone on. */
static void answer(struct hl_attach_children *children, uint32_t place, uint64_t post, bool joined)
{
	_Atomic uint64_t *at = &children->header->children.posts[place];
	uint64_t taken = with_state(post, HL_CHILD_TAKEN);

	if (atomic_compare_exchange_strong(at, &taken,
					   joined ? with_state(post, HL_CHILD_JOINED) : 0))
		wake_child(at);
}

static bool has_ended(int pidfd)
{
	struct pollfd poller = {.fd = pidfd, .events = POLLIN};

	return poll(&poller, 1, 0) == 1;
}

/* A child that was killed leaves its answer there; one that is stopped will see it. */
static void sweep(struct hl_attach_children *children, uint32_t place, uint64_t word)
{
	if (hl_child_post_state(word) != HL_CHILD_JOINED)
		return;
	for (size_t i = 0; i < children->count; i++) {
		const struct joined *child = &children->joined[i];
		if (child->place == place && with_state(child->post, HL_CHILD_JOINED) == word &&
		    !has_ended(child->pidfd))
			return;
	}
	atomic_compare_exchange_strong(&children->header->children.posts[place], &word, 0);
}

/* Opens the process that asks, and its region. 0 or a negative errno. */
static int take(const struct hl_attach *attach, uint64_t post, struct hl_attach_child *ret_child)
{
	pid_t pid = find_child(attach, hl_child_post_pid(post));
	HL_CLOSED int pidfd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (pidfd < 0)
		return -ESRCH;
	int region_fd = (int)syscall(SYS_pidfd_getfd, pidfd, hl_child_post_fd(post), 0);
	/* Once more, as the number may have become another's before it was opened. */
	if (region_fd < 0 || !is_child(attach, pid, hl_child_post_pid(post))) {
		if (region_fd >= 0)
			close(region_fd);
		return -EPERM;
	}
	ret_child->pid = pid;
	ret_child->region_fd = region_fd;
	ret_child->post = post;
	return 0;
}

static bool take_posted(const struct hl_attach *attach, struct hl_attach_child *ret_child)
{
	struct hl_attach_children *children = attach->children;

	for (uint32_t i = 0; i < HL_CHILD_POSTS; i++) {
		_Atomic uint64_t *place = &children->header->children.posts[i];
		uint64_t post = atomic_load(place);
		if (!post)
			continue;
		if (hl_child_post_state(post) != HL_CHILD_POSTED) {
			sweep(children, i, post);
			continue;
		}
		if (!atomic_compare_exchange_strong(place, &post, with_state(post, HL_CHILD_TAKEN)))
			continue;
		ret_child->place = i;
		if (take(attach, post, ret_child) == 0)
			return true;
		answer(children, i, post, false);
	}
	return false;
}

bool hl_attach_next_child(struct hl_attach *attach, struct hl_attach_child *ret_child)
{
	struct hl_attach_children *children = attach->children;
	eventfd_t ignored;

	if (!children)
		return false;
	if (take_posted(attach, ret_child))
		return true;
	eventfd_read(children->event_fd, &ignored);
	if (!take_posted(attach, ret_child)) /* came meanwhile */
		return false;
	eventfd_write(children->event_fd, 1); /* there may be more */
	return true;
}

static void forget_ended(struct hl_attach_children *children)
{
	size_t left = 0;

	for (size_t i = 0; i < children->count; i++)
		if (has_ended(children->joined[i].pidfd))
			close(children->joined[i].pidfd);
		else
			children->joined[left++] = children->joined[i];
	children->count = left;
}

/* From here on the record page says that the process is entered itself. */
static bool sign(struct hl_attach *attach, const struct hl_attach_child *child)
{
	struct hl_attach_children *children = attach->children;
	uint32_t inner = hl_child_post_pid(child->post);
	uint64_t at =
		attach->record.blocks[0].address + offsetof(struct hl_record_page, target_pid);
	HL_CLOSED int memory_fd = hl_proc_open_memory(child->pid, O_RDWR);
	int pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);

	forget_ended(children);
	if (memory_fd < 0 || pidfd < 0 || !has_our_page(attach, memory_fd) ||
	    HL_ARRAY_APPEND(children->joined, children->count, children->capacity,
			    ((struct joined){child->pid, pidfd, child->place, child->post})) < 0) {
		if (pidfd >= 0)
			close(pidfd);
		return false;
	}
	return pwrite(memory_fd, &inner, sizeof(inner), (off_t)at) == sizeof(inner);
}

void hl_attach_answer_child(struct hl_attach *attach, const struct hl_attach_child *child,
			    bool has_region)
{
	bool joined = has_region && sign(attach, child);

	answer(attach->children, child->place, child->post, joined);
}

/* ---- leaving ---- */

void hl_attach_children_end(struct hl_attach *attach)
{
	struct hl_attach_children *children = attach->children;

	if (!children || children->is_over)
		return;
	children->is_over = true;
	ring(children);
	pthread_join(children->thread, NULL);
	atomic_store(&children->header->children.is_heard, 0);
	for (uint32_t i = 0; i < HL_CHILD_POSTS; i++) {
		_Atomic uint64_t *place = &children->header->children.posts[i];
		uint64_t post = atomic_load(place);
		if (hl_child_post_state(post) == HL_CHILD_POSTED &&
		    atomic_compare_exchange_strong(place, &post, 0))
			wake_child(place);
	}
}

static int leave(const struct hl_attach *attach, pid_t pid, uint32_t wait_ms, struct hl_error *err)
{
	struct hl_attach *child = calloc(1, sizeof(*child));

	if (!child)
		return hl_error_set(err, -ENOMEM, "out of memory");
	child->pid = pid;
	child->region_fd = child->region_copy = child->program = child->pidfd = -1;
	int r = hl_remote_open(pid, &child->remote, err);
	child->has_record =
		r == 0 &&
		hl_remote_read(child->remote, attach->record.blocks[0].address, &child->record,
			       sizeof(child->record)) &&
		!memcmp(child->record.magic, attach->record.magic, sizeof(child->record.magic)) &&
		child->record.tool_start_ticks == attach->record.tool_start_ticks &&
		child->record.block_count && child->record.block_count <= HL_RECORD_BLOCKS_MAX &&
		child->record.patch_count <= HL_ENTRIES_MAX;
	child->is_patched = child->may_be_inside = child->has_record;
	if (r == 0)
		r = hl_attach_give_back(child, wait_ms, err);
	hl_attach_free(child);
	return r;
}

/* Not once it has ended or runs another program. */
static bool has_us(const struct hl_attach *attach, const struct joined *child)
{
	HL_CLOSED int memory_fd = hl_proc_open_memory(child->pid, O_RDWR);

	return memory_fd >= 0 && has_our_page(attach, memory_fd) && !has_ended(child->pidfd);
}

int hl_attach_leave_children(struct hl_attach *attach, uint32_t wait_ms, struct hl_error *err)
{
	struct hl_attach_children *children = attach->children;
	int result = 0;

	for (size_t i = 0; children && i < children->count; i++) {
		struct hl_error problem = {0};
		if (has_ended(children->joined[i].pidfd))
			continue;
		int r = leave(attach, children->joined[i].pid, wait_ms, &problem);
		if (r < 0 && result == 0 && has_us(attach, &children->joined[i])) {
			result = r;
			*err = problem;
		}
	}
	return result;
}

void hl_attach_children_free(struct hl_attach *attach)
{
	hl_attach_children_end(attach);
	if (attach->children)
		free_children(attach->children);
	attach->children = NULL;
}
