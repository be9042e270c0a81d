/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of a BEAM: written by libei as nodes of each version shape them, read by heapline. */
#include "base/compiler.h"
#include "guests/beam/connection.h"

#include "fail_allocations.h"
#include "sanitized.h"

#include <ei.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WIDTH 4

/* ---- answers ---- */

/* An answer that is being written; {rex, ...} is around it already. */
static void begin(ei_x_buff *out)
{
	ei_x_new_with_version(out);
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, "rex");
}

/* {ok, {${start}, */
static void begin_ok(ei_x_buff *out, int arity, unsigned long start)
{
	begin(out);
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, "ok");
	ei_x_encode_tuple_header(out, arity);
	ei_x_encode_ulong(out, start);
}

static void put_histogram(ei_x_buff *out, unsigned long first)
{
	ei_x_encode_tuple_header(out, WIDTH);
	for (unsigned long slot = 0; slot < WIDTH; slot++)
		ei_x_encode_ulong(out, slot ? slot : first);
}

static void put_blocks(ei_x_buff *out, const char *type, unsigned long count, unsigned long bytes)
{
	ei_x_encode_tuple_header(out, 3);
	ei_x_encode_atom(out, type);
	ei_x_encode_ulong(out, count);
	ei_x_encode_ulong(out, bytes);
}

/* One that has migrated: there are blocks of two allocators in it. */
static void put_carrier_22(ei_x_buff *out)
{
	ei_x_encode_tuple_header(out, 6);
	ei_x_encode_atom(out, "eheap_alloc");
	ei_x_encode_boolean(out, 1);
	ei_x_encode_ulong(out, 262144);
	ei_x_encode_ulong(out, 4096);
	ei_x_encode_list_header(out, 2);
	put_blocks(out, "eheap_alloc", 3, 1000);
	put_blocks(out, "ets_alloc", 4, 500);
	ei_x_encode_empty_list(out);
	put_histogram(out, 7);
}

/* One for a single block, larger than 4 GiB. */
static void put_single_22(ei_x_buff *out)
{
	ei_x_encode_tuple_header(out, 6);
	ei_x_encode_atom(out, "binary_alloc");
	ei_x_encode_boolean(out, 0);
	ei_x_encode_ulonglong(out, 5ull << 30);
	ei_x_encode_ulong(out, 0);
	ei_x_encode_list_header(out, 1);
	ei_x_encode_tuple_header(out, 3);
	ei_x_encode_atom(out, "binary_alloc");
	ei_x_encode_ulong(out, 1);
	ei_x_encode_ulonglong(out, 5ull << 30);
	ei_x_encode_empty_list(out);
	put_histogram(out, 0);
}

static void put_carrier_21(ei_x_buff *out)
{
	ei_x_encode_tuple_header(out, 7);
	ei_x_encode_atom(out, "eheap_alloc");
	ei_x_encode_ulong(out, 262144);
	ei_x_encode_ulong(out, 4096);
	ei_x_encode_ulong(out, 1500);
	ei_x_encode_ulong(out, 7);
	ei_x_encode_boolean(out, 1);
	put_histogram(out, 7);
}

static ei_x_buff carriers_22(void)
{
	ei_x_buff out;

	begin_ok(&out, 2, 512);
	ei_x_encode_list_header(&out, 2);
	put_carrier_22(&out);
	put_single_22(&out);
	ei_x_encode_empty_list(&out);
	return out;
}

static ei_x_buff carriers_21(void)
{
	ei_x_buff out;

	begin_ok(&out, 2, 512);
	ei_x_encode_list_header(&out, 1);
	put_carrier_21(&out);
	ei_x_encode_empty_list(&out);
	return out;
}

