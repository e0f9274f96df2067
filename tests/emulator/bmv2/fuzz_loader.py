"""Fuzzer of the loader with damaged BMv2 JSON, in a process of its own: SEED COUNT COMPILED PROGRAM.json...

Programs are damaged in bytes and in structure. Each is either refused by an `UnsupportedProgram` or read. Of those that
are read, a limited number is compiled and gets random packets, which must not crash either. The process has its own
cache of native code.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weir.emulator.bmv2.reader import read
from weir.emulator.program import Program, UnsupportedProgram
from weir.tests.emulator.fuzz import fuzz

FRAMES = 500
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 8, 9, 255, 511, 65536, 1 << 31, 1 << 63, 1 << 200, 1.5, float("nan")),
    *("", "0x", "0xff", "0x" + "f" * 60, "-0x1", "NoSuchThing", "scalars", "standard_metadata", "$valid$", "*"),
    *([], {}, [[]], [None], {"type": "hexstr", "value": "0x1"}, {"type": "field", "value": ["x", "y"]}),
)


def damage(rng: random.Random, text: bytes) -> bytes:
    """A program with up to three nodes deleted, doubled, exchanged with others or replaced by something odd."""
    root = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        nodes = _nodes(root)
        parent, key = rng.choice(nodes)
        match rng.randrange(5):
            case 0:
                del parent[key]
            case 1:
                other, other_key = rng.choice(nodes)
                parent[key] = copy.deepcopy(other[other_key])
            case 2 if isinstance(parent, list):
                parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(parent[key]))
            case 3 if isinstance(parent[key], int):
                parent[key] += rng.choice((-1, 1, 2, 8, 1 << 20))
            case _:
                parent[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return json.dumps(root).encode()


def _nodes(root: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON document, as a container and a key or index. Names of things count more than their list."""
    found: list[tuple[Any, Any]] = []
    pending = [root]
    while pending:
        item = pending.pop()
        keys = item.keys() if isinstance(item, dict) else range(len(item))
        for key in keys:
            found.append((item, key))
            if isinstance(item[key], (dict, list)) and key != "source_info":
                pending.append(item[key])
    return found


def damage_bytes(rng: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    match rng.randrange(3):
        case 0:
            del data[rng.randrange(len(data)) :]
        case 1:
            first = rng.randrange(len(data))
            del data[first : first + rng.randrange(1, 200)]
        case _:
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def main(arguments: Sequence[str]) -> None:
    seed, count, compiled, *paths = arguments
    rng = random.Random(int(seed))
    texts = [Path(path).read_bytes() for path in paths]
    refused = ran = 0
    for number in range(int(count)):
        which = rng.randrange(len(paths))
        text = (damage_bytes if rng.random() < 0.2 else damage)(rng, texts[which])
        try:
            read(text)
            if rng.random() * int(count) < 2 * int(compiled):
                Path("program.json").write_bytes(text)  # kept for analysis after a crash
                sys.stdout.write(f"{number}: {paths[which]}\n")
                sys.stdout.flush()
                fuzz(Program.load(text), number, FRAMES)
                ran += 1
        except UnsupportedProgram:
            refused += 1
        except BaseException:
            Path("program.json").write_bytes(text)
            sys.stdout.write(f"{number}: {paths[which]}\n")
            raise
    sys.stdout.write(f"done: {refused} of {count} refused, {ran} ran\n")


if __name__ == "__main__":
    main(sys.argv[1:])
