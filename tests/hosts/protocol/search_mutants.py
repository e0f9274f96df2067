"""Mutants of the protocol, one broken rule each, which an exhaustive search must find (docs/verification.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from weir.controller.jobs import migration
from weir.controller.jobs.migration import MigrationPhase, Move, Settlement, settle
from weir.controller.p4runtime.loading import Loading
from weir.controller.planning.generations import GenerationHistory
from weir.hosts import ParameterServerCore, WorkerCore
from weir.hosts.array_types import IntArray
from weir.hosts.protocol import server, worker
from weir.hosts.protocol.messages import LaneScratch, Messages, open_messages
from weir.hosts.protocol.rounds import NO_ROUND, RoundStore
from weir.hosts.protocol.stream import TensorStream
from weir.tests.hosts.protocol.network_model import worker_address
from weir.tests.hosts.protocol.node_model import JobEntry, Slot, SwitchModel
from weir.tests.hosts.protocol.search_nodes import Setup
from weir.wire.aggregation import FIRST_GENERATION, MessageType, split_tag
from weir.wire.control import FinalRound, Held, Resume


class WithoutTag(SwitchModel):
    """A switch that does not compare the round: any message counts for the slot's round."""

    @staticmethod
    def _age(slot: Slot, job: int, generation: int, chunk: int) -> int:
        return int(slot.job != job)


class WithoutLate(SwitchModel):
    """Takes an older round for a newer one."""

    @staticmethod
    def _age(slot: Slot, job: int, generation: int, chunk: int) -> int:
        return abs(SwitchModel._age(slot, job, generation, chunk))


class WithoutGeneration(SwitchModel):
    """Does not compare the generation, neither in its tables nor in its slots."""

    def _entry(self, job: int, generation: int) -> JobEntry | None:
        return next((entry for (number, _), entry in self.jobs.items() if number == job), None)

    @staticmethod
    def _age(slot: Slot, job: int, generation: int, chunk: int) -> int:
        return SwitchModel._age(slot, job, slot.generation, chunk)


class WithoutBits(SwitchModel):
    """Adds what a child has contributed already, as long as the round is not complete."""

    @staticmethod
    def _seen(held: int, bit: int) -> bool:
        return False


class WithoutZeros(SwitchModel):
    """A round that begins with PRESENT begins with the lanes that its slot had."""

    @staticmethod
    def _zeros() -> None:
        return None


class WithoutGrowth(SwitchModel):
    """PRESENT goes up without lanes though another child has added some."""

    @staticmethod
    def _goes_up_as(slot: Slot, kind: MessageType) -> MessageType:
        return kind


class WithoutWishes(SwitchModel):
    """Forgets who wants the lanes of a round: nobody gets any with the multicast."""

    @staticmethod
    def _wants(header: NDArray[np.void], bit: int) -> int:
        return 0

    @classmethod
    def _asks_for_lanes(cls, header: NDArray[np.void]) -> bool:
        return SwitchModel._asks_for_lanes(header)


class WithoutLanesAgain(SwitchModel):
    """Answers a repeated contribution without lanes."""

    @classmethod
    def _asks_for_lanes(cls, header: NDArray[np.void]) -> bool:
        return False


def settle_without_again(workers: Mapping[int, Held], servers: Mapping[int, Held], slots: int) -> Settlement:
    """Rounds that have ended without a result count as final."""
    return replace(settle(workers, servers, slots), again=())


def settle_by_hosts_without_results(workers: Mapping[int, Held], servers: Mapping[int, Held], slots: int) -> Settlement:
    """A host where a round has ended counts as a holder of its result."""
    return settle({host: replace(held, done=frozenset()) for host, held in workers.items()}, servers, slots)


def let_go_at_once(stream: TensorStream, store: RoundStore) -> int:
    """A tensor whose rounds have all ended here is needed no more."""
    return stream.base


def recompute(workers: Mapping[int, Held], servers: Mapping[int, Held], slots: int) -> Settlement:
    """A round is final only once all workers hold it; `final` names the others, for `ForgetfulWorker`."""
    settlement = settle(workers, servers, slots)
    below = min(held.first_incomplete for held in workers.values())
    again = tuple(FinalRound(r, 0) for r in range(below, below + slots) if settlement.is_final(r))
    return Settlement(below, below, frozenset(), dict.fromkeys(workers, again))


def resume_and_recompute(core: WorkerCore, resume: Resume) -> None:
    """Give up the results that not all hold, and contribute to their rounds again."""
    for final in resume.final:
        place = final.round & core._store.mask
        if core._store.round[place] == final.round and core._stream.tensors:
            core._store.round[place] = NO_ROUND
            core._stream.base = min(core._stream.base, final.round)
            core._stream.tensors[0].count_rounds(1)
    _resume(core, Resume(resume.plan))


