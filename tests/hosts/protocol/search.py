"""Every order of events of a small job: real cores and settle rule, model switches, an arbitrary network.

The network only grows: a sent message may be delivered at any later time, any number of times, or never. So all losses,
copies and reorderings are in the search, without a bound, and so are all resends: a worker that sends a round again
adds nothing to such a network.

A state is (a number for each node, the controller's number, the messages sent so far), and the search is breadth-first:
a counterexample is as short as can be. In every reachable state the results at hosts are right, the same everywhere and
equal to earlier ones; and if all messages in flight are lost there, resends alone still finish the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise

from weir.tests.hosts.protocol.node_model import SwitchModel
from weir.tests.hosts.protocol.search_controller import Control, ControlEvent, Controller
from weir.tests.hosts.protocol.search_nodes import FIRE, NO_PAST, Nodes, Past, Setup, bits_of

State = tuple[int, ...]
"""A state number for each node, then the controller's, then the set of messages sent."""


class Violation(AssertionError):
    """The protocol is broken; says how, and how to get there. `steps` is the length of the way."""

    def __init__(self, what: str, trace: list[str]) -> None:
        self.what = what
        self.steps = len(trace)
        self.trace = "\n".join([*(f"{number:3}. {line}" for number, line in enumerate(trace, 1)), f"  => {what}"])
        super().__init__(f"{what}\n{self.trace}")


