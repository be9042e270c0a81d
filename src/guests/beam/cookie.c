/* SPDX-License-Identifier: BSD-2-Clause */
/* The secret that nodes of a cluster share; see node.h. */
#include "guests/beam/node.h"

#include "base/cleanup.h"
#include "base/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Takes the first line, without blanks at its end. 0 or a negative errno without a sentence;
 * -EINVAL when the line is empty or too long. Blocks on a FIFO until its writer has written. */
static int read_file(const char *path, struct hl_cookie *ret_cookie)
{
	char bytes[HL_COOKIE_MAX + 1]; /* one more than fits, to notice longer lines */
	HL_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	ssize_t size;
	size_t length = 0;

	if (fd < 0 || fstat(fd, &status) < 0 || (size = read(fd, bytes, sizeof(bytes))) < 0)
		return -errno;
	while (length < (size_t)size && bytes[length] != '\n' && bytes[length] != '\r' &&
	       bytes[length])
		length++;
	while (length && (bytes[length - 1] == ' ' || bytes[length - 1] == '\t'))
		length--;
	bool is_usable = length && length < HL_COOKIE_MAX;
	if (is_usable) {
		memcpy(ret_cookie->text, bytes, length);
		ret_cookie->text[length] = '\0';
	}
	explicit_bzero(bytes, sizeof(bytes));
	ret_cookie->is_exposed = S_ISREG(status.st_mode) && status.st_mode & (S_IRGRP | S_IROTH);
	snprintf(ret_cookie->path, sizeof(ret_cookie->path), "%s", path);
	return is_usable ? 0 : -EINVAL;
}

static int explain(const char *path, int r, struct hl_error *err)
{
	if (r == -EINVAL)
		return hl_error_set(err, r,
				    "cannot take the cookie in '%.500s': its first line is empty "
				    "or longer than 512 letters; name the node's cookie file with "
				    "--cookie-file",
				    path);
	return hl_error_set(err, r,
			    "cannot read the cookie file '%.500s': %s; name the node's cookie file "
			    "with --cookie-file",
			    path, strerror(-r));
}

int hl_cookie_read(const char *path, struct hl_cookie *ret_cookie, struct hl_error *err)
{
	const char *home = getenv("HOME"), *configuration = getenv("XDG_CONFIG_HOME");
	char places[2][PATH_MAX] = {"", ""}; /* where Erlang looks */

	if (path) {
		int r = read_file(path, ret_cookie);
		return r < 0 ? explain(path, r, err) : 0;
	}
	if (home)
		snprintf(places[0], PATH_MAX, "%s/.erlang.cookie", home);
	if (configuration && configuration[0])
		snprintf(places[1], PATH_MAX, "%s/erlang/.erlang.cookie", configuration);
	else if (home)
		snprintf(places[1], PATH_MAX, "%s/.config/erlang/.erlang.cookie", home);
	for (size_t i = 0; i < HL_COUNT_OF(places); i++) {
		int r = places[i][0] ? read_file(places[i], ret_cookie) : -ENOENT;
		if (r != -ENOENT)
			return r < 0 ? explain(places[i], r, err) : 0;
	}
	return hl_error_set(err, -ENOENT,
			    "cannot find a cookie: '~/.erlang.cookie' is not there; name the "
			    "node's cookie file with --cookie-file");
}
