/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heapline export --format perfetto: a trace for https://ui.perfetto.dev and trace_processor, packet by packet: a heap profile with what was allocated and
 * freed, a second one of the peak, and the figures of a log as counters. Time begins with the recording.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "view/export/stack_table.h"
#include "view/summary.h"

#include "perfetto.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS     1000000
#define SEQUENCE      1
#define FLAG_BEGINS   1
#define FLAG_USES     2
#define UNIT_BYTES    3
#define TYPE_COUNTER  4
#define SAMPLES_MAX   1000 /* of a packet */
#define MAPPING_BYTES INT64_MAX

enum track { TRACK_PROCESS = 1, TRACK_INUSE, TRACK_RSS };

struct exporter {
	ProtobufCBuffer base; /* first, so that append() finds the rest */
	FILE *out;
	const struct hl_profile *profile;
	const struct hl_stack_table *table;
	uint64_t pid, packets;
	bool has_begun; /* interned data */
	int error;
};

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *bytes)
{
	fwrite(bytes, 1, size, ((struct exporter *)buffer)->out);
}

static void put(struct exporter *exporter, Perfetto__TracePacket *packet)
{
	Perfetto__Trace trace = PERFETTO__TRACE__INIT;

	packet->has_trusted_packet_sequence_id = packet->has_sequence_flags = true;
	packet->trusted_packet_sequence_id = SEQUENCE;
	packet->sequence_flags = exporter->has_begun ? FLAG_USES : FLAG_BEGINS;
	exporter->has_begun = true;
	trace.n_packet = 1;
	trace.packet = &packet;
	perfetto__trace__pack_to_buffer(&trace, &exporter->base);
}

/* ---- tracks ---- */

static void put_track(struct exporter *exporter, enum track track, const char *name)
{
	Perfetto__TracePacket packet = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__TrackDescriptor descriptor = PERFETTO__TRACK_DESCRIPTOR__INIT;
	Perfetto__ProcessDescriptor process = PERFETTO__PROCESS_DESCRIPTOR__INIT;
	Perfetto__CounterDescriptor counter = PERFETTO__COUNTER_DESCRIPTOR__INIT;
	HL_FREED char *clean = hl_utf8_clean(name);

	if (!clean) {
		exporter->error = -ENOMEM;
		return;
	}
	descriptor.has_uuid = true;
	descriptor.uuid = track;
	if (track == TRACK_PROCESS) {
		process.has_pid = true;
		process.pid = (int32_t)exporter->pid;
		process.process_name = clean;
		descriptor.process = &process;
	} else {
		counter.has_unit = descriptor.has_parent_uuid = true;
		counter.unit = UNIT_BYTES;
		descriptor.parent_uuid = TRACK_PROCESS;
		descriptor.name = clean;
		descriptor.counter = &counter;
	}
	packet.track_descriptor = &descriptor;
	put(exporter, &packet);
}

static void put_counter(struct exporter *exporter, enum track track, uint64_t ms, int64_t figure)
{
	Perfetto__TracePacket packet = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__TrackEvent event = PERFETTO__TRACK_EVENT__INIT;

	event.has_type = event.has_track_uuid = event.has_counter_value = true;
	event.type = TYPE_COUNTER;
	event.track_uuid = track;
	event.counter_value = figure;
	packet.has_timestamp = true;
	packet.timestamp = ms * NS_PER_MS;
	packet.track_event = &event;
	put(exporter, &packet);
}

static void put_history(struct exporter *exporter, const struct hl_history *history)
{
	put_track(exporter, TRACK_INUSE, "in use");
	put_track(exporter, TRACK_RSS, "Rss");
	for (size_t i = 0; i < history->point_count; i++) {
		const struct hl_log_point *point = &history->points[i];
		put_counter(exporter, TRACK_INUSE, hl_history_head_ms(point), point->max_bytes);
		if (point->rss_bytes)
			put_counter(exporter, TRACK_RSS, hl_history_head_ms(point),
				    (int64_t)point->rss_bytes);
	}
}

/* ---- names and stacks ---- */

static void put_interned(struct exporter *exporter, Perfetto__InternedData *interned)
{
	Perfetto__TracePacket packet = PERFETTO__TRACE_PACKET__INIT;

	packet.interned_data = interned;
	put(exporter, &packet);
}

enum kind { KIND_FUNCTION, KIND_SOURCE, KIND_PATH };

static void put_string(struct exporter *exporter, enum kind kind, uint64_t iid, const char *text)
{
	Perfetto__InternedData interned = PERFETTO__INTERNED_DATA__INIT;
	Perfetto__InternedString string = PERFETTO__INTERNED_STRING__INIT, *pointer = &string;
	HL_FREED char *clean = hl_utf8_clean(text);

	if (!clean) {
		exporter->error = -ENOMEM;
		return;
	}
	string.has_iid = string.has_str = true;
	string.iid = iid;
	string.str = (ProtobufCBinaryData){strlen(clean), (uint8_t *)clean};
	*(kind == KIND_FUNCTION ? &interned.n_function_names
	  : kind == KIND_SOURCE ? &interned.n_source_paths
				: &interned.n_mapping_paths) = 1;
	interned.function_names = interned.source_paths = interned.mapping_paths = &pointer;
	put_interned(exporter, &interned);
}

