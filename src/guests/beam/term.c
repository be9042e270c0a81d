/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads Erlang's external term format; see connection.h. The format: erts, "External Term Format". */
#include "guests/beam/connection.h"

#include "base/compiler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The first byte of a term. */
enum tag {
	TAG_NEW_FLOAT = 70,
	TAG_BIT_BINARY = 77,
	TAG_NEW_PID = 88,
	TAG_NEW_PORT = 89,
	TAG_NEWER_REFERENCE = 90,
	TAG_SMALL_INTEGER = 97,
	TAG_INTEGER = 98,
	TAG_FLOAT = 99,
	TAG_ATOM = 100, /* Latin-1 */
	TAG_REFERENCE = 101,
	TAG_PORT = 102,
	TAG_PID = 103,
	TAG_SMALL_TUPLE = 104,
	TAG_LARGE_TUPLE = 105,
	TAG_NIL = 106,
	TAG_STRING = 107,
	TAG_LIST = 108,
	TAG_BINARY = 109,
	TAG_SMALL_BIG = 110,
	TAG_LARGE_BIG = 111,
	TAG_NEW_FUN = 112,
	TAG_EXPORT = 113,
	TAG_NEW_REFERENCE = 114,
	TAG_SMALL_ATOM = 115, /* Latin-1 */
	TAG_MAP = 116,
	TAG_ATOM_UTF8 = 118,
	TAG_SMALL_ATOM_UTF8 = 119,
	TAG_V4_PORT = 120,
	TAG_VERSION = 131, /* before a whole term */
};

static size_t bytes_left(const struct hl_term *term)
{
	return (size_t)(term->end - term->at);
}

/* Takes ${size} bytes. */
static int take(struct hl_term *term, size_t size, const uint8_t **ret_bytes)
{
	if (size > bytes_left(term))
		return -EBADMSG;
	*ret_bytes = term->at;
	term->at += size;
	return 0;
}

/* Takes a big-endian number of ${size} bytes. */
static int take_number(struct hl_term *term, size_t size, uint64_t *ret_number)
{
	const uint8_t *bytes;
	uint64_t number = 0;

	if (take(term, size, &bytes) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < size; i++)
		number = number << 8 | bytes[i];
	*ret_number = number;
	return 0;
}

static int take_tag(struct hl_term *term, enum tag *ret_tag)
{
	if (term->at == term->end)
		return -EBADMSG;
	*ret_tag = (enum tag) * term->at++;
	return 0;
}

/* ---- heads ---- */

/*
 * Takes the head of a term that is tagged ${tag} and has a count of ${count_size} bytes. Each
 * element takes at least a byte, so a count larger than the rest is wrong.
 */
static int take_head(struct hl_term *term, enum tag tag, size_t count_size, uint32_t *ret_count)
{
	struct hl_term at = *term;
	enum tag found;
	uint64_t count;

	if (take_tag(&at, &found) < 0 || found != tag || take_number(&at, count_size, &count) < 0 ||
	    count > bytes_left(&at))
		return -EBADMSG;
	*ret_count = (uint32_t)count;
	*term = at;
	return 0;
}

int hl_term_begin(struct hl_term *term, const void *bytes, size_t size)
{
	const uint8_t *first = bytes;

	if (size == 0 || first[0] != TAG_VERSION)
		return -EBADMSG;
	*term = (struct hl_term){first + 1, first + size};
	return 0;
}

int hl_term_tuple(struct hl_term *term, uint32_t *ret_arity)
{
	if (take_head(term, TAG_SMALL_TUPLE, 1, ret_arity) == 0)
		return 0;
	return take_head(term, TAG_LARGE_TUPLE, 4, ret_arity);
}

int hl_term_tuple_of(struct hl_term *term, uint32_t arity)
{
	struct hl_term at = *term;
	uint32_t found;

	if (hl_term_tuple(&at, &found) < 0 || found != arity)
		return -EBADMSG;
	*term = at;
	return 0;
}

