"""Meters, direct and indirect, and parser value sets, against a program that uses them and the switch that runs it."""

from __future__ import annotations

from finsy.proto import p4i, p4r

from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    EXTERNS,
    FLOWS,
    INSERT,
    MODIFY,
    Client,
    entity,
    externs_config,
    flow,
    table_id,
    text,
)

PLAIN = table_id("plain")
SHARED = EXTERNS.meters[0].preamble.id
NUMBERS, MEMBERS = (value_set.preamble.id for value_set in EXTERNS.value_sets)
GREEN, YELLOW, RED = range(3)
KEPT = ("table_id", "is_default_action", "action", "metadata")


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


def direct(value: int, given: p4r.MeterConfig | None = None) -> p4r.DirectMeterEntry:
    return p4r.DirectMeterEntry(table_entry=flow(value, action=False), config=given)


def texts(*messages: object) -> set[str]:
    return {text(entity(message)) for message in messages}


def test_meters_are_configured_read_and_reset(externs: Client, switch: Switch) -> None:
    slow = rates(1, 8, 2, 16)
    assert externs.write((MODIFY, shared(1, slow))) == ["OK"]
    expected = texts(shared(0), shared(1, slow), shared(2), shared(3))
    assert externs.dump(p4r.MeterEntry()) == externs.dump(shared(None)) == expected
    assert externs.dump(shared(1)) == texts(shared(1, slow))
    assert (colors(switch, 2, 1, 3), colors(switch, 2, 0, 3)) == ([GREEN, YELLOW, RED], [GREEN] * 3)
    fast = rates((1 << 41) - 1, 1 << 62, 1 << 41, 1 << 62)
    assert externs.write((MODIFY, shared(None, fast))) == ["OK"]
    assert externs.dump(p4r.MeterEntry()) == texts(*(shared(i, fast) for i in range(4)))
    assert externs.write((MODIFY, shared(1)), (MODIFY, shared(2, rates(0, 0, 0, 0)))) == ["OK"] * 2
    assert externs.dump(p4r.MeterEntry()) == texts(
        shared(0, fast), shared(1), shared(2, rates(0, 0, 0, 0)), shared(3, fast)
    )
    assert (colors(switch, 2, 1, 3), colors(switch, 2, 2, 1)) == ([GREEN] * 3, [RED])


def test_a_meter_that_cannot_be_is_refused_and_changes_nothing(externs: Client) -> None:
    counted = shared(0, rates(1, 1, 1, 1))
    counted.counter_data.red.byte_count = 1
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
        (MODIFY, counted, "INVALID_ARGUMENT"),
        (MODIFY, p4r.MeterEntry(), "INVALID_ARGUMENT"),
        (MODIFY, p4r.MeterEntry(meter_id=5), "INVALID_ARGUMENT"),
    ]
    assert externs.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert externs.read_outcome(shared(4), shared(-1), p4r.MeterEntry(meter_id=5)) == [
        "OUT_OF_RANGE",
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
    ]
    assert externs.dump(p4r.MeterEntry()) == texts(*(shared(i) for i in range(4)))


