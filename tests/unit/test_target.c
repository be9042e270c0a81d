/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of a process' code, which here is our own. */
#include "bpf/walker.h"

#include "fail_allocations.h"
#include "unwind/rule.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNTED_BYTES_MAX (256u << 10)

static struct hl_target *new_target(void)
{
	struct hl_target *target;
	struct hl_error err = {{0}};

	if (hl_target_new(getpid(), NULL, &target, &err) < 0)
		fail_msg("%s", err.text);
	return target;
}

static void refresh(struct hl_target *target)
{
	assert_int_equal(hl_target_refresh(target, NULL), 0);
}

static const struct hl_recording_module *module_at(const struct hl_target *target,
						   const void *address)
{
	uint32_t id = hl_target_module_at(target, (uint64_t)address);

	return id ? &target->modules[id - 1] : NULL;
}

static const struct hl_target_file *file_at(const struct hl_target *target, const void *address)
{
	uint32_t id = hl_target_module_at(target, (uint64_t)address);

	return id ? &target->files->list[target->module_files[id - 1].file] : NULL;
}

static void assert_is_loaders(const struct hl_target *target, const void *address)
{
	struct dl_find_object object;
	const struct hl_recording_module *module = module_at(target, address);

	assert_int_equal(_dl_find_object((void *)(uintptr_t)address, &object), 0);
	assert_non_null(module);
	assert_int_equal(module->start, (uint64_t)object.dlfo_map_start);
	assert_int_equal(module->end, (uint64_t)object.dlfo_map_end);
	assert_int_equal(module->load_bias, object.dlfo_link_map->l_addr);
	assert_true(file_at(target, address)->table.has_rows);
}

/* The code of WALK_PLUGIN_A, from a file of its own. */
struct plugin {
	char path[64];
	void *handle;
	const void *code;
};

static void copy_file(const char *from, const char *to)
{
	char command[512];

	snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
	assert_int_equal(system(command), 0);
}

static struct plugin load_plugin(const char *variable)
{
	struct plugin plugin = {.path = "/tmp/heapline-test-XXXXXX"};

	assert_non_null(getenv(variable));
	int fd = mkstemp(plugin.path);
	assert_true(fd >= 0);
	close(fd);
	copy_file(getenv(variable), plugin.path);
	plugin.handle = dlopen(plugin.path, RTLD_NOW);
	assert_non_null(plugin.handle);
	plugin.code = dlsym(plugin.handle, "plugin_call");
	assert_non_null(plugin.code);
	return plugin;
}

static void modules_are_those_of_the_loader(void **state)
{
	struct hl_target *target = new_target();

	(void)state;
	assert_is_loaders(target, (const void *)(uintptr_t)new_target);
	assert_is_loaders(target, (const void *)(uintptr_t)gnu_get_libc_version);
	assert_string_equal(module_at(target, (const void *)(uintptr_t)gnu_get_libc_version)->path,
			    "/usr/lib/x86_64-linux-gnu/libc.so.6");
	assert_null(module_at(target, &target)); /* data */
	assert_int_equal(hl_target_module_at(target, 0), HL_MODULE_NONE);
	assert_int_equal(hl_target_module_at(target, UINT64_MAX), HL_MODULE_NONE);
	hl_target_free(target);
}

/* Whether frame pointers are tried in all of the page, as no function there is known. */
static bool is_in_large_gap(const struct hl_target_file *file,
			    const struct hl_target_mapping *mapping, uint64_t at)
{
	uint64_t number = (at - mapping->start) / HL_CODE_PAGE_BYTES;
	const struct hl_code_page *page = &file->table.pages[mapping->first_page + number];
	uint64_t row = page->row_count == 1 ? file->table.rows[page->first_row] : 0;

	return (row & HL_FRAME_PC_MASK) == (HL_RULE_FRAME_POINTER & HL_FRAME_PC_MASK);
}

