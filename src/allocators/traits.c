/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of allocators, and their functions by name; see traits.h. */
#include "allocators/traits.h"

#include "base/compiler.h"

#include <string.h>

/* ---- functions with names of their own ---- */

/* clang-format off */
enum { a = 1, b, c, d }; /* arguments */
#define product(COUNT, SIZE) SIZE, .count_at = COUNT

#define FUNCTION(NAME, CALL, ...) {.name = #NAME, .call = CALL, __VA_ARGS__},
#define ALLOCATE(NAME, SIZE)		      FUNCTION(NAME, "malloc", .size_at = SIZE)
#define ALLOCATE_ALIGNED(NAME, SIZE, ...)     FUNCTION(NAME, "malloc", .size_at = SIZE)
#define ALLOCATE_ONLY(NAME, SIZE)	      FUNCTION(NAME, "malloc", .size_at = SIZE)
#define ALLOCATE_OR_THROW(NAME, SIZE)	      FUNCTION(NAME, "malloc", .size_at = SIZE, .throws = true)
#define ALIGN_OR_THROW(NAME, SIZE, ...)	      FUNCTION(NAME, "malloc", .size_at = SIZE, .throws = true)
#define MEMALIGN_INTO(NAME)		      FUNCTION(NAME, "posix_memalign", .size_at = c)
#define COPY(NAME, TEXT)		      FUNCTION(NAME, "malloc", .text_at = TEXT)
#define COPY_UP_TO(NAME, TEXT, COUNT)	      FUNCTION(NAME, "malloc", .text_at = TEXT, .count_at = COUNT)
#define COPY_OF_LIBC(NAME, TEXT)	      FUNCTION(NAME, "malloc", .text_at = TEXT, .is_of_libc = true)
#define COPY_OF_LIBC_UP_TO(NAME, TEXT, COUNT) FUNCTION(NAME, "malloc", .text_at = TEXT, .count_at = COUNT, .is_of_libc = true)
#define RESIZE(NAME, SIZE)		      FUNCTION(NAME, "realloc", .block_at = a, .size_at = SIZE)
#define RESIZE_ONLY(NAME, OLD, SIZE)	      FUNCTION(NAME, "realloc", .block_at = OLD, .size_at = SIZE)
#define RESIZE_OR(NAME, OLD, SIZE, ...)	      FUNCTION(NAME, "realloc", .block_at = OLD, .size_at = SIZE)
#define RELEASE(NAME)			      FUNCTION(NAME, "free", .block_at = a)

/* C, C23, and what jemalloc adds. All may have an allocator's prefix. */
static const struct hl_allocator_entry c_functions[] = {
	ALLOCATE(malloc, a) RELEASE(free) ALLOCATE(calloc, product(a, b))
	RESIZE(realloc, b) RESIZE(reallocarray, product(b, c)) MEMALIGN_INTO(posix_memalign)
	ALLOCATE(aligned_alloc, b) ALLOCATE(memalign, b) ALLOCATE(valloc, a) ALLOCATE(pvalloc, a)
	RELEASE(cfree) RELEASE(free_sized) RELEASE(free_aligned_sized)
	ALLOCATE(mallocx, a) RESIZE(rallocx, b) RELEASE(dallocx) RELEASE(sdallocx)
	{0}
};
static const struct hl_allocator_entry operators[] = {
#include "allocators/operators.h"
	{0}
};
static const struct hl_allocator_entry jemalloc_functions[] = {
#include "allocators/jemalloc_functions.h"
	{0}
};
static const struct hl_allocator_entry mimalloc_functions[] = {
#include "allocators/mimalloc_functions.h"
	{0}
};
static const struct hl_allocator_entry tcmalloc_functions[] = {
#include "allocators/tcmalloc_functions.h"
	{0}
};

#define PRESET(NAME, PREFIX) {NAME, PREFIX, PREFIX "malloc"}
#define PLUMBING(...)	     (const char *const[]){__VA_ARGS__, NULL}
/* clang-format on */

/* ---- the table ---- */

