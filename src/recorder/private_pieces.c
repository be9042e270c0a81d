/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cuts what is small from larger mappings; see private_map.h. A process has about 65,530 mappings at most
 * (vm.max_map_count), of which a program needs two for each of its threads.
 */
#include "recorder/private_map.h"

#include "recorder/spin.h"
#include "recorder/sys.h"

#include <stdatomic.h>

/* Sizes of pieces are powers of two. */
#define PIECE_BITS_MIN HL_PAGE_BITS_MAX
#define PIECE_BITS_MAX 19
#define PIECE_CLASSES  (PIECE_BITS_MAX - PIECE_BITS_MIN + 1)

/* Each mapping is an eighth of all before, so that little is reserved that is not used: it is missing from what the program
 * may map (RLIMIT_AS), and heads from its private memory (RLIMIT_DATA), too. */
#define SLAB_SHARE	8
#define SLAB_BYTES_MIN	((size_t)1 << 20)
#define SLAB_BYTES_MAX	((size_t)64 << 20)
#define HEADS_BYTES_MIN ((size_t)4 * HL_PRIVATE_MAP_HEAD)
#define HEADS_BYTES_MAX ((size_t)256 * HL_PRIVATE_MAP_HEAD)
#define SLABS_MAX	1024u

/* A free one. */
struct piece {
	struct piece *next;
};

/* In ordinary memory: a forked child begins with hl_private_pieces_forget(). */
static _Atomic uint32_t lock;
static struct pool {
	char *next, *end; /* of the newest mapping, what is left */
	size_t bytes;	  /* of all mappings */
	struct piece *free[PIECE_CLASSES];
} pools[2]; /* the second one of heads */

static struct slab {
	uintptr_t start, end;
} slabs[SLABS_MAX];
static _Atomic uint32_t slab_count;

/* What is left once the system may not be asked: mappings from which all is cut, for good. */
#define RESERVE_BYTES	     ((size_t)128 << 20)
#define RESERVE_BYTES_LOCKED ((size_t)8 << 20) /* where all that is mapped is brought in */
#define RESERVE_BYTES_MIN    ((size_t)1 << 20)
#define RESERVE_SHARE	     16 /* of what the program may map */
#define RESERVE_HEADS_BYTES  ((size_t)256 * HL_PRIVATE_MAP_HEAD)

static struct reserve {
	_Atomic uintptr_t start; /* 0: there is none */
	_Atomic size_t used;
	size_t bytes;
} reserves[2]; /* the second one of heads */

static void *take_reserved(size_t bytes, bool heads)
{
	struct reserve *reserve = &reserves[heads];
	size_t whole = (bytes + HL_PRIVATE_MAP_HEAD - 1) & ~(size_t)(HL_PRIVATE_MAP_HEAD - 1);
	size_t used = atomic_load(&reserve->used);

	do {
		if (!atomic_load(&reserve->start) || whole > reserve->bytes - used)
			return NULL;
	} while (!atomic_compare_exchange_weak(&reserve->used, &used, used + whole));
	return (char *)atomic_load(&reserve->start) + used;
}

static bool is_reserved(uintptr_t address)
{
	for (uint32_t i = 0; i < 2; i++)
		if (atomic_load(&reserves[i].start) &&
		    address - atomic_load(&reserves[i].start) < reserves[i].bytes)
			return true;
	return false;
}

static void *take(size_t bytes, bool heads)
{
	void *reserved = take_reserved(bytes, heads);

	return reserved ? reserved : hl_private_map_take(bytes, heads);
}

static void give(void *address, size_t bytes)
{
	if (!is_reserved((uintptr_t)address))
		hl_private_map_give(address, bytes);
}

/* Whether the program has called mlockall(MCL_FUTURE): what is locked cannot be given back. */
static bool is_brought_in(void)
{
	void *page = hl_private_map_take(HL_PRIVATE_MAP_HEAD, false);

	if (!page)
		return false;
	bool is_locked = hl_sys_madvise(page, HL_PRIVATE_MAP_HEAD, MADV_DONTNEED) == -EINVAL;
	hl_private_map_give(page, HL_PRIVATE_MAP_HEAD);
	return is_locked;
}

static size_t bytes_to_reserve(void)
{
	uint64_t most = hl_sys_address_space_limit() / RESERVE_SHARE;
	size_t bytes = is_brought_in() ? RESERVE_BYTES_LOCKED : RESERVE_BYTES;

	while (bytes > most && bytes > RESERVE_BYTES_MIN)
		bytes /= 2;
	return bytes;
}

void hl_private_map_prepare(void)
{
	for (uint32_t heads = 0; heads < 2; heads++) {
		size_t bytes = heads ? RESERVE_HEADS_BYTES : bytes_to_reserve();
		void *start = NULL;
		if (atomic_load(&reserves[heads].start))
			continue;
		while (!(start = hl_private_map_take(bytes, heads)) && bytes > RESERVE_BYTES_MIN)
			bytes /= 2;
		reserves[heads].bytes = bytes;
		atomic_store(&reserves[heads].start, (uintptr_t)start);
	}
}

