/* SPDX-License-Identifier: BSD-2-Clause */
/* The recording format: what is written is read, and damage is an error, never a crash. */
#include "recording/recording.h"

#include "recording/fields.h"
#include "recording/recording_files.h"

#include "fail_allocations.h"
#include "temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a directory for each test ---- */

struct place {
	char path[64];
	int fd;
};

static int place_setup(void **state)
{
	struct place *place = calloc(1, sizeof(*place));

	if (make_temporary(place->path) < 0)
		return -1;
	place->fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = place;
	return place->fd < 0 ? -1 : 0;
}

static int place_teardown(void **state)
{
	struct place *place = *state;

	close(place->fd);
	int r = remove_temporary(place->path);
	free(place);
	return r;
}

/* ---- a small recording with odd values everywhere ---- */

static char *command[] = {"py thon", "\xff\xfe%41\n\x01", "", "\xe2\x82\xac\xed\xa0\x80", NULL};
static char *warnings[] = {"the disk was full", NULL};

static struct hl_recording_figure figures[] = {
	{"rss_growth_pages", INT64_MIN},
	{"faults", INT64_MAX},
};

static struct hl_recording sample_recording(void)
{
	return (struct hl_recording){
		.tool_version = "1.2",
		.command = command,
		.host = "h\xc3",
		.kernel = "6.1",
		.mode = "mem-fast",
		.sample_bytes = UINT64_MAX,
		.start_realtime_ns = UINT64_C(1) << 63,
		.duration_ns = INT64_MAX,
		.complete = true,
		.warnings = warnings,
		.figures = figures,
		.figure_count = 2,
	};
}

static struct hl_recording_module modules[] = {
	{.path = "/lib/%x\x80",
	 .start = 1,
	 .end = UINT64_MAX,
	 .load_bias = 3,
	 .build_id = {0, 0xab, 0xff},
	 .build_id_bytes = 3},
	{.path = "", .build_id_bytes = 0},
};

static struct hl_recording_node nodes[] = {
	{(UINT64_C(1) << 48) | 0x1234, 3}, {0x7fff, 1}, {UINT64_C(2) << 48, 0}};

static struct hl_recording_value values[] = {
	{.node = 3,
	 .thread = 1,
	 .alloc_bytes = UINT64_MAX,
	 .alloc_objects = 2,
	 .free_bytes = 3,
	 .free_objects = 4,
	 .temporary_objects = 5,
	 .slack_bytes = -6,
	 .peak_bytes = INT64_MIN,
	 .peak_objects = -8},
	{.node = 1, .thread = 0, .alloc_bytes = 10},
};

static struct hl_recording_thread threads[] = {
	{.tid = UINT32_MAX,
	 .name = {'s', 'i', 'x', 't', 'e', 'e', 'n', ' ', 'b', 'y', 't', 'e', 's', ' ', 'o', 'k'}},
	{.tid = 2, .name = "\xff"}};

static struct hl_recording_provider providers[] = {
	{"l\xffua", 1, UINT64_MAX, 3, 4, 5, 6, 7, UINT64_MAX}};
static struct hl_recording_site sites[] = {{0, 1, 0, UINT32_MAX, 7}};
static char *site_names[] = {"", "a \x80"};
static struct hl_recording_code code[] = {{1, "JS:~f \xff:1"}, {UINT64_MAX, ""}};

static struct hl_recording_process sample_process(void)
{
	return (struct hl_recording_process){
		.pid = 4711,
		.parent_pid = 1,
		.sequence = 7,
		.executable = "/bin/\xfe",
		.command = command,
		.start_realtime_ns = 11,
		.duration_ns = 12,
		.complete = true,
		.own_malloc = true,
		.end = HL_END_SIGNALED,
		.end_status = -9,
		.peak_mark_ns = 13,
		.lost = {1, 2, 3, 4, 5, 6, UINT64_MAX, 7, 8, 9},
		.module_count = 2,
		.node_count = 3,
		.value_count = 2,
		.thread_count = 2,
		.modules = modules,
		.nodes = nodes,
		.values = values,
		.threads = threads,
		.provider_count = 1,
		.site_count = 1,
		.site_name_count = 2,
		.providers = providers,
		.sites = sites,
		.site_names = site_names,
		.code_count = 2,
		.code = code,
	};
}

