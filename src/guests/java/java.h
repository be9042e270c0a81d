/* SPDX-License-Identifier: BSD-2-Clause */
/* The Java virtual machine is asked for the names of its code as jcmd asks it. */
#pragma once

#include "base/error.h"

struct hl_code_writer;

/*
 * The member `write_names` of struct hl_code_runtime. Asks by the socket that the machine listens at; where it does not yet, a
 * file and SIGQUIT have it begin. The signal is sent only to the JDK's own launcher. Takes up to 4 seconds. 0; -ENOTSUP: it
 * cannot be asked and has written nothing; -ETIMEDOUT; another negative errno; each with a sentence.
 */
int hl_java_write_names(const struct hl_code_writer *writer, struct hl_error *err);