static uint32_t class_of(size_t bytes)
{
	return bytes <= (size_t)1 << PIECE_BITS_MIN
		       ? 0
		       : 64 - PIECE_BITS_MIN - (uint32_t)__builtin_clzll(bytes - 1);
}

static size_t next_slab_bytes(const struct pool *pool, bool heads)
{
	size_t least = heads ? HEADS_BYTES_MIN : SLAB_BYTES_MIN;
	size_t most = heads ? HEADS_BYTES_MAX : SLAB_BYTES_MAX;
	size_t bytes = pool->bytes / SLAB_SHARE & ~(least - 1);

	return bytes < least ? least : bytes < most ? bytes : most;
}

static bool add_slab(struct pool *pool, char *start, size_t bytes)
{
	uint32_t count = atomic_load(&slab_count);

	if (count == SLABS_MAX)
		return false;
	slabs[count] = (struct slab){(uintptr_t)start, (uintptr_t)start + bytes};
	atomic_store(&slab_count, count + 1);
	pool->next = start;
	pool->end = start + bytes;
	pool->bytes += bytes;
	return true;
}

/* One that is free, or a part of the newest mapping; NULL: neither is there. */
static struct piece *take_known(struct pool *pool, uint32_t class)
{
	size_t bytes = (size_t)1 << (PIECE_BITS_MIN + class);
	struct piece *piece = pool->free[class];

	if (piece) {
		pool->free[class] = piece->next;
		piece->next = NULL;
	} else if ((size_t)(pool->end - pool->next) >= bytes) {
		piece = (struct piece *)(void *)pool->next;
		pool->next += bytes;
	}
	return piece;
}

/* With the lock, which is given up while the system maps: others spin for as long as it is held. */
static struct piece *take_from_new_slab(struct pool *pool, uint32_t class, bool heads)
{
	size_t bytes = next_slab_bytes(pool, heads);

	if (atomic_load(&slab_count) == SLABS_MAX)
		return NULL;
	hl_spin_unlock(&lock);
	char *slab = take(bytes, heads);
	hl_spin_lock(&lock);
	struct piece *piece = take_known(pool, class); /* another thread may have mapped one */
	if (!piece && slab && add_slab(pool, slab, bytes)) {
		piece = take_known(pool, class);
		slab = NULL;
	}
	if (slab) {
		hl_spin_unlock(&lock);
		give(slab, bytes);
		hl_spin_lock(&lock);
	}
	return piece;
}

/* Without signals: a handler must not wait for the lock that its own thread holds. */
static void *take_piece(uint32_t class, bool heads)
{
	struct pool *pool = &pools[heads];
	uint64_t before;

	hl_sys_block_signals(&before);
	hl_spin_lock(&lock);
	struct piece *piece = take_known(pool, class);
	if (!piece)
		piece = take_from_new_slab(pool, class, heads);
	hl_spin_unlock(&lock);
	hl_sys_restore_signals(&before);
	return piece;
}

static void *new (size_t bytes, bool heads)
{
	void *piece =
		bytes <= (size_t)1 << PIECE_BITS_MAX ? take_piece(class_of(bytes), heads) : NULL;

	return piece ? piece : take(bytes, heads);
}

static bool is_piece(uintptr_t address)
{
	uint32_t count = atomic_load(&slab_count);

	for (uint32_t i = 0; i < count; i++)
		if (address >= slabs[i].start && address < slabs[i].end)
			return true;
	return false;
}

static void give_back(void *address, size_t bytes, bool heads)
{
	struct pool *pool = &pools[heads];
	uint32_t class = class_of(bytes);
	struct piece *piece = address;
	uint64_t before;

	if (!is_piece((uintptr_t)address)) {
		give(address, bytes);
		return;
	}
	hl_private_map_clear(address, (size_t)1 << (PIECE_BITS_MIN + class), heads);
	hl_sys_block_signals(&before);
	hl_spin_lock(&lock);
	piece->next = pool->free[class];
	pool->free[class] = piece;
	hl_spin_unlock(&lock);
	hl_sys_restore_signals(&before);
}

void *hl_private_map_new(size_t bytes)
{
	return new (bytes, false);
}

void hl_private_map_free(void *address, size_t bytes)
{
	give_back(address, bytes, false);
}

void *hl_private_map_new_whole(size_t bytes)
{
	return take(bytes, false);
}

void hl_private_map_free_whole(void *address, size_t bytes)
{
	give(address, bytes);
}

void *hl_private_map_new_head(void)
{
	return new (HL_PRIVATE_MAP_HEAD, true);
}

void hl_private_map_free_head(void *head)
{
	give_back(head, HL_PRIVATE_MAP_HEAD, true);
}

void hl_private_pieces_forget(void)
{
	for (uint32_t i = 0; i < 2; i++)
		pools[i] = (struct pool){0};
	for (uint32_t i = 0; i < 2; i++) {
		atomic_store(&reserves[i].start, 0);
		atomic_store(&reserves[i].used, 0);
	}
	atomic_store(&lock, 0);
	atomic_store(&slab_count, 0);
}
