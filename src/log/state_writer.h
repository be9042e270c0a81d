/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a log writes of states: the definitions of nodes and modules before they are used, and
 * checkpoints. Segments and event files have both in common. Each checkpoint begins a new round of
 * definitions, so that reading can begin there.
 */
#pragma once

#include "log/byte_buffer.h"
#include "log/interval.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the writer learns of nodes and modules; implemented over the region by the collector. */
struct hl_log_names {
	/* The node's frame key and parent (0: the root); false when there is no such node. */
	bool (*node)(const struct hl_log_names *names, uint32_t node, uint64_t *ret_frame,
		     uint32_t *ret_parent);
	uint32_t (*module_count)(const struct hl_log_names *names);
	/* Module number 1 .. module_count(); texts are valid until the next call. */
	bool (*module)(const struct hl_log_names *names, uint32_t module,
		       struct hl_log_module *ret_module);
};

/* What a node holds. */
struct hl_state_node {
	int64_t bytes, objects;
	uint32_t defined_in; /* round of definitions */
};

/* What a node stands for. */
struct hl_state_definition {
	uint64_t frame;
	uint32_t node, parent;
};

/* Set names and zero the rest; release in any case. */
struct hl_state_writer {
	const struct hl_log_names *names;
	struct hl_state_node *nodes; /* the owner keeps bytes and objects */
	size_t node_capacity;
	uint32_t node_count;			 /* largest id + 1 */
	uint32_t module_count;			 /* that were written since the last checkpoint */
	uint32_t round;				 /* of definitions */
	struct hl_state_definition *definitions; /* to be written */
	size_t definition_count, definition_capacity;
};

/* Makes nodes[${node}]. 0 or -ENOMEM. */
int hl_state_writer_reserve(struct hl_state_writer *writer, uint32_t node);

/* Defines the node and its ancestors, unless that has been done since the last checkpoint: the next
 * hl_state_writer_put_names() writes it. 0 or -ENOMEM. */
int hl_state_writer_define(struct hl_state_writer *writer, uint32_t node);

/* Writes modules and nodes that are new since the last piece. Want of memory fails the buffer. */
void hl_state_writer_put_names(struct hl_state_writer *writer, struct hl_byte_buffer *buffer);

/* Writes the whole state before interval ${next}, of which ${missing} ones (or, in event files,
 * events) before are missing. 0 or -ENOMEM. */
int hl_state_writer_put_checkpoint(struct hl_state_writer *writer, struct hl_byte_buffer *buffer,
				   uint64_t next, uint64_t missing);

void hl_state_writer_release(struct hl_state_writer *writer);
