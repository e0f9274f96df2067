"""Masks of ternary tables share hashes where that is cheap, and packets get the same answers (`Oracle`)."""

from __future__ import annotations

import random
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.emulator.entries import ActionCall, Exact, TableEntry, Ternary
from weir.emulator.program import Program, Table
from weir.emulator.tables.merging import MOST_TOGETHER, merge_masks
from weir.emulator.tables.tuples import TupleIndex
from weir.tests.emulator.compiler.test_compiler_tables import NUMBER, Oracle, answer
from weir.tests.emulator.harness import PacketRig, seeded_random
from weir.tests.paths import PROGRAMS

FIELDS = ("ip6", "port", "vlan")
WHOLE = (1 << 128) - 1


@pytest.fixture
def rig() -> PacketRig:
    return PacketRig(Program.load(PROGRAMS / "tables.json"))


class Rules:
    """The ternary table of the test program beside its oracle."""

    def __init__(self, rig: PacketRig) -> None:
        self.rig = rig
        self.table: Table = rig.state.tables["TablesIngress.ternary6"]
        self.oracle = Oracle(FIELDS)

    def insert(self, value: int, mask: int, port: int = 0, port_mask: int = 0, priority: int = 1) -> None:
        match = (Ternary(value & mask, mask), Ternary(port & port_mask, port_mask), Exact(0))
        number = len(self.oracle.entries)
        self.table.insert(TableEntry(match, ActionCall(NUMBER, (number,)), priority))
        self.oracle.entries[match, priority] = number

    def delete(self, rng: random.Random, count: int) -> None:
        for match, priority in rng.sample(list(self.oracle.entries), count):
            self.table.delete(match, priority)
            del self.oracle.entries[match, priority]

    def check(self, rng: random.Random, packets: int = 60) -> None:
        """Look up values of entries, some with a bit changed, and others."""
        entries = list(self.oracle.entries)
        for _ in range(packets):
            packet = {"ip6": rng.getrandbits(128), "port": rng.getrandbits(16), "vlan": 0}
            if entries and rng.random() < 0.9:
                (address, port, _), _ = rng.choice(entries)
                assert isinstance(address, Ternary)
                assert isinstance(port, Ternary)
                packet["ip6"] = address.value | packet["ip6"] & ~address.mask & WHOLE
                packet["port"] = port.value | packet["port"] & ~port.mask & 0xFFFF
                packet["ip6"] ^= rng.choice([0, 1 << rng.randrange(128)])
            assert answer(self.rig, 2, packet) in self.oracle.answers(packet), packet

    def groups(self) -> int:
        """Number of hashes; no filed bits may have more rows than allowed."""
        index = self.table._index
        assert isinstance(index, TupleIndex)
        groups = index._all()
        for group in groups:
            words, _ = group.items()
            filed = words[:, : len(group.mask)] & group.mask
            assert np.unique(filed, axis=0, return_counts=True)[1].max() <= MOST_TOGETHER
        return len(groups)


def test_a_hundred_masks_share_few_hashes(rig: PacketRig) -> None:
    rng, rules = seeded_random(), Rules(rig)
    masks = [WHOLE ^ 1 << a ^ 1 << b for a, b in combinations(range(60, 75), 2)]
    for number in range(1500):
        rules.insert(rng.getrandbits(128), masks[number % 100], priority=rng.randrange(1, 1 << 20))
    assert rules.groups() <= 10
    rules.check(rng)
    rules.delete(rng, 1000)
    rules.check(rng)
    rules.delete(rng, 500)
    assert answer(rig, 2, {"ip6": 1}) is None


def test_entries_that_agree_in_all_common_bits_do_not_share_a_hash(rig: PacketRig) -> None:
    """The first ones are far apart, so that their masks are merged; the others differ in few bits."""
    rng, rules = seeded_random(), Rules(rig)
    masks = [WHOLE ^ 0xFF << 3 * number for number in range(40)]
    for number in range(160):
        rules.insert(rng.getrandbits(128), masks[number % 40], priority=1 + number)
    assert rules.groups() <= 10
    for number in range(600):
        rules.insert(rng.getrandbits(8) << 3 * rng.randrange(40), masks[number % 40], priority=1000 + number)
    rules.groups()
    rules.check(rng)
    with rig.state.held():
        rules.delete(rng, 500)
    rules.check(rng)


def test_entries_with_one_match_answer_by_priority_in_merged_groups(rig: PacketRig) -> None:
    rng, rules = seeded_random(), Rules(rig)
    for number, (length, port_mask) in enumerate(product(range(100, 128), (0xFFFF, 0xFF00))):
        for priority in rng.sample(range(1, 1 << 20), 3):
            rules.insert(number << 64, WHOLE ^ (1 << length - 96) - 1, 7, port_mask, priority)
    assert rules.groups() <= 16
    rules.check(rng)
    rules.delete(rng, 100)
    rules.check(rng)
    for entry in list(rules.table.entries()):
        assert isinstance(entry.action, ActionCall)
        changed = entry.action.params[0] + 1000
        rules.table.modify(TableEntry(entry.match, ActionCall(NUMBER, (changed,)), entry.priority))
        rules.oracle.entries[entry.match, entry.priority] = changed
    rules.check(rng)


def test_a_table_that_was_emptied_begins_anew(rig: PacketRig) -> None:
    rng, rules = seeded_random(), Rules(rig)
    for turn in range(3):
        for number in range(300):
            mask = WHOLE ^ (1 << rng.randrange(100)) - 1
            rules.insert(rng.getrandbits(128), mask, number, 0xFFFF, rng.randrange(1, 99))
        rules.check(rng, 20)
        if turn:
            rules.table.reset()
            rules.oracle.entries.clear()
        else:
            rules.delete(rng, 300)
        rules.check(rng, 5)


def test_masks_are_divided_into_groups_of_few_rows_together() -> None:
    rng = np.random.default_rng(seeded_random().randrange(1 << 32))
    masks = [-1 << 32 - length & 0xFFFFFFFF | (1 << low) - 1 << 40 for length in range(8, 33, 3) for low in range(16)]
    keys = [_keys(rng, mask, int(rng.integers(1, 60))) for mask in masks]
    clusters = merge_masks(masks, keys)
    assert sorted(number for cluster in clusters for number in cluster) == list(range(len(masks)))
    assert len(clusters) < len(masks) / 4
    for cluster in clusters:
        common = np.uint64(np.bitwise_and.reduce([masks[number] for number in cluster]))
        filed = np.concatenate([keys[number] for number in cluster])[:, 0] & common
        assert len(cluster) == 1 or np.unique(filed, return_counts=True)[1].max() <= MOST_TOGETHER


def _keys(rng: np.random.Generator, mask: int, count: int) -> NDArray[np.uint64]:
    return rng.integers(0, 1 << 63, (count, 1), np.uint64) & np.uint64(mask)
