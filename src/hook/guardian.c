/* SPDX-License-Identifier: BSD-2-Clause */
/* The loans lie in memory that both processes share; the end of a pipe tells that we have ended. */
#include "hook/remote.h"

#include "base/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What must run puts us, then the guardian, above the threads that are lifted. */
#define TARGET_PRIORITY	  1
#define GUARDIAN_PRIORITY 2
#define OUR_PRIORITY	  3

#define LOANS_MAX 4096u /* threads beyond that number are not lifted */

struct hl_guardian {
	_Atomic pid_t *loans; /* LOANS_MAX tids, 0 = free; shared with the guardian */
	size_t used;	      /* loans from here on were never made */
	pid_t process;
	int pipe;		/* is never written to */
	uint64_t usual_runtime; /* of a thread whose turns nobody has set */
	bool has_begun;
};

/* What is started meanwhile gets the usual policy: the kernel sees to it, for processes too. */
static int set_fifo(pid_t tid, int priority)
{
	const struct sched_param param = {.sched_priority = priority};

	return sched_setscheduler(tid, SCHED_FIFO | SCHED_RESET_ON_FORK, &param);
}

static void set_usual(pid_t tid)
{
	const struct sched_param param = {0};

	sched_setscheduler(tid, SCHED_OTHER, &param); /* the niceness stays what it is */
}

static void take_back(_Atomic pid_t *loan)
{
	if (*loan)
		set_usual(*loan);
	*loan = 0;
}

/* The guardian's life. Its process is a copy of one that may have threads: no call here may wait for
 * a lock. */
static _Noreturn void guard(_Atomic pid_t *loans, const int pipe[2])
{
	char byte;

	setsid();
	set_fifo(0, GUARDIAN_PRIORITY);
	close(pipe[1]);
	dup2(pipe[0], STDIN_FILENO);
	close_range(STDIN_FILENO + 1, ~0u, 0); /* nothing of ours is kept open */
	while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
		;
	for (size_t i = 0; i < LOANS_MAX; i++)
		take_back(&loans[i]);
	_exit(0);
}

/* struct sched_attr of linux/sched/types.h, which libc's headers do not go with. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static bool read_attributes(pid_t tid, struct attributes *ret_attributes)
{
	return syscall(SYS_sched_getattr, tid, ret_attributes, sizeof(*ret_attributes), 0) == 0;
}

/* Whether set_usual() makes the thread again what it is. Since Linux 6.12 a thread may have turns of its
 * own length, which are told as runtime. */
static bool is_usual(const struct hl_guardian *guardian, pid_t tid)
{
	struct attributes attributes;

	return read_attributes(tid, &attributes) && attributes.policy == SCHED_OTHER &&
	       !attributes.flags && !attributes.nice &&
	       attributes.runtime == guardian->usual_runtime;
}

/* Whether what hl_guardian_lift() does can be undone: the flag that spares children is cleared with
 * a capability only. */
static bool may_lift(void)
{
	const struct sched_param param = {.sched_priority = TARGET_PRIORITY};

	if (sched_getscheduler(0) != SCHED_OTHER || set_fifo(0, TARGET_PRIORITY) < 0)
		return false;
	bool may = sched_setscheduler(0, SCHED_FIFO, &param) == 0;
	set_usual(0);
	return may;
}

static int start(struct hl_guardian *guardian)
{
	int ends[2];
	sigset_t all, before;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	guardian->process = fork();
	if (guardian->process == 0)
		guard(guardian->loans, ends);
	int r = guardian->process < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	close(ends[0]);
	if (r < 0)
		close(ends[1]);
	else
		guardian->pipe = ends[1];
	return r;
}

int hl_guardian_new(struct hl_guardian **ret_guardian)
{
	if (!may_lift())
		return -EPERM;
	struct hl_guardian *guardian = calloc(1, sizeof(*guardian));
	if (!guardian)
		return -ENOMEM;
	guardian->loans = mmap(NULL, LOANS_MAX * sizeof(*guardian->loans), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct attributes own = {0};
	if (read_attributes(0, &own))
		guardian->usual_runtime = own.runtime; /* set_usual() has just made it so */
	int r = guardian->loans == MAP_FAILED ? -ENOMEM : start(guardian);
	if (r < 0) {
		if (guardian->loans != MAP_FAILED)
			munmap(guardian->loans, LOANS_MAX * sizeof(*guardian->loans));
		free(guardian);
		return r;
	}
	*ret_guardian = guardian;
	return 0;
}

void hl_guardian_free(struct hl_guardian *guardian)
{
	if (!guardian)
		return;
	hl_guardian_end(guardian);
	close(guardian->pipe);
	while (waitpid(guardian->process, NULL, 0) < 0 && errno == EINTR)
		;
	munmap(guardian->loans, LOANS_MAX * sizeof(*guardian->loans));
	free(guardian);
}

void hl_guardian_begin(struct hl_guardian *guardian)
{
	if (guardian && !guardian->has_begun)
		guardian->has_begun =
			sched_getscheduler(0) == SCHED_OTHER && set_fifo(0, OUR_PRIORITY) == 0;
}

void hl_guardian_end(struct hl_guardian *guardian)
{
	if (!guardian || !guardian->has_begun)
		return;
	set_usual(0);
	guardian->has_begun = false;
}

/* The place of the loan to ${tid}; of the first that is free if ${tid} is 0. */
static _Atomic pid_t *find_loan(const struct hl_guardian *guardian, pid_t tid)
{
	for (size_t i = 0; i < guardian->used; i++)
		if (guardian->loans[i] == tid)
			return &guardian->loans[i];
	return NULL;
}

void hl_guardian_lift(struct hl_guardian *guardian, pid_t tid)
{
	if (!guardian || !guardian->has_begun || !is_usual(guardian, tid))
		return;
	_Atomic pid_t *loan = find_loan(guardian, 0);
	if (!loan && guardian->used < LOANS_MAX)
		loan = &guardian->loans[guardian->used++];
	if (!loan)
		return;
	*loan = tid; /* first, lest we end in between */
	if (set_fifo(tid, TARGET_PRIORITY) < 0)
		*loan = 0;
}

void hl_guardian_lower(struct hl_guardian *guardian, pid_t tid)
{
	_Atomic pid_t *loan = guardian ? find_loan(guardian, tid) : NULL;

	if (loan)
		take_back(loan);
}
