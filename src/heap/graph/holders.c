/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a process and finds who keeps its blocks; see holders.h. */
#include "heap/graph/holder_parts.h"

#include "base/array.h"
#include "heap/graph/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Words of one stack that are copied to walk it: 8 MiB. */
#define STACK_WORDS_MAX (UINT64_C(1) << 20)

/* Words this near to each other that no symbol names are one holder, such as an array. */
#define GAP_MAX 16u

/* ---- roots ---- */

static int take_thread(struct hl_holder_look *look, const uint64_t *words)
{
	struct hl_root_thread thread = {0};

	memcpy(&thread.registers, words, sizeof(thread.registers));
	return HL_ARRAY_APPEND(look->threads, look->thread_count, look->thread_capacity, thread);
}

/* Keeps what lies above the stack pointer of a thread, as far as it comes in one piece. Frames end below
 * struct pthread; the next mapping may begin just after it. */
static int copy_stack(struct hl_holder_look *look, uint64_t address, const uint64_t *words,
		      size_t count)
{
	uint64_t end = address + count * 8;

	for (size_t i = 0; i < look->thread_count; i++) {
		struct hl_root_thread *thread = &look->threads[i];
		uint64_t sp = hl_thread_registers_sp(&thread->registers) & ~UINT64_C(7);
		uint64_t own = hl_thread_registers_thread(&thread->registers) & ~UINT64_C(7);
		uint64_t from = thread->count ? thread->start + thread->count * 8 : sp;
		uint64_t to = own > sp && own < end ? own : end;
		if (from < address || from >= to || thread->count >= STACK_WORDS_MAX)
			continue;
		size_t added = (size_t)(to - from) / 8;
		if (HL_ARRAY_RESERVE(thread->words, thread->capacity, thread->count + added) < 0)
			return -ENOMEM;
		thread->start = sp;
		memcpy(thread->words + thread->count, words + (from - address) / 8, added * 8);
		thread->count += added;
	}
	return 0;
}

static int take_word(struct hl_holder_look *look, uint64_t address, uint32_t node)
{
	return HL_ARRAY_APPEND(look->words, look->word_count, look->word_capacity,
			       (struct hl_root_word){.address = address, .node = node});
}

/*
 * In a system call no function has a use for registers that calls do not keep, nor for the red zone below the stack pointer. What is left there from
 * earlier functions would share what others keep.
 */
static bool is_left_over(const struct hl_holder_look *look, uint64_t address)
{
	size_t thread = address / HL_HOLDER_REGISTERS, number = address % HL_HOLDER_REGISTERS;

	if (thread < look->thread_count)
		return hl_thread_registers_in_call(&look->threads[thread].registers) &&
		       hl_thread_registers_is_scratch(number);
	for (size_t i = 0; i < look->thread_count; i++) {
		const struct hl_thread_registers *registers = &look->threads[i].registers;
		uint64_t sp = hl_thread_registers_sp(registers);
		if (address < sp && address >= sp - HL_RED_ZONE_BYTES &&
		    hl_thread_registers_in_call(registers))
			return true;
	}
	return false;
}

static int take_root(void *context, uint64_t address, const uint64_t *words, size_t count,
		     bool has_headers)
{
	struct hl_holder_finder *finder = context;
	const struct hl_block_edges *edges = &finder->edges;
	struct hl_holder_look *look = finder->look;
	uint32_t node;
	int r = address ? copy_stack(look, address, words, count) : take_thread(look, words);

	uint64_t registers = (look->thread_count - 1) * HL_HOLDER_REGISTERS;
	for (size_t i = 0; i < count && r == 0; i++) {
		uint64_t at = address ? address + i * 8 : registers + i;
		node = hl_block_edges_node(edges, words[i]);
		/* Inside malloc and free a block may be known by its header alone. */
		if (!node && has_headers && !(words[i] & 15)) {
			node = hl_block_edges_node(edges, words[i] + 16);
			if (node && hl_block_edges_address(edges, node) != words[i] + 16)
				node = 0;
		}
		if (node && !(has_headers && is_left_over(look, at)))
			r = take_word(look, at, node);
	}
	return r;
}

