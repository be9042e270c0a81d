/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads rules for functions with names of their own; see entries.h. */
#include "hook/entries.h"

#include "allocators/traits.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "guests/traits.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PRESETS_BYTES_MAX (1u << 20)
#define EXAMPLE		  "write it as 'malloc=my_alloc(size=1)' or 'free=my_free(ptr=1)'"

/* What rules may say, and where the arguments usually are; 0: there is no such argument. */
static const struct call {
	const char *name;
	enum hl_hook hook;
	uint8_t size_at, count_at, pointer_at, type_at;
	bool has_size, is_text;
	uint16_t size;
} calls[] = {
	{"malloc", HL_HOOK_MALLOC, 1, 0, 0, 0, false, false, 0},
	{"calloc", HL_HOOK_CALLOC, 2, 1, 0, 0, false, false, 0},
	{"realloc", HL_HOOK_REALLOC, 2, 0, 1, 0, false, false, 0},
	{"posix_memalign", HL_HOOK_POSIX_MEMALIGN, 3, 0, 0, 0, false, false, 0},
	{"free", HL_HOOK_FREE, 0, 0, 1, 0, false, false, 0},
	{"reset", HL_HOOK_FREE, 0, 0, 0, 0, false, false, 0},
};

static const char out_of_memory[] = "out of memory";

struct reader {
	const char *at, *end;
};

/* ---- one line ---- */

static void skip_blanks(struct reader *reader)
{
	while (reader->at < reader->end && isspace((unsigned char)*reader->at))
		reader->at++;
}

static bool take_sign(struct reader *reader, char sign)
{
	skip_blanks(reader);
	if (reader->at == reader->end || *reader->at != sign)
		return false;
	reader->at++;
	return true;
}

/* False when none stands here, or when it is too long. */
static bool take_word(struct reader *reader, char ret_word[HL_HOOK_NAME_MAX])
{
	size_t length = 0;

	skip_blanks(reader);
	while (reader->at < reader->end && isgraph((unsigned char)*reader->at) &&
	       !strchr("=(),!", *reader->at)) {
		if (length == HL_HOOK_NAME_MAX - 1)
			return false;
		ret_word[length++] = *reader->at++;
	}
	ret_word[length] = '\0';
	return length > 0;
}

static bool is_at_end(struct reader *reader)
{
	skip_blanks(reader);
	return reader->at == reader->end;
}

static const struct call *find_call(const char *name)
{
	for (size_t i = 0; i < HL_COUNT_OF(calls); i++)
		if (strcmp(calls[i].name, name) == 0)
			return &calls[i];
	return NULL;
}

static const char *take_size(const char *number, struct call *places)
{
	char *end;

	unsigned long size = strtoul(number, &end, 10);
	if (places->hook != HL_HOOK_MALLOC)
		return "this kind of function has no such argument";
	if (!isdigit((unsigned char)*number) || *end || size > UINT16_MAX)
		return "a number of bytes is 0 to 65535";
	places->has_size = true;
	places->size = (uint16_t)size;
	return NULL;
}

/* NAME=NUMBER between the parentheses; NULL, or what is wrong. */
static const char *take_argument(struct reader *reader, struct call *places)
{
	char name[HL_HOOK_NAME_MAX], number[HL_HOOK_NAME_MAX];
	const char *unknown = "this kind of function has no such argument";
	uint8_t *place;

	if (!take_word(reader, name) || !take_sign(reader, '=') || !take_word(reader, number))
		return "arguments are written as size=1";
	if (strcmp(name, "bytes") == 0)
		return take_size(number, places);
	if (strcmp(name, "size") == 0)
		place = &places->size_at;
	else if (strcmp(name, "count") == 0)
		place = &places->count_at;
	else if (strcmp(name, "ptr") == 0)
		place = &places->pointer_at;
	else if (strcmp(name, "type") == 0)
		place = &places->type_at;
	else if (strcmp(name, "text") == 0)
		place = &places->size_at;
	else
		return "arguments are called size, bytes, count, ptr, text and type";
	if (strcmp(name, "text") == 0)
		places->is_text = true;
	bool may_count = places->is_text || places->hook == HL_HOOK_REALLOC;
	if (place == &places->type_at	 ? places->hook != HL_HOOK_REALLOC
	    : place == &places->count_at ? !*place && !may_count
					 : !*place)
		return unknown;
	if (places->is_text && places->hook != HL_HOOK_MALLOC)
		return unknown;
	if (number[1] || number[0] < '1' || number[0] > '0' + HL_HOOK_ARGUMENTS_MAX)
		return "arguments have the numbers 1 to 6";
	*place = (uint8_t)(number[0] - '0');
	return NULL;
}

