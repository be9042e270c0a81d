/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads rings into intervals and writes these to segments; see drain.h. */
#include "collector/drain.h"

#include "base/compiler.h"
#include "base/frame_key.h"
#include "process/maps.h"
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * ---- names: what the nodes and modules of a region are, while the target goes on ----
 *
 * The ids of nodes are the region's own.
 */

struct region_names {
	struct hl_log_names names; /* what the writer is given */
	struct hl_region_view view;
	const char *executable;		   /* the main module's path */
	struct hl_recording_module module; /* the last that was asked for */
	char function[HL_SITE_NAME_MAX + 1], source[HL_SITE_NAME_MAX + 1]; /* of the last site */
};

static bool is_published(const struct hl_region_view *view, uint32_t id)
{
	return id && id <= hl_region_read_node_count(view) && hl_region_read_node(view, id).frame;
}

/* As in a recording: a parent that is not there makes the node one of the outermost, a frame in a
 * module that is not known keeps its address. */
static bool find_node(const struct hl_log_names *log_names, uint32_t id, uint64_t *ret_frame,
		      uint32_t *ret_parent)
{
	const struct region_names *names = (const struct region_names *)log_names;

	if (!is_published(&names->view, id))
		return false;
	struct hl_recording_node node = hl_region_read_node(&names->view, id);
	uint32_t path;
	if (!hl_frame_key_is_valid(node.frame, hl_region_read_module_count(&names->view)))
		node.frame &= HL_FRAME_PC_MASK;
	else if (hl_frame_key_is_path(node.frame, &path) && !is_published(&names->view, path))
		node.frame = hl_site_frame_key(0, false);
	*ret_frame = node.frame;
	*ret_parent = is_published(&names->view, node.parent) ? node.parent : 0;
	return true;
}

static uint32_t count_modules(const struct hl_log_names *log_names)
{
	return hl_region_read_module_count(&((const struct region_names *)log_names)->view);
}

static void region_names_release(struct region_names *names)
{
	free(names->module.path);
	names->module.path = NULL;
}

static bool find_module(const struct hl_log_names *log_names, uint32_t number,
			struct hl_log_module *ret_module)
{
	struct region_names *names = (struct region_names *)(uintptr_t)log_names;
	struct hl_recording_module *module = &names->module;

	if (!number || number > hl_region_read_module_count(&names->view))
		return false;
	region_names_release(names);
	if (hl_region_read_module(&names->view, number - 1, module) < 0)
		return false;
	*ret_module = (struct hl_log_module){
		.path = hl_region_module_is_main(module) ? names->executable : module->path,
		.start = module->start,
		.end = module->end,
		.load_bias = module->load_bias,
		.build_id_bytes = module->build_id_bytes,
	};
	memcpy(ret_module->build_id, module->build_id, module->build_id_bytes);
	return true;
}

static bool find_provider(const struct hl_log_names *log_names, uint32_t index,
			  struct hl_region_provider *ret_provider)
{
	const struct region_names *names = (const struct region_names *)log_names;
	const struct hl_region_header *header = names->view.base;

	if (index >= HL_SCRIPT_PROVIDERS_MAX ||
	    index >= atomic_load_explicit(&header->provider_count, memory_order_acquire))
		return false;
	*ret_provider = header->providers[index];
	return true;
}

/* The name that begins at ${start}; "" where the program has written over it. */
static void read_name(const struct hl_region_view *view, uint32_t start,
		      char ret_text[HL_SITE_NAME_MAX + 1])
{
	const struct hl_region_header *header = view->base;
	const char *area = hl_region_read_area(view, HL_AREA_NAMES);
	uint32_t end = hl_region_read_bounded(
		view, HL_AREA_NAMES,
		atomic_load_explicit(&header->name_bytes, memory_order_acquire), 1);
	struct hl_region_name name;

	ret_text[0] = '\0';
	if (start >= end || end - start < sizeof(name))
		return;
	memcpy(&name, area + start, sizeof(name));
	if (name.bytes > HL_SITE_NAME_MAX || hl_region_name_bytes(name.bytes) > end - start)
		return;
	memcpy(ret_text, area + start + sizeof(name), name.bytes);
	ret_text[name.bytes] = '\0';
}

