/* SPDX-License-Identifier: BSD-2-Clause */
/* The verdict: a table of rules, of which the first that holds decides, and what belongs to each; see why.h. */
#include "why/why.h"

#include "base/compiler.h"
#include "view/format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define BYTES(number) hl_format_bytes((number), (char[HL_FORMAT_MAX]){""})

const char *const hl_why_cause_keys[] = {
	[HL_WHY_LEAK] = "leak",
	[HL_WHY_CACHE] = "cache",
	[HL_WHY_RETENTION] = "retention",
	[HL_WHY_FRAGMENTATION] = "fragmentation",
	[HL_WHY_WASTE] = "waste",
	[HL_WHY_PAGE_CACHE] = "page-cache",
	[HL_WHY_NEIGHBOUR] = "another-process",
	[HL_WHY_GROWTH] = "growth",
	[HL_WHY_USUAL] = "nothing-unusual",
	[HL_WHY_UNKNOWN] = "unknown",
};

const char *const hl_why_certainty_keys[] = {
	[HL_WHY_CERTAIN] = "certain", [HL_WHY_LIKELY] = "likely", [HL_WHY_POSSIBLE] = "possible"};

/* ---- thresholds, named so that one can disagree ---- */

#define GROWN_BYTES_MIN	   (64 << 10)  /* recorded: it is exact */
#define GAIN_BYTES_MIN	   (256 << 10) /* of a process as a whole */
#define GAIN_SHARE	   500	       /* or this part of it, if that is more */
#define LOST_BLOCKS_MIN	   8
#define WASTE_BYTES_MIN	   (1 << 20)
#define WASTE_SHARE	   10 /* of RSS, at least this part */
#define FULL_SHARE_PERCENT 70 /* of its limit: the group is nearly full */
#define UNSCANNED_SHARE	   10 /* of the heap: the figures are doubtful */
#define HEADER_SHARE	   6  /* of RSS: blocks have less than 48 bytes */
#define COLD_SHARE	   2  /* of RSS */

/* ---- what rules ask ---- */

static int64_t least_gain(const struct hl_why_facts *facts)
{
	int64_t share = facts->rss.after / GAIN_SHARE;

	return share > GAIN_BYTES_MIN ? share : GAIN_BYTES_MIN;
}

/* Private memory, without heapline's recorder. */
static int64_t private_gain(const struct hl_why_facts *facts)
{
	return hl_why_gain(&facts->live) + hl_why_gain(&facts->free) + hl_why_gain(&facts->other);
}

static int64_t gain_of(const struct hl_why_facts *facts)
{
	int64_t gain = facts->has_heap ? private_gain(facts) : hl_why_gain(&facts->rss);

	return gain > facts->own_gain ? gain : facts->own_gain;
}

static bool has_grown(const struct hl_why_facts *facts)
{
	return gain_of(facts) >= least_gain(facts);
}

static int64_t live_gain(const struct hl_why_facts *facts)
{
	int64_t resident = hl_why_gain(&facts->live), in_use = hl_why_gain(&facts->in_use);

	return resident > in_use ? resident : in_use;
}

/* A stack grew, and the process with it: otherwise it may have filled memory that was free, which the heap's walk sees. */
static bool has_grower(const struct hl_why_facts *facts)
{
	int64_t seen = live_gain(facts) + hl_why_gain(&facts->other);

	if (!facts->source || facts->grown_bytes < GROWN_BYTES_MIN)
		return false;
	return seen >= facts->grown_bytes / 4 || has_grown(facts);
}

/* Figures that are not exact; a runtime may keep pointers in a form that is not an address. */
static bool is_doubtful(const struct hl_why_facts *facts)
{
	return facts->lost_events > 0 || facts->is_script ||
	       facts->unscanned > facts->heap_bytes / UNSCANNED_SHARE;
}

static bool loses_what_grows(const struct hl_why_facts *facts)
{
	return has_grower(facts) && facts->grower_lost_bytes >= facts->grown_bytes / 2 &&
	       facts->grower_lost_blocks >= LOST_BLOCKS_MIN;
}

