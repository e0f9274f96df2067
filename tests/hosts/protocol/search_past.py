"""A job with the number of an earlier one, or under a new controller without any record of the past.

The job before is searched first, in every order of events. Any past content of its switches may be present when the
next one begins, and every message it has ever sent may arrive at any time in the life of the next one. So the
controller may have ended or forgotten it at any moment, and hosts without notice of that may continue for ever.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from weir.controller.p4runtime.loading import Loading
from weir.controller.planning.generations import GenerationHistory
from weir.tests.hosts.protocol.node_model import SwitchModel
from weir.tests.hosts.protocol.search import Search, State
from weir.tests.hosts.protocol.search_nodes import Message, Past, Setup
from weir.wire.aggregation import HEADER, HEADER_BYTES, split_tag

PROGRAM = 1 << 63
"""Number of the switch program in cookies."""
FORGETTING, FORGETFUL = 1, 2
"""Owners: the controller that is no more, and the one that follows it."""


def searches(
    setup: Setup, make_switch: Callable[[int, int], SwitchModel] = SwitchModel, *, resends: bool = True
) -> Iterator[Search]:
    """Searches of a setup; with an earlier job, one for every generation in which the new one may begin."""
    if not setup.after:
        yield Search(setup, make_switch, resends=resends)
        return
    before = Search(replace(setup, after="", tensors=1, seed=setup.seed + 1), make_switch)
    before.run()
    starts = defaultdict(set)
    for generation, last, held in {_follow(before, state, setup.after) for state in before.reached()}:
        starts[generation, last].add(held)
    for (generation, last), slots in sorted(starts.items()):
        messages = tuple(message for message in before.nodes.messages if _generation(message) <= last)
        now = replace(setup, first_generation=generation, moves=0, lost=(), restarts=0)
        yield Search(now, make_switch, resends=resends, past=Past(messages, frozenset(slots)))


def _follow(before: Search, state: State, how: str) -> tuple[int, int, tuple[bytes, ...]]:
    """First generation of the next job, last one in which the earlier job's hosts may send, and contents of slots."""
    control = before.controller.controls[state[-2]]
    last = max(resume.plan.generation for resume in control.resumes.values()) if control.resumes else 1
    switches = []
    for index, number in enumerate(state[:-2]):
        node = before.nodes.load(index, number)
        if isinstance(node, SwitchModel):
            switches.append(node)
        else:
            last = max(last, node.plan.generation)
    history = GenerationHistory()
    if how == "ended":
        history.go(control.generation, ())
    else:
        history.pass_by(_load_anew(switches))
    return history.next(), last, tuple(pickle.dumps(switch.slots) for switch in switches)


def _load_anew(switches: Iterable[SwitchModel]) -> set[int]:
    """A controller claims switches of another one; the generations that it finds there."""
    left = {0}
    for switch in switches:
        loading = Loading(FORGETTING)
        cookie = loading.cookie(PROGRAM)
        loading.claim(FORGETFUL, forgetful=True)
        if not loading.accepts(cookie, PROGRAM):
            left |= {generation for _, generation in switch.jobs}
            switch.forget()
    return left


def _generation(message: Message) -> int:
    header = np.frombuffer(message[2][:HEADER_BYTES], HEADER)
    return split_tag(int(header["tag"][0]))[0]
