"""The controllers of one device: arbitration of their streams per role, and delivery of notifications."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from finsy.proto import U128, p4r

from ..refusal import Code, Refusal, code_number
from ..roles import Roles
from .arbitration import Arbiter, Notice
from .session import Session


class Clients:
    """Live streams, one arbiter for each role.

    Two locks, always taken in this order: `_turn` for one arbitration message at a time, which may wait for writes to
    finish, and `_lock` for the tables, for a moment.
    """

    def __init__(
        self, device_id: int, writing: AbstractContextManager[object], on_change: Callable[[str], None]
    ) -> None:
        """`writing` is the lock that writes hold; `on_change` is given a role whose primary is another one now."""
        self._device_id = device_id
        self._writing = writing
        self._on_change = on_change
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._arbiters: dict[str, Arbiter[Session]] = {"": Arbiter()}
        self.roles = Roles()
        self.primaries: tuple[Session, ...] = ()
        """The sessions that are primary, at most one for each role (`Session.role`)."""

    def arbitrate(self, session: Session, message: p4r.MasterArbitrationUpdate) -> None:
        """Process a controller's arbitration message. Raises `Refusal`: its stream must then end."""
        name = message.role.name
        election_id = U128.decode(message.election_id) if message.HasField("election_id") else None
        with self._turn:
            with self._lock:
                config = self.roles.check(message.role)
                arbiter = self._arbiters.get(name) or Arbiter()
                notices = arbiter.update(session, election_id)
                self._arbiters[name] = arbiter
                session.role, session.device_id = name, self._device_id
                self.roles.register(name)
                if arbiter.primary is session:
                    self.roles.configure(name, config)
                self._note_primaries(name)
            for notice in notices:
                if notice.client is session and notice.code is Code.OK:
                    with self._writing:
                        pass  # the previous primary's requests are finished first
                self._notify(name, notice)

    def leave(self, session: Session) -> None:
        """Remove the client of a stream that has ended."""
        with self._turn:
            with self._lock:
                if session.role is None or session not in self._arbiters[session.role].clients:
                    return
                notices = self._arbiters[session.role].leave(session)
                self._note_primaries(session.role)
            for notice in notices:
                self._notify(session.role, notice)

    def check_primary(self, role: str, election_id: int | None) -> None:
        """Check that a request comes from its role's primary.

        Raises:
            Refusal: It does not, or there is no such role.
        """
        with self._lock:
            arbiter = self._arbiters.get(role)
            primary = arbiter is not None and arbiter.is_primary(election_id)
        if arbiter is None:
            raise self.unknown_role(role)
        if not primary:
            shown = "no election id" if election_id is None else f"election id {election_id}"
            raise Refusal(Code.PERMISSION_DENIED, f"not primary: {shown} is not the primary's")

    def unknown_role(self, role: str) -> Refusal:
        """Return the refusal of a role that no client has, with the code NOT_FOUND."""
        return Refusal(Code.NOT_FOUND, f"device {self._device_id} has no role {role!r}")

    def _note_primaries(self, role: str) -> None:
        """This role's arbiter has moved."""
        primaries = (arbiter.primary for arbiter in self._arbiters.values())
        before = self.primaries
        self.primaries = tuple(primary for primary in primaries if primary is not None)
        if self.primaries != before:
            self._on_change(role)

    def _notify(self, role: str, notice: Notice[Session]) -> None:
        message = p4r.StreamMessageResponse()
        arbitration = message.arbitration
        arbitration.device_id = self._device_id
        if role:
            arbitration.role.name = role
            config = self.roles.config(role)
            if config is not None:
                arbitration.role.config.Pack(config)
        if notice.highest is not None:
            arbitration.election_id.CopyFrom(U128.encode(notice.highest))
        arbitration.status.code = code_number(notice.code)
        arbitration.status.message = {
            Code.OK: "you are the primary",
            Code.ALREADY_EXISTS: "another controller is the primary",
            Code.NOT_FOUND: "there is no primary",
        }[notice.code]
        notice.client.send(message)
