/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports of a heap whose figures are made up, so that each can be told from the others. */
#include "view/heap.h"

#include "heap/heap_figures.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"

#define MIB (UINT64_C(1) << 20)

static char *command[] = {(char[]){"serve\033[2J"}, (char[]){"--all"}, NULL};

static struct hl_heap_arena arenas[] = {
	{
		.address = 0x1000,
		.threads = 3,
		.carriers = 1,
		.system_bytes = 101 * MIB,
		.inuse_bytes = 40 * MIB,
		.inuse_blocks = 4001,
		.tcache_bytes = 2 * MIB,
		.tcache_blocks = 21,
		.fastbin_bytes = 1 * MIB,
		.fastbin_blocks = 11,
		.free_bytes = 57 * MIB,
		.free_blocks = 501,
		.free_resident_bytes = 30 * MIB,
		.largest_free_bytes = 9 * MIB,
		.top_bytes = 7 * MIB,
		.trimmable_bytes = 20 * MIB,
		.overhead_bytes = 1 * MIB,
	},
	{
		.address = 0x2000,
		.threads = 0,
		.carriers = 1,
		.system_bytes = 10 * MIB,
		.inuse_bytes = 3 * MIB,
		.inuse_blocks = 33,
		.free_bytes = 7 * MIB,
		.free_blocks = 2,
		.free_resident_bytes = 6 * MIB,
		.largest_free_bytes = 5 * MIB,
		.top_bytes = 1 * MIB,
		.trimmable_bytes = 5 * MIB,
		.unscanned_bytes = 4096,
	},
};

static struct hl_heap_pin pins[] = {
	{0x7000, 0x9000, 64, 2, 8192, 0x7010, 48},
	{0xa000, 0xb000, 16, 1, 4096, 0xa010, 16},
};

static struct hl_heap_note notes[] = {{"jemalloc is there, too"}};

static struct hl_heap sample_heap(void)
{
	return (struct hl_heap){
		.process = {.pid = 4711, .threads = 5, .comm = "serve", .command = command},
		.page_bytes = 4096,
		.allocator = "glibc 2.36",
		.trim_threshold = 2 * MIB,
		.mmap_threshold = 1 * MIB,
		.arenas = arenas,
		.arena_count = HL_COUNT_OF(arenas),
		.mmapped_bytes = 8 * MIB,
		.mmapped_blocks = 4,
		.mp_mmapped_bytes = 8 * MIB,
		.mp_mmapped_blocks = 4,
		.rss = {.rss_bytes = 120 * MIB,
			.live_bytes = 51 * MIB,
			.cached_bytes = 3 * MIB,
			.free_bytes = 36 * MIB,
			.overhead_bytes = 1 * MIB,
			.unscanned_bytes = 0,
			.stack_bytes = 2 * MIB,
			.file_bytes = 20 * MIB,
			.shared_bytes = 3 * MIB,
			.anonymous_bytes = 4 * MIB,
			.anonymous = {[HL_ANONYMOUS_GO] = 3 * MIB, [HL_ANONYMOUS_OTHER] = 1 * MIB}},
		.pins = pins,
		.pin_count = HL_COUNT_OF(pins),
		.chunks = 5000,
		.notes = notes,
		.note_count = HL_COUNT_OF(notes),
	};
}

/* ---- texts ---- */

typedef int heap_view(const struct hl_heap *heap, const struct hl_emit_options *options);

static int view_heap(const struct hl_heap *heap, const struct hl_emit_options *options)
{
	return hl_heap_view(heap, NULL, true, options);
}

static int write_view(heap_view *view, const struct hl_heap *heap, bool json, char **ret_text)
{
	size_t size;

	FILE *out = open_memstream(ret_text, &size);
	if (!out)
		return -ENOMEM;
	struct hl_emit_options options = {.out = out, .json = json};
	int r = view(heap, &options);
	fclose(out);
	return r;
}

static void assert_says(const char *text, const char *what)
{
	if (!strstr(text, what))
		fail_msg("'%s' is not in:\n%s", what, text);
}

