/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs events through the interval engine into segments, with fixed times; see make_log.h. */
#include "make_log.h"

#include "log/events.h"
#include "log/log_writer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define INTERVALS     25
#define DAY_INTERVALS 864000
#define DAY_CHANGES   50
#define SEGMENT_BYTES (UINT64_C(100) << 20)
#define RSS_BYTES     1048576

/* The names of a process, as the collector would find them in the region. */
struct names {
	struct hl_log_names base;
	const struct hl_recording_process *process;
};

static bool name_node(const struct hl_log_names *base, uint32_t node, uint64_t *ret_frame,
		      uint32_t *ret_parent)
{
	const struct hl_recording_process *process = ((const struct names *)base)->process;

	if (node > process->node_count)
		return false;
	*ret_frame = process->nodes[node - 1].frame;
	*ret_parent = process->nodes[node - 1].parent;
	return true;
}

static uint32_t count_modules(const struct hl_log_names *base)
{
	return ((const struct names *)base)->process->module_count;
}

static bool name_module(const struct hl_log_names *base, uint32_t number,
			struct hl_log_module *ret_module)
{
	const struct hl_recording_module *module =
		&((const struct names *)base)->process->modules[number - 1];

	*ret_module = (struct hl_log_module){
		.path = module->path,
		.start = module->start,
		.end = module->end,
		.load_bias = module->load_bias,
		.build_id_bytes = module->build_id_bytes,
	};
	memcpy(ret_module->build_id, module->build_id, module->build_id_bytes);
	return true;
}

struct logging {
	struct names names;
	struct hl_intervals intervals;
	struct hl_log_writer *writer;
	struct hl_event_writer *events; /* NULL: they are not kept */
};

static int begin(struct logging *logging, int directory_fd,
		 const struct hl_recording_process *process, uint64_t segment_bytes)
{
	*logging = (struct logging){
		.names = {{name_node, count_modules, name_module, NULL, NULL}, process},
	};
	struct hl_log_settings settings = {
		.directory_fd = directory_fd,
		.process = process->sequence,
		.start_realtime_ns = process->start_realtime_ns,
		.segment_bytes = segment_bytes,
		.segments_kept = 1000,
		.names = &logging->names.base,
	};
	return hl_log_writer_new(&settings, &logging->writer);
}

/* From now on events are kept beside the log, in files of 128 bytes: one for each interval. */
static int keep_events(struct logging *logging, int directory_fd)
{
	const struct hl_recording_process *process = logging->names.process;
	struct hl_log_settings settings = {
		.directory_fd = directory_fd,
		.process = process->sequence,
		.start_realtime_ns = process->start_realtime_ns,
		.segment_bytes = 128,
		.segments_kept = 1000,
		.names = &logging->names.base,
	};

	return hl_event_writer_new(&settings, 0, &logging->events);
}

static int end(struct logging *logging, int r)
{
	int finished = hl_log_writer_finish(logging->writer);
	uint64_t missing;

	if (finished == 0)
		finished = hl_event_writer_finish(logging->events, true, &missing);
	hl_intervals_release(&logging->intervals);
	return r < 0 ? r : finished;
}

static int event(struct logging *logging, uint64_t tick, uint32_t node, int64_t bytes)
{
	hl_intervals_tick(&logging->intervals, tick);
	if (logging->events) {
		hl_event_writer_run(logging->events, node % 2, tick, false);
		hl_event_writer_event(logging->events, node, bytes, bytes < 0 ? -1 : 1);
	}
	return hl_intervals_event(&logging->intervals, node, bytes, bytes < 0 ? -1 : 1);
}

static int end_interval(struct logging *logging, uint64_t number, uint64_t rss_bytes,
			uint64_t lost_events)
{
	struct hl_log_interval interval;

	int r = hl_intervals_end(&logging->intervals, number + 1, &interval);
	if (logging->events)
		hl_event_writer_interval(logging->events, number + 1);
	return r < 0 ? r
		     : hl_log_writer_interval(logging->writer, &interval, rss_bytes, lost_events);
}

/* ---- shop ---- */

/* Node 6, allocated and freed within the interval. */
static int spike(struct logging *logging, uint64_t tick, int64_t bytes)
{
	int r = event(logging, tick + 30, 6, bytes);

	return r < 0 ? r : event(logging, tick + 35, 6, -bytes);
}

