"""Transfers on the wire: numbered packets from one host to another, each of which is acknowledged (docs/design.md
§2.4).

UDP port 22345 at the receiver, 16 bytes, big-endian, and in packets with data what fills them up::

    magic 0x5754 · flags 8 (1: an acknowledgement, 2: its packet came with CE) · 40 zero bits · number 64

An acknowledgement has the number of the packet that it is for. What is sent again has a new number.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import WireError

TRANSFER_PORT: Final = 22345
TRANSFER: Final = np.dtype([("magic", ">u2"), ("flags", "u1"), ("zero", "u1", (5,)), ("number", ">u8")])

_MAGIC: Final = 0x5754
_ACKNOWLEDGEMENT: Final = 1
_MARKED: Final = 2


def data_packets(numbers: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """Return payloads (n, size) of packets with these numbers (n,)."""
    payload = np.zeros((len(numbers), size), np.uint8)
    heads = np.zeros(len(numbers), TRANSFER)
    heads["magic"], heads["number"] = _MAGIC, numbers
    payload[:, : TRANSFER.itemsize] = heads.view(np.uint8).reshape(len(numbers), TRANSFER.itemsize)
    return payload


def acknowledgements(heads: NDArray[np.void], marked: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return payloads (n, 16) for packets with these heads (n,), which were marked with CE or not (n,)."""
    answers = heads.copy()
    answers["flags"] = _ACKNOWLEDGEMENT | np.where(marked, _MARKED, 0)
    return answers.view(np.uint8).reshape(len(answers), TRANSFER.itemsize)


def heads_of(payload: NDArray[np.uint8]) -> NDArray[np.void]:
    """Return heads of a transfer's packets, TRANSFER (n,). (n, size) uint8. Raises WireError for other packets."""
    if payload.shape[1] < TRANSFER.itemsize:
        raise WireError(
            f"a packet of a transfer has {TRANSFER.itemsize} bytes at least, not {payload.shape[1]}", place="transfer"
        )
    heads: NDArray[np.void] = np.ascontiguousarray(payload[:, : TRANSFER.itemsize]).view(TRANSFER)[:, 0]
    if ((heads["magic"] != _MAGIC) | (heads["flags"] > (_ACKNOWLEDGEMENT | _MARKED))).any():
        raise WireError(
            f"no packet of a transfer begins like {payload[0, :4].tobytes().hex()}; 5754 is its magic",
            place="transfer",
            value=payload[0, :4].tobytes().hex(),
        )
    return heads


def are_acknowledgements(heads: NDArray[np.void]) -> NDArray[np.bool_]:
    """(n,)"""
    found: NDArray[np.bool_] = heads["flags"] & _ACKNOWLEDGEMENT != 0
    return found


def are_marked(heads: NDArray[np.void]) -> NDArray[np.bool_]:
    """True for each acknowledgement whose packet came with CE. (n,)"""
    found: NDArray[np.bool_] = heads["flags"] & _MARKED != 0
    return found