_resume = WorkerCore.resume


def settle_without_servers(workers: Mapping[int, Held], servers: Mapping[int, Held], slots: int) -> Settlement:
    """Results that only the parameter server holds do not become final."""
    return settle(workers, {}, slots)


def settle_without_fetches(workers: Mapping[int, Held], servers: Mapping[int, Held], slots: int) -> Settlement:
    """A host without a final round gets no address to fetch it from."""
    settlement = settle(workers, servers, slots)
    return replace(settlement, fetches=dict.fromkeys(workers, ()))


def pause_without_stopping(core: WorkerCore) -> Held:
    """Say what is held, and go on taking results of the old generation."""
    held = _pause(core)
    core.paused = False
    return held


def resume_unpaused(core: WorkerCore, resume: Resume) -> None:
    core.paused |= resume.plan != core.plan
    _resume(core, resume)


_pause = WorkerCore.pause


def lose_and_settle_by_old_answers(move: Move, addresses: Iterable[int], now_ns: int) -> None:
    """After the loss of a host during Resumes, results that others completed since their answer to Pause are
    ignored.
    """
    answers = move._held
    _lose(move, addresses, now_ns)
    if move.phase is MigrationPhase.PAUSING and not move._held:
        for address in answers.keys() - move.lost:
            move.held(address, replace(answers[address], generation=move.generation))


_lose = Move.mark_lost


def drop_present(core: ParameterServerCore, messages: Messages) -> Messages:
    """PRESENT is of no round with lanes."""
    return messages


def open_any_generation(
    datagrams: object, job: int, generation: int, counters: object, lanes: int, scratch: LaneScratch
) -> Messages | None:
    """Take whatever generation the messages are of."""
    payload = datagrams.payload  # type: ignore[attr-defined]
    theirs, _ = split_tag(int.from_bytes(payload[0, 4:8].tobytes(), "big"))
    return open_messages(datagrams, job, theirs, counters, lanes, scratch)  # type: ignore[arg-type]


def send_beyond_the_span(stream: TensorStream, room: int, span: int, store: RoundStore) -> IntArray:
    """One round more may be in the slots than the window allows."""
    return _sendable(stream, room, span + 1, store)


_sendable = TensorStream.sendable


def keep_exponents(stream: TensorStream, store: RoundStore, fetched: IntArray, lead: int) -> IntArray:
    """Chunks whose exponents were agreed with a lost worker are summed by them."""
    return fetched


def begin_anew(history: GenerationHistory) -> int:
    """A reused job number begins with the first generation."""
    return FIRST_GENERATION


def take_any_registers(loading: Loading, cookie: int, program: int) -> bool:
    """Registers of another controller's jobs count as the controller's own."""
    return True


def pass_by_nothing(history: GenerationHistory, generations: Collection[int]) -> None:
    """The generations of forgotten jobs are not avoided."""


def accept_plan(*plans: object) -> None:
    """Any window will do."""


@contextmanager
def broken(changes: tuple[tuple[str, object], ...]) -> Iterator[None]:
    """Patch names of modules and classes here, with `__` for the dot."""
    owners = {
        owner.__name__: owner
        for owner in (WorkerCore, ParameterServerCore, Move, TensorStream, GenerationHistory, Loading)
    }
    patches: list[AbstractContextManager[object]] = []
    for name, new in changes:
        owner, attribute = name.split("__")
        if owner in owners:
            patches.append(patch.object(owners[owner], attribute, new))
        else:
            module: ModuleType = {"worker": worker, "server": server, "moves": migration}[owner]
            patches.append(patch.object(module, attribute, new))
    for change in patches:
        change.__enter__()
    try:
        yield
    finally:
        for change in reversed(patches):
            change.__exit__(None, None, None)


@dataclass(frozen=True)
class Mutant:
    """One broken rule, the smallest job that shows it, and a word of the expected finding."""

    name: str
    setup: Setup
    finds: str
    make_switch: Callable[[int, int], SwitchModel] = SwitchModel
    changes: tuple[tuple[str, object], ...] = ()

    @property
    def resends(self) -> bool:
        """True if the search looks for stuck states; else it continues beyond them, to a wrong sum."""
        return self.finds == "stuck"


LAST = (worker_address(2),)
FIRST = (worker_address(0),)