static void assert_texts_equal(char **a, char **b)
{
	for (; *b; a++, b++) {
		assert_non_null(*a);
		assert_string_equal(*a, *b);
	}
	assert_null(*a);
}

static void assert_is_sample_recording(const struct hl_recording *r)
{
	struct hl_recording s = sample_recording();

	assert_string_equal(r->tool_version, s.tool_version);
	assert_texts_equal(r->command, s.command);
	assert_string_equal(r->host, s.host);
	assert_string_equal(r->kernel, s.kernel);
	assert_string_equal(r->mode, s.mode);
	assert_true(r->sample_bytes == s.sample_bytes);
	assert_true(r->start_realtime_ns == s.start_realtime_ns);
	assert_true(r->duration_ns == s.duration_ns);
	assert_true(r->complete);
	assert_texts_equal(r->warnings, s.warnings);
	assert_int_equal(r->figure_count, s.figure_count);
	for (uint32_t i = 0; i < s.figure_count; i++) {
		assert_string_equal(r->figures[i].name, s.figures[i].name);
		assert_true(r->figures[i].value == s.figures[i].value);
	}
}

static void assert_is_sample_tables(const struct hl_recording_process *p)
{
	assert_int_equal(p->module_count, 2);
	for (int i = 0; i < 2; i++) {
		assert_string_equal(p->modules[i].path, modules[i].path);
		assert_true(p->modules[i].start == modules[i].start);
		assert_true(p->modules[i].end == modules[i].end);
		assert_true(p->modules[i].load_bias == modules[i].load_bias);
		assert_int_equal(p->modules[i].build_id_bytes, modules[i].build_id_bytes);
		assert_memory_equal(p->modules[i].build_id, modules[i].build_id, 32);
	}
	assert_int_equal(p->node_count, 3);
	for (int i = 0; i < 3; i++) {
		assert_true(p->nodes[i].frame == nodes[i].frame);
		assert_int_equal(p->nodes[i].parent, nodes[i].parent);
	}
	assert_int_equal(p->value_count, 2);
	assert_memory_equal(p->values, values, sizeof(values));
	assert_int_equal(p->thread_count, 2);
	assert_memory_equal(p->threads, threads, sizeof(threads));
	assert_int_equal(p->provider_count, 1);
	assert_string_equal(p->providers[0].name, providers[0].name);
	assert_true(p->providers[0].eval_end == UINT64_MAX && p->providers[0].cold_end == 4 &&
		    p->providers[0].alloc_end == UINT64_MAX);
	assert_int_equal(p->site_count, 1);
	assert_memory_equal(p->sites, sites, sizeof(sites));
	assert_int_equal(p->site_name_count, 2);
	assert_string_equal(p->site_names[1], site_names[1]);
	assert_int_equal(p->code_count, 2);
	assert_true(p->code[1].address == UINT64_MAX);
	assert_string_equal(p->code[0].name, code[0].name);
}

static void assert_is_sample_process(const struct hl_recording_process *p)
{
	struct hl_recording_process s = sample_process();

	assert_int_equal(p->pid, s.pid);
	assert_int_equal(p->parent_pid, s.parent_pid);
	assert_int_equal(p->sequence, s.sequence);
	assert_string_equal(p->executable, s.executable);
	assert_texts_equal(p->command, s.command);
	assert_true(p->start_realtime_ns == s.start_realtime_ns);
	assert_true(p->duration_ns == s.duration_ns);
	assert_true(p->complete);
	assert_true(p->own_malloc);
	assert_int_equal(p->end, s.end);
	assert_int_equal(p->end_status, s.end_status);
	assert_true(p->peak_mark_ns == s.peak_mark_ns);
	assert_memory_equal(&p->lost, &s.lost, sizeof(s.lost));
	assert_is_sample_tables(p);
}

static void write_sample(const struct place *place)
{
	struct hl_recording recording = sample_recording();
	struct hl_recording_process process = sample_process();
	struct hl_error err = {0};

	assert_int_equal(hl_recording_write_meta(place->fd, &recording, &err), 0);
	assert_int_equal(hl_recording_write_process(place->fd, &process, &err), 0);
	assert_string_equal(err.text, "");
}