static const char *take_arguments(struct reader *reader, struct call *places)
{
	const char *wrong = NULL;

	if (!take_sign(reader, '('))
		return NULL;
	do
		wrong = take_argument(reader, places);
	while (!wrong && take_sign(reader, ','));
	if (wrong)
		return wrong;
	if (!take_sign(reader, ')'))
		return "a ')' is missing";
	if ((places->size_at && places->size_at == places->count_at) ||
	    (places->size_at && places->size_at == places->pointer_at))
		return "two arguments have the same number";
	return NULL;
}

/* MODULE!NAME, with an address for the name. */
static const char *take_name(struct reader *reader, struct hl_hook_rule *rule)
{
	char *end;

	if (!take_word(reader, rule->symbol))
		return "the name of the function is missing or too long";
	if (take_sign(reader, '!')) {
		memcpy(rule->module, rule->symbol, sizeof(rule->module));
		if (!take_word(reader, rule->symbol))
			return "the name of the function is missing or too long";
	}
	if (strncmp(rule->symbol, "0x", 2) != 0)
		return NULL;
	errno = 0;
	rule->address = strtoull(rule->symbol, &end, 16);
	return errno || *end || !rule->address ? "the address is not a hexadecimal number" : NULL;
}

/* What ${rule} does: ${call}, with its arguments at ${places}. */
static void set_places(struct hl_hook_rule *rule, const struct call *call,
		       const struct call *places)
{
	rule->call = call->hook;
	rule->resets = strcmp(call->name, "reset") == 0;
	rule->size_at = places->size_at == call->size_at && !places->is_text ? 0 : places->size_at;
	rule->count_at = places->count_at == call->count_at ? 0 : places->count_at;
	rule->pointer_at = places->pointer_at == call->pointer_at ? 0 : places->pointer_at;
	rule->type_at = places->type_at;
	rule->has_size = places->has_size;
	rule->size = places->size;
	rule->is_text = places->is_text;
}

/* CALL=NAME(ARGUMENTS); NULL, or what is wrong. */
static const char *parse_rule(struct reader reader, struct hl_hook_rule *ret_rule)
{
	struct hl_hook_rule rule = {0};
	char name[HL_HOOK_NAME_MAX];

	const struct call *call = take_word(&reader, name) ? find_call(name) : NULL;
	if (!call)
		return "it does not begin with malloc, calloc, realloc, posix_memalign, free or "
		       "reset";
	if (!take_sign(&reader, '='))
		return "a '=' is missing";
	struct call places = *call;
	const char *wrong = take_name(&reader, &rule);
	if (!wrong)
		wrong = take_arguments(&reader, &places);
	if (wrong)
		return wrong;
	if (!is_at_end(&reader))
		return "something follows its end";
	set_places(&rule, call, &places);
	*ret_rule = rule;
	return NULL;
}

/* ---- files ---- */

/* "KEYWORD NAME": 1 with the name, 0 when the line is something else, -1 when it makes no sense. */
static int take_line_of(struct reader line, const char *keyword, char ret_name[HL_HOOK_NAME_MAX])
{
	char word[HL_HOOK_NAME_MAX], name[HL_HOOK_NAME_MAX];

	if (!take_word(&line, word) || strcmp(word, keyword) != 0 || take_sign(&line, '='))
		return 0;
	if (!take_word(&line, name) || !is_at_end(&line))
		return -1;
	memcpy(ret_name, name, sizeof(name));
	return 1;
}

