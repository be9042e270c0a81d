/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts test cases; see cases.h, and heapline.h for what programs call. */
#define HL_WITHOUT_ANNOTATIONS /* those are for programs */
#include "heapline/heapline.h"

#include "recorder/cases.h"

#include "base/clock.h"
#include "recorder/event.h"
#include "recorder/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define FIRST_BITS 12u /* 64 KiB of blocks */
#define STACK_BITS 10u

static_assert(HL_CASE_NAME_MAX < sizeof(((struct hl_cases *)NULL)->name), "with its NUL");

#define BYTES_BITS 40u
#define BYTES_MASK ((UINT64_C(1) << BYTES_BITS) - 1)

/* One block. */
struct slot {
	uint64_t address; /* 0: free */
	uint64_t of;	  /* bytes, and above them the place in counts[] */
};

struct hl_case_count {
	uint32_t node;
	uint32_t marks; /* when peak_bytes was kept: those of the case */
	uint64_t allocations, allocated_bytes;
	uint64_t kept_blocks, kept_bytes; /* so far */
	uint64_t peak_bytes;		  /* at the mark */
};

/* Ordinary memory: forked children need it, too. */
static char directory[PATH_MAX];

void hl_cases_set_directory(const char *path)
{
	if (path && *path == '/' && strlen(path) < sizeof(directory))
		strcpy(directory, path);
}

/* ---- tables ---- */

static inline uint32_t place_of(uint64_t key, uint32_t bits)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
}

static bool renew(struct hl_case_table *table, uint32_t bits, size_t slot_bytes)
{
	void *slots = hl_private_map_new_whole(slot_bytes << bits);

	if (!slots)
		return false;
	*table = (struct hl_case_table){.slots = slots, .bits = bits};
	return true;
}

static void drop(struct hl_case_table *table, size_t slot_bytes)
{
	if (table->slots)
		hl_private_map_free_whole(table->slots, slot_bytes << table->bits);
	*table = (struct hl_case_table){0};
}

/* Empties the table; one that has grown is made again. */
static bool empty(struct hl_case_table *table, uint32_t bits, size_t slot_bytes)
{
	if (table->slots && table->bits == bits) {
		if (table->used)
			memset(table->slots, 0, slot_bytes << bits);
		table->used = 0;
		return true;
	}
	drop(table, slot_bytes);
	return renew(table, bits, slot_bytes);
}

static inline bool is_full(const struct hl_case_table *table)
{
	return table->used >= (UINT32_C(3) << table->bits) / 4;
}

/* The slot of a block at ${address} that counts[${place}] counts, or the free one after all at this address: a pool may cut its first
 * piece where its own block begins, and a block that realloc() has moved is freed here after others may lie there. */
static struct slot *find_block(const struct hl_case_table *table, uint64_t address, uint64_t place)
{
	struct slot *slots = table->slots;
	uint32_t mask = (UINT32_C(1) << table->bits) - 1, at = place_of(address, table->bits);

	while (slots[at].address &&
	       (slots[at].address != address || slots[at].of >> BYTES_BITS != place))
		at = (at + 1) & mask;
	return &slots[at];
}

#define NO_PLACE UINT64_MAX /* finds the free one */

static bool grow_blocks(struct hl_case_table *table)
{
	struct hl_case_table larger;

	if (table->bits == 31 || !renew(&larger, table->bits + 1, sizeof(struct slot)))
		return false;
	const struct slot *slots = table->slots;
	for (uint32_t i = 0; i >> table->bits == 0; i++)
		if (slots[i].address)
			*find_block(&larger, slots[i].address, NO_PLACE) = slots[i];
	larger.used = table->used;
	drop(table, sizeof(struct slot));
	*table = larger;
	return true;
}

/* Closes the gap, so that each block is found from its first place on without one. */
static void remove_block(struct hl_case_table *table, struct slot *gone)
{
	struct slot *slots = table->slots;
	uint32_t mask = (UINT32_C(1) << table->bits) - 1, gap = (uint32_t)(gone - slots);

	for (uint32_t at = (gap + 1) & mask; slots[at].address; at = (at + 1) & mask) {
		uint32_t first = place_of(slots[at].address, table->bits);
		if (((at - first) & mask) >= ((at - gap) & mask)) {
			slots[gap] = slots[at];
			gap = at;
		}
	}
	slots[gap].address = 0;
	table->used--;
}

