/* SPDX-License-Identifier: BSD-2-Clause */
/* The allocator of this very program is found, with rules for functions of its own, and without
 * memory it is said to fail. Programs of other kinds: tests/e2e/test_entries.py. */
#include "base/cleanup.h"
#include "fail_allocations.h"
#include "hook/entries.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cmocka.h>

/* Not static: they are in the table of symbols. */
void *pool_alloc(void *pool, size_t size);
void pool_free(void *pool, void *block);
void *arena_alloc(size_t size);
void arena_free(void *block);

static char arena[64];

void *pool_alloc(void *pool, size_t size)
{
	return size <= sizeof(arena) ? pool : NULL;
}

void pool_free(void *pool, void *block)
{
	arena[0] = (char)(pool == block);
}

void *arena_alloc(size_t size)
{
	return size <= sizeof(arena) ? arena : NULL;
}

void arena_free(void *block)
{
	arena[1] = (char)(block == arena);
}

static int find(const char *const *hooks, struct hl_entries *ret_found, struct hl_error *err)
{
	HL_CLEANUP(hl_maps_release) struct hl_maps maps = {0};
	HL_CLEANUP(hl_hook_rules_release) struct hl_hook_rules rules = {0};

	err->text[0] = '\0';
	int r = hl_maps_read(getpid(), &maps, err);
	if (r == 0)
		r = hl_hook_rules_make(hooks, "", &rules, err);
	if (r == 0)
		r = hl_entries_find(getpid(), &maps, &rules, ret_found, err);
	return r;
}

static const struct hl_entry *entry_of(const struct hl_entry *entries, uint32_t count,
				       const char *name)
{
	for (uint32_t i = 0; i < count; i++)
		if (strcmp(entries[i].name, name) == 0)
			return &entries[i];
	return NULL;
}

static void assert_entry(const struct hl_entries *found, const char *name, const void *address)
{
	const struct hl_entry *entry = entry_of(found->entries, found->count, name);

	assert_non_null(entry);
	assert_int_equal(entry->address, (uintptr_t)address);
}

static void assert_extra(const struct hl_entries *found, const char *name, const void *address)
{
	const struct hl_entry *entry = entry_of(found->extras, found->extra_count, name);

	assert_non_null(entry);
	assert_int_equal(entry->address, (uintptr_t)address);
}