/* What origins can be from OTP 27 on. */
static void put_origins(ei_x_buff *out)
{
	erlang_pid pid = {.node = "n@h", .num = 81, .serial = 2, .creation = 5};
	erlang_port port = {.node = "n@h", .id = 6, .creation = 5};
	erlang_ref reference = {.node = "n@h", .len = 3, .n = {1, 2, 3}, .creation = 5};

	ei_x_encode_atom(out, "system");
	ei_x_encode_map_header(out, 2);
	ei_x_encode_atom(out, "binary");
	put_histogram(out, 100);
	ei_x_encode_atom(out, "driver");
	put_histogram(out, 1);
	ei_x_encode_tuple_header(out, 3);
	ei_x_encode_atom(out, "lists");
	ei_x_encode_atom(out, "map");
	ei_x_encode_ulong(out, 2);
	ei_x_encode_map_header(out, 1);
	ei_x_encode_atom(out, "heap");
	put_histogram(out, 50);
	ei_x_encode_pid(out, &pid);
	ei_x_encode_map_header(out, 1);
	ei_x_encode_atom(out, "heap");
	put_histogram(out, 40);
	ei_x_encode_port(out, &port);
	ei_x_encode_map_header(out, 1);
	ei_x_encode_atom(out, "heap");
	put_histogram(out, 30);
	ei_x_encode_ref(out, &reference);
	ei_x_encode_map_header(out, 0);
}

static ei_x_buff allocations(void)
{
	ei_x_buff out;

	begin_ok(&out, 3, 128);
	ei_x_encode_ulong(&out, 8192);
	ei_x_encode_map_header(&out, 5);
	put_origins(&out);
	return out;
}

static void put_figure(ei_x_buff *out, const char *name, unsigned long now)
{
	ei_x_encode_tuple_header(out, 4);
	ei_x_encode_atom(out, name);
	ei_x_encode_ulong(out, now);
	ei_x_encode_ulong(out, 1000000);
	ei_x_encode_ulong(out, 2000000);
}

/* {blocks, [{Type, [{count, ...}, {size, ...}]}]} of OTP 23 and later. */
static void put_blocks_23(ei_x_buff *out, const char *type, unsigned long count, unsigned long size)
{
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, "blocks");
	ei_x_encode_list_header(out, 1);
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, type);
	ei_x_encode_list_header(out, 2);
	put_figure(out, "count", count);
	put_figure(out, "size", size);
	ei_x_encode_empty_list(out);
	ei_x_encode_empty_list(out);
}

static void put_section_23(ei_x_buff *out, const char *name, unsigned long carriers)
{
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, name);
	ei_x_encode_list_header(out, 3);
	put_blocks_23(out, "ets_alloc", 10 * carriers, 1000 * carriers);
	put_figure(out, "carriers", carriers);
	put_figure(out, "carriers_size", 65536 * carriers);
	ei_x_encode_empty_list(out);
}

static void put_section_21(ei_x_buff *out, const char *name, unsigned long carriers)
{
	ei_x_encode_tuple_header(out, 2);
	ei_x_encode_atom(out, name);
	ei_x_encode_list_header(out, 4);
	put_figure(out, "blocks", 10 * carriers);
	put_figure(out, "blocks_size", 1000 * carriers);
	put_figure(out, "carriers", carriers);
	put_figure(out, "carriers_size", 65536 * carriers);
	ei_x_encode_empty_list(out);
}

/* Of an allocator: [{instance, 3, [{versions, "0.9", "3.0"}, {mbcs, ...}, ...]}] */
static ei_x_buff instances_by(void (*put_section)(ei_x_buff *out, const char *name,
						  unsigned long carriers))
{
	ei_x_buff out;

	begin(&out);
	ei_x_encode_list_header(&out, 1);
	ei_x_encode_tuple_header(&out, 3);
	ei_x_encode_atom(&out, "instance");
	ei_x_encode_ulong(&out, 3);
	ei_x_encode_list_header(&out, 4);
	ei_x_encode_tuple_header(&out, 3);
	ei_x_encode_atom(&out, "versions");
	ei_x_encode_string(&out, "0.9");
	ei_x_encode_string(&out, "3.0");
	put_section(&out, "mbcs", 2);
	put_section(&out, "mbcs_pool", 1);
	put_section(&out, "sbcs", 0); /* has no carriers, and so no row */
	ei_x_encode_empty_list(&out);
	ei_x_encode_empty_list(&out);
	return out;
}

