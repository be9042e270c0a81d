/* SPDX-License-Identifier: BSD-2-Clause */
/* Keeps what libbpf says off standard error: for those who want to see all, and for the detail of
 * an error. */
#pragma once

/* From here on ${say} (may be NULL) gets each line; without a newline, and with what a terminal
 * would obey still in it. */
void hl_bpf_log_start(void (*say)(const char *line));

/* The first complaint since the start or the last hl_bpf_log_forget(): mostly the one that says
 * what was wrong. "" when there was none; valid until the next call. */
const char *hl_bpf_log_complaint(void);

void hl_bpf_log_forget(void);
