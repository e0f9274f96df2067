"""Leases end once without renewal; links are down within a lease, and up again after steady answers."""

from __future__ import annotations

from weir.controller.errors import ControllerError
from weir.controller.leases import Leases
from weir.controller.telemetry.link_watch import FIRST_INDEX, LinkWatch
from weir.controller.telemetry.probe_format import SEQUENCES
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.wire.frames import DSCP_CONTROL

TOPOLOGY = leaf_spine(2, 2, 1)
LEASE, PERIOD = 100, 25
CUT = Endpoint("s1", 2)
BOTH = {CUT, TOPOLOGY.peer(CUT)}


def test_a_lease_runs_out_once_and_begins_with_its_first_renewal() -> None:
    leases = Leases[str](10)
    assert (leases.expire(99), leases.deadline_ns) == ([], None)
    leases.renew("a", 0)
    leases.renew("b", 3)
    leases.renew("a", 5)
    assert (leases.deadline_ns, len(leases)) == (13, 2)
    assert leases.expire(12) == []
    assert leases.expire(13) == ["b"]
    assert leases.expire(14) == []
    assert (leases.lives("a"), leases.lives("b")) == (True, False)
    leases.end("a")
    assert leases.expire(99) == []
    leases.renew("b", 100)
    assert leases.lives("b")
    leases.renew("c", 101)
    leases.renew("b", 102)
    assert leases.expire(200) == ["c", "b"]
    for_ever = Leases[str](None)
    for_ever.renew("a", 0)
    assert (for_ever.expire(1 << 60), for_ever.deadline_ns) == ([], None)
    with raises(ControllerError, place="lease_ns", value=0):
        Leases[str](0)


class Wires:
    """Probes that arrive at once, where their link is not cut."""

    def __init__(self) -> None:
        self.watch = LinkWatch(TOPOLOGY, LEASE, 0)
        self.cut: set[Endpoint] = set()
        self.without: set[str] = set()
        self.crossed_ns = dict.fromkeys(BOTH, 0)
        """When something else came over these links last."""

    def run(self, start: int, end: int) -> list[int]:
        """When what is down changed."""
        changes = []
        for now in range(start, end):
            if self.watch.update(now, lambda since: {link for link, at in self.crossed_ns.items() if at >= since}):
                changes.append(now)
            for switch, port, frame in self.watch.send(now, self.without):
                if Endpoint(switch, port) not in self.cut:
                    assert LinkWatch.owns(frame)
                    assert frame[15] >> 2 == DSCP_CONTROL, "a flood in the bulk class must not keep it waiting"
                    self.watch.receive(frame, now)
        return changes


def test_a_link_is_down_after_a_lease_and_up_after_four_answers() -> None:
    wires = Wires()
    assert wires.run(0, 200) == []
    wires.cut = {CUT}  # in one direction only
    assert wires.run(200, 400) == [175 + LEASE]
    assert wires.watch.down == BOTH
    wires.cut = set()
    assert wires.run(400, 426) == []
    wires.cut = {CUT}  # it answered twice, and falls silent again
    assert wires.run(426, 600) == []
    wires.cut = set()
    assert wires.run(600, 800) == [600 + 3 * PERIOD + 1]
    assert wires.watch.down == frozenset()


def test_a_link_with_other_traffic_is_not_down_without_probes() -> None:
    wires = Wires()
    wires.run(0, 100)
    wires.cut = {CUT}
    for index in range(100, 1000, LEASE):
        wires.crossed_ns[CUT] = index
        assert wires.run(index, index + LEASE) == []
    assert wires.run(1000, 1200) == [901 + LEASE]
    assert wires.watch.down == BOTH
    wires.crossed_ns[CUT] = 1200  # only answers bring a link up again
    assert wires.run(1200, 1300) == []


def test_evidence_of_one_direction_says_nothing_of_the_other() -> None:
    wires = Wires()
    wires.run(0, 100)
    wires.cut = {CUT}
    wires.crossed_ns[TOPOLOGY.peer(CUT)] = 500
    assert wires.run(100, 400) == [75 + LEASE]


def test_links_to_switches_out_of_reach_have_no_state() -> None:
    wires = Wires()
    wires.run(0, 100)
    wires.without, wires.cut = {"s1"}, {CUT}
    assert wires.run(100, 1000) == []
    wires.without = set()
    assert wires.run(1000, 1200) == [975 + LEASE]


def test_time_in_which_no_probe_was_sent_is_no_silence() -> None:
    """The controller writes to slow switches, before its first probes or between two."""
    wires = Wires()
    assert wires.run(500, 600) == [], "nothing was asked before"
    wires.cut = {CUT}
    assert wires.run(600 + PERIOD, 600 + 2 * PERIOD) == [], "probes of 575 went out, those of 600 a period late"
    assert wires.run(1200, 1400) == [1200 + LEASE - 2 * PERIOD], "575 to 600 and 625 to 650 were silence"
    wires.cut = set()
    assert wires.run(1400, 1400 + 2 * PERIOD) == []
    assert wires.run(2000, 2100) == [2000 + PERIOD + 1], "the third of four answers follows the second"


def test_down_links_stay_down_until_they_answer() -> None:
    wires = Wires()
    wires.watch.mark_down({CUT}, 0)
    assert wires.watch.down == BOTH
    assert wires.run(500, 900) == [500 + 3 * PERIOD + 1]
    assert wires.watch.down == frozenset()


def test_numbers_of_probes_begin_again_and_nobody_notices() -> None:
    wires = Wires()
    wires.watch._sequence = SEQUENCES - 3
    assert wires.run(0, 10 * LEASE) == []
    assert wires.watch._sequence < 100
    wires.cut.add(CUT)
    assert len(wires.run(10 * LEASE, 13 * LEASE)) == 1
    assert wires.watch.down == BOTH


def test_late_strange_and_doubled_answers_change_nothing() -> None:
    watch = LinkWatch(TOPOLOGY, LEASE, 0)
    frames = [frame for _, _, frame in watch.send(0, ())]
    assert len(frames) == 8  # two leaves, two spines, both directions
    for now in range(1, 300):
        watch.update(now)
        list(watch.send(now, ()))
    assert len(watch.down) == 8
    for _ in range(10):
        for frame in frames:  # of the beginning
            watch.receive(frame, 300)
        watch.receive(frames[0][:-8] + (FIRST_INDEX + 8).to_bytes(4, "big") + (11).to_bytes(4, "big"), 300)
    assert not watch.update(301)
    assert not LinkWatch.owns(b"short")
    assert not LinkWatch.owns(bytes(64))
    never = LinkWatch(TOPOLOGY, None, 0)
    assert (list(never.send(0, ())), never.update(1 << 60), never.down) == ([], False, frozenset())
