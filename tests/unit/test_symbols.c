/* SPDX-License-Identifier: BSD-2-Clause */
/* Symbols: libraries are compiled here, and asked about addresses that their own code reports. */
#include "symbols/symbols.h"

#include "elf/elf.h"
#include "fail_allocations.h"
#include "temporary.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* HERE is the address of an instruction of its own line, as a lookup pc is. */
#define HERE                                                                                      \
	"#define HERE ({ void *pc; __asm__ volatile(\"1: lea 1b(%%rip), %0\" : \"=r\"(pc)); pc; " \
	"})\n"

static const char c_source[] = HERE					 /* line 1 */
	"#define INLINE static inline __attribute__((always_inline))\n"	 /* line 2 */
	"INLINE void *leaf(void) { return HERE; }\n"			 /* line 3 */
	"INLINE void *middle(void)\n"					 /* line 4 */
	"{\n"								 /* line 5 */
	"	return leaf();\n"					 /* line 6 */
	"}\n"								 /* line 7 */
	"void *outer(void)\n"						 /* line 8 */
	"{\n"								 /* line 9 */
	"	return middle();\n"					 /* line 10 */
	"}\n"								 /* line 11 */
	"static __attribute__((noinline)) void *hidden(void **second)\n" /* line 12 */
	"{\n"								 /* line 13 */
	"	*second = HERE;\n"					 /* line 14 */
	"	return HERE;\n"						 /* line 15 */
	"}\n"								 /* line 16 */
	"void *call_hidden(void **second) { return hidden(second); }\n"; /* line 17 */

static const char cxx_source[] =
	HERE "namespace {\n"
	     "template <class T> struct box {\n"
	     "	__attribute__((noinline)) void *where(T) const { return HERE; }\n"
	     "};\n"
	     "}\n"
	     "extern \"C\" void *in_template() { return box<int>().where(3); }\n"
	     "extern \"C\" void *in_lambda()\n"
	     "{\n"
	     "	auto lambda = [](int x) __attribute__((noinline)) { return x ? HERE : nullptr; };\n"
	     "	return lambda(1);\n"
	     "}\n";

/* What has no linkage name, because its scope or a parameter of its template is in one function or
 * one unit, and is inlined. */
static const char scopes_source[] =
	HERE "#define INLINE inline __attribute__((always_inline))\n"
	     "namespace shop {\n"
	     "template <class F> INLINE void *with(F f) { return f(1); }\n"
	     "namespace {\n"
	     "struct till { INLINE void *open() const { return HERE; } };\n"
	     "INLINE void *fill() { return till().open(); }\n"
	     "}\n"
	     "}\n"
	     "extern \"C\" void *in_scopes() { return shop::fill(); }\n"
	     "extern \"C\" void *in_second_lambda(void **first)\n"
	     "{\n"
	     "	*first = shop::with([](int x) __attribute__((always_inline))\n"
	     "		{ return x ? HERE : nullptr; });\n"
	     "	{\n"
	     "		auto second = [](int x) __attribute__((always_inline))\n"
	     "			{ return x ? HERE : nullptr; };\n"
	     "		return shop::with(second);\n"
	     "	}\n"
	     "}\n";

struct lab {
	char path[64];
	bool has_tools;
};

static int lab_setup(void **state)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	if (make_temporary(lab->path) < 0)
		return -1;
	lab->has_tools = system("cc --version >/dev/null 2>&1 && c++ --version >/dev/null 2>&1 && "
				"objcopy --version >/dev/null 2>&1") == 0;
	*state = lab;
	return 0;
}

static int lab_teardown(void **state)
{
	struct lab *lab = *state;

	int r = remove_temporary(lab->path);
	free(lab);
	return r;
}

static void require_tools(const struct lab *lab)
{
	if (lab->has_tools)
		return;
	print_message("skipped: cc, c++ and objcopy are needed\n");
	skip();
}

