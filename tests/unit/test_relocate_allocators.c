/* SPDX-License-Identifier: BSD-2-Clause */
/* Patches the functions of allocators as distributions ship them, and allocates through hooks. */
#include "relocate_lab.h"

#include <dlfcn.h>
#include <errno.h>

enum called {
	MALLOC,
	FREE,
	CALLOC,
	REALLOC,
	MEMALIGN,
	POSIX_MEMALIGN,
	REALLOCARRAY,
	MALLOC_USABLE_SIZE,
	CALLED_COUNT,
};

static const char *const names[CALLED_COUNT] = {
	"malloc",   "free",	      "calloc",	      "realloc",
	"memalign", "posix_memalign", "reallocarray", "malloc_usable_size",
};

typedef uint64_t function(uint64_t a, uint64_t b, uint64_t c);

static function *functions[CALLED_COUNT]; /* of the allocator; NULL: it has none */
static function *trampolines[CALLED_COUNT];
static unsigned hooked[CALLED_COUNT];

#define HOOK(which)                                                      \
	static uint64_t hook_##which(uint64_t a, uint64_t b, uint64_t c) \
	{                                                                \
		hooked[which]++;                                         \
		return trampolines[which](a, b, c);                      \
	}
HOOK(MALLOC)
HOOK(FREE)
HOOK(CALLOC)
HOOK(REALLOC)
HOOK(MEMALIGN)
HOOK(POSIX_MEMALIGN)
HOOK(REALLOCARRAY)
HOOK(MALLOC_USABLE_SIZE)

static function *const hooks[CALLED_COUNT] = {
	hook_MALLOC,   hook_FREE,	    hook_CALLOC,       hook_REALLOC,
	hook_MEMALIGN, hook_POSIX_MEMALIGN, hook_REALLOCARRAY, hook_MALLOC_USABLE_SIZE,
};

/* ---- allocations, whose content is checked ---- */

#define SLOTS  256u
#define ROUNDS 40000u

static struct block {
	uint8_t *bytes;
	size_t size;
} blocks[SLOTS];

static uint64_t call(enum called which, uint64_t a, uint64_t b, uint64_t c)
{
	return functions[which](a, b, c);
}

static uint8_t pattern(const struct block *block)
{
	return (uint8_t)((size_t)(block - blocks) * 31 + 1);
}

static void check_content(const struct block *block, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(block->bytes[i], pattern(block));
}

static void take(struct block *block, uint64_t bytes, size_t size, size_t alignment)
{
	block->bytes = (uint8_t *)bytes;
	block->size = size;
	assert_non_null(block->bytes);
	assert_int_equal(bytes % alignment, 0);
	assert_true(call(MALLOC_USABLE_SIZE, bytes, 0, 0) >= size);
	memset(block->bytes, pattern(block), size);
}

static void resize(struct block *block, uint64_t bytes, size_t size)
{
	size_t kept = block->size < size ? block->size : size;

	block->bytes = (uint8_t *)bytes;
	assert_non_null(block->bytes);
	check_content(block, kept);
	take(block, bytes, size, 16);
}

static void allocate(struct block *block, enum called which, size_t size)
{
	size_t alignment = (size_t)16 << size % 3; /* mimalloc 2.0.9 errs at 256 */
	void *aligned = NULL;

	switch (which) {
	case CALLOC: {
		uint8_t *zeroes = (uint8_t *)call(CALLOC, 3, size, 0);
		assert_non_null(zeroes);
		for (size_t i = 0; i < 3 * size; i++)
			assert_int_equal(zeroes[i], 0);
		take(block, (uint64_t)zeroes, 3 * size, 16);
		break;
	}
	case MEMALIGN:
		take(block, call(MEMALIGN, alignment, size, 0), size, alignment);
		break;
	case POSIX_MEMALIGN:
		assert_int_equal((int)call(POSIX_MEMALIGN, (uint64_t)&aligned, alignment, size), 0);
		take(block, (uint64_t)aligned, size, alignment);
		break;
	case REALLOC:
		take(block, call(REALLOC, 0, size, 0), size, 16);
		break;
	case REALLOCARRAY:
		take(block, call(REALLOCARRAY, 0, size, 2), size * 2, 16);
		break;
	default:
		take(block, call(MALLOC, size, 0, 0), size, 16);
		break;
	}
}

static void release(struct block *block)
{
	check_content(block, block->size);
	call(FREE, (uint64_t)block->bytes, 0, 0);
	block->bytes = NULL;
}

