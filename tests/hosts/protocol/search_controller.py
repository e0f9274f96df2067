"""The controller of a searched job, as numbered states: the real Move, and the possible events at each moment."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Iterator, Set
from dataclasses import dataclass, field

from weir.controller.jobs.migration import MigrationPhase, Move
from weir.tests.hosts.protocol.network_model import SERVER, Tree, worker_address
from weir.tests.hosts.protocol.search_nodes import FAR_NS, Setup, canonical
from weir.wire.aggregation import next_generation
from weir.wire.control import Held, Resume

ControlEvent = tuple[str, int]
"""Event, and the address of its host or switch (0: none)."""


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
    """Number of moves that may still begin."""
    restarts: int
    """Number of further switches that may lose their registers."""
    deaths: int = 0
    """Number of further hosts that may die."""
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
            Control(
                setup.first_generation, ranks, (ranks,), setup.with_server, setup.moves, setup.restarts, setup.deaths
            )
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
        elif move.phase is MigrationPhase.PAUSING:
            missing: Set[int] = move.awaited - {control.given_up} - control.dead
            yield from (("resume", address) for address in sorted(control.resumes.keys() - control.dead))
            yield from (("pause", address) for address in sorted(missing - control.resumes.keys()))
            if not missing:
                yield "give up", 0
        elif move.phase is MigrationPhase.SETTLING:
            yield from (("write", address) for address in control.unwritten)
            if not control.unwritten:  # a tree without switches
                yield "settled", 0
        else:
            missing = control.resumes.keys() - control.dead
            yield from (("resume", address) for address in sorted(missing))
            if not missing:
                yield "give up", 0
        if move is not None and self.setup.dies_in_moves:
            yield from (("lose", address) for address in sorted(control.dead))
            yield from (("unheard", address) for address in sorted(control.resumes.keys() - control.dead))
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
        return (
            address in move.awaited if move.phase is MigrationPhase.PAUSING else address not in self._awaited(control)
        )

    def _awaited(self, control: Control) -> list[int]:
        settling = control.move is not None and control.move.phase is MigrationPhase.SETTLING
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
        if name == "unheard":  # the host resumes, and its confirmation is lost
            return number
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
                if move.phase is MigrationPhase.SETTLING:
                    self._settle(control, move)
            case "give up":
                move.poll(FAR_NS)  # patience is at its end
                self._lost(control, move)
            case "lose":
                move.mark_lost([address], 1)
                self._lost(control, move)
            case "write":
                control.unwritten = tuple(other for other in control.unwritten if other != address)
                if not control.unwritten:
                    self._written(control, move)
            case "settled":
                self._written(control, move)
            case "resume":
                del control.resumes[address]
                move.resumed(address, control.generation)
                if move.phase is MigrationPhase.DONE:
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

    def _lost(self, control: Control, move: Move) -> None:
        """The move goes on without some host: to its settling, or back to pausing who has resumed."""
        control.dead -= move.lost
        control.ranks = tuple(rank for rank in control.ranks if worker_address(rank) not in move.lost)
        control.server = control.server and SERVER not in move.lost
        control.resumes = {address: resume for address, resume in control.resumes.items() if address not in move.lost}
        if move.phase is MigrationPhase.SETTLING:
            self._settle(control, move)

    def _settle(self, control: Control, move: Move) -> None:
        control.generation = next_generation(move.generation)
        if control.ranks != control.groups[-1]:
            control.groups += (control.ranks,)
        control.unwritten = tuple(self.setup.switches)

    def tree(self, control: Control) -> Tree:
        return self.setup.tree(control.generation, list(control.ranks))

    def _written(self, control: Control, move: Move) -> None:
        tree = self.tree(control)
        plans = {worker_address(rank): self.setup.worker_plan(tree, control.generation, rank) for rank in control.ranks}
        servers = {SERVER: self.setup.server_plan(tree, control.generation)} if control.server else {}
        move.settled({**plans, **servers}, 1)
        control.resumes = {address: what for address, what in move.poll(1) if isinstance(what, Resume)}
