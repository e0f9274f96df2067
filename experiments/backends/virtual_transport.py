"""The transport in virtual time: cores on hosts of the emulated fabric, in addition to jobs' agents.

::

    Transport ─▶ TransportCore ──packets──▶ FrameWriter ──frames──▶ fabric
                      ▲                                                │
                      └── frames of UDP port 22346 ◀── a host's wake ◀─┘     deadline ──▶ EventList
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...emulator.fabric import Wake
from ...hosts.transport.core import TransportCore
from ...hosts.transport.options import TransportOptions, TransportPlan
from ...hosts.transport.pending import Pending
from ...hosts.transport.transport import Transport
from ...topologies import mac_number
from ...wire.frames import DSCP_BULK, FRAME_HEADER_BYTES, FrameWriter, Rejects, decapsulate, frame_headers
from ...wire.transport import DSCP_LOWER_EFFORT, TRANSPORT_PORT
from ..errors import ExperimentError
from .emulated import EmulatedFabric
from .event_queue import EventList

Returned = TypeVar("Returned")


class VirtualEndpoint:
    """One host's core: the `Endpoint` of a `Transport`. A caller that waits must let time pass first."""

    def __init__(self, emulated: EmulatedFabric, name: str, core: TransportCore, events: EventList) -> None:
        host = emulated.topology.host(name)
        self.core = core
        self.name = name
        self.rejects = Rejects()
        """Frames to the transport's port that are no good datagrams."""
        self._fabric = emulated.fabric
        self._address = int(host.address)
        self._writer = FrameWriter(
            source=self._address,
            source_mac=mac_number(host.mac),
            destination_mac=mac_number(emulated.topology.attached_switch(name).mac),
            port=TRANSPORT_PORT,
            dscp=DSCP_LOWER_EFFORT if core.options.lower_effort else DSCP_BULK,
        )
        self._events = events
        self._looks_ns: int | None = None  # when the core is polled though nothing comes, at the latest

    def call(self, function: Callable[[], Returned]) -> Returned:
        """Same contract as `Endpoint.call`."""
        result = function()
        self.flush()
        return result

    def wait(self, pending: Pending[Any], timeout_s: float) -> None:
        """Returns at once: no time passes here."""

    def close(self) -> None:
        """Same contract as `Endpoint.close`."""
        self.core.close()
        self.flush()

    def take(self, frames: np.ndarray) -> None:
        """Frames of one length have come to the transport's port."""
        datagrams, rejects = decapsulate(frames, self._address, TRANSPORT_PORT)
        self.rejects += rejects
        if len(datagrams):
            self.core.receive(self._fabric.now_ns, datagrams)

    def flush(self) -> None:
        """Send what the core has to send, and poll it again at its deadline."""
        now_ns = self._fabric.now_ns
        for datagrams in self.core.poll(now_ns):
            self._fabric.send(self.name, self._writer.encapsulate(datagrams))
        due_ns = self.core.deadline_ns
        if due_ns is not None and (self._looks_ns is None or due_ns < self._looks_ns):
            self._looks_ns = max(due_ns, now_ns)
            self._events.schedule(self._looks_ns, partial(self._look, self._looks_ns))

    def _look(self, due_ns: int) -> None:
        if self._looks_ns == due_ns:
            self._looks_ns = None
            self.flush()


class VirtualTransports:
    """All endpoints of a run."""

    def __init__(self, emulated: EmulatedFabric, events: EventList) -> None:
        self._emulated = emulated
        self._events = events
        self._endpoints: dict[str, VirtualEndpoint] = {}

    def connect(self, job: int, hosts: Sequence[str], key: str, options: TransportOptions) -> list[Transport]:
        """A transport at each host, by rank. Raises ExperimentError where a host has one already."""
        topology = self._emulated.topology
        addresses = tuple(int(topology.host(name).address) for name in hosts)
        for rank, name in enumerate(hosts):
            if name in self._endpoints:
                raise ExperimentError(f"{name}: has a transport already; a host has one in a run")
            core = TransportCore(TransportPlan(job, addresses[rank], addresses, rank + 1, key), options)
            self._endpoints[name] = VirtualEndpoint(self._emulated, name, core, self._events)
        return [Transport(self._endpoints[name]) for name in hosts]

    def take(self, wake: Wake) -> Wake:
        """Return a host's wake-up without the transport's frames, which go to its core."""
        endpoint = self._endpoints.get(wake.host)
        if endpoint is None:
            return wake
        others, times_ns = [], []
        for frames, arrived_ns in zip(wake.frames, wake.times_ns, strict=True):
            mine = np.zeros(len(frames), np.bool_)
            if frames.shape[1] >= FRAME_HEADER_BYTES:
                mine = frame_headers(frames)["destination_port"] == TRANSPORT_PORT
            if mine.any():
                endpoint.take(frames[mine])
            others.append(frames[~mine])
            times_ns.append(arrived_ns[~mine])
        endpoint.flush()
        return replace(wake, frames=others, times_ns=times_ns)
