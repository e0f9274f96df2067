"""Jobs in traffic classes by DSCP: served in strict order, and summed without loss of their class."""

from __future__ import annotations

import random
from typing import Final

import pytest

from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.node_model import Tables
from weir.tests.p4src.slow_link import FAST_BPS, SLOW_BPS, through_slow_link
from weir.tests.p4src.small_fabric import ROOT, STRANGER, WORKERS, message, packet, tables

CLASSES: Final = {8: 0, 16: 2, 24: 3, 32: 4, 40: 5}
"""Priorities of the class selectors CS1 to CS5; bulk traffic has 1."""
CONTROL: Final = 48


def classified() -> Tables:
    found = tables()
    found.classes.update(CLASSES)
    return found


def expected(frames: list[bytes], priorities: list[int]) -> list[int]:
    """Frames' numbers as a link without preemption serves them: of those that wait, the first of the highest class."""
    came, now = [], 0
    for frame in frames:
        now += 8 * 10**9 // FAST_BPS * len(frame)
        came.append(now)
    left, order, free = [*range(len(frames))], [], 0
    while left:
        free = max(free, min(came[number] for number in left))
        number = min((each for each in left if came[each] <= free), key=lambda each: (-priorities[each], each))
        left.remove(number)
        order.append(number)
        free += 8 * 10**9 // SLOW_BPS * len(frames[number])
    return order


@pytest.mark.parametrize("seed", range(5))
def test_waiting_messages_leave_in_strict_order_of_class(seed: int) -> None:
    rng = random.Random(seed)
    dscps = [rng.choice([0, *CLASSES, CONTROL]) for _ in range(40)]
    frames = [packet(message(lanes=index), WORKERS[0], STRANGER, dscp=dscp) for index, dscp in enumerate(dscps)]
    priorities = [{**CLASSES, CONTROL: 7}.get(dscp, 1) for dscp in dscps]
    sent = [int.from_bytes(frame[42 + 28 : 42 + 32], "big") for frame in through_slow_link(classified(), frames)]
    assert sent == expected(frames, priorities)


@pytest.mark.parametrize("dscp", [0, *CLASSES])
def test_results_have_the_class_of_what_is_summed(dscp: int) -> None:
    node = EmulatedNode(classified())
    sent: list[tuple[int, bytes]] = []
    for port, worker in enumerate(WORKERS):
        frame = packet(message(job=ROOT, contributors=1 << port, lanes=1), worker, dscp=dscp)
        sent = node.forward(frame, port)
    assert [port for port, _ in sent] == [0, 1, 2]
    assert {frame[15] >> 2 for _, frame in sent} == {dscp}
