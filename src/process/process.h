/* SPDX-License-Identifier: BSD-2-Clause */
/* What /proc says of running processes: its files, facts from them, and processes by name. */
#pragma once

#include "base/error.h"
#include "process/thread_registers.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct hl_maps;

/* ---- files of /proc/PID ---- */

/*
 * The thread through which the kernel shows memory, program and files of ${pid}, by /proc as well as by
 * process_vm_readv(): the first one, or, once that has ended, another that lives. ${pid} where none does. What was so a millisecond ago is told again.
 */
pid_t hl_proc_thread(pid_t pid);

/*
 * Reads /proc/PID/${file} into ${text}, cut at ${capacity} - 1 bytes, with a NUL after. The
 * length, or a negative errno: -ESRCH when there is no such process (or it ended while being read),
 * -EACCES when it may not be read. What belongs to the memory, such as "maps", is that of hl_proc_thread().
 */
ssize_t hl_proc_read(pid_t pid, const char *file, char *text, size_t capacity);

/* The same of the status of hl_proc_thread(), without the groups, of which a process can have 65,536: other lines follow
 * theirs. */
ssize_t hl_proc_read_status(pid_t pid, char *text, size_t capacity);

/* The pid of ${pid} in its own PID namespace; 0 when unknown. */
uint32_t hl_process_inner_pid(pid_t pid);

/* Same contract as hl_proc_read(), for a file of any length, into memory that the caller frees. */
int hl_proc_read_all(pid_t pid, const char *file, char **ret_text, size_t *ret_length);

/* The same of a file that is open, from where it is read next. */
int hl_proc_read_open(int fd, char **ret_text, size_t *ret_length);

/* Opens the memory of ${pid}, by hl_proc_thread(), with ${flags}, O_RDONLY or O_RDWR. A descriptor (close-on-exec), which stays that
 * of the program that runs now, or a negative errno as hl_proc_read(). */
int hl_proc_open_memory(pid_t pid, int flags);

/* A line of /proc/PID/mountinfo, see proc(5). */
struct hl_mount {
	uint64_t id;
	uint32_t dev_major, dev_minor;
	char root[PATH_MAX];  /* the part of the file system that is mounted */
	char point[PATH_MAX]; /* where */
	char type[32];	      /* of the file system */
	const char *
		options; /* of the file system, in the text that was read: up to the end of its line */
};

/* Reads the next line that makes sense of ${text}, which it moves on behind it. False when there is none. NULL has none. */
bool hl_mount_next(const char **text, struct hl_mount *ret_mount);

/*
 * What helps where a process may not be read or, if so, entered. CAP_SYS_PTRACE alone is not enough for another user's:
 * its files below /proc may be opened by their owner only.
 */
const char *hl_proc_access_remedy(bool enters);

/* Sets the sentence for ${code}, a negative errno from when ${what} ("the mappings") of ${pid} was
 * to be read, and returns it. */
int hl_proc_error(pid_t pid, int code, const char *what, struct hl_error *err);

/* ---- facts ---- */

struct hl_process_facts {
	pid_t pid, parent_pid;
	uint64_t start_ticks; /* since boot, in clock ticks: with the pid, an identity */
	uint64_t start_realtime_ns;
	uint64_t cpu_ns; /* used so far, by all its threads */
	uint32_t uid;
	uint32_t threads;
	char comm[16];
	char *executable; /* path as the target sees it; "" when it may not be read */
	char **command;	  /* NULL-terminated argv; {comm} when it is empty */
};

/* 0; -ESRCH when there is no process ${pid}, when it is a zombie, or when ${pid} is a thread's (the
 * sentence then names the process); -EACCES; -ENOMEM. */
int hl_process_facts_read(pid_t pid, struct hl_process_facts *ret_facts, struct hl_error *err);

void hl_process_facts_release(struct hl_process_facts *facts);

/* What /proc/PID/status says that decides how a process can be looked at. */
struct hl_process_condition {
	char state;	   /* 'S', 'R', 'T' ... */
	pid_t tracer_pid;  /* of the debugger that has it; 0: none */
	int seccomp_mode;  /* 2: it has a filter */
	bool is_protected; /* not dumpable: the files of /proc are root's, not its user's */
};

int hl_process_condition_read(pid_t pid, struct hl_process_condition *ret_condition,
			      struct hl_error *err);

/* The state of a process or a thread, 'S', 'R', 'D' ...; 'Z' when it has ended and nobody has waited for it
 * yet, 'X' when there is none. */
