"""Plain and contiguous tensors in place of a call's own.

The numbers of a call's tensors must be in their own memory, for the switches and for Gloo alike. Gloo takes that memory
as one run of numbers. A tensor with gaps, such as a column of a matrix, is handed to Gloo as a contiguous copy. Gloo's
results are copied back before the call is reported as complete.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from ..collectives.arrays import composed, is_composed

_UNLIMITED: Final = timedelta(0)

Copies = list[tuple[torch.Tensor, torch.Tensor]]
"""Tensors of the caller, each with the contiguous copy that stands in for it."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose numbers are in its own memory: itself, or a functional collective's result.

    Raises:
        InvalidTensor: it is composed of other tensors, as DTensor and MaskedTensor are.
    """
    if not is_composed(tensor):
        return tensor
    if isinstance(tensor, AsyncCollectiveTensor):
        result: torch.Tensor = tensor.trigger_wait()
        return result
    raise composed(tensor, "process group")


def contiguous_words(words: Sequence[Any]) -> tuple[list[Any], Copies]:
    """Replace tensors with gaps in a call's arguments by contiguous copies.

    Args:
        words: arguments of a collective call; tensors may be in nested lists.

    Returns:
        The arguments for Gloo, and the copies among the first one, which Gloo writes into: PyTorch's collectives have
        their outputs first.
    """
    copies: Copies = []

    def replaced(word: Any, written: bool) -> Any:
        if isinstance(word, torch.Tensor):
            word = plain(word)
            if word.layout != torch.strided or word.is_contiguous():
                return word
            copy = word.detach().contiguous()
            if written:
                copies.append((word, copy))
            return copy
        return [replaced(element, written) for element in word] if isinstance(word, list | tuple) else word

    return [replaced(word, number == 0) for number, word in enumerate(words)], copies


class CopiedWork(dist._Work):
    """A call over Gloo whose results are copied back into the caller's tensors once, by the first thread that finds it
    complete.
    """

    def __init__(self, inner: Any, copies: Copies) -> None:
        super().__init__()
        self._inner = inner
        self._copies = copies
        self._results = [original for original, _ in copies]
        self._lock = threading.Lock()

    def _copy_back(self) -> None:
        with self._lock:
            copies, self._copies = self._copies, []
            for original, copy in copies:
                with torch.inference_mode(original.is_inference()), torch.no_grad():
                    original.copy_(copy)

    def wait(self, timeout: timedelta = _UNLIMITED) -> bool:
        """Wait as the inner work does. Raises what the call has failed with."""
        complete: bool = self._inner.wait(timeout)
        self._copy_back()
        return complete

    def synchronize(self) -> None:
        """Wait without a limit."""
        self.wait()

    def is_completed(self) -> bool:
        """True once the results are copied back, or the call has failed."""
        if not self._inner.is_completed():
            return False
        with suppress(RuntimeError):  # a failure is raised where the caller waits
            self.wait()
        return True

    def is_success(self) -> bool:
        """True if the call is complete and has not failed."""
        success: bool = self.is_completed() and self._inner.is_success()
        return success

    def exception(self) -> Any:
        """Return the inner call's error."""
        return self._inner.exception()

    def _source_rank(self) -> Any:
        return self._inner._source_rank()

    def result(self) -> Any:
        """Wait, and return the caller's tensors with the results."""
        self.wait()
        return self._results

    def get_future(self) -> Any:
        """Return a future of the caller's tensors, done once the results are copied back."""

        def value(done: Any) -> list[torch.Tensor]:
            done.value()  # raises what the call has failed with
            self._copy_back()
            return self._results

        return self._inner.get_future().then(value)
