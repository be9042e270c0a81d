/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of pprof from others: what they may call things, and what must not be believed. */
#include "pprof_file.h"

#include "base/compiler.h"

#include <errno.h>
#include <link.h>

/* ---- a file of one sample, made again for each test: a in b, both in /nowhere/app ---- */

#define PATH_TEXT 5 /* index of the path of the mapping */

static char *texts[16];
static Pprof__ValueType types[2], *type_list[] = {&types[0], &types[1]};
static Pprof__Mapping mapping, *mapping_list[] = {&mapping};
static Pprof__Function functions[2], *function_list[] = {&functions[0], &functions[1]};
static Pprof__Line lines[2], *line_lists[2][1] = {{&lines[0]}, {&lines[1]}};
static Pprof__Location locations[2], *location_list[] = {&locations[0], &locations[1]};
static uint64_t stack[2];
static int64_t values[2];
static Pprof__Sample sample, *sample_list[] = {&sample};
static Pprof__Profile draft;

static void draft_places(void)
{
	mapping = (Pprof__Mapping)PPROF__MAPPING__INIT;
	mapping.id = 9;
	mapping.memory_start = 0x7000;
	mapping.memory_limit = 0x9000;
	mapping.file_offset = 0x1000;
	mapping.filename = PATH_TEXT;
	for (int i = 0; i < 2; i++) {
		functions[i] = (Pprof__Function)PPROF__FUNCTION__INIT;
		functions[i].id = (uint64_t)i + 1;
		functions[i].name = 6 + i;
		lines[i] = (Pprof__Line)PPROF__LINE__INIT;
		lines[i].function_id = functions[i].id;
		locations[i] = (Pprof__Location)PPROF__LOCATION__INIT;
		locations[i].id = UINT64_MAX - (uint64_t)i; /* ids are any numbers */
		locations[i].mapping_id = mapping.id;
		locations[i].address = 0x7100 + (uint64_t)i;
		locations[i].n_line = 1;
		locations[i].line = line_lists[i];
		stack[i] = locations[i].id;
	}
	draft.n_mapping = 1;
	draft.mapping = mapping_list;
	draft.n_function = draft.n_location = 2;
	draft.function = function_list;
	draft.location = location_list;
}

static int draft_file(void **state)
{
	static char *const initial[] = {"",	 "inuse_objects", "count", "inuse_space",
					"bytes", "/nowhere/app",  "a",	   "b"};

	(void)state;
	memcpy(texts, initial, sizeof(initial));
	draft = (Pprof__Profile)PPROF__PROFILE__INIT;
	draft.n_string_table = HL_COUNT_OF(initial);
	draft.string_table = texts;
	for (int i = 0; i < 2; i++) {
		types[i] = (Pprof__ValueType)PPROF__VALUE_TYPE__INIT;
		types[i].type = 1 + 2 * i;
		types[i].unit = 2 + 2 * i;
		values[i] = 7 + 4 * i;
	}
	draft.n_sample_type = 2;
	draft.sample_type = type_list;
	draft_places();
	sample = (Pprof__Sample)PPROF__SAMPLE__INIT;
	sample.n_location_id = sample.n_value = 2;
	sample.location_id = stack;
	sample.value = values;
	draft.n_sample = 1;
	draft.sample = sample_list;
	return 0;
}

static struct pprof_file packed(void)
{
	struct pprof_file file = {.size = pprof__profile__get_packed_size(&draft)};

	file.bytes = malloc(file.size + 1);
	assert_non_null(file.bytes);
	pprof__profile__pack(&draft, file.bytes);
	file.bytes[file.size] = '\0';
	return file;
}

static struct hl_profile *profile_of_draft(void)
{
	struct pprof_file file = packed();
	struct hl_profile *profile = profile_of_pprof(&file);

	free(file.bytes);
	return profile;
}

/* The file must be refused with a sentence that has ${reason} in it. */
static void assert_refused(const struct pprof_file *file, const char *reason)
{
	struct hl_profile *profile;
	struct hl_error err;

	if (pprof_read(file, &profile, &err) == 0)
		fail_msg("read without the error '%s'", reason);
	if (!strstr(err.text, reason) || strncmp(err.text, "cannot read 'x.pb'", 18) != 0)
		fail_msg("'%s' where '%s' is expected", err.text, reason);
}

static void assert_draft_refused(const char *reason)
{
	struct pprof_file file = packed();

	assert_refused(&file, reason);
	free(file.bytes);
	draft_file(NULL);
}

