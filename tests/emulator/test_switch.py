"""A switch alone: actions of its traffic manager on a packet, by simple_switch's documentation."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weir.emulator.entries import CloneSession, Replica
from weir.emulator.fabric import Fabric
from weir.emulator.port import PortConfig, SwitchValueError
from weir.emulator.switch import Switch
from weir.tests.emulator.runtime.runtime_program import (
    HEADER_BYTES,
    PHV_BYTES,
    State,
    frame,
    frames,
    headers,
    program,
    switch,
)
from weir.tests.paths import STF
from weir.tests.support.errors import raises

NORMAL, INGRESS_CLONE, EGRESS_CLONE, REPLICATION = 0, 1, 2, 5


def seen(out: list[tuple[int, bytes]]) -> list[tuple[int, int, int, int]]:
    """(port, instance type, egress_rid, ingress's mark) of each frame."""
    heads = [(port, headers(data)) for port, data in out]
    return [(port, int(h["instance_type"]), int(h["egress_rid"]), int(h["mark"])) for port, h in heads]


def test_unicast_leaves_through_the_egress_port_with_its_payload() -> None:
    sent = frame(5, size=300, number=77)
    [(port, data)] = switch().forward(sent, 2)
    head = headers(data)
    assert port == 5
    assert data[HEADER_BYTES:] == sent[HEADER_BYTES:]
    assert [
        int(head[name]) for name in ("ingress_port", "egress_port", "instance_type", "packet_length", "number")
    ] == [
        2,
        5,
        NORMAL,
        300,
        77,
    ]


def test_drop_port_drops_and_counts() -> None:
    s = switch()
    assert s.forward(frame(511), 0) == []
    assert s.counters.ingress_drops == 1
    assert s.counters.egress_packets == 0


def test_drop_in_egress() -> None:
    s = switch()
    assert s.forward(frame(1, drop_in_egress=1), 0) == []
    assert (s.counters.ingress_drops, s.counters.egress_drops) == (0, 1)


def test_a_port_that_is_not_there_drops_and_counts() -> None:
    s = switch()
    assert s.forward(frame(100), 0) == []
    assert s.counters.no_port == 1


def test_multicast_makes_one_packet_per_replica_and_no_original() -> None:
    s = switch()
    s.replication.set_group(3, (Replica(1, 7), Replica(1, 8), Replica(4, 9)))
    sent = frame(6, group=3, size=200)
    out = s.forward(sent, 0)
    # A port without a rate sends as soon as it has a packet, so all of port 1 comes before port 4.
    assert seen(out) == [(1, REPLICATION, 7, 1), (1, REPLICATION, 8, 1), (4, REPLICATION, 9, 1)]
    assert {data[HEADER_BYTES:] for _, data in out} == {sent[HEADER_BYTES:]}


def test_multicast_beats_the_drop_port_and_unknown_groups_drop() -> None:
    s = switch()
    s.replication.set_group(3, (Replica(1),))
    assert [port for port, _ in s.forward(frame(511, group=3), 0)] == [1]
    assert s.forward(frame(5, group=4), 0) == []
    assert s.forward(frame(5, group=60000), 0) == []
    assert s.counters.no_group == 2


def test_ingress_clone_is_the_frame_as_received_parsed_again() -> None:
    s = switch()
    state: Any = s.state
    s.replication.set_session(9, CloneSession((Replica(2, 5), Replica(3, 6))))
    out = s.forward(frame(1, clone=9), 0)
    assert seen(out) == [(2, INGRESS_CLONE, 5, 0), (3, INGRESS_CLONE, 6, 0), (1, NORMAL, 0, 1)]
    assert state.counts[2] == 2


def test_a_packet_dropped_in_ingress_is_still_cloned() -> None:
    s = switch()
    s.replication.set_session(9, CloneSession((Replica(2),)))
    assert seen(s.forward(frame(511, clone=9), 0)) == [(2, INGRESS_CLONE, 0, 0)]


def test_a_clone_session_truncates_only_the_clone_with_its_class() -> None:
    s = switch()
    s.replication.set_session(9, CloneSession((Replica(2),), packet_length_bytes=80, class_of_service=6))
    (_, clone), (_, original) = s.forward(frame(1, clone=9, size=200), 0)
    assert (len(clone), len(original)) == (80, 200)
    assert headers(clone)["qid"] == 6


def test_an_egress_clone_has_final_headers_and_new_metadata() -> None:
    s = switch()
    s.replication.set_session(4, CloneSession((Replica(3, 2),)))
    sent = frame(1, egress_clone=4, size=150, number=5)
    out = s.forward(sent, 7)
    assert seen(out) == [(1, NORMAL, 0, 1), (3, EGRESS_CLONE, 2, 1)]
    clone = out[1][1]
    assert clone[HEADER_BYTES:] == sent[HEADER_BYTES:]
    assert (headers(clone)["number"], headers(clone)["packet_length"]) == (5, 150)


def test_a_packet_dropped_in_egress_is_still_cloned() -> None:
    s = switch()
    s.replication.set_session(4, CloneSession((Replica(3),)))
    sent = frame(1, egress_clone=4, drop_in_egress=1, size=150)
    [(port, data)] = s.forward(sent, 0)
    assert port == 3
    assert data[HEADER_BYTES:] == sent[HEADER_BYTES:]


def test_an_unknown_session_clones_nothing_and_keeps_the_packet() -> None:
    s = switch()
    assert seen(s.forward(frame(1, clone=9, egress_clone=300), 0)) == [(1, NORMAL, 0, 1)]
    assert s.counters.no_session == 2


def test_another_drop_port() -> None:
    """Packets to that port are dropped, in ingress and egress, and port 511 has no meaning any more."""
    switch = Switch(1, ports=[1, 5], drop_port=5)
    switch.load((STF / "replication.json").read_bytes())
    switch.replication.set_group(1, (Replica(1, 0), Replica(5, 0)))
    switch.replication.set_session(2, CloneSession((Replica(1, 0),)))
    dropped_and_cloned = switch.forward(bytes([5, 2, 0, 0, 0, 0, 0]), 1)  # mark_to_drop
    assert [port for port, _ in dropped_and_cloned] == [1]
    assert switch.counters.ingress_drops == 1
    assert [port for port, _ in switch.forward(bytes([3, 1, 0, 0, 0, 0, 0]), 1)] == [1, 5], "replicas are as they are"
    with raises(SwitchValueError, place="switch 1", value=510):
        Switch(1, drop_port=510)


def test_truncate_and_growth() -> None:
    s = switch()
    sent = frame(1, size=1000, truncate=100)
    [(_, data)] = s.forward(sent, 0)
    assert data[HEADER_BYTES:] == sent[HEADER_BYTES:100]
    sent = frame(1, size=1000, grow=400)
    [(_, data)] = s.forward(sent, 0)
    assert len(data) == 1400
    assert data[400 + HEADER_BYTES :] == sent[HEADER_BYTES:]


def test_packet_outs_enter_and_packet_ins_leave_at_the_cpu_port() -> None:
    s = switch()
    got: list[bytes] = []
    s.on_packet_in = got.append
    s.packet_out(frame(510, number=3))
    assert [(int(headers(data)["ingress_port"]), int(headers(data)["number"])) for data in got] == [(510, 3)]
    s.packet_out(frame(2))
    assert s.port_counters(2).tx_packets == 1
    assert len(got) == 1


def test_the_clock_shows_in_timestamps() -> None:
    [(_, data)] = switch().forward(frame(1), 0, at_ns=7_654_321)
    assert (headers(data)["ingress_timestamp"], headers(data)["egress_timestamp"]) == (7654, 7654)


def test_process_runs_every_frame_as_often_as_told() -> None:
    s = switch()
    given = frames(range(500), port=2, size=128)
    headers(given)["port"] = np.arange(500) % 3
    out = s.process(given, ports=4, repeat=3)
    assert s.counters.ingress_packets == 1500
    assert out.lengths.tolist() == [128] * 500
    assert out.ports.tolist() == (np.arange(500) % 3).tolist()
    got = headers(out.data.reshape(500, 128))
    assert got["number"].tolist() == list(range(500))
    assert set(got["ingress_port"].tolist()) == {4}


def test_process_takes_a_length_and_a_port_per_frame() -> None:
    s = switch()
    lengths = np.array([70, 63, 100])
    out = s.process(frames(range(3), port=1, size=100), lengths, np.array([5, 6, 7]))
    assert out.lengths.tolist() == [70, 100]  # 63 bytes do not hold the header
    assert s.counters.ingress_drops == 1


def test_processing_keeps_memory_flat() -> None:
    s = switch()
    s.replication.set_group(1, tuple(Replica(port, n) for port in range(8) for n in range(4)))
    s.process(frames(range(10), group=1, size=200), repeat=10)
    before = s._engine.pool_packets
    s.process(frames(range(10), group=1, size=200), repeat=2000)
    assert s._engine.pool_packets == before
    assert s._engine.packets_in_use == 0


def test_a_group_larger_than_the_pool() -> None:
    s = switch(ports=range(500))
    s.replication.set_group(1, tuple(Replica(port, n) for port in range(500) for n in range(4)))
    out = s.forward(frame(group=1), 0)
    assert sorted((port, rid) for port, _, rid, _ in seen(out)) == [(p, n) for p in range(500) for n in range(4)]


def test_without_a_program_frames_are_dropped_and_counted() -> None:
    s = Switch(1, ports=[1])
    assert s.forward(frame(1), 1) == []
    assert s.counters.no_program == 1


def test_a_new_program_starts_with_an_empty_replication_engine() -> None:
    s = switch()
    s.replication.set_group(1, (Replica(1),))
    s.replication.set_session(1, CloneSession((Replica(1),)))
    s.start(program(), State())  # type: ignore[arg-type]
    assert (dict(s.replication.groups), dict(s.replication.sessions)) == ({}, {})


def test_the_pool_is_laid_out_anew_for_a_larger_phv() -> None:
    """Two programs with PHVs of different size in one fabric; a frame crosses both."""
    fabric = Fabric()
    small, large = switch(1), Switch(2, ports=range(8))
    fabric.add_switch("s1", small)
    fabric.add_switch("s2", large)
    fabric.add_host("h1")
    fabric.add_host("h2")
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("s2", 1), delay_ns=1000)
    fabric.add_link(("s2", 2), ("h2", 0))
    sent = frame(2, size=500)
    fabric.send("h1", sent)
    assert fabric.run(500) == []
    # Frames are on the wire while the second switch gets its program: a bigger PHV, of which it uses the front.
    points = program().entry_points
    unaligned = SimpleNamespace(entry_points=points, phv_bytes=PHV_BYTES + 8)
    with raises(SwitchValueError, place="program", value=136):
        large.start(unaligned, State())  # type: ignore[arg-type]
    fabric._engine.make_room_for(4096, 8)
    large.start(program(), State())  # type: ignore[arg-type]
    [wake] = fabric.run(10_000)
    assert wake.frames[0][0, HEADER_BYTES:].tobytes() == sent[HEADER_BYTES:]


