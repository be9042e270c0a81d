/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads and hides passwords; see store_password.h. */
#include "cli/store_password.h"

#include "base/cleanup.h"
#include "fleet/web.h"

#include <errno.h>

/* What stands between a user and '@' becomes asterisks. */
static void hide(char *url)
{
	char *user = strstr(url, "://");

	user = user ? user + strlen("://") : url;
	char *at = memrchr(user, '@', strcspn(user, "/"));
	char *colon = at ? memchr(user, ':', (size_t)(at - user)) : NULL;
	if (colon)
		memset(colon + 1, '*', (size_t)(at - colon - 1));
}

int hl_store_password_read(const char *file, char *url, struct hl_error *err)
{
	HL_FREED char *line = NULL;
	size_t capacity = 0;

	hide(url);
	FILE *stream = file ? fopen(file, "re") : NULL;
	if (!file)
		return 0;
	if (!stream)
		return hl_error_set(err, -errno, "cannot read the password from '%s': %s", file,
				    strerror(errno));
	ssize_t length = getline(&line, &capacity, stream);
	fclose(stream);
	if (length > 0)
		line[strcspn(line, "\r\n")] = '\0';
	if (length <= 0 || !*line)
		return hl_error_set(err, -ENODATA,
				    "cannot read the password from '%s': its first line is empty",
				    file);
	return setenv(HL_WEB_PASSWORD, line, 1) < 0 ? hl_error_set(err, -ENOMEM, "out of memory")
						    : 0;
}
