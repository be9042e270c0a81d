/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds and examines programs; see collector.h. */
#include "collector/collector.h"

#include "allocators/traits.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "elf/elf.h"
#include "guests/traits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The kernel follows as many interpreters of interpreters. */
#define INTERPRETERS_MAX 5

/* Of a #! line; the kernel reads no more. */
#define SCRIPT_LINE_BYTES 256

/* ---- finding ---- */

static bool is_runnable(const char *path)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return false;
	if (!S_ISREG(status.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0) {
		errno = EACCES;
		return false;
	}
	return true;
}

/* Tries every directory of ${directories}; as execvp, goes on after a file that may not be run. */
static int find_along(const char *directories, const char *command, char *path, size_t capacity)
{
	int r = -ENOENT;

	for (const char *start = directories, *end; start; start = *end ? end + 1 : NULL) {
		end = strchrnul(start, ':');
		int length = (int)(end - start);
		int size = snprintf(path, capacity, "%.*s%s%s", length, start, length ? "/" : "",
				    command);
		if (size < 0 || (size_t)size >= capacity)
			continue;
		if (is_runnable(path))
			return 0;
		if (errno == EACCES)
			r = -EACCES;
	}
	return r;
}

int hl_examine_find(const char *command, char *ret_path, size_t capacity, struct hl_error *err)
{
	const char *directories = getenv("PATH");

	if (command[0] == '\0')
		return hl_error_set(err, -ENOENT, "cannot run '': the name is empty");
	int r;
	if (strchr(command, '/'))
		r = snprintf(ret_path, capacity, "%s", command) >= (int)capacity ? -ENAMETOOLONG
		    : is_runnable(command)					 ? 0
										 : -errno;
	else
		r = find_along(directories ? directories : "/bin:/usr/bin", command, ret_path,
			       capacity);
	if (r == 0)
		return 0;
	return hl_error_set(err, r == -ENOTDIR ? -ENOENT : r, "cannot run '%s': %s", command,
			    r == -ENOENT && !strchr(command, '/') ? "not found in PATH"
								  : strerror(-r));
}

/* ---- privileges ---- */

