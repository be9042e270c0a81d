/* SPDX-License-Identifier: BSD-2-Clause */
/* Names that are kept between runs: used while they are the best there are, and never relied on. */
#include "symbols/symbols_dwarf.h"

#include "base/compiler.h"
#include "fail_allocations.h"
#include "temporary.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const uint8_t build_id[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab,
				   0xcd, 0xef, 0x01, 0x23, 0x45, 0x67};

#define CACHE_FILE "heapline/symbols/0123456789abcdef01234567.hls"

static const char source[] = "int first(int x) { return x + 1; }\n"
			     "int second(int x) { return x + 2; }\n";

/* A library with a build id of its own, and an empty cache. */
struct lab {
	char path[32], library[64], cache[64], cache_file[128];
	uint64_t first, second; /* addresses of its functions */
};

/* Runs a shell command in the lab. */
static void run(const struct lab *lab, const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "cd '%s' && %s", lab->path, command);
	assert_int_equal(system(line), 0);
}

static void find_functions(struct lab *lab)
{
	struct link_map *map;
	void *handle = dlopen(lab->library, RTLD_NOW | RTLD_LOCAL);

	assert_non_null(handle);
	assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
	lab->first = (uintptr_t)dlsym(handle, "first") - map->l_addr;
	lab->second = (uintptr_t)dlsym(handle, "second") - map->l_addr;
	dlclose(handle);
}

static int lab_setup(void **state)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	if (make_temporary(lab->path) < 0)
		return -1;
	snprintf(lab->library, sizeof(lab->library), "%s/a.so", lab->path);
	snprintf(lab->cache, sizeof(lab->cache), "%s/cache", lab->path);
	snprintf(lab->cache_file, sizeof(lab->cache_file), "%s/" CACHE_FILE, lab->cache);
	setenv("XDG_CACHE_HOME", lab->cache, 1);
	unsetenv("DEBUGINFOD_URLS");
	unsetenv(HL_SYMBOLS_STORE_SWITCH);
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

