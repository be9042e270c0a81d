/* SPDX-License-Identifier: BSD-2-Clause */
/* What /proc says about processes and their mappings. */
#include "process/maps.h"
#include "process/process.h"

#include "base/compiler.h"
#include "base/names.h"
#include "fail_allocations.h"
#include "temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE 4096u

static int parse(const char *text, struct hl_maps *maps, struct hl_error *err)
{
	return hl_maps_parse(text, strlen(text), maps, err);
}

static void lines_become_mappings(void **state)
{
	static const char text[] =
		"00400000-00401000 r-xp 00001000 fd:01 1234567 /usr/bin/two words\n"
		"00401000-00403000 rw-s 00000000 00:1c 42      /memfd:x y (deleted)\n"
		"7ffff7ff0000-7ffff7ff2000 ---p 00000000 00:00 0 \n"
		"7ffff7ff2000-7ffff7ff3000 r--p 00000000 00:00 0      [vvar]\n"
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]";
	struct hl_maps maps;

	(void)state;
	assert_int_equal(parse(text, &maps, NULL), 0);
	assert_int_equal(maps.count, 5);
	assert_int_equal(maps.maps[0].start, 0x400000);
	assert_int_equal(maps.maps[0].end, 0x401000);
	assert_int_equal(maps.maps[0].offset, 0x1000);
	assert_int_equal(maps.maps[0].dev_major, 0xfd);
	assert_int_equal(maps.maps[0].dev_minor, 1);
	assert_int_equal(maps.maps[0].inode, 1234567);
	assert_int_equal(maps.maps[0].flags, HL_MAP_READ | HL_MAP_EXEC);
	assert_string_equal(maps.maps[0].path, "/usr/bin/two words");
	assert_false(maps.maps[0].deleted);
	assert_int_equal(maps.maps[1].flags, HL_MAP_READ | HL_MAP_WRITE | HL_MAP_SHARED);
	assert_string_equal(maps.maps[1].path, "/memfd:x y");
	assert_true(maps.maps[1].deleted);
	assert_string_equal(maps.maps[2].path, "");
	assert_int_equal(maps.maps[2].flags, 0);
	assert_string_equal(maps.maps[3].path, "[vvar]");
	assert_int_equal(maps.maps[4].start, UINT64_C(0xffffffffff600000));
	hl_maps_release(&maps);
}

static void a_newline_in_a_name_is_a_newline_again(void **state)
{
	struct hl_maps maps;

	(void)state;
	assert_int_equal(
		parse("1000-2000 r--p 00000000 fd:01 7 /tmp/a\\012b\\c (deleted)\n", &maps, NULL),
		0);
	assert_string_equal(maps.maps[0].path, "/tmp/a\nb\\c");
	assert_true(maps.maps[0].deleted);
	hl_maps_release(&maps);
}

static void no_text_is_no_mappings(void **state)
{
	struct hl_maps maps;

	(void)state;
	assert_int_equal(parse("", &maps, NULL), 0);
	assert_int_equal(maps.count, 0);
	assert_null(hl_maps_find(&maps, 0x1000));
	hl_maps_release(&maps);
}

static void lines_that_make_no_sense_are_refused(void **state)
{
	static const char *const bad[] = {
		"\n",
		"1000\n",
		"1000-2000\n",
		"2000-1000 r--p 00000000 00:00 0\n",
		"1000-1000 r--p 00000000 00:00 0\n",
		"g000-2000 r--p 00000000 00:00 0\n",
		"1000-2000 q--p 00000000 00:00 0\n",
		"1000-2000 r--x 00000000 00:00 0\n",
		"1000-2000 r-- 00000000 00:00 0\n",
		"1000-2000 r--p 0000000\n",
		"1000-2000 r--p 00000000 0000 0\n",
		"1000-2000 r--p 00000000 00:00\n",
		"1000-2000 r--p 00000000 00:00 0x\n",
		"1000-2000 r--p 00000000 00:00 18446744073709551616 /a\n",
		"1000-2000 r--p 00000000 100000000:00 0\n",
		"10000000000001000-2000 r--p 00000000 00:00 0\n",
	};

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(bad); i++) {
		struct hl_maps maps = {.count = 77};
		struct hl_error err = {0};
		char text[256];
		snprintf(text, sizeof(text), "500-600 r--p 00000000 00:00 0 /a\n%s", bad[i]);
		if (parse(text, &maps, &err) != -EBADMSG)
			fail_msg("accepted: %s", bad[i]);
		assert_string_equal(err.text, "line 2 of a list of mappings makes no sense");
		assert_int_equal(maps.count, 77);
	}
}

