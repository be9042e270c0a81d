/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocation plumbing: which functions are some, and that every figure follows when it is folded.
 */
#include "profile/filter.h"
#include "symbols/symbols.h"

#include "profile/builder.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fail_allocations.h"
#include "guests.h"
#include "stacks.h"

/* ---- names ---- */

static bool is_plumbing(const char *name)
{
	struct hl_plumbing plumbing;

	hl_plumbing_init(&plumbing);
	return hl_plumbing_matches(&plumbing, name);
}

static void functions_that_allocate_for_their_callers_are_plumbing(void **state)
{
	static const char *const names[] = {
		"malloc",
		"xmalloc",
		"xrealloc2",
		"xstrdup@plt",
		"xcalloc(unsigned long, unsigned long)",
		"strdup",
		"__GI___strdup",
		"__GI___getdelim",
		"__memcpy_avx512_unaligned_erms",
		"__memmove_avx_unaligned_erms",
		"__memset_avx2_unaligned_erms",
		"__memset_zva64",
		"__memcpy_chk",
		"memmove@plt",
		"operator new(unsigned long)",
		"operator new[](unsigned long, std::align_val_t)",
		"Arena::Chunk::operator new(unsigned long)",
		"(anonymous namespace)::Pool::operator new(unsigned long)",
		"std::map<int, shop::session>::operator[](int const&)",
		"std::string::_M_create(unsigned long&, unsigned long)",
		"void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(int*)",
		"shop::item* std::__do_uninit_copy<shop::item*>(shop::item*, shop::item*)",
		"decltype (f(0)) std::__invoke<shop::run(int)::{lambda(int)#1}>(int)",
		"__gnu_cxx::new_allocator<char>::allocate(unsigned long, void const*)",
		"__rust_alloc",
		"runtime.mallocgc",
		"runtime.memclrNoHeapPointers",
		"runtime.(*mcentral).grow",
		"runtime.(*mheap).alloc.func1",
		"runtime.heapBits.initSpan",
		"runtime.mapassign_faststr",
		"alloc::raw_vec::RawVec<T,A>::grow_one",
		"alloc::alloc::alloc",
		"<alloc::vec::Vec<T> as core::clone::Clone>::clone",
		"<T as alloc::slice::hack::ConvertVec>::to_vec",
		"<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec::<alloc::alloc::Global>",
		"<[u8]>::to_vec",
		("<<alloc::boxed::Box<str> as core::convert::From<&str>>::from as "
		 "core::ops::Fn>::call"),
		"hashbrown::raw::RawTable<T,A>::reserve_rehash",
		"je_malloc_default",
		"mi_heap_zalloc_aligned",
		"tcmalloc::allocate_full_malloc_oom(unsigned long)",
		"MmapSysAllocator::Alloc(unsigned long, unsigned long*, unsigned long)",
		"scudo_malloc",
		"rpcalloc",
		"Perl_safesysmalloc",
		"ngx_palloc",
		"ngx_alloc",
		"g_malloc0_n",
		"g_slice_alloc",
		"zmalloc_usable",
		"CRYPTO_zalloc",
		"sqlite3MallocZero",
		"runtime.mallocgc",
		"my_malloc",
		"alloc_root",
		"Query_arena::calloc(unsigned long)",
		"__gnat_malloc",
		"PL_malloc_atomic",
		"CMEM_$$_CGETMEM$QWORD$$POINTER",
		"alloc0Impl__system_1727",
		"monoeg_malloc",
		"caml_alloc_for_heap",
		"core.memory.pureMalloc(ulong)",
		"SbrkSysAllocator::Alloc(unsigned long, unsigned long*, unsigned long)",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!is_plumbing(names[i]))
			fail_msg("'%s' is plumbing", names[i]);
}

