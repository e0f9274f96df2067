"""A worker's exchange with the controller about calls that others have not made, or have made differently."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ...wire import control_pb2 as pb
from ...wire.control import CALLS_DIFFER
from ...wire.control_messages import calls_message
from ..collectives.call_log import PATIENCE_NS, CallLog, StallWatch
from ..protocol.worker import WorkerCore
from .udp import UdpEndpoint

_log = logging.getLogger(__name__)

_ANSWER_S: Final = 3.0
"""Maximum wait for the comparison of calls that differ."""


class CallReports:
    """One worker's part in comparisons of all workers' calls."""

    def __init__(self, log: CallLog, rank: Callable[[], int], timeout_s: float) -> None:
        """Create it for the worker with this rank, whose calls wait `timeout_s` at most."""
        self._log = log
        self._rank = rank
        self._watch = StallWatch(min(PATIENCE_NS, int(timeout_s * 1e9 / 2)))
        self._changed = threading.Condition()
        self._text = ""
        self._answer = ""
        """The last comparison, also after the worker has gone on."""
        self._received = 0

    def own(self, endpoint: UdpEndpoint, *, asks: bool) -> pb.FromHost:
        """Return this worker's calls as a message; `asks`: have them compared."""
        assert isinstance(endpoint.core, WorkerCore)
        with endpoint.changed:
            awaited = endpoint.core.awaited
        return calls_message(self._log.last(awaited), asks=asks)

    def stalled(self, endpoint: UdpEndpoint) -> pb.FromHost | None:
        """Return the message of a worker that has waited for long without progress; None for all others."""
        assert isinstance(endpoint.core, WorkerCore)
        with endpoint.changed:
            awaited, rounds = endpoint.core.awaited, endpoint.core.rounds_complete
        if not self._watch.stalled(time.monotonic_ns(), awaited, rounds):
            if not self._watch.reported:
                self._text = ""
            return None
        return self.own(endpoint, asks=True)

    def on_report(self, report: pb.CallReport) -> None:
        """Take the controller's comparison; the one worker that it names logs it, once."""
        with self._changed:
            new = report.text != self._text
            self._text = self._answer = report.text
            self._received += 1
            self._changed.notify_all()
        if new and self._watch.reported and report.speaker == self._rank():
            _log.warning("%s", report.text)

    @property
    def text(self) -> str:
        """The controller's last comparison; empty if the worker does not wait for long."""
        return self._text

    def compare(self, send: Callable[[], object]) -> str:
        """Have calls compared now, and wait for the result.

        Args:
            send: Sends the message that `own` returns.

        Returns:
            The comparison; empty if none comes in time, or it finds no difference: the worker whose call differs may
            have left the job.
        """
        with self._changed:
            received = self._received
            send()
            self._changed.wait_for(lambda: self._received > received, _ANSWER_S)
            found = self._received > received and self._answer.startswith(CALLS_DIFFER)
            return self._answer if found else ""
