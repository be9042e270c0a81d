/* SPDX-License-Identifier: BSD-2-Clause */
/* Files for pprof: what is written is what the format says, and adds up as heapline's own views. */
#include "fail_allocations.h"
#include "pprof_file.h"

#include "profile/builder.h"
#include "profile/calltree.h"
#include "profile/filter.h"
#include "view/view.h"

#include <errno.h>

#define NOT_UTF8 "odd\xff"

/* ---- files ---- */

/* What the view writes of ${profile}, and what it says in ${ret_result}. */
static struct pprof_file pprof_write(const struct hl_profile *profile, enum hl_value value,
				     int *ret_result)
{
	struct hl_view_options options = {.value = value, .notes = fopen("/dev/null", "w")};
	struct hl_error err = {0};
	struct pprof_file file;

	options.out = open_memstream((char **)&file.bytes, &file.size);
	*ret_result = hl_pprof_view(profile, &options, &err);
	fclose(options.out);
	fclose(options.notes);
	assert_true((*ret_result < 0) == (err.text[0] != '\0'));
	return file;
}

static struct pprof_file pprof_of(const struct hl_profile *profile)
{
	int r;
	struct pprof_file file = pprof_write(profile, HL_VALUE_PEAK, &r);

	assert_int_equal(r, 0);
	return file;
}

/* All of ${file} as one message; to be freed by pprof__profile__free_unpacked(). */
static Pprof__Profile *pprof_unpack(const struct pprof_file *file)
{
	uint8_t *inflated;
	size_t size;

	assert_int_equal(
		hl_gzip_inflate(file->bytes, file->size, "x", SIZE_MAX / 2, &inflated, &size, NULL),
		0);
	Pprof__Profile *message = pprof__profile__unpack(NULL, size, inflated);
	assert_non_null(message);
	free(inflated);
	return message;
}

/* ---- a profile made by hand: main -> outer, into which inner is inlined, -> a recursion ---- */

struct place {
	const char *function, *file;
	uint32_t line;
	uint64_t address;
	const char *module; /* NULL: none */
	bool inlined;
};

static const struct place main_place = {"main", "/src/app.c", 12, 0x1234, "/bin/app", false};
static const struct place outer_place = {"outer", "/src/app.c", 20, 0x1300, "/bin/app", false};
static const struct place inner_place = {"inner", "/src/app.h", 5, 0x1300, "/bin/app", true};
static const struct place inmost_place = {"inmost", "/src/app.h", 9, 0x1300, "/bin/app", true};
static const struct place odd_place = {NOT_UTF8, "", 0, 0x1310, "/lib/libodd.so", false};
static const struct place wild_place = {"0xdead0000", "", 0, 0xdead0000, NULL, false};

static uint32_t child(struct hl_builder *builder, uint32_t parent, const struct place *place)
{
	const struct hl_symbols_frame symbol = {
		.function = place->function,
		.function_file = place->file,
		.function_line = place->line / 10 * 10,
		.file = place->file,
		.line = place->line,
		.inlined = place->inlined,
	};
	uint32_t module = 0, frame, node;

	if (place->module) {
		assert_int_equal(hl_builder_module(builder, place->module,
						   (const uint8_t *)"\xab\xcd", 2, NULL, &module),
				 0);
		builder->profile->modules[module].used = true;
	}
	assert_int_equal(hl_builder_frame(builder, &symbol, module, place->address, &frame), 0);
	assert_int_equal(hl_builder_child(builder, parent, frame, &node), 0);
	return node;
}

static void add(struct hl_profile *profile, uint32_t node, struct hl_profile_counters counters)
{
	hl_profile_counters_add(&profile->counters[node], &counters);
	hl_profile_counters_add(&profile->total, &counters);
}

/* Primes, so that a figure says where it comes from. */
static void add_figures(struct hl_profile *profile, const uint32_t *final_ids,
			const uint32_t *nodes)
{
	add(profile, final_ids[nodes[0]],
	    (struct hl_profile_counters){.alloc_bytes = 1009, .alloc_objects = 11});
	add(profile, final_ids[nodes[1]],
	    (struct hl_profile_counters){.alloc_bytes = 503,
					 .alloc_objects = 7,
					 .free_bytes = 101,
					 .free_objects = 3,
					 .peak_bytes = 211,
					 .peak_objects = 5,
					 .temporary_objects = 2,
					 .slack_bytes = 13});
	add(profile, final_ids[nodes[2]],
	    (struct hl_profile_counters){.alloc_bytes = 70001,
					 .alloc_objects = 71,
					 .free_bytes = 70001,
					 .free_objects = 71,
					 .peak_bytes = 30011,
					 .peak_objects = 31});
	add(profile, final_ids[0],
	    (struct hl_profile_counters){.alloc_bytes = 17, .alloc_objects = 1});
}

