"""finsy, the asyncio client that our controller is built on, against the server with a real switch behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar, cast

import finsy as fy
import pytest
from finsy.p4entity import P4BackupReplica, P4Entity, P4Replica, P4ValueSetMember
from finsy.proto import stratum

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DEVICE_CONFIG,
    EXTERNS_P4INFO,
    EXTERNS_PROGRAM,
    P4INFO,
    Names,
    load_info,
)

OPTIONS = fy.SwitchOptions(p4info=P4INFO, p4blob=DEVICE_CONFIG, device_id=9)
EntityT = TypeVar("EntityT", bound=P4Entity)
ETHERNET = bytes.fromhex("0200000000020200000000010800")


@pytest.fixture
def switch() -> Switch:
    return Switch(9, ports=[1, 2])


@pytest.fixture
async def address(switch: Switch) -> AsyncIterator[str]:
    server = P4RuntimeServer([switch])
    server.start()
    yield server.address
    await asyncio.to_thread(server.stop)


def read(sw: fy.Switch, *queries: EntityT) -> AsyncIterator[EntityT]:
    """Results of the queries; finsy's own annotation declares a coroutine."""
    return cast(AsyncIterator[EntityT], sw.read(queries))


async def dump(sw: fy.Switch, *queries: P4Entity) -> set[str]:
    """Everything that the queries find, as text."""
    return {str(found) async for found in read(sw, *queries)}


async def test_finsy_loads_writes_reads_and_clears(address: str) -> None:
    async with fy.Switch("sw", address, OPTIONS) as sw:
        assert (sw.is_primary, str(sw.p4runtime_version)) == (True, "1.5.0")
        written = [
            fy.P4TableEntry(
                "exact_table",
                match=fy.P4TableMatch({"hdr.ethernet.dst": "02:00:00:00:00:01", "hdr.ethernet.type": 0x800}),
                action=fy.P4TableAction("forward", port=1),
            ),
            fy.P4TableEntry(
                "lpm_table",
                match=fy.P4TableMatch({"hdr.ethernet.dst": "02:00:00:00:00:00/40"}),
                action=fy.P4TableAction("drop"),
            ),
            fy.P4TableEntry(
                "mixed_table",
                priority=7,
                match=fy.P4TableMatch(
                    {"hdr.ethernet.dst": "02:00:00:00:00:00/&ff:00:00:00:00:00", "hdr.ethernet.src": 5}
                ),
                action=fy.P4TableAction("forward", port=2),
            ),
            fy.P4TableEntry(
                "selector_table",
                match=fy.P4TableMatch({"hdr.ethernet.dst": 3}),
                action=fy.P4IndirectAction(
                    [(1, fy.P4TableAction("forward", port=1)), (2, fy.P4TableAction("forward", port=2))]
                ),
            ),
            fy.P4MulticastGroupEntry(5, replicas=[1, 2]),
            fy.P4CloneSessionEntry(6, replicas=[1], packet_length_bytes=64),
        ]
        queries = (fy.P4TableEntry(), fy.P4MulticastGroupEntry(), fy.P4CloneSessionEntry())
        constants = await dump(sw, fy.P4TableEntry("const_table"))
        await sw.insert(written)
        assert await dump(sw, *queries) == {repr_of(sw, entry) for entry in written} | constants
        await sw.delete(written)
        assert await dump(sw, *queries) == constants
        await sw.insert(written)
        await sw.delete_all()  # which leaves groups and sessions alone when there is a constant table
        assert await dump(sw, fy.P4TableEntry()) == constants


def repr_of(sw: fy.Switch, entry: P4Entity) -> str:
    """The text of an entry as finsy shows one that it has read."""
    message = entry.encode(sw.p4info)
    return str(type(entry).decode(message, sw.p4info))