/* With --stop for 100 ms at most. */
static bool stands_still(const struct hl_holder_finder *finder)
{
	return !finder->pid || (finder->settings->stop && !finder->memory->is_late);
}

static void begin_look(struct hl_holder_finder *finder)
{
	finder->look = &finder->looks[finder->look_count++];
	finder->graph.on_root = take_root;
	finder->graph.root_context = finder;
}

static int see_parts_of_roots(struct hl_holder_finder *finder, unsigned roots)
{
	return hl_graph_see_roots(&finder->graph, &finder->glibc, &finder->heap, &finder->foreign,
				  roots);
}

static int see_roots(struct hl_holder_finder *finder)
{
	begin_look(finder);
	if (!stands_still(finder) && !finder->cannot_stop.text[0] &&
	    hl_memory_stop(finder->memory, &finder->cannot_stop) == -ESRCH)
		return hl_error_set(finder->err, -ESRCH, "%s", finder->cannot_stop.text);
	return see_parts_of_roots(finder,
				  HL_ROOTS_ALL | (stands_still(finder) ? 0 : HL_ROOTS_GO_ON));
}

/* ---- reading ---- */

static int take_block(void *context, uint64_t address, uint64_t usable_bytes,
		      uint64_t counted_bytes)
{
	struct hl_holder_finder *finder = context;

	if (!finder->graph.live_blocks && hl_block_walk_is_of_slabs(finder->holders->heap))
		hl_graph_expect_slabs(&finder->graph, false);
	hl_memory_keep_time_of_block(finder->memory, usable_bytes);
	return hl_graph_add_counted(&finder->graph, address, usable_bytes, counted_bytes);
}

static int take_foreign(void *context, uint64_t start, uint64_t end)
{
	struct hl_holder_finder *finder = context;

	return hl_extents_add(&finder->foreign, start, end);
}

static int walk(struct hl_holder_finder *finder)
{
	const struct hl_block_walk walk = {.pid = finder->pid,
					   .memory = finder->memory,
					   .block = take_block,
					   .foreign = take_foreign,
					   .context = finder,
					   .takes_small = true,
					   .command = "holders"};
	struct hl_walked_table table = {0};
	int r = hl_block_walk(&walk, finder->holders->heap, &finder->heap, &table, finder->err);

	finder->has_table = table.is_there;
	hl_extents_sort(&finder->foreign);
	return r == 0 ? hl_graph_settle(&finder->graph, &finder->heap) : r;
}

static int stop_outside_malloc(struct hl_holder_finder *finder)
{
	bool is_locked = false;
	int r = hl_stand_begin_outside_malloc(finder->memory, &finder->glibc, &is_locked,
					      finder->err);

	return r == 0 && is_locked
		       ? hl_heap_note(finder->holders->heap, "%s",
				      "a thread was inside malloc or free: blocks that it was "
				      "moving may be missing, or in the wrong row")
		       : r;
}

/* What the roots and the blocks lead to. What is most likely to change comes first, see hl_stand_begin_outside_malloc(). */
static int read_edges(struct hl_holder_finder *finder)
{
	int r;

	if (!stands_still(finder)) {
		uint64_t late_bytes = finder->memory->late_bytes;
		r = see_roots(finder);
		finder->memory->late_bytes = late_bytes; /* the roots are read once more */
		if (r == 0)
			r = hl_block_edges_read(&finder->edges);
		return r == 0 ? see_roots(finder) : r;
	}
	begin_look(finder);
	r = see_parts_of_roots(finder, HL_ROOTS_STACKS);
	if (r == 0)
		r = hl_block_edges_read(&finder->edges);
	return r == 0 ? see_parts_of_roots(finder, HL_ROOTS_OTHERS) : r;
}

