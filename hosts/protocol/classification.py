"""Questions to a switch for the classes of samples, as a state machine: requests to send, and missing answers.

At most `window` requests are in the network. One that has no answer after the time-out, or an answer without a class
(the switch is replacing its model), is then sent again. Answers of another model than the requested one, and repeated
answers, change nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.classification import FEATURES, MESSAGE_BYTES, Answer, Status, pack_requests
from ..errors import NoClass

UNANSWERED: Final = -1


class Questions:
    """One batch of samples."""

    def __init__(
        self,
        samples: NDArray[np.uint8],
        *,
        model: int = 0,
        first_sequence: int = 0,
        window: int = 64,
        timeout_ns: int = 100_000_000,
        attempts: int = 10,
    ) -> None:
        """Create a batch.

        Args:
            samples: Bytes of shape (n, features).
            model: Number of the model that must answer; 0: any that takes bytes.
            first_sequence: Sequence number of the first request; another batch's numbers must differ.
            window: Requests in the network at most.
            timeout_ns: Time without an answer after which a request is sent again.
            attempts: Requests for one sample at most.

        Raises:
            NoClass: A request has no room for so many features.
        """
        if samples.shape[1] > FEATURES:
            raise NoClass(
                f"{samples.shape[1]} features; a request has room for {FEATURES}", place="samples", value=samples.shape
            )
        self._payloads = pack_requests(samples, first_sequence, model)
        self._model = model
        self._first = first_sequence
        self._window = window
        self._timeout_ns = timeout_ns
        self._attempts = attempts
        self._sent_ns: dict[int, int] = {}
        self._sent_times = np.zeros(len(samples), np.int64)
        self._next = 0
        self._refused = False
        self.classes: NDArray[np.int64] = np.full(len(samples), UNANSWERED)
        """Class index of each sample, (n,); `UNANSWERED` until its answer."""
        self.votes: NDArray[np.int64] = np.zeros(len(samples), np.int64)
        """Trees that voted for it, (n,)."""
        self.models: NDArray[np.int64] = np.zeros(len(samples), np.int64)
        """Number of the model that decided, (n,)."""
        self.repeated = 0
        """Number of requests that were sent again."""

    @property
    def done(self) -> bool:
        """True if every sample has its class."""
        return self._next == len(self.classes) and not self._sent_ns

    @property
    def deadline_ns(self) -> int | None:
        """Time at which a request is due again; None if all are answered."""
        return min(self._sent_ns.values(), default=None)

    def due(self, now_ns: int) -> NDArray[np.uint8]:
        """Return payloads to send now, (m, MESSAGE_BYTES), which count as sent.

        Raises:
            NoClass: A request was sent as often as allowed.
        """
        late = [number for number, at_ns in self._sent_ns.items() if at_ns <= now_ns]
        if late and int(self._sent_times[late].max()) >= self._attempts:
            raise NoClass(self._complaint())
        self.repeated += len(late)
        room = self._window - len(self._sent_ns)
        new = range(self._next, min(self._next + max(room, 0), len(self.classes)))
        self._next += len(new)
        numbers = [*late, *new]
        self._sent_times[numbers] += 1
        self._sent_ns |= dict.fromkeys(numbers, now_ns + self._timeout_ns)
        return self._payloads[numbers].reshape(-1, MESSAGE_BYTES)

    def receive(self, answer: Answer) -> None:
        """Record an answer."""
        number = (answer.sequence - self._first) & 0xFFFF_FFFF
        if number not in self._sent_ns or self._model not in (0, answer.model):
            return
        if answer.status is not Status.CLASSIFIED:
            self._refused = True
            return
        del self._sent_ns[number]
        self.classes[number] = answer.class_index
        self.votes[number] = answer.votes
        self.models[number] = answer.model

    def _complaint(self) -> str:
        if self._refused:
            wanted = f"model {self._model}" if self._model else "a model whose features are bytes"
            return f"the switch does not have {wanted}; load it with weir model load"
        return f"no answer to {self._attempts} requests; is the address a switch's, and does its program classify?"
