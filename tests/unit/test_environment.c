/* SPDX-License-Identifier: BSD-2-Clause */
/* Environments of programs that a target starts: completed, or left alone. */
#include "recorder/start.h"

#include "base/compiler.h"
#include "region/protocol.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* after what it needs */

#define LIBRARY "/usr/$LIB/../../opt/libheapline.so"
#define NAME	"heapline-1234"
#define DIGITS	"0123456789abcdef0123456789abcdef"
#define SOCKET	HL_ENV_SOCKET "=" NAME
#define TOKEN	HL_ENV_TOKEN "=" DIGITS

static int keep(void **state)
{
	char *environment[] = {"A=1", "LD_PRELOAD=/x/first.so:" LIBRARY, NULL};

	(void)state;
	hl_environment_keep(environment, "/opt/libheapline.so", NAME, DIGITS);
	return 0;
}

/* ${given} is completed to ${wanted}, and that is complete. */
static void assert_completed_for(char *const *given, bool withholds, char *const *wanted)
{
	size_t bytes = hl_environment_room(given, withholds);

	assert_true(bytes > 0);
	void *room = malloc(bytes);
	assert_non_null(room);
	char *const *complete = hl_environment_complete(given, withholds, room, bytes);
	for (; *wanted; wanted++, complete++)
		assert_string_equal(*complete, *wanted);
	assert_null(*complete);
	complete = hl_environment_complete(given, withholds, room, bytes);
	assert_int_equal(hl_environment_room(complete, withholds), 0);
	free(room);
}

static void assert_completed(char *const *given, char *const *wanted)
{
	assert_completed_for(given, false, wanted);
}

static void what_is_missing_is_added(void **state)
{
	char *whole[] = {"LD_PRELOAD=" LIBRARY, SOCKET, TOKEN, NULL};
	char *wanted[] = {"LD_PRELOAD=" LIBRARY, SOCKET, TOKEN, "A=1", "LD_PRELOADX=2", NULL};

	(void)state;
	assert_completed(NULL, whole);
	assert_completed((char *[]){NULL}, whole);
	assert_completed((char *[]){"A=1", "LD_PRELOADX=2", NULL}, wanted);
	assert_completed((char *[]){"LD_PRELOAD=", "A=1", SOCKET, "LD_PRELOADX=2", NULL}, wanted);
	assert_completed((char *[]){TOKEN, "A=1", "LD_PRELOADX=2", "LD_PRELOAD=" LIBRARY, NULL},
			 wanted);
}

static void the_recorder_comes_before_what_stood_there(void **state)
{
	(void)state;
	assert_completed(
		(char *[]){"LD_PRELOAD=/y/other.so /z/more.so", SOCKET, TOKEN, NULL},
		(char *[]){"LD_PRELOAD=" LIBRARY ":/y/other.so /z/more.so", SOCKET, TOKEN, NULL});
	assert_completed(
		(char *[]){"LD_PRELOAD=/y/other.so:" LIBRARY, NULL},
		(char *[]){"LD_PRELOAD=" LIBRARY ":/y/other.so:" LIBRARY, SOCKET, TOKEN, NULL});
	assert_completed((char *[]){"LD_PRELOAD=" LIBRARY ".old", NULL},
			 (char *[]){"LD_PRELOAD=" LIBRARY ":" LIBRARY ".old", SOCKET, TOKEN, NULL});
}

static void a_complete_environment_is_left_alone(void **state)
{
	(void)state;
	assert_int_equal(hl_environment_room((char *[]){"B=2", "LD_PRELOAD=" LIBRARY, SOCKET, "C=3",
							TOKEN, NULL},
					     false),
			 0);
	assert_int_equal(hl_environment_room((char *[]){SOCKET, TOKEN,
							"LD_PRELOAD=" LIBRARY " /y/other.so", NULL},
					     false),
			 0);
}

static void the_way_to_the_collector_can_be_withheld(void **state)
{
	char *wanted[] = {"LD_PRELOAD=" LIBRARY, SOCKET, HL_ENV_TOKEN "=", "A=1", NULL};

	(void)state;
	assert_completed_for((char *[]){"A=1", NULL}, true, wanted);
	assert_completed_for((char *[]){"LD_PRELOAD=" LIBRARY, SOCKET, TOKEN, "A=1", NULL}, true,
			     wanted);
}

static void another_recordings_environment_is_left_alone(void **state)
{
	(void)state;
	assert_int_equal(
		hl_environment_room((char *[]){"LD_PRELOAD=/other/libheapline.so",
					       HL_ENV_SOCKET "=heapline-5678", TOKEN, NULL},
				    false),
		0);
}

static void sanitizers_stay_first(void **state)
{
	(void)state;
	assert_int_equal(
		hl_environment_room((char *[]){"LD_PRELOAD=/usr/lib/libasan.so.8", NULL}, false),
		0);
	assert_int_equal(hl_environment_room((char *[]){"LD_PRELOAD=libclang_rt.tsan-x86_64.so",
							SOCKET, TOKEN, NULL},
					     false),
			 0);
}

static void only_the_token_is_left_out(void **state)
{
	char *given[] = {"A=1", TOKEN, HL_ENV_TOKEN "X=2", SOCKET, TOKEN, NULL};
	char *room[HL_COUNT_OF(given)];

	(void)state;
	char *const *kept = hl_environment_without_token(given, room);
	assert_string_equal(kept[0], "A=1");
	assert_string_equal(kept[1], HL_ENV_TOKEN "X=2");
	assert_string_equal(kept[2], SOCKET);
	assert_null(kept[3]);
	assert_null(hl_environment_without_token(NULL, room)[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_missing_is_added),
		cmocka_unit_test(the_recorder_comes_before_what_stood_there),
		cmocka_unit_test(a_complete_environment_is_left_alone),
		cmocka_unit_test(the_way_to_the_collector_can_be_withheld),
		cmocka_unit_test(another_recordings_environment_is_left_alone),
		cmocka_unit_test(sanitizers_stay_first),
		cmocka_unit_test(only_the_token_is_left_out),
	};

	return cmocka_run_group_tests(tests, keep, NULL);
}
