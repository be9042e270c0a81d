/* SPDX-License-Identifier: BSD-2-Clause */
/* What the recorder knows of the calling thread without looking anything up. */
#pragma once

#include <stdbool.h>

struct hl_thread;

struct hl_self {
	struct hl_thread *thread; /* NULL: it has no slot */
	/* Set while the thread gets its slot or gives it back: allocations of signal handlers and of
	 * libc pass through meanwhile. Above all, it must not wait for the lock that its own thread
	 * holds. */
	bool changing_slot;
	bool waited_for_others; /* see on_thread_end() in thread.c */
};

extern __thread struct hl_self hl_self __attribute__((tls_model("initial-exec")));

/* The calling thread; NULL: it has no slot. */
static inline struct hl_thread *hl_thread_self(void)
{
	return hl_self.thread;
}

static inline void hl_thread_become(struct hl_thread *thread)
{
	hl_self.thread = thread;
}

/* The flag of that name, of the calling thread. */
static inline bool *hl_self_changing_slot(void)
{
	return &hl_self.changing_slot;
}
