"""Forged packets among those of running jobs: they change no sum, and are dropped for the right reason.

Two jobs run on a leaf-spine fabric; a stranger's host, and hosts of the jobs themselves, send forged packets through
the real switches: for any false field, the addressed switch, or the one at which the packet enters, drops and counts
it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.tests.p4src.small_fabric import message
from weir.tests.schedules.rig import MS, OPTIONS, Chosen, ScheduleRig
from weir.tests.schedules.sums import Summing, draw_tensors
from weir.topologies.generators import leaf_spine
from weir.topologies.model import mac_number
from weir.wire.aggregation import AGGREGATION_PORT, LANES, MessageType
from weir.wire.frames import BULK_PRIORITY, encapsulate

TOPOLOGY = leaf_spine(2, 1, 4, rate_bps=1_000_000_000)
TREE = {
    "h1": "s1",
    "h2": "s1",
    "h5": "s2",
}
"""Workers of the first job: s1 and s2 send to s3, which sends to the server h6."""
STRANGER = "h4"
SERVER = "h6"


@dataclass(frozen=True)
class Lie:
    """A forged packet: source, destination, false field, and outcome."""

    name: str
    reason: str
    """Drop reason at the addressed switch, or at `comes_to`, or of the host's counter."""
    sender: str = "h1"
    to: str = "s1"
    source: str = "h1"
    kind: MessageType = MessageType.CONTRIBUTION
    job: int = 1
    ahead: int = 0
    """Offset of the generation."""
    contributors: int = 1
    fields: tuple[tuple[str, int], ...] = ()
    bad_checksum: bool = False
    comes_to: str = ""
    """Switch that drops it; "": its destination."""
    port: int = AGGREGATION_PORT
    """UDP, that it is sent from."""
    cut: int = 0
    """Bytes missing at the end."""


LIES = (
    Lie("a job that is not there", "unknown_job", job=99),
    Lie("job 0", "unknown_job", job=0),
    Lie("a generation that is over", "unknown_job", ahead=-1),
    Lie("a generation to come", "unknown_job", ahead=1),
    Lie("another job's number", "not_member", job=2),
    Lie("a brother's bit", "not_member", contributors=2),
    Lie("all bits", "not_member", contributors=3),
    Lie("no bit", "not_member", contributors=0),
    Lie("a bit of nobody", "not_member", contributors=1 << 31),
    Lie("a stranger in its own name", "not_member", sender=STRANGER, source=STRANGER),
    Lie("a stranger in a worker's name: the port tells", "not_member", sender=STRANGER, source="h1"),
    Lie("a brother in a worker's name", "not_member", sender="h2", source="h1"),
    Lie("a worker at a switch that is not its own", "not_member", to="s2"),
    Lie("a slot beyond the job's", "bad_slot", fields=(("slot", 8),)),
    Lie("the last slot of all", "bad_slot", fields=(("slot", 0xFFFF),)),
    Lie("a header that is damaged", "bad_checksum", bad_checksum=True),
    Lie("a version to come", "malformed", fields=(("version_type", 0x21),)),
    Lie("a type that is none", "malformed", fields=(("version_type", 0x1F),)),
    Lie("lanes where none belong", "malformed", fields=(("version_type", 0x13),)),
    Lie("a result from a worker", "not_parent", kind=MessageType.RESULT, contributors=0),
    Lie("a result in the parent's name: the port tells", "not_parent", source="s3", kind=MessageType.RESULT),
    Lie("a scale result from a stranger", "not_parent", sender=STRANGER, source="s3", kind=MessageType.SCALE_RESULT),
    Lie("a fetched round for a switch", "no_service", kind=MessageType.FETCHED),
    Lie("a fetch from a switch", "no_service", kind=MessageType.FETCH),
    Lie("a packet that ends before its lanes do", "truncated", cut=500),
    Lie("a contribution from another UDP port", "foreign_port", port=40_000),
    Lie("a result in the parent's name from another UDP port", "foreign_port", source="s3", port=22340,
        kind=MessageType.RESULT),
    Lie("a result for a worker from a server that is not its parent", "foreign", sender=SERVER, source=SERVER, to="h2",
        kind=MessageType.RESULT, contributors=0),
    Lie("a result for a worker from a stranger", "foreign_type", sender=STRANGER, source=STRANGER, to="h2",
        comes_to="s1", kind=MessageType.RESULT, contributors=0),
    Lie("a result for a worker from a stranger in the server's name", "foreign_source", sender=STRANGER, source=SERVER,
        to="h2", comes_to="s1", kind=MessageType.RESULT, contributors=0),
    Lie("a result for a worker from a stranger in the switch's name", "foreign_source", sender=STRANGER, source="s1",
        to="h2", comes_to="s1", kind=MessageType.RESULT, contributors=0),
    Lie("a fetched round that nobody asked for", "foreign", sender="h3", source="h3", to="h2",
        kind=MessageType.FETCHED, contributors=0),
    Lie("a fetched round from a stranger", "foreign_type", sender=STRANGER, source=STRANGER, to="h2", comes_to="s1",
        kind=MessageType.FETCHED, contributors=0),
    Lie("a contribution for the server from a worker", "foreign", to=SERVER),
    Lie("a contribution for the server in the name of its child", "foreign_source", to=SERVER, comes_to="s1",
        source="s3"),
    Lie("a fetched round for the server", "unexpected_type", to=SERVER, kind=MessageType.FETCHED),
    Lie("a result for the server", "foreign_type", to=SERVER, comes_to="s1", kind=MessageType.RESULT),
)  # fmt: skip


