/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds in Ruby's code of x86-64 where a thread has the address of its context; see ruby.h. */
#include "guests/ruby/ruby.h"

#include <string.h>

#define PROFILE_BYTES 96u /* of rb_profile_frames(), within which it has loaded the context */

static int32_t distance_at(const uint8_t *code)
{
	int32_t distance;

	memcpy(&distance, code, sizeof(distance));
	return distance;
}

static bool has_bytes(const uint8_t *code, const void *bytes, size_t count)
{
	return memcmp(code, bytes, count) == 0;
}

/*
 * By the first function that loads the context, in one of the forms of the ABI for thread-local storage (ELF Handling For
 * Thread-Local Storage, 4.4.6 and 4.4.7): of a library a call of __tls_get_addr() with the address of module and offset; of
 * a program, into which a linker has put the offset from the thread pointer, a load.
 */
bool hl_ruby_find_context(struct hl_ruby *ruby)
{
	static const uint8_t dynamic[] = {0x66, 0x48, 0x8d, 0x3d}; /* lea DISTANCE(%rip), %rdi */
	static const uint8_t pointer[] = {0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0};
	static const uint8_t added[] = {0x48, 0x8d, 0x80}; /* after %fs:0, lea OFFSET(%rax), %rax */
	static const uint8_t constant[] = {0x48, 0xc7, 0xc0}; /* mov $OFFSET, %rax */
	static const uint8_t loaded[] = {0x64, 0x48, 0x8b}; /* and soon mov %fs:(%rax), REGISTER */
	int32_t offset = 0;
	const uint8_t *code = (const uint8_t *)ruby->api.profile_frames;

	for (const uint8_t *at = code, *end = code + PROFILE_BYTES; at < end; at++) {
		const uint64_t *tls = (const uint64_t *)(at + 8 + distance_at(at + 4));
		if (has_bytes(at, dynamic, sizeof(dynamic))) {
			bool is_inside =
				(uint64_t)tls - ruby->api.start < ruby->api.end - ruby->api.start;
			ruby->tls = is_inside ? tls : NULL;
			return is_inside && !((uint64_t)tls & 7);
		}
		if (has_bytes(at, pointer, sizeof(pointer)) && has_bytes(at + 9, added, 3))
			ruby->tls_offset = distance_at(at + 12);
		else if (has_bytes(at, constant, 3))
			offset = distance_at(at + 3);
		else if (offset < 0 && has_bytes(at, loaded, 3) && (at[3] & 0xc7) == 0)
			ruby->tls_offset = offset;
		else if (at[0] == 0x64 && (at[1] & 0xfb) == 0x48 && at[2] == 0x8b &&
			 (at[3] & 0xc7) == 0x04 && at[4] == 0x25)
			ruby->tls_offset = distance_at(at + 5);
		/* Above the thread pointer there are other things, such as the guard of stacks. */
		if (ruby->tls_offset < 0)
			return !(ruby->tls_offset & 7);
	}
	return false;
}
