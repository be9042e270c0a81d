/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of allocation plumbing; see symbols.h. */
#include "symbols/symbols.h"

#include "allocators/traits.h"
#include "base/compiler.h"
#include "base/names.h"
#include "guests/traits.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

/*
 * Names of functions, without return types, template arguments and parameters; those that end with
 * '*' are the beginning of many. `operator new` of any class is plumbing too. Guests and allocators have
 * theirs in their traits.
 */
/* clang-format off */
static const char *const table[] = {
	/* C library: the allocator, and what allocates for its caller */
	"malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign",
	"valloc", "pvalloc", "__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_memalign",
	"__libc_reallocarray", "_int_malloc", "_int_realloc", "_int_memalign", "_mid_memalign",
	"sysmalloc*", "tcache_init*", "tcache_malloc_init", "ptmalloc_init*", "arena_get2*",
	"_int_new_arena", "new_heap", "alloc_new_heap", "grow_heap", "strdup", "strndup", "__strdup",
	"__strndup", "wcsdup", "asprintf", "vasprintf",
	"___asprintf", "__asprintf*", "__vasprintf*", "___vasprintf_chk", "getline", "getdelim",
	"__getline", "__getdelim", "_IO_getdelim", "realpath*", "__realpath*",
	"canonicalize_file_name", "getcwd", "__getcwd", "open_memstream", "fopen", "fopen64", "fdopen",
	"_IO_new_fopen", "_IO_new_fdopen", "__fopen_internal", "_IO_fopen64", "opendir", "fdopendir", "__opendir*", "__alloc_dir", "scandir*",

	/* what touches pages for its caller: libc's functions of memory and texts, under the names of each machine */
	"memcpy", "__memcpy*", "memmove", "__memmove*", "mempcpy", "__mempcpy*", "memset", "__memset*",
	"wmemset", "__wmemset*", "bzero", "__bzero*", "explicit_bzero", "memcmp", "__memcmp*", "bcmp", "memchr",
	"__memchr*", "memrchr", "__memrchr*", "rawmemchr", "__rawmemchr*", "memccpy", "memmem",
	"strcpy", "__strcpy*", "stpcpy", "__stpcpy*", "strncpy", "__strncpy*", "strcat", "__strcat*",
	"strlen", "__strlen*", "strnlen", "__strnlen*", "strcmp", "__strcmp*", "strncmp", "__strncmp*",
	"strchr", "__strchr*", "strrchr", "__strrchr*",

	/* C++ */
	"std::*", "__gnu_cxx::*", "__cxxabiv1::*", "__cxa_allocate_exception", "boost::container::*",
	"boost::unordered::*", "boost::make_shared", "boost::allocate_shared",
	"absl::container_internal::*", "absl::inlined_vector_internal::*", "QArrayData::*",
	"QListData::*", "QHashData::*", "QVectorData::*", "qMalloc*", "qRealloc*",

	/* Rust */
	"__rust_alloc*", "__rust_realloc", "__rdl_alloc*", "__rdl_realloc", "__rg_alloc*",
	"__rg_realloc", "__rustc::__r*", "<alloc::*", "<core::*", "<std::*", "<hashbrown::*",
	"<<alloc::*", "<<core::*", "hashbrown::*",
	"alloc::alloc::*", "alloc::raw_vec::*", "alloc::vec::*", "alloc::string::*", "alloc::boxed::*",
	"alloc::rc::*", "alloc::sync::*", "alloc::slice::*", "alloc::str::*", "alloc::collections::*",
	"alloc::fmt::*", "alloc::borrow::*", "alloc::ffi::*", "core::alloc::*", "core::array::*",
	"core::clone::*", "core::convert::*", "core::iter::*", "core::ops::function::*",
	"core::option::*", "core::ptr::*", "core::result::*", "core::slice::*", "core::str::*",
	"core::fmt::*",

	/* Go */
	"runtime.mallocgc*", "runtime.newobject", "runtime.newarray", "runtime.makeslice*",
	"runtime.growslice", "runtime.makemap*", "runtime.rawstring*", "runtime.rawbyteslice",
	"runtime.concatstring*", "runtime.slicebytetostring", "runtime.stringtoslicebyte",
	"runtime.persistentalloc*", "runtime.makechan*", "runtime.mapassign*", "runtime.hashGrow",
	"runtime.growWork*", "runtime.evacuate*", "runtime.memclr*", "runtime.memmove",
	"runtime.duffzero", "runtime.duffcopy", "runtime.nextFreeFast", "runtime.heapBits*",
	"runtime.heapSetType*", "runtime.(*mcache)*", "runtime.(*mcentral)*", "runtime.(*mheap)*",
	"runtime.(*mspan)*", "runtime.(*spanSet)*", "runtime.(*pageAlloc)*", "runtime.(*fixalloc)*",
	"runtime.systemstack*",
	"runtime.sysAlloc*", "runtime.sysUsed*", "runtime.sysMap*", "runtime.newMarkBits",
	"runtime.newAllocBits", "runtime.profilealloc", "runtime.mProf_Malloc",

	/* wrappers that many programs have */
	"xmalloc*", "xcalloc*", "xrealloc*", "xstrdup*", "xstrndup*", "xmemdup*", "xzalloc*",
	"xnmalloc", "xnrealloc", "x2realloc", "x2nrealloc", "xcharalloc", "xasprintf", "xvasprintf",
	"xpalloc", "xalignalloc", "ximalloc", "xirealloc", "xicalloc", "do_xmalloc", "do_xrealloc",
	"safe_malloc", "safe_calloc", "safe_realloc", "safe_strdup", "checked_malloc", "memdup",

	/* one line or more for each program or library: perl, nginx, glib */
	"Perl_safesys*", "PerlMem_*", "Perl_savepv", "Perl_savepvn",
	"ngx_alloc", "ngx_calloc", "ngx_palloc*", "ngx_pnalloc", "ngx_pcalloc", "ngx_memalign",
	"ngx_pmemalign", "ngx_create_pool",
	"g_malloc*", "g_slice_*", "g_realloc*", "g_try_malloc*", "g_try_realloc*", "g_memdup*",
	"g_strdup*", "g_strndup", "g_strconcat", "g_strjoin*", "g_aligned_alloc*",

	/* redis, openssl, sqlite */
	"zmalloc*", "zcalloc*", "zrealloc*", "ztrymalloc*", "ztrycalloc*", "ztryrealloc*", "zstrdup",
	"extend_to_usable",
	"CRYPTO_malloc*", "CRYPTO_zalloc", "CRYPTO_calloc", "CRYPTO_realloc*", "CRYPTO_clear_realloc*",
	"CRYPTO_strdup", "CRYPTO_strndup", "CRYPTO_memdup", "CRYPTO_secure_malloc",
	"CRYPTO_secure_zalloc", "CRYPTO_aligned_alloc*",
	"sqlite3Malloc*", "sqlite3_malloc*", "sqlite3_realloc*", "sqlite3Realloc*", "sqlite3MemMalloc",
	"sqlite3MemRealloc", "sqlite3DbMalloc*", "sqlite3DbRealloc*", "sqlite3DbStrDup",
	"sqlite3DbStrNDup", "mallocWithAlarm",

	/* postgres, apr, ffmpeg, libxml2, talloc, tcl, libuv, node, the JVM */
	"palloc*", "repalloc*", "MemoryContextAlloc*", "MemoryContextStrdup", "AllocSetAlloc*",
	"AllocSetRealloc", "AllocSetContextCreate*", "GenerationAlloc*", "SlabAlloc*", "pstrdup",
	"pnstrdup", "pg_malloc*", "pg_realloc", "pg_strdup", "guc_malloc", "guc_strdup",
	"apr_palloc*", "apr_pcalloc*", "apr_pstrdup", "apr_pstrndup", "apr_pstrmemdup",
	"apr_allocator_alloc", "allocator_alloc",
	"av_malloc*", "av_calloc", "av_realloc*", "av_strdup", "av_strndup", "av_memdup",
	"av_fast_malloc*", "av_fast_padded_malloc*", "av_fast_realloc", "ff_fast_malloc",
	"xmlStrdup", "xmlStrndup", "xmlMemMalloc",
	"talloc_*", "_talloc_*", "__talloc*",
	"Tcl_Alloc", "Tcl_Realloc", "TclpAlloc", "TclpRealloc", "Tcl_AttemptAlloc",
	"uv__malloc", "uv__calloc", "uv__realloc", "uv__strdup", "uv__strndup",
	"node::Malloc*", "node::Calloc*", "node::Realloc*", "node::Unchecked*", "createUnsafeBuffer",
	"v8::internal::AllocWithRetry", "v8::internal::NewArray", "v8::base::Malloc",
	"v8::base::AlignedAlloc", "v8::internal::AlignedAllocWithRetry",
	"os::malloc", "os::realloc", "os::strdup", "AllocateHeap*", "ReallocateHeap*",
	"resource_allocate_bytes", "Arena::grow", "JLI_MemAlloc", "JLI_MemRealloc",

	/* MariaDB and MySQL: mysys, sql, InnoDB */
	"my_malloc", "my_realloc", "my_strdup*", "my_strndup", "my_memdup", "my_multi_malloc*",
	"my_once_alloc", "my_init_dynamic_array*", "init_dynamic_array*", "init_dynamic_string*",
	"dynstr_append*", "dynstr_realloc", "sf_malloc", "sf_realloc", "alloc_root", "multi_alloc_root",
	"init_alloc_root", "reset_root_defaults", "memdup_root", "strdup_root", "strmake_root",
	"safe_lexcstrdup_root", "init_sql_alloc", "THD::alloc", "THD::calloc", "Query_arena::alloc*",
	"Query_arena::calloc*", "Query_arena::memdup*", "Query_arena::str*",
	"String::real_alloc", "String::realloc*", "Binary_string::real_alloc",
	"Binary_string::realloc*", "ut_allocator*", "mem_heap_create*", "mem_heap_add_block*",
	"mem_heap_alloc*",

	/* Ada, Prolog, Free Pascal, Nim, mono, OCaml, D, Boehm's collector */
	"__gnat_malloc", "__gnat_realloc", "system__memory__alloc*", "system__memory__realloc*",
	"system__pool_global__allocate",
	"PL_malloc*", "PL_realloc", "Pl_Malloc_Check", "Pl_Calloc_Check", "Pl_Realloc_Check",
	"CMEM_$$_*", "FPC_GETMEM", "FPC_ALLOCMEM", "FPC_REALLOCMEM", "fpc_getmem", "fpc_reallocmem",
	"SYSTEM_$$_GETMEM*", "SYSTEM_$$_ALLOCMEM*", "SYSTEM_$$_REALLOCMEM*",
	"allocImpl_*", "alloc0Impl_*", "allocSharedImpl_*", "allocShared0Impl_*", "reallocImpl_*",
	"realloc0Impl_*", "reallocSharedImpl_*", "alignedAlloc_*", "alignedAlloc0_*", "alignedRealloc_*", "alignedRealloc0_*", "prepareAdd", "rawNewObj_*",
	"nimNewObj*", "nimNewSeq*", "newSeqPayload*",
	"monoeg_malloc*", "monoeg_g_malloc*", "monoeg_g_calloc", "monoeg_g_realloc", "monoeg_g_strdup*",
	"monoeg_g_memdup", "monoeg_try_*", "monoeg_g_try_*", "mono_mempool_alloc*", "mono_mempool_new*",
	"caml_alloc*", "caml_stat_alloc*", "caml_stat_calloc*", "caml_stat_resize*", "caml_stat_strdup*",
	"_d_new*", "_d_array*", "_d_allocmemory*", "gc_malloc", "gc_qalloc", "gc_calloc", "gc_realloc",
	"gc_extend", "core.memory.*", "core.internal.gc.*", "gc.*", "rt.lifetime.*",
	"GC_malloc*", "GC_generic_malloc*", "GC_core_malloc*", "GC_realloc", "GC_alloc_large*",
	"GC_expand_hp*", "GC_unix_get_mem", "GC_unix_mmap_get_mem",
};
/* clang-format on */

