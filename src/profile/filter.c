/* SPDX-License-Identifier: BSD-2-Clause */
/* Marks frames by regular expressions, then rebuilds the tree of what is left; see filter.h. */
#include "profile/filter.h"

#include "base/cleanup.h"
#include "base/frame_key.h"
#include "guests/traits.h"
#include "profile/builder.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one expression ---- */

/*
 * Bounds on regular expressions; see filter.h. libc compiles by recursion, one level for each
 * parenthesis, writes what is repeated as often as it may come, and needs memory by the square of
 * what then stands there: a few letters from a user could take gigabytes.
 */

#define LENGTH_MAX     1024
#define NESTING_MAX    64
#define REPETITION_MAX 255  /* what POSIX promises, RE_DUP_MAX */
#define WRITTEN_MAX    4096 /* letters once all repetitions are written out; about 100 MB */
#define SHOWN_LETTERS  40

/* What an expression comes to when its repetitions are written out. */
struct measure {
	const char *at;
	size_t written[NESTING_MAX + 1]; /* by level: letters since its parenthesis */
	size_t last;			 /* of those, what a repetition that follows repeats */
	size_t depth;
};

/* Behind "[...]", or the end. */
static const char *skip_bracket(const char *at)
{
	at += 1 + (at[1] == '^');
	at += *at == ']'; /* comes first: a letter */
	while (*at && *at != ']') {
		const char *end = NULL;
		if (*at == '[' && at[1] && strchr(":.=", at[1])) /* as in "[:alpha:]" */
			end = strstr(at + 2, ((char[]){at[1], ']', '\0'}));
		at = end ? end + 2 : at + 1;
	}
	return at + (*at == ']');
}

static void add(struct measure *measure, size_t letters)
{
	measure->last = letters;
	measure->written[measure->depth] += letters;
}

/* Writes what stood last out ${times} times in all. */
static void repeat(struct measure *measure, size_t times)
{
	size_t more = measure->last * (times - 1);

	measure->last += more;
	measure->written[measure->depth] += more;
}

/* Goes on by one letter, or by what else stands there. NULL, or what is wrong. */
static const char *measure_next(struct measure *measure)
{
	unsigned long first, last = 0;
	char *end;

	switch (*measure->at) {
	case '(':
		if (measure->depth == NESTING_MAX)
			return "its parentheses are nested more than 64 deep";
		measure->written[++measure->depth] = 1;
		measure->at++;
		return NULL;
	case ')':
		if (measure->depth) {
			size_t written = measure->written[measure->depth--];
			add(measure, written);
		}
		measure->at++;
		return NULL;
	case '{': /* "{2}", "{2,}", "{,5}", "{2,5}": libc judges everything else */
		end = (char *)measure->at + 1;
		first = isdigit((unsigned char)*end) ? strtoul(end, &end, 10) : 0;
		if (*end == ',')
			last = isdigit((unsigned char)*++end) ? strtoul(end, &end, 10) : 0;
		measure->at = end + (*end == '}');
		if (first > REPETITION_MAX || last > REPETITION_MAX)
			return "it repeats something more than 255 times";
		repeat(measure, (first > last ? first : last) + 1);
		return NULL;
	case '+': /* "a+" is written as "aa*" */
		measure->at++;
		repeat(measure, 2);
		return NULL;
	case '*':
	case '?':
		measure->at++;
		return NULL;
	case '[':
		measure->at = skip_bracket(measure->at);
		break;
	case '\\':
		measure->at += 1 + (measure->at[1] != '\0');
		break;
	default:
		measure->at++;
	}
	add(measure, 1);
	return NULL;
}

int hl_expression_compile(const char *text, const char *origin, regex_t *expression,
			  struct hl_error *err)
{
	struct measure measure = {.at = text};
	const char *excess = NULL; /* why ${text} is not given to libc */
	char reason[128];
	bool is_short = strlen(text) <= SHOWN_LETTERS;

