/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions of jemalloc; traits.h says what the lines mean. */
/* clang-format off */
ALLOCATE(je_malloc, a)
ALLOCATE(je_calloc, product(a, b))
ALLOCATE_ALIGNED(je_aligned_alloc, b, a)
ALLOCATE_ALIGNED(je_memalign, b, a)
ALLOCATE_ALIGNED(je_valloc, a, 4096)
MEMALIGN_INTO(je_posix_memalign)
ALLOCATE_ALIGNED(je_mallocx, a, UINT64_C(1) << (b & 63))
RESIZE(je_realloc, b)
RESIZE(je_rallocx, b)
RELEASE(je_free)
RELEASE(je_dallocx)
RELEASE(je_sdallocx)
/* clang-format on */
