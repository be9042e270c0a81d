/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints what was found of a process' allocator, as JSON: entry_dump PID [HOOK...] */
#include "hook/entries.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_entries(const char *name, const struct hl_entry *entries, uint32_t count)
{
	printf(",\n\"%s\": [", name);
	for (uint32_t i = 0; i < count; i++) {
		const struct hl_entry *entry = &entries[i];
		printf("%s{\"hook\": %d, \"throws\": %d, \"places\": [%d, %d, %d], "
		       "\"name\": \"%s\", \"module\": \"%s\", \"address\": %" PRIu64
		       ", \"bytes\": %" PRIu64 "}",
		       i ? ",\n" : "", entry->hook, entry->throws, entry->size_at, entry->count_at,
		       entry->pointer_at, entry->name, entry->module, entry->address, entry->bytes);
	}
	printf("]");
}

int main(int count, char **arguments)
{
	struct hl_maps maps = {0};
	struct hl_hook_rules rules = {0};
	struct hl_entries found;
	struct hl_error err = {0};

	pid_t pid = count > 1 ? atoi(arguments[1]) : 0;
	int r = pid ? hl_maps_read(pid, &maps, &err) : -EINVAL;
	if (r == 0)
		r = hl_hook_rules_make((const char *const *)arguments + 2, NULL, &rules, &err);
	if (r == 0)
		r = hl_entries_find(pid, &maps, &rules, &found, &err);
	hl_hook_rules_release(&rules);
	hl_maps_release(&maps);
	if (r < 0) {
		printf("{\"error\": \"%s\", \"code\": \"%s\"}\n", err.text, strerrorname_np(-r));
		return 0;
	}
	printf("{\"allocator\": \"%s\", \"usable_size\": %" PRIu64 ", \"find_object\": %" PRIu64
	       ",\n\"clock\": %" PRIu64 ", \"program_headers\": %" PRIu64
	       ", \"program_header_count\": %" PRIu64 ",\n\"program_entry\": %" PRIu64
	       ", \"stack_end\": %" PRIu64 ", \"has_glibc_chunks\": %s, \"is_static\": %s",
	       found.allocator, found.usable_size, found.find_object, found.clock_gettime,
	       found.program_headers, found.program_header_count, found.program_entry,
	       found.stack_end, found.has_glibc_chunks ? "true" : "false",
	       found.is_static ? "true" : "false");
	print_entries("entries", found.entries, found.count);
	print_entries("extras", found.extras, found.extra_count);
	printf("}\n");
	return 0;
}
