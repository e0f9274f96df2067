"""The transport in virtual time: cores on hosts of the emulated fabric, in addition to jobs' agents; and a run's
transfers, which use it.

::

    Transport ─▶ TransportCore ──packets──▶ FrameWriter ──frames──▶ fabric
                      ▲                                                │
                      └── frames of UDP port 22346 ◀── a host's wake ◀─┘     deadline ──▶ EventList
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...emulator.fabric import Wake
from ...hosts.transport.core import TransportCore
from ...hosts.transport.options import TransportOptions, TransportPlan
from ...hosts.transport.pending import Pending
from ...hosts.transport.transport import Transport, TransportCall
from ...topologies import mac_number
from ...wire.frames import (
    DSCP_BULK,
    DSCP_LOWER_EFFORT,
    FRAME_HEADER_BYTES,
    FrameWriter,
    Rejects,
    decapsulate,
    frame_headers,
    traffic_class,
)
from ...wire.transport import HEADER_BYTES, TRANSPORT_PORT, heads_of
from ..config.background import TRANSFER_BYTES, TransferFlow
from ..errors import ExperimentError
from ..records.record import FlowTrace
from .emulated import EmulatedFabric
from .event_queue import EventList
from .yielding_flows import FLOW_SAMPLE_NS

Returned = TypeVar("Returned")

_LAST_JOB: Final = (1 << 16) - 1
"""Job of the first transfer; the others have those before it. Jobs of runs have small numbers."""


class VirtualEndpoint:
    """One host's core: the `Endpoint` of a `Transport`. A caller that waits must let time pass first."""

    def __init__(
        self, emulated: EmulatedFabric, name: str, core: TransportCore, events: EventList, flow: int | None = None
    ) -> None:
        """Create the endpoint of one host.

        Args:
            emulated: The fabric.
            name: Name of the host.
            core: State machine of its transport.
            events: Events of the run, which wake the core for its timers.
            flow: Flow of the fabric that its frames count as; None: they count as the job's.
        """
        host = emulated.topology.host(name)
        self.core = core
        self.name = name
        self.rejects = Rejects()
        """Frames to the transport's port that are no good datagrams."""
        self._fabric = emulated.fabric
        self._address = int(host.address)
        dscp = DSCP_LOWER_EFFORT if core.options.lower_effort else DSCP_BULK
        self._writer = FrameWriter(
            source=self._address,
            source_mac=mac_number(host.mac),
            destination_mac=mac_number(emulated.topology.attached_switch(name).mac),
            port=TRANSPORT_PORT,
            dscp=dscp,
        )
        self._priority = traffic_class(dscp)
        self._events = events
        self._flow = flow
        self._looks_ns: int | None = None  # when the core is polled though nothing comes, at the latest

    def call(self, function: Callable[[], Returned]) -> Returned:
        """Same contract as `Endpoint.call`."""
        result = function()
        self.flush()
        return result

    def wait(self, pending: Pending[Any], timeout_s: float) -> None:
        """Return at once: no time passes here."""

    def close(self) -> None:
        """Same contract as `Endpoint.close`."""
        self.core.close()
        self.flush()

    def receive(self, frames: np.ndarray) -> None:
        """Process frames of one length that have arrived at the transport's port."""
        datagrams, rejects = decapsulate(frames, self._address, TRANSPORT_PORT)
        self.rejects += rejects
        if len(datagrams):
            self.core.receive(self._fabric.now_ns, datagrams)

    def flush(self) -> None:
        """Send what the core has to send, and poll it again at its deadline."""
        now_ns = self._fabric.now_ns
        for datagrams in self.core.poll(now_ns):
            self._fabric.send(self.name, self._writer.encapsulate(datagrams), self._priority, flow=self._flow)
        due_ns = self.core.deadline_ns
        if due_ns is not None and (self._looks_ns is None or due_ns < self._looks_ns):
            self._looks_ns = max(due_ns, now_ns)
            self._events.schedule(self._looks_ns, partial(self._on_deadline, self._looks_ns))

    def _on_deadline(self, due_ns: int) -> None:
        if self._looks_ns == due_ns:
            self._looks_ns = None
            self.flush()


