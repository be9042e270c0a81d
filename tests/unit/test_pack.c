/* SPDX-License-Identifier: BSD-2-Clause */
/* Packed recordings: what is read is what was written, or a sentence says why not. */
#include "base/frame_key.h"
#include "fail_allocations.h"
#include "pack/pack_sections.h"
#include "profile/builder.h"
#include "recording/recording.h"
#include "temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FRAME(module, pc) ((uint64_t)(module) << 48 | (pc))
#define SIZE_KEY(class)	  hl_size_frame_key(class)

/* Modules that do not exist: functions are called after their addresses. */
#define APP_BASE 0x555500000000u
#define LIB_BASE 0x7f0000000000u

static struct hl_recording_module modules[] = {
	{"/nowhere/app", APP_BASE, APP_BASE + 0x10000, APP_BASE, {1, 2}, 2, {0}},
	{"/nowhere/\xff\n.so", LIB_BASE, LIB_BASE + 0x10000, LIB_BASE, {3, 4}, 2, {0}},
};

static struct hl_recording_node nodes[] = {
	{FRAME(1, APP_BASE + 0x10), 0}, /* 1 main */
	{FRAME(2, LIB_BASE + 0x20), 1}, /* 2 item */
	{FRAME(1, APP_BASE + 0x30), 1}, /* 3 parse */
	{FRAME(1, APP_BASE + 0x30), 3}, /* 4 parse, again */
	{0, 2},				/* 5 item, blocks of size class 10; see recording() */
	{FRAME(0, 0xdead), 0},		/* 6 code without a file */
};

static struct hl_recording_value values[] = {
	{.node = 2,
	 .alloc_bytes = 1009,
	 .alloc_objects = 11,
	 .free_bytes = 2003,
	 .free_objects = 13,
	 .slack_bytes = -5,
	 .peak_bytes = 1003,
	 .peak_objects = 7},
	{.node = 4, .thread = 1, .alloc_bytes = 503, .alloc_objects = 5, .temporary_objects = 3},
	{.node = 5, .thread = 1, .alloc_bytes = 700, .alloc_objects = 1, .peak_bytes = 700},
	{.node = 2, .thread = 1, .alloc_bytes = 7, .alloc_objects = 1},
	{.node = 6, .alloc_bytes = 31, .alloc_objects = 1},
};

static struct hl_recording_thread threads[] = {{.tid = 100, .name = "main"},
					       {.tid = 101, .name = "worker"}};
static char *command[] = {"app", "it's here", NULL};
static struct hl_recording_figure recorded_figures[] = {{"rss_growth_pages", -5},
							{"faults", INT64_MAX}};
static char *warnings[] = {"the disk was full for 3 s", NULL};

/* The second process has one stack of its own and shares another one with the first. */
static struct hl_recording_node second_nodes[] = {
	{FRAME(1, APP_BASE + 0x10), 0},
	{FRAME(1, APP_BASE + 0x50), 1},
	{FRAME(2, LIB_BASE + 0x20), 1},
};

static struct hl_recording_value second_values[] = {
	{.node = 2, .alloc_bytes = 10007, .alloc_objects = 17, .peak_bytes = 10007},
	{.node = 3, .alloc_bytes = 101, .alloc_objects = 1},
};

/* Of both, in the profile. */
#define FRAME_COUNT 5
#define NODE_COUNT  6
#define ROW_COUNT   7

static struct hl_recording_thread second_threads[] = {{.tid = 200, .name = "second"}};

