"""The fabric's guarantees about time, order and hosts."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weir.emulator.entries import CloneSession, EmulatorError, Replica
from weir.emulator.fabric import Fabric, Wake
from weir.emulator.nodes import FabricError
from weir.emulator.port import SwitchValueError
from weir.emulator.runtime.memory import GENERATED_WAITING
from weir.emulator.switch import Switch
from weir.tests.emulator.runtime.runtime_program import HEADER_BYTES, frame, frames, headers, start, switch
from weir.tests.support.errors import raises


def line(seed: int = 1, poll_ns: int = 0, **link: Any) -> Fabric:
    """h1 – s1 – s2 – h2; frames to port 2 go right, to port 1 left."""
    fabric = Fabric(seed=seed)
    for number in (1, 2):
        fabric.add_switch(f"s{number}", switch(number))
        fabric.add_host(f"h{number}", poll_ns=poll_ns)
    fabric.add_link(("h1", 0), ("s1", 1), **link)
    fabric.add_link(("s1", 2), ("s2", 1), **link)
    fabric.add_link(("s2", 2), ("h2", 0), **link)
    return fabric


def run_all(fabric: Fabric, until_ns: int) -> list[tuple[int, Wake]]:
    """Every wake until then, with its instant."""
    result = []
    while wakes := fabric.run(until_ns):
        result += [(fabric.now_ns, wake) for wake in wakes]
    return result


def arrivals(wakes: list[tuple[int, Wake]]) -> list[tuple[str, int, int]]:
    """(host, number of the frame, its arrival) of every frame, in order."""
    return [
        (wake.host, number, at)
        for _, wake in wakes
        for group, times in zip(wake.frames, wake.times_ns, strict=True)
        for number, at in zip(headers(group)["number"].tolist(), times.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("size", "rate_bps", "delay_ns", "overhead", "per_hop"),
    [
        (1000, 1e9, 1000, 0, 8000 + 1000),
        (1000, 1e9, 1000, 24, 8192 + 1000),
        (1000, None, 700, 24, 700),
        (100, 3e9, 0, 0, 267),  # 266.67 ns: a link is never faster than its rate
        (64, 1, 5, 0, 512_000_000_005),
    ],
)
def test_flight_time_is_serialisation_plus_delay_at_every_hop(
    size: int, rate_bps: float | None, delay_ns: int, overhead: int, per_hop: int
) -> None:
    fabric = line(rate_bps=rate_bps, delay_ns=delay_ns, overhead_bytes=overhead)
    fabric.send("h1", frame(2, size=size, number=1))
    assert arrivals(run_all(fabric, 10**13)) == [("h2", 1, 3 * per_hop)]
    assert fabric.now_ns == 10**13


def test_a_link_carries_no_frame_beyond_its_mtu() -> None:
    """A host's NIC and a switch's port drop and count it; it takes no time, and those behind it go on."""
    fabric = Fabric()
    for number in (1, 2):
        fabric.add_switch(f"s{number}", switch(number))
        fabric.add_host(f"h{number}")
    fabric.add_link(("h1", 0), ("s1", 1), rate_bps=1e9, mtu=1100)
    fabric.add_link(("s1", 2), ("s2", 1), rate_bps=1e9, mtu=1000)
    fabric.add_link(("s2", 2), ("h2", 0), rate_bps=1e9)
    sizes = (1115, 1014, 1015, 1114, 64)
    for number, size in enumerate(sizes):
        fabric.send("h1", frame(2, size=size, number=number))
    assert arrivals(run_all(fabric, 1_000_000)) == [
        ("h2", 1, 3 * 8 * 1014),
        ("h2", 4, 8 * (1014 + 1015 + 1114 + 3 * 64)),
    ]
    nic, narrow, wide = fabric.nic_counters("h1"), fabric.port_counters()["s1", 2], fabric.port_counters()["s2", 2]
    assert [each.oversized_packets for each in (nic, narrow, wide)] == [1, 2, 0]
    assert [each.tx_packets for each in (nic, narrow, wide)] == [4, 2, 2]
    assert [each.tx_bytes for each in (nic, narrow, wide)] == [1014 + 1015 + 1114 + 64, 1078, 1078]
    assert [each.lost_packets for each in (nic, narrow, wide)] == [0, 0, 0]


def test_frames_follow_each_other_at_the_rate_of_the_link() -> None:
    fabric = line(rate_bps=1e9, delay_ns=500)
    fabric.send("h1", frames(range(50), port=2, size=1000))
    expected = [("h2", n, 3 * 8500 + 8000 * n) for n in range(50)]
    assert arrivals(run_all(fabric, 10**7)) == expected


@pytest.mark.parametrize("rate_bps", [10**10, 25 * 10**9, 10**11, 4 * 10**11, 3 * 10**12])
def test_busy_links_carry_exactly_their_rate(rate_bps: int) -> None:
    """Each hop rounds the end of its last frame up to a nanosecond, and no frame's before."""
    fabric, count, size = line(rate_bps=rate_bps), 2000, 1042
    for first in range(0, count, 50):
        fabric.send("h1", frames(range(first, first + 50), port=2, size=size))
    last_ns = arrivals(run_all(fabric, 10**8))[-1][-1]
    exact_ns = (count + 2) * 8e9 * size / rate_bps
    assert exact_ns <= last_ns < exact_ns + 3


