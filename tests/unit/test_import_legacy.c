/* SPDX-License-Identifier: BSD-2-Clause */
/* Heap files of gperftools and jemalloc: samples, places, and what is refused. */
#include "import/importer.h"

#include <dlfcn.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "import_reading.h"

/* ---- samples ---- */

static void blocks_are_counted_by_how_likely_it_was_to_sample_them(void **state)
{
	const struct hl_import_sampling none = {HL_SAMPLING_NONE, 0};
	const struct hl_import_sampling truncated = {HL_SAMPLING_TRUNCATED, 1000};
	const struct hl_import_sampling poisson = {HL_SAMPLING_POISSON, 1000};
	struct hl_import_amount amount;

	(void)state;
	amount = hl_import_values_unsample(&none, (struct hl_import_amount){3, 5});
	assert_int_equal(amount.objects, 3);
	assert_int_equal(amount.bytes, 5);
	/* 1 / (1 - e^-0.25) = 4.5208, cut as Go's pprof does */
	amount = hl_import_values_unsample(&truncated, (struct hl_import_amount){3, 750});
	assert_int_equal(amount.objects, 13);
	assert_int_equal(amount.bytes, 3390);
	amount = hl_import_values_unsample(&poisson, (struct hl_import_amount){3, 750});
	assert_int_equal(amount.objects, 14);
	assert_int_equal(amount.bytes, 3391);
	amount = hl_import_values_unsample(&truncated, (struct hl_import_amount){-3, -750});
	assert_int_equal(amount.objects, -13);
	/* p = 1 - 1/e = 0.63212 for blocks of the mean distance, 1 for huge ones. */
	amount = hl_import_values_unsample(&poisson, (struct hl_import_amount){63212, 63212000});
	assert_int_equal(amount.objects, 100000);
	assert_int_equal(amount.bytes, 99999912); /* 63212000 / 0.632120558... */
	amount = hl_import_values_unsample(&poisson, (struct hl_import_amount){7, 7000000});
	assert_int_equal(amount.objects, 7);
	assert_int_equal(amount.bytes, 7000000);
}

static void samples_without_size_or_beyond_all_numbers_do_no_harm(void **state)
{
	const struct hl_import_sampling poisson = {HL_SAMPLING_POISSON, 0x1p62};
	struct hl_import_amount amount;

	(void)state;
	amount = hl_import_values_unsample(&poisson, (struct hl_import_amount){5, 0});
	assert_int_equal(amount.objects, 0);
	amount = hl_import_values_unsample(&poisson, (struct hl_import_amount){-5, 7});
	assert_int_equal(amount.objects, -5);
	amount = hl_import_values_unsample(&poisson, (struct hl_import_amount){INT64_MAX, 1});
	assert_int_equal(amount.objects, INT64_MAX);
}

/* Blocks of one size, sampled by points on the line of bytes as an allocator does it. */
static struct hl_import_amount sample_blocks(int64_t count, int64_t size_bytes, double mean_bytes,
					     unsigned short seed)
{
	unsigned short random[3] = {seed, 7, 11};
	struct hl_import_amount sampled = {0};
	double distance = -mean_bytes * log(1 - erand48(random));

	for (int64_t i = 0; i < count; i++) {
		distance -= (double)size_bytes;
		if (distance >= 0)
			continue;
		sampled.objects++;
		sampled.bytes += size_bytes;
		distance = -mean_bytes * log(1 - erand48(random));
	}
	return sampled;
}

static void estimates_of_many_samplings_have_the_true_mean(void **state)
{
	const struct hl_import_sampling poisson = {HL_SAMPLING_POISSON, 4096};
	const int64_t sizes[] = {16, 1000, 4096, 10000};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(sizes); i++) {
		double sum = 0;
		for (unsigned short seed = 1; seed <= 100; seed++)
			sum += (double)hl_import_values_unsample(
				       &poisson, sample_blocks(20000, sizes[i], 4096, seed))
				       .objects;
		/* 16 bytes: 78 samples a run, so the mean of 100 is good to about 1.1 %. */
		assert_true(fabs(sum / 100 - 20000) < 20000 * 0.04);
	}
}