async def test_finsy_understands_the_errors(address: str) -> None:
    async with fy.Switch("sw", address, OPTIONS) as sw:
        entry = fy.P4TableEntry(
            "lpm_table",
            match=fy.P4TableMatch({"hdr.ethernet.dst": "02:00:00:00:00:00/40"}),
            action=fy.P4TableAction("drop"),
        )
        group = fy.P4MulticastGroupEntry(5)
        with pytest.raises(fy.P4ClientError) as error:
            await sw.delete([entry, group])
        assert error.value.is_not_found_only
        await sw.insert([group])
        with pytest.raises(fy.P4ClientError) as error:
            await sw.insert([entry, group])
        assert {number: detail.canonical_code for number, detail in error.value.details.items()} == {
            1: fy.GRPCStatusCode.ALREADY_EXISTS
        }
        assert len(await dump(sw, fy.P4TableEntry("lpm_table"))) == 1


async def test_a_second_finsy_is_a_backup_that_reads_and_may_not_write(address: str) -> None:
    async with fy.Switch("first", address, OPTIONS) as first:
        backup = fy.Switch("second", address, OPTIONS)
        async with backup as second:
            assert (first.is_primary, second.is_primary) == (True, False)
            assert len(await dump(second, fy.P4TableEntry("const_table"))) == 2
            with pytest.raises(fy.P4ClientError) as error:
                await second.insert([fy.P4MulticastGroupEntry(5)])
            assert error.value.code is fy.GRPCStatusCode.PERMISSION_DENIED


async def test_packets_go_through_the_compiled_program(address: str, switch: Switch) -> None:
    async with fy.Switch("sw", address, OPTIONS) as sw:
        packets = sw.read_packets()
        waiting = asyncio.ensure_future(anext(packets))
        await asyncio.sleep(0)
        out = await asyncio.to_thread(switch.forward, ETHERNET + b"from port 2", 2)
        packet = await asyncio.wait_for(waiting, 5)
        assert packet.payload == ETHERNET + b"from port 2"
        assert {name: packet[name] for name in ("ingress_port", "is_clone", "stamp")} == {
            "ingress_port": 2,
            "is_clone": 0,
            "stamp": len(ETHERNET) + len(b"from port 2"),
        }
        assert [port for port, _ in out] == [510]
        waiting = asyncio.ensure_future(anext(packets))
        await sw.write([fy.P4PacketOut(ETHERNET + b"out", egress_port=510, queue=0, _pad=0)])
        assert (await asyncio.wait_for(waiting, 5)).payload == ETHERNET + b"out"


async def test_registers_and_counters_show_what_the_program_did(address: str, switch: Switch) -> None:
    async with fy.Switch("sw", address, OPTIONS) as sw:
        await sw.write(
            [
                +fy.P4TableEntry(
                    "exact_table",
                    match=fy.P4TableMatch({"hdr.ethernet.dst": "02:00:00:00:00:02", "hdr.ethernet.type": 0x800}),
                    action=fy.P4TableAction("rewrite", port=1, dst=7, wide=(1 << 100) - 1),
                )
            ]
        )
        for _ in range(3):
            await asyncio.to_thread(switch.forward, ETHERNET + b"counted", 1)
        counters = [found async for found in read(sw, fy.P4CounterEntry("ports", index=0))]
        assert [found.data for found in counters] == [fy.P4CounterData(packet_count=3, byte_count=3 * 21)]
        values = [found.data async for found in read(sw, fy.P4RegisterEntry("wide_values"))]
        assert values == [(1 << 100) - 1, 0]
        assert [found.data async for found in read(sw, fy.P4RegisterEntry("levels", index=0))] == [-1]
        direct = [found.data async for found in read(sw, fy.P4DirectCounterEntry("hits"))]
        assert [(found.packet_count, found.byte_count) for found in direct if found] == [(3, 3 * 21)]


