/* SPDX-License-Identifier: BSD-2-Clause */
/* What is missing is named, with a remedy that helps. */
#include "bpf/privilege.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BIT(capability) (UINT64_C(1) << (capability))

static const struct hl_process_facts own = {.pid = 4711, .uid = 1000};
static const struct hl_process_facts foreign = {.pid = 4711, .uid = 0};

/* An ordinary user on a kernel that has all it takes. */
static struct hl_privileges ordinary(uint64_t capabilities)
{
	return (struct hl_privileges){
		.capabilities = capabilities,
		.uid = 1000,
		.kernel_major = 6,
		.kernel_minor = 1,
		.has_btf = true,
		.lockdown = HL_LOCKDOWN_INTEGRITY,
		.program = "/usr/bin/heapline",
	};
}

static void assert_refused(struct hl_privileges privileges, const struct hl_process_facts *target,
			   unsigned needs, int code, const char *sentence)
{
	struct hl_error err = {0};

	assert_int_equal(hl_privilege_suffices(&privileges, target, needs, &err), code);
	assert_string_equal(err.text, sentence);
}

static void assert_enough(struct hl_privileges privileges, const struct hl_process_facts *target,
			  unsigned needs)
{
	struct hl_error err = {0};

	assert_int_equal(hl_privilege_suffices(&privileges, target, needs, &err), 0);
	assert_string_equal(err.text, "");
}

static void an_ordinary_user_is_told_what_is_missing(void **state)
{
	(void)state;
	assert_refused(ordinary(0), &own, HL_NEED_BPF | HL_NEED_TARGET, -EPERM,
		       "cannot trace process '4711': CAP_BPF and CAP_PERFMON are missing; run "
		       "heapline as root, or once 'sudo setcap cap_bpf,cap_perfmon+ep "
		       "/usr/bin/heapline'");
}

static void a_process_of_somebody_else_takes_more(void **state)
{
	(void)state;
	assert_refused(
		ordinary(0), &foreign, HL_NEED_BPF | HL_NEED_PAGEMAP, -EPERM,
		"cannot trace process '4711': CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and "
		"CAP_DAC_READ_SEARCH are missing; run heapline as root, or once 'sudo setcap "
		"cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep "
		"/usr/bin/heapline'");
}

static void what_is_there_stays_in_the_remedy(void **state)
{
	(void)state;
	assert_refused(ordinary(BIT(CAP_BPF) | BIT(CAP_PERFMON)), &foreign,
		       HL_NEED_BPF | HL_NEED_TARGET, -EPERM,
		       "cannot trace process '4711': CAP_SYS_PTRACE is missing; run heapline as "
		       "root, or once 'sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep "
		       "/usr/bin/heapline'");
}

static void capabilities_that_suffice_are_enough(void **state)
{
	uint64_t two = BIT(CAP_BPF) | BIT(CAP_PERFMON);

	(void)state;
	assert_enough(ordinary(two), &own, HL_NEED_BPF | HL_NEED_TARGET | HL_NEED_PAGEMAP);
	assert_enough(ordinary(two | BIT(CAP_SYS_PTRACE)), &foreign, HL_NEED_BPF | HL_NEED_TARGET);
	assert_enough(ordinary(BIT(CAP_SYS_ADMIN)), &own, HL_NEED_BPF | HL_NEED_PERF_UPROBES);
	assert_enough(ordinary(UINT64_MAX), &foreign, UINT32_MAX);
}

static void perf_uprobes_take_an_administrator(void **state)
{
	(void)state;
	assert_refused(ordinary(BIT(CAP_BPF) | BIT(CAP_PERFMON)), &own,
		       HL_NEED_BPF | HL_NEED_PERF_UPROBES, -EPERM,
		       "cannot trace process '4711': CAP_SYS_ADMIN is missing; run heapline as "
		       "root, or once 'sudo setcap cap_bpf,cap_perfmon,cap_sys_admin+ep "
		       "/usr/bin/heapline'");
}

static void kernels_that_lack_what_it_takes_are_named(void **state)
{
	struct hl_privileges old = ordinary(UINT64_MAX), bare = old, locked = old, nested = old;

	(void)state;
	old.kernel_major = 5;
	old.kernel_minor = 16;
	assert_refused(
		old, &own, HL_NEED_BPF, -ENOTSUP,
		"cannot trace on kernel 5.16: 5.17 or newer is needed; use 'heapline record' "
		"there");
	old.kernel_minor = 17;
	assert_enough(old, &own, HL_NEED_BPF);
	bare.has_btf = false;
	assert_refused(bare, &own, HL_NEED_BPF, -ENOTSUP,
		       "cannot trace here: the kernel does not describe its types in "
		       "'/sys/kernel/btf/vmlinux'; boot one that was built with "
		       "CONFIG_DEBUG_INFO_BTF, or mount /sys");
	locked.lockdown = HL_LOCKDOWN_CONFIDENTIALITY;
	assert_refused(locked, &own, HL_NEED_BPF, -EPERM,
		       "cannot trace here: the kernel is locked down (confidentiality), so that "
		       "programs may not read memory; boot with 'lockdown=integrity' or without "
		       "Secure Boot");
	nested.in_user_namespace = true;
	assert_refused(nested, &own, HL_NEED_BPF, -EPERM,
		       "cannot trace process '4711': heapline runs in a user namespace, where "
		       "capabilities do not count; run it on the host");
}