static void the_functions_are_those_that_this_program_calls(void **state)
{
	(void)state;
	static const char *const names[] = {"malloc", "calloc", "realloc", "free",
					    "posix_memalign"};
	static struct hl_entries found;
	struct hl_error err;

	assert_int_equal(find(NULL, &found, &err), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_entry(&found, names[i], dlsym(RTLD_DEFAULT, names[i]));
	assert_int_equal(found.program_headers, getauxval(AT_PHDR));
	assert_int_equal(found.program_header_count, getauxval(AT_PHNUM));
	assert_int_equal(found.program_entry, getauxval(AT_ENTRY));
	assert_int_equal(found.find_object, (uintptr_t)dlsym(RTLD_DEFAULT, "_dl_find_object"));
	assert_true(found.stack_end > (uintptr_t)&err);
	assert_true(found.clock_gettime != 0);
	assert_false(found.is_static);
}

static void each_hook_and_each_address_is_there_once(void **state)
{
	(void)state;
	static struct hl_entries found;
	struct hl_error err;
	const char *hooks[] = {"malloc=arena_alloc", "malloc=malloc", "malloc=arena_alloc", NULL};

	assert_int_equal(find(hooks, &found, &err), 0);
	for (uint32_t i = 0; i < found.count; i++)
		for (uint32_t k = 0; k < i; k++) {
			assert_true(found.entries[i].hook != found.entries[k].hook);
			assert_true(found.entries[i].address != found.entries[k].address);
		}
	for (uint32_t i = 0; i < found.extra_count; i++)
		for (uint32_t k = 0; k < found.count; k++)
			assert_true(found.extras[i].address != found.entries[k].address);
}

static const struct hl_entry *extra_of(const struct hl_entries *found, const char *name)
{
	return entry_of(found->extras, found->extra_count, name);
}

static void rules_leave_the_hooks_to_the_usual_functions(void **state)
{
	(void)state;
	static struct hl_entries found;
	struct hl_error err;
	const char *hooks[] = {"malloc=arena_alloc", "free=test_entries!arena_free",
			       "malloc=pool_alloc(size=2)", "free=pool_free(ptr=2)", NULL};

	assert_int_equal(find(hooks, &found, &err), 0);
	assert_entry(&found, "malloc", dlsym(RTLD_DEFAULT, "malloc"));
	assert_entry(&found, "free", dlsym(RTLD_DEFAULT, "free"));
	assert_extra(&found, "arena_alloc", arena_alloc);
	assert_extra(&found, "arena_free", arena_free);
	assert_extra(&found, "pool_alloc", pool_alloc);
	assert_extra(&found, "pool_free", pool_free);
	struct hl_attached_rule rule = hl_entry_rule(extra_of(&found, "arena_alloc"), 77);
	assert_int_equal(rule.real, 77);
	assert_int_equal(rule.size_at, 1);
	assert_false(rule.does || rule.count_at || rule.pointer_at || rule.is_of_malloc);
	assert_int_equal(hl_entry_rule(extra_of(&found, "pool_alloc"), 0).size_at, 2);
	rule = hl_entry_rule(extra_of(&found, "pool_free"), 0);
	assert_true(rule.does == HL_RULE_FREES && rule.pointer_at == 2 && !rule.size_at);
}

static void the_arguments_of_extra_functions_are_those_of_their_kind(void **state)
{
	(void)state;
	const struct {
		struct hl_entry entry;
		struct hl_attached_rule rule;
	} cases[] = {
		{{.hook = HL_HOOK_CALLOC}, {.count_at = 1, .size_at = 2}},
		{{.hook = HL_HOOK_CALLOC, .count_at = 2, .size_at = 3},
		 {.count_at = 2, .size_at = 3}},
		{{.hook = HL_HOOK_REALLOC}, {.pointer_at = 1, .size_at = 2}},
		{{.hook = HL_HOOK_REALLOCARRAY}, {.pointer_at = 1, .count_at = 2, .size_at = 3}},
		{{.hook = HL_HOOK_POSIX_MEMALIGN}, {.result_at = 1, .size_at = 3}},
		{{.hook = HL_HOOK_MALLOC, .throws = true, .alignment_at = 2, .is_of_malloc = true},
		 {.size_at = 1, .throws = 1, .alignment_at = 2, .is_of_malloc = 1}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct hl_attached_rule rule = hl_entry_rule(&cases[i].entry, 0);
		assert_memory_equal(&rule, &cases[i].rule, sizeof(rule));
	}
}

static void a_function_that_is_not_there_is_named(void **state)
{
	(void)state;
	static struct hl_entries found;
	struct hl_error err;
	const char *hooks[] = {"malloc=nobody", NULL};

	assert_int_equal(find(hooks, &found, &err), -ENOENT);
	assert_non_null(strstr(err.text, "'nobody'"));
}

static void want_of_memory_is_reported(void **state)
{
	(void)state;
	static struct hl_entries found, again;
	struct hl_error err;
	const char *hooks[] = {"malloc=arena_alloc", "free=arena_free", NULL};

	for (int asked = 0; asked < 2; asked++) {
		FOR_EACH_FAILING_ALLOCATION(r, find(asked ? hooks : NULL, &found, &err))
		{
			assert_int_equal(r, -ENOMEM);
			assert_true(err.text[0] != '\0');
		}
		assert_int_equal(find(asked ? hooks : NULL, &again, &err), 0);
		assert_int_equal(found.count, again.count);
		for (uint32_t i = 0; i < found.count; i++)
			assert_int_equal(found.entries[i].address, again.entries[i].address);
		assert_int_equal(found.extra_count, again.extra_count);
		assert_int_equal(found.has_glibc_chunks, again.has_glibc_chunks);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_functions_are_those_that_this_program_calls),
		cmocka_unit_test(each_hook_and_each_address_is_there_once),
		cmocka_unit_test(rules_leave_the_hooks_to_the_usual_functions),
		cmocka_unit_test(the_arguments_of_extra_functions_are_those_of_their_kind),
		cmocka_unit_test(a_function_that_is_not_there_is_named),
		cmocka_unit_test(want_of_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
