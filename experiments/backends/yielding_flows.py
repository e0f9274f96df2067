"""Background flows that yield, in virtual time: senders and receivers on hosts of the emulated fabric.

::

    YieldingSender ──numbers──▶ data, ECT(0) ──fabric──▶ its destination, at its host's next poll
          ▲                                                   │ one acknowledgement each: was it marked with CE?
          └────────────── at the source's next poll ◀──fabric─┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...emulator.fabric import Wake
from ...hosts.congestion import YieldingSender
from ...topologies import mac_number
from ...wire.frames import (
    BULK_PRIORITY,
    ECN_CAPABLE,
    FRAME_HEADER_BYTES,
    are_congested,
    decapsulate,
    encapsulate,
    frame_headers,
)
from ...wire.transfer import TRANSFER_PORT, acknowledgements, are_acknowledgements, are_marked, data_packets, heads_of
from ..config.background import BACKGROUND_PAYLOAD_BYTES, YieldingFlow
from ..records.record import FlowTrace
from .emulated import EmulatedFabric
from .event_queue import EventList

FLOW_SAMPLE_NS: Final = 100_000


@dataclass(slots=True)
class _Flow:
    """One background flow that yields."""

    config: YieldingFlow
    sender: YieldingSender
    out: int
    """Number of its data among the fabric's flows."""
    back: int
    """Number of its acknowledgements among them."""
    looks_ns: int | None = None
    """When the sender is looked at though nothing comes, at the latest."""
    time_ns: list[int] = field(default_factory=list)
    packets: list[int] = field(default_factory=list)


