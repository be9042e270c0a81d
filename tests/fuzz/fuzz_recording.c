/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes what reads recordings and regions. The first byte of an input says which:
 *
 *   P, M  a process' file, the recording's file, as they are
 *   N     JSON of the recording's file, given valid checksums
 *   J     sections of a process' file, given valid checksums, so that the code past the checks is
 *         reached: u16 bytes of JSON, u16 bytes of nodes, JSON, nodes, values
 *   R     words written into a region: {u8 area, u16 index of the word, u64 value} ...
 */
#include "base/frame_key.h"
#include "fake_region.h"
#include "recording/recording_files.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* ---- files ---- */

static void read_process_file(int fd)
{
	struct hl_recording_process process = {0};
	struct hl_error err = {0};
	int r = hl_recording_read_process(fd, "FILE", &process, &err);

	require((r < 0) == (err.text[0] != '\0'));
	hl_recording_process_release(&process);
}

static void read_meta_file(int fd)
{
	struct hl_recording *recording = calloc(1, sizeof(*recording));
	struct hl_error err = {0};
	int r = hl_recording_read_meta(fd, "FILE", recording, &err);

	require((r < 0) == (err.text[0] != '\0'));
	hl_recording_free(recording);
}

static void fuzz_file(const uint8_t *bytes, size_t size, void read_file(int fd))
{
	read_file(scratch_file(bytes, size));
}

static void fuzz_sections(const uint8_t *bytes, size_t size)
{
	uint16_t sizes[2];

	if (size < sizeof(sizes))
		return;
	memcpy(sizes, bytes, sizeof(sizes));
	bytes += sizeof(sizes);
	size -= sizeof(sizes);
	size_t json = sizes[0] < size ? sizes[0] : size;
	size_t nodes = sizes[1] < size - json ? sizes[1] : size - json;
	struct hl_container_writer writer;
	int directory_fd = scratch_directory();
	require(hl_container_writer_init(&writer, directory_fd, "file", HL_KIND_PROCESS, 3, NULL) ==
		0);
	hl_container_writer_add(&writer, HL_SECTION_META, bytes, json, false, NULL);
	hl_container_writer_add(&writer, HL_SECTION_NODES, bytes + json, nodes, false, NULL);
	hl_container_writer_add(&writer, HL_SECTION_VALUES, bytes + json + nodes,
				size - json - nodes, false, NULL);
	require(hl_container_writer_finish(&writer, false, NULL) == 0);
	int fd = openat(directory_fd, "file", O_RDONLY | O_CLOEXEC);
	read_process_file(fd);
	close(fd);
}

static void fuzz_meta(const uint8_t *bytes, size_t size)
{
	struct hl_container_writer writer;
	int directory_fd = scratch_directory();

	require(hl_container_writer_init(&writer, directory_fd, "file", HL_KIND_RECORDING, 1,
					 NULL) == 0);
	hl_container_writer_add(&writer, HL_SECTION_META, bytes, size, false, NULL);
	require(hl_container_writer_finish(&writer, false, NULL) == 0);
	int fd = openat(directory_fd, "file", O_RDONLY | O_CLOEXEC);
	read_meta_file(fd);
	close(fd);
}

/* ---- regions ---- */

/* Bytes of each area that are written to and committed. */
#define FUZZED_BYTES 65536

static uint64_t fuzzed_bytes(const struct fake_region *fake, int area)
{
	return fake->layout.areas[area].capacity < FUZZED_BYTES ? fake->layout.areas[area].capacity
								: FUZZED_BYTES;
}

static void check_tables(const struct hl_recording_process *process)
{
	uint32_t *marks = calloc(process->node_count + (size_t)1, sizeof(*marks));

	require(marks && !hl_recording_repair_tree(process->nodes, process->node_count, marks));
	free(marks);
	for (uint32_t i = 0; i < process->node_count; i++)
		require(hl_frame_key_is_valid(process->nodes[i].frame, process->module_count));
	for (uint32_t i = 0; i < process->value_count; i++) {
		require(process->values[i].node - 1 < process->node_count);
		require(process->values[i].thread < process->thread_count);
	}
}

static void write_words(struct fake_region *fake, const uint8_t *bytes, size_t size)
{
	for (; size >= 11; bytes += 11, size -= 11) {
		int area = bytes[0] % (HL_AREA_COUNT + 1);
		uint16_t index;
		memcpy(&index, bytes + 1, sizeof(index));
		uint64_t offset = area < HL_AREA_COUNT ? fake->layout.areas[area].offset : 0;
		uint64_t room =
			area < HL_AREA_COUNT ? fuzzed_bytes(fake, area) : sizeof(*fake->header);
		if (room)
			memcpy((char *)fake->header + offset + index * 8 % room, bytes + 3, 8);
	}
}

static void fuzz_region(const uint8_t *bytes, size_t size)
{
	struct fake_region fake = fake_region_new();

	for (int id = 0; id < HL_AREA_COUNT; id++)
		fake.header->areas[id].committed = fuzzed_bytes(&fake, id);
	write_words(&fake, bytes, size);
	for (int id = 0; id < HL_AREA_COUNT; id++)
		if (fake.header->areas[id].committed > fuzzed_bytes(&fake, id))
			fake.header->areas[id].committed = fuzzed_bytes(&fake, id);
	struct hl_region_view view = fake_view(&fake);
	struct hl_region_times times = {.start_ns = 1, .now_ns = 2};
	struct hl_recording_process process = {0};
	require(hl_region_read(&view, &times, &process, NULL) == 0);
	check_tables(&process);
	hl_recording_process_release(&process);
	fake_region_free(&fake);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size == 0)
		return 0;
	switch (bytes[0]) {
	case 'P':
		fuzz_file(bytes + 1, size - 1, read_process_file);
		break;
	case 'M':
		fuzz_file(bytes + 1, size - 1, read_meta_file);
		break;
	case 'N':
		fuzz_meta(bytes + 1, size - 1);
		break;
	case 'J':
		fuzz_sections(bytes + 1, size - 1);
		break;
	case 'R':
		fuzz_region(bytes + 1, size - 1);
		break;
	}
	return 0;
}