/* One for each module, 0 for frames without one: readers leave out frames that have no mapping. */
static void put_mappings(struct exporter *exporter)
{
	const struct hl_profile *profile = exporter->profile;

	for (uint64_t i = 0; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		Perfetto__InternedData interned = PERFETTO__INTERNED_DATA__INIT;
		Perfetto__Mapping mapping = PERFETTO__MAPPING__INIT, *pointer = &mapping;
		Perfetto__InternedString build_id = PERFETTO__INTERNED_STRING__INIT,
					 *build_id_pointer = &build_id;
		uint64_t iid = i + 1;
		put_string(exporter, KIND_PATH, iid,
			   module->path ? hl_profile_text(profile, module->path) : "");
		mapping.has_iid = mapping.has_end = mapping.has_start = true;
		mapping.iid = iid;
		mapping.end = MAPPING_BYTES;
		mapping.n_path_string_ids = 1;
		mapping.path_string_ids = &iid;
		build_id.has_iid = build_id.has_str = mapping.has_build_id = true;
		build_id.iid = mapping.build_id = iid;
		build_id.str =
			(ProtobufCBinaryData){module->build_id_bytes, (uint8_t *)module->build_id};
		interned.n_mappings = interned.n_build_ids = 1;
		interned.mappings = &pointer;
		interned.build_ids = &build_id_pointer;
		put_interned(exporter, &interned);
	}
}

static void put_frame(struct exporter *exporter, size_t i)
{
	const struct hl_export_frame *frame = &exporter->table->frames[i];
	const struct hl_profile_frame *from = &exporter->profile->frames[frame->frame];
	Perfetto__InternedData interned = PERFETTO__INTERNED_DATA__INIT;
	Perfetto__Frame message = PERFETTO__FRAME__INIT, *pointer = &message;

	message.has_iid = message.has_function_name_id = message.has_mapping_id =
		message.has_rel_pc = true;
	message.iid = i + 1;
	message.function_name_id = frame->name + UINT64_C(1);
	message.mapping_id = exporter->profile->functions[from->function].module + UINT64_C(1);
	message.rel_pc = from->address;
	if (frame->file) {
		message.has_source_path_iid = true;
		message.source_path_iid = frame->file;
	}
	if (frame->line) {
		message.has_line_number = true;
		message.line_number = frame->line;
	}
	interned.n_frames = 1;
	interned.frames = &pointer;
	put_interned(exporter, &interned);
}

static int put_frames(struct exporter *exporter)
{
	const struct hl_profile *profile = exporter->profile;
	const struct hl_stack_table *table = exporter->table;
	HL_FREED bool *has_name = calloc(profile->strings.count + 1, sizeof(*has_name));
	HL_FREED bool *has_file = calloc(profile->strings.count + 1, sizeof(*has_file));

	if (!has_name || !has_file)
		return -ENOMEM;
	for (size_t i = 0; i < table->frame_count; i++) {
		const struct hl_export_frame *frame = &table->frames[i];
		if (!has_name[frame->name])
			put_string(exporter, KIND_FUNCTION, frame->name + UINT64_C(1),
				   hl_stack_table_name(table, profile, i));
		if (frame->file && !has_file[frame->file])
			put_string(exporter, KIND_SOURCE, frame->file,
				   hl_profile_text(profile, frame->file));
		has_name[frame->name] = has_file[frame->file] = true;
		put_frame(exporter, i);
	}
	return 0;
}

static int put_callstacks(struct exporter *exporter)
{
	const struct hl_calltree *tree = &exporter->table->tree;
	HL_FREED uint64_t *ids = calloc(tree->depth_max + 1, sizeof(*ids));

	for (size_t i = 0; ids && i < tree->count; i++) {
		Perfetto__InternedData interned = PERFETTO__INTERNED_DATA__INIT;
		Perfetto__Callstack stack = PERFETTO__CALLSTACK__INIT, *pointer = &stack;
		if (!hl_profile_counters_any(&exporter->table->sums[i]))
			continue;
		size_t length = i ? tree->nodes[i].depth : 1, node = i;
		for (size_t at = length; at-- > 0; node = tree->nodes[node].parent)
			ids[at] = exporter->table->frame_of[node] + UINT64_C(1);
		stack.has_iid = true;
		stack.iid = i + 1;
		stack.n_frame_ids = length;
		stack.frame_ids = ids;
		interned.n_callstacks = 1;
		interned.callstacks = &pointer;
		put_interned(exporter, &interned);
	}
	return ids ? 0 : -ENOMEM;
}

/* ---- figures ---- */

