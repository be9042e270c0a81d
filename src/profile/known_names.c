/* SPDX-License-Identifier: BSD-2-Clause */
/* An index of a profile's frames by module and address; see known_names.h. */
#include "profile/known_names.h"

#include <errno.h>
#include <string.h>

static const struct hl_profile_module *module_of(const struct hl_profile *profile, uint32_t frame)
{
	return &profile->modules[profile->functions[profile->frames[frame].function].module];
}

static uint32_t hash_of(const char *path, const struct hl_profile_module *module, uint64_t address)
{
	return hl_hash_pair(hl_hash_pair(address, hl_hash_bytes(path, strlen(path))),
			    hl_hash_bytes(module->build_id, module->build_id_bytes));
}

int hl_known_names_init(struct hl_known_names *names, const struct hl_profile *profile)
{
	int r = 0;

	*names = (struct hl_known_names){.profile = profile};
	for (uint32_t i = 1; r == 0 && i < profile->frame_count; i++) {
		const struct hl_profile_module *module = module_of(profile, i);
		if (module != profile->modules && !profile->frames[i].inlined)
			r = hl_index_add(&names->places,
					 hash_of(hl_profile_text(profile, module->path), module,
						 profile->frames[i].address),
					 i);
	}
	return r;
}

void hl_known_names_release(struct hl_known_names *names)
{
	hl_index_release(&names->places);
}

uint32_t hl_known_names_find(const struct hl_known_names *names,
			     const struct hl_profile_module *module, const char *path,
			     uint64_t address, uint32_t *ret_first)
{
	const struct hl_profile *profile = names->profile;
	uint32_t hash = hash_of(path, module, address), at = hash, frame;

	while ((frame = hl_index_next(&names->places, hash, &at))) {
		const struct hl_profile_module *known = module_of(profile, frame);
		if (profile->frames[frame].address != address ||
		    known->build_id_bytes != module->build_id_bytes ||
		    memcmp(known->build_id, module->build_id, known->build_id_bytes) != 0 ||
		    !hl_file_print_is_same(&known->print, &module->print) ||
		    strcmp(hl_profile_text(profile, known->path), path) != 0)
			continue;
		/* Frames of one address follow each other, the outermost first. */
		uint32_t end = frame + 1;
		while (end < profile->frame_count && profile->frames[end].inlined &&
		       profile->frames[end].address == address && module_of(profile, end) == known)
			end++;
		*ret_first = frame;
		return end - frame;
	}
	return 0;
}