/* ---- heap files ---- */

#define GPERFTOOLS                                                                 \
	"heap profile:     12:     3456 [    78:     9012] @ heapprofile\n"        \
	"     4:     1024 [     8:     2048] @ 0x7f0000001235 0x555500002101\n"    \
	"     8:     2432 [    70:     6964] @ 0x555500002201\n"                   \
	"\n"                                                                       \
	"MAPPED_LIBRARIES:\n"                                                      \
	"555500000000-555500010000 r-xp 00000000 08:01 1234    /nowhere/the app\n" \
	"7f0000000000-7f0000010000 r-xp 00004000 08:01 1235    /nowhere/lib.so\n"  \
	"7fff00000000-7fff00010000 rw-p 00000000 00:00 0       [stack]\n"

#define JEMALLOC                                                                  \
	"heap_v2/1\n"                                                             \
	"  t*: 7: 7000 [17: 17000]\n"                                             \
	"  t0: 7: 7000 [17: 17000]\n"                                             \
	"@ 0x7f0000001235 0x555500002101\n"                                       \
	"  t*: 5: 5000 [15: 15000]\n"                                             \
	"  t0: 2: 2000 [5: 5000]\n"                                               \
	"  t1: 3: 3000 [10: 10000] worker\n"                                      \
	"@ 0x555500002201\n"                                                      \
	"  t*: 2: 2000 [2: 2000]\n"                                               \
	"\n"                                                                      \
	"MAPPED_LIBRARIES:\n"                                                     \
	"7f0000000000-7f0000010000 r-xp 00004000 08:01 1235    /nowhere/lib.so\n" \
	"555500000000-555500010000 r-xp 00000000 08:01 1234    /nowhere/the app\n"

static struct hl_profile *read_legacy(const char *text)
{
	return must_read_text(&hl_importer_legacy, text);
}

static void stacks_of_gperftools_are_read_with_both_amounts(void **state)
{
	struct hl_profile *profile = read_legacy(GPERFTOOLS);
	const struct hl_profile_counters *counters =
		counters_of(profile, "the app+0x2100;lib.so+0x5234");

	(void)state;
	assert_int_equal(counters->alloc_bytes, 2048);
	assert_int_equal(counters->alloc_objects, 8);
	assert_int_equal(counters->free_bytes, 1024);
	assert_int_equal(counters->free_objects, 4);
	assert_int_equal(profile->total.alloc_bytes, 9012);
	assert_int_equal(profile->total.alloc_bytes - profile->total.free_bytes, 3456);
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_OBJECTS]);
	assert_true(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	assert_false(profile->known[HL_VALUE_PEAK][HL_UNIT_BYTES]);
	assert_int_equal(profile->sample_bytes, 0);
	assert_int_equal(profile->warning_count, 0);
	hl_profile_free(profile);
}

static void addresses_are_those_of_calls_in_the_mapped_file(void **state)
{
	struct hl_profile *profile = read_legacy(GPERFTOOLS);
	uint32_t node = node_of(profile, "the app+0x2100;lib.so+0x5234");
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
	uint32_t module = profile->functions[frame->function].module;

	(void)state;
	assert_int_equal(frame->address, 0x5234); /* 0x7f0000001235 - 1 - start + offset */
	assert_string_equal(hl_profile_text(profile, profile->modules[module].path),
			    "/nowhere/lib.so");
	hl_profile_free(profile);
}

static void of_jemalloc_the_sum_of_all_threads_is_read(void **state)
{
	struct hl_profile *profile = read_legacy(JEMALLOC);
	const struct hl_profile_counters *counters =
		counters_of(profile, "the app+0x2100;lib.so+0x5234");

	(void)state;
	assert_int_equal(counters->alloc_objects, 15);
	assert_int_equal(counters->free_objects, 10);
	assert_int_equal(counters_of(profile, "the app+0x2200")->alloc_bytes, 2000);
	assert_int_equal(profile->total.alloc_objects - profile->total.free_objects, 7);
	assert_int_equal(profile->sample_bytes, 0); /* each one was sampled */
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	hl_profile_free(profile);
}

