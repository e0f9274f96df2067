"""Looks at controllers while they work, and gives what is seen to the page and to the history."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ...topologies.model import Topology
from ..controller import Controller
from ..errors import ControllerError
from ..gossip.policy import GossipPolicy
from .history import HistoryFile
from .picture import LiveView, fabric_picture
from .seen import SeenFabric
from .server import LiveServer

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
"""Time between two looks, on the clock of those who look."""


class Watch:
    """Periodic view for the page, the history, or both. The controller's driver calls `look` as often as it likes."""

    def __init__(
        self,
        server: LiveServer | None = None,
        history: HistoryFile | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds, as they pass for people."""
        self._clock = clock
        self._server = server
        self._history = history
        self._view = LiveView()
        self._due_s = 0.0

    def begin(self, topology: Topology, title: str, now_ns: int = 0) -> None:
        """Switch to another controller, which begins now; its fabric is shown under this title."""
        self._view.begin_anew(now_ns, title)
        self._due_s = 0.0
        fabric = fabric_picture(topology, title)
        if self._server is not None:
            self._server.show_fabric(fabric)
        if self._history is not None:
            with _saying_what_is_not_kept():
                self._history.begin(fabric)

    @property
    def is_due(self) -> bool:
        """True if `look` would do something."""
        return self._clock() >= self._due_s

    def seen(self) -> list[SeenFabric]:
        """Return the stored history of each controller so far; empty without a history."""
        if self._history is None:
            return []
        with _saying_what_is_not_kept():
            return self._history.seen()
        return self._history.seen()  # earlier data

    def update_drops(self, drops: Mapping[str, int], now_ns: int) -> None:
        """Set the packets dropped so far, by reason."""
        self._view.update_drops(drops, now_ns)

    def update_gossip(self, name: str, workers: Sequence[str], policy: GossipPolicy) -> None:
        """Set the gossip policy that workers use.

        Args:
            name: Name of the policy.
            workers: The workers' hosts, in the order of the policy's rows.
            policy: Its probabilities are shown.
        """
        self._view.update_gossip(name, workers, policy)

    def refresh(self, controller: Controller, now_ns: int, doing: str = "") -> None:
        """Publish and store the present state, if it is time. `doing`: present use of the fabric, for people."""
        if not self.is_due:
            return
        self._due_s = self._clock() + LOOK_S
        state = self._view.snapshot(controller, now_ns, doing)
        if self._server is not None:
            self._server.show_state(state)
        if self._history is not None:
            with _saying_what_is_not_kept():
                self._history.add(state, self._view.events.newest())


@contextmanager
def _saying_what_is_not_kept() -> Iterator[None]:
    """A full disk is no reason to end what is looked at."""
    try:
        yield
    except ControllerError as error:
        _log.warning("%s", error)
