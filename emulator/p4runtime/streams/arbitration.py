"""Client arbitration for one (device, role), as a plain state machine (specification, "Client Arbitration").

The highest election id ever seen decides, and is never forgotten: when its holder leaves there is no primary until a
client claims the same id or a higher one. A client without an election id is always a backup. This module sends
nothing: every step returns the notices to deliver, in order.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ..refusal import Code, Refusal, invalid

MAX_CLIENTS: Final = 16
"""Open streams per (device, role), as simple_switch_grpc has it."""

Client = TypeVar("Client", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Notice(Generic[Client]):
    """Arbitration update for one client."""

    client: Client
    code: Code
    """OK: the client is primary. ALREADY_EXISTS: another one is. NOT_FOUND: there is no primary."""
    highest: int | None
    """Highest election id seen; None before there has been any primary."""


class Arbiter(Generic[Client]):
    """Arbitration for one (device, role)."""

    def __init__(self) -> None:
        self.highest: int | None = None
        self.clients: dict[Client, int | None] = {}

    @property
    def primary(self) -> Client | None:
        """The live client that holds the highest election id, if any."""
        if self.highest is None:
            return None
        return next((client for client, held in self.clients.items() if held == self.highest), None)

    def is_primary(self, election_id: int | None) -> bool:
        """Return True if a request with this election id comes from the primary."""
        return election_id is not None and election_id == self.highest and self.primary is not None

    def update(self, client: Client, election_id: int | None) -> list[Notice[Client]]:
        """Add a client, or change its election id.

        Raises `Refusal` (its stream must then end): INVALID_ARGUMENT when another live client has the id,
        RESOURCE_EXHAUSTED when `MAX_CLIENTS` are there already.
        """
        if election_id is not None:
            for other, held in self.clients.items():
                if held == election_id and other != client:
                    raise invalid(f"election id {election_id} is already used by another live controller of this role")
        if client not in self.clients and len(self.clients) >= MAX_CLIENTS:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"this device and role already have {MAX_CLIENTS} open streams")
        was_primary = self.primary == client
        self.clients[client] = election_id
        if election_id is not None and (self.highest is None or election_id >= self.highest):
            self.highest = election_id
            return self._notices()
        return self._notices() if was_primary else [self._notice(client)]

    def leave(self, client: Client) -> list[Notice[Client]]:
        """Remove a client whose stream has ended."""
        was_primary = self.primary == client
        self.clients.pop(client, None)
        return self._notices() if was_primary else []

    def _notices(self) -> list[Notice[Client]]:
        """Notices to all clients; the primary's comes last, after the backups have been notified."""
        primary = self.primary
        return [self._notice(client) for client in sorted(self.clients, key=lambda client: client == primary)]

    def _notice(self, client: Client) -> Notice[Client]:
        primary = self.primary
        if primary is None:
            return Notice(client, Code.NOT_FOUND, self.highest)
        return Notice(client, Code.OK if client == primary else Code.ALREADY_EXISTS, self.highest)