static const char *name_of(const struct hl_profile *profile, uint32_t node)
{
	uint32_t function = profile->frames[profile->nodes[node].frame].function;

	return hl_profile_text(profile, profile->functions[function].name);
}

/* ---- what is taken in ---- */

static void stacks_are_turned_over_and_addresses_are_the_files(void **state)
{
	struct hl_profile *profile = profile_of_draft();

	(void)state;
	assert_int_equal(profile->node_count, 3);
	assert_string_equal(name_of(profile, 1), "b");
	assert_string_equal(name_of(profile, 2), "a");
	assert_int_equal(profile->frames[profile->nodes[2].frame].address, 0x1100);
	assert_int_equal(profile->total.alloc_objects, 7);
	assert_int_equal(profile->total.alloc_bytes, 11);
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	assert_false(profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	hl_profile_free(profile);
}

static void a_profile_without_memory_is_shown_as_in_use_with_a_warning(void **state)
{
	(void)state;
	texts[1] = "samples";
	texts[3] = "cpu";
	texts[4] = "nanoseconds";
	draft.default_sample_type = 1;
	struct hl_profile *profile = profile_of_draft();
	assert_int_equal(profile->total.alloc_objects, 7);
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS]);
	assert_false(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	assert_int_equal(profile->warning_count, 1);
	assert_non_null(strstr(hl_profile_text(profile, profile->warnings[0]), "'samples'"));
	hl_profile_free(profile);
	draft.default_sample_type = 0; /* then the last */
	profile = profile_of_draft();
	assert_int_equal(profile->total.alloc_objects, 11);
	hl_profile_free(profile);
}

static void a_unit_that_is_no_byte_is_not_taken_for_one(void **state)
{
	(void)state;
	texts[4] = "nanoseconds";
	struct hl_profile *profile = profile_of_draft();
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS]);
	assert_false(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	hl_profile_free(profile);
}

static void bytes_are_counted_in_any_unit_that_pprof_knows(void **state)
{
	static const struct {
		char *unit;
		int64_t bytes;
	} units[] = {
		{"byte", 11},
		{"B", 11},
		{"kb", 11 << 10},
		{"KiB", 11 << 10},
		{"kilobytes", 11 << 10},
		{"megabyte", 11 << 20},
		{"MiB", 11 << 20},
		{"GB", 11LL << 30},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(units); i++) {
		texts[4] = units[i].unit;
		struct hl_profile *profile = profile_of_draft();
		assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
		assert_int_equal(profile->total.alloc_bytes, units[i].bytes);
		assert_int_equal(profile->total.alloc_objects, 7);
		hl_profile_free(profile);
	}
}

static void the_type_that_a_file_prefers_is_known(void **state)
{
	(void)state;
	struct hl_profile *profile = profile_of_draft();
	assert_false(profile->has_preferred);
	hl_profile_free(profile);
	draft.default_sample_type = 1;
	profile = profile_of_draft();
	assert_true(profile->has_preferred);
	assert_int_equal(profile->preferred_value, HL_VALUE_INUSE);
	assert_int_equal(profile->preferred_unit, HL_UNIT_OBJECTS);
	hl_profile_free(profile);
}

/* a is the leaf, b calls it. */
static void a_stack_ends_before_a_function_that_the_file_drops(void **state)
{
	static const struct {
		char *drop, *keep, *leaf;
	} files[] = {
		{"a|x", "", "b"}, {"", "", "a"},   {"a|x", "a", "a"},
		{"x", "", "a"},	  {"b", "", "a"}, /* not before a frame that is kept */
		{"aa?", "", "b"}, {".*", "", "a"}, {"a\\(", "", "a"},
	};

	(void)state;
	draft.n_string_table = 10;
	draft.drop_frames = 8;
	draft.keep_frames = 9;
	for (size_t i = 0; i < HL_COUNT_OF(files); i++) {
		texts[8] = files[i].drop;
		texts[9] = files[i].keep;
		struct hl_profile *profile = profile_of_draft();
		uint32_t last = (uint32_t)profile->node_count - 1;
		uint32_t function = profile->frames[profile->nodes[last].frame].function;
		assert_string_equal(hl_profile_text(profile, profile->functions[function].name),
				    files[i].leaf);
		assert_int_equal(profile->warning_count, 0);
		assert_int_equal(profile->total.alloc_bytes, 11);
		hl_profile_free(profile);
	}
}

