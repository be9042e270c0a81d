/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that a language's runtime allocates as it starts and never frees; see check.h. */
#include "view/check.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "guests/traits.h"
#include "recording/recording.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define POOL "libstdc++'s emergency pool"

/*
 * libstdc++ keeps one block for exceptions that are thrown when memory has run out (eh_alloc.cc);
 * its constructor allocates it before main() begins. Sizes of 64-bit machines.
 */
static const int64_t pool_sizes[] = {
	72704, /* GCC 5 to 12 */
	73728, /* GCC 13 and later */
};

static bool begins_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

static const char *file_of(const struct hl_profile *profile,
			   const struct hl_profile_function *function)
{
	return hl_path_basename(hl_profile_text(profile, profile->modules[function->module].path));
}

/* The function of a C library that calls the constructors of programs and libraries. */
static bool calls_constructors(const char *function)
{
	static const char *const names[] = {"call_init",	 "_dl_init",	 "__libc_csu_init",
					    "__libc_start_main", "do_init_fini", "libc_start_init"};

	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		if (begins_with(function, names[i]))
			return true;
	return false;
}

/* Of another tool's file, the number is unknown; it is often of one. */
static int64_t process_count(const struct hl_profile *profile)
{
	return profile->process_count ? (int64_t)profile->process_count : 1;
}

/* Whether the file at ${path} has a libstdc++ of its own: its types' names, which no linker or strip(1) removes. Only
 * libstdc++ itself has them as texts; where it is a library, a program has their symbols. */
static bool has_libstdcxx(const char *path)
{
	static const char type_name[] = "\0N10__cxxabiv1";
	HL_CLOSED int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || !status.st_size)
		return false;
	size_t size = (size_t)status.st_size;
	void *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (file == MAP_FAILED)
		return false;
	bool found = memmem(file, size, type_name, sizeof(type_name) - 1) != NULL;
	munmap(file, size);
	return found;
}

/* The function on the stack of ${node} that the C library calls as a constructor; NULL: none. */
static const struct hl_profile_function *find_constructor(const struct hl_profile *profile,
							  uint32_t node)
{
	const struct hl_profile_function *constructor = NULL;

	for (; node; node = profile->nodes[node].parent) {
		const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		if (calls_constructors(hl_profile_text(profile, function->name)))
			return constructor;
		if (!frame->inlined)
			constructor = function;
	}
	return NULL;
}

/*
 * Whether the blocks of ${node} are such pools, a block for each process. Where libstdc++ is linked statically into a
 * stripped program, the constructor has no name; of these, ${unnamed_left} blocks can be pools, and are taken off.
 */
static bool is_pool(const struct hl_profile *profile, uint32_t node, int64_t *unnamed_left)
{
	const struct hl_profile_counters *counters = &profile->counters[node];
	int64_t bytes = hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_BYTES);
	int64_t blocks = hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_OBJECTS);
	bool fits = false;

	for (size_t i = 0; i < HL_COUNT_OF(pool_sizes); i++)
		fits |= bytes == blocks * pool_sizes[i];
	const struct hl_profile_function *constructor =
		fits && blocks > 0 && blocks <= process_count(profile)
			? find_constructor(profile, node)
			: NULL;
	if (!constructor)
		return false;
	const char *file = file_of(profile, constructor);
	const char *name = hl_profile_text(profile, constructor->name);
	if (begins_with(file, "libstdc++.so") || begins_with(name, "_GLOBAL__sub_I_eh_alloc"))
		return true;
	if (!begins_with(name, file) || blocks > *unnamed_left ||
	    !has_libstdcxx(hl_profile_text(profile, profile->modules[constructor->module].path)))
		return false;
	*unnamed_left -= blocks;
	return true;
}

/*
 * Interpreters, by the functions that start them. Each process of the interpreter's own program calls each of these
 * once, before the script that it was given begins. The functions are exported, so that they have names in stripped
 * files, too.
 */
static const struct hl_guest_start starts[] = {
	{"PL_initialise", "swipl", "Prolog's start"},
	{"node::InitializeOncePerProcess", "node", "Node.js' start"},
	{0},
};

/* Whether a function of this name is an interpreter's main function. */
static bool is_main_function(const char *name)
{
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const char *function = hl_guest_traits[i]->main_function;
		if (function && begins_with(name, function))
			return true;
	}
	return begins_with(name, "PL_next_solution");
}

/* Whether ${frame} is of the script that the interpreter itself runs as it starts. */
static bool is_prelude(const struct hl_profile *profile, const struct hl_profile_frame *frame)
{
	const char *name = hl_profile_text(profile, profile->functions[frame->function].name);

	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const char *prelude = hl_guest_traits[i]->prelude;
		if (prelude && !strcmp(name, prelude))
			return true;
	}
	return false;
}

/* Whether ${frame}, which is of no script, runs one where scripts are not read. */
static bool runs_script(const struct hl_profile *profile, const struct hl_profile_frame *frame)
{
	const struct hl_profile_function *function = &profile->functions[frame->function];

	return is_main_function(hl_profile_text(profile, function->name)) ||
	       !profile->modules[function->module].path;
}

static const struct hl_guest_start *find_in(const struct hl_guest_start *table, const char *name,
					    const char *file)
{
	for (; table && table->function; table++)
		if (begins_with(name, table->function) && strstr(file, table->file))
			return table;
	return NULL;
}

static const struct hl_guest_start *find_start(const struct hl_profile *profile,
					       const struct hl_profile_function *function)
{
	const char *name = hl_profile_text(profile, function->name);
	const char *file = file_of(profile, function);
	const struct hl_guest_start *found = find_in(starts, name, file);

	for (size_t i = 0; !found && hl_guest_traits[i]; i++)
		found = find_in(hl_guest_traits[i]->starts, name, file);
	return found;
}

