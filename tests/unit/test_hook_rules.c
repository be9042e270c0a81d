/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules for functions with names of their own: what they may say, what is refused, presets. */
#include "fail_allocations.h"
#include "hook/entries.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guests.h"

static struct hl_hook_rule asked(const char *hook)
{
	struct hl_hook_rules rules = {0};
	struct hl_error err = {0};
	struct hl_hook_rule rule;

	assert_int_equal(hl_hook_rules_ask(hook, &rules, &err), 0);
	assert_int_equal(rules.count, 1);
	rule = rules.rules[0];
	hl_hook_rules_release(&rules);
	assert_true(rule.is_asked && rule.holds);
	return rule;
}

static void assert_places(const char *hook, enum hl_hook call, int size, int count, int pointer)
{
	struct hl_hook_rule rule = asked(hook);

	assert_int_equal(rule.call, call);
	assert_int_equal(rule.size_at, size);
	assert_int_equal(rule.count_at, count);
	assert_int_equal(rule.pointer_at, pointer);
}

static void arguments_are_where_the_rule_says_else_as_usual(void **state)
{
	(void)state;
	assert_places("malloc=f", HL_HOOK_MALLOC, 0, 0, 0);
	assert_places("malloc=f(size=1)", HL_HOOK_MALLOC, 0, 0, 0);
	assert_places("malloc=f(size=6)", HL_HOOK_MALLOC, 6, 0, 0);
	assert_places("calloc=f(size=3,count=2)", HL_HOOK_CALLOC, 3, 2, 0);
	assert_places("calloc=f(count=2,size=1)", HL_HOOK_CALLOC, 1, 2, 0);
	assert_places("realloc=f(ptr=3)", HL_HOOK_REALLOC, 0, 0, 3);
	assert_places("realloc = f ( ptr = 2 , size = 3 ) ", HL_HOOK_REALLOC, 3, 0, 2);
	assert_places("free=f(ptr=2)", HL_HOOK_FREE, 0, 0, 2);
	assert_places("realloc=f(count=2,size=3)", HL_HOOK_REALLOC, 3, 2, 0);
	assert_places("posix_memalign=f", HL_HOOK_POSIX_MEMALIGN, 0, 0, 0);
	assert_places("malloc=f(text=1)", HL_HOOK_MALLOC, 1, 0, 0);
	assert_places("malloc=f(text=2,count=3)", HL_HOOK_MALLOC, 2, 3, 0);
	assert_true(asked("malloc=f(text=1)").is_text);
	assert_false(asked("malloc=f(size=2)").is_text);
}

static void functions_are_named_by_symbol_file_or_address(void **state)
{
	(void)state;
	struct hl_hook_rule rule = asked("malloc=_ZN4pool5allocEm");
	assert_string_equal(rule.symbol, "_ZN4pool5allocEm");
	assert_string_equal(rule.module, "");
	assert_int_equal(rule.address, 0);
	rule = asked("free=libpool.so!pool_free");
	assert_string_equal(rule.module, "libpool.so");
	assert_string_equal(rule.symbol, "pool_free");
	rule = asked("free=app!0x401A30(ptr=2)");
	assert_string_equal(rule.module, "app");
	assert_int_equal(rule.address, 0x401a30);
	rule = asked("realloc=lalloc(ptr=2,type=3,size=4)");
	assert_int_equal(rule.type_at, 3);
}

static void what_makes_no_sense_is_refused_in_one_sentence(void **state)
{
	(void)state;
	static const char *const hooks[] = {
		"",
		"malloc",
		"malloc=",
		"=f",
		"mmap=f",
		"malloc=f(",
		"malloc=f()",
		"malloc=f(size)",
		"malloc=f(size=0)",
		"malloc=f(size=7)",
		"malloc=f(size=10)",
		"malloc=f(size=x)",
		"malloc=f(ptr=1)",
		"malloc=f(size=1",
		"malloc=f(size=1) g",
		"malloc=f g",
		"malloc=f(size=1,)",
		"free=f(size=1)",
		"calloc=f(count=2)",
		"realloc=f(size=1)",
		"malloc=!f",
		"malloc=a!",
		"malloc=a!b!c",
		"malloc=0x",
		"malloc=0xfg",
		"malloc=0x0",
		"malloc=0x10000000000000000",
		"malloc=f(length=1)",
		"malloc=f(type=1)",
		"reset=f(ptr=1)",
		"reset=f(size=1)",
		"reset=",
		"realloc=f(type=0)",
		"@",
		"@nobody",
	};

	for (size_t i = 0; i < sizeof(hooks) / sizeof(*hooks); i++) {
		struct hl_hook_rules rules = {0};
		struct hl_error err = {0};
		int r = hl_hook_rules_ask(hooks[i], &rules, &err);
		if (r != (hooks[i][0] == '@' ? -ENOENT : -EINVAL) || !err.text[0])
			fail_msg("'%s': %d, '%s'", hooks[i], r, err.text);
		assert_int_equal(rules.count, 0);
		hl_hook_rules_release(&rules);
	}
}