static void functions_of_guests_that_allocate_are_plumbing(void **state)
{
	(void)state;
	needs_guest("Lua");
	needs_guest("PHP");
	needs_guest("Python");
	assert_true(is_plumbing("__zend_malloc"));
	assert_true(is_plumbing("_emalloc"));
	assert_true(is_plumbing("_emalloc_large"));
	assert_true(is_plumbing("PyMem_RawMalloc"));
	assert_true(is_plumbing("PyObject_Malloc"));
	assert_true(is_plumbing("_PyObject_Malloc"));
	assert_true(is_plumbing("luaC_newobjdt"));
	assert_false(is_plumbing("lua_call"));
}

static void functions_of_programs_are_none(void **state)
{
	static const char *const names[] = {
		"",
		"main",
		"mallocate",
		"__GI_mallocate",
		"strdupe",
		"my_xmalloc",
		"handle_request(std::map<int, std::string>&, std::string const&)",
		"std_read",
		"std::vector<int, std::allocator<int> > make<int>(int)",
		"std::string shop::describe<shop::item>(shop::item const&)",
		"unsigned long shop::count<std::string>(std::string const&)",
		"shop::operator==(shop::item const&, shop::item const&)",
		"bool shop::operator< <int>(std::string const&, int)",
		"shop::item::operator std::string() const",
		("shop::run(std::string const&)::{lambda(std::string)#1}::operator()(std::string) "
		 "const"),
		"decltype (f(0)) shop::call<int>(int)",
		"(anonymous namespace)::parse(std::string)",
		"alloc::shop::run",
		"core::Server::run",
		"<shop::Item as core::clone::Clone>::clone",
		"<u8 as shop::Price>::of",
		"<[u8] as shop::Price>::of",
		"<shop::Item<alloc::string::String>>::new",
		"core::shop::run",
		"PyDict_New",
		"_PyEval_EvalFrameDefault",
		"ngx_http_process_request",
		"operators",
		"renewed new",
		"libstdc++.so.6+0xa5780",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_plumbing(names[i]))
			fail_msg("'%s' is not a plumbing", names[i]);
}

/* ---- folding ---- */

/*
 * main (1)
 *   handle (2)
 *     std::map::operator[] (4)
 *       operator new (8)
 *   std::for_each (16)
 *     visit (32)
 *       xmalloc (64)
 *     operator new (128)
 * std::thread (256)
 *   operator new (512)
 * in parentheses the bytes allocated there; powers of two, so that a sum says of what it is
 */
static const struct {
	uint32_t parent; /* index of the row, from 1; 0: the root */
	const char *name;
} sample[] = {
	{0, "main"},
	{1, "handle"},
	{2, "std::map<int, int>::operator[](int const&)"},
	{3, "operator new(unsigned long)"},
	{1, "void std::for_each<int*>(int*)"},
	{5, "visit"},
	{6, "xmalloc"},
	{5, "operator new(unsigned long)"},
	{0, "std::thread::thread()"},
	{9, "operator new(unsigned long)"},
};

#define SAMPLE_COUNT (sizeof(sample) / sizeof(sample[0]))
#define EVERYTHING   1023

static struct hl_profile *make_profile(uint32_t ids[SAMPLE_COUNT + 1])
{
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t *final_ids;

	assert_int_equal(hl_builder_init(&builder), 0);
	ids[0] = 0;
	for (size_t i = 0; i < SAMPLE_COUNT; i++) {
		const struct hl_symbols_frame symbol = {
			.function = sample[i].name, .function_file = "", .file = ""};
		uint32_t frame;
		assert_int_equal(hl_builder_frame(&builder, &symbol, 0, 0, &frame), 0);
		assert_int_equal(
			hl_builder_child(&builder, ids[sample[i].parent], frame, &ids[i + 1]), 0);
	}
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	profile->rows = calloc(SAMPLE_COUNT, sizeof(*profile->rows));
	profile->sizes = calloc(SAMPLE_COUNT, sizeof(*profile->sizes));
	profile->threads = calloc(1, sizeof(*profile->threads));
	profile->base = calloc(profile->node_count, sizeof(*profile->base));
	profile->row_count = profile->size_count = SAMPLE_COUNT;
	profile->thread_count = 1;
	for (size_t i = 0; i < SAMPLE_COUNT; i++) {
		uint32_t node = ids[i + 1] = final_ids[ids[i + 1]];
		profile->counters[node].alloc_bytes = 1 << i;
		profile->base[node].alloc_bytes = 1000 << i;
		profile->rows[i] = (struct hl_profile_row){node, 0, profile->counters[node]};
		profile->sizes[i] =
			(struct hl_profile_size){.node = node, .counters = profile->counters[node]};
		profile->total.alloc_bytes += 1 << i;
		profile->base_total.alloc_bytes += 1000 << i;
	}
	profile->threads[0].total = profile->total;
	free(final_ids);
	hl_builder_release(&builder);
	return profile;
}

