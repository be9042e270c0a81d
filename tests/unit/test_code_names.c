/* SPDX-License-Identifier: BSD-2-Clause */
/* Names that runtimes write of their code: what is found, and that nothing else is believed. */
#include "process/code_names.h"
#include "symbols/symbols.h"

#include "fail_allocations.h"
#include "recording/recording.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guests.h"

char *__real_strndup(const char *text, size_t bytes);
char *__wrap_strndup(const char *text, size_t bytes);

char *__wrap_strndup(const char *text, size_t bytes)
{
	return may_allocate() ? __real_strndup(text, bytes) : NULL;
}

#define PLACES 4

/* ${names} has a text for each of the addresses 0x100, 0x180, 0x200 and 0x2ff; NULL: no name. */
static void assert_names(struct hl_recording_code *places, const char *const names[PLACES])
{
	for (size_t i = 0; i < PLACES; i++) {
		if (!names[i])
			assert_null(places[i].name);
		else
			assert_string_equal(places[i].name, names[i]);
		free(places[i].name);
		places[i].name = NULL;
	}
}

#define NEW_PLACES                                           \
	{                                                    \
		{0x100, NULL}, {0x180, NULL}, {0x200, NULL}, \
		{                                            \
			0x2ff, NULL                          \
		}                                            \
	}

static void assert_map(const char *text, const char *const names[PLACES])
{
	struct hl_recording_code places[PLACES] = NEW_PLACES;

	assert_int_equal(hl_code_names_map(text, strlen(text), places, PLACES), 0);
	assert_names(places, names);
}

static void the_last_line_of_a_map_names_an_address(void **state)
{
	(void)state;
	assert_map("100 100 one\n200 100 two\n", (const char *[]){"one", "one", "two", "two"});
	assert_map("100 200 all\n180 1 inner one",
		   (const char *[]){"all", "inner one", "all", "all"});
	assert_map("180 1 inner\n0x100 0x200 all\n", (const char *[]){"all", "all", "all", "all"});
	assert_map("101 7f near\n2FE 1 before\n", (const char *[]){NULL, NULL, NULL, NULL});
}

static void lines_of_a_map_that_make_no_sense_are_left_out(void **state)
{
	(void)state;
	assert_map("", (const char *[]){NULL, NULL, NULL, NULL});
	assert_map("100 1 x\n\n\n200\n200 \n200 1\n200 1 \n 200 1 a\n-200 1 b\n200 g c\n0x 1 d\n",
		   (const char *[]){"x", NULL, NULL, NULL});
	assert_map("100 ffffffffffffffff1 a\n10000000000000100 1 b\n",
		   (const char *[]){NULL, NULL, NULL, NULL});
	assert_map("200 ffffffffffffffff rest\nffffffffffffffff ffffffffffffffff a\n",
		   (const char *[]){NULL, NULL, "rest", "rest"});
}

/* ---- a dump ---- */

struct dump {
	uint8_t bytes[1024];
	size_t size;
};

static void put(struct dump *dump, const void *bytes, size_t size)
{
	assert_true(dump->size + size <= sizeof(dump->bytes));
	if (size)
		memcpy(dump->bytes + dump->size, bytes, size);
	dump->size += size;
}

static struct dump new_dump(uint64_t flags)
{
	const uint32_t head[] = {0x4a695444, 1, 40, 62, 0, 4711};
	const uint64_t rest[] = {1, flags};
	struct dump dump = {0};

	put(&dump, head, sizeof(head));
	put(&dump, rest, sizeof(rest));
	return dump;
}

static void put_record(struct dump *dump, uint32_t kind, uint64_t time_ns, const uint64_t *body,
		       size_t words, const char *name)
{
	size_t name_bytes = name ? strlen(name) + 1 : 0;
	const uint32_t head[] = {kind, (uint32_t)(16 + 8 * words + name_bytes)};

	put(dump, head, sizeof(head));
	put(dump, &time_ns, sizeof(time_ns));
	put(dump, body, 8 * words);
	if (name)
		put(dump, name, name_bytes);
}

static void put_load(struct dump *dump, uint64_t time_ns, uint64_t start, uint64_t bytes,
		     uint64_t index, const char *name)
{
	put_record(dump, 0, time_ns, (const uint64_t[]){0, start, start, bytes, index}, 5, name);
}

static void assert_dump(const struct dump *dump, uint64_t before_ns,
			const char *const names[PLACES])
{
	struct hl_recording_code places[PLACES] = NEW_PLACES;

	assert_int_equal(hl_code_names_dump(dump->bytes, dump->size, before_ns, places, PLACES), 0);
	assert_names(places, names);
}

