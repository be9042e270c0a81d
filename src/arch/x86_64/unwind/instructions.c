/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads instructions; see rule_cache.h. Lengths are by the opcode maps of the Intel 64 and IA-32
 * Architectures Software Developer's Manual, volume 2, appendix A.
 */
#include "unwind/cfi.h"
#include "unwind/rule_cache.h"

enum register_number {
	REGISTER_SP = 4,
	REGISTER_BP = 5,
};

#define CALL	   0xe8
#define LEAVE	   0xc9
#define BREAKPOINT 0xcc

enum rex {
	REX_B = 1, /* rm, or base, is r8 .. r15 */
	REX_R = 4, /* reg is r8 .. r15 */
	REX_W = 8, /* operands of 64 bits */
};

/* In an opcode, the map that it is of; none: one byte. */
enum opcode_map {
	MAP_0F = 1 << 8,
	MAP_0F38 = 2 << 8,
	MAP_0F3A = 3 << 8,
};

struct instruction {
	size_t bytes;
	unsigned opcode; /* with its map */
	uint8_t rex;
	bool has_16_bits; /* operands */
	bool has_modrm;
	uint8_t modrm;
	uint8_t base; /* of a SIB byte; of rm without one */
	int32_t displacement;
};

/*
 * What follows each opcode, as the maps have them, 16 a row: nothing (.), an immediate of N bytes (a digit N), of 4 or where operands
 * have 16 bits 2 (z), of 8 or as z (v). Capital letters have a ModRM byte: M that alone, B and one byte more, Z as z; F and G like B and Z
 * in the first two of a group. x: not valid.
 */
static const char one_byte_map[] = "MMMM1zxxMMMM1zx."
				   "MMMM1zxxMMMM1zxx"
				   "MMMM1z.xMMMM1z.x"
				   "MMMM1z.xMMMM1z.x"
				   "................"
				   "................"
				   "xx.M....zZ1B...."
				   "1111111111111111"
				   "BZxBMMMMMMMMMMMM"
				   "..........x....."
				   "8888....1z......"
				   "11111111vvvvvvvv"
				   "BB2...BZ3.2..1x."
				   "MMMMxxx.MMMMMMMM"
				   "1111111144x1...."
				   "......FG......MM";
static const char map_0f[] = "MMMMM.....M.MM.B"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "........MMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "BBBBMMM.MMMMMMMM"
			     "4444444444444444"
			     "MMMMMMMMMMMMMMMM"
			     "...MBMMM...MBMMM"
			     "MMMMMMMMMMBMMMMM"
			     "MMBMBBBM........"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM";

/* ---- one instruction ---- */

/* VEX and EVEX have the map among their bytes, REX.B and REX.R inverted. */
static void read_vector_prefix(struct hl_cfi_reader *reader, struct instruction *to, uint8_t prefix)
{
	uint8_t first = hl_cfi_read_byte(reader);
	unsigned map = prefix == 0xc5 ? 1 : first & 7;

	for (unsigned left = prefix == 0x62 ? 2 : prefix == 0xc4 ? 1 : 0; left; left--)
		hl_cfi_read_byte(reader);
	if (prefix == 0x62 && (map == 5 || map == 6)) /* half precision */
		map = 2;
	reader->failed |= map < 1 || map > 3;
	to->opcode = map << 8 | hl_cfi_read_byte(reader);
}

static void read_opcode(struct hl_cfi_reader *reader, struct instruction *to)
{
	uint8_t byte = hl_cfi_read_byte(reader);

	for (; !reader->failed; byte = hl_cfi_read_byte(reader)) {
		if (byte == 0x66)
			to->has_16_bits = true;
		else if (byte != 0xf2 && byte != 0xf3 && byte != 0xf0 && byte != 0x2e &&
			 byte != 0x36 && byte != 0x3e && byte != 0x26 && byte != 0x64 &&
			 byte != 0x65 && byte != 0x67)
			break;
	}
	if ((byte & 0xf0) == 0x40) {
		to->rex = byte;
		byte = hl_cfi_read_byte(reader);
	}
	if (byte == 0x62 || byte == 0xc4 || byte == 0xc5) {
		read_vector_prefix(reader, to, byte);
		return;
	}
	unsigned map = 0;
	if (byte == 0x0f) {
		byte = hl_cfi_read_byte(reader);
		map = byte == 0x38 ? MAP_0F38 : byte == 0x3a ? MAP_0F3A : MAP_0F;
		if (map != MAP_0F)
			byte = hl_cfi_read_byte(reader);
	}
	to->opcode = map | byte;
}

static char form_of(const struct instruction *of)
{
	if (of->opcode < MAP_0F)
		return one_byte_map[of->opcode];
	return of->opcode < MAP_0F38   ? map_0f[of->opcode - MAP_0F]
	       : of->opcode < MAP_0F3A ? 'M'
				       : 'B';
}

static void read_modrm(struct hl_cfi_reader *reader, struct instruction *to)
{
	to->has_modrm = true;
	to->modrm = hl_cfi_read_byte(reader);
	to->base = to->modrm & 7;
	unsigned mod = to->modrm >> 6;
	if (mod == 3)
		return;
	if (to->base == 4)
		to->base = hl_cfi_read_byte(reader) & 7;
	unsigned displacement_bytes = mod == 1 ? 1 : mod == 2 || to->base == 5 ? 4 : 0;
	if (displacement_bytes)
		to->displacement = (int32_t)hl_cfi_read_signed(reader, displacement_bytes);
}

