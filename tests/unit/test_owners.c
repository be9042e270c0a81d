/* SPDX-License-Identifier: BSD-2-Clause */
/* Owners of blocks: tags, counts, names of this process' own code, and its own block table read as
 * another process' would be. */
#include "heap/owners/owner_table.h"
#include "heap/owners/owners.h"
#include "recorder/block.h"
#include "region/region.h"
#include "tags/tag_word.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"

/* ---- words ---- */

static void words_hold_addresses_and_tags(void **state)
{
	(void)state;
	uint64_t address = UINT64_C(0x7fff12345678), end = UINT64_C(0x55550000f008);
	uint64_t plain = hl_tag_word(hl_tag_identity(address, 0), end);
	assert_true(hl_tag_word_is_valid(plain, end));
	assert_int_equal(hl_tag_of_word(plain), 0);
	assert_int_equal(hl_tag_address_of_word(plain), address);
	uint64_t tagged = hl_tag_word(hl_tag_identity(address, 1024), end);
	assert_true(hl_tag_word_is_valid(tagged, end));
	assert_int_equal(hl_tag_of_word(tagged), 1024);
	assert_int_equal(hl_tag_address_of_word(tagged), (uint32_t)address);
}

static void words_elsewhere_are_no_tags(void **state)
{
	(void)state;
	unsigned taken = 0;
	uint64_t end = UINT64_C(0x55550000f008);
	uint64_t word = hl_tag_word(hl_tag_identity(UINT64_C(0x7fff12345678), 0), end);
	for (uint64_t distance = 16; distance <= 16 * 65536; distance += 16)
		taken += hl_tag_word_is_valid(word, end + distance);
	/* One in 65,536 would be chance. */
	assert_in_range(taken, 0, 16);
}

/* ---- counts ---- */

static void counts_keep_owners_apart(void **state)
{
	(void)state;
	struct hl_owner_counts counts = {.shape = {.start = 128, .width = 4}};
	for (uint64_t i = 0; i < 3000; i++)
		assert_int_equal(hl_owner_counts_add(&counts, i % 1000, 100 + i % 1000, 2), 0);
	assert_int_equal(counts.count, 1000);
	for (size_t i = 0; i < counts.count; i++) {
		const struct hl_owner_count *count = &counts.counts[i];
		assert_int_equal(count->blocks, 6);
		assert_int_equal(count->bytes, 6 * (100 + count->key));
		assert_int_equal(
			count->histogram.counts[hl_log2_slot(&counts.shape, 100 + count->key)], 6);
	}
	hl_owner_counts_release(&counts);
}

static int count_some(void)
{
	struct hl_owner_counts counts = {.shape = {.start = 128, .width = 4}};
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < 200; i++)
		r = hl_owner_counts_add(&counts, i, i, 1);
	hl_owner_counts_release(&counts);
	return r;
}

static void counts_without_memory_say_so(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, count_some())
	assert_int_equal(r, -ENOMEM);
}

/* ---- names ---- */

static void code_of_this_process_has_its_names(void **state)
{
	(void)state;
	struct hl_owner_names *names;
	struct hl_owner_name name;
	uint64_t here = (uintptr_t)code_of_this_process_has_its_names + 1;
	assert_int_equal(hl_owner_names_new(getpid(), false, &names, NULL), 0);
	assert_true(hl_owner_names_is_code(names, here));
	assert_false(hl_owner_names_is_code(names, (uintptr_t)&names));
	assert_int_equal(hl_owner_names_find(names, here, &name), 0);
	assert_string_equal(name.file, "test_owners");
	assert_string_equal(name.function, "code_of_this_process_has_its_names");
	assert_int_equal(hl_owner_names_whole(names, (uint32_t)here), here);
	assert_int_equal(hl_owner_names_find(names, 0x1000, &name), 0);
	assert_string_equal(name.file, "[no file]");
	hl_owner_names_free(names);
}

