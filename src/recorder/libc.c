/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks the real functions up; see libc.h. */
#include "recorder/libc.h"

#include "base/compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>

struct hl_libc hl_libc;
__attribute__((visibility("hidden"))) void *(*hl_libc_dlopen)(const char *, int);
__attribute__((visibility("hidden"))) void *(*hl_libc_dlmopen)(Lmid_t, const char *, int);
bool hl_libc_has_glibc_chunks;

static long first_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	hl_libc_resolve();
	return hl_libc_syscall(number, a, b, c, d, e, f);
}

long (*hl_libc_syscall)(long, long, long, long, long, long, long) = first_syscall;

static _Atomic uint32_t resolved;
static __thread bool resolving __attribute__((tls_model("initial-exec")));

_Alignas(16) char hl_libc_bootstrap[HL_LIBC_BOOTSTRAP_BYTES];
static _Atomic size_t bootstrap_used;

static const struct {
	const char *name;
	void *place;
} symbols[] = {
	{"malloc", &hl_libc.malloc},
	{"free", &hl_libc.free},
	{"calloc", &hl_libc.calloc},
	{"realloc", &hl_libc.realloc},
	{"malloc_usable_size", &hl_libc.usable_size},
	{"posix_memalign", &hl_libc.posix_memalign},
	{"aligned_alloc", &hl_libc.aligned_alloc},
	{"memalign", &hl_libc.memalign},
	{"valloc", &hl_libc.valloc},
	{"pvalloc", &hl_libc.pvalloc},
	{"strdup", &hl_libc.strdup},
	{"strndup", &hl_libc.strndup},
	{"dlclose", &hl_libc.dlclose},
	{"mmap", &hl_libc.mmap},
	{"munmap", &hl_libc.munmap},
	{"mremap", &hl_libc.mremap},
	{"brk", &hl_libc.brk},
	{"sbrk", &hl_libc.sbrk},
	{"execve", &hl_libc.execve},
	{"execvpe", &hl_libc.execvpe},
	{"fexecve", &hl_libc.fexecve},
	{"execveat", &hl_libc.execveat},
	{"posix_spawn", &hl_libc.posix_spawn},
	{"posix_spawnp", &hl_libc.posix_spawnp},
	{"system", &hl_libc.system},
	{"popen", &hl_libc.popen},
	{"prctl", &hl_libc.prctl},
	{"_exit", &hl_libc._exit},
	{"_Exit", &hl_libc._Exit},
	{"syscall", &hl_libc_syscall},
	{"dlopen", &hl_libc_dlopen},
	{"dlmopen", &hl_libc_dlmopen},
};

bool hl_libc_resolve(void)
{
	if (HL_LIKELY(atomic_load_explicit(&resolved, memory_order_acquire)))
		return true;
	if (resolving)
		return false;
	resolving = true;
	int saved_errno = errno;
	for (size_t i = 0; i < HL_COUNT_OF(symbols); i++)
		*(void **)symbols[i].place = dlsym(RTLD_NEXT, symbols[i].name);
	errno = saved_errno;
	atomic_store_explicit(&resolved, 1, memory_order_release);
	resolving = false;
	return true;
}

void hl_libc_examine_chunks(const void *block)
{
	hl_libc_has_glibc_chunks = false;
	if (!hl_libc_same_module((void *)hl_libc.malloc, (void *)gnu_get_libc_version))
		return;
	hl_libc_has_glibc_chunks = true;
	if (hl_libc_usable_size(block) != hl_libc.usable_size((void *)block))
		hl_libc_has_glibc_chunks = false;
}

bool hl_libc_is_known(void)
{
	return _dl_find_object != NULL;
}

bool hl_libc_same_module(void *a, void *b)
{
	struct dl_find_object of_a, of_b;

	return hl_libc_is_known() && _dl_find_object(a, &of_a) == 0 &&
	       _dl_find_object(b, &of_b) == 0 && of_a.dlfo_map_start == of_b.dlfo_map_start;
}

bool hl_libc_module_range(void *address, uintptr_t *ret_start, uintptr_t *ret_end)
{
	struct dl_find_object module;

	if (!hl_libc_is_known() || _dl_find_object(address, &module) != 0)
		return false;
	*ret_start = (uintptr_t)module.dlfo_map_start;
	*ret_end = (uintptr_t)module.dlfo_map_end;
	return true;
}

const char *hl_libc_own_path(void)
{
	struct dl_find_object own;

	return _dl_find_object(&hl_libc, &own) == 0 ? own.dlfo_link_map->l_name : "";
}

void *hl_libc_look_up(const char *name, void *caller)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	struct dl_find_object module;

	if (symbol || !hl_libc_dlopen || !hl_libc_is_known() ||
	    _dl_find_object(caller, &module) != 0)
		return symbol;
	void *handle = hl_libc_dlopen(module.dlfo_link_map->l_name, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return NULL;
	symbol = dlsym(handle, name);
	dlclose(handle);
	/* The program's own scope is the global one, where we are. */
	return hl_libc_same_module(symbol, &hl_libc) ? NULL : symbol;
}

void *hl_libc_bootstrap_alloc(size_t bytes)
{
	if (bytes > sizeof(hl_libc_bootstrap))
		return NULL;
	size_t rounded = (bytes + 15) & ~(size_t)15;
	size_t start = atomic_fetch_add(&bootstrap_used, rounded);
	return start + rounded <= sizeof(hl_libc_bootstrap) ? hl_libc_bootstrap + start : NULL;
}

size_t hl_libc_bootstrap_readable(const void *address)
{
	return (size_t)(hl_libc_bootstrap + sizeof(hl_libc_bootstrap) - (const char *)address);
}
