/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that are born, replaced and cut off in every way. Each scenario calls `parent_site`
 * 1009 times for 17 bytes in the first program, `child_site` 103 times for 19 bytes in each forked
 * child, `leaf_site` 107 times for 23 bytes in each program that is exec'ed (this one again, with
 * the scenario "leaf"), and keeps all blocks.
 *
 * Usage: lifecycle SCENARIO [NEW_ROOT]
 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS	   53
#define OTHER_USER 65534

static const char *self; /* a path that exec can use */
static const char *new_root = ".";

static SITE void parent_site(void)
{
	KEEP(malloc(17));
}

static SITE void child_site(void)
{
	KEEP(malloc(19));
}

static SITE void leaf_site(void)
{
	KEEP(malloc(23));
}

static void parent_sites(void)
{
	for (int i = 0; i < 1009; i++)
		parent_site();
}

static void child_sites(void)
{
	for (int i = 0; i < 103; i++)
		child_site();
}

static int leaf(void)
{
	for (int i = 0; i < 107; i++)
		leaf_site();
	return 0;
}

static void wait_for(pid_t child)
{
	int status = -1;

	while (waitpid(child, &status, 0) < 0)
		REQUIRE(errno == EINTR);
	REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int fork_and_exit(void)
{
	parent_sites();
	pid_t child = fork();
	if (!child) {
		child_sites();
		exit(0);
	}
	wait_for(child);
	return 0;
}

static int fork_and_exit_at_once(void)
{
	parent_sites();
	pid_t child = fork();
	if (!child) {
		child_sites();
		_exit(0);
	}
	wait_for(child);
	return 0;
}

/* ${user}: whom the child becomes; 0 = it stays who it is. */
static int fork_twice_as(uid_t user)
{
	parent_sites();
	pid_t child = fork();
	if (!child) {
		REQUIRE(!user || !setuid(user));
		child_sites();
		pid_t grandchild = fork();
		if (!grandchild) {
			child_sites();
			exit(0);
		}
		wait_for(grandchild);
		exit(0);
	}
	wait_for(child);
	return 0;
}

static int fork_twice(void)
{
	return fork_twice_as(0);
}

static int change_user_and_fork(void)
{
	return fork_twice_as(OTHER_USER);
}

static int vfork_and_exec(void)
{
	parent_sites();
	pid_t child = vfork();
	if (!child) {
		execl(self, self, "leaf", NULL);
		_exit(127);
	}
	wait_for(child);
	return 0;
}

static int spawn(void)
{
	char *arguments[] = {(char *)self, "leaf", NULL};
	pid_t child;

	parent_sites();
	REQUIRE(!posix_spawn(&child, self, NULL, NULL, arguments, environ));
	wait_for(child);
	return 0;
}

static int shell(void)
{
	char command[4096];

	parent_sites();
	snprintf(command, sizeof(command), "'%s' leaf", self);
	REQUIRE(system(command) == 0);
	return 0;
}

static int exec(void)
{
	parent_sites();
	execl(self, self, "leaf", NULL);
	return 1;
}

static int exec_without_environment(void)
{
	char *nothing[] = {NULL};

	parent_sites();
	execle(self, self, "leaf", NULL, nothing);
	return 1;
}

/* The daemon allocates only once its parents are gone. */
static void be_a_daemon(pid_t parent)
{
	while (getppid() == parent)
		usleep(1000);
	child_sites();
	exit(0);
}

/* ${user}: whose it is; 0 = ours. */
static int make_a_daemon_of(uid_t user)
{
	parent_sites();
	pid_t child = fork();
	if (!child) {
		setsid();
		REQUIRE(!user || !setuid(user));
		pid_t middle = getpid();
		if (!fork())
			be_a_daemon(middle);
		_exit(0);
	}
	wait_for(child);
	return 0;
}

static int make_a_daemon(void)
{
	return make_a_daemon_of(0);
}

static int make_a_daemon_of_another_user(void)
{
	return make_a_daemon_of(OTHER_USER);
}

static int close_all_files(void)
{
	closefrom(3);
	return fork_and_exit();
}

static int clear_environment(void)
{
	clearenv();
	return fork_and_exit();
}

static int change_root(void)
{
	REQUIRE(!chroot(new_root) && !chdir("/"));
	return fork_and_exit();
}

static void limit_descriptors(rlim_t count)
{
	struct rlimit few = {.rlim_cur = count, .rlim_max = count};

	closefrom(3);
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &few));
}

static int allow_no_more_files(void)
{
	limit_descriptors(3);
	return fork_and_exit();
}

