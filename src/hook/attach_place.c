/* SPDX-License-Identifier: BSD-2-Clause */
/* Maps and fills memory of the target, by one stopped thread; see attach_parts.h. */
#include "hook/attach_parts.h"

#include "base/cleanup.h"
#include "process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

/* In the record page, behind what record_page.h says. */
#define NAME_OFFSET (HL_RECORD_PAGE_BYTES - 64)

static long map_block(struct hl_attach *attach, const struct hl_attach_block *block)
{
	long at = hl_remote_syscall(attach->remote, SYS_mmap, (long)block->address,
				    (long)block->size, PROT_READ,
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
	uint64_t base = attach->blocks[0].address + HL_ATTACH_PAGE_BYTES;

	long r = protect(attach, attach->blocks[0].address, HL_ATTACH_PAGE_BYTES, PROT_READ);
	for (uint32_t i = 0; r == 0 && i < image->part_count; i++)
		r = protect(attach, base + image->parts[i].offset, image->parts[i].size,
			    image->parts[i].protection);
	if (r == 0)
		r = protect(attach, base + image->size, HL_ATTACH_TRAMPOLINE_BYTES,
			    PROT_READ | PROT_EXEC);
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

/* Has heap/memory_live.c know the block: nothing else has both. The image belongs into a core file. */
static void mark_block(struct hl_attach *attach, const struct hl_attach_block *block)
{
	hl_remote_syscall(attach->remote, SYS_madvise, (long)block->address, (long)block->size,
			  MADV_NOHUGEPAGE, 0, 0, 0);
	hl_remote_syscall(attach->remote, SYS_madvise, (long)block->address, (long)block->size,
			  MADV_RANDOM, 0, 0, 0);
}

/* Maps and fills the blocks. -EEXIST: room has been taken meanwhile. What has been mapped stays. */
static long place_blocks(struct hl_attach *attach, uint32_t *ret_mapped)
{
	long r = 0;

	*ret_mapped = 0;
	for (uint32_t i = 0; r >= 0 && i < attach->record.block_count; i++) {
		const struct hl_attach_block *block = &attach->blocks[i];
		r = map_block(attach, block);
		if (r < 0)
			break;
		*ret_mapped = i + 1;
		/* At once, so that another heapline finds it should this one be killed. */
		if (i > 0)
			tell_blocks(attach, i + 1);
		else
			hl_remote_write(attach->remote, block->address, block->bytes,
					sizeof(attach->record));
		r = i ? protect(attach, block->address, block->size, PROT_READ | PROT_EXEC)
		      : protect_first_block(attach);
		if (r == 0)
			mark_block(attach, block);
		if (r == 0 &&
		    !hl_remote_write(attach->remote, block->address, block->bytes, block->size))
			r = -EIO;
	}
	return r;
}

void hl_attach_unmap_blocks(struct hl_attach *attach, uint32_t count)
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

/* The target's descriptor ${fd}, of a memfd, as ours. */
static int fetch_descriptor(pid_t pid, long fd)
{
	pid_t thread = hl_proc_thread(pid);
	HL_CLOSED int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%ld", thread, fd);
	/* A first thread that has ended has no descriptors. */
	int ours = thread != pid ? open(path, O_RDWR | O_CLOEXEC)
		   : pidfd < 0	 ? -1
				 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	return ours < 0 ? -errno : ours;
}

/* Whether descriptor ${fd} of the target is a memfd that some heapline has made. */
static bool is_memfd(const struct hl_attach *attach, int fd)
{
	static const char name[] = "/memfd:heapline (deleted)";
	char path[64], link[sizeof(name)];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", hl_proc_thread(attach->pid), fd);
	return readlink(path, link, sizeof(link)) == sizeof(name) - 1 &&
	       !memcmp(link, name, sizeof(name) - 1);
}

static void close_there(struct hl_attach *attach, int fd)
{
	if (is_memfd(attach, fd))
		hl_remote_syscall(attach->remote, SYS_close, fd, 0, 0, 0, 0, 0);
}

void hl_attach_close_memfd(struct hl_attach *attach)
{
	if (attach->region_fd >= 0)
		close_there(attach, attach->region_fd);
	attach->region_fd = -1;
}

void hl_attach_find_leftovers(struct hl_attach *attach)
{
	char path[32], comm[16] = "";

	attach->leftover_count = 0;
	if (hl_proc_read(attach->pid, "comm", comm, sizeof(comm)) < 0 ||
	    !strcmp(comm, "heapline\n"))
		return;
	snprintf(path, sizeof(path), "/proc/%d/fd", hl_proc_thread(attach->pid));
	DIR *directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && is_memfd(attach, fd) &&
		    attach->leftover_count < HL_COUNT_OF(attach->leftovers))
			attach->leftovers[attach->leftover_count++] = fd;
	}
	if (directory)
		closedir(directory);
}

/* With one thread stopped. */
long hl_attach_place(struct hl_attach *attach, int *ret_region_fd)
{
	uint32_t mapped;

	long r = place_blocks(attach, &mapped);
	if (r >= 0) {
		for (uint32_t i = 0; i < attach->leftover_count; i++)
			close_there(attach, attach->leftovers[i]);
		r = make_memfd(attach);
	}
	if (r >= 0) {
		attach->region_fd = (int)r;
		r = fetch_descriptor(attach->pid, r);
	}
	if (r >= 0) {
		*ret_region_fd = (int)r;
		attach->has_record = true;
		return 0;
	}
	hl_attach_close_memfd(attach);
	hl_attach_unmap_blocks(attach, mapped);
	return r;
}
