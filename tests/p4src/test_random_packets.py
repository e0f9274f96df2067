"""Random sequences of good and bad packets: the compiled program against the model in plain Python, one by one."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from weir.tests.p4src.emulated_node import PORTS, EmulatedNode
from weir.tests.p4src.node_model import CPU_PORT, Bound, NodeModel, Policer, Tables
from weir.tests.p4src.program_mutants import REWRITES, Rewrite, keep_the_children_of_the_former_round, rewritten
from weir.tests.p4src.small_fabric import (
    GENERATION,
    INNER,
    LONE,
    OTHER_SWITCH,
    PARENT,
    PARENT_PORT,
    ROOT,
    STRANGER,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    hosts,
    message,
    packet,
    tables,
)
from weir.wire import aggregation, frames, int_md, int_shim
from weir.wire.aggregation import LANES, MessageFlag, MessageType
from weir.wire.fields import REDUCED

NEAR_THE_WRAP = 2**24 - 4


POLICED_BYTE_COST = (1 << 16) // 40
"""Cost of a byte, 1/40 us: less than the arriving traffic, as packets are 17 us apart."""


def random_bound(rng: np.random.Generator) -> Bound:
    """Marks always, never, or by the virtual queue alone."""
    threshold, sojourn = int(rng.choice([0, 1, 1, 1])), int(rng.choice([0, 1, 1, 1]))
    window = int(rng.integers(1, 60))
    virtual = (POLICED_BYTE_COST, int(rng.integers(1, 3000)) * POLICED_BYTE_COST) if rng.random() < 0.5 else (0, 1)
    return Bound(threshold, sojourn, *virtual, window, int(rng.integers(1, window + 1)))


def random_tables(rng: np.random.Generator) -> Tables:
    result = tables()
    at_ports = hosts(int(rng.integers(0, 256)))
    for port in range(PORTS):
        if rng.random() < 0.3:
            result.marking[port] = random_bound(rng)
        for class_ in ((7, 0), (7, 1), (1, 1), (0, 1), (2, 1), (5, 1), (1, 0)):
            if rng.random() < 0.15:  # of some every packet conforms, of some none, of most what the bucket has room for
                burst = int(rng.choice([0, 3000, 40_000])) * POLICED_BYTE_COST
                result.policers[(port, *class_)] = Policer(len(result.policers), POLICED_BYTE_COST, burst)
        if port in at_ports and rng.random() < 0.85:
            result.hosts[port] = at_ports[port]
        if rng.random() < 0.2:
            result.sinks[port] = port + 1
    if rng.random() < 0.2:
        result.node_id = None
    return result


class Traffic:
    """Frames and the ports they arrive at: mostly a running protocol, with everything that can be wrong mixed in."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.round = NEAR_THE_WRAP
        self.generation = GENERATION
        self.narrow_job = (ROOT, INNER)[seed % 2]

    def next(self) -> tuple[bytes, int]:
        rng = self.rng
        kind = rng.choice(["contribution", "result", "probe", "plain", "packet-out"], p=[0.6, 0.1, 0.15, 0.1, 0.05])
        match kind:
            case "contribution":
                frame, port = self._contribution()
            case "result":
                frame, port = self._result()
            case "probe":
                frame, port = self._probe()
            case "plain":
                frame, port = self._plain()
            case _:
                frame, port = self._probe() if rng.random() < 0.7 else self._plain()
                # its egress port stays one that the switch has
                return struct.pack("!H", int(rng.integers(0, PORTS)) << 7) + self._spoil(frame), CPU_PORT
        return self._spoil(frame), self._maybe(0.03, int(rng.integers(0, PORTS)), port)

    def _maybe(self, chance: float, other: int, usual: int) -> int:
        return other if self.rng.random() < chance else usual

    def _dscp(self) -> int:
        """Any, and often one of those that hosts and switches send."""
        return self._maybe(0.4, int(self.rng.integers(0, 64)), int(self.rng.choice([0, 0, 16, 40, 48])))

    def _header_fields(self) -> dict[str, int]:
        rng = self.rng
        fields = {field.name: int(rng.integers(0, 1 << field.bits)) for field in REDUCED}
        return fields | {"flags": int(rng.integers(0, 16)), "window": int(rng.choice([3, 40, 0xFFFF]))}

    def _round(self) -> int:
        if self.rng.random() < 0.08:
            self.round += 1
        if self.rng.random() < 0.004:
            self.generation = min(self.generation + 1, GENERATION + 3)
        return self.round if self.rng.random() < 0.8 else int(self.round + self.rng.integers(-6, 2))

    def _contribution(self) -> tuple[bytes, int]:
        rng = self.rng
        worker = int(rng.integers(0, 3))
        fields = self._header_fields()
        number = self._round()
        if rng.random() < 0.03:
            fields["version_type"] = int(rng.integers(0, 256))
        if rng.random() < 0.03:
            fields["slot"] = int(rng.choice([0, 3, 4, 0xFFFF]))
        job = self._maybe(0.03, 1, int(rng.choice([INNER, ROOT, LONE], p=[0.48, 0.48, 0.04])))
        width = 32 if job == self.narrow_job else LANES
        kind = MessageType(self._maybe(0.03, int(rng.integers(5, 8)), 1 if number % 3 else 3))
        if kind is MessageType.CONTRIBUTION and rng.random() < 0.5:
            kind = MessageType.PRESENT
            fields["reserved"] = self._maybe(0.05, int(rng.choice([0, 2, 255])), aggregation.present_width(width))
            fields["flags"] &= ~MessageFlag.LANES
        payload = message(
            kind,
            round_number=number,
            width=width,
            lanes=rng.integers(-(2**31), 2**31, width),
            job=job,
            generation=self._maybe(0.03, self.generation - 1, self.generation),
            contributors=self._maybe(0.03, int(rng.integers(0, 8)), 1 << worker),
            bad_checksum=rng.random() < 0.02,
            **fields,
        )
        destination = self._maybe(0.05, OTHER_SWITCH, SWITCH)
        source_port = self._maybe(0.03, 22342, 22341)
        dscp = self._maybe(0.2, self._dscp(), 0)
        payload, port = self._maybe_with_int(payload)
        options = {"source_port": source_port, "destination_port": port, "dscp": dscp}
        return packet(payload, WORKERS[worker], destination, **options), worker

    def _result(self) -> tuple[bytes, int]:
        rng = self.rng
        kinds = (MessageType.RESULT, MessageType.SCALE_RESULT, MessageType.DONE)
        kind = MessageType(rng.choice(kinds, p=(0.5, 0.3, 0.2)))
        payload = message(
            kind,
            round_number=self._round(),
            width=int(rng.choice([32, LANES])),
            lanes=int(rng.integers(-(2**31), 2**31)),
            job=self._maybe(0.1, ROOT, INNER),
            generation=self.generation,
            contributors=int(rng.integers(0, 2)),
            bad_checksum=False,
            **self._header_fields(),
        )
        payload, port = self._maybe_with_int(payload)
        options = {"destination_port": port, "dscp": self._dscp(), "ttl": int(rng.integers(0, 3))}
        return packet(payload, PARENT, **options), PARENT_PORT

    def _maybe_with_int(self, payload: bytes) -> tuple[bytes, int]:
        """A message, sometimes behind INT of MD or MX, and its UDP port; sometimes a probe says it were one."""
        rng = self.rng
        if rng.random() < 0.8:
            return payload, 22341
        hops = int(rng.choice([0, 1, 13]))
        shim, first = self._maybe(0.2, 0x34, 0x14), self._maybe(0.1, 0x28, 0x20)
        header = struct.pack("!BBHBBBB", shim, 3 + 7 * hops, 22341, first, 0, 7, int(rng.choice([0, 1, 9])))
        return header + struct.pack("!HHHH", 0xD400, int_md.DOMAIN, 0x8000, 0) + rng.bytes(28 * hops) + payload, 5000

    def _probe(self) -> tuple[bytes, int]:
        """A probe with a random bitmap, hop limit and stack, sometimes of a layout that cannot be had."""
        rng = self.rng
        bitmap = int(rng.choice([0xF000, 0xFC00, int(rng.integers(0, 2**16))]))
        domain = int(rng.choice([int_md.DOMAIN, 0, 1], p=[0.8, 0.1, 0.1]))
        domain_bitmap = int(rng.choice([0x8000, 0, int(rng.integers(0, 2**16))]))
        words = int_md.hop_words(bitmap, domain_bitmap if domain == int_md.DOMAIN else 0)
        words = self._maybe(0.1, int(rng.integers(0, 32)), words) % 32
        # a fresh probe, one that has crossed any number of hops, or one whose stack the shim can hardly count
        most = 252 // max(words, 1)
        stack = words * int(rng.choice([int(rng.integers(0, 3)), int(rng.integers(0, most + 1)), most]))
        room = frames.MTU - 28 - 16 - 4 * stack - 4 * words
        payload = int(rng.choice([0, 2, room - 1, room, room + 1, room + 4 * words]))
        body = struct.pack(
            "!BBHBBBBHHHH",
            *(
                self._maybe(0.03, 0x34, 0x14),
                3 + stack,
                22342,
                int(rng.choice([0x10, 0x20, 0x28], p=[0.03, 0.3, 0.67])),
                0,
                words,
            ),
            *(int(rng.choice([0, 1, 5, 255])), bitmap, domain, domain_bitmap, 0),
        )
        body += rng.bytes(4 * stack) + rng.bytes(min(max(payload, 0), room + 4 * words))
        destination = int(rng.choice([SWITCH, WORKERS[1], STRANGER]))
        frame = packet(body, PARENT, destination, destination_port=5000, dscp=self._dscp())
        return frame, PARENT_PORT

    def _plain(self) -> tuple[bytes, int]:
        rng = self.rng
        destination = int(rng.choice([SWITCH, WORKERS[0], STRANGER, PARENT, OTHER_SWITCH, 0x01020304]))
        frame = bytearray(
            packet(
                rng.bytes(int(rng.integers(0, 100))),
                self._maybe(0.2, PARENT, STRANGER),
                destination,
                destination_port=int(rng.choice([9, 22342])),
                ttl=int(rng.choice([0, 1, 2, 64])),
                dscp=self._dscp() & ~int_shim.DSCP_BIT,  # random bytes may look like INT
            )
        )
        frame[15] |= int(rng.integers(0, 4))  # ECN
        frame[20] |= int(rng.choice([0, 0x20, 1]))  # fragments
        frame[23] = int(rng.choice([17, 6]))  # protocol
        frame[40:42] = rng.bytes(2)  # UDP checksum
        frame[13] = self._maybe(0.05, 0x06, 0x00)  # ARP
        frame[14] = self._maybe(0.05, 0x46, 0x45)  # IPv4 options
        _fix_ipv4_checksum(frame)
        return bytes(frame), STRANGER_PORT

    def _spoil(self, frame: bytes) -> bytes:
        rng = self.rng
        if rng.random() < 0.02:
            return frame[: int(rng.integers(1, len(frame)))]
        if rng.random() < 0.02:
            position = int(rng.integers(0, min(len(frame), 70)))
            return frame[:position] + rng.bytes(1) + frame[position + 1 :]
        return frame