int hl_term_list(struct hl_term *term, uint32_t *ret_count)
{
	if (take_head(term, TAG_NIL, 0, ret_count) == 0)
		return 0;
	return take_head(term, TAG_LIST, 4, ret_count);
}

int hl_term_list_end(struct hl_term *term, uint32_t count)
{
	uint32_t none;

	return count ? take_head(term, TAG_NIL, 0, &none) : 0;
}

int hl_term_map(struct hl_term *term, uint32_t *ret_pairs)
{
	return take_head(term, TAG_MAP, 4, ret_pairs);
}

/* ---- numbers ---- */

/* Takes a little-endian bignum. */
static int take_big(struct hl_term *term, uint64_t *ret_number)
{
	uint64_t size, sign, number = 0;
	const uint8_t *digits;

	if (take_number(term, 1, &size) < 0 || size > sizeof(number) ||
	    take_number(term, 1, &sign) < 0 || sign || take(term, size, &digits) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < size; i++)
		number |= (uint64_t)digits[i] << 8 * i;
	*ret_number = number;
	return 0;
}

int hl_term_unsigned(struct hl_term *term, uint64_t *ret_number)
{
	struct hl_term at = *term;
	enum tag tag;
	uint64_t number;
	int r = take_tag(&at, &tag);

	if (r == 0 && tag == TAG_SMALL_INTEGER)
		r = take_number(&at, 1, &number);
	else if (r == 0 && tag == TAG_INTEGER)
		r = take_number(&at, 4, &number);
	else if (r == 0)
		r = tag == TAG_SMALL_BIG ? take_big(&at, &number) : -EBADMSG;
	if (r < 0 || (tag == TAG_INTEGER && number > INT32_MAX)) /* a negative one */
		return -EBADMSG;
	*ret_number = number;
	*term = at;
	return 0;
}

/* ---- texts ---- */

struct atom {
	const uint8_t *bytes;
	size_t size;
	bool is_latin1;
};

static int take_atom(struct hl_term *term, struct atom *ret_atom)
{
	struct hl_term at = *term;
	struct atom atom = {0};
	enum tag tag;
	uint64_t size;

	if (take_tag(&at, &tag) < 0)
		return -EBADMSG;
	bool is_small = tag == TAG_SMALL_ATOM || tag == TAG_SMALL_ATOM_UTF8;
	if (!is_small && tag != TAG_ATOM && tag != TAG_ATOM_UTF8)
		return -EBADMSG;
	if (take_number(&at, is_small ? 1 : 2, &size) < 0 || take(&at, size, &atom.bytes) < 0)
		return -EBADMSG;
	atom.size = size;
	atom.is_latin1 = tag == TAG_ATOM || tag == TAG_SMALL_ATOM;
	*ret_atom = atom;
	*term = at;
	return 0;
}

/* Latin-1 as UTF-8. */
static void write_latin1(const uint8_t *bytes, size_t count, char *text, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < count && used + 2 < size; i++) {
		if (bytes[i] >= 0x80)
			text[used++] = (char)(0xc0 | bytes[i] >> 6);
		text[used++] = (char)(bytes[i] < 0x80 ? bytes[i] : 0x80 | (bytes[i] & 0x3f));
	}
	text[used] = '\0';
}

int hl_term_atom(struct hl_term *term, char *ret_text, size_t size)
{
	struct atom atom;

	if (take_atom(term, &atom) < 0)
		return -EBADMSG;
	if (atom.is_latin1) {
		write_latin1(atom.bytes, atom.size, ret_text, size);
		return 0;
	}
	size_t count = atom.size;
	if (count > size - 1)
		for (count = size - 1; count && (atom.bytes[count] & 0xc0) == 0x80;)
			count--;
	memcpy(ret_text, atom.bytes, count);
	ret_text[count] = '\0';
	return 0;
}