static ei_x_buff instances_23(void)
{
	return instances_by(put_section_23);
}

static ei_x_buff instances_21(void)
{
	return instances_by(put_section_21);
}

static ei_x_buff not_enabled(void)
{
	ei_x_buff out;

	begin(&out);
	ei_x_encode_tuple_header(&out, 2);
	ei_x_encode_atom(&out, "error");
	ei_x_encode_atom(&out, "not_enabled");
	return out;
}

static ei_x_buff badrpc(const char *reason)
{
	ei_x_buff out;

	begin(&out);
	ei_x_encode_tuple_header(&out, 2);
	ei_x_encode_atom(&out, "badrpc");
	ei_x_encode_tuple_header(&out, 2);
	ei_x_encode_atom(&out, "EXIT");
	ei_x_encode_tuple_header(&out, 2);
	ei_x_encode_atom(&out, reason);
	ei_x_encode_empty_list(&out);
	return out;
}

/* ---- reading them ---- */

/* All that one answer can be decoded into. */
struct decoded {
	enum hl_beam_answer answer;
	struct hl_carriers carriers;
	struct hl_allocations allocations;
	struct hl_beam_instances instances;
};

static int decode_carriers(struct hl_term *term, struct decoded *decoded)
{
	return hl_decode_carriers(term, &decoded->carriers);
}

static int decode_allocations(struct hl_term *term, struct decoded *decoded)
{
	return hl_decode_allocations(term, &decoded->allocations);
}

static int decode_instances(struct hl_term *term, struct decoded *decoded)
{
	return hl_decode_instances(term, "ets_alloc", &decoded->instances);
}

typedef int decode(struct hl_term *term, struct decoded *decoded);

static void release(struct decoded *decoded)
{
	hl_carriers_release(&decoded->carriers);
	hl_allocations_release(&decoded->allocations);
	free(decoded->instances.instances);
}

/* ${size} bytes, of which all must have been read when nothing failed. */
static int decode_bytes(const void *bytes, size_t size, decode *run, struct decoded *ret_decoded)
{
	struct hl_term term;

	*ret_decoded = (struct decoded){0};
	int r = hl_term_begin(&term, bytes, size);
	if (r == 0)
		r = hl_decode_reply(&term, &ret_decoded->answer);
	if (r == 0 && ret_decoded->answer == HL_BEAM_VALUE)
		r = run(&term, ret_decoded);
	if (r == 0 && ret_decoded->answer == HL_BEAM_VALUE)
		assert_ptr_equal(term.at, term.end);
	return r;
}

/* Also frees what was written. */
static int decode_answer(ei_x_buff answer, decode *run, struct decoded *ret_decoded)
{
	int r = decode_bytes(answer.buff, (size_t)answer.index, run, ret_decoded);

	ei_x_free(&answer);
	return r;
}

static const struct {
	ei_x_buff (*write)(void);
	decode *run;
} answers[] = {
	{carriers_21, decode_carriers},	   {carriers_22, decode_carriers},
	{allocations, decode_allocations}, {instances_21, decode_instances},
	{instances_23, decode_instances},  {not_enabled, decode_carriers},
};

/* ---- carriers ---- */

static void carriers_of_otp_22_have_blocks_by_type(void **state)
{
	struct decoded decoded;

	(void)state;

	assert_int_equal(decode_answer(carriers_22(), decode_carriers, &decoded), 0);
	assert_int_equal(decoded.carriers.count, 2);
	const struct hl_carrier *carrier = &decoded.carriers.carriers[0];
	assert_string_equal(carrier->allocator, "eheap_alloc");
	assert_string_equal(carrier->type, "mbc");
	assert_true(carrier->in_pool);
	assert_int_equal(carrier->total_bytes, 262144);
	assert_int_equal(carrier->unscanned_bytes, 4096);
	assert_int_equal(carrier->allocated_blocks, 7);
	assert_int_equal(carrier->allocated_bytes, 1500);
	assert_int_equal(carrier->block_kinds, 2);
	assert_string_equal(carrier->blocks[1].type, "ets_alloc");
	assert_int_equal(carrier->blocks[1].bytes, 500);
	assert_int_equal(carrier->free_bytes, 262144 - 1500);
	assert_int_equal(carrier->free_blocks, 7 + 1 + 2 + 3);
	release(&decoded);
}

