"""Every order of events of a small job: real cores and settle rule, model switches, a network that may do anything.

The network only grows: whatever was sent may be delivered at any time from then on, any number of times, or never. So
all losses, copies and reorderings are in the search, without a bound, and so are all resends: a worker that sends a
round again adds nothing to such a network.

A state is (a number for each node, the controller's number, the messages sent so far), and the search is breadth-first:
a counterexample is as short as can be. In every reachable state the results that hosts hold are right, are the same
everywhere and are those held before; and when all that is in flight is lost there, resends alone still finish the job.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from controller.moves import Move, Phase
from tests.hosts.network_model import SERVER, Tree, worker_address
from tests.hosts.node_model import SwitchModel
from tests.hosts.search_nodes import FIRE, Nodes, Setup, bits_of, canonical
from wire.aggregation import next_generation
from wire.control import Held, Resume

State = tuple[int, ...]
"""A state number for each node, then the controller's, then the set of messages sent."""
ControlEvent = tuple[str, int]
"""What happens, and the address of the host or switch that it happens to (0: nobody)."""


class Violation(AssertionError):
    """The protocol is broken; says how, and how to get there. `steps` is the length of the way."""

    def __init__(self, what: str, trace: list[str]) -> None:
        self.what = what
        self.steps = len(trace)
        self.trace = "\n".join([*(f"{number:3}. {line}" for number, line in enumerate(trace, 1)), f"  => {what}"])
        super().__init__(f"{what}\n{self.trace}")


@dataclass
class Control:
    """The controller's state: which generation runs, and how far a move (the real controller.moves.Move) has come."""

    generation: int
    ranks: tuple[int, ...]
    """The workers that take part."""
    groups: tuple[tuple[int, ...], ...]
    """Those that have taken part so far, generation by generation: a round may be summed over any of these."""
    server: bool
    moves: int
    """How many more may begin."""
    restarts: int
    """How many more switches may lose their registers."""
    deaths: int = 0
    """How many more hosts may die."""
    dead: frozenset[int] = frozenset()
    """Dead hosts that the controller has not given up yet."""
    forgot: bool = False
    """A switch lost its registers since the last move began: a new generation may be needed."""
    move: Move | None = None
    given_up: int = 0
    unwritten: tuple[int, ...] = ()
    resumes: dict[int, Resume] = field(default_factory=dict)