static int read_process(struct hl_holder_finder *finder)
{
	struct hl_holders *holders = finder->holders;
	int r = hl_graph_init(&finder->graph, finder->memory);

	/* A recorder's table has blocks of allocators that pack those of 8 bytes. */
	if (finder->pid && hl_maps_have_file(&finder->memory->maps, "memfd:heapline"))
		hl_graph_expect_slabs(&finder->graph, false);

	finder->graph.reads_unaligned = finder->settings->reads_unaligned;
	holders->heap->was_stopped = !finder->pid;
	/* If it is not a glibc heap, the walk reports a better error. */
	hl_glibc_roots_find(finder->memory, &finder->glibc, NULL);
	if (r == 0 && finder->pid && finder->settings->stop)
		r = stop_outside_malloc(finder);
	if (r == 0)
		r = walk(finder);
	/* A stop may have ended while the walk went on. */
	holders->heap->was_stopped = stands_still(finder);
	holders->live = (struct hl_leak_sum){finder->graph.live_blocks, finder->graph.live_bytes};
	hl_class_names_init(&finder->classes, &finder->graph, &holders->names);
	if (r == 0)
		r = hl_block_edges_init(&finder->edges, &finder->graph, &finder->classes);
	if (r == 0)
		r = read_edges(finder);
	hl_memory_go_on(finder->memory);
	holders->stopped_ns = finder->memory->stopped_ns;
	return r;
}

/* ---- holders ---- */

static int make_label(struct hl_strings *names, struct hl_holder *holder)
{
	const char *module = hl_strings_text(names, holder->module);
	const char *place = hl_strings_text(names, holder->place);
	char *text;

	if (asprintf(&text, "%s%s%s", module, *module && *place ? " " : "", place) < 0)
		return -ENOMEM;
	int r = hl_strings_intern(names, text, &holder->label);
	free(text);
	return r;
}

static int find_holder(struct hl_holder_finder *finder, const struct hl_root_name *name,
		       uint32_t *ret_holder)
{
	struct hl_holders *holders = finder->holders;
	uint32_t hash = hl_hash_pair(hl_hash_pair(name->kind, name->name),
				     hl_hash_pair(name->module, name->place)),
		 at = hash, id;

	while ((id = hl_index_next(&finder->holder_index, hash, &at))) {
		const struct hl_holder *holder = &holders->holders[id - 1];
		if (holder->kind == (enum hl_holder_kind)name->kind && holder->name == name->name &&
		    holder->module == name->module && holder->place == name->place) {
			*ret_holder = id - 1;
			return 0;
		}
	}
	struct hl_holder added = {.kind = (enum hl_holder_kind)name->kind,
				  .name = name->name,
				  .module = name->module,
				  .place = name->place,
				  .label = name->name,
				  .start = name->start};
	/* The last one stands for all that are too many. */
	if (holders->holder_count == HL_BLOCK_EDGES_HOLDERS_MAX) {
		*ret_holder = HL_BLOCK_EDGES_HOLDERS_MAX - 1;
		return 0;
	}
	int r = added.label ? 0 : make_label(&holders->names, &added);
	if (r == 0)
		r = HL_ARRAY_APPEND(holders->holders, holders->holder_count,
				    holders->holder_capacity, added);
	*ret_holder = (uint32_t)holders->holder_count - 1;
	return r == 0 ? hl_index_add(&finder->holder_index, hash, *ret_holder + 1) : r;
}

static int compare_words(const void *left, const void *right)
{
	const struct hl_root_word *a = left, *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return (a->node > b->node) - (a->node < b->node);
}

static int find_name(struct hl_root_names *names, const struct hl_holder_look *look,
		     uint64_t address, struct hl_root_name *ret_name)
{
	size_t thread = address / HL_HOLDER_REGISTERS;

	if (thread >= look->thread_count)
		return hl_root_names_find(names, address, ret_name);
	return hl_root_names_find_register(names, thread,
					   hl_thread_registers_sp(&look->threads[thread].registers),
					   (unsigned)(address % HL_HOLDER_REGISTERS), ret_name);
}

