/* SPDX-License-Identifier: BSD-2-Clause */
/* Tools out of the tables of verbs and options; see mcp_tools.h. */
#include "cli/mcp_tools.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern const char hl_schemas[]; /* docs/schema, see scripts/bundle_schemas.py */

/* Options for people at a terminal, and for heapline's own use. */
static const char *const unused_options[] = {"help",	 "json",      "color", "no-pager",
					     "quiet",	 "verbose",   "watch", "jobs",
					     "interval", "preloaded", "term",  NULL};

static bool has_word(const char *const *words, const char *word)
{
	for (; words && *words; words++)
		if (!strcmp(*words, word))
			return true;
	return false;
}

static bool is_used(const struct hl_option *option)
{
	return option->kind != HL_OPTION_RENAMED && !has_word(unused_options, option->name);
}

static bool is_written(const struct hl_verb *verb, const struct hl_option *option)
{
	return !strcmp(option->name, "output") || has_word(verb->written, option->name);
}

static const struct hl_verb *find_verb(const char *name)
{
	const struct hl_verb *verb = hl_verb_find(name);

	return verb && verb->effect != HL_VERB_STAYS ? verb : NULL;
}

static const struct hl_option *find_option(const struct hl_verb *verb, const char *name,
					   size_t length)
{
	const struct hl_option *options[HL_OPTIONS_MAX];
	size_t count = hl_options_of(verb, options);

	for (size_t i = 0; i < count; i++)
		if (is_used(options[i]) && strlen(options[i]->name) == length &&
		    !strncmp(options[i]->name, name, length))
			return options[i];
	return NULL;
}

/* Whether it enters processes unless told to stay outside. */
static bool can_stay_outside(const struct hl_verb *verb)
{
	return find_option(verb, "outside", strlen("outside"));
}

/* ---- operands ---- */

static bool takes_command(const struct hl_verb *verb)
{
	return strstr(verb->arguments, "COMMAND") != NULL;
}

/* Whether anything but options and a command stands in its usage: "-p PID | --core FILE" has nothing. */
static bool takes_operands(const struct hl_verb *verb)
{
	const char *at = verb->arguments;

	while (*at) {
		size_t length = strcspn(at, " []()|");
		if (at[0] == '-') { /* with its argument */
			at += length;
			at += strspn(at, " ");
			at += strcspn(at, " []()|");
		} else if (length && strncmp(at, "COMMAND", 7) != 0) {
			return true;
		} else {
			at += length ? length : 1;
		}
	}
	return false;
}

/* ---- schemas of what goes in ---- */

static json_t *words_enum(const char *const *words)
{
	json_t *array = json_array();

	for (; *words; words++)
		json_array_append_new(array, json_string(*words));
	return array;
}

/* What an option takes; without its description. */
static json_t *option_type(const struct hl_option *option)
{
	const struct hl_option_bounds *bounds = option->accepts;

	switch (option->kind) {
	case HL_OPTION_FLAG:
		return json_pack("{ss}", "type", "boolean");
	case HL_OPTION_COUNT:
		return json_pack("{sssI}", "type", "integer", "minimum",
				 (json_int_t)(bounds ? bounds->least : 0));
	case HL_OPTION_PID:
		return json_pack("{sssi}", "type", "integer", "minimum", 1);
	case HL_OPTION_BYTES:
		return json_pack("{s[ss]ss}", "type", "integer", "string", "pattern",
				 "^[0-9]+[KMGTkmgt]?$");
	case HL_OPTION_SECONDS:
		return json_pack("{sssi}", "type", "number", "exclusiveMinimum", 0);
	case HL_OPTION_PERCENT:
		return json_pack("{sssisi}", "type", "number", "minimum", 0, "maximum", 100);
	case HL_OPTION_CHOICE:
		return json_pack("{so}", "enum", words_enum(option->accepts));
	case HL_OPTION_TEXTS:
		return json_pack("{sss{ss}si}", "type", "array", "items", "type", "string",
				 "maxItems", HL_OPTION_TEXTS_MAX);
	case HL_OPTION_RANGE:
		return json_pack("{sss{ss}sisi}", "type", "array", "items", "type", "integer",
				 "minItems", 2, "maxItems", 2);
	case HL_OPTION_TEXT:
	case HL_OPTION_OUTPUT:
	case HL_OPTION_COMM:
	case HL_OPTION_RENAMED:
		break;
	}
	return json_pack("{ss}", "type", "string");
}

