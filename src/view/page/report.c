/* SPDX-License-Identifier: BSD-2-Clause */
/* heapline report: one page of HTML with every view, which needs nothing else. */
#include "view/page/report.h"

#include "base/cleanup.h"
#include "base/encode.h"
#include "profile/filter.h"
#include "view/summary.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- the data of the page ---- */

/* One of the figures that the profile knows. */
struct figure {
	enum hl_value value;
	enum hl_unit unit;
};

#define SCHEMA	    "report/1"
#define THREADS_MAX 100 /* as many as one chooses from */

/* What the rows of one leaf and one thread add up to. */
struct thread_leaf {
	uint32_t thread, leaf;
	struct hl_profile_counters counters;
};

/* A thread that the page offers, and the run of thread_leaves that is its own. */
struct thread {
	uint32_t thread; /* of the profile */
	size_t first, count;
	int64_t alloc_bytes;
};

struct report_data {
	const struct hl_profile *profile;
	const struct hl_report_history *history; /* NULL: none */
	struct figure figures[HL_VALUE_COUNT * HL_UNIT_COUNT];
	size_t figure_count;
	uint32_t *texts; /* string ids in the order of their texts; [0] is "" */
	size_t text_count;
	uint32_t *text_of; /* by string id: its place in texts */
	uint32_t *leaves;  /* nodes with figures */
	uint32_t *leaf_of; /* by node: its place in leaves, where it is one */
	size_t leaf_count;
	struct thread_leaf *thread_leaves; /* by thread, then by leaf */
	struct thread *threads;		   /* heaviest first */
	size_t thread_count;
};

static void release(struct report_data *data)
{
	free(data->texts);
	free(data->text_of);
	free(data->leaves);
	free(data->leaf_of);
	free(data->thread_leaves);
	free(data->threads);
}

/* ---- what there is to write ---- */

static void collect_text(struct report_data *data, uint32_t id)
{
	if (!id || data->text_of[id])
		return;
	data->text_of[id] = (uint32_t)data->text_count;
	data->texts[data->text_count++] = id;
}

static int by_text(const void *left, const void *right, void *profile)
{
	return strcmp(hl_profile_text(profile, *(const uint32_t *)left),
		      hl_profile_text(profile, *(const uint32_t *)right));
}

/* In order, so that the page can sort names by comparing numbers. */
static int collect_texts(struct report_data *data)
{
	const struct hl_profile *profile = data->profile;
	size_t room = profile->strings.count + 1;

	data->texts = calloc(room, sizeof(*data->texts));
	data->text_of = calloc(room, sizeof(*data->text_of));
	if (!data->texts || !data->text_of)
		return -ENOMEM;
	data->text_count = 1;
	for (size_t i = 1; i < profile->function_count; i++) {
		collect_text(data, profile->functions[i].label);
		collect_text(data, profile->functions[i].file);
	}
	for (size_t i = 1; i < profile->frame_count; i++)
		collect_text(data, profile->frames[i].file);
	qsort_r(data->texts + 1, data->text_count - 1, sizeof(*data->texts), by_text,
		(void *)profile);
	for (size_t i = 1; i < data->text_count; i++)
		data->text_of[data->texts[i]] = (uint32_t)i;
	return 0;
}

static int collect_leaves(struct report_data *data)
{
	const struct hl_profile *profile = data->profile;

	data->leaves = calloc(profile->node_count, sizeof(*data->leaves));
	data->leaf_of = calloc(profile->node_count, sizeof(*data->leaf_of));
	if (!data->leaves || !data->leaf_of)
		return -ENOMEM;
	/* Nodes that have no figure of the whole, but of some moment. */
	for (size_t i = 0; data->history && i < data->history->change_count; i++)
		data->leaf_of[data->history->changes[i].node] = 1;
	for (uint32_t i = 0; i < profile->node_count; i++) {
		if (!data->leaf_of[i] && !hl_profile_counters_any(&profile->counters[i]) &&
		    !(profile->base && hl_profile_counters_any(&profile->base[i])))
			continue;
		data->leaf_of[i] = (uint32_t)data->leaf_count;
		data->leaves[data->leaf_count++] = i;
	}
	return 0;
}