static void a_carrier_for_a_single_block_is_known_as_such(void **state)
{
	struct decoded decoded;

	(void)state;

	assert_int_equal(decode_answer(carriers_22(), decode_carriers, &decoded), 0);
	const struct hl_carrier *carrier = &decoded.carriers.carriers[1];
	assert_string_equal(carrier->type, "sbc");
	assert_true(carrier->total_bytes == 5ull << 30);
	assert_int_equal(carrier->free_bytes, 0);
	assert_false(carrier->in_pool);
	release(&decoded);
}

static void carriers_of_otp_21_say_the_same_in_another_order(void **state)
{
	struct decoded decoded;

	(void)state;

	assert_int_equal(decode_answer(carriers_21(), decode_carriers, &decoded), 0);
	assert_int_equal(decoded.carriers.count, 1);
	const struct hl_carrier *carrier = &decoded.carriers.carriers[0];
	assert_true(carrier->in_pool);
	assert_int_equal(carrier->total_bytes, 262144);
	assert_int_equal(carrier->unscanned_bytes, 4096);
	assert_int_equal(carrier->allocated_blocks, 7);
	assert_int_equal(carrier->allocated_bytes, 1500);
	assert_int_equal(carrier->block_kinds, 1);
	assert_string_equal(carrier->blocks[0].type, "eheap_alloc");
	release(&decoded);
}

static void slots_of_free_blocks_have_the_bounds_that_erts_counts_by(void **state)
{
	struct decoded decoded;

	(void)state;

	assert_int_equal(decode_answer(carriers_22(), decode_carriers, &decoded), 0);
	const struct hl_log2_shape *shape = &decoded.carriers.shape;
	assert_int_equal(shape->width, WIDTH);
	assert_int_equal(hl_log2_first(shape, 1), 1024);
	assert_int_equal(hl_log2_first(shape, 2), 3072);
	assert_int_equal(hl_log2_end(shape, 2), 7168);
	release(&decoded);
	assert_int_equal(decode_answer(allocations(), decode_allocations, &decoded), 0);
	assert_int_equal(hl_log2_first(&decoded.allocations.shape, 2), 384);
	release(&decoded);
}

/* Of a carrier with ${free_bytes} and one free block, in ${slot}. */
static enum hl_log2_bounds bounds_of(uint64_t free_bytes, uint32_t slot, const char *release,
				     bool *ret_known)
{
	struct hl_carriers carriers = {.shape = {1024, 14, HL_LOG2_LESS_ONE}};
	struct hl_carrier *carrier = hl_carriers_add(&carriers);
	enum hl_log2_bounds bounds;

	assert_non_null(carrier);
	carrier->free_bytes = free_bytes;
	carrier->free_blocks = 1;
	carrier->free_histogram.counts[slot] = 1;
	*ret_known = hl_decode_bounds(&carriers, release, &bounds);
	assert_int_equal(carriers.shape.bounds,
			 bounds == HL_LOG2_HALVES ? HL_LOG2_QUARTERS : HL_LOG2_LESS_ONE);
	hl_carriers_release(&carriers);
	return bounds;
}

/* A free block of 50,000 bytes is in slot 5 by one rule, in slot 7 by the other. */
static void free_bytes_prove_the_bounds_of_slots_whatever_the_release(void **state)
{
	static const char *const given[] = {"25", "26", "29", "31", "?"};
	bool is_known;

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(given); i++) {
		assert_int_equal(bounds_of(50000, 5, given[i], &is_known), HL_LOG2_LESS_ONE);
		assert_true(is_known);
		assert_int_equal(bounds_of(50000 + 200, 7, given[i], &is_known), HL_LOG2_HALVES);
		assert_true(is_known);
	}
	/* Carriers that prove nothing, or fit neither rule. */
	for (uint64_t bytes = 3000; bytes < 1 << 30; bytes += (1 << 30) - 4000) {
		assert_int_equal(bounds_of(bytes, 1, "25", &is_known), HL_LOG2_LESS_ONE);
		assert_true(is_known);
		assert_int_equal(bounds_of(bytes, 1, "28", &is_known), HL_LOG2_HALVES);
		assert_true(is_known);
		assert_int_equal(bounds_of(bytes, 1, "31", &is_known), HL_LOG2_HALVES);
		assert_false(is_known);
	}
}

