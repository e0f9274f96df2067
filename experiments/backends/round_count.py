"""Rounds of the sums of a run's jobs, and their bytes on a link."""

from __future__ import annotations

from collections.abc import Sequence
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
        """Rounds of tensors of this size, in a job that began with this window."""
        chunks = chunk_count(values, lanes)
        return cls(chunks, min(chunks, window))

    @classmethod
    def of_gradient(
        cls,
        config: RunConfig,
        lanes: int,
        shares: Sequence[int] = (1,),
        shard: int = 0,
        values: int | None = None,
    ) -> Rounds:
        """Rounds of a step of the trained job, in one shard.

        Args:
            config: the run.
            lanes: number of lanes in the job's messages.
            shares: proportions in which the shards divide the job's chunks.
            shard: index of the shard.
            values: numbers per tensor; None for the workload's own.
        """
        whole = chunk_count(config.gradient_values if values is None else values, lanes)
        first, last = (whole * sum(shares[:at]) // sum(shares) for at in (shard, shard + 1))  # as `Tensor.cut` does
        return cls(last - first, min(last - first, config.job.window))

    def within(self, window: int) -> Rounds:
        """Rounds of the same sums, in a job with at most this window."""
        return Rounds(self.chunks, min(self.scales, window))

    @property
    def total(self) -> int:
        return self.chunks + self.scales

    def bytes(self, lanes: int) -> int:
        """Bytes of one worker's stream on a link per sum, headers included."""
        with_lanes, without = message_bytes(lanes) + FRAME_HEADER_BYTES, HEADER_BYTES + FRAME_HEADER_BYTES
        return self.chunks * with_lanes + self.scales * without

    def chunks_in(self, rounds: int) -> int:
        """Number of chunks in a job's first rounds, sum after sum."""
        sums, rest = divmod(rounds, self.total)
        return sums * self.chunks + max(0, rest - self.scales)
