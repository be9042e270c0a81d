/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames of each release of PHP out of images that are built here, field by field, as the headers of that release lay
 * them out: the offsets are stated once more, by another hand than in layouts.c.
 */
#include "guests/php/php.h"

#include "unwind/saved.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FIRST_LINE 100
#define ENTRIES	   64 /* more than this test has calls on its own stack */

struct release {
	const char *text;
	unsigned globals, thrown;
	unsigned last, opcodes, filename, line_start; /* of zend_op_array */
};

static const struct release releases[] = {
	{"Zend Engine v4.2.36, Copyright (c) Zend Technologies\n", 1800, 880, 80, 88, 152, 160},
	{"Zend Engine v4.4.27, Copyright (c) Zend Technologies\n", 1984, 952, 96, 104, 168, 176},
};

#define RELEASES (sizeof(releases) / sizeof(*releases))

static _Alignas(4096) uint8_t memory[1 << 16];
static size_t used;
static struct hl_unwind unwinder;
static struct hl_walk walk;

/* ---- images ---- */

static const struct release *release;
static uint8_t *globals, *class_of_generators;
static const char *version;

static uint8_t *make(size_t bytes)
{
	uint8_t *object = memory + used;

	used += (bytes + 15) & ~(size_t)15;
	assert_true(used <= sizeof(memory));
	return object;
}

static void put(uint8_t *object, unsigned offset, const void *value)
{
	memcpy(object + offset, &value, sizeof(value));
}

static void put_number(uint8_t *object, unsigned offset, uint32_t value)
{
	memcpy(object + offset, &value, sizeof(value));
}

static uint8_t *make_string(const char *text)
{
	uint8_t *string = make(24 + strlen(text) + 1);

	put_number(string, 16, (uint32_t)strlen(text));
	memcpy(string + 24, text, strlen(text));
	return string;
}

static uint8_t *make_class(const char *name)
{
	uint8_t *class = make(64);

	put(class, 8, make_string(name));
	return class;
}

/* Of four ops, a line each. */
static uint8_t *make_function(const char *name, const char *class)
{
	uint8_t *function = make(256), *ops = make(4 * 32);

	function[0] = 2;
	put(function, 8, name ? make_string(name) : NULL);
	put(function, 16, class ? make_class(class) : NULL);
	put_number(function, release->last, 4);
	put(function, release->opcodes, ops);
	put(function, release->filename, make_string("a file.php"));
	put_number(function, release->line_start, FIRST_LINE);
	put_number(function, release->line_start + 4, FIRST_LINE + 9);
	for (uint32_t i = 0; i < 4; i++)
		put_number(ops, i * 32 + 24, FIRST_LINE + i);
	return function;
}

static uint8_t *ops_of(const uint8_t *function)
{
	uint8_t *ops;

	memcpy(&ops, function + release->opcodes, sizeof(ops));
	return ops;
}

static uint8_t *make_frame(uint8_t *outer, uint8_t *function, uint32_t op, uint32_t flags)
{
	uint8_t *frame = make(80);

	put(frame, 24, function);
	put(frame, 48, outer);
	put_number(frame, 40, flags);
	if (function && function[0] == 2)
		put(frame, 0, ops_of(function) + op * 32);
	return frame;
}

#define TOP (1u << 17)

/* Groups of a method, called by a function, which native code has called. */
static uint8_t *make_image(const struct release *of)
{
	uint8_t *frame = NULL;

	used = 0;
	memset(memory, 0, sizeof(memory));
	release = of;
	version = of->text;
	globals = make(2048);
	class_of_generators = make_class("Generator");
	uint8_t *outer = make_function("outer", NULL), *inner = make_function("inner", "Class");
	for (int i = 0; i < ENTRIES; i++) {
		frame = make_frame(frame, outer, 1, TOP);
		frame = make_frame(frame, inner, 3, 0);
	}
	put(globals, 488, frame);
	return frame;
}

/* ---- the process ---- */

static const char *version_of_image(void)
{
	return version;
}

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

/* All code of this test stands for execute_ex(). */
static enum hl_php_problem open_image(struct hl_php *php)
{
	struct dl_find_object found;

