"""The transport through the compiled switch program, with and without a job: goodput, and the queues' bounds."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import numpy as np
import pytest

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.config.background import BACKGROUND_PAYLOAD_BYTES
from weir.experiments.errors import ExperimentError
from weir.experiments.records.record import FlowTrace
from weir.hosts.transport.options import TransportOptions
from weir.tests.paths import ROOT
from weir.topologies import Endpoint
from weir.wire.transport import HEADER_BYTES, PAYLOAD_BYTES

RUN: Final = ROOT / "experiments" / "queues" / "yielding.yaml"
TRANSFERS: Final = ROOT / "experiments" / "queues" / "transfers.yaml"
RATE_BPS: Final = 1e9
UP: Final = Endpoint("s1", 7)
"""The one way from the first rack to the second."""
PAIRS: Final = (("h3", "h8"), ("h4", "h9"), ("h5", "h10"))
WINDOW: Final = 8
NEVER: Final = "1000s"
OPTIONS: Final = TransportOptions(window=WINDOW, payload_bytes=BACKGROUND_PAYLOAD_BYTES - HEADER_BYTES)


def declared(**changes: Any) -> RunConfig:
    """The run with the transport's windows declared: flows of its hosts that never begin themselves."""
    flows = [
        {"source": source, "destination": destination, "kind": "yielding", "window": WINDOW, "start": NEVER}
        for source, destination in PAIRS
    ]
    return RunConfig.load(RUN).replaced("a test", background=flows, **changes)


@pytest.mark.long
def test_large_messages_fill_a_link_that_is_theirs() -> None:
    """95 % of the line rate are the application's bytes; the rest are headers."""
    value = np.random.default_rng(1).integers(0, 256, 6_000_000, np.uint8)

    async def run() -> int:
        async with Cluster(declared(host_poll="50us"), "widest") as cluster:
            one, other = cluster.transports(["h3", "h8"], TransportOptions(window=64))
            await cluster.finish(one.send_async(1, b"opens the connection"), other.recv_async(0))
            sent, received = one.send_async(1, value), other.recv_async(0)
            duration_ns = await cluster.finish(sent, received)
            assert np.array_equal(received.wait(0), value)
            assert not one.endpoint.core.counters.retransmitted
            assert not await cluster.figures.drops()
            return duration_ns

    goodput_bps = 8e9 * value.nbytes / asyncio.run(run())
    assert 0.95 * RATE_BPS <= goodput_bps < RATE_BPS


@pytest.mark.long
@pytest.mark.parametrize("lower_effort", [False, True])
def test_queues_keep_their_bounds_with_transfers_beside_a_job(lower_effort: bool) -> None:
    """A round of the job's window, three times eight packets of the transport's, and a probe."""
    config = declared()
    options = TransportOptions(window=WINDOW, payload_bytes=OPTIONS.payload_bytes, lower_effort=lower_effort)

    async def run() -> None:
        async with Cluster(config, "widest") as cluster:
            ends = cluster.transports([host for pair in PAIRS for host in pair], options)
            value = np.arange(1_500_000, dtype=np.uint8)
            calls: list[Any] = []
            for rank in range(0, len(ends), 2):
                calls += [ends[rank].send_async(rank + 1, value), ends[rank + 1].recv_async(rank)]
            cluster.emulated.pop_longest_queues()
            for _ in range(3):
                gradients = [np.full(51_010, rank, np.float32) for rank in range(2)]
                totals, _ = await cluster.allreduce(gradients, 1)
                assert [np.unique(total.array).tolist() for total in totals] == [[1.0], [1.0]]
            under_way = sum(not call.done() for call in calls)
            longest = cluster.emulated.pop_longest_queues()
            await cluster.finish(*calls)
            assert under_way, "they were beside the job all the time"
            promised = cluster.figures.promised[UP]
            assert promised == config.job.window + len(PAIRS) * WINDOW + 2  # a probe, a copy
            assert longest[UP] <= promised
            assert lower_effort or longest[UP] > config.job.window, "they do meet"
            for end, depth in longest.items():
                assert (bound := cluster.figures.promised.get(end)) is None or depth <= bound, end
            assert all(np.array_equal(call.wait(0), value) for call in calls[1::2])
            assert not await cluster.figures.drops()

    asyncio.run(run())