static void the_newest_record_until_then_names_an_address(void **state)
{
	(void)state;
	struct dump dump = new_dump(0);

	put_load(&dump, 20, 0x100, 0x100, 2, "second");
	put_load(&dump, 10, 0x100, 0x200, 1, "first");
	put_load(&dump, 30, 0x180, 1, 3, "third");
	assert_dump(&dump, 9, (const char *[]){NULL, NULL, NULL, NULL});
	assert_dump(&dump, 19, (const char *[]){"first", "first", "first", "first"});
	assert_dump(&dump, 29, (const char *[]){"second", "second", "first", "first"});
	assert_dump(&dump, 30, (const char *[]){"second", "third", "first", "first"});
	dump.bytes[32] = 1; /* timestamps of the processor */
	assert_dump(&dump, 0, (const char *[]){"second", "third", "first", "first"});
}

static void moved_code_keeps_its_name(void **state)
{
	(void)state;
	struct dump dump = new_dump(0);
	const uint64_t to_200[] = {0, 0x200, 0x100, 0x200, 0x10, 7},
		       to_2ff[] = {0, 0x2ff, 0x200, 0x2ff, 0x10, 7},
		       unknown[] = {0, 0x180, 0x100, 0x180, 0x10, 8};

	put_record(&dump, 1, 2, to_200, 6, NULL);
	put_load(&dump, 1, 0x100, 0x10, 7, "moving");
	put_record(&dump, 1, 3, to_2ff, 6, NULL);
	put_record(&dump, 1, 3, unknown, 6, NULL);
	assert_dump(&dump, 2, (const char *[]){"moving", NULL, "moving", NULL});
	assert_dump(&dump, 3, (const char *[]){"moving", NULL, "moving", "moving"});
}

static void a_dump_ends_where_it_makes_no_sense(void **state)
{
	(void)state;
	static const char *const none[PLACES] = {0}, *const one[PLACES] = {"one"};
	struct dump dump = new_dump(0);

	put_load(&dump, 1, 0x100, 1, 1, "one");
	size_t whole = dump.size;
	assert_dump(&dump, 1, one);
	put_record(&dump, 3, 2, NULL, 0, NULL); /* the runtime closed it */
	put_load(&dump, 3, 0x200, 1, 2, "two");
	assert_dump(&dump, 9, one);
	for (dump.size = 0; dump.size < whole; dump.size++)
		assert_dump(&dump, 1, none);
	dump.size = whole;
	for (uint8_t bytes = 0; bytes < 16; bytes++) { /* less than a record's header */
		dump.bytes[44] = bytes;
		assert_dump(&dump, 1, none);
	}
	dump.bytes[0] = 0;
	assert_dump(&dump, 1, none);
}

static int name_by_both(const struct dump *dump, struct hl_recording_code *places)
{
	static const char map[] = "100 200 map\n";

	int r = hl_code_names_dump(dump->bytes, dump->size, 1, places, PLACES);
	return r < 0 ? r : hl_code_names_map(map, strlen(map), places, PLACES);
}

static void what_has_a_name_keeps_it(void **state)
{
	(void)state;
	struct hl_recording_code places[PLACES] = NEW_PLACES;
	struct dump dump = new_dump(0);

	put_load(&dump, 1, 0x180, 1, 1, "dump");
	assert_int_equal(name_by_both(&dump, places), 0);
	assert_names(places, (const char *[]){"map", "dump", "map", "map"});
}

static void want_of_memory_is_an_error(void **state)
{
	(void)state;
	struct hl_recording_code places[PLACES] = NEW_PLACES;
	struct dump dump = new_dump(0);

	put_load(&dump, 1, 0x180, 1, 1, "dump");
	FOR_EACH_FAILING_ALLOCATION(r, name_by_both(&dump, places))
	{
		assert_int_equal(r, -ENOMEM);
		for (size_t i = 0; i < PLACES; i++) {
			free(places[i].name);
			places[i].name = NULL;
		}
	}
	for (size_t i = 0; i < PLACES; i++)
		free(places[i].name);
}

/* ---- parts of a name ---- */

static void assert_split(const char *name, const char *function, const char *file, uint32_t line)
{
	struct hl_symbols_frame frame;
	char *copy = strdup(name);

	hl_symbols_split(copy, &frame);
	assert_string_equal(frame.function, function);
	assert_string_equal(frame.function_file, file);
	assert_string_equal(frame.file, file);
	assert_int_equal(frame.function_line, line);
	assert_int_equal(frame.line, line);
	assert_false(frame.inlined);
	free(copy);
}

static void names_are_split_as_their_runtimes_write_them(void **state)
{
	(void)state;
	assert_split("JS:*leak /app/leak.js:3:15", "leak", "/app/leak.js", 3);
	assert_split("LazyCompile:~leak /app/leak.js:3:15", "leak", "/app/leak.js", 3);
	assert_split("LazyCompile:*leak leak.js:3", "leak", "leak.js", 3);
	assert_split("JS:^get size /a b/c.js:12:1", "get size", "/a b/c.js", 12);
	assert_split("JS:+on node:events:465:44", "on", "node:events", 465);
	assert_split("JS:*'leak /app/leak.js:3:15", "leak", "/app/leak.js", 3);
	assert_split("JS:+' file:///app/m.mjs:1:1", "(anonymous)", "file:///app/m.mjs", 1);
	assert_split("JS:~ file:///app/m.mjs:1:1", "(anonymous)", "file:///app/m.mjs", 1);
	assert_split("TRACE_12", "TRACE_12", "", 0);
	assert_split("Builtin:RecordWrite", "Builtin:RecordWrite", "", 0);
	assert_split("void [App] Program::Main()[Tier0]", "void [App] Program::Main()[Tier0]", "",
		     0);
	assert_split("Lorg/Shop;::sell", "Lorg/Shop;::sell", "", 0);
	assert_split("JS:", "JS:", "", 0);
	assert_split("JS:~", "(anonymous)", "", 0);
	assert_split("JS:~x:99999999999", "x:99999999999", "", 0);
}