static struct hl_profile *make_profile(void)
{
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t nodes[3], *final_ids;

	assert_int_equal(hl_builder_init(&builder), 0);
	uint32_t top = child(&builder, 0, &main_place);
	uint32_t outer = child(&builder, top, &outer_place);
	uint32_t inner = child(&builder, outer, &inner_place);
	nodes[0] = outer;
	nodes[1] = child(&builder, inner, &inmost_place);
	nodes[2] = child(&builder, child(&builder, inner, &odd_place), &odd_place);
	child(&builder, top, &wild_place); /* without figures */
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	add_figures(profile, final_ids, nodes);
	hl_profile_know_all(profile);
	assert_int_equal(hl_strings_intern(&profile->strings, "t.hl", &profile->name), 0);
	assert_int_equal(hl_strings_intern(&profile->strings, "app -x", &profile->command), 0);
	assert_int_equal(hl_strings_intern(&profile->strings, "mem-fast", &profile->mode), 0);
	profile->start_realtime_ns = UINT64_C(1767225600000000001);
	profile->duration_ns = UINT64_C(2500000000);
	profile->complete = true;
	profile->recorded_process_count = 1;
	free(final_ids);
	hl_builder_release(&builder);
	assert_true(hl_profile_is_valid(profile));
	return profile;
}

/* ---- what is in a message ---- */

static const char *text(const Pprof__Profile *message, int64_t index)
{
	assert_in_range(index, 0, message->n_string_table - 1);
	return message->string_table[index];
}

static const Pprof__Function *function_of(const Pprof__Profile *message, uint64_t id)
{
	for (size_t i = 0; i < message->n_function; i++)
		if (message->function[i]->id == id)
			return message->function[i];
	fail_msg("no function %d", (int)id);
	return NULL;
}

static const Pprof__Location *location_of(const Pprof__Profile *message, uint64_t id)
{
	for (size_t i = 0; i < message->n_location; i++)
		if (message->location[i]->id == id)
			return message->location[i];
	fail_msg("no location %d", (int)id);
	return NULL;
}

static const char *line_name(const Pprof__Profile *message, const Pprof__Line *line)
{
	return text(message, function_of(message, line->function_id)->name);
}

/* "inner<outer main": functions of ${sample} from the leaf, '<' after what is inlined. */
static const char *stack_text(const Pprof__Profile *message, const Pprof__Sample *sample)
{
	static char buffer[256];
	size_t used = 0;

	buffer[0] = '\0';
	for (size_t i = 0; i < sample->n_location_id; i++) {
		const Pprof__Location *location = location_of(message, sample->location_id[i]);
		for (size_t j = 0; j < location->n_line; j++)
			used += (size_t)snprintf(buffer + used, sizeof(buffer) - used, "%s%s",
						 j   ? "<"
						 : i ? " "
						     : "",
						 line_name(message, location->line[j]));
	}
	return buffer;
}

/* The figures of the named function in column ${type}, as pprof adds them up. */
static struct hl_aggregate_figures sum_up(const Pprof__Profile *message, const char *name,
					  size_t type)
{
	struct hl_aggregate_figures sums = {0}; /* bytes: flat, objects: cum */

	for (size_t i = 0; i < message->n_sample; i++) {
		const Pprof__Sample *sample = message->sample[i];
		bool is_leaf = true, is_in = false;
		for (size_t j = 0; j < sample->n_location_id; j++) {
			const Pprof__Location *location =
				location_of(message, sample->location_id[j]);
			for (size_t k = 0; k < location->n_line; k++, is_leaf = false) {
				if (strcmp(line_name(message, location->line[k]), name) != 0)
					continue;
				sums.bytes += is_leaf ? sample->value[type] : 0;
				is_in = true;
			}
		}
		sums.objects += is_in ? sample->value[type] : 0;
	}
	return sums;
}

/* ---- export ---- */