static void the_screen_has_every_part(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	char *text;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	static const char *const parts[] = {
		"pid 4711, 5 threads",
		"glibc 2.36",
		"live blocks",
		"51.0 MiB",
		"42.5%",
		"RSS",
		"120.0 MiB",
		"20.0 MiB",
		"and 8.0 MiB in 4 separately mapped blocks",
		("25.0 MiB in 6,400 pages, most of it, 20.0 MiB, from arena 0 (each arena is "
		 "locked while it is trimmed)"),
		"Go's heap",
		"where 7.0 MiB are free now, only when a free() leaves more than 2.0 MiB there",
		"jemalloc is there, too",
		"keep 12.0 KiB of pages",
	};
	for (size_t i = 0; i < HL_COUNT_OF(parts); i++)
		assert_says(text, parts[i]);
	assert_null(strchr(text, '\033'));
	free(text);
}

static json_t *json_of(heap_view *view, const struct hl_heap *heap)
{
	char *text;

	assert_int_equal(write_view(view, heap, true, &text), 0);
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	free(text);
	return root;
}

static json_int_t member(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_integer(value))
		fail_msg("there is no integer '%s'", key);
	return json_integer_value(value);
}

static void resident_parts_add_up_in_json(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	json_t *root = json_of(view_heap, &heap), *part;
	json_int_t sum = 0;
	size_t i;
	json_array_foreach(json_object_get(root, "resident"), i, part)
		sum += member(part, "bytes");
	assert_int_equal(sum, heap.rss.rss_bytes);
	json_decref(root);
}

static void json_has_each_arena_and_the_sums(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	json_t *root = json_of(view_heap, &heap);
	const json_t *rows = json_object_get(root, "rows"), *total = json_object_get(root, "total");
	static const char *const keys[] = {
		"system_bytes",	  "inuse_bytes",     "tcache_bytes", "fastbin_bytes",
		"free_bytes",	  "trimmable_bytes", "top_bytes",    "free_resident_bytes",
		"overhead_bytes", "threads"};
	assert_string_equal(json_string_value(json_object_get(root, "schema")), "heapline/heap/1");
	assert_int_equal(json_array_size(rows), 2);
	for (size_t i = 0; i < HL_COUNT_OF(keys) - 1; i++)
		assert_int_equal(member(total, keys[i]),
				 member(json_array_get(rows, 0), keys[i]) +
					 member(json_array_get(rows, 1), keys[i]));
	assert_int_equal(member(total, "rss_bytes"), 120 * MIB);
	assert_int_equal(member(total, "mmapped_blocks"), 4);
	assert_true(json_array_size(json_object_get(root, "answers")) >= 7);
	json_decref(root);
}

static void pins_are_listed(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	json_t *root = json_of(hl_pins_view, &heap);
	const json_t *row = json_array_get(json_object_get(root, "rows"), 0);
	assert_int_equal(member(row, "returned_bytes"), 8192);
	assert_int_equal(member(row, "pages"), 2);
	assert_string_equal(json_string_value(json_object_get(row, "start")), "0x7000");
	assert_int_equal(member(json_object_get(root, "total"), "live_bytes"), 80);
	json_decref(root);
}

/* ---- what it is ---- */

/* The report of a heap with these resident parts has ${answer}. */
static void expect_answer(const struct hl_heap_rss *rss, uint64_t trimmable, const char *answer)
{
	struct hl_heap heap = sample_heap();
	struct hl_heap_arena arena = {.trimmable_bytes = trimmable};
	char *text;

	heap.arenas = &arena;
	heap.arena_count = 1;
	heap.rss = *rss;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, answer);
	free(text);
}

static void expect_verdict(uint64_t live, uint64_t free_bytes, uint64_t trimmable, uint64_t files,
			   const char *verdict)
{
	const struct hl_heap_rss rss = {.rss_bytes = live + free_bytes + files,
					.live_bytes = live,
					.free_bytes = free_bytes,
					.file_bytes = files};

	expect_answer(&rss, trimmable, verdict);
}