static int allow_one_more_file(void)
{
	limit_descriptors(4);
	return fork_and_exit();
}

static int allow_one_more_file_and_exec(void)
{
	limit_descriptors(4);
	return exec();
}

#define ALLOW(call)                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Allows what an allocator and a recorder of one thread need; anything else kills. */
static void install_filter(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(write),
		ALLOW(exit_group),
		ALLOW(mmap),
		ALLOW(munmap),
		ALLOW(mremap),
		ALLOW(mprotect),
		ALLOW(madvise),
		ALLOW(brk),
		ALLOW(futex),
		ALLOW(rt_sigprocmask),
		ALLOW(sched_yield),
		ALLOW(nanosleep),
		ALLOW(kill),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = {.len = sizeof(rules) / sizeof(*rules), .filter = rules};

	REQUIRE(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	REQUIRE(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

/* To read the time stamp counter is a fault from then on. */
static int forbid_time_stamps(void)
{
	parent_site();
	REQUIRE(!prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
	for (int i = 1; i < 1009; i++)
		parent_site();
	pid_t child = fork();
	if (!child) {
		child_sites();
		_exit(0);
	}
	wait_for(child);
	return 0;
}

static SITE void descend(int depth)
{
	if (depth)
		descend(depth - 1);
	else
		parent_site();
	BARRIER();
}

/* Many stacks that are new after the filter came, blocks enough to need more memory, and events
 * enough to wait for whoever reads them. */
static int enter_filter(void)
{
	free(malloc(1)); /* glibc draws a random number at the first */
	install_filter();
	for (int depth = 0; depth < 1009; depth++)
		descend(depth % 601);
	for (int i = 0; i < 1000; i++)
		KEEP(malloc(20000));
	for (int i = 0; i < 200000; i++) {
		void *block = malloc(20);
		KEEP(block);
		free(block);
	}
	return 0;
}

static atomic_bool storm_over;

static void *churn_until_over(void *unused)
{
	while (!atomic_load(&storm_over))
		for (int i = 0; i < 100; i++) {
			void *block = malloc((size_t)i + 1);
			KEEP(block);
			free(block);
		}
	return unused;
}

/* Forks while other threads allocate: a lock that one of them holds must not be missed in the
 * child. */
static int fork_in_a_storm(void)
{
	pthread_t others[2];

	for (int i = 0; i < 2; i++)
		REQUIRE(!pthread_create(&others[i], NULL, churn_until_over, NULL));
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();
		if (!child) {
			child_sites();
			_exit(0);
		}
		wait_for(child);
	}
	atomic_store(&storm_over, true);
	for (int i = 0; i < 2; i++)
		pthread_join(others[i], NULL);
	parent_sites();
	return 0;
}

/* A child frees and grows blocks of its parent: neither touches what the parent has in use. */
static int free_in_child(void)
{
	void *inherited[211];

	for (int i = 0; i < 211; i++)
		inherited[i] = malloc(29);
	parent_sites();
	pid_t child = fork();
	if (!child) {
		child_sites();
		for (int i = 0; i < 211; i++)
			free(inherited[i]);
		_exit(0);
	}
	wait_for(child);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} scenarios[] = {
	{"leaf", leaf},
	{"fork", fork_and_exit},
	{"fork-_exit", fork_and_exit_at_once},
	{"fork-twice", fork_twice},
	{"change-user", change_user_and_fork},
	{"fork-storm", fork_in_a_storm},
	{"free-in-child", free_in_child},
	{"vfork-exec", vfork_and_exec},
	{"posix-spawn", spawn},
	{"system", shell},
	{"exec", exec},
	{"exec-without-environment", exec_without_environment},
	{"daemon", make_a_daemon},
	{"daemon-of-another-user", make_a_daemon_of_another_user},
	{"close-all-files", close_all_files},
	{"clear-environment", clear_environment},
	{"chroot", change_root},
	{"few-files", allow_no_more_files},
	{"one-more-file", allow_one_more_file},
	{"exec-with-one-more-file", allow_one_more_file_and_exec},
	{"seccomp-filter", enter_filter},
	{"no-time-stamps", forbid_time_stamps},
};

int main(int argc, char **argv)
{
	REQUIRE(argc >= 2);
	self = argv[0];
	if (argc > 2)
		new_root = argv[2];
	alarm(500); /* a deadlock ends by SIGALRM */
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(scenarios[i].name, argv[1]))
			return scenarios[i].run();
	fprintf(stderr, "lifecycle: no scenario '%s'\n", argv[1]);
	return 2;
}