/* Gives each word of a look its holder. */
static int name_words(struct hl_holder_finder *finder, struct hl_root_names *names,
		      struct hl_holder_look *look)
{
	struct hl_root_name name = {0};
	uint64_t last = 0;
	uint32_t holder = 0;
	int r = hl_root_names_set_threads(names, look->threads, look->thread_count);

	if (look->word_count)
		qsort(look->words, look->word_count, sizeof(*look->words), compare_words);
	for (size_t i = 0; i < look->word_count && r == 0; i++) {
		uint64_t address = look->words[i].address;
		bool is_same = address >= name.start && address < name.end;
		bool was_nameless = name.kind == HL_ROOT_VARIABLE && name.end && !name.name;
		struct hl_root_name found = name;
		if (!is_same)
			r = find_name(names, look, address, &found);
		bool goes_on = was_nameless && found.kind == name.kind && !found.name &&
			       found.module == name.module && address - last <= GAP_MAX;
		if (r == 0 && !is_same && !goes_on)
			r = find_holder(finder, &found, &holder);
		name = found;
		last = address;
		look->words[i].holder = holder;
	}
	return r;
}

static int name_roots(struct hl_holder_finder *finder)
{
	int r = hl_root_names_new(finder->memory, &finder->holders->names, &finder->names);

	for (unsigned i = 0; i < finder->look_count && r == 0; i++)
		r = name_words(finder, finder->names, &finder->looks[i]);
	return r;
}

static int compare_holders(const void *left, const void *right)
{
	const struct hl_root_word *a = left, *b = right;

	if (a->holder != b->holder)
		return a->holder < b->holder ? -1 : 1;
	return compare_words(left, right);
}

/* Appends the words of later looks to those of the first. */
static int join_looks(struct hl_holder_finder *finder)
{
	struct hl_holder_look *first = &finder->looks[0];
	int r = 0;

	for (unsigned i = 1; i < finder->look_count; i++)
		for (size_t k = 0; k < finder->looks[i].word_count && r == 0; k++)
			r = HL_ARRAY_APPEND(first->words, first->word_count, first->word_capacity,
					    finder->looks[i].words[k]);
	if (first->word_count)
		qsort(first->words, first->word_count, sizeof(*first->words), compare_holders);
	return r;
}

bool hl_holder_is_in_memory(const struct hl_holder_finder *finder, uint64_t address)
{
	size_t threads = 0;

	for (unsigned i = 0; i < finder->look_count; i++)
		if (finder->looks[i].thread_count > threads)
			threads = finder->looks[i].thread_count;
	return address / HL_HOLDER_REGISTERS >= threads && !(address & HL_GRAPH_KERNEL_ROOTS);
}

static int add_holders(struct hl_holder_finder *finder)
{
	struct hl_holders *holders = finder->holders;
	const struct hl_holder_look *look = &finder->looks[0];
	int r = join_looks(finder);

	for (size_t i = 0; i < look->word_count && r == 0; i++) {
		const struct hl_root_word *word = &look->words[i];
		if (!i || word->holder != look->words[i - 1].holder)
			r = hl_block_edges_add_holder(&finder->edges);
		if (!holders->holders[word->holder].first_word &&
		    hl_holder_is_in_memory(finder, word->address))
			holders->holders[word->holder].first_word = word->address;
		if (r == 0)
			r = hl_block_edges_add_to_holder(&finder->edges, word->node);
	}
	finder->digraph = hl_block_edges_finish(&finder->edges);
	holders->edges = finder->edges.edge_count - HL_BLOCK_EDGES_HOLDERS_MAX;
	return r;
}

/* ---- what is asked for ---- */

static int match_frame(void *context, const struct hl_block_frame *frame)
{
	return regexec(context, frame->function, 0, NULL, 0) == 0;
}

