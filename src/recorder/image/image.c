/* SPDX-License-Identifier: BSD-2-Clause */
/* Start and end of the recorder in a process that was entered; see region/attached.h. */
#include "recorder/image/image.h"

#include "guests/guest.h"
#include "recorder/hooks.h"
#include "recorder/introspect.h"
#include "recorder/libc.h"
#include "recorder/recorder.h"
#include "recorder/script.h"
#include "recorder/self.h"
#include "recorder/sys.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>

uint64_t hl_image_real[HL_IMAGE_REAL_OBJECT(HL_OBJECT_HOOK_COUNT)];
uint32_t hl_image_main_tid;
_Alignas(HL_PAGE_BYTES_MAX) char hl_image_header[HL_PAGE_BYTES_MAX];

/* ---- start ---- */

#define STACK_BYTES 32768

static _Alignas(64) char stack[STACK_BYTES];
static struct hl_attached_start start_room;

static void take_functions(const struct hl_attached_start *start)
{
	const struct {
		enum hl_hook hook;
		void *place;
	} functions[] = {
		{HL_HOOK_MALLOC, &hl_libc.malloc},
		{HL_HOOK_FREE, &hl_libc.free},
		{HL_HOOK_CALLOC, &hl_libc.calloc},
		{HL_HOOK_REALLOC, &hl_libc.realloc},
		{HL_HOOK_POSIX_MEMALIGN, &hl_libc.posix_memalign},
		{HL_HOOK_ALIGNED_ALLOC, &hl_libc.aligned_alloc},
		{HL_HOOK_MEMALIGN, &hl_libc.memalign},
		{HL_HOOK_VALLOC, &hl_libc.valloc},
		{HL_HOOK_PVALLOC, &hl_libc.pvalloc},
	};

	for (size_t i = 0; i < HL_COUNT_OF(functions); i++)
		*(uint64_t *)functions[i].place = start->real[functions[i].hook];
	memcpy(hl_image_real, start->real, sizeof(start->real));
	memcpy(hl_image_rules, start->rules, sizeof(hl_image_rules));
	hl_introspect_know(&start->answering);
	hl_libc.dlclose = start->real[HL_HOOK_DLCLOSE] ? hl_image_close_library : NULL;
	hl_libc.prctl = (int (*)(int, ...))start->real[HL_HOOK_PRCTL];
	hl_libc_syscall =
		(long (*)(long, long, long, long, long, long, long))start->real[HL_HOOK_SYSCALL];
	hl_libc.usable_size = (size_t(*)(void *))start->usable_size;
	hl_libc_has_glibc_chunks = start->usable_size && start->has_glibc_chunks;
}

/* Makes the page of the gate one that reads as zero in forked children. */
static bool make_gate(void)
{
	return hl_sys6(SYS_mmap, (long)&hl_self_gate, sizeof(hl_self_gate), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)&hl_self_gate &&
	       hl_sys_madvise(&hl_self_gate, sizeof(hl_self_gate), MADV_WIPEONFORK) == 0;
}

/* Of ${region_fd}, or, if that is -1, of nothing. */
static bool map_header(int region_fd)
{
	int flags = region_fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;

	return hl_sys6(SYS_mmap, (long)hl_image_header, sizeof(hl_image_header), PROT_READ,
		       flags | MAP_FIXED, region_fd, 0) == (long)hl_image_header;
}

/* What mlockall() has locked is let go: it would count against the program's limit. */
static void *map_region(const struct hl_attached_start *start, size_t *ret_bytes)
{
	*ret_bytes = start->region_bytes;
	void *region = hl_region_map_open(start->region_fd, 0, ret_bytes);
	if (region)
		HL_SYS(SYS_munlock, region, *ret_bytes, 0);
	return region;
}

/* Remembers what is to be given back with all else; of the first process' region not the page that
 * its children need. */
static void adopt_region(char *region, size_t bytes)
{
	size_t end = HL_REGION_CHILDREN_START + HL_REGION_CHILDREN_BYTES;

	if (hl_image_children) {
		hl_private_map_adopt(region, bytes);
		return;
	}
	hl_image_children = &((struct hl_region_header *)region)->children;
	hl_private_map_adopt(region, HL_REGION_CHILDREN_START);
	hl_private_map_adopt(region + end, bytes - end);
}

static int64_t set_up(const struct hl_attached_start *start)
{
	size_t bytes;

	void *region = map_region(start, &bytes);
	if (!region || !map_header(start->region_fd))
		return -ENOMEM;
	adopt_region(region, bytes);
	struct hl_recorder *recorder = hl_private_map_new_headed(sizeof(*recorder));
	if (!recorder || (!start->find_object && !hl_image_objects_init()) ||
	    !hl_recorder_set_up(recorder, region, bytes, start->may_read_tsc))
		return -ENOMEM;
	if (!start->usable_size)
		recorder->objects_only = true; /* the array keeps a block's slack, not its size */
	hl_image_note_rules(recorder);
	recorder->counts_layers = start->counts_layers;
	hl_objects_hooks.allocator = &hl_hooks_objects;
	recorder->region.collector_pid = start->collector_pid;
	recorder->modules.eh_frame = start->eh_frame;
	recorder->modules.eh_frame_bytes = start->eh_frame_bytes;
	if (start->has_filter)
		atomic_fetch_or(&recorder->region.header->flags, HL_REGION_FILTER_SEEN);
	hl_recorder_announce(recorder);
	atomic_store(&recorder->phase, HL_PHASE_RUNNING);
	hl_recorder = recorder;
	return 0;
}

