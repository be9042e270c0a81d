#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Servers that embed Lua, as Debian has them: a leak in a script of each is the first row of `top`."""

import contextlib
import os
import signal
import socket
import subprocess
import urllib.request

import harness

REQUESTS = 20
KEEP = """
local function remember(i)
  kept[#kept + 1] = {name = 'request ' .. i, data = {i, i, i, i, i, i, i, i}}
end
"""
LEAK_LINE = 3  # of each script, which has one line before KEEP


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Hosts(harness.TestCase):
    def write(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    @contextlib.contextmanager
    def recorded(self, *command):
        """The server under `record`; ends it as an operator would."""
        server = subprocess.Popen(harness.record_command(self.path("host.hl"), list(command)),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield server
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=harness.TIMEOUT_S)

    def ask(self, port):
        """The answer to one request, or None while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=harness.TIMEOUT_S) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def serve(self, port, *command):
        with self.recorded(*command):
            harness.wait_until(lambda: self.ask(port), "the server")
            for _ in range(REQUESTS - 1):
                answer = self.ask(port)
        self.assertEqual(answer, f"kept {1000 * REQUESTS}\n")

    def assert_first(self, script):
        """By name and line, at the peak: servers free much at the end."""
        recording = self.path("host.hl")
        function = harness.report("top", recording, "--value", "peak", "--sort", "flat")["rows"][0]
        self.assertIn(f"<{os.path.basename(script)}:{LEAK_LINE - 1}>", function["name"])
        line = harness.report("lines", recording, "--value", "peak")["rows"][0]
        self.assertEqual((os.path.basename(line["file"]), line["line"]), (os.path.basename(script), LEAK_LINE))

    def test_haproxy(self):
        program, port = harness.need("haproxy"), free_port()
        script = self.write("leak.lua", "local kept = {}" + KEEP + """
core.register_service('leak', 'http', function(applet)
  for i = 1, 1000 do remember(i) end
  local body = 'kept ' .. #kept .. '\\n'
  applet:set_status(200)
  applet:add_header('content-length', #body)
  applet:start_response()
  applet:send(body)
end)
""")
        configuration = self.write("haproxy.cfg", f"""
global
  lua-load {script}
  nbthread 1
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 60s
frontend front
  bind 127.0.0.1:{port}
  http-request use-service lua.leak
""")
        self.serve(port, program, "-db", "-f", configuration)
        self.assert_first(script)

    def test_lighttpd(self):
        program, port = harness.need("lighttpd"), free_port()
        if not os.path.exists("/usr/lib/lighttpd/mod_magnet.so"):
            self.skipTest("lighttpd's mod_magnet is not installed")
        script = self.write("leak.lua", "local kept = package.loaded" + KEEP + """
for i = 1, 1000 do remember(i) end
lighty.content = {'kept ' .. #kept .. '\\n'}
return 200
""")
        configuration = self.write("lighttpd.conf", f"""
server.document-root = "{self.directory}"
server.port = {port}
server.bind = "127.0.0.1"
server.modules = ("mod_magnet")
magnet.attract-raw-url-to = ("{script}")
""")
        self.serve(port, program, "-D", "-f", configuration)
        self.assert_first(script)

    def test_prosody(self):
        program = harness.need("prosody")
        script = self.write("mod_leak.lua", "local kept = {}" + KEEP + """
for i = 1, 20000 do remember(i) end
module:log('info', 'kept %d', #kept)
""")
        configuration = self.write("prosody.cfg.lua", f"""
plugin_paths = {{ "{self.directory}" }}
modules_enabled = {{ "leak" }}
modules_disabled = {{ "s2s", "c2s", "offline", "tls", "s2s_bidi", "http", "posix", "admin_shell" }}
data_path = "{self.directory}"
pidfile = "{self.path('prosody.pid')}"
certificates = "{self.directory}"
run_as_root = true
log = {{ info = "*console" }}
VirtualHost "localhost"
""")
        with self.recorded(program, "--config", configuration, "-F") as server:
            said = ""
            while "kept 20000" not in said:
                line = server.stdout.readline()
                self.assertTrue(line, f"prosody ended early: {said}")
                said += line
        self.assert_first(script)


if __name__ == "__main__":
    harness.main()
