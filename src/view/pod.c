/* SPDX-License-Identifier: BSD-2-Clause */
/* Shows what a control group is charged with; see heap.h. */
#include "heap/pod.h"
#include "view/heap.h"

#include "base/names.h"
#include "base/text.h"
#include "view/format.h"
#include "view/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_USUAL     30
#define FILES_USUAL    10
#define LABEL_MAX      300
#define NAME_MAX_SHOWN 99

#define BYTES(number) hl_format_bytes((int64_t)(number), (char[HL_FORMAT_MAX]){0})

static const char *const kinds[HL_POD_KINDS] = {"anonymous", "shared", "cache", "kernel",
						"unknown"};

/* ---- sentences ---- */

static void say_limit(struct hl_emit *emit, const struct hl_pod *pod)
{
	const struct hl_cgroup_figures *figures = &pod->figures;
	char limit[128 + PATH_MAX] = "without a limit", peak[64] = "", kills[96] = "";

	if (figures->limit != HL_CGROUP_UNKNOWN)
		snprintf(limit, sizeof(limit), "of %s, the limit%s%s, %s left",
			 BYTES(figures->limit),
			 strcmp(figures->limit_path, pod->name) ? " of " : "",
			 strcmp(figures->limit_path, pod->name) ? figures->limit_path : "",
			 BYTES(figures->limit > figures->usage ? figures->limit - figures->usage
							       : 0));
	if (figures->peak != HL_CGROUP_UNKNOWN)
		snprintf(peak, sizeof(peak), "; at most %s so far", BYTES(figures->peak));
	if (figures->oom_kills != HL_CGROUP_UNKNOWN && figures->oom_kills)
		snprintf(kills, sizeof(kills),
			 "; the kernel has killed %" PRIu64 " process%s for want of memory",
			 figures->oom_kills, figures->oom_kills == 1 ? "" : "es");
	hl_emit_line(emit, "group %s: %s %s%s%s", pod->name, BYTES(figures->usage), limit, peak,
		     kills);
}

/* Long names lose their middle, so that ends tell them apart. */
static const char *shortened(const char *name, char text[NAME_MAX_SHOWN + 8])
{
	size_t length = strlen(name);

	if (length <= NAME_MAX_SHOWN)
		return name;
	snprintf(text, NAME_MAX_SHOWN + 8, "%.*s...%s", NAME_MAX_SHOWN / 3, name,
		 name + length - NAME_MAX_SHOWN * 2 / 3);
	return text;
}

static void name_row(const struct hl_pod_row *row, char label[LABEL_MAX])
{
	char text[NAME_MAX_SHOWN + 8];

	if (!row->name)
		snprintf(label, LABEL_MAX, "%s (%d)", row->comm, row->pid);
	else if (row->pid)
		snprintf(label, LABEL_MAX, "%s of %s (%d)", shortened(row->name, text), row->comm,
			 row->pid);
	else
		snprintf(label, LABEL_MAX, "%s", shortened(row->name, text));
}

static void say_largest(struct hl_emit *emit, const struct hl_pod *pod)
{
	static const char *const says[HL_POD_KINDS] = {
		"anonymous memory of processes", "files in memory: tmpfs, memfd, shared memory",
		"page cache of files on disks", "the kernel's own", "unknown"};
	size_t largest = 0;
	char label[LABEL_MAX];

	for (size_t i = 1; i < HL_POD_KINDS; i++)
		if (pod->sums[i] > pod->sums[largest])
			largest = i;
	if (!pod->sums[largest])
		return;
	for (size_t i = 0; i < pod->row_count; i++) {
		if (pod->rows[i].kind != largest || pod->rows[i].bytes <= 0 ||
		    (largest == HL_POD_CACHE && !pod->has_pages))
			continue;
		name_row(&pod->rows[i], label);
		hl_emit_line(emit, "the largest part is %s, %s; of its rows the largest is %s, %s",
			     says[largest], BYTES(pod->sums[largest]), label,
			     BYTES(pod->rows[i].bytes));
		return;
	}
	hl_emit_line(emit, "the largest part is %s, %s", says[largest], BYTES(pod->sums[largest]));
}

static void say_rest(struct hl_emit *emit, const struct hl_pod *pod)
{
	const struct hl_cgroup_figures *figures = &pod->figures;

	hl_emit_line(emit, "the kernel can take back %s by itself (page cache%s); %s it cannot%s",
		     BYTES(pod->reclaimable_bytes), pod->reclaims_slab ? ", slab" : "",
		     BYTES(hl_pod_unreclaimable(pod)),
		     figures->swap_limit == 0 ? ", because the group may not swap"
					      : ", except by swapping, where that is possible");
	hl_emit_line(emit, "kubelet's working set, usage without inactive page cache: %s",
		     BYTES(hl_pod_working_set(pod)));
	hl_emit_line(
		emit,
		"RSS of its %zu process%s adds up to %s, where shared pages count once for each",
		pod->process_count, pod->process_count == 1 ? "" : "es", BYTES(pod->rss_bytes));
	if (pod->removed_bytes)
		hl_emit_line(emit, "still charged to subgroups that were removed: %s",
			     BYTES(pod->removed_bytes));
	if (figures->swap != HL_CGROUP_UNKNOWN && figures->swap)
		hl_emit_line(emit, "on swap, beside these: %s", BYTES(figures->swap));
}