/* The node at ${path}, which has ${bytes} in each of its figures. */
static uint32_t check_node(const struct hl_profile *profile, const char *path, int64_t bytes)
{
	int64_t rows = 0, sizes = 0;
	char found[256] = "";
	uint32_t node = 0;

	while (strcmp(found, path) != 0 && ++node < profile->node_count)
		path_of(profile, node, found, sizeof(found));
	if (node == profile->node_count)
		fail_msg("no '%s'", path);
	for (size_t i = 0; i < profile->row_count; i++)
		rows += profile->rows[i].node == node ? profile->rows[i].counters.alloc_bytes : 0;
	for (size_t i = 0; i < profile->size_count; i++)
		sizes +=
			profile->sizes[i].node == node ? profile->sizes[i].counters.alloc_bytes : 0;
	assert_int_equal(profile->counters[node].alloc_bytes, bytes);
	assert_int_equal(profile->base[node].alloc_bytes, 1000 * bytes);
	assert_int_equal(rows, bytes);
	assert_int_equal(sizes, bytes);
	return node;
}

static void runs_at_leaves_are_folded_and_no_others(void **state)
{
	uint32_t ids[SAMPLE_COUNT + 1];
	struct hl_profile *profile = make_profile(ids);
	const struct hl_node_ids follow = {ids, SAMPLE_COUNT + 1};

	(void)state;
	ids[0] = HL_NODE_LEFT_OUT;
	assert_int_equal(hl_plumbing_fold(profile, NULL, &follow), 0);
	assert_true(hl_profile_is_valid(profile));
	assert_true(profile->plumbing_folded);
	assert_int_equal(profile->node_count, 1 + 5);
	uint32_t top = check_node(profile, "main", 1 + 16 + 128);
	uint32_t handle = check_node(profile, "main;handle", 2 + 4 + 8);
	check_node(profile, "main;void std::for_each<int*>(int*)", 0);
	check_node(profile, "main;void std::for_each<int*>(int*);visit", 32 + 64);
	uint32_t thread = check_node(profile, "std::thread::thread()", 256 + 512);
	assert_int_equal(profile->total.alloc_bytes, EVERYTHING);
	assert_int_equal(profile->base_total.alloc_bytes, 1000 * EVERYTHING);
	assert_int_equal(profile->threads[0].total.alloc_bytes, EVERYTHING);
	assert_int_equal(ids[0], HL_NODE_LEFT_OUT);
	assert_int_equal(ids[4], handle);
	assert_int_equal(ids[8], top);
	assert_int_equal(ids[10], thread);
	hl_profile_free(profile);
}

static void frames_of_the_recorder_are_part_of_a_run(void **state)
{
	static const struct stack stacks[] = {
		{"main;grow;g_realloc;libheapline.so.0.1.0+0x364!/lib/libheapline.so.0.1.0;"
		 "g_try_realloc",
		 100, 1},
		{NULL, 0, 0}};
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	char path[256];

	(void)state;
	assert_int_equal(hl_plumbing_fold(profile, NULL, NULL), 0);
	assert_int_equal(profile->node_count, 1 + 2);
	path_of(profile, 2, path, sizeof(path));
	assert_string_equal(path, "main;grow");
	assert_int_equal(profile->counters[2].alloc_bytes, 100);
	hl_profile_free(profile);
}

