"""Window laws of the workers of a run, made by the law's name or file in the run file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ...controller.planning.plan import lanes_of, round_bytes
from ...hosts.congestion import LAWS, Link, Setting, WindowLaw
from ...topologies import Routes, Topology
from ...wire.aggregation import message_bytes
from ...wire.int_messages import max_hops
from ..config.jobs import Participants
from ..errors import ExperimentError


class WindowLaws:
    """Factories of one window law, for the jobs of one fabric."""

    def __init__(self, name: str, topology: Topology) -> None:
        self._description = LAWS[name]
        self._topology = topology
        self._laws: list[WindowLaw] = []

    @property
    def reads_int(self) -> bool:
        """True if links' INT travels in the jobs' messages."""
        return self._description.reads_int

    def factory(self, window: int, streams: int) -> Callable[[], WindowLaw]:
        """Return the factory of a job's workers.

        Args:
            window: The job's window, in rounds.
            streams: Maximum number of streams on one link when the job starts.
        """
        hops = max_hops(message_bytes(lanes_of(self._topology)))
        return partial(self._make, Setting(window, round_bytes(self._topology), max(1, streams), hops, self._rates_bps))

    @property
    def unread(self) -> int:
        """Number of results whose INT no law could read."""
        return sum(law.unread for law in self._laws)

    def check_routes(self, routes: Routes, jobs: Iterable[Participants]) -> None:
        """Check that messages have room for INT of the shortest path between each root and its farthest worker.

        Raises:
            ExperimentError: A path has more switches, there and back, than a message has room for.
        """
        size = message_bytes(lanes_of(self._topology))
        for job in jobs:
            for root in (root for root in job.roots if root is not None):
                far = max(job.workers, key=lambda worker: routes.hops(worker, root))
                switches = 2 * (routes.hops(far, root) - 1)
                if switches > max_hops(size):
                    raise ExperimentError(
                        f"{switches} switches on the path from {far} to {root} and back each put INT into a message, "
                        f"and a message of {size} bytes has room for {max_hops(size)}; name hosts that are closer, or "
                        "another law",
                        place="congestion.law",
                        value=switches,
                    )

    def _make(self, setting: Setting) -> WindowLaw:
        self._laws.append(self._description.make(setting))
        return self._laws[-1]

    @property
    def _rates_bps(self) -> dict[Link, float]:
        """Rates of the links that switches send on, by device id and port, as INT names them."""
        topology = self._topology
        ends = [end for end in topology.directed_links if topology.is_switch(end.node)]
        return {(topology.switch(end.node).device_id, end.port): topology.link_at(end).rate_bps for end in ends}
