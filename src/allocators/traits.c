/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of names; see traits.h. */
#include "allocators/traits.h"

#include "base/compiler.h"

#include <string.h>

/* C, C23, and what jemalloc adds. All may have one of the prefixes below. */
static const struct hl_allocator_name c_names[] = {
	{"malloc", HL_HEAP_MALLOC, false},
	{"free", HL_HEAP_FREE, false},
	{"calloc", HL_HEAP_CALLOC, false},
	{"realloc", HL_HEAP_REALLOC, false},
	{"reallocarray", HL_HEAP_REALLOCARRAY, false},
	{"posix_memalign", HL_HEAP_POSIX_MEMALIGN, false},
	{"aligned_alloc", HL_HEAP_MEMALIGN, false},
	{"memalign", HL_HEAP_MEMALIGN, false},
	{"valloc", HL_HEAP_MALLOC, false},
	{"pvalloc", HL_HEAP_MALLOC, false},
	{"cfree", HL_HEAP_FREE, false},
	{"free_sized", HL_HEAP_FREE, false},
	{"free_aligned_sized", HL_HEAP_FREE, false},
	{"mallocx", HL_HEAP_MALLOC, false},
	{"rallocx", HL_HEAP_REALLOC, false},
	{"dallocx", HL_HEAP_FREE, false},
	{"sdallocx", HL_HEAP_FREE, false},
};

/* Allocators that are linked beside another one: jemalloc, the same within Rust programs, tcmalloc,
 * mimalloc. */
static const char *const prefixes[] = {"", "je_", "_rjem_", "tc_", "mi_"};

/* Operators new and delete by the Itanium ABI's names, and mimalloc's own additions. */
static const struct hl_allocator_name other_names[] = {
	{"_Znwm", HL_HEAP_MALLOC, true},
	{"_Znam", HL_HEAP_MALLOC, true},
	{"_ZnwmRKSt9nothrow_t", HL_HEAP_MALLOC, false},
	{"_ZnamRKSt9nothrow_t", HL_HEAP_MALLOC, false},
	{"_ZnwmSt11align_val_t", HL_HEAP_MALLOC, true},
	{"_ZnamSt11align_val_t", HL_HEAP_MALLOC, true},
	{"_ZnwmSt11align_val_tRKSt9nothrow_t", HL_HEAP_MALLOC, false},
	{"_ZnamSt11align_val_tRKSt9nothrow_t", HL_HEAP_MALLOC, false},
	{"_ZdlPv", HL_HEAP_FREE, false},
	{"_ZdaPv", HL_HEAP_FREE, false},
	{"_ZdlPvm", HL_HEAP_FREE, false},
	{"_ZdaPvm", HL_HEAP_FREE, false},
	{"_ZdlPvRKSt9nothrow_t", HL_HEAP_FREE, false},
	{"_ZdaPvRKSt9nothrow_t", HL_HEAP_FREE, false},
	{"_ZdlPvSt11align_val_t", HL_HEAP_FREE, false},
	{"_ZdaPvSt11align_val_t", HL_HEAP_FREE, false},
	{"_ZdlPvmSt11align_val_t", HL_HEAP_FREE, false},
	{"_ZdaPvmSt11align_val_t", HL_HEAP_FREE, false},
	{"_ZdlPvSt11align_val_tRKSt9nothrow_t", HL_HEAP_FREE, false},
	{"_ZdaPvSt11align_val_tRKSt9nothrow_t", HL_HEAP_FREE, false},
	{"mi_zalloc", HL_HEAP_MALLOC, false},
	{"mi_malloc_small", HL_HEAP_MALLOC, false},
	{"mi_zalloc_small", HL_HEAP_MALLOC, false},
	{"mi_mallocn", HL_HEAP_CALLOC, false},
	{"mi_reallocn", HL_HEAP_REALLOCARRAY, false},
	{"mi_malloc_aligned", HL_HEAP_MALLOC, false},
	{"mi_zalloc_aligned", HL_HEAP_MALLOC, false},
	{"mi_heap_malloc", HL_HEAP_MEMALIGN, false},
	{"mi_heap_zalloc", HL_HEAP_MEMALIGN, false},
	{"tc_new", HL_HEAP_MALLOC, true},
	{"tc_newarray", HL_HEAP_MALLOC, true},
	{"tc_new_aligned", HL_HEAP_MALLOC, true},
	{"tc_newarray_aligned", HL_HEAP_MALLOC, true},
	{"mi_new", HL_HEAP_MALLOC, true},
	{"mi_new_n", HL_HEAP_CALLOC, true},
	{"mi_new_aligned", HL_HEAP_MALLOC, true},
	{"mi_new_nothrow", HL_HEAP_MALLOC, false},
	{"mi_new_aligned_nothrow", HL_HEAP_MALLOC, false},
	{"mi_free_size", HL_HEAP_FREE, false},
	{"mi_free_aligned", HL_HEAP_FREE, false},
	{"mi_free_size_aligned", HL_HEAP_FREE, false},
	{"mi_free_small", HL_HEAP_FREE, false},
	{"mi_free_small_nonnull", HL_HEAP_FREE, false},
	{"mi_free_small_local", HL_HEAP_FREE, false},
	{"mi_free_small_local_nonnull", HL_HEAP_FREE, false},
	{"mi_ufree", HL_HEAP_FREE, false},
	{"mi_umalloc", HL_HEAP_MALLOC, false},
	{"mi_umalloc_small", HL_HEAP_MALLOC, false},
	{"mi_umalloc_aligned", HL_HEAP_MALLOC, false},
	{"mi_uzalloc_small", HL_HEAP_MALLOC, false},
	{"mi_uzalloc_aligned", HL_HEAP_MALLOC, false},
	{"mi_ucalloc", HL_HEAP_CALLOC, false},
	{"mi_urealloc", HL_HEAP_REALLOC, false},
	{"mi_heap_malloc_small", HL_HEAP_MEMALIGN, false},
	{"mi_heap_zalloc_small", HL_HEAP_MEMALIGN, false},
	{"mi_heap_malloc_aligned", HL_HEAP_MEMALIGN, false},
	{"mi_heap_zalloc_aligned", HL_HEAP_MEMALIGN, false},
	{"mi_theap_malloc", HL_HEAP_MEMALIGN, false},
	{"mi_theap_zalloc", HL_HEAP_MEMALIGN, false},
	{"mi_theap_malloc_small", HL_HEAP_MEMALIGN, false},
	{"mi_theap_zalloc_small", HL_HEAP_MEMALIGN, false},
	{"mi_theap_malloc_aligned", HL_HEAP_MEMALIGN, false},
	{"mi_theap_zalloc_aligned", HL_HEAP_MEMALIGN, false},
};