def test_timestamps_and_queue_metadata_are_of_virtual_time() -> None:
    fabric = Fabric()
    fabric.add_switch("s1", switch())
    for name, port in (("h1", 1), ("h2", 2)):
        fabric.add_host(name)
        fabric.add_link((name, 0), ("s1", port), rate_bps=None if name == "h1" else 1e9)
    fabric.run(5_000_500)
    fabric.send("h1", frames(range(3), port=2, size=1000))
    data = np.concatenate([wake.frames[0] for _, wake in run_all(fabric, 10**7)])
    fields = ["ingress_timestamp", "enq_timestamp", "egress_timestamp", "enq_qdepth", "deq_qdepth", "deq_timedelta"]
    assert [[int(row[name]) for name in fields] for row in headers(data)] == [
        [5000, 5000, 5000, 0, 0, 0],
        [5000, 5000, 5008, 0, 1, 8],
        [5000, 5000, 5016, 1, 0, 16],
    ]


def test_a_host_sees_its_frames_at_its_poll_instants() -> None:
    fabric = line(poll_ns=10_000, rate_bps=1e9)
    fabric.send("h1", frames(range(5), port=2, size=1000))
    wakes = run_all(fabric, 10**6)
    # arrivals at 24, 32, 40, 48, 56 µs
    assert [(at, [len(group) for group in wake.frames]) for at, wake in wakes] == [
        (30_000, [1]),
        (40_000, [2]),
        (50_000, [1]),
        (60_000, [1]),
    ]
    assert [at for _, _, at in arrivals(wakes)] == [24_000, 32_000, 40_000, 48_000, 56_000]


def test_a_batchs_frames_are_grouped_by_size_in_arrival_order() -> None:
    fabric = line(poll_ns=1_000_000)
    for number, size in enumerate([500, 100, 500, 64, 100]):
        fabric.send("h1", frame(2, size=size, number=number))
    [(_, wake)] = run_all(fabric, 10**6)
    assert [(group.shape, headers(group)["number"].tolist()) for group in wake.frames] == [
        ((2, 500), [0, 2]),
        ((2, 100), [1, 4]),
        ((1, 64), [3]),
    ]
    for group in wake.frames:
        sent = frame(2, size=group.shape[1])
        assert all(row[HEADER_BYTES:].tobytes() == sent[HEADER_BYTES:] for row in group)