static json_t *option_schema(const struct hl_verb *verb, const struct hl_option *option)
{
	json_t *schema = option_type(option);
	char help[512];

	snprintf(help, sizeof(help), "%s%s%s%s", option->argument ? option->argument : "",
		 option->argument ? ": " : "", option->help,
		 is_written(verb, option) ? "; a plain name, in the folder of this server" : "");
	json_object_set_new(schema, "description", json_string(help));
	return schema;
}

static json_t *texts_schema(const char *about, const char *usage)
{
	char description[256];

	snprintf(description, sizeof(description), "%s%s", about, usage);
	return json_pack("{sss{ss}ss}", "type", "array", "items", "type", "string", "description",
			 description);
}

static json_t *input_schema(const struct hl_verb *verb)
{
	const struct hl_option *options[HL_OPTIONS_MAX];
	size_t count = hl_options_of(verb, options);
	json_t *properties = json_object();

	if (takes_operands(verb))
		json_object_set_new(properties, "operands",
				    texts_schema("in the order of the usage: ", verb->arguments));
	if (takes_command(verb))
		json_object_set_new(properties, "command",
				    texts_schema("a program and its arguments", ""));
	for (size_t i = 0; i < count; i++)
		if (is_used(options[i]))
			json_object_set_new(properties, options[i]->name,
					    option_schema(verb, options[i]));
	return json_pack("{sssosb}", "type", "object", "properties", properties,
			 "additionalProperties", 0);
}

/* ---- schemas of what comes out ---- */

static bool is_of(const char *document, const char *verb)
{
	size_t length = strlen(verb);

	return !strncmp(document, verb, length) && (!document[length] || document[length] == '-');
}

/* Members that any answer may have beside those of its report. */
static void add_members(json_t *schema)
{
	json_t *properties = json_object_get(schema, "properties");

	json_object_set_new(properties, "next", json_pack("{ss}", "$ref", "#/$defs/next"));
	json_object_set_new(properties, "more", json_pack("{ss}", "type", "object"));
	json_object_set_new(properties, "status", json_pack("{ss}", "type", "integer"));
	json_object_set_new(properties, "said", json_pack("{ss}", "$ref", "#/$defs/lines"));
}

/* Of a verb that wrote a file, or does not write JSON. */
static json_t *plain_schema(void)
{
	json_t *schema = json_pack("{sss{s{ss}s{ss}}s[s]sb}", "type", "object", "properties",
				   "folder", "type", "string", "lines", "$ref", "#/$defs/lines",
				   "required", "status", "additionalProperties", 0);

	add_members(schema);
	return schema;
}

static json_t *output_schema(const json_t *bundle, const struct hl_verb *verb)
{
	const json_t *common = json_object_get(bundle, "definitions");
	json_t *forms = json_array(), *definitions = json_object(), *document;
	const char *name;

	json_object_foreach(json_object_get(bundle, "documents"), name, document) {
		if (!is_of(name, verb->name))
			continue;
		json_t *schema = json_deep_copy(json_object_get(document, "schema"));
		const json_t *uses = json_object_get(document, "uses");
		add_members(schema);
		json_array_append_new(forms, schema);
		for (size_t i = 0; i < json_array_size(uses); i++) {
			const char *use = json_string_value(json_array_get(uses, i));
			json_object_set(definitions, use, json_object_get(common, use));
		}
	}
	json_array_append_new(forms, plain_schema());
	json_object_set_new(definitions, "lines",
			    json_pack("{sss{ss}}", "type", "array", "items", "type", "string"));
	json_object_set_new(definitions, "next",
			    json_pack("{sss{s{ss}s{ss}s{ss}}}", "type", "object", "properties",
				      "tool", "type", "string", "arguments", "type", "object",
				      "command", "type", "string"));
	return json_pack("{sssoso}", "type", "object", "anyOf", forms, "$defs", definitions);
}