static void as_many_bytes_are_covered_as_have_rules(void **state)
{
	struct hl_target *target = new_target();
	uint64_t all = 0;

	(void)state;
	for (size_t i = 0; i < target->mapping_count; i++) {
		const struct hl_target_mapping *mapping = &target->mappings[i];
		const struct hl_target_file *file = hl_target_mapping_file(target, i);
		uint64_t bias = file ? target->modules[mapping->module - 1].load_bias : 0;
		uint64_t covered = 0;
		if (mapping->end - mapping->start > COUNTED_BYTES_MAX)
			continue; /* for the sake of speed */
		for (uint64_t at = mapping->start; file && at < mapping->end; at++)
			covered += hl_code_table_rule(&file->table, at - bias) != HL_RULE_NONE &&
				   !is_in_large_gap(file, mapping, at);
		assert_int_equal(hl_target_covered_bytes(target, i), covered);
		all += covered;
	}
	assert_true(all > 0);
	hl_target_free(target);
}

static void the_vdso_is_a_module_with_rows(void **state)
{
	struct hl_target *target = new_target();
	bool found = false;

	(void)state;
	for (size_t i = 0; i < target->module_count; i++)
		if (strcmp(target->modules[i].path, "linux-vdso.so.1") == 0)
			found = target->files->list[target->module_files[i].file].table.has_rows;
	assert_true(found);
	hl_target_free(target);
}

static void a_refresh_without_change_changes_nothing(void **state)
{
	struct hl_target *target = new_target();
	uint64_t changes = target->changes;
	size_t modules = target->module_count, files = target->files->count;

	(void)state;
	refresh(target);
	assert_int_equal(target->changes, changes);
	assert_int_equal(target->module_count, modules);
	assert_int_equal(target->files->count, files);
	hl_target_free(target);
}

static void libraries_come_and_go_and_keep_their_ids(void **state)
{
	struct hl_target *target = new_target();
	uint64_t changes = target->changes;

	(void)state;
	struct plugin plugin = load_plugin("WALK_PLUGIN_A");
	assert_null(module_at(target, plugin.code));
	refresh(target);
	assert_true(target->changes > changes);
	uint32_t id = hl_target_module_at(target, (uint64_t)plugin.code);
	assert_is_loaders(target, plugin.code);
	assert_string_equal(target->modules[id - 1].path, plugin.path);
	assert_int_equal(dlclose(plugin.handle), 0);
	refresh(target);
	assert_null(module_at(target, plugin.code));
	assert_string_equal(target->modules[id - 1].path, plugin.path);
	hl_target_free(target);
	unlink(plugin.path);
}

static void a_deleted_library_is_read_all_the_same(void **state)
{
	(void)state;
	struct plugin plugin = load_plugin("WALK_PLUGIN_A");
	unlink(plugin.path);
	if (geteuid() != 0) {
		dlclose(plugin.handle);
		skip(); /* needs root: only /proc/PID/map_files leads to a file without a name */
	}
	struct hl_target *target = new_target();
	assert_is_loaders(target, plugin.code);
	assert_int_equal(target->lost_files, 0);
	hl_target_free(target);
	dlclose(plugin.handle);
}

/* As when a program makes a library, deletes it, and the next one gets the number of its inode. */
static void another_file_of_the_same_number_is_not_taken_for_it(void **state)
{
	(void)state;
	struct plugin first = load_plugin("WALK_PLUGIN_A");
	struct hl_target *target = new_target();
	const struct hl_target_file *before = file_at(target, first.code);
	size_t files = target->files->count;
	assert_true(before->is_read);
	assert_int_equal(dlclose(first.handle), 0);
	copy_file(getenv("WALK_PLUGIN_B"), first.path); /* into the same inode */
	void *handle = dlopen(first.path, RTLD_NOW);
	assert_non_null(handle);
	refresh(target);
	const void *code = dlsym(handle, "plugin_call");
	assert_int_equal(target->files->count, files + 1);
	assert_is_loaders(target, code);
	assert_ptr_equal(file_at(target, code), &target->files->list[files]);
	dlclose(handle);
	unlink(first.path);
	hl_target_free(target);
}

