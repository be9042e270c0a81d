/* SPDX-License-Identifier: BSD-2-Clause */
/* The secret that nodes of a cluster share; see node.h. */
#include "heap/beam/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first line, without blanks at its end. -EINVAL: it is empty, or too long. */
static int take_line(const char *bytes, size_t size, char ret_text[HL_COOKIE_MAX])
{
	size_t length = 0;

	while (length < size && bytes[length] != '\n' && bytes[length] != '\r' && bytes[length])
		length++;
	while (length && (bytes[length - 1] == ' ' || bytes[length - 1] == '\t'))
		length--;
	if (length == 0 || length >= HL_COOKIE_MAX)
		return -EINVAL;
	memcpy(ret_text, bytes, length);
	ret_text[length] = '\0';
	return 0;
}

static int read_cookie(int fd, struct hl_cookie *cookie)
{
	char bytes[HL_COOKIE_MAX + 1]; /* one more than fits, to notice longer lines */
	struct stat status;

	if (fstat(fd, &status) < 0)
		return -errno;
	ssize_t size = read(fd, bytes, sizeof(bytes));
	if (size < 0)
		return -errno;
	cookie->is_exposed = S_ISREG(status.st_mode) && status.st_mode & (S_IRGRP | S_IROTH);
	int r = take_line(bytes, (size_t)size, cookie->text);
	explicit_bzero(bytes, sizeof(bytes));
	return r;
}

/* 0 or a negative errno without a sentence. A FIFO may be given; it is waited for. */
static int read_file(const char *path, struct hl_cookie *ret_cookie)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	int r = read_cookie(fd, ret_cookie);
	close(fd);
	snprintf(ret_cookie->path, sizeof(ret_cookie->path), "%s", path);
	return r;
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

/* The ${index}th place where Erlang looks; false: there are no more. */
static bool default_path(unsigned index, char ret_path[PATH_MAX])
{
	const char *home = getenv("HOME"), *configuration = getenv("XDG_CONFIG_HOME");

	ret_path[0] = '\0';
	if (index == 0 && home)
		snprintf(ret_path, PATH_MAX, "%s/.erlang.cookie", home);
	else if (index == 1 && configuration && configuration[0])
		snprintf(ret_path, PATH_MAX, "%s/erlang/.erlang.cookie", configuration);
	else if (index == 1 && home)
		snprintf(ret_path, PATH_MAX, "%s/.config/erlang/.erlang.cookie", home);
	return index < 2;
}

int hl_cookie_read(const char *path, struct hl_cookie *ret_cookie, struct hl_error *err)
{
	char tried[PATH_MAX];
	int r;

	if (path) {
		r = read_file(path, ret_cookie);
		return r < 0 ? explain(path, r, err) : 0;
	}
	for (unsigned i = 0; default_path(i, tried); i++) {
		if (!tried[0])
			continue;
		r = read_file(tried, ret_cookie);
		if (r != -ENOENT)
			return r < 0 ? explain(tried, r, err) : 0;
	}
	return hl_error_set(err, -ENOENT,
			    "cannot find a cookie: '~/.erlang.cookie' is not there; name the "
			    "node's cookie file with --cookie-file");
}
