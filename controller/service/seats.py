"""Who may sit where: every job's seats, their tokens, and the stream of whoever sits there now. No I/O, no clock."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from ...wire import control_pb2 as pb
from ..errors import ControllerError
from ..planning.plan import JobSpec

_TOKEN_BYTES: Final = 18


class WrongToken(ControllerError):
    """A token that is none of the job's."""


class HostStream:
    """What goes to one host, in order, until `end`."""

    def __init__(self) -> None:
        self.failure: tuple[grpc.StatusCode, str] | None = None
        """How the stream ends; None: well."""
        self._queue: asyncio.Queue[pb.ToHost | None] = asyncio.Queue()

    def send(self, message: pb.ToHost) -> None:
        self._queue.put_nowait(message)

    def end(self, failure: tuple[grpc.StatusCode, str] | None = None) -> None:
        """After what was sent so far."""
        self.failure = failure
        self._queue.put_nowait(None)

    async def messages(self) -> AsyncIterator[pb.ToHost]:
        while (message := await self._queue.get()) is not None:
            yield message


@dataclass(slots=True, eq=False)
class Seat:
    """One host's part in one job."""

    host: str
    rank: int | None
    """None: the parameter server."""
    token: str
    spare: bool = False
    """A server that takes over when the one before it is lost."""
    stream: HostStream | None = None
    """Of whoever sits here now."""
    joined: bool = False
    """Somebody has sat here once."""
    ran: bool = False
    """Whoever sat here had a plan."""
    left: bool = False
    """It is done, and stays for the others."""
    rounds: int = 0
    """By its last heartbeat."""
    heard_ns: int | None = None
    """When that came."""
    last: pb.ToHost | None = None
    """The job is over for this host: what it is told whenever it asks."""

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
    """By host."""
    plans: dict[str, pb.ToHost] = field(default_factory=dict)
    """The plans of the job's start by host, until it starts."""
    told: str = ""
    """What its hosts were told last that it waits for."""

    @classmethod
    def assign(cls, spec: JobSpec) -> JobSeats:
        """Seats for a job's hosts, with new tokens."""
        ranks: list[tuple[str, int | None]] = [(host, rank) for rank, host in enumerate(spec.workers)]
        ranks += [(host, None) for host in (spec.server, *spec.spares) if host is not None]
        return cls(
            spec.job,
            {
                host: Seat(host, rank, secrets.token_urlsafe(_TOKEN_BYTES), spare=host in spec.spares)
                for host, rank in ranks
            },
        )

    def as_json(self) -> dict[str, Any]:
        """What must outlive the controller."""
        seats = [[seat.host, seat.rank, seat.token, seat.spare] for seat in self.seats.values()]
        return {"seats": seats, "started": not self.plans}

    @classmethod
    def from_json(cls, job: int, values: Mapping[str, Any], plans: Mapping[str, pb.ToHost]) -> JobSeats:
        """As another controller has left it; `plans` are handed out where the job has not started yet."""
        started = bool(values["started"])
        seats = {
            host: Seat(host, rank, token, spare=spare, joined=started, ran=started and not spare)
            for host, rank, token, spare in values["seats"]
        }
        return cls(job, seats, {} if started else dict(plans))

    @property
    def awaited(self) -> list[Seat]:
        """The seats that nobody has taken yet, and without which the job does not start."""
        return [seat for seat in self.seats.values() if not (seat.joined or seat.spare)]

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
