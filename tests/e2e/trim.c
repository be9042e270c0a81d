/* SPDX-License-Identifier: BSD-2-Clause */
/* Preloaded: on SIGUSR1 the program calls malloc_trim(0) and writes "trimmed N" with what it returned.
 * The signal may come only while the program waits for input, outside of malloc. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

static void trim(int number)
{
	char answer[] = "trimmed 0\n";
	int error = errno;

	(void)number;
	answer[sizeof(answer) - 3] = (char)('0' + malloc_trim(0));
	if (write(STDOUT_FILENO, answer, sizeof(answer) - 1) < 0)
		_exit(1);
	errno = error;
}

__attribute__((constructor)) static void begin(void)
{
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = trim, .sa_flags = SA_RESTART}, NULL);
}