static bool find_site(const struct hl_log_names *log_names, uint32_t number,
		      struct hl_log_site *ret_site)
{
	struct region_names *names = (struct region_names *)(uintptr_t)log_names;
	const struct hl_region_view *view = &names->view;
	const struct hl_region_header *header = view->base;
	const struct hl_region_site *sites = hl_region_read_area(view, HL_AREA_SITES);
	uint32_t count = hl_region_read_bounded(
		view, HL_AREA_SITES,
		atomic_load_explicit(&header->site_count, memory_order_acquire), sizeof(*sites));
	uint32_t providers = atomic_load_explicit(&header->provider_count, memory_order_acquire);

	if (!number || number > count)
		return false;
	struct hl_region_site site = sites[number - 1];
	read_name(view, site.function, names->function);
	read_name(view, site.source, names->source);
	*ret_site = (struct hl_log_site){
		.provider = site.provider < providers ? site.provider : 0,
		.line = site.line,
		.first_line = site.first_line,
		.function = names->function,
		.source = names->source,
	};
	return true;
}

/* ${view} and ${executable} must stay. ${names} must not move. */
static void region_names_init(struct region_names *names, const struct hl_region_view *view,
			      const char *executable)
{
	*names = (struct region_names){
		.names = {.node = find_node,
			  .module_count = count_modules,
			  .module = find_module,
			  .provider = find_provider,
			  .site = find_site},
		.view = *view,
		.executable = executable,
	};
}

/* ---- the drain ---- */

/* A pass over the counters takes milliseconds: while events are being lost the log is re-based not
 * more often than once a second, and says so every ten. */
#define REBASE_INTERVALS      10
#define REBASE_MARK_INTERVALS 100

#define EVENT_MAX (UINT64_C(1) << 48) /* bytes, or blocks, of one event, scaled if a sample */

struct hl_drain {
	struct hl_ring_sink sink; /* first: what it is given leads back here */
	struct hl_region_view view;
	struct region_names names;
	struct hl_log_writer *writer;
	struct hl_event_writer *events;	 /* NULL: events are not kept */
	struct region_names event_names; /* for its thread */
	struct hl_drain_orders *orders;	 /* NULL if there are none */
	struct hl_intervals intervals;
	struct hl_ring_set rings; /* by thread slot */
	uint32_t node_count;	  /* known to exist */
	atomic_bool awake;	  /* dozes no more */
	bool dozed;		  /* since the last run; until then all rings were empty */
	int directory_fd, statm_fd;
	uint64_t page_bytes, rss_bytes; /* without the recorder's memory */
	pid_t pid;
	struct hl_recorder_memory recorder_memory;
	uint64_t shared_pages; /* when it was last looked at */
	struct hl_log_losses losses;
	uint64_t rebased_losses; /* events lost when the log was last put right */
	uint64_t next_rebase;	 /* interval; not before its end */
	uint64_t next_mark;	 /* interval; no mark that says so before it */
	/* Of the mode: what is allocated without a log is only in the counters. */
	uint32_t mode;	      /* as in the region's header at the last run */
	unsigned rebases_due; /* because of that */
	bool was_without_log; /* ever */
};

static struct hl_region_header *header_of(const struct hl_drain *drain)
{
	return (struct hl_region_header *)(uintptr_t)drain->view.base;
}

static void *area_of(const struct hl_drain *drain, enum hl_area_id id)
{
	return (char *)header_of(drain) + drain->view.layout->areas[id].offset;
}

/* ---- events ---- */