static void sampled_stacks_are_scaled_one_by_one(void **state)
{
	struct hl_profile *profile = read_legacy("heap_v2/1000\n"
						 "  t*: 9: 99 [0: 0]\n"
						 "@ 0x1001\n"
						 "  t*: 63212: 63212000 [0: 0]\n"
						 "@ 0x2001\n"
						 "  t*: 7: 7000000 [0: 0]\n"
						 "MAPPED_LIBRARIES:\n");

	(void)state;
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 100000);
	assert_int_equal(counters_of(profile, "0x2000")->alloc_objects, 7);
	assert_int_equal(profile->sample_bytes, 1000);
	hl_profile_free(profile);

	profile = read_legacy("heap profile: 3: 750 [3: 750] @ heap/2000\n"
			      "3: 750 [3: 750] @ 0x1001\n");
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 13);
	assert_int_equal(profile->sample_bytes, 1000);
	hl_profile_free(profile);

	profile = read_legacy("heap profile: 3: 750 [3: 750] @ heapz_v2/1000\n"
			      "63212: 63212000 [0: 0] @ 0x1001\n");
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 99999);
	hl_profile_free(profile);

	profile = read_legacy("heap profile: 3: 750 [3: 750] @ growthz\n"
			      "3: 750 [3: 750] @ 0x1001\n");
	assert_int_equal(counters_of(profile, "0x1000")->alloc_objects, 3);
	assert_int_equal(profile->sample_bytes, 0);
	hl_profile_free(profile);
}

/* What Go 1.19 wrote of a program (tests keep the lines that matter), and the figures of its pprof.
 */
#define GO_HEAP                                                             \
	"heap profile: 1009: 737728 [1059: 6062528] @ heap/8192\n"          \
	"685: 701440 [685: 701440] @ 0x4b3c25 0x4b3d85 0x437452 0x461121\n" \
	"#\t0x4b3c24\tmain.link+0x44\t\t/tmp/leak.go:25\n"                  \
	"#\t0x4b3d84\tmain.main+0x104\t\t/tmp/leak.go:32\n"                 \
	"#\t0x437451\truntime.main+0x211\t/usr/runtime/proc.go:250\n"       \
	"\n"                                                                \
	"324: 36288 [324: 36288] @ 0x4b3cd4 0x4b3cd5 0x4b3ca4 0x437452\n"   \
	"#\t0x4b3cd3\tmain.small+0x53\t\t/tmp/leak.go:14\n"                 \
	"#\t0x4b3cd4\tmain.leak+0x54\t\t/tmp/leak.go:18\n"                  \
	"#\t0x4b3ca3\tmain.main+0x23\t\t/tmp/leak.go:31\n"                  \
	"#\t0x437451\truntime.main+0x211\t/usr/runtime/proc.go:250\n"       \
	"\n"                                                                \
	"0: 0 [50: 5324800] @ 0x4b3da5 0x437452 0x461121\n"                 \
	"#\t0x4b3da4\tmain.outer+0x124\t\t/tmp/leak.go:34\n"                \
	"#\t0x4b3da4\tmain.run+0x124\t\t/tmp/leak.go:36\n"                  \
	"\n"                                                                \
	"# runtime.MemStats\n"                                              \
	"# Alloc = 4954544\n"

