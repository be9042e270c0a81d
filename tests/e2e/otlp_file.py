# SPDX-License-Identifier: BSD-2-Clause
"""A reader of OTLP's profiles that shares nothing with heapline's: numbers of fields as opentelemetry-proto 1.11.0 has them."""

import gzip

from pprof_file import packed, read_varint


def fields(data):
    """{number: [integer or bytes, ...]} of a message."""
    found, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 1:
            value, at = int.from_bytes(data[at:at + 8], "little"), at + 8
        else:
            value, at = read_varint(data, at)
            if tag & 7 == 2:
                value, at = data[at:at + value], at + value
            elif tag & 7 != 0:
                raise ValueError(f"wire type {tag & 7} at {at}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def first(message, number, otherwise=0):
    return message.get(number, [otherwise])[0]


def value_of(any_value):
    message = fields(any_value)
    return first(message, 1).decode() if 1 in message else first(message, 3)


def metrics_of(deflated):
    """[(attributes of the resource, {metric: (value, time in ns, unit, is a sum that only grows)})] of an ExportMetricsServiceRequest."""
    found = []
    for resource_metrics in map(fields, fields(gzip.decompress(deflated)).get(1, [])):
        attributes = [fields(pair) for pair in fields(first(resource_metrics, 1))[1]]
        metrics = {}
        for metric in map(fields, fields(first(resource_metrics, 2))[2]):
            data = fields(first(metric, 7 if 7 in metric else 5))
            point = fields(first(data, 1))
            metrics[first(metric, 1).decode()] = (first(point, 6), first(point, 3), first(metric, 3).decode(),
                                                  (first(data, 2), first(data, 3)) == (2, 1))
        found.append(({first(pair, 1).decode(): value_of(first(pair, 2)) for pair in attributes}, metrics))
    return found


class OtlpRequest:
    """One ExportProfilesServiceRequest: `resource` and `scope`, and by type of profile its unit, times and samples."""

    def __init__(self, deflated):
        request = fields(gzip.decompress(deflated))
        (resource_profiles,), (dictionary,) = request[1], request[2]
        tables = fields(dictionary)
        self.tables = {number: [fields(entry) for entry in tables[number]] for number in (1, 2, 3, 4, 6, 7)}
        self.texts = [text.decode() for text in tables[5]]
        resource_profiles = fields(resource_profiles)
        attributes = [fields(pair) for pair in fields(first(resource_profiles, 1))[1]]
        self.resource = {first(pair, 1).decode(): value_of(first(pair, 2)) for pair in attributes}
        scope_profiles = fields(first(resource_profiles, 2))
        scope = fields(first(scope_profiles, 1))
        self.scope = first(scope, 1).decode(), first(scope, 2).decode()
        self.profiles = {}
        for profile in map(fields, scope_profiles[2]):
            kind = fields(first(profile, 1))
            self.profiles[self.texts[first(kind, 1)]] = {
                "unit": self.texts[first(kind, 2)],
                "start_ns": first(profile, 3), "duration_ns": first(profile, 4), "id": first(profile, 7),
                "samples": [self._sample(fields(sample)) for sample in profile.get(2, [])]}

    def _sample(self, sample):
        value, = packed(first(sample, 4))
        return self._stack(first(sample, 1)), value

    def _stack(self, index):
        """[(function, file, line, module, build id), ...], the leaf first."""
        places = []
        for number in packed(first(self.tables[7][index], 1)):
            location = self.tables[2][number]
            mapping = self.tables[1][first(location, 1)]
            line = fields(location[3][0])
            function = self.tables[3][first(line, 1)]
            build_ids = [value_of(self.tables[6][attribute][2][0]) for part in mapping.get(5, []) for attribute in packed(part)]
            assert not first(location, 1) or first(location, 2) < first(mapping, 2)
            places.append((self.texts[first(function, 1)], self.texts[first(function, 3)], first(line, 2),
                           self.texts[first(mapping, 4)], *build_ids))
        return places

    def total(self, kind):
        return sum(value for _, value in self.profiles[kind]["samples"])

    def flat(self, kind):
        """{function: sum of what it is the leaf of}."""
        sums = {}
        for stack, value in self.profiles[kind]["samples"]:
            sums[stack[0][0]] = sums.get(stack[0][0], 0) + value
        return {name: value for name, value in sums.items() if value}
