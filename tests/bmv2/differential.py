"""The same program, entries and packets through bmv2 and through the emulated switch, compared packet by packet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import grpc

from weir.emulator.p4runtime.server import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.tests.bmv2.harness import CPU_PORT, DEVICE_ID, Bmv2, Compiled, Output
from weir.tests.bmv2.p4runtime_client import Client

BATCH: Final = 12
"""Packets that bmv2 gets at once: few enough that their copies fit its egress queues (64 packets)."""

UNREADABLE: Final = "Error when reading table entries from target"

SHOWN: Final = 4
"""Disagreements that a failure prints."""

Mask = Callable[[Output], Output]


@dataclass(frozen=True, slots=True)
class Disagreement:
    index: int
    port: int
    frame: bytes
    bmv2: tuple[Output, ...]
    emulator: tuple[Output, ...]

    def __str__(self) -> str:
        lines = [f"packet {self.index}, into port {self.port}: {self.frame.hex()}"]
        for name, outputs in (("bmv2    ", self.bmv2), ("emulator", self.emulator)):
            lines += [f"  {name} -> {output}" for output in outputs] or [f"  {name} -> dropped"]
        return "\n".join(lines)


class Pair:
    """Both switches under one control plane. A context manager."""

    def __init__(self, program: Compiled, ports: Sequence[int], *, batch: int = BATCH) -> None:
        """`batch`: packets that bmv2 gets at once. One where a program's egress reads what other packets have left:
        bmv2 has four threads there.
        """
        self.program = program
        self._batch = batch
        self.switch = Switch(DEVICE_ID, ports=ports, cpu_port=CPU_PORT)
        self.bmv2 = Bmv2(program, ports)
        self.packets = 0
        """Packets compared so far."""
        self.forwarded = 0
        """Frames that left the emulated switch: a test checks with it that not all packets were dropped."""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Pair:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.bmv2)
            server = P4RuntimeServer([self.switch])
            server.start()
            stack.callback(server.stop)
            client = stack.enter_context(Client(server.address, DEVICE_ID))
            client.set_pipeline(self.program.p4info, self.program.json)
            self.clients = (self.bmv2.client, client)
            assert client.encoder is not None
            self.encoder = client.encoder
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def insert(self, *entities: Any) -> None:
        for client in self.clients:
            client.insert(*entities)

    def modify(self, *entities: Any) -> None:
        for client in self.clients:
            client.modify(*entities)

    def delete(self, *entities: Any) -> None:
        for client in self.clients:
            client.delete(*entities)

    def compare(self, packets: Iterable[tuple[int, bytes]], mask: Mask | None = None) -> list[list[Output]]:
        """Send (port, frame) pairs to both in order and return what the emulator made of each, by port.

        `mask` blanks what may differ: times and queue depths. Raises AssertionError with the packets that differ.
        """
        packets = list(packets)
        everything: list[list[Output]] = []
        wrong: list[Disagreement] = []
        start = 0
        while start < len(packets):
            ours: list[list[Output]] = []
            packet_ins = 0
            for port, frame in packets[start : start + self._batch]:
                ours.append(self._emulate(port, frame))
                packet_ins = sum(output.port == CPU_PORT for output in ours[-1])
                if packet_ins:
                    break  # packet-ins belong to the last packet of a batch
            batch = packets[start : start + len(ours)]
            theirs = self.bmv2.inject(batch, packet_ins=packet_ins)
            for i, (port, frame) in enumerate(batch):
                seen, expected = masked(ours[i], mask), masked(theirs[i], mask)
                if seen != expected:
                    wrong.append(Disagreement(self.packets + start + i, port, frame, tuple(expected), tuple(seen)))
            everything += ours
            start += len(batch)
        self.packets += len(packets)
        self.forwarded += sum(map(len, everything))
        report(wrong, len(packets))
        return everything

    def compare_packet_out(self, payload: bytes, metadata: Sequence[tuple[int, int]], header: bytes) -> None:
        """One packet-out: `metadata` as P4Runtime has it, `header` as the program parses it."""
        ours = self._emulate(CPU_PORT, header + payload)
        theirs = self.bmv2.packet_out(payload, metadata, expected=len(ours))
        if ours != theirs:
            report([Disagreement(self.packets, CPU_PORT, header + payload, tuple(theirs), tuple(ours))], 1)
        self.packets += 1

    def compare_counters(self, *names: str) -> dict[str, list[tuple[int, int]]]:
        """Both switches' cells of indirect counters, all of the program's unless named; returns them."""
        found = {}
        for name in names or tuple(self.encoder.counters):
            theirs, ours = (client.counter(name) for client in self.clients)
            assert ours == theirs, f"counter {name}: bmv2 {theirs}, emulator {ours}"
            found[name] = ours
        return found

    def compare_direct_counters(self) -> None:
        """Compare both switches' counters of all tables' entries, except tables that PI cannot read back from bmv2."""
        for name, table in self.encoder.tables.items():
            if table.preamble.id not in self.encoder.direct_counters:
                continue
            bmv2, emulator = self.clients
            try:
                theirs = bmv2.direct_counter(name)
            except grpc.RpcError as error:
                if UNREADABLE not in str(error):
                    raise
                continue
            ours = emulator.direct_counter(name)
            assert ours == theirs, f"counters of {name}: bmv2 {theirs}, emulator {ours}"

    def _emulate(self, port: int, frame: bytes) -> list[Output]:
        return sorted(Output(*sent) for sent in self.switch.forward(frame, port))


def masked(outputs: Iterable[Output], mask: Mask | None) -> list[Output]:
    return list(outputs) if mask is None else sorted(mask(output) for output in outputs)


def report(wrong: Sequence[Disagreement], packets: int) -> None:
    if wrong:
        shown = "\n".join(str(disagreement) for disagreement in wrong[:SHOWN])
        raise AssertionError(f"{len(wrong)} of {packets} packets came out differently:\n{shown}")