/* Opens and expects failure with a sentence that contains ${part}. */
static void assert_refused(const char *path, const char *part)
{
	struct hl_recording *recording = NULL;
	struct hl_error err = {0};
	int r = hl_recording_open(path, &recording, &err);

	assert_true(r < 0);
	assert_null(recording);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
}

/* ---- tests ---- */

static void what_is_written_is_read(void **state)
{
	struct place *place = *state;

	write_sample(place);
	struct hl_recording *recording;
	struct hl_error err = {0};
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	assert_string_equal(recording->name, place->path);
	assert_int_equal(recording->format_version, 1);
	assert_is_sample_recording(recording);
	assert_int_equal(recording->process_count, 1);
	assert_is_sample_process(&recording->processes[0]);
	hl_recording_free(recording);
}

static void an_empty_process_is_read(void **state)
{
	struct place *place = *state;
	struct hl_recording meta = {0};
	struct hl_recording_process process = {.pid = 1};
	struct hl_error err = {0};

	assert_int_equal(hl_recording_write_meta(place->fd, &meta, &err), 0);
	assert_int_equal(hl_recording_write_process(place->fd, &process, &err), 0);
	struct hl_recording *recording;
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	assert_int_equal(recording->process_count, 1);
	assert_string_equal(recording->processes[0].executable, "");
	assert_null(recording->processes[0].command[0]);
	hl_recording_free(recording);
}

static void a_recording_that_goes_on_lasts_until_the_last_save_of_a_process(void **state)
{
	struct place *place = *state;
	struct hl_recording meta = {.start_realtime_ns = 1000, .duration_ns = 10};
	const struct hl_recording_process processes[] = {
		{.pid = 1, .sequence = 0, .start_realtime_ns = 1001, .duration_ns = 70},
		{.pid = 2, .sequence = 1, .start_realtime_ns = 1050, .duration_ns = 5},
		{.pid = 3, .sequence = 2, .start_realtime_ns = 1, .duration_ns = 5000},
	};
	struct hl_error err = {0};

	for (size_t i = 0; i < HL_COUNT_OF(processes); i++)
		assert_int_equal(hl_recording_write_process(place->fd, &processes[i], &err), 0);
	for (int complete = 0; complete < 2; complete++) {
		struct hl_recording *recording;
		meta.complete = complete;
		assert_int_equal(hl_recording_write_meta(place->fd, &meta, &err), 0);
		assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
		assert_int_equal(recording->duration_ns, complete ? 10 : 71);
		hl_recording_free(recording);
	}
}

static void processes_come_by_sequence(void **state)
{
	struct place *place = *state;
	struct hl_recording meta = {0};
	struct hl_error err = {0};

	assert_int_equal(hl_recording_write_meta(place->fd, &meta, &err), 0);
	static const uint32_t order[] = {10, 2, 0, 1};
	for (size_t i = 0; i < HL_COUNT_OF(order); i++) {
		struct hl_recording_process process = {.pid = 100, .sequence = order[i]};
		assert_int_equal(hl_recording_write_process(place->fd, &process, &err), 0);
	}
	struct hl_recording *recording;
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	assert_int_equal(recording->process_count, 4);
	assert_int_equal(recording->processes[0].sequence, 0);
	assert_int_equal(recording->processes[1].sequence, 1);
	assert_int_equal(recording->processes[2].sequence, 2);
	assert_int_equal(recording->processes[3].sequence, 10);
	hl_recording_free(recording);
}