async def test_finsy_hears_digests_and_idle_entries_and_sets_meters(address: str, switch: Switch) -> None:
    options = fy.SwitchOptions(p4info=EXTERNS_P4INFO, p4blob=EXTERNS_PROGRAM, device_id=9)
    async with fy.Switch("sw", address, options) as sw:
        meter = fy.P4MeterConfig(cir=1, cburst=8, pir=2, pburst=16)
        flow = fy.P4TableEntry(
            "flows",
            match=fy.P4TableMatch({"hdr.order.value": 7}),
            action=fy.P4TableAction("metered", port=1),
            meter_config=meter,
            idle_timeout_ns=1_000_000,
        )
        pairs = fy.P4ValueSetEntry("members", members=[P4ValueSetMember({"kind": 1, "number": 2})])
        digest = fy.P4DigestEntry("learned_t", max_list_size=1, max_timeout_ns=1, ack_timeout_ns=10**12)
        await sw.write([+flow, ~fy.P4MeterEntry("shared", index=1, config=meter), ~pairs, +digest])
        assert [found.config async for found in read(sw, fy.P4MeterEntry("shared", index=1))] == [meter]
        assert [
            found.config async for found in read(sw, fy.P4DirectMeterEntry(table_entry=fy.P4TableEntry("flows")))
        ] == [meter]
        assert [found.members async for found in read(sw, fy.P4ValueSetEntry("members", members=[]))] == [pairs.members]
        assert [found async for found in read(sw, fy.P4DigestEntry("learned_t"))] == [digest]
        lists, idles = sw.read_digests("learned_t"), sw.read_idle_timeouts()
        heard = asyncio.gather(anext(lists), anext(idles))
        await asyncio.sleep(0)
        await asyncio.to_thread(switch.forward, bytes((3, 0, 0, 9)) + bytes(4), 1, 2_000_000)
        learned, idle = await asyncio.wait_for(heard, 5)
        assert [{**record} for record in learned.data] == [
            {"what": 3, "value": 9, "port": 1, "wide": 0x123456789ABCDEF01234}
        ]
        assert [(entry.table_id, entry.match) for entry in idle.table_entry] == [("flows", {"value": 7})]
        waiting = asyncio.ensure_future(anext(lists))
        await sw.write([learned.ack()])
        for number in range(200):  # until the server has taken the acknowledgement
            await asyncio.to_thread(switch.forward, bytes((3, 0, 0, 9)) + bytes(4), 1, 2_000_000 + number)
            if waiting.done():
                break
            await asyncio.sleep(0.01)
        assert len((await waiting).data) == 1


async def test_finsys_role_is_held_to_its_config(address: str) -> None:
    names = Names(load_info())
    config = stratum.P4RoleConfig(exclusive_p4_ids=[names.table["lpm_table"]], can_push_pipeline=True)
    limited = OPTIONS(role_name="limited", role_config=config)
    entry = fy.P4TableEntry(
        "lpm_table",
        match=fy.P4TableMatch({"hdr.ethernet.dst": "02:00:00:00:00:00/40"}),
        action=fy.P4TableAction("drop"),
    )
    other = fy.P4TableEntry("keyless_table", is_default_action=True, action=fy.P4TableAction("forward", port=1))
    async with fy.Switch("all", address, OPTIONS) as everything, fy.Switch("some", address, limited) as sw:
        assert (everything.is_primary, sw.is_primary) == (True, True)
        await sw.insert([entry])
        with pytest.raises(fy.P4ClientError) as error:
            await sw.modify([other])
        assert {detail.canonical_code for detail in error.value.details.values()} == {
            fy.GRPCStatusCode.PERMISSION_DENIED
        }
        await everything.modify([other, entry])


async def test_finsy_uses_replicas_ports_and_default_entry_counters(address: str, switch: Switch) -> None:
    async with fy.Switch("sw", address, OPTIONS) as sw:
        group = fy.P4MulticastGroupEntry(5, replicas=[P4Replica(1, backup_replicas=[P4BackupReplica(2, instance=3)])])
        balanced = fy.P4TableEntry(
            "selector_table",
            match=fy.P4TableMatch({"hdr.ethernet.dst": 3}),
            action=fy.P4IndirectAction(
                [((1, 1), fy.P4TableAction("forward", port=1)), ((2, 2), fy.P4TableAction("forward", port=2))]
            ),
        )
        await sw.insert([group, balanced])
        found = await dump(sw, fy.P4MulticastGroupEntry(), fy.P4TableEntry("selector_table"))
        assert found == {repr_of(sw, group), repr_of(sw, balanced)}
        for _ in range(3):
            await asyncio.to_thread(switch.forward, ETHERNET, 1)
        default = fy.P4TableEntry("exact_table", is_default_action=True, counter_data=fy.P4CounterData())
        [entry] = [entry async for entry in read(sw, default)]
        assert entry.counter_data == fy.P4CounterData(packet_count=3, byte_count=3 * len(ETHERNET))
