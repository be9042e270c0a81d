/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory from the system; see sys.h. */
#include "recorder/sys.h"

#include <sys/resource.h>

void *hl_sys_mmap(size_t bytes, int protection, int flags, int fd)
{
	long address = hl_sys6(SYS_mmap, 0, (long)bytes, protection, flags, fd, 0);

	return address < 0 && address > -4096 ? NULL : (void *)address;
}

long hl_sys_munmap(void *address, size_t bytes)
{
	return HL_SYS(SYS_munmap, address, bytes, 0);
}

uint64_t hl_sys_address_space_limit(void)
{
	struct rlimit limit;
	long result = hl_sys6(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0);

	return result < 0 || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

long hl_sys_madvise(void *address, size_t bytes, int advice)
{
	return HL_SYS(SYS_madvise, address, bytes, advice);
}
