/* SPDX-License-Identifier: BSD-2-Clause */
/* Code tables: what they say of real files is what the recorder's unwinder finds there; damaged
 * files are not harm. */
#include "bpf/walker.h"

#include "fail_allocations.h"
#include "temporary.h"
#include "unwind/rule.h"
#include "unwind/rule_cache.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A file in memory that a test may change. */
struct file {
	uint8_t *bytes;
	size_t size;
	int fd;
};

static struct file copy_of(const char *path)
{
	struct file file = {.fd = memfd_create("file", MFD_CLOEXEC)};
	int from = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;

	assert_true(from >= 0 && file.fd >= 0);
	assert_int_equal(fstat(from, &status), 0);
	file.size = (size_t)status.st_size;
	assert_int_equal(ftruncate(file.fd, status.st_size), 0);
	file.bytes = mmap(NULL, file.size, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
	assert_ptr_not_equal(file.bytes, MAP_FAILED);
	assert_int_equal(pread(from, file.bytes, file.size, 0), file.size);
	close(from);
	return file;
}

static void release(struct file *file)
{
	munmap(file->bytes, file->size);
	close(file->fd);
}

static Elf64_Phdr *header_of(const struct file *file, uint32_t type)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)file->bytes;
	Elf64_Phdr *segments = (Elf64_Phdr *)(file->bytes + header->e_phoff);

	for (uint16_t i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == type)
			return &segments[i];
	return NULL;
}

static hl_rule rule_in_memory(const struct dl_find_object *module, uint64_t pc)
{
	hl_rule rule;
	bool found = !hl_cfi_find_in_memory(module->dlfo_eh_frame, (uint64_t)module->dlfo_map_start,
					    (uint64_t)module->dlfo_map_end, pc, &rule);

	return found ? rule : HL_RULE_NONE;
}

static bool is_entry_code(const struct dl_find_object *module, uint64_t pc)
{
	const Elf64_Ehdr *header = module->dlfo_map_start;
	uint64_t entry = module->dlfo_link_map->l_addr + header->e_entry;

	return pc - entry < HL_ENTRY_CODE_BYTES && rule_in_memory(module, entry) == HL_RULE_NONE;
}

static struct dl_find_object searched;

static bool find_searched(struct hl_unwind *unwind, uint64_t pc,
			  struct hl_unwind_module *ret_module)
{
	(void)unwind, (void)pc;
	*ret_module = (struct hl_unwind_module){
		.start = (uint64_t)searched.dlfo_map_start,
		.end = (uint64_t)searched.dlfo_map_end,
		.load_bias = searched.dlfo_link_map->l_addr,
		.eh_frame_hdr = searched.dlfo_eh_frame,
	};
	return true;
}

static hl_rule cached_rule(uint64_t pc)
{
	static struct hl_unwind unwind = {.find_module = find_searched};

	return hl_rule_cache_find(&unwind, atomic_load(&unwind.generation), pc) & HL_RULE_MASK;
}

/* The rule of padding between two functions with rules, of which ${pc} is any byte. */
static hl_rule rule_of_padding(uint64_t pc)
{
	uint64_t begin = pc, end = pc;

	while (pc - begin < 64 && begin > (uint64_t)searched.dlfo_map_start &&
	       rule_in_memory(&searched, begin - 1) == HL_RULE_NONE)
		begin--;
	while (end - pc < 64 && end < (uint64_t)searched.dlfo_map_end &&
	       rule_in_memory(&searched, end) == HL_RULE_NONE)
		end++;
	hl_rule next = rule_in_memory(&searched, end);
	return hl_instructions_are_padding((const uint8_t *)begin, end - begin) &&
			       next != HL_RULE_END
		       ? next
		       : HL_RULE_NONE;
}

