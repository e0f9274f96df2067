"""Client of the classification in switches, on a UDP socket."""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors.values import Checks
from ...wire.classification import CLASSIFICATION_PORT, MESSAGE_BYTES, Answer, as_bytes
from ...wire.errors import WireError
from ..errors import NoClass
from ..protocol.classification import Questions

_RECEIVED_AT_ONCE: Final = 256


class Classifier:
    """Client of the classification in one switch; a context manager::

    with weir.Classifier("10.255.0.1", classes=range(10)) as classifier: labels = classifier.predict(images)          #
    (n, 64) → (n,)
    """

    def __init__(
        self,
        switch: str,
        *,
        classes: Sequence[Any] | None = None,
        edges: Sequence[Sequence[float]] | None = None,
        model: int = 0,
        window: int = 64,
        timeout_s: float = 0.1,
        attempts: int = 10,
    ) -> None:
        """Open a socket.

        Args:
            switch: Address of the switch, such as 10.255.0.1 for device 1.
            classes: Classes in the model's order; None: `predict` returns indices.
            edges: The model's thresholds by feature, if its features are not bytes.
            model: Number of the model that must answer; 0: any that takes bytes.
            window: Requests in the network at most.
            timeout_s: Time in seconds without an answer after which a request is sent again.
            attempts: Requests for one sample at most.

        Raises:
            NoClass: The address is none, or cannot be reached.
        """
        checks = Checks(NoClass, "classifier")
        checks.text("switch", switch)
        model, window = checks.integer("model", model), checks.integer("window", window, 1)
        attempts, timeout_s = checks.integer("attempts", attempts, 1), checks.seconds("timeout_s", timeout_s)
        try:
            self._classes = None if classes is None else np.array(checks.items("classes", classes, "classes"))
        except ValueError:  # classes of several lengths
            raise checks.refuse("classes", classes, "are no array", "a list of names or numbers") from None
        self._edges = edges
        self._model = model
        self._window = window
        self._timeout_ns = int(timeout_s * 1e9)
        self._attempts = attempts
        self._sequence = secrets.randbits(32)
        try:
            address = str(IPv4Address(switch))
        except ValueError:
            raise NoClass("is no IPv4 address of a switch", place=switch, value=switch) from None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.connect((address, CLASSIFICATION_PORT))
        except OSError as error:
            self._socket.close()
            raise NoClass(f"cannot be reached: {error.strerror}", place=switch, value=error.errno) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; may be repeated."""
        self._socket.close()

    def predict(self, samples: ArrayLike) -> NDArray[Any]:
        """Return the class of each sample.

        Args:
            samples: Numbers of shape (n, features): whole numbers in 0…255, unless the model has edges.

        Returns:
            Classes, or their indices, of shape (n,).

        Raises:
            NoClass: A value cannot be sent, or the switch does not answer with a class.
        """
        values = np.asarray(samples)
        width = values.shape[1] if values.ndim == 2 else 0
        try:
            questions = self.request(as_bytes(values, width, self._edges))
        except WireError as error:
            raise NoClass.of(error) from None
        return questions.classes if self._classes is None else self._classes[questions.classes]

    def request(self, samples: NDArray[np.uint8]) -> Questions:
        """Send encoded samples and wait for all answers.

        Args:
            samples: Bytes of shape (n, features).

        Returns:
            The answers, whose `classes` are indices of shape (n,).

        Raises:
            NoClass: The switch does not answer, or not with a class.
        """
        questions = Questions(
            samples,
            model=self._model,
            first_sequence=self._sequence,
            window=self._window,
            timeout_ns=self._timeout_ns,
            attempts=self._attempts,
        )
        self._sequence = (self._sequence + len(samples)) & 0xFFFF_FFFF
        while True:
            now_ns = time.monotonic_ns()
            for payload in questions.due(now_ns):
                with suppress(OSError):  # a full queue, or a port that was refused before: sent again at the time-out
                    self._socket.send(payload.tobytes())
            if questions.done:
                return questions
            wait_s = max((questions.deadline_ns or now_ns) - time.monotonic_ns(), 0) / 1e9
            if select.select([self._socket], [], [], wait_s)[0]:
                self._receive(questions)

    def _receive(self, questions: Questions) -> None:
        for _ in range(_RECEIVED_AT_ONCE):
            try:
                payload = self._socket.recv(MESSAGE_BYTES + 1)
            except OSError:
                return
            with suppress(WireError):
                questions.receive(Answer.parse(payload))