def test_direct_meters_live_with_their_entries(externs: Client, switch: Switch) -> None:
    slow, slower = rates(1, 1, 2, 2), rates(0, 0, 1, 1)
    assert externs.write((INSERT, flow(7, slow)), (INSERT, flow(8))) == ["OK"] * 2
    assert externs.dump(p4r.DirectMeterEntry()) == texts(direct(7, slow), direct(8))
    assert externs.dump(direct(7)) == texts(direct(7, slow))
    assert externs.dump(p4r.TableEntry(table_id=FLOWS)) == texts(flow(7), flow(8))
    asking = p4r.TableEntry(table_id=FLOWS, meter_config=p4r.MeterConfig())
    assert externs.dump(asking) == texts(flow(7, slow), flow(8))
    assert (colors(switch, 1, 7, 3), colors(switch, 1, 8, 3)) == ([GREEN, YELLOW, RED], [GREEN] * 3)
    assert externs.write((MODIFY, direct(8, slower)), (MODIFY, direct(7))) == ["OK"] * 2
    assert externs.dump(asking) == texts(flow(7), flow(8, slower))
    assert (colors(switch, 1, 7, 3), colors(switch, 1, 8, 2)) == ([GREEN] * 3, [YELLOW, RED])
    assert externs.write((MODIFY, flow(7, slow)), (MODIFY, flow(8, action=False))) == ["OK"] * 2
    assert externs.dump(asking) == texts(flow(7, slow), flow(8))  # an unset config goes back to green
    assert externs.write((DELETE, flow(7))) == ["OK"]
    assert externs.dump(p4r.DirectMeterEntry()) == texts(direct(8))
    default = p4r.DirectMeterEntry(table_entry=p4r.TableEntry(table_id=FLOWS, is_default_action=True, priority=1))
    foreign = p4r.DirectMeterEntry(table_entry=p4r.TableEntry(table_id=PLAIN))
    bad = [
        (MODIFY, direct(7, slow), "NOT_FOUND"),
        (INSERT, direct(8, slow), "INVALID_ARGUMENT"),
        (MODIFY, direct(8, rates(2, 1, 1, 1)), "INVALID_ARGUMENT"),
        (MODIFY, foreign, "INVALID_ARGUMENT"),
        (MODIFY, default, "INVALID_ARGUMENT"),
        (INSERT, flow(9, rates(2, 1, 1, 1)), "INVALID_ARGUMENT"),
    ]
    assert externs.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert externs.read_outcome(direct(7), foreign) == ["NOT_FOUND", "INVALID_ARGUMENT"]
    assert externs.dump(asking) == texts(flow(8))


def test_packets_are_counted_by_color(externs: Client, switch: Switch) -> None:
    slow = rates(1, 1, 2, 2)
    assert externs.write((MODIFY, shared(1, rates(1, 8, 2, 16))), (INSERT, flow(7, slow))) == ["OK"] * 2
    assert colors(switch, 2, 1, 4) == [GREEN, YELLOW, RED, RED]
    assert colors(switch, 1, 7, 4) == [GREEN, YELLOW, RED, RED]
    colored = p4r.MeterCounterData(
        green=p4r.CounterData(packet_count=1, byte_count=8),
        yellow=p4r.CounterData(packet_count=1, byte_count=8),
        red=p4r.CounterData(packet_count=2, byte_count=16),
    )
    asking, asking_direct = shared(1), direct(7)
    asking.counter_data.SetInParent()
    asking_direct.counter_data.SetInParent()
    expected, expected_direct = shared(1, rates(1, 8, 2, 16)), direct(7, slow)
    expected.counter_data.CopyFrom(colored)
    expected_direct.counter_data.CopyFrom(colored)
    assert externs.dump(asking, asking_direct) == texts(expected, expected_direct)
    assert externs.dump(shared(1), direct(7)) == texts(shared(1, rates(1, 8, 2, 16)), direct(7, slow))
    whole = p4r.TableEntry(table_id=FLOWS, meter_counter_data=p4r.MeterCounterData())
    [found] = externs.read(whole)
    assert found.table_entry.meter_counter_data == colored
    reset = flow(7, slow)
    reset.meter_counter_data.SetInParent()
    zero = p4r.CounterData()
    none = p4r.MeterCounterData(green=zero, yellow=zero, red=zero)
    asking.config.CopyFrom(rates(1, 8, 2, 16))
    assert externs.write((MODIFY, asking), (MODIFY, reset)) == ["OK"] * 2
    asking.ClearField("config")
    expected.counter_data.CopyFrom(none)
    expected_direct.counter_data.CopyFrom(none)
    assert externs.dump(asking, asking_direct) == texts(expected, expected_direct)
    assert colors(switch, 2, 1, 1) == [RED], "the same config again leaves the buckets as they are"
    assert externs.write((MODIFY, direct(7, slow))) == ["OK"]
    assert colors(switch, 1, 7, 1) == [RED]
    [found] = externs.read(whole)
    assert found.table_entry.meter_counter_data.red == p4r.CounterData(packet_count=1, byte_count=8)
    reset.meter_counter_data.green.packet_count = 1
    assert externs.write((MODIFY, reset), (INSERT, reset)) == ["INVALID_ARGUMENT"] * 2