static void a_process_that_is_not_there_is_an_error(void **state)
{
	(void)state;
	struct hl_owner_names *names;
	struct hl_error err = {0};
	assert_int_equal(hl_owner_names_new(0x7ffffff0, false, &names, &err), -ESRCH);
	assert_string_not_equal(err.text, "");
}

/* ---- rows ---- */

static void rows_of_one_name_are_one(void **state)
{
	(void)state;
	struct hl_allocations allocations = {.shape = {.start = 128, .width = 2}};
	struct hl_owner_rows rows = {.allocations = &allocations};
	struct hl_owner_count count = {.blocks = 2, .bytes = 300, .histogram = {{2, 0}}};
	assert_int_equal(hl_owner_rows_add(&rows, "libone", "make", &count), 0);
	assert_int_equal(hl_owner_rows_add(&rows, "libone", "other", &count), 0);
	assert_int_equal(hl_owner_rows_add(&rows, "libone", "make", &count), 0);
	assert_int_equal(allocations.count, 2);
	assert_int_equal(allocations.rows[0].blocks, 4);
	assert_int_equal(allocations.rows[0].bytes, 600);
	assert_int_equal(allocations.rows[0].histogram.counts[0], 4);
	hl_owner_rows_release(&rows);
	hl_allocations_release(&allocations);
}

/* ---- block tables ---- */

#define BLOCKS 20000u

static uint64_t address_of(uint32_t i)
{
	/* In pairs in one granule; some are not aligned to 16, some are leaves apart. */
	return UINT64_C(0x7f0000000000) + i / 2 * UINT64_C(64) + i % 2 * UINT64_C(16) +
	       (i % 5 == 0 ? 8 : 0) + (uint64_t)(i / 2 % 4) * (UINT64_C(1) << 30);
}

static struct hl_block block_of(uint32_t i)
{
	static const uint64_t sizes[] = {0, 17, 1000, UINT64_C(1) << 41};

	return (struct hl_block){.node = i + 1, .requested = sizes[i % 4]};
}

static uint64_t usable_of(uint32_t i)
{
	return block_of(i).requested + i % 300; /* slack above HL_BLOCK_SLACK_MAX is in the hash */
}

static void fill(struct hl_block_table *table, bool with_array)
{
	assert_true(hl_block_table_init(table));
	if (with_array)
		assert_non_null(hl_block_table_add_array(table));
	/* A table that has an array may have blocks of a time in which it was not used. */
	struct hl_block_stale stale = HL_BLOCK_NOT_STALE;
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(hl_block_set(table, i % 5, (void *)(uintptr_t)address_of(i),
					 block_of(i), usable_of(i), &stale));
}

static void expect_all(struct hl_block_reader *reader)
{
	struct hl_block found;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		assert_true(hl_block_reader_find(reader, address_of(i), usable_of(i), &found));
		assert_int_equal(found.node, i + 1);
		assert_int_equal(found.requested, block_of(i).requested);
		assert_false(hl_block_reader_find(reader, address_of(i) + 32, 16, &found));
	}
}

/* Blocks as they were listed, in rising order and with what is known of them. */
struct listed {
	uint64_t sum, last, next;
	size_t count, sized;
};

static int take_listed(void *context, const struct hl_listed_block *block)
{
	struct listed *listed = context;
	const struct hl_block expected = block_of(block->node - 1);

	assert_true(block->address > listed->last);
	assert_int_equal(block->address, address_of(block->node - 1));
	if (block->has_size)
		assert_int_equal(block->requested, expected.requested);
	else
		assert_int_equal(block->slack, usable_of(block->node - 1) - expected.requested);
	assert_true(listed->count == 0 || listed->next == block->address);
	listed->next = block->address + block->most_bytes;
	listed->last = block->address;
	listed->sum += block->node;
	listed->count++;
	listed->sized += block->has_size;
	return 0;
}

#define OBJECTS 3000u

static uint64_t object_bytes(uint32_t i)
{
	return 1 + (i < 1000 ? i % 16 : i);
}

