/* SPDX-License-Identifier: BSD-2-Clause */
/* The balance sheet of a process with services. */
#include "view/heap.h"

#include "guests/skynet/balance.h"

#define ROWS_DEFAULT 30 /* for people */

/* ---- services ---- */

#define BY_SERVICE   1u
#define BY_STATE     2u
#define BY_TYPE	     4u
#define HAS_QUEUES   8u
#define MEMBER(name) HL_MEMBER(struct hl_service, name)

/* By enum hl_services_by. */
static const struct words {
	const char *by, *nobody, *blocks;
	unsigned fact;
} words_of[] = {
	[HL_BY_SERVICE] = {"service", "[no service]", "blocks of all services", BY_SERVICE},
	[HL_BY_STATE] = {"state", "[no state]", "blocks of all states, and of none", BY_STATE},
	[HL_BY_TYPE] = {"type", "[no type]", "blocks of all types", BY_TYPE},
};

static void name(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_service *service = row;
	const struct hl_services *services = context;

	hl_cell_text(emit, service->name ? service->name : words_of[services->by].nobody);
}

static void inuse_bytes(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_service *service = row;

	(void)context;
	hl_cell_integer(emit, service->lua_bytes + service->c_bytes);
}

static void inuse_blocks(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_service *service = row;

	(void)context;
	hl_cell_integer(emit, service->lua_blocks + service->c_blocks);
}

/* Also as a share of Rss. */
static void resident(struct hl_emit *emit, const void *row, const void *context)
{
	const struct hl_service *service = row;

	(void)context;
	if (service->hides_resident)
		hl_cell_unknown(emit);
	else
		hl_cell_unsigned(emit, service->resident_bytes);
}

#define NAME .cell = name, .flags = HL_COLUMN_KEY | HL_COLUMN_SHORTENED

static const struct hl_column service_columns[] = {
	{"service", "service", HL_COLUMN_TEXT, NAME, .shown_if = BY_SERVICE},
	{"state", "state", HL_COLUMN_TEXT, NAME, .shown_if = BY_STATE},
	{"type", "type", HL_COLUMN_TEXT, NAME, .shown_if = BY_TYPE},
	{"handle", NULL, HL_COLUMN_NUMBER, MEMBER(handle), .shown_if = BY_SERVICE},
	{"number", "no.", HL_COLUMN_NUMBER, MEMBER(handle), HL_COLUMN_BLANK_ZERO, BY_STATE},
	{"inuse_bytes", "in use", HL_COLUMN_BYTES, .cell = inuse_bytes},
	{"lua_bytes", "Lua", HL_COLUMN_BYTES, MEMBER(lua_bytes), .shown_if = BY_SERVICE | BY_STATE},
	{"c_bytes", "C", HL_COLUMN_BYTES, MEMBER(c_bytes), .shown_if = BY_SERVICE | BY_STATE},
	{"counted_bytes", "by its own count", HL_COLUMN_BYTES, MEMBER(counted_bytes),
	 .shown_if = BY_STATE},
	{"resident_bytes", "in RAM", HL_COLUMN_BYTES, .cell = resident},
	{NULL, "of RSS", HL_COLUMN_SHARE, .cell = resident},
	{"inuse_blocks", "blocks", HL_COLUMN_COUNT, .cell = inuse_blocks,
	 .flags = HL_COLUMN_OMITTED},
	{"queued_messages", "waiting", HL_COLUMN_COUNT, MEMBER(queued_messages),
	 .shown_if = HAS_QUEUES},
	{"queued_bytes", "their bytes", HL_COLUMN_BYTES, MEMBER(queued_bytes),
	 .shown_if = HAS_QUEUES},
	{"lua_blocks", NULL, HL_COLUMN_COUNT, MEMBER(lua_blocks),
	 .shown_if = BY_SERVICE | BY_STATE},
	{"c_blocks", NULL, HL_COLUMN_COUNT, MEMBER(c_blocks), .shown_if = BY_SERVICE | BY_STATE},
};

/* A service that falls behind may have little itself. */
static void emit_waiting(struct hl_emit *emit, const struct hl_service *hidden, size_t count)
{
	uint64_t messages = 0;
	size_t waiting = 0;

	for (size_t i = 0; i < count; i++) {
		waiting += hidden[i].queued_messages > 0;
		messages += hidden[i].queued_messages;
	}
	if (waiting)
		hl_emit_line(
			emit,
			"%s of them, for which %s messages wait; --sort waiting shows these first",
			HL_HEAP_COUNT(waiting), HL_HEAP_COUNT(messages));
}

static void emit_services(struct hl_emit *emit, const struct hl_services *services,
			  uint64_t row_limit)
{
	size_t shown = hl_emit_shown(emit, row_limit, ROWS_DEFAULT, services->count);
	struct hl_service total = services->total;

	total.name = (char[]){"sum"};
	hl_emit_blank(emit);
	hl_table_begin(emit,
		       &(struct hl_table){HL_TABLE("rows", service_columns), .context = services,
					  .facts = words_of[services->by].fact |
						   (services->has_queues ? HAS_QUEUES : 0),
					  .sum = hl_heap_number(services->rss_bytes)});
	for (size_t i = 0; i < shown; i++)
		hl_table_row(emit, &services->services[i], 0);
	if (!hl_emit_is_json(emit))
		hl_table_row(emit, &total, 0);
	hl_table_end(emit);
	hl_emit_more(emit, services->count - shown, "-n");
	emit_waiting(emit, services->services + shown, services->count - shown);
}

