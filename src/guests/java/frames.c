/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Java VM (HotSpot) in this process, as a guest of the recorder: says how large frames of compiled code are, which keeps no
 * frame pointer unless -XX:+PreserveFramePointer has it do so. By that alone a walk would pass over all such frames up to the
 * next one of the interpreter, and nobody would notice.
 *
 *	blob	    code that the machine has made (CodeBlob): a compiled method, a stub, or the whole interpreter. Where calls
 *		    are made its frame has a known size, or, of the interpreter and most stubs, a frame pointer
 *	code heap   what blobs are cut from, in segments. A byte for each segment says how far before it its blob begins
 *	extension   what a compiled caller's frame grows by below for arguments, when the interpreter runs what it calls
 *
 * Where all this lies is read from the tables that libjvm.so exports for debuggers (gHotSpotVMStructs). A frame counts only if its
 * return address follows a call in another blob; else the stack ends there, as one that has lost its outer frames.
 *
 * In-process code: allocates nothing, takes no lock, and calls no function of the machine.
 */
#include "guests/guest.h"
#include "recorder/modules.h"
#include "recorder/recorder.h"
#include "unwind/rule.h"
#include "unwind/rule_cache.h"
#include "unwind/saved.h"

#include <string.h>

#define STRUCTS_MAX	8192u /* entries of the table */
#define HEAPS_MAX	8u
#define HOPS_MAX	4096u /* to the beginning of a blob */
#define FREE_SEGMENT	0xffu
#define FRAME_WORDS_MAX (1u << 16)
#define EXTENSION_MAX	4096u /* bytes: 255 arguments, and room */
#define OFFSET_MAX	4096u

/* ---- what the machine exports ---- */

enum field {
	HEAPS, /* the address of a variable; the others are offsets */
	HEAP_COUNT,
	HEAP_ARRAY,
	HEAP_MEMORY,
	HEAP_SEGMENTS,
	HEAP_SHIFT,
	MEMORY_LOW,
	MEMORY_HIGH,
	BLOCK_LENGTH,
	BLOCK_USED,
	BLOB_FRAME_WORDS,
	BLOB_NAME,
	FIELDS,
};

static const struct {
	const char *type, *name;
} names[FIELDS] = {
	[HEAPS] = {"CodeCache", "_heaps"},
	[HEAP_COUNT] = {"GrowableArrayBase", "_len"},
	[HEAP_ARRAY] = {"GrowableArray<int>", "_data"},
	[HEAP_MEMORY] = {"CodeHeap", "_memory"},
	[HEAP_SEGMENTS] = {"CodeHeap", "_segmap"},
	[HEAP_SHIFT] = {"CodeHeap", "_log2_segment_size"},
	[MEMORY_LOW] = {"VirtualSpace", "_low"},
	[MEMORY_HIGH] = {"VirtualSpace", "_high"},
	[BLOCK_LENGTH] = {"HeapBlock::Header", "_length"},
	[BLOCK_USED] = {"HeapBlock::Header", "_used"},
	[BLOB_FRAME_WORDS] = {"CodeBlob", "_frame_size"},
	[BLOB_NAME] = {"CodeBlob", "_name"},
};

enum variable { STRUCTS, FIELD_NAME, OFFSET, ADDRESS, STRIDE, TYPE_NAME, VARIABLES };

static const char *const variables[VARIABLES] = {
	[STRUCTS] = "gHotSpotVMStructs",
	[FIELD_NAME] = "gHotSpotVMStructEntryFieldNameOffset",
	[OFFSET] = "gHotSpotVMStructEntryOffsetOffset",
	[ADDRESS] = "gHotSpotVMStructEntryAddressOffset",
	[STRIDE] = "gHotSpotVMStructEntryArrayStride",
	[TYPE_NAME] = "gHotSpotVMStructEntryTypeNameOffset",
};

enum phase { PHASE_FOUND, PHASE_READABLE, PHASE_REFUSED };

/* It outlives the recorder: a forked child starts another one. */
static struct {
	_Atomic uint32_t phase;
	uint64_t variables[VARIABLES]; /* their addresses; 0: there is no machine */
	uint64_t start, end;	       /* of libjvm.so */
	uint64_t field[FIELDS];
	uint32_t block_bytes; /* before each blob */
} machine;

