# SPDX-License-Identifier: BSD-2-Clause
"""Compares what --json writes with the schemas in docs/schema/."""

import functools
import json
from pathlib import Path

import jsonschema

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schema"
COMMON = "common.json"
ITEMS_MAX = 20  # of a longer list only this many are checked at both ends, for the sake of speed


@functools.cache
def validator(name):
    """For 'heapline/NAME/1'; the definitions that schemas share are put into it."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        raise AssertionError(f"there is no {path} for what '--json' wrote")
    schema = json.loads(path.read_text().replace(f'"{COMMON}#/', '"#/'))
    schema.setdefault("$defs", {}).update(json.loads((FOLDER / COMMON).read_text())["$defs"])
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def shortened(value):
    if isinstance(value, dict):
        return {key: shortened(member) for key, member in value.items()}
    if isinstance(value, list):
        ends = value if len(value) <= 2 * ITEMS_MAX else value[:ITEMS_MAX] + value[-ITEMS_MAX:]
        return [shortened(item) for item in ends]
    return value


def check(document):
    """Raises AssertionError where a document of heapline's is not as its schema says."""
    name = document["schema"].split("/")[1]
    for error in validator(name).iter_errors(shortened(document)):
        raise AssertionError(f"docs/schema/{name}.json does not allow "
                             f"{'/'.join(map(str, error.absolute_path))}: {error.message[:500]}")


def check_text(text):
    """The same for what a program wrote, if that is heapline's JSON."""
    if text.startswith(('{\n  "schema": "heapline/', '{"schema": "heapline/')):
        check(json.loads(text))
