/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the library comes to life. Linked with -z initfirst, so before the constructors of every
 * other library. */
#include "guests/guest.h"
#include "recorder/hooks.h"
#include "recorder/libc.h"
#include "recorder/modules.h"
#include "recorder/recorder.h"
#include "recorder/start.h"
#include "recorder/sys.h"

#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* What the program is linked with, before it has run; what comes later is noted as stacks show it. */
static void note_interpreters(void)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct hl_exports exports = hl_exports_of(map->l_ld, map->l_addr);
		HL_GUESTS_CALL(linked, hl_recorder->region.header, &exports);
	}
	void (*look)(void) = atomic_load(&hl_guest_wants.look);
	if (look)
		look();
}

/*
 * ---- sanitizers ----
 *
 * They have to begin before their functions are called, among which are those of libc, and AddressSanitizer wants to be first among
 * libraries. `heapline record` refuses such programs; one that a recorded program runs is started again without the recorder. Until
 * then nothing of libc may be called that a sanitizer replaces.
 */

static bool begins_with(const char *name, const char *prefix)
{
	for (; *prefix && *prefix == *name; prefix++)
		name++;
	return !*prefix;
}

/* What follows the last '/' before ${end}, or before the end of the text. */
static const char *file_name(const char *path, const char *end)
{
	const char *name = path;

	for (; path != end && *path; path++)
		if (*path == '/')
			name = path + 1;
	return name;
}

/* By what no allocator has besides malloc (see collector/examine.c), or by the library. */
static bool has_sanitizer(void)
{
	const struct link_map *map = _r_debug.r_map;
	struct hl_exports program = hl_exports_of(map->l_ld, map->l_addr);
	bool found = hl_exports_find(&program, "malloc") && hl_exports_find(&program, "signal") &&
		     hl_exports_find(&program, "sigaction");

	for (; map && !found; map = map->l_next) {
		const char *name = file_name(map->l_name, NULL);
		found = begins_with(name, "libasan.so") || begins_with(name, "libclang_rt.asan");
	}
	return found;
}

/* Takes the recorder out of a list of libraries; false: the list does not have it. */
static bool leave_list(char *list)
{
	const char *own = file_name(hl_libc_own_path(), NULL);

	for (char *name = list, *end; *name; name = *end ? end + 1 : end) {
		for (end = name; *end && *end != ':' && *end != ' ';)
			end++;
		const char *file = file_name(name, end), *same = own;
		for (; file != end && *file == *same; file++)
			same++;
		if (file != end || *same)
			continue;
		end += *end != '\0';
		do
			*name++ = *end;
		while (*end++);
		return true;
	}
	return false;
}

static bool is_own_file(const char *path)
{
	struct stat file, own;

	return hl_sys6(SYS_newfstatat, AT_FDCWD, (long)path, (long)&file, 0, 0, 0) == 0 &&
	       hl_sys6(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/exe", (long)&own, 0, 0, 0) ==
		       0 &&
	       file.st_dev == own.st_dev && file.st_ino == own.st_ino;
}

static void start_without_recorder(char **argv, char **environment)
{
	static const char variable[] = "LD_PRELOAD=";
	const char *executed = (const char *)getauxval(AT_EXECFN);
	char path[PATH_MAX];
	bool has_left = false;

	for (char **entry = environment; *entry && !has_left; entry++)
		has_left =
			begins_with(*entry, variable) && leave_list(*entry + sizeof(variable) - 1);
	long length = hl_sys6(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)path,
			      sizeof(path) - 1, 0, 0);
	/* Whoever names the loader as the program, runs that. */
	if (!has_left || length <= 0 || !getauxval(AT_BASE))
		return;
	path[length] = '\0';
	/* By the name of a link, from which the kernel takes the process's; that of a script is another file. */
	if (executed && is_own_file(executed))
		HL_SYS(SYS_execve, executed, argv, environment);
	HL_SYS(SYS_execve, path, argv, environment);
	/* Its file has been removed, or never had a name. */
	HL_SYS(SYS_execve, "/proc/self/exe", argv, environment);
}

/* glibc hands constructors what main() gets; environ itself may not be set yet. */
static __attribute__((constructor)) void start(int argc, char **argv, char **environment)
{
	(void)argc;
	if (!hl_libc_is_known())
		return;
	if (has_sanitizer()) {
		start_without_recorder(argv, environment);
		return;
	}
	if (!hl_libc_resolve())
		return;
	hl_kin_keep_arguments(argv, environment);
	hl_objects_hooks = (struct hl_objects_hooks){&hl_hooks_objects, &hl_hooks_arenas};
	hl_start(environment);
	if (!hl_connect_is_entered())
		hl_annotations_begin();
	if (hl_recorder_is_running(hl_recorder)) {
		hl_deepbind_begin();
		note_interpreters();
	}
}

/* About as much as asking takes. */
#define ASKING_BYTES 4096

/* Addresses of blocks that events have left on the stack must not look like words of the frames that ask. */
static __attribute__((noinline)) void wipe_stack(void)
{
	char below[ASKING_BYTES];

	explicit_bzero(below, sizeof(below));
}

/*
 * Has the collector look for blocks that nothing leads to any more, once all that the program does at its exit is done. It waits for
 * that, for a minute at most.
 */
static __attribute__((noinline)) void look_for_leaks(void)
{
	char reason[HL_ASK_REASON_BYTES];
	struct hl_answer answer = {0};

	/* Some systems let only ancestors look into a process, and the one that looks is a sibling. */
	HL_SYS(SYS_prctl, PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0);
	if (hl_ask_collector("leaks 0", &answer, reason) == 0)
		hl_answer_release(&answer);
}

static __attribute__((destructor)) void end(void)
{
	hl_kin_keep_title();
	if (hl_recorder_is_running(hl_recorder) &&
	    atomic_load(&hl_recorder->region.header->flags) & HL_REGION_LEAKS) {
		wipe_stack();
		look_for_leaks();
	}
}
