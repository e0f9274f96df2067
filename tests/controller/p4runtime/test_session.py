"""A session writes, reads and exchanges packets as planned, and every fault is one error that names where."""

from __future__ import annotations

import asyncio
import logging

import pytest
from finsy.proto import p4r

from weir.controller.errors import ControllerError, ElectionLost, SwitchError, SwitchUnreachable
from weir.controller.p4runtime.entries import CloneSession, Group, Item, SwitchState, call, default_action, entry
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.refusals import ProgramMisfit, RefusedUpdate, UpdateKind, WriteRefused
from weir.controller.p4runtime.session import PacketIn, SwitchSession
from weir.tests.support.errors import raises
from weir.tests.support.fake_switch import FakeSwitch

EVERYTHING: list[Item] = [
    entry("FabricIngress.node_address", {"dst_addr": 0x0AFF0001}, call("to_node")),
    entry(
        "FabricIngress.aggregation.jobs",
        {"job": 3, "generation": 1},
        call("inner_node", slot_base=64, slots=32, children=7, parent=0x0AFF0005, parent_bit=2),
    ),
    entry(
        "FabricIngress.aggregation.members",
        {"job": 3, "generation": 1, "contributors": 4, "ingress_port": 2, "src_addr": 0x0A000101},
        call("accept"),
    ),
    entry(
        "FabricIngress.routing.routes",
        {"dst_addr": (0x0A000201, 32)},
        call("forward", port=4, src_mac=0x02000AFF0001, dst_mac=0x02000AFF0004),
        call("forward", port=3, src_mac=0x02000AFF0001, dst_mac=0x02000AFF0003),
    ),
    Group(3, ((1, 1), (2, 2))),
    CloneSession(1, ((510, 0),)),
]
LINES = {
    "node_address dst_addr=10.255.0.1 -> to_node()",
    "jobs generation=1 job=3 -> inner_node(children=0x7, parent=10.255.0.5, parent_bit=0x2, slot_base=64, slots=32)",
    "members contributors=0x4 generation=1 ingress_port=2 job=3 src_addr=10.0.1.1 -> accept()",
    "routes dst_addr=10.0.2.1/32 -> forward(dst_mac=02:00:0a:ff:00:03, port=3, src_mac=02:00:0a:ff:00:01)"
    " | forward(dst_mac=02:00:0a:ff:00:04, port=4, src_mac=02:00:0a:ff:00:01)",
    "multicast group 3 -> 1#1 2#2",
    "clone session 1 -> 510#0",
}
NODE = default_action("FabricEgress.telemetry.node", call("identify", node_id=77))


def open_session(
    fake: FakeSwitch, pipeline: CompiledPipeline, timeout_s: float = 60.0, answer_s: float | None = None
) -> SwitchSession:
    return SwitchSession("s1", fake.address, device_id=1, pipeline=pipeline, timeout_s=timeout_s, answer_s=answer_s)