static void blocks_of_more_types_than_there_is_room_for_are_summed(void **state)
{
	struct decoded decoded;
	ei_x_buff out;
	char type[32];

	(void)state;

	begin_ok(&out, 2, 512);
	ei_x_encode_list_header(&out, 1);
	ei_x_encode_tuple_header(&out, 6);
	ei_x_encode_atom(&out, "x_alloc");
	ei_x_encode_boolean(&out, 0);
	ei_x_encode_ulong(&out, 1 << 20);
	ei_x_encode_ulong(&out, 0);
	ei_x_encode_list_header(&out, 20);
	for (int i = 0; i < 20; i++) {
		snprintf(type, sizeof(type), "type%d", i);
		put_blocks(&out, type, 1, 10);
	}
	ei_x_encode_empty_list(&out);
	put_histogram(&out, 0);
	ei_x_encode_empty_list(&out);
	assert_int_equal(decode_answer(out, decode_carriers, &decoded), 0);
	const struct hl_carrier *carrier = &decoded.carriers.carriers[0];
	assert_int_equal(carrier->block_kinds, HL_CARRIER_BLOCKS_MAX);
	assert_int_equal(carrier->allocated_blocks, 20);
	assert_string_equal(carrier->blocks[HL_CARRIER_BLOCKS_MAX - 1].type, "others");
	assert_int_equal(carrier->blocks[HL_CARRIER_BLOCKS_MAX - 1].count,
			 20 - HL_CARRIER_BLOCKS_MAX + 1);
	release(&decoded);
}

/* ---- allocations ---- */

static void assert_row(const struct hl_allocations *found, size_t row, const char *origin,
		       const char *type, uint64_t blocks)
{
	assert_true(row < found->count);
	assert_string_equal(hl_strings_text(&found->names, found->rows[row].origin), origin);
	assert_string_equal(hl_strings_text(&found->names, found->rows[row].type), type);
	assert_int_equal(found->rows[row].blocks, blocks);
}

static void origins_of_every_kind_are_named_as_the_shell_does(void **state)
{
	struct decoded decoded;

	(void)state;

	assert_int_equal(decode_answer(allocations(), decode_allocations, &decoded), 0);
	assert_int_equal(decoded.allocations.count, 5);
	assert_int_equal(decoded.allocations.unscanned_bytes, 8192);
	assert_row(&decoded.allocations, 0, "system", "binary", 106);
	assert_row(&decoded.allocations, 1, "lists:map/2", "heap", 56);
	assert_row(&decoded.allocations, 2, "<0.81.2>", "heap", 46);
	assert_row(&decoded.allocations, 3, "#Port<0.6>", "heap", 36);
	assert_row(&decoded.allocations, 4, "system", "driver", 7);
	release(&decoded);
}

static void without_tags_there_are_no_rows(void **state)
{
	struct decoded decoded;
	ei_x_buff out;

	(void)state;

	begin_ok(&out, 3, 128);
	ei_x_encode_ulong(&out, 0);
	ei_x_encode_map_header(&out, 0);
	assert_int_equal(decode_answer(out, decode_allocations, &decoded), 0);
	assert_int_equal(decoded.allocations.count, 0);
	release(&decoded);
}

/* ---- instances ---- */

