/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints the stacks of the first process in a recording as walk_trace does: how many blocks were
 * allocated there, and the lookup pcs, outermost first, as FILE+ADDRESS, without frames of scripts.
 *
 *	recorded_stacks RECORDING
 */
#include "base/frame_key.h"
#include "recording/recording.h"

#include <stdio.h>

static void print_stack(const struct hl_recording_process *process, uint32_t node)
{
	uint64_t frame = process->nodes[node - 1].frame, pc = frame & HL_FRAME_PC_MASK;
	uint64_t id = frame >> HL_MODULE_SHIFT;
	uint32_t site;

	if (process->nodes[node - 1].parent)
		print_stack(process, process->nodes[node - 1].parent);
	if (hl_frame_key_is_site(frame, &site) || hl_frame_key_is_path(frame, &site))
		return;
	if (id == HL_MODULE_NONE || id == HL_MODULE_SCRIPT) {
		printf(" ?+%#lx", pc);
		return;
	}
	const struct hl_recording_module *module = &process->modules[id - 1];
	printf(" %s+%#lx", module->path, pc - module->load_bias);
}

int main(int argc, char **argv)
{
	struct hl_error err = {{0}};
	struct hl_recording *recording;

	if (argc != 2 || hl_recording_open(argv[1], &recording, &err) < 0) {
		fprintf(stderr, "recorded_stacks: %s\n", err.text);
		return 1;
	}
	const struct hl_recording_process *process = &recording->processes[0];
	for (uint32_t i = 0; i < process->value_count; i++) {
		if (!process->values[i].alloc_objects)
			continue;
		printf("%lu", process->values[i].alloc_objects);
		print_stack(process, process->values[i].node);
		putchar('\n');
	}
	hl_recording_free(recording);
	return 0;
}
