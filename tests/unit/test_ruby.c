/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames of each release of Ruby out of images that are built here, field by field, as the headers of that release lay
 * them out: the offsets are stated once more, by another hand than in layouts.c. This program has what stands for the loop and the
 * main function.
 */
#include "guests/ruby/ruby.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FIRST_LINE 100u
#define WORDS	   2000u /* of code: more than two blocks of the index of lines */
#define DEPTH	   8u	 /* frames, without the outermost one */

struct release {
	uint32_t number;
	unsigned frame_bytes, lines, line_count, index;
	bool line_is_object, short_length_in_flags;
};

static const struct release releases[] = {
	{301, 64, 120, 136, 144, true, true},
	{303, 56, 112, 128, 136, false, false},
};

static _Alignas(4096) uint8_t memory[1 << 16];
static size_t used;
static const struct release *release;
static uint64_t code[WORDS];
static __thread uint64_t context_of_thread;
static struct hl_unwind unwinder;
static struct hl_walk walk;
static struct hl_script_memory of_thread;

/* ---- the loop and the main function ---- */

struct job {
	struct hl_ruby *ruby;
	struct hl_script_frame *frames;
	uint32_t max, count;
	bool truncated;
	unsigned label;
	uint64_t first; /* address of a place in the loop */
};

static __attribute__((noinline)) void capture(struct job *job)
{
	struct hl_registers registers;
	const struct hl_script_caller caller = {
		.registers = &registers,
		.unwind = &unwinder,
		.walk = &walk,
		.memory = &of_thread,
	};

	of_thread.kept = 0;
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
			 : "=r"(registers.pc), "=r"(registers.sp), "=r"(registers.bp));
	job->truncated = false;
	job->count = hl_ruby_capture(job->ruby, &caller, job->frames, job->max, &job->truncated);
	__asm__ volatile("" ::: "memory"); /* no jump */
}

/* clang-format off */
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define PLACES(X) \
	EIGHT(X, 1) EIGHT(X, 2) EIGHT(X, 3) EIGHT(X, 4) EIGHT(X, 5) EIGHT(X, 6) EIGHT(X, 7) \
	EIGHT(X, 11) EIGHT(X, 12) EIGHT(X, 13) EIGHT(X, 14) EIGHT(X, 15) EIGHT(X, 16) EIGHT(X, 17) \
	EIGHT(X, 21) EIGHT(X, 22) EIGHT(X, 23) EIGHT(X, 24) EIGHT(X, 25) EIGHT(X, 26) EIGHT(X, 27)
#define ADDRESS(n) &&place_##n,
#define PLACE(n) place_##n : __asm__ volatile("nop # " #n); goto end;
/* clang-format on */