static void assert_instances(const struct hl_beam_instances *found)
{
	assert_int_equal(found->count, 2);
	for (size_t i = 0; i < 2; i++) {
		const struct hl_beam_instance *instance = &found->instances[i];
		assert_string_equal(instance->allocator, "ets_alloc");
		assert_string_equal(instance->type, "mbc");
		assert_int_equal(instance->number, 3);
		assert_int_equal(instance->in_pool, i == 1);
		assert_int_equal(instance->carriers, 2 - i);
		assert_int_equal(instance->total_bytes, 65536 * (2 - i));
		assert_int_equal(instance->allocated_blocks, 10 * (2 - i));
		assert_int_equal(instance->allocated_bytes, 1000 * (2 - i));
	}
}

static void sums_of_instances_are_the_present_ones_in_both_shapes(void **state)
{
	struct decoded decoded;

	(void)state;

	assert_int_equal(decode_answer(instances_21(), decode_instances, &decoded), 0);
	assert_instances(&decoded.instances);
	release(&decoded);
	assert_int_equal(decode_answer(instances_23(), decode_instances, &decoded), 0);
	assert_instances(&decoded.instances);
	release(&decoded);
}

static void an_allocator_that_is_not_enabled_has_no_instances(void **state)
{
	struct decoded decoded;
	ei_x_buff out;

	(void)state;

	begin(&out);
	ei_x_encode_boolean(&out, 0);
	assert_int_equal(decode_answer(out, decode_instances, &decoded), 0);
	assert_int_equal(decoded.instances.count, 0);
}

/* ---- failures that nodes tell ---- */

static void failures_on_the_node_are_told_apart(void **state)
{
	static const struct {
		const char *reason;
		enum hl_beam_answer answer;
	} reasons[] = {
		{"undef", HL_BEAM_UNDEFINED},
		{"badarg", HL_BEAM_BAD_ARGUMENT},
		{"function_clause", HL_BEAM_BAD_ARGUMENT},
		{"system_limit", HL_BEAM_FAILED},
	};
	struct decoded decoded;

	(void)state;

	for (size_t i = 0; i < HL_COUNT_OF(reasons); i++) {
		assert_int_equal(
			decode_answer(badrpc(reasons[i].reason), decode_carriers, &decoded), 0);
		assert_int_equal(decoded.answer, reasons[i].answer);
	}
	assert_int_equal(decode_answer(not_enabled(), decode_carriers, &decoded), -ENODATA);
	assert_int_equal(decode_answer(not_enabled(), decode_allocations, &decoded), -ENODATA);
}

/* ---- answers that are wrong ---- */

/* Bytes that end where their memory does, so that sanitizers see a read after them. */
static int decode_copy(const char *bytes, size_t size, decode *run)
{
	struct decoded decoded;
	char *copy = malloc(size ? size : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, size);
	int r = decode_bytes(copy, size, run, &decoded);
	release(&decoded);
	free(copy);
	return r;
}

static void an_answer_that_is_cut_off_anywhere_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(answers); i++) {
		ei_x_buff answer = answers[i].write();
		for (size_t size = 0; size < (size_t)answer.index; size += STRIDE(1))
			assert_int_equal(decode_copy(answer.buff, size, answers[i].run), -EBADMSG);
		ei_x_free(&answer);
	}
}

static void an_answer_with_any_byte_changed_does_no_harm(void **state)
{
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(answers); i++) {
		ei_x_buff answer = answers[i].write();
		for (int at = 0; at < answer.index; at += STRIDE(1))
			for (int bit = 0; bit < 8; bit++) {
				answer.buff[at] = (char)(answer.buff[at] ^ (1 << bit));
				/* A trailing term that is no longer part of it is seen by the
				 * assertion in decode_bytes(), which is for whole answers. */
				struct hl_term term;
				struct decoded decoded = {0};
				if (hl_term_begin(&term, answer.buff, (size_t)answer.index) == 0 &&
				    hl_decode_reply(&term, &decoded.answer) == 0)
					answers[i].run(&term, &decoded);
				release(&decoded);
				answer.buff[at] = (char)(answer.buff[at] ^ (1 << bit));
			}
		ei_x_free(&answer);
	}
}

