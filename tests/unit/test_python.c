/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames of each version of CPython out of images that are built here, field by field, as the headers of that version
 * lay them out: the offsets are stated once more, by another hand than in layouts.c.
 */
#include "guests/python/python.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FIRST_LINE 100
#define MARKS	   64 /* more than this test has calls on its own stack */

/* PyThreadState.frame, or .cframe and what that has; PyFrameObject or _PyInterpreterFrame; PyCodeObject. */
struct version {
	uint32_t number; /* as Py_Version says it, 0 where it is not there */
	unsigned state, cframe, frame_code, frame_back, frame_at, mark, mark_value;
	unsigned line, file, name, qualname, table, instructions, text;
	int32_t lasti;	   /* instead of an address */
	uint32_t expected; /* line */
};

static const struct version versions[] = {
	{0, 24, 0, 32, 24, 104, 0, 0, 40, 104, 112, 0, 120, 0, 48, 4, FIRST_LINE + 1},
	{0x030b02f0, 56, 8, 32, 48, 56, 68, 1, 72, 112, 120, 128, 136, 184, 48, 0, FIRST_LINE + 3},
	{0x030c01f0, 56, 0, 0, 8, 56, 70, 3, 68, 112, 120, 128, 136, 192, 40, 0, FIRST_LINE + 3},
	{0x030d00f0, 72, 0, 0, 8, 56, 70, 3, 68, 112, 120, 128, 136, 200, 40, 0, FIRST_LINE + 3},
	{0x030e00f0, 72, 0, 0, 8, 56, 74, 3, 68, 112, 120, 128, 136, 208, 40, 0, FIRST_LINE + 3},
};
/* 3.10 has the table of ranges under another name, and counts instructions. */
static const struct version version_10 = {
	0, 24, 0, 32, 24, 96, 0, 0, 40, 104, 112, 0, 120, 0, 48, 2, FIRST_LINE + 3};

static _Alignas(4096) uint8_t memory[1 << 16];
static size_t used;
static struct hl_unwind unwinder;
static struct hl_walk walk;

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

static uint8_t *make_type(const char *name)
{
	uint8_t *type = make(416);

	put(type, 24, (uint64_t)name);
	return type;
}

static void add_member(uint8_t *members, const char *name, uint64_t offset)
{
	uint64_t known;

	for (memcpy(&known, members, 8); known; memcpy(&known, members, 8))
		members += 40;
	put(members, 0, (uint64_t)name);
	put(members, 16, offset);
}

static uint8_t *make_object(uint8_t *type, size_t size, uint64_t count)
{
	uint8_t *object = make(size);

	put(object, 8, (uint64_t)type);
	put(object, 16, count);
	return object;
}

struct image {
	const struct version *version;
	uint8_t *code_type, *frame_type, *string_type, *bytes_type, *state;
	uint64_t runtime[72];
};

static struct image *image;

static uint8_t *make_string(const char *text)
{
	uint8_t *string = make_object(image->string_type, 128, strlen(text));

	put_number(string, 32, 1 << 2 | 1 << 5 | 1 << 6); /* a byte each, compact, ASCII */
	memcpy(string + image->version->text, text, strlen(text));
	return string;
}

static uint8_t *make_bytes(const void *bytes, size_t count)
{
	uint8_t *object = make_object(image->bytes_type, 32 + count + 1, count);

	memcpy(object + 32, bytes, count);
	return object;
}

static uint8_t *make_code(const char *name)
{
	static const uint8_t steps[] = {4, 1, 4, 2}, locations[] = {0xe9, 2, 0xe9, 4};
	const struct version *it = image->version;
	uint8_t *code = make_object(image->code_type, 256, 4);

	put_number(code, it->line, FIRST_LINE);
	put(code, it->file, (uint64_t)make_string("a file.py"));
	put(code, it->name, (uint64_t)make_string(it->qualname ? "short" : name));
	if (it->qualname)
		put(code, it->qualname, (uint64_t)make_string(name));
	put(code, it->table, (uint64_t)make_bytes(it->number ? locations : steps, 4));
	if (!it->number)
		put(code, 48, (uint64_t)make_bytes("12345678", 8));
	return code;
}

static void put_code(uint8_t *frame, uint8_t *code)
{
	const struct version *it = image->version;

	/* The lowest bit is a tag in 3.14. */
	put(frame, it->frame_code, (uint64_t)code | (it->number >> 16 == 0x030e));
	if (it->number)
		put(frame, it->frame_at, (uint64_t)code + it->instructions + 4);
	else
		put_number(frame, it->frame_at, (uint32_t)it->lasti);
}

