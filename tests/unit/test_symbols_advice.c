/* SPDX-License-Identifier: BSD-2-Clause */
/* Which packages would bring symbols, by a dpkg directory that is made here. */
#include "profile/profile.h"

#include "base/compiler.h"
#include "fail_allocations.h"
#include "profile/builder.h"
#include "temporary.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NO_LINES "no source lines; "

static void write_file(const char *directory, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	FILE *out = fopen(path, "w");
	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

static int dpkg_setup(void **state)
{
	char *directory = strdup("/tmp/heapline-test-XXXXXX"), info[64];

	if (!mkdtemp(directory))
		return -1;
	snprintf(info, sizeof(info), "%s/info", directory);
	if (mkdir(info, 0700) < 0)
		return -1;
	write_file(info, "libc6:amd64.list", "/.\n/lib\n/lib/x86_64-linux-gnu/libc.so.6\n");
	write_file(info, "python3.11-minimal.list", "/.\n/usr\n/usr/bin\n/usr/bin/python3.11\n");
	write_file(info, "libcart1.list", "/usr/lib/libcart.so.1"); /* no newline */
	write_file(info, "libcart1.md5sums", "/usr/lib/other.so\n");
	write_file(directory, "available",
		   "Package: python3.11-dbg\nVersion: 1\n\nPackage: libcart-dbg\n\n"
		   "Package: libcar-dbg\n\nPackage: dbg\n");
	*state = directory;
	return 0;
}

static int dpkg_teardown(void **state)
{
	int r = remove_temporary(*state);

	free(*state);
	return r;
}

/* One module that stacks pass through, and what was said of its symbols. */
static struct hl_profile *profile_of(const char *path, const char *reason)
{
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t module, *final_ids;

	assert_int_equal(hl_builder_init(&builder), 0);
	assert_int_equal(hl_builder_module(&builder, path, (const uint8_t *)"", 0, NULL, &module),
			 0);
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	hl_builder_release(&builder);
	free(final_ids);
	profile->modules[module].used = true;
	assert_int_equal(hl_strings_intern(&profile->strings, reason,
					   &profile->modules[module].symbols_reason),
			 0);
	return profile;
}

static void assert_advice(const char *directory, const char *path, const char *reason,
			  const char *expected)
{
	struct hl_profile *profile = profile_of(path, reason);

	assert_int_equal(hl_symbols_advice_add(profile, directory), 0);
	assert_string_equal(hl_profile_text(profile, profile->modules[1].symbols_reason), expected);
	hl_profile_free(profile);
}

static void the_package_of_the_file_is_named(void **state)
{
	assert_advice(*state, "/usr/lib/libcart.so.1", NO_LINES HL_SYMBOLS_REMEDY,
		      NO_LINES "install libcart1-dbgsym or set DEBUGINFOD_URLS");
}

static void files_are_found_under_either_name_of_their_directory(void **state)
{
	assert_advice(*state, "/lib/libcart.so.1", NO_LINES HL_SYMBOLS_REMEDY,
		      NO_LINES "install libcart1-dbgsym or set DEBUGINFOD_URLS");
	assert_advice(*state, "/usr/lib/x86_64-linux-gnu/libc.so.6", NO_LINES HL_SYMBOLS_REMEDY,
		      NO_LINES "install libc6-dbg or set DEBUGINFOD_URLS");
}

static void packages_of_the_old_kind_are_named_if_there_are_any(void **state)
{
	assert_advice(*state, "/usr/bin/python3.11", NO_LINES HL_SYMBOLS_REMEDY,
		      NO_LINES "install python3.11-dbg or python3.11-minimal-dbgsym, or set "
			       "DEBUGINFOD_URLS");
}

static void where_nothing_is_known_the_general_remedy_stays(void **state)
{
	assert_advice(*state, "/opt/shop", NO_LINES HL_SYMBOLS_REMEDY, NO_LINES HL_SYMBOLS_REMEDY);
	assert_advice("/nowhere", "/usr/bin/python3.11", NO_LINES HL_SYMBOLS_REMEDY,
		      NO_LINES HL_SYMBOLS_REMEDY);
}

static void other_reasons_stay(void **state)
{
	assert_advice(*state, "/usr/bin/python3.11", "", "");
	assert_advice(*state, "/usr/bin/python3.11", "it is another file", "it is another file");
}

static int advise_once(const char *directory)
{
	struct hl_profile *profile = NULL;
	long left = allocations_left;

	allocations_left = -1; /* what is tested begins below */
	profile = profile_of("/usr/bin/python3.11", NO_LINES HL_SYMBOLS_REMEDY);
	allocations_left = left;
	int r = hl_symbols_advice_add(profile, directory);
	hl_profile_free(profile);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	FOR_EACH_FAILING_ALLOCATION(r, advise_once(*state))
	assert_int_equal(r, -ENOMEM);
}

#define WITH_DPKG(test) cmocka_unit_test_setup_teardown(test, dpkg_setup, dpkg_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DPKG(the_package_of_the_file_is_named),
		WITH_DPKG(files_are_found_under_either_name_of_their_directory),
		WITH_DPKG(packages_of_the_old_kind_are_named_if_there_are_any),
		WITH_DPKG(where_nothing_is_known_the_general_remedy_stays),
		WITH_DPKG(other_reasons_stay),
		WITH_DPKG(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