static bool loses_for_certain(const struct hl_why_facts *facts)
{
	return loses_what_grows(facts) && !is_doubtful(facts);
}

static bool lost_much_meanwhile(const struct hl_why_facts *facts)
{
	int64_t gain = hl_why_gain(&facts->live);

	return facts->has_leaks && gain >= least_gain(facts) && facts->lost_bytes >= gain / 2 &&
	       facts->grower_lost_bytes == 0 &&
	       (!facts->source || !strcmp(facts->source, "stacks") ||
		facts->lost_bytes >= facts->live.after / 2);
}

static bool neighbour_gains_more(const struct hl_why_facts *facts)
{
	return facts->neighbour && facts->neighbour_gain >= GAIN_BYTES_MIN &&
	       facts->neighbour_gain >= 2 * gain_of(facts) &&
	       facts->neighbour_gain > hl_why_gain(&facts->cache);
}

/* A process that was asked about, and grows by a line of its own, is judged by that: who gains more beside it may do so for a moment. */
static bool neighbour_grows(const struct hl_why_facts *facts)
{
	return neighbour_gains_more(facts) && (facts->asks_group || !has_grower(facts));
}

static bool is_nearly_full(const struct hl_why_facts *facts)
{
	return facts->limit > 0 && facts->usage.after / FULL_SHARE_PERCENT >= facts->limit / 100;
}

/* Most of the group is page cache, and that grows, or nothing else does where the group is asked about or nearly full. */
static bool has_page_cache(const struct hl_why_facts *facts)
{
	int64_t gain = hl_why_gain(&facts->cache);

	if (!facts->has_group || facts->cache.after < facts->usage.after / 2)
		return false;
	if (gain >= GAIN_BYTES_MIN && gain > gain_of(facts))
		return true;
	return (facts->asks_group || is_nearly_full(facts)) && !has_grown(facts);
}

static bool memory_file_grows(const struct hl_why_facts *facts)
{
	int64_t own = hl_why_gain(&facts->shared), group = hl_why_gain(&facts->group_shared);
	int64_t gain = own > group ? own : group;

	return gain >= least_gain(facts) && gain > gain_of(facts);
}

/* What grew is still reached: the allocator's heap has it, and little of that is lost. */
static bool reaches_what_grows(const struct hl_why_facts *facts)
{
	bool is_by_stack = facts->source && !strcmp(facts->source, "attach");
	int64_t lost = is_by_stack ? facts->grower_lost_bytes : facts->lost_bytes;

	return has_grower(facts) && facts->has_leaks && strcmp(facts->source, "pgfault") != 0 &&
	       live_gain(facts) >= facts->grown_bytes / 2 && lost < facts->grown_bytes / 4;
}

static bool holds_what_grows(const struct hl_why_facts *facts)
{
	return reaches_what_grows(facts) && facts->holder[0];
}

/* Of a language that frees by itself, in memory that its runtime cuts up. */
static bool runtime_keeps(const struct hl_why_facts *facts)
{
	return has_grower(facts) && facts->is_script;
}

static bool free_memory_grows(const struct hl_why_facts *facts)
{
	return has_grown(facts) && hl_why_gain(&facts->free) > gain_of(facts) / 2;
}

static bool pins_what_grows(const struct hl_why_facts *facts)
{
	return free_memory_grows(facts) && facts->pinned_bytes > facts->returnable_bytes;
}

static bool retains_what_grows(const struct hl_why_facts *facts)
{
	return free_memory_grows(facts) && !pins_what_grows(facts);
}

/* A collector moves these objects: the first to touch a page is the collector, and the caller that keeps them is another. */
static bool collector_keeps(const struct hl_why_facts *facts)
{
	return facts->is_collected && !facts->is_script && has_grown(facts) &&
	       facts->grown_part_bytes >= gain_of(facts) / 2;
}

static bool touches_more(const struct hl_why_facts *facts)
{
	return has_grower(facts) && !strcmp(facts->source, "pgfault");
}

static bool touches_profiled(const struct hl_why_facts *facts)
{
	return touches_more(facts) && facts->profiles;
}

