/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads Go's table of functions; see go_functions.h. */
#include "base/go_functions.h"

#include "base/compiler.h"

#include <string.h>

#define MAGIC_1_18 UINT32_C(0xfffffff0)
#define MAGIC_1_20 UINT32_C(0xfffffff1)

/* The header's words of 8 bytes, which begin at HEADER_WORDS_AT. */
#define HEADER_WORDS_AT 8u
enum header_word {
	WORD_FUNCTIONS,
	WORD_FILES,
	WORD_TEXT,
	WORD_NAMES,
	WORD_UNITS,
	WORD_FILE_NAMES,
	WORD_PC_TABLES,
	WORD_ENTRIES,
	WORDS,
};

/* An entry: offset of the function from text, and of what is said of it from the first entry; there
 * the offset of the name comes second. After the last entry stands where the last function ends. */
#define ENTRY_BYTES 8u
#define NAME_AT	    4u

static uint64_t read_number(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	memcpy(&value, at, bytes);
	return value;
}

bool hl_go_functions_open(const uint8_t *bytes, size_t size, struct hl_go_functions *ret_functions)
{
	uint64_t words[WORDS];

	if (!bytes || size < HEADER_WORDS_AT + sizeof(words))
		return false;
	uint64_t magic = read_number(bytes, 4);
	if ((magic != MAGIC_1_18 && magic != MAGIC_1_20) || bytes[7] != sizeof(uint64_t))
		return false;
	memcpy(words, bytes + HEADER_WORDS_AT, sizeof(words));
	if (!words[WORD_TEXT] || words[WORD_NAMES] >= size || words[WORD_ENTRIES] >= size ||
	    words[WORD_FUNCTIONS] >= (size - words[WORD_ENTRIES]) / ENTRY_BYTES)
		return false;
	*ret_functions = (struct hl_go_functions){
		.bytes = bytes,
		.size = size,
		.count = (uint32_t)words[WORD_FUNCTIONS],
		.text = words[WORD_TEXT],
		.names = words[WORD_NAMES],
		.entries = words[WORD_ENTRIES],
	};
	return true;
}

static uint64_t start_of(const struct hl_go_functions *functions, size_t index)
{
	const uint8_t *entry = functions->bytes + functions->entries + index * ENTRY_BYTES;

	return functions->text + read_number(entry, 4);
}

static const char *name_of(const struct hl_go_functions *functions, size_t index)
{
	const uint8_t *entry = functions->bytes + functions->entries + index * ENTRY_BYTES;
	uint64_t about = functions->entries + read_number(entry + 4, 4);

	if (about + NAME_AT + 4 > functions->size)
		return NULL;
	uint64_t name = functions->names + read_number(functions->bytes + about + NAME_AT, 4);
	for (uint64_t at = name; at < functions->size; at++)
		if (!functions->bytes[at])
			return (const char *)functions->bytes + name;
	return NULL;
}

bool hl_go_functions_get(const struct hl_go_functions *functions, size_t index,
			 struct hl_go_function *ret_function)
{
	struct hl_go_function function = {
		.start = start_of(functions, index),
		.end = start_of(functions, index + 1),
		.name = name_of(functions, index),
	};

	if (function.end <= function.start)
		return false;
	*ret_function = function;
	return true;
}

bool hl_go_functions_find(const struct hl_go_functions *functions, uint64_t address,
			  struct hl_go_function *ret_function)
{
	size_t after = HL_LOWER_BOUND(i, functions->count, start_of(functions, i) <= address);

	return after && hl_go_functions_get(functions, after - 1, ret_function) &&
	       address - ret_function->start < ret_function->end - ret_function->start;
}
