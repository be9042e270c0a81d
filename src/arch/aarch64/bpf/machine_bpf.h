/* SPDX-License-Identifier: BSD-2-Clause */
/* What aarch64 has for the loaders of BPF programs. */
#pragma once

/* Tracepoints of page faults; functions whose return is watched return by a system call. */
#define HL_BPF_HAS_FAULT_TRACEPOINTS false
#define HL_BPF_RETURNS_BY_CALL	     false