/* Adds what ${line} says to ${rules}; ${current} has its preset. NULL, or what is wrong. */
static const char *parse_line(struct reader line, struct hl_hook_rule *current,
			      struct hl_hook_rules *rules)
{
	struct hl_hook_rule rule;

	if (is_at_end(&line))
		return NULL;
	int preset = take_line_of(line, "preset", current->preset);
	if (preset > 0)
		current->when[0] = '\0', current->is_beside = current->is_pool = false;
	int when = preset ? 0 : take_line_of(line, "when", current->when);
	if (!preset && !when) {
		when = take_line_of(line, "beside", current->when);
		current->is_beside |= when > 0;
	}
	if (!preset && !when) {
		when = take_line_of(line, "pool", current->when);
		current->is_pool |= when > 0;
	}
	if (preset < 0 || when < 0)
		return "one name must follow";
	if (when && !current->preset[0])
		return "no preset begins before it";
	if (preset || when)
		return NULL;
	const char *wrong = parse_rule(line, &rule);
	if (wrong)
		return wrong;
	memcpy(rule.preset, current->preset, sizeof(rule.preset));
	memcpy(rule.when, current->when, sizeof(rule.when));
	rule.is_beside = current->is_beside;
	rule.is_pool = current->is_pool;
	rule.holds = !rule.preset[0];
	return HL_ARRAY_APPEND(rules->rules, rules->count, rules->capacity, rule) < 0
		       ? out_of_memory
		       : NULL;
}

int hl_hook_rules_parse(const char *text, size_t length, const char *source,
			struct hl_hook_rules *rules, struct hl_error *err)
{
	struct hl_hook_rule current = {0};
	const char *end = text + length, *wrong = NULL;
	size_t before = rules->count, number = 1;

	for (; text < end && !wrong; number++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		struct reader line = {text, newline ? newline : end};
		const char *comment = memchr(text, '#', (size_t)(line.end - text));
		text = newline ? newline + 1 : end;
		if (comment)
			line.end = comment;
		wrong = parse_line(line, &current, rules);
	}
	if (!wrong)
		return 0;
	rules->count = before;
	if (wrong == out_of_memory)
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", source);
	return hl_error_set(err, -EINVAL, "cannot read line %zu of '%s': %s; " EXAMPLE, number - 1,
			    source, wrong);
}

/* ---- what is asked for ---- */

static int ask_preset(const char *name, struct hl_hook_rules *rules, struct hl_error *err)
{
	char known[512] = "";
	bool found = false;

	for (size_t i = 0; i < rules->count; i++) {
		struct hl_hook_rule *rule = &rules->rules[i];
		size_t used = strlen(known);
		if (strcmp(rule->preset, name) == 0) {
			found = true;
			rule->is_asked = rule->holds = true;
		} else if (rule->preset[0] &&
			   (i == 0 || strcmp(rule->preset, rules->rules[i - 1].preset) != 0)) {
			snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
				 rule->preset);
		}
	}
	if (found && name[0])
		return 0;
	return hl_error_set(err, -ENOENT, "there is no preset '%s'; there are %s", name, known);
}

int hl_hook_rules_ask(const char *hook, struct hl_hook_rules *rules, struct hl_error *err)
{
	struct hl_hook_rule rule;

	if (hook[0] == '@')
		return ask_preset(hook + 1, rules, err);
	const char *wrong = parse_rule((struct reader){hook, hook + strlen(hook)}, &rule);
	if (wrong)
		return hl_error_set(err, -EINVAL, "cannot understand --hook '%s': %s; " EXAMPLE,
				    hook, wrong);
	rule.is_asked = rule.holds = true;
	if (HL_ARRAY_APPEND(rules->rules, rules->count, rules->capacity, rule) < 0)
		return hl_error_set(err, -ENOMEM, "cannot add a hook: out of memory");
	return 0;
}

