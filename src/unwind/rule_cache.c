/* SPDX-License-Identifier: BSD-2-Clause */
/* Fills the rule cache and forgets it; see rule_cache.h. */
#include "unwind/rule_cache.h"

#include "unwind/saved.h"

#include <assert.h>
#include <elf.h>
#include <string.h>

static_assert(HL_RULE_SLOTS == UINT32_C(1) << (64 - 50), "hl_rule_slot_of shifts by 50");

/* Bounds of the module's call frame information. */
struct bounds {
	uint64_t start, end;
};

/* For a program whose segments leave gaps, _dl_find_object names the segment with the code: its call frame information is in another, whose
 * bounds are not known. */
static struct bounds bounds_of(const struct hl_unwind_module *module)
{
	uint64_t start = module->start, hdr = (uint64_t)module->eh_frame_hdr;

	if (hdr >= start && hdr < module->end)
		return (struct bounds){start, module->end};
	return (struct bounds){hdr < start ? hdr : start, HL_USER_END};
}

/* Malformed information is as good as none. */
static hl_rule rule_at(const struct hl_unwind_module *module, const struct hl_unwind_file *file,
		       uint64_t pc)
{
	hl_rule rule;
	struct bounds in = bounds_of(module);

	if (module->eh_frame_hdr &&
	    !hl_cfi_find_in_memory(module->eh_frame_hdr, in.start, in.end, pc, &rule))
		return rule;
	if (file->row_count) {
		rule = hl_cfi_rows_find(file->rows, file->row_count,
					(uint32_t)(pc - module->start));
		if (rule != HL_RULE_NONE)
			return rule;
	}
	struct hl_cfi_section section = {
		.bytes = file->debug_frame,
		.size = file->debug_frame_bytes,
		.is_debug_frame = true,
		.bias = module->load_bias,
	};
	if (file->debug_frame && !hl_cfi_find(&section, pc, &rule))
		return rule;
	return HL_RULE_NONE;
}

/* Whether ${pc} is in code at the entry point that has no rule. The ELF header is at the start,
 * except for a program whose segments leave gaps. */
static bool is_entry_code(const struct hl_unwind_module *module, const struct hl_unwind_file *file,
			  uint64_t pc)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)module->start;

	if (module->end - module->start < sizeof(*header) ||
	    memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	uint64_t entry = module->load_bias + header->e_entry;
	return pc - entry < HL_ENTRY_CODE_BYTES && rule_at(module, file, entry) == HL_RULE_NONE;
}

/* Where the function at ${pc} begins, by the symbols of its file; 0: unknown. */
static uint64_t find_function(const struct hl_unwind_module *module,
			      const struct hl_unwind_file *file, uint64_t pc)
{
	uint64_t address = pc - module->load_bias;
	struct hl_go_function function;

	for (size_t i = 0; i < file->symbol_count; i++) {
		const Elf64_Sym *symbol = &file->symbols[i];
		if (address - symbol->st_value < symbol->st_size &&
		    ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx)
			return module->load_bias + symbol->st_value;
	}
	return hl_go_functions_find(&file->go, address, &function)
		       ? module->load_bias + function.start
		       : 0;
}

/*
 * Whether the function at ${pc} has made rbp its frame pointer, by its own first instructions: V8's
 * builtins and Go's functions have no other information. Damaged symbols may lead to where nothing is
 * mapped.
 */
static bool has_frame_pointer(const struct hl_unwind_module *module,
			      const struct hl_unwind_file *file, uint64_t pc)
{
	uint64_t start = find_function(module, file, pc);

	return start >= module->start && start <= pc && pc < module->end &&
	       hl_memory_range_is_readable(start, start + HL_PROLOGUE_BYTES) &&
	       hl_instructions_frame_pointer_made((const uint8_t *)start, (size_t)(pc - start)) !=
		       0;
}

#define PADDING_BYTES_MAX 64u

/* The same without symbols, of a function written in assembly language at ${pc}, in a gap that begins at ${begin}. */
static bool has_frame_pointer_in_gap(const struct hl_unwind_module *module, uint64_t begin,
				     uint64_t pc)
{
	const uint8_t *code = (const uint8_t *)begin;
	size_t bytes = (size_t)(pc + 1 - begin);
	struct hl_instructions_part part = {0};
	bool is_found = false;

	if (begin < module->start || pc >= module->end || bytes > HL_CFI_GAP_BYTES_MAX ||
	    !hl_memory_range_is_readable(begin, pc))
		return false;
	while (part.end < bytes && (is_found = hl_instructions_next_part(code, bytes, &part)))
		;
	return is_found &&
	       hl_instructions_frame_pointer_made(code + part.start, bytes - 1 - part.start) != 0;
}

