"""Requests for a sample's class, and their answers (docs/design.md §2.6).

UDP port 22347, 80 bytes, big-endian::

    magic 0x5749 · version 1 · status · model 32 · sequence 32 · class 8 · votes 8 · trees 8 · 8 zero bits
    64 features of 8 bits

A request has status 0 and the number of a model, or 0 for the one that takes bytes as they are. The switch that it is
addressed to returns it with a class.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import WireError

CLASSIFICATION_PORT: Final = 22347
FEATURES: Final = 64
"""Features of a request; those that a model does not have are 0."""
MESSAGE_BYTES: Final = 80

_MAGIC: Final = 0x5749
_VERSION: Final = 1
MESSAGE: Final = np.dtype(
    [
        ("magic", ">u2"),
        ("version", "u1"),
        ("status", "u1"),
        ("model", ">u4"),
        ("sequence", ">u4"),
        ("class_index", "u1"),
        ("votes", "u1"),
        ("trees", "u1"),
        ("reserved", "u1"),
        ("features", "u1", (FEATURES,)),
    ]
)


class Status(enum.IntEnum):
    """Kind of a message."""

    REQUEST = 0
    CLASSIFIED = 1
    UNKNOWN_MODEL = 2
    """The switch does not have the model, or is replacing it at this moment."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A switch's answer to one request."""

    sequence: int
    """Number of the request, as its sender chose it."""
    status: Status
    model: int
    """Number of the model that decided."""
    class_index: int
    votes: int
    """Trees that voted for the class."""
    trees: int
    """Trees that voted."""

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Decode an answer. Raises WireError if the payload is none."""
        if len(payload) != MESSAGE_BYTES:
            raise WireError(
                f"an answer has {MESSAGE_BYTES} bytes, not {len(payload)}", place="answer", value=len(payload)
            )
        message = np.frombuffer(payload, MESSAGE)[0]
        status = int(message["status"])
        if (int(message["magic"]), int(message["version"])) != (_MAGIC, _VERSION) or status not in (1, 2):
            raise WireError(
                f"no answer begins like {payload[:4].hex()}; 5749 01 are magic and version, then 01 or 02",
                place="answer",
                value=payload[:4].hex(),
            )
        return cls(
            int(message["sequence"]),
            Status(status),
            int(message["model"]),
            int(message["class_index"]),
            int(message["votes"]),
            int(message["trees"]),
        )


def pack_requests(samples: NDArray[np.uint8], first_sequence: int = 0, model: int = 0) -> NDArray[np.uint8]:
    """Return requests for samples of up to `FEATURES` bytes, (n, features): payloads of shape (n, `MESSAGE_BYTES`)."""
    messages = np.zeros(len(samples), MESSAGE)
    messages["magic"] = _MAGIC
    messages["version"] = _VERSION
    messages["model"] = model
    messages["sequence"] = (first_sequence + np.arange(len(samples))) & 0xFFFF_FFFF
    messages["features"][:, : samples.shape[1]] = samples
    return messages.view(np.uint8).reshape(len(samples), MESSAGE_BYTES)


def as_bytes(samples: ArrayLike, n_features: int, edges: Sequence[Sequence[float]] | None = None) -> NDArray[np.uint8]:
    """Return features as requests carry them.

    Args:
        samples: Numbers of shape (n, n_features).
        n_features: Features of the model.
        edges: Thresholds by feature, ascending: a value becomes the number of those below it. None: values are bytes.

    Returns:
        Bytes of the same shape.

    Raises:
        WireError: The shape is another one, or a value is not finite, or not a whole number in 0…255 without edges.
    """
    values = np.asarray(samples)
    if values.ndim != 2 or values.shape[1] != n_features:
        raise WireError(f"shape {values.shape} is not (samples, {n_features})", place="samples", value=values.shape)
    if not np.issubdtype(values.dtype, np.number) or not np.isfinite(values).all():
        raise WireError("every value must be a finite number", place="samples", value=str(values.dtype))
    if edges is None:
        if values.size and (values.min() < 0 or values.max() > 255 or (values != np.floor(values)).any()):
            raise WireError("every value must be a whole number in 0…255", place="samples")
        return values.astype(np.uint8)
    exact = values.astype(np.float32).astype(np.float64)  # scikit-learn compares float32 with float64 thresholds
    columns = [np.searchsorted(each, exact[:, feature], side="left") for feature, each in enumerate(edges)]
    return np.stack(columns, axis=1).astype(np.uint8)