def test_frames_of_a_batch_one_by_one_come_in_order_of_arrival() -> None:
    fabric = line(poll_ns=1_000_000, rate_bps=1e9)
    for number, size in enumerate([500, 100, 500, 64, 100]):
        fabric.send("h1", frame(2, size=size, number=number))
    [(_, wake)] = run_all(fabric, 10**6)
    arrived = wake.arrivals()
    assert [int(headers(np.frombuffer(each, np.uint8)[None])["number"][0]) for _, each in arrived] == [0, 1, 2, 3, 4]
    assert [at for at, _ in arrived] == sorted({at for times in wake.times_ns for at in times.tolist()})


def test_wakes_until_an_instant_include_frames_sent_in_between() -> None:
    fabric = line(delay_ns=1000)
    fabric.send("h1", frame(2, number=1))
    seen = []
    for wake in fabric.wakes_until(9000):
        seen.append((fabric.now_ns, wake.host))
        if len(seen) < 3:
            fabric.send(wake.host, frame(1 if wake.host == "h2" else 2))
    assert seen == [(3000, "h2"), (6000, "h1"), (9000, "h2")]
    assert fabric.now_ns == 9000
    assert list(fabric.wakes_until(9000)) == []


def test_timers_fire_once_and_the_last_setting_counts() -> None:
    fabric = line()
    fabric.wake("h1", 500)
    fabric.wake("h1", 900)
    fabric.wake("h2", 900)
    fabric.wake("h2", 300)
    assert [(at, w.host, w.timer, w.frames) for at, w in run_all(fabric, 2000)] == [
        (300, "h2", True, []),
        (900, "h1", True, []),
    ]
    fabric.wake("h1", 5000)
    fabric.wake("h1", None)
    fabric.wake("h2", 100)  # has passed: now
    assert [(at, w.host) for at, w in run_all(fabric, 9000)] == [(2000, "h2")]


def test_a_timer_put_off_a_million_times_costs_no_memory() -> None:
    fabric = line()
    for n in range(20_000):
        fabric.wake("h1", 1_000_000 + n)
    assert int(fabric._engine.world.heap_count) == 1
    assert [(at, w.host) for at, w in run_all(fabric, 10**8)] == [(1_019_999, "h1")]


def test_all_wakes_of_one_instant_come_together() -> None:
    fabric = line(poll_ns=1000, delay_ns=100)
    fabric.send("h1", frame(2))
    fabric.send("h2", frame(1))
    fabric.wake("h1", 1000)
    wakes = fabric.run(10**6)
    assert fabric.now_ns == 1000
    assert sorted((wake.host, len(wake.frames), wake.timer) for wake in wakes) == [("h1", 1, True), ("h2", 1, False)]
    assert fabric.run(10**6) == []


def test_frames_sent_at_a_wake_leave_at_that_instant() -> None:
    fabric = line(rate_bps=1e9)
    fabric.wake("h1", 777)
    [_] = fabric.run(10**6)
    fabric.send("h1", frame(2, size=1000, number=4))
    assert arrivals(run_all(fabric, 10**6)) == [("h2", 4, 777 + 24_000)]


def test_a_host_s_nic_sends_by_strict_priority() -> None:
    fabric = line(rate_bps=1e9)
    fabric.send("h1", frames([0, 1, 2], port=2, size=1000))
    fabric.send("h1", frames([10, 11], port=2, size=1000), priority=7)
    fabric.send("h1", frames([20], port=2, size=1000), priority=3)
    # Nothing was on the wire yet when the urgent frames came.
    assert [number for _, number, _ in arrivals(run_all(fabric, 10**6))] == [10, 11, 20, 0, 1, 2]


def test_a_packet_in_arrives_at_its_instant_and_may_be_answered() -> None:
    fabric = Fabric()
    s1 = switch()
    fabric.add_switch("s1", s1)
    fabric.add_host("h1")
    fabric.add_link(("h1", 0), ("s1", 1), rate_bps=1e9, delay_ns=250)
    got = []

    def answer(data: bytes) -> None:
        got.append((fabric.now_ns, s1.packet_in_ns, int(headers(data)["number"])))
        s1.packet_out(frame(1, size=1000, number=100 + int(headers(data)["number"])))

    s1.on_packet_in = answer
    fabric.send("h1", frames([1, 2], port=510, size=1000))
    assert arrivals(run_all(fabric, 10**6)) == [("h1", 101, 16_500), ("h1", 102, 24_500)]
    assert got == [(8250, 8250, 1), (16_250, 16_250, 2)]