/* ---- the list ---- */

static json_t *tool(const json_t *bundle, const struct hl_verb *verb, bool may_enter)
{
	bool enters = verb->effect == HL_VERB_ENTERS;
	bool can_enter = enters || verb->entering || takes_command(verb) || can_stay_outside(verb);
	char title[64], description[512];

	snprintf(title, sizeof(title), "heapline %s", verb->name);
	snprintf(description, sizeof(description), "%s%s", verb->summary,
		 !can_enter || may_enter ? ""
		 : enters		 ? "; refused by this server, which needs --allow-attach"
			  : "; what enters a process or starts a program is refused by this "
			    "server, which needs --allow-attach");
	return json_pack("{sssssssoso s{sbsbsbsb}}", "name", verb->name, "title", title,
			 "description", description, "inputSchema", input_schema(verb),
			 "outputSchema", output_schema(bundle, verb), "annotations", "readOnlyHint",
			 !(enters || (can_enter && may_enter)), "destructiveHint", enters,
			 "idempotentHint", !enters, "openWorldHint", enters);
}

json_t *hl_mcp_tools_list(bool may_enter)
{
	json_auto_t *bundle = json_loads(hl_schemas, 0, NULL);
	json_t *tools = bundle ? json_array() : NULL;
	const struct hl_verb *verb;

	for (size_t i = 0; tools && (verb = hl_verb_at(i)); i++)
		if (verb->effect != HL_VERB_STAYS &&
		    json_array_append_new(tools, tool(bundle, verb, may_enter)) < 0) {
			json_decref(tools);
			return NULL;
		}
	return tools;
}

/* ---- from arguments to words ---- */

struct line {
	const struct hl_verb *verb;
	bool may_enter;
	json_t *words;
	struct hl_error *err;
};

static int bad(const struct line *line, const char *name, const char *expected)
{
	return hl_error_set(line->err, -EINVAL, "'%.100s' of '%s' must be %s", name,
			    line->verb->name, expected);
}

static int add_word(struct line *line, const char *format, ...) HL_PRINTF(2, 3);

static int add_word(struct line *line, const char *format, ...)
{
	HL_FREED char *word = NULL;
	va_list args;

	va_start(args, format);
	int length = vasprintf(&word, format, args);
	va_end(args);
	if (length < 0) {
		word = NULL;
		return hl_error_set(line->err, -ENOMEM, "out of memory");
	}
	/* json_string() refuses what is not UTF-8, which jansson did not let in. */
	return json_array_append_new(line->words, json_string(word)) < 0
		       ? hl_error_set(line->err, -ENOMEM, "out of memory")
		       : 0;
}

/* A file of that name would lie in the folder of the server. */
static bool is_plain_name(const char *name)
{
	return name[0] && name[0] != '.' && name[0] != '-' && !strchr(name, '/') &&
	       !hl_words_has_control(name);
}

static int add_text(struct line *line, const struct hl_option *option, const json_t *value)
{
	const char *text = json_string_value(value);

	if (!text)
		return bad(line, option->name, "a string");
	if (is_written(line->verb, option) && !is_plain_name(text))
		return bad(line, option->name,
			   "a plain name, without '/' and not beginning with '.' or '-': files "
			   "are written into the folder of this server");
	return add_word(line, "--%s=%s", option->name, text);
}

static int add_option(struct line *line, const struct hl_option *option, const json_t *value)
{
	const char *name = option->name;
	int r = 0;

	switch (option->kind) {
	case HL_OPTION_FLAG:
		if (!json_is_boolean(value))
			return bad(line, name, "true or false");
		return json_is_true(value) ? add_word(line, "--%s", name) : 0;
	case HL_OPTION_TEXTS:
		if (!json_is_array(value))
			return add_text(line, option, value);
		for (size_t i = 0; r == 0 && i < json_array_size(value); i++)
			r = add_text(line, option, json_array_get(value, i));
		return r;
	case HL_OPTION_RANGE:
		if (json_array_size(value) != 2 || !json_is_integer(json_array_get(value, 0)) ||
		    !json_is_integer(json_array_get(value, 1)))
			return bad(line, name, "an array of two whole numbers");
		r = add_word(line, "--%s=%lld", name, json_integer_value(json_array_get(value, 0)));
		return r < 0 ? r
			     : add_word(line, "%lld", json_integer_value(json_array_get(value, 1)));
	default:
		break;
	}
	if (json_is_integer(value))
		return add_word(line, "--%s=%lld", name, json_integer_value(value));
	if (json_is_real(value))
		return add_word(line, "--%s=%.6f", name, json_real_value(value));
	return add_text(line, option, value);
}

