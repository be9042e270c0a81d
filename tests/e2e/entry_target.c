/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says where its own allocator lies, "NAME 0xADDRESS" a line, and then "ready": test_entries.py.
 * After that it does what it is told, one command a line:
 *
 *	clock ADDRESS	calls clock_gettime() at that address; says "ok" when the time is right
 *	prefixed COUNT	makes COUNT (hexadecimal) blocks of 100 bytes by je_malloc(), frees every other
 *	usable ADDRESS	calls malloc_usable_size() at that address; "ok" when it equals its own
 *
 * With OWN_MALLOC it brings malloc and free itself, with IFUNC_MALLOC by way of indirect functions,
 * of which UNUSED_FREE leaves one uncalled. With PREFIXED it has others, too, and with OPERATORS it
 * asks for new and delete.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#if defined(OWN_MALLOC) || defined(IFUNC_MALLOC)
#define IS_OWN
#ifdef HIDDEN
#define OWN __attribute__((visibility("hidden"), noinline))
#else
#define OWN __attribute__((visibility("default"), noinline))
#endif

OWN void *malloc(size_t bytes);
OWN void free(void *block);
OWN void *calloc(size_t count, size_t bytes);
OWN void *realloc(void *block, size_t bytes);

static _Alignas(16) char arena[1 << 20];
static size_t arena_used;

static void *take(size_t bytes)
{
	size_t rounded = (bytes + 15) / 16 * 16;

	if (rounded < bytes || rounded > sizeof(arena) - arena_used)
		return NULL;
	arena_used += rounded;
	return arena + arena_used - rounded;
}

static void give(void *block)
{
	(void)block;
}

void *calloc(size_t count, size_t bytes)
{
	return take(count * bytes);
}

void *realloc(void *old, size_t bytes)
{
	void *block = take(bytes);

	if (old && block)
		memmove(block, old, bytes);
	return block;
}
#endif

#ifdef OWN_MALLOC
void *malloc(size_t bytes)
{
	return take(bytes);
}

void free(void *block)
{
	give(block);
}
#endif

#ifdef IFUNC_MALLOC
typedef void *malloc_fn(size_t);
typedef void free_fn(void *);

__attribute__((used)) static malloc_fn *choose_malloc(void)
{
	return take;
}

__attribute__((used)) static free_fn *choose_free(void)
{
	return give;
}

void *malloc(size_t bytes) __attribute__((ifunc("choose_malloc")));
void free(void *block) __attribute__((ifunc("choose_free")));
#endif

#ifdef OPERATORS /* as programs in C++ ask for them */
#pragma weak _Znwm
#pragma weak _Znam
#pragma weak _ZnwmRKSt9nothrow_t
#pragma weak _ZdlPv
#pragma weak _ZdlPvm
void *_Znwm(size_t size);
void *_Znam(size_t size);
void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow);
void _ZdlPv(void *block);
void _ZdlPvm(void *block, size_t size);
#endif

#ifdef PREFIXED
__attribute__((noinline)) void *je_malloc(size_t bytes);
__attribute__((noinline)) void je_free(void *block);

static _Alignas(16) char pool[1 << 20];
static size_t pool_used;

void *je_malloc(size_t bytes)
{
	size_t rounded = (bytes + 15) / 16 * 16;

	if (rounded > sizeof(pool) - pool_used)
		return NULL;
	pool_used += rounded;
	return pool + pool_used - rounded;
}

void je_free(void *block)
{
	*(volatile char *)block = 0;
}
#endif

#pragma weak malloc_usable_size
#pragma weak posix_memalign
#pragma weak aligned_alloc
#pragma weak memalign
#pragma weak valloc
#pragma weak pvalloc
#pragma weak reallocarray
/* Of C23, since glibc 2.43 */
void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);
#pragma weak free_sized
#pragma weak free_aligned_sized
#pragma weak _dl_find_object
#pragma weak __libc_stack_end
#ifndef __GLIBC__
void *pvalloc(size_t size);
int _dl_find_object(void *address, void *result);
#endif
extern void *__libc_stack_end;