#define ANONYMOUS "(anonymous namespace)"
#define OPERATOR  "operator"

static_assert(HL_COUNT_OF(table) <= HL_PLUMBING_PATTERNS_MAX - HL_PLUMBING_OF_OTHERS_MAX,
	      "each has its place");

static void add(struct hl_plumbing *plumbing, const char *pattern)
{
	uint16_t *first = &plumbing->first[(uint8_t)pattern[0]];

	assert(plumbing->count < HL_PLUMBING_PATTERNS_MAX);
	plumbing->patterns[plumbing->count] = pattern;
	plumbing->next[plumbing->count++] = *first;
	*first = plumbing->count;
}

static void add_all(struct hl_plumbing *plumbing, const char *const *patterns)
{
	for (; patterns && *patterns; patterns++)
		add(plumbing, *patterns);
}

void hl_plumbing_init(struct hl_plumbing *plumbing)
{
	*plumbing = (struct hl_plumbing){0};
	for (size_t i = 0; i < HL_COUNT_OF(table); i++)
		add(plumbing, table[i]);
	for (size_t i = 0; i < hl_allocator_count; i++)
		add_all(plumbing, hl_allocator_traits[i].plumbing);
	for (size_t i = 0; hl_guest_traits[i]; i++)
		add_all(plumbing, hl_guest_traits[i]->plumbing);
}