/* The same as hl_cfi_find_gap() of rows, which are all that there is of a static program. */
static bool find_gap_in_rows(const struct hl_unwind_module *module,
			     const struct hl_unwind_file *file, uint64_t pc, uint64_t *ret_begin,
			     uint64_t *ret_end)
{
	uint64_t offset = pc - module->start;
	size_t after = HL_LOWER_BOUND(i, file->row_count, file->rows[i].offset <= offset);

	if (!after || after == file->row_count)
		return false;
	*ret_begin = module->start + file->rows[after - 1].offset;
	*ret_end = module->start + file->rows[after].offset;
	return true;
}

/* The rule of code between two functions that have rules. ${follows_call}: what is at ${pc} + 1. */
static hl_rule rule_in_gap(const struct hl_unwind_module *module, const struct hl_unwind_file *file,
			   uint64_t pc, bool follows_call)
{
	struct bounds in = bounds_of(module);
	uint64_t begin, end;

	bool is_found = module->eh_frame_hdr ? hl_cfi_find_gap(module->eh_frame_hdr, in.start,
							       in.end, pc, &begin, &end) == 0
					     : find_gap_in_rows(module, file, pc, &begin, &end);
	if (!is_found)
		return follows_call && HL_ARCH_CALLERS_HAVE_RECORDS ? HL_RULE_FRAME_POINTER
								    : HL_RULE_UNSUPPORTED;
	if (end - begin >= HL_CFI_GENERATED_BYTES_MIN)
		return follows_call ? HL_RULE_FRAME_POINTER : HL_RULE_UNSUPPORTED;
	if (has_frame_pointer_in_gap(module, begin, pc))
		return HL_RULE_FRAME_POINTER;
	/* A function that runs on into the next one, as glibc's checked copies do; into the entry none does. */
	bool is_padding = end - pc <= PADDING_BYTES_MAX && end <= module->end &&
			  hl_memory_range_is_readable(pc, end - 1) &&
			  hl_instructions_are_padding((const uint8_t *)pc, end - pc);
	hl_rule next = is_padding ? rule_at(module, file, end) : HL_RULE_UNSUPPORTED;
	return next == HL_RULE_END ? HL_RULE_UNSUPPORTED : next;
}

/* Whether the code around ${pc} + 1, a return address or not, can be read. */
static bool is_readable_around(const struct hl_unwind_module *module, uint64_t pc)
{
	uint64_t first = pc + 1 - HL_CALL_BYTES, last = pc + HL_RETURN_BYTES;

	return first >= module->start && last < module->end &&
	       hl_memory_range_is_readable(first, last);
}

/* The address may be anything that can be read, such as data of ours, which a sanitizer would object to. */
HL_READS_STACK static void copy_code(uint8_t *to, uint64_t from, size_t bytes)
{
	const volatile uint8_t *code = (const volatile uint8_t *)from;

	for (size_t i = 0; i < bytes; i++)
		to[i] = code[i];
}

/*
 * Whether the call that ends before ${code}, which returns to ${pc} + 1, is one of a register: what switches stacks does not know whom
 * it calls. Go's asmcgocall has a function between that puts the argument where C expects it.
 */
static bool calls_register(const struct hl_unwind_module *module, const uint8_t *code, uint64_t pc)
{
	uint64_t called = hl_instructions_called(code, pc + 1);
	uint8_t function[HL_HANDED_BYTES];

	if (hl_instructions_follow_call_of_register(code))
		return true;
	if (called < module->start || called >= module->end ||
	    module->end - called < sizeof(function) ||
	    !hl_memory_range_is_readable(called, called + sizeof(function) - 1))
		return false;
	copy_code(function, called, sizeof(function));
	return hl_instructions_jump_to_register(function, sizeof(function));
}

/*
 * Where no table has a rule, or only one that may not know of another stack, as Go's does not.
 *
 * No call pushes a return address that is a function's first byte with nothing of a function before
 * it: somebody put it there to start a stack, as makecontext(3) does, or after a jump, as Boost's
 * make_fcontext does. Nothing lies outward.
 * Other code of a module that has no rule ends the walk too, as incomplete, unless it is seen to
 * keep a frame pointer: compilers use rbp for data, and a walk that believed it would leave callers
 * out.
 */
