/* SPDX-License-Identifier: BSD-2-Clause */
/* The call frame machine of DWARF 5 section 6.4.2; see cfi.h. */
#include "unwind/cfi.h"

#include "unwind/rule.h"

#include <errno.h>

/* DWARF 5 section 7.24, table 7.29; LSB 5 core table 10-7 for the GNU ones. */
enum cfi_operation {
	CFA_PRIMARY = 0xc0,
	CFA_ADVANCE_LOC = 0x40,
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,
	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC2 = 0x03,
	CFA_ADVANCE_LOC4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d,
	CFA_DEF_CFA_OFFSET = 0x0e,
	CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_EXTENDED_SF = 0x11,
	CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

/* Compilers nest remember_state one or two deep; a deeper program is refused. */
#define REMEMBERED_MAX 6u

struct machine {
	const struct hl_cfi_section *section;
	const struct hl_fde *fde;
	hl_cfi_range_fn *visit;
	void *visit_context;
	struct hl_cfi_reader reader;
	uint64_t location;
	unsigned remembered_count;
	struct hl_cfi_state now;
	struct hl_cfi_state initial; /* set up by the CIE; restore goes back to it */
	struct hl_cfi_state remembered[REMEMBERED_MAX];
};

/* The address computations wrap on purpose: offsets come from the file. */
static int64_t factored(const struct machine *machine, uint64_t offset)
{
	return (int64_t)(offset * (uint64_t)machine->fde->cie->data_align);
}

static int advance_to(struct machine *machine, uint64_t location)
{
	uint64_t from = machine->location;

	if (location < from)
		return -EINVAL;
	machine->location = location;
	if (location > machine->fde->end)
		location = machine->fde->end;
	if (from >= location)
		return 0;
	return machine->visit(machine->visit_context, from, location, &machine->now);
}

static int advance_by(struct machine *machine, uint64_t delta)
{
	return advance_to(machine, machine->location + delta * machine->fde->cie->code_align);
}

int hl_cfi_tracked(uint64_t dwarf_register)
{
	static const uint8_t by_dwarf[] = {HL_CFI_BY_DWARF};

	return dwarf_register < sizeof(by_dwarf) ? by_dwarf[dwarf_register] - 1 : -1;
}

static void set_saved(struct machine *machine, uint64_t reg, struct hl_cfi_value value)
{
	int tracked = hl_cfi_tracked(reg);

	if (tracked >= 0)
		machine->now.saved[tracked] = value;
}

static void set_saved_kind(struct machine *machine, uint64_t reg, enum hl_cfi_kind kind)
{
	set_saved(machine, reg, (struct hl_cfi_value){.kind = (uint8_t)kind});
}

static void set_saved_offset(struct machine *machine, uint64_t reg, int64_t offset)
{
	set_saved(machine, reg, (struct hl_cfi_value){.kind = HL_CFI_OFFSET, .offset = offset});
}

static void restore(struct machine *machine, uint64_t reg)
{
	int tracked = hl_cfi_tracked(reg);

	if (tracked >= 0)
		machine->now.saved[tracked] = machine->initial.saved[tracked];
}

static uint8_t narrow_register(uint64_t reg)
{
	return reg < UINT8_MAX ? (uint8_t)reg : UINT8_MAX;
}

static void set_cfa(struct machine *machine, uint64_t reg, int64_t offset)
{
	machine->now.cfa = (struct hl_cfi_value){
		.kind = HL_CFI_OFFSET, .reg = narrow_register(reg), .offset = offset};
}

/* A block: its length, then that many bytes of an expression. */
static struct hl_cfi_value read_expression(struct machine *machine)
{
	uint64_t bytes = hl_cfi_read_uleb(&machine->reader);
	struct hl_cfi_value value = {.kind = HL_CFI_EXPRESSION, .expression = machine->reader.at};