/* The kernel gives a list page by page, and the process goes on in between. */
static void a_mapping_that_grew_while_the_list_was_read_begins_behind_the_one_before(void **state)
{
	struct hl_maps maps;

	(void)state;
	assert_int_equal(parse("1000-3000 r--p 00000000 00:00 0\n"
			       "1000-5000 r--p 00007000 08:01 7 /a\n"
			       "4000-5000 r--p 00000000 00:00 0\n"
			       "6000-7000 r--p 00000000 00:00 0\n",
			       &maps, NULL),
			 0);
	assert_int_equal(maps.count, 3);
	assert_int_equal(maps.maps[1].start, 0x3000);
	assert_int_equal(maps.maps[1].end, 0x5000);
	assert_int_equal(maps.maps[1].offset, 0x9000);
	assert_int_equal(maps.maps[2].start, 0x6000);
	hl_maps_release(&maps);
}

static void want_of_memory_while_parsing_is_an_error(void **state)
{
	static const char text[] = "1000-3000 r--p 00000000 00:00 0 /a\n"
				   "4000-5000 r--p 00000000 00:00 0 /b\n";
	struct hl_maps maps = {0};

	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, parse(text, &maps, NULL))
	assert_int_equal(r, -ENOMEM);
	assert_int_equal(maps.count, 2);
	hl_maps_release(&maps);
}

static void an_address_is_found_in_its_mapping_alone(void **state)
{
	struct hl_maps maps;

	(void)state;
	assert_int_equal(parse("1000-3000 r--p 00000000 00:00 0\n5000-6000 r--p 00000000 00:00 0\n",
			       &maps, NULL),
			 0);
	assert_null(hl_maps_find(&maps, 0xfff));
	assert_ptr_equal(hl_maps_find(&maps, 0x1000), &maps.maps[0]);
	assert_ptr_equal(hl_maps_find(&maps, 0x2fff), &maps.maps[0]);
	assert_null(hl_maps_find(&maps, 0x3000));
	assert_ptr_equal(hl_maps_find(&maps, 0x5000), &maps.maps[1]);
	assert_null(hl_maps_find(&maps, 0x6000));
	hl_maps_release(&maps);
}

static void only_files_can_be_the_same(void **state)
{
	struct hl_map a = {.inode = 1, .dev_major = 2, .dev_minor = 3}, b = a, none = {0};

	(void)state;
	assert_true(hl_maps_same_file(&a, &b));
	b.dev_minor = 4;
	assert_false(hl_maps_same_file(&a, &b));
	assert_false(hl_maps_same_file(&none, &none));
}

static void our_own_mappings_hold_our_code_and_our_variables(void **state)
{
	struct hl_maps maps;
	struct hl_error err = {0};
	static int variable;

	(void)state;
	assert_int_equal(hl_maps_read(getpid(), &maps, &err), 0);
	const struct hl_map *code = hl_maps_find(&maps, (uintptr_t)hl_maps_read);
	assert_non_null(code);
	assert_int_equal(code->flags, HL_MAP_READ | HL_MAP_EXEC);
	assert_non_null(strstr(code->path, "test_process"));
	const struct hl_map *data = hl_maps_find(&maps, (uintptr_t)&variable);
	assert_non_null(data);
	assert_true(data->flags & HL_MAP_WRITE);
	hl_maps_release(&maps);
}

