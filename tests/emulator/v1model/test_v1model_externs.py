"""Meters, digests, value sets, idle timeouts, packets that come again and clones that keep metadata, as in bmv2."""

from __future__ import annotations

import struct

import pytest

from weir.emulator.entries import (
    ActionCall,
    CloneSession,
    Exact,
    InvalidEntry,
    Lpm,
    Optional,
    Range,
    Replica,
    TableEntry,
    TableFull,
    Ternary,
)
from weir.emulator.program import MeterRates, ProgramState
from weir.emulator.switch import Switch
from weir.emulator.tables.meters import ColorCounts
from weir.tests.paths import PROGRAMS
from weir.tests.support.errors import raises

PROGRAM = (PROGRAMS / "externs.json").read_bytes()
METERED, DIGEST, FLOWS = 1, 3, "ExternsIngress.flows"
IN_PORT = 2


@pytest.fixture
def switch() -> Switch:
    switch = Switch(1, ports=range(4))
    switch.load(PROGRAM)
    return switch


def state_of(switch: Switch) -> ProgramState:
    assert switch.state is not None
    return switch.state


def order(what: int, value: int = 0, count: int = 0, seen: int = 0, tail: bytes = b"tail") -> bytes:
    return struct.pack(">BBHI", what, count, value, seen) + tail


def count_of(switch: Switch, what: int, value: int, at_us: int, tail: bytes = b"") -> int:
    ((_, frame),) = switch.forward(order(what, value, tail=tail), IN_PORT, at_us * 1000)
    return frame[1]


# ---- meters


def test_a_meter_without_rates_is_green(switch: Switch) -> None:
    assert [count_of(switch, 2, 3, index) for index in range(20)] == [0] * 20
    assert state_of(switch).meters["ExternsIngress.shared"].get(3) is None


def test_meters_of_bytes_color_as_bmv2_computes_them(switch: Switch) -> None:
    """Two buckets, the peak one first; a red packet takes nothing, a yellow one takes peak tokens."""
    rates = MeterRates(committed_rate=1_000_000.0, committed_burst=100, peak_rate=2_000_000.0, peak_burst=150)
    meter = state_of(switch).meters["ExternsIngress.shared"]
    meter.set(3, rates)
    assert (meter.size, meter.unit, meter.get(3), meter.get(2)) == (4, "bytes", rates, None)
    peak, committed, last_peak, last_committed, expected, found = 150, 100, 0, 0, [], []
    for step in range(60):
        now, size = 7 * step, 8 + 5 * (step % 7)
        peak, last_peak = min(peak + 2 * now - last_peak, 150), 2 * now
        color = 2
        if peak >= size:
            peak -= size
            committed, last_committed = min(committed + now - last_committed, 100), now
            color = 1
            if committed >= size:
                committed -= size
                color = 0
        expected.append(color)
        found.append(count_of(switch, 2, 3, now, bytes(size - 8)))
    assert found == expected
    assert set(found) == {0, 1, 2}
    meter.set(3, None)
    assert count_of(switch, 2, 3, 1000) == 0


def test_meters_out_of_range_keep_the_color_and_bad_rates_fail(switch: Switch) -> None:
    meter = state_of(switch).meters["ExternsIngress.shared"]
    assert count_of(switch, 2, 4, 0) == 0
    with pytest.raises(IndexError, match="has 4 cells"):
        meter.set(4, None)
    with raises(InvalidEntry, place="ExternsIngress.shared[0]"):
        meter.set(0, MeterRates(2.0, 1, 1.0, 1))
    with raises(InvalidEntry, place="ExternsIngress.shared[0]"):
        meter.set(0, MeterRates(float("nan"), 1, 1.0, 1))


