/* SPDX-License-Identifier: BSD-2-Clause */
/* Instructions that a process has mapped anyway, by which a thread of it makes calls for us. */
#pragma once

#include "process/maps.h"

#include <stdbool.h>
#include <stdint.h>

struct hl_remote;

/* Addresses in the target; 0 where none was found. */
struct hl_gadgets {
	uint64_t syscall;   /* syscall; ret */
	uint64_t sigreturn; /* mov $__NR_rt_sigreturn, %eax; syscall */
	uint64_t exchange;  /* xchg %eax, %REGISTER; ret */
	uint8_t exchange_opcode;

	/* Where one is missing, all are written over the program's entry point, which has run and
	 * does not run again. */
	uint64_t entry; /* 0: none is missing */
	bool are_planted;
	uint8_t displaced[12];
};

/*
 * Looks for them in the text of mapped files, libc's first; nothing is changed. False when one is
 * missing, and the program's entry point is not known either.
 */
bool hl_gadgets_find(const struct hl_remote *remote, pid_t pid, const struct hl_maps *maps,
		     struct hl_gadgets *ret_gadgets);

/* Whether they are still where they were found: libraries come and go. */
bool hl_gadgets_hold(const struct hl_remote *remote, const struct hl_gadgets *gadgets);

/* Writes them where one is missing, and takes them away. False when that is not possible. */
bool hl_gadgets_plant(const struct hl_remote *remote, struct hl_gadgets *gadgets);
void hl_gadgets_unplant(const struct hl_remote *remote, struct hl_gadgets *gadgets);