class YieldingFlows:
    """All yielding flows of a run."""

    def __init__(
        self,
        emulated: EmulatedFabric,
        flows: Iterable[YieldingFlow],
        events: EventList,
        life_ns: Callable[[str, str], int],
    ) -> None:
        """Create the flows.

        Args:
            emulated: The fabric.
            flows: The run's yielding flows.
            events: The run's events.
            life_ns: Returns the longest time in ns that a packet from one host to another and its acknowledgement can
                be in the network.
        """
        self._emulated = emulated
        self._fabric = emulated.fabric
        self._events = events
        self._flows: dict[tuple[int, int, int], _Flow] = {}
        """Flows by the addresses of source and destination, and the source's port."""
        self._hosts = set[str]()
        """Those that send or receive one of the flows."""
        topology = emulated.topology
        for each in flows:
            self._hosts |= {each.source, each.destination}
            ends = int(topology.host(each.source).address), int(topology.host(each.destination).address)
            out, back = (self._fabric.new_flow(host) for host in (each.source, each.destination))
            stays_ns = life_ns(each.source, each.destination)
            sender = YieldingSender(each.window, start_ns=each.start, stop_ns=each.stop, life_ns=stays_ns)
            self._flows[*ends, each.port] = flow = _Flow(each, sender, out, back)
            self._schedule_at(flow, each.start)
        if self._flows:
            self._sample()

    def receive(self, wake: Wake) -> Wake:
        """Process the packets of these flows; return the rest of the wake."""
        if wake.host not in self._hosts:
            return wake
        others, times_ns = [], []
        for frames, arrived_ns in zip(wake.frames, wake.times_ns, strict=True):
            mine = np.zeros(len(frames), np.bool_)
            if frames.shape[1] >= FRAME_HEADER_BYTES:
                heads = frame_headers(frames)
                mine = (heads["destination_port"] == TRANSFER_PORT) | (heads["source_port"] == TRANSFER_PORT)
            if mine.any():
                self._receive(wake.host, frames[mine])
            others.append(frames[~mine])
            times_ns.append(arrived_ns[~mine])
        return replace(wake, frames=others, times_ns=times_ns)

    @property
    def traces(self) -> list[FlowTrace]:
        """Traces of the flows so far."""
        return [self._trace(flow) for flow in self._flows.values()]

    def _trace(self, flow: _Flow) -> FlowTrace:
        counters = self._fabric.flow_counters(flow.out)
        return FlowTrace(
            source=flow.config.source,
            destination=flow.config.destination,
            port=flow.config.port,
            start_ns=flow.config.start,
            stop_ns=flow.config.stop,
            packet_bytes=FRAME_HEADER_BYTES + BACKGROUND_PAYLOAD_BYTES,
            sent=counters.sent_packets,
            acknowledged=flow.sender.acknowledged,
            marked=flow.sender.marked,
            lost=flow.sender.lost,
            mean_delay_us=counters.mean_delay_ns / 1e3,
            time_ns=[*flow.time_ns, self._fabric.now_ns],
            packets=[*flow.packets, counters.delivered_packets],
        )

    def _receive(self, host: str, frames: NDArray[np.uint8]) -> None:
        """Frames of one size, all of them of these flows: data, or acknowledgements."""
        datagrams, _ = decapsulate(frames, int(self._emulated.topology.host(host).address))
        heads, marked = heads_of(datagrams.payload), are_congested(frames)
        ends = list(
            zip(
                datagrams.addresses.tolist(),
                datagrams.source_ports.tolist(),
                datagrams.destination_ports.tolist(),
                are_acknowledgements(heads).tolist(),
                strict=True,
            )
        )
        for end in dict.fromkeys(ends):
            rows = np.array([other == end for other in ends])
            peer, source_port, port, answered = end
            if answered:
                self._go_on(host, peer, port, heads[rows])
            else:
                self._answer(host, peer, source_port, acknowledgements(heads[rows], marked[rows]))

    def _answer(self, host: str, peer: int, port: int, answers: NDArray[np.uint8]) -> None:
        """A receiver sends acknowledgements to the peer's port; it keeps nothing."""
        here = int(self._emulated.topology.host(host).address)
        flow = self._flows[peer, here, port]
        frames = self._frames(host, peer, answers, source_port=TRANSFER_PORT, destination_port=port)
        self._fabric.send(host, frames, BULK_PRIORITY, flow=flow.back)

    def _go_on(self, host: str, peer: int, port: int, heads: NDArray[np.void]) -> None:
        """Process acknowledgements at the sender on a host's port, and send permitted packets."""
        flow = self._flows[int(self._emulated.topology.host(host).address), peer, port]
        answers = zip(heads["number"].tolist(), are_marked(heads).tolist(), strict=True)
        flow.sender.receive(self._fabric.now_ns, answers)
        self._send(flow)

    def _send(self, flow: _Flow) -> None:
        config = flow.config
        if numbers := flow.sender.poll(self._fabric.now_ns):
            payload = data_packets(np.array(numbers), BACKGROUND_PAYLOAD_BYTES)
            peer = int(self._emulated.topology.host(config.destination).address)
            frames = self._frames(
                config.source,
                peer,
                payload,
                source_port=config.port,
                destination_port=TRANSFER_PORT,
                ecn=ECN_CAPABLE,
            )
            self._fabric.send(config.source, frames, BULK_PRIORITY, flow=flow.out)
        self._schedule_step(flow)

    def _frames(self, host: str, peer: int, payload: NDArray[np.uint8], **fields: int) -> NDArray[np.uint8]:
        topology = self._emulated.topology
        return encapsulate(
            payload,
            source=int(topology.host(host).address),
            destination=peer,
            source_mac=mac_number(topology.host(host).mac),
            destination_mac=mac_number(topology.attached_switch(host).mac),
            **fields,
        )

    def _schedule_step(self, flow: _Flow) -> None:
        """Schedule the sender's next step at its deadline; a step before that postpones itself."""
        due_ns = flow.sender.deadline_ns(self._fabric.now_ns)
        if due_ns is not None and (flow.looks_ns is None or due_ns < flow.looks_ns):
            self._schedule_at(flow, due_ns)

    def _schedule_at(self, flow: _Flow, due_ns: int) -> None:
        flow.looks_ns = due_ns
        self._events.schedule(due_ns, partial(self._on_deadline, flow, due_ns))

    def _on_deadline(self, flow: _Flow, due_ns: int) -> None:
        if flow.looks_ns == due_ns:
            flow.looks_ns = None
            self._send(flow)

    def _sample(self) -> None:
        """Record each flow's progress, now and at every interval."""
        for flow in self._flows.values():
            flow.time_ns.append(self._fabric.now_ns)
            flow.packets.append(self._fabric.flow_counters(flow.out).delivered_packets)
        self._events.schedule(self._fabric.now_ns + FLOW_SAMPLE_NS, self._sample)