/* Node 3 leaks, node 4 is a cache that fills up, node 7 is there from the beginning. */
static int fill_shop_interval(struct logging *logging, uint64_t number)
{
	uint64_t tick = number * HL_INTERVAL_TICKS;
	bool quiet = number == 15 || number == 16;
	int r = number == 0 ? event(logging, 5, 7, 13) : 0;

	if (r == 0 && !quiet)
		r = event(logging, tick + 10, 3, 1009);
	if (r == 0 && number < 8)
		r = event(logging, tick + 20, 4, 5003);
	if (r == 0 && number == 12)
		r = spike(logging, tick, 500009);
	if (r == 0 && number == 20)
		r = spike(logging, tick, 300007);
	return r;
}

static int mark_shop_interval(struct logging *logging, uint64_t number)
{
	if (number == 2)
		return hl_log_writer_mark(logging->writer, 250, "open");
	if (number == 12)
		return hl_log_writer_mark(logging->writer, 1229, "a <sale> & \033[31mmore");
	return 0;
}

int write_shop_log(int directory_fd, const struct hl_recording_process *process)
{
	struct logging logging;
	int r = begin(&logging, directory_fd, process, SEGMENT_BYTES);

	if (r < 0)
		return r;
	r = keep_events(&logging, directory_fd);
	for (uint64_t i = 0; r == 0 && i < INTERVALS; i++) {
		r = fill_shop_interval(&logging, i);
		if (r == 0)
			r = end_interval(&logging, i, RSS_BYTES + i * 4096, 0);
		if (r == 0)
			r = mark_shop_interval(&logging, i);
	}
	return end(&logging, r);
}

/* ---- broken ---- */

/* Whether files can grow. */
static void allow_writing(bool allowed)
{
	struct rlimit limit;

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = allowed ? limit.rlim_max : 1;
	setrlimit(RLIMIT_FSIZE, &limit);
}

int write_broken_log(int directory_fd, const struct hl_recording_process *process)
{
	struct logging logging;
	int r = begin(&logging, directory_fd, process, 300);

	if (r < 0)
		return r;
	signal(SIGXFSZ, SIG_IGN);
	for (uint64_t i = 0; r == 0 && i < INTERVALS; i++) {
		bool hole = i >= 17 && i < 20;
		r = fill_shop_interval(&logging, i);
		allow_writing(!hole);
		if (r == 0)
			r = end_interval(&logging, i, i == 24 ? 0 : RSS_BYTES, i < 10 ? 0 : 3);
		allow_writing(true);
		if (hole && r == -EFBIG)
			r = 0;
	}
	r = end(&logging, r);
	if (r < 0)
		return r;
	/* The first one keeps its number: it is before the gap then. */
	return unlinkat(directory_fd, "memlog-0-20260101T000000-000002.hll", 0) < 0 ? -errno : 0;
}

/* ---- day ---- */

/* Allocates at a node, or frees what it holds. */
static int change_something(struct logging *logging, uint64_t tick, uint32_t *seed, int64_t *held)
{
	*seed = *seed * 1664525u + 1013904223u;
	uint32_t node = 1 + (*seed >> 8) % logging->names.process->node_count;
	int64_t bytes = held[node] && *seed >> 31 ? -held[node] : 16 + (*seed >> 4) % 4096;

	held[node] += bytes;
	return event(logging, tick, node, bytes);
}

int write_day_log(int directory_fd, const struct hl_recording_process *process)
{
	int64_t *held = calloc((size_t)process->node_count + 1, sizeof(*held));
	struct logging logging;
	uint32_t seed = 1;
	int r = held ? begin(&logging, directory_fd, process, SEGMENT_BYTES) : -ENOMEM;

	if (r < 0)
		return r;
	for (uint64_t i = 0; r == 0 && i < DAY_INTERVALS; i++) {
		for (uint64_t at = 0; r == 0 && at < DAY_CHANGES; at++)
			r = change_something(&logging, i * HL_INTERVAL_TICKS + at, &seed, held);
		if (r == 0)
			r = end_interval(&logging, i, RSS_BYTES, 0);
	}
	free(held);
	return end(&logging, r);
}
