/* SPDX-License-Identifier: BSD-2-Clause */
/* Arrays by node id, as large as the largest; see history_names.h. */
#include "profile/history_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static int add_nodes(struct hl_log_state *names, const struct hl_log_state *state)
{
	size_t old = names->node_count, count = state->node_count;

	if (count > old) {
		if (grow(&names->nodes, old, count, sizeof(*names->nodes)) < 0 ||
		    grow(&names->bytes, old, count, sizeof(*names->bytes)) < 0 ||
		    grow(&names->objects, old, count, sizeof(*names->objects)) < 0)
			return -ENOMEM;
		names->node_count = count;
	}
	for (size_t i = 1; i < count; i++)
		if (state->nodes[i].defined)
			names->nodes[i] = state->nodes[i];
	return 0;
}

static int add_modules(struct hl_log_state *names, const struct hl_log_state *state)
{
	size_t old = names->module_count;

	if (state->module_count <= old)
		return 0;
	if (grow(&names->modules, old, state->module_count, sizeof(*names->modules)) < 0)
		return -ENOMEM;
	for (size_t i = old; i < state->module_count; i++) {
		char *path = strdup(state->modules[i].path);
		if (!path)
			return -ENOMEM;
		names->modules[i] = state->modules[i];
		names->modules[i].path = path;
		names->module_count = i + 1;
	}
	return 0;
}

int hl_history_names_add(struct hl_log_state *names, const struct hl_log_state *state)
{
	int r = add_nodes(names, state);
	return r < 0 ? r : add_modules(names, state);
}