static void a_process_that_is_not_there_is_named(void **state)
{
	pid_t pid = fork();
	struct hl_maps maps;
	struct hl_process_facts facts;
	struct hl_process_rss rss;
	struct hl_error err = {0};
	char expected[64];

	(void)state;
	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	snprintf(expected, sizeof(expected), "there is no process '%d'; it may have ended", pid);
	assert_int_equal(hl_maps_read(pid, &maps, &err), -ESRCH);
	assert_string_equal(err.text, expected);
	err.text[0] = '\0';
	assert_int_equal(hl_process_facts_read(pid, &facts, &err), -ESRCH);
	assert_string_equal(err.text, expected);
	assert_int_equal(hl_process_rss_read(pid, &rss, NULL), -ESRCH);
	assert_true(hl_process_cpu_ns(pid) < 0);
}

static void a_zombie_is_no_process_any_more(void **state)
{
	pid_t pid = fork();
	siginfo_t end;
	struct hl_maps maps;
	struct hl_process_facts facts;
	struct hl_process_rss rss;
	struct hl_error err = {0};

	(void)state;
	if (!pid)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT), 0);
	assert_int_equal(hl_maps_read(pid, &maps, &err), -ESRCH);
	assert_non_null(strstr(err.text, "has no memory; it has ended"));
	err.text[0] = '\0';
	assert_int_equal(hl_process_facts_read(pid, &facts, &err), -ESRCH);
	assert_non_null(strstr(err.text, "has ended"));
	assert_int_equal(hl_process_rss_read(pid, &rss, NULL), -ESRCH);
	waitpid(pid, NULL, 0);
}

/* Files */

/* A file of one page in a directory of its own, mapped. */
struct mapped_file {
	char directory[32], path[64];
	void *memory;
	struct hl_maps maps;
};

static void map_file(struct mapped_file *file)
{
	assert_int_equal(make_temporary(file->directory), 0);
	snprintf(file->path, sizeof(file->path), "%s/a file", file->directory);
	int fd = open(file->path, O_RDWR | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "content", 7), 7);
	file->memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(file->memory, MAP_FAILED);
	close(fd);
}

static const struct hl_map *find_file(struct mapped_file *file)
{
	assert_int_equal(hl_maps_read(getpid(), &file->maps, NULL), 0);
	const struct hl_map *map = hl_maps_find(&file->maps, (uintptr_t)file->memory);
	assert_non_null(map);
	return map;
}

static void unmap_file(struct mapped_file *file)
{
	hl_maps_release(&file->maps);
	munmap(file->memory, PAGE);
	unlink(file->path);
	rmdir(file->directory);
}

static void assert_content(int fd)
{
	char content[8] = "";

	assert_true(fd >= 0);
	assert_int_equal(read(fd, content, 7), 7);
	assert_string_equal(content, "content");
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
}

static void a_mapped_file_opens_and_has_a_path(void **state)
{
	struct mapped_file file = {0};
	char path[128], small[8];

	(void)state;
	map_file(&file);
	const struct hl_map *map = find_file(&file);
	assert_string_equal(map->path, file.path);
	assert_content(hl_maps_open_file(getpid(), map));
	assert_int_equal(hl_maps_file_path(getpid(), map, path, sizeof(path)), 0);
	assert_content(open(path, O_RDONLY | O_CLOEXEC));
	assert_int_equal(hl_maps_file_path(getpid(), map, small, sizeof(small)), -ENAMETOOLONG);
	unmap_file(&file);
}

/* Links of map_files are followed by those with CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. */
static void skip_without_map_files(const struct hl_map *map)
{
	char path[128];

	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", map->start, map->end);
	if (!access(path, F_OK))
		return;
	print_message("skipped: links of map_files may not be followed: %s\n", strerror(errno));
	skip();
}

