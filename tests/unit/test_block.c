/* SPDX-License-Identifier: BSD-2-Clause */
/* Block tables, in both forms, against a simple model. */
#include "recorder/block.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Stands in for the system: refuses private memory on demand. */
static bool refuse;
void *__real_hl_private_map_new_whole(size_t bytes);
void *__wrap_hl_private_map_new_whole(size_t bytes);
void *__wrap_hl_private_map_new_whole(size_t bytes)
{
	return refuse ? NULL : __real_hl_private_map_new_whole(bytes);
}

#define PLACES 4096u
#define ROUNDS 400000u

struct model_block {
	struct hl_block block; /* node 0: not allocated */
	uint64_t usable;
};

static const uint64_t sizes[] = {0, 1, 24, 1000, UINT64_C(1) << 33, UINT64_C(1) << 41};

/* Addresses far apart and close together: pairs in one granule, of which some are not aligned to 16. */
static const void *address_of(uintptr_t base, uint32_t place)
{
	return (const void *)(base + place / 2 * UINT64_C(64) + place % 2 * UINT64_C(16) +
			      (place % 7 == 0 ? 8 : 0) +
			      (uint64_t)(place / 2 % 5) * (UINT64_C(1) << 30));
}

/* Which form of the table takes blocks; BOTH: now the one, now the other. */
enum form { HASH, ARRAY, BOTH, FORM_COUNT };

static void init(struct hl_block_table *table, enum form form)
{
	assert_true(hl_block_table_init(table));
	if (form == ARRAY)
		assert_non_null(hl_block_table_add_array(table));
}

static void step(struct hl_block_table *table, enum form form, struct model_block *model,
		 uintptr_t base, unsigned *seed)
{
	uint32_t place = (uint32_t)rand_r(seed) % PLACES;
	struct model_block *it = &model[place];
	const void *address = address_of(base, place);

	if (!it->block.node) {
		it->block.node = 1 + (uint32_t)rand_r(seed) % 0xffffff;
		it->block.draw = form == HASH ? (uint32_t)rand_r(seed) >> (31 - HL_DRAW_BITS) : 0;
		it->block.requested = sizes[(uint32_t)rand_r(seed) % 6];
		it->usable = it->block.requested + (uint64_t)rand_r(seed) % 401;
		struct hl_block_stale stale = HL_BLOCK_NOT_STALE;
		bool in_array = form == ARRAY || (form == BOTH && rand_r(seed) % 2);
		if (!hl_block_set(table, in_array, address, it->block, it->usable, &stale))
			abort();
		return;
	}
	struct hl_block found;
	if (!hl_block_may_hold(table, address) ||
	    !hl_block_take(table, address, it->usable, &found) || found.node != it->block.node ||
	    found.requested != it->block.requested ||
	    hl_block_take(table, address, it->usable, &found))
		abort();
	it->block.node = 0;
}

static void agree_with_model(enum form form)
{
	struct hl_block_table table;
	struct model_block *model = calloc(PLACES, sizeof(*model));
	unsigned seed = 11;

	init(&table, form);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		/* There are blocks in the hash when the array comes. */
		if (form == BOTH && i == ROUNDS / 3)
			assert_non_null(hl_block_table_add_array(&table));
		step(&table, form, model, 0x10000, &seed);
	}
	free(model);
}

static void the_array_agrees_with_the_model(void **state)
{
	(void)state;
	agree_with_model(ARRAY);
}

static void the_hash_agrees_with_the_model(void **state)
{
	(void)state;
	agree_with_model(HASH);
}

static void both_forms_at_once_agree_with_the_model(void **state)
{
	(void)state;
	agree_with_model(BOTH);
}

