/* SPDX-License-Identifier: BSD-2-Clause */
/* Which functions of files are found to be an allocator's; this program has some of its own. */
#include "bpf/allocators.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fail_allocations.h"

/* Under names that no library has, so that nothing calls them. */
void *_rjem_malloc(size_t size);
void *_rjem_valloc(size_t size);
void *_rjem_reallocarray(void *block, size_t count, size_t size);
void *_rjem_realloc(void *block, size_t size);
void *tc_memalign(size_t alignment, size_t size);
void _rjem_free(void *block) __attribute__((weak)); /* undefined */

static volatile size_t calls;

__attribute__((noinline)) void *_rjem_malloc(size_t size)
{
	calls += size;
	return NULL;
}

void *_rjem_valloc(size_t size) __attribute__((alias("_rjem_malloc")));

__attribute__((noinline)) void *_rjem_realloc(void *block, size_t size)
{
	calls += size;
	return block;
}

__attribute__((noinline)) void *_rjem_reallocarray(void *block, size_t count, size_t size)
{
	void *moved = _rjem_realloc(block, count * size);

	calls++;
	return moved;
}

__attribute__((noinline)) void *tc_memalign(size_t alignment, size_t size)
{
	calls += alignment + size;
	return NULL;
}

static const struct hl_allocator_function *find(const struct hl_allocator_functions *found,
						const char *name)
{
	for (size_t i = 0; i < found->count; i++)
		if (strcmp(found->functions[i].name, name) == 0)
			return &found->functions[i];
	return NULL;
}

static struct hl_allocator_functions read_file(const char *path)
{
	struct hl_allocator_functions found;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(hl_allocators_read_functions(fd, &found), 0);
	close(fd);
	return found;
}

static void functions_are_found_in_the_static_symbol_table(void **state)
{
	struct hl_allocator_functions found = read_file("/proc/self/exe");
	const struct hl_allocator_function *function = find(&found, "tc_memalign");

	(void)state;
	assert_non_null(function);
	assert_int_equal(function->call, HL_HEAP_MEMALIGN);
	assert_false(function->throws);
	hl_allocators_release_functions(&found);
}

static void aliases_are_one_function_under_its_plainest_name(void **state)
{
	struct hl_allocator_functions found = read_file("/proc/self/exe");

	(void)state;
	assert_non_null(find(&found, "_rjem_malloc"));
	assert_null(find(&found, "_rjem_valloc"));
	hl_allocators_release_functions(&found);
}

static void functions_that_pass_the_call_on_are_left_out(void **state)
{
	struct hl_allocator_functions found = read_file("/proc/self/exe");

	(void)state;
	assert_non_null(find(&found, "_rjem_realloc"));
	assert_null(find(&found, "_rjem_reallocarray"));
	hl_allocators_release_functions(&found);
}

static void functions_of_other_files_are_not_found(void **state)
{
	struct hl_allocator_functions found = read_file("/proc/self/exe");

	(void)state;
	assert_null(_rjem_free); /* so that its name is in the table */
	assert_null(find(&found, "_rjem_free"));
	hl_allocators_release_functions(&found);
}

static void offsets_lead_to_the_code_in_the_file(void **state)
{
	struct hl_allocator_functions found = read_file("/proc/self/exe");
	const struct hl_allocator_function *function = find(&found, "tc_memalign");
	uint8_t code[16];
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_non_null(function);
	assert_int_equal(pread(fd, code, sizeof(code), (off_t)function->offset), sizeof(code));
	assert_memory_equal(code, (const void *)(uintptr_t)tc_memalign, sizeof(code));
	close(fd);
	hl_allocators_release_functions(&found);
}

static void libc_is_found_in_the_mappings_of_a_process(void **state)
{
	struct hl_allocators allocators;
	struct hl_maps maps;
	bool found_libc = false;

	(void)state;
	assert_int_equal(hl_maps_read(getpid(), &maps, NULL), 0);
	assert_int_equal(hl_allocators_find(getpid(), &maps, NULL, &allocators, NULL), 0);
	for (size_t i = 0; i < allocators.count; i++) {
		const struct hl_allocator *it = &allocators.allocators[i];
		for (size_t k = 0; k < i; k++)
			assert_false(hl_maps_same_file(&it->map, &allocators.allocators[k].map));
		if (!strstr(it->map.path, "libc") && !strstr(it->map.path, "ld-musl"))
			continue;
		found_libc = true;
		assert_non_null(find(&it->found, "malloc"));
		assert_non_null(find(&it->found, "free"));
		assert_int_equal(find(&it->found, "realloc")->call, HL_HEAP_REALLOC);
		assert_null(find(&it->found, "reallocarray"));
	}
	assert_true(found_libc);
	hl_allocators_release(&allocators);
	hl_maps_release(&maps);
}

static void one_object_alone_is_looked_through_if_asked_for(void **state)
{
	struct hl_allocators allocators;
	struct hl_error err = {0};
	struct hl_maps maps;

	(void)state;
	assert_int_equal(hl_maps_read(getpid(), &maps, NULL), 0);
	assert_int_equal(hl_allocators_find(getpid(), &maps, "test_allocators", &allocators, NULL),
			 0);
	assert_int_equal(allocators.count, 1);
	assert_non_null(find(&allocators.allocators[0].found, "tc_memalign"));
	hl_allocators_release(&allocators);
	assert_int_equal(hl_allocators_find(getpid(), &maps, "libnone", &allocators, &err),
			 -ENOENT);
	assert_non_null(strstr(err.text, "'libnone'"));
	hl_maps_release(&maps);
}

