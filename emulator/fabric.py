"""The virtual-time fabric: switches, links and hosts in one deterministic event loop.

Time is an integer of nanoseconds and passes only in `run`, natively, until an instant that concerns Python: a host
is due to see frames, its timer fires, or a switch's CPU port has frames. The same seed and the same calls give the
same bytes at the same times (`digest`). A frame is received when its last bit has arrived (store and forward); its
flight takes ⌈8·(length + overhead) / rate⌉ + delay nanoseconds from the instant at which the transmitter takes it
from its queue.

Traffic generators (`add_flow`) run natively, and hosts count their frames without handing them to Python. Flows whose
frames hosts send themselves (`new_flow`) are counted in the same way, and seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .frames import ETHERNET_BYTES, as_frames, by_size
from .link_faults import REORDER_NS, check_faults, write_faults
from .nodes import Endpoint, FabricError, FabricNodes, HostNode, label
from .port import MinimumShare, PortConfig, PortCounters, check_config, read_port, set_minimum_share, set_rate
from .runtime import memory
from .runtime.engine import MAX_FRAME, DueHost, Engine
from .runtime.memory import NONE, PRIORITIES, UNLIMITED
from .switch import Switch


@dataclass(frozen=True, slots=True)
class Wake:
    """One wake-up of a host: the frames that arrived for it, and whether its timer fired."""

    host: str
    frames: list[NDArray[np.uint8]]
    """Frames of one size each, (n, size) in order of arrival; sizes in order of their first frame."""
    times_ns: list[NDArray[np.int64]]
    """When those frames arrived, (n,) each."""
    timer: bool

    def arrivals(self) -> list[tuple[int, bytes]]:
        """Return each frame with its arrival time in ns, in order of arrival."""
        frames = [
            (at, frame.tobytes())
            for frames, times in zip(self.frames, self.times_ns, strict=True)
            for at, frame in zip(times.tolist(), frames, strict=True)
        ]
        return sorted(frames, key=lambda arrival: arrival[0])


class FlowCounters(NamedTuple):
    """Packets and bytes of one flow since it was made."""

    sent_packets: int
    delivered_packets: int
    delivered_bytes: int
    mean_delay_ns: float
    """Mean time from the sender to the host, the wait in the NIC included; 0 if nothing was delivered."""


class Fabric:
    """A network in virtual time. Build it, load its switches' programs, then alternate `send`, `wake` and `run`.

    Ends of links are (name of a host or switch, port number). Times are integers in nanoseconds from the fabric's
    start.
    """

    def __init__(self, seed: int = 1, max_frame: int = MAX_FRAME) -> None:
        """`seed` fixes all randomness; `max_frame` is the longest frame in bytes that fits any queue or link."""
        self.seed = seed
        self._engine = self._make_engine(max_frame)
        self._nodes = FabricNodes()
        self._host_names: dict[int, str] = {}
        self._cpus: dict[int, Switch] = {}
        self._flows: list[str] = []
        self._traces: dict[tuple[Endpoint, int | None], int] = {}
        self._names: dict[int, Endpoint] = {}
        self._undelivered: list[Wake] = []

    def _make_engine(self, max_frame: int) -> Engine:
        return Engine(max_frame=max_frame)

    # --- building -------------------------------------------------------------------------------------------------

    def add_switch(self, name: str, switch: Switch, cpu_poll_ns: int = 0) -> None:
        """Add a switch.

        Args:
            name: Name that no other node has.
            switch: The switch, which is in no other fabric.
            cpu_poll_ns: Period at whose multiples frames of the CPU port are handed over; 0: at once.

        Raises:
            FabricError: The name or the device id is taken.
        """
        self._nodes.check_new(name)
        for other_name, other in self._nodes.switches.items():
            if other.device_id == switch.device_id:
                raise FabricError(
                    f"device id {switch.device_id} is {other_name}'s already",
                    place=f"switch {name}",
                    value=switch.device_id,
                )
        engine = self._engine
        cpu = engine.add_host(poll_ns=cpu_poll_ns, cpu=True)
        cpu_nic = engine.add_port(memory.NODE_HOST, cpu, 0, self._key("cpu", name))
        switch.join(engine, self._key("switch", name), cpu_nic)
        engine.connect(cpu_nic, switch.port_index(switch.cpu_port))
        self._nodes.switches[name] = switch
        self._cpus[cpu] = switch
        self._name_ports(name, switch)

    def add_host(self, name: str, poll_ns: int = 0, sink: bool = False) -> None:
        """Add a host.

        Args:
            name: Name that no other node has.
            poll_ns: Period at whose multiples the host receives its frames; 0: at once.
            sink: True if frames are only counted.

        Raises:
            FabricError: The name is taken, or the period is negative.
        """
        self._nodes.check_new(name)
        if poll_ns < 0:
            raise FabricError(f"poll_ns is {poll_ns}; it must not be negative", place=f"host {name}", value=poll_ns)
        index = self._engine.add_host(poll_ns=poll_ns, sink=sink)
        self._nodes.hosts[name] = HostNode(index, {})
        self._host_names[index] = name

    def add_link(
        self,
        a: Endpoint,
        b: Endpoint,
        *,
        rate_bps: float | None = None,
        delay_ns: int = 0,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        reorder_ns: int = REORDER_NS,
        corrupt: float = 0.0,
        queue_packets: int | None = 64,
        queue_bytes: int | None = None,
        overhead_bytes: int = 0,
        mtu: int | None = None,
        minimum_share: MinimumShare | None = None,
    ) -> None:
        """Connect two ports, in both directions.

        A switch's port is made if it is not there. A host's NIC has unlimited queues of strict priority. Faults are
        drawn per frame and direction.

        Args:
            a: One end.
            b: The other end.
            rate_bps: Rate of each direction in bit/s; None: unlimited.
            delay_ns: Propagation delay of each direction.
            loss: Probability that a frame is lost.
            duplicate: Probability that a copy of a frame arrives right behind it.
            reorder: Probability that a frame arrives up to `reorder_ns` later, uniformly drawn.
            reorder_ns: Largest extra delay of a reordered frame.
            corrupt: Probability that one bit of a frame flips.
            queue_packets: Depth of each of a switch's queues in packets; None: unlimited.
            queue_bytes: Depth of each of a switch's queues in bytes; None: unlimited.
            overhead_bytes: Bytes per frame that take time on the wire and are not in the frame.
            mtu: Largest number of bytes behind the Ethernet header. Either end drops and counts larger frames; None:
                unlimited.
            minimum_share: Exception from strict priority, at either end; None: none.

        Raises:
            FabricError: An end is unknown or has a link already, or a probability, delay or `mtu` is out of range.
            SwitchValueError: A rate, depth, overhead or share is out of range.
        """
        where = f"link {label(a)} to {label(b)}"
        config = PortConfig(rate_bps, queue_packets, queue_bytes, overhead_bytes, minimum_share)
        faults = {
            "delay_ns": delay_ns,
            "loss": loss,
            "duplicate": duplicate,
            "reorder": reorder,
            "reorder_ns": reorder_ns,
            "corrupt": corrupt,
        }
        if a == b:
            raise FabricError(f"link {label(a)} to itself", value=label(a))
        check_config(where, config)
        check_faults(where, faults)
        if mtu is not None and mtu < 1:
            raise FabricError(f"mtu is {mtu}; it must be 1 or more, or None for unlimited", place=where, value=mtu)
        for end in (a, b):
            if self._has_link(end):
                raise FabricError(f"{label(end)} has a link already", place=where, value=label(end))
        indices = [self._make_end(end, config) for end in (a, b)]
        self._engine.connect(*indices)
        for end, index in zip((a, b), indices, strict=True):
            key = self._key("link", *end)
            self._engine.ports.data[index]["key"] = key
            self._engine.ports.data[index]["digest"] = key
            self._engine.ports.data[index]["longest"] = 0 if mtu is None else mtu + ETHERNET_BYTES
            write_faults(self._engine.ports.data[index], faults)

    def _has_link(self, end: Endpoint) -> bool:
        name, number = end
        if name not in self._nodes.switches:
            return number in self._nodes.host(name).ports
        switch = self._nodes.switches[name]
        return number in switch.ports and self._engine.ports.data[switch.port_index(number)]["peer"] != NONE

    def _make_end(self, end: Endpoint, config: PortConfig) -> int:
        """Index of a port that has no link yet; a host's NIC uses the settings of `config` that are not its queues'."""
        name, number = end
        if name in self._nodes.switches:
            switch = self._nodes.switches[name]
            if number not in switch.ports:
                switch.add_port(number)
            settings = {field.name: getattr(config, field.name) for field in fields(config)}
            switch.set_port(number, **settings)
            index = switch.port_index(number)
        else:
            host = self._nodes.host(name)
            index = host.ports[number] = self._engine.add_port(memory.NODE_HOST, host.index, number)
            set_rate(self._engine, index, config.rate_bps)
            self._engine.ports.data[index]["overhead_bytes"] = config.overhead_bytes
            set_minimum_share(self._engine, index, config.minimum_share)
        self._names[index] = end
        return index

    def set_link(
        self,
        end: Endpoint,
        *,
        rate_bps: float | EllipsisType | None = ...,
        delay_ns: int | EllipsisType = ...,
        loss: float | EllipsisType = ...,
        duplicate: float | EllipsisType = ...,
        reorder: float | EllipsisType = ...,
        reorder_ns: int | EllipsisType = ...,
        corrupt: float | EllipsisType = ...,
        up: bool | EllipsisType = ...,
        both: bool = True,
    ) -> None:
        """Change the link at one of its ends; omitted settings stay.

        Frames in flight when a link goes down, or sent into it, are lost. The switches at its ends see the change at
        once, and selectors choose no member that watches such a port. The frame being sent keeps its transmission time.
        Depths of queues are the switch's: `Switch.set_port`.

        Args:
            end: One end of the link.
            rate_bps: Rate in bit/s; None: unlimited.
            delay_ns: Propagation delay.
            loss: Probability, as in `add_link`, like the other faults.
            duplicate: Probability.
            reorder: Probability.
            reorder_ns: Largest extra delay of a reordered frame.
            corrupt: Probability.
            up: False takes the link down, always in both directions.
            both: False to change only the direction out of `end`.

        Raises:
            FabricError: There is no link, or a value is out of range.
        """
        faults = {
            "delay_ns": delay_ns,
            "loss": loss,
            "duplicate": duplicate,
            "reorder": reorder,
            "reorder_ns": reorder_ns,
            "corrupt": corrupt,
        }
        given: dict[str, Any] = {name: value for name, value in faults.items() if value is not ...}
        where = f"link at {label(end)}"
        check_faults(where, given)
        if not isinstance(rate_bps, EllipsisType):
            check_config(where, PortConfig(rate_bps))
        index = self._nodes.port(end)
        peer = int(self._engine.ports.data[index]["peer"])
        if peer == NONE:
            raise FabricError(f"{label(end)} has no link", value=label(end))
        for port in (index, peer) if both else (index,):
            name = self._names[port]
            write_faults(self._engine.ports.data[port], given)
            if not isinstance(rate_bps, EllipsisType):
                if name[0] in self._nodes.switches:
                    self._nodes.switches[name[0]].set_port(name[1], rate_bps=rate_bps)
                else:
                    set_rate(self._engine, port, rate_bps)
        if not isinstance(up, EllipsisType):
            for port in (index, peer):
                self._engine.ports.data[port]["up"] = up
                if not up:
                    self._engine.drop_in_flight(port)
                self._update_links(self._names[port][0])

    def add_flow(
        self,
        host: str,
        frame: bytes,
        *,
        rate_bps: float,
        start_ns: int = 0,
        stop_ns: int | None = None,
        jitter: float = 0.0,
        priority: int = 0,
        port: int = 0,
    ) -> int:
        """Send a frame again and again from a host's NIC, in native code.

        Hosts count these frames but do not see them; switches treat them like any other.

        Args:
            host: Name of the sender.
            frame: The whole frame.
            rate_bps: Mean rate in bit/s of frames without overhead.
            start_ns: Time of the first frame; now, if it has passed.
            stop_ns: Time after which none is sent; None: never.
            jitter: Each gap of 8 · length / rate is stretched by a factor drawn uniformly from 1 ± this, 0…1.
            priority: Priority in the NIC, 0…7; 7 is sent first.
            port: Port of the NIC.

        Returns:
            Number of the flow, for `flow_counters`.

        Raises:
            FabricError: The host has no such port, or a value is out of range.
        """
        if not rate_bps > 0 or not 0 <= jitter <= 1:
            raise FabricError(
                f"rate {rate_bps} bit/s must be positive and jitter {jitter} between 0 and 1",
                place=f"flow of {host}",
                value=rate_bps,
            )
        _check_priority(f"flow of {host}", priority)
        start_ns = max(start_ns, self.now_ns)
        data = as_frames(frame, self._engine.max_frame)[0].copy()
        self._flows.append(host)
        return self._engine.add_flow(
            self._nodes.port((host, port)),
            data,
            priority,
            8e9 * len(data) / rate_bps,
            start_ns,
            UNLIMITED if stop_ns is None else stop_ns,
            jitter,
            self._key("flow", host, len(self._flows)),
        )

    def new_flow(self, host: str) -> int:
        """Create a flow of a host and return its number.

        Frames passed to `send` with this number are counted as the flow's, on links and at its end (`flow_counters`),
        and are delivered to the host that they reach.
        """
        self._nodes.host(host)
        self._flows.append(host)
        return self._engine.add_flow_by_hand()

    def meter(self, function: int, argument: int = 0) -> None:
        """Call native code for each frame that a port sends onto its link, and add up its positive results.

        `PortCounters.metered_bytes` has the sums, `metered_packets` the number of positive results.

        Args:
            function: Address of `int64 meter(const void *frame, int64 bytes, int64 argument)`, which must stay valid.
            argument: Third argument of each call.
        """
        self._engine.meter(function, argument)

    # --- running --------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Virtual time in ns since the fabric was made."""
        return self._engine.now_ns

    def send(
        self, host: str, frames: bytes | NDArray[np.uint8], priority: int = 0, port: int = 0, flow: int | None = None
    ) -> None:
        """Put frames into a host's NIC at the current time.

        Args:
            host: Name of the sender.
            frames: One frame, or frames of one size, uint8 (n, size).
            priority: Priority in the NIC, 0…7; 7 is sent first.
            port: Port of the NIC.
            flow: Number of a flow (`new_flow`) as which they count; None: none.

        Raises:
            FabricError: The host, port, priority or flow is unknown.
        """
        _check_priority(f"frames of {host}", priority)
        number = NONE if flow is None else self._checked_flow(flow)
        rows = as_frames(frames, self._engine.max_frame)
        self._engine.send_of_flow(number, self._nodes.port((host, port)), rows, priority)

    def wake(self, host: str, at_ns: int | None) -> None:
        """Set a host's timer, which replaces the one it had.

        Args:
            host: Name of the host.
            at_ns: Time of the wake-up; one that has passed means now; None: no timer.
        """
        self._engine.set_timer(self._nodes.host(host).index, NONE if at_ns is None else max(at_ns, self.now_ns))

    def run(self, until_ns: int) -> list[Wake]:
        """Advance to the earliest instant at which hosts are due.

        On the way, packet-ins are given to `Switch.on_packet_in` at their instants.

        Args:
            until_ns: Latest instant.

        Returns:
            Wakes of that instant, in a fixed order; empty when `until_ns` is reached without one.

        Raises:
            FabricError: `until_ns` has passed.
        """
        if until_ns < self.now_ns:
            raise FabricError(f"it is {self.now_ns} ns already", place="run", value=until_ns)
        engine = self._engine
        while not self._undelivered:
            for switch in self._nodes.switches.values():
                switch.release_packet_outs()
            due = engine.run(until_ns)
            for switch in self._nodes.switches.values():
                switch.poll_digests()
            if not due:
                return []
            # Hosts first: a callback that raises must not cost them their frames.
            self._undelivered = [self._wake_of(wake) for wake in due if wake.host not in self._cpus]
            for wake in due:
                if wake.host in self._cpus:
                    self._cpus[wake.host].deliver_packet_ins()
        wakes, self._undelivered = self._undelivered, []
        return wakes

    def wakes_until(self, end_ns: int) -> Iterator[Wake]:
        """Yield every wake up to an instant, which is then the current time.

        Frames may be sent and timers set between two of them.
        """
        while self.now_ns < end_ns:
            yield from self.run(end_ns)

    def _wake_of(self, due: DueHost) -> Wake:
        if due.packets:
            frames, times = by_size(self._engine.drain(due.host, due.packets, due.bytes))
        else:
            frames, times = [], []
        return Wake(self._host_names[due.host], frames, times, bool(due.timer))

    # --- observing ------------------------------------------------------------------------------------------------

    def port_counters(self) -> dict[Endpoint, PortCounters]:
        """Return counters of every port of every switch, without the CPU ports."""
        return {
            (name, number): switch.port_counters(number)
            for name, switch in self._nodes.switches.items()
            for number in switch.ports
        }

    def nic_counters(self, host: str, port: int = 0) -> PortCounters:
        """Return the counters of one port of a host's NIC. Raises FabricError if there is none."""
        return read_port(self._engine, self._nodes.port((host, port)))

    def flow_counters(self, flow: int) -> FlowCounters:
        """Return the counters of a flow of `add_flow` or `new_flow`. Raises FabricError for an unknown number."""
        record = self._engine.flows.data[self._checked_flow(flow)]
        delivered = int(record["delivered_packets"])
        mean = float(record["delay_sum_ns"]) / delivered if delivered else 0.0
        return FlowCounters(int(record["sent_packets"]), delivered, int(record["delivered_bytes"]), mean)

    def _checked_flow(self, flow: int) -> int:
        if not 0 <= flow < len(self._flows):
            raise FabricError(f"flow {flow} does not exist; there are {len(self._flows)}", value=flow)
        return flow

    def reset_maxima(self) -> None:
        """Reset the largest queue depths seen (`PortCounters`) to the present depths."""
        for records in (self._engine.ports.data, self._engine.queues.data):
            records["max_depth_packets"] = records["depth_packets"]
            records["max_depth_bytes"] = records["depth_bytes"]

    def record_queue(self, end: Endpoint, interval_ns: int, priority: int | None = None) -> None:
        """Sample a queue's depth from now on.

        Args:
            end: Port of a switch or NIC.
            interval_ns: Time between two samples.
            priority: Queue to sample, 0…7; None: the port's queues together.

        Raises:
            FabricError: The queue is recorded already, or a value is out of range.
        """
        if interval_ns < 1:
            raise FabricError(
                f"an interval of {interval_ns} ns is not positive", place=f"queue of {label(end)}", value=interval_ns
            )
        if priority is not None:
            _check_priority(f"queue of {label(end)}", priority)
        if (end, priority) in self._traces:
            raise FabricError(f"queue of {label(end)} is being recorded already", value=label(end))
        self._traces[end, priority] = self._engine.add_trace(self._nodes.port(end), priority, interval_ns)

    def queue_trace(self, end: Endpoint, priority: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what `record_queue` has sampled so far: times (ns) and depths (packets), int64 (n,) each."""
        if (end, priority) not in self._traces:
            raise FabricError(f"queue of {label(end)} is not being recorded", value=label(end))
        return self._engine.trace(self._traces[end, priority])

    def digest(self) -> str:
        """Return a hash over every frame sent so far with its instant, by port: equal for equal seeds and calls."""
        digest = hashlib.blake2b(digest_size=16)
        for index, end in sorted(self._names.items(), key=lambda item: item[1]):
            port = self._engine.ports.data[index]
            digest.update(f"{label(end)} {port['tx_packets']} {port['digest']}\n".encode())
        return digest.hexdigest()

    @property
    def events(self) -> int:
        """Events processed so far."""
        return int(self._engine.world.events)

    @property
    def packets_in_flight(self) -> int:
        """Frames in queues, on links and waiting for hosts."""
        return self._engine.packets_in_use

    # --- names ----------------------------------------------------------------------------------------------------

    def _key(self, *parts: str | int) -> int:
        """A 64-bit key for one purpose, from the fabric's seed alone: not from the order of calls."""
        text = repr((self.seed, *parts)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def _name_ports(self, name: str, switch: Switch) -> None:
        for number in (*switch.ports, switch.cpu_port):
            index = switch.port_index(number)
            self._names[index] = (name, number)
            self._engine.ports.data[index]["digest"] = self._key("link", name, number)

    def _update_links(self, name: str) -> None:
        """Let a switch know which of its links are down."""
        if name in self._nodes.switches:
            switch, ports = self._nodes.switches[name], self._engine.ports.data
            switch.set_ports_down([n for n in switch.ports if not ports[switch.port_index(n)]["up"]])


def _check_priority(what: str, priority: int) -> None:
    if not 0 <= priority < PRIORITIES:
        raise FabricError(f"priority {priority} is not one of 0 … {PRIORITIES - 1}", place=what, value=priority)