static uint64_t object_at(uint32_t i)
{
	return UINT64_C(0x7f0000000010) + (i < 1000 ? i * UINT64_C(16) : i * UINT64_C(4096));
}

static int add_listed_object(void *context, const struct hl_listed_block *block)
{
	struct listed *listed = context;

	assert_true(block->has_size && block->address > listed->last);
	assert_int_equal(block->address, object_at(block->node - 1));
	listed->last = block->address;
	listed->sum += block->requested;
	listed->count++;
	return 0;
}

static struct listed expect_listed(struct hl_block_reader *reader)
{
	struct listed listed = {0};

	assert_int_equal(hl_block_reader_each(reader, take_listed, &listed), 0);
	assert_int_equal(listed.count, BLOCKS);
	assert_int_equal(listed.sum, (uint64_t)BLOCKS * (BLOCKS + 1) / 2);
	return listed;
}

static void an_array_is_read_from_outside(void **state)
{
	(void)state;
	struct hl_block_table table;
	struct hl_block_reader *reader;
	fill(&table, true);
	assert_int_equal(hl_block_reader_new(getpid(), NULL, (uintptr_t)table.array,
					     (uintptr_t)table.hash, &reader),
			 0);
	assert_true(hl_block_reader_has_array(reader));
	expect_all(reader);
	assert_in_range(expect_listed(reader).sized, 1, BLOCKS - 1);
	expect_all(reader);
	hl_block_reader_free(reader);
}

/* Of up to 16 bytes, two in a granule; larger ones end where the next begins. */
static void objects_are_read_from_outside_with_their_sizes(void **state)
{
	(void)state;
	struct hl_block_table table;
	struct hl_block_reader *reader;
	struct hl_block found;
	struct listed listed = {0};
	uint64_t bytes = 0;
	assert_true(hl_block_table_init(&table));
	assert_non_null(hl_block_table_add_array(&table));
	for (uint32_t i = 0; i < OBJECTS; i++) {
		const void *address = (const void *)object_at(i);
		hl_block_entry *entry = hl_block_entry_make(&table, address);
		assert_true(hl_block_object_set(&table, entry, address, i + 1, object_bytes(i)));
		bytes += object_bytes(i);
	}
	assert_int_equal(hl_block_reader_new(getpid(), NULL, (uintptr_t)table.array,
					     (uintptr_t)table.hash, &reader),
			 0);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		assert_true(hl_block_reader_find(reader, object_at(i), 0, &found));
		assert_int_equal(found.node, i + 1);
		assert_int_equal(found.requested, object_bytes(i));
	}
	assert_int_equal(hl_block_reader_each(reader, add_listed_object, &listed), 0);
	assert_int_equal(listed.count, OBJECTS);
	assert_int_equal(listed.sum, bytes);
	hl_block_reader_free(reader);
}

static void a_hash_is_read_from_outside(void **state)
{
	(void)state;
	struct hl_block_table table;
	struct hl_block_reader *reader;
	fill(&table, false);
	assert_int_equal(hl_block_reader_new(getpid(), NULL, 0, (uintptr_t)table.hash, &reader), 0);
	assert_false(hl_block_reader_has_array(reader));
	expect_all(reader);
	assert_int_equal(expect_listed(reader).sized, BLOCKS);
	hl_block_reader_free(reader);
}

static void tables_that_are_none_are_errors(void **state)
{
	(void)state;
	struct hl_block_reader *reader;
	static char nonsense[1 << 16];
	memset(nonsense, 0xee, sizeof(nonsense));
	assert_true(hl_block_reader_new(getpid(), NULL, 0, 0, &reader) < 0);
	assert_true(hl_block_reader_new(getpid(), NULL, 0, 0x1000, &reader) < 0);
	assert_true(hl_block_reader_new(getpid(), NULL, 0, (uintptr_t)nonsense, &reader) < 0);
}

