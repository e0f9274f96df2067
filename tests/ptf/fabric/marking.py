"""Queues that are over their threshold are marked, windows are written down, and hosts are policed."""

from collections.abc import Iterator

from scapy.layers.l2 import Ether

from weir.controller.congestion import CongestionOptions, LinkBudget
from weir.controller.congestion.marking import marking_entries, policer_entries
from weir.controller.p4runtime.entries import Item
from weir.tests.ptf.rig import SWITCH, WORKERS, FabricTest
from weir.topologies.model import Endpoint
from weir.wire.aggregation import MessageFlag

NOT_ECT, ECT, CE = 0, 2, 3
WINDOW, CONGESTED_WINDOW = 40, 7
SECONDS_LONG = CongestionOptions(bound_packets=500_000)
"""A wait that no packet here has, though bmv2 may be slow."""


class MarkingTest(FabricTest):
    def bounds(self, threshold: int) -> Iterator[Item]:
        """Entries for all ports' queues: over the threshold from 0 packets on, or never with a test's traffic."""
        for port in self.ports.values():
            budget = LinkBudget(
                Endpoint(SWITCH, port),
                threshold=threshold,
                window=WINDOW,
                congested_window=CONGESTED_WINDOW,
                bound=64.0,
                streams=1,
                copies=0,
                windows=WINDOW,
                probes=0,
                share=0.0,
                burst=0.0,
                others=0,
                gap_ns=0,
                formula="",
                refusal="",
            )
            yield from marking_entries(self.topology, budget, SECONDS_LONG)

    def datagram(self, ecn: int, *, left: bool) -> bytes:
        """Datagram from h1 to h2, as received or as departing."""
        packet = Ether(self.frame(b"payload", "h1", "h2", left=left, destination_port=9, ttl=64 - left))
        packet.payload.tos = ecn
        del packet.payload.chksum
        return bytes(packet)


class WhatWaitsIsMarked(MarkingTest):
    """Waiting packets are marked if their transport supports ECN."""

    def runTest(self) -> None:
        self.hold(self.state(more=self.bounds(threshold=0)))
        for comes, leaves in ((ECT, CE), (NOT_ECT, NOT_ECT), (CE, CE)):
            self.send("h1", self.datagram(comes, left=False))
            self.expect(h2=self.datagram(leaves, left=True))
        self.hold(self.state(more=self.bounds(threshold=1000)))
        self.send("h1", self.datagram(ECT, left=False))
        self.expect(h2=self.datagram(ECT, left=True))


class ResultsCarryTheWindowOfTheQueue(MarkingTest):
    """The congested one, and a flag, where the queue is over; never more than they had."""

    def runTest(self) -> None:
        marked = {"window": CONGESTED_WINDOW, "flags": MessageFlag.CONGESTION}
        for job, threshold, told in ((21, 1000, {"window": WINDOW}), (22, 0, marked)):
            self.hold(self.state(self.job(job), more=self.bounds(threshold)))
            for worker in WORKERS:
                self.send(worker, self.contribution(worker, job))
            self.expect(**{worker: self.result(worker, job, **told) for worker in WORKERS})
        job = 23
        self.hold(self.state(self.job(job), more=self.bounds(threshold=1000)))
        for worker in WORKERS:
            self.send(worker, self.contribution(worker, job, window=3))
        self.expect(**{worker: self.result(worker, job, window=3) for worker in WORKERS})


class MessagesInTheControlClassArePoliced(MarkingTest):
    """No host sends any there; one that does is not summed."""

    def runTest(self) -> None:
        job = 24
        policers = policer_entries(self.topology, SWITCH, (), None)
        self.hold(self.state(self.job(job), more=policers))
        payload = bytes(bytearray(self.contribution("h1", job))[42:])
        before = self.drops()
        self.send("h1", self.frame(payload, "h1", "s1", dscp=48))
        self.expect_nothing()
        assert self.drops()["policed"] == before["policed"] + 1
        for worker in WORKERS:
            self.send(worker, self.contribution(worker, job))
        self.expect(**{worker: self.result(worker, job) for worker in WORKERS})
