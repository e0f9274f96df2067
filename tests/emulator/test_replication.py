"""Contract of the replication engine; its effects on packets are tested with the switch."""

from __future__ import annotations

import pytest

from weir.emulator.entries import CloneSession, EntryNotFound, InvalidEntry, Replica
from weir.tests.emulator.runtime.runtime_program import frame, switch
from weir.tests.support.errors import raises


def test_groups_and_sessions_read_back_as_written() -> None:
    engine = switch().replication
    engine.set_group(1, (Replica(1, 2), Replica(3, 4)))
    engine.set_group(65535, (Replica(5),))
    engine.set_session(32767, CloneSession((Replica(510),), 128, 7))
    assert dict(engine.groups) == {1: (Replica(1, 2), Replica(3, 4)), 65535: (Replica(5, 0),)}
    assert dict(engine.sessions) == {32767: CloneSession((Replica(510, 0),), 128, 7)}


def test_writing_again_replaces_and_deleting_removes() -> None:
    s = switch()
    s.replication.set_group(1, (Replica(1),))
    s.replication.set_group(2, (Replica(2),))
    s.replication.set_group(1, (Replica(3), Replica(4)))
    assert [port for port, _ in s.forward(frame(group=1), 0)] == [3, 4]
    assert [port for port, _ in s.forward(frame(group=2), 0)] == [2]
    s.replication.delete_group(1)
    assert s.forward(frame(group=1), 0) == []
    assert [port for port, _ in s.forward(frame(group=2), 0)] == [2]
    s.replication.set_session(5, CloneSession((Replica(1),)))
    s.replication.delete_session(5)
    assert [port for port, _ in s.forward(frame(7, clone=5), 0)] == [7]


def test_ten_thousand_groups() -> None:
    """Each change costs the same however many there are."""
    s = switch()
    last = 10_000
    for number in range(1, last + 1):
        s.replication.set_group(number, (Replica(number % 3 + 1), Replica(5)))
    for number in range(2, last):
        s.replication.set_group(number, (Replica(number % 5, 1),))
        s.replication.delete_group(number)
    assert dict(s.replication.groups) == {1: (Replica(2), Replica(5)), last: (Replica(2), Replica(5))}
    assert [[port for port, _ in s.forward(frame(group=number), 0)] for number in (1, 2, last)] == [[2, 5], [], [2, 5]]


def test_deleting_what_is_not_there() -> None:
    engine = switch().replication
    with raises(EntryNotFound, value=4):
        engine.delete_group(4)
    with raises(EntryNotFound, value=4):
        engine.delete_session(4)


@pytest.mark.parametrize(
    ("group_id", "replicas", "words"),
    [
        (0, (), "group 0"),
        (65536, (), "65536"),
        (1, (Replica(512),), "port 512"),
        (1, (Replica(-1),), "port -1"),
        (1, (Replica(1, 65536),), "instance 65536"),
        (1, (Replica(1, 2), Replica(1, 2)), "twice"),
    ],
)
def test_bad_groups_are_refused(group_id: int, replicas: tuple[Replica, ...], words: str) -> None:
    engine = switch().replication
    with pytest.raises(InvalidEntry, match=words):
        engine.set_group(group_id, replicas)
    assert dict(engine.groups) == {}


@pytest.mark.parametrize(
    ("session_id", "session", "words"),
    [
        (0, CloneSession(()), "session 0"),
        (32768, CloneSession(()), "32768"),
        (1, CloneSession((Replica(512),)), "port 512"),
        (1, CloneSession((), 0, 8), "class of service 8"),
        (1, CloneSession((), -1), "length -1"),
    ],
)
def test_bad_sessions_are_refused(session_id: int, session: CloneSession, words: str) -> None:
    engine = switch().replication
    with pytest.raises(InvalidEntry, match=words):
        engine.set_session(session_id, session)
    assert dict(engine.sessions) == {}


def test_a_replica_with_a_down_port_uses_the_first_live_backup() -> None:
    s = switch()
    s.replication.set_group(1, (Replica(1, 10, ((2, 20), (3, 30))), Replica(4, 40)))
    s.replication.set_session(5, CloneSession((Replica(1, 0, ((6, 0),)),)))

    def ports(down: set[int]) -> tuple[list[int], list[int]]:
        s.set_ports_down(down)
        group, clones = s.forward(frame(group=1), 0), s.forward(frame(7, clone=5), 0)
        return [port for port, _ in group], [port for port, _ in clones if port != 7]

    assert ports(set()) == ([1, 4], [1])
    assert ports({1}) == ([2, 4], [6])
    assert ports({1, 2, 4}) == ([3, 4], [6])
    assert ports({1, 2, 3, 6}) == ([1, 4], [1])


@pytest.mark.parametrize(
    ("replica", "words"),
    [
        (Replica(1, 2, ((1, 3),)), "its own backup"),
        (Replica(1, 2, ((2, 3), (2, 3))), "twice"),
        (Replica(1, 2, ((512, 3),)), "port 512"),
        (Replica(1, 2, ((2, 65536),)), "instance 65536"),
    ],
)
def test_bad_backups_are_refused(replica: Replica, words: str) -> None:
    engine = switch().replication
    with pytest.raises(InvalidEntry, match=words):
        engine.set_group(1, (replica,))
    assert dict(engine.groups) == {}