static int by_thread_and_leaf(const void *left, const void *right)
{
	const struct thread_leaf *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return (a->leaf > b->leaf) - (a->leaf < b->leaf);
}

static int heavier_first(const void *left, const void *right)
{
	const struct thread *a = left, *b = right;

	if (a->alloc_bytes != b->alloc_bytes)
		return a->alloc_bytes < b->alloc_bytes ? 1 : -1;
	return (a->thread > b->thread) - (a->thread < b->thread);
}

static int collect_threads(struct report_data *data)
{
	const struct hl_profile *profile = data->profile;
	size_t count = 0, merged = 0;

	if (profile->base || profile->thread_count < 2 || !profile->row_count)
		return 0;
	struct thread_leaf *sums = data->thread_leaves = calloc(profile->row_count, sizeof(*sums));
	data->threads = calloc(profile->thread_count, sizeof(*data->threads));
	if (!sums || !data->threads)
		return -ENOMEM;
	for (size_t i = 0; i < profile->row_count; i++) {
		const struct hl_profile_row *row = &profile->rows[i];
		uint32_t leaf = data->leaf_of[row->node];
		if (leaf < data->leaf_count && data->leaves[leaf] == row->node)
			sums[count++] = (struct thread_leaf){row->thread, leaf, row->counters};
	}
	qsort(sums, count, sizeof(*sums), by_thread_and_leaf);
	for (size_t i = 0; i < count; i++) {
		if (merged && !by_thread_and_leaf(&sums[merged - 1], &sums[i]))
			hl_profile_counters_add(&sums[merged - 1].counters, &sums[i].counters);
		else
			sums[merged++] = sums[i];
	}
	for (size_t i = 0; i < merged; i++) {
		if (!i || sums[i - 1].thread != sums[i].thread)
			data->threads[data->thread_count++] =
				(struct thread){.thread = sums[i].thread, .first = i};
		struct thread *thread = &data->threads[data->thread_count - 1];
		thread->count++;
		thread->alloc_bytes += sums[i].counters.alloc_bytes;
	}
	qsort(data->threads, data->thread_count, sizeof(*data->threads), heavier_first);
	if (data->thread_count > THREADS_MAX)
		data->thread_count = THREADS_MAX;
	return 0;
}

/* ---- the object ---- */

/* Begins the object: what it says on its own, without columns. */
static int write_summary(struct hl_emit *emit, const struct report_data *data,
			 const struct hl_view_options *options)
{
	const struct hl_profile *profile = data->profile;
	struct hl_notices notices = {0};

	hl_summary_members(emit, profile, options);
	hl_summary_origin(emit, profile);
	hl_emit_text(emit, "filter", hl_profile_text(profile, profile->filter));
	hl_emit_array(emit, "modules");
	for (size_t i = 0; i < profile->module_count; i++) {
		const struct hl_profile_module *module = &profile->modules[i];
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "path", hl_profile_text(profile, module->path));
		hl_emit_text(emit, "symbols", hl_summary_symbols(profile, module));
		hl_emit_text(emit, "reason", hl_profile_text(profile, module->symbols_reason));
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	/* The sentences that other views put at their head. */
	hl_notices_of_profile(&notices, profile);
	if (data->history) {
		hl_notices_of_log_loss(&notices, data->history->history->profile);
		hl_history_head_notices(&notices, data->history->history);
	}
	hl_emit_array(emit, "notes");
	for (size_t i = 0; i < notices.count; i++)
		hl_emit_text(emit, NULL, notices.notices[i].text);
	hl_emit_array_end(emit);
	int r = notices.error;
	hl_notices_release(&notices);
	return r;
}

/* ---- over time ---- */