static bool begins_with(const char *text, const char *beginning)
{
	return !strncmp(text, beginning, strlen(beginning));
}

/* glibc has "__GI_NAME" for its own calls of NAME, and either may be the one that a symbol table says. */
static const char *skip_alias(const char *name)
{
	static const char prefix[] = "__GI_";

	return begins_with(name, prefix) ? name + strlen(prefix) : name;
}

/*
 * Where the name itself begins: the demangler puts a return type before names of templates. Spaces
 * within brackets are part of a name, and so is what follows the word operator.
 */
static const char *skip_return_type(const char *name, bool *ret_is_new)
{
	const char *begin = name;
	int depth = 0;

	for (const char *at = name; *at; at++) {
		bool is_outside = depth == 0;
		if (*at == '(' && is_outside && begins_with(at, ANONYMOUS))
			at += strlen(ANONYMOUS) - 1;
		else if (*at == '(' && is_outside &&
			 (at == begin || !begins_with(begin, "decltype")))
			return begin; /* of parameters */
		else if (*at == '<' || *at == '[' || *at == '{' || *at == '(')
			depth++;
		else if ((*at == '>' && at > name && at[-1] != '-') || *at == ']' || *at == '}' ||
			 *at == ')')
			depth--;
		else if (*at == ' ' && is_outside && at[1] != '(')
			begin = at + 1;
		else if (*at == 'o' && is_outside && (at == begin || at[-1] == ':') &&
			 begins_with(at, OPERATOR) && at[strlen(OPERATOR)] != '_' &&
			 !isalnum((unsigned char)at[strlen(OPERATOR)])) {
			*ret_is_new = begins_with(at + strlen(OPERATOR), " new");
			return begin;
		}
	}
	return begin;
}

