/* SPDX-License-Identifier: BSD-2-Clause */
/* Named numbers of a heap; see heap_figures.h. */
#include "heap/heap_figures.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA "heapline/heap/1"
#define BYTES  "_bytes"

const char *const hl_heap_figure_names[HL_HEAP_FIGURE_COUNT] = {
	[HL_HEAP_RSS] = "rss_bytes",
	[HL_HEAP_SYSTEM] = "system_bytes",
	[HL_HEAP_INUSE] = "inuse_bytes",
	[HL_HEAP_INUSE_BLOCKS] = "inuse_blocks",
	[HL_HEAP_TCACHE] = "tcache_bytes",
	[HL_HEAP_FASTBIN] = "fastbin_bytes",
	[HL_HEAP_FREE_BYTES] = "free_bytes",
	[HL_HEAP_FREE_RESIDENT] = "free_resident_bytes",
	[HL_HEAP_LARGEST_FREE] = "largest_free_bytes",
	[HL_HEAP_TOP] = "top_bytes",
	[HL_HEAP_TRIMMABLE] = "trimmable_bytes",
	[HL_HEAP_UNSCANNED] = "unscanned_bytes",
	[HL_HEAP_OVERHEAD] = "overhead_bytes",
	[HL_HEAP_MMAPPED] = "mmapped_bytes",
	[HL_HEAP_MMAPPED_BLOCKS] = "mmapped_blocks",
	[HL_HEAP_MMAPPED_UNLOCATED] = "mmapped_unlocated_bytes",
	[HL_HEAP_ARENAS] = "arenas",
	[HL_HEAP_CARRIERS] = "carriers",
	[HL_HEAP_THREADS] = "threads",
	[HL_HEAP_RESIDENT_LIVE] = "resident_live_bytes",
	[HL_HEAP_RESIDENT_CACHED] = "resident_cached_bytes",
	[HL_HEAP_RESIDENT_FREE] = "resident_free_bytes",
	[HL_HEAP_RESIDENT_OVERHEAD] = "resident_overhead_bytes",
	[HL_HEAP_RESIDENT_UNSCANNED] = "resident_unscanned_bytes",
	[HL_HEAP_RESIDENT_OTHER_ALLOCATORS] = "resident_other_allocators_bytes",
	[HL_HEAP_RESIDENT_RECORDER] = "resident_recorder_bytes",
	[HL_HEAP_RESIDENT_STACKS] = "resident_stacks_bytes",
	[HL_HEAP_RESIDENT_FILES] = "resident_files_bytes",
	[HL_HEAP_RESIDENT_SHARED] = "resident_shared_bytes",
	[HL_HEAP_RESIDENT_ANONYMOUS] = "resident_anonymous_bytes",
};

void hl_heap_figures_of(const struct hl_heap *heap, struct hl_heap_figures *ret_figures)
{
	struct hl_heap_arena total;
	const struct hl_heap_rss *rss = &heap->rss;

	hl_heap_total(heap, &total);
	*ret_figures = (struct hl_heap_figures){
		.pid = heap->process.pid,
		.numbers =
			{
				[HL_HEAP_RSS] = rss->rss_bytes,
				[HL_HEAP_SYSTEM] = total.system_bytes,
				[HL_HEAP_INUSE] = total.inuse_bytes,
				[HL_HEAP_INUSE_BLOCKS] = total.inuse_blocks,
				[HL_HEAP_TCACHE] = total.tcache_bytes,
				[HL_HEAP_FASTBIN] = total.fastbin_bytes,
				[HL_HEAP_FREE_BYTES] = total.free_bytes,
				[HL_HEAP_FREE_RESIDENT] = total.free_resident_bytes,
				[HL_HEAP_LARGEST_FREE] = total.largest_free_bytes,
				[HL_HEAP_TOP] = total.top_bytes,
				[HL_HEAP_TRIMMABLE] = total.trimmable_bytes,
				[HL_HEAP_UNSCANNED] = total.unscanned_bytes,
				[HL_HEAP_OVERHEAD] = total.overhead_bytes,
				[HL_HEAP_MMAPPED] = heap->mp_mmapped_bytes,
				[HL_HEAP_MMAPPED_BLOCKS] = heap->mp_mmapped_blocks,
				[HL_HEAP_MMAPPED_UNLOCATED] =
					heap->mp_mmapped_bytes - heap->mmapped_bytes,
				[HL_HEAP_ARENAS] = heap->arena_count,
				[HL_HEAP_CARRIERS] = heap->carriers.count,
				[HL_HEAP_THREADS] = heap->process.threads,
				[HL_HEAP_RESIDENT_LIVE] = rss->live_bytes,
				[HL_HEAP_RESIDENT_CACHED] = rss->cached_bytes,
				[HL_HEAP_RESIDENT_FREE] = rss->free_bytes,
				[HL_HEAP_RESIDENT_OVERHEAD] = rss->overhead_bytes,
				[HL_HEAP_RESIDENT_UNSCANNED] = rss->unscanned_bytes,
				[HL_HEAP_RESIDENT_OTHER_ALLOCATORS] = rss->other_allocator_bytes,
				[HL_HEAP_RESIDENT_RECORDER] = rss->recorder_bytes,
				[HL_HEAP_RESIDENT_STACKS] = rss->stack_bytes,
				[HL_HEAP_RESIDENT_FILES] = rss->file_bytes,
				[HL_HEAP_RESIDENT_SHARED] = rss->shared_bytes,
				[HL_HEAP_RESIDENT_ANONYMOUS] = rss->anonymous_bytes,
			},
	};
	char *command = ret_figures->command;
	size_t used = 0, room = sizeof(ret_figures->command);
	for (char **word = heap->process.command; word && *word && used < room; word++)
		used += (size_t)snprintf(command + used, room - used, "%s%s", used ? " " : "",
					 *word);
}