def test_packet_ins_may_be_batched() -> None:
    fabric = Fabric()
    s1 = switch()
    fabric.add_switch("s1", s1, cpu_poll_ns=100_000)
    fabric.add_host("h1")
    fabric.add_link(("h1", 0), ("s1", 1), rate_bps=1e9)
    got: list[tuple[int, int]] = []
    s1.on_packet_in = lambda data: got.append((fabric.now_ns, s1.packet_in_ns))
    fabric.send("h1", frames([1, 2], port=510, size=1000))
    assert fabric.run(10**6) == []
    assert got == [(100_000, 8000), (100_000, 16_000)]


def cpu_line() -> tuple[Fabric, Switch, list[int]]:
    """h1 – s1, whose CPU polls every 100 µs and is sent 1000 bytes in 8 µs; and the numbers of its packet-ins."""
    fabric, s1 = Fabric(), switch()
    s1.set_port(510, rate_bps=1e9)
    fabric.add_switch("s1", s1, cpu_poll_ns=100_000)
    fabric.add_host("h1")
    fabric.add_link(("h1", 0), ("s1", 1))
    got: list[int] = []
    s1.on_packet_in = lambda data: got.append(int(headers(data)["number"]))
    return fabric, s1, got


def test_cpu_packets_do_not_outlive_their_program() -> None:
    """A packet-in that waits for the poll and one that is being sent; packet-outs in front of the NIC and in it."""
    fabric, s1, got = cpu_line()
    fabric.send("h1", frames([1, 2], port=510, size=1000))
    fabric.run(10_000)
    s1.packet_out(frame(510, number=3))
    s1.release_packet_outs()
    s1.packet_out(frame(510, number=4))
    start(s1)
    assert fabric.packets_in_flight == 0
    assert (s1.counters.stale_packet_ins, s1.counters.stale_packet_outs) == (2, 2)
    s1.packet_out(frame(510, number=5))
    fabric.run(200_000)
    assert got == [5]
    assert (s1.counters.stale_packet_ins, s1.counters.stale_packet_outs) == (2, 2)


def test_a_packet_in_that_replaces_the_program_is_its_last() -> None:
    fabric, s1, got = cpu_line()

    def replace(data: bytes) -> None:
        got.append(int(headers(data)["number"]))
        start(s1)

    s1.on_packet_in = replace
    fabric.send("h1", frames([1, 2, 3], port=510, size=1000))
    fabric.run(200_000)
    assert (got, s1.counters.stale_packet_ins) == ([1], 2)


def test_a_switch_cannot_be_paused_while_it_delivers_a_packet_in() -> None:
    """So who replaces the program in a pause finds none of the old one's under way."""
    fabric, s1, _ = cpu_line()
    paused = threading.Event()

    def pause() -> None:
        with s1.paused():
            paused.set()

    other = threading.Thread(target=pause)
    seen = []

    def receive(data: bytes) -> None:
        other.start()
        seen.append(paused.wait(0.05))

    s1.on_packet_in = receive
    s1.packet_out(frame(510))
    fabric.run(100_000)
    other.join()
    assert (seen, paused.is_set()) == ([False], True)


def test_a_callback_that_raises_costs_no_host_its_frames() -> None:
    fabric = line(delay_ns=100)
    s1, s2 = fabric._nodes.switches.values()

    def fail(data: bytes) -> None:
        raise RuntimeError("callback")

    s2.on_packet_in = fail
    s2.replication.set_session(1, CloneSession((Replica(510),)))
    fabric.send("h1", frame(2))
    s1.on_packet_in = None
    fabric.run(150)
    s2.packet_out(frame(510))
    fabric.set_link(("s2", 2), delay_ns=0)
    with pytest.raises(RuntimeError):
        fabric.run(10**6)
    assert [host for host, _, _ in arrivals(run_all(fabric, 10**6))] == ["h2"]