static void hidden_frames_are_part_of_a_run(void **state)
{
	const struct hl_filter filter = {.hide = {"^(visit|handle)$"}, .fold_plumbing = true};
	uint32_t ids[SAMPLE_COUNT + 1];
	struct hl_profile *profile = make_profile(ids);
	const struct hl_node_ids follow = {ids, SAMPLE_COUNT + 1};

	(void)state;
	assert_int_equal(hl_filter_apply(&filter, profile, &follow, NULL), 0);
	assert_int_equal(profile->node_count, 1 + 2);
	assert_int_equal(ids[7], check_node(profile, "main", 255));
	hl_profile_free(profile);
}

static void expressions_match_no_frame_that_is_folded(void **state)
{
	const struct hl_filter filters[] = {
		{.focus = {"operator new|xmalloc"}, .fold_plumbing = true},
		{.focus = {"std::for_each"}, .fold_plumbing = true},
		{.ignore = {"operator new|xmalloc"}, .fold_plumbing = true},
	};
	static const int64_t left[] = {0, 32 + 64, EVERYTHING};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(filters); i++) {
		uint32_t ids[SAMPLE_COUNT + 1];
		struct hl_profile *profile = make_profile(ids);
		assert_int_equal(hl_filter_apply(&filters[i], profile, NULL, NULL), 0);
		assert_int_equal(profile->total.alloc_bytes, left[i]);
		hl_profile_free(profile);
	}
}

static void must_fold_to(const struct stack *stacks, const struct hl_filter *filter,
			 const char *last)
{
	struct hl_profile *profile = profile_of("x.hl", stacks, 0x1000);
	char path[256];

	assert_int_equal(hl_filter_apply(filter, profile, NULL, NULL), 0);
	path_of(profile, (uint32_t)profile->node_count - 1, path, sizeof(path));
	assert_string_equal(path, last);
	hl_profile_free(profile);
}

/* Of a stripped program the entry points of its allocator have names, its static functions have none. */
static void functions_without_a_name_that_plumbing_of_their_file_calls_are_plumbing(void **state)
{
	static const struct hl_filter filter = {.fold_plumbing = true};
	static const struct stack called[] = {{"main;parse;palloc;app+0x5c77;app+0x5d00", 100, 1},
					      {NULL, 0, 0}};
	static const struct stack program[] = {{"main;app+0x5c77", 100, 1}, {NULL, 0, 0}};
	static const struct stack other_file[] = {{"main;palloc;lib.so+0x5c77!/lib/lib.so", 100, 1},
						  {NULL, 0, 0}};

	(void)state;
	must_fold_to(called, &filter, "main;parse");
	must_fold_to(program, &filter, "main;app+0x5c77");
	must_fold_to(other_file, &filter, "main;palloc;lib.so+0x5c77");
}

static void libffi_calls_for_somebody_else(void **state)
{
	static const struct hl_filter filter = {.fold_plumbing = true};
	static const struct stack stacks[] = {
		{"main;call;libffi.so.8+0x6f28!/lib/libffi.so.8.1.2;ffi_call!/lib/libffi.so.8.1.2",
		 100, 1},
		{NULL, 0, 0}};

	(void)state;
	must_fold_to(stacks, &filter, "main;call");
}

static void wrappers_of_the_users_own_fold_on_request(void **state)
{
	static const struct hl_filter filter = {.fold_plumbing = true,
						.plumbing_also = {"^pool_(get|take)$", "^none$"}};
	static const struct hl_filter bad = {.fold_plumbing = true, .plumbing_also = {"("}};
	static const struct stack stacks[] = {{"main;parse;pool_take;malloc", 100, 1},
					      {NULL, 0, 0}};
	struct hl_error err = {0};

	(void)state;
	must_fold_to(stacks, &filter, "main;parse");
	assert_int_equal(hl_filter_check(&bad, &err), -EINVAL);
	assert_non_null(strstr(err.text, "of --plumbing-also"));
}

