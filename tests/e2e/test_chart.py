#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The chart of deploy/helm: what it makes, and that its containers do their work with the rights that it gives them and need each of these."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request

import harness
import oci
import test_group_metrics
import test_pod
import test_push
import test_serve

CHART = os.path.join(oci.DEPLOY, "helm/heapline")
MIB = 1 << 20
SUBJECT = 65533
GROWN = """
import sys
kept = bytearray(60 << 20)
print("grown", flush=True)
sys.stdin.read()
"""


def render(**values):
    try:
        import helm_template  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise harness.unittest.SkipTest(f"the chart cannot be rendered: {error}") from None
    return {(one["kind"], one["metadata"]["name"]): one for one in helm_template.render(CHART, **values)}


def pod_of(objects, name):
    return objects["DaemonSet", f"release-{name}"]["spec"]["template"]["spec"]


class Rendered(harness.TestCase):
    def test_nothing_is_privileged_and_all_else_is_dropped(self):
        objects = render(prometheus={"enabled": True})
        self.assertEqual({kind for kind, _ in objects}, {"DaemonSet", "PodMonitor", "PrometheusRule"})
        for name in "watch", "serve":
            pod = pod_of(objects, name)
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertNotIn("hostNetwork", pod)
            (container,) = pod["containers"]
            security = container["securityContext"]
            self.assertEqual((security["privileged"], security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]), (False, False, True))
            self.assertEqual(security["capabilities"]["drop"], ["ALL"])
            self.assertNotIn("SYS_ADMIN", security["capabilities"]["add"])
            self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {volume["name"] for volume in pod["volumes"]})
        self.assertNotIn("hostPID", pod_of(objects, "serve"))
        old = pod_of(render(watch={"capabilities": ["SYS_ADMIN"]}), "watch")["containers"][0]["securityContext"]
        self.assertTrue(old["allowPrivilegeEscalation"])  # else the API server refuses SYS_ADMIN

    def test_labels_that_choose_pods_are_those_that_pods_have(self):
        objects = render(prometheus={"enabled": True})
        for name in "watch", "serve":
            spec = objects["DaemonSet", f"release-{name}"]["spec"]
            self.assertEqual(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"])
        chosen = objects["PodMonitor", "release"]["spec"]["selector"]["matchLabels"]
        self.assertEqual(chosen, objects["DaemonSet", "release-serve"]["spec"]["selector"]["matchLabels"])

    def test_what_is_switched_off_is_not_made(self):
        self.assertEqual(list(render(watch={"enabled": False})), [("DaemonSet", "release-serve")])
        pod = pod_of(render(audit={"journal": False}, image={"tag": "1"}), "watch")
        self.assertNotIn("log", [volume["name"] for volume in pod["volumes"]])
        self.assertEqual(pod["containers"][0]["image"], "registry.example/heapline:1")

    def test_the_alerts_are_those_of_the_documentation(self):
        harness.need("promtool")
        rules = render(prometheus={"enabled": True})["PrometheusRule", "release"]["spec"]
        with open(self.path("rules.yml"), "w", encoding="utf-8") as file:
            json.dump(rules, file)
        said = harness.run(["promtool", "check", "rules", self.path("rules.yml")])
        self.assertEqual(said.status, 0, said.stderr)


# Numbers of linux/capability.h.
CAPABILITIES = {"DAC_READ_SEARCH": 2, "IPC_LOCK": 14, "SYS_PTRACE": 19, "SYS_RESOURCE": 24, "PERFMON": 38, "BPF": 39}


def has(name):
    """Whether this machine can give a capability to anybody."""
    with open("/proc/self/status", encoding="ascii") as file:
        (effective,) = [line.split()[1] for line in file if line.startswith("CapEff:")]
    return int(effective, 16) >> CAPABILITIES[name] & 1


class Running(test_pod.Groups):
    """The containers of the chart, made by crun on this machine as a node."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.image = oci.image_of(cls)

    @contextlib.contextmanager
    def started(self, name, places, without=None, replace=(), **values):
        """The container of a DaemonSet; `places`: directories of this test for its volumes; `without`: a capability that it lacks."""
        pod = pod_of(render(audit={"journal": False}, **values), name)
        (container,) = pod["containers"]
        security = container["securityContext"]
        names = [capability for capability in security["capabilities"]["add"] if capability != without and has(capability)]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = []
        for mount in container["volumeMounts"]:
            source = places.get(mount["name"]) or volumes[mount["name"]].get("hostPath", {}).get("path")
            if not source:  # an emptyDir
                source = self.path(f"{name}-{mount['name']}")
                os.makedirs(source, exist_ok=True)
            options = ["rbind", "ro" if mount.get("readOnly") else "rw"]
            mounts.append({"destination": mount["mountPath"], "type": "bind", "source": source, "options": options})
        words = [*container["command"], *container["args"]]
        for old, new in replace:
            words = [word.replace(old, new) for word in words]
        containers = oci.Containers(self.path(f"state-{name}-{without}"))
        os.makedirs(containers.directory)
        command = containers.command(name, self.image, oci.process(words, names, security["runAsUser"], ["XDG_CACHE_HOME=/var/cache"]),
                                     mounts=mounts, on_host=True)
        with open(self.path("said"), "w+", encoding="utf-8", errors="replace") as said, subprocess.Popen(command, stderr=said) as runs:
            try:
                yield runs
            finally:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    runs.send_signal(signal.SIGTERM)
                    runs.wait(60)
                containers.remove(name)

    def said(self):
        with open(self.path("said"), encoding="utf-8", errors="replace") as file:
            return file.read()

    @contextlib.contextmanager
    def watch(self, place, without=None, groups=()):
        os.makedirs(place)
        words = [word for group in groups for word in ("--cgroup", self.name_of(group))]
        with self.started("watch", {"kept": place}, without, watch={"arguments": words}) as service:
            harness.wait_until(lambda: "watching" in self.said() or service.poll() is not None, "the service to begin")
            if "watching" not in self.said():
                self.skipTest(f"no container can be made here: {self.said()}")
            yield

    def name_of(self, group):
        return group[len(self.mount):]

    def kept(self, name, without=None):
        """What the service keeps of a process of another user whose group is nearly full: the steps of a snapshot that were not done."""
        place = self.path(name)
        with self.group(name) as group, self.watch(place, without, [group]):
            self.limit(group, 64 * MIB)
            with subprocess.Popen(["/usr/bin/python3", "-c", GROWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
                                  preexec_fn=lambda: (self.join(group), os.setgroups([]), os.setgid(SUBJECT), os.setuid(SUBJECT))) as process:
                try:
                    self.assertEqual(process.stdout.readline(), b"grown\n")

                    def entry():
                        found = [one for one in os.listdir(place) if "Z-snapshot-" in one and not one.endswith(".partial")]
                        return found and os.path.join(place, found[0], "snapshot.json")

                    with open(harness.wait_until(entry, "a snapshot"), encoding="utf-8") as file:
                        snapshot = json.load(file)
                finally:
                    process.kill()
        # Nobody records it, so that nobody can be asked.
        return snapshot, [step for step in snapshot["steps"] if not step["done"] and not step["file"].startswith("ctl-")]

    def test_the_black_box_keeps_what_processes_of_all_users_had(self):
        snapshot, missing = self.kept("whole")
        self.assertEqual(missing, [])
        self.assertEqual([process["comm"] for process in snapshot["processes"]], ["python3"])
        self.assertNotRegex(self.said(), "CAP_" if has("SYS_RESOURCE") else "CAP_(?!SYS_RESOURCE)")

    def test_it_needs_each_of_its_capabilities(self):
        (container,) = pod_of(render(), "watch")["containers"]
        for number, name in enumerate(container["securityContext"]["capabilities"]["add"]):
            with self.subTest(name):
                if not has(name):
                    self.skipTest(f"this machine has no CAP_{name}")
                _, missing = self.kept(f"lacks{number}", name)
                said = self.said() + json.dumps(missing)
                self.assertRegex(said, f"CAP_{name}|memory is not locked" if name == "IPC_LOCK" else f"CAP_{name}")

    def test_serve_has_the_balance_of_each_container_without_any_capability(self):
        secret = self.path("secret")  # as kubelet lays it out
        os.makedirs(os.path.join(secret, "..data"))
        test_serve.write_token(os.path.join(secret, "..data/token"))
        os.chmod(os.path.join(secret, "..data/token"), 0o400)
        os.symlink("..data/token", os.path.join(secret, "token"))
        port = test_push.free_port()
        name = test_group_metrics.ID
        with self.group("served") as group, self.started("serve", {"token": secret}, serve={"port": port}, replace=[("0.0.0.0", "127.0.0.1")]) as service:
            scope = os.path.join(group, f"docker-{name}.scope")
            if self.is_v2:
                with open(os.path.join(group, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+memory")
            os.mkdir(scope)
            harness.wait_until(lambda: "http://" in self.said() or service.poll() is not None, "the service to begin")
            self.assertIn("http://", self.said())

            def ask(token):
                request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
                with urllib.request.urlopen(request) as response:
                    return response.read().decode()

            figures, labels = test_group_metrics.groups_of(ask(test_serve.TOKEN))
            with self.assertRaises(urllib.error.HTTPError):
                ask("x" * 32)
        served = f"{self.name_of(group)}/docker-{name}.scope"
        self.assertIn(served, figures)
        self.assertEqual(labels[served]["container"], name)


if __name__ == "__main__":
    harness.main()
