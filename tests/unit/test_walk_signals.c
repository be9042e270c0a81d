/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks from signal handlers: through what they interrupted, at any instruction of it. */
#include "walk_capture.h"

#include <alloca.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void handle_by_capture(int signal)
{
	(void)signal;
	capture();
}

static void raise_in_leaf(void)
{
	raise(SIGUSR1);
}

static void signal_handlers_are_walked_through(void **state)
{
	(void)state;
	install(SIGUSR1, handle_by_capture, 0);
	for (unsigned depth = 0; depth < 20; depth++)
		recurse(depth, raise_in_leaf);
	assert_all_equal(20);
}

/* As the kernel knows it: sigaction(2) of the C library hides it. */
struct kernel_action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

static void what_handlers_return_to_has_its_own_address(void **state)
{
	struct kernel_action action;
	unsigned found = 0;

	(void)state;
	install(SIGUSR1, handle_by_capture, 0);
	assert_int_equal(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &action, sizeof(action.mask)), 0);
	if (!(action.flags & 0x04000000)) /* SA_RESTORER */
		skip();			  /* aarch64's is in the vDSO */
	recurse(3, raise_in_leaf);
	for (uint32_t i = 0; i < walk.depth; i++)
		found += (walk.frames[i].key & HL_FRAME_PC_MASK) ==
			 (uint64_t)(uintptr_t)action.restorer;
	assert_int_equal(found, 1);
}

static void handlers_on_another_stack_are_walked_through(void **state)
{
	(void)state;
	size_t size = 64 << 10;
	stack_t alternate = {.ss_sp = malloc(size), .ss_size = size};
	stack_t none = {.ss_flags = SS_DISABLE};
	assert_int_equal(sigaltstack(&alternate, NULL), 0);
	install(SIGUSR1, handle_by_capture, SA_ONSTACK);
	for (unsigned depth = 0; depth < 20; depth++) {
		recurse(depth, raise_in_leaf);
		recurse(depth, capture); /* and back on the thread's own */
	}
	assert_int_equal(sigaltstack(&none, NULL), 0);
	free(alternate.ss_sp);
	assert_all_equal(40);
}

static sigjmp_buf fault_exit;

static void handle_fault(int signal)
{
	(void)signal;
	capture();
	siglongjmp(fault_exit, 1);
}

static NOINLINE unsigned leaf_without_frame(const volatile unsigned *address)
{
	return *address;
}

static const unsigned *volatile nowhere = (const unsigned *)8;

static void read_nowhere(void)
{
	sink = sink + leaf_without_frame(nowhere);
}

static void faults_in_leaves_are_walked(void **state)
{
	(void)state;
	install(SIGSEGV, handle_fault, 0);
	for (volatile unsigned depth = 0; depth < 10; depth++)
		if (!sigsetjmp(fault_exit, 1))
			recurse(depth, read_nowhere);
	signal(SIGSEGV, SIG_DFL);
	assert_all_equal(10);
}

/*
 * Steps through code instruction by instruction, capturing at each: prologues, epilogues, PLT
 * entries, the resolver of lazy binding, the vdso. int3 begins and ends it.
 */
static unsigned steps_in_vdso, steps_in_loader;

static void handle_step(int signal, siginfo_t *info, void *argument)
{
	ucontext_t *context = argument;
	uint64_t pc = CONTEXT_PC(context);
	struct dl_find_object found;

	(void)signal;
	if (info->si_code != TRAP_TRACE)
		TOGGLE_STEPS(context);
	if (_dl_find_object((void *)pc, &found))
		return;
	steps_in_vdso += (uint64_t)found.dlfo_map_start == getauxval(AT_SYSINFO_EHDR);
	steps_in_loader += (uint64_t)found.dlfo_link_map->l_addr == getauxval(AT_BASE);
	capture();
}

static void begin_steps(void)
{
	struct sigaction action = {.sa_sigaction = handle_step, .sa_flags = SA_SIGINFO};

	if (!CAN_STEP)
		skip();
	assert_int_equal(sigaction(SIGTRAP, &action, NULL), 0);
	steps_in_vdso = steps_in_loader = 0;
}

static NOINLINE unsigned realigned_around(void (*callback)(void))
{
	_Alignas(64) volatile char buffer[192];
	volatile char *extra = alloca(sink % 64 + 1);

	extra[0] = 1;
	buffer[0] = extra[0];
	callback();
	return (unsigned)buffer[0];
}

static NOINLINE void break_here(void)
{
	BREAKPOINT();
}

static void nothing(void)
{
}

static void every_instruction_can_be_interrupted(void **state)
{
	(void)state;
	begin_steps();
	sink = sink + (unsigned)strtol("4711", NULL, 10); /* bound now */
	BREAKPOINT();
	recurse(2, nothing);
	sink = sink + (unsigned)strtol("4711", NULL, 10);
	BREAKPOINT();
	assert_all_equal(50);
}

/* Not the epilogue: gcc 12 says there, for one instruction, that rbp is still to be restored. */
static void every_instruction_of_a_realigning_prologue_can_be_interrupted(void **state)
{
	(void)state;
	realigned_around(nothing); /* what it calls is bound now */
	begin_steps();
	BREAKPOINT();
	realigned_around(break_here);
	assert_all_equal(15);
}

/*
 * _dl_runtime_resolve finds its frame by rbx, which is known only when it is itself what was
 * interrupted: through the functions that it calls a walk is right as far as it comes.
 */
static void the_resolver_of_lazy_binding_can_be_interrupted(void **state)
{
	(void)state;
	begin_steps();
	may_stop_in_loader = true;
	BREAKPOINT();
	sink = sink + (unsigned)getppid(); /* called nowhere else: not bound yet */
	BREAKPOINT();
	if (!steps_in_loader)
		skip(); /* the program was linked to bind at once */
	assert_true(stops_in_loader > 0 && captures > stops_in_loader + 20);
	assert_all_equal(100);
}

static void the_vdso_can_be_interrupted(void **state)
{
	(void)state;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	begin_steps();
	BREAKPOINT();
	clock_gettime(CLOCK_MONOTONIC, &now);
	BREAKPOINT();
	if (!steps_in_vdso)
		skip();
	assert_all_equal(10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WALK_TEST(signal_handlers_are_walked_through),
		WALK_TEST(what_handlers_return_to_has_its_own_address),
		WALK_TEST(handlers_on_another_stack_are_walked_through),
		WALK_TEST(faults_in_leaves_are_walked),
		WALK_TEST(every_instruction_can_be_interrupted),
		WALK_TEST(every_instruction_of_a_realigning_prologue_can_be_interrupted),
		WALK_TEST(the_resolver_of_lazy_binding_can_be_interrupted),
		WALK_TEST(the_vdso_can_be_interrupted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
