/* SPDX-License-Identifier: BSD-2-Clause */
/* The recording that views show when none is named. */
#pragma once

/*
 * The name of the recording in the current directory that was last written to: of a folder NAME.hl,
 * judged by the time of its state file. To be freed; NULL when there is none.
 */
char *hl_newest_recording(void);