static void heap_texts_of_go_have_its_figures_and_its_names(void **state)
{
	struct hl_profile *profile = read_legacy(GO_HEAP);
	const struct hl_profile_counters *counters =
		counters_of(profile, "0x461120;runtime.main;main.main;main.link");
	uint32_t node = node_of(profile, "runtime.main;main.main;main.leak;main.small");
	const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];

	(void)state;
	assert_int_equal(counters->alloc_objects, 3096);
	assert_int_equal(counters->alloc_bytes, 3171078);
	assert_int_equal(counters->free_bytes, 0);
	assert_int_equal(profile->counters[node].alloc_objects, 12011);
	assert_int_equal(profile->counters[node].alloc_bytes, 1345330);
	assert_string_equal(hl_profile_text(profile, frame->file), "/tmp/leak.go");
	assert_int_equal(frame->line, 14);
	node = node_of(profile, "0x461120;runtime.main;main.run;main.outer"); /* inlined */
	assert_int_equal(profile->counters[node].alloc_objects, 50);
	assert_int_equal(profile->counters[node].free_bytes, 5324800);
	assert_true(profile->frames[profile->nodes[node].frame].inlined);
	assert_int_equal(profile->sample_bytes, 4096);
	assert_int_equal(profile->warning_count, 0);
	assert_string_equal(hl_profile_text(profile, profile->source), "go");
	hl_profile_free(profile);
}

static void short_lists_of_mappings_are_used(void **state)
{
	struct hl_profile *profile =
		read_legacy("heap profile: 3: 30 [3: 30] @ heapprofile\n"
			    "1: 10 [1: 10] @ 0x00401235\n"
			    "1: 10 [1: 10] @ 0x7f0000000011\n"
			    "1: 10 [1: 10] @ 0x7f0000020011\n"
			    "MAPPED_LIBRARIES:\n"
			    "00400000-00fcb000: /nowhere/the server\n"
			    "7f0000000000-7f0000010000: /nowhere/lib.so @4000\n"
			    "7f0000020000-7f0000030000 rw-p /nowhere/none\n");

	(void)state;
	assert_int_equal(counters_of(profile, "the server+0x1234")->alloc_bytes, 10);
	assert_int_equal(counters_of(profile, "lib.so+0x4010")->alloc_bytes, 10);
	assert_int_equal(counters_of(profile, "0x7f0000020010")->alloc_bytes, 10);
	hl_profile_free(profile);
}

