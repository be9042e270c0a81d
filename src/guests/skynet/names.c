/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads names of skynet's services; see live_services.h. */
#include "guests/skynet/live_services.h"
#include "heap/owners/owner_table.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define VARIABLE     "SERVICE_NAME"
#define LUA_LAUNCHER "snlua"

/* Types of Lua's objects, and the bit that values have which refer to such. */
#define TYPE_TABLE   5u
#define SHORT_STRING 0x44u
#define TABLE_VALUE  0x45u

/* Offsets that 5.4 and 5.5 share, and of what differs each one's. */
#define OBJECT_TYPE	8u
#define STATE_GLOBAL	24u
#define TABLE_NODES_LOG 11u
#define TABLE_ARRAY	16u
#define TABLE_NODES	24u
#define STRING_LENGTH	11u
static const uint32_t text_offsets[] = {24,
					32}; /* of a short string; the latter with an identifier */

#define GLOBAL_WORDS  32u /* of global_State, among which the registry is */
#define NODES_LOG_MAX 12u /* a table of global variables is smaller */

struct node {
	uint64_t value;
	uint8_t type, key_type;
	int32_t next;
	uint64_t key;
};

static bool read_word(pid_t pid, uint64_t address, uint64_t *ret_word)
{
	return hl_owners_read_memory(pid, address, ret_word, sizeof(*ret_word)) == 0;
}

static bool is_table(pid_t pid, uint64_t object)
{
	uint8_t type;

	return hl_owners_read_memory(pid, object + OBJECT_TYPE, &type, 1) == 0 &&
	       type == TYPE_TABLE;
}

/* A name becomes part of a line. */
static void keep_name(const char *text, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	size_t length = 0;

	for (; *text && length + 1 < HL_GUEST_SERVICE_NAME_MAX; text++)
		ret_name[length++] = (unsigned char)*text < ' ' || *text == ';' ? '?' : *text;
	ret_name[length] = '\0';
}

/* The short string at ${object}, whose text is at ${offset} there. */
static bool read_string(pid_t pid, uint64_t object, uint32_t offset, char text[64])
{
	uint8_t bytes[32 +
		      41]; /* which is as long as short strings get, with the byte at their end */

	if (hl_owners_read_memory(pid, object, bytes, offset + STRING_LENGTH) < 0)
		return false;
	uint8_t length = bytes[STRING_LENGTH];
	if (length > 40 || hl_owners_read_memory(pid, object, bytes, offset + length + 1u) < 0 ||
	    bytes[offset + length] || memchr(bytes + offset, 0, length))
		return false;
	memcpy(text, bytes + offset, length + 1u);
	return true;
}

/* The variable's value in ${node}, if that has it. */
static bool read_variable(pid_t pid, const struct node *node,
			  char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	char text[64];

	for (size_t i = 0; i < sizeof(text_offsets) / sizeof(*text_offsets); i++)
		if (read_string(pid, node->key, text_offsets[i], text) && !strcmp(text, VARIABLE) &&
		    read_string(pid, node->value, text_offsets[i], text)) {
			keep_name(text, ret_name);
			return true;
		}
	return false;
}

static bool find_variable(pid_t pid, uint64_t table, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	struct node nodes[64];
	uint64_t at;
	uint8_t log;

	if (!is_table(pid, table) ||
	    hl_owners_read_memory(pid, table + TABLE_NODES_LOG, &log, 1) < 0 ||
	    log > NODES_LOG_MAX || !read_word(pid, table + TABLE_NODES, &at))
		return false;
	for (uint32_t left = 1u << log, count; left; left -= count, at += count * sizeof(*nodes)) {
		count = left < sizeof(nodes) / sizeof(*nodes) ? left
							      : sizeof(nodes) / sizeof(*nodes);
		if (hl_owners_read_memory(pid, at, nodes, count * sizeof(*nodes)) < 0)
			return false;
		for (uint32_t i = 0; i < count; i++)
			if (nodes[i].type == SHORT_STRING && nodes[i].key_type == SHORT_STRING &&
			    read_variable(pid, &nodes[i], ret_name))
				return true;
	}
	return false;
}

/*
 * The second value of the array of the ${registry} is the table of global variables: 5.4 has values of two words from
 * the array's address on, 5.5 the words of values below it.
 */
static bool find_in_registry(pid_t pid, uint64_t registry, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	uint64_t array, table;

	if (!read_word(pid, registry + TABLE_ARRAY, &array))
		return false;
	return (read_word(pid, array + 2 * sizeof(table), &table) &&
		find_variable(pid, table, ret_name)) ||
	       (read_word(pid, array - 2 * sizeof(table), &table) &&
		find_variable(pid, table, ret_name));
}

static bool find_in_state(pid_t pid, uint64_t state, char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	uint64_t global, words[GLOBAL_WORDS];

	if (!read_word(pid, state + STATE_GLOBAL, &global) ||
	    hl_owners_read_memory(pid, global, words, sizeof(words)) < 0)
		return false;
	for (size_t i = 0; i + 1 < GLOBAL_WORDS; i++)
		if ((words[i + 1] & 0xff) == TABLE_VALUE && is_table(pid, words[i]) &&
		    find_in_registry(pid, words[i], ret_name))
			return true;
	return false;
}

void hl_skynet_name_read(pid_t pid, uint64_t context, uint64_t instance, uint64_t module,
			 char ret_name[HL_GUEST_SERVICE_NAME_MAX])
{
	char kind[HL_GUEST_SERVICE_NAME_MAX];
	uint64_t text, lua[2]; /* struct snlua: the state, and whose it is */

	ret_name[0] = '\0';
	if (!read_word(pid, module, &text) ||
	    hl_owners_read_memory(pid, text, kind, sizeof(kind)) < 0 ||
	    !memchr(kind, 0, sizeof(kind)))
		return;
	if (strcmp(kind, LUA_LAUNCHER) != 0)
		keep_name(kind, ret_name);
	else if (hl_owners_read_memory(pid, instance, lua, sizeof(lua)) == 0 && lua[1] == context)
		find_in_state(pid, lua[0], ret_name);
}
