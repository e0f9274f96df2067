"""Comparison of what the ranks of a process group have given to their hooks, in one small call."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import torch
import torch.distributed as dist

from ...errors import CallMismatch
from ..call_log import ranks_by_words

_BYTES: Final = 512
"""Bytes of a rank's words; longer ones end in a digest."""
_DIGITS: Final = 16
"""Digits of that digest."""


def check_alike(words: str, group: Any, device: Any) -> None:
    """Compare this rank's words with those of all ranks of a group, which call it at the same point.

    Args:
        words: Description of the hook and its options, which must be the same at all ranks.
        group: Process group; None: the default one.
        device: Where the group's back end takes tensors.

    Raises:
        CallMismatch: The words differ; raised at every rank. It names the ranks by their words.
    """
    size = dist.get_world_size(group)
    if size == 1:
        return
    mine = torch.frombuffer(bytearray(_shortened(words).ljust(_BYTES, b"\0")), dtype=torch.uint8).to(device)
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine, group=group)
    said = [bytes(part.cpu().numpy()).rstrip(b"\0").decode(errors="replace") for part in parts]
    if len(set(said)) > 1:
        raise CallMismatch(
            f"the ranks' hooks differ: {ranks_by_words(dict(enumerate(said)))}. All ranks take the same codec, options "
            "and seed, and go on from checkpoints of the same step",
            place="process group",
            value=words,
        )


def device_of_world() -> str:
    """Return a device on which the default group's back end takes tensors."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def _shortened(words: str) -> bytes:
    """Return words in at most `_BYTES` bytes, which differ if the words do."""
    text = words.encode()
    if len(text) <= _BYTES:
        return text
    digest = f"… #{hashlib.sha256(text).hexdigest()[:_DIGITS]}".encode()
    return text[: _BYTES - len(digest)].decode(errors="ignore").encode() + digest
