"""How many rounds the sums of a run's jobs take, and what those bring onto a link."""

from __future__ import annotations

from dataclasses import dataclass

from ...hosts.numerics.quantization import chunk_count
from ...wire.aggregation import HEADER_BYTES, message_bytes
from ...wire.frames import FRAME_HEADER_BYTES
from ..config import RunConfig


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of each sum of a job: first those that carry exponents only, then one for each chunk."""

    chunks: int
    scales: int

    @classmethod
    def of(cls, values: int, lanes: int, window: int) -> Rounds:
        """Of tensors of so many numbers, in a job that began with this window."""
        chunks = chunk_count(values, lanes)
        return cls(chunks, min(chunks, window))

    @classmethod
    def of_gradient(cls, config: RunConfig, shard: int, lanes: int) -> Rounds:
        """Of a step of the trained job, in one of its shards."""
        whole, shards = chunk_count(config.gradient_values, lanes), len(config.job.roots)
        chunks = whole * (shard + 1) // shards - whole * shard // shards  # as `Tensor.cut` shares them out
        return cls(chunks, min(chunks, config.job.window))

    @property
    def total(self) -> int:
        return self.chunks + self.scales

    def bytes(self, lanes: int) -> int:
        """What one worker's stream brings onto a link for a sum, headers included."""
        with_lanes, without = message_bytes(lanes) + FRAME_HEADER_BYTES, HEADER_BYTES + FRAME_HEADER_BYTES
        return self.chunks * with_lanes + self.scales * without

    def chunks_in(self, rounds: int) -> int:
        """How many chunks are in a job's first rounds, sum after sum."""
        sums, rest = divmod(rounds, self.total)
        return sums * self.chunks + max(0, rest - self.scales)
