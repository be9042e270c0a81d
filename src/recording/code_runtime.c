/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of runtimes; see recording.h. */
#include "recording/recording.h"

#include "base/compiler.h"
#include "base/names.h"
#include "guests/traits.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NODE_START "node --perf-basic-prof --interpreted-frames-native-stack"

/* clang-format off */
static const struct hl_code_runtime runtimes[] = {
	{"node", "JavaScript", NODE_START, NULL, NULL, "", NULL, NULL},
	{"nodejs", "JavaScript", NODE_START, NULL, NULL, "", NULL, NULL},
	{"libnode.so", "JavaScript", NODE_START, NULL, NULL, "", NULL, NULL},
	{"libcoreclr.so", ".NET", "DOTNET_PerfMapEnabled=1 dotnet", NULL, NULL, "", NULL, NULL},
	{"mono", "Mono", "mono --jitmap", NULL, NULL, "", NULL, NULL},
	{"mono-sgen", "Mono", "mono --jitmap", NULL, NULL, "", NULL, NULL},
	{"libmonosgen", "Mono", "mono --jitmap", NULL, NULL, "", NULL, NULL},
	{"perl", "Perl", NULL, NULL, NULL, "", NULL, NULL},
	{"libperl.so", "Perl", NULL, NULL, NULL, "", NULL, NULL},
	{"libguile", "Scheme", NULL, NULL, NULL, "", NULL, NULL},
	{"guile", "Scheme", NULL, NULL, NULL, "", NULL, NULL},
	{"libswipl.so", "Prolog", NULL, NULL, NULL, "", NULL, NULL},
	{"swipl", "Prolog", NULL, NULL, NULL, "", NULL, NULL},
	{"sbcl", "Lisp", NULL, NULL, NULL, "", NULL, NULL},
};
/* clang-format on */

/* Whether the file ${name} has it, in any version; what a program has saved is not it ("sbcl.core"). */
static bool is_in(const struct hl_code_runtime *runtime, const char *name)
{
	size_t length = strlen(runtime->file);

	if (strncmp(name, runtime->file, length) != 0)
		return false;
	const char *rest = name + length;
	return !*rest || *rest == '-' || isdigit((unsigned char)*rest) ||
	       (*rest == '.' && (isdigit((unsigned char)rest[1]) || !strncmp(rest, ".so", 3)));
}

const struct hl_code_runtime *hl_code_runtime_of(const char *path)
{
	const char *name = hl_path_basename(path);

	for (size_t i = 0; i < HL_COUNT_OF(runtimes); i++)
		if (is_in(&runtimes[i], name))
			return &runtimes[i];
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_code_runtime *runtime = hl_guest_traits[i]->code_runtimes;
		for (; runtime && runtime->file; runtime++)
			if (is_in(runtime, name))
				return runtime;
	}
	return NULL;
}

const char *hl_code_runtime_remedy(const struct hl_code_runtime *runtime, uint32_t pid,
				   char text[HL_CODE_RUNTIME_REMEDY_MAX])
{
	if (pid && runtime->tool)
		snprintf(text, HL_CODE_RUNTIME_REMEDY_MAX,
			 "'%s %u %s'%s writes them, while heapline records", runtime->tool, pid,
			 runtime->task, runtime->version);
	else
		snprintf(text, HL_CODE_RUNTIME_REMEDY_MAX, "'%s'%s writes them", runtime->start,
			 runtime->version);
	return text;
}

static bool is_of_guest(const char *name)
{
	for (size_t i = 0; hl_guest_traits[i]; i++)
		if (hl_guest_traits[i]->names_code && hl_guest_traits[i]->names_code(name))
			return true;
	return false;
}

/* "void java.util.zip.Deflater.end()", "void [App] Program::Main(string[])[Tier0]" */
static bool is_signature(const char *name)
{
	const char *result = strchr(name, ' '), *parameters = strchr(name, '(');

	return result && parameters && result < parameters && strncmp(name, "RegExp:", 7) != 0 &&
	       (memchr(result, '.', (size_t)(parameters - result)) ||
		memmem(result, (size_t)(parameters - result), "::", 2));
}

bool hl_code_runtime_is_script(const char *name, const char *source)
{
	return source[0] || is_of_guest(name) || is_signature(name);
}
