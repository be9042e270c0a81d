/* SPDX-License-Identifier: BSD-2-Clause */
/* Recordings of a program that is not there, for tests that write logs of what it did. */
#pragma once

#include "log/log_writer.h"
#include "recording/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#define START_NS      UINT64_C(1767225600000000000)
#define CODE	      UINT64_C(0x400000)
#define MADE_UP_NODES 40

/* ---- names: node i lies below node i / 2, 16 bytes of code apart ---- */

static inline bool name_node(const struct hl_log_names *base, uint32_t node, uint64_t *ret_frame,
			     uint32_t *ret_parent)
{
	(void)base;
	*ret_frame = UINT64_C(1) << 48 | (CODE + 16 * node);
	*ret_parent = node / 2;
	return node < MADE_UP_NODES;
}

static inline uint32_t count_modules(const struct hl_log_names *base)
{
	(void)base;
	return 1;
}

static inline bool name_module(const struct hl_log_names *base, uint32_t module,
			       struct hl_log_module *ret_module)
{
	(void)base;
	(void)module;
	*ret_module =
		(struct hl_log_module){.path = "/none/app", .start = CODE, .end = CODE + 0x10000};
	return true;
}

static const struct hl_log_names made_up_names = {
	.node = name_node, .module_count = count_modules, .module = name_module};

/* ---- the rest of the recording ---- */

/* To the directory ${name}, open at ${fd}: one process that knows no node itself. */
static inline void write_made_up_recording(int fd, const char *name, uint64_t duration_ns)
{
	static char *command[] = {"app", NULL};
	struct hl_recording_process process = {
		.pid = 77,
		.executable = "/none/app",
		.command = command,
		.start_realtime_ns = START_NS,
		.duration_ns = duration_ns,
		.complete = true,
		.end = HL_END_EXITED,
	};
	struct hl_recording recording = {
		.name = (char *)name,
		.format_version = 1,
		.tool_version = "0",
		.command = command,
		.host = "here",
		.kernel = "Linux",
		.mode = "log-fast",
		.start_realtime_ns = START_NS,
		.duration_ns = duration_ns,
		.complete = true,
		.processes = &process,
		.process_count = 1,
	};
	struct hl_error err;

	assert_int_equal(hl_recording_write_meta(fd, &recording, &err), 0);
	assert_int_equal(hl_recording_write_process(fd, &process, &err), 0);
}

/* Whether files can grow. Who forbids it ignores SIGXFSZ. */
static inline void allow_writing(bool allowed)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = allowed ? limit.rlim_max : 1;
	setrlimit(RLIMIT_FSIZE, &limit);
}
