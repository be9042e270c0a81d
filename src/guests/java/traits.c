/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of the Java virtual machine (HotSpot); see traits.h. */
#include "guests/traits.h"
#include "guests/java/java.h"
#include "recording/recording.h"

#define START	"java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit"
#define TASK	"Compiler.perfmap"
#define VERSION " (JDK 17 and later)"
#define WHOLE	"-XX:+PreserveFramePointer"

static const struct hl_code_runtime code_runtimes[] = {
	{"libjvm.so", "Java", START, "jcmd", TASK, VERSION, WHOLE, hl_java_write_names},
	{"java", "Java", START, "jcmd", TASK, VERSION, WHOLE, hl_java_write_names},
	{.file = NULL},
};

static const struct hl_guest_command commands[] = {
	{"java", "-cp -classpath --class-path -p --module-path --add-modules", "-jar", NULL},
	{0},
};
static const struct hl_guest_kept kept = {.language = "Java", .what = "Java's runtime"};

const struct hl_guest_traits hl_guest_traits_java = {
	.language = "Java",
	.code_runtimes = code_runtimes,
	.commands = commands,
	.kept = &kept,
};
