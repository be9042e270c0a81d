/* SPDX-License-Identifier: BSD-2-Clause */
/* Has mi_new_realloc() fail: once its new handler throws, once it makes room; and mi_reallocf(). */
#include "program.h"

#include <setjmp.h>

extern size_t memory_limit;
extern void (*new_handler)(void);
void *mi_malloc(size_t size);
void *mi_new_realloc(void *block, size_t size);
void mi_free(void *block);
void *mi_reallocf(void *block, size_t size);

static jmp_buf caught;

/* As an exception would. */
static void throw(void)
{
	longjmp(caught, 1);
}

static void make_room(void)
{
	memory_limit = 1 << 20;
}

static SITE void *before_site(void)
{
	return mi_malloc(43);
}

static SITE void *resize_site(void *block)
{
	return mi_new_realloc(block, 300 << 10);
}

static SITE void *freed_site(void)
{
	return mi_malloc(47);
}

static SITE void after_site(void)
{
	for (int i = 0; i < 127; i++)
		KEEP(mi_malloc(19));
}

int main(void)
{
	void *block = before_site();

	KEEP(mi_malloc(400 << 10));
	REQUIRE(!mi_reallocf(freed_site(), 600 << 10));
	new_handler = throw;
	if (!setjmp(caught)) {
		resize_site(block);
		return 1;
	}
	after_site();
	new_handler = make_room;
	REQUIRE(resize_site(before_site()));
	mi_free(block);
	return 0;
}
