/* SPDX-License-Identifier: BSD-2-Clause */
/* Names addresses of a running process: which library, which function. */
#pragma once

#include "base/error.h"
#include "process/maps.h"
#include "recording/recording.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_owner_names;

/* 0; -ESRCH, -EACCES, -ENOMEM with a sentence. */
int hl_owner_names_new(pid_t pid, struct hl_owner_names **ret_names, struct hl_error *err);

/* What is mapped, as it was when the names were made. */
const struct hl_maps *hl_owner_names_maps(const struct hl_owner_names *names);

/* Whether code is mapped at ${address}. */
bool hl_owner_names_is_code(const struct hl_owner_names *names, uint64_t address);

/* The one address of mapped code whose lower 32 bits are ${low}; 0 when there is none, or several.
 */
uint64_t hl_owner_names_whole(const struct hl_owner_names *names, uint32_t low);

/* Names the code at ${address}: the file it lies in, and the function. Texts are valid until the
 * names are freed. 0 or -ENOMEM. */
int hl_owner_names_find(struct hl_owner_names *names, uint64_t address, const char **ret_file,
			const char **ret_function);

/* The same by an address in the file ${path} of ${module}, wherever it is mapped. */
int hl_owner_names_find_in_file(struct hl_owner_names *names, const char *path,
				const struct hl_recording_module *module, uint64_t address,
				const char **ret_file, const char **ret_function);

void hl_owner_names_free(struct hl_owner_names *names); /* NULL is fine */
