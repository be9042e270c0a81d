/* SPDX-License-Identifier: BSD-2-Clause */
/* Libraries that the loader binds to libc before it looks at what is preloaded. */
#pragma once

/*
 * Has the loader find our entry points wherever it would find those of libc: for libraries that are opened with RTLD_DEEPBIND, for
 * what these need, and for dlsym() of libc itself. Once, while recording and before the program runs. What is not libc's own without us, because
 * another library defines it, stays as it is.
 */
void hl_deepbind_begin(void);