@pytest.mark.parametrize("number", [-1, 511, 1000])
def test_bad_port_numbers_are_refused(number: int) -> None:
    with pytest.raises(SwitchValueError, match=str(number)):
        Switch(1, ports=[number])


def test_bad_configuration_is_refused_and_changes_nothing() -> None:
    s = switch()
    for options, words in [
        ({"rate_bps": 0}, "rate 0"),
        ({"rate_bps": float("nan")}, "rate nan"),
        ({"queue_packets": 0}, "queue_packets is 0"),
        ({"queue_bytes": -5}, "queue_bytes is -5"),
        ({"overhead_bytes": 5000}, "5000"),
        ({"queue_packets": 5, "priority": 8}, "priority 8"),
    ]:
        with pytest.raises(SwitchValueError, match=words):
            s.set_port(1, **options)  # type: ignore[arg-type]
    assert s.port_config(1) == PortConfig()
    with raises(SwitchValueError, value=1):
        s.set_port(77, rate_bps=1e9)
    with raises(SwitchValueError, place="switch 1", value=1):
        s.add_port(1)


def test_bad_frames_are_refused() -> None:
    s = switch()
    with raises(SwitchValueError, place="frame of 2049 bytes", value=2049):
        s.forward(bytes(2049), 0)
    with raises(SwitchValueError, place="switch 1", value=0):
        switch(max_passes=0)
    with raises(SwitchValueError, value=2):
        s.process(frames(range(2)), np.array([50, 101]))


@pytest.mark.parametrize("what", ["packet-in", "poll"])
def test_a_switch_cannot_be_paused_while_it_notifies_control(what: str) -> None:
    s = switch()
    paused = threading.Event()

    def pause() -> None:
        with s.paused():
            paused.set()

    other = threading.Thread(target=pause)
    seen = []

    def tell(*_: object) -> None:
        other.start()
        seen.append(paused.wait(0.05))

    if what == "packet-in":
        s.on_packet_in = tell
        s.packet_out(frame(510))
    else:
        s.on_digest, s.on_poll = (lambda name, records: None), tell
        s.poll_digests()
    other.join()
    assert (seen, paused.is_set()) == ([False], True)


def test_a_new_program_and_its_empty_groups_are_one_change() -> None:
    class Lock:
        """Counts how often packets may run again."""

        depth = released = 0

        def __enter__(self) -> None:
            self.depth += 1

        def __exit__(self, *_: object) -> None:
            self.depth -= 1
            self.released += self.depth == 0

    s = switch()
    assert s.program is not None
    assert s.state is not None
    s.replication.set_group(1, (Replica(2),))
    s._engine.lock = lock = Lock()
    s.start(s.program, s.state)
    assert (s.replication.groups, lock.released) == ({}, 1)
