/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates below code that comes and goes: code made at run time, without unwind rules, a
 * library, and another one in its place. Stops at the gate of gate.c each time that its
 * mappings have changed.
 *
 * Usage: new_code LIBRARY OTHER_LIBRARY
 */
#include "program.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

typedef void *allocate_fn(size_t bytes);

extern void stop_at_gate(void) __attribute__((weak));

static void pass_gate(void)
{
	if (stop_at_gate)
		stop_at_gate();
}

static SITE void *allocate_here(size_t bytes)
{
	void *block = malloc(bytes);

	KEEP(block);
	return block;
}

/* void *generated(size_t bytes, allocate_fn *allocate): calls it in a frame with a frame pointer.
 */
static const uint8_t generated[] = {
	0x55,		  /* push %rbp */
	0x48, 0x89, 0xe5, /* mov %rsp,%rbp */
	0xff, 0xd6,	  /* call *%rsi */
	0x5d,		  /* pop %rbp */
	0xc3,		  /* ret */
};

typedef void *generated_fn(size_t bytes, allocate_fn *allocate);

static generated_fn *generate(void)
{
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(code != MAP_FAILED);
	memcpy(code, generated, sizeof(generated));
	REQUIRE(!mprotect(code, 4096, PROT_READ | PROT_EXEC));
	return (generated_fn *)(uintptr_t)code;
}

static SITE void run_library(const char *path, generated_fn *call, size_t bytes)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	REQUIRE(handle);
	allocate_fn *allocate = (allocate_fn *)(uintptr_t)dlsym(handle, "plugin_allocate");
	REQUIRE(allocate);
	pass_gate();
	for (int i = 0; i < 7; i++) {
		KEEP(allocate(bytes));
		KEEP(call(bytes, allocate));
	}
	REQUIRE(!dlclose(handle));
}

int main(int argc, char **argv)
{
	REQUIRE(argc == 3);
	generated_fn *call = generate();
	pass_gate();
	for (int i = 0; i < 11; i++)
		KEEP(call(103, allocate_here));
	run_library(argv[1], call, 109);
	run_library(argv[2], call, 113);
	return 0;
}