/* Parts of names; what has one of the latter asks, tells or sets something. */
static const char *const allocating[] = {"alloc", "free", "memalign", "dup", "realpath"};
static const char *const telling[] = {"alloc_size", "usable_size",   "good_size", "alloc_stats",
				      "alloc_conf", "alloc_message", "nallocx",	  "sallocx",
				      "allocator",  "deferred_free", "wdupenv",	  "test_hooks",
				      "get_alloc",  "free_memory"};

static bool has_one(const char *const *parts, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strstr(name, parts[i]))
			return true;
	return false;
}

bool hl_allocator_names_resemble(const char *name)
{
	const char *rest = NULL;

	for (size_t i = 1; !rest && i < HL_COUNT_OF(prefixes); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			rest = name + strlen(prefixes[i]);
	return rest && !has_one(telling, HL_COUNT_OF(telling), rest) &&
	       (has_one(allocating, HL_COUNT_OF(allocating), rest) ||
		strncmp(rest, "new", 3) == 0 || strncmp(rest, "delete", 6) == 0);
}

static const struct hl_allocator_name *find_in(const struct hl_allocator_name *names, size_t count,
					       const char *name, uint32_t *ret_index)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i].name, name) == 0) {
			*ret_index = (uint32_t)i;
			return &names[i];
		}
	return NULL;
}

const struct hl_allocator_name *hl_allocator_names_find(const char *name, uint32_t *ret_rank)
{
	const struct hl_allocator_name *found;
	uint32_t index;

	for (uint32_t prefix = 0; prefix < HL_COUNT_OF(prefixes); prefix++) {
		size_t length = strlen(prefixes[prefix]);
		if (strncmp(name, prefixes[prefix], length) != 0)
			continue;
		found = find_in(c_names, HL_COUNT_OF(c_names), name + length, &index);
		if (!found)
			continue;
		*ret_rank = prefix * (uint32_t)HL_COUNT_OF(c_names) + index;
		return found;
	}
	found = find_in(other_names, HL_COUNT_OF(other_names), name, &index);
	if (found)
		*ret_rank = (uint32_t)(HL_COUNT_OF(prefixes) * HL_COUNT_OF(c_names)) + index;
	return found;
}
