/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exec and its family: programs that the target starts are recorded, too. The hooks complete the
 * environment that a program gets, and report programs that the collector may not see (start.h).
 *
 * A child by vfork() runs this in its parent's memory: it allocates nothing, and the parent
 * goes on without what the child had on the stack. glibc's own calls of its execve() and
 * posix_spawn() do not come by here, so that each function that ends in one has a hook.
 */
#include "recorder/hooks.h"

#include "base/compiler.h"
#include "recorder/libc.h"
#include "recorder/start.h"
#include "recorder/sys.h"

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#pragma weak __libc_single_threaded

/* Larger environments get a mapping. */
#define STACK_BYTES_MAX ((size_t)32 << 10)

/* A call, and how it is made. */
struct call {
	int (*make)(const struct call *call, char *const *environment);
	bool is_spawn; /* returns in the caller when it succeeds */
	int fd, flags; /* of fexecve and execveat */
	const char *path;
	char *const *arguments;
	pid_t *ret_pid;
	const posix_spawn_file_actions_t *actions;
	const posix_spawnattr_t *attributes;
};

static int make(const struct call *call, char *const *environment)
{
	if (call->is_spawn) {
		int error = call->make(call, environment);
		if (!error)
			hl_kin_count_spawned();
		return error;
	}
	struct hl_kin_exec exec = hl_kin_begin_exec(call->path, call->fd);
	bool left = hl_filters_leave();
	int result = call->make(call, environment);
	hl_filters_return(left);
	hl_kin_fail_exec(exec);
	return result;
}

static void *map_room(size_t bytes)
{
	return hl_sys_mmap(bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

/*
 * The calling thread's mapping for an environment. A child by vfork() that has become another
 * program leaves its own here, in its parent's memory; it is gone when the parent goes on.
 */
static __thread struct {
	void *room;
	size_t bytes;
	uint32_t pid;
} mapped __attribute__((tls_model("initial-exec")));

static void *map_for_exec(size_t bytes)
{
	uint32_t pid = hl_sys_getpid();

	if (mapped.room && mapped.pid != pid) {
		hl_sys_munmap(mapped.room, mapped.bytes);
		mapped.room = NULL;
	}
	void *room = map_room(bytes);
	if (!mapped.room && room) {
		mapped.bytes = bytes;
		mapped.pid = pid;
		mapped.room = room;
	}
	return room;
}

static void unmap_after_exec(void *room, size_t bytes)
{
	if (mapped.room == room)
		mapped.room = NULL;
	hl_sys_munmap(room, bytes);
}

static int make_with(const struct call *call, char *const *environment)
{
	hl_libc_resolve();
	bool withholds = hl_filters_withhold();
	bool is_followed = hl_kin_are_followed() || hl_connect_is_entered();
	size_t bytes = is_followed ? hl_environment_room(environment, withholds) : 0;
	bool large = bytes > STACK_BYTES_MAX;
	void *room = large ? map_for_exec(bytes) : bytes ? alloca(bytes) : NULL;
	int result = make(call, room ? hl_environment_complete(environment, withholds, room, bytes)
				     : environment);
	/* Rather unrecorded than not at all. */
	if (room && (call->is_spawn ? result : errno) == E2BIG)
		result = make(call, withholds ? hl_environment_without_token(environment, room)
					      : environment);
	if (large && room)
		unmap_after_exec(room, bytes);
	return result;
}

/* What a libc that has no such function says. */
static int unknown(void)
{
	errno = ENOSYS;
	return -1;
}

/* ---- exec ---- */

static int by_path(const struct call *call, char *const *environment)
{
	return hl_libc.execve ? hl_libc.execve(call->path, call->arguments, environment)
			      : unknown();
}

static int by_search(const struct call *call, char *const *environment)
{
	return hl_libc.execvpe ? hl_libc.execvpe(call->path, call->arguments, environment)
			       : unknown();
}

static int by_descriptor(const struct call *call, char *const *environment)
{
	return hl_libc.fexecve ? hl_libc.fexecve(call->fd, call->arguments, environment)
			       : unknown();
}

static int by_directory(const struct call *call, char *const *environment)
{
	return hl_libc.execveat ? hl_libc.execveat(call->fd, call->path, call->arguments,
						   environment, call->flags)
				: unknown();
}

static int exec_path(const char *path, char *const *arguments, char *const *environment)
{
	return make_with(&(struct call){by_path, .fd = -1, .path = path, .arguments = arguments},
			 environment);
}

static int exec_file(const char *file, char *const *arguments, char *const *environment)
{
	return make_with(&(struct call){by_search, .fd = -1, .path = file, .arguments = arguments},
			 environment);
}

static int exec_at(int fd, const char *path, char *const *arguments, char *const *environment,
		   int flags)
{
	return make_with(&(struct call){by_directory, .fd = fd, .flags = flags, .path = path,
					.arguments = arguments},
			 environment);
}

HL_EXPORT int execve(const char *path, char *const *arguments, char *const *environment)
{
	return exec_path(path, arguments, environment);
}

HL_EXPORT int execv(const char *path, char *const *arguments)
{
	return exec_path(path, arguments, environ);
}

HL_EXPORT int execvpe(const char *file, char *const *arguments, char *const *environment)
{
	return exec_file(file, arguments, environment);
}

HL_EXPORT int execvp(const char *file, char *const *arguments)
{
	return exec_file(file, arguments, environ);
}

HL_EXPORT int fexecve(int fd, char *const *arguments, char *const *environment)
{
	return make_with(&(struct call){by_descriptor, .fd = fd, .arguments = arguments},
			 environment);
}

HL_EXPORT int execveat(int fd, const char *path, char *const *arguments, char *const *environment,
		       int flags)
{
	return exec_at(fd, path, arguments, environment, flags);
}

static size_t count_arguments(va_list list)
{
	size_t count = 1;

	while (va_arg(list, char *))
		count++;
	return count;
}

/* Gathers ${FIRST} and those after it, up to NULL, into the array `arguments`, and leaves `list` at
 * what follows. */
#define GATHER(FIRST)                                            \
	va_list list, counted;                                   \
	va_start(list, FIRST);                                   \
	va_copy(counted, list);                                  \
	size_t count = count_arguments(counted);                 \
	va_end(counted);                                         \
	char **arguments = alloca((count + 1) * sizeof(char *)); \
	arguments[0] = (char *)FIRST;                            \
	for (size_t i = 1; i <= count; i++)                      \
	arguments[i] = va_arg(list, char *)

HL_EXPORT int execl(const char *path, const char *argument, ...)
{
	GATHER(argument);
	va_end(list);
	return exec_path(path, arguments, environ);
}

HL_EXPORT int execlp(const char *file, const char *argument, ...)
{
	GATHER(argument);
	va_end(list);
	return exec_file(file, arguments, environ);
}

HL_EXPORT int execle(const char *path, const char *argument, ...)
{
	GATHER(argument);
	char *const *environment = va_arg(list, char *const *);
	va_end(list);
	return exec_path(path, arguments, environment);
}

/* ---- by number ---- */

/* For syscall(), see hooks.c: but for those of hooks_filters.c only execve and
 * execveat come here, whose arguments are those of the functions. */
__attribute__((used, visibility("hidden"))) long
hl_hooks_exec_by_number(long number, long a, long b, long c, long d, long e)
{
	if (number == SYS_execve)
		return exec_path((const char *)a, (char *const *)b, (char *const *)c);
	return exec_at((int)a, (const char *)b, (char *const *)c, (char *const *)d, (int)e);
}

/* ---- the end ---- */

/* exit() comes by the library's destructor. */
static _Noreturn void end_with(void (*real)(int), int status)
{
	hl_kin_keep_title();
	hl_filters_leave();
	if (real)
		real(status);
	for (;;)
		HL_SYS(SYS_exit_group, status, 0, 0);
}

HL_EXPORT _Noreturn void _exit(int status)
{
	end_with(hl_libc._exit, status);
}

HL_EXPORT _Noreturn void _Exit(int status)
{
	end_with(hl_libc._Exit, status);
}

/* ---- spawning ---- */

static int spawn_path(const struct call *call, char *const *environment)
{
	if (!hl_libc.posix_spawn)
		return ENOSYS;
	return hl_libc.posix_spawn(call->ret_pid, call->path, call->actions, call->attributes,
				   call->arguments, environment);
}

static int spawn_file(const struct call *call, char *const *environment)
{
	if (!hl_libc.posix_spawnp)
		return ENOSYS;
	return hl_libc.posix_spawnp(call->ret_pid, call->path, call->actions, call->attributes,
				    call->arguments, environment);
}

HL_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			  const posix_spawnattr_t *attributes, char *const *arguments,
			  char *const *environment)
{
	return make_with(
		&(struct call){spawn_path, true, -1, 0, path, arguments, pid, actions, attributes},
		environment);
}

HL_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *attributes, char *const *arguments,
			   char *const *environment)
{
	return make_with(
		&(struct call){spawn_file, true, -1, 0, file, arguments, pid, actions, attributes},
		environment);
}