/* 1: blocks of the owner ${number} are asked for; 0; or a negative errno. */
static int matches_stack(struct hl_holder_finder *finder, uint64_t number)
{
	uint32_t hash = hl_hash_pair(number, 0), at = hash, id;
	struct hl_asked_owner owner = {.number = number};

	while ((id = hl_index_next(&finder->asked_index, hash, &at)))
		if (finder->asked[id - 1].number == number)
			return finder->asked[id - 1].matches;
	int r = hl_block_owners_each_frame(finder->owners, number, match_frame,
					   (void *)finder->settings->stack);
	if (r < 0)
		return r;
	owner.matches = r > 0;
	r = HL_ARRAY_APPEND(finder->asked, finder->asked_count, finder->asked_capacity, owner);
	if (r == 0)
		r = hl_index_add(&finder->asked_index, hash, (uint32_t)finder->asked_count);
	return r < 0 ? r : owner.matches;
}

static int is_selected(void *context, uint32_t node, uint64_t block, uint64_t usable_bytes)
{
	struct hl_holder_finder *finder = context;
	const struct hl_holders_settings *settings = finder->settings;
	const struct hl_block_label *label =
		&finder->edges.labels[finder->edges.block_labels[node]];
	uint64_t owner;

	if (settings->address && settings->address - block >= usable_bytes)
		return 0;
	/* malloc() rounds up to granules, less the header; what has a mapping of its own, to pages. Other
	 * allocators have four sizes or more between powers of two. */
	uint64_t rounding = 16 + (usable_bytes & 15 ? 0 : finder->memory->page_bytes);
	uint64_t size = hl_graph_counted(&finder->graph, block);
	if (finder->has_table)
		rounding = settings->size / 4 > 16 ? settings->size / 4 : 16;
	if (settings->size &&
	    (size < settings->size || (size - settings->size >= rounding && size > 24)))
		return 0;
	if (settings->type &&
	    (!label->type ||
	     regexec(settings->type, hl_strings_text(&finder->holders->names, label->type), 0, NULL,
		     0) != 0))
		return 0;
	if (!settings->stack)
		return 1;
	owner = hl_block_owners_find(finder->owners, block, usable_bytes);
	return owner ? matches_stack(finder, owner) : 0;
}

static int open_owners(struct hl_holder_finder *finder)
{
	if (!finder->settings->stack)
		return 0;
	if (!finder->pid)
		return hl_error_set(finder->err, -ENODATA,
				    "cannot find stacks in a core file: it has no recorder to ask; "
				    "ask by --class or --size");
	int r = hl_block_owners_new(finder->pid, &finder->owners, finder->err);
	return r == -ENODATA
		       ? hl_error_set(finder->err, r,
				      "cannot find stacks of process %d: neither a recorder "
				      "nor tags are in it; start it with 'heapline record', or "
				      "ask by --class or --size",
				      finder->pid)
		       : r;
}

/* ---- all ---- */

static int note_blind_spots(struct hl_holder_finder *finder)
{
	struct hl_holders *holders = finder->holders;
	struct hl_heap_arena total;
	int r = 0;

	hl_heap_total(holders->heap, &total);
	r = hl_stand_note_late(finder->memory, holders->heap,
			       "a block whose pointer was moved meanwhile may be in the wrong row");
	if (r == 0 && finder->pid && !finder->settings->stop)
		r = hl_heap_note(
			holders->heap, "%s",
			"the process ran on while it was read, so a block whose pointer moved "
			"may be in the wrong row; --stop gives one moment");
	if (r == 0 && finder->cannot_stop.text[0])
		r = hl_heap_note(holders->heap,
				 "registers could not be read, so a block that only a register "
				 "leads to counts as lost: %s",
				 finder->cannot_stop.text);
	if (r == 0 && finder->edges.holders == HL_BLOCK_EDGES_HOLDERS_MAX) {
		const struct hl_holder *last = &holders->holders[HL_BLOCK_EDGES_HOLDERS_MAX - 1];
		r = hl_heap_note(
			holders->heap,
			"there are %u holders or more: the row of '%s' stands for the last "
			"of them and all others",
			HL_BLOCK_EDGES_HOLDERS_MAX,
			hl_strings_text(&holders->names, last->name ? last->name : last->place));
	}
	if (r == 0 && total.unscanned_bytes)
		r = hl_heap_note(holders->heap, "%s",
				 "blocks that only unscanned memory leads to count as lost");
	if (r == 0)
		r = hl_unread_note(&finder->graph.unread, holders->heap, "holders");
	return r;
}

