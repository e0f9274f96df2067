"""Random packets into programs, in a process of its own: run with SEED FRAMES PROGRAM.json...

Before each program it says which it is, so that a crash or an endless loop names the one that replays it, and then it
prints a dot for every few batches. Every batch must leave no packet behind in the switch, and every packet sent or
counted as dropped.
"""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weir.emulator.program import Program
from weir.emulator.switch import CPU_PORT, Switch
from weir.tests.emulator.generation import damaged, fill, packet

BATCH = 2000
FRAME = 192
EVERY_SO_OFTEN = 5
"""Interval of batches that have frames of any length up to the longest."""
LONGEST = 2048
LONG_BATCH = 200
BASES = 100
PASSES = 6
"""Few, so that a program that clones itself to death dies sooner."""
KEPT_PACKETS = 100_000
"""Number of packets from one switch's frames above which the switch and its memory are discarded."""


def fuzz(program: Program, seed: int, frames: int) -> int:
    """Send this many frames through switches with random entries; return the number that left. Raises
    AssertionError.
    """
    rng = random.Random(seed)
    arrays = np.random.default_rng(seed)
    bases = [packet(rng, program._document) for _ in range(BASES)] + [b""]
    sent = left = batch = 0
    while sent < frames:
        switch = Switch(1, ports=range(8), max_passes=PASSES)
        state = program.new_state()
        switch.start(program, state)
        fill(rng, program, switch)
        for _ in range(3):
            long = batch % EVERY_SO_OFTEN == EVERY_SO_OFTEN - 1
            count, size = (LONG_BATCH, LONGEST) if long else (BATCH, FRAME)
            data, lengths = damaged(arrays, bases, count, size)
            ports = arrays.choice([0, 1, 2, 3, 7, 9, CPU_PORT, 511], size=count)
            left += _batch(switch, data, lengths, ports)
            sent, batch = sent + count, batch + 1
            if switch._engine.pool_packets > KEPT_PACKETS:
                break
        state.reset()
        sys.stdout.write(".")
        sys.stdout.flush()
    sys.stdout.write("\n")
    return left


def _batch(switch: Switch, data: np.ndarray, lengths: np.ndarray, ports: np.ndarray) -> int:
    before = switch.counters
    left = len(switch.process(data, lengths, ports).lengths)
    change = {name: value - getattr(before, name) for name, value in switch.counters._asdict().items()}
    dropped = sum(
        change[name]
        for name in (
            *("ingress_drops", "egress_drops", "no_program", "no_port", "no_group"),
            *("oversize", "too_many_passes", "loopback_full"),
        )
    )
    assert len(lengths) + change["copied_packets"] == left + dropped, f"{len(lengths)} frames, {left} left: {change}"
    assert switch._engine.packets_in_use == 0
    for digest in switch.state.digests.values() if switch.state is not None else ():
        digest.drain()
    return left


def main(arguments: Sequence[str]) -> None:
    seed, frames, *paths = arguments
    left = 0
    for path in paths:
        sys.stdout.write(f"seed {seed}: {path}\n")
        sys.stdout.flush()
        left += fuzz(Program.load(Path(path)), int(seed), int(frames))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(f"done: {left} frames left; at most {memory} MB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
