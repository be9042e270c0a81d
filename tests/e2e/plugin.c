/* SPDX-License-Identifier: BSD-2-Clause */
/* Built as libraries that differ in the names of their functions alone. */
#include "program.h"

#define PASTE(a, b)	   a##b
#define NAME(prefix, name) PASTE(prefix, name)

void *plugin_allocate(size_t bytes);

static SITE void *NAME(PLUGIN, _site)(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

__attribute__((visibility("default"))) void *plugin_allocate(size_t bytes)
{
	void *block = NAME(PLUGIN, _site)(bytes);

	KEEP(block);
	return block;
}
