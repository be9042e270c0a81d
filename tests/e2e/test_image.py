#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The image of deploy/Containerfile, and `kubectl heapline`: heapline alone in a container, with the capabilities of one verb, looks into another one."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading

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
        cls.image = oci.image_of(cls)

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

    def test_a_plugin_that_ends_without_a_terminal_leaves_the_process(self):
        self.pod()
        maps = f"/proc/{self.containers.pid_of('app')}/maps"

        def is_joined():
            with open(maps, encoding="utf-8") as file:
                return "memfd:heapline" in file.read()

        environment = {**os.environ, "KUBECTL": self.path("kubectl"), "HL_FAKE_POD": self.directory, "HEAPLINE_IMAGE": self.image}
        for words in (["-o", "out.hlpack", "web-1", "attach"], ["-o", "out.hlpack", "web-1", "attach", "--comm", "app"],
                      ["web-1", "growth", "-p", "1", "60"], ["web-1", "why"]):
            with self.subTest(words):
                with subprocess.Popen([KUBECTL, *words], cwd=self.directory, env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as plugin:
                    harness.wait_until(is_joined, "the recorder")
                    plugin.terminate()
                    self.assertEqual(plugin.wait(harness.TIMEOUT_S), 1)
                for name in self.made():
                    self.addCleanup(self.containers.remove, name)
                self.assertFalse(is_joined())
                self.assertFalse(os.path.exists(self.path("out.hlpack")))

    def test_a_file_for_a_report_is_refused(self):
        self.pod()
        self.assertEqual(self.ask("-o", "out.txt", "web-1", "heap").status, 2)
        self.assertEqual(self.made(), [])

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

    def test_the_filter_of_the_container_stands_before_the_pod_s(self):
        self.pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
                 containers=[{"name": "app", "securityContext": {"seccompProfile": {"type": "Unconfined"}}}])
        self.assertNotIn("SYS_ADMIN", self.capabilities("web-1", "attach"))

    def test_the_first_process_of_the_node_is_not_looked_at(self):
        self.pod(shareProcessNamespace=False, hostPID=True)
        self.assertEqual(self.ask("--dry-run", "web-1", "heap").status, 2)

    def test_containers_that_share_their_processes_need_a_name(self):
        self.pod(shareProcessNamespace=True)
        said = self.ask("web-1", "heap")
        self.assertEqual(said.status, 2)
        self.assertIn("--comm", said.stderr)
        said = self.ask("web-1", "heap", "--comm", "app", "--json")
        self.assertEqual(said.status, 0, said.stderr)


