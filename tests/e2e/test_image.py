#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The image of deploy/Containerfile, and `kubectl heapline`: heapline alone in a container, with the capabilities of one verb, looks into another one."""

import json
import os
import re
import subprocess
import sys
import tempfile

import harness
import oci
import test_capabilities
import test_serve

KUBECTL = os.path.join(oci.DEPLOY, "kubectl-heapline")
SUBJECT = 65533


class InContainers(harness.TestCase):
    """An image, and a container whose process is looked at."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        harness.need_root()
        for tool in "crun", "ldd", "unshare":
            harness.need(tool)
        cls.image = os.path.join(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="heapline-image-")), "image")
        oci.make_image(cls.image, harness.BUILD)

    def setUp(self):
        super().setUp()
        oci.make_program(self.path("app"), harness.program("waits_static"))
        self.containers = oci.Containers(self.directory)

    def subject(self, name="app", user=SUBJECT):
        """A container of another user; the number of its process here."""
        command = self.containers.command(name, self.path("app"), oci.process(["/app"], [], user))
        self.addCleanup(self.containers.remove, name)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        if process.stdout.readline() != "ready\n":
            self.skipTest(f"no container can be made here: {process.stderr.read()}")
        return self.containers.pid_of(name)

    def beside(self, pid, capabilities, *arguments):
        """heapline in a container beside."""
        self.addCleanup(self.containers.remove, f"tool{len(os.listdir(self.directory))}")
        name = f"tool{len(os.listdir(self.directory))}"
        return harness.run(self.containers.command(name, self.image, oci.process(["heapline", *arguments], capabilities), pid))


class Image(InContainers):
    def test_it_has_heapline_and_what_that_loads_alone(self):
        programs = [path for path in harness.files_of(self.image) if os.access(os.path.join(self.image, path), os.X_OK)
                    and "/lib" not in f"/{path}"]
        self.assertEqual(programs, ["usr/bin/heapline"])
        said = harness.run(["chroot", self.image, "/usr/bin/heapline", "version"])
        self.assertEqual((said.status, said.stderr), (0, ""))

    def test_verbs_read_a_process_of_another_container(self):
        pid = self.subject()
        reading = ["SYS_PTRACE", "DAC_READ_SEARCH"]
        doctor = self.beside(pid, reading, "doctor", "-p", "1", "--json")
        self.assertEqual(doctor.status, 0, doctor.stderr)
        self.assertIn("attach", doctor.stdout)
        pod = self.beside(pid, reading, "pod", "-p", "1", "--json")
        self.assertEqual(pod.status, 0, pod.stderr)
        heap = self.beside(pid, reading, "heap", "-p", "1", "--json")
        self.assertEqual(heap.status, 0, heap.stderr)
        self.assertEqual(json.loads(heap.stdout)["process"]["pid"], 1)
        self.assertEqual(self.beside(pid, ["DAC_READ_SEARCH"], "heap", "-p", "1").status, 1)

    def test_serve_finds_its_library(self):
        token = os.path.join(self.image, "token")
        test_serve.write_token(token)
        with subprocess.Popen(["chroot", self.image, "/usr/bin/heapline", "serve", "--listen", "127.0.0.1:0", "--token-file", "/token", "/out"],
                              stderr=subprocess.PIPE, text=True) as server:
            self.assertRegex(server.stderr.readline(), "http://127.0.0.1:")
            server.terminate()


class Plugin(InContainers):
    """deploy/kubectl-heapline, with a kubectl whose pod is real containers."""

    def pod(self, **spec):
        self.subject()
        with open(self.path("pod.json"), "w", encoding="utf-8") as file:
            json.dump({"spec": {"containers": [{"name": "app"}], **spec}, "status": {}}, file)
        kubectl = self.path("kubectl")
        with open(os.open(kubectl, os.O_CREAT | os.O_WRONLY, 0o755), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {sys.executable} {oci.SOURCE}/oci.py "$@"\n')

    def ask(self, *words):
        said = harness.run([KUBECTL, *words], cwd=self.directory,
                           env={"KUBECTL": self.path("kubectl"), "HL_FAKE_POD": self.directory, "HEAPLINE_IMAGE": self.image})
        for name in self.made():
            self.addCleanup(self.containers.remove, name)
        return said

    def calls(self):
        with open(self.path("calls"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def made(self):
        return [word.removeprefix("--container=") for words in self.calls() for word in words if word.startswith("--container=")] \
            if os.path.exists(self.path("calls")) else []

    def capabilities(self, *words):
        said = self.ask("--dry-run", *words)
        self.assertEqual(said.status, 0, said.stderr)
        return set(re.findall(r'"([A-Z_]+)"', re.search(r'"add": \[([^]]*)\]', said.stdout)[1]))

    def test_a_verb_runs_beside_the_container_and_leaves_nothing_running(self):
        self.pod()
        said = self.ask("-n", "shop", "web-1", "heap", "--json")
        self.assertEqual(said.status, 0, said.stderr)
        self.assertEqual(json.loads(said.stdout)["process"]["pid"], 1)
        (debug,) = [words for words in self.calls() if "debug" in words]
        self.assertEqual(debug[:3], ["--namespace=shop", "debug", "web-1"])
        self.assertIn("--target=app", debug)
        with open(self.path("pod.json"), encoding="utf-8") as file:
            (status,) = json.load(file)["status"]["ephemeralContainerStatuses"]
        self.assertEqual(status["state"]["terminated"]["exitCode"], 0)

    def test_the_status_of_the_verb_is_that_of_the_plugin(self):
        self.pod()
        self.assertEqual(self.ask("web-1", "heap", "--no-such-option").status, 2)
        self.assertEqual(self.ask("web-1", "heap", "-p", "4000000").status, 1)
        self.assertEqual(self.ask("web-1", "format-disk").status, 2)

    def test_a_recording_comes_out_as_a_file(self):
        self.pod()
        said = self.ask("-o", "out.hlpack", "web-1", "attach", "-d", "1")
        self.assertEqual(said.status, 0, said.stderr)
        self.assertGreater(harness.info(self.path("out.hlpack"))["total"]["alloc_objects"], 0)
        self.assertIn("act=attach", said.stderr)
        self.assertEqual(self.ask("-o", "out.hlpack", "web-1", "attach", "-d", "1").status, 1)

    def test_it_asks_for_the_capabilities_that_the_documentation_lists(self):
        self.pod()
        for command, names in test_capabilities.rows():
            if " " not in command:
                with self.subTest(command):
                    self.assertEqual(self.capabilities("web-1", command), set(names))
        self.assertEqual(self.capabilities("--add", "SYS_ADMIN", "web-1", "stacks"), {"BPF", "PERFMON", "SYS_PTRACE", "SYS_ADMIN"})

    def test_a_filter_of_the_pod_is_seen(self):
        self.pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}})
        self.assertIn("SYS_ADMIN", self.capabilities("web-1", "attach"))
        self.assertNotIn("SYS_ADMIN", self.capabilities("web-1", "heap"))

    def test_containers_that_share_their_processes_need_a_name(self):
        self.pod(shareProcessNamespace=True)
        said = self.ask("web-1", "heap")
        self.assertEqual(said.status, 2)
        self.assertIn("--comm", said.stderr)
        said = self.ask("web-1", "heap", "--comm", "app", "--json")
        self.assertEqual(said.status, 0, said.stderr)


if __name__ == "__main__":
    harness.main()