static void leaks_retention_and_fragmentation_are_told_apart(void **state)
{
	(void)state;
	expect_verdict(99 * MIB, 1 * MIB, 0, 1 * MIB,
		       "nearly all of it is live, 99.0 MiB of 100.0 MiB: if it grows, it is a leak "
		       "or a cache; 'heapline stacks -p 4711 60' shows");
	expect_verdict(50 * MIB, 50 * MIB, 45 * MIB, 1 * MIB, "  retention: malloc has 100.0 MiB");
	expect_verdict(50 * MIB, 50 * MIB, 1 * MIB, 1 * MIB, "  fragmentation: malloc has");
	expect_verdict(10 * MIB, 90 * MIB, 30 * MIB, 1 * MIB,
		       "  retention and fragmentation: malloc has 100.0 MiB in memory: 10.0 MiB "
		       "live, 0 B cached, 0 B its own, and 90.0 MiB free, of which 30.0 MiB come "
		       "back by malloc_trim(0) and 60.0 MiB are pinned by live blocks\n");
	expect_verdict(80 * MIB, 20 * MIB, 18 * MIB, 1 * MIB,
		       "2.0 MiB are pinned by live blocks; most of it is live: 'heapline stacks");
	expect_verdict(1 * MIB, 1 * MIB, 0, 98 * MIB,
		       "no part stands out: 98.0 MiB of 100.0 MiB are pages of files");
	expect_verdict(
		54 * MIB, 0, 0, 60 * MIB,
		"  but for files live blocks are the largest part, 54.0 MiB of 114.0 MiB: if they");
}

/* Without --arenas: the verdict on top, then the parts; what has the answer "no" shares a line. */
static void arenas_are_folded(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	char *text;
	size_t size;
	heap.pin_count = 0;
	FILE *out = open_memstream(&text, &size);
	struct hl_emit_options options = {.out = out};
	assert_int_equal(hl_heap_view(&heap, NULL, false, &options), 0);
	fclose(out);
	assert_null(strstr(text, "arena  threads"));
	assert_true(strstr(text, "leak, retention") < strstr(text, "resident memory"));
	assert_says(text, "which live blocks keep pages? are there too many arenas?\n  no; "
			  "--arenas tells more");
	assert_null(strstr(text, "next request"));
	free(text);
}

static void mappings_have_names_and_the_rest_is_beside(void **state)
{
	(void)state;
	struct hl_rss_mapping mappings[] = {
		{.part = hl_rss_shared_name, .name = "memfd:frames", .bytes = 40 * MIB},
		{.part = hl_rss_anonymous_name(HL_ANONYMOUS_OTHER),
		 .start = 0x7f0000000000,
		 .mapped_bytes = 64 * 1024 * MIB,
		 .bytes = 20 * MIB,
		 .huge_bytes = 18 * MIB},
		{.part = hl_rss_shared_name, .name = "small", .bytes = 1 * MIB},
	};
	struct hl_pod_open_file queue = {.name = (char *)"/memfd:queue (deleted)",
					 .bytes = 8 * MIB};
	const struct hl_heap_rss rss = {.rss_bytes = 120 * MIB,
					.live_bytes = 59 * MIB,
					.shared_bytes = 41 * MIB,
					.anonymous_bytes = 20 * MIB,
					.anonymous = {[HL_ANONYMOUS_OTHER] = 20 * MIB},
					.beside = {.swap_bytes = 100 * MIB,
						   .swap_pss_bytes = 60 * MIB,
						   .page_table_bytes = 3 * MIB,
						   .open_file_bytes = 8 * MIB,
						   .pipe_bytes = 2 * MIB,
						   .pipe_capacity_bytes = 4 * MIB,
						   .pipes = 64,
						   .shared_bytes = 42 * MIB,
						   .pss_bytes = 90 * MIB},
					.open = {.files = &queue, .count = 1},
					.mappings = mappings,
					.mapping_count = HL_COUNT_OF(mappings)};
	expect_answer(&rss, 0, "  memfd:frames ");
	expect_answer(&rss, 0, "  mapping of 64.0 GiB at 0x7f0000000000, 18.0 MiB in huge pages");
	expect_answer(&rss, 0,
		      "memfd:queue, open, not mapped                                    8.0 MiB\n"
		      "in 64 pipes, which may hold 4.0 MiB                              2.0 MiB\n"
		      "on swap, of which it has 60.0 MiB if shared pages are divided  100.0 MiB\n"
		      "page tables                                                      3.0 MiB\n");
	expect_answer(&rss, 0,
		      "of RSS: 42.0 MiB that are mapped more than once, here or by other "
		      "processes, 90.0 MiB if");
}