/* Before a process ended, of which no second look tells how much it grew. */
static bool grew_until_end(const struct hl_why_facts *facts)
{
	return facts->has_ended && facts->source && facts->grown_bytes >= GROWN_BYTES_MIN;
}

static bool grows(const struct hl_why_facts *facts)
{
	return has_grown(facts) || memory_file_grows(facts);
}

static bool has_lost_much(const struct hl_why_facts *facts)
{
	return facts->has_leaks && facts->lost_bytes >= WASTE_BYTES_MIN &&
	       facts->lost_bytes >= facts->live.after / WASTE_SHARE;
}

static bool wastes(const struct hl_why_facts *facts, const char *kind, int64_t bytes)
{
	return facts->has_heap && strstr(facts->kind, kind) && bytes >= WASTE_BYTES_MIN &&
	       bytes >= facts->rss.after / WASTE_SHARE;
}

static bool is_fragmented(const struct hl_why_facts *facts)
{
	return wastes(facts, "fragmentation", facts->pinned_bytes) &&
	       facts->pinned_bytes > facts->returnable_bytes;
}

static bool is_retained(const struct hl_why_facts *facts)
{
	return wastes(facts, "retention", facts->returnable_bytes);
}

static bool has_many_headers(const struct hl_why_facts *facts)
{
	return wastes(facts, "", facts->header_bytes) &&
	       facts->header_bytes >= facts->rss.after / HEADER_SHARE;
}

/* A recording without a grower, or nothing that runs, and a heap that was read. */
static bool is_usual(const struct hl_why_facts *facts)
{
	return facts->has_heap && strcmp(facts->kind, "unknown") != 0 &&
	       strcmp(facts->kind, "free") != 0 &&
	       (facts->grown_bytes < facts->rss.after / WASTE_SHARE || !facts->source);
}

static bool is_cold(const struct hl_why_facts *facts)
{
	return is_usual(facts) && facts->cold_bytes >= WASTE_BYTES_MIN &&
	       facts->cold_bytes >= facts->rss.after / COLD_SHARE;
}

static bool is_stopped(const struct hl_why_facts *facts)
{
	return facts->is_stopped;
}

static bool is_forbidden(const struct hl_why_facts *facts)
{
	return facts->is_forbidden && !facts->has_heap;
}

static bool always(const struct hl_why_facts *facts)
{
	(void)facts;
	return true;
}

/* ---- the table ---- */

/* In sentences: %l the line, %o how the program itself reports who allocates, %f the grower's leaf, %h the holder, %v holds, %n the neighbour, %m the file in memory, %p the part that grew, %g the group, %u what
 * returns free memory, %t "-p 4711", %i the neighbour's number; bytes: %G grown a second, %B gained, %O by the part that grew, %L lost, %C page cache, %N gained by the
 * neighbour, %P pinned, %R returnable, %H headers, %K not touched. */
