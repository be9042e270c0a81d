/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the state begins; see recorder.h. */
#include "recorder/recorder.h"

#include "base/clock.h"
#include "guests/guest.h"
#include "recorder/sys.h"

#include <time.h>

struct hl_recorder *hl_recorder;

/* The array takes 32 MiB of addresses, and a sixth of those where blocks are: under a smaller
 * limit (RLIMIT_AS) the program needs them more. */
#define ADDRESS_SPACE_FOR_ARRAY (UINT64_C(1) << 30)

#ifdef HL_ATTACHED
/* The image, which is in no table of modules. It has call frame information where hooks do not hand registers on. */
static bool find_image(struct hl_unwind_module *ret_module)
{
	struct hl_program_headers headers = hl_program_headers_at((uint64_t)hl_image_start);

	*ret_module = (struct hl_unwind_module){
		.start = (uint64_t)hl_image_start,
		.end = (uint64_t)hl_image_end,
		.load_bias = (uint64_t)hl_image_start,
	};
	for (size_t i = 0; headers.first && i < headers.count; i++)
		if (headers.first[i].p_type == PT_GNU_EH_FRAME)
			ret_module->eh_frame_hdr =
				(const uint8_t *)hl_image_start + headers.first[i].p_vaddr;
	return ret_module->eh_frame_hdr;
}
#endif

static bool find_module(struct hl_unwind *unwind, uint64_t pc, struct hl_unwind_module *ret_module)
{
	bool replaced;
#ifdef HL_ATTACHED
	if (hl_self_is_own_code(pc))
		return find_image(ret_module);
#endif
	bool found = hl_modules_find(&hl_recorder->modules, pc, ret_module, &replaced);

	if (replaced)
		hl_rule_cache_invalidate(unwind);
	if (!found && hl_modules_is_trampoline(pc + 1)) {
		*ret_module = (struct hl_unwind_module){.id = HL_MODULE_SCRIPT};
		return true;
	}
	return found;
}

static struct hl_unwind_file find_file(struct hl_unwind *unwind,
				       const struct hl_unwind_module *module)
{
	(void)unwind;
	return hl_modules_file(&hl_recorder->modules, module);
}

bool hl_recorder_set_up(struct hl_recorder *recorder, void *region, size_t bytes, bool stamps)
{
	hl_region_map_init(&recorder->region, region, bytes);
	struct hl_region_header *header = recorder->region.header;
	recorder->sampling = header->sample_bytes != 0;
	recorder->sample_mean =
		recorder->sampling ? header->sample_bytes : header->spare_sample_bytes;
	recorder->hash_only =
		recorder->sampling || hl_sys_address_space_limit() < ADDRESS_SPACE_FOR_ARRAY;
	recorder->sizes = atomic_load(&header->flags) & HL_REGION_SIZES;
	recorder->modules.region = &recorder->region;
	recorder->unwind.find_module = find_module;
	recorder->unwind.find_file = find_file;
	hl_guests_set_up(recorder);
	if (!hl_node_init(&recorder->region) || !hl_block_table_init(&recorder->blocks))
		return false;
	header->block_hash = (uintptr_t)recorder->blocks.hash;
	if (!stamps)
		atomic_fetch_and(&header->flags, ~(uint32_t)HL_REGION_STAMPS);
	return true;
}

void hl_recorder_announce(struct hl_recorder *recorder)
{
	struct hl_region_header *header = recorder->region.header;

	header->pid = hl_sys_getpid();
	header->start_realtime_ns = hl_clock_ns(CLOCK_REALTIME_COARSE);
	hl_script_announce(recorder);
	atomic_store(&header->state, HL_REGION_RUNNING);
}