/* What the recorder finds at a pc of this process, as far as tables have it; see src/unwind/rule_cache.c. */
static hl_rule recorders_rule(uint64_t pc)
{
	hl_rule rule = rule_in_memory(&searched, pc);

	if (rule != HL_RULE_NONE)
		return rule;
	if (is_entry_code(&searched, pc))
		return HL_RULE_END;
	if (rule_in_memory(&searched, pc + 1) != HL_RULE_NONE || is_entry_code(&searched, pc + 1))
		return HL_RULE_END_BEFORE;
	return cached_rule(pc) == HL_RULE_FRAME_POINTER ? HL_RULE_FRAME_POINTER
							: rule_of_padding(pc);
}

static void assert_same_rules(const void *function)
{
	struct hl_code_table table;

	assert_int_equal(_dl_find_object((void *)(uintptr_t)function, &searched), 0);
	const char *name = searched.dlfo_link_map->l_name;
	uint64_t bias = searched.dlfo_link_map->l_addr;
	int fd = open(*name ? name : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(hl_code_table_read(fd, 0, &table), 0);
	close(fd);
	assert_true(table.has_rows);
	assert_int_equal(table.low + bias, (uint64_t)searched.dlfo_map_start);
	/* Of one segment alone where others do not follow it at once, as in files for pages of 64 KiB. */
	assert_true(table.high + bias >= (uint64_t)searched.dlfo_map_end);
	uint64_t code = table.code_low + bias, size = table.code_high - table.code_low;
	for (uint64_t i = 0; i < size; i += i < 16384 ? 1 : 97) {
		hl_rule found = hl_code_table_rule(&table, table.code_low + i);
		/* By a section, which the recorder does not see; or before it. */
		bool is_stub = HL_RULE_STUB != HL_RULE_NONE &&
			       (found == HL_RULE_STUB ||
				hl_code_table_rule(&table, table.code_low + i + 1) == HL_RULE_STUB);
		/* By the call that returns there, which the table does not see either. */
		bool is_return = HL_ARCH_CALLERS_HAVE_RECORDS && found == HL_RULE_NONE &&
				 cached_rule(code + i) == HL_RULE_FRAME_POINTER;
		if (!is_stub && !is_return && found != recorders_rule(code + i))
			fail_msg("at %#lx of '%s': %#lx instead of %#lx", table.code_low + i, name,
				 found, recorders_rule(code + i));
	}
	hl_code_table_release(&table);
}

static void rules_are_those_that_the_recorder_finds(void **state)
{
	(void)state;
	assert_same_rules((const void *)(uintptr_t)assert_same_rules);
	assert_same_rules((const void *)(uintptr_t)gnu_get_libc_version);
	assert_same_rules(
		(const void *)getauxval(AT_BASE)); /* the loader, whose entry has no rules */
}

#ifdef __x86_64__
#define FRAMED_CALL   "endbr64; push %rbp; mov %rsp, %rbp; push %rbx; sub $24, %rsp; call *%rdi"
#define FRAMED_RETURN "add $24, %rsp; pop %rbx; pop %rbp; ret"
#define BARE_CALL     "sub $8, %rsp; call *%rdi"
#define BARE_RETURN   "add $8, %rsp; ret"
#define COMPARE	      "cmp %rdx, %rcx"
#else
#define FRAMED_CALL   "stp x29, x30, [sp, -32]!; mov x29, sp; str x19, [sp, 16]; blr x0"
#define FRAMED_RETURN "ldr x19, [sp, 16]; ldp x29, x30, [sp], 32; ret"
#define BARE_CALL     "str x30, [sp, -16]!; blr x0"
#define BARE_RETURN   "ldr x30, [sp], 16; ret"
#define COMPARE	      "cmp x2, x3"
#endif

/* Functions in assembly language have neither symbols nor rules: with a frame pointer, and without. */
extern const char *const bare_functions[];
__asm__(".text\n"
	".p2align 4\n"
	".Lframed: " FRAMED_CALL "\n"
	".Lframed_return: " FRAMED_RETURN "\n"
	".p2align 4\n"
	".Lbare: " BARE_CALL "\n"
	".Lbare_return: " BARE_RETURN "\n"
	".p2align 6\n"
	".Lchecked: .cfi_startproc; " COMPARE "; .cfi_endproc\n"
	".Lpadding: .p2align 6\n"
	".Lrun_into: .cfi_startproc; ret; .cfi_endproc\n"
	".p2align 4\n"
	".section .data.rel.ro, \"aw\"\n"
	".globl bare_functions\n"
	"bare_functions: .quad .Lframed, .Lframed_return, .Lbare_return, .Lchecked, .Lpadding, "
	".Lrun_into\n"
	".text");

/* By src/unwind/rule_cache.c as well: the other test compares both. */
static void functions_in_gaps_are_left_by_the_frame_pointer_that_they_make(void **state)
{
	struct hl_code_table table;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(_dl_find_object((void *)(uintptr_t)assert_same_rules, &searched), 0);
	assert_int_equal(hl_code_table_read(fd, 0, &table), 0);
	close(fd);
	uint64_t lookups[3];
	for (size_t i = 0; i < 3; i++)
		lookups[i] = (uint64_t)bare_functions[i] - 1;
	uint64_t bias = searched.dlfo_link_map->l_addr;
	assert_int_equal(hl_code_table_rule(&table, lookups[0] + 1 - bias), HL_RULE_NONE);
	assert_int_equal(hl_code_table_rule(&table, lookups[1] - bias), HL_RULE_FRAME_POINTER);
	assert_int_equal(recorders_rule(lookups[1]), HL_RULE_FRAME_POINTER);
	assert_int_equal(hl_code_table_rule(&table, lookups[2] - bias), HL_RULE_NONE);
	assert_int_equal(recorders_rule(lookups[2]), HL_RULE_NONE);
	hl_code_table_release(&table);
}

static void padding_before_a_function_has_its_rule(void **state)
{
	struct hl_code_table table;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(_dl_find_object((void *)(uintptr_t)assert_same_rules, &searched), 0);
	assert_int_equal(hl_code_table_read(fd, 0, &table), 0);
	close(fd);
	uint64_t bias = searched.dlfo_link_map->l_addr, checked = (uint64_t)bare_functions[3],
		 padding = (uint64_t)bare_functions[4], next = (uint64_t)bare_functions[5];
	hl_rule rule = rule_in_memory(&searched, next);
	assert_true(next - padding > 32 && rule != HL_RULE_NONE);
	assert_int_equal(hl_code_table_rule(&table, checked - bias), rule);
	assert_int_equal(hl_code_table_rule(&table, padding - bias), rule);
	assert_int_equal(hl_code_table_rule(&table, next - 2 - bias), rule);
	assert_int_equal(hl_code_table_rule(&table, next - 1 - bias), HL_RULE_END_BEFORE);
	assert_int_equal(cached_rule(padding), rule);
	hl_code_table_release(&table);
}

static void outside_of_the_code_there_is_no_rule(void **state)
{
	struct hl_code_table table;
	struct file file = copy_of("/proc/self/exe");
	uint64_t address;

	(void)state;
	assert_int_equal(hl_code_table_read(file.fd, 0, &table), 0);
	assert_int_equal(hl_code_table_rule(&table, table.code_low - 1), HL_RULE_NONE);
	assert_int_equal(hl_code_table_rule(&table, table.code_high + 4096), HL_RULE_NONE);
	assert_int_equal(hl_code_table_rule(&table, UINT64_MAX), HL_RULE_NONE);
	assert_false(hl_code_table_address(&table, file.size + 4096, &address));
	assert_true(hl_code_table_address(&table, 0, &address));
	assert_int_equal(address, table.low);
	hl_code_table_release(&table);
	release(&file);
}

static void pages_begin_with_the_rule_in_force(void **state)
{
	struct hl_code_table table;
	struct file file = copy_of("/proc/self/exe");

	(void)state;
	assert_int_equal(hl_code_table_read(file.fd, 0, &table), 0);
	for (uint32_t i = 0; i < table.page_count; i++) {
		const struct hl_code_page *page = &table.pages[i];
		assert_true(page->first_row + page->row_count <= table.row_count);
		/* as many as the search in the kernel can tell apart */
		assert_true(page->row_count < 2u << HL_CODE_PAGE_SHIFT);
		for (uint32_t k = 0; k < page->row_count; k++) {
			uint64_t at = table.rows[page->first_row + k] >> HL_ROW_SHIFT;
			assert_true(at < HL_CODE_PAGE_BYTES);
			assert_true(k ? at >= table.rows[page->first_row + k - 1] >> HL_ROW_SHIFT
				      : at == 0);
		}
	}
	hl_code_table_release(&table);
	release(&file);
}

static void the_build_id_is_the_files(void **state)
{
	struct hl_code_table table;
	struct file file = copy_of("/proc/self/exe");

	(void)state;
	assert_int_equal(hl_code_table_read(file.fd, 0, &table), 0);
	assert_int_equal(table.build_id_bytes, 20);
	const Elf64_Phdr *header = header_of(&file, PT_NOTE);
	assert_non_null(header);
	assert_non_null(memmem(file.bytes, file.size, table.build_id, table.build_id_bytes));
	hl_code_table_release(&table);
	release(&file);
}

static void rows_are_found_by_section_where_there_is_no_index_of_frames(void **state)
{
	struct hl_code_table usual, other;
	struct file file = copy_of("/proc/self/exe");

	(void)state;
	assert_int_equal(hl_code_table_read(file.fd, 0, &usual), 0);
	header_of(&file, PT_GNU_EH_FRAME)->p_type = PT_NULL;
	assert_int_equal(hl_code_table_read(file.fd, 0, &other), 0);
	assert_int_equal(other.row_count, usual.row_count);
	assert_memory_equal(other.rows, usual.rows, usual.row_count * sizeof(*usual.rows));
	hl_code_table_release(&usual);
	hl_code_table_release(&other);
	release(&file);
}

/* Rules of a library whose functions have .debug_frame alone, compressed as ${kind} says. */
static void read_debug_frames(const char *kind, struct hl_code_table *ret_table)
{
	char command[512], path[64];

	assert_int_equal(make_temporary(path), 0);
	snprintf(command, sizeof(command),
		 "cd '%s' && for i in $(seq 40); do echo \"int f$i(int *x) { return h(x) + $i; "
		 "}\"; done "
		 "| sed '1i int h(int *);' > f.c && cc -O2 -g -fno-asynchronous-unwind-tables "
		 "-shared -fPIC "
		 "-o f.so f.c && objcopy --compress-debug-sections=%s f.so",
		 path, kind);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "%s/f.so", path);
	int fd = open(command, O_RDONLY | O_CLOEXEC);
	int r = hl_code_table_read(fd, 0, ret_table);
	close(fd);
	assert_int_equal(remove_temporary(path), 0);
	if (r == -ENOEXEC)
		skip(); /* the compiler here is one for another machine */
	assert_int_equal(r, 0);
}