static void what_was_ever_allocated_is_known_only_where_the_file_has_it(void **state)
{
	struct hl_profile *without = read_legacy("heap_v2/1\n@ 0x1001\n  t*: 1: 99 [0: 0]\n");
	struct hl_profile *repeated = read_legacy("heap profile: 1: 99 [1: 99] @ heap_v2/1\n"
						  "1: 99 [1: 99] @ 0x1001\n");
	struct hl_profile *all_left = read_legacy("heap_v2/1\n@ 0x1001\n  t*: 1: 99 [1: 99]\n");

	(void)state;
	assert_false(without->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_int_equal(without->total.alloc_bytes, 99);
	assert_int_equal(without->total.free_bytes, 0);
	assert_int_equal(without->total.free_objects, 0);
	assert_false(repeated->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_int_equal(repeated->total.alloc_bytes, 99);
	assert_true(all_left->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	hl_profile_free(without);
	hl_profile_free(repeated);
	hl_profile_free(all_left);
}

static void a_heap_file_without_mappings_is_shown_by_addresses_with_a_warning(void **state)
{
	struct hl_profile *profile = read_legacy("heap profile: 5: 101 [5: 101] @ heapprofile\n"
						 "1: 99 [1: 99] @ 0x1001 0x2001\n"
						 "2: 1 [2: 1] @\n"
						 "2: 1 [2: 1] @ 0x0\n");

	(void)state;
	assert_int_equal(counters_of(profile, "0x2000;0x1000")->alloc_bytes, 99);
	assert_int_equal(counters_of(profile, "[unknown]")->alloc_bytes, 1);
	assert_int_equal(counters_of(profile, "0x0")->alloc_bytes, 1);
	assert_non_null(strstr(only_warning(profile), "no list of mapped files"));
	hl_profile_free(profile);
}

static void stacks_that_gperftools_left_out_are_missed(void **state)
{
	struct hl_profile *profile =
		read_legacy("heap profile: 4: 1000 [8: 4000] @ heapprofile\n"
			    "4: 1000 [4: 1000] @ 0x1001\n"
			    "MAPPED_LIBRARIES:\n1000-2000 r-xp 0 0:0 1 /nowhere/app\n");

	(void)state;
	assert_string_equal(only_warning(profile),
			    "stacks are missing: the file has 100 % of what was in use and 25 % of "
			    "what was allocated (gperftools writes no more than 1 MiB)");
	hl_profile_free(profile);
}

static void frames_of_the_allocator_are_left_out(void **state)
{
	struct hl_profile *profile =
		read_legacy("heap profile: 3: 3 [3: 3] @ heapprofile\n"
			    "1: 1 [1: 1] @ 0x7f0000001001 0x7f0000001101 0x555500002001\n"
			    "1: 1 [1: 1] @ 0x7e0000001001 0x555500002001\n"
			    "1: 1 [1: 1] @ 0x7e0000001001\n"
			    "MAPPED_LIBRARIES:\n"
			    "555500000000-555500010000 r-xp 0 08:01 1 /nowhere/app\n"
			    "7e0000000000-7e0000010000 r-xp 0 08:01 2 /nowhere/libtcmalloc.so.4\n"
			    "7f0000000000-7f0000010000 r-xp 0 08:01 3 /nowhere/libjemalloc.so.2\n");

	(void)state;
	assert_int_equal(counters_of(profile, "app+0x2000")->alloc_bytes, 2);
	/* The allocator's own, with no caller: where else should it go? */
	assert_int_equal(counters_of(profile, "libtcmalloc.so.4+0x1000")->alloc_bytes, 1);
	hl_profile_free(profile);
}

static void allocators_are_known_by_function_or_library(void **state)
{
	static const char *const functions[] = {"malloc",
						"je_malloc",
						"tc_calloc",
						"tc_new",
						"__GI___libc_realloc",
						"operator new(unsigned long)",
						"operator new[](unsigned long, std::align_val_t)"};
	static const char *const others[] = {
		"",	  "xmalloc",	       "malloc_usable",		 "new",
		"je_new", "Pool::malloc(int)", "operator new_thing(int)"};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(functions); i++)
		assert_true(hl_import_values_is_allocator(functions[i], "/bin/app"));
	for (size_t i = 0; i < HL_COUNT_OF(others); i++)
		assert_false(hl_import_values_is_allocator(others[i], ""));
	assert_true(hl_import_values_is_allocator("f", "/usr/lib/libjemalloc.so.2"));
	assert_true(hl_import_values_is_allocator("f", "libtcmalloc_minimal.so.4"));
	assert_false(hl_import_values_is_allocator("f", "/libjemalloc/app"));
}

/* Somewhere in the middle of this one lies the address of a call. */
__attribute__((noinline)) static int caller_of_the_allocator(int times)
{
	int sum = 0;

	for (int i = 0; i < times; i++)
		sum = sum * 31 + rand();
	return sum;
}

/* A heap file whose only stack is this program's, from a function of ours to libc's realloc. */
static char *heap_file_of_this_program(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const char *allocator = libc ? dlsym(libc, "reallocarray") : NULL;
	const char *caller = (const char *)caller_of_the_allocator;
	FILE *maps = fopen("/proc/self/maps", "re");
	char *text = NULL, line[4096];
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(allocator);
	fprintf(out,
		"heap profile: 1: 99 [1: 99] @ heapprofile\n1: 99 [1: 99] @ %p %p\n"
		"MAPPED_LIBRARIES:\n",
		(const void *)(allocator + 1), (const void *)(caller + 4));
	while (fgets(line, sizeof(line), maps))
		fputs(line, out);
	fclose(maps);
	fclose(out);
	dlclose(libc);
	return text;
}

static void names_are_found_through_the_segments_of_mapped_files(void **state)
{
	char *text = heap_file_of_this_program();
	struct hl_profile *profile = read_legacy(text);

	(void)state;
	assert_int_equal(caller_of_the_allocator(0), 0);
	assert_int_equal(counters_of(profile, "caller_of_the_allocator")->alloc_bytes, 99);
	assert_int_equal(profile->nodes[1].end, 3); /* and of reallocarray nothing is known */
	assert_int_equal(profile->counters[2].alloc_bytes, 0);
	hl_profile_free(profile);
	free(text);
}

static void a_mapped_file_that_is_a_pipe_is_not_waited_for(void **state)
{
	char folder[] = "/tmp/heapline-test-XXXXXX", path[64], text[512];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/pipe", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	snprintf(text, sizeof(text),
		 "heap profile: 1: 9 [1: 9] @ heapprofile\n1: 9 [1: 9] @ 0x1001\n"
		 "MAPPED_LIBRARIES:\n1000-2000 r-xp 0 0:0 1 %s\n",
		 path);
	alarm(200); /* which ends the program */
	struct hl_profile *profile = read_legacy(text);
	alarm(0);
	assert_int_equal(counters_of(profile, "0x1000")->alloc_bytes, 9);
	hl_profile_free(profile);
	unlink(path);
	rmdir(folder);
}

/* As heapline's export, 'jeprof --raw' and programs that name their own stacks write it. */
#define SYMBOLIZED                                         \
	"--- symbol\n"                                     \
	"binary=app\n"                                     \
	"0x401001 leaf\n"                                  \
	"0x401002 work--inlined\n"                         \
	"0x0000000000401003 main<00000000000011d8>\n"      \
	"---\n"                                            \
	"heap profile: 3: 300 [ 5: 500] @ heapprofile\n"   \
	" 2: 200 [ 3: 300] @ 0x401001 0x401002 0x401004\n" \
	" 1: 100 [ 2: 200] @ 0x401002 0x401003\n"

static void symbolized_files_have_their_own_names(void **state)
{
	static const char jemalloc[] =
		"--- symbol\nbinary=app\n0x401001 leaf\n---\n--- heap\n"
		"heap_v2/1\n t*: 1: 9 [0: 0]\n@ 0x401002\n t*: 1: 9 [0: 0]\n";
	static const char processor[] = "--- symbol\nbinary=app\n---\n--- profile\n\1\2\3\n";
	struct hl_profile *profile = read_legacy(SYMBOLIZED);

	(void)state;
	assert_int_equal(counters_of(profile, "main;work;inlined;leaf")->alloc_objects, 3);
	assert_int_equal(counters_of(profile, "main;work;inlined")->alloc_bytes, 200);
	assert_int_equal(profile->total.alloc_bytes - profile->total.free_bytes, 300);
	assert_string_equal(hl_profile_text(profile, profile->source), "gperftools");
	assert_int_equal(profile->warning_count, 0);
	hl_profile_free(profile);
	profile = read_legacy(jemalloc);
	assert_int_equal(counters_of(profile, "leaf")->alloc_bytes, 9);
	assert_string_equal(hl_profile_text(profile, profile->source), "jemalloc");
	hl_profile_free(profile);
	must_refuse(
		&hl_importer_legacy, processor, sizeof(processor) - 1,
		"cannot read 'x': line 5 follows the names and does not begin a heap file's text; "
		"'google-pprof --raw' writes a binary form for local files, which heapline does "
		"not "
		"read: open the heap file");
}

static void growth_of_the_heap_is_not_memory_in_use(void **state)
{
	struct hl_profile *profile =
		read_legacy("heap profile: 2: 300 [ 2: 300] @ growth\n"
			    " 1: 100 [ 1: 100] @ 0x1001\n"
			    " 1: 200 [ 1: 200] @ 0x2001\n"
			    "MAPPED_LIBRARIES:\n"
			    "1000-3000 r-xp 00000000 08:01 1234    /nowhere/app\n");

	(void)state;
	assert_false(profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES]);
	assert_true(profile->known[HL_VALUE_ALLOC][HL_UNIT_BYTES]);
	assert_int_equal(profile->total.alloc_bytes, 300);
	assert_int_equal(profile->total.free_bytes, 0);
	assert_non_null(strstr(only_warning(profile), "not memory in use"));
	hl_profile_free(profile);
}