	if (strlen(text) > LENGTH_MAX)
		excess = "it is longer than 1,024 bytes";
	while (!excess && *measure.at) {
		excess = measure_next(&measure);
		if (!excess && measure.written[measure.depth] > WRITTEN_MAX)
			excess = "its repetitions make it too large";
	}
	if (!excess) {
		int r = regcomp(expression, text, REG_EXTENDED | REG_NOSUB);
		if (r == 0)
			return 0;
		if (r == REG_ESPACE)
			return -ENOMEM;
		regerror(r, expression, reason, sizeof(reason));
	}
	return hl_error_set(err, -EINVAL, "bad expression '%.*s%s'%s: %s", SHOWN_LETTERS, text,
			    is_short ? "" : "...", origin, excess ? excess : reason);
}

/* ---- all of a filter ---- */

enum role {
	FOCUS,
	IGNORE,
	HIDE,
	TYPE,
	SERVICE,
	ROLE_COUNT,
};

static const char *const role_names[ROLE_COUNT] = {"focus", "ignore", "hide", "type", "service"};

#define EXPRESSIONS_MAX (ROLE_COUNT * HL_FILTER_EXPRESSIONS_MAX)

static_assert(EXPRESSIONS_MAX < 64, "each has a bit of a mark");

/* A mark of ages that are high enough. */
#define SURVIVED (UINT64_C(1) << 63)

struct expression {
	enum role role;
	const char *text;
	regex_t compiled;
};

struct expressions {
	struct expression each[EXPRESSIONS_MAX];
	size_t count;
	uint64_t bits[ROLE_COUNT]; /* of the expressions of each role: 1 << index */
};

struct filtering {
	struct hl_profile *profile;
	struct expressions expressions;
	const struct hl_filter *filter;
	uint64_t *marks; /* by frame: the bits of what matches it */
	bool *chosen;	 /* by node: its stack is chosen */
};

/* ---- expressions ---- */

static int compile_all(struct expressions *expressions, const struct hl_filter *filter,
		       struct hl_error *err)
{
	const char *const *const texts[ROLE_COUNT] = {filter->focus, filter->ignore, filter->hide,
						      filter->type, filter->service};
	char origin[32];

	for (unsigned role = 0; role < ROLE_COUNT; role++) {
		snprintf(origin, sizeof(origin), " of --%s", role_names[role]);
		for (size_t i = 0; i < HL_FILTER_EXPRESSIONS_MAX && texts[role][i]; i++) {
			struct expression *expression = &expressions->each[expressions->count];
			int r = hl_expression_compile(texts[role][i], origin, &expression->compiled,
						      err);
			if (r < 0)
				return r;
			expression->role = (enum role)role;
			expression->text = texts[role][i];
			expressions->bits[role] |= UINT64_C(1) << expressions->count++;
		}
	}
	return 0;
}

static void release_filtering(struct filtering *filtering)
{
	for (size_t i = 0; i < filtering->expressions.count; i++)
		regfree(&filtering->expressions.each[i].compiled);
	free(filtering->marks);
	free(filtering->chosen);
}

int hl_filter_check(const struct hl_filter *filter, struct hl_error *err)
{
	HL_CLEANUP(release_filtering) struct filtering filtering = {0};
	int r = compile_all(&filtering.expressions, filter, err);

	for (size_t i = 0; r == 0 && filter->plumbing_also[i]; i++) {
		regex_t expression;
		r = hl_expression_compile(filter->plumbing_also[i], " of --plumbing-also",
					  &expression, err);
		if (r == 0)
			regfree(&expression);
	}
	return r;
}

/* ---- frames ---- */

static bool matches(const regex_t *expression, const struct hl_profile *profile, uint32_t text)
{
	return text && regexec(expression, hl_profile_text(profile, text), 0, NULL, 0) == 0;
}