class Controller:
    """Control states by number, and their steps."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.controls: list[Control] = []
        self._numbers: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, ControlEvent, Held | None], int] = {}
        self._enabled: dict[int, list[ControlEvent]] = {}
        ranks = tuple(range(setup.workers))
        self.start = self._intern(
            Control(1, ranks, (ranks,), setup.with_server, setup.moves, setup.restarts, setup.deaths)
        )

    def _intern(self, control: Control) -> int:
        key = canonical(control)
        if key not in self._numbers:
            self._numbers[key] = len(self.controls)
            self.controls.append(control)
        return self._numbers[key]

    def enabled(self, number: int) -> list[ControlEvent]:
        if number not in self._enabled:
            self._enabled[number] = list(self._events(self.controls[number]))
        return self._enabled[number]

    def _events(self, control: Control) -> Iterator[ControlEvent]:
        move = control.move
        losable = [address for address in self.setup.lost if self._can_lose(control, address)]
        if move is None:
            if control.moves:
                yield "move", 0
                if self.setup.ghosts:
                    yield from (("move", address) for address in losable)
        elif move.phase is Phase.PAUSING:
            missing = move._unanswered() - {control.given_up} - control.dead
            yield from (("pause", address) for address in sorted(missing))
            if not missing:
                yield "give up", 0
        elif move.phase is Phase.SETTLING:
            yield from (("write", address) for address in control.unwritten)
            if not control.unwritten:  # a tree without switches
                yield "settled", 0
        else:
            yield from (("resume", address) for address in sorted(control.resumes.keys() - control.dead))
        if control.restarts:
            yield from (("restart", address) for address in self.setup.switches)
        if control.deaths:
            yield from (("die", address) for address in losable if self._may_die(control, address))

    def _can_lose(self, control: Control, address: int) -> bool:
        if address == SERVER:
            return control.server and address not in control.dead
        return address in self.hosts(control) and len(self.workers(control)) > 1

    def _may_die(self, control: Control, address: int) -> bool:
        """A host that has answered Pause dies behind its Resume only, unless the setup has it otherwise."""
        move = control.move
        if move is None or self.setup.dies_in_moves:
            return True
        return address in move._unanswered() if move.phase is Phase.PAUSING else address not in self._awaited(control)

    def _awaited(self, control: Control) -> list[int]:
        settling = control.move is not None and control.move.phase is Phase.SETTLING
        return self.hosts(control) if settling else list(control.resumes)

    @staticmethod
    def workers(control: Control) -> list[int]:
        """The ranks of the living workers that take part."""
        return [rank for rank in control.ranks if worker_address(rank) not in control.dead]

    @staticmethod
    def hosts(control: Control) -> list[int]:
        """The addresses of the living hosts that take part."""
        everyone = [worker_address(rank) for rank in control.ranks] + [SERVER] * control.server
        return [address for address in everyone if address not in control.dead]

    def step(self, number: int, event: ControlEvent, held: Held | None = None) -> int:
        key = (number, event, held)
        if key not in self._steps:
            self._steps[key] = self._compute(number, event, held)
        return self._steps[key]

    def _compute(self, number: int, event: ControlEvent, held: Held | None) -> int:
        control: Control = pickle.loads(pickle.dumps(self.controls[number]))
        name, address = event
        if name == "restart":
            control.restarts -= 1
            control.forgot = True
            return self._intern(control)
        if name == "die":
            control.deaths -= 1
            control.dead |= {address}
            return self._intern(control)
        if name == "move":
            self._begin(control, address)
            return self._intern(control)
        move = control.move
        assert move is not None
        match name:
            case "pause":
                assert held is not None
                move.held(address, held)
                if move.phase is Phase.SETTLING:
                    self._settle(control, move)
            case "give up":
                move.poll(1)  # patience is at its end
                self._settle(control, move)
            case "write":
                control.unwritten = tuple(other for other in control.unwritten if other != address)
                if not control.unwritten:
                    self._written(control, move)
            case "settled":
                self._written(control, move)
            case "resume":
                del control.resumes[address]
                move.resumed(address)
                if move.phase is Phase.DONE:
                    control.move = None
                    control.given_up = 0
        return self._intern(control)

    def _begin(self, control: Control, given_up: int) -> None:
        control.moves = max(0, control.moves - 1)
        control.forgot = False
        control.given_up = given_up
        control.move = Move(
            job=1,
            generation=control.generation,
            workers=[worker_address(rank) for rank in control.ranks],
            servers=[SERVER] * control.server,
            slots=self.setup.slots,
            now_ns=0,
            patience_ns=1,
        )

    def _settle(self, control: Control, move: Move) -> None:
        control.dead -= move.lost
        control.generation = next_generation(control.generation)
        control.ranks = tuple(rank for rank in control.ranks if worker_address(rank) not in move.lost)
        if control.ranks != control.groups[-1]:
            control.groups += (control.ranks,)
        control.server = control.server and SERVER not in move.lost
        control.unwritten = tuple(self.setup.switches)

    def tree(self, control: Control) -> Tree:
        return self.setup.tree(control.generation, list(control.ranks))

    def _written(self, control: Control, move: Move) -> None:
        tree = self.tree(control)
        plans = {worker_address(rank): self.setup.worker_plan(tree, control.generation, rank) for rank in control.ranks}
        servers = {SERVER: self.setup.server_plan(tree, control.generation)} if control.server else {}
        move.settled({**plans, **servers}, 1)
        control.resumes = {address: what for address, what in move.poll(1) if isinstance(what, Resume)}


class Search:
    """One exhaustive search. `run` raises `Violation` or ends with the figures set."""

    def __init__(
        self,
        setup: Setup,
        make_switch: Callable[[int, int], SwitchModel] = SwitchModel,
        *,
        resends: bool = True,
        most_states: int = 20_000_000,
    ) -> None:
        """Without `resends` it is not asked whether resends finish the job: for a look at wrong sums alone."""
        self.setup = setup
        self.nodes = Nodes(setup, make_switch)
        self.controller = Controller(setup)
        self._resends = resends
        self._most_states = most_states
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
        first = (*self.nodes.start, self.controller.start, self.nodes.start_sent)
        seen = {first}
        order, parents = self._order, self._parents
        order.append(first)
        parents.append(-1)
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
            if at > self._most_states:
                raise RuntimeError(f"{self.setup}: more than {self._most_states} states")
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
        if name in ("move", "settled", "give up", "die"):
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
            case "resume":
                local_event = (name, control.resumes[address])
        after, sent = self.nodes.step(index, state[index], local_event)
        number = self.controller.step(number, event, held)
        return (*state[:index], after, *state[index + 1 : -2], number, network | sent), index

    # --- what must hold ---

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
            theirs = facts[other][state[other]].results
            for number, (one, two) in enumerate(zip(mine.results, theirs, strict=True)):
                if one and two and one != two:
                    names = [self.nodes.name(self.nodes.addresses[index]) for index in (changed, other)]
                    return f"{names[0]} and {names[1]} hold different results of round {number}"
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
        """Whether resends finish the job (and the controller its move) when all that is in flight now is lost.

        `log`: takes what happens, for a state from which they do not.
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
            case "die":
                return f"{who} dies"
        index = self.nodes.index[address]
        verbs = {"pause": "pauses", "write": "gets the new plan", "resume": "resumes", "restart": "loses its registers"}
        return f"{who} {verbs[step]}: {self.nodes.describe_state(index, after[index])}{sends}"
