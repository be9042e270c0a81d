/* SPDX-License-Identifier: BSD-2-Clause */
/* Who keeps blocks: as a table of holders, as a tree, as folded lines; see heap.h. */
#include "view/heap.h"

#include "heap/graph/holders.h"

#include <inttypes.h>
#include <string.h>

#define ROWS_DEFAULT	 30
#define TREE_ROWS	 20    /* below one branch that people see; the rest is one row */
#define TREE_LEAST	 0.005 /* of the whole that a branch of a tree for people has */
#define PATH_STEPS_MAX	 4u
#define NAME_MAX_BYTES	 512u
#define MEMBERS_SHOWN	 2u
#define FOLDED_DEPTH_MAX 64u /* branches are less deep */

/* ---- names ---- */

static const char *const kinds[] = {
	[HL_HOLDER_VARIABLE] = "variable", [HL_HOLDER_THREAD_VARIABLE] = "thread-local",
	[HL_HOLDER_FRAME] = "stack",	   [HL_HOLDER_MAPPING] = "mapping",
	[HL_HOLDER_KERNEL] = "kernel",	   [HL_HOLDER_SHARED] = "shared",
	[HL_HOLDER_LOST] = "lost",
};

static const char *text_of(const struct hl_holders *holders, uint32_t id)
{
	return hl_strings_text(&holders->names, id);
}

/* "cache", "main", ".bss+0x40", "[anon]": what a holder is called for short. */
static const char *short_name(const struct hl_holders *holders, const struct hl_holder *holder)
{
	if (holder->name)
		return text_of(holders, holder->name);
	if (holder->kind == HL_HOLDER_MAPPING || !holder->place)
		return text_of(holders, holder->module);
	return text_of(holders, holder->place);
}

/* Where it is: "libfoo.so .bss+0x40". */
static void put_where(FILE *out, const struct hl_holders *holders, const struct hl_holder *holder)
{
	const char *module = text_of(holders, holder->module);
	const char *place = text_of(holders, holder->place);

	if (holder->kind == HL_HOLDER_MAPPING)
		module = "";
	if (!holder->name && holder->kind != HL_HOLDER_MAPPING)
		place = "";
	fprintf(out, "%s%s%s", module, *module && *place ? " " : "", place);
}

/* The same in brackets; of what has no one place ${address}, if it is not 0. */
static void put_place_after(FILE *out, const struct hl_holders *holders,
			    const struct hl_holder *holder, uint64_t address)
{
	if (holder->kind == HL_HOLDER_MAPPING && !holder->place) {
		if (address)
			fprintf(out, " (0x%" PRIx64 ")", address);
		return;
	}
	fputs(" (", out);
	put_where(out, holders, holder);
	putc(')', out);
}

/* Names ${most} of the holders that share blocks. */
static void put_some(FILE *out, const struct hl_holders *holders, const struct hl_holder *holder,
		     uint32_t most)
{
	if (holder->kind == HL_HOLDER_LOST)
		fputs("[nothing leads there]", out);
	else if (holder->kind != HL_HOLDER_SHARED)
		fputs(short_name(holders, holder), out);
	else if (!holder->member_count)
		fprintf(out, "[shared by more than %u]", HL_HOLDER_MEMBERS_MAX);
	else
		fprintf(out, "[shared by %u] ", holder->member_count);
	for (uint32_t i = 0; i < holder->member_count && i < most; i++)
		fprintf(out, "%s%s", i ? ", " : "",
			text_of(holders, holders->holders[holder->members[i]].label));
	if (holder->member_count > most)
		fputs(", ...", out);
}

static void put_holder(FILE *out, const struct hl_holders *holders, const struct hl_holder *holder)
{
	put_some(out, holders, holder, HL_HOLDER_MEMBERS_MAX);
}

/* "zoo::duck", "56 B", "1 KiB to 2 KiB". */
static void put_blocks(FILE *out, const struct hl_holders *holders,
		       const struct hl_holder_branch *branch)
{
	char least[HL_FORMAT_MAX], most[HL_FORMAT_MAX];

	if (branch->type)
		fputs(text_of(holders, branch->type), out);
	else if (branch->size_min == branch->size_max)
		fprintf(out, "block of %s", hl_format_exact_bytes(branch->size_max, most));
	else
		fprintf(out, "blocks of %s to %s",
			hl_format_exact_bytes(branch->size_min - 1, least),
			hl_format_exact_bytes(branch->size_max, most));
}

