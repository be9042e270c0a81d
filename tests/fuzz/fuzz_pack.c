/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes what reads packed recordings and files of known names. The first byte of an input says
 * which:
 *
 *   F        a packed recording as it is
 *   P, N, L  sections of a packed recording, of known names, of a packed log, given valid
 * checksums, so that the code past the checks is reached: u16 bytes of each section but the last,
 *            then their contents
 */
#include "log/log.h"
#include "pack/pack_sections.h"
#include "scratch.h"
#include "symbols/symbols_dwarf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const uint32_t pack_sections[] = {
	HL_PACK_META,	 HL_PACK_TEXTS,	    HL_PACK_PROCESSES, HL_PACK_THREADS,
	HL_PACK_MODULES, HL_PACK_FUNCTIONS, HL_PACK_FRAMES,    HL_PACK_NODES,
	HL_PACK_ROWS,	 HL_PACK_SIZES,	    HL_PACK_BASE,
};

static const uint32_t log_sections[] = {HL_PACK_RECORDING, HL_PACK_RECORDED, HL_PACK_LOG_NAMES,
					HL_PACK_LOG_BYTES, HL_PACK_LOG_FILES};

static const uint32_t names_sections[] = {
	HL_FOURCC('M', 'E', 'T', 'A'),
	HL_FOURCC('T', 'E', 'X', 'T'),
	HL_FOURCC('A', 'D', 'D', 'R'),
	HL_FOURCC('F', 'R', 'A', 'M'),
};

/* Reads every text, so that the sanitizer sees what is out of bounds. */
static size_t read_texts(const struct hl_profile *profile)
{
	size_t sum = strlen(hl_profile_text(profile, profile->command));

	for (size_t i = 0; i < profile->process_count; i++)
		sum += strlen(hl_profile_text(profile, profile->processes[i].end));
	for (size_t i = 0; i < profile->thread_count; i++)
		sum += strlen(hl_profile_text(profile, profile->threads[i].name));
	for (size_t i = 0; i < profile->module_count; i++)
		sum += strlen(hl_profile_text(profile, profile->modules[i].path));
	for (size_t i = 1; i < profile->node_count; i++) {
		const struct hl_profile_frame *frame = &profile->frames[profile->nodes[i].frame];
		sum += strlen(hl_profile_text(profile, profile->functions[frame->function].name));
		sum += strlen(hl_profile_text(profile, frame->file));
	}
	return sum;
}

static void check_profile(const struct hl_profile *profile)
{
	require(hl_profile_is_valid(profile));
	for (size_t i = 0; i < profile->row_count; i++) {
		require(profile->rows[i].node < profile->node_count);
		require(profile->rows[i].thread < profile->thread_count);
	}
	for (size_t i = 0; i < profile->size_count; i++)
		require(profile->sizes[i].node < profile->node_count);
	require(read_texts(profile) < SIZE_MAX);
}

static void read_pack(int fd)
{
	static const struct hl_profile_selection selections[] = {
		{.keep_rows = true}, {.pid = 4711}, {.tid = 4711, .keep_rows = true}};

	for (size_t i = 0; i < HL_COUNT_OF(selections); i++) {
		struct hl_profile *profile = NULL;
		struct hl_error err = {0};
		int r = hl_pack_read(fd, "FILE", &selections[i], &profile, &err);
		require((r < 0) == (err.text[0] != '\0') && (r < 0) == (profile == NULL));
		if (r == 0)
			check_profile(profile);
		hl_profile_free(profile);
	}
}

#define LOGS_READ_MAX 4

static void read_log(int fd)
{
	const struct hl_log_options options = {.jobs = 1};
	const struct hl_profile profile = {0};
	struct hl_pack_log packed;
	struct hl_error err = {0};
	struct hl_log *log;

	int r = hl_pack_log_read(fd, "FILE", &profile, &packed, &err);
	require((r < 0) == (err.text[0] != '\0'));
	for (uint32_t i = 0; r == 0 && i < packed.recording->process_count && i < LOGS_READ_MAX;
	     i++) {
		if (hl_log_open(&packed.place, packed.recording->processes[i].sequence, &options,
				&log, NULL) < 0)
			continue;
		struct hl_log_state *state;
		for (size_t point = 0; point < log->point_count; point += log->point_count / 8 + 1)
			if (hl_log_state_at(log, log->points[point].number, HL_LOG_AT_MAX, &state,
					    NULL) == 0)
				hl_log_state_free(state);
		hl_log_free(log);
	}
	hl_pack_log_release(&packed);
}

static void read_names(int fd)
{
	struct hl_cached_names names = {0};

	if (hl_symbols_cache_file_read(fd, "FILE", &names) == 0)
		for (size_t i = 0; i < names.count; i++) {
			const struct hl_cached_address *address = &names.addresses[i];
			require(address->count && address->first < names.frame_count &&
				address->count <= names.frame_count - address->first);
			require(strlen(names.frames[address->first].function) > 0);
		}
	hl_symbols_cache_file_release(&names);
}

/* Cuts the sections out of the input, and has ${read_file} read a file with them. */
static void fuzz_sections(const uint8_t *bytes, size_t size, uint32_t kind,
			  const uint32_t *sections, uint32_t count, void read_file(int fd))
{
	int directory_fd = scratch_directory();
	struct hl_container_writer writer;
	const uint8_t *sizes = bytes;

	if (size < 2 * (count - 1))
		return;
	bytes += 2 * (count - 1);
	size -= 2 * (count - 1);
	require(hl_container_writer_init(&writer, directory_fd, "file", kind, count, NULL) == 0);
	for (uint32_t i = 0; i < count; i++) {
		size_t wanted =
			i + 1 < count ? (size_t)(sizes[2 * i] | sizes[2 * i + 1] << 8) : SIZE_MAX;
		size_t length = wanted < size ? wanted : size;
		hl_container_writer_add(&writer, sections[i], bytes, length, false, NULL);
		bytes += length;
		size -= length;
	}
	require(hl_container_writer_finish(&writer, false, NULL) == 0);
	int fd = openat(directory_fd, "file", O_RDONLY | O_CLOEXEC);
	read_file(fd);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size == 0)
		return 0;
	switch (bytes[0]) {
	case 'F':
		read_pack(scratch_file(bytes + 1, size - 1));
		read_log(scratch_file(bytes + 1, size - 1));
		break;
	case 'P':
		fuzz_sections(bytes + 1, size - 1, HL_KIND_PACK, pack_sections,
			      HL_COUNT_OF(pack_sections), read_pack);
		break;
	case 'L':
		fuzz_sections(bytes + 1, size - 1, HL_KIND_PACK, log_sections,
			      HL_COUNT_OF(log_sections), read_log);
		break;
	case 'N':
		fuzz_sections(bytes + 1, size - 1, HL_FOURCC('S', 'Y', 'M', 'S'), names_sections,
			      HL_COUNT_OF(names_sections), read_names);
		break;
	}
	return 0;
}
