/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stack walker with several targets at once: programs that run this file's code, at addresses
 * of their own, at the same ones, and from another file, each along paths of its own. Needs the
 * right to load BPF programs.
 */
#include "bpf/walker.h"

#include "walk_test.skel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NOINLINE       __attribute__((noinline))
#define PATH_STEPS     8u
#define SHARED_PATH    200u
#define ROUNDS	       300u
#define PLACES	       4u
#define SKIPPED_STATUS 77 /* meson's */

/* ---- what the targets run ---- */

void test_walker_probed(void);
NOINLINE void test_walker_probed(void)
{
	__asm__ volatile("nop");
}

static void take_path(unsigned path, unsigned steps);

static NOINLINE void left(unsigned path, unsigned steps)
{
	take_path(path, steps);
	__asm__ volatile("nop; nop"); /* differs, and is not a tail call */
}

static NOINLINE void right(unsigned path, unsigned steps)
{
	take_path(path, steps);
	__asm__ volatile("nop");
}

static inline __attribute__((always_inline)) void take_path(unsigned path, unsigned steps)
{
	if (!steps)
		test_walker_probed();
	else if (path & 1)
		right(path >> 1, steps - 1);
	else
		left(path >> 1, steps - 1);
}

/* A library's code calls, and after it another one's, which may well be where that was. */
static void call_from_plugin(const char *path)
{
	void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	unsigned (*call)(void (*)(void)) =
		plugin ? (unsigned (*)(void (*)(void)))(uintptr_t)dlsym(plugin, "plugin_call")
		       : NULL;

	if (!call)
		_exit(98);
	for (unsigned i = 0; i < 3; i++)
		call(test_walker_probed);
	dlclose(plugin);
}

/* No constants: the compiler would make functions of their own for these. */
static volatile unsigned path_steps = PATH_STEPS, shared_path = SHARED_PATH;

/* Answers each byte of standard input by one, after it has done what that says. */
static void serve(int input, int output)
{
	char command;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(input, &command, 1) == 1) {
		if (command == 'p') {
			call_from_plugin(getenv("WALK_PLUGIN_A"));
			call_from_plugin(getenv("WALK_PLUGIN_B"));
		} else
			for (unsigned i = 0; i < ROUNDS; i++) {
				take_path((unsigned char)command, path_steps);
				take_path(shared_path, path_steps);
			}
		if (write(output, &command, 1) != 1)
			break;
	}
	_exit(0);
}

/* ---- programs ---- */

struct program {
	pid_t pid;
	int input, output;
	uint32_t number; /* as a target; 0: not one */
	struct hl_target *target;
};

/* ${file} NULL: a child without exec, at this program's addresses. */
static struct program start_program(const char *file)
{
	struct program program = {0};
	int in[2], out[2];
	char ready = 1;

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	program.pid = fork();
	if (!program.pid) {
		dup2(in[0], 100);
		dup2(out[1], 101);
		close(in[1]);
		if (file)
			execl(file, file, "target", NULL);
		else
			serve(100, 101);
		_exit(99);
	}
	close(in[0]);
	close(out[1]);
	program.input = in[1];
	program.output = out[0];
	/* Its code is in place when it answers. */
	assert_int_equal(write(program.input, &ready, 1), 1);
	assert_int_equal(read(program.output, &ready, 1), 1);
	return program;
}

static void order(const struct program *program, unsigned char command)
{
	assert_int_equal(write(program->input, &command, 1), 1);
}

static void end_program(struct program *program)
{
	kill(program->pid, SIGKILL);
	waitpid(program->pid, NULL, 0);
	close(program->input);
	close(program->output);
}

/* ---- the walker ---- */

struct fixture {
	struct hl_target_files files;
	struct walk_test *skeleton;
	struct hl_walker *walker;
	struct bpf_link *links[2];
	char copy[32]; /* of this program */
};

static void add_target(struct fixture *fixture, struct program *program)
{
	struct hl_error err = {{0}};

	if (hl_target_new(program->pid, &fixture->files, &program->target, &err) < 0 ||
	    hl_walker_add(fixture->walker, program->target, &program->number, &err) < 0)
		fail_msg("%s", err.text);
}