static uint32_t *find_stack(const struct hl_cases *cases, uint32_t node)
{
	uint32_t *slots = cases->stacks.slots, bits = cases->stacks.bits;
	uint32_t mask = (UINT32_C(1) << bits) - 1, at = place_of(node, bits);

	while (slots[at] && cases->counts[slots[at] - 1].node != node)
		at = (at + 1) & mask;
	return &slots[at];
}

static bool grow_stacks(struct hl_cases *cases)
{
	uint32_t capacity = cases->capacity ? cases->capacity * 2 : 3u << (STACK_BITS - 2);
	struct hl_case_count *counts = hl_private_map_new_whole(capacity * sizeof(*counts));

	if (!counts)
		return false;
	if (cases->capacity && cases->stacks.bits >= HL_NODE_BITS) {
		hl_private_map_free_whole(counts, capacity * sizeof(*counts));
		return false;
	}
	if (cases->counts) {
		struct hl_case_table larger;
		if (!renew(&larger, cases->stacks.bits + 1, sizeof(uint32_t))) {
			hl_private_map_free_whole(counts, capacity * sizeof(*counts));
			return false;
		}
		memcpy(counts, cases->counts, cases->count * sizeof(*counts));
		hl_private_map_free_whole(cases->counts, cases->capacity * sizeof(*counts));
		drop(&cases->stacks, sizeof(uint32_t));
		cases->stacks = larger;
	}
	cases->counts = counts;
	cases->capacity = capacity;
	for (uint32_t i = 0; i < cases->count; i++)
		*find_stack(cases, counts[i].node) = i + 1;
	cases->stacks.used = cases->count;
	return true;
}

/* ---- events ---- */

/* The count of ${node}, as it stood at the last mark before it changes; NULL without memory. */
static struct hl_case_count *count_of(struct hl_cases *cases, uint32_t node)
{
	uint32_t *place = find_stack(cases, node);

	if (HL_UNLIKELY(!*place)) {
		if (cases->count == cases->capacity) {
			if (!grow_stacks(cases))
				return NULL;
			place = find_stack(cases, node);
		}
		cases->counts[cases->count++] = (struct hl_case_count){.node = node};
		*place = cases->count;
		cases->stacks.used = cases->count;
	}
	return &cases->counts[*place - 1];
}

static inline void keep_peak(const struct hl_cases *cases, struct hl_case_count *count)
{
	if (count->marks == cases->marks)
		return;
	count->peak_bytes = count->kept_bytes;
	count->marks = cases->marks;
}

static void take_block(struct hl_cases *cases, struct slot *slot)
{
	struct hl_case_count *count = &cases->counts[slot->of >> BYTES_BITS];
	uint64_t bytes = slot->of & BYTES_MASK;

	cases->marks += cases->rises;
	cases->rises = false;
	keep_peak(cases, count);
	count->kept_bytes -= bytes;
	count->kept_blocks--;
	cases->inuse_bytes -= bytes;
	cases->kept_blocks--;
	remove_block(&cases->blocks, slot);
}

void hl_cases_alloc(struct hl_recorder *recorder, const void *block, uint32_t node, uint64_t bytes)
{
	struct hl_cases *cases = &recorder->cases;

	hl_spin_lock(&cases->lock);
	struct hl_case_count *count = cases->is_open ? count_of(cases, node) : NULL;
	bool has_room = count && bytes <= BYTES_MASK &&
			(!is_full(&cases->blocks) || grow_blocks(&cases->blocks));
	if (HL_LIKELY(has_room)) {
		uint64_t place = (uint64_t)(count - cases->counts);
		*find_block(&cases->blocks, (uintptr_t)block, NO_PLACE) =
			(struct slot){(uintptr_t)block, bytes | place << BYTES_BITS};
		cases->blocks.used++;
		keep_peak(cases, count);
		count->allocations++;
		count->allocated_bytes += bytes;
		count->kept_blocks++;
		count->kept_bytes += bytes;
		cases->allocations++;
		cases->allocated_bytes += bytes;
		cases->kept_blocks++;
		cases->inuse_bytes += bytes;
		if (cases->inuse_bytes > cases->peak_bytes) {
			cases->peak_bytes = cases->inuse_bytes;
			cases->rises = true;
		}
	} else {
		cases->lost += cases->is_open;
	}
	hl_spin_unlock(&cases->lock);
}

void hl_cases_free(struct hl_recorder *recorder, const void *block, uint32_t node)
{
	struct hl_cases *cases = &recorder->cases;

	hl_spin_lock(&cases->lock);
	uint32_t place = cases->is_open ? *find_stack(cases, node) : 0;
	if (place) {
		struct slot *slot = find_block(&cases->blocks, (uintptr_t)block, place - 1);
		if (slot->address)
			take_block(cases, slot);
	}
	hl_spin_unlock(&cases->lock);
}

