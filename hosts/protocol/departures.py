"""Text about workers that have left a job before others were done."""

from __future__ import annotations

from collections.abc import Iterable

from ...wire.control import Departure


def describe_departures(departures: Iterable[Departure], calls: int) -> str:
    """Name the workers and say when they left, for a worker that has made this many calls itself.

    Only workers that left first are named: their departure ended the sums.
    """
    workers = sorted(departures, key=lambda departure: (departure.calls, departure.rank))
    after = workers[0].calls
    names = [str(worker) for worker in workers if worker.calls == after]
    who = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    if calls <= after:
        return f"{who} left the job after {after} calls, and others went on"
    return f"{who} left the job after {after} of your {calls} calls"