/* Whether starting the program changes what it may do: the loader then ignores LD_PRELOAD. */
static bool gains_privileges(const char *path)
{
	struct stat status;
	struct statvfs mount;

	if (stat(path, &status) < 0 || (statvfs(path, &mount) == 0 && (mount.f_flag & ST_NOSUID)))
		return false;
	if ((status.st_mode & S_ISUID) && status.st_uid != geteuid())
		return true;
	bool set_group = (status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP);
	if (set_group && status.st_gid != getegid())
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

/* ---- the verdict ---- */

static struct hl_examined refuse(const char *reason, const char *remedy)
{
	return (struct hl_examined){.reason = reason, .remedy = remedy};
}

static struct hl_examined enter(const char *why)
{
	return (struct hl_examined){.entered = why};
}

static bool has_section(Elf *elf, const char *name)
{
	GElf_Shdr header;

	return hl_elf_find_section(elf, name, &header);
}

static bool has_malloc(Elf *elf)
{
	uint64_t address;

	return hl_elf_find_symbol(elf, HL_ELF_SYMTAB | HL_ELF_DYNSYM, "malloc", &address);
}

/* Whether it has a section of Go or Free Pascal, whose runtimes call no malloc. */
static bool has_other_runtime(Elf *elf)
{
	return has_section(elf, ".go.buildinfo") || has_section(elf, ".fpcdata");
}

/* Programs linked with no library whose functions of the malloc family are not found. */
static struct hl_examined refuse_static(Elf *elf)
{
	if (has_section(elf, ".go.buildinfo"))
		return refuse("it is a Go program without C code, whose runtime allocates without "
			      "malloc",
			      HL_GO_PROFILES "; while it runs 'heapline pgfault -p PID' traces "
					     "its pages");
	if (has_section(elf, ".fpcdata"))
		return refuse(
			"it is a Free Pascal program whose memory manager does not call malloc",
			"build it with 'uses cmem' as the first unit of the program; while it "
			"runs 'heapline pgfault -p PID' traces its pages");
	if (has_section(elf, ".symtab"))
		return refuse(
			"it is linked with no library, and none of its functions is called malloc",
			"record its own while it runs: 'heapline attach -p PID --hook "
			"malloc=FUNCTION(size=1)'");
	return refuse("it is statically linked and has no symbols, so its malloc is not found",
		      "link it dynamically, or leave its symbols in; while it runs "
		      "'heapline pgfault -p PID' traces its pages");
}

static struct hl_examined judge_static(Elf *elf)
{
	uint64_t address;

	/* glibc's loader, executed itself, preloads into the program that it loads. */
	if (hl_elf_find_symbol(elf, HL_ELF_DYNSYM, "_rtld_global", &address))
		return refuse(NULL, NULL);
	if (!has_malloc(elf))
		return refuse_static(elf);
	return (struct hl_examined){.entered = "it is statically linked", .is_static = true};
}

/* Whether the C library is a part of the program, which has a loader all the same, and no symbols lead to its functions. */
static bool has_hidden_libc(Elf *elf)
{
	return hl_elf_loader(elf) && hl_elf_is_alone(elf) && !has_other_runtime(elf) &&
	       !has_section(elf, ".symtab") && !has_malloc(elf);
}

static struct hl_examined judge_loader(Elf *elf)
{
	const char *loader = hl_elf_loader(elf);

	if (!loader)
		return judge_static(elf);
	if (has_hidden_libc(elf))
		return refuse(
			"it is linked with no library and has no symbols, so its malloc is not "
			"found",
			"link it with libc.so; while it runs "
			"'heapline heap -p PID' reads its blocks");
	if (hl_elf_is_alone(elf) && !has_malloc(elf))
		return refuse_static(elf);
	if (strstr(loader, "ld-musl"))
		return enter("it is linked with musl");
	if (!hl_path_is_glibc_loader(loader))
		return refuse("its dynamic loader is not that of glibc", "build it for glibc");
	return refuse(NULL, NULL);
}

static bool exports(Elf *elf, const char *name)
{
	struct hl_elf_symbols exported = {.elf = elf, .tables = HL_ELF_DYNSYM};

	while (hl_elf_symbols_next(&exported)) {
		const GElf_Sym *symbol = &exported.symbol;
		unsigned type = GELF_ST_TYPE(symbol->st_info);
		/* An undefined symbol may have a value, too: the address of its PLT entry. */
		if (strcmp(exported.name, name) == 0 && symbol->st_shndx != SHN_UNDEF &&
		    symbol->st_value && GELF_ST_BIND(symbol->st_info) != STB_LOCAL &&
		    (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE))
			return true;
	}
	return false;
}

/* Whether it was built with -fsanitize=address, whatever has the symbol. */
static bool needs_asan(Elf *elf)
{
	struct hl_elf_symbols exported = {.elf = elf, .tables = HL_ELF_DYNSYM};

	while (hl_elf_symbols_next(&exported))
		if (strcmp(exported.name, "__asan_init") == 0)
			return true;
	return false;
}

/* Whether the runtime of any sanitizer is a part of it: what allocates has no other function of these. */
static bool has_sanitizer(Elf *elf)
{
	return exports(elf, "malloc") && exports(elf, "sigaction") && exports(elf, "signal");
}

/* An allocator of a guest that is in it, or in a library that it is linked with. */
static const struct hl_guest_allocator *find_guest_allocator(Elf *elf)
{
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const struct hl_guest_allocator *allocator = hl_guest_traits[i]->allocator;
		struct hl_elf_symbols exported = {.elf = elf, .tables = HL_ELF_DYNSYM};
		while (allocator && hl_elf_symbols_next(&exported))
			if (strcmp(exported.name, allocator->exported) == 0)
				return allocator;
		if (allocator && hl_elf_needs(elf, allocator->library))
			return allocator;
	}
	return NULL;
}

static bool has_allocator_beside_malloc(Elf *elf)
{
	for (size_t i = 0; hl_guest_traits[i]; i++)
		if (hl_guest_traits[i]->beside_malloc &&
		    exports(elf, hl_guest_traits[i]->beside_malloc))
			return true;
	return false;
}