def forge(lie: Lie, number: int, rng: np.random.Generator) -> np.ndarray:
    """The frame, with a right check over lanes of its own: nothing but the lie gives it away."""
    payload = message(
        lie.kind,
        round_number=number,
        lanes=rng.integers(-1000, 1000, LANES),
        job=lie.job,
        generation=1 + lie.ahead,
        bad_checksum=lie.bad_checksum,
        contributors=lie.contributors,
        weight=3,
        **{"slot": number % 8, **dict(lie.fields)},
    )
    sender, source = TOPOLOGY.host(lie.sender), TOPOLOGY.node(lie.source)
    frame = encapsulate(
        np.frombuffer(payload, np.uint8)[None],
        source=int(source.address),
        destination=int(TOPOLOGY.node(lie.to).address),
        source_mac=mac_number(sender.mac),
        destination_mac=mac_number(TOPOLOGY.attached_switch(lie.sender).mac),
        source_port=lie.port,
    )
    return frame[:, : frame.shape[1] - lie.cut]


class Fabric:
    """Two jobs on it: 1 in a tree below a server, 2 with its root at s1."""

    def __init__(self) -> None:
        trees = {
            1: Placement(TREE, {"s1": "s3", "s2": "s3", "s3": SERVER}, SERVER),
            2: Placement({"h3": "s1", "h7": "s1"}, {}, "s1"),
        }
        options = replace(OPTIONS, stuck_ns=None, lease_ns=None, patience_ns=None, probe_period_ns=1_000 * MS)
        self.rig = ScheduleRig(TOPOLOGY, Chosen(lambda problem: trees[1 if problem.server else 2]), options=options)
        self.specs = (JobSpec(1, tuple(TREE), SERVER, 8, 4), JobSpec(2, ("h3", "h7"), None, 8, 4))
        self.jobs: list[Summing] = []

    async def start(self, size: int) -> None:
        await self.rig.controller.start()
        for spec in self.specs:
            await self.rig.admit(spec)
            self.jobs.append(Summing(self.rig, spec, draw_tensors(spec.job, (size,), len(spec.workers))))
            self.jobs[-1].submit_all()

    @property
    def finished(self) -> bool:
        return all(job.finished for job in self.jobs)

    def look(self) -> None:
        for job in self.jobs:
            job.collect()

    async def close(self) -> None:
        for job in self.jobs:
            job.check()
            await self.rig.finish(job.job)
        await self.rig.check_empty()
        self.rig.close()

    def drops(self) -> Counter[str]:
        """Drops of switches and hosts, apart from those of loss and time-outs."""
        seen: Counter[str] = Counter()
        for name in self.rig.switches:
            seen.update(self.rig.drops(name))
        for agent in self.rig.agents.values():
            seen.update(agent.core.counters.drops)
        del seen["duplicate"]
        return +seen


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
async def test_a_lie_is_dropped_for_its_reason_and_changes_no_sum(lie: Lie) -> None:
    fabric, rng = Fabric(), np.random.default_rng(1)
    rig, told = fabric.rig, 0
    await fabric.start(8 * LANES)
    base = rig.worker(1, "h1").rounds_complete

    def look() -> None:
        nonlocal told
        fabric.look()
        if told < 20 and (rig.is_busy(lie.sender) or lie.sender == STRANGER):
            # of the round that is being summed, of those before and those to come
            number = max(0, rig.worker(1, "h1").rounds_complete - base + int(rng.integers(-2, 4)))
            rig.fabric.send(lie.sender, forge(lie, number, rng), BULK_PRIORITY)
            told += 1

    await rig.run(lambda: fabric.finished, 1_000 * MS, lie.name, look)
    await rig.rest(MS)
    assert told == 20
    if lie.to == "h2" and not lie.comes_to:  # a host drops unexpected messages for that reason
        dropped = +Counter(rig.worker(1, "h2").counters.drops)
        assert dropped[lie.reason]
        assert dropped.keys() <= {lie.reason, "duplicate", "out_of_window"}
        assert dropped.total() == told
    else:
        assert fabric.drops() == {lie.reason: told}
        where = lie.comes_to or lie.to
        assert (rig.agents[1, SERVER].core.counters.drops if where == SERVER else rig.drops(where))[lie.reason] == told
    await fabric.close()


async def test_a_flood_of_any_lies_changes_no_sum() -> None:
    """All of them at random, among them packets of bytes that mean nothing, several for each honest packet."""
    fabric, rng, choose = Fabric(), np.random.default_rng(5), random.Random(5)
    await fabric.start(40 * LANES)
    told = 0

    def look() -> None:
        nonlocal told
        fabric.look()
        for lie in choose.choices(LIES, k=4):
            frame = forge(lie, max(0, fabric.rig.worker(1, "h1").rounds_complete + choose.randint(-3, 5)), rng).copy()
            if choose.random() < 0.3:
                at = choose.randrange(14, frame.shape[1])  # behind the addresses of Ethernet
                frame[0, at:] = rng.integers(0, 256, frame.shape[1] - at)
            fabric.rig.fabric.send(lie.sender, frame, BULK_PRIORITY)
            told += 1

    await fabric.rig.run(lambda: fabric.finished, 2_000 * MS, "a flood of lies", look)
    assert told > 500
    assert len(fabric.drops()) >= 10
    await fabric.close()
