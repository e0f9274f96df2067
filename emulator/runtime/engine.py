"""The memory of one native runtime, and the calls into it.

An engine holds nodes (switches and hosts), ports, packets and pending events as NumPy records. It knows indices
and addresses; names, seeds and links as users see them are `emulator.fabric`'s and `emulator.switch`'s.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import AbstractContextManager
from types import EllipsisType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..abi import HEADROOM, PACKET
from . import memory
from .build import runtime_entry
from .memory import NONE, PRIORITIES, UNLIMITED

MAX_FRAME: Final = 2048
JUMBO_FRAME: Final = 16_384
"""Longest frame in bytes of the switches that run packet tests, which often have jumbo frames."""
_ALIGNMENT: Final = 64
_FUEL: Final = 1_000_000
"""Steps between two looks at signals: a fraction of a second."""


class _EngineState(ctypes.Structure):
    """`memory.WORLD` as a ctypes structure, whose fields Python reads and writes much faster than a NumPy record's."""

    _fields_: ClassVar = [(name, ctypes.c_int64) for name in memory.WORLD.names or ()]


class DueHost(NamedTuple):
    """A host whose turn it is: frames that it has not been handed, and whether its timer fired."""

    host: int
    packets: int
    bytes: int
    timer: bool


class DrainResult(NamedTuple):
    """Frames handed over: bytes end to end, and per frame its length, port and time (ns)."""

    data: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    ports: NDArray[np.int64]
    times_ns: NDArray[np.int64]
    size: int
    """The length that all frames have, or 0."""


class Records:
    """A growing array of records. Indices stay; addresses do not."""

    def __init__(self, dtype: np.dtype[Any], capacity: int = 8) -> None:
        self.data: Any = np.zeros(capacity, dtype)
        self.count = 0

    def append(self, **fields: int | float) -> int:
        """Add a record and return its index. The array may move, so that addresses become invalid."""
        if self.count == len(self.data):
            self.data = np.concatenate([self.data, np.zeros_like(self.data)])
        record = self.data[self.count]
        for name, value in fields.items():
            record[name] = value
        self.count += 1
        return self.count - 1

    @property
    def address(self) -> int:
        """Address of record 0, valid until the next `append`."""
        return int(self.data.ctypes.data)


