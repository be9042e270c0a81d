# SPDX-License-Identifier: BSD-2-Clause
"""A plain client of `heapline mcp`: requests and answers, a line of JSON each."""

import json
import subprocess

import harness

VERSION = "2025-11-25"


class Client:
    """A server, and what is asked of it. `answers` of calls that were not waited for are kept."""

    def __init__(self, *options, cwd=None, env=None):
        self.process = subprocess.Popen([harness.HEAPLINE, "mcp", *options], stdin=subprocess.PIPE, env=env,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
        self.number = 0
        self.answers = {}
        self.notifications = []
        self.hello = self.ask("initialize", protocolVersion=VERSION, capabilities={},
                              clientInfo={"name": "test", "version": "1"})["result"]
        self.notify("notifications/initialized")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(harness.TIMEOUT_S)
        self.process.stdout.close()
        self.process.stderr.close()

    def write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def notify(self, method, **params):
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def send(self, method, **params):
        """The id of a request."""
        self.number += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
        return self.number

    def wait(self, number):
        while number not in self.answers:
            message = self.read()
            if "method" in message:
                self.notifications.append(message)
            else:
                self.answers[message["id"]] = message
        return self.answers.pop(number)

    def ask(self, method, **params):
        return self.wait(self.send(method, **params))

    def tools(self):
        return {tool["name"]: tool for tool in self.ask("tools/list")["result"]["tools"]}

    def begin(self, tool, **arguments):
        return self.send("tools/call", name=tool, arguments=arguments)

    def result(self, tool, **arguments):
        return self.wait(self.begin(tool, **arguments))["result"]

    def call(self, tool, **arguments):
        """The structured answer of a call that must succeed."""
        result = self.result(tool, **arguments)
        if result.get("isError"):
            raise AssertionError(f"'{tool}' {arguments}: {result['content'][0]['text']}")
        return result["structuredContent"]

    def refusal(self, tool, **arguments):
        """The sentence of a call that must fail."""
        result = self.result(tool, **arguments)
        if not result.get("isError"):
            raise AssertionError(f"'{tool}' {arguments} is not refused: {result}")
        return result["content"][0]["text"]
