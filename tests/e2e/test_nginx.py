#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""nginx before `heapline serve`, as deploy/nginx-heapline.conf has it: TLS, users, and the answers of heapline."""

import base64
import contextlib
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess

import harness
import oci
import test_serve
from pprof_file import PprofFile

USER, PASSWORD = "alice", "a long secret"


class Nginx(harness.TestCase):
    def setUp(self):
        super().setUp()
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/sbin") or harness.need("nginx")
        openssl = harness.need("openssl")
        self.recorded = self.enterContext(test_serve.Recorded(self.path("app.hl")))
        self.recorded.tell("alloc 1000")
        token = self.path("token")
        test_serve.write_token(token)
        self.server = self.enterContext(test_serve.Server(self.directory, "--token-file", token, tmpdir=self.directory))
        made = harness.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=heapline.example", "-days", "2", "-addext",
                            "subjectAltName=DNS:heapline.example", "-keyout", self.path("key.pem"), "-out", self.path("certificate.pem")])
        self.assertEqual(made.status, 0, made.stderr)
        self.write("users", f"{USER}:{harness.run([openssl, 'passwd', '-apr1', PASSWORD]).stdout}")
        self.write("bearer", f'proxy_set_header Authorization "Bearer {test_serve.TOKEN}";\n')
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.write("nginx.conf", self.configuration())
        self.process = subprocess.Popen([nginx, "-p", self.directory, "-e", self.path("error.log"), "-c", self.path("nginx.conf")],
                                        stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        harness.wait_until(self.is_ready, "nginx to listen")

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def configuration(self):
        """The example, with the places of this test, in what Debian's nginx.conf has around it."""
        with open(os.path.join(oci.DEPLOY, "nginx-heapline.conf"), encoding="utf-8") as file:
            server = file.read()
        for there, here in (("/etc/nginx/heapline/token", self.path("bearer")), ("/etc/nginx/heapline", self.directory), (" 443 ", f" 127.0.0.1:{self.port} "),
                            ("127.0.0.1:7373", f"127.0.0.1:{self.server.port}"), ("/var/log/nginx/heapline.log", self.path("access.log"))):
            self.assertIn(there, server)
            server = server.replace(there, here)
        # Its workers read the file of users, which is in a directory of ours.
        user = "user root;" if os.getuid() == 0 else ""
        places = "".join(f"{kind}_temp_path {self.path(kind)};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        return f"{user} daemon off; pid {self.path('pid')}; events {{}} http {{ {places} {server} }}\n"

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"nginx ended: {self.process.stderr.read()}")
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        self.process.terminate()
        self.process.wait(harness.TIMEOUT_S)
        self.process.stderr.close()

    def ask(self, path, password=None, method="GET", user=USER, **headers):
        """(status, headers, body), over TLS that the certificate proves."""
        context = ssl.create_default_context(cafile=self.path("certificate.pem"))
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.port), harness.TIMEOUT_S)) as plain, \
                contextlib.closing(context.wrap_socket(plain, server_hostname="heapline.example")) as secure:
            connection = http.client.HTTPConnection("heapline.example")
            connection.sock = secure
            if password is not None:
                headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def test_who_has_the_password_gets_what_heapline_answers(self):
        for path in ("/", f"/api/top?pid={self.recorded.pid}", f"/text/info?pid={self.recorded.pid}", "/nothing"):
            with self.subTest(path):
                status, headers, body = self.ask(path, PASSWORD)
                expected_status, expected, _ = self.server.ask(path, Authorization=f"Bearer {test_serve.TOKEN}")
                ours = set(expected) - {"Date", "Content-Length", "Connection", "Keep-Alive"}
                self.assertEqual(status, expected_status)
                self.assertTrue(body)
                self.assertEqual({name: headers[name] for name in ours}, {name: expected[name] for name in ours})
                self.assertEqual(headers["Strict-Transport-Security"], "max-age=31536000")
        self.assertIn(b"heapline_inuse_bytes{", self.ask("/metrics", PASSWORD)[2])

    def test_nobody_else_gets_anything(self):
        for password, user in ((None, USER), ("", USER), ("a long secre", USER), (PASSWORD, "bob"), (test_serve.TOKEN, USER)):
            status, headers, body = self.ask("/metrics", password, user=user)
            self.assertEqual((status, headers["WWW-Authenticate"]), (401, 'Basic realm="heapline"'))
            self.assertNotIn(b"heapline_inuse_bytes", body)
        status, _, _ = self.ask("/metrics", Authorization=f"Bearer {test_serve.TOKEN}")
        self.assertEqual(status, 401)
        self.assertEqual(self.server.refusal("/metrics", Authorization="Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())[0], 401)

    def test_without_tls_nothing_is_answered(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            self.assertEqual(connection.getresponse().status, 400)

    def test_nothing_can_be_sent_and_other_sites_are_refused(self):
        for method in ("POST", "PUT", "DELETE"):
            self.assertEqual(self.ask("/", PASSWORD, method)[0], 403)
        self.assertEqual(self.ask("/", PASSWORD, "HEAD")[0], 200)
        status, _, body = self.ask("/", PASSWORD, **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})
        self.assertEqual(status, 403, body)

    def test_a_profile_of_a_while_comes_through(self):
        status, _, body = self.ask(f"/debug/pprof/allocs?pid={self.recorded.pid}&seconds=1", PASSWORD)
        self.assertEqual(status, 200, body)
        self.write_bytes("while.pb.gz", body)
        PprofFile(self.path("while.pb.gz"))

    def write_bytes(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def test_the_log_names_the_user(self):
        self.ask("/metrics", PASSWORD)
        self.ask("/metrics", "wrong")
        with open(self.path("access.log"), encoding="utf-8") as file:
            log = file.read()
        self.assertRegex(log, rf'^127\.0\.0\.1 - {USER} \[.*\] "GET /metrics HTTP/1\.1" 200 ')
        self.assertRegex(log, re.compile(rf'^127\.0\.0\.1 - {USER} \[.*\] "GET /metrics HTTP/1\.1" 401 ', re.M))
        self.assertNotIn(test_serve.TOKEN, log)


if __name__ == "__main__":
    harness.main()