class Engine:
    """One event loop. All methods hold `lock`, so a control plane may live in another thread."""

    virtual_time = True
    """True if time passes only in `run`."""

    def __init__(self, max_frame: int = MAX_FRAME, packets: int = 256) -> None:
        self.max_frame = max_frame
        self.lock: AbstractContextManager[object] = threading.RLock()
        self._entry = runtime_entry()
        self.world: Any = _EngineState()
        self._world_address = ctypes.addressof(self.world)
        self.ports = Records(memory.PORT)
        self.queues = Records(memory.QUEUE, PRIORITIES * 8)
        self.hosts = Records(memory.HOST)
        self.taps = Records(memory.TAP)
        self.flows = Records(memory.FLOW)
        self.traces = Records(memory.TRACE)
        self._switches = np.zeros(1, np.int64)
        self._ready = np.zeros(8, np.int64)
        self._due = np.zeros(8, memory.DUE)
        self._heap: Any = np.zeros(1024, memory.EVENT)
        self._flow_frames: list[NDArray[np.uint8]] = []
        self._trace_buffers: list[NDArray[np.int64]] = []
        self._phv_bytes = 0
        self._packets = 0
        self._pool = np.empty(0, np.uint8)
        self._meta: Any = np.zeros(0, memory.META)
        self.world.free_head = NONE
        self.world.capture_host = NONE
        self.world.max_frame = max_frame
        self.world.packet_reserve = 8
        self._layout(0)
        self._grow_pool(packets)
        self._refresh()

    # --- topology -------------------------------------------------------------------------------------------------

    def add_port(self, kind: int, node: int, number: int, key: int = 0) -> int:
        """Add a port without a link, with an infinite rate and unlimited queues.

        Args:
            kind: Kind of the node, such as `memory.NODE_HOST`.
            node: Index of the node among those of its kind.
            number: Number of the port at its node.
            key: Key of the drawn faults of its link, and start value of its digest of frames.

        Returns:
            Index of the port.
        """
        with self.lock:
            index = self.ports.append(kind=kind, node=node, number=number, peer=NONE, up=1, key=key, digest=key)
            for _ in range(PRIORITIES):
                self.queues.append(limit_packets=UNLIMITED, limit_bytes=UNLIMITED)
            if self.ports.count > len(self._ready):
                in_order = np.roll(self._ready, -self.world.ready_head)
                self._ready = np.concatenate([in_order, np.zeros_like(in_order)])
                self.world.ready_head = 0
            self._refresh()
            return index

    def add_host(self, poll_ns: int = 0, sink: bool = False, cpu: bool = False) -> int:
        """Add a host.

        Args:
            poll_ns: Period at whose multiples the host receives frames; 0: at once.
            sink: True if frames are only counted.
            cpu: True for the control plane of a switch.

        Returns:
            Index of the host.
        """
        with self.lock:
            index = self.hosts.append(poll_ns=poll_ns, sink=sink, cpu=cpu, timer_ns=NONE, timer_event=NONE, tap=NONE)
            if self.hosts.count > len(self._due):
                self._due = np.concatenate([self._due, np.zeros_like(self._due)])
            self._refresh()
            return index

    def connect(self, a: int, b: int) -> None:
        """Link two ports, by index, in both directions."""
        self.ports.data[a]["peer"] = b
        self.ports.data[b]["peer"] = a

    def drop_in_flight(self, port: int) -> int:
        """Take the frames that are on their way to a port off its link, and count them where they were sent from.
        Returns how many.
        """
        with self.lock:
            events = self._heap[: self.world.heap_count]
            lost = (events["kind"] == memory.EVENT_ARRIVAL) & (events["subject"] == port)
            packets = events["packet"][lost]
            if not len(packets):
                return 0
            left = events[~lost]
            left = left[np.lexsort((left["sequence"], left["time"]))]  # sorted entries are a heap
            self._heap[: len(left)] = left
            self.world.heap_count = len(left)
            self._release(packets)
            self.ports.data[int(self.ports.data[port]["peer"])]["lost_packets"] += len(packets)
            return len(packets)

    def limit_queue(
        self, port: int, priority: int, packets: int | EllipsisType | None, size: int | EllipsisType | None
    ) -> None:
        """Set the depth of one queue. Each limit is a number, None for unlimited, or `...` for no change.

        Args:
            port: Index of the port.
            priority: Priority of the queue.
            packets: Maximum number of packets.
            size: Maximum number of bytes.
        """
        queue = self.queues.data[port * PRIORITIES + priority]
        for name, limit in (("limit_packets", packets), ("limit_bytes", size)):
            if not isinstance(limit, EllipsisType):
                queue[name] = UNLIMITED if limit is None else limit

    def make_room_for(self, phv_bytes: int, packet_reserve: int) -> None:
        """Give every packet room for a PHV of this size, and keep this many packets free for one step of a switch."""
        with self.lock:
            if phv_bytes > self._phv_bytes:
                self._layout(phv_bytes)
            self.world.packet_reserve = max(self.world.packet_reserve, packet_reserve)

    # --- operations -----------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual time in ns."""
        now: int = self.world.now
        return now

    def run(self, until_ns: int) -> list[DueHost]:
        """Advance to the next instant at which hosts are due and return them, or to `until_ns` and return []."""
        with self.lock:
            self.world.until = until_ns
            self._call(memory.OP_RUN)
            return self._pop_due()

    def _pop_due(self) -> list[DueHost]:
        count = self.world.due_count
        if not count:
            return []
        self.world.due_count = 0
        return [DueHost(*row) for row in self._due[:count].tolist()]

    def wake(self) -> None:
        """Let the event loop know of packet-outs; in virtual time it asks for them by itself."""

    def send(self, port: int, frames: NDArray[np.uint8], priority: int) -> None:
        """Put frames (n, size) into a port's queue, now."""
        self.send_of_flow(NONE, port, frames, priority)

    def send_of_flow(self, flow: int, port: int, frames: NDArray[np.uint8], priority: int) -> None:
        """Put frames into a port's queue now, and count them as a flow's.

        Args:
            flow: Index of the flow; NONE: no flow.
            port: Index of the port.
            frames: Frames of equal length, uint8 (n, size).
            priority: Priority of the queue.
        """
        with self.lock:
            world = self.world
            world.port, world.priority, world.flow, world.done, world.lengths = port, priority, flow, 0, 0
            world.count, world.size = frames.shape
            world.frames = _address(frames)
            self._call(memory.OP_SEND)

    def set_timer(self, host: int, at_ns: int) -> None:
        """Set a host's timer to a time in ns; NONE: no timer."""
        with self.lock:
            self.world.host, self.world.at = host, at_ns
            self._call(memory.OP_TIMER)

    def add_flow(
        self,
        port: int,
        frame: NDArray[np.uint8],
        priority: int,
        interval_ns: float,
        start_ns: int,
        stop_ns: int,
        jitter: float,
        key: int,
    ) -> int:
        """Send a frame again and again, in native code.

        Args:
            port: Index of the NIC's port.
            frame: The frame, uint8 (bytes,).
            priority: Queue of the NIC, 0…7.
            interval_ns: Mean time between two frames.
            start_ns: Time of the first one.
            stop_ns: Time after which none is sent; UNLIMITED: never.
            jitter: Gaps are stretched by a factor drawn uniformly from 1 ± this.
            key: Seed of the draws, 64 bits.

        Returns:
            Index of the flow.
        """
        with self.lock:
            self._flow_frames.append(frame)
            index = self.flows.append(
                port=port,
                frame=frame.ctypes.data,
                length=len(frame),
                priority=priority,
                stop_ns=stop_ns,
                key=key,
                interval_ns=interval_ns,
                jitter=jitter,
                due_ns=float(start_ns),
            )
            self._refresh()
            self._arguments(host=index, at=start_ns)
            self._call(memory.OP_SCHEDULE_FLOW)
            return index

    def add_flow_by_hand(self) -> int:
        """Add a flow whose frames hosts send and receive themselves; return its index."""
        with self.lock:
            index = self.flows.append(by_hand=1)
            self._refresh()
            return index

    def meter(self, function: int, argument: int) -> None:
        """Set the function that measures each frame when it is sent; 0: none."""
        with self.lock:
            self._arguments(meter=function, meter_argument=argument)

    def add_trace(self, port: int, priority: int | None, interval_ns: int) -> int:
        """Sample the depth of a port's queue every `interval_ns` from now on; priority None: all its queues together.

        Returns:
            Index of the trace.
        """
        with self.lock:
            queue = NONE if priority is None else port * PRIORITIES + priority
            index = self.traces.append(port=port, queue=queue, interval_ns=interval_ns)
            self._trace_buffers.append(np.zeros((2, 0), np.int64))
            self._grow_trace(index)
            self._refresh()
            self._arguments(host=index, at=self.now_ns)
            self._call(memory.OP_SCHEDULE_TRACE)
            return index

    def trace(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return a trace's times (ns) and depths (packets), int64 (n,) each, as copies."""
        count = int(self.traces.data[index]["count"])
        times, depths = self._trace_buffers[index]
        return times[:count].copy(), depths[:count].copy()

    def drain(self, host: int, packets: int, size: int) -> DrainResult:
        """Return all frames that a host has not been handed yet, in order of arrival: as many packets and bytes as
        it has.
        """
        with self.lock:
            data = np.empty(size, np.uint8)
            numbers = np.empty((3, packets), np.int64)
            self.world.host = host
            self.world.frames = _address(data)
            self.world.lengths = first = _address(numbers)
            self.world.in_ports = first + 8 * packets
            self.world.times = first + 16 * packets
            self.world.size = 0
            self._call(memory.OP_DRAIN)
            return DrainResult(data, numbers[0], numbers[1], numbers[2], self.world.size)

    def process(
        self, switch: int, frames: NDArray[np.uint8], lengths: NDArray[np.int64], ports: NDArray[np.int64], repeat: int
    ) -> DrainResult:
        """Run frames through one switch, without links or time.

        Args:
            switch: Index of the switch.
            frames: Frames, each padded to the longest, uint8 (n, size).
            lengths: Length of each frame in bytes, int64 (n,).
            ports: Ingress port of each frame, int64 (n,).
            repeat: Number of times that all frames are run.

        Returns:
            Frames that leave the switch in the last repetition.
        """
        with self.lock:
            self._switches[0] = switch
            self._arguments(count=len(frames), size=frames.shape[1], repeat=repeat, done=0, keep=0)
            self.world.frames = frames.ctypes.data
            self.world.lengths = lengths.ctypes.data
            self.world.in_ports = ports.ctypes.data
            self._call(memory.OP_PROCESS)
            return self._drain_all(self.world.capture_host)

    def _drain_all(self, host: int) -> DrainResult:
        record = self.hosts.data[host]
        return self.drain(host, int(record["pending_packets"]), int(record["pending_bytes"]))

    def packet_ins(self, nic: int) -> list[tuple[int, bytes]]:
        """Take the frames that wait behind the NIC of a switch's CPU: (time in ns, bytes) in order."""
        with self.lock:
            frames = self._drain_all(int(self.ports.data[nic]["node"]))
        data, end, packets = frames.data.tobytes(), 0, []
        for length, at in zip(frames.lengths.tolist(), frames.times_ns.tolist(), strict=True):
            packets.append((at, data[end : end + length]))
            end += length
        return packets

    def drop_packet_outs(self, nic: int) -> int:
        """Drop the frames that the NIC of a switch's CPU has not sent yet. Returns how many."""
        return self.flush(nic)

    def flush(self, port: int) -> int:
        """Drop what stands in a port's queues, and count it there. Returns how many packets."""
        with self.lock:
            dropped = int(self.ports.data[port]["depth_packets"])
            for priority in range(PRIORITIES):
                queue = self.queues.data[port * PRIORITIES + priority]
                if queue["depth_packets"]:
                    queue["drops"] += queue["depth_packets"]
                    queue["dropped_bytes"] += queue["depth_bytes"]
                    self._meta[int(queue["tail"])]["next"] = self.world.free_head
                    self.world.free_head = queue["head"]
                    self.world.free_count += queue["depth_packets"]
                    queue["depth_packets"] = queue["depth_bytes"] = queue["credit"] = 0
            record = self.ports.data[port]
            record["backlog"] = record["depth_packets"] = record["depth_bytes"] = 0
            return dropped

    @property
    def packets_in_use(self) -> int:
        """Packets in queues, on links, at hosts and in pipelines."""
        return self._packets - int(self.world.free_count)

    @property
    def pool_packets(self) -> int:
        """Packets that the pool holds, used and free."""
        return self._packets

    # --- memory ---------------------------------------------------------------------------------------------------

    def _arguments(self, **values: int) -> None:
        for name, value in values.items():
            setattr(self.world, name, int(value))

    def _call(self, operation: int) -> int:
        while True:
            status = self._entry(self._world_address, operation)
            if status == memory.STATUS_PAUSE:
                if self.world.fuel <= 0:
                    self.world.fuel = _FUEL
                elif self.world.free_count < self.world.packet_reserve:
                    self._grow_pool(max(self._packets, self.world.packet_reserve))
                else:
                    self._heap = np.concatenate([self._heap, np.zeros_like(self._heap)])
                self._refresh()
            elif status == memory.STATUS_TRACE_FULL:
                for index in range(self.traces.count):
                    if self.traces.data[index]["count"] == self.traces.data[index]["capacity"]:
                        self._grow_trace(index)
            else:
                return int(status)

    def _refresh(self) -> None:
        """Update native code's addresses after memory may have moved."""
        self._arguments(
            pool=self._pool.ctypes.data,
            meta=self._meta.ctypes.data,
            heap=self._heap.ctypes.data,
            heap_capacity=len(self._heap),
            ports=self.ports.address,
            queues=self.queues.address,
            hosts=self.hosts.address,
            taps=self.taps.address,
            tap_count=self.taps.count,
            flows=self.flows.address,
            traces=self.traces.address,
            switches=self._switches.ctypes.data,
            ready=self._ready.ctypes.data,
            ready_capacity=len(self._ready),
            due=self._due.ctypes.data,
        )

    def _layout(self, phv_bytes: int) -> None:
        """Lay out the slots of the pool again for PHVs of at most this size; packets keep their contents."""
        old_offset = self.world.data_offset
        old_bytes = self.world.slot_bytes
        old_pool = self._pool
        self._phv_bytes = phv_bytes
        offset = PACKET.itemsize + phv_bytes
        self.world.data_offset = offset
        self.world.slot_bytes = -(-(offset + HEADROOM + self.max_frame) // _ALIGNMENT) * _ALIGNMENT
        if self._packets:
            slots = self._new_pool(self._packets)
            used = min(old_bytes, slots.shape[1] - (offset - old_offset))
            slots[:, offset - old_offset :][:, :used] = old_pool.reshape(self._packets, old_bytes)[:, :used]
        self._refresh()

    def _new_pool(self, packets: int) -> NDArray[np.uint8]:
        slot_bytes = self.world.slot_bytes
        raw = np.empty(packets * slot_bytes + _ALIGNMENT, np.uint8)
        first = -raw.ctypes.data % _ALIGNMENT
        self._pool = raw[first : first + packets * slot_bytes]
        return self._pool.reshape(packets, slot_bytes)

    def _grow_pool(self, more: int) -> None:
        old_packets, old_pool = self._packets, self._pool
        self._packets = old_packets + more
        self._new_pool(self._packets)
        self._pool[: len(old_pool)] = old_pool
        fresh = np.zeros(more, memory.META)
        fresh["next"] = np.arange(old_packets + 1, self._packets + 1)
        fresh["next"][-1] = self.world.free_head
        self._meta = np.concatenate([self._meta, fresh])
        self.world.free_head = old_packets
        self.world.free_count += more

    def _release(self, packets: NDArray[np.int64]) -> None:
        """Give packets, one at least, back to the pool."""
        self._meta["next"][packets] = np.append(packets[1:], self.world.free_head)
        self.world.free_head = int(packets[0])
        self.world.free_count += len(packets)

    def _grow_trace(self, index: int) -> None:
        old = self._trace_buffers[index]
        grown = np.zeros((2, max(1024, 2 * old.shape[1])), np.int64)
        grown[:, : old.shape[1]] = old
        self._trace_buffers[index] = grown
        record = self.traces.data[index]
        record["capacity"] = grown.shape[1]
        record["times"] = grown[0].ctypes.data
        record["depths"] = grown[1].ctypes.data


def _address(array: NDArray[Any]) -> int:
    """Address of an array's data. NumPy's own accessors are several times slower than a ctypes view of writable
    data.
    """
    if array.flags.writeable and array.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    return int(array.__array_interface__["data"][0])