static void compressed_debug_frames_have_the_same_rows(void **state)
{
	static const char *const kinds[] = {"zlib", "zstd"};
	struct hl_code_table plain, packed;

	(void)state;
	if (system("cc --version >/dev/null 2>&1 && objcopy --help | grep -q "
		   "'debug-sections.*zstd'") != 0) {
		print_message("skipped: cc and an objcopy that knows zstd are needed\n");
		skip();
	}
	read_debug_frames("none", &plain);
	assert_true(plain.row_count > 80);
	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++) {
		read_debug_frames(kinds[i], &packed);
		assert_int_equal(packed.row_count, plain.row_count);
		assert_memory_equal(packed.rows, plain.rows, plain.row_count * sizeof(*plain.rows));
		hl_code_table_release(&packed);
	}
	hl_code_table_release(&plain);
}

static void files_without_frames_have_pages_without_rows(void **state)
{
	struct hl_code_table table;
	struct file file = copy_of("/proc/self/exe");

	(void)state;
	header_of(&file, PT_GNU_EH_FRAME)->p_type = PT_NULL;
	((Elf64_Ehdr *)file.bytes)->e_shnum = 0;
	assert_int_equal(hl_code_table_read(file.fd, 0, &table), 0);
	assert_false(table.has_rows);
	assert_int_equal(table.row_count, 0);
	assert_true(table.page_count > 0);
	assert_int_equal(hl_code_table_rule(&table, table.code_low + 64), HL_RULE_NONE);
	hl_code_table_release(&table);
	release(&file);
}