static void a_file_that_was_only_touched_stays_the_same(void **state)
{
	(void)state;
	struct plugin plugin = load_plugin("WALK_PLUGIN_A");
	struct hl_target *target = new_target();
	size_t files = target->files->count, modules = target->module_count;
	const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	assert_int_equal(utimensat(AT_FDCWD, plugin.path, times, 0), 0);
	refresh(target);
	assert_int_equal(target->files->count, files);
	assert_int_equal(target->module_count, modules);
	dlclose(plugin.handle);
	unlink(plugin.path);
	hl_target_free(target);
}

static void code_of_no_file_has_no_module(void **state)
{
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(code, MAP_FAILED);
	struct hl_target *target = new_target();
	assert_null(module_at(target, code));
	bool is_listed = false;
	for (size_t i = 0; i < target->mapping_count; i++)
		is_listed |= target->mappings[i].start <= (uint64_t)code &&
			     target->mappings[i].end > (uint64_t)code;
	assert_true(is_listed); /* so that it is not a unknown code */
	hl_target_free(target);
	munmap(code, 4096);
}

/* As programs do that move their code to huge pages. */
static void code_that_was_copied_over_its_file_is_still_the_modules(void **state)
{
	(void)state;
	struct plugin plugin = load_plugin("WALK_PLUGIN_A");
	struct hl_target *target = new_target();
	uint32_t id = hl_target_module_at(target, (uint64_t)plugin.code);
	char copy[4096], *page = (char *)((uint64_t)plugin.code & ~UINT64_C(4095));
	memcpy(copy, page, sizeof(copy));
	assert_ptr_equal(mmap(page, sizeof(copy), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 page);
	memcpy(page, copy, sizeof(copy));
	assert_int_equal(mprotect(page, sizeof(copy), PROT_READ | PROT_EXEC), 0);
	refresh(target);
	assert_int_equal(hl_target_module_at(target, (uint64_t)plugin.code), id);
	hl_target_free(target);
	dlclose(plugin.handle);
	unlink(plugin.path);
}

static void a_file_that_is_no_elf_file_is_counted_and_named(void **state)
{
	char path[] = "/tmp/heapline-test-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(ftruncate(fd, 8192), 0);
	void *code = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(code, MAP_FAILED);
	struct hl_target *target = new_target();
	assert_int_equal(target->lost_files, 1);
	assert_string_equal(module_at(target, code)->path, path);
	assert_int_equal(module_at(target, code)->load_bias, (uint64_t)code);
	refresh(target);
	assert_int_equal(target->lost_files, 1);
	hl_target_free(target);
	munmap(code, 8192);
	close(fd);
	unlink(path);
}

static void a_process_that_is_not_there_is_refused(void **state)
{
	struct hl_target *target = NULL;
	struct hl_error err = {{0}};
	pid_t child = fork();

	(void)state;
	if (!child)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(hl_target_new(child, NULL, &target, &err), -ESRCH);
	assert_null(target);
	assert_string_not_equal(err.text, "");
}

static int make_and_free(void)
{
	struct hl_target *target;

	int r = hl_target_new(getpid(), NULL, &target, NULL);
	if (r == 0)
		hl_target_free(target);
	return r;
}

static void want_of_memory_is_reported(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, make_and_free())
	assert_int_equal(r, -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(modules_are_those_of_the_loader),
		cmocka_unit_test(as_many_bytes_are_covered_as_have_rules),
		cmocka_unit_test(the_vdso_is_a_module_with_rows),
		cmocka_unit_test(a_refresh_without_change_changes_nothing),
		cmocka_unit_test(libraries_come_and_go_and_keep_their_ids),
		cmocka_unit_test(a_deleted_library_is_read_all_the_same),
		cmocka_unit_test(another_file_of_the_same_number_is_not_taken_for_it),
		cmocka_unit_test(a_file_that_was_only_touched_stays_the_same),
		cmocka_unit_test(code_of_no_file_has_no_module),
		cmocka_unit_test(code_that_was_copied_over_its_file_is_still_the_modules),
		cmocka_unit_test(a_file_that_is_no_elf_file_is_counted_and_named),
		cmocka_unit_test(a_process_that_is_not_there_is_refused),
		cmocka_unit_test(want_of_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
