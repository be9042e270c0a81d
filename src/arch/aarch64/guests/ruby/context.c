/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds in Ruby's code of aarch64 where a thread has the address of its context; see ruby.h. */
#include "guests/ruby/ruby.h"

#define PROFILE_WORDS 24u /* of rb_profile_frames(), within which it has loaded the context */

#define STATIC_MAX \
	(UINT64_C(1) << 20) /* of offsets from the thread pointer; addresses are larger */

/*
 * By the first descriptor that the function uses (ELF for the Arm 64-bit Architecture, TLS descriptors): adrp x0, PAGE; ldr
 * REGISTER, [x0, #OFFSET]; add x0, x0, #OFFSET. Its second word is the offset from the thread pointer, or the address of module and
 * offset where the library was loaded later. A program without the library is of another build.
 */
bool hl_ruby_find_context(struct hl_ruby *ruby)
{
	const uint32_t *code = (const uint32_t *)ruby->api.profile_frames;
	uint64_t page = 0;

	for (uint32_t i = 0; i < PROFILE_WORDS; i++) {
		uint64_t pages = (uint64_t)(int64_t)((int32_t)(code[i] << 8) >> 13) << 2 |
				 (code[i] >> 29 & 3);
		uint64_t descriptor = page + (code[i] >> 10 & 0xfff);
		if ((code[i] & 0x9f00001f) == 0x90000000)
			page = ((uint64_t)(code + i) & ~UINT64_C(4095)) + (pages << 12);
		if (!page || (code[i] & 0xffc003ff) != 0x91000000)
			continue;
		if (descriptor & 7 ||
		    descriptor - ruby->api.start >= ruby->api.end - ruby->api.start)
			return false;
		uint64_t where = hl_ruby_word(descriptor, 8);
		ruby->tls_offset = where < STATIC_MAX ? (int64_t)where : 0;
		ruby->tls = where < STATIC_MAX ? NULL : (const uint64_t *)where;
		return where && !(where & 7);
	}
	return false;
}