class Api(http.server.BaseHTTPRequestHandler):
    """As much of an API server as kubectl needs for one pod, up to where it would talk to a container."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, said, status=200):
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self):
        self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 400, "reason": "BadRequest", "message": "no streams here"}, 400)

    def do_GET(self):  # pylint: disable=invalid-name
        path, pod = self.path.split("?")[0], self.server.pod
        verbs = ["get", "list", "patch", "watch"]
        known = {"/api": {"kind": "APIVersions", "versions": ["v1"]}, "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
                 "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                     {"name": name, "singularName": "", "namespaced": True, "kind": "Pod", "verbs": verbs} for name in ("pods", "pods/ephemeralcontainers")]},
                 "/api/v1/namespaces/shop/pods/web-1": pod,
                 "/api/v1/namespaces/shop/pods": {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]}}
        if path in known and "watch=true" not in self.path:
            self.answer(known[path])
        else:
            self.refuse()

    def do_PATCH(self):  # pylint: disable=invalid-name
        self.server.patches.append((self.path.split("?")[0], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        pod, (container,) = self.server.pod, self.server.patches[-1][1]["spec"]["ephemeralContainers"]
        pod["spec"]["ephemeralContainers"] = [container]
        pod["status"]["ephemeralContainerStatuses"] = [{"name": container["name"], "state": {"running": {"startedAt": "2026-11-30T00:00:00Z"}}}]
        self.answer(pod)

    def do_POST(self):  # pylint: disable=invalid-name
        self.server.streams.append(self.path)
        self.refuse()


class RealKubectl(harness.TestCase):
    """deploy/kubectl-heapline with kubectl itself, which asks an API server of this test."""

    def setUp(self):
        super().setUp()
        said = harness.run([harness.need("kubectl"), "debug", "--help"], env={"KUBECONFIG": self.path("config")})
        if "--custom=" not in said.stdout:
            self.skipTest("kubectl is older than 1.31")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.server.patches, self.server.streams = [], []
        self.server.pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
                           "spec": {"containers": [{"name": "app", "image": "app"}]}, "status": {"phase": "Running"}}
        with open(self.path("config"), "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [{"name": "me", "user": {}}],
                       "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
                       "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}]}, file)

    def ask(self, *words, kubectl="kubectl"):
        return harness.run([KUBECTL, "-n", "shop", *words], cwd=self.directory, env={
            "KUBECONFIG": self.path("config"), "HEAPLINE_IMAGE": "image", "HOME": self.directory, "KUBECTL": kubectl})

    def test_the_api_server_is_asked_for_a_container_with_these_rights(self):
        said = self.ask("web-1", "heap", "--json")
        self.assertEqual(said.status, 1)  # nobody runs it
        ((path, patch),) = self.server.patches
        self.assertEqual(path, "/api/v1/namespaces/shop/pods/web-1/ephemeralcontainers")
        (container,) = patch["spec"]["ephemeralContainers"]
        self.assertEqual({name: container[name] for name in ("image", "command", "targetContainerName", "stdin", "stdinOnce")}, {
            "image": "image", "command": ["heapline", "mcp"], "targetContainerName": "app", "stdin": True, "stdinOnce": True})
        self.assertEqual(container["securityContext"], {
            "runAsUser": 0, "runAsNonRoot": False, "allowPrivilegeEscalation": False, "seccompProfile": {"type": "Unconfined"},
            "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]}})
        command = "&".join(f"command={word}" for word in ("heapline", "heap", "-p", "1", "--json"))
        self.assertTrue([path for path in self.server.streams if f"/pods/web-1/exec?{command}&container={container['name']}" in path])

    def test_what_ends_while_the_pod_is_asked_may_have_begun_the_container(self):
        """The pod is asked before 'kubectl debug' begins; the answer comes after it has ended."""
        with open(self.path("kubectl"), "w", encoding="utf-8") as file:
            file.write("""#!/bin/sh
case "$*" in
*debug*) until [ -e asked ]; do sleep 0.1; done; kubectl "$@"; : >ended ;;
*startedAt*) kubectl "$@"; : >asked; until [ -e ended ]; do sleep 0.1; done; sleep 0.3 ;;
*) exec kubectl "$@" ;;
esac
""")
            os.chmod(file.fileno(), 0o755)
        said = self.ask("web-1", "heap", kubectl=self.path("kubectl"))
        self.assertNotIn("does not run", said.stderr)
        self.assertTrue([path for path in self.server.streams if "/pods/web-1/exec?command=heapline&" in path])

    def test_sys_admin_is_an_escalation_that_is_allowed(self):
        self.server.pod["spec"]["containers"][0]["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}}
        self.ask("web-1", "attach", "-d", "1")
        ((_, patch),) = self.server.patches
        security = patch["spec"]["ephemeralContainers"][0]["securityContext"]
        self.assertEqual(set(security["capabilities"]["add"]), {"SYS_PTRACE", "DAC_OVERRIDE", "SYS_ADMIN"})
        self.assertTrue(security["allowPrivilegeEscalation"])  # else the API server refuses SYS_ADMIN

    def test_a_pod_that_is_not_there_is_said(self):
        said = self.ask("web-2", "heap")
        self.assertEqual(said.status, 1)
        self.assertEqual(self.server.patches, [])


if __name__ == "__main__":
    harness.main()
