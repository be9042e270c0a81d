/* SPDX-License-Identifier: BSD-2-Clause */
/* Names processes by their command lines and cgroups; see service.h. */
#include "process/service.h"

#include "base/compiler.h"
#include "base/names.h"
#include "guests/traits.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WORD_BYTES 4096 /* that are looked at */

#define ID_LENGTH   64 /* of a container: hexadecimal digits */
#define UUID_LENGTH 36 /* of a pod */

/* ---- words of a shell ---- */

/* Appends, as far as there is room. */
static void put(char *word, size_t *length, char byte)
{
	if (*length + 1 < WORD_BYTES)
		word[(*length)++] = byte;
}

/* One escape of $'...', after its backslash; returns what follows it. */
static const char *read_escape(const char *at, char *word, size_t *length)
{
	unsigned number = 0;
	int digits = 0;

	while (digits < 3 && at[digits] >= '0' && at[digits] <= '7')
		number = number * 8 + (unsigned)(at[digits++] - '0');
	if (digits) {
		put(word, length, (char)number);
		return at + digits;
	}
	put(word, length, *at == 'n' ? '\n' : *at);
	return *at ? at + 1 : at;
}

/* What follows the quotes that begin at ${at}, ' or $'. */
static const char *read_quoted(const char *at, char *word, size_t *length)
{
	bool has_escapes = *at == '$';

	for (at += has_escapes ? 2 : 1; *at && *at != '\'';)
		if (has_escapes && *at == '\\')
			at = read_escape(at + 1, word, length);
		else
			put(word, length, *at++);
	return *at ? at + 1 : at;
}

/* Reads the next word of *${command}, without its quotes. Whether there was one. */
static bool next_word(const char **command, char word[WORD_BYTES])
{
	const char *at = *command + strspn(*command, " ");
	size_t length = 0;
	bool found = *at;

	while (*at && *at != ' ')
		if (*at == '\'' || (*at == '$' && at[1] == '\''))
			at = read_quoted(at, word, &length);
		else if (*at == '\\')
			at = read_escape(at + 1, word, &length);
		else
			put(word, &length, *at++);
	word[length] = '\0';
	*command = at;
	return found;
}

/* ---- programs ---- */

/* Whether the first ${length} bytes of ${text} are the path of ${executable}, or its end: "./My App/one". */
static bool is_path_of(const char *text, size_t length, const char *executable)
{
	size_t whole = strlen(executable);

	while (length > 2 && !strncmp(text, "./", 2)) {
		text += 2;
		length -= 2;
	}
	if (length > 1 && text[length - 1] == ':') /* of a title: "nginx: worker process" */
		length--;
	return length <= whole && !strncmp(executable + whole - length, text, length) &&
	       (length == whole || executable[whole - length - 1] == '/');
}

/* The bytes of ${text} that name its program: up to the blank that ends the path, else up to the first one. */
static size_t program_length(const char *text, const char *executable)
{
	size_t first = strcspn(text, " ");

	for (size_t length = first; executable && executable[0];
	     length += 1 + strcspn(text + length + 1, " ")) {
		if (is_path_of(text, length, executable))
			return length;
		if (!text[length])
			break;
	}
	return first;
}

static void keep_name(const char *path, size_t length, char name[HL_SERVICE_NAME_MAX])
{
	char text[WORD_BYTES];

	snprintf(text, sizeof(text), "%.*s", (int)length, path);
	snprintf(name, HL_SERVICE_NAME_MAX, "%.*s", HL_SERVICE_NAME_MAX - 1,
		 hl_path_basename(text));
}

void hl_service_program(const char *title, const char *executable, char name[HL_SERVICE_NAME_MAX])
{
	keep_name(title, program_length(title, executable), name);
	size_t length = strlen(name);
	if (length > 1 && name[length - 1] == ':') /* "nginx: worker process" */
		name[length - 1] = '\0';
}

/* ---- scripts ---- */

