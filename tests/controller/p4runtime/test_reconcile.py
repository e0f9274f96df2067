"""A plan replaced by the next leaves exactly the next, in a safe order, and read-back finds what was tampered
with.
"""

from __future__ import annotations

import random

import pytest
from finsy.p4entity import P4Entity, decode_entity
from finsy.p4schema import P4Schema
from finsy.proto import p4r

from weir.controller.errors import ControllerError
from weir.controller.p4runtime.entities import as_item
from weir.controller.p4runtime.entries import CloneSession, Entry, Group, Item, SwitchState, call, default_action, entry
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.reconcile import difference, reconcile, reconcile_all, verify
from weir.controller.p4runtime.refusals import WriteRefused
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.p4runtime.tables import JOBS, MEMBERS, NODE_ADDRESS, PARENTS, REPLICAS, ROUTES, TELEMETRY_NODE
from weir.tests.support.errors import raises
from weir.tests.support.fake_switch import FakeSwitch


def node(job: int, generation: int, children: int, port_of: int = 1, base: int = 0) -> list[Item]:
    """An inner node of a job."""
    now = {"job": job, "generation": generation}
    items: list[Item] = [
        entry(JOBS, now, call("inner_node", slot_base=base, slots=8, children=children, parent=9, parent_bit=1)),
        entry(PARENTS, {**now, "ingress_port": 3, "src_addr": 9}, call("replicate", group=job)),
        Group(job, tuple((port_of + i, 32 * job + i) for i in range(children.bit_length()))),
    ]
    for i in range(children.bit_length()):
        match = {**now, "contributors": 1 << i, "ingress_port": port_of + i, "src_addr": 100 + i}
        items.append(entry(MEMBERS, match, call("accept")))
        deliver = call("deliver", dst_addr=100 + i, src_mac=1, dst_mac=2, child_bit=1 << i)
        items.append(entry(REPLICAS, {"egress_rid": 32 * job + i}, deliver))
    return items


BASE: list[Item] = [
    entry(NODE_ADDRESS, {"dst_addr": 0x0AFF0001}, call("to_node")),
    entry(ROUTES, {"dst_addr": (0x0A000201, 32)}, *(call("forward", port=p, src_mac=1, dst_mac=p) for p in (3, 4))),
    CloneSession(1, ((510, 0),)),
    default_action(TELEMETRY_NODE, call("identify", node_id=5)),
]


def open_session(fake: FakeSwitch, pipeline: CompiledPipeline) -> SwitchSession:
    return SwitchSession("s1", fake.address, device_id=1, pipeline=pipeline, timeout_s=60)


async def held(session: SwitchSession) -> SwitchState:
    return await session.read([TELEMETRY_NODE])


async def test_a_plan_replaced_by_the_next_leaves_exactly_the_next(
    fake: FakeSwitch, pipeline: CompiledPipeline
) -> None:
    plans = [
        SwitchState.of(BASE),
        SwitchState.of([*BASE, *node(1, 1, 3)]),
        SwitchState.of([*BASE, *node(1, 2, 7, port_of=2), *node(2, 1, 1, base=8)]),
        SwitchState.of([*BASE[1:], *node(2, 2, 15, base=8)]),
        SwitchState.of(BASE),
    ]
    async with open_session(fake, pipeline) as session:
        for plan in plans:
            assert await reconcile(session, plan)
            assert (await held(session)).lines() == plan.lines()
            assert not await verify(session, plan)
            written = len(fake.writes)
            assert not await reconcile(session, plan)
            assert len(fake.writes) == written  # idempotent: nothing to write, nothing written