	hl_cfi_skip(&machine->reader, bytes);
	value.expression_bytes = (uint32_t)(machine->reader.at - value.expression);
	return value;
}

static int remember(struct machine *machine)
{
	if (machine->remembered_count == REMEMBERED_MAX)
		return -EINVAL;
	machine->remembered[machine->remembered_count++] = machine->now;
	return 0;
}

static int recall(struct machine *machine)
{
	if (!machine->remembered_count)
		return -EINVAL;
	machine->now = machine->remembered[--machine->remembered_count];
	return 0;
}

static int run_location(struct machine *machine, unsigned operation)
{
	struct hl_cfi_reader *reader = &machine->reader;

	switch (operation) {
	case CFA_SET_LOC:
		return advance_to(
			machine, hl_cfi_read_location(machine->section, reader, machine->fde->cie));
	case CFA_ADVANCE_LOC1:
		return advance_by(machine, hl_cfi_read_unsigned(reader, 1));
	case CFA_ADVANCE_LOC2:
		return advance_by(machine, hl_cfi_read_unsigned(reader, 2));
	default:
		return advance_by(machine, hl_cfi_read_unsigned(reader, 4));
	}
}

static int run_cfa(struct machine *machine, unsigned operation)
{
	struct hl_cfi_reader *reader = &machine->reader;
	struct hl_cfi_value *cfa = &machine->now.cfa;
	uint64_t reg;

	switch (operation) {
	case CFA_DEF_CFA:
		reg = hl_cfi_read_uleb(reader);
		set_cfa(machine, reg, (int64_t)hl_cfi_read_uleb(reader));
		return 0;
	case CFA_DEF_CFA_SF:
		reg = hl_cfi_read_uleb(reader);
		set_cfa(machine, reg, factored(machine, (uint64_t)hl_cfi_read_sleb(reader)));
		return 0;
	case CFA_DEF_CFA_EXPRESSION:
		*cfa = read_expression(machine);
		return 0;
	default:
		break;
	}
	if (cfa->kind != HL_CFI_OFFSET)
		return -EINVAL; /* the others change a part of "register + offset" */
	if (operation == CFA_DEF_CFA_REGISTER)
		cfa->reg = narrow_register(hl_cfi_read_uleb(reader));
	else if (operation == CFA_DEF_CFA_OFFSET)
		cfa->offset = (int64_t)hl_cfi_read_uleb(reader);
	else
		cfa->offset = factored(machine, (uint64_t)hl_cfi_read_sleb(reader));
	return 0;
}

static int run_register(struct machine *machine, unsigned operation)
{
	struct hl_cfi_reader *reader = &machine->reader;
	uint64_t reg = hl_cfi_read_uleb(reader);

	switch (operation) {
	case CFA_OFFSET_EXTENDED:
		set_saved_offset(machine, reg, factored(machine, hl_cfi_read_uleb(reader)));
		return 0;
	case CFA_OFFSET_EXTENDED_SF:
		set_saved_offset(machine, reg,
				 factored(machine, (uint64_t)hl_cfi_read_sleb(reader)));
		return 0;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		set_saved_offset(machine, reg, factored(machine, 0 - hl_cfi_read_uleb(reader)));
		return 0;
	case CFA_RESTORE_EXTENDED:
		restore(machine, reg);
		return 0;
	case CFA_UNDEFINED:
		set_saved_kind(machine, reg, HL_CFI_UNDEFINED);
		return 0;
	case CFA_SAME_VALUE:
		set_saved_kind(machine, reg, HL_CFI_SAME);
		return 0;
	case CFA_EXPRESSION:
		set_saved(machine, reg, read_expression(machine));
		return 0;
	case CFA_REGISTER:
		hl_cfi_read_uleb(reader);
		set_saved_kind(machine, reg, HL_CFI_REGISTER);
		return 0;
	case CFA_VAL_OFFSET:
	case CFA_VAL_OFFSET_SF:
		hl_cfi_read_uleb(reader);
		set_saved_kind(machine, reg, HL_CFI_VALUE);
		return 0;
	case CFA_VAL_EXPRESSION:
		read_expression(machine);
		set_saved_kind(machine, reg, HL_CFI_VALUE);
		return 0;
	default:
		return -EINVAL;
	}
}

static int run_extended(struct machine *machine, unsigned operation)
{
	switch (operation) {
	case CFA_NOP:
		return 0;
	case CFA_SET_LOC:
	case CFA_ADVANCE_LOC1:
	case CFA_ADVANCE_LOC2:
	case CFA_ADVANCE_LOC4:
		return run_location(machine, operation);
	case CFA_REMEMBER_STATE:
		return remember(machine);
	case CFA_RESTORE_STATE:
		return recall(machine);
	case CFA_DEF_CFA:
	case CFA_DEF_CFA_SF:
	case CFA_DEF_CFA_REGISTER:
	case CFA_DEF_CFA_OFFSET:
	case CFA_DEF_CFA_OFFSET_SF:
	case CFA_DEF_CFA_EXPRESSION:
		return run_cfa(machine, operation);
	case CFA_GNU_ARGS_SIZE: /* of interest to landing pads only */
		hl_cfi_read_uleb(&machine->reader);
		return 0;
	default:
		return hl_arch_cfi_is_mark(operation) ? 0 : run_register(machine, operation);
	}
}

static int run_one(struct machine *machine)
{
	unsigned operation = hl_cfi_read_byte(&machine->reader);
	unsigned operand = operation & ~(unsigned)CFA_PRIMARY;

	switch (operation & CFA_PRIMARY) {
	case CFA_ADVANCE_LOC:
		return advance_by(machine, operand);
	case CFA_OFFSET:
		set_saved_offset(machine, operand,
				 factored(machine, hl_cfi_read_uleb(&machine->reader)));
		return 0;
	case CFA_RESTORE:
		restore(machine, operand);
		return 0;
	default:
		return run_extended(machine, operation);
	}
}

static int run_program(struct machine *machine, const struct hl_cfi_reader *program)
{
	machine->reader = *program;
	while (hl_cfi_left(&machine->reader)) {
		int result = run_one(machine);
		if (result)
			return result;
	}
	return machine->reader.failed ? -EINVAL : 0;
}

int hl_cfi_program_run(const struct hl_cfi_section *section, const struct hl_fde *fde,
		       hl_cfi_range_fn *visit, void *context)
{
	struct machine machine;

	machine.section = section;
	machine.fde = fde;
	machine.visit = visit;
	machine.visit_context = context;
	machine.location = fde->begin;
	machine.remembered_count = 0;
	machine.now = (struct hl_cfi_state){0};
	machine.initial = machine.now;
	if (fde->cie->return_register != HL_ARCH_RETURN_REGISTER)
		return -EINVAL;
	int result = run_program(&machine, &fde->cie->program);
	if (result)
		return result;
	machine.initial = machine.now;
	result = run_program(&machine, &fde->program);
	return result ? result : advance_to(&machine, fde->end);
}