/*
 * system() and popen() give the shell `environ` as it is. It is completed for the call where nobody
 * else can change or copy it meanwhile; elsewhere the shell may run unrecorded, and is counted. In
 * a mapping: `environ` stays valid when a signal handler jumps out of the call.
 */
struct loan {
	char **own, **lent;
	void *room; /* NULL: nothing was lent */
	size_t bytes;
};

static struct loan lend_environment(void)
{
	bool alone = &__libc_single_threaded && __libc_single_threaded;
	struct loan loan = {.own = environ};

	if (hl_libc_resolve() && alone && (hl_kin_are_followed() || hl_connect_is_entered()))
		loan.bytes = hl_environment_room(environ, false);
	loan.room = loan.bytes ? map_room(loan.bytes) : NULL;
	if (loan.room)
		environ = loan.lent =
			(char **)hl_environment_complete(loan.own, false, loan.room, loan.bytes);
	return loan;
}

static void take_environment_back(struct loan loan)
{
	/* A signal handler may have set a variable, in a copy of what was lent. */
	if (!loan.room || environ != loan.lent)
		return;
	environ = loan.own;
	hl_sys_munmap(loan.room, loan.bytes);
}

HL_EXPORT int system(const char *command)
{
	struct loan loan = lend_environment();
	int status = hl_libc.system ? hl_libc.system(command) : unknown();

	take_environment_back(loan);
	if (command && status != -1)
		hl_kin_count_spawned();
	return status;
}

HL_EXPORT FILE *popen(const char *command, const char *type)
{
	struct loan loan = lend_environment();
	FILE *stream = hl_libc.popen ? hl_libc.popen(command, type) : NULL;

	take_environment_back(loan);
	if (stream)
		hl_kin_count_spawned();
	return stream;
}