static void write_source(const struct lab *lab, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", lab->path, name);
	FILE *out = fopen(path, "w");
	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

/* Runs a shell command in the lab. */
static void run(const struct lab *lab, const char *command)
{
	char line[1024];

	snprintf(line, sizeof(line), "cd '%s' && %s", lab->path, command);
	assert_int_equal(system(line), 0);
}

static void build_c(const struct lab *lab)
{
	require_tools(lab);
	write_source(lab, "a.c", c_source);
	run(lab, "cc -O2 -g -shared -fPIC -Wl,--build-id -o a.so a.c");
}

/* ---- a loaded library and its symbols ---- */

struct library {
	void *handle;
	uint64_t bias;
	struct hl_symbols *symbols;
};

static struct library library_open(const struct lab *lab, const char *name)
{
	struct library library;
	struct link_map *map;
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", lab->path, name);
	library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(library.handle);
	assert_int_equal(dlinfo(library.handle, RTLD_DI_LINKMAP, &map), 0);
	library.bias = map->l_addr;
	assert_int_equal(hl_symbols_open(path, NULL, 0, &library.symbols), 0);
	return library;
}

static void library_close(struct library *library)
{
	hl_symbols_free(library->symbols);
	dlclose(library->handle);
}

/* Frames at the address that the library's ${function} reports. */
static size_t ask(struct library *library, const char *function,
		  const struct hl_symbols_frame **ret_frames)
{
	void *(*report)(void **) = (void *(*)(void **))dlsym(library->handle, function);
	void *second;
	size_t count;

	assert_non_null(report);
	uint64_t address = (uintptr_t)report(&second) - library->bias;
	assert_int_equal(hl_symbols_find(library->symbols, address, ret_frames, &count), 0);
	return count;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void assert_frame(const struct hl_symbols_frame *frame, const char *function, unsigned line,
			 unsigned function_line, bool inlined)
{
	assert_string_equal(frame->function, function);
	assert_string_equal(base_name(frame->file), "a.c");
	assert_string_equal(base_name(frame->function_file), "a.c");
	assert_int_equal(frame->line, line);
	assert_int_equal(frame->function_line, function_line);
	assert_int_equal(frame->inlined, inlined);
}

static void inlined_functions_have_frames_with_the_lines_of_their_calls(void **state)
{
	const struct hl_symbols_frame *frames;

	build_c(*state);
	struct library library = library_open(*state, "a.so");
	assert_int_equal(hl_symbols_source(library.symbols), HL_SYMBOLS_DWARF);
	assert_int_equal(ask(&library, "outer", &frames), 3);
	assert_frame(&frames[0], "leaf", 3, 3, true);
	assert_frame(&frames[1], "middle", 6, 4, true);
	assert_frame(&frames[2], "outer", 10, 8, false);
	assert_int_equal(ask(&library, "call_hidden", &frames), 1);
	assert_frame(&frames[0], "hidden", 15, 12, false);
	library_close(&library);
}

static void clang_and_split_units_are_read_as_well(void **state)
{
	const struct hl_symbols_frame *frames;

	require_tools(*state);
	write_source(*state, "a.c", c_source);
	run(*state, "cc -O2 -g -gsplit-dwarf -shared -fPIC -o split.so a.c");
	struct library library = library_open(*state, "split.so");
	assert_int_equal(ask(&library, "outer", &frames), 3);
	assert_frame(&frames[0], "leaf", 3, 3, true);
	assert_frame(&frames[2], "outer", 10, 8, false);
	library_close(&library);
	if (system("clang --version >/dev/null 2>&1") != 0)
		return;
	run(*state, "clang -O2 -g -shared -fPIC -o clang.so a.c"); /* writes no .debug_aranges */
	library = library_open(*state, "clang.so");
	assert_int_equal(ask(&library, "outer", &frames), 3);
	assert_frame(&frames[1], "middle", 6, 4, true);
	library_close(&library);
}

static void sections_compressed_by_zstd_are_read(void **state)
{
	const struct hl_symbols_frame *frames;

	require_tools(*state);
	write_source(*state, "a.c", c_source);
	run(*state, "cc -O2 -g -shared -fPIC -Wl,--build-id -o zstd.so a.c");
	if (system("objcopy --help | grep -q 'compress-debug-sections.*zstd'") != 0)
		skip();
	run(*state, "objcopy --compress-debug-sections=zstd zstd.so");
	struct library library = library_open(*state, "zstd.so");
	assert_int_equal(hl_symbols_source(library.symbols), HL_SYMBOLS_DWARF);
	assert_int_equal(ask(&library, "outer", &frames), 3);
	assert_frame(&frames[0], "leaf", 3, 3, true);
	assert_frame(&frames[2], "outer", 10, 8, false);
	library_close(&library);
	run(*state,
	    "objcopy --decompress-debug-sections zstd.so && "
	    "objcopy --only-keep-debug --compress-debug-sections=zstd zstd.so zstd.debug && "
	    "objcopy --strip-debug --add-gnu-debuglink=zstd.debug zstd.so linked.so");
	library = library_open(*state, "linked.so");
	assert_int_equal(hl_symbols_source(library.symbols), HL_SYMBOLS_DWARF);
	assert_int_equal(ask(&library, "outer", &frames), 3);
	assert_frame(&frames[0], "leaf", 3, 3, true);
	library_close(&library);
}

static void split_units_that_are_missing_are_told(void **state)
{
	require_tools(*state);
	write_source(*state, "a.c", c_source);
	run(*state, "cc -O2 -g -gsplit-dwarf -shared -fPIC -o gone.so a.c && rm -f *.dwo");
	struct library library = library_open(*state, "gone.so");
	assert_int_equal(hl_symbols_source(library.symbols), HL_SYMBOLS_DWARF);
	assert_string_equal(
		hl_symbols_reason(library.symbols),
		"no inlined functions of 1 source file: their .dwo files are not where "
		"they were compiled, nor is a .dwp package beside the file; put them back, "
		"or compile without -gsplit-dwarf");
	library_close(&library);
	run(*state, "touch gone.so.dwp");
	library = library_open(*state, "gone.so");
	assert_string_equal(
		hl_symbols_reason(library.symbols),
		"no inlined functions of 1 source file: the .dwp package beside the file "
		"does not have them; make it again of all .dwo files");
	library_close(&library);
}

static void compressed_call_frame_information_is_told(void **state)
{
	require_tools(*state);
	write_source(*state, "a.c", c_source);
	run(*state, "cc -O2 -g -gz -fno-asynchronous-unwind-tables -shared -fPIC -o frames.so a.c");
	struct library library = library_open(*state, "frames.so");
	assert_string_equal(hl_symbols_reason(library.symbols),
			    "stacks of record and attach may end in it: its .debug_frame is "
			    "compressed; run objcopy --decompress-debug-sections on it");
	library_close(&library);
	run(*state, "objcopy --decompress-debug-sections frames.so");
	library = library_open(*state, "frames.so");
	assert_string_equal(hl_symbols_reason(library.symbols), "");
	library_close(&library);
}

/* Builds ${name} of two split units, the first of which is a.c, and packs them. False: a program is missing. */
static bool build_package(const struct lab *lab, const char *compiler, unsigned version,
			  const char *name)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "%s --version >/dev/null 2>&1 && llvm-dwp --version >/dev/null 2>&1", compiler);
	if (system(line) != 0)
		return false;
	write_source(lab, "other.c", "int other(int x) { return x + 1; }\n");
	snprintf(line, sizeof(line),
		 "for f in a other; do %s -O2 -g -gdwarf-%u -gsplit-dwarf -fPIC -c $f.c; done && "
		 "%s -shared -o %s a.o other.o && timeout 60 llvm-dwp -e %s -o %s.dwp && rm *.dwo",
		 compiler, version, compiler, name, name, name);
	run(lab, line);
	return true;
}