/* Expressions for labels say nothing of frames, nor others of labels. */
static bool matches_label(const struct expression *expression, const struct hl_profile *profile,
			  const struct hl_profile_frame *frame)
{
	return (expression->role == TYPE      ? frame->part == HL_PART_TYPE
		: expression->role == SERVICE ? frame->part == HL_PART_SERVICE
					      : false) &&
	       matches(&expression->compiled, profile, profile->functions[frame->function].name);
}

/* How many collections the blocks of label ${frame} have outlived. */
static uint64_t age_of(const struct hl_profile *profile, const struct hl_profile_frame *frame)
{
	return strtoull(hl_profile_text(profile, profile->functions[frame->function].name), NULL,
			10);
}

/* Functions first: they are fewer than frames. */
static int mark_frames(struct filtering *filtering)
{
	const struct hl_profile *profile = filtering->profile;
	const struct expression *each = filtering->expressions.each;
	HL_FREED uint64_t *function_marks =
		calloc(profile->function_count, sizeof(*function_marks));

	filtering->marks = calloc(profile->frame_count, sizeof(*filtering->marks));
	if (!function_marks || !filtering->marks)
		return -ENOMEM;
	for (size_t index = 0; index < filtering->expressions.count; index++) {
		const regex_t *expression = &each[index].compiled;
		uint64_t bit = UINT64_C(1) << index;
		for (size_t i = 1; i < profile->function_count; i++) {
			const struct hl_profile_function *function = &profile->functions[i];
			if (matches(expression, profile, function->name) ||
			    matches(expression, profile, function->file) ||
			    matches(expression, profile, profile->modules[function->module].path))
				function_marks[i] |= bit;
		}
		for (size_t i = 1; i < profile->frame_count; i++) {
			const struct hl_profile_frame *frame = &profile->frames[i];
			bool is_label = hl_frame_part_is_label(frame->part);
			if (is_label || each[index].role >= TYPE
				    ? matches_label(&each[index], profile, frame)
				    : function_marks[frame->function] & bit ||
					      matches(expression, profile, frame->file))
				filtering->marks[i] |= bit;
		}
	}
	for (size_t i = 1; filtering->filter->survived && i < profile->frame_count; i++)
		if (profile->frames[i].part == HL_PART_AGE &&
		    age_of(profile, &profile->frames[i]) >= filtering->filter->survived)
			filtering->marks[i] |= SURVIVED;
	return 0;
}

/* ---- stacks ---- */

static uint64_t marks_of(const struct filtering *filtering, uint32_t node)
{
	return filtering->marks[filtering->profile->nodes[node].frame];
}

static bool is_hidden(const struct filtering *filtering, uint32_t node)
{
	const struct hl_filter *filter = filtering->filter;
	uint8_t part = filtering->profile->frames[filtering->profile->nodes[node].frame].part;

	return marks_of(filtering, node) & filtering->expressions.bits[HIDE] ||
	       (part != filter->root && (filter->root_alone || hl_frame_part_is_label(part)));
}

/* A stack bears the marks of all its frames. */
static int choose_stacks(struct filtering *filtering)
{
	const struct hl_profile *profile = filtering->profile;
	const uint64_t *bits = filtering->expressions.bits;
	const uint64_t wanted = bits[FOCUS] | bits[TYPE] | bits[SERVICE] |
				(filtering->filter->survived ? SURVIVED : 0);
	HL_FREED uint64_t *marks = calloc(profile->node_count, sizeof(*marks));

	filtering->chosen = calloc(profile->node_count, sizeof(*filtering->chosen));
	if (!marks || !filtering->chosen)
		return -ENOMEM;
	for (uint32_t i = 0; i < profile->node_count; i++) {
		if (i)
			marks[i] = marks[profile->nodes[i].parent] | marks_of(filtering, i);
		filtering->chosen[i] = (marks[i] & wanted) == wanted && !(marks[i] & bits[IGNORE]);
	}
	return 0;
}

