"""The seats of one job: their tokens, and the stream of each present host."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...wire import control_pb2 as pb
from ..errors import ControllerError
from ..jobs.call_comparison import CallComparison
from ..jobs.queue import Needs
from ..planning.plan import JobSpec
from .streams import HostStream

_TOKEN_BYTES: Final = 18


class WrongToken(ControllerError):
    """A token that does not belong to the job."""


@dataclass(slots=True, eq=False)
class Seat:
    """One host's part in one job."""

    host: str
    rank: int | None
    """The worker's rank; None for a parameter server."""
    token: str
    spare: bool
    """A server that takes over when the one before it is lost."""
    stream: HostStream | None = None
    """Stream of the present host; None for an empty seat."""
    ran: bool = False
    """True if the seat's process had a plan, and so may hold sums that no other host has."""
    left: bool = False
    """True if the host is done with the job, and stays only for the others."""
    calls: int | None = None
    """Sums that the host had requested when it left in good order; None if it has not left, or did not say."""
    rounds_held: int | None = None
    """Rounds of these sums: the host may go once it and all others have them. None: it stays until the job ends."""
    departure_told: bool = False
    """True if the other hosts have been notified of its departure."""
    rounds: int = 0
    """Rounds that the host had completed by its last heartbeat."""
    waiting: bool = False
    """True if it waited for more rounds then."""
    heard_ns: int | None = None
    """When its last heartbeat came; None: none has."""
    last: pb.ToHost | None = None
    """Message for every later request of the host, once the job is over for it."""

    def __str__(self) -> str:
        return f"{'server' if self.rank is None else f'rank {self.rank}'} ({self.host})"

    def send(self, message: pb.ToHost) -> None:
        """Send a message; it is lost if the seat is empty. Important messages are repeated, or kept until a host
        comes.
        """
        if self.stream is not None:
            self.stream.send(message)

    def finish(self, last: pb.ToHost) -> None:
        """End the job for this host."""
        if self.last is None:
            self.last = last
            self.send(last)
        if self.stream is not None:
            self.stream.end()