static void put_branch(FILE *out, const struct hl_holders *holders,
		       const struct hl_holder_branch *branch)
{
	if (branch->holder)
		put_holder(out, holders, &holders->holders[branch->holder - 1]);
	else
		put_blocks(out, holders, branch);
}

static const struct hl_holder_branch *child_of(const struct hl_holders *holders,
					       const struct hl_holder_branch *branch, uint32_t i)
{
	return &holders->branches[holders->children[branch->children + i]];
}

/* Gives what ${put} writes to a cell. */
static void cell_of(struct hl_emit *emit, const struct hl_holders *holders, const void *element,
		    void (*put)(FILE *out, const struct hl_holders *holders, const void *element))
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (out)
		put(out, holders, element);
	if (out && fclose(out) == 0)
		hl_cell_text(emit, text);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(text);
}

/* ---- rows ---- */

static void put_name(FILE *out, const struct hl_holders *holders, const void *element)
{
	put_holder(out, holders, element);
}

/* One row with many names would push the columns after it out of sight in all others. */
static void put_short_name(FILE *out, const struct hl_holders *holders, const void *element)
{
	put_some(out, holders, element, MEMBERS_SHOWN);
}

static void put_place(FILE *out, const struct hl_holders *holders, const void *element)
{
	put_where(out, holders, element);
}

/* The way that most bytes hang on, with how many blocks there are of each kind. */
static void put_path(FILE *out, const struct hl_holders *holders, const void *element)
{
	const struct hl_holder *holder = element;
	const struct hl_holder_branch *branch = &holders->branches[holder->branch];
	unsigned steps = 0;

	for (; branch->child_count && steps < PATH_STEPS_MAX; steps++) {
		branch = child_of(holders, branch, 0);
		if (steps)
			fputs(" -> ", out);
		if (branch->own.blocks > 1)
			fprintf(out, "%" PRIu64 " x ", branch->own.blocks);
		put_branch(out, holders, branch);
	}
	if (branch->child_count)
		fputs(" -> ...", out);
}

static void holder_cell(struct hl_emit *emit, const void *row, const void *context)
{
	cell_of(emit, context, row, hl_emit_is_json(emit) ? put_name : put_short_name);
}

static void where_cell(struct hl_emit *emit, const void *row, const void *context)
{
	cell_of(emit, context, row, put_place);
}

static void path_cell(struct hl_emit *emit, const void *row, const void *context)
{
	cell_of(emit, context, row, put_path);
}

static void kind_cell(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_text(emit, kinds[((const struct hl_holder *)row)->kind]);
}

static void name_cell(struct hl_emit *emit, const void *member, const void *context)
{
	hl_cell_text(emit, text_of(context, *(const uint32_t *)member));
}

static void members_cell(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_holders *holders = context;
	const struct hl_holder *holder = row;
	const char *names[HL_HOLDER_MEMBERS_MAX];

	for (uint32_t i = 0; i < holder->member_count; i++)
		names[i] = text_of(holders, holders->holders[holder->members[i]].label);
	hl_cell_stack(emit, names, holder->member_count);
}

#define MEMBER(name) HL_MEMBER(struct hl_holder, name)
#define BLANK	     .flags = HL_COLUMN_BLANK_ZERO

static const struct hl_column columns[] = {
	{"held_bytes", "held", HL_COLUMN_BYTES, MEMBER(held.bytes)},
	{NULL, "of all", HL_COLUMN_SHARE, MEMBER(held.bytes), .flags = HL_COLUMN_OMITTED},
	{"held_blocks", "blocks", HL_COLUMN_COUNT, MEMBER(held.blocks)},
	{"shared_bytes", "shared", HL_COLUMN_BYTES, MEMBER(shared.bytes), BLANK},
	{"shared_blocks", NULL, HL_COLUMN_COUNT, MEMBER(shared.blocks)},
	{"kind", "kind", HL_COLUMN_TEXT, .cell = kind_cell},
	{"holder", "holder", HL_COLUMN_TEXT, .cell = holder_cell,
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_KEY},
	{NULL, "where", HL_COLUMN_TEXT, .cell = where_cell, .flags = HL_COLUMN_SHORTENED},
	{"path", "most by way of", HL_COLUMN_TEXT, .cell = path_cell,
	 .flags = HL_COLUMN_SHORTENED | HL_COLUMN_NAMES | HL_COLUMN_OMITTED},
	{"name", NULL, HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_holder, name, name_cell)},
	{"module", NULL, HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_holder, module, name_cell)},
	{"place", NULL, HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_holder, place, name_cell)},
	{"word", NULL, HL_COLUMN_ADDRESS, MEMBER(first_word)},
	{"member", NULL, HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_holder, member, name_cell)},
	{"holders", NULL, HL_COLUMN_STACK, .cell = members_cell},
};

