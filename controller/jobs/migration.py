"""Moving a running job to its next generation: pause, settle, resume (docs/design.md §3.5), as a pure state machine.

::

    PAUSING ──all Held, or the rest lost──▶ SETTLING ──settled(plans)──▶ RESUMING ──all resumed──▶ DONE
      ▲ Pause to who has not answered        │ the caller writes           │ Resume to who has not confirmed
      │                                      │ the switches                │
      └──────────── one is lost: the generation after the one that is being resumed ────────────┘

Hosts are named by their IPv4 address as an integer. The machine reads no clock: `poll(now_ns)` says what to send,
again every `retry_ns` until it is answered. A round is final once any host that takes part holds its result; final
rounds are fetched, never summed again, and all others are summed again by every worker. So nothing is lost and the
workers never differ.

A DONE completes a round at a host that does not get its result (`Held.done`). If another worker lacks that round and no
host holds the result, the round becomes incomplete again at all workers (`Resume.again`).

A host may be lost at any time (`mark_lost`, or by `patience_ns`). Who has resumed already may have completed rounds
with it, so nobody can go back: everyone is paused again, in the generation that was being resumed, and what they hold
by then counts. Whoever had not taken its Resume yet gets it before the Pause, since a host leaves only the generation
that it is in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from ...wire.aggregation import next_generation
from ...wire.control import FinalRound, Held, Pause, Resume, ServerPlan, WorkerPlan
from ..errors import ControllerError


class MoveError(ControllerError):
    """A move that cannot go on without losing a round, or a step out of order."""


class NoSurvivor(MoveError):
    """No worker of the job is left."""


class MigrationPhase(Enum):
    """Phase of a job's move to another tree (docs/design.md §5.2)."""

    PAUSING = "pausing"
    SETTLING = "settling"
    RESUMING = "resuming"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Settlement:
    """Final rounds, and who fetches which of them from whom."""

    least: int
    """All rounds below this one are complete at all workers, and none of them is summed again."""
    final_below: int
    """All rounds below this one, except those in `again`, are final."""
    final_beyond: frozenset[int]
    """Final rounds at or beyond `final_below`; some may be in `again`, and those are not final."""
    fetches: Mapping[int, tuple[FinalRound, ...]]
    """Final rounds that each worker lacks, in order, each with a holder."""
    newest: tuple[FinalRound, ...] = ()
    """The newest final round, for a server to know where the job is; empty if no round is final. Nobody fetches it from
    this holder, which may have completed it by a DONE.
    """
    again: tuple[int, ...] = ()
    """Rounds, ascending, that are complete at some hosts, each by a DONE, and that a worker lacks."""

    def is_final(self, round_: int) -> bool:
        """True if a round is not summed again: a worker that lacks it fetches it."""
        return (round_ < self.final_below or round_ in self.final_beyond) and round_ not in self.again


def settle(workers: Mapping[int, Held], servers: Mapping[int, Held], slots: int) -> Settlement:
    """Compute the final rounds, a holder for each that a worker lacks, and the rounds to be summed again.

    There is at least one worker. A host keeps the results of its last `slots` rounds, except of those that a DONE has
    completed. Holders of the same round are used in turn.

    A round is summed again if a worker lacks it and every host that has completed it did so by a DONE. All rounds that
    any host has completed are then less than `slots` / 2 ahead of it, by the window, so workers need to keep their
    numbers no longer. A round that no worker lacks is final, even if no host holds the result: nobody wants it.

    Raises:
        MoveError: No host keeps a final round that a worker needs: a worker fell behind by more than the window allows,
            so some host violated the protocol.
    """
    everyone = {**servers, **workers}
    below = max(held.first_incomplete for held in everyone.values())
    beyond = frozenset(r for held in everyone.values() for r in held.complete if r >= below)
    first = min(held.first_incomplete for held in workers.values())
    if below - first > slots:  # checked before sets are built from untrusted numbers
        raise _nobody_keeps(first, slots)
    lacking = {
        address: {*range(held.first_incomplete, below), *beyond} - held.complete for address, held in workers.items()
    }
    kept_from = {address: _oldest_kept(held, slots) for address, held in everyone.items()}
    holders: dict[int, int] = {}
    again = []
    for round_ in sorted(set().union(*lacking.values())):
        complete = [address for address, held in everyone.items() if _completed(held, round_)]
        kept = [address for address in complete if round_ >= kept_from[address]]
        having = sorted(address for address in kept if round_ not in everyone[address].done)
        if having:
            holders[round_] = having[round_ % len(having)]
        elif len(kept) == len(complete):
            again.append(round_)
        else:
            raise _nobody_keeps(round_, slots)
    final = {first - 1, *range(first, below), *beyond}.difference(again)
    newest = max(final)  # −1, which all hold, if nothing is final
    _, holder = min((newest in held.done, address) for address, held in everyone.items() if _completed(held, newest))
    return Settlement(
        least=first,
        final_below=below,
        final_beyond=beyond,
        fetches={
            address: tuple(FinalRound(r, holders[r]) for r in sorted(rounds & holders.keys()))
            for address, rounds in lacking.items()
        },
        newest=() if newest < 0 else (FinalRound(newest, holder),),
        again=tuple(again),
    )