static void copy_program(char *path)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = mkstemp(path);
	struct stat status;

	assert_int_equal(fstat(from, &status), 0);
	assert_int_equal(fchmod(to, 0700), 0);
	for (ssize_t left_bytes = status.st_size; left_bytes;) {
		ssize_t sent = sendfile(to, from, NULL, (size_t)left_bytes);
		assert_true(sent > 0);
		left_bytes -= sent;
	}
	close(from);
	close(to);
}

static void open_walker(struct fixture *fixture)
{
	struct hl_error err = {{0}};

	*fixture = (struct fixture){.copy = "/tmp/test_walker-XXXXXX"};
	copy_program(fixture->copy);
	fixture->skeleton = walk_test__open();
	assert_non_null(fixture->skeleton);
	if (hl_walker_new(fixture->skeleton->obj, PLACES, NULL, NULL, &fixture->walker, &err) < 0)
		fail_msg("%s", err.text);
}

static void start_walker(struct fixture *fixture)
{
	const char *const files[] = {"/proc/self/exe", fixture->copy};
	struct hl_error err = {{0}};

	LIBBPF_OPTS(bpf_uprobe_opts, options, .func_name = "test_walker_probed");
	assert_int_equal(walk_test__load(fixture->skeleton), 0);
	if (hl_walker_start(fixture->walker, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < 2; i++) {
		fixture->links[i] = bpf_program__attach_uprobe_opts(
			fixture->skeleton->progs.at_entry, -1, files[i], 0, &options);
		assert_non_null(fixture->links[i]);
	}
}

static void close_walker(struct fixture *fixture)
{
	bpf_link__destroy(fixture->links[0]);
	bpf_link__destroy(fixture->links[1]);
	hl_walker_free(fixture->walker);
	walk_test__destroy(fixture->skeleton);
	unlink(fixture->copy);
}

/* The answers come while records do. */
static void await(const struct fixture *fixture, const struct program *programs, size_t count)
{
	char answer;

	for (size_t i = 0; i < count; i++)
		assert_int_equal(read(programs[i].output, &answer, 1), 1);
	assert_int_equal(hl_walker_poll(fixture->walker, 0, NULL), 0);
}

/* The file that ${frame} of target ${number} is in, and the address there. */
static const char *place_of(const struct fixture *fixture, uint32_t number, uint64_t frame,
			    uint64_t *ret_address)
{
	const struct hl_target *target = hl_walker_target(fixture->walker, number);
	uint64_t module = frame >> HL_MODULE_SHIFT, pc = frame & HL_FRAME_PC_MASK;

	assert_in_range(module, 1, target->module_count);
	assert_in_range(pc, target->modules[module - 1].start, target->modules[module - 1].end);
	*ret_address = pc - target->modules[module - 1].load_bias;
	return target->modules[module - 1].path;
}

/* The address in this program's file. */
static uint64_t address_of(const void *function)
{
	struct hl_target *self;
	uint64_t address;

	assert_int_equal(hl_target_new(getpid(), NULL, &self, NULL), 0);
	uint32_t module = hl_target_module_at(self, (uint64_t)function);
	address = (uint64_t)function - self->modules[module - 1].load_bias;
	hl_target_free(self);
	return address;
}

/* The path of a stack whose innermost frame is ${node}, which must be all in ${file}. */
static unsigned path_of(const struct fixture *fixture, uint32_t number, uint32_t node,
			const char *file)
{
	static uint64_t right_address, left_address;
	uint32_t count;
	const struct hl_recording_node *nodes = hl_walker_nodes(fixture->walker, number, &count);
	unsigned path = 0;

	if (!right_address) {
		right_address = address_of((void *)(uintptr_t)right);
		left_address = address_of((void *)(uintptr_t)left);
	}
	for (unsigned i = 0; i < PATH_STEPS; i++, node = nodes[node - 1].parent) {
		uint64_t address;
		assert_in_range(node, 1, count);
		assert_string_equal(place_of(fixture, number, nodes[node - 1].frame, &address),
				    file);
		uint64_t in_right = address - right_address, in_left = address - left_address;
		bool is_right = in_right < in_left; /* the nearer one that is not after it */
		assert_true((is_right ? in_right : in_left) < 256);
		path = path << 1 | is_right;
	}
	return path;
}

/* Events of target ${number} by path, of which ${ret_counts} has 256. */
static void counts_of(const struct fixture *fixture, uint32_t number, const char *file,
		      uint64_t *ret_counts)
{
	int map = bpf_map__fd(fixture->skeleton->maps.stack_counts);
	uint64_t stack, count, *last = NULL;

	memset(ret_counts, 0, 256 * sizeof(*ret_counts));
	while (bpf_map_get_next_key(map, last, &stack) == 0) {
		uint32_t whose, node = hl_walker_node(fixture->walker, stack, &whose);
		last = &stack;
		assert_int_equal(bpf_map_lookup_elem(map, &stack, &count), 0);
		assert_true(!stack || node);
		if (node && whose == number)
			ret_counts[path_of(fixture, number, node, file)] += count;
	}
}

static void assert_counts(const struct fixture *fixture, const struct program *program,
			  const char *file, unsigned path, unsigned rounds)
{
	uint64_t counts[256];

	counts_of(fixture, program->number, file, counts);
	for (unsigned i = 0; i < 256; i++)
		assert_int_equal(counts[i], i == SHARED_PATH || i == path ? ROUNDS * rounds : 0);
}

static uint64_t events_without_stack(const struct fixture *fixture)
{
	uint64_t none = 0, count = 0;

	bpf_map_lookup_elem(bpf_map__fd(fixture->skeleton->maps.stack_counts), &none, &count);
	return count;
}

static char self[256];

/* Two at their own addresses, one from another file, one that is not a target; then two more at the
 * same addresses. */
static void stacks_of_each_target_are_its_own(void **state)
{
	const unsigned paths[] = {7, 91, 162, 33, 54, 55};
	struct program programs[6];
	struct fixture fixture;

	(void)state;
	open_walker(&fixture);
	const char *const files[] = {self, self, fixture.copy, self, NULL, NULL};
	for (size_t i = 0; i < 6; i++)
		programs[i] = start_program(files[i]);
	add_target(&fixture, &programs[0]);
	add_target(&fixture, &programs[1]);
	size_t count = fixture.files.count;
	start_walker(&fixture);
	add_target(&fixture, &programs[2]);
	assert_int_equal(fixture.files.count, count + 1); /* the copy */
	for (size_t i = 0; i < 4; i++)
		order(&programs[i], (unsigned char)paths[i]);
	await(&fixture, programs, 4);
	for (size_t i = 0; i < 3; i++)
		assert_counts(&fixture, &programs[i], files[i], paths[i], 1);
	assert_int_equal(events_without_stack(&fixture), 2 * ROUNDS);
	hl_walker_remove(fixture.walker, programs[2].number);
	add_target(&fixture, &programs[4]);
	add_target(&fixture, &programs[5]);
	for (size_t i = 0; i < 6; i++)
		order(&programs[i], (unsigned char)paths[i]);
	await(&fixture, programs, 6);
	for (size_t i = 0; i < 6; i++)
		if (i != 3)
			assert_counts(&fixture, &programs[i], files[i] ? files[i] : self, paths[i],
				      i < 2 ? 2 : 1);
	assert_int_equal(events_without_stack(&fixture), 6 * ROUNDS);
	for (size_t i = 0; i < 6; i++)
		end_program(&programs[i]);
	close_walker(&fixture);
	for (size_t i = 0; i < 6; i++)
		hl_target_free(i == 3 ? NULL : programs[i].target);
	hl_target_files_release(&fixture.files);
}

static void the_place_of_a_target_that_ends_is_free_and_its_stacks_stay(void **state)
{
	struct program programs[PLACES + 1];
	struct fixture fixture;
	uint32_t number;

	(void)state;
	open_walker(&fixture);
	start_walker(&fixture);
	for (size_t i = 0; i <= PLACES; i++)
		programs[i] = start_program(self);
	for (size_t i = 0; i < PLACES; i++) {
		add_target(&fixture, &programs[i]);
		order(&programs[i], (unsigned char)i);
	}
	await(&fixture, programs, PLACES);
	assert_int_equal(
		hl_target_new(programs[PLACES].pid, &fixture.files, &programs[PLACES].target, NULL),
		0);
	assert_int_equal(hl_walker_add(fixture.walker, programs[PLACES].target, &number, NULL),
			 -ENOSPC);
	end_program(&programs[1]);
	assert_int_equal(hl_walker_refresh(fixture.walker, NULL), 0);
	assert_int_equal(hl_walker_add(fixture.walker, programs[PLACES].target,
				       &programs[PLACES].number, NULL),
			 0);
	assert_int_equal(programs[PLACES].number, PLACES + 1);
	order(&programs[PLACES], 77);
	await(&fixture, &programs[PLACES], 1);
	for (unsigned i = 0; i < PLACES; i++)
		assert_counts(&fixture, &programs[i], self, i, 1);
	assert_counts(&fixture, &programs[PLACES], self, 77, 1);
	assert_null(hl_walker_target(fixture.walker, PLACES + 2));
	close_walker(&fixture);
	for (size_t i = 0; i <= PLACES; i++) {
		if (i != 1)
			end_program(&programs[i]);
		hl_target_free(programs[i].target);
	}
	hl_target_files_release(&fixture.files);
}

/* Events of target ${number} whose innermost frame is in ${file}. */
static uint64_t events_in(const struct fixture *fixture, uint32_t number, const char *file)
{
	int map = bpf_map__fd(fixture->skeleton->maps.stack_counts);
	uint64_t stack, count, address, sum = 0, *last = NULL;
	uint32_t node_count, whose;
	const struct hl_recording_node *nodes =
		hl_walker_nodes(fixture->walker, number, &node_count);

	while (bpf_map_get_next_key(map, last, &stack) == 0) {
		uint32_t node = hl_walker_node(fixture->walker, stack, &whose);
		last = &stack;
		assert_int_equal(bpf_map_lookup_elem(map, &stack, &count), 0);
		if (node && whose == number && nodes[node - 1].frame >> HL_MODULE_SHIFT &&
		    !strcmp(place_of(fixture, number, nodes[node - 1].frame, &address), file))
			sum += count;
	}
	return sum;
}

/* As they are heard of while they run: only a target's own list and reloads matter to it. */
static void code_that_comes_and_goes_is_each_targets_own(void **state)
{
	struct program programs[2];
	struct fixture fixture;

	(void)state;
	open_walker(&fixture);
	start_walker(&fixture);
	for (size_t i = 0; i < 2; i++) {
		programs[i] = start_program(self);
		add_target(&fixture, &programs[i]);
		order(&programs[i], i ? 9 : 'p');
	}
	await(&fixture, programs, 2);
	assert_counts(&fixture, &programs[1], self, 9, 1);
	assert_int_equal(events_in(&fixture, programs[1].number, getenv("WALK_PLUGIN_A")), 0);
	/* Code that has gone by the time the mappings are read has no name, but no wrong one either. */
	assert_true(events_in(&fixture, programs[0].number, getenv("WALK_PLUGIN_A")) <= 3);
	assert_true(events_in(&fixture, programs[0].number, getenv("WALK_PLUGIN_B")) <= 3);
	close_walker(&fixture);
	for (size_t i = 0; i < 2; i++) {
		end_program(&programs[i]);
		hl_target_free(programs[i].target);
	}
	hl_target_files_release(&fixture.files);
}

static int silent(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level;
	(void)format;
	(void)arguments;
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stacks_of_each_target_are_its_own),
		cmocka_unit_test(the_place_of_a_target_that_ends_is_free_and_its_stacks_stay),
		cmocka_unit_test(code_that_comes_and_goes_is_each_targets_own),
	};

	if (argc > 1 && !strcmp(argv[1], "target"))
		serve(100, 101);
	libbpf_set_print(silent);
	struct walk_test *skeleton = walk_test__open_and_load();
	if (!skeleton) {
		printf("skipped: BPF programs cannot be loaded here: %s\n", strerror(errno));
		return SKIPPED_STATUS;
	}
	walk_test__destroy(skeleton);
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