static struct hl_recording recording(struct hl_recording_process processes[2])
{
	nodes[4].frame = SIZE_KEY(10);
	processes[0] = (struct hl_recording_process){
		.pid = 100,
		.executable = "/nowhere/app",
		.command = command,
		.duration_ns = 2500000000u,
		.complete = true,
		.end = HL_END_EXITED,
		.lost = {.events = 2, .unmatched_frees = 3, .inherited_frees = 5, .damaged = 7},
		.module_count = 2,
		.node_count = HL_COUNT_OF(nodes),
		.value_count = HL_COUNT_OF(values),
		.thread_count = 2,
		.modules = modules,
		.nodes = nodes,
		.values = values,
		.threads = threads,
	};
	processes[1] = processes[0];
	processes[1].pid = 200;
	processes[1].parent_pid = 100;
	processes[1].sequence = 1;
	processes[1].own_malloc = true;
	processes[1].nodes = second_nodes;
	processes[1].node_count = HL_COUNT_OF(second_nodes);
	processes[1].values = second_values;
	processes[1].value_count = HL_COUNT_OF(second_values);
	processes[1].threads = second_threads;
	processes[1].thread_count = 1;
	return (struct hl_recording){
		.name = "test.hl",
		.tool_version = "1",
		.command = command,
		.host = "h",
		.kernel = "k",
		.mode = "mem-fast",
		.sample_bytes = 512,
		.start_realtime_ns = 1767225600000000000u,
		.duration_ns = 2600000000u,
		.complete = true,
		.warnings = warnings,
		.figures = recorded_figures,
		.figure_count = HL_COUNT_OF(recorded_figures),
		.process_count = 2,
		.processes = processes,
	};
}

static struct hl_profile *load(struct hl_profile_selection selection)
{
	struct hl_recording_process processes[2];
	struct hl_recording both = recording(processes);
	struct hl_profile *profile;

	selection.keep_rows = true;
	assert_int_equal(hl_profile_load(&both, &selection, &profile, NULL), 0);
	return profile;
}

/* ---- a folder with a packed recording ---- */

struct place {
	char folder[32], path[64];
};

static int place_setup(void **state)
{
	struct place *place = calloc(1, sizeof(*place));

	if (make_temporary(place->folder) < 0)
		return -1;
	snprintf(place->path, sizeof(place->path), "%s/x.hlpack", place->folder);
	*state = place;
	return 0;
}

static int place_teardown(void **state)
{
	struct place *place = *state;

	unlink(place->path);
	int r = rmdir(place->folder); /* nothing else was left there */
	free(place);
	return r;
}

static int write_to(const char *path, const struct hl_profile *profile, struct hl_error *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	assert_true(fd >= 0);
	int r = hl_pack_write(profile, NULL, fd, path, err);
	close(fd);
	return r;
}

static void write_pack(const struct place *place, const struct hl_profile *profile)
{
	struct hl_error err = {0};

	assert_int_equal(write_to(place->path, profile, &err), 0);
	assert_string_equal(err.text, "");
}

static int read_selected(const struct place *place, struct hl_profile_selection selection,
			 struct hl_profile **ret_profile, struct hl_error *err)
{
	int fd = open(place->path, O_RDONLY | O_CLOEXEC);

	selection.keep_rows = true;
	int r = hl_pack_read(fd, "x.hlpack", &selection, ret_profile, err);
	close(fd);
	return r;
}

static struct hl_profile *read_pack(const struct place *place,
				    struct hl_profile_selection selection)
{
	struct hl_profile *profile;
	struct hl_error err = {0};

