/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks through text piece by piece, in the process' memory: that is what will run. */
#include "hook/gadgets.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "hook/remote.h"
#include "process/process.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (256u << 10)
#define LONGEST	    9u /* of the gadgets */

static const uint8_t syscall_code[] = {0x0f, 0x05, 0xc3};
/* Both encodings of `mov $15, %rax`. */
static const uint8_t sigreturn_long[LONGEST] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
static const uint8_t sigreturn_short[] = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};

/* xchg with edx, ebx, ebp, esi, edi: a system call keeps them, but not ecx. */
static const uint8_t exchange_opcodes[] = {0x92, 0x93, 0x95, 0x96, 0x97};

/* syscall; ret; xchg %eax, %edx; ret; mov $15, %eax; syscall */
#define PLANTED_EXCHANGE  3u
#define PLANTED_SIGRETURN 5u
static const uint8_t planted[] = {0x0f, 0x05, 0xc3, 0x92, 0xc3, 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};
_Static_assert(sizeof(planted) == sizeof(((struct hl_gadgets *)0)->displaced), "they take turns");

static bool are_found(const struct hl_gadgets *gadgets)
{
	return gadgets->syscall && gadgets->sigreturn && gadgets->exchange;
}

/* Sets *${address} if it is not known yet. */
static void find_code(const uint8_t *bytes, size_t size, uint64_t start, const uint8_t *code,
		      size_t code_bytes, uint64_t *address)
{
	const uint8_t *found = *address ? NULL : memmem(bytes, size, code, code_bytes);

	if (found)
		*address = start + (uint64_t)(found - bytes);
}

static void search_piece(const uint8_t *bytes, size_t size, uint64_t start,
			 struct hl_gadgets *gadgets)
{
	find_code(bytes, size, start, syscall_code, sizeof(syscall_code), &gadgets->syscall);
	find_code(bytes, size, start, sigreturn_long, sizeof(sigreturn_long), &gadgets->sigreturn);
	find_code(bytes, size, start, sigreturn_short, sizeof(sigreturn_short),
		  &gadgets->sigreturn);
	for (size_t i = 0; i < sizeof(exchange_opcodes) && !gadgets->exchange; i++) {
		const uint8_t code[] = {exchange_opcodes[i], 0xc3};
		find_code(bytes, size, start, code, sizeof(code), &gadgets->exchange);
		gadgets->exchange_opcode = exchange_opcodes[i];
	}
}

static void search_map(const struct hl_remote *remote, const struct hl_map *map, uint8_t *piece,
		       struct hl_gadgets *gadgets)
{
	for (uint64_t at = map->start; at < map->end && !are_found(gadgets);
	     at += PIECE_BYTES - LONGEST) {
		uint64_t rest = map->end - at;
		size_t size = rest < PIECE_BYTES ? (size_t)rest : PIECE_BYTES;
		if (!hl_remote_read(remote, at, piece, size))
			return;
		search_piece(piece, size, at, gadgets);
	}
}

static bool is_libc(const struct hl_map *map)
{
	const char *name = hl_path_basename(map->path);

	return strncmp(name, "libc.", 5) == 0 || strncmp(name, "libc-", 5) == 0 ||
	       strncmp(name, "ld-musl", 7) == 0;
}

bool hl_gadgets_find(const struct hl_remote *remote, pid_t pid, const struct hl_maps *maps,
		     struct hl_gadgets *ret_gadgets)
{
	struct hl_gadgets gadgets = {0};
	HL_FREED uint8_t *piece = malloc(PIECE_BYTES);

	if (!piece)
		return false;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < maps->count && !are_found(&gadgets); i++) {
			const struct hl_map *map = &maps->maps[i];
			bool is_text = map->inode && (map->flags & HL_MAP_EXEC) &&
				       !(map->flags & (HL_MAP_WRITE | HL_MAP_SHARED));
			if (is_text && is_libc(map) == (pass == 0))
				search_map(remote, map, piece, &gadgets);
		}
	}
	if (!are_found(&gadgets)) {
		uint64_t entry = hl_process_auxv(pid, AT_ENTRY);
		if (!entry)
			return false;
		gadgets = (struct hl_gadgets){
			.syscall = entry,
			.exchange = entry + PLANTED_EXCHANGE,
			.exchange_opcode = planted[PLANTED_EXCHANGE],
			.sigreturn = entry + PLANTED_SIGRETURN,
			.entry = entry,
		};
	}
	*ret_gadgets = gadgets;
	return true;
}

bool hl_gadgets_hold(const struct hl_remote *remote, const struct hl_gadgets *gadgets)
{
	uint8_t call[sizeof(syscall_code)], back[sizeof(sigreturn_long)], keep[2];
	const uint8_t exchange[] = {gadgets->exchange_opcode, 0xc3};

	if (gadgets->entry)
		return true;
	return hl_remote_read(remote, gadgets->syscall, call, sizeof(call)) &&
	       hl_remote_read(remote, gadgets->sigreturn, back, sizeof(back)) &&
	       hl_remote_read(remote, gadgets->exchange, keep, sizeof(keep)) &&
	       memcmp(call, syscall_code, sizeof(call)) == 0 &&
	       memcmp(keep, exchange, sizeof(keep)) == 0 &&
	       (memcmp(back, sigreturn_long, sizeof(sigreturn_long)) == 0 ||
		memcmp(back, sigreturn_short, sizeof(sigreturn_short)) == 0);
}

bool hl_gadgets_plant(const struct hl_remote *remote, struct hl_gadgets *gadgets)
{
	if (!gadgets->entry || gadgets->are_planted)
		return true;
	gadgets->are_planted = hl_remote_read(remote, gadgets->entry, gadgets->displaced,
					      sizeof(gadgets->displaced)) &&
			       hl_remote_write(remote, gadgets->entry, planted, sizeof(planted));
	return gadgets->are_planted;
}

void hl_gadgets_unplant(const struct hl_remote *remote, struct hl_gadgets *gadgets)
{
	if (gadgets->are_planted)
		hl_remote_write(remote, gadgets->entry, gadgets->displaced,
				sizeof(gadgets->displaced));
	gadgets->are_planted = false;
}
