"""A worker's batch sizes from the controller, on the wall clock: one worker asks for all, over the job's own sums."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...wire.control_channel import Tls
from ...wire.control_messages import balance_request
from ..collectives.communicator import Communicator
from ..collectives.leader_query import PATIENCE_S, LeaderQuery
from .batch_size_client import BatchSizeClient, BatchSizeRequest


class BatchSizes:
    """One worker's part; a context manager. All workers of the job have one, and call `next_step` alike."""

    def __init__(
        self,
        communicator: Communicator,
        control: str,
        job: int,
        token: str,
        samples: int,
        *,
        rule: str = "analytic",
        size_step: int = 0,
        patience_s: float = PATIENCE_S,
        tls: Tls | None = None,
    ) -> None:
        """Create the requests of one worker; the lowest living rank sends them for all.

        Args:
            communicator: Communicator of the job.
            control: Address of the control service.
            job: Number of the job.
            token: Token of this worker's seat.
            samples: Samples of a step, of all workers together.
            rule: Rule for sizes, "analytic" or "numeric".
            size_step: Samples that the numeric rule moves at once; 0: its default.
            patience_s: Maximum wait of a step for the controller, in seconds.
            tls: Certificates, if the service has TLS.
        """
        self._questions = BatchSizeClient(control, tls)
        self._job = job
        self._token = token
        self._samples = samples
        self._rule = rule
        self._size_step = size_step
        self._patience_s = patience_s
        self._question: BatchSizeRequest | None = None
        moved = f" that moves {size_step}" if size_step else ""
        # in the name, so that workers that do not ask for the same find out
        name = f"batch sizes of {samples} samples by the {rule} rule{moved}"
        self._query = LeaderQuery(communicator, self._request, name=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._questions.close()

    def next_step(self, report: Sequence[float], timeout_s: float | None = None) -> list[int] | None:
        """Return everyone's samples in the next step, by rank, the same at all; None: as in this one.

        `report` is this worker's, of three numbers, as `balance_request` has them. `timeout_s` is how long the
        others' are waited for, by default as long as the communicator waits. Raises what its calls raise, such as
        CallMismatch where workers ask for other samples or by another rule, and ControlRefused where there are no
        sizes.
        """
        reports, present = self._query.report(np.array(report, np.float64)).wait(timeout_s)
        if self._query.send_request(reports, present) is not None:
            assert self._question is not None
            self._question.await_done(self._patience_s)
        sizes: list[int] | None = self._query.answer().wait(timeout_s)
        return sizes

    def _request(self, reports: NDArray[np.float64], present: NDArray[np.bool_]) -> BatchSizeRequest:
        request = balance_request(
            self._job, self._samples, self._rule, reports, present, token=self._token, size_step=self._size_step
        )
        self._question = self._questions.request(request)
        return self._question
