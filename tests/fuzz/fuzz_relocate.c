/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: functions of any bytes are moved or refused, and what is said of a trampoline holds;
 * functions made of harmless instructions do the same through their trampoline.
 *
 * The first byte of an input says which: 0 any bytes, 1 templates, which the other bytes choose.
 */
#include "hook/relocate.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define AREA_BYTES	 4096u
#define DATA_AT		 2048u /* offset in the function's area of what it reads and writes */
#define DATA_BYTES	 64u
#define HELPER_AT	 (DATA_AT + DATA_BYTES)
#define HELPER_POINTER	 (HELPER_AT + 16)
#define DISTANCE_NEAR	 (UINT64_C(1) << 24)
#define DISTANCE_FAR	 (UINT64_C(1) << 40)
#define TEMPLATES_MAX	 8u
#define ARITHMETIC_FLAGS 0x8d5u
#define R11		 11

enum input_kind { INPUT_BYTES, INPUT_TEMPLATES };

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* ---- any bytes ---- */

static void check_claims(const struct hl_relocated *relocated)
{
	uint8_t before = 0;

	require(relocated->entry_bytes >= HL_PATCH_BYTES && relocated->entry_bytes <= HL_ENTRY_MAX);
	require(relocated->code_bytes <= HL_TRAMPOLINE_MAX && relocated->twin[0] == 0);
	for (unsigned i = 1; i < HL_ENTRY_MAX; i++) {
		uint8_t twin = relocated->twin[i];
		if (twin == HL_RELOCATE_NO_TWIN)
			continue;
		require(i < relocated->entry_bytes);
		require(twin > before && twin < relocated->code_bytes);
		before = twin;
	}
}

/* Two bytes of the function's size, one of the distance, and its code. */
static void move_bytes(const uint8_t *bytes, size_t size)
{
	static const uint64_t distances[] = {64, DISTANCE_NEAR, UINT64_C(1) << 31, DISTANCE_FAR};
	const uint64_t address = UINT64_C(0x7f0000000000);
	struct hl_relocated relocated;
	struct hl_error err = {0};

	if (size < 4)
		return;
	uint64_t function_bytes = (uint64_t)bytes[0] | (uint64_t)bytes[1] << 8;
	int r = hl_relocate(bytes + 3, size - 3, address + bytes[2] / 16, function_bytes,
			    address - distances[bytes[2] % 4], &relocated, &err);
	require(r == 0 || (r < 0 && err.text[0]));
	if (r == 0)
		check_claims(&relocated);
}

/* ---- templates ---- */

static uint8_t *function_area, *near_area, *far_area;

struct writer {
	const uint8_t *input, *input_end;
	size_t at; /* offset in the area of the next instruction */
	unsigned count, template_count;
	size_t starts[TEMPLATES_MAX + 1];
	struct branch {
		size_t field, bytes; /* the distance, and how wide it is */
		unsigned target;     /* number of a template */
	} branches[TEMPLATES_MAX];
	unsigned branch_count;
};

static uint8_t take(struct writer *writer)
{
	return writer->input < writer->input_end ? *writer->input++ : 0;
}

static void put(struct writer *writer, uint8_t byte)
{
	function_area[writer->at++] = byte;
}

static void put32(struct writer *writer, uint32_t value)
{
	memcpy(function_area + writer->at, &value, sizeof(value));
	writer->at += sizeof(value);
}

/* Any but rsp, and r11, which a trampoline may change. */
static uint8_t take_register(struct writer *writer)
{
	static const uint8_t registers[] = {0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15};

	return registers[take(writer) % sizeof(registers)];
}

static void put_rex(struct writer *writer, bool is_wide, uint8_t reg, uint8_t rm)
{
	uint8_t rex = (uint8_t)(0x40 | is_wide << 3 | (reg >> 3) << 2 | rm >> 3);

	if (rex != 0x40)
		put(writer, rex);
}

static void put_registers(struct writer *writer, uint8_t reg, uint8_t rm)
{
	put(writer, (uint8_t)(0xc0 | (reg & 7) << 3 | (rm & 7)));
}