static uint8_t *make_frame(uint8_t *back, uint8_t *code)
{
	const struct version *it = image->version;
	uint8_t *frame = make(128);

	put(frame, it->frame_back, (uint64_t)back);
	put_code(frame, code);
	return frame;
}

/* Native code calls what ${frame} is outward of, or has called it: by version. */
static uint8_t *make_mark(uint8_t *frame)
{
	const struct version *it = image->version;

	if (!it->mark)
		return frame;
	if (it->mark_value == 3)
		frame = make_frame(frame, NULL);
	frame[it->mark] = (uint8_t)it->mark_value;
	return frame;
}

static void make_types(void)
{
	const struct version *it = image->version;
	uint8_t *members = make(40 * 16), *of_frames = make(40 * 8);

	image->code_type = make_type("code");
	image->frame_type = make_type("frame");
	image->string_type = make_type("str");
	image->bytes_type = make_type("bytes");
	put(image->code_type, 32, it->instructions ? it->instructions : 176);
	put(image->code_type, 240, (uint64_t)members);
	put(image->frame_type, 240, (uint64_t)of_frames);
	add_member(members, "co_firstlineno", it->line);
	add_member(members, "co_filename", it->file);
	add_member(members, "co_name", it->name);
	if (it->qualname)
		add_member(members, "co_qualname", it->qualname);
	if (it->number || it == &version_10)
		add_member(members, "co_linetable", it->table);
	else
		add_member(members, "co_lnotab", it->table);
	if (!it->number) {
		add_member(of_frames, "f_back", it->frame_back);
		add_member(of_frames, "f_code", it->frame_code);
	}
}

/* _Py_DebugOffsets, with something else between what is looked for. */
static void make_table(uint64_t free_threaded)
{
	const struct version *it = image->version;
	const uint64_t words[] = {it->number,
				  free_threaded,
				  7,
				  0,
				  8,
				  16,
				  it->state,
				  7,
				  it->frame_back,
				  it->frame_code,
				  it->frame_at,
				  80,
				  it->mark,
				  7,
				  7,
				  it->file,
				  it->name,
				  it->qualname,
				  it->table,
				  it->line,
				  1,
				  2,
				  3,
				  it->instructions};

	memcpy(image->runtime, "xdebugpy", 8);
	memcpy(image->runtime + 1, words, sizeof(words));
}

static uint64_t state_of_thread(void)
{
	return (uint64_t)image->state;
}

static void make_image(const struct version *version)
{
	static struct image one;
	uint8_t *frame = NULL;

	used = 0;
	memset(memory, 0, sizeof(memory));
	image = &one;
	*image = (struct image){.version = version};
	make_types();
	make_table(0);
	uint8_t *outer = make_code("outer"), *inner = make_code("Class.inner");
	/* Each group is inner, called by outer, called by native code. */
	for (int i = 0; i < MARKS; i++) {
		frame = make_frame(version->mark_value == 3 ? make_mark(frame) : frame, outer);
		if (version->mark_value == 1)
			make_mark(frame);
		frame = make_frame(frame, inner);
	}
	image->state = make(256);
	if (version->cframe || version->number >> 16 == 0x030c) {
		uint8_t *cframe = make(16);
		put(cframe, version->cframe, (uint64_t)frame);
		put(image->state, version->state, (uint64_t)cframe);
	} else {
		put(image->state, version->state, (uint64_t)frame);
	}
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

/* All code of this test stands for the main function. */
static struct hl_python_api api_of_image(void)
{
	struct dl_find_object found;

	assert_int_equal(_dl_find_object((void *)make_image, &found), 0);
	return (struct hl_python_api){
		.version = image->version->number,
		.runtime = (uint64_t)image->runtime,
		.code_type = (uint64_t)image->code_type,
		.frame_type = (uint64_t)image->frame_type,
		.current_state = (uint64_t)state_of_thread,
		.own_state = (uint64_t)state_of_thread,
		.eval_start = (uint64_t)found.dlfo_map_start,
		.eval_end = (uint64_t)found.dlfo_map_end,
	};
}

static __attribute__((noinline)) uint32_t capture_with(struct hl_python *python,
						       struct hl_script_memory *of_thread,
						       struct hl_script_frame *frames, uint32_t max,
						       bool *ret_truncated)
{
	uint64_t frame = (uint64_t)__builtin_frame_address(0), sp = HL_HOOK_SP(frame),
		 bp = HL_HOOK_BP(frame);
	struct hl_registers registers = {HL_HOOK_PC(sp, bp), sp, HL_HOOK_OUTER(sp, bp)};
	const struct hl_script_caller caller = {
		.registers = &registers,
		.native_node = 1,
		.unwind = &unwinder,
		.walk = &walk,
		.memory = of_thread,
	};

	of_thread->kept = 0;
	*ret_truncated = false;
	return hl_python_capture(python, &caller, frames, max, ret_truncated);
}

static uint32_t capture(struct hl_python *python, struct hl_script_frame *frames, uint32_t max,
			bool *ret_truncated)
{
	static struct hl_script_memory nothing_known;

	return capture_with(python, &nothing_known, frames, max, ret_truncated);
}

/* ---- tests ---- */

static void assert_frames(struct hl_python *python)
{
	struct hl_script_frame frames[4 * MARKS];
	struct hl_script_place place;
	bool truncated;

	assert_int_equal(capture(python, frames, 4 * MARKS, &truncated), 2 * MARKS);
	assert_false(truncated);
	for (uint32_t i = 0; i < 2 * MARKS; i++) {
		const char *name = i % 2 ? "outer" : "Class.inner";
		bool is_entry = !image->version->mark || i % 2;
		assert_int_equal(frames[i].is_entry, is_entry);
		assert_true(hl_python_describe(python, &frames[i], &place));
		assert_int_equal(place.function_bytes, strlen(name));
		assert_memory_equal(place.function, name, strlen(name));
		assert_int_equal(place.source_bytes, 9);
		assert_memory_equal(place.source, "a file.py", 9);
		assert_int_equal(place.line, image->version->expected);
		assert_int_equal(place.first_line, FIRST_LINE);
	}
	assert_int_equal(capture(python, frames, 5, &truncated), 5);
	assert_true(truncated);
}

static void check_version(const struct version *version)
{
	struct hl_python python = {0};

	make_image(version);
	const struct hl_python_api api = api_of_image();
	assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_FITS);
	for (int i = 0; i < 40; i++) /* proofs, and captures without checks */
		assert_frames(&python);
	python.ends_are_told = true;
	assert_frames(&python);
}

