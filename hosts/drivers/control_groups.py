"""Groups as jobs of the control service, of the family of the job whose workers form them, and on its sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from ...wire import control_pb2 as pb
from ...wire.control_channel import Tls
from ..errors import ControlRefused, InvalidPlan
from .client import Membership
from .control_client import ControlClient
from .udp import UdpWorker


class ControlGroups:
    """The `Registrar` of one worker of the world; a context manager, at whose end this worker leaves its groups."""

    def __init__(
        self,
        control: str,
        world: Membership,
        hosts: Sequence[str],
        *,
        server: str | None = None,
        start_server: Callable[[int, str], object] | None = None,
        slots: int = 0,
        timeout_s: float = 60.0,
        tls: Tls | None = None,
    ) -> None:
        """Create the registrar. Groups have a switch as their root or, with `server`, a parameter server.

        They end with the world's job, and have its policy and priority. A group that is aborted ends the world's job.

        Args:
            control: Address of the control service.
            world: Membership in the job of all workers.
            hosts: Names in the fabric of its workers, by rank.
            server: Host of the groups' parameter server; None: a switch is the root.
            start_server: Called with each job and its server's token, for instance to run `serve` on that host.
            slots: Slots of each group in every switch, a power of two; 0: by rate and queue bound.
            timeout_s: Maximum wait for a group's workers, in seconds.
            tls: Certificates, if the service has TLS.

        Raises:
            InvalidPlan: One of `server` and `start_server` is given without the other.
        """
        if (server is None) != (start_server is None):
            raise InvalidPlan(
                f"server is {server!r} and start_server is {start_server!r}; give both or neither",
                place="groups",
                value=server,
            )
        self._control = control
        self._world = world
        self._hosts = list(hosts)
        self._server = server
        self._start_server = start_server
        self._slots = slots
        self._timeout_s = timeout_s
        self._tls = tls
        self._memberships = ExitStack()

    def register(self, groups: Sequence[Sequence[int]]) -> list[list[str]]:
        """Register a job per group; see `Registrar.register`. Raises ControlRefused."""
        made: list[pb.Registration] = []
        with ControlClient(self._control, self._tls) as client:
            try:
                for ranks in groups:
                    workers = [self._hosts[rank] for rank in ranks]
                    made.append(client.register(workers, self._server, slots=self._slots, parent=self._world.job))
            except ControlRefused:
                for registration in made:
                    client.end(registration.job, "another group beside it cannot be")
                raise
        return [self._tickets(registration) for registration in made]

    def _tickets(self, registration: pb.Registration) -> list[str]:
        """Tickets by rank of a registered job; its server, if it has one, is started."""
        tickets = {}
        for seat in registration.seats:
            if seat.HasField("rank"):
                tickets[seat.rank] = json.dumps([registration.job, seat.token])
            elif self._start_server is not None:
                self._start_server(registration.job, seat.token)
        return [ticket for _, ticket in sorted(tickets.items())]

    def join(self, ticket: str) -> UdpWorker:
        """Take the seat of a ticket, as `Registrar.join`.

        Raises:
            HostError: `Membership` cannot take the seat.
        """
        job, token = json.loads(ticket)
        membership = Membership(
            self._control,
            job,
            token,
            timeout_s=self._timeout_s,
            host=self._world.worker.endpoint.host,
            nic=self._world.nic,
            tls=self._tls,
        )
        return self._memberships.enter_context(membership).worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._memberships.__exit__(kind, error, trace)