/* ---- files ---- */

static void copy_text(const json_t *object, const char *key, char *text, size_t size)
{
	const char *value = json_string_value(json_object_get(object, key));

	snprintf(text, size, "%s", value ? value : "");
}

/* A figure that the file lacks is 0: an older version may have written it. */
static int take_figures(const json_t *root, struct hl_heap_figures *figures)
{
	const char *schema = json_string_value(json_object_get(root, "schema"));
	const json_t *total = json_object_get(root, "total");
	const json_t *process = json_object_get(root, "process");

	if (!schema || strcmp(schema, SCHEMA) != 0 || !json_is_object(total))
		return -EBADMSG;
	for (size_t i = 0; i < HL_HEAP_FIGURE_COUNT; i++) {
		const json_t *value = json_object_get(total, hl_heap_figure_names[i]);
		json_int_t number = json_integer_value(value);
		if (number < 0 || (value && !json_is_integer(value)))
			return -EBADMSG;
		figures->numbers[i] = (uint64_t)number;
	}
	figures->pid = json_integer_value(json_object_get(process, "pid"));
	copy_text(process, "command", figures->command, sizeof(figures->command));
	copy_text(root, "taken", figures->taken, sizeof(figures->taken));
	return 0;
}

int hl_heap_figures_read(const char *path, struct hl_heap_figures *ret_figures,
			 struct hl_error *err)
{
	json_error_t why;
	struct hl_heap_figures figures = {0};

	FILE *in = fopen(path, "re");
	if (!in)
		return hl_error_set(err, -errno, "cannot read '%s': %s", path, strerror(errno));
	json_t *root = json_loadf(in, 0, &why);
	fclose(in);
	int r = root ? take_figures(root, &figures) : -EBADMSG;
	json_decref(root);
	if (r < 0)
		return hl_error_set(
			err, r,
			"'%s' is not a snapshot of a heap; make one with 'heapline heap "
			"-p PID --save FILE'",
			path);
	*ret_figures = figures;
	return 0;
}

/* ---- names ---- */

bool hl_heap_figure_is_bytes(enum hl_heap_figure figure)
{
	const char *name = hl_heap_figure_names[figure];
	size_t length = strlen(name);

	return length > strlen(BYTES) && strcmp(name + length - strlen(BYTES), BYTES) == 0;
}

static bool is_name(const char *figure, const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (figure[i] != (name[i] == '-' ? '_' : name[i]))
			return false;
	return figure[length] == '\0' || strcmp(figure + length, BYTES) == 0;
}

int hl_heap_figure_find(const char *name, size_t length)
{
	for (int i = 0; i < HL_HEAP_FIGURE_COUNT; i++)
		if (length && length <= strlen(hl_heap_figure_names[i]) &&
		    is_name(hl_heap_figure_names[i], name, length))
			return i;
	return -EINVAL;
}
