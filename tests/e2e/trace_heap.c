/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that does with its heap what it is told, one command a line on standard input, and says
 * "ok" after each: test_bpf_heap.py. What it does for itself it does without the heap.
 *
 *	CALL SITE COUNT SIZE	makes COUNT blocks by CALL (malloc, calloc ...) in function SITE
 *				(site_a, site_b ...) and keeps them
 *	free SITE COUNT		frees the COUNT blocks that SITE made last
 *	free_elsewhere SITE COUNT	the same in a thread of its own
 *	grow SITE COUNT SIZE	has each of SITE's blocks grow by realloc, COUNT times by SIZE
 *	fail SITE COUNT 0	asks for more than there is, in every way
 *	churn SITE COUNT SIZE	makes and frees, keeping nothing
 *	fork SITE COUNT SIZE	has a child make blocks, and waits for its end
 *	exchange SITE COUNT SIZE	has four threads make COUNT blocks each and free each
 *				other's; SLOTS of them stay
 *	seccomp SITE 0 0	forbids itself all that it does not need, on pain of death
 *	unseen SITE NUMBER N	the same as the next, by the instruction itself
 *	seccomp SITE NUMBER N	forbids itself that system call, on pain of death, with a second
 *				argument of N or more
 *	exec PATH		becomes another program
 *	load PATH		loads a library that has a je_malloc or a plugin_allocate
 *	loaded SITE COUNT SIZE	makes blocks by that
 *	unload PATH		unloads it
 */
#include "program.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __GLIBC__ /* other C libraries come without the kernel's headers */
#include <linux/filter.h>
#include <linux/seccomp.h>
#endif

#define BLOCKS_MAX (2 << 20)
#define SITES	   7
#define SLOTS	   64
#define THREADS	   4

struct site {
	void **blocks;
	size_t *sizes;
	size_t count;
};

static struct site sites[SITES];
static void *library;
static void *(*library_malloc)(size_t size);

static void *allocate(const char *call, size_t size)
{
	void *block = NULL;

	if (strcmp(call, "malloc") == 0)
		return malloc(size);
	if (strcmp(call, "calloc") == 0)
		return calloc(2, size / 2);
	if (strcmp(call, "realloc") == 0)
		return realloc(NULL, size);
	if (strcmp(call, "reallocarray") == 0)
		return reallocarray(NULL, 2, size / 2);
	if (strcmp(call, "memalign") == 0)
		return memalign(64, size);
	if (strcmp(call, "aligned_alloc") == 0)
		return aligned_alloc(64, size);
	if (strcmp(call, "posix_memalign") == 0)
		return posix_memalign(&block, 64, size) ? NULL : block;
	if (strcmp(call, "loaded") == 0)
		return library_malloc(size);
#ifdef __GLIBC__
	if (strcmp(call, "valloc") == 0)
		return valloc(size);
	if (strcmp(call, "pvalloc") == 0)
		return pvalloc(size);
#endif
	return NULL;
}

static void make_blocks(struct site *site, const char *call, size_t count, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		site->blocks[site->count] = allocate(call, size);
		site->sizes[site->count++] = size;
	}
}

/* Each way to ask for too much; none may count, and a block that was to grow must stay. */
static void fail(void)
{
	volatile size_t huge = SIZE_MAX / 4;
	void *block = NULL, *kept = malloc(500);

	if (malloc(huge) || calloc(huge, 8) || realloc(kept, huge) || reallocarray(kept, huge, 8) ||
	    posix_memalign(&block, 64, huge) == 0 || aligned_alloc(64, huge) ||
	    posix_memalign(&block, 3, 8) == 0)
		abort();
	sites[0].blocks[sites[0].count] = kept;
	sites[0].sizes[sites[0].count++] = 500;
}

static void grow(struct site *site, size_t times, size_t step)
{
	for (size_t i = 0; i < site->count; i++)
		for (size_t k = 0; k < times; k++) {
			site->sizes[i] += step;
			site->blocks[i] = realloc(site->blocks[i], site->sizes[i]);
		}
}

static void churn(size_t count, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		void *block = malloc(size);
		KEEP(block);
		free(block);
	}
}

struct freeing {
	struct site *site;
	size_t count;
};

static void *free_blocks(void *context)
{
	struct freeing *freeing = context;

	for (size_t i = 0; i < freeing->count; i++)
		free(freeing->site->blocks[--freeing->site->count]);
	return NULL;
}

static void free_elsewhere(struct site *site, size_t count)
{
	struct freeing freeing = {site, count};
	pthread_t thread;

	if (pthread_create(&thread, NULL, free_blocks, &freeing) != 0)
		abort();
	pthread_join(thread, NULL);
}

struct exchange {
	_Atomic(void *) slots[SLOTS];
	size_t count, size;
};

static SITE void *exchange_blocks(void *context)
{
	struct exchange *exchange = context;

	for (size_t i = 0; i < exchange->count; i++) {
		size_t slot = i * 7 % SLOTS;
		void *block = malloc(exchange->size);
		free(atomic_exchange(&exchange->slots[slot], block));
	}
	return NULL;
}

static void exchange(size_t count, size_t size)
{
	static struct exchange exchange;
	pthread_t threads[THREADS];

	exchange.count = count;
	exchange.size = size;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, exchange_blocks, &exchange) != 0)
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

#ifdef __GLIBC__
#define ALLOW(number)                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##number, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Filters come by the instruction itself, which no hook sees. */
static bool is_unseen;

