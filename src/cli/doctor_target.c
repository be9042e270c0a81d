/* SPDX-License-Identifier: BSD-2-Clause */
/* Which ways work for a process, or for a command that is to run; see doctor.h. */
#include "cli/doctor.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "base/text.h"
#include "cli/trace_run.h"
#include "collector/collector.h"
#include "elf/elf.h"
#include "guests/outside.h"
#include "guests/traits.h"
#include "heap/heap.h"
#include "heap/memory.h"
#include "heap/other_allocators.h"
#include "process/cgroup.h"
#include "process/process.h"
#include "profile/profile.h"
#include "recording/recording.h"
#include "view/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* A process, as far as it was looked at. */
struct patient {
	struct hl_doctor *doctor;
	const struct hl_process_facts *facts;
	int pid;
	struct hl_process_condition condition;
	struct hl_maps maps;	    /* empty where they may not be read */
	bool has_recorder;	    /* whether it is recorded or not */
	int recorded;		    /* 0: it is; -ENODATA: in mode 'closed'; else it is not */
	char recording[PATH_MAX];   /* of which this is the name */
	struct hl_error unrecorded; /* why not */
	int joinable;		    /* what hl_attach_check() returned */
	struct hl_error unjoinable; /* why not */
	char pools[64];		    /* that attach holds; "" if none */
	char command[1500];	    /* that starts it again; "" where none does */
};

static bool is_recorded(const struct patient *patient)
{
	return patient->recorded == 0 || patient->recorded == -ENODATA;
}

/* ---- a command for a shell ---- */

/* One where this user may write. */
static const char *scratch_directory(void)
{
	static const char *const directories[] = {"/tmp", "/var/tmp", "/dev/shm"};

	for (size_t i = 0; i < HL_COUNT_OF(directories); i++)
		if (access(directories[i], W_OK) == 0)
			return directories[i];
	return directories[0];
}

/* With a blank between them. */
static void put_words(FILE *out, char *const *words)
{
	for (char *const *word = words; *word; word++) {
		if (word != words)
			fputc(' ', out);
		hl_words_put(out, *word);
	}
}

/* Records ${program} with ${words} from the second on, in ${directory} and with ${preload} in
 * LD_PRELOAD unless these are "". ${text} is "" where that is too long. */
static void put_command(char *text, size_t size, const char *directory, const char *preload,
			const char *program, char *const *words)
{
	FILE *out = fmemopen(text, size, "w");

	text[0] = '\0';
	if (!out)
		return;
	if (directory[0]) {
		fputs("cd ", out);
		hl_words_put(out, directory);
		fputs(" && ", out);
	}
	if (preload[0]) {
		fputs("LD_PRELOAD=", out);
		hl_words_put(out, preload);
		fputc(' ', out);
	}
	fputs("heapline record ", out);
	if (access(directory[0] ? directory : ".", W_OK) < 0)
		fprintf(out, "-o %s/heapline.%%p.hl ", scratch_directory());
	fputs("-- ", out);
	hl_words_put(out, program);
	if (words[0] && words[1])
		fputc(' ', out);
	put_words(out, words[0] ? words + 1 : words);
	bool is_whole = ftell(out) < (long)size - 1;
	if (fclose(out) != 0 || !is_whole)
		text[0] = '\0';
}

