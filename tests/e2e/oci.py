# SPDX-License-Identifier: BSD-2-Clause
"""Containers by crun, as a node of Kubernetes makes them; and `kubectl`, as far as deploy/kubectl-heapline calls it, for one pod of such containers.

As a program this is that kubectl: HL_FAKE_POD names the folder of the pod, in which `calls` keeps what was asked.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import harness

SOURCE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(SOURCE, "../../deploy")
# crun takes no machine with both versions of control groups mounted; none is needed here.
CRUN = ["unshare", "-m", "sh", "-c", 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec crun --cgroup-manager=disabled "$@"', "sh"]


def process(arguments, capabilities, user=0, environment=()):
    """The part of a container's description that says what runs, with these capabilities ("SYS_PTRACE") and no others."""
    names = [f"CAP_{name}" for name in capabilities]
    return {"terminal": False, "user": {"uid": user, "gid": user}, "args": list(arguments), "cwd": "/",
            "env": ["PATH=/usr/bin:/bin", *environment], "noNewPrivileges": True,
            "capabilities": {kind: names for kind in ("bounding", "effective", "permitted")}}


class Containers:
    """Containers whose state lies below a directory."""

    def __init__(self, directory):
        self.directory = directory
        self.words = [*CRUN, "--root", os.path.join(directory, "state")]

    def id_of(self, name):
        """Of one machine, on which other tests run."""
        return f"heapline-{os.path.basename(os.path.normpath(self.directory))}-{name}"

    def command(self, name, root, runs, joins=None, mounts=(), on_host=False):
        """What runs a new container; `joins`: the pid of a process whose namespace of processes it shares; `on_host`: it has the host's,
        a namespace of groups, and a root that is not written to."""
        bundle = os.path.join(self.directory, f"bundle-{name}")
        os.makedirs(bundle)
        kinds = [{"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]
        kinds += [{"type": "cgroup"}] if on_host else [{"type": "pid", **({"path": f"/proc/{joins}/ns/pid"} if joins else {})}]
        with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as file:
            json.dump({"ociVersion": "1.0.0", "process": runs, "root": {"path": root, "readonly": on_host}, "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]}, *mounts],
                "linux": {"namespaces": kinds}}, file)
        return [*self.words, "run", "-b", bundle, self.id_of(name)]

    def enter(self, name, runs):
        """What runs another process in a container."""
        file = os.path.join(self.directory, f"exec-{os.getpid()}.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(runs, out)
        return [*self.words, "exec", "-p", file, self.id_of(name)]

    def pid_of(self, name):
        state = subprocess.run([*self.words, "state", self.id_of(name)], capture_output=True, text=True, check=False)
        return json.loads(state.stdout)["pid"] if state.returncode == 0 else None

    def remove(self, name):
        subprocess.run([*self.words, "delete", "-f", self.id_of(name)], stderr=subprocess.DEVNULL, check=False)


def make_image(root, build):
    """The root of the image, as deploy/Containerfile makes it."""
    subprocess.run(["sh", os.path.join(DEPLOY, "image_root.sh"), root, os.path.join(build, "heapline"),
                    os.path.join(build, "src/recorder/libheapline.so.0")], check=True)


def image_of(tests):
    """The root of an image, for all tests of a class; skips them where it cannot be made or run."""
    harness.need_root()
    for tool in "crun", "ldd", "unshare":
        harness.need(tool)
    root = os.path.join(tests.enterClassContext(tempfile.TemporaryDirectory(prefix="heapline-image-")), "image")
    make_image(root, harness.BUILD)
    return root


def make_program(root, program):
    """A root with one static program, /app."""
    os.makedirs(root)
    shutil.copy(program, os.path.join(root, "app"))


# ---- kubectl ----

def look_up(node, path):
    """What one {...} of kubectl's jsonpath finds: members, [NUMBER] and [?(@.name=="TEXT")]."""
    for name, number, text in re.findall(r'\.(\w+)|\[(\d+)\]|\[\?\(@\.name=="([^"]*)"\)\]', path):
        if name:
            node = node.get(name) if isinstance(node, dict) else None
        elif isinstance(node, list):
            node = node[int(number)] if number else next((one for one in node if one["name"] == text), None)
    return node


def jsonpath(document, template):
    def found(match):
        value = look_up(document, match[1])
        return "" if value is None else json.dumps(value) if isinstance(value, (dict, list, bool)) else str(value)
    return re.sub(r"\{([^{}]*)\}", found, template)


class Pod:
    """The pod of the folder, and what kubectl does with it."""

    def __init__(self, directory):
        self.directory = directory
        self.file = os.path.join(directory, "pod.json")
        with open(self.file, encoding="utf-8") as file:
            self.said = json.load(file)
        self.containers = Containers(directory)

    def set_state(self, name, state):
        states = self.said["status"].setdefault("ephemeralContainerStatuses", [])
        states[:] = [one for one in states if one["name"] != name] + [{"name": name, "state": state}]
        with open(self.file + ".new", "w", encoding="utf-8") as file:
            json.dump(self.said, file)
        os.replace(self.file + ".new", self.file)

    def description(self, name):
        with open(os.path.join(self.directory, f"{name}.json"), encoding="utf-8") as file:
            return json.load(file)

    def process(self, description, command):
        security = description["securityContext"]
        assert security["capabilities"]["drop"] == ["ALL"] and not security.get("privileged")
        return process(command, security["capabilities"]["add"], security["runAsUser"],
                       [f"{one['name']}={one['value']}" for one in description["env"]])

    def debug(self, options, command):
        name = options["container"]
        shutil.copy(options["custom"], os.path.join(self.directory, f"{name}.json"))
        runs = self.process(self.description(name), command)
        line = self.containers.command(name, os.path.join(self.directory, options["image"]), runs,
                                       self.containers.pid_of(options["target"]))
        with subprocess.Popen(line) as started:
            while started.poll() is None and not self.containers.pid_of(name):
                time.sleep(0.02)
            self.set_state(name, {"running": {"startedAt": "2026-11-30T00:00:00Z"}})
            status = started.wait()
        self.set_state(name, {"terminated": {"exitCode": status, "reason": "Completed"}})
        return status

    def call(self, words):
        with open(os.path.join(self.directory, "calls"), "a", encoding="utf-8") as calls:
            calls.write(json.dumps(words) + "\n")
        rest = words.index("--") if "--" in words else len(words)
        command = words[rest + 1:]
        words = [word for word in words[:rest] if not re.match("--(namespace|context)=", word)]
        if words[:2] == ["get", "pod"]:
            print(jsonpath(self.said, words[4].removeprefix("jsonpath=")), end="")
            return 0
        if words[0] == "debug":
            return self.debug(dict(word[2:].split("=", 1) for word in words if word.startswith("--")), command)
        assert words[0] == "exec", words
        name = words[words.index("-c") + 1]
        return subprocess.run(self.containers.enter(name, self.process(self.description(name), command)), check=False).returncode


if __name__ == "__main__":
    sys.exit(Pod(os.environ["HL_FAKE_POD"]).call(sys.argv[1:]))