static void processes_of_another_recording_are_left_out_and_named(void **state)
{
	struct place *place = *state;
	struct hl_recording meta = {
		.start_realtime_ns = 100, .complete = true, .ended_processes = 3};
	struct hl_recording *recording;
	struct hl_error err = {0};

	assert_int_equal(hl_recording_write_meta(place->fd, &meta, &err), 0);
	static const uint64_t starts[] = {99, 100, 0 /* not known */, 101};
	for (uint32_t i = 0; i < HL_COUNT_OF(starts); i++) {
		struct hl_recording_process process = {
			.pid = 7, .sequence = i, .recording_start_ns = starts[i]};
		assert_int_equal(hl_recording_write_process(place->fd, &process, &err), 0);
	}
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	assert_int_equal(recording->process_count, 2);
	assert_int_equal(recording->processes[0].sequence, 1);
	assert_int_equal(recording->processes[0].recording_start_ns, 100);
	assert_int_equal(recording->processes[1].sequence, 2);
	assert_non_null(strstr(recording->warnings[0], "process-0-7.hlp"));
	assert_non_null(strstr(recording->warnings[1], "process-3-7.hlp"));
	assert_non_null(strstr(recording->warnings[2], "1 of 3 processes"));
	assert_null(recording->warnings[3]);
	hl_recording_free(recording);
	unlinkat(place->fd, "process-1-7.hlp", 0);
	unlinkat(place->fd, "process-2-7.hlp", 0);
	assert_refused(place->path, "of another recording");
}

static void a_missing_path_is_said(void **state)
{
	struct place *place = *state;
	char path[128];

	snprintf(path, sizeof(path), "%s/none", place->path);
	assert_refused(path, "No such file or directory");
}

static void a_file_is_not_a_recording(void **state)
{
	(void)state;
	assert_refused("/proc/self/exe", "a recording is a directory");
}

static void an_empty_directory_is_not_a_recording(void **state)
{
	struct place *place = *state;

	assert_refused(place->path, "it is not a recording");
}

