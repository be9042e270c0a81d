/* SPDX-License-Identifier: BSD-2-Clause */
/* C++ operators new and delete by the Itanium ABI's names; traits.h says what the lines mean. */
/* clang-format off */
ALLOCATE_OR_THROW(_Znwm, a)				/* new(size) */
ALLOCATE_OR_THROW(_Znam, a)				/* new[](size) */
ALLOCATE(_ZnwmRKSt9nothrow_t, a)			/* new(size, nothrow) */
ALLOCATE(_ZnamRKSt9nothrow_t, a)			/* new[](size, nothrow) */
ALLOCATE_OR_THROW(_ZnwmSt11align_val_t, a)		/* new(size, alignment) */
ALLOCATE_OR_THROW(_ZnamSt11align_val_t, a)		/* new[](size, alignment) */
ALLOCATE(_ZnwmSt11align_val_tRKSt9nothrow_t, a)		/* new(size, alignment, nothrow) */
ALLOCATE(_ZnamSt11align_val_tRKSt9nothrow_t, a)		/* new[](size, alignment, nothrow) */
RELEASE(_ZdlPv)						/* delete(block) */
RELEASE(_ZdaPv)						/* delete[](block) */
RELEASE(_ZdlPvm)					/* delete(block, size) */
RELEASE(_ZdaPvm)					/* delete[](block, size) */
RELEASE(_ZdlPvRKSt9nothrow_t)				/* delete(block, nothrow) */
RELEASE(_ZdaPvRKSt9nothrow_t)				/* delete[](block, nothrow) */
RELEASE(_ZdlPvSt11align_val_t)				/* delete(block, alignment) */
RELEASE(_ZdaPvSt11align_val_t)				/* delete[](block, alignment) */
RELEASE(_ZdlPvmSt11align_val_t)				/* delete(block, size, alignment) */
RELEASE(_ZdaPvmSt11align_val_t)				/* delete[](block, size, alignment) */
RELEASE(_ZdlPvSt11align_val_tRKSt9nothrow_t)		/* delete(block, alignment, nothrow) */
RELEASE(_ZdaPvSt11align_val_tRKSt9nothrow_t)		/* delete[](block, alignment, nothrow) */
/* clang-format on */