static void names_that_are_too_long_are_refused(void **state)
{
	(void)state;
	char hook[HL_HOOK_NAME_MAX + 16];
	struct hl_hook_rules rules = {0};
	struct hl_error err = {0};

	int before = snprintf(hook, sizeof(hook), "malloc=");
	memset(hook + before, 'x', HL_HOOK_NAME_MAX);
	hook[before + HL_HOOK_NAME_MAX] = '\0';
	assert_int_equal(hl_hook_rules_ask(hook, &rules, &err), -EINVAL);
	hook[before + HL_HOOK_NAME_MAX - 1] = '\0';
	assert_int_equal(hl_hook_rules_ask(hook, &rules, &err), 0);
	hl_hook_rules_release(&rules);
}

static void presets_hold_where_they_say_or_when_asked_for(void **state)
{
	(void)state;
	static const char text[] = "free=always # it does\n"
				   "\n"
				   "preset pool\n"
				   "malloc=pool_alloc(size=2)\n"
				   "preset prefixed\n"
				   "when p_malloc\n"
				   "malloc=p_malloc\n"
				   "preset within\n"
				   "beside w_malloc\n"
				   "malloc=w_malloc\n"
				   "preset last\n"
				   "malloc=l_malloc";
	struct hl_hook_rules rules = {0};
	struct hl_error err = {0};

	assert_int_equal(hl_hook_rules_parse(text, strlen(text), "test", &rules, &err), 0);
	assert_int_equal(rules.count, 5);
	assert_true(rules.rules[0].holds);
	assert_false(rules.rules[0].is_asked);
	assert_false(rules.rules[1].holds);
	assert_string_equal(rules.rules[1].when, "");
	assert_false(rules.rules[2].holds);
	assert_string_equal(rules.rules[2].when, "p_malloc");
	assert_string_equal(rules.rules[3].when, "w_malloc");
	assert_true(rules.rules[3].is_beside);
	assert_string_equal(rules.rules[4].when, "");
	assert_false(rules.rules[2].is_beside || rules.rules[4].is_beside);
	assert_int_equal(hl_hook_rules_ask("@pool", &rules, &err), 0);
	assert_true(rules.rules[1].holds && rules.rules[1].is_asked);
	assert_false(rules.rules[2].holds || rules.rules[4].holds);
	assert_int_equal(hl_hook_rules_ask("@nobody", &rules, &err), -ENOENT);
	assert_string_equal(err.text,
			    "there is no preset 'nobody'; there are pool, prefixed, within, last");
	hl_hook_rules_release(&rules);
}

static void a_line_that_makes_no_sense_is_named(void **state)
{
	(void)state;
	static const struct {
		const char *text, *line;
	} files[] = {
		{"malloc=f\n\nnonsense\nfree=f\n", "line 3 of 'test'"},
		{"when x\n", "line 1 of 'test'"},
		{"preset\n", "line 1 of 'test'"},
		{"preset a b\n", "line 1 of 'test'"},
		{"preset a\nwhen\n", "line 2 of 'test'"},
		{"malloc=f\nfree=g(ptr=9)", "line 2 of 'test'"},
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		struct hl_hook_rules rules = {0};
		struct hl_error err = {0};
		assert_int_equal(hl_hook_rules_parse(files[i].text, strlen(files[i].text), "test",
						     &rules, &err),
				 -EINVAL);
		assert_non_null(strstr(err.text, files[i].line));
		assert_int_equal(rules.count, 0);
		hl_hook_rules_release(&rules);
	}
}

static size_t count_preset(const struct hl_hook_rules *rules, const char *preset)
{
	size_t count = 0;

	for (size_t i = 0; i < rules->count; i++)
		count += strcmp(rules->rules[i].preset, preset) == 0;
	return count;
}