HL_READS_STACK static inline uint64_t word_at(uint64_t address)
{
	return *(const uint64_t *)address;
}

static bool note(struct hl_region_header *header, const struct hl_guest_module *module)
{
	uint64_t found[VARIABLES];

	(void)header;
	for (uint32_t i = 0; i < VARIABLES; i++) {
		const Elf64_Sym *symbol = hl_exports_symbol(module->exports, variables[i]);
		if (!symbol)
			return false;
		found[i] = module->exports->load_bias + symbol->st_value;
	}
	machine.start = module->start;
	machine.end = module->end;
	memcpy(machine.variables, found, sizeof(found));
	return true;
}

static bool is_text(uint64_t text, const char *wanted)
{
	return memcmp((const char *)text, wanted, strlen(wanted) + 1) == 0;
}

/* Whether the machine has all that is needed, where it may be. */
static bool find_fields(const uint64_t value[VARIABLES])
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < STRUCTS_MAX && found < FIELDS; i++) {
		uint64_t entry = value[STRUCTS] + i * value[STRIDE];
		uint64_t type = word_at(entry + value[TYPE_NAME]);
		uint64_t name = word_at(entry + value[FIELD_NAME]);
		if (!type || !name)
			break;
		for (uint32_t k = 0; k < FIELDS; k++) {
			if (!is_text(name, names[k].name) || !is_text(type, names[k].type))
				continue;
			machine.field[k] = word_at(entry + value[k == HEAPS ? ADDRESS : OFFSET]);
			found++;
		}
	}
	for (uint32_t k = HEAPS + 1; k < FIELDS; k++)
		if (machine.field[k] >= OFFSET_MAX)
			return false;
	/* The length has 8 bytes up to JDK 23 and 4 since; a flag, and what aligns the blob, follow. */
	machine.block_bytes = 2 * (uint32_t)machine.field[BLOCK_USED];
	return found == FIELDS && machine.field[HEAPS] &&
	       (machine.block_bytes == 8 || machine.block_bytes == 16);
}

/* A library's variables get their values as it is loaded, after its first calls of malloc. */
static __attribute__((noinline)) bool read_machine(void)
{
	uint64_t value[VARIABLES];

	for (uint32_t i = 0; i < VARIABLES; i++) {
		value[i] = word_at(machine.variables[i]);
		if (!value[i] && i != TYPE_NAME) /* which is the first member */
			return false;
	}
	/* Threads that do so at once find the same. */
	bool is_readable = find_fields(value);
	atomic_store_explicit(&machine.phase, is_readable ? PHASE_READABLE : PHASE_REFUSED,
			      memory_order_release);
	return is_readable;
}

static inline bool is_readable(void)
{
	uint32_t phase = atomic_load_explicit(&machine.phase, memory_order_acquire);

	return HL_LIKELY(phase == PHASE_READABLE) || (phase == PHASE_FOUND && read_machine());
}

/* ---- blobs ---- */

/* Whether the name of ${blob} begins so. All that are asked for are constants of libjvm.so; what is elsewhere is not read, as a blob that
 * another thread is making, or has freed, may have anything there. */
static bool is_named(uint64_t blob, const char *wanted)
{
	uint64_t name = word_at(blob + machine.field[BLOB_NAME]);

	/* No longer than the name is: that may be shorter than what is wanted. */
	while (*wanted && name - machine.start < machine.end - machine.start &&
	       *(const char *)name == *wanted)
		name++, wanted++;
	return !*wanted;
}

/* The blob that holds ${pc}, which lies in the memory of ${heap}; 0: none does. */
static uint64_t blob_in(uint64_t heap, uint64_t low, uint64_t pc)
{
	const uint64_t *field = machine.field;
	uint64_t segments = heap + field[HEAP_SEGMENTS];
	const uint8_t *map = (const uint8_t *)word_at(segments + field[MEMORY_LOW]);
	uint32_t shift = *(const uint32_t *)(heap + field[HEAP_SHIFT]);
	uint64_t segment = (pc - low) >> (shift & 31);

	if (!map || segment >= word_at(segments + field[MEMORY_HIGH]) - (uint64_t)map ||
	    map[segment] == FREE_SEGMENT)
		return 0;
	for (uint32_t hops = 0; map[segment]; hops++) {
		if (hops == HOPS_MAX || map[segment] > segment)
			return 0;
		segment -= map[segment];
	}
	uint64_t block = low + (segment << (shift & 31));
	return *(const uint8_t *)(block + field[BLOCK_USED]) ? block + machine.block_bytes : 0;
}