char hl_process_state(pid_t tid);

/* Whether it has ended: state 'Z' or 'X'. */
bool hl_process_has_ended(pid_t tid);

/* Whether its cgroup is frozen, as by 'docker pause', where cgroups are mounted in their usual place. */
bool hl_process_is_frozen(pid_t pid);
#define HL_PROCESS_FROZEN "its cgroup is frozen, as by 'docker pause'; let it go on, and try again"

/* The number in ${field} of /proc/PID/stat, counted from 1 as in proc(5), after the state. 0; -EBADMSG;
 * what hl_proc_read() says. */
int hl_process_stat_field(pid_t pid, int field, uint64_t *ret_number);
#define HL_STAT_START_TICKS 22

/* When a process began, CLOCK_REALTIME, by its field HL_STAT_START_TICKS. */
uint64_t hl_process_start_ns(uint64_t start_ticks);

/*
 * The value of ${type}, AT_ENTRY ..., in the auxiliary vector of ${pid}; 0 when it cannot be read. For a program that was
 * started by executing its dynamic loader ("ld.so PROGRAM"), AT_PHDR, AT_PHNUM and AT_ENTRY are the program's, as
 * soon as the loader has loaded it.
 */
uint64_t hl_process_auxv(pid_t pid, uint64_t type);

/*
 * The path of the program in ${pid} as the target sees it: what /proc/PID/exe names, or what the dynamic loader has loaded if
 * that was executed. A file that was deleted has the path that it had. To be freed; "" when it may not be read, NULL when
 * out of memory.
 */
char *hl_process_executable(pid_t pid);

/* The same, or the link by which the program was run if that has a name of its own: redis-server, which is a link to
 * redis-check-rdb. A link whose name is the beginning of the file's says less: perl5 of perl5.36. */
char *hl_process_run_path(pid_t pid);

/* Gives mappings of the program's file that path, for those who show names. 0 or -ENOMEM. */
int hl_process_name_maps(pid_t pid, struct hl_maps *maps);

/* Whether ${pid} is in another ${kind} of namespace, "mnt" or "user", than this process. 0 or 1, or
 * a negative errno when that cannot be told. */
int hl_process_is_elsewhere(pid_t pid, const char *kind);

/* CPU time that all threads of ${pid} have used, in ns; negative errno when it has ended. */
int64_t hl_process_cpu_ns(pid_t pid);

/* Time that all living threads of ${pid} have waited for a processor, in ns; 0 where the kernel does
 * not tell. */
uint64_t hl_process_wait_ns(pid_t pid);

/* What its file status says, which the kernel writes without a look at its mappings. */
struct hl_process_status {
	int64_t rss_bytes, anonymous_bytes, threads;
	int64_t swap_bytes; /* private memory on swap */
	int64_t uid; /* of its user; -1: its real, effective and saved ones differ, or it has ended */
	int64_t huge_page_bytes; /* of hugetlbfs, in no RSS */
};

/* All else zero of one that has ended. */
struct hl_process_status hl_process_status_read(pid_t pid);

/* What smaps_rollup says of memory in RAM. Pages are of the system's page size. */
struct hl_process_rss {
	uint64_t rss_pages;
	uint64_t anon_pages;	 /* Anonymous */
	uint64_t pss_anon_pages; /* Pss_Anon; 0: it has none */
	uint64_t shmem_pages;	 /* Pss_Shmem is shared out; this is RssShmem of status */
	uint64_t swap_pages;
	uint64_t touched_pages; /* Referenced, since hl_process_touched_clear() */
};

/* Begins to count the pages that are touched: clears the mark of each page that it was, which the kernel chooses by what it takes
 * back. 0 or a negative errno: only its user and root may do so. */
int hl_process_touched_clear(pid_t pid);

int hl_process_rss_read(pid_t pid, struct hl_process_rss *ret_rss, struct hl_error *err);

/* The threads that ${pid} has now; ${ret_tids} to be freed. 0 or a negative errno. */
int hl_process_threads(pid_t pid, pid_t **ret_tids, size_t *ret_count);

/* The stack pointers of those threads of ${pid} that wait in the kernel; ${ret_pointers} to be freed. 0 or a negative errno. */
int hl_process_stack_pointers(pid_t pid, uint64_t **ret_pointers, size_t *ret_count);

/* ---- by name ---- */

#define HL_PROCESS_NAME_MAX 64