static void what_an_expression_left_out_is_followed_nowhere(void **state)
{
	const struct hl_filter filter = {.ignore = {"^visit$"}, .fold_plumbing = true};
	uint32_t ids[SAMPLE_COUNT + 1];
	struct hl_profile *profile = make_profile(ids);
	const struct hl_node_ids follow = {ids, SAMPLE_COUNT + 1};

	(void)state;
	assert_int_equal(hl_filter_apply(&filter, profile, &follow, NULL), 0);
	assert_int_equal(ids[7], HL_NODE_LEFT_OUT);
	assert_int_equal(ids[8], check_node(profile, "main", 1 + 16 + 128));
	hl_profile_free(profile);
}

static void a_profile_without_plumbing_stays(void **state)
{
	const struct hl_filter filter = {.hide = {"std::|operator new|xmalloc"}};
	uint32_t ids[SAMPLE_COUNT + 1];
	struct hl_profile *profile = make_profile(ids);

	(void)state;
	assert_int_equal(hl_filter_apply(&filter, profile, NULL, NULL), 0);
	assert_int_equal(hl_plumbing_fold(profile, NULL, NULL), 0);
	assert_false(profile->plumbing_folded);
	check_node(profile, "main;visit", 32 + 64);
	hl_profile_free(profile);
}

static void want_of_memory_changes_nothing(void **state)
{
	uint32_t ids[SAMPLE_COUNT + 1];
	struct hl_profile *profile = make_profile(ids);
	long failures = 0;

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, hl_plumbing_fold(profile, NULL, NULL))
	{
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(profile->node_count, SAMPLE_COUNT + 1);
		assert_false(profile->plumbing_folded);
		failures++;
	}
	assert_true(failures >= 5);
	assert_int_equal(profile->node_count, 1 + 5);
	hl_profile_free(profile);
}

static void skynet_runs_services(void **state)
{
	(void)state;
	needs_guest("skynet");
	assert_true(hl_plumbing_runs_services("clone3", "/lib/libc.so.6", ""));
	assert_true(hl_plumbing_runs_services("__GI___clone3", "/lib/libc.so.6", ""));
	assert_true(
		hl_plumbing_runs_services("skynet_context_message_dispatch", "/opt/skynet", ""));
	assert_true(hl_plumbing_runs_services("_cb", "./luaclib/skynet.so", "lua-skynet.c"));
	assert_true(hl_plumbing_runs_services("function <skynet.lua:374>", "lua",
					      "./lualib/skynet.lua"));
	assert_false(hl_plumbing_runs_services("_cb", "./cservice/gate.so", "service_gate.c"));
	assert_false(hl_plumbing_runs_services("thread_socket", "/opt/skynet", "skynet_start.c"));
	assert_false(
		hl_plumbing_runs_services("function <game.lua:2>", "lua", "./service/game.lua"));
	assert_false(hl_plumbing_runs_services("main", "", ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_that_allocate_for_their_callers_are_plumbing),
		cmocka_unit_test(functions_of_guests_that_allocate_are_plumbing),
		cmocka_unit_test(functions_of_programs_are_none),
		cmocka_unit_test(runs_at_leaves_are_folded_and_no_others),
		cmocka_unit_test(frames_of_the_recorder_are_part_of_a_run),
		cmocka_unit_test(hidden_frames_are_part_of_a_run),
		cmocka_unit_test(expressions_match_no_frame_that_is_folded),
		cmocka_unit_test(
			functions_without_a_name_that_plumbing_of_their_file_calls_are_plumbing),
		cmocka_unit_test(libffi_calls_for_somebody_else),
		cmocka_unit_test(wrappers_of_the_users_own_fold_on_request),
		cmocka_unit_test(what_an_expression_left_out_is_followed_nowhere),
		cmocka_unit_test(a_profile_without_plumbing_stays),
		cmocka_unit_test(want_of_memory_changes_nothing),
		cmocka_unit_test(skynet_runs_services),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