static void put_carrier_with_width(ei_x_buff *out, int width)
{
	ei_x_encode_tuple_header(out, 6);
	ei_x_encode_atom(out, "x_alloc");
	ei_x_encode_boolean(out, 0);
	ei_x_encode_ulong(out, 1);
	ei_x_encode_ulong(out, 0);
	ei_x_encode_empty_list(out);
	ei_x_encode_tuple_header(out, width);
	for (int slot = 0; slot < width; slot++)
		ei_x_encode_ulong(out, 0);
}

static int decode_widths(unsigned long start, int first, int second)
{
	struct decoded decoded;
	ei_x_buff out;

	begin_ok(&out, 2, start);
	ei_x_encode_list_header(&out, 2);
	put_carrier_with_width(&out, first);
	put_carrier_with_width(&out, second);
	ei_x_encode_empty_list(&out);
	int r = decode_answer(out, decode_carriers, &decoded);
	release(&decoded);
	return r;
}

static void histograms_that_no_option_can_ask_for_are_refused(void **state)
{
	(void)state;
	assert_int_equal(decode_widths(1, 32, 32), 0);
	assert_int_equal(decode_widths(1, 33, 33), -EBADMSG);
	assert_int_equal(decode_widths(1, 0, 0), -EBADMSG);
	assert_int_equal(decode_widths(1, 14, 13), -EBADMSG);
	assert_int_equal(decode_widths(0, 14, 14), -EBADMSG);
	assert_int_equal(decode_widths(1 << 28, 14, 14), 0);
	assert_int_equal(decode_widths((1 << 28) + 1, 14, 14), -EBADMSG);
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(answers); i++) {
		ei_x_buff answer = answers[i].write();
		struct decoded decoded;
		int expected =
			decode_bytes(answer.buff, (size_t)answer.index, answers[i].run, &decoded);
		release(&decoded);
		if (expected == 0)
			FOR_EACH_FAILING_ALLOCATION(r,
						    decode_bytes(answer.buff, (size_t)answer.index,
								 answers[i].run, &decoded))
			{
				assert_int_equal(r, -ENOMEM);
				release(&decoded);
			}
		release(&decoded);
		ei_x_free(&answer);
	}
}

/* ---- terms ---- */

static struct hl_term term_of(const ei_x_buff *bytes)
{
	struct hl_term term;

	assert_int_equal(hl_term_begin(&term, bytes->buff, (size_t)bytes->index), 0);
	return term;
}

static void put_others(ei_x_buff *out)
{
	erlang_pid pid = {.node = "n@h", .num = 1, .serial = 2, .creation = 3};
	erlang_port port = {.node = "n@h", .id = 0x123456789abull, .creation = 3};
	erlang_ref reference = {.node = "n@h", .len = 3, .n = {1, 2, 3}, .creation = 4};
	erlang_fun export = {.type = EI_FUN_EXPORT,
			     .arity = 1,
			     .module = "m",
			     .u.exprt = {.func = (char[]){"f"}, .func_allocated = 0}};

	ei_x_encode_list_header(out, 10);
	ei_x_encode_double(out, 1.5);
	ei_x_encode_longlong(out, INT64_MIN);
	ei_x_encode_long(out, -5);
	ei_x_encode_binary(out, "\0\1\2", 3);
	ei_x_encode_bitstring(out, "\xff\xff", 0, 13);
	ei_x_encode_pid(out, &pid);
	ei_x_encode_port(out, &port);
	ei_x_encode_ref(out, &reference);
	ei_x_encode_fun(out, &export);
	ei_x_encode_string(out, "text");
	ei_x_encode_empty_list(out);
}

static void terms_of_every_kind_can_be_skipped(void **state)
{
	ei_x_buff out;

	(void)state;

	ei_x_new_with_version(&out);
	put_others(&out);
	struct hl_term term = term_of(&out);
	assert_int_equal(hl_term_skip(&term), 0);
	assert_ptr_equal(term.at, term.end);
	for (int size = 1; size < out.index; size++) {
		term = (struct hl_term){(uint8_t *)out.buff + 1, (uint8_t *)out.buff + size};
		assert_int_equal(hl_term_skip(&term), -EBADMSG);
	}
	ei_x_free(&out);
}