/* ---- records ---- */

/* Maps the next window of the file of this process; one thread at a time begins or ends a case. */
static int next_window(struct hl_recorder *recorder)
{
	static char path[PATH_MAX + 32]; /* stacks of threads may be small */
	struct hl_cases *cases = &recorder->cases;
	size_t length = strlen(directory);
	uint64_t start = cases->window ? cases->window_start + HL_CASE_WINDOW : 0;

	memcpy(path, directory, length);
	path[length++] = '/';
	char *end = hl_sys_put_decimal(path + length, recorder->region.header->pid);
	*end++ = '-';
	hl_sys_put_decimal(end, (uint32_t)(recorder->region.header->start_realtime_ns / 1000000));
	int fd = (int)hl_sys6(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CREAT | O_CLOEXEC, 0600,
			      0, 0);
	if (fd < 0)
		return fd;
	/* With room on the disk, or touching it could end the process. A signal interrupts it on tmpfs. */
	long r;
	do {
		r = hl_sys6(SYS_fallocate, fd, 0, (long)start, HL_CASE_WINDOW, 0, 0);
	} while (r == -EINTR);
	if (r == 0)
		r = hl_sys6(SYS_mmap, 0, HL_CASE_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    (long)start);
	hl_sys_close(fd);
	if (r < 0 && r > -4096)
		return (int)r;
	if (cases->window)
		hl_sys_munmap(cases->window, HL_CASE_WINDOW);
	cases->window = (char *)r;
	cases->window_start = start;
	cases->window_used = 0;
	hl_sys_madvise(cases->window, HL_CASE_WINDOW, MADV_DONTFORK);
	return 0;
}

static int write_record(struct hl_recorder *recorder, enum hl_case_record_kind kind,
			const struct hl_case_stack *stacks, uint32_t stack_count)
{
	struct hl_cases *cases = &recorder->cases;
	const struct hl_region_header *header = recorder->region.header;
	size_t stack_bytes = stack_count * sizeof(*stacks);
	size_t bytes =
		(sizeof(struct hl_case_record) + stack_bytes + cases->name_bytes + 7) & ~(size_t)7;
	int r = !directory[0] || (cases->window && cases->window_used + bytes <= HL_CASE_WINDOW)
			? 0
			: next_window(recorder);

	if (r < 0 || !directory[0])
		return r;
	struct hl_case_record *record = (void *)(cases->window + cases->window_used);
	record->bytes = (uint32_t)bytes;
	record->kind = kind;
	record->process_start_ns = header->start_realtime_ns;
	record->pid = header->pid;
	record->number = cases->number;
	record->time_ns = hl_clock_ns(CLOCK_MONOTONIC);
	record->allocations = cases->allocations;
	record->allocated_bytes = cases->allocated_bytes;
	record->peak_bytes = cases->peak_bytes;
	record->kept_blocks = cases->kept_blocks;
	record->kept_bytes = cases->inuse_bytes;
	record->lost = cases->lost;
	record->stack_count = stack_count;
	record->name_bytes = cases->name_bytes;
	if (stack_bytes)
		memcpy(record + 1, stacks, stack_bytes);
	memcpy((char *)(record + 1) + stack_bytes, cases->name, cases->name_bytes);
	atomic_thread_fence(memory_order_release);
	record->magic = HL_CASE_MAGIC;
	cases->window_used += bytes;
	return 0;
}

static uint64_t peak_of(const struct hl_cases *cases, const struct hl_case_count *count)
{
	return !cases->rises && count->marks == cases->marks ? count->peak_bytes
							     : count->kept_bytes;
}

enum rank { BY_KEPT, BY_PEAK, BY_ALLOCATIONS, RANKS };

static uint64_t rank_of(const struct hl_cases *cases, const struct hl_case_count *count,
			enum rank rank)
{
	return rank == BY_KEPT	 ? count->kept_bytes
	       : rank == BY_PEAK ? peak_of(cases, count)
				 : count->allocations;
}