/* 3 blocks of 100 bytes lie in 4096 that tcmalloc got by one mapping; its profiler has 64 besides. */
static void mappings_of_the_allocator_are_not_counted_beside_its_blocks(void **state)
{
	static const char maps[] =
		"MAPPED_LIBRARIES:\n"
		"1000-2000 r-xp 00000000 08:01 1234    /nowhere/app\n"
		"7000-8000 r-xp 00000000 08:01 1235    /nowhere/libtcmalloc.so.4.5.10\n";
	char text[1024];

	(void)state;
	snprintf(text, sizeof(text),
		 "heap profile: 3: 300 [ 3: 300] @ heapprofile\n"
		 " 1: 4096 [ 1: 4096] @ 0x7101 0x7201 0x1001\n 1: 64 [ 1: 64] @\n"
		 " 3: 300 [ 3: 300] @ 0x1001\n%s",
		 maps);
	struct hl_profile *profile = read_legacy(text);
	assert_int_equal(profile->total.alloc_bytes, 300);
	assert_int_equal(counters_of(profile, "app+0x0")->alloc_bytes, 300);
	assert_non_null(strstr(only_warning(profile), "4160 bytes that tcmalloc got"));
	hl_profile_free(profile);
	/* What the program maps itself is beside the blocks, and the first line lacks it. */
	snprintf(text, sizeof(text),
		 "heap profile: 3: 300 [ 3: 300] @ heapprofile\n"
		 " 1: 4096 [ 1: 4096] @ 0x1101\n 3: 300 [ 3: 300] @ 0x1001\n%s",
		 maps);
	profile = read_legacy(text);
	assert_int_equal(profile->total.alloc_bytes, 4396);
	assert_non_null(strstr(only_warning(profile), "the first line has 300"));
	hl_profile_free(profile);
}