/* Of how many requests the chosen blocks are; labels of one request have one name. */
static int count_requests(struct filtering *filtering)
{
	struct hl_profile *profile = filtering->profile;
	HL_FREED uint32_t *requests = calloc(profile->node_count, sizeof(*requests));
	HL_FREED bool *seen = calloc(profile->function_count + 1, sizeof(*seen));

	if (!requests || !seen)
		return -ENOMEM;
	for (size_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[profile->nodes[i].frame];
		uint32_t text = profile->functions[frame->function].name;
		bool is_request = frame->part == HL_PART_AGE &&
				  strstr(hl_profile_text(profile, text), HL_AGE_REQUEST);
		requests[i] = is_request ? frame->function : requests[profile->nodes[i].parent];
		if (requests[i] && !seen[requests[i]] && filtering->chosen[i] &&
		    hl_profile_figure(&profile->counters[i], HL_VALUE_INUSE, HL_UNIT_OBJECTS) > 0) {
			seen[requests[i]] = true;
			profile->requests++;
		}
	}
	return 0;
}

/* Builds the tree of the chosen stacks, without hidden frames, and moves the profile to it. */
static int rebuild(struct filtering *filtering, const struct hl_node_ids *follow)
{
	struct hl_profile *profile = filtering->profile, *tree;
	HL_CLEANUP(hl_builder_release) struct hl_builder builder = {0};
	HL_FREED bool *kept = calloc(profile->node_count, sizeof(*kept));
	HL_FREED uint32_t *new_node = calloc(profile->node_count, sizeof(*new_node));
	HL_FREED uint32_t *final_ids = NULL;

	if (!kept || !new_node || hl_builder_init(&builder) < 0)
		return -ENOMEM;
	for (size_t i = profile->node_count; i-- > 1;) {
		kept[i] = kept[i] || filtering->chosen[i];
		if (kept[i])
			kept[profile->nodes[i].parent] = true;
	}
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint32_t parent = new_node[profile->nodes[i].parent];
		new_node[i] = parent;
		if (kept[i] && !is_hidden(filtering, i) &&
		    hl_builder_child(&builder, parent, profile->nodes[i].frame, &new_node[i]) < 0)
			return -ENOMEM;
	}
	if (hl_builder_finish(&builder, &final_ids, &tree) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < profile->node_count; i++)
		new_node[i] = final_ids[new_node[i]];
	int r = hl_retree(profile, HL_TAKE(tree->nodes), tree->node_count, new_node,
			  hl_filter_has_expressions(filtering->filter) ? filtering->chosen : NULL,
			  follow);
	hl_profile_free(tree);
	return r;
}

/* ---- all of it ---- */

/* "focus 'parse', hide 'malloc'" */
static int describe(struct filtering *filtering)
{
	char *clause = NULL;
	size_t size;
	FILE *out = open_memstream(&clause, &size);
	const char *separator = "";

	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < filtering->expressions.count; i++) {
		const struct expression *expression = &filtering->expressions.each[i];
		fprintf(out, "%s%s '%s'", separator, role_names[expression->role],
			expression->text);
		separator = ", ";
	}
	if (filtering->filter->survived)
		fprintf(out, "%ssurvived %llu", separator,
			(unsigned long long)filtering->filter->survived);
	int r = fclose(out) == 0 ? hl_strings_intern(&filtering->profile->strings, clause,
						     &filtering->profile->filter)
				 : -ENOMEM;
	free(clause);
	return r;
}

bool hl_filter_has_expressions(const struct hl_filter *filter)
{
	return filter->focus[0] || filter->ignore[0] || filter->hide[0] || filter->type[0] ||
	       filter->service[0] || filter->survived;
}

static bool has_labels(const struct hl_profile *profile)
{
	for (size_t i = 1; i < profile->frame_count; i++)
		if (hl_frame_part_is_label(profile->frames[i].part))
			return true;
	return false;
}

