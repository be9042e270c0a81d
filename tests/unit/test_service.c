/* SPDX-License-Identifier: BSD-2-Clause */
/* What processes are called, by their command lines and cgroups. */
#include "process/service.h"

#include "base/compiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "guests.h"

struct service_case {
	const char *command, *executable, *name, *script;
};

static void check_services(const struct service_case *cases, size_t count)
{
	struct hl_service service;

	for (size_t i = 0; i < count; i++) {
		hl_service_of(cases[i].command, cases[i].executable, &service);
		assert_string_equal(service.name, cases[i].name);
		assert_string_equal(service.script, cases[i].script);
	}
}

static void services_are_named_by_their_programs(void **state)
{
	static const struct service_case cases[] = {
		{"redis-server --port 0", "/usr/bin/redis-server", "redis-server", ""},
		{"/usr/sbin/nginx -g 'daemon off;'", "/usr/sbin/nginx", "nginx", ""},
		{"", "", "", ""},
		/* Blanks in paths: of the only word, of several, relative, and of a path that is not known. */
		{"/opt/My App/one", "/opt/My App/one", "one", ""},
		{"'/opt/My App/two' --fast", "/opt/My App/two", "two", ""},
		{"'./My App/two' --fast", "/opt/My App/two", "two", ""},
		{"'/opt/It'\\''s/one' x", "/opt/It's/one", "one", ""},
		{"$'/opt/a\\nb/one\\033' x", "/opt/a\nb/one\033", "one\033", ""},
		/* Run by another name than its file has. */
		{"/usr/bin/redis-server", "/usr/bin/redis-check-rdb", "redis-server", ""},
		{"ls -l", "/bin/busybox", "ls", ""},
		/* Titles */
		{"/usr/bin/redis-server *:6379", "/usr/bin/redis-check-rdb", "redis-server", ""},
		{"nginx: worker process", "/usr/sbin/nginx", "nginx", ""},
		{"postgres: walwriter ", "/usr/lib/postgresql/15/bin/postgres", "postgres", ""},
		{"sshd: me@pts/0", "/usr/sbin/sshd", "sshd", ""},
		{"/opt/My App/one: worker", "/opt/My App/one", "one", ""},
		{"[worker] svc.sh", NULL, "[worker]", ""},
		/* Scripts */
		{"node --require x.js server.js", "/usr/bin/node", "node", "server.js"},
		{"bash -c 'sleep 1'", "/usr/bin/bash", "bash", ""},
		{"shfmt svc.sh", "/usr/bin/shfmt", "shfmt", ""},
		{"php-fpm: pool www", "/usr/sbin/php-fpm8.2", "php-fpm", ""},
	};

	(void)state;
	check_services(cases, HL_COUNT_OF(cases));
}

static void scripts_of_guests_are_named(void **state)
{
	static const struct service_case cases[] = {
		{"python3 svc.py --port 1", "/usr/bin/python3.11", "python3", "svc.py"},
		{"/usr/bin/python3.11 -u -W error -X dev '/srv/my app/svc.py' x",
		 "/usr/bin/python3.11", "python3.11", "svc.py"},
		{"python3 -m http.server 80", "/usr/bin/python3.11", "python3", "http.server"},
		{"python3 -c 'import x' svc.py", "/usr/bin/python3.11", "python3", ""},
		{"python3", "/usr/bin/python3.11", "python3", ""},
		{"lua5.4 -l socket shop.lua", "/usr/bin/lua5.4", "lua5.4", "shop.lua"},
		{"java -Xmx1g -cp a.jar:b.jar com.example.Main", "/usr/bin/java", "java",
		 "com.example.Main"},
		{"java -jar /srv/app.jar", "/usr/bin/java", "java", "app.jar"},
		{"php -c /etc/php.ini -f web.php", "/usr/bin/php8.2", "php", "web.php"},
	};

	(void)state;
	needs_guest("Java");
	needs_guest("Lua");
	needs_guest("PHP");
	needs_guest("Python");
	check_services(cases, HL_COUNT_OF(cases));
}

static void long_names_are_cut(void **state)
{
	char command[10000];
	struct hl_service service;

	(void)state;
	memset(command, 'x', sizeof(command) - 1);
	command[sizeof(command) - 1] = '\0';
	hl_service_of(command, command, &service);
	assert_int_equal(strlen(service.name), HL_SERVICE_NAME_MAX - 1);
	memcpy(command, "perl5 '", strlen("perl5 '"));
	hl_service_of(command, NULL, &service);
	assert_int_equal(strlen(service.script), HL_SERVICE_NAME_MAX - 1);
}

#define ID   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define UUID "2d9f6a51-7b1c-4a0e-9c55-0f6f3a1b2c3d"

static void containers_and_pods_are_found_in_cgroups(void **state)
{
	static const struct {
		const char *cgroups, *container, *pod;
	} cases[] = {
		{"0::/system.slice/docker-" ID ".scope\n", ID, ""},
		{"12:cpu:/docker/" ID "\n0::/\n", ID, ""},
		{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-"
		 "pod2d9f6a51_7b1c_4a0e_9c55_0f6f3a1b2c3d.slice/cri-containerd-" ID ".scope\n",
		 ID, UUID},
		{"3:memory:/kubepods/besteffort/pod" UUID "/" ID "\n", ID, UUID},
		{"0::/machine.slice/libpod-" ID ".scope/container\n", ID, ""},
		{"0::/user.slice/user-1000.slice/session-3.scope\n", "", ""},
		{"0::/x/" ID "0\n", "", ""}, /* too long */
		{"0::/podium\n", "", ""},
		{"", "", ""},
	};
	char container[HL_SERVICE_CONTAINER_MAX], pod[HL_SERVICE_CONTAINER_MAX];

	(void)state;
	for (size_t i = 0; i < HL_COUNT_OF(cases); i++) {
		hl_service_container(cases[i].cgroups, container, pod);
		assert_string_equal(container, cases[i].container);
		assert_string_equal(pod, cases[i].pod);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(services_are_named_by_their_programs),
		cmocka_unit_test(scripts_of_guests_are_named),
		cmocka_unit_test(long_names_are_cut),
		cmocka_unit_test(containers_and_pods_are_found_in_cgroups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
