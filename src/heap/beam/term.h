/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads Erlang's external term format, as other nodes send it. What arrives may be anything: no
 * read goes beyond the end, and nothing takes longer than the bytes are many. (libei's own decoders
 * do not know where a buffer ends.)
 *
 * All functions return 0, or -EBADMSG when the next term is of another kind or cut off; then they
 * leave ${term} and what they would return as they were.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is left of an encoded term. A copy remembers a place. */
struct hl_term {
	const uint8_t *at, *end;
};

#define HL_TERM_ATOM_MAX 1024 /* room for the text of any atom: 255 letters, and what ends it */

/* Begins a term of ${size} ${bytes} with the version in front of it. */
int hl_term_begin(struct hl_term *term, const void *bytes, size_t size);

/* The head of a tuple; its elements follow. */
int hl_term_tuple(struct hl_term *term, uint32_t *ret_arity);

/* The head of a tuple that has ${arity} elements. */
int hl_term_tuple_of(struct hl_term *term, uint32_t arity);

/* The head of a list. Its elements follow, and then what hl_term_list_end() takes. */
int hl_term_list(struct hl_term *term, uint32_t *ret_count);

/* The end of a list that had ${count} elements, which must be a proper one. */
int hl_term_list_end(struct hl_term *term, uint32_t count);

/* The head of a map; keys and values follow by turns. */
int hl_term_map(struct hl_term *term, uint32_t *ret_pairs);

/* An integer from 0 to UINT64_MAX. */
int hl_term_unsigned(struct hl_term *term, uint64_t *ret_number);

/* An atom as UTF-8, cut off between letters where ${size} ends. */
int hl_term_atom(struct hl_term *term, char *ret_text, size_t size);

/* The atom ${text} and no other. */
int hl_term_this_atom(struct hl_term *term, const char *text);

int hl_term_boolean(struct hl_term *term, bool *ret_truth);

/* A list of characters below 256, or a binary, cut off where ${size} ends. */
int hl_term_string(struct hl_term *term, char *ret_text, size_t size);

/*
 * What an allocation can come from, as Erlang's shell writes it: an atom, a function (`m:f/1`), a
 * process (`<0.81.0>`) or a port (`#Port<0.5>`); of anything else "?".
 */
int hl_term_origin(struct hl_term *term, char *ret_text, size_t size);

/* Any term, to go on after it. */
int hl_term_skip(struct hl_term *term);