static void frames_of_each_version_are_read(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		check_version(&versions[i]);
	check_version(&version_10);
}

static void other_versions_and_layouts_are_refused(void **state)
{
	struct hl_python python = {0};

	(void)state;
	make_image(&versions[4]);
	struct hl_python_api api = api_of_image();
	api.version = 0x030f00f0;
	assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_UNKNOWN_VERSION);
	api.version = 0x030700f0;
	assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_UNKNOWN_VERSION);
	api.version = versions[4].number;
	make_table(1);
	assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_FREE_THREADED);
	make_table(0);
	image->runtime[13]++; /* where a frame's owner is */
	assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_OTHER_LAYOUT);
	image->runtime[13]--;
	put(image->code_type, 32, 216);
	assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_OTHER_LAYOUT);
}

/* Whatever the frames hold: nothing faults, and nothing is yielded. */
static void frames_that_are_not_in_order_are_refused(void **state)
{
	static const uint64_t values[] = {8, 0x60000000, UINT64_C(1) << 63, (uint64_t)memory + 4};

	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		for (size_t k = 0; k < 2 * sizeof(values) / sizeof(*values); k++) {
			struct hl_script_frame frames[4];
			struct hl_python python = {0};
			bool truncated;
			make_image(&versions[i]);
			const struct hl_python_api api = api_of_image();
			assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_FITS);
			if (k % 2) {
				uint8_t *frame = make_frame(NULL, NULL);
				put(frame, versions[i].frame_code, values[k / 2] & ~UINT64_C(7));
				put(image->state, versions[i].state, (uint64_t)frame);
			} else {
				put(image->state, versions[i].state, values[k / 2]);
			}
			for (int n = 0; n < 10; n++)
				assert_int_equal(capture(&python, frames, 4, &truncated), 0);
			assert_true(hl_python_is_refused(&python));
		}
}

static uint8_t *innermost(void)
{
	const struct version *it = image->version;
	uint64_t frame, state = (uint64_t)image->state;

	memcpy(&frame, (void *)(state + it->state), sizeof(frame));
	if (it->cframe || it->number >> 16 == 0x030c)
		memcpy(&frame, (void *)(frame + it->cframe), sizeof(frame));
	return (uint8_t *)frame;
}

static void run(uint8_t *frame)
{
	const struct version *it = image->version;
	uint64_t state = (uint64_t)image->state, cframe;

	memcpy(&cframe, (void *)(state + it->state), sizeof(cframe));
	if (it->cframe || it->number >> 16 == 0x030c)
		put((uint8_t *)cframe, it->cframe, (uint64_t)frame);
	else
		put(image->state, it->state, (uint64_t)frame);
}

