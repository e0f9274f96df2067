"""Heartbeats of a run's workers through the emulated fabric, to the host where the controller takes them.

workers ──▶ one frame each in every interval, class 48 or bulk ──▶ the fabric's queues ──▶ the controller's host
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ...controller.congestion.control_class import control_delay_ns
from ...controller.jobs.registry import EventCounts
from ...controller.service.heartbeats import HeartbeatReader
from ...emulator.fabric import Wake
from ...topologies import Routes, mac_number
from ...wire.frames import (
    DSCP_BULK,
    DSCP_CONTROL,
    FRAME_HEADER_BYTES,
    decapsulate,
    encapsulate,
    frame_headers,
    traffic_class,
)
from ...wire.heartbeat import HEARTBEAT_PORT, Heartbeat
from ..config.heartbeats import HEARTBEAT_FRAME_BYTES, MIN_STRETCH, HeartbeatConfig
from ..records.record import HeartbeatFigures
from .agents import VirtualWorker
from .emulated import EmulatedFabric

_KEPT_DELAYS: Final = 200
"""Maximum number of single delays that are kept."""


class VirtualHeartbeats:
    """Senders of heartbeats, and their receiver."""

    def __init__(
        self, emulated: EmulatedFabric, config: HeartbeatConfig, hear: Callable[[int, str, Heartbeat], None], seed: int
    ) -> None:
        """Start the heartbeats.

        Args:
            emulated: the fabric.
            config: period, class and lease.
            hear: called with job, host and heartbeat for each that arrives.
            seed: seed of the intervals between heartbeats.
        """
        self.at = config.to
        """The controller's host."""
        self.sent = 0
        self.delays_ns: list[int] = []
        """Delays of the heartbeats received, in order of arrival."""
        self._emulated = emulated
        self._config = config
        self._rng = random.Random(f"{seed} heartbeats")
        self._hear = hear
        self._address = int(emulated.topology.host(config.to).address)
        self.reader = HeartbeatReader(emulated.topology, lambda _, host: host)
        """Reader of heartbeats; the token of a host's seat is the host's name here."""

    @property
    def delivered(self) -> int:
        """Count of heartbeats that have arrived."""
        return len(self.delays_ns)

    def beat(self, workers: Sequence[VirtualWorker]) -> int:
        """Send all heartbeats at this instant, as no other way of sending makes longer queues of them; after how
        many ns they are to send the next.
        """
        self.sent += len(workers)
        fabric, topology = self._emulated.fabric, self._emulated.topology
        dscp = DSCP_CONTROL if self._config.in_class else DSCP_BULK
        for worker in workers:
            core = worker.core
            beat = Heartbeat(core.plan.job, self.sent, core.rounds_complete, not core.idle, fabric.now_ns)
            host = topology.host(worker.name)
            frame = encapsulate(
                np.frombuffer(beat.pack(worker.name), np.uint8)[None],
                source=int(host.address),
                destination=self._address,
                source_mac=mac_number(host.mac),
                destination_mac=mac_number(topology.attached_switch(worker.name).mac),
                source_port=HEARTBEAT_PORT,
                destination_port=HEARTBEAT_PORT,
                dscp=dscp,
            )
            fabric.send(worker.name, frame, traffic_class(dscp))
        return int(self._config.interval * self._rng.uniform(MIN_STRETCH, 2 - MIN_STRETCH))

    def figures(
        self, routes: Routes, workers: Sequence[str], largest_bytes: int, counts: EventCounts
    ) -> HeartbeatFigures:
        """Summarise the heartbeats of these workers' hosts.

        Args:
            routes: the fabric's routes.
            workers: names of the hosts.
            largest_bytes: length of the fabric's longest frame.
            counts: the controller's counters.
        """
        bound_ns = control_delay_ns(
            routes,
            workers,
            self.at,
            frame_bytes=HEARTBEAT_FRAME_BYTES,
            period_ns=int(MIN_STRETCH * self._config.interval),
            largest_bytes=largest_bytes,
        )
        delays_ns = self.delays_ns or [0]
        longest_first = np.sort(self.delays_ns)[::-1]
        ranks = np.unique(np.geomspace(1, max(self.delivered, 1), _KEPT_DELAYS).round().astype(int)) - 1
        ranks = ranks[ranks < self.delivered]
        return HeartbeatFigures(
            sent=self.sent,
            delivered=self.delivered,
            p999_us=float(np.percentile(delays_ns, 99.9)) / 1e3,
            longest_us=max(delays_ns) / 1e3,
            bound_us=bound_ns / 1e3,
            delays_us=(longest_first[ranks] / 1e3).tolist(),
            longer=ranks.tolist(),
            taken_for_dead=counts.leases_expired,
            explained=counts.verdicts_deferred,
        )

    def receive(self, wake: Wake) -> None:
        """Receive heartbeats at the controller's host, which may receive other packets, too."""
        for frames, times in zip(wake.frames, wake.times_ns, strict=True):
            if frames.shape[1] < FRAME_HEADER_BYTES:
                continue
            is_beat = frame_headers(frames)["destination_port"] == HEARTBEAT_PORT
            for frame, time_ns in zip(frames[is_beat], times[is_beat], strict=True):
                datagrams, _ = decapsulate(frame[None], self._address, HEARTBEAT_PORT)
                if not len(datagrams):
                    continue
                address, payload = int(datagrams.addresses[0]), datagrams.payload[0].tobytes()
                if (heard := self.reader.read(address, payload, int(time_ns))) is None:
                    continue
                host, beat = heard
                self.delays_ns.append(int(time_ns) - beat.sent_ns)
                self._hear(beat.job, host, beat)