static struct hl_examined judge_elf(const char *path, Elf *elf)
{
	if (gelf_getclass(elf) != ELFCLASS64)
		return refuse(
			"it is a 32-bit program, and the recorder is a 64-bit library",
			"build it for 64 bits; while it runs 'heapline pgfault -p PID' counts "
			"its pages");
	if (!hl_elf_is_native(elf))
		return refuse("it is a program for another kind of machine",
			      "record it on such a machine");
	struct hl_examined loader = judge_loader(elf);
	if (loader.reason)
		return loader;
	if (gains_privileges(path))
		return refuse("it is set-user-id, set-group-id or has file capabilities, so the "
			      "loader lets no library into it",
			      "record a copy of it without these, or as the user that it runs as, "
			      "or record it while it runs: 'heapline attach -p PID'");
	if (needs_asan(elf))
		return refuse("it is built with AddressSanitizer, which lets no library come "
			      "before its own",
			      "build it without -fsanitize=address");
	if (has_sanitizer(elf))
		return refuse("a sanitizer is linked into it, which has to begin before its "
			      "functions are called",
			      "build it without -fsanitize");
	if (loader.entered)
		return loader;
	if (exports(elf, "malloc"))
		return enter("it brings a malloc of its own");
	loader.guest_allocator = find_guest_allocator(elf);
	/* No library that is preloaded has functions of rules. */
	for (size_t i = 0; i < hl_pool_count; i++)
		if (exports(elf, hl_pool_traits[i].exported) ||
		    hl_elf_needs(elf, hl_pool_traits[i].library))
			loader.pool = &hl_pool_traits[i];
	if (has_allocator_beside_malloc(elf))
		loader.beside = "it has an allocator beside malloc";
	return loader;
}

