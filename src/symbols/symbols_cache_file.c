/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads and writes files of known names, and trusts nothing in them; see symbols_cache.h. */
#include "symbols/symbols_cache.h"

#include "base/cleanup.h"
#include "base/strings.h"
#include "recording/container.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define KIND_SYMBOLS  HL_FOURCC('S', 'Y', 'M', 'S')
#define SECTION_META  HL_FOURCC('M', 'E', 'T', 'A')
#define SECTION_TEXTS HL_FOURCC('T', 'E', 'X', 'T')
#define SECTION_ADDRS HL_FOURCC('A', 'D', 'D', 'R')
#define SECTION_FRAME HL_FOURCC('F', 'R', 'A', 'M')
#define SECTION_COUNT 4

#define SECTION_BYTES_MAX ((size_t)1 << 28)
#define ROWS_MAX	  ((size_t)1 << 24)

/* Raise this when names of the same debug information change. */
#define NAMING 5

/* A frame as it is stored; texts are numbers, 0 is "". */
struct stored_frame {
	uint32_t function, function_file, function_line;
	uint32_t file, line;
	uint32_t inlined;
};

static const struct hl_column address_members[] = {
	HL_COLUMN(hl_cached_address, address),
	HL_COLUMN(hl_cached_address, count),
	HL_COLUMN(hl_cached_address, by_dwarf),
};

static const struct hl_column frame_members[] = {
	HL_COLUMN(stored_frame, function),	HL_COLUMN(stored_frame, function_file),
	HL_COLUMN(stored_frame, function_line), HL_COLUMN(stored_frame, file),
	HL_COLUMN(stored_frame, line),		HL_COLUMN(stored_frame, inlined),
};

static const struct hl_columns address_columns = {address_members, HL_COUNT_OF(address_members),
						  sizeof(struct hl_cached_address), 8 + 2 * 4};
static const struct hl_columns frame_columns = {frame_members, HL_COUNT_OF(frame_members),
						sizeof(struct stored_frame), 6 * 4};

void hl_symbols_cache_file_release(struct hl_cached_names *names)
{
	json_decref(names->circumstances);
	free(names->reason);
	free(names->addresses);
	free(names->frames);
	free(names->texts);
	*names = (struct hl_cached_names){0};
}

/* ---- writing ---- */

/* Copies the frames in the order of the addresses, with numbers for their texts. */
static int store_frames(const struct hl_cached_names *names, struct hl_strings *strings,
			struct stored_frame *stored, size_t *ret_count)
{
	size_t count = 0;

	for (size_t i = 0; i < names->count; i++) {
		const struct hl_symbols_frame *frames = names->frames + names->addresses[i].first;
		for (size_t k = 0; k < names->addresses[i].count; k++) {
			struct stored_frame *frame = &stored[count++];
			frame->function_line = frames[k].function_line;
			frame->line = frames[k].line;
			frame->inlined = frames[k].inlined;
			if (hl_strings_intern(strings, frames[k].function, &frame->function) < 0 ||
			    hl_strings_intern(strings, frames[k].function_file,
					      &frame->function_file) < 0 ||
			    hl_strings_intern(strings, frames[k].file, &frame->file) < 0)
				return -ENOMEM;
		}
	}
	*ret_count = count;
	return 0;
}

static int add_sections(struct hl_container_writer *writer, const struct hl_cached_names *names)
{
	HL_FREED struct stored_frame *stored = calloc(names->frame_count + 1, sizeof(*stored));
	HL_CLEANUP(hl_strings_release) struct hl_strings strings = {0};
	json_auto_t *meta =
		json_pack("{s:i, s:i, s:s, s:O}", "naming", NAMING, "source", (int)names->source,
			  "reason", names->reason, "circumstances", names->circumstances);
	HL_FREED char *text = meta ? json_dumps(meta, JSON_INDENT(1)) : NULL;
	size_t count = 0;

	int r = stored && text ? store_frames(names, &strings, stored, &count) : -ENOMEM;
	if (r == 0)
		r = hl_container_writer_add(writer, SECTION_META, text, strlen(text), false, NULL);
	if (r == 0)
		r = hl_container_writer_add_texts(writer, SECTION_TEXTS, &strings, NULL);
	if (r == 0)
		r = hl_columns_write(&address_columns, writer, SECTION_ADDRS, names->addresses,
				     names->count, NULL);
	if (r == 0)
		r = hl_columns_write(&frame_columns, writer, SECTION_FRAME, stored, count, NULL);
	return r;
}

