# SPDX-License-Identifier: BSD-2-Clause
"""Allocates from everywhere that Python can be: usage: python_places.py DUMP COUNT [wait]

Writes what python_oracle knows of it to DUMP, and of a forked child to DUMP.child. With `wait` it says
"ready", and goes on after a line of input.
"""

import asyncio
import contextlib
import functools
import gc
import os
import sys
import threading
import weakref

from python_oracle import allocate, allocate_released, dump, reset

DUMP, COUNT = sys.argv[1], int(sys.argv[2])


def plain(i):
    allocate(100 + i % 7)
    allocate(
        200
    )


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    allocate(300)
    return depth


def numbers(count):
    for i in range(count):
        allocate(400)
        yield i
    allocate(401)


def delegating(count):
    yield from numbers(count)
    allocate(410)


async def inner(i):
    allocate(500)
    await asyncio.sleep(0)
    allocate(501)
    return i


async def stream(count):
    for i in range(count):
        allocate(510)
        yield await inner(i)


@contextlib.asynccontextmanager
async def held():
    allocate(520)
    yield
    allocate(521)


async def coroutines():
    async with held():
        values = [value async for value in stream(4)]
    await asyncio.gather(*(inner(value) for value in values))


class Key:
    def __init__(self, value):
        allocate(600)
        self.value = value

    def __lt__(self, other):
        allocate(601)
        return self.value < other.value

    @property
    def double(self):
        allocate(602)
        return 2 * self.value

    def __del__(self):
        allocate(603)

    def __getattr__(self, name):
        allocate(604)
        return name


def callbacks():
    keys = sorted((Key(i % 3) for i in range(6)), key=lambda key: (allocate(610), key)[1])
    functools.reduce(lambda sum, key: (allocate(611), sum + key.double)[1], keys, 0)
    list(map(plain, range(3)))
    list(filter(lambda key: allocate(612), keys))
    getattr(keys[0], "missing")
    return max(keys, key=lambda key: key.value)


def comprehensions():
    [allocate(700 + i) for i in range(3)]
    {i: allocate(710) for i in range(3)}
    {allocate(720) for _ in range(2)}
    return sum(allocate(730) or 1 for _ in range(3))


def raising(depth):
    try:
        if depth:
            raising(depth - 1)
        allocate(800)
        raise ValueError(depth)
    except ValueError:
        allocate(801)
        raise
    finally:
        allocate(802)


def exceptions():
    with contextlib.suppress(ValueError):
        raising(3)
    try:
        {}["missing"]
    except KeyError:
        allocate(810)


def references():
    class Node:
        pass

    node = Node()
    node.itself = node
    reference = weakref.ref(node, lambda _: allocate(900))
    del node
    gc.collect(0)
    return reference


def new_code(i):
    """Code objects of one shape, one after the other at the same address, with other files and lines."""
    for k in range(4):
        source = "\n" * (k % 3) + "def made():\n  allocate(950)\nmade()\nallocate(951)\n"
        exec(compile(source, f"made_{i % 50:02}_{k}.py", "exec"), {"allocate": allocate})
    eval(compile("allocate(952)", f"value_{i % 50:02}.py", "eval"))


def changing_thread(released):
    for i in range(20):
        allocate_released(1000 + i % 3)
        released.wait(0)
        allocate(1010)


def threads():
    released = threading.Event()
    others = [threading.Thread(target=changing_thread, args=(released,)) for _ in range(3)]
    for other in others:
        other.start()
    changing_thread(released)
    for other in others:
        other.join()


def one_round(i):
    plain(i)
    recurse(30)
    list(numbers(3))
    list(delegating(3))
    half = numbers(3)
    next(half)
    half.close()
    callbacks()
    comprehensions()
    exceptions()
    references()
    new_code(i)
    if i % 20 == 0:
        asyncio.run(coroutines())
        threads()


ALLOCATIONS_OF_A_ROUND = 100


def main():
    gc.disable()
    if sys.argv[3:] == ["wait"]:
        print("ready", flush=True)
        sys.stdin.readline()
    for i in range(COUNT // ALLOCATIONS_OF_A_ROUND):
        one_round(i)
    child = os.fork()
    if not child:
        reset()
        for i in range(20):
            one_round(i)
        dump(DUMP + ".child")
        os._exit(0)
    os.waitpid(child, 0)
    dump(DUMP)
    print("done", flush=True)
    if sys.argv[3:] == ["wait"]:
        sys.stdin.readline()


main()
