/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which functions of which mapped files hand out and take back memory: the malloc family of
 * whatever allocators a process has.
 *
 * All of them count, not only those that calls reach now: with an allocator preloaded, libc's own
 * is mapped as well, and some library may have kept hold of it.
 */
#pragma once

#include "base/error.h"
#include "bpf/heap_shared.h"
#include "bpf/probe.h"
#include "process/maps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One function; aliases are one function. */
struct hl_allocator_function {
	char name[40]; /* of the aliases the plainest */
	enum hl_heap_call call;
	bool throws;	   /* an exception may leave it */
	bool calls_others; /* of those that are found in the same file */
	uint64_t offset;   /* of its first byte in the file */
	struct hl_probe_place place;
};

/* Sorted by offset. Zero-initialize for an empty set. */
struct hl_allocator_functions {
	struct hl_allocator_function *functions;
	size_t count, capacity;
};

/* A mapped file that has such functions. */
struct hl_allocator {
	struct hl_map map; /* of its code; a copy */
	struct hl_allocator_functions found;
};

/* Device and inode. */
struct hl_allocator_file {
	uint32_t dev_major, dev_minor;
	uint64_t inode;
};

/* Zero-initialize for an empty set. */
struct hl_allocators {
	struct hl_allocator *allocators;
	size_t count, capacity;
	struct hl_allocator_file *seen; /* files that were looked through */
	size_t seen_count, seen_capacity;
};

/* How many integer arguments of such a call are needed. */
unsigned hl_allocators_call_arguments(enum hl_heap_call call);

/*
 * The functions that the ELF file open as ${fd} defines, in its dynamic or its static symbol table.
 * That there are none is not an error, nor that the file is another kind of file, or damaged. 0 or
 * -ENOMEM.
 *
 * Left out are functions that only pass the call on to another one that is found in the same file
 * (operator new of libstdc++ linked statically, glibc's reallocarray, an allocator's operator delete):
 * that spares the program a second probe, and one through which exceptions would have to pass. Left
 * out are operators as well where the file has no malloc: they use that of another file.
 */
int hl_allocators_read_functions(int fd, struct hl_allocator_functions *ret_found);

void hl_allocators_release_functions(struct hl_allocator_functions *functions);

/*
 * Adds the allocators in files of which ${maps} of ${pid} has code and that were not looked through
 * yet; with ${object} not NULL, only those whose path contains it. 0 or -ENOMEM, with what was
 * found so far in ${allocators}.
 */
int hl_allocators_add(struct hl_allocators *allocators, pid_t pid, const struct hl_maps *maps,
		      const char *object);

/* The same for a start, when there must be one: -ENOENT or -ENOMEM with a sentence. */
int hl_allocators_find(pid_t pid, const struct hl_maps *maps, const char *object,
		       struct hl_allocators *ret_allocators, struct hl_error *err);

void hl_allocators_release(struct hl_allocators *allocators);
