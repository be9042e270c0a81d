/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of imported stacks; see import_values.h. */
#include "import/import_values.h"

#include "base/array.h"

int hl_import_values_add(struct hl_import_values *values, const struct hl_import_value *value)
{
	return HL_ARRAY_APPEND(values->items, values->count, values->capacity, *value);
}

static void add_value(struct hl_profile *profile, uint32_t node,
		      const struct hl_import_value *value)
{
	const struct hl_profile_counters counters = {
		.alloc_bytes = value->alloc_bytes,
		.alloc_objects = value->alloc_objects,
		.free_bytes = value->free_bytes,
		.free_objects = value->free_objects,
	};
	const struct hl_profile_counters base = {.alloc_bytes = value->base_bytes};

	hl_profile_counters_add(&profile->counters[node], &counters);
	hl_profile_counters_add(&profile->total, &counters);
	if (profile->base) {
		hl_profile_counters_add(&profile->base[node], &base);
		hl_profile_counters_add(&profile->base_total, &base);
	}
}

int hl_import_values_finish(const struct hl_import_values *values, bool has_base,
			    struct hl_builder *builder, struct hl_profile **ret_profile)
{
	struct hl_profile *profile;
	uint32_t *final_ids;

	int r = hl_builder_finish(builder, &final_ids, &profile);
	if (r < 0)
		return r;
	if (has_base) {
		profile->base = calloc(profile->node_count, sizeof(*profile->base));
		if (!profile->base) {
			free(final_ids);
			hl_profile_free(profile);
			return -ENOMEM;
		}
	}
	for (size_t i = 0; i < values->count; i++)
		add_value(profile, final_ids[values->items[i].node], &values->items[i]);
	free(final_ids);
	profile->imported = true;
	profile->complete = true;
	profile->unfiltered_total = profile->total;
	*ret_profile = profile;
	return 0;
}

void hl_import_values_release(struct hl_import_values *values)
{
	free(values->items);
	*values = (struct hl_import_values){0};
}