/*
 * What interpreter the stack of ${node} starts; NULL: none, or a script runs on it. Another program that embeds an
 * interpreter may start it again and again, and leak each time: no function of it may be on the stack.
 */
static const char *interpreter_started(const struct hl_profile *profile, uint32_t node)
{
	const struct hl_guest_start *start = NULL;
	const struct hl_profile_frame *script = NULL; /* the outermost one */

	for (; node; node = profile->nodes[node].parent) {
		const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		if (hl_profile_is_script(profile, frame)) {
			script = frame;
			continue;
		}
		if (runs_script(profile, frame))
			return NULL;
		if (!start)
			start = find_start(profile, function);
		else if (!strstr(file_of(profile, function), start->file) &&
			 !begins_with(file_of(profile, function), "libc."))
			return NULL;
	}
	return start && (!script || is_prelude(profile, script)) ? start->what : NULL;
}

/*
 * Runtimes by the language of their files (recording/recording.h) where a stack shows whether code of a program runs
 * on it: that code lies in other files or in none, or a function of the runtime that has a name runs it.
 */
static const struct hl_guest_kept runtimes[] = {
	{".NET", NULL, NULL, ".NET's runtime"},
	{"Mono", NULL, NULL, "Mono's runtime"},
	{"Lisp", NULL, NULL, "Lisp's runtime"},
	{"Scheme", "scm_call_n", NULL, "Scheme's runtime"},
};

static const struct hl_guest_kept *find_runtime(const char *path)
{
	const struct hl_code_runtime *code = hl_code_runtime_of(path);

	for (size_t i = 0; code && i < HL_COUNT_OF(runtimes); i++)
		if (!strcmp(code->language, runtimes[i].language))
			return &runtimes[i];
	for (size_t i = 0; code && hl_guest_traits[i]; i++) {
		const struct hl_guest_kept *kept = hl_guest_traits[i]->kept;
		if (kept && !strcmp(code->language, kept->language))
			return kept;
	}
	return NULL;
}

/* Libraries that runtimes call, or are called by, without a program's code in between. */
static bool is_beside_runtime(const char *file)
{
	static const char *const names[] = {"libc.",	  "libpthread.", "ld-",
					    "libstdc++.", "libgc.",	 "libjli."};

	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		if (begins_with(file, names[i]))
			return true;
	return false;
}

/* Whether a thread begins there: in a function of libc that has such a name, or none, as those have that it does not export. */
static bool begins_thread(const char *function, const char *file)
{
	static const char *const names[] = {"__libc_start", "_start", "start_thread", "clone",
					    "__clone"};

	if (!begins_with(file, "libc.") && !begins_with(file, "libpthread."))
		return false;
	for (size_t i = 0; i < HL_COUNT_OF(names); i++)
		if (begins_with(function, names[i]))
			return true;
	return begins_with(function, file);
}

/*
 * What runtime the stack of ${node} belongs to, all of it, from the start of its thread on; NULL: to none. What a
 * program keeps, also by a library of its own, has code of the program on the stack; a stack that lost its outer
 * frames could have had some.
 */
static const char *runtime_alone(const struct hl_profile *profile, uint32_t node)
{
	const struct hl_guest_kept *runtime = NULL;
	bool begins = false, did_begin = false;

	for (; node; node = profile->nodes[node].parent) {
		const struct hl_profile_frame *frame = &profile->frames[profile->nodes[node].frame];
		const struct hl_profile_function *function = &profile->functions[frame->function];
		const char *path =
			hl_profile_text(profile, profile->modules[function->module].path);
		const char *file = hl_path_basename(path);
		const struct hl_guest_kept *found = find_runtime(path);
		if (found ? runtime && found != runtime : !is_beside_runtime(file))
			return NULL;
		const char *name = hl_profile_text(profile, function->name);
		if (found && found->runs && begins_with(name, found->runs))
			return NULL;
		if (found && found->loads && begins_with(name, found->loads))
			return found->what;
		if (found)
			runtime = found;
		did_begin = begins;
		begins = begins_thread(name, file);
	}
	/* clone3() < start_thread() < ..., or _start() < __libc_start_main() < ... */
	return runtime && (begins || did_begin) ? runtime->what : NULL;
}

/* Counts ${counters} as freed, and what they had in use as left out. */
static void leave_out(struct hl_profile *profile, struct hl_profile_counters *counters,
		      const char *what, struct hl_check_left_out left_out[HL_CHECK_LEFT_OUT_MAX])
{
	int64_t bytes = counters->alloc_bytes - counters->free_bytes;
	int64_t blocks = counters->alloc_objects - counters->free_objects;

	counters->free_bytes += bytes;
	counters->free_objects += blocks;
	profile->total.free_bytes += bytes;
	profile->total.free_objects += blocks;
	while (left_out->what && strcmp(left_out->what, what) != 0)
		left_out++;
	left_out->what = what;
	left_out->bytes += (uint64_t)bytes;
}

void hl_check_leave_out(struct hl_profile *profile,
			struct hl_check_left_out left_out[HL_CHECK_LEFT_OUT_MAX])
{
	int64_t unnamed_left = process_count(profile);

	for (uint32_t i = 1; i < profile->node_count; i++) {
		struct hl_profile_counters *counters = &profile->counters[i];
		if (hl_profile_figure(counters, HL_VALUE_INUSE, HL_UNIT_BYTES) <= 0)
			continue;
		const char *what =
			is_pool(profile, i, &unnamed_left) ? POOL : interpreter_started(profile, i);
		if (!what)
			what = runtime_alone(profile, i);
		if (what)
			leave_out(profile, counters, what, left_out);
	}
}