static void assert_package_is_read(const struct lab *lab, const char *name)
{
	const struct hl_symbols_frame *frames;
	struct library library = library_open(lab, name);

	assert_string_equal(hl_symbols_reason(library.symbols), "");
	assert_int_equal(ask(&library, "outer", &frames), 3);
	assert_frame(&frames[0], "leaf", 3, 3, true);
	assert_frame(&frames[1], "middle", 6, 4, true);
	assert_frame(&frames[2], "outer", 10, 8, false);
	assert_int_equal(frames[0].function_file[0], '/');
	assert_int_equal(ask(&library, "call_hidden", &frames), 1);
	assert_frame(&frames[0], "hidden", 15, 12, false);
	library_close(&library);
}

static void packages_of_split_units_are_read(void **state)
{
	static const char *const compilers[] = {"gcc", "clang"};
	unsigned read = 0;
	char name[32];

	require_tools(*state);
	write_source(*state, "a.c", c_source);
	for (size_t i = 0; i < HL_COUNT_OF(compilers); i++)
		for (unsigned version = 4; version <= 5; version++) {
			snprintf(name, sizeof(name), "%s%u.so", compilers[i], version);
			if (!build_package(*state, compilers[i], version, name))
				continue;
			assert_package_is_read(*state, name);
			read++;
		}
	if (!read) {
		print_message("skipped: llvm-dwp is needed\n");
		skip();
	}
}