/* Whether node ${node} has any of it. ${at_peak}: what it had then, else what was allocated and freed. */
static bool make_sample(const struct exporter *exporter, size_t node, bool at_peak,
			Perfetto__ProfilePacket__HeapSample *sample)
{
	const struct hl_stack_table *table = exporter->table;
	const struct hl_profile *profile = exporter->profile;
	int64_t bytes = hl_stack_table_allocated(table, profile, node, HL_UNIT_BYTES);
	int64_t count = hl_stack_table_allocated(table, profile, node, HL_UNIT_OBJECTS);
	int64_t peak = hl_stack_table_figure(table, profile, node, HL_VALUE_PEAK, HL_UNIT_BYTES);

	*sample = (Perfetto__ProfilePacket__HeapSample)PERFETTO__PROFILE_PACKET__HEAP_SAMPLE__INIT;
	sample->has_callstack_id = true;
	sample->callstack_id = node + 1;
	if (at_peak) {
		sample->has_self_max = sample->has_alloc_count = true;
		sample->self_max = (uint64_t)peak;
		sample->alloc_count = (uint64_t)hl_stack_table_figure(
			table, profile, node, HL_VALUE_PEAK, HL_UNIT_OBJECTS);
		return peak;
	}
	sample->has_self_allocated = sample->has_self_freed = true;
	sample->has_alloc_count = sample->has_free_count = true;
	sample->self_allocated = (uint64_t)bytes;
	sample->self_freed =
		(uint64_t)(bytes - hl_stack_table_figure(table, profile, node, HL_VALUE_INUSE,
							 HL_UNIT_BYTES));
	sample->alloc_count = (uint64_t)count;
	sample->free_count =
		(uint64_t)(count - hl_stack_table_figure(table, profile, node, HL_VALUE_INUSE,
							 HL_UNIT_OBJECTS));
	return bytes || count;
}

static void put_samples(struct exporter *exporter, Perfetto__ProfilePacket__HeapSample **samples,
			size_t count, bool at_peak, bool is_last)
{
	const struct hl_profile *profile = exporter->profile;
	Perfetto__TracePacket packet = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__ProfilePacket heap = PERFETTO__PROFILE_PACKET__INIT;

	Perfetto__ProfilePacket__ProcessHeapSamples
		process = PERFETTO__PROFILE_PACKET__PROCESS_HEAP_SAMPLES__INIT,
		*pointer = &process;

	process.has_pid = process.has_timestamp = process.has_from_startup = true;
	process.has_sampling_interval_bytes = true;
	process.pid = exporter->pid;
	process.timestamp = profile->duration_ns;
	process.from_startup = !profile->attached;
	process.heap_name = (char *)(at_peak ? "malloc at the peak" : "malloc");
	process.sampling_interval_bytes = profile->sample_bytes ? profile->sample_bytes : 1;
	process.n_samples = count;
	process.samples = samples;
	heap.n_process_dumps = 1;
	heap.process_dumps = &pointer;
	heap.has_continued = heap.has_index = true;
	heap.continued = !is_last;
	heap.index = exporter->packets++;
	packet.has_timestamp = true;
	packet.timestamp = profile->duration_ns;
	packet.profile_packet = &heap;
	put(exporter, &packet);
}

static int put_heap(struct exporter *exporter, bool at_peak)
{
	HL_FREED Perfetto__ProfilePacket__HeapSample *samples =
		calloc(SAMPLES_MAX, sizeof(*samples));
	HL_FREED Perfetto__ProfilePacket__HeapSample **pointers =
		calloc(SAMPLES_MAX, sizeof(Perfetto__ProfilePacket__HeapSample *));
	size_t count = 0;

	if (!samples || !pointers)
		return -ENOMEM;
	for (size_t i = 0; i < exporter->table->tree.count; i++) {
		pointers[count] = &samples[count];
		if (!make_sample(exporter, i, at_peak, &samples[count]))
			continue;
		if (++count == SAMPLES_MAX) {
			put_samples(exporter, pointers, count, at_peak, false);
			count = 0;
		}
	}
	put_samples(exporter, pointers, count, at_peak, true);
	return 0;
}

/* ---- all of it ---- */

int hl_perfetto_view(const struct hl_profile *profile, const struct hl_view_options *options,
		     struct hl_error *err)
{
	HL_CLEANUP(hl_stack_table_release) struct hl_stack_table table = {0};
	struct exporter exporter = {
		.base = {append},
		.out = options->out,
		.profile = profile,
		.table = &table,
		.pid = profile->process_count ? (uint64_t)profile->processes[0].pid : 0,
	};

	int r = hl_stack_table_init(&table, profile, options);
	if (r == 0) {
		put_track(&exporter, TRACK_PROCESS, hl_profile_text(profile, profile->command));
		if (options->report.history)
			put_history(&exporter, options->report.history);
		put_mappings(&exporter);
		r = put_frames(&exporter);
	}
	if (r == 0)
		r = put_callstacks(&exporter);
	if (r == 0)
		r = put_heap(&exporter, false);
	if (r == 0 && hl_profile_knows(profile, HL_VALUE_PEAK, HL_UNIT_BYTES))
		r = put_heap(&exporter, true);
	if (r == 0)
		r = exporter.error ? exporter.error : ferror(options->out) ? -EIO : 0;
	if (r == 0)
		r = hl_summary_note(profile, options);
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