/* Of symbols and of texts in programs the first one counts. */
const struct hl_allocator_traits hl_allocator_traits[] = {
	{
		.name = "jemalloc",
		.library = "libjemalloc.",
		.inside = "<jemalloc>: ",
		.symbols = {"mallctl", "je_mallctl", "_rjem_mallctl"},
		.functions = jemalloc_functions,
		/* the second one within Rust programs */
		.presets = {PRESET("jemalloc", "je_"), PRESET("rust-jemalloc", "_rjem_")},
		.plumbing = PLUMBING("je_malloc*", "je_calloc", "je_realloc", "je_rallocx",
				     "je_aligned_alloc", "je_posix_memalign", "je_memalign"),
		.has_operators = true,
		.answers_as = HL_INTROSPECTED_JEMALLOC,
		.answering = {{"mallctl", "mallctlnametomib", "mallctlbymib"},
			      {"je_mallctl", "je_mallctlnametomib", "je_mallctlbymib"}},
		.answer_note = "occupancy of partly used slabs is the mean of their block size",
		.stays = "free() keeps whole free pages for 10 seconds, longer in a program that "
			 "does "
			 "not call jemalloc meanwhile, and returns none of a slab's pages while "
			 "one of its blocks is live",
		.purge = "mallctl(\"arena.4096.purge\") (redis: MEMORY PURGE)",
		.profiles = "if it was built with profiling, MALLOC_CONF=prof:true,prof_final:true "
			    "in the environment makes it write profiles that 'heapline top' reads",
	},
	{
		.name = "mimalloc",
		.library = "libmimalloc",
		.inside = "mimalloc: ",
		.symbols = {"mi_version"},
		.functions = mimalloc_functions,
		.presets = {PRESET("mimalloc", "mi_")},
		.enders = {"mi_heap_destroy", "mi_subproc_destroy"},
		.makers = {"mi_heap_new", "mi_subproc_new"},
		.plumbing = PLUMBING("mi_malloc*", "mi_calloc*", "mi_zalloc*", "mi_realloc*",
				     "mi_new*", "mi_heap_malloc*", "mi_heap_zalloc*",
				     "mi_heap_calloc*", "mi_heap_realloc*", "mi_theap_malloc*",
				     "mi_theap_zalloc*", "mi_theap_calloc", "mi_theap_realloc",
				     "mi_umalloc*", "mi_strdup", "mi_aligned_alloc",
				     "_mi_malloc_generic", "_mi_page_malloc*", "_mi_heap_*"),
		.has_operators = true,
		.answers_as = HL_INTROSPECTED_MIMALLOC,
		/* From 3.6 on a heap is of all threads, and a thread has a part of it. */
		.answering = {{"mi_theap_visit_blocks", "mi_theap_get_default"},
			      {"mi_heap_visit_blocks", "mi_heap_get_default"}},
		.reports_slabs = true,
		.answer_warning =
			"mimalloc reports the heap of one thread only, the one that answered",
		.stays = "mimalloc returns a page of blocks of one size once none of them is live, "
			 "and "
			 "only some time after that, when one of its threads allocates or frees; "
			 "what is free beside live blocks stays",
		.purge = "mi_collect(true) in each thread",
	},
	{
		.name = "tcmalloc",
		.library = "libtcmalloc",
		.inside = "TCMALLOC_SAMPLE_PARAMETER",
		.debugging_inside = "TCMALLOC_PAGE_FENCE",
		.symbols = {"tc_version"},
		.functions = tcmalloc_functions,
		.presets = {PRESET("tcmalloc", "tc_")},
		/* the last ones below its entry points */
		.plumbing =
			PLUMBING("tc_malloc*", "tc_calloc", "tc_realloc", "tc_new*", "tc_memalign",
				 "tcmalloc::*", "SbrkSysAllocator::*", "MmapSysAllocator::*",
				 "DefaultSysAllocator::*", "TCMalloc_System*", "LowLevelAlloc::*"),
		.has_operators = true,
		.answers_as = HL_INTROSPECTED_TCMALLOC,
		.answering = {{"MallocExtension_GetNumericProperty"}},
		.stays = "free() keeps blocks in caches of threads and in lists of their size. A "
			 "span of "
			 "pages is free once none of its blocks is in use, and even then it goes "
			 "back to the "
			 "system later, bit by bit (TCMALLOC_RELEASE_RATE)",
		.purge = "MallocExtension_ReleaseFreeMemory()",
		.profiles = "HEAPPROFILE=/tmp/app in the environment makes the full tcmalloc write "
			    "profiles that 'heapline top' reads",
	},
	{
		.name = "Go's runtime",
		.library = "libgo.",
		.inside = "\xff Go buildinf:",
		.profiles = HL_GO_PROFILES,
		.hides_calls = true,
	},
	{
		.name = "the address sanitizer's malloc",
		.short_name = "AddressSanitizer",
		.library = "libasan.",
		/* not "AddressSanitizer: ", which readers of its reports such as ctest hold */
		.inside = "AddressSanitizer: libc interceptors",
		.symbols = {"__asan_init"},
		.has_operators = true,
		.profiles = "run a build without the sanitizer",
	},
	{.name = "heapline", .symbols = {"hl_mode_set"}, .has_operators = true},
	{
		.name = "musl's malloc",
		.short_name = "musl",
		.library = "ld-musl",
		.folder = "-linux-musl/",
		.symbols = {"__libc_malloc_impl", "_dl_debug_addr"},
		.has_trailers = true,
		.stays =
			"free() returns a group of blocks of one size once all of them are free, "
			"and a block "
			"of 128 KiB or more at once; groups that a program fills and empties again "
			"and "
			"again are kept",
	},
	{.name = "glibc", .symbols = {"gnu_get_libc_version", "__libc_mallopt"}},
	{.name = "scudo", .plumbing = PLUMBING("scudo_*")},
	{.name = "rpmalloc", .plumbing = PLUMBING("rpmalloc", "rpcalloc", "rprealloc")},
};

