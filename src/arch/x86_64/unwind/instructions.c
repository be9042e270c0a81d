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

#define CALL	   0xe8
#define LEAVE	   0xc9
#define BREAKPOINT 0xcc

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
	uint8_t modrm;
	uint8_t base; /* of a SIB byte; of rm without one */
	int32_t displacement;
};

/*
 * What follows each opcode, as the maps have them, 16 a row: '.' nothing. Capital letters: a ModRM byte, which M has alone. Immediates: B,
 * b of 8 bits; Z, z of 32, or 16 where operands have that; F and G like B and Z, in the first two of a group; v like z, or 64 bits; d 32, w 16,
 * e 24 and q 64 bits, always. x: not valid.
 */
static const char one_byte_map[] = "MMMMbzxxMMMMbzx."
				   "MMMMbzxxMMMMbzxx"
				   "MMMMbz.xMMMMbz.x"
				   "MMMMbz.xMMMMbz.x"
				   "................"
				   "................"
				   "xx.M....zZbB...."
				   "bbbbbbbbbbbbbbbb"
				   "BZxBMMMMMMMMMMMM"
				   "..........x....."
				   "qqqq....bz......"
				   "bbbbbbbbvvvvvvvv"
				   "BBw...BZe.w..bx."
				   "MMMMxxx.MMMMMMMM"
				   "bbbbbbbbddxb...."
				   "......FG......MM";
static const char map_0f[] = "MMMMM.....M.MM.B"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "........MMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "BBBBMMM.MMMMMMMM"
			     "dddddddddddddddd"
			     "MMMMMMMMMMMMMMMM"
			     "...MBMMM...MBMMM"
			     "MMMMMMMMMMBMMMMM"
			     "MMBMBBBM........"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM"
			     "MMMMMMMMMMMMMMMM";

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
	}
	to->opcode = byte;
}

static char form_of(const struct instruction *of)
{
	switch (of->map) {
	case MAP_ONE_BYTE:
		return one_byte_map[of->opcode];
	case MAP_0F:
		return map_0f[of->opcode];
	default:
		return of->map == MAP_0F38 ? 'M' : 'B';
	}
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

static size_t immediate_bytes(const struct instruction *of, char form)
{
	unsigned full = of->has_16_bits && !(of->rex & REX_W) ? 2 : 4;
	bool is_first = (of->modrm >> 3 & 7) < 2;

	switch (form) {
	case 'b':
	case 'B':
		return 1;
	case 'w':
		return 2;
	case 'e':
		return 3;
	case 'd':
		return 4;
	case 'q':
		return 8;
	case 'v':
		return of->rex & REX_W ? 8 : full;
	case 'z':
	case 'Z':
		return full;
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
	struct reader reader = {code, code + bytes, false};
	struct instruction read = {0};

	read_opcode(&reader, &read);
	char form = form_of(&read);
	if (form >= 'A' && form <= 'Z')
		read_modrm(&reader, &read);
	size_t immediate = immediate_bytes(&read, form);
	if (reader.failed || form == 'x' || immediate > (size_t)(reader.end - reader.at))
		return false;
	read.bytes = (size_t)(reader.at - code) + immediate;
	*ret_instruction = read;
	return true;
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

/* Whether the next instruction in memory is reached from elsewhere alone. */
static bool leaves(const struct instruction *at)
{
	return at->map == MAP_ONE_BYTE &&
	       ((at->opcode & 0xf6) == 0xc2 || at->opcode == 0xe9 || at->opcode == 0xeb ||
		(at->opcode == 0xff && (at->modrm >> 3 & 7) == 4));
}

bool hl_code_read(const uint8_t *code, size_t bytes, struct hl_code *ret_code)
{
	struct instruction at;

	if (!decode(code, bytes, &at))
		return false;
	bool jumps_to_register =
		is_one_byte(&at, 0xff) && has_registers(&at) && (at.modrm >> 3 & 7) == 4;
	bool switches =
		moves_to(&at, REGISTER_SP) || pops(&at, REGISTER_SP) || is_one_byte(&at, LEAVE);
	bool sets_bp = moves_to(&at, REGISTER_BP) || pops(&at, REGISTER_BP);
	*ret_code = (struct hl_code){
		at.bytes,
		(is_nop(&at) ? HL_DOES_NOTHING : 0u) |
			(is_one_byte(&at, BREAKPOINT) ? HL_DOES_FILL : 0u) |
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