static __attribute__((noinline)) void loop(struct job *job)
{
	static const void *const places[] = {PLACES(ADDRESS)};

	job->first = (uint64_t)places[0];
	if (job->frames)
		capture(job);
	goto *places[job->label];
	PLACES(PLACE)
end:
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void run(struct job *job)
{
	loop(job);
	__asm__ volatile("" ::: "memory");
}

/* Begins as rb_profile_frames() does: loads the context of the thread. */
static __attribute__((noinline)) uint64_t profile_frames(void)
{
	return *(volatile uint64_t *)&context_of_thread;
}

/* ---- images ---- */

static uint8_t *make(size_t bytes)
{
	uint8_t *object = memory + used;

	used += (bytes + 15) & ~(size_t)15;
	assert_true(used <= sizeof(memory));
	return object;
}

static void put(uint8_t *object, unsigned offset, uint64_t value)
{
	memcpy(object + offset, &value, sizeof(value));
}

static void put_number(uint8_t *object, unsigned offset, uint32_t value)
{
	memcpy(object + offset, &value, sizeof(value));
}

static uint8_t *make_string(const char *text)
{
	uint8_t *string = make(64);
	size_t count = strlen(text);

	if (count > 20) {
		put(string, 0, 0x05 | 0x2000);
		put(string, 16, count);
		put(string, 24, (uint64_t)text);
		return string;
	}
	put(string, 0, 0x05 | (release->short_length_in_flags ? count << 14 : 0));
	if (!release->short_length_in_flags)
		put(string, 16, count);
	memcpy(string + (release->short_length_in_flags ? 16 : 24), text, count);
	return string;
}

/* The collector has moved it: what is left says where to. */
static uint8_t *make_moved(uint8_t *object)
{
	uint8_t *moved = make(40);

	put(moved, 0, 0x1e);
	put(moved, 16, (uint64_t)object);
	return moved;
}

/* Of [path, real path]. */
static uint8_t *make_path(const char *path, bool is_short)
{
	uint8_t *array = make(48), *elements = is_short ? array + 16 : make(16);

	put(array, 0, 0x07 | (is_short ? 0x2000 : 0));
	if (!is_short) {
		put(array, 16, 2);
		put(array, 32, (uint64_t)elements);
	}
	put(elements, 0, (uint64_t)make_string(path));
	put(elements, 8, (uint64_t)make_string("/elsewhere"));
	return array;
}

/* An entry begins at each of ${starts}, with a line each; bits of them by the words of iseq.c. */
static uint8_t *make_index(const uint32_t *starts, uint32_t count)
{
	uint8_t *index = make(48 + 80 * 4);
	uint32_t rank = 0;

	for (uint32_t at = 0; at < 54; at++) {
		uint64_t word;
		while (rank < count && starts[rank] <= at)
			rank++;
		memcpy(&word, index + at / 9 * 8, 8);
		put(index, at / 9 * 8, word | (uint64_t)rank << 7 * (at % 9));
	}
	for (uint32_t i = 0; i < 4; i++) {
		uint8_t *block = index + 48 + 80 * i;
		uint64_t parts = 0;
		uint32_t in_block = 0;
		put_number(block, 0, rank);
		for (uint32_t part = 0; part < 8; part++) {
			uint64_t bits = 0;
			parts |= part ? (uint64_t)in_block << 9 * (part - 1) : 0;
			for (uint32_t bit = 0; bit < 64; bit++) {
				uint32_t at = 54 + 512 * i + 64 * part + bit;
				if (rank + in_block < count && starts[rank + in_block] == at) {
					bits |= UINT64_C(1) << bit;
					in_block++;
				}
			}
			put(block, 16 + 8 * part, bits);
		}
		put(block, 8, parts);
		rank += in_block;
	}
	return index;
}

static const uint32_t starts[] = {0, 3, 9, 20, 53, 54, 117, 118, 400, 565, 566, 1078, 1500};
#define ENTRIES (sizeof(starts) / sizeof(*starts))

static uint32_t expected_line(uint32_t pc)
{
	uint32_t entry = 0;

	while (entry + 1 < ENTRIES && starts[entry + 1] <= (pc ? pc - 1 : 0))
		entry++;
	return FIRST_LINE + 7 * entry;
}

static uint8_t *make_iseq(const char *name, uint8_t *path)
{
	uint8_t *iseq = make(40), *body = make(320), *lines = make(12 * ENTRIES);

	put(iseq, 0, 0x1a | 7 << 12);
	put(iseq, 16, (uint64_t)body);
	put_number(body, 4, WORDS);
	put(body, 8, (uint64_t)code);
	put(body, 64, (uint64_t)path);
	put(body, 80, (uint64_t)make_string(name));
	put_number(body, 88, release->line_is_object ? FIRST_LINE << 1 | 1 : FIRST_LINE);
	for (uint32_t i = 0; i < ENTRIES; i++)
		put_number(lines, 12 * i, FIRST_LINE + 7 * i);
	put(body, release->lines, (uint64_t)lines);
	put_number(body, release->line_count, ENTRIES);
	put(body, release->index, (uint64_t)make_index(starts, ENTRIES));
	return iseq;
}

/* Innermost first: a function of Ruby that C called, C, two of Ruby of which C called the second, and so on. */
static uint8_t *stack_of_image, *innermost;

static void put_frame(uint8_t *frame, uint8_t *iseq, uint32_t at, uint32_t flags)
{
	uint8_t *environment = make(16);

	put(environment, 0, flags);
	put(frame, 0, iseq ? (uint64_t)(code + at) : 0);
	put(frame, 16, (uint64_t)iseq);
	put(frame, 32, (uint64_t)environment);
}

static const uint32_t places[] = {0, 1, 4, 55, 119, 567, 1079, 1999};

static void make_image(const struct release *one)
{
	uint32_t words = 512;

	release = one;
	used = 0;
	memset(memory, 0, sizeof(memory));
	memset(&of_thread, 0, sizeof(of_thread));
	uint8_t *context = make(64);
	stack_of_image = make(8 * words);
	uint8_t *iseqs[] = {
		make_iseq("block in a method of a long name", make_path("a file.rb", true)),
		make_iseq("method", make_path("a file.rb", false)),
		make_iseq("<main>", make_string("a file.rb")),
		make_moved(make_iseq("moved", make_moved(make_string("a file.rb")))),
	};
	uint8_t *frame = stack_of_image + 8 * words - release->frame_bytes;
	put_frame(frame, iseqs[2], 0, 0x79990001 | 0x20); /* the outermost, in which nothing runs */
	for (uint32_t i = 0; i < DEPTH; i++) {
		frame -= release->frame_bytes;
		put_frame(frame, iseqs[i % 4], places[i], i % 2 ? 0x22220001 : 0x11110001 | 0x20);
		if (i % 2)
			put_frame(frame -= release->frame_bytes, NULL, 0, 0x55550001 | 0x80);
	}
	innermost = frame;
	put(context, 0, (uint64_t)stack_of_image);
	put(context, 8, words);
	put(context, 16, (uint64_t)frame);
	context_of_thread = (uint64_t)context;
}

/* ---- the process ---- */

static bool find_module(struct hl_unwind *unwind, uint64_t pc, struct hl_unwind_module *ret_module)
{
	struct dl_find_object found;

	(void)unwind;
	if (_dl_find_object((void *)pc, &found))
		return false;
	*ret_module = (struct hl_unwind_module){
		.id = 1,
		.start = (uint64_t)found.dlfo_map_start,
		.end = (uint64_t)found.dlfo_map_end,
		.eh_frame_hdr = found.dlfo_eh_frame,
		.load_bias = found.dlfo_link_map->l_addr,
	};
	return true;
}

static struct hl_ruby_api api_of_image(void)
{
	struct dl_find_object found;

	assert_int_equal(_dl_find_object((void *)make_image, &found), 0);
	return (struct hl_ruby_api){
		.release = release->number,
		.profile_frames = (uint64_t)profile_frames,
		.start = (uint64_t)found.dlfo_map_start,
		.end = (uint64_t)found.dlfo_map_end,
		.eh_frame_hdr = found.dlfo_eh_frame,
	};
}

static void open_image(struct hl_ruby *ruby, const struct release *one)
{
	struct job job = {0};

	make_image(one);
	run(&job);
	for (uint32_t i = 0; i < WORDS; i++)
		code[i] = job.first;
	const struct hl_ruby_api api = api_of_image();
	assert_int_equal(hl_ruby_open(ruby, &api), HL_RUBY_FITS);
}

/* ---- tests ---- */

static void the_loop_and_its_caller_are_found(void **state)
{
	struct hl_ruby ruby = {0};
	struct job job = {0};

	(void)state;
	open_image(&ruby, &releases[0]);
	run(&job);
	assert_in_range(job.first, ruby.loop_start, ruby.loop_end - 1);
	assert_int_equal(ruby.loop_start, (uint64_t)loop);
	assert_int_equal(ruby.eval_start, (uint64_t)run);
	assert_int_equal(context_of_thread, profile_frames());
}

static void assert_frames(struct hl_ruby *ruby)
{
	static const char *const names[] = {"block in a method of a long name", "method", "<main>",
					    "moved"};
	struct hl_script_frame frames[DEPTH + 1];
	struct job job = {.ruby = ruby, .frames = frames, .max = DEPTH + 1};
	struct hl_script_place place;

	of_thread.known = 0;
	run(&job);
	assert_int_equal(job.count, DEPTH);
	assert_false(job.truncated);
	for (uint32_t i = 0; i < DEPTH; i++) {
		uint32_t outward = DEPTH - 1 - i;
		const char *name = names[outward % 4];
		assert_int_equal(frames[i].is_entry, outward % 2 == 0);
		assert_true(hl_ruby_describe(ruby, &frames[i], &place));
		assert_int_equal(place.function_bytes, strlen(name));
		assert_memory_equal(place.function, name, strlen(name));
		assert_int_equal(place.source_bytes, 9);
		assert_memory_equal(place.source, "a file.rb", 9);
		assert_int_equal(place.line, expected_line(places[outward]));
		assert_int_equal(place.first_line, FIRST_LINE);
	}
	job.max = 5;
	of_thread.known = 0;
	run(&job);
	assert_int_equal(job.count, 5);
	assert_true(job.truncated);
}

static void frames_of_each_release_are_read(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(releases) / sizeof(*releases); i++) {
		struct hl_ruby ruby = {0};
		open_image(&ruby, &releases[i]);
		for (int k = 0; k < 40; k++) /* proofs, and captures without checks */
			assert_frames(&ruby);
	}
}

