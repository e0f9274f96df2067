"""Senders that lie are policed: they lose, and others do not."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from weir.experiments.backends.rounds import Rounds
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.run import run_strategy
from weir.tests.paths import ROOT
from weir.wire.aggregation import internet_checksum
from weir.wire.frames import DSCP_CONTROL, Datagrams, FrameWriter

_TOS, _HEADER, _CHECKSUM = 15, slice(14, 34), slice(24, 26)


class InControlClass(FrameWriter):
    """What a host's frames become that calls its messages control messages."""

    def __init__(self, honest: FrameWriter) -> None:
        self._honest = honest

    def encapsulate(self, datagrams: Datagrams) -> NDArray[np.uint8]:
        frames = self._honest.encapsulate(datagrams).copy()
        frames[:, _TOS] = DSCP_CONTROL << 2
        frames[:, _CHECKSUM] = 0
        words = frames[:, _HEADER].copy().view(">u2").astype(np.int64)
        frames[:, _CHECKSUM] = internet_checksum(words.sum(axis=1)).astype(">u2").reshape(-1, 1).view(np.uint8)
        return frames


def two_jobs() -> RunConfig:
    leaf_spine = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 4, "rate": "1Gbit", "delay": "2us"}
    return RunConfig.model_validate(
        {
            "name": "liar",
            "fabric": {"name": "liar", "generate": leaf_spine},
            "job": {"workers": ["h1", "h2"], "server": "h5", "window": 32, "slots": 64},
            "training": {"hidden": 680},
            "other_jobs": [{"workers": ["h3", "h4"], "server": "h6", "window": 32, "slots": 64}],
            "congestion": {"lease": "500us"},
            "control": {"warm_up": "2ms", "solve_interval": "10s"},
            "strategies": ["ps"],
        }
    )


def test_messages_in_the_control_class_pass_nowhere_and_nobody_else_notices() -> None:
    config = two_jobs()
    size = config.gradient_values

    async def run() -> tuple[list[int], dict[str, int], list[str], int]:
        """How long four sums take, two of them beside the liar."""
        took, gradients = [], [np.full(size, rank, np.float32) for rank in range(2)]
        async with Cluster(config, "ps") as cluster:
            await cluster.compute(5_000_000)
            took = [(await cluster.allreduce(gradients, 1))[1] for _ in range(2)]
            assert not cluster.broken_promises, "whoever was idle while another joined does not use its old window"
            for name in config.other_jobs[0].workers:
                cluster._hosts[name]._writer = InControlClass(cluster._hosts[name]._writer)
            took += [(await cluster.allreduce(gradients, 1))[1] for _ in range(2)]
            (before, at_end) = (cluster.job_traces[1].chunks[i] for i in (-60, -1))
            honest_resends = sum(worker.core.counters.retransmitted for worker in cluster._workers)
            assert at_end - before < 16, "no more than what was under way"
            assert honest_resends == 0
            return took, await cluster.drops(), cluster.broken_promises, at_end

    took, drops, broken, summed = asyncio.run(run())
    assert summed > 0
    assert drops["policed"] >= 16, "a window of each worker at least, and what it sends again"
    assert "queue full" not in drops
    assert broken == []
    assert max(took[2:]) <= min(took[:2]), "what the liar does not send is the others'"


def test_who_ignores_windows_loses_and_others_do_not() -> None:
    """Three honest jobs and a liar on one link: each honest one has at least the quarter that it has among its like."""
    config = RunConfig.load(ROOT / "experiments" / "queues" / "liar.yaml")
    result = asyncio.run(run_strategy(config, "ps"))
    *honest, liar = result.jobs
    assert result.drops["policed"] > 100
    assert liar.chunks[-1] < min(job.chunks[-1] for job in honest) / 2
    rounds, streams = Rounds.of_gradient(config, 256), 3 * 4
    alone_ns = 8 * rounds.bytes(256)  # one stream at 1 Gbit/s
    assert sum(result.iteration_ns) <= len(result.iteration_ns) * streams * alone_ns / 0.97
    assert result.broken, "a bound is for who obeys, and the run says that it was not kept"
