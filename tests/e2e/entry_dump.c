/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints what was found of a process' allocator, as JSON: entry_dump PID */
#include "hook/entries.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_entries(const struct hl_entries *found)
{
	for (uint32_t i = 0; i < found->count; i++) {
		const struct hl_entry *entry = &found->entries[i];
		printf("%s{\"hook\": %d, \"name\": \"%s\", \"module\": \"%s\", \"address\": "
		       "%" PRIu64 ", \"bytes\": %" PRIu64 "}",
		       i ? ",\n" : "", entry->hook, entry->name, entry->module, entry->address,
		       entry->bytes);
	}
}

int main(int count, char **arguments)
{
	struct hl_maps maps = {0};
	struct hl_entries found;
	struct hl_error err = {0};

	pid_t pid = count == 2 ? atoi(arguments[1]) : 0;
	int r = pid ? hl_maps_read(pid, &maps, &err) : -EINVAL;
	if (r == 0)
		r = hl_entries_find(pid, &maps, &found, &err);
	hl_maps_release(&maps);
	if (r < 0) {
		printf("{\"error\": \"%s\", \"code\": \"%s\"}\n", err.text, strerrorname_np(-r));
		return 0;
	}
	printf("{\"allocator\": \"%s\", \"usable_size\": %" PRIu64 ", \"find_object\": %" PRIu64
	       ",\n\"clock\": %" PRIu64 ", \"program_headers\": %" PRIu64
	       ", \"program_header_count\": %" PRIu64 ",\n\"program_entry\": %" PRIu64
	       ", \"stack_end\": %" PRIu64 ", \"has_glibc_chunks\": %s, \"is_static\": %s,\n"
	       "\"entries\": [",
	       found.allocator, found.usable_size, found.find_object, found.clock_gettime,
	       found.program_headers, found.program_header_count, found.program_entry,
	       found.stack_end, found.has_glibc_chunks ? "true" : "false",
	       found.is_static ? "true" : "false");
	print_entries(&found);
	printf("]}\n");
	return 0;
}
