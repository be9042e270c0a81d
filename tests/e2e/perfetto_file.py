# SPDX-License-Identifier: BSD-2-Clause
"""Reads traces of Perfetto without Perfetto, by the numbers of their fields."""

from collections import defaultdict

from pprof_file import fields


def message(data):
    """{number: the last value} of a message."""
    return {number: values[-1] for number, values in fields(data).items()}


class PerfettoFile:
    """Names, stacks, samples by heap, and counters by name: [(time, figure)]."""

    def __init__(self, path):
        self.names, self.frames, self.callstacks = {}, {}, {}
        self.samples, self.counters, self.tracks = defaultdict(list), {}, {}
        self.mappings, self.sources = set(), {}
        with open(path, "rb") as file:
            packets = fields(file.read())[1]
        for index, data in enumerate(packets):
            packet = message(data)
            assert packet[10] == 1 and packet[13] == (2 if index else 1)
            self.read(packet)

    def read(self, packet):
        for number, values in fields(packet.get(12, b"")).items():
            for value in values:
                self.intern(number, value)
        if 60 in packet:
            track = message(packet[60])
            self.tracks[track[1]] = track.get(2, b"").decode()
        if 11 in packet:
            event = message(packet[11])
            self.counters.setdefault(self.tracks[event[11]], []).append((packet.get(8, 0), event.get(30, 0)))
        for process in fields(packet.get(37, b""))[5]:
            self.take(process)

    def intern(self, number, value):
        if number == 7:
            stack = fields(value)
            self.callstacks[stack[1][0]] = stack[2]
            return
        element = message(value)
        if number == 5:
            self.names[element[1]] = element[2].decode()
        elif number == 18:
            self.sources[element[1]] = element[2].decode()
        elif number == 19:
            self.mappings.add(element[1])
        elif number == 6:
            assert element[3] in self.mappings and element.get(5, 0) in {0, *self.sources}
            self.frames[element[1]] = element[2]

    def take(self, process):
        heap = message(process)[11].decode()
        self.samples[heap] += map(message, fields(process)[2])

    def stacks(self, heap, figure):
        """(names, innermost first; figure) of each sample."""
        return [([self.names[self.frames[frame]] for frame in reversed(self.callstacks[sample[1]])], figure(sample))
                for sample in self.samples[heap]]