async def test_written_entities_are_read_back(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    async with open_session(fake, pipeline) as session:
        await session.write_updates(inserts=EVERYTHING, modifies=[NODE])
        state = await session.read()
        assert state.lines() == LINES
        assert state == SwitchState.of(EVERYTHING)
        with_default = await session.read(["FabricEgress.telemetry.node"])
        assert with_default.lines() == LINES | {"node default -> identify(node_id=77)"}
        await session.write_updates(deletes=EVERYTHING[:3])
        assert await session.read() == SwitchState.of(EVERYTHING[3:])


async def test_the_pipeline_is_set_only_where_another_one_runs(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    async with open_session(fake, pipeline) as session:
        await session.write_updates(inserts=EVERYTHING)
    assert fake.configs_set == 1
    async with open_session(fake, pipeline) as session:
        assert await session.read() == SwitchState.of(EVERYTHING)
    assert fake.configs_set == 1


async def test_refused_updates_name_switch_table_and_entry(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    async with open_session(fake, pipeline) as session:
        fake.refuse = lambda update: update.entity.HasField("table_entry")
        with pytest.raises(WriteRefused) as error:
            await session.write_updates(inserts=EVERYTHING)
        text = str(error.value)
        assert text.startswith(
            "s1: 4 of 6 updates refused: insert node_address dst_addr=10.255.0.1 -> to_node(): table is full;"
        )
        assert "insert members contributors=0x4 generation=1 ingress_port=2 job=3 src_addr=10.0.1.1" in text
        assert (await session.read()).lines() == {"multicast group 3 -> 1#1 2#2", "clone session 1 -> 510#0"}


async def test_a_refused_write_keeps_every_update_with_its_code(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    async with open_session(fake, pipeline) as session:
        await session.write_updates(inserts=EVERYTHING[:2])
        with pytest.raises(WriteRefused) as exists:
            await session.write_updates(inserts=EVERYTHING[:3])
        error = exists.value
        assert (error.switch, error.updates, len(error.refused)) == ("s1", 3, 2)
        assert [(u.kind, u.item, u.code) for u in error.refused] == [
            (UpdateKind.INSERT, item, "ALREADY_EXISTS") for item in EVERYTHING[:2]
        ]
        assert (error.is_already_exists, error.is_not_found) == (True, False)
        with pytest.raises(WriteRefused) as missing:
            await session.write_updates(deletes=EVERYTHING[2:])
        assert [(u.kind, u.item, u.is_not_found) for u in missing.value.refused] == [
            (UpdateKind.DELETE, item, True)
            for item in EVERYTHING[3:]  # entries that were not refused have been written
        ]
        assert (missing.value.is_not_found, missing.value.is_resource_exhausted) == (True, False)
        fake.refuse = lambda update: update.type == p4r.Update.MODIFY
        with pytest.raises(WriteRefused) as full:
            await session.write_updates(modifies=[NODE])
        assert full.value.refused == (RefusedUpdate(UpdateKind.MODIFY, NODE, "RESOURCE_EXHAUSTED", "table is full"),)
        assert full.value.is_resource_exhausted
    two = (
        RefusedUpdate(UpdateKind.INSERT, NODE, "NOT_FOUND"),
        RefusedUpdate(UpdateKind.INSERT, NODE, "INVALID_ARGUMENT"),
    )
    assert str(WriteRefused("s1", two, 2)).endswith("insert node default -> identify(node_id=77): INVALID_ARGUMENT")
    assert not WriteRefused("s1", two, 2).is_not_found  # only one of them is
    assert not WriteRefused("s1", two, 2).is_invalid_argument


async def test_an_unreachable_switch_keeps_identity_and_requests(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    fake.refuse_pipeline = "no such table"
    with pytest.raises(SwitchError) as refused:
        await open_session(fake, pipeline).__aenter__()
    assert (refused.value.code, refused.value.reason) == ("INVALID_ARGUMENT", "no such table")
    fake.refuse_pipeline = ""
    async with open_session(fake, pipeline) as session:
        await fake.stop()
        while session.is_up:
            await asyncio.sleep(0.01)
        with pytest.raises(SwitchUnreachable) as broken:
            await session.read()
        error = broken.value
        assert (error.switch, error.address, error.asked, error.code) == ("s1", fake.address, "read its state", "")


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (entry("FabricIngress.nowhere", {"x": 1}, call("go")), "nowhere x=1"),
        (entry("FabricIngress.traffic_class", {"dscp": 64}, call("set_class", priority=1)), "dscp=64"),
        (entry("FabricIngress.traffic_class", {"dscp": 1}, call("set_class", priority=8)), "priority=8"),
        (entry("FabricIngress.node_address", {"dst_addr": 1}, call("to_node"), call("to_node")), "2 actions"),
    ],
)
async def test_an_entry_that_does_not_fit_the_program_is_not_sent(
    fake: FakeSwitch, pipeline: CompiledPipeline, item: Item, says: str
) -> None:
    async with open_session(fake, pipeline) as session:
        with raises(ProgramMisfit, switch="s1", item=item) as error:
            await session.write_updates(inserts=[item])
        assert says in str(error.value)
        assert (error.value.switch, error.value.item) == ("s1", item)
        assert fake.writes == []


async def test_packets_go_out_and_come_in_counted(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    async with open_session(fake, pipeline) as session:
        assert await session.send_packets([(3, b"first"), (4, b"second")]) == 2
        for n in range(200):  # more than finsy's default queue
            fake.send(bytes([n]), ingress_port=n % 5)
        await session.drain(200)
        assert session.packet_outs_sent == 2
        assert session.packet_ins_received == 200
        assert session.pop_packet_ins() == [PacketIn(n % 5, bytes([n])) for n in range(200)]
        assert session.pop_packet_ins() == []
        with raises(ControllerError, place="s1", value=200):
            await session.drain(201, timeout_s=0.05)
    assert [(p.payload, p.metadata[0].value) for p in fake.packets_out] == [(b"first", b"\3"), (b"second", b"\4")]


async def test_a_closed_port_is_one_error_without_a_traceback(
    fake: FakeSwitch, pipeline: CompiledPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session(fake, pipeline)
    await fake.stop()
    with raises(SwitchUnreachable, switch="s1", asked="connect") as refused:
        await session.__aenter__()
    assert refused.value.reason.startswith("nobody answers there")
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    await fake.start()


async def test_a_server_that_never_answers_is_given_up_in_time(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    fake.silent = True
    with pytest.raises(SwitchUnreachable, match=r"cannot connect: no answer .*0\.2 s"):
        await open_session(fake, pipeline, timeout_s=0.2).__aenter__()


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:", "127.0.0.1:70000", "a b:9559", ""])
def test_an_impossible_address_is_refused_at_once(pipeline: CompiledPipeline, address: str) -> None:
    with raises(SwitchUnreachable, switch="s1", address=address, asked="connect"):
        SwitchSession("s1", address, device_id=1, pipeline=pipeline)


async def test_a_second_controller_is_told_that_it_is_not_primary(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    fake.primary = 99
    with raises(ElectionLost, asked="connect", primary_id=99, election_id=10):
        await open_session(fake, pipeline).__aenter__()


async def test_a_stream_that_breaks_is_noticed(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    async with open_session(fake, pipeline) as session:
        draining = asyncio.create_task(session.drain(1))
        await asyncio.sleep(0.01)
        await fake.stop()
        with raises(SwitchUnreachable, asked="take its packets"):
            await draining
        with raises(SwitchUnreachable, asked="read its state"):
            await session.read()
    await fake.start()


def test_a_missing_pipeline_is_named(pipeline: CompiledPipeline) -> None:
    missing = CompiledPipeline(pipeline.p4info, pipeline.blob.with_name("gone.json"))
    with raises(ControllerError, place="pipeline", value=missing.blob):
        SwitchSession("s1", "127.0.0.1:1", device_id=1, pipeline=missing)


async def test_a_broken_stream_is_opened_again_by_itself(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    async with open_session(fake, pipeline) as session:
        await session.write_updates(inserts=EVERYTHING)
        assert (session.openings, session.is_up, session.is_primary) == (1, True, True)
        await fake.stop()
        while session.is_up:
            await asyncio.sleep(0.01)
        fake.entities.clear()  # it starts anew, and has lost everything
        await fake.start(fake.address)
        async with asyncio.timeout(60):
            while session.openings < 2:
                await asyncio.sleep(0.01)
        assert (await session.read()).lines() == set()
        await session.write_updates(inserts=EVERYTHING)
        assert await session.send_packets([(1, b"x")]) == 1
        fake.send(b"back")
        await session.drain(1)
        assert [p.frame for p in session.pop_packet_ins()] == [b"back"]
        assert not session.deposed


async def test_a_patient_session_begins_when_the_switch_does(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    await fake.stop()
    async with SwitchSession("s1", fake.address, device_id=1, pipeline=pipeline, timeout_s=60, patient=True) as session:
        assert (session.is_up, session.openings) == (False, 0)
        with raises(SwitchUnreachable, asked="read its state"):
            await session.read()
        await fake.start(fake.address)
        async with asyncio.timeout(60):
            await session.until_primary()
        await session.write_updates(inserts=EVERYTHING)
        assert (await session.read()).lines() == LINES


async def test_a_switch_that_hangs_up_is_not_there_yet(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    fake.hangs_up = True
    with raises(SwitchUnreachable, switch="s1", asked="connect") as broken:
        await open_session(fake, pipeline).__aenter__()
    assert broken.value.reason.startswith("the stream broke")
    async with SwitchSession("s1", fake.address, device_id=1, pipeline=pipeline, timeout_s=60, patient=True) as session:
        assert not session.is_up
        fake.hangs_up = False
        async with asyncio.timeout(60):
            await session.until_primary()


@pytest.mark.long
async def test_a_switch_may_take_its_time_to_compile_a_program(fake: FakeSwitch, pipeline: CompiledPipeline) -> None:
    """Longer than finsy waits for any answer, which is ten seconds."""
    fake.compiles_s = 10.5
    async with open_session(fake, pipeline) as session:
        assert session.is_up


async def test_a_switch_that_falls_silent_has_its_stream_begun_anew(
    fake: FakeSwitch, pipeline: CompiledPipeline
) -> None:
    async with open_session(fake, pipeline, answer_s=0.3) as session:
        fake.mute.clear()
        with raises(SwitchUnreachable, asked="write", reason="no answer within 0.3 s"):
            await session.write_updates(inserts=EVERYTHING)
        async with asyncio.timeout(60):
            while session.openings < 2:
                await asyncio.sleep(0.01)
        fake.mute.set()


@pytest.mark.parametrize(
    ("openings", "turns"), [(1, turns) for turns in range(0, 240, 16)] + [(2, n) for n in range(8)]
)
async def test_a_session_ends_quietly_at_any_moment_of_reopening(
    fake: FakeSwitch, pipeline: CompiledPipeline, openings: int, turns: int
) -> None:
    async with open_session(fake, pipeline) as session:
        fake.break_stream()
        async with asyncio.timeout(60):
            while session.openings < openings:
                await asyncio.sleep(0)
        for _ in range(turns):  # of the event loop
            await asyncio.sleep(0)
    assert not session.is_up
    assert not [task.get_name() for task in asyncio.all_tasks() if "s1" in task.get_name()]


async def test_a_pipeline_that_is_refused_is_an_error_that_says_why(
    fake: FakeSwitch, pipeline: CompiledPipeline
) -> None:
    fake.refuse_pipeline = "no such table"
    with raises(SwitchError, switch="s1", asked="connect", code="INVALID_ARGUMENT", reason="no such table"):
        await open_session(fake, pipeline).__aenter__()


async def test_a_broken_stream_fails_calls_without_cancelling_tasks(
    fake: FakeSwitch, pipeline: CompiledPipeline
) -> None:
    async with open_session(fake, pipeline) as session:
        fake.mute.clear()
        writing = asyncio.create_task(session.write_updates(inserts=EVERYTHING))
        await asyncio.wait_for(fake.asked.wait(), 60)
        fake.break_stream()
        with pytest.raises(SwitchUnreachable, match=r"cannot write: the stream broke; .*switch still running"):
            await writing
        fake.mute.set()
        async with asyncio.timeout(60):
            while session.openings < 2:
                await asyncio.sleep(0.01)
        fake.mute.clear()
        writing = asyncio.create_task(session.write_updates(inserts=EVERYTHING))
        await asyncio.sleep(0)
        writing.cancel()  # by the caller
        with pytest.raises(asyncio.CancelledError):
            await writing
        fake.mute.set()


async def test_a_session_reopens_after_refusals_and_keeps_the_reason(
    fake: FakeSwitch, pipeline: CompiledPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_session(fake, pipeline) as session:
        fake.config, fake.refuse_pipeline = None, "busy"
        fake.break_stream()
        async with asyncio.timeout(60):
            while "cannot connect: INVALID_ARGUMENT: busy; it is tried again" not in caplog.text:
                await asyncio.sleep(0.01)
        fake.refuse_pipeline = ""
        async with asyncio.timeout(60):
            while session.openings < 2:
                await asyncio.sleep(0.01)
        assert caplog.text.count("busy") == 1
        await session.write_updates(inserts=EVERYTHING)


async def test_an_election_id_that_cannot_be_is_refused(pipeline: CompiledPipeline) -> None:
    for bad in (0, -1, 1 << 128):
        with raises(ControllerError, place="s1", value=bad):
            SwitchSession("s1", "127.0.0.1:9559", device_id=1, pipeline=pipeline, election_id=bad)
