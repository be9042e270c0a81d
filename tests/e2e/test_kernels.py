#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's kernels, booted under qemu: what heapline reads there, of programs whose answers are known.

What runs there is kernel_guest.sh. Kernels are downloaded once, to the folder that HL_KERNELS names, or
one in the temporary directory; HL_SUITES names the releases ("trixie sid"), all without it. The processor
is emulated: each takes about a minute. ``--boot SUITE`` shows what the guest wrote.
"""

import contextlib
import fcntl
import functools
import glob
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import harness
import test_group_metrics
import test_pod

SUITES = ("bookworm", "trixie", "sid")  # kernels 6.1, 6.12, 7.2 and later
KERNELS = os.environ.get("HL_KERNELS",
                         os.path.join(tempfile.gettempdir(), f"heapline-kernels-{os.geteuid()}"))
PROGRAMS = ("trace_heap", "pages", "heap_target", "leaks", "pod_parts", "pod_kernel", "grow_parts", "blocks", "oom_ledger")
VERIFIED_MAX = 200_000  # instructions, of the million that kernels allow
DOWNLOAD_S, BOOT_S, BOOTS = 120, 900, 3


# ---- a machine ----

def apt(suite, folder, tool, *arguments, machine="amd64"):
    """apt of another release and machine, with state of its own."""
    for part in "lists/partial", "state":
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    open(os.path.join(folder, "state/status"), "a", encoding="ascii").close()
    uri = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
                         capture_output=True, text=True, check=True).stdout.split()[0]
    sources = os.path.join(folder, "sources.list")
    with open(sources, "w", encoding="ascii") as file:  # whose keys this system may not have
        file.write(f"deb [arch={machine} trusted=yes] {uri} {suite} main\n")
    options = {"Dir::State::Lists": f"{folder}/lists", "Dir::State::status": f"{folder}/state/status",
               "Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": "/dev/null",
               "Dir::Cache": folder, "APT::Architecture": machine, "APT::Architectures": machine,
               "APT::Sandbox::User": "root", "Acquire::Retries": "1", "Acquire::http::Timeout": "20"}
    command = [tool, "-q", *(f"-o{key}={value}" for key, value in options.items()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DOWNLOAD_S,
                          cwd=folder).stdout


def dependency(suite, folder, package, prefix, machine):
    """The first package that starts with ``prefix`` of those that ``package`` needs, or itself."""
    listed = apt(suite, folder, "apt-cache", "depends", package, machine=machine)
    found = re.search(rf"Depends: ({prefix}-[0-9]\S+)", listed)
    return found[1] if found else package


def download(suite, machine="amd64", flavour=""):
    """The folder with a release's kernel and busybox; skips the test where they cannot be had. ``flavour``: "16k", of pages."""
    folder = os.path.join(KERNELS, suite if machine == "amd64" else "-".join(filter(None, (suite, machine, flavour))))
    os.makedirs(KERNELS, 0o700, exist_ok=True)
    if os.stat(KERNELS).st_uid != os.geteuid():
        raise unittest.SkipTest(f"'{KERNELS}' is another user's; name a folder by HL_KERNELS")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(f"{folder}/vmlinuz"):
            return folder
        try:
            apt(suite, folder, "apt-get", "update", machine=machine)
            kernel = dependency(suite, folder, f"linux-image-{machine}-{flavour}" if flavour else f"linux-image-cloud-{machine}", "linux-image", machine)
            kernel = dependency(suite, folder, kernel, "linux-binary", machine)  # where images have been split
            apt(suite, folder, "apt-get", "download", kernel, "busybox-static", machine=machine)
            for package in glob.glob(f"{folder}/*.deb"):
                subprocess.run(["dpkg", "-x", package, f"{folder}/root"], check=True)
        except (subprocess.SubprocessError, IndexError) as error:
            said = os.fsdecode(getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
            raise unittest.SkipTest(f"the kernel of {suite} cannot be downloaded: {''.join(said)}")
        images = [*glob.glob(f"{folder}/root/boot/vmlinuz-*"),
                  *glob.glob(f"{folder}/root/**/modules/*/vmlinuz", recursive=True)]
        shutil.copy(next(path for path in glob.glob(f"{folder}/root/**/bin/busybox", recursive=True)),
                    f"{folder}/busybox")
        shutil.copy(images[0], f"{folder}/vmlinuz.new")
        os.replace(f"{folder}/vmlinuz.new", f"{folder}/vmlinuz")
        shutil.rmtree(f"{folder}/root")
    return folder


def libraries(path):
    """What a program is linked with, the loader included."""
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def ramdisk_module(folder, path):
    """Writes the kernel's module for disks in memory, which is what it can swap to; whether its package has modules."""
    for package in glob.glob(f"{folder}/linux-*.deb"):
        with subprocess.Popen(["dpkg", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacked, \
                tarfile.open(fileobj=unpacked.stdout, mode="r|") as tree:
            for member in tree:
                if os.path.basename(member.name) in ("brd.ko", "brd.ko.xz"):
                    content = tree.extractfile(member).read()
                    with open(path, "wb") as file:
                        file.write(lzma.decompress(content) if member.name.endswith(".xz") else content)
                    unpacked.kill()
                    return True
    return False


def guest_files(folder):
    """Files of the machine, by their paths there."""
    recorder = os.path.join(harness.BUILD, "src/recorder/libheapline.so.0")
    verbs = os.path.join(harness.BUILD, "heapline-verbs.so")
    files = {"bin/busybox": f"{folder}/busybox", "hl/heapline": harness.HEAPLINE, "hl/heapline-verbs.so": verbs,
             "hl/src/recorder/libheapline.so.0": recorder,
             "init": os.path.join(harness.SOURCES, "kernel_guest.sh"),
             **{f"hl/{name}": os.path.join(harness.SOURCES, name) for name in ("guest.sh", "guest_traces.sh")},
             "hl/setpriv": harness.need("setpriv"),
             **{f"hl/{name}": harness.program(name) for name in PROGRAMS}}
    files |= {library.lstrip("/"): library for library in libraries(verbs)}
    beside = os.path.dirname(next(path for path in files if path.endswith("/libc.so.6")))
    if os.path.exists(served := f"/{beside}/libmicrohttpd.so.12"):  # loaded when it is needed
        files[served.lstrip("/")] = served
    for path in [*files.values()]:
        files |= {library.lstrip("/"): library for library in libraries(path)}
    return files


def archive(files, output):
    """Writes an archive that the kernel unpacks at its start (cpio, newc)."""
    folders = sorted({parent for path in files for parent in
                      ("/".join(path.split("/")[:i]) for i in range(1, path.count("/") + 1))})
    entries = [(path, 0o040755, None) for path in folders] + \
        [(path, 0o100755, source) for path, source in files.items()] + [("TRAILER!!!", 0, None)]
    for i, (path, mode, source) in enumerate(entries):
        content = b""
        if source:
            with open(source, "rb") as file:
                content = file.read()
        name = path.encode() + b"\0"
        fields = (i + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        output.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
        output.write(b"\0" * (-(110 + len(name)) % 4) + content + b"\0" * (-len(content) % 4))


@functools.cache
def boot(suite):
    """What the guest wrote; skips the test where it cannot be booted. A kernel that panics is booted again: emulation has one
    processor run half an instruction that another one is just replacing."""
    for _ in range(BOOTS):
        said, console = boot_once(suite)
        if "Kernel panic" not in console:
            break
    if "@@@end\n" not in said:
        raise AssertionError(f"{suite} did not end in {BOOT_S} s: {said[-500:]}{console[-2000:]}")
    return said


def boot_once(suite):
    """What the guest wrote, and its kernel."""
    qemu = harness.need("qemu-system-x86_64")
    harness.need("apt-get")
    folder = download(suite)
    with tempfile.TemporaryDirectory(prefix="heapline-kernels-") as directory:
        files = guest_files(folder)
        if ramdisk_module(folder, f"{directory}/brd.ko"):
            files["hl/brd.ko"] = f"{directory}/brd.ko"
        with open(f"{directory}/initrd", "wb") as output:
            archive(files, output)
        command = [qemu, "-cpu", "max", "-m", "1024", "-smp", "2", "-display", "none", "-no-reboot",
                   "-nodefaults", "-serial", f"file:{directory}/console", "-serial", f"file:{directory}/said",
                   "-kernel", f"{folder}/vmlinuz", "-initrd", f"{directory}/initrd",
                   "-append", "console=ttyS0 quiet panic=-1"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=BOOT_S, check=False, stdin=subprocess.DEVNULL)
        with open(f"{directory}/said", encoding="utf-8", errors="replace") as file:
            said = file.read().replace("\r", "")
        with open(f"{directory}/console", encoding="utf-8", errors="replace") as file:
            return said, file.read()


def parse(said):
    """(status, output, errors) of each command, by its name."""
    pattern = re.compile(r"^@@@ ([^\n]*) (\d+)\n(.*?)^@@@\n(.*?)(?=^@@@)", re.M | re.S)
    return {name: (int(status), output, errors) for name, status, output, errors in pattern.findall(said)}


# ---- what must be said there ----

class Machine:
    """What is so on every machine: ``said`` is what its guest wrote."""

    said = {}

    def report(self, name):
        status, output, errors = self.said[name]
        self.assertEqual(status, 0, f"{name}: {output}{errors}")
        return json.loads(output)

    def check_heap(self, heap, mallinfo):
        total = self.report(heap)["total"]
        told = dict(re.findall(r"^(\w+) (\d+)$", self.said[mallinfo][1], re.M))
        walked = {"arena": total["system_bytes"], "hblks": total["mmapped_blocks"],
                  "hblkhd": total["mmapped_bytes"], "fordblks": total["free_bytes"] + total["fastbin_bytes"]}
        # glibc 2.43 counts 16 bytes too many for each mapping that moved.
        too_many = int(told["hblkhd"]) - walked["hblkhd"]
        self.assertIn(too_many, range(0, 16 * walked["hblks"] + 1, 16))
        self.assertEqual(walked, {name: int(told[name]) for name in walked} | {"hblkhd": walked["hblkhd"]})

    def check_leaks(self, leaks, planted):
        total = self.report(leaks)["total"]
        for word, sums in re.findall(r"^(\w+) (\d+ \d+)$", self.said[planted][1], re.M):
            self.assertEqual(f"{total[word + '_blocks']} {total[word + '_bytes']}", sums, word)


class ShortTraces(Machine):
    """What guest_traces.sh traced, in its short form, too; ``release`` is that of the kernel."""

    release = ()
    page_bytes = 4096
    unattributed_max = 0  # pages of pgfault

    def sites(self, name):
        """(bytes, blocks) that each of the program's sites keeps."""
        sums = {}
        report = self.report(name)
        for row in report["rows"]:
            for frame in row["stack"]:
                site = re.match(r"site_[a-z]", frame)
                if site:
                    size, blocks = sums.get(site[0], (0, 0))
                    sums[site[0]] = (size + row["bytes"], blocks + row["objects"])
        return sums

    def test_blocks_are_found_by_each_kind_of_probe(self):
        for probes in "best", "multi", "perf":
            with self.subTest(probes):
                if probes == "multi" and self.release < (6, 10):
                    self.assertNotEqual(self.said[f"stacks {probes}"][0], 0)
                    continue
                self.assertEqual(self.sites(f"stacks {probes}"), {"site_a": (75000, 750), "site_b": (32000, 500)})

    def test_the_best_kind_of_probe_is_chosen(self):
        best = "session" if self.release >= (6, 13) else "multi" if self.release >= (6, 10) else "perf"
        self.assertIn(f"counting, by {best} probes", self.said["stacks best"][2])

    def test_no_program_comes_near_the_verifiers_limit(self):
        for name, (_, _, errors) in self.said.items():
            counts = list(map(int, re.findall(r"^verified\s+(\d+)$", errors, re.M)))
            if "counting, by" in errors:
                self.assertGreater(len(counts), 1, name)
            self.assertLess(max(counts, default=0), VERIFIED_MAX, name)

    def test_pages_equal_the_growth_of_rss(self):
        for scenario, mib in ("anon", 16), ("moved", 32):
            with self.subTest(scenario):
                pages = (mib << 20) // self.page_bytes
                total = self.report(f"pgfault {scenario}")["total"]
                _, before, after = self.said[f"growth {scenario}"]
                self.assertEqual(total["rss_growth_pages"], int(after.split()[0]) - int(before.split()[0]))  # the shell may say "Terminated"
                self.assertLessEqual(abs(total["pages"] - total["rss_growth_pages"]), 1)  # the kernel's own
                self.assertLess(abs(total["pages"] - pages), 200)  # code, the stack, the C library's
                self.assertLessEqual(total["unattributed_pages"], self.unattributed_max)

    def test_faults_are_counted(self):
        sums = sum(row["objects"] for row in self.report("page-events")["rows"]
                   if any(frame.startswith("write_site") for frame in row["stack"]))
        self.assertEqual(sums, (16 << 20) // self.page_bytes)


class Traces(ShortTraces):
    """What guest_traces.sh traced."""

    def test_all_and_old_blocks_are_found(self):
        self.assertEqual(self.sites("stacks --all"),
                         {"site_a": (100000, 1000), "site_b": (32000, 500), "site_c": (12000, 300)})
        self.assertEqual(self.sites("stacks --older 0.001"), {"site_a": (75000, 750), "site_b": (32000, 500)})

    def test_samples_stand_for_what_is_there(self):
        # 75,000 bytes by samples of 4,096: 18 of them, of which the estimate may be off by a quarter (1 sigma)
        for options, size in ("--sample 4096", 75000), ("--sample 4096 --all", 100000):
            found = self.sites(f"stacks {options}")["site_a"][0]
            self.assertLess(abs(found - size), size * 1.1, options)

    def test_a_process_in_a_group_is_traced(self):
        self.assertEqual(self.sites("stacks in a group"), {"site_a": (75000, 750), "site_b": (32000, 500)})

    def test_what_a_group_is_charged_with_adds_up(self):
        _, pid, said = self.said["pod processes"]
        report = self.report("pod")
        test_pod.check_parts(self, report, int(pid), int(re.search(r"child (\d+)", said)[1]), "/tmp")
        kernel = {row["name"]: row["bytes"] for row in report["rows"] if row["kind"] == "kernel"}
        self.assertGreaterEqual(kernel["kernel stacks"], 64 * 16384)
        self.assertGreater(kernel["page tables"], 0)
        self.assertIsNotNone(report["removed_bytes"], report["notes"])  # page by page
        slab = sum(size for name, size in kernel.items() if name.startswith("slab "))
        self.assertGreater(slab, 0)
        self.assertLess(abs(kernel["buffers of pipes, unix sockets and others, whole pages"] - 50 * 65536), 65536)
        self.assertLess(abs(kernel.get("other memory of the kernel", 0)), report["total"]["kernel_bytes"] / 4)
        self.assertIn("group /parts: ", self.said["pod of a process"][1])
        (group, own), = test_group_metrics.groups_of(self.said["metrics"][1])[0].items()
        self.assertEqual(group, "/parts")
        for kind in test_group_metrics.KINDS:
            self.assertLess(abs(own[f"{kind}_bytes"] - report["total"][f"{kind}_bytes"]), 4 * test_pod.BATCH_BYTES, kind)
        self.assertEqual(own["unreclaimable_bytes"], own["usage_bytes"] - own["reclaimable_bytes"])
        self.assertNotIn("limit_bytes", own)

    def test_what_the_kernel_keeps_for_a_program_has_rows(self):
        _, said, stat = self.said["kept program"]
        for name in "pod kept", "pod kept quick":
            report = self.report(name)
            test_pod.check_kept(self, report, said, stat)
            huge = [row["bytes"] for row in report["rows"] if row["name"] == "huge pages (hugetlbfs)"]
            # where there were any, by an option of the mount
            self.assertEqual(huge, [8 << 20] if self.release >= (6, 6) and "huge 8388608" in said else [])
            swapped = 8 << 20 if "/dev/ram0" in self.said["swaps"][1] else 0
            self.assertLess(abs(report["swap_bytes"] - swapped), test_pod.BATCH_BYTES)
            self.assertLess(report["total"]["anonymous_bytes"], (16 << 20) - swapped)

    def test_a_group_that_fills_has_its_snapshot(self):
        """Emulated, all takes some ten times as long."""
        _, steps, said = self.said["oom ledger"]
        self.assertNotIn("groups are looked at", said)
        snapshots = self.report("watch last")["snapshots"]
        self.assertTrue(snapshots, said)

    def test_a_kill_is_kept_to_the_last_allocation(self):
        _, steps, said = self.said["oom ledger"]
        report = self.report("watch last")
        self.assertIsNotNone(report["killed"], said)
        self.assertEqual((report["group"], report["limit_bytes"]), ("/oom", 48 << 20))
        written = int(steps) << 20
        self.assertGreaterEqual(report["victim"]["anonymous_bytes"], written)
        self.assertLess(report["victim"]["anonymous_bytes"], written + (2 << 20))
        self.assertEqual(report["victim"]["command"][0], "oom_ledger")
        self.assertEqual([frame.split()[0] for frame in report["asked"]["stack"] if ".c:" in frame],
                         ["keep_step", "grow_to", "main"])

    def test_what_made_a_group_grow_is_known(self):
        test_pod.check_growth(self, self.report("growth of a group"), None, None)


class Kernel(Traces):
    """The tests of one kernel."""

    suite = ""

    @classmethod
    def setUpClass(cls):
        if cls.suite not in os.environ.get("HL_SUITES", " ".join(SUITES)).split():
            raise unittest.SkipTest("HL_SUITES does not name it")
        cls.said = parse(boot(cls.suite))
        cls.release = tuple(map(int, cls.said["release"][1].split(".")[:2]))

    def test_a_process_is_joined_and_counts_exactly(self):
        rows = {row["name"]: row for row in self.report("top")["rows"]}
        self.assertEqual({name: (rows[name]["cum_bytes"], rows[name]["cum_objects"]) for name in ("site_a", "site_b")},
                         {"site_a": (75000, 750), "site_b": (32000, 500)})

    def test_a_recorder_goes_on_by_samples_before_its_group_is_full(self):
        kept = re.search(r"kept (\d+) (\d+)", self.said["blocks kept"][1])
        self.assertTrue(kept, "the program was killed: " + str(self.said["attach"]))
        info = self.report("blocks short")
        self.assertIn("its control group had", " ".join(info["recording"]["warnings"]))
        stacks = harness.parse_folded(self.said["blocks found"][1])
        for site, true in zip(("site_a", "site_b"), map(int, kept.groups())):
            self.assertLess(abs(harness.under(stacks, site) - true), harness.deviation_of_samples(info, true))

    def test_the_heap_equals_mallinfo2(self):
        self.check_heap("heap", "mallinfo")

    def test_lost_blocks_are_found(self):
        self.check_leaks("leaks", "planted")

    def test_doctor_says_what_works(self):
        for name in "doctor", "doctor target":
            works = {row["way"]: row["works"] for row in self.report(name)["rows"]}
            for way in "stacks", "pgfault", "attach", "heap":
                self.assertIn(works[way], ("yes", "partly"), (name, way))

    def test_root_is_not_hindered_by_yama(self):
        for scope in 1, 2:
            self.report(f"scope {scope} heap")
            self.report(f"scope {scope} leaks")
        self.assertIn("site_a", self.sites("scope 2 stacks"))

    def test_a_user_is_told_what_yama_forbids(self):
        for verb in "heap", "attach":
            status, output, errors = self.said[f"scope 1 user {verb}"]
            self.assertEqual(status, 1, output)
            self.assertIn("CAP_SYS_PTRACE", errors)
        self.assertIn("ptrace_scope", self.said["scope 1 user attach"][2])
        self.assertIn("CAP_BPF", self.said["scope 1 user stacks"][2])

    def test_lockdown_that_keeps_integrity_is_no_obstacle(self):
        self.assertIn("[integrity]", self.said["lockdown integrity"][1])
        self.assertIn("site_a", self.sites("integrity stacks"))
        self.report("integrity heap")

    def test_lockdown_that_keeps_secrets_is_named(self):
        self.assertIn("[confidentiality]", self.said["lockdown confidentiality"][1])
        status, _, errors = self.said["confidentiality stacks"]
        self.assertEqual(status, 1)
        self.assertIn("locked down (confidentiality)", errors)
        works = {row["way"]: row["works"] for row in self.report("confidentiality doctor")["rows"]}
        self.assertEqual((works["stacks"], works["pgfault"]), ("no", "no"))
        self.report("confidentiality heap")


class Bookworm(Kernel, unittest.TestCase):
    suite = "bookworm"


class Trixie(Kernel, unittest.TestCase):
    suite = "trixie"


class Sid(Kernel, unittest.TestCase):
    suite = "sid"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--boot"]:
        print(boot(sys.argv[2]))
    else:
        harness.main()