static bool is_program(const char *path, const char *executable)
{
	struct stat one, other;

	return stat(path, &one) == 0 && stat(executable, &other) == 0 &&
	       one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

/* What LD_PRELOAD says in an environment, without heapline's own libraries; "" for nothing. */
static const char *preload_of(char *environment, size_t length)
{
	static const char name[] = "LD_PRELOAD=";

	for (size_t at = 0; at < length; at += strlen(environment + at) + 1) {
		if (strncmp(environment + at, name, strlen(name)) != 0)
			continue;
		char *kept = environment + at + strlen(name), *to = kept, *rest = kept;
		for (char *library; (library = strsep(&rest, ": "));) {
			size_t bytes = strlen(library);
			if (!bytes || !strncmp(hl_path_basename(library), "libheapline", 11))
				continue;
			if (to != kept)
				*to++ = ':';
			memmove(to, library, bytes);
			to += bytes;
		}
		*to = '\0';
		return kept;
	}
	return "";
}

/* Whether the program ${comm} needs what its wrapper sets. */
static bool is_wrapped(const char *comm)
{
	for (size_t i = 0; hl_guest_traits[i]; i++) {
		const char *wrapped = hl_guest_traits[i]->wrapped;
		if (wrapped && strncmp(comm, wrapped, strlen(wrapped)) == 0)
			return true;
	}
	return false;
}

/* What starts the process again, unless that takes another user or namespace, its arguments were
 * written over by a title, or it is wrapped. */
static void find_command(struct patient *patient)
{
	const struct hl_process_facts *facts = patient->facts;
	char path[PATH_MAX], link[32], there[PATH_MAX] = "", here[PATH_MAX] = "";
	HL_FREED char *environment = NULL;
	size_t environment_bytes = 0;
	const char *first = facts->command[0];

	if (!first || is_wrapped(facts->comm) || facts->uid != geteuid() ||
	    hl_process_is_elsewhere(patient->pid, "mnt") != 0 ||
	    (strchr(first, ' ') && !facts->command[1]))
		return;
	snprintf(link, sizeof(link), "/proc/%d/cwd", hl_proc_thread(patient->pid));
	ssize_t length = readlink(link, there, sizeof(there) - 1);
	if (length < 0 || !getcwd(here, sizeof(here)))
		return;
	if (strcmp(here, there) == 0)
		there[0] = '\0';
	snprintf(link, sizeof(link), "/proc/%d/exe", hl_proc_thread(patient->pid));
	bool is_found = !(strchr(first, '/') && first[0] != '/') &&
			hl_examine_find(first, path, sizeof(path), NULL) == 0 &&
			is_program(path, link);
	hl_proc_read_all(patient->pid, "environ", &environment, &environment_bytes);
	if (is_found || is_program(facts->executable, link))
		put_command(patient->command, sizeof(patient->command), there,
			    preload_of(environment, environment_bytes),
			    is_found ? first : facts->executable, facts->command);
}

/* ---- with a recorder ---- */

static void judge_record(struct patient *patient)
{
	struct hl_doctor *doctor = patient->doctor;
	char program[PATH_MAX], link[32];
	struct hl_error err = {0};

	if (patient->recorded == -ENODATA) {
		hl_doctor_add_closed(doctor, "record", HL_DOCTOR_PARTLY, patient->pid);
		return;
	}
	if (patient->recorded == 0) {
		struct hl_doctor_way *way =
			hl_doctor_add(doctor, "record", HL_DOCTOR_YES, "heapline top ");
		size_t used = strlen(way->command);
		FILE *out = fmemopen(way->command + used, sizeof(way->command) - used, "w");
		if (out) {
			hl_words_put(out, patient->recording);
			fclose(out);
		}
		snprintf(way->reason, sizeof(way->reason), "it is being recorded in '%.400s'",
			 patient->recording);
		return;
	}
	if (patient->recorded == -EALREADY) {
		hl_doctor_refuse(doctor, "record", -EALREADY, &patient->unrecorded, "");
		return;
	}
	int r = hl_doctor_try_recording(&err);
	if (r < 0) {
		hl_doctor_refuse(doctor, "record", r, &err, "");
		return;
	}
	snprintf(link, sizeof(link), "/proc/%d/exe", hl_proc_thread(patient->pid));
	const struct hl_examined examined = hl_examine_file(link, program);
	if (examined.reason)
		patient->command[0] = '\0';
	struct hl_doctor_way *way =
		hl_doctor_add(doctor, "record", HL_DOCTOR_NO, "%s", patient->command);
	snprintf(way->reason, sizeof(way->reason),
		 "it runs already, and the recorder comes in when a program starts%s%s",
		 examined.reason ? "; nor could it be recorded from its start: " : "",
		 examined.reason ? examined.reason : "");
	if (patient->joinable == 0)
		snprintf(way->remedy, sizeof(way->remedy),
			 "'heapline attach -p %d' brings it in now%s", patient->pid,
			 way->command[0] ? "; or start it again under it" : "");
	else if (way->command[0])
		snprintf(way->remedy, sizeof(way->remedy), "start it again under the recorder");
	else if (!examined.reason && patient->facts->executable[0])
		snprintf(way->remedy, sizeof(way->remedy),
			 "start it again with 'heapline record', as its user and with its "
			 "arguments");
}

#define HIDDEN                                                                          \
	"which the program has built in and whose functions it does not name, are not " \
	"seen; 'heap' and 'pgfault' do not need them"

static void judge_attach(struct patient *patient)
{
	HL_CLEANUP(hl_examinee_close) struct hl_examinee examinee;
	char command[64], program[32];

	snprintf(program, sizeof(program), "/proc/%d/exe", patient->pid);
	hl_examinee_open(program, &examinee);
	const char *hidden = hl_examine_hidden_allocator(&examinee);
	snprintf(command, sizeof(command), "heapline attach -p %d -d 60", patient->pid);
	if (is_recorded(patient))
		snprintf(hl_doctor_add(patient->doctor, "attach", HL_DOCTOR_NO, "%s", "")->reason,
			 512, "it is being recorded in '%.400s'", patient->recording);
	else if (patient->joinable == 0 && patient->condition.seccomp_mode)
		snprintf(hl_doctor_add(patient->doctor, "attach", HL_DOCTOR_PARTLY, "%s", command)
				 ->reason,
			 512,
			 "it has a filter of system calls, which attach alone reads, as it stops a "
			 "thread for that: it refuses, and names the call, if one is forbidden");
	else if (patient->joinable == 0 && hidden)
		snprintf(hl_doctor_add(patient->doctor, "attach", HL_DOCTOR_PARTLY, "%s", command)
				 ->reason,
			 512, "calls of %s, " HIDDEN, hidden);
	else if (patient->joinable == 0 && patient->pools[0])
		snprintf(hl_doctor_add(patient->doctor, "attach", HL_DOCTOR_YES, "%s", command)
				 ->reason,
			 512, "it holds the pools of %s", patient->pools);
	else if (patient->joinable == 0)
		hl_doctor_add(patient->doctor, "attach", HL_DOCTOR_YES, "%s", command);
	else
		hl_doctor_refuse(patient->doctor, "attach", patient->joinable, &patient->unjoinable,
				 command);
}

static void judge_ctl(struct patient *patient)
{
	if (is_recorded(patient) || patient->recorded == -EALREADY)
		hl_doctor_add(patient->doctor, "ctl", HL_DOCTOR_YES, "heapline ctl -p %d status",
			      patient->pid);
	else
		hl_doctor_refuse(patient->doctor, "ctl", patient->recorded, &patient->unrecorded,
				 "");
}

/* ---- the allocator's own structures ---- */

static void judge_stop(struct patient *patient, int readable, const struct hl_error *why)
{
	char command[64];
	struct hl_error err = {0};
	int r = readable < 0 ? readable : hl_stop_check(patient->pid, &err);

	snprintf(command, sizeof(command), "heapline heap -p %d --stop", patient->pid);
	if (r < 0)
		hl_doctor_refuse(patient->doctor, "heap --stop", r, readable < 0 ? why : &err,
				 command);
	else
		hl_doctor_add(patient->doctor, "heap --stop", HL_DOCTOR_YES, "%s", command);
}

static void judge_ask(struct patient *patient)
{
	const struct hl_allocator_traits *other =
		hl_other_allocator_library(&patient->maps).allocator;

	if (!other || !other->answers_as)
		return;
	if (is_recorded(patient)) {
		snprintf(hl_doctor_add(patient->doctor, "carriers --ask", HL_DOCTOR_YES,
				       "heapline carriers -p %d --ask", patient->pid)
				 ->reason,
			 512, "%s answers when the process allocates next", other->name);
		return;
	}
	struct hl_doctor_way *way = hl_doctor_add(patient->doctor, "carriers --ask", HL_DOCTOR_NO,
						  "heapline attach -p %d", patient->pid);
	snprintf(way->reason, sizeof(way->reason),
		 "%s can be asked by a recorder, and there is none in the process", other->name);
}

/* ${readable}: of the heap. -ENOTSUP means that memory can be read, but not this allocator's. */
static void judge_allocations(struct patient *patient, int readable, const struct hl_error *why)
{
	bool has_recorder = hl_maps_have_file(&patient->maps, "memfd:heapline") &&
			    (readable == 0 || readable == -ENOTSUP);
	bool has_owners = has_recorder || hl_maps_have_file(&patient->maps, "libheapline-tags.so");
	char command[64];

	if (patient->recorded == -EALREADY) {
		hl_doctor_refuse(patient->doctor, "allocations", -EALREADY, &patient->unrecorded,
				 "");
		return;
	}
	if (patient->recorded == -ENODATA) {
		hl_doctor_add_closed(patient->doctor, "allocations", HL_DOCTOR_NO, patient->pid);
		return;
	}
	snprintf(command, sizeof(command), "heapline allocations -p %d", patient->pid);
	if (readable < 0 && !has_recorder) {
		hl_doctor_refuse(patient->doctor, "allocations", readable, why, command);
		return;
	}
	struct hl_doctor_way *way =
		hl_doctor_add(patient->doctor, "allocations",
			      has_owners ? HL_DOCTOR_YES : HL_DOCTOR_PARTLY, "%s", command);
	if (has_owners)
		return;
	snprintf(way->reason, sizeof(way->reason),
		 "sizes only: without a recorder or the tags library in the process, callers are "
		 "unknown");
	if (patient->joinable == 0)
		snprintf(way->remedy, sizeof(way->remedy),
			 "while 'heapline attach' records it, it is known of new blocks");
	else if (patient->command[0])
		snprintf(way->remedy, sizeof(way->remedy),
			 "started with 'heapline record --tags' it would be known");
}

static void judge_core(struct patient *patient)
{
	char path[PATH_MAX];

	if (hl_examine_find("gcore", path, sizeof(path), NULL) < 0 || patient->condition.tracer_pid)
		return;
	struct hl_doctor_way *way = hl_doctor_add(
		patient->doctor, "heap --core", HL_DOCTOR_YES,
		"gcore -o core %d && heapline heap --core core.%d", patient->pid, patient->pid);
	snprintf(way->reason, sizeof(way->reason),
		 "gcore stops the process while it writes; the file can be read elsewhere");
}

static void judge_heap(struct patient *patient)
{
	const struct hl_heap_settings settings = {.only_arenas = true};
	struct hl_heap *heap = NULL;
	struct hl_error err = {0};
	char command[64];
	int r = hl_heap_read(patient->pid, &settings, &heap, &err);

	snprintf(command, sizeof(command), "heapline heap -p %d", patient->pid);
	if (r == -ENOTSUP && hl_heap_read_pages(patient->pid, &heap, NULL) == 0) {
		snprintf(hl_doctor_add(patient->doctor, "heap", HL_DOCTOR_PARTLY, "%s", command)
				 ->reason,
			 512, "where its memory is, and not what is free: %.400s", err.text);
		hl_doctor_say(patient->doctor, "target", "allocator", "%s", heap->allocator);
	} else if (r < 0) {
		hl_doctor_refuse(patient->doctor, "heap", r, &err, command);
	} else {
		bool has_notes = heap->note_count > 0;
		struct hl_doctor_way *way =
			hl_doctor_add(patient->doctor, "heap",
				      has_notes ? HL_DOCTOR_PARTLY : HL_DOCTOR_YES, "%s", command);
		snprintf(way->reason, sizeof(way->reason), "%.511s",
			 has_notes ? heap->notes[0].text
				   : "'carriers' and 'pins' read the same heap");
		hl_doctor_say(patient->doctor, "target", "allocator", "%s", heap->allocator);
	}
	judge_stop(patient, r, &err);
	judge_ask(patient);
	judge_allocations(patient, r, &err);
	if (r == 0)
		judge_core(patient);
	hl_heap_free(heap);
}

/* ---- facts ---- */

/* How full its container is, which RSS does not say. */
static void say_group(const struct patient *patient)
{
	struct hl_cgroup_figures of;
	struct hl_cgroup group;

	if (hl_cgroup_open_of(patient->pid, &group, NULL) < 0)
		return;
	if (hl_cgroup_read_figures(&group, &of, NULL) == 0 && of.limit != HL_CGROUP_UNKNOWN)
		hl_doctor_say(
			patient->doctor, "target", "control group",
			"%s has %s of %s, its limit; 'heapline pod -p %d' shows what is in it",
			hl_cgroup_name(&group), HL_HEAP_BYTES(of.usage), HL_HEAP_BYTES(of.limit),
			patient->pid);
	hl_cgroup_release(&group);
}

static void say_condition(struct patient *patient)
{
	const struct hl_process_condition *condition = &patient->condition;
	static const char *const kinds[] = {"mnt", "pid", "user", "net"};
	char others[64] = "";
	size_t length = 0;
	struct hl_doctor *doctor = patient->doctor;

	hl_doctor_say(doctor, "target", "user", "%u%s", patient->facts->uid,
		      patient->facts->uid == geteuid() ? "" : ", not this one");
	if (condition->is_protected)
		hl_doctor_say(doctor, "target", "protection",
			      "not dumpable (PR_SET_DUMPABLE, or changed rights): its own user may "
			      "not look at it, root may");
	if (condition->tracer_pid)
		hl_doctor_say(doctor, "target", "debugger", "process %d traces it",
			      condition->tracer_pid);
	if (condition->state == 'T' || condition->state == 't')
		hl_doctor_say(doctor, "target", "state",
			      "stopped: traces see nothing until it goes on");
	if (condition->seccomp_mode)
		hl_doctor_say(doctor, "target", "seccomp", "it has a filter of system calls");
	for (size_t i = 0; i < HL_COUNT_OF(kinds); i++)
		if (hl_process_is_elsewhere(patient->pid, kinds[i]) == 1)
			length += (size_t)snprintf(others + length, sizeof(others) - length, "%s%s",
						   length ? ", " : "", kinds[i]);
	if (length)
		hl_doctor_say(doctor, "target", "namespaces", "its own: %s", others);
}

/* What is known of scripts that the file ${path} runs; ${pid}: of this process, or 0. Whether that was something. */
static bool say_scripts(struct hl_doctor *doctor, const char *path, uint32_t pid)
{
	const struct hl_code_runtime *runtime = hl_code_runtime_of(path);
	char remedy[HL_CODE_RUNTIME_REMEDY_MAX];

	if (runtime && runtime->start)
		hl_doctor_say(
			doctor, "target", "scripts",
			"functions of %s have the names that are written for perf: %s%s%s%s%s",
			runtime->language,
			pid && runtime->write_names ? "'heapline attach' asks for them; " : "",
			hl_code_runtime_remedy(runtime, pid, remedy), runtime->whole ? "; " : "",
			runtime->whole ? runtime->whole : "",
			runtime->whole ? " keeps stacks whole" : "");
	else if (runtime)
		hl_doctor_say(doctor, "target", "scripts",
			      "those of %s are not read; the interpreter's own functions are",
			      runtime->language);
	for (size_t i = 0; !runtime && hl_guest_tools[i]; i++) {
		if (!hl_guest_tools[i]->hides_loop || !hl_guest_tools[i]->hides_loop(path))
			continue;
		hl_doctor_say(doctor, "target", "scripts",
			      "the loop that runs %s was not found in '%s': stacks of scripts are "
			      "[native]",
			      hl_guest_tools[i]->traits->language, path);
		return true;
	}
	return runtime != NULL;
}

static void say_linking(struct patient *patient)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/%d/exe", hl_proc_thread(patient->pid));
	HL_CLOSED int fd = open(link, O_RDONLY | O_CLOEXEC);
	HL_CLEANUP(hl_elf_cleanup) Elf *elf = hl_elf_open(fd);
	if (elf)
		hl_doctor_say(patient->doctor, "target", "program", "%s, %s bits, %s",
			      patient->facts->executable,
			      gelf_getclass(elf) == ELFCLASS64 ? "64" : "32",
			      hl_elf_loader(elf) ? "dynamically linked" : "statically linked");
}

