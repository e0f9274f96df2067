"""The interface between a switch and its control plane: needed by `emulator.p4runtime`, implemented by `Switch`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from .entries import CloneSession, Replica
from .program import Program, ProgramState


class Replication(Protocol):
    """Multicast groups and clone sessions (v1model's packet replication engine)."""

    def set_group(self, group_id: int, replicas: tuple[Replica, ...]) -> None:
        """Insert or replace a multicast group."""

    def delete_group(self, group_id: int) -> None:
        """Delete a multicast group."""

    @property
    def groups(self) -> Mapping[int, tuple[Replica, ...]]:
        """Replicas of each multicast group, by id."""

    def set_session(self, session_id: int, session: CloneSession) -> None:
        """Insert or replace a clone session."""

    def delete_session(self, session_id: int) -> None:
        """Delete a clone session."""

    @property
    def sessions(self) -> Mapping[int, CloneSession]:
        """Clone sessions by id."""


class Datapath(Protocol):
    """One switch. `program` and `state` are None until a pipeline is loaded."""

    device_id: int
    cpu_port: int
    program: Program | None
    state: ProgramState | None
    on_packet_in: Callable[[bytes], None] | None
    """Called with every frame that leaves through the CPU port, packet-in header included."""
    on_digest: Callable[[str, list[tuple[int, ...]]], None] | None
    """Called with the name of a digest and its new records: one tuple each, with the struct's fields in order."""
    on_poll: Callable[[], None] | None
    """Called again and again while there is an `on_digest`, also without new records: time may have passed."""

    @property
    def ports(self) -> Collection[int]:
        """Numbers of the ports that there are, the CPU port not among them."""

    @property
    def replication(self) -> Replication:
        """Multicast groups and clone sessions of the switch."""

    def paused(self) -> AbstractContextManager[object]:
        """Block packets while entered, and calls of `on_packet_in`, `on_digest` and `on_poll` by other threads.

        Packets and the control plane see all changes made meanwhile as one change.
        """

    def compile(self, json: bytes) -> Program:
        """Compile (or take from the cache) a BMv2 JSON program, without starting it.

        Raises `emulator.program.UnsupportedProgram`.
        """

    def start(self, program: Program, state: ProgramState) -> None:
        """Run a program that `compile` returned on a state of its own, which no other switch uses.

        Groups and sessions start empty. Packets of the program before are dropped, and so are packet-ins and
        packet-outs that are still under way.
        """

    def packet_out(self, frame: bytes) -> None:
        """Inject a frame at the CPU port, packet-out header included."""