static void pools_can_be_left_out_unless_they_are_asked_for(void **state)
{
	(void)state;
	const char *hooks[] = {"@nginx", "malloc=f(bytes=65535)", NULL};
	struct hl_hook_rules rules;
	struct hl_error err = {0};

	assert_int_equal(hl_hook_rules_make(hooks, "", &rules, &err), 0);
	assert_true(count_preset(&rules, "php") && count_preset(&rules, "postgresql"));
	size_t others = count_preset(&rules, "mimalloc");
	hl_hook_rules_leave_out_pools(&rules);
	assert_int_equal(count_preset(&rules, "php") + count_preset(&rules, "postgresql"), 0);
	assert_true(count_preset(&rules, "nginx"));
	assert_int_equal(count_preset(&rules, "mimalloc"), others);
	const struct hl_hook_rule *last = &rules.rules[rules.count - 1];
	assert_true(last->has_size && last->size == 65535);
	hl_hook_rules_release(&rules);
	static const char *const wrong[] = {"malloc=f(bytes=65536)", "malloc=f(bytes=)",
					    "malloc=f(bytes=-1)", "calloc=f(bytes=8)",
					    "free=f(bytes=8)"};
	rules = (struct hl_hook_rules){0};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(hl_hook_rules_ask(wrong[i], &rules, &err), -EINVAL);
	hl_hook_rules_release(&rules);
}

static void a_reset_is_of_the_pool_of_its_preset(void **state)
{
	(void)state;
	const char *hooks[] = {"malloc=f", "reset=g", NULL};
	struct hl_hook_rules rules;
	struct hl_error err = {0};
	uint8_t pool_of_php = 0;

	assert_int_equal(hl_hook_rules_make(hooks, "", &rules, &err), 0);
	for (size_t i = 0; i < rules.count; i++) {
		const struct hl_hook_rule *rule = &rules.rules[i];
		if (strcmp(rule->preset, "php") == 0) {
			assert_true(rule->pool && (!pool_of_php || rule->pool == pool_of_php));
			pool_of_php = rule->pool;
			assert_int_equal(rule->resets,
					 strcmp(rule->symbol, "shutdown_memory_manager") == 0);
		} else if (rule->preset[0] || rule->tells) {
			assert_int_equal(rule->pool, 0);
		}
	}
	const struct hl_hook_rule *last = &rules.rules[rules.count - 1];
	assert_true(last->resets && last->pool && last->pool != pool_of_php);
	assert_true(!last[-1].resets && last[-1].pool == last->pool);
	hl_hook_rules_release(&rules);
}

static void pools_beyond_the_last_number_are_refused(void **state)
{
	(void)state;
	char path[] = "/tmp/heapline-presets-XXXXXX";
	struct hl_hook_rules rules;
	struct hl_error err = {0};

	int fd = mkstemp(path);
	assert_true(fd >= 0);
	for (unsigned i = 0; i < HL_RULE_POOLS_MAX; i++)
		dprintf(fd, "preset p%u\nreset=f%u\n", i, i);
	close(fd);
	assert_int_equal(hl_hook_rules_make(NULL, path, &rules, &err), -E2BIG);
	assert_non_null(strstr(err.text, "more than 7 presets"));
	unlink(path);
}

static void must_hold_alone(const char *const *presets)
{
	for (size_t i = 0; presets[i]; i++) {
		char hook[64];
		struct hl_hook_rules rules;
		struct hl_error err = {0};
		bool allocates = false, frees = false;
		snprintf(hook, sizeof(hook), "@%s", presets[i]);
		const char *hooks[] = {hook, "malloc=f", NULL};
		assert_int_equal(hl_hook_rules_make(hooks, "", &rules, &err), 0);
		for (size_t k = 0; k < rules.count; k++) {
			if (!rules.rules[k].holds || !rules.rules[k].preset[0])
				continue;
			assert_string_equal(rules.rules[k].preset, presets[i]);
			allocates |= rules.rules[k].call == HL_HOOK_MALLOC;
			frees |= rules.rules[k].call == HL_HOOK_FREE;
		}
		assert_true(allocates && frees);
		assert_string_equal(rules.rules[rules.count - 1].symbol, "f");
		hl_hook_rules_release(&rules);
	}
}

static void heaplines_own_presets_can_be_asked_for(void **state)
{
	static const char *const presets[] = {"jemalloc",   "rust-jemalloc", "mimalloc", "tcmalloc",
					      "postgresql", "nginx",	     "php",	 NULL};

	(void)state;
	must_hold_alone(presets);
}

/* The rule for ${symbol} of a preset. */
static struct hl_hook_rule of_preset(const char *preset, const char *symbol)
{
	struct hl_hook_rules rules = {0};
	struct hl_hook_rule found = {0};