static void terms_of_any_depth_can_be_skipped(void **state)
{
	enum { DEPTH = 1000000 };
	ei_x_buff out;

	(void)state;

	ei_x_new_with_version(&out);
	for (int i = 0; i < DEPTH; i++)
		ei_x_encode_tuple_header(&out, 1);
	ei_x_encode_empty_list(&out);
	struct hl_term term = term_of(&out);
	assert_int_equal(hl_term_skip(&term), 0);
	assert_ptr_equal(term.at, term.end);
	ei_x_free(&out);
}

static void only_numbers_from_0_up_are_taken(void **state)
{
	uint64_t number = 42;
	ei_x_buff out;

	(void)state;

	ei_x_new_with_version(&out);
	ei_x_encode_long(&out, -1);
	struct hl_term term = term_of(&out), before = term;
	assert_int_equal(hl_term_unsigned(&term, &number), -EBADMSG);
	ei_x_free(&out);
	ei_x_new_with_version(&out);
	ei_x_encode_longlong(&out, -(1ll << 40));
	term = term_of(&out);
	assert_int_equal(hl_term_unsigned(&term, &number), -EBADMSG);
	ei_x_free(&out);
	assert_int_equal(number, 42);
	ei_x_new_with_version(&out);
	ei_x_encode_ulonglong(&out, UINT64_MAX);
	term = before = term_of(&out);
	assert_int_equal(hl_term_unsigned(&term, &number), 0);
	assert_true(number == UINT64_MAX);
	assert_true(term.at > before.at);
	ei_x_free(&out);
}

static void atoms_become_utf_8_and_are_cut_between_letters(void **state)
{
	char text[16];
	ei_x_buff out;

	(void)state;

	ei_x_new_with_version(&out);
	ei_x_encode_atom_as(&out, "\xe9t\xe9", ERLANG_LATIN1, ERLANG_LATIN1);
	struct hl_term term = term_of(&out);
	assert_int_equal(hl_term_atom(&term, text, sizeof(text)), 0);
	assert_string_equal(text, "\xc3\xa9t\xc3\xa9");
	ei_x_free(&out);
	ei_x_new_with_version(&out);
	ei_x_encode_atom_as(&out, "a\xc3\xa9z", ERLANG_UTF8, ERLANG_UTF8);
	term = term_of(&out);
	assert_int_equal(hl_term_atom(&term, text, 3), 0);
	assert_string_equal(text, "a");
	ei_x_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(carriers_of_otp_22_have_blocks_by_type),
		cmocka_unit_test(a_carrier_for_a_single_block_is_known_as_such),
		cmocka_unit_test(carriers_of_otp_21_say_the_same_in_another_order),
		cmocka_unit_test(slots_of_free_blocks_have_the_bounds_that_erts_counts_by),
		cmocka_unit_test(free_bytes_prove_the_bounds_of_slots_whatever_the_release),
		cmocka_unit_test(blocks_of_more_types_than_there_is_room_for_are_summed),
		cmocka_unit_test(origins_of_every_kind_are_named_as_the_shell_does),
		cmocka_unit_test(without_tags_there_are_no_rows),
		cmocka_unit_test(sums_of_instances_are_the_present_ones_in_both_shapes),
		cmocka_unit_test(an_allocator_that_is_not_enabled_has_no_instances),
		cmocka_unit_test(failures_on_the_node_are_told_apart),
		cmocka_unit_test(an_answer_that_is_cut_off_anywhere_is_refused),
		cmocka_unit_test(an_answer_with_any_byte_changed_does_no_harm),
		cmocka_unit_test(histograms_that_no_option_can_ask_for_are_refused),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(terms_of_every_kind_can_be_skipped),
		cmocka_unit_test(terms_of_any_depth_can_be_skipped),
		cmocka_unit_test(only_numbers_from_0_up_are_taken),
		cmocka_unit_test(atoms_become_utf_8_and_are_cut_between_letters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
