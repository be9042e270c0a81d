/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves the beginning of every function of libraries as distributions ship them, near and far, and
 * reads the trampolines back: the same instructions, with the same targets and data.
 */
#include "base/cleanup.h"
#include "elf/elf.h"
#include "hook/relocate.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#define NEAR_BYTES    (UINT64_C(1) << 24)
#define FAR_BYTES     (UINT64_C(1) << 40)
#define ALIGNMENT     16u
#define UNSIZED_BYTES 64u /* of a function whose symbol has no size */
#define STEPS_MAX     (HL_ENTRY_MAX + 1)
#define FAR_PUSH      "\xff\x35\x02\0\0\0\xeb\x08"
#define FAR_JUMP      "\xff\x25\0\0\0\0"
#define LOAD_R11      "\x49\xbb"

/* An instruction as it reads wherever it stands. */
struct step {
	char text[128];	  /* addresses in full; of a branch the name alone */
	uint64_t target;  /* of a branch */
	uint64_t returns; /* of a call: to where */
	uint8_t offset;	  /* where it begins */
};

struct steps {
	struct step steps[STEPS_MAX];
	unsigned count;
};

struct instruction {
	ZydisDecodedInstruction decoded;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

static void decode(const uint8_t *code, size_t bytes, struct instruction *ret_instruction)
{
	ZydisDecoder decoder;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	assert_true(ZYAN_SUCCESS(ZydisDecoderDecodeFull(
		&decoder, code, bytes, &ret_instruction->decoded, ret_instruction->operands)));
}

static bool is_branch(const struct instruction *it)
{
	return it->decoded.raw.imm[0].is_relative;
}

/* Reads the instruction that stands at ${address}; its ${ret_step}->offset is the caller's. */
static void read_step(const struct instruction *it, uint64_t address, struct step *ret_step)
{
	ZydisFormatter formatter;

	*ret_step = (struct step){0};
	if (is_branch(it)) {
		snprintf(ret_step->text, sizeof(ret_step->text), "%s",
			 ZydisMnemonicGetString(it->decoded.mnemonic));
		ret_step->target =
			address + it->decoded.length + (uint64_t)it->decoded.raw.imm[0].value.s;
		return;
	}
	ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_INTEL);
	assert_true(ZYAN_SUCCESS(ZydisFormatterFormatInstruction(
		&formatter, &it->decoded, it->operands, it->decoded.operand_count_visible,
		ret_step->text, sizeof(ret_step->text), address, NULL)));
}

static struct step *add_step(struct steps *steps, size_t offset)
{
	assert_true(steps->count < STEPS_MAX);
	steps->steps[steps->count].offset = (uint8_t)offset;
	return &steps->steps[steps->count++];
}

/* What the function does up to the end of its entry, and where it goes on then. */
static void read_function(const uint8_t *code, size_t bytes, uint64_t address,
			  const struct hl_relocated *relocated, struct steps *ret_steps)
{
	struct instruction it;
	bool ends = false;

	ret_steps->count = 0;
	for (size_t at = 0; at < relocated->entry_bytes; at += it.decoded.length) {
		decode(code + at, bytes - at, &it);
		if (ends && relocated->twin[at] == HL_RELOCATE_NO_TWIN)
			continue; /* padding */
		struct step *step = add_step(ret_steps, at);
		read_step(&it, address + at, step);
		step->offset = (uint8_t)at;
		ends = it.decoded.meta.category == ZYDIS_CATEGORY_RET ||
		       it.decoded.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
		       it.decoded.meta.category == ZYDIS_CATEGORY_CALL;
		if (it.decoded.meta.category == ZYDIS_CATEGORY_CALL)
			step->returns = address + at + it.decoded.length;
	}
	if (ends)
		return;
	struct step *last = add_step(ret_steps, relocated->entry_bytes);
	*last = (struct step){.text = "jmp", .offset = relocated->entry_bytes};
	last->target = address + relocated->entry_bytes;
}

static bool begins_with(const uint8_t *code, size_t bytes, const char *prefix, size_t prefix_bytes,
			uint64_t *ret_constant)
{
	if (bytes < prefix_bytes + sizeof(*ret_constant) || memcmp(code, prefix, prefix_bytes) != 0)
		return false;
	memcpy(ret_constant, code + prefix_bytes, sizeof(*ret_constant));
	return true;
}
#define BEGINS_WITH(code, bytes, prefix, ret_constant) \
	begins_with(code, bytes, prefix, sizeof(prefix) - 1, ret_constant)

/* Reads a jump; returns its length. */
static size_t read_jump(const uint8_t *code, size_t bytes, uint64_t address, struct step *step)
{
	struct instruction it;

	if (BEGINS_WITH(code, bytes, FAR_JUMP, &step->target)) {
		snprintf(step->text, sizeof(step->text), "jmp");
		return 14;
	}
	decode(code, bytes, &it);
	uint64_t returns = step->returns;
	uint8_t offset = step->offset;
	read_step(&it, address, step);
	step->returns = returns;
	step->offset = offset;
	return it.decoded.length;
}

