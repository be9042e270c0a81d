/* SPDX-License-Identifier: BSD-2-Clause */
/* Classes of C++ by the virtual tables that objects begin with. */
#pragma once

#include "base/index.h"
#include "base/strings.h"

struct hl_graph;

/* What the first word of a block says of its class. */
struct hl_class_word {
	uint64_t word;
	uint32_t type; /* in hl_class_names.names; 0: it is no virtual table's address */
};

/* Initialize the first two members, which must outlive it, and zero the others. */
struct hl_class_names {
	struct hl_graph *graph; /* whose memory is read */
	struct hl_strings *names;
	struct hl_class_word *words;
	size_t count, capacity;
	struct hl_index index;
};

/* The class of a block that begins with ${word}, in classes->names; 0: it is not known. Each word is
 * looked up in the process' memory once. 0 or -ENOMEM. */
int hl_class_names_find(struct hl_class_names *classes, uint64_t word, uint32_t *ret_name);

void hl_class_names_release(struct hl_class_names *classes);
