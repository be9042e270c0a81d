/* SPDX-License-Identifier: BSD-2-Clause */
/* Sampled heap profiles of V8, and files that are recognized and not read. */
#include "import_reading.h"

#include "base/compiler.h"
#include "guests.h"

#include <elf.h>
#include <zstd.h>

#define CALL(name, url, line)                                                              \
	"{\"callFrame\":{\"functionName\":\"" name "\",\"scriptId\":\"80\",\"url\":\"" url \
	"\",\"lineNumber\":" line ",\"columnNumber\":9},"

/* 100 bytes in keep(), called by main at two places, and 8 in the root itself. */
#define PROFILE                                                                                    \
	"{\"head\":" CALL("(root)", "", "-1") "\"selfSize\":8,\"id\":1,\"children\":[" CALL(       \
		"main", "file:///x/app.js",                                                        \
		"0") "\"selfSize\":0,\"id\":2,\"children\":[" CALL("keep", "file:///x/app.js",     \
								   "6") "\"selfSize\":60,\"id\":"  \
									"3,\"children\":[]}"       \
									"," CALL("", "node:fs",    \
										 "9") "\"selfSize" \
										      "\":40,"     \
										      "\"id\":4,"  \
										      "\"children" \
										      "\":[]}]}]}" \
										      ","          \
										      "\"samples"  \
										      "\":[{"      \
										      "\"size\":"  \
										      "60,"        \
										      "\"nodeId\"" \
										      ":3,"        \
										      "\"ordinal"  \
										      "\":1}]}"

static void functions_of_scripts_have_their_bytes_files_and_lines(void **state)
{
	struct hl_profile *profile = must_read_text(&hl_importer_v8, PROFILE);
	uint32_t node = node_of(profile, "main;keep");
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];

	(void)state;
	assert_int_equal(profile->counters[node].alloc_bytes, 60);
	assert_string_equal(hl_profile_text(profile, frame->file), "/x/app.js");
	assert_int_equal(frame->line, 7);
	assert_int_equal(counters_of(profile, "main;(anonymous)")->alloc_bytes, 40);
	assert_int_equal(profile->total.alloc_bytes, 108);
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	assert_false(profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS]);
	hl_profile_free(profile);
}

/* node 20 writes more bytes than the profile has. */
static void bytes_after_the_end_are_ignored(void **state)
{
	struct hl_profile *profile = must_read_text(&hl_importer_v8, PROFILE "\3\"garbage");

	(void)state;
	assert_int_equal(profile->total.alloc_bytes, 108);
	hl_profile_free(profile);
}

static void a_profile_may_end_anywhere(void **state)
{
	static const char sizeless[] = "{\"head\":" CALL("f", "", "1") "\"id\":1}}";

	(void)state;
	read_every_beginning(&hl_importer_v8, PROFILE, strlen(PROFILE));
	must_refuse(&hl_importer_v8, sizeless, strlen(sizeless),
		    "cannot read 'x': a node of the tree has no 'callFrame' or no 'selfSize'");
	must_survive_want_of_memory(&hl_importer_v8, PROFILE, strlen(PROFILE));
}

static void must_be_named(const void *bytes, size_t size, const char *what)
{
	struct hl_import_input input = {.name = "x", .bytes = bytes, .size = size};
	struct hl_profile *profile = NULL;
	const char *said = hl_import_foreign(&input);

	if (!said || !strstr(said, what))
		fail_msg("'%s' where '%s' is expected", said ? said : "nothing", what);
	assert_int_equal(read_bytes(NULL, bytes, size, &profile), -EBADMSG);
	assert_non_null(strstr(error.text, what));
}

static void a_core_file_names_the_verbs_that_read_it(void **state)
{
	Elf64_Ehdr header = {.e_ident = ELFMAG, .e_type = ET_CORE};
	struct hl_import_input program = {
		.name = "x", .bytes = (uint8_t *)&header, .size = sizeof(header)};

	(void)state;
	must_be_named(&header, sizeof(header), "heapline heap --core FILE");
	header.e_type = ET_DYN;
	assert_null(hl_import_foreign(&program));
}