static void a_replaced_file_opens_as_it_was(void **state)
{
	struct mapped_file file = {0};

	(void)state;
	map_file(&file);
	unlink(file.path);
	FILE *replacement = fopen(file.path, "w");
	fputs("another", replacement);
	fclose(replacement);
	const struct hl_map *map = find_file(&file);
	assert_true(map->deleted);
	assert_string_equal(map->path, file.path);
	struct hl_map elsewhere = *map; /* found by the path alone */
	elsewhere.start -= PAGE;
	elsewhere.deleted = false;
	int by_path = hl_maps_open_file(getpid(), &elsewhere);
	int fd = hl_maps_open_file(getpid(), map);
	if (fd < 0) {
		unlink(file.path);
		skip_without_map_files(map);
	}
	assert_content(fd);
	assert_int_equal(by_path, -ENOENT);
	unmap_file(&file);
}

static void what_is_no_file_does_not_open(void **state)
{
	struct hl_map stack = {.start = 0x1000, .end = 0x2000, .path = (char *)"[stack]"};
	struct mapped_file file = {.memory = MAP_FAILED};
	int fd = open("/dev/zero", O_RDWR);
	char path[128];

	(void)state;
	assert_int_equal(hl_maps_open_file(getpid(), &stack), -ENOENT);
	assert_int_equal(hl_maps_file_path(getpid(), &stack, path, sizeof(path)), -ENOENT);
	file.memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(file.memory, MAP_FAILED);
	close(fd);
	assert_int_equal(hl_maps_open_file(getpid(), find_file(&file)), -ENOENT);
	unmap_file(&file);
}

/* Gives itself a /tmp of its own, maps a file there and waits until ${wait_fd} is closed. */
static void live_elsewhere(int ready_fd, int wait_fd)
{
	char answer = 'n', byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	    !mount("tmpfs", "/tmp", "tmpfs", 0, NULL)) {
		int fd = open("/tmp/elsewhere", O_RDWR | O_CREAT, 0600);
		bool ok = fd >= 0 && write(fd, "content", 7) == 7 &&
			  mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
		answer = ok ? 'y' : 'n';
	}
	if (write(ready_fd, &answer, 1) != 1 || read(wait_fd, &byte, 1) < 0)
		_exit(1);
	_exit(0);
}

static const struct hl_map *find_path(const struct hl_maps *maps, const char *path)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->maps[i].path, path))
			return &maps->maps[i];
	return NULL;
}

