#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Joins the schemas of reports into one file of JSON, which is built into heapline.

usage: bundle_schemas.py OUTPUT SCHEMA...

Of each document there is {"schema": ..., "uses": names of the definitions of common.json that it refers to, and these to}.
"""

import json
import sys
from pathlib import Path

COMMON = "common.json"


def references(value):
    """Names of the definitions that a schema refers to."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for member in value.values():
            yield from references(member)
    elif isinstance(value, list):
        for element in value:
            yield from references(element)


def local(value):
    """The same with references to the file itself, and without what is for people: models pay for each word."""
    if isinstance(value, dict):
        return {key: member.replace(COMMON, "") if key == "$ref" else local(member) for key, member in value.items()
                if key not in ("title", "$schema") and not (key == "description" and isinstance(member, str))}
    return [local(element) for element in value] if isinstance(value, list) else value


def all_uses(schema, definitions):
    found, new = set(), set(references(schema))
    while new:
        found |= new
        new = {name for known in new for name in references(definitions[known])} - found
    return sorted(found)


def main():
    output, *paths = sys.argv[1:]
    schemas = {Path(path).name: local(json.loads(Path(path).read_text(encoding="utf-8"))) for path in paths}
    definitions = schemas.pop(COMMON)["$defs"]
    documents = {}
    for name, schema in sorted(schemas.items()):
        documents[name.removesuffix(".json")] = {"schema": schema, "uses": all_uses(schema, definitions)}
    text = json.dumps({"definitions": definitions, "documents": documents}, separators=(",", ":"))
    # A line each, for those who read what is embedded.
    Path(output).write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