static size_t immediate_bytes(const struct instruction *of, char form)
{
	unsigned full = of->has_16_bits && !(of->rex & REX_W) ? 2 : 4;
	bool is_first = (of->modrm >> 3 & 7) < 2;

	switch (form) {
	case '1' ... '8':
		return (size_t)(form - '0');
	case 'B':
		return 1;
	case 'z':
	case 'Z':
		return full;
	case 'v':
		return of->rex & REX_W ? 8 : full;
	case 'F':
		return is_first;
	case 'G':
		return is_first ? full : 0;
	default:
		return 0;
	}
}

static bool decode(const uint8_t *code, size_t bytes, struct instruction *ret_instruction)
{
	struct hl_cfi_reader reader = {code, code + bytes, false};
	struct instruction read = {0};

	read_opcode(&reader, &read);
	char form = form_of(&read);
	if (form >= 'A' && form <= 'Z')
		read_modrm(&reader, &read);
	size_t immediate = immediate_bytes(&read, form);
	if (reader.failed || form == 'x' || immediate > hl_cfi_left(&reader))
		return false;
	read.bytes = (size_t)(reader.at - code) + immediate;
	*ret_instruction = read;
	return true;
}

/* ---- what an instruction does ---- */

static bool is_nop(const struct instruction *at)
{
	return (at->opcode == 0x90 && !at->rex) || at->opcode == (MAP_0F | 0x1f);
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
	return at->rex & REX_W && ((at->opcode == 0x8b && is_reg(at, number)) ||
				   (at->opcode == 0x89 && has_registers(at) && is_rm(at, number)));
}

static bool is_move_of_sp_to_bp(const struct instruction *at)
{
	return moves_to(at, REGISTER_BP) && has_registers(at) &&
	       (at->opcode == 0x89 ? is_reg(at, REGISTER_SP) : is_rm(at, REGISTER_SP));
}

static bool pops(const struct instruction *at, enum register_number number)
{
	return at->opcode == 0x58u + number && !(at->rex & REX_B);
}

/* Whether what comes next in memory is not all that can come next. */
static bool branches(const struct instruction *at)
{
	unsigned reg = at->modrm >> 3 & 7;

	return (at->opcode & ~15u) == (MAP_0F | 0x80) || (at->opcode & ~15u) == 0x70 ||
	       (at->opcode >= 0xe0 && at->opcode <= 0xe3) ||
	       (at->opcode >= CALL && at->opcode <= 0xeb && at->opcode != 0xea) ||
	       (at->opcode & ~9u) == 0xc2 || (at->opcode == 0xff && reg >= 2 && reg <= 5) ||
	       at->opcode == 0xcc || at->opcode == 0xcd || at->opcode == 0xcf || at->opcode == 0xf4;
}

/* Pushes, pops, leave and enter, and what writes to rsp itself. */
static bool changes_sp(const struct instruction *at)
{
	if ((at->opcode & ~15u) == 0x50 || at->opcode == 0x68 || at->opcode == 0x6a ||
	    at->opcode == 0x8f || at->opcode == 0x9c || at->opcode == 0x9d || at->opcode == 0xc8 ||
	    at->opcode == 0xc9 || (at->opcode == 0xff && (at->modrm >> 3 & 7) == 6))
		return true;
	bool adds = (at->opcode == 0x81 || at->opcode == 0x83) && (at->modrm >> 3 & 7) != 7;
	return (adds && has_registers(at) && is_rm(at, REGISTER_SP)) || moves_to(at, REGISTER_SP) ||
	       (at->opcode == 0x8d && is_reg(at, REGISTER_SP));
}

/* Whether the next instruction in memory is reached from elsewhere alone. */
static bool leaves(const struct instruction *at)
{
	return (at->opcode & ~9u) == 0xc2 || at->opcode == 0xe9 || at->opcode == 0xeb ||
	       (at->opcode == 0xff && (at->modrm >> 3 & 7) == 4);
}

bool hl_code_read(const uint8_t *code, size_t bytes, struct hl_code *ret_code)
{
	struct instruction at;

	if (!decode(code, bytes, &at))
		return false;
	bool jumps_to_register =
		at.opcode == 0xff && has_registers(&at) && (at.modrm >> 3 & 7) == 4;
	bool switches = moves_to(&at, REGISTER_SP) || pops(&at, REGISTER_SP) || at.opcode == LEAVE;
	bool sets_bp = moves_to(&at, REGISTER_BP) || pops(&at, REGISTER_BP);
	*ret_code = (struct hl_code){
		at.bytes,
		(is_nop(&at) ? HL_DOES_NOTHING : 0u) |
			(at.opcode == BREAKPOINT ? HL_DOES_FILL : 0u) |
			(branches(&at) ? HL_DOES_BRANCH : 0u) | (leaves(&at) ? HL_DOES_LEAVE : 0u) |
			(jumps_to_register ? HL_DOES_JUMP_TO_REGISTER : 0u) |
			(changes_sp(&at) ? HL_DOES_MOVE_SP : 0u) |
			(switches ? HL_DOES_SWITCH_STACK : 0u) | (sets_bp ? HL_DOES_SET_BP : 0u)};
	return true;
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
		    (is_stored && is_through_sp && at.opcode == 0x8d &&
		     at.displacement == stored_at))
			return offset + at.bytes;
		if (at.opcode == 0x50 + REGISTER_BP && !(at.rex & REX_B)) {
			is_pushed = true;
		} else if (is_through_sp && at.opcode == 0x89) {
			is_stored = true;
			stored_at = at.displacement;
		} else if (changes_sp(&at) || moves_to(&at, REGISTER_BP)) {
			is_pushed = is_stored = false;
		}
	}
	return 0;
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
	int32_t distance;

	__builtin_memcpy(&distance, code - sizeof(distance), sizeof(distance));
	return code[-5] == CALL ? address + (uint64_t)(int64_t)distance : 0;
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