static void say_growth(struct hl_emit *emit, const char *group)
{
	char *command = NULL;
	size_t length;
	FILE *out = hl_words_has_control(group) ? NULL : open_memstream(&command, &length);

	if (!out)
		return;
	fputs("heapline pod --growth 60 --cgroup ", out);
	hl_words_put(out, group);
	if (fclose(out) == 0)
		hl_emit_next(emit, command);
	free(command);
}

/* The command that goes on from the largest row that one of heapline's leads on from: of processes their heap; of the rest,
 * where pages can be read, what made it grow. */
static void say_next(struct hl_emit *emit, const struct hl_pod *pod)
{
	char command[64];

	for (size_t i = 0; i < pod->row_count; i++) {
		const struct hl_pod_row *row = &pod->rows[i];
		bool is_processes = row->pid && row->kind != HL_POD_CACHE;
		if (row->bytes <= 0 || row->kind == HL_POD_UNKNOWN ||
		    (!is_processes && (!pod->has_pages || !pod->process_count)))
			continue;
		if (is_processes || !hl_words_has_control(pod->name))
			hl_emit_blank(emit);
		snprintf(command, sizeof(command), "heapline heap -p %d", row->pid);
		if (is_processes)
			hl_emit_next(emit, command);
		else
			say_growth(emit, pod->name);
		return;
	}
}

/* ---- members ---- */

static void emit_figure(struct hl_emit *emit, const char *key, uint64_t figure)
{
	if (figure == HL_CGROUP_UNKNOWN)
		hl_emit_unknown(emit, key);
	else
		hl_emit_unsigned(emit, key, figure);
}

static void emit_members(struct hl_emit *emit, const struct hl_pod *pod)
{
	static const char *const keys[HL_POD_KINDS] = {
		"anonymous_bytes", "shared_bytes", "cache_bytes", "kernel_bytes", "unknown_bytes"};
	const struct hl_cgroup_figures *figures = &pod->figures;

	hl_emit_text(emit, "group", pod->name);
	hl_emit_integer(emit, "cgroup_version", pod->is_v2 ? 2 : 1);
	hl_emit_unsigned(emit, "usage_bytes", figures->usage);
	emit_figure(emit, "limit_bytes", figures->limit);
	hl_emit_text(emit, "limit_group", figures->limit_path);
	emit_figure(emit, "peak_bytes", figures->peak);
	emit_figure(emit, "oom_kills", figures->oom_kills);
	emit_figure(emit, "swap_bytes", figures->swap);
	emit_figure(emit, "swap_limit_bytes", figures->swap_limit);
	hl_emit_unsigned(emit, "working_set_bytes", hl_pod_working_set(pod));
	hl_emit_unsigned(emit, "reclaimable_bytes", pod->reclaimable_bytes);
	hl_emit_unsigned(emit, "rss_bytes", pod->rss_bytes);
	emit_figure(emit, "removed_bytes", pod->has_pages ? pod->removed_bytes : HL_CGROUP_UNKNOWN);
	hl_emit_unsigned(emit, "processes", pod->process_count);
	hl_emit_object(emit, "total");
	for (size_t i = 0; i < HL_POD_KINDS; i++)
		hl_emit_unsigned(emit, keys[i], pod->sums[i]);
	hl_emit_object_end(emit);
}

static void emit_notes(struct hl_emit *emit, const struct hl_pod *pod)
{
	hl_emit_array(emit, "notes");
	for (char *const *text = pod->notes; text && *text; text++) {
		hl_emit_text(emit, NULL, *text);
		hl_emit_warning(emit, "%s", *text);
	}
	hl_emit_array_end(emit);
}

/* ---- tables ---- */

static void kind_cell(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_text(emit, kinds[((const struct hl_pod_row *)row)->kind]);
}

static void label_cell(struct hl_emit *emit, const void *row, const void *context)
{
	char label[LABEL_MAX];

	(void)context;
	name_row(row, label);
	hl_cell_text(emit, label);
}

static void name_cell(struct hl_emit *emit, const void *row, const void *context)
{
	const char *name = ((const struct hl_pod_row *)row)->name;

	(void)context;
	hl_cell_text(emit, name ? name : "");
}

static void pid_cell(struct hl_emit *emit, const void *row, const void *context)
{
	pid_t pid = ((const struct hl_pod_row *)row)->pid;

	(void)context;
	if (pid)
		hl_cell_integer(emit, pid);
	else
		hl_cell_unknown(emit);
}