static void what_we_have_is_read(void **state)
{
	struct hl_privileges privileges;

	(void)state;
	hl_privilege_read(&privileges);
	assert_int_equal(privileges.uid, geteuid());
	assert_true(privileges.kernel_major >= 5);
	assert_non_null(strstr(privileges.program, "test_privilege"));
	char line[256];
	unsigned long long effective = 0;
	FILE *status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof(line), status))
		sscanf(line, "CapEff: %llx", &effective);
	fclose(status);
	assert_true(privileges.capabilities == effective);
}

/* In a child, so that nothing has to be won back. */
static void without_privileges_a_check_fails(void **state)
{
	struct hl_process_facts init = {.pid = 1, .uid = 0};
	int status;

	(void)state;
	pid_t child = fork();
	if (child == 0) {
		struct hl_error err = {0};
		if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(2);
		int r = hl_privilege_check(&init, HL_NEED_BPF | HL_NEED_TARGET, &err);
		_exit(r < 0 && err.text[0] ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static char heard[512];

static void hear(const char *line)
{
	strncat(heard, line, sizeof(heard) - strlen(heard) - 2);
	strcat(heard, "|");
}

static void libbpf_is_heard_and_not_seen(void **state)
{
	struct hl_error err = {0};

	(void)state;
	heard[0] = '\0';
	hl_privilege_log_start(hear);
	assert_null(bpf_object__open_file("/dev/null", NULL));
	assert_true(heard[0] != '\0');
	assert_null(strchr(heard, '\n'));
	hl_privilege_explain("load the programs", -EPERM, &err);
	assert_non_null(strstr(err.text, "cannot load the programs: Operation not permitted ("));
	assert_null(strstr(err.text, "(libbpf: "));
	hl_privilege_log_forget();
	err = (struct hl_error){0};
	hl_privilege_explain("load the programs", -EPERM, &err);
	assert_null(strchr(err.text, '('));
}

static void an_explanation_without_a_complaint_has_no_parentheses(void **state)
{
	struct hl_error err = {0};

	(void)state;
	hl_privilege_log_start(NULL);
	assert_int_equal(hl_privilege_explain("link the probes", -EINVAL, &err), -EINVAL);
	assert_string_equal(err.text,
			    "cannot link the probes: Invalid argument; the kernel may lack what it "
			    "takes: --verbose shows what it says");
}

static void tell(libbpf_print_fn_t say, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(LIBBPF_WARN, format, arguments);
	va_end(arguments);
}

static void what_the_verifier_says_is_the_reason(void **state)
{
	struct hl_error err = {0};

	(void)state;
	hl_privilege_log_start(NULL);
	libbpf_print_fn_t say = libbpf_set_print(NULL);
	libbpf_set_print(say);
	tell(say, "libbpf: prog 'p': BPF program load failed: Argument list too long\n");
	tell(say, "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\n"
		  "0: R1=ctx() R10=fp0\n"
		  "BPF program is too large. Processed 1000001 insn\n"
		  "processed 1000001 insns (limit 1000000) max_states_per_insn 4\n"
		  "-- END PROG LOAD LOG --\n");
	hl_privilege_explain("load the programs of 'stacks'", -E2BIG, &err);
	assert_string_equal(err.text,
			    "cannot load the programs of 'stacks': the kernel's verifier refuses "
			    "them (BPF program is too large. Processed 1000001 insn); 'heapline "
			    "attach' does not need them");
	hl_privilege_log_forget();
	err = (struct hl_error){0};
	hl_privilege_explain("load the programs of 'stacks'", -E2BIG, &err);
	assert_non_null(strstr(err.text, "make the tables smaller"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ordinary_user_is_told_what_is_missing),
		cmocka_unit_test(a_process_of_somebody_else_takes_more),
		cmocka_unit_test(what_is_there_stays_in_the_remedy),
		cmocka_unit_test(capabilities_that_suffice_are_enough),
		cmocka_unit_test(perf_uprobes_take_an_administrator),
		cmocka_unit_test(kernels_that_lack_what_it_takes_are_named),
		cmocka_unit_test(what_we_have_is_read),
		cmocka_unit_test(without_privileges_a_check_fails),
		cmocka_unit_test(libbpf_is_heard_and_not_seen),
		cmocka_unit_test(what_the_verifier_says_is_the_reason),
		cmocka_unit_test(an_explanation_without_a_complaint_has_no_parentheses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