static uint64_t point_start_ms(const struct hl_report_history *report, size_t point)
{
	return hl_history_start_ms(report->history) +
	       point * report->point_intervals * HL_INTERVAL_TICKS;
}

static void write_timeline(struct hl_emit *emit, const struct hl_report_history *report)
{
	const struct hl_history *history = report->history;
	const struct hl_profile_process *process = history->profile->processes;
	uint64_t start = hl_history_start_ms(history);
	uint64_t log_end = start + hl_history_length_ms(history);
	size_t changes = 0, hole = 0;

	hl_emit_object(emit, "timeline");
	hl_emit_integer(emit, "pid", process->pid);
	hl_emit_text(emit, "command", hl_profile_text(history->profile, process->command));
	hl_emit_integer(emit, "first_ms", (int64_t)start);
	hl_emit_integer(emit, "interval_ms", HL_INTERVAL_TICKS);
	hl_emit_integer(emit, "intervals", (int64_t)history->point_count);
	hl_emit_integer(emit, "point_intervals", (int64_t)report->point_intervals);
	hl_emit_integer(emit, "moment_points", (int64_t)report->moment_points);
	hl_emit_integer(emit, "points", (int64_t)report->point_count);
	hl_emit_integer(emit, "moments", (int64_t)report->moment_count);
	for (size_t i = 0; i < report->moment_count; i++)
		changes += report->moments[i].change_count;
	hl_emit_integer(emit, "changes", (int64_t)changes);
	hl_emit_array(emit, "marks");
	for (size_t i = 0; i < history->log->mark_count; i++) {
		const struct hl_log_mark *mark = &history->log->marks[i];
		if (mark->tick < start || mark->tick >= log_end)
			continue;
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "ms", (int64_t)mark->tick);
		hl_emit_text(emit, "text", mark->text);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_array(emit, "holes");
	for (size_t i = 0; i < report->point_count; i++) {
		bool is_last = i + 1 == report->point_count;
		if (!report->points[i].missing)
			hole = i + 1;
		if (!report->points[i].missing || (!is_last && report->points[i + 1].missing))
			continue;
		uint64_t end = point_start_ms(report, i + 1);
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "first_ms", (int64_t)point_start_ms(report, hole));
		hl_emit_integer(emit, "last_ms", (int64_t)(end < log_end ? end : log_end) - 1);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_object_end(emit);
}

/* ---- all of the object ---- */

