/* SPDX-License-Identifier: BSD-2-Clause */
/* Dumps of skynet-mprof: names, counters that wrap, and errors with offsets. */
#include <dlfcn.h>
#include <endian.h>

#include "import_reading.h"

extern const struct hl_importer hl_importer_mprof;

/* A dump while it is written. */
struct dump {
	uint8_t bytes[2048];
	size_t size;
};

static void put_u32(struct dump *dump, uint32_t number)
{
	number = htobe32(number);
	memcpy(dump->bytes + dump->size, &number, sizeof(number));
	dump->size += sizeof(number);
}

static void put_u64(struct dump *dump, uint64_t number)
{
	number = htobe64(number);
	memcpy(dump->bytes + dump->size, &number, sizeof(number));
	dump->size += sizeof(number);
}

static void put_function(struct dump *dump, const char *name, uint64_t id)
{
	dump->bytes[dump->size++] = (uint8_t)strlen(name);
	memcpy(dump->bytes + dump->size, name, strlen(name));
	dump->size += strlen(name);
	put_u64(dump, id);
}

static void put_counters(struct dump *dump, uint32_t alloc_objects, uint32_t alloc_bytes,
			 uint32_t free_objects, uint32_t free_bytes)
{
	put_u32(dump, alloc_objects);
	put_u32(dump, alloc_bytes);
	put_u32(dump, free_objects);
	put_u32(dump, free_bytes);
}

/* Makes the first word what it should be. */
static void finish_dump(struct dump *dump)
{
	uint32_t length = htobe32((uint32_t)dump->size - 4);

	memcpy(dump->bytes, &length, sizeof(length));
}

#define MAIN_ID	 0x555500001234u
#define PACK_ID	 0x7f0000002345u
#define ALLOC_ID 0x7f0000003456u

/* main -> pack -> alloc, and pack by itself. */
static struct dump sample_dump(void)
{
	struct dump dump = {.size = 4};

	put_u32(&dump, 3);
	put_function(&dump, "./skynet/skynet(main+0x1234) [0x555500001234]", MAIN_ID);
	put_function(&dump, "./lib.so(_ZN4pack3runEi+0x45) [0x7f0000002345]", PACK_ID);
	put_function(&dump, "./lib.so(+0x3456) [0x7f0000003456]", ALLOC_ID);
	put_counters(&dump, 11, 1009, 3, 101);
	put_u32(&dump, 3);
	put_u64(&dump, ALLOC_ID);
	put_u64(&dump, PACK_ID);
	put_u64(&dump, MAIN_ID);
	put_counters(&dump, 1, 13, 1, 13);
	put_u32(&dump, 1);
	put_u64(&dump, PACK_ID);
	finish_dump(&dump);
	return dump;
}

static struct hl_profile *read_mprof(const struct dump *dump)
{
	assert_true(detects(&hl_importer_mprof, dump->bytes, dump->size));
	return must_read(&hl_importer_mprof, dump->bytes, dump->size);
}

static void refuse_dump(const struct dump *dump, const char *sentence)
{
	must_refuse(&hl_importer_mprof, dump->bytes, dump->size, sentence);
}

static void functions_of_mprof_are_symbols_in_modules_or_addresses(void **state)
{
	struct dump dump = sample_dump();
	struct hl_profile *profile = read_mprof(&dump);
	uint32_t node = node_of(profile, "main;pack::run(int);lib.so+0x3456");
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
	uint32_t module = profile->functions[frame->function].module;

	(void)state;
	assert_string_equal(hl_profile_text(profile, profile->modules[module].path), "./lib.so");
	assert_int_equal(frame->address, 0x3456);
	assert_int_equal(profile->counters[node].alloc_bytes, 1009);
	assert_int_equal(profile->counters[node].alloc_objects, 11);
	assert_int_equal(profile->counters[node].free_bytes, 101);
	assert_int_equal(profile->counters[node].free_objects, 3);
	assert_int_equal(counters_of(profile, "pack::run(int)")->free_objects, 1);
	assert_int_equal(profile->total.alloc_bytes, 1022);
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_OBJECTS]);
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_false(profile->known[HL_VALUE_PEAK][HL_UNIT_BYTES]);
	assert_int_equal(profile->warning_count, 0);
	/* Each stack of the file is of blocks of one size. */
	assert_int_equal(profile->size_count, 2);
	assert_int_equal(profile->sizes[0].node, node);
	assert_int_equal(profile->sizes[0].size_class, 7); /* 64 to 127: 1009 bytes in 11 blocks */
	assert_int_equal(profile->sizes[0].counters.free_bytes, 101);
	assert_int_equal(profile->sizes[1].size_class, 4);
	hl_profile_free(profile);
}