/* Members of files; of other rows unknown. */
static void emit_pages(struct hl_emit *emit, const struct hl_pod_row *row, const uint64_t *member)
{
	if (row->has_pages)
		hl_cell_unsigned(emit, *member);
	else
		hl_cell_unknown(emit);
}

static void parts_cell(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_pod_row *process = row;

	(void)context;
	if (!process->part_count)
		return;
	hl_emit_array(emit, "parts");
	for (size_t i = 0; i < process->part_count; i++) {
		hl_emit_object(emit, NULL);
		hl_emit_text(emit, "part", process->parts[i].name);
		hl_emit_unsigned(emit, "bytes", process->parts[i].bytes);
		hl_emit_object_end(emit);
	}
	hl_emit_array_end(emit);
}

#define PAGE_CELL(name)                                                                     \
	static void name##_cell(struct hl_emit *emit, const void *row, const void *context) \
	{                                                                                   \
		(void)context;                                                              \
		emit_pages(emit, row, &((const struct hl_pod_row *)row)->name);             \
	}

PAGE_CELL(active_bytes)
PAGE_CELL(dirty_bytes)
PAGE_CELL(mapped_bytes)
PAGE_CELL(locked_bytes)

#define ROW(name)   HL_MEMBER(struct hl_pod_row, name)
#define FILE_(name) HL_MEMBER(struct hl_pod_file, name)

static const struct hl_column row_columns[] = {
	{"bytes", "bytes", HL_COLUMN_BYTES, ROW(bytes)},
	{NULL, "share", HL_COLUMN_SHARE, ROW(bytes)},
	{"kind", "kind", HL_COLUMN_TEXT, .cell = kind_cell},
	{NULL, "what", HL_COLUMN_TEXT, .cell = label_cell, .flags = HL_COLUMN_KEY},
	{"name", NULL, HL_COLUMN_TEXT, .cell = name_cell},
	{"pid", NULL, HL_COLUMN_NUMBER, .cell = pid_cell},
	{"comm", NULL, HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct hl_pod_row, comm)},
	{"detail", "", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct hl_pod_row, detail),
	 HL_COLUMN_OMITTED},
	{"active_bytes", NULL, HL_COLUMN_BYTES, .cell = active_bytes_cell},
	{"dirty_bytes", NULL, HL_COLUMN_BYTES, .cell = dirty_bytes_cell},
	{"mapped_bytes", NULL, HL_COLUMN_BYTES, .cell = mapped_bytes_cell},
	{"locked_bytes", NULL, HL_COLUMN_BYTES, .cell = locked_bytes_cell},
	{"parts", NULL, HL_COLUMN_MEMBERS, .cell = parts_cell},
};

static void file_pid_cell(struct hl_emit *emit, const void *row, const void *context)
{
	(void)context;
	hl_cell_integer(emit, ((const struct hl_pod_file *)row)->pid);
}

static const struct hl_column file_columns[] = {
	{"cached_bytes", "cached", HL_COLUMN_BYTES, FILE_(cached_bytes)},
	{"dirty_bytes", "dirty", HL_COLUMN_BYTES, FILE_(dirty_bytes), HL_COLUMN_BLANK_ZERO},
	{"pid", "pid", HL_COLUMN_NUMBER, .cell = file_pid_cell},
	{"comm", "program", HL_COLUMN_TEXT, HL_MEMBER_ARRAY(struct hl_pod_file, comm)},
	{"path", "file", HL_COLUMN_TEXT, HL_MEMBER(struct hl_pod_file, path),
	 HL_COLUMN_PATH | HL_COLUMN_KEY},
};

int hl_pod_view(const struct hl_pod *pod, const struct hl_emit_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_open(options, "pod/1", &emit);
	if (r < 0)
		return r;
	emit_members(emit, pod);
	say_limit(emit, pod);
	say_largest(emit, pod);
	say_rest(emit, pod);
	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("rows", row_columns),
						.sum = (int64_t)pod->figures.usage});
	size_t shown = hl_emit_shown(emit, options->row_limit, ROWS_USUAL, pod->row_count);
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &pod->rows[i], 0);
	hl_table_end(emit);
	hl_emit_more(emit, pod->row_count - shown, "-n");
	if ((pod->file_count && !pod->has_pages) || hl_emit_is_json(emit)) {
		hl_emit_blank(emit);
		hl_emit_line(emit, "%s",
			     "in the page cache, of files that its processes have open or mapped, "
			     "whichever group is charged:");
		shown = hl_emit_shown(emit, options->row_limit, FILES_USUAL, pod->file_count);
		hl_table_begin(emit, &(struct hl_table){HL_TABLE("files", file_columns)});
		for (size_t i = 0; i < shown; i++)
			hl_table_row(emit, &pod->files[i], 0);
		hl_table_end(emit);
		hl_emit_more(emit, pod->file_count - shown, "-n");
	}
	emit_notes(emit, pod);
	say_next(emit, pod);
	return hl_emit_finish(emit);
}