static void other_files_are_left_alone(void **state)
{
	struct place *place = *state;

	write_sample(place);
	static const char *const names[] = {"notes", "process-1.hlp", "process-01-2.hlp",
					    ".process-1-2.hlp.tmp", "process-1-2.hlp~"};
	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		close(openat(place->fd, names[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	struct hl_recording *recording;
	struct hl_error err = {0};
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	assert_int_equal(recording->process_count, 1);
	hl_recording_free(recording);
}

/* ---- damage ---- */

static size_t load_file(int directory_fd, const char *name, uint8_t *bytes, size_t capacity)
{
	int fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	ssize_t size = read(fd, bytes, capacity);
	assert_true(size > 0 && (size_t)size < capacity);
	close(fd);
	return (size_t)size;
}

static int memory_file(const void *bytes, size_t size)
{
	int fd = memfd_create("damaged", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, size, 0), size);
	return fd;
}

/* Reads one file's bytes as ${kind} of file; damage must be an error with the file's name in it. */
static void assert_damage_is_seen(const void *bytes, size_t size, uint32_t kind)
{
	struct hl_error err = {0};
	int fd = memory_file(bytes, size);
	int r;

	if (kind == HL_KIND_PROCESS) {
		struct hl_recording_process process = {0};
		r = hl_recording_read_process(fd, "FILE", &process, &err);
		hl_recording_process_release(&process);
	} else {
		struct hl_recording *recording = calloc(1, sizeof(*recording));
		r = hl_recording_read_meta(fd, "FILE", recording, &err);
		hl_recording_free(recording);
	}
	close(fd);
	assert_true(r < 0);
	assert_non_null(strstr(err.text, "'FILE': "));
}

static void damage_file(const struct place *place, const char *name, uint32_t kind)
{
	uint8_t bytes[8192];
	size_t size = load_file(place->fd, name, bytes, sizeof(bytes));

	for (size_t cut = 0; cut < size; cut++)
		assert_damage_is_seen(bytes, cut, kind);
	for (size_t bit = 0; bit < 8 * size; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_damage_is_seen(bytes, size, kind);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	bytes[size] = 0;
	assert_damage_is_seen(bytes, size + 1, kind);
}

static void every_cut_and_every_flipped_bit_is_seen(void **state)
{
	struct place *place = *state;

	write_sample(place);
	damage_file(place, HL_META_FILE, HL_KIND_RECORDING);
	damage_file(place, "process-7-4711.hlp", HL_KIND_PROCESS);
}

static void one_damaged_process_file_fails_the_recording(void **state)
{
	struct place *place = *state;

	write_sample(place);
	int fd = openat(place->fd, "process-7-4711.hlp", O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, 100), 0);
	close(fd);
	assert_refused(place->path, "process-7-4711.hlp': ");
}

static void a_process_file_under_another_name_is_refused(void **state)
{
	struct place *place = *state;

	write_sample(place);
	assert_int_equal(renameat(place->fd, "process-7-4711.hlp", place->fd, "process-8-4711.hlp"),
			 0);
	assert_refused(place->path, "the file of another process");
}

static void a_newer_version_is_said(void **state)
{
	struct place *place = *state;

	write_sample(place);
	int fd = openat(place->fd, HL_META_FILE, O_WRONLY | O_CLOEXEC);
	uint32_t version = 2;
	assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
	close(fd);
	assert_refused(place->path, "its format version is 2");
	version = 0x10000001; /* no heapline has written this one */
	fd = openat(place->fd, HL_META_FILE, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
	close(fd);
	assert_refused(place->path, "its header is damaged");
}

/* Writes a process file with valid checksums around the given sections. */
static void write_process_sections(const struct place *place, const char *json,
				   const void *node_bytes, size_t node_size,
				   const void *value_bytes, size_t value_size)
{
	struct hl_container_writer writer;
	struct hl_error err = {0};

	assert_int_equal(hl_container_writer_init(&writer, place->fd, "process-7-4711.hlp",
						  HL_KIND_PROCESS, 4, &err),
			 0);
	hl_container_writer_add(&writer, HL_FOURCC('N', 'E', 'W', '!'), "later", 5, false, &err);
	hl_container_writer_add(&writer, HL_SECTION_META, json, strlen(json), false, &err);
	hl_container_writer_add(&writer, HL_SECTION_NODES, node_bytes, node_size, true, &err);
	hl_container_writer_add(&writer, HL_SECTION_VALUES, value_bytes, value_size, false, &err);
	assert_int_equal(hl_container_writer_finish(&writer, false, &err), 0);
	hl_container_writer_release(&writer);
}

#define JSON_PROCESS(node_count, more)                                                      \
	"{\"pid\":4711,\"parent_pid\":1,\"sequence\":7,\"executable\":\"\",\"command\":[]," \
	"\"start_realtime_ns\":0,\"duration_ns\":0,\"complete\":true,\"own_malloc\":false," \
	"\"end\":\"exited\",\"end_status\":0,\"peak_mark_ns\":0,\"lost\":{\"events\":0,"    \
	"\"bytes\":0,\"truncated_stacks\":0,\"incomplete_stacks\":0,\"unmatched_frees\":0," \
	"\"modules\":0,\"unscanned_bytes\":0},\"modules\":[],\"threads\":[{\"tid\":1,"      \
	"\"name\":\"\"}],\"node_count\":" node_count ",\"value_count\":1" more "}"

struct two_nodes {
	uint64_t frames[2];
	uint32_t parents[2];
};

struct one_value {
	uint32_t node, thread;
	uint64_t numbers[8];
};

static void assert_sections_refused(const struct place *place, const char *json,
				    struct two_nodes node, struct one_value value, const char *part)
{
	write_process_sections(place, json, &node, sizeof(node), &value, sizeof(value));
	assert_refused(place->path, part);
}

static void indexes_out_of_range_and_cycles_are_refused(void **state)
{
	struct place *place = *state;

	write_sample(place);
	const char *json = JSON_PROCESS("2", ",\"new key\":[1]");
	struct two_nodes node = {{1, 2}, {0, 1}};
	struct one_value value = {2, 0, {0}};
	struct hl_recording *recording;
	struct hl_error err = {0};
	write_process_sections(place, json, &node, sizeof(node), &value, sizeof(value));
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	/* Without the flag, as older versions wrote them, parents are as they stand. */
	assert_int_equal(recording->processes[0].nodes[0].parent, 0);
	assert_int_equal(recording->processes[0].nodes[1].parent, 1);
	hl_recording_free(recording);

	assert_sections_refused(place, json, (struct two_nodes){{1, 2}, {2, 1}}, value, "a tree");
	assert_sections_refused(place, json, (struct two_nodes){{1, 2}, {1, 0}}, value, "a tree");
	assert_sections_refused(place, json, (struct two_nodes){{1, 2}, {3, 0}}, value, "a tree");
	assert_sections_refused(place, json, (struct two_nodes){{1, UINT64_C(1) << 48}, {0, 0}},
				value, "a module");
	assert_sections_refused(place, json, node, (struct one_value){3, 0, {0}}, "a stack node");
	assert_sections_refused(place, json, node, (struct one_value){0, 0, {0}}, "a stack node");
	assert_sections_refused(place, json, node, (struct one_value){1, 1, {0}}, "a thread");
}

static void lengths_that_do_not_fit_are_refused(void **state)
{
	struct place *place = *state;

	write_sample(place);
	struct two_nodes node = {{1, 2}, {0, 1}};
	struct one_value value = {1, 0, {0}};
	assert_sections_refused(place, JSON_PROCESS("3", ""), node, value, "shorter than its rows");
	assert_sections_refused(place, JSON_PROCESS("1", ""), node, value, "longer than its rows");
	assert_sections_refused(place, JSON_PROCESS("16777216", ""), node, value, "'node_count'");
	assert_sections_refused(place, JSON_PROCESS("-1", ""), node, value, "'node_count'");
	assert_sections_refused(place, JSON_PROCESS("2.0", ""), node, value, "'node_count'");
	assert_sections_refused(place, JSON_PROCESS("2", ",\"pid\":1"), node, value,
				"malformed JSON");
	assert_sections_refused(place, "[]", node, value, "not an object");
	assert_sections_refused(place, "{}", node, value, "'pid'");
}

/* Writes the meta file with valid checksums around ${json}. */
static void write_meta_section(const struct place *place, const char *json)
{
	struct hl_container_writer writer;
	struct hl_error err = {0};

	assert_int_equal(hl_container_writer_init(&writer, place->fd, HL_META_FILE,
						  HL_KIND_RECORDING, 1, &err),
			 0);
	hl_container_writer_add(&writer, HL_SECTION_META, json, strlen(json), false, &err);
	assert_int_equal(hl_container_writer_finish(&writer, false, &err), 0);
	hl_container_writer_release(&writer);
}

#define JSON_RECORDING(more)                                                              \
	"{\"tool_version\":\"1\",\"command\":[],\"host\":\"\",\"kernel\":\"\",\"mode\":"  \
	"\"pgfault\","                                                                    \
	"\"sample_bytes\":0,\"start_realtime_ns\":0,\"duration_ns\":0,\"complete\":true," \
	"\"warnings\":[]" more "}"

static void recordings_from_before_there_were_figures_have_none(void **state)
{
	struct place *place = *state;
	struct hl_recording *recording;
	struct hl_error err = {0};

	write_sample(place);
	write_meta_section(place, JSON_RECORDING(""));
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	assert_int_equal(recording->figure_count, 0);
	hl_recording_free(recording);
}

static void figures_that_make_no_sense_are_refused(void **state)
{
	struct place *place = *state;

	static const struct {
		const char *json, *key;
	} bad[] = {
		{JSON_RECORDING(",\"figures\":7"), "figures"},
		{JSON_RECORDING(",\"figures\":[7]"), "name"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"a_pages\"}]"), "value"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"a_pages\",\"value\":1.5}]"), "value"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"a_parsecs\",\"value\":1}]"), "name"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"_pages\",\"value\":1}]"), "name"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"A_pages\",\"value\":1}]"), "name"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"a\\\"_pages\",\"value\":1}]"), "name"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"\",\"value\":1}]"), "name"},
		{JSON_RECORDING(",\"figures\":[{\"name\":\"a_pages\",\"value\":1},"
				"{\"name\":\"a_pages\",\"value\":1}]"),
		 "figures"},
	};
	write_sample(place);
	for (size_t i = 0; i < HL_COUNT_OF(bad); i++) {
		char part[64];
		snprintf(part, sizeof(part), "its key '%s' is missing or malformed", bad[i].key);
		write_meta_section(place, bad[i].json);
		assert_refused(place->path, part);
	}
}

