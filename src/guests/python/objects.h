/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects of Python: up to 512 bytes are cut from arenas by an allocator of the interpreter's own,
 * pymalloc, which calls malloc() for none of them. It is wrapped where the interpreter keeps its address.
 *
 * Both domains that it serves (PyMem_Malloc(), PyObject_Malloc()) are. An interpreter that uses malloc() in its
 * place (PYTHONMALLOC=malloc) is left alone: malloc() is recorded anyway; as it is for what pymalloc takes from
 * there. Under PYTHONMALLOC=debug the objects are those that the debugging layer asks for.
 */
#pragma once

#include <stdbool.h>

struct hl_exports;
struct hl_region_header;

/* Notes a module that has been loaded, if it is an interpreter. The first one counts. */
void hl_python_objects_note(struct hl_region_header *header, const struct hl_exports *exports);