static void an_expression_that_could_take_long_is_not_used(void **state)
{
	static char *const expressions[] = {"((a{255}){255}){255}", "(a)\\1", "(?i)a", "("};

	(void)state;
	draft.n_string_table = 9;
	draft.drop_frames = 8;
	for (size_t i = 0; i < HL_COUNT_OF(expressions); i++) {
		texts[8] = expressions[i];
		struct hl_profile *profile = profile_of_draft();
		assert_int_equal(profile->warning_count, 1);
		assert_non_null(strstr(hl_profile_text(profile, profile->warnings[0]),
				       "is not understood"));
		hl_profile_free(profile);
	}
}

static void what_was_freed_is_what_is_allocated_and_not_in_use(void **state)
{
	(void)state;
	texts[1] = "alloc_space";
	texts[2] = "bytes";
	values[0] = 100;
	struct hl_profile *profile = profile_of_draft();
	assert_int_equal(profile->total.alloc_bytes, 100);
	assert_int_equal(profile->total.free_bytes, 89);
	hl_profile_free(profile);
}

static void comments_of_others_are_shown(void **state)
{
	static int64_t comments[] = {5, 6};

	(void)state;
	draft.n_comment = 2;
	draft.comment = comments;
	struct hl_profile *profile = profile_of_draft();
	assert_int_equal(profile->warning_count, 2);
	assert_string_equal(hl_profile_text(profile, profile->warnings[0]), "/nowhere/app");
	hl_profile_free(profile);
}

static void a_period_in_bytes_says_that_figures_are_estimates(void **state)
{
	static Pprof__ValueType period_type;

	(void)state;
	period_type = (Pprof__ValueType)PPROF__VALUE_TYPE__INIT;
	period_type.unit = 4;
	draft.period_type = &period_type;
	draft.period = 524288;
	struct hl_profile *profile = profile_of_draft();
	assert_int_equal(profile->sample_bytes, 524288);
	hl_profile_free(profile);
	period_type.unit = 2; /* "count" */
	profile = profile_of_draft();
	assert_int_equal(profile->sample_bytes, 0);
	hl_profile_free(profile);
}

/* ---- places without names ---- */

int a_function_to_be_found(void);

__attribute__((noinline, visibility("default"))) int a_function_to_be_found(void)
{
	return 1;
}

/* The mapping of this program's own code. */
static int map_own_code(struct dl_phdr_info *info, size_t size, void *context)
{
	(void)size, (void)context;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + segment->p_vaddr;
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
			continue;
		mapping.memory_start = start & ~UINT64_C(4095);
		mapping.memory_limit = start + segment->p_memsz;
		mapping.file_offset = segment->p_offset & ~UINT64_C(4095);
	}
	return 1; /* the first is the program */
}

static void a_place_without_names_is_named_by_its_file(void **state)
{
	char program[4096];

	(void)state;
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
	assert_true(length > 0);
	program[length] = '\0';
	texts[PATH_TEXT] = program;
	dl_iterate_phdr(map_own_code, NULL);
	locations[0].address = (uintptr_t)a_function_to_be_found;
	locations[0].n_line = 0;
	struct hl_profile *profile = profile_of_draft();
	assert_string_equal(name_of(profile, 2), "a_function_to_be_found");
	hl_profile_free(profile);
}

static void without_its_file_such_a_place_is_an_offset_in_it(void **state)
{
	(void)state;
	locations[0].n_line = 0;
	locations[1].n_line = 0;
	locations[1].mapping_id = 0;
	struct hl_profile *profile = profile_of_draft();
	assert_string_equal(name_of(profile, 2), "app+0x1100");
	assert_string_equal(name_of(profile, 1), "0x7101");
	hl_profile_free(profile);
}

static void a_device_is_not_looked_into_for_names(void **state)
{
	(void)state;
	texts[PATH_TEXT] = "/dev/zero";
	locations[0].n_line = 0;
	struct hl_profile *profile = profile_of_draft();
	assert_string_equal(name_of(profile, 2), "0x7100");
	hl_profile_free(profile);
}

/* ---- what is refused ---- */