static void the_types_of_go_come_first_and_the_chosen_one_is_the_default(void **state)
{
	static const char *const expected[] = {
		"alloc_objects count", "alloc_space bytes",	  "inuse_objects count",
		"inuse_space bytes",   "temporary_objects count", "slack_space bytes",
		"peak_objects count",  "peak_space bytes",
	};
	struct hl_profile *profile = make_profile();
	char name[64];
	int r;

	(void)state;
	struct pprof_file file = pprof_write(profile, HL_VALUE_INUSE, &r);
	Pprof__Profile *message = pprof_unpack(&file);
	assert_string_equal(text(message, 0), "");
	assert_int_equal(message->n_sample_type, HL_COUNT_OF(expected));
	for (size_t i = 0; i < HL_COUNT_OF(expected); i++) {
		snprintf(name, sizeof(name), "%s %s", text(message, message->sample_type[i]->type),
			 text(message, message->sample_type[i]->unit));
		assert_string_equal(name, expected[i]);
	}
	assert_string_equal(text(message, message->default_sample_type), "inuse_space");
	pprof__profile__free_unpacked(message, NULL);
	free(file.bytes);
	hl_profile_free(profile);
}

static void what_is_not_known_is_no_type(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	memset(profile->known, 0, sizeof(profile->known));
	profile->known[HL_VALUE_INUSE][HL_UNIT_BYTES] = true;
	struct pprof_file file = pprof_of(profile);
	Pprof__Profile *message = pprof_unpack(&file);
	assert_int_equal(message->n_sample_type, 1);
	assert_int_equal(message->sample[0]->n_value, 1);
	pprof__profile__free_unpacked(message, NULL);
	free(file.bytes);
	hl_profile_free(profile);
}

static void stacks_begin_at_the_leaf_and_inlined_functions_share_a_location(void **state)
{
	struct hl_profile *profile = make_profile();
	struct pprof_file file = pprof_of(profile);
	Pprof__Profile *message = pprof_unpack(&file);

	(void)state;
	assert_int_equal(message->n_sample, 4);
	assert_string_equal(stack_text(message, message->sample[0]), "");
	assert_string_equal(stack_text(message, message->sample[1]), "outer main");
	assert_string_equal(stack_text(message, message->sample[2]), "inmost<inner<outer main");
	assert_string_equal(stack_text(message, message->sample[3]),
			    "odd\xef\xbf\xbd odd\xef\xbf\xbd inner<outer main");
	assert_int_equal(message->n_location, 5); /* not that of a stack without figures */
	pprof__profile__free_unpacked(message, NULL);
	free(file.bytes);
	hl_profile_free(profile);
}

static void a_hidden_frame_takes_nothing_else_out_of_its_location(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	assert_int_equal(
		hl_filter_apply(&(struct hl_filter){.hide = {"^outer$"}}, profile, NULL, NULL), 0);
	struct pprof_file file = pprof_of(profile);
	Pprof__Profile *message = pprof_unpack(&file);
	assert_string_equal(stack_text(message, message->sample[2]), "inmost<inner main");
	pprof__profile__free_unpacked(message, NULL);
	free(file.bytes);
	hl_profile_free(profile);
}

static void addresses_lie_in_their_mapping_and_mappings_apart(void **state)
{
	struct hl_profile *profile = make_profile();
	struct pprof_file file = pprof_of(profile);
	Pprof__Profile *message = pprof_unpack(&file);

	(void)state;
	assert_int_equal(message->n_mapping, 2);
	const Pprof__Mapping *app = message->mapping[0], *odd = message->mapping[1];
	assert_string_equal(text(message, app->filename), "/bin/app");
	assert_string_equal(text(message, app->build_id), "abcd");
	assert_true(app->memory_limit <= odd->memory_start);
	for (size_t i = 0; i < message->n_location; i++) {
		const Pprof__Location *location = message->location[i];
		const Pprof__Mapping *mapping = location->mapping_id == app->id ? app : odd;
		assert_int_equal(location->mapping_id, mapping->id);
		assert_in_range(location->address, mapping->memory_start,
				mapping->memory_limit - 1);
		assert_in_range(location->address - mapping->memory_start + mapping->file_offset,
				0x1234, 0x1310);
	}
	pprof__profile__free_unpacked(message, NULL);
	free(file.bytes);
	hl_profile_free(profile);
}