static int write_object(const struct report_data *data, const struct hl_view_options *options,
			FILE *out)
{
	const struct hl_profile *profile = data->profile;
	struct hl_emit *emit;

	int r = hl_emit_new(out, HL_EMIT_JSON, false, SCHEMA, &emit);
	if (r < 0)
		return r;
	r = write_summary(emit, data, options);
	hl_summary_figure_names(emit, "figures", profile);
	hl_emit_array(emit, "threads");
	for (size_t i = 0; i < data->thread_count; i++) {
		const struct hl_profile_thread *thread = &profile->threads[data->threads[i].thread];
		hl_emit_object(emit, NULL);
		hl_emit_integer(emit, "pid", profile->processes[thread->process].pid);
		hl_emit_integer(emit, "tid", thread->tid);
		hl_emit_text(emit, "name", hl_profile_text(profile, thread->name));
		hl_emit_integer(emit, "leaves", (int64_t)data->threads[i].count);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
	hl_emit_array(emit, "texts");
	for (size_t i = 0; i < data->text_count; i++)
		hl_emit_text(emit, NULL, hl_profile_text(profile, data->texts[i]));
	hl_emit_array_end(emit);
	hl_emit_integer(emit, "functions", (int64_t)profile->function_count);
	hl_emit_integer(emit, "frames", (int64_t)profile->frame_count);
	hl_emit_integer(emit, "nodes", (int64_t)profile->node_count);
	hl_emit_integer(emit, "leaves", (int64_t)data->leaf_count);
	if (data->history)
		write_timeline(emit, data->history);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished == -ENOMEM ? finished : 0;
}

/* ---- the columns ---- */

/* A number in a column. */
static void put_unsigned(FILE *out, uint64_t number)
{
	uint8_t bytes[HL_VARINT_MAX];
	size_t count = hl_varint_put(bytes, number);

	for (size_t i = 0; i < count; i++)
		putc_unlocked(bytes[i], out);
}

static void put_signed(FILE *out, int64_t number)
{
	put_unsigned(out, hl_zigzag(number));
}

static void put_figures(const struct report_data *data, const struct hl_profile_counters *counters,
			FILE *out)
{
	for (size_t i = 0; i < data->figure_count; i++)
		for (size_t j = 0; j < data->leaf_count; j++)
			put_signed(out, hl_profile_figure(&counters[data->leaves[j]],
							  data->figures[i].value,
							  data->figures[i].unit));
}

static void put_timeline(const struct hl_report_history *report, const uint32_t *leaf_of, FILE *out)
{
	const struct hl_report_point *points = report->points;
	const struct hl_report_moment *moments = report->moments;
	const struct hl_report_change *changes = report->changes;

	for (size_t i = 0; i < report->point_count; i++)
		put_unsigned(out, points[i].ms - point_start_ms(report, i));
	for (size_t i = 0; i < report->point_count; i++)
		put_signed(out, points[i].bytes);
	for (size_t i = 0; i < report->point_count; i++)
		put_unsigned(out, points[i].rss_bytes);
	for (size_t i = 0; i < report->moment_count; i++)
		put_unsigned(out, moments[i].point - i * report->moment_points);
	for (size_t i = 0; i < report->moment_count; i++)
		put_unsigned(out, moments[i].change_count);
	for (size_t i = 0; i < report->moment_count; i++) {
		uint32_t before = 0;
		for (size_t j = 0; j < moments[i].change_count; j++) {
			uint32_t leaf = leaf_of[changes[moments[i].first_change + j].node];
			put_unsigned(out, leaf - before);
			before = leaf;
		}
	}
	for (size_t i = 0; i < report->moment_count; i++)
		for (size_t j = 0; j < moments[i].change_count; j++)
			put_signed(out, changes[moments[i].first_change + j].bytes);
	for (size_t i = 0; i < report->moment_count; i++)
		for (size_t j = 0; j < moments[i].change_count; j++)
			put_signed(out, changes[moments[i].first_change + j].objects);
}

static void put_columns(const struct report_data *data, FILE *out)
{
	const struct hl_profile *profile = data->profile;
	const struct hl_profile_function *functions = profile->functions;
	const struct hl_profile_node *nodes = profile->nodes;

	for (size_t i = 1; i < profile->function_count; i++)
		put_unsigned(out, data->text_of[functions[i].label]);
	for (size_t i = 1; i < profile->function_count; i++)
		put_unsigned(out, data->text_of[functions[i].file]);
	for (size_t i = 1; i < profile->function_count; i++)
		put_unsigned(out, functions[i].line);
	for (size_t i = 1; i < profile->function_count; i++)
		put_unsigned(out, functions[i].module);
	for (size_t i = 1; i < profile->function_count; i++)
		put_unsigned(out, profile->is_plumbing && profile->is_plumbing[i]);
	for (size_t i = 1; i < profile->frame_count; i++)
		put_unsigned(out, profile->frames[i].function);
	for (size_t i = 1; i < profile->frame_count; i++)
		put_unsigned(out, data->text_of[profile->frames[i].file]);
	for (size_t i = 1; i < profile->frame_count; i++)
		put_unsigned(out, profile->frames[i].line);
	for (uint32_t i = 1; i < profile->node_count; i++) {
		uint64_t levels = 0;
		for (uint32_t at = i - 1; at != nodes[i].parent; at = nodes[at].parent)
			levels++;
		put_unsigned(out, levels);
	}
	for (uint32_t i = 1; i < profile->node_count; i++)
		put_unsigned(out, nodes[i].frame);
	for (size_t i = 0; i < data->leaf_count; i++)
		put_unsigned(out, data->leaves[i] - (i ? data->leaves[i - 1] : 0));
	put_figures(data, profile->counters, out);
	if (profile->base)
		put_figures(data, profile->base, out);
	for (size_t i = 0; i < data->thread_count; i++) {
		const struct thread_leaf *sums = &data->thread_leaves[data->threads[i].first];
		size_t count = data->threads[i].count;
		for (size_t j = 0; j < count; j++)
			put_unsigned(out, sums[j].leaf - (j ? sums[j - 1].leaf : 0));
		for (size_t k = 0; k < data->figure_count; k++)
			for (size_t j = 0; j < count; j++)
				put_signed(out, hl_profile_figure(&sums[j].counters,
								  data->figures[k].value,
								  data->figures[k].unit));
	}
	if (data->history)
		put_timeline(data->history, data->leaf_of, out);
}

/* ---- all of it ---- */

/*
 * Writes the data to ${out}. ${history}, of that profile, is NULL where nothing is known over time.
 * 0 or -ENOMEM; errors of the output stay in the stream.
 */
static int report_data_write(const struct hl_profile *profile,
			     const struct hl_report_history *history,
			     const struct hl_view_options *options, FILE *out)
{
	HL_CLEANUP(release) struct report_data data = {.profile = profile, .history = history};

	for (int value = 0; value < HL_VALUE_COUNT; value++)
		for (int unit = 0; unit < HL_UNIT_COUNT; unit++)
			if (hl_profile_knows(profile, (enum hl_value)value, (enum hl_unit)unit))
				data.figures[data.figure_count++] =
					(struct figure){(enum hl_value)value, (enum hl_unit)unit};
	int r = collect_texts(&data);
	if (r < 0)
		return r;
	r = collect_leaves(&data);
	if (r < 0)
		return r;
	r = collect_threads(&data);
	if (r < 0)
		return r;
	r = write_object(&data, options, out);
	if (r < 0)
		return r;
	putc('\0', out);
	put_columns(&data, out);
	return 0;
}

/* Writes the members that say something on their own: `heapline report --json`. The same. */
static int report_data_write_summary(const struct hl_profile *profile,
				     const struct hl_view_options *options, FILE *out)
{
	const struct report_data data = {.profile = profile};
	struct hl_emit *emit;

	int r = hl_emit_new(out, HL_EMIT_JSON, false, SCHEMA, &emit);
	if (r < 0)
		return r;
	r = write_summary(emit, &data, options);
	int finished = hl_emit_finish(emit);
	return r < 0 ? r : finished;
}

#define LINE_BYTES  90 /* a multiple of 3: 120 characters of base64 */
#define CHUNK_BYTES 65536
#define LEVEL	    4 /* a third of the time of 6, for pages that are 7 % larger */

struct payload {
	FILE *out;
	z_stream deflater;
	size_t line_used;
	uint8_t line[LINE_BYTES]; /* deflated bytes that do not make a line yet */
	uint8_t chunk[CHUNK_BYTES];
};

/* ---- the data on their way into the page: base64 (RFC 4648, section 4) ---- */

static void put_line(struct payload *payload)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	FILE *out = payload->out;

	for (size_t i = 0; i < payload->line_used; i += 3) {
		const uint8_t *bytes = payload->line + i;
		size_t count = payload->line_used - i;
		uint32_t bits = (uint32_t)bytes[0] << 16 |
				(count > 1 ? (uint32_t)bytes[1] << 8 : 0) |
				(count > 2 ? bytes[2] : 0);
		putc(digits[bits >> 18], out);
		putc(digits[bits >> 12 & 63], out);
		putc(count > 1 ? digits[bits >> 6 & 63] : '=', out);
		putc(count > 2 ? digits[bits & 63] : '=', out);
	}
	putc('\n', out);
	payload->line_used = 0;
}

