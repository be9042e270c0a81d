/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks heapline for a region of a forked child's own; see struct hl_region_children.
 *
 * The child makes the memfd, as heapline can fetch a descriptor but not place one. What it has of its
 * parent's recorder is still there meanwhile.
 */
#include "recorder/image/image.h"

#include "base/clock.h"
#include "recorder/recorder.h"
#include "recorder/sys.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <time.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

#define LOOK_NS	    (HL_NS_PER_SECOND / 20) /* whether heapline is still there */
#define PATIENCE_NS (2 * HL_NS_PER_SECOND)  /* for one that may be stopped */

struct hl_region_children *hl_image_children;

static int make_memfd(void)
{
	static const char name[] = "heapline";
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;

	int fd = (int)HL_SYS(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL, 0);
	return fd == -EINVAL ? (int)HL_SYS(SYS_memfd_create, name, flags, 0) : fd;
}

/* NULL if no place is free. */
static _Atomic uint64_t *put(uint64_t post)
{
	for (uint32_t i = 0; i < HL_CHILD_POSTS; i++) {
		uint64_t none = 0;
		if (!atomic_compare_exchange_strong(&hl_image_children->posts[i], &none, post))
			continue;
		atomic_fetch_add(&hl_image_children->bell, 1);
		HL_SYS(SYS_futex, &hl_image_children->bell, FUTEX_WAKE, INT_MAX);
		return &hl_image_children->posts[i];
	}
	return NULL;
}

static bool await_answer(_Atomic uint64_t *place, uint64_t post)
{
	const struct timespec look = {.tv_nsec = LOOK_NS};
	uint64_t begin_ns = hl_clock_ns(HL_SYS_CLOCK), word = post;
	bool is_known;

	for (;;) {
		/* Refused; or this process was stopped, and given up. */
		if (hl_child_post_pid(word) != hl_child_post_pid(post))
			return false;
		if (hl_child_post_state(word) == HL_CHILD_JOINED)
			return atomic_compare_exchange_strong(place, &word, 0);
		hl_sys6(SYS_futex, (long)hl_child_post_futex(place), FUTEX_WAIT, (long)(word >> 32),
			(long)&look, 0, 0);
		uint64_t waited_ns = hl_clock_ns(HL_SYS_CLOCK) - begin_ns;
		bool in_vain = waited_ns >= PATIENCE_NS ||
			       (waited_ns >= LOOK_NS && hl_image_has_lost_heapline(&is_known));
		word = atomic_load(place);
		if (in_vain && hl_child_post_pid(word) == hl_child_post_pid(post) &&
		    hl_child_post_state(word) != HL_CHILD_JOINED &&
		    atomic_compare_exchange_strong(place, &word, 0))
			return false;
	}
}

int hl_image_ask(void)
{
	if (!atomic_load(&hl_image_children->is_heard) || !hl_image_may_ask())
		return -1;
	int fd = make_memfd();
	if (fd < 0)
		return -1;
	uint64_t post = hl_child_post(hl_sys_getpid(), (uint32_t)fd, HL_CHILD_POSTED);
	_Atomic uint64_t *place = put(post);
	if (place && await_answer(place, post))
		return fd;
	hl_sys_close(fd);
	return -1;
}
