// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Reads which pages a memory control group is charged with; see group.bpf.h. */
#define HL_GROUP_PAGE(frame, pages, kind, inode) ((void)(frame))

#include "bpf/group.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