/* Each word of the index, damaged in turn: names may be missing, and nothing else happens. */
static void damaged_packages_are_left(void **state)
{
	static const uint32_t values[] = {0, 1, 0x7fffffff, 0xfffffff0, UINT32_MAX};
	const struct hl_symbols_frame *frames;
	char path[128];
	GElf_Shdr index;

	require_tools(*state);
	write_source(*state, "a.c", c_source);
	if (!build_package(*state, "gcc", 5, "damaged.so")) {
		print_message("skipped: llvm-dwp is needed\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/damaged.so.dwp", ((struct lab *)*state)->path);
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	Elf *elf = hl_elf_open(fd);
	assert_non_null(hl_elf_find_section(elf, ".debug_cu_index", &index));
	elf_end(elf);
	for (uint64_t at = 0; at < index.sh_size; at += 4)
		for (size_t i = 0; i < HL_COUNT_OF(values); i++) {
			off_t place = (off_t)(index.sh_offset + at);
			uint32_t word;
			assert_int_equal(pread(fd, &word, sizeof(word), place), sizeof(word));
			assert_int_equal(pwrite(fd, &values[i], sizeof(word), place), sizeof(word));
			struct library library = library_open(*state, "damaged.so");
			size_t count = ask(&library, "outer", &frames);
			assert_true(count == 3 || count == 1);
			assert_string_equal(frames[count - 1].function, "outer");
			library_close(&library);
			assert_int_equal(pwrite(fd, &word, sizeof(word), place), sizeof(word));
		}
	close(fd);
	assert_package_is_read(*state, "damaged.so");
}

static void cxx_templates_and_lambdas_have_their_full_names(void **state)
{
	const struct hl_symbols_frame *frames;

	require_tools(*state);
	write_source(*state, "b.cc", cxx_source);
	run(*state, "c++ -std=c++17 -O2 -g -shared -fPIC -o b.so b.cc");
	struct library library = library_open(*state, "b.so");
	assert_true(ask(&library, "in_template", &frames) >= 1);
	assert_string_equal(frames[0].function,
			    "(anonymous namespace)::box<int>::where(int) const");
	assert_true(ask(&library, "in_lambda", &frames) >= 1);
	assert_non_null(strstr(frames[0].function, "lambda"));
	library_close(&library);
}

/* clang has linkage names with parameters for all of these. */
static void inlined_cxx_functions_without_linkage_names_have_their_scopes(void **state)
{
	const struct hl_symbols_frame *frames;

	require_tools(*state);
	write_source(*state, "s.cc", scopes_source);
	if (system("g++ --version >/dev/null 2>&1") != 0) {
		print_message("skipped: g++ is needed\n");
		skip();
	}
	run(*state, "g++ -std=c++17 -O2 -g -shared -fPIC -o s.so s.cc");
	struct library library = library_open(*state, "s.so");
	assert_int_equal(ask(&library, "in_scopes", &frames), 3);
	assert_string_equal(frames[0].function, "shop::(anonymous namespace)::till::open");
	assert_string_equal(frames[1].function, "shop::(anonymous namespace)::fill");
	assert_string_equal(frames[2].function, "in_scopes");
	assert_int_equal(ask(&library, "in_second_lambda", &frames), 3);
	assert_string_equal(frames[0].function, "in_second_lambda::{lambda#2}::operator()");
	assert_int_equal(strncmp(frames[1].function, "shop::with<", strlen("shop::with<")), 0);
	library_close(&library);
}

static void assert_lambda_has_a_place(const struct lab *lab, const char *name)
{
	const struct hl_symbols_frame *frames;
	struct library library = library_open(lab, name);

	assert_true(ask(&library, "in_lambda", &frames) >= 1);
	assert_string_equal(base_name(frames[0].function_file), "b.cc");
	assert_int_equal(frames[0].function_line, frames[0].line);
	library_close(&library);
}

static void what_nobody_declared_begins_where_its_class_does(void **state)
{
	require_tools(*state);
	write_source(*state, "b.cc", cxx_source);
	run(*state, "c++ -std=c++17 -O0 -g -shared -fPIC -o plain.so b.cc");
	assert_lambda_has_a_place(*state, "plain.so");
	run(*state, "c++ -std=c++17 -O2 -g -shared -fPIC -o fast.so b.cc");
	assert_lambda_has_a_place(*state, "fast.so");
}

static void without_debug_information_the_symbol_table_names_functions(void **state)
{
	const struct hl_symbols_frame *frames;

	build_c(*state);
	run(*state, "strip --strip-debug -o table.so a.so");
	struct library library = library_open(*state, "table.so");
	assert_int_equal(hl_symbols_source(library.symbols), HL_SYMBOLS_SYMTAB);
	assert_non_null(strstr(hl_symbols_reason(library.symbols), "DEBUGINFOD_URLS"));
	assert_int_equal(ask(&library, "call_hidden", &frames), 1);
	assert_string_equal(frames[0].function, "hidden");
	assert_string_equal(frames[0].file, "");
	library_close(&library);
}

static void in_a_stripped_file_a_nameless_function_keeps_its_calls_together(void **state)
{
	const struct hl_symbols_frame *frames;
	void *second;
	size_t count;
	char first_name[64];

	build_c(*state);
	run(*state, "strip -o bare.so a.so");
	struct library library = library_open(*state, "bare.so");
	assert_int_equal(hl_symbols_source(library.symbols), HL_SYMBOLS_DYNSYM);
	assert_int_equal(ask(&library, "outer", &frames), 1);
	assert_string_equal(frames[0].function, "outer");

	void *(*report)(void **) = (void *(*)(void **))dlsym(library.handle, "call_hidden");
	uint64_t address = (uintptr_t)report(&second) - library.bias;
	assert_int_equal(hl_symbols_find(library.symbols, address, &frames, &count), 0);
	assert_memory_equal(frames[0].function, "bare.so+0x", 10);
	snprintf(first_name, sizeof(first_name), "%s", frames[0].function);
	assert_int_equal(
		hl_symbols_find(library.symbols, (uintptr_t)second - library.bias, &frames, &count),
		0);
	assert_ptr_not_equal(report, second);
	assert_string_equal(frames[0].function, first_name);
	library_close(&library);
}

/* Bytes of a call's operand, or of any other instruction, may look like a jump into a function that is not its own. */
static void bytes_that_look_like_a_jump_name_nothing(void **state)
{
	const struct hl_symbols_frame *frames;

	require_tools(*state);
	write_source(*state, "looks.c",
		     "__asm__(\".text\\n\"\n"
		     "\".globl other\\n.type other, @function\\nother: .cfi_startproc\\n\"\n"
		     "\"nop; nop; nop; ret\\n.cfi_endproc\\n.size other, .-other\\n\"\n"
		     "\".type own, @function\\nown: .cfi_startproc\\n\"\n"
		     "\"jmp 1f\\n.byte 0xe9\\n.long other + 1 - 1f\\n1: nop\\n\"\n"
		     "\"sub $8, %rsp; .cfi_adjust_cfa_offset 8\\ncall asked; add $8, %rsp\\n\"\n"
		     "\".cfi_adjust_cfa_offset -8; ret\\n.cfi_endproc\\n.size own, .-own\\n\");\n"
		     "__attribute__((noinline, visibility(\"hidden\"))) void *asked(void)\n"
		     "{ return __builtin_return_address(0); }\n"
		     "void *own(void);\n"
		     "void *calls_own(void **place) { *place = 0; return own(); }\n");
	run(*state, "cc -O2 -shared -fPIC -o looks.so looks.c && strip looks.so");
	struct library library = library_open(*state, "looks.so");
	assert_int_equal(ask(&library, "calls_own", &frames), 1);
	assert_memory_equal(frames[0].function, "looks.so+0x", 11);
	library_close(&library);
}

/* Compilers put what rarely runs behind all functions, from where it jumps back. */
static void a_part_of_a_function_that_lies_elsewhere_has_its_name(void **state)
{
	const struct lab *lab = *state;
	const struct hl_symbols_frame *frames;
	char line[128];

	require_tools(*state);
	write_source(*state, "cold.c",
		     "static int spread;\n"
		     "static __attribute__((cold, noinline)) void *reserve(void)\n"
		     "{ spread++; return __builtin_return_address(0); }\n"
		     "__attribute__((noinline)) int work(int number) { return number ^ spread; }\n"
		     "void *rarely(void **place)\n"
		     "{\n"
		     "	if (!spread)\n"
		     "		*place = reserve();\n"
		     "	for (int i = 0; i < 3; i++)\n"
		     "		spread += work(i) ^ work(i + spread) * work(3) + work(9) * "
		     "work(8);\n"
		     "	return *place;\n"
		     "}\n");
	run(*state, "cc -O2 -shared -fPIC -o cold.so cold.c && nm cold.so >names && strip cold.so");
	snprintf(line, sizeof(line), "grep -q rarely.cold '%s/names'", lab->path);
	if (system(line) != 0) {
		print_message("skipped: the compiler leaves functions whole\n");
		skip();
	}
	struct library library = library_open(*state, "cold.so");
	assert_int_equal(ask(&library, "rarely", &frames), 1);
	assert_string_equal(frames[0].function, "rarely");
	library_close(&library);
}

static void a_separate_debug_file_is_found_by_its_link(void **state)
{
	const struct hl_symbols_frame *frames;

	build_c(*state);
	run(*state, "objcopy --only-keep-debug a.so apart.debug && strip -o apart.so a.so && "
		    "objcopy --add-gnu-debuglink=apart.debug apart.so");
	struct library library = library_open(*state, "apart.so");
	assert_int_equal(hl_symbols_source(library.symbols), HL_SYMBOLS_DWARF);
	assert_string_equal(hl_symbols_reason(library.symbols), "");
	assert_int_equal(ask(&library, "outer", &frames), 3);
	assert_frame(&frames[0], "leaf", 3, 3, true);
	library_close(&library);
}

static void libc_is_named_by_the_debug_file_of_its_build_id(void **state)
{
	const struct hl_symbols_frame *frames;
	struct hl_symbols *symbols;
	size_t count;
	Dl_info libc;

	(void)state;
	assert_int_not_equal(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &libc), 0);
	if (!libc.dli_fname || !strstr(libc.dli_fname, "libc.so"))
		skip(); /* under a sanitizer malloc is not libc's */
	assert_int_equal(hl_symbols_open(libc.dli_fname, NULL, 0, &symbols), 0);
	uint64_t address = (uintptr_t)libc.dli_saddr - (uintptr_t)libc.dli_fbase;
	assert_int_equal(hl_symbols_find(symbols, address, &frames, &count), 0);
	assert_non_null(strstr(frames[count - 1].function, "malloc"));
	hl_symbols_free(symbols);
}