static hl_rule rule_by_code(const struct hl_unwind_module *module,
			    const struct hl_unwind_file *file, uint64_t pc, hl_rule rule)
{
	uint8_t bytes[HL_CALL_BYTES + HL_RETURN_BYTES];
	const uint8_t *code = bytes + HL_CALL_BYTES;
	bool is_readable = is_readable_around(module, pc);

	if (is_readable)
		copy_code(bytes, pc + 1 - HL_CALL_BYTES, sizeof(bytes));
	if (is_readable && hl_instructions_leave_stack(code, HL_RETURN_BYTES) &&
	    calls_register(module, code, pc))
		return HL_RULE_OTHER_STACK;
	if (is_readable && hl_instructions_start_stack(code, pc + 1))
		return HL_RULE_END_BEFORE;
	if (rule != HL_RULE_NONE)
		return rule;
	if (is_readable && hl_arch_has_no_frame(pc))
		return HL_RULE_STUB;
	if (is_entry_code(module, file, pc))
		return HL_RULE_END;
	if (rule_at(module, file, pc + 1) != HL_RULE_NONE || is_entry_code(module, file, pc + 1))
		return HL_RULE_END_BEFORE;
	if (has_frame_pointer(module, file, pc))
		return HL_RULE_FRAME_POINTER;
	return rule_in_gap(module, file, pc, is_readable && hl_instructions_follow_call(code));
}

static hl_rule rule_in_module(struct hl_unwind *unwind, const struct hl_unwind_module *module,
			      uint64_t pc)
{
	struct hl_unwind_file file = {0};

	hl_rule rule = rule_at(module, &file, pc);
	if (rule != HL_RULE_NONE)
		return rule;
	if (unwind->find_file) {
		file = unwind->find_file(unwind, module);
		rule = rule_at(module, &file, pc);
	}
	bool may_be_wrong = rule == HL_RULE_NONE || hl_rule_kind_of(rule) == HL_RULE_SP;
	return may_be_wrong ? rule_by_code(module, &file, pc, rule) : rule;
}

static void put_rule(struct hl_unwind *unwind, uint32_t generation, uint64_t pc, uint64_t rule)
{
	struct hl_rule_slot *slot = hl_rule_slot_of(unwind, pc);

	atomic_store_explicit(&slot->rule, rule, memory_order_relaxed);
	atomic_store_explicit(&slot->check, rule ^ hl_rule_key(generation, pc),
			      memory_order_relaxed);
}

uint64_t hl_rule_cache_generated(struct hl_unwind *unwind, struct hl_walk *walk,
				 uint32_t generation, uint64_t pc, uint64_t sp,
				 const struct hl_walk_frame *callee)
{
	uint64_t rule = unwind->find_generated ? unwind->find_generated(unwind, walk, sp) : 0;

	if (!rule) {
		hl_find_frame_fn *find_frame =
			atomic_load_explicit(&unwind->find_frame, memory_order_acquire);
		return find_frame ? find_frame(walk, pc, sp, callee) : 0;
	}
	rule |= (uint64_t)HL_MODULE_SCRIPT << HL_MODULE_SHIFT;
	put_rule(unwind, generation, pc, rule);
	return rule;
}

uint64_t hl_rule_cache_miss(struct hl_unwind *unwind, uint32_t generation, uint64_t pc)
{
	struct hl_unwind_module module = {0};
	uint64_t rule = HL_RULE_NONE;

	bool is_in_module = unwind->find_module(unwind, pc, &module);
	if (hl_arch_returns_from_signal(pc + 1))
		rule = HL_RULE_SIGNAL;
	else if (is_in_module)
		rule = rule_in_module(unwind, &module, pc);
	if (is_in_module)
		rule |= (uint64_t)module.id << HL_MODULE_SHIFT;
	put_rule(unwind, generation, pc, rule);
	return rule;
}

void hl_rule_cache_invalidate(struct hl_unwind *unwind)
{
	uint32_t generation = atomic_load_explicit(&unwind->generation, memory_order_relaxed);

	do {
		/* Keys hold 16 bits of the generation. Before those come round the table is
		 * emptied; nobody can write an entry of the coming generation until it has come. */
		for (uint32_t i = 0; !(uint16_t)(generation + 1) && i < HL_RULE_SLOTS; i++) {
			atomic_store_explicit(&unwind->slots[i].rule, 0, memory_order_relaxed);
			atomic_store_explicit(&unwind->slots[i].check, 0, memory_order_relaxed);
		}
	} while (!atomic_compare_exchange_weak_explicit(&unwind->generation, &generation,
							generation + 1, memory_order_acq_rel,
							memory_order_relaxed));
}