static void any_bytes_survive_as_text(void **state)
{
	(void)state;
	char bytes[3];
	for (int i = 0; i < 255 * 255; i++) {
		bytes[0] = (char)(i % 255 + 1);
		bytes[1] = (char)(i / 255 + 1);
		bytes[2] = '\0';
		char *text = hl_text_escape(bytes, 2);
		json_t *json = json_string(text);
		assert_non_null(json);
		char *again;
		assert_int_equal(hl_text_unescape(text, strlen(text), &again), 0);
		assert_string_equal(again, bytes);
		json_decref(json);
		free(text);
		free(again);
	}
}

static void malformed_escapes_are_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"%", "%4", "%4g", "%fF", "%00", "a%"};
	for (size_t i = 0; i < HL_COUNT_OF(texts); i++) {
		char *bytes = NULL;
		assert_int_equal(hl_text_unescape(texts[i], strlen(texts[i]), &bytes), -EINVAL);
		assert_null(bytes);
	}
}

/* ---- want of disk and memory ---- */

static void a_failed_write_leaves_the_old_file(void **state)
{
	struct place *place = *state;

	write_sample(place);
	struct hl_recording_process process = sample_process();
	struct hl_error err = {0};
	process.end_status = 1;
	int read_only = openat(place->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(place->fd, ".process-7-4711.hlp.tmp", 0700), 0);
	assert_true(hl_recording_write_process(read_only, &process, &err) < 0);
	assert_non_null(strstr(err.text, "cannot write 'process-7-4711.hlp'"));
	close(read_only);
	struct hl_recording *recording;
	assert_int_equal(hl_recording_open(place->path, &recording, &err), 0);
	assert_is_sample_process(&recording->processes[0]);
	hl_recording_free(recording);
}