static int read_file(const char *path, struct hl_hook_rules *rules, struct hl_error *err)
{
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	HL_FREED char *text = malloc(PRESETS_BYTES_MAX);
	size_t length = 0;
	ssize_t got = -1;

	while (fd >= 0 && text && length < PRESETS_BYTES_MAX &&
	       (got = read(fd, text + length, PRESETS_BYTES_MAX - length)) > 0)
		length += (size_t)got;
	if (!text)
		return hl_error_set(err, -ENOMEM, "cannot read '%s': out of memory", path);
	if (got < 0)
		return hl_error_set(err, -errno, "cannot read presets from '%s': %s", path,
				    strerror(errno));
	if (length == PRESETS_BYTES_MAX)
		return hl_error_set(err, -EFBIG, "cannot read presets from '%s': it is too large",
				    path);
	return hl_hook_rules_parse(text, length, path, rules, err);
}

static int add_told(struct hl_hook_rules *rules, enum hl_rule_does tells, const char *symbol,
		    const char *when, struct hl_error *err)
{
	struct hl_hook_rule rule = {.tells = tells, .holds = true};

	snprintf(rule.symbol, sizeof(rule.symbol), "%s", symbol);
	snprintf(rule.when, sizeof(rule.when), "%s", when);
	if (HL_ARRAY_APPEND(rules->rules, rules->count, rules->capacity, rule) < 0)
		return hl_error_set(err, -ENOMEM, "cannot add a hook: out of memory");
	return 0;
}

/* What programs have of heapline.h, which objects.c finds, and what begins services. */
static int add_annotations(struct hl_hook_rules *rules, struct hl_error *err)
{
	static const struct {
		const char *symbol;
		enum hl_rule_does tells;
	} told[] = {
		{"hl_pool_alloc_here", HL_RULE_TELLS_ALLOC},
		{"hl_pool_free_here", HL_RULE_TELLS_FREE},
		{"hl_mark_here", HL_RULE_TELLS_MARK},
		{"hl_mode_here", HL_RULE_TELLS_MODE},
	};
	const struct hl_guest_traits *guest = hl_guest_host();
	int r = 0;

	for (size_t i = 0; r == 0 && i < HL_COUNT_OF(told); i++)
		r = add_told(rules, told[i].tells, told[i].symbol, HL_HOOK_ANNOTATED_WORD, err);
	if (r == 0 && guest)
		r = add_told(rules, HL_RULE_TELLS_SERVICE, guest->host->service_begins, "", err);
	return r;
}

/* The rule for ${function} of ${allocator} under the prefix of ${preset}. */
static struct hl_hook_rule rule_of(const struct hl_allocator_traits *allocator,
				   const struct hl_allocator_preset *preset,
				   const struct hl_allocator_entry *function)
{
	bool is_calloc =
		!strcmp(function->call, "malloc") && function->size_at && function->count_at;
	const struct call *call = find_call(is_calloc ? "calloc" : function->call);
	struct call places = *call;
	struct hl_hook_rule rule = {0};

	places.is_text = function->text_at != 0;
	places.size_at = places.is_text ? function->text_at : function->size_at;
	places.count_at = function->count_at;
	places.pointer_at = function->block_at;
	set_places(&rule, call, &places);
	if (function->is_of_libc)
		snprintf(rule.module, sizeof(rule.module), "%s", allocator->library);
	snprintf(rule.symbol, sizeof(rule.symbol), "%s%s",
		 function->is_of_libc ? "" : preset->prefix,
		 function->name +
			 (function->is_of_libc ? 0 : strlen(allocator->presets[0].prefix)));
	snprintf(rule.preset, sizeof(rule.preset), "%s", preset->name);
	snprintf(rule.when, sizeof(rule.when), "%s", preset->malloc);
	return rule;
}