static void a_file_with_another_build_id_is_not_used(void **state)
{
	static const uint8_t wrong[20] = {1, 2, 3};
	const struct hl_symbols_frame *frames;
	const struct lab *lab = *state;
	struct hl_symbols *symbols;
	char path[128];
	size_t count;

	build_c(lab);
	snprintf(path, sizeof(path), "%s/a.so", lab->path);
	assert_int_equal(hl_symbols_open(path, wrong, sizeof(wrong), &symbols), 0);
	assert_int_equal(hl_symbols_source(symbols), HL_SYMBOLS_NONE);
	assert_non_null(strstr(hl_symbols_reason(symbols), "build id"));
	assert_int_equal(hl_symbols_find(symbols, 0x1234, &frames, &count), 0);
	assert_int_equal(count, 1);
	assert_string_equal(frames[0].function, "a.so+0x1234");
	hl_symbols_free(symbols);
}

static void a_file_that_lies_elsewhere_is_named_as_if_it_did_not(void **state)
{
	const struct hl_symbols_frame *frames;
	const struct lab *lab = *state;
	struct hl_symbols *symbols;
	char path[128];
	size_t count;

	build_c(lab);
	snprintf(path, sizeof(path), "%s/a.so", lab->path);
	assert_int_equal(
		hl_symbols_open_elsewhere("/nowhere/libx.so", path, NULL, 0, NULL, &symbols), 0);
	assert_int_not_equal(hl_symbols_source(symbols), HL_SYMBOLS_NONE);
	assert_null(strstr(hl_symbols_reason(symbols), "No such file"));
	assert_int_equal(hl_symbols_find(symbols, 0x10, &frames, &count), 0);
	assert_string_equal(frames[0].function, "libx.so+0x10");
	hl_symbols_free(symbols);
	assert_int_equal(hl_symbols_open_elsewhere("/nowhere/libx.so", "/nor/here.so", NULL, 0,
						   NULL, &symbols),
			 0);
	assert_int_equal(hl_symbols_source(symbols), HL_SYMBOLS_NONE);
	assert_non_null(strstr(hl_symbols_reason(symbols), "No such file"));
	hl_symbols_free(symbols);
}