static void say_recorder(const struct patient *patient)
{
	if (!patient->has_recorder || is_recorded(patient) || patient->recorded == -EALREADY)
		return;
	hl_doctor_say(patient->doctor, "target", "recorder",
		      "left behind by a heapline that has ended; it counts nothing%s",
		      patient->joinable == 0 ? ", and 'heapline attach' takes its place" : "");
}

int hl_doctor_judge_process(struct hl_doctor *doctor, const struct hl_process_facts *facts,
			    struct hl_error *err)
{
	struct patient patient = {.doctor = doctor, .facts = facts, .pid = facts->pid};

	if (hl_maps_read(facts->pid, &patient.maps, err) == -ESRCH)
		return -ESRCH; /* has none, or has ended */
	err->text[0] = '\0';
	patient.has_recorder = hl_maps_mark_recorder(facts->pid, &patient.maps);
	hl_process_condition_read(facts->pid, &patient.condition, NULL);
	patient.recorded =
		hl_trace_recorded_check(facts->pid, patient.recording, &patient.unrecorded);
	patient.joinable = hl_attach_check(facts->pid, patient.pools, sizeof(patient.pools),
					   &patient.unjoinable);
	find_command(&patient);
	say_condition(&patient);
	say_group(&patient);
	say_linking(&patient);
	for (size_t i = 0; i < patient.maps.count; i++)
		if (say_scripts(doctor, patient.maps.maps[i].path, (uint32_t)facts->pid))
			break;
	say_recorder(&patient);
	judge_record(&patient);
	judge_attach(&patient);
	judge_ctl(&patient);
	/* A protected process is looked at as another user's. */
	struct hl_process_facts seen = *facts;
	if (patient.condition.is_protected)
		seen.uid = UINT32_MAX;
	hl_doctor_judge_traces(doctor, &seen, &patient.maps, patient.recorded);
	judge_heap(&patient);
	for (size_t i = 0; hl_guest_tools[i]; i++)
		if (hl_guest_tools[i]->judge)
			hl_guest_tools[i]->judge(doctor, facts);
	hl_maps_release(&patient.maps);
	return 0;
}