static void allocate_and_free(void)
{
	uint32_t state = 1;

	memset(blocks, 0, sizeof(blocks)); /* whatever a test that failed left */
	for (unsigned i = 0; i < ROUNDS; i++) {
		state = state * 1103515245 + 12345;
		struct block *block = &blocks[(state >> 16) % SLOTS];
		enum called which = state >> 8 & 7;
		size_t size = 16 + (state >> 12) % (i % 64 ? 2000 : 300000);
		if (!functions[which])
			which = MALLOC;
		if (!block->bytes)
			allocate(block, which, size);
		else if (which == REALLOC)
			resize(block, call(REALLOC, (uint64_t)block->bytes, size, 0), size);
		else if (which == REALLOCARRAY)
			resize(block, call(REALLOCARRAY, (uint64_t)block->bytes, size, 2),
			       size * 2);
		else
			release(block);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (blocks[i].bytes)
			release(&blocks[i]);
	call(FREE, 0, 0, 0);
	assert_int_equal(call(MALLOC, PTRDIFF_MAX, 0, 0), 0);
	assert_int_equal(call(CALLOC, PTRDIFF_MAX, 16, 0), 0);
	if (functions[REALLOCARRAY])
		assert_int_equal(call(REALLOCARRAY, 0, PTRDIFF_MAX, 16), 0);
}

/* ---- tests ---- */

static void *open_allocator(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (!handle) {
		print_message("skipped: %s\n", dlerror());
		skip();
	}
	for (unsigned i = 0; i < CALLED_COUNT; i++) {
		void *address = dlsym(handle, names[i]);
		memcpy(&functions[i], &address, sizeof(address));
		hooked[i] = 0;
	}
	/* dlsym() looks in what a library needs, too. */
	Dl_info own, other;
	assert_true(dladdr((void *)functions[MALLOC], &own));
	for (unsigned i = 0; i < CALLED_COUNT; i++)
		if (functions[i] && dladdr((void *)functions[i], &other) &&
		    own.dli_fbase != other.dli_fbase)
			functions[i] = NULL;
	return handle;
}

static void relocate(enum called which, uint8_t *to)
{
	const uint8_t *code = (const uint8_t *)functions[which];
	struct hl_relocated relocated;
	struct hl_error err = {0};

	/* The size is not known here, and all that it serves is to look for jumps back. */
	if (hl_relocate(code, HL_ENTRY_MAX, (uint64_t)code, 0, (uint64_t)to, &relocated, &err) < 0)
		fail_msg("%s: %s", names[which], err.text);
	memcpy(to, relocated.code, relocated.code_bytes);
	memcpy(&trampolines[which], &to, sizeof(to));
}

static void allocate_patched(const char *library, uint64_t distance)
{
	void *handle = open_allocator(library);
	uint8_t *stubs = lab_map((void *)functions[MALLOC], 0);
	uint8_t *area = lab_map((void *)functions[MALLOC], distance);
	struct lab_patch patches[CALLED_COUNT];

	for (unsigned i = 0; i < CALLED_COUNT; i++)
		if (functions[i]) {
			relocate(i, area + i * HL_TRAMPOLINE_MAX);
			lab_write_stub(stubs + i * LAB_STUB_BYTES, (const void *)hooks[i]);
			lab_unlock((const void *)functions[i], HL_PATCH_BYTES);
		}
	for (unsigned i = 0; i < CALLED_COUNT; i++)
		if (functions[i])
			patches[i] = lab_patch((void *)functions[i], stubs + i * LAB_STUB_BYTES);
	allocate_and_free();
	for (unsigned i = 0; i < CALLED_COUNT; i++)
		if (functions[i]) {
			lab_unpatch(&patches[i]);
			if (hooked[i] < ROUNDS / CALLED_COUNT / 4)
				fail_msg("%s: hooked %u times", names[i], hooked[i]);
		}
	lab_unmap(stubs);
	lab_unmap(area);
	dlclose(handle);
}

static void glibc_allocates_through_hooks(void **state)
{
	(void)state;
	allocate_patched("libc.so.6", 0);
	allocate_patched("libc.so.6", LAB_FAR_BYTES);
}

static void jemalloc_allocates_through_hooks(void **state)
{
	(void)state;
	allocate_patched("libjemalloc.so.2", 0);
	allocate_patched("libjemalloc.so.2", LAB_FAR_BYTES);
}

static void mimalloc_allocates_through_hooks(void **state)
{
	(void)state;
	allocate_patched("libmimalloc.so.2.0", 0);
	allocate_patched("libmimalloc.so.2.0", LAB_FAR_BYTES);
}

static void tcmalloc_allocates_through_hooks(void **state)
{
	(void)state;
	allocate_patched("libtcmalloc_minimal.so.4", 0);
	allocate_patched("libtcmalloc_minimal.so.4", LAB_FAR_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(glibc_allocates_through_hooks),
		cmocka_unit_test(jemalloc_allocates_through_hooks),
		cmocka_unit_test(mimalloc_allocates_through_hooks),
		cmocka_unit_test(tcmalloc_allocates_through_hooks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