static void emit_rows(struct hl_emit *emit, const struct hl_holders *holders, uint64_t row_limit)
{
	const struct hl_holder_branch *whole = &holders->branches[0];
	size_t shown = hl_emit_shown(emit, row_limit, ROWS_DEFAULT, whole->child_count);

	if (whole->child_count)
		hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", columns), .context = holders,
						.sum = hl_heap_number(holders->selected.bytes)});
	for (uint32_t i = 0; i < shown; i++)
		hl_table_row(emit, &holders->holders[child_of(holders, whole, i)->holder - 1], 0);
	hl_table_end(emit);
	hl_emit_more(emit, whole->child_count - shown, "-n");
}

/* ---- the tree ---- */

struct tree_row {
	const struct hl_holder_branch *branch;
	struct hl_leak_sum held, own;
	uint64_t depth, folded; /* branches that the row stands for; 0: one */
};

static void put_tree_row(FILE *out, const struct hl_holders *holders, const void *element)
{
	const struct tree_row *row = element;
	const struct hl_holder_branch *branch = row->branch;

	if (row->folded) {
		fprintf(out, "... %" PRIu64 " more", row->folded);
		return;
	}
	put_branch(out, holders, branch);
	if (branch->holder && holders->holders[branch->holder - 1].module)
		put_place_after(out, holders, &holders->holders[branch->holder - 1], 0);
}

static void tree_cell(struct hl_emit *emit, const void *row, const void *context)
{
	cell_of(emit, context, row, put_tree_row);
}

#define TREE(name) HL_MEMBER(struct tree_row, name)

static const struct hl_column tree_columns[] = {
	{"held_bytes", "held", HL_COLUMN_BYTES, TREE(held.bytes)},
	{NULL, "of all", HL_COLUMN_SHARE, TREE(held.bytes)},
	{"own_bytes", "own", HL_COLUMN_BYTES, TREE(own.bytes), BLANK},
	{"own_blocks", "blocks", HL_COLUMN_COUNT, TREE(own.blocks), BLANK},
	{"name", "holder, and what hangs on it", HL_COLUMN_TEXT, .cell = tree_cell,
	 .flags = HL_COLUMN_TREE | HL_COLUMN_KEY},
	{"held_blocks", NULL, HL_COLUMN_COUNT, TREE(held.blocks)},
	{"depth", NULL, HL_COLUMN_COUNT, TREE(depth)},
	{"folded", NULL, HL_COLUMN_COUNT, TREE(folded)},
};

struct tree {
	struct hl_emit *emit;
	const struct hl_holders *holders;
	uint64_t depth_limit; /* 0: none */
	uint64_t least_bytes, most_rows;
};

/* No deeper than branches are. */
static void emit_children(const struct tree *tree, const struct hl_holder_branch *branch,
			  uint64_t depth)
{
	struct tree_row folded = {.branch = branch, .depth = depth};

	if (tree->depth_limit && depth > tree->depth_limit)
		return;
	for (uint32_t i = 0; i < branch->child_count; i++) {
		const struct hl_holder_branch *child = child_of(tree->holders, branch, i);
		const struct tree_row row = {child, child->held, child->own, depth, 0};
		if (i >= tree->most_rows || child->held.bytes < tree->least_bytes) {
			folded.folded++;
			folded.held.bytes += child->held.bytes;
			folded.held.blocks += child->held.blocks;
			continue;
		}
		hl_table_row_below(tree->emit, depth, &row, 0);
		emit_children(tree, child, depth + 1);
	}
	if (folded.folded)
		hl_table_row_below(tree->emit, depth, &folded, 0);
}

static void emit_tree(struct hl_emit *emit, const struct hl_holders *holders,
		      const struct hl_holders_report *report)
{
	struct tree tree = {.emit = emit,
			    .holders = holders,
			    .depth_limit = report->depth_limit,
			    .least_bytes =
				    (uint64_t)(TREE_LEAST * (double)holders->selected.bytes)};

	tree.most_rows = hl_emit_shown(emit, report->emit.row_limit, TREE_ROWS, SIZE_MAX);
	if (hl_emit_is_json(emit) || report->emit.row_limit == 0)
		tree.least_bytes = 0;
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("tree", tree_columns), .context = holders,
						.sum = hl_heap_number(holders->selected.bytes)});
	emit_children(&tree, &holders->branches[0], 1);
	hl_table_end(emit);
}

