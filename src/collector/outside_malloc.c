/* SPDX-License-Identifier: BSD-2-Clause */
/* Says what grew outside malloc; see outside_malloc.h. */
#include "collector/outside_malloc.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "elf/elf.h"
#include "guests/traits.h"
#include "process/maps.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GROWTH_MIN	  (INT64_C(4) << 20)
#define GROWTH_MIN_TRACED (INT64_C(1) << 20) /* in the seconds of a trace */
#define SHARE_OF_GROWTH	  4		     /* what malloc gave is less than one part of these */
#define BYTES_PER_MIB	  (double)(1 << 20)

#define WAY_MAX 256

static bool exports(const char *path, const char *name)
{
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = fd < 0 ? NULL : hl_elf_open(fd);
	uint64_t address;

	return elf && hl_elf_find_symbol(elf, HL_ELF_DYNSYM, name, &address);
}

static bool begins_with(const char *text, const char *beginning)
{
	return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* The guest in the process that has objects in memory of its own, by its program or a library; NULL: none. */
static const struct hl_guest_traits *find_guest(const struct hl_outside_malloc *found)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	bool has_maps = found->runs && hl_maps_read(found->pid, &maps, NULL) == 0;

	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_guest_traits *guest = hl_guest_traits[i];
		if (!guest->objects)
			continue;
		if (begins_with(hl_path_basename(found->executable), guest->program))
			return guest;
		for (size_t at = 0; has_maps && at < maps.count; at++)
			if (begins_with(hl_path_basename(maps.maps[at].path), guest->library))
				return guest;
	}
	return NULL;
}

/* A clause that names a command for this very process, or for its program. */
static void format_way(const struct hl_outside_malloc *found, const struct hl_guest_traits *guest,
		       char way[WAY_MAX])
{
	bool is_php = exports(found->executable, "_emalloc");
	int pid = (int)found->pid;

	if (is_php && found->runs)
		snprintf(way, WAY_MAX, "'heapline attach -p %d' records the allocator of PHP", pid);
	else if (is_php)
		snprintf(way, WAY_MAX,
			 "with USE_ZEND_ALLOC=0 in its environment PHP allocates by malloc");
	else if (guest && found->is_traced && found->runs)
		snprintf(way, WAY_MAX, "'heapline attach -p %d' records %s", pid, guest->objects);
	else if (guest && found->ran_before && !found->allocations)
		snprintf(way, WAY_MAX, "%s are recorded from its next call of malloc on",
			 guest->objects);
	else if (found->runs)
		snprintf(way, WAY_MAX,
			 "'heapline pgfault -p %d 60' shows the code that touches new memory", pid);
	else
		snprintf(way, WAY_MAX,
			 "while it runs, 'heapline pgfault --comm %s 60' shows the code that "
			 "touches new memory",
			 hl_path_basename(found->executable));
}

bool hl_outside_malloc_describe(const struct hl_outside_malloc *found,
				char ret_sentence[HL_WARNING_BYTES])
{
	const char *name = hl_path_basename(found->executable);
	const struct hl_guest_traits *guest = find_guest(found);
	bool is_empty = !found->allocations;
	bool grew =
		found->rss_growth_bytes >= (found->is_traced ? GROWTH_MIN_TRACED : GROWTH_MIN) &&
		found->malloc_bytes < found->rss_growth_bytes / SHARE_OF_GROWTH &&
		found->alloc_bytes < found->rss_growth_bytes;
	/* Such a guest frees and allocates objects without a call of malloc, too. */
	bool is_unseen = guest && found->ran_before && is_empty;
	char way[WAY_MAX], had[64] = "", growth[64] = "";

	if (!grew && !is_unseen)
		return false;
	format_way(found, guest, way);
	if (!is_empty)
		snprintf(had, sizeof(had), "at most %.1f MiB from malloc",
			 (double)found->malloc_bytes / BYTES_PER_MIB);
	if (grew)
		snprintf(growth, sizeof(growth), ", while RSS rose by %.1f MiB",
			 (double)found->rss_growth_bytes / BYTES_PER_MIB);
	snprintf(ret_sentence, HL_WARNING_BYTES, "%s in process %d (%s)%s: %s",
		 is_empty ? "not one call of malloc" : had, (int)found->pid, name, growth, way);
	return true;
}
