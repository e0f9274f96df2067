"""Senders that lie are policed: they lose, and others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import cycle

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.controller.congestion.marking import REPAIRS
from weir.controller.planning.plan import round_bytes
from weir.experiments.backends.round_count import Rounds
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.records.fairness import rounds_between
from weir.experiments.records.record import JobTrace
from weir.experiments.run import run_strategy
from weir.tests.paths import ROOT
from weir.topologies.model import Endpoint
from weir.wire.aggregation import internet_checksum
from weir.wire.frames import DSCP_CONTROL, Datagrams, FrameWriter

GUIDE = " ".join((ROOT / "docs" / "congestion.md").read_text().split())
_TOS, _HEADER, _CHECKSUM = 15, slice(14, 34), slice(24, 26)


class InOtherClasses(FrameWriter):
    """Frames of a host that rewrites the DSCP of its messages, one value after the other."""

    def __init__(self, honest: FrameWriter, dscps: Sequence[int]) -> None:
        self._honest = honest
        self._dscps = cycle(dscps)

    def encapsulate(self, datagrams: Datagrams, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        frames = self._honest.encapsulate(datagrams, out).copy()
        frames[:, _TOS] = [next(self._dscps) << 2 for _ in frames]
        frames[:, _CHECKSUM] = 0
        words = frames[:, _HEADER].copy().view(">u2").astype(np.int64)
        frames[:, _CHECKSUM] = internet_checksum(words.sum(axis=1)).astype(">u2").reshape(-1, 1).view(np.uint8)
        return frames


LEAF_SPINE = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 4, "rate": "1Gbit", "delay": "2us"}


def two_jobs() -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "liar",
            "fabric": {"name": "liar", "generate": LEAF_SPINE},
            "job": {"workers": ["h1", "h2"], "server": "h5", "window": 32, "slots": 64},
            "training": {"hidden": 680},
            "other_jobs": [{"workers": ["h3", "h4"], "server": "h6", "window": 32, "slots": 64}],
            "congestion": {"lease": "500us"},
            "control": {"warm_up": "2ms", "solve_interval": "10s"},
            "strategies": ["ps"],
        }
    )


def test_messages_in_the_control_class_are_dropped_without_harm() -> None:
    config = two_jobs()
    size = config.gradient_values

    async def run() -> tuple[list[int], dict[str, int], list[str], int]:
        """Durations of four sums, two of them next to the liar."""
        took, gradients = [], [np.full(size, rank, np.float32) for rank in range(2)]
        async with Cluster(config, "ps") as cluster:
            await cluster.compute(5_000_000)
            took = [(await cluster.allreduce(gradients, 1))[1] for _ in range(2)]
            assert not cluster.figures.broken_promises, (
                "whoever was idle while another joined does not use its old window"
            )
            for name in config.other_jobs[0].workers:
                cluster.agents.hosts[name]._writer = InOtherClasses(cluster.agents.hosts[name]._writer, [DSCP_CONTROL])
            took += [(await cluster.allreduce(gradients, 1))[1] for _ in range(2)]
            (before, at_end) = (cluster.figures.jobs[1].chunks[i] for i in (-60, -1))
            honest_resends = sum(worker.core.counters.retransmitted for worker in cluster.job.workers)
            assert at_end - before < 16, "no more than what was under way"
            assert honest_resends == 0
            return took, await cluster.figures.drops(), cluster.figures.broken_promises, at_end

    took, drops, broken, summed = asyncio.run(run())
    assert summed > 0
    assert drops["policed"] >= 16, "a window of each worker at least, and what it sends again"
    assert "queue full" not in drops
    assert broken == []
    assert max(took[2:]) <= min(took[:2]), "what the liar does not send is the others'"


@pytest.mark.long
def test_a_worker_that_ignores_windows_loses_and_others_do_not() -> None:
    """Three honest jobs and a liar on one link: each honest one has at least the quarter of it that is all that it can
    have among its like, though the liar's first bursts come before theirs; and a third when these are over.
    """
    config = RunConfig.load(ROOT / "experiments" / "queues" / "liar.yaml")
    result = asyncio.run(run_strategy(config, "ps"))
    *honest, liar = result.jobs
    assert result.drops["policed"] > 100
    assert liar.chunks[-1] < 0.55 * min(job.chunks[-1] for job in honest)
    rounds, streams = Rounds.of(config.gradient_values, 256, config.job.window), 3 * 4
    alone_ns = 8 * rounds.bytes(256)  # one stream at 1 Gbit/s
    begin_ns, end_ns = max(job.sends_ns for job in result.jobs), liar.time_ns[-1]
    after_ns = begin_ns + 6_900_000

    def share(job: JobTrace, start_ns: float) -> float:
        """Share of the link from a time on."""
        return rounds_between(job, start_ns, end_ns) / rounds.total * 3 * alone_ns / (end_ns - start_ns)

    shares = [4 * share(job, begin_ns) for job in honest]
    assert min(shares) >= 1
    thirds = [3 * share(job, after_ns) for job in honest]
    assert min(thirds) >= 0.89, "windows of 7 rounds, and the round trips between two sums"
    assert share(liar, after_ns) == 0
    assert sum(result.iteration_ns) <= len(result.iteration_ns) * streams * alone_ns / 0.97
    assert result.broken, "a bound is for who obeys, and the run says that it was not kept"

    chunks = [job.chunks[-1] for job in honest]
    *had, most = [round(rounds_between(job, begin_ns, after_ns)) for job in result.jobs]
    for told in (
        f"it has {liar.chunks[-1]} chunks, and the honest ones {min(chunks)} to {max(chunks)}",
        f"in the first 6.9 ms it has {most} rounds complete, and they {had[0]}, {had[1]} and {had[2]}",
        f"they have {min(thirds):.2f} to {max(thirds):.2f} of a third of the link each",
        f"{min(shares):.2f} to {max(shares):.2f} times a quarter of the link",
        f"The first takes {result.iteration_ns[0] / 1e6:.1f} ms",
        f"take {sum(result.iteration_ns[1:]) / len(result.iteration_ns[1:]) / 1e6:.1f} ms on average",
        f"{result.largest_queue_packets} packets of buffer, {result.promised[result.largest_queue]} promised",
    ):
        assert told in GUIDE, told


def test_a_flood_in_every_dscp_is_held_to_its_class() -> None:
    """A worker without a window sends its messages in all 64 DSCPs, one after the other. The others' sums take no
    longer, none of their messages is lost, their queue exceeds its bound at most by the policers' burst, and heartbeats
    keep their delay bound.
    """
    config = RunConfig.model_validate(
        {
            **two_jobs().model_dump(),
            "fabric": {"name": "liar", "generate": {**LEAF_SPINE, "delay": "20us", "queue": 128}},
            "other_jobs": [{"workers": ["h3", "h4"], "server": "h6", "window": 256, "slots": 512, "obeys": False}],
            "congestion": {"bound": 24, "lease": "1ms"},
            "heartbeats": {"to": "h8", "interval": "200us", "lease": "2ms", "detector": "timer"},
        }
    )
    gradients = [np.full(config.gradient_values, rank, np.float32) for rank in range(2)]
    shared, window = Endpoint("s1", 5), 10

    async def run() -> None:
        async with Cluster(config, "ps") as cluster:
            promised = cluster.figures.promised[shared]
            assert promised == 2 * window + 1, "one stream of each job, and a probe"
            await cluster.compute(5_000_000)  # messages that the liar sent before it was policed are gone
            took = [(await cluster.allreduce(gradients, 1))[1]]
            began_ns, before = cluster.now_ns, await cluster.figures.drops()
            for name in config.other_jobs[0].workers:
                cluster.agents.hosts[name]._writer = InOtherClasses(cluster.agents.hosts[name]._writer, range(64))
            took += [(await cluster.allreduce(gradients, 1))[1] for _ in range(2)]
            after = await cluster.figures.drops()
            times, depths = cluster.figures.queue(shared)
            longest = max(depth for time, depth in zip(times, depths, strict=True) if time >= began_ns)
            assert after["policed"] > before["policed"] + 50
            assert after.get("queue full") == before.get("queue full")
            assert longest <= promised + 2 * (2 * window + REPAIRS)
            assert max(took[1:]) <= 1.02 * took[0]
            assert sum(worker.core.counters.retransmitted for worker in cluster.job.workers) == 0
            heard = cluster.figures.heartbeats
            assert heard is not None
            assert heard.sent - heard.delivered <= 4, "the last ones may be under way"
            assert heard.longest_us <= heard.bound_us
            assert heard.taken_for_dead == 0

    asyncio.run(run())


class Overheard(FrameWriter):
    """Makes the frames that an honest writer makes, and keeps the last one."""

    def __init__(self, honest: FrameWriter) -> None:
        self._honest = honest
        self.last = b""

    def encapsulate(self, datagrams: Datagrams, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        frames = self._honest.encapsulate(datagrams, out)
        self.last = frames[-1].tobytes()
        return frames


def test_a_liars_harm_is_limited_by_its_bucket() -> None:
    """A host sends messages of its job at the rate of its link, without end and in bursts, next to nine honest streams
    on a link. The queue exceeds its bound, but not (ΣW + P + σ)/(1 − u) with σ = 2·W + 8 and u = W/T of its policer;
    when its messages are gone, the bound holds again.
    """
    honest = [f"h{number}" for number in range(2, 11)]
    config = RunConfig.model_validate(
        {
            "name": "liar",
            "fabric": {
                "name": "rack",
                "generate": {
                    **LEAF_SPINE,
                    "leaves": 1,
                    "spines": 0,
                    "hosts_per_leaf": 12,
                    "delay": "20us",
                    "queue": 128,
                },
            },
            "job": {"workers": ["h1"], "server": "h12", "window": 32, "slots": 64},
            "training": {"hidden": 680},
            "other_jobs": [{"workers": honest, "server": "h12", "window": 32, "slots": 64}],
            "congestion": {"bound": 51, "lease": "500us"},
            "control": {"interval": "500us", "warm_up": "2ms", "solve_interval": "10s"},
            "host_poll": "0ns",
            "strategies": ["ps"],
        }
    )
    shared, ms = Endpoint("s1", 12), 1_000_000

    async def run() -> None:
        async with Cluster(config, "ps") as cluster:
            fabric = cluster.emulated.fabric
            cluster.agents.hosts["h1"]._writer = overheard = Overheard(cluster.agents.hosts["h1"]._writer)
            await cluster.allreduce([np.ones(config.gradient_values, np.float32)], 1)
            await cluster.compute(3 * ms)

            def longest() -> int:
                [link] = [each for each in cluster.figures.links() if each.end == shared]
                return link.largest_queue_packets

            budget, plan = cluster.controller.windows.budgets[shared], cluster.controller.jobs[1].plan
            promised, loosest = int(budget.bound), cluster.figures.promised[shared]
            assert promised == 10 * budget.window + budget.probes
            assert loosest is not None
            assert longest() <= loosest, "what was promised while the first job was alone"
            frame_ns = 8 * round_bytes(cluster.topology)
            share = budget.window * frame_ns / plan.round_trip_ns
            assert 0.2 < share < 0.9
            bound = (9 * budget.window + budget.probes + 2 * budget.window + REPAIRS) / (1 - share)
            assert bound < 128, "a queue has room for more"

            began_ns, chunks = cluster.now_ns, cluster.figures.jobs[1].chunks[-1]
            spans = [(0, 2 * ms), *((index * ms, index * ms + 300_000) for index in range(3, 8))]
            for start_ns, stop_ns in spans:
                times = {"start_ns": began_ns + start_ns, "stop_ns": began_ns + stop_ns}
                fabric.add_flow("h1", overheard.last, rate_bps=1e9, **times)
            await cluster.compute(8 * ms)
            assert promised <= loosest < longest() <= bound
            assert cluster.figures.broken_promises
            drops = await cluster.figures.drops()
            assert drops.keys() == {"policed"}
            assert drops["policed"] > 100
            summed = cluster.figures.jobs[1].chunks[-1] - chunks
            assert summed * 9 * frame_ns >= 0.8 * (1 - share) * 8 * ms, "what is left by the liar is the others'"

            await cluster.compute(int(bound * frame_ns))
            cluster.emulated.pop_longest_queues()
            await cluster.compute(3 * ms)
            assert 0 < cluster.emulated.pop_longest_queues()[shared] <= promised

    asyncio.run(run())