static void what_is_no_elf_file_for_this_machine_is_refused(void **state)
{
	struct hl_code_table table;
	struct file file = copy_of("/proc/self/exe");
	int empty = memfd_create("empty", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(hl_code_table_read(empty, 0, &table), -ENOEXEC);
	close(empty);
	file.bytes[EI_CLASS] = ELFCLASS32;
	assert_int_equal(hl_code_table_read(file.fd, 0, &table), -ENOEXEC);
	file.bytes[EI_CLASS] = ELFCLASS64;
	((Elf64_Ehdr *)file.bytes)->e_machine = EM_RISCV;
	assert_int_equal(hl_code_table_read(file.fd, 0, &table), -ENOEXEC);
	memcpy(file.bytes, "#!/b", 4);
	assert_int_equal(hl_code_table_read(file.fd, 0, &table), -ENOEXEC);
	assert_int_equal(hl_code_table_read(-1, 0, &table), -EBADF);
	release(&file);
}

static int read_and_release(const struct file *file)
{
	struct hl_code_table table;

	int r = hl_code_table_read(file->fd, 0, &table);
	if (r == 0)
		hl_code_table_release(&table);
	return r;
}

static void no_file_that_was_cut_off_is_any_harm(void **state)
{
	struct file file = copy_of(getenv("WALK_PLUGIN_A"));
	size_t step = file.size / 200 + 1;

	(void)state;
	munmap(file.bytes, file.size);
	for (size_t size = file.size; size > step; size -= step) {
		assert_int_equal(ftruncate(file.fd, (off_t)size), 0);
		int r = read_and_release(&file);
		assert_true(r == 0 || r == -ENOEXEC);
	}
	close(file.fd);
}

/* Headers and the index of frames are what decides; each byte of them is made two others. */
static void no_damage_of_headers_is_any_harm(void **state)
{
	struct file file = copy_of(getenv("WALK_PLUGIN_A"));
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)file.bytes;
	size_t ends = sizeof(*header) + header->e_phnum * sizeof(Elf64_Phdr);
	size_t frames = header_of(&file, PT_GNU_EH_FRAME)->p_offset;

	(void)state;
	for (size_t i = 0; i < ends + 16; i++) {
		uint8_t *byte = &file.bytes[i < ends ? i : frames + i - ends];
		uint8_t was = *byte;
		*byte = was ^ 0x41;
		read_and_release(&file);
		*byte = 0xff;
		read_and_release(&file);
		*byte = was;
	}
	assert_int_equal(read_and_release(&file), 0);
	release(&file);
}

static void want_of_memory_is_reported(void **state)
{
	struct file file = copy_of(getenv("WALK_PLUGIN_A"));

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, read_and_release(&file))
	assert_int_equal(r, -ENOMEM);
	release(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_are_those_that_the_recorder_finds),
		cmocka_unit_test(functions_in_gaps_are_left_by_the_frame_pointer_that_they_make),
		cmocka_unit_test(padding_before_a_function_has_its_rule),
		cmocka_unit_test(outside_of_the_code_there_is_no_rule),
		cmocka_unit_test(pages_begin_with_the_rule_in_force),
		cmocka_unit_test(the_build_id_is_the_files),
		cmocka_unit_test(rows_are_found_by_section_where_there_is_no_index_of_frames),
		cmocka_unit_test(compressed_debug_frames_have_the_same_rows),
		cmocka_unit_test(files_without_frames_have_pages_without_rows),
		cmocka_unit_test(what_is_no_elf_file_for_this_machine_is_refused),
		cmocka_unit_test(no_file_that_was_cut_off_is_any_harm),
		cmocka_unit_test(no_damage_of_headers_is_any_harm),
		cmocka_unit_test(want_of_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
