# SPDX-License-Identifier: BSD-2-Clause
"""Encodes, decodes and keeps JSON documents: the program that the demo and the benchmark record.

usage: json_workload.py [ROUNDS]

Run it with PYTHONMALLOC=malloc, so that every object of Python is a call of malloc. What it prints
depends on ROUNDS alone.
"""

import json
import sys


def customer(number):
    return {
        "id": number,
        "name": f"customer {number}",
        "tags": [f"tag{number % 7}", f"tag{number % 11}"],
        "address": {"street": f"{number} Main Street", "zip": f"{number:05d}"},
        "orders": [{"item": item, "price": item * 1.25 + number} for item in range(number % 9)],
    }


def build_documents(count):
    return [customer(number) for number in range(count)]


def encode_documents(documents):
    return [json.dumps(document) for document in documents]


def decode_documents(lines):
    return [json.loads(line) for line in lines]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    archive = []  # grows: what a leak looks like
    for _ in range(rounds):
        lines = encode_documents(build_documents(8000))
        archive.extend(lines[::4])
        decoded = decode_documents(lines)
    print(f"{rounds} rounds, {len(decoded)} documents each, {len(archive)} lines kept")


if __name__ == "__main__":
    main()
