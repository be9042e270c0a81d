/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a recorder gets its region: it connects to the collector's SEQPACKET socket (abstract
 * namespace, name in HEAPLINE_SOCKET, without the leading NUL), sends one hello, and receives one
 * welcome that carries the memfd as SCM_RIGHTS. The collector takes pid and uid from SO_PEERCRED
 * and refuses users other than its own and root, unless the caller descends from a recorded
 * process; the recorder refuses a collector of any other user. A forked child asks again, at its
 * first event; an exec'ed program likewise, from its environment.
 *
 * While the collector is stopped or hangs, only the first hello waits for it. Its recorder then
 * listens at the name HL_SILENCE_PREFIX + the first digits of the token and sends that socket along
 * the connection (SCM_RIGHTS): the name stays bound while that connection waits to be read, whoever
 * ends meanwhile. Recorders that can connect to it, and whose own user or root listens there, go on
 * unrecorded at once. The collector drops the socket with the connection when it comes to it.
 */
#pragma once

#include <stdint.h>

#define HL_ENV_SOCKET "HEAPLINE_SOCKET" /* name of the collector's socket */
#define HL_ENV_TOKEN  "HEAPLINE_TOKEN"	/* 32 hexadecimal digits that the hello must repeat */

/* Without a collector: has the recorder start one. Options of `heapline record`, parted by spaces. */
#define HL_ENV_RECORD  "HEAPLINE_RECORD"
#define HL_ENV_PROGRAM "HEAPLINE_PROGRAM" /* where heapline is, if not beside the recorder */

/* Where another recorder listens, the collector did not answer it. All users can read the name then
 * (/proc/net/unix) and can bind it: only SO_PEERCRED tells who listens. The digits of the token that
 * are not in the name stay secret. */
#define HL_SILENCE_PREFIX "heapline-silent-"
#define HL_SILENCE_DIGITS 16

#define HL_HELLO_MAGIC	 UINT64_C(0x31304f4c4c45484c) /* "LHELLO01" */
#define HL_WELCOME_MAGIC UINT64_C(0x3130454d4f434c57)
#define HL_HELLO_WAIT_MS \
	2000 /* a collector that does not answer in this time counts as dead: the target runs \
		unrecorded; one that is stopped is not waited for as long */

enum hl_hello_kind {
	HL_HELLO_START, /* a program started with the recorder preloaded, by record or by exec */
	HL_HELLO_FORK,	/* a forked child */
};

struct hl_hello {
	uint64_t magic;
	uint32_t region_version;
	uint32_t kind;
	uint32_t pid; /* as the target sees it; the collector believes SO_PEERCRED */
	uint32_t parent_pid;
	uint64_t address_space_limit; /* RLIMIT_AS, UINT64_MAX when there is none: the region is
					 laid out within an eighth */
	char token[32];
};

/* What a collector that the recorder started sends over the socket pair (SEQPACKET) that it was
 * started with: the two variables above. */
struct hl_invitation {
	char socket[96]; /* NUL-terminated */
	char token[33];
};

struct hl_welcome {
	uint64_t magic;
	int32_t error; /* 0, or the errno for which there is no region */
	uint32_t reserved;
	uint64_t region_bytes;
};
