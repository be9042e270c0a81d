/* SPDX-License-Identifier: BSD-2-Clause */
/* Selections as the query of a URL; see query.h. */
#include "fleet/query.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <inttypes.h>
#include <time.h>

static void put_parameter(FILE *out, char *separator, const char *name, const char *value)
{
	fprintf(out, "%c%s=", *separator, name);
	*separator = '&';
	for (; *value; value++)
		if (isalnum((unsigned char)*value) || strchr("-_.~/", *value))
			putc(*value, out);
		else
			fprintf(out, "%%%02x", (unsigned char)*value);
}

static void put_number(FILE *out, char *separator, const char *name, int64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, value);
	if (value)
		put_parameter(out, separator, name, text);
}

char *hl_fleet_selection_write(const struct hl_fleet_selection *selection, const char *url)
{
	char *text = NULL, separator = strchr(url, '?') ? '&' : '?';
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs(url, out);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (selection->labels[i])
			put_parameter(out, &separator, hl_fleet_label_names[i],
				      selection->labels[i]);
	put_number(out, &separator, "at", selection->at_ms);
	put_number(out, &separator, "since", selection->since_ms);
	put_number(out, &separator, "mean", selection->mean);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* Decodes ${text} where it is. */
static void decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		char digits[3] = "";
		if (*text == '%' && isxdigit((unsigned char)text[1]) &&
		    isxdigit((unsigned char)text[2])) {
			memcpy(digits, text + 1, 2);
			*to++ = (char)strtol(digits, NULL, 16);
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static int read_number(const char *name, const char *value, int64_t *ret_number,
		       struct hl_error *err)
{
	char *end;

	errno = 0;
	*ret_number = strtoll(value, &end, 10);
	if (!*value || *end || errno || *ret_number < 0)
		return hl_error_set(err, -EINVAL,
				    "'%s' takes a number of milliseconds since 1970, not '%s'",
				    name, value);
	return 0;
}

static int read_parameter(char *name, struct hl_fleet_selection *selection, struct hl_error *err)
{
	char *equals = strchr(name, '='), *value = equals ? equals + 1 : (char[]){""};
	int64_t number = 0;

	if (equals)
		*equals = '\0';
	decode(value);
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (!strcmp(name, hl_fleet_label_names[i])) {
			selection->labels[i] = value;
			return 0;
		}
	if (!strcmp(name, "at"))
		return read_number(name, value, &selection->at_ms, err);
	if (!strcmp(name, "since"))
		return read_number(name, value, &selection->since_ms, err);
	if (strcmp(name, "mean") != 0)
		return hl_error_set(
			err, -EINVAL,
			"a store is asked by service, version, host, command, pid, build_id, "
			"container, pod, at, since and mean, not by '%s'",
			name);
	int r = read_number(name, value, &number, err);
	selection->mean = number != 0;
	return r;
}

int hl_fleet_selection_read(const char *url, struct hl_fleet_selection *ret_selection,
			    char **ret_storage, struct hl_error *err)
{
	const char *query = strchr(url, '?');
	HL_FREED char *storage = strdup(query ? query + 1 : "");
	struct hl_fleet_selection selection = {0};
	char *rest = storage;
	int r = storage ? 0 : -ENOMEM;

	while (r == 0 && rest && *rest)
		r = read_parameter(strsep(&rest, "&"), &selection, err);
	if (r < 0)
		return r;
	*ret_selection = selection;
	*ret_storage = HL_TAKE(storage);
	return 0;
}

void hl_fleet_selection_describe(const struct hl_fleet_selection *selection, FILE *out)
{
	for (size_t i = 0; i < HL_FLEET_LABEL_COUNT; i++)
		if (selection->labels[i])
			fprintf(out, "%s %s, ", hl_fleet_label_names[i], selection->labels[i]);
}

const char *hl_fleet_put_time(int64_t ms, char text[32])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm parts;

	localtime_r(&seconds, &parts);
	strftime(text, 32, "%Y-%m-%d %H:%M:%S", &parts);
	return text;
}