async def test_only_what_differs_is_written(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    before = SwitchState.of([*BASE, *node(1, 1, 3)])
    fewer_routes = entry(ROUTES, {"dst_addr": (0x0A000201, 32)}, call("forward", port=3, src_mac=1, dst_mac=3))
    after = SwitchState.of([BASE[0], fewer_routes, *BASE[2:], *node(1, 1, 3)])
    async with open_session(fake, pipeline) as session:
        await reconcile(session, before)
        fake.writes.clear()
        diff = await reconcile(session, after)
        assert [len(w.updates) for w in fake.writes] == [1]
        assert fake.writes[0].updates[0].type == p4r.Update.MODIFY
        assert str(diff) == (
            "~ routes dst_addr=10.0.2.1/32 -> forward(dst_mac=00:00:00:00:00:03, port=3, src_mac=00:00:00:00:00:01)"
            "   (is: forward(dst_mac=00:00:00:00:00:03, port=3, src_mac=00:00:00:00:00:01)"
            " | forward(dst_mac=00:00:00:00:00:04, port=4, src_mac=00:00:00:00:00:01))"
        )


@pytest.mark.parametrize("seed", range(5))
async def test_no_entry_ever_refers_to_a_missing_one(fake: FakeSwitch, pipeline: CompiledPipeline, seed: int) -> None:
    rng = random.Random(seed)
    async with open_session(fake, pipeline) as session:
        schema = session.schema
        state: dict[tuple[str, object], Item] = {}

        def apply(request: p4r.WriteRequest) -> None:
            """Apply a batch, which may be done in any order: removals take effect at once, additions only at the
            end.
            """
            fresh = []
            for update in request.updates:
                item = as_item(_decoded(update, schema), schema)
                assert item is not None
                if update.type == p4r.Update.DELETE:
                    key = next(k for k in state if k == item.key)
                    del state[key]
                elif update.type == p4r.Update.MODIFY:
                    state[item.key] = item
                else:
                    fresh.append(item)
            check()
            state.update((item.key, item) for item in fresh)
            leads_to = {k[0] for k in (item.key for item in fresh)}
            assert len(leads_to & {JOBS, MEMBERS, "multicast group"}) <= 1, leads_to
            check()

        def check() -> None:
            entries = [i for i in state.values() if isinstance(i, Entry)]
            jobs = {tuple(v for k, v in e.match) for e in entries if e.table == JOBS}
            groups = {i.group_id for i in state.values() if isinstance(i, Group)}
            rids = {dict(e.match)["egress_rid"] for e in entries if e.table == REPLICAS}
            for e in entries:
                if e.table == MEMBERS:
                    match = dict(e.match)
                    assert (match["generation"], match["job"]) in jobs, str(e)
                for c in e.calls:
                    if "group" in dict(c.args):
                        assert dict(c.args)["group"] in groups, str(e)
            for i in state.values():
                if isinstance(i, Group):
                    assert {rid for _, rid in i.replicas} <= rids, str(i)

        for _ in range(6):
            jobs = [
                node(job, rng.randint(1, 3), rng.choice([1, 3, 7]), rng.randint(1, 3), rng.choice([0, 8]))
                for job in (1, 2, 3)
                if rng.random() < 0.7
            ]
            fake.writes.clear()
            await reconcile(session, SwitchState.of([*BASE, *(item for job in jobs for item in job)]))
            for request in fake.writes:
                apply(request)


def _decoded(update: p4r.Update, schema: P4Schema) -> P4Entity:
    entity: P4Entity = decode_entity(update.entity, schema)
    return entity


async def test_read_back_finds_every_kind_of_tampering(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    plan = SwitchState.of([*BASE, *node(1, 1, 3)])
    async with open_session(fake, pipeline) as session:
        await reconcile(session, plan)
        now = {"job": 1, "generation": 1}
        job = call("inner_node", slot_base=8, slots=8, children=3, parent=9, parent_bit=1)
        member = {**now, "contributors": 1, "ingress_port": 1, "src_addr": 100}
        await session.write_updates(
            modifies=[entry(JOBS, now, job), default_action(TELEMETRY_NODE, call("identify", node_id=6))],
            deletes=[entry(MEMBERS, member, call("accept"))],
            inserts=[Group(77, ((1, 1),))],
        )
        diff = await verify(session, plan)
        assert str(diff).splitlines() == [
            "- multicast group 77 -> 1#1",
            "+ members contributors=0x1 generation=1 ingress_port=1 job=1 src_addr=0.0.0.100 -> accept()",
            "~ node default -> identify(node_id=5)   (is: identify(node_id=6))",
            "~ jobs generation=1 job=1 -> "
            "inner_node(children=0x3, parent=0.0.0.9, parent_bit=0x1, slot_base=0, slots=8)"
            "   (is: inner_node(children=0x3, parent=0.0.0.9, parent_bit=0x1, slot_base=8, slots=8))",
        ]
        assert len(await reconcile(session, plan)) == 4
        assert not await verify(session, plan)


async def test_after_a_refusal_the_same_call_takes_up_where_it_stopped(
    fake: FakeSwitch, pipeline: CompiledPipeline
) -> None:
    plan = SwitchState.of([*BASE, *node(1, 1, 3)])
    async with open_session(fake, pipeline) as session:
        members = session.schema.tables[MEMBERS].id
        fake.refuse = lambda update: update.entity.table_entry.table_id == members
        with pytest.raises(WriteRefused, match="s1: 2 of 3 updates refused: insert members contributors=0x1"):
            await reconcile(session, plan)
        assert len(await verify(session, plan)) == 2
        fake.refuse = lambda update: False
        assert len(await reconcile_all({"s1": session}, {"s1": plan})) == 1
        assert not await verify(session, plan)
        with raises(ControllerError, value=("s2",)):
            await reconcile_all({"s1": session}, {"s2": plan})


def test_equal_states_have_no_difference() -> None:
    state = SwitchState.of([*BASE, *node(1, 1, 3)])
    assert not difference(state, state)
    gone = difference(state, SwitchState())
    assert len(gone) == len(state.items) - 1  # a default action cannot be deleted
    assert (gone.inserts, gone.modifies) == ((), ())
