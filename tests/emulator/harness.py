"""One frame through a compiled program, without the runtime: ingress, then egress to the port that ingress chose."""

from __future__ import annotations

import ctypes
import os
import random
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.emulator.abi import DROP_PORT, HEADROOM, PACKET
from weir.emulator.program import Program, ProgramState

CAPACITY = 4096
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@dataclass
class Outcome:
    """Packet record after each side; `frame` is the deparser's result, None if the packet was dropped."""

    ingress: dict[str, int]
    egress: dict[str, int] | None
    frame: bytes | None


class PacketRig:
    def __init__(self, program: Program, state: ProgramState | None = None) -> None:
        self.program = program
        self.state = state or program.new_state()
        points = program.entry_points
        self._ingress, self._egress, self._deparse, self._reparse, self._preserve = map(_FUNCTION, points)
        size = PACKET.itemsize + program.phv_bytes + CAPACITY
        memory = np.zeros(size + 64, dtype=np.uint8)
        start = -memory.ctypes.data % 64
        self.memory = memory[start : start + size]
        self.record = self.memory[: PACKET.itemsize].view(PACKET)[0]
        self.data = self.memory[PACKET.itemsize + program.phv_bytes :]

    def begin(self, frame: bytes, **metadata: int) -> None:
        """Lay the frame into the buffer with a fresh record."""
        self.memory[: PACKET.itemsize] = 0
        self.data[HEADROOM : HEADROOM + len(frame)] = np.frombuffer(frame, np.uint8)
        self.record["start"], self.record["length"] = HEADROOM, len(frame)
        self.record["packet_length"] = len(frame)
        self.record["drop_port"] = DROP_PORT
        for name, value in metadata.items():
            self.record[name] = value

    def fields(self) -> dict[str, int]:
        return {name: int(self.record[name]) for name in PACKET.names or () if name != "spare"}

    def ingress(self) -> None:
        self._ingress(self.state.address, self.memory.ctypes.data)

    def egress(self) -> None:
        self._egress(self.state.address, self.memory.ctypes.data)
        if self.record["clone_session"]:
            self._deparse(self.state.address, self.memory.ctypes.data)

    def reparse(self) -> None:
        self._reparse(self.state.address, self.memory.ctypes.data)

    def preserve(self, field_list: int = 0) -> None:
        """Turn the packet into a clone of itself, as far as metadata go: of those a field list's alone are left."""
        source = self.memory.copy()
        self.record["clone_field_list"] = field_list
        self._preserve(source.ctypes.data, self.memory.ctypes.data)

    def frame(self) -> bytes:
        start, length = int(self.record["start"]), int(self.record["length"])
        return self.data[start : start + length].tobytes()

    def send(self, frame: bytes, egress: dict[str, int] | None = None, **metadata: Any) -> Outcome:
        """Run a frame through; `egress` sets fields of the record between the two sides."""
        self.begin(frame, **metadata)
        self.ingress()
        first = self.fields()
        if first["egress_spec"] == DROP_PORT and not first["mcast_grp"]:
            return Outcome(first, None, None)
        self.record["egress_port"], self.record["egress_spec"] = first["egress_spec"], 0
        self.record["clone_session"] = 0
        for name, value in (egress or {}).items():
            self.record[name] = value
        self.egress()
        second = self.fields()
        return Outcome(first, second, None if second["egress_spec"] == DROP_PORT else self.frame())


def seeded_random() -> random.Random:
    """Randomness that the failing test's output can be replayed with: `WEIR_SEED=… pytest …`."""
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"WEIR_SEED={seed}\n")
    return random.Random(seed)


def watched(command: Sequence[str], silence_s: float, cwd: Path, environment: Mapping[str, str]) -> str:
    """Output of a child process until it ends; the test fails with it if the child fails, or is silent for this many
    seconds.

    The child has ended afterwards in any case.
    """
    said = b""
    child = subprocess.Popen(
        command, cwd=cwd, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    )
    try:
        assert child.stdout is not None
        while select.select([child.stdout], [], [], silence_s)[0]:
            more = child.stdout.read(1 << 16)
            if not more:
                break
            said += more
        else:
            pytest.fail(f"silent for {silence_s} s:\n{said.decode()}")
        assert child.wait() == 0, f"status {child.returncode}:\n{said.decode()}"
    finally:
        child.kill()
        child.wait()
    return said.decode()