int hl_term_this_atom(struct hl_term *term, const char *text)
{
	struct hl_term at = *term;
	struct atom atom;

	if (take_atom(&at, &atom) < 0 || atom.size != strlen(text) ||
	    memcmp(atom.bytes, text, atom.size) != 0)
		return -EBADMSG;
	*term = at;
	return 0;
}

int hl_term_boolean(struct hl_term *term, bool *ret_truth)
{
	bool is_true = hl_term_this_atom(term, "true") == 0;

	if (!is_true && hl_term_this_atom(term, "false") < 0)
		return -EBADMSG;
	*ret_truth = is_true;
	return 0;
}

int hl_term_string(struct hl_term *term, char *ret_text, size_t size)
{
	uint32_t count = 0;

	if (take_head(term, TAG_NIL, 0, &count) < 0 && take_head(term, TAG_STRING, 2, &count) < 0 &&
	    take_head(term, TAG_BINARY, 4, &count) < 0)
		return -EBADMSG;
	write_latin1(term->at, count, ret_text, size);
	term->at += count;
	return 0;
}

/* ---- any terms ---- */

/*
 * What follows the tag of each kind of term: a number of ${count_size} bytes, counting terms or
 * bytes; the name of a node; then bytes, then terms.
 */
struct layout {
	uint8_t tag, count_size;
	bool has_node;
	uint8_t bytes, bytes_each; /* fixed, and more for each counted element */
	uint8_t terms, terms_each;
};

static const struct layout layouts[] = {
	{.tag = TAG_SMALL_INTEGER, .bytes = 1},
	{.tag = TAG_INTEGER, .bytes = 4},
	{.tag = TAG_FLOAT, .bytes = 31},
	{.tag = TAG_NEW_FLOAT, .bytes = 8},
	{.tag = TAG_SMALL_BIG, .count_size = 1, .bytes = 1, .bytes_each = 1},
	{.tag = TAG_LARGE_BIG, .count_size = 4, .bytes = 1, .bytes_each = 1},
	{.tag = TAG_ATOM, .count_size = 2, .bytes_each = 1},
	{.tag = TAG_ATOM_UTF8, .count_size = 2, .bytes_each = 1},
	{.tag = TAG_SMALL_ATOM, .count_size = 1, .bytes_each = 1},
	{.tag = TAG_SMALL_ATOM_UTF8, .count_size = 1, .bytes_each = 1},
	{.tag = TAG_STRING, .count_size = 2, .bytes_each = 1},
	{.tag = TAG_BINARY, .count_size = 4, .bytes_each = 1},
	{.tag = TAG_BIT_BINARY, .count_size = 4, .bytes = 1, .bytes_each = 1},
	{.tag = TAG_NIL},
	{.tag = TAG_LIST, .count_size = 4, .terms = 1, .terms_each = 1},
	{.tag = TAG_SMALL_TUPLE, .count_size = 1, .terms_each = 1},
	{.tag = TAG_LARGE_TUPLE, .count_size = 4, .terms_each = 1},
	{.tag = TAG_MAP, .count_size = 4, .terms_each = 2},
	{.tag = TAG_EXPORT, .terms = 3},
	{.tag = TAG_PID, .has_node = true, .bytes = 9},
	{.tag = TAG_NEW_PID, .has_node = true, .bytes = 12},
	{.tag = TAG_PORT, .has_node = true, .bytes = 5},
	{.tag = TAG_NEW_PORT, .has_node = true, .bytes = 8},
	{.tag = TAG_V4_PORT, .has_node = true, .bytes = 12},
	{.tag = TAG_REFERENCE, .has_node = true, .bytes = 5},
	{.tag = TAG_NEW_REFERENCE, .count_size = 2, .has_node = true, .bytes = 1, .bytes_each = 4},
	{.tag = TAG_NEWER_REFERENCE,
	 .count_size = 2,
	 .has_node = true,
	 .bytes = 4,
	 .bytes_each = 4},
};