/* ---- one block's chain ---- */

static void put_step(FILE *out, const struct hl_holders *holders, const void *element)
{
	const struct hl_holder_step *step = element;

	if (step->holder) {
		const struct hl_holder *holder = &holders->holders[step->holder - 1];
		fprintf(out, "%s%s", short_name(holders, holder), text_of(holders, step->member));
		if (holder->name && !step->member && step->offset &&
		    holder->kind != HL_HOLDER_FRAME)
			fprintf(out, "+%" PRIu64, step->offset);
		put_place_after(out, holders, holder, step->address);
		return;
	}
	fprintf(out, "0x%" PRIx64, step->address);
	if (step->type)
		fprintf(out, " %s", text_of(holders, step->type));
}

static void step_cell(struct hl_emit *emit, const void *row, const void *context)
{
	cell_of(emit, context, row, put_step);
}

static void stale_members(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_emit_boolean(emit, "stale", ((const struct hl_holder_step *)row)->is_stale);
}

static const struct hl_column step_columns[] = {
	{"step", NULL, HL_COLUMN_TEXT, .cell = step_cell},
	{"address", NULL, HL_COLUMN_ADDRESS, HL_MEMBER(struct hl_holder_step, address)},
	{"offset", NULL, HL_COLUMN_COUNT, HL_MEMBER(struct hl_holder_step, offset)},
	{"size", NULL, HL_COLUMN_BYTES, HL_MEMBER(struct hl_holder_step, size)},
	{"type", NULL, HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_holder_step, type, name_cell)},
	{"member", NULL, HL_COLUMN_TEXT, HL_MEMBER_CELL(struct hl_holder_step, member, name_cell)},
	{"stale", NULL, HL_COLUMN_MEMBERS, .cell = stale_members},
};

/* How many steps follow that are the same: of a list. */
static size_t count_same(const struct hl_holders *holders, size_t from)
{
	const struct hl_holder_step *step = &holders->chain[from];
	size_t count = 1;

	while (!step->holder && step->member && from + count + 1 < holders->chain_count &&
	       step[count].member == step->member && step[count].offset == step->offset)
		count++;
	return count;
}

/* One line: "cache (libfoo.so .bss+0x40) -> buckets[17] (+136) -> 0x5560 (+24) -> 0x5580, 56 B". */
static void emit_chain_line(struct hl_emit *emit, const struct hl_holders *holders)
{
	char *text = NULL, bytes[HL_FORMAT_MAX];
	size_t size, same;
	FILE *out = open_memstream(&text, &size);

	for (size_t i = 0; out && i < holders->chain_count; i += same) {
		const struct hl_holder_step *step = &holders->chain[i];
		same = count_same(holders, i);
		if (i)
			fputs(" -> ", out);
		if (step->member && !step->holder)
			fputs(text_of(holders, step->member), out);
		else
			put_step(out, holders, step);
		if (i + 1 == holders->chain_count)
			fprintf(out, ", %s", hl_format_exact_bytes(step->size, bytes));
		else if (step->is_stale)
			fputs(" (changed since)", out);
		else if (!step->holder)
			fprintf(out, " (+%" PRIu64 ")", step->offset);
		if (same > 1)
			fprintf(out, " x %zu", same);
	}
	if (out && fclose(out) == 0)
		hl_emit_line(emit, "%s", text);
	else
		hl_emit_fail(emit, -ENOMEM);
	free(text);
}

static void emit_chain(struct hl_emit *emit, const struct hl_holders *holders)
{
	hl_emit_blank(emit);
	if (hl_emit_is_json(emit))
		hl_table_write(
			emit,
			&(struct hl_table){HL_TABLE("chain", step_columns), .context = holders},
			holders->chain, holders->chain_count, sizeof(*holders->chain));
	else if (holders->chain_count)
		emit_chain_line(emit, holders);
	else
		hl_emit_line(emit,
			     "nothing leads to this block; 'heapline leaks' says whether it is "
			     "lost");
}

/* ---- all ---- */