/* Never fails: an event that cannot be counted is lost, or its thread would wait for ever. */
static int take_event(struct hl_ring_sink *sink, uint32_t node, int64_t bytes, int64_t objects)
{
	struct hl_drain *drain = (struct hl_drain *)sink;

	/* The node's event was written after the node. */
	if (HL_UNLIKELY(node > drain->node_count))
		drain->node_count = hl_region_read_node_count(&drain->view);
	if (HL_UNLIKELY(!node || node > drain->node_count) ||
	    HL_UNLIKELY((uint64_t)bytes + EVENT_MAX >= 2 * EVENT_MAX) ||
	    HL_UNLIKELY((uint64_t)objects + EVENT_MAX >= 2 * EVENT_MAX) ||
	    HL_UNLIKELY(hl_intervals_event(&drain->intervals, node, bytes, objects) < 0))
		drain->losses.refused_events++;
	else if (drain->events)
		hl_event_writer_event(drain->events, node, bytes, objects);
	return 0;
}

static bool has_begun(const struct hl_drain *drain)
{
	return atomic_load_explicit(&header_of(drain)->state, memory_order_acquire) !=
	       HL_REGION_EMPTY;
}

/* ---- rings ---- */

/* Whether there are new ones. Slots that were never used have no memory for their rings, which
 * reading would take. */
static bool find_rings(struct hl_drain *drain)
{
	bool any = false;
	const struct hl_region_thread *threads = area_of(drain, HL_AREA_THREADS);
	uint32_t count =
		atomic_load_explicit(&header_of(drain)->thread_count, memory_order_acquire);
	struct hl_ring_set *set = &drain->rings;
	uint64_t most = header_of(drain)->areas[HL_AREA_THREADS].capacity / sizeof(*threads);

	set->count = count < set->max ? count : set->max;
	if (set->count > most)
		set->count = (uint32_t)most;
	for (uint32_t i = 0; i < set->count; i++) {
		if (HL_LIKELY(set->readers[i].ring))
			continue;
		set->next_ticks[i] = UINT64_MAX; /* until it is looked at */
		if (!atomic_load_explicit(&threads[i].has_ring, memory_order_acquire))
			continue;
		any = true;
		hl_ring_reader_init(&set->readers[i], hl_ring_at(area_of(drain, HL_AREA_RINGS), i),
				    header_of(drain)->areas[HL_AREA_RINGS].capacity -
					    (uint64_t)i * HL_RING_SMALL);
	}
	return any;
}

/* Events that come late are of the tick at which they come, as in the intervals. */
static void begin_run(struct hl_ring_sink *sink, uint32_t slot)
{
	struct hl_drain *drain = (struct hl_drain *)sink;

	hl_event_writer_run(drain->events, slot, drain->intervals.tick, drain->intervals.unordered);
}

/* ---- intervals ---- */

static uint64_t lost_events(const struct hl_drain *drain)
{
	const struct hl_region_thread *threads = area_of(drain, HL_AREA_THREADS);
	uint32_t count =
		atomic_load_explicit(&header_of(drain)->thread_count, memory_order_acquire);
	uint64_t lost = 0;
	uint64_t places = drain->view.layout->areas[HL_AREA_THREADS].capacity / sizeof(*threads);

	for (uint32_t i = 0; i < count && i < places; i++)
		lost += __atomic_load_n(&threads[i].lost_log_events, __ATOMIC_ACQUIRE);
	return lost;
}

static uint64_t all_losses(const struct hl_drain *drain)
{
	return lost_events(drain) + drain->losses.refused_events;
}

/* Whether the log may say other than the counters. */
static bool needs_rebase(const struct hl_drain *drain)
{
	return drain->losses.unsettled || drain->rebases_due ||
	       all_losses(drain) != drain->rebased_losses;
}

/* Puts the log right at the current tick. Without memory the next re-base does it. */
static void rebase(struct hl_drain *drain)
{
	const struct hl_drain_rebase rebase = {&drain->view, &drain->rings, drain->writer,
					       &drain->intervals, drain->events};
	uint64_t losses = all_losses(drain); /* later ones may be in the counters, or not */

	drain->next_rebase = drain->intervals.number + REBASE_INTERVALS;
	/* What a thread has counted and is unread in a ring that is not known would be added twice. */
	find_rings(drain);
	if (hl_drain_rebase(&rebase, &drain->losses.unsettled) < 0)
		return;
	drain->losses.unsettled += find_rings(drain);
	drain->rebases_due -= drain->rebases_due > 0;
	if (losses == drain->rebased_losses)
		return;
	drain->rebased_losses = losses;
	drain->losses.rebased_tick = drain->intervals.tick;
}