static void *(*volatile allocate)(size_t) = malloc;
#ifdef UNUSED_FREE
static void (*volatile release)(void *) = give;
#else
static void (*volatile release)(void *) = free;
#endif

#ifdef IS_STATIC
#define ADDRESS(name) ((uintptr_t)name)
#else /* behind the program, whose &malloc may be that of a stub */
#define ADDRESS(name) ((uintptr_t)dlsym(RTLD_NEXT, #name))
#endif
#define SAY(name) say(#name, ADDRESS(name))

static void say(const char *name, uintptr_t address)
{
	if (address)
		printf("%s 0x%" PRIxPTR "\n", name, address);
}

static int is_clock(uintptr_t address)
{
	int (*clock)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))address;
	struct timespec before, then, after;

	clock_gettime(CLOCK_MONOTONIC, &before);
	if (clock(CLOCK_MONOTONIC, &then) != 0)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &after);
	return then.tv_sec >= before.tv_sec && then.tv_sec <= after.tv_sec;
}

static int is_usable_size(uintptr_t address)
{
	size_t (*usable_size)(void *) = (size_t(*)(void *))address;
	void *block = allocate(1000);
	int is_right =
		block && malloc_usable_size && usable_size(block) == malloc_usable_size(block);

	release(block);
	return is_right;
}

static int is_prefixed(uintptr_t count)
{
#ifdef PREFIXED
	static void *(*volatile allocate_prefixed)(size_t) = je_malloc;
	static void (*volatile release_prefixed)(void *) = je_free;

	for (uintptr_t i = 0; i < count; i++) {
		void *block = allocate_prefixed(100);
		if (block && i % 2)
			release_prefixed(block);
	}
	return 1;
#else
	(void)count;
	return 0;
#endif
}

int main(void)
{
	char line[128], command[16];
	uintptr_t address;

#ifdef IFUNC_MALLOC
	say("malloc", (uintptr_t)take);
	say("free", (uintptr_t)give);
#elif defined(IS_OWN)
	say("malloc", (uintptr_t)malloc);
	say("free", (uintptr_t)free);
#else
	SAY(malloc);
	SAY(free);
#endif
#ifdef IS_OWN
	say("calloc", (uintptr_t)calloc);
	say("realloc", (uintptr_t)realloc);
#else
	SAY(calloc);
	SAY(realloc);
#endif
	SAY(reallocarray);
	SAY(free_sized);
	SAY(free_aligned_sized);
	SAY(posix_memalign);
	SAY(aligned_alloc);
	SAY(memalign);
	SAY(valloc);
	SAY(pvalloc);
	SAY(malloc_usable_size);
	SAY(_dl_find_object);
	SAY(mlockall);
	SAY(prctl);
	SAY(syscall);
#ifndef IS_STATIC
	SAY(dlclose);
#endif
#ifdef OPERATORS
	say("_Znwm", (uintptr_t)_Znwm);
	say("_Znam", (uintptr_t)_Znam);
	say("_ZnwmRKSt9nothrow_t", (uintptr_t)_ZnwmRKSt9nothrow_t);
	say("_ZdlPv", (uintptr_t)_ZdlPv);
	say("_ZdlPvm", (uintptr_t)_ZdlPvm);
#endif
#ifdef PREFIXED
	say("je_malloc", (uintptr_t)je_malloc);
	say("je_free", (uintptr_t)je_free);
#endif
	if (&__libc_stack_end)
		say("stack_end", (uintptr_t)__libc_stack_end);
	say("local", (uintptr_t)line);
	say("program_headers", getauxval(AT_PHDR));
	say("program_header_count", getauxval(AT_PHNUM));
	say("program_entry", getauxval(AT_ENTRY));
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%15s %" SCNxPTR, command, &address) != 2)
			return 1;
		int is_right = strcmp(command, "clock") == 0	  ? is_clock(address)
			       : strcmp(command, "prefixed") == 0 ? is_prefixed(address)
								  : is_usable_size(address);
		puts(is_right ? "ok" : "wrong");
		fflush(stdout);
	}
	return 0;
}