static void build(struct lab *lab)
{
	char path[64];

	if (system("cc --version >/dev/null 2>&1 && objcopy --version >/dev/null 2>&1") != 0) {
		print_message("skipped: cc and objcopy are needed\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/a.c", lab->path);
	FILE *out = fopen(path, "w");
	assert_non_null(out);
	fputs(source, out);
	fclose(out);
	run(lab, "cc -O1 -g -shared -fPIC -Wl,--build-id=0x0123456789abcdef01234567 -o a.so a.c");
	find_functions(lab);
}

static void build_stripped(struct lab *lab)
{
	build(lab);
	run(lab, "objcopy --only-keep-debug a.so a.debug && mv a.so full.so && "
		 "strip -g -o a.so full.so && objcopy --add-gnu-debuglink=a.debug a.so && "
		 "mv a.debug kept.debug");
}

static bool is_kept(const struct lab *lab)
{
	return access(lab->cache_file, F_OK) == 0;
}

/* Names ${address} as a view would, and compares the source line: 0 where there is none. */
static void assert_named(const struct lab *lab, uint64_t address, const char *function,
			 uint32_t line)
{
	const struct hl_symbols_frame *frames;
	struct hl_symbols *symbols;
	size_t count;

	assert_int_equal(hl_symbols_open(lab->library, build_id, sizeof(build_id), &symbols), 0);
	assert_int_equal(hl_symbols_find(symbols, address, &frames, &count), 0);
	assert_int_equal(count, 1);
	assert_string_equal(frames[0].function, function);
	assert_int_equal(frames[0].line, line);
	hl_symbols_free(symbols);
}

/* Whether the cache by itself would name ${address}. */
static bool is_known(const struct lab *lab, uint64_t address)
{
	const struct hl_symbols_frame *frames;
	struct hl_symbols_cache *cache;
	size_t count;

	assert_int_equal(hl_symbols_cache_open(lab->library, build_id, sizeof(build_id), &cache),
			 0);
	bool known = cache && hl_symbols_cache_find(cache, address, &frames, &count);
	hl_symbols_cache_free(cache);
	return known;
}

/* ---- DWARF ---- */

static void names_stay_when_the_file_is_gone(void **state)
{
	struct lab *lab = *state;
	char nameless[32];

	build(lab);
	assert_named(lab, lab->first, "first", 1);
	assert_true(is_kept(lab));
	run(lab, "rm a.so");
	assert_named(lab, lab->first, "first", 1);
	snprintf(nameless, sizeof(nameless), "a.so+0x%llx", (unsigned long long)lab->second);
	assert_named(lab, lab->second, nameless, 0);
}

static void what_was_not_asked_before_is_added(void **state)
{
	struct lab *lab = *state;

	build(lab);
	assert_named(lab, lab->second, "second", 2);
	assert_false(is_known(lab, lab->first));
	assert_named(lab, lab->first, "first", 1);
	assert_true(is_known(lab, lab->first));
	assert_true(is_known(lab, lab->second));
}

static void names_from_dwarf_outlive_the_debug_information(void **state)
{
	struct lab *lab = *state;

	build(lab);
	assert_named(lab, lab->first, "first", 1);
	run(lab, "strip -g a.so");
	assert_named(lab, lab->first, "first", 1);
	assert_named(lab, lab->second, "second", 0); /* worse, and so not kept */
	assert_true(is_known(lab, lab->first));
	assert_false(is_known(lab, lab->second));
}

static void names_are_not_kept_while_split_units_are_missing(void **state)
{
	struct lab *lab = *state;

	build(lab);
	run(lab,
	    "cc -O1 -g -gsplit-dwarf -shared -fPIC "
	    "-Wl,--build-id=0x0123456789abcdef01234567 -o a.so a.c && mkdir away && mv *.dwo away");
	find_functions(lab);
	assert_named(lab, lab->first, "first", 1);
	assert_false(is_kept(lab));
	run(lab, "mv away/*.dwo .");
	assert_named(lab, lab->first, "first", 1);
	assert_true(is_kept(lab));
}

static void the_source_is_that_of_the_names_shown(void **state)
{
	struct lab *lab = *state;
	const struct hl_symbols_frame *frames;
	struct hl_symbols *symbols;
	size_t count;

	build(lab);
	assert_named(lab, lab->first, "first", 1);
	run(lab, "strip -g a.so");
	assert_int_equal(hl_symbols_open(lab->library, build_id, sizeof(build_id), &symbols), 0);
	assert_int_equal(hl_symbols_find(symbols, lab->first, &frames, &count), 0);
	assert_int_equal(hl_symbols_source(symbols), HL_SYMBOLS_DWARF);
	assert_string_equal(hl_symbols_reason(symbols), "");
	assert_int_equal(hl_symbols_find(symbols, lab->second, &frames, &count), 0);
	assert_int_equal(hl_symbols_source(symbols), HL_SYMBOLS_DWARF);
	assert_non_null(strstr(hl_symbols_reason(symbols), "kept from an earlier run"));
	hl_symbols_free(symbols);
	/* None of the names shown is kept. */
	assert_int_equal(hl_symbols_open(lab->library, build_id, sizeof(build_id), &symbols), 0);
	assert_int_equal(hl_symbols_find(symbols, lab->second, &frames, &count), 0);
	assert_int_equal(hl_symbols_source(symbols), HL_SYMBOLS_SYMTAB);
	hl_symbols_free(symbols);
}

/* ---- other names ---- */

static void names_without_lines_are_used_while_nothing_changes(void **state)
{
	struct lab *lab = *state;

	build_stripped(lab);
	assert_named(lab, lab->first, "first", 0);
	assert_true(is_known(lab, lab->first));
}

static void names_without_lines_are_dropped_when_there_may_be_better_ones(void **state)
{
	static const char *const changes[] = {"touch a.so", "cp kept.debug a.debug",
					      "mkdir -p .debug && cp kept.debug .debug/a.debug"};
	struct lab *lab = *state;

	for (size_t i = 0; i < HL_COUNT_OF(changes); i++) {
		run(lab, "rm -rf cache a.debug .debug");
		build_stripped(lab);
		assert_named(lab, lab->first, "first", 0);
		assert_true(is_known(lab, lab->first));
		run(lab, changes[i]);
		assert_false(is_known(lab, lab->first));
		assert_named(lab, lab->first, "first", i ? 1 : 0);
		assert_true(is_known(lab, lab->first));
	}
}

static void another_debuginfod_may_know_more(void **state)
{
	struct lab *lab = *state;

	build_stripped(lab);
	assert_named(lab, lab->first, "first", 0);
	setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9/", 1);
	assert_false(is_known(lab, lab->first));
	unsetenv("DEBUGINFOD_URLS");
	assert_true(is_known(lab, lab->first));
}

static void a_debuginfod_may_know_more_the_next_day(void **state)
{
	struct lab *lab = *state;

	build_stripped(lab);
	setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9/", 1);
	json_t *circumstances =
		hl_symbols_circumstances_new(lab->library, build_id, sizeof(build_id), "a.debug");
	assert_true(hl_symbols_circumstances_hold(circumstances, lab->library));
	json_object_set_new(circumstances, "described_s", json_integer(time(NULL) - 86400));
	assert_false(hl_symbols_circumstances_hold(circumstances, lab->library));
	json_decref(circumstances);
}

static void names_are_of_the_file_that_they_were_asked_for(void **state)
{
	struct lab *lab = *state;

	build_stripped(lab);
	assert_named(lab, lab->first, "first", 0);
	run(lab, "cp a.so b.so");
	lab->library[strlen(lab->library) - strlen("a.so")] = 'b';
	assert_false(is_known(lab, lab->first));
}

static void files_without_build_id_are_not_kept(void **state)
{
	struct lab *lab = *state;
	const struct hl_symbols_frame *frames;
	struct hl_symbols *symbols;
	size_t count;

	build(lab);
	assert_int_equal(hl_symbols_open(lab->library, NULL, 0, &symbols), 0);
	assert_int_equal(hl_symbols_find(symbols, lab->first, &frames, &count), 0);
	assert_string_equal(frames[0].function, "first");
	hl_symbols_free(symbols);
	assert_int_not_equal(access(lab->cache, F_OK), 0);
}

/* ---- the directory ---- */

static void the_cache_can_be_turned_off(void **state)
{
	struct lab *lab = *state;

	build(lab);
	setenv(HL_SYMBOLS_STORE_SWITCH, "off", 1);
	assert_named(lab, lab->first, "first", 1);
	assert_false(is_kept(lab));
}

static void the_cache_is_below_home_unless_said_otherwise(void **state)
{
	struct lab *lab = *state;
	char path[128];

	build(lab);
	setenv("HOME", lab->path, 1);
	setenv("XDG_CACHE_HOME", "relative", 1); /* counts for nothing */
	assert_named(lab, lab->first, "first", 1);
	snprintf(path, sizeof(path), "%s/.cache/" CACHE_FILE, lab->path);
	assert_int_equal(access(path, F_OK), 0);
}

static void without_a_place_for_it_nothing_is_kept(void **state)
{
	struct lab *lab = *state;

	build(lab);
	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	assert_named(lab, lab->first, "first", 1);
	setenv("HOME", "/nowhere", 1);
	assert_named(lab, lab->first, "first", 1);
	run(lab, "touch cache"); /* a file */
	setenv("XDG_CACHE_HOME", lab->cache, 1);
	assert_named(lab, lab->first, "first", 1);
}

static void another_users_cache_is_neither_written_nor_read(void **state)
{
	struct lab *lab = *state;

	if (geteuid() != 0) {
		print_message("skipped: only root can give a directory away\n");
		skip();
	}
	build(lab);
	run(lab, "mkdir cache && chown 65534 cache");
	assert_named(lab, lab->first, "first", 1);
	assert_false(is_kept(lab));
	run(lab, "chown 0 cache");
	assert_named(lab, lab->first, "first", 1);
	assert_true(is_known(lab, lab->first));
	run(lab, "chown 65534 cache/heapline/symbols");
	assert_false(is_known(lab, lab->first));
}

static size_t count_files(const char *path)
{
	DIR *directory = opendir(path);
	size_t count = 0;

	assert_non_null(directory);
	for (const struct dirent *entry; (entry = readdir(directory));)
		count += entry->d_type == DT_REG;
	closedir(directory);
	return count;
}

static void the_oldest_files_go_when_it_is_full(void **state)
{
	struct lab *lab = *state;

	run(lab, "mkdir cache && cd cache && head -c 1000 /dev/zero >old.hls && "
		 "touch -d 2020-01-01 old.hls && head -c 500 /dev/zero >.older.hls.tmp && "
		 "touch -d 2019-01-01 .older.hls.tmp && head -c 1000 /dev/zero >new.hls");
	int fd = open(lab->cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	hl_symbols_store_trim(fd, 2500);
	assert_int_equal(count_files(lab->cache), 3);
	hl_symbols_store_trim(fd, 2499);
	assert_int_equal(count_files(lab->cache), 2);
	hl_symbols_store_trim(fd, 1500);
	close(fd);
	assert_int_equal(count_files(lab->cache), 1);
	run(lab, "test -e cache/new.hls");
}

/* ---- the file ---- */

static void a_damaged_file_is_no_file(void **state)
{
	struct lab *lab = *state;
	struct stat status;

	build(lab);
	assert_named(lab, lab->first, "first", 1);
	assert_int_equal(stat(lab->cache_file, &status), 0);
	int fd = open(lab->cache_file, O_RDWR | O_CLOEXEC);
	for (off_t i = 0; i < status.st_size; i++) {
		uint8_t byte, flipped;
		assert_int_equal(pread(fd, &byte, 1, i), 1);
		flipped = (uint8_t)(byte ^ 1 << i % 8);
		assert_int_equal(pwrite(fd, &flipped, 1, i), 1);
		assert_false(is_known(lab, lab->first));
		assert_int_equal(pwrite(fd, &byte, 1, i), 1);
	}
	assert_true(is_known(lab, lab->first));
	assert_int_equal(ftruncate(fd, status.st_size - 1), 0);
	close(fd);
	assert_named(lab, lab->first, "first", 1); /* and a good one is written */
	assert_true(is_known(lab, lab->first));
}

static int name_once(const struct lab *lab)
{
	const struct hl_symbols_frame *frames;
	struct hl_symbols *symbols;
	size_t count;

	int r = hl_symbols_open(lab->library, build_id, sizeof(build_id), &symbols);
	if (r < 0)
		return r;
	r = hl_symbols_find(symbols, lab->first, &frames, &count);
	if (r == 0 && strcmp(frames[0].function, "first") != 0)
		r = -EBADMSG;
	if (r == 0)
		r = hl_symbols_find(symbols, lab->second, &frames, &count);
	hl_symbols_free(symbols);
	return r;
}

/* What one of several heaplines does; its exit status. */
static int name_and_forget(const struct lab *lab)
{
	for (int turn = 0; turn < 25; turn++) {
		unlink(lab->cache_file);
		if (name_once(lab) < 0)
			return 1;
	}
	return 0;
}

static void a_pipe_in_its_place_is_not_waited_for(void **state)
{
	struct lab *lab = *state;

	build(lab);
	assert_named(lab, lab->first, "first", 1);
	assert_int_equal(unlink(lab->cache_file), 0);
	assert_int_equal(mkfifo(lab->cache_file, 0600), 0);
	alarm(200); /* which ends the program */
	assert_false(is_known(lab, lab->first));
	alarm(0);
	assert_named(lab, lab->first, "first", 1);
}

static void several_at_once_do_no_harm(void **state)
{
	struct lab *lab = *state;
	pid_t pids[4];

	build(lab);
	for (size_t i = 0; i < HL_COUNT_OF(pids); i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(name_and_forget(lab));
	}
	for (size_t i = 0; i < HL_COUNT_OF(pids); i++) {
		int status;
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	assert_named(lab, lab->first, "first", 1);
	assert_true(is_known(lab, lab->first));
}

/* With no room for files, as on a full disk. */
static int name_without_room(const struct lab *lab)
{
	const struct rlimit none = {0, 0};

	signal(SIGXFSZ, SIG_IGN);
	return setrlimit(RLIMIT_FSIZE, &none) < 0 || name_once(lab) < 0;
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
	struct lab *lab = *state;
	char path[128];
	int status;

	build(lab);
	pid_t pid = fork();
	if (pid == 0)
		_exit(name_without_room(lab));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	snprintf(path, sizeof(path), "%s/heapline/symbols", lab->cache);
	assert_int_equal(count_files(path), 0);
}

/* Names do not fail for want of memory to keep them: then they are only looked up again. */
static void want_of_memory_is_an_error_where_it_is_in_the_way(void **state)
{
	struct lab *lab = *state;

	build_stripped(lab);
	FOR_EACH_FAILING_ALLOCATION(r, name_once(lab))
	assert_true(r == -ENOMEM || r == 0);
	assert_named(lab, lab->first, "first", 0);
	run(lab, "touch a.so");
	FOR_EACH_FAILING_ALLOCATION(r, name_once(lab))
	assert_true(r == -ENOMEM || r == 0);
}

#define IN_LAB(test) cmocka_unit_test_setup_teardown(test, lab_setup, lab_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_LAB(names_stay_when_the_file_is_gone),
		IN_LAB(what_was_not_asked_before_is_added),
		IN_LAB(names_from_dwarf_outlive_the_debug_information),
		IN_LAB(names_are_not_kept_while_split_units_are_missing),
		IN_LAB(the_source_is_that_of_the_names_shown),
		IN_LAB(names_without_lines_are_used_while_nothing_changes),
		IN_LAB(names_without_lines_are_dropped_when_there_may_be_better_ones),
		IN_LAB(another_debuginfod_may_know_more),
		IN_LAB(a_debuginfod_may_know_more_the_next_day),
		IN_LAB(names_are_of_the_file_that_they_were_asked_for),
		IN_LAB(files_without_build_id_are_not_kept),
		IN_LAB(the_cache_can_be_turned_off),
		IN_LAB(the_cache_is_below_home_unless_said_otherwise),
		IN_LAB(without_a_place_for_it_nothing_is_kept),
		IN_LAB(another_users_cache_is_neither_written_nor_read),
		IN_LAB(the_oldest_files_go_when_it_is_full),
		IN_LAB(a_damaged_file_is_no_file),
		IN_LAB(a_pipe_in_its_place_is_not_waited_for),
		IN_LAB(several_at_once_do_no_harm),
		IN_LAB(a_full_disk_leaves_nothing_behind),
		IN_LAB(want_of_memory_is_an_error_where_it_is_in_the_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
