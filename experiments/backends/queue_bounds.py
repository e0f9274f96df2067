"""Queue bounds of a run, compared with the packets that queues held while each bound was in force."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...controller.congestion.bound_log import PromiseChanges, summary
from ...controller.congestion.cross_traffic import listed
from ...controller.congestion.window_controller import WindowController
from ...topologies import Endpoint


@dataclass(frozen=True, slots=True)
class Excess:
    """A queue above its bound."""

    packets: int
    bound: float
    by_ns: int
    """End of the time in which it held so many."""

    @property
    def text(self) -> str:
        """The excess in words: packets, time in ms, bound."""
        return f"held {self.packets} packets by {self.by_ns / 1e6:.3f} ms; its bound was {self.bound:.0f}"


class QueuePromises:
    """Bounds of all queues of one run.

    An epoch lasts from one change of the bounds to the next; queue depths of an epoch are compared with its bounds.
    Larger earlier bounds stay in force while packets that they allowed may still be in the network.
    """

    def __init__(
        self,
        windows: WindowController,
        take_longest: Callable[[], Mapping[Endpoint, int]],
        note: Callable[[str], object] = lambda _: None,
        late_ns: int = 0,
        pop_class_depths: Callable[[], Mapping[tuple[Endpoint, int], int]] = dict,
    ) -> None:
        """Start without bounds.

        Args:
            windows: The controller's windows.
            take_longest: Returns the most packets that each queue held since the last call; may be `late_ns` old.
            note: Receives the reasons why queues have no bound.
            late_ns: Age of `take_longest`'s figures, at most.
            pop_class_depths: Returns the same for queues of classes above bulk, by egress port and priority.
        """
        self._windows = windows
        self._take_longest = take_longest
        self._note = note
        self._late_ns = late_ns
        self._pop_class_depths = pop_class_depths
        self._class_bounds: Mapping[tuple[Endpoint, int], int] = {}
        self.class_promised: dict[tuple[Endpoint, int], int] = {}
        """Loosest bounds of queues of classes above bulk, by egress port and priority."""
        self.class_held: dict[tuple[Endpoint, int], int] = {}
        """The most packets that they have held while they had a bound."""
        self._changes = PromiseChanges(windows)
        self._in_force: Mapping[Endpoint, float] = {}
        self._loosest: dict[Endpoint, float] = {}
        self._broken: dict[Endpoint, Excess] = {}
        self._broken_classes: dict[tuple[Endpoint, int], Excess] = {}
        self._announced = False
        self.said: list[tuple[int, str]] = []
        """All bounds in words, with the times at which they were computed."""

    def note(self, now_ns: int) -> None:
        """Record the bounds; call this after each possible change, before anything is sent under them."""
        changed = self._changes.pop_changes()
        self.said += [(now_ns, promise.text) for promise in changed]
        if self._announced:
            for line in summary([promise for promise in changed if promise.bound_packets is None]):
                self._note(line)
        promised = {p.link: math.inf if p.bound_packets is None else p.bound_packets for p in self._changes.known}
        since_ns, obeyed_ns, drained_ns = now_ns - self._late_ns, self._windows.obeyed_ns, self._windows.drained_ns
        waiting = promised.keys() if since_ns < obeyed_ns else drained_ns.keys()
        for link in waiting & promised.keys():
            if since_ns < max(obeyed_ns, drained_ns.get(link, 0)):
                promised[link] = max(promised[link], self._in_force.get(link, 0))
        class_bounds = self._changes.class_bounds
        if promised != self._in_force or class_bounds != self._class_bounds:
            self._check(now_ns)
            self._in_force, self._class_bounds = promised, class_bounds
            for queue, packets in class_bounds.items():
                self.class_promised[queue] = max(packets, self.class_promised.get(queue, 0))
            self._loosest.update((end, max(bound, self._loosest.get(end, 0))) for end, bound in promised.items())

    def announce(self) -> None:
        """Report all queues without a bound at once; later ones are reported when they lose theirs."""
        self._announced = True
        if refused := summary([promise for promise in self._changes.known if promise.bound_packets is None]):
            self._note("\n".join(refused))

    @property
    def formulas(self) -> list[str]:
        """Bounds in force now with their formulas: the largest ones, and the number of the others."""
        kept = [promise for promise in self._changes.known if promise.bound_packets is not None]
        return summary(kept) + summary(self._changes.known_classes)

    @property
    def promised(self) -> dict[Endpoint, int | None]:
        """Queue bound by egress port, in packets: the loosest of the run; None if there was no bound at some time."""
        return {link: math.floor(bound) if bound < math.inf else None for link, bound in self._loosest.items()}

    def broken(self, now_ns: int) -> list[str]:
        """Return queues that exceeded the bound of the time, over all enqueues until now.

        Each has one line, of its largest excess; the largest of all comes first.
        """
        self._check(now_ns)
        worst_first = sorted(self._broken.items(), key=lambda item: (item[1].bound - item[1].packets, item[0]))
        lines = [f"{link} {excess.text}{self._declared(link)}" for link, excess in worst_first]
        classes = sorted(self._broken_classes.items())
        return lines + [f"{link}, class {priority}, {excess.text}" for (link, priority), excess in classes]

    @property
    def refusals(self) -> list[str]:
        """Reasons that some queues have no bound with the present jobs."""
        return [promise.text for promise in self._changes.known if promise.bound_packets is None]

    def _declared(self, link: Endpoint) -> str:
        pairs = self._windows.declared.get(link, ())
        return f"; declared across it: {listed(pairs)}" if pairs else ""

    def _check(self, now_ns: int) -> None:
        for link, longest in self._take_longest().items():
            bound = self._in_force.get(link, math.inf)
            before = self._broken.get(link)
            if longest > bound and (before is None or longest - bound > before.packets - before.bound):
                self._broken[link] = Excess(longest, bound, now_ns)
        for queue, longest in self._pop_class_depths().items():
            bound = self._class_bounds.get(queue, math.inf)
            if bound < math.inf:
                self.class_held[queue] = max(longest, self.class_held.get(queue, 0))
            known = self._broken_classes.get(queue)
            if longest > bound and (known is None or longest > known.packets):
                self._broken_classes[queue] = Excess(longest, bound, now_ns)
