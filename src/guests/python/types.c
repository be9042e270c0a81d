/* SPDX-License-Identifier: BSD-2-Clause */
/* Types of Python's objects; see types.h. */
#include "guests/python/types.h"

#include "base/array.h"
#include "heap/memory.h"

/* How a type begins (Include/cpython/object.h, struct _typeobject). */
struct type_object {
	uint64_t references, type, size;
	uint64_t name;
	int64_t body_bytes, item_bytes;
	uint64_t functions[15];
	uint64_t flags;
};

/* The first two were not used before the versions that give them a meaning. */
#define FLAG_WEAK_HEAD (UINT64_C(1) << 3) /* 3.12 */
#define FLAG_DICT_HEAD (UINT64_C(1) << 4) /* 3.11 */
#define FLAG_READY     (UINT64_C(1) << 12)
#define FLAG_COLLECTED (UINT64_C(1) << 14)
#define FLAG_TYPE      (UINT64_C(1) << 31) /* its objects are types */

#define BODY_BYTES_MAX (INT64_C(1) << 20)
#define CHAIN_MAX      8u /* types of types */

static bool read_type(struct hl_memory *memory, uint64_t address, struct type_object *ret_type)
{
	const struct hl_map *map = address & 7 ? NULL : hl_maps_find(&memory->maps, address);

	/* Types are written to: their references are counted. Any word may be mistaken for a type's
	 * address. */
	if (!map || !(map->flags & HL_MAP_WRITE) ||
	    hl_memory_read_present(memory, address, ret_type, sizeof(*ret_type)) < 0)
		return false;
	return ret_type->flags & FLAG_READY && (uint32_t)ret_type->references &&
	       ret_type->body_bytes >= 16 && ret_type->body_bytes < BODY_BYTES_MAX &&
	       ret_type->item_bytes >= 0 && ret_type->item_bytes < BODY_BYTES_MAX;
}

/* By byte: the page behind the name may not be there. */
static bool read_name(struct hl_memory *memory, uint64_t address,
		      char ret_name[HL_PYTHON_NAME_BYTES])
{
	for (size_t i = 0; i < HL_PYTHON_NAME_BYTES; i++) {
		if (hl_memory_read(memory, address + i, &ret_name[i], 1) < 0)
			return false;
		if (!ret_name[i])
			return i > 0;
		if ((unsigned char)ret_name[i] <= ' ' || ret_name[i] == 0x7f)
			return false;
	}
	return false;
}

/* Whether the types of ${type} lead to that which is its own. */
static bool is_type_of_types(struct hl_memory *memory, uint64_t address)
{
	struct type_object type;
	char name[HL_PYTHON_NAME_BYTES];

	for (unsigned i = 0; i < CHAIN_MAX; i++) {
		if (!read_type(memory, address, &type) || !(type.flags & FLAG_TYPE))
			return false;
		if (type.type == address)
			return read_name(memory, type.name, name) && strcmp(name, "type") == 0;
		address = type.type;
	}
	return false;
}

static int examine(struct hl_python_types *types, struct hl_python_type *type)
{
	char name[HL_PYTHON_NAME_BYTES];
	struct type_object it;

	if (!read_type(types->memory, type->address, &it) ||
	    !is_type_of_types(types->memory, it.type) || !read_name(types->memory, it.name, name))
		return 0;
	type->head_bytes = (it.flags & FLAG_COLLECTED ? 16 : 0) +
			   (it.flags & (FLAG_WEAK_HEAD | FLAG_DICT_HEAD) ? 16 : 0);
	type->body_bytes = (uint32_t)it.body_bytes;
	return hl_strings_intern(types->names, name, &type->name);
}

static int find_type(struct hl_python_types *types, uint64_t address, uint32_t *ret_type)
{
	uint32_t hash = hl_hash_pair(address, 0), at = hash, id;
	struct hl_python_type type = {.address = address};

	while ((id = hl_index_next(&types->index, hash, &at)))
		if (types->types[id - 1].address == address) {
			*ret_type = id;
			return 0;
		}
	int r = examine(types, &type);
	if (r == 0)
		r = HL_ARRAY_APPEND(types->types, types->count, types->capacity, type);
	if (r == 0)
		r = hl_index_add(&types->index, hash, (uint32_t)types->count);
	*ret_type = (uint32_t)types->count;
	return r;
}

int hl_python_types_find(struct hl_python_types *types, const uint64_t *words, size_t count,
			 uint32_t *ret_type)
{
	int r = 0;

	*ret_type = 0;
	for (uint32_t head = 0; head / 8 + 2 <= count && head <= HL_PYTHON_HEAD_MAX && r == 0;
	     head += 16) {
		const uint64_t *object = words + head / 8;
		uint32_t id;
		/* More than 32 bits count no references of an object in a block. */
		if (!object[0] || object[0] >> 32)
			continue;
		r = find_type(types, object[1], &id);
		const struct hl_python_type *type = r == 0 ? &types->types[id - 1] : NULL;
		if (type && type->name && type->head_bytes == head) {
			*ret_type = id;
			break;
		}
	}
	return r;
}

void hl_python_types_release(struct hl_python_types *types)
{
	hl_index_release(&types->index);
	free(types->types);
	*types = (struct hl_python_types){0};
}