/* Types that the recorder knew count what was freed and the peak as well; those that were read from the process do not. */
static int look_at_types(struct hl_profile *profile)
{
	HL_FREED bool *typed = calloc(profile->node_count, sizeof(*typed));

	if (!typed)
		return -ENOMEM;
	profile->has_no_types = profile->has_types_of_inuse = true;
	for (size_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_node *node = &profile->nodes[i];
		typed[i] = typed[node->parent] || profile->frames[node->frame].part == HL_PART_TYPE;
		if (!typed[i])
			continue;
		profile->has_no_types = false;
		if (profile->counters[i].free_objects || profile->counters[i].peak_objects)
			profile->has_types_of_inuse = false;
	}
	profile->has_types_of_inuse = profile->has_types_of_inuse && !profile->has_no_types;
	return 0;
}

/* Without ages it is not known what has outlived a collection. */
static int look_at_ages(struct hl_profile *profile, struct hl_error *err)
{
	bool has_ages = false;
	char ages[HL_GUEST_AGES_MAX];

	for (size_t i = 1; i < profile->frame_count; i++) {
		if (profile->frames[i].part != HL_PART_AGE)
			continue;
		has_ages = true;
		profile->has_generations |=
			strstr(hl_profile_text(
				       profile,
				       profile->functions[profile->frames[i].function].name),
			       HL_AGE_GENERATIONS) != NULL;
	}
	return has_ages ? 0
			: hl_error_set(
				  err, -ENODATA,
				  "'%s' does not say which %s its blocks have outlived, which is "
				  "read while a program runs: record it, and look at the "
				  "recording before its end, "
				  "make a snapshot by 'heapline ctl snapshot', or let "
				  "'heapline attach' end first",
				  hl_profile_text(profile, profile->name), hl_guest_ages(ages));
}

/* Blocks that were labelled in the end have no other value with the label. */
static void know_inuse_alone(struct hl_profile *profile)
{
	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; value != HL_VALUE_INUSE && unit < HL_UNIT_COUNT; unit++)
			profile->known[value][unit] = false;
}

int hl_filter_apply(const struct hl_filter *filter, struct hl_profile *profile,
		    const struct hl_node_ids *follow, struct hl_error *err)
{
	HL_CLEANUP(release_filtering)
	struct filtering filtering = {.profile = profile, .filter = filter};
	int r = hl_splice(profile, filter->stack, filter->fold_plumbing, follow);

	if (r == 0 && filter->fold_plumbing)
		r = hl_plumbing_fold(profile, filter->plumbing_also, follow);
	if (r == 0 && hl_filter_asks_types(filter))
		r = look_at_types(profile);
	profile->asks_survivors = filter->survived > 0;
	if (r == 0 && filter->survived)
		r = look_at_ages(profile, err);
	if (r == 0 && (filter->survived || (filter->type[0] && profile->has_types_of_inuse)))
		know_inuse_alone(profile);
	if (r == 0 &&
	    (hl_filter_has_expressions(filter) || filter->root_alone || has_labels(profile))) {
		r = compile_all(&filtering.expressions, filter, err);
		if (r == 0)
			r = mark_frames(&filtering);
		if (r == 0)
			r = choose_stacks(&filtering);
		if (r == 0 && filter->survived)
			r = count_requests(&filtering);
		if (r == 0)
			r = rebuild(&filtering, follow);
		if (r == 0 && hl_filter_has_expressions(filter))
			r = describe(&filtering);
	}
	if (r == 0 && filter->fold_plumbing && filter->hide[0])
		r = hl_plumbing_fold(profile, filter->plumbing_also,
				     follow); /* what stood above a hidden frame */
	if (r == -ENOMEM)
		hl_error_set(err, r, "cannot filter '%s': out of memory",
			     hl_profile_text(profile, profile->name));
	return r;
}