/* The blob that holds ${pc}; 0: none does. *${ret_is_inside}: whether it is in the machine's memory for code. */
static uint64_t blob_of(uint64_t pc, bool *ret_is_inside)
{
	const uint64_t *field = machine.field;
	uint64_t heaps = word_at(field[HEAPS]);

	*ret_is_inside = false;
	if (!heaps)
		return 0; /* it has not started */
	uint32_t count = *(const uint32_t *)(heaps + field[HEAP_COUNT]);
	uint64_t array = word_at(heaps + field[HEAP_ARRAY]);
	for (uint32_t i = 0; array && i < count && i < HEAPS_MAX; i++) {
		uint64_t heap = word_at(array + 8 * (uint64_t)i);
		uint64_t low = heap ? word_at(heap + field[HEAP_MEMORY] + field[MEMORY_LOW]) : 0;
		if (!low || pc < low ||
		    pc >= word_at(heap + field[HEAP_MEMORY] + field[MEMORY_HIGH]))
			continue;
		*ret_is_inside = true;
		return blob_in(heap, low, pc);
	}
	return 0;
}

static int32_t frame_words(uint64_t blob)
{
	return *(const int32_t *)(blob + machine.field[BLOB_FRAME_WORDS]);
}

static bool is_interpreter(uint64_t blob)
{
	return frame_words(blob) <= 0 && is_named(blob, "Interpreter");
}

/* Whether ${pc} is where a call in a blob returns to. The interpreter jumps, and says itself where to return to. */
static bool is_return(uint64_t pc)
{
	bool is_inside;
	uint64_t blob = blob_of(pc - 1, &is_inside);

	return blob && (is_interpreter(blob) || (blob_of(pc - HL_CALL_BYTES, &is_inside) &&
						 hl_instructions_follow_call((const uint8_t *)pc)));
}

/* ---- frames ---- */

/* By how many bytes the frame at ${sp} was extended for ${callee}. Below its frame pointer the interpreter keeps the stack pointer that its caller
 * had before. EXTENSION_MAX: unknown. */
HL_READS_STACK static uint64_t extension_for(struct hl_walk *walk,
					     const struct hl_walk_frame *callee, uint64_t sp)
{
	bool is_inside;
	uint64_t blob = callee ? blob_of(callee->key & HL_FRAME_PC_MASK, &is_inside) : 0;

	if (!blob || !is_interpreter(blob))
		return 0;
	if (!hl_memory_is_readable(walk, callee->bp - 8))
		return EXTENSION_MAX;
	uint64_t bytes = word_at(callee->bp - 8) - sp;
	return bytes < EXTENSION_MAX && !(bytes & 7) ? bytes : EXTENSION_MAX;
}

HL_READS_STACK static uint64_t find_frame(struct hl_walk *walk, uint64_t pc, uint64_t sp,
					  const struct hl_walk_frame *callee)
{
	bool is_inside;

	if (!is_readable())
		return 0;
	uint64_t blob = blob_of(pc, &is_inside);
	int32_t words = blob ? frame_words(blob) : 0;
	if (!is_inside)
		return 0;
	/* Below frames that were brought back from the heap another one lies than their return address says. */
	if (!blob || words < 0 || words > (int32_t)FRAME_WORDS_MAX ||
	    (!words &&
	     (is_named(blob, "StubRoutines (continuation") || is_named(blob, "Continuation"))))
		return HL_RULE_UNSUPPORTED;
	if (!words)
		return HL_RULE_OUTER_RECORD;
	uint64_t extension = extension_for(walk, callee, sp);
	uint64_t bytes = 8 * (uint64_t)words + extension;
	if (extension == EXTENSION_MAX || !hl_memory_is_readable(walk, sp + bytes - 8) ||
	    !is_return(word_at(sp + bytes - 8)))
		return HL_RULE_UNSUPPORTED;
	return hl_arch_rule_of_frame(bytes);
}

static void open_noted(struct hl_recorder *recorder)
{
	if (machine.variables[STRUCTS])
		atomic_store(&recorder->unwind.find_frame, find_frame);
}

const struct hl_guest hl_guest_java = {
	.note = note,
	.open = open_noted,
};