/* The words of array ${name}; of operands none may pose as an option, or write where it should not. */
static int add_words(struct line *line, const json_t *array, const char *name, bool are_operands)
{
	int r = json_is_array(array) ? 0 : bad(line, name, "an array of strings");

	for (size_t i = 0; r == 0 && i < json_array_size(array); i++) {
		const char *word = json_string_value(json_array_get(array, i));
		if (!word)
			r = bad(line, name, "an array of strings");
		else if (are_operands && word[0] == '-')
			r = bad(line, name,
				"words that do not begin with '-'; options have members of their "
				"own");
		else
			r = add_word(line, "%s", word);
	}
	return r;
}

/* Whether a process would be entered, or a program started. */
static bool would_enter(const struct hl_verb *verb, const json_t *arguments)
{
	const char *first =
		json_string_value(json_array_get(json_object_get(arguments, "operands"), 0));
	const char *name;
	json_t *value;

	/* What only asks. */
	if (verb == &hl_verb_ctl)
		return !first || strcmp(first, "status") != 0;
	if (verb->effect == HL_VERB_ENTERS)
		return true;
	json_object_foreach((json_t *)arguments, name, value)
		if ((takes_command(verb) && !strcmp(name, "command")) ||
		    (has_word(verb->entering, name) && !json_is_false(value)))
			return true;
	return false;
}

/* A default name may be one beside the input. */
static int check_output(struct line *line, const json_t *arguments)
{
	const struct hl_verb *verb = line->verb;
	const json_t *operands = json_object_get(arguments, "operands");
	const char *action = json_string_value(json_array_get(operands, 0));
	const char *path = json_string_value(json_array_get(operands, 1));

	if ((verb == &hl_verb_pack || verb == &hl_verb_import) &&
	    !json_object_get(arguments, "output"))
		return hl_error_set(line->err, -EINVAL, "'%s' needs 'output'", verb->name);
	if (verb == &hl_verb_ctl && action && !strcmp(action, "snapshot") && path &&
	    !is_plain_name(path))
		return bad(line, "operands", "'snapshot' and a plain name, without '/'");
	return 0;
}

static int make_words(struct line *line, const json_t *arguments)
{
	const json_t *operands = json_object_get(arguments, "operands");
	const json_t *command = json_object_get(arguments, "command");
	const char *name;
	json_t *value;
	int r = check_output(line, arguments);

	json_object_foreach((json_t *)arguments, name, value) {
		const struct hl_option *option = find_option(line->verb, name, strlen(name));
		if ((value == operands && takes_operands(line->verb)) ||
		    (value == command && takes_command(line->verb)) || json_is_null(value))
			continue;
		if (r == 0 && !option)
			r = hl_error_set(line->err, -EINVAL,
					 "'%s' has no argument '%.100s'; its inputSchema has all",
					 line->verb->name, name);
		if (r == 0)
			r = add_option(line, option, value);
	}
	if (r == 0 && !line->may_enter && can_stay_outside(line->verb))
		r = add_word(line, "--outside");
	if (r == 0 && operands)
		r = add_words(line, operands, "operands", true);
	if (r == 0 && command)
		r = add_word(line, "--");
	if (r == 0 && command)
		r = add_words(line, command, "command", false);
	return r;
}

