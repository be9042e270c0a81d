# SPDX-License-Identifier: BSD-2-Clause
"""A reader of pprof's files that shares nothing with heapline's, and what pprof makes of them.

The wire format is that of https://protobuf.dev/programming-guides/encoding/.
"""

import gzip
from collections import Counter, defaultdict

# Field numbers of profile.proto.
SAMPLE_TYPE, SAMPLE, LOCATION, FUNCTION, STRING_TABLE, DEFAULT_SAMPLE_TYPE = 1, 2, 4, 5, 6, 14


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """{number: [integer or bytes, ...]} of a message of varints and length-delimited fields."""
    found, at = defaultdict(list), 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        elif tag & 7 != 0:
            raise ValueError(f"wire type {tag & 7} at {at}")
        found[tag >> 3].append(value)
    return found


def packed(data):
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        yield value - (1 << 64) if value >> 63 else value


def first(message, number):
    return message[number][0] if message[number] else 0


class PprofFile:
    """Samples of a file: a list of stacks (lists of function names, leaf first) with values."""

    def __init__(self, path):
        with gzip.open(path) as file:
            profile = fields(file.read())
        texts = [text.decode() for text in profile[STRING_TABLE]]
        types = [fields(data) for data in profile[SAMPLE_TYPE]]
        self.types = [texts[first(type_, 1)] for type_ in types]
        self.units = [texts[first(type_, 2)] for type_ in types]
        self.default = texts[first(profile, DEFAULT_SAMPLE_TYPE)]
        functions = {}
        for function in map(fields, profile[FUNCTION]):
            functions[first(function, 1)] = texts[first(function, 2)], texts[first(function, 4)]
        self._locations = {}
        for location in map(fields, profile[LOCATION]):
            lines = [fields(line) for line in location[4]]
            self._locations[first(location, 1)] = [(*functions[first(line, 1)], first(line, 2)) for line in lines]
        # The same stacks as lists of (function, file, line).
        self.places = [self._sample(fields(data)) for data in profile[SAMPLE]]
        self.samples = [([place[0] for place in stack], values) for stack, values in self.places]

    def _sample(self, sample):
        ids = [id_ for part in sample[1] for id_ in packed(part)]
        values = [value for part in sample[2] for value in packed(part)]
        assert len(values) == len(self.types)
        return [place for id_ in ids for place in self._locations[id_]], values

    def top(self, type_):
        """{function: (flat, cum)} of one type, recursion counted once; without zeros."""
        flat, cum = Counter(), Counter()
        column = self.types.index(type_)
        for stack, values in self.samples:
            for name in set(stack):
                cum[name] += values[column]
            if stack:
                flat[stack[0]] += values[column]
        return {name: (flat[name], cum[name]) for name in cum if flat[name] or cum[name]}
