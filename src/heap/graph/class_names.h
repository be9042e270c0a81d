/* SPDX-License-Identifier: BSD-2-Clause */
/* Classes of C++ by the virtual tables that objects begin with, and types that guests know by words. */
#pragma once

#include "base/index.h"
#include "base/strings.h"
#include "guests/outside.h"

#include <stdbool.h>

struct hl_graph;

#define HL_CLASS_WORDS HL_GUEST_TYPE_WORDS /* of a block, that tell its class */

/* What the first word of a block says of its class. */
struct hl_class_word {
	uint64_t word;
	uint32_t type; /* in hl_class_names.names; 0: it is not a virtual table's address */
};

struct hl_class_names {
	struct hl_graph *graph; /* whose memory is read */
	struct hl_strings *names;
	struct hl_class_word *words;
	size_t count, capacity;
	struct hl_index index;
	void *guest_types[HL_GUESTS_OUTSIDE_MAX]; /* what each keeps, NULL at first */
	bool has_guest_types;			  /* one was found */
};

/* Both must outlive ${ret_classes}. */
void hl_class_names_init(struct hl_class_names *ret_classes, struct hl_graph *graph,
			 struct hl_strings *names);

/* The class of the block at ${block} of ${bytes}, which begins with ${count} ${words}, as far as they were read; in
 * classes->names; 0: it is not known. Each address that may stand for a class is looked up in the process' memory
 * once. 0 or -ENOMEM. */
int hl_class_names_find(struct hl_class_names *classes, uint64_t block, uint64_t bytes,
			const uint64_t *words, size_t count, uint32_t *ret_name);

void hl_class_names_release(struct hl_class_names *classes);