def test_direct_meters_belong_to_their_entry_and_count_with_it(switch: Switch) -> None:
    table = state_of(switch).tables[FLOWS]
    rates = MeterRates(0.0, 2, 0.0, 3)
    for value in (5, 6):
        table.insert(TableEntry((Exact(value),), ActionCall("ExternsIngress.metered", (1,))))
    table.set_meter((Exact(5),), rates)
    assert (table.meter((Exact(5),)), table.meter((Exact(6),))) == (rates, None)
    assert [count_of(switch, METERED, 5, index) for index in range(5)] == [0, 0, 1, 2, 2]
    assert [count_of(switch, METERED, 6, 10)] == [0]
    assert table.counter((Exact(5),)) == (5, 40)
    table.modify(TableEntry((Exact(5),), ActionCall("ExternsIngress.metered", (3,))))
    assert count_of(switch, METERED, 5, 20) == 2
    table.delete((Exact(5),))
    table.insert(TableEntry((Exact(5),), ActionCall("ExternsIngress.metered", (1,))))
    assert table.meter((Exact(5),)) is None
    assert table.counter((Exact(5),)) == (0, 0)


def test_a_single_rate_fills_the_excess_bucket_last(switch: Switch) -> None:
    rates = MeterRates(1_000_000.0, 40, 1_000_000.0, 40, excess_burst=60)
    meter = state_of(switch).meters["ExternsIngress.shared"]
    meter.set(3, rates)
    assert meter.get(3) == rates
    committed, excess, last, expected, found = 40, 60, 0, [], []
    counts = {color: [0, 0] for color in (0, 1, 2)}
    for step in range(80):
        now, size = 12 * step + (200 if step > 40 else 0), 8 + 7 * (step % 5)
        filled, last = committed + now - last, now
        committed = min(filled, 40)
        excess = min(excess + filled - committed, 60)
        color = 2
        if committed >= size:
            committed, color = committed - size, 0
        elif excess >= size:
            excess, color = excess - size, 1
        expected.append(color)
        counts[color][0] += 1
        counts[color][1] += size
        found.append(count_of(switch, 2, 3, now, bytes(size - 8)))
    assert found == expected
    assert set(found) == {0, 1, 2}
    assert meter.counts(3) == ColorCounts(*((packets, octets) for packets, octets in counts.values()))
    meter.set(3, rates)
    assert count_of(switch, 2, 3, 12 * 79 + 200, bytes(100)) == 2, "the same rates again do not fill the buckets"
    meter.reset_counts(3)
    assert meter.counts(3) == ColorCounts()


def test_the_default_entry_counts_misses_and_meters_if_enabled(switch: Switch) -> None:
    table = state_of(switch).tables[FLOWS]
    table.insert(
        TableEntry((Exact(5),), ActionCall("ExternsIngress.metered", (1,))), (7, 70), MeterRates(0.0, 0, 0.0, 0)
    )
    assert [count_of(switch, METERED, value, 0) for value in (5, 9, 9)] == [2, 0, 0]
    assert (table.counter((Exact(5),)), table.counter(None)) == ((8, 78), (2, 16))
    assert (table.meter(None), table.meter_counts(None)) == (None, ColorCounts())
    table.set_meter(None, MeterRates(0.0, 1, 0.0, 2))
    assert [count_of(switch, METERED, 9, 1) for _ in range(3)] == [0, 1, 2]
    assert table.meter_counts(None) == ColorCounts((1, 8), (1, 8), (1, 8))
    assert table.meter_counts((Exact(5),)) == ColorCounts(red=(1, 8))
    table.set_default(ActionCall("ExternsIngress.metered", (2,)))
    assert count_of(switch, METERED, 9, 2) == 2
    assert table.counter(None) == (6, 48)
    table.reset()
    assert (table.counter(None), table.meter(None)) == ((0, 0), None)


# ---- idle timeouts