MUTANTS = (
    Mutant(
        "a window of all slots, at a switch",
        Setup("root", window=2, chunks=2),
        "stuck",
        changes=(("worker__check_worker_plan", accept_plan),),
    ),
    Mutant(
        "a window of all slots, at a server",
        Setup("server", window=2, chunks=2),
        "stuck",
        changes=(("worker__check_worker_plan", accept_plan),),
    ),
    Mutant(
        "a window of three quarters of the slots",
        Setup("root", slots=4, window=3, chunks=3),
        "stuck",
        changes=(("worker__check_worker_plan", accept_plan),),
    ),
    Mutant(
        "one round more than the window, where a tensor follows another",
        Setup("root", slots=4, window=2, chunks=2, tensors=2),
        "stuck",
        changes=(("TensorStream__sendable", send_beyond_the_span),),
    ),
    Mutant("no tag test in the switch", Setup("root", chunks=2), "wrong sum", WithoutTag),
    Mutant("no late test in the switch", Setup("root", chunks=2), "stuck", WithoutLate),
    Mutant("no bitmap test in the switch", Setup("root"), "wrong sum", WithoutBits),
    Mutant(
        "PRESENT begins a round with the slot's old lanes", Setup("root", chunks=3, adds=(0,)), "stuck", WithoutZeros
    ),
    Mutant("PRESENT goes up without the others' lanes", Setup("inner", adds=(0,)), "stuck", WithoutGrowth),
    Mutant(
        "a server takes PRESENT for a round without lanes",
        Setup("server", adds=(0,)),
        "stuck",
        changes=(("ParameterServerCore___with_zeros", drop_present),),
    ),
    Mutant("a switch forgets who wants lanes", Setup("tree-root", workers=3, wants=(0,)), "stuck", WithoutWishes),
    Mutant("a repeated contribution is answered without lanes", Setup("root", wants=(0,)), "stuck", WithoutLanesAgain),
    Mutant(
        "a round that has ended without a result is final",
        Setup("root", moves=1, wants=(0,)),
        "stuck",
        changes=(("moves__settle", settle_without_again),),
    ),
    Mutant(
        "a round is fetched from where it has ended without a result",
        Setup("root", moves=1, wants=(0,)),
        "stuck",
        changes=(("moves__settle", settle_by_hosts_without_results),),
    ),
    Mutant(
        "tensors that have ended at a worker are let go at once",
        Setup("root", moves=1, wants=(0,)),
        "stuck",
        changes=(("TensorStream__surely_final", let_go_at_once),),
    ),
    Mutant(
        "no generation test in the switch",
        Setup("root", workers=3, moves=1, lost=FIRST),
        "wrong sum",
        WithoutGeneration,
    ),
    Mutant(
        "no generation test in the hosts",
        Setup("server", workers=3, moves=1, lost=LAST),
        "summed again",
        changes=(
            ("worker__open_messages", open_any_generation),
            ("server__open_messages", open_any_generation),
        ),
    ),
    Mutant(
        "a completed round is summed again after a death",
        Setup("root", workers=3, chunks=2, moves=1, lost=LAST),
        "summed again",
        changes=(("moves__settle", recompute), ("WorkerCore__resume", resume_and_recompute)),
    ),
    Mutant(
        "what only the server holds is summed again after a death",
        Setup("server", workers=3, moves=1, lost=LAST),
        "summed again",
        changes=(("moves__settle", settle_without_servers),),
    ),
    Mutant(
        "final rounds are not fetched",
        Setup("root", moves=1),
        "stuck",
        changes=(("moves__settle", settle_without_fetches),),
    ),
    Mutant(
        "what is completed while others resume does not count when one is lost then",
        Setup("root", workers=3, moves=1, lost=LAST, dies_in_moves=True),
        "stuck",
        changes=(("Move__mark_lost", lose_and_settle_by_old_answers), ("WorkerCore__resume", resume_unpaused)),
    ),
    Mutant(
        "the exponents of lost workers are kept",
        Setup("root", workers=3, chunks=2, moves=1, lost=(*FIRST, *LAST)),
        "wrong sum",
        changes=(("TensorStream__agree_again", keep_exponents),),
    ),
    Mutant(
        "a paused worker still takes results",
        Setup("root", workers=3, moves=1, lost=LAST),
        "stuck",
        changes=(("WorkerCore__pause", pause_without_stopping), ("WorkerCore__resume", resume_unpaused)),
    ),
    Mutant(
        "a number that is used again begins anew",
        Setup("root", after="ended"),
        "wrong sum",
        changes=(("GenerationHistory__next", begin_anew),),
    ),
    Mutant(
        "a number that is used again begins anew, at a server",
        Setup("server", after="ended"),
        "wrong sum",
        changes=(("GenerationHistory__next", begin_anew),),
    ),
    Mutant(
        "a controller that forgot takes switches as they are",
        Setup("inner", after="forgotten"),
        "wrong sum",
        changes=(("Loading__accepts", take_any_registers),),
    ),
    Mutant(
        "a controller that forgot takes forgotten generations",
        Setup("root", after="forgotten"),
        "wrong sum",
        changes=(("GenerationHistory__pass_by", pass_by_nothing),),
    ),
)