	assert_int_equal(hl_hook_rules_make(NULL, NULL, &rules, NULL), 0);
	for (size_t i = 0; i < rules.count; i++)
		if (!strcmp(rules.rules[i].preset, preset) &&
		    !strcmp(rules.rules[i].symbol, symbol)) {
			assert_string_equal(found.symbol, "");
			found = rules.rules[i];
		}
	hl_hook_rules_release(&rules);
	return found;
}

static void functions_of_allocators_become_rules(void **state)
{
	(void)state;
	struct hl_hook_rule rule = of_preset("mimalloc", "mi_heap_recalloc");
	assert_int_equal(rule.call, HL_HOOK_REALLOC);
	assert_int_equal(rule.pointer_at, 2);
	assert_int_equal(rule.count_at, 3);
	assert_int_equal(rule.size_at, 4);
	assert_string_equal(rule.when, "mi_malloc");
	rule = of_preset("mimalloc", "mi_calloc");
	assert_int_equal(rule.call, HL_HOOK_CALLOC);
	assert_true(!rule.count_at && !rule.size_at); /* as usual */
	rule = of_preset("mimalloc", "strndup");
	assert_true(rule.is_text && rule.size_at == 1 && rule.count_at == 2);
	assert_string_equal(rule.module, "libmimalloc");
	rule = of_preset("rust-jemalloc", "_rjem_posix_memalign");
	assert_int_equal(rule.call, HL_HOOK_POSIX_MEMALIGN);
	assert_string_equal(rule.when, "_rjem_malloc");
	assert_string_equal(of_preset("jemalloc", "je_sdallocx").symbol, "je_sdallocx");
	assert_string_equal(of_preset("tcmalloc", "tc_new").symbol, ""); /* it may throw */
}

static void presets_of_guests_can_be_asked_for(void **state)
{
	(void)state;
	needs_guest("Python");
	must_hold_alone((const char *const[]){"python", NULL});
}

static void a_file_of_the_users_is_read(void **state)
{
	(void)state;
	char path[] = "/tmp/heapline-presets-XXXXXX";
	const char *hooks[] = {"@mine", NULL};
	struct hl_hook_rules rules;
	struct hl_error err = {0};

	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_true(write(fd, "preset mine\nfree=f(ptr=4)\n", 26) == 26);
	close(fd);
	assert_int_equal(hl_hook_rules_make(hooks, path, &rules, &err), 0);
	assert_int_equal(rules.rules[rules.count - 1].pointer_at, 4);
	hl_hook_rules_release(&rules);
	setenv("HEAPLINE_PRESETS", path, 1);
	assert_int_equal(hl_hook_rules_make(hooks, NULL, &rules, &err), 0);
	hl_hook_rules_release(&rules);
	unlink(path);
	assert_int_equal(hl_hook_rules_make(hooks, NULL, &rules, &err), -ENOENT);
	assert_non_null(strstr(err.text, path));
	unsetenv("HEAPLINE_PRESETS");
}

static void want_of_memory_is_reported(void **state)
{
	(void)state;
	const char *hooks[] = {"malloc=f", NULL};
	struct hl_hook_rules rules = {0};
	struct hl_error err = {0};

	FOR_EACH_FAILING_ALLOCATION(r, hl_hook_rules_make(hooks, "/dev/null", &rules, &err))
	{
		assert_int_equal(r, -ENOMEM);
		assert_true(err.text[0] && !rules.rules);
		err.text[0] = '\0';
	}
	hl_hook_rules_release(&rules);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_are_where_the_rule_says_else_as_usual),
		cmocka_unit_test(functions_are_named_by_symbol_file_or_address),
		cmocka_unit_test(what_makes_no_sense_is_refused_in_one_sentence),
		cmocka_unit_test(names_that_are_too_long_are_refused),
		cmocka_unit_test(presets_hold_where_they_say_or_when_asked_for),
		cmocka_unit_test(a_line_that_makes_no_sense_is_named),
		cmocka_unit_test(a_reset_is_of_the_pool_of_its_preset),
		cmocka_unit_test(pools_beyond_the_last_number_are_refused),
		cmocka_unit_test(heaplines_own_presets_can_be_asked_for),
		cmocka_unit_test(functions_of_allocators_become_rules),
		cmocka_unit_test(presets_of_guests_can_be_asked_for),
		cmocka_unit_test(pools_can_be_left_out_unless_they_are_asked_for),
		cmocka_unit_test(a_file_of_the_users_is_read),
		cmocka_unit_test(want_of_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
