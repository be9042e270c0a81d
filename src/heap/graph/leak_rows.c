/* SPDX-License-Identifier: BSD-2-Clause */
/* Lost and possibly lost blocks by stack, or by class and size; see leaks.h. */
#include "heap/graph/leaks.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/index.h"
#include "heap/graph/graph.h"
#include "heap/owners/owners.h"
#include "recording/recording.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- suppressions ---- */

#define KIND "leak:"

/* The pattern of fnmatch() for ${text}, of which only '*' has a meaning; NULL for want of memory. */
static char *make_pattern(const char *text)
{
	size_t length = strlen(text);
	bool from_start = *text == '^', to_end = length && text[length - 1] == '$';
	char *pattern = malloc(2 * length + 3), *end = pattern;

	if (!pattern)
		return NULL;
	if (!from_start)
		*end++ = '*';
	for (size_t i = from_start; i < length - to_end; i++) {
		if (strchr("?[]\\", text[i]))
			*end++ = '\\';
		*end++ = text[i];
	}
	if (!to_end)
		*end++ = '*';
	*end = '\0';
	return pattern;
}

static int add_line(struct hl_leak_ignore *ignore, const char *line)
{
	char *pattern;

	if (!*line || *line == '#')
		return 0;
	if (strncmp(line, KIND, sizeof(KIND) - 1) != 0 || !line[sizeof(KIND) - 1])
		return -EBADMSG;
	pattern = make_pattern(line + sizeof(KIND) - 1);
	if (!pattern ||
	    HL_ARRAY_APPEND(ignore->patterns, ignore->count, ignore->capacity, pattern) < 0) {
		free(pattern);
		return -ENOMEM;
	}
	return 0;
}

int hl_leak_ignore_read(struct hl_leak_ignore *ignore, const char *path, struct hl_error *err)
{
	HL_FREED char *line = NULL;
	size_t capacity = 0;
	unsigned number = 0;
	FILE *file = fopen(path, "re");
	int r = 0;

	if (!file)
		return hl_error_set(err, -errno, "cannot open '%s': %s", path, strerror(errno));
	while (r == 0 && getline(&line, &capacity, file) >= 0) {
		/* Names have blanks inside: "std::vector<int, my::allocator>". */
		for (size_t end = strlen(line); end && strchr(" \t\r\n", line[end - 1]); end--)
			line[end - 1] = '\0';
		number++;
		r = add_line(ignore, line);
	}
	if (r == 0 && ferror(file))
		r = -EIO;
	fclose(file);
	if (r == -EBADMSG)
		return hl_error_set(err, r, "line %u of '%s' is not 'leak:PATTERN'", number, path);
	return r < 0 ? hl_error_set(err, r, "cannot read '%s': %s", path, strerror(-r)) : 0;
}

/* Whether a pattern matches ${name}. */
static bool leak_ignore_matches(const struct hl_leak_ignore *ignore, const char *name)
{
	for (size_t i = 0; i < ignore->count; i++)
		if (*name && fnmatch(ignore->patterns[i], name, 0) == 0)
			return true;
	return false;
}

void hl_leak_ignore_release(struct hl_leak_ignore *ignore)
{
	for (size_t i = 0; i < ignore->count; i++)
		free(ignore->patterns[i]);
	free(ignore->patterns);
	*ignore = (struct hl_leak_ignore){0};
}

/* ---- lost and possibly lost blocks by stack, or by class and size ---- */

/* A lost block, and in which row it counts. */
struct owner {
	struct hl_leak_block block;
	uint32_t row;	/* NO_ROW: its beginning was not seen yet */
	bool is_joined; /* of a ring: another one leads to it */
};

#define NO_ROW UINT32_MAX

/* A block of a ring. Beyond RING_BLOCKS_MAX, the ring of a block is unknown: a ring that
 * leads there counts as one of its own. */
struct ring_block {
	uint64_t address;
	uint32_t ring;
};

#define RING_BLOCKS_MAX (1u << 20)

struct possible_block {
	uint64_t address, usable_bytes, counted_bytes;
	uint64_t words[HL_CLASS_WORDS]; /* it begins with */
	size_t word_count;
};