def test_background_flows_are_counted_and_never_delivered() -> None:
    fabric = line(rate_bps=1e9, delay_ns=1000)
    flow = fabric.add_flow("h1", frame(2, size=1000), rate_bps=4e8, start_ns=5_000, stop_ns=1_005_000)
    fabric.send("h1", frame(2, size=1000, number=9))
    assert [number for _, number, _ in arrivals(run_all(fabric, 10**7))] == [9]
    counters = fabric.flow_counters(flow)
    assert (counters.sent_packets, counters.delivered_packets, counters.delivered_bytes) == (50, 50, 50_000)
    # The first one waits behind the host's own frame until 8 µs; all others find the NIC idle.
    assert counters.mean_delay_ns == 27_000 + 3000 / 50
    assert fabric.packets_in_flight == 0


def test_flows_by_hand_are_counted_and_delivered() -> None:
    fabric = line(rate_bps=1e9, delay_ns=1000)
    flow, back = fabric.new_flow("h1"), fabric.new_flow("h2")
    fabric.send("h1", frames([1, 2], size=1000, port=2), flow=flow)
    fabric.send("h1", frame(2, size=1000, number=9))
    seen = arrivals(run_all(fabric, 10**6))
    assert [(host, number) for host, number, _ in seen] == [("h2", 1), ("h2", 2), ("h2", 9)]
    fabric.send("h2", frame(1, size=100, number=3), flow=back)
    assert [(host, number) for host, number, _ in arrivals(run_all(fabric, 2 * 10**6))] == [("h1", 3)]
    counters = fabric.flow_counters(flow)
    assert (counters.sent_packets, counters.delivered_packets, counters.delivered_bytes) == (2, 2, 2000)
    assert counters.mean_delay_ns == 27_000 + 8_000 / 2, "three links, and the second waits for the first in the NIC"
    assert fabric.flow_counters(back).delivered_bytes == 100
    assert (fabric.nic_counters("h1").tx_bytes, fabric.nic_counters("h1").flow_bytes) == (3000, 2000)
    with raises(FabricError, value=2):
        fabric.send("h1", frame(2), flow=2)
    with raises(FabricError, place="fabric", value="h9"):
        fabric.new_flow("h9")


def test_jitter_keeps_the_rate_and_spreads_the_gaps() -> None:
    fabric = line(seed=5)
    flow = fabric.add_flow("h1", frame(2, size=1000), rate_bps=8e8, jitter=0.5, stop_ns=100_000_000)
    fabric.run(200_000_000)
    sent = fabric.flow_counters(flow).sent_packets
    assert abs(sent - 10_000) < 5 * 0.5 / 3**0.5 * 100  # 5 σ of a sum of uniform gaps
    assert sent != 10_000


def test_a_sink_only_counts() -> None:
    fabric = Fabric()
    fabric.add_switch("s1", switch())
    fabric.add_host("h1")
    fabric.add_host("h2", sink=True)
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("h2", 0))
    fabric.send("h1", frames(range(10), port=2))
    assert fabric.run(10**6) == []
    assert (fabric.nic_counters("h2").rx_packets, fabric.packets_in_flight) == (10, 0)


def script(seed: int, loss: float = 0.02) -> tuple[str, list[tuple[str, int, int]]]:
    fabric = line(seed=seed, rate_bps=1e9, delay_ns=300, loss=loss, duplicate=0.05, corrupt=0.0, reorder=0.1)
    fabric.add_flow("h2", frame(1, size=700), rate_bps=5e8, jitter=0.9)
    seen = []
    for step in range(20):
        fabric.send("h1", frames(range(20 * step, 20 * step + 20), port=2, size=900))
        seen += run_all(fabric, (step + 1) * 150_000)
    return fabric.digest(), arrivals(seen)