/* Replaces "[r11]" by the address. */
static void put_address(struct step *step, uint64_t address)
{
	char *at = strstr(step->text, "[r11]"), rest[sizeof(step->text)];

	assert_non_null(at);
	strcpy(rest, at + strlen("[r11]"));
	snprintf(at, (size_t)(step->text + sizeof(step->text) - at), "[0x%016" PRIX64 "]%s",
		 address, rest);
}

static void make_call(struct step *step)
{
	char rest[sizeof(step->text)];

	assert_int_equal(strncmp(step->text, "jmp", 3), 0);
	strcpy(rest, step->text + 3);
	snprintf(step->text, sizeof(step->text), "call%.*s", (int)sizeof(rest) - 6, rest);
}

/* Reads what stands for one instruction of the function, which was ${like}. */
static size_t read_moved(const uint8_t *code, size_t bytes, uint64_t address,
			 const struct step *like, struct step *step)
{
	uint64_t data = 0;
	size_t at = 0;
	bool has_data = false;
	struct instruction it;

	if (like->returns && BEGINS_WITH(code, bytes, FAR_PUSH, &step->returns))
		at = 16;
	if (strncmp(like->text, "mov r11,", 8) != 0 &&
	    BEGINS_WITH(code + at, bytes - at, LOAD_R11, &data)) {
		has_data = true;
		at += 10;
	}
	decode(code + at, bytes - at, &it);
	if (is_branch(&it) && it.decoded.raw.imm[0].size == 8) {
		/* over a jump over the jump that matters */
		char text[sizeof(step->text)];
		read_jump(code + at, bytes - at, address + at, step);
		assert_int_equal(step->target, address + at + it.decoded.length + 2);
		strcpy(text, step->text);
		at += it.decoded.length;
		assert_int_equal(code[at], 0xeb);
		size_t over = code[at + 1];
		at += 2;
		assert_int_equal(read_jump(code + at, bytes - at, address + at, step), over);
		assert_string_equal(step->text, "jmp");
		strcpy(step->text, text);
		at += over;
	} else {
		at += read_jump(code + at, bytes - at, address + at, step);
	}
	if (has_data)
		put_address(step, data);
	if (step->returns)
		make_call(step);
	return at;
}

/* Where the code at ${target} stands in the function, when it is in the trampoline. */
static uint64_t target_in_function(const struct hl_relocated *relocated, uint64_t address,
				   uint64_t trampoline, uint64_t target)
{
	for (unsigned i = 0; i < HL_ENTRY_MAX; i++)
		if (relocated->twin[i] != HL_RELOCATE_NO_TWIN &&
		    target == trampoline + relocated->twin[i])
			return address + i;
	return target;
}

static void expect_same(const char *name, const struct steps *steps,
			const struct hl_relocated *relocated, uint64_t address, uint64_t trampoline)
{
	unsigned twins = 0;
	size_t at = 0;

	for (unsigned i = 0; i < steps->count; i++) {
		const struct step *expected = &steps->steps[i];
		struct step step = {0};
		if (expected->offset < relocated->entry_bytes &&
		    relocated->twin[expected->offset] != at)
			fail_msg("%s: +%u has no twin at +%zu", name, expected->offset, at);
		at += read_moved(relocated->code + at, relocated->code_bytes - at, trampoline + at,
				 expected, &step);
		step.target = target_in_function(relocated, address, trampoline, step.target);
		if (strcmp(step.text, expected->text) != 0 || step.target != expected->target ||
		    step.returns != expected->returns)
			fail_msg("%s: '%s' %#lx instead of '%s' %#lx", name, step.text, step.target,
				 expected->text, expected->target);
	}
	assert_int_equal(at, relocated->code_bytes);
	for (unsigned i = 0; i < HL_ENTRY_MAX; i++)
		twins += relocated->twin[i] != HL_RELOCATE_NO_TWIN;
	bool goes_on = steps->steps[steps->count - 1].offset == relocated->entry_bytes;
	assert_int_equal(twins, steps->count - goes_on);
}

/* ---- files ---- */

struct sweep {
	unsigned functions, near, far, of_family;
};

/* Functions by which programs allocate: whatever else is refused, these are not. */
static bool is_of_family(const char *name)
{
	static const char *const family[] = {
		"malloc",	 "free",	   "calloc",	   "realloc",
		"memalign",	 "posix_memalign", "reallocarray", "malloc_usable_size",
		"aligned_alloc", "valloc",	   "pvalloc",	   "_Znwm",
		"_Znam",	 "_ZdlPv",	   "_ZdaPv",	   "_ZdlPvm",
		"_ZdaPvm",	 "dlclose",	   "mlockall",
	};

	for (size_t i = 0; i < sizeof(family) / sizeof(*family); i++)
		if (strcmp(name, family[i]) == 0)
			return true;
	return false;
}

