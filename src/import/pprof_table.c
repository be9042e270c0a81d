/* SPDX-License-Identifier: BSD-2-Clause */
/* An array and an index by id; see pprof_table.h. */
#include "import/pprof_table.h"

#include "base/array.h"

static uint64_t id_of(const void *element)
{
	uint64_t id;

	memcpy(&id, element, sizeof(id));
	return id;
}

void *hl_pprof_table_find(const struct hl_pprof_table *table, uint64_t id)
{
	uint32_t hash = hl_hash_pair(id, 0), at = hash, number;

	while ((number = hl_index_next(&table->index, hash, &at))) {
		void *element = (char *)table->elements + (number - 1) * table->element_bytes;
		if (id_of(element) == id)
			return element;
	}
	return NULL;
}

int hl_pprof_table_add(struct hl_pprof_table *table, const void *element)
{
	uint64_t id = id_of(element);

	if (hl_pprof_table_find(table, id))
		return -EEXIST;
	int r = hl_array_reserve(&table->elements, &table->capacity, table->count + 1,
				 table->element_bytes);
	if (r == 0)
		r = hl_index_add(&table->index, hl_hash_pair(id, 0), (uint32_t)table->count + 1);
	if (r < 0)
		return r;
	memcpy((char *)table->elements + table->count * table->element_bytes, element,
	       table->element_bytes);
	table->count++;
	return 0;
}

void hl_pprof_table_release(struct hl_pprof_table *table)
{
	free(table->elements);
	hl_index_release(&table->index);
	*table = (struct hl_pprof_table){.element_bytes = table->element_bytes};
}