/* ---- resident memory ---- */

struct part {
	const char *name;
	int64_t bytes;
};

static const struct hl_column part_columns[] = {
	{"part", "resident memory", HL_COLUMN_TEXT, HL_MEMBER(struct part, name),
	 HL_COLUMN_SHORTENED | HL_COLUMN_KEY},
	{"bytes", "bytes", HL_COLUMN_BYTES, HL_MEMBER(struct part, bytes)},
	{NULL, "of RSS", HL_COLUMN_SHARE, HL_MEMBER(struct part, bytes)},
};

static void put_part(struct hl_emit *emit, const char *part, int64_t bytes)
{
	if (bytes || hl_emit_is_json(emit))
		hl_table_row(emit, &(struct part){part, bytes}, 0);
}

static void emit_parts(struct hl_emit *emit, const struct hl_services *services)
{
	const char *const names[HL_SERVICES_PARTS] = {
		[HL_SERVICES_BLOCKS] = words_of[services->by].blocks,
		[HL_SERVICES_OLDER] = "blocks from before the recording",
		[HL_SERVICES_ALLOCATOR] =
			services->is_walked ? "the allocator's slack and free memory"
					    : "the allocator's slack, free memory and older blocks",
		[HL_SERVICES_RECORDER] = "heapline's recorder",
		[HL_SERVICES_STACKS] = "stacks of threads",
		[HL_SERVICES_CODE] = "code",
		[HL_SERVICES_FILES] = "other pages of files",
		[HL_SERVICES_SHARED] = "shared memory",
		[HL_SERVICES_VARIABLES] = "variables of program and libraries",
		[HL_SERVICES_OTHER] = "other mappings",
	};

	hl_emit_blank(emit);
	hl_table_begin(emit, &(struct hl_table){HL_TABLE("resident", part_columns),
						.sum = hl_heap_number(services->rss_bytes)});
	for (unsigned part = 0; part < HL_SERVICES_PARTS; part++)
		put_part(emit, names[part], hl_heap_number(services->parts[part]));
	put_part(emit, "remainder", services->remainder_bytes);
	if (!hl_emit_is_json(emit))
		put_part(emit, "RSS", hl_heap_number(services->rss_bytes));
	hl_table_end(emit);
}

/* ---- all of it ---- */

static void emit_head(struct hl_emit *emit, const struct hl_services *services)
{
	const struct hl_service *total = &services->total;

	hl_heap_emit_process(emit, &services->process, "");
	hl_emit_text(emit, "by", words_of[services->by].by);
	hl_emit_object(emit, "total");
	hl_emit_integer(emit, "inuse_bytes", total->lua_bytes + total->c_bytes);
	hl_emit_integer(emit, "inuse_blocks", total->lua_blocks + total->c_blocks);
	if (services->by != HL_BY_TYPE) {
		hl_emit_integer(emit, "lua_bytes", total->lua_bytes);
		hl_emit_integer(emit, "lua_blocks", total->lua_blocks);
		hl_emit_integer(emit, "c_bytes", total->c_bytes);
		hl_emit_integer(emit, "c_blocks", total->c_blocks);
	}
	if (services->has_queues) {
		hl_emit_unsigned(emit, "queued_messages", total->queued_messages);
		hl_emit_unsigned(emit, "queued_bytes", total->queued_bytes);
	}
	if (!total->hides_resident)
		hl_emit_unsigned(emit, "resident_bytes", total->resident_bytes);
	hl_emit_unsigned(emit, "rss_bytes", services->rss_bytes);
	hl_emit_integer(emit, "remainder_bytes", services->remainder_bytes);
	hl_emit_object_end(emit);
	hl_emit_object(emit, "lost");
	hl_emit_unsigned(emit, "events", services->lost_events);
	hl_emit_unsigned(emit, "unscanned_bytes", services->unscanned_bytes);
	hl_emit_object_end(emit);
	hl_emit_line(
		emit, "%s in use in %s blocks allocated since the recording began",
		hl_format_bytes(total->lua_bytes + total->c_bytes, (char[HL_FORMAT_MAX]){""}),
		hl_format_count(total->lua_blocks + total->c_blocks, (char[HL_FORMAT_MAX]){""}));
	if (services->by == HL_BY_SERVICE && !services->has_queues)
		hl_emit_line(emit, "messages that wait are not shown: %s", services->no_queues);
	if (total->hides_resident)
		hl_emit_line(emit,
			     "in RAM is not known of blocks that an allocator of --hook cuts from "
			     "blocks of malloc(), which count whole");
	if (services->state_max)
		hl_emit_warning(emit,
				"the recorder keeps %s open states: blocks of those that came "
				"later have none here",
				HL_HEAP_COUNT(services->state_max));
	if (services->lost_events)
		hl_emit_warning(emit, "%s allocations could not be counted",
				HL_HEAP_COUNT(services->lost_events));
	if (services->unscanned_bytes)
		hl_emit_warning(emit, "%s of the heap could not be read consistently",
				HL_HEAP_BYTES(services->unscanned_bytes));
}

int hl_services_view(const struct hl_services *services, const struct hl_emit_options *options)
{
	struct hl_emit *emit;

	int r = hl_emit_open(options, "services/1", &emit);
	if (r < 0)
		return r;
	emit_head(emit, services);
	emit_services(emit, services, options->row_limit);
	emit_parts(emit, services);
	return hl_emit_finish(emit);
}
