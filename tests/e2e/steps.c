/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Goes on as its standard input says: for each byte read, allocates 1009 times 127 bytes in
 * `step_site` and says "step"; at the end of the input says "done" and ends with status 5. Writes
 * that fail end it with status 4.
 */
#include "program.h"

#include <string.h>
#include <unistd.h>

static SITE void step_site(void)
{
	KEEP(malloc(127));
}

static void say(const char *text)
{
	if (write(STDOUT_FILENO, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(4);
}

int main(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) == 1) {
		for (int i = 0; i < 1009; i++)
			step_site();
		say("step\n");
	}
	say("done\n");
	return 5;
}