/* Places in counts[] of the stacks with most of ${rank}, largest first. Returns how many, at most ${max}. */
static uint32_t choose(const struct hl_cases *cases, enum rank rank, uint32_t max, uint32_t *chosen)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < cases->count; i++) {
		uint64_t value = rank_of(cases, &cases->counts[i], rank);
		uint32_t at = count;
		while (at > 0 && rank_of(cases, &cases->counts[chosen[at - 1]], rank) < value)
			at--;
		if (!value || at == max)
			continue;
		count += count < max;
		memmove(&chosen[at + 1], &chosen[at], (count - 1 - at) * sizeof(*chosen));
		chosen[at] = i;
	}
	return count;
}

static uint32_t collect(const struct hl_cases *cases,
			struct hl_case_stack stacks[HL_CASE_STACKS_MAX])
{
	static const uint32_t most[RANKS] = {HL_CASE_STACKS_MAX - 16, 8, 8};
	uint32_t chosen[HL_CASE_STACKS_MAX], count = 0;

	for (enum rank rank = 0; rank < RANKS; rank++) {
		uint32_t more = choose(cases, rank, most[rank], chosen);
		for (uint32_t i = 0; i < more; i++) {
			const struct hl_case_count *of = &cases->counts[chosen[i]];
			uint32_t at = 0;
			while (at < count && stacks[at].node != of->node)
				at++;
			if (at < count)
				continue;
			stacks[count++] =
				(struct hl_case_stack){.node = of->node,
						       .allocations = of->allocations,
						       .allocated_bytes = of->allocated_bytes,
						       .peak_bytes = peak_of(cases, of),
						       .kept_blocks = of->kept_blocks,
						       .kept_bytes = of->kept_bytes};
		}
	}
	return count;
}

/* ---- places, for programs that judge by themselves ---- */

struct text {
	char *at;
	size_t room;
};

static void put(struct text *text, const char *words, size_t length)
{
	length = length < text->room ? length : text->room;
	memcpy(text->at, words, length);
	text->at += length;
	text->room -= length;
	*text->at = '\0';
}

static void put_name(struct text *text, const struct hl_region_map *region, uint32_t offset)
{
	const struct hl_region_name *name = (const void *)(region->names + offset);

	put(text, name->text, name->bytes);
}

#define PLACE_FRAMES 3u

/* The innermost frames of scripts of ${node}: "parse (json.py:7) < load (main.py:3)". "" where there are none. */
static void describe(const struct hl_region_map *region, uint32_t node,
		     char place[HL_CASE_PLACE_BYTES])
{
	struct text text = {place, HL_CASE_PLACE_BYTES - 1};
	char digits[21];
	uint32_t path;

	place[0] = '\0';
	for (uint32_t frames = 0; node && frames < PLACE_FRAMES;
	     node = region->nodes[node].parent) {
		uint64_t key = atomic_load(&region->nodes[node].frame);
		uint32_t number;
		if (hl_frame_key_is_path(key, &path)) {
			node = path;
			key = atomic_load(&region->nodes[node].frame);
		}
		if (!hl_frame_key_is_site(key, &number)) {
			if (frames || key >> HL_MODULE_SHIFT != HL_MODULE_SCRIPT)
				return; /* outward there is native code alone */
			continue;
		}
		const struct hl_region_site *site = number ? &region->sites[number - 1] : NULL;
		if (!site ||
		    !((const struct hl_region_name *)(const void *)(region->names + site->source))
			     ->bytes)
			continue; /* a label */
		if (frames++)
			put(&text, " < ", 3);
		put_name(&text, region, site->function);
		put(&text, " (", 2);
		put_name(&text, region, site->source);
		put(&text, ":", 1);
		put(&text, digits, (size_t)(hl_sys_put_decimal(digits, site->line) - digits));
		put(&text, ")", 1);
	}
}

static void describe_most(const struct hl_recorder *recorder, enum rank rank,
			  char place[HL_CASE_PLACE_BYTES])
{
	uint32_t most;

	place[0] = '\0';
	if (choose(&recorder->cases, rank, 1, &most))
		describe(&recorder->region, recorder->cases.counts[most].node, place);
}

/* ---- what programs call ---- */