/* (%rip), ${after} bytes before the end of the instruction. */
static void put_data_operand(struct writer *writer, uint8_t reg, size_t target, size_t after)
{
	put(writer, (uint8_t)((reg & 7) << 3 | 5));
	put32(writer, (uint32_t)(target - (writer->at + 4 + after)));
}

static size_t take_data(struct writer *writer)
{
	return DATA_AT + take(writer) % (DATA_BYTES - 16);
}

static void put_branch(struct writer *writer, size_t bytes)
{
	struct branch *branch = &writer->branches[writer->branch_count++];

	branch->field = writer->at;
	branch->bytes = bytes;
	branch->target =
		writer->count + 1 + take(writer) % (writer->template_count - writer->count);
	writer->at += bytes;
}

static uint8_t take_operation(struct writer *writer)
{
	/* add or adc sbb and sub xor cmp, test, xchg, mov */
	static const uint8_t operations[] = {0x01, 0x09, 0x11, 0x19, 0x21, 0x29,
					     0x31, 0x39, 0x85, 0x87, 0x89};

	return operations[take(writer) % sizeof(operations)];
}

static void put_register_operation(struct writer *writer)
{
	uint8_t reg = take_register(writer), rm = take_register(writer), operation;

	operation = take_operation(writer);
	put_rex(writer, take(writer) & 1, reg, rm);
	put(writer, operation);
	put_registers(writer, reg, rm);
}

static void put_data_operation(struct writer *writer)
{
	uint8_t reg = take_register(writer), operation = take_operation(writer), width;

	width = take(writer) & 3; /* 8, 16, 32, 64 bits */
	if (width == 1)
		put(writer, 0x66);
	if (take(writer) & 1 && operation < 0x40)
		operation |= 2; /* the register is the target */
	put_rex(writer, width == 3, reg, 0);
	put(writer, width ? operation : operation & 0xfe);
	put_data_operand(writer, reg, take_data(writer), 0);
}

static void put_data_immediate(struct writer *writer)
{
	uint8_t operation = take(writer) & 7, opcode = 0x80 | (take(writer) & 3);
	size_t immediate_bytes = opcode == 0x81 ? 4 : 1;

	if (opcode == 0x82) /* does not exist in 64-bit code */
		opcode = 0x83;
	put_rex(writer, take(writer) & 1, 0, 0);
	put(writer, opcode);
	put_data_operand(writer, operation, take_data(writer), immediate_bytes);
	for (size_t i = 0; i < immediate_bytes; i++)
		put(writer, take(writer));
}

static void put_address(struct writer *writer)
{
	uint8_t reg = take_register(writer);

	put_rex(writer, take(writer) & 1, reg, 0);
	put(writer, 0x8d);
	put_data_operand(writer, reg, take_data(writer), 0);
}

/* movzx, movsx, cmov, and setcc, which writes */
static void put_two_byte_operation(struct writer *writer)
{
	static const uint8_t opcodes[] = {0xb6, 0xb7, 0xbe, 0xbf, 0x40, 0x90};
	uint8_t reg = take_register(writer), opcode = opcodes[take(writer) % sizeof(opcodes)];

	if (opcode == 0x40 || opcode == 0x90)
		opcode |= take(writer) & 15;
	put_rex(writer, take(writer) & 1, reg, 0);
	put(writer, 0x0f);
	put(writer, opcode);
	put_data_operand(writer, reg, take_data(writer), 0);
}

static void put_condition(struct writer *writer)
{
	uint8_t condition = take(writer);

	if (condition & 0x80) {
		put(writer, 0x0f);
		put(writer, 0x80 | (condition & 15));
		put_branch(writer, 4);
		return;
	}
	put(writer, 0x70 | (condition & 15));
	put_branch(writer, 1);
}

static void put_jump(struct writer *writer)
{
	bool is_short = take(writer) & 1;

	put(writer, is_short ? 0xeb : 0xe9);
	put_branch(writer, is_short ? 1 : 4);
}

static void put_loop(struct writer *writer)
{
	uint8_t kind = take(writer);

	if (kind & 0x80)
		put(writer, 0x67);
	put(writer, 0xe0 | (kind & 3));
	put_branch(writer, 1);
}

