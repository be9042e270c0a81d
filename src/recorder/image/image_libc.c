/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the recorder calls of libc, under the same names: in the image nothing of the target's libc
 * is called but what heapline has given the address of. Compiled without what would turn a loop
 * into a call of the function that it is in.
 */
#include "recorder/image/image.h"
#include "recorder/image/machine.h"
#include "recorder/libc.h"
#include "recorder/self.h"
#include "recorder/sys.h"

#include <dlfcn.h>
#include <elf.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>

/* ---- memory and strings ---- */

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
	hl_image_copy(to, from, bytes);
	return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
	uint8_t *at = to;
	const uint8_t *source = from;

	if ((uintptr_t)to - (uintptr_t)from >= bytes)
		return memcpy(to, from, bytes);
	while (bytes--)
		at[bytes] = source[bytes];
	return to;
}

void *memset(void *to, int value, size_t bytes)
{
	hl_image_fill(to, value, bytes);
	return to;
}

int memcmp(const void *a, const void *b, size_t bytes)
{
	const uint8_t *at_a = a, *at_b = b;

	for (; bytes && *at_a == *at_b; bytes--)
		at_a++, at_b++;
	return bytes ? *at_a - *at_b : 0;
}

size_t strlen(const char *text)
{
	const char *end = text;

	while (*end)
		end++;
	return (size_t)(end - text);
}

/* In parentheses: string.h may have a macro of that name. */
char *(strchr)(const char *text, int wanted)
{
	for (; *text != (char)wanted; text++)
		if (!*text)
			return NULL;
	return (char *)text;
}

/* ---- the process ---- */

static uint64_t real_clock_gettime, real_find_object; /* 0 where the target has none */
static uint64_t program_headers, program_header_count, page_bytes;

void *__libc_stack_end;

void hl_image_libc_init(const struct hl_attached_start *start)
{
	real_clock_gettime = start->clock_gettime;
	real_find_object = start->find_object;
	program_headers = start->program_headers;
	program_header_count = start->program_header_count;
	page_bytes = start->page_bytes ? start->page_bytes : 4096;
	__libc_stack_end = (void *)start->stack_end;
}

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	if (real_clock_gettime)
		return (int)hl_image_call(real_clock_gettime, (uint64_t)clock, (uint64_t)ret_time);
	return (int)HL_SYS(SYS_clock_gettime, clock, ret_time, 0);
}

unsigned long getauxval(unsigned long type)
{
	return type == AT_PHDR	   ? program_headers
	       : type == AT_PHNUM  ? program_header_count
	       : type == AT_PAGESZ ? page_bytes
				   : 0;
}

pthread_t pthread_self(void)
{
	return hl_self_key();
}

int64_t hl_libc_call(uint64_t function, uint64_t a, uint64_t b)
{
	return hl_image_call(function, a, b);
}

int _dl_find_object(void *pc, struct dl_find_object *ret_object)
{
	if (real_find_object)
		return (int)hl_image_call(real_find_object, (uint64_t)pc, (uint64_t)ret_object);
	return hl_image_objects_find((uint64_t)pc, ret_object);
}

/* ---- the allocator ---- */

struct hl_libc hl_libc;
bool hl_libc_has_glibc_chunks;
long (*hl_libc_syscall)(long, long, long, long, long, long, long);

void *hl_libc_fail_array(void *block, size_t count, size_t size)
{
	void *(*real)(void *, size_t, size_t) =
		(void *(*)(void *, size_t, size_t))hl_image_real[HL_HOOK_REALLOCARRAY];

	return real(block, count, size);
}

int hl_libc_fail_lock(int flags, long error)
{
	(void)error;
	return (int)hl_image_call(hl_image_real[HL_HOOK_MLOCKALL], (uint64_t)flags, 0);
}

int hl_image_close_library(void *handle)
{
	int (*real)(void *) = (int (*)(void *))hl_image_real[HL_HOOK_DLCLOSE];
	struct hl_attached_slot *slot = hl_self_slot();

	slot->closing++;
	int result = real(handle);
	slot->closing--;
	return result;
}

void hl_libc_note_unloaded(void)
{
	if (!real_find_object)
		hl_image_objects_note_unloaded();
}
