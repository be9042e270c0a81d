/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * C++ operator new and delete. Without these the caller of every object's allocation would be
 * operator new itself. Memory comes from malloc, from which every operator delete that is not the
 * program's own can take it; the sized ones, to which some allocators' take the size on trust, are
 * led to free.
 *
 * A new that fails is handed to the real operator new: new handlers and exceptions are its own.
 */
#include "base/compiler.h"
#include "recorder/libc.h"
#include "tags/tags.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef void *operator_new(size_t size, size_t second, size_t third);

/* Calls the definition that comes next, in a new that found no memory. */
static __attribute__((noinline)) void *pass_on(const char *name, size_t size, size_t second,
					       size_t third)
{
	operator_new *real = (operator_new *)dlsym(RTLD_NEXT, name);

	if (!real)
		abort(); /* nothing can be returned or thrown */
	return real(size, second, third);
}

#define OPERATOR_NEW(SYMBOL)                                                                  \
	HL_EXPORT void *SYMBOL(size_t size, size_t second, size_t third);                     \
	HL_EXPORT void *SYMBOL(size_t size, size_t second, size_t third)                      \
	{                                                                                     \
		void *block = hl_tags_allocate(size, (uintptr_t)__builtin_return_address(0)); \
		return HL_LIKELY(block) ? block : pass_on(#SYMBOL, size, second, third);      \
	}

#define OPERATOR_NEW_ALIGNED(SYMBOL)                                                            \
	HL_EXPORT void *SYMBOL(size_t size, size_t alignment, size_t third);                    \
	HL_EXPORT void *SYMBOL(size_t size, size_t alignment, size_t third)                     \
	{                                                                                       \
		void *block = hl_tags_allocate_aligned(alignment, size,                         \
						       (uintptr_t)__builtin_return_address(0)); \
		return HL_LIKELY(block) ? block : pass_on(#SYMBOL, size, alignment, third);     \
	}

#define OPERATOR_DELETE(SYMBOL)             \
	HL_EXPORT void SYMBOL(void *block); \
	HL_EXPORT void SYMBOL(void *block)  \
	{                                   \
		free(block);                \
	}

OPERATOR_NEW(_Znwm)					 /* new(size) */
OPERATOR_NEW(_Znam)					 /* new[](size) */
OPERATOR_NEW(_ZnwmRKSt9nothrow_t)			 /* new(size, nothrow) */
OPERATOR_NEW(_ZnamRKSt9nothrow_t)			 /* new[](size, nothrow) */
OPERATOR_NEW_ALIGNED(_ZnwmSt11align_val_t)		 /* new(size, alignment) */
OPERATOR_NEW_ALIGNED(_ZnamSt11align_val_t)		 /* new[](size, alignment) */
OPERATOR_NEW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t) /* new(size, alignment, nothrow) */
OPERATOR_NEW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t) /* new[](size, alignment, nothrow) */
OPERATOR_DELETE(_ZdlPv)					 /* delete(block) */
OPERATOR_DELETE(_ZdaPv)					 /* delete[](block) */
OPERATOR_DELETE(_ZdlPvm)				 /* delete(block, size) */
OPERATOR_DELETE(_ZdaPvm)				 /* delete[](block, size) */
OPERATOR_DELETE(_ZdlPvRKSt9nothrow_t)			 /* delete(block, nothrow) */
OPERATOR_DELETE(_ZdaPvRKSt9nothrow_t)			 /* delete[](block, nothrow) */
OPERATOR_DELETE(_ZdlPvSt11align_val_t)			 /* delete(block, alignment) */
OPERATOR_DELETE(_ZdaPvSt11align_val_t)			 /* delete[](block, alignment) */
OPERATOR_DELETE(_ZdlPvmSt11align_val_t)			 /* delete(block, size, alignment) */
OPERATOR_DELETE(_ZdaPvmSt11align_val_t)			 /* delete[](block, size, alignment) */
OPERATOR_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)	 /* delete(block, alignment, nothrow) */
OPERATOR_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)	 /* delete[](block, alignment, nothrow) */