static void the_kernels_texts_are_read(void **state)
{
	(void)state;
	struct hl_rss_beside beside;
	hl_rss_parse_beside("00400000-7ffd ---p 00000000 00:00 0 [rollup]\nRss: 8 kB\nPss: 4 kB\n"
			    "Shared_Clean: 2 kB\nShared_Dirty: 1 kB\nLazyFree: 5 kB\n"
			    "AnonHugePages: 2048 kB\nSwap: 7 kB\nSwapPss: 6 kB\n",
			    "Name:\tx\nVmPTE:\t 44 kB\nVmSwap:\t 3 kB\nHugetlbPages:\t 4096 kB\n"
			    "Threads:\t3\n",
			    &beside);
	const struct hl_rss_beside expected = {.huge_page_bytes = 4 * MIB,
					       .swap_bytes = 7 << 10,
					       .swap_pss_bytes = 6 << 10,
					       .page_table_bytes = 44 << 10,
					       .kernel_stack_bytes = 48 << 10,
					       .lazy_free_bytes = 5 << 10,
					       .transparent_bytes = 2 * MIB,
					       .shared_bytes = 3 << 10,
					       .pss_bytes = 4 << 10};
	assert_memory_equal(&beside, &expected, sizeof(beside));
	hl_rss_parse_beside("", "Name:\tx\nVmSwap:\t 3 kB\n", &beside);
	assert_int_equal(beside.swap_bytes, 3 << 10);
	hl_rss_parse_beside("", "", &beside);
	assert_int_equal(beside.pss_bytes + beside.swap_bytes + beside.kernel_stack_bytes, 0);
}

static void memory_outside_malloc_has_a_name_and_a_next_command(void **state)
{
	(void)state;
	struct hl_heap_rss rss = {
		.rss_bytes = 100 * MIB,
		.live_bytes = 10 * MIB,
		.anonymous_bytes = 90 * MIB,
		.anonymous = {[HL_ANONYMOUS_GO] = 10 * MIB, [HL_ANONYMOUS_OTHER] = 80 * MIB}};
	rss.largest_start = 0x7f0000000000;
	rss.largest_bytes = 48 * MIB;
	expect_answer(&rss, 0,
		      "other anonymous mappings, 80.0 MiB, is the largest part; 'heapline pgfault");
	expect_answer(&rss, 0, "unknown has 48.0 MiB, at 0x7f0000000000");
}

static void a_program_that_reports_its_memory_itself_is_named_with_how(void **state)
{
	struct hl_heap heap = sample_heap();
	char *text;

	(void)state;
	heap.rss = (struct hl_heap_rss){.rss_bytes = 100 * MIB,
					.live_bytes = 10 * MIB,
					.anonymous_bytes = 90 * MIB,
					.anonymous = {[HL_ANONYMOUS_GO] = 90 * MIB}};
	expect_answer(&heap.rss, 0,
		      "the code that makes it grow; its own profiles (net/http/pprof");
	heap.rss.anonymous[HL_ANONYMOUS_GO] = 0;
	heap.rss.anonymous[HL_ANONYMOUS_OTHER] = 90 * MIB;
	heap.advice = (struct hl_guest_advice){"heapline ask it", "shows what it has"};
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, "the largest part; 'heapline ask it' shows what it has\n");
	free(text);
	assert_int_equal(write_view(view_heap, &heap, true, &text), 0);
	assert_says(text, "\"next\": \"heapline ask it\"");
	free(text);
	heap.advice = (struct hl_guest_advice){"", "a name lets it answer"};
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, "the largest part; a name lets it answer\n");
	free(text);
}

static void heaplines_own_memory_is_not_the_answer(void **state)
{
	(void)state;
	struct hl_heap_rss rss = {.rss_bytes = 100 * MIB,
				  .live_bytes = 30 * MIB,
				  .recorder_bytes = 50 * MIB,
				  .anonymous_bytes = 20 * MIB,
				  .anonymous = {[HL_ANONYMOUS_OTHER] = 20 * MIB}};

	expect_answer(&rss, 0, "  live blocks are the largest part, 30.0 MiB of 100.0 MiB");
	expect_answer(&rss, 0,
		      "but for files and heapline's recorder the largest part, 20.0 MiB, is other "
		      "anonymous mappings");
}

