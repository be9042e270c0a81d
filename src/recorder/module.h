/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modules (program, libraries, vdso) on whose code stacks stand: found when a program counter is
 * not in the rule cache, and entered into the region so that readers can name the code. A module
 * that is unloaded keeps its id; another one at the same addresses gets a new id.
 */
#pragma once

#include "recorder/shared.h"
#include "recorder/spin.h"
#include "unwind/unwind.h"

struct hl_module_entry {
	uint64_t start, end;
	const uint8_t *debug_frame; /* mapped from the file when the module has no .eh_frame_hdr */
	size_t debug_frame_bytes;
	bool gone; /* another module has taken its addresses */
};

struct hl_modules {
	struct hl_spin lock;
	struct hl_shared *shared;
	uint32_t count; /* entries[i] has id i + 1, as in the region */
	struct hl_module_entry entries[HL_MODULES_MAX];
};

/*
 * Finds the module of ${pc} and registers it when it is new. Returns false when no module holds the
 * address. When the region is full the module is found with id HL_MODULE_NONE, and
 * header.lost_modules is raised.
 * ${ret_replaced} says that the module has taken addresses of an older one, so that rules may be
 * stale. Thread-safe; not from a signal handler that interrupted the recorder.
 */
bool hl_modules_find(struct hl_modules *modules, uint64_t pc, struct hl_unwind_module *ret_module,
		     bool *ret_replaced);