static bool matches(const char *pattern, const char *name)
{
	while (*pattern && *pattern == *name) {
		pattern++;
		name++;
	}
	if (*pattern == '*')
		return true;
	return !*pattern && (!*name || strchr("(<[.@", *name));
}

static bool matches_some(const struct hl_plumbing *plumbing, const char *name)
{
	for (uint16_t i = plumbing->first[(uint8_t)*name]; i; i = plumbing->next[i - 1])
		if (matches(plumbing->patterns[i - 1], name))
			return true;
	return false;
}

/*
 * "<u8 as alloc::slice::Join>::join", "<[T]>::to_vec": what Rust itself defines for types without a
 * path. Traits of programs have paths that begin otherwise, and so have types of programs.
 */
static bool is_rust_builtin(const char *name)
{
	static const char *const paths[] = {"alloc::", "core::", "std::", "<["};
	const char *trait = strstr(name, " as ");

	if (*name != '<')
		return false;
	if (!trait)
		return begins_with(name, "<[") || begins_with(name, "<str>");
	if (memmem(name, (size_t)(trait - name), "::", strlen("::")))
		return false;
	for (size_t i = 0; i < HL_COUNT_OF(paths); i++)
		if (begins_with(trait + strlen(" as "), paths[i]))
			return true;
	return false;
}

bool hl_plumbing_matches(const struct hl_plumbing *plumbing, const char *name)
{
	bool is_new = false;

	name = skip_alias(name);
	size_t length = strcspn(name, "(< ");

	/* Only templates have return types; most names need not be read to their ends. */
	if (!name[length] || (name[length] == '(' && length && !begins_with(name, "decltype")))
		return matches_some(plumbing, name);
	const char *begin = skip_return_type(name, &is_new);
	return is_new || is_rust_builtin(name) || matches_some(plumbing, begin);
}

/* Whether ${name} begins with a text of ${list}, which NULL ends; NULL: an empty one. */
static bool begins_with_one(const char *name, const char *const *list)
{
	for (; list && *list; list++)
		if (begins_with(name, *list))
			return true;
	return false;
}

bool hl_plumbing_is_module(const char *path)
{
	const char *name = hl_path_basename(path);

	for (size_t i = 0; hl_guest_traits[i]; i++)
		if (begins_with_one(name, hl_guest_traits[i]->plumbing_files))
			return true;
	return begins_with(name, "libffi.so") || hl_path_is_recorder(path);
}

static bool is_one_of(const char *text, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(text, *list))
			return true;
	return false;
}

bool hl_plumbing_runs_services(const char *name, const char *module, const char *source)
{
	const struct hl_guest_traits *guest = hl_guest_host();
	size_t length = strlen(source);

	if (!guest)
		return false;
	name = skip_alias(name);
	if (is_one_of(name, guest->host->functions) ||
	    (!strcmp(hl_path_basename(module), guest->host->library) &&
	     is_one_of(name, guest->host->callbacks)))
		return true;
	for (const char *const *script = guest->host->scripts; *script; script++)
		if (length >= strlen(*script) &&
		    !strcmp(source + length - strlen(*script), *script))
			return true;
	return false;
}