/* Skips a term but not what it contains, which ${ret_terms} counts. */
static int skip_head(struct hl_term *term, uint64_t *ret_terms)
{
	const struct layout *layout = layouts;
	struct atom node;
	const uint8_t *body;
	enum tag tag;
	uint64_t count = 0;

	*ret_terms = 0;
	if (take_tag(term, &tag) < 0)
		return -EBADMSG;
	/* The size of a function stands before it, and counts itself. */
	if (tag == TAG_NEW_FUN)
		return take_number(term, 4, &count) < 0 || count < 4 ? -EBADMSG
								     : take(term, count - 4, &body);
	while (layout < layouts + HL_COUNT_OF(layouts) && layout->tag != tag)
		layout++;
	if (layout == layouts + HL_COUNT_OF(layouts) ||
	    take_number(term, layout->count_size, &count) < 0 ||
	    (layout->has_node && take_atom(term, &node) < 0))
		return -EBADMSG;
	*ret_terms = layout->terms + layout->terms_each * count;
	return take(term, layout->bytes + layout->bytes_each * count, &body);
}

/* Each term takes a byte at least, so this ends, however many a head promises. */
int hl_term_skip(struct hl_term *term)
{
	struct hl_term at = *term;

	for (uint64_t left = 1; left; left--) {
		uint64_t terms;
		if (skip_head(&at, &terms) < 0 || terms > bytes_left(&at))
			return -EBADMSG;
		left += terms;
	}
	*term = at;
	return 0;
}

/* ---- origins ---- */

/* {Module, Function, Arity} */
static int take_function(struct hl_term *term, char *text, size_t size)
{
	struct hl_term at = *term;
	char module[HL_TERM_ATOM_MAX], function[HL_TERM_ATOM_MAX];
	uint64_t arity;

	if (hl_term_tuple_of(&at, 3) < 0 || hl_term_atom(&at, module, sizeof(module)) < 0 ||
	    hl_term_atom(&at, function, sizeof(function)) < 0 || hl_term_unsigned(&at, &arity) < 0)
		return -EBADMSG;
	snprintf(text, size, "%s:%s/%" PRIu64, module, function, arity);
	*term = at;
	return 0;
}

/* Written as the node itself does, which calls itself node 0. */
static int take_process(struct hl_term *term, char *text, size_t size)
{
	struct hl_term at = *term, after = *term;
	struct atom node;
	enum tag tag;
	uint64_t number, serial;

	if (take_tag(&at, &tag) < 0 || (tag != TAG_PID && tag != TAG_NEW_PID) ||
	    take_atom(&at, &node) < 0 || take_number(&at, 4, &number) < 0 ||
	    take_number(&at, 4, &serial) < 0 || hl_term_skip(&after) < 0)
		return -EBADMSG;
	snprintf(text, size, "<0.%" PRIu64 ".%" PRIu64 ">", number, serial);
	*term = after;
	return 0;
}

static int take_port(struct hl_term *term, char *text, size_t size)
{
	struct hl_term at = *term, after = *term;
	struct atom node;
	enum tag tag;
	uint64_t number;

	if (take_tag(&at, &tag) < 0 ||
	    (tag != TAG_PORT && tag != TAG_NEW_PORT && tag != TAG_V4_PORT) ||
	    take_atom(&at, &node) < 0 ||
	    take_number(&at, tag == TAG_V4_PORT ? 8 : 4, &number) < 0 || hl_term_skip(&after) < 0)
		return -EBADMSG;
	snprintf(text, size, "#Port<0.%" PRIu64 ">", number);
	*term = after;
	return 0;
}

int hl_term_origin(struct hl_term *term, char *ret_text, size_t size)
{
	if (hl_term_atom(term, ret_text, size) == 0 || take_function(term, ret_text, size) == 0 ||
	    take_process(term, ret_text, size) == 0 || take_port(term, ret_text, size) == 0)
		return 0;
	if (hl_term_skip(term) < 0)
		return -EBADMSG;
	snprintf(ret_text, size, "?");
	return 0;
}