	assert_int_equal(read_selected(place, selection, &profile, &err), 0);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

static void pack_sample(const struct place *place)
{
	struct hl_profile *profile = load((struct hl_profile_selection){0});

	write_pack(place, profile);
	hl_profile_free(profile);
}

/* ---- two profiles are the same ---- */

static void assert_texts(const struct hl_profile *a, uint32_t a_id, const struct hl_profile *b,
			 uint32_t b_id)
{
	assert_string_equal(hl_profile_text(a, a_id), hl_profile_text(b, b_id));
}

#define ASSERT_TEXT(a, b, member) assert_texts(a, (a)->member, b, (b)->member)

static void assert_counters(const struct hl_profile_counters *a,
			    const struct hl_profile_counters *b)
{
	assert_memory_equal(a, b, sizeof(*a));
}

static void assert_same_head(const struct hl_profile *a, const struct hl_profile *b)
{
	ASSERT_TEXT(a, b, command);
	ASSERT_TEXT(a, b, host);
	ASSERT_TEXT(a, b, kernel);
	ASSERT_TEXT(a, b, mode);
	ASSERT_TEXT(a, b, tool_version);
	ASSERT_TEXT(a, b, base_name);
	ASSERT_TEXT(a, b, moment);
	assert_int_equal(a->moment_ms, b->moment_ms);
	assert_memory_equal(a->known, b->known, sizeof(a->known));
	assert_int_equal(a->imported, b->imported);
	assert_int_equal(a->complete, b->complete);
	assert_int_equal(a->sample_bytes, b->sample_bytes);
	assert_int_equal(a->start_realtime_ns, b->start_realtime_ns);
	assert_int_equal(a->duration_ns, b->duration_ns);
	assert_int_equal(a->recorded_process_count, b->recorded_process_count);
	assert_int_equal(a->warning_count, b->warning_count);
	for (size_t i = 0; i < a->warning_count; i++)
		ASSERT_TEXT(a, b, warnings[i]);
	assert_int_equal(a->figure_count, b->figure_count);
	for (size_t i = 0; i < a->figure_count; i++) {
		ASSERT_TEXT(a, b, figures[i].name);
		assert_true(a->figures[i].value == b->figures[i].value);
	}
	assert_counters(&a->total, &b->total);
	assert_counters(&a->unfiltered_total, &b->unfiltered_total);
	assert_counters(&a->base_total, &b->base_total);
	assert_memory_equal(&a->lost, &b->lost, sizeof(a->lost));
}

static void assert_same_processes(const struct hl_profile *a, const struct hl_profile *b)
{
	assert_int_equal(a->process_count, b->process_count);
	for (size_t i = 0; i < a->process_count; i++) {
		ASSERT_TEXT(a, b, processes[i].command);
		ASSERT_TEXT(a, b, processes[i].executable);
		ASSERT_TEXT(a, b, processes[i].end);
		assert_int_equal(a->processes[i].pid, b->processes[i].pid);
		assert_int_equal(a->processes[i].parent_pid, b->processes[i].parent_pid);
		assert_int_equal(a->processes[i].sequence, b->processes[i].sequence);
		assert_int_equal(a->processes[i].thread_count, b->processes[i].thread_count);
		assert_int_equal(a->processes[i].duration_ns, b->processes[i].duration_ns);
		assert_int_equal(a->processes[i].complete, b->processes[i].complete);
		assert_int_equal(a->processes[i].own_malloc, b->processes[i].own_malloc);
		assert_counters(&a->processes[i].total, &b->processes[i].total);
		assert_memory_equal(&a->processes[i].lost, &b->processes[i].lost,
				    sizeof(a->processes[i].lost));
	}
	assert_int_equal(a->thread_count, b->thread_count);
	for (size_t i = 0; i < a->thread_count; i++) {
		ASSERT_TEXT(a, b, threads[i].name);
		assert_int_equal(a->threads[i].tid, b->threads[i].tid);
		assert_int_equal(a->threads[i].process, b->threads[i].process);
		assert_counters(&a->threads[i].total, &b->threads[i].total);
	}
}

static void assert_same_names(const struct hl_profile *a, const struct hl_profile *b)
{
	assert_int_equal(a->module_count, b->module_count);
	for (size_t i = 0; i < a->module_count; i++) {
		ASSERT_TEXT(a, b, modules[i].path);
		ASSERT_TEXT(a, b, modules[i].symbols_reason);
		assert_int_equal(a->modules[i].used, b->modules[i].used);
		assert_int_equal(a->modules[i].symbols, b->modules[i].symbols);
		assert_int_equal(a->modules[i].build_id_bytes, b->modules[i].build_id_bytes);
		assert_memory_equal(a->modules[i].build_id, b->modules[i].build_id,
				    sizeof(a->modules[i].build_id));
	}
	assert_int_equal(a->function_count, b->function_count);
	for (size_t i = 1; i < a->function_count; i++) {
		ASSERT_TEXT(a, b, functions[i].name);
		ASSERT_TEXT(a, b, functions[i].file);
		assert_int_equal(a->functions[i].line, b->functions[i].line);
		assert_int_equal(a->functions[i].module, b->functions[i].module);
	}
	assert_int_equal(a->frame_count, b->frame_count);
	for (size_t i = 1; i < a->frame_count; i++) {
		ASSERT_TEXT(a, b, frames[i].file);
		assert_int_equal(a->frames[i].address, b->frames[i].address);
		assert_int_equal(a->frames[i].function, b->frames[i].function);
		assert_int_equal(a->frames[i].line, b->frames[i].line);
		assert_int_equal(a->frames[i].inlined, b->frames[i].inlined);
	}
}

static void assert_same_tree(const struct hl_profile *a, const struct hl_profile *b)
{
	assert_int_equal(a->node_count, b->node_count);
	assert_memory_equal(a->nodes, b->nodes, a->node_count * sizeof(*a->nodes));
	assert_memory_equal(a->counters, b->counters, a->node_count * sizeof(*a->counters));
	assert_int_equal(a->base != NULL, b->base != NULL);
	if (a->base)
		assert_memory_equal(a->base, b->base, a->node_count * sizeof(*a->base));
	assert_int_equal(a->row_count, b->row_count);
	for (size_t i = 0; i < a->row_count; i++)
		assert_memory_equal(&a->rows[i], &b->rows[i], sizeof(a->rows[i]));
	assert_int_equal(a->size_count, b->size_count);
	for (size_t i = 0; i < a->size_count; i++) {
		assert_int_equal(a->sizes[i].node, b->sizes[i].node);
		assert_int_equal(a->sizes[i].thread, b->sizes[i].thread);
		assert_int_equal(a->sizes[i].size_class, b->sizes[i].size_class);
		assert_counters(&a->sizes[i].counters, &b->sizes[i].counters);
	}
}

static void assert_same(const struct hl_profile *a, const struct hl_profile *b)
{
	assert_same_head(a, b);
	assert_same_processes(a, b);
	assert_same_names(a, b);
	assert_same_tree(a, b);
}

/* ---- what is written can be read ---- */

static void a_packed_recording_holds_the_whole_profile(void **state)
{
	const struct place *place = *state;
	struct hl_profile *profile = load((struct hl_profile_selection){0});

	write_pack(place, profile);
	struct hl_profile *read = read_pack(place, (struct hl_profile_selection){0});
	assert_same(profile, read);
	assert_int_equal(read->size_count, 1);
	assert_string_equal(hl_profile_text(read, read->name), "x.hlpack");
	assert_string_equal(hl_profile_text(read, read->source), "packed recording");
	hl_profile_free(profile);
	write_pack(place, read); /* and so on */
	profile = read_pack(place, (struct hl_profile_selection){0});
	assert_same(read, profile);
	hl_profile_free(profile);
	hl_profile_free(read);
}

/* A file of another tool, without processes, that holds two moments; its values are not all known.
 */
static struct hl_profile *imported_profile(void)
{
	const struct hl_symbols_frame symbol = {
		.function = "main", .function_file = "", .file = "main.c", .line = 3};
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t frame, node, *final_ids;