class Search:
    """One exhaustive search. `run` raises `Violation` or ends with the figures set."""

    def __init__(
        self,
        setup: Setup,
        make_switch: Callable[[int, int], SwitchModel] = SwitchModel,
        *,
        resends: bool = True,
        max_states: int = 20_000_000,
        past: Past = NO_PAST,
    ) -> None:
        """Prepare a search. Without `resends` it skips the check that resends finish the job, and finds wrong sums
        only.
        """
        self.setup = setup
        self.nodes = Nodes(setup, make_switch, past)
        self.controller = Controller(setup)
        self._resends = resends
        self._max_states = max_states
        self.states = 0
        self.finished = 0
        self.seconds = 0.0
        self._count = len(self.nodes.addresses)
        self._hosts = setup.workers + setup.with_server
        self._no_step: list[dict[int, int]] = [{} for _ in range(self._count)]
        self._can_finish: set[State] = set()
        self._actives: dict[int, list[int]] = {}
        self._parents: list[int] = []
        self._order: list[State] = []

    def run(self) -> None:
        started = time.perf_counter()
        order, parents = self._order, self._parents
        order += [(*start, self.controller.start, self.nodes.start_sent) for start in self.nodes.starts]
        parents += [-1] * len(order)
        seen = set(order)
        at = 0
        while at < len(order):
            state = order[at]
            if self._resends and not self._finishes(state):
                trace = [*self._trace(at), "all that is in flight is lost"]
                self._finishes(state, trace)
                raise Violation("stuck: resends alone do not finish the job from here", trace)
            self.finished += self._is_finished(state[:-2], state[-2])
            for _, following, changed in self._next(state):
                if following in seen:
                    continue
                seen.add(following)
                order.append(following)
                parents.append(at)
                if changed >= 0:
                    wrong = self._what_is_wrong(following, changed)
                    if wrong:
                        raise Violation(wrong, self._trace(len(order) - 1))
            at += 1
            if at > self._max_states:
                raise RuntimeError(f"{self.setup}: more than {self._max_states} states")
        self.states = len(order)
        self.seconds = time.perf_counter() - started

    def __str__(self) -> str:
        return (
            f"{self.setup}: {self.states:,} states ({self.finished:,} finished), {self.nodes.core_calls:,} steps of "
            f"nodes, {self.seconds:.1f} s"
        )

    def reached(self) -> Sequence[State]:
        """All states that were found, the first ones first."""
        return self._order

    # --- successors ---

    def _active(self, state: State) -> list[int]:
        """The nodes that do anything: all but the dead."""
        number = state[-2]
        if number not in self._actives:
            self._actives[number] = self._find_active(self.controller.controls[number])
        return self._actives[number]

    def _find_active(self, control: Control) -> list[int]:
        if self.setup.ghosts:
            return list(range(self._count))
        alive = {*self.controller.hosts(control), *self.setup.switches}
        return [index for index, address in enumerate(self.nodes.addresses) if address in alive]

    def _next(self, state: State) -> Iterator[tuple[tuple[int, object], State, int]]:
        """((node or −1, event), the state after it, the node that changed) of all events that change anything."""
        network = state[-1]
        nodes = self.nodes
        for index in self._active(state):
            local = state[index]
            no_step = self._no_step[index]
            for event in (*bits_of(network & nodes.destined[index] & ~no_step.get(local, 0)), FIRE):
                if event == FIRE and index >= self.setup.workers:
                    continue
                after, sent = nodes.step(index, local, event)
                if after == local and not sent & ~network:
                    if not sent and event != FIRE:
                        no_step[local] = no_step.get(local, 0) | event
                    continue
                following = (*state[:index], after, *state[index + 1 : -1], network | sent)
                yield (index, event), following, index
        for control_event in self.controller.enabled(state[-2]):
            yield (-1, control_event), *self._controlled(state, control_event)

    def _controlled(self, state: State, event: ControlEvent) -> tuple[State, int]:
        """The state after a step of the controller (or a switch's restart), and the node that changed or −1."""
        name, address = event
        number, network = state[-2], state[-1]
        if name in ("move", "settled", "give up", "lose", "die"):
            return (*state[:-2], self.controller.step(number, event), network), -1
        index = self.nodes.index[address]
        control = self.controller.controls[number]
        held = None
        local_event: Hashable = (name,)
        match name:
            case "pause":
                held = self.nodes.held(index, state[index])
            case "write":
                local_event = (name, control.generation, control.ranks)
            case "resume" | "unheard":
                local_event = ("resume", control.resumes[address])
        after, sent = self.nodes.step(index, state[index], local_event)
        number = self.controller.step(number, event, held)
        return (*state[:index], after, *state[index + 1 : -2], number, network | sent), index

    # --- invariants ---

    def _what_is_wrong(self, state: State, changed: int) -> str:
        if changed >= self._hosts:
            return ""
        facts = self.nodes.facts
        mine = facts[changed][state[changed]]
        if mine.wrong:
            return f"{self.nodes.name(self.nodes.addresses[changed])}: {mine.wrong}"
        control = self.controller.controls[state[-2]]
        hosts = [self.nodes.index[address] for address in self.controller.hosts(control)]
        if changed not in hosts:
            return ""
        for other in hosts:
            theirs = facts[other][state[other]]
            names = [self.nodes.name(self.nodes.addresses[index]) for index in (changed, other)]
            for number, (one, two) in enumerate(zip(mine.results, theirs.results, strict=False)):
                if one and two and one != two:
                    return f"{names[0]} and {names[1]} hold different results of round {number}"
            if any(one and two and one != two for one, two in zip(mine.weights, theirs.weights, strict=False)):
                return f"{names[0]} and {names[1]} finish with sums over different workers"
        for number, result in enumerate(mine.results):
            if result and self.nodes.who(result) not in control.groups:
                who = self.nodes.who(result)
                return f"a wrong sum: round {number} is over the workers {who}, not {control.groups[-1]}"
        return ""

    def _is_finished(self, nodes: tuple[int, ...], control_number: int) -> bool:
        control = self.controller.controls[control_number]
        workers = self.controller.workers(control)
        return control.move is None and all(self.nodes.facts[rank][nodes[rank]].idle for rank in workers)

    def _finishes(self, state: State, log: list[str] | None = None) -> bool:
        """Return whether resends finish the job (and the controller its move) after a loss of all messages in flight.

        `log`: receives the events, for a state from which they do not.
        """
        way: list[State] = []
        nodes = (*state[:-1], 0)
        while True:
            if nodes in self._can_finish or self._is_finished(nodes[:-2], nodes[-2]):
                self._can_finish.update(way, [nodes])
                return True
            way.append(nodes)
            before = nodes
            for rank in self.controller.workers(self.controller.controls[nodes[-2]]):
                after, sent = self.nodes.step(rank, nodes[rank], FIRE)
                later = (*nodes[:rank], after, *nodes[rank + 1 : -1], sent)
                if log is not None and sent:
                    log.append(self._describe(nodes, (rank, FIRE), later))
                nodes = self._settled_down(later, log)
            control = self.controller.controls[nodes[-2]]
            if control.move is not None:
                steps = [event for event in self.controller.enabled(nodes[-2]) if event[0] not in ("restart", "die")]
                if not steps:
                    return False
                event = steps[0]
                later, _ = self._controlled(nodes, event)
                if log is not None:
                    log.append(self._describe(nodes, (-1, event), later))
                nodes = self._settled_down(later, log)
            elif nodes == before:
                if not control.forgot and not control.dead:
                    return False
                nodes = (*nodes[:-2], self.controller.step(nodes[-2], ("move", 0)), 0)

    def _settled_down(self, state: State, log: list[str] | None) -> State:
        """The state after what is in flight and all that it causes are delivered once, in the order of sending."""
        active = set(self._active(state))
        queue = bits_of(state[-1])
        nodes = (*state[:-1], 0)
        for message in queue:
            index = self.nodes.index[self.nodes.messages[message.bit_length() - 1][1]]
            if index in active:
                after, more = self.nodes.step(index, nodes[index], message)
                later = (*nodes[:index], after, *nodes[index + 1 : -1], more)
                if log is not None:
                    log.append(self._describe(nodes, (index, message), later))
                nodes = (*later[:-1], 0)
                queue += bits_of(more)
        return nodes

    # --- the way to a state ---

    def _trace(self, at: int) -> list[str]:
        way = [at]
        while self._parents[way[-1]] >= 0:
            way.append(self._parents[way[-1]])
        way.reverse()
        lines = []
        for before, after in pairwise(way):
            target = self._order[after]
            event = next(event for event, following, _ in self._next(self._order[before]) if following == target)
            lines.append(self._describe(self._order[before], event, target))
        return lines

    def _describe(self, state: State, event: tuple[int, object], after: State) -> str:
        index, what = event
        sent = ", ".join(self.nodes.describe_message(bit) for bit in bits_of(after[-1] & ~state[-1]))
        sends = f"; sends {sent}" if sent else ""
        if index >= 0:
            assert isinstance(what, int)
            name = self.nodes.name(self.nodes.addresses[index])
            does = "resends" if what == FIRE else f"takes {self.nodes.describe_message(what, 'from')}"
            return f"{name} {does}: {self.nodes.describe_state(index, after[index])}{sends}"
        assert isinstance(what, tuple)
        step, address = what
        who = self.nodes.name(address) if address else ""
        match step:
            case "move":
                return f"the controller begins a move{' and will give up ' if who else ''}{who}"
            case "settled":
                return "the new plan stands"
            case "give up":
                return "the controller gives up who has not answered"
            case "lose":
                return f"the controller knows that {who} is lost"
            case "die":
                return f"{who} dies"
        index = self.nodes.index[address]
        verbs = {
            "pause": "pauses",
            "write": "gets the new plan",
            "resume": "resumes",
            "unheard": "resumes, which the controller does not hear,",
            "restart": "loses its registers",
        }
        return f"{who} {verbs[step]}: {self.nodes.describe_state(index, after[index])}{sends}"
