/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares recalled stacks with freshly walked ones; see recall_check.h. */
#include "recorder/recall_check.h"

#include "recorder/start.h"
#include "recorder/sys.h"

#include <stdlib.h>

#define VARIABLE "HEAPLINE_CHECK_RECALL"

/* In ordinary memory: a forked child compares, too. */
uint32_t hl_recall_check_every;

void hl_recall_check_read_environment(char *const *environment)
{
	const char *value = hl_environment_value(environment, VARIABLE);

	hl_recall_check_every = value ? (uint32_t)strtoul(value, NULL, 10) : 0;
}

/* ---- the message ---- */

struct message {
	char text[512];
	size_t used;
};

static void flush(struct message *message)
{
	HL_SYS(SYS_write, 2, message->text, message->used);
	message->used = 0;
}

static void put(struct message *message, const char *text)
{
	for (; *text; text++) {
		if (message->used == sizeof(message->text))
			flush(message);
		message->text[message->used++] = *text;
	}
}

static void put_key(struct message *message, uint64_t key)
{
	char digits[20] = " ", *at = digits + 1;

	for (int shift = 60; shift >= 0; shift -= 4)
		*at++ = "0123456789abcdef"[key >> shift & 15];
	put(message, digits);
}

static __attribute__((noreturn)) void report(const struct hl_region_map *region, uint32_t node,
					     const struct hl_walk *walked)
{
	struct message message = {.used = 0};

	put(&message, "heapline: a recalled stack is not the walked one (frame keys, innermost "
		      "first): recalled");
	for (; node; node = region->nodes[node].parent)
		put_key(&message,
			atomic_load_explicit(&region->nodes[node].frame, memory_order_relaxed));
	put(&message, "; walked");
	for (uint32_t i = walked->depth; i-- > 0;)
		put_key(&message, walked->frames[i].key);
	put(&message, walked->incomplete ? " incomplete\n" : "\n");
	flush(&message);
	abort();
}

/* ---- the comparison ---- */

/* By keys: two ids can stand for one node; see node.h. */
static bool is_stack_of(const struct hl_region_map *region, uint32_t node,
			const struct hl_walk *walk)
{
	for (uint32_t i = walk->depth; i-- > 0; node = region->nodes[node].parent)
		if (!node ||
		    atomic_load_explicit(&region->nodes[node].frame, memory_order_relaxed) !=
			    hl_node_key(&walk->frames[i]))
			return false;
	return node == 0;
}

static struct hl_walk *walk_afresh(struct hl_recorder *recorder, struct hl_thread *thread,
				   const struct hl_registers *caller)
{
	if (!thread->check_walk)
		thread->check_walk = hl_private_map_new(sizeof(*thread->check_walk));
	struct hl_walk *walk = thread->check_walk;
	if (!walk)
		return NULL;
	/* Nothing is remembered, not even which pages can be read. */
	walk->depth = 0;
	walk->stack_low = walk->stack_high = 0;
	if (atomic_load(&hl_seccomp_noted)) { /* then the kernel may not be asked */
		walk->stack_low = thread->tables->walk.stack_low;
		walk->stack_high = thread->tables->walk.stack_high;
	}
	hl_walk_capture(&recorder->unwind, walk, caller);
	return walk;
}

void hl_recall_check(struct hl_recorder *recorder, struct hl_thread *thread,
		     const struct hl_registers *caller, uint32_t node, bool incomplete)
{
	if (++thread->unchecked < hl_recall_check_every)
		return;
	thread->unchecked = 0;
	const struct hl_walk *walk = walk_afresh(recorder, thread, caller);
	/* Modules may change meanwhile: then the keys are others. */
	if (!walk || walk->generation != thread->tables->walk.generation)
		return;
	/* A child that a handler has forked out of this event has no nodes (see start.c); it may
	 * have come into being during the comparison, so that is asked last. */
	if ((walk->incomplete != incomplete || walk->truncated ||
	     !is_stack_of(&recorder->region, node, walk)) &&
	    hl_recorder_is_running(recorder))
		report(&recorder->region, node, walk);
}

void hl_recall_check_release(struct hl_thread *thread)
{
	if (thread->check_walk)
		hl_private_map_free(thread->check_walk, sizeof(*thread->check_walk));
	thread->check_walk = NULL;
}
