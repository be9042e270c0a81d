/* SPDX-License-Identifier: BSD-2-Clause */
/* What a process is called where many are compared: its service, the script that it runs, its container. */
#pragma once

#include <stddef.h>

#define HL_SERVICE_NAME_MAX	 256 /* bytes, with the NUL; longer names are cut */
#define HL_SERVICE_CONTAINER_MAX 65

struct hl_service {
	char name[HL_SERVICE_NAME_MAX]; /* the program's, as it was run, without its directory */
	char script
		[HL_SERVICE_NAME_MAX]; /* that an interpreter runs, without its directory; "" when there is none */
};

/*
 * Finds both in ${command}, the words of a command line as a shell needs them, or the title that a process wrote in their place.
 * ${executable}, the path of its program, tells a blank in that path from the one after it; NULL or "": not known.
 */
void hl_service_of(const char *command, const char *executable, struct hl_service *ret_service);

/*
 * The program's name in argv[0] alone, which may be a title: "nginx" of "nginx: master process /usr/sbin/nginx". ${executable} as above.
 */
void hl_service_program(const char *title, const char *executable, char name[HL_SERVICE_NAME_MAX]);

/*
 * Finds the container and the pod in ${cgroups}, what /proc/PID/cgroup holds: names as docker, podman, containerd, CRI-O and Kubernetes
 * give them. "" where there is none.
 */
void hl_service_container(const char *cgroups, char container[HL_SERVICE_CONTAINER_MAX],
			  char pod[HL_SERVICE_CONTAINER_MAX]);