def _fix_ipv4_checksum(frame: bytearray) -> None:
    headers = frames.frame_headers(np.frombuffer(bytes(frame), np.uint8)[None])
    frame[24:26] = int(frames.ipv4_checksum(headers["ipv4"])[0]).to_bytes(2, "big")


def run(seed: int, packets: int, program: bytes | None = None) -> dict[str, int]:
    """Compare on a sequence; returns the drops, which both sides agree on."""
    rng = np.random.default_rng(seed)
    configured = random_tables(rng)
    model, node, traffic = NodeModel(configured), EmulatedNode(configured, program), Traffic(seed)
    for number in range(packets):
        frame, port = traffic.next()
        now_us = 17 * number
        expected, got = model.forward(frame, port, now_us), node.forward(frame, port, now_us)
        assert sorted(got) == sorted(expected), f"seed {seed}, packet {number} at port {port}: {frame.hex()}"
    assert node.drops == model.drops, f"seed {seed}"
    assert node.bytes_sent == model.bytes_sent, f"seed {seed}"
    for index, held in model.slots.items():
        slot = node.slot(index)
        # earlier values of lanes that a round does not have do not matter
        slot = slot._replace(lanes=slot.lanes[: len(held.lanes)])
        assert slot == held, f"seed {seed}, slot {index}"
    return model.drops


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])
def test_the_program_does_as_the_model(seed: int) -> None:
    drops = run(seed, 400)
    assert sum(drops.values()) < 350, "the traffic should be mostly good"


def _run_seeds(seeds: range, program: bytes) -> None:
    for seed in seeds:
        run(seed, 400, program)


@pytest.mark.parametrize(
    "rewrite",
    [
        pytest.param(rewrite, marks=() if rewrite is keep_the_children_of_the_former_round else pytest.mark.long)
        for rewrite in REWRITES
    ],
    ids=lambda rewrite: rewrite.__name__,
)
def test_a_broken_rule_is_found(rewrite: Rewrite) -> None:
    with pytest.raises(AssertionError, match=r"^seed \d"):
        _run_seeds(range(5), rewritten(rewrite))


def test_the_traffic_meets_every_reason_to_drop() -> None:
    drops = run(99, 1500)
    assert {reason for reason, count in drops.items() if not count} == set()


@pytest.mark.long
def test_long_random_sequences() -> None:
    for seed in range(1000, 1100):
        run(seed, 2000)