/* Sizes in one word, in two, and in three that go on in the next page. */
static void pieces_are_read_with_their_sizes_from_all_arrays(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {0, 252, 253, UINT64_C(1) << 30};
	const uintptr_t base = UINT64_C(0x7ffe00000000) - 8;
	struct hl_region_header header = {0};
	struct hl_block_table table;
	struct hl_block_reader *reader;
	struct hl_block found;

	assert_true(hl_block_table_init(&table));
	for (uint32_t i = 0; i < 40; i++) {
		uintptr_t at = base + 4096 * i + (i % 4 == 3 ? 0 : 8 * i);
		hl_block_entry *words =
			hl_piece_array_make(&table, 1 + i % 2, at + 4096, sizes[i % 4], 7);
		assert_non_null(words);
		hl_piece_array_set(words, i + 1, sizes[i % 4]);
	}
	header.block_hash = (uintptr_t)table.hash;
	header.piece_arrays = (uintptr_t)hl_piece_arrays(&table);
	assert_int_equal(hl_block_reader_open(getpid(), NULL, &header, &reader), 0);
	struct hl_block_sum sum = hl_block_reader_sum_ruled(reader);
	assert_int_equal(sum.blocks, 40);
	assert_int_equal(sum.bytes, 10 * (505 + (INT64_C(1) << 30)));
	for (uint32_t i = 0; i < 40; i++) {
		uintptr_t at = base + 4096 * (i + 1) + (i % 4 == 3 ? 0 : 8 * i);
		assert_true(hl_block_reader_has_ruled(reader, at));
		assert_true(hl_block_reader_find(reader, at, 0, &found));
		assert_int_equal(found.node, i + 1);
		assert_int_equal(found.requested, sizes[i % 4]);
	}
	hl_block_reader_free(reader);
	header.piece_arrays = 0x1000;
	assert_true(hl_block_reader_open(getpid(), NULL, &header, &reader) < 0);
}

/* ---- slabs ---- */

static void expect_occupancy(struct hl_slab_class class, const uint64_t expected[8])
{
	uint64_t bytes[HL_OCCUPANCY_SLOTS];
	struct hl_introspection said = {.class_count = 1, .classes = {class}};

	hl_slabs_occupancy(&said, bytes);
	for (size_t i = 0; i < HL_OCCUPANCY_SLOTS; i++)
		assert_int_equal(bytes[i], expected[i]);
}

static void slabs_count_by_how_full_they_are(void **state)
{
	(void)state;
	/* Of 4 slabs of 10 blocks one is full, and the others have 3 blocks each. */
	struct hl_slab_class class = {
		.slab_bytes = 4096, .blocks = 40, .used_blocks = 19, .slabs = 4, .full_slabs = 1};
	expect_occupancy(class, (uint64_t[8]){[2] = 3 * 4096, [7] = 4096});
	class.full_slabs = 0;
	class.used_blocks = 0;
	expect_occupancy(class, (uint64_t[8]){[0] = 4 * 4096});
	class.slabs = 0;
	expect_occupancy(class, (uint64_t[8]){0});
}

static void slabs_that_contradict_themselves_stay_in_bounds(void **state)
{
	(void)state;
	/* More full slabs than slabs, more used blocks than blocks, products above 64 bits. */
	expect_occupancy((struct hl_slab_class){.slab_bytes = 1,
						.blocks = 1,
						.used_blocks = UINT64_MAX,
						.slabs = 2,
						.full_slabs = 9},
			 (uint64_t[8]){[7] = 2});
	expect_occupancy((struct hl_slab_class){.slab_bytes = 1,
						.blocks = UINT64_MAX,
						.used_blocks = UINT64_C(1) << 63,
						.slabs = 1},
			 (uint64_t[8]){[4] = 1});
	struct hl_introspection said = {.class_count = UINT32_MAX};
	uint64_t bytes[HL_OCCUPANCY_SLOTS];
	hl_slabs_occupancy(&said, bytes);
	assert_int_equal(bytes[0], 0);
}

/* ---- regions ---- */

#define REGION_BYTES (UINT64_C(1) << 20)