static void functions_add_up_as_in_top(void **state)
{
	static const enum hl_value values[] = {HL_VALUE_ALLOC, HL_VALUE_INUSE};
	struct hl_profile *profile = make_profile();
	struct pprof_file file = pprof_of(profile);
	Pprof__Profile *message = pprof_unpack(&file);

	(void)state;
	for (size_t v = 0; v < HL_COUNT_OF(values); v++) {
		struct hl_aggregate sums;
		assert_int_equal(hl_aggregate_init(&sums, profile, values[v], NULL, 0), 0);
		for (uint32_t i = 1; i < profile->function_count; i++) {
			const char *name = hl_profile_text(profile, profile->functions[i].name);
			if (!strcmp(name, NOT_UTF8))
				name = "odd\xef\xbf\xbd";
			struct hl_aggregate_figures objects = sum_up(message, name, 2 * v);
			struct hl_aggregate_figures bytes = sum_up(message, name, 2 * v + 1);
			assert_int_equal(bytes.bytes, sums.flat[i].bytes);
			assert_int_equal(bytes.objects, sums.cum[i].bytes);
			assert_int_equal(objects.bytes, sums.flat[i].objects);
			assert_int_equal(objects.objects, sums.cum[i].objects);
		}
		hl_aggregate_release(&sums);
	}
	pprof__profile__free_unpacked(message, NULL);
	free(file.bytes);
	hl_profile_free(profile);
}

static void lines_of_a_function_keep_their_files(void **state)
{
	static const struct place included = {"main", "/src/lines.inc", 3,
					      0x1240, "/bin/app",	false};
	struct hl_builder builder;
	struct hl_profile *profile;
	uint32_t *final_ids;

	(void)state;
	assert_int_equal(hl_builder_init(&builder), 0);
	uint32_t nodes[] = {child(&builder, 0, &main_place), child(&builder, 0, &included)};
	assert_int_equal(hl_builder_finish(&builder, &final_ids, &profile), 0);
	for (size_t i = 0; i < HL_COUNT_OF(nodes); i++)
		add(profile, final_ids[nodes[i]],
		    (struct hl_profile_counters){.alloc_bytes = 7, .alloc_objects = 1});
	hl_profile_know_all(profile);
	struct pprof_file file = pprof_of(profile);
	Pprof__Profile *message = pprof_unpack(&file);
	assert_int_equal(message->n_function, 2);
	for (size_t i = 0; i < message->n_location; i++) {
		const Pprof__Line *line = message->location[i]->line[0];
		assert_string_equal(line_name(message, line), "main");
		assert_string_equal(
			text(message, function_of(message, line->function_id)->filename),
			line->line == 12 ? "/src/app.c" : "/src/lines.inc");
	}
	struct hl_profile *again = profile_of_pprof(&file);
	assert_int_equal(again->function_count, 2); /* one of them stands for none */
	for (size_t i = 1; i < again->frame_count; i++)
		assert_string_equal(hl_profile_text(again, again->frames[i].file),
				    again->frames[i].line == 12 ? "/src/app.c" : "/src/lines.inc");
	pprof__profile__free_unpacked(message, NULL);
	free(final_ids);
	free(file.bytes);
	hl_builder_release(&builder);
	hl_profile_free(profile);
	hl_profile_free(again);
}

static void equal_profiles_give_equal_bytes_without_a_time_in_them(void **state)
{
	struct hl_profile *profile = make_profile();
	struct pprof_file a = pprof_of(profile), b = pprof_of(profile);

	(void)state;
	assert_int_equal(a.size, b.size);
	assert_memory_equal(a.bytes, b.bytes, a.size);
	assert_memory_equal(a.bytes + 3, "\0\0\0\0\0", 5); /* no name, time 0 */
	free(a.bytes);
	free(b.bytes);
	hl_profile_free(profile);
}

/* ---- and back ---- */

static void assert_frames_equal(const struct hl_profile *a, const struct hl_profile_frame *x,
				const struct hl_profile *b, const struct hl_profile_frame *y)
{
	const struct hl_profile_function *f = &a->functions[x->function];
	const struct hl_profile_function *g = &b->functions[y->function];

	assert_int_equal(x->address, y->address);
	assert_int_equal(x->line, y->line);
	assert_int_equal(x->inlined, y->inlined);
	assert_string_equal(hl_profile_text(a, x->file), hl_profile_text(b, y->file));
	assert_string_equal(hl_profile_text(a, f->file), hl_profile_text(b, g->file));
	assert_int_equal(f->line, g->line);
	assert_string_equal(hl_profile_text(a, a->modules[f->module].path),
			    hl_profile_text(b, b->modules[g->module].path));
}

