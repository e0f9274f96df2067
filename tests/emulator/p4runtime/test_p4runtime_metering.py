"""Meters, direct and indirect, and parser value sets, against a program that uses them and the switch that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from finsy.proto import p4i, p4r

from emulator.p4runtime import P4RuntimeServer
from emulator.switch import Switch
from tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    INSERT,
    MODIFY,
    Client,
    entity,
    load_info,
    text,
)

PROGRAMS = Path(__file__).parents[1] / "programs"
EXTERNS = load_info(PROGRAMS / "externs.p4info.txtpb")
FLOWS = next(table.preamble.id for table in EXTERNS.tables if table.preamble.alias == "flows")
PLAIN = next(table.preamble.id for table in EXTERNS.tables if table.preamble.alias == "plain")
METERED = next(action.preamble.id for action in EXTERNS.actions if action.preamble.alias == "metered")
SHARED = EXTERNS.meters[0].preamble.id
NUMBERS, MEMBERS = (value_set.preamble.id for value_set in EXTERNS.value_sets)
GREEN, YELLOW, RED = range(3)


@pytest.fixture
def switch() -> Switch:
    return Switch(1, ports=[0, 1, 2])


@pytest.fixture
def client(switch: Switch) -> Iterator[Client]:
    """The primary of a switch that runs `externs.p4`."""
    server = P4RuntimeServer([switch])
    server.start()
    client = Client(server.address)
    stream = client.primary()
    assert client.set_config(config(EXTERNS)) == "OK"
    yield client
    stream.close()
    client.channel.close()
    server.stop()


def config(info: p4i.P4Info) -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=(PROGRAMS / "externs.json").read_bytes())


def colors(switch: Switch, what: int, value: int, count: int) -> list[int]:
    """The colours of packets back to back, of 8 bytes."""
    frame = bytes((what, 0)) + value.to_bytes(2, "big") + bytes(4)
    return [sent[1] for _ in range(count) for _, sent in switch.forward(frame, 0)]


def rates(cir: int, cburst: int, pir: int, pburst: int, eburst: int = 0) -> p4r.MeterConfig:
    return p4r.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst, eburst=eburst)


def shared(index: int | None, given: p4r.MeterConfig | None = None) -> p4r.MeterEntry:
    entry = p4r.MeterEntry(meter_id=SHARED, config=given)
    if index is not None:
        entry.index.index = index
        entry.index.SetInParent()
    return entry


def flow(value: int, given: p4r.MeterConfig | None = None, *, action: bool = True) -> p4r.TableEntry:
    entry = p4r.TableEntry(table_id=FLOWS, meter_config=given)
    entry.match.add(field_id=1).exact.value = value.to_bytes(1, "big")
    if action:
        entry.action.action.action_id = METERED
        entry.action.action.params.add(param_id=1, value=b"\x01")
    return entry


def direct(value: int, given: p4r.MeterConfig | None = None) -> p4r.DirectMeterEntry:
    return p4r.DirectMeterEntry(table_entry=flow(value, action=False), config=given)


def texts(*messages: object) -> set[str]:
    return {text(entity(message)) for message in messages}


def test_meters_are_configured_read_and_reset(client: Client, switch: Switch) -> None:
    slow = rates(1, 8, 2, 16)
    assert client.write((MODIFY, shared(1, slow))) == ["OK"]
    expected = texts(shared(0), shared(1, slow), shared(2), shared(3))
    assert client.dump(p4r.MeterEntry()) == client.dump(shared(None)) == expected
    assert client.dump(shared(1)) == texts(shared(1, slow))
    assert (colors(switch, 2, 1, 3), colors(switch, 2, 0, 3)) == ([GREEN, YELLOW, RED], [GREEN] * 3)
    fast = rates((1 << 41) - 1, 1 << 62, 1 << 41, 1 << 62)
    assert client.write((MODIFY, shared(None, fast))) == ["OK"]
    assert client.dump(p4r.MeterEntry()) == texts(*(shared(i, fast) for i in range(4)))
    assert client.write((MODIFY, shared(1)), (MODIFY, shared(2, rates(0, 0, 0, 0)))) == ["OK"] * 2
    assert client.dump(p4r.MeterEntry()) == texts(
        shared(0, fast), shared(1), shared(2, rates(0, 0, 0, 0)), shared(3, fast)
    )
    assert (colors(switch, 2, 1, 3), colors(switch, 2, 2, 1)) == ([GREEN] * 3, [RED])


def test_a_meter_that_cannot_be_is_refused_and_changes_nothing(client: Client) -> None:
    counted = shared(0, rates(1, 1, 1, 1))
    counted.counter_data.SetInParent()
    bad = [
        (INSERT, shared(0, rates(1, 1, 1, 1)), "INVALID_ARGUMENT"),
        (DELETE, shared(0), "INVALID_ARGUMENT"),
        (MODIFY, shared(-1), "INVALID_ARGUMENT"),
        (MODIFY, shared(4), "OUT_OF_RANGE"),
        (MODIFY, shared(0, rates(1, 1, 1, 1, eburst=1)), "INVALID_ARGUMENT"),
        (MODIFY, shared(0, rates(2, 1, 1, 1)), "INVALID_ARGUMENT"),
        (MODIFY, shared(0, rates(-1, 1, 1, 1)), "INVALID_ARGUMENT"),
        (MODIFY, shared(0, rates(1, -1, 1, 1)), "INVALID_ARGUMENT"),
        (MODIFY, shared(0, rates(1, 1, (1 << 41) + 1, 1)), "INVALID_ARGUMENT"),
        (MODIFY, counted, "UNIMPLEMENTED"),
        (MODIFY, p4r.MeterEntry(), "INVALID_ARGUMENT"),
        (MODIFY, p4r.MeterEntry(meter_id=5), "INVALID_ARGUMENT"),
    ]
    assert client.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert client.read_outcome(shared(4), shared(-1), p4r.MeterEntry(meter_id=5), counted) == [
        "OUT_OF_RANGE",
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
        "UNIMPLEMENTED",
    ]
    assert client.dump(p4r.MeterEntry()) == texts(*(shared(i) for i in range(4)))


def test_direct_meters_live_with_their_entries(client: Client, switch: Switch) -> None:
    slow, slower = rates(1, 1, 2, 2), rates(0, 0, 1, 1)
    assert client.write((INSERT, flow(7, slow)), (INSERT, flow(8))) == ["OK"] * 2
    assert client.dump(p4r.DirectMeterEntry()) == texts(direct(7, slow), direct(8))
    assert client.dump(direct(7)) == texts(direct(7, slow))
    assert client.dump(p4r.TableEntry(table_id=FLOWS)) == texts(flow(7), flow(8))
    asking = p4r.TableEntry(table_id=FLOWS, meter_config=p4r.MeterConfig())
    assert client.dump(asking) == texts(flow(7, slow), flow(8))
    assert (colors(switch, 1, 7, 3), colors(switch, 1, 8, 3)) == ([GREEN, YELLOW, RED], [GREEN] * 3)
    assert client.write((MODIFY, direct(8, slower)), (MODIFY, direct(7))) == ["OK"] * 2
    assert client.dump(asking) == texts(flow(7), flow(8, slower))
    assert (colors(switch, 1, 7, 3), colors(switch, 1, 8, 2)) == ([GREEN] * 3, [YELLOW, RED])
    assert client.write((MODIFY, flow(7, slow)), (MODIFY, flow(8, action=False))) == ["OK"] * 2
    assert client.dump(asking) == texts(flow(7, slow), flow(8))  # an unset config goes back to green
    assert client.write((DELETE, flow(7))) == ["OK"]
    assert client.dump(p4r.DirectMeterEntry()) == texts(direct(8))
    default = p4r.DirectMeterEntry(table_entry=p4r.TableEntry(table_id=FLOWS, is_default_action=True))
    foreign = p4r.DirectMeterEntry(table_entry=p4r.TableEntry(table_id=PLAIN))
    bad = [
        (MODIFY, direct(7, slow), "NOT_FOUND"),
        (INSERT, direct(8, slow), "INVALID_ARGUMENT"),
        (MODIFY, direct(8, rates(2, 1, 1, 1)), "INVALID_ARGUMENT"),
        (MODIFY, foreign, "INVALID_ARGUMENT"),
        (MODIFY, default, "UNIMPLEMENTED"),
        (INSERT, flow(9, rates(2, 1, 1, 1)), "INVALID_ARGUMENT"),
    ]
    assert client.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert client.read_outcome(direct(7), foreign) == ["NOT_FOUND", "INVALID_ARGUMENT"]
    assert client.dump(asking) == texts(flow(8))


def test_a_reconciled_pipeline_keeps_meters_and_value_sets(client: Client) -> None:
    slow = rates(1, 1, 2, 2)
    numbers = value_set(NUMBERS, (5,))
    assert client.write((INSERT, flow(7, slow)), (MODIFY, shared(2, slow)), (MODIFY, numbers)) == ["OK"] * 3
    queries = (p4r.MeterEntry(), p4r.DirectMeterEntry(), p4r.ValueSetEntry())
    before = client.dump(*queries)
    reconcile = p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT
    assert client.set_config(config(EXTERNS), reconcile) == "OK"
    assert client.dump(*queries) == before >= texts(direct(7, slow), shared(2, slow), numbers)


def value_set(set_id: int, *members: tuple[int, ...]) -> p4r.ValueSetEntry:
    """Members are exact values, one per field."""
    entry = p4r.ValueSetEntry(value_set_id=set_id)
    for member in members:
        message = entry.members.add()
        for field_id, value in enumerate(member, 1):
            message.match.add(field_id=field_id).exact.value = value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
    return entry


def marked(switch: Switch, number: int, pair: int) -> bool:
    """Whether the parser found both members and marked the packet."""
    frame = bytes(2) + number.to_bytes(2, "big") + bytes(4) + pair.to_bytes(2, "big")
    [(_, sent)] = switch.forward(frame, 0)
    return sent[4:8] == bytes.fromhex("0000abcd")


def test_value_sets_steer_the_parser(client: Client, switch: Switch) -> None:
    numbers, members = value_set(NUMBERS, (5,), (0x1234,), (0,)), value_set(MEMBERS, (0xA, 0xBCD))
    assert client.dump(p4r.ValueSetEntry()) == texts(value_set(NUMBERS), value_set(MEMBERS))
    assert client.write((MODIFY, numbers), (MODIFY, members)) == ["OK"] * 2
    assert client.dump(p4r.ValueSetEntry()) == texts(numbers, members)
    assert client.dump(p4r.ValueSetEntry(value_set_id=MEMBERS)) == texts(members)
    assert [marked(switch, 0x1234, 0xABCD), marked(switch, 0x1234, 0xABCE), marked(switch, 6, 0xABCD)] == [
        True,
        False,
        False,
    ]
    partial, wide = value_set(MEMBERS, (1,)), value_set(MEMBERS, (16, 1))
    bad = [
        (INSERT, numbers, "INVALID_ARGUMENT"),
        (DELETE, numbers, "INVALID_ARGUMENT"),
        (MODIFY, value_set(NUMBERS, (1,), (2,), (3,), (4,)), "RESOURCE_EXHAUSTED"),
        (MODIFY, value_set(NUMBERS, (1,), (1,)), "ALREADY_EXISTS"),
        (MODIFY, partial, "INVALID_ARGUMENT"),
        (MODIFY, wide, "INVALID_ARGUMENT"),
        (MODIFY, value_set(0), "INVALID_ARGUMENT"),
        (MODIFY, value_set(3), "INVALID_ARGUMENT"),
    ]
    assert client.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert client.dump(p4r.ValueSetEntry()) == texts(numbers, members)
    assert client.write((MODIFY, value_set(NUMBERS))) == ["OK"]
    assert client.dump(p4r.ValueSetEntry(value_set_id=NUMBERS)) == texts(value_set(NUMBERS))
    assert not marked(switch, 0x1234, 0xABCD)


def test_members_match_as_p4info_says(client: Client, switch: Switch) -> None:
    """The same program with other match kinds, which only P4Info tells."""
    kinds = p4i.MatchField
    info = p4i.P4Info()
    info.CopyFrom(EXTERNS)
    numbers, members = info.value_sets
    numbers.match[0].match_type = kinds.RANGE
    members.match[0].match_type, members.match[1].match_type = kinds.OPTIONAL, kinds.TERNARY
    assert client.set_config(config(info)) == "OK"
    ranged, masked = p4r.ValueSetEntry(value_set_id=NUMBERS), p4r.ValueSetEntry(value_set_id=MEMBERS)
    for low, high in ((b"\x10", b"\x1f"), (b"\x05", b"\x05")):
        field = ranged.members.add().match.add(field_id=1)
        field.range.low, field.range.high = low, high
    ternary = masked.members.add().match.add(field_id=2).ternary
    ternary.value, ternary.mask = b"\x0b\x00", b"\x0f\x00"
    masked.members.add().match.add(field_id=1).optional.value = b"\x03"
    assert client.write((MODIFY, ranged), (MODIFY, masked)) == ["OK"] * 2
    assert client.dump(p4r.ValueSetEntry()) == texts(ranged, masked)
    found = {(n, pair) for n in (4, 5, 6, 0xF, 0x10, 0x1F, 0x20) for pair in (0x3001, 0x7BFF, 0x7AFF)
             if marked(switch, n, pair)}  # fmt: skip
    assert found == {(n, pair) for n in (5, 0x10, 0x1F) for pair in (0x3001, 0x7BFF)}
    ranged.members[0].match[0].range.high = b"\x20"
    assert client.write((MODIFY, ranged)) == ["UNIMPLEMENTED"]
    numbers.match[0].match_type = kinds.LPM
    assert client.set_config(config(info)) == "OK"
    by_prefix = p4r.ValueSetEntry(value_set_id=NUMBERS)
    lpm = by_prefix.members.add().match.add(field_id=1).lpm
    lpm.value, lpm.prefix_len = b"\x01\x00", 8
    everything = p4r.ValueSetEntry(value_set_id=MEMBERS, members=[p4r.ValueSetMember()])
    assert client.write((MODIFY, by_prefix), (MODIFY, everything)) == ["OK"] * 2
    assert client.dump(p4r.ValueSetEntry()) == texts(by_prefix, everything)
    assert [marked(switch, n, 0) for n in (0x0FF, 0x100, 0x1FF, 0x200)] == [False, True, True, False]