def test_entries_tell_how_long_they_were_idle(switch: Switch) -> None:
    table = state_of(switch).tables[FLOWS]
    switch.forward(order(0), IN_PORT, 1_000_000)
    short = TableEntry((Exact(5),), ActionCall("ExternsIngress.metered", (1,)), idle_timeout_ns=500_000)
    never = TableEntry((Exact(6),), ActionCall("ExternsIngress.metered", (1,)))
    table.insert(short)
    table.insert(never)
    assert table.idle_ns((Exact(5),)) == 0
    switch.forward(order(0), IN_PORT, 1_400_000)
    assert (table.idle_ns((Exact(5),)), table.idle_entries()) == (400_000, [])
    switch.forward(order(METERED, 5), IN_PORT, 1_450_000)
    switch.forward(order(0), IN_PORT, 1_940_000)
    assert (table.idle_ns((Exact(5),)), table.idle_entries()) == (490_000, [])
    switch.forward(order(0), IN_PORT, 1_950_000)
    assert table.idle_entries() == [short]
    assert table.idle_ns((Exact(6),)) == 950_000


def test_tables_without_idle_timeouts_refuse_them(switch: Switch) -> None:
    table = state_of(switch).tables["ExternsIngress.plain"]
    with pytest.raises(InvalidEntry, match="supports none"):
        table.insert(TableEntry((Exact(1),), ActionCall("ExternsIngress.send", (1,)), idle_timeout_ns=1))
    with raises(InvalidEntry, place="ExternsIngress.plain"):
        table.idle_ns((Exact(1),))


def test_an_action_also_called_with_constants_keeps_parameters(switch: Switch) -> None:
    assert switch.program is not None
    assert [name for name, _ in switch.program.actions["ExternsIngress.send"].params] == ["port"]
    state_of(switch).tables["ExternsIngress.plain"].insert(
        TableEntry((Exact(7),), ActionCall("ExternsIngress.send", (3,)))
    )
    assert switch.forward(order(10, 7), IN_PORT) == [(3, order(10, 7))]
    assert switch.forward(order(10, 8), IN_PORT) == [(1, order(10, 8))]


# ---- digests


def test_digests_are_drained_in_order(switch: Switch) -> None:
    digest = state_of(switch).digests["learned_t"]
    for value in range(5):
        switch.forward(order(DIGEST, value), IN_PORT)
        switch.forward(order(0, value), IN_PORT)
    wide = 0x123456789ABCDEF01234
    assert len(digest) == 5
    assert digest.drain(2) == [(DIGEST, 0, IN_PORT, wide), (DIGEST, 1, IN_PORT, wide)]
    assert [record[1] for record in digest.drain()] == [2, 3, 4]
    assert (digest.drain(), digest.lost) == ([], 0)


def test_digests_that_nobody_reads_are_lost_and_counted(switch: Switch) -> None:
    digest = state_of(switch).digests["learned_t"]
    for value in range(1030):
        switch.forward(order(DIGEST, value), IN_PORT)
    assert (len(digest), digest.lost) == (1024, 6)
    assert [record[1] for record in digest.drain()] == list(range(1024))
    switch.forward(order(DIGEST, 2000), IN_PORT)
    assert [record[1] for record in digest.drain()] == [2000]


def test_a_switch_hands_digests_to_whoever_asked_for_them(switch: Switch) -> None:
    told: list[tuple[str, list[tuple[int, ...]]]] = []
    switch.on_digest = lambda name, records: told.append((name, records))
    switch.forward(order(DIGEST, 9), 1)
    assert [(name, [record[:3] for record in records]) for name, records in told] == [("learned_t", [(DIGEST, 9, 1)])]


# ---- value sets


def is_marked(switch: Switch, value: int, pair: int) -> bool:
    """Return whether `numbers`, then `members` matched."""
    ((_, frame),) = switch.forward(order(0, value, tail=pair.to_bytes(2, "big")), IN_PORT)
    return frame[4:8] == bytes.fromhex("0000abcd")


