"""Recurrent networks in PyTorch that predict a speed from a window of the last ones.

They are meant for the comparison of predictors: each iteration costs the processor far more than NARX's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ...imports.extras import explained
from .history import Floats
from .learned import Learned

if TYPE_CHECKING:
    import torch

WINDOW: Final = 10
"""Speeds in a window."""
_HIDDEN: Final = 10
_LEARNING_RATE: Final = 0.01

Cell = Literal["rnn", "lstm"]


class Recurrent(Learned):
    """One layer of cells over the window and a linear output, trained by a few steps of Adam in every iteration."""

    def __init__(self, cell: Cell, *, reads: bool = False, seed: int = 0) -> None:
        """Draw the network's numbers.

        Args:
            cell: Kind of the cells.
            reads: True if each step of the window also has the machine's readings, as NARX has them.
            seed: Seed of the network's numbers and of the batches.

        Raises:
            MissingExtra: PyTorch is not installed.
        """
        super().__init__(_Cells(cell, reads, seed), WINDOW, np.random.default_rng(seed))


class _Cells:
    def __init__(self, cell: Cell, reads: bool, seed: int) -> None:
        try:
            import torch
        except ImportError as missing:
            raise explained(missing, f"the predictor {cell}", "torch") from None
        kind = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM}[cell]
        self._inputs = 3 if reads else 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._cells = kind(self._inputs, _HIDDEN, batch_first=True)
            self._output = torch.nn.Linear(_HIDDEN, 1)
        numbers = [*self._cells.parameters(), *self._output.parameters()]
        self._optimizer = torch.optim.Adam(numbers, _LEARNING_RATE)

    def _speeds(self, inputs: Floats) -> torch.Tensor:
        """Return the speeds (size,) from inputs (size, 3 · WINDOW), whose newest come first in each third."""
        import torch

        steps = inputs.reshape(-1, 3, WINDOW)[:, : self._inputs, ::-1].transpose(0, 2, 1)
        states, _ = self._cells(torch.tensor(np.ascontiguousarray(steps), dtype=torch.float32))
        speeds: torch.Tensor = self._output(states[:, -1])[:, 0]
        return speeds

    def foretold(self, inputs: Floats) -> float:
        import torch

        with torch.no_grad():
            return float(self._speeds(inputs[None])[0])

    def train(self, inputs: Floats, wanted: Floats) -> None:
        import torch

        error = self._speeds(inputs) - torch.tensor(wanted, dtype=torch.float32)
        self._optimizer.zero_grad()
        (error**2).mean().backward()
        self._optimizer.step()