static void references_to_nothing_are_refused(void **state)
{
	(void)state;
	stack[0] = 5;
	assert_draft_refused("location 5 is named, but there is none");
	locations[1].mapping_id = 8;
	assert_draft_refused("mapping 8 is named, but there is none");
	lines[0].function_id = 3;
	assert_draft_refused("function 3 is named, but there is none");
	functions[0].name = 8;
	assert_draft_refused("text 8 is named, but there are 8");
	functions[0].filename = -1;
	assert_draft_refused("text -1 is named, but there are 8");
	mapping.filename = INT64_MAX;
	assert_draft_refused("text 9223372036854775807 is named");
	draft.default_sample_type = 100;
	assert_draft_refused("text 100 is named");
}

static void ids_must_tell_things_apart(void **state)
{
	(void)state;
	functions[0].id = 2;
	assert_draft_refused("there is a second function 2");
	locations[0].id = UINT64_MAX - 1;
	assert_draft_refused("there is a second location 18446744073709551614");
	mapping.id = 0;
	assert_draft_refused("a mapping has id 0");
}

static void a_sample_has_a_value_for_each_type(void **state)
{
	(void)state;
	sample.n_value = 1;
	assert_draft_refused("a sample has 1 values where there should be 2");
	draft.n_sample_type = draft.n_sample = 0;
	assert_draft_refused("has said of no value what it counts");
}

/* Each line has the others' functions inlined, and each stack holds all of that many times. */
static void a_small_file_cannot_make_a_tree_of_any_size(void **state)
{
	static Pprof__Line *many_lines[4096];
	static uint64_t many_locations[4097];

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(many_lines); i++) {
		many_lines[i] = &lines[i % 2];
		many_locations[i] = locations[0].id;
	}
	many_locations[4096] = locations[0].id;
	locations[0].n_line = HL_COUNT_OF(many_lines);
	locations[0].line = many_lines;
	sample.n_location_id = HL_COUNT_OF(many_locations);
	sample.location_id = many_locations;
	assert_draft_refused("its call tree has more than 8388608 nodes");
}

static void a_file_that_is_cut_off_anywhere_is_refused_or_has_less(void **state)
{
	struct pprof_file file = packed();
	size_t size = file.size;

	(void)state;
	for (file.size = 1; file.size < size; file.size++) {
		struct hl_profile *profile;
		struct hl_error err;
		if (pprof_read(&file, &profile, &err) == 0)
			hl_profile_free(profile);
		else
			assert_non_null(strstr(err.text, "at offset"));
	}
	free(file.bytes);
}

static void offsets_in_messages_are_those_of_the_field(void **state)
{
	struct pprof_file file = {(uint8_t[]){0x0a, 0x02, 0x08, 0x01, 0x12, 0x7f, 0}, 6};

	(void)state;
	assert_refused(&file, "at offset 4, a field ends beyond the end of the file");
	file.bytes[4] = 0x0b;
	assert_refused(&file, "at offset 4, there is no field");
	file = (struct pprof_file){(uint8_t[]){0x32, 0x00, 0x0a, 0x02, 0x08, 0xff, 0}, 6};
	assert_refused(&file, "at offset 2, a sample type is damaged");
}

/* ---- gzip ---- */

static struct pprof_file deflated(const uint8_t *bytes, size_t size, int members)
{
	struct hl_gzip_writer *writer = malloc(sizeof(*writer));
	struct pprof_file file;
	FILE *out = open_memstream((char **)&file.bytes, &file.size);

	for (int i = 0; i < members; i++) {
		size_t begin = size * (size_t)i / (size_t)members;
		size_t end = size * ((size_t)i + 1) / (size_t)members;
		assert_int_equal(hl_gzip_writer_init(writer, out), 0);
		hl_gzip_writer_append(writer, bytes + begin, end - begin);
		assert_int_equal(hl_gzip_writer_finish(writer), 0);
		hl_gzip_writer_release(writer);
	}
	fclose(out);
	free(writer);
	return file;
}

static void several_gzip_members_are_one_file(void **state)
{
	struct pprof_file plain = packed(), file = deflated(plain.bytes, plain.size, 3);

	(void)state;
	hl_profile_free(profile_of_pprof(&file));
	free(plain.bytes);
	free(file.bytes);
}

static void damaged_gzip_data_are_refused(void **state)
{
	struct pprof_file plain = packed(), file = deflated(plain.bytes, plain.size, 1);

	(void)state;
	file.size -= 4;
	assert_refused(&file, "its gzip data ends too early");
	file.size += 4;
	file.bytes[file.size - 8] ^= 1; /* checksum */
	assert_refused(&file, "its gzip data is damaged");
	free(plain.bytes);
	free(file.bytes);
}

