/* SPDX-License-Identifier: BSD-2-Clause */
/* Names from a profile, by module and address, and from a log, by node; see builder.h. */
#include "profile/builder.h"

#include "profile/event_reports.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
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

/* ---- names of a log, in arrays by node id ---- */

/* Makes ${array} of ${old} elements one of ${count}, the new ones zero. 0 or -ENOMEM. */
static int grow(void *array, size_t old, size_t count, size_t element_bytes)
{
	void *storage;

	memcpy(&storage, array, sizeof(storage)); /* the pointer's own type is not known here */
	storage = reallocarray(storage, count, element_bytes);
	if (!storage)
		return -ENOMEM;
	memset((char *)storage + old * element_bytes, 0, (count - old) * element_bytes);
	memcpy(array, &storage, sizeof(storage));
	return 0;
}

int hl_history_names_add(struct hl_log_state *names, const struct hl_log_state *state)
{
	size_t nodes = names->node_count, modules = names->module_count;

	if (state->node_count > nodes) {
		if (grow(&names->nodes, nodes, state->node_count, sizeof(*names->nodes)) < 0 ||
		    grow(&names->bytes, nodes, state->node_count, sizeof(*names->bytes)) < 0 ||
		    grow(&names->objects, nodes, state->node_count, sizeof(*names->objects)) < 0)
			return -ENOMEM;
		names->node_count = state->node_count;
	}
	for (size_t i = 1; i < state->node_count; i++)
		if (state->nodes[i].defined)
			names->nodes[i] = state->nodes[i];
	if (state->module_count <= modules)
		return 0;
	if (grow(&names->modules, modules, state->module_count, sizeof(*names->modules)) < 0)
		return -ENOMEM;
	for (size_t i = modules; i < state->module_count; i++) {
		char *path = strdup(state->modules[i].path);
		if (!path)
			return -ENOMEM;
		names->modules[i] = state->modules[i];
		names->modules[i].path = path;
		names->module_count = i + 1;
	}
	return 0;
}

/* ---- a whole log, or kept events ---- */

struct reading {
	struct hl_log_state *names;
	pthread_mutex_t lock;
};

static int end_part(void *context, size_t part, const struct hl_log_state *state)
{
	struct reading *reading = context;

	(void)part;
	pthread_mutex_lock(&reading->lock);
	int r = hl_history_names_add(reading->names, state);
	pthread_mutex_unlock(&reading->lock);
	return r;
}

static int finish(struct reading *reading, int r, struct hl_log_state **ret_names,
		  struct hl_error *err)
{
	if (r < 0) {
		hl_log_state_free(reading->names);
		return hl_error_set(err, r, "cannot name stacks: out of memory");
	}
	*ret_names = reading->names;
	return 0;
}

int hl_history_names_read(const struct hl_log *log, const struct hl_log_options *options,
			  struct hl_log_state **ret_names, struct hl_error *err)
{
	struct reading reading = {calloc(1, sizeof(*reading.names)), PTHREAD_MUTEX_INITIALIZER};
	const struct hl_log_fold fold = {&reading, NULL, NULL, end_part};

	int r = reading.names ? hl_log_read(log, 0, UINT64_MAX, options, &fold, err) : -ENOMEM;
	return finish(&reading, r, ret_names, err);
}

int hl_history_names_read_events(const struct hl_event_log *log, const struct hl_event_range *range,
				 const struct hl_log_options *options,
				 struct hl_log_state **ret_names, struct hl_error *err)
{
	struct reading reading = {calloc(1, sizeof(*reading.names)), PTHREAD_MUTEX_INITIALIZER};
	const struct hl_event_fold fold = {&reading, NULL, NULL, end_part};

	int r = reading.names ? hl_event_log_read_range(log, range, options, &fold, err) : -ENOMEM;
	return finish(&reading, r, ret_names, err);
}

/* ---- fingerprints ---- */

struct hl_file_print hl_history_names_print(const struct hl_recording_process *recorded,
					    size_t index, const struct hl_log_module *module)
{
	const struct hl_recording_module *known =
		index < recorded->module_count ? &recorded->modules[index] : NULL;

	if (!known || known->start != module->start || strcmp(known->path, module->path) != 0)
		return (struct hl_file_print){0};
	return known->print;
}