	assert_int_equal(_dl_find_object((void *)make_image, &found), 0);
	const struct hl_php_api api = {
		.globals = (uint64_t)globals,
		.globals_bytes = release->globals,
		.version = (uint64_t)version_of_image,
		.generator = (uint64_t)&class_of_generators,
		.eval_start = (uint64_t)found.dlfo_map_start,
		.eval_end = (uint64_t)found.dlfo_map_end,
	};
	*php = (struct hl_php){.layout = NULL};
	hl_php_open(php, &api);
	return hl_php_choose(php);
}

static struct hl_script_memory thread_memory;

static __attribute__((noinline)) uint32_t capture_with(struct hl_php *php, const uint64_t *saved,
						       struct hl_script_frame *frames, uint32_t max,
						       bool *ret_truncated)
{
	struct hl_registers registers;
	const struct hl_script_caller caller = {
		.registers = &registers,
		.saved = saved,
		.native_node = 1,
		.unwind = &unwinder,
		.walk = &walk,
		.memory = &thread_memory,
	};

	thread_memory.kept = 0;
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
			 : "=r"(registers.pc), "=r"(registers.sp), "=r"(registers.bp));
	*ret_truncated = false;
	return hl_php_capture(php, &caller, frames, max, ret_truncated);
}

/* All frames, as where nothing is remembered. */
static uint32_t capture(struct hl_php *php, struct hl_script_frame *frames, uint32_t max)
{
	bool truncated;

	thread_memory.known = 0;
	return capture_with(php, NULL, frames, max, &truncated);
}

static uint32_t recapture(struct hl_php *php, struct hl_script_frame *frames, uint32_t max)
{
	const struct hl_script_caller caller = {.native_node = 1, .memory = &thread_memory};

	thread_memory.kept = 0;
	return hl_php_recapture(php, &caller, frames, max);
}

static void assert_place(struct hl_php *php, const struct hl_script_frame *frame, const char *name,
			 uint32_t line)
{
	struct hl_script_place place;

	assert_true(hl_php_describe(php, frame, &place));
	assert_int_equal(place.function_bytes, strlen(name));
	assert_memory_equal(place.function, name, strlen(name));
	assert_int_equal(place.line, line);
}

/* ---- tests ---- */

static void frames_of_each_release_are_read(void **state)
{
	struct hl_script_frame frames[4 * ENTRIES];
	struct hl_script_place place;
	struct hl_php php;
	bool truncated;

	(void)state;
	for (size_t i = 0; i < RELEASES; i++) {
		make_image(&releases[i]);
		assert_int_equal(open_image(&php), HL_PHP_FITS);
		for (int n = 0; n < 40; n++) { /* proofs, and captures without checks */
			assert_int_equal(capture(&php, frames, 4 * ENTRIES), 2 * ENTRIES);
			for (uint32_t k = 0; k < 2 * ENTRIES; k++) {
				assert_int_equal(frames[k].is_entry, k % 2);
				assert_place(&php, &frames[k], k % 2 ? "outer" : "Class::inner",
					     FIRST_LINE + (k % 2 ? 1 : 3));
			}
		}
		assert_true(hl_php_describe(&php, frames, &place));
		assert_int_equal(place.first_line, FIRST_LINE);
		assert_int_equal(place.source_bytes, 10);
		assert_memory_equal(place.source, "a file.php", 10);
		thread_memory.known = 0;
		assert_int_equal(capture_with(&php, NULL, frames, 5, &truncated), 5);
		assert_true(truncated);
	}
}