/* Pieces in the recorder's table are blocks like any others. */
static int note_pieces(struct hl_holder_finder *finder)
{
	struct hl_block_owners *owners = finder->owners;
	struct hl_error why = {0};
	int r = 0;

	if (!finder->pid || finder->has_table)
		return 0;
	if (!owners)
		r = hl_block_owners_new(finder->pid, &owners, &why);
	/* Without a recorder pieces are unknown. */
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	r = hl_block_owners_note_pieces(owners, finder->holders->heap);
	if (owners != finder->owners)
		hl_block_owners_free(owners);
	return r;
}

static int find(struct hl_holder_finder *finder)
{
	int r = open_owners(finder);

	if (r == 0)
		r = read_process(finder);
	if (r == 0)
		r = name_roots(finder);
	if (r == 0)
		r = add_holders(finder);
	if (r == 0)
		r = hl_dominators_find(&finder->digraph, &finder->dominators);
	if (r == 0)
		r = hl_holder_sums_make(finder->holders, &finder->edges, &finder->digraph,
					&finder->dominators, is_selected, finder);
	if (r == 0)
		r = hl_holder_follow(finder);
	if (r == 0)
		r = hl_holder_name_words(finder);
	if (r == 0)
		r = note_pieces(finder);
	return r == 0 ? note_blind_spots(finder) : r;
}

static void release(struct hl_holder_finder *finder)
{
	for (unsigned i = 0; i < HL_HOLDER_LOOKS_MAX; i++) {
		for (size_t k = 0; k < finder->looks[i].thread_count; k++)
			free(finder->looks[i].threads[k].words);
		free(finder->looks[i].threads);
		free(finder->looks[i].words);
	}
	hl_root_names_free(finder->names);
	hl_dominators_release(&finder->dominators);
	hl_block_edges_release(&finder->edges);
	hl_class_names_release(&finder->classes);
	hl_graph_release(&finder->graph);
	hl_extents_release(&finder->heap);
	hl_extents_release(&finder->foreign);
	hl_index_release(&finder->holder_index);
	hl_index_release(&finder->asked_index);
	free(finder->asked);
	hl_block_owners_free(finder->owners);
	hl_memory_free(finder->memory);
}

int hl_holders_read(pid_t pid, const char *core, const struct hl_holders_settings *settings,
		    struct hl_holders **ret_holders, struct hl_error *err)
{
	struct hl_holders *holders = calloc(1, sizeof(*holders));
	struct hl_holder_finder finder = {
		.pid = core ? 0 : pid, .settings = settings, .holders = holders, .err = err};
	int r = holders && (holders->heap = hl_heap_new()) ? 0 : -ENOMEM;

	if (r == 0 && core)
		r = hl_memory_core_open(core, &finder.memory, &holders->heap->process, err);
	else if (r == 0 && (r = hl_process_facts_read(pid, &holders->heap->process, err)) == 0)
		r = hl_memory_live_open(pid, &finder.memory, err);
	if (r == 0 && !core && settings->reads_swapped)
		hl_memory_live_read_swapped(finder.memory);
	if (r == 0) {
		holders->heap->from_core = core != NULL;
		r = find(&finder);
	}
	release(&finder);
	if (r == 0) {
		*ret_holders = holders;
		return 0;
	}
	hl_holders_free(holders);
	return hl_error_set(err, r, "cannot find who keeps blocks: %s",
			    r == -E2BIG ? "there are more than 4 billion of them, or of words that "
					  "lead to them"
					: strerror(-r));
}

void hl_holders_free(struct hl_holders *holders)
{
	if (!holders)
		return;
	hl_heap_free(holders->heap);
	hl_strings_release(&holders->names);
	free(holders->holders);
	free(holders->branches);
	free(holders->children);
	free(holders->chain);
	free(holders);
}