struct hl_leak_rows {
	struct hl_leaks *leaks;
	struct hl_graph *graph;
	const struct hl_leaks_settings *settings;
	struct hl_block_owners *owners; /* NULL if there are none */
	struct hl_index index;		/* of rows */
	struct hl_class_names classes;
	struct owner owner;  /* whose blocks are being reached */
	struct owner *rings; /* the first block of each ring seen, by address */
	size_t ring_count, ring_capacity;
	struct ring_block *ring_blocks;
	size_t ring_block_count, ring_block_capacity;
	struct hl_index ring_index;
	bool in_rings; /* rings are being reached */
	struct possible_block *possible;
	size_t possible_count, possible_capacity;
};

static void add(struct hl_leak_sum *sum, uint64_t bytes)
{
	sum->blocks++;
	sum->bytes += bytes;
}

/* ---- rows ---- */

static int add_frame(void *context, const struct hl_block_frame *frame)
{
	struct hl_leaks *leaks = context;
	struct hl_leak_frame added;
	int r = hl_strings_intern(&leaks->names, frame->function, &added.function);

	if (r == 0)
		r = hl_strings_intern(&leaks->names, frame->module, &added.module);
	if (r == 0)
		r = hl_strings_intern(&leaks->names, frame->source, &added.source);
	return r < 0 ? r
		     : HL_ARRAY_APPEND(leaks->frames, leaks->frame_count, leaks->frame_capacity,
				       added);
}

/* Whether the suppressions leave out ${row}, by its class or a frame of its stack. */
static bool is_ignored(const struct hl_leak_rows *rows, const struct hl_leak_row *row)
{
	const struct hl_leak_ignore *ignore = rows->settings->ignore;
	const struct hl_leaks *leaks = rows->leaks;

	if (!ignore)
		return false;
	bool matches = leak_ignore_matches(ignore, hl_strings_text(&leaks->names, row->type));
	for (size_t i = 0; i < row->frame_count && !matches; i++) {
		const struct hl_leak_frame *frame = &leaks->frames[row->frame + i];
		const uint32_t names[] = {frame->function, frame->module, frame->source};
		for (size_t k = 0; k < HL_COUNT_OF(names) && !matches; k++)
			matches = leak_ignore_matches(ignore,
						      hl_strings_text(&leaks->names, names[k]));
	}
	return matches;
}

static int add_row(struct hl_leak_rows *rows, struct hl_leak_row row)
{
	struct hl_leaks *leaks = rows->leaks;
	int r = 0;

	row.frame = leaks->frame_count;
	if (row.owner)
		r = hl_block_owners_each_frame(rows->owners, row.owner, add_frame, leaks);
	row.frame_count = leaks->frame_count - row.frame;
	leaks->knows_stacks = leaks->knows_stacks || row.owner;
	row.is_ignored = r == 0 && is_ignored(rows, &row);
	if (r == 0)
		r = HL_ARRAY_APPEND(leaks->rows, leaks->row_count, leaks->row_capacity, row);
	return r;
}

/* The row of a block that begins with ${words}. */
static int find_row(struct hl_leak_rows *rows, uint64_t block, uint64_t size, const uint64_t *words,
		    size_t count, uint32_t *ret_row)
{
	struct hl_leaks *leaks = rows->leaks;
	struct hl_leak_row row = {0};
	uint32_t id;
	int r = 0;

	if (rows->owners)
		row.owner = hl_block_owners_find(rows->owners, block, size);
	if (!row.owner)
		row.size = size;
	if (!row.owner)
		r = hl_class_names_find(&rows->classes, block, size, words, count, &row.type);
	uint32_t hash = hl_hash_pair(row.owner, hl_hash_pair(row.type, row.size)), at = hash;
	while (r == 0 && (id = hl_index_next(&rows->index, hash, &at))) {
		const struct hl_leak_row *found = &leaks->rows[id - 1];
		if (found->owner == row.owner && found->type == row.type &&
		    found->size == row.size) {
			*ret_row = id - 1;
			return 0;
		}
	}
	if (r == 0)
		r = add_row(rows, row);
	if (r == 0)
		r = hl_index_add(&rows->index, hash, (uint32_t)leaks->row_count);
	*ret_row = (uint32_t)leaks->row_count - 1;
	return r;
}