static int64_t start(const struct hl_attached_start *start)
{
	if (hl_recorder)
		return -EALREADY;
	hl_image_libc_init(start);
	take_functions(start);
	HL_GUESTS_CALL(start, start);
	hl_image_main_tid = (uint32_t)start->main_tid;
	int64_t result = make_gate() ? set_up(start) : -ENOTSUP;
	hl_sys_close(start->region_fd);
	if (result < 0)
		hl_image_give_back();
	else
		hl_image_open(start->may_read_fs_base);
	return result;
}

void hl_image_give_back(void)
{
	hl_recorder = NULL;
	hl_private_map_release();
	if (hl_image_children)
		hl_sys_munmap((void *)((uintptr_t)hl_image_children & HL_REGION_PAGE_MASK),
			      HL_REGION_CHILDREN_BYTES);
	hl_image_children = NULL;
}

void hl_image_pass_on(void)
{
	hl_image_give_back();
	map_header(-1);
}

/* All else is as it was told to the first process. */
bool hl_image_start_child(int region_fd)
{
	struct stat status;

	hl_recorder = NULL;
	atomic_store(&hl_seccomp_calling, 0); /* those were other threads */
	hl_private_map_release();
	if (HL_SYS(SYS_fstat, region_fd, &status, 0) < 0)
		return false;
	start_room.region_fd = region_fd;
	start_room.region_bytes = (uint64_t)status.st_size;
	hl_image_main_tid = hl_sys_getpid();
	HL_GUESTS_CALL(enter_child);
	hl_script_enter_child();
	if (set_up(&start_room) < 0)
		return false;
	hl_recorder->inherits = true;
	hl_image_open(start_room.may_read_fs_base);
	return true;
}

bool hl_image_may_ask(void)
{
	long mode = HL_SYS(SYS_prctl, PR_GET_SECCOMP, 0, 0);

	return mode == 0 || (mode > 0 && start_room.has_filter);
}

/* Calls munmap() and nothing else: heapline asks no more of filters that have come meanwhile. */
static int64_t stop(void)
{
	hl_image_close();
	hl_image_give_back();
	return 0;
}

/* ---- what heapline finds ---- */

struct hl_attached hl_attached = {
	.magic = HL_ATTACHED_MAGIC,
	.version = HL_ATTACHED_VERSION,
	.slot_count = 1u << HL_SELF_BITS,
	.slots = (uint64_t)hl_self_slots,
	.hooks =
		{
#define STUB(NAME, HOOK) [HOOK] = (uint64_t)hl_image_stub_##NAME,
			HL_IMAGE_STUBS(STUB)
#undef STUB
				[HL_HOOK_LIBRARIES] = (uint64_t)hl_image_stub_libraries,
			[HL_HOOK_PRCTL] = (uint64_t)hl_image_stub_some_prctl,
			[HL_HOOK_SYSCALL] = (uint64_t)hl_image_stub_some_syscall,
		},
	.light_hooks =
		{
#define STUB(NAME, HOOK) [HOOK] = (uint64_t)hl_image_light_stub_##NAME,
			HL_IMAGE_STUBS(STUB)
#undef STUB
		},
	.object_hooks =
		{
#define STUB(NAME, HOOK) [HOOK - HL_HOOK_COUNT] = (uint64_t)hl_image_light_stub_##NAME,
			HL_IMAGE_OBJECT_STUBS(STUB)
#undef STUB
		},
	.start = (uint64_t)start,
	.stop = (uint64_t)stop,
	.stack_top = (uint64_t)(stack + sizeof(stack)),
	.start_room = (uint64_t)&start_room,
	.rule_stubs = (uint64_t)hl_image_rule_stubs,
	.rules = (uint64_t)hl_image_rules,
};

/* ---- objects ---- */

/* Stubs count threads in and out. */
const struct hl_objects_allocator hl_hooks_objects = {
	.malloc = (void *(*)(void *, size_t))hl_image_light_stub_object_malloc,
	.calloc = (void *(*)(void *, size_t, size_t))hl_image_light_stub_object_calloc,
	.realloc = (void *(*)(void *, void *, size_t))hl_image_light_stub_object_realloc,
	.free = (void (*)(void *, void *))hl_image_light_stub_object_free,
};

void hl_objects_call(hl_objects_allocator_fn *function, int domain,
		     struct hl_objects_allocator *allocator)
{
	hl_image_call((uint64_t)function, (uint64_t)domain, (uint64_t)allocator);
}

void hl_objects_take(const struct hl_objects_allocator *real)
{
	const uint64_t functions[] = {
		[HL_OBJECT_MALLOC] = (uint64_t)real->malloc,
		[HL_OBJECT_CALLOC] = (uint64_t)real->calloc,
		[HL_OBJECT_REALLOC] = (uint64_t)real->realloc,
		[HL_OBJECT_FREE] = (uint64_t)real->free,
	};

	memcpy(hl_image_real + HL_HOOK_COUNT, functions, sizeof(functions));
	memcpy(hl_attached.object_real, functions, sizeof(functions));
}