/*
 * Of a process that has gone, what it had at last. What the recorder has got since it was looked at is nearly always shared memory,
 * unlike what the program has got.
 */
static void read_rss(struct hl_drain *drain)
{
	char text[64] = "";
	unsigned long size, resident, shared;

	if (drain->statm_fd < 0 || pread(drain->statm_fd, text, sizeof(text) - 1, 0) <= 0 ||
	    sscanf(text, "%lu %lu %lu", &size, &resident, &shared) != 3 || !resident)
		return;
	if (hl_recorder_memory_look(&drain->recorder_memory, drain->pid,
				    HL_RECORDER_MEMORY_UNASKED))
		drain->shared_pages = shared;
	uint64_t rss = resident * drain->page_bytes,
		 recorder = (uint64_t)drain->recorder_memory.bytes;
	if (recorder && shared > drain->shared_pages)
		recorder += (shared - drain->shared_pages) * drain->page_bytes;
	drain->rss_bytes = recorder < rss ? rss - recorder : 1; /* 0 would be unknown */
}

/* Ends the current interval; ${next} will be the current one. Without memory for that the current
 * one goes on and takes the next one in. */
static int write_interval(struct hl_drain *drain, uint64_t next)
{
	struct hl_log_interval interval;

	int r = hl_intervals_end(&drain->intervals, next, &interval);
	if (r < 0)
		return r;
	if (drain->events) {
		hl_event_writer_interval(drain->events, next);
		hl_event_writer_keep(drain->events, hl_log_writer_kept(drain->writer));
	}
	read_rss(drain);
	drain->losses.lost_events = lost_events(drain);
	return hl_log_writer_interval(drain->writer, &interval, drain->rss_bytes,
				      drain->losses.lost_events + drain->losses.refused_events);
}

static void end_interval(struct hl_drain *drain, uint64_t next)
{
	bool rebases = needs_rebase(drain) && drain->intervals.number >= drain->next_rebase;
	int r = 0;

	/* The counters are those of now: what they say must not stand before a time without events.
	 */
	if (rebases && next > drain->intervals.number + 1)
		r = write_interval(drain, next - 1);
	if (rebases && r == 0)
		rebase(drain);
	if (r == 0)
		r = write_interval(drain, next);
	if (r < 0)
		drain->losses.error = r;
	/* Between intervals; best effort */
	if (r == 0 && rebases && drain->rebased_losses &&
	    drain->intervals.number >= drain->next_mark) {
		char text[64];
		drain->next_mark = drain->intervals.number + REBASE_MARK_INTERVALS;
		snprintf(text, sizeof(text), "log re-based after %" PRIu64 " lost events",
			 drain->rebased_losses);
		hl_log_writer_mark(drain->writer, drain->losses.rebased_tick, text);
	}
}

/* All events before ${tick} have been counted. */
static void move_to(struct hl_drain *drain, uint64_t tick)
{
	uint64_t number = tick / HL_INTERVAL_TICKS;

	if (number > drain->intervals.number)
		end_interval(drain, number);
	if (number == drain->intervals.number)
		hl_intervals_tick(&drain->intervals, tick);
}

/* ---- the whole ---- */

/* Counts the events of ticks up to ${last}. Whether there were any, of these ticks or later. */
static bool count_events(struct hl_drain *drain, uint64_t last, uint64_t now)
{
	find_rings(drain);
	uint64_t tick = hl_ring_set_look(&drain->rings, now);
	bool any = tick != UINT64_MAX;
	/* Without stamps rings are read one by one: of what several threads did in a tick the order
	 * is not known. */
	bool has_stamps = atomic_load_explicit(&header_of(drain)->flags, memory_order_relaxed) &
			  HL_REGION_STAMPS;
	while (tick <= last) {
		move_to(drain, tick);
		hl_intervals_run(&drain->intervals,
				 !has_stamps && hl_ring_set_several(&drain->rings, tick));
		tick = hl_ring_set_read(&drain->rings, tick, &drain->sink);
	}
	return any;
}

