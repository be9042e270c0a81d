/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says "ready", then the name of each signal that it gets; SIGTERM and SIGINT end it, with status 7
 * and 8. Allocates 1009 times 31 bytes in `patient_site` meanwhile.
 */
#include "program.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t end_status;

static void say(const char *text)
{
	REQUIRE(write(STDOUT_FILENO, text, strlen(text)) == (ssize_t)strlen(text));
}

static void handle(int signal_number)
{
	switch (signal_number) {
	case SIGINT:
		say("got INT\n");
		end_status = 8;
		break;
	case SIGTERM:
		say("got TERM\n");
		end_status = 7;
		break;
	case SIGHUP:
		say("got HUP\n");
		break;
	case SIGUSR1:
		say("got USR1\n");
		break;
	case SIGUSR2:
		say("got USR2\n");
		break;
	case SIGQUIT:
		say("got QUIT\n");
		break;
	default:
		say("got another signal\n");
	}
}

static SITE void patient_site(void)
{
	KEEP(malloc(31));
}

int main(void)
{
	static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
	struct sigaction action = {.sa_handler = handle};
	sigset_t before;

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(handled) / sizeof(*handled); i++) {
		sigaddset(&action.sa_mask, handled[i]);
		REQUIRE(!sigaction(handled[i], &action, NULL));
	}
	sigprocmask(SIG_BLOCK, &action.sa_mask, &before);
	for (int i = 0; i < 1009; i++)
		patient_site();
	say("ready\n");
	while (!end_status)
		sigsuspend(&before);
	return end_status;
}