static void names_of_mprof_may_be_cut_anywhere(void **state)
{
	static const struct {
		const char *written, *function, *module;
	} names[] = {
		{"/bin/app(run+0x1) [0x1000]", "run", "/bin/app"},
		{"/bin/app(run-0x1) [0x1000]", "run", "/bin/app"},
		{"/bin/app(_ZN4pack3r", "_ZN4pack3r", "/bin/app"},
		{"/bin/app(_ZN4pack3runEi", "pack::run(int)", "/bin/app"},
		{"/bin/app(", "0x1000", "/bin/app"},
		{"/bin/app() [0x1000]", "0x1000", "/bin/app"},
		{"/bin/app", "0x1000", "/bin/app"},
		{"/bin/a (x)/app(run+0x1) [0x1", "run", "/bin/a (x)/app"},
		{"/bin/app [0x1000]", "0x1000", "/bin/app"},
		{"[0x1000]", "0x1000", ""},
		{"", "0x1000", ""},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(names); i++) {
		struct dump dump = {.size = 4};
		put_u32(&dump, 1);
		put_function(&dump, names[i].written, 0x1000);
		finish_dump(&dump);
		struct hl_profile *profile = must_read(&hl_importer_mprof, dump.bytes, dump.size);
		const struct hl_profile_function *function = &profile->functions[1];
		assert_string_equal(hl_profile_text(profile, function->name), names[i].function);
		assert_string_equal(
			hl_profile_text(profile, profile->modules[function->module].path),
			names[i].module);
		hl_profile_free(profile);
	}
}

static void counters_of_mprof_that_wrapped_are_mended(void **state)
{
	static const struct {
		uint32_t alloc, free;
		int64_t in_use;
		bool wrapped;
	} cases[] = {
		{3000000000u, 0, 3000000000, false},  /* more than 2 GiB, as it is */
		{100, 4294967246u, 150, true},	      /* 2^32 + 100 - (2^32 - 50) */
		{100, 300, -200, false},	      /* freed twice, as mprof's own table has it */
		{0, 2147483648u, -2147483648, false}, /* the farthest that is believed */
		{0, 2147483649u, 2147483647, true},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		struct dump dump = {.size = 4};
		put_u32(&dump, 1);
		put_function(&dump, "[0x1000]", 0x1000);
		put_counters(&dump, 2, cases[i].alloc, 1, cases[i].free);
		put_u32(&dump, 1);
		put_u64(&dump, 0x1000);
		finish_dump(&dump);
		struct hl_profile *profile = read_mprof(&dump);
		assert_int_equal(profile->total.alloc_bytes - profile->total.free_bytes,
				 cases[i].in_use);
		assert_int_equal(profile->total.free_bytes, cases[i].free);
		assert_int_equal(profile->total.alloc_objects, 2);
		assert_int_equal(profile->warning_count, cases[i].wrapped);
		if (cases[i].wrapped)
			assert_non_null(strstr(only_warning(profile), "of 1 stack passed 4 GiB"));
		hl_profile_free(profile);
	}
}

static void a_stack_of_mprof_without_frames_is_unknown(void **state)
{
	struct dump dump = {.size = 4};

	(void)state;
	put_u32(&dump, 0);
	put_counters(&dump, 1, 9, 0, 0);
	put_u32(&dump, 0);
	finish_dump(&dump);
	struct hl_profile *profile = read_mprof(&dump);
	assert_int_equal(counters_of(profile, "[unknown]")->alloc_bytes, 9);
	hl_profile_free(profile);
}

static void errors_in_dumps_of_mprof_name_the_offset(void **state)
{
	struct dump dump = sample_dump();
	size_t samples = dump.size - 28 - 44, depth = samples + 16;

	(void)state;
	dump.bytes[3]++;
	assert_true(detects(&hl_importer_mprof, dump.bytes, dump.size));
	refuse_dump(&dump, "cannot read 'x': at offset 0, the length is not that of the file; it "
			   "was cut off, or is another kind of file");

	dump = sample_dump();
	dump.bytes[6] = 1; /* 0x103 functions */
	refuse_dump(&dump, "cannot read 'x': at offset 4, more functions are announced than the "
			   "file has room for");

	dump = sample_dump();
	dump.bytes[8] = 255; /* the first name goes on into the samples, the next anywhere */
	assert_int_equal(
		read_bytes(&hl_importer_mprof, dump.bytes, dump.size, &(struct hl_profile *){NULL}),
		-EBADMSG);

	char sentence[128];
	dump = sample_dump();
	dump.bytes[depth + 3] = 9;
	snprintf(sentence, sizeof(sentence),
		 "cannot read 'x': at offset %zu, a stack goes on past the end of the file", depth);
	refuse_dump(&dump, sentence);

	dump = sample_dump();
	dump.bytes[depth] = 255; /* times 8 has no place in 32 bits */
	refuse_dump(&dump, sentence);

	dump = sample_dump();
	dump.bytes[depth + 4 + 8 + 7]++; /* the id of pack, the second frame */
	snprintf(sentence, sizeof(sentence),
		 "cannot read 'x': at offset %zu, a stack has a function that the list has not",
		 depth + 4 + 8);
	refuse_dump(&dump, sentence);
}