/* Programs whose first word that is not an option is what they run, beside those of guests. */
static const struct hl_guest_command interpreters[] = {
	{"perl", "-I", NULL, "-e"},
	{"node", "-r --require --import --loader -C", NULL, "-e"},
	{"bash", "-o -O", NULL, "-c"},
	{"sh", "-o", NULL, "-c"},
	{0},
};

static const struct hl_guest_command *find_in(const struct hl_guest_command *table,
					      const char *name)
{
	for (; table && table->name; table++) {
		size_t length = strlen(table->name);
		if (!strncmp(table->name, name, length) &&
		    !name[length + strspn(name + length, "0123456789.")])
			return table;
	}
	return NULL;
}

static const struct hl_guest_command *find_interpreter(const char *name)
{
	const struct hl_guest_command *found = find_in(interpreters, name);

	for (size_t i = 0; !found && hl_guest_traits[i]; i++)
		found = find_in(hl_guest_traits[i]->commands, name);
	return found;
}

/* Whether ${word} is one of ${options}, which blanks part; NULL: of none. */
static bool is_one_of(const char *word, const char *options)
{
	size_t length = strlen(word);

	for (const char *at = options; at && (at = strstr(at, word)); at += length)
		if ((at == options || at[-1] == ' ') && (!at[length] || at[length] == ' '))
			return true;
	return false;
}

static void find_script(const char *rest, const struct hl_guest_command *interpreter,
			char script[HL_SERVICE_NAME_MAX])
{
	char word[WORD_BYTES];

	while (next_word(&rest, word)) {
		if (is_one_of(word, interpreter->text))
			return;
		if (is_one_of(word, interpreter->program)) {
			if (!next_word(&rest, word))
				return;
		} else if (is_one_of(word, interpreter->values)) {
			next_word(&rest, word);
			continue;
		} else if (word[0] == '-') {
			continue;
		}
		keep_name(word, strlen(word), script);
		return;
	}
}

void hl_service_of(const char *command, const char *executable, struct hl_service *ret_service)
{
	char word[WORD_BYTES];
	const char *rest = command;
	const struct hl_guest_command *interpreter;

	*ret_service = (struct hl_service){0};
	size_t length = program_length(command, executable);
	if (length > strcspn(command, " ")) { /* a title, whose words have no quotes */
		hl_service_program(command, executable, ret_service->name);
		rest = command + length;
	} else {
		next_word(&rest, word);
		/* A quoted word is a path with a blank, or a title. */
		hl_service_program(word, executable, ret_service->name);
	}
	interpreter = find_interpreter(ret_service->name);
	if (interpreter)
		find_script(rest, interpreter, ret_service->script);
}

/* ---- containers ---- */

static size_t digits_at(const char *text)
{
	size_t count = 0;

	while (isxdigit((unsigned char)text[count]))
		count++;
	return count;
}

/* Whether a UUID is at ${text}, whose parts are joined by '-', or by '_' in names of systemd's slices. */
static bool is_uuid(const char *text)
{
	for (size_t i = 0; i < UUID_LENGTH; i++) {
		bool joins = i == 8 || i == 13 || i == 18 || i == 23;
		if (joins ? text[i] != '-' && text[i] != '_' : !isxdigit((unsigned char)text[i]))
			return false;
	}
	return true;
}

void hl_service_container(const char *cgroups, char container[HL_SERVICE_CONTAINER_MAX],
			  char pod[HL_SERVICE_CONTAINER_MAX])
{
	container[0] = pod[0] = '\0';
	for (const char *at = cgroups; *at; at++) {
		bool begins = at == cgroups || !isxdigit((unsigned char)at[-1]);
		/* The last one is the innermost: containers may run containers. */
		if (begins && digits_at(at) == ID_LENGTH)
			snprintf(container, HL_SERVICE_CONTAINER_MAX, "%.*s", ID_LENGTH, at);
		if (strncmp(at, "pod", strlen("pod")) != 0 || !is_uuid(at + strlen("pod")))
			continue;
		snprintf(pod, HL_SERVICE_CONTAINER_MAX, "%.*s", UUID_LENGTH, at + strlen("pod"));
		for (char *c = pod; *c; c++)
			if (*c == '_')
				*c = '-';
	}
}