static uint8_t *outward_of(uint8_t *frame, unsigned count)
{
	for (uint64_t outer; count--; frame = (uint8_t *)outer)
		memcpy(&outer, frame + image->version->frame_back, sizeof(outer));
	return frame;
}

/* What a program does to its frames between two allocations: returns and calls, by native code or not, goes on
 * within a function, or changes one far out, as a generator's do. */
static void go_on(unsigned draw, uint8_t *const codes[2], uint8_t *spare)
{
	const struct version *it = image->version;
	uint8_t *frame = innermost(), *any = outward_of(frame, draw / 8 % 12);

	switch (draw % 8) {
	case 0:
		run(outward_of(frame, 1 + draw / 8 % 3));
		break;
	case 1:
	case 2: /* where another one may have been */
		memcpy(spare, outward_of(frame, 8), 128);
		put(spare, it->frame_back, (uint64_t)frame);
		if (it->mark && spare[it->mark] == 3)
			put_code(spare, codes[draw / 8 % 2]);
		if (it->mark)
			spare[it->mark] = it->mark_value == 1 && draw / 8 % 2;
		run(spare);
		break;
	case 3:
	case 4:
		any[it->frame_at] = (uint8_t)(any[it->frame_at] + 2 * (draw / 8 % 4));
		break;
	case 5:
		if (it->mark_value != 3 || any[it->mark] != 3)
			put_code(any, codes[draw / 16 % 2]);
		break;
	case 6:
		if (it->mark_value == 1)
			any[it->mark] ^= 1;
		break;
	default:
		break;
	}
}

static void check_what_is_kept(const struct version *version)
{
	static struct hl_script_memory known;
	struct hl_script_frame path[4 * MARKS], frames[4 * MARKS], whole[4 * MARKS];
	struct hl_python python = {0};
	uint32_t depth = 0, kept = 0;
	bool truncated;

	memset(&known, 0, sizeof(known));
	make_image(version);
	const struct hl_python_api api = api_of_image();
	uint8_t *codes[2] = {make_code("one"), make_code("other")}, *spares = make(64 * 128);
	assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_FITS);
	for (int i = 0; i < 40; i++)
		assert_frames(&python);
	python.ends_are_told = true;
	for (unsigned i = 0, random = 1; i < 2000; i++) {
		random = random * 1103515245 + 12345;
		if (i % 64 == 0)
			make_image(version);
		else
			go_on(random >> 16, codes, spares + i % 64 * 128);
		known.known = i % 50 ? depth : 0;
		known.kept = 0;
		uint32_t count =
			known.known && i % 3
				? hl_python_recapture(&python)(&python, &known, frames, 4 * MARKS)
				: HL_SCRIPT_GAVE_UP;
		if (count == HL_SCRIPT_GAVE_UP)
			count = capture_with(&python, &known, frames, 4 * MARKS, &truncated);
		assert_true(known.kept <= known.known);
		for (uint32_t k = 0; k < count; k++)
			path[known.kept + k] = frames[count - 1 - k];
		depth = known.kept + count;
		kept += known.kept;
		assert_int_equal(capture(&python, whole, 4 * MARKS, &truncated), depth);
		for (uint32_t k = 0; k < depth; k++)
			assert_memory_equal(&path[k], &whole[depth - 1 - k], sizeof(*path));
	}
	assert_true(kept > 2000 * MARKS / 2);
}

static void what_is_kept_of_a_capture_is_what_a_walk_finds(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		check_what_is_kept(&versions[i]);
	check_what_is_kept(&version_10);
}

/* ---- functions that have ended ---- */

/* Their frames are forgotten, and those of what they let go of are inward of the marks. */
static void calls_whose_functions_have_ended_are_marked(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		struct hl_script_frame frames[4 * MARKS];
		struct hl_script_place place;
		struct hl_python python = {0};
		bool truncated;
		if (versions[i].mark_value != 3)
			continue;
		make_image(&versions[i]);
		const struct hl_python_api api = api_of_image();
		assert_int_equal(hl_python_open(&python, &api), HL_PYTHON_FITS);
		for (int k = 0; k < 40; k++)
			assert_frames(&python);
		uint8_t *ended = make_mark(innermost());
		run(make_frame(make_mark(ended), make_code("callback")));
		assert_int_equal(capture(&python, frames, 4 * MARKS, &truncated), 2 * MARKS + 2);
		assert_true(frames[0].is_entry && frames[1].is_entry && !frames[2].is_entry);
		assert_true(hl_python_describe(&python, &frames[0], &place));
		assert_memory_equal(place.function, "callback", 8);
		assert_true(hl_python_describe(&python, &frames[1], &place));
		assert_int_equal(place.function_bytes + place.source_bytes + place.line, 0);
		run(ended);
		assert_int_equal(capture(&python, frames, 4 * MARKS, &truncated), 2 * MARKS + 1);
		assert_int_equal(frames[0].function, api.eval_start);
	}
}