/* clang-format off */
static const struct rule {
	enum hl_why_cause cause;
	enum hl_why_certainty certainty;
	bool (*holds)(const struct hl_why_facts *facts);
	const char *sentence, *remedy, *next;
} rules[] = {
	{HL_WHY_NEIGHBOUR, HL_WHY_CERTAIN, neighbour_grows,
	 "not this process: %n of the same control group gained %N meanwhile, this one %B",
	 "look at that process: it takes the group's memory", "heapline why -p %i"},
	{HL_WHY_LEAK, HL_WHY_CERTAIN, loses_for_certain,
	 "%l leaks %G a second: nothing in the process leads to these blocks any more",
	 "free what %f allocates: no cache has these blocks, so no limit helps", "heapline leaks %t"},
	{HL_WHY_LEAK, HL_WHY_LIKELY, loses_what_grows,
	 "%l leaks %G a second: nothing was found that leads to these blocks",
	 "free what %f allocates, unless it is reached by a pointer in another form", "heapline leaks %t"},
	{HL_WHY_LEAK, HL_WHY_LIKELY, lost_much_meanwhile,
	 "live blocks grew by %B, and %L are lost, nothing leads to them any more; %l allocated most meanwhile",
	 "free them where they are allocated", "heapline leaks %t"},
	{HL_WHY_PAGE_CACHE, HL_WHY_CERTAIN, has_page_cache,
	 "page cache: %C of what %g is charged with are pages of files, which the kernel takes back by itself when the group needs memory",
	 "nothing, as long as no process is killed; an alarm on usage should leave page cache out", "heapline pod %t"},
	{HL_WHY_GROWTH, HL_WHY_LIKELY, memory_file_grows,
	 "a file in memory grows, %m: it counts like memory of the process, and the kernel cannot take it back",
	 "remove or truncate it, or write it to a disk", "heapline pod %t"},
	{HL_WHY_GROWTH, HL_WHY_POSSIBLE, collector_keeps,
	 "%p grow, by %O: in use, or garbage that waits for a collection; the collector moves them, so no native line tells who keeps them",
	 "list them by type with the runtime's own tool, which 'heapline heap' names, twice, and compare", "heapline heap %t"},
	{HL_WHY_CACHE, HL_WHY_LIKELY, holds_what_grows,
	 "%l keeps %G a second, still held by %h: a cache without bound, or what is never removed from there",
	 "bound what %h %v, or remove from it what is not needed any more", "heapline holders %t"},
	{HL_WHY_CACHE, HL_WHY_LIKELY, reaches_what_grows,
	 "%l keeps %G a second, and the process still reaches it: a cache without bound, or what is never removed",
	 "bound what %l fills, or remove from it what is not needed any more", "heapline holders %t"},
	{HL_WHY_CACHE, HL_WHY_POSSIBLE, runtime_keeps,
	 "%l keeps %G a second that the runtime has not freed: something refers to it still, or it waits for a collection",
	 "bound what refers to what %l makes; a longer look (--for 60) tells garbage from what stays", "heapline growth %t 60"},
	{HL_WHY_FRAGMENTATION, HL_WHY_LIKELY, pins_what_grows,
	 "free memory grows, not what is live: live blocks between keep %P of free memory in RAM",
	 "allocate what lives long apart from what lives short", "heapline pins %t"},
	{HL_WHY_RETENTION, HL_WHY_LIKELY, retains_what_grows,
	 "free memory grows, not what is live: the allocator keeps what was freed for the next requests",
	 "%u returns it, if the program calls it", "heapline heap %t --arenas"},
	{HL_WHY_GROWTH, HL_WHY_LIKELY, touches_profiled,
	 "%l fills %G a second of memory that had not been used before; whether it is a leak or a cache is not known",
	 "drop what refers to what is not needed any more: %o, and say what is in use", "heapline pgfault %t 60"},
	{HL_WHY_GROWTH, HL_WHY_LIKELY, touches_more,
	 "%l fills %G a second of memory that had not been used before; whether it is a leak or a cache is not known",
	 "free or unmap it where it is not needed any more", "heapline pgfault %t 60"},
	{HL_WHY_GROWTH, HL_WHY_LIKELY, has_grower,
	 "%l keeps %G a second; whether it is a leak or a cache is not known",
	 "free or unmap it where it is not needed any more", "heapline growth %t 60"},
	{HL_WHY_GROWTH, HL_WHY_POSSIBLE, grew_until_end,
	 "%l kept %G a second until the process ended; whether it is a leak or a cache is not known",
	 "look at the next one for longer, or record it from its start", "heapline growth %t 60"},
	{HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, is_forbidden,
	 "you may not look into the process: it is another user's, or has more rights than you",
	 "ask as root, or with the capabilities that doctor names", "heapline doctor %t"},
	{HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, grows,
	 "it gained %B, most of it %p, and no line was found that did it",
	 "look longer, or at the part that grew", "heapline heap %t"},
	{HL_WHY_LEAK, HL_WHY_LIKELY, has_lost_much,
	 "%L of its live blocks are lost, nothing leads to them any more; nothing grew in this time",
	 "let it work as it did when it grew, and look again", "heapline leaks %t"},
	{HL_WHY_FRAGMENTATION, HL_WHY_CERTAIN, is_fragmented,
	 "%P of free memory stay in RAM, because live blocks lie between; nothing grew in this time",
	 "allocate what lives long apart from what lives short; a restart helps meanwhile", "heapline pins %t"},
	{HL_WHY_RETENTION, HL_WHY_CERTAIN, is_retained,
	 "%R were freed and not returned to the kernel; nothing grew in this time",
	 "%u returns it, if the program calls it; the next requests use it again", "heapline heap %t --arenas"},
	{HL_WHY_WASTE, HL_WHY_CERTAIN, has_many_headers,
	 "%H are the allocator's headers of its blocks, of which there are many small ones; nothing grew in this time",
	 "allocate many small ones together, as one block", "heapline heap %t --arenas"},
	{HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, is_stopped,
	 "the process is stopped, by a signal or a debugger: nothing grows while it does not run",
	 "let it go on, and look while it works", "heapline heap %t"},
	{HL_WHY_USUAL, HL_WHY_LIKELY, is_cold,
	 "nothing grew steadily in this time, and little of its memory is free; but %K of it were not touched for a moment at the end",
	 "see what it is, and who holds it: what is not used can be freed, or kept in a file", "heapline holders %t"},
	{HL_WHY_USUAL, HL_WHY_LIKELY, is_usual,
	 "nothing grew steadily in this time, and little of its memory is wasted",
	 "if it grows slowly or seldom, look longer", "heapline why %t --for 600"},
	{HL_WHY_UNKNOWN, HL_WHY_POSSIBLE, always, "too little of the process could be read",
	 "see what was not looked at", "heapline doctor %t"},
};
/* clang-format on */