/* What was freed unseen must not be found instead of what is there now. */
static void a_stale_entry_of_the_other_form_is_replaced(void **state)
{
	(void)state;
	struct hl_block_table table;
	const struct hl_block stale = {.node = 7, .requested = 100},
			      fresh = {.node = 8, .requested = 90};
	struct hl_block found;
	init(&table, ARRAY);
	for (int i = 0; i < 2; i++) {
		struct hl_block_stale before = HL_BLOCK_NOT_STALE;
		assert_true(hl_block_set(&table, i, (void *)0x1000, stale, 104, &before));
		assert_true(hl_block_set(&table, !i, (void *)0x1000, fresh, 104, &before));
		assert_true(hl_block_take(&table, (void *)0x1000, 104, &found));
		assert_int_equal(found.node, fresh.node);
		assert_int_equal(found.requested, fresh.requested);
	}
}

static void set_object(struct hl_block_table *table, uintptr_t address, uint32_t node,
		       uint64_t requested)
{
	hl_block_entry *entry = hl_block_entry_make(table, (void *)address);

	assert_non_null(entry);
	assert_true(hl_block_object_set(table, entry, (void *)address, node, requested));
}

/* What is known of it: the array has its slack, the hash its size; with both, or with an object, all is. */
static void what_is_replaced_is_handed_back(void **state)
{
	(void)state;
	struct hl_block_table table;
	const struct hl_block block = {.node = 7, .requested = 100};
	struct hl_block_stale stale = HL_BLOCK_NOT_STALE;
	const void *address = (void *)0x1000;
	init(&table, ARRAY);
	assert_true(hl_block_set(&table, true, address, block, 104, &stale));
	assert_int_equal(stale.block.node, 0);
	stale = (struct hl_block_stale)HL_BLOCK_NOT_STALE;
	assert_true(hl_block_set(&table, true, address, block, 1000, &stale));
	assert_int_equal(stale.block.node, 7);
	assert_int_equal(stale.block.requested, HL_BLOCK_UNKNOWN);
	assert_int_equal(stale.slack, 4);
	stale = (struct hl_block_stale)HL_BLOCK_NOT_STALE;
	assert_true(hl_block_set(&table, false, address, block, 104, &stale));
	assert_int_equal(stale.block.requested, 100);
	assert_int_equal(stale.slack, HL_BLOCK_UNKNOWN);
	stale = (struct hl_block_stale)HL_BLOCK_NOT_STALE;
	assert_true(hl_block_set(&table, false, address, block, 104, &stale));
	assert_int_equal(stale.block.requested, 100);
	set_object(&table, 0x2000, 9, 20);
	stale = (struct hl_block_stale)HL_BLOCK_NOT_STALE;
	assert_true(hl_block_set(&table, true, (void *)0x2000, block, 104, &stale));
	assert_int_equal(stale.block.node, 9);
	assert_int_equal(stale.block.requested, 20);
	assert_int_equal(stale.slack, 12);
}

static void set_block(struct hl_block_table *table, uintptr_t address, struct hl_block block,
		      struct hl_block_stale *stale)
{
	*stale = (struct hl_block_stale)HL_BLOCK_NOT_STALE;
	assert_true(hl_block_set(table, true, (void *)address, block, block.requested + 3, stale));
}

static void expect_block(struct hl_block_table *table, uintptr_t address, struct hl_block block)
{
	struct hl_block found;

	assert_int_equal(hl_block_node(table, (void *)address), block.node);
	assert_true(hl_block_may_hold(table, (void *)address));
	assert_true(hl_block_take(table, (void *)address, block.requested + 3, &found));
	assert_int_equal(found.node, block.node);
	assert_int_equal(found.requested, block.requested);
	assert_false(hl_block_may_hold(table, (void *)address));
	assert_false(hl_block_take(table, (void *)address, 16, &found));
}

