"""Requests beyond the fabric, and invalid readings: registration gets an error, or the remaining resources."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import grpc
import pytest

from weir.controller.errors import PlanError
from weir.controller.service.requests import job_spec
from weir.controller.telemetry.snapshot import LinkView, Snapshot
from weir.tests.support.control_rig import refusal, rig
from weir.tests.support.errors import raises
from weir.topologies import Endpoint
from weir.topologies.generators import leaf_spine
from weir.topologies.targets import TOFINO
from weir.wire import control_pb2 as pb
from weir.wire.frames import BULK_PRIORITY

FABRIC = leaf_spine(2, 2, 2)
"""h1 and h2 at s1, h3 and h4 at s2; spines s3 and s4."""


async def test_a_fabric_in_two_pieces() -> None:
    async with rig(topology=FABRIC, placed_by="widest") as service:
        # the controller's reaction to lost links, without the routes: these switches take no entry back
        service.controller.planner.update_topology([Endpoint("s1", 3), Endpoint("s1", 4)], [])
        for server, cut_off in (("", "h3"), ("h4", "h1")):
            given, details = await refusal(service.register(workers=["h1", "h3"], server=server))
            assert given is grpc.StatusCode.INVALID_ARGUMENT
            assert f"no way to {cut_off} without the links and switches that are down" in details
        assert service.controller.jobs == {}
        alone = await service.register(workers=["h1", "h2"])
        assert {*service.controller.jobs[alone.job].plan.switches} == {"s1"}


async def test_no_memory_anywhere() -> None:
    async with rig(topology=leaf_spine(2, 2, 2, slots=0), placed_by="widest") as service:
        served = await service.register(workers=["h1", "h3"], server="h4")
        assert served.note == ""
        assert service.controller.jobs[served.job].plan.switches == {}
        given, details = await refusal(service.register(workers=["h1", "h3"]))
        assert given is grpc.StatusCode.INVALID_ARGUMENT
        assert "no switch" in details
        assert service.controller.jobs.keys() == {served.job}


async def test_a_reading_that_is_no_figure_keeps_jobs_off_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spine with links known to be good is chosen, whichever of the two it is."""
    async with rig(topology=FABRIC, placed_by="widest") as service:
        controller = service.controller
        true, well = controller.links.snapshot, LinkView(0.0, 0.0, 0.0, 0.0, 0.0, 0, 1.0)
        read: dict[Endpoint, LinkView] = {}

        def snapshot(now_ns: int, exclude: Any = None) -> Snapshot:
            return replace(true(now_ns, exclude), links=read)

        monkeypatch.setattr(controller.links, "snapshot", snapshot)
        figures = ("rate_bps", "background_bps", "queue_packets", "latency_us", "loss")
        wrong = itertools.product(figures, (math.nan, math.inf, -1.0))
        for (name, value), (bad, good) in zip(wrong, itertools.cycle([("s3", "s4"), ("s4", "s3")]), strict=False):
            figure: dict[str, Any] = {name: value}
            for link in FABRIC.directed_links:
                at_bad = bad in (link.node, FABRIC.peer(link).node)
                read[link] = replace(well, **figure) if at_bad else well
            registration = await service.register(workers=["h1", "h3"])
            spines = {*controller.jobs[registration.job].plan.switches} & {"s3", "s4"}
            assert (spines, registration.note) == ({good}, ""), f"{name} = {value} at {bad}"
            await service.end(registration.job)


def test_a_class_above_bulk_is_refused_on_switches_without_classes() -> None:
    topology = leaf_spine(1, 1, 2)
    chip = replace(topology, switches=(replace(topology.switches[0], target=TOFINO), *topology.switches[1:]))
    for fabric, refused in ((topology, ()), (chip, (2, 5))):
        for priority in (0, BULK_PRIORITY, 2, 5):
            request = pb.RegisterRequest(workers=["h1", "h2"], traffic_class=priority)
            if priority in refused:
                with raises(PlanError, place="job 7", value=priority, allowed=(BULK_PRIORITY,)):
                    job_spec(request, 7, fabric, lambda _: 16)
            else:
                spec = job_spec(request, 7, fabric, lambda _: 16)
                assert (spec.traffic_class, spec.keeps_class) == (priority or BULK_PRIORITY, priority > 0)