static int take_possible(void *context, uint64_t block, uint64_t usable_bytes,
			 const uint64_t *words, size_t count)
{
	struct hl_leak_rows *rows = context;
	struct possible_block possible = {.address = block,
					  .usable_bytes = usable_bytes,
					  .counted_bytes = hl_graph_counted(rows->graph, block)};

	possible.word_count = count < HL_CLASS_WORDS ? count : HL_CLASS_WORDS;
	memcpy(possible.words, words, possible.word_count * sizeof(*words));
	return HL_ARRAY_APPEND(rows->possible, rows->possible_count, rows->possible_capacity,
			       possible);
}

/* A pointer to a piece is one to the block that a pool has cut it from. */
static int reach_by_pieces(struct hl_leak_rows *rows, const struct hl_block_owners *owners)
{
	struct hl_graph *graph = rows->graph;
	uint64_t block;
	int r = 0;

	/* What is reached has more such pointers. */
	for (size_t i = 0; i < graph->inner.count && r == 0;) {
		for (; i < graph->inner.count; i++)
			if (hl_block_owners_have_piece(owners, graph->inner.addresses[i]) &&
			    hl_graph_find(graph, graph->inner.addresses[i], &block) &&
			    !hl_graph_is_reached(graph, block))
				hl_graph_reach(graph, block);
		r = hl_graph_drain(graph);
	}
	return r;
}

int hl_leak_rows_reach_possible(struct hl_leak_rows *rows, const struct hl_block_owners *owners)
{
	int r = owners ? reach_by_pieces(rows, owners) : 0;

	rows->graph->on_block = take_possible;
	rows->graph->context = rows;
	if (r == 0)
		r = hl_graph_reach_possible(rows->graph);
	rows->graph->on_block = NULL;
	return r;
}

int hl_leak_rows_add_possible(struct hl_leak_rows *rows, struct hl_block_owners *owners)
{
	uint32_t row;
	int r = 0;

	rows->owners = owners;
	for (size_t i = 0; i < rows->possible_count && r == 0; i++) {
		const struct possible_block *block = &rows->possible[i];
		r = find_row(rows, block->address, block->usable_bytes, block->words,
			     block->word_count, &row);
		if (r == 0)
			add(&rows->leaks->rows[row].possible, block->counted_bytes);
	}
	return r;
}

/* ---- lost blocks that others refer to ---- */

struct referring {
	struct hl_graph *graph;
	uint64_t block;
};

static int refer(void *context, uint64_t address, const uint64_t *words, size_t count)
{
	const struct referring *referring = context;
	uint64_t block;

	if (referring->graph->reads_unaligned && count > 1)
		hl_graph_each_unaligned(referring->graph, address, words, count,
					&referring->graph->tail, refer, context);
	for (size_t i = 0; i < count; i++)
		if (hl_graph_find(referring->graph, words[i], &block) &&
		    block != referring->block && !hl_graph_is_reached(referring->graph, block))
			hl_graph_refer(referring->graph, block);
	return 0;
}

static int refer_all(struct hl_leak_rows *rows)
{
	struct hl_graph *graph = rows->graph;
	int r = 0;

	graph->window_end = 0;
	for (uint64_t block = 0; r == 0 && (block = hl_graph_next_lost(graph, block));
	     block += 16) {
		struct referring referring = {graph, block};
		r = hl_graph_read(graph, block, block + hl_graph_usable(graph, block), 0, refer,
				  &referring);
	}
	return r;
}

/* ---- owners ---- */

/* Notes a block of the ring that is being reached. */
static int add_to_ring(struct hl_leak_rows *rows, uint64_t block)
{
	if (rows->ring_block_count == RING_BLOCKS_MAX)
		return 0;
	int r = HL_ARRAY_APPEND(rows->ring_blocks, rows->ring_block_count,
				rows->ring_block_capacity,
				(struct ring_block){block, (uint32_t)rows->ring_count});

	return r < 0 ? r
		     : hl_index_add(&rows->ring_index, hl_hash_pair(block, 0),
				    (uint32_t)rows->ring_block_count);
}

static int take_lost(void *context, uint64_t block, uint64_t usable_bytes, const uint64_t *words,
		     size_t count)
{
	struct hl_leak_rows *rows = context;
	struct owner *owner = &rows->owner;

	int r = rows->in_rings ? add_to_ring(rows, block) : 0;
	if (block != owner->block.address) {
		add(&owner->block.indirect, hl_graph_counted(rows->graph, block));
		return r;
	}
	size_t head = count * 8 < HL_LEAK_HEAD_BYTES ? count * 8 : HL_LEAK_HEAD_BYTES;
	memcpy(owner->block.head, words, head);
	return r < 0 ? r : find_row(rows, block, usable_bytes, words, count, &owner->row);
}

