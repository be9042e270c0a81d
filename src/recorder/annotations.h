/* SPDX-License-Identifier: BSD-2-Clause */
/* Annotations of programs, see heapline.h, where the recorder is preloaded. */
#pragma once

/* Has the program's annotations reach the recorder. Once, before the program runs. */
void hl_annotations_begin(void);
