# SPDX-License-Identifier: BSD-2-Clause
"""Renders the chart of deploy/helm where there is no helm: as much of Go's templates as the chart uses, and a refusal of all else."""

import json
import os
import re

import yaml

ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)


class Chart:
    """A chart, its values over those of values.yaml."""

    def __init__(self, folder, values):
        self.folder = folder
        with open(os.path.join(folder, "Chart.yaml"), encoding="utf-8") as file:
            chart = yaml.safe_load(file)
        with open(os.path.join(folder, "values.yaml"), encoding="utf-8") as file:
            defaults = yaml.safe_load(file)
        self.root = {"Values": self.merge(defaults, values), "Release": {"Name": "release"},
                     "Chart": {name[0].upper() + name[1:]: value for name, value in chart.items()}}
        self.defined = {}
        self.render("_helpers.tpl")

    def merge(self, under, over):
        if not isinstance(under, dict) or not isinstance(over, dict):
            return over
        return {**under, **{name: self.merge(under.get(name), value) for name, value in over.items()}}

    # ---- actions ----

    def value(self, word, dot):
        if word.startswith('"'):
            return json.loads(word)
        if not word.startswith("."):
            raise ValueError(f"what is '{word}'?")
        for name in filter(None, word.split(".")):
            dot = dot[name]
        return dot

    def call(self, words, dot, piped):
        name, *rest = words
        if name == ".Files.Get":
            with open(os.path.join(self.folder, self.value(*rest, dot)), encoding="utf-8") as file:
                return file.read()
        if name.startswith((".", '"')) and not rest:
            return self.value(name, dot)
        if name == "nindent":
            return "\n" + "\n".join(" " * int(*rest) + line for line in piped[0].split("\n"))
        arguments = [self.value(word, dot) for word in rest] + piped
        if name == "include":
            return self.run(self.defined[arguments[0]], arguments[1]).strip("\n")
        return {"toJson": json.dumps, "quote": json.dumps, "has": lambda one, all_: json.dumps(one in all_), "default": lambda other, given: given or other}[name](*arguments)

    def evaluate(self, expression, dot):
        piped = []
        for part in expression.split(" | "):
            piped = [self.call(re.findall(r'"[^"]*"|\S+', part), dot, piped)]
        return piped[0]

    # ---- text ----

    def parse(self, text):
        """Pieces of text, expressions, and ("if" or "define", what follows, pieces)."""
        pieces, stack, at, trims = [], [], 0, False
        for match in ACTION.finditer(text):
            plain = text[at:match.start()]
            plain = plain.lstrip() if trims else plain
            pieces.append(plain.rstrip() if match[1] else plain)
            at, trims, action = match.end(), bool(match[3]), match[2]
            word = action.split()[0]
            if word in ("if", "define"):
                stack.append((word, action[len(word):].strip(), pieces))
                pieces = []
            elif word == "end":
                kind, condition, above = stack.pop()
                above.append((kind, condition, pieces))
                pieces = above
            elif not action.startswith("/*"):
                pieces.append(("put", action, None))
        pieces.append(text[at:].lstrip() if trims else text[at:])
        return pieces

    def run(self, pieces, dot):
        out = []
        for piece in pieces:
            if isinstance(piece, str):
                out.append(piece)
                continue
            kind, expression, inner = piece
            if kind == "define":
                self.defined[json.loads(expression)] = inner
            elif kind == "put":
                out.append(str(self.evaluate(expression, dot)))
            elif self.evaluate(expression, dot):
                out.append(self.run(inner, dot))
        return "".join(out)

    def render(self, name):
        with open(os.path.join(self.folder, "templates", name), encoding="utf-8") as file:
            return self.run(self.parse(file.read()), self.root)


def render(folder, **values):
    """Every object that the chart makes."""
    chart = Chart(folder, values)
    names = sorted(name for name in os.listdir(os.path.join(folder, "templates")) if name.endswith(".yaml"))
    return [one for name in names for one in yaml.safe_load_all(chart.render(name)) if one]