/* ---- commands ---- */

/* A copy has no rights of its own. It is made here if possible. */
static void advise_copy(struct hl_doctor_way *way, const char *path, char *const *argv)
{
	const char *name = hl_path_basename(path);
	char copy[PATH_MAX], command[1500];
	bool is_here = access(".", W_OK) == 0 && access(name, F_OK) < 0;
	const char *directory = is_here ? "." : scratch_directory();

	snprintf(copy, sizeof(copy), "%s/%.255s", directory, name);
	put_command(command, sizeof(command), "", "", copy, argv);
	snprintf(way->remedy, sizeof(way->remedy), "record a copy of it, which has no such rights");
	FILE *out = command[0] ? fmemopen(way->command, sizeof(way->command), "w") : NULL;
	if (!out)
		return;
	fputs("cp ", out);
	hl_words_put(out, path);
	fprintf(out, " %s && %s", directory, command);
	fclose(out);
}

static void judge_recording(struct hl_doctor *doctor, const char *path, char *const *argv,
			    char program[PATH_MAX])
{
	char command[1500];
	struct stat status;
	struct hl_error err = {0};
	const struct hl_examined examined = hl_examine_file(path, program);
	HL_CLEANUP(hl_examinee_close) struct hl_examinee examinee;

	hl_examinee_open(program, &examinee);
	const bool is_entered = examined.entered || examined.beside;
	const char *function =
		examined.reason || is_entered ? NULL : hl_examine_allocator(&examinee);
	const char *hidden = examined.reason ? NULL : hl_examine_hidden_allocator(&examinee);
	char unseen[HL_EXAMINE_UNSEEN_MAX] = "";
	int r = hl_doctor_try_recording(&err);

	if (!examined.reason && !is_entered)
		hl_examine_unseen(&examinee, unseen);
	put_command(command, sizeof(command), "", "", argv[0], argv);
	hl_doctor_say(doctor, "target", "program", "%s%s%s", path,
		      strcmp(path, program) ? ", a script, run by " : "",
		      strcmp(path, program) ? program : "");
	say_scripts(doctor, program, 0);
	if (r < 0) {
		hl_doctor_refuse(doctor, "record", r, &err, "");
		return;
	}
	struct hl_doctor_way *way =
		hl_doctor_add(doctor, "record",
			      examined.reason			? HL_DOCTOR_NO
			      : function || hidden || unseen[0] ? HL_DOCTOR_PARTLY
								: HL_DOCTOR_YES,
			      "%s", examined.reason ? "" : command);
	if (examined.reason) {
		snprintf(way->reason, sizeof(way->reason), "%s", examined.reason);
		snprintf(way->remedy, sizeof(way->remedy), "%s", examined.remedy);
	} else if (function)
		snprintf(way->reason, sizeof(way->reason),
			 "calls of %s, which the program brings in itself, are not seen", function);
	else if (hidden)
		snprintf(way->reason, sizeof(way->reason), "calls of %s, " HIDDEN, hidden);
	else if (unseen[0])
		snprintf(way->reason, sizeof(way->reason),
			 "calls of %.160s, which this heapline does not know, are not seen",
			 unseen);
	else if (is_entered)
		snprintf(way->reason, sizeof(way->reason),
			 "%s, so the recorder comes in as it begins",
			 examined.entered ? examined.entered : examined.beside);
	if (examined.reason && stat(path, &status) == 0 && status.st_mode & (S_ISUID | S_ISGID))
		advise_copy(way, path, argv);
}

int hl_doctor_judge_command(struct hl_doctor *doctor, char **argv, struct hl_error *err)
{
	char path[PATH_MAX], program[PATH_MAX];
	HL_FREED char *plain = NULL;
	size_t size;
	int r = hl_examine_find(argv[0], path, sizeof(path), err);

	if (r < 0)
		return r;
	judge_recording(doctor, path, argv, program);
	FILE *out = open_memstream(&plain, &size);
	if (!out)
		return hl_error_set(err, -ENOMEM, "out of memory");
	put_words(out, argv);
	if (fclose(out) != 0)
		return hl_error_set(err, -ENOMEM, "out of memory");
	hl_doctor_judge_later(doctor, program, plain);
	return 0;
}
