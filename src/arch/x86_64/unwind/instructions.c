/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads instructions; see rule_cache.h. Lengths are by the opcode maps of the Intel 64 and IA-32
 * Architectures Software Developer's Manual, volume 2, appendix A.
 */
#include "unwind/rule_cache.h"

enum register_number {
	REGISTER_SP = 4,
	REGISTER_BP = 5,
};

#define CALL		      0xe8
#define LEAVE		      0xc9
#define BREAKPOINT	      0xcc
#define INSTRUCTION_BYTES_MAX 15u

enum rex {
	REX_B = 1, /* rm, or base, is r8 .. r15 */
	REX_R = 4, /* reg is r8 .. r15 */
	REX_W = 8, /* operands of 64 bits */
};

enum opcode_map {
	MAP_ONE_BYTE,
	MAP_0F,
	MAP_0F38,
	MAP_0F3A,
	MAPS,
};

struct instruction {
	size_t bytes;
	enum opcode_map map;
	uint8_t opcode;
	uint8_t rex;
	bool has_16_bits; /* operands */
	bool has_modrm;
	bool is_vector; /* VEX or EVEX */
	uint8_t modrm;
	uint8_t base; /* of a SIB byte; of rm without one */
	int32_t displacement;
};

/* Opcodes of a set: 16 words of 16 bits each, by high and low digit. */
typedef uint16_t opcode_set[16];

static bool is_in(const opcode_set set, uint8_t opcode)
{
	return set[opcode >> 4] >> (opcode & 15) & 1;
}

static const opcode_set one_byte_modrm = {
	[0x0] = 0x0f0f, [0x1] = 0x0f0f, [0x2] = 0x0f0f, [0x3] = 0x0f0f, [0x6] = 0x0a08,
	[0x8] = 0xfffb, [0xc] = 0x00c3, [0xd] = 0xff0f, [0xf] = 0xc0c0,
};
static const opcode_set one_byte_imm8 = {
	[0x0] = 0x1010, [0x1] = 0x1010, [0x2] = 0x1010, [0x3] = 0x1010,
	[0x6] = 0x0c00, [0x7] = 0xffff, [0x8] = 0x0009, [0xa] = 0x0100,
	[0xb] = 0x00ff, [0xc] = 0x2043, [0xe] = 0x08ff,
};
/* 32 bits, or 16 if operands have 16. */
static const opcode_set one_byte_imm32 = {
	[0x0] = 0x2020, [0x1] = 0x2020, [0x2] = 0x2020, [0x3] = 0x2020,
	[0x6] = 0x0300, [0x8] = 0x0002, [0xa] = 0x0200, [0xc] = 0x0080,
};
static const opcode_set one_byte_invalid = {
	[0x0] = 0x40c0, [0x1] = 0xc0c0, [0x2] = 0x8080, [0x3] = 0x8080, [0x6] = 0x0003,
	[0x8] = 0x0004, [0x9] = 0x0400, [0xc] = 0x4000, [0xd] = 0x0070, [0xe] = 0x0400,
};
static const opcode_set map_0f_without_modrm = {
	[0x0] = 0x4be0, [0x3] = 0x00ff, [0x7] = 0x0080,
	[0x8] = 0xffff, [0xa] = 0x0707, [0xc] = 0xff00,
};
static const opcode_set map_0f_imm8 = {
	[0x0] = 0x8000, [0x7] = 0x000f, [0xa] = 0x1010, [0xb] = 0x0400, [0xc] = 0x0074,
};

/* ---- one instruction ---- */

struct reader {
	const uint8_t *at, *end;
	bool failed;
};

static uint8_t read_byte(struct reader *reader)
{
	if (reader->at == reader->end) {
		reader->failed = true;
		return 0;
	}
	return *reader->at++;
}

static int32_t read_signed(struct reader *reader, unsigned bytes)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint32_t)read_byte(reader) << 8 * i;
	return bytes == 1 ? (int8_t)value : (int32_t)value;
}

/* VEX and EVEX have the map among their bytes, REX.B and REX.R inverted. */
static void read_vector_prefix(struct reader *reader, struct instruction *to, uint8_t prefix)
{
	uint8_t map = MAP_0F, first = read_byte(reader);

	to->is_vector = true;
	if (prefix != 0xc5)
		map = first & 7;
	for (unsigned left = prefix == 0x62 ? 2 : prefix == 0xc4 ? 1 : 0; left; left--)
		read_byte(reader);
	if (prefix == 0x62 && (map == 5 || map == 6)) /* half precision */
		map = MAP_0F38;
	reader->failed |= map == MAP_ONE_BYTE || map >= MAPS;
	to->map = reader->failed ? MAP_0F : (enum opcode_map)map;
	to->opcode = read_byte(reader);
}

