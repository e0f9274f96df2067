"""One software switch: a loaded program, its ports with their queues and rates, and what its control plane calls.

A switch by itself answers `forward` and `process`: frames run through ingress, replication and egress back to
back, as if its ports had no rate. In a `emulator.fabric.Fabric` the same switch gets links and virtual time; its
ports then serialise at their rates and its queues fill.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import EllipsisType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .abi import DROP_PORT
from .frames import as_frames, split
from .port import (
    MinimumShare,
    PortConfig,
    PortCounters,
    Queue,
    SwitchValueError,
    check_config,
    read_port,
    read_queues,
    set_minimum_share,
    set_rate,
)
from .program import Program, ProgramState
from .replication import ReplicationEngine, ReplicationTables
from .runtime import memory
from .runtime.engine import MAX_FRAME, DrainResult, Engine
from .runtime.memory import NONE, PORT_NUMBERS, PRIORITIES
from .switch_counters import SwitchCounters, clear_counters, read_counters

CPU_PORT: Final = 510
LOOPBACK_PACKETS: Final = 1024
"""Packets that wait to come again, as many as in simple_switch; more are dropped."""
MAX_PASSES: Final = 1024
"""Default of the passes that a packet may make."""


def _call(receiver: Callable[[bytes], None], frame: bytes) -> None:
    receiver(frame)


class Switch:
    """A switch with a set of ports (0 … 509) and a CPU port; implements `emulator.datapath.Datapath`.

    A packet passes ingress at most `max_passes` times, and a clone continues the count of its origin. A packet beyond
    that is dropped (`too_many_passes`) or not cloned (`clones_refused`). The same applies beyond
    `emulator.runtime.memory.ALLOWANCE` packets made from one frame at one instant, which ends exponential duplication.

    Every packet is accounted for: received packets and their copies have left, were lost by a link, wait in a queue, or
    are counted as dropped by a port's queue or by a field of `SwitchCounters`.
    """

    def __init__(
        self,
        device_id: int,
        *,
        ports: Iterable[int] = (),
        cpu_port: int = CPU_PORT,
        port: PortConfig | None = None,
        max_passes: int = MAX_PASSES,
        drop_port: int = DROP_PORT,
        traced: bool = False,
        max_frame: int = MAX_FRAME,
    ) -> None:
        """Create a switch.

        Args:
            device_id: Device id for P4Runtime.
            ports: Port numbers.
            cpu_port: Number of the CPU port.
            port: Configuration of every port of `ports`; `set_port` changes one.
            max_passes: Maximum number of passes of one packet through ingress.
            drop_port: Packets sent to this port are dropped.
            traced: Programs note their table lookups, for a log of packets, and are slower.
            max_frame: Longest frame in bytes that the switch takes by itself; in a fabric the fabric's applies.

        Raises:
            SwitchValueError: An argument is out of range.
        """
        if not 0 <= drop_port < PORT_NUMBERS or drop_port == cpu_port:
            raise SwitchValueError(
                f"drop port {drop_port} is not one of 0 … {PORT_NUMBERS - 1}, or the CPU port",
                place=f"switch {device_id}",
                value=drop_port,
            )
        if max_passes < 1:
            raise SwitchValueError(
                f"max_passes is {max_passes}; a packet passes once at least",
                place=f"switch {device_id}",
                value=max_passes,
            )
        self.device_id = device_id
        self.cpu_port = cpu_port
        self.drop_port = drop_port
        self.traced = traced
        self.program: Program | None = None
        self.state: ProgramState | None = None
        self.on_packet_in: Callable[[bytes], None] | None = None
        self.on_digest: Callable[[str, list[tuple[int, ...]]], None] | None = None
        """Called by `poll_digests` with the name of a digest and its new records."""
        self.on_poll: Callable[[], None] | None = None
        """Called by `poll_digests` after that, also without new records: the switch's time may have gone on."""
        self._telling = threading.RLock()
        """Held during calls to the control plane; always taken before the engine's lock."""
        self._packet_ins: deque[tuple[int, bytes]] = deque()
        """Taken from the engine, with their times in ns, and not handed over yet."""
        self._packet_outs: deque[NDArray[np.uint8]] = deque()
        self.packet_in_ns = 0
        """Virtual time of the frame that `on_packet_in` is being given."""
        self._records: Any = np.zeros(1, memory.SWITCH)
        self._record = self._records[0]
        self._record["seed"] = device_id
        self._record["max_passes"] = max_passes
        self._record["drop_port"] = drop_port
        self._max_replicas = 0
        self._engine = Engine(max_frame, packets=64)
        self._alone = True
        self._index: dict[int, int] = {}
        self._config: dict[int, PortConfig] = {}
        self._ports_down: frozenset[int] = frozenset()
        self.replication = ReplicationEngine(self._install, self.paused)
        self._attach(self._engine)
        self._engine.world.capture_host = self._engine.add_host()
        self.add_port(cpu_port, PortConfig(queue_packets=None))
        for number in ports:
            self.add_port(number, port or PortConfig())

    # --- program --------------------------------------------------------------------------------------------------

    def load(self, json: bytes) -> None:
        """Compile a program (or take it from the cache) and start it with empty tables, registers and groups.

        Args:
            json: BMv2 JSON.

        Raises:
            UnsupportedProgram: The program has a construct that is not supported; the running program stays as it was.
        """
        program = self.compile(json)
        self.start(program, program.new_state())

    def compile(self, json: bytes) -> Program:
        """Compile a program (or take it from the cache) as `load` does, without starting it.

        Args:
            json: BMv2 JSON.

        Raises:
            UnsupportedProgram: The program has a construct that is not supported.
        """
        return Program.load(json, traced=self.traced)

    def start(self, program: Program, state: ProgramState) -> None:
        """Run a compiled program.

        Packets in queues belong to the old program and are dropped. So are packet-ins that the control plane has not
        received and packet-outs that have not entered.

        Args:
            program: From `compile`.
            state: Memory of this switch: `Program.new_state`.
        """
        if program.phv_bytes % 16:
            raise SwitchValueError("it must be a multiple of 16", place="program", value=program.phv_bytes)
        with self.paused():
            for index in self._index.values():
                self._engine.flush(index)
            self._engine.flush(int(self._record["loopback"]))
            self._engine.flush(int(self._record["absent"]))
            self._drop_cpu_packets()
            self._record["phv_bytes"] = program.phv_bytes
            self._make_room()
            self._record["ingress"] = program.entry_points.ingress
            self._record["egress"] = program.entry_points.egress
            self._record["deparse"] = program.entry_points.deparse
            self._record["reparse"] = program.entry_points.reparse
            self._record["preserve"] = program.entry_points.preserve
            self._record["state"] = state.address
            self._record["steps"] = 0 if state.steps is None else state.steps.address
            self.program, self.state = program, state
            state.clock.read = self._clock_us
            state.set_ports_down(self._ports_down)
            self.replication.clear()

    def _drop_cpu_packets(self) -> None:
        """Drop what is on its way between the switch and its control plane."""
        if self._alone:
            return
        nic = self._cpu_sender
        self._packet_ins.extend(self._engine.packet_ins(nic))
        self._record["stale_packet_ins"] += len(self._packet_ins) + self._engine.drop_in_flight(nic)
        self._packet_ins.clear()
        self._record["stale_packet_outs"] += self._engine.drop_packet_outs(nic)
        while self._packet_outs:  # to which others may append meanwhile
            self._packet_outs.popleft()
            self._record["stale_packet_outs"] += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Block packets and calls to the control plane by other threads while entered.

        Packets and the control plane see all changes made meanwhile as one change.
        """
        with self._telling, self._engine.lock:
            yield

    # --- ports ----------------------------------------------------------------------------------------------------

    @property
    def ports(self) -> tuple[int, ...]:
        """Numbers of the ports, without the CPU port."""
        return tuple(number for number in self._index if number != self.cpu_port)

    def set_ports_down(self, ports: Collection[int]) -> None:
        """Mark ports as down, and all others as up.

        Selectors choose no member that watches a port that is down, and replicas go to their backups.

        Args:
            ports: Numbers of all ports that are down.
        """
        with self.paused():
            self._ports_down = frozenset(ports)
            if self.state is not None:
                self.state.set_ports_down(self._ports_down)
            self.replication.set_ports_down(self._ports_down)

    def add_port(self, number: int, config: PortConfig | None = None) -> None:
        """Add a port.

        Args:
            number: Its number, 0…510.
            config: Rate, queue depths and overhead; None: the defaults of `PortConfig`.

        Raises:
            SwitchValueError: The number is out of range or taken, or a setting is out of range.
        """
        if not 0 <= number < PORT_NUMBERS - 1:
            raise SwitchValueError(
                f"port {number} is not one of 0 … {PORT_NUMBERS - 2}", place=f"switch {self.device_id}", value=number
            )
        if number in self._index:
            raise SwitchValueError(f"port {number} is there already", place=f"switch {self.device_id}", value=number)
        config = config or PortConfig()
        check_config(f"switch {self.device_id}, port {number}", config)
        self._config[number] = config
        self._make_port(number)

    def set_port(
        self,
        number: int,
        *,
        rate_bps: float | EllipsisType | None = ...,
        queue_packets: int | EllipsisType | None = ...,
        queue_bytes: int | EllipsisType | None = ...,
        overhead_bytes: int | EllipsisType = ...,
        minimum_share: MinimumShare | EllipsisType | None = ...,
        priority: int | None = None,
    ) -> None:
        """Change a port at run time; omitted settings stay.

        Packets beyond a lowered depth stay; the frame being sent keeps its transmission time.

        Args:
            number: Number of the port.
            rate_bps: Rate in bit/s; None: unlimited.
            queue_packets: Depth of each queue in packets; None: unlimited.
            queue_bytes: Depth of each queue in bytes; None: unlimited.
            overhead_bytes: Bytes per frame that take time on the wire and are not in the frame.
            minimum_share: Exception from strict priority; None: none.
            priority: Queue whose depths change, 0…7; None: all queues of the port.

        Raises:
            SwitchValueError: There is no such port, or a value is out of range.
        """
        index = self.port_index(number)
        given: dict[str, Any] = {
            "rate_bps": rate_bps,
            "queue_packets": queue_packets,
            "queue_bytes": queue_bytes,
            "overhead_bytes": overhead_bytes,
            "minimum_share": minimum_share,
        }
        config = replace(self._config[number], **{name: value for name, value in given.items() if value is not ...})
        check_config(f"switch {self.device_id}, port {number}", config)
        if priority is None:
            self._config[number] = config
        elif not 0 <= priority < PRIORITIES:
            raise SwitchValueError(
                f"priority {priority} is not one of 0 … {PRIORITIES - 1}",
                place=f"switch {self.device_id}",
                value=priority,
            )
        elif any(given[name] is not ... for name in ("rate_bps", "overhead_bytes", "minimum_share")):
            raise SwitchValueError(
                f"a rate, overhead or share is the whole port {number}'s, not one priority's",
                place=f"switch {self.device_id}",
                value=number,
            )
        if self._alone:
            return
        with self._engine.lock:
            self._serialise(index, self._config[number])
            for one in range(PRIORITIES) if priority is None else (priority,):
                self._engine.limit_queue(index, one, queue_packets, queue_bytes)

    def port_config(self, number: int) -> PortConfig:
        """Return the settings of a port. Raises SwitchValueError if the switch has no such port."""
        self.port_index(number)
        return self._config[number]

    def port_index(self, number: int) -> int:
        """Return a port's index in the engine's arrays. Raises SwitchValueError if the switch has no such port."""
        if number not in self._index:
            raise SwitchValueError(
                f"switch {self.device_id} has no port {number}; it has {sorted(self._index)}", value=self.device_id
            )
        return self._index[number]

    def port_counters(self, number: int) -> PortCounters:
        """Return packets, bytes, drops and depths of a port. Raises SwitchValueError if the switch has no such port."""
        return read_port(self._engine, self.port_index(number))

    def port_queues(self, number: int) -> list[Queue]:
        """Return the queues of a port, by priority 0…7. Raises SwitchValueError if the switch has no such port."""
        return read_queues(self._engine, self.port_index(number))

    @property
    def counters(self) -> SwitchCounters:
        """Packets of the whole switch, by pipeline and by reason of each drop."""
        return read_counters(self._engine, self._record)

    # --- frames ---------------------------------------------------------------------------------------------------

    def packet_out(self, frame: bytes) -> None:
        """Inject a frame at the CPU port, at the current time of the fabric.

        Args:
            frame: The frame, with the program's packet-out header.
        """
        if self._alone:
            self.forward(frame, self.cpu_port)
        elif self._engine.virtual_time:
            self._packet_outs.append(as_frames(frame, self._engine.max_frame))
            self._engine.wake()
        else:
            self._engine.send(self._cpu_sender, as_frames(frame, self._engine.max_frame), 0)

    def release_packet_outs(self) -> None:
        """Let the packet-outs so far enter.

        The fabric calls this, switch by switch, before time advances. Packet-outs come from threads of their own, and
        their order must not depend on the threads' timing.
        """
        if self._packet_outs:
            with self.paused():
                while self._packet_outs:
                    self._engine.send(self._cpu_sender, self._packet_outs.popleft(), 0)

    def deliver_packet_ins(self, call: Callable[[Callable[[bytes], None], bytes], None] = _call) -> None:
        """Give the frames of the CPU port to `on_packet_in`; without it they are dropped.

        The fabric and the ports' thread call this.

        Args:
            call: Calls the receiver with one frame; a caller may catch its exceptions.
        """
        with self._telling:
            self._packet_ins.extend(self._engine.packet_ins(self._cpu_sender))
            while self._packet_ins:
                self.packet_in_ns, frame = self._packet_ins.popleft()
                receiver = self.on_packet_in
                if receiver is not None:
                    call(receiver, frame)

    def forward(self, frame: bytes, port: int, at_ns: int | None = None) -> list[tuple[int, bytes]]:
        """Run one frame through a switch that is in no fabric.

        Args:
            frame: The whole frame.
            port: Port at which it enters.
            at_ns: Time to which the switch's clock advances first; None: it stays.

        Returns:
            The frames that leave, as (port, frame) in order. Frames to the CPU port are among them, and are passed to
            `on_packet_in` too.

        Raises:
            SwitchValueError: The switch is in a fabric.
        """
        frames = as_frames(frame, self._engine.max_frame)
        with self._telling:
            if at_ns is not None:
                self._engine.world.now = max(at_ns, self._engine.now_ns)
            out = self._run(frames, np.full(1, frames.shape[1], np.int64), np.full(1, port, np.int64), 1)
            result = split(out)
            for number, sent in result:
                if number == self.cpu_port and self.on_packet_in is not None:
                    self.packet_in_ns = self._engine.now_ns
                    self.on_packet_in(sent)
            self.poll_digests()
        return result

    def poll_digests(self) -> None:
        """Hand new digests to `on_digest`; without it they stay in `state.digests`.

        `forward`, a fabric's `run` and the ports' thread do this by themselves.
        """
        if self.on_digest is None:
            return
        with self._telling:
            on_digest, on_poll = self.on_digest, self.on_poll  # another thread may change them
            if on_digest is None or self.state is None:
                return
            for name, digest in self.state.digests.items():
                records = digest.drain()
                if records:
                    on_digest(name, records)
            if on_poll is not None:
                on_poll()

    def _clock_us(self) -> int:
        return (self._engine.now_ns - int(self._record["started_ns"])) // 1000

    def process(
        self,
        frames: NDArray[np.uint8],
        lengths: NDArray[np.int64] | None = None,
        ports: NDArray[np.int64] | int = 0,
        repeat: int = 1,
    ) -> DrainResult:
        """Run frames back to back with no Python in between.

        Args:
            frames: Frames of one size, uint8 (n, size).
            lengths: Bytes of each frame that count, (n,); None: all.
            ports: Port at which each enters, (n,), or one number for all.
            repeat: Times that all frames run.

        Returns:
            The frames that the last repetition sent.

        Raises:
            SwitchValueError: The switch is in a fabric, or shapes do not fit.
        """
        if frames.ndim != 2 or not 1 <= frames.shape[1] <= self._engine.max_frame:
            raise SwitchValueError(
                f"give (n, size) with size 1 … {self._engine.max_frame}", place="frames", value=frames.shape
            )
        count, size = frames.shape
        sizes = np.full(count, size, np.int64) if lengths is None else np.ascontiguousarray(lengths, np.int64)
        if sizes.shape != (count,) or (count and not 0 <= sizes.min() <= sizes.max() <= size):
            raise SwitchValueError(f"lengths must be ({count},) with values 0 … {size}", value=count)
        numbers = np.ascontiguousarray(np.broadcast_to(ports, count), np.int64)
        return self._run(np.ascontiguousarray(frames, np.uint8), sizes, numbers, repeat)

    def _run(
        self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], ports: NDArray[np.int64], repeat: int
    ) -> DrainResult:
        if not self._alone:
            raise SwitchValueError("send frames from the fabric's hosts", place=f"switch {self.device_id}")
        return self._engine.process(int(self._records.ctypes.data), frames, lengths, ports, repeat)

    # --- fabric ---------------------------------------------------------------------------------------------------

    def join(self, engine: Engine, seed: int, cpu_sender: int) -> None:
        """Move to a fabric's engine, with all ports as configured; counters are reset. The fabric calls this.

        Args:
            engine: The fabric's event loop.
            seed: Seed of the switch's random numbers, 64 bits.
            cpu_sender: Index of the engine's port that sends to the CPU port.
        """
        if not self._alone:
            raise SwitchValueError(f"switch {self.device_id} is in a fabric already", value=self.device_id)
        self._alone = False
        self._cpu_sender = cpu_sender
        self._record["seed"] = seed
        self._record["started_ns"] = engine.now_ns
        numbers = list(self._index)
        self._index.clear()
        self._attach(engine)
        clear_counters(self._record)
        for number in numbers:
            self._make_port(number)

    def _attach(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = np.full(PORT_NUMBERS, NONE, np.int64)
        self._record["port_index"] = self._numbers.ctypes.data
        loopback = engine.add_port(memory.NODE_SWITCH, int(self._records.ctypes.data), memory.LOOPBACK)
        engine.limit_queue(loopback, 0, LOOPBACK_PACKETS, None)
        self._record["loopback"] = loopback
        absent = engine.add_port(memory.NODE_SWITCH, int(self._records.ctypes.data), memory.ABSENT)
        self._record["absent"] = absent
        self._make_room()

    def _make_port(self, number: int) -> None:
        index = self._engine.add_port(memory.NODE_SWITCH, int(self._records.ctypes.data), number)
        self._index[number] = index
        self._configure(number)
        self._numbers[number] = index

    def _configure(self, number: int) -> None:
        config, index = self._config[number], self._index[number]
        if self._alone:
            return
        with self._engine.lock:
            self._serialise(index, config)
            for priority in range(PRIORITIES):
                self._engine.limit_queue(index, priority, config.queue_packets, config.queue_bytes)

    def _serialise(self, index: int, config: PortConfig) -> None:
        set_rate(self._engine, index, config.rate_bps)
        self._engine.ports.data[index]["overhead_bytes"] = config.overhead_bytes
        set_minimum_share(self._engine, index, config.minimum_share)

    def _install(self, tables: ReplicationTables) -> None:
        """Give native code new replication tables, between two runs of it."""
        with self._engine.lock:
            self._max_replicas = max(self._max_replicas, tables.longest)
            self._make_room()
            self._tables = tables
            self._record["groups"] = tables.groups.ctypes.data
            self._record["group_count"] = len(tables.groups)
            self._record["sessions"] = tables.sessions.ctypes.data
            self._record["session_count"] = len(tables.sessions)
            self._record["replicas"] = tables.replicas.ctypes.data

    def _make_room(self) -> None:
        """A packet may be cloned and multicast in one step, and leave a clone of each egress run."""
        self._engine.make_room_for(int(self._record["phv_bytes"]), 2 * self._max_replicas + 8)
