"""What a plan for switches like Tofino asks of their P4Runtime server, held to what Stratum for Tofino takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

import weir.experiments
from weir.controller.congestion import Windows
from weir.controller.congestion.marking import marked_states
from weir.controller.p4runtime.entries import CloneSession, Entry, Group, Item, SwitchState, call, entry
from weir.controller.p4runtime.pipeline import Pipeline
from weir.controller.p4runtime.refusals import WriteRefused
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.p4runtime.tables import NODE_ADDRESS, ROUTES
from weir.controller.placement.strategies import strategy
from weir.controller.planning.admission import admitting_states
from weir.controller.planning.plan import JobPlan, JobSpec, base_state, fabric_state
from weir.controller.planning.planner import Planner, Surroundings
from weir.experiments.config import RunConfig
from weir.p4src import json_of, p4info_of
from weir.tests.controller.p4runtime.stratum_switch import StratumSwitch
from weir.topologies.routing import Routes
from weir.topologies.targets import LIKE_TOFINO

DEMO = RunConfig.load(Path(weir.experiments.__file__).parent / "demo.yaml")
FABRIC = replace(
    DEMO.topology, switches=tuple(replace(switch, target=LIKE_TOFINO) for switch in DEMO.topology.switches)
)
P4INFO = p4info_of(LIKE_TOFINO.program)


@pytest.fixture
async def stratum() -> AsyncIterator[StratumSwitch]:
    switch = StratumSwitch(text_format.Parse(P4INFO.read_text(), p4i.P4Info()))
    await switch.start()
    yield switch
    await switch.stop()


def session_with(switch: StratumSwitch) -> SwitchSession:
    pipeline = Pipeline(P4INFO, json_of(LIKE_TOFINO.program))
    return SwitchSession("s1", switch.address, device_id=1, pipeline=pipeline, timeout_s=60.0)


def demo_plan(name: str) -> JobPlan:
    """The demo's job, placed without a word of telemetry."""
    planner = Planner(FABRIC, Routes(FABRIC), strategy(name), seed=DEMO.seed)
    job = DEMO.job
    spec = JobSpec(1, tuple(job.workers), server=job.server, slots=job.slots, window=job.window)
    grant = planner.grant(spec, Surroundings({}, {}))
    return planner.plan(grant.spec, grant.placement, 1)


def bounded(bases: Mapping[str, SwitchState], plan: JobPlan) -> Mapping[str, SwitchState]:
    """All that the switches hold with this job."""
    options = DEMO.congestion_options
    windows = Windows(FABRIC, options)
    windows.follow(Routes(FABRIC), [plan], (), 0)
    states = admitting_states(FABRIC, fabric_state(bases, [plan]), [plan])
    return marked_states(FABRIC, states, windows.budgets, [plan], options)


@pytest.mark.parametrize("name", DEMO.strategies)
async def test_all_of_the_demos_plans_but_routes_is_taken(stratum: StratumSwitch, name: str) -> None:
    """Routes are one-shot action sets, which Stratum does not have: it wants members and groups written apart."""
    routes = Routes(FABRIC)
    bases = {switch.name: base_state(FABRIC, routes, switch.name) for switch in FABRIC.switches}
    plan = demo_plan(name)
    assert name == "ps" or plan.switches
    for switch, state in bounded(bases, plan).items():
        stratum.entities.clear()
        stratum.defaults.clear()
        defaults: list[Item] = [item for item in state.items.values() if isinstance(item, Entry) and item.default]
        others = [item for item in state.items.values() if item not in defaults]
        async with session_with(stratum) as session:
            with pytest.raises(WriteRefused) as error:
                await session.write_updates(modifies=defaults, inserts=others)
        refused = [update.item for update in error.value.refused]
        assert {(update.code, getattr(update.item, "table", None)) for update in error.value.refused} == {
            ("UNIMPLEMENTED", ROUTES)
        }, switch
        assert len(stratum.entities) == len(others) - len(refused)
        assert len(stratum.defaults) == len(defaults)


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (entry(NODE_ADDRESS, {"dst_addr": 1}, call("to_node")), None),
        (Group(65_535, ((1, 65_535),)), None),
        (Group(65_536, ((1, 1),)), "INTERNAL"),
        (Group(1, ((1, 65_536),)), "INTERNAL"),
        (CloneSession(1015, ((320, 0),)), None),
        (CloneSession(1016, ((320, 0),)), "INTERNAL"),
        (CloneSession(1, ((320, 0), (1, 0))), "INTERNAL"),
        (CloneSession(1, ((320, 1),)), "INTERNAL"),
    ],
)
async def test_limits_of_copies(stratum: StratumSwitch, item: Item, code: str | None) -> None:
    async with session_with(stratum) as session:
        if code is None:
            await session.write_updates(inserts=[item])
            assert len(stratum.entities) == 1
            return
        with pytest.raises(WriteRefused) as error:
            await session.write_updates(inserts=[item])
    assert [update.code for update in error.value.refused] == [code]
    assert not stratum.entities