int hl_mcp_tools_words(const char *name, const json_t *arguments, bool may_enter,
		       const struct hl_verb **ret_verb, json_t **ret_words, struct hl_error *err)
{
	struct line line = {.verb = find_verb(name), .may_enter = may_enter, .err = err};

	if (!line.verb)
		return hl_error_set(err, -EINVAL, "there is no tool '%.100s'", name);
	if (!may_enter && would_enter(line.verb, arguments))
		return hl_error_set(
			err, -EACCES,
			"'%s' with these arguments enters a process or starts a program, which "
			"this "
			"server does not do; whoever started it may add --allow-attach: 'heapline "
			"mcp --allow-attach'",
			name);
	line.words = json_array();
	int r = line.words ? make_words(&line, arguments)
			   : hl_error_set(err, -ENOMEM, "out of memory");
	if (r < 0) {
		json_decref(line.words);
		return r;
	}
	*ret_verb = line.verb;
	*ret_words = line.words;
	return 0;
}

/* ---- from a command to arguments ---- */

/* The next word of a line as a shell reads it, without variables; NULL: none. To be freed. */
static char *next_word(const char **at)
{
	char *word = NULL;
	size_t size = 0;

	*at += strspn(*at, " ");
	FILE *out = **at ? open_memstream(&word, &size) : NULL;
	if (!out)
		return NULL;
	for (char quote = 0; **at && (quote || **at != ' '); ++*at) {
		if (**at == quote)
			quote = 0;
		else if (!quote && (**at == '\'' || **at == '"'))
			quote = **at;
		else if (!quote && **at == '\\' && (*at)[1])
			putc(*++*at, out);
		else
			putc(**at, out);
	}
	if (fclose(out) == 0)
		return word;
	free(word);
	return NULL;
}

static json_t *value_of(const struct hl_option *option, const char *text)
{
	char *end;

	if (option->kind == HL_OPTION_COUNT || option->kind == HL_OPTION_PID)
		return json_integer(strtoll(text, NULL, 10));
	if (option->kind == HL_OPTION_SECONDS || option->kind == HL_OPTION_PERCENT) {
		double number = strtod(text, &end);
		return number == (double)(long long)number ? json_integer((long long)number)
							   : json_real(number);
	}
	return option->kind == HL_OPTION_TEXTS ? json_pack("[s]", text) : json_string(text);
}

/* The option that ${word} begins, and where its value stands in it: NULL for the next word. */
static const struct hl_option *option_of_word(const struct hl_verb *verb, const char *word,
					      const char **ret_value)
{
	const struct hl_option *options[HL_OPTIONS_MAX];
	size_t count = hl_options_of(verb, options), length = strcspn(word, "=");

	*ret_value = word[length] ? word + length + 1 : NULL;
	if (!strncmp(word, "--", 2))
		return find_option(verb, word + 2, length - 2);
	*ret_value = word[1] && word[2] ? word + 2 : NULL;
	for (size_t i = 0; i < count; i++)
		if (options[i]->short_name && options[i]->short_name == word[1])
			return is_used(options[i]) ? options[i] : NULL;
	return NULL;
}

/* Reads all words behind the verb into ${arguments}. Whether it knows them. */
static bool parse_words(const struct hl_verb *verb, const char *at, json_t *arguments)
{
	json_auto_t *operands = json_array();
	const char *value;

	for (;;) {
		HL_FREED char *word = next_word(&at), *next = NULL;
		if (!word)
			break;
		if (word[0] != '-') {
			json_array_append_new(operands, json_string(word));
			continue;
		}
		const struct hl_option *option = option_of_word(verb, word, &value);
		if (!option || option->kind == HL_OPTION_RANGE)
			return false;
		if (option->argument && !value)
			value = next = next_word(&at);
		if (option->argument && !value)
			return false;
		json_object_set_new(arguments, option->name,
				    option->argument ? value_of(option, value) : json_true());
	}
	if (json_array_size(operands))
		json_object_set(arguments, "operands", operands);
	return true;
}

json_t *hl_mcp_tools_parse(const char *command)
{
	const char *at = command;
	HL_FREED char *program = next_word(&at), *name = next_word(&at);
	const struct hl_verb *verb = name ? find_verb(name) : NULL;
	json_auto_t *arguments = json_object();

	if (!program || strcmp(program, "heapline") != 0 || !verb ||
	    !parse_words(verb, at, arguments))
		return NULL;
	return json_pack("{sssOss}", "tool", verb->name, "arguments", arguments, "command",
			 command);
}