/* ---- filling in ---- */

const char *hl_why_line_text(const struct hl_why_facts *facts, char text[2 * HL_WHY_TEXT_MAX])
{
	const struct hl_why_frame *line = &facts->line;
	const char *slash = strrchr(line->file, '/');

	text[0] = '\0';
	if (facts->source && line->line > 0)
		snprintf(text, 2 * HL_WHY_TEXT_MAX, "%.150s (%.80s:%" PRId64 ")", line->function,
			 slash ? slash + 1 : line->file, line->line);
	else if (facts->source)
		snprintf(text, 2 * HL_WHY_TEXT_MAX, line->module[0] ? "%.150s (%.80s)" : "%s",
			 line->function, line->module);
	return text;
}

static int64_t a_second(const struct hl_why_facts *facts)
{
	return facts->grown_seconds > 0
		       ? (int64_t)((double)facts->grown_bytes / facts->grown_seconds)
		       : facts->grown_bytes;
}

/* The text for ${letter} of a sentence; in ${text} if it is made. */
static const char *word_of(const struct hl_why *why, char letter, char text[2 * HL_WHY_TEXT_MAX])
{
	const struct hl_why_facts *facts = &why->facts;
	const int64_t bytes[] = {['B'] = gain_of(facts),	['C'] = facts->cache.after,
				 ['G'] = a_second(facts),	['H'] = facts->header_bytes,
				 ['K'] = facts->cold_bytes,	['L'] = facts->lost_bytes,
				 ['N'] = facts->neighbour_gain, ['O'] = facts->grown_part_bytes,
				 ['P'] = facts->pinned_bytes,	['R'] = facts->returnable_bytes};

	switch (letter) {
	case 'l':
		return hl_why_line_text(facts, text)[0] ? text : "no line is known that";
	case 'f':
		return facts->leaf[0] ? facts->leaf : "the program";
	case 'h':
		return facts->holder[0] == '[' ? "several holders" : facts->holder;
	case 'v':
		return facts->holder[0] == '[' ? "hold" : "holds";
	case 'n':
		snprintf(text, 2 * HL_WHY_TEXT_MAX, "process %d (%s)", facts->neighbour,
			 facts->neighbour_name);
		return text;
	case 'i':
		snprintf(text, 2 * HL_WHY_TEXT_MAX, "%d", facts->neighbour);
		return text;
	case 'm':
		return facts->memory_file[0] ? facts->memory_file : "shared memory without a name";
	case 'o':
		return facts->profiles;
	case 'p':
		return facts->grown_part[0] ? facts->grown_part : "of no known part";
	case 'g':
		return facts->group;
	case 'u':
		return facts->purge[0] ? facts->purge : "the allocator";
	case 't':
		return why->target;
	default:
		hl_format_bytes(bytes[(unsigned char)letter], text);
		return text;
	}
}