const size_t hl_allocator_count = HL_COUNT_OF(hl_allocator_traits);

const struct hl_pool_traits hl_pool_traits[] = {
	{"PHP", "_emalloc", "libphp",
	 "with USE_ZEND_ALLOC=0 in its environment PHP allocates by malloc",
	 "PHP allocates by functions of its own"},
};

const size_t hl_pool_count = HL_COUNT_OF(hl_pool_traits);

/* ---- functions by name ---- */

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

/* The preset whose prefix ${name} has, and whose it is; NULL: none. */
static const struct hl_allocator_preset *
find_prefix(const char *name, const struct hl_allocator_traits **ret_allocator)
{
	for (size_t i = 0; i < hl_allocator_count; i++)
		for (size_t k = 0; k < HL_ALLOCATOR_PRESETS_MAX; k++) {
			const struct hl_allocator_preset *preset =
				&hl_allocator_traits[i].presets[k];
			*ret_allocator = &hl_allocator_traits[i];
			if (preset->name &&
			    strncmp(name, preset->prefix, strlen(preset->prefix)) == 0)
				return preset;
		}
	return NULL;
}

const char *hl_allocator_name_of_malloc(const char *name)
{
	const struct hl_allocator_traits *allocator;
	const struct hl_allocator_preset *preset = find_prefix(name, &allocator);

	return preset && strcmp(name, preset->malloc) == 0 ? preset->malloc : NULL;
}

bool hl_allocator_name_resembles(const char *name)
{
	const struct hl_allocator_traits *allocator;
	const struct hl_allocator_preset *preset = find_prefix(name, &allocator);
	const char *rest = preset ? name + strlen(preset->prefix) : "";

	return !has_one(telling, HL_COUNT_OF(telling), rest) &&
	       (has_one(allocating, HL_COUNT_OF(allocating), rest) ||
		strncmp(rest, "new", 3) == 0 || strncmp(rest, "delete", 6) == 0);
}

/* The function of ${list} that is called ${name}; those of lists of a smaller ${rank} are plainer. */
static bool find_in(const struct hl_allocator_entry *list, const char *name, uint32_t rank,
		    struct hl_allocator_name *found)
{
	static const struct hl_allocator_entry calls[HL_HEAP_CALLS] = {
		[HL_HEAP_FREE] = {.call = "free", .block_at = 1},
		[HL_HEAP_MALLOC] = {.call = "malloc", .size_at = 1},
		[HL_HEAP_CALLOC] = {.call = "malloc", .count_at = 1, .size_at = 2},
		[HL_HEAP_MEMALIGN] = {.call = "malloc", .size_at = 2},
		[HL_HEAP_POSIX_MEMALIGN] = {.call = "posix_memalign", .size_at = 3},
		[HL_HEAP_REALLOC] = {.call = "realloc", .block_at = 1, .size_at = 2},
		[HL_HEAP_REALLOCARRAY] = {.call = "realloc",
					  .block_at = 1,
					  .count_at = 2,
					  .size_at = 3},
	};

	for (; list->name && strcmp(list->name, name); list++)
		rank++;
	if (!list->name)
		return false;
	found->rank = rank;
	found->throws = list->throws;
	for (uint32_t i = 0; i < HL_HEAP_CALLS; i++) {
		found->call = (enum hl_heap_call)i;
		if (!strcmp(calls[i].call, list->call) && calls[i].size_at == list->size_at &&
		    calls[i].count_at == list->count_at && calls[i].block_at == list->block_at)
			return true;
	}
	return false;
}

bool hl_allocator_name_find(const char *name, struct hl_allocator_name *ret_found)
{
	enum { PREFIXED = 1000, OPERATORS = 2000, OWN = 3000 };
	const struct hl_allocator_traits *allocator;
	const struct hl_allocator_preset *preset = find_prefix(name, &allocator);
	const char *rest = preset ? name + strlen(preset->prefix) : name;

	*ret_found = (struct hl_allocator_name){.has_prefix = preset != NULL};
	return find_in(c_functions, rest, preset ? PREFIXED : 0, ret_found) ||
	       find_in(operators, name, OPERATORS, ret_found) ||
	       (preset && find_in(allocator->functions, name, OWN, ret_found));
}