class VirtualTransports:
    """All endpoints of a run."""

    def __init__(self, emulated: EmulatedFabric, events: EventList) -> None:
        self._emulated = emulated
        self._events = events
        self._endpoints: dict[str, dict[int, VirtualEndpoint]] = {}
        """Endpoints by host and number of the job."""

    def connect(
        self,
        job: int,
        hosts: Sequence[str],
        key: str,
        options: TransportOptions,
        flows: Sequence[int | None] | None = None,
    ) -> list[Transport]:
        """Return a transport at each host, by rank.

        Args:
            job: Number that the hosts' packets carry.
            hosts: Names of the hosts.
            key: The job's key.
            options: Options of all ends.
            flows: Flow of the fabric that each end's frames count as; None: the job's frames.

        Raises:
            ExperimentError: A host has a transport of this job already.
        """
        topology = self._emulated.topology
        addresses = tuple(int(topology.host(name).address) for name in hosts)
        for rank, name in enumerate(hosts):
            if job in self._endpoints.setdefault(name, {}):
                raise ExperimentError(f"{name}: has a transport of job {job} already; a host has one of a job")
            core = TransportCore(TransportPlan(job, addresses[rank], addresses, rank + 1, key), options)
            flow = None if flows is None else flows[rank]
            self._endpoints[name][job] = VirtualEndpoint(self._emulated, name, core, self._events, flow)
        return [Transport(self._endpoints[name][job]) for name in hosts]

    def receive(self, wake: Wake) -> Wake:
        """Return a host's wake-up without the transport's frames, which go to its cores."""
        endpoints = self._endpoints.get(wake.host)
        if not endpoints:
            return wake
        others, times_ns = [], []
        for frames, arrived_ns in zip(wake.frames, wake.times_ns, strict=True):
            mine = np.zeros(len(frames), np.bool_)
            if frames.shape[1] >= FRAME_HEADER_BYTES:
                mine = frame_headers(frames)["destination_port"] == TRANSPORT_PORT
            if mine.any():
                self._deliver(endpoints, frames[mine])
            others.append(frames[~mine])
            times_ns.append(arrived_ns[~mine])
        for endpoint in endpoints.values():
            endpoint.flush()
        return replace(wake, frames=others, times_ns=times_ns)

    @staticmethod
    def _deliver(endpoints: Mapping[int, VirtualEndpoint], frames: NDArray[np.uint8]) -> None:
        """Pass frames of one length to the endpoints of their jobs, and those of no job here to the first endpoint."""
        jobs = np.full(len(frames), -1)
        if frames.shape[1] >= FRAME_HEADER_BYTES + HEADER_BYTES:
            jobs = heads_of(frames[:, FRAME_HEADER_BYTES:])["job"].astype(np.int64)
        first = next(iter(endpoints))
        jobs = np.where(np.isin(jobs, [*endpoints]), jobs, first)
        for job in np.unique(jobs).tolist():
            endpoints[job].receive(frames[jobs == job])


@dataclass(slots=True)
class _Transfer:
    """One background flow of messages."""

    config: TransferFlow
    source: Transport
    destination: Transport
    out: int
    """Number of its data among the fabric's flows."""
    value: bytes
    sent: TransportCall[None] | None = None
    """The message under way."""
    received: TransportCall[Any] | None = None
    messages: int = 0
    time_ns: list[int] = field(default_factory=list)
    packets: list[int] = field(default_factory=list)


class Transfers:
    """All transfers of a run: from each source one message after the other, from start to stop."""

    def __init__(
        self,
        emulated: EmulatedFabric,
        transports: VirtualTransports,
        flows: Iterable[TransferFlow],
        events: EventList,
        seed: int,
        life_ns: Callable[[str, str], int],
    ) -> None:
        """Create the transfers of a run.

        Args:
            emulated: The fabric.
            transports: Transports of the run.
            flows: Transfers in the run file.
            events: Events of the run.
            seed: Seed of the run, from which the keys of the transports are made.
            life_ns: Returns the longest time in ns that a packet between two hosts and its acknowledgement can be in
                the network.
        """
        self._fabric = emulated.fabric
        self._events = events
        self._transfers: list[_Transfer] = []
        for index, flow in enumerate(flows):
            hosts = (flow.source, flow.destination)
            options = TransportOptions(window=flow.window, lower_effort=flow.lower_effort, life_ns=life_ns(*hosts))
            out, back = (self._fabric.new_flow(host) for host in hosts)
            ends = transports.connect(_LAST_JOB - index, hosts, f"{seed:064x}", options, (out, back))
            transfer = _Transfer(flow, ends[0], ends[1], out, bytes(flow.bytes))
            self._transfers.append(transfer)
            events.schedule(flow.start, partial(self._begin, transfer))
        if self._transfers:
            self._sample()

    def go_on(self) -> None:
        """Begin the next message of each transfer whose last one has arrived."""
        for transfer in self._transfers:
            if transfer.received is not None and transfer.received.done():
                transfer.received.wait(0)
                transfer.messages += 1
                transfer.received = None
                self._begin(transfer)

    @property
    def traces(self) -> list[FlowTrace]:
        """Traces of the transfers so far."""
        return [self._trace(transfer) for transfer in self._transfers]

    def _begin(self, transfer: _Transfer) -> None:
        stop_ns = transfer.config.stop
        if stop_ns is None or self._fabric.now_ns < stop_ns:
            transfer.received = transfer.destination.recv_async(0)
            transfer.sent = transfer.source.send_async(1, transfer.value)

    def _trace(self, transfer: _Transfer) -> FlowTrace:
        counters, counts = self._fabric.flow_counters(transfer.out), transfer.source.endpoint.core.counters
        return FlowTrace(
            kind="transfer",
            source=transfer.config.source,
            destination=transfer.config.destination,
            port=TRANSPORT_PORT,
            start_ns=transfer.config.start,
            stop_ns=transfer.config.stop,
            packet_bytes=FRAME_HEADER_BYTES + TRANSFER_BYTES,
            sent=counters.sent_packets,
            acknowledged=counts.accepted,
            marked=0,
            lost=counts.retransmitted,
            messages=transfer.messages,
            mean_delay_us=counters.mean_delay_ns / 1e3,
            time_ns=[*transfer.time_ns, self._fabric.now_ns],
            packets=[*transfer.packets, counters.delivered_packets],
        )

    def _sample(self) -> None:
        """Record each transfer's progress, now and at every interval."""
        for transfer in self._transfers:
            transfer.time_ns.append(self._fabric.now_ns)
            transfer.packets.append(self._fabric.flow_counters(transfer.out).delivered_packets)
        self._events.schedule(self._fabric.now_ns + FLOW_SAMPLE_NS, self._sample)
