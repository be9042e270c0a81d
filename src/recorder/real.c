/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks the real allocator up; see real.h. */
#include "recorder/real.h"

#include "base/compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>

struct hl_real hl_real;
__attribute__((visibility("hidden"))) void *(*hl_real_dlmopen)(Lmid_t, const char *, int);
bool hl_real_has_glibc_chunks;

static long first_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	hl_real_resolve();
	return hl_real_syscall(number, a, b, c, d, e, f);
}

__attribute__((visibility("hidden"))) long (*hl_real_syscall)(long, long, long, long, long, long,
							      long) = first_syscall;

static _Atomic uint32_t resolved;
static __thread bool resolving __attribute__((tls_model("initial-exec")));

static _Alignas(16) char bootstrap[4096];
static _Atomic size_t bootstrap_used;

static const struct {
	const char *name;
	void *place;
} symbols[] = {
	{"malloc", &hl_real.malloc},
	{"free", &hl_real.free},
	{"calloc", &hl_real.calloc},
	{"realloc", &hl_real.realloc},
	{"malloc_usable_size", &hl_real.usable_size},
	{"posix_memalign", &hl_real.posix_memalign},
	{"aligned_alloc", &hl_real.aligned_alloc},
	{"memalign", &hl_real.memalign},
	{"valloc", &hl_real.valloc},
	{"pvalloc", &hl_real.pvalloc},
	{"dlclose", &hl_real.dlclose},
	{"mmap", &hl_real.mmap},
	{"munmap", &hl_real.munmap},
	{"mremap", &hl_real.mremap},
	{"brk", &hl_real.brk},
	{"sbrk", &hl_real.sbrk},
	{"execve", &hl_real.execve},
	{"execvpe", &hl_real.execvpe},
	{"fexecve", &hl_real.fexecve},
	{"execveat", &hl_real.execveat},
	{"posix_spawn", &hl_real.posix_spawn},
	{"posix_spawnp", &hl_real.posix_spawnp},
	{"system", &hl_real.system},
	{"popen", &hl_real.popen},
	{"_exit", &hl_real._exit},
	{"_Exit", &hl_real._Exit},
	{"syscall", &hl_real_syscall},
	{"dlmopen", &hl_real_dlmopen},
};

bool hl_real_resolve(void)
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

void hl_real_examine_chunks(const void *block)
{
	hl_real_has_glibc_chunks = false;
	if (!hl_real_same_module((void *)hl_real.malloc, (void *)gnu_get_libc_version))
		return;
	hl_real_has_glibc_chunks = true;
	if (hl_real_usable_size(block) != hl_real.usable_size((void *)block))
		hl_real_has_glibc_chunks = false;
}

bool hl_real_libc_is_known(void)
{
	return _dl_find_object != NULL;
}

bool hl_real_same_module(void *a, void *b)
{
	struct dl_find_object of_a, of_b;
	return hl_real_libc_is_known() && _dl_find_object(a, &of_a) == 0 &&
	       _dl_find_object(b, &of_b) == 0 && of_a.dlfo_map_start == of_b.dlfo_map_start;
}

const char *hl_real_own_path(void)
{
	struct dl_find_object own;
	return _dl_find_object(&hl_real, &own) == 0 ? own.dlfo_link_map->l_name : "";
}

void *hl_real_look_up(const char *name, void *caller)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	struct dl_find_object module;
	if (symbol || !hl_real_libc_is_known() || _dl_find_object(caller, &module) != 0)
		return symbol;
	void *handle = dlopen(module.dlfo_link_map->l_name, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return NULL;
	symbol = dlsym(handle, name);
	dlclose(handle);
	/* The program's own scope is the global one, where we are. */
	return hl_real_same_module(symbol, &hl_real) ? NULL : symbol;
}

void *hl_real_bootstrap_alloc(size_t bytes)
{
	if (bytes > sizeof(bootstrap))
		return NULL;
	size_t rounded = (bytes + 15) & ~(size_t)15;
	size_t start = atomic_fetch_add(&bootstrap_used, rounded);
	return start + rounded <= sizeof(bootstrap) ? bootstrap + start : NULL;
}

bool hl_real_is_bootstrap(const void *address)
{
	uintptr_t at = (uintptr_t)address;
	return at >= (uintptr_t)bootstrap && at < (uintptr_t)bootstrap + sizeof(bootstrap);
}

size_t hl_real_bootstrap_behind(const void *address)
{
	return (size_t)(bootstrap + sizeof(bootstrap) - (const char *)address);
}