/* A region of this process, mapped as a recorder's is. */
static struct hl_region_header *map_region(void)
{
	int fd = memfd_create("heapline", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, REGION_BYTES), 0);
	struct hl_region_header *header =
		mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(header, MAP_FAILED);
	close(fd);
	memcpy(header->magic, HL_REGION_MAGIC, sizeof(header->magic));
	header->version = HL_REGION_VERSION;
	header->region_bytes = REGION_BYTES;
	for (size_t i = 0; i < HL_AREA_COUNT; i++)
		header->areas[i].offset = REGION_BYTES;
	return header;
}

static int open_own_region(struct hl_open_region *ret_region)
{
	struct hl_owner_names *names;

	assert_int_equal(hl_owner_names_new(getpid(), false, &names, NULL), 0);
	int r = hl_open_region(getpid(), names, ret_region);
	hl_owner_names_free(names);
	return r;
}

static void a_region_is_copied(void **state)
{
	(void)state;
	struct hl_open_region region;
	assert_int_equal(open_own_region(&region), -ENODATA);
	struct hl_region_header *header = map_region();
	struct hl_area *area = &header->areas[HL_AREA_STRINGS];
	area->offset = REGION_BYTES / 2;
	area->capacity = 4096;
	area->committed = UINT64_MAX; /* more than there is room for */
	strcpy((char *)header + area->offset, "text");
	assert_int_equal(open_own_region(&region), 0);
	assert_string_equal((char *)region.base + area->offset, "text");
	header->pid = 4711;
	assert_int_equal(hl_open_region_refresh(&region), 0);
	assert_int_equal(hl_open_region_header(&region)->pid, 4711);
	hl_open_region_release(&region);
	munmap(header, REGION_BYTES);
}

static void regions_with_hostile_headers_are_none(void **state)
{
	(void)state;
	struct hl_open_region region;
	struct hl_region_header *header = map_region();
	struct hl_area *area = &header->areas[HL_AREA_CELLS];
	header->magic[0]++;
	assert_int_equal(open_own_region(&region), -ENODATA);
	header->magic[0]--;
	header->version++;
	assert_int_equal(open_own_region(&region), -ENODATA);
	header->version--;
	header->region_bytes = sizeof(*header) - 1;
	assert_int_equal(open_own_region(&region), -ENODATA);
	header->region_bytes = UINT64_MAX; /* not even address space */
	assert_true(open_own_region(&region) < 0);
	header->region_bytes = REGION_BYTES;
	area->offset = REGION_BYTES + 8;
	assert_int_equal(open_own_region(&region), -ENODATA);
	area->offset = REGION_BYTES - 4096;
	area->capacity = 4097;
	assert_int_equal(open_own_region(&region), -ENODATA);
	area->capacity = UINT64_MAX;
	assert_int_equal(open_own_region(&region), -ENODATA);
	area->offset = REGION_BYTES - 4095;
	area->capacity = 4000;
	assert_int_equal(open_own_region(&region), -ENODATA);
	munmap(header, REGION_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_hold_addresses_and_tags),
		cmocka_unit_test(words_elsewhere_are_no_tags),
		cmocka_unit_test(counts_keep_owners_apart),
		cmocka_unit_test(counts_without_memory_say_so),
		cmocka_unit_test(code_of_this_process_has_its_names),
		cmocka_unit_test(a_process_that_is_not_there_is_an_error),
		cmocka_unit_test(rows_of_one_name_are_one),
		cmocka_unit_test(an_array_is_read_from_outside),
		cmocka_unit_test(objects_are_read_from_outside_with_their_sizes),
		cmocka_unit_test(a_hash_is_read_from_outside),
		cmocka_unit_test(pieces_are_read_with_their_sizes_from_all_arrays),
		cmocka_unit_test(tables_that_are_none_are_errors),
		cmocka_unit_test(slabs_count_by_how_full_they_are),
		cmocka_unit_test(slabs_that_contradict_themselves_stay_in_bounds),
		cmocka_unit_test(a_region_is_copied),
		cmocka_unit_test(regions_with_hostile_headers_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