static void files_of_another_mount_namespace_open(void **state)
{
	int ready[2], stay[2];
	char answer = 'n', path[128];
	struct hl_maps maps;

	(void)state;
	assert_int_equal(pipe2(ready, O_CLOEXEC) | pipe2(stay, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (!pid) {
		close(stay[1]);
		live_elsewhere(ready[1], stay[0]);
	}
	close(ready[1]);
	close(stay[0]);
	bool answered = read(ready[0], &answer, 1) == 1 && answer == 'y';
	if (answered)
		assert_int_equal(hl_maps_read(pid, &maps, NULL), 0);
	/* To a process with another root its path begins elsewhere. */
	const struct hl_map *found = answered ? find_path(&maps, "/tmp/elsewhere") : NULL;
	if (found) {
		struct hl_map map = *found;
		assert_content(hl_maps_open_file(pid, &map));
		map.start -= PAGE; /* so that map_files has no such entry */
		assert_content(hl_maps_open_file(pid, &map));
		assert_int_equal(hl_maps_file_path(pid, &map, path, sizeof(path)), 0);
		assert_content(open(path, O_RDONLY | O_CLOEXEC));
	}
	if (answered)
		hl_maps_release(&maps);
	close(stay[1]);
	close(ready[0]);
	waitpid(pid, NULL, 0);
	if (!found) {
		print_message(
			"skipped: no mount namespace may be made here, or this is a chroot\n");
		skip();
	}
}

static void paths_do_not_lead_out_of_a_root(void **state)
{
	static const char *const inside[] = {"/a file", "/absolute", "/../relative"};
	static const char *const no_files[] = {"/out", "/up/a file", "/fifo", "/", "/none"};
	char parent[32], root[64], outside[64], byte;
	int ready[2], stay[2];

	(void)state;
	assert_int_equal(make_temporary(parent), 0);
	snprintf(root, sizeof(root), "%s/root", parent);
	assert_int_equal(mkdir(root, 0700), 0);
	int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(chdir(root), 0);
	for (unsigned i = 0; i < 2; i++) {
		int fd = open(i ? "a file" : "../outside", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_int_equal(write(fd, i ? "content" : "another", 7), 7);
		close(fd);
	}
	snprintf(outside, sizeof(outside), "%s/outside", parent);
	assert_int_equal(symlink("/a file", "absolute") | symlink("../../a file", "relative") |
				 symlink(outside, "out") | symlink(parent, "up") |
				 mkfifo("fifo", 0600),
			 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC) | pipe2(stay, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(stay[1]);
		if (chroot(root) == 0 && write(ready[1], "y", 1) == 1 && read(stay[0], &byte, 1))
			_exit(1);
		_exit(0);
	}
	close(ready[1]);
	close(stay[0]);
	bool answered = read(ready[0], &byte, 1) == 1;
	for (size_t i = 0; answered && i < HL_COUNT_OF(inside); i++)
		assert_content(hl_maps_open_path(pid, inside[i]));
	for (size_t i = 0; answered && i < HL_COUNT_OF(no_files); i++)
		assert_int_equal(hl_maps_open_path(pid, no_files[i]), -ENOENT);
	close(stay[1]);
	close(ready[0]);
	waitpid(pid, NULL, 0);
	assert_int_equal(fchdir(here), 0);
	close(here);
	assert_int_equal(remove_temporary(parent), 0);
	if (!answered) {
		print_message("skipped: the root may not be changed here\n");
		skip();
	}
}

/* Facts */

static void our_own_facts_are_right(void **state)
{
	struct hl_process_facts facts;
	struct hl_error err = {0};

	(void)state;
	assert_int_equal(hl_process_facts_read(getpid(), &facts, &err), 0);
	assert_int_equal(facts.pid, getpid());
	assert_int_equal(facts.parent_pid, getppid());
	assert_int_equal(facts.uid, getuid());
	assert_int_equal(facts.threads, 1);
	assert_string_equal(facts.comm, "test_process");
	assert_non_null(strstr(facts.executable, "/test_process"));
	assert_non_null(strstr(facts.command[0], "test_process"));
	assert_null(facts.command[1]);
	assert_true(facts.start_ticks > 0);
	assert_true(facts.cpu_ns > 0);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	assert_true(facts.start_realtime_ns < now_ns);
	assert_true(now_ns - facts.start_realtime_ns < UINT64_C(3600) * 1000000000);
	hl_process_facts_release(&facts);
}

/* A child that waits, as another user where we may become one: that takes its dumpability away. */
static pid_t start_stranger(void)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* the change of user forgets it */
		close(ready[1]);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return child;
}

static void the_condition_of_a_process_is_told(void **state)
{
	struct hl_process_condition condition;
	pid_t child = start_stranger();
	int status;

	(void)state;
	assert_int_equal(hl_process_condition_read(child, &condition, NULL), 0);
	assert_int_equal(condition.tracer_pid, 0);
	if (geteuid() == 0)
		assert_true(condition.is_protected);
	assert_int_equal(hl_process_is_elsewhere(getpid(), "mnt"), 0);
	assert_int_equal(kill(child, SIGSTOP), 0);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_int_equal(hl_process_condition_read(child, &condition, NULL), 0);
	assert_int_equal(condition.state, 'T');
	assert_int_equal(ptrace(PTRACE_SEIZE, child, NULL, NULL), 0);
	assert_int_equal(hl_process_condition_read(child, &condition, NULL), 0);
	assert_int_equal(condition.tracer_pid, getpid());
	assert_int_equal(hl_process_condition_read(getpid(), &condition, NULL), 0);
	assert_false(condition.is_protected);
	kill(child, SIGKILL);
	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
		;
	assert_int_equal(hl_process_condition_read(child, &condition, NULL), -ESRCH);
}

/* The line of groups, of 11 bytes each, comes before most others of /proc/PID/status. */
static void a_process_may_have_many_groups(void **state)
{
	static gid_t groups[4000];
	struct hl_process_facts facts = {0};
	char text[4096];
	int status;

	(void)state;
	for (unsigned i = 0; i < HL_COUNT_OF(groups); i++)
		groups[i] = 2000000000 + i;
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setgroups(HL_COUNT_OF(groups), groups) < 0)
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	if (WIFEXITED(status)) {
		print_message("skipped: only root can give itself groups\n");
		skip();
	}
	assert_int_equal(hl_process_facts_read(child, &facts, NULL), 0);
	assert_int_equal(facts.threads, 1);
	hl_process_facts_release(&facts);
	assert_true(hl_process_status_read(child).rss_bytes > 0);
	assert_true(hl_proc_read_status(child, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "\nSigCgt:"));
	assert_null(strstr(text, "2000000000"));
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
}

static void states_and_fields_are_read_behind_any_name(void **state)
{
	uint64_t parent = 0;
	pid_t child = fork();
	int status;

	(void)state;
	if (child == 0) {
		prctl(PR_SET_NAME, ") Z (1 2");
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_int_equal(hl_process_state(child), 'T');
	assert_false(hl_process_has_ended(child));
	assert_int_equal(hl_process_stat_field(child, 4, &parent), 0);
	assert_int_equal(parent, getpid());
	assert_int_equal(hl_process_stat_field(child, 1000, &parent), -EBADMSG);
	kill(child, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	assert_int_equal(hl_process_state(child), 'Z');
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(hl_process_state(child), 'X');
	assert_true(hl_process_has_ended(child));
	assert_int_equal(hl_process_stat_field(child, 4, &parent), -ESRCH);
	assert_int_equal(parent, getpid());
}

static void what_the_kernel_told_a_program_is_read(void **state)
{
	(void)state;
	assert_int_equal(hl_process_auxv(getpid(), AT_ENTRY), getauxval(AT_ENTRY));
	assert_int_equal(hl_process_auxv(getpid(), 4711), 0);
}

/* Runs /bin/sleep by a link of the name; its path must end in ${expected}. */
static void assert_run_path(const char *link, const char *expected)
{
	char folder[64], path[128];
	int ready[2];
	char byte;

	assert_int_equal(make_temporary(folder), 0);
	snprintf(path, sizeof(path), "%s/%s", folder, link);
	assert_int_equal(symlink("/bin/sleep", path), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t child = fork();
	if (!child) {
		execl(path, "another name", "60", NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 0); /* exec() has closed the other end */
	close(ready[0]);
	while (hl_process_state(child) != 'S') /* what the new program is told comes later */
		usleep(1000);
	char *run = hl_process_run_path(child);
	assert_non_null(run);
	assert_string_equal(hl_path_basename(run), expected);
	free(run);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(remove_temporary(folder), 0);
}

static void a_program_that_was_run_by_a_link_has_the_links_name(void **state)
{
	(void)state;
	assert_run_path("resting", "resting");
	assert_run_path("sl", "sleep"); /* as python3 of python3.11 */
}

static void cpu_time_grows(void **state)
{
	int64_t before = hl_process_cpu_ns(getpid());

	(void)state;
	assert_true(before > 0);
	while (hl_process_cpu_ns(getpid()) == before)
		continue;
	assert_true(hl_process_cpu_ns(getpid()) > before);
}

static void a_name_may_hold_anything(void **state)
{
	struct hl_process_facts facts;

	(void)state;
	prctl(PR_SET_NAME, "a) b (\nZ 1");
	assert_int_equal(hl_process_facts_read(getpid(), &facts, NULL), 0);
	prctl(PR_SET_NAME, "test_process");
	assert_string_equal(facts.comm, "a) b (\nZ 1");
	assert_int_equal(facts.parent_pid, getppid());
	assert_true(facts.start_ticks > 0);
	hl_process_facts_release(&facts);
}

/* A thread that waits until it is told to end. */
struct waiting_thread {
	pthread_t thread;
	pid_t tid;
	int ready[2], stay[2];
};

static void *wait_in_thread(void *argument)
{
	struct waiting_thread *thread = argument;
	char byte = 0;

	thread->tid = gettid();
	prctl(PR_SET_NAME, "waiting");
	if (write(thread->ready[1], &byte, 1) != 1 || read(thread->stay[0], &byte, 1) != 1)
		abort();
	return NULL;
}

static void start_waiting(struct waiting_thread *thread)
{
	char byte;

	assert_int_equal(pipe(thread->ready) | pipe(thread->stay), 0);
	assert_int_equal(pthread_create(&thread->thread, NULL, wait_in_thread, thread), 0);
	assert_int_equal(read(thread->ready[0], &byte, 1), 1);
}

static void stop_waiting(struct waiting_thread *thread)
{
	assert_int_equal(write(thread->stay[1], "", 1), 1);
	pthread_join(thread->thread, NULL);
	for (int i = 0; i < 2; i++) {
		close(thread->ready[i]);
		close(thread->stay[i]);
	}
}

static void threads_are_listed(void **state)
{
	struct waiting_thread waiting;
	pid_t *tids;
	size_t count;

	(void)state;
	start_waiting(&waiting);
	assert_int_equal(hl_process_threads(getpid(), &tids, &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(tids[0], getpid());
	assert_int_equal(tids[1], waiting.tid);
	free(tids);
	stop_waiting(&waiting);
}

static void a_thread_is_no_process(void **state)
{
	struct waiting_thread waiting;
	struct hl_process_facts facts;
	struct hl_error err = {0};
	char expected[64];

	(void)state;
	start_waiting(&waiting);
	assert_int_equal(hl_process_facts_read(waiting.tid, &facts, &err), -ESRCH);
	snprintf(expected, sizeof(expected), "'%d' is a thread of process '%d'; name that",
		 waiting.tid, getpid());
	assert_string_equal(err.text, expected);
	stop_waiting(&waiting);
}

static void memory_in_use_grows_with_what_is_touched(void **state)
{
	struct hl_process_rss before, after;
	size_t bytes = 512 * PAGE;

	(void)state;
	char *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	assert_int_equal(hl_process_rss_read(getpid(), &before, NULL), 0);
	for (size_t i = 0; i < bytes; i += PAGE)
		memory[i] = 1;
	assert_int_equal(hl_process_rss_read(getpid(), &after, NULL), 0);
	/* The stack and what is read of files may grow by some pages, too. */
	assert_in_range(after.anon_pages - before.anon_pages, 512, 520);
	assert_in_range(after.rss_pages - before.rss_pages, 512, 560);
	munmap(memory, bytes);
}

static int read_facts_and_release(void)
{
	struct hl_process_facts facts;

	int r = hl_process_facts_read(getpid(), &facts, NULL);
	if (!r)
		hl_process_facts_release(&facts);
	return r;
}

static int read_maps_and_release(void)
{
	struct hl_maps maps;

	int r = hl_maps_read(getpid(), &maps, NULL);
	if (!r)
		hl_maps_release(&maps);
	return r;
}

static int list_threads_and_free(void)
{
	pid_t *tids;
	size_t count;

	int r = hl_process_threads(getpid(), &tids, &count);
	if (!r)
		free(tids);
	return r;
}

static void want_of_memory_is_an_error(void **state)
{
	(void)state;
	FOR_EACH_FAILING_ALLOCATION(r, read_facts_and_release())
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, read_maps_and_release())
	assert_int_equal(r, -ENOMEM);
	FOR_EACH_FAILING_ALLOCATION(r, list_threads_and_free())
	assert_int_equal(r, -ENOMEM);
}

static void lines_become_mounts(void **state)
{
	static const char text[] =
		"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
		"no mount\n"
		"\n"
		"36 35 0:27 /sub\\040folder /a\\040b\\134c rw - cgroup cgroup rw,cpu,memory\n"
		"37 35 0:28 / /without/a/type rw\n"
		"38 35 0:29 / /last rw - tmpfs tmpfs rw,size=1k";
	const char *rest = text, *nothing = NULL;
	struct hl_mount mount;

	(void)state;
	assert_true(hl_mount_next(&rest, &mount));
	assert_int_equal(mount.id, 22);
	assert_int_equal(mount.dev_major, 8);
	assert_int_equal(mount.dev_minor, 1);
	assert_string_equal(mount.root, "/");
	assert_string_equal(mount.point, "/");
	assert_string_equal(mount.type, "ext4");
	assert_true(hl_mount_next(&rest, &mount));
	assert_int_equal(mount.id, 36);
	assert_string_equal(mount.root, "/sub folder");
	assert_string_equal(mount.point, "/a b\\c");
	assert_string_equal(mount.type, "cgroup");
	assert_int_equal(strncmp(mount.options, "rw,cpu,memory\n", 14), 0);
	assert_true(hl_mount_next(&rest, &mount));
	assert_int_equal(mount.id, 38);
	assert_string_equal(mount.point, "/last");
	assert_string_equal(mount.type, "tmpfs");
	assert_string_equal(mount.options, "rw,size=1k");
	assert_false(hl_mount_next(&rest, &mount));
	assert_false(hl_mount_next(&nothing, &mount));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_become_mappings),
		cmocka_unit_test(a_newline_in_a_name_is_a_newline_again),
		cmocka_unit_test(no_text_is_no_mappings),
		cmocka_unit_test(lines_that_make_no_sense_are_refused),
		cmocka_unit_test(
			a_mapping_that_grew_while_the_list_was_read_begins_behind_the_one_before),
		cmocka_unit_test(want_of_memory_while_parsing_is_an_error),
		cmocka_unit_test(an_address_is_found_in_its_mapping_alone),
		cmocka_unit_test(only_files_can_be_the_same),
		cmocka_unit_test(our_own_mappings_hold_our_code_and_our_variables),
		cmocka_unit_test(a_process_that_is_not_there_is_named),
		cmocka_unit_test(a_zombie_is_no_process_any_more),
		cmocka_unit_test(a_mapped_file_opens_and_has_a_path),
		cmocka_unit_test(a_replaced_file_opens_as_it_was),
		cmocka_unit_test(what_is_no_file_does_not_open),
		cmocka_unit_test(files_of_another_mount_namespace_open),
		cmocka_unit_test(paths_do_not_lead_out_of_a_root),
		cmocka_unit_test(our_own_facts_are_right),
		cmocka_unit_test(the_condition_of_a_process_is_told),
		cmocka_unit_test(a_process_may_have_many_groups),
		cmocka_unit_test(states_and_fields_are_read_behind_any_name),
		cmocka_unit_test(what_the_kernel_told_a_program_is_read),
		cmocka_unit_test(a_program_that_was_run_by_a_link_has_the_links_name),
		cmocka_unit_test(lines_become_mounts),
		cmocka_unit_test(cpu_time_grows),
		cmocka_unit_test(a_name_may_hold_anything),
		cmocka_unit_test(threads_are_listed),
		cmocka_unit_test(a_thread_is_no_process),
		cmocka_unit_test(memory_in_use_grows_with_what_is_touched),
		cmocka_unit_test(want_of_memory_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