def test_transfers_of_a_run_file_keep_the_queue_bounds() -> None:
    """A round of the job's window, two times eight packets of the transfers, and a probe."""
    config = RunConfig.load(TRANSFERS)

    async def run() -> tuple[list[str], list[FlowTrace], int, int | None, int]:
        async with Cluster(config, "widest") as cluster:
            for _ in range(5):
                await cluster.allreduce([np.full(51_010, rank, np.float32) for rank in range(2)], 1)
                await cluster.compute(config.training.compute)
            assert not await cluster.figures.drops()
            uplink = next(link for link in cluster.figures.links() if link.end == UP)
            traces = cluster.figures.flows
            return (
                cluster.figures.broken_promises,
                traces,
                uplink.largest_queue_packets,
                cluster.figures.promised[UP],
                cluster.now_ns,
            )

    broken, traces, longest, bound, now_ns = asyncio.run(run())
    assert broken == []
    assert bound == config.job.window + 2 * WINDOW + 2  # a probe, a copy
    assert WINDOW < longest <= bound
    steady, stopped = traces
    assert [trace.kind for trace in traces] == ["transfer"] * 2
    for trace in traces:
        assert not trace.lost
        whole = -(-200_000 // PAYLOAD_BYTES) * trace.messages
        assert 0 < whole <= trace.packets[-1]
    assert steady.messages > stopped.messages
    assert stopped.stop_ns is not None
    end_ns = stopped.stop_ns + 8_000_000  # a message that has begun goes on
    assert now_ns > end_ns
    assert np.interp(end_ns, stopped.time_ns, stopped.packets) == stopped.packets[-1]


@pytest.mark.long(minutes=1)
def test_fetches_in_the_lower_class_hardly_lengthen_all_reduces() -> None:
    """Three hosts fetch at full rate over the job's only link."""

    async def seconds(flows: int, lower_effort: bool) -> float:
        pairs = [dict(zip(("source", "destination"), pair, strict=True)) for pair in PAIRS[:flows]]
        fetches = [
            {**pair, "kind": "transfer", "bytes": 200_000, "window": WINDOW, "lower_effort": lower_effort}
            for pair in pairs
        ]
        config = RunConfig.load(TRANSFERS).replaced("a test", background=fetches)
        async with Cluster(config, "widest") as cluster:
            await cluster.compute(5_000_000)  # all fetch
            taken = 0
            for _ in range(4):
                taken += (await cluster.allreduce([np.full(51_010, rank, np.float32) for rank in range(2)], 1))[1]
            assert all(flow.messages for flow in cluster.figures.flows)
            assert not await cluster.figures.drops()
            return taken / 4e9

    alone, lower, same = (asyncio.run(seconds(*each)) for each in ((0, False), (3, True), (3, False)))
    print(f"{1e3 * alone:.2f} ms alone, {1e3 * lower:.2f} beside a lower class, {1e3 * same:.2f} in the same")  # noqa: T201
    assert lower <= 1.02 * alone
    assert same > 2 * alone


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"bytes": 0}, "bytes"), ({"window": 0}, "window"), ({"port": 7}, "port"), ({"rate": 1}, "rate")],
)
def test_a_transfer_that_cannot_be_is_refused(changes: dict[str, int], key: str) -> None:
    flow = {"source": "h3", "destination": "h8", "kind": "transfer", **changes}
    with pytest.raises(ExperimentError, match=key):
        RunConfig.load(TRANSFERS).replaced("a test", background=[flow])


def test_hosts_may_have_several_transfers() -> None:
    pairs = (("h3", "h8"), ("h3", "h9"), ("h8", "h3"), ("h3", "h8"))
    flows = [{"source": a, "destination": b, "kind": "transfer", "bytes": 1, "start": "9ms"} for a, b in pairs]
    config = RunConfig.load(TRANSFERS).replaced("a test", background=flows)

    async def run() -> list[FlowTrace]:
        async with Cluster(config, "widest") as cluster:
            await cluster.compute(1_000_000)
            return cluster.figures.flows

    assert all(trace.messages > 1 for trace in asyncio.run(run()))
