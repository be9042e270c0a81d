/* SPDX-License-Identifier: BSD-2-Clause */
/* The CFI compiler: hand-assembled programs, damaged ones, and those of real libraries. */
#include "base/compiler.h"
#include "cfi_builder.h"
#include "unwind/rule.h"
#include "unwind/rule_cache.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define CODE	  UINT64_C(0x2000)
#define CODE_SIZE UINT64_C(0x1000)

static const struct cie_shape usual = {.encoding = 0x1b}; /* pcrel, sdata4: what compilers write */

struct expected {
	enum hl_rule_kind kind;
	int64_t cfa;
	enum hl_rule_bp bp;
	int64_t bp_offset, extra;
};

static void assert_rule(const char *name, hl_rule rule, const struct expected *expected)
{
	if (hl_rule_kind_of(rule) != expected->kind || hl_rule_cfa_offset(rule) != expected->cfa ||
	    hl_rule_bp_of(rule) != expected->bp || hl_rule_bp_offset(rule) != expected->bp_offset ||
	    hl_rule_extra(rule) != expected->extra)
		fail_msg("%s: kind %d cfa %ld bp %d at %ld extra %ld", name, hl_rule_kind_of(rule),
			 hl_rule_cfa_offset(rule), hl_rule_bp_of(rule), hl_rule_bp_offset(rule),
			 hl_rule_extra(rule));
	assert_true(rule >> HL_RULE_BITS == 0);
}

static struct builder one_function(const struct cie_shape *shape, const uint8_t *program,
				   size_t program_size)
{
	struct builder builder = {.address = 0x1000};
	size_t cie = put_cie(&builder, shape);

	put_fde(&builder, cie, shape, CODE, CODE_SIZE, program, program_size);
	return builder;
}

/* The linear lookup's result for one function with that program. */
static int find_with(const struct cie_shape *shape, const uint8_t *program, size_t program_size,
		     uint64_t at, hl_rule *ret_rule)
{
	struct builder builder = one_function(shape, program, program_size);
	struct hl_cfi_section section = section_of(&builder, shape->is_debug_frame);

	return hl_cfi_find(&section, CODE + at, ret_rule);
}

#define PROGRAM(...) \
	.program = {__VA_ARGS__}, .program_size = sizeof((const uint8_t[]){__VA_ARGS__})