static void fill_in(const struct hl_why *why, const char *sentence, char *to, size_t size)
{
	char text[2 * HL_WHY_TEXT_MAX];
	size_t used = 0;

	to[0] = '\0';
	for (; *sentence && used + 1 < size; sentence++)
		if (*sentence == '%')
			used += (size_t)snprintf(to + used, size - used, "%s",
						 word_of(why, *++sentence, text));
		else {
			to[used++] = *sentence;
			to[used] = '\0';
		}
}

/* ---- evidence, each with its error ---- */

HL_PRINTF(3, 4)
static void add(struct hl_why *why, const char *error, const char *format, ...)
{
	va_list arguments;

	if (why->evidence_count == HL_COUNT_OF(why->evidence))
		return;
	va_start(arguments, format);
	vsnprintf(why->evidence[why->evidence_count], HL_WHY_TEXT_MAX, format, arguments);
	va_end(arguments);
	snprintf(why->errors[why->evidence_count++], HL_WHY_TEXT_MAX, "%s", error);
}

static void add_pair(struct hl_why *why, const char *error, const char *name,
		     const struct hl_why_pair *pair)
{
	if (pair->before >= 0 && pair->after >= 0)
		add(why, error, "%s %s -> %s", name, BYTES(pair->before), BYTES(pair->after));
}

static void add_grower(struct hl_why *why)
{
	const struct hl_why_facts *facts = &why->facts;
	char text[2 * HL_WHY_TEXT_MAX], error[HL_WHY_TEXT_MAX] = "exact, since it was attached";

	if (!facts->source)
		return;
	if (strcmp(facts->source, "attach") != 0)
		snprintf(error, sizeof(error), "as '%s' saw it from outside", facts->source);
	else if (facts->lost_events > 0)
		snprintf(error, sizeof(error), "%s events were lost",
			 hl_format_count(facts->lost_events, (char[HL_FORMAT_MAX]){""}));
	add(why, error, "%s of the %s that grew are of %s", BYTES(facts->grown_bytes),
	    BYTES(facts->total_grown_bytes), hl_why_line_text(facts, text));
}

static void add_lost(struct hl_why *why)
{
	const struct hl_why_facts *facts = &why->facts;

	if (!facts->has_leaks)
		return;
	if (facts->grower_lost_bytes)
		add(why, "a block to which only a register leads counts as lost",
		    "%s in %s blocks of it are lost", BYTES(facts->grower_lost_bytes),
		    hl_format_count(facts->grower_lost_blocks, (char[HL_FORMAT_MAX]){""}));
	else
		add(why, "a block to which only a register leads counts as lost",
		    "%s of all live blocks are lost", BYTES(facts->lost_bytes));
}

static void add_evidence(struct hl_why *why)
{
	const struct hl_why_facts *facts = &why->facts;
	char error[HL_WHY_TEXT_MAX] = "all of it read, while it ran";

	if (facts->unscanned)
		snprintf(error, sizeof(error), "%s could not be read", BYTES(facts->unscanned));
	add_pair(why, "as the kernel counts", "RSS", &facts->rss);
	if (facts->has_heap && !facts->unscanned && !strcmp(facts->kind, "unknown"))
		add(why, "how much of it is live is not known", "the allocator has %s",
		    BYTES(facts->heap_bytes));
	else if (facts->has_heap && (facts->live.before || facts->live.after)) {
		add_pair(why, error, "live blocks", &facts->live);
		add(why, error, "free in RAM %s -> %s: %s returnable, %s pinned",
		    BYTES(facts->free.before), BYTES(facts->free.after),
		    BYTES(facts->returnable_bytes), BYTES(facts->pinned_bytes));
	}
	if (facts->header_bytes >= WASTE_BYTES_MIN)
		add(why, error, "headers of blocks %s", BYTES(facts->header_bytes));
	if (facts->cold_bytes > 0)
		add(why, "as the kernel counts, in a moment at the end",
		    "%s of RSS were not touched for %.3g s", BYTES(facts->cold_bytes),
		    facts->cold_seconds);
	if (facts->slack_bytes > facts->kept_bytes / WASTE_SHARE)
		add(why, "exact, since it was attached",
		    "%s of what was allocated meanwhile and kept were asked for, and %s more taken",
		    BYTES(facts->kept_bytes), BYTES(facts->slack_bytes));
	if (facts->grown_part_bytes >= GROWN_BYTES_MIN)
		add(why, "as the kernel counts", "the part that gained most: %s, %s",
		    facts->grown_part, BYTES(facts->grown_part_bytes));
	add_grower(why);
	add_lost(why);
	if (neighbour_gains_more(facts))
		add(why, "as the kernel counts",
		    "process %d (%s) of the same control group gained more: %s", facts->neighbour,
		    facts->neighbour_name, BYTES(facts->neighbour_gain));
	if (facts->has_group) {
		add(why, "as the kernel counts", "control group %s: %s -> %s%s%s", facts->group,
		    BYTES(facts->usage.before), BYTES(facts->usage.after),
		    facts->limit > 0 ? " of " : "", facts->limit > 0 ? BYTES(facts->limit) : "");
		add_pair(why, "as the kernel counts", "its page cache", &facts->cache);
	}
}

