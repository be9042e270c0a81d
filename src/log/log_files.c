/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and headers of the files of logs; see log_files.h. */
#include "log/log_files.h"

#include "log/events.h"
#include "log/intervals.h"
#include "log/segment.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define TICK_NS	      UINT64_C(1000000)
#define NS_PER_SECOND UINT64_C(1000000000)

/* Formats change seldom: a larger version is damage. */
#define VERSION_PLAUSIBLE 1000u

const struct hl_log_file_kind hl_log_segments = {
	.prefix = "memlog",
	.suffix = "hll",
	.magic = HL_SEGMENT_MAGIC,
	.version = HL_SEGMENT_VERSION,
	.name = "log",
	.pronoun = "one",
	.record_options = "--mode log-fast",
	.reading = "reading the log",
	.read = hl_segment_read_index,
};
const struct hl_log_file_kind hl_log_event_files = {
	.prefix = "events",
	.suffix = "hle",
	.magic = HL_EVENTS_MAGIC,
	.version = HL_EVENTS_VERSION,
	.name = "events",
	.pronoun = "them",
	.record_options = "--mode log-fast --events",
	.reading = "looking for events",
	.read = hl_event_log_find_parts,
};

/* ---- names ---- */

void hl_log_files_name(const struct hl_log_file_kind *kind, const struct hl_segment_header *header,
		       char name[HL_SEGMENT_NAME_MAX])
{
	uint64_t start_ns =
		header->start_realtime_ns + header->first_interval * HL_INTERVAL_TICKS * TICK_NS;
	time_t seconds = (time_t)(start_ns / NS_PER_SECOND);
	struct tm utc;
	char date[16];

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%S", &utc);
	snprintf(name, HL_SEGMENT_NAME_MAX, "%s-%u-%s-%06u.%s", kind->prefix, header->process, date,
		 header->number, kind->suffix);
}

static bool is_file(const char *name, const struct hl_log_file_kind *kind, struct hl_log_file *file)
{
	char date[16];
	size_t prefix = strlen(kind->prefix);
	unsigned process, number;

	if (strlen(name) >= sizeof(file->name) || strncmp(name, kind->prefix, prefix) != 0 ||
	    sscanf(name + prefix, "-%u-%15[0-9T]-%u.", &process, date, &number) != 3 || !number)
		return false;
	file->kind = kind;
	file->process = process;
	file->number = number;
	snprintf(file->name, sizeof(file->name), "%s-%u-%s-%06u.%s", kind->prefix, process, date,
		 number, kind->suffix);
	return !strcmp(name, file->name);
}

bool hl_log_files_parse(const char *name, struct hl_log_file *file)
{
	return is_file(name, &hl_log_segments, file) || is_file(name, &hl_log_event_files, file);
}

/* ---- headers ---- */

static uint64_t hash_of(const struct hl_segment_header *header)
{
	return XXH3_64bits(header, offsetof(struct hl_segment_header, hash));
}

void hl_log_files_seal_header(const struct hl_log_file_kind *kind, struct hl_segment_header *header)
{
	memcpy(header->magic, kind->magic, sizeof(header->magic));
	header->version = kind->version;
	header->header_bytes = sizeof(*header);
	header->tick_ns = TICK_NS;
	header->interval_ticks = HL_INTERVAL_TICKS;
	header->hash = hash_of(header);
}

const char *hl_log_files_check_header(const struct hl_log_file_kind *kind, uint32_t process,
				      const struct hl_segment_header *header)
{
	if (memcmp(header->magic, kind->magic, sizeof(header->magic)) != 0)
		return kind == &hl_log_segments ? "it is not a log segment"
						: "it is not a file of events";
	if (header->version != kind->version && header->version <= VERSION_PLAUSIBLE)
		return "another version of heapline wrote it";
	if (header->version != kind->version || header->hash != hash_of(header) ||
	    header->header_bytes != sizeof(*header) || header->tick_ns != TICK_NS ||
	    header->interval_ticks != HL_INTERVAL_TICKS)
		return "its header is damaged";
	if (header->process != process)
		return "it is of another process than its name says";
	return NULL;
}