def test_runs_depend_on_their_seed_alone() -> None:
    first, again, other = script(7), script(7), script(8)
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_the_digest_covers_bytes_and_times() -> None:
    def digest(content: int, at: int) -> str:
        fabric = line(rate_bps=1e9)
        fabric.run(at)
        fabric.send("h1", frame(2, size=101, number=content))
        fabric.run(10**6)
        return fabric.digest()

    assert digest(1, 0) == digest(1, 0)
    assert len({digest(1, 0), digest(2, 0), digest(1, 1)}) == 3


def test_the_digest_tells_every_byte_and_the_order_of_words() -> None:
    sent = frames([1] * 63, port=2, size=101)
    sent[1, 40:96] = np.roll(sent[1, 40:96], 8)
    for index, changed in enumerate(sent[2:], 40):
        changed[index] ^= 1
    digests = set()
    for packet in sent:
        fabric = line(rate_bps=1e9)
        fabric.send("h1", packet[None])
        fabric.run(10**6)
        digests.add(fabric.digest())
    assert len(digests) == len(sent)


def test_memory_stays_flat_over_a_million_packets() -> None:
    fabric = line(rate_bps=10e9, delay_ns=1000)
    flow = fabric.add_flow("h1", frame(2, size=100), rate_bps=5e9, jitter=0.5)
    fabric.run(1_000_000)
    size, heap = fabric._engine.pool_packets, len(fabric._engine._heap)
    fabric.run(170_000_000)
    assert fabric.flow_counters(flow).sent_packets > 1_000_000
    assert (fabric._engine.pool_packets, len(fabric._engine._heap)) == (size, heap)
    assert fabric.packets_in_flight < 50


def test_the_pool_and_the_heap_grow_with_what_is_in_flight() -> None:
    fabric = line(delay_ns=10**9)
    fabric.send("h1", frames(range(20_000), port=2, size=200))
    wakes = run_all(fabric, 4 * 10**9)
    assert [number for _, number, _ in arrivals(wakes)] == list(range(20_000))
    assert fabric.packets_in_flight == 0


def test_bad_calls_say_what_is_wrong() -> None:
    fabric = line()
    fabric.run(1000)
    calls: list[tuple[Callable[[], object], str, object]] = [
        (lambda: fabric.run(999), "run", 999),
        (lambda: fabric.send("h9", frame()), "fabric", "h9"),
        (lambda: fabric.send("h1", frame(), priority=8), "frames of h1", 8),
        (lambda: fabric.send("h1", frame(), port=3), "host h1", 3),
        (lambda: fabric.add_host("s1"), "", "s1"),
        (lambda: fabric.add_host("h3", poll_ns=-1), "host h3", -1),
        (lambda: fabric.add_switch("s3", switch(1)), "switch s3", 1),
        (lambda: fabric.add_link(("h1", 0), ("s1", 5)), "link h1-p0 to s1-p5", "h1-p0"),
        (lambda: fabric.add_link(("h1", 1), ("s1", 1)), "link h1-p1 to s1-p1", "s1-p1"),
        (lambda: fabric.set_link(("s1", 1), loss=1.5), "link at s1-p1: loss", 1.5),
        (lambda: fabric.set_link(("s1", 1), delay_ns=-1), "link at s1-p1: delay_ns", -1),
        (lambda: fabric.set_link(("s1", 1), delay_ns=1 + 3600 * 10**9), "link at s1-p1: delay_ns", 1 + 3600 * 10**9),
        (lambda: fabric.set_link(("h1", 0), rate_bps=0), "link at h1-p0", 0),
        (lambda: fabric.add_link(("h1", 1), ("s1", 5), rate_bps=0), "link h1-p1 to s1-p5", 0),
        (lambda: fabric.add_link(("h1", 1), ("s1", 5), overhead_bytes=-1), "link h1-p1 to s1-p5", -1),
        (lambda: fabric.add_link(("h1", 1), ("s1", 5), loss=-0.5), "link h1-p1 to s1-p5: loss", -0.5),
        (lambda: fabric.add_link(("h1", 1), ("s1", 5), mtu=0), "link h1-p1 to s1-p5", 0),
        (lambda: fabric.set_link(("s1", 5), up=False), "", "s1-p5"),
        (lambda: fabric.add_flow("h1", frame(), rate_bps=0), "flow of h1", 0),
        (lambda: fabric.flow_counters(0), "", 0),
        (lambda: fabric.record_queue(("s1", 1), 0), "queue of s1-p1", 0),
        (lambda: fabric.queue_trace(("s1", 1)), "", "s1-p1"),
    ]
    for call, place, value in calls:
        with raises(EmulatorError, place=place, value=value):
            call()