static void what_is_as_it_was_is_kept(void **state)
{
	struct hl_script_frame frames[4 * ENTRIES];
	struct hl_php php;
	bool truncated;

	(void)state;
	for (size_t i = 0; i < RELEASES; i++) {
		uint8_t *frame = make_image(&releases[i]);
		assert_int_equal(open_image(&php), HL_PHP_FITS);
		for (int n = 0; n < 20; n++)
			capture(&php, frames, 4 * ENTRIES);
		uint32_t given = 2 * ENTRIES;
		thread_memory.known = given;
		assert_int_equal(recapture(&php, frames, 4 * ENTRIES), 0);
		assert_int_equal(thread_memory.kept, given);
		/* another op of the innermost function */
		uint8_t *function = make_function("other", NULL), *called;
		memcpy(&called, frame + 24, sizeof(called));
		put(frame, 0, ops_of(called) + 32);
		assert_int_equal(recapture(&php, frames, 4 * ENTRIES), 1);
		assert_int_equal(thread_memory.kept, given - 1);
		assert_place(&php, frames, "Class::inner", FIRST_LINE + 1);
		/* a call */
		put(globals, 488, make_frame(frame, function, 2, 0));
		assert_int_equal(capture_with(&php, NULL, frames, 4 * ENTRIES, &truncated), 1);
		assert_int_equal(thread_memory.kept, given);
		assert_place(&php, frames, "other", FIRST_LINE + 2);
		/* another function where that one was */
		thread_memory.known = given + 1;
		put_number(function, release->line_start, FIRST_LINE - 1);
		assert_int_equal(recapture(&php, frames, 4 * ENTRIES), 1);
		/* an outer frame runs on: what is inward of it is given again */
		uint8_t *outer;
		memcpy(&outer, frame + 48, sizeof(outer));
		put(outer, 0, ops_of(function));
		assert_int_equal(recapture(&php, frames, 4 * ENTRIES), 3);
		assert_int_equal(thread_memory.kept, given - 2);
	}
}

static void lines_are_those_of_the_op_that_runs(void **state)
{
	uint64_t saved[HL_SAVED_COUNT] = {0};
	struct hl_script_frame frames[4 * ENTRIES];
	struct hl_php php;
	bool truncated;

	(void)state;
	for (size_t i = 0; i < RELEASES; i++) {
		uint8_t *frame = make_image(&releases[i]), *function;
		assert_int_equal(open_image(&php), HL_PHP_FITS);
		for (int n = 0; n < 20; n++)
			capture(&php, frames, 4 * ENTRIES);
		memcpy(&function, frame + 24, sizeof(function));
		/* the interpreter's registers have another one */
		thread_memory.known = 0;
		saved[HL_SAVED_R14] = (uint64_t)frame;
		saved[HL_SAVED_R15] = (uint64_t)ops_of(function);
		capture_with(&php, saved, frames, 4 * ENTRIES, &truncated);
		assert_place(&php, frames, "Class::inner", FIRST_LINE);
		/* they have something else */
		saved[HL_SAVED_R15] += 4 * 32;
		capture_with(&php, saved, frames, 4 * ENTRIES, &truncated);
		assert_place(&php, frames, "Class::inner", FIRST_LINE + 3);
		/* an exception is handled, which the second op threw */
		put(frame, 0, globals + release->thrown + 8);
		put(globals, release->thrown, ops_of(function) + 32);
		capture(&php, frames, 4 * ENTRIES);
		assert_place(&php, frames, "Class::inner", FIRST_LINE + 1);
		put(globals, release->thrown, NULL);
		capture(&php, frames, 4 * ENTRIES);
		assert_place(&php, frames, "Class::inner", 0);
		/* it has not begun */
		put(frame, 0, NULL);
		capture(&php, frames, 4 * ENTRIES);
		assert_place(&php, frames, "Class::inner", FIRST_LINE);
	}
}