/* A ring leads to a block of a ring that was seen before: that one belongs to this one. */
static int join_ring(void *context, uint64_t block)
{
	struct hl_leak_rows *rows = context;
	uint32_t hash = hl_hash_pair(block, 0), at = hash, id;

	while ((id = hl_index_next(&rows->ring_index, hash, &at)))
		if (rows->ring_blocks[id - 1].address == block)
			break;
	/* The last one is the one that is being reached. */
	if (!id || rows->ring_blocks[id - 1].ring == rows->ring_count)
		return 0;
	struct owner *ring = &rows->rings[rows->ring_blocks[id - 1].ring];
	if (ring->is_joined)
		return 0;
	ring->is_joined = true;
	rows->owner.block.indirect.blocks += ring->block.indirect.blocks + 1;
	rows->owner.block.indirect.bytes += ring->block.indirect.bytes + ring->block.size;
	return 0;
}

static uint64_t weight(const struct hl_leak_block *block)
{
	return block->size + block->indirect.bytes;
}

/* Keeps the block if it is one of the largest so far. */
static void show(struct hl_leak_rows *rows, const struct hl_leak_block *block)
{
	struct hl_leaks *leaks = rows->leaks;
	size_t at = leaks->block_count;

	if (at == rows->settings->show && (!at || weight(&leaks->blocks[at - 1]) >= weight(block)))
		return;
	at = at == rows->settings->show ? at - 1 : leaks->block_count++;
	for (; at && weight(&leaks->blocks[at - 1]) < weight(block); at--)
		leaks->blocks[at] = leaks->blocks[at - 1];
	leaks->blocks[at] = *block;
}

static void add_owner(struct hl_leak_rows *rows, struct owner *owner)
{
	struct hl_leak_row *row = &rows->leaks->rows[owner->row];

	owner->block.type = row->type;
	add(&row->lost, owner->block.size);
	row->indirect.blocks += owner->block.indirect.blocks;
	row->indirect.bytes += owner->block.indirect.bytes;
	if (!row->is_ignored)
		show(rows, &owner->block);
}

/* Reaches what ${block} leads to. */
static int reach_from(struct hl_leak_rows *rows, uint64_t block)
{
	uint64_t size = hl_graph_usable(rows->graph, block);

	rows->owner = (struct owner){
		.block = {.address = block, .size = hl_graph_counted(rows->graph, block)},
		.row = NO_ROW};
	hl_graph_reach(rows->graph, block);
	int r = hl_graph_drain(rows->graph);
	if (r == 0 && rows->owner.row == NO_ROW)
		r = find_row(rows, block, size, NULL, 0, &rows->owner.row);
	return r;
}

static int add_owners(struct hl_leak_rows *rows)
{
	int r = 0;

	for (uint64_t block = 0; r == 0 && (block = hl_graph_next_lost(rows->graph, block));
	     block += 16) {
		if (hl_graph_is_referred(rows->graph, block))
			continue;
		r = reach_from(rows, block);
		if (r == 0)
			add_owner(rows, &rows->owner);
	}
	return r;
}

/* What is left lies in rings, or behind them. */
static int add_rings(struct hl_leak_rows *rows)
{
	int r = 0;

	rows->in_rings = true;
	rows->graph->on_again = join_ring;
	for (uint64_t block = 0; r == 0 && (block = hl_graph_next_lost(rows->graph, block));
	     block += 16) {
		r = reach_from(rows, block);
		if (r == 0)
			r = HL_ARRAY_APPEND(rows->rings, rows->ring_count, rows->ring_capacity,
					    rows->owner);
	}
	for (size_t i = 0; r == 0 && i < rows->ring_count; i++)
		if (!rows->rings[i].is_joined)
			add_owner(rows, &rows->rings[i]);
	return r;
}

/* ---- the whole ---- */

