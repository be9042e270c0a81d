/* SPDX-License-Identifier: BSD-2-Clause */
/* Fuzzes files of presets and what `--hook` takes: what is understood says the same when it is
 * written again, and what is not is refused with a sentence. */
#include "base/compiler.h"
#include "hook/entries.h"
#include "scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Writes the rule as `--hook` takes it. */
static void format(const struct hl_hook_rule *rule, char *text, size_t capacity)
{
	static const char *const calls[HL_HOOK_COUNT] = {[HL_HOOK_MALLOC] = "malloc",
							 [HL_HOOK_CALLOC] = "calloc",
							 [HL_HOOK_REALLOC] = "realloc",
							 [HL_HOOK_POSIX_MEMALIGN] =
								 "posix_memalign",
							 [HL_HOOK_FREE] = "free"};
	const struct {
		const char *name;
		int place;
	} places[] = {{rule->is_text ? "text" : "size", rule->size_at},
		      {"count", rule->count_at},
		      {"ptr", rule->pointer_at},
		      {"type", rule->type_at},
		      {"bytes", rule->size}};
	int used = snprintf(text, capacity, "%s=%s%s%s", rule->resets ? "reset" : calls[rule->call],
			    rule->module, rule->module[0] ? "!" : "", rule->symbol);
	char before = '(';

	for (size_t i = 0; i < HL_COUNT_OF(places); i++)
		if (i + 1 < HL_COUNT_OF(places) ? places[i].place != 0 : rule->has_size) {
			used += snprintf(text + used, capacity - (size_t)used, "%c%s=%d", before,
					 places[i].name, places[i].place);
			before = ',';
		}
	snprintf(text + used, capacity - (size_t)used, "%s", before == ',' ? ")" : "");
}

static void check(const struct hl_hook_rule *rule)
{
	struct hl_hook_rules rules = {0};
	char text[2 * HL_HOOK_NAME_MAX + 64];

	require(rule->size_at <= HL_HOOK_ARGUMENTS_MAX && rule->count_at <= HL_HOOK_ARGUMENTS_MAX);
	require(rule->pointer_at <= HL_HOOK_ARGUMENTS_MAX && rule->symbol[0]);
	require((strncmp(rule->symbol, "0x", 2) == 0) == (rule->address != 0));
	format(rule, text, sizeof(text));
	require(hl_hook_rules_ask(text, &rules, NULL) == 0 && rules.count == 1);
	const struct hl_hook_rule *again = &rules.rules[0];
	require(again->call == rule->call && again->address == rule->address);
	require(again->size_at == rule->size_at && again->count_at == rule->count_at);
	require(again->pointer_at == rule->pointer_at && again->resets == rule->resets);
	require(again->type_at == rule->type_at && again->is_text == rule->is_text);
	require(again->has_size == rule->has_size && again->size == rule->size);
	require(strcmp(again->symbol, rule->symbol) == 0);
	require(strcmp(again->module, rule->module) == 0);
	hl_hook_rules_release(&rules);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct hl_hook_rules rules = {0};
	struct hl_error err = {0};
	char *hook = strndup((const char *)bytes, size);

	require(hook);
	int r = hl_hook_rules_parse((const char *)bytes, size, "fuzz", &rules, &err);
	require(r == 0 || (r == -EINVAL && err.text[0] && rules.count == 0));
	for (size_t i = 0; i < rules.count; i++)
		check(&rules.rules[i]);
	err.text[0] = '\0';
	r = hl_hook_rules_ask(hook, &rules, &err);
	require(r == 0 || ((r == -EINVAL || r == -ENOENT) && err.text[0]));
	free(hook);
	hl_hook_rules_release(&rules);
	return 0;
}
