/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a program in one of the ways there are, with an empty environment or with the one that a
 * variable is set in: execs HOW PROGRAM ARGUMENTS... What fails is said by the exit status.
 */
#include "machine.h"
#include "program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *nothing[] = {NULL};
static char **program; /* and its arguments */

static int status_of(pid_t child)
{
	int status;

	REQUIRE(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int by_execve(void)
{
	return execve(program[0], program, nothing);
}

static int by_execv(void)
{
	clearenv();
	return execv(program[0], program);
}

static int by_execv_as_is(void)
{
	return execv(program[0], program);
}

static int by_execvp(void)
{
	clearenv();
	return execvp(program[0], program);
}

static int by_execvpe(void)
{
	return execvpe(program[0], program, nothing);
}

static int by_execl(void)
{
	clearenv();
	return execl(program[0], program[0], program[1], NULL);
}

static int by_execlp(void)
{
	clearenv();
	return execlp(program[0], program[0], program[1], NULL);
}

static int by_execle(void)
{
	return execle(program[0], program[0], program[1], NULL, nothing);
}

static int by_fexecve(void)
{
	int fd = open(program[0], O_RDONLY | O_CLOEXEC);

	return fexecve(fd, program, nothing);
}

static int by_execveat(void)
{
	return execveat(AT_FDCWD, program[0], program, nothing, 0);
}

static int by_number(void)
{
	return (int)syscall(SYS_execve, program[0], program, nothing);
}

static int by_number_at(void)
{
	return (int)syscall(SYS_execveat, AT_FDCWD, program[0], program, nothing, 0);
}

/* Past the C library, where no hook can be. */
static int exec_by_instruction(char **arguments, char **environment)
{
	return (int)call_by_instruction(SYS_execve, (long)arguments[0], (long)arguments,
					(long)environment);
}

static int by_instruction(void)
{
	return exec_by_instruction(program, nothing);
}

static int by_posix_spawn(void)
{
	pid_t child;

	REQUIRE(!posix_spawn(&child, program[0], NULL, NULL, program, nothing));
	return status_of(child);
}

static int by_posix_spawnp(void)
{
	pid_t child;

	REQUIRE(!posix_spawnp(&child, program[0], NULL, NULL, program, nothing));
	return status_of(child);
}

static int by_vfork(void)
{
	pid_t child = vfork();

	if (!child) {
		execve(program[0], program, nothing);
		_exit(101);
	}
	return status_of(child);
}

/* On pain of death a child forbids itself what a recorder's start needs, and becomes a program, or fails to and ends. Its parent
 * goes on, and starts one that is free to do all. */
static int by_filtered_vfork(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static struct sock_fprog filter = {sizeof(code) / sizeof(*code), code};

	static const char *volatile paths[] = {"", "/nonexistent"};
	static volatile int at;

	paths[0] = program[0];
	for (at = 0; at < 2; at++) {
		pid_t child = vfork();
		if (!child) {
			if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
			    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
				_exit(102);
			execve(paths[at], program, environ);
			_exit(0);
		}
		REQUIRE(status_of(child) == 0);
	}
	return by_posix_spawn();
}

/* The child has no memory of its own from the recorder when it execs. */
static int by_fork(void)
{
	pid_t child = fork();

	if (!child) {
		execve(program[0], program, nothing);
		_exit(101);
	}
	return status_of(child);
}

static char *command(void)
{
	static char text[4096];

	snprintf(text, sizeof(text), "exec '%s' '%s'", program[0], program[1]);
	return text;
}

static int by_system(void)
{
	clearenv();
	return WEXITSTATUS(system(command()));
}

static int by_popen(void)
{
	clearenv();
	FILE *stream = popen(command(), "r");
	REQUIRE(stream);
	return WEXITSTATUS(pclose(stream));
}

static sigjmp_buf interrupted;

static void jump_out(int signal_number)
{
	siglongjmp(interrupted, signal_number);
}

static void overwrite_stack(void)
{
	volatile char stack[64 << 10];

	memset((char *)stack, 'x', sizeof(stack));
}

/*
 * What the shell was given stays valid when nobody returns from the call. libc kills the shell when
 * the signal interrupts its wait, and lets it go on when the signal comes before.
 */
static int jump_out_of_system(void)
{
	signal(SIGUSR1, jump_out);
	unsetenv("LD_PRELOAD");
	if (!sigsetjmp(interrupted, 1)) {
		system("kill -USR1 $PPID; exec sleep 2");
		return 1;
	}
	overwrite_stack();
	for (char **variable = environ; *variable; variable++)
		REQUIRE(strchr(*variable, '='));
	return by_execv_as_is();
}

static void *wait_for_end(void *unused)
{
	pause();
	return unused;
}

/* Nobody may lend the shell another environment while a thread could change this one. */
static int by_system_with_threads(void)
{
	pthread_t other;

	REQUIRE(!pthread_create(&other, NULL, wait_for_end, NULL));
	return by_system();
}

/* More variables than have room on the stack. */
static char **many_variables(void)
{
	static char *many[8193];

	for (int i = 0; i < 8192; i++)
		many[i] = "A=B";
	return many;
}

static int with_many_variables(void)
{
	return execve(program[0], program, many_variables());
}

static SITE int address_space_pages(void)
{
	int pages;
	FILE *statm = fopen("/proc/self/statm", "r");

	REQUIRE(statm && fscanf(statm, "%d", &pages) == 1);
	fclose(statm);
	return pages;
}

/* A child by vfork() maps in its parent's memory: room for one environment may stay there. */
static int by_vfork_with_many_variables(void)
{
	int before = address_space_pages(), status = 0;

	for (int i = 0; i < 11; i++) {
		pid_t child = vfork();
		if (!child) {
			execve(program[0], program, many_variables());
			_exit(101);
		}
		status |= status_of(child);
	}
	REQUIRE(address_space_pages() - before < 6 * 8192 * (int)sizeof(char *) / 4096);
	return status;
}

/* The largest that the kernel takes, found by the way that has no hook, in a program that fails. */
static int with_full_environment(void)
{
	static char filler[3][96 << 10];
	char *environment[] = {filler[0], filler[1], filler[2], NULL};
	char *failing[] = {program[0], "full", NULL};	      /* as long as "leaf" */
	const struct rlimit stack = {1 << 20, RLIM_INFINITY}; /* a quarter of it may be filled */

	REQUIRE(setrlimit(RLIMIT_STACK, &stack) == 0);
	memset(filler, 'x', sizeof(filler));
	for (int i = 0; i < 3; i++)
		filler[i][sizeof(filler[i]) - 1] = '\0';
	for (size_t bytes = sizeof(filler[2]); bytes > 8; bytes -= 8) {
		filler[2][bytes - 1] = '\0';
		execve(program[0], program, environment);
		exec_by_instruction(failing, environment);
	}
	return 1;
}

/* After a call that fails the program goes on, and so does its recording. */
static int after_failures(void)
{
	execve("/no/such/program", program, nothing);
	execvp("/no/such/program", program);
	pid_t child;
	REQUIRE(posix_spawn(&child, "/no/such/program", NULL, NULL, program, nothing));
	KEEP(malloc(29));
	return 0;
}

/* ---- children that nobody can record ---- */

static int allocate_in_child(bool (*cut_off)(void))
{
	pid_t child = fork();

	if (!child) {
		if (!cut_off())
			_exit(77);
		KEEP(malloc(31));
		if (program[0])
			execve(program[0], program, environ);
		_exit(0);
	}
	return status_of(child);
}

static bool leave_network(void)
{
	return unshare(CLONE_NEWNET) == 0;
}

static int in_other_network(void)
{
	return allocate_in_child(leave_network);
}

static bool close_descriptors(void)
{
	struct rlimit none = {0};

	return setrlimit(RLIMIT_NOFILE, &none) == 0;
}

static int without_descriptors(void)
{
	return allocate_in_child(close_descriptors);
}

static bool do_nothing(void)
{
	return true;
}

/* heapline is the parent, and stopped until the child has given up. */
static int while_stopped(void)
{
	REQUIRE(!kill(getppid(), SIGSTOP));
	int status = allocate_in_child(do_nothing);
	REQUIRE(!kill(getppid(), SIGCONT));
	return status;
}

/* ---- names ---- */

static char *arguments_start;
static size_t arguments_bytes;

/* As servers do: over the arguments, and blank after. */
static void write_title(const char *title)
{
	memset(arguments_start, 0, arguments_bytes);
	strncpy(arguments_start, title, arguments_bytes - 1);
}

static int in_child(void (*run)(void), bool at_once)
{
	pid_t child = fork();

	if (!child) {
		KEEP(malloc(47));
		run();
		if (at_once)
			_exit(0);
		exit(0);
	}
	return status_of(child);
}

static void become_checkpointer(void)
{
	write_title("server: checkpointer");
}

static void become_writer(void)
{
	write_title("server: writer");
}

/* Its name is all that it changes, and it lives long enough to be seen. */
static void become_worker(void)
{
	REQUIRE(!prctl(PR_SET_NAME, "worker", 0, 0, 0));
	usleep(2500000);
}

static int with_titles(void)
{
	KEEP(malloc(43));
	return in_child(become_checkpointer, false) + in_child(become_writer, true) +
	       in_child(become_worker, false);
}

/* Its blocks come from another libc. */
static SITE int in_namespace(void)
{
	void *library = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);

	REQUIRE(library);
	void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(library, "malloc");
	REQUIRE(allocate && allocate != malloc);
	KEEP(allocate(37));
	KEEP(malloc(41));
	return 0;
}

/* Another library may have its own. */
static int by_exit_at_once(void)
{
	_exit(23);
}

static const struct {
	const char *name;
	int (*run)(void);
} ways[] = {
	{"execve", by_execve},
	{"execv", by_execv},
	{"execvp", by_execvp},
	{"execvpe", by_execvpe},
	{"execl", by_execl},
	{"execlp", by_execlp},
	{"execle", by_execle},
	{"fexecve", by_fexecve},
	{"execveat", by_execveat},
	{"number", by_number},
	{"number-at", by_number_at},
	{"instruction", by_instruction},
	{"many-variables", with_many_variables},
	{"full-environment", with_full_environment},
	{"posix_spawn", by_posix_spawn},
	{"posix_spawnp", by_posix_spawnp},
	{"vfork", by_vfork},
	{"fork", by_fork},
	{"system", by_system},
	{"popen", by_popen},
	{"vfork-filter", by_filtered_vfork},
	{"many-by-vfork", by_vfork_with_many_variables},
	{"jump", jump_out_of_system},
	{"system-with-threads", by_system_with_threads},
	{"failures", after_failures},
	{"other-network", in_other_network},
	{"no-descriptors", without_descriptors},
	{"stopped", while_stopped},
	{"namespace", in_namespace},
	{"titles", with_titles},
	{"exit-at-once", by_exit_at_once},
};

int main(int argc, char **argv)
{
	REQUIRE(argc >= 2);
	program = argv + 2;
	arguments_start = argv[0];
	arguments_bytes = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) + 1 - argv[0]);
	alarm(100);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (!strcmp(ways[i].name, argv[1]))
			return ways[i].run();
	return 2;
}
