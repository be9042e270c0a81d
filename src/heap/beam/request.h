/* SPDX-License-Identifier: BSD-2-Clause */
/* Arguments of the functions that a node is to call, in libei's buffers. */
#pragma once

#include "heap/beam/beam.h"

#include <ei.h>

/* All: 0 or -ENOMEM; ei_x_free() the buffer. */

/* [#{...}]: the options of `instrument` that ${settings} has. */
int hl_request_options(const struct hl_beam_settings *settings, ei_x_buff *ret_arguments);

/* [${item}] */
int hl_request_item(const char *item, ei_x_buff *ret_arguments);

/* [{allocator, ${allocator}}] */
int hl_request_allocator(const char *allocator, ei_x_buff *ret_arguments);