static void put_push_and_pop(struct writer *writer)
{
	uint8_t from = take_register(writer), to = take_register(writer);

	put_rex(writer, false, 0, from);
	put(writer, 0x50 | (from & 7));
	put_rex(writer, false, 0, to);
	put(writer, 0x58 | (to & 7));
}

static void put_call(struct writer *writer)
{
	if (take(writer) & 1) {
		put(writer, 0xe8);
		put32(writer, (uint32_t)(HELPER_AT - (writer->at + 4)));
		return;
	}
	put(writer, 0xff);
	put_data_operand(writer, 2, HELPER_POINTER, 0);
}

/* movdqu from memory, and back to some other place; by VEX where the processor has it. */
static void put_vector_copy(struct writer *writer)
{
	uint8_t reg = take(writer) & 15;
	bool is_vex = take(writer) & 1 && __builtin_cpu_supports("avx");

	for (unsigned is_store = 0; is_store < 2; is_store++) {
		if (is_vex) {
			put(writer, 0xc5);
			put(writer, (uint8_t)(0x7a | (reg < 8) << 7));
		} else {
			put(writer, 0xf3);
			put_rex(writer, false, reg, 0);
			put(writer, 0x0f);
		}
		put(writer, is_store ? 0x7f : 0x6f);
		put_data_operand(writer, reg, take_data(writer), 0);
	}
}

static void put_nop(struct writer *writer)
{
	if (take(writer) & 1) {
		put(writer, 0x90);
		return;
	}
	put(writer, 0xf3); /* endbr64 */
	put(writer, 0x0f);
	put(writer, 0x1e);
	put(writer, 0xfa);
}

static void (*const templates[])(struct writer *writer) = {
	put_register_operation, put_data_operation, put_data_immediate, put_address,
	put_two_byte_operation, put_condition,	    put_jump,		put_loop,
	put_push_and_pop,	put_call,	    put_vector_copy,	put_nop,
};

static void finish_branches(const struct writer *writer)
{
	for (unsigned i = 0; i < writer->branch_count; i++) {
		const struct branch *branch = &writer->branches[i];
		uint32_t distance = (uint32_t)(writer->starts[branch->target] -
					       (branch->field + branch->bytes));
		memcpy(function_area + branch->field, &distance, branch->bytes);
	}
}

/* Writes a function to the area's begin; returns its size. */
static size_t write_function(struct writer *writer)
{
	writer->template_count = 1 + take(writer) % TEMPLATES_MAX;
	for (; writer->count < writer->template_count; writer->count++) {
		writer->starts[writer->count] = writer->at;
		templates[take(writer) % (sizeof(templates) / sizeof(*templates))](writer);
	}
	writer->starts[writer->count] = writer->at;
	put(writer, 0xc3);
	finish_branches(writer);
	memset(function_area + writer->at, 0xcc, 16);
	return writer->at;
}

/* ---- execution ---- */

struct machine {
	uint64_t registers[16]; /* as instructions number them; [4], rsp, is not set */
	uint64_t flags;
	uint8_t memory[DATA_BYTES];
};

/* Calls ${code} with all registers and flags as the machine says; which it leaves there. */
void fuzz_execute(struct machine *machine, const uint8_t *code);