/* The second is for threads that were in the middle of an event when the mode changed. */
#define REBASES_OF_MODE 2

/* After a switch of the mode the log goes on from the counters, before any later event is read. */
static void follow_mode(struct hl_drain *drain)
{
	uint32_t mode = atomic_load(&header_of(drain)->mode), before = drain->mode;
	uint32_t switches =
		((mode & HL_MODE_SWITCHES) - (before & HL_MODE_SWITCHES)) & HL_MODE_SWITCHES;

	drain->mode = mode;
	if (mode & before & HL_MODE_LOGGING && switches <= HL_MODE_ONE_SWITCH)
		return;
	drain->was_without_log = true;
	drain->rebases_due = REBASES_OF_MODE;
	if (switches)
		rebase(drain);
}

/* The events that ended a doze have the tick at which it began, and happened just now. */
static void pass_doze(struct hl_drain *drain, uint64_t tick)
{
	if (drain->dozed)
		move_to(drain, tick);
	drain->dozed = false;
}

static void obey(struct hl_drain *drain, bool last)
{
	if (drain->orders)
		hl_drain_orders_obey(drain->orders, drain->writer, last);
}

bool hl_drain_run(struct hl_drain *drain, uint64_t tick)
{
	/* Before rings are read: what threads write because of events that are found from here on
	 * is of this tick or later. */
	atomic_store(&header_of(drain)->tick, tick);
	if (tick < HL_DRAIN_LAG_TICKS || !has_begun(drain))
		return false;
	uint64_t last = tick - HL_DRAIN_LAG_TICKS;
	pass_doze(drain, tick);
	follow_mode(drain);
	bool any = count_events(drain, last, tick);
	move_to(drain, last + 1);
	obey(drain, false);
	return any;
}

