"""Models in switches by a controller: loaded, replaced in a safe order, kept in the journal, and refused."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r

from weir.controller.controller import Controller, ControllerOptions
from weir.controller.inference.errors import ModelError
from weir.controller.inference.forest import LEAF, DecisionTree, Forest
from weir.controller.inference.models import Models
from weir.controller.inference.table_entries import model_state
from weir.controller.jobs.journal import Journal
from weir.controller.jobs.journal_file import JournalFile
from weir.controller.p4runtime.entries import Entry, SwitchState
from weir.controller.p4runtime.reconcile import difference, in_order
from weir.controller.p4runtime.tables import FEATURE, MODELS, TREE
from weir.controller.placement.strategies import strategy
from weir.controller.planning.planner import Planner
from weir.emulator.switch import Switch
from weir.experiments.classification import as_table_entry, loaded_switch, request
from weir.tests.controller.inference.forests import digits, digits_model
from weir.tests.support.control_rig import ANSWER_S, ServiceRig, rig
from weir.tests.support.errors import raises
from weir.tests.support.fake_switch import FakeSwitch, fake_switches, open_sessions
from weir.topologies.errors import TopologyError
from weir.topologies.generators import leaf_spine
from weir.topologies.routing import Routes
from weir.topologies.targets import TOFINO
from weir.wire import control_pb2 as pb
from weir.wire.classification import Status, pack_requests
from weir.wire.control_messages import LIST_MODELS, LOAD_MODEL

TOPOLOGY = leaf_spine(1, 1, 2)


def stump(threshold: int, edges: tuple[tuple[float, ...], ...] | None = None) -> Forest:
    """Class 1 for a first feature above the threshold."""
    return Forest(
        (0, 1), 1, (DecisionTree((0, LEAF, LEAF), (threshold, 0, 0), (1, 0, 0), (2, 0, 0), (0, 0, 1)),), edges
    )


def write(switch: Switch, item: Entry, change: str) -> None:
    """Insert, modify or delete an entry in an emulated switch."""
    assert switch.state is not None
    table, row = switch.state.tables[item.table], as_table_entry(item)
    if change == "delete":
        table.delete(row.match, row.priority)
    else:
        getattr(table, change)(row)


ONE, OTHER, THIRD = stump(10), stump(20), stump(30)


async def rows_of_models(service: ServiceRig) -> SwitchState:
    """The part of s1's contents that belongs to its model."""
    held = await service.controller.switches.sessions["s1"].read()
    tables = {MODELS, *FEATURE, *TREE}
    return SwitchState(
        {key: item for key, item in held.items.items() if isinstance(item, Entry) and item.table in tables}
    )


async def load(service: ServiceRig, forest: Forest | None) -> None:
    """Give s1 a model by the service, which makes one call of its controller after the other."""
    call = service.channel.unary_unary(
        LOAD_MODEL,
        request_serializer=pb.LoadModelRequest.SerializeToString,
        response_deserializer=pb.ModelList.FromString,
    )
    model = "" if forest is None else forest.as_json()
    await call(pb.LoadModelRequest(switches=["s1"], model=model), timeout=ANSWER_S)


async def test_models_follow_each_other_in_alternating_banks() -> None:
    async with rig() as service:
        for forest, bank in ((ONE, 0), (OTHER, 1), (OTHER, 1), (THIRD, 0)):
            await load(service, forest)
            assert (await rows_of_models(service)).lines() == model_state(forest, bank).lines()
            assert service.controller.models.held["s1"].bank == bank
        await load(service, None)
        assert not (await rows_of_models(service)).items


async def test_a_model_that_is_there_is_not_written_again() -> None:
    async with rig() as service:
        forest, switch = Forest.of(digits_model(trees=3, leaves=16)), service.switches["s1"]
        switch.writes.clear()
        await load(service, forest)
        assert switch.writes
        switch.writes.clear()
        await load(service, forest)
        assert not switch.writes


def test_each_update_of_a_replacement_keeps_a_models_class() -> None:
    """The updates, one by one in the order of writing, and requests after each."""
    old, new = (Forest.of(digits_model(trees=5, leaves=12, seed=seed)) for seed in (3, 4))
    some = digits()[1][0][:12]
    expected = {forest.number: forest.decide(some) for forest in (old, new)}
    requests = pack_requests(old.encode(some))
    switch = loaded_switch(old)
    answered, unanswered = set(), 0
    for stage in in_order(difference(model_state(old, 0), model_state(new, 1))):
        changes = [*((item, "delete") for item in stage.deletes), *((item, "modify") for _, item in stage.modifies)]
        changes += [(item, "insert") for item in stage.inserts]
        for item, change in changes:
            assert isinstance(item, Entry)
            write(switch, item, change)
            for index, packet in enumerate(requests):
                answer = request(switch, packet)
                assert answer is not None
                if answer.status is Status.CLASSIFIED:
                    assert answer.class_index == expected[answer.model][index]
                    answered.add(answer.model)
                else:
                    unanswered += 1
    assert answered == {old.number, new.number}
    assert unanswered == 0