/* ---- the stream ---- */

/* Deflates what waits in the deflater, and with Z_FINISH all that it holds back. */
static void drain(struct payload *payload, int flush)
{
	z_stream *deflater = &payload->deflater;

	do {
		deflater->next_out = payload->chunk;
		deflater->avail_out = CHUNK_BYTES;
		deflate(deflater, flush); /* cannot fail: the state is sound and there is room */
		for (size_t i = 0; i < CHUNK_BYTES - deflater->avail_out; i++) {
			payload->line[payload->line_used++] = payload->chunk[i];
			if (payload->line_used == LINE_BYTES)
				put_line(payload);
		}
	} while (deflater->avail_out == 0);
}

static ssize_t payload_write(void *cookie, const char *bytes, size_t size)
{
	struct payload *payload = cookie;

	payload->deflater.next_in = (z_const Bytef *)bytes;
	payload->deflater.avail_in = (uInt)size; /* a stdio buffer: small */
	drain(payload, Z_NO_FLUSH);
	return ferror(payload->out) ? 0 : (ssize_t)size;
}

static int payload_close(void *cookie)
{
	struct payload *payload = cookie;

	drain(payload, Z_FINISH);
	if (payload->line_used)
		put_line(payload);
	int r = ferror(payload->out) ? EOF : 0;
	deflateEnd(&payload->deflater);
	free(payload);
	return r;
}