def test_the_default_entry_has_a_counter_and_a_meter(externs: Client, switch: Switch) -> None:
    key = p4r.TableEntry(table_id=FLOWS, is_default_action=True)
    own = p4r.TableEntry(table_id=FLOWS, is_default_action=True)
    [initial] = externs.read(key)
    metered = p4r.TableEntry(table_id=FLOWS, is_default_action=True, action=flow(1).action, metadata=b"m")
    metered.meter_config.CopyFrom(rates(0, 1, 0, 2))
    metered.counter_data.packet_count = 10
    assert externs.write((MODIFY, metered)) == ["OK"]
    assert colors(switch, 1, 99, 4) == [GREEN, YELLOW, RED, RED]
    own.counter_data.SetInParent()
    own.meter_config.SetInParent()
    own.meter_counter_data.SetInParent()
    [found] = externs.read(own)
    metered.counter_data.packet_count, metered.counter_data.byte_count = 14, 32
    assert found.table_entry.meter_counter_data.red == p4r.CounterData(packet_count=2, byte_count=16)
    found.table_entry.ClearField("meter_counter_data")
    assert found.table_entry == metered
    counter, meter = p4r.DirectCounterEntry(table_entry=key), p4r.DirectMeterEntry(table_entry=key)
    [counted] = externs.read(counter)
    assert counted.direct_counter_entry == p4r.DirectCounterEntry(table_entry=key, data=metered.counter_data)
    [told] = externs.read(meter)
    assert told.direct_meter_entry == p4r.DirectMeterEntry(table_entry=key, config=metered.meter_config)
    before = externs.dump(own, counter, meter)
    reconcile = p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT
    assert externs.set_config(externs_config(), reconcile) == "OK"
    assert externs.dump(p4r.TableEntry(table_id=FLOWS, is_default_action=True)) == {
        text(p4r.Entity(table_entry=p4r.TableEntry(**{name: getattr(metered, name) for name in KEPT})))
    }
    assert externs.dump(counter, meter) <= before
    counter.data.packet_count = 1
    assert externs.write((MODIFY, counter), (MODIFY, meter)) == ["OK"] * 2
    [found] = externs.read(own)
    assert (found.table_entry.counter_data.packet_count, found.table_entry.HasField("meter_config")) == (1, False)
    assert externs.write((MODIFY, metered), (MODIFY, key)) == ["OK"] * 2
    assert externs.read(key) == [initial], "reset to the program's own action, without metadata"
    [found] = externs.read(own)
    assert (found.table_entry.counter_data.packet_count, found.table_entry.HasField("meter_config")) == (14, False)
    plain = p4r.TableEntry(table_id=PLAIN, is_default_action=True, counter_data=p4r.CounterData())
    assert externs.write((MODIFY, plain), (INSERT, counter), (DELETE, meter)) == ["INVALID_ARGUMENT"] * 3


def test_a_reconciled_pipeline_keeps_meters_and_value_sets(externs: Client) -> None:
    slow = rates(1, 1, 2, 2)
    numbers = value_set(NUMBERS, (5,))
    assert externs.write((INSERT, flow(7, slow)), (MODIFY, shared(2, slow)), (MODIFY, numbers)) == ["OK"] * 3
    queries = (p4r.MeterEntry(), p4r.DirectMeterEntry(), p4r.ValueSetEntry())
    before = externs.dump(*queries)
    reconcile = p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT
    assert externs.set_config(externs_config(), reconcile) == "OK"
    assert externs.dump(*queries) == before >= texts(direct(7, slow), shared(2, slow), numbers)


def value_set(set_id: int, *members: tuple[int, ...]) -> p4r.ValueSetEntry:
    """Members are exact values, one per field."""
    entry = p4r.ValueSetEntry(value_set_id=set_id)
    for member in members:
        message = entry.members.add()
        for field_id, value in enumerate(member, 1):
            message.match.add(field_id=field_id).exact.value = value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
    return entry