/* Of a library: the address of module and offset, and a call of __tls_get_addr(). */
static void the_context_of_a_library_is_found(void **state)
{
	static uint8_t function[128] = {0x55, 0x66, 0x48, 0x8d, 0x3d, [9] = 0x66, 0x66, 0x48, 0xe8};
	static uint64_t tls[2] = {1};
	struct hl_ruby ruby = {0};
	uint64_t table;

	(void)state;
	__asm__("mov %%fs:8, %0" : "=r"(table));
	tls[1] = (uint64_t)&context_of_thread - *(const uint64_t *)(table + 16);
	const int32_t distance = (int32_t)((const uint8_t *)tls - (function + 9));
	memcpy(function + 5, &distance, sizeof(distance));
	open_image(&ruby, &releases[1]);
	struct hl_ruby_api api = ruby.api;
	api.profile_frames = (uint64_t)function;
	ruby = (struct hl_ruby){0};
	assert_int_equal(hl_ruby_open(&ruby, &api), HL_RUBY_FITS);
	assert_ptr_equal(ruby.tls, tls);
	assert_frames(&ruby);
}

/* Linkers make these of other forms in programs. */
static void the_context_of_a_program_is_found(void **state)
{
	static const uint8_t forms[][128] = {
		{0x55, 0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff},
		{0x64, 0x4c, 0x8b, 0x1c, 0x25, 0xf8, 0xff, 0xff, 0xff},
		{0x48, 0xc7, 0xc0, 0xf8, 0xff, 0xff, 0xff, 0x49, 0x89, 0xc8, 0x64, 0x48, 0x8b,
		 0x00},
		{0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0x48, 0x8d, 0x80, 0xf8, 0xff, 0xff,
		 0xff},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		struct hl_ruby ruby = {0};
		make_image(&releases[0]);
		struct hl_ruby_api api = api_of_image();
		api.profile_frames = (uint64_t)forms[i];
		assert_int_equal(hl_ruby_open(&ruby, &api), HL_RUBY_FITS);
		assert_int_equal(ruby.tls_offset, -8);
	}
}