@dataclass(slots=True, eq=False)
class JobSeats:
    """The seats of one job. It starts when all are taken, so that no host sends to an absent one."""

    job: int
    seats: Mapping[str, Seat]
    """Every seat of the job, by the name of its host."""
    started: bool = False
    """True if its hosts have received their plans."""
    stripes: Mapping[int, int] = field(default_factory=dict)
    """The jobs that share one's chunks, this one among them, in their order, each with its share in proportion to the
    others'; empty for a job that has all of them.
    """
    told: str = ""
    """The job's pending condition, as last sent to its hosts."""
    client: str = ""
    """Client that registered it; empty if an earlier controller did."""
    first_failure: str = ""
    """The first host that has reported its failure, and the reason."""
    round_trip_ns: int = 0
    """Round-trip time of the job's tree in empty queues, as the first worker left; 0: none has left in good order."""
    comparison: CallComparison = field(default_factory=CallComparison)
    """Comparison of the workers' calls."""
    needs: Needs = field(default_factory=Needs)
    """Resources that each worker takes of its host; a job with a parent takes none of its own."""
    parent: int = 0
    """Job with whose end this one ends; 0: none."""
    had_groups: bool = False
    """True if a group of it has begun and is over."""
    ticket: str = ""
    """Secret by which the client of a queued job asks again for its registration; empty: it was not queued."""
    attended_ns: int | None = None
    """When somebody was last seen in one of its seats, or it was looked at first."""

    @property
    def calls(self) -> int:
        """Sums that a worker had requested when it left in good order, the most of all workers."""
        return max((seat.calls or 0 for seat in self.departed()), default=0) if self.round_trip_ns else 0

    @classmethod
    def assign(cls, spec: JobSpec, like: JobSeats | None = None) -> JobSeats:
        """Return seats for a job's hosts, with new tokens, or the same as in another job of the same hosts."""
        ranks: list[tuple[str, int | None]] = [(host, rank) for rank, host in enumerate(spec.workers)]
        ranks += [(host, None) for host in (spec.server, *spec.spares) if host is not None]
        return cls(
            spec.job,
            {
                host: Seat(
                    host,
                    rank,
                    secrets.token_urlsafe(_TOKEN_BYTES) if like is None else like.seats[host].token,
                    spare=host in spec.spares,
                )
                for host, rank in ranks
            },
        )

    def as_json(self) -> dict[str, Any]:
        """Return the state that must survive the controller."""
        seats = [[seat.host, seat.rank, seat.token, seat.spare] for seat in self.seats.values()]
        return {
            "seats": seats,
            "started": self.started,
            "stripes": [*self.stripes.items()],
            "needs": [self.needs.accelerators, self.needs.memory_bytes],
            "parent": self.parent,
            "ticket": self.ticket,
        }

    @classmethod
    def from_json(cls, job: int, values: Mapping[str, Any], serves: str | None = None) -> JobSeats:
        """Decode the state left by an earlier controller. `serves`: the server with a plan, perhaps a spare that took
        over.
        """
        started = bool(values["started"])
        seats = {
            host: Seat(host, rank, token, spare=spare, ran=started and (not spare or host == serves))
            for host, rank, token, spare in values["seats"]
        }
        stripes = values.get("stripes", ())  # journals of old have none
        needs = Needs(*map(int, values["needs"])) if "needs" in values else Needs()
        parent, ticket = int(values.get("parent", 0)), str(values.get("ticket", ""))
        return cls(job, seats, started, dict(stripes), needs=needs, parent=parent, ticket=ticket)

    @property
    def family(self) -> int:
        """Number of the family's first job; its own one for a job without parent and groups."""
        return self.parent or next(iter(self.stripes), self.job)

    @property
    def takes(self) -> tuple[list[str], Needs]:
        """Hosts of its workers, with what each takes of them: nothing if another job's workers are the same."""
        own = self.family == self.job
        workers = [seat.host for seat in self.seats.values() if seat.rank is not None]
        return workers if own else [], self.needs

    @property
    def attended(self) -> bool:
        """True if some seat is taken."""
        return any(seat.stream is not None for seat in self.seats.values())

    def awaited(self, gone: Collection[str]) -> list[Seat]:
        """Return the empty seats without which the job does not start; none once it has started.

        The job does not need hosts that are `gone`.
        """
        if self.started:
            return []
        absent = (seat for seat in self.seats.values() if seat.stream is None and not seat.spare)
        return [seat for seat in absent if seat.host not in gone]

    def departed(self) -> list[Seat]:
        """Return seats of workers that have left in good order, and have said after how many calls."""
        return [seat for seat in self.seats.values() if seat.left and seat.rank is not None and seat.calls is not None]

    def may_go(self, host: str, others: Iterable[str]) -> bool:
        """Return whether a worker that has left holds no rounds that others lack, and waits for none itself.

        A new generation may give its sums more rounds after it has left; its heartbeats tell.
        """
        seat = self.seats[host]
        if seat.last is not None:
            return True
        if not seat.left or seat.rounds_held is None or seat.waiting or seat.rounds < seat.rounds_held:
            return False
        rest = (self.seats[other] for other in others if other != host)
        return all(other.rounds >= seat.rounds or other.last is not None for other in rest)

    def seat_of(self, token: str) -> Seat:
        """Return the seat that a token belongs to.

        Raises:
            WrongToken: No seat of the job has it.
        """
        given = token.encode()
        for seat in self.seats.values():
            if hmac.compare_digest(seat.token.encode(), given):
                return seat
        raise WrongToken(f"job {self.job}: the token is none of its seats'; use the one that registering the job gave")

    def broadcast(self, message: pb.ToHost) -> None:
        """Send a message to the hosts of all seats."""
        for seat in self.seats.values():
            seat.send(message)


def list_seats(seats: Iterable[Seat]) -> str:
    """Return seats as text, separated by commas."""
    return ", ".join(map(str, seats))