static void read_opcode(struct reader *reader, struct instruction *to)
{
	uint8_t byte = read_byte(reader);

	for (; !reader->failed; byte = read_byte(reader)) {
		if (byte == 0x66)
			to->has_16_bits = true;
		else if (byte != 0xf2 && byte != 0xf3 && byte != 0xf0 && byte != 0x2e &&
			 byte != 0x36 && byte != 0x3e && byte != 0x26 && byte != 0x64 &&
			 byte != 0x65 && byte != 0x67)
			break;
	}
	if ((byte & 0xf0) == 0x40) {
		to->rex = byte;
		byte = read_byte(reader);
	}
	if (byte == 0x62 || byte == 0xc4 || byte == 0xc5) {
		read_vector_prefix(reader, to, byte);
		return;
	}
	if (byte == 0x0f) {
		to->map = MAP_0F;
		byte = read_byte(reader);
		if (byte == 0x38 || byte == 0x3a) {
			to->map = byte == 0x38 ? MAP_0F38 : MAP_0F3A;
			byte = read_byte(reader);
		}
	} else {
		reader->failed |= is_in(one_byte_invalid, byte);
	}
	to->opcode = byte;
}

static bool has_modrm(const struct instruction *of)
{
	if (of->map == MAP_ONE_BYTE)
		return is_in(one_byte_modrm, of->opcode);
	return of->map != MAP_0F || !is_in(map_0f_without_modrm, of->opcode);
}

static void read_modrm(struct reader *reader, struct instruction *to)
{
	to->has_modrm = true;
	to->modrm = read_byte(reader);
	to->base = to->modrm & 7;
	unsigned mod = to->modrm >> 6;
	if (mod == 3)
		return;
	if (to->base == 4)
		to->base = read_byte(reader) & 7;
	unsigned displacement_bytes = mod == 1 ? 1 : mod == 2 || to->base == 5 ? 4 : 0;
	to->displacement = read_signed(reader, displacement_bytes);
}

static size_t immediate_bytes(const struct instruction *of)
{
	unsigned full = of->has_16_bits && !(of->rex & REX_W) ? 2 : 4;
	unsigned reg = of->modrm >> 3 & 7;

	if (of->map == MAP_0F3A || (of->map == MAP_0F && is_in(map_0f_imm8, of->opcode)))
		return 1;
	if (of->map == MAP_0F && (of->opcode & 0xf0) == 0x80 && !of->is_vector)
		return 4;
	if (of->map != MAP_ONE_BYTE)
		return 0;
	switch (of->opcode) {
	case 0xa0 ... 0xa3: /* an address */
		return 8;
	case 0xb8 ... 0xbf:
		return of->rex & REX_W ? 8 : full;
	case 0xc2:
	case 0xca:
		return 2;
	case 0xc8:
		return 3;
	case CALL:
	case 0xe9:
		return 4;
	case 0xf6:
		return reg < 2 ? 1 : 0;
	case 0xf7:
		return reg < 2 ? full : 0;
	default:
		return is_in(one_byte_imm8, of->opcode)	   ? 1
		       : is_in(one_byte_imm32, of->opcode) ? full
							   : 0;
	}
}

static bool decode(const uint8_t *code, size_t bytes, struct instruction *ret_instruction)
{
	struct reader reader = {code, code + bytes, false};
	struct instruction read = {0};

	read_opcode(&reader, &read);
	if (!reader.failed && has_modrm(&read))
		read_modrm(&reader, &read);
	size_t immediate = immediate_bytes(&read);
	if (reader.failed || immediate > (size_t)(reader.end - reader.at))
		return false;
	read.bytes = (size_t)(reader.at - code) + immediate;
	*ret_instruction = read;
	return true;
}

size_t hl_instructions_length(const uint8_t *code, size_t bytes)
{
	struct instruction at;

	return decode(code, bytes, &at) ? at.bytes : 0;
}

/* ---- what an instruction does ---- */

static bool is_one_byte(const struct instruction *at, uint8_t opcode)
{
	return at->map == MAP_ONE_BYTE && at->opcode == opcode;
}

static bool is_nop(const struct instruction *at)
{
	return (is_one_byte(at, 0x90) && !at->rex) || (at->map == MAP_0F && at->opcode == 0x1f);
}

bool hl_instructions_are_padding(const uint8_t *code, size_t bytes)
{
	struct instruction at;

	for (size_t i = 0; i < bytes; i += at.bytes)
		if (!decode(code + i, bytes - i, &at) || !is_nop(&at))
			return false;
	return true;
}