static void two_blocks_in_one_granule_are_told_apart(void **state)
{
	(void)state;
	struct hl_block_table table;
	const struct hl_block lower = {.node = 7, .requested = 9}, upper = {.node = 8};
	struct hl_block_stale stale;
	init(&table, ARRAY);
	for (int order = 0; order < 4; order++) {
		set_block(&table, 0x1000, lower, &stale);
		assert_false(hl_block_may_hold(&table, (void *)0x1010));
		set_block(&table, 0x1010, upper, &stale);
		assert_int_equal(stale.block.node, 0);
		expect_block(&table, order & 1 ? 0x1000 : 0x1010, order & 1 ? lower : upper);
		/* What came first may have gone when the second one is looked for. */
		if (order & 2)
			set_block(&table, order & 1 ? 0x1000 : 0x1010, order & 1 ? lower : upper,
				  &stale);
		expect_block(&table, order & 1 ? 0x1010 : 0x1000, order & 1 ? upper : lower);
		if (order & 2)
			expect_block(&table, order & 1 ? 0x1000 : 0x1010,
				     order & 1 ? lower : upper);
	}
	/* A stale one in the second plane is found, whichever takes its place. */
	set_block(&table, 0x1000, lower, &stale);
	set_block(&table, 0x1010, upper, &stale);
	expect_block(&table, 0x1000, lower);
	set_block(&table, 0x1010, lower, &stale);
	assert_int_equal(stale.block.node, upper.node);
	assert_int_equal(stale.slack, 3);
	expect_block(&table, 0x1010, lower);
}

static void objects_in_one_granule_keep_their_sizes(void **state)
{
	(void)state;
	struct hl_block_table table;
	struct hl_block found;
	init(&table, ARRAY);
	for (uint64_t size = 1; size <= HL_BLOCK_OBJECT_BYTES_MAX; size++) {
		uint64_t other = 1 + size % 16;
		uint32_t node = (uint32_t)size;
		assert_true(hl_block_holds_object(size));
		if (size > 16) {
			set_object(&table, 0x2000, node, size);
		} else { /* the last one is there: stale, so the next goes into the other plane */
			set_object(&table, 0x2010, node, other);
			set_object(&table, 0x2000, node + 1, size);
			assert_true(hl_block_take(&table, (void *)0x2010, 0, &found));
			assert_int_equal(found.node, node);
			assert_int_equal(found.requested, other);
			node++;
		}
		assert_false(hl_block_may_hold(&table, (void *)0x2010));
		hl_block_entry *entry = hl_block_entry_find(&table, (void *)0x2000);
		assert_non_null(entry);
		assert_true(hl_block_take_object(&table, (void *)0x2000, &found));
		assert_int_equal(found.node, node);
		assert_int_equal(found.requested, size);
	}
	assert_false(hl_block_holds_object(0));
	assert_false(hl_block_holds_object(HL_BLOCK_OBJECT_BYTES_MAX + 1));
}

/* Lua's states have theirs marked: it is in the hash from then on, and no other block has its word. */
static void a_marked_block_keeps_its_word_in_either_plane(void **state)
{
	(void)state;
	struct hl_block_table table;
	const struct hl_block lower = {.node = 7, .requested = 9},
			      upper = {.node = 8, .requested = 900};
	struct hl_block_stale stale;
	init(&table, ARRAY);
	set_block(&table, 0x1000, lower, &stale);
	set_block(&table, 0x1010, upper, &stale);
	hl_block_entry *entry = hl_block_entry_find(&table, (void *)0x1010);
	assert_ptr_not_equal(entry, hl_block_entry_at(&table, (void *)0x1010));
	uint32_t mark = hl_block_mark(&table, (void *)0x1010, entry, 903);
	expect_block(&table, 0x1000, lower);
	assert_int_equal(atomic_load(entry), mark);
	expect_block(&table, 0x1010, upper);
	assert_int_not_equal(atomic_load(entry), mark);
	set_block(&table, 0x1010, upper, &stale);
	assert_int_not_equal(atomic_load(entry), mark);
}

struct worker {
	struct hl_block_table *table;
	enum form form;
	uintptr_t base;
};

static void *work(void *argument)
{
	const struct worker *worker = argument;
	struct model_block *model = calloc(PLACES, sizeof(*model));
	unsigned seed = (unsigned)worker->base;

	for (uint32_t i = 0; i < ROUNDS / 4; i++)
		step(worker->table, worker->form, model, worker->base, &seed);
	free(model);
	return NULL;
}

