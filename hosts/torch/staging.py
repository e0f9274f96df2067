"""Staging of tensors on an accelerator: copies through pinned memory, on streams separate from the script's own.

Work that the script had put on its stream before a call is done before the numbers are read, and results are in place
after a wait for the call. Work that the script adds meanwhile neither waits for a copy nor delays one.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

_log = logging.getLogger(__name__)

DEVICES: Final = ("cpu", "cuda") if torch.backends.cuda.is_built() else ("cpu",)
"""The types of device whose tensors the fabric sums. PyTorch calls AMD's GPUs cuda, too."""

_pinned: Final[dict[int, mmap.mmap]] = {}
"""Pinned memory, which accelerators access directly, by address. It is kept: pinned memory may not be unmapped."""


def runtime_of(device: torch.device) -> Any:
    """Return PyTorch's module for an accelerator, `torch.cuda`; None for the CPU, whose memory needs no copies."""
    return None if device.type == "cpu" else torch.get_device_module(device)


@dataclass(frozen=True, slots=True)
class Staged:
    """One call's tensors on an accelerator."""

    device: torch.device
    runtime: Any
    ready: Any
    """The event behind all that the script had put on its stream before the call."""

    @classmethod
    def of(cls, parts: Sequence[torch.Tensor]) -> Staged | None:
        """Stage tensors of one device, on the script's own thread; None for tensors on the CPU."""
        device = parts[0].device
        if (runtime := runtime_of(device)) is None:
            return None
        return cls(device, runtime, runtime.current_stream(device).record_event())

    @contextmanager
    def copying(self, memory: mmap.mmap, address: int) -> Iterator[None]:
        """Inside, copies between the tensors and this memory go on a stream of their own; behind it they are done."""
        self._pin(memory, address)
        stream = self.runtime.Stream(self.device)
        stream.wait_event(self.ready)
        with self.runtime.stream(stream):
            yield
        stream.synchronize()

    def _pin(self, memory: mmap.mmap, address: int) -> None:
        """Pin memory. If that fails, copies are slower and otherwise the same."""
        if address in _pinned:
            return
        _pinned[address] = memory
        if code := int(self.runtime.cudart().cudaHostRegister(address, len(memory), 0)):
            _log.warning("%d bytes shared with the relay cannot be pinned: CUDA's error %d", len(memory), code)
