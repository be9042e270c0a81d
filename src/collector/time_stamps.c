/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks processor and kernel; see region.h. */
#include "collector/region.h"

#include <cpuid.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define CLOCK_SOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

/* Advanced power management: AMD64 Architecture Programmer's Manual, volume 3, appendix E. */
#define POWER_LEAF    0x80000007u
#define INVARIANT_TSC (1u << 8)

bool hl_time_stamps_are_clock(const char *path)
{
	/* The latter two in virtual machines, whose kernels reckon from the counter, too. */
	static const char *const sources[] = {"tsc\n", "kvm-clock\n",
					      "hyperv_clocksource_tsc_page\n"};
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

bool hl_time_stamps_work(void)
{
	unsigned eax, ebx, ecx, edx;

	return __get_cpuid(POWER_LEAF, &eax, &ebx, &ecx, &edx) && edx & INVARIANT_TSC &&
	       hl_time_stamps_are_clock(CLOCK_SOURCE);
}