/* No rule is for what may throw. */
static int add_functions(const struct hl_allocator_traits *allocator,
			 const struct hl_allocator_preset *preset, struct hl_hook_rules *rules,
			 struct hl_error *err)
{
	const struct hl_allocator_entry *function = allocator->functions;

	for (; preset->name && function->name; function++)
		if (!function->throws &&
		    HL_ARRAY_APPEND(rules->rules, rules->count, rules->capacity,
				    rule_of(allocator, preset, function)) < 0)
			return hl_error_set(err, -ENOMEM, "cannot add a hook: out of memory");
	return 0;
}

static int add_presets(struct hl_hook_rules *rules, struct hl_error *err)
{
	int r = 0;

	for (size_t i = 0; i < hl_allocator_count; i++)
		for (size_t k = 0; r == 0 && k < HL_ALLOCATOR_PRESETS_MAX; k++)
			r = add_functions(&hl_allocator_traits[i],
					  &hl_allocator_traits[i].presets[k], rules, err);
	if (r == 0)
		r = hl_hook_rules_parse(hl_presets, hl_presets_size, "the presets of heapline",
					rules, err);
	for (size_t i = 0; r == 0 && hl_guest_traits[i]; i++) {
		const char *presets = hl_guest_traits[i]->presets;
		if (presets)
			r = hl_hook_rules_parse(presets, strlen(presets), "the presets of heapline",
						rules, err);
	}
	return r;
}

/* Rules of a preset, and those of none, are of one pool if one of them resets it. */
static int number_pools(struct hl_hook_rules *rules, struct hl_error *err)
{
	uint8_t pools = 0;

	for (size_t i = 0; i < rules->count; i++) {
		const struct hl_hook_rule *resetting = &rules->rules[i];
		if (!resetting->resets || resetting->pool)
			continue;
		if (pools++ == HL_RULE_POOLS_MAX)
			return hl_error_set(err, -E2BIG,
					    "more than %u presets have rules for 'reset'; name "
					    "fewer in the file of --presets",
					    HL_RULE_POOLS_MAX);
		for (size_t j = 0; j < rules->count; j++)
			if (!rules->rules[j].tells &&
			    strcmp(rules->rules[j].preset, resetting->preset) == 0)
				rules->rules[j].pool = pools;
	}
	return 0;
}

int hl_hook_rules_make(const char *const *hooks, const char *presets,
		       struct hl_hook_rules *ret_rules, struct hl_error *err)
{
	struct hl_hook_rules rules = {0};

	if (!presets)
		presets = getenv("HEAPLINE_PRESETS");
	int r = add_annotations(&rules, err);
	if (r == 0)
		r = add_presets(&rules, err);
	if (r == 0 && presets && presets[0])
		r = read_file(presets, &rules, err);
	for (; r == 0 && hooks && *hooks; hooks++)
		r = hl_hook_rules_ask(*hooks, &rules, err);
	if (r == 0)
		r = number_pools(&rules, err);
	if (r < 0)
		hl_hook_rules_release(&rules);
	else
		*ret_rules = rules;
	return r;
}

static bool is_of_preset(const struct hl_hook_rule *rule, const char *preset)
{
	return preset ? strcmp(rule->preset, preset) == 0 : rule->is_pool;
}

/* ${preset}: NULL for all of pools. */
static void leave_out(struct hl_hook_rules *rules, const char *preset)
{
	size_t kept = 0;

	for (size_t i = 0; i < rules->count; i++)
		if (rules->rules[i].is_asked || !is_of_preset(&rules->rules[i], preset))
			rules->rules[kept++] = rules->rules[i];
	rules->count = kept;
}

void hl_hook_rules_leave_out(struct hl_hook_rules *rules, const char *preset)
{
	leave_out(rules, preset);
}

void hl_hook_rules_leave_out_pools(struct hl_hook_rules *rules)
{
	leave_out(rules, NULL);
}

void hl_hook_rules_release(struct hl_hook_rules *rules)
{
	free(rules->rules);
	*rules = (struct hl_hook_rules){0};
}
