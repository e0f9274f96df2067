"""Admission at the ports of hosts: entries of `admission.hosts` (docs/design.md §4.2). Pure.

A host may send only from its own address, and only the aggregation messages of its role: a job's workers contribute,
its server (or a spare one) answers, and all of them may request final rounds and send them. The members of a job do not
change as it moves, so no move has to wait for these entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...topologies.model import Topology
from ...wire.aggregation import MessageType
from ..p4runtime.entries import Item, SwitchState, call, entry
from ..p4runtime.tables import HOSTS
from .plan import JobPlan, JobSpec


def _bits(*kinds: MessageType) -> int:
    return sum(1 << kind for kind in kinds)


_OF_ALL: Final = _bits(MessageType.FETCH, MessageType.FETCHED, MessageType.SCALE_FETCHED)
OF_WORKERS: Final = _OF_ALL | _bits(MessageType.CONTRIBUTION, MessageType.SCALE)
OF_SERVERS: Final = _OF_ALL | _bits(MessageType.RESULT, MessageType.SCALE_RESULT)
"""Bit i: messages of type i."""


def messages_by_host(specs: Iterable[JobSpec]) -> Mapping[str, int]:
    """Return messages that the hosts of these jobs may send, a bit for each type of message."""
    messages: dict[str, int] = {}
    for spec in specs:
        workers = frozenset(spec.workers)
        for host in spec.hosts:
            messages[host] = messages.get(host, 0) | (OF_WORKERS if host in workers else OF_SERVERS)
    return messages


def admission_entries(topology: Topology, switch: str, messages: Mapping[str, int]) -> list[Item]:
    """Return one for each port of a host; `messages` by host, as `messages_by_host` has them."""
    return [
        entry(
            HOSTS,
            {"ingress_port": port},
            call("admit", address=int(topology.host(far.node).address), messages=messages.get(far.node, 0)),
        )
        for port, far in sorted(topology.neighbours(switch).items())
        if topology.is_host(far.node)
    ]


def admitting_states(
    topology: Topology, states: Mapping[str, SwitchState], plans: Iterable[JobPlan]
) -> Mapping[str, SwitchState]:
    """Return every switch's state, with the entries of this module added."""
    messages = messages_by_host(plan.spec for plan in plans)
    own = {switch: {item.key: item for item in admission_entries(topology, switch, messages)} for switch in states}
    return {switch: SwitchState({**state.items, **own[switch]}) for switch, state in states.items()}


def edge_switches(topology: Topology, spec: JobSpec) -> frozenset[str]:
    """Return those that a job's hosts hang on."""
    return frozenset(topology.attached_switch(host).name for host in spec.hosts)