static void threads_with_blocks_of_their_own_do_not_disturb_each_other(void **state)
{
	(void)state;
	for (enum form form = 0; form < FORM_COUNT; form++) {
		struct hl_block_table table;
		struct worker workers[4];
		pthread_t threads[4];
		init(&table, form);
		if (form == BOTH)
			assert_non_null(hl_block_table_add_array(&table));
		for (uintptr_t i = 0; i < 4; i++) {
			workers[i] = (struct worker){&table, form, 0x10000 + i * PLACES * 32};
			assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
		}
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
}

static void a_block_that_is_not_there_is_not_called_busy(void **state)
{
	(void)state;
	struct hl_block_table table;
	struct hl_block block = {.node = 7, .requested = 100}, found;
	struct hl_block_stale stale = HL_BLOCK_NOT_STALE;
	bool busy = true;
	init(&table, HASH);
	assert_true(hl_block_set(&table, false, (void *)0x1000, block, 104, &stale));
	assert_false(hl_block_try_take(&table, (void *)0x2000, 104, &found, &busy));
	assert_false(busy);
	assert_true(hl_block_try_take(&table, (void *)0x1000, 104, &found, &busy));
	assert_false(busy);
	assert_int_equal(found.requested, 100);
}

/* What is refused is unknown when it is freed: one that was hit is in the hash, whether or not the array can say so. */
static void without_memory_for_the_array_what_is_kept_is_found(void **state)
{
	(void)state;
	struct hl_block_table table;
	struct hl_block block = {.node = 7, .requested = 100}, found;
	struct hl_block_stale stale = HL_BLOCK_NOT_STALE;

	init(&table, BOTH);
	assert_non_null(hl_block_table_add_array(&table));
	for (uintptr_t i = 1; i < 1000; i++) /* each shard of the hash has room */
		assert_true(hl_block_set(&table, false, (void *)(i << 12), block, 104, &stale));
	refuse = true;
	for (uint32_t draw = 0; draw < 2; draw++) {
		const void *address = (const void *)(UINT64_C(0x7f0000001000));
		block.draw = draw;
		bool kept = hl_block_set(&table, true, address, block, 104, &stale);
		assert_int_equal(kept, hl_block_take(&table, address, 104, &found));
	}
	refuse = false;
}

static void without_memory_a_full_hash_refuses_and_keeps_what_it_has(void **state)
{
	(void)state;
	struct hl_block_hash *hash = hl_block_hash_new();
	bool kept[100000] = {false};
	bool refused = false;
	for (uint32_t i = 1; i < 100000; i++) {
		refuse = i > 20000;
		kept[i] = hl_block_hash_set(hash, i * UINT64_C(16),
					    (struct hl_block){.node = i, .requested = i}, NULL);
		assert_true(kept[i] || refuse);
		refused |= !kept[i];
	}
	refuse = false;
	assert_true(refused);
	for (uint32_t i = 1; i < 100000; i++) {
		struct hl_block found = {.node = 0};
		assert_int_equal(hl_block_hash_take(hash, i * UINT64_C(16), &found, NULL), kept[i]);
		assert_int_equal(found.node, kept[i] ? i : 0);
	}
}

static void without_memory_for_a_leaf_the_array_refuses(void **state)
{
	(void)state;
	struct hl_block_array *array = hl_block_array_new();
	refuse = true;
	assert_false(hl_block_array_set(array, 0x12340, 5));
	assert_int_equal(hl_block_array_take(array, 0x12340), 0);
	refuse = false;
	assert_true(hl_block_array_set(array, 0x12340, 5));
	refuse = true;
	assert_false(hl_block_array_set(array, 0x12350, 6));
	refuse = false;
	assert_true(hl_block_array_set(array, 0x12350, 6));
	assert_int_equal(hl_block_array_take(array, 0x12340), 5);
	assert_int_equal(hl_block_array_take(array, 0x12350), 6);
}

#define PIECE_SPAN (UINT64_C(3) << 18) /* across pages of bits */

static bool is_piece(const bool *pieces, uintptr_t base, uintptr_t start, uintptr_t end)
{
	for (uintptr_t at = start; at < end; at++)
		if (pieces[at - base])
			return true;
	return false;
}

static void pieces_of_a_range_are_taken_and_no_others(void **state)
{
	(void)state;
	struct hl_block_table table;
	static bool pieces[PIECE_SPAN];
	uintptr_t base = UINT64_C(0x7ffe3ffe0000), piece; /* across leaves */
	struct hl_block block;
	unsigned seed = 7;

	init(&table, HASH);
	for (int i = 0; i < 20000; i++) {
		uint32_t place = (uint32_t)rand_r(&seed) % PIECE_SPAN;
		const void *address = (const void *)(base + place);
		pieces[place] = true;
		assert_true(hl_block_note_piece(&table, address, 0, 0));
		assert_true(hl_block_hash_set(table.hash, (uintptr_t)hl_block_ruled_key(address),
					      (struct hl_block){.node = 1 + place}, NULL));
	}
	for (int i = 0; i < 3000; i++) {
		uintptr_t start = base + (uint32_t)rand_r(&seed) % PIECE_SPAN;
		uintptr_t end = start + (uint32_t)rand_r(&seed) % (i % 2 ? 20 : 3000), at = start;
		end = end > base + PIECE_SPAN ? base + PIECE_SPAN : end;
		while (hl_block_take_piece(&table, &at, end, &piece, &block)) {
			assert_true(piece >= start && piece < end && pieces[piece - base]);
			assert_int_equal(block.node, 1 + (piece - base));
			pieces[piece - base] = false;
		}
		assert_false(is_piece(pieces, base, start, end));
	}
	for (uintptr_t at = base;
	     hl_block_take_piece(&table, &at, base + PIECE_SPAN, &piece, &block);)
		pieces[piece - base] = false;
	assert_false(is_piece(pieces, base, base, base + PIECE_SPAN));
}

static void without_memory_for_a_map_no_piece_is_noted(void **state)
{
	(void)state;
	struct hl_block_table table;
	uintptr_t at = 4096, piece;
	struct hl_block block;

	init(&table, HASH);
	refuse = true;
	assert_false(hl_block_note_piece(&table, (const void *)at, 0, 0));
	assert_false(hl_block_take_piece(&table, &at, 8192, &piece, &block));
	refuse = false;
	assert_true(hl_block_note_piece(&table, (const void *)at, 0, 0));
}

static void cut(struct hl_block_table *table, uintptr_t at, uint32_t pool, uintptr_t user)
{
	const void *key = hl_block_ruled_key((const void *)at);

	assert_true(hl_block_note_piece(table, (const void *)at, pool, user));
	assert_true(hl_block_hash_set(table->hash, (uintptr_t)key,
				      (struct hl_block){.node = pool + 1}, NULL));
}

/* How many pieces ended. */
static int reset(struct hl_block_table *table, uint32_t pool, uintptr_t user)
{
	uintptr_t at = 0, piece;
	struct hl_block block;
	int count = 0;

	for (; hl_block_take_piece_of_pool(table, pool, user, &at, &piece, &block); count++)
		assert_int_equal(block.node, pool + 1);
	return count;
}

static void a_pool_that_is_reset_loses_its_pieces_and_no_others(void **state)
{
	(void)state;
	struct hl_block_table table;
	uintptr_t base = UINT64_C(0x7ffe3ffe0000); /* to the next leaf */
	const void *moved;
	struct hl_block block;

	init(&table, HASH);
	assert_int_equal(reset(&table, 1, 7), 0);
	for (uintptr_t i = 0; i < 30000; i++)
		cut(&table, base + 24 * i, (uint32_t)(i % 3), 7);
	/* Freed by itself, and given to another pool. */
	moved = hl_block_ruled_key((const void *)(base + 24));
	assert_true(hl_block_take(&table, moved, 0, &block));
	cut(&table, base + 24, 2, 7);
	assert_int_equal(reset(&table, 1, 7), 9999);
	assert_int_equal(reset(&table, 1, 7), 0);
	cut(&table, base + 72, 1, 8);
	assert_int_equal(reset(&table, 1, 7), 0);
	assert_int_equal(reset(&table, 1, 8), 1);
	assert_int_equal(reset(&table, 2, 7), 10001);
	assert_int_equal(hl_block_node(&table, (const void *)base), 1);
	/* Whose pieces these are is not known. */
	cut(&table, base + 24, 1, 7);
	cut(&table, base + 48, 1, 8);
	assert_int_equal(reset(&table, 1, 7) + reset(&table, 1, 8), 0);
}

#define ARRAY_SPAN  (UINT64_C(3) << HL_PIECE_ARRAY_PAGE_BITS)
#define ARRAY_WORDS (ARRAY_SPAN >> HL_PIECE_ARRAY_GRANULE_BITS)

/* By the word that each begins with; node 0: none does. */
struct model_pieces {
	uintptr_t base; /* across leaves */
	struct hl_block of[ARRAY_WORDS];
};

/* Whether piece ${i} has a word among those of [${first}, ${end}). */
static bool has_word(const struct model_pieces *model, uint64_t i, uint64_t first, uint64_t end)
{
	uint64_t bytes = model->of[i].requested;
	uint64_t words = bytes >> HL_PIECE_BYTES_BITS ? 3 : bytes < HL_PIECE_HUGE - 1 ? 1 : 2;

	return model->of[i].node && i < end && i + words > first;
}

/* Ends the pieces in a range; exactly those that the model has there. */
static void end_pieces(struct hl_piece_array *array, struct model_pieces *model, uint64_t first,
		       uint64_t end)
{
	uintptr_t at = model->base + first * 8, piece;
	struct hl_block block;

	while (hl_piece_array_next(array, false, &at, model->base + end * 8, &piece, &block)) {
		uint64_t i = (piece - model->base) / 8;
		assert_true(has_word(model, i, first, end));
		assert_int_equal(block.node, model->of[i].node);
		assert_int_equal(block.requested, model->of[i].requested);
		model->of[i].node = 0;
	}
	for (uint64_t i = 0; i < ARRAY_WORDS; i++)
		assert_false(has_word(model, i, first, end));
}

static void pieces_in_an_array_agree_with_the_model(void **state)
{
	(void)state;
	static const uint64_t bytes[] = {
		0, 1, 8, 40, 252, 253, 254, 4000, UINT64_C(1) << 24, (UINT64_C(1) << 45) + 5};
	static struct model_pieces model = {.base = (UINT64_C(5) << HL_PIECE_ARRAY_LEAF_BITS) -
						    2 * (1u << HL_PIECE_ARRAY_PAGE_BITS)};
	struct hl_block_table table;
	struct hl_block block;
	unsigned seed = 5;
	int roomy = 0;

	init(&table, ARRAY);
	for (uint32_t i = 0; i < 60000; i++) {
		uint64_t place = (uint64_t)rand_r(&seed) % (ARRAY_WORDS - 3),
			 asked = bytes[rand_r(&seed) % 10];
		uintptr_t address = model.base + place * 8;
		bool is_there = model.of[place].node;
		assert_int_equal(hl_block_node(&table, (const void *)address),
				 model.of[place].node);
		if (is_there && i % 3) {
			const void *key = hl_block_ruled_key((const void *)address);
			assert_true(hl_block_may_hold(&table, key));
			assert_true(hl_block_take(&table, key, 0, &block));
			assert_int_equal(block.requested, model.of[place].requested);
			model.of[place].node = 0;
			continue;
		}
		uint64_t end = place + (asked + 7) / 8;
		end = end > ARRAY_WORDS ? ARRAY_WORDS : end == place ? place + 1 : end;
		hl_block_entry *words = hl_piece_array_room(&table, 1, address, asked, 7);
		if (!words && hl_piece_arrays(&table))
			end_pieces(hl_piece_arrays(&table), &model, place, end);
		roomy += words != NULL;
		if (!words)
			words = hl_piece_array_make(&table, 1, address, asked, 7);
		/* The words of a size are in one leaf. */
		bool is_last = asked > 252 && (place == 2 * HL_PIECE_ARRAY_PAGE_WORDS - 1 ||
					       place == 2 * HL_PIECE_ARRAY_PAGE_WORDS - 2);
		assert_int_equal(!words, is_last);
		if (!words)
			continue;
		model.of[place] = (struct hl_block){.node = 1 + i, .requested = asked};
		hl_piece_array_set(words, 1 + i, asked);
	}
	assert_true(roomy > 1000);
	end_pieces(hl_piece_arrays(&table), &model, 0, ARRAY_WORDS);
	assert_null(hl_piece_array_make(&table, 1, model.base + 4, 8, 7));
	assert_null(hl_piece_array_make(&table, 1, model.base, UINT64_C(1) << 46, 7));
}

static void put(struct hl_block_table *table, uintptr_t at, uint32_t pool, uintptr_t user)
{
	hl_block_entry *words = hl_piece_array_make(table, pool, at, 20, user);

	assert_non_null(words);
	hl_piece_array_set(words, pool + 1, 20);
}

static int reset_array(struct hl_block_table *table, uint32_t pool, uintptr_t user)
{
	uintptr_t at = 0, piece;
	struct hl_block block;
	int count = 0;

	for (; hl_block_take_piece_of_array(table, pool, user, &at, &piece, &block); count++)
		assert_int_equal(block.node, pool + 1);
	return count;
}

static void an_array_is_emptied_by_its_only_user(void **state)
{
	(void)state;
	struct hl_block_table table;
	uintptr_t base = UINT64_C(0x7ffe3bff0000); /* to the next leaf */

	init(&table, ARRAY);
	refuse = true;
	assert_null(hl_piece_array_make(&table, 1, base, 20, 7));
	refuse = false;
	assert_int_equal(reset_array(&table, 1, 7), 0);
	for (uintptr_t i = 0; i < 30000; i++)
		put(&table, base + 24 * i, 1 + (uint32_t)(i % 2), 7);
	assert_true(table.has_piece_stores);
	assert_null(hl_piece_array_room(&table, 1, base + 8, 8, 7));
	assert_int_equal(reset_array(&table, 1, 8), 0);
	assert_int_equal(reset_array(&table, 1, 7), 15000);
	assert_int_equal(reset_array(&table, 1, 7), 0);
	put(&table, base, 1, 8);
	assert_int_equal(reset_array(&table, 1, 8), 1);
	/* Whose pieces these are is not known. */
	put(&table, base, 2, 8);
	assert_int_equal(reset_array(&table, 2, 7) + reset_array(&table, 2, 8), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_array_agrees_with_the_model),
		cmocka_unit_test(the_hash_agrees_with_the_model),
		cmocka_unit_test(both_forms_at_once_agree_with_the_model),
		cmocka_unit_test(a_stale_entry_of_the_other_form_is_replaced),
		cmocka_unit_test(what_is_replaced_is_handed_back),
		cmocka_unit_test(two_blocks_in_one_granule_are_told_apart),
		cmocka_unit_test(objects_in_one_granule_keep_their_sizes),
		cmocka_unit_test(a_marked_block_keeps_its_word_in_either_plane),
		cmocka_unit_test(threads_with_blocks_of_their_own_do_not_disturb_each_other),
		cmocka_unit_test(a_block_that_is_not_there_is_not_called_busy),
		cmocka_unit_test(without_memory_for_the_array_what_is_kept_is_found),
		cmocka_unit_test(without_memory_a_full_hash_refuses_and_keeps_what_it_has),
		cmocka_unit_test(without_memory_for_a_leaf_the_array_refuses),
		cmocka_unit_test(pieces_of_a_range_are_taken_and_no_others),
		cmocka_unit_test(without_memory_for_a_map_no_piece_is_noted),
		cmocka_unit_test(a_pool_that_is_reset_loses_its_pieces_and_no_others),
		cmocka_unit_test(pieces_in_an_array_agree_with_the_model),
		cmocka_unit_test(an_array_is_emptied_by_its_only_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
