/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks runners of tests, ctest and meson, what they call their tests; see families.h. */
#include "cli/families.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "view/check_cases.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What ${words} print as JSON; NULL where that is not what they do. */
static json_t *ask(char *const *words)
{
	posix_spawn_file_actions_t actions;
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return NULL;
	if (posix_spawn_file_actions_init(&actions) != 0) {
		close(ends[0]);
		close(ends[1]);
		return NULL;
	}
	int error =
		posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!error)
		error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	if (!error)
		error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
							 O_WRONLY, 0);
	if (!error)
		error = posix_spawnp(&pid, words[0], &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	json_t *answer = error ? NULL : json_loadfd(ends[0], 0, NULL);
	close(ends[0]);
	if (!error)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	return answer;
}

/* ctest with all its words lists the tests that these choose. */
static json_t *ask_ctest(char **argv, int argc)
{
	char **words = calloc((size_t)argc + 2, sizeof(*words));
	json_t *answer = NULL;

	if (words) {
		memcpy(words, argv, (size_t)argc * sizeof(*words));
		words[argc] = "--show-only=json-v1";
		answer = ask(words);
	}
	free(words);
	json_t *tests = json_incref(json_object_get(answer, "tests"));
	json_decref(answer);
	return tests;
}

static json_t *ask_meson(char **argv, int argc)
{
	char *folder = ".";

	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[i], "-C") && i + 1 < argc)
			folder = argv[i + 1];
		else if (!strncmp(argv[i], "-C", 2))
			folder = argv[i] + 2;
	char *const words[] = {argv[0], "introspect", "--tests", folder, NULL};
	return ask(words);
}

static bool runs_meson(char **argv, int argc)
{
	return !strcmp(hl_path_basename(argv[0]), "meson") && argc > 1 && !strcmp(argv[1], "test");
}

bool hl_check_tests_are_processes(char **argv, int argc)
{
	return runs_meson(argv, argc) || !strcmp(hl_path_basename(argv[0]), "ctest");
}

static char **copy_command(const json_t *command)
{
	size_t count = json_array_size(command);
	char **words = calloc(count + 1, sizeof(*words));

	for (size_t i = 0; words && i < count; i++) {
		const char *word = json_string_value(json_array_get(command, i));
		words[i] = strdup(word ? word : "");
		if (!words[i])
			break; /* the shorter command is that of no test */
	}
	return words;
}

void hl_check_tests_ask(char **argv, int argc, struct hl_check_test **ret_tests, size_t *ret_count)
{
	bool is_meson = runs_meson(argv, argc);
	json_t *found = is_meson				   ? ask_meson(argv, argc)
			: hl_check_tests_are_processes(argv, argc) ? ask_ctest(argv, argc)
								   : NULL;
	struct hl_check_test *tests = calloc(json_array_size(found) + 1, sizeof(*tests));
	size_t count = 0, index;
	json_t *test;

	json_array_foreach(found, index, test) {
		const char *name = json_string_value(json_object_get(test, "name"));
		char **command = copy_command(json_object_get(test, is_meson ? "cmd" : "command"));
		char *copy = name ? strdup(name) : NULL;
		if (tests && copy && command) {
			tests[count++] = (struct hl_check_test){copy, command};
			continue;
		}
		for (char **word = command; word && *word; word++)
			free(*word);
		free(command);
		free(copy);
	}
	json_decref(found);
	*ret_tests = tests;
	*ret_count = tests ? count : 0;
}

void hl_check_tests_free(struct hl_check_test *tests, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (char **word = tests[i].command; *word; word++)
			free(*word);
		free(tests[i].command);
		free(tests[i].name);
	}
	free(tests);
}