static void memory_of_a_guest_has_its_words(void **state)
{
	(void)state;
	struct hl_heap_rss rss = {
		.rss_bytes = 100 * MIB, .live_bytes = 10 * MIB, .anonymous_bytes = 90 * MIB};
	const struct hl_guest_pools *guest = NULL;
	char expected[256];

	for (size_t kind = 0; kind < HL_ANONYMOUS_COUNT && !guest; kind++) {
		guest = hl_rss_pools(kind);
		rss.anonymous[guest ? kind : HL_ANONYMOUS_OTHER] = guest ? 80 * MIB : 10 * MIB;
	}
	if (!guest) {
		print_message("skipped: no guest has memory of its own\n");
		skip();
	}
	snprintf(expected, sizeof(expected),
		 "%s, 80.0 MiB, is the largest part; 'heapline attach -p 4711 -d 60' records",
		 guest->name);
	expect_answer(&rss, 0, expected);
	snprintf(expected, sizeof(expected),
		 "90.0 MiB of 100.0 MiB RSS; most of it, 80.0 MiB, is %s", guest->name);
	expect_answer(&rss, 0, expected);
	snprintf(expected, sizeof(expected), "'heapline heap -p 4711 %s", guest->listed_by);
	expect_answer(&rss, 0, expected);
}

static void too_many_arenas_are_a_yes_or_a_no(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	struct hl_heap_arena many[4] = {arenas[0], arenas[0], arenas[0], arenas[1]};
	char *text;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, "no: 2 arenas have 36.0 MiB free in memory, 6.0 MiB of it outside");
	assert_says(text, "1 without a thread, with 6.0 MiB free");
	assert_null(strstr(text, "MALLOC_ARENA_MAX"));
	free(text);
	heap.arenas = many;
	heap.arena_count = 4;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, "yes: 4 arenas have 96.0 MiB free in memory, 66.0 MiB of it outside");
	assert_says(text, "MALLOC_ARENA_MAX=2");
	free(text);
	heap.arena_count = 1;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, "no: there is one");
	free(text);
}

static void answers_name_no_memory_that_is_not_there(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	struct hl_heap_arena untrimmable[2] = {arenas[0], arenas[1]};
	char *text;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, "the largest unused top of an arena is 7.0 MiB");
	free(text);
	untrimmable[0].trimmable_bytes = untrimmable[1].trimmable_bytes = 0;
	heap.arenas = untrimmable;
	heap.pin_count = 0;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_says(text, "malloc_trim(0) give back?\n  nothing: ");
	assert_says(text, "none: no small live block pins much memory");
	free(text);
	heap.from_core = true;
	assert_int_equal(write_view(view_heap, &heap, false, &text), 0);
	assert_null(strstr(text, "-p 4711"));
	free(text);
}

/* ---- snapshots ---- */

static void write_file(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

static void a_snapshot_is_read_as_it_was(void **state)
{
	(void)state;
	struct hl_heap heap = sample_heap();
	struct hl_heap_figures was, is;
	char path[] = "/tmp/heapline-test-XXXXXX", *text;
	close(mkstemp(path));
	assert_int_equal(write_view(view_heap, &heap, true, &text), 0);
	write_file(path, text);
	free(text);
	hl_heap_figures_of(&heap, &was);
	assert_int_equal(hl_heap_figures_read(path, &is, NULL), 0);
	assert_memory_equal(was.numbers, is.numbers, sizeof(was.numbers));
	assert_int_equal(is.pid, 4711);
	unlink(path);
}

static void files_that_are_no_snapshots_are_errors(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"{}",
		"{\"schema\": 7}",
		"{\"schema\": \"heapline/top/1\"}",
		"{\"schema\": \"heapline/heap/1\"}",
		"{\"schema\": \"heapline/heap/1\", \"total\": {\"rss_bytes\": -1}}",
		"{\"schema\": \"heapline/heap/1\", \"total\": {\"rss_bytes\": \"x\"}}",
	};
	char path[] = "/tmp/heapline-test-XXXXXX";
	close(mkstemp(path));
	for (size_t i = 0; i < HL_COUNT_OF(texts); i++) {
		struct hl_heap_figures figures;
		struct hl_error err = {0};
		write_file(path, texts[i]);
		assert_int_equal(hl_heap_figures_read(path, &figures, &err), -EBADMSG);
		assert_non_null(strstr(err.text, path));
	}
	unlink(path);
}