static bool has_registers(const struct instruction *at)
{
	return at->has_modrm && at->modrm >> 6 == 3;
}

static bool is_reg(const struct instruction *at, enum register_number number)
{
	return at->has_modrm && (at->modrm >> 3 & 7) == number && !(at->rex & REX_R);
}

/* As an operand or as the base of one. */
static bool is_rm(const struct instruction *at, enum register_number number)
{
	return at->has_modrm && at->base == number && !(at->rex & REX_B);
}

/* mov of 64 bits to ${number}, from a register or from memory. */
static bool moves_to(const struct instruction *at, enum register_number number)
{
	return at->rex & REX_W &&
	       ((is_one_byte(at, 0x8b) && is_reg(at, number)) ||
		(is_one_byte(at, 0x89) && has_registers(at) && is_rm(at, number)));
}

static bool is_move_of_sp_to_bp(const struct instruction *at)
{
	return moves_to(at, REGISTER_BP) && has_registers(at) &&
	       (at->opcode == 0x89 ? is_reg(at, REGISTER_SP) : is_rm(at, REGISTER_SP));
}

static bool pops(const struct instruction *at, enum register_number number)
{
	return at->map == MAP_ONE_BYTE && at->opcode == 0x58 + number && !(at->rex & REX_B);
}

/* Whether what comes next in memory is not all that can come next. */
static bool branches(const struct instruction *at)
{
	if (at->map == MAP_0F)
		return (at->opcode & 0xf0) == 0x80;
	if (at->map != MAP_ONE_BYTE)
		return false;
	unsigned reg = at->modrm >> 3 & 7;
	return (at->opcode & 0xf0) == 0x70 || (at->opcode >= 0xe0 && at->opcode <= 0xe3) ||
	       (at->opcode >= CALL && at->opcode <= 0xeb && at->opcode != 0xea) ||
	       (at->opcode & 0xf6) == 0xc2 || (at->opcode == 0xff && reg >= 2 && reg <= 5) ||
	       at->opcode == 0xcc || at->opcode == 0xcd || at->opcode == 0xcf || at->opcode == 0xf4;
}

/* Pushes, pops, leave and enter, and what writes to rsp itself. */
static bool changes_sp(const struct instruction *at)
{
	if (at->map != MAP_ONE_BYTE)
		return false;
	if ((at->opcode & 0xf0) == 0x50 || at->opcode == 0x68 || at->opcode == 0x6a ||
	    at->opcode == 0x8f || at->opcode == 0x9c || at->opcode == 0x9d || at->opcode == 0xc8 ||
	    at->opcode == 0xc9 || (at->opcode == 0xff && (at->modrm >> 3 & 7) == 6))
		return true;
	bool adds = (at->opcode == 0x81 || at->opcode == 0x83) && (at->modrm >> 3 & 7) != 7;
	return (adds && has_registers(at) && is_rm(at, REGISTER_SP)) || moves_to(at, REGISTER_SP) ||
	       (at->opcode == 0x8d && is_reg(at, REGISTER_SP));
}

/* ---- frames ---- */

/*
 * Most compilers push rbp and copy rsp to it, maybe with instructions between that leave both
 * alone; Go up to 1.20 stores rbp in the last word of its frame and takes that word's address.
 * Checks of the stack (Go's) or of an argument (V8's) may come before.
 */
size_t hl_instructions_frame_pointer_made(const uint8_t *function, size_t bytes)
{
	size_t searched = bytes < HL_PROLOGUE_BYTES ? bytes : HL_PROLOGUE_BYTES;
	bool is_pushed = false, is_stored = false;
	int32_t stored_at = 0;
	struct instruction at;

	for (size_t offset = 0; offset < searched; offset += at.bytes) {
		if (!decode(function + offset, searched - offset, &at))
			return 0;
		bool is_through_sp = at.has_modrm && !has_registers(&at) &&
				     is_rm(&at, REGISTER_SP) && at.rex & REX_W &&
				     is_reg(&at, REGISTER_BP);
		if ((is_pushed && is_move_of_sp_to_bp(&at)) ||
		    (is_stored && is_through_sp && is_one_byte(&at, 0x8d) &&
		     at.displacement == stored_at))
			return offset + at.bytes;
		if (is_one_byte(&at, 0x50 + REGISTER_BP) && !(at.rex & REX_B)) {
			is_pushed = true;
		} else if (is_through_sp && is_one_byte(&at, 0x89)) {
			is_stored = true;
			stored_at = at.displacement;
		} else if (changes_sp(&at) || moves_to(&at, REGISTER_BP)) {
			is_pushed = is_stored = false;
		}
	}
	return 0;
}