def _nobody_keeps(round_: int, slots: int) -> MoveError:
    return MoveError(
        f"round {round_} is final but no host keeps its result any more: a worker is more than {slots} rounds behind; "
        "the window must be at most half the slots",
        value=round_,
    )


class Move:
    """One job on its way from one generation to the next."""

    def __init__(
        self,
        *,
        job: int,
        generation: int,
        workers: Iterable[int],
        servers: Iterable[int] = (),
        slots: int,
        now_ns: int,
        retry_ns: int = 50_000_000,
        patience_ns: int | None = None,
    ) -> None:
        """Begin a move by pausing all hosts.

        A host that is lost must not come back to this job: it may have applied rounds that the others sum again.

        Args:
            job: Number of the job.
            generation: Generation that the job leaves.
            workers: Addresses of its workers.
            servers: Addresses of its parameter servers; empty if switches are the roots.
            slots: Slots of the job in each switch.
            now_ns: Present time, in ns.
            retry_ns: Time after which unanswered messages are sent again, in ns.
            patience_ns: Time after which hosts that have not answered a Pause, or confirmed a Resume, count as lost, in
                ns;
                None: never.

        Raises:
            MoveError: There is no worker, or a host is both worker and server.
        """
        self.job = job
        self.generation = generation
        self.phase = MigrationPhase.PAUSING
        self.lost: frozenset[int] = frozenset()
        self.settlement: Settlement | None = None
        self._slots = slots
        self._workers = frozenset(workers)
        self._servers = frozenset(servers)
        self._held: dict[int, Held] = {}
        self._resumes: dict[int, Resume | ServerPlan] = {}
        """Unconfirmed Resumes by host; while PAUSING, Resumes into the generation that is being left."""
        self._retry_ns = retry_ns
        self._patience_ns = patience_ns
        self._give_up_ns = None if patience_ns is None else now_ns + patience_ns
        self._next_send_ns = now_ns
        if not self._workers or self._workers & self._servers:
            raise MoveError("a move needs workers, and no host is both worker and server", place=f"job {job}")

    @property
    def survivors(self) -> frozenset[int]:
        """The workers that are not lost."""
        return self._workers - self.lost

    @property
    def deadline_ns(self) -> int | None:
        """When `poll` has something to do next; None while it waits for the caller or is done."""
        if self.phase in (MigrationPhase.SETTLING, MigrationPhase.DONE):
            return None
        return self._next_send_ns if self._give_up_ns is None else min(self._next_send_ns, self._give_up_ns)

    def poll(self, now_ns: int) -> list[tuple[int, Pause | Resume | ServerPlan]]:
        """Return the messages to send now, by address, in this order.

        Raises:
            MoveError: The time limit has passed and no worker is left.
        """
        active = self.phase in (MigrationPhase.PAUSING, MigrationPhase.RESUMING)
        if active and self._give_up_ns is not None and now_ns >= self._give_up_ns:
            self.mark_lost(self.awaited, now_ns)
        if self.phase in (MigrationPhase.SETTLING, MigrationPhase.DONE) or now_ns < self._next_send_ns:
            return []
        self._next_send_ns = now_ns + self._retry_ns
        out: list[tuple[int, Pause | Resume | ServerPlan]] = [*sorted(self._resumes.items())]
        if self.phase is MigrationPhase.PAUSING:
            out += [(address, Pause(self.job, self.generation)) for address in sorted(self.awaited)]
        return out

    @property
    def resumes(self) -> Mapping[int, tuple[FinalRound, ...]]:
        """Hosts that may not have received their Resume yet, and the rounds that it makes them fetch."""
        return {
            address: resume.final if isinstance(resume, Resume) else () for address, resume in self._resumes.items()
        }

    @property
    def again(self) -> tuple[int, ...]:
        """Rounds that the Resumes of these workers make incomplete again."""
        return next((each.again for each in self._resumes.values() if isinstance(each, Resume) and each.again), ())

    @property
    def awaited(self) -> frozenset[int]:
        """Hosts whose answer to Pause or Resume is missing."""
        if self.phase is MigrationPhase.PAUSING:
            return (self._workers | self._servers) - self.lost - self._held.keys()
        return frozenset(self._resumes) if self.phase is MigrationPhase.RESUMING else frozenset()

    def mark_lost(self, addresses: Iterable[int], now_ns: int) -> None:
        """Exclude these hosts for good, whatever they have answered; of those that take no part, nothing happens.

        Raises MoveError when no worker is left.
        """
        gone = (self._workers | self._servers) & (frozenset(addresses) - self.lost)
        if not gone or self.phase is MigrationPhase.DONE:
            return
        self.lost |= gone
        if not self.survivors:
            raise NoSurvivor("no worker answered the pause; none is left to continue with", place=f"job {self.job}")
        self._held = {address: held for address, held in self._held.items() if address not in gone}
        self._resumes = {address: resume for address, resume in self._resumes.items() if address not in gone}
        if self.phase is MigrationPhase.RESUMING:
            self.generation = next_generation(self.generation)
            self.phase = MigrationPhase.PAUSING
            self._held, self.settlement = {}, None
            self._give_up_ns = None if self._patience_ns is None else now_ns + self._patience_ns
            self._next_send_ns = now_ns
        elif not self.awaited:
            self._settle()

    def held(self, address: int, held: Held) -> bool:
        """Record a host's answer to Pause; return True if it was awaited. One that is repeated, late or from another
        move changes nothing.
        """
        if address not in self._workers | self._servers:
            raise MoveError(
                f"an answer to Pause from a host that takes no part ({address:#010x})",
                place=f"job {self.job}",
                value=address,
            )
        if (
            self.phase is not MigrationPhase.PAUSING
            or address not in self.awaited
            or held.generation != self.generation
        ):
            return False
        self._held[address] = held
        self._resumes.pop(address, None)
        if not self.awaited:
            self._settle()
        return True

    def settled(self, plans: Mapping[int, WorkerPlan | ServerPlan], now_ns: int, joining: Collection[int] = ()) -> None:
        """Resume after the switches hold the new plan, with these plans, one for each surviving worker and each
        server of the plan. Servers that are `joining` get their plan as it is, for they have nothing to resume.
        """
        if self.phase is not MigrationPhase.SETTLING:
            raise MoveError(f"cannot resume while {self.phase.value}", place=f"job {self.job}", value=self.phase)
        planned = {address for address, plan in plans.items() if isinstance(plan, WorkerPlan)}
        if planned != self.survivors:
            raise MoveError(
                f"plans for {len(planned)} workers, {len(self.survivors)} survive; every survivor needs one",
                place=f"job {self.job}",
                value=planned,
            )
        for plan in plans.values():
            if plan.generation != next_generation(self.generation) or plan.slots != self._slots:
                raise MoveError(
                    f"the next plan has generation {plan.generation} and {plan.slots} slots; it must have "
                    f"{next_generation(self.generation)} and {self._slots}",
                    place=f"job {self.job}",
                    value=(plan.generation, plan.slots),
                )
        self._resumes = {address: self._resume(address, plan, joining) for address, plan in plans.items()}
        self._servers |= frozenset(joining)
        self.phase = MigrationPhase.RESUMING
        self._give_up_ns = None if self._patience_ns is None else now_ns + self._patience_ns
        self._next_send_ns = now_ns

    def restore(
        self,
        resumes: Mapping[int, tuple[WorkerPlan | ServerPlan, tuple[FinalRound, ...]]],
        again: tuple[int, ...],
        joining: Collection[int],
        now_ns: int,
    ) -> None:
        """Continue a move of an earlier controller at its Resumes, any of which may have been sent.

        `resumes` has each host's plan and the rounds to fetch, `again` the rounds that all workers sum again. The plans
        have the generation after the one that this move leaves.
        """
        self._resumes = {
            address: Resume(plan, final, again)
            if isinstance(plan, WorkerPlan)
            else (plan if address in joining else Resume(plan, final))
            for address, (plan, final) in resumes.items()
        }
        self._servers |= frozenset(joining)
        self.phase = MigrationPhase.RESUMING

    def resumed(self, address: int, generation: int) -> bool:
        """Record that a host confirms its Resume; return True if that was awaited. A copy from an earlier move
        changes nothing.
        """
        resume = self._resumes.get(address)
        if resume is None or (resume.plan if isinstance(resume, Resume) else resume).generation != generation:
            return False
        del self._resumes[address]
        if self.phase is MigrationPhase.RESUMING and not self._resumes:
            self.phase = MigrationPhase.DONE
        return True

    def _resume(self, address: int, plan: WorkerPlan | ServerPlan, joining: Collection[int]) -> Resume | ServerPlan:
        assert self.settlement is not None
        if isinstance(plan, WorkerPlan):
            return Resume(plan, self.settlement.fetches[address], self.settlement.again)
        return plan if address in joining else Resume(plan, self.settlement.newest)

    def _settle(self) -> None:
        workers = {address: held for address, held in self._held.items() if address in self._workers}
        servers = {address: held for address, held in self._held.items() if address in self._servers}
        self.settlement = settle(workers, servers, self._slots)
        self.phase = MigrationPhase.SETTLING


def _completed(held: Held, round_: int) -> bool:
    return round_ < held.first_incomplete or round_ in held.complete


def _oldest_kept(held: Held, slots: int) -> int:
    """Lower bound of the rounds kept by a host with a cache of its last `slots` rounds."""
    return max([held.first_incomplete - 1, *held.complete]) - slots + 1