int hl_symbols_cache_file_write(int directory_fd, const char *name,
				const struct hl_cached_names *names)
{
	struct hl_container_writer writer;

	/* Writers of one file share its temporary name. */
	if (flock(directory_fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	int r = hl_container_writer_init(&writer, directory_fd, name, KIND_SYMBOLS, SECTION_COUNT,
					 NULL);
	if (r == 0)
		r = add_sections(&writer, names);
	if (r == 0)
		r = hl_container_writer_finish(&writer, false, NULL);
	hl_container_writer_release(&writer);
	flock(directory_fd, LOCK_UN);
	return r;
}

/* ---- reading ---- */

static int read_meta(const struct hl_container *container, struct hl_cached_names *names)
{
	const char *reason = NULL;
	int naming = 0, source = 0;
	void *text;
	size_t size;

	int r = hl_container_load(container, SECTION_META, SECTION_BYTES_MAX, &text, &size, NULL);
	if (r < 0)
		return r;
	json_t *object = json_loadb(text, size, 0, NULL);
	free(text);
	if (json_unpack(object, "{s:i, s:i, s:s, s:O}", "naming", &naming, "source", &source,
			"reason", &reason, "circumstances", &names->circumstances) < 0 ||
	    naming != NAMING || source <= HL_SYMBOLS_NONE || source > HL_SYMBOLS_DWARF)
		r = -EBADMSG;
	names->source = (enum hl_symbols_source)source;
	names->reason = r == 0 ? strdup(reason) : NULL;
	json_decref(object);
	return r == 0 && !names->reason ? -ENOMEM : r;
}

/* Fills ${ret_texts}, which the caller frees, with the texts by number; names->texts holds the
 * bytes. */
static int read_texts(const struct hl_container *container, struct hl_cached_names *names,
		      const char ***ret_texts, size_t *ret_count)
{
	size_t size, count = 1;
	void *bytes;

	int r = hl_container_load(container, SECTION_TEXTS, SECTION_BYTES_MAX, &bytes, &size, NULL);
	if (r < 0)
		return r;
	names->texts = bytes;
	if (size && names->texts[size - 1])
		return -EBADMSG;
	for (size_t at = 0; at < size; at += strlen(names->texts + at) + 1, count++)
		if (!names->texts[at])
			return -EBADMSG;
	const char **texts = calloc(count, sizeof(*texts));
	if (!texts)
		return -ENOMEM;
	texts[0] = "";
	count = 1;
	for (size_t at = 0; at < size; at += strlen(names->texts + at) + 1)
		texts[count++] = names->texts + at;
	*ret_texts = texts;
	*ret_count = count;
	return 0;
}

static int read_frames(const struct hl_container *container, struct hl_cached_names *names)
{
	HL_FREED struct stored_frame *stored = NULL;
	HL_FREED const char **texts = NULL;
	size_t count = 0, text_count = 0;

	int r = read_texts(container, names, &texts, &text_count);
	if (r == 0)
		r = hl_columns_read(&frame_columns, container, SECTION_FRAME, ROWS_MAX, 0, &stored,
				    &count, NULL);
	if (r < 0)
		return r;
	names->frames = calloc(count + 1, sizeof(*names->frames));
	if (!names->frames)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct stored_frame *frame = &stored[i];
		if (!frame->function || frame->function >= text_count ||
		    frame->function_file >= text_count || frame->file >= text_count ||
		    frame->inlined > 1)
			return -EBADMSG;
		names->frames[i] = (struct hl_symbols_frame){
			.function = texts[frame->function],
			.function_file = texts[frame->function_file],
			.function_line = frame->function_line,
			.file = texts[frame->file],
			.line = frame->line,
			.inlined = frame->inlined,
		};
	}
	names->frame_count = count;
	return 0;
}

/* Gives each address the next frames: inlined ones, then one that is not. */
static int assign_frames(struct hl_cached_names *names)
{
	size_t used = 0;

	for (size_t i = 0; i < names->count; i++) {
		struct hl_cached_address *address = &names->addresses[i];
		if ((i && address->address <= address[-1].address) || address->by_dwarf > 1 ||
		    !address->count || address->count > names->frame_count - used)
			return -EBADMSG;
		address->first = (uint32_t)used;
		used += address->count;
		for (uint32_t k = 1; k <= address->count; k++)
			if (names->frames[used - k].inlined != (k > 1))
				return -EBADMSG;
	}
	return used == names->frame_count ? 0 : -EBADMSG;
}

int hl_symbols_cache_file_read(int fd, const char *name, struct hl_cached_names *names)
{
	struct hl_container container;

	int r = hl_container_open(&container, fd, name, KIND_SYMBOLS, NULL);
	if (r == 0)
		r = read_meta(&container, names);
	if (r == 0)
		r = read_frames(&container, names);
	if (r == 0)
		r = hl_columns_read(&address_columns, &container, SECTION_ADDRS, ROWS_MAX, 0,
				    &names->addresses, &names->count, NULL);
	if (r == 0)
		r = assign_frames(names);
	if (r < 0)
		hl_symbols_cache_file_release(names);
	return r;
}
