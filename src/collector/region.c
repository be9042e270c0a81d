/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes regions out of memfds, with the clock that their time stamps are read by; see region_read.h. */
#include "collector/region_read.h"

#include "base/clock.h"
#include "base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

/* ---- time stamps: asks processor and kernel ---- */

#define CLOCK_SOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

bool hl_time_stamps_are_clock(const char *path)
{
	static const char *const sources[] = {HL_MACHINE_CLOCK_SOURCES};
	char text[64] = "";

	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t bytes = read(fd, text, sizeof(text) - 1);
	close(fd);
	for (size_t i = 0; bytes > 0 && i < sizeof(sources) / sizeof(*sources); i++)
		if (strcmp(text, sources[i]) == 0)
			return true;
	return false;
}

/* Whether the time stamp counter tells what came first, for HL_REGION_STAMPS: it runs at one rate on
 * all processors, at all times, and the kernel relies on it, which it does only while no two
 * processors differ. */
static bool time_stamps_work(void)
{
	static _Atomic bool work;
	/* Asked again then: in a virtual machine the processor is slow to answer. Written last. */
	static _Atomic uint64_t until_ns;
	uint64_t now_ns = hl_clock_ns(CLOCK_MONOTONIC);

	if (now_ns >= atomic_load(&until_ns)) {
		atomic_store(&work, hl_machine_clock_is_steady() &&
					    hl_time_stamps_are_clock(CLOCK_SOURCE));
		atomic_store(&until_ns, now_ns + HL_NS_PER_SECOND);
	}
	return atomic_load(&work);
}

/* ---- regions ---- */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

#define REGION_SHARE_OF_LIMIT 8
#define SIZE_SEALS	      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* A file may not grow past RLIMIT_FSIZE, and a memfd is a file. 0 = no bound. */
static uint64_t size_bound(uint64_t address_space_limit)
{
	uint64_t bound = address_space_limit / REGION_SHARE_OF_LIMIT;
	struct rlimit file_size;

	if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur < bound)
		bound = file_size.rlim_cur;
	return bound >= UINT64_MAX / REGION_SHARE_OF_LIMIT ? 0 : bound;
}

/* Some systems allow only memfds that cannot be executed; older ones lack the flag. */
static int make_memfd(void)
{
	int fd = memfd_create("heapline", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("heapline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd;
}

/*
 * The target has made a memfd for us, and may meanwhile have sealed it, so that it stays able to
 * shrink it, or put another file in its place: one that we would cut off, or huge pages, which run
 * out. Only memfds have seals to add.
 */
static bool is_empty_memfd(int fd)
{
	struct stat status;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && !(seals & SIZE_SEALS) && fstat(fd, &status) == 0 &&
	       S_ISREG(status.st_mode) && status.st_size == 0 && fstatfs(fd, &system) == 0 &&
	       system.f_type == TMPFS_MAGIC;
}

/* Nobody, above all not the target, shall take memory away from under our reading. */
static int seal(int fd, size_t bytes)
{
	struct stat status;

	if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS) < 0 || fstat(fd, &status) < 0)
		return -errno;
	return (uint64_t)status.st_size == bytes ? 0 : -EBADFD;
}

int hl_region_make(const struct hl_region_settings *settings, uint64_t address_space_limit,
		   int memfd, struct hl_region *ret_region)
{
	struct hl_region region;

	hl_region_layout(&region.layout, size_bound(address_space_limit), settings->mode);
	region.bytes = region.layout.region_bytes;
	int fd = memfd >= 0 ? memfd : make_memfd();
	if (fd < 0)
		return -errno;
	int r = memfd < 0 || is_empty_memfd(fd) ? 0 : -EBADFD;
	if (r == 0)
		r = ftruncate(fd, (off_t)region.bytes) == 0 ? seal(fd, region.bytes) : -errno;
	void *base = MAP_FAILED;
	if (r == 0) {
		base = mmap(NULL, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			    fd, 0);
		r = base == MAP_FAILED ? -errno : 0;
	}
	if (r < 0) {
		close(fd);
		return r;
	}
	/* Our dump would be as large as the target's memory. */
	madvise(base, region.bytes, MADV_DONTDUMP);
	region.header = base;
	region.fd = fd;
	atomic_init(&region.layout.mode, hl_mode_first(settings->mode));
	atomic_init(&region.layout.flags,
		    (settings->mappings ? HL_REGION_MAPPINGS : 0u) |
			    (settings->sizes ? HL_REGION_SIZES : 0u) |
			    (settings->no_scripts ? HL_REGION_NO_SCRIPTS : 0u) |
			    (settings->no_objects ? HL_REGION_NO_OBJECTS : 0u) |
			    (settings->lossy ? HL_REGION_LOSSY : 0u) |
			    (settings->leaks ? HL_REGION_LEAKS : 0u) |
			    (settings->follow ? HL_REGION_FOLLOW : 0u) |
			    (time_stamps_work() ? HL_REGION_STAMPS : 0u));
	region.layout.sample_bytes = settings->sample_bytes;
	region.layout.spare_sample_bytes = settings->spare_sample_bytes;
	*region.header = region.layout;
	*ret_region = region;
	return 0;
}

void hl_region_release(struct hl_region *region)
{
	if (!region->header)
		return;
	munmap(region->header, region->bytes);
	close(region->fd);
	region->header = NULL;
}
