/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that changes nothing while tests look at its pages. It is built without sanitizers,
 * whose shadow memory takes seconds to scan. It maps memory of two kinds, writes where they lie to
 * standard output as struct still_areas, and then rests until it is killed.
 */
#include "still.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static char *map(int flags)
{
	return mmap(NULL, STILL_AREA_BYTES, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
	struct still_areas areas = {.own = map(MAP_PRIVATE), .shared = map(MAP_SHARED)};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (areas.own == MAP_FAILED || areas.shared == MAP_FAILED)
		return 1;
	madvise(areas.own, STILL_AREA_BYTES, MADV_NOHUGEPAGE);
	memset(areas.own, 1, STILL_AREA_BYTES / 2);
	memset(areas.shared, 1, STILL_AREA_BYTES / 4);
	if (write(STDOUT_FILENO, &areas, sizeof(areas)) != sizeof(areas))
		return 1;
	for (;;)
		pause();
}