static const struct operation_case {
	const char *name;
	uint8_t program[24];
	size_t program_size;
	uint64_t at;
	struct expected expected;
} operation_cases[] = {
	{"nop", PROGRAM(0), 0, {HL_RULE_SP, 8, 0, 0, 0}},
	{"before advance_loc", PROGRAM(0x41, 0x0e, 16), 0, {HL_RULE_SP, 8, 0, 0, 0}},
	{"advance_loc", PROGRAM(0x41, 0x0e, 16), 1, {HL_RULE_SP, 16, 0, 0, 0}},
	{"advance_loc1", PROGRAM(0x02, 200, 0x0e, 16), 200, {HL_RULE_SP, 16, 0, 0, 0}},
	{"advance_loc2", PROGRAM(0x03, 0, 2, 0x0e, 16), 512, {HL_RULE_SP, 16, 0, 0, 0}},
	{"advance_loc4", PROGRAM(0x04, 0, 2, 0, 0, 0x0e, 16), 512, {HL_RULE_SP, 16, 0, 0, 0}},
	{"def_cfa", PROGRAM(0x0c, 6, 16), 0, {HL_RULE_BP, 16, 0, 0, 0}},
	{"def_cfa_sf", PROGRAM(0x12, 7, 0x7c), 0, {HL_RULE_SP, 32, 0, 0, 0}},
	{"def_cfa_register", PROGRAM(0x0d, 6), 0, {HL_RULE_BP, 8, 0, 0, 0}},
	{"def_cfa_offset", PROGRAM(0x0e, 0x80, 0x40), 0, {HL_RULE_SP, 8192, 0, 0, 0}},
	{"def_cfa_offset_sf", PROGRAM(0x13, 0x7d), 0, {HL_RULE_SP, 24, 0, 0, 0}},
	{"offset", PROGRAM(0x86, 2), 0, {HL_RULE_SP, 8, HL_BP_CFA, -16, 0}},
	{"offset of rbx", PROGRAM(0x83, 2), 0, {HL_RULE_SP, 8, 0, 0, 0}},
	{"offset_extended", PROGRAM(0x05, 6, 3), 0, {HL_RULE_SP, 8, HL_BP_CFA, -24, 0}},
	{"offset_extended_sf", PROGRAM(0x11, 6, 0x7e), 0, {HL_RULE_SP, 8, HL_BP_CFA, 16, 0}},
	{"GNU_negative_offset_extended", PROGRAM(0x2f, 6, 2), 0, {HL_RULE_SP, 8, HL_BP_CFA, 16, 0}},
	{"restore", PROGRAM(0x86, 2, 0xc6), 0, {HL_RULE_SP, 8, HL_BP_SAME, 0, 0}},
	{"restore_extended", PROGRAM(0x86, 2, 0x06, 6), 0, {HL_RULE_SP, 8, HL_BP_SAME, 0, 0}},
	{"undefined", PROGRAM(0x86, 2, 0x07, 6), 0, {HL_RULE_SP, 8, HL_BP_SAME, 0, 0}},
	{"same_value", PROGRAM(0x86, 2, 0x08, 6), 0, {HL_RULE_SP, 8, HL_BP_SAME, 0, 0}},
	{"register", PROGRAM(0x09, 6, 9), 0, {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"register of rbx", PROGRAM(0x09, 3, 9), 0, {HL_RULE_SP, 8, 0, 0, 0}},
	{"val_offset", PROGRAM(0x14, 6, 1), 0, {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"val_offset_sf of rbx", PROGRAM(0x15, 3, 1), 0, {HL_RULE_SP, 8, 0, 0, 0}},
	{"val_expression", PROGRAM(0x16, 6, 1, 0x30), 0, {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"remember_state", PROGRAM(0x0a, 0x0e, 64), 0, {HL_RULE_SP, 64, 0, 0, 0}},
	{"restore_state",
	 PROGRAM(0x86, 2, 0x0a, 0x0e, 64, 0xc6, 0x0b),
	 0,
	 {HL_RULE_SP, 8, HL_BP_CFA, -16, 0}},
	{"GNU_args_size", PROGRAM(0x2e, 48), 0, {HL_RULE_SP, 8, 0, 0, 0}},
	{"expression of rbp", PROGRAM(0x10, 6, 2, 0x76, 0), 0, {HL_RULE_SP, 8, HL_BP_AT_BP, 0, 0}},
	{"expression of rbp from rsp",
	 PROGRAM(0x10, 6, 2, 0x77, 16),
	 0,
	 {HL_RULE_SP, 8, HL_BP_AT_SP, 16, 0}},
	{"expression that is not simple",
	 PROGRAM(0x10, 6, 3, 0x77, 16, 0x12),
	 0,
	 {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"realigned stack", PROGRAM(0x0f, 3, 0x76, 0x78, 0x06), 0, {HL_RULE_DEREF_BP, -8, 0, 0, 0}},
	{"saved rsp, OpenSSL",
	 PROGRAM(0x0f, 6, 0x77, 0x98, 1, 0x06, 0x23, 8),
	 0,
	 {HL_RULE_DEREF_SP, 152, 0, 0, 1}},
	{"def_cfa_expression without dereference",
	 PROGRAM(0x0f, 2, 0x76, 16),
	 0,
	 {HL_RULE_BP, 16, 0, 0, 0}},
	{"PLT",
	 PROGRAM(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22),
	 0,
	 {HL_RULE_PLT, 0, 0, 0, 11}},
	{"almost PLT",
	 PROGRAM(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x1c),
	 0,
	 {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"CFA by another register", PROGRAM(0x0c, 10, 0), 0, {HL_RULE_REGISTER, 0, 0, 0, 10}},
	{"CFA by no register at all", PROGRAM(0x0c, 17, 0), 0, {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"return address undefined", PROGRAM(0x07, 16), 0, {HL_RULE_END, 0, 0, 0, 0}},
	{"return address elsewhere", PROGRAM(0x90, 2), 0, {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"stack pointer saved", PROGRAM(0x87, 2), 0, {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"CFA not of whole words", PROGRAM(0x0e, 12), 0, {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
	{"greatest CFA", PROGRAM(0x0e, 0xf8, 0xff, 0xff, 0x1f), 0, {HL_RULE_SP, 67108856, 0, 0, 0}},
	{"CFA too great",
	 PROGRAM(0x0e, 0x80, 0x80, 0x80, 0x20),
	 0,
	 {HL_RULE_UNSUPPORTED, 0, 0, 0, 0}},
};

static void every_operation_gives_its_rule(void **state)
{
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(operation_cases); i++) {
		const struct operation_case *test = &operation_cases[i];
		hl_rule rule = ~UINT64_C(0);
		int error = find_with(&usual, test->program, test->program_size, test->at, &rule);
		if (error)
			fail_msg("%s: %d", test->name, error);
		assert_rule(test->name, rule, &test->expected);
	}
}

static void set_loc_moves_to_an_address(void **state)
{
	(void)state;
	const struct cie_shape shape = {.encoding = 0x03}; /* absolute, udata4 */
	const uint8_t program[] = {0x01, 0x10, 0x20, 0, 0, 0x0e, 16};
	const struct expected before = {HL_RULE_SP, 8, 0, 0, 0}, after = {HL_RULE_SP, 16, 0, 0, 0};
	hl_rule rule;
	assert_int_equal(find_with(&shape, program, sizeof(program), 0xf, &rule), 0);
	assert_rule("before", rule, &before);
	assert_int_equal(find_with(&shape, program, sizeof(program), 0x10, &rule), 0);
	assert_rule("after", rule, &after);
}

static void locations_are_scaled_by_the_code_alignment(void **state)
{
	(void)state;
	const struct cie_shape shape = {.encoding = 0x1b, .code_align = 4};
	const uint8_t program[] = {0x42, 0x0e, 16};
	const struct expected before = {HL_RULE_SP, 8, 0, 0, 0}, after = {HL_RULE_SP, 16, 0, 0, 0};
	hl_rule rule;
	assert_int_equal(find_with(&shape, program, sizeof(program), 7, &rule), 0);
	assert_rule("before", rule, &before);
	assert_int_equal(find_with(&shape, program, sizeof(program), 8, &rule), 0);
	assert_rule("after", rule, &after);
}

/* glibc's __restore_rt: CFA = *(rsp + 160), rbp at rsp + 120, rip at rsp + 168. */
static const uint8_t restorer[] = {0x0f, 4,    0x77, 0xa0, 1,  0x06, 0x10, 6,	 3,
				   0x77, 0xf8, 0,    0x10, 16, 3,    0x77, 0xa8, 1};

static void the_kernels_signal_frame_is_known(void **state)
{
	(void)state;
	const struct cie_shape shape = {.encoding = 0x1b, .augmentation = "zRS"};
	const struct expected signal = {HL_RULE_SIGNAL, 0, 0, 0, 0};
	const struct expected unsupported = {HL_RULE_UNSUPPORTED, 0, 0, 0, 0};
	const uint8_t other[] = {0x0e, 16};
	hl_rule rule;
	assert_int_equal(find_with(&shape, restorer, sizeof(restorer), 0, &rule), 0);
	assert_rule("signal", rule, &signal);
	assert_int_equal(find_with(&usual, restorer, sizeof(restorer), 0, &rule), 0);
	assert_rule("not marked as one", rule, &unsupported);
	assert_int_equal(find_with(&shape, other, sizeof(other), 0, &rule), 0);
	assert_rule("registers elsewhere", rule, &unsupported);
}

static void headers_of_every_shape_are_read(void **state)
{
	(void)state;
	const struct cie_shape shapes[] = {
		{.encoding = 0x1b, .version = 1},
		{.encoding = 0x1b, .version = 3},
		{.encoding = 0x1b, .version = 4},
		{.encoding = 0x1b, .augmentation = "zPLR"},
		{.encoding = 0x1b, .augmentation = "zRB"},
		{.encoding = 0x1b, .is_64 = true},
		{.encoding = 0x00, .augmentation = ""},
		{.encoding = 0x00, .augmentation = "", .is_debug_frame = true, .version = 3},
		{.encoding = 0x00, .augmentation = "", .is_debug_frame = true, .version = 4},
		{.encoding = 0x00, .augmentation = "", .is_debug_frame = true, .is_64 = true},
		{.encoding = 0x00},
		{.encoding = 0x01},
		{.encoding = 0x02},
		{.encoding = 0x03},
		{.encoding = 0x04},
		{.encoding = 0x09},
		{.encoding = 0x0a},
		{.encoding = 0x0b},
		{.encoding = 0x0c},
		{.encoding = 0x10},
		{.encoding = 0x1a},
		{.encoding = 0x1c},
	};
	const uint8_t program[] = {0x41, 0x0e, 16};
	const struct expected expected = {HL_RULE_SP, 16, 0, 0, 0};
	for (size_t i = 0; i < HL_COUNT_OF(shapes); i++) {
		char name[32];
		hl_rule rule;
		snprintf(name, sizeof(name), "shape %zu", i);
		if (find_with(&shapes[i], program, sizeof(program), CODE_SIZE - 1, &rule))
			fail_msg("%s", name);
		assert_rule(name, rule, &expected);
		assert_int_equal(find_with(&shapes[i], program, sizeof(program), CODE_SIZE, &rule),
				 -ENOENT);
	}
}

static void absolute_addresses_are_moved_by_the_bias(void **state)
{
	(void)state;
	const struct cie_shape shape = {.augmentation = "", .is_debug_frame = true};
	struct builder builder = one_function(&shape, NULL, 0);
	struct hl_cfi_section section = section_of(&builder, true);
	hl_rule rule;
	section.bias = 0x555500000000;
	assert_int_equal(hl_cfi_find(&section, CODE, &rule), -ENOENT);
	assert_int_equal(hl_cfi_find(&section, section.bias + CODE, &rule), 0);
}

/* The address of a function that a linker left out, as ld and lld write it. */
static void functions_that_the_linker_left_out_have_no_rules(void **state)
{
	(void)state;
	const struct cie_shape shape = {.augmentation = "", .is_debug_frame = true};
	const uint64_t left_out[] = {0, UINT64_MAX - 1, UINT64_MAX};
	for (size_t i = 0; i < HL_COUNT_OF(left_out); i++) {
		struct builder builder = one_function(&shape, NULL, 0);
		struct hl_cfi_section section = section_of(&builder, true);
		const uint64_t code = CODE;
		uint8_t *place = memmem(builder.bytes, section.size, &code, sizeof(code));
		hl_rule rule;
		assert_non_null(place);
		memcpy(place, &left_out[i], sizeof(left_out[i]));
		section.bias = 0x555500000000;
		assert_int_equal(hl_cfi_find(&section, section.bias + 1, &rule), -ENOENT);
		assert_int_equal(hl_cfi_find(&section, section.bias + CODE, &rule), -ENOENT);
	}
}

static const struct malformed_case {
	const char *name;
	struct cie_shape shape;
	uint8_t program[16];
	size_t program_size;
} malformed_cases[] = {
	{"unknown operation", {.encoding = 0x1b}, PROGRAM(0x3f)},
	{"restore_state without remember_state", {.encoding = 0x1b}, PROGRAM(0x0b)},
	{"states remembered without end",
	 {.encoding = 0x1b},
	 PROGRAM(0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a)},
	{"operand cut off", {.encoding = 0x1b}, PROGRAM(0x0e, 0x80)},
	{"expression longer than the program", {.encoding = 0x1b}, PROGRAM(0x0f, 100, 0x77)},
	{"location goes back", {.encoding = 0x03}, PROGRAM(0x01, 0, 0, 0, 0)},
	{"offset without a CFA", {.encoding = 0x1b, .is_bare = true}, PROGRAM(0x0e, 16)},
	{"unknown version", {.encoding = 0x1b, .version = 9}, PROGRAM(0)},
	{"unknown augmentation", {.encoding = 0x1b, .augmentation = "zRX"}, PROGRAM(0)},
	{"augmentation without length", {.encoding = 0x1b, .augmentation = "eh"}, PROGRAM(0)},
	{"unknown pointer format", {.encoding = 0x05}, PROGRAM(0)},
	{"unknown pointer base", {.encoding = 0x4b}, PROGRAM(0)},
};

static int ignore_row(void *context, const struct hl_cfi_row *row)
{
	(void)context, (void)row;
	return 0;
}

static void malformed_information_is_an_error(void **state)
{
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(malformed_cases); i++) {
		const struct malformed_case *test = &malformed_cases[i];
		struct builder builder =
			one_function(&test->shape, test->program, test->program_size);
		struct hl_cfi_section section = section_of(&builder, false);
		hl_rule rule = 4711;
		if (hl_cfi_compile(&section, 0, ignore_row, NULL) != -EINVAL)
			fail_msg("compiled: %s", test->name);
		if (hl_cfi_find(&section, CODE + CODE_SIZE - 1, &rule) != -EINVAL)
			fail_msg("found: %s", test->name);
		assert_int_equal(rule, 4711);
	}
}

/* Memory whose end is the end of what may be read. */
static uint8_t *before_guard(const void *bytes, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
	return memcpy(pages + page - size, bytes, size);
}

static void free_guarded(uint8_t *bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	munmap((void *)((uintptr_t)bytes & ~(page - 1)), 2 * page);
}

static void nothing_is_read_behind_a_section_cut_anywhere(void **state)
{
	(void)state;
	const struct cie_shape shape = {.encoding = 0x1b, .augmentation = "zPLRS", .version = 4};
	struct builder builder = one_function(&shape, restorer, sizeof(restorer));
	for (size_t size = 1; size < builder.size; size++) {
		uint8_t *bytes = before_guard(builder.bytes, size);
		struct hl_cfi_section section = {bytes, size, builder.address, false, 0};
		hl_rule rule;
		assert_int_not_equal(hl_cfi_find(&section, CODE, &rule), 0);
		hl_cfi_compile(&section, 0, ignore_row, NULL);
		free_guarded(bytes);
	}
}

static void any_flipped_bit_gives_rows_or_an_error(void **state)
{
	(void)state;
	struct builder builder = one_function(&usual, restorer, sizeof(restorer));
	uint8_t *bytes = before_guard(builder.bytes, builder.size);
	for (size_t bit = 0; bit < builder.size * 8; bit++) {
		struct hl_cfi_section section = {bytes, builder.size, builder.address, false, 0};
		hl_rule rule;
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		int result = hl_cfi_compile(&section, 0, ignore_row, NULL);
		assert_true(result == 0 || result == -EINVAL);
		result = hl_cfi_find(&section, CODE, &rule);
		assert_true(result == 0 || result == -EINVAL || result == -ENOENT);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	free_guarded(bytes);
}

/* A .eh_frame_hdr, then .eh_frame with three functions, apart by a gap after the second. */
struct headed {
	struct builder builder;
	size_t hdr;
};

static const uint64_t headed_begins[] = {0x100, 0x200, 0x400};

static struct headed build_headed(uint8_t table_encoding)
{
	struct headed headed = {0};
	struct builder *builder = &headed.builder;
	size_t fdes[3];
	const uint8_t program[] = {0x41, 0x0e, 16};

	builder->address = 0x1000;
	size_t cie = put_cie(builder, &usual);
	for (size_t i = 0; i < 3; i++) {
		fdes[i] = builder->size;
		put_fde(builder, cie, &usual, headed_begins[i], 0x100, program, sizeof(program));
	}
	put(builder, 0, 4);
	headed.hdr = builder->size;
	put(builder, 1, 1);
	put(builder, 0x1b, 1);
	put(builder, 0x03, 1);
	put(builder, table_encoding, 1);
	put_pointer(builder, 0x1b, builder->address);
	put(builder, 3, 4);
	for (size_t i = 0; i < 3; i++) {
		put(builder, headed_begins[i] - builder->address - headed.hdr, 4);
		put(builder, fdes[i] - headed.hdr, 4);
	}
	return headed;
}

/* The section's addresses are moved to where its bytes are: the code lies before them. */
static int find_headed(const struct headed *headed, uint64_t pc, hl_rule *ret_rule)
{
	const struct builder *builder = &headed->builder;
	uint64_t start = (uint64_t)builder->bytes;

	return hl_cfi_find_in_memory(builder->bytes + headed->hdr, start, start + builder->size,
				     start + pc - builder->address, ret_rule);
}

static void the_search_table_leads_to_the_function(void **state)
{
	(void)state;
	const uint8_t encodings[] = {0x3b, 0xff}; /* the usual one, and no table: a linear scan */
	const struct expected expected = {HL_RULE_SP, 16, 0, 0, 0};
	for (size_t e = 0; e < HL_COUNT_OF(encodings); e++) {
		struct headed headed = build_headed(encodings[e]);
		hl_rule rule;
		for (size_t i = 0; i < HL_COUNT_OF(headed_begins); i++) {
			uint64_t last = headed_begins[i] + 0xff;
			assert_int_equal(find_headed(&headed, headed_begins[i], &rule), 0);
			assert_int_equal(find_headed(&headed, last, &rule), 0);
			assert_rule("last byte", rule, &expected);
		}
		assert_int_equal(find_headed(&headed, 0xff, &rule), -ENOENT);
		assert_int_equal(find_headed(&headed, 0x300, &rule), -ENOENT);
		assert_int_equal(find_headed(&headed, 0x500, &rule), -ENOENT);
	}
}

static int find_gap(const struct headed *headed, uint64_t pc, uint64_t *ret_begin,
		    uint64_t *ret_end)
{
	const struct builder *builder = &headed->builder;
	uint64_t start = (uint64_t)builder->bytes, moved = start - builder->address;

	int r = hl_cfi_find_gap(builder->bytes + headed->hdr, start, start + builder->size,
				pc + moved, ret_begin, ret_end);
	*ret_begin -= moved;
	*ret_end -= moved;
	return r;
}

static void a_gap_ends_where_functions_do(void **state)
{
	const uint64_t in_gap[] = {0x300, 0x301, 0x3ff};
	const uint64_t outside[] = {0xff, 0x100, 0x1ff, 0x200, 0x2ff, 0x400, 0x4ff, 0x500, 0x9000};
	struct headed headed = build_headed(0x3b), without = build_headed(0xff);
	uint64_t begin = 0, end = 0;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(in_gap); i++) {
		assert_int_equal(find_gap(&headed, in_gap[i], &begin, &end), 0);
		assert_int_equal(begin, 0x300);
		assert_int_equal(end, 0x400);
	}
	for (size_t i = 0; i < HL_COUNT_OF(outside); i++)
		assert_int_equal(find_gap(&headed, outside[i], &begin, &end), -ENOENT);
	assert_int_equal(find_gap(&without, 0x300, &begin, &end), -ENOENT);
	headed.builder.bytes[headed.hdr] = 2; /* version */
	assert_int_equal(find_gap(&headed, 0x300, &begin, &end), -EINVAL);
}

/* A module of three functions with a gap between the last two. */
#define MODULE_BYTES 0x40000u
static struct {
	struct builder builder;
	uint8_t *bytes;
	const uint8_t *hdr;
	uint64_t gap, next;
} module;

static bool find_module(struct hl_unwind *unwind, uint64_t pc, struct hl_unwind_module *ret_module)
{
	(void)unwind, (void)pc;
	*ret_module = (struct hl_unwind_module){.start = (uint64_t)module.bytes,
						.end = (uint64_t)module.bytes + MODULE_BYTES,
						.load_bias = (uint64_t)module.bytes,
						.eh_frame_hdr = module.hdr};
	return true;
}

static void build_module(uint64_t gap_bytes)
{
	struct builder *builder = &module.builder;
	const uint8_t program[] = {0x41, 0x0e, 16};
	uint64_t begins[] = {0x10000, 0x20000, 0x20100 + gap_bytes};
	size_t fdes[3];

	memset(builder, 0, sizeof(*builder));
	size_t cie = put_cie(builder, &usual);
	for (size_t i = 0; i < 3; i++) {
		fdes[i] = builder->size;
		put_fde(builder, cie, &usual, begins[i], 0x100, program, sizeof(program));
	}
	put(builder, 0, 4);
	size_t hdr = builder->size;
	put(builder, 0x3b031b01, 4);
	put_pointer(builder, 0x1b, 0);
	put(builder, 3, 4);
	for (size_t i = 0; i < 3; i++) {
		put(builder, begins[i] - hdr, 4);
		put(builder, fdes[i] - hdr, 4);
	}
	if (!module.bytes)
		module.bytes = mmap(NULL, MODULE_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(module.bytes, MAP_FAILED);
	memset(module.bytes, 0xcc, MODULE_BYTES);
	memcpy(module.bytes, builder->bytes, builder->size);
	module.hdr = module.bytes + hdr;
	module.gap = 0x20100;
	module.next = begins[2];
}

static hl_rule rule_in_module(uint64_t offset)
{
	static struct hl_unwind unwind = {.find_module = find_module};

	hl_rule_cache_invalidate(&unwind);
	return hl_rule_cache_find(&unwind, atomic_load(&unwind.generation),
				  (uint64_t)module.bytes + offset) &
	       HL_RULE_MASK;
}

static void only_a_large_gap_has_code_with_a_frame_pointer(void **state)
{
	(void)state;
	const uint8_t call[] = {0xe8, 0, 0, 0, 0};
	for (uint64_t bytes = 0xfff0; bytes <= 0x10000; bytes += 0x10) {
		build_module(bytes);
		memcpy(module.bytes + module.gap + 0x1000, call, sizeof(call));
		assert_int_equal(rule_in_module(module.gap + 0x1004),
				 bytes < 0x10000 ? HL_RULE_UNSUPPORTED : HL_RULE_FRAME_POINTER);
		assert_int_equal(rule_in_module(module.gap + 0x2004), HL_RULE_UNSUPPORTED);
	}
}

static void padding_has_the_rule_of_the_function_after_it(void **state)
{
	(void)state;
	const uint8_t padding[] = {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x90};
	build_module(0x20);
	uint8_t *at = module.bytes + module.next - sizeof(padding);
	memcpy(at, padding, sizeof(padding));
	uint64_t offset = module.next - sizeof(padding);
	assert_int_equal(rule_in_module(offset), rule_in_module(module.next));
	assert_int_equal(rule_in_module(offset - 1), HL_RULE_UNSUPPORTED);
	at[3] = 0x05; /* syscall's map: not a nop */
	assert_int_equal(rule_in_module(offset), HL_RULE_UNSUPPORTED);
}

static void a_damaged_search_table_is_an_error(void **state)
{
	(void)state;
	hl_rule rule;
	struct headed headed = build_headed(0x3b);
	headed.builder.bytes[headed.hdr] = 2; /* version */
	assert_int_equal(find_headed(&headed, 0x100, &rule), -EINVAL);
	headed = build_headed(0x3b);
	headed.builder.bytes[headed.hdr + 8] = 4; /* more entries than bytes */
	assert_int_equal(find_headed(&headed, 0x100, &rule), -EINVAL);
	headed = build_headed(0x3b);
	headed.builder.bytes[headed.hdr + 12 + 7] = 0x7f; /* an FDE outside of the module */
	assert_int_equal(find_headed(&headed, 0x100, &rule), -EINVAL);
	headed = build_headed(0x3b);
	headed.builder.size = headed.hdr + 8; /* the module ends within the header */
	assert_int_equal(find_headed(&headed, 0x100, &rule), -EINVAL);
}

static void rows_are_sorted_and_merged(void **state)
{
	(void)state;
	const hl_rule a = HL_RULE_SP | 1 << 24, b = HL_RULE_BP | 2 << 24;
	struct hl_cfi_row rows[] = {
		{30, 0, a},
		{40, 0, HL_RULE_NONE}, /* the third function */
		{10, 0, a},
		{15, 0, b},
		{20, 0, HL_RULE_NONE}, /* the first */
		{20, 0, b},
		{25, 0, b},
		{30, 0, HL_RULE_NONE}, /* the second, beside both */
		{30, 0, b},	       /* what another function says of the third's first byte */
	};
	size_t count = hl_cfi_rows_finish(rows, HL_COUNT_OF(rows));
	const struct hl_cfi_row expected[] = {
		{10, 0, a}, {15, 0, b}, {30, 0, a}, {40, 0, HL_RULE_NONE}};
	assert_int_equal(count, HL_COUNT_OF(expected));
	assert_memory_equal(rows, expected, sizeof(expected));
	assert_int_equal(hl_cfi_rows_find(rows, count, 9), HL_RULE_NONE);
	assert_int_equal(hl_cfi_rows_find(rows, count, 10), a);
	assert_int_equal(hl_cfi_rows_find(rows, count, 29), b);
	assert_int_equal(hl_cfi_rows_find(rows, count, 39), a);
	assert_int_equal(hl_cfi_rows_find(rows, count, UINT32_MAX), HL_RULE_NONE);
	assert_int_equal(hl_cfi_rows_find(rows, 0, 10), HL_RULE_NONE);
	assert_int_equal(hl_cfi_rows_finish(rows, 0), 0);
}

struct row_list {
	struct hl_cfi_row *rows;
	size_t count, capacity;
};

static int add_row(void *context, const struct hl_cfi_row *row)
{
	struct row_list *list = context;

	if (list->count == list->capacity) {
		list->capacity = list->capacity ? list->capacity * 2 : 4096;
		list->rows = realloc(list->rows, list->capacity * sizeof(*list->rows));
		assert_non_null(list->rows);
	}
	list->rows[list->count++] = *row;
	return 0;
}

static int refuse_row(void *context, const struct hl_cfi_row *row)
{
	(void)row;
	return ++*(int *)context == 2 ? 4711 : 0;
}

static void a_sink_can_stop_the_compilation(void **state)
{
	(void)state;
	struct builder builder = one_function(&usual, (const uint8_t[]){0x41, 0x0e, 16}, 3);
	struct hl_cfi_section section = section_of(&builder, false);
	int given = 0;
	assert_int_equal(hl_cfi_compile(&section, 0, refuse_row, &given), 4711);
	assert_int_equal(given, 2);
}

/* As glibc's rawmemchr of aarch64 does, in all static programs. */
static void functions_that_return_by_another_register_hide_no_others(void **state)
{
	(void)state;
	const struct cie_shape other = {.encoding = 0x1b, .return_register = 15};
	struct builder builder = one_function(&other, NULL, 0);
	put_fde(&builder, put_cie(&builder, &usual), &usual, CODE + CODE_SIZE, CODE_SIZE, NULL, 0);
	struct hl_cfi_section section = section_of(&builder, false);
	struct row_list list = {0};
	hl_rule rule = 4711;
	assert_int_equal(hl_cfi_compile(&section, CODE, add_row, &list), 0);
	assert_int_equal(list.count, 2);
	assert_int_equal(list.rows[0].offset, CODE_SIZE);
	assert_int_equal(hl_cfi_find(&section, CODE, &rule), -EINVAL);
	free(list.rows);
}

static void code_outside_of_4_gib_has_no_rows(void **state)
{
	(void)state;
	struct builder builder = one_function(&usual, NULL, 0);
	struct hl_cfi_section section = section_of(&builder, false);
	struct row_list list = {0};
	assert_int_equal(hl_cfi_compile(&section, CODE + CODE_SIZE + 1, add_row, &list), 0);
	assert_int_equal(list.count, 0);
}

/* A section of an ELF file, in memory of its own. */
static struct hl_cfi_section read_section(const char *path, const char *name)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	elf_version(EV_CURRENT);
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	size_t names;
	assert_int_equal(elf_getshdrstrndx(elf, &names), 0);
	struct hl_cfi_section section = {0};
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(elf, scn));) {
		GElf_Shdr header;
		assert_non_null(gelf_getshdr(scn, &header));
		if (strcmp(elf_strptr(elf, names, header.sh_name), name) != 0)
			continue;
		Elf_Data *contents = elf_rawdata(scn, NULL);
		uint8_t *copy = malloc(contents->d_size);
		assert_non_null(copy);
		memcpy(copy, contents->d_buf, contents->d_size);
		section = (struct hl_cfi_section){copy, contents->d_size, header.sh_addr, false, 0};
	}
	elf_end(elf);
	close(fd);
	return section;
}

static struct row_list compile(const struct hl_cfi_section *section, uint64_t base)
{
	struct row_list list = {0};

	assert_int_equal(hl_cfi_compile(section, base, add_row, &list), 0);
	assert_true(list.count > 0);
	list.count = hl_cfi_rows_finish(list.rows, list.count);
	return list;
}

static hl_rule find_in_object(const struct dl_find_object *object, uint64_t pc)
{
	hl_rule rule;
	int error = hl_cfi_find_in_memory(object->dlfo_eh_frame, (uint64_t)object->dlfo_map_start,
					  (uint64_t)object->dlfo_map_end, pc, &rule);

	assert_true(error == 0 || error == -ENOENT);
	return error ? HL_RULE_NONE : rule;
}

/* The file's rows, found by libelf, against lookups in the mapped module, at each row's edges. */
static void check_module(const void *code, const char *path)
{
	struct dl_find_object object;

	assert_int_equal(_dl_find_object((void *)code, &object), 0);
	uint64_t bias = object.dlfo_link_map->l_addr;
	struct hl_cfi_section file = read_section(path, ".eh_frame");
	assert_non_null(file.bytes);
	struct row_list rows = compile(&file, 0);
	for (size_t i = 0; i < rows.count; i++) {
		uint32_t offset = rows.rows[i].offset;
		for (uint32_t at = offset - 1; at != offset + 2; at++)
			assert_int_equal(hl_cfi_rows_find(rows.rows, rows.count, at),
					 find_in_object(&object, bias + at));
	}

	/* In another place they are the same: nothing in them depends on it. */
	struct hl_cfi_section moved = file;
	moved.address += 0x7f0123450000;
	struct row_list moved_rows = compile(&moved, 0x7f0123450000);
	assert_int_equal(moved_rows.count, rows.count);
	assert_memory_equal(moved_rows.rows, rows.rows, rows.count * sizeof(*rows.rows));
	free(moved_rows.rows);
	free(rows.rows);
	free((void *)file.bytes);
}

static void rows_of_the_test_program_equal_lookups_in_memory(void **state)
{
	(void)state;
	check_module((const void *)(uintptr_t)check_module, "/proc/self/exe");
}

static void rows_of_libc_equal_lookups_in_memory(void **state)
{
	(void)state;
	Dl_info info;
	assert_int_not_equal(dladdr((const void *)(uintptr_t)printf, &info), 0);
	check_module((const void *)(uintptr_t)printf, info.dli_fname);
}

static void rows_of_libstdcxx_equal_lookups_in_memory(void **state)
{
	(void)state;
	Dl_info info;
	void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		skip();
	void *symbol = dlsym(library, "__cxa_throw");
	assert_int_not_equal(dladdr(symbol, &info), 0);
	check_module(symbol, info.dli_fname);
	dlclose(library);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_operation_gives_its_rule),
		cmocka_unit_test(set_loc_moves_to_an_address),
		cmocka_unit_test(locations_are_scaled_by_the_code_alignment),
		cmocka_unit_test(the_kernels_signal_frame_is_known),
		cmocka_unit_test(headers_of_every_shape_are_read),
		cmocka_unit_test(absolute_addresses_are_moved_by_the_bias),
		cmocka_unit_test(functions_that_the_linker_left_out_have_no_rules),
		cmocka_unit_test(malformed_information_is_an_error),
		cmocka_unit_test(nothing_is_read_behind_a_section_cut_anywhere),
		cmocka_unit_test(any_flipped_bit_gives_rows_or_an_error),
		cmocka_unit_test(the_search_table_leads_to_the_function),
		cmocka_unit_test(a_gap_ends_where_functions_do),
		cmocka_unit_test(only_a_large_gap_has_code_with_a_frame_pointer),
		cmocka_unit_test(padding_has_the_rule_of_the_function_after_it),
		cmocka_unit_test(a_damaged_search_table_is_an_error),
		cmocka_unit_test(rows_are_sorted_and_merged),
		cmocka_unit_test(a_sink_can_stop_the_compilation),
		cmocka_unit_test(functions_that_return_by_another_register_hide_no_others),
		cmocka_unit_test(code_outside_of_4_gib_has_no_rows),
		cmocka_unit_test(rows_of_the_test_program_equal_lookups_in_memory),
		cmocka_unit_test(rows_of_libc_equal_lookups_in_memory),
		cmocka_unit_test(rows_of_libstdcxx_equal_lookups_in_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