/* Of the nodes of ${b}; ${a} may have one more, without figures, behind them. */
static void assert_figures_equal(const struct hl_profile *a, const struct hl_profile *b)
{
	assert_memory_equal(&a->total, &b->total, sizeof(a->total));
	assert_memory_equal(a->known, b->known, sizeof(a->known));
	for (size_t i = 0; i < b->node_count; i++) {
		assert_int_equal(a->nodes[i].parent, b->nodes[i].parent);
		assert_memory_equal(&a->counters[i], &b->counters[i], sizeof(a->counters[i]));
		if (i)
			assert_frames_equal(a, &a->frames[a->nodes[i].frame], b,
					    &b->frames[b->nodes[i].frame]);
	}
}

static void what_was_exported_is_read_again_with_all_its_figures(void **state)
{
	struct hl_profile *profile = make_profile();

	(void)state;
	profile->lost.events = 3;
	profile->sample_bytes = 524288;
	struct pprof_file first = pprof_of(profile);
	struct hl_profile *again = profile_of_pprof(&first);
	struct pprof_file second = pprof_of(again);
	struct hl_profile *once_more = profile_of_pprof(&second);
	assert_int_equal(again->node_count, profile->node_count - 1);
	assert_figures_equal(profile, again);
	assert_int_equal(once_more->node_count, again->node_count);
	assert_figures_equal(again, once_more);
	assert_string_equal(hl_profile_text(again, again->command), "app -x");
	assert_string_equal(hl_profile_text(again, again->mode), "mem-fast");
	assert_int_equal(again->sample_bytes, 524288);
	assert_int_equal(again->start_realtime_ns, profile->start_realtime_ns);
	assert_int_equal(again->duration_ns, profile->duration_ns);
	assert_int_equal(again->modules[1].build_id_bytes, 2);
	assert_int_equal(once_more->warning_count, 1);
	assert_non_null(strstr(hl_profile_text(once_more, once_more->warnings[0]), "LOST: 3"));
	free(first.bytes);
	free(second.bytes);
	hl_profile_free(profile);
	hl_profile_free(again);
	hl_profile_free(once_more);
}

/* ---- what goes wrong ---- */

static void a_full_device_is_an_error(void **state)
{
	struct hl_profile *profile = make_profile();
	struct hl_view_options options = {.out = fopen("/dev/full", "w"), .notes = stderr};
	struct hl_error err = {0};

	(void)state;
	setvbuf(options.out, NULL, _IONBF, 0);
	assert_int_equal(hl_pprof_view(profile, &options, &err), -EIO);
	assert_non_null(strstr(err.text, "t.hl"));
	fclose(options.out);
	hl_profile_free(profile);
}

static int write_result(const struct hl_profile *profile)
{
	int r;
	struct pprof_file file = pprof_write(profile, HL_VALUE_PEAK, &r);

	free(file.bytes);
	return r;
}

static int read_result(const struct pprof_file *file)
{
	struct hl_profile *profile = NULL;
	struct hl_error err;

	int r = pprof_read(file, &profile, &err);
	hl_profile_free(profile);
	return r;
}

static void want_of_memory_is_an_error_wherever_it_strikes(void **state)
{
	struct hl_profile *profile = make_profile();
	struct pprof_file file = pprof_of(profile);

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, write_result(profile))
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, read_result(&file))
	assert_int_equal(r, -ENOMEM);
	free(file.bytes);
	hl_profile_free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_types_of_go_come_first_and_the_chosen_one_is_the_default),
		cmocka_unit_test(what_is_not_known_is_no_type),
		cmocka_unit_test(stacks_begin_at_the_leaf_and_inlined_functions_share_a_location),
		cmocka_unit_test(a_hidden_frame_takes_nothing_else_out_of_its_location),
		cmocka_unit_test(addresses_lie_in_their_mapping_and_mappings_apart),
		cmocka_unit_test(functions_add_up_as_in_top),
		cmocka_unit_test(lines_of_a_function_keep_their_files),
		cmocka_unit_test(equal_profiles_give_equal_bytes_without_a_time_in_them),
		cmocka_unit_test(what_was_exported_is_read_again_with_all_its_figures),
		cmocka_unit_test(a_full_device_is_an_error),
		cmocka_unit_test(want_of_memory_is_an_error_wherever_it_strikes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