	assert_int_equal(hl_builder_init(&builder), 0);
	assert_int_equal(hl_builder_frame(&builder, &symbol, 0, 0, &frame), 0);
	assert_int_equal(hl_builder_child(&builder, 0, frame, &node), 0);
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	profile->imported = true;
	profile->complete = true;
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	profile->counters[node].alloc_bytes = 1013;
	profile->total = profile->unfiltered_total = profile->counters[node];
	profile->base = calloc(profile->node_count, sizeof(*profile->base));
	profile->base[node].alloc_bytes = 17;
	profile->base_total = profile->base[node];
	profile->moment_ms = 1700;
	assert_int_equal(hl_strings_intern(&profile->strings, "at 1.70 s", &profile->moment), 0);
	assert_int_equal(hl_strings_intern(&profile->strings, "folded", &profile->source), 0);
	assert_int_equal(hl_strings_intern(&profile->strings, "before", &profile->base_name), 0);
	hl_builder_release(&builder);
	free(final_ids);
	return profile;
}

static void an_imported_profile_keeps_its_kind_and_its_earlier_figures(void **state)
{
	struct hl_profile *profile = imported_profile();

	write_pack(*state, profile);
	struct hl_profile *read = read_pack(*state, (struct hl_profile_selection){0});
	assert_same(profile, read);
	assert_string_equal(hl_profile_text(read, read->source), "folded");
	hl_profile_free(profile);
	hl_profile_free(read);
}

static void an_empty_recording_can_be_packed(void **state)
{
	struct hl_recording_process processes[2];
	struct hl_recording none = recording(processes);
	struct hl_profile *profile;

	none.process_count = 0;
	assert_int_equal(hl_profile_load(&none, NULL, &profile, NULL), 0);
	write_pack(*state, profile);
	struct hl_profile *read = read_pack(*state, (struct hl_profile_selection){0});
	assert_same(profile, read);
	hl_profile_free(profile);
	hl_profile_free(read);
}

/* ---- selection ---- */

/* Figures of each stack, whatever order the stacks are in. */
static const struct hl_profile_counters *
counters_of_stack(const struct hl_profile *profile, const struct hl_profile *like, uint32_t node)
{
	if (!node)
		return &profile->counters[0];
	const struct hl_profile_counters *parent =
		counters_of_stack(profile, like, like->nodes[node].parent);
	uint32_t parent_id = (uint32_t)(parent - profile->counters);
	uint32_t wanted = like->frames[like->nodes[node].frame].function;
	for (uint32_t i = parent_id + 1; i < profile->nodes[parent_id].end; i++) {
		uint32_t function = profile->frames[profile->nodes[i].frame].function;
		if (profile->nodes[i].parent == parent_id &&
		    !strcmp(hl_profile_text(profile, profile->functions[function].name),
			    hl_profile_text(like, like->functions[wanted].name)))
			return &profile->counters[i];
	}
	fail_msg("a stack is missing");
	return NULL;
}

static void assert_same_selection(const struct place *place, struct hl_profile_selection selection)
{
	struct hl_profile *profile = load(selection), *read = read_pack(place, selection);

	assert_same_processes(profile, read);
	assert_same_head(profile, read);
	assert_int_equal(profile->node_count, read->node_count);
	for (uint32_t i = 0; i < profile->node_count; i++)
		assert_counters(&profile->counters[i], counters_of_stack(read, profile, i));
	assert_int_equal(profile->row_count, read->row_count);
	assert_int_equal(profile->size_count, read->size_count);
	hl_profile_free(profile);
	hl_profile_free(read);
}

static void processes_and_threads_are_selected_as_from_the_recording(void **state)
{
	pack_sample(*state);
	assert_same_selection(*state, (struct hl_profile_selection){.pid = 100});
	assert_same_selection(*state, (struct hl_profile_selection){.pid = 200});
	assert_same_selection(*state, (struct hl_profile_selection){
					      .pid = 200, .by_sequence = true, .sequence = 1});
	assert_same_selection(*state, (struct hl_profile_selection){.tid = 100});
	assert_same_selection(*state, (struct hl_profile_selection){.tid = 101});
	assert_same_selection(*state, (struct hl_profile_selection){.tid = 200});
}

static void selecting_what_is_not_there_is_an_error(void **state)
{
	const struct hl_profile_selection bad[] = {{.pid = 3},
						   {.pid = 100, .by_sequence = true, .sequence = 1},
						   {.pid = 100, .tid = 200}};
	struct hl_profile *profile;

	pack_sample(*state);
	for (size_t i = 0; i < HL_COUNT_OF(bad); i++) {
		struct hl_error err = {0};
		assert_int_equal(read_selected(*state, bad[i], &profile, &err), -ESRCH);
		assert_non_null(strstr(err.text, "x.hlpack"));
	}
}

static void a_module_that_no_selected_stack_uses_is_unused(void **state)
{
	const struct hl_profile_selection second = {.pid = 200};

	second_values[1].node = 2; /* only the application's own stack is left */
	pack_sample(*state);
	second_values[1].node = 3;
	struct hl_profile *read = read_pack(*state, second);
	assert_true(read->modules[1].used);
	assert_false(read->modules[2].used);
	assert_string_equal(hl_profile_text(read, read->modules[2].symbols_reason), "");
	hl_profile_free(read);
}

/* ---- damage ---- */

static void assert_refused(const struct place *place, int code, const char *word)
{
	struct hl_profile *profile;
	struct hl_error err = {0};

	assert_int_equal(read_selected(place, (struct hl_profile_selection){0}, &profile, &err),
			 code);
	assert_non_null(strstr(err.text, "x.hlpack"));
	assert_non_null(strstr(err.text, word));
}

static void every_cut_and_every_flipped_bit_is_seen(void **state)
{
	const struct place *place = *state;
	struct hl_profile *profile;
	struct stat status;

	pack_sample(place);
	assert_int_equal(stat(place->path, &status), 0);
	int fd = open(place->path, O_RDWR | O_CLOEXEC);
	for (off_t i = 0; i < status.st_size; i++) {
		uint8_t byte, flipped;
		assert_int_equal(pread(fd, &byte, 1, i), 1);
		for (int bit = 0; bit < 8; bit++) {
			flipped = (uint8_t)(byte ^ 1 << bit);
			assert_int_equal(pwrite(fd, &flipped, 1, i), 1);
			assert_true(hl_pack_read(fd, "x", NULL, &profile, NULL) < 0);
		}
		assert_int_equal(pwrite(fd, &byte, 1, i), 1);
	}
	for (off_t size = status.st_size - 1; size >= 0; size--) {
		assert_int_equal(ftruncate(fd, size), 0);
		assert_true(hl_pack_read(fd, "x", NULL, &profile, NULL) < 0);
	}
	close(fd);
}

static const uint32_t section_types[] = {
	HL_PACK_META,	 HL_PACK_TEXTS,	  HL_PACK_PROCESSES, HL_PACK_INHERITED, HL_PACK_PRINTS,
	HL_PACK_THREADS, HL_PACK_MODULES, HL_PACK_FUNCTIONS, HL_PACK_FRAMES,	HL_PACK_NODES,
	HL_PACK_ROWS,	 HL_PACK_SIZES,	  HL_PACK_BASE,
};

/* What is made wrong: other bytes at an offset of one section, or fewer bytes. */
struct change {
	uint32_t type;
	size_t offset;
	const void *bytes;
	size_t size;
	size_t cut; /* off its end */
};

static void copy_section(const struct hl_container *container, struct hl_container_writer *writer,
			 uint32_t type, const struct change *change)
{
	size_t size;
	char *raw;

	assert_int_equal(hl_container_load(container, type, SIZE_MAX, (void **)&raw, &size, NULL),
			 0);
	if (type == change->type) {
		assert_true(change->offset + change->size <= size && change->cut < size);
		memcpy(raw + change->offset, change->bytes, change->size);
		size -= change->cut;
	}
	assert_int_equal(hl_container_writer_add(writer, type, raw, size, true, NULL), 0);
	free(raw);
}

/* Writes the sample with a change and with right checksums. */
static void pack_changed(const struct place *place, struct change change)
{
	struct hl_container container;
	struct hl_container_writer writer;

	pack_sample(place);
	int fd = open(place->path, O_RDONLY | O_CLOEXEC);
	int directory_fd = open(place->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(hl_container_open(&container, fd, "x", HL_KIND_PACK, NULL), 0);
	assert_int_equal(hl_container_writer_init(&writer, directory_fd, "x.hlpack", HL_KIND_PACK,
						  HL_PACK_SECTION_COUNT, NULL),
			 0);
	for (size_t i = 0; i < HL_COUNT_OF(section_types); i++)
		copy_section(&container, &writer, section_types[i], &change);
	assert_int_equal(hl_container_writer_finish(&writer, false, NULL), 0);
	hl_container_writer_release(&writer);
	close(directory_fd);
	close(fd);
}

/* The sample with one number of a section replaced is refused with a sentence. */
static void assert_number_matters(const struct place *place, uint32_t type, size_t offset,
				  uint32_t number, const char *word)
{
	pack_changed(place, (struct change){type, offset, &number, sizeof(number), 0});
	assert_refused(place, -EBADMSG, word);
}

static void what_refers_to_nothing_is_refused(void **state)
{
	const char *const names = "names refer", *const figures = "figures refer";

	assert_number_matters(*state, HL_PACK_MODULES, 0, 999, names); /* path */
	assert_number_matters(*state, HL_PACK_FUNCTIONS, 0, 0, names); /* name */
	assert_number_matters(*state, HL_PACK_FUNCTIONS, 0, 999, names);
	assert_number_matters(*state, HL_PACK_FRAMES, FRAME_COUNT * 8, 999, names); /* function */
	assert_number_matters(*state, HL_PACK_FRAMES, FRAME_COUNT * 8, 0, names);
	assert_number_matters(*state, HL_PACK_PROCESSES, 2 * 3 * 4, 999, figures); /* command */
	assert_number_matters(*state, HL_PACK_THREADS, 0, 2, figures);		   /* process */
	assert_number_matters(*state, HL_PACK_ROWS, 0, 999, figures);		   /* node */
	assert_number_matters(*state, HL_PACK_ROWS, ROW_COUNT * 4, 3, figures);	   /* thread */
	assert_number_matters(*state, HL_PACK_ROWS, ROW_COUNT * 4, UINT32_MAX, figures);
	assert_number_matters(*state, HL_PACK_SIZES, 0, 999, figures);
	assert_number_matters(*state, HL_PACK_SIZES, 2 * 4, 65, figures); /* size class */
}

static void a_tree_out_of_preorder_is_refused(void **state)
{
	assert_number_matters(*state, HL_PACK_NODES, 0, 0, "preorder");
	assert_number_matters(*state, HL_PACK_NODES, 0, 2, "preorder");
	assert_number_matters(*state, HL_PACK_NODES, 4, 3, "preorder");
	assert_number_matters(*state, HL_PACK_NODES, NODE_COUNT * 4, 0, "frame");
	assert_number_matters(*state, HL_PACK_NODES, NODE_COUNT * 4, 99, "frame");
}

static void texts_are_there_once_and_end(void **state)
{
	pack_changed(*state, (struct change){HL_PACK_TEXTS, 0, "", 1, 0});
	assert_refused(*state, -EBADMSG, "empty");
	pack_changed(*state, (struct change){HL_PACK_TEXTS, 0, "", 0, 1});
	assert_refused(*state, -EBADMSG, "no end");
}

/* Packs the sample, of which the first frame is said to be ${part} of module ${provider}. */
static void pack_script(const struct place *place, uint8_t part, uint32_t provider)
{
	struct hl_profile *profile = load((struct hl_profile_selection){0});

	profile->modules[1].script = true;
	profile->frames[1].part = part;
	profile->frames[1].provider = provider;
	write_pack(place, profile);
	hl_profile_free(profile);
}

static void what_frames_are_to_scripts_is_packed(void **state)
{
	const char *const names = "names refer";
	const struct place *place = *state;
	struct hl_profile *profile;

	pack_script(place, HL_PART_ENTRY, 1);
	int fd = open(place->path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(hl_pack_read(fd, place->path, NULL, &profile, NULL), 0);
	close(fd);
	assert_int_equal(profile->frames[1].part, HL_PART_ENTRY);
	assert_int_equal(profile->frames[1].provider, 1);
	assert_int_equal(profile->frames[2].part, HL_PART_NATIVE);
	assert_true(profile->modules[1].script);
	assert_false(profile->modules[2].script);
	hl_profile_free(profile);
	pack_script(place, HL_PART_LAST + 1, 1);
	assert_refused(place, -EBADMSG, names);
	pack_script(place, HL_PART_SCRIPT, 999);
	assert_refused(place, -EBADMSG, names);
	pack_script(place, HL_PART_SCRIPT, 0);
	assert_refused(place, -EBADMSG, names);
	pack_script(place, HL_PART_NATIVE, 1);
	assert_refused(place, -EBADMSG, names);
}

static void booleans_are_zero_or_one(void **state)
{
	const uint8_t two = 2;

	pack_changed(*state,
		     (struct change){HL_PACK_FRAMES, FRAME_COUNT * (8 + 3 * 4), &two, 1, 0});
	assert_refused(*state, -EBADMSG, "boolean");
}

static void malformed_keys_are_named(void **state)
{
	pack_changed(*state, (struct change){HL_PACK_META, strlen("{\n \""), "c0mm", 4, 0});
	assert_refused(*state, -EBADMSG, "'command'");
	pack_changed(*state, (struct change){HL_PACK_META, 0, "[", 1, 0});
	assert_refused(*state, -EBADMSG, "JSON");
}

static void a_section_that_ends_within_a_row_is_refused(void **state)
{
	for (size_t i = 2; i < HL_COUNT_OF(section_types); i++) {
		if (section_types[i] == HL_PACK_BASE)
			continue; /* has no rows */
		pack_changed(*state, (struct change){section_types[i], 0, "", 0, 1});
		assert_refused(*state, -EBADMSG, "within a row");
	}
}

static void packed_recordings_are_told_by_their_first_bytes(void **state)
{
	const struct place *place = *state;
	uint8_t head[64];

	pack_sample(place);
	int fd = open(place->path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, head, sizeof(head)), sizeof(head));
	close(fd);
	assert_true(hl_pack_detect(head, sizeof(head)));
	assert_true(hl_pack_detect(head, 16));
	assert_false(hl_pack_detect(head, 15));
	head[12] = 'B';
	assert_false(hl_pack_detect(head, sizeof(head)));
}

/* ---- what goes wrong while writing ---- */

static void a_file_that_cannot_be_written_is_named(void **state)
{
	const struct place *place = *state;
	struct hl_profile *profile = load((struct hl_profile_selection){0});
	struct hl_error err = {0};

	assert_int_equal(hl_pack_write(profile, NULL, -1, "far/x.hlpack", &err), -EBADF);
	assert_string_equal(err.text, "cannot write 'far/x.hlpack': Bad file descriptor");
	FOR_EACH_FAILING_ALLOCATION(r, write_to(place->path, profile, NULL))
	assert_int_equal(r, -ENOMEM);
	hl_profile_free(profile);
}

static int read_once(const struct place *place, struct hl_profile_selection selection)
{
	struct hl_profile *profile = NULL;
	int r = read_selected(place, selection, &profile, NULL);

	hl_profile_free(r == 0 ? profile : NULL);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	const struct hl_profile_selection all = {0}, one = {.tid = 101};

	pack_sample(*state);
	FOR_EACH_FAILING_ALLOCATION(r, read_once(*state, all))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, read_once(*state, one))
	assert_int_equal(r, -ENOMEM);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, place_setup, place_teardown)

static void the_bytes_of_a_row_are_those_of_its_columns(void **state)
{
	static const struct hl_columns *const all[] = {
		&hl_pack_process_columns,  &hl_pack_thread_columns, &hl_pack_module_columns,
		&hl_pack_function_columns, &hl_pack_script_columns, &hl_pack_frame_columns,
		&hl_pack_node_columns,	   &hl_pack_row_columns,    &hl_pack_size_columns,
		&hl_node_columns,	   &hl_value_columns};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(all); i++) {
		size_t sum = 0;
		for (size_t column = 0; column < all[i]->count; column++)
			sum += all[i]->columns[column].size;
		assert_int_equal(sum, all[i]->row_bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bytes_of_a_row_are_those_of_its_columns),
		IN_PLACE(a_packed_recording_holds_the_whole_profile),
		IN_PLACE(an_imported_profile_keeps_its_kind_and_its_earlier_figures),
		IN_PLACE(an_empty_recording_can_be_packed),
		IN_PLACE(processes_and_threads_are_selected_as_from_the_recording),
		IN_PLACE(selecting_what_is_not_there_is_an_error),
		IN_PLACE(a_module_that_no_selected_stack_uses_is_unused),
		IN_PLACE(every_cut_and_every_flipped_bit_is_seen),
		IN_PLACE(what_refers_to_nothing_is_refused),
		IN_PLACE(a_tree_out_of_preorder_is_refused),
		IN_PLACE(texts_are_there_once_and_end),
		IN_PLACE(what_frames_are_to_scripts_is_packed),
		IN_PLACE(booleans_are_zero_or_one),
		IN_PLACE(malformed_keys_are_named),
		IN_PLACE(a_section_that_ends_within_a_row_is_refused),
		IN_PLACE(packed_recordings_are_told_by_their_first_bytes),
		IN_PLACE(a_file_that_cannot_be_written_is_named),
		IN_PLACE(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