static int compare_rows(const void *left, const void *right)
{
	const struct hl_leak_row *a = left, *b = right;
	uint64_t of_a = a->lost.bytes + a->indirect.bytes, of_b = b->lost.bytes + b->indirect.bytes;

	if (of_a != of_b)
		return of_a > of_b ? -1 : 1;
	if (a->unknown.bytes != b->unknown.bytes)
		return a->unknown.bytes > b->unknown.bytes ? -1 : 1;
	if (a->possible.bytes != b->possible.bytes)
		return a->possible.bytes > b->possible.bytes ? -1 : 1;
	if (a->size != b->size)
		return a->size > b->size ? -1 : 1;
	if (a->owner != b->owner)
		return a->owner > b->owner ? -1 : 1;
	return (a->type > b->type) - (a->type < b->type);
}

static void add_sum(struct hl_leak_sum *sum, const struct hl_leak_sum *other)
{
	sum->blocks += other->blocks;
	sum->bytes += other->bytes;
}

/* Whether each lost block may be in use by a pointer that was not read. */
static bool is_in_doubt(const struct hl_leaks *leaks)
{
	uint64_t blocks = 0;

	for (size_t i = 0; i < leaks->row_count; i++)
		if (!leaks->rows[i].is_ignored)
			blocks += leaks->rows[i].lost.blocks;
	return blocks <= hl_unread_words(&leaks->unread);
}

static void doubt(struct hl_leak_row *row)
{
	add_sum(&row->unknown, &row->lost);
	add_sum(&row->unknown, &row->indirect);
	row->lost = row->indirect = (struct hl_leak_sum){0};
}

static void add_up(struct hl_leaks *leaks)
{
	bool doubts = is_in_doubt(leaks);
	size_t kept = 0;

	for (size_t i = 0; i < leaks->row_count; i++) {
		struct hl_leak_row *row = &leaks->rows[i];
		if (row->is_ignored) {
			add_sum(&leaks->ignored, &row->lost);
			add_sum(&leaks->ignored, &row->indirect);
			continue;
		}
		if (doubts)
			doubt(row);
		add_sum(&leaks->lost, &row->lost);
		add_sum(&leaks->indirect, &row->indirect);
		add_sum(&leaks->possible, &row->possible);
		add_sum(&leaks->unknown, &row->unknown);
		/* The row of a ring that joined another one may be empty. */
		if (row->lost.blocks || row->possible.blocks || row->unknown.blocks)
			leaks->rows[kept++] = *row;
	}
	leaks->row_count = kept;
	if (kept)
		qsort(leaks->rows, kept, sizeof(*leaks->rows), compare_rows);
}

int hl_leak_rows_add_lost(struct hl_leak_rows *rows)
{
	struct hl_graph *graph = rows->graph;
	int r = refer_all(rows);

	graph->phase = HL_GRAPH_LOST;
	graph->on_block = take_lost;
	graph->context = rows;
	graph->window_end = 0;
	if (r == 0)
		r = add_owners(rows);
	if (r == 0)
		r = add_rings(rows);
	add_up(rows->leaks);
	return r;
}

int hl_leak_rows_new(struct hl_leaks *leaks, struct hl_graph *graph,
		     const struct hl_leaks_settings *settings, struct hl_leak_rows **ret_rows)
{
	struct hl_leak_rows *rows = calloc(1, sizeof(*rows));

	leaks->blocks = calloc(settings->show + 1, sizeof(*leaks->blocks));
	if (!rows || !leaks->blocks) {
		free(rows);
		return -ENOMEM;
	}
	rows->leaks = leaks;
	rows->graph = graph;
	hl_class_names_init(&rows->classes, graph, &leaks->names);
	rows->settings = settings;
	*ret_rows = rows;
	return 0;
}

void hl_leak_rows_free(struct hl_leak_rows *rows)
{
	if (!rows)
		return;
	hl_index_release(&rows->index);
	hl_class_names_release(&rows->classes);
	hl_index_release(&rows->ring_index);
	free(rows->rings);
	free(rows->ring_blocks);
	free(rows->possible);
	free(rows);
}

void hl_leaks_free(struct hl_leaks *leaks)
{
	if (!leaks)
		return;
	if (leaks->stacks)
		hl_recording_process_release(leaks->stacks);
	free(leaks->stacks);
	hl_heap_free(leaks->heap);
	hl_strings_release(&leaks->names);
	free(leaks->rows);
	free(leaks->frames);
	free(leaks->blocks);
	free(leaks);
}