def test_packet_during_removal_of_a_model_gets_no_wrong_class() -> None:
    """Such a packet read `models` before they changed: here the entry stays while the rows go."""
    old = Forest.of(digits_model(trees=3, leaves=12, seed=3))
    some = digits()[1][0][:12]
    switch = loaded_switch(old)
    statuses = []
    for stage in in_order(difference(model_state(old, 0), model_state(old, 1))):
        for item in stage.deletes:
            assert isinstance(item, Entry)
            if item.table == MODELS:
                continue
            write(switch, item, "delete")
            for index, packet in enumerate(pack_requests(old.encode(some))):
                answer = request(switch, packet)
                assert answer is not None
                statuses.append(answer.status)
                if answer.status is Status.CLASSIFIED:
                    assert answer.class_index == old.decide(some)[index]
    assert {Status.CLASSIFIED, Status.UNKNOWN_MODEL} == set(statuses)


def test_new_rows_precede_the_number_and_old_rows_go_after_it() -> None:
    order = [
        (kind, item.table)
        for stage in in_order(difference(model_state(ONE, 0), model_state(OTHER, 1)))
        for kind, items in (("-", stage.deletes), ("~", [new for _, new in stage.modifies]), ("+", stage.inserts))
        for item in items
        if isinstance(item, Entry)
    ]
    assert sorted(order[:3]) == [("+", FEATURE[0]), ("+", TREE[0]), ("+", TREE[0])]
    assert order[3:] == [
        ("~", MODELS),
        ("+", MODELS),
        ("-", MODELS),
        ("-", TREE[0]),
        ("-", TREE[0]),
        ("-", FEATURE[0]),
    ]


async def test_a_controller_loads_lists_and_unloads_models() -> None:
    async with rig() as service:
        ask_to_load = service.channel.unary_unary(
            LOAD_MODEL,
            request_serializer=pb.LoadModelRequest.SerializeToString,
            response_deserializer=pb.ModelList.FromString,
        )
        models = service.channel.unary_unary(
            LIST_MODELS,
            request_serializer=pb.ListModelsRequest.SerializeToString,
            response_deserializer=pb.ModelList.FromString,
        )
        job = await service.register(workers=["h1", "h2"], server="h3")
        for forest in (ONE, stump(0, edges=((0.5,),))):
            after = await ask_to_load(pb.LoadModelRequest(switches=["s1"], model=forest.as_json()), timeout=ANSWER_S)
            (state,) = after.models
            assert (state.switch_name, state.number, state.trees, state.rows) == ("s1", forest.number, 1, 2)
            assert state.numbers == (forest.edges is not None)
            assert state.address == int(service.controller.topology.switch("s1").address)
            assert await service.controller.verify() == {}
        assert (await models(pb.ListModelsRequest(), timeout=ANSWER_S)) == after
        assert [each.job for each in await service.jobs()] == [job.job]
        for switches, text in ((["s9"], ONE.as_json()), (["s1"], "{}")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask_to_load(pb.LoadModelRequest(switches=switches, model=text), timeout=ANSWER_S)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not (await ask_to_load(pb.LoadModelRequest(switches=["s1"]), timeout=ANSWER_S)).models
        assert await service.controller.verify() == {}


async def test_a_refused_model_leaves_the_one_before() -> None:
    async with rig() as service:
        await load(service, ONE)
        tables = {table for name in TREE if (table := _table_id(service.switches["s1"], name))}
        service.switches["s1"].refuse = lambda update: (
            update.type == p4r.Update.INSERT and update.entity.table_entry.table_id in tables
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await load(service, OTHER)
        service.switches["s1"].refuse = lambda update: False
        await service.controller.start()
        assert {name: each.forest for name, each in service.controller.models.held.items()} == {"s1": ONE}
        assert await service.controller.verify() == {}


def _table_id(fake: FakeSwitch, name: str) -> int:
    assert fake.config is not None
    return next(table.preamble.id for table in fake.config.p4info.tables if table.preamble.name == name)


async def test_a_controller_goes_on_with_the_journals_models(tmp_path: Path) -> None:
    async with fake_switches(node.name for node in TOPOLOGY.switches) as fakes:
        for first in (True, False):
            async with open_sessions(TOPOLOGY, fakes, ANSWER_S) as sessions:
                with JournalFile(tmp_path / "journal") as journal:
                    controller = Controller(
                        TOPOLOGY, Routes(TOPOLOGY), sessions, strategy("ps"), ControllerOptions(), journal=journal
                    )
                    diffs = await controller.start()
                    if first:
                        await controller.load_model(["s1"], ONE)
                        await controller.load_model(["s1"], OTHER)
                    else:
                        assert not any(diffs.values())
                        assert controller.models.held["s1"].forest == OTHER


def test_chips_and_unknown_switches_are_refused() -> None:
    topology = leaf_spine(1, 1, 2, target=TOFINO)
    models = Models(topology, Journal(None, topology, Planner(topology, Routes(topology), strategy("ps"), 1)))
    with raises(ModelError, place="s1", value=TOFINO.name):
        models.place(["s1"], ONE)
    with pytest.raises(TopologyError):
        models.place(["s9"], ONE)
    assert not models.held