/* Whether the next instruction in memory is reached from elsewhere alone. */
static bool leaves(const struct instruction *at)
{
	return at->map == MAP_ONE_BYTE &&
	       ((at->opcode & 0xf6) == 0xc2 || at->opcode == 0xe9 || at->opcode == 0xeb ||
		(at->opcode == 0xff && (at->modrm >> 3 & 7) == 4));
}

bool hl_instructions_next_part(const uint8_t *code, size_t bytes, struct hl_instructions_part *part)
{
	size_t offset = part->end, start = bytes;
	struct instruction at;

	for (; offset < bytes; offset += at.bytes) {
		if (!decode(code + offset, bytes - offset, &at)) {
			/* Its other bytes may be behind the end. */
			if (bytes - offset >= INSTRUCTION_BYTES_MAX)
				return false;
			at.bytes = bytes - offset;
		}
		if (start == bytes && !is_nop(&at) && !is_one_byte(&at, BREAKPOINT))
			start = offset;
		if (start != bytes && leaves(&at)) {
			offset += at.bytes;
			break;
		}
	}
	*part = (struct hl_instructions_part){start, offset};
	return start != bytes;
}

uint64_t hl_instructions_jump_target(const uint8_t *code)
{
	bool is_conditional = code[0] == 0x0f && (code[1] & 0xf0) == 0x80;
	int32_t distance;

	if (!is_conditional && code[0] != 0xe9)
		return 0;
	code += 1 + is_conditional;
	__builtin_memcpy(&distance, code, sizeof(distance));
	return (uint64_t)code + 4 + (uint64_t)(int64_t)distance;
}

/* ---- stacks ---- */

bool hl_instructions_follow_call_of_register(const uint8_t *code)
{
	return code[-2] == 0xff && (code[-1] & 0xf8) == 0xd0;
}

uint64_t hl_instructions_called(const uint8_t *code, uint64_t address)
{
	struct reader operand = {code - 4, code, false};

	return code[-5] == CALL ? address + (uint64_t)(int64_t)read_signed(&operand, 4) : 0;
}

bool hl_instructions_jump_to_register(const uint8_t *function, size_t bytes)
{
	size_t searched = bytes < HL_HANDED_BYTES ? bytes : HL_HANDED_BYTES;
	struct instruction at;

	for (size_t offset = 0; offset < searched; offset += at.bytes) {
		if (!decode(function + offset, searched - offset, &at))
			return false;
		if (is_one_byte(&at, 0xff) && has_registers(&at) && (at.modrm >> 3 & 7) == 4)
			return true;
		if (branches(&at) || changes_sp(&at) || moves_to(&at, REGISTER_BP))
			return false;
	}
	return false;
}

bool hl_instructions_leave_stack(const uint8_t *code, size_t bytes)
{
	size_t searched = bytes < HL_RETURN_BYTES ? bytes : HL_RETURN_BYTES;
	struct instruction at;

	for (size_t offset = 0; offset < searched; offset += at.bytes) {
		if (!decode(code + offset, searched - offset, &at) || branches(&at))
			return false;
		if (moves_to(&at, REGISTER_SP) || pops(&at, REGISTER_SP) || is_one_byte(&at, LEAVE))
			return true;
		if (moves_to(&at, REGISTER_BP) || pops(&at, REGISTER_BP))
			return false;
	}
	return false;
}

/* Whether a call, other than of a register, ends before ${code}. */
static bool is_after_call(const uint8_t *code)
{
	return code[-5] == CALL || (code[-6] == 0xff && (code[-5] & 0x38) == 0x10) ||
	       (code[-7] == 0xff && (code[-6] & 0x3f) == 0x14) ||
	       (code[-3] == 0xff && (code[-2] & 0x38) == 0x10) ||
	       (code[-4] == 0xff && (code[-3] & 0x3f) == 0x14);
}

bool hl_instructions_follow_call(const uint8_t *code)
{
	return is_after_call(code) || hl_instructions_follow_call_of_register(code);
}

/*
 * Boost's make_fcontext has the functions of its coroutines return behind the jump that enters
 * them; Go starts goroutines as if goexit had called by its first byte, a nop before a call.
 */
bool hl_instructions_start_stack(const uint8_t *code, uint64_t address)
{
	bool is_after_jump = code[-2] == 0xff && (code[-1] & 0xf8) == 0xe0;
	bool is_after_first_nop = address % 16 == 1 && code[-1] == 0x90 && code[0] == CALL;

	return (is_after_jump || is_after_first_nop) && !is_after_call(code);
}
