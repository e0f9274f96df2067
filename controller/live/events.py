"""Events of a fabric, derived from successive states: moves, leases, switches, links, stale telemetry, drops.

The controller needs no code for this: events follow from the differences of two states. Generations are counted, so no
move is missed, however quick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..controller import Controller
from ..telemetry.snapshot import DOUBTED, Snapshot, listed

KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    number: int
    """Counted from 1; a page knows by it what it has shown."""
    time_ns: int
    """Time on the controller's clock."""
    kind: str
    """run, job, move, host, switch, link, telemetry or drop."""
    text: str


class EventLog:
    """The last events, from the looks at a controller."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._number = 0
        self.begin_anew()

    def begin_anew(self, title: str = "", now_ns: int = 0) -> None:
        """Start watching another controller, described by the title; earlier events stay."""
        if title:
            self._add(now_ns, "run", title)
        self._generations: dict[int, int] = {}
        self._moving: frozenset[int] = frozenset()
        self._gone: dict[int, frozenset[str]] = {}
        self._silent: dict[int, frozenset[str]] = {}
        self._aborted: frozenset[int] = frozenset()
        self._lost: frozenset[str] = frozenset()
        self._down: frozenset[str] = frozenset()
        self._stale: frozenset[str] = frozenset()
        self._exceeded: frozenset[str] = frozenset()
        self._drops: dict[str, int] = {}

    def newest(self, count: int = KEPT) -> list[dict[str, Any]]:
        """Return the last `count` events as JSON values, newest first."""
        return [asdict(event) for event in list(self._events)[: -count - 1 : -1]]

    def update(self, controller: Controller, snapshot: Snapshot, now_ns: int) -> None:
        """Note what has changed since the last look."""
        self._update_jobs(controller, now_ns)
        lost = frozenset(controller.switches.lost)
        down = frozenset(str(link) for link in controller.prober.link_watch.down)
        stale = frozenset(str(link) for link in snapshot.stale)
        for kind, before, after, gone_text, back_text in (
            ("switch", self._lost, lost, "lost", "back"),
            ("link", self._down, down, "down", "up again"),
            ("telemetry", self._stale, stale, DOUBTED, "fresh again"),
        ):
            self._add_named(now_ns, kind, after - before, gone_text)
            self._add_named(now_ns, kind, before - after, back_text)
        self._lost, self._down, self._stale = lost, down, stale
        exceeded = frozenset(controller.exceeded.told.values())
        for line in sorted(exceeded - self._exceeded):
            self._add(now_ns, "telemetry", line)
        self._exceeded = exceeded

    def update_drops(self, drops: Mapping[str, int], now_ns: int) -> None:
        """Add an event per reason whose count of dropped packets has grown."""
        for reason, count in drops.items():
            more = count - self._drops.get(reason, 0)
            if more > 0 and self._drops:
                self._add(now_ns, "drop", f"{more} packets: {reason}")
        self._drops = dict(drops) or self._drops

    def _update_jobs(self, controller: Controller, now_ns: int) -> None:
        for number, job in controller.jobs.items():
            generation, placement = job.plan.generation, job.plan.placement
            root = () if placement.root == job.spec.server else (placement.root,)
            where = ", ".join(sorted({*placement.switches, *root})) or f"the server {job.spec.server}"
            before = self._generations.get(number)
            if before is None:
                note = f"; {job.note}" if job.note else ""
                self._add(now_ns, "job", f"job {number} runs with {len(job.active)} workers, summed at {where}{note}")
            elif generation != before:
                self._add(now_ns, "move", f"job {number}: generation {generation}, summed at {where} ({job.why})")
            elif job.move is not None and number not in self._moving:
                self._add(now_ns, "move", f"job {number} pauses: {job.why}")
            self._generations[number] = generation
            for host in sorted(job.gone.keys() - self._gone.get(number, frozenset())):
                self._add(now_ns, "host", f"job {number} goes on without {host}: {job.gone[host]}")
            self._gone[number] = frozenset(job.gone)
            for host in sorted(job.silent.keys() - self._silent.get(number, frozenset())):
                self._add(now_ns, "host", f"job {number}: the lease of {host} ran out, the job waits for it")
            self._silent[number] = frozenset(job.silent)
        self._moving = frozenset(number for number, job in controller.jobs.items() if job.move is not None)
        for number in self._generations.keys() - controller.jobs.keys():
            why = controller.jobs.aborted.get(number)
            self._add(now_ns, "job", f"job {number} is aborted: {why}" if why else f"job {number} has ended")
            for noted in (self._generations, self._gone, self._silent):
                noted.pop(number, None)

    def _add_named(self, now_ns: int, kind: str, names: Collection[str], event: str) -> None:
        if names:
            self._add(now_ns, kind, f"{listed(names)} {'are' if len(names) > 1 else 'is'} {event}")

    def _add(self, now_ns: int, kind: str, text: str) -> None:
        self._number += 1
        self._events.append(Event(self._number, now_ns, kind, text))