def test_value_sets_decide_where_the_parser_goes(switch: Switch) -> None:
    numbers, members = (state_of(switch).value_sets[f"ExternsParser.{name}"] for name in ("numbers", "members"))
    assert (numbers.size, members.size, numbers.members) == (3, 2, ())
    assert not is_marked(switch, 0x0505, 0x3123)
    numbers.replace([(Exact(0x0505),), (Ternary(0x8000, 0xF000),), (Lpm(0x1100, 8),)])
    members.replace([(Exact(3), Optional(None)), (Exact(4), Exact(0x456))])
    for value in (0x0505, 0x8FFF, 0x11AA):
        assert is_marked(switch, value, 0x3123)
        assert is_marked(switch, value, 0x4456)
        assert not is_marked(switch, value, 0x4457)
        assert not is_marked(switch, value, 0x5123)
    for value in (0x0506, 0x9000, 0x1200):
        assert not is_marked(switch, value, 0x3123)
    members.replace([(Exact(5), Exact(0x123))])
    assert [is_marked(switch, 0x0505, pair) for pair in (0x5123, 0x3123)] == [True, False]
    state_of(switch).reset()
    assert (numbers.members, is_marked(switch, 0x0505, 0x5123)) == ((), False)


def test_value_sets_refuse_what_does_not_fit(switch: Switch) -> None:
    members = state_of(switch).value_sets["ExternsParser.members"]
    with raises(TableFull, place="ExternsParser.members", value=3):
        members.replace([(Exact(1), Exact(n)) for n in range(3)])
    with raises(InvalidEntry, place="ExternsParser.members", value=1):
        members.replace([(Exact(1),)])
    for wrong in (Exact(16), Ternary(1, 16), Lpm(1, 5), Range(1, 2)):
        with raises(InvalidEntry, place="ExternsParser.members"):
            members.replace([(wrong, Exact(1))])
    assert members.members == ()


# ---- packets that come again


def test_a_resubmitted_packet_starts_as_received_with_its_fields(switch: Switch) -> None:
    ((port, frame),) = switch.forward(order(4, 0x1234), IN_PORT)
    assert (port, frame) == (1, order(4, value=12, count=6, seen=0x1234_0000))
    assert switch.counters.ingress_packets == 2
    assert switch.counters.egress_packets == 1


def test_a_recirculated_packet_starts_as_sent_with_its_fields(switch: Switch) -> None:
    ((port, frame),) = switch.forward(order(5, 0x100), IN_PORT)
    assert (port, frame) == (1, order(5, 0x100, count=3, seen=0x0200_0000))
    assert (switch.counters.ingress_packets, switch.counters.egress_packets) == (3, 3)


def test_clones_keep_the_fields_of_their_list_alone(switch: Switch) -> None:
    switch.replication.set_session(5, CloneSession((Replica(3, 7),)))
    assert switch.forward(order(6, 1), IN_PORT) == [
        (3, order(6, 1, count=1, seen=0x1234_0055)),
        (1, order(6, 0xFFFF, count=0, seen=0x1234_77CC)),
    ]
    assert switch.forward(order(7, 1), IN_PORT) == [
        (1, order(7, 0xEEEE, count=0, seen=0x5555_77A1)),
        (3, order(7, 0xEEEE, count=2, seen=0x5555_0000)),
    ]


# ---- the rest


def test_random_numbers_stay_in_range_and_depend_on_the_packet(switch: Switch) -> None:
    drawn = [int.from_bytes(switch.forward(order(8, 19), IN_PORT)[0][1][2:4], "big") for _ in range(300)]
    assert set(drawn) == set(range(10, 20))
    assert switch.forward(order(8, 10), IN_PORT)[0][1][2:4] == b"\0\x0a"
    again = Switch(1, ports=range(4))
    again.load(PROGRAM)
    assert [int.from_bytes(again.forward(order(8, 19), IN_PORT)[0][1][2:4], "big") for _ in range(300)] == drawn


def test_a_packet_that_breaks_an_assertion_is_dropped(switch: Switch) -> None:
    assert switch.forward(order(9, 12), IN_PORT) == [(1, order(9, 12))]
    assert switch.forward(order(9, 13), IN_PORT) == []
    assert switch.forward(order(9, 14), IN_PORT) == []
    assert switch.counters.ingress_drops == 2


def test_the_shortest_truncation_holds(switch: Switch) -> None:
    data = order(11, tail=bytes(range(20)))
    assert switch.forward(data, IN_PORT) == [(1, data[:10])]
