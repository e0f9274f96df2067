"""Who may sit where in one job: its seats, their tokens, and the stream of whoever sits there now."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...wire import control_pb2 as pb
from ..errors import ControllerError
from ..planning.plan import JobSpec
from .streams import HostStream

_TOKEN_BYTES: Final = 18


class WrongToken(ControllerError):
    """A token that is none of the job's."""


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
    """The stream of the host that sits here now; None: nobody does."""
    ran: bool = False
    """Whether who sat here had a plan, and so may hold sums that nobody else has."""
    left: bool = False
    """Whether the host is done with the job, and stays only for the others."""
    rounds: int = 0
    """How many rounds the host had completed by its last heartbeat."""
    heard_ns: int | None = None
    """When its last heartbeat came; None: none has."""
    last: pb.ToHost | None = None
    """What the host is told whenever it asks, once the job is over for it."""

    def __str__(self) -> str:
        return f"{self.host} ({'server' if self.rank is None else f'rank {self.rank}'})"

    def tell(self, message: pb.ToHost) -> None:
        """Lost where nobody sits here: what matters is repeated, or kept until somebody comes."""
        if self.stream is not None:
            self.stream.send(message)

    def finish(self, last: pb.ToHost) -> None:
        """The job is over for this host."""
        if self.last is None:
            self.last = last
            self.tell(last)
        if self.stream is not None:
            self.stream.end()


@dataclass(slots=True, eq=False)
class JobSeats:
    """The seats of one job. It starts when all have been taken, so that nobody sends to those who are not there."""

    job: int
    seats: Mapping[str, Seat]
    """Every seat of the job, by the name of its host."""
    started: bool = False
    """Whether its hosts have been given their plans."""
    stripes: Mapping[int, int] = field(default_factory=dict)
    """The jobs that share one's chunks, this one among them, in their order, each with its share in proportion to the
    others'; empty for a job that has all of them.
    """
    told: str = ""
    """What the job waits for, as its hosts were told last."""
    client: str = ""
    """Who registered it; empty: it is of another controller's time."""
    attended_ns: int | None = None
    """When somebody was last seen in one of its seats, or it was looked at first."""

    @classmethod
    def assign(cls, spec: JobSpec, like: JobSeats | None = None) -> JobSeats:
        """Seats for a job's hosts, with new tokens, or the same as in another job of the same hosts."""
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
        """What must outlive the controller."""
        seats = [[seat.host, seat.rank, seat.token, seat.spare] for seat in self.seats.values()]
        return {"seats": seats, "started": self.started, "stripes": [*self.stripes.items()]}

    @classmethod
    def from_json(cls, job: int, values: Mapping[str, Any], serves: str | None = None) -> JobSeats:
        """As another controller has left it. `serves`: the server that has its plan, perhaps a spare that took over."""
        started = bool(values["started"])
        seats = {
            host: Seat(host, rank, token, spare=spare, ran=started and (not spare or host == serves))
            for host, rank, token, spare in values["seats"]
        }
        stripes = values.get("stripes", ())  # journals of old have none
        return cls(job, seats, started, dict(stripes))

    @property
    def attended(self) -> bool:
        """Whether somebody sits in one of its seats."""
        return any(seat.stream is not None for seat in self.seats.values())

    def awaited(self, gone: Collection[str]) -> list[Seat]:
        """The seats that nobody sits in, and without which the job does not start; none once it has. It does without
        hosts that are `gone`.
        """
        if self.started:
            return []
        absent = (seat for seat in self.seats.values() if seat.stream is None and not seat.spare)
        return [seat for seat in absent if seat.host not in gone]

    def seat_of(self, token: str) -> Seat:
        """Raises WrongToken."""
        given = token.encode()
        for seat in self.seats.values():
            if hmac.compare_digest(seat.token.encode(), given):
                return seat
        raise WrongToken(f"job {self.job}: the token is none of its seats'; use the one that registering the job gave")

    def tell(self, message: pb.ToHost) -> None:
        """All who sit here."""
        for seat in self.seats.values():
            seat.tell(message)


def list_seats(seats: Iterable[Seat]) -> str:
    return ", ".join(map(str, seats))