static void a_program_of_go_that_samples_nothing_is_not_scaled(void **state)
{
	struct hl_profile *profile = read_legacy("heap profile: 1: 416 [1: 416] @ heap/0\n"
						 "1: 416 [1: 416] @ 0x434da5\n"
						 "#\t0x434da4\truntime.malg+0x4\t/x/proc.go:1\n");

	(void)state;
	assert_int_equal(profile->total.alloc_bytes, 416);
	assert_int_equal(profile->total.alloc_objects, 1);
	assert_int_equal(profile->sample_bytes, 0);
	hl_profile_free(profile);
}

static void lines_that_heap_files_do_not_have_are_refused_with_their_number(void **state)
{
	static const struct {
		const char *text, *sentence;
	} files[] = {
		{"heap profile: 1: 99\n",
		 "cannot read 'x': line 1 is not the header of a heap file"},
		{"a;b 1\n", "cannot read 'x': line 1 is not the header of a heap file"},
		{"", "cannot read 'x': line 1 is not the header of a heap file"},
		{"heap profile: 1: 9 [1: 9] @ heapprofile\n\n1: 9 [1: 9] @ 0x12 what\n",
		 "cannot read 'x': line 3 is not 'N: BYTES [N: BYTES] @ ADDRESSES'"},
		{"heap profile: 1: 9 [1: 9] @ heapprofile\n1: 9 [1: 9] @ 0x12345678901234567\n",
		 "cannot read 'x': line 2 is not 'N: BYTES [N: BYTES] @ ADDRESSES'"},
		{"heap profile: 1: 9 [1: 9] @ heapprofile\n1: 9223372036854775808 [1: 9] @ 0x1\n",
		 "cannot read 'x': line 2 is not 'N: BYTES [N: BYTES] @ ADDRESSES'"},
		{"heap_v2/\n", "cannot read 'x': line 1 has no sampling interval"},
		{"heap_v2/0\n", "cannot read 'x': line 1 has no sampling interval"},
		{"heap_v2/1\n@ 0x12\n  t*: 1: 9 [1\n",
		 "cannot read 'x': line 3 is not 't*: N: BYTES [N: BYTES]'"},
		{"heap_v2/1\nwhat\n", "cannot read 'x': line 2 is not '@ ADDRESSES'"},
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(files); i++)
		must_refuse(&hl_importer_legacy, files[i].text, strlen(files[i].text),
			    files[i].sentence);
}