void hl_drain_doze(struct hl_drain *drain, uint64_t tick, const struct timespec *deadline)
{
	_Atomic uint64_t *place = &header_of(drain)->tick;
	uint64_t dozing = tick | HL_TICK_DOZING;

	atomic_store(place, dozing);
	/* Threads that did not see the flag in time have written their events by now, nearly
	 * always; those of the others wait for the deadline. */
	find_rings(drain);
	if (atomic_load(&drain->awake) || hl_ring_set_look(&drain->rings, tick) != UINT64_MAX)
		return;
	drain->dozed = true;
	syscall(SYS_futex, hl_tick_futex(place), FUTEX_WAIT_BITSET, (uint32_t)(dozing >> 32),
		deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

void hl_drain_wake(struct hl_drain *drain)
{
	_Atomic uint64_t *place = &header_of(drain)->tick;

	atomic_store(&drain->awake, true);
	atomic_fetch_and(place, ~HL_TICK_DOZING);
	syscall(SYS_futex, hl_tick_futex(place), FUTEX_WAKE, INT_MAX);
}

static void finish_events(struct hl_drain *drain)
{
	drain->losses.event_error = hl_event_writer_finish(drain->events, has_begun(drain),
							   &drain->losses.missing_events);
	drain->events = NULL;
}

void hl_drain_move(struct hl_drain *drain, int directory_fd)
{
	/* At once: a file that is opened meanwhile lies in the one directory or in the other. */
	dup3(directory_fd, drain->directory_fd, O_CLOEXEC);
}

static void drain_free(struct hl_drain *drain)
{
	finish_events(drain);
	region_names_release(&drain->event_names);
	hl_log_writer_finish(drain->writer);
	region_names_release(&drain->names);
	hl_intervals_release(&drain->intervals);
	hl_ring_set_release(&drain->rings);
	if (drain->statm_fd >= 0)
		close(drain->statm_fd);
	if (drain->directory_fd >= 0)
		close(drain->directory_fd);
	free(drain);
}

void hl_drain_finish(struct hl_drain *drain, uint64_t tick, struct hl_log_losses *ret_losses)
{
	if (has_begun(drain)) {
		pass_doze(drain, tick);
		follow_mode(drain);
		count_events(drain, tick, tick);
		move_to(drain, tick);
		drain->next_rebase = 0;
		drain->rebases_due = drain->was_without_log;
		end_interval(drain, drain->intervals.number + 1);
		drain->losses.is_rebased = !needs_rebase(drain);
	}
	obey(drain, true);
	const struct hl_region_thread *threads = area_of(drain, HL_AREA_THREADS);
	for (uint32_t i = 0; i < drain->rings.count; i++) {
		drain->losses.bad_rings += drain->rings.readers[i].given_up;
		uint64_t waited_ns = __atomic_load_n(&threads[i].waited_ns, __ATOMIC_RELAXED);
		/* A thread cannot have waited for longer than until ${tick}. */
		if (!waited_ns || waited_ns > tick * HL_RING_TICK_NS)
			continue;
		drain->losses.waiting_threads++;
		if (waited_ns > drain->losses.waited_ns)
			drain->losses.waited_ns = waited_ns;
	}
	drain->losses.missing_intervals = hl_log_writer_missing(drain->writer);
	finish_events(drain);
	*ret_losses = drain->losses;
	drain_free(drain);
}

/* So that the target waits with the drain, and does not take it for dead. A whole tick has passed
 * each time: a header.tick ahead of time would make rings look damaged. */
static void keep_ticking(void *context)
{
	atomic_fetch_add_explicit(&header_of(context)->tick, 1, memory_order_relaxed);
}

static int make_writers(struct hl_drain *drain, const struct hl_drain_settings *settings)
{
	struct hl_log_settings log = {
		.directory_fd = drain->directory_fd,
		.process = settings->sequence,
		.start_realtime_ns = settings->start_realtime_ns,
		.segment_bytes = settings->segment_bytes,
		.segments_kept = settings->segments_kept,
		.names = &drain->names.names,
	};
	int r = hl_log_writer_new(&log, &drain->writer);

	log.names = &drain->event_names.names;
	if (r == 0 && settings->events)
		r = hl_event_writer_new(&log, settings->first_tick / HL_INTERVAL_TICKS,
					&drain->events);
	if (r == 0 && settings->events) {
		drain->sink.run = begin_run;
		drain->events->while_waiting = keep_ticking;
		drain->events->context = drain;
	}
	return r;
}

int hl_drain_new(const struct hl_drain_settings *settings, struct hl_drain **ret_drain)
{
	struct hl_drain *drain = calloc(1, sizeof(*drain));

	if (!drain)
		return -ENOMEM;
	drain->sink.event = take_event;
	drain->view = settings->view;
	drain->orders = settings->orders;
	drain->pid = settings->pid;
	drain->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	drain->mode = atomic_load(&header_of(drain)->mode);
	if (settings->first_tick) /* as if it had been switched just now */
		drain->mode = (drain->mode - HL_MODE_ONE_SWITCH) & ~HL_MODE_LOGGING;
	hl_intervals_go_on(&drain->intervals, settings->first_tick / HL_INTERVAL_TICKS, 0, 0);
	region_names_init(&drain->names, &settings->view, settings->executable);
	region_names_init(&drain->event_names, &settings->view, settings->executable);
	char path[32];
	snprintf(path, sizeof(path), "/proc/%d/statm", hl_proc_thread(settings->pid));
	drain->statm_fd = open(path, O_RDONLY | O_CLOEXEC); /* without: RSS is unknown */
	drain->directory_fd = fcntl(settings->directory_fd, F_DUPFD_CLOEXEC, 0);
	int r = drain->directory_fd < 0 ? -errno : 0;
	uint64_t rings = drain->view.layout->areas[HL_AREA_RINGS].capacity / HL_RING_STRIDE;
	if (r == 0)
		r = hl_ring_set_init(&drain->rings,
				     rings < HL_THREADS_MAX ? (uint32_t)rings : HL_THREADS_MAX);
	if (r == 0)
		r = make_writers(drain, settings);
	if (r < 0) {
		drain_free(drain);
		return r;
	}
	*ret_drain = drain;
	return 0;
}
