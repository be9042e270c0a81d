/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Services: programs such as skynet run many scripts side by side, on whichever thread is free, and say
 * which one a thread works for by a number, the handle. It is the outermost frame of the scripts that run, a
 * label of HL_LABEL_SERVICE: "wl_echo a :0000000a".
 */
#pragma once

#include <stdint.h>

/* Has each allocation ask ${current}, a function of the program without arguments, for the handle; 0: none.
 * ${handle_of} says that of a context; 0: there is no such function. Before the recorder runs. */
void hl_services_open(uint64_t current, uint64_t handle_of);

/* In a forked child: the names are gone with its parent's memory. */
void hl_services_enter_child(void);

/* The service of ${context} begins: ${module}, whose first word is its name, and what it is given, or NULL. */
void hl_services_name(const void *module, const void *context, const char *arguments);