static void heap_files_may_end_anywhere(void **state)
{
	(void)state;
	read_every_beginning(&hl_importer_legacy, GPERFTOOLS, strlen(GPERFTOOLS));
	read_every_beginning(&hl_importer_legacy, JEMALLOC, strlen(JEMALLOC));
	read_every_beginning(&hl_importer_legacy, SYMBOLIZED, strlen(SYMBOLIZED));
}

static void every_failed_allocation_is_reported_and_leaves_nothing_behind(void **state)
{
	static const char without_maps[] = "heap_v2/1\n@ 0x1\nt*: 1: 9 [0: 0]\n";

	(void)state;
	must_survive_want_of_memory(&hl_importer_legacy, GPERFTOOLS, strlen(GPERFTOOLS));
	must_survive_want_of_memory(&hl_importer_legacy, JEMALLOC, strlen(JEMALLOC));
	must_survive_want_of_memory(&hl_importer_legacy, GO_HEAP, strlen(GO_HEAP));
	must_survive_want_of_memory(&hl_importer_legacy, SYMBOLIZED, strlen(SYMBOLIZED));
	must_survive_want_of_memory(&hl_importer_legacy, without_maps, strlen(without_maps));
}

static void heap_files_are_known_by_their_first_line(void **state)
{
	(void)state;
	must_be_taken_by(&hl_importer_legacy, GPERFTOOLS, strlen(GPERFTOOLS));
	must_be_taken_by(&hl_importer_legacy, JEMALLOC, strlen(JEMALLOC));
	must_be_taken_by(&hl_importer_legacy, GO_HEAP, strlen(GO_HEAP));
	must_be_taken_by(&hl_importer_legacy, SYMBOLIZED, strlen(SYMBOLIZED));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_counted_by_how_likely_it_was_to_sample_them),
		cmocka_unit_test(samples_without_size_or_beyond_all_numbers_do_no_harm),
		cmocka_unit_test(estimates_of_many_samplings_have_the_true_mean),
		cmocka_unit_test(stacks_of_gperftools_are_read_with_both_amounts),
		cmocka_unit_test(addresses_are_those_of_calls_in_the_mapped_file),
		cmocka_unit_test(of_jemalloc_the_sum_of_all_threads_is_read),
		cmocka_unit_test(sampled_stacks_are_scaled_one_by_one),
		cmocka_unit_test(heap_texts_of_go_have_its_figures_and_its_names),
		cmocka_unit_test(short_lists_of_mappings_are_used),
		cmocka_unit_test(what_was_ever_allocated_is_known_only_where_the_file_has_it),
		cmocka_unit_test(a_heap_file_without_mappings_is_shown_by_addresses_with_a_warning),
		cmocka_unit_test(stacks_that_gperftools_left_out_are_missed),
		cmocka_unit_test(frames_of_the_allocator_are_left_out),
		cmocka_unit_test(allocators_are_known_by_function_or_library),
		cmocka_unit_test(names_are_found_through_the_segments_of_mapped_files),
		cmocka_unit_test(a_mapped_file_that_is_a_pipe_is_not_waited_for),
		cmocka_unit_test(symbolized_files_have_their_own_names),
		cmocka_unit_test(growth_of_the_heap_is_not_memory_in_use),
		cmocka_unit_test(mappings_of_the_allocator_are_not_counted_beside_its_blocks),
		cmocka_unit_test(a_program_of_go_that_samples_nothing_is_not_scaled),
		cmocka_unit_test(lines_that_heap_files_do_not_have_are_refused_with_their_number),
		cmocka_unit_test(heap_files_may_end_anywhere),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaves_nothing_behind),
		cmocka_unit_test(heap_files_are_known_by_their_first_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
