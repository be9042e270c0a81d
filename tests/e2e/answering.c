/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage: answering PID
 *
 * For heapline PID, which is stopped: begins to answer the next thread of the joined process that asks
 * for what it has loaded, as heapline would, and does not go on, as if that had been stopped in the
 * middle. Says "asked" then, and "gone on" when the thread has.
 */
#include "program.h"

#include "region/region.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_US 1000

static struct hl_region_header *map_region(const char *pid)
{
	char path[64], name[64];

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *folder = opendir(path);
	REQUIRE(folder);
	for (const struct dirent *entry; (entry = readdir(folder));) {
		snprintf(path, sizeof(path), "/proc/%s/fd/%.10s", pid, entry->d_name);
		ssize_t length = readlink(path, name, sizeof(name) - 1);
		name[length < 0 ? 0 : length] = '\0';
		if (strncmp(name, "/memfd:heapline", strlen("/memfd:heapline")) != 0)
			continue;
		int fd = open(path, O_RDWR);
		REQUIRE(fd >= 0);
		closedir(folder);
		void *header = mmap(NULL, sizeof(struct hl_region_header), PROT_READ | PROT_WRITE,
				    MAP_SHARED, fd, 0);
		REQUIRE(header != MAP_FAILED);
		return header;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 2);
	struct hl_region_header *header = map_region(argv[1]);
	REQUIRE(header);
	for (;; usleep(LOOK_US)) {
		uint32_t word = atomic_load(&header->libraries);
		uint32_t answering =
			hl_libraries_word(hl_libraries_answers(word), HL_LIBRARIES_ANSWERING);
		if (hl_libraries_state_of(word) == HL_LIBRARIES_ASKED &&
		    atomic_compare_exchange_strong(&header->libraries, &word, answering))
			break;
	}
	printf("asked\n");
	fflush(stdout);
	while (hl_libraries_state_of(atomic_load(&header->libraries)) != HL_LIBRARIES_MISSED)
		usleep(LOOK_US);
	printf("gone on\n");
	return 0;
}