static void frames_that_are_as_they_were_are_kept(void **state)
{
	struct hl_script_frame frames[64];
	struct hl_ruby ruby = {0};
	struct job job = {.ruby = &ruby, .frames = frames, .max = 64};

	(void)state;
	open_image(&ruby, &releases[0]);
	run(&job);
	assert_int_equal(job.count, DEPTH);
	of_thread.known = DEPTH;
	run(&job);
	assert_int_equal(job.count, 0);
	assert_int_equal(of_thread.kept, DEPTH);
	/* The innermost function of Ruby, which C was called by, runs on. */
	put(innermost + release->frame_bytes, 0, (uint64_t)(code + 20));
	run(&job);
	assert_int_equal(job.count, 1);
	assert_int_equal(of_thread.kept, DEPTH - 1);
	assert_int_equal(frames[0].at, 20);
	of_thread.kept = 0;
	assert_int_equal(hl_ruby_recapture(&ruby, &of_thread, frames, 64), 0);
	assert_int_equal(of_thread.kept, DEPTH);
}

static void other_releases_and_builds_are_refused(void **state)
{
	static const uint8_t nothing[128];
	struct hl_ruby ruby = {0};

	(void)state;
	make_image(&releases[0]);
	struct hl_ruby_api api = api_of_image();
	api.release = 302;
	assert_int_equal(hl_ruby_open(&ruby, &api), HL_RUBY_UNKNOWN_RELEASE);
	api.release = 303;
	api.profile_frames = (uint64_t)nothing;
	assert_int_equal(hl_ruby_open(&ruby, &api), HL_RUBY_OTHER_BUILD);
	api = api_of_image();
	api.eh_frame_hdr = NULL;
	assert_int_equal(hl_ruby_open(&ruby, &api), HL_RUBY_OTHER_BUILD);
}

/* Whatever the frames hold: nothing faults, and nothing is yielded. */
static void frames_that_are_not_in_order_are_refused(void **state)
{
	struct hl_script_frame frames[64];

	(void)state;
	for (unsigned offset = 0; offset < 40; offset += 8) {
		struct hl_ruby ruby = {0};
		struct job job = {.ruby = &ruby, .frames = frames, .max = 64};
		open_image(&ruby, &releases[1]);
		if (offset == 8 || offset == 24)
			continue; /* are not read */
		put(innermost + release->frame_bytes, offset, 0x123456789000);
		for (int i = 0; i < 4; i++) {
			assert_false(hl_ruby_is_refused(&ruby));
			run(&job);
			assert_int_equal(job.count, 0);
		}
		assert_true(hl_ruby_is_refused(&ruby));
	}
}

static int set_up(void **state)
{
	(void)state;
	unwinder.find_module = find_module;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loop_and_its_caller_are_found),
		cmocka_unit_test(frames_of_each_release_are_read),
		cmocka_unit_test(the_context_of_a_library_is_found),
		cmocka_unit_test(the_context_of_a_program_is_found),
		cmocka_unit_test(frames_that_are_as_they_were_are_kept),
		cmocka_unit_test(other_releases_and_builds_are_refused),
		cmocka_unit_test(frames_that_are_not_in_order_are_refused),
	};

	return cmocka_run_group_tests_name("ruby", tests, set_up, NULL);
}