static bool check_at(const char *name, const uint8_t *code, size_t bytes, const GElf_Sym *symbol,
		     uint64_t trampoline)
{
	struct hl_relocated relocated;
	struct hl_error err = {0};
	struct steps steps;

	int r = hl_relocate(code, bytes, symbol->st_value, symbol->st_size, trampoline, &relocated,
			    &err);
	if (r < 0) {
		assert_int_equal(r, -ENOTSUP);
		assert_non_null(strstr(err.text, "cannot be patched: "));
		if (is_of_family(name))
			fail_msg("%s: %s", name, err.text);
		return false;
	}
	read_function(code, bytes, symbol->st_value, &relocated, &steps);
	expect_same(name, &steps, &relocated, symbol->st_value, trampoline);
	return true;
}

static void check_function(const char *name, const uint8_t *code, size_t available,
			   const GElf_Sym *symbol, struct sweep *sweep)
{
	uint64_t end = symbol->st_value + symbol->st_size;
	size_t bytes = symbol->st_size ? symbol->st_size + (0 - end) % ALIGNMENT : UNSIZED_BYTES;

	if (bytes > available)
		bytes = available;
	sweep->functions++;
	sweep->of_family += is_of_family(name);
	sweep->near += check_at(name, code, bytes, symbol, symbol->st_value + NEAR_BYTES);
	sweep->far += check_at(name, code, bytes, symbol, symbol->st_value + FAR_BYTES);
}

static void check_file(int fd, struct sweep *ret_sweep)
{
	struct stat status;

	assert_int_equal(fstat(fd, &status), 0);
	size_t size = (size_t)status.st_size;
	const uint8_t *content = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(content != MAP_FAILED);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	assert_non_null(elf);
	*ret_sweep = (struct sweep){0};
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_SYMTAB | HL_ELF_DYNSYM};
	while (hl_elf_symbols_next(&all)) {
		uint64_t offset;
		if (GELF_ST_TYPE(all.symbol.st_info) == STT_FUNC &&
		    all.symbol.st_shndx != SHN_UNDEF &&
		    hl_elf_code_offset(elf, all.symbol.st_value, &offset) && offset < size)
			check_function(all.name, content + offset, size - offset, &all.symbol,
				       ret_sweep);
	}
	munmap((void *)content, size);
}

/* ${functions}, ${of_family}: how many there are at least. */
static void sweep(const char *path, unsigned functions, unsigned of_family)
{
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct sweep found;

	if (fd < 0) {
		print_message("skipped: no '%s'\n", path);
		skip();
	}
	check_file(fd, &found);
	print_message("%s: %u functions, near %.2f %%, far %.2f %%\n", path, found.functions,
		      100.0 * found.near / found.functions, 100.0 * found.far / found.functions);
	assert_true(found.functions >= functions && found.of_family >= of_family);
	assert_true(found.near >= found.functions * 9ul / 10);
	assert_true(found.far >= found.functions * 8ul / 10);
}

#define LIBRARIES "/usr/lib/x86_64-linux-gnu/"

#define SWEEP(name, path, functions, of_family)    \
	static void name(void **state)             \
	{                                          \
		(void)state;                       \
		sweep(path, functions, of_family); \
	}

SWEEP(functions_of_glibc, LIBRARIES "libc.so.6", 2000, 11)
SWEEP(functions_of_libstdcxx, LIBRARIES "libstdc++.so.6", 4000, 6)
SWEEP(functions_of_python, "/usr/bin/python3", 1000, 0)
SWEEP(functions_of_jemalloc, LIBRARIES "libjemalloc.so.2", 20, 8)
SWEEP(functions_of_mimalloc, LIBRARIES "libmimalloc.so.2.0", 50, 8)
SWEEP(functions_of_tcmalloc, LIBRARIES "libtcmalloc_minimal.so.4", 50, 8)
SWEEP(functions_of_musl, "/usr/lib/x86_64-linux-musl/libc.so", 1000, 8)
SWEEP(functions_of_a_static_program_with_musl, getenv("STATIC_MUSL_PROGRAM") ?: "", 20, 2)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_of_glibc),
		cmocka_unit_test(functions_of_libstdcxx),
		cmocka_unit_test(functions_of_python),
		cmocka_unit_test(functions_of_jemalloc),
		cmocka_unit_test(functions_of_mimalloc),
		cmocka_unit_test(functions_of_tcmalloc),
		cmocka_unit_test(functions_of_musl),
		cmocka_unit_test(functions_of_a_static_program_with_musl),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