static void files_of_other_tools_are_named_not_read_as_folded_text(void **state)
{
	static const struct {
		const char *text, *what;
	} files[] = {
		{"goroutine profile: total 1\n1 @ 0x1 0x2\n", "a list of Go's goroutines"},
		{"threadcreate profile: total 7\n7 @ 0x1\n", "threads that Go made"},
		{"{\n  \"total_num_allocations\": 1,\n  \"total_bytes_allocated\": 2,\n  "
		 "\"allocation_size_histogram\": [],\n",
		 "'memray stats --json', which have no stacks"},
		{"{\"dhatFileVersion\":2\n,\"mode\":\"heap\"\n", "DHAT's"},
		{"JAVA PROFILE 1.0.2", "a dump of Java's objects"},
		{"{\"snapshot\":{\"meta\":{\"node_fields\":[", "a snapshot of V8's objects"},
		{"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\"}",
		 "speedscope's"},
		{"{\n  \"dhatFileVersion\": 2,\n  \"mode\": \"heap\"\n", "DHAT's"},
		{"{\n  \"meta\": {\n    \"preprocessedProfileVersion\": 55,\n",
		 "Firefox Profiler's"},
		{"{\n  \"schema\": \"heapline/export/1\",\n", "a report of 'heapline'"},
		{"inuse_bytes,inuse_objects,alloc_bytes,stack\n1,1,1,\"a;b\"\n",
		 "the CSV of 'heapline export'"},
		{"\x0a\x04\x50\x01\x68\x01\x0a\x02\x50\x01", "Perfetto's"},
		{"v 10400 3\nX ./a\n+ 1\n", "--flamegraph-cost-type leaked"},
		{"v 10400 3\nX ./a\n+ 48 1 55ff\n", "heaptrack_interpret <FILE"},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(files); i++)
		must_be_named(files[i].text, strlen(files[i].text), files[i].what);
}

static void long_text_that_begins_with_an_empty_line_is_no_trace(void **state)
{
	static const char line[] =
		"\nmain;f;g 1\nmain;f2;g 2\nmain;f3;g 3\nmain;f4;g 4\nmain;f5;g 5"
		"\nmain;f6;g 6\nmain;f7;g 7\nmain;f8;g 8\nmain;f9;g 9\nmain;fa;g 1";
	const struct hl_import_input text = {.name = "x",
					     .bytes = (const uint8_t *)line,
					     .size = sizeof(line) - 1,
					     .partial = true};
	static const char packets[] = "\x0a\x04\x50\x01\x68\x01\x0a\x40\x50\x01";
	const struct hl_import_input trace = {.name = "x",
					      .bytes = (const uint8_t *)packets,
					      .size = sizeof(packets) - 1,
					      .partial = true};

	(void)state;
	assert_null(hl_import_foreign(&text));
	assert_non_null(strstr(hl_import_foreign(&trace), "Perfetto's"));
}

static void files_of_guests_that_are_not_read_are_named(void **state)
{
	static const char dump[] = "=erl_crash_dump:0.5\nSun Nov 1\nSlogan: x 1\n";

	(void)state;
	needs_guest("Erlang");
	must_be_named(dump, strlen(dump), "a crash dump of Erlang");
}

static void compressed_files_of_heaptrack_are_known_by_what_is_in_them(void **state)
{
	static const struct {
		const char *text, *what;
	} files[] = {
		{"v 10400 3\nX ./a\n+ 1\n", "heaptrack_print -f FILE"},
		{"v 10400 3\nX ./a\n+ 48 1 55ff\n", "heaptrack_interpret >OUT"},
		{"anything", "inflate it with 'zstd -d'"},
	};
	char compressed[256];

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(files); i++) {
		size_t size = ZSTD_compress(compressed, sizeof(compressed), files[i].text,
					    strlen(files[i].text), 1);
		assert_false(ZSTD_isError(size));
		must_be_named(compressed, size, files[i].what);
		must_be_named(compressed, 5, "inflate it with 'zstd -d'");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_of_scripts_have_their_bytes_files_and_lines),
		cmocka_unit_test(bytes_after_the_end_are_ignored),
		cmocka_unit_test(a_profile_may_end_anywhere),
		cmocka_unit_test(a_core_file_names_the_verbs_that_read_it),
		cmocka_unit_test(files_of_other_tools_are_named_not_read_as_folded_text),
		cmocka_unit_test(long_text_that_begins_with_an_empty_line_is_no_trace),
		cmocka_unit_test(files_of_guests_that_are_not_read_are_named),
		cmocka_unit_test(compressed_files_of_heaptrack_are_known_by_what_is_in_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