/* ---- a main function in two parts ---- */

#ifdef __x86_64__
#define JUMP_IF(target) ".byte 0x0f, 0x84\n.long " target " - . - 4\n"
#define JUMP(target)	".byte 0xe9\n.long " target " - . - 4\n"
#define JUMP_BYTES	5
#define MIDDLE		"6" /* behind the first of JUMP_IF() */
#else
#define JUMP_IF(target) "b.eq " target "\n"
#define JUMP(target)	"b " target "\n"
#define JUMP_BYTES	4
#define MIDDLE		"4"
#endif

/* The part with the name jumps ${HERE} times over to the other, and that ${THERE} times into its middle; a function
 * beside them jumps to its beginning alone. */
#define TWO_PARTS(NAME, HERE, THERE)                                                           \
	void NAME(void);                                                                       \
	void NAME##_end(void);                                                                 \
	void NAME##_cold(void);                                                                \
	__asm__(".text\n.p2align 2\n.globl " #NAME "\n" #NAME ":\n.cfi_startproc\n.rept " HERE \
		"\n" JUMP_IF(#NAME "_cold + 8") ".endr\n" JUMP(#NAME "_cold") JUMP(            \
			#NAME                                                                  \
			"_other") ".skip 8, 0x90\n.cfi_endproc\n.globl " #NAME "_end\n" #NAME  \
				  "_end:\n.skip 32, 0x90\n" #NAME                              \
				  "_other:\n.cfi_startproc\n.rept 40\n" JUMP(                  \
					  #NAME) ".endr\n.cfi_endproc\n.skip 32, 0x90\n"       \
						 ".globl " #NAME "_cold\n" #NAME               \
						 "_cold:\n.cfi_startproc\n.skip 16, 0x90\n"    \
						 ".rept " THERE                                \
						 "\n" JUMP(#NAME                               \
							   " + " MIDDLE) ".endr\n"             \
									 ".skip 8, "           \
									 "0x90\n.cfi_endproc\n")
TWO_PARTS(mostly_here, "40", "2");
TWO_PARTS(mostly_there, "3", "40");
TWO_PARTS(hardly, "3", "4");

static void find_parts(void (*begin)(void), void (*end)(void), struct hl_python *ret_python)
{
	struct dl_find_object found;

	*ret_python = (struct hl_python){0};
	assert_int_equal(_dl_find_object((void *)begin, &found), 0);
	make_image(&versions[4]);
	struct hl_python_api api = api_of_image();
	api.eval_start = (uint64_t)begin;
	api.eval_end = (uint64_t)end;
	api.start = (uint64_t)found.dlfo_map_start;
	api.end = (uint64_t)found.dlfo_map_end;
	api.eh_frame_hdr = found.dlfo_eh_frame;
	assert_int_equal(hl_python_open(ret_python, &api), HL_PYTHON_FITS);
}

static void the_part_without_a_name_is_found_wherever_most_of_the_function_is(void **state)
{
	struct hl_python python;

	(void)state;
	find_parts(mostly_here, mostly_here_end, &python);
	assert_int_equal(python.cold_start, (uint64_t)mostly_here_cold);
	assert_int_equal(python.cold_end - python.cold_start, 16 + 2 * JUMP_BYTES + 8);
	find_parts(mostly_there, mostly_there_end, &python);
	assert_int_equal(python.cold_start, (uint64_t)mostly_there_cold);
	assert_int_equal(python.cold_end - python.cold_start, 16 + 40 * JUMP_BYTES + 8);
	find_parts(hardly, hardly_end, &python);
	assert_int_equal(python.cold_start, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_of_each_version_are_read),
		cmocka_unit_test(what_is_kept_of_a_capture_is_what_a_walk_finds),
		cmocka_unit_test(other_versions_and_layouts_are_refused),
		cmocka_unit_test(frames_that_are_not_in_order_are_refused),
		cmocka_unit_test(calls_whose_functions_have_ended_are_marked),
		cmocka_unit_test(the_part_without_a_name_is_found_wherever_most_of_the_function_is),
	};

	unwinder.find_module = find_module;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