def marked(switch: Switch, number: int, pair: int) -> bool:
    """Return whether the parser found both members and marked the packet."""
    frame = bytes(2) + number.to_bytes(2, "big") + bytes(4) + pair.to_bytes(2, "big")
    [(_, sent)] = switch.forward(frame, 0)
    return sent[4:8] == bytes.fromhex("0000abcd")


def test_value_sets_steer_the_parser(externs: Client, switch: Switch) -> None:
    numbers, members = value_set(NUMBERS, (5,), (0x1234,), (0,)), value_set(MEMBERS, (0xA, 0xBCD))
    assert externs.dump(p4r.ValueSetEntry()) == texts(value_set(NUMBERS), value_set(MEMBERS))
    assert externs.write((MODIFY, numbers), (MODIFY, members)) == ["OK"] * 2
    assert externs.dump(p4r.ValueSetEntry()) == texts(numbers, members)
    assert externs.dump(p4r.ValueSetEntry(value_set_id=MEMBERS)) == texts(members)
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
    assert externs.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert externs.dump(p4r.ValueSetEntry()) == texts(numbers, members)
    assert externs.write((MODIFY, value_set(NUMBERS))) == ["OK"]
    assert externs.dump(p4r.ValueSetEntry(value_set_id=NUMBERS)) == texts(value_set(NUMBERS))
    assert not marked(switch, 0x1234, 0xABCD)


def test_members_match_as_p4info_says(externs: Client, switch: Switch) -> None:
    """The same program with other match kinds, which only P4Info contains."""
    kinds = p4i.MatchField
    info = p4i.P4Info()
    info.CopyFrom(EXTERNS)
    numbers, members = info.value_sets
    numbers.match[0].match_type = kinds.RANGE
    members.match[0].match_type, members.match[1].match_type = kinds.OPTIONAL, kinds.TERNARY
    assert externs.set_config(externs_config(info)) == "OK"
    ranged, masked = p4r.ValueSetEntry(value_set_id=NUMBERS), p4r.ValueSetEntry(value_set_id=MEMBERS)
    for low, high in ((b"\x10", b"\x1f"), (b"\x05", b"\x05")):
        field = ranged.members.add().match.add(field_id=1)
        field.range.low, field.range.high = low, high
    ternary = masked.members.add().match.add(field_id=2).ternary
    ternary.value, ternary.mask = b"\x0b\x00", b"\x0f\x00"
    masked.members.add().match.add(field_id=1).optional.value = b"\x03"
    assert externs.write((MODIFY, ranged), (MODIFY, masked)) == ["OK"] * 2
    assert externs.dump(p4r.ValueSetEntry()) == texts(ranged, masked)
    found = {(n, pair) for n in (4, 5, 6, 0xF, 0x10, 0x1F, 0x20) for pair in (0x3001, 0x7BFF, 0x7AFF)
             if marked(switch, n, pair)}  # fmt: skip
    assert found == {(n, pair) for n in (5, 0x10, 0x1F) for pair in (0x3001, 0x7BFF)}
    ranged.members[0].match[0].range.high = b"\x20"
    assert externs.write((MODIFY, ranged)) == ["UNIMPLEMENTED"]
    numbers.match[0].match_type = kinds.LPM
    assert externs.set_config(externs_config(info)) == "OK"
    by_prefix = p4r.ValueSetEntry(value_set_id=NUMBERS)
    lpm = by_prefix.members.add().match.add(field_id=1).lpm
    lpm.value, lpm.prefix_len = b"\x01\x00", 8
    everything = p4r.ValueSetEntry(value_set_id=MEMBERS, members=[p4r.ValueSetMember()])
    assert externs.write((MODIFY, by_prefix), (MODIFY, everything)) == ["OK"] * 2
    assert externs.dump(p4r.ValueSetEntry()) == texts(by_prefix, everything)
    assert [marked(switch, n, 0) for n in (0x0FF, 0x100, 0x1FF, 0x200)] == [False, True, True, False]
