"""Limits of a kind of switch beyond the room in its tables."""

from __future__ import annotations

from collections.abc import Iterable

from ...topologies.model import Switch
from ..errors import PlanError
from ..p4runtime.entries import CloneSession, Entry, Item
from ..p4runtime.tables import MEMBERS


def check_items(switch: Switch, items: Iterable[Item]) -> None:
    """Check that the switch's target can hold these entries and do what they are for.

    Raises:
        PlanError: It cannot.
    """
    pipes: dict[int, dict[int, int]] = {}
    for item in items:
        match item:
            case CloneSession():
                _check_session(switch, item)
            case Entry(table=table) if table == MEMBERS:
                match = dict(item.match)
                job, port = match["job"], match["ingress_port"]
                assert isinstance(job, int)
                assert isinstance(port, int)
                pipes.setdefault(job, {}).setdefault(switch.target.pipe_of(port), port)
    for job, port_of in pipes.items():
        if len(port_of) > 1:
            ports = " and ".join(f"{port} (pipe {pipe})" for pipe, port in sorted(port_of.items()))
            raise PlanError(
                f"job {job}: {switch.name}: children come in by ports {ports}, but each pipe of {switch.target.name} "
                "has slots of its own; let another node sum them, or link them to ports of one pipe"
            )


def _check_session(switch: Switch, session: CloneSession) -> None:
    target = switch.target
    if not 1 <= session.session_id <= target.last_clone_session:
        raise PlanError(f"{switch.name}: {session}: a clone session of {target.name} is 1…{target.last_clone_session}")
    if target.clone_copies is not None and len(session.replicas) > target.clone_copies:
        raise PlanError(
            f"{switch.name}: {session}: a clone session of {target.name} has at most {target.clone_copies} copies"
        )