/* What a process is called: the program in its argv[0], see hl_service_program(), or, where that is empty, its comm. */
struct hl_named_process {
	pid_t pid;
	char name[HL_PROCESS_NAME_MAX]; /* cut off */
	char comm[16];
};

/*
 * Calls ${visit} for each process but this one and the kernel's threads, in rising order of number,
 * until it returns false. 0 or a negative errno.
 */
int hl_process_each(bool (*visit)(const struct hl_named_process *process, void *context),
		    void *context);

/*
 * The process whose comm or name is ${name}. 0; -ESRCH when there is none, -EEXIST when there are
 * several, which the sentence lists.
 */
int hl_process_by_name(const char *name, pid_t *ret_pid, struct hl_error *err);

/* ---- threads of other processes that sleep in the kernel ---- */

struct hl_sleeper {
	pid_t tid;
	bool runs;	   /* it does not sleep: its registers are not known */
	uint64_t switches; /* to other threads, so far: if it was fewer before, it has run since */
	struct hl_thread_registers registers; /* that it returns to user space with */
};

/* Who tells which threads of a process sleep. One thread at a time. */
struct hl_sleeper_source {
	/* Lists them all, and those that run, by rising tid; ${ret_sleepers} is to be freed. 0 or a negative errno. */
	int (*read)(void *context, struct hl_sleeper **ret_sleepers, size_t *ret_count);
	void *context;
};

/* ---- interrupted call ---- */

/*
 * System calls that a stop by ptrace interrupts. Most of them the kernel makes again by itself, with
 * what is left of their timeout. Two kinds it does not leave as they were:
 *
 * - epoll_wait() and its like end with EINTR, see signal(7), which a program need not expect where
 *   no signal came;
 * - nanosleep(), poll(), a futex with a timeout and others go on by restart_syscall(2), which the
 *   program has never called: a seccomp filter may end the program for it, or fail it.
 *
 * Such a call is made again instead, and a relative timeout begins again.
 */

/*
 * Where the kernel settles how a call ends before a tracer sees the thread, the first kind needs its first argument, which
 * /proc shows before, and has not slept in another call meanwhile. A signal's handler would then run before a call that is made
 * again and not end it, so where a signal waits the registers are set back.
 */
struct hl_interrupted_call {
	uint64_t number, first, sp, pc; /* first: its argument; once it is mended, its result */
	uint64_t switches;  /* to other threads; 0: the thread did not sleep in a call */
	uint64_t mended_pc; /* 0: nothing was changed, or is to be set back */
};

/* Before the thread is traced: from then on signals that it ignores end its call, too. ${ret_call} is zeroed. */
void hl_interrupted_call_look(pid_t tid, struct hl_interrupted_call *ret_call);

/*
 * Sets ${registers} of the stopped thread ${tid} so that an interrupted call of these kinds is made
 * again when the thread goes on; unless a signal with a handler comes first, which ends it with EINTR
 * as ever. Each stop of any thread has to call this, and to write the registers at once: then this
 * also holds if we are killed. Whether they have changed.
 */
bool hl_interrupted_call_mend(pid_t tid, struct hl_interrupted_call *call,
			      struct hl_thread_registers *registers);

/* Before the thread goes on, with ${signal} if that is not 0. */
void hl_interrupted_call_go_on(pid_t tid, const struct hl_interrupted_call *call, int signal);

/* ---- kernel words ---- */

/*
 * Words that a program handed to the kernel, and that only the kernel has until it hands them back.
 * Linux shows those of epoll_ctl(2), in /proc/PID/fdinfo, and of timer_create(2), in /proc/PID/timers.
 */

enum hl_kernel_holder {
	HL_KERNEL_EPOLL, /* epoll_event.data */
	HL_KERNEL_TIMER, /* sigevent.sigev_value */
};

/* ${words} of the epoll descriptor, or of the timer, ${number}. Non-zero ends the reading. */
typedef int hl_kernel_visit(void *context, enum hl_kernel_holder holder, uint32_t number,
			    const uint64_t *words, size_t count);

/*
 * Calls ${visit} once for each epoll descriptor and timer of ${pid} that has words, until it returns
 * non-zero, and returns that. ${ret_has_io_uring} is whether a descriptor is io_uring's, whose requests
 * have words, too, that Linux does not show. 0, or -ENOMEM; what cannot be read is left out.
 */
int hl_kernel_words_read(pid_t pid, hl_kernel_visit *visit, void *context, bool *ret_has_io_uring);