/* With the length of what is left, so that the reader gets to see it. */
static void dumps_of_mprof_may_end_anywhere(void **state)
{
	struct dump dump = sample_dump();
	size_t whole = dump.size;

	(void)state;
	read_every_beginning(&hl_importer_mprof, dump.bytes, dump.size);
	for (dump.size = 8; dump.size < whole; dump.size++) {
		struct hl_profile *profile = NULL;
		finish_dump(&dump);
		int r = read_bytes(&hl_importer_mprof, dump.bytes, dump.size, &profile);
		/* It can end after the functions and after the first sample. */
		bool is_boundary = dump.size == whole - 28 || dump.size == whole - 28 - 44;
		assert_int_equal(r, is_boundary ? 0 : -EBADMSG);
		hl_profile_free(profile);
	}
}

static void dumps_of_mprof_are_known_by_their_length_or_their_first_function(void **state)
{
	struct dump dump = sample_dump();

	(void)state;
	must_be_taken_by(&hl_importer_mprof, dump.bytes, dump.size);
	must_be_taken_by(&hl_importer_mprof, dump.bytes, dump.size - 1); /* cut off */
	must_be_taken_by(NULL, dump.bytes, 16); /* before the first function's end */
}

static void every_failed_allocation_is_reported_and_leaves_nothing_behind(void **state)
{
	struct dump dump = sample_dump();

	(void)state;
	must_survive_want_of_memory(&hl_importer_mprof, dump.bytes, dump.size);
}

/* A stack of two calls in libc, the second ${shift} bytes from where its symbol says. */
static struct dump dump_of_libc(uint64_t shift)
{
	struct dump dump = {.size = 4};
	char name[80];
	Dl_info info;

	assert_true(dladdr((void *)(uintptr_t)qsort, &info) != 0);
	uint64_t sort = (uint64_t)(uintptr_t)qsort + 0x10;
	uint64_t find = (uint64_t)(uintptr_t)bsearch + 0x10 + shift;
	put_u32(&dump, 2);
	snprintf(name, sizeof(name), "%s(qsort+0x10) [0x%llx]", info.dli_fname,
		 (unsigned long long)sort);
	put_function(&dump, name, sort);
	snprintf(name, sizeof(name), "%s(bsearch+0x10) [0x%llx]", info.dli_fname,
		 (unsigned long long)find);
	put_function(&dump, name, find);
	put_counters(&dump, 1, 13, 0, 0);
	put_u32(&dump, 2);
	put_u64(&dump, find);
	put_u64(&dump, sort);
	finish_dump(&dump);
	return dump;
}

static void a_file_that_is_still_there_names_its_places(void **state)
{
	struct dump dump = dump_of_libc(0);
	struct hl_profile *profile = read_mprof(&dump);
	Dl_info info;

	(void)state;
	dladdr((void *)(uintptr_t)qsort, &info);
	uint64_t base = (uint64_t)(uintptr_t)info.dli_fbase;
	assert_int_equal(profile->warning_count, 0);
	assert_true(profile->node_count >= 3);
	const struct hl_profile_frame *leaf =
		&profile->frames[profile->nodes[profile->node_count - 1].frame];
	/* The call is the byte before the return address. */
	assert_int_equal(leaf->address, (uint64_t)(uintptr_t)bsearch + 0x10 - 1 - base);
	assert_true(profile->modules[profile->functions[leaf->function].module].used);
	hl_profile_free(profile);
}

static void another_file_at_the_path_is_not_asked(void **state)
{
	struct dump dump = dump_of_libc(0x1000);
	struct hl_profile *profile = read_mprof(&dump);

	(void)state;
	assert_int_equal(profile->warning_count, 1);
	assert_non_null(strstr(hl_profile_text(profile, profile->warnings[0]),
			       "is not the file that was profiled"));
	assert_int_equal(counters_of(profile, "qsort;bsearch")->alloc_bytes, 13);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_of_mprof_are_symbols_in_modules_or_addresses),
		cmocka_unit_test(names_of_mprof_may_be_cut_anywhere),
		cmocka_unit_test(counters_of_mprof_that_wrapped_are_mended),
		cmocka_unit_test(a_stack_of_mprof_without_frames_is_unknown),
		cmocka_unit_test(errors_in_dumps_of_mprof_name_the_offset),
		cmocka_unit_test(dumps_of_mprof_may_end_anywhere),
		cmocka_unit_test(dumps_of_mprof_are_known_by_their_length_or_their_first_function),
		cmocka_unit_test(a_file_that_is_still_there_names_its_places),
		cmocka_unit_test(another_file_at_the_path_is_not_asked),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