static void functions_of_programs_are_told_from_stubs(void **state)
{
	(void)state;
	assert_true(hl_code_runtime_is_script("leak", "/app/leak.js"));
	assert_true(hl_code_runtime_is_script("TRACE_12", "shop.lua"));
	assert_true(
		hl_code_runtime_is_script("void java.util.zip.Deflater.<init>(int, boolean)", ""));
	assert_true(hl_code_runtime_is_script("void [App] Shop::Main(string[])[Tier0]", ""));
	assert_false(hl_code_runtime_is_script("StubRoutines (1)", ""));
	assert_false(hl_code_runtime_is_script("I2C/C2I adapters", ""));
	assert_false(hl_code_runtime_is_script("Builtin:RecordWrite", ""));
	assert_false(hl_code_runtime_is_script("RegExp:a .(b)", ""));
	assert_false(hl_code_runtime_is_script("global::call_light_bif_shared", ""));
	assert_false(hl_code_runtime_is_script("0x7ffb0540dc63", ""));
}

static void assert_runtime(const char *path, const char *language)
{
	const struct hl_code_runtime *runtime = hl_code_runtime_of(path);

	assert_non_null(runtime);
	assert_string_equal(runtime->language, language);
}

static void guests_know_names_of_code_that_they_make(void **state)
{
	char text[HL_CODE_RUNTIME_REMEDY_MAX];

	(void)state;
	needs_guest("Lua");
	needs_guest("Erlang");
	assert_split("TRACE_12::shop.lua:34", "TRACE_12", "shop.lua", 34);
	assert_true(hl_code_runtime_is_script("$lists:map/2", ""));
	assert_true(hl_code_runtime_is_script("$erl_lint:'-used/3-lc$^2/1-2-'/3", ""));
	assert_runtime("/usr/lib/erlang/erts-13.1.5/bin/beam.smp", "Erlang");
	assert_string_equal(hl_code_runtime_remedy(hl_code_runtime_of("beam.smp"), 47, text),
			    "'erl +JPperf true' (OTP 25 and later) writes them");
}

static void runtimes_are_known_by_their_files(void **state)
{
	char text[HL_CODE_RUNTIME_REMEDY_MAX];

	(void)state;
	assert_runtime("/usr/bin/node", "JavaScript");
	assert_runtime("/lib/x86_64-linux-gnu/libnode.so.108", "JavaScript");
	assert_runtime("/usr/bin/perl", "Perl");
	assert_null(hl_code_runtime_of("/lib/x86_64-linux-gnu/libruby-3.1.so.3.1"));
	assert_null(hl_code_runtime_of("/usr/bin/node_exporter"));
	assert_null(hl_code_runtime_of("/usr/local/lib/sbcl/sbcl.core"));
	assert_null(hl_code_runtime_of("/lib/x86_64-linux-gnu/libc.so.6"));
	assert_null(hl_code_runtime_of(""));
	assert_string_equal(hl_code_runtime_remedy(hl_code_runtime_of("mono"), 47, text),
			    "'mono --jitmap' writes them");
}

static void a_runtime_of_a_guest_is_known_where_that_is_built_in(void **state)
{
	char text[HL_CODE_RUNTIME_REMEDY_MAX];

	(void)state;
	needs_guest("Java");
	assert_runtime("/usr/lib/jvm/java-17/lib/server/libjvm.so", "Java");
	assert_string_equal(hl_code_runtime_remedy(hl_code_runtime_of("libjvm.so"), 47, text),
			    "'jcmd 47 Compiler.perfmap' (JDK 17 and later) writes them, while "
			    "heapline records");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_line_of_a_map_names_an_address),
		cmocka_unit_test(lines_of_a_map_that_make_no_sense_are_left_out),
		cmocka_unit_test(the_newest_record_until_then_names_an_address),
		cmocka_unit_test(moved_code_keeps_its_name),
		cmocka_unit_test(a_dump_ends_where_it_makes_no_sense),
		cmocka_unit_test(what_has_a_name_keeps_it),
		cmocka_unit_test(want_of_memory_is_an_error),
		cmocka_unit_test(names_are_split_as_their_runtimes_write_them),
		cmocka_unit_test(functions_of_programs_are_told_from_stubs),
		cmocka_unit_test(guests_know_names_of_code_that_they_make),
		cmocka_unit_test(runtimes_are_known_by_their_files),
		cmocka_unit_test(a_runtime_of_a_guest_is_known_where_that_is_built_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