__asm__(".pushsection .text\n"
	"fuzz_execute:\n"
	"	push	%rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	push	%rdi; push %rsi\n"
	"	push	128(%rdi); popfq\n"
	"	mov	0(%rdi), %rax; mov 8(%rdi), %rcx; mov 16(%rdi), %rdx\n"
	"	mov	24(%rdi), %rbx; mov 40(%rdi), %rbp; mov 48(%rdi), %rsi\n"
	"	mov	64(%rdi), %r8; mov 72(%rdi), %r9; mov 80(%rdi), %r10\n"
	"	mov	88(%rdi), %r11; mov 96(%rdi), %r12; mov 104(%rdi), %r13\n"
	"	mov	112(%rdi), %r14; mov 120(%rdi), %r15; mov 56(%rdi), %rdi\n"
	"	call	*(%rsp)\n"
	"	pushfq; push %rdi; mov 24(%rsp), %rdi\n"
	"	mov	%rax, 0(%rdi); mov %rcx, 8(%rdi); mov %rdx, 16(%rdi)\n"
	"	mov	%rbx, 24(%rdi); mov %rbp, 40(%rdi); mov %rsi, 48(%rdi)\n"
	"	mov	%r8, 64(%rdi); mov %r9, 72(%rdi); mov %r10, 80(%rdi)\n"
	"	mov	%r11, 88(%rdi); mov %r12, 96(%rdi); mov %r13, 104(%rdi)\n"
	"	mov	%r14, 112(%rdi); mov %r15, 120(%rdi)\n"
	"	pop	56(%rdi); pop 128(%rdi)\n"
	"	add	$16, %rsp\n"
	"	pop	%r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	".popsection\n");

static void execute(const struct machine *before, const uint8_t *code, struct machine *ret_after)
{
	*ret_after = *before;
	memcpy(function_area + DATA_AT, before->memory, DATA_BYTES);
	fuzz_execute(ret_after, code);
	memcpy(ret_after->memory, function_area + DATA_AT, DATA_BYTES);
	ret_after->registers[R11] = 0;
	ret_after->flags &= ARITHMETIC_FLAGS;
}

static void set_machine(struct writer *writer, struct machine *ret_machine)
{
	uint64_t bits = 1 + take(writer);

	memset(ret_machine, 0, sizeof(*ret_machine));
	for (unsigned i = 0; i < 16; i++) {
		uint8_t choice = take(writer);
		bits = bits * UINT64_C(0x5851f42d4c957f2d) + 1;
		ret_machine->registers[i] = choice < 128 ? choice : bits ^ choice;
	}
	ret_machine->flags =
		((uint64_t)take(writer) | (uint64_t)take(writer) << 8) & ARITHMETIC_FLAGS;
	for (unsigned i = 0; i < DATA_BYTES; i++)
		ret_machine->memory[i] = (uint8_t)(take(writer) ^ i * 37);
}

static void compare(const struct machine *before, const struct machine *expected,
		    size_t function_bytes, uint8_t *area)
{
	struct hl_relocated relocated;
	struct hl_error err = {0};
	struct machine after;

	int r = hl_relocate(function_area, AREA_BYTES, (uint64_t)function_area, function_bytes,
			    (uint64_t)area, &relocated, &err);
	if (r < 0) {
		require(area == far_area && strstr(err.text, "too far away"));
		return;
	}
	check_claims(&relocated);
	memcpy(area, relocated.code, relocated.code_bytes);
	execute(before, area, &after);
	require(memcmp(&after, expected, sizeof(after)) == 0);
}

static void move_templates(const uint8_t *bytes, size_t size)
{
	struct writer writer = {.input = bytes, .input_end = bytes + size};
	struct machine before, expected;

	size_t function_bytes = write_function(&writer);
	set_machine(&writer, &before);
	execute(&before, function_area, &expected);
	compare(&before, &expected, function_bytes, near_area);
	compare(&before, &expected, function_bytes, far_area);
}

static uint8_t *map_area(uint64_t address)
{
	uint8_t *area =
		mmap((void *)address, AREA_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
		     MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	require(area != MAP_FAILED);
	return area;
}

static void map_areas(void)
{
	/* xor %rax with the address that it returns to: the function's own */
	static const uint8_t helper[] = {0x48, 0x33, 0x04, 0x24, 0xc3};

	function_area = map_area(UINT64_C(0x200000000000));
	near_area = map_area((uint64_t)function_area + DISTANCE_NEAR);
	far_area = map_area((uint64_t)function_area + DISTANCE_FAR);
	memcpy(function_area + HELPER_AT, helper, sizeof(helper));
	uint64_t pointer = (uint64_t)function_area + HELPER_AT;
	memcpy(function_area + HELPER_POINTER, &pointer, sizeof(pointer));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	if (!function_area)
		map_areas();
	if (!size || input[0] > INPUT_TEMPLATES)
		return -1;
	if (input[0] == INPUT_TEMPLATES)
		move_templates(input + 1, size - 1);
	else
		move_bytes(input + 1, size - 1);
	return 0;
}