def test_a_link_that_is_refused_changes_nothing() -> None:
    fabric = line(rate_bps=1e9)
    with raises(FabricError, place="link h1-p1 to s1-p1", value="s1-p1"):
        fabric.add_link(("h1", 1), ("s1", 1), rate_bps=5e8)
    with raises(FabricError, place="link h1-p1 to s1-p5: corrupt", value=2):
        fabric.add_link(("h1", 1), ("s1", 5), corrupt=2)
    assert fabric._nodes.switches["s1"].port_config(1).rate_bps == 1e9
    with raises(FabricError, place="link at s1-p1: delay_ns", value=-1):
        fabric.set_link(("s1", 1), rate_bps=5e8, delay_ns=-1)
    with raises(SwitchValueError, place="link at s1-p1", value=0):
        fabric.set_link(("s1", 1), rate_bps=0, delay_ns=7)
    assert fabric._nodes.switches["s1"].port_config(1).rate_bps == 1e9
    assert not fabric._engine.ports.data["delay_ns"].any()
    fabric.add_link(("h1", 1), ("s1", 5))


def test_packet_outs_enter_in_switch_order_from_any_threads() -> None:
    digests = set()
    for order in ((1, 2), (2, 1)):
        fabric = line(rate_bps=1e9, delay_ns=500)
        for number in order:
            fabric._nodes.switches[f"s{number}"].packet_out(frame(2, size=300, number=number))
        assert [number for _, number, _ in arrivals(run_all(fabric, 10**6))] == [2, 1]
        digests.add(fabric.digest())
    assert len(digests) == 1


def test_a_meter_measures_every_frame_that_a_link_carries() -> None:
    fabric, met = line(), []

    def odd_numbers(address: int, size: int, argument: int) -> int:
        content = ctypes.string_at(address, size)
        met.append((size, argument))
        number = int(headers(np.frombuffer(content, np.uint8)[None])["number"][0])
        return argument + number if number % 2 else 0

    meter = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(odd_numbers)
    fabric.send("h1", frames(range(3), port=2))
    run_all(fabric, 1000)
    address = ctypes.cast(meter, ctypes.c_void_p).value
    assert address is not None
    fabric.meter(address, 7)
    fabric.send("h1", frames(range(10), port=2))
    run_all(fabric, 2000)
    metered = {
        end: (port_counter.metered_packets, port_counter.metered_bytes)
        for end, port_counter in fabric.port_counters().items()
    }
    assert {end: figures for end, figures in metered.items() if figures != (0, 0)} == {
        ("s1", 2): (5, 60),
        ("s2", 2): (5, 60),
    }
    assert met == [(100, 7)] * 30  # by the host's NIC, and by two switches


def test_frames_beyond_a_generators_link_are_dropped_at_the_nic() -> None:
    """Memory does not grow with the rate; a flow and the queue count what was dropped."""
    fabric = line(rate_bps=1e9)
    flow = fabric.add_flow("h1", frame(2, size=1000), rate_bps=1e12, start_ns=0, stop_ns=1_000_000)
    run_all(fabric, 1_000_000)
    sent, drops = fabric.flow_counters(flow).sent_packets, sum(fabric.nic_counters("h1").drops)
    assert 0 < sent - drops <= GENERATED_WAITING + 1_000_000 // 8_000 + 2
    assert fabric.packets_in_flight <= GENERATED_WAITING + 10
