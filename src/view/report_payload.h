/* SPDX-License-Identifier: BSD-2-Clause */
/* A stream whose bytes reach another one compressed (zlib) and as lines of base64, which is how a
 * page of HTML can hold binary data that no name in it can break. */
#pragma once

#include <stdio.h>

/*
 * A stream to write bytes to; they appear on ${out}, and are complete when fclose() has returned 0.
 * 0 or -ENOMEM.
 */
int hl_report_payload_open(FILE *out, FILE **ret_payload);