static int begin(struct hl_recorder *recorder, const char *name, size_t length)
{
	struct hl_region_header *header = recorder->region.header;
	struct hl_cases *cases = &recorder->cases;

	bool is_closed = hl_mode_of(atomic_load(&header->mode)) == HL_MODE_CLOSED;
	if ((is_closed && !directory[0]) || hl_region_is_sampled(header))
		return -EOPNOTSUPP;
	hl_spin_lock(&cases->lock);
	int r = cases->is_open || cases->is_ending ? -EBUSY
		: !empty(&cases->blocks, FIRST_BITS, sizeof(struct slot)) ||
				!empty(&cases->stacks,
				       cases->stacks.bits ? cases->stacks.bits : STACK_BITS,
				       sizeof(uint32_t)) ||
				(!cases->counts && !grow_stacks(cases))
			? -ENOMEM
			: 0;
	if (r == 0) {
		memcpy(cases->name, name, length);
		cases->name_bytes = (uint32_t)length;
		cases->number++;
		cases->count = cases->marks = 0;
		cases->inuse_bytes = cases->peak_bytes = cases->allocations = 0;
		cases->allocated_bytes = cases->kept_blocks = cases->lost = 0;
		cases->rises = false;
		cases->opens = is_closed;
		cases->is_ending = true; /* nobody else begins one */
	}
	hl_spin_unlock(&cases->lock);
	if (r < 0)
		return r;
	r = write_record(recorder, HL_CASE_BEGINS, NULL, 0);
	if (r == 0 && is_closed)
		hl_mode_switch(&header->mode, HL_MODE_MEM_FAST);
	if (r == 0)
		atomic_fetch_or(&header->mode, HL_MODE_CASE);
	hl_spin_lock(&cases->lock);
	cases->is_open = r == 0;
	cases->is_ending = false;
	hl_spin_unlock(&cases->lock);
	return r;
}

static int end(struct hl_recorder *recorder, enum hl_case_record_kind kind,
	       struct hl_case *ret_case)
{
	struct hl_cases *cases = &recorder->cases;
	struct hl_case_stack stacks[HL_CASE_STACKS_MAX];

	hl_spin_lock(&cases->lock);
	bool was_open = cases->is_open;
	cases->is_open = false;
	cases->is_ending |= was_open;
	hl_spin_unlock(&cases->lock);
	if (!was_open)
		return -EINVAL;
	atomic_fetch_and(&recorder->region.header->mode, ~HL_MODE_CASE);
	if (cases->opens)
		hl_mode_switch(&recorder->region.header->mode, HL_MODE_CLOSED);
	cases->lost += hl_region_is_sampled(recorder->region.header);
	uint32_t stack_count = kind == HL_CASE_ENDS ? collect(cases, stacks) : 0;
	int r = write_record(recorder, kind, stacks, stack_count);
	if (ret_case) {
		ret_case->allocations = cases->allocations;
		ret_case->allocated_bytes = cases->allocated_bytes;
		ret_case->peak_bytes = cases->peak_bytes;
		ret_case->kept_blocks = cases->kept_blocks;
		ret_case->kept_bytes = cases->inuse_bytes;
		ret_case->lost = cases->lost;
		describe_most(recorder, BY_PEAK, ret_case->peak_by);
		describe_most(recorder, BY_KEPT, ret_case->kept_by);
		describe_most(recorder, BY_ALLOCATIONS, ret_case->allocated_by);
	}
	hl_spin_lock(&cases->lock);
	cases->is_ending = false;
	hl_spin_unlock(&cases->lock);
	return r;
}

HL_EXPORT int hl_case_begin(const char *name)
{
	size_t length = name ? strnlen(name, HL_CASE_NAME_MAX + 1) : 0;

	if (!length)
		return -EINVAL;
	if (length > HL_CASE_NAME_MAX)
		return -ENAMETOOLONG;
	for (size_t i = 0; i < length; i++)
		if ((uint8_t)name[i] < ' ' || name[i] == 0x7f)
			return -EINVAL;
	/* A forked child's recorder starts with its first event. */
	struct hl_thread *thread = hl_thread_enter();
	if (!thread)
		return -ENOTCONN;
	int r = begin(hl_recorder, name, length);
	if (r < 0 && r != -EBUSY && directory[0])
		atomic_fetch_add(&hl_recorder->region.header->kin.refused_cases, 1);
	hl_thread_leave(thread);
	return r;
}

static int end_entered(enum hl_case_record_kind kind, struct hl_case *ret_case)
{
	struct hl_thread *thread = hl_thread_enter();

	if (!thread)
		return -ENOTCONN;
	int r = end(hl_recorder, kind, ret_case);
	hl_thread_leave(thread);
	return r;
}

HL_EXPORT int hl_case_end(struct hl_case *ret_case)
{
	return ret_case && ret_case->size != sizeof(*ret_case)
		       ? -EINVAL
		       : end_entered(HL_CASE_ENDS, ret_case);
}

HL_EXPORT int hl_case_drop(void)
{
	return end_entered(HL_CASE_DROPPED, NULL);
}
