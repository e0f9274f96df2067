"""Consensus blocks: the blocks with the largest summed norms, the same at every worker, without indices.

Two sums by the switches: of the squared norms of all blocks, then of the numbers of the chosen ones.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....errors.values import Checks
from ...array_types import IntArray
from ...errors import InvalidTensor
from ...numerics.datatypes import DataType
from ...numerics.native_types import FLOAT32
from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, Context, kept, number_text
from ..mstopk import largest
from ..sparse import check_ratio


class ConsensusBlocks(Codec):
    """Blocks of `block` numbers, of which `ratio` are summed."""

    def __init__(self, ratio: float, block: int) -> None:
        check_ratio("blocks", ratio)
        block = Checks(InvalidTensor, "codec blocks").integer("block", block, 1, (1 << 31) - 1)
        self.name = f"blocks({number_text(ratio)}, {block})"
        self._ratio = ratio
        self._block = block

    @property
    def kind(self) -> DataType:
        return FLOAT32

    def _blocks(self, values: Float32Array) -> Float32Array:
        """Numbers as blocks (b, block), the last one filled with zeros."""
        return np.pad(values, (0, -values.size % self._block)).reshape(-1, self._block)

    def presum(self, values: Float32Array, context: Context) -> Float32Array:
        with np.errstate(over="ignore"):
            norms = np.square(self._blocks(values)).sum(axis=1)
        largest_norm = np.finfo(np.float32).max / np.float32(context.workers)  # whose sum is finite
        limited: Float32Array = np.minimum(norms, largest_norm)
        return limited

    def _chosen(self, context: Context) -> IntArray:
        assert context.agreed is not None
        return largest(context.agreed, kept(context.agreed.size, self._ratio))

    def encode(self, values: Float32Array, context: Context) -> NDArray[Any]:
        return self._blocks(values)[self._chosen(context)].ravel()

    def decode(self, code: NDArray[Any], context: Context) -> Float32Array:
        assert context.agreed is not None
        blocks = np.zeros((context.agreed.size, self._block), np.float32)
        blocks[self._chosen(context)] = code.reshape(-1, self._block)
        return blocks.ravel()[: context.size]

    def bytes_on_wire(self, size: int, workers: int) -> int:
        count = -(-size // self._block)
        return 4 * (count + kept(count, self._ratio) * self._block)


def make(ratio: float = 0.05, block: int = 32) -> Codec:
    """Create consensus blocks of `block` numbers, of which `ratio` are kept."""
    return ConsensusBlocks(ratio, block)


DESCRIPTION: Final = CodecDescription(
    "blocks", "blocks with the largest summed norms, without indices, summed by the switches", make
)