int hl_report_payload_open(FILE *out, FILE **ret_payload)
{
	static const cookie_io_functions_t functions = {.write = payload_write,
							.close = payload_close};
	struct payload *payload = calloc(1, sizeof(*payload));

	if (!payload)
		return -ENOMEM;
	payload->out = out;
	if (deflateInit(&payload->deflater, LEVEL) != Z_OK) {
		free(payload);
		return -ENOMEM;
	}
	FILE *stream = fopencookie(payload, "w", functions);
	if (!stream) {
		deflateEnd(&payload->deflater);
		free(payload);
		return -ENOMEM;
	}
	*ret_payload = stream;
	return 0;
}

/* ---- the page ---- */

/* web/dist/report.html. */
extern const char hl_report_page[];
extern const size_t hl_report_page_size;

/* Where the data go; it stands in the page once. */
#define DATA_MARK "@HEAPLINE_DATA@"

static int write_page(const struct hl_profile *profile, const struct hl_report_history *history,
		      const struct hl_view_options *options)
{
	const char *mark = strstr(hl_report_page, DATA_MARK);
	const char *rest = mark + strlen(DATA_MARK);
	FILE *payload;

	fwrite(hl_report_page, 1, (size_t)(mark - hl_report_page), options->out);
	int r = hl_report_payload_open(options->out, &payload);
	if (r < 0)
		return r;
	r = report_data_write(profile, history, options, payload);
	if (fclose(payload) != 0 && r == 0)
		r = -EIO;
	fwrite(rest, 1, hl_report_page_size - (size_t)(rest - hl_report_page), options->out);
	return r == 0 && ferror(options->out) ? -EIO : r;
}

int hl_report_view(const struct hl_profile *profile, const struct hl_view_options *options,
		   struct hl_error *err)
{
	HL_CLEANUP(hl_report_history_release) struct hl_report_history history = {0};
	int r = -ENODATA;

	if (options->json) {
		r = report_data_write_summary(profile, options, options->out);
		return r < 0 ? hl_summary_fail(profile, r, err) : 0;
	}
	if (options->report.history)
		r = hl_report_history_init(&history, options->report.history, profile, err);
	if (r == 0) {
		r = write_page(history.profile, &history, options);
	} else if (r != -ENOMEM) { /* the page needs no log */
		if (options->report.history)
			fprintf(options->notes, "heapline: nothing is shown over time: %s\n",
				err->text);
		r = write_page(profile, NULL, options);
	}
	return r < 0 ? hl_summary_fail(profile, r, err) : 0;
}