static void what_is_no_elf_file_still_gives_places(void **state)
{
	static const struct {
		const char *path, *name, *reason;
	} cases[] = {
		{"/nowhere/libx.so", "libx.so+0x10", "No such file"},
		{"[vdso]", "[vdso]+0x10", "no file"},
		{"/etc/passwd", "passwd+0x10", "ELF"},
		{"/", "/+0x10", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct hl_symbols_frame *frames;
		struct hl_symbols *symbols;
		size_t count;
		assert_int_equal(hl_symbols_open(cases[i].path, NULL, 0, &symbols), 0);
		assert_int_equal(hl_symbols_source(symbols), HL_SYMBOLS_NONE);
		assert_non_null(strstr(hl_symbols_reason(symbols), cases[i].reason));
		assert_string_not_equal(hl_symbols_reason(symbols), "");
		assert_int_equal(hl_symbols_find(symbols, 0x10, &frames, &count), 0);
		assert_string_equal(frames[0].function, cases[i].name);
		hl_symbols_free(symbols);
	}
}

static void a_pipe_is_not_waited_for(void **state)
{
	const struct lab *lab = *state;
	struct hl_symbols *symbols;
	char path[128];

	snprintf(path, sizeof(path), "%s/pipe.so", lab->path);
	assert_int_equal(mkfifo(path, 0600), 0);
	alarm(200); /* which ends the program */
	assert_int_equal(hl_symbols_open(path, NULL, 0, &symbols), 0);
	alarm(0);
	assert_non_null(strstr(hl_symbols_reason(symbols), "it is not a regular file"));
	hl_symbols_free(symbols);
	unlink(path);
}

static void names_of_cxx_rust_and_d_are_demangled_and_c_names_left_alone(void **state)
{
	static const struct {
		const char *mangled, *expected;
	} cases[] = {
		{"_D1d4fillFiZv", "d.fill(int)"},
		{"_Data", NULL},
		{"_Z3fooIiEvT_", "void foo<int>(int)"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi",
		 "std::vector<int, std::allocator<int> >::push_back(int const&)"},
		{"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"},
		{"_RINvNtC3std3mem8align_ofjdE", "std::mem::align_of::<usize, f64>"},
		{"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
		{"_ZL3barv.part.0.cold", "bar()"},
		{"parse.constprop.0", "parse"},
		{"malloc", NULL},
		{".cold", NULL},
		{"_Zgarbage", NULL},
		{"_R", NULL},
		{"", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *demangled = hl_symbols_demangle(cases[i].mangled);
		if (cases[i].expected)
			assert_string_equal(demangled, cases[i].expected);
		else
			assert_null(demangled);
		free(demangled);
	}
}

/* ---- every allocation of ours made to fail in turn ---- */

static int open_and_find(const char *path, uint64_t address)
{
	const struct hl_symbols_frame *frames;
	struct hl_symbols *symbols;
	size_t count;

	int r = hl_symbols_open(path, NULL, 0, &symbols);
	if (r < 0)
		return r;
	r = hl_symbols_find(symbols, address, &frames, &count);
	hl_symbols_free(symbols);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	const struct lab *lab = *state;
	char path[128];
	int failures = 0;

	build_c(lab);
	struct library library = library_open(lab, "a.so");
	void *(*report)(void) = (void *(*)(void))dlsym(library.handle, "outer");
	uint64_t address = (uintptr_t)report() - library.bias;
	snprintf(path, sizeof(path), "%s/a.so", lab->path);
	FOR_EACH_FAILING_ALLOCATION(r, open_and_find(path, address))
	{
		assert_int_equal(r, -ENOMEM);
		failures++;
	}
	assert_true(failures > 10);
	library_close(&library);
}

#define LAB_TEST(f) cmocka_unit_test_setup_teardown(f, lab_setup, lab_teardown)

int main(void)
{
	unsetenv("DEBUGINFOD_URLS"); /* no test asks the network */
	const struct CMUnitTest tests[] = {
		LAB_TEST(inlined_functions_have_frames_with_the_lines_of_their_calls),
		LAB_TEST(clang_and_split_units_are_read_as_well),
		LAB_TEST(sections_compressed_by_zstd_are_read),
		LAB_TEST(split_units_that_are_missing_are_told),
		LAB_TEST(compressed_call_frame_information_is_told),
		LAB_TEST(packages_of_split_units_are_read),
		LAB_TEST(damaged_packages_are_left),
		LAB_TEST(cxx_templates_and_lambdas_have_their_full_names),
		LAB_TEST(inlined_cxx_functions_without_linkage_names_have_their_scopes),
		LAB_TEST(what_nobody_declared_begins_where_its_class_does),
		LAB_TEST(without_debug_information_the_symbol_table_names_functions),
		LAB_TEST(in_a_stripped_file_a_nameless_function_keeps_its_calls_together),
		LAB_TEST(a_part_of_a_function_that_lies_elsewhere_has_its_name),
		LAB_TEST(bytes_that_look_like_a_jump_name_nothing),
		LAB_TEST(a_separate_debug_file_is_found_by_its_link),
		cmocka_unit_test(libc_is_named_by_the_debug_file_of_its_build_id),
		LAB_TEST(a_file_with_another_build_id_is_not_used),
		LAB_TEST(a_file_that_lies_elsewhere_is_named_as_if_it_did_not),
		cmocka_unit_test(what_is_no_elf_file_still_gives_places),
		LAB_TEST(a_pipe_is_not_waited_for),
		cmocka_unit_test(names_of_cxx_rust_and_d_are_demangled_and_c_names_left_alone),
		LAB_TEST(want_of_memory_is_an_error_wherever_it_strikes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