static void files_are_looked_through_once(void **state)
{
	struct hl_allocators allocators = {0};
	struct hl_maps maps;

	(void)state;
	assert_int_equal(hl_maps_read(getpid(), &maps, NULL), 0);
	assert_int_equal(hl_allocators_add(&allocators, getpid(), &maps, "test_allocators"), 0);
	assert_int_equal(allocators.count, 1);
	assert_int_equal(hl_allocators_add(&allocators, getpid(), &maps, "test_allocators"), 0);
	assert_int_equal(allocators.count, 1);
	assert_int_equal(hl_allocators_add(&allocators, getpid(), &maps, NULL), 0);
	assert_true(allocators.count > 1);
	hl_allocators_release(&allocators);
	hl_maps_release(&maps);
}

static void other_names_are_no_allocator(void **state)
{
	static const char *const others[] = {
		"",	   "mallo",	   "malloc_usable_size", "je_",
		"xmalloc", "mallocmalloc", "je_je_malloc",	 "_Znw"};
	struct hl_allocator_name found;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_false(hl_allocator_name_find(others[i], &found));
	assert_true(hl_allocator_name_find("_Znwm", &found) && found.throws);
	assert_true(hl_allocator_name_find("_ZnwmRKSt9nothrow_t", &found) && !found.throws);
}

static void functions_with_names_of_their_own_are_found_by_their_arguments(void **state)
{
	static const struct {
		const char *name;
		enum hl_heap_call call;
	} names[] = {
		{"mi_rezalloc", HL_HEAP_REALLOC},  {"mi_recalloc", HL_HEAP_REALLOCARRAY},
		{"mi_mallocn", HL_HEAP_CALLOC},	   {"mi_heap_malloc", HL_HEAP_MEMALIGN},
		{"mi_free_size", HL_HEAP_FREE},	   {"tc_new_nothrow", HL_HEAP_MALLOC},
		{"_rjem_mallocx", HL_HEAP_MALLOC}, {"tc_posix_memalign", HL_HEAP_POSIX_MEMALIGN},
	};
	static const char *const unplaced[] = {"mi_heap_calloc", "mi_heap_realloc", "mi_strdup"};
	struct hl_allocator_name found;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_true(hl_allocator_name_find(names[i].name, &found));
		assert_int_equal(found.call, names[i].call);
		assert_true(found.has_prefix && !found.throws);
	}
	for (size_t i = 0; i < sizeof(unplaced) / sizeof(unplaced[0]); i++)
		assert_false(hl_allocator_name_find(unplaced[i], &found));
	assert_true(hl_allocator_name_find("mi_new", &found) && found.throws);
	assert_string_equal(hl_allocator_name_of_malloc("_rjem_malloc"), "_rjem_malloc");
	assert_null(hl_allocator_name_of_malloc("malloc"));
}

static void damaged_files_are_read_as_far_as_they_make_sense(void **state)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = memfd_create("damaged", MFD_CLOEXEC);
	off_t bytes = lseek(from, 0, SEEK_END);
	char *content = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, from, 0);

	(void)state;
	assert_true(content != MAP_FAILED);
	for (off_t cut = 0; cut < bytes; cut += bytes / 64) {
		struct hl_allocator_functions found;
		assert_int_equal(ftruncate(to, 0), 0);
		assert_int_equal(pwrite(to, content, (size_t)cut, 0), cut);
		assert_int_equal(hl_allocators_read_functions(to, &found), 0);
		hl_allocators_release_functions(&found);
	}
	for (size_t at = 16; at < 4096; at += 5) {
		struct hl_allocator_functions found;
		content[at] ^= (char)0xff;
		assert_int_equal(pwrite(to, content, (size_t)bytes, 0), bytes);
		content[at] ^= (char)0xff;
		assert_int_equal(hl_allocators_read_functions(to, &found), 0);
		hl_allocators_release_functions(&found);
	}
	munmap(content, (size_t)bytes);
	close(to);
	close(from);
}

static int find_all(const struct hl_maps *maps)
{
	struct hl_allocators allocators;
	int r = hl_allocators_find(getpid(), maps, NULL, &allocators, NULL);

	if (r == 0)
		hl_allocators_release(&allocators);
	return r;
}

static void want_of_memory_is_an_error(void **state)
{
	struct hl_maps maps;

	(void)state;
	assert_int_equal(hl_maps_read(getpid(), &maps, NULL), 0);
	FOR_EACH_FAILING_ALLOCATION(r, find_all(&maps))
	assert_int_equal(r, -ENOMEM);
	hl_maps_release(&maps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_are_found_in_the_static_symbol_table),
		cmocka_unit_test(aliases_are_one_function_under_its_plainest_name),
		cmocka_unit_test(functions_that_pass_the_call_on_are_left_out),
		cmocka_unit_test(functions_of_other_files_are_not_found),
		cmocka_unit_test(offsets_lead_to_the_code_in_the_file),
		cmocka_unit_test(libc_is_found_in_the_mappings_of_a_process),
		cmocka_unit_test(one_object_alone_is_looked_through_if_asked_for),
		cmocka_unit_test(files_are_looked_through_once),
		cmocka_unit_test(other_names_are_no_allocator),
		cmocka_unit_test(functions_with_names_of_their_own_are_found_by_their_arguments),
		cmocka_unit_test(damaged_files_are_read_as_far_as_they_make_sense),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