/* ---- all ---- */

/* A command that works for this target. */
static void choose_next(struct hl_why *why, const char *next)
{
	const struct hl_why_facts *facts = &why->facts;
	const char *kept = why->request.keep, *group = why->request.cgroup;
	bool is_gone = facts->has_ended && strstr(next, "%t"); /* who could be asked */
	bool looks_longer = !strncmp(next, "heapline growth", 15);

	if (is_gone && (!kept || access(kept, F_OK) != 0)) {
		snprintf(why->next, sizeof(why->next), "%s%.200s",
			 group ? "heapline pod --cgroup " : "", group ? group : "");
		return;
	}
	if (kept && (is_gone || looks_longer)) {
		snprintf(why->next, sizeof(why->next), "heapline report %.200s", kept);
		return;
	}
	if (looks_longer && facts->is_recorded)
		next = "heapline growth %t";
	else if (looks_longer && (!facts->may_attach || why->request.outside))
		next = facts->may_trace	  ? "heapline stacks %t 60"
		       : facts->may_fault ? "heapline pgfault %t 60"
					  : "heapline doctor %t";
	if (!strncmp(next, "heapline holders", 16) && facts->live.after < facts->cold_bytes / 2)
		next = "heapline heap %t"; /* most of it is not malloc's: no block holds it */
	if (!facts->has_heap && !strncmp(next, "heapline heap ", 14))
		next = "heapline doctor %t"; /* it could not be read: who may do so? */
	fill_in(why, next, why->next, sizeof(why->next));
}

/* The stack grew in steps, or it is one of many that touched new pages. */
static bool is_one_of_many(const struct hl_why_facts *facts)
{
	return facts->is_unsteady || (facts->source && !strcmp(facts->source, "pgfault") &&
				      facts->grown_bytes < facts->total_grown_bytes / 4);
}

static const struct rule *choose_rule(const struct hl_why_facts *facts)
{
	const struct rule *rule = rules;

	while (!rule->holds(facts))
		rule++;
	return rule;
}

bool hl_why_is_usual(const struct hl_why_facts *facts)
{
	return choose_rule(facts)->cause == HL_WHY_USUAL;
}

void hl_why_judge(struct hl_why *why)
{
	const struct rule *rule = choose_rule(&why->facts);

	why->cause = rule->cause;
	why->certainty = rule->certainty;
	if (rule->certainty == HL_WHY_CERTAIN &&
	    why->facts.unscanned > why->facts.heap_bytes / UNSCANNED_SHARE)
		why->certainty = HL_WHY_LIKELY;
	if (strstr(rule->sentence, "%l") && is_one_of_many(&why->facts))
		why->certainty = HL_WHY_POSSIBLE;
	fill_in(why, rule->sentence, why->sentence, sizeof(why->sentence));
	fill_in(why, rule->remedy, why->remedy, sizeof(why->remedy));
	choose_next(why, rule->next);
	add_evidence(why);
}