/* Generators that run for others, a fiber, a function of an extension, and a call whose function has ended. */
static void frames_of_other_kinds_are_read(void **state)
{
	struct hl_script_frame frames[4 * ENTRIES];
	struct hl_php php;

	(void)state;
	for (size_t i = 0; i < RELEASES; i++) {
		uint8_t *frame = make_image(&releases[i]), *native = make(256), *generators[3];
		native[0] = 1;
		put(native, 8, make_string("array_map"));
		for (int k = 0; k < 3; k++) {
			generators[k] = make(256);
			put(generators[k], 16, class_of_generators);
		}
		/* the second one waits for the first, the third for the second */
		put(generators[1], 152, generators[0]);
		put(generators[2], 152, generators[1]);
		put(generators[1], 56, make_frame(NULL, make_function("second", NULL), 1, TOP));
		put(generators[2], 56, make_frame(NULL, make_function("third", NULL), 2, TOP));
		uint8_t *waiting = make_frame(make_frame(frame, native, 0, 0), NULL, 0, 8);
		put(waiting, 32, generators[2]);
		put(globals, 488, make_frame(waiting, make_function("first", NULL), 0, TOP));
		assert_int_equal(open_image(&php), HL_PHP_FITS);
		for (int n = 0; n < 20; n++) {
			assert_int_equal(capture(&php, frames, 4 * ENTRIES), 2 * ENTRIES + 4);
			assert_place(&php, &frames[0], "first", FIRST_LINE);
			assert_place(&php, &frames[1], "second", FIRST_LINE + 1);
			assert_place(&php, &frames[2], "third", FIRST_LINE + 2);
			assert_place(&php, &frames[3], "array_map", 0);
			assert_true(frames[0].is_entry && !frames[1].is_entry &&
				    !frames[2].is_entry && !frames[3].is_entry);
			assert_int_equal(recapture(&php, frames, 4 * ENTRIES), HL_SCRIPT_GAVE_UP);
		}
		/* what is outward of a fiber was not called on its stack */
		uint8_t *nameless = make(256);
		nameless[0] = 1;
		frame = make_frame(frame, nameless, 0, 0);
		frame = make_frame(frame, make_function("{closure}", NULL), 0, TOP);
		put(globals, 488, frame);
		uint32_t count = capture(&php, frames, 4 * ENTRIES);
		assert_true(frames[0].is_entry);
		uint32_t ended = 1; /* as this test's own calls stand for those of execute_ex() */
		while (frames[ended].function == php.api.eval_start)
			assert_true(frames[ended++].is_entry);
		assert_int_equal(count, 2 * ENTRIES + ended);
		assert_true(ended > 1);
		assert_false(frames[ended + 1].is_entry);
		assert_place(&php, &frames[1], "", 0);
	}
}

static void other_releases_are_refused(void **state)
{
	struct hl_php php;

	(void)state;
	make_image(&releases[0]);
	version = "Zend Engine v4.3.1, Copyright";
	assert_int_equal(open_image(&php), HL_PHP_UNKNOWN_VERSION);
	version = "Zend Engine v3.4.0, Copyright";
	assert_int_equal(open_image(&php), HL_PHP_UNKNOWN_VERSION);
	version = "Zend Engine v4.";
	assert_int_equal(open_image(&php), HL_PHP_UNKNOWN_VERSION);
	version = NULL;
	assert_int_equal(open_image(&php), HL_PHP_NOT_STARTED);
	version = releases[1].text; /* but its globals are as large as the other one's */
	assert_int_equal(open_image(&php), HL_PHP_OTHER_LAYOUT);
	assert_non_null(strstr(hl_php_problem_text(HL_PHP_THREAD_SAFE), "ZTS"));
}

/* Whatever the frames hold: nothing faults, and nothing is yielded. */
static void frames_that_are_not_in_order_are_refused(void **state)
{
	static const uint64_t values[] = {8, 0x60000000, UINT64_C(1) << 63, (uint64_t)memory + 4};
	struct hl_script_frame frames[4];
	struct hl_php php;

	(void)state;
	for (size_t i = 0; i < RELEASES; i++)
		for (size_t k = 0; k < 5 * sizeof(values) / sizeof(*values); k++) {
			uint8_t *frame = make_image(&releases[i]), *function;
			const void *value = (const void *)values[k / 5];
			memcpy(&function, frame + 24, sizeof(function));
			switch (k % 5) {
			case 0:
				put(globals, 488, value);
				break;
			case 1:
				put(frame, 24, value);
				break;
			case 2:
				put(function, release->opcodes, value);
				break;
			case 3:
				put(function, release->filename, value);
				break;
			default:
				put(frame, 0, value);
				break;
			}
			assert_int_equal(open_image(&php), HL_PHP_FITS);
			for (int n = 0; n < 10; n++)
				assert_int_equal(capture(&php, frames, 4), 0);
			assert_true(hl_php_is_refused(&php));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_of_each_release_are_read),
		cmocka_unit_test(what_is_as_it_was_is_kept),
		cmocka_unit_test(lines_are_those_of_the_op_that_runs),
		cmocka_unit_test(frames_of_other_kinds_are_read),
		cmocka_unit_test(other_releases_are_refused),
		cmocka_unit_test(frames_that_are_not_in_order_are_refused),
	};

	unwinder.find_module = find_module;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
