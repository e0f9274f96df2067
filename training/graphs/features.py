"""Features that several hosts hold, a part each, and read from each other by messages.

::

    owner[node] ─▶ this host: its own rows      another: request "features" ─▶ its thread ─▶ rows
"""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ...hosts import EndpointClosed, TransportError
from ..errors import TrainingError
from .caching import Rows
from .graph import Nodes

_NAME: Final = "features"
_LOOK_S: Final = 0.2


class Requests(Protocol):
    """Methods of `Transport` by which ranks request features of each other."""

    @property
    def rank(self) -> int:
        """Rank of this worker."""

    def request_async(self, peer: int, name: str, value: object = b"") -> Any:
        """Same contract as `Transport.request_async`."""

    def receive_request(self, timeout_s: float | None = None) -> Any:
        """Same contract as `Transport.receive_request`."""

    def reply(self, request: Any, value: object) -> None:
        """Same contract as `Transport.reply`."""


class SharedFeatures:
    """One host's end; a context manager, which serves its rows until it is left.

    It takes all requests that come over its transport. Open the transport with `lower_effort`, so that networks with
    such a class send features after gradients.
    """

    def __init__(self, transport: Requests, owner: NDArray[Any], owned: Nodes, rows: Rows) -> None:
        """Hold a part of the features.

        Args:
            transport: Messages to the other hosts.
            owner: Rank of the host that holds each node, (nodes,), the same at all hosts.
            owned: Nodes of this host, in the order of `rows`.
            rows: Their features, (k, dimensions).

        Raises:
            TrainingError: The nodes are not those that `owner` gives this host, or have another number of rows.
        """
        mine = np.flatnonzero(np.asarray(owner) == transport.rank)
        if len(rows) != len(owned) or not np.array_equal(np.sort(owned), mine):
            raise TrainingError(
                f"{len(rows)} rows of {len(owned)} nodes; this host owns {len(mine)}",
                place="features",
                value=len(owned),
            )
        self._transport = transport
        self._owner = np.asarray(owner)
        self._place = np.full(len(self._owner), -1, np.int64)
        self._place[owned] = np.arange(len(owned))
        self._rows = rows
        self._closing = False
        self.remote_rows = 0
        """Rows that came from other hosts."""
        self._thread = threading.Thread(target=self._serve, name="weir features", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()

    def fetch(self, nodes: Nodes) -> Rows:
        """Return the features of nodes, asking all owners at once.

        Raises:
            TrainingError: An owner has answered with another number of rows. Whatever the transport raises passes
                through, such as PeerLost.
        """
        rows = np.empty((len(nodes), *self._rows.shape[1:]), self._rows.dtype)
        owners = self._owner[nodes]
        calls = [
            (peer, np.flatnonzero(owners == peer), self._transport.request_async(peer, _NAME, nodes[owners == peer]))
            for peer in np.unique(owners).tolist()
            if peer != self._transport.rank
        ]
        here = owners == self._transport.rank
        rows[here] = self._rows[self._place[nodes[here]]]
        for peer, places, call in calls:
            told = call.wait()
            if not isinstance(told, np.ndarray) or told.shape != rows[places].shape:
                raise TrainingError(f"rank {peer} has not the rows of the nodes that it owns", place="features")
            rows[places] = told
            self.remote_rows += len(places)
        return rows

    def _serve(self) -> None:
        while not self._closing:
            try:
                request = self._transport.receive_request(_LOOK_S)
            except EndpointClosed:
                return
            except TransportError:  # nothing came in time, or a peer is lost, which others do not share
                continue
            try:
                self._transport.reply(request, self._rows_of(request.value))
            except EndpointClosed:
                return
            except TransportError:  # the asker is gone
                continue

    def _rows_of(self, asked: object) -> Rows:
        """Return the rows of the asked nodes that this host owns; none for a value that is no array of nodes."""
        if not isinstance(asked, np.ndarray) or asked.ndim != 1 or not np.issubdtype(asked.dtype, np.integer):
            return self._rows[:0]
        known = asked[(asked >= 0) & (asked < len(self._place))].astype(np.int64)
        rows = self._place[known]
        return self._rows[rows[rows >= 0]]


def fill_by_broadcast(communicator: Any, nodes: Nodes, rows: Rows | None, dimensions: int, root: int = 0) -> Rows:
    """Give all workers the rows of the same hot nodes, which one of them has, at the traffic of one copy.

    Args:
        communicator: A `Communicator`.
        nodes: The hot nodes, the same at all workers.
        rows: Their features, float32 (k, dimensions), at `root`; None elsewhere.
        dimensions: Numbers of a row.
        root: Rank with the rows.

    Returns:
        The rows, bit by bit.
    """
    own = np.zeros((len(nodes), dimensions), np.float32) if rows is None else rows
    sent: Rows = communicator.broadcast(own, root, name="features of hot nodes")
    return sent
