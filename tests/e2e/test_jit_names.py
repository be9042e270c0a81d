#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Code that runtimes make while they run has the names that they write for perf."""

import os
import signal
import subprocess
import time

import attaching
import harness
from harness import HEAPLINE, wait_until

LEAK = """
const kept = [];
function leak(i) {
  kept.push(Buffer.allocUnsafeSlow(100000 + i % 7));
}
function rounds(n) {
  for (let i = 0; i < n; i++) leak(i);
}
"""
LEAK_LINE = 3
ROUNDS = 3000
AT_ONCE = f"rounds({ROUNDS});"
ON_INPUT = f"""
rounds({ROUNDS}); kept.length = 0; // compiled before it is joined
console.log('ready');
process.stdin.once('data', () => {{ rounds({ROUNDS}); console.log('leaked'); }});
process.stdin.once('end', () => process.exit(0));
"""


def functions(recording, *options):
    """{name: (file, line, bytes with callees)}"""
    rows = harness.report("top", recording, "--sort", "cum", "-n", "0", *options)["rows"]
    return {row["name"]: (row["file"], row["line"], row["cum_bytes"]) for row in rows}


class Node(attaching.TestCase):
    """Functions of JavaScript, in node with --perf-basic-prof, which writes /tmp/perf-PID.map."""

    def setUp(self):
        super().setUp()
        # Whose callees are inlined, has their memory.
        self.node = [harness.need("node"), "--perf-basic-prof", "--no-turbo-inlining"]
        if not self.runs(self.node):
            self.skipTest("this node does not know --perf-basic-prof")
        if self.runs([*self.node, "--no-maglev-inlining"]):
            self.node.append("--no-maglev-inlining")

    def runs(self, node):
        with subprocess.Popen([*node, "-e", ""], stderr=subprocess.DEVNULL, cwd=self.directory) as probe:
            probe.wait(harness.TIMEOUT_S)
        self.tidy(probe.pid)
        return probe.returncode == 0

    def script(self, text):
        path = self.path("leak.js")
        with open(path, "w", encoding="ascii") as file:
            file.write(LEAK + text)
        return path

    def tidy(self, pid):
        """Node leaves its map behind."""
        if os.path.exists(f"/tmp/perf-{pid}.map"):
            os.unlink(f"/tmp/perf-{pid}.map")

    def check(self, script):
        file, line, size = functions(self.recording, "--value", "alloc")["leak"]
        self.assertEqual((file, line), (script, LEAK_LINE))
        # Calls of the interpreter before it was compiled have no names.
        self.assertGreater(size, ROUNDS * 100000 // 2)

    def test_of_a_recorded_program(self):
        script = self.script(AT_ONCE)
        result = harness.run(harness.record_command(
            self.recording, [*self.node, script]), cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        self.tidy(harness.processes(self.recording)[0]["pid"])
        self.check(script)  # the map is gone

    def test_of_a_joined_program(self):
        script = self.script(ON_INPUT)
        with harness.Waiting([*self.node, script], cwd=self.directory) as process:
            self.addCleanup(self.tidy, process.pid)
            with self.attached(process.pid) as attach:
                process.stdin.write("leak\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline().strip(), "leaked")
                attach.send_signal(signal.SIGINT)
        self.check(script)

    def test_stacks_from_outside_are_complete(self):
        """Also through V8's own functions, which have no unwind rules, nor symbols in Debian's libnode."""
        script = self.script(ON_INPUT)
        for verb, ready in (("stacks", "counting, by"), ("pgfault", "watching page faults by")):
            with self.subTest(verb), harness.Waiting([*self.node, script], cwd=self.directory) as process:
                self.addCleanup(self.tidy, process.pid)
                trace = subprocess.Popen(
                    [HEAPLINE, verb, "-p", str(process.pid), "--verbose", "-f", "-o", self.recording],
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                said = ""
                while ready not in said:
                    line = trace.stderr.readline()
                    if not line:
                        self.skipTest(f"{verb} does not work here: {said}")
                    said = line
                process.stdin.write("leak\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline().strip(), "leaked")
                trace.send_signal(signal.SIGINT)
                said = trace.communicate(timeout=harness.TIMEOUT_S)[1]
                self.assertEqual(trace.returncode, 0, said)
                lost = harness.info(self.recording)["lost"]["incomplete_stacks"]
                # Of thousands; pages are touched anywhere, also where a function begins or ends.
                self.assertLess(lost, 100)

    def test_is_a_script_to_views_that_show_scripts_alone(self):
        script = self.script(AT_ONCE)
        result = harness.run(harness.record_command(
            self.recording, [*self.node, "--interpreted-frames-native-stack", script]), cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        self.assertNotIn("has no names", result.stderr)
        self.tidy(harness.processes(self.recording)[0]["pid"])
        rows = {row["name"]: row for row in harness.report(
            "top", self.recording, "--stack", "script", "--value", "alloc", "-n", "0")["rows"]}
        self.assertFalse([name for name in rows if name.startswith(("0x", "Builtin:", "node::", "v8::"))])
        self.assertGreaterEqual(rows["leak"]["cum_bytes"], ROUNDS * 100000)
        self.assertGreaterEqual(rows["rounds"]["cum_bytes"], ROUNDS * 100000)
        self.assertLess(rows["[native]"]["cum_bytes"], ROUNDS * 100000 // 2)
        lines = harness.run([HEAPLINE, "lines", "--plain", "--stack", "script", "--value", "alloc",
                             self.recording])
        self.assertIn(f"{script} line:{LEAK_LINE} size:", lines.stdout)

    def test_without_names_each_view_says_what_writes_them(self):
        script = self.script(AT_ONCE)
        remedy = "code made at run time (JavaScript) has no names: 'node --perf-basic-prof "
        result = harness.run(harness.record_command(self.recording, [self.node[0], script]), cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn(remedy, result.stderr)
        scripts = harness.run([HEAPLINE, "top", "--stack", "script", self.recording])
        self.assertIn("so that all is [native]; " + remedy, scripts.stderr)
        self.assertIn(remedy, scripts.stdout)
        self.assertIn(remedy, harness.run([HEAPLINE, "tree", self.recording]).stdout)
        picture = self.path("node.svg")
        flame = harness.run([HEAPLINE, "flame", "-o", picture, self.recording])
        self.assertEqual(flame.status, 0, flame.stderr)
        with open(picture, encoding="utf-8") as file:
            self.assertIn(">JavaScript code<", file.read())

    def test_in_a_log(self):
        script = self.script(AT_ONCE)
        result = harness.run(harness.record_command(
            self.recording, [*self.node, script], mode="log-fast"), cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        self.tidy(harness.processes(self.recording)[0]["pid"])
        self.assertIn("leak", functions(self.recording, "--at", "peak"))


JAVA = """
import java.util.ArrayList;
import java.util.List;
import java.util.zip.Deflater;
public class Leak {
  static final List<Object> kept = new ArrayList<>();
  static void neverEnd() { kept.add(new Deflater()); }
  public static void main(String[] words) throws Exception {
    for (int i = 0; i < 200; i++) neverEnd();
    System.out.println("ready");
    System.in.read();
    for (int i = 0; i < 200; i++) neverEnd();
    System.out.println("done");
    while (System.in.read() >= 0) { }
  }
}
"""
PERFMAP = "Compiler.perfmap"
EMBEDS = r"""
#include <jni.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static void end(int number) { _exit(number); }
int main(void)
{
  JavaVM *vm;
  JNIEnv *env;
  JavaVMInitArgs options = {JNI_VERSION_1_8, 0, 0, 0};
  if (JNI_CreateJavaVM(&vm, (void **)&env, &options))
    return 1;
  signal(SIGQUIT, end);
  puts("ready");
  fflush(stdout);
  getchar();
  jclass type = (*env)->FindClass(env, "java/util/zip/Deflater");
  jmethodID make = (*env)->GetMethodID(env, type, "<init>", "()V");
  for (int i = 0; i < 100; i++)
    (*env)->NewObject(env, type, make);
  puts("done");
  fflush(stdout);
  while (getchar() != EOF)
    ;
  _exit(0);
}
"""
LISTENS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
static void *answer(void *listener)
{
  char text[256];
  int fd = accept((int)(long)listener, NULL, NULL);
  read(fd, text, sizeof(text));
  fclose(fopen("asked", "w"));
  snprintf(text, sizeof(text), "/tmp/perf-%d.map", getpid());
  if (!ANSWER[0]) {
    fclose(fopen(text, "w"));
    pause();
  }
  write(fd, ANSWER, sizeof(ANSWER) - 1);
  close(fd);
  return NULL;
}
void *kept;
int puts(const char *text)
{
  kept = malloc(10); /* so that it is a module of the recording */
  fputs(text, stdout);
  return fputc('\n', stdout);
}
__attribute__((constructor)) static void start(void)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  pthread_t thread;
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/.java_pid%d", getpid());
  bind(fd, (struct sockaddr *)&address, sizeof(address));
  listen(fd, 1);
  pthread_create(&thread, NULL, answer, (void *)(long)fd);
}
"""


CHAIN = """
import java.util.*;
import java.util.zip.Deflater;
public class Chain {
  interface Shape { void run(int i, boolean keeps); }
  static final List<Deflater> kept = new ArrayList<>();
  static int sink;
  static void innermost(int i, long a, long b, double c, String s, long d, long e, long f, long g, boolean keeps) {
    if (keeps) kept.add(new Deflater());
    sink += s.length();
  }
  static void inner(int i, boolean keeps, String s) { innermost(i, i, i, i, s, i, i, i, i, keeps); sink ^= i; }
  static class Square implements Shape { public void run(int i, boolean keeps) { inner(i, keeps, "square"); sink++; } }
  static class Circle implements Shape { public void run(int i, boolean keeps) { inner(i, keeps, "circle"); sink--; } }
  static void outer(Shape shape, int i, boolean keeps) { shape.run(i, keeps); sink += i; }
  static void loop(Shape[] shapes, int count, boolean keeps) { for (int i = 0; i < count; i++) outer(shapes[i & 1], i, keeps); }
  public static void main(String[] words) throws Exception {
    Shape[] shapes = {new Square(), new Circle()};
    for (int i = 0; i < 200; i++) loop(shapes, 1000, false);
    System.out.println("ready");
    System.in.read();
    for (int i = 0; i < 10; i++) loop(shapes, 20, true);
    System.out.println("done");
    while (System.in.read() >= 0) { }
  }
}
"""


def javas():
    """The one of the path, and others by HEAPLINE_JAVAS, their homes with ':' between them."""
    homes = [os.path.dirname(os.path.dirname(os.path.realpath(harness.need("java"))))]
    return homes + [home for home in os.environ.get("HEAPLINE_JAVAS", "").split(":") if home]


class Frames(attaching.TestCase):
    """Frames of compiled methods are found by their sizes: they keep no frame pointer."""

    METHODS = ("main", "loop", "outer", "run", "inner", "innermost")

    def stacks(self, home, *options):
        """[(blocks, frames)] of Deflaters, frames of Java from the outermost one inward."""
        with open(self.path("Chain.java"), "w", encoding="ascii") as file:
            file.write(CHAIN)
        built = harness.run([harness.need("javac"), "--release", "17", "Chain.java"], cwd=self.directory)
        self.assertEqual(built.status, 0, built.stderr)
        command = [f"{home}/bin/java", "-Xmx64m", *options, "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Chain*::*",
                   "-XX:CompileCommand=dontinline,*Deflater*::*", "-cp", self.directory, "Chain"]
        with harness.Waiting(command, cwd=self.directory) as process:
            with self.attached(process.pid) as attach:
                process.stdin.write("leak\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline().strip(), "done")
                attach.send_signal(signal.SIGINT)
        found = []
        folded = harness.run([HEAPLINE, "folded", "--value", "alloc", "--unit", "objects", self.recording]).stdout
        for line in folded.splitlines():
            stack, count = line.rsplit(" ", 1)
            frames = stack.split(";")
            inits = [at for at, frame in enumerate(frames) if "Deflater_init" in frame]
            calls = [at for at, frame in enumerate(frames) if "JavaMain" in frame]
            if inits and calls:
                found.append((int(count), frames[calls[0]:inits[0]]))
        return found

    def check(self, home, *options, compiled):
        found = self.stacks(home, *options)
        self.assertEqual(sum(count for count, _ in found) % 200, 0)
        self.assertGreaterEqual(sum(count for count, _ in found), 200)
        names = set()
        for _, frames in found:
            java = [frame for frame in frames if "Interpreter" in frame or "Chain" in frame or "Deflater" in frame]
            # main, loop, outer, run, inner and innermost, then Deflater(), Deflater(int, boolean) and init()
            self.assertEqual(len(java), 9, frames)
            for frame, method in zip(java, self.METHODS, strict=False):
                if "Interpreter" not in frame:
                    self.assertRegex(frame, rf"Chain.*\b{method}\(")
                    names.add(method)
        # Of what is compiled some may be given up when the first block is kept.
        self.assertLessEqual({"outer", "run", "inner"} if compiled else set(), names)

    def test_are_whole_without_frame_pointers(self):
        for home in javas():
            for options in ((), ("-Xcomp",), ("-XX:TieredStopAtLevel=1",), ("-XX:-TieredCompilation",), ("-XX:-SegmentedCodeCache",),
                            ("-XX:+UseSerialGC",), ("-XX:+UseZGC",), ("-XX:+PreserveFramePointer",)):
                with self.subTest(home=home, options=options):
                    self.check(home, *options, compiled=True)

    def test_are_whole_where_compiled_and_interpreted_methods_call_each_other(self):
        for home in javas():
            for odd in (("outer", "inner"), ("loop", "innermost"), ("*::run",)):
                excluded = [f"-XX:CompileCommand=exclude,Chain*::{name}" if ":" not in name else f"-XX:CompileCommand=exclude,Chain{name}"
                            for name in odd]
                with self.subTest(home=home, odd=odd):
                    for _, frames in self.stacks(home, *excluded):
                        java = [frame for frame in frames if "Interpreter" in frame or "Chain" in frame or "Deflater" in frame]
                        self.assertEqual(len(java), 9, frames)

    def test_of_the_interpreter_are_as_before(self):
        for home in javas():
            with self.subTest(home=home):
                self.check(home, "-Xint", compiled=False)


class Java(attaching.TestCase):
    """Methods of Java, by the map that jcmd has the JVM write while it runs."""

    COMPILED = ("-XX:+PreserveFramePointer", "-Xcomp", "-XX:CompileCommand=quiet", "-XX:CompileCommand=compileonly,Leak::*")

    def record(self, *options, names, before=lambda pid: None):
        """The process, which ${before} is told before it is joined."""
        java, compiler = harness.need("java"), harness.need("javac")
        with open(self.path("Leak.java"), "w", encoding="ascii") as file:
            file.write(JAVA)
        built = harness.run([compiler, "Leak.java"], cwd=self.directory)
        self.assertEqual(built.status, 0, built.stderr)
        with harness.Waiting([java, "-Xmx64m", *options, "-cp", self.directory, "Leak"], cwd=self.directory) as process:
            doctor = harness.run([HEAPLINE, "doctor", "-p", str(process.pid)])
            self.assertIn(f"'jcmd {process.pid} {PERFMAP}' (JDK 17 and later)", doctor.stdout)
            before(process.pid)
            with self.attached(process.pid) as attach:
                process.stdin.write("leak\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline().strip(), "done")
                if names == "jcmd":
                    asked = harness.run([harness.need("jcmd"), str(process.pid), PERFMAP])
                    if asked.status != 0 or not os.path.exists(f"/tmp/perf-{process.pid}.map"):
                        self.skipTest("this JVM writes no map for perf")
                    self.addCleanup(os.unlink, f"/tmp/perf-{process.pid}.map")
                attach.send_signal(signal.SIGINT)
            self.assertIsNone(process.poll())
            process.stdin.close()
            self.assertEqual(process.stdout.read(), "")  # no list of its threads
            self.assertEqual(process.wait(), 0)
            return process.pid

    def test_methods_are_scripts_by_the_map_of_jcmd(self):
        self.record(*self.COMPILED, names="jcmd")
        top = harness.run([HEAPLINE, "top", "--stack", "script", "--value", "alloc", "--sort", "cum", self.recording])
        self.assertNotIn("has no names", top.stdout + top.stderr)
        self.assertIn("void Leak.main(java.lang.String[])", top.stdout)

    def test_methods_are_named_without_being_asked_for(self):
        pid = self.record(*self.COMPILED, names="attach")
        top = harness.run([HEAPLINE, "top", "--stack", "script", "--value", "alloc", "--sort", "cum", self.recording])
        self.assertNotIn("has no names", top.stdout + top.stderr)
        self.assertIn("void Leak.main(java.lang.String[])", top.stdout)
        left = [name for name in os.listdir("/tmp") if name in (f"perf-{pid}.map", f".attach_pid{pid}")]
        self.assertEqual(left, [])

    def test_what_an_ended_one_left_behind_is_replaced(self):
        def leave(pid):
            with open(f"/tmp/.attach_pid{pid}", "w", encoding="ascii"):
                pass
        pid = self.record(*self.COMPILED, names="attach", before=leave)
        self.assertIn("void Leak.main(java.lang.String[])", functions(self.recording))
        self.assertFalse(os.path.exists(f"/tmp/.attach_pid{pid}"))

    def test_is_not_asked_to_write_through_a_link(self):
        def leave(pid):
            os.symlink(self.path("elsewhere"), f"/tmp/perf-{pid}.map")
            self.addCleanup(os.unlink, f"/tmp/perf-{pid}.map")
        self.record(*self.COMPILED, names=None, before=leave)
        self.assertFalse(os.path.exists(self.path("elsewhere")))

    def test_a_machine_without_a_handler_is_sent_no_signal(self):
        self.record("-Xrs", *self.COMPILED, names=None)  # SIGQUIT would have ended it; it listens from its start on

    def compile(self, source, *options):
        compiler = harness.need("gcc")
        with open(self.path("host.c"), "w", encoding="ascii") as file:
            file.write(source)
        built = harness.run([compiler, "-o", self.path("host"), self.path("host.c"), *options])
        self.assertEqual(built.status, 0, built.stderr)
        return self.path("host")

    def test_a_program_that_embeds_a_machine_is_sent_no_signal(self):
        home = os.path.dirname(os.path.dirname(os.path.realpath(harness.need("java"))))
        machine = f"{home}/lib/server"
        if not os.path.exists(f"{home}/include/jni.h") or not os.path.exists(f"{machine}/libjvm.so"):
            self.skipTest("jni.h or libjvm.so is missing")
        host = self.compile(EMBEDS, f"-I{home}/include", f"-I{home}/include/linux", f"-L{machine}", "-ljvm",
                            f"-Wl,-rpath,{machine}")
        with harness.Waiting([host], cwd=self.directory) as process:
            with self.attached(process.pid) as attach:
                process.stdin.write("go\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline().strip(), "done")
                attach.send_signal(signal.SIGINT)
            self.assertIsNone(process.poll())

    def test_an_answer_without_an_end_or_none_leaves_nothing_behind(self):
        """The machine is a library that listens in a program whose code has no names."""
        for answer in ("x" * 255, ""):
            library = self.compile(LISTENS, "-shared", "-fPIC", f'-DANSWER="{answer}"')
            os.rename(library, self.path("libjvm.so"))
            with self.subTest(len(answer)), harness.Waiting(
                    [harness.program("jit_code"), "wait"], cwd=self.directory,
                    env={"LD_PRELOAD": self.path("libjvm.so")}) as process:
                self.addCleanup(os.unlink, f"/tmp/.java_pid{process.pid}")
                os.unlink(self.path(f"jit-{process.pid}.dump"))
                with self.attached(process.pid) as attach:
                    process.stdin.write("go\n")
                    process.stdin.flush()
                    self.assertEqual(process.stdout.readline().strip(), "done")
                    attach.send_signal(signal.SIGINT)
                self.assertTrue(os.path.exists(self.path("asked")))
                self.assertFalse(os.path.exists(f"/tmp/perf-{process.pid}.map"))
                os.unlink(self.path("asked"))

    def test_without_them_views_say_what_writes_them_in_this_process(self):
        pid = self.record("-XX:+DisableAttachMechanism", *self.COMPILED, names=None)
        top = harness.run([HEAPLINE, "top", self.recording])
        self.assertIn(f"code made at run time (Java) has no names: 'jcmd {pid} {PERFMAP}'", top.stdout)


class Interpreters(harness.TestCase):
    """Those whose scripts are not read."""

    def test_are_named_in_the_head(self):
        recording = self.path("perl.hl")
        result = harness.run(harness.record_command(recording, [harness.need("perl"), "-e", "my @a = (1..1000);"]))
        self.assertEqual(result.status, 0, result.stderr)
        top = harness.run([HEAPLINE, "top", "--stack", "script", recording])
        self.assertIn("scripts of Perl are not read", top.stdout)
        self.assertIn("so that all is [native]; scripts of Perl are not read\n", top.stderr)


class Dump(harness.TestCase):
    """A jitdump in the directory where the program works."""

    def check(self, command, mode="mem-fast"):
        recording = self.path("jit.hl")
        result = harness.run(harness.record_command(recording, command, mode=mode),
                             cwd=self.directory)
        self.assertEqual(result.status, 0, result.stderr)
        found = functions(recording, "--value", "alloc")
        self.assertEqual({name: found[name][2] for name in ("newer", "moved") if name in found},
                         {"newer": 10000, "moved": 30000})
        self.assertFalse({"older", "not yet"} & set(found))
        return recording

    def test_names_the_newest_code_until_the_end(self):
        recording = self.check([harness.program("jit_code")])
        for name in os.listdir(self.directory):
            if name.endswith(".dump"):
                os.unlink(self.path(name))
        self.assertIn("newer", functions(recording, "--value", "alloc"))
        packed = self.path("packed.hlpack")
        result = harness.run([HEAPLINE, "pack", "-o", packed, recording])
        self.assertEqual(result.status, 0, result.stderr)
        self.assertIn("newer", functions(packed, "--value", "alloc"))

    def test_has_the_number_of_the_processs_own_namespace(self):
        harness.need_root()
        unshare = [harness.need("unshare"), "--pid", "--fork", "--mount-proc"]
        if harness.run([*unshare, "true"]).status != 0:
            self.skipTest("no PID namespace can be made")
        self.check([*unshare, harness.program("jit_code")])


class FromOutside(harness.TestCase):
    """A trace by BPF programs."""

    def test_names_code_as_a_recording_does(self):
        harness.need_root()
        recording = self.path("jit.hl")
        with harness.Waiting([harness.program("jit_code"), "wait"], cwd=self.directory) as program:
            with subprocess.Popen([HEAPLINE, "stacks", "-p", str(program.pid), "--verbose", "-o", recording],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as trace:
                said = []
                for line in trace.stderr:
                    said.append(line)
                    if "counting, by" in line:
                        break
                else:
                    self.skipTest("no trace can be made here: " + "".join(said)[-200:])
                program.stdin.write("go\n")
                program.stdin.flush()
                self.assertEqual(program.stdout.readline(), "done\n")
                trace.send_signal(signal.SIGINT)
                trace.stderr.read()
            self.assertEqual(trace.returncode, 0)
        found = functions(recording)
        self.assertEqual((found["newer"][2], found["moved"][2]), (10000, 30000))


class Hostile(harness.TestCase):
    """Files that a process could put there to harm who records it."""

    def names(self, put, refused=False):
        """Functions of jit_code, which ${put} is told the path of its map before it runs. ${refused}: a warning names the map."""
        recording = self.path("jit.hl")
        ready = self.path("ready")
        with subprocess.Popen(
                harness.record_command(recording, [
                    "sh", "-c", f'echo $$ > {ready}.new; mv {ready}.new {ready}; read go; '
                    f'exec {harness.program("jit_code")} -']),
                stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.directory) as record:
            wait_until(lambda: os.path.exists(ready), "the shell")
            with open(ready, encoding="ascii") as file:
                path = f"/tmp/perf-{int(file.read())}.map"
            put(path)
            try:
                record.communicate(b"go\n", timeout=harness.TIMEOUT_S)
            finally:
                os.unlink(path)
            self.assertEqual(record.returncode, 0)
        names = set(functions(recording, "--value", "alloc"))
        self.assertIn("main", names)
        warnings = [warning for warning in harness.info(recording)["recording"]["warnings"] if "names of code" in warning]
        self.assertEqual([os.path.basename(path) in warning for warning in warnings], [True] if refused else [])
        return names

    def put_map(self, path):
        with open(path, "w", encoding="ascii") as file:
            file.write("0 ffffffffffffff anything\n")

    def test_a_file_of_the_user_is_read(self):
        self.assertIn("anything", self.names(self.put_map))

    def test_a_fifo_is_not_waited_for(self):
        self.assertNotIn("anything", self.names(os.mkfifo, refused=True))

    def test_a_link_is_not_followed(self):
        def put(path):
            self.put_map(self.path("elsewhere"))
            os.symlink(self.path("elsewhere"), path)
        self.assertNotIn("anything", self.names(put, refused=True))

    def test_a_file_of_another_user_is_not_read(self):
        harness.need_root()

        def put(path):
            self.put_map(path)
            os.chown(path, 65534, 65534)
        self.assertNotIn("anything", self.names(put, refused=True))

    def test_a_file_that_is_older_than_the_process_is_not_read(self):
        def put(path):
            self.put_map(path)
            os.utime(path, (0, time.time() - 3600))
        self.assertNotIn("anything", self.names(put))


if __name__ == "__main__":
    harness.main()
