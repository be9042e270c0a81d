/* SPDX-License-Identifier: BSD-2-Clause */
/* What the libraries of deepbind.c are asked for. */
#pragma once

#include "program.h"

#include <alloca.h>

#define EXPORTED __attribute__((visibility("default")))

typedef void *make_fn(size_t bytes);
typedef void give_fn(void *block);