static int open_program(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* The interpreter of a script; false when ${path} is not a script. */
static bool read_interpreter(const char *path, char interpreter[SCRIPT_LINE_BYTES])
{
	char line[SCRIPT_LINE_BYTES];
	HL_CLOSED int fd = open_program(path);

	ssize_t size = read(fd, line, sizeof(line) - 1);
	if (size < 2 || memcmp(line, "#!", 2) != 0)
		return false;
	line[size] = '\0';
	size_t blanks = strspn(line + 2, " \t");
	size_t length = strcspn(line + 2 + blanks, " \t\r\n");
	memcpy(interpreter, line + 2 + blanks, length);
	interpreter[length] = '\0';
	return length > 0;
}

struct hl_examined hl_examine_file(const char *path, char ret_program[PATH_MAX])
{
	char interpreter[SCRIPT_LINE_BYTES];

	snprintf(ret_program, PATH_MAX, "%s", path);
	for (int i = 0; i < INTERPRETERS_MAX && read_interpreter(ret_program, interpreter); i++)
		snprintf(ret_program, PATH_MAX, "%s", interpreter);
	HL_CLOSED int fd = open_program(ret_program);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (elf)
		return judge_elf(ret_program, elf);
	if (fd < 0)
		return refuse(NULL, NULL);
	/* a script without #!: sh runs it */
	snprintf(ret_program, PATH_MAX, "/bin/sh");
	HL_CLOSED int shell_fd = open_program(ret_program);
	HL_CLEANUP(hl_elf_cleanup) Elf *shell = hl_elf_open(shell_fd);
	return shell ? judge_elf(ret_program, shell) : refuse(NULL, NULL);
}

int hl_examine_program(const char *path, struct hl_examined *ret_examined, struct hl_error *err)
{
	char program[PATH_MAX];
	struct hl_examined examined = hl_examine_file(path, program);

	*ret_examined = examined;
	if (!examined.reason)
		return 0;
	return hl_error_set(err, -ENOTSUP, "cannot record '%s': %s; %s", program, examined.reason,
			    examined.remedy);
}

void hl_examinee_open(const char *path, struct hl_examinee *ret_examinee)
{
	ret_examinee->fd = open_program(path);
	ret_examinee->elf = hl_elf_open(ret_examinee->fd);
}

void hl_examinee_close(struct hl_examinee *examinee)
{
	elf_end(examinee->elf);
	if (examinee->fd >= 0)
		close(examinee->fd);
}

const char *hl_examine_allocator(const struct hl_examinee *program)
{
	Elf *elf = program->elf;
	struct hl_elf_symbols all = {.elf = elf, .tables = HL_ELF_SYMTAB | HL_ELF_DYNSYM};

	while (elf && hl_elf_symbols_next(&all)) {
		const char *found = all.symbol.st_shndx != SHN_UNDEF
					    ? hl_allocator_name_of_malloc(all.name)
					    : NULL;
		if (found)
			return found;
	}
	return NULL;
}

static bool exports_allocator(Elf *elf)
{
	struct hl_elf_symbols exported = {.elf = elf, .tables = HL_ELF_DYNSYM};
	struct hl_allocator_name ignored;

	while (hl_elf_symbols_next(&exported))
		if (exported.symbol.st_shndx != SHN_UNDEF &&
		    hl_allocator_name_find(exported.name, &ignored))
			return true;
	return false;
}

const char *hl_examine_hidden_allocator(const struct hl_examinee *program)
{
	Elf *elf = program->elf;
	const char *name = NULL;

	if (!elf || !hl_elf_loader(elf) || has_section(elf, ".symtab") || exports_allocator(elf))
		return NULL;
	for (size_t i = 0; i < hl_allocator_count; i++)
		if (hl_allocator_traits[i].has_operators && hl_allocator_traits[i].inside &&
		    hl_elf_has_text(elf, hl_allocator_traits[i].inside)) {
			if (name)
				return NULL; /* a program with texts of several looks for them, as heapline does */
			name = hl_allocator_traits[i].name;
		}
	return name || !has_hidden_libc(elf) ? name : "a C library";
}

/* The recorder that is preloaded, once ${called} looks like a function of an allocator. */
static bool is_taken(struct hl_examinee *recorder, bool *has_looked, const char *called)
{
	char path[PATH_MAX];

	if (!*has_looked && hl_preload_find(HL_PRELOAD_RECORDER, path, sizeof(path), NULL) == 0)
		hl_examinee_open(path, recorder);
	*has_looked = true;
	return !recorder->elf || exports(recorder->elf, called);
}

void hl_examine_unseen(const struct hl_examinee *program, char ret_names[HL_EXAMINE_UNSEEN_MAX])
{
	struct hl_elf_symbols called = {.elf = program->elf, .tables = HL_ELF_DYNSYM};
	struct hl_examinee recorder = {.fd = -1};
	bool has_looked = false;
	size_t length = 0;

	ret_names[0] = '\0';
	while (program->elf && hl_elf_symbols_next(&called)) {
		size_t added = strlen(called.name) + 2;
		if (called.symbol.st_shndx != SHN_UNDEF ||
		    !hl_allocator_name_resembles(called.name) ||
		    is_taken(&recorder, &has_looked, called.name) ||
		    length + added >= HL_EXAMINE_UNSEEN_MAX)
			continue;
		length += (size_t)snprintf(ret_names + length, HL_EXAMINE_UNSEEN_MAX - length,
					   "%s%s", length ? ", " : "", called.name);
	}
	hl_examinee_close(&recorder);
}

/* ---- interpreters ---- */

/* The version that stands after ${mark} in constants, up to the next space. */
static bool find_version(const Elf_Data *constants, const char *mark, const char *name,
			 char ret_version[HL_EXAMINE_VERSION_MAX])
{
	const char *end = (const char *)constants->d_buf + constants->d_size;
	const char *found = memmem(constants->d_buf, constants->d_size, mark, strlen(mark));
	const char *at = found ? found + strlen(mark) : end;
	size_t length = 0;

	while (at + length < end && length < 12 && strchr("0123456789.-beta", at[length]) &&
	       at[length])
		length++;
	if (!length)
		return false;
	snprintf(ret_version, HL_EXAMINE_VERSION_MAX, "%s%.*s", name, (int)length, at);
	return true;
}

/* Whether ${guest} is in the program and cannot be found there. */
static bool is_hidden(Elf *elf, const Elf_Data *constants, const struct hl_guest_traits *guest,
		      char ret_version[HL_EXAMINE_VERSION_MAX])
{
	const struct hl_guest_mark *mark = guest->marks;

	if (!mark || exports(elf, guest->exported))
		return false;
	while (mark->text && !find_version(constants, mark->text, mark->name, ret_version))
		mark++;
	return mark->text != NULL;
}

const char *hl_examine_hidden_guest(const struct hl_examinee *program,
				    char ret_version[HL_EXAMINE_VERSION_MAX])
{
	GElf_Shdr header;

	Elf *elf = program->elf;
	Elf_Scn *section = elf ? hl_elf_find_section(elf, ".rodata", &header) : NULL;
	const Elf_Data *constants = section ? elf_rawdata(section, NULL) : NULL;
	for (size_t i = 0; constants && constants->d_buf && hl_guest_traits[i]; i++)
		if (is_hidden(elf, constants, hl_guest_traits[i], ret_version))
			return hl_elf_loader(elf) ? "link it with -rdynamic"
						  : "link it dynamically, with -rdynamic";
	return NULL;
}
