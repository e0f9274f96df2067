"""A job's sums in virtual time, beside requests for classes to the switch that sums."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from weir.controller.controller import ControllerOptions
from weir.controller.inference.forest import Forest
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import JobSpec
from weir.tests.controller.inference.forests import digits, digits_model
from weir.tests.controller.job_rig import MS, make_rig
from weir.topologies.generators import leaf_spine
from weir.topologies.model import mac_number
from weir.wire import frames
from weir.wire.classification import CLASSIFICATION_PORT, pack_requests

TOPOLOGY: Final = leaf_spine(1, 1, 5, rate_bps=1_000_000_000, slots=64)
OPTIONS: Final = ControllerOptions(probe_period_ns=50 * MS, solve_period_ns=0, retry_ns=MS)
CHUNKS: Final = 200


async def sums(pipeline: CompiledPipeline, asking: str | None, rate_bps: float) -> tuple[int, bytes | None, int]:
    """(virtual time in ns, bits of the sum, answered requests) of three workers, and a host that asks meanwhile."""
    forest = Forest.of(digits_model(trees=3, leaves=16))
    async with make_rig(TOPOLOGY, pipeline, strategy("widest"), OPTIONS) as rig:
        job = await rig.admit(JobSpec(1, ("h1", "h2", "h3"), "h4", 64, 16))
        await rig.controller.load_model(["s1"], forest)
        if asking is not None:
            host = TOPOLOGY.host(asking)
            request = frames.encapsulate(
                pack_requests(forest.encode(digits()[1][0][:1])),
                source=int(host.address),
                destination=int(TOPOLOGY.switch("s1").address),
                source_mac=mac_number(host.mac),
                destination_mac=mac_number(TOPOLOGY.switch("s1").mac),
                destination_port=CLASSIFICATION_PORT,
            )
            flow = rig.fabric.add_flow(asking, request.tobytes(), rate_bps=rate_bps)
        start_ns = rig.fabric.now_ns
        rig.submit(job, seed=1, chunks=CHUNKS)
        await rig.run(start_ns + 400 * MS, job)
        (bits,) = set(job.take().values())
        assert bits == job.sum_of()
        answered = 0 if asking is None else rig.fabric.flow_counters(flow).delivered_packets
        return rig.fabric.now_ns - start_ns, bits, answered


@pytest.mark.parametrize(
    ("asking", "rate_bps"),
    [pytest.param("h5", 900e6, id="a host of no job, at 0.9 of its link"), pytest.param("h1", 5e6, id="a worker")],
)
async def test_sums_beside_requests_keep_bits_and_pace(
    asking: str, rate_bps: float, pipeline: CompiledPipeline
) -> None:
    alone_ns, bits, _ = await sums(pipeline, None, 0)
    beside_ns, bits_beside, answered = await sums(pipeline, asking, rate_bps)
    assert bits_beside == bits
    assert abs(beside_ns - alone_ns) <= 0.02 * alone_ns, (alone_ns, beside_ns)
    expected = rate_bps * beside_ns / 1e9 / (8 * (frames.FRAME_HEADER_BYTES + 80))
    assert answered >= np.floor(expected * 0.9), (answered, expected)