static void a_gzip_bomb_is_refused(void **state)
{
	static const uint8_t mebibyte[1 << 20];
	struct hl_gzip_writer *writer = malloc(sizeof(*writer));
	struct pprof_file file;
	FILE *out = open_memstream((char **)&file.bytes, &file.size);

	(void)state;
	assert_int_equal(hl_gzip_writer_init(writer, out), 0);
	for (int i = 0; i <= 256; i++)
		hl_gzip_writer_append(writer, mebibyte, sizeof(mebibyte));
	assert_int_equal(hl_gzip_writer_finish(writer), 0);
	hl_gzip_writer_release(writer);
	fclose(out);
	free(writer);
	assert_true(file.size < sizeof(mebibyte));
	assert_refused(&file, "it inflates to more than 256 MiB");
	free(file.bytes);
}

static void inflating_stops_at_the_limit_to_the_byte(void **state)
{
	const size_t sizes[] = {0, 1, 65533, 65534, 65535, 65536, 100000};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(sizes); i++) {
		uint8_t *bytes = calloc(sizes[i] + 1, 1), *inflated;
		size_t size;
		struct pprof_file file = deflated(bytes, sizes[i], 1);
		assert_int_equal(hl_gzip_inflate(file.bytes, file.size, "x", sizes[i], &inflated,
						 &size, NULL),
				 0);
		assert_int_equal(size, sizes[i]);
		assert_int_equal(inflated[size], '\0');
		free(inflated);
		if (sizes[i])
			assert_int_equal(hl_gzip_inflate(file.bytes, file.size, "x", sizes[i] - 1,
							 &inflated, &size, NULL),
					 -EFBIG);
		free(file.bytes);
		free(bytes);
	}
}

/* ---- detection ---- */

static bool detected(const char *bytes, size_t size)
{
	const struct hl_import_input input = {
		.name = "x", .bytes = (const uint8_t *)bytes, .size = size};

	return hl_importer_pprof.detects(&input);
}

static void only_what_begins_with_its_fields_is_taken_for_pprof(void **state)
{
	static const char *const others[] = {
		"main;parse 12\nmain;read 4096\n",
		"heap profile: 1: 2 [3: 4] @ heap_v2/524288\n",
		"heap_v2/524288\n  t*: 1: 2 [0: 0]\n",
		"php;main 12\n",
		"\nmain;parse 12\n",
		"x",
	};
	struct pprof_file file = packed();

	(void)state;
	assert_true(detected((const char *)file.bytes, file.size));
	assert_false(detected("", 0));
	for (size_t i = 0; i < HL_COUNT_OF(others); i++)
		assert_false(detected(others[i], strlen(others[i])));
	free(file.bytes);
}

#define TEST(name) cmocka_unit_test_setup(name, draft_file)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(stacks_are_turned_over_and_addresses_are_the_files),
		TEST(a_profile_without_memory_is_shown_as_in_use_with_a_warning),
		TEST(a_unit_that_is_no_byte_is_not_taken_for_one),
		TEST(bytes_are_counted_in_any_unit_that_pprof_knows),
		TEST(the_type_that_a_file_prefers_is_known),
		TEST(a_stack_ends_before_a_function_that_the_file_drops),
		TEST(an_expression_that_could_take_long_is_not_used),
		TEST(what_was_freed_is_what_is_allocated_and_not_in_use),
		TEST(comments_of_others_are_shown),
		TEST(a_period_in_bytes_says_that_figures_are_estimates),
		TEST(a_place_without_names_is_named_by_its_file),
		TEST(without_its_file_such_a_place_is_an_offset_in_it),
		TEST(a_device_is_not_looked_into_for_names),
		TEST(references_to_nothing_are_refused),
		TEST(ids_must_tell_things_apart),
		TEST(a_sample_has_a_value_for_each_type),
		TEST(a_small_file_cannot_make_a_tree_of_any_size),
		TEST(a_file_that_is_cut_off_anywhere_is_refused_or_has_less),
		TEST(offsets_in_messages_are_those_of_the_field),
		TEST(several_gzip_members_are_one_file),
		TEST(damaged_gzip_data_are_refused),
		TEST(a_gzip_bomb_is_refused),
		TEST(inflating_stops_at_the_limit_to_the_byte),
		TEST(only_what_begins_with_its_fields_is_taken_for_pprof),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