static void emit_total(struct hl_emit *emit, const struct hl_holders *holders)
{
	struct hl_leak_sum sums[HL_HOLDER_LOST + 1] = {{0}};
	bool is_part = holders->selected.blocks != holders->live.blocks;

	for (size_t i = 0; i < holders->holder_count; i++) {
		struct hl_leak_sum *sum = &sums[holders->holders[i].kind];
		sum->blocks += holders->holders[i].held.blocks;
		sum->bytes += holders->holders[i].held.bytes;
	}
	hl_emit_object(emit, "total");
	hl_emit_unsigned(emit, "live_bytes", holders->live.bytes);
	hl_emit_unsigned(emit, "live_blocks", holders->live.blocks);
	hl_emit_unsigned(emit, "selected_bytes", holders->selected.bytes);
	hl_emit_unsigned(emit, "selected_blocks", holders->selected.blocks);
	hl_emit_unsigned(emit, "shared_bytes", sums[HL_HOLDER_SHARED].bytes);
	hl_emit_unsigned(emit, "shared_blocks", sums[HL_HOLDER_SHARED].blocks);
	hl_emit_unsigned(emit, "lost_bytes", sums[HL_HOLDER_LOST].bytes);
	hl_emit_unsigned(emit, "lost_blocks", sums[HL_HOLDER_LOST].blocks);
	hl_emit_unsigned(emit, "edges", holders->edges);
	hl_emit_unsigned(emit, "stopped_us", holders->stopped_ns / 1000);
	hl_emit_object_end(emit);
	hl_emit_blank(emit);
	if (is_part)
		hl_emit_line(emit, "asked for: %s in %s block%s, of %s in %s",
			     HL_HEAP_BYTES(holders->selected.bytes),
			     HL_HEAP_COUNT(holders->selected.blocks),
			     hl_format_plural(holders->selected.blocks),
			     HL_HEAP_BYTES(holders->live.bytes),
			     HL_HEAP_COUNT(holders->live.blocks));
	else
		hl_emit_line(emit, "%s in %s live block%s", HL_HEAP_BYTES(holders->live.bytes),
			     HL_HEAP_COUNT(holders->live.blocks),
			     hl_format_plural(holders->live.blocks));
}

/* What to ask next. */
static void emit_answers(struct hl_emit *emit, const struct hl_holders *holders)
{
	bool is_lost = false;

	for (size_t i = 0; i < holders->holder_count; i++)
		is_lost = is_lost || (holders->holders[i].kind == HL_HOLDER_LOST &&
				      holders->holders[i].held.blocks);
	if (!is_lost)
		return;
	hl_emit_blank(emit);
	hl_emit_line(emit,
		     "what nothing leads to: 'heapline leaks' tells lost blocks from those whose "
		     "pointers were moving");
}

int hl_holders_view(const struct hl_holders *holders, const struct hl_holders_report *report)
{
	struct hl_emit *emit;

	int r = hl_emit_open(&report->emit, "holders/1", &emit);
	if (r < 0)
		return r;
	hl_heap_emit_head(emit, holders->heap);
	emit_total(emit, holders);
	if (report->chain)
		emit_chain(emit, holders);
	if (report->tree)
		emit_tree(emit, holders, report);
	else if (!report->chain_alone || report->emit.json)
		emit_rows(emit, holders, report->emit.row_limit);
	emit_answers(emit, holders);
	hl_heap_emit_notes(emit, holders->heap);
	return hl_emit_finish(emit);
}

/* ---- folded lines ---- */

/* A frame's name has no ';' and no line end. */
static void put_frame(FILE *out, const struct hl_holders *holders,
		      const struct hl_holder_branch *branch)
{
	char *text = NULL;
	size_t size;
	FILE *name = open_memstream(&text, &size);

	if (name && branch->holder && holders->holders[branch->holder - 1].label)
		fputs(text_of(holders, holders->holders[branch->holder - 1].label), name);
	else if (name)
		put_branch(name, holders, branch);
	if (name && fclose(name) == 0)
		for (const char *at = text; *at; at++)
			putc(*at == ';' || *at == '\n' ? ':' : *at, out);
	free(text);
}

void hl_holders_fold(FILE *out, const struct hl_holders *holders)
{
	const struct hl_holder_branch *way[FOLDED_DEPTH_MAX];

	for (size_t i = 1; i < holders->branch_count; i++) {
		const struct hl_holder_branch *branch = &holders->branches[i];
		unsigned depth = 0;
		if (!branch->own.bytes)
			continue;
		for (; branch != holders->branches && depth < FOLDED_DEPTH_MAX;
		     branch = &holders->branches[branch->parent])
			way[depth++] = branch;
		while (depth) {
			put_frame(out, holders, way[--depth]);
			putc(depth ? ';' : ' ', out);
		}
		fprintf(out, "%" PRIu64 "\n", holders->branches[i].own.bytes);
	}
}