static void figures_are_found_by_their_names(void **state)
{
	(void)state;
	assert_int_equal(hl_heap_figure_find("free-resident", 13), HL_HEAP_FREE_RESIDENT);
	assert_int_equal(hl_heap_figure_find("free_resident_bytes", 19), HL_HEAP_FREE_RESIDENT);
	assert_int_equal(hl_heap_figure_find("arenas", 6), HL_HEAP_ARENAS);
	assert_int_equal(hl_heap_figure_find("free-res", 8), -EINVAL);
	assert_int_equal(hl_heap_figure_find("", 0), -EINVAL);
	for (int i = 0; i < HL_HEAP_FIGURE_COUNT; i++)
		assert_int_equal(hl_heap_figure_find(hl_heap_figure_names[i],
						     strlen(hl_heap_figure_names[i])),
				 i);
}

static void differences_have_both_sides(void **state)
{
	(void)state;
	struct hl_heap_figures before = {.pid = 1, .command = "a"},
			       after = {.pid = 1, .command = "a"};
	char *text;
	size_t size;
	before.numbers[HL_HEAP_RSS] = 5 * MIB;
	after.numbers[HL_HEAP_RSS] = 7 * MIB;
	before.numbers[HL_HEAP_THREADS] = 9;
	before.numbers[HL_HEAP_RESIDENT_LIVE] = 9 * MIB;
	FILE *out = open_memstream(&text, &size);
	struct hl_emit_options options = {.out = out};
	assert_int_equal(hl_heap_diff_view(&before, &after, &options), 0);
	fclose(out);
	assert_says(text, "+2.0 MiB");
	assert_says(text, "-9");
	/* Bytes come first, the largest change before the others, in the words of the report of one heap. */
	const char *live = strstr(text, "in RAM: live blocks"), *rss = strstr(text, "RSS ");
	const char *threads = strstr(text, "threads ");
	assert_non_null(live);
	assert_true(live < rss && rss < threads);
	assert_null(strstr(text, "different processes"));
	free(text);
}

/* ---- memory ---- */

static int write_and_free(heap_view *view, bool json)
{
	struct hl_heap heap = sample_heap();
	char *text = NULL;
	int r = write_view(view, &heap, json, &text);

	free(text);
	return r;
}

static void reports_without_memory_say_so(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, write_and_free(view_heap, true))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, write_and_free(hl_pins_view, true))
	assert_int_equal(r, -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_screen_has_every_part),
		cmocka_unit_test(resident_parts_add_up_in_json),
		cmocka_unit_test(json_has_each_arena_and_the_sums),
		cmocka_unit_test(pins_are_listed),
		cmocka_unit_test(leaks_retention_and_fragmentation_are_told_apart),
		cmocka_unit_test(arenas_are_folded),
		cmocka_unit_test(mappings_have_names_and_the_rest_is_beside),
		cmocka_unit_test(the_kernels_texts_are_read),
		cmocka_unit_test(memory_outside_malloc_has_a_name_and_a_next_command),
		cmocka_unit_test(a_program_that_reports_its_memory_itself_is_named_with_how),
		cmocka_unit_test(heaplines_own_memory_is_not_the_answer),
		cmocka_unit_test(memory_of_a_guest_has_its_words),
		cmocka_unit_test(too_many_arenas_are_a_yes_or_a_no),
		cmocka_unit_test(answers_name_no_memory_that_is_not_there),
		cmocka_unit_test(a_snapshot_is_read_as_it_was),
		cmocka_unit_test(files_that_are_no_snapshots_are_errors),
		cmocka_unit_test(figures_are_found_by_their_names),
		cmocka_unit_test(differences_have_both_sides),
		cmocka_unit_test(reports_without_memory_say_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
