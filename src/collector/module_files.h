/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files of a recorded process' modules, held open while it runs: a program in another mount namespace, one that was
 * deleted or replaced meanwhile, and one that runs from a memfd cannot be opened at their path later. What a recording's
 * stacks need of them is copied into the recording.
 */
#pragma once

#include "recording/recording.h"

#include <stdint.h>
#include <sys/types.h>

/* Files that several processes have are open once. Zero-initialize; empty when the last process is freed. */
struct hl_held_files {
	struct hl_held_file *first;
};

/* Those of one process. */
struct hl_module_files;

/* ${held} must outlive it. NULL when out of memory. */
struct hl_module_files *hl_module_files_new(struct hl_held_files *held);

/*
 * Opens the files of what ${pid} has mapped with code since the last look. To be called as it begins, and when ${module_count}, of
 * modules that its recorder has registered, has changed: else nothing is done. What cannot be opened is left out.
 */
void hl_module_files_look(struct hl_module_files *files, pid_t pid, uint32_t module_count);

/*
 * Copies the files of modules that nodes of ${process}, from the one with id ${first_node} + 1 on, lie in, or nodes of an earlier call, into the directory, if they are not at
 * their path any more, or as this process sees it. Completes the fingerprints of modules whose file the recorder could not open. A
 * file that cannot be copied is left out.
 */
void hl_module_files_keep(struct hl_module_files *files, struct hl_recording_process *process,
			  uint32_t first_node, int directory_fd);

void hl_module_files_free(struct hl_module_files *files); /* NULL is fine */