static long install_unseen(const struct sock_fprog *program)
{
#ifdef __aarch64__
	register long number __asm__("x8") = SYS_prctl;
	register long first __asm__("x0") = PR_SET_SECCOMP,
			    second __asm__("x1") = SECCOMP_MODE_FILTER;
	register const struct sock_fprog *third __asm__("x2") = program;

	__asm__ volatile("svc #0" : "+r"(first) : "r"(number), "r"(second), "r"(third) : "memory");
	return first;
#else
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"((long)SYS_prctl), "D"((long)PR_SET_SECCOMP),
			   "S"((long)SECCOMP_MODE_FILTER), "d"(program)
			 : "rcx", "r11", "memory");
	return result;
#endif
}

static void install(struct sock_filter *code, unsigned short length)
{
	struct sock_fprog program = {length, code};
	long result = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);

	if (result < 0 || !is_unseen)
		result = result < 0 ? result : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
	else
		result = install_unseen(&program);
	if (result < 0)
		abort();
}

static void forbid(size_t number, size_t least)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the system call's number */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned)least, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	install(code, sizeof(code) / sizeof(code[0]));
}

static void forbid_unseen(size_t number, size_t least)
{
	is_unseen = true;
	forbid(number, least);
}

static void forbid_all_else(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the system call's number */
		ALLOW(read),
		ALLOW(write),
		ALLOW(brk),
		ALLOW(getrandom),
		ALLOW(mmap),
		ALLOW(munmap),
		ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};

	install(code, sizeof(code) / sizeof(code[0]));
}
#else
static void forbid(size_t number, size_t least)
{
	(void)number;
	(void)least;
	abort();
}

static void forbid_unseen(size_t number, size_t least)
{
	forbid(number, least);
}

static void forbid_all_else(void)
{
	abort();
}
#endif

static void act(struct site *site, const char *call, size_t count, size_t size)
{
	struct freeing freeing = {site, count};

	if (strcmp(call, "free") == 0)
		free_blocks(&freeing);
	else if (strcmp(call, "free_elsewhere") == 0)
		free_elsewhere(site, count);
	else if (strcmp(call, "grow") == 0)
		grow(site, count, size);
	else if (strcmp(call, "fail") == 0)
		fail();
	else if (strcmp(call, "churn") == 0)
		churn(count, size);
	else if (strcmp(call, "exchange") == 0)
		exchange(count, size);
	else if (strcmp(call, "unseen") == 0)
		forbid_unseen(count, size);
	else if (strcmp(call, "seccomp") == 0 && count)
		forbid(count, size);
	else if (strcmp(call, "seccomp") == 0)
		forbid_all_else();
	else
		make_blocks(site, call, count, size);
}

/* Each command runs below a function of its own name. */
#define SITE_FUNCTION(name, index)                                         \
	static SITE void name(const char *call, size_t count, size_t size) \
	{                                                                  \
		act(&sites[index], call, count, size);                     \
		BARRIER();                                                 \
	}
SITE_FUNCTION(site_a, 0)
SITE_FUNCTION(site_b, 1)
SITE_FUNCTION(site_c, 2)
SITE_FUNCTION(site_d, 3)
SITE_FUNCTION(site_e, 4)
SITE_FUNCTION(site_f, 5)
SITE_FUNCTION(site_g, 6)

static void run_site(const char *name, const char *call, size_t count, size_t size)
{
	static void (*const functions[SITES])(const char *, size_t, size_t) = {
		site_a, site_b, site_c, site_d, site_e, site_f, site_g};

	functions[(name[5] - 'a') % SITES](call, count, size);
}

static void fork_site(const char *name, size_t count, size_t size)
{
	pid_t child = fork();

	if (child == 0) {
		run_site(name, "malloc", count, size);
		run_site(name, "churn", count, size);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void load(const char *path)
{
	library = dlopen(path, RTLD_NOW);
	void *function = library ? dlsym(library, "je_malloc") : NULL;

	if (library && !function)
		function = dlsym(library, "plugin_allocate");
	if (!function)
		abort();
	*(void **)&library_malloc = function;
}

static void obey(char *line)
{
	char call[32] = "", site[512] = "";
	size_t count = 0, size = 0;

	if (sscanf(line, "%31s %511s %zu %zu", call, site, &count, &size) < 2)
		abort();
	if (strcmp(call, "exec") == 0)
		execl(site, site, NULL);
	else if (strcmp(call, "load") == 0)
		load(site);
	else if (strcmp(call, "unload") == 0)
		dlclose(library);
	else if (strcmp(call, "fork") == 0)
		fork_site(site, count, size);
	else
		run_site(site, call, count, size);
}

/* One line, without the heap. */
static bool read_line(char *line, size_t capacity)
{
	size_t length = 0;

	while (length + 1 < capacity && read(STDIN_FILENO, line + length, 1) == 1)
		if (line[length++] == '\n') {
			line[length - 1] = '\0';
			return true;
		}
	return false;
}

static void *reserve(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	return memory;
}

static void say(const char *text)
{
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		_exit(1);
}

int main(void)
{
	char line[600];

	for (size_t i = 0; i < SITES; i++) {
		sites[i].blocks = reserve(BLOCKS_MAX * sizeof(void *));
		sites[i].sizes = reserve(BLOCKS_MAX * sizeof(size_t));
	}
	say("ready\n");
	while (read_line(line, sizeof(line))) {
		obey(line);
		say("ok\n");
	}
	return 0;
}