/* ---- every allocation of ours made to fail in turn ---- */

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

char *__wrap_strdup(const char *text)
{
	return may_allocate() ? __real_strdup(text) : NULL;
}

static int open_and_free(const struct place *place, struct hl_error *err)
{
	struct hl_recording *recording = NULL;

	*err = (struct hl_error){0};
	int r = hl_recording_open(place->path, &recording, err);
	hl_recording_free(recording);
	return r;
}

static void each_failing_allocation_of_the_reader_is_an_error(void **state)
{
	struct place *place = *state;
	struct hl_error err;

	write_sample(place);
	FOR_EACH_FAILING_ALLOCATION(r, open_and_free(place, &err))
	{
		assert_true(r < 0);
		assert_non_null(strstr(err.text, "cannot "));
	}
}

/* Jansson takes part in writing only: its parser aborts for want of memory. */
static void each_failing_allocation_of_the_writer_is_an_error(void **state)
{
	struct place *place = *state;
	struct hl_recording_process process = sample_process();

	json_set_alloc_funcs(__wrap_malloc, free);
	FOR_EACH_FAILING_ALLOCATION(r, hl_recording_write_process(place->fd, &process, NULL))
	{
		assert_true(r < 0);
		assert_int_equal(faccessat(place->fd, ".process-7-4711.hlp.tmp", F_OK, 0), -1);
	}
	json_set_alloc_funcs(__real_malloc, free);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, place_setup, place_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACE(what_is_written_is_read),
		IN_PLACE(an_empty_process_is_read),
		IN_PLACE(a_recording_that_goes_on_lasts_until_the_last_save_of_a_process),
		IN_PLACE(processes_come_by_sequence),
		IN_PLACE(processes_of_another_recording_are_left_out_and_named),
		IN_PLACE(a_missing_path_is_said),
		IN_PLACE(a_file_is_not_a_recording),
		IN_PLACE(an_empty_directory_is_not_a_recording),
		IN_PLACE(other_files_are_left_alone),
		IN_PLACE(every_cut_and_every_flipped_bit_is_seen),
		IN_PLACE(one_damaged_process_file_fails_the_recording),
		IN_PLACE(a_process_file_under_another_name_is_refused),
		IN_PLACE(a_newer_version_is_said),
		IN_PLACE(indexes_out_of_range_and_cycles_are_refused),
		IN_PLACE(lengths_that_do_not_fit_are_refused),
		IN_PLACE(recordings_from_before_there_were_figures_have_none),
		IN_PLACE(figures_that_make_no_sense_are_refused),
		IN_PLACE(any_bytes_survive_as_text),
		IN_PLACE(malformed_escapes_are_refused),
		IN_PLACE(a_failed_write_leaves_the_old_file),
		IN_PLACE(each_failing_allocation_of_the_reader_is_an_error),
		IN_PLACE(each_failing_allocation_of_the_writer_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
